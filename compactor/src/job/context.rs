//! Dependencies and limits of one running job.

use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::{BlockEntry, BlockId, Catalog, CompactionJob};
use athanor_chassis::{Backoff, Clock, ComputePool, CpuActivity, Random, TenantId, Timestamp};
use athanor_storage::{Store, StoreError};

use crate::claim::JobClaim;
use crate::error::{JobError, is_temporary};
use crate::scratch::JobScratch;

/// Pause between attempts while the bucket is unavailable. The store retries each call before that.
const UNAVAILABLE_BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(30));

/// Dependencies and limits of one running job.
pub(crate) struct JobContext<'j> {
    pub(crate) job: &'j CompactionJob,
    pub(crate) claim: Arc<JobClaim>,
    pub(crate) catalog: &'j dyn Catalog,
    pub(crate) store: &'j Store,
    pub(crate) clock: &'j Clock,
    pub(crate) random: &'j Random,
    pub(crate) compute: &'j ComputePool,
    pub(crate) scratch: JobScratch,
    /// Id of the cluster, as blocks record it.
    pub(crate) cluster: &'j str,
    /// Time for the ids of outputs.
    pub(crate) name_time: Timestamp,
    /// Memory limit of one merge, in bytes.
    pub(crate) max_memory: u64,
}

impl JobContext<'_> {
    /// Runs work on the compute pool. Its CPU time counts for compaction.
    pub(crate) async fn run_on_pool<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, JobError> {
        self.check_claim()?;
        Ok(self.compute.run_as(CpuActivity::Compaction, work).await?)
    }

    /// Repeats a call while the bucket is unavailable, as long as the claim lasts. An outage of the bucket is no
    /// failure of a part.
    pub(crate) async fn until_available<R, F>(
        &self,
        call: impl Fn() -> F,
    ) -> Result<Result<R, StoreError>, JobError>
    where
        F: Future<Output = Result<R, StoreError>>,
    {
        let mut failures = 0;
        loop {
            self.check_claim()?;
            match call().await {
                Err(error) if is_temporary(&error) => {
                    let job = self.claim.token();
                    tracing::warn!(job, %error, "bucket is unavailable, the compaction job waits");
                    UNAVAILABLE_BACKOFF.wait(failures, self.clock, self.random).await;
                    failures += 1;
                }
                done => return Ok(done),
            }
        }
    }

    /// Lists a tenant's blocks between two times. Waits while the catalog is unavailable, as long as the claim
    /// lasts.
    pub(crate) async fn list_blocks(
        &self,
        tenant: &TenantId,
        from: i64,
        to: i64,
    ) -> Result<Vec<BlockEntry>, JobError> {
        let mut failures = 0;
        loop {
            self.check_claim()?;
            match self.catalog.list_blocks(tenant, from, to).await {
                Ok(listing) => return Ok(listing.blocks),
                Err(error) => {
                    let job = self.claim.token();
                    tracing::warn!(job, %error, "catalog is unavailable, the compaction job waits");
                    UNAVAILABLE_BACKOFF.wait(failures, self.clock, self.random).await;
                    failures += 1;
                }
            }
        }
    }

    /// Returns an error if the claim ended.
    pub(crate) fn check_claim(&self) -> Result<(), JobError> {
        match self.claim.has_ended() {
            true => Err(JobError::ClaimEnded),
            false => Ok(()),
        }
    }

    /// Generates the id of an output. It is later than the ids of all inputs, even if another clock named them.
    pub(crate) fn new_block_id(&self) -> BlockId {
        let newest = self.job.inputs.iter().map(|input| input.id.named_at()).max();
        let after = newest.unwrap_or(Timestamp::UNIX_EPOCH).plus(Duration::from_millis(1));
        BlockId::new(self.name_time.max(after), self.random)
    }
}
