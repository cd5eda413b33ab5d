//! Metrics of the querier: its queue, quarantine, result cache and async queries.

use athanor_chassis::observability::metric_family::{MetricCollector, MetricFamily, metric_collector};

use crate::{Querier, QuerierStats};

/// Metrics of the querier.
pub const QUERIER_METRICS: &[MetricFamily<QuerierStats>] = &[
    MetricFamily::gauge(
        "athanor_querier_queries_in_flight",
        "Number of queries that the querier runs",
        &[],
        |stats, samples| samples.add(stats.turns.running),
    ),
    MetricFamily::gauge(
        "athanor_querier_queries_in_flight_limit",
        "Maximum number of queries that the querier runs at the same time",
        &[],
        |stats, samples| samples.add(stats.turns.most),
    ),
    MetricFamily::gauge(
        "athanor_querier_queries_queued",
        "Number of queries that wait for a permit of the querier",
        &[],
        |stats, samples| samples.add(stats.turns.waiting),
    ),
    MetricFamily::counter(
        "athanor_querier_queries_rejected_total",
        "Number of queries that the querier rejected, because its queue was full or because they are quarantined",
        &["reason"],
        |stats, samples| {
            samples.add_labeled(&["queue_full"], stats.turns.refused);
            samples.add_labeled(&["quarantined"], stats.quarantine.refused);
        },
    ),
    MetricFamily::gauge(
        "athanor_querier_queries_quarantined",
        "Number of different queries that the querier rejects because they crashed too often",
        &[],
        |stats, samples| samples.add(stats.quarantine.quarantined),
    ),
    MetricFamily::gauge(
        "athanor_querier_queries_suspect",
        "Number of different queries that ran when the process aborted, each of which runs alone until it ends well",
        &[],
        |stats, samples| samples.add(stats.quarantine.suspected),
    ),
    MetricFamily::counter(
        "athanor_querier_queries_panics_total",
        "Number of panics in the computation of queries",
        &[],
        |stats, samples| samples.add(stats.quarantine.crashes),
    ),
    MetricFamily::gauge(
        "athanor_querier_async_queries_running",
        "Number of async queries that run",
        &[],
        |stats, samples| samples.add(stats.background.running),
    ),
    MetricFamily::gauge(
        "athanor_querier_async_queries_stored",
        "Number of finished async queries with a stored result",
        &[],
        |stats, samples| samples.add(stats.background.kept),
    ),
    MetricFamily::gauge(
        "athanor_querier_async_results_bytes",
        "Memory of stored results of async queries, in bytes",
        &[],
        |stats, samples| samples.add(stats.background.bytes),
    ),
    MetricFamily::gauge(
        "athanor_querier_async_results_limit_bytes",
        "Memory limit of stored results of async queries, in bytes",
        &[],
        |stats, samples| samples.add(stats.background.limit),
    ),
    MetricFamily::gauge(
        "athanor_querier_results_cache_bytes",
        "Memory of whole query results in the results cache, in bytes",
        &[],
        |stats, samples| samples.add(stats.again.bytes),
    ),
    MetricFamily::gauge(
        "athanor_querier_results_cache_limit_bytes",
        "Memory limit of the results cache for whole query results, in bytes",
        &[],
        |stats, samples| samples.add(stats.again.limit),
    ),
    MetricFamily::counter(
        "athanor_querier_results_cache_hits_total",
        "Number of requests that returned a result from the results cache",
        &[],
        |stats, samples| samples.add(stats.again.hits),
    ),
    MetricFamily::counter(
        "athanor_querier_results_cache_stale_total",
        "Number of requests with a result in the results cache that no longer held and was recomputed",
        &[],
        |stats, samples| samples.add(stats.again.misses),
    ),
    MetricFamily::counter(
        "athanor_querier_results_cache_corrupt_total",
        "Number of results in the results cache with a wrong checksum, which were recomputed",
        &[],
        |stats, samples| samples.add(stats.again.damaged),
    ),
    MetricFamily::counter(
        "athanor_querier_coalesced_queries_total",
        "Number of requests that shared the result of an equal request in flight",
        &[],
        |stats, samples| samples.add(stats.again.joined),
    ),
    MetricFamily::counter(
        "athanor_querier_dedup_retries_total",
        "Number of queries that were retried because profiles are stored in two places",
        &[],
        |stats, samples| samples.add(stats.twice),
    ),
    MetricFamily::counter(
        "athanor_querier_skipped_blocks_total",
        "Number of blocks that partial results lack because the blocks were damaged or unavailable",
        &["reason"],
        |stats, samples| {
            samples.add_labeled(&["damaged"], stats.left_out.damaged);
            samples.add_labeled(&["unavailable"], stats.left_out.unavailable);
        },
    ),
];

/// Returns the collector of [`QUERIER_METRICS`].
pub fn querier_collector(querier: Querier) -> MetricCollector {
    metric_collector(QUERIER_METRICS, move || Some(querier.stats()))
}
