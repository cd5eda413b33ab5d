//! Members of the cluster, as far as this node has seen them in gossip.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;

use crate::NodeId;

/// Upper bound of remembered members. Beyond it, the members that are missing longest are evicted.
pub const MAX_MEMBERS: usize = 500;
/// Time for which a missing node is remembered.
pub const MISSING_MEMBER_RETENTION: Duration = Duration::from_secs(10 * 60);

/// Role that a node runs for the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RoleName {
    /// Merges blocks and removes old objects.
    Compactor,
    /// Receives uploads.
    Distributor,
    /// Stores recent profiles in shards.
    Ingester,
    /// Replicates the catalog of blocks.
    Metastore,
    /// Runs queries.
    Querier,
    /// Reads blocks for queriers.
    #[serde(rename = "store-gateway")]
    StoreGateway,
}

/// Lifecycle state of a node, as it publishes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// The node reads its disk.
    Starting,
    /// The node serves requests.
    Ready,
    /// The node serves requests, but its disk has no capacity for new data.
    Full,
    /// The node finishes running work and accepts no new work.
    Draining,
    /// The node announced that it leaves.
    Left,
}

/// Member of the cluster. There is one per node ID: its newest start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterMember {
    /// ID of the node.
    pub node: NodeId,
    /// Human-readable name of the node.
    pub name: String,
    /// Failure zone of the node. Members of a raft group are spread over zones.
    pub zone: String,
    /// Roles that the node runs.
    pub roles: BTreeSet<RoleName>,
    /// Address of the port for calls of other nodes.
    pub internal: SocketAddr,
    /// Boot number: how often the node was started.
    pub boot: u64,
    /// Lifecycle state that the node published last.
    pub state: MemberState,
    /// Time since when the node is missing, by this node's monotonic clock. None while the node is alive.
    #[serde(skip)]
    pub missing_since: Option<Duration>,
}

/// Watched map of members by ID. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClusterMembers {
    seen: watch::Receiver<Arc<BTreeMap<NodeId, ClusterMember>>>,
}

/// Table that keeps one member per node ID.
#[derive(Debug, Default)]
pub(crate) struct MemberTable {
    members: BTreeMap<NodeId, ClusterMember>,
}

// === impl RoleName ===

impl RoleName {
    /// All roles, in alphabetical order.
    pub const ALL_VARIANTS: [Self; 6] = [
        Self::Compactor,
        Self::Distributor,
        Self::Ingester,
        Self::Metastore,
        Self::Querier,
        Self::StoreGateway,
    ];

    /// Name of the role in settings and gossip.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compactor => "compactor",
            Self::Distributor => "distributor",
            Self::Ingester => "ingester",
            Self::Metastore => "metastore",
            Self::Querier => "querier",
            Self::StoreGateway => "store-gateway",
        }
    }
}

// === impl MemberState ===

impl MemberState {
    const ALL_VARIANTS: [Self; 5] = [Self::Starting, Self::Ready, Self::Full, Self::Draining, Self::Left];

    /// Name of the state in gossip.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Full => "full",
            Self::Draining => "draining",
            Self::Left => "left",
        }
    }

    /// Parses the string that [`name`](Self::name) returns.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL_VARIANTS.into_iter().find(|state| state.name() == name)
    }
}

// === impl ClusterMember ===

impl ClusterMember {
    /// Returns whether the node counts as alive.
    pub fn is_alive(&self) -> bool {
        self.missing_since.is_none()
    }

    /// Duration for which the node has been missing. Zero while it is alive.
    pub fn missing_for(&self, now: Duration) -> Duration {
        self.missing_since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }
}

// === impl ClusterMembers ===

impl ClusterMembers {
    pub(crate) fn new(seen: watch::Receiver<Arc<BTreeMap<NodeId, ClusterMember>>>) -> Self {
        Self { seen }
    }

    /// Creates a fixed set of members, for callers that learn the members from elsewhere.
    pub fn from_static(members: impl IntoIterator<Item = ClusterMember>) -> Self {
        let members = members.into_iter().map(|member| (member.node, member)).collect();
        Self { seen: watch::Sender::new(Arc::new(members)).subscribe() }
    }

    /// Returns all known members, including missing ones.
    pub fn current(&self) -> Arc<BTreeMap<NodeId, ClusterMember>> {
        Arc::clone(&self.seen.borrow())
    }

    /// Waits for a change. Returns false if no further change can come.
    pub async fn changed(&mut self) -> bool {
        self.seen.changed().await.is_ok()
    }

    /// Waits until the members satisfy `wanted` and returns them. Returns the last members if updates end
    /// first.
    pub async fn wait_until(
        &mut self,
        wanted: impl Fn(&BTreeMap<NodeId, ClusterMember>) -> bool,
    ) -> Arc<BTreeMap<NodeId, ClusterMember>> {
        match self.seen.wait_for(|members| wanted(members)).await {
            Ok(members) => return Arc::clone(&members),
            Err(_ended) => {}
        }
        self.current()
    }
}

// === impl MemberTable ===

impl MemberTable {
    /// Replaces the set of alive members by the one that gossip reports. An older start of a node never
    /// replaces a newer one, though gossip keeps it for a while.
    pub(crate) fn update(&mut self, alive: impl IntoIterator<Item = ClusterMember>, now: Duration) {
        let mut here = BTreeSet::new();
        for mut member in alive {
            let known = self.members.get(&member.node).map(|known| (known.boot, known.missing_since));
            if known.is_some_and(|(boot, _)| boot > member.boot) {
                continue;
            }
            if known.is_none() && self.members.len() >= MAX_MEMBERS && !self.evict_longest_missing() {
                continue;
            }
            if member.state == MemberState::Left {
                let before = known.filter(|(boot, _)| *boot == member.boot);
                member.missing_since = before.and_then(|(_, since)| since).or(Some(now));
            }
            here.insert(member.node);
            self.members.insert(member.node, member);
        }
        for member in self.members.values_mut().filter(|member| !here.contains(&member.node)) {
            member.missing_since.get_or_insert(now);
        }
        self.members
            .retain(|_, member| member.is_alive() || member.missing_for(now) < MISSING_MEMBER_RETENTION);
    }

    /// Evicts the member that is missing longest. Returns false if all members are alive.
    fn evict_longest_missing(&mut self) -> bool {
        let missing = self.members.values().filter_map(|member| Some((member.missing_since?, member.node)));
        match missing.min() {
            Some((_, node)) => self.members.remove(&node).is_some(),
            None => false,
        }
    }

    pub(crate) fn members(&self) -> &BTreeMap<NodeId, ClusterMember> {
        &self.members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn member(node: NodeId, boot: u64) -> ClusterMember {
        ClusterMember {
            node,
            name: String::new(),
            zone: String::new(),
            roles: BTreeSet::new(),
            internal: ([127, 0, 0, 1], 9095).into(),
            boot,
            state: MemberState::Ready,
            missing_since: None,
        }
    }

    fn told(book: &MemberTable) -> Vec<(NodeId, u64, bool)> {
        book.members().values().map(|member| (member.node, member.boot, member.is_alive())).collect()
    }

    #[test]
    fn the_youngest_start_of_a_node_is_the_node() {
        let mut book = MemberTable::default();
        book.update([member(1, 3), member(2, 1), member(1, 4)], SECOND);
        assert_eq!(told(&book), [(1, 4, true), (2, 1, true)]);
        // Gossip holds on to the older start after the younger one is gone.
        book.update([member(1, 3), member(2, 1)], 2 * SECOND);
        assert_eq!(told(&book), [(1, 4, false), (2, 1, true)]);
        assert_eq!(book.members()[&1].missing_for(5 * SECOND), 3 * SECOND);
        book.update([member(1, 5)], 3 * SECOND);
        assert_eq!(told(&book), [(1, 5, true), (2, 1, false)]);
    }

    #[test]
    fn who_is_missing_is_forgotten_after_a_while_and_who_left_is_missing() {
        let mut book = MemberTable::default();
        let left = ClusterMember { state: MemberState::Left, ..member(2, 1) };
        book.update([member(1, 1), left.clone()], SECOND);
        assert_eq!(told(&book), [(1, 1, true), (2, 1, false)]);
        book.update([left], SECOND + MISSING_MEMBER_RETENTION / 2);
        assert_eq!(book.members()[&2].missing_since, Some(SECOND), "saying it again changes nothing");
        book.update([], SECOND + MISSING_MEMBER_RETENTION);
        assert_eq!(told(&book), [(1, 1, false)]);
        book.update([], SECOND + 2 * MISSING_MEMBER_RETENTION);
        assert_eq!(told(&book), []);
    }

    #[test]
    fn there_is_a_bound_and_the_missing_go_first() {
        let mut book = MemberTable::default();
        book.update((0..MAX_MEMBERS as u64 + 10).map(|node| member(node, 1)), SECOND);
        assert_eq!(book.members().len(), MAX_MEMBERS);
        book.update((1..MAX_MEMBERS as u64).map(|node| member(node, 1)), 2 * SECOND);
        book.update((1..=MAX_MEMBERS as u64).map(|node| member(node, 1)), 3 * SECOND);
        assert_eq!(book.members().len(), MAX_MEMBERS);
        assert!(!book.members().contains_key(&0));
    }

    #[test]
    fn states_come_back_from_their_names() {
        for state in MemberState::ALL_VARIANTS {
            assert_eq!(MemberState::from_name(state.name()), Some(state));
        }
        assert_eq!(MemberState::from_name("gone"), None);
    }
}
