//! Result side of a query: partial results and their merge.
//!
//! - `partial`: partial result of one source.
//! - `partial_merger`: merges results of many sources, on any threads.
//! - `partial_origin`: origins of block results, for query diagnostics.
//! - `merged_profile`: merged stacks, truncated once after all merges.
//! - `origin_tree`: tree of functions with their files, lines, binaries and packages.
//! - `memory_size`: approximate memory of the parts of results.
//! - `profile_list`, `heatmap`, `query_cost`: single profiles, values over time, and cost estimates.
//! - `profile_count`: numbers of profiles, for averages.
//! - `sum_check`: sums past 63 bits are errors.
//!
//! Merging is associative and commutative, and truncates nothing.

pub(crate) mod heatmap;
pub(crate) mod memory_size;
pub(crate) mod merged_profile;
pub(crate) mod origin_tree;
pub(crate) mod partial;
pub(crate) mod partial_merger;
pub(crate) mod partial_origin;
pub(crate) mod profile_count;
pub(crate) mod profile_list;
pub(crate) mod query_cost;
pub(crate) mod sample_list;
pub(crate) mod sum_check;
