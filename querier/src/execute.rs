//! Execution of a query on all of its sources.
//!
//! ```text
//!  plan ─► fan_out ─┬─► local sources, on compute threads ─┬─► merged partial result ─► dedup check
//!             ▲     └─► peers ─► partial_receiver ─────────┘                                │
//!             └── replan: the plan is outdated ◄───────── profile counted in two places ◄───┘
//! ```
//! - `executor`: resources of all queries: permits, compute pool, memory budget and quarantine.
//! - `run_query`: admits a query and runs it with a permit.
//! - `fan_out`: queries all sources in parallel and merges their partial results.
//! - `query_execution`: state of a running query.
//! - `partial_receiver`: reserves memory for the chunks of a peer and merges its result.
//! - `replan`: starts the query over with a new plan if rows moved [INV-18].
//! - `dedup`: excludes profiles that exist in two places.
//! - `skipped_sources`: warnings and errors about sources that could not be read.

pub(crate) mod dedup;
pub(crate) mod executor;
pub(crate) mod fan_out;
pub(crate) mod partial_receiver;
pub(crate) mod query_execution;
pub(crate) mod replan;
pub(crate) mod run_query;
pub(crate) mod skipped_sources;
