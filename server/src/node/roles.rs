//! The roles of a node, without a port: what a simulation runs.
//!
//! ```text
//!  folder ─► Log ─► groups: catalogue, shards ─► Metastore, Ingester ─┐
//!  other nodes ─► Client, Views, Ways ────────────────────────────────┴─► Distributor, Querier
//! ```
//! A process that has only some of them reaches the others by calls; one that has all of them and is alone runs the same
//! code, and calls nobody.

use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::Catalog;
use athanor_chassis::memory_budget::MemoryBudget;
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
use super::shutdown_budget::ShutdownBudget;
use super::{MAX_TASKS, NodeDeps, StartError};
use crate::cluster_handle::{ClusterBootstrap, ClusterHandle};
use crate::cluster_overview::ClusterOverview;
use crate::config::ServerConfig;
use crate::metrics::MetricsCollector;
use crate::node_health::NodeHealth;
use crate::readiness::{Readiness, ReadinessCheck};

/// How long the leads of a node may take to go to others when it stops, where there is so much time: those that have not
/// gone by then are elected away.
const LEADER_TRANSFER_TIMEOUT: Duration = Duration::from_secs(5);
/// Between questions to a catalogue that does not answer.
const CATALOG_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The roles of a node.
pub struct NodeRoles {
    /// Takes profiles.
    pub distributor: Option<Distributor>,
    /// Answers queries.
    pub querier: Option<Querier>,
    /// Keeps profiles that people upload by hand, where queries are answered.
    pub adhoc: Option<AdhocProfileService>,
    /// Takes debug information, where profiles are taken.
    pub debuginfo: Option<DebuginfoService>,
    /// Reads blocks: for the querier here, and for others where that is a role of this node.
    pub gateway: Arc<StoreGateway>,
    /// Keeps recent profiles.
    pub ingester: Option<Arc<Ingester>>,
    /// Knows the blocks.
    pub catalog: Arc<dyn Catalog>,
    /// What every node must know.
    pub views: RoutingWatch,
    /// What is told of all of them.
    pub scrape: Arc<MetricsCollector>,
    /// What this node sees of its cluster.
    pub(super) overview: ClusterOverview,
    pub(super) readiness: Arc<Readiness>,
    health: Arc<NodeHealth>,
    pub(super) others: Option<ClusterHandle>,
    log: Option<Log>,
    pub(super) tasks: TaskGroup,
    pub(super) clock: Clock,
    /// All that its end may take.
    drain: Duration,
}

impl NodeRoles {
    /// The catalogue, with what people change about its voters.
    pub const fn client(&self) -> &MetastoreClient {
        &self.overview.client
    }

    /// Opens the log and everything on it, and takes its part in the cluster, if there is one.
    pub fn open(
        config: &ServerConfig,
        system: NodeDeps,
        overrides: LimitOverrides,
    ) -> BoxFuture<'_, Result<Self, StartError>> {
        let opened = async move {
            let tasks = TaskGroup::new(system.clock.clone(), MAX_TASKS);
            let entry = ClusterBootstrap::from_config(config, &system.net, &system.clock).await?;
            Self::open_on(config, system, overrides, (tasks, entry), Arc::default()).await
        };
        opened.boxed()
    }

    pub(super) async fn open_on(
        config: &ServerConfig,
        system: NodeDeps,
        overrides: LimitOverrides,
        (tasks, entry): (TaskGroup, Option<ClusterBootstrap>),
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
        let ingester = site.ingester((ground.as_ref(), voter.as_ref()), &catalog, &views, &offered).await?;
        site.report_losses(ingester.as_ref(), voter.as_ref());
        let reaching = site.routing_handles(ingester.as_ref());
        let distributor = site.distributor(&views, &reaching, &offered);
        let gateway = site.gateway(&reaching, &offered)?;
        let querier = site.querier(&catalog, ingester.as_ref(), &reaching, &gateway);
        site.serve_queriers(querier.as_ref(), &offered);
        let space = UploadSpace::new(site.system.store.clone(), config.upload_bounds());
        let adhoc = site.ad_hoc(querier.as_ref(), &space);
        let debuginfo = site.debuginfo(&space);
        let janitor = site.upkeep(voter.as_ref(), &catalog, &views, &reaching)?;
        let overview = site.overview(client.clone(), &views, &reaching);
        let facts = voter.map(|voter| voter.facts);
        let scrape = Arc::new(site.scrape(
            (distributor.clone(), debuginfo.clone(), ingester.clone(), querier.clone()),
            (Arc::clone(&gateway), Arc::clone(&reaching.hedges), janitor),
            (ground.as_ref(), facts.clone()),
            &readiness,
        ));
        let log = ground.map(|ground| ground.log);
        site.room(log.as_ref(), ingester.as_ref(), facts.as_ref())?;
        let health =
            NodeHealth { ingester: ingester.clone(), groups: facts.into_iter().collect(), log: log.clone() };
        let health = Arc::new(health);
        let check = readiness_check(&health);
        let tasks = site.tasks;
        match &others {
            None => readiness.serve(check),
            Some(others) => {
                others.announce_state(MemberState::Ready).await;
                serve_when_heard(client, check, &readiness, &tasks, &clock)?;
            }
        }
        Ok(Self {
            distributor,
            querier,
            adhoc,
            debuginfo,
            gateway,
            ingester,
            catalog,
            views,
            scrape,
            overview,
            readiness,
            health,
            others,
            log,
            tasks,
            clock,
            drain: config.drain,
        })
    }

    /// Returns settings that tenants store. None without the querier role.
    pub(super) fn tenant_settings(&self, limits: LimitOverrides) -> Option<TenantSettings> {
        self.querier.as_ref().map(|_| TenantSettings::new(Arc::clone(&self.catalog), limits))
    }

    /// Returns the memory budget of responses.
    pub(super) fn response_budget(&self, config: &ServerConfig) -> Arc<MemoryBudget> {
        match &self.querier {
            Some(querier) => Arc::clone(querier.response_budget()),
            None => config.querier.response_budget(),
        }
    }

    /// Whether requests are welcome, or why not.
    pub fn ready(&self) -> Result<(), Status> {
        self.readiness.now()
    }

    /// The catalogue's state on this node, where it votes.
    pub(super) fn facts(&self) -> Option<&RaftGroup<CatalogStateMachine>> {
        self.health.groups.first()
    }

    /// The other nodes; none where there are no settings of a cluster.
    pub fn cluster_handle(&self) -> Option<&ClusterHandle> {
        self.others.as_ref()
    }

    /// It was told to end.
    pub(super) fn begin_shutdown(&self) -> ShutdownBudget {
        ShutdownBudget::begin(&self.clock, self.drain)
    }

    /// Gives away what this node leads, as far as others take it.
    pub(super) async fn transfer_leaderships(&self, ending: &ShutdownBudget) {
        let limit = LEADER_TRANSFER_TIMEOUT.min(ending.for_requests());
        if let (Some(_), Some(ingester)) = (&self.others, &self.ingester)
            && let Err(status) = ingester.drain(limit).await
        {
            tracing::warn!(error = %status, "not all leads went to others, they will elect");
        }
    }

    /// Gives away what it leads and ends everything, within `drain`; one that is alone cuts first what is in memory. An
    /// error says that something acknowledged may be nowhere.
    pub fn close(self) -> BoxFuture<'static, Result<(), Status>> {
        let closed = async move {
            let ending = self.begin_shutdown();
            self.transfer_leaderships(&ending).await;
            self.end(&ending, &Notify::new()).await
        };
        closed.boxed()
    }

    /// Ends everything that is left when no more requests are answered. The cut is left where there is haste: what was
    /// acknowledged is in the log.
    pub(super) async fn end(mut self, ending: &ShutdownBudget, haste: &Notify) -> Result<(), Status> {
        let kept = self.last_cut(ending, haste).await;
        if let Some(others) = self.others.take()
            && let Err(late) = self.clock.timeout(ending.for_leave(), others.leave()).await
        {
            tracing::warn!(%late, "others may not have heard that this node leaves, they will miss it");
        }
        // Whatever does not end when it is asked to is aborted, and what it holds ends after it.
        let ended = self.tasks.shutdown(ending.for_remainder() / 2).await;
        if !ended.unfinished.is_empty() {
            tracing::warn!(tasks = ?ended.unfinished, "tasks did not end");
        }
        if let Err(late) = self.clock.timeout(ending.for_remainder(), self.end_groups()).await {
            tracing::warn!(%late, "groups were left; what was acknowledged is in the log");
        }
        self.close_log();
        kept
    }

    /// Ends everything at once and cuts nothing, as the end of a process does; what was said to nobody is not said.
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

    /// Others have what this node has: only who is alone need not make them read it back.
    async fn last_cut(&self, ending: &ShutdownBudget, haste: &Notify) -> Result<(), Status> {
        let (Some(ingester), None) = (&self.ingester, &self.others) else { return Ok(()) };
        let cut = tokio::select! {
            biased;
            cut = ingester.flush_all(&self.clock, ending.for_leave()) => cut.map(drop),
            failed = self.health.wait_until_failing(&self.clock) => Err(failed),
            () = haste.notified() => Err(Status::new(ErrorCode::Cancelled, "told to hurry")),
        };
        cut.or_else(|why| self.health.check_unflushed(&why))
    }
}

fn readiness_check(health: &Arc<NodeHealth>) -> ReadinessCheck {
    let health = Arc::clone(health);
    Box::new(move || health.check())
}

/// Requests are welcome from when the catalogue has said something.
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
    tasks.spawn("first word of the catalogue", first)?;
    Ok(())
}

/// Waits until a majority of the catalogue's voters was heard: before, a node can neither place a profile nor say where
/// blocks are, and whoever sent it requests would only see them fail.
async fn heard(client: &MetastoreClient, clock: &Clock) {
    while let Err(error) = client.voters().await {
        tracing::warn!(%error, "not ready: the catalogue does not answer yet");
        clock.sleep(CATALOG_RETRY_INTERVAL).await;
    }
}
