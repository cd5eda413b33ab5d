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
use athanor_profile::hash::Hash;
use athanor_profile::packed::PackedError;
use futures::stream::{self, StreamExt, TryStreamExt};

use crate::entry::{Batch, Entry, Record};
use crate::head::Head;
use crate::heads::Heads;
use crate::machine::{Generation, Machine, lock};

/// One node's time of leading a shard.
#[derive(Debug)]
pub struct Reign {
    heads: Heads,
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
    pub fn new(clock: Clock) -> Self {
        Self {
            heads: Heads::new(),
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
        let read = |generation: Generation| {
            let (log, compute) = (log.clone(), compute.clone());
            async move {
                let read = move || read_back(&log, generation, now);
                compute.run_as(Activity::Apply, read).await.map_err(|error| Status::of(&error))?
            }
        };
        let heads: Vec<(Head, Vec<u64>)> =
            stream::iter(generations).map(read).buffered(compute.width()).try_collect().await?;
        let mut all = Vec::with_capacity(heads.len());
        for (head, mut unreadable) in heads {
            lock(&self.unreadable).append(&mut unreadable);
            all.push(Arc::new(head));
        }
        self.heads.precede(all);
        Ok(())
    }
}

/// The rows of a generation, and the entries that do not say what they should.
fn read_back(
    log: &Replicated<Machine>,
    generation: Generation,
    now: Duration,
) -> Result<(Head, Vec<u64>), Status> {
    let head = Head::new(generation.first - 1);
    head.holds(generation.token);
    head.bear(now);
    let (repeats, dropped) =
        log.with(|machine| (machine.repeats(generation.first..generation.last + 1), machine.dropped()));
    let mut unreadable = Vec::new();
    for (index, repeats) in repeats {
        let read = log.read(index).map_err(|error| Status::of(&error))?;
        let said = match read.map(|entry| Entry::decode(&entry)) {
            Some(Ok(Entry::Batch(batch))) => learn(&head, &batch, &repeats, &dropped),
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
    Ok((head, unreadable))
}

fn learn(
    head: &Head,
    batch: &Batch,
    repeats: &[(u32, u32)],
    dropped: &HashSet<Hash>,
) -> Result<(), PackedError> {
    for part in &batch.tenants {
        head.learn(part, &tenant(&part.tenant)?)?;
    }
    let is_here = |record: &Record| !dropped.contains(&record.id);
    let mut verdicts: Vec<Vec<bool>> =
        batch.uploads.iter().map(|upload| upload.records.iter().map(is_here).collect()).collect();
    for &(upload, record) in repeats {
        verdicts[upload as usize][record as usize] = false;
    }
    show(head, batch, &verdicts)
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
