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

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn entry(sequence: u64, order: OrderClass, stored_at: Option<Duration>) -> SpoolEntry {
        let name = SpoolFileName {
            sequence,
            origin: UploadOrigin::Scraped,
            route: RouteKind::Push,
            order,
            tenant: TenantHash::from_tenant(None),
            profiles: 1,
            time_millis: 0,
        };
        SpoolEntry::new(name, 10, stored_at)
    }

    fn taken(index: &mut FileIndex, queue: DeliveryQueue, now: Duration) -> Option<u64> {
        index.take(queue, now).map(|entry| entry.name.sequence)
    }

    #[test]
    fn fresh_files_become_backlog_with_age_and_failure() {
        let mut index = FileIndex::new();
        index.insert(entry(1, OrderClass::Independent, None));
        index.insert(entry(2, OrderClass::Independent, Some(SECOND)));
        index.insert(entry(3, OrderClass::Independent, Some(2 * SECOND)));
        assert_eq!(taken(&mut index, DeliveryQueue::Fresh, 2 * SECOND), Some(2));
        index.release(2, 5 * SECOND, 2 * SECOND);
        assert_eq!(index.next_due(2 * SECOND), Some(7 * SECOND));
        assert_eq!(taken(&mut index, DeliveryQueue::Backlog, 6 * SECOND), Some(1));
        assert_eq!(taken(&mut index, DeliveryQueue::Backlog, 6 * SECOND), None);
        assert_eq!(taken(&mut index, DeliveryQueue::Backlog, 7 * SECOND), Some(2));
        assert_eq!(taken(&mut index, DeliveryQueue::Fresh, 32 * SECOND), None);
        assert_eq!(taken(&mut index, DeliveryQueue::Backlog, 32 * SECOND), Some(3));
        assert_eq!((index.len(), index.bytes()), (3, 3 * DISK_BLOCK_BYTES));
    }

    #[test]
    fn lane_has_one_file_in_flight_and_retries_it_first() {
        let mut index = FileIndex::new();
        let lane = OrderClass::Cumulative { lane: 1 };
        index.insert(entry(1, lane, None));
        index.insert(entry(2, lane, Some(SECOND)));
        index.insert(entry(3, OrderClass::Cumulative { lane: 2 }, Some(SECOND)));
        assert_eq!(taken(&mut index, DeliveryQueue::Cumulative, SECOND), Some(1));
        assert_eq!(taken(&mut index, DeliveryQueue::Cumulative, SECOND), Some(3));
        assert_eq!(taken(&mut index, DeliveryQueue::Cumulative, SECOND), None);
        index.release(1, SECOND, SECOND);
        assert_eq!(taken(&mut index, DeliveryQueue::Cumulative, SECOND), None);
        assert_eq!(taken(&mut index, DeliveryQueue::Cumulative, 2 * SECOND), Some(1));
        assert_eq!(index.remove(1).unwrap().failures, 1);
        assert_eq!(taken(&mut index, DeliveryQueue::Cumulative, 2 * SECOND), Some(2));
    }

    #[test]
    fn delayed_file_holds_up_only_its_tenant_route_origin_and_lane() {
        let order = OrderClass::Cumulative { lane: 1 };
        let changes: [fn(&mut SpoolFileName); 5] = [
            |name| name.tenant = TenantHash::from_tenant(Some(&"team-a".parse().unwrap())),
            |name| name.route = RouteKind::Otlp,
            |name| name.origin = UploadOrigin::Received,
            |name| name.order = OrderClass::Cumulative { lane: 2 },
            |_| {},
        ];
        let mut index = FileIndex::new();
        index.insert(entry(0, order, None));
        assert_eq!(taken(&mut index, DeliveryQueue::Cumulative, SECOND), Some(0));
        index.release(0, 60 * SECOND, SECOND);
        for (sequence, change) in (1..).zip(changes) {
            let mut other = entry(sequence, order, None);
            change(&mut other.name);
            index.insert(other);
        }
        let mut next = || taken(&mut index, DeliveryQueue::Cumulative, SECOND);
        assert_eq!([next(), next(), next(), next(), next()], [Some(1), Some(2), Some(3), Some(4), None]);
        assert_eq!(index.next_due(SECOND), Some(61 * SECOND));
        for sequence in 0..6 {
            index.remove(sequence).unwrap();
        }
        assert!(index.lanes.is_empty());
    }

    #[test]
    fn files_of_a_paused_tenant_wait_and_those_of_others_do_not() {
        let other = TenantHash::from_tenant(Some(&"team-a".parse().unwrap()));
        let mut index = FileIndex::new();
        for (sequence, order) in [(1, OrderClass::Independent), (3, OrderClass::Cumulative { lane: 1 })] {
            index.insert(entry(sequence, order, Some(SECOND)));
            let mut file = entry(sequence + 1, order, Some(SECOND));
            file.name.tenant = other;
            index.insert(file);
        }
        index.insert(entry(0, OrderClass::Independent, None));
        index.pause_tenant(TenantHash::from_tenant(None), 5 * SECOND, SECOND);
        index.pause_tenant(TenantHash::from_tenant(None), SECOND, SECOND);
        for (queue, sequence) in [(DeliveryQueue::Fresh, 2), (DeliveryQueue::Cumulative, 4)] {
            assert_eq!(taken(&mut index, queue, 2 * SECOND), Some(sequence));
            assert_eq!(taken(&mut index, queue, 2 * SECOND), None);
        }
        assert_eq!(taken(&mut index, DeliveryQueue::Backlog, 2 * SECOND), None);
        assert_eq!(index.next_due(2 * SECOND), Some(6 * SECOND));
        let mut next = |queue| taken(&mut index, queue, 6 * SECOND);
        assert_eq!([next(DeliveryQueue::Backlog), next(DeliveryQueue::Backlog)], [Some(0), Some(1)]);
        assert_eq!(next(DeliveryQueue::Cumulative), Some(3));
    }

    #[test]
    fn paused_tenants_are_bounded_and_end_with_all_delays() {
        let mut index = FileIndex::new();
        for number in 0..MAX_PAUSED_TENANTS + 2 {
            let tenant = TenantHash::from_tenant(Some(&format!("t{number}").parse().unwrap()));
            index.pause_tenant(tenant, SECOND * (number as u32 + 1), SECOND);
        }
        assert_eq!(index.paused_tenants.len(), MAX_PAUSED_TENANTS);
        assert_eq!(index.paused_tenants.values().min(), Some(&(4 * SECOND)));
        index.end_delays(SECOND);
        assert!(index.paused_tenants.is_empty());
    }

    #[test]
    fn file_occupies_whole_blocks() {
        let seen = [0, 1, 4096, 4097].map(occupied_bytes);
        assert_eq!(seen, [0, 4096, 4096, 8192]);
    }

    #[test]
    fn undeleted_file_counts_without_being_taken() {
        let lane = OrderClass::Cumulative { lane: 1 };
        let mut index = FileIndex::new();
        index.insert(entry(1, lane, None));
        index.insert(entry(2, lane, None));
        assert_eq!(taken(&mut index, DeliveryQueue::Cumulative, SECOND), Some(1));
        let undeleted = index.remove(1).unwrap();
        index.keep_undeleted(undeleted);
        assert_eq!(taken(&mut index, DeliveryQueue::Cumulative, SECOND), Some(2));
        assert_eq!(index.oldest().map(|entry| entry.name.sequence), Some(2));
        index.end_undeleted(2);
        index.remove(2).unwrap();
        assert!(index.is_idle() && index.undeleted().len() == 1);
        assert_eq!((index.len(), index.bytes(), index.evictable_bytes()), (1, DISK_BLOCK_BYTES, 0));
        index.end_undeleted(1);
        assert_eq!((index.len(), index.bytes()), (0, 0));
    }

    #[test]
    fn eviction_removes_the_oldest_scraped_file_not_in_flight() {
        let mut index = FileIndex::new();
        let mut received = entry(1, OrderClass::Independent, None);
        received.name.origin = UploadOrigin::Received;
        index.insert(received);
        index.insert(entry(2, OrderClass::Independent, None));
        index.insert(entry(3, OrderClass::Cumulative { lane: 0 }, None));
        index.insert(entry(4, OrderClass::Independent, Some(SECOND)));
        assert_eq!(taken(&mut index, DeliveryQueue::Backlog, SECOND), Some(1));
        assert_eq!(taken(&mut index, DeliveryQueue::Backlog, SECOND), Some(2));
        let mut evicted = || index.evict_oldest().map(|entry| entry.name.sequence);
        assert_eq!([evicted(), evicted(), evicted()], [Some(3), Some(4), None]);
        assert_eq!(taken(&mut index, DeliveryQueue::Cumulative, SECOND), None);
        assert_eq!(taken(&mut index, DeliveryQueue::Fresh, SECOND), None);
        assert_eq!((index.len(), index.bytes(), index.evictable_bytes()), (2, 2 * DISK_BLOCK_BYTES, 0));
        index.release(2, SECOND, SECOND);
        assert_eq!(index.evictable_bytes(), DISK_BLOCK_BYTES);
    }
}
