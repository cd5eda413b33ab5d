//! Order of jobs, and fairness among tenants.

use std::collections::BTreeMap;
use std::time::Duration;

use athanor_chassis::Timestamp;

use crate::compaction::planner::PlanInput;
use crate::compaction::planner::part_table::PartTable;
use crate::compaction::planner::planned_job::PlannedJob;

/// Bytes for which a job yields a second to smaller jobs.
const BYTES_PER_SECOND_OF_DELAY: u64 = 16 << 20;
/// Limit of the time for which a job yields to smaller ones. A job that waits longer precedes all newer jobs,
/// so none starves.
const MAX_DELAY_OF_SIZE: Duration = Duration::from_secs(30 * 60);

/// Jobs in the order in which workers claim them.
pub(super) struct JobQueue {
    jobs: Vec<PlannedJob>,
    running_jobs: BTreeMap<usize, usize>,
    max_jobs_per_tenant: usize,
}

impl JobQueue {
    /// Orders jobs, and counts the running jobs of each tenant.
    pub(super) fn new(input: &PlanInput, table: &PartTable<'_>, mut jobs: Vec<PlannedJob>) -> Self {
        jobs.sort_by_key(|job| (deadline(job), job.level, job.parts.first().copied()));
        let mut running_jobs: BTreeMap<usize, usize> = BTreeMap::new();
        for claim in input.claims.values().filter(|claim| input.now < claim.expires_at) {
            let mut tenants = claim.parts.tenants.keys();
            let first = tenants.next().filter(|_| tenants.len() == 0);
            if let Some(&tenant) = first.and_then(|tenant| table.tenant_numbers.get(tenant)) {
                *running_jobs.entry(tenant).or_default() += 1;
            }
        }
        Self { jobs, running_jobs, max_jobs_per_tenant: (input.workers as usize / 2).max(1) }
    }

    /// Returns the most urgent jobs. While several tenants wait, the jobs of one tenant, running ones
    /// included, take at most half of the workers.
    pub(super) fn take(mut self, limit: usize) -> Vec<PlannedJob> {
        let first = self.jobs.first().and_then(|job| job.tenant);
        let has_one_tenant = first.is_some() && self.jobs.iter().all(|job| job.tenant == first);
        let mut taken = Vec::new();
        for job in std::mem::take(&mut self.jobs) {
            if taken.len() >= limit {
                break;
            }
            if has_one_tenant || self.count_job(&job) {
                taken.push(job);
            }
        }
        taken
    }

    /// Counts a job for its tenant. Returns whether the tenant may run it. Jobs of several tenants always
    /// run.
    fn count_job(&mut self, job: &PlannedJob) -> bool {
        let Some(tenant) = job.tenant else { return true };
        let running = self.running_jobs.entry(tenant).or_default();
        *running += 1;
        *running <= self.max_jobs_per_tenant
    }
}

/// Returns the time by which a job is ordered: the time since which it waits, later for a larger job.
fn deadline(job: &PlannedJob) -> Timestamp {
    let delay = Duration::from_millis(job.bytes.saturating_mul(1000) / BYTES_PER_SECOND_OF_DELAY);
    job.ready_at.plus(delay.min(MAX_DELAY_OF_SIZE))
}
