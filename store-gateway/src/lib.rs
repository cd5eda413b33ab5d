//! Store-gateway: computes partial results of blocks and caches results, block data and pages.
//!
//! ```text
//!  query ──► canonical ─► PartialCache: is a result of this block cached? ─────────────────────────┐ yes
//!  blocks                      │ no                                                               │
//!                           SingleFlight: is it being computed? ── yes ─► wait for it ────────────┤
//!                              │ no                                                               │
//!                           BlockRead: a tenant's part of a block ─► budget ─► SparseBlockFiles:  │
//!                              ▲                                           │   fetch only needed  │
//!                              └── BlockCache: keeps opened parts ◄────────┤   ranges             │
//!                                                                          ▼                      ▼
//!                                               run, on compute threads ─► PartialCache        decode
//!                                                                          └──────────┬───────────┘
//!                              DiskCache: results and pages on disk, below PartialCache and BlockFetcher
//!
//!  pieces, sum ◄─ packed ◄─ merged ◄───────────────────────────────────────────────────┘
//! ```
//!
//! Blocks are immutable. Data that was read from a block and results that were computed from it never become
//! stale.
//! The block name and the set of live members determine the gateway that a block belongs to, so each gateway
//! caches other blocks.
//! A client may send a query to any gateway, and a gateway serves every block that a request names.
//! When the last waiter of a computation leaves, the computation is cancelled.
//! Concurrent queries of one block share its cached part: each range is fetched once, and the other queries
//! wait for it.
//! Writes to the disk cache run in the background, in [`StoreGateway::maintain_disk_cache`].

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod block_cache;
mod block_fetcher;
mod block_query;
mod block_reader;
mod cached_block;
mod config;
mod disk_cache;
mod gateway;
pub mod metrics;
mod part_location;
mod partial_cache;
mod sparse_files;
mod stats;

pub use block_reader::BlockReader;
pub use config::{StoreGatewayConfig, StoreGatewayConfigError};
pub use disk_cache::DiskCacheStats;
pub use gateway::{
    BlockOutcomes, BlockQuery, BlockQueryResult, BlockTarget, MAX_BLOCKS_PER_QUERY, StoreGateway,
    StoreGatewayStats, is_skippable_failure,
};
pub use partial_cache::PartialCacheStats;
pub use stats::CacheStats;
