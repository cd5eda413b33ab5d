//! Metrics of the process, and of the memory budgets for results.

use super::cpu_time::{CpuActivity, process_cpu_time};
use super::metric_family::{MetricCollector, MetricFamily, metric_collector};
use super::process::ProcessUsage;
use crate::memory_budget::MemoryBudgetStats;
use crate::{ComputePool, TaskGroup};

/// Label value for CPU time outside all activities.
const OTHER_ACTIVITY: &str = "other";

/// State of the process at one scrape.
pub struct ProcessSnapshot {
    usage: ProcessUsage,
    max_parallel_jobs: usize,
    pending_jobs: usize,
    tasks: usize,
}

/// Utilization of the memory budget of one component.
pub struct ResultMemorySnapshot {
    /// Component that owns the budget.
    pub component: &'static str,
    /// Utilization of its budget.
    pub budget: MemoryBudgetStats,
}

/// Metrics of the process.
pub const PROCESS_METRICS: &[MetricFamily<ProcessSnapshot>] = &[
    MetricFamily::gauge(
        "process_resident_memory_bytes",
        "Resident memory of the process, in bytes",
        &[],
        |process, samples| samples.add(process.usage.resident_bytes),
    ),
    MetricFamily::gauge(
        "athanor_process_peak_resident_memory_bytes",
        "Largest resident memory of the process since its start, in bytes",
        &[],
        |process, samples| samples.add(process.usage.peak_bytes),
    ),
    MetricFamily::gauge(
        "process_virtual_memory_bytes",
        "Size of the address space of the process, in bytes",
        &[],
        |process, samples| samples.add(process.usage.virtual_bytes),
    ),
    MetricFamily::gauge("process_threads", "Number of threads of the process", &[], |process, samples| {
        samples.add(process.usage.threads);
    }),
    MetricFamily::gauge(
        "process_open_fds",
        "Number of open files and sockets of the process",
        &[],
        |process, samples| samples.add(process.usage.open_files),
    ),
    MetricFamily::gauge(
        "process_max_fds",
        "Maximum number of open files and sockets of the process",
        &[],
        |process, samples| samples.add(process.usage.max_files),
    ),
    MetricFamily::counter(
        "process_cpu_seconds_total",
        "CPU time of the process, in seconds",
        &[],
        |_, samples| {
            samples.add(process_cpu_time().as_secs_f64());
        },
    ),
    MetricFamily::counter(
        "athanor_cpu_seconds_total",
        "CPU time of the process by activity, in seconds, where other is the time outside all activities",
        &["activity"],
        |_, samples| {
            let process = process_cpu_time();
            let activities = CpuActivity::ALL.map(|activity| (activity.name(), activity.cpu_time()));
            let measured = activities.iter().map(|(_, time)| *time).sum();
            let other = (OTHER_ACTIVITY, process.saturating_sub(measured));
            for (name, time) in activities.into_iter().chain([other]) {
                samples.add_labeled(&[name], time.as_secs_f64());
            }
        },
    ),
    MetricFamily::gauge(
        "athanor_compute_threads",
        "Number of compute jobs of one class that run at the same time",
        &[],
        |process, samples| samples.add(process.max_parallel_jobs),
    ),
    MetricFamily::gauge(
        "athanor_compute_jobs",
        "Number of compute jobs that run or wait for a thread",
        &[],
        |process, samples| samples.add(process.pending_jobs),
    ),
    MetricFamily::gauge(
        "athanor_tasks",
        "Number of running asynchronous tasks, where each connection is one task",
        &[],
        |process, samples| samples.add(process.tasks),
    ),
];

/// Metrics of memory budgets for results.
pub const RESULT_MEMORY_METRICS: &[MetricFamily<ResultMemorySnapshot>] = &[
    MetricFamily::gauge(
        "athanor_result_memory_reserved_bytes",
        "Memory that results in computation or transfer reserve from the budget of a component, in bytes",
        &["component"],
        |memory, samples| samples.add_labeled(&[memory.component], memory.budget.taken),
    ),
    MetricFamily::gauge(
        "athanor_result_memory_limit_bytes",
        "Limit of the memory that results of a component may reserve, in bytes",
        &["component"],
        |memory, samples| samples.add_labeled(&[memory.component], memory.budget.limit),
    ),
    MetricFamily::counter(
        "athanor_result_memory_rejected_total",
        "Number of results that were rejected because the memory budget of a component was used up",
        &["component"],
        |memory, samples| samples.add_labeled(&[memory.component], memory.budget.refused),
    ),
];

/// Returns the collector of [`PROCESS_METRICS`].
pub fn process_collector(compute: ComputePool, tasks: TaskGroup) -> MetricCollector {
    metric_collector(PROCESS_METRICS, move || {
        Some(ProcessSnapshot {
            usage: ProcessUsage::current(),
            max_parallel_jobs: compute.parallelism(),
            pending_jobs: compute.pending_jobs(),
            tasks: tasks.running_tasks(),
        })
    })
}

/// Returns the collector of [`RESULT_MEMORY_METRICS`] over the budgets of all components.
pub fn result_memory_collector(
    budgets: impl Fn() -> Vec<ResultMemorySnapshot> + Send + Sync + 'static,
) -> MetricCollector {
    metric_collector(RESULT_MEMORY_METRICS, budgets)
}
