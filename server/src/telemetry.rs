//! Telemetry of the process about itself: the metrics page for Prometheus.

pub(crate) mod metrics;
