//! Reads of a voter for compactors: jobs, status, and facts about removals.
//!
//! The leader alone plans: its plans know which jobs it has offered. It is also the only voter that knows the
//! newest snapshot in the bucket.

use std::collections::BTreeSet;
use std::sync::Arc;

use athanor_catalog::{
    BlockId, CatalogError, CompactionJob, CompactionStatus, JobRequest, PlanInput, RemovalReport, Tombstone,
};
use athanor_chassis::{ErrorCode, Status, Timestamp};
use athanor_cluster::NodeId;

use super::MetastoreVoter;

impl MetastoreVoter {
    /// Returns an error unless this voter leads.
    fn check_leads(&self) -> Result<(), CatalogError> {
        let leader = self.leader();
        match leader.here {
            true => Ok(()),
            false => {
                let message = "this voter does not lead the catalog; send the request to the leader";
                Err(CatalogError::Unavailable(Status::new(ErrorCode::NotLeader, message)))
            }
        }
    }

    /// Returns the input of a plan, with all nodes that claim parts or requested jobs lately as workers.
    fn plan_input(&self) -> PlanInput {
        let time = self.time();
        let requesting = self.shared.planner.workers();
        self.shared.group.with_state_machine(|machine| {
            let state = machine.state();
            let mut workers: BTreeSet<NodeId> = state.claiming_workers();
            workers.extend(requesting);
            state.plan_input(time, workers.len() as u32)
        })
    }

    pub(super) async fn offer_jobs(&self, request: &JobRequest) -> Result<Vec<CompactionJob>, CatalogError> {
        self.check_leads()?;
        let clock = &self.shared.clock;
        let planner = &self.shared.planner;
        planner.record_worker(request.worker, clock.monotonic());
        let _single_flight = planner.planning.lock().await;
        if let Some(jobs) = planner.offer_jobs(request, clock.monotonic()) {
            return Ok(jobs);
        }
        self.ensure_current().await?;
        let input = self.plan_input();
        let planned_at = clock.monotonic();
        let planned = planner.plan(input, request, planned_at, &self.shared.compute).await;
        planned.map_err(CatalogError::Unavailable)?;
        Ok(planner.offer_jobs(request, planned_at).unwrap_or_default())
    }

    pub(super) async fn current_status(&self) -> Result<Arc<CompactionStatus>, CatalogError> {
        self.check_leads()?;
        let clock = &self.shared.clock;
        let planner = &self.shared.planner;
        let _single_flight = planner.planning.lock().await;
        if let Some(status) = planner.recent_status(clock.monotonic()) {
            return Ok(status);
        }
        self.ensure_current().await?;
        let input = self.plan_input();
        let computed = planner.compute_status(input, clock.monotonic(), &self.shared.compute).await;
        computed.map_err(CatalogError::Unavailable)
    }

    /// Returns the state of compaction as this voter last computed it. None unless it leads.
    pub fn last_compaction_status(&self) -> Option<Arc<CompactionStatus>> {
        self.shared.planner.last_status().filter(|_| self.leader().here)
    }

    pub(super) async fn current_removal_report(&self) -> Result<RemovalReport, CatalogError> {
        self.check_leads()?;
        let snapshot_time = self.snapshot_time();
        self.ensure_current().await?;
        let time = self.time();
        let group = &self.shared.group;
        Ok(group.with_state_machine(|machine| machine.state().removal_report(time, snapshot_time)))
    }

    /// Returns up to `limit` tombstones of the blocks after one, in the order of their ids.
    pub(crate) async fn tombstones_after(
        &self,
        after: Option<BlockId>,
        limit: usize,
    ) -> Result<Vec<(BlockId, Tombstone)>, CatalogError> {
        self.ensure_current().await?;
        let group = &self.shared.group;
        Ok(group.with_state_machine(|machine| {
            let all = machine.state().tombstones();
            let page = all.filter(|(block, _)| Some(*block) > after).take(limit);
            page.map(|(block, tombstone)| (block, tombstone.clone())).collect()
        }))
    }

    /// Returns the catalog's time at the newest snapshot that this voter knows to be in the bucket. A catalog
    /// that is never recovered from snapshots needs none, so that no time is too late.
    fn snapshot_time(&self) -> Timestamp {
        match self.shared.uploads_snapshots {
            true => *self.shared.snapshot_time.lock(),
            false => Timestamp::from_nanos(i64::MAX),
        }
    }

    /// Records that the bucket contains a snapshot of the catalog at a time.
    pub(crate) fn record_snapshot(&self, time: Timestamp) {
        let mut newest = self.shared.snapshot_time.lock();
        *newest = newest.max(time);
    }
}
