//! The store-gateway: answers for blocks, beside what it keeps of them.
//!
//! ```text
//!  question ─► canonical ─► Answers: has this block been asked that? ─────────────────────────────┐ yes
//!  blocks                      │ no                                                               │
//!                           Flights: is it asked at the moment? ── yes ─► wait for it ────────────┤
//!                              │ no                                                               │
//!                           Wanted: a tenant's part of a block ─► room ─► Fetched: as much as     │
//!                              ▲                                          │      is needed of it  │
//!                              └── Parts: what was begun stays ◄──────────┤                       │
//!                                                                         ▼                       ▼
//!                                                     run, on compute threads ─► Answers    unpack
//!                                                                         └──────────┬────────────┘
//!                              Shelf: answers and pages on disk, below Answers and Origin, the bytes of Fetched
//!
//!  pieces, sum ◄─ packed ◄─ merged ◄─────────────────────────────────────────────────┘
//! ```
//!
//! Blocks never change, so what was read stays true, and so does what a block has answered. Which gateway a block belongs
//! to follows from its name and from who is there, so each keeps other blocks; whoever asks may ask any, and a gateway
//! answers for whatever it is asked for. When the last of those who wait for an answer leaves, finding it ends. Different
//! questions about a block have its part in common, and what one of them fetches the others wait for. What comes to lie on
//! disk is written behind them, by who tends it.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod block_cache;
mod block_fetcher;
mod block_query;
mod block_reader;
mod config;
mod disk_cache;
mod gateway;
mod partial_cache;
mod single_flight;
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
