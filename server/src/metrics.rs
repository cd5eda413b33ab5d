//! What this process tells of itself, for Prometheus.
//!
//! ```text
//!  HTTP ─► Routes ──┐
//!  roles, log, … ───┴─► Scrape::text ─► Page ─► OpenMetrics, or the older text for who asks for that
//! ```
//!
//! Whoever works counts in plain numbers of its own; a scrape looks at them all. Names are written out where they are
//! used, and labels have a bounded number of values: routes and groups are few, tenants beyond a thousand are one.

mod collector;
mod page;
mod routes;

pub use collector::{MetricsCollector, MetricsView};
pub use routes::{RouteMetrics, RouteRequestGuard};
