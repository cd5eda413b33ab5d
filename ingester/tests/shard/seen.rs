//! What is seen of what was pushed, and by whom.

use athanor_block::{MemoryProfiles, MemoryRow};
use athanor_catalog::Catalog;
use athanor_profile::ProfileSource;

use crate::samples::{Row, labelled, now, profile, simple, upload};
use crate::world::{World, fetch, simulate, tenant};

#[test]
fn rows_that_say_nothing_are_left_out() {
    simulate(async {
        let world = World::new().await;
        let mixed = profile(now(), &[("a", 5), ("b", -5), ("c", 0), ("a", 2)]);
        assert_eq!(world.push_one(&upload(&mixed)).await, 1);
        let rows = world.rows("acme").await;
        assert_eq!(rows.iter().map(|row| (row.3.as_str(), row.4)).collect::<Vec<_>>(), [("a", 7)]);
        let nothing = upload(&profile(now(), &[("b", -5), ("c", 0)]));
        let stored = world.push("acme", vec![nothing]).await.remove(0).unwrap();
        assert_eq!((stored.new, stored.repeats), (0, 0));
        world.cut().await;
        assert_eq!(world.rows("acme").await, rows);
    });
}

#[test]
fn sums_of_profiles_and_their_bound_cover_each_profile_of_the_head() {
    simulate(async {
        let world = World::new().await;
        let view = async || {
            let listing = world.remains.catalog.list_blocks(&tenant("acme"), 0, i64::MAX).await.unwrap();
            let shard = listing.shards[0].id;
            world.ingester.head_snapshots(shard, 0, &tenant("acme")).unwrap().remove(0)
        };
        let pushed: [&[(&str, i64)]; 4] =
            [&[("a", 5), ("b", 2)], &[("a", 1), ("b", 3)], &[("a", i64::MAX)], &[("a", i64::MAX)]];
        let mut bound = 0u64;
        let mut totals = Vec::new();
        let mut first_view = None;
        for (number, rows) in (0..).zip(pushed) {
            world.push_one(&upload(&profile(now() + number, rows))).await;
            totals.push(rows.iter().map(|(_, value)| value).sum::<i64>());
            bound = bound.saturating_add(totals[totals.len() - 1] as u64);
            // Sums may wrap once the bound of all passes 63 bits.
            let expected = i64::try_from(bound).is_ok().then_some(&totals[..]);
            let view = view().await;
            assert_eq!(view.profile_totals().unwrap().as_deref(), expected);
            assert_eq!([view.max_sum(&[0]).unwrap(), view.max_sum(&[0]).unwrap()], [Some(bound); 2]);
            let first_view = first_view.get_or_insert(view);
            assert_eq!(first_view.profile_totals().unwrap().as_deref(), expected.map(|totals| &totals[..1]));
        }
    });
}

#[test]
fn spans_stay_with_their_rows() {
    simulate(async {
        let mut world = World::new().await;
        let mut spans = profile(now(), &[("main", 1)]);
        labelled(&mut spans, "main", &[("span_id", "00000000000000ff")], 2);
        labelled(&mut spans, "main", &[("span_id", "00000000000000aa"), ("region", "north")], 4);
        world.push_one(&upload(&spans)).await;
        for crash in 0..2 {
            let listing = world.remains.catalog.list_blocks(&tenant("acme"), 0, i64::MAX).await.unwrap();
            let views = world.ingester.head_snapshots(listing.shards[0].id, 0, &tenant("acme")).unwrap();
            let mut seen = Vec::new();
            for view in &views {
                let picked: Vec<u32> = (0..view.profiles().unwrap().len() as u32).collect();
                view.for_each_row(&picked, &mut |_, row| seen.push((row.span, row.value))).unwrap();
            }
            seen.sort_unstable();
            assert_eq!(seen, [(0, 1), (0xaa, 4), (0xff, 2)]);
            world = world.crash(crash).await;
        }
    });
}

#[test]
fn moments_stay_with_their_rows_through_the_log_and_into_the_block() {
    simulate(async {
        let mut world = World::new().await;
        let time = now();
        let mut timed = profile(time, &[("main;work", 2), ("main", 1), ("main;work", 3)]);
        timed.samples.moments.add(0, [time + 9, time + 4]);
        timed.samples.moments.add(2, [time + 5]);
        assert_eq!(world.push_one(&upload(&timed)).await, 1);
        assert_eq!(world.push_one(&upload(&timed)).await, 0);
        // The same but for one moment.
        let mut other = profile(time, &[("main;work", 2), ("main", 1), ("main;work", 3)]);
        other.samples.moments.add(0, [time + 9, time + 4, time + 5, time + 6]);
        assert_eq!(world.push_one(&upload(&other)).await, 1);
        let expected = [(1, vec![]), (1, vec![]), (5, vec![4, 5, 6, 9]), (5, vec![4, 5, 9])];
        for crash in 0..2 {
            let listing = world.remains.catalog.list_blocks(&tenant("acme"), 0, i64::MAX).await.unwrap();
            let mut seen = Vec::new();
            for view in &world.ingester.head_snapshots(listing.shards[0].id, 0, &tenant("acme")).unwrap() {
                let picked: Vec<u32> = (0..view.profiles().unwrap().len() as u32).collect();
                let mut each = |_: u32, row: MemoryRow<'_>| {
                    seen.push((row.value, row.moments.iter().map(|at| at - time).collect::<Vec<i64>>()));
                };
                view.for_each_row(&picked, &mut each).unwrap();
            }
            seen.sort_unstable();
            assert_eq!(seen, expected);
            world = world.crash(crash).await;
        }
        world.cut().await;
        let listing = world.remains.catalog.list_blocks(&tenant("acme"), 0, i64::MAX).await.unwrap();
        let block = fetch(&world.remains.store, &listing.blocks[0]).await;
        let mut seen = Vec::new();
        let part = block.tenant_block("acme").unwrap();
        part.read_timestamps(std::slice::from_ref(&(0..part.meta.samples)), |_, times| {
            seen.push(times.iter().map(|at| at - time).collect::<Vec<i64>>());
        })
        .unwrap();
        seen.sort_unstable();
        assert_eq!(seen, [vec![4, 5, 6, 9], vec![4, 5, 9]]);
    });
}

/// INV-04: a service's shard follows from the number of slots.
#[test]
fn a_folder_keeps_the_number_of_slots_that_it_was_begun_with() {
    simulate(async {
        let mut world = World::new().await;
        assert_eq!(world.push_one(&simple(now(), 10)).await, 1);
        for slots in [3, 7, 1] {
            world.remains.slots = slots;
            world = world.crash(1).await;
            assert_eq!((world.ingester.slots().len(), world.total().await), (1, 11));
        }
        world.cut().await;
        assert_eq!((world.blocks().await, world.total().await), (1, 11));
    });
}

#[test]
fn tenants_see_their_own() {
    simulate(async {
        let mut world = World::new().await;
        let equal = simple(now(), 10);
        for name in ["acme", "umbrella"] {
            assert_eq!(world.push(name, vec![equal.clone()]).await.remove(0).unwrap().new, 1);
        }
        world.push("umbrella", vec![simple(now(), 30)]).await.remove(0).unwrap();
        for crash in 0..3 {
            let total = |rows: Vec<Row>| rows.iter().map(|row| row.4).sum::<i64>();
            assert_eq!(total(world.rows("acme").await), 11);
            assert_eq!(total(world.rows("umbrella").await), 42);
            assert_eq!(total(world.rows("nobody").await), 0);
            if crash == 1 {
                world.cut().await;
            }
            world = world.crash(crash).await;
        }
    });
}
