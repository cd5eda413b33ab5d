//! Workers of one history: the real planner, random jobs, and workers that stop in the middle of a job.

use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::{Catalog, CatalogCommand, JOB_LEASE};
use athanor_chassis::{ComputePool, Tier};
use athanor_compactor::{Compactor, CompactorConfig, CompactorDeps, JobOutcome, MemoryScratch};
use athanor_integration::compactor::{CompactionOutcome, TestCompactor};

use super::{CLUSTER, History, NODE};
use crate::compaction::stopped_workers::{StopPoint, StoppedWorker};

impl History {
    /// Runs jobs of the real planner until it has none, after the leases of stopped workers. Copies are then merged
    /// before the raw rows of their first copies expire.
    pub(super) async fn compact_all(&mut self) {
        self.hand.advance(JOB_LEASE + Duration::from_secs(1));
        self.retry_parts().await;
        let mut rounds = 0;
        while self.run_planned_jobs().await {
            rounds += 1;
            assert!(rounds < 1_000, "the planner does not come to an end");
        }
    }

    pub(super) fn compactor_deps(&self, catalog: Arc<dyn Catalog>) -> CompactorDeps {
        CompactorDeps {
            catalog,
            store: self.store.clone(),
            clock: self.clock.clone(),
            random: self.random.split(),
            compute: ComputePool::inline(),
            scratch: Arc::new(MemoryScratch),
            node: NODE,
            cluster: CLUSTER,
        }
    }

    /// Runs jobs of the real planner. Returns whether there may be more.
    pub(super) async fn run_planned_jobs(&mut self) -> bool {
        let catalog = Arc::clone(&self.catalog) as Arc<dyn Catalog>;
        let compactor = Compactor::new(CompactorConfig::default(), self.compactor_deps(catalog));
        let mut has_more = true;
        for _ in 0..1 + self.draw(8) {
            match compactor.run_once().await.unwrap() {
                JobOutcome::Finished => self.count("jobs of the planner"),
                JobOutcome::Idle => {
                    has_more = false;
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        self.record_outputs(&compactor).await;
        has_more
    }

    pub(super) async fn record_outputs(&mut self, compactor: &Compactor) {
        if compactor.stats().duplicates > 0 {
            self.count("duplicates dropped");
        }
        for block in self.catalog.blocks().await.unwrap() {
            match (block.tier, block.level) {
                (Tier::Raw, 1) => self.count("blocks of ten minutes"),
                (Tier::Raw, 2) => self.count("blocks of an hour"),
                (Tier::Raw, 3) => self.count("blocks of a day"),
                (Tier::FiveMinutes, 3) => self.count("days of the tier of 5 minutes"),
                (_, 4) => self.count("30 days of a coarse tier"),
                _ => {}
            }
        }
        self.record_covered().await;
    }

    /// Starts a worker that stops at a random call to the catalog: killed, or paused until later.
    pub(super) async fn stop_worker(&mut self) {
        // The same name as that of other workers, or a new one.
        let node = NODE + self.draw(2);
        let point =
            StopPoint { call: self.draw(7), is_after: self.draw(2) == 0, is_killed: self.draw(3) == 0 };
        let deps = self.compactor_deps(Arc::clone(&self.catalog) as Arc<dyn Catalog>);
        match StoppedWorker::start(CompactorDeps { node, ..deps }, point).await {
            Some(_) if point.is_killed => self.count("killed workers"),
            Some(worker) => {
                self.count("paused workers");
                self.stopped.push(worker);
            }
            None => {}
        }
        self.record_covered().await;
    }

    /// Lets a paused worker continue. Its job finishes, or it is fenced.
    pub(super) async fn continue_worker(&mut self) {
        if self.stopped.is_empty() {
            return;
        }
        let place = self.draw(self.stopped.len() as u64) as usize;
        let worker = self.stopped.swap_remove(place);
        let event = match worker.resume().await {
            JobOutcome::Finished => "paused workers that finished",
            JobOutcome::ClaimEnded => "paused workers that were fenced",
            JobOutcome::Failed { .. } => "paused workers that failed",
            JobOutcome::Idle => "paused workers without a job",
        };
        self.count(event);
        self.record_covered().await;
    }

    /// Forgets failures, such as those of expired leases, as an operator does.
    pub(super) async fn retry_parts(&self) {
        let retry = CatalogCommand::RetryParts { parts: Vec::new() };
        self.catalog.apply_command(retry).await.unwrap();
    }

    pub(super) async fn run_random_job(&mut self) {
        let compactor = TestCompactor {
            catalog: Arc::clone(&self.catalog) as Arc<dyn Catalog>,
            store: self.store.clone(),
            clock: self.clock.clone(),
            random: self.random.split(),
            cluster: format!("{CLUSTER:032x}"),
            written: Arc::clone(&self.written),
            gives_up_claims: self.draw(2) == 0,
        };
        for _ in 0..1 + self.draw(3) {
            match compactor.compact_once().await.unwrap() {
                CompactionOutcome::Replaced => self.count("random jobs"),
                CompactionOutcome::Left => self.count("jobs that ended early"),
                CompactionOutcome::Idle | CompactionOutcome::Late => {}
            }
        }
    }
}
