//! Whoever waits for a batch, and what becomes of each of its uploads.

use athanor_chassis::{Code, Status};
use athanor_profile::upload::Dropped;
use tokio::sync::oneshot;

use crate::intake::Taken;
use crate::machine::{Applied, Verdict};

/// What became of an upload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Profiles that are stored now.
    pub new: u32,
    /// Profiles that were stored before.
    pub repeats: u32,
    /// What was left out of it.
    pub dropped: Dropped,
    /// Uncompressed bytes.
    pub raw_bytes: u64,
    /// Samples, those included that were left out.
    pub samples: u64,
}

/// The answers.
pub type Answered = Vec<Result<Stored, Status>>;

/// What becomes of a request: for each upload where it is, or why it is nowhere.
pub type Placing = Vec<Result<(Placed, Taken), Status>>;

/// A request that waits for its batch.
pub struct Waiting {
    /// What becomes of it.
    pub placing: Placing,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Answered>,
}

/// Where an upload is.
pub enum Placed {
    /// In the batch, at this place.
    In(usize),
    /// All of so many records are stored already: the log need not hear of them again.
    Before(u32),
}

/// Why an upload is to be placed anew: by which reason its sender knows that.
pub const STALE_TABLE: &str = "stale_table";

fn stale(newest: u64) -> Status {
    let message = format!(
        "the profile was placed by an older table than {newest}, which holds for its time: ask the catalogue for the tables, and place it again"
    );
    Status::new(Code::Conflict, message).because(STALE_TABLE)
}

impl Waiting {
    /// Tells what applying the batch did.
    pub fn answer(self, applied: &Result<Applied, Status>) {
        let answers = self.placing.into_iter().map(|upload| {
            let (placed, taken) = upload?;
            let Taken { raw_bytes, samples, dropped } = taken;
            let mut stored = Stored { raw_bytes, samples, dropped, ..Stored::default() };
            let place = match placed {
                Placed::In(place) => place,
                Placed::Before(repeats) => return Ok(Stored { repeats, ..stored }),
            };
            match applied {
                Ok(Applied::Batch(verdicts)) => match verdicts.get(place) {
                    Some(Verdict::Records(records)) => {
                        let new = records.iter().filter(|new| **new).count();
                        (stored.new, stored.repeats) = (new as u32, (records.len() - new) as u32);
                        Ok(stored)
                    }
                    Some(Verdict::Stale { newest }) => Err(stale(*newest)),
                    None => Ok(stored),
                },
                Ok(Applied::Unreadable(error)) => Err(Status::new(Code::Internal, error.to_string())),
                Ok(Applied::Refused(why)) => Err(Status::new(Code::NotLeader, *why)),
                Ok(_) => Ok(stored),
                Err(status) => Err(status.clone()),
            }
        });
        // Whoever asked may have left; what is stored stays stored.
        let _ = self.answer.send(answers.collect());
    }
}
