//! Target in the schedule: its kinds, their timers, and the scrape that runs.

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::scrape_target::ScrapeTarget;

use super::kind_record::KindRecord;
use super::kind_timer::{KindTimer, ScheduleEpoch};
use super::plan::{TargetKey, plan_target};
use super::target_status::{KindState, KindStatus, TargetStatus};

/// Target in the list that it belongs to. The list is shared, so a target has no copy of its settings.
#[derive(Clone, Debug)]
pub struct TargetRef {
    pub(super) list: Arc<Vec<ScrapeTarget>>,
    pub(super) index: usize,
}

/// Target with the state of its scrapes.
pub(super) struct TargetEntry {
    pub(super) target: TargetRef,
    /// In the order of the kinds of the target.
    pub(super) kinds: Vec<KindEntry>,
    pub(super) flight: Option<RunningScrape>,
    /// Time for which the target is in the timer queue.
    pub(super) timer: Option<Duration>,
    /// Number of the last list that had the target.
    pub(super) last_list: u64,
}

/// Kind of a target with the state of its scrapes.
pub(super) struct KindEntry {
    pub(super) timer: KindTimer,
    pub(super) record: KindRecord,
    /// Number of profiles on their way to the spool.
    pub(super) stores: u8,
}

/// Scrape that runs.
pub(super) struct RunningScrape {
    pub(super) id: u64,
    pub(super) kind: usize,
    pub(super) cancel: CancellationToken,
}

impl TargetRef {
    /// The target.
    pub fn get(&self) -> &ScrapeTarget {
        &self.list[self.index]
    }
}

impl TargetEntry {
    pub(super) fn new(key: TargetKey, target: TargetRef, epoch: &ScheduleEpoch, now: Duration) -> Self {
        let slots = plan_target(key, target.get());
        let kinds =
            slots.into_iter().map(|slot| KindEntry::new(KindTimer::new(slot, epoch.first_due(&slot, now))));
        let kinds = kinds.collect();
        Self { target, kinds, flight: None, timer: None, last_list: 0 }
    }

    /// Replaces the settings. Kinds with the same settings and slot keep their state and their times, and so
    /// does their running scrape.
    pub(super) fn update(&mut self, key: TargetKey, target: TargetRef, epoch: &ScheduleEpoch, now: Duration) {
        let old_target = std::mem::replace(&mut self.target, target);
        if old_target.get() == self.target.get() {
            return;
        }
        let old_kinds = &old_target.get().kinds;
        let running_kind = self.flight.as_ref().map(|flight| flight.kind);
        let mut new_running_kind = None;
        let slots = plan_target(key, self.target.get());
        let mut old_entries: Vec<Option<KindEntry>> = self.kinds.drain(..).map(Some).collect();
        for (index, slot) in slots.into_iter().enumerate() {
            let kind = &self.target.get().kinds[index];
            let old_index = old_kinds.iter().position(|old| old.name == kind.name);
            let old = old_index.and_then(|index| old_entries[index].take());
            let stores = old.as_ref().map_or(0, |old| old.stores);
            let old = old.filter(|old| old.timer.slot == slot);
            let is_same = old_index.is_some_and(|index| old_kinds[index] == *kind);
            let entry = match old {
                Some(old) if is_same => {
                    if old_index == running_kind {
                        new_running_kind = Some(index);
                    }
                    old
                }
                // The old reason for a delay may not hold with the new settings.
                _ => {
                    let timer = KindTimer::new(slot, epoch.first_due(&slot, now));
                    KindEntry { stores, ..KindEntry::new(timer) }
                }
            };
            self.kinds.push(entry);
        }
        match (new_running_kind, &mut self.flight) {
            (Some(kind), Some(flight)) => flight.kind = kind,
            (None, flight) => {
                if let Some(flight) = flight.take() {
                    flight.cancel.cancel();
                }
            }
            (Some(_), None) => {}
        }
    }

    /// Returns the kind with the earliest attempt, and the time of the attempt.
    pub(super) fn next_attempt(&self) -> Option<(usize, Duration)> {
        let attempts = self.kinds.iter().enumerate();
        attempts.map(|(index, kind)| (index, kind.timer.next_attempt())).min_by_key(|(_, attempt)| *attempt)
    }

    /// State of the target: that of its worst kind.
    pub(super) fn state(&self) -> KindState {
        let states = || self.kinds.iter().map(|kind| kind.record.state);
        let worst = [KindState::Down, KindState::Busy, KindState::Up];
        let found = worst.into_iter().find(|&state| states().any(|other| other == state));
        match found {
            Some(state) => state,
            None if states().any(|state| state == KindState::Unknown) => KindState::Unknown,
            None if self.kinds.is_empty() => KindState::Unknown,
            None => KindState::Absent,
        }
    }

    pub(super) fn status(&self, now: Duration, wall: Timestamp) -> TargetStatus {
        let target = self.target.get();
        let kinds = self.kinds.iter().zip(&target.kinds).enumerate();
        let kinds = kinds.map(|(index, (entry, kind))| KindStatus {
            name: kind.name.clone(),
            path: kind.path.clone(),
            state: entry.record.state,
            is_running: self.flight.as_ref().is_some_and(|flight| flight.kind == index),
            last_scrape: entry.record.started_at,
            last_duration: entry.record.duration,
            last_bytes: entry.record.bytes,
            error: entry.record.error.clone(),
            next_scrape: wall.plus(entry.timer.next_attempt().saturating_sub(now)),
            seconds: entry.timer.slot.seconds,
            scrapes: entry.record.scrapes,
            failures: entry.record.failures,
        });
        TargetStatus {
            job: target.job.name.clone(),
            scheme: target.scheme.clone(),
            address: target.address.clone(),
            labels: target.labels.clone(),
            discovered: target.discovered.clone(),
            state: self.state(),
            kinds: kinds.collect(),
        }
    }
}

impl KindEntry {
    fn new(timer: KindTimer) -> Self {
        Self { timer, record: KindRecord::default(), stores: 0 }
    }
}
