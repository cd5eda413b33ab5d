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
//!
//! Nothing is let go of for want of room: the next profile of such a series would be stored whole again, and again. What is
//! beyond the bound is refused.

mod series_table;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use athanor_chassis::{ByteSize, ErrorCode, Status, TenantId};
use athanor_profile::codec::{CodecError, CodecReader, put_signed_varint, put_varint};
use athanor_profile::hash::{ContentHash, PrehashedMap, PrehashedSet};

use crate::cumulative_values::{CumulativeValues, DeltaOp, row_key};
use crate::entry::{self, ProfileRecord, UploadBatch};
use crate::head::{Head, read};
use crate::rows;
use crate::shard::SHARD_BUSY_RETRY_AFTER;
use crate::state_machine::lock;
use series_table::SeriesTable;

/// What a series takes beside its values.
const SERIES_OVERHEAD_BYTES: usize = 128;
/// What an entry says of a series beside its values, at most.
const ENTRY_SERIES_OVERHEAD_BYTES: usize = 64;
/// The part of the room that a tenant may take: nobody takes that of all others.
const TENANT_SHARE_DIVISOR: usize = 2;
/// Where there is no room, what is idle is looked for so often: not for each upload that is refused.
const IDLE_EVICTION_INTERVAL: Duration = Duration::from_secs(10);

/// What is said of a series goes on from the piece before.
const CONTINUED_SERIES_FLAG: u64 = 1;
/// It ends here.
const LAST_PIECE_FLAG: u64 = 2;

/// How much of what was counted a shard keeps.
#[derive(Clone, Copy, Debug)]
pub struct DeltaLimits {
    /// Bytes of memory; half of them for one tenant.
    pub bytes: ByteSize,
    /// How long a series is kept that sends nothing; longer where ids are remembered for longer.
    pub idle: Duration,
}

/// How often it went which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeltaStats {
    /// Profiles of which nothing earlier was known: stored whole.
    pub first: u64,
    /// Profiles of a process that began anew: stored whole.
    pub restarts: u64,
    /// Profiles of which only what they add was stored.
    pub subtracted: u64,
    /// Profiles from before the last one: what they say is counted already.
    pub late: u64,
    /// Those among them that say more than the last one, so that they are of a process before: what they add is lost.
    pub late_over_restart: u64,
    /// Series that were forgotten, since they sent nothing for long.
    pub forgotten: u64,
}

impl std::ops::AddAssign for DeltaStats {
    fn add_assign(&mut self, other: Self) {
        self.first += other.first;
        self.restarts += other.restarts;
        self.subtracted += other.subtracted;
        self.late += other.late;
        self.late_over_restart += other.late_over_restart;
        self.forgotten += other.forgotten;
    }
}

/// What a series has counted, by when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesState {
    /// The entry that counted last.
    pub index: u64,
    /// The time of the latest profile.
    pub time: i64,
    /// The values.
    pub counted: CumulativeValues,
}

/// What records of a series do to what it has counted.
#[derive(Clone, Debug)]
pub struct SeriesUpdate {
    /// The series, by [`ProfileRecord::counter`].
    pub series: ContentHash,
    /// How.
    pub step: DeltaOp,
    /// The values, with the last entry and the latest time.
    pub count: SeriesState,
    /// Whose series it is, if that is said.
    pub tenant: Option<TenantId>,
}

/// How much more memory the series of each tenant take.
pub type TenantMemoryGrowth = HashMap<TenantId, usize>;

/// What is counted in a shard that this node leads.
#[derive(Debug)]
pub struct CumulativeTracker {
    bounds: DeltaLimits,
    state: Mutex<TrackerState>,
}

#[derive(Debug, Default)]
struct TrackerState {
    kept: SeriesTable,
    /// Batches that are not applied, oldest first.
    flights: VecDeque<InFlightBatch>,
    /// How many proposals had failed when the last batch was begun.
    failures: u64,
    /// A series of which the log has said only the beginning.
    part: Option<SeriesUpdate>,
    tally: DeltaStats,
    /// When there was no room, and what is idle was looked for.
    searched: Option<Duration>,
}

/// A batch in flight.
#[derive(Debug)]
struct InFlightBatch {
    token: u64,
    /// Records that count and are not known to be applied.
    open: usize,
    /// The ids of these records.
    ids: PrehashedSet<ContentHash>,
    next: PrehashedMap<ContentHash, Arc<SeriesState>>,
    /// What is not in what is kept yet.
    grows: TenantMemoryGrowth,
}

/// A batch that is on its way.
#[derive(Debug)]
pub struct BatchDeltas {
    /// Its token.
    pub token: u64,
    /// The ids of its records that count.
    pub ids: PrehashedSet<ContentHash>,
    /// What series will have counted after it.
    pub next: PrehashedMap<ContentHash, Arc<SeriesState>>,
    /// By how much they grow.
    pub grows: TenantMemoryGrowth,
    /// What became of its profiles.
    pub tally: DeltaStats,
}

/// What the records of a batch do that are new, in their order.
pub(crate) fn batch_updates(
    head: &Head,
    index: u64,
    batch: &UploadBatch,
    new: &[Vec<bool>],
) -> Result<Vec<SeriesUpdate>, CodecError> {
    let mut changes = Vec::new();
    for (upload, new) in batch.uploads.iter().zip(new) {
        let counts = |record: &ProfileRecord| record.step != DeltaOp::Nothing;
        if !upload.records.iter().any(counts) {
            continue;
        }
        let name = &batch.tenants[upload.tenant as usize].tenant;
        let wrong = |why| CodecError { at: 0, why };
        let tenant = name.parse().map_err(|_| wrong("a tenant's name that is none"))?;
        let held = head.rows(&tenant);
        let held = read(&held);
        let records = upload.records.iter().zip(new).filter(|(record, new)| **new && counts(record));
        for (record, _) in records {
            let mut values = Vec::with_capacity(record.samples as usize);
            let mut unknown = false;
            let each = |row: rows::HeadRow| {
                unknown |= row.stack as usize >= held.dictionary.stacks.len();
                if !unknown {
                    values.push((row_key((row.stack, row.span, row.trace), &held.dictionary), row.value));
                }
            };
            // A process that began anew may have counted nothing yet.
            if record.samples > 0 {
                rows::for_each_row(&batch.rows[record.rows.clone()], each)?;
            }
            if unknown {
                return Err(wrong("a stack that nobody named"));
            }
            let count =
                SeriesState { index, time: record.time, counted: CumulativeValues::from_values(values) };
            let tenant = Some(tenant.clone());
            changes.push(SeriesUpdate { series: record.counter, step: record.step, count, tenant });
        }
    }
    Ok(changes)
}

impl SeriesState {
    /// About what it takes.
    pub fn memory(&self) -> usize {
        SERIES_OVERHEAD_BYTES + self.counted.memory()
    }

    /// After what came later.
    fn after(&self, later: &Self) -> Self {
        let counted = self.counted.sum_with(&later.counted);
        // A time from a clock that was far ahead ends with the first profile that comes after it.
        Self { index: self.index.max(later.index), time: later.time, counted }
    }
}

impl SeriesUpdate {
    /// Both, one after the other.
    pub fn with_later(self, later: Self) -> Self {
        match later.step {
            DeltaOp::Begins => later,
            DeltaOp::Adds | DeltaOp::Nothing => Self { count: self.count.after(&later.count), ..self },
        }
    }
}

// === impl Counters ===

impl CumulativeTracker {
    /// Nothing is counted yet.
    pub fn new(bounds: DeltaLimits) -> Self {
        Self { bounds, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, TrackerState> {
        lock(&self.state)
    }

    /// A batch is begun when so many proposals have failed: of those in flight before that, none is ever applied.
    pub fn start_batch(&self, failures: u64) {
        let mut state = self.state();
        if state.failures != failures {
            state.failures = failures;
            state.flights.clear();
        }
    }

    /// What a tenant's series will have counted when all that is in flight is applied. Who asks has heard of it.
    pub fn find(&self, series: ContentHash, tenant: &TenantId, now: Duration) -> Option<Arc<SeriesState>> {
        let mut state = self.state();
        state.kept.touch(series, tenant, now);
        let in_flight = state.flights.iter().rev().find_map(|flight| flight.next.get(&series));
        in_flight.or_else(|| state.kept.get(series)).map(Arc::clone)
    }

    /// Whether a record that counts is in flight.
    pub fn is_in_flight(&self, id: ContentHash) -> bool {
        self.state().flights.iter().any(|flight| flight.ids.contains(&id))
    }

    /// Whether there is room for what a tenant's series take more, all that is in flight and what a batch has grown already
    /// counted in. What is idle goes for it.
    pub fn check_budget(
        &self,
        (tenant, more): (&TenantId, usize),
        batch: &TenantMemoryGrowth,
        remembered: Duration,
        now: Duration,
    ) -> Result<(), Status> {
        let mut state = self.state();
        let first = self.bounds.weigh(&state, (tenant, more), batch);
        if first.is_ok() || state.searched.is_some_and(|at| now.saturating_sub(at) < IDLE_EVICTION_INTERVAL) {
            return first;
        }
        state.searched = Some(now);
        state.forget_idle(self.bounds.idle.max(remembered), now);
        self.bounds.weigh(&state, (tenant, more), batch)
    }

    /// A batch that was prepared is on its way.
    pub(crate) fn launch(&self, launch: BatchDeltas) {
        let BatchDeltas { token, ids, next, grows, tally } = launch;
        let mut state = self.state();
        state.tally += tally;
        if !ids.is_empty() {
            state.flights.push_back(InFlightBatch { token, open: ids.len(), ids, next, grows });
        }
    }

    /// The batch of a token is applied: its records that are new have counted.
    pub fn apply(&self, token: u64, changes: Vec<SeriesUpdate>, now: Duration) {
        let mut state = self.state();
        if let Some(flight) = state.flights.iter_mut().find(|flight| flight.token == token) {
            flight.open = flight.open.saturating_sub(changes.len());
            flight.grows.clear();
        }
        for change in changes {
            state.take(change, now);
        }
    }

    /// A batch was answered: whether it has counted all that those behind it were subtracted from.
    pub fn finish_batch(&self, token: u64) -> bool {
        let mut state = self.state();
        let Some(place) = state.flights.iter().position(|flight| flight.token == token) else { return true };
        state.flights.remove(place).is_none_or(|flight| flight.open == 0)
    }

    /// Takes what was read back from the log, in its order.
    pub fn restore(&self, changes: impl IntoIterator<Item = SeriesUpdate>, now: Duration) {
        let mut state = self.state();
        for change in changes {
            state.take(change, now);
        }
    }

    /// It was counted by entries of another log: whatever comes in this one is later.
    pub fn reset_entry_indexes(&self) {
        for count in self.state().kept.iter_series_mut() {
            count.index = 0;
        }
    }

    /// Up to which entry each series has counted.
    pub fn counted_indexes(&self) -> PrehashedMap<ContentHash, u64> {
        self.state().kept.iter_series().map(|(series, count)| (series, count.index)).collect()
    }

    /// Forgets what has sent nothing for long. Ids are remembered for as long as profiles may be late: a late one of what was
    /// forgotten before that would be stored whole.
    pub fn evict_idle(&self, remembered: Duration, now: Duration) {
        self.state().forget_idle(self.bounds.idle.max(remembered), now);
    }

    /// All that is counted, in pieces of about so many bytes.
    pub fn write(&self, bytes: usize) -> Vec<Vec<u8>> {
        let mut all: Vec<(ContentHash, Arc<SeriesState>)> =
            self.state().kept.iter_series().map(|(series, count)| (series, Arc::clone(count))).collect();
        all.sort_unstable_by_key(|(series, _)| *series);
        let mut pieces = Vec::new();
        let mut piece = Vec::new();
        for (series, count) in all {
            let mut from = 0;
            let mut ends = false;
            // A series that counts nothing yet is said, too.
            while !ends {
                if piece.len() > bytes / 2 {
                    pieces.push(std::mem::take(&mut piece));
                }
                let mut values = Vec::new();
                let room = bytes.saturating_sub(piece.len() + ENTRY_SERIES_OVERHEAD_BYTES);
                let to = count.counted.write(from, room, &mut values);
                ends = to == count.counted.len();
                let flags =
                    (CONTINUED_SERIES_FLAG * u64::from(from > 0)) | (LAST_PIECE_FLAG * u64::from(ends));
                piece.extend_from_slice(&series.to_le_bytes());
                [flags, count.index].into_iter().for_each(|number| put_varint(&mut piece, number));
                put_signed_varint(&mut piece, count.time);
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
    pub fn read(&self, piece: &[u8], now: Duration) -> Result<(), CodecError> {
        let mut unpacker = CodecReader::new(piece);
        let mut changes = Vec::new();
        while !unpacker.is_done() {
            let series = entry::read_id(&mut unpacker)?;
            let flags = unpacker.read_number()?;
            let index = unpacker.read_number()?;
            let time = unpacker.read_signed()?;
            let count = SeriesState { index, time, counted: CumulativeValues::read(&mut unpacker)? };
            let mut change = SeriesUpdate { series, step: DeltaOp::Begins, count, tenant: None };
            let begun = self.state().part.take();
            if flags & CONTINUED_SERIES_FLAG > 0 {
                let is_its = |begun: &SeriesUpdate| (begun.series, begun.count.index) == (series, index);
                let Some(begun) = begun.filter(is_its) else { continue };
                change = begun.with_later(SeriesUpdate { step: DeltaOp::Adds, ..change });
            }
            match flags & LAST_PIECE_FLAG {
                0 => self.state().part = Some(change),
                _ => changes.push(change),
            }
        }
        self.restore(changes, now);
        Ok(())
    }

    /// How many series count, the bytes that they take, and what became of profiles.
    pub fn stats(&self) -> (u64, u64, DeltaStats) {
        let state = self.state();
        (state.kept.len() as u64, state.kept.bytes() as u64, state.tally)
    }
}

impl DeltaLimits {
    fn weigh(
        &self,
        state: &TrackerState,
        (tenant, more): (&TenantId, usize),
        batch: &TenantMemoryGrowth,
    ) -> Result<(), Status> {
        let grows = || state.flights.iter().map(|flight| &flight.grows).chain([batch]);
        let all = state.kept.bytes() + more + grows().flat_map(TenantMemoryGrowth::values).sum::<usize>();
        let own = state.kept.tenant_bytes(tenant)
            + more
            + grows().filter_map(|grows| grows.get(tenant)).sum::<usize>();
        let room = self.bytes.as_usize();
        let share = self.bytes.as_usize() / TENANT_SHARE_DIVISOR;
        let (whose, size, limit, of) = if own > share {
            (format!("tenant {tenant} has"), own, share, "half of ingester.counters")
        } else if all > room {
            ("all tenants have".to_owned(), all, room, "ingester.counters")
        } else {
            return Ok(());
        };
        let [size, limit] = [size, limit].map(|bytes| ByteSize::bytes(bytes as u64));
        let message = format!(
            "the profile counts since its process began, and with it what {whose} counted would take {size} of this shard's memory, the limit is {limit} ({of}): raise it, send differences (__delta__=\"false\"), or send again when processes that ended are forgotten (ingester.counters_idle)"
        );
        Err(Status::new(ErrorCode::Exhausted, message)
            .with_reason("counters_limit")
            .with_retry_after(SHARD_BUSY_RETRY_AFTER))
    }
}

impl TrackerState {
    fn take(&mut self, change: SeriesUpdate, now: Duration) {
        let SeriesUpdate { series, step, count, tenant } = change;
        let count = match (step, self.kept.get(series)) {
            (DeltaOp::Begins, _) => count,
            (DeltaOp::Adds, Some(before)) => before.after(&count),
            // What it comes to was lost: the next profile is the first one again.
            (DeltaOp::Adds, None) | (DeltaOp::Nothing, _) => return,
        };
        self.kept.put(series, count, tenant, now);
    }

    fn forget_idle(&mut self, idle: Duration, now: Duration) {
        for series in self.kept.idle_series(idle, now) {
            // What is in flight comes to it.
            if self.flights.iter().all(|flight| !flight.next.contains_key(&series)) {
                self.kept.remove(series);
                self.tally.forgotten += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
