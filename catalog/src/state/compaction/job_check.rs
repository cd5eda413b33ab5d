//! Check of a job's outputs against its inputs: no row is lost, added or older than before [INV-22].
//!
//! ```text
//!  raw parts, level 1    ─► raw blocks
//!  raw parts, levels 2+  ─► covered raw blocks + blocks of each tier with the rows of the uncovered parts
//!  parts of one tier     ─► blocks of that tier
//! ```

use std::collections::{BTreeMap, BTreeSet};

use athanor_chassis::{TenantId, Tier};

use crate::block::{
    BlockEntry, BlockId, DropReason, DroppedRows, ShardLogRange, TENANT_FOLDER_LEVEL, TenantSpan,
};
use crate::compaction::window::DAY_LEVEL;
use crate::state::compaction::claims::{ListedPart, tier_of_parts};
use crate::state::compaction::output_mismatch::{MAX_RAW_LEVEL, MAX_TIER_LEVEL};
use crate::state::compaction::tenant_rows::TenantRows;
use crate::state::{CommandError, OutputMismatch};

/// Inputs of a job, with which its outputs are compared.
#[derive(Debug)]
pub(in crate::state) struct JobCheck<'j> {
    token: u64,
    /// Tier of the inputs.
    tier: Tier,
    /// Highest level of the inputs, at least 1.
    level: u8,
    newest_input: Option<BlockId>,
    tenants: BTreeMap<TenantId, TenantRows<'j>>,
    /// Level of the raw outputs. Absent for a job without any.
    raw_level: Option<u8>,
}

impl<'j> JobCheck<'j> {
    /// Creates the check from the input parts.
    pub(in crate::state) fn new(token: u64, inputs: &[ListedPart<'j>]) -> Result<Self, CommandError> {
        let tier = tier_of_parts(inputs)?;
        let mut check =
            Self { token, tier, level: 1, newest_input: None, tenants: BTreeMap::new(), raw_level: None };
        for part in inputs {
            check.level = check.level.max(part.block.level);
            check.newest_input = check.newest_input.max(Some(part.block.id));
            let rows = check.tenants.entry(part.span.tenant.clone()).or_insert_with(TenantRows::new);
            rows.add_input(part);
        }
        Ok(check)
    }

    /// Checks all outputs, and that no row is lost or added.
    pub(in crate::state) fn check(
        mut self,
        outputs: &[BlockEntry],
        dropped: &[DroppedRows],
    ) -> Result<(), CommandError> {
        self.raw_level = outputs.iter().find(|output| output.tier.is_raw()).map(|output| output.level);
        for output in outputs {
            let mismatch_error = |mismatch| CommandError::OutputMismatch { block: output.id, mismatch };
            self.check_header(output).map_err(mismatch_error)?;
            self.check_tenants(output).map_err(mismatch_error)?;
            self.check_log_ranges(output).map_err(mismatch_error)?;
        }
        self.add_dropped(dropped)?;
        for (tenant, rows) in &self.tenants {
            rows.check_dropped(tenant)?;
            rows.check_merge(tenant, self.tier)?;
            for tier in Tier::DOWNSAMPLED.into_iter().filter(|_| self.writes_tiers()) {
                rows.check_tier(tenant, tier)?;
            }
        }
        Ok(())
    }

    /// Returns whether the job writes covered raw blocks, and the missing rows to all tiers.
    fn writes_tiers(&self) -> bool {
        self.tier.is_raw() && self.raw_level.is_some_and(|level| level >= TENANT_FOLDER_LEVEL)
    }

    fn check_header(&self, output: &BlockEntry) -> Result<(), OutputMismatch> {
        if let Some(newest) = self.newest_input.filter(|newest| *newest >= output.id) {
            return Err(OutputMismatch::OlderThanInput(newest));
        }
        let tenants = output.tenants.len();
        if tenants == 0 || (output.level >= TENANT_FOLDER_LEVEL && tenants > 1) {
            return Err(OutputMismatch::TenantCount(tenants));
        }
        self.check_tier(output)?;
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

    /// Checks tier, level and coverage of an output.
    fn check_tier(&self, output: &BlockEntry) -> Result<(), OutputMismatch> {
        let &BlockEntry { tier, level, is_covered, .. } = output;
        if !self.tier.is_raw() {
            return self.check_tier_merge(output);
        }
        if !tier.is_raw() && !self.writes_tiers() {
            return Err(OutputMismatch::UnexpectedTier(tier));
        }
        if !(self.level..=MAX_RAW_LEVEL).contains(&level) {
            return Err(OutputMismatch::Level(self.level));
        }
        if let Some(expected) = self.raw_level.filter(|expected| *expected != level) {
            return Err(OutputMismatch::JobLevel(expected));
        }
        let must_be_covered = tier.is_raw() && level >= TENANT_FOLDER_LEVEL;
        match (must_be_covered, is_covered) {
            (true, false) => Err(OutputMismatch::NotCovered),
            (false, true) => Err(OutputMismatch::UnexpectedCoverage),
            _ => Ok(()),
        }
    }

    /// Checks tier, level and coverage of an output that was merged from downsampled parts.
    fn check_tier_merge(&self, output: &BlockEntry) -> Result<(), OutputMismatch> {
        let lowest = self.level.max(DAY_LEVEL);
        if output.tier != self.tier {
            return Err(OutputMismatch::Tier(self.tier));
        }
        if !(lowest..=MAX_TIER_LEVEL).contains(&output.level) {
            return Err(OutputMismatch::TierLevel(lowest));
        }
        match output.is_covered {
            true => Err(OutputMismatch::UnexpectedCoverage),
            false => Ok(()),
        }
    }

    /// Compares each tenant of an output with the inputs, and adds up its rows.
    fn check_tenants(&mut self, output: &BlockEntry) -> Result<(), OutputMismatch> {
        let mut seen: BTreeSet<&TenantId> = BTreeSet::new();
        for span in &output.tenants {
            let tenant = span.tenant.clone();
            let rows = self.tenants.get_mut(&tenant).filter(|_| seen.insert(&span.tenant));
            let Some(rows) = rows else { return Err(OutputMismatch::UnknownTenant(tenant)) };
            if span.profiles == 0 || span.sum.is_none() {
                return Err(OutputMismatch::MissingTotals(tenant));
            }
            check_times(rows, output.tier, span)?;
            rows.add_output(output.tier, span);
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

    /// Adds up the dropped rows. Each tenant states each reason at most once for covered parts, and once for
    /// others.
    fn add_dropped(&mut self, dropped: &[DroppedRows]) -> Result<(), CommandError> {
        let mut seen: BTreeSet<(&TenantId, DropReason, bool)> = BTreeSet::new();
        for rows in dropped {
            let is_first = seen.insert((&rows.tenant, rows.reason, rows.is_covered));
            let of_tenant = self.tenants.get_mut(&rows.tenant).filter(|_| is_first);
            let Some(of_tenant) = of_tenant else {
                return Err(CommandError::InvalidDroppedRows(rows.tenant.clone()));
            };
            of_tenant.add_dropped(rows);
        }
        Ok(())
    }
}

/// Compares the times of an output's rows with those of the inputs. Rows of a raw job's tiers are of the
/// uncovered inputs only, and their times are ends of buckets. Their newest arrival may be that of all inputs.
fn check_times(rows: &TenantRows<'_>, tier: Tier, span: &TenantSpan) -> Result<(), OutputMismatch> {
    let &TenantSpan { min_time, max_time, newest_arrival, .. } = span;
    let inputs = if tier.is_raw() { &rows.all } else { &rows.uncovered };
    let is_end = |time: i64| tier.is_raw() || tier.bucket_end(time) == time;
    let is_within = match tier.is_raw() {
        true => min_time >= inputs.min_time && max_time <= inputs.max_time,
        false => min_time >= tier.bucket_end(inputs.min_time) && max_time <= tier.bucket_end(inputs.max_time),
    };
    if min_time > max_time || !is_within || !is_end(min_time) || !is_end(max_time) {
        let tenant = span.tenant.clone();
        return Err(match tier.is_raw() {
            true => OutputMismatch::ProfileTimes(tenant),
            false => OutputMismatch::BucketTimes(tenant),
        });
    }
    match (inputs.newest_arrival..=rows.all.newest_arrival).contains(&newest_arrival) {
        true => Ok(()),
        false => Err(OutputMismatch::NewestArrival(span.tenant.clone())),
    }
}
