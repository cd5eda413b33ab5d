//! Removes blocks past their retention from the catalog and from the bucket.
//!
//! ```text
//!  overdue ──Expire──► expired, restorable ──deletion_delay──► Purge ──► objects are removed
//! ```
//! The catalog decides which blocks are overdue, by its own time, and limits how many expire per hour. A
//! block that left the listing never registers again [INV-15].
//! Its objects stay as long as a plan may refer to them [INV-18]. The catalog keeps tombstones for longer
//! than that, so a restart loses none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use athanor_catalog::{
    AgeReport, BlockId, Catalog, CatalogCommand, CatalogError, CommandResult, TOMBSTONE_RETENTION,
};
use athanor_chassis::{Clock, ErrorCode, Status, TenantId, Timestamp};
use athanor_storage::Store;
use athanor_storage::path::{BlockOwner, FileName, ObjectKey};
use futures::StreamExt;
use tokio_util::sync::CancellationToken;

/// Interval of retention rounds.
const RETENTION_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of blocks with objects to delete in one round.
const MAX_BLOCKS_PER_ROUND: usize = 256;
/// Maximum number of blocks with concurrent deletions. Each block takes ten sequential bucket calls.
const MAX_CONCURRENT_DELETIONS: usize = 16;
/// Time that objects stay after their block got a tombstone, for queries planned before [INV-18]. The
/// catalog's time runs at most at twice the normal speed. So at least half of this period passes in real
/// time, and a plan lives at most 15 minutes.
const DELETION_GRACE_PERIOD: Duration = Duration::from_secs(40 * 60);
/// Maximum interval between commands, so that the time of the newest command is that of a running server.
const STAMP_INTERVAL: Duration = Duration::from_secs(3600);
/// Maximum difference between the clock and the catalog's time without a warning.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(3600);

/// Settings of retention.
#[derive(Clone, Copy, Debug)]
pub struct RetentionConfig {
    /// Age after which blocks expire; zero disables retention.
    pub retention: Duration,
    /// The largest share of all blocks that expires per hour, in percent.
    pub max_expired_percent: u8,
    /// Time that objects of expired blocks stay, in which a block is restorable.
    pub deletion_delay: Duration,
}

/// Worker that removes blocks past their retention.
pub struct RetentionWorker {
    /// Catalog client, local or remote.
    pub catalog: Arc<dyn Catalog>,
    /// Object store that holds the blocks.
    pub store: Store,
    /// Clock for intervals.
    pub clock: Clock,
    /// Retention settings of this node.
    pub config: RetentionConfig,
    /// Counters for metrics.
    pub done: Arc<RetentionCounters>,
}

/// State that one round passes to the next.
#[derive(Default)]
struct RetentionProgress {
    /// Blocks that have a tombstone and no objects any more.
    removed: BTreeSet<BlockId>,
    /// True if overdue blocks exceed the hourly limit and a warning was logged.
    is_limited: bool,
    /// True if the clock differs from the catalog's time and a warning was logged.
    is_clock_wrong: bool,
}

/// Counters of the retention worker since the start.
#[derive(Debug, Default)]
pub struct RetentionCounters {
    condemned: AtomicU64,
    deleted: AtomicU64,
    failed: AtomicU64,
    overdue: AtomicU64,
    restorable: AtomicU64,
    clock_ahead_seconds: AtomicI64,
}

/// Snapshot of the retention counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionStats {
    /// Count of blocks that expired.
    pub condemned: u64,
    /// Count of blocks with all objects removed.
    pub deleted: u64,
    /// Count of rounds that failed.
    pub failed: u64,
    /// Listed blocks past their retention, as of the last round.
    pub overdue: u64,
    /// Expired blocks that can be restored, as of the last round.
    pub restorable: u64,
    /// Seconds that this machine's clock is ahead of the catalog's time, as of the last round.
    pub clock_ahead_seconds: i64,
}

impl RetentionCounters {
    /// Returns the current counts.
    pub fn now(&self) -> RetentionStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RetentionStats {
            condemned: read(&self.condemned),
            deleted: read(&self.deleted),
            failed: read(&self.failed),
            overdue: read(&self.overdue),
            restorable: read(&self.restorable),
            clock_ahead_seconds: self.clock_ahead_seconds.load(Ordering::Relaxed),
        }
    }
}

impl RetentionWorker {
    /// Runs until shutdown. Does nothing while another node leads the catalog.
    pub async fn run(self, leads: impl Fn() -> bool + Send, ending: CancellationToken) {
        let mut progress = RetentionProgress::default();
        loop {
            tokio::select! {
                biased;
                () = ending.cancelled() => return,
                () = self.clock.sleep(RETENTION_INTERVAL) => {}
            }
            if leads()
                && let Err(status) = self.round(&mut progress).await
            {
                self.done.failed.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(error = %status, "failed to remove blocks past their retention, will retry");
            }
        }
    }

    /// Expires overdue blocks and removes the objects of blocks with old tombstones.
    async fn round(&self, progress: &mut RetentionProgress) -> Result<(), Status> {
        let ages = self.ages().await?;
        self.compare_clocks(&ages, progress);
        let expired = self.expire(&ages, progress).await?;
        self.purge(&ages).await?;
        // Restored blocks have no tombstone and purged blocks are not restorable, so the ages are read after
        // the purge.
        let after = self.ages().await?;
        self.done.overdue.store((ages.overdue as u64).saturating_sub(expired), Ordering::Relaxed);
        self.done.restorable.store(after.expired.len() as u64, Ordering::Relaxed);
        let condemned = self.catalog.tombstones().await.map_err(|error| Status::from_error(&error))?;
        let mut condemned: BTreeMap<BlockId, Timestamp> = condemned.into_iter().collect();
        condemned.retain(|block, _| !after.expired.contains_key(block));
        let now = after.time;
        let removed = &mut progress.removed;
        removed.retain(|block| condemned.contains_key(block));
        let sweeping = self.sweep(&condemned, now, removed).await;
        // Tombstones go only after the objects: otherwise no record of the objects would remain.
        let expired: Vec<&BlockId> = condemned
            .iter()
            .filter(|(_, since)| now.since(**since) >= TOMBSTONE_RETENTION)
            .map(|(block, _)| block)
            .collect();
        if !expired.is_empty() && expired.into_iter().all(|block| removed.contains(block)) {
            self.propose(CatalogCommand::ExpireTombstones).await?;
        }
        self.clear_data_loss(now).await?;
        sweeping
    }

    async fn ages(&self) -> Result<AgeReport, Status> {
        self.catalog.block_ages(self.config.retention).await.map_err(|error| Status::from_error(&error))
    }

    /// Proposes a command. Returns the number of blocks that it changed.
    async fn propose(&self, command: CatalogCommand) -> Result<u64, Status> {
        match self.catalog.propose(command).await {
            Ok(CommandResult::Changed(count)) => Ok(count as u64),
            Ok(CommandResult::Refused(refused)) => Err(Status::from_error(&CatalogError::Refused(refused))),
            Ok(other) => {
                Err(Status::new(ErrorCode::Internal, format!("unexpected result of the catalog: {other:?}")))
            }
            Err(error) => Err(Status::from_error(&error)),
        }
    }

    /// Warns once if the clock differs from the catalog's time.
    fn compare_clocks(&self, ages: &AgeReport, progress: &mut RetentionProgress) {
        let wall = self.clock.wall();
        let ahead_seconds = (wall.millis() - ages.time.millis()) / 1000;
        self.done.clock_ahead_seconds.store(ahead_seconds, Ordering::Relaxed);
        let is_wrong = wall.since(ages.time).max(ages.time.since(wall)) > MAX_CLOCK_DIFFERENCE;
        if is_wrong && !progress.is_clock_wrong {
            tracing::warn!(
                ahead_seconds,
                "the clock of this machine differs from the catalog's time, which retention uses; set the clock, or \
                 run `athanor retention confirm-clock` if the clock is right"
            );
        }
        progress.is_clock_wrong = is_wrong;
    }

    /// Removes overdue blocks from the listing. Returns their number.
    async fn expire(&self, ages: &AgeReport, progress: &mut RetentionProgress) -> Result<u64, Status> {
        let RetentionConfig { retention, max_expired_percent, .. } = self.config;
        let is_stale = ages.time.since(ages.newest_command) >= STAMP_INTERVAL;
        if ages.overdue == 0 && !is_stale {
            progress.is_limited = false;
            return Ok(0);
        }
        let max_percent = Some(max_expired_percent);
        let count = self.propose(CatalogCommand::ExpireBlocks { retention, max_percent }).await?;
        self.done.condemned.fetch_add(count, Ordering::Relaxed);
        let overdue = ages.overdue as u64;
        if count > 0 {
            tracing::info!(blocks = count, overdue, "expired blocks past their retention");
        }
        let is_limited = count == 0 && overdue > 0;
        if is_limited && !progress.is_limited {
            tracing::warn!(
                overdue,
                max_expired_percent,
                "more blocks are past their retention than may expire per hour; check the clock, or run `athanor \
                 retention apply` to expire all of them now"
            );
        }
        progress.is_limited = is_limited;
        Ok(count)
    }

    /// Purges blocks that expired long enough ago, so that they are not restorable any more.
    async fn purge(&self, ages: &AgeReport) -> Result<(), Status> {
        let is_due = |since: Timestamp| {
            ages.time.since(since) >= self.config.deletion_delay.max(DELETION_GRACE_PERIOD)
        };
        let due = ages.expired.iter().filter(|(_, since)| is_due(**since));
        let blocks: Vec<BlockId> = due.map(|(block, _)| *block).take(MAX_BLOCKS_PER_ROUND).collect();
        if !blocks.is_empty() {
            self.propose(CatalogCommand::PurgeBlocks { blocks }).await?;
        }
        Ok(())
    }

    /// Removes the objects of blocks with the oldest tombstones after the grace period. A failure of one
    /// block does not delay the others.
    async fn sweep(
        &self,
        condemned: &BTreeMap<BlockId, Timestamp>,
        now: Timestamp,
        removed: &mut BTreeSet<BlockId>,
    ) -> Result<(), Status> {
        let due = condemned
            .iter()
            .filter(|(block, since)| now.since(**since) >= DELETION_GRACE_PERIOD && !removed.contains(block));
        let mut due: Vec<(Timestamp, BlockId)> = due.map(|(block, since)| (*since, *block)).collect();
        due.sort_unstable();
        due.truncate(MAX_BLOCKS_PER_ROUND);
        let removing = due.into_iter().map(|(_, block)| {
            let store = self.store.clone();
            async move { (block, remove(&store, block).await) }
        });
        let mut removing = futures::stream::iter(removing).buffer_unordered(MAX_CONCURRENT_DELETIONS);
        let mut failure = None;
        while let Some((block, done)) = removing.next().await {
            match done {
                Ok(()) => {
                    self.done.deleted.fetch_add(1, Ordering::Relaxed);
                    removed.insert(block);
                }
                Err(status) => failure = Some(status),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Clears records of data loss that are older than the retention, since retention would have removed that
    /// data.
    async fn clear_data_loss(&self, now: Timestamp) -> Result<(), Status> {
        if self.config.retention.is_zero() {
            return Ok(());
        }
        let before = now.minus(self.config.retention);
        let listing = self.catalog.list_blocks(&TenantId::anonymous(), 0, 0).await;
        let data_losses = listing.map_err(|error| Status::from_error(&error))?.data_losses;
        if data_losses.iter().any(|record| record.since < before) {
            self.catalog
                .propose(CatalogCommand::ClearDataLoss { before })
                .await
                .map_err(|error| Status::from_error(&error))?;
        }
        Ok(())
    }
}

async fn remove(store: &Store, block: BlockId) -> Result<(), Status> {
    // The file that marks the folder as a block is deleted first.
    for file in [athanor_block::META_FILE].into_iter().chain(athanor_block::PARQUET_FILES) {
        let name = FileName::new(file)
            .map_err(|error| Status::new(athanor_chassis::ErrorCode::Internal, error.to_string()))?;
        let key = ObjectKey::Block { owner: BlockOwner::Shared, block: block.number(), file: name };
        store.delete(&key).await.map_err(|error| Status::from_error(&error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use athanor_catalog::{BlockEntry, DataLoss, InMemoryCatalog, TenantSpan};
    use athanor_chassis::Random;
    use athanor_chassis::time::clock::ManualClock;
    use athanor_storage::{StorageConfig as Bucket, StoreDeps};

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);
    const CONFIG: RetentionConfig = RetentionConfig {
        retention: DAY,
        max_expired_percent: 5,
        deletion_delay: Duration::from_secs(12 * 3600),
    };

    fn block(named: Timestamp) -> BlockEntry {
        let span = TenantSpan { tenant: TenantId::anonymous(), min_time: 0, max_time: 0, profiles: 1 };
        let id = BlockId::new(named, &Random::from_seed(1));
        let (shard, epoch, from, to) = (1, 1, 0, 1);
        let (additional_ranges, tenants) = (Vec::new(), vec![span]);
        BlockEntry {
            id,
            shard,
            epoch,
            from,
            to,
            bytes: 1,
            samples: 1,
            lost: 0,
            level: 0,
            additional_ranges,
            tenants,
        }
    }

    /// A catalog, a bucket and what removes old blocks from both.
    struct World {
        catalog: Arc<InMemoryCatalog>,
        store: Store,
        hand: ManualClock,
        clock: Clock,
        done: Arc<RetentionCounters>,
    }

    impl World {
        fn new() -> Self {
            let (clock, hand) = Clock::manual(Timestamp::from_seconds(1_700_000_000));
            let deps = StoreDeps { clock: clock.clone(), random: Random::from_seed(2) };
            let store = Store::open(&Bucket { memory: true, ..Bucket::default() }, deps).unwrap();
            let catalog = Arc::new(InMemoryCatalog::new(clock.clone()));
            Self { catalog, store, hand, clock, done: Arc::default() }
        }

        fn janitor(&self, config: RetentionConfig) -> RetentionWorker {
            RetentionWorker {
                catalog: Arc::clone(&self.catalog) as Arc<dyn Catalog>,
                store: self.store.clone(),
                clock: self.clock.clone(),
                config,
                done: Arc::clone(&self.done),
            }
        }

        /// Registers blocks of one shard, each with an object; returns their keys.
        async fn register(&self, count: u64) -> Vec<(BlockId, ObjectKey)> {
            self.catalog.open_shard(0, 1).await.unwrap();
            let mut keys = Vec::new();
            for number in 0..count {
                let id = BlockId::new(self.clock.wall(), &Random::from_seed(number));
                let entry = BlockEntry { id, from: number, to: number + 1, ..block(self.clock.wall()) };
                let file = FileName::new(athanor_block::META_FILE).unwrap();
                let key = ObjectKey::Block { owner: BlockOwner::Shared, block: id.number(), file };
                self.store.create(&key, bytes::Bytes::from_static(b"{}")).await.unwrap();
                self.catalog.register_block(entry).await.unwrap();
                keys.push((id, key));
            }
            keys
        }

        async fn listed(&self) -> usize {
            self.catalog.blocks().await.unwrap().len()
        }
    }

    #[tokio::test]
    async fn objects_go_after_their_block_whoever_condemned_it() {
        let world = World::new();
        let keys = world.register(1).await;
        let count = async || (world.listed().await, world.store.head(&keys[0].1).await.is_ok());
        let round = async || world.janitor(CONFIG).round(&mut RetentionProgress::default()).await.unwrap();
        round().await;
        assert_eq!(count().await, (1, true));
        world.hand.advance(DAY + Duration::from_secs(1));
        round().await;
        assert_eq!(count().await, (0, true), "plans may still name it");
        world.hand.advance(DELETION_GRACE_PERIOD);
        round().await;
        assert_eq!(count().await, (0, true), "it can be restored");
        world.hand.advance(CONFIG.deletion_delay);
        // The process that condemned it is gone.
        round().await;
        assert_eq!(count().await, (0, false));
        assert_eq!(
            world.done.now(),
            RetentionStats { condemned: 1, deleted: 1, ..RetentionStats::default() }
        );
    }

    #[tokio::test]
    async fn condemned_block_keeps_its_objects_for_planned_queries() {
        let world = World::new();
        let keys = world.register(1).await;
        world.catalog.tombstone_blocks(vec![keys[0].0]).await.unwrap();
        let has_objects = async || {
            world.janitor(CONFIG).round(&mut RetentionProgress::default()).await.unwrap();
            world.store.head(&keys[0].1).await.is_ok()
        };
        assert!(has_objects().await);
        world.hand.advance(DELETION_GRACE_PERIOD - Duration::from_secs(1));
        assert!(has_objects().await);
        world.hand.advance(Duration::from_secs(1));
        assert!(!has_objects().await);
    }

    #[tokio::test]
    async fn restored_block_keeps_its_objects() {
        let world = World::new();
        let keys = world.register(2).await;
        world.hand.advance(DAY + Duration::from_secs(1));
        let config = RetentionConfig { max_expired_percent: 100, ..CONFIG };
        let (janitor, mut progress) = (world.janitor(config), RetentionProgress::default());
        janitor.round(&mut progress).await.unwrap();
        assert_eq!(world.done.now().restorable, 2);
        world.catalog.propose(CatalogCommand::RestoreBlocks { blocks: vec![keys[1].0] }).await.unwrap();
        world.hand.advance(CONFIG.deletion_delay);
        janitor.round(&mut progress).await.unwrap();
        assert_eq!(world.listed().await, 1, "its age counts from its restoration");
        assert!(world.store.head(&keys[0].1).await.is_err());
        assert!(world.store.head(&keys[1].1).await.is_ok());
        let purged =
            world.catalog.propose(CatalogCommand::RestoreBlocks { blocks: vec![keys[0].0] }).await.unwrap();
        assert!(
            matches!(purged, CommandResult::Refused(athanor_catalog::CommandError::NotExpired(_))),
            "{purged:?}"
        );
    }

    #[tokio::test]
    async fn hour_expires_no_more_than_the_configured_share() {
        let world = World::new();
        world.register(100).await;
        world.hand.advance(DAY * 31);
        let config = RetentionConfig { retention: DAY * 30, ..CONFIG };
        let (janitor, mut progress) = (world.janitor(config), RetentionProgress::default());
        for minute in 0..59 {
            janitor.round(&mut progress).await.unwrap();
            assert_eq!(world.listed().await, 95, "minute {minute}");
            world.hand.advance(Duration::from_secs(60));
        }
        world.hand.advance(Duration::from_secs(60));
        janitor.round(&mut progress).await.unwrap();
        assert_eq!(world.listed().await, 90);
        assert_eq!(world.done.now().overdue, 90);
        let apply = CatalogCommand::ExpireBlocks { retention: config.retention, max_percent: None };
        world.catalog.propose(apply).await.unwrap();
        assert_eq!(world.listed().await, 0, "an operator has no limit");
    }

    #[tokio::test]
    async fn idle_catalog_is_stamped_every_hour() {
        let world = World::new();
        let (janitor, mut progress) = (world.janitor(CONFIG), RetentionProgress::default());
        world.catalog.open_shard(0, 1).await.unwrap();
        world.hand.advance(STAMP_INTERVAL);
        janitor.round(&mut progress).await.unwrap();
        assert_eq!(world.catalog.state().time(), world.clock.wall());
    }

    #[tokio::test]
    async fn a_round_with_nothing_to_forget_proposes_nothing() {
        let (clock, hand) = Clock::manual(Timestamp::from_seconds(1_700_000_000));
        let deps = StoreDeps { clock: clock.clone(), random: Random::from_seed(2) };
        let store = Store::open(&Bucket { memory: true, ..Bucket::default() }, deps).unwrap();
        let catalog = Arc::new(InMemoryCatalog::new(clock.clone()));
        let known = Arc::clone(&catalog) as Arc<dyn Catalog>;
        let janitor = RetentionWorker {
            catalog: known,
            store,
            clock: clock.clone(),
            config: RetentionConfig { retention: 10 * DAY, ..CONFIG },
            done: Arc::default(),
        };
        let revision = async || catalog.list_blocks(&TenantId::anonymous(), 0, 0).await.unwrap().revision;
        catalog.tombstone_blocks(vec![BlockId::from_number(7)]).await.unwrap();
        catalog.record_data_loss(DataLoss::ForgottenIds { shard: 1, to: 9 }).await.unwrap();
        let mut progress = RetentionProgress::default();
        for (wait, proposals, condemned, data_losses) in
            [(DAY, 0, 1, 1), (DAY, 1, 0, 1), (DAY, 0, 0, 1), (8 * DAY, 1, 0, 0), (DAY, 0, 0, 0)]
        {
            hand.advance(wait);
            let before = revision().await;
            janitor.round(&mut progress).await.unwrap();
            assert_eq!(revision().await - before, proposals);
            let listing = catalog.list_blocks(&TenantId::anonymous(), 0, 0).await.unwrap();
            assert_eq!(
                (catalog.tombstones().await.unwrap().len(), listing.data_losses.len()),
                (condemned, data_losses)
            );
        }
    }

    #[tokio::test]
    async fn a_block_that_cannot_be_removed_keeps_no_other() {
        let (clock, hand) = Clock::manual(Timestamp::from_seconds(1_700_000_000));
        let folder = tempfile::tempdir().unwrap();
        let mut bucket = Bucket { local: Some(folder.path().to_path_buf()), ..Bucket::default() };
        // Nobody moves the clock between two attempts.
        bucket.retry.max_attempts = 1;
        let store =
            Store::open(&bucket, StoreDeps { clock: clock.clone(), random: Random::from_seed(2) }).unwrap();
        let meta = |number| {
            let file = FileName::new(athanor_block::META_FILE).unwrap();
            ObjectKey::Block { owner: BlockOwner::Shared, block: number, file }
        };
        store.create(&meta(2), bytes::Bytes::from_static(b"{}")).await.unwrap();
        // No file can be removed whose place a folder has.
        std::fs::create_dir_all(folder.path().join(meta(1).to_string()).join("in the way")).unwrap();
        let catalog = Arc::new(InMemoryCatalog::new(clock.clone()));
        catalog.tombstone_blocks(vec![BlockId::from_number(1), BlockId::from_number(2)]).await.unwrap();
        let done = Arc::new(RetentionCounters::default());
        let known = Arc::clone(&catalog) as Arc<dyn Catalog>;
        let janitor = RetentionWorker {
            catalog: known,
            store: store.clone(),
            clock,
            config: CONFIG,
            done: Arc::clone(&done),
        };
        hand.advance(TOMBSTONE_RETENTION + DAY);
        let mut progress = RetentionProgress::default();
        assert!(janitor.round(&mut progress).await.is_err());
        assert!(store.head(&meta(2)).await.is_err(), "it goes all the same");
        assert_eq!(done.now().deleted, 1);
        assert_eq!(catalog.tombstones().await.unwrap().len(), 2, "nobody else knows of what is still there");
    }
}
