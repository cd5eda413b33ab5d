//! Who serves a slot and who leads: spread over zones, evenly, and settled after few moves.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use athanor_chassis::{Code, Coded};
use athanor_cluster::NodeId;
use athanor_cluster::placement::{Candidate, ShardView, TooFew, better_leader, choose_members};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;

fn candidate(zone: u8, groups: u32) -> Candidate {
    Candidate { zone: if zone == 0 { String::new() } else { format!("zone-{zone}") }, groups }
}

fn candidates() -> impl Strategy<Value = BTreeMap<NodeId, Candidate>> {
    let one = (0..5u8, 0..4u32).prop_map(|(zone, groups)| candidate(zone, groups));
    btree_map(any::<NodeId>(), one, 3..12)
}

fn zones<'a>(nodes: impl Iterator<Item = &'a Candidate>) -> BTreeMap<&'a str, usize> {
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
        let mut candidates: BTreeMap<NodeId, Candidate> = nodes.collect();
        for slot in 0..shards {
            for node in choose_members(slot, 1, 3, &candidates).unwrap() {
                candidates.get_mut(&node).unwrap().groups += 1;
            }
        }
        let groups = || candidates.values().map(|candidate| candidate.groups);
        prop_assert!(groups().max().unwrap() - groups().min().unwrap() <= 1);
    }

    /// Leads settle, whatever they were, and no move makes it worse.
    #[test]
    fn leads_move_towards_the_average_and_then_stay(
        shards in vec((btree_set(0..6u64, 3), 0..3usize), 1..40), draining in btree_set(0..6u64, 0..2),
    ) {
        let mut leaders: Vec<NodeId> = shards.iter().map(|(members, at)| *members.iter().nth(*at).unwrap()).collect();
        let mut leads: BTreeMap<NodeId, u16> = (0..6).map(|node| (node, 0)).collect();
        leaders.iter().for_each(|leader| *leads.get_mut(leader).unwrap() += 1);
        let mut moves = 0;
        loop {
            let better = shards.iter().zip(&leaders).enumerate().find_map(|(number, ((members, _), &leader))| {
                let view = ShardView { shard: number as u32, leader, members };
                Some((number, better_leader(&view, &leads, &draining)?))
            });
            let Some((number, target)) = better else { break };
            let leader = std::mem::replace(&mut leaders[number], target);
            prop_assert!(shards[number].0.contains(&target) && target != leader && !draining.contains(&target));
            prop_assert!(draining.contains(&leader) || leads[&leader] >= leads[&target] + 2);
            *leads.get_mut(&leader).unwrap() -= 1;
            *leads.get_mut(&target).unwrap() += 1;
            moves += 1;
            prop_assert!(moves <= 40 * 40, "leads do not settle");
        }
        prop_assert!(leaders.iter().all(|leader| !draining.contains(leader)));
    }
}

#[test]
fn too_few_nodes_are_told_with_numbers() {
    let candidates = BTreeMap::from([(1, candidate(1, 0)), (2, candidate(2, 0))]);
    let refused = choose_members(7, 1, 3, &candidates).unwrap_err();
    assert_eq!((&refused, refused.code()), (&TooFew { slot: 7, wanted: 3, found: 2 }, Code::Unavailable));
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
        let leads = (1..).zip(leads).collect();
        let view = ShardView { shard: 9, leader: 1, members: &members };
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
    let view = ShardView { shard: 9, leader: 1, members: &members };
    let draining = BTreeSet::new();
    assert_eq!(better_leader(&view, &BTreeMap::from([(2, 0), (3, 9)]), &draining), None);
    assert_eq!(better_leader(&view, &BTreeMap::from([(1, 9), (3, 1)]), &draining), Some(3));
    // A node that is no member counts for nothing.
    assert_eq!(better_leader(&view, &BTreeMap::from([(1, 9), (4, 0)]), &draining), None);
}
