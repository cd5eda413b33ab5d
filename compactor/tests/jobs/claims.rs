//! Claims: stale tokens lose, lost responses are retried, removed parts end a job without a failure.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::{Catalog, CatalogCommand, JOB_LEASE, JobParts};
use athanor_chassis::time::clock::ManualClock;
use athanor_compactor::{CompactorConfig, JobOutcome, OrphanFinder};
use tokio_util::sync::CancellationToken;

use crate::world::{Row, SECOND, START, World, model, require_send, row};

/// Returns rows of one window.
fn rows() -> Vec<Row> {
    (0..9).map(|id| row("acme", "shop", START * SECOND + 1 + id as i64, id)).collect()
}

/// Runs a future, and advances the clock whenever it waits.
async fn advance_until<F: Future>(hand: &ManualClock, future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        tokio::select! {
            biased;
            output = &mut future => return output,
            () = tokio::task::yield_now() => drop(hand.advance_to_next()),
        }
    }
}

#[tokio::test]
async fn worker_that_lost_its_claim_changes_nothing() {
    let world = World::new().await;
    world.flush(&rows()).await;
    let catalog = Arc::clone(&world.catalog);
    let hand = world.hand.clone();
    // Another worker claims the parts while this one uploads its outputs.
    *world.catalog.before_finish.lock() = Some(Box::new(move || {
        hand.advance(JOB_LEASE + Duration::from_secs(1));
        let parts = JobParts::from_entries(catalog.inner.state().blocks());
        let claim = CatalogCommand::ClaimParts { worker: 2, parts };
        let now = hand.clock().wall();
        catalog.inner.state().apply(now, claim);
    }));
    let before = world.listed().await;
    let compactor = world.compactor(CompactorConfig::default());
    assert_eq!(compactor.run_once().await.unwrap(), JobOutcome::ClaimEnded);
    assert_eq!(world.listed().await, before);
    assert_eq!(world.rows().await, model(&[&rows()]));
    let status = world.catalog.compaction_status().await.unwrap();
    assert_eq!(status.claims.len(), 1, "the other worker's claim stays");
    // The outputs are orphans, which are tombstoned once they cannot register any more.
    let mut finder = OrphanFinder::new(Arc::clone(&world.catalog) as _, world.store.clone());
    assert_eq!(finder.run_round().await.unwrap().tombstoned, 0);
    world.hand.advance(Duration::from_secs(25 * 3600));
    assert_eq!(finder.run_round().await.unwrap().tombstoned, 1);
}

#[tokio::test]
async fn finish_with_a_lost_response_is_retried() {
    let world = World::new().await;
    world.flush(&rows()).await;
    *world.catalog.lost_finishes.lock() = 3;
    let compactor = world.compactor(CompactorConfig::default());
    let outcome = advance_until(&world.hand, compactor.run_once()).await.unwrap();
    assert_eq!(outcome, JobOutcome::Finished);
    assert_eq!(world.rows().await, model(&[&rows()]));
    assert_eq!(world.listed().await.len(), 1);
}

#[tokio::test]
async fn removed_part_ends_the_job_without_a_failure() {
    let world = World::new().await;
    let removed = world.flush(&rows()).await;
    let catalog = Arc::clone(&world.catalog);
    let hand = world.hand.clone();
    *world.catalog.before_finish.lock() = Some(Box::new(move || {
        let command = CatalogCommand::TombstoneBlocks { blocks: vec![removed], tenant: None };
        catalog.inner.state().apply(hand.clock().wall(), command);
    }));
    let compactor = world.compactor(CompactorConfig::default());
    assert_eq!(compactor.run_once().await.unwrap(), JobOutcome::ClaimEnded);
    assert!(world.listed().await.is_empty());
    assert!(world.catalog.compaction_status().await.unwrap().failures.is_empty());
}

#[tokio::test]
async fn paused_compaction_runs_no_job() {
    let world = World::new().await;
    world.flush(&rows()).await;
    let pause = |paused| world.catalog.apply_command(CatalogCommand::PauseCompaction { paused });
    pause(true).await.unwrap();
    assert!(world.compact().await.is_empty());
    pause(false).await.unwrap();
    assert_eq!(world.compact().await, [JobOutcome::Finished]);
}

#[tokio::test]
async fn worker_with_a_wrong_clock_takes_the_time_of_the_catalog() {
    let world = World::new().await;
    world.flush(&rows()).await;
    let skewed = world.clock.with_skew(5 * 86_400 * SECOND);
    let compactor = world.compactor_with_clock(CompactorConfig::default(), skewed);
    let refused = compactor.run_once().await.unwrap();
    assert!(matches!(refused, JobOutcome::Failed { culprit: None, .. }), "{refused:?}");
    assert_eq!(compactor.run_once().await.unwrap(), JobOutcome::Finished);
    assert_eq!(world.rows().await, model(&[&rows()]));
}

#[tokio::test]
async fn running_compactor_merges_until_shutdown() {
    let world = World::new().await;
    let config = CompactorConfig { max_concurrent_jobs: 3, ..CompactorConfig::default() };
    let compactor = world.compactor(config);
    let shutdown = CancellationToken::new();
    let watched = async {
        for number in 0..4 {
            let flushed: Vec<Row> =
                rows().into_iter().map(|row| Row { id: row.id + number * 100, ..row }).collect();
            world.flush(&flushed).await;
            while world.listed().await.iter().any(|block| block.level == 0) {
                tokio::task::yield_now().await;
            }
        }
        shutdown.cancel();
    };
    let running = require_send(compactor.run(shutdown.clone()));
    advance_until(&world.hand, async { tokio::join!(running, watched) }).await;
    assert_eq!(world.rows().await.len(), 36);
}
