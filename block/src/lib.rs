//! The bytes of a block: a folder of plain Parquet files and a `meta.json`, written last.
//!
//! ```text
//!  series ◄── profiles ◄── samples ──► stacks ──► locations ──► functions
//!    ▲                                   ▲            └───────► mappings
//!    └────────────── rollup ─────────────┘        index: function ──► services
//! ```
//!
//! Ids are dense and local to the block; each tenant's are one run of them, so the files join as they lie, and
//! no row group mixes tenants. [`Builder`] makes a block from profiles in any order, [`write_held`] from those in
//! memory, [`merge`] from other blocks, in bounded memory. [`Block`] reads one: no byte is used before the checksum
//! of its page was right. [`PartSource`] answers queries from one tenant's part.
//!
//! | file | a row is |
//! |---|---|
//! | `series` | labels and type |
//! | `profiles` | series, time, record id, duration, period, count and sum of its samples; by (series, time, id) |
//! | `samples` | profile, stack, value; by (profile, stack); ids of span and trace, and a list of timestamps, each where some sample has one |
//! | `stacks` | parent, location; whole stacks first, by falling popularity |
//! | `locations` | one line of a location, the innermost at depth 0 |
//! | `functions`, `mappings` | names |
//! | `rollup` | sum and count of a series' stack over the whole block |
//! | `index` | a function and a service whose profiles hold it |

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod build;
mod columns;
mod duplicates;
mod error;
mod folder;
mod frames;
mod held;
mod index;
mod merge;
mod meta;
mod moments;
mod names;
mod number;
mod order;
mod pages;
mod reach;
mod read;
mod request;
mod scan;
mod source;
mod verify;
mod write;

pub use athanor_profile::Request;
pub use athanor_profile::series::{ProfileRow, Series};
pub use build::{Builder, Counts, Scratch};
pub use error::BlockError;
pub use folder::{Folder, LocalFolder, MemoryFolder, PAGE};
pub use held::{EachRow, Held, HeldRow, write_held};
pub use merge::{FAN_IN, Making, make, merge, merge_all, rounds};
pub use meta::{
    FILES, FORMAT, FUNCTIONS, FileMeta, LOCATIONS, LogRange, MAPPINGS, MAX_META, META, Meta, Origin,
    PROFILES, ROLLUP, Run, SAMPLES, SERIES, STACKS, TenantMeta,
};
pub use names::Names;
pub use reach::{Extents, NEAR, ProfileColumns, Rows, in_pages, tail_of};
pub use read::{Block, Part, Rollup};
pub use source::PartSource;
