//! One job: fetches the parts, merges them, uploads the outputs and swaps them in the catalog.

pub(crate) mod context;
pub(crate) mod entry;
pub(crate) mod merger;
pub(crate) mod objects;
pub(crate) mod output_plan;
pub(crate) mod run;
