//! Room for answers: what is put together, and what is made of it to be shown, takes memory until it is sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_chassis::{ByteSize, Code, Status};
use serde::{Deserialize, Serialize};

/// How long to stay away when answers take all the room.
const BUSY: Duration = Duration::from_secs(2);

/// Settings of a querier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Memory that one answer may take, and as much again to be shown. Example: `512MiB`.
    pub answer: ByteSize,
    /// Memory that all answers that are under way may take together. Example: `2GiB`.
    pub answers: ByteSize,
    /// Queries of a tenant that may run in the background at once, for clients that ask for that. With 0 they wait for the
    /// answer as for any other. Example: `5`.
    pub background_queries: usize,
    /// Profiles uploaded by hand that are kept of each tenant; the oldest makes room for another one. With 0 none is taken.
    /// Example: `100`.
    pub adhoc_profiles: usize,
    /// The largest of them, decompressed. Example: `16MiB`.
    pub adhoc_profile: ByteSize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            answer: ByteSize::mib(512),
            answers: ByteSize::mib(2048),
            background_queries: 0,
            adhoc_profiles: 100,
            adhoc_profile: ByteSize::mib(16),
        }
    }
}

/// The room for all answers of a querier.
#[derive(Debug)]
pub(crate) struct Room {
    config: Config,
    taken: AtomicU64,
}

/// A part of the room, until it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    room: Arc<Room>,
    bytes: u64,
}

impl Room {
    pub(crate) fn new(config: Config) -> Arc<Self> {
        Arc::new(Room { config, taken: AtomicU64::new(0) })
    }

    /// The settings.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Takes room for a part of an answer.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Result<Taken, Status> {
        self.check(bytes)?;
        let bytes = bytes as u64;
        let before = self.taken.fetch_add(bytes, Ordering::Relaxed);
        let taken = Taken { room: Arc::clone(self), bytes };
        let limit = self.config.answers;
        if before.saturating_add(bytes) > limit.get() {
            let (before, bytes) = (ByteSize::bytes(before), ByteSize::bytes(bytes));
            let message = format!(
                "answers under way take {before}, this one {bytes} more, the limit is {limit} (querier.answers); ask again later"
            );
            return Err(Status::new(Code::Exhausted, message).after(BUSY));
        }
        Ok(taken)
    }

    /// Refuses an answer that takes too much alone.
    pub(crate) fn check(&self, bytes: usize) -> Result<(), Status> {
        let limit = self.config.answer;
        if bytes <= limit.as_usize() {
            return Ok(());
        }
        let bytes = ByteSize::bytes(bytes as u64);
        let message = format!(
            "answer takes {bytes} of memory, the limit is {limit} (querier.answer); select fewer series or a shorter time, or ask for fewer nodes"
        );
        Err(Status::new(Code::Invalid, message))
    }
}

impl Taken {
    /// Adds another part.
    pub(crate) fn and(mut self, mut other: Taken) -> Taken {
        self.bytes += std::mem::take(&mut other.bytes);
        self
    }

    /// Gives back what is not needed.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes as u64);
        self.bytes -= less;
        self.room.taken.fetch_sub(less, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes as usize
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_share_the_room_and_give_it_back() {
        let room = Room::new(Config {
            answer: ByteSize::bytes(60),
            answers: ByteSize::bytes(100),
            ..Config::default()
        });
        let code = |bytes| room.take(bytes).map(drop).map_err(|status| status.code);
        assert_eq!((code(60), code(61)), (Ok(()), Err(Code::Invalid)));
        let mut both = room.take(40).unwrap().and(room.take(30).unwrap());
        assert_eq!((both.bytes(), code(31), code(30)), (70, Err(Code::Exhausted), Ok(())));
        both.shrink(50);
        assert_eq!(code(50), Ok(()));
        drop(both);
        assert_eq!(room.taken.load(Ordering::Relaxed), 0);
    }
}
