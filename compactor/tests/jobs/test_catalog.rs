//! Catalog in memory that plans simple jobs, and loses responses on request.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;

use async_trait::async_trait;
use athanor_catalog::{
    AgeReport, BlockEntry, BlockId, BlockListing, Catalog, CatalogCommand, CatalogError, CommandResult,
    CompactionJob, CompactionStatus, InMemoryCatalog, JobRequest, PartId, RetentionPolicy, TenantDocuments,
    Tombstone,
};
use athanor_chassis::{Clock, ErrorCode, Status, TenantId, Tier};
use parking_lot::Mutex;

/// Level and number of pieces of the planned jobs.
#[derive(Clone, Copy, Debug)]
pub struct JobPlan {
    pub level: u8,
    pub splits: u32,
    pub tier: Tier,
}

type BeforeFinish = Box<dyn FnOnce() + Send>;
type JobBeforeFinish = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Catalog of the tests.
pub struct TestCatalog {
    pub inner: InMemoryCatalog,
    /// Jobs of the tests. None for those of the catalog's planner.
    pub plan: Mutex<Option<JobPlan>>,
    /// Responses of `FinishJob` that are lost after the command was applied.
    pub lost_finishes: Mutex<u32>,
    /// Runs before the next `FinishJob`.
    pub before_finish: Mutex<Option<BeforeFinish>>,
    /// Runs as another job before the next `FinishJob`.
    pub job_before_finish: Mutex<Option<JobBeforeFinish>>,
    /// Blocks that no job takes.
    pub hidden: Mutex<BTreeSet<BlockId>>,
}

impl TestCatalog {
    pub fn new(clock: Clock) -> Self {
        Self {
            inner: InMemoryCatalog::new(clock),
            plan: Mutex::new(Some(JobPlan { level: 1, splits: 1, tier: Tier::Raw })),
            lost_finishes: Mutex::new(0),
            before_finish: Mutex::new(None),
            job_before_finish: Mutex::new(None),
            hidden: Mutex::default(),
        }
    }

    /// Returns the parts of a plan's tier below its level, which a job may take, by tenant.
    fn open_parts(&self, plan: JobPlan, status: &CompactionStatus) -> BTreeMap<TenantId, Vec<BlockEntry>> {
        let claimed: BTreeSet<PartId> = status.claims.values().flat_map(|claim| claim.parts.iter()).collect();
        let quarantined = quarantined(status);
        let mut parts: BTreeMap<TenantId, Vec<BlockEntry>> = BTreeMap::new();
        let state = self.inner.state();
        let hidden = self.hidden.lock().clone();
        let is_open = |block: &&BlockEntry| {
            block.level < plan.level && block.tier == plan.tier && !hidden.contains(&block.id)
        };
        for block in state.blocks().filter(is_open) {
            let header = BlockEntry { tenants: Vec::new(), ..block.clone() };
            for span in &block.tenants {
                let part = PartId { block: block.id, tenant: span.tenant.clone() };
                if !claimed.contains(&part) && !quarantined.contains(&part) {
                    let input = BlockEntry { tenants: vec![span.clone()], ..header.clone() };
                    parts.entry(span.tenant.clone()).or_default().push(input);
                }
            }
        }
        parts
    }
}

/// Returns the parts that are excluded from all jobs.
pub fn quarantined(status: &CompactionStatus) -> BTreeSet<PartId> {
    let quarantined = status.failures.iter().filter(|(_, failures)| failures.is_quarantined);
    quarantined.map(|(part, _)| part.clone()).collect()
}

/// Returns one job with parts of several tenants.
fn shared_job(plan: JobPlan, parts: impl Iterator<Item = BlockEntry>) -> Option<CompactionJob> {
    let mut inputs: BTreeMap<BlockId, BlockEntry> = BTreeMap::new();
    for part in parts {
        match inputs.get_mut(&part.id) {
            Some(input) => input.tenants.extend(part.tenants),
            None => drop(inputs.insert(part.id, part)),
        }
    }
    let mut inputs: Vec<BlockEntry> = inputs.into_values().collect();
    let arrival = |input: &BlockEntry| input.tenants.iter().map(|span| input.newest_arrival(span)).max();
    inputs.sort_by_key(|input| (arrival(input), input.id));
    let bytes = inputs.iter().map(|input| input.bytes).sum();
    let JobPlan { level, splits, tier } = plan;
    (!inputs.is_empty()).then_some(CompactionJob { level, tier, inputs, bytes, splits })
}

#[async_trait]
impl Catalog for TestCatalog {
    async fn propose(&self, command: CatalogCommand) -> Result<CommandResult, CatalogError> {
        let is_finish = matches!(command, CatalogCommand::FinishJob { .. });
        if let Some(run) = self.before_finish.lock().take_if(|_| is_finish) {
            run();
        }
        let job = self.job_before_finish.lock().take_if(|_| is_finish);
        if let Some(job) = job {
            job.await;
        }
        let result = self.inner.propose(command).await?;
        let mut lost = self.lost_finishes.lock();
        if is_finish && *lost > 0 {
            *lost -= 1;
            return Err(CatalogError::Unavailable(Status::new(ErrorCode::Unavailable, "response lost")));
        }
        Ok(result)
    }

    async fn list_blocks(&self, tenant: &TenantId, from: i64, to: i64) -> Result<BlockListing, CatalogError> {
        self.inner.list_blocks(tenant, from, to).await
    }

    async fn blocks(&self) -> Result<Vec<BlockEntry>, CatalogError> {
        self.inner.blocks().await
    }

    async fn tenants(&self) -> Result<Vec<TenantId>, CatalogError> {
        self.inner.tenants().await
    }

    async fn tenant_documents(&self, tenant: &TenantId) -> Result<TenantDocuments, CatalogError> {
        self.inner.tenant_documents(tenant).await
    }

    async fn tombstones(&self) -> Result<Vec<(BlockId, Tombstone)>, CatalogError> {
        self.inner.tombstones().await
    }

    async fn block_ages(&self, policy: &RetentionPolicy) -> Result<AgeReport, CatalogError> {
        self.inner.block_ages(policy).await
    }

    async fn compaction_status(&self) -> Result<CompactionStatus, CatalogError> {
        self.inner.compaction_status().await
    }

    async fn compaction_jobs(&self, request: &JobRequest) -> Result<Vec<CompactionJob>, CatalogError> {
        let plan = *self.plan.lock();
        let Some(plan) = plan else { return self.inner.compaction_jobs(request).await };
        let status = self.compaction_status().await?;
        let parts = self.open_parts(plan, &status);
        // A tenant with a quarantined part shares no output: its other rows overlap that part's log range.
        let irregular: BTreeSet<TenantId> =
            quarantined(&status).into_iter().map(|part| part.tenant).collect();
        let is_alone = |tenant: &TenantId| plan.level > 1 || irregular.contains(tenant);
        let together = parts.iter().filter(|(tenant, _)| !is_alone(tenant));
        let together = shared_job(plan, together.flat_map(|(_, parts)| parts.clone()));
        let alone = parts.iter().filter(|(tenant, _)| is_alone(tenant));
        let alone = alone.filter_map(|(_, parts)| shared_job(plan, parts.iter().cloned()));
        Ok(together.into_iter().chain(alone).take(request.limit as usize).collect())
    }
}
