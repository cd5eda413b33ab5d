//! Metrics of the sampler.

use athanor_agent_ebpf::layout::{LostReason, StackEnd};
use athanor_chassis::observability::metric_family::{MetricCollector, MetricFamily, metric_collector};

use super::collector::SamplingCollector;
use super::collector_state::CollectorStats;
use super::labels::LabelDrop;

const NANOS_PER_SECOND: f64 = 1e9;

/// Metrics of the sampler.
pub const SAMPLER_METRICS: &[MetricFamily<CollectorStats>] = &[
    MetricFamily::gauge(
        "athanor_agent_sampler_running",
        "Whether the host is sampled: 1 if it is, else 0",
        &[],
        |stats, samples| samples.add(u32::from(stats.phase == super::SamplerPhase::Running)),
    ),
    MetricFamily::counter(
        "athanor_agent_sampler_samples_taken_total",
        "Number of samples that the BPF program took, delivered or lost",
        &[],
        |stats, samples| samples.add(stats.sampler.samples_taken),
    ),
    MetricFamily::counter(
        "athanor_agent_sampler_samples_delivered_total",
        "Number of samples that windows contain",
        &[],
        |stats, samples| samples.add(stats.sampler.samples_delivered),
    ),
    MetricFamily::counter(
        "athanor_agent_sampler_samples_lost_total",
        "Number of samples that were taken and are in no window, by reason",
        &["reason"],
        |stats, samples| {
            for (reason, count) in LostReason::ALL.iter().zip(stats.sampler.samples_lost) {
                samples.add_labeled(&[reason.name()], count);
            }
        },
    ),
    MetricFamily::counter(
        "athanor_agent_sampler_samples_incomplete_total",
        "Number of delivered samples whose stack does not reach its outermost frame, by reason",
        &["reason"],
        |stats, samples| {
            let by_end = StackEnd::ALL.iter().zip(stats.sampler.samples_by_end);
            for (reason, count) in by_end.filter(|(reason, _)| **reason != StackEnd::Complete) {
                samples.add_labeled(&[reason.name()], count);
            }
        },
    ),
    MetricFamily::counter(
        "athanor_agent_sampler_samples_thinned_total",
        "Number of clock ticks that were not sampled to stay below max_cpu_percent",
        &[],
        |stats, samples| samples.add(stats.sampler.samples_thinned),
    ),
    MetricFamily::counter(
        "athanor_agent_sampler_samples_stored_total",
        "Number of samples in profiles that the spool accepted",
        &[],
        |stats, samples| samples.add(stats.samples_stored),
    ),
    MetricFamily::counter(
        "athanor_agent_sampler_samples_dropped_total",
        "Number of samples of windows that are in no profile because of their labels, by reason",
        &["reason"],
        |stats, samples| {
            for (reason, count) in LabelDrop::ALL.iter().zip(stats.samples_dropped) {
                samples.add_labeled(&[reason.name()], count);
            }
        },
    ),
    MetricFamily::counter(
        "athanor_agent_sampler_samples_rejected_total",
        "Number of samples in profiles that the spool rejected",
        &[],
        |stats, samples| samples.add(stats.samples_rejected),
    ),
    MetricFamily::counter(
        "athanor_agent_sampler_profiles_total",
        "Number of sampled profiles that the spool accepted",
        &[],
        |stats, samples| samples.add(stats.profiles),
    ),
    MetricFamily::counter(
        "athanor_agent_sampler_profiles_rejected_total",
        "Number of sampled profiles that the spool rejected",
        &[],
        |stats, samples| samples.add(stats.rejected_profiles),
    ),
    MetricFamily::counter(
        "athanor_agent_sampler_windows_total",
        "Number of windows by result: read, or lost because a map could not be read",
        &["result"],
        |stats, samples| {
            samples.add_labeled(&["read"], stats.windows);
            samples.add_labeled(&["lost"], stats.lost_windows);
        },
    ),
    MetricFamily::gauge(
        "athanor_agent_sampler_processes",
        "Number of processes whose mappings are loaded",
        &[],
        |stats, samples| samples.add(stats.sampler.processes),
    ),
    MetricFamily::gauge(
        "athanor_agent_sampler_labeled_processes",
        "Number of processes and threads whose labels are decided",
        &[],
        |stats, samples| samples.add(stats.labeled_processes),
    ),
    MetricFamily::gauge(
        "athanor_agent_sampler_pages",
        "Number of code pages of 64 KiB whose unwind rows are loaded",
        &[],
        |stats, samples| samples.add(stats.sampler.pages),
    ),
    MetricFamily::gauge(
        "athanor_agent_sampler_rows",
        "Number of unwind rows in BPF maps",
        &[],
        |stats, samples| samples.add(stats.sampler.rows),
    ),
    MetricFamily::counter(
        "athanor_agent_sampler_evictions_total",
        "Number of evictions by what was evicted: pages of unwind rows, processes, or tables of names",
        &["kind"],
        |stats, samples| {
            samples.add_labeled(&["page"], stats.sampler.pages_evicted);
            samples.add_labeled(&["process"], stats.sampler.processes_evicted);
            samples.add_labeled(&["names"], stats.sampler.names_evicted);
        },
    ),
    MetricFamily::counter(
        "athanor_agent_sampler_memory_drops_total",
        "Number of things that were dropped because max_memory_bytes has no place for them, by kind",
        &["kind"],
        |stats, samples| {
            samples.add_labeled(&["name"], stats.sampler.names_dropped);
            samples.add_labeled(&["mapping"], stats.sampler.mappings_dropped);
            samples.add_labeled(&["process"], stats.sampler.processes_refused);
            samples.add_labeled(&["unwind_index"], stats.sampler.indexes_refused);
        },
    ),
    MetricFamily::gauge(
        "athanor_agent_sampler_map_bytes",
        "Bytes of BPF maps and ring buffers",
        &[],
        |stats, samples| samples.add(stats.sampler.map_bytes),
    ),
    MetricFamily::gauge(
        "athanor_agent_sampler_table_bytes",
        "Bytes of tables of files, rows and names in the memory of the agent",
        &[],
        |stats, samples| samples.add(stats.sampler.table_bytes),
    ),
    MetricFamily::counter(
        "athanor_agent_sampler_processes_resynced_total",
        "Number of processes whose mappings were read because perf records were lost",
        &[],
        |stats, samples| samples.add(stats.sampler.processes_resynced),
    ),
    MetricFamily::counter(
        "athanor_agent_sampler_events_lost_total",
        "Number of lost perf records about mappings, forks, execs and exits",
        &[],
        |stats, samples| samples.add(stats.sampler.events_lost),
    ),
    MetricFamily::counter(
        "athanor_agent_sampler_program_seconds_total",
        "Processor time of the BPF programs",
        &[],
        |stats, samples| samples.add(stats.sampler.program_nanos as f64 / NANOS_PER_SECOND),
    ),
    MetricFamily::counter(
        "athanor_agent_sampler_user_seconds_total",
        "Processor time of the sampler outside of the BPF programs",
        &[],
        |stats, samples| samples.add(stats.sampler.user_nanos as f64 / NANOS_PER_SECOND),
    ),
    MetricFamily::gauge(
        "athanor_agent_sampler_program_nanos_per_sample",
        "Mean processor time of the BPF program for a sample since the start, in nanoseconds",
        &[],
        |stats, samples| {
            let taken = stats.sampler.samples_taken;
            samples.add(stats.sampler.program_nanos.checked_div(taken).unwrap_or_default());
        },
    ),
    MetricFamily::gauge(
        "athanor_agent_sampler_cpu_ratio",
        "Share of all CPUs that the sampler used in the last window, from 0 to 1",
        &[],
        |stats, samples| samples.add(stats.sampler.cpu_percent / 100.0),
    ),
    MetricFamily::gauge(
        "athanor_agent_sampler_rate_hertz",
        "Sampling rate in force, in samples per second and CPU",
        &[],
        |stats, samples| samples.add(stats.sampler.rate_hz),
    ),
];

/// Returns the collector of [`SAMPLER_METRICS`].
pub fn sampler_collector(collector: SamplingCollector) -> MetricCollector {
    metric_collector(SAMPLER_METRICS, move || Some(collector.stats()))
}
