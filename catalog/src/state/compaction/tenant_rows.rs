//! Counts of one tenant's rows in the inputs and outputs of a job: no tier loses or doubles a row [INV-23].

use std::collections::BTreeMap;

use athanor_chassis::{TenantId, Tier, Timestamp};

use crate::block::{BlockEntry, DroppedRows, TenantSpan};
use crate::state::compaction::claims::ListedPart;
use crate::state::{CommandError, ConservedCount};

/// Counts of rows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowCounts {
    profiles: u64,
    samples: u64,
    sum: u64,
}

/// Rows of the inputs, and those of them that were dropped.
#[derive(Debug)]
pub(super) struct InputRows {
    /// Time of the earliest profile.
    pub(super) min_time: i64,
    /// Time of the latest profile.
    pub(super) max_time: i64,
    /// Newest arrival of the rows.
    pub(super) newest_arrival: Timestamp,
    /// True if all inputs state the sum of their values.
    has_sums: bool,
    counts: RowCounts,
    dropped: RowCounts,
}

/// One tenant's rows in the inputs and outputs of a job.
#[derive(Debug)]
pub(super) struct TenantRows<'j> {
    /// Blocks of the inputs.
    pub(super) blocks: Vec<&'j BlockEntry>,
    /// Rows of all inputs.
    pub(super) all: InputRows,
    /// Rows of the inputs that the tiers lack.
    pub(super) uncovered: InputRows,
    /// Rows of the outputs, by tier.
    outputs: BTreeMap<Tier, RowCounts>,
}

impl RowCounts {
    fn add(&mut self, more: Self) {
        self.profiles = self.profiles.saturating_add(more.profiles);
        self.samples = self.samples.saturating_add(more.samples);
        self.sum = self.sum.wrapping_add(more.sum);
    }

    fn from_span(span: &TenantSpan) -> Self {
        Self { profiles: span.profiles, samples: span.samples, sum: span.sum.unwrap_or_default() }
    }

    const fn get(self, count: ConservedCount) -> u64 {
        match count {
            ConservedCount::Profiles => self.profiles,
            ConservedCount::Samples => self.samples,
            ConservedCount::Sum => self.sum,
        }
    }
}

impl InputRows {
    fn new() -> Self {
        Self {
            min_time: i64::MAX,
            max_time: i64::MIN,
            newest_arrival: Timestamp::UNIX_EPOCH,
            has_sums: true,
            counts: RowCounts::default(),
            dropped: RowCounts::default(),
        }
    }

    fn add(&mut self, part: &ListedPart<'_>) {
        let ListedPart { block, span } = *part;
        self.min_time = self.min_time.min(span.min_time);
        self.max_time = self.max_time.max(span.max_time);
        self.newest_arrival = self.newest_arrival.max(block.newest_arrival(span));
        self.has_sums &= span.sum.is_some();
        self.counts.add(RowCounts::from_span(span));
    }

    /// Returns whether the rows equal those written and dropped in one count.
    fn equals(&self, written: RowCounts, count: ConservedCount) -> bool {
        let is_unknown = count == ConservedCount::Sum && !self.has_sums;
        is_unknown || written.get(count).wrapping_add(self.dropped.get(count)) == self.counts.get(count)
    }
}

impl<'j> TenantRows<'j> {
    pub(super) fn new() -> Self {
        Self {
            blocks: Vec::new(),
            all: InputRows::new(),
            uncovered: InputRows::new(),
            outputs: BTreeMap::new(),
        }
    }

    pub(super) fn add_input(&mut self, part: &ListedPart<'j>) {
        self.blocks.push(part.block);
        self.all.add(part);
        if !part.block.is_covered {
            self.uncovered.add(part);
        }
    }

    /// Adds rows of an output.
    pub(super) fn add_output(&mut self, tier: Tier, span: &TenantSpan) {
        self.outputs.entry(tier).or_default().add(RowCounts::from_span(span));
    }

    /// Adds dropped rows.
    pub(super) fn add_dropped(&mut self, rows: &DroppedRows) {
        let counts = RowCounts { profiles: rows.profiles, samples: rows.samples, sum: rows.sum };
        self.all.dropped.add(counts);
        if !rows.is_covered {
            self.uncovered.dropped.add(counts);
        }
    }

    /// Checks that the outputs of the inputs' tier hold all rows that were not dropped. Downsampled rows that
    /// add up have fewer samples.
    pub(super) fn check_merge(&self, tenant: &TenantId, tier: Tier) -> Result<(), CommandError> {
        let written = self.outputs.get(&tier).copied().unwrap_or_default();
        let all = &self.all;
        let is_conserved = |count: ConservedCount| match (tier.is_raw(), count) {
            (false, ConservedCount::Samples) => {
                written.samples.saturating_add(all.dropped.samples) <= all.counts.samples
            }
            _ => all.equals(written, count),
        };
        let counts = [ConservedCount::Profiles, ConservedCount::Samples, ConservedCount::Sum];
        let Some(count) = counts.into_iter().find(|count| !is_conserved(*count)) else { return Ok(()) };
        Err(CommandError::RowsNotConserved {
            tenant: tenant.clone(),
            count,
            inputs: all.counts.get(count),
            outputs: written.get(count),
            dropped: all.dropped.get(count),
        })
    }

    /// Checks that the job drops no more rows of covered parts than it has.
    pub(super) fn check_dropped(&self, tenant: &TenantId) -> Result<(), CommandError> {
        let profiles = |rows: &InputRows| (rows.counts.profiles, rows.dropped.profiles);
        let (all, all_dropped) = profiles(&self.all);
        let (uncovered, uncovered_dropped) = profiles(&self.uncovered);
        let inputs = all.saturating_sub(uncovered);
        let dropped = all_dropped.saturating_sub(uncovered_dropped);
        match dropped <= inputs {
            true => Ok(()),
            false => Err(CommandError::TooManyCoveredDropped { tenant: tenant.clone(), dropped, inputs }),
        }
    }

    /// Checks that a tier holds the rows of the uncovered inputs that were not dropped.
    pub(super) fn check_tier(&self, tenant: &TenantId, tier: Tier) -> Result<(), CommandError> {
        let written = self.outputs.get(&tier).copied().unwrap_or_default();
        let rows = &self.uncovered;
        let counts = [ConservedCount::Profiles, ConservedCount::Sum];
        let Some(count) = counts.into_iter().find(|count| !rows.equals(written, *count)) else {
            return Ok(());
        };
        Err(CommandError::TierNotConserved {
            tier,
            tenant: tenant.clone(),
            count,
            inputs: rows.counts.get(count),
            outputs: written.get(count),
            dropped: rows.dropped.get(count),
        })
    }
}
