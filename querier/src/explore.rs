//! What only this server answers: all functions, the surroundings of one, its lines, the inside of a node that a graph
//! was cut at, what changed between two queries, and the single profiles behind a point.
//!
//! Each is made of the whole answer of all sources, exactly, and only what is shown of it is cut: to a page of rows, or
//! to so many nodes. An answer says in itself what it lacks, as well as in the header that all answers have.

use athanor_chassis::Status;
use athanor_profile::ProfileType;
use athanor_query::Selection;

use crate::check::invalid;
use crate::merge::StacksAsked;

mod changes;
mod functions;
mod lines;
mod profiles;
mod trees;
mod wire;

pub(crate) use trees::MAX_FRAMES;

/// Most rows of a page.
const MAX_ROWS: u32 = 10_000;
/// Rows of a page where none are asked for.
const ROWS: u32 = 100;

/// A checked query.
#[derive(Clone, Debug)]
struct Asked {
    selection: Selection,
    stacks: StacksAsked,
    profile_type: ProfileType,
}

/// A checked part of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rows {
    offset: usize,
    limit: usize,
}

impl Asked {
    fn unit(&self) -> String {
        self.profile_type.value.unit.clone()
    }
}

impl Rows {
    fn check(offset: u32, limit: u32) -> Result<Rows, Status> {
        let limit = if limit == 0 { ROWS } else { limit };
        if limit > MAX_ROWS {
            return Err(invalid(format!(
                "page has {limit} rows, the limit is {MAX_ROWS}; ask for more pages with page.offset"
            )));
        }
        Ok(Rows { offset: offset as usize, limit: limit as usize })
    }

    /// The rows of the page.
    fn of<T>(self, all: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
        all.into_iter().skip(self.offset).take(self.limit)
    }
}

/// A function that must be named.
fn named(function: String) -> Result<String, Status> {
    if function.is_empty() { Err(invalid("request names no function; set function")) } else { Ok(function) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_bounded() {
        assert_eq!(Rows::check(7, 0).unwrap(), Rows { offset: 7, limit: 100 });
        assert!(Rows::check(0, 10_001).unwrap_err().message.contains("limit is 10000"));
        let page = Rows::check(2, 3).unwrap();
        assert_eq!(page.of(0..9).collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(page.of(0..3).collect::<Vec<_>>(), [2]);
    }
}
