//! What is a repeat of what, and for how long that is known.

use std::time::Duration;

use athanor_catalog::{Catalog, DataLoss};
use athanor_chassis::disk::MemoryDisk;
use athanor_chassis::{Clock, Disk, ErrorCode, Status, TenantLimits, Timestamp};
use athanor_ingester::StoredUpload;
use athanor_profile::store_interface::upload::ProfileUpload;
use athanor_profile::{Labels, ValueType};

use crate::samples::{labelled, now, profile, simple, upload};
use crate::world::{World, simulate, tenant};

#[test]
fn what_is_pushed_is_seen_and_a_repeat_is_not() {
    simulate(async {
        let world = World::new().await;
        let time = now();
        let (first, second) = (simple(time, 10), simple(time + 1, 10));
        assert_eq!(world.push_one(&first).await, 1);
        assert_eq!(world.total().await, 11);
        let end = world.log.group_state(1).end;
        assert_eq!(world.push_one(&first).await, 0, "a repeat");
        let stored = world.push("acme", vec![first.clone()]).await.remove(0).unwrap();
        assert_eq!((stored.new, stored.repeats), (0, 1));
        assert_eq!(
            (world.total().await, world.log.group_state(1).end),
            (11, end),
            "the log does not hear of repeats"
        );
        assert_eq!(world.push_one(&second).await, 1, "another time is another profile");
        let rows = world.rows("acme").await;
        let seen: Vec<(i64, &str, i64)> = rows.iter().map(|row| (row.1, row.3.as_str(), row.4)).collect();
        let each = |time| [(time, "main", 1), (time, "main;work", 10)];
        assert_eq!(seen, [each(time), each(time + 1)].concat());
    });
}

#[test]
fn a_repeat_is_known_across_cuts_and_crashes() {
    simulate(async {
        let mut world = World::new().await;
        let (first, second) = (simple(now(), 10), simple(now(), 20));
        assert_eq!(world.push_one(&first).await, 1);
        world.cut().await;
        assert_eq!(world.push_one(&first).await, 0, "after a cut");
        world = world.crash(1).await;
        assert_eq!(world.push_one(&first).await, 0, "after a cut and a crash");
        assert_eq!(world.push_one(&second).await, 1);
        world = world.crash(2).await;
        assert_eq!((world.push_one(&second).await, world.push_one(&first).await), (0, 0));
        assert_eq!(world.total().await, 32);
        world.cut().await;
        world = world.crash(3).await;
        assert_eq!((world.push_one(&second).await, world.push_one(&first).await), (0, 0));
        assert_eq!(world.total().await, 32);
    });
}

#[test]
fn equal_profiles_of_one_request_count_each() {
    simulate(async {
        let mut world = World::new().await;
        let equal = simple(now(), 10);
        let new = |answers: Vec<Result<StoredUpload, Status>>| -> Vec<u32> {
            answers.into_iter().map(|answer| answer.unwrap().new).collect()
        };
        assert_eq!(new(world.push("acme", vec![equal.clone(); 3]).await), [1, 1, 1]);
        assert_eq!(new(world.push("acme", vec![equal.clone(); 3]).await), [0, 0, 0]);
        world.cut().await;
        world = world.crash(4).await;
        assert_eq!(new(world.push("acme", vec![equal.clone(); 4]).await), [0, 0, 0, 1]);
        assert_eq!(world.total().await, 44);
    });
}

#[test]
fn equal_sample_types_of_one_profile_count_each() {
    simulate(async {
        let mut world = World::new().await;
        let mut twice = profile(now(), &[]);
        twice.header.types = vec![ValueType::new("samples", "count"); 2];
        let stack = twice.dictionary.intern_named_stack(["main"].into_iter());
        twice.samples.push(stack, 0, &[10, 200]);
        let twice = upload(&twice);
        let new = |answers: Vec<Result<StoredUpload, Status>>| -> Vec<u32> {
            answers.into_iter().map(|answer| answer.unwrap().new).collect()
        };
        assert_eq!(new(world.push("acme", vec![twice.clone()]).await), [2]);
        assert_eq!(world.total().await, 210);
        assert_eq!(new(world.push("acme", vec![twice.clone(); 2]).await), [0, 2]);
        for crash in 0..2 {
            assert_eq!(new(world.push("acme", vec![twice.clone(); 2]).await), [0, 0]);
            assert_eq!(world.total().await, 420);
            world.cut().await;
            world = world.crash(crash).await;
        }
    });
}

#[test]
fn what_has_neither_id_nor_time_counts_each_time() {
    simulate(async {
        let world = World::new().await;
        let nameless = simple(0, 10);
        for _ in 0..5 {
            assert_eq!(world.push_one(&nameless).await, 1);
        }
        assert_eq!(world.total().await, 55);
        // It is the same one: whoever took it sends it to the next leader, since this one did not answer.
        let received_nanos = now() - 5;
        let again = ProfileUpload { drawn: 9, received_nanos, ..nameless.clone() };
        assert_eq!((world.push_one(&again).await, world.push_one(&again).await), (1, 0));
        assert!(world.rows("acme").await.iter().any(|row| row.1 == received_nanos));
        let named = ProfileUpload { client_id: Some("7a".to_owned()), ..nameless.clone() };
        assert_eq!((world.push_one(&named).await, world.push_one(&named).await), (1, 0));
        let timed = ProfileUpload { time_nanos: now(), ..nameless };
        assert_eq!((world.push_one(&timed).await, world.push_one(&timed).await), (1, 0));
    });
}

#[test]
fn what_has_neither_id_nor_time_counts_though_no_time_passes() {
    simulate(async {
        let (clock, _still) = Clock::manual(Timestamp::from_nanos(now()));
        let world = World::with(TenantLimits::default(), clock).await;
        let pushes = (0..20).map(|_| world.push("acme", vec![simple(0, 10); 2]));
        let answers = futures::future::join_all(pushes).await;
        let new: u32 = answers.into_iter().flatten().map(|answer| answer.unwrap().new).sum();
        assert_eq!((new, world.total().await), (40, 440));
    });
}

#[test]
fn a_shard_that_remembers_enough_takes_repeats_and_waits_until_the_oldest_are_forgotten() {
    simulate(async {
        let mut world = World::new().await;
        world.remains.ids = 5;
        world = world.crash(1).await;
        let uploads: Vec<ProfileUpload> = (0..5).map(|number| simple(now() + number, 10)).collect();
        for upload in &uploads {
            assert_eq!(world.push_one(upload).await, 1);
        }
        for crash in 2..4 {
            let mixed = vec![simple(now(), 77), uploads[2].clone()];
            let mut answers = world.push("acme", mixed).await;
            assert_eq!(answers.remove(1).unwrap().repeats, 1);
            let refused = answers.remove(0).unwrap_err();
            assert_eq!((refused.code, refused.retry_after.is_some()), (ErrorCode::Exhausted, true));
            assert!(
                refused.message.contains("the dedup window of this shard has 5 ids")
                    && refused.message.contains("ingester.dedup.max_ids_per_shard")
            );
            world.cut().await;
            world = world.crash(crash).await;
        }
        // As long as profiles may be late or early, and a quarter of an hour.
        world.remains.clock.sleep(Duration::from_secs(90 * 60)).await;
        assert_eq!(world.push_one(&simple(now(), 10)).await, 1);
        world.cut().await;
        assert_eq!((world.push_one(&simple(now(), 20)).await, world.total().await), (1, 5 * 11 + 11 + 21));
    });
}

/// INV-01: an identity is what was sent, not what rules, encoders and proxies make of it.
#[test]
fn what_is_sent_again_in_another_form_is_a_repeat() {
    simulate(async {
        let world = World::new().await;
        let time = now();
        let first = upload(&profile(time, &[("main;a", 4), ("main;b", 6), ("main", 1)]));
        assert_eq!(world.push_one(&first).await, 1);
        let other = Labels::new([("service_name".to_owned(), "other".to_owned())]);
        let nil = Some("00000000-0000-0000-0000-000000000000".to_owned());
        let otherwise = profile(time, &[("main", 1), ("main;b", 3), ("main;a", 4), ("main;b", 3)]);
        for (same, form) in [
            (ProfileUpload { labels: other.clone(), ..first.clone() }, "relabelled"),
            (ProfileUpload { client_id: nil, ..first.clone() }, "with an id that says nothing"),
            (ProfileUpload { time_nanos: 77, ..first.clone() }, "with another `from`"),
            (upload(&otherwise), "encoded otherwise"),
        ] {
            assert_eq!(world.push_one(&same).await, 0, "{form}");
        }
        for (another, form) in [
            (ProfileUpload { sent: other, ..first.clone() }, "of other labels"),
            (ProfileUpload { client_id: Some("7a".to_owned()), ..first.clone() }, "with an id"),
            (ProfileUpload { client_id: Some("7b".to_owned()), ..first.clone() }, "with another id"),
            (upload(&profile(time, &[("main;a", 4), ("main;b", 6), ("main", 2)])), "of other values"),
        ] {
            assert_eq!(world.push_one(&another).await, 1, "{form}");
        }
    });
}

/// INV-02: records of one upload do not look like repeats of each other, and each is known again.
#[test]
fn records_that_one_upload_was_split_into_count_each() {
    simulate(async {
        let world = World::new().await;
        let mut alike = profile(now(), &[]);
        alike.header.types =
            vec![ValueType::new("cpu", "nanoseconds"), ValueType::new("wall", "nanoseconds")];
        labelled(&mut alike, "main", &[], 5);
        for region in ["north", "south"] {
            labelled(&mut alike, "main", &[("region", region)], 5);
        }
        let alike = upload(&alike);
        assert_eq!((world.push_one(&alike).await, world.total().await), (6, 30));
        assert_eq!((world.push_one(&alike).await, world.total().await), (0, 30));
    });
}

/// INV-10: what is in one batch with its repeat is not known before it is applied.
#[test]
fn several_who_send_the_same_at_once_store_it_once() {
    simulate(async {
        let world = World::new().await;
        let same = simple(now(), 10);
        let answers = futures::future::join_all((0..5).map(|_| world.push_one(&same))).await;
        assert_eq!((answers.into_iter().sum::<u32>(), world.total().await), (1, 11));
    });
}

/// INV-10: the log's own time is what processes saw pass.
#[test]
fn a_wall_clock_that_jumps_between_two_starts_makes_no_repeat_new() {
    simulate(async {
        let (begin, any) = (Clock::system().wall(), Duration::ZERO);
        let limits =
            TenantLimits { reject_older_than: any, reject_newer_than: any, ..TenantLimits::default() };
        let mut world = World::with(limits, Clock::starting_at(begin)).await;
        let first = simple(begin.nanos(), 10);
        assert_eq!(world.push_one(&first).await, 1);
        // Longer than ids are remembered where profiles may have any age.
        let jump = Duration::from_secs(3 * 24 * 3600);
        for (number, clock) in (1..).zip([begin.plus(jump), begin.minus(jump), begin.plus(jump)]) {
            world.remains.clock = Clock::starting_at(clock);
            world = world.crash(number).await;
            // What comes new takes the log's time on.
            assert_eq!(world.push_one(&simple(begin.nanos() + number as i64, 10)).await, 1);
            assert_eq!(world.push_one(&first).await, 0, "jump {number}");
        }
    });
}

/// INV-11: reject_older_than + reject_newer_than + 15 min.
#[test]
fn a_repeat_is_known_as_long_as_it_may_come() {
    simulate(async {
        let world = World::new().await;
        let (first, minute) = (simple(now(), 10), Duration::from_secs(60));
        assert_eq!(world.push_one(&first).await, 1);
        for (number, minutes) in [(1, 40), (2, 44)] {
            world.cut().await;
            world.remains.clock.sleep(minutes * minute).await;
            // What comes new takes the log's time on.
            assert_eq!(world.push_one(&simple(now() + number, 20)).await, 1);
            assert_eq!(world.push_one(&first).await, 0, "after {minutes} minutes more");
        }
        world.remains.clock.sleep(2 * minute).await;
        assert_eq!((world.push_one(&simple(now() + 3, 20)).await, world.push_one(&first).await), (1, 1));
    });
}

/// What lies in a block is in the log alone with its ids, until a snapshot has them.
#[test]
fn ids_that_damage_took_of_what_is_in_a_block_are_said_to_be_lost() {
    simulate(async {
        let world = World::new().await;
        let first = upload(&profile(now(), &[("main;needle", 10)]));
        assert_eq!(world.push_one(&first).await, 1);
        // It is registered, and the power goes before the log can say so: what it says, written and synced, is that the
        // generation is over.
        world.remains.log_disk.lose_power_after(2);
        let _ = world.ingester.flush_all(&world.remains.clock, Duration::from_secs(30)).await;
        let mut world = world.crash(1).await;
        assert_eq!((world.blocks().await, world.total().await), (1, 10));
        // A later commit says that the ones before it were durable.
        assert_eq!(world.push_one(&simple(now(), 20)).await, 1);
        flip_in(&world.remains.log_disk, "needle");
        world.remains.damaged = true;
        let world = world.crash(2).await;
        assert_eq!(world.total().await, 10 + 21);
        let data_losses =
            world.remains.catalog.list_blocks(&tenant("acme"), 0, i64::MAX).await.unwrap().data_losses;
        let losses: Vec<DataLoss> = data_losses.into_iter().map(|record| record.loss).collect();
        assert!(matches!(losses[..], [DataLoss::ForgottenIds { shard: 1, .. }]), "{losses:?}");
        assert_eq!(world.push_one(&first).await, 1, "it cannot be known");
    });
}

/// Flips a bit of a text on a disk.
fn flip_in(disk: &MemoryDisk, text: &str) {
    let places = disk.list().unwrap().into_iter().filter_map(|name| {
        let bytes = disk.read(&name).unwrap();
        let at = bytes.windows(text.len()).position(|window| window == text.as_bytes())?;
        Some((name, at as u64))
    });
    let places: Vec<(String, u64)> = places.collect();
    assert!(!places.is_empty());
    assert!(places.iter().all(|(name, at)| disk.flip_bit(name, *at, 1)));
}
