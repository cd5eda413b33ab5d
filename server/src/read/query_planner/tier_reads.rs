//! Blocks of a plan with the time ranges that are read from each.

use athanor_catalog::BlockEntry;
use athanor_chassis::{TenantId, Tier};
use athanor_querier::DedupHints;
use athanor_query::{ProfileQuery, RowTimes, TierPlan, TierPlanInput, TimeRange};
use athanor_store_gateway::BlockTarget;

use super::DataLocations;
use crate::read::store_gateway_router::block_selection;
use crate::rpc::dedup_ranges::NanosSpan;

/// Block that a query reads.
pub(super) struct BlockRead {
    /// Block with its ranges.
    pub(super) target: BlockTarget,
    /// Times of all rows of the tenant in the block.
    pub(super) span: NanosSpan,
    /// Times of the rows that are read.
    pub(super) read_span: NanosSpan,
}

impl BlockRead {
    /// Returns the read of a block. None if the plan reads no row of it. Rows that no tier covers are read in the
    /// whole range of the query.
    pub(super) fn plan(
        block: &BlockEntry,
        tenant: &TenantId,
        range: TimeRange,
        tiers: &TierPlan,
    ) -> Option<Self> {
        let rows = row_times(block, tenant, range)?;
        let span = NanosSpan { first: rows.first, last: rows.last };
        let mut target = block_selection(block, tenant, range.from, range.last_timestamp());
        let ranges = match is_uncovered(block) {
            true => vec![range],
            false => tiers.ranges_within(block.tier, rows),
        };
        let first = ranges.first()?.from.max(span.first);
        let last = ranges.last()?.last_timestamp().min(span.last);
        let is_whole = |ranges: &[TimeRange]| ranges.len() == 1 && first == span.first && last == span.last;
        if !is_uncovered(block) {
            target.whole = is_whole(&ranges);
            target.ranges = if target.whole { Vec::new() } else { ranges };
        }
        Some(BlockRead { target, span, read_span: NanosSpan { first, last } })
    }
}

impl DataLocations {
    /// Returns the times to read from each tier.
    pub(super) fn plan_tiers(&self, tenant: &TenantId, ask: &ProfileQuery, doubts: &DedupHints) -> TierPlan {
        let range = ask.selection.time;
        let mut input = TierPlanInput {
            range,
            required: ask.required_resolution(),
            expired_until: self.expired_until.clone(),
            ..TierPlanInput::default()
        };
        for block in &self.blocks {
            let Some(rows) = row_times(block, tenant, range) else { continue };
            if !block.tier.is_raw() {
                let all = input.downsampled.entry(block.tier).or_insert(rows);
                *all = all.union(rows);
            } else if block.is_covered {
                input.covered_raw.push(rows);
            } else {
                input.uncovered.push(rows);
            }
        }
        let in_heads = self.views.iter().filter_map(|(_, view)| view.times());
        input.uncovered.extend(in_heads.map(|(first, last)| RowTimes { first, last }));
        // Heads of other nodes hold recent rows, as for the selection of sources that report ids.
        if ask.needs_dedup() && !self.far.is_empty() {
            input.uncovered.push(RowTimes { first: doubts.since, last: i64::MAX });
        }
        input.plan_tiers()
    }
}

/// Returns the first and the last profile time of blocks. Raw blocks have the times of all profiles that did not
/// expire. `expired_until` is the latest time of those that did. Downsampled blocks have the times of their buckets:
/// a bucket's time is its end.
pub(super) fn block_times(
    blocks: &[BlockEntry],
    tenant: &TenantId,
    expired_until: Option<i64>,
) -> Vec<(i64, i64)> {
    let times = |block: &BlockEntry| {
        let RowTimes { first, last } = row_times(block, tenant, TimeRange::default())?;
        if block.tier.is_raw() {
            return Some((first, last));
        }
        let before_first = block.tier.bucket_nanos() - Tier::Raw.bucket_nanos();
        let first = first.saturating_sub(before_first);
        let last = last.min(expired_until?);
        (first <= last).then_some((first, last))
    };
    blocks.iter().filter_map(times).collect()
}

/// Returns whether a block has rows that no downsampled tier holds.
fn is_uncovered(block: &BlockEntry) -> bool {
    block.tier.is_raw() && !block.is_covered
}

fn row_times(block: &BlockEntry, tenant: &TenantId, range: TimeRange) -> Option<RowTimes> {
    let span = block.tenant_span_between(tenant, range.from, range.last_timestamp())?;
    Some(RowTimes { first: span.min_time, last: span.max_time })
}
