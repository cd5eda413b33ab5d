//! Metrics of the shards that this node leads.

use std::sync::Arc;

use athanor_chassis::Clock;
use athanor_chassis::observability::metric_family::{
    MetricCollector, MetricFamily, MetricSamples, MetricValue, metric_collector,
};

use crate::{DeltaStats, Ingester, ShardStats};

const LABELS: &[&str] = &["shard"];

/// Metrics of the ingester. Shards that another node leads have no samples.
pub const INGESTER_METRICS: &[MetricFamily<ShardStats>] = &[
    MetricFamily::gauge(
        "athanor_ingester_unflushed_bytes",
        "Memory of profiles that no block contains yet, in bytes",
        LABELS,
        |shard, samples| add(shard, samples, shard.heads.bytes),
    ),
    MetricFamily::gauge(
        "athanor_ingester_oldest_unflushed_age_seconds",
        "Age of the oldest head with profiles that no block contains yet, in seconds",
        LABELS,
        |shard, samples| add(shard, samples, shard.oldest.as_secs_f64()),
    ),
    MetricFamily::gauge(
        "athanor_ingester_head_bytes",
        "Memory of profiles in the head that receives new profiles, in bytes",
        LABELS,
        |shard, samples| add(shard, samples, shard.head_bytes),
    ),
    MetricFamily::gauge(
        "athanor_ingester_unflushed_records",
        "Number of records that no block contains yet, where each value type of a profile is one record",
        LABELS,
        |shard, samples| add(shard, samples, shard.heads.profiles),
    ),
    MetricFamily::gauge(
        "athanor_ingester_head_series",
        "Number of series in all unflushed heads, where each head counts its own",
        LABELS,
        |shard, samples| add(shard, samples, shard.heads.series),
    ),
    MetricFamily::gauge(
        "athanor_ingester_queued_bytes",
        "Size of uploads that wait for their commit to the log, in bytes",
        LABELS,
        |shard, samples| add(shard, samples, shard.waiting_bytes),
    ),
    MetricFamily::gauge(
        "athanor_ingester_dedup_window_ids",
        "Number of IDs of recent records in the window that detects duplicates",
        LABELS,
        |shard, samples| add(shard, samples, shard.window_ids),
    ),
    MetricFamily::gauge(
        "athanor_ingester_delta_series",
        "Number of cumulative series with known last values",
        LABELS,
        |shard, samples| add(shard, samples, shard.counting_series),
    ),
    MetricFamily::gauge(
        "athanor_ingester_delta_state_bytes",
        "Memory of the last values of cumulative series, in bytes",
        LABELS,
        |shard, samples| add(shard, samples, shard.counting_bytes),
    ),
    MetricFamily::counter(
        "athanor_ingester_delta_profiles_total",
        "Number of cumulative profiles by outcome: stored whole (first, reset), as their increase (delta) or not at all \
         (late, late_after_reset), and of series that were forgotten (expired)",
        &["shard", "outcome"],
        add_delta_outcomes,
    ),
    MetricFamily::gauge(
        "athanor_ingester_lost_entries",
        "Number of acknowledged log entries that no block contains and that cannot be read",
        LABELS,
        |shard, samples| add(shard, samples, shard.lost_entries),
    ),
    MetricFamily::gauge(
        "athanor_ingester_last_flush_age_seconds",
        "Time since the last finished flush or, without one, since the start of the shard, in seconds",
        LABELS,
        |shard, samples| add(shard, samples, shard.since_cut.as_secs_f64()),
    ),
    MetricFamily::histogram(
        "athanor_ingester_flush_duration_seconds",
        "Duration of finished flushes from a head to its registered block, in seconds",
        LABELS,
        |shard, samples| samples.add_durations(&[&shard.shard.to_string()], &shard.cuts.took),
    ),
    MetricFamily::counter(
        "athanor_ingester_flush_failures_total",
        "Number of failed flushes, which are retried",
        LABELS,
        |shard, samples| add(shard, samples, shard.cuts.failed),
    ),
    MetricFamily::counter(
        "athanor_ingester_flush_bytes_total",
        "Size of all blocks that flushes wrote, in bytes",
        LABELS,
        |shard, samples| add(shard, samples, shard.cuts.bytes),
    ),
    MetricFamily::counter(
        "athanor_ingester_flush_samples_total",
        "Number of samples in all blocks that flushes wrote",
        LABELS,
        |shard, samples| add(shard, samples, shard.cuts.samples),
    ),
    MetricFamily::counter(
        "athanor_ingester_flush_objects_total",
        "Number of bucket objects that flushes wrote",
        LABELS,
        |shard, samples| add(shard, samples, shard.cuts.objects),
    ),
];

/// Returns the collector of [`INGESTER_METRICS`].
pub fn ingester_collector(ingester: Arc<Ingester>, clock: Clock) -> MetricCollector {
    metric_collector(INGESTER_METRICS, move || ingester.stats(&clock))
}

fn add(shard: &ShardStats, samples: &mut MetricSamples<'_>, value: impl MetricValue) {
    samples.add_labeled(&[&shard.shard.to_string()], value);
}

fn add_delta_outcomes(shard: &ShardStats, samples: &mut MetricSamples<'_>) {
    let DeltaStats { first, restarts, subtracted, late, late_over_restart, forgotten } = shard.counting;
    let outcomes = [
        ("first", first),
        ("reset", restarts),
        ("delta", subtracted),
        ("late", late),
        ("late_after_reset", late_over_restart),
        ("expired", forgotten),
    ];
    let id = shard.shard.to_string();
    for (outcome, count) in outcomes {
        samples.add_labeled(&[&id, outcome], count);
    }
}
