//! Metrics of this process for Prometheus.
//!
//! ```text
//!  counters of each crate ─► collector of its `metrics.rs` ─► MetricsRegistry ─► OpenMetrics, or the older text
//! ```
//!
//! Components count in plain numbers of their own; a scrape reads them all. Each crate declares its metrics.
//! This module registers their collectors and encodes the page. Labels have a bounded number of values:
//! routes and groups are few, and tenants beyond a thousand share one label.

use std::fmt;

use athanor_chassis::observability::metric_family::{MetricCollector, MetricDescription, describe_metrics};
use athanor_chassis::observability::metrics::{PROCESS_METRICS, RESULT_MEMORY_METRICS};
use athanor_chassis::observability::metrics_page::MetricsFormat;
use athanor_compactor::metrics::{COMPACTOR_METRICS, MAINTENANCE_METRICS, RETENTION_METRICS};
use athanor_consensus::log::metrics::{WAL_DAMAGE_METRICS, WAL_METRICS};
use athanor_distributor::Distributor;
use athanor_distributor::metrics::{DISTRIBUTOR_METRICS, TenantNameDisplay, distributor_collector};
use athanor_ingester::metrics::INGESTER_METRICS;
use athanor_metastore::metrics::{CLOCK_METRICS, COMPACTION_METRICS, METASTORE_METRICS};
use athanor_querier::metrics::QUERIER_METRICS;
use athanor_store_gateway::metrics::STORE_GATEWAY_METRICS;
use athanor_symbolizer::metrics::SYMBOLIZER_METRICS;
use parking_lot::RwLock;
use prometheus_client::registry::Registry;

pub(crate) mod node;
pub(crate) mod routes;

pub use routes::{RouteMetrics, RouteRequestGuard};

/// Registry of the metrics of all components of a node.
#[derive(Debug, Default)]
pub struct MetricsRegistry {
    registries: RwLock<Registries>,
}

#[derive(Debug, Default)]
struct Registries {
    all: Registry,
    /// Metrics of tenants, with tenant names and without them.
    named_tenants: Registry,
    summed_tenants: Registry,
}

/// Returns the descriptions of all metrics, by component. A node has those of its roles.
pub fn describe_all_metrics() -> Vec<(&'static str, Vec<MetricDescription>)> {
    vec![
        ("Process", [describe_metrics(PROCESS_METRICS), describe_metrics(node::NODE_METRICS)].concat()),
        ("HTTP", [describe_metrics(routes::ROUTE_METRICS), describe_metrics(node::ADMIN_METRICS)].concat()),
        ("Distributor", describe_metrics(DISTRIBUTOR_METRICS)),
        ("Write-ahead log", [describe_metrics(WAL_METRICS), describe_metrics(WAL_DAMAGE_METRICS)].concat()),
        ("Ingester", describe_metrics(INGESTER_METRICS)),
        ("Metastore", [describe_metrics(METASTORE_METRICS), describe_metrics(CLOCK_METRICS)].concat()),
        ("Compaction", describe_metrics(COMPACTION_METRICS)),
        ("Compactor", [describe_metrics(COMPACTOR_METRICS), describe_metrics(MAINTENANCE_METRICS)].concat()),
        ("Retention", describe_metrics(RETENTION_METRICS)),
        ("Querier", [describe_metrics(QUERIER_METRICS), describe_metrics(node::HEDGING_METRICS)].concat()),
        ("Store-gateway", describe_metrics(STORE_GATEWAY_METRICS)),
        ("Result memory", describe_metrics(RESULT_MEMORY_METRICS)),
        ("Symbolizer", describe_metrics(SYMBOLIZER_METRICS)),
    ]
}

impl MetricsRegistry {
    /// Adds the metrics of a component.
    pub fn register(&self, collector: MetricCollector) {
        self.registries.write().all.register_collector(collector);
    }

    /// Adds the metrics of a distributor. Its tenant names appear only on pages that show them.
    pub fn register_distributor(&self, distributor: &Distributor) {
        let collector = |names| distributor_collector(distributor.clone(), names);
        let mut registries = self.registries.write();
        registries.named_tenants.register_collector(collector(TenantNameDisplay::Shown));
        registries.summed_tenants.register_collector(collector(TenantNameDisplay::Hidden));
    }

    /// Returns the page with the values of all metrics.
    pub fn encode(&self, format: MetricsFormat, names: TenantNameDisplay) -> Result<String, fmt::Error> {
        let registries = self.registries.read();
        let tenants = match names {
            TenantNameDisplay::Shown => &registries.named_tenants,
            TenantNameDisplay::Hidden => &registries.summed_tenants,
        };
        format.encode(&[&registries.all, tenants])
    }
}
