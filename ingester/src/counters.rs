//! What the series of a shard have counted: of those whose profiles count since a process began.
//!
//! ```text
//!  upload ─► Counting: less what is counted ─► batch: records that begin or add ─► log ─► Counters
//!                 ▲ what batches in flight will have counted, then what is applied          │
//!                 └─────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! It follows from the log alone: a record says whether its values begin a count or come to it. So who leads next finds
//! it by reading the log. Before a cut lets go of entries, whoever leads has the log say what was counted, and up to
//! which entry: what lies between that and the cut is not added twice. Followers keep nothing of it.
//!
//! Where a batch in flight fails, all that were prepared after it fail, since they were subtracted from what it said.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use athanor_chassis::ByteSize;
use athanor_profile::hash::{Hash, HashedMap};
use athanor_profile::packed::{PackedError, Unpacker, put, put_signed};

use crate::counted::{Counted, Step, key};
use crate::entry::{self, Batch, Record};
use crate::head::{Head, read};
use crate::machine::lock;
use crate::rows;

/// What a series takes beside its values.
const OVERHEAD: usize = 128;
/// What an entry says of a series beside its values, at most.
const SAID: usize = 64;
/// Where too much is counted, so much of the bound is kept, so that not each upload makes room anew.
const KEPT: (usize, usize) = (7, 8);

/// What is said of a series goes on from the piece before.
const CONTINUES: u64 = 1;
/// It ends here.
const LAST: u64 = 2;

/// How much of what was counted a shard keeps.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes of memory.
    pub bytes: ByteSize,
    /// How long a series is kept that sends nothing.
    pub idle: Duration,
}

/// How often it went which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Profiles of which nothing earlier was known: stored whole.
    pub first: u64,
    /// Profiles of a process that began anew: stored whole.
    pub restarts: u64,
    /// Profiles of which only what they add was stored.
    pub subtracted: u64,
    /// Profiles from before the last one: what they say is counted already.
    pub late: u64,
    /// Series that were forgotten for want of room, or for they sent nothing.
    pub forgotten: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.first += other.first;
        self.restarts += other.restarts;
        self.subtracted += other.subtracted;
        self.late += other.late;
        self.forgotten += other.forgotten;
    }
}

/// What a series has counted, by when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The entry that counted last.
    pub index: u64,
    /// The time of the latest profile.
    pub time: i64,
    /// The values.
    pub counted: Counted,
}

/// What records of a series do to what it has counted.
#[derive(Clone, Debug)]
pub struct Change {
    /// The series, by [`Record::counter`].
    pub series: Hash,
    /// How.
    pub step: Step,
    /// The values, with the last entry and the latest time.
    pub count: Count,
}

/// What is counted in a shard that this node leads.
#[derive(Debug)]
pub struct Counters {
    bounds: Bounds,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: HashedMap<Hash, Held>,
    bytes: usize,
    /// Batches that are not applied, oldest first.
    flights: VecDeque<Flight>,
    /// How many proposals had failed when the last batch was begun.
    failures: u64,
    /// A series of which the log has said only the beginning.
    part: Option<Change>,
    tally: Tally,
}

#[derive(Debug)]
struct Held {
    count: Arc<Count>,
    /// When it was counted last, by the node's monotonic clock.
    seen: Duration,
}

/// A batch in flight.
#[derive(Debug)]
struct Flight {
    token: u64,
    /// Records that count and are not known to be applied.
    open: usize,
    next: HashedMap<Hash, Arc<Count>>,
}

/// What the records of a batch do that are new, in their order.
pub(crate) fn changes(
    head: &Head,
    index: u64,
    batch: &Batch,
    new: &[Vec<bool>],
) -> Result<Vec<Change>, PackedError> {
    let mut changes = Vec::new();
    for (upload, new) in batch.uploads.iter().zip(new) {
        let counts = |record: &Record| record.step != Step::Nothing;
        if !upload.records.iter().any(counts) {
            continue;
        }
        let name = &batch.tenants[upload.tenant as usize].tenant;
        let wrong = |why| PackedError { at: 0, why };
        let tenant = name.parse().map_err(|_| wrong("a tenant's name that is none"))?;
        let held = head.rows(&tenant);
        let held = read(&held);
        let records = upload.records.iter().zip(new).filter(|(record, new)| **new && counts(record));
        for (record, _) in records {
            let mut values = Vec::with_capacity(record.samples as usize);
            let mut unknown = false;
            rows::each(&batch.rows[record.rows.clone()], |row| {
                unknown |= row.stack as usize >= held.dictionary.stacks.len();
                if !unknown {
                    values.push((key((row.stack, row.span, row.trace), &held.dictionary), row.value));
                }
            })?;
            if unknown {
                return Err(wrong("a stack that nobody named"));
            }
            let count = Count { index, time: record.time, counted: Counted::of(values) };
            changes.push(Change { series: record.counter, step: record.step, count });
        }
    }
    Ok(changes)
}

impl Count {
    fn memory(&self) -> usize {
        OVERHEAD + self.counted.memory()
    }

    /// After what came later.
    fn after(&self, later: &Self) -> Self {
        let counted = self.counted.plus(&later.counted);
        Self { index: self.index.max(later.index), time: self.time.max(later.time), counted }
    }
}

impl Change {
    /// Both, one after the other.
    pub fn then(self, later: Self) -> Self {
        match later.step {
            Step::Begins => later,
            Step::Adds | Step::Nothing => Self { count: self.count.after(&later.count), ..self },
        }
    }
}

// === impl Counters ===

impl Counters {
    /// Nothing is counted yet.
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// A batch is begun when so many proposals have failed: of those in flight before that, none is ever applied.
    pub fn begin(&self, failures: u64) {
        let mut state = self.state();
        if state.failures != failures {
            state.failures = failures;
            state.flights.clear();
        }
    }

    /// What a series will have counted when all that is in flight is applied.
    pub fn find(&self, series: Hash) -> Option<Arc<Count>> {
        let state = self.state();
        let in_flight = state.flights.iter().rev().find_map(|flight| flight.next.get(&series));
        in_flight.or_else(|| state.held.get(&series).map(|held| &held.count)).map(Arc::clone)
    }

    /// A batch that was prepared is on its way: what series will have counted after it, and how many records count.
    pub(crate) fn launch(&self, token: u64, open: usize, next: HashedMap<Hash, Arc<Count>>, tally: Tally) {
        let mut state = self.state();
        state.tally += tally;
        if open > 0 {
            state.flights.push_back(Flight { token, open, next });
        }
    }

    /// The batch of a token is applied: its records that are new have counted.
    pub fn apply(&self, token: u64, changes: Vec<Change>, now: Duration) {
        let mut state = self.state();
        if let Some(flight) = state.flights.iter_mut().find(|flight| flight.token == token) {
            flight.open = flight.open.saturating_sub(changes.len());
        }
        for change in changes {
            state.take(change, now);
        }
        state.make_room(&self.bounds);
    }

    /// A batch was answered: whether it has counted all that those behind it were subtracted from.
    pub fn settle(&self, token: u64) -> bool {
        let mut state = self.state();
        let Some(place) = state.flights.iter().position(|flight| flight.token == token) else { return true };
        state.flights.remove(place).is_none_or(|flight| flight.open == 0)
    }

    /// Takes what was read back from the log, in its order.
    pub fn restore(&self, changes: impl IntoIterator<Item = Change>, now: Duration) {
        let mut state = self.state();
        for change in changes {
            state.take(change, now);
            state.make_room(&self.bounds);
        }
    }

    /// It was counted by entries of another log: whatever comes in this one is later.
    pub fn forget_entries(&self) {
        for held in self.state().held.values_mut() {
            Arc::make_mut(&mut held.count).index = 0;
        }
    }

    /// Up to which entry each series has counted.
    pub fn reached(&self) -> HashedMap<Hash, u64> {
        self.state().held.iter().map(|(&series, held)| (series, held.count.index)).collect()
    }

    /// All that is counted, in pieces of about so many bytes. What has sent nothing for long is forgotten first.
    pub fn write(&self, bytes: usize, now: Duration) -> Vec<Vec<u8>> {
        let mut all: Vec<(Hash, Arc<Count>)> = {
            let mut state = self.state();
            state.forget_idle(self.bounds.idle, now);
            state.held.iter().map(|(&series, held)| (series, Arc::clone(&held.count))).collect()
        };
        all.sort_unstable_by_key(|(series, _)| *series);
        let (mut pieces, mut piece) = (Vec::new(), Vec::new());
        for (series, count) in all {
            let mut from = 0;
            while from == 0 || from < count.counted.len() {
                if piece.len() > bytes / 2 {
                    pieces.push(std::mem::take(&mut piece));
                }
                let mut values = Vec::new();
                let room = bytes.saturating_sub(piece.len() + SAID);
                let to = count.counted.write(from, room, &mut values);
                let (begun, ends) = (u64::from(from > 0), u64::from(to == count.counted.len()));
                let flags = (CONTINUES * begun) | (LAST * ends);
                piece.extend_from_slice(&series.to_le_bytes());
                [flags, count.index].into_iter().for_each(|number| put(&mut piece, number));
                put_signed(&mut piece, count.time);
                piece.append(&mut values);
                from = to;
            }
        }
        if !piece.is_empty() {
            pieces.push(piece);
        }
        pieces
    }

    /// Takes a piece of what was counted, in the order of the log: of pieces from several cuts the later ones hold, and of a
    /// series only what is whole.
    pub fn read(&self, piece: &[u8], now: Duration) -> Result<(), PackedError> {
        let mut unpacker = Unpacker::new(piece);
        let mut changes = Vec::new();
        while !unpacker.is_done() {
            let series = entry::id(&mut unpacker)?;
            let (flags, index, time) = (unpacker.number()?, unpacker.number()?, unpacker.signed()?);
            let count = Count { index, time, counted: Counted::read(&mut unpacker)? };
            let mut change = Change { series, step: Step::Begins, count };
            let begun = self.state().part.take();
            if flags & CONTINUES > 0 {
                let is_its = |begun: &Change| (begun.series, begun.count.index) == (series, index);
                let Some(begun) = begun.filter(is_its) else { continue };
                change = begun.then(Change { step: Step::Adds, ..change });
            }
            match flags & LAST {
                0 => self.state().part = Some(change),
                _ => changes.push(change),
            }
        }
        self.restore(changes, now);
        Ok(())
    }

    /// How many series count, the bytes that they take, and what became of profiles.
    pub fn stats(&self) -> (u64, u64, Tally) {
        let state = self.state();
        (state.held.len() as u64, state.bytes as u64, state.tally)
    }
}

impl State {
    fn take(&mut self, change: Change, now: Duration) {
        let Change { series, step, count } = change;
        let before = self.held.remove(&series).map(|held| held.count);
        self.bytes -= before.as_ref().map_or(0, |before| before.memory());
        let count = match (step, before) {
            (Step::Begins, _) => count,
            (Step::Adds, Some(before)) => before.after(&count),
            // What it comes to was forgotten, or lost: the next profile is the first one again.
            (Step::Adds, None) | (Step::Nothing, _) => return,
        };
        self.bytes += count.memory();
        self.held.insert(series, Held { count: Arc::new(count), seen: now });
    }

    /// Forgets what was counted longest ago.
    fn make_room(&mut self, bounds: &Bounds) {
        if self.bytes <= bounds.bytes.as_usize() {
            return;
        }
        let most = bounds.bytes.as_usize() / KEPT.1 * KEPT.0;
        let mut oldest: Vec<(Duration, Hash)> =
            self.held.iter().map(|(&series, held)| (held.seen, series)).collect();
        oldest.sort_unstable();
        for (_, series) in oldest {
            if self.bytes <= most {
                break;
            }
            self.forget(series);
        }
    }

    fn forget_idle(&mut self, idle: Duration, now: Duration) {
        let is_idle = |held: &Held| now.saturating_sub(held.seen) > idle;
        let idle: Vec<Hash> =
            self.held.iter().filter(|(_, held)| is_idle(held)).map(|(&series, _)| series).collect();
        idle.into_iter().for_each(|series| self.forget(series));
    }

    fn forget(&mut self, series: Hash) {
        if let Some(held) = self.held.remove(&series) {
            self.bytes -= held.count.memory();
            self.tally.forgotten += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn counters(bytes: u64) -> Counters {
        Counters::new(Bounds { bytes: ByteSize::bytes(bytes), idle: HOUR })
    }

    /// A series of so many stacks, each of which counts its number and one.
    fn change(series: Hash, step: Step, index: u64, stacks: u64) -> Change {
        let values = (0..stacks).map(|stack| (Hash::from(stack), stack as i64 + 1)).collect();
        Change { series, step, count: Count { index, time: index as i64, counted: Counted::of(values) } }
    }

    #[test]
    fn what_was_written_reads_back_whatever_the_size_of_its_pieces() {
        let counters = counters(1 << 20);
        let changes =
            (1..9).map(|series| change(series, Step::Begins, 10 + series as u64, series as u64 * 30));
        counters.restore(changes, Duration::ZERO);
        for bytes in [1, 100, 1000, 5000, 1 << 20] {
            let pieces = counters.write(bytes, Duration::ZERO);
            assert!(pieces.iter().all(|piece| piece.len() <= bytes.max(200) * 2), "{bytes}");
            let read = super::tests::counters(1 << 20);
            pieces.iter().for_each(|piece| read.read(piece, Duration::ZERO).unwrap());
            for series in 1..9 {
                assert_eq!(read.find(series), counters.find(series), "{bytes}");
            }
        }
    }

    #[test]
    fn a_series_that_was_not_said_to_its_end_stays_as_it_was() {
        let counters = counters(1 << 20);
        counters.restore([change(1, Step::Begins, 5, 100)], Duration::ZERO);
        let pieces = counters.write(300, Duration::ZERO);
        assert!(pieces.len() > 3);
        let read = super::tests::counters(1 << 20);
        for piece in pieces[..2].iter().chain(&pieces[..pieces.len() - 1]) {
            read.read(piece, Duration::ZERO).unwrap();
            assert_eq!(read.find(1), None);
        }
        read.read(&pieces[pieces.len() - 1], Duration::ZERO).unwrap();
        assert_eq!(read.find(1), counters.find(1));
    }

    #[test]
    fn what_is_idle_or_beyond_the_bound_is_forgotten_and_told() {
        let counters = counters(10_000);
        for series in 0..100 {
            let now = Duration::from_secs(series);
            counters.restore([change(Hash::from(series), Step::Begins, 1, 10)], now);
            assert!(counters.stats().1 <= 10_000);
        }
        let (series, _, tally) = counters.stats();
        assert_eq!(series + tally.forgotten, 100);
        assert!(series > 20 && counters.find(99).is_some() && counters.find(0).is_none());
        assert!(counters.write(1000, HOUR * 2).is_empty());
        assert_eq!(counters.stats(), (0, 0, Tally { forgotten: 100, ..Tally::default() }));
        counters.restore([change(7, Step::Adds, 2, 10)], HOUR * 2);
        assert_eq!(counters.find(7), None, "what comes to nothing that is known is nothing");
    }

    #[test]
    fn of_a_batch_all_must_have_counted() {
        let counters = counters(10_000);
        let flight = |token| {
            let next = [(1, Arc::new(change(1, Step::Begins, 0, 2).count))].into_iter().collect();
            counters.launch(token, 1, next, Tally::default());
        };
        flight(5);
        counters.apply(5, vec![change(1, Step::Begins, 3, 2)], Duration::ZERO);
        assert!(counters.settle(5) && counters.settle(6));
        flight(7);
        counters.apply(7, Vec::new(), Duration::ZERO);
        assert!(!counters.settle(7), "its record was a repeat");
        flight(8);
        assert_eq!(counters.find(1).unwrap().index, 0);
        counters.begin(1);
        assert_eq!(counters.find(1).unwrap().index, 3, "what was in flight is not to come");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_refused_or_read(bytes in proptest::collection::vec(proptest::arbitrary::any::<u8>(), 0..80)) {
            let _ = counters(1000).read(&bytes, Duration::ZERO);
        }
    }
}
