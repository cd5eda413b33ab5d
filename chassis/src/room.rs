//! Room in memory: what is under way takes some until it is done, and there is only so much.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::units::ByteSize;
use crate::{Code, Status};

/// How long to stay away when all the room is taken.
const BUSY: Duration = Duration::from_secs(2);

/// How much there is, and the setting that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// How much.
    pub limit: ByteSize,
    /// The setting, as it is written.
    pub setting: &'static str,
}

/// The room for all answers.
#[derive(Debug)]
pub struct Room {
    each: Bound,
    all: Bound,
    taken: AtomicU64,
    refused: AtomicU64,
}

/// How full a room is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoomStats {
    /// Bytes that are taken.
    pub taken: u64,
    /// How many there are.
    pub limit: u64,
    /// Answers, or parts of them, that were refused since others had taken the room, so far.
    pub refused: u64,
}

/// A part of the room, until it is dropped.
#[derive(Debug)]
pub struct Taken {
    room: Arc<Room>,
    bytes: u64,
}

impl Room {
    /// Room for each answer, and for all together.
    pub fn new(each: Bound, all: Bound) -> Arc<Self> {
        Arc::new(Room { each, all, taken: AtomicU64::new(0), refused: AtomicU64::new(0) })
    }

    /// How full it is.
    pub fn stats(&self) -> RoomStats {
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        RoomStats { taken: now(&self.taken), limit: self.all.limit.get(), refused: now(&self.refused) }
    }

    /// Takes room for a part of an answer.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Result<Taken, Status> {
        self.check(bytes)?;
        let bytes = bytes as u64;
        let before = self.taken.fetch_add(bytes, Ordering::Relaxed);
        let taken = Taken { room: Arc::clone(self), bytes };
        let Bound { limit, setting } = self.all;
        if before.saturating_add(bytes) > limit.get() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            let (before, bytes) = (ByteSize::bytes(before), ByteSize::bytes(bytes));
            let message = format!(
                "answers under way take {before}, this one {bytes} more, the limit is {limit} ({setting}); ask again later"
            );
            return Err(Status::new(Code::Exhausted, message).after(BUSY));
        }
        Ok(taken)
    }

    /// Refuses an answer that takes too much alone.
    pub fn check(&self, bytes: usize) -> Result<(), Status> {
        let Bound { limit, setting } = self.each;
        if bytes <= limit.as_usize() {
            return Ok(());
        }
        let bytes = ByteSize::bytes(bytes as u64);
        let message = format!(
            "answer takes {bytes} of memory, the limit is {limit} ({setting}); select fewer series or a shorter time, or ask for fewer nodes"
        );
        Err(Status::new(Code::Invalid, message))
    }
}

impl Taken {
    /// Adds another part.
    #[must_use]
    pub fn and(mut self, mut other: Taken) -> Taken {
        self.bytes += std::mem::take(&mut other.bytes);
        self
    }

    /// Gives back what is not needed.
    pub fn shrink(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes as u64);
        self.bytes -= less;
        self.room.taken.fetch_sub(less, Ordering::Relaxed);
    }

    /// How much it is.
    pub fn bytes(&self) -> usize {
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
        let bound = |bytes, setting| Bound { limit: ByteSize::bytes(bytes), setting };
        let room = Room::new(bound(60, "a.each"), bound(100, "a.all"));
        let code = |bytes| room.take(bytes).map(drop).map_err(|status| status.code);
        assert_eq!((code(60), code(61)), (Ok(()), Err(Code::Invalid)));
        let mut both = room.take(40).unwrap().and(room.take(30).unwrap());
        assert_eq!((both.bytes(), code(31), code(30)), (70, Err(Code::Exhausted), Ok(())));
        assert!(room.take(31).unwrap_err().message.contains("(a.all)"));
        both.shrink(50);
        assert_eq!(code(50), Ok(()));
        drop(both);
        assert_eq!(room.stats(), RoomStats { taken: 0, limit: 100, refused: 2 });
    }
}
