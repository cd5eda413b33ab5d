//! State of targets, for pages and metrics.

use std::time::Duration;

use athanor_chassis::Timestamp;
use athanor_profile::Labels;

/// State of a target or of one of its kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KindState {
    /// No scrape ended yet.
    #[default]
    Unknown,
    /// The last scrape returned a profile.
    Up,
    /// Another client recorded at the target during the last scrape.
    Busy,
    /// The target does not serve the kind.
    Absent,
    /// The last scrape failed.
    Down,
}

/// State of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetStatus {
    /// Name of the job.
    pub job: String,
    /// `http` or `https`.
    pub scheme: String,
    /// Host and port.
    pub address: String,
    /// Labels of its profiles, without `__name__`.
    pub labels: Labels,
    /// Labels before relabeling.
    pub discovered: Labels,
    /// Worst state of the kinds: down, busy, up, absent. Unknown before the first scrape.
    pub state: KindState,
    /// Kinds that are scraped.
    pub kinds: Vec<KindStatus>,
}

/// State of one kind of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindStatus {
    /// Name of the kind.
    pub name: String,
    /// Path of the request.
    pub path: String,
    /// State.
    pub state: KindState,
    /// True if a scrape runs.
    pub is_running: bool,
    /// Start of the last scrape that ended.
    pub last_scrape: Option<Timestamp>,
    /// Duration of the last scrape, including the recording.
    pub last_duration: Duration,
    /// Bytes of the last profile as scraped.
    pub last_bytes: u64,
    /// Reason if the last scrape returned no profile.
    pub error: Option<String>,
    /// Expected start of the next scrape. That of the current one while it runs.
    pub next_scrape: Timestamp,
    /// Seconds that the target records. Recordings that do not fit in the interval together are shorter than
    /// configured.
    pub seconds: Option<u32>,
    /// Number of scrapes that ended.
    pub scrapes: u64,
    /// Number of scrapes that returned no profile.
    pub failures: u64,
}

impl KindState {
    /// All states.
    pub const ALL: [Self; 5] = [Self::Unknown, Self::Up, Self::Busy, Self::Absent, Self::Down];

    /// Name in metrics and pages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Busy => "busy",
            Self::Absent => "absent",
            Self::Down => "down",
        }
    }
}
