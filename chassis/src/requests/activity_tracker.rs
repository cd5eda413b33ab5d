//! Record of the work that was under way when the process died. A panic is caught and counted where it
//! happens. Stack overflow, memory exhaustion and an abort kill the whole process.
//!
//! A small file has one slot per key of running work. The slot is written before the work begins and freed
//! when it ends. Nothing is synced: the machine survives the process, so the writes do too. An aborting
//! process leaves a marker ([`install_abort_marker`]). The next start then counts one crash for each slot
//! that was not freed.
//!
//! A process that was killed from outside (operator, kernel, power loss) leaves no marker, and no crash is
//! counted. Work that ran beside the work that crashed is counted as well. So suspects run one at a time on
//! the next attempt ([`ActivityTracker::lock_suspects`]), and success clears their count. An orderly shutdown
//! closes the file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use std::{fmt, io};

use parking_lot::Mutex;
use signal_hook::consts::SIGABRT;
use signal_hook::flag;
use signal_hook::low_level::pipe;

use crate::disk::{Disk, DiskError};
use crate::{Clock, Timestamp};

/// Name of the activity file.
const ACTIVITY_FILE: &str = "active-queries";
/// Number of slots in the file. Work beyond them is not tracked.
const MAX_TRACKED_ACTIVITIES: usize = 1024;
/// Bytes of a slot: key, mark, running flag, crash count, and the time of the last crash.
const SLOT_BYTES: usize = 32;
/// Mark of a slot that was written. Slots with other bytes are ignored.
const USED_SLOT_MARK: u8 = 0xd7;
/// Time for which crashes are remembered.
pub const CRASH_RETENTION: Duration = Duration::from_secs(60 * 60);

/// Tracker of the crashes of this process, by key of the work that ran. Cheap to clone.
#[derive(Clone)]
pub struct ActivityTracker {
    shared: Arc<ActivityTrackerInner>,
}

struct ActivityTrackerInner {
    disk: Arc<dyn Disk>,
    clock: Clock,
    table: Mutex<ActivityTable>,
    /// Held while one suspect runs alone.
    alone: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct ActivityTable {
    slots: BTreeMap<u128, ActivitySlot>,
    free: Vec<usize>,
    is_closed: bool,
    /// True after a failed write. Only the first failure is logged.
    has_failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ActivitySlot {
    place: usize,
    /// Number of running activities with this key.
    under_way: u32,
    deaths: u8,
    /// Time at which the last crash was counted, in seconds since 1970.
    found: i64,
}

/// Registration of running work. Dropping it ends the work and frees its slot, unless crashes are remembered.
pub struct ActivityGuard {
    shared: Arc<ActivityTrackerInner>,
    key: u128,
}

/// Remembered crashes of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RememberedCrash {
    /// Key of the work that ran.
    pub key: u128,
    /// Number of crashes.
    pub crashes: u32,
    /// Time for which the crashes are still remembered.
    pub expires_in: Duration,
}

/// Exclusive right to run a suspect, until it is dropped.
pub struct SuspectGuard {
    _held: tokio::sync::OwnedMutexGuard<()>,
}

/// State that the previous process left behind.
#[derive(Clone)]
pub struct PreviousRun {
    /// Disk with the activity file.
    pub disk: Arc<dyn Disk>,
    /// True if the previous process aborted.
    pub has_aborted: bool,
}

/// Makes this process write one byte to `file` on SIGABRT, which a stack overflow, memory exhaustion or
/// `abort` raises. Returns whether the previous process left such a byte.
pub fn install_abort_marker(file: &Path) -> io::Result<bool> {
    let has_aborted = fs::metadata(file).is_ok_and(|found| found.len() > 0);
    pipe::register(SIGABRT, File::create(file)?)?;
    // After the write, the signal takes its default action and ends the process.
    flag::register_conditional_default(SIGABRT, Arc::new(AtomicBool::new(true)))?;
    Ok(has_aborted)
}

impl ActivityTracker {
    /// Opens the activity file and counts the crashes of the previous process. Blocks.
    pub fn open(left: PreviousRun, clock: Clock) -> Result<Self, DiskError> {
        let PreviousRun { disk, has_aborted } = left;
        let mut bytes = match disk.read(ACTIVITY_FILE) {
            Ok(bytes) if bytes.len() == MAX_TRACKED_ACTIVITIES * SLOT_BYTES => bytes,
            Ok(_) | Err(DiskError::NotFound { .. }) => vec![0; MAX_TRACKED_ACTIVITIES * SLOT_BYTES],
            Err(error) => return Err(error),
        };
        let now = unix_seconds(clock.wall());
        let mut table = ActivityTable::default();
        for (place, bytes) in bytes.chunks_exact_mut(SLOT_BYTES).enumerate() {
            match ActivitySlot::decode(place, bytes, now, has_aborted) {
                Some((key, slot)) if !table.slots.contains_key(&key) => {
                    bytes.copy_from_slice(&slot.encode(key));
                    table.slots.insert(key, slot);
                }
                _ => {
                    bytes.fill(0);
                    table.free.push(place);
                }
            }
        }
        disk.write(ACTIVITY_FILE, &bytes)?;
        let shared = ActivityTrackerInner { disk, clock, table: Mutex::new(table), alone: Arc::default() };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns whether no crash is remembered.
    pub fn has_no_crashes(&self) -> bool {
        self.shared.recent_crashes().next().is_none()
    }

    /// Returns the remembered crashes of a key, and how much longer they are remembered.
    pub fn find_crashes(&self, key: u128) -> Option<(u32, Duration)> {
        self.shared.recent_crashes().find(|(of, ..)| *of == key).map(|(_, deaths, left)| (deaths, left))
    }

    /// Returns all remembered crashes, sorted by key.
    pub fn remembered_crashes(&self) -> Vec<RememberedCrash> {
        let crash = |(key, crashes, expires_in)| RememberedCrash { key, crashes, expires_in };
        self.shared.recent_crashes().map(crash).collect()
    }

    /// Returns the number of keys with at least `least` remembered crashes.
    pub fn count_crashed(&self, least: u32) -> usize {
        self.shared.recent_crashes().filter(|(_, deaths, _)| *deaths >= least).count()
    }

    /// Waits until no other suspect runs. If the process then crashes, the cause is known.
    pub async fn lock_suspects(&self) -> SuspectGuard {
        SuspectGuard { _held: Arc::clone(&self.shared.alone).lock_owned().await }
    }

    /// Registers work that begins. Returns none if no slot is free or the tracker is closed; the work then
    /// runs untracked. Costs a write of a few bytes, without sync.
    pub fn track_activity(&self, key: u128) -> Option<ActivityGuard> {
        let mut table = self.shared.table.lock();
        if table.is_closed {
            return None;
        }
        if !table.slots.contains_key(&key) {
            let place = table.allocate_slot()?;
            table.slots.insert(key, ActivitySlot { place, under_way: 0, deaths: 0, found: 0 });
        }
        let slot = table.slots.get_mut(&key)?;
        slot.under_way += 1;
        if slot.under_way == 1 {
            let slot = *slot;
            self.shared.write_slot(&mut table, slot.place, &slot.encode(key));
        }
        drop(table);
        Some(ActivityGuard { shared: Arc::clone(&self.shared), key })
    }

    /// Clears all crashes. Returns the number of keys that had at least `least` of them.
    pub fn clear_crashes(&self, least: u32) -> usize {
        let count = self.count_crashed(least);
        let mut table = self.shared.table.lock();
        let known: Vec<u128> =
            table.slots.iter().filter(|(_, slot)| slot.deaths > 0).map(|(key, _)| *key).collect();
        known.into_iter().for_each(|key| self.shared.clear_slot(&mut table, key));
        count
    }

    /// Closes the file at an orderly shutdown, so that running work counts as not crashed. Blocks.
    pub fn close(&self) {
        let mut table = self.shared.table.lock();
        let under_way: Vec<(u128, ActivitySlot)> =
            table.slots.iter().map(|(key, slot)| (*key, *slot)).collect();
        for (key, slot) in under_way.into_iter().filter(|(_, slot)| slot.under_way > 0) {
            self.shared.write_slot(
                &mut table,
                slot.place,
                &ActivitySlot { under_way: 0, ..slot }.encode(key),
            );
        }
        table.is_closed = true;
    }
}

impl fmt::Debug for ActivityTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActivityTracker").field("known", &self.count_crashed(1)).finish_non_exhaustive()
    }
}

impl ActivityGuard {
    /// Clears the crashes of the key after success.
    pub fn mark_succeeded(&self) {
        self.shared.clear_slot(&mut self.shared.table.lock(), self.key);
    }
}

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        let mut table = self.shared.table.lock();
        let Some(slot) = table.slots.get_mut(&self.key) else { return };
        slot.under_way = slot.under_way.saturating_sub(1);
        let slot = *slot;
        if slot.under_way > 0 {
            return;
        }
        if slot.deaths == 0 {
            table.slots.remove(&self.key);
            table.free.push(slot.place);
        }
        self.shared.write_slot(&mut table, slot.place, &slot.encode(self.key));
    }
}

impl ActivityTrackerInner {
    /// Returns key, crash count and remaining retention of each remembered entry.
    fn recent_crashes(&self) -> impl Iterator<Item = (u128, u32, Duration)> {
        let now = unix_seconds(self.clock.wall());
        let of = |(key, slot): (&u128, &ActivitySlot)| {
            Some((*key, u32::from(slot.deaths), slot.remaining_retention(now)?))
        };
        let known: Vec<_> =
            self.table.lock().slots.iter().filter(|(_, slot)| slot.deaths > 0).filter_map(of).collect();
        known.into_iter()
    }

    /// Clears the crashes of a key, even while its work runs.
    fn clear_slot(&self, table: &mut ActivityTable, key: u128) {
        let Some(slot) = table.slots.get_mut(&key).filter(|slot| slot.deaths > 0) else { return };
        slot.deaths = 0;
        let slot = *slot;
        if slot.under_way == 0 {
            table.slots.remove(&key);
            table.free.push(slot.place);
        }
        self.write_slot(table, slot.place, &slot.encode(key));
    }

    fn write_slot(&self, table: &mut ActivityTable, place: usize, bytes: &[u8; SLOT_BYTES]) {
        // During an orderly shutdown the disk may be closed already.
        if table.is_closed {
            return;
        }
        let written = self.disk.write_at(ACTIVITY_FILE, (place * SLOT_BYTES) as u64, &[bytes]);
        if let Err(error) = written
            && !std::mem::replace(&mut table.has_failed, true)
        {
            tracing::warn!(%error, "failed to write activity file, requests that crash this process cannot be identified");
        }
    }
}

impl ActivityTable {
    /// Returns a free slot. If there is none, the idle entry with the oldest crash is evicted.
    fn allocate_slot(&mut self) -> Option<usize> {
        if let Some(place) = self.free.pop() {
            return Some(place);
        }
        let idle = self.slots.iter().filter(|(_, slot)| slot.under_way == 0);
        let oldest = idle.min_by_key(|(_, slot)| slot.found).map(|(key, slot)| (*key, slot.place));
        let (key, place) = oldest?;
        self.slots.remove(&key);
        Some(place)
    }
}

impl ActivitySlot {
    /// Decodes a slot of the previous process. Returns none if it holds no crash that is still remembered.
    fn decode(place: usize, bytes: &[u8], now: i64, has_aborted: bool) -> Option<(u128, Self)> {
        let key = u128::from_le_bytes(bytes.get(..16)?.try_into().ok()?);
        let found = i64::from_le_bytes(bytes.get(24..32)?.try_into().ok()?);
        let &[mark, under_way, deaths] = bytes.get(16..19)? else { return None };
        let mut slot = ActivitySlot { place, under_way: 0, deaths, found };
        if under_way == 1 && has_aborted {
            (slot.deaths, slot.found) = (slot.deaths.saturating_add(1), now);
        }
        (mark == USED_SLOT_MARK && slot.deaths > 0 && slot.remaining_retention(now).is_some())
            .then_some((key, slot))
    }

    fn encode(self, key: u128) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        if self.under_way > 0 || self.deaths > 0 {
            bytes[..16].copy_from_slice(&key.to_le_bytes());
            bytes[16..19].copy_from_slice(&[USED_SLOT_MARK, u8::from(self.under_way > 0), self.deaths]);
            bytes[24..].copy_from_slice(&self.found.to_le_bytes());
        }
        bytes
    }

    /// Returns how much longer the crashes are remembered. If the wall clock went back, they expire at once.
    fn remaining_retention(self, now: i64) -> Option<Duration> {
        let since = u64::try_from(now.saturating_sub(self.found)).ok()?;
        CRASH_RETENTION.checked_sub(Duration::from_secs(since)).filter(|left| !left.is_zero())
    }
}

fn unix_seconds(time: Timestamp) -> i64 {
    time.millis() / 1000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::MemoryDisk;

    fn open(disk: &MemoryDisk, clock: &Clock) -> ActivityTracker {
        after(disk, clock, true)
    }

    fn after(disk: &MemoryDisk, clock: &Clock, has_aborted: bool) -> ActivityTracker {
        ActivityTracker::open(PreviousRun { disk: Arc::new(disk.clone()), has_aborted }, clock.clone())
            .unwrap()
    }

    fn deaths(of: &ActivityTracker, key: u128) -> u32 {
        of.find_crashes(key).map_or(0, |(deaths, _)| deaths)
    }

    /// What is under way when the process dies stays so for ever.
    fn dies(work: ActivityGuard) {
        std::mem::forget(work);
    }

    #[test]
    fn who_is_killed_from_outside_blames_nobody() {
        let (disk, (clock, _hand)) = (MemoryDisk::new(), Clock::manual(Timestamp::from_seconds(1_000_000)));
        dies(open(&disk, &clock).track_activity(1).unwrap());
        for _ in 0..3 {
            let next = after(&disk, &clock, false);
            assert_eq!([1, 2].map(|key| deaths(&next, key)), [0, 0]);
            [1, 2].into_iter().for_each(|key| dies(next.track_activity(key).unwrap()));
        }
        let blames = open(&disk, &clock);
        assert_eq!([1, 2].map(|key| deaths(&blames, key)), [1, 1]);
        dies(blames.track_activity(1).unwrap());
        // What was known before stays.
        assert_eq!([1, 2].map(|key| deaths(&after(&disk, &clock, false), key)), [1, 1]);
    }

    #[test]
    fn who_kills_twice_is_known_and_who_ran_beside_is_not() {
        let (disk, (clock, hand)) = (MemoryDisk::new(), Clock::manual(Timestamp::from_seconds(1_000_000)));
        let first = open(&disk, &clock);
        assert!(first.has_no_crashes());
        drop(first.track_activity(1).unwrap());
        dies(first.track_activity(2).unwrap());
        dies(first.track_activity(3).unwrap());
        let second = open(&disk, &clock);
        assert_eq!([1, 2, 3].map(|key| deaths(&second, key)), [0, 1, 1]);
        second.track_activity(2).unwrap().mark_succeeded();
        // It failed, or nobody waited for it: that says nothing.
        drop(second.track_activity(3).unwrap());
        assert_eq!([2, 3].map(|key| deaths(&second, key)), [0, 1]);
        dies(second.track_activity(2).unwrap());
        dies(second.track_activity(3).unwrap());
        let third = open(&disk, &clock);
        assert_eq!([2, 3].map(|key| deaths(&third, key)), [1, 2]);
        assert_eq!((third.count_crashed(1), third.count_crashed(2)), (2, 1));
        hand.advance(CRASH_RETENTION - Duration::from_secs(1));
        assert_eq!(third.find_crashes(3), Some((2, Duration::from_secs(1))));
        assert_eq!(deaths(&open(&disk, &clock), 3), 2, "a restart does not make it longer or shorter");
        hand.advance(Duration::from_secs(1));
        assert!(third.has_no_crashes() && open(&disk, &clock).has_no_crashes());
    }

    #[test]
    fn who_ends_in_order_leaves_nobody_under_suspicion() {
        let (disk, clock) = (MemoryDisk::new(), Clock::system());
        let first = open(&disk, &clock);
        let under_way = first.track_activity(1).unwrap();
        first.close();
        drop(under_way);
        assert!(first.track_activity(2).is_none());
        let second = open(&disk, &clock);
        assert!(second.has_no_crashes());
        // Several of one key are one.
        let both = [second.track_activity(5).unwrap(), second.track_activity(5).unwrap()];
        let [one, other] = both;
        drop(one);
        dies(other);
        let third = open(&disk, &clock);
        assert_eq!((deaths(&third, 5), third.clear_crashes(1)), (1, 1));
        assert!(third.has_no_crashes() && open(&disk, &clock).has_no_crashes());
    }

    #[test]
    fn only_so_much_is_watched_and_foreign_bytes_are_none_of_ours() {
        let (disk, clock) = (MemoryDisk::new(), Clock::system());
        disk.write(ACTIVITY_FILE, &[255; MAX_TRACKED_ACTIVITIES * SLOT_BYTES]).unwrap();
        let first = open(&disk, &clock);
        assert!(first.has_no_crashes());
        let all: Vec<ActivityGuard> =
            (0..MAX_TRACKED_ACTIVITIES as u128).map(|key| first.track_activity(key).unwrap()).collect();
        assert!(first.track_activity(9_999).is_none() && first.track_activity(7).is_some());
        all.into_iter().for_each(dies);
        let second = open(&disk, &clock);
        assert_eq!(second.count_crashed(1), MAX_TRACKED_ACTIVITIES);
        assert!(second.track_activity(9_999).is_some(), "what is remembered makes room");
        disk.write(ACTIVITY_FILE, b"short").unwrap();
        assert!(open(&disk, &clock).has_no_crashes());
    }

    #[tokio::test]
    async fn suspects_are_alone() {
        let clock = Clock::system();
        let deaths = open(&MemoryDisk::new(), &clock);
        let held = deaths.lock_suspects().await;
        let another = deaths.lock_suspects();
        assert!(clock.timeout(Duration::from_millis(20), another).await.is_err());
        drop(held);
        deaths.lock_suspects().await;
    }
}
