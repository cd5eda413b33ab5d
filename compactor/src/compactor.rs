//! Worker of compaction jobs: asks for jobs, claims one, runs it and finishes it.

use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::{Catalog, CatalogError, CommandError, CompactionJob, JobRequest};
use athanor_chassis::memory_budget::{BudgetLimit, MemoryBudget};
use athanor_chassis::{Backoff, Clock, ComputePool, Random, Status, Timestamp};
use athanor_cluster::NodeId;
use athanor_storage::Store;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::claim::{JobClaim, RunningClaims};
use crate::config::CompactorConfig;
use crate::error::{JobError, JobFailure};
use crate::job::context::JobContext;
use crate::job::run::{JobResult, run_job};
use crate::outcome::JobOutcome;
use crate::scratch::{JobScratch, ScratchSpace};
use crate::stats::{CompactorCounters, CompactorStats, JobEnd};

/// Jobs in one response. Another worker may claim some of them first.
const JOBS_PER_REQUEST: u32 = 8;
/// Attempts to report the end of a job while the catalog is unavailable. The last ones are 10 seconds apart.
const MAX_REPORT_ATTEMPTS: usize = 30;
const REPORT_BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(200), Duration::from_secs(10));
/// Pause of a worker that cannot reach the catalog.
const RETRY_BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(30));

/// Dependencies of a compactor.
#[derive(Clone)]
pub struct CompactorDeps {
    /// Catalog that plans jobs and swaps parts.
    pub catalog: Arc<dyn Catalog>,
    /// Bucket that holds the blocks.
    pub store: Store,
    /// Clock for intervals, and for the ids of new blocks.
    pub clock: Clock,
    /// Source of randomness for ids and backoff.
    pub random: Random,
    /// Thread pool that merges.
    pub compute: ComputePool,
    /// Space for inputs and outputs of running jobs.
    pub scratch: Arc<dyn ScratchSpace>,
    /// Id of this node.
    pub node: NodeId,
    /// Id of the cluster, which each block records.
    pub cluster: u128,
}

/// Worker of compaction jobs.
pub struct Compactor {
    config: CompactorConfig,
    deps: CompactorDeps,
    cluster: String,
    claims: RunningClaims,
    scratch_budget: Arc<MemoryBudget>,
    counters: CompactorCounters,
    /// The catalog's time, and the monotonic time at which it was received. Set once the catalog has rejected
    /// the id of a block because the clock of this node is wrong.
    catalog_time: Mutex<Option<CatalogTime>>,
}

/// Time of the catalog when it was received.
#[derive(Clone, Copy)]
struct CatalogTime {
    time: Timestamp,
    received_at: Duration,
}

/// Job with a claim.
struct ClaimedJob {
    job: CompactionJob,
    token: u64,
}

impl Compactor {
    /// Creates a worker. The scratch space is emptied by [`run`](Self::run).
    pub fn new(config: CompactorConfig, deps: CompactorDeps) -> Self {
        let limit = BudgetLimit { limit: config.max_scratch_bytes, setting: "compactor.max_scratch_bytes" };
        Self {
            cluster: format!("{:032x}", deps.cluster),
            claims: RunningClaims::default(),
            scratch_budget: MemoryBudget::new(limit),
            counters: CompactorCounters::default(),
            catalog_time: Mutex::new(None),
            config,
            deps,
        }
    }

    /// Runs jobs until shutdown. A running job is dropped then: its claim ends with its lease.
    pub async fn run(&self, shutdown: CancellationToken) {
        let scratch = Arc::clone(&self.deps.scratch);
        match self.deps.compute.run(move || scratch.clear()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "failed to empty the scratch folder of the compactor"),
            Err(error) => tracing::warn!(%error, "failed to empty the scratch folder of the compactor"),
        }
        let mut workers: FuturesUnordered<_> =
            (0..self.config.max_concurrent_jobs).map(|_| self.work()).collect();
        let renewal = self.claims.renew(&*self.deps.catalog, self.deps.node, &self.deps.clock);
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = renewal => {}
            _ = workers.next() => {}
        }
    }

    /// Claims and runs one job, and renews its lease meanwhile. For simulations and tests; several calls may run
    /// concurrently.
    pub async fn run_once(&self) -> Result<JobOutcome, Status> {
        let renewal = self.claims.renew(&*self.deps.catalog, self.deps.node, &self.deps.clock);
        tokio::select! {
            biased;
            outcome = self.run_next_job() => outcome,
            () = renewal => Ok(JobOutcome::Idle),
        }
    }

    /// Returns the counts of jobs so far.
    pub fn stats(&self) -> CompactorStats {
        self.counters.snapshot(self.claims.len() as u64)
    }

    /// Runs one job after another.
    async fn work(&self) {
        let mut failures = 0;
        loop {
            match self.run_next_job().await {
                // After a failure another node may do better.
                Ok(JobOutcome::Idle | JobOutcome::Failed { .. }) => {
                    failures = 0;
                    self.deps.clock.sleep(self.config.poll_interval).await;
                }
                Ok(_) => failures = 0,
                Err(error) => {
                    tracing::warn!(%error, "compactor cannot reach the catalog, will retry");
                    RETRY_BACKOFF.wait(failures, &self.deps.clock, &self.deps.random).await;
                    failures += 1;
                }
            }
        }
    }

    async fn run_next_job(&self) -> Result<JobOutcome, Status> {
        let Some(ClaimedJob { job, token }) = self.claim_job().await? else { return Ok(JobOutcome::Idle) };
        let running = self.claims.start(token);
        let begun = self.deps.clock.monotonic();
        let level = job.level;
        let claim = Arc::clone(&running.claim);
        let done = match run_job(&self.context(&job, &claim), &self.scratch_budget).await {
            // The removal of a part may have failed the job before the claim was seen to end.
            Err(JobError::Failed(_)) if claim.has_ended() => Err(JobError::ClaimEnded),
            done => done,
        };
        let outcome = match done {
            Ok(result) => self.finish_job(token, result).await?,
            Err(JobError::ClaimEnded) => JobOutcome::ClaimEnded,
            Err(JobError::Failed(failure)) => self.fail_job(token, failure).await?,
        };
        let elapsed = self.deps.clock.monotonic().saturating_sub(begun);
        self.counters.record_job(level, JobEnd::from_outcome(&outcome), elapsed);
        match &outcome {
            JobOutcome::Failed { reason, culprit } => {
                let culprit = culprit.as_ref().map(ToString::to_string);
                tracing::warn!(job = token, level, culprit, error = %reason, "compaction job failed");
            }
            outcome => tracing::debug!(job = token, level, ?outcome, ?elapsed, "compaction job ended"),
        }
        Ok(outcome)
    }

    /// Claims the first offered job that no other worker claimed.
    async fn claim_job(&self) -> Result<Option<ClaimedJob>, Status> {
        let CompactorDeps { catalog, node, .. } = &self.deps;
        let max_bytes = self.config.max_job_bytes.get();
        let request = JobRequest { worker: *node, max_bytes, limit: JOBS_PER_REQUEST };
        let offered = catalog.compaction_jobs(&request).await;
        for job in offered.map_err(|error| Status::from_error(&error))? {
            match catalog.claim_parts(*node, job.parts()).await {
                Ok(token) => return Ok(Some(ClaimedJob { job, token })),
                Err(CatalogError::Refused(CommandError::CompactionPaused)) => return Ok(None),
                Err(CatalogError::Refused(refused)) => {
                    tracing::debug!(%refused, "compaction job was claimed or changed meanwhile");
                }
                Err(error) => return Err(Status::from_error(&error)),
            }
        }
        Ok(None)
    }

    fn context<'c>(&'c self, job: &'c CompactionJob, claim: &Arc<JobClaim>) -> JobContext<'c> {
        let space = Arc::clone(&self.deps.scratch);
        JobContext {
            job,
            claim: Arc::clone(claim),
            catalog: &*self.deps.catalog,
            store: &self.deps.store,
            clock: &self.deps.clock,
            random: &self.deps.random,
            compute: &self.deps.compute,
            scratch: JobScratch { space, claim: Arc::clone(claim) },
            cluster: &self.cluster,
            name_time: self.name_time(),
            max_memory: self.config.max_merge_memory_bytes.get(),
        }
    }

    /// Returns the time for the ids of new blocks: that of the catalog, if this node's clock is far from it.
    fn name_time(&self) -> Timestamp {
        match *self.catalog_time.lock() {
            Some(CatalogTime { time, received_at }) => {
                time.plus(self.deps.clock.monotonic().saturating_sub(received_at))
            }
            None => self.deps.clock.wall(),
        }
    }

    /// Swaps the parts for the outputs. Retries lost responses, which changes nothing if the swap was applied.
    async fn finish_job(&self, token: u64, result: JobResult) -> Result<JobOutcome, Status> {
        let mut failures = 0;
        loop {
            let JobResult { outputs, dropped, compared, .. } = &result;
            let (outputs, dropped, compared) = (outputs.clone(), dropped.clone(), compared.clone());
            match self.deps.catalog.finish_job(token, outputs, dropped, compared).await {
                Ok(()) => {
                    self.counters.record_result(&result);
                    return Ok(JobOutcome::Finished);
                }
                // If another job covered rows meanwhile whose IDs must be compared, the job is planned again.
                Err(CatalogError::Refused(
                    CommandError::ClaimEnded { .. } | CommandError::NotCompared { .. },
                )) => return Ok(JobOutcome::ClaimEnded),
                Err(CatalogError::Refused(refused)) => {
                    if let CommandError::BlockNameSkew { now, .. } = &refused {
                        let received_at = self.deps.clock.monotonic();
                        *self.catalog_time.lock() = Some(CatalogTime { time: *now, received_at });
                    }
                    let failure = JobFailure { reason: refused.to_string(), culprit: None };
                    return self.fail_job(token, failure).await;
                }
                Err(error) => self.wait_for_catalog(&error, failures).await?,
            }
            failures += 1;
        }
    }

    /// Reports a failure. If the claim ended, the job ends without one.
    async fn fail_job(&self, token: u64, failure: JobFailure) -> Result<JobOutcome, Status> {
        let JobFailure { reason, culprit } = failure;
        let mut failures = 0;
        loop {
            match self.deps.catalog.fail_job(token, reason.clone(), culprit.clone()).await {
                Ok(()) => return Ok(JobOutcome::Failed { reason, culprit }),
                // A retry after a lost response finds the claim ended as well.
                Err(CatalogError::Refused(_)) if failures > 0 => {
                    return Ok(JobOutcome::Failed { reason, culprit });
                }
                Err(CatalogError::Refused(_)) => return Ok(JobOutcome::ClaimEnded),
                Err(error) => self.wait_for_catalog(&error, failures).await?,
            }
            failures += 1;
        }
    }

    /// Waits before a retry, or returns the error after the last one.
    async fn wait_for_catalog(&self, error: &CatalogError, failures: usize) -> Result<(), Status> {
        if failures + 1 >= MAX_REPORT_ATTEMPTS {
            return Err(Status::from_error(error));
        }
        REPORT_BACKOFF.wait(failures, &self.deps.clock, &self.deps.random).await;
        Ok(())
    }
}
