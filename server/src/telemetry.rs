//! Telemetry of the process about itself.
//!
//! - `metrics`: metrics page for Prometheus.
//! - `self_profile`: CPU profile of this process.

pub(crate) mod metrics;
pub(crate) mod self_profile;
