//! Results of one kind of a target, and the log lines of their changes.

use std::time::Duration;

use athanor_chassis::Timestamp;

use super::kind_timer::NOT_FOUND_RETRY_AFTER;
use super::outcome::{ScrapeErrorKind, ScrapeReport};
use super::target_status::KindState;
use crate::scrape_target::ScrapeTarget;

/// Results of a kind.
#[derive(Clone, Debug, Default)]
pub(super) struct KindRecord {
    pub(super) state: KindState,
    pub(super) started_at: Option<Timestamp>,
    pub(super) duration: Duration,
    pub(super) bytes: u64,
    pub(super) error: Option<String>,
    pub(super) scrapes: u64,
    pub(super) failures: u64,
}

/// Change of a state that is logged. A state that lasts is logged once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateChange {
    to: KindState,
}

impl KindRecord {
    /// Records a result. Returns the change of the state.
    pub(super) fn update(&mut self, report: &ScrapeReport) -> Option<StateChange> {
        self.scrapes += 1;
        self.started_at = Some(report.started_at);
        self.duration = report.duration;
        let old = self.state;
        match &report.result {
            Ok(bytes) => {
                self.bytes = *bytes;
                self.error = None;
                self.state = KindState::Up;
            }
            Err(error) => {
                self.failures += 1;
                self.error = Some(error.message.clone());
                self.state = match error.kind {
                    ScrapeErrorKind::Busy => KindState::Busy,
                    ScrapeErrorKind::NotFound => KindState::Absent,
                    // The shortage is that of the agent. It tells nothing about the target.
                    ScrapeErrorKind::NoMemory => old,
                    ScrapeErrorKind::Timeout
                    | ScrapeErrorKind::TooLarge
                    | ScrapeErrorKind::NotPprof
                    | ScrapeErrorKind::Failed => KindState::Down,
                };
            }
        }
        let is_first_success = old == KindState::Unknown && self.state == KindState::Up;
        (old != self.state && !is_first_success).then_some(StateChange { to: self.state })
    }
}

impl StateChange {
    /// Logs the change for a kind of a target. `error` is empty after a success.
    pub(super) fn log(self, target: &ScrapeTarget, kind: usize, error: &str) {
        let job = target.job.name.as_str();
        let address = target.address.as_str();
        let name = target.kinds[kind].name.as_str();
        match self.to {
            KindState::Unknown => {}
            KindState::Up => tracing::info!(job, address, kind = name, "scrapes succeed again"),
            KindState::Busy => tracing::info!(job, address, kind = name, error, "target is busy"),
            KindState::Absent => {
                let minutes = NOT_FOUND_RETRY_AFTER.as_secs() / 60;
                tracing::warn!(
                    job,
                    address,
                    kind = name,
                    error,
                    retry_minutes = minutes,
                    "target does not serve a profile kind"
                );
            }
            KindState::Down => tracing::warn!(job, address, kind = name, error, "failed to scrape target"),
        }
    }
}
