//! Whole clusters in one process, with faults, and an oracle that knows every profile that was acknowledged: it sends,
//! repeats and asks, and compares to the unit.

#![allow(clippy::unwrap_used)]

mod admin_commands;
mod catalog_recovery;
mod disconnects;
mod hedging;
mod invalid_peer_input;
mod lost_shards;
mod oracle;
mod partial_results;
mod query_consistency;
mod scenarios;
mod slot_tables;
