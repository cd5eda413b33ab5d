//! Succession: the end of a shard and the start of the next one of its slot [INV-12, INV-13].
//!
//! ```text
//!  Opening ─► Open ─► Sealing ─► Sealed ─► Retired
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
//! even if the shard has a quorum: it reconciles its ids and continues.

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
        let source = match &shard.phase {
            ShardPhase::Opening { source } => *source,
            ShardPhase::Open => return Ok(CommandOutcome::from_count(0)),
            _ => return Err(shard.wrong_phase(PhaseTransition::Open)),
        };
        if source != inherited {
            return Err(CommandError::HandoffSourceMismatch { shard: id, expected: source, seen: inherited });
        }
        if let HandoffSource::DedupWindow { predecessor, up_to: None } = source {
            return Err(CommandError::HandoffUnfinished { shard: predecessor, successor: id });
        }
        if fenced < needed {
            return Err(CommandError::MissingFence { shard: id, needed, seen: fenced });
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
            ShardPhase::Open => shard.enter_phase(ShardPhase::Sealing, now),
            ShardPhase::Sealing => return Ok(CommandOutcome::from_count(0)),
            _ => return Err(shard.wrong_phase(PhaseTransition::RequestSeal)),
        }
        Ok(CommandOutcome::from_count(1))
    }

    pub(in crate::state) fn create_successor(
        &mut self,
        id: ShardId,
        placement: &ReplicaPlacement,
    ) -> Result<CommandOutcome, CommandError> {
        let shard = self.shard(id)?;
        if shard.phase != ShardPhase::Sealing {
            return Err(shard.wrong_phase(PhaseTransition::CreateSuccessor));
        }
        let slot = shard.slot;
        let epoch = shard.epoch + 1;
        match self.successor(id) {
            Some(successor) if successor.members == placement.members => {
                Ok(CommandOutcome::NoOp(CommandResult::Shard(successor.clone())))
            }
            Some(successor) => Err(CommandError::HasSuccessor { shard: id, successor: successor.id }),
            // The successor copies while this shard still accepts records.
            None => {
                let source = HandoffSource::DedupWindow { predecessor: id, up_to: None };
                let successor = self.create_shard(slot, epoch, placement, source)?;
                Ok(CommandOutcome::Changed(CommandResult::Shard(successor)))
            }
        }
    }

    pub(in crate::state) fn complete_seal(
        &mut self,
        id: ShardId,
        last_index: u64,
        latest: i64,
    ) -> Result<CommandOutcome, CommandError> {
        let now = self.now;
        let successor = self.successor(id).map(|shard| shard.id);
        let shard = self.shard_mut(id)?;
        match shard.phase {
            ShardPhase::Sealing => {}
            ShardPhase::Sealed { last_index: known } if known == last_index => {
                return Ok(CommandOutcome::from_count(0));
            }
            _ => return Err(shard.wrong_phase(PhaseTransition::Seal)),
        }
        if last_index < shard.watermark {
            return Err(CommandError::SealBehindWatermark {
                shard: id,
                last_index,
                watermark: shard.watermark,
            });
        }
        let successor = successor.ok_or(CommandError::NoSuccessor { shard: id })?;
        shard.enter_phase(ShardPhase::Sealed { last_index }, now);
        self.shard_mut(successor)?.phase = ShardPhase::Opening {
            source: HandoffSource::DedupWindow { predecessor: id, up_to: Some(last_index) },
        };
        self.withdraw_unfenced_table(id, latest);
        Ok(CommandOutcome::from_count(1))
    }

    pub(in crate::state) fn mark_lost(
        &mut self,
        id: ShardId,
        placement: &ReplicaPlacement,
    ) -> Result<CommandOutcome, CommandError> {
        let shard = self.shard(id)?;
        let slot = shard.slot;
        let watermark = shard.watermark;
        let copies_ids = |newest: &&ShardEntry| newest.copies_ids_from(id);
        let copied = self.newest_shard(slot).filter(copies_ids).map(|newest| newest.id);
        let epoch = self.newest_shard(slot).map_or(0, |newest| newest.epoch) + 1;
        let source = HandoffSource::RegisteredBlocks { predecessor: id, up_to: watermark };
        match (&shard.phase, copied) {
            // The shard has accepted no records, so nothing has to be recovered from it.
            (ShardPhase::Opening { source }, _) => {
                let source = *source;
                self.create_shard(slot, epoch, placement, source)?;
                self.enter_retired(id, false);
                self.drop_needed_fence(id);
                return Ok(CommandOutcome::from_count(1));
            }
            (ShardPhase::Lost { .. } | ShardPhase::Retired { .. }, _) => {
                return Ok(CommandOutcome::from_count(0));
            }
            (ShardPhase::Open | ShardPhase::Sealing | ShardPhase::Sealed { .. }, Some(successor)) => {
                self.shard_mut(successor)?.phase = ShardPhase::Opening { source };
            }
            (ShardPhase::Open | ShardPhase::Sealing, None) => {
                self.create_shard(slot, epoch, placement, source)?;
            }
            _ => return Err(shard.wrong_phase(PhaseTransition::MarkLost)),
        }
        self.mark_unreconciled_lost(slot, id);
        // A lost shard cannot log fences, and may accept profiles of any time until it sees its loss.
        self.pending = None;
        Ok(CommandOutcome::from_count(1))
    }

    /// Marks a shard as lost, and sealed shards with unregistered rows as well. The successors lose the ids
    /// of those with it. So they must reconcile their ids once more before they register blocks.
    fn mark_unreconciled_lost(&mut self, slot: u32, lost: ShardId) {
        let now = self.now;
        for shard in self.shards.values_mut().filter(|shard| shard.slot == slot) {
            let unknown =
                matches!(shard.phase, ShardPhase::Sealed { last_index } if shard.watermark < last_index);
            if shard.id == lost || unknown {
                shard.enter_phase(ShardPhase::Lost { watermark: shard.watermark }, now);
            }
        }
    }

    pub(in crate::state) fn complete_reconciliation(
        &mut self,
        id: ShardId,
        last_index: u64,
        with: ShardId,
    ) -> Result<CommandOutcome, CommandError> {
        let now = self.now;
        let slot = self.shard(id)?.slot;
        let serving = self.serving_shard(slot).map(|shard| shard.id);
        let shard = self.shard_mut(id)?;
        match shard.phase {
            ShardPhase::Lost { .. } => {}
            ShardPhase::Sealed { last_index: known } if known == last_index => {
                return Ok(CommandOutcome::from_count(0));
            }
            _ => return Err(shard.wrong_phase(PhaseTransition::Reconcile)),
        }
        if last_index < shard.watermark {
            return Err(CommandError::SealBehindWatermark {
                shard: id,
                last_index,
                watermark: shard.watermark,
            });
        }
        // Another shard may have been lost since, including the ids that it had received.
        if serving != Some(with) {
            return Err(CommandError::ReconciledWithWrongShard { shard: id, with, serving });
        }
        shard.enter_phase(ShardPhase::Sealed { last_index }, now);
        Ok(CommandOutcome::from_count(1))
    }

    pub(in crate::state) fn abandon_shard(&mut self, id: ShardId) -> Result<CommandOutcome, CommandError> {
        let shard = self.shard(id)?;
        let after = shard.watermark;
        match shard.phase {
            ShardPhase::Lost { .. } => {}
            ShardPhase::Sealed { last_index } if after == last_index => {
                return Err(CommandError::NothingToAbandon { shard: id });
            }
            ShardPhase::Sealed { .. } => self.check_handoff_finished(id)?,
            ShardPhase::Retired { abandoned: true, .. } => return Ok(CommandOutcome::from_count(0)),
            _ => return Err(shard.wrong_phase(PhaseTransition::Abandon)),
        }
        self.check_data_loss_capacity(1)?;
        self.enter_retired(id, true);
        self.push_data_loss(DataLoss::AbandonedShard { shard: id, after });
        Ok(CommandOutcome::from_count(1))
    }

    pub(in crate::state) fn retire_shard(
        &mut self,
        id: ShardId,
        rest_is_empty: Option<u64>,
    ) -> Result<CommandOutcome, CommandError> {
        let shard = self.shard(id)?;
        let (watermark, last_index) = match shard.phase {
            ShardPhase::Sealed { last_index } => (shard.watermark, last_index),
            ShardPhase::Retired { abandoned: false, .. } => return Ok(CommandOutcome::from_count(0)),
            _ => return Err(shard.wrong_phase(PhaseTransition::Retire)),
        };
        if watermark != last_index && rest_is_empty != Some(watermark) {
            return Err(CommandError::UnregisteredRows { shard: id, watermark, last_index });
        }
        self.check_handoff_finished(id)?;
        self.enter_retired(id, false);
        Ok(CommandOutcome::from_count(1))
    }

    /// Returns an error while a successor still copies the shard's ids, which go with its log.
    fn check_handoff_finished(&self, id: ShardId) -> Result<(), CommandError> {
        match self.successor(id) {
            Some(successor) => Err(CommandError::HandoffUnfinished { shard: id, successor: successor.id }),
            None => Ok(()),
        }
    }

    /// Returns the shard that copies the ids of another.
    fn successor(&self, predecessor: ShardId) -> Option<&ShardEntry> {
        self.shards.values().find(|shard| shard.copies_ids_from(predecessor))
    }

    fn enter_retired(&mut self, id: ShardId, abandoned: bool) {
        let now = self.now;
        if let Some(shard) = self.shards.get_mut(&id) {
            shard.enter_phase(ShardPhase::Retired { retired_at: now, abandoned }, now);
        }
    }
}
