//! Profiles that count since a process began: what is stored of them adds up to what the processes have counted.

use std::collections::BTreeMap;
use std::time::Duration;

use athanor_chassis::{ByteSize, Clock, Disk, ErrorCode, TenantLimits};
use athanor_ingester::DeltaStats;
use athanor_profile::store_interface::upload::ProfileUpload;
use futures::future::{join, join_all};
use proptest::prelude::*;

use crate::samples::{contended, now, profile, snapshot, upload};
use crate::trio::Trio;
use crate::world::{World, simulate};

/// What a process has counted, by stack.
type Values = BTreeMap<&'static str, i64>;

fn of(time: i64, values: &Values) -> ProfileUpload {
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

fn tally(world: &World) -> DeltaStats {
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
        let expected = DeltaStats { first: 2, subtracted: 4, ..DeltaStats::default() };
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
fn a_process_that_began_anew_and_has_counted_nothing_yet_is_seen() {
    simulate(async {
        let (mut world, time) = (World::new().await, now());
        world.push_one(&snapshot(time, &[("main;a", 5)])).await;
        // A head of its own.
        world.cut().await;
        assert_eq!(world.push_one(&snapshot(time + 1, &[])).await, 2);
        for crash in 1..3 {
            // By what the log says of the batch, then by what it says at a cut.
            world = world.crash(crash).await;
            world.cut().await;
        }
        assert_eq!(world.push_one(&snapshot(time + 2, &[])).await, 0, "there is nothing to be forgotten");
        world.push_one(&snapshot(time + 3, &[("main;a", 7)])).await;
        assert_eq!(objects(&world).await, ([(time, 5), (time + 3, 7)].into(), 12));
        let profiles = world.rows("acme").await.iter().filter(|row| row.1 == time + 1).count();
        assert_eq!(profiles, 0);
    });
}

#[test]
fn what_falls_under_one_set_of_labels_tells_of_all() {
    simulate(async {
        let (world, time) = (World::new().await, now());
        world.push_one(&contended(time, &[("x", 5), ("y", 5)])).await;
        world.push_one(&contended(time + 1, &[("x", 2), ("y", 7)])).await;
        assert_eq!((world.total().await, tally(&world).restarts), ((10 + 9) * 2, 4));
    });
}

#[test]
fn what_is_of_a_process_before_and_late_is_told() {
    simulate(async {
        let (world, time) = (World::new().await, now());
        for (at, value) in [(1, 5), (4, 2), (3, 9), (2, 1)] {
            world.push_one(&snapshot(time + at, &[("main;a", value)])).await;
        }
        assert_eq!(objects(&world).await.1, 7);
        assert_eq!((tally(&world).late_over_restart, tally(&world).late), (2, 2));
    });
}

#[test]
fn who_sends_the_same_for_long_is_not_forgotten() {
    simulate(async {
        let (world, time) = (World::new().await, now());
        world.push_one(&snapshot(time, &[("main;a", 5)])).await;
        for half_hour in 1..6 {
            world.remains.clock.sleep(Duration::from_secs(1800)).await;
            assert_eq!(
                world.push_one(&snapshot(now() + half_hour, &[("main;a", 5)])).await,
                1,
                "what is in use"
            );
            world.cut().await;
        }
        assert_eq!((objects(&world).await.1, tally(&world).forgotten), (5, 0));
        // Ids are remembered for as long as profiles may be late, which is longer than what is idle.
        world.remains.clock.sleep(Duration::from_secs(80 * 60)).await;
        world.cut().await;
        assert_eq!(tally(&world).forgotten, 0);
        world.remains.clock.sleep(Duration::from_secs(10 * 60)).await;
        world.push_one(&upload(&profile(now(), &[("main", 1)]))).await;
        world.cut().await;
        assert_eq!(tally(&world).forgotten, 2);
    });
}

#[test]
fn who_counts_beyond_the_bound_is_refused_and_others_go_on() {
    simulate(async {
        let limits = TenantLimits { max_local_series_per_tenant: Some(60), ..TenantLimits::default() };
        let mut world = World::with(limits, Clock::system()).await;
        world.remains.counters = ByteSize::bytes(4000);
        let (world, time) = (world.crash(1).await, now());
        let of = |place: i64, name: &str, value| {
            let mut upload = snapshot(time + place, &[("main;a", value)]);
            upload.sent.set("pod", name);
            upload.labels.set("pod", name);
            upload
        };
        let mut value = 0;
        for place in 0..100 {
            let refused = world.push("acme", vec![of(place, &place.to_string(), 3)]).await.remove(0);
            match refused {
                Ok(_) => value += 3,
                Err(status) => {
                    assert_eq!(
                        (status.code, status.metric_reason()),
                        (ErrorCode::Exhausted, "delta_state_limit")
                    );
                    assert!(
                        status.message.contains("ingester.delta.max_state_bytes_per_shard")
                            && status.message.contains("__delta__")
                    );
                }
            }
        }
        assert!((9..40).contains(&value), "{value}");
        assert_eq!(world.push_one(&of(200, "0", 5)).await, 3, "who is known goes on");
        assert_eq!(objects(&world).await.1, value + 2);
        assert_eq!(tally(&world).forgotten, 0);
        assert_eq!(
            world.push_one(&upload(&profile(time, &[("main", 1)]))).await,
            1,
            "who was refused has no series"
        );
        let other = world.push("other", vec![of(0, "0", 3)]).await.remove(0);
        assert_eq!(other.unwrap().new, 3, "others have their share");
    });
}

#[test]
fn repeats_and_what_comes_late_count_nothing() {
    simulate(async {
        let (mut world, time) = (World::new().await, now());
        let snapshots: Vec<ProfileUpload> =
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

/// Where a profile says no time, what the client calls it tells that it came before, whenever it comes.
#[test]
fn a_repeat_that_meets_what_it_repeats_on_the_way_counts_nothing() {
    simulate(async {
        let (world, time) = (World::new().await, now());
        // However far the first ones have come.
        for turns in 0..30 {
            let push = |at: i64, id: &str, value: i64| {
                let mut upload = snapshot(0, &[("main;a", value)]);
                upload.sent.set("pod", &turns.to_string());
                let client_id = Some(format!("{id}-{turns}"));
                world.push("acme", vec![ProfileUpload { client_id, received_nanos: time + at, ..upload }])
            };
            let others = async {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
                join_all([push(3, "one", 5), push(4, "three", 12)]).await
            };
            let (first, others) = join(join_all([push(1, "one", 5), push(2, "two", 9)]), others).await;
            first.iter().chain(&others).for_each(|answers| assert!(answers[0].is_ok(), "{answers:?}"));
        }
        assert_eq!((objects(&world).await.1, tally(&world).restarts), (30 * 12, 0));
    });
}

#[test]
fn a_clock_that_was_far_ahead_silences_nobody() {
    simulate(async {
        let limits = TenantLimits { reject_newer_than: Duration::ZERO, ..TenantLimits::default() };
        let (world, time) = (World::with(limits, Clock::system()).await, now());
        let year = 365 * 86_400 * 1_000_000_000;
        let of = |at: i64, value: i64| ProfileUpload {
            received_nanos: time + at % year,
            ..snapshot(time + at, &[("main;a", value)])
        };
        for (at, value) in [(0, 4), (year, 5), (1, 7), (2, 9), (year + 3, 10), (4, 2), (5, 3), (4, 1)] {
            world.push_one(&of(at, value)).await;
        }
        let at = [(time, 4), (time + year, 1), (time + 1, 2), (time + 2, 2), (time + year + 3, 1)];
        let restarted = [(time + 4, 2), (time + 5, 1)];
        assert_eq!(objects(&world).await, (at.into_iter().chain(restarted).collect(), 13));
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
        let used = (64 << 20) - disk.free_bytes().unwrap();
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

#[test]
fn what_adds_nothing_to_a_batch_that_fails_is_refused_with_it() {
    simulate(async {
        let mut world = World::new().await;
        world.remains.reserve = ByteSize::mib(2);
        let (world, time) = (world.crash(1).await, now());
        let disk = &world.remains.log_disk;
        disk.set_capacity(Some(64 << 20));
        let used = (64 << 20) - disk.free_bytes().unwrap();
        disk.set_capacity(Some(used + (1 << 20)));
        // However far the first one has come when the others are prepared.
        for turns in 0..40 {
            let push = |at: i64, value: i64| world.push("acme", vec![contended(time + at, &[("x", value)])]);
            let others = async {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
                join_all([push(2, 5), push(3, 5), push(1, 4)]).await
            };
            let (first, others) = join(push(2, 5), others).await;
            let answers = others.iter().chain([&first]).map(|answers| &answers[0]);
            answers.for_each(|answer| assert!(answer.is_err(), "{turns}: {answer:?}"));
        }
    });
}

/// What happens to a process and to the shard that takes its profiles.
#[derive(Clone, Debug)]
enum Event {
    Grow(usize, i64),
    /// It has counted one of so many stacks, or nothing.
    Restart(usize),
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
        1 => (0usize..2).prop_map(Event::Restart),
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
    let (mut sent, mut unsent): (Vec<ProfileUpload>, Vec<(i64, Values)>) = (Vec::new(), Vec::new());
    for event in events {
        match event {
            Event::Grow(stack, value) => {
                unsent.push((time, values.clone()));
                *values.entry(STACKS[stack]).or_default() += value;
                time += 1;
            }
            Event::Restart(counts) => {
                values = STACKS.into_iter().take(counts).map(|stack| (stack, 1)).collect();
            }
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
