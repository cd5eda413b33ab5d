//! Data model of a profile: a header, sample rows of dense ids, and the dictionary of the ids.
//!
//! * `model`: profile, header, samples, dictionary.
//! * `symbols`, `stacks`: tables of strings, functions, mappings, locations and stacks. `stack_copier`: copies of stacks.
//! * `labels`: labels of series and of samples. `profile_type`: full type of a profile.
//! * `timestamps`, `span_context`: time, span and trace of a sample.
//! * `dropped_counts`: counts of dropped parts by reason. `kind_counts`: counts by the variants of an enum.
//! * `identity`: ids that detect duplicates [INV-01, INV-02].

pub mod dropped_counts;
pub mod identity;
pub mod kind_counts;
pub mod labels;
pub(crate) mod model;
pub mod profile_type;
pub mod span_context;
pub mod stack_copier;
pub mod stacks;
pub mod symbols;
pub(crate) mod timestamps;
