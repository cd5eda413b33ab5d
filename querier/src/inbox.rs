//! What peers answer: pieces take room as they come, and a whole answer is merged into that of all others.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::room::Taken;
use athanor_chassis::{Activity, Clock, Code, Status, TenantId};
use athanor_query::{Ask, Held, Meeting, Partial, Received};

use crate::diagnostics::Part;
use crate::gather::Merging;
use crate::left_out::Unread;
use crate::replan::Asked;

/// A peer that has profiles: those of shards that it leads, which are in no block yet, or those of blocks that it reads.
#[async_trait]
pub trait Remote: Send + Sync {
    /// Asks for all that the plan says it has, and puts what comes into the inbox: the pieces of an answer, its end, and
    /// so on for each answer. A shard or block is either whole in an answer or not at all [INV-17].
    ///
    /// Where some have moved, the others are put in all the same, and the end is [`Asked::Replan`] or [`Asked::Gone`].
    async fn ask(&self, tenant: &TenantId, ask: &Ask, inbox: &mut Inbox) -> Result<(), Asked>;
}

/// Takes the answers of one peer.
pub struct Inbox {
    merging: Arc<Merging>,
    /// What has come of the answer that is under way, and the room for it and for what it will be.
    received: Received,
    taken: Option<Taken>,
    made_room: bool,
    /// An answer that came as it is, and not in pieces.
    met: Option<Held>,
}

impl Inbox {
    pub(crate) fn new(merging: Arc<Merging>) -> Self {
        Inbox { merging, received: Received::default(), taken: None, made_room: false, met: None }
    }

    /// For another answer, of the same or another peer, that comes meanwhile.
    #[must_use]
    pub fn another(&self) -> Self {
        Inbox::new(Arc::clone(&self.merging))
    }

    /// How long there is until nobody waits for the answer any more.
    pub fn left(&self, clock: &Clock) -> Duration {
        self.merging.until.saturating_sub(clock.monotonic())
    }

    /// Takes the next piece of an answer.
    pub fn piece(&mut self, piece: &[u8]) -> Result<(), Status> {
        let before = self.received.bytes();
        self.received.push(piece).map_err(|error| Status::of(&error))?;
        self.take(self.received.bytes().saturating_sub(before))?;
        match self.received.claim() {
            Some(claim) if !self.made_room => {
                self.made_room = true;
                self.take(claim)
            }
            _ => Ok(()),
        }
    }

    /// Where answers meet that are found in this process, in the room of the answer to the whole question.
    pub fn place(&self) -> Meeting {
        Meeting::new(self.merging.ask.bounds, Arc::clone(self.merging.meeting.room()))
    }

    /// Takes what has met at such a place as one answer, which ends as others do.
    pub fn met(&mut self, place: &Meeting) -> Result<(), Status> {
        let none = || -> Result<Held, Status> {
            let partial = Partial::none(&self.merging.ask.what);
            Ok(Held { partial, taken: place.room().take(0)? })
        };
        self.met = Some(place.take().map_or_else(none, Ok)?);
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> Result<(), Status> {
        let more = self.merging.meeting.room().take(bytes)?;
        self.taken = Some(match self.taken.take() {
            Some(taken) => taken.and(more),
            None => more,
        });
        Ok(())
    }

    /// The answer is whole: it is read and merged, on a compute thread.
    pub async fn end(&mut self) -> Result<(), Status> {
        let (received, taken) = (std::mem::take(&mut self.received), self.taken.take());
        self.made_room = false;
        let merging = Arc::clone(&self.merging);
        let met = self.met.take();
        let job = move || {
            merging.scribe.merging(|| {
                if let Some(Held { partial, taken }) = met {
                    return merging.meeting.add(partial, Some(taken));
                }
                let partial = received.unpack(&merging.ask).map_err(|error| Status::of(&error))?;
                drop(received);
                merging.meeting.add(partial, taken)
            })
        };
        self.merging.compute.run_as(Activity::Query, job).await.map_err(|error| Status::of(&error))?
    }

    /// What has come of the answer that is under way is not used: it broke off.
    pub fn forget(&mut self) {
        (self.received, self.taken, self.made_room, self.met) = (Received::default(), None, false, None);
    }

    /// Says of which time the peer has profiles in memory: if of that which is asked about, the answer is not of blocks alone.
    pub fn in_memory(&self, times: Option<(i64, i64)>) {
        let asked = self.merging.ask.selection.time;
        if let Some(times) = times.filter(|times| asked.meets(*times)) {
            self.merging.also_of(None);
            self.merging.met.afar(times.0.max(asked.from));
        }
    }

    /// Says how the peer was asked, for who wants to know why a query was slow.
    pub fn tell(&self, part: Part) {
        self.merging.scribe.part(part);
    }

    /// Says what the peer lacks, in words: the answer is partial.
    pub fn miss(&mut self, what: String) {
        self.merging.miss([what]);
    }

    /// Says which blocks nobody could read: the answer goes on without them.
    pub fn left_out(&self, unread: Vec<Unread>) {
        self.merging.left_out.blocks(unread);
    }

    /// Says that a peer did not answer, as is told by [`miss`](Self::miss): it may in a moment.
    pub fn silent(&self, words: &str) {
        self.merging.left_out.silent(words);
    }

    /// An answer that begins must end.
    pub(crate) fn check(&self) -> Result<(), Status> {
        if self.received.is_empty() && self.met.is_none() {
            return Ok(());
        }
        let message = "a peer's answer broke off before its end; ask again";
        Err(Status::new(Code::Unavailable, message))
    }
}
