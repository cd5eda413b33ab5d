//! The store-gateway: answers for blocks, beside what it keeps of them.
//!
//! ```text
//!  question ─► Wanted: a tenant's part of a block ─► room ─► Fetched: as much of its files as the question needs
//!  blocks         ▲                                               │
//!                 └── Parts: what was read stays ◄────────────────┤
//!                                                                 ▼
//!  pieces, sum ◄─ packed ◄─ merged ◄──────────────────────── run, on compute threads
//! ```
//!
//! Blocks never change, so what was read stays true. Which gateway a block belongs to follows from its name and from who
//! is there, so each keeps other blocks; whoever asks may ask any, and a gateway answers for whatever it is asked for.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod blocks;
mod fetch;
mod gateway;
mod parts;

pub use blocks::{Blocks, Opened, Wanted};
pub use gateway::{Answer, BlockAt, Gateway, MOST};
pub use parts::{CacheStats, Parts};
