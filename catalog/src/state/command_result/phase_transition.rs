//! Transitions of a shard's phase, as refusals name them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Transition that requires a certain phase of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseTransition {
    /// The shard opens for records.
    Open,
    /// The shard receives the request to seal.
    RequestSeal,
    /// The shard gets a successor.
    CreateSuccessor,
    /// The shard has sealed its log.
    Seal,
    /// The shard has lost its quorum.
    MarkLost,
    /// The shard has reconciled its ids with the serving shard.
    Reconcile,
    /// An operator abandons the shard.
    Abandon,
    /// The shard retires, so its log may go.
    Retire,
    /// The shard registers a block.
    RegisterBlock,
    /// The shard's watermark advances.
    AdvanceWatermark,
    /// The shard has logged a fence.
    LogFence,
}

/// Names the phases that permit the transition, and the remedy in others.
impl fmt::Display for PhaseTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "only an opening shard opens; another shard may have its ids now",
            Self::RequestSeal => "only an open shard accepts a seal request; seal the shard that serves the slot",
            Self::CreateSuccessor => "only a sealing shard gets a successor; request its seal first",
            Self::Seal => {
                "only a sealing shard seals; request its seal first, or reconcile its ids if it is lost"
            }
            Self::MarkLost => {
                "only a shard whose successor is not open yet can be lost; abandon the shard if its log is permanently lost"
            }
            Self::Reconcile => "only a lost shard reconciles its ids; continue as its phase requires",
            Self::Abandon => "only a lost or sealed shard can be abandoned; request its seal or mark it lost first",
            Self::Retire => "only a sealed shard retires; request its seal first",
            Self::RegisterBlock => {
                "only open, sealing and sealed shards register blocks; a lost shard has to reconcile its ids first"
            }
            Self::AdvanceWatermark => {
                "only the watermark of open, sealing and sealed shards advances; a lost shard has to reconcile its ids first"
            }
            Self::LogFence => "only opening, open and sealing shards log fences; shards in other phases need none",
        })
    }
}
