//! What peers answer: pieces take room as they come, and a whole answer is merged into that of all others.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::memory_budget::MemoryReservation;
use athanor_chassis::{Clock, CpuActivity, ErrorCode, Status, TenantId};
use athanor_query::{BudgetedPartial, PartialChunkBuffer, PartialMerger, PartialResult, ProfileQuery};

use crate::diagnostics::SourceReport;
use crate::fan_out::QueryExecution;
use crate::replan::SourceQueryError;
use crate::skipped_sources::UnreadableBlock;

/// A peer that has profiles: those of shards that it leads, which are in no block yet, or those of blocks that it reads.
#[async_trait]
pub trait RemoteSource: Send + Sync {
    /// Asks for all that the plan says it has, and puts what comes into the inbox: the pieces of an answer, its end, and
    /// so on for each answer. A shard or block is either whole in an answer or not at all [INV-17].
    ///
    /// Where some have moved, the others are put in all the same, and the end is [`SourceQueryError::Replan`] or [`SourceQueryError::Gone`].
    async fn query(
        &self,
        tenant: &TenantId,
        ask: &ProfileQuery,
        inbox: &mut PartialReceiver,
    ) -> Result<(), SourceQueryError>;
}

/// Takes the answers of one peer.
pub struct PartialReceiver {
    merging: Arc<QueryExecution>,
    /// What has come of the answer that is under way, and the room for it and for what it will be.
    received: PartialChunkBuffer,
    taken: Option<MemoryReservation>,
    made_room: bool,
    /// An answer that came as it is, and not in pieces.
    met: Option<BudgetedPartial>,
}

impl PartialReceiver {
    pub(crate) fn new(merging: Arc<QueryExecution>) -> Self {
        PartialReceiver {
            merging,
            received: PartialChunkBuffer::default(),
            taken: None,
            made_room: false,
            met: None,
        }
    }

    /// For another answer, of the same or another peer, that comes meanwhile.
    #[must_use]
    pub fn fork(&self) -> Self {
        PartialReceiver::new(Arc::clone(&self.merging))
    }

    /// How long there is until nobody waits for the answer any more.
    pub fn remaining_time(&self, clock: &Clock) -> Duration {
        self.merging.until.saturating_sub(clock.monotonic())
    }

    /// Takes the next piece of an answer.
    pub fn push_chunk(&mut self, piece: &[u8]) -> Result<(), Status> {
        let before = self.received.memory_bytes();
        self.received.push(piece).map_err(|error| Status::from_error(&error))?;
        self.reserve_memory(self.received.memory_bytes().saturating_sub(before))?;
        match self.received.declared_size() {
            Some(claim) if !self.made_room => {
                self.made_room = true;
                self.reserve_memory(claim)
            }
            _ => Ok(()),
        }
    }

    /// Where answers meet that are found in this process, in the room of the answer to the whole question.
    pub fn local_merger(&self) -> PartialMerger {
        PartialMerger::new(self.merging.ask.bounds, Arc::clone(self.merging.meeting.memory_budget()))
    }

    /// Takes what has met at such a place as one answer, which ends as others do.
    pub fn add_merged(&mut self, place: &PartialMerger) -> Result<(), Status> {
        let none = || -> Result<BudgetedPartial, Status> {
            let partial = PartialResult::empty(&self.merging.ask.what);
            Ok(BudgetedPartial { partial, taken: place.memory_budget().reserve(0)? })
        };
        self.met = Some(place.take_merged().map_or_else(none, Ok)?);
        Ok(())
    }

    fn reserve_memory(&mut self, bytes: usize) -> Result<(), Status> {
        let more = self.merging.meeting.memory_budget().reserve(bytes)?;
        self.taken = Some(match self.taken.take() {
            Some(taken) => taken.merge(more),
            None => more,
        });
        Ok(())
    }

    /// The answer is whole: it is read and merged, on a compute thread.
    pub async fn finish(&mut self) -> Result<(), Status> {
        let received = std::mem::take(&mut self.received);
        let taken = self.taken.take();
        self.made_room = false;
        let merging = Arc::clone(&self.merging);
        let met = self.met.take();
        let job = move || {
            merging.scribe.measure_merge(|| {
                if let Some(BudgetedPartial { partial, taken }) = met {
                    return merging.meeting.add(partial, Some(taken));
                }
                let partial = received.unpack(&merging.ask).map_err(|error| Status::from_error(&error))?;
                drop(received);
                merging.meeting.add(partial, taken)
            })
        };
        self.merging
            .compute
            .run_as(CpuActivity::Query, job)
            .await
            .map_err(|error| Status::from_error(&error))?
    }

    /// What has come of the answer that is under way is not used: it broke off.
    pub fn discard(&mut self) {
        (self.received, self.taken, self.made_room, self.met) =
            (PartialChunkBuffer::default(), None, false, None);
    }

    /// Says of which time the peer has profiles in memory: if of that which is asked about, the answer is not of blocks alone.
    pub fn report_memory_range(&self, times: Option<(i64, i64)>) {
        let asked = self.merging.ask.selection.time;
        if let Some(times) = times.filter(|times| asked.overlaps(*times)) {
            self.merging.add_provenance(None);
            self.merging.met.observe_remote(times.0.max(asked.from));
        }
    }

    /// Says how the peer was asked, for who wants to know why a query was slow.
    pub fn report_source(&self, part: SourceReport) {
        self.merging.scribe.record_source(part);
    }

    /// Says what the peer lacks, in words: the answer is partial.
    pub fn add_warning(&mut self, what: String) {
        self.merging.add_warnings([what]);
    }

    /// Says which blocks nobody could read: the answer goes on without them.
    pub fn report_unreadable_blocks(&self, unread: Vec<UnreadableBlock>) {
        self.merging.left_out.add_blocks(unread);
    }

    /// Says that a peer did not answer, as is told by [`miss`](Self::miss): it may in a moment.
    pub fn report_unreachable(&self, words: &str) {
        self.merging.left_out.add_unreachable(words);
    }

    /// An answer that begins must end.
    pub(crate) fn check_finished(&self) -> Result<(), Status> {
        if self.received.is_empty() && self.met.is_none() {
            return Ok(());
        }
        let message = "a peer's answer broke off before its end; ask again";
        Err(Status::new(ErrorCode::Unavailable, message))
    }
}
