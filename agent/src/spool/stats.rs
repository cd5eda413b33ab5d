//! Counters of one spool and its delivery, and the metrics that show them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_chassis::observability::metric_family::MetricFamily;
use athanor_chassis::{ErrorCode, Status};
use parking_lot::Mutex;

/// Reason why profiles were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// The server accepts no profiles of that age.
    TooOld,
    /// Newer scraped profiles replaced it in a full spool.
    Evicted,
    /// The spool was full and nothing could be evicted.
    SpoolFull,
    /// The disk failed to store the profile.
    DiskError,
    /// The profile exceeds the capacity of the spool.
    TooLarge,
    /// The spool file was damaged.
    Damaged,
}

/// Counters of one server. All are totals since the start of the process.
#[derive(Debug, Default)]
pub struct ServerStats {
    sent_profiles: AtomicU64,
    retried_profiles: AtomicU64,
    refused_profiles: AtomicU64,
    damaged_files: AtomicU64,
    discarded_refusals: AtomicU64,
    dropped_profiles: Mutex<BTreeMap<DropReason, u64>>,
}

/// State of one server at one scrape of the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerSnapshot {
    /// Name of the server.
    pub server: String,
    /// Bytes of all spool files.
    pub spool_bytes: u64,
    /// Number of spool files.
    pub spool_files: u64,
    /// Age of the oldest spool file.
    pub oldest_file_age: Duration,
    /// True if the spool is in memory, because its folder is not writable.
    pub is_in_memory: bool,
    /// Profiles that the server acknowledged.
    pub sent_profiles: u64,
    /// Profiles in requests that failed and are sent once more.
    pub retried_profiles: u64,
    /// Profiles that the server rejected.
    pub refused_profiles: u64,
    /// Rejected profiles that were removed from the bounded folder.
    pub discarded_refusals: u64,
    /// Damaged spool files.
    pub damaged_files: u64,
    /// Dropped profiles by reason.
    pub dropped_profiles: BTreeMap<DropReason, u64>,
}

/// Metrics of spools and deliveries.
pub const SPOOL_METRICS: &[MetricFamily<ServerSnapshot>] = &[
    MetricFamily::gauge(
        "athanor_agent_spool_bytes",
        "Size of all files that wait for delivery to one server, in bytes",
        &["server"],
        |snapshot, samples| samples.add_labeled(&[&snapshot.server], snapshot.spool_bytes),
    ),
    MetricFamily::gauge(
        "athanor_agent_spool_files",
        "Number of files that wait for delivery to one server",
        &["server"],
        |snapshot, samples| samples.add_labeled(&[&snapshot.server], snapshot.spool_files),
    ),
    MetricFamily::gauge(
        "athanor_agent_spool_oldest_file_age_seconds",
        "Age of the oldest file that waits for delivery to one server, in seconds",
        &["server"],
        |snapshot, samples| {
            samples.add_labeled(&[&snapshot.server], snapshot.oldest_file_age.as_secs_f64());
        },
    ),
    MetricFamily::gauge(
        "athanor_agent_spool_in_memory",
        "1 if the spool of a server is in memory because its folder is not writable, else 0",
        &["server"],
        |snapshot, samples| samples.add_labeled(&[&snapshot.server], u64::from(snapshot.is_in_memory)),
    ),
    MetricFamily::counter(
        "athanor_agent_spool_damaged_files_total",
        "Number of spool files that were quarantined because they were damaged",
        &["server"],
        |snapshot, samples| samples.add_labeled(&[&snapshot.server], snapshot.damaged_files),
    ),
    MetricFamily::counter(
        "athanor_agent_sent_profiles_total",
        "Number of profiles that a server acknowledged",
        &["server"],
        |snapshot, samples| samples.add_labeled(&[&snapshot.server], snapshot.sent_profiles),
    ),
    MetricFamily::counter(
        "athanor_agent_retried_profiles_total",
        "Number of profiles in failed requests to a server that are retried",
        &["server"],
        |snapshot, samples| samples.add_labeled(&[&snapshot.server], snapshot.retried_profiles),
    ),
    MetricFamily::counter(
        "athanor_agent_refused_profiles_total",
        "Number of profiles that a server rejected, which are moved to the folder of refused profiles",
        &["server"],
        |snapshot, samples| samples.add_labeled(&[&snapshot.server], snapshot.refused_profiles),
    ),
    MetricFamily::counter(
        "athanor_agent_discarded_refusals_total",
        "Number of files that were removed from the full folder of refused profiles",
        &["server"],
        |snapshot, samples| samples.add_labeled(&[&snapshot.server], snapshot.discarded_refusals),
    ),
    MetricFamily::counter(
        "athanor_agent_dropped_profiles_total",
        "Number of profiles that were dropped and not delivered to a server, by reason",
        &["server", "reason"],
        |snapshot, samples| {
            for (reason, count) in &snapshot.dropped_profiles {
                samples.add_labeled(&[&snapshot.server, reason.name()], *count);
            }
        },
    ),
];

// === impl DropReason ===

impl DropReason {
    /// Returns the reason for an upload that a spool did not store.
    pub fn from_store_error(status: &Status) -> Self {
        match status.code {
            ErrorCode::Exhausted => Self::SpoolFull,
            ErrorCode::TooLarge => Self::TooLarge,
            _ => Self::DiskError,
        }
    }

    /// Returns the name of the reason in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooOld => "too_old",
            Self::Evicted => "evicted",
            Self::SpoolFull => "spool_full",
            Self::DiskError => "disk_error",
            Self::TooLarge => "too_large",
            Self::Damaged => "damaged",
        }
    }
}

// === impl ServerStats ===

impl ServerStats {
    /// Counts profiles that the server acknowledged.
    pub fn record_sent(&self, profiles: u32) {
        self.sent_profiles.fetch_add(profiles.into(), Ordering::Relaxed);
    }

    /// Counts profiles of a failed request that is sent once more.
    pub fn record_retried(&self, profiles: u32) {
        self.retried_profiles.fetch_add(profiles.into(), Ordering::Relaxed);
    }

    /// Counts profiles that the server rejected.
    pub fn record_refused(&self, profiles: u32) {
        self.refused_profiles.fetch_add(profiles.into(), Ordering::Relaxed);
    }

    /// Counts files that were removed from the folder of refused profiles.
    pub fn record_discarded_refusals(&self, files: u64) {
        self.discarded_refusals.fetch_add(files, Ordering::Relaxed);
    }

    /// Counts a damaged file.
    pub fn record_damaged_file(&self) {
        self.damaged_files.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts profiles that were dropped.
    pub fn record_dropped(&self, reason: DropReason, profiles: u32) {
        *self.dropped_profiles.lock().entry(reason).or_default() += u64::from(profiles);
    }

    /// Returns the counters in a snapshot without the state of the spool.
    pub fn snapshot(&self) -> ServerSnapshot {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ServerSnapshot {
            sent_profiles: load(&self.sent_profiles),
            retried_profiles: load(&self.retried_profiles),
            refused_profiles: load(&self.refused_profiles),
            discarded_refusals: load(&self.discarded_refusals),
            damaged_files: load(&self.damaged_files),
            dropped_profiles: self.dropped_profiles.lock().clone(),
            ..ServerSnapshot::default()
        }
    }
}
