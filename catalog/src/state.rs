//! The facts, and the commands that change them.

mod answer;
mod block_set;
mod blocks;
mod chains;
mod check;
mod command;
mod listing;
mod made;
mod notes;
mod rebuild;
mod remains;
mod replace;
mod retention;
mod settings;
mod shards;
mod staging;
mod succession;
mod tables;

use std::collections::BTreeMap;

use athanor_chassis::{TenantId, Timestamp};
use athanor_cluster::NodeId;
use athanor_cluster::placement::Tables;
use serde::{Deserialize, Serialize};

use crate::block::{BlockEntry, BlockId, Rows};
use block_set::BlockSet;
use retention::Retention;
use staging::StagedBlock;

pub use answer::{Answer, Bounded, Refused, Step};
pub use blocks::{MAX_SCARS, REGISTER_WITHIN, REMEMBER, Scar, Wound};
pub use command::{Command, Logged, Unreadable};
pub use listing::{Listing, View};
pub use made::made;
pub use notes::{MAX_ALL_NOTES, MAX_NOTE, MAX_NOTES, MAX_TENANT_NOTES, Note, Notes};
pub use remains::{Described, Findings, Lying, RebuildError, Remains};
pub use replace::{MAX_REPLACED, Unlike};
pub use retention::{AgeReport, MAX_EXPIRED_AT_ONCE, MAX_PURGED_TENANTS, ProfileTimes};
pub use settings::{MAX_SERVICES, MAX_VOTERS, NEWEST, Rates, Settings, Voter};
pub use shards::{
    Choice, Inherits, MAX_COPIES, MAX_GROUPS, MAX_SHARDS, Node, Phase, ShardEntry, ShardId, shard_id,
    slot_and_epoch,
};
pub use staging::{MAX_STAGED_TENANTS, MAX_TENANTS_PER_COMMAND};
pub use tables::{CLOCKS, Pending};

/// All facts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    revision: u64,
    /// The newest time that came with a command. No command is older: else what was forgotten by a clock that was ahead
    /// could register by one that is not [INV-15].
    #[serde(default)]
    now: Timestamp,
    shards: BTreeMap<ShardId, ShardEntry>,
    /// Nodes that are members of these shards.
    #[serde(default)]
    nodes: BTreeMap<NodeId, Node>,
    /// None before there are slots.
    #[serde(default)]
    tables: Option<Tables>,
    #[serde(default)]
    pending: Option<Pending>,
    /// The newest version that was ever proposed.
    #[serde(default)]
    proposed: u64,
    #[serde(default)]
    rates: Rates,
    /// As people are told of them; who votes is said by the group's log alone.
    #[serde(default)]
    voters: BTreeMap<NodeId, Voter>,
    #[serde(default)]
    settings: Settings,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    notes: BTreeMap<TenantId, Notes>,
    blocks: BlockSet,
    /// Names that never register, and when they were condemned.
    condemned: BTreeMap<BlockId, Timestamp>,
    #[serde(default)]
    scars: Vec<Scar>,
    #[serde(default, skip_serializing_if = "Retention::is_unused")]
    retention: Retention,
    /// By shard.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    staged: BTreeMap<ShardId, StagedBlock>,
}

/// What a command came to that was not refused.
enum Outcome {
    /// Something is other than before.
    Changed(Answer),
    /// All was so already.
    Known(Answer),
}

impl Outcome {
    fn counted(count: usize) -> Self {
        match count {
            0 => Self::Known(Answer::Changed(0)),
            count => Self::Changed(Answer::Changed(count)),
        }
    }
}

impl State {
    /// Applies a command that was proposed at a time. The same commands make the same facts, wherever; none fails but
    /// by its answer.
    pub fn apply(&mut self, at: Timestamp, command: Command) -> Answer {
        self.now = self.now.max(at);
        let answer = match self.decide(command) {
            Ok(Outcome::Changed(answer)) => {
                self.drop_ended_stages();
                self.revision = self.revision.saturating_add(1);
                answer
            }
            Ok(Outcome::Known(answer)) => answer,
            Err(refused) => Answer::Refused(refused),
        };
        debug_assert_eq!(self.check(), Ok(()));
        answer
    }

    fn decide(&mut self, command: Command) -> Result<Outcome, Refused> {
        match command {
            Command::OpenSlots { count, members, zones } => self.open_slots(count, &members, &zones),
            Command::OpenShard { slot, members } => self.open_shard(slot, members),
            Command::AddSlot { slot, choice } => self.add_slot(slot, &choice),
            Command::Opened { shard, inherited, fenced } => self.opened(shard, inherited, fenced),
            Command::Stop { shard } => self.stop(shard),
            Command::Succeed { shard, choice } => self.succeed(shard, &choice),
            Command::Sealed { shard, at, latest } => self.sealed(shard, at, latest),
            Command::Lose { shard, choice } => self.lose(shard, &choice),
            Command::Settled { shard, at, with } => self.settled(shard, at, with),
            Command::Abandon { shard } => self.abandon(shard),
            Command::Retire { shard, rest_is_empty } => self.retire(shard, rest_is_empty),
            Command::ProposeTable { table } => self.propose_table(table),
            Command::Fenced { shard, version } => self.fenced(shard, version),
            Command::FenceRefused { shard, version, latest } => self.fence_refused(shard, version, latest),
            Command::WithdrawTable { version } => self.withdraw_table(version),
            Command::PublishTable { version } => self.publish_table(version),
            Command::ForgetTables { before } => self.forget_tables(before),
            Command::Rates { changed } => self.rate(changed),
            Command::Configure { expected, settings } => self.configure(&expected, settings),
            Command::Note { tenant, name, expected, text } => {
                self.note(tenant, name, expected.as_deref(), text)
            }
            Command::AddVoter { node, address } => self.add_voter(node, address),
            Command::RemoveVoter { node } => Ok(self.remove_voter(node)),
            Command::Register { block } => self.register(block),
            Command::StageTenants { shard, block, offset, tenants } => {
                self.stage_tenants(shard, block, offset, tenants)
            }
            Command::RegisterStaged { block, tenants } => self.register_staged(block, tenants),
            Command::Raise { shard, to } => self.raise(shard, to),
            Command::Recall { block } => self.recall(block),
            Command::RecallStaged { block, tenants } => self.recall_staged(block, tenants),
            Command::Close { shard, from, to } => self.close(shard, from, to),
            Command::Mark { wound } => self.mark(wound),
            Command::Heal { before } => Ok(self.heal(before)),
            Command::Replace { inputs, outputs } => self.replace(inputs, outputs),
            Command::Condemn { blocks } => Ok(self.condemn(blocks)),
            Command::Forget => Ok(self.forget()),
            Command::Expire { retention, max_percent } => Ok(self.expire(retention, max_percent)),
            Command::Restore { blocks } => self.restore(blocks),
            Command::Purge { blocks } => Ok(self.purge(blocks)),
        }
    }

    /// Without facts, at a revision: what goes on after facts were lost must not tell of revisions that were told of
    /// before.
    pub fn beginning_at(revision: u64) -> Self {
        Self { revision, ..Self::default() }
    }

    /// Grows with every change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// All blocks, by name.
    pub fn blocks(&self) -> impl Iterator<Item = &BlockEntry> {
        self.blocks.values()
    }

    /// Returns the tenants with rows in some block, ascending.
    pub fn tenants(&self) -> impl Iterator<Item = &TenantId> {
        self.blocks.tenants()
    }

    /// Names that never register, and when they were condemned.
    pub fn condemned(&self) -> impl Iterator<Item = (BlockId, Timestamp)> {
        self.condemned.iter().map(|(&block, &at)| (block, at))
    }

    /// What services send.
    pub fn rates(&self) -> &Rates {
        &self.rates
    }

    /// As bytes, for a snapshot.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("all keys are texts")
    }

    /// From the bytes of a snapshot.
    pub fn decode(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        let mut state: Self = serde_json::from_slice(bytes)?;
        // Snapshots of before there were tables: all slots were everybody's.
        if state.tables.is_none() && !state.shards.is_empty() {
            state.first_table_of_all_slots();
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests;
