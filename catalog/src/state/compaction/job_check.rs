//! Check of a job's outputs against its inputs: no row is lost, added or older than before [INV-22].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use athanor_chassis::{TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::block::{
    BlockEntry, BlockId, DropReason, DroppedRows, ShardLogRange, TENANT_FOLDER_LEVEL, TenantSpan,
};
use crate::state::CommandError;
use crate::state::compaction::claims::ListedPart;

/// Highest level of a merged block: windows of one day.
const MAX_LEVEL: u8 = 3;

/// Property in which an output differs from what its inputs require.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputMismatch {
    /// The block's log ranges differ from those of the input blocks of its tenants.
    LogRanges,
    /// The block's level is not 1 to 3, or below that of an input. The field is the lowest permitted level.
    Level(u8),
    /// The block's level requires exactly one tenant, or the block has none. The field is their number.
    TenantCount(usize),
    /// The block does not name the token of the job.
    Token(u64),
    /// The block's id is in use already.
    IdInUse,
    /// The block's id is older than one of its inputs. A rebuild of the catalog could not order the two.
    OlderThanInput(BlockId),
    /// The block states lost entries, which only the catalog moves.
    LostEntries,
    /// The block's number of samples differs from the sum over its tenants.
    SampleCount,
    /// A tenant is not in the job, or is in the block more than once.
    UnknownTenant(TenantId),
    /// The block states no profiles of a tenant, or no sum of its values.
    MissingTotals(TenantId),
    /// A tenant's profiles are earlier or later than those of the inputs.
    ProfileTimes(TenantId),
    /// The newest arrival of a tenant's rows differs from that of the inputs.
    NewestArrival(TenantId),
    /// A block that stays listed may hold the same rows.
    OverlapsBlock(BlockId),
}

/// Count that a job has to conserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConservedCount {
    /// Number of profiles.
    Profiles,
    /// Number of samples.
    Samples,
    /// Sum of the sample values, modulo 2^64.
    Sum,
}

/// Counts of rows.
#[derive(Clone, Copy, Debug, Default)]
struct RowCounts {
    profiles: u64,
    samples: u64,
    sum: u64,
}

impl RowCounts {
    fn add(&mut self, profiles: u64, samples: u64, sum: u64) {
        self.profiles = self.profiles.saturating_add(profiles);
        self.samples = self.samples.saturating_add(samples);
        self.sum = self.sum.wrapping_add(sum);
    }

    fn get(&self, count: ConservedCount) -> u64 {
        match count {
            ConservedCount::Profiles => self.profiles,
            ConservedCount::Samples => self.samples,
            ConservedCount::Sum => self.sum,
        }
    }
}

/// One tenant's rows in the inputs and outputs of a job.
#[derive(Debug)]
struct TenantRows<'j> {
    blocks: Vec<&'j BlockEntry>,
    min_time: i64,
    max_time: i64,
    newest_arrival: Timestamp,
    /// Whether all inputs state the sum of their values.
    has_sums: bool,
    inputs: RowCounts,
    outputs: RowCounts,
    dropped: RowCounts,
}

impl<'j> TenantRows<'j> {
    fn new() -> Self {
        Self {
            blocks: Vec::new(),
            min_time: i64::MAX,
            max_time: i64::MIN,
            newest_arrival: Timestamp::UNIX_EPOCH,
            has_sums: true,
            inputs: RowCounts::default(),
            outputs: RowCounts::default(),
            dropped: RowCounts::default(),
        }
    }

    fn add_input(&mut self, part: &ListedPart<'j>) {
        let ListedPart { block, span } = *part;
        self.blocks.push(block);
        self.min_time = self.min_time.min(span.min_time);
        self.max_time = self.max_time.max(span.max_time);
        self.newest_arrival = self.newest_arrival.max(block.newest_arrival(span));
        self.has_sums &= span.sum.is_some();
        self.inputs.add(span.profiles, span.samples, span.sum.unwrap_or_default());
    }

    /// Returns the first count of which inputs and outputs with dropped rows differ.
    fn unconserved_count(&self) -> Option<ConservedCount> {
        let counts = [ConservedCount::Profiles, ConservedCount::Samples, ConservedCount::Sum];
        let is_conserved = |count: ConservedCount| {
            let is_unknown = count == ConservedCount::Sum && !self.has_sums;
            let written = self.outputs.get(count);
            is_unknown || written.wrapping_add(self.dropped.get(count)) == self.inputs.get(count)
        };
        counts.into_iter().find(|count| !is_conserved(*count))
    }
}

/// Inputs of a job, with which its outputs are compared.
#[derive(Debug)]
pub(in crate::state) struct JobCheck<'j> {
    token: u64,
    level: u8,
    newest_input: Option<BlockId>,
    tenants: BTreeMap<TenantId, TenantRows<'j>>,
}

impl<'j> JobCheck<'j> {
    /// Creates the check from the input parts.
    pub(in crate::state) fn new(token: u64, inputs: &[ListedPart<'j>]) -> Self {
        let mut check = Self { token, level: 1, newest_input: None, tenants: BTreeMap::new() };
        for part in inputs {
            check.level = check.level.max(part.block.level);
            check.newest_input = check.newest_input.max(Some(part.block.id));
            let rows = check.tenants.entry(part.span.tenant.clone()).or_insert_with(TenantRows::new);
            rows.add_input(part);
        }
        check
    }

    /// Checks all outputs, and that no row is lost or added.
    pub(in crate::state) fn check(
        mut self,
        outputs: &[BlockEntry],
        dropped: &[DroppedRows],
    ) -> Result<(), CommandError> {
        for output in outputs {
            let mismatch_error = |mismatch| CommandError::OutputMismatch { block: output.id, mismatch };
            self.check_header(output).map_err(mismatch_error)?;
            self.check_tenants(output).map_err(mismatch_error)?;
            self.check_log_ranges(output).map_err(mismatch_error)?;
        }
        self.add_dropped(dropped)?;
        for (tenant, rows) in &self.tenants {
            if let Some(count) = rows.unconserved_count() {
                return Err(CommandError::RowsNotConserved {
                    tenant: tenant.clone(),
                    count,
                    inputs: rows.inputs.get(count),
                    outputs: rows.outputs.get(count),
                    dropped: rows.dropped.get(count),
                });
            }
        }
        Ok(())
    }

    fn check_header(&self, output: &BlockEntry) -> Result<(), OutputMismatch> {
        if let Some(newest) = self.newest_input.filter(|newest| *newest >= output.id) {
            return Err(OutputMismatch::OlderThanInput(newest));
        }
        if !(self.level..=MAX_LEVEL).contains(&output.level) {
            return Err(OutputMismatch::Level(self.level));
        }
        let tenants = output.tenants.len();
        if tenants == 0 || (output.level >= TENANT_FOLDER_LEVEL && tenants > 1) {
            return Err(OutputMismatch::TenantCount(tenants));
        }
        if output.job != Some(self.token) {
            return Err(OutputMismatch::Token(self.token));
        }
        if output.lost != 0 {
            return Err(OutputMismatch::LostEntries);
        }
        let samples = output.tenants.iter().map(|span| span.samples).fold(0, u64::saturating_add);
        match output.samples == samples {
            true => Ok(()),
            false => Err(OutputMismatch::SampleCount),
        }
    }

    /// Compares each tenant of an output with the inputs, and adds up its rows.
    fn check_tenants(&mut self, output: &BlockEntry) -> Result<(), OutputMismatch> {
        let mut seen: BTreeSet<&TenantId> = BTreeSet::new();
        for span in &output.tenants {
            let tenant = span.tenant.clone();
            let rows = self.tenants.get_mut(&tenant).filter(|_| seen.insert(&span.tenant));
            let Some(rows) = rows else { return Err(OutputMismatch::UnknownTenant(tenant)) };
            let TenantSpan { min_time, max_time, profiles, samples, sum, newest_arrival, .. } = *span;
            let Some(sum) = sum.filter(|_| profiles > 0) else {
                return Err(OutputMismatch::MissingTotals(tenant));
            };
            if min_time > max_time || min_time < rows.min_time || max_time > rows.max_time {
                return Err(OutputMismatch::ProfileTimes(tenant));
            }
            if newest_arrival != rows.newest_arrival {
                return Err(OutputMismatch::NewestArrival(tenant));
            }
            rows.outputs.add(profiles, samples, sum);
        }
        Ok(())
    }

    /// Checks that an output has the ranges of all input blocks that hold a part of one of its tenants.
    fn check_log_ranges(&self, output: &BlockEntry) -> Result<(), OutputMismatch> {
        let rows = output.tenants.iter().filter_map(|span| self.tenants.get(&span.tenant));
        let inputs: BTreeMap<BlockId, &BlockEntry> =
            rows.flat_map(|rows| &rows.blocks).map(|block| (block.id, *block)).collect();
        let expected = ShardLogRange::join_adjacent(inputs.values().flat_map(|block| block.log_ranges()));
        match output.log_ranges().eq(expected) {
            true => Ok(()),
            false => Err(OutputMismatch::LogRanges),
        }
    }

    /// Adds up the dropped rows. Each tenant states each reason at most once.
    fn add_dropped(&mut self, dropped: &[DroppedRows]) -> Result<(), CommandError> {
        let mut seen: BTreeSet<(&TenantId, DropReason)> = BTreeSet::new();
        for rows in dropped {
            let is_first = seen.insert((&rows.tenant, rows.reason));
            let of_tenant = self.tenants.get_mut(&rows.tenant).filter(|_| is_first);
            let Some(of_tenant) = of_tenant else {
                return Err(CommandError::InvalidDroppedRows(rows.tenant.clone()));
            };
            of_tenant.dropped.add(rows.profiles, rows.samples, rows.sum);
        }
        Ok(())
    }
}

impl fmt::Display for ConservedCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Profiles => "number of profiles",
            Self::Samples => "number of samples",
            Self::Sum => "sum of values",
        })
    }
}

impl fmt::Display for OutputMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LogRanges => f.write_str(
                "its log ranges differ; list the ranges of all input blocks of its tenants, joined and in order",
            ),
            Self::Level(lowest) => write!(f, "its level is not {lowest} to {MAX_LEVEL}"),
            Self::TenantCount(seen) => {
                write!(f, "it has {seen} tenants; write at least one, and one per block from level 2 on")
            }
            Self::Token(token) => write!(f, "it does not name job {token}"),
            Self::IdInUse => f.write_str("another block has its id; write it under a new id"),
            Self::OlderThanInput(input) => {
                write!(f, "its id is older than that of its input {input}; write it under a new id")
            }
            Self::LostEntries => f.write_str("it states lost entries; leave them to the catalog"),
            Self::SampleCount => f.write_str("its number of samples is not the sum over its tenants"),
            Self::UnknownTenant(tenant) => {
                write!(f, "tenant {tenant} is not in the job, or is in the block more than once")
            }
            Self::MissingTotals(tenant) => {
                write!(f, "it states no profiles of tenant {tenant}, or no sum of their values")
            }
            Self::ProfileTimes(tenant) => {
                write!(f, "profiles of tenant {tenant} are earlier or later than those of the inputs")
            }
            Self::NewestArrival(tenant) => {
                write!(f, "the newest arrival of tenant {tenant} differs from that of the inputs")
            }
            Self::OverlapsBlock(other) => write!(
                f,
                "block {other} stays listed with rows of the same ranges and tenants; merge these parts as well"
            ),
        }
    }
}
