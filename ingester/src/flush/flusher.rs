//! Flush of heads: a frozen head becomes a block in the bucket and in the catalog, and the log is purged.
//!
//! ```text
//!  freeze ─► build ─► 10 objects, meta.json last ─► register ─► flush marker in the log ─► snapshot, purge
//! ```
//!
//! Each step may fail and be retried: each try has object names of its own, and a second registration changes
//! nothing. A block that was uploaded but not registered does not exist.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use athanor_block::{
    BlockFolder, BlockMeta, BlockOrigin, META_FILE, MemoryFolder, MemoryProfiles, PARQUET_FILES,
    write_from_memory,
};
use athanor_catalog::{BlockEntry, BlockId, Catalog, CatalogError, CommandError, ShardEntry};
use athanor_chassis::{Backoff, Clock, ComputePool, CpuActivity, ErrorCode, Random, Status, Tier, Timestamp};
use athanor_storage::Store;
use athanor_storage::path::{BlockOwner, FileName, ObjectKey};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::flush::uploaded_blocks::{UploadedBlocks, block_entry};
use crate::head_store::head::Head;
use crate::ingester::config::FlushConfig;
use crate::log::entry::ShardLogEntry;
use crate::log::state_machine::ShardStateMachine;
use crate::replication::lost_ids::report_lost_ids;
use crate::stats::FlushCounters;
use crate::write::shard::LeaderShard;

/// Dependencies of a head flusher.
#[derive(Clone)]
pub struct FlushDeps {
    /// Catalog in which blocks are registered.
    pub catalog: Arc<dyn Catalog>,
    /// Bucket to which block files are uploaded.
    pub store: Store,
    /// Wall and monotonic clock of the node.
    pub clock: Clock,
    /// Source of random numbers.
    pub random: Random,
    /// Thread pool that builds blocks.
    pub compute: ComputePool,
    /// ID of the cluster, which each block records.
    pub cluster: u128,
    /// Counters of the shard's flushes.
    pub(crate) counts: Arc<FlushCounters>,
}

/// Flusher of the heads of one shard.
pub struct HeadFlusher {
    config: FlushConfig,
    deps: FlushDeps,
    shard: Arc<LeaderShard>,
    entry: ShardEntry,
    asked: Arc<FlushRequests>,
    watermark: u64,
    /// Block that is in the bucket and not registered yet.
    uploaded: Option<BlockEntry>,
    /// Last entry that was replayed from the log. An earlier leader may have uploaded the blocks of heads up
    /// to here.
    read_back_to: u64,
    /// Registered index and block for which the log has no flush marker yet.
    untold: Option<(u64, BlockId)>,
    /// Catalog time, and the monotonic time at which it was received. Set once the catalog has rejected a
    /// block name.
    catalog_time: Option<(Timestamp, Duration)>,
}

/// Requests for an immediate flush, which wait until it is done.
///
/// Not a watch channel: that wakes waiters in a random order of its own, and a simulation must replay
/// exactly.
#[derive(Debug, Default)]
pub struct FlushRequests {
    wake: Notify,
    rounds: Mutex<FlushRounds>,
    /// Notified after each finished round.
    over: Notify,
}

/// Numbers of requested and of finished flushes.
#[derive(Clone, Copy, Debug, Default)]
struct FlushRounds {
    asked: u64,
    done: u64,
}

/// Number of tenants at which a head is large: its block's `meta.json` names each of them, and has a limit.
const MAX_TENANTS_PER_HEAD: usize = 50_000;
/// Maximum interval between checks of a head's age and size.
const FLUSH_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Backoff while the bucket or the catalog is unavailable: 200 ms, 1 s, 5 s, then 15 s.
const FLUSH_RETRY_BACKOFF: Backoff =
    Backoff { min: Duration::from_millis(200), max: Duration::from_secs(15), factor: 5, jitter: 0.0 };

impl FlushRequests {
    /// Flushes all heads and returns when their blocks are registered.
    pub async fn request_flush(&self) {
        let mine = {
            let mut rounds = self.rounds.lock();
            rounds.asked += 1;
            rounds.asked
        };
        self.wake.notify_one();
        loop {
            let mut over = pin!(self.over.notified());
            over.as_mut().enable();
            if self.rounds.lock().done >= mine {
                return;
            }
            over.await;
        }
    }

    fn rounds(&self) -> FlushRounds {
        *self.rounds.lock()
    }

    fn done(&self, round: u64) {
        self.rounds.lock().done = round;
        self.over.notify_waiters();
    }
}

impl HeadFlusher {
    /// Creates the flusher of a shard with a replayed log; `entry` is its entry in the catalog.
    pub fn new(
        config: FlushConfig,
        deps: FlushDeps,
        shard: Arc<LeaderShard>,
        entry: ShardEntry,
        asked: Arc<FlushRequests>,
    ) -> Self {
        let watermark = entry.watermark;
        // A crash may have come between registration and flush marker [INV-14].
        shard.heads().mark_flushed(watermark, deps.clock.monotonic());
        // Only the catalog knows the block.
        let untold = (shard.log().with_state_machine(ShardStateMachine::flushed_index) < watermark)
            .then_some((watermark, BlockId::from_number(0)));
        let read_back_to = shard.heads().frozen().last().map_or(0, |head| head.last_index());
        let uploaded = None;
        let catalog_time = None;
        Self { config, deps, shard, entry, asked, watermark, uploaded, read_back_to, untold, catalog_time }
    }

    /// Flushes when a head is due, or on request, until the future is dropped.
    pub async fn run(mut self) {
        let mut failures = 0usize;
        loop {
            // A short maximum age needs more frequent checks.
            let tick = FLUSH_CHECK_INTERVAL.min(self.config.max_head_age / 4).max(Duration::from_millis(10));
            let wait =
                if failures == 0 { tick } else { FLUSH_RETRY_BACKOFF.delay(failures - 1, &self.deps.random) };
            tokio::select! {
                biased;
                () = self.deps.clock.sleep(wait) => {}
                () = self.asked.wake.notified() => {}
            }
            let FlushRounds { asked, done } = self.asked.rounds();
            let due = asked > done || self.is_due();
            match self.round(due).await {
                Ok(()) => {
                    failures = 0;
                    if asked > done {
                        self.asked.done(asked);
                    }
                }
                Err(status) => {
                    failures += 1;
                    self.deps.counts.failed(&status);
                    tracing::warn!(shard = self.entry.id, failures, error = %status, "flush failed, will retry");
                }
            }
            self.shard.heads().expire(self.deps.clock.monotonic(), self.config.max_retained_bytes.as_usize());
        }
    }

    fn is_due(&self) -> bool {
        let head = self.shard.heads().current();
        let age = self.deps.clock.monotonic().saturating_sub(head.first_profile_at());
        !head.is_empty() && age >= self.config.max_head_age || self.is_large()
    }

    /// Returns whether the head is large. Names alone may make it large: it is then dropped, if it has no
    /// profile.
    fn is_large(&self) -> bool {
        let head = self.shard.heads().current();
        head.bytes() as u64 >= self.config.max_head_bytes.get() || head.tenant_count() >= MAX_TENANTS_PER_HEAD
    }

    async fn round(&mut self, freeze: bool) -> Result<(), Status> {
        let told = report_lost_ids(&*self.deps.catalog, self.entry.id, self.shard.log()).await;
        told.map_err(|error| Status::from_error(&error))?;
        self.log_flush().await?;
        if freeze && !self.shard.heads().current().is_empty() || self.is_large() {
            self.shard.freeze().await?;
        }
        for head in self.shard.heads().frozen() {
            self.cut(&head).await?;
        }
        Ok(())
    }

    async fn cut(&mut self, head: &Arc<Head>) -> Result<(), Status> {
        if head.is_empty() || head.last_index() <= self.watermark {
            self.shard.heads().mark_flushed(head.last_index(), self.deps.clock.monotonic());
            return Ok(());
        }
        let begun = self.deps.clock.monotonic();
        // A block with a failed registration is in the bucket already.
        let is_this = |entry: &BlockEntry| entry.from == self.watermark && entry.to == head.last_index();
        let entry = match self.uploaded.take().filter(is_this) {
            Some(entry) => entry,
            None => match self.find_uploaded(head).await {
                Some(entry) => entry,
                None => self.write_block(head).await?,
            },
        };
        let id = entry.id;
        let bytes = entry.bytes;
        let samples = entry.samples;
        self.uploaded = Some(entry.clone());
        self.watermark = match self.deps.catalog.register_block(entry).await {
            Ok(watermark) => watermark,
            // Another leader registered this range before, or a part of it: those rows are in a block.
            Err(CatalogError::Refused(CommandError::WatermarkMismatch { watermark, .. }))
                if watermark > self.watermark =>
            {
                self.delete_refused_block(id).await;
                watermark
            }
            Err(error) => {
                if matches!(&error, CatalogError::Refused(refused) if !refused.is_transient()) {
                    self.uploaded = None;
                    self.read_back_to = 0;
                    self.delete_refused_block(id).await;
                }
                if let CatalogError::Refused(CommandError::BlockNameSkew { now, .. }) = &error {
                    self.catalog_time = Some((*now, self.deps.clock.monotonic()));
                }
                return Err(Status::from_error(&error));
            }
        };
        self.uploaded = None;
        self.shard.heads().mark_flushed(self.watermark, self.deps.clock.monotonic());
        self.untold = Some((self.watermark, id));
        self.log_flush().await?;
        let now = self.deps.clock.monotonic();
        self.deps.counts.record_flush(now.saturating_sub(begun), now);
        tracing::info!(shard = self.entry.id, block = %id, to = self.watermark, bytes, samples, "flushed");
        Ok(())
    }

    /// Tombstones a rejected block, so that it never registers and its objects are removed. No other node
    /// knows it.
    async fn delete_refused_block(&self, id: BlockId) {
        if let Err(error) = self.deps.catalog.tombstone_blocks(vec![id], None).await {
            tracing::warn!(block = %id, %error, "failed to tombstone a rejected block");
        }
    }

    /// Logs the flush marker of registered rows, and purges the log.
    async fn log_flush(&mut self) -> Result<(), Status> {
        let Some((to, block)) = self.untold else { return Ok(()) };
        self.shard.log_delta_state().await?;
        let window = self.shard.log().with_state_machine(ShardStateMachine::window);
        let stamp = window.lock().stamp_at(to);
        let cut = ShardLogEntry::encode_flush_marker(to, stamp, block).into();
        self.shard.log().propose_relief(cut).await.map_err(|error| Status::from_error(&error))?;
        self.shard.log().compact(to).await.map_err(|error| Status::from_error(&error))?;
        self.untold = None;
        Ok(())
    }

    /// Returns the time in a new block's name: that of the catalog, if this node's clock is far from it.
    fn name_time(&self) -> Timestamp {
        let passed = |told| self.deps.clock.monotonic().saturating_sub(told);
        self.catalog_time.map_or_else(|| self.deps.clock.wall(), |(now, told)| now.plus(passed(told)))
    }

    /// Builds a head's block and uploads its objects.
    async fn write_block(&self, head: &Arc<Head>) -> Result<BlockEntry, Status> {
        let id = BlockId::new(self.name_time(), &self.deps.random);
        let origin = self.origin_of(head);
        let building = Arc::clone(head);
        let origin_of_block = origin.clone();
        let build = move || build(&building, id, origin_of_block);
        let built = self.deps.compute.run_as(CpuActivity::Flush, build).await;
        let built = built.map_err(|error| Status::from_error(&error))?;
        let (folder, meta) = built.map_err(|error| Status::from_error(&error))?;
        if let Err(status) = upload(&self.deps.store, id, &folder).await {
            discard(&self.deps.store, id).await;
            return Err(status);
        }
        self.deps.counts.record_written(meta.bytes(), meta.samples(), PARQUET_FILES.len() + 1);
        block_entry(id, &meta, &origin)
    }

    /// Returns the range of the log that a head's block holds.
    fn origin_of(&self, head: &Head) -> BlockOrigin {
        let from = self.watermark;
        let to = head.last_index();
        BlockOrigin {
            cluster: format!("{:032x}", self.deps.cluster),
            shard: self.entry.id,
            epoch: self.entry.epoch,
            from,
            to,
            lost: self.shard.count_lost(from..to),
            level: 0,
            additional_ranges: Vec::new(),
            tier: Tier::Raw,
            is_covered: false,
            job: None,
        }
    }

    /// Returns the block of a head that an earlier leader uploaded and did not register, if the bucket has
    /// it.
    async fn find_uploaded(&self, head: &Head) -> Option<BlockEntry> {
        // A block that was built before records were dropped still has them.
        let may_exist = head.last_index() <= self.read_back_to
            && self.shard.log().with_state_machine(ShardStateMachine::foreign_ids).is_empty();
        if !may_exist {
            return None;
        }
        let FlushDeps { catalog, store, .. } = &self.deps;
        let blocks = UploadedBlocks { catalog: &**catalog, store, now: self.name_time() };
        match blocks.find(&self.origin_of(head), self.entry.slot).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(shard = self.entry.id, %error, "failed to look up an uploaded block, will retry the upload");
                None
            }
        }
    }
}

fn build(
    head: &Head,
    id: BlockId,
    origin: BlockOrigin,
) -> Result<(MemoryFolder, BlockMeta), athanor_block::BlockError> {
    let folder = MemoryFolder::default();
    let views = head.views();
    let meta = write_from_memory(
        &folder,
        &id.to_string(),
        Some(origin),
        views.iter().map(|(tenant, view)| (tenant.as_str(), view as &dyn MemoryProfiles)),
    )?;
    Ok((folder, meta))
}

/// Uploads all files of a block, `meta.json` last.
async fn upload(store: &Store, id: BlockId, folder: &MemoryFolder) -> Result<(), Status> {
    for file in PARQUET_FILES.into_iter().chain([META_FILE]) {
        let read = |error: std::io::Error| {
            Status::new(ErrorCode::Internal, format!("cannot read {file} of a new block: {error}"))
        };
        let length = folder.length(file).map_err(read)?;
        let bytes = folder.read(file, 0, length as usize).map_err(read)?;
        let name = FileName::new(file).map_err(|error| Status::from_error(&error))?;
        let key = ObjectKey::Block { owner: BlockOwner::Shared, block: id.number(), file: name };
        store.create(&key, bytes).await.map_err(|error| Status::from_error(&error))?;
    }
    Ok(())
}

/// Deletes the objects of a partial block. `meta.json` goes first: its upload may have succeeded, although it
/// was reported as failed.
async fn discard(store: &Store, id: BlockId) {
    for file in [META_FILE].into_iter().chain(PARQUET_FILES) {
        let Ok(file) = FileName::new(file) else { continue };
        let key = ObjectKey::Block { owner: BlockOwner::Shared, block: id.number(), file };
        if let Err(error) = store.delete(&key).await {
            tracing::warn!(block = %id, %error, "failed to delete an incomplete block from the bucket");
            return;
        }
    }
}
