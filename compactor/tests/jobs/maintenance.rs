//! Orphans are tombstoned once, and objects are removed when no plan, handoff or rebuild needs them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use athanor_block::META_FILE;
use athanor_catalog::{BlockId, Catalog, TOMBSTONE_RETENTION};
use athanor_chassis::{TenantId, Timestamp};
use athanor_compactor::{
    DELETION_GRACE_PERIOD, MaintenanceWorker, ObjectRemover, OrphanFinder, OrphanRound, RemovalFacts,
};
use bytes::Bytes;
use object_store::ObjectStoreExt;
use tokio_util::sync::CancellationToken;

use crate::world::{SECOND, START, World, path, require_send, row};

const HOUR: Duration = Duration::from_secs(3600);
const ID_WINDOW: Duration = Duration::from_secs(5 * 3600);

fn remover(world: &World) -> ObjectRemover {
    ObjectRemover::new(Arc::clone(&world.catalog) as Arc<dyn Catalog>, world.store.clone(), ID_WINDOW)
}

fn finder(world: &World) -> OrphanFinder {
    OrphanFinder::new(Arc::clone(&world.catalog) as Arc<dyn Catalog>, world.store.clone())
}

/// Returns facts of now, with a snapshot of everything so far.
fn facts(world: &World) -> RemovalFacts {
    let now = world.clock.wall();
    RemovalFacts { now, snapshot_time: now, restorable: BTreeSet::new() }
}

/// Puts a folder with some objects that no block registered.
async fn put_folder(world: &World, tenant: Option<&TenantId>, files: &[&str]) -> BlockId {
    let id = BlockId::new(world.clock.wall(), &world.random);
    for file in files {
        world.objects.put(&path(id, tenant, file), Bytes::from_static(b"x").into()).await.unwrap();
    }
    id
}

async fn tombstones(world: &World) -> BTreeSet<BlockId> {
    world.catalog.tombstones().await.unwrap().into_iter().map(|(block, _)| block).collect()
}

#[tokio::test]
async fn folders_that_never_registered_are_tombstoned_with_their_tenant() {
    let world = World::new().await;
    let acme: TenantId = "acme".parse().unwrap();
    let listed = world.flush(&[row("acme", "shop", START * SECOND, 1)]).await;
    let whole = put_folder(&world, None, &[META_FILE, "samples.parquet"]).await;
    let half = put_folder(&world, Some(&acme), &["samples.parquet"]).await;
    world.hand.advance(24 * HOUR);
    let young = put_folder(&world, None, &[META_FILE]).await;
    let mut finder = finder(&world);
    let round = finder.run_round().await.unwrap();
    assert_eq!(round, OrphanRound { visited: 0, tombstoned: 0, is_last: true }, "they may still register");
    world.hand.advance(HOUR);
    let round = finder.run_round().await.unwrap();
    assert_eq!(round, OrphanRound { visited: 3, tombstoned: 2, is_last: true });
    assert_eq!(tombstones(&world).await, [whole, half].into());
    assert_eq!(finder.run_round().await.unwrap().tombstoned, 0, "each is found once");
    assert_eq!(world.listed().await[0].id, listed);
    world.hand.advance(DELETION_GRACE_PERIOD);
    let round = remover(&world).run_round(&facts(&world)).await.unwrap();
    assert_eq!((round.removed, round.failure.is_none()), (2, true));
    for (block, count) in [(whole, 0), (half, 0), (young, 1), (listed, 10)] {
        assert_eq!(world.keys(block).await.len(), count);
    }
}

#[tokio::test]
async fn objects_stay_for_plans_snapshots_restores_and_handoff() {
    let world = World::new().await;
    let flushed = world.flush(&[row("acme", "shop", START * SECOND, 1)]).await;
    world.compact().await;
    let merged = world.listed().await[0].id;
    world.catalog.tombstone_blocks(vec![merged], None).await.unwrap();
    let tombstoned_at = world.clock.wall();
    let mut remover = remover(&world);
    let run = async |remover: &mut ObjectRemover, facts: RemovalFacts| {
        remover.run_round(&facts).await.unwrap().removed
    };
    world.hand.advance(DELETION_GRACE_PERIOD - Duration::from_secs(1));
    assert_eq!(run(&mut remover, facts(&world)).await, 0, "a plan may name it");
    world.hand.advance(Duration::from_secs(1));
    let stale = RemovalFacts { snapshot_time: tombstoned_at, ..facts(&world) };
    assert_eq!(run(&mut remover, stale).await, 0, "a rebuild would miss its tombstone");
    let restorable = RemovalFacts { restorable: [merged].into(), ..facts(&world) };
    assert_eq!(run(&mut remover, restorable).await, 0, "an operator may restore it");
    assert_eq!(run(&mut remover, facts(&world)).await, 1);
    assert_eq!((world.keys(merged).await.len(), world.keys(flushed).await.len()), (0, 10));
    world.hand.advance(ID_WINDOW);
    assert_eq!(run(&mut remover, facts(&world)).await, 1, "no successor needs its ids any more");
    assert!(world.keys(flushed).await.is_empty());
}

#[tokio::test]
async fn removal_is_recorded_so_another_worker_repeats_none() {
    let world = World::new().await;
    let id = put_folder(&world, None, &[META_FILE]).await;
    world.catalog.tombstone_blocks(vec![id], None).await.unwrap();
    world.hand.advance(DELETION_GRACE_PERIOD);
    assert_eq!(remover(&world).run_round(&facts(&world)).await.unwrap().removed, 1);
    assert_eq!(remover(&world).run_round(&facts(&world)).await.unwrap().removed, 0);
    world.hand.advance(TOMBSTONE_RETENTION);
    remover(&world).run_round(&facts(&world)).await.unwrap();
    assert!(tombstones(&world).await.is_empty());
}

#[tokio::test]
async fn block_that_cannot_be_removed_keeps_only_its_own_tombstone() {
    let parent = tempfile::tempdir().unwrap();
    let world = World::with_local_bucket(parent.path()).await;
    let stuck = BlockId::new(world.clock.wall(), &world.random);
    // A folder in the place of an object cannot be removed as one.
    let place = parent.path().join(path(stuck, None, META_FILE).as_ref()).join("in the way");
    std::fs::create_dir_all(place).unwrap();
    let other = BlockId::new(world.clock.wall(), &world.random);
    world.catalog.tombstone_blocks(vec![stuck, other], None).await.unwrap();
    world.hand.advance(TOMBSTONE_RETENTION);
    let mut remover = remover(&world);
    let round = remover.run_round(&facts(&world)).await.unwrap();
    assert_eq!((round.removed, round.failure.is_some()), (1, true));
    assert_eq!(tombstones(&world).await, [stuck].into());
}

#[tokio::test]
async fn worker_runs_rounds_only_while_it_is_active() {
    let world = World::new().await;
    let id = put_folder(&world, None, &[META_FILE]).await;
    world.hand.advance(25 * HOUR);
    let worker = MaintenanceWorker::new(world.clock.clone(), finder(&world), remover(&world));
    let shutdown = CancellationToken::new();
    let is_active = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    let facts_of_now = || std::future::ready(Ok(facts(&world)));
    let running = require_send(worker.run(|| is_active.load(order), facts_of_now, shutdown.clone()));
    let watched = async {
        let minutes = async |count: u64| {
            for _ in 0..count {
                world.hand.wait_for_sleepers(1).await;
                world.hand.advance(Duration::from_secs(60));
            }
            world.hand.wait_for_sleepers(1).await;
        };
        minutes(5).await;
        assert!(tombstones(&world).await.is_empty());
        is_active.store(true, order);
        minutes(1).await;
        assert_eq!(tombstones(&world).await, [id].into());
        minutes(42).await;
        assert!(world.keys(id).await.is_empty());
        shutdown.cancel();
    };
    tokio::join!(running, watched);
    let stats = worker.stats();
    assert_eq!((stats.orphaned_blocks, stats.removed_blocks, stats.failed_rounds), (1, 1, 0));
    assert!(world.clock.wall() > Timestamp::from_seconds(START));
}
