//! Plans of compaction jobs on the leading voter, shared by all workers.
//!
//! A plan reads all blocks, so it is computed at most once per [`PLAN_TTL`], in the compute pool. Each worker
//! is offered another job of it first. Claims decide who merges: a plan is a proposal and may be outdated.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::{CompactionJob, CompactionStatus, JobRequest, PlanInput, compaction_status, plan_jobs};
use athanor_chassis::observability::cpu_time::CpuActivity;
use athanor_chassis::{ComputePool, Status, TenantId};
use athanor_cluster::NodeId;
use parking_lot::Mutex;

/// Time for which workers share one plan.
const PLAN_TTL: Duration = Duration::from_secs(2);
/// Time for which a node counts as a worker after its last request.
const WORKER_TTL: Duration = Duration::from_secs(60);
/// Upper bound of remembered workers. Further ones are not counted.
const MAX_WORKERS: usize = 1024;
/// Upper bound of jobs in one plan.
const MAX_PLANNED_JOBS: u32 = 256;
/// Upper bound of jobs in one response, because a job names up to 16 000 parts.
const MAX_OFFERED_JOBS: u32 = 16;
/// Upper bound of plans for different job sizes. Workers of one configuration share one.
const MAX_PLANS: usize = 4;

/// Shared plans, and the workers that request jobs.
#[derive(Default)]
pub(super) struct JobPlanner {
    /// Single flight: concurrent requests wait for the plan of the first one.
    pub(super) planning: tokio::sync::Mutex<()>,
    /// Plans by the largest job of their workers.
    plans: Arc<Mutex<BTreeMap<u64, JobPlan>>>,
    status: Arc<Mutex<Option<ComputedStatus>>>,
    /// Workers by the time of their last request.
    workers: Mutex<BTreeMap<NodeId, Duration>>,
}

/// Jobs of one plan that no worker was offered first yet.
struct JobPlan {
    planned_at: Duration,
    /// The most urgent first.
    jobs: VecDeque<CompactionJob>,
    /// True if the plan had all jobs that wait.
    is_complete: bool,
    /// Number of workers by tenant, those that were offered a job of the tenant included.
    busy_workers: BTreeMap<TenantId, u32>,
    max_workers_per_tenant: u32,
}

struct ComputedStatus {
    computed_at: Duration,
    status: Arc<CompactionStatus>,
}

impl JobPlanner {
    /// Records the request of a worker.
    pub(super) fn record_worker(&self, worker: NodeId, now: Duration) {
        let mut workers = self.workers.lock();
        workers.retain(|_, last| now < *last + WORKER_TTL);
        if workers.len() < MAX_WORKERS || workers.contains_key(&worker) {
            workers.insert(worker, now);
        }
    }

    /// Returns the workers that requested jobs lately.
    pub(super) fn workers(&self) -> Vec<NodeId> {
        self.workers.lock().keys().copied().collect()
    }

    /// Returns jobs of the shared plan. None if there is no plan, or a new one is due.
    pub(super) fn offer_jobs(&self, request: &JobRequest, now: Duration) -> Option<Vec<CompactionJob>> {
        let mut plans = self.plans.lock();
        let plan = plans.get_mut(&request.max_bytes).filter(|plan| plan.is_valid(now))?;
        Some(plan.offer(request.limit))
    }

    /// Plans jobs for all workers that accept jobs as large as the request says. A request that times out
    /// meanwhile leaves the plan to the next one.
    pub(super) async fn plan(
        &self,
        input: PlanInput,
        request: &JobRequest,
        now: Duration,
        compute: &ComputePool,
    ) -> Result<(), Status> {
        let plans = Arc::clone(&self.plans);
        let request = JobRequest { limit: MAX_PLANNED_JOBS, ..request.clone() };
        let job = move || {
            let plan = JobPlan::compute(&input, &request, now);
            let mut plans = plans.lock();
            plans.retain(|_, plan| plan.is_valid(now));
            if plans.len() >= MAX_PLANS {
                plans.clear();
            }
            plans.insert(request.max_bytes, plan);
        };
        compute.run_as(CpuActivity::CompactionPlan, job).await.map_err(|error| Status::from_error(&error))
    }

    /// Returns the status that was computed less than [`PLAN_TTL`] ago.
    pub(super) fn recent_status(&self, now: Duration) -> Option<Arc<CompactionStatus>> {
        let computed = self.status.lock();
        let recent = computed.as_ref().filter(|computed| now < computed.computed_at + PLAN_TTL)?;
        Some(Arc::clone(&recent.status))
    }

    /// Returns the last computed status.
    pub(super) fn last_status(&self) -> Option<Arc<CompactionStatus>> {
        self.status.lock().as_ref().map(|computed| Arc::clone(&computed.status))
    }

    /// Computes the status of compaction.
    pub(super) async fn compute_status(
        &self,
        input: PlanInput,
        now: Duration,
        compute: &ComputePool,
    ) -> Result<Arc<CompactionStatus>, Status> {
        let computed = Arc::clone(&self.status);
        let job = move || {
            let status = Arc::new(compaction_status(&input));
            *computed.lock() = Some(ComputedStatus { computed_at: now, status: Arc::clone(&status) });
            status
        };
        compute.run_as(CpuActivity::CompactionPlan, job).await.map_err(|error| Status::from_error(&error))
    }
}

impl JobPlan {
    fn compute(input: &PlanInput, request: &JobRequest, now: Duration) -> Self {
        let jobs = plan_jobs(input, request);
        let mut busy_workers = BTreeMap::new();
        for claim in input.claims.values().filter(|claim| input.now < claim.expires_at) {
            if let Some(tenant) = sole(claim.parts.tenants.keys()) {
                *busy_workers.entry(tenant.clone()).or_default() += 1;
            }
        }
        Self {
            planned_at: now,
            is_complete: jobs.len() < request.limit as usize,
            jobs: jobs.into(),
            busy_workers,
            max_workers_per_tenant: input.workers / 2,
        }
    }

    fn is_valid(&self, now: Duration) -> bool {
        now < self.planned_at + PLAN_TTL && (self.is_complete || !self.jobs.is_empty())
    }

    /// Returns up to `limit` jobs. No other worker is offered the first one; the others are alternatives if
    /// its claim is refused. A tenant with half of the workers waits for the others.
    fn offer(&mut self, limit: u32) -> Vec<CompactionJob> {
        let is_below_share = |job: &CompactionJob| {
            let busy = job_tenant(job).and_then(|tenant| self.busy_workers.get(tenant));
            busy.is_none_or(|busy| *busy < self.max_workers_per_tenant)
        };
        let chosen = self.jobs.iter().position(is_below_share).unwrap_or(0);
        let Some(first) = self.jobs.remove(chosen) else { return Vec::new() };
        if let Some(tenant) = job_tenant(&first) {
            *self.busy_workers.entry(tenant.clone()).or_default() += 1;
        }
        let limit = limit.clamp(1, MAX_OFFERED_JOBS) as usize;
        let alternatives = self.jobs.iter().take(limit - 1).cloned();
        std::iter::once(first).chain(alternatives).collect()
    }
}

/// Returns the tenant of a job that has only one.
fn job_tenant(job: &CompactionJob) -> Option<&TenantId> {
    sole(job.inputs.iter().flat_map(|block| &block.tenants).map(|span| &span.tenant))
}

/// Returns the item if all items are equal.
fn sole<'t>(mut tenants: impl Iterator<Item = &'t TenantId>) -> Option<&'t TenantId> {
    let first = tenants.next()?;
    tenants.all(|tenant| tenant == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use athanor_catalog::{BlockEntry, BlockId, TenantSpan};
    use athanor_chassis::{Tier, Timestamp};

    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn job(number: u128, tenants: &[&str]) -> CompactionJob {
        let span = |tenant: &&str| TenantSpan {
            tenant: tenant.parse().unwrap(),
            min_time: 0,
            max_time: 0,
            profiles: 1,
            samples: 1,
            sum: None,
            newest_arrival: Timestamp::UNIX_EPOCH,
        };
        let input = BlockEntry {
            id: BlockId::from_number(number),
            shard: 1,
            epoch: 1,
            from: 0,
            to: 1,
            bytes: 1,
            samples: 1,
            lost: 0,
            level: 0,
            additional_ranges: Vec::new(),
            tier: Tier::Raw,
            is_covered: false,
            job: None,
            tenants: tenants.iter().map(span).collect(),
        };
        CompactionJob { tier: Tier::Raw, level: 1, inputs: vec![input], bytes: 1, splits: 1 }
    }

    fn plan(workers: u32, jobs: &[CompactionJob]) -> JobPlan {
        JobPlan {
            planned_at: NOW,
            jobs: jobs.to_vec().into(),
            is_complete: true,
            busy_workers: BTreeMap::new(),
            max_workers_per_tenant: workers / 2,
        }
    }

    fn offered(plan: &mut JobPlan, limit: u32) -> Vec<u128> {
        plan.offer(limit).iter().map(|job| job.inputs[0].id.number()).collect()
    }

    #[test]
    fn each_worker_is_offered_another_job_first() {
        let mut plan = plan(4, &[job(1, &["a"]), job(2, &["b"]), job(3, &["c"])]);
        assert_eq!(offered(&mut plan, 2), [1, 2]);
        assert_eq!(offered(&mut plan, 9), [2, 3]);
        assert_eq!(offered(&mut plan, 0), [3]);
        assert_eq!(offered(&mut plan, 9), [0; 0]);
    }

    #[test]
    fn tenant_with_half_of_the_workers_waits_for_others() {
        let jobs = [job(1, &["a"]), job(2, &["a"]), job(3, &["a"]), job(4, &["a", "b"]), job(5, &["b"])];
        let mut plan = plan(4, &jobs);
        let order: Vec<u128> = (0..5).map(|_| offered(&mut plan, 1)[0]).collect();
        assert_eq!(order, [1, 2, 4, 5, 3], "shared jobs are of no single tenant");
    }

    #[test]
    fn plan_is_valid_for_two_seconds_unless_more_jobs_wait() {
        let mut plan = plan(1, &[job(1, &["a"])]);
        assert!(plan.is_valid(NOW + PLAN_TTL / 2) && !plan.is_valid(NOW + PLAN_TTL));
        plan.offer(1);
        assert!(plan.is_valid(NOW), "no other job waits");
        plan.is_complete = false;
        assert!(!plan.is_valid(NOW));
    }

    #[test]
    fn worker_counts_for_a_minute_after_its_last_request() {
        let planner = JobPlanner::default();
        planner.record_worker(1, NOW);
        planner.record_worker(2, NOW + WORKER_TTL / 2);
        assert_eq!(planner.workers(), [1, 2]);
        planner.record_worker(2, NOW + WORKER_TTL);
        assert_eq!(planner.workers(), [2]);
        (10..3000).for_each(|worker| planner.record_worker(worker, NOW + WORKER_TTL));
        assert_eq!(planner.workers().len(), MAX_WORKERS);
    }
}
