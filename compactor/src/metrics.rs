//! Metrics of the compactor.

use std::sync::Arc;

use athanor_chassis::observability::metric_family::{MetricCollector, MetricFamily, metric_collector};

use crate::{
    Compactor, CompactorStats, MaintenanceStats, MaintenanceWorker, RetentionStats, RetentionWorker,
};

/// Metrics of the worker of compaction jobs.
pub const COMPACTOR_METRICS: &[MetricFamily<CompactorStats>] = &[
    MetricFamily::counter(
        "athanor_compactor_jobs_total",
        "Number of compaction jobs that this compactor claimed and that ended, by the level of their blocks and by their end",
        &["level", "end"],
        |stats, samples| {
            for (kind, count) in &stats.jobs {
                samples.add_labeled(&[&kind.level.to_string(), kind.end.name()], *count);
            }
        },
    ),
    MetricFamily::gauge(
        "athanor_compactor_jobs_in_flight",
        "Number of compaction jobs that this compactor runs",
        &[],
        |stats, samples| samples.add(stats.running_jobs),
    ),
    MetricFamily::histogram(
        "athanor_compactor_job_duration_seconds",
        "Time from the claim of a compaction job to its end",
        &[],
        |stats, samples| samples.add_durations(&[], &stats.durations),
    ),
    MetricFamily::counter(
        "athanor_compactor_read_bytes_total",
        "Bytes of blocks that finished compaction jobs read from the bucket",
        &[],
        |stats, samples| samples.add(stats.read_bytes),
    ),
    MetricFamily::counter(
        "athanor_compactor_written_bytes_total",
        "Bytes of blocks that finished compaction jobs wrote to the bucket",
        &[],
        |stats, samples| samples.add(stats.written_bytes),
    ),
    MetricFamily::counter(
        "athanor_compactor_duplicate_profiles_total",
        "Number of profiles that finished compaction jobs dropped because another profile has the same ID",
        &[],
        |stats, samples| samples.add(stats.duplicates),
    ),
];

/// Metrics of the removal of objects.
pub const MAINTENANCE_METRICS: &[MetricFamily<MaintenanceStats>] = &[
    MetricFamily::counter(
        "athanor_compactor_removed_blocks_total",
        "Number of tombstoned blocks whose objects this compactor removed from the bucket",
        &[],
        |stats, samples| samples.add(stats.removed_blocks),
    ),
    MetricFamily::counter(
        "athanor_compactor_orphaned_blocks_total",
        "Number of block folders in the bucket that the catalog did not list and that this compactor tombstoned",
        &[],
        |stats, samples| samples.add(stats.orphaned_blocks),
    ),
    MetricFamily::counter(
        "athanor_compactor_maintenance_failures_total",
        "Number of rounds of object removal or orphan search that failed",
        &[],
        |stats, samples| samples.add(stats.failed_rounds),
    ),
];

/// Metrics of retention.
pub const RETENTION_METRICS: &[MetricFamily<RetentionStats>] = &[
    MetricFamily::counter(
        "athanor_retention_tombstoned_blocks_total",
        "Number of blocks of which this compactor removed rows past their retention from the catalog",
        &[],
        |retention, samples| samples.add(retention.expired),
    ),
    MetricFamily::counter(
        "athanor_retention_run_failures_total",
        "Number of failed runs of the retention worker, which are retried",
        &[],
        |retention, samples| samples.add(retention.failed),
    ),
    MetricFamily::gauge(
        "athanor_retention_overdue_blocks",
        "Number of blocks with rows past their retention that are not expired yet",
        &[],
        |retention, samples| samples.add(retention.backlog.overdue),
    ),
    MetricFamily::gauge(
        "athanor_retention_blocks_kept_for_tiers",
        "Number of blocks with rows past their retention that stay until compaction has written them to all tiers",
        &[],
        |retention, samples| samples.add(retention.backlog.kept_for_tiers),
    ),
    MetricFamily::gauge(
        "athanor_retention_restorable_blocks",
        "Number of blocks with expired rows that can be restored",
        &[],
        |retention, samples| samples.add(retention.backlog.restorable),
    ),
];

/// Returns the collector of [`COMPACTOR_METRICS`].
pub fn compactor_collector(compactor: Arc<Compactor>) -> MetricCollector {
    metric_collector(COMPACTOR_METRICS, move || Some(compactor.stats()))
}

/// Returns the collector of [`MAINTENANCE_METRICS`].
pub fn maintenance_collector(worker: Arc<MaintenanceWorker>) -> MetricCollector {
    metric_collector(MAINTENANCE_METRICS, move || Some(worker.stats()))
}

/// Returns the collector of [`RETENTION_METRICS`].
pub fn retention_collector(worker: Arc<RetentionWorker>) -> MetricCollector {
    metric_collector(RETENTION_METRICS, move || Some(worker.stats()))
}
