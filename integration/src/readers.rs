//! Third-party readers of profile formats. Tests compare our results with theirs.

pub mod go;
pub mod jdk;
pub mod otel;
