//! Where profiles go: evenly, always alike, and with few moves when there are more slots.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use athanor_chassis::TenantId;
use athanor_cluster::placement::{
    MAX_EXCEPTIONS, MAX_SLOTS, MAX_TABLES, SlotTable, SlotTableError, SlotTableSpec, SlotTables,
    SlotTablesError, nodes_of_block, series_slot, service_slots,
};
use athanor_profile::Labels;
use proptest::collection::btree_set;
use proptest::prelude::*;

const KEYS: usize = 2000;

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

fn labels(service: &str, pod: usize) -> Labels {
    let pairs = [("service_name", service.to_owned()), ("pod", format!("pod-{pod}"))];
    Labels::new(pairs.map(|(name, value)| (name.to_owned(), value)))
}

fn draft(slots: impl IntoIterator<Item = u32>, subset: u16) -> SlotTableSpec {
    let (tenants, services) = (BTreeMap::new(), BTreeMap::new());
    let slots = slots.into_iter().collect();
    SlotTableSpec { version: 1, from: i64::MIN, slots, subset, tenants, services }
}

fn with_service(draft: SlotTableSpec, name: &str, service: &str, slots: u16) -> SlotTable {
    let services = BTreeMap::from([(tenant(name), BTreeMap::from([(service.to_owned(), slots)]))]);
    SlotTableSpec { services, ..draft }.try_into().unwrap()
}

/// Where each of many series goes: of one service each, or all of the service that has several slots.
fn places(table: &SlotTable, tenant: &TenantId, service: Option<&str>) -> Vec<u32> {
    let each = (0..KEYS).map(|number| {
        let named = format!("service-{number}");
        let service = service.unwrap_or(&named);
        series_slot(table, tenant, service, &labels(service, number))
    });
    each.collect()
}

/// How uneven: the sum over slots of (count - expected)² / expected.
fn chi_square(places: &[u32], slots: &[u32]) -> f64 {
    let expected = places.len() as f64 / slots.len() as f64;
    let count = |slot: &u32| places.iter().filter(|place| *place == slot).count() as f64;
    slots.iter().map(|slot| (count(slot) - expected).powi(2) / expected).sum()
}

/// Its mean is the number of slots less one and its variance twice that: six deviations are never seen by chance.
fn bound(slots: usize) -> f64 {
    let freedom = slots.saturating_sub(1) as f64;
    freedom + 6.0 * (2.0 * freedom).sqrt() + 6.0
}

/// How many of so many may move where each does with this chance.
fn seldom(count: usize, chance: f64) -> usize {
    let mean = count as f64 * chance;
    (mean + 6.0 * mean.sqrt() + 6.0) as usize
}

fn moved<'a>(before: &'a [u32], after: &'a [u32]) -> impl Iterator<Item = (u32, u32)> + 'a {
    before.iter().copied().zip(after.iter().copied()).filter(|(before, after)| before != after)
}

fn slots(most: usize) -> impl Strategy<Value = Vec<u32>> {
    btree_set(0..4096u32, 1..most).prop_map(|slots| slots.into_iter().collect())
}

/// Slots and one that is not among them.
fn growing() -> impl Strategy<Value = (Vec<u32>, u32)> {
    (btree_set(0..4096u32, 2..40), any::<prop::sample::Index>()).prop_map(|(mut slots, index)| {
        let new = *slots.iter().nth(index.index(slots.len())).unwrap();
        slots.remove(&new);
        (slots.into_iter().collect(), new)
    })
}

fn joined(slots: &[u32], new: u32) -> BTreeSet<u32> {
    slots.iter().copied().chain([new]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn services_lie_evenly_on_all_slots(slots in slots(64), name in "[a-z]{1,12}") {
        let table = SlotTable::with_all_slots(1, i64::MIN, slots.clone()).unwrap();
        let places = places(&table, &tenant(&name), None);
        prop_assert!(chi_square(&places, &slots) < bound(slots.len()));
    }

    #[test]
    fn a_service_of_several_slots_lies_evenly_on_them(
        slots in slots(64), name in "[a-z]{1,12}", count in 1..20u16,
    ) {
        let table = with_service(draft(slots, 32), &name, "large", count);
        let chosen = service_slots(&table, &tenant(&name), "large");
        prop_assert_eq!(chosen.len(), table.slots().len().min(32).min(count.into()));
        prop_assert!(chi_square(&places(&table, &tenant(&name), Some("large")), &chosen) < bound(chosen.len()));
    }

    #[test]
    fn tenants_of_one_slot_lie_evenly(slots in slots(64), name in "[a-z]{1,12}") {
        let table: SlotTable = draft(slots.clone(), 1).try_into().unwrap();
        let of = |number| series_slot(&table, &tenant(&format!("{name}-{number}")), "a", &labels("a", 0));
        let places: Vec<u32> = (0..KEYS).map(of).collect();
        prop_assert!(chi_square(&places, &slots) < bound(slots.len()));
    }

    /// Each stage chooses among what the one before it left, and takes as many as it is to.
    #[test]
    fn a_series_lies_in_its_service_and_this_in_its_tenant(
        slots in slots(200), subset in 1..20u16, count in 1..30u16, pod in 0..1000usize,
    ) {
        let acme = tenant("acme");
        let whole = with_service(draft(slots.clone(), subset), "acme", "large", u16::MAX);
        let table = with_service(draft(slots.clone(), subset), "acme", "large", count);
        let of_tenant: BTreeSet<u32> = service_slots(&whole, &acme, "large").into_iter().collect();
        let of_service: BTreeSet<u32> = service_slots(&table, &acme, "large").into_iter().collect();
        prop_assert_eq!(of_tenant.len(), slots.len().min(subset.into()));
        prop_assert_eq!(of_service.len(), of_tenant.len().min(count.into()));
        prop_assert!(of_service.is_subset(&of_tenant));
        prop_assert!(of_service.contains(&series_slot(&table, &acme, "large", &labels("large", pod))));
        // One slot unless the table says otherwise, whatever the labels.
        let small = service_slots(&table, &acme, "small");
        prop_assert_eq!(&[series_slot(&table, &acme, "small", &labels("small", pod))], &small[..]);
        prop_assert!(of_tenant.contains(&small[0]));
    }

    #[test]
    fn a_new_slot_takes_its_part_and_nothing_else_moves((slots, new) in growing(), large in any::<bool>()) {
        let acme = tenant("acme");
        let service = large.then_some("large");
        let table = |slots| with_service(draft(slots, u16::MAX), "acme", "large", u16::MAX);
        let after = table(joined(&slots, new).into_iter().collect());
        let (before, after) = (places(&table(slots.clone()), &acme, service), places(&after, &acme, service));
        prop_assert!(moved(&before, &after).all(|(_, to)| to == new));
        prop_assert!(moved(&before, &after).count() <= seldom(KEYS, 1.0 / (slots.len() as f64 + 1.0)));
    }

    #[test]
    fn a_service_that_gets_a_slot_keeps_the_others(slots in slots(40), count in 1..20u16) {
        let acme = tenant("acme");
        let table = |count| with_service(draft(slots.clone(), 32), "acme", "large", count);
        let chosen = |count| service_slots(&table(count), &acme, "large").into_iter().collect::<BTreeSet<u32>>();
        let new: BTreeSet<u32> = chosen(count + 1).difference(&chosen(count)).copied().collect();
        prop_assert!(chosen(count).is_subset(&chosen(count + 1)) && new.len() <= 1);
        let (before, after) =
            (places(&table(count), &acme, Some("large")), places(&table(count + 1), &acme, Some("large")));
        prop_assert!(moved(&before, &after).all(|(_, to)| new.contains(&to)));
        prop_assert!(moved(&before, &after).count() <= seldom(KEYS, 1.0 / (f64::from(count) + 1.0)));
    }

    #[test]
    fn a_tenant_of_few_slots_gives_up_one_for_a_new_one_at_most((slots, new) in growing(), subset in 1..8u16) {
        let acme = tenant("acme");
        let table = |slots: Vec<u32>| with_service(draft(slots, subset), "acme", "large", u16::MAX);
        let after = table(joined(&slots, new).into_iter().collect());
        let before = table(slots);
        let of = |table| service_slots(table, &acme, "large").into_iter().collect::<BTreeSet<u32>>();
        let given: BTreeSet<u32> = of(&before).difference(&of(&after)).copied().collect();
        let taken: BTreeSet<u32> = of(&after).difference(&of(&before)).copied().collect();
        prop_assert!(given.len() <= 1 && taken.iter().all(|slot| *slot == new));
        let (before, after) = (places(&before, &acme, None), places(&after, &acme, None));
        prop_assert!(moved(&before, &after).all(|(from, to)| to == new || given.contains(&from)));
    }

    #[test]
    fn labels_are_alike_in_any_order(
        pairs in btree_set("[a-z]{1,6}", 1..6), slots in slots(50), reversed in any::<bool>(),
    ) {
        let mut given: Vec<(String, String)> = pairs.iter().map(|name| (name.clone(), format!("{name}!"))).collect();
        let table = with_service(draft(slots, 20), "acme", "large", 10);
        let of = |given: &[(String, String)]| series_slot(&table, &tenant("acme"), "large", &Labels::new(given.to_vec()));
        let one = of(&given);
        if reversed { given.reverse() } else { given.rotate_left(1) }
        prop_assert_eq!(one, of(&given));
    }

    #[test]
    fn tables_hold_from_their_time_on(
        times in btree_set(any::<i64>(), 1..10), probes in proptest::collection::vec(any::<i64>(), 8),
    ) {
        let times: Vec<i64> = times.into_iter().collect();
        let tables = tables_from(&times);
        let edges = times.iter().flat_map(|time| [time.saturating_sub(1), *time]);
        let probes: Vec<i64> = probes.into_iter().chain(edges).collect();
        let naive = |time| times.iter().rev().find(|from| **from <= time).unwrap_or(&times[0]);
        for &time in &probes {
            prop_assert_eq!(tables.table_at(time).from(), *naive(time));
        }
        for pair in probes.windows(2) {
            let (oldest, newest) = (pair[0].min(pair[1]), pair[0].max(pair[1]));
            let between = times.iter().filter(|from| (naive(oldest)..=naive(newest)).contains(from));
            let seen = tables.tables_between(oldest, newest).iter().map(|table| table.from());
            prop_assert_eq!(seen.collect::<Vec<i64>>(), between.copied().collect::<Vec<i64>>());
        }
    }

    /// Whoever looks for the time and whoever need not say the same.
    #[test]
    fn a_route_says_what_the_table_of_the_time_says(
        times in btree_set(-50..50i64, 1..5), oldest in -60..60i64, span in 0..40i64, at in 0..40i64, pod in 0..50usize,
    ) {
        let times: Vec<i64> = times.into_iter().collect();
        let (tables, acme) = (tables_from(&times), tenant("acme"));
        let route = tables.route(&acme, oldest, oldest + span);
        let (sent, time) = (labels("large", pod), oldest + at.min(span));
        let expected = series_slot(tables.table_at(time), &acme, "large", &sent);
        prop_assert_eq!(route.slot_at("large", &sent, time), expected);
        match route.slot("large", &sent) {
            Some(slot) => prop_assert_eq!(slot, expected),
            None => prop_assert!(tables.tables_between(oldest, oldest + span).len() > 1),
        }
    }
}

/// Tables that hold from these times on, each with a slot more than the one before it.
fn tables_from(times: &[i64]) -> SlotTables {
    let table = |(number, &from): (usize, &i64)| {
        let version = number as u64 + 1;
        with_service(
            SlotTableSpec { version, from, ..draft(0..number as u32 + 2, 100) },
            "acme",
            "large",
            100,
        )
    };
    times.iter().enumerate().map(table).collect::<Vec<SlotTable>>().try_into().unwrap()
}

#[test]
fn a_tenant_may_have_slots_of_its_own_number() {
    let tenants = BTreeMap::from([(tenant("large"), 5)]);
    let table = with_service(SlotTableSpec { tenants, ..draft(0..20, 2) }, "large", "a", 100);
    assert_eq!(service_slots(&table, &tenant("large"), "a").len(), 5);
    let reached: BTreeSet<u32> = places(&table, &tenant("small"), None).into_iter().collect();
    assert_eq!(reached.len(), 2);
}

#[test]
fn what_comes_over_the_wire_is_what_was_sent() {
    let tenants = BTreeMap::from([(tenant("large"), 5)]);
    let table = with_service(SlotTableSpec { tenants, ..draft([1, 5, 9], 2) }, "acme", "shop", 3);
    let later = SlotTable::with_all_slots(7, 1_000, vec![4]).unwrap();
    let tables = SlotTables::try_from(vec![table, later]).unwrap();
    let text = serde_json::to_string(&tables).unwrap();
    assert_eq!(
        text,
        r#"[{"version":1,"from":-9223372036854775808,"slots":[1,5,9],"subset":2,"tenants":{"large":5},"services":{"acme":{"shop":3}}},{"version":7,"from":1000,"slots":[4],"subset":65535,"tenants":{},"services":{}}]"#
    );
    assert_eq!(serde_json::from_str::<SlotTables>(&text).unwrap(), tables);
}

#[test]
fn tables_that_nobody_could_place_by_are_refused() {
    let check = |draft: SlotTableSpec| SlotTable::try_from(draft).unwrap_err();
    let acme = || tenant("acme");
    assert_eq!(check(draft([], 1)), SlotTableError::Empty { version: 1 });
    let most = MAX_SLOTS;
    assert!(SlotTable::try_from(draft(0..most, 1)).is_ok());
    assert_eq!(check(draft(0..most + 1, 1)), SlotTableError::TooManySlots { version: 1, seen: 4097 });
    assert_eq!(check(draft([1, 3, 2], 1)), SlotTableError::Order { version: 1, slot: 2, before: 3 });
    assert_eq!(check(draft([4, 4], 1)), SlotTableError::Order { version: 1, slot: 4, before: 4 });
    let zero = |whom: &str| SlotTableError::Zero { version: 1, whom: whom.to_owned() };
    assert_eq!(check(draft([1], 0)), zero("tenants"));
    let tenants = BTreeMap::from([(acme(), 0)]);
    assert_eq!(check(SlotTableSpec { tenants, ..draft([1], 1) }), zero("tenant acme"));
    let services = BTreeMap::from([(acme(), BTreeMap::from([("shop".to_owned(), 0)]))]);
    assert_eq!(check(SlotTableSpec { services, ..draft([1], 1) }), zero("service \"shop\" of tenant acme"));
    let many = (0..=MAX_EXCEPTIONS).map(|number| (number.to_string(), 2)).collect();
    let services = BTreeMap::from([(acme(), many)]);
    let refused = check(SlotTableSpec { services, ..draft([1], 1) });
    assert_eq!(refused, SlotTableError::TooManyExceptions { version: 1, seen: MAX_EXCEPTIONS + 1 });
}

#[test]
fn tables_that_do_not_follow_each_other_are_refused() {
    let table = |version, from| SlotTable::with_all_slots(version, from, vec![1]).unwrap();
    let check = |tables: Vec<SlotTable>| SlotTables::try_from(tables).unwrap_err();
    assert_eq!(check(vec![]), SlotTablesError::Empty);
    let many = |count: usize| (0..count).map(|number| table(number as u64, number as i64)).collect();
    assert!(SlotTables::try_from(many(MAX_TABLES)).is_ok());
    assert_eq!(check(many(MAX_TABLES + 1)), SlotTablesError::TooMany { seen: 65 });
    let order =
        |version, from, before, before_from| SlotTablesError::Order { version, from, before, before_from };
    assert_eq!(check(vec![table(1, 5), table(1, 6)]), order(1, 6, 1, 5));
    assert_eq!(check(vec![table(1, 5), table(2, 5)]), order(2, 5, 1, 5));
}

#[test]
fn decoding_checks_as_making_does() {
    let text =
        |slots: &str, more: &str| format!(r#"[{{"version":1,"from":0,"slots":{slots},"subset":1{more}}}]"#);
    assert!(serde_json::from_str::<SlotTables>(&text("[1,2]", "")).is_ok());
    for (text, why) in [
        ("[]".to_owned(), "no slot table"),
        (text("[]", ""), "has no slots"),
        (text("[2,1]", ""), "slots must ascend"),
        (text("[1]", r#","tenants":{"a/b":1}"#), "tenant name has '/'"),
        // What a later version adds may move profiles.
        (text("[1]", r#","weights":{}"#), "unknown field `weights`"),
    ] {
        let refused = serde_json::from_str::<SlotTables>(&text).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}

/// Blocks lie evenly, and who comes or goes moves no others than those that it takes or had.
#[test]
fn blocks_belong_to_nodes_evenly_and_move_seldom() {
    let blocks: Vec<u128> = (0..KEYS as u128).map(|number| (number << 64) | (number * 7919)).collect();
    for count in 1..12u64 {
        let of = |nodes: u64| -> Vec<Vec<u64>> {
            blocks.iter().map(|&block| nodes_of_block(block, (1..=nodes).map(|node| node << 32))).collect()
        };
        let (before, after) = (of(count), of(count + 1));
        let first: Vec<u32> = before.iter().map(|nodes| (nodes[0] >> 32) as u32).collect();
        let nodes: Vec<u32> = (1..=count as u32).collect();
        assert!(chi_square(&first, &nodes) < bound(nodes.len()), "{count}");
        let joined = (count + 1) << 32;
        for (before, after) in before.iter().zip(&after) {
            let rest: Vec<u64> = after.iter().copied().filter(|node| *node != joined).collect();
            assert_eq!(&rest, before, "the others stay in their order");
        }
        let moved = after.iter().filter(|nodes| nodes[0] == joined).count();
        assert!(moved > 0 && moved <= seldom(KEYS, 1.0 / (count + 1) as f64), "{moved} of {KEYS} at {count}");
    }
}
