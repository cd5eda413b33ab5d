//! Cuts: a frozen head becomes a block in the bucket, registered in the catalogue, and the log lets go of it.
//!
//! ```text
//!  freeze ─► build ─► 10 objects, meta.json last ─► register ─► the log says so ─► snapshot, purge
//! ```
//!
//! Each step may fail and be done again: objects have names of their own, registering twice changes nothing, and a
//! block that was written but not registered does not exist.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use athanor_block::{
    BlockFolder, BlockMeta, BlockOrigin, META_FILE, MemoryFolder, MemoryProfiles, PARQUET_FILES,
    write_from_memory,
};
use athanor_catalog::{BlockEntry, BlockId, Catalog, CatalogError, CommandError, ShardEntry, TenantSpan};
use athanor_chassis::{
    ByteSize, Clock, ComputePool, CpuActivity, ErrorCode, Random, Status, TenantId, Timestamp,
};
use athanor_storage::Store;
use athanor_storage::path::{BlockOwner, FileName, ObjectKey};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::entry::ShardLogEntry;
use crate::head::Head;
use crate::replica::report_lost_ids;
use crate::shard::LeaderShard;
use crate::state_machine::{ShardStateMachine, lock};
use crate::stats::FlushCounters;
use crate::uploaded_blocks::{UploadedBlocks, block_entry};

/// When a head is cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlushConfig {
    /// The oldest that a head with profiles may get. Example: `60s`.
    #[serde(with = "athanor_chassis::units::duration_text")]
    pub max_age: Duration,
    /// The largest that a head may get in memory. Example: `128MiB`.
    pub max_bytes: ByteSize,
    /// Memory for profiles of one shard that lie in blocks already: for a minute they stay, for queries that began before.
    /// Example: `256MiB`.
    pub kept: ByteSize,
}

impl Default for FlushConfig {
    fn default() -> Self {
        Self { max_age: Duration::from_secs(60), max_bytes: ByteSize::mib(128), kept: ByteSize::mib(256) }
    }
}

/// What cutting needs.
#[derive(Clone)]
pub struct FlushDeps {
    /// Where blocks are registered.
    pub catalog: Arc<dyn Catalog>,
    /// Where their files go.
    pub store: Store,
    /// Time.
    pub clock: Clock,
    /// Chance.
    pub random: Random,
    /// Threads for building blocks.
    pub compute: ComputePool,
    /// Whose blocks they are.
    pub cluster: u128,
    /// Counts.
    pub(crate) counts: Arc<FlushCounters>,
}

/// Cuts the heads of one shard.
pub struct HeadFlusher {
    config: FlushConfig,
    deps: FlushDeps,
    shard: Arc<LeaderShard>,
    entry: ShardEntry,
    asked: Arc<FlushRequests>,
    watermark: u64,
    /// A block that is in the bucket and not registered yet.
    uploaded: Option<BlockEntry>,
    /// The last entry that was read back from the log: an earlier leader may have uploaded the blocks of heads up to here.
    read_back_to: u64,
    /// Registered up to here, and the log does not know yet that it can let go of it.
    untold: Option<(u64, BlockId)>,
    /// The catalogue's time, and when it was told by this node's monotonic clock, once the catalogue has refused a name.
    catalog_time: Option<(Timestamp, Duration)>,
}

/// Asks for a cut now, and tells when it is done.
///
/// Not a watch channel: that wakes in an order of its own chance, and a simulation must go the same way twice.
#[derive(Debug, Default)]
pub struct FlushRequests {
    wake: Notify,
    rounds: Mutex<FlushRounds>,
    /// Told of every round that is done.
    over: Notify,
}

/// How many cuts were asked for, and how many of those are done.
#[derive(Clone, Copy, Debug, Default)]
struct FlushRounds {
    asked: u64,
    done: u64,
}

/// A head with so many tenants is large: its block's `meta.json` names each of them, and has a limit.
const MAX_TENANTS_PER_HEAD: usize = 50_000;
/// How often a head's age and size are looked at, at least.
const FLUSH_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Waits between tries while the bucket or the catalogue does not answer.
const FLUSH_RETRY_BACKOFF: [Duration; 4] =
    [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(15)];

impl FlushRequests {
    /// Cuts all that there is and returns when it is registered.
    pub async fn request_flush(&self) {
        let mine = {
            let mut rounds = lock(&self.rounds);
            rounds.asked += 1;
            rounds.asked
        };
        self.wake.notify_one();
        loop {
            let mut over = pin!(self.over.notified());
            over.as_mut().enable();
            if lock(&self.rounds).done >= mine {
                return;
            }
            over.await;
        }
    }

    fn rounds(&self) -> FlushRounds {
        *lock(&self.rounds)
    }

    fn done(&self, round: u64) {
        lock(&self.rounds).done = round;
        self.over.notify_waiters();
    }
}

impl HeadFlusher {
    /// For a shard whose log was read; `entry` is what the catalogue says of it.
    pub fn new(
        config: FlushConfig,
        deps: FlushDeps,
        shard: Arc<LeaderShard>,
        entry: ShardEntry,
        asked: Arc<FlushRequests>,
    ) -> Self {
        let watermark = entry.watermark;
        // A crash may have come between registering and saying so in the log [INV-14].
        shard.heads().mark_flushed(watermark, deps.clock.monotonic());
        // Which block it was, the catalogue knows.
        let untold = (shard.log().with_state_machine(ShardStateMachine::flushed_index) < watermark)
            .then_some((watermark, BlockId::from_number(0)));
        let read_back_to = shard.heads().frozen().last().map_or(0, |head| head.last_index());
        let uploaded = None;
        let catalog_time = None;
        Self { config, deps, shard, entry, asked, watermark, uploaded, read_back_to, untold, catalog_time }
    }

    /// Cuts when it is time, or when asked, until the future is dropped.
    pub async fn run(mut self) {
        let mut failures = 0usize;
        loop {
            // Young heads are told apart by more than their first look.
            let tick = FLUSH_CHECK_INTERVAL.min(self.config.max_age / 4).max(Duration::from_millis(10));
            let wait = if failures == 0 {
                tick
            } else {
                FLUSH_RETRY_BACKOFF[(failures - 1).min(FLUSH_RETRY_BACKOFF.len() - 1)]
            };
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
                    tracing::warn!(shard = self.entry.id, failures, error = %status, "cut failed, it will be tried again");
                }
            }
            self.shard.heads().expire(self.deps.clock.monotonic(), self.config.kept.as_usize());
        }
    }

    fn is_due(&self) -> bool {
        let head = self.shard.heads().current();
        let age = self.deps.clock.monotonic().saturating_sub(head.first_profile_at());
        !head.is_empty() && age >= self.config.max_age || self.is_large()
    }

    /// Names alone may make a head large: then it is let go of, if no profile is in it.
    fn is_large(&self) -> bool {
        let head = self.shard.heads().current();
        head.bytes() as u64 >= self.config.max_bytes.get() || head.tenant_count() >= MAX_TENANTS_PER_HEAD
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
        // A block whose registration failed is there already.
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
            // Somebody registered this range before us, or a part of it: those rows are where they should be.
            Err(CatalogError::Refused(CommandError::Watermark { watermark, .. }))
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
                if let CatalogError::Refused(CommandError::NameTime { now, .. }) = &error {
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
        tracing::info!(shard = self.entry.id, block = %id, to = self.watermark, bytes, samples, "cut");
        Ok(())
    }

    /// Has a block that was refused never register, and its objects removed: nobody else knows of it.
    async fn delete_refused_block(&self, id: BlockId) {
        if let Err(error) = self.deps.catalog.tombstone_blocks(vec![id]).await {
            tracing::warn!(block = %id, %error, "a block that was not registered stays in the bucket");
        }
    }

    /// Has the log say what is registered, and let go of it.
    async fn log_flush(&mut self) -> Result<(), Status> {
        let Some((to, block)) = self.untold else { return Ok(()) };
        self.shard.log_delta_state().await?;
        let window = self.shard.log().with_state_machine(ShardStateMachine::window);
        let stamp = lock(&window).stamp_at(to);
        let cut = ShardLogEntry::encode_flush_marker(to, stamp, block).into();
        self.shard.log().propose_relief(cut).await.map_err(|error| Status::from_error(&error))?;
        self.shard.log().compact(to).await.map_err(|error| Status::from_error(&error))?;
        self.untold = None;
        Ok(())
    }

    /// The time under which a block is named: the catalogue's, where this node's clock is far from it.
    fn name_time(&self) -> Timestamp {
        let passed = |told| self.deps.clock.monotonic().saturating_sub(told);
        self.catalog_time.map_or_else(|| self.deps.clock.wall(), |(now, told)| now.plus(passed(told)))
    }

    /// Builds a head's block and puts its objects into the bucket.
    async fn write_block(&self, head: &Arc<Head>) -> Result<BlockEntry, Status> {
        let id = BlockId::new(self.name_time(), &self.deps.random);
        let origin = self.origin_of(head);
        let building = Arc::clone(head);
        let origin_of_block = origin.clone();
        let build = move || build(&building, id, origin_of_block);
        let built = self.deps.compute.run_as(CpuActivity::Cut, build).await;
        let built = built.map_err(|error| Status::from_error(&error))?;
        let (folder, meta) = built.map_err(|error| Status::from_error(&error))?;
        if let Err(status) = upload(&self.deps.store, id, &folder).await {
            discard(&self.deps.store, id).await;
            return Err(status);
        }
        self.deps.counts.record_written(meta.bytes(), meta.samples(), PARQUET_FILES.len() + 1);
        block_entry(id, &meta, &origin)
    }

    /// Returns which range of the log a head's block holds.
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
            further: Vec::new(),
            inputs: Vec::new(),
        }
    }

    /// Returns the block of a head that an earlier leader uploaded and did not register, if the bucket has it.
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
                tracing::warn!(shard = self.entry.id, %error, "failed to look for an uploaded block, will upload it again");
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

/// Writes all files, the one that says what they are last.
async fn upload(store: &Store, id: BlockId, folder: &MemoryFolder) -> Result<(), Status> {
    for file in PARQUET_FILES.into_iter().chain([META_FILE]) {
        let read = |error: std::io::Error| {
            Status::new(ErrorCode::Internal, format!("{file} of a new block: {error}"))
        };
        let length = folder.length(file).map_err(read)?;
        let bytes = folder.read(file, 0, length as usize).map_err(read)?;
        let name = FileName::new(file).map_err(|error| Status::from_error(&error))?;
        let key = ObjectKey::Block { owner: BlockOwner::Shared, block: id.number(), file: name };
        store.create(&key, bytes).await.map_err(|error| Status::from_error(&error))?;
    }
    Ok(())
}

/// Removes what there is of a block that was not written to its end. What says that it is a block goes first: its
/// writing may have been done, though it was said to have failed.
async fn discard(store: &Store, id: BlockId) {
    for file in [META_FILE].into_iter().chain(PARQUET_FILES) {
        let Ok(file) = FileName::new(file) else { continue };
        let key = ObjectKey::Block { owner: BlockOwner::Shared, block: id.number(), file };
        if let Err(error) = store.delete(&key).await {
            tracing::warn!(block = %id, %error, "a part of a block that was not written to its end stays in the bucket");
            return;
        }
    }
}

/// What the catalogue knows of a block's tenants.
pub fn tenant_spans(meta: &BlockMeta) -> Result<Vec<TenantSpan>, Status> {
    let span = |part: &athanor_block::TenantMeta| {
        let tenant: TenantId = part
            .tenant
            .parse()
            .map_err(|error: athanor_chassis::tenant::TenantError| Status::from_error(&error))?;
        let min_time = part.min_time;
        let max_time = part.max_time;
        Ok(TenantSpan { tenant, min_time, max_time, profiles: u64::from(part.profiles.1) })
    };
    meta.tenants.iter().map(span).collect()
}
