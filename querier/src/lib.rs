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

use std::sync::Arc;

use async_trait::async_trait;
use athanor_chassis::{Status, TenantId};
use athanor_profile::ProfileSource;
use athanor_profile::encoding::hash::ContentHash;
use athanor_query::{PartialResult, ProfileQuery, ResultResolution, TimeRange};

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
mod querier;
mod validate;

pub use adhoc::{AdhocProfile, AdhocProfileService, AdhocProfileStore};
pub use api::explore::{DecodedGraph, GraphFormatError, PackedGraph, SampleStream, encode_graph};
pub use api::render::{RenderedResponse, parse_parameters};
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
pub use execute::executor::QuerierDeps;
pub use execute::partial_receiver::{PartialReceiver, RemoteSource};
pub use execute::replan::SourceQueryError;
pub use execute::skipped_sources::{SkippedBlockStats, UnreadableBlock};
pub use querier::{Querier, QuerierStats};

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
    /// Resolution of the data in the plan, by stretch of time.
    pub resolution: ResultResolution,
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
