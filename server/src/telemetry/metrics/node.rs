//! Metrics of the node itself: its state, administration and hedged requests.

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::observability::metric_family::{MetricCollector, MetricFamily, metric_collector};
use athanor_chassis::{Clock, Timestamp};

use crate::http::admin::admin_auth::AdminAuth;
use crate::lifecycle::readiness::Readiness;
use crate::read::hedging::{HedgeStats, HedgingPolicy};

const NANOS_PER_SECOND: f64 = 1e9;

/// State of the node at one scrape.
pub(crate) struct NodeSnapshot {
    started: Timestamp,
    uptime: Duration,
    is_ready: bool,
}

/// Metrics of the node's state.
pub(super) const NODE_METRICS: &[MetricFamily<NodeSnapshot>] = &[
    MetricFamily::gauge(
        "process_start_time_seconds",
        "Start time of the process, in seconds since the Unix epoch",
        &[],
        |node, samples| samples.add(node.started.nanos() as f64 / NANOS_PER_SECOND),
    ),
    MetricFamily::gauge(
        "athanor_uptime_seconds",
        "Time since the start of the process, in seconds",
        &[],
        |node, samples| samples.add(node.uptime.as_secs_f64()),
    ),
    MetricFamily::gauge(
        "athanor_ready",
        "Readiness of the process for requests: 1 if it is ready, else 0",
        &[],
        |node, samples| samples.add(u32::from(node.is_ready)),
    ),
    MetricFamily::gauge(
        "athanor_build_info",
        "Version of the running program as a label of the constant value 1",
        &["version"],
        |_, samples| samples.add_labeled(&[env!("CARGO_PKG_VERSION")], 1_u32),
    ),
];

/// Metrics of administration pages.
pub(super) const ADMIN_METRICS: &[MetricFamily<u64>] = &[MetricFamily::counter(
    "athanor_admin_token_failures_total",
    "Number of requests with a wrong administration token",
    &[],
    |failures, samples| samples.add(*failures),
)];

/// Metrics of requests to store-gateways.
pub(super) const HEDGING_METRICS: &[MetricFamily<HedgeStats>] = &[
    MetricFamily::counter(
        "athanor_querier_store_gateway_requests_total",
        "Number of requests from this node to store-gateways, without hedged requests",
        &[],
        |hedging, samples| samples.add(hedging.calls),
    ),
    MetricFamily::counter(
        "athanor_querier_hedged_requests_total",
        "Number of hedged requests: second requests to another store-gateway while the first was slow",
        &[],
        |hedging, samples| samples.add(hedging.second),
    ),
    MetricFamily::counter(
        "athanor_querier_hedged_requests_won_total",
        "Number of hedged requests with a response before that of the first request",
        &[],
        |hedging, samples| samples.add(hedging.won),
    ),
];

/// Returns the collector of [`NODE_METRICS`] for a process that starts now.
pub(crate) fn node_collector(clock: Clock, readiness: Arc<Readiness>) -> MetricCollector {
    let started = clock.wall();
    metric_collector(NODE_METRICS, move || {
        Some(NodeSnapshot { started, uptime: clock.wall().since(started), is_ready: readiness.now().is_ok() })
    })
}

/// Returns the collector of [`ADMIN_METRICS`].
pub(crate) fn admin_collector(auth: AdminAuth) -> MetricCollector {
    metric_collector(ADMIN_METRICS, move || Some(auth.failed_tokens()))
}

/// Returns the collector of [`HEDGING_METRICS`].
pub(crate) fn hedging_collector(hedging: Arc<HedgingPolicy>) -> MetricCollector {
    metric_collector(HEDGING_METRICS, move || Some(hedging.counts()))
}
