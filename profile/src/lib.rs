//! Profiles: their formats and the algebra of stacks. Pure: no clock, no file, no network.
//!
//! ```text
//!  pprof ───────┐                    ┌─► Tree ─► Flamegraph ─► svg, ansi, dot
//!  folded ──────┤                    │
//!  speedscope ──┼─► Profile ─► merge ┼─► table, callers, diff
//!  flamebearer ─┤   (dense ids)      │         lines, compare, sampling_noise
//!  perf script ─┤                    └─► pprof, folded, speedscope, otlp
//!  jfr ─────────┘
//!   └ format: which of them it is
//!  trie, tree ──► pprof
//!
//!  Upload ─► Source (heads, blocks, memory) ─► queries, above
//! ```
//!
//! A [`Profile`] is rows of dense ids and a [`Dictionary`] that says what the ids mean. Everything in a
//! dictionary has a 128-bit content hash, so equal stacks meet whatever file they came in, and merging is
//! adding into arrays. Names are resolved only for what is shown.
//!
//! Whoever stores profiles is a [`Source`]: series, profiles and rows of dense ids of one tenant.
//!
//! Sums are taken modulo 2^64, as pprof does: so merging is associative and commutative without exception.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod ansi;
pub mod bounds;
pub mod callers;
pub mod compare;
mod decimal;
pub mod diff;
pub mod dot;
pub mod flamebearer;
pub mod flamegraph;
pub mod folded;
pub mod format;
pub mod generate;
pub mod growth;
pub mod hash;
pub mod identity;
pub mod jfr;
pub mod json;
pub mod labels;
mod layout;
pub mod lines;
pub mod merge;
mod model;
mod moments;
pub mod normalise;
mod numbering;
pub mod otlp;
pub mod packed;
pub mod pattern;
pub mod perf_script;
pub mod pprof;
pub mod printable;
pub mod profile_type;
pub mod prune;
pub mod relabel;
pub mod request;
pub mod sampling_noise;
pub mod series;
pub mod source;
mod sparse;
pub mod speedscope;
pub mod stacks;
pub mod suffix;
pub mod svg;
pub mod symbols;
pub mod table;
pub mod tree;
pub mod trie;
pub mod units;
pub mod upload;

pub use labels::{LabelSets, Labels, SampleLabel};
pub use model::{Dictionary, Header, Profile, Samples, ValueType};
pub use moments::Moments;
pub use profile_type::ProfileType;
pub use request::{Request, RequestFilter};
pub use series::{ProfileRow, Series};
pub use source::{Source, SourceError};
pub use upload::Upload;
