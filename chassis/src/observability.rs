//! Measurements and log lines of a process.
//!
//! * `telemetry`: log lines on standard error.
//! * `histogram`: distributions with buckets of doubling width.
//! * `cpu_time`: CPU time of this process by activity.
//! * `process`: resource usage of a process, as Linux reports it.
//! * `metric_family`: declaration of metrics, and their collectors.
//! * `metrics`: metrics of the process.
//! * `metrics_page`: page of metrics in the formats of Prometheus.

pub mod cpu_time;
pub mod histogram;
pub mod metric_family;
pub mod metrics;
pub mod metrics_page;
pub mod process;
pub mod telemetry;
