//! Workers that stop at a call to the catalog: killed there, or paused until after their lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use athanor_catalog::BlockId;
use athanor_catalog::{
    BlockEntry, BlockListing, Catalog, CatalogCommand, CatalogError, CommandResult, CompactionJob,
    CompactionStatus, JobRequest, TenantDocuments, Tombstone,
};
use athanor_chassis::TenantId;
use athanor_compactor::{Compactor, CompactorConfig, CompactorDeps, JobOutcome};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Call at which a worker stops.
#[derive(Clone, Copy, Debug)]
pub struct StopPoint {
    /// Number of calls before it.
    pub call: u64,
    /// True if the catalog receives the call before the worker stops.
    pub is_after: bool,
    /// True if the worker never continues.
    pub is_killed: bool,
}

/// Worker in the middle of a job.
pub struct StoppedWorker {
    gate: Arc<GatedCatalog>,
    running: JoinHandle<JobOutcome>,
}

/// Catalog that holds the calls of a worker from one of them on.
struct GatedCatalog {
    inner: Arc<dyn Catalog>,
    point: StopPoint,
    calls: AtomicU64,
    stopped: Notify,
    resumed: Notify,
    is_open: std::sync::atomic::AtomicBool,
}

impl StoppedWorker {
    /// Runs a worker until it stops. None if it ended before.
    pub async fn start(deps: CompactorDeps, point: StopPoint) -> Option<Self> {
        let gate = Arc::new(GatedCatalog {
            inner: Arc::clone(&deps.catalog),
            point,
            calls: AtomicU64::new(0),
            stopped: Notify::new(),
            resumed: Notify::new(),
            is_open: false.into(),
        });
        let catalog = Arc::clone(&gate) as Arc<dyn Catalog>;
        let compactor = Compactor::new(CompactorConfig::default(), CompactorDeps { catalog, ..deps });
        let mut running = spawn(async move { compactor.run_once().await.unwrap() });
        tokio::select! {
            biased;
            () = gate.stopped.notified() => {}
            _ = &mut running => return None,
        }
        if point.is_killed {
            running.abort();
        }
        Some(Self { gate, running })
    }

    /// Lets the worker continue to the end of its job.
    pub async fn resume(self) -> JobOutcome {
        self.gate.is_open.store(true, Ordering::Relaxed);
        self.gate.resumed.notify_waiters();
        self.running.await.unwrap()
    }
}

#[expect(clippy::disallowed_methods, reason = "a worker that outlives the step that started it")]
fn spawn(worker: impl Future<Output = JobOutcome> + Send + 'static) -> JoinHandle<JobOutcome> {
    tokio::spawn(worker)
}

impl GatedCatalog {
    /// Passes a call on. It waits before or after the catalog while the worker is stopped.
    async fn pass<R>(&self, call: impl Future<Output = R> + Send) -> R {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let is_at_point = number == self.point.call;
        // Renewals of the lease stop as well.
        if number > self.point.call || (is_at_point && !self.point.is_after) {
            self.wait_until_open(is_at_point).await;
        }
        let result = call.await;
        if is_at_point && self.point.is_after {
            self.wait_until_open(true).await;
        }
        result
    }

    async fn wait_until_open(&self, is_at_point: bool) {
        let resumed = self.resumed.notified();
        if self.is_open.load(Ordering::Relaxed) {
            return;
        }
        if is_at_point {
            self.stopped.notify_one();
        }
        resumed.await;
    }
}

#[async_trait]
impl Catalog for GatedCatalog {
    async fn propose(&self, command: CatalogCommand) -> Result<CommandResult, CatalogError> {
        self.pass(self.inner.propose(command)).await
    }

    async fn compaction_jobs(&self, request: &JobRequest) -> Result<Vec<CompactionJob>, CatalogError> {
        self.pass(self.inner.compaction_jobs(request)).await
    }

    async fn list_blocks(&self, tenant: &TenantId, from: i64, to: i64) -> Result<BlockListing, CatalogError> {
        self.pass(self.inner.list_blocks(tenant, from, to)).await
    }

    async fn blocks(&self) -> Result<Vec<BlockEntry>, CatalogError> {
        self.pass(self.inner.blocks()).await
    }

    async fn tenants(&self) -> Result<Vec<TenantId>, CatalogError> {
        self.pass(self.inner.tenants()).await
    }

    async fn tenant_documents(&self, tenant: &TenantId) -> Result<TenantDocuments, CatalogError> {
        self.pass(self.inner.tenant_documents(tenant)).await
    }

    async fn tombstones(&self) -> Result<Vec<(BlockId, Tombstone)>, CatalogError> {
        self.pass(self.inner.tombstones()).await
    }

    async fn compaction_status(&self) -> Result<CompactionStatus, CatalogError> {
        self.pass(self.inner.compaction_status()).await
    }
}
