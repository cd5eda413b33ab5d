//! Telemetry of the process about itself.
//!
//! - `metrics`: metrics page for Prometheus.
//! - `self_profile`: CPU profile of this process.
//! - `log_throttle`: throttle for frequent log messages.

pub(crate) mod log_throttle;
pub(crate) mod metrics;
pub(crate) mod self_profile;
