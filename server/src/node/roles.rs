//! Roles of a node, without a client port. A simulation runs them in this form.
//!
//! ```text
//!  folder ─► Log ─► groups: catalog, shards ─► Metastore, Ingester ────────────┐
//!  other nodes ─► MetastoreClient, RoutingWatch, IngesterClient ───────────────┴─► Distributor, Querier
//! ```
//! A process with some of the roles calls the others over the network. A single-node process with all roles
//! runs the same code without remote calls.

use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::Catalog;
use athanor_chassis::requests::result_budget::ResultBudget;
use athanor_chassis::{Clock, ErrorCode, LimitOverrides, Status, TaskGroup};
use athanor_cluster::members::MemberState;
use athanor_consensus::RaftGroup;
use athanor_consensus::log::Log;
use athanor_distributor::Distributor;
use athanor_ingester::Ingester;
use athanor_metastore::{CatalogStateMachine, MetastoreClient, RoutingWatch};
use athanor_querier::{AdhocProfileService, Querier, TenantSettings};
use athanor_storage::UploadSpace;
use athanor_store_gateway::StoreGateway;
use athanor_symbolizer::DebuginfoService;
use futures::future::{BoxFuture, FutureExt};
use tokio::sync::Notify;

use super::assembly::{self, InternalServices};
use super::metric_sources::MetricSources;
use super::shutdown_budget::ShutdownBudget;
use super::{MAX_TASKS, NodeDeps, StartError};
use crate::config::ServerConfig;
use crate::lifecycle::node_health::NodeHealth;
use crate::lifecycle::readiness::{Readiness, ReadinessCheck};
use crate::membership::cluster_handle::{ClusterBootstrap, ClusterHandle};
use crate::membership::cluster_overview::ClusterOverview;
use crate::read::tenant_directory::TenantDirectory;
use crate::telemetry::metrics::MetricsRegistry;

/// Longest wait for leadership transfers when a node stops. Groups that are not transferred by then elect a
/// new leader.
const LEADER_TRANSFER_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between two requests to an unavailable catalog.
const CATALOG_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Running roles of a node and their shared state.
pub struct NodeRoles {
    /// Distributor, if the process has that role.
    pub distributor: Option<Distributor>,
    /// Querier, if the process has that role.
    pub querier: Option<Querier>,
    /// Service for profiles uploaded by hand, on queriers.
    pub adhoc: Option<AdhocProfileService>,
    /// Service for debug information, on distributors.
    pub debuginfo: Option<DebuginfoService>,
    /// Store-gateway: for the local querier, and for other nodes if the process has that role.
    pub gateway: Arc<StoreGateway>,
    /// Ingester, if the process has that role.
    pub ingester: Option<Arc<Ingester>>,
    /// Catalog client.
    pub catalog: Arc<dyn Catalog>,
    /// Watch of the routing view, which every node follows.
    pub views: RoutingWatch,
    /// Registry of all metrics.
    pub metrics: Arc<MetricsRegistry>,
    /// This node's view of its cluster.
    pub(super) overview: ClusterOverview,
    pub(super) readiness: Arc<Readiness>,
    health: Arc<NodeHealth>,
    pub(super) others: Option<ClusterHandle>,
    log: Option<Log>,
    pub(super) tasks: TaskGroup,
    pub(super) clock: Clock,
    /// Longest duration of a shutdown.
    shutdown_timeout: Duration,
}

impl NodeRoles {
    /// Returns the metastore client, which also changes the voters.
    pub const fn client(&self) -> &MetastoreClient {
        &self.overview.client
    }

    /// Opens the log and all roles on it, and joins the cluster, if there is one.
    pub fn open(
        config: &ServerConfig,
        system: NodeDeps,
        overrides: LimitOverrides,
    ) -> BoxFuture<'_, Result<Self, StartError>> {
        let opened = async move {
            let tasks = TaskGroup::new(system.clock.clone(), MAX_TASKS);
            let entry = ClusterBootstrap::from_config(config, &system.net, &system.clock).await?;
            Self::open_on(config, system, overrides, tasks, entry, Arc::default()).await
        };
        opened.boxed()
    }

    pub(super) async fn open_on(
        config: &ServerConfig,
        system: NodeDeps,
        overrides: LimitOverrides,
        tasks: TaskGroup,
        entry: Option<ClusterBootstrap>,
        readiness: Arc<Readiness>,
    ) -> Result<Self, StartError> {
        let clock = system.clock.clone();
        let offered = InternalServices::default();
        let (identity, others) = assembly::join_cluster(config, &system, &tasks, entry, &offered).await?;
        let site =
            assembly::NodeContext { config, system, overrides, tasks, identity, others: others.as_ref() };
        site.check_bucket(&readiness)?;
        let ground = site.open_log().await?;
        let voter = site.voter(ground.as_ref()).await?;
        let (client, views) = site.catalogue(voter.as_ref(), &offered)?;
        let catalog: Arc<dyn Catalog> = Arc::new(client.clone());
        let ingester = site.ingester(ground.as_ref(), voter.as_ref(), &catalog, &views, &offered).await?;
        site.report_losses(ingester.as_ref(), voter.as_ref());
        let reaching = site.routing_handles(ingester.as_ref());
        let distributor = site.distributor(&views, &reaching, &offered);
        let gateway = site.gateway(&reaching, &offered)?;
        let querier = site.querier(&catalog, ingester.as_ref(), &reaching, &gateway);
        site.serve_queriers(querier.as_ref(), &offered);
        let space = UploadSpace::new(site.system.store.clone(), config.upload_bounds());
        let adhoc = site.ad_hoc(querier.as_ref(), &space);
        let debuginfo = site.debuginfo(&space);
        let compactor = site.compactor(&catalog)?;
        let overview = site.overview(client.clone(), &views, &reaching);
        site.upkeep(voter.as_ref(), &catalog, &views, &reaching)?;
        let metrics = site.metrics(MetricSources {
            distributor: distributor.clone(),
            debuginfo: debuginfo.clone(),
            ingester: ingester.clone(),
            querier: querier.clone(),
            gateway: Arc::clone(&gateway),
            compactor: compactor.as_ref(),
            hedges: Arc::clone(&reaching.hedges),
            ground: ground.as_ref(),
            voter: voter.as_ref(),
            readiness: &readiness,
        });
        let facts = voter.map(|voter| voter.facts);
        let log = ground.map(|ground| ground.log);
        site.room(log.as_ref(), ingester.as_ref(), facts.as_ref())?;
        let groups = facts.into_iter().collect();
        let health = Arc::new(NodeHealth { ingester: ingester.clone(), groups, log: log.clone() });
        let tasks = site.tasks;
        announce_ready(others.as_ref(), client, &health, &readiness, &tasks, &clock).await?;
        Ok(Self {
            distributor,
            querier,
            adhoc,
            debuginfo,
            gateway,
            ingester,
            catalog,
            views,
            metrics,
            overview,
            readiness,
            health,
            others,
            log,
            tasks,
            clock,
            shutdown_timeout: config.shutdown_timeout,
        })
    }

    /// Returns settings that tenants store. None without the querier role.
    pub(super) fn tenant_settings(&self, limits: LimitOverrides) -> Option<TenantSettings> {
        self.querier.as_ref().map(|_| TenantSettings::new(Arc::clone(&self.catalog), limits))
    }

    /// Returns the directory of tenants that have profiles.
    pub(super) fn tenant_directory(&self) -> TenantDirectory {
        TenantDirectory { catalog: Arc::clone(&self.catalog), ingester: self.ingester.clone() }
    }

    /// Returns the memory budget of responses.
    pub(super) fn response_budget(&self, config: &ServerConfig) -> Arc<ResultBudget> {
        match &self.querier {
            Some(querier) => Arc::clone(querier.response_budget()),
            None => config.querier.response_budget(),
        }
    }

    /// Returns an error with the reason if the node is not ready for requests.
    pub fn ready(&self) -> Result<(), Status> {
        self.readiness.now()
    }

    /// Returns whether this node votes in the metastore.
    pub fn is_voter(&self) -> bool {
        !self.health.groups.is_empty()
    }

    /// Returns the catalog's raft group, if this node votes.
    pub(super) fn facts(&self) -> Option<&RaftGroup<CatalogStateMachine>> {
        self.health.groups.first()
    }

    /// Returns the cluster handle; `None` on a single-node server.
    pub fn cluster_handle(&self) -> Option<&ClusterHandle> {
        self.others.as_ref()
    }

    /// Starts the shutdown budget.
    pub(super) fn begin_shutdown(&self) -> ShutdownBudget {
        ShutdownBudget::begin(&self.clock, self.shutdown_timeout)
    }

    /// Transfers all leaderships of this node, as far as other nodes accept them.
    pub(super) async fn transfer_leaderships(&self, ending: &ShutdownBudget) {
        let limit = LEADER_TRANSFER_TIMEOUT.min(ending.for_requests());
        if let (Some(_), Some(ingester)) = (&self.others, &self.ingester)
            && let Err(status) = ingester.drain(limit).await
        {
            tracing::warn!(error = %status, "failed to transfer all leaderships, other members will elect leaders");
        }
    }

    /// Transfers leaderships and ends everything within `shutdown_timeout`. A single-node server first
    /// flushes its memory. An error means that acknowledged data may be lost.
    pub fn close(self) -> BoxFuture<'static, Result<(), Status>> {
        let closed = async move {
            let ending = self.begin_shutdown();
            self.transfer_leaderships(&ending).await;
            self.end(&ending, &Notify::new()).await
        };
        closed.boxed()
    }

    /// Ends everything that remains after the last request. A notified `haste` skips the flush: acknowledged
    /// data is in the log.
    pub(super) async fn end(mut self, ending: &ShutdownBudget, haste: &Notify) -> Result<(), Status> {
        let kept = self.last_cut(ending, haste).await;
        if let Some(others) = self.others.take()
            && let Err(late) = self.clock.timeout(ending.for_leave(), others.leave()).await
        {
            tracing::warn!(%late, "failed to announce the leave in time, other nodes will detect the loss");
        }
        // Tasks that do not end on request are aborted, and release their resources afterwards.
        let ended = self.tasks.shutdown(ending.for_remainder() / 2).await;
        if !ended.unfinished.is_empty() {
            tracing::warn!(tasks = ?ended.unfinished, "aborted unfinished tasks");
        }
        if let Err(late) = self.clock.timeout(ending.for_remainder(), self.end_groups()).await {
            tracing::warn!(%late, "raft groups did not stop in time, acknowledged data is in the log");
        }
        self.close_log();
        kept
    }

    /// Ends everything at once without a flush, like a crash of the process. Responses not sent by then are
    /// never sent.
    pub fn abandon(&self) -> BoxFuture<'_, ()> {
        let abandoned = async move {
            self.tasks.shutdown(Duration::ZERO).await;
            self.end_groups().await;
            self.close_log();
        };
        abandoned.boxed()
    }

    async fn end_groups(&self) {
        if let Some(ingester) = &self.ingester {
            ingester.shutdown().await;
        }
        for group in &self.health.groups {
            group.shutdown().await;
        }
    }

    fn close_log(&self) {
        if let Some(log) = &self.log {
            log.close();
        }
    }

    /// Flushes on a single-node server only. In a cluster, other members hold the data; a single node would
    /// have to replay it.
    async fn last_cut(&self, ending: &ShutdownBudget, haste: &Notify) -> Result<(), Status> {
        let (Some(ingester), None) = (&self.ingester, &self.others) else { return Ok(()) };
        let cut = tokio::select! {
            biased;
            cut = ingester.flush_all(&self.clock, ending.for_leave()) => cut.map(drop),
            failed = self.health.wait_until_failing(&self.clock) => Err(failed),
            () = haste.notified() => Err(Status::new(ErrorCode::Cancelled, "forced shutdown requested")),
        };
        cut.or_else(|why| self.health.check_unflushed(&why))
    }
}

fn readiness_check(health: &Arc<NodeHealth>) -> ReadinessCheck {
    let health = Arc::clone(health);
    Box::new(move || health.check())
}

/// Reports ready. In a cluster, other nodes are informed at once, and clients are served once the catalog has
/// responded.
async fn announce_ready(
    others: Option<&ClusterHandle>,
    client: MetastoreClient,
    health: &Arc<NodeHealth>,
    readiness: &Arc<Readiness>,
    tasks: &TaskGroup,
    clock: &Clock,
) -> Result<(), StartError> {
    let check = readiness_check(health);
    match others {
        None => readiness.serve(check),
        Some(others) => {
            others.announce_state(MemberState::Ready).await;
            serve_when_heard(client, check, readiness, tasks, clock)?;
        }
    }
    Ok(())
}

/// Reports ready once the catalog has responded.
fn serve_when_heard(
    client: MetastoreClient,
    check: ReadinessCheck,
    readiness: &Arc<Readiness>,
    tasks: &TaskGroup,
    clock: &Clock,
) -> Result<(), StartError> {
    let readiness = Arc::clone(readiness);
    let token = tasks.shutdown_token();
    let clock = clock.clone();
    let first = async move {
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            () = heard(&client, &clock) => readiness.serve(check),
        }
    };
    tasks.spawn("first catalog response", first)?;
    Ok(())
}

/// Waits until a majority of the metastore's voters has responded. Before that, a node can neither place
/// profiles nor list blocks, so every request would fail.
async fn heard(client: &MetastoreClient, clock: &Clock) {
    while let Err(error) = client.voters().await {
        tracing::warn!(%error, "not ready, waiting for a response of the catalog");
        clock.sleep(CATALOG_RETRY_INTERVAL).await;
    }
}
