//! Metrics of the catalog, as this voter has applied it, and of compaction, as the leader has planned it.

use std::sync::Arc;

use athanor_catalog::CompactionStatus;
use athanor_chassis::observability::metric_family::{MetricCollector, MetricFamily, metric_collector};
use athanor_consensus::RaftGroup;

use crate::{CatalogSize, CatalogStateMachine, MetastoreVoter};

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

/// Metrics of a voter's clock. Only the leader has them.
pub const CLOCK_METRICS: &[MetricFamily<i64>] = &[MetricFamily::gauge(
    "athanor_metastore_clock_ahead_seconds",
    "Time by which the clock of the leading metastore is ahead of the catalog's time, in seconds",
    &[],
    |ahead_seconds, samples| samples.add(*ahead_seconds as f64),
)];

/// Returns the collector of [`CLOCK_METRICS`].
pub fn clock_collector(voter: MetastoreVoter) -> MetricCollector {
    metric_collector(CLOCK_METRICS, move || voter.clock_ahead_seconds())
}

/// Metrics of compaction. Only the leader has them.
pub const COMPACTION_METRICS: &[MetricFamily<Arc<CompactionStatus>>] = &[
    MetricFamily::gauge(
        "athanor_compaction_oldest_open_window_age_seconds",
        "Time since the end of the oldest window with rows that still wait for a merge, in seconds",
        &[],
        |compaction, samples| {
            let age = compaction.oldest_open_window.map(|end| compaction.time.since(end));
            samples.add(age.unwrap_or_default().as_secs_f64());
        },
    ),
    MetricFamily::gauge(
        "athanor_compaction_waiting_jobs",
        "Number of compaction jobs that wait for a compactor",
        &[],
        |compaction, samples| samples.add(compaction.waiting_jobs),
    ),
    MetricFamily::gauge(
        "athanor_compaction_waiting_bytes",
        "Size of the input of all compaction jobs that wait for a compactor, in bytes",
        &[],
        |compaction, samples| samples.add(compaction.waiting_bytes),
    ),
    MetricFamily::gauge(
        "athanor_compaction_claimed_jobs",
        "Number of compaction jobs that a compactor has claimed",
        &[],
        |compaction, samples| samples.add(compaction.claims.len() as u64),
    ),
    MetricFamily::gauge(
        "athanor_compaction_blocks",
        "Number of registered raw blocks by compaction level: 0 is flushed, 1 is 10 minutes, 2 is 1 hour, 3 is 1 day",
        &["level"],
        |compaction, samples| {
            for (level, blocks) in &compaction.blocks_by_level {
                samples.add_labeled(&[&level.to_string()], *blocks);
            }
        },
    ),
    MetricFamily::gauge(
        "athanor_compaction_failing_parts",
        "Number of block parts with failed compaction jobs, quarantined parts included",
        &[],
        |compaction, samples| samples.add(compaction.failures.len() as u64),
    ),
    MetricFamily::gauge(
        "athanor_compaction_quarantined_parts",
        "Number of block parts that compaction skips after repeated failures, until an operator retries them",
        &[],
        |compaction, samples| {
            let failures = compaction.failures.iter();
            let quarantined = failures.filter(|(_, failures)| failures.is_quarantined).count();
            samples.add(quarantined as u64);
        },
    ),
    MetricFamily::gauge(
        "athanor_compaction_paused",
        "State of compaction: 1 if an operator paused it, else 0",
        &[],
        |compaction, samples| samples.add(u32::from(compaction.is_paused)),
    ),
];

/// Returns the collector of [`COMPACTION_METRICS`].
pub fn compaction_collector(voter: MetastoreVoter) -> MetricCollector {
    metric_collector(COMPACTION_METRICS, move || voter.last_compaction_status())
}
