//! Requests that wait for a batch, and the outcome of each of their uploads.

use athanor_chassis::{ErrorCode, Status};
use athanor_profile::data_model::dropped_counts::DroppedCounts;
use tokio::sync::oneshot;

use crate::decode::decoded_upload::DecodeStats;
use crate::log::state_machine::{ShardApplyResult, UploadOutcome};

/// Outcome of an upload that is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredUpload {
    /// Number of profiles that are stored now.
    pub new: u32,
    /// Number of profiles that were stored before.
    pub repeats: u32,
    /// Counts of dropped parts.
    pub dropped: DroppedCounts,
    /// Uncompressed bytes of the upload.
    pub raw_bytes: u64,
    /// Samples, including dropped ones.
    pub samples: u64,
}

/// Results of a request, by upload.
pub type AppendResults = Vec<Result<StoredUpload, Status>>;

/// Slots of a request: for each upload its place, or the reason why it has none.
pub type RequestSlots = Vec<Result<(UploadSlot, DecodeStats), Status>>;

/// A request that waits for its batch.
pub struct PendingAppend {
    /// Slots of its uploads.
    pub placing: RequestSlots,
    /// Sender of its results.
    pub answer: oneshot::Sender<AppendResults>,
}

/// Place of an upload.
pub enum UploadSlot {
    /// In the batch, at this place.
    In(usize),
    /// All of so many records are stored already, and are not logged.
    Before(u32),
}

/// Error reason by which a sender recognizes that the upload must be placed by a newer table.
pub const STALE_TABLE_REASON: &str = "stale_table";

fn stale(newest: u64) -> Status {
    let message = format!(
        "the profile was routed by a slot table older than {newest}, the current table for its timestamp; reload the slot tables and retry"
    );
    Status::new(ErrorCode::Conflict, message).with_reason(STALE_TABLE_REASON)
}

impl PendingAppend {
    /// Sends the results of an applied batch.
    pub fn send_results(self, applied: &Result<ShardApplyResult, Status>) {
        let answers = self.placing.into_iter().map(|upload| {
            let (placed, taken) = upload?;
            let DecodeStats { raw_bytes, samples, dropped } = taken;
            let mut stored = StoredUpload { raw_bytes, samples, dropped, ..StoredUpload::default() };
            let place = match placed {
                UploadSlot::In(place) => place,
                UploadSlot::Before(repeats) => return Ok(StoredUpload { repeats, ..stored }),
            };
            match applied {
                Ok(ShardApplyResult::Batch(verdicts)) => match verdicts.get(place) {
                    Some(UploadOutcome::Records(records)) => {
                        let new = records.iter().filter(|new| **new).count();
                        (stored.new, stored.repeats) = (new as u32, (records.len() - new) as u32);
                        Ok(stored)
                    }
                    Some(UploadOutcome::Stale { newest }) => Err(stale(*newest)),
                    None => Ok(stored),
                },
                Ok(ShardApplyResult::Unreadable(error)) => {
                    Err(Status::new(ErrorCode::Internal, error.to_string()))
                }
                Ok(ShardApplyResult::Refused(why)) => Err(Status::new(ErrorCode::NotLeader, *why)),
                Ok(_) => Ok(stored),
                Err(status) => Err(status.clone()),
            }
        });
        // The caller may have disconnected; stored profiles stay stored.
        let _ = self.answer.send(answers.collect());
    }
}
