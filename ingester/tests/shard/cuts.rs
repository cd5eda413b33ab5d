//! Cuts: what they keep, what they survive, and which of them fail.

use std::sync::atomic::Ordering;
use std::time::Duration;

use athanor_block::PARQUET_FILES;
use athanor_catalog::{BlockId, Catalog};
use athanor_chassis::{ByteSize, Clock, Disk, ErrorCode, TenantLimits};
use athanor_storage::StorageConfig as Bucket;

use crate::samples::{labelled, now, profile, simple, upload};
use crate::world::{Remains, World, object, simulate, tenant};

#[test]
fn a_cut_changes_no_answer() {
    simulate(async {
        let world = World::new().await;
        for number in 0..20 {
            let mut some = profile(now(), &[("main;a", number), ("main;a;b", 5), ("main;c", 0)]);
            let region = if number % 2 == 0 { "north" } else { "south" };
            labelled(&mut some, "main;d", &[("region", region)], 3);
            world.push_one(&upload(&some)).await;
        }
        let before = world.rows("acme").await;
        world.cut().await;
        assert_eq!(world.blocks().await, 1);
        assert_eq!(world.rows("acme").await, before);
        world.cut().await;
        assert_eq!(world.blocks().await, 1, "nothing is no block");
        let world = world.crash(5).await;
        assert_eq!(world.rows("acme").await, before);
    });
}

#[test]
fn a_cut_is_tried_until_it_is_done() {
    simulate(async {
        let folder = tempfile::tempdir().unwrap();
        let (objects, aside) = (folder.path().join("objects"), folder.path().join("aside"));
        let mut bucket = Bucket { local: Some(objects.clone()), ..Bucket::default() };
        bucket.retry.max_attempts = 1;
        let world = World::on(bucket, TenantLimits::default(), Clock::system()).await;
        world.push_one(&simple(now(), 10)).await;
        // A file where the folder was: nothing can be written.
        std::fs::rename(&objects, &aside).unwrap();
        std::fs::write(&objects, b"").unwrap();
        assert!(world.ingester.flush_all(&world.remains.clock, Duration::from_secs(20)).await.is_err());
        world.push_one(&simple(now(), 20)).await;
        assert_eq!(world.total().await, 32);
        std::fs::remove_file(&objects).unwrap();
        std::fs::rename(aside, &objects).unwrap();
        world.remains.catalog.deaf.store(2, Ordering::Relaxed);
        world.remains.catalog.dumb.store(1, Ordering::Relaxed);
        world.cut().await;
        assert_eq!(world.ingester.unflushed_bytes(), 0);
        assert_eq!(world.total().await, 32);
        let world = world.crash(6).await;
        assert_eq!(world.total().await, 32);
    });
}

/// Whoever leads next finds what an earlier leader uploaded, however often that is.
#[test]
fn retried_registration_uploads_no_second_block() {
    simulate(async {
        let mut world = World::new().await;
        for value in [10, 20] {
            world.push_one(&simple(now(), value)).await;
            for seed in 0..3 {
                world.remains.catalog.deaf.store(u32::MAX, Ordering::Relaxed);
                let cut = world.ingester.flush_all(&world.remains.clock, Duration::from_secs(60)).await;
                assert!(cut.is_err(), "{cut:?}");
                world = world.crash(seed).await;
                // What came later is in a block of its own.
                world.push_one(&simple(now(), value)).await;
            }
            world.remains.catalog.deaf.store(0, Ordering::Relaxed);
            world.cut().await;
            assert_eq!(world.uploaded().await, world.blocks().await);
        }
        assert_eq!(world.total().await, 4 * (11 + 21));
    });
}

/// A block that was refused, or lacks an object, is not taken for the one that is needed.
#[test]
fn damaged_upload_of_an_earlier_leader_is_replaced() {
    simulate(async {
        let world = World::new().await;
        world.push_one(&simple(now(), 10)).await;
        world.remains.catalog.deaf.store(u32::MAX, Ordering::Relaxed);
        assert!(world.ingester.flush_all(&world.remains.clock, Duration::from_secs(60)).await.is_err());
        let world = world.crash(1).await;
        let block = world.uploaded_names().await.remove(0);
        world.remains.store.delete(&object(block, PARQUET_FILES[2])).await.unwrap();
        world.remains.catalog.deaf.store(0, Ordering::Relaxed);
        world.cut().await;
        assert_eq!((world.blocks().await, world.total().await), (1, 11));
        assert_eq!(world.uploaded().await, 2);
    });
}

#[test]
fn condemned_upload_of_an_earlier_leader_is_replaced() {
    simulate(async {
        let world = World::new().await;
        world.push_one(&simple(now(), 10)).await;
        world.remains.catalog.deaf.store(u32::MAX, Ordering::Relaxed);
        assert!(world.ingester.flush_all(&world.remains.clock, Duration::from_secs(60)).await.is_err());
        let block = world.uploaded_names().await.remove(0);
        world.remains.catalog.tombstone_blocks(vec![BlockId::from_number(block)], None).await.unwrap();
        let world = world.crash(1).await;
        world.remains.catalog.deaf.store(0, Ordering::Relaxed);
        world.cut().await;
        assert_eq!((world.blocks().await, world.total().await), (1, 11));
    });
}

#[test]
fn the_log_lets_go_of_what_was_registered_once_it_can() {
    simulate(async {
        let world = World::new().await;
        world.push_one(&simple(now(), 10)).await;
        let disk = &world.remains.state_disk;
        let snapshots =
            || disk.list().unwrap().into_iter().filter(|name| name.ends_with(".snapshot")).count();
        disk.set_capacity(Some(0));
        let cut = world.ingester.flush_all(&world.remains.clock, Duration::from_secs(20)).await;
        assert!(cut.is_err(), "{cut:?}");
        assert_eq!((world.blocks().await, snapshots()), (1, 0));
        disk.set_capacity(None);
        // There is nothing more to cut.
        world.cut().await;
        assert_eq!((world.blocks().await, snapshots()), (1, 1));
        assert_eq!(world.total().await, 11);
    });
}

/// What another leader commits may build on a generation until the log says that it is over.
#[test]
fn nothing_is_cut_before_the_log_says_that_it_is_over() {
    simulate(async {
        let bucket = Bucket { memory: true, ..Bucket::default() };
        let remains = Remains::new(bucket, TenantLimits::default(), Clock::system());
        let world = World::boot(Remains { reserve: ByteSize::kib(64), ..remains }).await;
        world.push_one(&simple(now(), 10)).await;
        // The power goes before the log says so, and the bucket takes everything.
        world.remains.log_disk.lose_power_after(0);
        let cut = world.ingester.flush_all(&world.remains.clock, Duration::from_secs(20)).await;
        assert!(cut.is_err(), "{cut:?}");
        assert_eq!(world.blocks().await, 0);
        let world = world.crash(1).await;
        assert_eq!((world.blocks().await, world.total().await), (0, 11));
        world.cut().await;
        assert_eq!((world.blocks().await, world.total().await), (1, 11));
    });
}

/// A cut during which the power goes; says whether it was done before.
async fn lose_power_in_a_cut(step: u32) -> bool {
    let world = World::new().await;
    let [first, second, third] = [10, 20, 40].map(|value| simple(now(), value));
    world.push_one(&first).await;
    world.cut().await;
    world.push_one(&second).await;
    // Every other time the answer of the registration is lost, too.
    world.remains.catalog.dumb.store(step % 2, Ordering::Relaxed);
    let disk = if step % 4 < 2 { &world.remains.log_disk } else { &world.remains.state_disk };
    disk.lose_power_after(u64::from(step / 4));
    let cut = world.ingester.flush_all(&world.remains.clock, Duration::from_secs(30)).await.is_ok();
    let acknowledged = world.push("acme", vec![third.clone()]).await.remove(0).is_ok();
    let mut world = world.crash(u64::from(step)).await;
    let held = world.total().await;
    assert!(held == 32 + 41 || (!acknowledged && held == 32), "step {step}: {held}");
    for _ in 0..2 {
        assert_eq!((world.push_one(&first).await, world.push_one(&second).await), (0, 0), "step {step}");
        world.push_one(&third).await;
        assert_eq!(world.total().await, 32 + 41, "step {step}");
        world.cut().await;
        assert_eq!(world.total().await, 32 + 41, "step {step}");
        world = world.crash(u64::from(step) + 1000).await;
        assert_eq!(world.total().await, 32 + 41, "step {step}");
    }
    cut && acknowledged
}

#[test]
fn the_power_may_go_at_any_step_of_a_cut() {
    let steps = 120;
    let done = (0..steps).filter(|step| simulate(lose_power_in_a_cut(*step))).count();
    assert!((1..steps as usize).contains(&done), "the power went in no cut, or in each: {done}");
}

#[test]
fn a_shard_that_cannot_be_cut_keeps_no_other_from_it() {
    simulate(async {
        let first = Remains::new(
            Bucket { memory: true, ..Bucket::default() },
            TenantLimits::default(),
            Clock::system(),
        );
        let world = World::boot(Remains { slots: 2, ..first }).await;
        let rows = profile(now(), &[("a;b", 1)]);
        for slot in 0..2 {
            let shard = world.ingester.shard_of_slot(slot).unwrap();
            let stored = world.ingester.append(shard, 1, &tenant("acme"), vec![upload(&rows)]).await.unwrap();
            assert_eq!(stored[0].as_ref().unwrap().new, 1);
        }
        world.remains.catalog.barred.store(1, Ordering::Relaxed);
        let failed =
            world.ingester.flush_all(&world.remains.clock, Duration::from_secs(30)).await.unwrap_err();
        let said = "shard 1: not done within 30s: the catalog is unavailable: told to fail";
        assert_eq!((failed.code, failed.message.as_str()), (ErrorCode::Deadline, said));
        let shards: Vec<u32> =
            world.remains.catalog.blocks().await.unwrap().iter().map(|block| block.shard).collect();
        assert_eq!(shards, [2]);
        let stats = world.ingester.stats(&world.remains.clock);
        let counted: Vec<_> =
            stats.iter().map(|shard| (shard.cuts.took.count(), shard.cuts.failed > 0)).collect();
        assert_eq!(counted, [(0, true), (1, false)]);
        world.remains.catalog.barred.store(0, Ordering::Relaxed);
        world.cut().await;
        assert_eq!((world.blocks().await, world.total().await), (2, 2));
    });
}
