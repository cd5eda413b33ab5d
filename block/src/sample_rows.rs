//! Rows of samples on their way into a block, their requests each once, and which columns all that needs.

use athanor_profile::hash::{PrehashedMap, vec_memory};
use athanor_profile::{SampleTimestamps, SpanContext};

/// Which columns for requests a block has: both are left out of a block where no sample has such an id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpanContextColumns {
    pub(crate) span: bool,
    pub(crate) trace: bool,
}

impl SpanContextColumns {
    pub(crate) fn union(self, other: Self) -> Self {
        SpanContextColumns { span: self.span || other.span, trace: self.trace || other.trace }
    }
    pub(crate) fn is_any(self) -> bool {
        self.span || self.trace
    }
}

/// Which of its columns `samples.parquet` has that are left out where no row needs them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OptionalColumns {
    pub(crate) requests: SpanContextColumns,
    pub(crate) moments: bool,
}

impl OptionalColumns {
    pub(crate) fn union(self, other: Self) -> Self {
        OptionalColumns {
            requests: self.requests.union(other.requests),
            moments: self.moments || other.moments,
        }
    }
    /// The place of the column of moments: behind all others.
    pub(crate) fn timestamps_index(self) -> Option<usize> {
        let SpanContextColumns { span, trace } = self.requests;
        self.moments.then_some(3 + usize::from(span) + usize::from(trace))
    }
}

/// All rows of one profile, with what they refer to.
#[derive(Debug, Default)]
pub(crate) struct ProfileRows {
    pub(crate) rows: Vec<SampleRow>,
    pub(crate) requests: SpanContextTable,
    /// Moments, by place in `rows`.
    pub(crate) moments: SampleTimestamps,
}

impl ProfileRows {
    /// Forgets all and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.requests.clear();
        self.moments.clear();
    }
}

/// A sample row on its way into a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampleRow {
    pub(crate) stack: u32,
    /// Place in a list of requests that goes with the rows; at 0 is the one without ids.
    pub(crate) request: u32,
    pub(crate) value: i64,
}

/// Requests, each once.
#[derive(Clone, Debug)]
pub(crate) struct SpanContextTable {
    all: Vec<SpanContext>,
    places: PrehashedMap<u128, u32>,
}

impl Default for SpanContextTable {
    fn default() -> Self {
        SpanContextTable { all: vec![SpanContext::default()], places: PrehashedMap::default() }
    }
}

impl SpanContextTable {
    pub(crate) fn intern(&mut self, request: SpanContext) -> u32 {
        if request == SpanContext::default() {
            return 0;
        }
        // Two ids that meet in one key would be confused: so the entry is compared.
        let key = request.trace ^ u128::from(request.span).rotate_left(64);
        match self.places.get(&key) {
            Some(&place) if self.all[place as usize] == request => place,
            _ => {
                let place = self.all.len() as u32;
                self.all.push(request);
                self.places.insert(key, place);
                place
            }
        }
    }
    pub(crate) fn all(&self) -> &[SpanContext] {
        &self.all
    }
    /// Bytes that it has taken.
    pub(crate) fn memory(&self) -> usize {
        vec_memory(&self.all) + self.places.allocation_size()
    }
    /// Forgets all and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.all.truncate(1);
        self.places.clear();
    }
}
