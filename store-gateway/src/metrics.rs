//! Metrics of the store-gateway: its queue and its caches.

use std::sync::Arc;

use athanor_chassis::observability::metric_family::{MetricCollector, MetricFamily, metric_collector};

use crate::{StoreGateway, StoreGatewayStats};

/// Metrics of the store-gateway.
pub const STORE_GATEWAY_METRICS: &[MetricFamily<StoreGatewayStats>] = &[
    MetricFamily::gauge(
        "athanor_store_gateway_queries_in_flight",
        "Number of block queries from other nodes that the store-gateway runs",
        &[],
        |stats, samples| samples.add(stats.turns.running),
    ),
    MetricFamily::gauge(
        "athanor_store_gateway_queries_in_flight_limit",
        "Maximum number of block queries from other nodes that the store-gateway runs at the same time",
        &[],
        |stats, samples| samples.add(stats.turns.most),
    ),
    MetricFamily::gauge(
        "athanor_store_gateway_queries_queued",
        "Number of block queries from other nodes that wait for a permit of the store-gateway",
        &[],
        |stats, samples| samples.add(stats.turns.waiting),
    ),
    MetricFamily::counter(
        "athanor_store_gateway_queries_rejected_total",
        "Number of block queries from other nodes that the store-gateway rejected because its queue was full",
        &[],
        |stats, samples| samples.add(stats.turns.refused),
    ),
    MetricFamily::gauge(
        "athanor_store_gateway_block_cache_entries",
        "Number of block parts in the memory cache of the store-gateway",
        &[],
        |stats, samples| samples.add(stats.parts.entries),
    ),
    MetricFamily::gauge(
        "athanor_store_gateway_block_cache_bytes",
        "Memory of block parts in the cache of the store-gateway, in bytes",
        &[],
        |stats, samples| samples.add(stats.parts.bytes),
    ),
    MetricFamily::gauge(
        "athanor_store_gateway_block_cache_limit_bytes",
        "Memory limit of the cache for block parts of the store-gateway, in bytes",
        &[],
        |stats, samples| samples.add(stats.parts.limit),
    ),
    MetricFamily::counter(
        "athanor_store_gateway_block_cache_hits_total",
        "Number of lookups of block parts that the memory cache of the store-gateway had",
        &[],
        |stats, samples| samples.add(stats.parts.hits),
    ),
    MetricFamily::counter(
        "athanor_store_gateway_block_cache_misses_total",
        "Number of lookups of block parts that the store-gateway had to fetch",
        &[],
        |stats, samples| samples.add(stats.parts.misses),
    ),
    MetricFamily::counter(
        "athanor_store_gateway_block_cache_evictions_total",
        "Number of block parts that the memory cache of the store-gateway evicted",
        &[],
        |stats, samples| samples.add(stats.parts.evicted),
    ),
    MetricFamily::gauge(
        "athanor_store_gateway_partial_cache_entries",
        "Number of partial results of single blocks in the memory cache of the store-gateway",
        &[],
        |stats, samples| samples.add(stats.answers.cache.entries),
    ),
    MetricFamily::gauge(
        "athanor_store_gateway_partial_cache_bytes",
        "Memory of partial results of single blocks in the cache of the store-gateway, in bytes",
        &[],
        |stats, samples| samples.add(stats.answers.cache.bytes),
    ),
    MetricFamily::gauge(
        "athanor_store_gateway_partial_cache_limit_bytes",
        "Memory limit of the cache for partial results of the store-gateway, in bytes",
        &[],
        |stats, samples| samples.add(stats.answers.cache.limit),
    ),
    MetricFamily::counter(
        "athanor_store_gateway_partial_cache_hits_total",
        "Number of queries of single blocks with a partial result in the memory cache of the store-gateway",
        &[],
        |stats, samples| samples.add(stats.answers.cache.hits),
    ),
    MetricFamily::counter(
        "athanor_store_gateway_partial_cache_misses_total",
        "Number of queries of single blocks that the store-gateway computed because no cache had their result",
        &[],
        |stats, samples| samples.add(stats.answers.cache.misses),
    ),
    MetricFamily::counter(
        "athanor_store_gateway_partial_cache_evictions_total",
        "Number of partial results that the memory cache of the store-gateway evicted",
        &[],
        |stats, samples| samples.add(stats.answers.cache.evicted),
    ),
    MetricFamily::counter(
        "athanor_store_gateway_partial_cache_corrupt_total",
        "Number of cached partial results with a wrong checksum, which the store-gateway recomputed",
        &[],
        |stats, samples| samples.add(stats.answers.cache.damaged),
    ),
    MetricFamily::counter(
        "athanor_store_gateway_partial_cache_disk_hits_total",
        "Number of queries of single blocks with a partial result in the disk cache of the store-gateway",
        &[],
        |stats, samples| samples.add(stats.answers.on_disk),
    ),
    MetricFamily::counter(
        "athanor_store_gateway_partial_cache_coalesced_total",
        "Number of queries of single blocks that waited for the result of an equal query in the store-gateway",
        &[],
        |stats, samples| samples.add(stats.answers.joined),
    ),
    MetricFamily::gauge(
        "athanor_store_gateway_disk_cache_files",
        "Number of files in the disk cache of the store-gateway",
        &[],
        |stats, samples| samples.add(stats.shelf.cache.entries),
    ),
    MetricFamily::gauge(
        "athanor_store_gateway_disk_cache_bytes",
        "Size of all files in the disk cache of the store-gateway, in bytes",
        &[],
        |stats, samples| samples.add(stats.shelf.cache.bytes),
    ),
    MetricFamily::gauge(
        "athanor_store_gateway_disk_cache_limit_bytes",
        "Size limit of the disk cache of the store-gateway, in bytes",
        &[],
        |stats, samples| samples.add(stats.shelf.cache.limit),
    ),
    MetricFamily::counter(
        "athanor_store_gateway_disk_cache_hits_total",
        "Number of lookups of partial results and block pages that the disk cache of the store-gateway had",
        &[],
        |stats, samples| samples.add(stats.shelf.cache.hits),
    ),
    MetricFamily::counter(
        "athanor_store_gateway_disk_cache_misses_total",
        "Number of lookups of partial results and block pages that the disk cache of the store-gateway lacked",
        &[],
        |stats, samples| samples.add(stats.shelf.cache.misses),
    ),
    MetricFamily::counter(
        "athanor_store_gateway_disk_cache_evictions_total",
        "Number of files that the disk cache of the store-gateway evicted",
        &[],
        |stats, samples| samples.add(stats.shelf.cache.evicted),
    ),
    MetricFamily::counter(
        "athanor_store_gateway_disk_cache_corrupt_total",
        "Number of files in the disk cache of the store-gateway with unexpected content, which were removed",
        &[],
        |stats, samples| samples.add(stats.shelf.cache.damaged),
    ),
    MetricFamily::counter(
        "athanor_store_gateway_disk_cache_errors_total",
        "Number of disk operations of the disk cache of the store-gateway that failed",
        &[],
        |stats, samples| samples.add(stats.shelf.failed),
    ),
    MetricFamily::counter(
        "athanor_store_gateway_disk_cache_suspect_invalidations_total",
        "Number of times that the store-gateway removed cached files because data read with them was damaged",
        &[],
        |stats, samples| samples.add(stats.shelf.doubted),
    ),
    MetricFamily::counter(
        "athanor_store_gateway_disk_cache_skipped_writes_total",
        "Number of entries that the disk cache of the store-gateway did not store because too many waited for a write",
        &[],
        |stats, samples| samples.add(stats.shelf.passed),
    ),
];

/// Returns the collector of [`STORE_GATEWAY_METRICS`].
pub fn store_gateway_collector(gateway: Arc<StoreGateway>) -> MetricCollector {
    metric_collector(STORE_GATEWAY_METRICS, move || Some(gateway.stats()))
}
