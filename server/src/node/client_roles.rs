//! Construction of the roles that serve clients: distributor, store-gateway and querier.

use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::Catalog;
use athanor_chassis::Clock;
use athanor_chassis::requests::activity_tracker::ActivityTracker;
use athanor_cluster::members::RoleName;
use athanor_cluster::peers;
use athanor_cluster::rpc_client::RpcClient;
use athanor_distributor::Distributor;
use athanor_ingester::Ingester;
use athanor_metastore::RoutingWatch;
use athanor_proto::athanor::internal::v1::distributor_service_server::DistributorServiceServer;
use athanor_proto::athanor::internal::v1::querier_service_server::QuerierServiceServer;
use athanor_proto::athanor::internal::v1::store_gateway_service_server::StoreGatewayServiceServer;
use athanor_querier::{AdhocProfileService, PeerQueriers, Querier, QuerierClusterDeps};
use athanor_storage::UploadSpace;
use athanor_store_gateway::{BlockReader, StoreGateway};
use athanor_symbolizer::DebuginfoService;
use tokio_util::sync::CancellationToken;

use super::assembly::{InternalServices, NodeContext, RoutingHandles};
use super::{NodeDeps, StartError};
use crate::maintenance::adhoc_store::BucketAdhocStore;
use crate::read::query_planner::QueryPlanner;
use crate::read::remote_heads::RemoteHeadDeps;
use crate::read::store_gateway_router::StoreGatewayRouter;
use crate::rpc::head_query_service::HeadQueryService;
use crate::rpc::querier_rpc::{QuerierClient, QuerierService};
use crate::rpc::service_load::DistributorService;
use crate::rpc::store_gateway_service::StoreGatewayService;
use crate::write::slot_resolver::SlotResolver;
use crate::write::write_router::WriteRouter;

/// Interval between two checks whether the disk cache must free disk space for others.
const CACHE_MAINTENANCE_INTERVAL: Duration = Duration::from_secs(1);

impl NodeContext<'_> {
    /// Creates the distributor, if the process has that role.
    pub fn distributor(
        &self,
        views: &RoutingWatch,
        RoutingHandles { leaders, ways, .. }: &RoutingHandles,
        offered: &InternalServices,
    ) -> Option<Distributor> {
        if !self.has(RoleName::Distributor) {
            return None;
        }
        if let Some(RpcClient { handshake, .. }) = &ways.remote {
            let service =
                DistributorService { loads: Arc::clone(&ways.loads), handshake: Arc::clone(handshake) };
            offered.distributor.activate(DistributorServiceServer::new(service));
        }
        let NodeDeps { clock, random, compute, .. } = &self.system;
        let route = WriteRouter {
            views: views.clone(),
            places: SlotResolver { overrides: self.overrides.clone(), compute: compute.clone() },
            leaders: Arc::clone(leaders),
            ways: ways.clone(),
            clock: clock.clone(),
            random: random.split(),
        };
        let deps = athanor_distributor::DistributorDeps {
            overrides: self.overrides.clone(),
            clock: clock.clone(),
            random: random.split(),
            compute: compute.clone(),
            shards: Arc::new(route),
        };
        Some(Distributor::new(self.config.distributor.clone(), deps))
    }

    /// Creates the store-gateway. Other nodes may call it if the process has that role.
    pub fn gateway(
        &self,
        RoutingHandles { ways, .. }: &RoutingHandles,
        offered: &InternalServices,
    ) -> Result<Arc<StoreGateway>, StartError> {
        let NodeDeps { clock, compute, store, cache, .. } = &self.system;
        let settings = &self.config.store_gateway;
        let blocks = BlockReader::new(store.clone(), compute.clone(), cache.clone(), settings);
        let gateway = Arc::new(StoreGateway::new(Arc::new(blocks), settings));
        if let Some(RpcClient { handshake, .. }) =
            ways.remote.as_ref().filter(|_| self.has(RoleName::StoreGateway))
        {
            let gateway = Arc::clone(&gateway);
            let handshake = Arc::clone(handshake);
            let compute = compute.clone();
            let clock = clock.clone();
            let service = StoreGatewayService { gateway, handshake, compute, clock };
            let server = StoreGatewayServiceServer::new(service);
            offered.store_gateway.activate(server.max_decoding_message_size(peers::MAX_RPC_MESSAGE_BYTES));
        }
        if gateway.has_disk() {
            let tending = tend(Arc::clone(&gateway), self.system.clock.clone(), self.tasks.shutdown_token());
            self.tasks.spawn("disk cache maintenance", tending)?;
        }
        Ok(gateway)
    }

    /// Creates the querier, if the process has that role.
    pub fn querier(
        &self,
        catalog: &Arc<dyn Catalog>,
        ingester: Option<&Arc<Ingester>>,
        reaching: &RoutingHandles,
        gateway: &Arc<StoreGateway>,
    ) -> Option<Querier> {
        if !self.has(RoleName::Querier) {
            return None;
        }
        let RoutingHandles { leaders, ways, hedges } = reaching;
        let NodeDeps { clock, random, compute, .. } = &self.system;
        let asking = RemoteHeadDeps {
            leaders: Arc::clone(leaders),
            ways: ways.clone(),
            here: ingester.map(|ingester| HeadQueryService::new(Arc::clone(ingester), compute.clone())),
            clock: clock.clone(),
            random: random.split(),
            outages: Arc::default(),
            tasks: self.tasks.clone(),
        };
        let sources = QueryPlanner {
            catalog: Arc::clone(catalog),
            ingester: ingester.cloned(),
            asking,
            gateways: StoreGatewayRouter {
                here: Arc::clone(gateway),
                is_one: self.has(RoleName::StoreGateway),
                members: self.others.map(|others| others.membership().members.clone()),
                ways: ways.clone(),
                hedges: Arc::clone(hedges),
            },
        };
        let deps = athanor_querier::QuerierDeps {
            sources: Arc::new(sources),
            overrides: self.overrides.clone(),
            clock: clock.clone(),
            compute: compute.clone(),
        };
        let querier = Querier::new(self.config.querier.clone(), deps).with_cluster(self.place(reaching));
        Some(match self.deaths() {
            Some(deaths) => querier.with_crash_history(deaths),
            None => querier,
        })
    }

    /// Opens the history of queries that were running when earlier processes crashed.
    fn deaths(&self) -> Option<ActivityTracker> {
        let NodeDeps { activity, clock, .. } = &self.system;
        let opened = ActivityTracker::open(activity.clone()?, clock.clone());
        let opened = opened.inspect_err(|error| {
            tracing::warn!(%error, "crash tracking disabled, queries that crash the process will not be quarantined");
        });
        let deaths = opened.ok()?;
        let suspected = deaths.count_crashed(1);
        if suspected > 0 {
            tracing::warn!(
                suspected,
                "previous process crashed while queries were running; each of these queries runs alone now, and is \
                 quarantined after another crash"
            );
        }
        Some(deaths)
    }

    /// Returns the querier's dependencies on other queriers.
    fn place(&self, RoutingHandles { ways, .. }: &RoutingHandles) -> QuerierClusterDeps {
        let members = self.others.map(|others| others.membership().members.clone());
        let polls = members.map(|members| QuerierClient { ways: ways.clone(), members });
        QuerierClusterDeps {
            node: self.identity.node,
            others: polls.map(|polls| Arc::new(polls) as Arc<dyn PeerQueriers>),
            tasks: self.tasks.clone(),
            random: self.system.random.split(),
        }
    }

    /// Serves the kept results of this querier to other queriers.
    pub fn serve_queriers(&self, querier: Option<&Querier>, offered: &InternalServices) {
        if let (Some(querier), Some(others)) = (querier, self.others) {
            let handshake = Arc::clone(&others.rpc_client().handshake);
            let service = QuerierService { querier: querier.clone(), handshake };
            offered.querier.activate(
                QuerierServiceServer::new(service).max_decoding_message_size(peers::MAX_RPC_MESSAGE_BYTES),
            );
        }
    }

    /// Creates the debug information service, on distributors: agents upload it where they push profiles.
    pub fn debuginfo(&self, space: &UploadSpace) -> Option<DebuginfoService> {
        let NodeDeps { store, clock, random, .. } = &self.system;
        let deps = || athanor_symbolizer::DebuginfoDeps {
            store: store.clone(),
            space: space.clone(),
            overrides: self.overrides.clone(),
            clock: clock.clone(),
            // No random number is drawn until an upload arrives.
            random: random.clone(),
            tasks: self.tasks.clone(),
        };
        self.has(RoleName::Distributor).then(|| DebuginfoService::new(deps()))
    }

    /// Creates the service for profiles uploaded by hand.
    pub fn ad_hoc(&self, querier: Option<&Querier>, space: &UploadSpace) -> Option<AdhocProfileService> {
        let NodeDeps { store, random, .. } = &self.system;
        let uploads = || Arc::new(BucketAdhocStore { store: store.clone(), space: space.clone() });
        querier.map(|querier| querier.adhoc_profiles(uploads(), random))
    }
}

/// Maintains the disk cache of block data until the process ends. It runs without queries too, because the
/// log may need the disk.
async fn tend(gateway: Arc<StoreGateway>, clock: Clock, ending: CancellationToken) {
    let tending = async {
        loop {
            gateway.maintain_disk_cache().await;
            let _ = clock.timeout(CACHE_MAINTENANCE_INTERVAL, gateway.wait_for_disk_work()).await;
        }
    };
    tokio::select! {
        biased;
        () = ending.cancelled() => {}
        () = tending => {}
    }
}
