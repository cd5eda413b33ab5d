//! Cache of shard leaders. Entries are hints, which the called node corrects if they are wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use athanor_catalog::{ShardEntry, ShardId};
use athanor_cluster::NodeId;
use athanor_cluster::members::{ClusterMember, ClusterMembers, MemberState};
use athanor_ingester::Ingester;
use parking_lot::Mutex;

/// Cached leaders by shard. The map has one entry per shard that was called, and those are few.
pub struct LeaderCache {
    me: NodeId,
    /// Ingester of this node, if it has the role.
    ingester: Option<Arc<Ingester>>,
    /// Members of the cluster. None for a single-node server.
    members: Option<ClusterMembers>,
    leaders: Mutex<BTreeMap<ShardId, NodeId>>,
}

impl LeaderCache {
    /// Creates an empty cache.
    pub fn new(me: NodeId, ingester: Option<Arc<Ingester>>, members: Option<ClusterMembers>) -> Self {
        Self { me, ingester, members, leaders: Mutex::default() }
    }

    /// Returns the node to call for a shard: the cached leader, else the members one after the other, live
    /// ones first.
    pub fn candidate(&self, shard: &ShardEntry, attempt: usize) -> NodeId {
        let told = self.leaders.lock().get(&shard.id).copied();
        let here = || self.ingester.as_ref().and_then(|ingester| ingester.shard_leader(shard.id));
        if let Some(leader) = told.or_else(here).filter(|leader| shard.members.contains(leader)) {
            return leader;
        }
        let known = self.members.as_ref().map(ClusterMembers::current).unwrap_or_default();
        let takes_calls =
            |member: &ClusterMember| member.is_alive() && !matches!(member.state, MemberState::Left);
        let is_here = |node: &NodeId| known.get(node).is_some_and(takes_calls);
        let (mut asked, missing): (Vec<NodeId>, Vec<NodeId>) =
            shard.members.iter().partition(|node| is_here(node));
        asked.extend(missing);
        // A shard without listed members belongs to this node alone.
        let Some(place) = attempt.checked_rem(asked.len()) else { return self.me };
        asked[place]
    }

    /// Records the leader that a node reported. None removes the entry.
    pub fn record_leader(&self, shard: ShardId, leader: Option<NodeId>) {
        let mut leaders = self.leaders.lock();
        match leader {
            Some(leader) => leaders.insert(shard, leader),
            None => leaders.remove(&shard),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use athanor_catalog::ShardPhase;
    use athanor_chassis::Timestamp;

    use super::*;

    fn member(node: NodeId, alive: bool) -> ClusterMember {
        ClusterMember {
            node,
            name: String::new(),
            zone: String::new(),
            roles: BTreeSet::new(),
            internal: ([127, 0, 0, 1], 1).into(),
            boot: 1,
            state: MemberState::Ready,
            missing_since: (!alive).then_some(std::time::Duration::ZERO),
        }
    }

    fn shard(members: &[NodeId]) -> ShardEntry {
        ShardEntry {
            id: 1,
            slot: 0,
            epoch: 1,
            watermark: 0,
            members: members.iter().copied().collect(),
            phase: ShardPhase::Open,
            fenced: 1,
            since: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn members_are_asked_in_turn_until_one_says_who_leads() {
        let members = ClusterMembers::from_static([member(2, false), member(3, true), member(4, true)]);
        let leaders = LeaderCache::new(9, None, Some(members));
        let shard_of_three = shard(&[2, 3, 4]);
        let asked =
            |from: usize| [0, 1, 2, 3].map(|attempt| leaders.candidate(&shard_of_three, from + attempt));
        assert_eq!(asked(0), [3, 4, 2, 3]);
        leaders.record_leader(1, Some(4));
        assert_eq!(asked(0), [4; 4]);
        // Who is no member of the shard as it is now does not lead it.
        leaders.record_leader(1, Some(7));
        assert_eq!(asked(0), [3, 4, 2, 3]);
        leaders.record_leader(1, None);
        assert_eq!(leaders.candidate(&shard(&[]), 0), 9);
    }
}
