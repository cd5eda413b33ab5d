//! Construction of each role from the dependencies of its process.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use athanor_catalog::{Catalog, DataLoss};
use athanor_chassis::disk::DiskError;
use athanor_chassis::{Clock, LimitOverrides, TaskGroup};
use athanor_cluster::handshake::NodeIdentity;
use athanor_cluster::members::RoleName;
use athanor_cluster::peers;
use athanor_consensus::log::{self, Log};
use athanor_consensus::replicated::GroupBootstrap;
use athanor_consensus::{RaftGroup, replicated};
use athanor_ingester::Ingester;
use athanor_metastore::{
    BootstrapDeps, CatalogStateMachine, MetastoreClient, MetastoreClientDeps, MetastoreServer,
    MetastoreServerDeps, MetastoreVoter, MetastoreVoterDeps, RoutingWatch,
};
use athanor_proto::athanor::internal::v1::distributor_service_server::DistributorServiceServer;
use athanor_proto::athanor::internal::v1::ingester_service_server::IngesterServiceServer;
use athanor_proto::athanor::internal::v1::metastore_service_server::MetastoreServiceServer;
use athanor_proto::athanor::internal::v1::querier_service_server::QuerierServiceServer;
use athanor_proto::athanor::internal::v1::store_gateway_service_server::StoreGatewayServiceServer;
use tokio_util::sync::CancellationToken;

use super::{NodeDeps, StartError};
use crate::config::ServerConfig;
use crate::controller::ClusterController;
use crate::controller::disk_pressure::DiskPressureMonitor;
use crate::lifecycle::bucket_check::BucketCheck;
use crate::lifecycle::readiness::Readiness;
use crate::maintenance::catalog_repair::CatalogRepair;
use crate::membership::cluster_handle::{ClusterBootstrap, ClusterHandle};
use crate::membership::cluster_overview::ClusterOverview;
use crate::node::node_identity::{self, NodeIdentityError};
use crate::read::hedging::HedgingPolicy;
use crate::rpc::deferred_service::DeferredService;
use crate::rpc::handoff_client::HandoffClient;
use crate::rpc::ingester_client::IngesterClient;
use crate::rpc::ingester_service::IngesterService;
use crate::rpc::querier_rpc::QuerierService;
use crate::rpc::service_load::DistributorService;
use crate::rpc::store_gateway_service::StoreGatewayService;
use crate::write::leader_cache::LeaderCache;

/// Interval between two reads of the tenants that have blocks.
const TENANTS_REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// Retry interval of shards that failed to open.
const SHARD_OPEN_RETRY_BACKOFF: Duration = Duration::from_secs(5);

/// Internal services that other nodes may call once their roles have started.
#[derive(Clone, Default)]
pub struct InternalServices {
    ingester: DeferredService<IngesterServiceServer<IngesterService>>,
    metastore: DeferredService<MetastoreServiceServer<MetastoreServer>>,
    pub(super) distributor: DeferredService<DistributorServiceServer<DistributorService>>,
    pub(super) store_gateway: DeferredService<StoreGatewayServiceServer<StoreGatewayService>>,
    pub(super) querier: DeferredService<QuerierServiceServer<QuerierService>>,
}

/// Dependencies that all roles of a process share.
pub struct NodeContext<'a> {
    pub config: &'a ServerConfig,
    pub system: NodeDeps,
    pub overrides: LimitOverrides,
    pub tasks: TaskGroup,
    pub identity: log::LogIdentity,
    pub others: Option<&'a ClusterHandle>,
}

/// Log and consensus that the raft groups run on.
pub struct ConsensusRuntime {
    pub log: Log,
    pub(super) recovery: log::LogRecoveryReport,
    pub consensus: replicated::RaftGroupDeps,
}

/// Voter of this node in the metastore.
pub struct LocalVoter {
    pub facts: RaftGroup<CatalogStateMachine>,
    pub metastore: MetastoreVoter,
}

/// Handles that route calls to shards.
pub struct RoutingHandles {
    pub leaders: Arc<LeaderCache>,
    pub ways: IngesterClient,
    pub hedges: Arc<HedgingPolicy>,
}

/// Loads the identity of this node and joins its cluster, if it has one.
pub async fn join_cluster(
    config: &ServerConfig,
    system: &NodeDeps,
    tasks: &TaskGroup,
    entry: Option<ClusterBootstrap>,
    offered: &InternalServices,
) -> Result<(log::LogIdentity, Option<ClusterHandle>), StartError> {
    let identity = node_identity::load(&*system.state, &system.random, config.cluster.cluster()?)?;
    let Some(entry) = entry else { return Ok((identity, None)) };
    // The boot counter must be durable before other nodes see it.
    let boot = match node_identity::next_boot(&*system.state) {
        // The disk is full. A spare log segment can be released to make space.
        Err(NodeIdentityError::Disk(DiskError::Full { .. }))
            if log::release_spare(&*system.log).unwrap_or_default() =>
        {
            node_identity::next_boot(&*system.state)?
        }
        boot => boot?,
    };
    let me = NodeIdentity { cluster: identity.cluster, node: identity.node, boot };
    let InternalServices { ingester, metastore, distributor, store_gateway, querier } = offered.clone();
    let offer = |services: athanor_cluster::internal_server::InternalRouter| {
        services
            .with_service(ingester)
            .with_service(metastore)
            .with_service(distributor)
            .with_service(store_gateway)
            .with_service(querier)
    };
    let others = entry.join(me, config, system, tasks, offer).await?;
    Ok((identity, Some(others)))
}

impl NodeContext<'_> {
    pub(super) fn has(&self, role: RoleName) -> bool {
        self.config.target.has(role)
    }

    /// Starts the check of the bucket, if the bucket is remote.
    pub fn check_bucket(&self, readiness: &Arc<Readiness>) -> Result<(), StartError> {
        let NodeDeps { store, state, compute, clock, .. } = &self.system;
        if !store.is_remote() {
            return Ok(());
        }
        let check = BucketCheck {
            store: store.clone(),
            state: Arc::clone(state),
            compute: compute.clone(),
            readiness: Arc::clone(readiness),
            clock: clock.clone(),
        };
        check.begin();
        self.tasks.spawn("bucket check", check.run(self.tasks.shutdown_token()))?;
        Ok(())
    }

    /// Opens the log, if a role of this process keeps one.
    pub async fn open_log(&self) -> Result<Option<ConsensusRuntime>, StartError> {
        if !self.config.target.has_log() {
            return Ok(None);
        }
        let NodeDeps { random, compute, log: disk, state, pump, .. } = &self.system;
        let split = random.split();
        let settings = self.config.log();
        let identity = self.identity;
        let disk = Arc::clone(disk);
        let pump = *pump;
        let opening = move || Log::open(disk, &split, identity, &settings, pump);
        let (log, recovery) = compute.run(opening).await?.inspect(|(_, recovery)| report(recovery))?;
        let consensus = replicated::RaftGroupDeps {
            log: log.clone(),
            disk: Arc::clone(state),
            compute: compute.clone(),
            random: random.split(),
            network: self.others.map(ClusterHandle::network),
            node: identity.node,
            timing: replicated::RaftTiming::default(),
        };
        Ok(Some(ConsensusRuntime { log, recovery, consensus }))
    }

    fn deciding(&self, others: &ClusterHandle) -> BootstrapDeps {
        BootstrapDeps {
            store: self.system.store.clone(),
            members: others.membership().members.clone(),
            node: self.identity.node,
            cluster: self.identity.cluster,
            wanted: self.config.metastore.voters,
            clock: self.system.clock.clone(),
        }
    }

    /// Opens the raft group of the catalog.
    pub async fn voter(&self, ground: Option<&ConsensusRuntime>) -> Result<Option<LocalVoter>, StartError> {
        let Some(ConsensusRuntime { consensus, .. }) = ground.filter(|_| self.has(RoleName::Metastore))
        else {
            return Ok(None);
        };
        let founding = match self.others {
            None => GroupBootstrap::single_voter(consensus.node),
            Some(others) => {
                athanor_metastore::decide_bootstrap(&consensus.log, &self.deciding(others)).await?
            }
        };
        let group = athanor_metastore::CATALOG_GROUP;
        let facts = RaftGroup::open(consensus, group, founding, CatalogStateMachine::default()).await?;
        if let Some(upto) = facts.lost_snapshot_index() {
            tracing::error!(upto, "catalog snapshot was damaged, searching the bucket for its blocks");
        }
        if let Some(others) = self.others {
            let answering = facts.clone();
            let answer = move |request| {
                let facts = answering.clone();
                Box::pin(async move { facts.handle_request(request).await }) as _
            };
            others.groups().add(group, Box::new(answer));
        }
        let metastore = MetastoreVoter::new(MetastoreVoterDeps {
            group: facts.clone(),
            clock: self.system.clock.clone(),
            compute: self.system.compute.clone(),
            uploads_snapshots: self.others.is_some(),
        });
        Ok(Some(LocalVoter { facts, metastore }))
    }

    /// Returns the metastore client and the watch of the routing view.
    pub fn catalogue(
        &self,
        voter: Option<&LocalVoter>,
        offered: &InternalServices,
    ) -> Result<(MetastoreClient, RoutingWatch), StartError> {
        let NodeDeps { clock, random, compute, .. } = &self.system;
        let local = voter.map(|voter| voter.metastore.clone());
        let remote = self.others.map(|others| others.rpc_client().clone());
        if let (Some(metastore), Some(remote)) = (local.clone(), remote.clone()) {
            let service = MetastoreServer::new(MetastoreServerDeps {
                metastore,
                remote,
                clock: clock.clone(),
                compute: compute.clone(),
                stop: self.tasks.shutdown_token(),
            });
            offered.metastore.activate(service.into_grpc_service());
        }
        let clock = clock.clone();
        let random = random.split();
        let compute = compute.clone();
        let client = MetastoreClient::new(MetastoreClientDeps { local, remote, clock, random, compute });
        let views = RoutingWatch::follow(&client, &self.tasks)?;
        Ok((client, views))
    }

    /// Opens the shards of this node, now and whenever the catalog assigns new ones.
    pub async fn ingester(
        &self,
        ground: Option<&ConsensusRuntime>,
        voter: Option<&LocalVoter>,
        catalog: &Arc<dyn Catalog>,
        views: &RoutingWatch,
        offered: &InternalServices,
    ) -> Result<Option<Arc<Ingester>>, StartError> {
        let Some(ConsensusRuntime { consensus, recovery, .. }) =
            ground.filter(|_| self.has(RoleName::Ingester))
        else {
            return Ok(None);
        };
        if self.others.is_none() {
            mark(recovery, &**catalog).await;
        }
        let NodeDeps { clock, random, compute, store, .. } = &self.system;
        let kinship = Arc::new(HandoffClient {
            node: self.identity.node,
            ingester: OnceLock::new(),
            remote: self.others.map(|others| others.rpc_client().clone()),
            clock: clock.clone(),
        });
        let deps = athanor_ingester::IngesterDeps {
            kin: self.others.map(|_| Arc::clone(&kinship) as _),
            catalog: Arc::clone(catalog),
            store: store.clone(),
            consensus: consensus.clone(),
            overrides: self.overrides.clone(),
            clock: clock.clone(),
            random: random.split(),
            compute: compute.clone(),
            tasks: self.tasks.clone(),
            cluster: self.identity.cluster,
            alone: self.others.is_none(),
        };
        let ingester = Arc::new(Ingester::open(&self.config.ingester, deps).await?);
        if let (None, Some(voter)) = (self.others, voter) {
            // INV-04: a damaged catalog relearns its slots one by one. Meanwhile the views would hold a first
            // table that lacks the remaining slots. Profiles placed by that table would not be found in their
            // later slot, so a duplicate would count again.
            views.update_view(voter.metastore.routing_view());
        }
        kinship.set_ingester(&ingester);
        if self.others.is_none()
            && let Err(error) = ingester.refresh_tenants().await
        {
            tracing::warn!(%error, "failed to read the names of tenants, will retry");
        }
        let refreshing = refresh_tenants(Arc::clone(&ingester), clock.clone(), self.tasks.shutdown_token());
        self.tasks.spawn("tenant name refresh", refreshing)?;
        if let Some(others) = self.others {
            others.groups().set_ingester(Arc::clone(&ingester));
            let handshake = Arc::clone(&others.rpc_client().handshake);
            let service = IngesterService::new(Arc::clone(&ingester), handshake, compute.clone());
            let server = IngesterServiceServer::new(service)
                .max_decoding_message_size(peers::MAX_APPEND_MESSAGE_BYTES);
            offered.ingester.activate(server);
            let following =
                follow(Arc::clone(&ingester), views.clone(), clock.clone(), self.tasks.shutdown_token());
            self.tasks.spawn("shard reconciliation", following)?;
        }
        Ok(Some(ingester))
    }

    /// Logs the acknowledged entries that log damage has destroyed. In a cluster it logs nothing, because
    /// other members have them.
    pub fn report_losses(&self, ingester: Option<&Arc<Ingester>>, voter: Option<&LocalVoter>) {
        if self.others.is_some() {
            return;
        }
        for (shard, entries) in ingester.map(|ingester| ingester.damaged_shards()).unwrap_or_default() {
            tracing::error!(
                shard,
                entries,
                "acknowledged profiles were lost to log damage, results are partial"
            );
        }
        let lost = voter.map(|voter| voter.facts.lost_entries()).unwrap_or_default();
        if !lost.is_empty() {
            tracing::error!(?lost, "catalog entries were lost to log damage");
        }
    }

    /// Creates the handles that route calls to local and remote shards.
    pub fn routing_handles(&self, ingester: Option<&Arc<Ingester>>) -> RoutingHandles {
        let members = self.others.map(|others| others.membership().members.clone());
        let leaders = Arc::new(LeaderCache::new(self.identity.node, ingester.cloned(), members));
        let ways = IngesterClient {
            me: self.identity.node,
            ingester: ingester.cloned(),
            loads: Arc::default(),
            remote: self.others.map(|others| others.rpc_client().clone()),
            clock: self.system.clock.clone(),
        };
        let hedges = Arc::new(HedgingPolicy::new(self.config.querier.hedging_max_percent));
        RoutingHandles { leaders, ways, hedges }
    }

    /// Returns this node's view of its cluster.
    pub fn overview(
        &self,
        client: MetastoreClient,
        views: &RoutingWatch,
        RoutingHandles { ways, .. }: &RoutingHandles,
    ) -> ClusterOverview {
        let company = self.others.map(|others| others.membership().clone());
        ClusterOverview { client, views: views.clone(), ways: ways.clone(), company }
    }

    /// Starts the tasks that run on the catalog leader: repair, maintenance and the controller.
    pub fn upkeep(
        &self,
        voter: Option<&LocalVoter>,
        catalog: &Arc<dyn Catalog>,
        views: &RoutingWatch,
        RoutingHandles { ways, .. }: &RoutingHandles,
    ) -> Result<(), StartError> {
        let Some(LocalVoter { metastore, .. }) = voter else { return Ok(()) };
        let NodeDeps { clock, random, store, .. } = &self.system;
        let retention = self.config.retention_period;
        let tasks = &self.tasks;
        let leads = |metastore: &MetastoreVoter| {
            let leadership = metastore.leader_watch();
            move || leadership.current().here
        };
        let repair = CatalogRepair {
            catalog: Arc::clone(catalog),
            store: store.clone(),
            clock: clock.clone(),
            random: random.clone(),
            cluster: self.identity.cluster,
            retention,
        };
        let token = tasks.shutdown_token();
        let leading = leads(metastore);
        tasks.spawn("catalog repair", async move { repair.run(leading, token).await })?;
        let watching = metastore.clone().watch_clock(tasks.shutdown_token());
        tasks.spawn("catalog clock watch", watching)?;
        let watching = metastore.clone().watch_compaction(tasks.shutdown_token());
        tasks.spawn("compaction status", watching)?;
        if self.others.is_none() {
            let token = tasks.shutdown_token();
            let voter = metastore.clone();
            tasks.spawn("catalog log compaction", async move { voter.compact_periodically(token).await })?;
        }
        if let Some(others) = self.others {
            let voting = athanor_metastore::VoterMaintenance {
                metastore: metastore.clone(),
                deciding: self.deciding(others),
                compute: self.system.compute.clone(),
                remote: others.rpc_client().clone(),
            };
            voting.spawn(tasks)?;
            let settings = &self.config.cluster;
            let controller = ClusterController {
                catalog: Arc::clone(catalog),
                views: views.clone(),
                members: others.membership().members.clone(),
                ways: ways.clone(),
                clock: clock.clone(),
                copies: settings.replication_factor,
                slots: settings.initial_slots,
                node_failure_timeout: settings.node_failure_timeout,
                bytes_per_slot: settings.target_slot_bytes_per_second.get(),
                limits: self.config.limits.clone(),
            };
            let token = tasks.shutdown_token();
            let leading = leads(metastore);
            tasks.spawn("controller", async move { controller.run(leading, token).await })?;
        }
        Ok(())
    }

    /// Starts the monitor of a full disk, if other nodes exist that could take over.
    pub fn room(
        &self,
        log: Option<&Log>,
        ingester: Option<&Arc<Ingester>>,
        facts: Option<&RaftGroup<CatalogStateMachine>>,
    ) -> Result<(), StartError> {
        let (Some(log), Some(others)) = (log, self.others) else { return Ok(()) };
        let room = DiskPressureMonitor {
            log: log.clone(),
            ingester: ingester.cloned(),
            facts: facts.cloned(),
            members: others.membership().members.clone(),
            voice: others.voice(),
            clock: self.system.clock.clone(),
        };
        self.tasks.spawn("disk pressure monitor", room.run(self.tasks.shutdown_token()))?;
        Ok(())
    }
}

/// Opens and closes shards as the routing view assigns them. Shards that failed to open are retried.
async fn follow(ingester: Arc<Ingester>, mut views: RoutingWatch, clock: Clock, ending: CancellationToken) {
    let following = async {
        loop {
            ingester.apply_view(&views.current()).await;
            // An unchanged view is applied as well: a shard that failed to open may succeed now.
            let _ = clock.timeout(SHARD_OPEN_RETRY_BACKOFF, views.changed()).await;
        }
    };
    tokio::select! {
        biased;
        () = ending.cancelled() => {}
        () = following => {}
    }
}

/// Reads the tenants' names from the catalog periodically, until the process ends.
async fn refresh_tenants(ingester: Arc<Ingester>, clock: Clock, ending: CancellationToken) {
    let refreshing = async {
        loop {
            let wait = match ingester.refresh_tenants().await {
                Ok(()) => TENANTS_REFRESH_INTERVAL,
                Err(error) => {
                    tracing::debug!(%error, "failed to read the names of tenants, will retry");
                    SHARD_OPEN_RETRY_BACKOFF
                }
            };
            clock.sleep(wait).await;
        }
    };
    tokio::select! {
        biased;
        () = ending.cancelled() => {}
        () = refreshing => {}
    }
}

/// Logs the damage that recovery found in the log [INV-07]. If the damaged groups are known, a later log line
/// reports whether entries are lost.
fn report(recovery: &log::LogRecoveryReport) {
    for damage in &recovery.damage {
        match &damage.hurt {
            log::DamageScope::All => tracing::error!(
                ?damage,
                "log is damaged, acknowledged entries in this range are lost, results are partial"
            ),
            log::DamageScope::Groups(_) => {
                tracing::warn!(?damage, "log is damaged, searching for the missing entries")
            }
        }
    }
}

/// Records damage of unknown content in the catalog, so that responses report it after a restart as well.
async fn mark(recovery: &log::LogRecoveryReport, catalog: &dyn Catalog) {
    for damage in recovery.damage.iter().filter(|damage| damage.hurt == log::DamageScope::All) {
        let loss = DataLoss::UnknownLogRange { from: damage.at.start, to: damage.at.end };
        if let Err(error) = catalog.record_data_loss(loss).await {
            tracing::error!(%error, ?damage, "failed to record log damage, results will not warn of the loss");
        }
    }
}
