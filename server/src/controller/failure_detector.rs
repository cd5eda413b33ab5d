//! Detection of dead nodes: members that have been missing for too long.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use athanor_catalog::RoutingView;
use athanor_cluster::NodeId;
use athanor_cluster::members::ClusterMember;

/// Times since when gossip does not know a member, as the catalog leader has seen it. A new leader starts
/// with an empty state: it has not seen earlier absences.
#[derive(Default)]
pub struct FailureDetector {
    /// Start of each absence, by this node's monotonic clock.
    since: BTreeMap<NodeId, Duration>,
}

impl FailureDetector {
    /// Returns the shard members that have been missing for at least `node_failure_timeout`. A member that
    /// was alive in between, however shortly, starts a new absence.
    pub fn dead_members(
        &mut self,
        view: &RoutingView,
        members: &BTreeMap<NodeId, ClusterMember>,
        now: Duration,
        node_failure_timeout: Duration,
    ) -> BTreeSet<NodeId> {
        let all: BTreeSet<NodeId> =
            view.shards.iter().flat_map(|shard| shard.members.iter().copied()).collect();
        self.since.retain(|node, _| all.contains(node) && !members.contains_key(node));
        let mut dead_for = |node: &NodeId| match members.get(node) {
            Some(member) => member.missing_for(now),
            // Gossip dropped this member, or has not seen it since this process started.
            None => now.saturating_sub(*self.since.entry(*node).or_insert(now)),
        };
        all.into_iter().filter(|node| dead_for(node) >= node_failure_timeout).collect()
    }
}

#[cfg(test)]
mod tests {
    use athanor_catalog::{ShardEntry, ShardPhase, shard_id};
    use athanor_chassis::time::clock::ManualClock;
    use athanor_chassis::{Clock, Timestamp};
    use athanor_cluster::members::{MemberState, RoleName};

    use super::*;

    const DEAD_AFTER: Duration = Duration::from_secs(5 * 60);
    const SECOND: Duration = Duration::from_secs(1);
    const NOBODY: [NodeId; 0] = [];

    /// Nodes 1 to 3 keep a shard; who is seen of them, and by whom.
    struct Cluster {
        clock: Clock,
        hand: ManualClock,
        view: RoutingView,
        members: BTreeMap<NodeId, ClusterMember>,
        missing: FailureDetector,
    }

    impl Cluster {
        fn new() -> Self {
            let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
            // No clock begins at nothing.
            hand.advance(1000 * SECOND);
            let shard = ShardEntry {
                id: shard_id(0, 1),
                slot: 0,
                epoch: 1,
                members: [1, 2, 3].into(),
                phase: ShardPhase::Open,
                watermark: 0,
                fenced: 1,
                since: Timestamp::UNIX_EPOCH,
            };
            let view = RoutingView { shards: vec![shard], ..RoutingView::default() };
            let mut cluster =
                Self { clock, hand, view, members: BTreeMap::new(), missing: FailureDetector::default() };
            (1..=4).for_each(|node| cluster.sees(node, None));
            cluster
        }

        fn sees(&mut self, node: NodeId, missing_since: Option<Duration>) {
            let member = ClusterMember {
                node,
                name: String::new(),
                zone: String::new(),
                roles: [RoleName::Ingester].into(),
                internal: ([127, 0, 0, 1], 9095).into(),
                boot: 1,
                state: MemberState::Ready,
                missing_since,
            };
            self.members.insert(node, member);
        }

        fn now(&self) -> Duration {
            self.clock.monotonic()
        }

        /// Who is gone, after looking each second for so long.
        fn after(&mut self, span: Duration) -> Vec<NodeId> {
            let until = self.now() + span;
            loop {
                let gone = self.missing.dead_members(&self.view, &self.members, self.now(), DEAD_AFTER);
                if self.now() >= until {
                    return gone.into_iter().collect();
                }
                self.hand.advance(SECOND);
            }
        }
    }

    #[test]
    fn nobody_is_gone_before_its_time() {
        let mut cluster = Cluster::new();
        assert_eq!(cluster.after(2 * DEAD_AFTER), NOBODY);
        // Gossip misses one, and another that keeps nothing.
        let since = Some(cluster.now());
        cluster.sees(2, since);
        cluster.sees(4, since);
        assert_eq!(cluster.after(DEAD_AFTER - SECOND), NOBODY);
        assert_eq!(cluster.after(SECOND), [2]);
        assert_eq!(cluster.after(DEAD_AFTER), [2]);
        // It is here for a moment: what was before counts no more.
        cluster.sees(2, None);
        assert_eq!(cluster.after(SECOND), NOBODY);
        let since = Some(cluster.now());
        cluster.sees(2, since);
        assert_eq!(cluster.after(DEAD_AFTER - SECOND), NOBODY);
        assert_eq!(cluster.after(SECOND), [2]);
    }

    #[test]
    fn whom_gossip_does_not_know_is_missing_since_that_was_seen() {
        let mut cluster = Cluster::new();
        assert_eq!(cluster.after(DEAD_AFTER), NOBODY);
        cluster.members.remove(&3);
        assert_eq!(cluster.after(DEAD_AFTER - SECOND), NOBODY);
        // It comes at the last moment, and goes again.
        cluster.sees(3, None);
        assert_eq!(cluster.after(SECOND), NOBODY);
        cluster.members.remove(&3);
        assert_eq!(cluster.after(DEAD_AFTER - SECOND), NOBODY);
        assert_eq!(cluster.after(SECOND), [3]);
    }

    /// Who leads the catalogue next goes by what it has seen itself: nobody is gone earlier because of the change.
    #[test]
    fn another_leader_of_the_catalogue_calls_nobody_gone_earlier() {
        let mut cluster = Cluster::new();
        cluster.members.remove(&3);
        let since = Some(cluster.now());
        cluster.sees(2, since);
        assert_eq!(cluster.after(DEAD_AFTER - SECOND), NOBODY);
        // Its gossip has missed the one as long, and never knew the other.
        cluster.missing = FailureDetector::default();
        assert_eq!(cluster.after(SECOND), [2]);
        assert_eq!(cluster.after(DEAD_AFTER - 2 * SECOND), [2]);
        assert_eq!(cluster.after(SECOND), [2, 3]);
    }
}
