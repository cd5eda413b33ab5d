//! Rules for labels, names and times of profiles between the client and a shard's head, as pure functions.
//!
//! * `normalize`: rules for all tenants. The distributor and the shard must agree on them.
//! * `relabel`: relabeling rules of one tenant, as in Prometheus.
//! * `pattern`: translation of Prometheus regular expressions to the syntax of the `regex` crate.
//! * `app_name`: application names with labels, as the clients of `/ingest` send them.
//! * `metric_name`: value of the label `__name__`, from the sample types of a pprof.

pub mod app_name;
pub mod metric_name;
pub mod normalize;
pub mod pattern;
pub mod relabel;
