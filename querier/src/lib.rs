//! Querier: plans queries, fetches from all sources, merges partial results and renders responses.
//!
//! ```text
//!  wire request ─► validate ─► ProfileQuery ─► DataSources::plan ─► fetch ─► run on each source ────► merge
//!                                 ▲               │                          (compute threads)        ▲ │
//!                                 └──── replan ───┴► RemoteSource::query ─► chunks ─► unpack ─────────┘ │
//!                                                    (all peers at once)                                │
//!  wire response ◄─ flame graph, tree, DOT, pprof, points, lists ◄─ truncate to max_nodes, once ◄───────┘
//! ```
//!
//! The querier rejects an invalid request before it reads anything. Every other response is exact, except for
//! missing data that its warnings name: partial results are merged by id and name, and only the merged result
//! is truncated to the requested size. A query of several tenants reads the sources of each. Responses hold
//! memory of a bounded budget until they are sent. Concurrent queries are bounded, and tenants that have read
//! less go first. Concurrent equal requests share one computation. Peers fetch results that one querier
//! stores for a client.

#![cfg_attr(test, allow(clippy::unwrap_used))]

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use athanor_chassis::memory_budget::MemoryBudgetStats;
use athanor_chassis::requests::activity_tracker::ActivityTracker;
use athanor_chassis::requests::query_queue::{QueryPermit, QueryQueue, QueryQueueStats, QueueNames};
use athanor_chassis::requests::result_budget::ResultBudget;
use athanor_chassis::time::clock::TimeoutElapsed;
use athanor_chassis::{
    Clock, ComputePool, CpuActivity, ErrorCode, LimitOverrides, Status, TenantId, TenantLimits,
};
use athanor_profile::ProfileSource;
use athanor_profile::encoding::hash::ContentHash;
use athanor_query::{PartialResult, ProfileQuery, TimeRange};

mod adhoc;
mod api;
mod async_query;
mod companion;
mod config;
mod context;
mod diagnostics;
mod execute;
mod fair_eviction;
pub mod metrics;
mod validate;

pub use adhoc::{AdhocProfile, AdhocProfileService, AdhocProfileStore};
pub use api::render::{RenderedResponse, parse_parameters, parse_time};
pub use async_query::background::{AsyncQueryProgress, AsyncQueryReport, AsyncQueryResult, AsyncQueryStats};
pub use async_query::peer_queriers::{PeerQueriers, QuerierClusterDeps};
pub use async_query::query_handle::{PeerRequest, QueryHandleId};
pub use companion::TenantSettings;
pub use config::{AdhocConfig, QuerierConfig, QuerierConfigError};
pub use context::quarantine::{CrashCause, CrashedQuery, QuarantineStats};
pub use context::query_context::{MAX_TENANTS_PER_REQUEST, QueryContext, TenantsError};
pub use context::result_cache::ResultCacheStats;
pub use diagnostics::{QueryRecordSummary, RemoteTimes, SourceKind, SourceReport};
pub use execute::dedup::{DedupHints, InMemorySource};
pub use execute::partial_receiver::{PartialReceiver, RemoteSource};
pub use execute::replan::SourceQueryError;
pub use execute::skipped_sources::{SkippedBlockStats, UnreadableBlock};

use async_query::peer_queriers::ClientState;
use context::quarantine::{QueryFingerprint, QueryQuarantine};
use context::result_cache::ResultCache;
use execute::dedup::DuplicateIndex;
use execute::fan_out::unexpected_result_type;

/// Sources that a query reads. If a profile may be in two of the sources, both report its id.
#[derive(Default)]
pub struct QueryPlan {
    /// Sources in the memory of this node.
    pub sources: Vec<InMemorySource>,
    /// Block sources. Each is read when a concurrency slot is free.
    pub stored: Vec<Box<dyn BlockSource>>,
    /// Peers that query sources of theirs.
    pub remote: Vec<Arc<dyn RemoteSource>>,
    /// Expected data that is missing, as text. If there is any, the result is partial.
    pub warnings: Vec<String>,
    /// Approximate bytes of the tenant in the blocks of the time range and in local heads.
    pub bytes: u64,
    /// Sources that moved since the listing of this plan, as text: the shard, and where its rows went. The
    /// querier makes a new plan, unless it reached the limit of replans.
    pub moved: Vec<String>,
    /// Hash of all blocks that the result is computed from, and of everything else that decides their
    /// results. None if local memory contributes to the result, or if something is missing. Peers report
    /// their memory separately.
    pub made_of: Option<ContentHash>,
    /// Last timestamp of a local source that does not report ids of its profiles. Peers may have profiles of
    /// that time.
    pub untold: Option<i64>,
    /// Number of blocks in the plan, local and remote. Used for query diagnostics.
    pub blocks: usize,
    /// Number of shards that other nodes lead. Used for query diagnostics.
    pub shards: usize,
}

impl QueryPlan {
    /// Returns a plan of in-memory sources that share no profiles with other places.
    pub fn from_sources(sources: impl IntoIterator<Item = Arc<dyn ProfileSource>>) -> Self {
        QueryPlan { sources: sources.into_iter().map(InMemorySource::from).collect(), ..QueryPlan::default() }
    }
}

/// Source that is read when a concurrency slot is free, or that already has its result.
#[async_trait]
pub trait BlockSource: Send {
    /// Returns the partial result for the query of the plan, and a report on the source. A block that the
    /// bucket no longer has is [`SourceQueryError::Gone`] [INV-18]. Returns none if everything went into the
    /// receiver: a result from another node that can read the block, or a warning that no node can.
    async fn query(
        self: Box<Self>,
        inbox: &mut PartialReceiver,
    ) -> Result<Option<(PartialResult, SourceReport)>, SourceQueryError>;
}

/// Time range of existing profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataTimeRange {
    /// First and last timestamp, Unix nanoseconds. None if there is no profile.
    pub span: Option<(i64, i64)>,
    /// Expected data that is missing, as text.
    pub warnings: Vec<String>,
    /// Sources that moved since the listing was made, as in [`QueryPlan::moved`].
    pub moved: Vec<String>,
}

/// Locator of a tenant's profiles.
#[async_trait]
pub trait DataSources: Send + Sync {
    /// Returns a plan of all sources that may hold profiles of the query.
    async fn plan(
        &self,
        tenant: &TenantId,
        ask: &ProfileQuery,
        doubts: &DedupHints,
    ) -> Result<QueryPlan, Status>;

    /// Returns the value of [`QueryPlan::made_of`] for a time range. Peers must first report that none of
    /// their memory contributes to the result.
    async fn block_provenance(
        &self,
        _tenant: &TenantId,
        _time: TimeRange,
    ) -> Result<Option<ContentHash>, Status> {
        Ok(None)
    }

    /// Returns the time range of existing profiles. No profile is read.
    async fn data_time_range(&self, tenant: &TenantId) -> Result<DataTimeRange, Status>;
}

/// Dependencies of a [`Querier`].
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

/// Query engine. Cheap to clone.
#[derive(Clone)]
pub struct Querier {
    deps: QuerierDeps,
    config: QuerierConfig,
    room: Arc<ResultBudget>,
    answers: Arc<ResultCache>,
    turns: Arc<QueryQueue>,
    quarantine: Arc<QueryQuarantine>,
    twice: Arc<DuplicateIndex>,
    left_out: Arc<execute::skipped_sources::SkippedBlockCounters>,
    /// None if the querier stores nothing for clients.
    standing: Option<Arc<ClientState>>,
}

/// Counters and gauges of a querier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuerierStats {
    /// Queue for query permits.
    pub turns: QueryQueueStats,
    /// Queries in quarantine.
    pub quarantine: QuarantineStats,
    /// Blocks that results had to skip.
    pub left_out: SkippedBlockStats,
    /// Memory budget for results.
    pub room: MemoryBudgetStats,
    /// Result cache.
    pub again: ResultCacheStats,
    /// Async queries.
    pub background: AsyncQueryStats,
    /// Number of queries that were retried because a profile exists in two places.
    pub twice: u64,
}

impl Querier {
    /// Creates a querier over these sources.
    pub fn new(config: QuerierConfig, deps: QuerierDeps) -> Self {
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
        Querier { deps, config, room, answers, turns, quarantine, twice, left_out, standing: None }
    }

    /// Sets the position in the cluster. Async queries and query diagnostics are available only with it, as
    /// far as the settings allow.
    #[must_use]
    pub fn with_cluster(mut self, place: QuerierClusterDeps) -> Self {
        self.standing = Some(Arc::new(ClientState::new(place, &self.config, &self.deps.clock)));
        self
    }

    /// Loads the queries that killed earlier processes, and records active queries for later processes.
    #[must_use]
    pub fn with_crash_history(mut self, deaths: ActivityTracker) -> Self {
        self.quarantine = Arc::new(QueryQuarantine::with_crash_history(deaths));
        self
    }

    /// Returns the budget of all results, which responses hold until they are sent.
    pub fn response_budget(&self) -> &Arc<ResultBudget> {
        &self.room
    }

    /// Marks the shutdown as orderly, so that no active query counts as a crash.
    pub fn close(&self) {
        self.quarantine.close();
    }

    /// Returns counters and gauges.
    pub fn stats(&self) -> QuerierStats {
        let quarantine = self.quarantine.stats(self.deps.clock.monotonic());
        let background = self.standing.as_ref().map(|standing| standing.background.stats());
        QuerierStats {
            turns: self.turns.stats(),
            quarantine,
            left_out: self.left_out.stats(),
            room: self.room.stats(),
            again: self.answers.stats(),
            background: background.unwrap_or_default(),
            twice: self.twice.retry_count(),
        }
    }

    /// Returns the queries that crashed and are remembered, the rejected ones first.
    pub fn crashed_queries(&self) -> Vec<CrashedQuery> {
        self.quarantine.crashed_queries(self.deps.clock.monotonic())
    }

    /// Clears the quarantine, so that its queries may run. Returns the number of quarantined queries.
    pub fn clear_quarantine(&self) -> usize {
        self.quarantine.clear_all(self.deps.clock.monotonic())
    }

    /// Queries all sources of all tenants, and merges partial results as they arrive.
    async fn run_query(&self, reader: &QueryContext, mut ask: ProfileQuery) -> Result<PartialResult, Status> {
        let limits = self.limits(reader);
        let time = ask.selection.time;
        let lead = context::limits::grid_lead(&ask);
        let (time, left_out) =
            context::limits::clamp_time_range(&limits, self.deps.clock.wall(), time, lead)?;
        ask.selection.time = time;
        reader.add_warnings(left_out.into_iter().collect());
        let asked = [Arc::new(ask)];
        self.check_quarantine(reader, &asked)?;
        let [ask] = &asked;
        reader.add_query(Arc::clone(ask));
        let scribe = reader.start_query_trace(ask);
        let begun = scribe.now();
        let question = || QueryFingerprint::from_queries(reader.tenants(), &asked);
        let clock = &self.deps.clock;
        let left = reader.deadline(clock).saturating_sub(clock.monotonic());
        let alone = clock
            .timeout(left, self.quarantine.wait_until_exclusive(reader.active_queries(), question))
            .await;
        alone.map_err(|_| {
            let message = "query timed out while suspect queries ran, each of which runs alone; retry later";
            Status::new(ErrorCode::Deadline, message)
        })??;
        let answer = |turn| async move {
            scribe.record_queue_time(begun);
            self.quarantine.begin_query(reader.active_queries(), question).await?;
            self.gather(reader, Arc::clone(ask), &turn, scribe).await
        };
        let answer = self.with_permit(reader, &limits, answer).await;
        answer.inspect_err(|status| self.record_crash(reader, &asked, status))
    }

    /// Runs `work` with a query permit, within the deadline of the request.
    async fn with_permit<R, F: Future<Output = Result<R, Status>>>(
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
    fn check_quarantine(&self, reader: &QueryContext, asked: &[Arc<ProfileQuery>]) -> Result<(), Status> {
        let now = self.deps.clock.monotonic();
        self.quarantine.check_query(now, || QueryFingerprint::from_queries(reader.tenants(), asked))
    }

    /// Records the queries as crashed if a computation panicked.
    fn record_crash(&self, reader: &QueryContext, asked: &[Arc<ProfileQuery>], status: &Status) {
        if status.panicked
            && let Ok(question) = QueryFingerprint::from_queries(reader.tenants(), asked)
        {
            self.quarantine.record_crash(question, self.deps.clock.monotonic());
        }
    }

    /// Renders results on a compute thread. If the job panics, all queries of the request count as one crash.
    async fn render_on_pool<R, F>(&self, reader: &QueryContext, job: F) -> Result<R, Status>
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
    fn reserve_memory(&self, reader: &QueryContext, bytes: usize) -> Result<(), Status> {
        reader.hold_memory(self.response_budget_for(reader).reserve(bytes)?);
        Ok(())
    }

    /// Returns the result budget for the tenants of a request.
    fn response_budget_for(&self, reader: &QueryContext) -> Arc<ResultBudget> {
        self.room.for_tenants(reader.tenants())
    }

    /// Returns the compute pool for a request. If there are several tenants, the first one is charged.
    fn compute_for(&self, reader: &QueryContext) -> ComputePool {
        let first = reader.tenants().first();
        first.map_or_else(|| self.deps.compute.clone(), |tenant| self.deps.compute.for_tenant(tenant))
    }

    /// Runs a part of request parsing that would block an I/O thread. No tenant is charged.
    async fn parse_on_pool<R, F>(&self, job: F) -> Result<R, Status>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        let done = self.deps.compute.run_as(CpuActivity::Query, job).await;
        done.map_err(|error| Status::from_error(&error))
    }

    /// Runs a part of a request's query that would block an I/O thread.
    async fn compute_on_pool<R, F>(&self, reader: &QueryContext, job: F) -> Result<R, Status>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        let done = self.compute_for(reader).run_as(CpuActivity::Query, job).await;
        done.map_err(|error| Status::from_error(&error))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use athanor_chassis::Timestamp;
    use athanor_chassis::disk::MemoryDisk;
    use athanor_chassis::requests::activity_tracker::PreviousRun;
    use athanor_query::QueryKind;

    use crate::*;

    struct Nothing;

    #[async_trait]
    impl DataSources for Nothing {
        async fn plan(&self, _: &TenantId, _: &ProfileQuery, _: &DedupHints) -> Result<QueryPlan, Status> {
            Ok(QueryPlan::default())
        }
        async fn data_time_range(&self, _: &TenantId) -> Result<DataTimeRange, Status> {
            Ok(DataTimeRange::default())
        }
    }

    fn querier() -> Querier {
        let (clock, _hand) = Clock::manual(Timestamp::UNIX_EPOCH);
        let overrides = LimitOverrides::new(TenantLimits::default());
        let deps =
            QuerierDeps { sources: Arc::new(Nothing), overrides, clock, compute: ComputePool::inline() };
        Querier::new(QuerierConfig::default(), deps)
    }

    /// Asks all of these, then makes something of the answers that panics, or not.
    async fn shaped(querier: &Querier, all: &[QueryKind], panics: bool) -> Result<(), String> {
        let reader = QueryContext::for_tenant(TenantId::anonymous());
        for what in all {
            let asked = querier
                .run_query(&reader, ProfileQuery { what: what.clone(), ..ProfileQuery::default() })
                .await;
            asked.map_err(|status| status.message)?;
        }
        querier
            .render_on_pool(&reader, move || assert!(!panics, "no such node"))
            .await
            .map_err(|status| status.message)
    }

    #[tokio::test]
    async fn what_crashes_when_it_is_shown_crashed() {
        let querier = querier();
        let (names, types) = (QueryKind::LabelNames, QueryKind::ProfileTypes);
        for _ in 0..2 {
            let crashed = shaped(&querier, std::slice::from_ref(&names), true).await.unwrap_err();
            assert!(crashed.contains("no such node"), "{crashed}");
        }
        let refused = shaped(&querier, std::slice::from_ref(&names), false).await.unwrap_err();
        assert!(refused.contains("crashed 2 times"), "{refused}");
        assert_eq!(shaped(&querier, std::slice::from_ref(&types), false).await, Ok(()));
        let stats = querier.stats().quarantine;
        assert_eq!(stats, QuarantineStats { quarantined: 1, suspected: 0, crashes: 2, refused: 1 });
        assert_eq!(querier.clear_quarantine(), 1);
        assert_eq!(shaped(&querier, &[names], false).await, Ok(()));
    }

    #[tokio::test]
    async fn questions_that_crash_together_are_good_alone() {
        let querier = querier();
        let both = [QueryKind::LabelNames, QueryKind::ProfileTypes];
        for _ in 0..2 {
            shaped(&querier, &both, true).await.unwrap_err();
        }
        // In whichever order.
        let other_way = [QueryKind::ProfileTypes, QueryKind::LabelNames];
        assert!(shaped(&querier, &other_way, false).await.unwrap_err().contains("crashed 2 times"));
        for alone in both {
            assert_eq!(shaped(&querier, &[alone], false).await, Ok(()));
        }
    }

    /// The process dies while a question is under way: it does not come to be answered.
    async fn dies(querier: &Querier, what: &QueryKind) {
        let reader = QueryContext::for_tenant(TenantId::anonymous());
        let asked =
            querier.run_query(&reader, ProfileQuery { what: what.clone(), ..ProfileQuery::default() }).await;
        asked.unwrap();
        std::mem::forget(reader);
    }

    #[tokio::test]
    async fn what_kills_the_process_twice_is_refused_and_who_runs_beside_is_not() {
        let disk = MemoryDisk::new();
        let begun = || {
            let deaths = ActivityTracker::open(
                PreviousRun { disk: Arc::new(disk.clone()), has_aborted: true },
                Clock::system(),
            )
            .unwrap();
            querier().with_crash_history(deaths)
        };
        let (killer, beside, other) =
            (QueryKind::LabelNames, QueryKind::ProfileTypes, QueryKind::Series(Vec::new()));
        let first = begun();
        dies(&first, &killer).await;
        dies(&first, &beside).await;
        let second = begun();
        assert_eq!(second.stats().quarantine.suspected, 2);
        // Each of the two is asked alone: no other suspect is under way when the process dies again.
        let reader = QueryContext::for_tenant(TenantId::anonymous());
        second
            .run_query(&reader, ProfileQuery { what: killer.clone(), ..ProfileQuery::default() })
            .await
            .unwrap();
        let waits = shaped(&second, std::slice::from_ref(&beside), false);
        let (clock, moment) = (Clock::system(), Duration::from_millis(50));
        assert!(clock.timeout(moment, waits).await.is_err(), "it waits for the other one");
        assert_eq!(shaped(&second, std::slice::from_ref(&other), false).await, Ok(()), "nobody suspects it");
        std::mem::forget(reader);
        let third = begun();
        let refused = shaped(&third, std::slice::from_ref(&killer), false).await.unwrap_err();
        assert!(refused.contains("ran 2 times") && refused.contains("athanor quarantine clear"), "{refused}");
        let stats = third.stats().quarantine;
        assert_eq!(stats, QuarantineStats { quarantined: 1, suspected: 1, crashes: 0, refused: 1 });
        // What ends well is above suspicion.
        let reader = QueryContext::for_tenant(TenantId::anonymous());
        third.run_query(&reader, ProfileQuery { what: beside, ..ProfileQuery::default() }).await.unwrap();
        reader.finish_request(None);
        assert_eq!(third.stats().quarantine.suspected, 0);
        assert_eq!(third.clear_quarantine(), 1);
        assert_eq!(shaped(&third, &[killer], false).await, Ok(()));
        third.close();
        assert_eq!(begun().stats().quarantine, QuarantineStats::default());
    }
}
