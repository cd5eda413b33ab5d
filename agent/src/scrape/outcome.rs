//! Results of scrapes.

use std::fmt;
use std::time::Duration;

use athanor_chassis::Timestamp;

/// Failure of a scrape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ScrapeError {
    /// Kind of the failure, which decides about the next scrape.
    pub kind: ScrapeErrorKind,
    /// Cause, value seen and way out.
    pub message: String,
}

/// Result of a scrape for the schedule.
#[derive(Clone, Debug)]
pub(super) struct ScrapeReport {
    pub(super) started_at: Timestamp,
    pub(super) duration: Duration,
    /// Bytes of the profile, or the failure.
    pub(super) result: Result<u64, ScrapeError>,
}

/// Kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScrapeErrorKind {
    /// Another client records the same kind at the target.
    Busy,
    /// The target does not serve the kind.
    NotFound,
    /// The response did not end in time.
    Timeout,
    /// The body exceeds a limit.
    TooLarge,
    /// The body is no profile.
    NotPprof,
    /// The agent has no memory for the body at present.
    NoMemory,
    /// The connection, the request or the response failed.
    Failed,
}

impl ScrapeErrorKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Busy,
        Self::NotFound,
        Self::Timeout,
        Self::TooLarge,
        Self::NotPprof,
        Self::NoMemory,
        Self::Failed,
    ];

    /// Name of the kind in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::NotFound => "not_found",
            Self::Timeout => "timeout",
            Self::TooLarge => "too_large",
            Self::NotPprof => "not_pprof",
            Self::NoMemory => "no_memory",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for ScrapeErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ScrapeError {
    /// Creates an error.
    pub fn new(kind: ScrapeErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}
