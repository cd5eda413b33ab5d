//! Which nodes serve a slot, and which of them should lead.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use athanor_chassis::{ErrorCode, ErrorCodeExt};
use athanor_profile::hash::ContentHash;

use super::HashDomain;
use crate::NodeId;

/// A node that could be a member: alive, ready and not full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaCandidate {
    /// The zone that it says it is in; empty if it says none.
    pub zone: String,
    /// Groups that it is a member of.
    pub groups: u32,
}

/// Too few nodes for the copies that are wanted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{wanted} ingesters are wanted for slot {slot} and {found} are alive, ready and not full; start more ingesters or \
     ask for fewer copies"
)]
pub struct NotEnoughNodesError {
    /// The slot.
    pub slot: u32,
    /// Copies that are wanted.
    pub wanted: usize,
    /// Nodes that could hold one.
    pub found: usize,
}

/// What decides about a shard's leader.
#[derive(Clone, Copy, Debug)]
pub struct ShardLeaderView<'a> {
    /// The shard.
    pub shard: u32,
    /// Who leads it.
    pub leader: NodeId,
    /// All its members.
    pub members: &'a BTreeSet<NodeId>,
}

/// A node that is alive, as one that leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderCandidate {
    /// The zone that it says it is in; empty if it says none.
    pub zone: String,
    /// Shards that it leads.
    pub shards: u16,
}

/// The members of a new shard: in as many zones as there are, with the fewest groups, and among equals those of most
/// weight for this slot and epoch, so that the shards of a slot do not stay on the same nodes. At least one.
pub fn choose_members(
    slot: u32,
    epoch: u32,
    rf: usize,
    candidates: &BTreeMap<NodeId, ReplicaCandidate>,
) -> Result<BTreeSet<NodeId>, NotEnoughNodesError> {
    let wanted = rf.max(1);
    if candidates.len() < wanted {
        return Err(NotEnoughNodesError { slot, wanted, found: candidates.len() });
    }
    let key = ContentHash::from(slot) << 32 | ContentHash::from(epoch);
    let mut chosen = BTreeSet::new();
    let mut in_zone: BTreeMap<&str, usize> = BTreeMap::new();
    while chosen.len() < wanted {
        let free = candidates.iter().filter(|(node, _)| !chosen.contains(*node));
        let next = free.min_by_key(|(node, candidate)| {
            let crowd = in_zone.get(candidate.zone.as_str()).copied().unwrap_or_default();
            let weight = HashDomain::Member.hash(key, ContentHash::from(**node));
            (crowd, candidate.groups, Reverse((weight, **node)))
        });
        let Some((node, candidate)) = next else { break };
        chosen.insert(*node);
        *in_zone.entry(&candidate.zone).or_default() += 1;
    }
    Ok(chosen)
}

/// Who should lead a shard instead of its leader, if anybody. `leads` has the nodes that are alive.
///
/// A lead moves only from a member with more than the average of these members, rounded up, to one with less than the
/// average, rounded down. So each move brings both nearer to it, no lead comes straight back, and several that move at
/// once, on what was known a moment ago, seldom overshoot. A node that drains gives all its leads away.
///
/// Of members with equally few the one whose zone leads least takes it: what a zone that fails takes with it is to be
/// little. For that alone a lead moves as well, where two nodes change places: the one leads as many as the other did
/// then, and their zones come nearer to each other. So moves end: nodes come nearer, or they do not change and zones do.
pub fn better_leader(
    shard: &ShardLeaderView<'_>,
    leads: &BTreeMap<NodeId, LeaderCandidate>,
    draining: &BTreeSet<NodeId>,
) -> Option<NodeId> {
    let leader = leads.get(&shard.leader)?;
    let in_zone = |of: &LeaderCandidate| -> u64 {
        leads.values().filter(|lead| lead.zone == of.zone).map(|lead| u64::from(lead.shards)).sum()
    };
    let staying = shard.members.iter().filter(|node| !draining.contains(*node));
    let able: BTreeMap<NodeId, &LeaderCandidate> =
        staying.filter_map(|node| Some((*node, leads.get(node)?))).collect();
    let key = ContentHash::from(shard.shard);
    let others = able.iter().filter(|(node, _)| **node != shard.leader);
    let (target, fewest) = others.min_by_key(|(node, lead)| {
        (lead.shards, in_zone(lead), Reverse(HashDomain::Leader.hash(key, ContentHash::from(**node))))
    })?;
    if draining.contains(&shard.leader) {
        return Some(*target);
    }
    let sum = able.values().map(|lead| u64::from(lead.shards)).sum::<u64>();
    let count = able.len() as u64;
    let nearer = u64::from(leader.shards) > sum.div_ceil(count) && u64::from(fewest.shards) < sum / count;
    let changes_places = leader.shards == fewest.shards + 1 && in_zone(leader) > in_zone(fewest) + 1;
    (nearer || changes_places).then_some(*target)
}

impl ErrorCodeExt for NotEnoughNodesError {
    fn code(&self) -> ErrorCode {
        ErrorCode::Unavailable
    }
}
