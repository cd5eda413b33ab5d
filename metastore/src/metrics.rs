//! Metrics of the catalog, as this voter has applied it.

use athanor_chassis::observability::metric_family::{MetricCollector, MetricFamily, metric_collector};
use athanor_consensus::RaftGroup;

use crate::{CatalogSize, CatalogStateMachine};

/// Metrics of a metastore voter.
pub const METASTORE_METRICS: &[MetricFamily<CatalogSize>] = &[
    MetricFamily::gauge(
        "athanor_metastore_blocks",
        "Number of blocks that are registered in the catalog",
        &[],
        |catalog, samples| samples.add(catalog.blocks),
    ),
    MetricFamily::gauge(
        "athanor_metastore_blocks_bytes",
        "Size of all blocks that are registered in the catalog, in bytes",
        &[],
        |catalog, samples| samples.add(catalog.bytes),
    ),
    MetricFamily::gauge(
        "athanor_metastore_tombstoned_blocks",
        "Number of blocks that left the catalog and have a tombstone, so that they cannot register again",
        &[],
        |catalog, samples| samples.add(catalog.tombstones),
    ),
];

/// Returns the collector of [`METASTORE_METRICS`].
pub fn metastore_collector(catalog: RaftGroup<CatalogStateMachine>) -> MetricCollector {
    metric_collector(METASTORE_METRICS, move || Some(catalog.with_state_machine(CatalogStateMachine::size)))
}
