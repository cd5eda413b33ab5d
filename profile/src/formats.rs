//! Readers and writers of profile formats. Input is untrusted, so every reader enforces the decode limits.
//!
//! * `format`: detection of the format from the content.
//! * `pprof`, `otlp`, `speedscope`, `folded`: read and written.
//! * `jfr`, `perf_script`, `flamebearer`, `trie`: only read.
//! * `json`: streaming JSON decoder with limits.
//! * `limits`: errors of exceeded limits, and counters for them.
//! * `sparse_values`: conversion of single-type values to rows of all types.
//! * `app_name_suffix`: suffixes of application names that name the profile type.

pub mod app_name_suffix;
pub mod flamebearer;
pub mod folded;
pub mod format;
pub mod jfr;
pub mod json;
pub mod limits;
pub mod otlp;
pub mod perf_script;
pub mod pprof;
pub(crate) mod sparse_values;
pub mod speedscope;
pub mod trie;
