//! Rounds of retention on a catalog in memory.

use athanor_catalog::{BlockEntry, CommandError, DataLoss, InMemoryCatalog, TenantSpan};
use athanor_chassis::time::clock::ManualClock;
use athanor_chassis::{LimitOverrides, Random, TenantLimits, Tier};

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
}

impl World {
    fn new() -> Self {
        let (clock, hand) = Clock::manual(Timestamp::from_seconds(1_700_000_000));
        let catalog = Arc::new(InMemoryCatalog::new(clock.clone()));
        Self { catalog, hand, clock }
    }

    fn worker(&self, config: RetentionConfig) -> RetentionWorker {
        let catalog = Arc::clone(&self.catalog) as Arc<dyn Catalog>;
        RetentionWorker::new(catalog, self.clock.clone(), config)
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
    let round = async || world.worker(config()).run_round(&mut RetentionProgress::default()).await.unwrap();
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
}

#[tokio::test]
async fn objects_stay_for_planned_queries_even_without_a_deletion_delay() {
    let world = World::new();
    let blocks = world.register(1).await;
    let config = RetentionConfig { deletion_delay: Duration::ZERO, ..config() };
    let round =
        async || world.worker(config.clone()).run_round(&mut RetentionProgress::default()).await.unwrap();
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
    worker.run_round(&mut progress).await.unwrap();
    assert_eq!(worker.stats().backlog.restorable, 2);
    world.restore(blocks[1]).await;
    world.hand.advance(config().deletion_delay);
    worker.run_round(&mut progress).await.unwrap();
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
        worker.run_round(&mut progress).await.unwrap();
        assert_eq!(world.listed().await, 95, "minute {minute}");
        world.hand.advance(Duration::from_secs(60));
    }
    world.hand.advance(Duration::from_secs(60));
    worker.run_round(&mut progress).await.unwrap();
    assert_eq!(world.listed().await, 90);
    assert_eq!(worker.stats().backlog.overdue, 90);
    let apply = CatalogCommand::ExpireBlocks { retention: config.policy(), max_percent: None };
    world.catalog.propose(apply).await.unwrap();
    assert_eq!(world.listed().await, 0, "an operator has no limit");
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
        worker.run_round(&mut progress).await.unwrap();
        let after = listing().await;
        assert_eq!((after.revision - before, after.data_losses.len()), (proposals, data_losses));
    }
}

#[tokio::test]
async fn workers_of_several_nodes_expire_no_more_than_one() {
    let world = World::new();
    world.register(100).await;
    world.hand.advance(DAY * 31);
    let config = RetentionConfig { retention: DAY * 30, ..config() };
    let workers = [world.worker(config.clone()), world.worker(config.clone())];
    for worker in &workers {
        worker.run_round(&mut RetentionProgress::default()).await.unwrap();
    }
    assert_eq!(world.listed().await, 95);
    world.hand.advance(config.deletion_delay);
    for worker in &workers {
        worker.run_round(&mut RetentionProgress::default()).await.unwrap();
    }
    assert_eq!((world.listed().await, world.restorable().await.len()), (90, 5));
    let expired = workers.iter().map(|worker| worker.stats().expired).collect::<Vec<_>>();
    assert_eq!(expired, [10, 0], "the second one finds nothing to do");
}
