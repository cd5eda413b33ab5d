//! Compaction jobs against a catalog and a bucket in memory, compared with plain lists of rows.
#![expect(clippy::unwrap_used, reason = "a test")]

mod bad_input;
mod claims;
mod maintenance;
mod merges;
mod s3;
mod test_catalog;
mod tiers;
mod world;
