//! What a shard's log does when it is applied: ids are remembered, generations begin and end.
//!
//! All of it follows from the log, and of batches from their heads alone: so it is equal on every member, whoever made
//! them and whatever else a process has in memory. Rows are no part of it. The one that leads shows those of its own
//! batches as they are applied, and reads those of earlier ones from the log when it begins; see [`crate::reign`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use athanor_chassis::Clock;
use athanor_consensus::StateMachine;
use athanor_consensus::replicated::{Restored, Snapshot};
use athanor_profile::packed::{PackedError, Unpacker, put};
use tokio::sync::Notify;

use crate::entry::{Entry, Head as EntryHead};
use crate::reign::{Claim, Reign};
use crate::window::Window;

/// The version of a snapshot's bytes.
const VERSION: u64 = 3;

/// The state of one shard.
#[derive(Debug)]
pub struct Machine {
    window: Arc<Mutex<Window>>,
    /// Everything up to here lies in registered blocks, as far as the log says.
    cut: u64,
    /// The generation that the next batch may build on.
    open: Option<Chain>,
    /// Generations that the log still has, oldest first.
    generations: Vec<Generation>,
    /// Of batches after the cut, the records that were repeats: their uploads, and their places in these.
    repeats: BTreeMap<u64, Vec<(u32, u32)>>,
    /// Entries that cannot be read, mostly because they build on a lost one, and that are in no block.
    unreadable: Vec<u64>,
    /// The ids of records up to this entry were lost with a snapshot, and nobody was told yet.
    forgot: Mutex<Option<u64>>,
    /// Where this process says that it wants to lead.
    claim: Arc<Claim>,
    /// Told when the log lets go of entries.
    cuts: Arc<Notify>,
    clock: Clock,
    /// When the last entry came that moves the log's time, by this node's monotonic clock. Nothing that is replicated.
    stored: Option<Duration>,
    /// It leads. No verdict depends on that.
    reign: Option<Arc<Reign>>,
}

/// Batches of which each builds on those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chain {
    generation: u64,
    /// The number of the next one.
    place: u64,
}

/// Where a generation lies in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// The token of its first batch.
    pub token: u64,
    /// The index of its first batch.
    pub first: u64,
    /// Where it is over; until then its last batch.
    pub last: u64,
    /// It is over: nothing behind `last` builds on it.
    pub closed: bool,
}

/// What applying an entry did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// For each upload and each of its records: whether it is new.
    Batch(Vec<Vec<bool>>),
    /// Nothing to tell.
    Done,
    /// The entry cannot be read.
    Unreadable(PackedError),
}

impl Machine {
    /// An empty shard.
    pub fn new(claim: Arc<Claim>, cuts: Arc<Notify>, clock: Clock, window: Window) -> Self {
        Self {
            window: Arc::new(Mutex::new(window)),
            cut: 0,
            open: None,
            generations: Vec::new(),
            repeats: BTreeMap::new(),
            unreadable: Vec::new(),
            forgot: Mutex::default(),
            claim,
            cuts,
            clock,
            stored: None,
            reign: None,
        }
    }
    /// Everything up to here lies in registered blocks, as far as the log says.
    pub fn cut(&self) -> u64 {
        self.cut
    }
    /// When the last entry came that moves the log's time, by this node's monotonic clock; none since the start.
    pub fn stored(&self) -> Option<Duration> {
        self.stored
    }
    /// Ids of records up to this entry were lost with a snapshot, or with files that it names.
    pub fn forgot(&self) -> Option<u64> {
        let damaged = lock(&self.window).damaged() > 0;
        lock(&self.forgot).or(damaged.then_some(self.cut))
    }
    /// It is known elsewhere that ids were lost: snapshots need not say it any more.
    pub fn told(&self) {
        lock(&self.window).told();
        lock(&self.forgot).take();
    }
    /// The ids of recent records, to be asked while entries are applied. Nobody takes another lock while holding it.
    pub fn window(&self) -> Arc<Mutex<Window>> {
        Arc::clone(&self.window)
    }
    /// How many entries after one index and up to another cannot be read.
    pub fn unreadable(&self, range: Range<u64>) -> u64 {
        self.unreadable.iter().filter(|&&index| index > range.start && index <= range.end).count() as u64
    }
    /// The generations before an entry that are in no registered block, as far as the log says.
    pub fn generations(&self, before: u64) -> Vec<Generation> {
        self.generations.iter().filter(|generation| generation.first < before).copied().collect()
    }
    /// Which batches from one index to another can be read, each with the records that were repeats.
    pub fn repeats(&self, range: Range<u64>) -> BTreeMap<u64, Vec<(u32, u32)>> {
        self.repeats.range(range).map(|(&index, repeats)| (index, repeats.clone())).collect()
    }

    /// What every member makes of a batch.
    fn batch(&mut self, index: u64, head: &EntryHead) -> Result<Vec<Vec<bool>>, PackedError> {
        if head.is_fresh() {
            self.close(index - 1);
            let generation = Generation { token: head.token, first: index, last: index, closed: false };
            self.generations.push(generation);
        }
        let wanted = self.open.filter(|open| open.generation == head.generation).map(|open| open.place);
        let place = match wanted {
            _ if head.is_fresh() => 0,
            // Who did not number them made them in turn.
            Some(wanted) if head.place.is_none_or(|place| place == wanted) => wanted,
            _ => return Err(PackedError { at: 0, why: "a batch that builds on one which is lost" }),
        };
        self.open = Some(Chain { generation: head.generation, place: place + 1 });
        if let Some(generation) = self.generations.last_mut() {
            generation.last = index;
        }
        let mut window = lock(&self.window);
        window.advance(index, head.stamp, head.window);
        let verdicts = window.admit_all(index, &head.uploads);
        drop(window);
        self.stored = Some(self.clock.monotonic());
        self.repeats.insert(index, repeated(&verdicts));
        Ok(verdicts)
    }

    /// What was open is over, at an index.
    fn close(&mut self, last: u64) {
        self.open = None;
        let Some(generation) = self.generations.last_mut().filter(|generation| !generation.closed) else {
            return;
        };
        (generation.last, generation.closed) = (last, true);
        if let Some(reign) = &self.reign {
            reign.close(*generation);
        }
    }

    fn take(&mut self, index: u64, entry: &[u8]) -> Result<Applied, PackedError> {
        if let Some(head) = Entry::head(entry)? {
            let verdicts = self.batch(index, &head)?;
            if let Some(reign) = &self.reign {
                reign.show(index, head.token, &verdicts);
            }
            lock(&self.window).show(index);
            return Ok(Applied::Batch(verdicts));
        }
        match Entry::decode(entry)? {
            Entry::Begin { token, stamp, .. } => {
                self.close(index - 1);
                lock(&self.window).advance(index, stamp, 0);
                self.stored = Some(self.clock.monotonic());
                self.reign = self.claim.take(token);
                if let Some(reign) = &self.reign {
                    reign.begin(index, self.cut, lock(&self.window).stamp());
                }
            }
            Entry::End { generation } if self.open.is_some_and(|open| open.generation == generation) => {
                self.close(index);
            }
            Entry::Cut { to, .. } => {
                self.cut = self.cut.max(to);
                lock(&self.window).settle(self.cut);
                self.unreadable.retain(|&index| index > self.cut);
                self.generations.retain(|generation| generation.last > self.cut);
                self.repeats = self.repeats.split_off(&(self.cut + 1));
                self.cuts.notify_one();
            }
            Entry::End { .. } | Entry::Batch(_) => {}
        }
        Ok(Applied::Done)
    }

    /// Becomes one whose log begins after an index.
    fn reset(&mut self, index: u64) {
        (self.cut, self.open, self.reign) = (index, None, None);
        (self.generations, self.repeats, self.unreadable) = (Vec::new(), BTreeMap::new(), Vec::new());
    }
}

/// The places of what is not new.
fn repeated(verdicts: &[Vec<bool>]) -> Vec<(u32, u32)> {
    let uploads = verdicts.iter().zip(0..);
    let places = uploads.flat_map(|(records, upload)| {
        records.iter().zip(0..).filter(|(new, _)| !**new).map(move |(_, record)| (upload, record))
    });
    places.collect()
}

/// A lock of what is whole whenever somebody could panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StateMachine for Machine {
    type Answer = Applied;

    fn apply(&mut self, index: u64, entry: &[u8]) -> Applied {
        self.take(index, entry).unwrap_or_else(|error| {
            tracing::error!(index, %error, "an entry of the log cannot be read; its profiles are missing");
            self.unreadable.push(index);
            Applied::Unreadable(error)
        })
    }

    /// Labelled with the last cut: what comes after it is in no block, so the log must keep it (E9). Where a cut is,
    /// nothing is open.
    fn snapshot(&self) -> Snapshot {
        let (captured, forgot) = (Window::capture(&self.window, self.cut), self.forgot());
        let write = move || {
            let mut bytes = Vec::new();
            put(&mut bytes, VERSION);
            bytes.append(&mut captured.write().map_err(|error| error.to_string())?);
            // Here the state of series will stand: the last values of cumulative profiles.
            put(&mut bytes, 0);
            put(&mut bytes, forgot.unwrap_or_default());
            Ok(bytes)
        };
        let window = Arc::clone(&self.window);
        Snapshot { index: self.cut, write: Box::new(write), kept: Box::new(move || Window::clean(&window)) }
    }

    fn files(&self, bytes: &[u8]) -> Result<Vec<String>, String> {
        let mut unpacker = Unpacker::new(bytes);
        let files = unpacker.number().and_then(|_| lock(&self.window).files(&mut unpacker));
        files.map_err(|error| error.to_string())
    }

    fn restore(&mut self, restored: Restored<'_>) -> Result<(), String> {
        let Restored { index, bytes, alone, arrive } = restored;
        let shelf = lock(&self.window).shelf();
        // Nobody removes what has arrived before the window names it.
        let _cleaning = shelf.hold();
        arrive()?;
        let mut unpacker = Unpacker::new(bytes);
        let read = |unpacker: &mut Unpacker<'_>| -> Result<u64, PackedError> {
            if unpacker.number()? != VERSION {
                return Err(unpacker.wrong("a version that this one does not know"));
            }
            lock(&self.window).restore(index, alone, unpacker)?;
            for _ in 0..unpacker.count()? {
                unpacker.bytes()?;
            }
            unpacker.number()
        };
        let forgot = read(&mut unpacker).map_err(|error| error.to_string())?;
        *lock(&self.forgot) = (forgot > 0).then_some(forgot);
        self.reset(index);
        Ok(())
    }

    fn forget(&mut self, index: u64) {
        lock(&self.window).forget();
        // Where the log begins with its first entry, it says all ids again.
        *lock(&self.forgot) = (index > 0).then_some(index);
        self.reset(index);
    }
}

#[cfg(test)]
mod tests;
