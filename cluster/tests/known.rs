//! Placement is a contract between nodes of different versions, and with repeats of what earlier versions stored. Where
//! one of these answers changes, profiles are counted twice: mend the function, not the answer.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use athanor_chassis::TenantId;
use athanor_cluster::NodeId;
use athanor_cluster::placement::{
    LeaderCandidate, ReplicaCandidate, ShardLeaderView, SlotTable, SlotTableSpec, better_leader,
    choose_members, series_slot, service_slots,
};
use athanor_profile::Labels;

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

/// A hundred slots with gaps, seven for a tenant, three for one service.
fn table() -> SlotTable {
    let services = BTreeMap::from([(tenant("acme"), BTreeMap::from([("checkout".to_owned(), 3)]))]);
    let tenants = BTreeMap::from([(tenant("other"), 9)]);
    let slots = (0..100).map(|number| number * 3 + 1).collect();
    SlotTableSpec { version: 1, from: i64::MIN, slots, subset: 7, tenants, services }.try_into().unwrap()
}

fn sent(service: &str, pod: &str) -> Labels {
    let pairs = [("service_name", service), ("__name__", "process_cpu"), ("pod", pod)];
    Labels::new(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())))
}

#[test]
fn the_slots_of_services_are_known() {
    let table = table();
    let slots = |name: &str, service: &str| service_slots(&table, &tenant(name), service);
    assert_eq!(slots("acme", "checkout"), [145, 175, 226]);
    let of_one =
        [("acme", "cart"), ("acme", ""), ("other", "checkout"), ("other", "größe"), ("anonymous", "cart")];
    assert_eq!(of_one.map(|(name, service)| slots(name, service)[0]), [217, 31, 52, 208, 34]);
}

#[test]
fn the_slots_of_series_are_known() {
    let table = table();
    let of = |pod: &str| series_slot(&table, &tenant("acme"), "checkout", &sent("checkout", pod));
    assert_eq!(["a", "b", "c", "d", "e", "f", "g", ""].map(of), [226, 145, 175, 226, 145, 145, 145, 226]);
    let four = SlotTable::with_all_slots(1, i64::MIN, (0..4).collect()).unwrap();
    let of = |service: &str| series_slot(&four, &TenantId::anonymous(), service, &sent(service, "a"));
    assert_eq!(["a", "b", "c", "d", "e", "f", "g", ""].map(of), [1, 3, 0, 1, 3, 0, 2, 0]);
}

#[test]
fn the_members_of_shards_are_known() {
    let candidate = |node: NodeId| {
        (node * 0x1234_5678_9abc, ReplicaCandidate { zone: format!("{}", node % 4), groups: 5 })
    };
    let candidates = (1..=12).map(candidate).collect();
    let members = |(slot, epoch)| -> Vec<NodeId> {
        let chosen = choose_members(slot, epoch, 3, &candidates).unwrap();
        chosen.into_iter().map(|node| node / 0x1234_5678_9abc).collect()
    };
    assert_eq!(
        [(0, 1), (1, 1), (0, 2), (4000, 77)].map(members),
        [[6, 8, 9], [1, 8, 11], [1, 4, 10], [6, 7, 12]].map(Vec::from)
    );
    let all = (1..=5).collect();
    let lead = |(node, shards)| (node, LeaderCandidate { shards, ..LeaderCandidate::default() });
    let leads = BTreeMap::from([(1, 9), (2, 1), (3, 1), (4, 1), (5, 1)].map(lead));
    let leader = |shard| {
        better_leader(&ShardLeaderView { shard, leader: 1, members: &all }, &leads, &Default::default())
    };
    assert_eq!([1, 2, 3, 65_537].map(leader), [5, 3, 3, 2].map(Some));
}
