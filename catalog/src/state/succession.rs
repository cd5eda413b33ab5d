//! How a shard ends and the next one of its slot begins [INV-12, INV-13].
//!
//! ```text
//!  Opening ─► Open ─► Closing ─► Sealed ─► Retired
//!     │         │        │         │ ▲        ▲
//!     │         └────────┴──► Lost ┘ │        │ abandoned
//!     │                       │ ▲    │        │
//!     │                       │ └────┘        │
//!     └───────────────────────┴───────────────┘
//! ```
//!
//! A repeat is known to who serves the slot, or else it counts twice. A successor takes over what its predecessor knows;
//! of a shard that is lost it can know only what lies in blocks. So every shard that holds rows in no block, and whose
//! ids the newest shard does not know, is lost as well, though it may have a quorum: it settles and goes on.

use super::{Answer, Choice, Inherits, Outcome, Phase, Refused, ShardEntry, ShardId, State, Step, Wound};

impl State {
    pub(super) fn opened(
        &mut self,
        id: ShardId,
        inherited: Inherits,
        fenced: u64,
    ) -> Result<Outcome, Refused> {
        let (now, needed) = (self.now, self.newest_fence());
        let shard = self.shard_mut(id)?;
        let inherits = match &shard.phase {
            Phase::Opening { inherits } => *inherits,
            Phase::Open => return Ok(Outcome::counted(0)),
            _ => return Err(shard.refuse(Step::Open)),
        };
        if inherits != inherited {
            return Err(Refused::Inherited { shard: id, expected: inherits, seen: inherited });
        }
        if let Inherits::Window { of, upto: None } = inherits {
            return Err(Refused::StillInherited { shard: of, by: id });
        }
        if fenced < needed {
            return Err(Refused::Unfenced { shard: id, needed, seen: fenced });
        }
        shard.fenced = shard.fenced.max(needed);
        shard.enter(Phase::Open, now);
        self.need_no_fence_of(id);
        Ok(Outcome::counted(1))
    }

    pub(super) fn stop(&mut self, id: ShardId) -> Result<Outcome, Refused> {
        let now = self.now;
        let shard = self.shard_mut(id)?;
        match shard.phase {
            Phase::Open => shard.enter(Phase::Closing, now),
            Phase::Closing => return Ok(Outcome::counted(0)),
            _ => return Err(shard.refuse(Step::Stop)),
        }
        Ok(Outcome::counted(1))
    }

    pub(super) fn succeed(&mut self, id: ShardId, choice: &Choice) -> Result<Outcome, Refused> {
        let shard = self.shard(id)?;
        if shard.phase != Phase::Closing {
            return Err(shard.refuse(Step::Succeed));
        }
        let (slot, epoch) = (shard.slot, shard.epoch + 1);
        match self.successor(id) {
            Some(by) if by.members == choice.members => Ok(Outcome::Known(Answer::Shard(by.clone()))),
            Some(by) => Err(Refused::Succeeded { shard: id, by: by.id }),
            // It copies while this one still takes records.
            None => {
                let inherits = Inherits::Window { of: id, upto: None };
                let successor = self.found(slot, epoch, choice, inherits)?;
                Ok(Outcome::Changed(Answer::Shard(successor)))
            }
        }
    }

    pub(super) fn sealed(&mut self, id: ShardId, at: u64, latest: i64) -> Result<Outcome, Refused> {
        let now = self.now;
        let by = self.successor(id).map(|shard| shard.id);
        let shard = self.shard_mut(id)?;
        match shard.phase {
            Phase::Closing => {}
            Phase::Sealed { at: known } if known == at => return Ok(Outcome::counted(0)),
            _ => return Err(shard.refuse(Step::Seal)),
        }
        if at < shard.watermark {
            return Err(Refused::SealBehind { shard: id, at, watermark: shard.watermark });
        }
        let by = by.ok_or(Refused::NoSuccessor { shard: id })?;
        shard.enter(Phase::Sealed { at }, now);
        self.shard_mut(by)?.phase = Phase::Opening { inherits: Inherits::Window { of: id, upto: Some(at) } };
        self.sealed_without_fence(id, latest);
        Ok(Outcome::counted(1))
    }

    pub(super) fn lose(&mut self, id: ShardId, choice: &Choice) -> Result<Outcome, Refused> {
        let shard = self.shard(id)?;
        let (slot, kept) = (shard.slot, shard.watermark);
        let copies = |newest: &ShardEntry| newest.copies(id);
        let copied = self.newest(slot).filter(|newest| copies(newest)).map(|newest| newest.id);
        let epoch = self.newest(slot).map_or(0, |newest| newest.epoch) + 1;
        let inherits = Inherits::Blocks { of: id, upto: kept };
        match (&shard.phase, copied) {
            // It has taken nothing, so there is nothing to come back for.
            (Phase::Opening { inherits }, _) => {
                let inherits = *inherits;
                self.found(slot, epoch, choice, inherits)?;
                self.retire_now(id, false);
                self.need_no_fence_of(id);
                return Ok(Outcome::counted(1));
            }
            (Phase::Lost { .. } | Phase::Retired { .. }, _) => return Ok(Outcome::counted(0)),
            (Phase::Open | Phase::Closing | Phase::Sealed { .. }, Some(by)) => {
                self.shard_mut(by)?.phase = Phase::Opening { inherits };
            }
            (Phase::Open | Phase::Closing, None) => {
                self.found(slot, epoch, choice, inherits)?;
            }
            _ => return Err(shard.refuse(Step::Lose)),
        }
        self.unsettle(slot, id);
        // It cannot be fenced, and may take profiles of any time until it hears of its loss.
        self.pending = None;
        Ok(Outcome::counted(1))
    }

    /// A shard is lost, and with it what its successors would have known of sealed ones: these settle anew before they
    /// register more.
    fn unsettle(&mut self, slot: u32, lost: ShardId) {
        let now = self.now;
        for shard in self.shards.values_mut().filter(|shard| shard.slot == slot) {
            let unknown = matches!(shard.phase, Phase::Sealed { at } if shard.watermark < at);
            if shard.id == lost || unknown {
                shard.enter(Phase::Lost { kept: shard.watermark }, now);
            }
        }
    }

    pub(super) fn settled(&mut self, id: ShardId, at: u64, with: ShardId) -> Result<Outcome, Refused> {
        let now = self.now;
        let slot = self.shard(id)?.slot;
        let serving = self.serving(slot).map(|shard| shard.id);
        let shard = self.shard_mut(id)?;
        match shard.phase {
            Phase::Lost { .. } => {}
            Phase::Sealed { at: known } if known == at => return Ok(Outcome::counted(0)),
            _ => return Err(shard.refuse(Step::Settle)),
        }
        if at < shard.watermark {
            return Err(Refused::SealBehind { shard: id, at, watermark: shard.watermark });
        }
        // Another may have been lost since, and with it what it was told.
        if serving != Some(with) {
            return Err(Refused::SettledWith { shard: id, with, serving });
        }
        shard.enter(Phase::Sealed { at }, now);
        Ok(Outcome::counted(1))
    }

    pub(super) fn abandon(&mut self, id: ShardId) -> Result<Outcome, Refused> {
        let shard = self.shard(id)?;
        let after = shard.watermark;
        match shard.phase {
            Phase::Lost { .. } => {}
            Phase::Sealed { at } if after == at => return Err(Refused::NothingToAbandon { shard: id }),
            Phase::Sealed { .. } => self.is_inherited(id)?,
            Phase::Retired { abandoned: true, .. } => return Ok(Outcome::counted(0)),
            _ => return Err(shard.refuse(Step::Abandon)),
        }
        self.has_room_for_scars(1)?;
        self.retire_now(id, true);
        self.scar(Wound::Abandoned { shard: id, after });
        Ok(Outcome::counted(1))
    }

    pub(super) fn retire(&mut self, id: ShardId, rest_is_empty: Option<u64>) -> Result<Outcome, Refused> {
        let shard = self.shard(id)?;
        let (watermark, at) = match shard.phase {
            Phase::Sealed { at } => (shard.watermark, at),
            Phase::Retired { abandoned: false, .. } => return Ok(Outcome::counted(0)),
            _ => return Err(shard.refuse(Step::Retire)),
        };
        if watermark != at && rest_is_empty != Some(watermark) {
            return Err(Refused::Unregistered { shard: id, watermark, at });
        }
        self.is_inherited(id)?;
        self.retire_now(id, false);
        Ok(Outcome::counted(1))
    }

    /// Whether nobody copies a shard's ids any more: they go with its log.
    fn is_inherited(&self, id: ShardId) -> Result<(), Refused> {
        match self.successor(id) {
            Some(by) => Err(Refused::StillInherited { shard: id, by: by.id }),
            None => Ok(()),
        }
    }

    /// The shard that copies the ids of another.
    fn successor(&self, of: ShardId) -> Option<&ShardEntry> {
        self.shards.values().find(|shard| shard.copies(of))
    }

    fn retire_now(&mut self, id: ShardId, abandoned: bool) {
        let now = self.now;
        if let Some(shard) = self.shards.get_mut(&id) {
            shard.enter(Phase::Retired { at: now, abandoned }, now);
        }
    }
}
