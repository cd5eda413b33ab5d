//! Querier: one method per request. Each delegates to the function of its family of requests.

use std::sync::Arc;

use athanor_chassis::memory_budget::MemoryBudgetStats;
use athanor_chassis::requests::activity_tracker::ActivityTracker;
use athanor_chassis::requests::query_queue::QueryQueueStats;
use athanor_chassis::requests::result_budget::ResultBudget;
use athanor_chassis::{Random, Status};
use athanor_profile::call_tree::tree::Tree;
use athanor_proto::athanor::v1::{
    ChangesRequest, ChangesResponse, FunctionsRequest, FunctionsResponse, GraphRequest, GraphResponse,
    LinesRequest, LinesResponse, ProfilesRequest, ProfilesResponse, SamplesRequest, SandwichRequest,
    SandwichResponse, SubtreeRequest, SubtreeResponse,
};
use athanor_proto::google::v1::Profile;
use athanor_proto::querier::v1::{
    AnalyzeQueryRequest, AnalyzeQueryResponse, DiffRequest, DiffResponse, ProfileTypesRequest,
    ProfileTypesResponse, SelectHeatmapRequest, SelectHeatmapResponse, SelectMergeProfileRequest,
    SelectMergeSpanProfileRequest, SelectMergeSpanProfileResponse, SelectMergeStacktracesRequest,
    SelectMergeStacktracesResponse, SelectSeriesRequest, SelectSeriesResponse, SeriesRequest, SeriesResponse,
};
use athanor_proto::types::v1::{
    GetProfileStatsRequest, GetProfileStatsResponse, LabelNamesRequest, LabelNamesResponse,
    LabelValuesRequest, LabelValuesResponse,
};
use bytes::Bytes;

use crate::QueryContext;
use crate::adhoc::{AdhocProfileService, AdhocProfileStore};
use crate::api::explore::{PackedGraph, SampleStream};
use crate::api::render::RenderedResponse;
use crate::api::{estimate, explore, heatmap, lists, merge, points, render};
use crate::async_query::background::{AsyncQueryReport, AsyncQueryStats};
use crate::async_query::peer_queriers::{ClientState, QuerierClusterDeps};
use crate::async_query::stacktraces;
use crate::config::QuerierConfig;
use crate::context::quarantine::{CrashedQuery, QuarantineStats, QueryQuarantine};
use crate::context::result_cache::ResultCacheStats;
use crate::diagnostics::{self, QueryRecordSummary};
use crate::execute::executor::{QuerierDeps, QueryExecutor};
use crate::execute::skipped_sources::SkippedBlockStats;

/// Query engine. Cheap to clone.
#[derive(Clone)]
pub struct Querier {
    pub(crate) executor: QueryExecutor,
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
        Querier { executor: QueryExecutor::new(config, deps), standing: None }
    }

    /// Sets the position in the cluster. Async queries and query diagnostics are available only with it, as
    /// far as the settings allow.
    #[must_use]
    pub fn with_cluster(mut self, place: QuerierClusterDeps) -> Self {
        self.standing =
            Some(Arc::new(ClientState::new(place, &self.executor.config, &self.executor.deps.clock)));
        self
    }

    /// Loads the queries that killed earlier processes, and records active queries for later processes.
    #[must_use]
    pub fn with_crash_history(mut self, deaths: ActivityTracker) -> Self {
        self.executor.quarantine = Arc::new(QueryQuarantine::with_crash_history(deaths));
        self
    }

    /// Returns the budget of all results, which responses hold until they are sent.
    pub fn response_budget(&self) -> &Arc<ResultBudget> {
        &self.executor.room
    }

    /// Marks the shutdown as orderly, so that no active query counts as a crash.
    pub fn close(&self) {
        self.executor.quarantine.close();
    }

    /// Returns counters and gauges.
    pub fn stats(&self) -> QuerierStats {
        let quarantine = self.executor.quarantine.stats(self.executor.deps.clock.monotonic());
        let background = self.standing.as_ref().map(|standing| standing.background.stats());
        QuerierStats {
            turns: self.executor.turns.stats(),
            quarantine,
            left_out: self.executor.left_out.stats(),
            room: self.executor.room.stats(),
            again: self.executor.answers.stats(),
            background: background.unwrap_or_default(),
            twice: self.executor.twice.retry_count(),
        }
    }

    /// Returns the queries that crashed and are remembered, the rejected ones first.
    pub fn crashed_queries(&self) -> Vec<CrashedQuery> {
        self.executor.quarantine.crashed_queries(self.executor.deps.clock.monotonic())
    }

    /// Clears the quarantine, so that its queries may run. Returns the number of quarantined queries.
    pub fn clear_quarantine(&self) -> usize {
        self.executor.quarantine.clear_all(self.executor.deps.clock.monotonic())
    }

    /// Returns merged stacks in the requested format. Starts or polls an async query if the request demands
    /// that.
    pub async fn select_merge_stacktraces(
        &self,
        reader: &QueryContext,
        request: SelectMergeStacktracesRequest,
    ) -> Result<SelectMergeStacktracesResponse, Status> {
        stacktraces::select_merge_stacktraces(&self.executor, self.standing.as_deref(), reader, request).await
    }

    /// Returns the state of an async query of this node. On behalf of a peer, `reader` is that peer's client.
    pub fn poll_local(&self, reader: &QueryContext, id: &str) -> Result<AsyncQueryReport, Status> {
        stacktraces::poll_local(self.standing.as_deref(), reader, id)
    }

    /// Returns the profile types, sorted.
    pub async fn profile_types(
        &self,
        reader: &QueryContext,
        request: ProfileTypesRequest,
    ) -> Result<ProfileTypesResponse, Status> {
        lists::profile_types(&self.executor, reader, request).await
    }

    /// Returns the names of labels, sorted.
    pub async fn label_names(
        &self,
        reader: &QueryContext,
        request: LabelNamesRequest,
    ) -> Result<LabelNamesResponse, Status> {
        lists::label_names(&self.executor, reader, request).await
    }

    /// Returns the values of a label, sorted.
    pub async fn label_values(
        &self,
        reader: &QueryContext,
        request: LabelValuesRequest,
    ) -> Result<LabelValuesResponse, Status> {
        lists::label_values(&self.executor, reader, request).await
    }

    /// Returns distinct label sets. Sets without any of the requested labels are omitted.
    pub async fn series(
        &self,
        reader: &QueryContext,
        request: SeriesRequest,
    ) -> Result<SeriesResponse, Status> {
        lists::series(&self.executor, reader, request).await
    }

    /// Returns whether profiles exist, and their time range. The response is not cached, because validating a
    /// cached one would cost as much as the query.
    pub async fn get_profile_stats(
        &self,
        reader: &QueryContext,
        request: GetProfileStatsRequest,
    ) -> Result<GetProfileStatsResponse, Status> {
        lists::get_profile_stats(&self.executor, reader, request).await
    }

    /// Estimates the reads of a merge. A request without a range covers the last hour, as for profile types.
    pub async fn analyze_query(
        &self,
        reader: &QueryContext,
        request: AnalyzeQueryRequest,
    ) -> Result<AnalyzeQueryResponse, Status> {
        estimate::analyze_query(&self.executor, reader, request).await
    }

    /// Returns merged stacks as a truncated tree, for rendering by the caller.
    pub async fn merged_tree(
        &self,
        reader: &QueryContext,
        request: SelectMergeStacktracesRequest,
    ) -> Result<Tree, Status> {
        merge::merged_tree(&self.executor, reader, request).await
    }

    /// Returns merged stacks of the named spans, or of all samples if the request names none.
    pub async fn select_merge_span_profile(
        &self,
        reader: &QueryContext,
        request: SelectMergeSpanProfileRequest,
    ) -> Result<SelectMergeSpanProfileResponse, Status> {
        merge::select_merge_span_profile(&self.executor, reader, request).await
    }

    /// Returns merged stacks as pprof. They are truncated only if the request demands it.
    pub async fn select_merge_profile(
        &self,
        reader: &QueryContext,
        request: SelectMergeProfileRequest,
    ) -> Result<Profile, Status> {
        merge::select_merge_profile(&self.executor, reader, request).await
    }

    /// Compares two selections. Both sides are truncated to the same nodes.
    pub async fn diff(&self, reader: &QueryContext, request: DiffRequest) -> Result<DiffResponse, Status> {
        merge::diff(&self.executor, reader, request).await
    }

    /// Renders a flame graph and a timeline as JSON, or a call graph as DOT. `query` is the query string of
    /// the URL.
    pub async fn render(&self, reader: &QueryContext, query: &str) -> Result<RenderedResponse, Status> {
        render::render(&self.executor, reader, query).await
    }

    /// Renders the difference of two flame graphs as JSON, or of their call graphs as DOT.
    pub async fn render_diff(&self, reader: &QueryContext, query: &str) -> Result<RenderedResponse, Status> {
        render::render_diff(&self.executor, reader, query).await
    }

    /// Returns the values of `label` for `query`, from `from` (default: one hour before `until`) to `until`
    /// (default: now). Values of `__name__` are profile types, as older clients expect. The argument is the
    /// query string of the URL.
    pub async fn render_label_values(
        &self,
        reader: &QueryContext,
        query: &str,
    ) -> Result<RenderedResponse, Status> {
        render::render_label_values(&self.executor, reader, query).await
    }

    /// Exports the selected profiles as one file. The file is complete unless `maxNodes` limits it. `query`
    /// is the query string of the URL.
    pub async fn export(&self, reader: &QueryContext, query: &str) -> Result<RenderedResponse, Status> {
        render::export(&self.executor, reader, query).await
    }

    /// Returns sums or means of values over time.
    pub async fn select_series(
        &self,
        reader: &QueryContext,
        request: SelectSeriesRequest,
    ) -> Result<SelectSeriesResponse, Status> {
        points::select_series(&self.executor, reader, request).await
    }

    /// Returns the number of profiles or spans by time and by value.
    pub async fn select_heatmap(
        &self,
        reader: &QueryContext,
        request: SelectHeatmapRequest,
    ) -> Result<SelectHeatmapResponse, Status> {
        heatmap::select_heatmap(&self.executor, reader, request).await
    }

    /// Returns the callers and callees of a function.
    pub async fn sandwich(
        &self,
        reader: &QueryContext,
        request: SandwichRequest,
    ) -> Result<SandwichResponse, Status> {
        explore::sandwich(&self.executor, reader, request).await
    }

    /// Returns the call tree as columns.
    pub async fn graph(&self, reader: &QueryContext, request: GraphRequest) -> Result<GraphResponse, Status> {
        explore::graph(&self.executor, reader, request).await
    }

    /// Returns the [`graph`](Self::graph) in a form that is encoded faster.
    pub async fn packed_graph(
        &self,
        reader: &QueryContext,
        request: GraphRequest,
    ) -> Result<PackedGraph, Status> {
        self.graph(reader, request).await.map(PackedGraph::from)
    }

    /// Returns the tree below a node.
    pub async fn subtree(
        &self,
        reader: &QueryContext,
        request: SubtreeRequest,
    ) -> Result<SubtreeResponse, Status> {
        explore::subtree(&self.executor, reader, request).await
    }

    /// Returns a page of the table of all functions.
    pub async fn functions(
        &self,
        reader: &QueryContext,
        request: FunctionsRequest,
    ) -> Result<FunctionsResponse, Status> {
        explore::functions(&self.executor, reader, request).await
    }

    /// Returns ranked functions or lines that differ between two queries. Each has a verdict: sampling noise
    /// or more.
    pub async fn changes(
        &self,
        reader: &QueryContext,
        request: ChangesRequest,
    ) -> Result<ChangesResponse, Status> {
        explore::changes(&self.executor, reader, request).await
    }

    /// Returns the weight of each line of a function.
    pub async fn lines(&self, reader: &QueryContext, request: LinesRequest) -> Result<LinesResponse, Status> {
        explore::lines(&self.executor, reader, request).await
    }

    /// Returns a page of the profiles that a query merges.
    pub async fn profiles(
        &self,
        reader: &QueryContext,
        request: ProfilesRequest,
    ) -> Result<ProfilesResponse, Status> {
        explore::profiles(&self.executor, reader, request).await
    }

    /// Starts a stream of the samples that a query merges, in order of time.
    pub async fn samples(
        &self,
        reader: &QueryContext,
        request: SamplesRequest,
    ) -> Result<SampleStream, Status> {
        explore::samples(&self.executor, reader, request).await
    }

    /// Attaches a trace to the request, if this node records diagnostics.
    #[must_use]
    pub fn with_diagnostics(&self, reader: QueryContext, call: &'static str) -> QueryContext {
        diagnostics::lookup::with_diagnostics(self.standing.as_deref(), reader, call)
    }

    /// Returns the local record summaries of these tenants, newest first.
    pub fn query_records(&self, reader: &QueryContext) -> Vec<QueryRecordSummary> {
        diagnostics::lookup::query_records(self.standing.as_deref(), reader)
    }

    /// Returns the record of a query as JSON, from this node or from the node that ran it.
    pub async fn query_record(&self, reader: &QueryContext, id: &str) -> Result<Bytes, Status> {
        diagnostics::lookup::query_record(&self.executor, self.standing.as_deref(), reader, id).await
    }

    /// Returns the local record of a query.
    pub fn local_query_record(&self, reader: &QueryContext, id: &str) -> Result<Bytes, Status> {
        diagnostics::lookup::local_query_record(self.standing.as_deref(), reader, id)
    }

    /// Returns the service that stores ad hoc profiles in `shelf` and renders them.
    #[must_use]
    pub fn adhoc_profiles(&self, shelf: Arc<dyn AdhocProfileStore>, random: &Random) -> AdhocProfileService {
        AdhocProfileService::new(self.executor.clone(), shelf, random)
    }
}
