//! Queries that only this server supports: function tables, callers and callees, source lines, subtrees of a
//! truncated graph, changes between two queries, and the single profiles of a point.
//!
//! Each uses the complete result of all sources. Only the response is truncated: to a page of rows or to a
//! number of nodes. A response contains its warnings and resolution, in addition to the headers that all responses
//! have. Values of gauges are averages over profiles.

use athanor_chassis::Status;
use athanor_profile::ProfileType;
use athanor_query::{ProfileSelection, RequiredResolution};

use crate::api::merge::StackOptions;
use crate::validate::invalid_argument;

mod averages;
mod changes;
mod functions;
mod graph;
mod lines;
mod period;
mod profiles;
mod samples;
mod transforms;
mod trees;
mod wire;

pub(crate) use changes::changes;
pub(crate) use functions::functions;
pub(crate) use graph::graph;
pub use graph::{DecodedGraph, GraphFormatError, PackedGraph, encode_graph};
pub(crate) use lines::lines;
pub(crate) use profiles::profiles;
pub use samples::SampleStream;
pub(crate) use samples::samples;
pub(crate) use transforms::{compile_transforms, refused_transforms};
pub(crate) use trees::{MAX_CALLER_FRAMES, sandwich, subtree};

/// Maximum number of rows of a page.
const MAX_PAGE_ROWS: u32 = 10_000;
/// Default number of rows of a page.
const DEFAULT_PAGE_ROWS: u32 = 100;

/// Validated query of this module.
#[derive(Clone, Debug)]
struct ExploreQuery {
    selection: ProfileSelection,
    stacks: StackOptions,
    profile_type: ProfileType,
}

/// Validated page of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PageRange {
    offset: usize,
    limit: usize,
}

impl ExploreQuery {
    fn unit(&self) -> String {
        self.profile_type.value.unit.clone()
    }

    /// Returns the query, which reads single profiles only.
    fn with_single_profiles(mut self) -> Self {
        self.selection.resolution = Some(RequiredResolution { single_profiles: true, steps: None });
        self
    }
}

impl PageRange {
    fn from_page(offset: u32, limit: u32) -> Result<PageRange, Status> {
        let limit = if limit == 0 { DEFAULT_PAGE_ROWS } else { limit };
        if limit > MAX_PAGE_ROWS {
            return Err(invalid_argument(format!(
                "page has {limit} rows, the limit is {MAX_PAGE_ROWS}; request more pages with page.offset"
            )));
        }
        Ok(PageRange { offset: offset as usize, limit: limit as usize })
    }

    /// Returns the rows of the page.
    fn page_rows<T>(self, all: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
        all.into_iter().skip(self.offset).take(self.limit)
    }
}

/// Returns the function of a request. The empty name is one: profilers may send it, and Functions lists it.
fn require_function(function: Option<String>) -> Result<String, Status> {
    function.ok_or_else(|| invalid_argument("request names no function; set function"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_bounded() {
        assert_eq!(PageRange::from_page(7, 0).unwrap(), PageRange { offset: 7, limit: 100 });
        assert!(PageRange::from_page(0, 10_001).unwrap_err().message.contains("limit is 10000"));
        let page = PageRange::from_page(2, 3).unwrap();
        assert_eq!(page.page_rows(0..9).collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(page.page_rows(0..3).collect::<Vec<_>>(), [2]);
    }
}
