//! Page of metrics, and the metrics of targets, servers and reloads.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::observability::cpu_time::process_cpu_time;
use athanor_chassis::observability::metric_family::{MetricCollector, MetricFamily, metric_collector};
use athanor_chassis::observability::metrics_page::MetricsFormat;
use athanor_chassis::observability::process::ProcessUsage;
use parking_lot::RwLock;
use prometheus_client::registry::Registry;

use super::reload::{ReloadSnapshot, ReloadStats};

/// Registry of the metrics of all components.
#[derive(Debug, Default)]
pub struct MetricsRegistry {
    registry: RwLock<Registry>,
}

/// Metrics of reloads.
pub const RELOAD_METRICS: &[MetricFamily<ReloadSnapshot>] = &[
    MetricFamily::counter(
        "athanor_agent_config_reloads_total",
        "Number of reloads of the configuration file, by whether its settings are in force since then",
        &["result"],
        |reloads, samples| {
            samples.add_labeled(&["applied"], reloads.applied);
            samples.add_labeled(&["failed"], reloads.failed);
        },
    ),
    MetricFamily::gauge(
        "athanor_agent_config_last_reload_successful",
        "Result of the last reload of the configuration file: 1 if its settings are in force, else 0",
        &[],
        |reloads, samples| samples.add(u32::from(reloads.error.is_none())),
    ),
];

/// Metrics of the program.
pub const BUILD_METRICS: &[MetricFamily<()>] = &[MetricFamily::gauge(
    "athanor_agent_build_info",
    "Version of the running program as a label of the constant value 1",
    &["version"],
    |(), samples| samples.add_labeled(&[env!("CARGO_PKG_VERSION")], 1_u32),
)];

/// Resources that the process uses.
#[derive(Clone, Copy, Debug)]
pub struct OwnUsage {
    /// Processor time of all threads.
    pub cpu_time: Duration,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Number of open files, sockets included.
    pub open_files: u64,
}

/// Metrics of the resources that the process uses.
pub const PROCESS_METRICS: &[MetricFamily<OwnUsage>] = &[
    MetricFamily::counter(
        "athanor_agent_cpu_seconds_total",
        "Processor time of the agent",
        &[],
        |usage, samples| samples.add(usage.cpu_time.as_secs_f64()),
    ),
    MetricFamily::gauge(
        "athanor_agent_resident_memory_bytes",
        "Resident memory of the agent",
        &[],
        |usage, samples| samples.add(usage.resident_bytes),
    ),
    MetricFamily::gauge(
        "athanor_agent_open_files",
        "Number of open files of the agent, sockets included",
        &[],
        |usage, samples| samples.add(usage.open_files),
    ),
];

/// Returns the collector of [`PROCESS_METRICS`].
pub fn process_collector() -> MetricCollector {
    metric_collector(PROCESS_METRICS, || {
        let usage = ProcessUsage::current();
        Some(OwnUsage {
            cpu_time: process_cpu_time(),
            resident_bytes: usage.resident_bytes,
            open_files: usage.open_files,
        })
    })
}

/// Returns the collector of [`RELOAD_METRICS`].
pub fn reload_collector(stats: Arc<ReloadStats>) -> MetricCollector {
    metric_collector(RELOAD_METRICS, move || Some(stats.snapshot()))
}

/// Returns the collector of [`BUILD_METRICS`].
pub fn build_collector() -> MetricCollector {
    metric_collector(BUILD_METRICS, || Some(()))
}

impl MetricsRegistry {
    /// Adds the metrics of a component.
    pub fn register(&self, collector: MetricCollector) {
        self.registry.write().register_collector(collector);
    }

    /// Returns the page with the values of all metrics.
    ///
    /// # Errors
    ///
    /// A collector fails to encode a value.
    pub fn encode(&self, format: MetricsFormat) -> Result<String, fmt::Error> {
        format.encode(&[&*self.registry.read()])
    }
}
