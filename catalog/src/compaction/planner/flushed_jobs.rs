//! Jobs at level 1: merge flushed blocks across shards.
//!
//! Small tenants share a job. The job takes all listed parts of its tenants in its blocks. Otherwise an
//! output would cover log ranges of which a flushed block keeps a part of the same tenant, and the catalog
//! could not distinguish the rows.

use std::collections::BTreeSet;

use athanor_chassis::{Tier, Timestamp};

use crate::block::BlockEntry;
use crate::compaction::planner::PlanInput;
use crate::compaction::planner::late_rows::LateRows;
use crate::compaction::planner::part_table::{PartState, PartTable, PlanPart};
use crate::compaction::planner::planned_job::{
    JobLimits, PlannedJob, count_splits, cut_into_jobs, sum_bytes,
};
use crate::compaction::planner::window_totals::{WindowKey, WindowTotals};
use crate::compaction::window::{TEN_MINUTE_LEVEL, level_window_end};

/// Planner of jobs at level 1.
pub(super) struct FlushedPlanner<'p> {
    /// State of the catalog.
    pub input: &'p PlanInput,
    /// Listed parts.
    pub table: &'p PartTable<'p>,
    /// Totals of all windows.
    pub totals: &'p WindowTotals,
    /// Limit of a job's bytes.
    pub max_bytes: u64,
}

/// Plan for all parts of level 0.
#[derive(Default)]
pub(super) struct FlushedPlan {
    /// Jobs at level 1.
    pub jobs: Vec<PlannedJob>,
    /// Parts that jobs at level 1 merge now or later.
    pub pending: Vec<usize>,
    /// Parts that jobs at a final level may take, because their window was merged before.
    pub late: Vec<usize>,
}

/// Flushed part with its group.
struct FlushedPart {
    group: FlushedGroup,
    tenant: usize,
    part: usize,
    /// True if the final block of its window exists, and the part has no rows of another window.
    is_after_final: bool,
}

/// Group of flushed blocks that merge.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FlushedGroup {
    /// End of the window.
    end: i64,
    /// End of the interval of arrivals.
    interval: i64,
}

/// Parts of one tenant that may be merged together with other tenants' parts.
struct SharedTenant {
    tenant: usize,
    parts: Vec<usize>,
}

impl FlushedPlanner<'_> {
    /// Plans all parts of level 0.
    pub(super) fn plan(&self) -> FlushedPlan {
        let mut parts = self.collect_parts();
        parts.sort_unstable_by_key(|part| (part.group, part.tenant, part.part));
        let mut plan = FlushedPlan::default();
        let is_late = |part: &&FlushedPart| part.is_after_final && self.is_free(part.part);
        plan.late.extend(parts.iter().filter(is_late).map(|part| part.part));
        for group in parts.chunk_by(|one, two| one.group == two.group) {
            if self.input.now >= self.close_time(group[0].group) {
                self.plan_group(group, &mut plan);
            } else {
                plan.pending.extend(self.available_parts(group));
            }
        }
        plan
    }

    fn collect_parts(&self) -> Vec<FlushedPart> {
        let groups: Vec<FlushedGroup> = self.table.blocks.iter().map(|block| self.group_of(block)).collect();
        let flushed = self.table.parts.iter().enumerate().filter(|(_, part)| part.level == 0);
        let collected = flushed.map(|(index, part)| FlushedPart {
            group: groups[part.block],
            tenant: part.tenant,
            part: index,
            is_after_final: self.is_after_final(part),
        });
        collected.collect()
    }

    /// Returns the group of a flushed block. All parts of a block are in one group, so that tenants can share
    /// jobs. Times after the flush count as the time of the flush: a wrong clock delays no merge.
    fn group_of(&self, block: &BlockEntry) -> FlushedGroup {
        let flushed_at = block.id.named_at();
        let end = level_window_end(block.max_time().min(flushed_at.nanos()), TEN_MINUTE_LEVEL);
        let interval = self.input.settings.arrival_interval(flushed_at, end, TEN_MINUTE_LEVEL);
        FlushedGroup { end, interval }
    }

    fn close_time(&self, group: FlushedGroup) -> Timestamp {
        self.input.settings.close_time(group.end, TEN_MINUTE_LEVEL)
    }

    fn is_free(&self, part: usize) -> bool {
        self.table.parts[part].state == PartState::Free
    }

    /// Returns whether the final block of a part's window exists, and the part has rows of that window only.
    fn is_after_final(&self, part: &PlanPart) -> bool {
        let level = self.totals.final_level(part.tenant, part.max_time);
        let key = WindowKey::containing(part.tenant, level, part.max_time);
        self.totals.window(&key).merged_parts > 0 && is_within_window(part, level)
    }

    /// Returns the parts that jobs at level 1 can take.
    fn available_parts(&self, parts: &[FlushedPart]) -> Vec<usize> {
        let available = parts.iter().filter(|part| !part.is_after_final && self.is_free(part.part));
        available.map(|part| part.part).collect()
    }

    /// Plans the parts of one closed group.
    fn plan_group(&self, parts: &[FlushedPart], plan: &mut FlushedPlan) {
        let group = parts[0].group;
        let mut shared: Vec<SharedTenant> = Vec::new();
        for of_tenant in parts.chunk_by(|one, two| one.tenant == two.tenant) {
            let available = self.available_parts(of_tenant);
            let tenant = of_tenant[0].tenant;
            if self.can_share(of_tenant) {
                shared.push(SharedTenant { tenant, parts: available });
            } else if !available.is_empty() {
                self.plan_tenant(group, tenant, available, plan);
            }
        }
        self.plan_shared(group, shared, plan);
    }

    /// Returns whether a tenant's parts of a group can be merged together with those of other tenants.
    fn can_share(&self, parts: &[FlushedPart]) -> bool {
        let is_regular = parts.iter().all(|part| {
            let row = &self.table.parts[part.part];
            row.state == PartState::Free && row.max_parts == usize::MAX && !part.is_after_final
        });
        let settings = &self.input.settings;
        let bytes = parts.iter().map(|part| self.table.parts[part.part].bytes).fold(0, u64::saturating_add);
        is_regular && bytes < settings.shared_below_bytes && parts.len() <= settings.max_job_parts
    }

    /// Plans jobs of one tenant.
    fn plan_tenant(&self, group: FlushedGroup, tenant: usize, parts: Vec<usize>, plan: &mut FlushedPlan) {
        let rows = LateRows::from_parts(self.table, parts.iter().copied());
        if self.must_wait(group, &[tenant], &rows) {
            plan.late.extend(parts.into_iter().filter(|&part| self.fits_final_window(part)));
            return;
        }
        plan.pending.extend(&parts);
        let limits = JobLimits { parts: self.input.settings.max_job_parts, bytes: self.max_bytes };
        for parts in cut_into_jobs(self.table, parts, limits) {
            plan.jobs.push(self.job(group, Some(tenant), parts));
        }
    }

    /// Plans jobs of tenants that share blocks. Each job takes all parts of its tenants in the group.
    fn plan_shared(&self, group: FlushedGroup, shared: Vec<SharedTenant>, plan: &mut FlushedPlan) {
        let tenants: Vec<usize> = shared.iter().map(|tenant| tenant.tenant).collect();
        let parts = || shared.iter().flat_map(|tenant| tenant.parts.iter().copied());
        let blocks: BTreeSet<usize> = parts().map(|part| self.table.parts[part].block).collect();
        let rows = LateRows::from_parts(self.table, parts()).with_count(blocks.len());
        if self.must_wait(group, &tenants, &rows) {
            plan.late.extend(parts().filter(|&part| self.fits_final_window(part)));
            return;
        }
        plan.pending.extend(parts());
        let settings = &self.input.settings;
        let limits =
            JobLimits { parts: settings.max_job_parts, bytes: self.max_bytes.min(settings.max_block_bytes) };
        for tenants in cut_by_tenant(self.table, shared, limits) {
            let single = (tenants.len() == 1).then_some(tenants[0].tenant);
            let parts = tenants.into_iter().flat_map(|tenant| tenant.parts).collect();
            plan.jobs.push(self.job(group, single, parts));
        }
    }

    /// Returns whether rows of a window that was merged before wait for more.
    fn must_wait(&self, group: FlushedGroup, tenants: &[usize], rows: &LateRows) -> bool {
        let mut merged_parts = 0;
        let mut merged_bytes = 0_u64;
        for &tenant in tenants {
            let key = WindowKey { tenant, level: TEN_MINUTE_LEVEL, end: group.end };
            let window = self.totals.window(&key);
            merged_parts += window.merged_parts;
            merged_bytes = merged_bytes.saturating_add(window.merged_bytes);
        }
        merged_parts > 0 && !rows.justify_rewrite(self.input, merged_bytes)
    }

    fn fits_final_window(&self, part: usize) -> bool {
        let part = &self.table.parts[part];
        is_within_window(part, self.totals.final_level(part.tenant, part.max_time))
    }

    fn job(&self, group: FlushedGroup, tenant: Option<usize>, parts: Vec<usize>) -> PlannedJob {
        let rows = LateRows::from_parts(self.table, parts.iter().copied());
        let bytes = sum_bytes(self.table, &parts);
        PlannedJob {
            tier: Tier::Raw,
            level: TEN_MINUTE_LEVEL,
            tenant,
            parts,
            bytes,
            splits: count_splits(bytes, 1, &self.input.settings),
            ready_at: self.close_time(group).max(rows.waiting_since()),
        }
    }
}

/// Returns whether all rows of a part are in one window of a level.
fn is_within_window(part: &PlanPart, level: u8) -> bool {
    level_window_end(part.min_time, level) == level_window_end(part.max_time, level)
}

/// Cuts tenants into jobs within the limits. A job of one tenant may exceed them.
fn cut_by_tenant(
    table: &PartTable<'_>,
    tenants: Vec<SharedTenant>,
    limits: JobLimits,
) -> Vec<Vec<SharedTenant>> {
    let mut jobs: Vec<Vec<SharedTenant>> = Vec::new();
    let mut count = 0;
    let mut bytes = 0_u64;
    for tenant in tenants {
        let tenant_bytes = sum_bytes(table, &tenant.parts);
        count += tenant.parts.len();
        bytes = bytes.saturating_add(tenant_bytes);
        match jobs.last_mut().filter(|_| limits.permits(count, bytes)) {
            Some(job) => job.push(tenant),
            None => {
                count = tenant.parts.len();
                bytes = tenant_bytes;
                jobs.push(vec![tenant]);
            }
        }
    }
    jobs
}
