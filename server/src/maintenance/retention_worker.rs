//! Removes blocks past their retention from the catalog.
//!
//! ```text
//!  overdue ──Expire──► expired, restorable ──deletion_delay──► Purge ──► a compactor removes the objects
//! ```
//! The catalog decides which blocks are overdue, by its own time, and limits how many expire per hour. A
//! block that left the listing never registers again [INV-15].

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use athanor_catalog::{
    AgeReport, BlockId, Catalog, CatalogCommand, CatalogError, CommandResult, RetentionPolicy, TierRetention,
};
use athanor_chassis::{Clock, ErrorCode, LimitOverrides, Status, TenantId, TenantLimits, Timestamp};
use athanor_compactor::DELETION_GRACE_PERIOD;
use tokio_util::sync::CancellationToken;

/// Interval of retention rounds.
const RETENTION_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of blocks that one round purges.
const MAX_BLOCKS_PER_ROUND: usize = 256;
/// Maximum interval between commands, so that the time of the newest command is that of a running server.
const STAMP_INTERVAL: Duration = Duration::from_secs(3600);
/// Maximum difference between the clock and the catalog's time without a warning.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(3600);

/// Settings of retention.
#[derive(Clone, Debug)]
pub struct RetentionConfig {
    /// Age after which raw blocks expire, for tenants without a limit of their own; zero keeps them for ever.
    pub retention: Duration,
    /// Limits with the retention of tenants and tiers.
    pub limits: LimitOverrides,
    /// The largest share of all blocks that expires per hour, in percent.
    pub max_expired_percent: u8,
    /// Time that objects of expired blocks stay, in which a block is restorable.
    pub deletion_delay: Duration,
}

/// Worker that removes blocks past their retention.
pub struct RetentionWorker {
    /// Catalog client, local or remote.
    pub catalog: Arc<dyn Catalog>,
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
    /// True if overdue blocks exceed the hourly limit and a warning was logged.
    is_limited: bool,
    /// True if the clock differs from the catalog's time and a warning was logged.
    is_clock_wrong: bool,
}

/// Counters of the retention worker since the start.
#[derive(Debug, Default)]
pub struct RetentionCounters {
    condemned: AtomicU64,
    failed: AtomicU64,
    overdue: AtomicU64,
    kept_for_tiers: AtomicU64,
    restorable: AtomicU64,
    clock_ahead_seconds: AtomicI64,
}

/// Snapshot of the retention counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionStats {
    /// Count of blocks that expired.
    pub condemned: u64,
    /// Count of rounds that failed.
    pub failed: u64,
    /// Listed blocks past their retention, as of the last round.
    pub overdue: u64,
    /// Listed blocks past their retention that stay because a tier does not hold their rows yet, as of the last
    /// round.
    pub kept_for_tiers: u64,
    /// Expired blocks that can be restored, as of the last round.
    pub restorable: u64,
    /// Seconds that this machine's clock is ahead of the catalog's time, as of the last round.
    pub clock_ahead_seconds: i64,
}

impl RetentionConfig {
    /// Returns the retention of all tenants and tiers.
    pub fn policy(&self) -> RetentionPolicy {
        let default = self.tier_retention(&self.limits.default_limits());
        let tenants = self.limits.exceptions().into_iter();
        let tenants = tenants.map(|(tenant, limits)| (tenant, self.tier_retention(&limits)));
        RetentionPolicy { default, tenants: tenants.filter(|(_, retention)| *retention != default).collect() }
    }

    /// Returns the retention of a tenant with some limits. Tiers without one are kept as long as raw blocks.
    fn tier_retention(&self, limits: &TenantLimits) -> TierRetention {
        let raw = limits.retention_period.unwrap_or(self.retention);
        TierRetention {
            raw,
            five_minutes: limits.retention_period_5m.unwrap_or(raw),
            one_hour: limits.retention_period_1h.unwrap_or(raw),
            one_day: limits.retention_period_1d.unwrap_or(raw),
        }
    }
}

impl RetentionCounters {
    /// Returns the current counts.
    pub fn now(&self) -> RetentionStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RetentionStats {
            condemned: read(&self.condemned),
            failed: read(&self.failed),
            overdue: read(&self.overdue),
            kept_for_tiers: read(&self.kept_for_tiers),
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
                tracing::warn!(error = %status, "failed to expire blocks past their retention, will retry");
            }
        }
    }

    /// Expires overdue blocks, and purges those that expired long enough ago.
    async fn round(&self, progress: &mut RetentionProgress) -> Result<(), Status> {
        let ages = self.ages().await?;
        self.compare_clocks(&ages, progress);
        let expired = self.expire(&ages, progress).await?;
        self.purge(&ages).await?;
        // Purged blocks are not restorable, so the ages are read after the purge.
        let after = self.ages().await?;
        self.done.overdue.store((ages.overdue as u64).saturating_sub(expired), Ordering::Relaxed);
        self.done.kept_for_tiers.store(after.kept_for_tiers as u64, Ordering::Relaxed);
        self.done.restorable.store(after.expired.len() as u64, Ordering::Relaxed);
        self.clear_data_loss(after.time).await
    }

    async fn ages(&self) -> Result<AgeReport, Status> {
        self.catalog.block_ages(&self.config.policy()).await.map_err(|error| Status::from_error(&error))
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
        let max_expired_percent = self.config.max_expired_percent;
        let is_stale = ages.time.since(ages.newest_command) >= STAMP_INTERVAL;
        if ages.overdue == 0 && !is_stale {
            progress.is_limited = false;
            return Ok(0);
        }
        let max_percent = Some(max_expired_percent);
        let count = self
            .propose(CatalogCommand::ExpireBlocks { retention: self.config.policy(), max_percent })
            .await?;
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

    /// Clears records of data loss that are older than each retention, since retention would have removed that
    /// data.
    async fn clear_data_loss(&self, now: Timestamp) -> Result<(), Status> {
        let Some(longest) = self.config.policy().longest() else { return Ok(()) };
        let before = now.minus(longest);
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

#[cfg(test)]
mod tests {
    use athanor_catalog::{BlockEntry, CommandError, DataLoss, InMemoryCatalog, TenantSpan};
    use athanor_chassis::time::clock::ManualClock;
    use athanor_chassis::{Random, Tier};

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);
    fn config() -> RetentionConfig {
        RetentionConfig {
            retention: DAY,
            max_expired_percent: 5,
            deletion_delay: Duration::from_secs(12 * 3600),
            limits: LimitOverrides::new(TenantLimits::default()),
        }
    }

    #[test]
    fn limits_of_tenants_set_the_retention_of_tiers() {
        let hours = |count: u64| Duration::from_secs(count * 3600);
        let default = TenantLimits { retention_period_1h: Some(hours(300)), ..TenantLimits::default() };
        let limits = LimitOverrides::new(default);
        let yaml = "overrides: {a: {retention_period: 12h, retention_period_1d: 0s}, b: {max_tenants: 7}}";
        limits.replace_exceptions(std::path::Path::new("overrides.yaml"), yaml, |_| Vec::new()).unwrap();
        let policy = RetentionConfig { limits, ..config() }.policy();
        let of = |raw, five_minutes, one_hour, one_day| TierRetention {
            raw: hours(raw),
            five_minutes: hours(five_minutes),
            one_hour: hours(one_hour),
            one_day: hours(one_day),
        };
        assert_eq!(policy.default, of(24, 24, 300, 24), "a tier is kept as long as raw blocks by default");
        let tenants = [("a".parse().unwrap(), of(12, 12, 300, 0))];
        assert!(policy.tenants.into_iter().eq(tenants), "b has the retention of all");
    }

    /// Returns block `number` of the first shard.
    fn block(named: Timestamp, number: u64) -> BlockEntry {
        let span = TenantSpan {
            tenant: TenantId::anonymous(),
            min_time: 0,
            max_time: 0,
            profiles: 1,
            samples: 1,
            sum: None,
            newest_arrival: Timestamp::UNIX_EPOCH,
        };
        BlockEntry {
            id: BlockId::new(named, &Random::from_seed(number)),
            shard: 1,
            epoch: 1,
            from: number,
            to: number + 1,
            bytes: 1,
            samples: 1,
            lost: 0,
            level: 0,
            additional_ranges: Vec::new(),
            tier: Tier::Raw,
            is_covered: false,
            job: None,
            tenants: vec![span],
        }
    }

    /// Catalog, and the worker that removes old blocks from it.
    struct World {
        catalog: Arc<InMemoryCatalog>,
        hand: ManualClock,
        clock: Clock,
        done: Arc<RetentionCounters>,
    }

    impl World {
        fn new() -> Self {
            let (clock, hand) = Clock::manual(Timestamp::from_seconds(1_700_000_000));
            let catalog = Arc::new(InMemoryCatalog::new(clock.clone()));
            Self { catalog, hand, clock, done: Arc::default() }
        }

        fn worker(&self, config: RetentionConfig) -> RetentionWorker {
            RetentionWorker {
                catalog: Arc::clone(&self.catalog) as Arc<dyn Catalog>,
                clock: self.clock.clone(),
                config,
                done: Arc::clone(&self.done),
            }
        }

        /// Registers blocks of one shard.
        async fn register(&self, count: u64) -> Vec<BlockId> {
            self.catalog.open_shard(0, 1).await.unwrap();
            let mut blocks = Vec::new();
            for number in 0..count {
                let entry = block(self.clock.wall(), number);
                blocks.push(entry.id);
                self.catalog.register_block(entry).await.unwrap();
            }
            blocks
        }

        async fn listed(&self) -> usize {
            self.catalog.blocks().await.unwrap().len()
        }

        async fn restorable(&self) -> Vec<BlockId> {
            self.catalog.removal_report().await.unwrap().restorable.into_iter().collect()
        }

        async fn restore(&self, block: BlockId) -> CommandResult {
            self.catalog.propose(CatalogCommand::RestoreBlocks { blocks: vec![block] }).await.unwrap()
        }
    }

    #[tokio::test]
    async fn expired_block_is_restorable_until_the_deletion_delay() {
        let world = World::new();
        let blocks = world.register(1).await;
        // Each round is that of a new process.
        let round = async || world.worker(config()).round(&mut RetentionProgress::default()).await.unwrap();
        round().await;
        assert_eq!(world.listed().await, 1);
        world.hand.advance(DAY + Duration::from_secs(1));
        round().await;
        assert_eq!((world.listed().await, world.restorable().await), (0, blocks.clone()));
        world.hand.advance(config().deletion_delay - Duration::from_secs(1));
        round().await;
        assert_eq!(world.restorable().await, blocks);
        world.hand.advance(Duration::from_secs(1));
        round().await;
        assert_eq!(world.restorable().await, []);
        assert_eq!(world.done.now(), RetentionStats { condemned: 1, ..RetentionStats::default() });
    }

    #[tokio::test]
    async fn objects_stay_for_planned_queries_even_without_a_deletion_delay() {
        let world = World::new();
        let blocks = world.register(1).await;
        let config = RetentionConfig { deletion_delay: Duration::ZERO, ..config() };
        let round =
            async || world.worker(config.clone()).round(&mut RetentionProgress::default()).await.unwrap();
        world.hand.advance(DAY + Duration::from_secs(1));
        round().await;
        world.hand.advance(DELETION_GRACE_PERIOD - Duration::from_secs(1));
        round().await;
        assert_eq!(world.restorable().await, blocks);
        world.hand.advance(Duration::from_secs(1));
        round().await;
        assert_eq!(world.restorable().await, []);
    }

    #[tokio::test]
    async fn restored_block_is_not_purged() {
        let world = World::new();
        let blocks = world.register(2).await;
        world.hand.advance(DAY + Duration::from_secs(1));
        let worker = world.worker(RetentionConfig { max_expired_percent: 100, ..config() });
        let mut progress = RetentionProgress::default();
        worker.round(&mut progress).await.unwrap();
        assert_eq!(world.done.now().restorable, 2);
        world.restore(blocks[1]).await;
        world.hand.advance(config().deletion_delay);
        worker.round(&mut progress).await.unwrap();
        assert_eq!(world.listed().await, 1, "its age counts from its restoration");
        let purged = world.restore(blocks[0]).await;
        assert!(matches!(purged, CommandResult::Refused(CommandError::NotExpired(_))), "{purged:?}");
    }

    #[tokio::test]
    async fn hour_expires_no_more_than_the_configured_share() {
        let world = World::new();
        world.register(100).await;
        world.hand.advance(DAY * 31);
        let config = RetentionConfig { retention: DAY * 30, ..config() };
        let worker = world.worker(config.clone());
        let mut progress = RetentionProgress::default();
        for minute in 0..59 {
            worker.round(&mut progress).await.unwrap();
            assert_eq!(world.listed().await, 95, "minute {minute}");
            world.hand.advance(Duration::from_secs(60));
        }
        world.hand.advance(Duration::from_secs(60));
        worker.round(&mut progress).await.unwrap();
        assert_eq!(world.listed().await, 90);
        assert_eq!(world.done.now().overdue, 90);
        let apply = CatalogCommand::ExpireBlocks { retention: config.policy(), max_percent: None };
        world.catalog.propose(apply).await.unwrap();
        assert_eq!(world.listed().await, 0, "an operator has no limit");
    }

    #[tokio::test]
    async fn idle_catalog_is_stamped_every_hour() {
        let world = World::new();
        world.catalog.open_shard(0, 1).await.unwrap();
        world.hand.advance(STAMP_INTERVAL);
        world.worker(config()).round(&mut RetentionProgress::default()).await.unwrap();
        assert_eq!(world.catalog.state().time(), world.clock.wall());
    }

    #[tokio::test]
    async fn data_loss_is_cleared_after_the_retention() {
        let world = World::new();
        let worker = world.worker(RetentionConfig { retention: 10 * DAY, ..config() });
        world.catalog.record_data_loss(DataLoss::ForgottenIds { shard: 1, to: 9 }).await.unwrap();
        let listing = async || world.catalog.list_blocks(&TenantId::anonymous(), 0, 0).await.unwrap();
        let mut progress = RetentionProgress::default();
        for (wait, proposals, data_losses) in [(DAY, 0, 1), (8 * DAY, 0, 1), (2 * DAY, 1, 0), (DAY, 0, 0)] {
            world.hand.advance(wait);
            let before = listing().await.revision;
            worker.round(&mut progress).await.unwrap();
            let after = listing().await;
            assert_eq!((after.revision - before, after.data_losses.len()), (proposals, data_losses));
        }
    }
}
