//! What a shard has in memory where this node leads it. It begins with an entry of the log and never outlives the lead.
//!
//! ```text
//!  entries:   … batches of earlier leaders …  │ Begin │ batches of this one …
//!             read back from the log ─► heads │       │ shown as they are applied
//! ```

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use athanor_chassis::{Activity, Clock, Compute, Status, TenantId};
use athanor_consensus::Replicated;
use athanor_profile::hash::{Hash, HashedMap};
use athanor_profile::packed::PackedError;
use futures::stream::{self, StreamExt, TryStreamExt};

use crate::counters::{Bounds, Change, Counters, changes};
use crate::entry::{Batch, Entry, Record};
use crate::head::Head;
use crate::heads::Heads;
use crate::machine::{Generation, Machine, lock};

/// One node's time of leading a shard.
#[derive(Debug)]
pub struct Reign {
    heads: Heads,
    /// What series have counted.
    counters: Arc<Counters>,
    clock: Clock,
    /// The batch in flight.
    proposed: Mutex<Option<(Batch, Arc<Head>)>>,
    begun: OnceLock<Begun>,
    /// Entries of earlier batches that are whole and do not say what a batch says.
    unreadable: Mutex<Vec<u64>>,
}

/// Where a reign began.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// The entry that says so.
    pub index: u64,
    /// Up to where rows lay in blocks, as far as the log said.
    pub cut: u64,
    /// The log's time then.
    pub stamp: u64,
    /// The node's monotonic time then.
    pub at: Duration,
}

/// A reign that was proposed, until its entry is applied.
#[derive(Debug, Default)]
pub struct Claim(Mutex<Option<(u64, Arc<Reign>)>>);

impl Claim {
    /// Says under which token a reign is proposed.
    pub fn put(&self, token: u64, reign: Arc<Reign>) {
        *lock(&self.0) = Some((token, reign));
    }
    /// The reign of a token, if it is this process's.
    pub fn take(&self, token: u64) -> Option<Arc<Reign>> {
        lock(&self.0).take_if(|(claimed, _)| *claimed == token).map(|(_, reign)| reign)
    }
}

impl Reign {
    /// One that has not begun.
    pub fn new(clock: Clock, counting: Bounds) -> Self {
        Self {
            heads: Heads::new(),
            counters: Arc::new(Counters::new(counting)),
            clock,
            proposed: Mutex::default(),
            begun: OnceLock::new(),
            unreadable: Mutex::default(),
        }
    }
    /// The rows.
    pub fn heads(&self) -> &Heads {
        &self.heads
    }
    /// What series have counted.
    pub(crate) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
    /// Where it began; none before that was applied.
    pub fn begun(&self) -> Option<Begun> {
        self.begun.get().copied()
    }
    /// How many entries after one index and up to another did not say what a batch says.
    pub fn unreadable(&self, range: &std::ops::Range<u64>) -> u64 {
        let unreadable = lock(&self.unreadable);
        unreadable.iter().filter(|&&index| index > range.start && index <= range.end).count() as u64
    }
    /// Remembers the batch that is about to be proposed.
    pub fn put(&self, batch: Batch, head: Arc<Head>) {
        *lock(&self.proposed) = Some((batch, head));
    }

    /// Its entry is applied: rows up to the cut are not asked for here.
    pub(crate) fn begin(&self, index: u64, cut: u64, stamp: u64) {
        self.heads.begin_after(index, cut);
        // Nobody begins twice: each has a token of its own.
        let _ = self.begun.set(Begun { index, cut, stamp, at: self.clock.monotonic() });
    }

    /// Shows what is new of the batch in flight, if it is the one that was applied.
    pub(crate) fn show(&self, index: u64, token: u64, verdicts: &[Vec<bool>]) {
        let proposed = lock(&self.proposed).take_if(|(batch, _)| batch.token == token);
        let Some((batch, head)) = proposed else { return };
        if batch.is_fresh() {
            head.begin_after(index - 1);
        }
        if head.is_empty() {
            head.bear(self.clock.monotonic());
        }
        if let Err(error) = show(&head, &batch, verdicts) {
            tracing::error!(index, %error, "a batch cannot be shown; its profiles are missing");
            lock(&self.unreadable).push(index);
        }
        if batch.counts() {
            match changes(&head, index, &batch, verdicts) {
                Ok(changes) => self.counters.apply(token, changes, self.clock.monotonic()),
                Err(error) => {
                    tracing::error!(index, %error, "what a batch counts cannot be read: it counts again");
                }
            }
        }
        head.reached(index);
    }

    /// A generation is over.
    pub(crate) fn close(&self, generation: Generation) {
        self.heads.close(generation.token, generation.last);
    }

    /// Reads back what earlier leaders stored, and is in no block yet.
    pub(crate) async fn rebuild(&self, log: &Replicated<Machine>, compute: &Compute) -> Result<(), Status> {
        let Some(Begun { index, .. }) = self.begun() else { return Ok(()) };
        let generations = log.with(|machine| machine.generations(index));
        let now = self.clock.monotonic();
        self.read_counted(log, compute).await?;
        let reached = Arc::new(self.counters.reached());
        let read = |generation: Generation| {
            let (log, compute, reached) = (log.clone(), compute.clone(), Arc::clone(&reached));
            async move {
                let read = move || read_back(&log, generation, &reached, now);
                compute.run_as(Activity::Apply, read).await.map_err(|error| Status::of(&error))?
            }
        };
        let read: Vec<ReadBack> =
            stream::iter(generations).map(read).buffered(compute.width()).try_collect().await?;
        let mut all = Vec::with_capacity(read.len());
        for ReadBack { head, mut unreadable, counted } in read {
            lock(&self.unreadable).append(&mut unreadable);
            self.counters.restore(counted.into_values(), now);
            all.push(Arc::new(head));
        }
        self.heads.precede(all);
        Ok(())
    }

    /// Takes over what the log says that series have counted.
    async fn read_counted(&self, log: &Replicated<Machine>, compute: &Compute) -> Result<(), Status> {
        let (log, counters, now) = (log.clone(), Arc::clone(&self.counters), self.clock.monotonic());
        let read = move || {
            for index in log.with(Machine::counted) {
                let entry = log.read(index).map_err(|error| Status::of(&error))?;
                let piece = match entry.map(|entry| Entry::decode(&entry)) {
                    Some(Ok(Entry::Counted(piece))) => counters.read(&piece, now),
                    Some(Err(error)) => Err(error),
                    Some(Ok(_)) | None => {
                        Err(PackedError { at: 0, why: "what was counted, which is not there" })
                    }
                };
                if let Err(error) = piece {
                    tracing::error!(index, %error, "what series have counted cannot be read: they begin anew");
                }
            }
            Ok(())
        };
        compute.run_as(Activity::Apply, read).await.map_err(|error| Status::of(&error))?
    }
}

/// What was read back of a generation.
struct ReadBack {
    /// Its rows.
    head: Head,
    /// The entries that do not say what they should.
    unreadable: Vec<u64>,
    /// What its records do to what series have counted.
    counted: HashedMap<Hash, Change>,
}

/// Reads a generation, and counts where the log does not say what was counted after it.
fn read_back(
    log: &Replicated<Machine>,
    generation: Generation,
    reached: &HashedMap<Hash, u64>,
    now: Duration,
) -> Result<ReadBack, Status> {
    let head = Head::new(generation.first - 1);
    head.holds(generation.token);
    head.bear(now);
    let (repeats, dropped) =
        log.with(|machine| (machine.repeats(generation.first..generation.last + 1), machine.dropped()));
    let (mut unreadable, mut counted) = (Vec::new(), HashedMap::default());
    for (index, repeats) in repeats {
        let read = log.read(index).map_err(|error| Status::of(&error))?;
        let said = match read.map(|entry| Entry::decode(&entry)) {
            Some(Ok(Entry::Batch(batch))) => {
                let new = verdicts(&batch, &repeats, &dropped);
                learn(&head, &batch, &new).and_then(|()| count(&head, index, &batch, &new)).map(|changes| {
                    let is_later = |change: &Change| reached.get(&change.series).is_none_or(|&to| index > to);
                    changes.into_iter().filter(is_later).for_each(|change| compose(&mut counted, change));
                })
            }
            Some(Err(error)) => Err(error),
            Some(Ok(_)) | None => Err(PackedError { at: 0, why: "a batch that is none" }),
        };
        if let Err(error) = said {
            tracing::error!(index, %error, "a batch of the log cannot be read; its profiles are missing");
            unreadable.push(index);
        }
    }
    head.reached(generation.last);
    head.close();
    Ok(ReadBack { head, unreadable, counted })
}

fn count(head: &Head, index: u64, batch: &Batch, new: &[Vec<bool>]) -> Result<Vec<Change>, PackedError> {
    if batch.counts() { changes(head, index, batch, new) } else { Ok(Vec::new()) }
}

fn compose(all: &mut HashedMap<Hash, Change>, change: Change) {
    let both = match all.remove(&change.series) {
        Some(before) => before.then(change),
        None => change,
    };
    all.insert(both.series, both);
}

fn learn(head: &Head, batch: &Batch, new: &[Vec<bool>]) -> Result<(), PackedError> {
    for part in &batch.tenants {
        head.learn(part, &tenant(&part.tenant)?)?;
    }
    show(head, batch, new)
}

/// Which records of a batch are new, and of this shard.
fn verdicts(batch: &Batch, repeats: &[(u32, u32)], dropped: &HashSet<Hash>) -> Vec<Vec<bool>> {
    let is_here = |record: &Record| !dropped.contains(&record.id);
    let mut verdicts: Vec<Vec<bool>> =
        batch.uploads.iter().map(|upload| upload.records.iter().map(is_here).collect()).collect();
    for &(upload, record) in repeats {
        verdicts[upload as usize][record as usize] = false;
    }
    verdicts
}

fn show(head: &Head, batch: &Batch, verdicts: &[Vec<bool>]) -> Result<(), PackedError> {
    for (upload, new) in batch.uploads.iter().zip(verdicts) {
        let tenant = tenant(&batch.tenants[upload.tenant as usize].tenant)?;
        head.show(&tenant, batch, upload, new);
    }
    Ok(())
}

fn tenant(name: &str) -> Result<TenantId, PackedError> {
    name.parse().map_err(|_| PackedError { at: 0, why: "a tenant's name that is none" })
}
