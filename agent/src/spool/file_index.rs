//! Files of a spool in memory, with the queues of delivery.
//!
//! ```text
//!              ┌─► fresh: young and never sent ──┐ aged
//!  new file ───┤                                 ▼
//!              ├─► backlog ◄── delayed ◄── failed attempts
//!              └─► lane of cumulative files: first one only, one in flight
//! ```
//!
//! A lane has the files of one tenant, route and origin, so no tenant or client waits for a file of another one.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::file_name::{OrderClass, RouteKind, SpoolFileName, TenantHash};
use crate::upload::UploadOrigin;

/// Unit in which a file occupies the disk.
const DISK_BLOCK_BYTES: u64 = 4096;
/// Maximum number of tenants whose delays are remembered. At the limit the one that ends first is forgotten.
const MAX_PAUSED_TENANTS: usize = 1000;
/// Age at which a file that was never sent becomes part of the backlog.
const MAX_FRESH_AGE: Duration = Duration::from_secs(30);

/// Queue of delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeliveryQueue {
    /// Files of delta profiles that are young and were never sent.
    Fresh,
    /// Other files of delta profiles.
    Backlog,
    /// Files of cumulative profiles, in order within each lane.
    Cumulative,
}

/// File in the spool folder.
#[derive(Clone, Copy, Debug)]
pub struct SpoolEntry {
    /// Name of the file.
    pub name: SpoolFileName,
    /// Size in bytes.
    pub bytes: u64,
    /// Monotonic time of its creation. None if an earlier process wrote the file.
    pub stored_at: Option<Duration>,
    /// Failed attempts of this process to deliver it.
    pub failures: u32,
    is_in_flight: bool,
    not_before: Duration,
}

/// Identity of a lane. All files of a series are in one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LaneKey {
    tenant: TenantHash,
    route: RouteKind,
    is_scraped: bool,
    lane: u8,
}

/// Cumulative files of one lane.
#[derive(Debug, Default)]
struct CumulativeLane {
    files: BTreeSet<u64>,
    is_in_flight: bool,
    not_before: Duration,
}

/// All files of a spool folder by sequence number.
#[derive(Debug)]
pub(super) struct FileIndex {
    entries: BTreeMap<u64, SpoolEntry>,
    /// Bytes that all files occupy.
    bytes: u64,
    fresh: BTreeSet<u64>,
    backlog: BTreeSet<u64>,
    delayed: BTreeSet<(Duration, u64)>,
    /// Lanes with files.
    lanes: BTreeMap<LaneKey, CumulativeLane>,
    /// Tenants of which no file is taken before a time.
    paused_tenants: BTreeMap<TenantHash, Duration>,
    /// Scraped files that are not in flight.
    evictable: BTreeSet<u64>,
    evictable_bytes: u64,
    /// Files that are not sent any more, but were not unlinked yet because of an error.
    undeleted: BTreeSet<u64>,
}

/// Returns the bytes of the disk that a file of the given size occupies.
pub(super) fn occupied_bytes(file_bytes: u64) -> u64 {
    file_bytes.div_ceil(DISK_BLOCK_BYTES).saturating_mul(DISK_BLOCK_BYTES)
}

// === impl SpoolEntry ===

impl SpoolEntry {
    /// Creates an entry of a file.
    pub(super) fn new(name: SpoolFileName, bytes: u64, stored_at: Option<Duration>) -> Self {
        Self { name, bytes, stored_at, failures: 0, is_in_flight: false, not_before: Duration::ZERO }
    }
}

// === impl LaneKey ===

impl LaneKey {
    /// Returns the lane of a file. None if its profiles may be delivered in any order.
    fn from_name(name: &SpoolFileName) -> Option<Self> {
        let OrderClass::Cumulative { lane } = name.order else { return None };
        let is_scraped = name.origin == UploadOrigin::Scraped;
        Some(Self { tenant: name.tenant, route: name.route, is_scraped, lane })
    }
}

// === impl FileIndex ===

impl FileIndex {
    /// Creates an empty index.
    pub(super) fn new() -> Self {
        Self {
            entries: BTreeMap::new(),
            bytes: 0,
            fresh: BTreeSet::new(),
            backlog: BTreeSet::new(),
            delayed: BTreeSet::new(),
            lanes: BTreeMap::new(),
            paused_tenants: BTreeMap::new(),
            evictable: BTreeSet::new(),
            evictable_bytes: 0,
            undeleted: BTreeSet::new(),
        }
    }

    /// Adds a file to its queue.
    pub(super) fn insert(&mut self, entry: SpoolEntry) {
        let sequence = entry.name.sequence;
        self.bytes += occupied_bytes(entry.bytes);
        match LaneKey::from_name(&entry.name) {
            Some(lane) => drop(self.lanes.entry(lane).or_default().files.insert(sequence)),
            None if entry.stored_at.is_some() => drop(self.fresh.insert(sequence)),
            None => drop(self.backlog.insert(sequence)),
        }
        self.allow_eviction(&entry);
        self.entries.insert(sequence, entry);
    }

    /// Takes the next file of a queue and marks it as in flight.
    pub(super) fn take(&mut self, queue: DeliveryQueue, now: Duration) -> Option<SpoolEntry> {
        self.move_aged_files(now);
        let sequence = match queue {
            DeliveryQueue::Fresh | DeliveryQueue::Backlog => self.take_delta(queue, now)?,
            DeliveryQueue::Cumulative => self.take_from_lanes(now)?,
        };
        let entry = self.entries.get_mut(&sequence)?;
        entry.is_in_flight = true;
        let taken = *entry;
        self.forbid_eviction(&taken);
        Some(taken)
    }

    /// Returns a file in flight to its queue. It is not taken before `delay` has passed.
    pub(super) fn release(&mut self, sequence: u64, delay: Duration, now: Duration) {
        let Some(entry) = self.entries.get_mut(&sequence) else { return };
        entry.is_in_flight = false;
        entry.failures = entry.failures.saturating_add(1);
        let not_before = now.saturating_add(delay);
        entry.not_before = not_before;
        let entry = *entry;
        self.allow_eviction(&entry);
        match LaneKey::from_name(&entry.name) {
            None => drop(self.delayed.insert((not_before, sequence))),
            Some(lane) => {
                let lane = self.lanes.entry(lane).or_default();
                lane.is_in_flight = false;
                lane.not_before = not_before;
            }
        }
    }

    /// Takes no file of a tenant before `delay` has passed.
    pub(super) fn pause_tenant(&mut self, tenant: TenantHash, delay: Duration, now: Duration) {
        self.paused_tenants.retain(|_, until| *until > now);
        let until = now.saturating_add(delay);
        let paused = self.paused_tenants.entry(tenant).or_default();
        *paused = until.max(*paused);
        if self.paused_tenants.len() > MAX_PAUSED_TENANTS {
            let first = self.paused_tenants.iter().min_by_key(|(_, until)| **until);
            if let Some(tenant) = first.map(|(tenant, _)| *tenant) {
                self.paused_tenants.remove(&tenant);
            }
        }
    }

    /// Removes a file that is in flight.
    pub(super) fn remove(&mut self, sequence: u64) -> Option<SpoolEntry> {
        let entry = self.entries.remove(&sequence)?;
        self.bytes -= occupied_bytes(entry.bytes);
        self.forbid_eviction(&entry);
        match LaneKey::from_name(&entry.name) {
            None => {
                self.fresh.remove(&sequence);
                self.backlog.remove(&sequence);
                self.delayed.remove(&(entry.not_before, sequence));
            }
            Some(key) => {
                let lane = self.lanes.entry(key).or_default();
                lane.files.remove(&sequence);
                lane.is_in_flight &= !entry.is_in_flight;
                if lane.files.is_empty() {
                    self.lanes.remove(&key);
                }
            }
        }
        Some(entry)
    }

    /// Removes the oldest scraped file that is not in flight.
    pub(super) fn evict_oldest(&mut self) -> Option<SpoolEntry> {
        let sequence = *self.evictable.first()?;
        self.remove(sequence)
    }

    /// Returns the bytes that the files occupy that may be evicted now.
    pub(super) fn evictable_bytes(&self) -> u64 {
        self.evictable_bytes
    }

    /// Keeps a removed file in the bounds, because it is still on the disk. It is not taken again.
    pub(super) fn keep_undeleted(&mut self, entry: SpoolEntry) {
        self.bytes += occupied_bytes(entry.bytes);
        self.undeleted.insert(entry.name.sequence);
        self.entries.insert(entry.name.sequence, entry);
    }

    /// Returns the removed files that are still on the disk.
    pub(super) fn undeleted(&self) -> Vec<SpoolEntry> {
        self.undeleted.iter().filter_map(|sequence| self.entries.get(sequence)).copied().collect()
    }

    /// Removes a removed file from the bounds, because it is not on the disk any more.
    pub(super) fn end_undeleted(&mut self, sequence: u64) {
        if self.undeleted.remove(&sequence)
            && let Some(entry) = self.entries.remove(&sequence)
        {
            self.bytes -= occupied_bytes(entry.bytes);
        }
    }

    /// Returns the next time after `now` at which a delayed file may be taken.
    pub(super) fn next_due(&self, now: Duration) -> Option<Duration> {
        let delayed = self.delayed.iter().map(|(not_before, _)| *not_before).find(|at| *at > now);
        let waiting = self.lanes.iter().filter(|(_, lane)| !lane.is_in_flight);
        let lanes_due = waiting.map(|(key, lane)| lane.not_before.max(self.paused_until(key.tenant)));
        lanes_due.filter(|at| *at > now).chain(delayed).min()
    }

    /// Ends the delays of all files and tenants.
    pub(super) fn end_delays(&mut self, now: Duration) {
        self.paused_tenants.clear();
        self.backlog.extend(std::mem::take(&mut self.delayed).into_iter().map(|(_, sequence)| sequence));
        self.end_lane_delays(now);
    }

    /// Ends the delays of cumulative files.
    pub(super) fn end_lane_delays(&mut self, now: Duration) {
        for lane in self.lanes.values_mut() {
            lane.not_before = lane.not_before.min(now);
        }
    }

    /// Returns the bytes that all files occupy.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the oldest file that is not delivered.
    pub(super) fn oldest(&self) -> Option<&SpoolEntry> {
        self.entries.values().find(|entry| !self.undeleted.contains(&entry.name.sequence))
    }

    /// Returns whether all files are delivered.
    pub(super) fn is_idle(&self) -> bool {
        self.entries.len() == self.undeleted.len()
    }

    /// Returns whether a file has the number.
    pub(super) fn contains(&self, sequence: u64) -> bool {
        self.entries.contains_key(&sequence)
    }

    /// Returns the number of files.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    fn allow_eviction(&mut self, entry: &SpoolEntry) {
        let is_scraped = entry.name.origin == UploadOrigin::Scraped;
        if is_scraped && self.evictable.insert(entry.name.sequence) {
            self.evictable_bytes += occupied_bytes(entry.bytes);
        }
    }

    fn forbid_eviction(&mut self, entry: &SpoolEntry) {
        if self.evictable.remove(&entry.name.sequence) {
            self.evictable_bytes -= occupied_bytes(entry.bytes);
        }
    }

    /// Takes the first file of a tenant that is not paused. Files of paused tenants become part of the backlog
    /// after the delay.
    fn take_delta(&mut self, queue: DeliveryQueue, now: Duration) -> Option<u64> {
        loop {
            let files = if queue == DeliveryQueue::Fresh { &mut self.fresh } else { &mut self.backlog };
            let sequence = files.pop_first()?;
            let Some(tenant) = self.entries.get(&sequence).map(|entry| entry.name.tenant) else { continue };
            let paused_until = self.paused_until(tenant);
            if paused_until <= now {
                return Some(sequence);
            }
            if let Some(entry) = self.entries.get_mut(&sequence) {
                entry.not_before = paused_until;
            }
            self.delayed.insert((paused_until, sequence));
        }
    }

    fn take_from_lanes(&mut self, now: Duration) -> Option<u64> {
        let paused = &self.paused_tenants;
        let ready = |(key, lane): &(&LaneKey, &mut CumulativeLane)| {
            let is_paused = paused.get(&key.tenant).is_some_and(|until| *until > now);
            !lane.is_in_flight && lane.not_before <= now && !is_paused
        };
        let lanes = self.lanes.iter_mut().filter(ready);
        let (_, lane) = lanes.min_by_key(|(_, lane)| lane.files.first().copied().unwrap_or(u64::MAX))?;
        let first = *lane.files.first()?;
        lane.is_in_flight = true;
        Some(first)
    }

    fn paused_until(&self, tenant: TenantHash) -> Duration {
        self.paused_tenants.get(&tenant).copied().unwrap_or_default()
    }

    /// Moves files that are not fresh any more, or whose delay has passed, to the backlog.
    fn move_aged_files(&mut self, now: Duration) {
        while let Some((not_before, sequence)) = self.delayed.first().copied()
            && not_before <= now
        {
            self.delayed.pop_first();
            self.backlog.insert(sequence);
        }
        while let Some(sequence) = self.fresh.first().copied() {
            let stored_at = self.entries.get(&sequence).and_then(|entry| entry.stored_at).unwrap_or_default();
            if stored_at.saturating_add(MAX_FRESH_AGE) > now {
                break;
            }
            self.fresh.pop_first();
            self.backlog.insert(sequence);
        }
    }
}
