//! Schedule of all scrapes, as a state machine without I/O.
//!
//! ```text
//!  target list ─► set_targets ─► timer queue ─► start_due ─► ScrapeOrder ─► finish ─► timer queue
//! ```
//!
//! The queue has one timer per target: that of its earliest kind. A target with a running scrape has none, so its
//! kinds never overlap. Targets do not wait for each other.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{Clock, Timestamp};
use athanor_profile::encoding::hash::PrehashedMap;
use tokio_util::sync::CancellationToken;

use crate::scrape_target::{ProfileKind, ScrapeTarget};

use super::kind_timer::ScheduleEpoch;
use super::outcome::{ScrapeErrorKind, ScrapeReport};
use super::plan::{TargetKey, kinds_key, target_key};
use super::target_entry::{RunningScrape, TargetEntry, TargetRef};
use super::target_status::{KindState, TargetStatus};

/// Delay from which a scrape counts as late.
const LATE_AFTER: Duration = Duration::from_secs(1);

/// Maximum number of profiles of a cumulative kind on their way to the spool: uploads of a series must be in order.
const MAX_CUMULATIVE_STORES: u8 = 1;
/// Maximum number of those of other kinds. A recording that fills its interval does not wait for the one before it.
const MAX_DELTA_STORES: u8 = 2;

/// Schedule of all scrapes.
pub(super) struct ScrapeSchedule {
    epoch: ScheduleEpoch,
    targets: PrehashedMap<TargetKey, TargetEntry>,
    queue: BinaryHeap<Reverse<QueuedTimer>>,
    lists: u64,
    next_id: u64,
    pub(super) counts: ScheduleCounts,
}

/// Counters of the schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ScheduleCounts {
    pub(super) scrapes: u64,
    pub(super) late: u64,
    pub(super) missed: u64,
    pub(super) failures: [u64; ScrapeErrorKind::ALL.len()],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueuedTimer {
    at: Duration,
    key: TargetKey,
}

/// Running scrape, by which its result finds the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScrapeId {
    key: TargetKey,
    id: u64,
}

/// Scrape to start.
#[derive(Clone, Debug)]
pub struct ScrapeOrder {
    pub(super) id: ScrapeId,
    /// Target.
    pub target: TargetRef,
    pub(super) kind: usize,
    /// Seconds that the target records. Fewer than configured after a late start.
    pub seconds: Option<u32>,
    /// Time until the whole response must have arrived.
    pub limit: Duration,
    pub(super) cancel: CancellationToken,
}

impl ScrapeOrder {
    /// Kind that is scraped.
    pub fn kind(&self) -> &ProfileKind {
        &self.target.get().kinds[self.kind]
    }
}

impl ScrapeSchedule {
    pub(super) fn new(clock: &Clock) -> Self {
        Self {
            epoch: ScheduleEpoch::new(clock),
            targets: PrehashedMap::default(),
            queue: BinaryHeap::new(),
            lists: 0,
            next_id: 0,
            counts: ScheduleCounts::default(),
        }
    }

    /// Replaces the targets. Targets and kinds that did not change keep their times and running scrapes. Running
    /// scrapes of all others are cancelled. Of equal targets the first counts. Targets with equal labels and different
    /// kinds are scraped independently.
    pub(super) fn set_targets(&mut self, list: &Arc<Vec<ScrapeTarget>>, now: Duration) {
        self.lists += 1;
        for (index, target) in list.iter().enumerate() {
            let key = self.unused_key(target);
            let target = TargetRef { list: Arc::clone(list), index };
            match self.targets.get_mut(&key) {
                Some(entry) if entry.last_list == self.lists => continue,
                Some(entry) => entry.update(key, target, &self.epoch, now),
                None => {
                    let entry = TargetEntry::new(key, target, &self.epoch, now);
                    self.targets.insert(key, entry);
                }
            }
            if let Some(entry) = self.targets.get_mut(&key) {
                entry.last_list = self.lists;
            }
        }
        let current = self.lists;
        self.targets.retain(|_, entry| {
            let is_kept = entry.last_list == current;
            if let (false, Some(flight)) = (is_kept, &entry.flight) {
                flight.cancel.cancel();
            }
            is_kept
        });
        // The queue is built anew, so it never has more timers than targets.
        self.queue.clear();
        for (key, entry) in &mut self.targets {
            entry.timer = None;
            arm_timer(&mut self.queue, *key, entry);
        }
    }

    /// Returns the key of a target of the current list. It contains the kinds if a target before it in the list has
    /// the same labels and other kinds.
    fn unused_key(&self, target: &ScrapeTarget) -> TargetKey {
        let key = target_key(target);
        let first = self.targets.get(&key).filter(|entry| entry.last_list == self.lists);
        match first {
            Some(entry) if entry.target.get().kinds != target.kinds => kinds_key(key, &target.kinds),
            _ => key,
        }
    }

    /// Time of the next scrape that is due.
    pub(super) fn next_wake(&self) -> Option<Duration> {
        self.queue.peek().map(|Reverse(timer)| timer.at)
    }

    /// Starts all scrapes that are due.
    pub(super) fn start_due(&mut self, now: Duration) -> Vec<ScrapeOrder> {
        let mut orders = Vec::new();
        while let Some(Reverse(timer)) = self.queue.peek().copied()
            && timer.at <= now
        {
            self.queue.pop();
            let Some(entry) = self.targets.get_mut(&timer.key) else { continue };
            if entry.timer.take() != Some(timer.at) || entry.flight.is_some() {
                continue;
            }
            let Some(kind) = pick_due_kind(entry, now, &mut self.counts.missed) else {
                arm_timer(&mut self.queue, timer.key, entry);
                continue;
            };
            let timeout = entry.target.get().job.timeout;
            let bounds = entry.kinds[kind].timer.bounds(now, timeout);
            self.counts.late += u64::from(bounds.delay > LATE_AFTER);
            let id = ScrapeId { key: timer.key, id: self.next_id };
            self.next_id += 1;
            let cancel = CancellationToken::new();
            entry.flight = Some(RunningScrape { id: id.id, kind, cancel: cancel.clone() });
            orders.push(ScrapeOrder {
                id,
                target: entry.target.clone(),
                kind,
                seconds: bounds.seconds,
                limit: bounds.limit,
                cancel,
            });
        }
        orders
    }

    /// Records the result of a scrape and plans the next one. Returns whether the scrape counts: not if it was
    /// cancelled meanwhile. A profile that counts is being stored until [`finish_store`](Self::finish_store).
    pub(super) fn finish(&mut self, id: ScrapeId, report: &ScrapeReport, now: Duration) -> bool {
        let Some(entry) = self.targets.get_mut(&id.key) else { return false };
        let Some(flight) = entry.flight.take_if(|flight| flight.id == id.id) else { return false };
        let kind = &mut entry.kinds[flight.kind];
        self.counts.scrapes += 1;
        if let Err(error) = &report.result {
            self.counts.failures[error.kind as usize] += 1;
        }
        kind.timer.plan_next(report.result.as_ref().map(|_| ()), now);
        kind.stores += u8::from(report.result.is_ok());
        let change = kind.record.update(report);
        if let Some(change) = change {
            let error = entry.kinds[flight.kind].record.error.as_deref().unwrap_or_default();
            change.log(entry.target.get(), flight.kind, error);
        }
        arm_timer(&mut self.queue, id.key, entry);
        true
    }

    /// Allows further scrapes of a kind after its profile was stored.
    pub(super) fn finish_store(&mut self, order: &ScrapeOrder) {
        let Some(entry) = self.targets.get_mut(&order.id.key) else { return };
        let name = &order.kind().name;
        let kind = entry.target.get().kinds.iter().position(|kind| kind.name == *name);
        if let Some(kind) = kind {
            let stores = &mut entry.kinds[kind].stores;
            *stores = stores.saturating_sub(1);
        }
    }

    /// Returns the states of all targets, ordered by job and address.
    pub(super) fn statuses(&self, now: Duration, wall: Timestamp) -> Vec<TargetStatus> {
        let mut statuses: Vec<TargetStatus> =
            self.targets.values().map(|entry| entry.status(now, wall)).collect();
        statuses.sort_by(|left, right| {
            let place = |status: &TargetStatus| (status.job.clone(), status.address.clone());
            place(left).cmp(&place(right)).then_with(|| left.labels.cmp(&right.labels))
        });
        statuses
    }

    /// Number of targets by state, in the order of [`KindState::ALL`].
    pub(super) fn count_states(&self) -> [u64; KindState::ALL.len()] {
        let mut counts = [0; KindState::ALL.len()];
        for entry in self.targets.values() {
            counts[entry.state() as usize] += 1;
        }
        counts
    }

    /// Number of running scrapes.
    pub(super) fn running_scrapes(&self) -> usize {
        self.targets.values().filter(|entry| entry.flight.is_some()).count()
    }

    /// Number of timers in the queue.
    #[cfg(test)]
    pub(super) fn queued_timers(&self) -> usize {
        self.queue.len()
    }
}

/// Returns the kind that waits longest. Occurrences of it that have no time left are missed, and so is one whose
/// profiles are not stored yet.
fn pick_due_kind(entry: &mut TargetEntry, now: Duration, missed: &mut u64) -> Option<usize> {
    // Each pass ends the wait of one kind.
    loop {
        let (index, attempt) = entry.next_attempt()?;
        if attempt > now {
            return None;
        }
        let is_cumulative = entry.target.get().kinds[index].is_cumulative;
        let max_stores = if is_cumulative { MAX_CUMULATIVE_STORES } else { MAX_DELTA_STORES };
        let kind = &mut entry.kinds[index];
        *missed += kind.timer.skip_missed(now);
        if kind.stores >= max_stores && kind.timer.next_attempt() <= now {
            kind.timer.skip();
            *missed += 1;
        }
        if kind.timer.next_attempt() <= now {
            return Some(index);
        }
    }
}

/// Puts a target into the queue, unless a scrape runs.
fn arm_timer(queue: &mut BinaryHeap<Reverse<QueuedTimer>>, key: TargetKey, entry: &mut TargetEntry) {
    if entry.flight.is_some() {
        return;
    }
    let Some((_, at)) = entry.next_attempt() else { return };
    if entry.timer != Some(at) {
        entry.timer = Some(at);
        queue.push(Reverse(QueuedTimer { at, key }));
    }
}

#[cfg(test)]
#[path = "tests/schedule_tests.rs"]
mod tests;
