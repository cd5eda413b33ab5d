//! Checks of the source tree itself: its structure, its style, its documents and its mutants.
//!
//! - `layers`: dependencies between crates, names of files and folders.
//! - `invariants`, `links`, `mutants`, `reference_words`: names, paths and numbers in documents and patches exist.
//! - `limits`: measures of style, each with a committed limit that only falls until it reaches its goal.
//!
//! A measure above its limit fails the test and lists the worst places. A measure clearly below its limit fails as
//! well, until the limit is lowered. `just tidy` prints the table of measures.
//!
//! `names`, `comments`, `shape`, `imports` and `prose` compute the measures. They read product code: code of tests,
//! benchmarks, fuzz targets and examples does not count.

mod comments;
mod imports;
mod invariants;
mod layers;
mod limits;
mod links;
mod measurement;
mod mutants;
mod names;
mod prose;
mod reference_words;
mod shape;
mod source;
mod split;
mod tokens;
