//! Choice of the nodes that serve a slot, and of the node that should lead it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use athanor_chassis::{ErrorCode, ErrorCodeExt};
use athanor_profile::encoding::hash::ContentHash;

use super::HashDomain;
use crate::NodeId;

/// Candidate for a shard member: alive, ready and not full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaCandidate {
    /// Zone that the node publishes, empty if it publishes none.
    pub zone: String,
    /// Number of raft groups that the node is a member of.
    pub groups: u32,
}

/// Rejection of a placement for which there are too few nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "slot {slot} needs {wanted} ingesters, {found} are alive, ready and not full; start more ingesters or \
     request fewer replicas"
)]
pub struct NotEnoughNodesError {
    /// Slot to be placed.
    pub slot: u32,
    /// Number of wanted members.
    pub wanted: usize,
    /// Number of candidates.
    pub found: usize,
}

/// State of a shard that decides about its leader.
#[derive(Clone, Copy, Debug)]
pub struct ShardLeaderView<'a> {
    /// ID of the shard.
    pub shard: u32,
    /// Current leader of the shard.
    pub leader: NodeId,
    /// All members of the shard.
    pub members: &'a BTreeSet<NodeId>,
}

/// Alive node as a candidate for the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderCandidate {
    /// Zone that the node publishes, empty if it publishes none.
    pub zone: String,
    /// Number of shards that the node leads.
    pub shards: u16,
}

/// Chooses the members of a new shard, at least one. It prefers zones with the fewest chosen members, then
/// nodes with the fewest groups. Among equal nodes the weight for this slot and epoch decides, so that
/// successive shards of a slot do not stay on the same nodes.
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

/// Returns the node that should replace the leader of a shard, if any. `leads` has the alive nodes.
///
/// Leadership moves only from a member above the rounded-up average of these members to one below the
/// rounded-down average. So each move brings both nearer to the average, and leadership never comes straight
/// back. Several concurrent moves, based on slightly stale counts, seldom overshoot. A draining node gives up
/// all its shards.
///
/// Among members with equally few shards, the zone with the fewest leaders decides. So the failure of a
/// zone affects few leaders. For this reason alone, leadership also moves if two nodes then swap their
/// counts: each leads as many shards as the other did, and their zones come nearer to each other. So moves
/// end: either nodes come nearer to the average, or counts of nodes stay the same and zones come nearer.
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
