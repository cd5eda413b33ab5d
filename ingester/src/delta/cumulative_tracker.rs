//! Tracker of cumulative series: the values that earlier profiles of each series have reported.
//!
//! ```text
//!  upload ─► DeltaConverter: subtracts ─► batch: records that begin or add ─► log ─► CumulativeTracker
//!                 ▲ values after batches in flight, else after applied entries               │
//!                 └──────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The values follow from the log alone: a record states whether its values begin a count or add to it. So
//! the next leader rebuilds them from the log. Before a flush purges entries, the leader logs the values of
//! each series and the entry up to which they count. A replay does not add entries up to that one. Followers
//! keep no values.
//!
//! If a batch in flight fails, all batches prepared after it fail: their values were subtracted from its
//! values.
//!
//! No series is evicted for lack of memory, since each of its next profiles would be stored whole. Profiles
//! beyond the bound are rejected.

mod series_table;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{ByteSize, ErrorCode, Status, TenantId};
use athanor_profile::encoding::codec::{CodecError, CodecReader, put_signed_varint, put_varint};
use athanor_profile::encoding::hash::{ContentHash, PrehashedMap, PrehashedSet};
use parking_lot::Mutex;

use crate::admission::SHARD_BUSY_RETRY_AFTER;
use crate::delta::cumulative_values::{CumulativeValues, DeltaOp, row_key};
use crate::head_store::head::Head;
use crate::head_store::rows;
use crate::log::entry::{self, ProfileRecord, UploadBatch};
use series_table::SeriesTable;

/// Memory of a series beside its values, in bytes.
const SERIES_OVERHEAD_BYTES: usize = 128;
/// Upper bound of the bytes that an entry takes per series beside its values.
const ENTRY_SERIES_OVERHEAD_BYTES: usize = 64;
/// Divisor of the memory budget that gives a tenant's share, so that no tenant takes the budget of all
/// others.
const TENANT_SHARE_DIVISOR: usize = 2;
/// Interval of searches for idle series while the budget is exhausted: not every rejected upload searches.
const IDLE_EVICTION_INTERVAL: Duration = Duration::from_secs(10);

/// Flag of a piece that continues the series of the piece before.
const CONTINUED_SERIES_FLAG: u64 = 1;
/// Flag of the last piece of a series.
const LAST_PIECE_FLAG: u64 = 2;

/// Bounds of the values that a shard keeps for cumulative series.
#[derive(Clone, Copy, Debug)]
pub struct DeltaLimits {
    /// Memory budget in bytes; one tenant may use half of it.
    pub bytes: ByteSize,
    /// Time for which an idle series is kept; longer if ids are kept for longer.
    pub idle: Duration,
}

/// Numbers of cumulative profiles by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeltaStats {
    /// Profiles without a known earlier one, stored whole.
    pub first: u64,
    /// Profiles of a restarted process, stored whole.
    pub restarts: u64,
    /// Profiles of which only the increase was stored.
    pub subtracted: u64,
    /// Profiles older than the latest one, with values that are counted already.
    pub late: u64,
    /// Late profiles with higher values than the latest one: an earlier process sent them, and their increase
    /// is lost.
    pub late_over_restart: u64,
    /// Series that were forgotten after a long idle time.
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

/// Values of a cumulative series as of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesState {
    /// Index of the last entry that counted.
    pub index: u64,
    /// Timestamp of the latest profile.
    pub time: i64,
    /// Cumulative values by stack.
    pub counted: CumulativeValues,
}

/// Effect of records on the state of their series.
#[derive(Clone, Debug)]
pub struct SeriesUpdate {
    /// Series, by [`ProfileRecord::delta_key`].
    pub series: ContentHash,
    /// Operation on the series state.
    pub step: DeltaOp,
    /// Values, with the last entry and the latest timestamp.
    pub count: SeriesState,
    /// Owner of the series; none if the log does not name it.
    pub tenant: Option<TenantId>,
}

/// Memory growth of series by tenant, in bytes.
pub type TenantMemoryGrowth = HashMap<TenantId, usize>;

/// Cumulative values of a shard that this node leads.
#[derive(Debug)]
pub struct CumulativeTracker {
    bounds: DeltaLimits,
    state: Mutex<TrackerState>,
}

#[derive(Debug, Default)]
struct TrackerState {
    kept: SeriesTable,
    /// Batches in flight, oldest first.
    flights: VecDeque<InFlightBatch>,
    /// Number of failed proposals when the last batch was started.
    failures: u64,
    /// Series of which the log has contained only the first pieces so far.
    part: Option<SeriesUpdate>,
    tally: DeltaStats,
    /// Time of the last search for idle series, which runs when the budget is exhausted.
    searched: Option<Duration>,
}

/// Batch that is launched and not finished.
#[derive(Debug)]
struct InFlightBatch {
    token: u64,
    /// Number of counting records that are not known to be applied.
    open: usize,
    /// IDs of all counting records.
    ids: PrehashedSet<ContentHash>,
    next: PrehashedMap<ContentHash, Arc<SeriesState>>,
    /// Memory growth that the series table does not include yet.
    grows: TenantMemoryGrowth,
}

/// Effect of a prepared batch on the tracked series.
#[derive(Debug)]
pub struct BatchDeltas {
    /// Token of the prepared batch.
    pub token: u64,
    /// IDs of its records that count.
    pub ids: PrehashedSet<ContentHash>,
    /// States of the changed series after the batch.
    pub next: PrehashedMap<ContentHash, Arc<SeriesState>>,
    /// Memory growth of these series.
    pub grows: TenantMemoryGrowth,
    /// Outcomes of its cumulative profiles.
    pub tally: DeltaStats,
}

/// Returns the updates by the new records of a batch, in their order.
pub(crate) fn batch_updates(
    head: &Head,
    index: u64,
    batch: &UploadBatch,
    new: &[Vec<bool>],
) -> Result<Vec<SeriesUpdate>, CodecError> {
    let mut changes = Vec::new();
    for (upload, new) in batch.uploads.iter().zip(new) {
        let counts = |record: &ProfileRecord| record.delta_op != DeltaOp::None;
        if !upload.records.iter().any(counts) {
            continue;
        }
        let name = &batch.tenants[upload.tenant as usize].tenant;
        let wrong = |why| CodecError { at: 0, why };
        let tenant = name.parse().map_err(|_| wrong("invalid tenant name"))?;
        let held = head.rows(&tenant);
        let held = held.read();
        let records = upload.records.iter().zip(new).filter(|(record, new)| **new && counts(record));
        for (record, _) in records {
            let mut values = Vec::with_capacity(record.samples as usize);
            let mut unknown = false;
            let each = |row: rows::HeadRow| {
                unknown |= row.stack as usize >= held.dictionary.stacks.len();
                if !unknown {
                    values.push((row_key(row.stack, row.span, row.trace, &held.dictionary), row.value));
                }
            };
            // A restarted process may have counted nothing yet.
            if record.samples > 0 {
                rows::for_each_row(&batch.rows[record.rows.clone()], each)?;
            }
            if unknown {
                return Err(wrong("undefined stack id"));
            }
            let count =
                SeriesState { index, time: record.time, counted: CumulativeValues::from_values(values) };
            let tenant = Some(tenant.clone());
            changes.push(SeriesUpdate { series: record.delta_key, step: record.delta_op, count, tenant });
        }
    }
    Ok(changes)
}

impl SeriesState {
    /// Returns the approximate memory of the state, bytes.
    pub fn memory(&self) -> usize {
        SERIES_OVERHEAD_BYTES + self.counted.memory()
    }

    /// Returns the state after a later increase.
    fn after(&self, later: &Self) -> Self {
        let counted = self.counted.sum_with(&later.counted);
        // A timestamp from a clock far ahead lasts until the first profile that follows it.
        Self { index: self.index.max(later.index), time: later.time, counted }
    }
}

impl SeriesUpdate {
    /// Returns the combined effect of this update and a later one.
    pub fn with_later(self, later: Self) -> Self {
        match later.step {
            DeltaOp::Reset => later,
            DeltaOp::Add | DeltaOp::None => Self { count: self.count.after(&later.count), ..self },
        }
    }
}

// === impl CumulativeTracker ===

impl CumulativeTracker {
    /// Creates a tracker without series.
    pub fn new(bounds: DeltaLimits) -> Self {
        Self { bounds, state: Mutex::default() }
    }

    /// Starts a batch. If the number of failed proposals changed, the tracker drops the batches in flight:
    /// none of them is ever applied.
    pub fn start_batch(&self, failures: u64) {
        let mut state = self.state.lock();
        if state.failures != failures {
            state.failures = failures;
            state.flights.clear();
        }
    }

    /// Returns the state of a series after all batches in flight are applied. The series counts as seen now.
    pub fn find(&self, series: ContentHash, tenant: &TenantId, now: Duration) -> Option<Arc<SeriesState>> {
        let mut state = self.state.lock();
        state.kept.touch(series, tenant, now);
        let in_flight = state.flights.iter().rev().find_map(|flight| flight.next.get(&series));
        in_flight.or_else(|| state.kept.get(series)).map(Arc::clone)
    }

    /// Returns whether a counting record is in flight.
    pub fn is_in_flight(&self, id: ContentHash) -> bool {
        self.state.lock().flights.iter().any(|flight| flight.ids.contains(&id))
    }

    /// Checks the budget for more memory of a tenant's series. Batches in flight and the growth of the
    /// current batch are included. If the budget is exhausted, idle series are forgotten first.
    pub fn check_budget(
        &self,
        tenant: &TenantId,
        more: usize,
        batch: &TenantMemoryGrowth,
        remembered: Duration,
        now: Duration,
    ) -> Result<(), Status> {
        let mut state = self.state.lock();
        let first = self.bounds.weigh(&state, tenant, more, batch);
        if first.is_ok() || state.searched.is_some_and(|at| now.saturating_sub(at) < IDLE_EVICTION_INTERVAL) {
            return first;
        }
        state.searched = Some(now);
        state.forget_idle(self.bounds.idle.max(remembered), now);
        self.bounds.weigh(&state, tenant, more, batch)
    }

    /// Launches a prepared batch: its changes are in flight.
    pub(crate) fn launch(&self, launch: BatchDeltas) {
        let BatchDeltas { token, ids, next, grows, tally } = launch;
        let mut state = self.state.lock();
        state.tally += tally;
        if !ids.is_empty() {
            state.flights.push_back(InFlightBatch { token, open: ids.len(), ids, next, grows });
        }
    }

    /// Applies a batch by its token: its new records have counted.
    pub fn apply(&self, token: u64, changes: Vec<SeriesUpdate>, now: Duration) {
        let mut state = self.state.lock();
        if let Some(flight) = state.flights.iter_mut().find(|flight| flight.token == token) {
            flight.open = flight.open.saturating_sub(changes.len());
            flight.grows.clear();
        }
        for change in changes {
            state.take(change, now);
        }
    }

    /// Removes a finished batch. Returns whether it counted all values from which later batches were
    /// subtracted.
    pub fn finish_batch(&self, token: u64) -> bool {
        let mut state = self.state.lock();
        let Some(place) = state.flights.iter().position(|flight| flight.token == token) else { return true };
        state.flights.remove(place).is_none_or(|flight| flight.open == 0)
    }

    /// Restores updates that were replayed from the log, in log order.
    pub fn restore(&self, changes: impl IntoIterator<Item = SeriesUpdate>, now: Duration) {
        let mut state = self.state.lock();
        for change in changes {
            state.take(change, now);
        }
    }

    /// Resets entry indexes that belong to another log: all entries of this log are later.
    pub fn reset_entry_indexes(&self) {
        for count in self.state.lock().kept.iter_series_mut() {
            count.index = 0;
        }
    }

    /// Returns the entry up to which each series has counted.
    pub fn counted_indexes(&self) -> PrehashedMap<ContentHash, u64> {
        self.state.lock().kept.iter_series().map(|(series, count)| (series, count.index)).collect()
    }

    /// Forgets series that were idle for long. They are kept at least as long as ids: a late profile of a
    /// series forgotten earlier would be stored whole.
    pub fn evict_idle(&self, remembered: Duration, now: Duration) {
        self.state.lock().forget_idle(self.bounds.idle.max(remembered), now);
    }

    /// Encodes the states of all series, in pieces of about `bytes` bytes.
    pub fn write(&self, bytes: usize) -> Vec<Vec<u8>> {
        let mut all: Vec<(ContentHash, Arc<SeriesState>)> =
            self.state.lock().kept.iter_series().map(|(series, count)| (series, Arc::clone(count))).collect();
        all.sort_unstable_by_key(|(series, _)| *series);
        let mut pieces = Vec::new();
        let mut piece = Vec::new();
        for (series, count) in all {
            let mut from = 0;
            let mut ends = false;
            // A series that counts nothing yet is encoded, too.
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

    /// Decodes a piece of series states, in log order. Pieces of later flushes replace earlier ones. A series
    /// counts only if all of its pieces are present.
    pub fn read(&self, piece: &[u8], now: Duration) -> Result<(), CodecError> {
        let mut unpacker = CodecReader::new(piece);
        let mut changes = Vec::new();
        while !unpacker.is_done() {
            let series = entry::read_id(&mut unpacker)?;
            let flags = unpacker.read_number()?;
            let index = unpacker.read_number()?;
            let time = unpacker.read_signed()?;
            let count = SeriesState { index, time, counted: CumulativeValues::read(&mut unpacker)? };
            let mut change = SeriesUpdate { series, step: DeltaOp::Reset, count, tenant: None };
            let begun = self.state.lock().part.take();
            if flags & CONTINUED_SERIES_FLAG > 0 {
                let is_its = |begun: &SeriesUpdate| (begun.series, begun.count.index) == (series, index);
                let Some(begun) = begun.filter(is_its) else { continue };
                change = begun.with_later(SeriesUpdate { step: DeltaOp::Add, ..change });
            }
            match flags & LAST_PIECE_FLAG {
                0 => self.state.lock().part = Some(change),
                _ => changes.push(change),
            }
        }
        self.restore(changes, now);
        Ok(())
    }

    /// Returns the number of series, their bytes and the outcomes of profiles.
    pub fn stats(&self) -> (u64, u64, DeltaStats) {
        let state = self.state.lock();
        (state.kept.len() as u64, state.kept.bytes() as u64, state.tally)
    }
}

impl DeltaLimits {
    fn weigh(
        &self,
        state: &TrackerState,
        tenant: &TenantId,
        more: usize,
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
            (format!("tenant {tenant}"), own, share, "half of ingester.delta.max_state_bytes_per_shard")
        } else if all > room {
            ("all tenants".to_owned(), all, room, "ingester.delta.max_state_bytes_per_shard")
        } else {
            return Ok(());
        };
        let [size, limit] = [size, limit].map(|bytes| ByteSize::bytes(bytes as u64));
        let message = format!(
            "the profile is cumulative and raises the delta state of {whose} to {size} of this shard's memory, the limit is {limit} ({of}); raise the limit, send deltas (__delta__=\"false\"), or retry when idle series have expired (ingester.delta.idle_timeout)"
        );
        Err(Status::new(ErrorCode::Exhausted, message)
            .with_reason("delta_state_limit")
            .with_retry_after(SHARD_BUSY_RETRY_AFTER))
    }
}

impl TrackerState {
    fn take(&mut self, change: SeriesUpdate, now: Duration) {
        let SeriesUpdate { series, step, count, tenant } = change;
        let count = match (step, self.kept.get(series)) {
            (DeltaOp::Reset, _) => count,
            (DeltaOp::Add, Some(before)) => before.after(&count),
            // The state that this adds to was lost: the next profile counts as the first one.
            (DeltaOp::Add, None) | (DeltaOp::None, _) => return,
        };
        self.kept.put(series, count, tenant, now);
    }

    fn forget_idle(&mut self, idle: Duration, now: Duration) {
        for series in self.kept.idle_series(idle, now) {
            // A batch in flight adds to the series.
            if self.flights.iter().all(|flight| !flight.next.contains_key(&series)) {
                self.kept.remove(series);
                self.tally.forgotten += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
