//! Compactor for tests: the real one, with a planner that chooses parts at random.
//!
//! ```text
//!  listed blocks ─► random parts ─► Compactor: claim, merge, upload ─► FinishJob
//! ```
//! Several compactors run concurrently. Some end after their upload, before the catalog receives `FinishJob`,
//! like a process that crashes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use athanor_catalog::{
    BlockEntry, BlockListing, Catalog, CatalogCommand, CatalogError, CommandResult, CompactionJob,
    JobRequest, ShardLogRange, TenantDocuments, Tombstone,
};
use athanor_catalog::{BlockId, CompactionStatus};
use athanor_chassis::{Clock, ComputePool, ErrorCode, Random, Status, TenantId, Tier};
use athanor_compactor::{Compactor, CompactorConfig, CompactorDeps, JobOutcome, MemoryScratch};
use athanor_storage::Store;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Number of jobs after which one ends before `FinishJob`, like a crash.
const UNFINISHED_INTERVAL: u64 = 8;
/// Maximum number of blocks that one job reads.
const MAX_MERGE_INPUTS: u64 = 5;

/// Compactor that merges random parts of a cluster's blocks.
#[derive(Clone)]
pub struct TestCompactor {
    /// Catalog that lists the blocks and finishes jobs.
    pub catalog: Arc<dyn Catalog>,
    /// Bucket that holds the blocks.
    pub store: Store,
    /// Clock that names new blocks.
    pub clock: Clock,
    /// Source of the random choices and of block ids.
    pub random: Random,
    /// Cluster id that new blocks carry.
    pub cluster: String,
    /// Number of jobs that wrote their blocks.
    pub written: Arc<AtomicU64>,
    /// True if claims of jobs that end before `FinishJob` are given up at once. Otherwise their leases expire.
    pub gives_up_claims: bool,
}

/// Outcome of one compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CompactionOutcome {
    /// No block was listed, or the chosen parts must not be merged.
    Idle,
    /// The new blocks replaced the parts.
    Replaced,
    /// The new blocks were written, and the parts stay listed.
    Left,
    /// Another compactor or retention had replaced or removed a part.
    Late,
}

/// Catalog client whose jobs are random, and which does not survive some of them.
struct RandomPlanner {
    catalog: Arc<dyn Catalog>,
    random: Random,
    written: Arc<AtomicU64>,
    /// Token of the job that ended before `FinishJob`.
    ended: Mutex<Option<u64>>,
    crash: Notify,
}

impl TestCompactor {
    /// Merges one random set of parts.
    pub async fn compact_once(&self) -> Result<CompactionOutcome, Status> {
        let planner = Arc::new(RandomPlanner {
            catalog: Arc::clone(&self.catalog),
            random: self.random.split(),
            written: Arc::clone(&self.written),
            ended: Mutex::default(),
            crash: Notify::new(),
        });
        let cluster =
            u128::from_str_radix(&self.cluster, 16).expect("a cluster id has 32 hexadecimal digits");
        let deps = CompactorDeps {
            catalog: Arc::clone(&planner) as Arc<dyn Catalog>,
            store: self.store.clone(),
            clock: self.clock.clone(),
            random: self.random.split(),
            compute: ComputePool::inline(),
            scratch: Arc::new(MemoryScratch),
            node: self.random.next_u64(),
            cluster,
        };
        let compactor = Compactor::new(CompactorConfig::default(), deps);
        let outcome = tokio::select! {
            biased;
            () = planner.crash.notified() => None,
            outcome = compactor.run_once() => Some(outcome?),
        };
        match outcome {
            None => {
                let ended = *planner.ended.lock();
                self.give_up_claim(ended).await?;
                Ok(CompactionOutcome::Left)
            }
            Some(JobOutcome::Idle) => Ok(CompactionOutcome::Idle),
            Some(JobOutcome::Finished) => Ok(CompactionOutcome::Replaced),
            Some(JobOutcome::ClaimEnded) => Ok(CompactionOutcome::Late),
            Some(JobOutcome::Failed { reason, .. }) => Err(Status::new(ErrorCode::Internal, reason)),
        }
    }

    /// Gives up the claim of a job that ended early, and forgets the failure, so that another job takes its
    /// parts at once.
    async fn give_up_claim(&self, token: Option<u64>) -> Result<(), Status> {
        let Some(token) = token.filter(|_| self.gives_up_claims) else { return Ok(()) };
        let fail = CatalogCommand::FailJob { token, reason: "ended early".to_owned(), culprit: None };
        for command in [fail, CatalogCommand::RetryParts { parts: Vec::new() }] {
            self.catalog.propose(command).await.map_err(|error| Status::from_error(&error))?;
        }
        Ok(())
    }
}

impl RandomPlanner {
    /// Chooses random blocks of one tier, and all or some of their tenants.
    fn plan(&self, listed: &[BlockEntry]) -> Option<CompactionJob> {
        let tier = listed.get(self.random.next_below(listed.len().max(1) as u64) as usize)?.tier;
        let listed: Vec<BlockEntry> = listed.iter().filter(|block| block.tier == tier).cloned().collect();
        let count = 1 + self.random.next_below(MAX_MERGE_INPUTS);
        let mut chosen = BTreeMap::new();
        for _ in 0..count {
            let input = listed.get(self.random.next_below(listed.len().max(1) as u64) as usize)?;
            chosen.insert(input.id, input.clone());
        }
        let spans = chosen.values().flat_map(|input| &input.tenants);
        let mut tenants: BTreeSet<TenantId> = spans.map(|span| span.tenant.clone()).collect();
        if !tier.is_raw() || self.random.next_below(2) == 0 {
            let kept = tenants.iter().nth(self.random.next_below(tenants.len() as u64) as usize).cloned();
            tenants = kept.into_iter().collect();
        }
        let mut inputs: Vec<BlockEntry> = chosen.into_values().collect();
        for input in &mut inputs {
            input.tenants.retain(|span| tenants.contains(&span.tenant));
        }
        inputs.retain(|input| !input.tenants.is_empty());
        if tier.is_raw() && has_conflict(&inputs, &tenants, &listed) {
            return None;
        }
        let arrival = |input: &BlockEntry| input.tenants.iter().map(|span| input.newest_arrival(span)).max();
        inputs.sort_by_key(|input| (arrival(input), input.id));
        let highest = inputs.iter().map(|input| u64::from(input.level)).max()?;
        let (min_level, max_level) = job_levels(tier);
        let lowest = highest.max(min_level);
        let level = lowest + self.random.next_below(max_level + 1 - lowest);
        let bytes = inputs.iter().map(|input| input.bytes).sum();
        let splits = 1 + self.random.next_below(2) as u32;
        Some(CompactionJob { level: level as u8, tier, inputs, bytes, splits })
    }
}

/// Returns the lowest and the highest level of a job that merges parts of a tier.
fn job_levels(tier: Tier) -> (u64, u64) {
    match tier {
        Tier::Raw => (1, 3),
        Tier::FiveMinutes => (3, 3),
        Tier::OneHour | Tier::OneDay => (3, 4),
    }
}

/// Returns whether the outputs of a job may share a row with a flushed block that keeps a part of one of the
/// tenants.
fn has_conflict(inputs: &[BlockEntry], tenants: &BTreeSet<TenantId>, listed: &[BlockEntry]) -> bool {
    let rows = ShardLogRange::join_adjacent(inputs.iter().flat_map(BlockEntry::log_ranges));
    let meets = |other: &BlockEntry| {
        other.log_ranges().any(|others| rows.iter().any(|rows| rows.overlaps(&others)))
            && tenants.iter().any(|tenant| other.tenant_span(tenant).is_some())
    };
    let is_input = |other: &BlockEntry| inputs.iter().any(|input| input.id == other.id);
    listed.iter().any(|other| other.level == 0 && !is_input(other) && meets(other))
}

#[async_trait]
impl Catalog for RandomPlanner {
    async fn propose(&self, command: CatalogCommand) -> Result<CommandResult, CatalogError> {
        let CatalogCommand::FinishJob { token, .. } = &command else {
            return self.catalog.propose(command).await;
        };
        let written = self.written.fetch_add(1, Ordering::Relaxed);
        if written % UNFINISHED_INTERVAL == UNFINISHED_INTERVAL - 1 {
            *self.ended.lock() = Some(*token);
            self.crash.notify_one();
            return std::future::pending().await;
        }
        let result = self.catalog.propose(command.clone()).await?;
        // A response may be lost, so the command is sent again at times.
        match self.random.next_below(2) {
            0 => Ok(result),
            _ => self.catalog.propose(command).await,
        }
    }

    async fn compaction_jobs(&self, _: &JobRequest) -> Result<Vec<CompactionJob>, CatalogError> {
        let listed = self.catalog.blocks().await?;
        Ok(self.plan(&listed).into_iter().collect())
    }

    async fn list_blocks(&self, tenant: &TenantId, from: i64, to: i64) -> Result<BlockListing, CatalogError> {
        self.catalog.list_blocks(tenant, from, to).await
    }

    async fn blocks(&self) -> Result<Vec<BlockEntry>, CatalogError> {
        self.catalog.blocks().await
    }

    async fn tenants(&self) -> Result<Vec<TenantId>, CatalogError> {
        self.catalog.tenants().await
    }

    async fn tenant_documents(&self, tenant: &TenantId) -> Result<TenantDocuments, CatalogError> {
        self.catalog.tenant_documents(tenant).await
    }

    async fn tombstones(&self) -> Result<Vec<(BlockId, Tombstone)>, CatalogError> {
        self.catalog.tombstones().await
    }

    async fn compaction_status(&self) -> Result<CompactionStatus, CatalogError> {
        self.catalog.compaction_status().await
    }
}
