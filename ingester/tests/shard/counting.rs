//! Profiles that count since a process began: what is stored of them adds up to what the processes have counted.

use std::collections::BTreeMap;

use athanor_chassis::{ByteSize, Disk};
use athanor_ingester::Tally;
use athanor_profile::upload::Upload;
use futures::future::join_all;
use proptest::prelude::*;

use crate::samples::{now, snapshot};
use crate::trio::Trio;
use crate::world::{World, simulate};

/// What a process has counted, by stack.
type Values = BTreeMap<&'static str, i64>;

fn of(time: i64, values: &Values) -> Upload {
    let rows: Vec<(&str, i64)> = values.iter().map(|(stack, value)| (*stack, *value)).collect();
    snapshot(time, &rows)
}

const STACKS: [&str; 4] = ["main;a", "main;b", "main;b;c", "main;d"];

/// The objects that a query sees at each time, and in all; bytes must go with them.
async fn objects(world: &World) -> (BTreeMap<i64, i64>, i64) {
    let (mut at, mut objects, mut bytes) = (BTreeMap::new(), 0, 0);
    for (series, time, _, stack, value) in world.rows("acme").await {
        assert!(value > 0, "{stack} counts {value}");
        if series.ends_with("alloc_objects") {
            *at.entry(time).or_default() += value;
            objects += value;
        } else if series.ends_with("alloc_space") {
            bytes += value;
        }
    }
    assert_eq!(bytes, objects * 10);
    (at, objects)
}

fn tally(world: &World) -> Tally {
    world.ingester.stats(&world.remains.clock)[0].counting
}

#[test]
fn the_first_profile_is_stored_whole_and_others_as_what_they_add() {
    simulate(async {
        let (world, time) = (World::new().await, now());
        world.push_one(&snapshot(time, &[("main;a", 5)])).await;
        world.push_one(&snapshot(time + 1, &[("main;a", 7), ("main;b", 1)])).await;
        world.push_one(&snapshot(time + 2, &[("main;a", 7), ("main;b", 1)])).await;
        assert_eq!(objects(&world).await, ([(time, 5), (time + 1, 3)].into(), 8));
        let in_use: Vec<i64> = world
            .rows("acme")
            .await
            .iter()
            .filter(|row| row.0.ends_with("inuse_objects"))
            .map(|row| row.4)
            .collect();
        assert_eq!(in_use, [1; 5], "levels stay as they are");
        let expected = Tally { first: 2, subtracted: 4, ..Tally::default() };
        assert_eq!(tally(&world), expected);
    });
}

#[test]
fn what_falls_is_of_a_process_that_began_anew() {
    simulate(async {
        let (world, time) = (World::new().await, now());
        world.push_one(&snapshot(time, &[("main;a", 5), ("main;b", 5)])).await;
        world.push_one(&snapshot(time + 1, &[("main;a", 4), ("main;b", 6)])).await;
        world.push_one(&snapshot(time + 2, &[("main;a", 9)])).await;
        world.push_one(&snapshot(time + 3, &[("main;a", 10)])).await;
        let at = [(time, 10), (time + 1, 10), (time + 2, 9), (time + 3, 1)].into();
        assert_eq!(objects(&world).await, (at, 30));
        assert_eq!(tally(&world).restarts, 4);
    });
}

#[test]
fn repeats_and_what_comes_late_count_nothing() {
    simulate(async {
        let (mut world, time) = (World::new().await, now());
        let snapshots: Vec<Upload> =
            (1..5).map(|value| snapshot(time + value, &[("main;a", value * 10)])).collect();
        for place in [0, 2, 1, 0, 2, 3, 3, 1] {
            world.push_one(&snapshots[place]).await;
        }
        let at: BTreeMap<i64, i64> = [(time + 1, 10), (time + 3, 20), (time + 4, 10)].into();
        assert_eq!(objects(&world).await, (at.clone(), 40));
        world.cut().await;
        world = world.crash(1).await;
        for again in &snapshots {
            assert_eq!(world.push("acme", vec![again.clone()]).await.remove(0).unwrap().new, 0);
        }
        assert_eq!(objects(&world).await, (at, 40));
    });
}

#[test]
fn profiles_on_their_way_are_subtracted_from_each_other() {
    simulate(async {
        let (world, time) = (World::new().await, now());
        let of = |value: i64| snapshot(time + value, &[("main;a", value)]);
        // In one request, in several that are in flight together, and each of them twice.
        world.push("acme", (1..5).map(of).collect()).await;
        let pushes = (5..40).flat_map(|value| [of(value), of(value)]);
        join_all(pushes.map(|upload| world.push("acme", vec![upload]))).await;
        assert_eq!(objects(&world).await.1, 39);
    });
}

#[test]
fn what_was_counted_outlives_cuts_and_crashes() {
    simulate(async {
        let (mut world, time) = (World::new().await, now());
        for round in 1..8i64 {
            for value in [round * 10, round * 10 + 1] {
                world.push_one(&snapshot(time + value, &[("main;a", value), ("main;b", 3)])).await;
            }
            if round % 2 == 1 {
                world.cut().await;
            }
            if round % 3 > 0 {
                world = world.crash(round as u64).await;
            }
        }
        assert_eq!(objects(&world).await.1, 71 + 3);
        assert_eq!(tally(&world).restarts, 0);
    });
}

#[test]
fn a_batch_that_was_not_stored_has_counted_nothing() {
    simulate(async {
        let mut world = World::new().await;
        world.remains.reserve = ByteSize::mib(2);
        let (world, time) = (world.crash(1).await, now());
        let of = |value: i64| snapshot(time + value, &[("main;a", value)]);
        world.push_one(&of(1)).await;
        let disk = &world.remains.log_disk;
        disk.set_capacity(Some(64 << 20));
        let used = (64 << 20) - disk.free().unwrap();
        disk.set_capacity(Some(used + (1 << 20)));
        let refused = join_all((2..6).map(|value| world.push("acme", vec![of(value)]))).await;
        assert!(refused.iter().all(|answers| answers[0].is_err()));
        disk.set_capacity(Some(64 << 20));
        for value in 2..6 {
            assert_eq!(world.push_one(&of(value)).await, 3, "two that count, and what is in use");
        }
        assert_eq!(objects(&world).await.1, 5);
    });
}

/// What happens to a process and to the shard that takes its profiles.
#[derive(Clone, Debug)]
enum Event {
    Grow(usize, i64),
    Restart,
    Send,
    /// What was sent so many profiles ago.
    Again(usize),
    /// A profile of a while ago, which comes only now.
    Late(usize),
    Cut,
    Crash(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..STACKS.len(), 1i64..50).prop_map(|(stack, value)| Event::Grow(stack, value)),
        1 => Just(Event::Restart),
        6 => Just(Event::Send),
        2 => (0usize..5).prop_map(Event::Again),
        2 => (0usize..5).prop_map(Event::Late),
        2 => Just(Event::Cut),
        1 => any::<u64>().prop_map(Event::Crash),
    ]
}

/// What is to be stored of all that was sent: the same rules, by stack, with nothing that is kept between profiles but
/// the last one.
#[derive(Default)]
struct Model {
    last: Option<(i64, Values)>,
    stored: i64,
}

impl Model {
    fn send(&mut self, time: i64, values: &Values) {
        let sum = |values: &Values| values.values().sum::<i64>();
        let before = match &self.last {
            Some((last, _)) if time <= *last => return,
            Some((_, before)) => before.clone(),
            None => Values::new(),
        };
        let fell = before.iter().any(|(stack, value)| values.get(stack).is_none_or(|now| now < value));
        self.stored += if fell { sum(values) } else { sum(values) - sum(&before) };
        if *values != before {
            self.last = Some((time, values.clone()));
        }
    }
}

async fn live(events: Vec<Event>) {
    let (mut world, begin) = (World::new().await, now());
    let (mut model, mut values, mut time) = (Model::default(), Values::new(), begin);
    let (mut sent, mut unsent): (Vec<Upload>, Vec<(i64, Values)>) = (Vec::new(), Vec::new());
    for event in events {
        match event {
            Event::Grow(stack, value) => {
                unsent.push((time, values.clone()));
                *values.entry(STACKS[stack]).or_default() += value;
                time += 1;
            }
            Event::Restart => values = [(STACKS[0], 1)].into(),
            Event::Send => {
                time += 1;
                model.send(time, &values);
                sent.push(of(time, &values));
                world.push_one(&sent[sent.len() - 1]).await;
            }
            Event::Again(back) => {
                if let Some(again) = sent.iter().rev().nth(back) {
                    world.push_one(again).await;
                }
            }
            Event::Late(back) => {
                if let Some((time, values)) = unsent.iter().rev().nth(back) {
                    model.send(*time, values);
                    world.push_one(&of(*time, values)).await;
                }
            }
            Event::Cut => world.cut().await,
            Event::Crash(seed) => world = world.crash(seed).await,
        }
        assert_eq!(objects(&world).await.1, model.stored);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_sums_are_those_of_a_plain_model(events in prop::collection::vec(event(), 1..40)) {
        simulate(live(events));
    }
}

#[test]
fn what_was_counted_outlives_its_leader() {
    simulate(async {
        let mut trio = Trio::start(31).await;
        let time = now();
        let of = |value: i64| snapshot(time + value, &[("main;a", value), ("main;b", 100)]);
        for round in 1..7i64 {
            for value in [round * 10, round * 10 + 1] {
                trio.push(&of(value)).await;
                trio.push(&of(round * 10)).await;
            }
            if round % 2 == 1 {
                trio.cut().await;
            }
            let (leader, _) = trio.leader().await;
            trio.kill(leader).await;
            assert_ne!(trio.leader().await.0, leader);
            trio.push(&of(round * 10 + 1)).await;
            // Objects, ten times as many bytes, and two objects in use in each of two profiles.
            let objects = round * 10 + 1 + 100;
            assert_eq!(trio.total().await, objects * 11 + round * 2 * 2, "round {round}");
            trio.boot(leader).await;
        }
    });
}
