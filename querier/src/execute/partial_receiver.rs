//! Receiver of partial results from peers. Chunks reserve memory as they arrive, and a complete result is
//! merged.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::requests::result_budget::ResultReservation;
use athanor_chassis::{Clock, CpuActivity, ErrorCode, Status, TenantId};
use athanor_query::{BudgetedPartial, PartialChunkBuffer, PartialMerger, PartialResult, ProfileQuery};

use crate::diagnostics::SourceReport;
use crate::execute::query_execution::QueryExecution;
use crate::execute::replan::SourceQueryError;
use crate::execute::skipped_sources::UnreadableBlock;

/// Peer with profiles: of shards that it leads and that are in no block yet, or of blocks that it reads.
#[async_trait]
pub trait RemoteSource: Send + Sync {
    /// Queries everything that the plan assigns to the peer. Passes each result to the receiver: its chunks,
    /// then its end. A result contains a shard or block completely or not at all [INV-17].
    ///
    /// If some sources moved, the results of the others are passed all the same. The call then returns
    /// [`SourceQueryError::Replan`] or [`SourceQueryError::Gone`].
    async fn query(
        &self,
        tenant: &TenantId,
        ask: &ProfileQuery,
        inbox: &mut PartialReceiver,
    ) -> Result<(), SourceQueryError>;
}

/// Receiver of the partial results of one peer.
pub struct PartialReceiver {
    merging: Arc<QueryExecution>,
    /// Chunks of the current result, and the memory reserved for them and for the decoded result.
    received: PartialChunkBuffer,
    taken: Option<ResultReservation>,
    made_room: bool,
    /// Decoded result that arrived without chunks.
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

    /// Returns a receiver for a concurrent result of the same or another peer.
    #[must_use]
    pub fn fork(&self) -> Self {
        PartialReceiver::new(Arc::clone(&self.merging))
    }

    /// Returns the time until the deadline of the request.
    pub fn remaining_time(&self, clock: &Clock) -> Duration {
        self.merging.until.saturating_sub(clock.monotonic())
    }

    /// Receives the next chunk of a result.
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

    /// Returns a merger for results of this process, in the memory budget of the whole query.
    pub fn local_merger(&self) -> PartialMerger {
        PartialMerger::new(self.merging.ask.bounds, Arc::clone(self.merging.meeting.memory_budget()))
    }

    /// Takes the results of such a merger as one result. The caller ends it as any other.
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

    /// Completes the current result: decodes and merges it on a compute thread.
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

    /// Drops the chunks of the current result, which broke off.
    pub fn discard(&mut self) {
        (self.received, self.taken, self.made_room, self.met) =
            (PartialChunkBuffer::default(), None, false, None);
    }

    /// Reports the time range of the peer's memory. If it overlaps the query, the result depends on more than
    /// blocks.
    pub fn report_memory_range(&self, times: Option<(i64, i64)>) {
        let asked = self.merging.ask.selection.time;
        if let Some(times) = times.filter(|&(first, last)| asked.overlaps(first, last)) {
            self.merging.add_provenance(None);
            self.merging.met.observe_remote(times.0.max(asked.from));
        }
    }

    /// Records the report on a peer for query diagnostics.
    pub fn report_source(&self, report: SourceReport) {
        self.merging.scribe.record_source(report);
    }

    /// Adds a warning about data that the peer lacks. The result is then partial.
    pub fn add_warning(&mut self, what: String) {
        self.merging.add_warnings([what]);
    }

    /// Reports blocks that no node could read. The result lacks them.
    pub fn report_unreadable_blocks(&self, unread: Vec<UnreadableBlock>) {
        self.merging.left_out.add_blocks(unread);
    }

    /// Marks a warning, given by [`add_warning`](Self::add_warning), as a peer without response, which may
    /// respond later.
    pub fn report_unreachable(&self, words: &str) {
        self.merging.left_out.add_unreachable(words);
    }

    /// Checks that no result is incomplete.
    pub(crate) fn check_finished(&self) -> Result<(), Status> {
        if self.received.is_empty() && self.met.is_none() {
            return Ok(());
        }
        let message = "response of a peer ended before the result was complete; retry";
        Err(Status::new(ErrorCode::Unavailable, message))
    }
}
