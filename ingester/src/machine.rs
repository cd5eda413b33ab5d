//! What a shard's log does when it is applied: ids are remembered, rows are shown.
//!
//! The window and the verdicts follow from the log alone, so they are equal on every member. Rows are shown where
//! somebody asks for them: the proposer shows the batch that it has in memory, whoever reads the log decodes it.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use athanor_chassis::{Clock, TenantId};
use athanor_consensus::StateMachine;
use athanor_consensus::replicated::Snapshot;
use athanor_profile::packed::{PackedError, Unpacker, put};

use crate::entry::{Batch, Entry, Head as EntryHead};
use crate::head::Head;
use crate::heads::Heads;
use crate::window::Window;

/// The version of a snapshot's bytes.
const VERSION: u64 = 3;

/// The state of one shard.
#[derive(Debug)]
pub struct Machine {
    heads: Arc<Heads>,
    proposed: Arc<Proposed>,
    clock: Clock,
    window: Arc<Mutex<Window>>,
    /// Everything up to here lies in registered blocks, as far as the log says.
    cut: u64,
    /// Entries that cannot be read, mostly because they build on a lost one, and that are in no block.
    unreadable: Vec<u64>,
    /// The ids of records up to this entry were lost with a snapshot, and nobody was told yet.
    forgot: Mutex<Option<u64>>,
}

/// The batch in flight, as its proposer has it in memory.
#[derive(Debug, Default)]
pub struct Proposed(Mutex<Option<(Batch, Arc<Head>)>>);

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

impl Proposed {
    /// Remembers the batch that is about to be proposed.
    pub fn put(&self, batch: Batch, head: Arc<Head>) {
        *lock(&self.0) = Some((batch, head));
    }
    fn take(&self, token: u64) -> Option<(Batch, Arc<Head>)> {
        let mut proposed = lock(&self.0);
        proposed.take_if(|(batch, _)| batch.token == token)
    }
}

impl Machine {
    /// An empty shard.
    pub fn new(heads: Arc<Heads>, proposed: Arc<Proposed>, clock: Clock, window: Window) -> Self {
        let (window, forgot) = (Arc::new(Mutex::new(window)), Mutex::default());
        Self { heads, proposed, clock, window, cut: 0, unreadable: Vec::new(), forgot }
    }
    /// Everything up to here lies in registered blocks, as far as the log says.
    pub fn cut(&self) -> u64 {
        self.cut
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

    fn batch(&mut self, index: u64, head: EntryHead, entry: &[u8]) -> Result<Vec<Vec<bool>>, PackedError> {
        lock(&self.window).advance(index, head.stamp, head.window);
        // What cannot be read is not remembered either: whoever sends it again should have it stored.
        let (batch, target) = match self.proposed.take(head.token) {
            Some(proposed) => proposed,
            None => self.read(index, entry)?,
        };
        let verdicts = lock(&self.window).admit_all(index, &head.uploads);
        if batch.is_fresh() {
            target.begin_after(index - 1);
        }
        if target.is_empty() {
            target.bear(self.clock.monotonic());
        }
        for (upload, new) in batch.uploads.iter().zip(&verdicts) {
            let tenant = tenant(&batch.tenants[upload.tenant as usize].tenant)?;
            target.show(&tenant, &batch, upload, new);
        }
        target.reached(index);
        lock(&self.window).show(index);
        Ok(verdicts)
    }

    /// A batch that this process did not propose, and the head that it belongs to.
    fn read(&self, index: u64, entry: &[u8]) -> Result<(Batch, Arc<Head>), PackedError> {
        let Entry::Batch(batch) = Entry::decode(entry)? else {
            return Err(PackedError { at: 0, why: "a batch that is none" });
        };
        if batch.is_fresh() {
            let head = Head::new(index - 1);
            head.holds(batch.generation);
            self.heads.begin(Arc::new(head));
        }
        let head = self.heads.current();
        if head.generation() != batch.generation {
            return Err(PackedError { at: 0, why: "a batch of a generation whose beginning is lost" });
        }
        for part in &batch.tenants {
            head.learn(part, &tenant(&part.tenant)?)?;
        }
        Ok((batch, head))
    }
}

/// A lock of what is whole whenever somebody could panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tenant(name: &str) -> Result<TenantId, PackedError> {
    name.parse().map_err(|_| PackedError { at: 0, why: "a tenant's name that is none" })
}

impl StateMachine for Machine {
    type Answer = Applied;

    fn apply(&mut self, index: u64, entry: &[u8]) -> Applied {
        let applied = match Entry::head(entry) {
            Ok(Some(head)) => self.batch(index, head, entry).map(Applied::Batch),
            Ok(None) => Entry::decode(entry).map(|entry| {
                if let Entry::Cut { to, .. } = entry {
                    self.cut = self.cut.max(to);
                    lock(&self.window).settle(self.cut);
                    self.unreadable.retain(|&index| index > self.cut);
                }
                Applied::Done
            }),
            Err(error) => Err(error),
        };
        applied.unwrap_or_else(|error| {
            tracing::error!(index, %error, "an entry of the log cannot be read; its profiles are missing");
            self.unreadable.push(index);
            Applied::Unreadable(error)
        })
    }

    /// Labelled with the last cut: what comes after it is in no block, so the log must keep it (E9).
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

    fn restore(&mut self, index: u64, bytes: &[u8]) -> Result<(), String> {
        let mut unpacker = Unpacker::new(bytes);
        let read = |unpacker: &mut Unpacker<'_>| -> Result<u64, PackedError> {
            if unpacker.number()? != VERSION {
                return Err(unpacker.wrong("a version that this one does not know"));
            }
            lock(&self.window).restore(index, unpacker)?;
            for _ in 0..unpacker.count()? {
                unpacker.bytes()?;
            }
            unpacker.number()
        };
        let forgot = read(&mut unpacker).map_err(|error| error.to_string())?;
        *lock(&self.forgot) = (forgot > 0).then_some(forgot);
        (self.cut, self.unreadable) = (index, Vec::new());
        Ok(())
    }

    fn forget(&mut self, index: u64) {
        lock(&self.window).forget();
        // Where the log begins with its first entry, it says all ids again.
        *lock(&self.forgot) = (index > 0).then_some(index);
        (self.cut, self.unreadable) = (index, Vec::new());
    }
}
