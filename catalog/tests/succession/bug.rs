//! Rules, each of which is broken in turn.

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bug {
    /// A successor opens without the ids of its predecessor.
    SuccessorWithoutTheWindow,
    /// A successor keeps what it copied of a shard that was lost meanwhile.
    KeepsACopyOfTheLost,
    /// A seal is known to the leader and not in the log.
    SealNotInTheLog,
    /// A lost shard says that it has settled and asked nobody.
    SettleSkipped,
    /// A lost shard asks who serves the slot and looks into no block.
    SettleAsksWindowsOnly,
    /// Who is asked a second time holds for another's what it took over the first time.
    SettleForgetsForWhom,
    /// A lost shard registers blocks.
    LostShardRegisters,
    /// A sealed shard registers blocks though who knew its ids is lost.
    UnsettledShardRegisters,
    /// A shard that comes back serves without asking whether it still should.
    AbandonedShardAccepts,
    /// A window forgets ids of records that lie in no block.
    ForgetsBeforeTheBlock,
}

impl Bug {
    pub const ALL: [Self; 10] = [
        Self::SuccessorWithoutTheWindow,
        Self::KeepsACopyOfTheLost,
        Self::SealNotInTheLog,
        Self::SettleSkipped,
        Self::SettleAsksWindowsOnly,
        Self::SettleForgetsForWhom,
        Self::LostShardRegisters,
        Self::UnsettledShardRegisters,
        Self::AbandonedShardAccepts,
        Self::ForgetsBeforeTheBlock,
    ];
}
