//! Metrics of this process for Prometheus.
//!
//! ```text
//!  HTTP ─► RouteMetrics ──┐
//!  roles, log, … ─────────┴─► MetricsCollector::text ─► MetricsPage ─► OpenMetrics, or the older text format
//! ```
//!
//! Components count in plain numbers of their own; a scrape reads them all. Metric names are literals where
//! they are used. Labels have a bounded number of values: routes and groups are few, and tenants beyond a
//! thousand share one label.

mod collector;
mod page;
mod routes;

pub use collector::{MetricsCollector, MetricsView};
pub use routes::{RouteMetrics, RouteRequestGuard};
