//! Resources that all queries of a querier share.

use std::future::Future;
use std::sync::Arc;

use athanor_chassis::requests::query_queue::{QueryPermit, QueryQueue, QueueNames};
use athanor_chassis::requests::result_budget::ResultBudget;
use athanor_chassis::time::clock::TimeoutElapsed;
use athanor_chassis::{Clock, ComputePool, CpuActivity, ErrorCode, LimitOverrides, Status, TenantLimits};
use athanor_query::ProfileQuery;

use crate::config::QuerierConfig;
use crate::context::limits;
use crate::context::quarantine::{QueryFingerprint, QueryQuarantine};
use crate::context::result_cache::ResultCache;
use crate::execute::dedup::DuplicateIndex;
use crate::execute::skipped_sources::SkippedBlockCounters;
use crate::{DataSources, QueryContext};

/// Dependencies of a [`Querier`](crate::Querier).
#[derive(Clone)]
pub struct QuerierDeps {
    /// Locator of profiles.
    pub sources: Arc<dyn DataSources>,
    /// Query limits of each tenant.
    pub overrides: LimitOverrides,
    /// Clock for time ranges, deadlines and timeouts.
    pub clock: Clock,
    /// Threads for reading and merging.
    pub compute: ComputePool,
}

/// Query executor: permits, compute pool, memory budget, quarantine and result cache. Cheap to clone.
#[derive(Clone)]
pub(crate) struct QueryExecutor {
    pub(crate) deps: QuerierDeps,
    pub(crate) config: QuerierConfig,
    pub(crate) room: Arc<ResultBudget>,
    pub(crate) answers: Arc<ResultCache>,
    pub(crate) turns: Arc<QueryQueue>,
    pub(crate) quarantine: Arc<QueryQuarantine>,
    pub(crate) twice: Arc<DuplicateIndex>,
    pub(crate) left_out: Arc<SkippedBlockCounters>,
}

impl QueryExecutor {
    /// Creates an executor over these sources.
    pub(crate) fn new(config: QuerierConfig, deps: QuerierDeps) -> Self {
        let words = QueueNames {
            questions: "queries",
            setting: "querier.max_concurrent",
            of_tenant: "limits.max_concurrent_queries",
        };
        let turns = QueryQueue::new(config.max_concurrent, words);
        let room = config.response_budget();
        let quarantine = Arc::default();
        let twice = Arc::default();
        let answers = Arc::new(ResultCache::new(config.results_cache_bytes));
        let left_out = Arc::default();
        QueryExecutor { deps, config, room, answers, turns, quarantine, twice, left_out }
    }

    /// Returns the limits of a request.
    pub(crate) fn limits(&self, reader: &QueryContext) -> TenantLimits {
        limits::strictest_limits(&self.deps.overrides, reader)
    }

    /// Runs `work` with a query permit, within the deadline of the request.
    pub(crate) async fn with_permit<R, F: Future<Output = Result<R, Status>>>(
        &self,
        reader: &QueryContext,
        limits: &TenantLimits,
        work: impl FnOnce(QueryPermit) -> F,
    ) -> Result<R, Status> {
        let clock = &self.deps.clock;
        let left = || reader.deadline(clock).saturating_sub(clock.monotonic());
        let all = left();
        let late = |way_out: &str| {
            Status::new(ErrorCode::Deadline, format!("query {}{way_out}", TimeoutElapsed(all)))
        };
        let most = limits.max_concurrent_queries as usize;
        let turn = clock.timeout(all, self.turns.acquire(reader.tenants(), most)).await;
        let turn = turn.map_err(|_| {
            late(": no permit was free (querier.max_concurrent, limits.max_concurrent_queries); retry later")
        })??;
        // Results of another tenant may exceed its share of the memory if this tenant has only just arrived.
        let room = self.response_budget_for(reader);
        let fair = clock.timeout(left(), room.wait_for_fair_share()).await;
        fair.map_err(|_| {
            late(": another tenant holds the memory (querier.max_inflight_result_bytes); retry later")
        })?;
        reader.mark_planned();
        let done = clock.timeout(left(), work(turn)).await;
        done.map_err(|_| late("; select fewer series or a shorter time"))?
    }

    /// Rejects queries that crashed too often.
    pub(crate) fn check_quarantine(
        &self,
        reader: &QueryContext,
        asked: &[Arc<ProfileQuery>],
    ) -> Result<(), Status> {
        let now = self.deps.clock.monotonic();
        self.quarantine.check_query(now, || QueryFingerprint::from_queries(reader.tenants(), asked))
    }

    /// Records the queries as crashed if a computation panicked.
    pub(crate) fn record_crash(&self, reader: &QueryContext, asked: &[Arc<ProfileQuery>], status: &Status) {
        if status.panicked
            && let Ok(question) = QueryFingerprint::from_queries(reader.tenants(), asked)
        {
            self.quarantine.record_crash(question, self.deps.clock.monotonic());
        }
    }

    /// Renders results on a compute thread. If the job panics, all queries of the request count as one crash.
    pub(crate) async fn render_on_pool<R, F>(&self, reader: &QueryContext, job: F) -> Result<R, Status>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        let asked = reader.past_queries();
        // A single query was already admitted before it ran.
        if asked.len() > 1 {
            self.check_quarantine(reader, &asked)?;
            let question = || QueryFingerprint::from_queries(reader.tenants(), &asked);
            self.quarantine.begin_combined(reader.active_queries(), question).await?;
        }
        self.compute_on_pool(reader, job)
            .await
            .inspect_err(|status| self.record_crash(reader, &asked, status))
    }

    /// Reserves memory for a rendering of the result. The request holds it until the response is sent.
    pub(crate) fn reserve_memory(&self, reader: &QueryContext, bytes: usize) -> Result<(), Status> {
        reader.hold_memory(self.response_budget_for(reader).reserve(bytes)?);
        Ok(())
    }

    /// Returns the result budget for the tenants of a request.
    pub(crate) fn response_budget_for(&self, reader: &QueryContext) -> Arc<ResultBudget> {
        self.room.for_tenants(reader.tenants())
    }

    /// Returns the compute pool for a request. If there are several tenants, the first one is charged.
    pub(crate) fn compute_for(&self, reader: &QueryContext) -> ComputePool {
        let first = reader.tenants().first();
        first.map_or_else(|| self.deps.compute.clone(), |tenant| self.deps.compute.for_tenant(tenant))
    }

    /// Runs a part of request parsing that would block an I/O thread. No tenant is charged.
    pub(crate) async fn parse_on_pool<R, F>(&self, job: F) -> Result<R, Status>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        let done = self.deps.compute.run_as(CpuActivity::Query, job).await;
        done.map_err(|error| Status::from_error(&error))
    }

    /// Runs a part of a request's query that would block an I/O thread.
    pub(crate) async fn compute_on_pool<R, F>(&self, reader: &QueryContext, job: F) -> Result<R, Status>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        let done = self.compute_for(reader).run_as(CpuActivity::Query, job).await;
        done.map_err(|error| Status::from_error(&error))
    }
}
