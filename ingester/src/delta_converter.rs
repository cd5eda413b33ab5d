//! Subtracting, while a batch is made: what its uploads add to what was counted before them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use athanor_chassis::{Status, TenantId};
use athanor_profile::Dictionary;
use athanor_profile::hash::{ContentHash, PrehashedMap, PrehashedSet};

use crate::cumulative_tracker::{
    BatchDeltas, CumulativeTracker, DeltaStats, SeriesState, TenantMemoryGrowth,
};
use crate::cumulative_values::{CumulativeValues, DeltaOp, row_key};
use crate::rows::{InputRow, normalize_rows, summed_rows};
use crate::state_machine::lock;
use crate::window::DedupWindow;

/// So far a clock may be ahead, in nanoseconds: further than where profiles are refused that are newer than now.
const MAX_CLOCK_AHEAD_NANOS: i64 = 15 * 60 * 1_000_000_000;

/// One batch.
pub struct DeltaConverter {
    counters: Arc<CumulativeTracker>,
    window: Arc<Mutex<DedupWindow>>,
    /// By the node's monotonic clock.
    now: Duration,
    /// What will be counted after the uploads that are in the batch, which of their records count, and what more they take.
    next: PrehashedMap<ContentHash, Arc<SeriesState>>,
    ids: PrehashedSet<ContentHash>,
    grows: TenantMemoryGrowth,
    tally: DeltaStats,
    /// Whether some answer holds only if all that is in flight is stored.
    leans: bool,
    /// The version of the table by which those were placed that count: they are stored together, or none of them.
    routed: Option<u64>,
    /// The same of the upload that is looked at.
    tenant: TenantId,
    upload_routed: u64,
    upload_ids: Vec<ContentHash>,
    upload: Vec<(ContentHash, Arc<SeriesState>)>,
    upload_grows: usize,
    of_upload: DeltaStats,
}

/// A record that may count.
pub struct DeltaCandidate {
    pub id: ContentHash,
    /// What its series counts under.
    pub counter: ContentHash,
    pub time: i64,
    /// When it came.
    pub received: i64,
    /// Its upload is of another process than the one before.
    pub anew: bool,
}

impl DeltaCandidate {
    /// Whether what it says was said by a later one. A clock that was far ahead of the moment when this one comes said
    /// nothing of what is later.
    fn is_late(&self, before: &SeriesState) -> bool {
        let latest = self.received.saturating_add(MAX_CLOCK_AHEAD_NANOS);
        before.time >= self.time && !(before.time > latest && self.time <= latest)
    }
}

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaOutcome {
    /// Nothing: there is nothing that it adds.
    Nothing,
    /// It came before, which its id tells.
    Again,
    /// It is stored, and does this to its series.
    New(DeltaOp),
}

impl DeltaConverter {
    /// A batch, after all that was prepared before it.
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

    /// The next uploads are a tenant's, placed by this version of the table.
    pub fn begin_uploads(&mut self, tenant: &TenantId, routed: u64) {
        (self.tenant, self.upload_routed) = (tenant.clone(), routed);
    }

    /// Whether uploads that were placed by this version of the table may be in the batch. Where one is stale and is not
    /// stored, none that was subtracted from it may be.
    pub fn accepts_table(&self, routed: u64) -> bool {
        self.routed.is_none_or(|known| known == routed)
    }

    /// Whether a series counts less than it did before.
    pub fn has_counter_reset(
        &self,
        candidate: &DeltaCandidate,
        rows: &[InputRow],
        dictionary: &Dictionary,
    ) -> bool {
        if self.is_on_its_way(candidate.id) || lock(&self.window).contains(candidate.id) {
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

    /// Leaves of a record's rows what they add; none of a repeat, whose rows are not looked at again: what it says was counted
    /// when it came first.
    pub fn subtract(
        &mut self,
        candidate: &DeltaCandidate,
        rows: &mut Vec<InputRow>,
        dictionary: &Dictionary,
    ) -> DeltaOutcome {
        self.routed.get_or_insert(self.upload_routed);
        // First this, since what has arrived is known before it is no more on its way.
        let is_on_its_way = self.is_on_its_way(candidate.id);
        self.leans |= is_on_its_way;
        if is_on_its_way || lock(&self.window).contains(candidate.id) {
            rows.clear();
            return DeltaOutcome::Again;
        }
        let before = self.find(candidate.counter);
        self.leans |= before.is_some();
        let counted = counted(rows, dictionary);
        if let Some(before) = before.as_ref().filter(|before| candidate.is_late(before)) {
            // A later profile of its process has said all that it says. Of a process before that one nothing is kept.
            let is_earlier = counted.can_precede(&before.counted);
            self.of_upload.late += u64::from(is_earlier);
            self.of_upload.late_over_restart += u64::from(!is_earlier);
            rows.clear();
            return DeltaOutcome::Nothing;
        }
        let (known, memory) =
            before.as_ref().map_or((0, 0), |before| (before.counted.len(), before.memory()));
        // A process that has counted nothing yet is remembered only where the one before had: what comes next of it is not to
        // be subtracted from that.
        if rows.is_empty() && known == 0 && (before.is_none() || candidate.anew) {
            return DeltaOutcome::Nothing;
        }
        let step = match before {
            Some(before) if !candidate.anew => {
                for same in rows.chunk_by_mut(|a, b| a.key() == b.key()) {
                    let said = before.counted.value(row_key(same[0].key(), dictionary));
                    same[0].value = same[0].value.wrapping_sub(said);
                }
                normalize_rows(rows);
                self.of_upload.subtracted += 1;
                DeltaOp::Adds
            }
            before => {
                let known = before.is_some();
                self.of_upload.restarts += u64::from(known);
                self.of_upload.first += u64::from(!known);
                DeltaOp::Begins
            }
        };
        if rows.is_empty() && step == DeltaOp::Adds {
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

    /// Whether there is room for what the upload that was looked at counts.
    pub fn check_budget(&self) -> Result<(), Status> {
        if self.upload_grows == 0 {
            return Ok(());
        }
        let remembered = Duration::from_nanos(lock(&self.window).span());
        self.counters.check_budget((&self.tenant, self.upload_grows), &self.grows, remembered, self.now)
    }

    /// The upload that was looked at is in the batch, or it is not.
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

    /// Whether some answer holds only if all that is in flight is stored: it says that a profile adds nothing to that.
    pub fn depends_on_in_flight(&self) -> bool {
        self.leans
    }

    /// The batch is on its way.
    pub fn launch(self, token: u64) {
        let Self { counters, next, ids, grows, tally, .. } = self;
        counters.launch(BatchDeltas { token, ids, next, grows, tally });
    }
}

fn counted(rows: &[InputRow], dictionary: &Dictionary) -> CumulativeValues {
    CumulativeValues::from_values(
        summed_rows(rows).map(|(same, sum)| (row_key(same[0].key(), dictionary), sum)).collect(),
    )
}
