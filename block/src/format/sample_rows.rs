//! Sample rows on their way into a block, their span contexts, and the columns that they need.

use athanor_profile::encoding::hash::{PrehashedMap, vec_memory};
use athanor_profile::{SampleTimestamps, SpanContext};

/// Columns of span contexts that a block has. A column is left out if no sample has such an ID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpanContextColumns {
    pub(crate) span: bool,
    pub(crate) trace: bool,
}

impl SpanContextColumns {
    pub(crate) fn union(self, other: Self) -> Self {
        SpanContextColumns { span: self.span || other.span, trace: self.trace || other.trace }
    }
    pub(crate) fn intersection(self, other: Self) -> Self {
        SpanContextColumns { span: self.span && other.span, trace: self.trace && other.trace }
    }
    pub(crate) fn is_any(self) -> bool {
        self.span || self.trace
    }
}

/// Optional columns of a block, which are left out if no row needs them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OptionalColumns {
    pub(crate) requests: SpanContextColumns,
    pub(crate) moments: bool,
    /// Counts of the profiles that a row of a downsampled tier adds up, in `profiles.parquet`.
    pub(crate) counts: bool,
}

impl OptionalColumns {
    /// Columns of a block with a downsampled tier.
    pub(crate) const DOWNSAMPLED: Self = OptionalColumns {
        requests: SpanContextColumns { span: false, trace: false },
        moments: false,
        counts: true,
    };

    pub(crate) fn union(self, other: Self) -> Self {
        OptionalColumns {
            requests: self.requests.union(other.requests),
            moments: self.moments || other.moments,
            counts: self.counts || other.counts,
        }
    }
    /// Index of the timestamp column, which is the last one.
    pub(crate) fn timestamps_index(self) -> Option<usize> {
        let SpanContextColumns { span, trace } = self.requests;
        self.moments.then_some(3 + usize::from(span) + usize::from(trace))
    }
}

/// Rows of one profile, with their span contexts and timestamps.
#[derive(Debug, Default)]
pub(crate) struct ProfileRows {
    pub(crate) rows: Vec<SampleRow>,
    pub(crate) requests: SpanContextTable,
    /// Timestamps by index in `rows`.
    pub(crate) moments: SampleTimestamps,
}

impl ProfileRows {
    /// Clears all rows and keeps the allocations.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.requests.clear();
        self.moments.clear();
    }
}

/// Sample row on its way into a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampleRow {
    pub(crate) stack: u32,
    /// Index in the span context table of the rows. Index 0 is the context without IDs.
    pub(crate) request: u32,
    pub(crate) value: i64,
}

/// Table of distinct span contexts.
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
        // Different contexts may share a key, so the entry is compared.
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
    /// Returns the allocated bytes.
    pub(crate) fn memory(&self) -> usize {
        vec_memory(&self.all) + self.places.allocation_size()
    }
    /// Clears all entries and keeps the allocations.
    pub(crate) fn clear(&mut self) {
        self.all.truncate(1);
        self.places.clear();
    }
}
