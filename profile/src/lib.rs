//! Profiles: their formats and the algebra of stacks. Pure: no clock, no file, no network.
//!
//! ```text
//!  pprof ───────┐                    ┌─► Tree ─► Flamegraph ─► svg, ansi, dot
//!  folded ──────┤                    │
//!  speedscope ──┼─► Profile ─► merge ┼─► top_table, sandwich, diff
//!  flamebearer ─┤   (dense ids)      │         source_lines, compare, sampling_noise
//!  perf script ─┤                    └─► pprof, folded, speedscope, otlp
//!  jfr ─────────┘
//!   └ format: detects the format
//!  trie, tree ──► pprof
//!
//!  ProfileUpload ─► ProfileSource (heads, blocks, memory) ─► queries, above
//! ```
//!
//! A [`Profile`] consists of rows of dense ids and a [`Dictionary`] of the ids. Everything in a dictionary
//! has a 128-bit content hash. Equal stacks of different files therefore get the same id, and merging is
//! adding into arrays. Names are resolved only for displayed results.
//!
//! A store of profiles implements [`ProfileSource`]: series, profiles and rows of dense ids of one tenant.
//!
//! Sums are computed modulo 2^64, as in pprof. Merging is therefore always associative and commutative.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod analysis;
pub mod call_tree;
pub mod data_model;
pub mod encoding;
pub mod formats;
pub mod generate;
pub mod labeling;
pub mod render;
pub mod store_interface;

pub use data_model::labels::{LabelSets, Labels, SampleLabel};
pub use data_model::model::{Dictionary, Profile, ProfileHeader, Samples, ValueType};
pub use data_model::profile_type::ProfileType;
pub use data_model::span_context::{SpanContext, SpanFilter};
pub use data_model::stack_copier::StackCopier;
pub use data_model::timestamps::SampleTimestamps;
pub use store_interface::series::{ProfileRow, ProfileSeries};
pub use store_interface::source::{ProfileSource, SourceError};
pub use store_interface::upload::ProfileUpload;
