//! Block format: a folder of plain Parquet files and a `meta.json`, which is written last.
//!
//! ```text
//!  series ◄── profiles ◄── samples ──► stacks ──► locations ──► functions
//!    ▲                                   ▲            └───────► mappings
//!    └────────────── rollup ─────────────┘        index: function ──► services
//! ```
//!
//! IDs are dense and local to the block. Each tenant's IDs are one range, so the files join directly, and no
//! row group mixes tenants. [`BlockBuilder`] builds a block from profiles in any order, [`write_from_memory`]
//! from profiles in memory, [`merge_into`] from rows of other blocks, in bounded memory. [`Block`] reads a block, and
//! verifies the checksum of each page before it uses its bytes. [`TenantBlockSource`] runs queries on one
//! tenant's part.
//!
//! | file | a row is |
//! |---|---|
//! | `series` | labels and type |
//! | `profiles` | series, time, record id, duration, period, count and sum of its samples; by (series, time, id), in blocks longer than an hour by (hour, series, time, id); in a downsampled tier a bucket of a series, with the numbers of its records and profiles |
//! | `samples` | profile, stack, value; by (profile, stack); ids of span and trace, and a list of timestamps, each where some sample has one |
//! | `stacks` | parent, location; whole stacks first, by falling popularity |
//! | `locations` | one line of a location, the innermost at depth 0 |
//! | `functions`, `mappings` | names |
//! | `rollup` | sum and count of a series' stack over the whole block, or over an hour if rows are ordered by hours |
//! | `index` | a function and a service with it in its profiles |

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod build;
mod encoding;
mod format;
mod merge;
mod reader;
mod writer;

pub use athanor_profile::SpanContext;
pub use athanor_profile::store_interface::series::{ProfileRow, ProfileSeries};
pub use build::{BlockBuilder, BuildCounts};
pub use format::error::BlockError;
pub use format::folder::{BlockFolder, LocalFolder, MemoryFolder, ScratchFactory};
pub use format::meta::{
    BlockMeta, BlockOrigin, FORMAT_VERSION, FUNCTIONS_FILE, FileMeta, INDEX_FILE, IdRange, JobOrigin,
    LOCATIONS_FILE, LogRange, MAPPINGS_FILE, MAX_META_BYTES, META_FILE, PAGE_BYTES, PARQUET_FILES,
    PROFILES_FILE, ROLLUP_FILE, SAMPLES_FILE, SERIES_FILE, STACKS_FILE, TenantMeta,
};
pub use format::row_order::RowOrder;
pub use merge::memory::MergeEstimate;
pub use merge::partition::partition_series;
pub use merge::selection::{RowSelection, RowTotals};
pub use merge::series_partition::{SeriesGroups, SeriesKey, SeriesPartition};
pub use merge::summary::{RowSummary, summarize_rows};
pub use merge::{
    DuplicateTotals, MERGE_FAN_IN, MergeOutput, MergeResult, MergeSource, merge, merge_all, merge_into,
    merge_round_count,
};
pub use reader::file_ranges::{FileRanges, MAX_FETCH_GAP_BYTES, RowProjection, align_to_pages, footer_range};
pub use reader::names::BlockNames;
pub use reader::read::{Block, ProfileProjection, RollupRows, TenantBlock};
pub use reader::source::TenantBlockSource;
pub use writer::memory_profiles::{MemoryProfiles, MemoryRow, MemoryRowVisitor, write_from_memory};
