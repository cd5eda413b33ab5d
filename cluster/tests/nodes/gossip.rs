//! Nodes see each other, miss who is gone, and do not listen to others.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use athanor_chassis::{Clock, TaskGroup};
use athanor_cluster::NodeId;
use athanor_cluster::gossip::{Gossip, GossipConfig, NodeDescriptor, Transport, UdpTransport};
use athanor_cluster::handshake::NodeIdentity;
use athanor_cluster::members::{ClusterMembers, MISSING_MEMBER_RETENTION, MemberState, RoleName};
use chitchat::transport::ChannelTransport;

use crate::harness::{CLUSTER, me};

struct Town<'a> {
    transport: &'a dyn Transport,
    clock: Clock,
}

/// A node, and the tasks that end with it.
struct Node {
    gossip: Gossip,
    members: ClusterMembers,
    _tasks: TaskGroup,
}

impl Town<'_> {
    async fn node(&self, me: NodeIdentity, seeds: &[SocketAddr]) -> Node {
        let config = GossipConfig {
            me,
            listen: "127.0.0.1:0".parse().unwrap(),
            advertise: None,
            seeds: seeds.iter().map(SocketAddr::to_string).collect(),
            this: NodeDescriptor {
                name: format!("n{}", me.node),
                zone: format!("z{}", me.node % 2),
                roles: BTreeSet::from([RoleName::Ingester, RoleName::Querier]),
                internal: ([127, 0, 0, 1], 9000 + me.node as u16).into(),
            },
        };
        let tasks = TaskGroup::new(self.clock.clone(), 10);
        let (gossip, members) =
            Gossip::start(config, self.transport, self.clock.clone(), &tasks).await.unwrap();
        Node { gossip, members, _tasks: tasks }
    }

    /// Waits for these to be alive, and no others.
    async fn sees(&self, node: &mut Node, wanted: &[NodeId], limit: Duration) {
        let wanted: BTreeSet<_> = wanted.iter().copied().collect();
        let alive =
            |members: &std::collections::BTreeMap<NodeId, athanor_cluster::members::ClusterMember>| {
                members.values().filter(|m| m.is_alive()).map(|m| m.node).collect::<BTreeSet<_>>() == wanted
            };
        let seen = self.clock.timeout(limit, node.members.wait_until(alive)).await;
        assert!(seen.is_ok(), "{wanted:?} within {limit:?}, there are {:?}", node.members.current());
    }
}

const SOON: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn nodes_see_each_other_and_miss_who_is_gone() {
    let transport = ChannelTransport::default();
    let town = Town { transport: &transport, clock: Clock::system() };
    let mut a = town.node(me(1), &[]).await;
    let seeds = [a.gossip.address()];
    let mut b = town.node(me(2), &seeds).await;
    let c = town.node(me(3), &seeds).await;
    town.sees(&mut a, &[1, 2, 3], SOON).await;
    town.sees(&mut b, &[1, 2, 3], SOON).await;
    let third = b.members.current()[&3].clone();
    assert_eq!((third.name.as_str(), third.zone.as_str()), ("n3", "z1"));
    assert_eq!((third.internal.port(), third.state), (9003, MemberState::Starting));
    assert_eq!(third.roles, BTreeSet::from([RoleName::Ingester, RoleName::Querier]));
    c.gossip.announce_state(MemberState::Ready).await;
    let ready = a.members.wait_until(|members| members[&3].state == MemberState::Ready);
    town.clock.timeout(SOON, ready).await.unwrap();

    // It is gone without a word.
    drop(c);
    town.sees(&mut a, &[1, 2], Duration::from_secs(20)).await;
    let since = a.members.current()[&3].missing_since.unwrap();
    assert_eq!(a.members.current()[&3].missing_for(since + SOON), SOON);
    let forgotten = a.members.wait_until(|members| !members.contains_key(&3));
    town.clock.timeout(MISSING_MEMBER_RETENTION + SOON, forgotten).await.unwrap();

    // It says goodbye: nobody has to miss it first.
    b.gossip.leave().await;
    town.sees(&mut a, &[1], Duration::from_secs(1)).await;
}

/// What it says of its disk is told only while it could take something.
#[tokio::test(start_paused = true)]
async fn a_node_tells_that_its_disk_is_full() {
    let transport = ChannelTransport::default();
    let town = Town { transport: &transport, clock: Clock::system() };
    let mut a = town.node(me(1), &[]).await;
    let b = town.node(me(2), &[a.gossip.address()]).await;
    town.sees(&mut a, &[1, 2], SOON).await;
    b.gossip.handle().announce_disk_full(true).await;
    let mut told = Vec::new();
    for (state, full) in [
        (MemberState::Ready, true),
        (MemberState::Ready, false),
        (MemberState::Ready, true),
        (MemberState::Draining, true),
    ] {
        b.gossip.announce_state(state).await;
        b.gossip.handle().announce_disk_full(full).await;
        let last = told.last().copied().unwrap_or(MemberState::Starting);
        let changed = a.members.wait_until(|members| members[&2].state != last);
        told.push(town.clock.timeout(SOON, changed).await.unwrap()[&2].state);
    }
    use MemberState::{Draining, Full, Ready};
    assert_eq!(told, [Full, Ready, Full, Draining]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_starts_again_is_one_node() {
    let transport = ChannelTransport::default();
    let town = Town { transport: &transport, clock: Clock::system() };
    let mut a = town.node(me(1), &[]).await;
    let seeds = [a.gossip.address()];
    let b = town.node(me(2), &seeds).await;
    town.sees(&mut a, &[1, 2], SOON).await;
    drop(b);
    let _b = town.node(NodeIdentity { boot: 2, ..me(2) }, &seeds).await;
    let younger = a.members.wait_until(|members| members[&2].boot == 2 && members[&2].is_alive());
    town.clock.timeout(SOON, younger).await.unwrap();
    // The older start is held on to by gossip for a while, and never seen.
    let older = a.members.wait_until(|members| members[&2].boot != 2 || !members[&2].is_alive());
    assert!(town.clock.timeout(Duration::from_secs(60), older).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_foreign_cluster_stays_foreign_also_at_a_reused_address() {
    let transport = ChannelTransport::default();
    let town = Town { transport: &transport, clock: Clock::system() };
    let mut a = town.node(me(1), &[]).await;
    let seeds = [a.gossip.address()];
    let mut foreign = town.node(NodeIdentity { cluster: CLUSTER + 1, ..me(9) }, &seeds).await;
    let mut b = town.node(me(2), &[seeds[0], foreign.gossip.address()]).await;
    town.sees(&mut b, &[1, 2], SOON).await;
    // The address of a node that is gone goes to one of the other cluster.
    let address = a.gossip.address();
    drop(a.gossip);
    town.sees(&mut b, &[2], Duration::from_secs(20)).await;
    let config_at = |me| GossipConfig {
        me,
        listen: address,
        advertise: None,
        seeds: vec![b.gossip.address().to_string()],
        this: NodeDescriptor {
            name: "taker".to_owned(),
            zone: String::new(),
            roles: BTreeSet::new(),
            internal: ([127, 0, 0, 1], 9999).into(),
        },
    };
    let tasks = TaskGroup::new(town.clock.clone(), 10);
    let taker = NodeIdentity { cluster: CLUSTER + 1, node: 1, boot: 7 };
    let _taker = Gossip::start(config_at(taker), &transport, town.clock.clone(), &tasks).await.unwrap();
    let met = b.members.wait_until(|members| members.values().any(|m| m.is_alive() && m.node != 2));
    assert!(town.clock.timeout(Duration::from_secs(60), met).await.is_err());
    let met = foreign.members.wait_until(|members| members.contains_key(&2));
    assert!(town.clock.timeout(Duration::from_secs(60), met).await.is_err());
    let _ = &mut a.members;
}

#[tokio::test]
async fn real_datagrams_do_as_well_and_an_address_is_taken_once() {
    let town = Town { transport: &UdpTransport, clock: Clock::system() };
    let mut a = town.node(me(1), &[]).await;
    let seeds = [a.gossip.address()];
    let mut b = town.node(me(2), &seeds).await;
    let mut c = town.node(me(3), &seeds).await;
    for node in [&mut a, &mut b, &mut c] {
        town.sees(node, &[1, 2, 3], Duration::from_secs(60)).await;
    }
    let taken = GossipConfig {
        me: me(4),
        listen: seeds[0],
        advertise: None,
        seeds: Vec::new(),
        this: NodeDescriptor {
            name: String::new(),
            zone: String::new(),
            roles: BTreeSet::new(),
            internal: seeds[0],
        },
    };
    let tasks = TaskGroup::new(town.clock.clone(), 10);
    let refused =
        Gossip::start(taken, &UdpTransport, town.clock.clone(), &tasks).await.map(drop).unwrap_err();
    assert!(refused.to_string().contains("cluster.gossip_listen_address"), "{refused}");
}
