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

pub mod ansi;
pub mod app_name_suffix;
pub mod codec;
pub mod compare;
mod decimal;
pub mod dictionary_delta;
pub mod diff;
pub mod dot;
pub mod flamebearer;
pub mod flamegraph;
pub mod folded;
pub mod format;
pub mod generate;
pub mod hash;
pub mod identity;
pub mod jfr;
pub mod json;
pub mod labels;
mod layout;
pub mod limits;
pub mod merge;
mod model;
pub mod normalize;
mod numbering;
pub mod otlp;
pub mod pattern;
pub mod perf_script;
pub mod pprof;
pub mod printable;
pub mod profile_type;
pub mod prune;
pub mod relabel;
pub mod sampling_noise;
pub mod sandwich;
pub mod series;
pub mod source;
pub mod source_lines;
pub mod span_context;
mod sparse_values;
pub mod speedscope;
pub mod stacks;
pub mod svg;
pub mod symbols;
mod timestamps;
pub mod top_table;
pub mod tree;
pub mod trie;
pub mod units;
pub mod upload;

pub use labels::{LabelSets, Labels, SampleLabel};
pub use model::{Dictionary, Profile, ProfileHeader, Samples, ValueType};
pub use profile_type::ProfileType;
pub use series::{ProfileRow, ProfileSeries};
pub use source::{ProfileSource, SourceError};
pub use span_context::{SpanContext, SpanFilter};
pub use timestamps::SampleTimestamps;
pub use upload::ProfileUpload;
