//! Where profiles lie: one tenant's series, profiles and rows, whoever keeps them.
//!
//! Blocks, heads and [`MemorySource`] are sources. Ids are dense and local to the source: a series and a profile
//! are known by their place in the lists, a stack by its place in the totals. So an answer is adding into arrays,
//! and names are read once, at the end, by [`ProfileSource::visit_names`].

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::model::Dictionary;
use crate::series::{ProfileRow, ProfileSeries};
use crate::span_context::{SpanContext, SpanFilter};
use crate::tree::Tree;

mod memory;

pub use memory::MemorySource;

/// One tenant's profiles in one place, as they are at one moment.
pub trait ProfileSource: Send + Sync {
    /// All series; their place is what [`ProfileRow::series`] says.
    fn series(&self) -> Result<Arc<[ProfileSeries]>, SourceError>;
    /// All profiles, in any order.
    fn profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError>;
    /// All profiles in the same order, where only their series, their time and the number of their rows matter: the rest
    /// may be missing.
    fn brief_profiles(&self) -> Result<Arc<[ProfileRow]>, SourceError> {
        self.profiles()
    }
    /// Returns whether the source is known to hold each profile id once. Where it is not, queries compare the ids.
    fn has_distinct_ids(&self) -> Result<bool, SourceError> {
        Ok(false)
    }
    /// The sum of each profile's values, modulo 2^64, by place; none where only the rows tell.
    fn profile_totals(&self) -> Result<Option<Arc<[i64]>>, SourceError> {
        Ok(None)
    }
    /// Sums modulo 2^64 by stack over some profiles, given by their places, ascending.
    fn totals(&self, picked: &[u32]) -> Result<Vec<i64>, SourceError>;
    /// As [`totals`](Self::totals), of whoever asks for their [`tree`](Self::tree) next: what that takes of names may be read
    /// meanwhile.
    fn totals_for_tree(&self, picked: &[u32]) -> Result<Vec<i64>, SourceError> {
        self.totals(picked)
    }
    /// The rows of some profiles, given by their places, ascending: place, stacks and their values. A profile may
    /// come in several pieces and a stack more than once; one without rows need not come.
    fn visit_rows(&self, picked: &[u32], each: &mut SourceRowVisitor<'_>) -> Result<(), SourceError>;
    /// As [`totals`](Self::totals), of the rows whose request is `wanted`.
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
    /// As [`visit_rows`](Self::visit_rows), with the request of each row.
    fn visit_span_rows(&self, picked: &[u32], each: &mut SourceSpanRowVisitor<'_>)
    -> Result<(), SourceError>;
    /// What stacks are called: a dictionary, and for each stack of this source its stack there.
    fn visit_names(&self, read: &mut SourceNameVisitor<'_>) -> Result<(), SourceError>;
    /// What a merge of some profiles reads here; `whole` says whether they are all that there are in their time.
    fn read_size(&self, picked: &[u32], whole: bool) -> Result<SourceReadSize, SourceError>;
    /// The same source for one who may leave, which is then said here: soon after, reading ends with [`SourceError::Left`].
    /// None where that is not looked at.
    fn with_cancellation(&self, _has_left: &Arc<AtomicBool>) -> Option<Arc<dyn ProfileSource>> {
        None
    }
    /// The tree of totals by stack of this source.
    fn tree(&self, totals: &[i64]) -> Result<Tree, SourceError> {
        let mut tree = Err(SourceError::Damaged("names are of other stacks than totals".into()));
        self.visit_names(&mut |dictionary, stacks| {
            if stacks.len() < totals.len() {
                return;
            }
            let mut by_stack = vec![0i64; dictionary.stacks.len()];
            for (&stack, &total) in stacks.iter().zip(totals) {
                by_stack[stack as usize] = by_stack[stack as usize].wrapping_add(total);
            }
            tree = Ok(Tree::from_totals(dictionary, &by_stack));
        })?;
        tree
    }
}

/// How many bytes a merge reads, as they lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceReadSize {
    /// Whether they lie in a block, not in memory.
    pub is_block: bool,
    /// Those of series and profiles.
    pub index: u64,
    /// Those of rows and their sums.
    pub rows: u64,
    /// Those of names.
    pub names: u64,
}

/// Takes rows: the place of a profile, stacks, and a value for each.
pub type SourceRowVisitor<'a> = dyn FnMut(u32, &[u32], &[i64]) + 'a;
/// Takes rows with their requests, which are as many as the rows, or none where no row has one.
pub type SourceSpanRowVisitor<'a> = dyn FnMut(u32, &[u32], &[i64], &[SpanContext]) + 'a;
/// Takes names: a dictionary, and for each stack of the source its stack there.
pub type SourceNameVisitor<'a> = dyn FnMut(&Dictionary, &[u32]) + 'a;

/// Why a source gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// Stored bytes are not what was written.
    #[error("stored profiles are damaged: {0}")]
    Damaged(String),
    /// The store or the peer does not answer now.
    #[error("stored profiles cannot be read now: {0}")]
    Unavailable(String),
    /// The data has gone elsewhere since the query was planned [INV-18].
    #[error("stored profiles have moved: {0}")]
    Moved(String),
    /// Whoever asked has left: nobody wants the answer.
    #[error("whoever asked has left")]
    Left,
}
