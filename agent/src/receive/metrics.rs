//! Metrics of the receiver.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_chassis::observability::histogram::{Histogram, HistogramSnapshot};
use athanor_chassis::observability::metric_family::MetricFamily;

/// Form of received requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveForm {
    /// push.v1.
    Push,
    /// `/ingest`.
    Ingest,
    /// OpenTelemetry export.
    Otlp,
}

/// Outcome of received requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveOutcome {
    /// The profiles are durable.
    Stored,
    /// The spool is full, or too many requests are open.
    Exhausted,
    /// The request is invalid.
    Refused,
    /// The agent failed.
    Failed,
}

/// Counters of a receiver.
#[derive(Debug)]
pub(super) struct ReceiveCounters {
    requests: [[AtomicU64; ReceiveOutcome::ALL.len()]; ReceiveForm::ALL.len()],
    profiles: [AtomicU64; ReceiveForm::ALL.len()],
    bytes: [AtomicU64; ReceiveForm::ALL.len()],
    durations: Histogram,
}

/// Snapshot of the counters of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveStats {
    /// Number of requests by form and outcome.
    pub requests: Vec<(ReceiveForm, ReceiveOutcome, u64)>,
    /// Number of profiles in stored uploads by form.
    pub profiles: Vec<(ReceiveForm, u64)>,
    /// Bytes of stored uploads by form.
    pub bytes: Vec<(ReceiveForm, u64)>,
    /// Number of profiles that got a time because they had neither an id nor a time.
    pub given_identities: u64,
    /// Time from the head of a request to its response.
    pub durations: HistogramSnapshot,
}

/// Metrics of the receiver.
pub const RECEIVE_METRICS: &[MetricFamily<ReceiveStats>] = &[
    MetricFamily::counter(
        "athanor_agent_received_requests_total",
        "Number of requests of clients by form and outcome",
        &["form", "outcome"],
        |stats, samples| {
            for (form, outcome, count) in &stats.requests {
                samples.add_labeled(&[form.name(), outcome.name()], *count);
            }
        },
    ),
    MetricFamily::counter(
        "athanor_agent_received_profiles_total",
        "Number of profiles that clients pushed and the spool accepted",
        &["form"],
        |stats, samples| {
            for (form, count) in &stats.profiles {
                samples.add_labeled(&[form.name()], *count);
            }
        },
    ),
    MetricFamily::counter(
        "athanor_agent_received_bytes_total",
        "Bytes of uploads that clients pushed and the spool accepted",
        &["form"],
        |stats, samples| {
            for (form, count) in &stats.bytes {
                samples.add_labeled(&[form.name()], *count);
            }
        },
    ),
    MetricFamily::counter(
        "athanor_agent_received_profiles_without_identity_total",
        "Number of received profiles with neither an id nor a time, to which the agent gave them",
        &[],
        |stats, samples| samples.add(stats.given_identities),
    ),
    MetricFamily::histogram(
        "athanor_agent_receive_duration_seconds",
        "Time from the head of a request of a client to the response, with the sync of the spool",
        &[],
        |stats, samples| samples.add_durations(&[], &stats.durations),
    ),
];

impl ReceiveForm {
    /// All forms.
    pub const ALL: [Self; 3] = [Self::Push, Self::Ingest, Self::Otlp];

    /// Returns the value of the label `form`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Ingest => "ingest",
            Self::Otlp => "otlp",
        }
    }
}

impl ReceiveOutcome {
    /// All outcomes.
    pub const ALL: [Self; 4] = [Self::Stored, Self::Exhausted, Self::Refused, Self::Failed];

    /// Returns the value of the label `outcome`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Exhausted => "exhausted",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }

    /// Returns the outcome of a response with an HTTP status.
    pub(super) fn from_http_status(status: u16) -> Self {
        match status {
            200..300 => Self::Stored,
            429 | 503 => Self::Exhausted,
            400..500 => Self::Refused,
            _ => Self::Failed,
        }
    }
}

impl ReceiveCounters {
    pub(super) fn new() -> Self {
        Self {
            requests: Default::default(),
            profiles: Default::default(),
            bytes: Default::default(),
            durations: Histogram::for_durations(),
        }
    }

    pub(super) fn record_request(&self, form: ReceiveForm, outcome: ReceiveOutcome, duration: Duration) {
        self.requests[form as usize][outcome as usize].fetch_add(1, Ordering::Relaxed);
        self.durations.record_duration(duration);
    }

    pub(super) fn record_upload(&self, form: ReceiveForm, profiles: u32, bytes: usize) {
        self.profiles[form as usize].fetch_add(profiles.into(), Ordering::Relaxed);
        self.bytes[form as usize].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self, given_identities: u64) -> ReceiveStats {
        let by_form = |counts: &[AtomicU64]| {
            ReceiveForm::ALL
                .into_iter()
                .zip(counts.iter().map(|count| count.load(Ordering::Relaxed)))
                .collect()
        };
        let requests = ReceiveForm::ALL.into_iter().flat_map(|form| {
            ReceiveOutcome::ALL.into_iter().map(move |outcome| {
                (form, outcome, self.requests[form as usize][outcome as usize].load(Ordering::Relaxed))
            })
        });
        ReceiveStats {
            requests: requests.collect(),
            profiles: by_form(&self.profiles),
            bytes: by_form(&self.bytes),
            given_identities,
            durations: self.durations.snapshot(),
        }
    }
}
