//! Source of profiles: one tenant's series, profiles and rows, independent of the storage.
//!
//! Blocks, heads and [`MemorySource`] are sources. Ids are dense and local to the source. A series or profile
//! is identified by its index in the lists, a stack by its index in the totals. A query therefore adds into
//! arrays, and names are read once, at the end, by [`ProfileSource::visit_names`].

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::analysis::origin_table::OriginTable;
use crate::call_tree::tree::{FrameGrouping, Tree};
use crate::data_model::model::Dictionary;
use crate::data_model::span_context::{SpanContext, SpanFilter};
use crate::store_interface::series::{ProfileRow, ProfileSeries};

mod memory;

pub use memory::MemorySource;

/// Snapshot of one tenant's profiles in one place.
pub trait ProfileSource: Send + Sync {
    /// Returns all series. [`ProfileRow::series`] is an index into this list.
    fn series(&self) -> Result<Arc<[ProfileSeries]>, SourceError>;
    /// Returns all profiles, in any order.
    fn profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError>;
    /// Returns all profiles in the same order, for callers that only need series, time and row count. Other
    /// fields may be missing.
    fn brief_profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError> {
        self.profiles()
    }
    /// Returns whether the source is known to hold each profile id once. If not, queries compare the ids.
    fn has_distinct_ids(&self) -> Result<bool, SourceError> {
        Ok(false)
    }
    /// Returns the sum of each profile's values, modulo 2^64, by index. Returns `None` if only the rows give
    /// the sums.
    fn profile_totals(&self) -> Result<Option<Arc<[i64]>>, SourceError> {
        Ok(None)
    }
    /// Returns an upper bound of the absolute value of each sum over values of some profiles. Returns `None` if only the
    /// rows tell.
    ///
    /// The default implementation adds up the stored sums of profiles. A negative one may have wrapped, or may hide
    /// values of both signs.
    fn max_sum(&self, picked: &[u32]) -> Result<Option<u64>, SourceError> {
        let Some(totals) = self.profile_totals()? else { return Ok(None) };
        let of_profile =
            |&place: &u32| totals.get(place as usize).and_then(|&total| u64::try_from(total).ok());
        Ok(picked.iter().map(of_profile).try_fold(0u64, |sum, total| Some(sum.saturating_add(total?))))
    }
    /// Returns sums modulo 2^64 by stack over some profiles, given by their indexes, ascending.
    fn totals(&self, picked: &[u32]) -> Result<Vec<i64>, SourceError>;
    /// Returns [`totals`](Self::totals) for a caller that reads their [`tree`](Self::tree) next. The source
    /// may prefetch the names for it.
    fn totals_for_tree(&self, picked: &[u32]) -> Result<Vec<i64>, SourceError> {
        self.totals(picked)
    }
    /// Visits the rows of some profiles, given by their indexes, ascending: index, stacks and values. A
    /// profile may be visited in several parts, and a stack more than once. A profile without rows may be
    /// skipped.
    fn visit_rows(&self, picked: &[u32], each: &mut SourceRowVisitor<'_>) -> Result<(), SourceError>;
    /// Returns [`totals`](Self::totals) over the rows with a span context in `wanted`.
    fn totals_of_spans(&self, picked: &[u32], wanted: &SpanFilter) -> Result<Vec<i64>, SourceError> {
        let mut totals = self.totals(&[])?;
        self.visit_span_rows(picked, &mut |_, stacks, values, requests| {
            for ((&stack, &value), &request) in stacks.iter().zip(values).zip(requests) {
                if wanted.contains(request)
                    && let Some(total) = totals.get_mut(stack as usize)
                {
                    *total = total.wrapping_add(value);
                }
            }
        })?;
        Ok(totals)
    }
    /// Returns whether each row is a series' bucket of a downsampled tier. Its id is [`BucketCounts`] then, so
    /// ids are never compared.
    ///
    /// [`BucketCounts`]: crate::store_interface::series::BucketCounts
    fn is_downsampled(&self) -> bool {
        false
    }
    /// Visits rows like [`visit_rows`](Self::visit_rows), with the span context of each row.
    fn visit_span_rows(&self, picked: &[u32], each: &mut SourceSpanRowVisitor<'_>)
    -> Result<(), SourceError>;
    /// Passes a dictionary, and for each stack of this source its stack in that dictionary.
    fn visit_names(&self, read: &mut SourceNameVisitor<'_>) -> Result<(), SourceError>;
    /// Returns the bytes that a merge of some profiles reads here. `whole` is set if these are all profiles
    /// of their time range.
    fn read_size(&self, picked: &[u32], whole: bool) -> Result<SourceReadSize, SourceError>;
    /// Returns the same source for a request that may be canceled through the flag. Soon after the flag is
    /// set, reads fail with [`SourceError::Left`]. Returns `None` if the source does not check the flag.
    fn with_cancellation(&self, _has_left: &Arc<AtomicBool>) -> Option<Arc<dyn ProfileSource>> {
        None
    }
    /// Returns the tree for totals by stack of this source.
    fn tree(&self, totals: &[i64]) -> Result<Tree, SourceError> {
        let mut tree = Err(SourceError::Damaged("names and totals have different stacks".into()));
        self.visit_names(&mut |dictionary, stacks| {
            if stacks.len() < totals.len() {
                return;
            }
            tree = Ok(Tree::from_totals(dictionary, &totals_by_stack(dictionary, stacks, totals)));
        })?;
        tree
    }
    /// Returns the [`tree`](Self::tree) for totals by stack of this source, and the origins of its frames.
    fn tree_with_origins(&self, totals: &[i64]) -> Result<(Tree, OriginTable), SourceError> {
        let mut result = Err(SourceError::Damaged("names and totals have different stacks".into()));
        self.visit_names(&mut |dictionary, stacks| {
            if stacks.len() < totals.len() {
                return;
            }
            let totals = totals_by_stack(dictionary, stacks, totals);
            let origins = OriginTable::from_totals(dictionary, &totals, FrameGrouping::Function);
            result = Ok((Tree::from_totals(dictionary, &totals), origins));
        })?;
        result
    }
}

/// Returns totals by stack of a dictionary from totals by stack of a source.
fn totals_by_stack(dictionary: &Dictionary, stacks: &[u32], totals: &[i64]) -> Vec<i64> {
    let mut by_stack = vec![0i64; dictionary.stacks.len()];
    for (&stack, &total) in stacks.iter().zip(totals) {
        by_stack[stack as usize] = by_stack[stack as usize].saturating_add(total);
    }
    by_stack
}

/// Bytes that a merge reads, as stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceReadSize {
    /// Set if the bytes are in a block, not in memory.
    pub is_block: bool,
    /// Bytes of series and profiles.
    pub index: u64,
    /// Bytes of rows and their sums.
    pub rows: u64,
    /// Bytes of the names.
    pub names: u64,
}

/// Visitor of rows: index of a profile, stacks, and a value for each.
pub type SourceRowVisitor<'a> = dyn FnMut(u32, &[u32], &[i64]) + 'a;
/// Visitor of rows with their span contexts: one per row, or an empty slice if no row has one.
pub type SourceSpanRowVisitor<'a> = dyn FnMut(u32, &[u32], &[i64], &[SpanContext]) + 'a;
/// Visitor of names: a dictionary, and for each stack of the source its stack there.
pub type SourceNameVisitor<'a> = dyn FnMut(&Dictionary, &[u32]) + 'a;

/// Reason that a source returns no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// Stored bytes differ from the bytes written.
    #[error("stored profiles are damaged: {0}")]
    Damaged(String),
    /// The store or the peer does not respond.
    #[error("stored profiles cannot be read now: {0}")]
    Unavailable(String),
    /// The data has moved since the query was planned [INV-18].
    #[error("stored profiles have moved: {0}")]
    Moved(String),
    /// The client canceled the request, so no result is needed.
    #[error("request was canceled by the client")]
    Left,
}
