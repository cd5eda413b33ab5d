//! Succession: the end of a shard and the start of the next one of its slot [INV-12, INV-13].
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
//! The serving shard must recognize a duplicate, or else the duplicate counts. A successor copies the ids
//! that its predecessor holds. Of a lost shard it can only know the ids in registered blocks. So a shard is
//! marked lost as well if it holds unregistered rows and the newest shard does not know its ids. This holds
//! even if the shard has a quorum: it settles and goes on.

use crate::state::{
    CatalogState, CommandError, CommandOutcome, CommandResult, DataLoss, HandoffSource, PhaseTransition,
    ReplicaPlacement, ShardEntry, ShardId, ShardPhase,
};

impl CatalogState {
    pub(in crate::state) fn complete_opening(
        &mut self,
        id: ShardId,
        inherited: HandoffSource,
        fenced: u64,
    ) -> Result<CommandOutcome, CommandError> {
        let now = self.now;
        let needed = self.newest_fence_version();
        let shard = self.shard_mut(id)?;
        let inherits = match &shard.phase {
            ShardPhase::Opening { inherits } => *inherits,
            ShardPhase::Open => return Ok(CommandOutcome::from_count(0)),
            _ => return Err(shard.wrong_phase(PhaseTransition::Open)),
        };
        if inherits != inherited {
            return Err(CommandError::Inherited { shard: id, expected: inherits, seen: inherited });
        }
        if let HandoffSource::Window { of, upto: None } = inherits {
            return Err(CommandError::StillInherited { shard: of, by: id });
        }
        if fenced < needed {
            return Err(CommandError::Unfenced { shard: id, needed, seen: fenced });
        }
        shard.fenced = shard.fenced.max(needed);
        shard.enter_phase(ShardPhase::Open, now);
        self.drop_needed_fence(id);
        Ok(CommandOutcome::from_count(1))
    }

    pub(in crate::state) fn request_seal(&mut self, id: ShardId) -> Result<CommandOutcome, CommandError> {
        let now = self.now;
        let shard = self.shard_mut(id)?;
        match shard.phase {
            ShardPhase::Open => shard.enter_phase(ShardPhase::Closing, now),
            ShardPhase::Closing => return Ok(CommandOutcome::from_count(0)),
            _ => return Err(shard.wrong_phase(PhaseTransition::Stop)),
        }
        Ok(CommandOutcome::from_count(1))
    }

    pub(in crate::state) fn create_successor(
        &mut self,
        id: ShardId,
        choice: &ReplicaPlacement,
    ) -> Result<CommandOutcome, CommandError> {
        let shard = self.shard(id)?;
        if shard.phase != ShardPhase::Closing {
            return Err(shard.wrong_phase(PhaseTransition::Succeed));
        }
        let slot = shard.slot;
        let epoch = shard.epoch + 1;
        match self.successor(id) {
            Some(by) if by.members == choice.members => {
                Ok(CommandOutcome::Known(CommandResult::Shard(by.clone())))
            }
            Some(by) => Err(CommandError::Succeeded { shard: id, by: by.id }),
            // The successor copies while this shard still accepts records.
            None => {
                let inherits = HandoffSource::Window { of: id, upto: None };
                let successor = self.create_shard(slot, epoch, choice, inherits)?;
                Ok(CommandOutcome::Changed(CommandResult::Shard(successor)))
            }
        }
    }

    pub(in crate::state) fn complete_seal(
        &mut self,
        id: ShardId,
        at: u64,
        latest: i64,
    ) -> Result<CommandOutcome, CommandError> {
        let now = self.now;
        let by = self.successor(id).map(|shard| shard.id);
        let shard = self.shard_mut(id)?;
        match shard.phase {
            ShardPhase::Closing => {}
            ShardPhase::Sealed { at: known } if known == at => return Ok(CommandOutcome::from_count(0)),
            _ => return Err(shard.wrong_phase(PhaseTransition::Seal)),
        }
        if at < shard.watermark {
            return Err(CommandError::SealBehind { shard: id, at, watermark: shard.watermark });
        }
        let by = by.ok_or(CommandError::NoSuccessor { shard: id })?;
        shard.enter_phase(ShardPhase::Sealed { at }, now);
        self.shard_mut(by)?.phase =
            ShardPhase::Opening { inherits: HandoffSource::Window { of: id, upto: Some(at) } };
        self.withdraw_unfenced_table(id, latest);
        Ok(CommandOutcome::from_count(1))
    }

    pub(in crate::state) fn mark_lost(
        &mut self,
        id: ShardId,
        choice: &ReplicaPlacement,
    ) -> Result<CommandOutcome, CommandError> {
        let shard = self.shard(id)?;
        let slot = shard.slot;
        let kept = shard.watermark;
        let copies = |newest: &ShardEntry| newest.copies_ids_from(id);
        let copied = self.newest_shard(slot).filter(|newest| copies(newest)).map(|newest| newest.id);
        let epoch = self.newest_shard(slot).map_or(0, |newest| newest.epoch) + 1;
        let inherits = HandoffSource::Blocks { of: id, upto: kept };
        match (&shard.phase, copied) {
            // The shard has accepted no records, so nothing has to be recovered from it.
            (ShardPhase::Opening { inherits }, _) => {
                let inherits = *inherits;
                self.create_shard(slot, epoch, choice, inherits)?;
                self.enter_retired(id, false);
                self.drop_needed_fence(id);
                return Ok(CommandOutcome::from_count(1));
            }
            (ShardPhase::Lost { .. } | ShardPhase::Retired { .. }, _) => {
                return Ok(CommandOutcome::from_count(0));
            }
            (ShardPhase::Open | ShardPhase::Closing | ShardPhase::Sealed { .. }, Some(by)) => {
                self.shard_mut(by)?.phase = ShardPhase::Opening { inherits };
            }
            (ShardPhase::Open | ShardPhase::Closing, None) => {
                self.create_shard(slot, epoch, choice, inherits)?;
            }
            _ => return Err(shard.wrong_phase(PhaseTransition::Lose)),
        }
        self.mark_unreconciled_lost(slot, id);
        // A lost shard cannot log fences, and may accept profiles of any time until it sees its loss.
        self.pending = None;
        Ok(CommandOutcome::from_count(1))
    }

    /// Marks a shard as lost, and sealed shards with unregistered rows as well. The successors lose the ids
    /// of those with it. So they must settle once more before they register blocks.
    fn mark_unreconciled_lost(&mut self, slot: u32, lost: ShardId) {
        let now = self.now;
        for shard in self.shards.values_mut().filter(|shard| shard.slot == slot) {
            let unknown = matches!(shard.phase, ShardPhase::Sealed { at } if shard.watermark < at);
            if shard.id == lost || unknown {
                shard.enter_phase(ShardPhase::Lost { kept: shard.watermark }, now);
            }
        }
    }

    pub(in crate::state) fn complete_reconciliation(
        &mut self,
        id: ShardId,
        at: u64,
        with: ShardId,
    ) -> Result<CommandOutcome, CommandError> {
        let now = self.now;
        let slot = self.shard(id)?.slot;
        let serving = self.serving_shard(slot).map(|shard| shard.id);
        let shard = self.shard_mut(id)?;
        match shard.phase {
            ShardPhase::Lost { .. } => {}
            ShardPhase::Sealed { at: known } if known == at => return Ok(CommandOutcome::from_count(0)),
            _ => return Err(shard.wrong_phase(PhaseTransition::Settle)),
        }
        if at < shard.watermark {
            return Err(CommandError::SealBehind { shard: id, at, watermark: shard.watermark });
        }
        // Another shard may have been lost since, including the ids that it had received.
        if serving != Some(with) {
            return Err(CommandError::SettledWith { shard: id, with, serving });
        }
        shard.enter_phase(ShardPhase::Sealed { at }, now);
        Ok(CommandOutcome::from_count(1))
    }

    pub(in crate::state) fn abandon_shard(&mut self, id: ShardId) -> Result<CommandOutcome, CommandError> {
        let shard = self.shard(id)?;
        let after = shard.watermark;
        match shard.phase {
            ShardPhase::Lost { .. } => {}
            ShardPhase::Sealed { at } if after == at => {
                return Err(CommandError::NothingToAbandon { shard: id });
            }
            ShardPhase::Sealed { .. } => self.check_handoff_finished(id)?,
            ShardPhase::Retired { abandoned: true, .. } => return Ok(CommandOutcome::from_count(0)),
            _ => return Err(shard.wrong_phase(PhaseTransition::Abandon)),
        }
        self.check_data_loss_capacity(1)?;
        self.enter_retired(id, true);
        self.push_data_loss(DataLoss::Abandoned { shard: id, after });
        Ok(CommandOutcome::from_count(1))
    }

    pub(in crate::state) fn retire_shard(
        &mut self,
        id: ShardId,
        rest_is_empty: Option<u64>,
    ) -> Result<CommandOutcome, CommandError> {
        let shard = self.shard(id)?;
        let (watermark, at) = match shard.phase {
            ShardPhase::Sealed { at } => (shard.watermark, at),
            ShardPhase::Retired { abandoned: false, .. } => return Ok(CommandOutcome::from_count(0)),
            _ => return Err(shard.wrong_phase(PhaseTransition::Retire)),
        };
        if watermark != at && rest_is_empty != Some(watermark) {
            return Err(CommandError::Unregistered { shard: id, watermark, at });
        }
        self.check_handoff_finished(id)?;
        self.enter_retired(id, false);
        Ok(CommandOutcome::from_count(1))
    }

    /// Returns an error while a successor still copies the shard's ids, which go with its log.
    fn check_handoff_finished(&self, id: ShardId) -> Result<(), CommandError> {
        match self.successor(id) {
            Some(by) => Err(CommandError::StillInherited { shard: id, by: by.id }),
            None => Ok(()),
        }
    }

    /// Returns the shard that copies the ids of another.
    fn successor(&self, of: ShardId) -> Option<&ShardEntry> {
        self.shards.values().find(|shard| shard.copies_ids_from(of))
    }

    fn enter_retired(&mut self, id: ShardId, abandoned: bool) {
        let now = self.now;
        if let Some(shard) = self.shards.get_mut(&id) {
            shard.enter_phase(ShardPhase::Retired { at: now, abandoned }, now);
        }
    }
}
