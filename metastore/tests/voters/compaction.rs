//! Compactors on any node: jobs, claims, and what may be removed from the bucket.

use std::collections::BTreeSet;
use std::time::Duration;

use athanor_catalog::{
    BlockEntry, BlockId, Catalog, CatalogCommand, CompactionJob, JobRequest, PartId, RetentionPolicy,
    TenantSpan, TierRetention,
};
use athanor_chassis::{TenantId, Tier, Timestamp};

use crate::harness::{PATIENCE, Town, simulate};

const NODES: [u64; 5] = [1, 2, 3, 8, 9];
const WINDOWS: u64 = 4;
const BLOCKS_PER_WINDOW: u64 = 3;
/// Time after which a new plan is made.
const PLAN_TTL: Duration = Duration::from_secs(2);

async fn until(town: &Town, awaited: &str, mut is_reached: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_reached().await {
            town.clock.sleep(Duration::from_millis(200)).await;
        }
    };
    town.clock.timeout(PATIENCE * 10, waiting).await.expect(awaited);
}

/// Registers flushed blocks with rows of several windows that ended hours ago.
async fn register_blocks(town: &Town) -> BTreeSet<PartId> {
    let client = town.client(8);
    let shard = client.open_shard(0, 8).await.unwrap();
    let tenant = TenantId::anonymous();
    let now = town.clock.wall();
    let mut parts = BTreeSet::new();
    for number in 0..WINDOWS * BLOCKS_PER_WINDOW {
        let age = Duration::from_secs(3600 * (1 + number / BLOCKS_PER_WINDOW));
        let time = now.minus(age).nanos();
        let span = TenantSpan {
            tenant: tenant.clone(),
            min_time: time,
            max_time: time,
            profiles: 10,
            samples: 10,
            sum: Some(10),
            newest_arrival: Timestamp::UNIX_EPOCH,
        };
        let block = BlockEntry {
            id: BlockId::new(now, &town.random),
            shard: shard.id,
            epoch: shard.epoch,
            from: number,
            to: number + 1,
            bytes: 1000,
            samples: 10,
            lost: 0,
            level: 0,
            additional_ranges: Vec::new(),
            tier: Tier::Raw,
            is_covered: false,
            job: None,
            tenants: vec![span],
        };
        parts.insert(PartId { block: block.id, tenant: tenant.clone() });
        client.register_block(block).await.unwrap();
    }
    parts
}

async fn request_jobs(town: &Town, worker: u64) -> Vec<CompactionJob> {
    let request = JobRequest { worker, max_bytes: 1 << 30, limit: 4 };
    town.client(worker).compaction_jobs(&request).await.unwrap()
}

#[test]
fn workers_of_all_nodes_claim_each_part_once() {
    simulate(async {
        let town = Town::start(3, 61).await;
        let parts = register_blocks(&town).await;
        let mut claimed = BTreeSet::new();
        let mut tokens = BTreeSet::new();
        for worker in NODES.into_iter().cycle().take(20) {
            if let Some(first) = request_jobs(&town, worker).await.first() {
                let token = town.client(worker).claim_parts(worker, first.parts()).await.unwrap();
                assert!(tokens.insert(token));
                for part in first.parts().iter() {
                    assert!(claimed.insert(part), "a worker was offered a claimed part first");
                }
            } else {
                town.clock.sleep(PLAN_TTL).await;
            }
        }
        assert_eq!(claimed, parts);
        for node in NODES {
            let status = town.client(node).compaction_status().await.unwrap();
            assert_eq!(status.claims.keys().copied().collect::<BTreeSet<_>>(), tokens, "node {node}");
            assert_eq!(status.blocks_by_level, [(0, WINDOWS * BLOCKS_PER_WINDOW)].into());
        }
    });
}

#[test]
fn workers_get_jobs_from_the_next_leader() {
    simulate(async {
        let mut town = Town::start(3, 62).await;
        register_blocks(&town).await;
        assert!(!request_jobs(&town, 8).await.is_empty());
        town.kill(town.leader().await).await;
        let jobs = request_jobs(&town, 8).await;
        town.client(9).claim_parts(9, jobs[0].parts()).await.unwrap();
        let refused = town.client(8).claim_parts(8, jobs[0].parts()).await.unwrap_err();
        assert!(refused.to_string().contains("refused"), "{refused}");
    });
}

#[test]
fn paused_compaction_offers_no_jobs() {
    simulate(async {
        let town = Town::start(1, 63).await;
        register_blocks(&town).await;
        town.client(8).apply_command(CatalogCommand::PauseCompaction { paused: true }).await.unwrap();
        assert_eq!(request_jobs(&town, 9).await, []);
        assert!(town.client(9).compaction_status().await.unwrap().is_paused);
        town.client(8).apply_command(CatalogCommand::PauseCompaction { paused: false }).await.unwrap();
        town.clock.sleep(PLAN_TTL).await;
        assert!(!request_jobs(&town, 9).await.is_empty());
    });
}

#[test]
fn ages_of_blocks_are_read_by_any_node() {
    simulate(async {
        let town = Town::start(3, 66).await;
        let parts = register_blocks(&town).await;
        let hours = |count: u64| Duration::from_secs(3600 * count);
        let mut policy = RetentionPolicy::uniform(hours(2));
        town.clock.sleep(hours(3)).await;
        for node in NODES {
            let ages = town.client(node).block_ages(&policy).await.unwrap();
            assert_eq!((ages.overdue, ages.restorable), (parts.len(), 0), "node {node}");
        }
        let command = CatalogCommand::ExpireBlocks { retention: policy.clone(), max_percent: None };
        town.client(8).apply_command(command).await.unwrap();
        let ages = town.client(9).block_ages(&policy).await.unwrap();
        assert_eq!((ages.overdue, ages.restorable, ages.expired.len()), (0, parts.len(), parts.len()));
        for number in 0..400_000 {
            policy.tenants.insert(format!("tenant-{number}").parse().unwrap(), TierRetention::default());
        }
        let refused = town.client(9).block_ages(&policy).await.unwrap_err().to_string();
        assert!(refused.contains("the limit is"), "{refused}");
    });
}

/// More tombstones than fit into one response.
#[test]
fn tombstones_and_unknown_blocks_are_read_by_any_node() {
    simulate(async {
        let town = Town::start(3, 64).await;
        let ids = |numbers: std::ops::Range<u128>| numbers.map(BlockId::from_number).collect::<Vec<_>>();
        for batch in [0..20_000, 20_000..40_000, 40_000..60_000] {
            town.client(8).tombstone_blocks(ids(batch), None).await.unwrap();
        }
        for node in [1, 9] {
            let tombstones = town.client(node).tombstones().await.unwrap();
            let found: Vec<BlockId> = tombstones.into_iter().map(|(block, _)| block).collect();
            assert_eq!(found, ids(0..60_000));
            let unknown = town.client(node).unknown_blocks(&ids(59_990..60_005)).await.unwrap();
            assert_eq!(unknown, ids(60_000..60_005));
        }
    });
}

#[test]
fn removals_wait_for_a_snapshot_with_the_tombstone() {
    simulate(async {
        let mut town = Town::new(65);
        for node in 1..=3 {
            town.begin(node, 3).await;
        }
        town.boot(8, None).await;
        until(&town, "three voters", async || town.client(8).voters().await.unwrap().len() == 3).await;
        // The first snapshots are uploaded before the tombstone.
        town.clock.sleep(Duration::from_secs(600)).await;
        town.client(8).tombstone_blocks(vec![BlockId::from_number(7)], None).await.unwrap();
        let (_, tombstone) = town.client(8).tombstones().await.unwrap().remove(0);
        let snapshot_time = async |town: &Town| town.client(8).removal_report().await.unwrap().snapshot_time;
        assert!(snapshot_time(&town).await <= tombstone.since);
        // A later command carries a later time into the next snapshot.
        town.clock.sleep(Duration::from_secs(1)).await;
        town.client(8).tombstone_blocks(vec![BlockId::from_number(8)], None).await.unwrap();
        let is_stored = async |town: &Town| snapshot_time(town).await > tombstone.since;
        until(&town, "a snapshot with the tombstone", async || is_stored(&town).await).await;
        town.kill(town.leader().await).await;
        until(&town, "a snapshot of the next leader", async || is_stored(&town).await).await;
    });
}
