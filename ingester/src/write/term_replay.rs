//! Replay of the log at the start of a leader term: rows and values that earlier leaders stored.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{ComputePool, CpuActivity, Status};
use athanor_consensus::RaftGroup;
use athanor_profile::encoding::codec::CodecError;
use athanor_profile::encoding::hash::{ContentHash, PrehashedMap};
use futures::stream::{self, StreamExt, TryStreamExt};

use crate::delta::cumulative_tracker::{SeriesUpdate, batch_updates};
use crate::head_store::head::Head;
use crate::log::entry::{ProfileRecord, ShardLogEntry, UploadBatch};
use crate::log::generation::LogGeneration;
use crate::log::state_machine::ShardStateMachine;
use crate::write::leader_term::{LeaderTerm, TermStart, parse_tenant, publish_records};

/// Result of replaying a generation.
struct ReplayedGeneration {
    /// Rows of the generation.
    head: Head,
    /// Entries that do not decode as batches.
    unreadable: Vec<u64>,
    /// Effect of its records on cumulative series.
    counted: PrehashedMap<ContentHash, SeriesUpdate>,
}

impl LeaderTerm {
    /// Replays the unflushed entries of earlier leaders.
    pub(crate) async fn replay_log(
        &self,
        log: &RaftGroup<ShardStateMachine>,
        compute: &ComputePool,
    ) -> Result<(), Status> {
        let Some(TermStart { index, .. }) = self.term_start() else { return Ok(()) };
        let generations = log.with_state_machine(|machine| machine.generations(index));
        let now = self.clock.monotonic();
        self.read_counted(log, compute).await?;
        let reached = Arc::new(self.counters.counted_indexes());
        let read = |generation: LogGeneration| {
            let log = log.clone();
            let compute = compute.clone();
            let reached = Arc::clone(&reached);
            async move {
                let read = move || read_back(&log, generation, &reached, now);
                compute.run_as(CpuActivity::Apply, read).await.map_err(|error| Status::from_error(&error))?
            }
        };
        let read: Vec<ReplayedGeneration> =
            stream::iter(generations).map(read).buffered(compute.parallelism()).try_collect().await?;
        let mut all = Vec::with_capacity(read.len());
        for ReplayedGeneration { head, mut unreadable, counted } in read {
            self.unreadable.lock().append(&mut unreadable);
            self.counters.restore(counted.into_values(), now);
            all.push(Arc::new(head));
        }
        self.heads.prepend(all);
        Ok(())
    }

    /// Takes over the values of cumulative series from the log.
    async fn read_counted(
        &self,
        log: &RaftGroup<ShardStateMachine>,
        compute: &ComputePool,
    ) -> Result<(), Status> {
        let log = log.clone();
        let counters = Arc::clone(&self.counters);
        let now = self.clock.monotonic();
        let read = move || {
            for index in log.with_state_machine(ShardStateMachine::delta_state_indexes) {
                let entry = log.read_proposal(index).map_err(|error| Status::from_error(&error))?;
                let piece = match entry.map(|entry| ShardLogEntry::decode(&entry)) {
                    Some(Ok(ShardLogEntry::DeltaState(piece))) => counters.read(&piece, now),
                    Some(Err(error)) => Err(error),
                    Some(Ok(_)) | None => Err(CodecError { at: 0, why: "entry is not a delta state" }),
                };
                if let Err(error) = piece {
                    tracing::error!(index, %error, "failed to decode delta state, resetting its series");
                }
            }
            Ok(())
        };
        compute.run_as(CpuActivity::Apply, read).await.map_err(|error| Status::from_error(&error))?
    }
}

/// Replays a generation. Records count only if the log has no later values of their series.
fn read_back(
    log: &RaftGroup<ShardStateMachine>,
    generation: LogGeneration,
    reached: &PrehashedMap<ContentHash, u64>,
    now: Duration,
) -> Result<ReplayedGeneration, Status> {
    let head = Head::new(generation.first - 1);
    head.set_generation(generation.token);
    head.set_first_profile_at(now);
    let (repeats, dropped) = log.with_state_machine(|machine| {
        (machine.duplicate_records(generation.first..generation.last + 1), machine.foreign_ids())
    });
    let mut unreadable = Vec::new();
    let mut counted = PrehashedMap::default();
    for (index, repeats) in repeats {
        let read = log.read_proposal(index).map_err(|error| Status::from_error(&error))?;
        let said = match read.map(|entry| ShardLogEntry::decode(&entry)) {
            Some(Ok(ShardLogEntry::Batch(batch))) => {
                let new = verdicts(&batch, &repeats, &dropped);
                learn(&head, &batch, &new).and_then(|()| count(&head, index, &batch, &new)).map(|changes| {
                    let is_later =
                        |change: &SeriesUpdate| reached.get(&change.series).is_none_or(|&to| index > to);
                    changes.into_iter().filter(is_later).for_each(|change| compose(&mut counted, change));
                })
            }
            Some(Err(error)) => Err(error),
            Some(Ok(_)) | None => Err(CodecError { at: 0, why: "entry is not a batch" }),
        };
        if let Err(error) = said {
            tracing::error!(index, %error, "failed to decode batch of the log, its profiles are lost");
            unreadable.push(index);
        }
    }
    head.mark_applied(generation.last);
    head.close();
    Ok(ReplayedGeneration { head, unreadable, counted })
}

fn count(
    head: &Head,
    index: u64,
    batch: &UploadBatch,
    new: &[Vec<bool>],
) -> Result<Vec<SeriesUpdate>, CodecError> {
    if batch.has_delta_records() { batch_updates(head, index, batch, new) } else { Ok(Vec::new()) }
}

fn compose(all: &mut PrehashedMap<ContentHash, SeriesUpdate>, change: SeriesUpdate) {
    let both = match all.remove(&change.series) {
        Some(before) => before.with_later(change),
        None => change,
    };
    all.insert(both.series, both);
}

fn learn(head: &Head, batch: &UploadBatch, new: &[Vec<bool>]) -> Result<(), CodecError> {
    for part in &batch.tenants {
        head.apply_dictionary_delta(part, &parse_tenant(&part.tenant)?)?;
    }
    publish_records(head, batch, new)
}

/// Returns for each record of a batch whether it is new and belongs to this shard.
fn verdicts(batch: &UploadBatch, repeats: &[(u32, u32)], dropped: &HashSet<ContentHash>) -> Vec<Vec<bool>> {
    let is_here = |record: &ProfileRecord| !dropped.contains(&record.id);
    let mut verdicts: Vec<Vec<bool>> =
        batch.uploads.iter().map(|upload| upload.records.iter().map(is_here).collect()).collect();
    for &(upload, record) in repeats {
        verdicts[upload as usize][record as usize] = false;
    }
    verdicts
}
