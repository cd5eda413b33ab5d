//! Rules for labels, names and times of profiles between the client and a shard's head, as pure functions.
//!
//! * `normalize`: rules for all tenants. The distributor and the shard must agree on them.
//! * `relabel`: relabeling rules of one tenant, as in Prometheus.
//! * `pattern`: translation of Prometheus regular expressions to the syntax of the `regex` crate.

pub mod normalize;
pub mod pattern;
pub mod relabel;
