//! Commands on profile files.
//!
//! - `input`: reads files of any format and merges them. `block_query` reads a profile from a block.
//! - `profile_views`: commands `top`, `flamegraph` and `info`.
//! - `sample_table`, `sample_input`: samples as rows of a table, and rows read back as a profile.
//! - `diff`, `convert`: comparison of two profiles, and conversion to another format.
//! - `example`: example profile of a fictional web shop.

pub(crate) mod block_query;
pub(crate) mod convert;
pub(crate) mod diff;
pub(crate) mod example;
pub(crate) mod input;
pub(crate) mod profile_views;
pub(crate) mod sample_input;
pub(crate) mod sample_table;
