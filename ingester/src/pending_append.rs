//! Whoever waits for a batch, and what becomes of each of its uploads.

use athanor_chassis::{ErrorCode, Status};
use athanor_profile::upload::DroppedCounts;
use tokio::sync::oneshot;

use crate::decoded_upload::DecodeStats;
use crate::state_machine::{ShardApplyResult, UploadOutcome};

/// What became of an upload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredUpload {
    /// Profiles that are stored now.
    pub new: u32,
    /// Profiles that were stored before.
    pub repeats: u32,
    /// What was left out of it.
    pub dropped: DroppedCounts,
    /// Uncompressed bytes.
    pub raw_bytes: u64,
    /// Samples, those included that were left out.
    pub samples: u64,
}

/// The answers.
pub type AppendResults = Vec<Result<StoredUpload, Status>>;

/// What becomes of a request: for each upload where it is, or why it is nowhere.
pub type RequestSlots = Vec<Result<(UploadSlot, DecodeStats), Status>>;

/// A request that waits for its batch.
pub struct PendingAppend {
    /// What becomes of it.
    pub placing: RequestSlots,
    /// Where the answer goes.
    pub answer: oneshot::Sender<AppendResults>,
}

/// Where an upload is.
pub enum UploadSlot {
    /// In the batch, at this place.
    In(usize),
    /// All of so many records are stored already: the log need not hear of them again.
    Before(u32),
}

/// Why an upload is to be placed anew: by which reason its sender knows that.
pub const STALE_TABLE_REASON: &str = "stale_table";

fn stale(newest: u64) -> Status {
    let message = format!(
        "the profile was placed by an older table than {newest}, which holds for its time: ask the catalogue for the tables, and place it again"
    );
    Status::new(ErrorCode::Conflict, message).with_reason(STALE_TABLE_REASON)
}

impl PendingAppend {
    /// Tells what applying the batch did.
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
        // Whoever asked may have left; what is stored stays stored.
        let _ = self.answer.send(answers.collect());
    }
}
