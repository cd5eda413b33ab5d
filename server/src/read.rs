//! Sources of a query: heads and blocks, local and remote.
//!
//! ```text
//!  query ─► query_planner ─┬─► remote_heads ─► shard leaders
//!                          └─► store_gateway_router ─► store-gateways
//! ```
//!
//! - `query_planner`: combines the catalog, the heads and the block store into one plan.
//! - `remote_heads`: heads of shards that other nodes lead. `shard_outages` limits waiting for lost leaders.
//! - `store_gateway_router`: assigns blocks to store-gateways. `hedging` decides when to send a second call.
//! - `tenant_directory`: names of the tenants that have profiles.

pub(crate) mod hedging;
pub(crate) mod query_planner;
pub(crate) mod remote_heads;
pub(crate) mod shard_outages;
pub(crate) mod store_gateway_router;
pub(crate) mod tenant_directory;
