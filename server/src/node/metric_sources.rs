//! Registration of the metrics of all roles.

use std::sync::Arc;

use athanor_chassis::observability::metrics::{
    ResultMemorySnapshot, process_collector, result_memory_collector,
};
use athanor_compactor::metrics::{compactor_collector, maintenance_collector, retention_collector};
use athanor_consensus::log::metrics::{wal_collector, wal_damage_collector};
use athanor_distributor::Distributor;
use athanor_ingester::Ingester;
use athanor_ingester::metrics::ingester_collector;
use athanor_metastore::metrics::{clock_collector, compaction_collector, metastore_collector};
use athanor_querier::Querier;
use athanor_querier::metrics::querier_collector;
use athanor_store_gateway::StoreGateway;
use athanor_store_gateway::metrics::store_gateway_collector;
use athanor_symbolizer::DebuginfoService;
use athanor_symbolizer::metrics::symbolizer_collector;

use super::assembly::{ConsensusRuntime, LocalVoter, NodeContext};
use super::compactor_role::CompactorRole;
use crate::lifecycle::readiness::Readiness;
use crate::read::hedging::HedgingPolicy;
use crate::telemetry::metrics::MetricsRegistry;
use crate::telemetry::metrics::node::{hedging_collector, node_collector};

/// Roles of this node and shared state with metrics.
pub struct MetricSources<'a> {
    /// Distributor, with counters per tenant.
    pub distributor: Option<Distributor>,
    /// Service for debug information.
    pub debuginfo: Option<DebuginfoService>,
    /// Ingester, with its shards.
    pub ingester: Option<Arc<Ingester>>,
    /// Querier of this node.
    pub querier: Option<Querier>,
    /// Store-gateway, with its caches.
    pub gateway: Arc<StoreGateway>,
    /// Compactor, if the process has that role.
    pub compactor: Option<&'a CompactorRole>,
    /// Counters of hedged requests.
    pub hedges: Arc<HedgingPolicy>,
    /// Log and consensus, if this node has a log.
    pub ground: Option<&'a ConsensusRuntime>,
    /// Voter of the catalog, if this node votes.
    pub voter: Option<&'a LocalVoter>,
    /// Readiness for requests.
    pub readiness: &'a Arc<Readiness>,
}

impl NodeContext<'_> {
    /// Returns the registry with the metrics of all roles.
    pub fn metrics(&self, sources: MetricSources<'_>) -> Arc<MetricsRegistry> {
        let MetricSources { distributor, debuginfo, ingester, querier, gateway, .. } = sources;
        let clock = &self.system.clock;
        let metrics = Arc::<MetricsRegistry>::default();
        metrics.register(process_collector(self.system.compute.clone(), self.tasks.clone()));
        metrics.register(node_collector(clock.clone(), Arc::clone(sources.readiness)));
        metrics.register(hedging_collector(sources.hedges));
        metrics.register(result_memory_collector(result_memory_of(querier.clone(), Arc::clone(&gateway))));
        metrics.register(store_gateway_collector(gateway));
        if let Some(distributor) = distributor {
            metrics.register_distributor(&distributor);
        }
        if let Some(debuginfo) = debuginfo {
            metrics.register(symbolizer_collector(debuginfo));
        }
        if let Some(ground) = sources.ground {
            metrics.register(wal_collector(ground.log.clone()));
            metrics.register(wal_damage_collector(&ground.recovery.damage));
        }
        if let Some(ingester) = ingester {
            metrics.register(ingester_collector(ingester, clock.clone()));
        }
        if let Some(voter) = sources.voter {
            metrics.register(metastore_collector(voter.facts.clone()));
            metrics.register(clock_collector(voter.metastore.clone()));
            metrics.register(compaction_collector(voter.metastore.clone()));
        }
        if let Some(CompactorRole { compactor, maintenance, retention }) = sources.compactor {
            metrics.register(compactor_collector(Arc::clone(compactor)));
            metrics.register(maintenance_collector(Arc::clone(maintenance)));
            metrics.register(retention_collector(Arc::clone(retention)));
        }
        if let Some(querier) = querier {
            metrics.register(querier_collector(querier));
        }
        metrics
    }
}

/// Returns a function that reads the memory budgets of the local querier, if there is one, and of the
/// store-gateway.
fn result_memory_of(
    querier: Option<Querier>,
    gateway: Arc<StoreGateway>,
) -> impl Fn() -> Vec<ResultMemorySnapshot> {
    move || {
        let querier = querier.as_ref().map(|querier| ResultMemorySnapshot {
            component: "querier",
            budget: querier.response_budget().stats(),
        });
        let gateway = ResultMemorySnapshot { component: "store_gateway", budget: gateway.stats().room };
        querier.into_iter().chain([gateway]).collect()
    }
}
