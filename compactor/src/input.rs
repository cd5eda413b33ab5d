//! Inputs of a job: parts of blocks, of which only the needed byte ranges are fetched.

pub(crate) mod compared_blocks;
pub(crate) mod culprit;
pub(crate) mod fetcher;
pub(crate) mod part_lookup;
pub(crate) mod sparse_folder;
