//! What an upload and a shard may cost, and what is left out or refused.

use std::sync::atomic::Ordering;
use std::time::Duration;

use athanor_catalog::{Catalog, shard_id};
use athanor_chassis::{ByteSize, Clock, Disk, ErrorCode, Status, TenantLimits};
use athanor_profile::data_model::dropped_counts::{DropReason, DroppedCounts};
use athanor_profile::data_model::labels::SampleLabel;
use athanor_profile::formats::pprof::encode;
use athanor_profile::store_interface::upload::ProfileUpload;
use athanor_profile::{Labels, ValueType};
use athanor_storage::StorageConfig as Bucket;

use crate::samples::{labelled, now, profile, simple, upload};
use crate::world::{Remains, World, simulate};

#[test]
fn a_refusal_names_the_limit() {
    simulate(async {
        let limits = TenantLimits {
            max_profile_size_bytes: ByteSize::bytes(4000),
            max_profile_stacktrace_samples: 50,
            max_profile_stacktrace_sample_labels: 2,
            max_label_value_length: 10,
            ..TenantLimits::default()
        };
        let world = World::with(limits, Clock::system()).await;
        let many: Vec<(String, i64)> = (0..60).map(|number| (format!("f{number}"), 1)).collect();
        let many: Vec<(&str, i64)> = many.iter().map(|(stack, value)| (stack.as_str(), *value)).collect();
        let mut crowded = profile(now(), &[]);
        labelled(&mut crowded, "main", &[("a", "1"), ("b", "2"), ("c", "3")], 1);
        let mut long = profile(now(), &[]);
        labelled(&mut long, "main", &[("a", "12345678901")], 1);
        let hour = 3_600_000_000_000;
        let text = "x".repeat(5000);
        for (refused, named) in [
            (profile(now(), &[(text.as_str(), 1)]), "limits.max_profile_size_bytes"),
            (profile(now(), &many[..51]), "limits.max_profile_stacktrace_samples"),
            (crowded, "limits.max_profile_stacktrace_sample_labels"),
            (long, "max_label_value_length"),
            (profile(now() - hour - hour / 60, &many[..1]), "limits.reject_older_than"),
            (profile(now() + hour / 5, &many[..1]), "limits.reject_newer_than"),
        ] {
            let status = world.push("acme", vec![upload(&refused)]).await.remove(0).unwrap_err();
            assert_eq!(status.code, ErrorCode::Invalid, "{status}");
            assert!(status.message.contains(named), "{named}: {status}");
        }
        // Others of the same request are not held back.
        let answers = world.push("acme", vec![upload(&profile(1, &many[..1])), simple(now(), 1)]).await;
        assert!(answers[0].is_err() && answers[1].is_ok());
        assert_eq!(world.total().await, 2);
        let garbage = ProfileUpload { pprof: vec![0xff; 40].into(), ..simple(now(), 1) };
        assert!(world.push("acme", vec![garbage]).await.remove(0).is_err());
    });
}

#[test]
fn a_full_disk_takes_what_frees_it() {
    simulate(async {
        let mut world = World::new().await;
        world.remains.reserve = ByteSize::mib(2);
        let world = world.crash(1).await;
        world.push_one(&simple(now(), 10)).await;
        let disk = &world.remains.log_disk;
        disk.set_capacity(Some(64 << 20));
        let used = (64 << 20) - disk.free_bytes().unwrap();
        disk.set_capacity(Some(used + (1 << 20)));
        let refused = world.push("acme", vec![simple(now(), 11)]).await.remove(0).unwrap_err();
        assert_eq!(
            (refused.code, refused.message.contains("reserve")),
            (ErrorCode::Exhausted, true),
            "{refused:?}"
        );
        assert!(refused.retry_after.is_some(), "{refused:?}");
        world.cut().await;
        assert_eq!(world.blocks().await, 1);
        let world = world.crash(2).await;
        assert_eq!(world.total().await, 11, "it starts, and what was acknowledged is there");
    });
}

#[test]
fn new_tenant_beyond_limit_is_refused_also_after_restart() {
    simulate(async {
        let push = async |world: &World, name: &str| {
            world.push(name, vec![simple(now(), 10)]).await.remove(0).map(drop)
        };
        let limits = TenantLimits { max_tenants: 2, ..TenantLimits::default() };
        let world = World::with(limits, Clock::system()).await;
        let empty = ProfileUpload { pprof: encode(&Default::default()).into(), ..simple(now(), 1) };
        for number in 0..5 {
            let _ = world.push(&format!("sends-nothing-{number}"), vec![empty.clone()]).await;
        }
        push(&world, "a").await.unwrap();
        world.cut().await;
        let world = world.crash(1).await;
        world.ingester.refresh_tenants().await.unwrap();
        push(&world, "b").await.unwrap();
        // One lies in a block, and one in the log.
        let world = world.crash(2).await;
        world.ingester.refresh_tenants().await.unwrap();
        let refused = push(&world, "c").await.unwrap_err();
        assert_eq!((refused.code, refused.retry_after.is_some()), (ErrorCode::Exhausted, true));
        assert!(refused.message.contains("2 tenants have profiles, limits.max_tenants is 2"), "{refused}");
        push(&world, "a").await.unwrap();
        push(&world, "b").await.unwrap();
        world.cut().await;
        world.ingester.refresh_tenants().await.unwrap();
        push(&world, "c").await.unwrap_err();
        // Names are free with the last block.
        let blocks = world.remains.catalog.blocks().await.unwrap().into_iter().map(|block| block.id);
        world.remains.catalog.tombstone_blocks(blocks.collect(), None).await.unwrap();
        world.ingester.refresh_tenants().await.unwrap();
        push(&world, "c").await.unwrap();
    });
}

#[test]
fn node_with_full_disk_starts_and_flushes_and_recovers() {
    simulate(async {
        let mut world = World::new().await;
        world.remains.reserve = ByteSize::mib(2);
        let world = world.crash(1).await;
        world.push_one(&simple(now(), 10)).await;
        let disks = |world: &World| [world.remains.log_disk.clone(), world.remains.state_disk.clone()];
        for disk in disks(&world) {
            disk.set_capacity(Some(64 << 20));
            let used = (64 << 20) - disk.free_bytes().unwrap();
            disk.set_capacity(Some(used));
        }
        let world = world.crash(2).await;
        assert_eq!(world.total().await, 11);
        let refused = world.push("acme", vec![simple(now(), 11)]).await.remove(0).unwrap_err();
        assert_eq!(
            (refused.code, refused.message.contains("reserve")),
            (ErrorCode::Exhausted, true),
            "{refused}"
        );
        // What is stored lies in the bucket; only the log cannot let go of it yet.
        let cut = world.ingester.flush_all(&world.remains.clock, Duration::from_secs(20)).await;
        assert!(cut.is_err(), "there is no space for a snapshot: {cut:?}");
        assert_eq!((world.blocks().await, world.total().await), (1, 11));
        for disk in disks(&world) {
            disk.set_capacity(None);
        }
        world.cut().await;
        assert_eq!((world.push_one(&simple(now(), 20)).await, world.total().await), (1, 32));
    });
}

/// A profile of names that fill about 100 kB of memory and of the log, and whose value is 5.
fn wordy(world: &World) -> ProfileUpload {
    let random = &world.remains.random;
    let name = || (0..625).map(|_| format!("{:032x}", random.next_id())).collect::<String>();
    let names: Vec<String> = (0..5).map(|_| name()).collect();
    let rows: Vec<(&str, i64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    upload(&profile(now(), &rows))
}

/// Pushes to the first shard until it refuses; gives why, and how many were stored.
async fn fill(world: &World) -> (Status, i64) {
    for stored in 0..200 {
        match world.push("acme", vec![wordy(world)]).await.remove(0) {
            Ok(answer) => assert_eq!(answer.new, 1),
            Err(status) => return (status, stored),
        }
    }
    panic!("whatever is in no block has no bound");
}

fn is_refusal(status: &Status, names: &str) {
    assert_eq!((status.code, status.reason), (ErrorCode::Exhausted, Some("unflushed_limit")), "{status}");
    assert!(status.retry_after.is_some() && status.message.contains(names), "{status}");
}

/// All shards of a node share its memory: what one of them cannot register holds up the others too, and nothing of it is
/// lost.
#[test]
fn what_is_in_no_block_takes_so_much_memory() {
    simulate(async {
        let mut remains = Remains::new(
            Bucket { memory: true, ..Bucket::default() },
            TenantLimits::default(),
            Clock::system(),
        );
        (remains.slots, remains.unflushed_bytes) = (2, ByteSize::kib(1000));
        let world = World::boot(remains).await;
        let other = async || {
            let pushed = world.push_to(shard_id(1, 1), "acme", vec![wordy(&world)]).await.remove(0);
            pushed.map(|stored| stored.new)
        };
        world.remains.catalog.barred.store(1, Ordering::Relaxed);
        let (refused, stored) = fill(&world).await;
        is_refusal(&refused, "ingester.max_unflushed_bytes)");
        assert!((5..=12).contains(&stored), "{stored}");
        is_refusal(&other().await.unwrap_err(), "ingester.max_unflushed_bytes)");
        // What is being cut takes memory as before.
        let cut = world.ingester.flush_all(&world.remains.clock, Duration::from_secs(60)).await;
        assert!(cut.is_err(), "{cut:?}");
        is_refusal(&other().await.unwrap_err(), "ingester.max_unflushed_bytes)");
        world.remains.catalog.barred.store(0, Ordering::Relaxed);
        world.cut().await;
        assert_eq!(other().await, Ok(1));
        let (_, again) = fill(&world).await;
        assert!(
            (stored - 2..=stored).contains(&again),
            "there is as much room as before: {again} of {stored}"
        );
        let all = 5 * (stored + 1 + again);
        assert_eq!(world.total().await, all);
        // Who starts with so much reads it back, and takes hardly more.
        let world = world.crash(1).await;
        assert_eq!(world.total().await, all);
        let (refused, more) = fill(&world).await;
        is_refusal(&refused, "ingester.max_unflushed_bytes)");
        assert!(more <= 2, "{more}");
        world.cut().await;
        assert_eq!((world.push_one(&wordy(&world)).await, world.total().await), (1, all + 5 * more + 5));
    });
}

/// The log grows with what is in no block, up to a share of its disk.
#[test]
fn what_is_in_no_block_takes_so_much_of_the_disk() {
    simulate(async {
        let mut remains = Remains::new(
            Bucket { memory: true, ..Bucket::default() },
            TenantLimits::default(),
            Clock::system(),
        );
        remains.wal_disk_percent = 50;
        let world = World::boot(remains).await;
        world.remains.log_disk.set_capacity(Some(8 << 20));
        world.remains.catalog.barred.store(1, Ordering::Relaxed);
        let (refused, stored) = fill(&world).await;
        is_refusal(&refused, "(ingester.max_wal_disk_percent)");
        assert!(refused.message.contains("of a disk of 8MiB, the limit is 50 percent"), "{refused}");
        let free = world.remains.log_disk.free_bytes().unwrap();
        assert!((3 << 20..=4 << 20).contains(&free), "about half is free: {free}");
        world.remains.catalog.barred.store(0, Ordering::Relaxed);
        world.cut().await;
        assert_eq!(world.push_one(&wordy(&world)).await, 1);
        assert_eq!(world.total().await, 5 * (stored + 1));
    });
}

#[test]
fn what_would_make_too_many_series_is_refused_alone() {
    simulate(async {
        let world = World::new().await;
        let mut wide = profile(now(), &[]);
        wide.header.types = (0..200).map(|n| ValueType::new(&format!("kind{n}"), "count")).collect();
        let dictionary = &mut wide.dictionary;
        let stack = dictionary.intern_named_stack(["main"].into_iter());
        for n in 0..101 {
            let strings = &mut dictionary.symbols.strings;
            let label = SampleLabel {
                key: strings.intern("n"),
                text: strings.intern(&n.to_string()),
                number: 0,
                unit: 0,
            };
            let set = dictionary.label_sets.intern(&dictionary.symbols.strings, &[label]);
            wide.samples.push(stack, set, &[1; 200]);
        }
        let mut answers = world.push("acme", vec![upload(&wide), simple(now(), 10)]).await;
        assert_eq!(answers.remove(1).unwrap().new, 1);
        let refused = answers.remove(0).unwrap_err();
        assert!(
            refused.code == ErrorCode::Invalid && refused.message.contains("20200 series"),
            "{refused:?}"
        );
    });
}

#[test]
fn what_is_left_out_is_counted() {
    simulate(async {
        let limits = TenantLimits {
            max_profile_stacktrace_depth: 2,
            max_profile_symbol_value_length: 12,
            ..TenantLimits::default()
        };
        let world = World::with(limits, Clock::system()).await;
        let mut rows = profile(now(), &[("a;b;c", 1), ("a;b;c", 2), ("a;b;d", 3), ("a", -5)]);
        rows.dictionary.intern_named_stack(["a very long name"].into_iter());
        rows.samples.push(rows.dictionary.stacks.len() as u32 - 1, 0, &[7]);
        let mut raw = encode(&rows);
        // A sample of a location that is not there: field 2, with location 99 and the value 1.
        raw.extend([0x12, 4, 0x08, 99, 0x10, 1]);
        let upload = ProfileUpload { pprof: raw.into(), ..upload(&rows) };
        let stored = world.push("acme", vec![upload.clone()]).await.remove(0).unwrap();
        let expected = DroppedCounts::from([
            (DropReason::DanglingSample, 1),
            (DropReason::NegativeSample, 1),
            (DropReason::DeepStack, 3),
            (DropReason::LongText, 1),
        ]);
        assert_eq!((stored.new, stored.dropped), (1, expected));
        assert_eq!(world.total().await, 13);
    });
}

/// A profile of two megabytes.
fn large(number: usize) -> ProfileUpload {
    let mut profile = profile(now(), &[("main", number as i64 + 1)]);
    profile.header.comments = vec!["x".repeat(2 << 20)];
    upload(&profile)
}

#[test]
fn what_takes_more_room_than_there_is_goes_in_pieces() {
    simulate(async {
        let mut world = World::new().await;
        world.remains.decoded = ByteSize::mib(5);
        let world = world.crash(1).await;
        let requests = (0..4).map(|request| {
            let uploads = (0..6).map(|number| large(request * 6 + number)).collect();
            world.push("acme", uploads)
        });
        let answers = futures::future::join_all(requests).await;
        assert!(answers.into_iter().flatten().all(|answer| answer.unwrap().new == 1));
        assert_eq!(world.total().await, (1..=24).sum::<i64>());
        // Equal ones are told apart though they are in different pieces, and known again.
        let equal = large(99);
        for new in [1, 0] {
            let answers = world.push("acme", vec![equal.clone(); 5]).await;
            assert!(answers.into_iter().all(|answer| answer.unwrap().new == new));
        }
        assert_eq!(world.total().await, (1..=24).sum::<i64>() + 500);
    });
}

/// INV-06: what fits goes in as many entries as it takes, and what does not is told.
#[test]
fn no_entry_is_larger_than_the_log_takes() {
    simulate(async {
        let world = World::new().await;
        let long = |names: usize, mark: u8| {
            let name = |number: usize| format!("{}{number}", char::from(mark).to_string().repeat(20_000));
            let names: Vec<String> = (0..names).map(name).collect();
            let rows: Vec<(&str, i64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
            upload(&profile(now(), &rows))
        };
        let mut uploads: Vec<ProfileUpload> = (b'a'..b'k').map(|mark| long(4, mark)).collect();
        uploads.insert(5, long(8, b'x'));
        let mut answers = world.push("acme", uploads).await;
        let refused = answers.remove(5).unwrap_err();
        assert!(
            refused.code == ErrorCode::TooLarge && refused.message.contains("make a log entry of"),
            "{refused:?}"
        );
        assert!(answers.into_iter().all(|answer| answer.unwrap().new == 1));
        assert_eq!(world.total().await, 40);
        let world = world.crash(3).await;
        assert_eq!(world.total().await, 40);
    });
}

#[test]
fn a_text_that_would_be_in_many_series_is_refused() {
    simulate(async {
        let world = World::new().await;
        let mut wide = profile(now(), &[]);
        for number in 0..10_000 {
            labelled(&mut wide, "main", &[("n", &number.to_string()), ("text", &"x".repeat(2000))], 1);
        }
        let refused = world.push("acme", vec![upload(&wide)]).await.remove(0).unwrap_err();
        assert!(refused.code == ErrorCode::Invalid && refused.message.contains("of labels"), "{refused:?}");
        assert_eq!(world.total().await, 0);
    });
}

#[test]
fn names_count_in_a_head() {
    simulate(async {
        let world = World::new().await;
        let held = || world.ingester.unflushed_bytes();
        // Five names of 20 kB, with a value each.
        let long = |first: u8, value| {
            let names: Vec<String> =
                (first..first + 5).map(|number| char::from(number).to_string().repeat(20_000)).collect();
            let rows: Vec<(&str, i64)> = names.iter().map(|name| (name.as_str(), value)).collect();
            upload(&profile(now(), &rows))
        };
        let before = held();
        assert_eq!(world.push_one(&long(b'a', 1)).await, 1);
        let after = held();
        assert!(after > before + 100_000, "{before} {after}");
        assert_eq!(world.push_one(&long(b'p', 0)).await, 0);
        assert!(held() > after + 50_000, "though no profile has them");
    });
}

#[test]
fn what_could_not_be_asked_for_is_refused() {
    simulate(async {
        let world = World::new().await;
        for place in 0..4 {
            let mut odd = profile(now(), &[("main", 1)]);
            let period = odd.header.period_type.get_or_insert_default();
            let mut sent = match place {
                0 => {
                    odd.header.types[0].kind.push_str(":x");
                    upload(&odd)
                }
                1 => {
                    odd.header.types[0].unit.push_str(":x");
                    upload(&odd)
                }
                2 => {
                    period.unit.push_str(":x");
                    upload(&odd)
                }
                _ => upload(&odd),
            };
            if place == 3 {
                sent.labels = Labels::new(
                    [("__name__", "a:b"), ("service_name", "shop")]
                        .map(|(name, value)| (name.to_owned(), value.to_owned())),
                );
            }
            let refused = world.push("acme", vec![sent]).await.remove(0).unwrap_err();
            assert!(
                refused.code == ErrorCode::Invalid && refused.message.contains("colon"),
                "{place}: {refused:?}"
            );
        }
    });
}
