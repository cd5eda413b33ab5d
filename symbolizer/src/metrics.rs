//! Metrics of debug information uploads.

use athanor_chassis::observability::metric_family::{MetricCollector, MetricFamily, metric_collector};

use crate::{DebuginfoService, DebuginfoStats};

/// Metrics of the debug information service.
pub const SYMBOLIZER_METRICS: &[MetricFamily<DebuginfoStats>] = &[
    MetricFamily::counter(
        "athanor_symbolizer_debuginfo_uploads_total",
        "Number of debug information uploads by stage: started, complete, or complete with an invalid file",
        &["stage"],
        |stats, samples| {
            let stages = [("started", stats.begun), ("complete", stats.finished), ("invalid", stats.invalid)];
            for (stage, count) in stages {
                samples.add_labeled(&[stage], count);
            }
        },
    ),
    MetricFamily::counter(
        "athanor_symbolizer_debuginfo_received_bytes_total",
        "Size of all completely received debug information files, in bytes",
        &[],
        |stats, samples| samples.add(stats.bytes),
    ),
    MetricFamily::counter(
        "athanor_symbolizer_debuginfo_rejected_total",
        "Number of rejected calls of the debug information service, by reason",
        &["reason"],
        |stats, samples| {
            for (reason, count) in &stats.refused {
                samples.add_labeled(&[reason], *count);
            }
        },
    ),
];

/// Returns the collector of [`SYMBOLIZER_METRICS`].
pub fn symbolizer_collector(service: DebuginfoService) -> MetricCollector {
    metric_collector(SYMBOLIZER_METRICS, move || Some(service.stats()))
}
