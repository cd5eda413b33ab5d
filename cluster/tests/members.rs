//! Who serves a slot and who leads: spread over zones, evenly, and settled after few moves.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use athanor_chassis::{ErrorCode, ErrorCodeExt};
use athanor_cluster::NodeId;
use athanor_cluster::placement::{
    LeaderCandidate, NotEnoughNodesError, ReplicaCandidate, ShardLeaderView, better_leader, choose_members,
};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;

fn candidate(zone: u8, groups: u32) -> ReplicaCandidate {
    ReplicaCandidate { zone: if zone == 0 { String::new() } else { format!("zone-{zone}") }, groups }
}

fn candidates() -> impl Strategy<Value = BTreeMap<NodeId, ReplicaCandidate>> {
    let one = (0..5u8, 0..4u32).prop_map(|(zone, groups)| candidate(zone, groups));
    btree_map(any::<NodeId>(), one, 3..12)
}

fn zones<'a>(nodes: impl Iterator<Item = &'a ReplicaCandidate>) -> BTreeMap<&'a str, usize> {
    let mut zones = BTreeMap::new();
    nodes.for_each(|node| *zones.entry(node.zone.as_str()).or_default() += 1);
    zones
}

proptest! {
    #[test]
    fn members_lie_in_as_many_zones_as_there_are(
        candidates in candidates(), slot in any::<u32>(), epoch in any::<u32>(), rf in 1..4usize,
    ) {
        let members = choose_members(slot, epoch, rf, &candidates).unwrap();
        prop_assert_eq!(members.len(), rf);
        let chosen = zones(members.iter().map(|node| &candidates[node]));
        prop_assert_eq!(chosen.len(), rf.min(zones(candidates.values()).len()));
        // With what it is asked alone it answers alike.
        prop_assert_eq!(members, choose_members(slot, epoch, rf, &candidates).unwrap());
    }

    #[test]
    fn in_its_zone_no_member_has_more_groups_than_one_who_is_none(
        candidates in candidates(), slot in any::<u32>(), rf in 1..4usize,
    ) {
        let members = choose_members(slot, 1, rf, &candidates).unwrap();
        for member in members.iter().map(|node| &candidates[node]) {
            let others = candidates.iter().filter(|(node, other)| !members.contains(*node) && other.zone == member.zone);
            prop_assert!(others.map(|(_, other)| other.groups).all(|groups| groups >= member.groups));
        }
    }

    /// Shards that are opened one after the other lie evenly on the nodes of a zone.
    #[test]
    fn shards_lie_evenly(each in 1..4usize, shards in 1..60u32) {
        let nodes = (0..3 * each as NodeId).map(|node| (node, candidate(1 + (node % 3) as u8, 0)));
        let mut candidates: BTreeMap<NodeId, ReplicaCandidate> = nodes.collect();
        for slot in 0..shards {
            for node in choose_members(slot, 1, 3, &candidates).unwrap() {
                candidates.get_mut(&node).unwrap().groups += 1;
            }
        }
        let groups = || candidates.values().map(|candidate| candidate.groups);
        prop_assert!(groups().max().unwrap() - groups().min().unwrap() <= 1);
    }

    /// Leads settle, whatever they were, and no move makes it worse: nodes come nearer to each other, or change places and
    /// their zones come nearer.
    #[test]
    fn leads_move_towards_the_average_and_then_stay(
        shards in vec((btree_set(0..6u64, 3), 0..3usize), 1..40), draining in btree_set(0..6u64, 0..2),
        zones in vec(0..4u8, 6),
    ) {
        let mut leaders: Vec<NodeId> = shards.iter().map(|(members, at)| *members.iter().nth(*at).unwrap()).collect();
        let mut leads: BTreeMap<NodeId, LeaderCandidate> = (0..6).zip(&zones).map(|(node, zone)| (node, lead(*zone, 0))).collect();
        leaders.iter().for_each(|leader| leads.get_mut(leader).unwrap().shards += 1);
        let mut moves = 0;
        loop {
            let better = shards.iter().zip(&leaders).enumerate().find_map(|(number, ((members, _), &leader))| {
                let view = ShardLeaderView { shard: number as u32, leader, members };
                Some((number, better_leader(&view, &leads, &draining)?))
            });
            let Some((number, target)) = better else { break };
            let leader = std::mem::replace(&mut leaders[number], target);
            prop_assert!(shards[number].0.contains(&target) && target != leader && !draining.contains(&target));
            let before = (unlike(&leads, |node, _| *node), unlike(&leads, |_, lead| lead.zone.clone()));
            leads.get_mut(&leader).unwrap().shards -= 1;
            leads.get_mut(&target).unwrap().shards += 1;
            let after = (unlike(&leads, |node, _| *node), unlike(&leads, |_, lead| lead.zone.clone()));
            prop_assert!(draining.contains(&leader) || after < before, "{after:?} is no better than {before:?}");
            moves += 1;
            prop_assert!(moves <= 40 * 40, "leads do not settle");
        }
        prop_assert!(leaders.iter().all(|leader| !draining.contains(leader)));
    }

    /// However leads lie that are no more than one on a node, they come to lie in all zones alike.
    #[test]
    fn leads_lie_in_all_zones_alike(each in 1..5u64, leading in btree_set(0..12u64, 0..12)) {
        let leading: Vec<NodeId> = leading.into_iter().filter(|node| *node < 3 * each).collect();
        // Each shard has a member in each zone, and each two of these in common with others.
        let shards: Vec<BTreeSet<NodeId>> =
            leading.iter().map(|node| (0..3 * each).filter(|other| other % each == node % each || other / each != node / each).collect()).collect();
        let mut leaders = leading.clone();
        let nodes = (0..3 * each).map(|node| (node, lead(1 + (node / each) as u8, u16::from(leading.contains(&node)))));
        let mut leads: BTreeMap<NodeId, LeaderCandidate> = nodes.collect();
        for _ in 0..100 {
            for (number, members) in shards.iter().enumerate() {
                let view = ShardLeaderView { shard: number as u32, leader: leaders[number], members };
                let Some(target) = better_leader(&view, &leads, &BTreeSet::new()) else { continue };
                leads.get_mut(&leaders[number]).unwrap().shards -= 1;
                leads.get_mut(&target).unwrap().shards += 1;
                leaders[number] = target;
            }
        }
        let of_zone = |zone: u8| leads.values().filter(|other| other.zone == lead(zone, 0).zone).map(|lead| lead.shards).sum::<u16>();
        let all = [of_zone(1), of_zone(2), of_zone(3)];
        prop_assert!(all.iter().max().unwrap() - all.iter().min().unwrap() <= 1, "{all:?}");
        prop_assert!(leads.values().all(|lead| lead.shards <= 1));
    }
}

fn lead(zone: u8, shards: u16) -> LeaderCandidate {
    LeaderCandidate { zone: candidate(zone, 0).zone, shards }
}

/// How unlike groups of nodes are in what they lead: the sum of the squares.
fn unlike<K: Ord>(
    leads: &BTreeMap<NodeId, LeaderCandidate>,
    of: impl Fn(&NodeId, &LeaderCandidate) -> K,
) -> u64 {
    let mut sums: BTreeMap<K, u64> = BTreeMap::new();
    leads.iter().for_each(|(node, lead)| *sums.entry(of(node, lead)).or_default() += u64::from(lead.shards));
    sums.values().map(|sum| sum * sum).sum()
}

#[test]
fn too_few_nodes_are_told_with_numbers() {
    let candidates = BTreeMap::from([(1, candidate(1, 0)), (2, candidate(2, 0))]);
    let refused = choose_members(7, 1, 3, &candidates).unwrap_err();
    assert_eq!(
        (&refused, refused.code()),
        (&NotEnoughNodesError { slot: 7, wanted: 3, found: 2 }, ErrorCode::Unavailable)
    );
    assert_eq!(choose_members(7, 1, 2, &candidates).unwrap(), BTreeSet::from([1, 2]));
}

#[test]
fn zones_come_before_load_and_load_before_chance() {
    let busy = candidate(2, 60);
    let candidates =
        BTreeMap::from([(1, candidate(1, 0)), (2, candidate(1, 1)), (3, candidate(1, 0)), (4, busy)]);
    for slot in 0..50 {
        let members = choose_members(slot, 1, 2, &candidates).unwrap();
        assert!(members.contains(&4) && !members.contains(&2), "{members:?}");
    }
    let of_epoch = |epoch| choose_members(0, epoch, 2, &candidates).unwrap();
    assert_eq!((1..20).map(of_epoch).collect::<BTreeSet<_>>().len(), 2);
}

#[test]
fn a_lead_moves_only_where_both_sides_come_nearer_to_the_average() {
    let members = BTreeSet::from([1, 2, 3]);
    let better = |leads: [u16; 3], draining: &[NodeId]| {
        let leads = (1..).zip(leads.map(|shards| lead(0, shards))).collect();
        let view = ShardLeaderView { shard: 9, leader: 1, members: &members };
        better_leader(&view, &leads, &draining.iter().copied().collect())
    };
    assert_eq!(better([5, 3, 4], &[]), Some(2));
    assert_eq!(better([4, 3, 4], &[]), None);
    assert_eq!(better([5, 4, 4], &[]), None);
    // The leader has no more than the others, or nobody has less.
    assert_eq!((better([4, 0, 8], &[]), better([2, 2, 2], &[])), (None, None));
    // Whoever drains gives away and takes nothing.
    assert_eq!(better([1, 5, 4], &[1]), Some(3));
    assert_eq!(better([9, 1, 2], &[2]), Some(3));
    assert_eq!(better([1, 5, 4], &[1, 2, 3]), None);
}

#[test]
fn the_dead_neither_give_nor_take_leads() {
    let members = BTreeSet::from([1, 2, 3]);
    let view = ShardLeaderView { shard: 9, leader: 1, members: &members };
    let draining = BTreeSet::new();
    let better = |leads: [(NodeId, u16); 2]| {
        better_leader(&view, &leads.map(|(node, shards)| (node, lead(0, shards))).into(), &draining)
    };
    assert_eq!(better([(2, 0), (3, 9)]), None);
    assert_eq!(better([(1, 9), (3, 1)]), Some(3));
    // A node that is no member counts for nothing.
    assert_eq!(better([(1, 9), (4, 0)]), None);
}

#[test]
fn of_two_with_equally_few_the_one_in_the_zone_that_leads_less_takes_it() {
    let members = BTreeSet::from([1, 2, 3]);
    let better = |leads: [(u8, u16); 5]| {
        let leads = (1..).zip(leads.map(|(zone, shards)| lead(zone, shards))).collect();
        better_leader(&ShardLeaderView { shard: 9, leader: 1, members: &members }, &leads, &BTreeSet::new())
    };
    assert_eq!(better([(1, 5), (2, 2), (3, 2), (2, 7), (3, 1)]), Some(3));
    assert_eq!(better([(1, 5), (2, 2), (3, 2), (2, 1), (3, 7)]), Some(2));
    // Nodes have as many as they should: they change places for the sake of zones, not of one lead.
    assert_eq!(better([(1, 1), (2, 1), (3, 0), (1, 1), (3, 0)]), Some(3));
    assert_eq!(better([(1, 1), (2, 1), (3, 0), (1, 0), (3, 0)]), None);
    assert_eq!(better([(1, 1), (2, 1), (3, 0), (1, 1), (3, 1)]), None);
}
