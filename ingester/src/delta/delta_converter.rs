//! Converter of cumulative profiles to their increase, while a batch is built.

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{Status, TenantId};
use athanor_profile::Dictionary;
use athanor_profile::encoding::hash::{ContentHash, PrehashedMap, PrehashedSet};
use parking_lot::Mutex;

use crate::delta::cumulative_tracker::{
    BatchDeltas, CumulativeTracker, DeltaStats, SeriesState, TenantMemoryGrowth,
};
use crate::delta::cumulative_values::{CumulativeValues, DeltaOp, row_key};
use crate::head_store::rows::{InputRow, normalize_rows, summed_rows};
use crate::window::DedupWindow;

/// Maximum nanoseconds that a clock may be ahead: further than the default limit on profiles in the future.
const MAX_CLOCK_AHEAD_NANOS: i64 = 15 * 60 * 1_000_000_000;

/// Conversion of the uploads of one batch.
pub struct DeltaConverter {
    counters: Arc<CumulativeTracker>,
    window: Arc<Mutex<DedupWindow>>,
    /// Monotonic time of the node.
    now: Duration,
    /// States of series after the uploads in the batch, then the ids of counting records and the memory
    /// growth.
    next: PrehashedMap<ContentHash, Arc<SeriesState>>,
    ids: PrehashedSet<ContentHash>,
    grows: TenantMemoryGrowth,
    tally: DeltaStats,
    /// True if some result holds only if all batches in flight are stored.
    leans: bool,
    /// Version of the table by which the counting uploads were placed: all of them are stored, or none.
    routed: Option<u64>,
    /// Same fields for the current upload.
    tenant: TenantId,
    upload_routed: u64,
    upload_ids: Vec<ContentHash>,
    upload: Vec<(ContentHash, Arc<SeriesState>)>,
    upload_grows: usize,
    of_upload: DeltaStats,
}

/// Record that may count.
pub struct DeltaCandidate {
    pub id: ContentHash,
    /// Key of its cumulative series.
    pub counter: ContentHash,
    pub time: i64,
    /// Arrival of the profile, Unix nanoseconds.
    pub received: i64,
    /// True if its upload comes from another process than the one before.
    pub anew: bool,
}

impl DeltaCandidate {
    /// Returns whether a later profile contains its values already. A timestamp from a clock that is far
    /// ahead of this record's arrival does not count as later.
    fn is_late(&self, before: &SeriesState) -> bool {
        let latest = self.received.saturating_add(MAX_CLOCK_AHEAD_NANOS);
        before.time >= self.time && !(before.time > latest && self.time <= latest)
    }
}

/// Outcome of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaOutcome {
    /// The record adds nothing and is not stored.
    Nothing,
    /// The record is a duplicate, identified by its id.
    Again,
    /// The record is stored, with this effect on its series.
    New(DeltaOp),
}

impl DeltaConverter {
    /// Starts a batch after all batches that were prepared before.
    pub fn new(counters: Arc<CumulativeTracker>, window: Arc<Mutex<DedupWindow>>, now: Duration) -> Self {
        Self {
            counters,
            window,
            now,
            next: PrehashedMap::default(),
            ids: PrehashedSet::default(),
            grows: TenantMemoryGrowth::default(),
            tally: DeltaStats::default(),
            leans: false,
            routed: None,
            tenant: TenantId::anonymous(),
            upload_routed: 0,
            upload_ids: Vec::new(),
            upload: Vec::new(),
            upload_grows: 0,
            of_upload: DeltaStats::default(),
        }
    }

    /// Sets the tenant and the table version of the next uploads.
    pub fn begin_uploads(&mut self, tenant: &TenantId, routed: u64) {
        (self.tenant, self.upload_routed) = (tenant.clone(), routed);
    }

    /// Returns whether the batch accepts uploads that this table version placed. If a stale upload is not
    /// stored, none that was subtracted from it may be stored.
    pub fn accepts_table(&self, routed: u64) -> bool {
        self.routed.is_none_or(|known| known == routed)
    }

    /// Returns whether a series counts less than before.
    pub fn has_counter_reset(
        &self,
        candidate: &DeltaCandidate,
        rows: &[InputRow],
        dictionary: &Dictionary,
    ) -> bool {
        if self.is_on_its_way(candidate.id) || self.window.lock().contains(candidate.id) {
            return false;
        }
        let before = self.find(candidate.counter);
        before.is_some_and(|before| {
            !candidate.is_late(&before) && !before.counted.can_precede(&counted(rows, dictionary))
        })
    }

    fn is_on_its_way(&self, id: ContentHash) -> bool {
        self.ids.contains(&id) || self.counters.is_in_flight(id)
    }

    /// Reduces a record's rows to their increase. Rows of a duplicate are removed unread: its values were
    /// counted when it first arrived.
    pub fn subtract(
        &mut self,
        candidate: &DeltaCandidate,
        rows: &mut Vec<InputRow>,
        dictionary: &Dictionary,
    ) -> DeltaOutcome {
        self.routed.get_or_insert(self.upload_routed);
        // Checked first: an applied record is in the window before it leaves the batches in flight.
        let is_on_its_way = self.is_on_its_way(candidate.id);
        self.leans |= is_on_its_way;
        if is_on_its_way || self.window.lock().contains(candidate.id) {
            rows.clear();
            return DeltaOutcome::Again;
        }
        let before = self.find(candidate.counter);
        self.leans |= before.is_some();
        let counted = counted(rows, dictionary);
        if let Some(before) = before.as_ref().filter(|before| candidate.is_late(before)) {
            // A later profile of its process contains all of its values. No state is kept of earlier
            // processes.
            let is_earlier = counted.can_precede(&before.counted);
            self.of_upload.late += u64::from(is_earlier);
            self.of_upload.late_over_restart += u64::from(!is_earlier);
            rows.clear();
            return DeltaOutcome::Nothing;
        }
        let (known, memory) =
            before.as_ref().map_or((0, 0), |before| (before.counted.len(), before.memory()));
        // A restarted process that has counted nothing is remembered only if the one before had counted. Its
        // next profile must not be subtracted from those values.
        if rows.is_empty() && known == 0 && (before.is_none() || candidate.anew) {
            return DeltaOutcome::Nothing;
        }
        let step = match before {
            Some(before) if !candidate.anew => {
                for same in rows.chunk_by_mut(|a, b| a.key() == b.key()) {
                    let said = before.counted.value(input_row_key(&same[0], dictionary));
                    same[0].value = same[0].value.wrapping_sub(said);
                }
                normalize_rows(rows);
                self.of_upload.subtracted += 1;
                DeltaOp::Add
            }
            before => {
                let known = before.is_some();
                self.of_upload.restarts += u64::from(known);
                self.of_upload.first += u64::from(!known);
                DeltaOp::Reset
            }
        };
        if rows.is_empty() && step == DeltaOp::Add {
            return DeltaOutcome::Nothing;
        }
        let count = SeriesState { index: 0, time: candidate.time, counted };
        self.upload_grows += count.memory().saturating_sub(memory);
        self.upload.push((candidate.counter, Arc::new(count)));
        self.upload_ids.push(candidate.id);
        DeltaOutcome::New(step)
    }

    fn find(&self, counter: ContentHash) -> Option<Arc<SeriesState>> {
        let of_upload = self.upload.iter().rev().find(|(of, _)| *of == counter).map(|(_, count)| count);
        let here = of_upload.or_else(|| self.next.get(&counter)).map(Arc::clone);
        here.or_else(|| self.counters.find(counter, &self.tenant, self.now))
    }

    /// Checks the memory budget for the current upload.
    pub fn check_budget(&self) -> Result<(), Status> {
        if self.upload_grows == 0 {
            return Ok(());
        }
        let remembered = Duration::from_nanos(self.window.lock().span());
        self.counters.check_budget(&self.tenant, self.upload_grows, &self.grows, remembered, self.now)
    }

    /// Ends the current upload, which is in the batch or not.
    pub fn finish_upload(&mut self, is_in: bool) {
        let upload = std::mem::take(&mut self.upload);
        let tally = std::mem::take(&mut self.of_upload);
        let grows = std::mem::take(&mut self.upload_grows);
        let ids = std::mem::take(&mut self.upload_ids);
        if is_in {
            self.ids.extend(ids);
            self.next.extend(upload);
            self.tally += tally;
            if grows > 0 {
                *self.grows.entry(self.tenant.clone()).or_default() += grows;
            }
        }
    }

    /// Returns whether some result holds only if all batches in flight are stored, since a profile adds
    /// nothing to them.
    pub fn depends_on_in_flight(&self) -> bool {
        self.leans
    }

    /// Launches the batch: its changes are in flight.
    pub fn launch(self, token: u64) {
        let Self { counters, next, ids, grows, tally, .. } = self;
        counters.launch(BatchDeltas { token, ids, next, grows, tally });
    }
}

/// Returns the key of an uploaded row.
fn input_row_key(row: &InputRow, dictionary: &Dictionary) -> ContentHash {
    row_key(row.stack, row.span, row.trace, dictionary)
}

fn counted(rows: &[InputRow], dictionary: &Dictionary) -> CumulativeValues {
    CumulativeValues::from_values(
        summed_rows(rows).map(|(same, sum)| (input_row_key(&same[0], dictionary), sum)).collect(),
    )
}
