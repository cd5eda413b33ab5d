//! Shards of one slot that follow each other, on nodes that die and come back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_block::TenantBlockSource;
use athanor_catalog::{
    Catalog, CatalogCommand, CatalogSettings, CommandResult, ReplicaPlacement, RoutingView, ShardEntry,
    ShardId, ShardPhase, shard_id,
};
use athanor_chassis::disk::MemoryDisk;
use athanor_chassis::{
    ByteSize, Clock, ComputePool, ErrorCode, LimitOverrides, Random, Status, TaskGroup, TenantLimits,
};
use athanor_cluster::placement::{SlotTable, SlotTableSpec};
use athanor_consensus::log::{CommitMode, Log, LogConfig, LogIdentity};
use athanor_consensus::replicated::{self, Network, RaftCallError};
use athanor_ingester::{
    DedupConfig, FlushConfig, HandoffPeer, HandoffWindowRequest, Ingester, IngesterConfig, IngesterDeps,
    WindowPage,
};
use athanor_profile::store_interface::upload::ProfileUpload;
use athanor_storage::{StorageConfig as Bucket, Store, StoreDeps};
use bytes::Bytes;
use parking_lot::Mutex;

use crate::samples::{now, read, simple, snapshot};
use crate::world::{Facts, fetch, simulate, tenant};

mod merged_blocks;

const FIRST: ShardId = shard_id(0, 1);
const NODES: u64 = 6;
/// In all of this time something must come to its end.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(50);

/// The processes that run.
#[derive(Default)]
struct Hub(Mutex<BTreeMap<u64, Arc<Ingester>>>);

/// The way from a node to all others.
struct Wire {
    hub: Arc<Hub>,
    clock: Clock,
}

impl Hub {
    fn node(&self, node: u64) -> Option<Arc<Ingester>> {
        self.0.lock().get(&node).cloned()
    }

    /// The node that leads a shard, or another one of its members.
    fn of(&self, shard: &ShardEntry) -> Result<Arc<Ingester>, Status> {
        let members: Vec<Arc<Ingester>> = shard.members.iter().filter_map(|&node| self.node(node)).collect();
        let leads = members.iter().find(|node| node.led_shards().contains(&shard.id));
        let gone = || Status::new(ErrorCode::Unavailable, "nobody is there");
        leads.or(members.first()).cloned().ok_or_else(gone)
    }
}

#[async_trait]
impl Network for Wire {
    async fn call(&self, to: u64, group: u32, request: Bytes) -> Result<Bytes, RaftCallError> {
        self.clock.sleep(Duration::from_millis(1)).await;
        let fail = |reason: &str| RaftCallError { to, reason: reason.to_owned() };
        let node = self.hub.node(to).ok_or_else(|| fail("it is not reached"))?;
        node.handle_raft_request(group, request).await.ok_or_else(|| fail("it has no such shard"))
    }
}

#[async_trait]
impl HandoffPeer for Wire {
    async fn fetch_window_page(
        &self,
        shard: &ShardEntry,
        request: HandoffWindowRequest,
    ) -> Result<WindowPage, Status> {
        self.clock.sleep(Duration::from_millis(1)).await;
        let mut members: Vec<_> = shard.members.iter().filter_map(|&node| self.hub.node(node)).collect();
        // Whoever asks need not know who leads.
        members.sort_by_key(|node| node.led_shards().contains(&shard.id));
        let mut told = Err(Status::new(ErrorCode::Unavailable, "nobody is there"));
        for member in members {
            told = member.window_page(shard.id, request).await;
            match &told {
                Err(status) if matches!(status.code, ErrorCode::NotLeader | ErrorCode::Unavailable) => {}
                _ => break,
            }
        }
        told
    }

    async fn reconcile_ids(
        &self,
        with: &ShardEntry,
        by: ShardId,
        ids: Vec<u128>,
    ) -> Result<Vec<bool>, Status> {
        self.clock.sleep(Duration::from_millis(1)).await;
        self.hub.of(with)?.reconcile_ids(with.id, by, ids).await
    }
}

/// What outlives a node's process, and the process.
#[derive(Default)]
struct Node {
    log_disk: MemoryDisk,
    state_disk: MemoryDisk,
    process: Option<(Arc<Ingester>, TaskGroup)>,
}

struct Cluster {
    hub: Arc<Hub>,
    catalog: Arc<Facts>,
    store: Store,
    clock: Clock,
    random: Random,
    nodes: BTreeMap<u64, Node>,
}

fn placement(members: impl IntoIterator<Item = u64>) -> ReplicaPlacement {
    let zones = (1..=NODES).map(|node| (node, format!("zone-{node}"))).collect();
    ReplicaPlacement { members: members.into_iter().collect(), zones }
}

impl Cluster {
    async fn start(seed: u64) -> Self {
        let (clock, random) = (Clock::system(), Random::from_seed(seed));
        let deps = StoreDeps { clock: clock.clone(), random: random.split() };
        let store = Store::open(&Bucket { memory: true, ..Bucket::default() }, deps).unwrap();
        let catalog = Arc::new(Facts::new(clock.clone()));
        let settings = CatalogSettings { replication_factor: 3, ..CatalogSettings::default() };
        catalog
            .apply_command(CatalogCommand::UpdateSettings { expected: CatalogSettings::default(), settings })
            .await
            .unwrap();
        let ReplicaPlacement { members, zones } = placement(1..=3);
        catalog
            .apply_command(CatalogCommand::OpenSlots { count: 1, members: vec![members], zones })
            .await
            .unwrap();
        let nodes = (1..=NODES).map(|node| (node, Node::default())).collect();
        let mut cluster = Self { hub: Arc::default(), catalog, store, clock, random, nodes };
        for node in 1..=NODES {
            cluster.boot(node).await;
        }
        cluster
    }

    async fn boot(&mut self, number: u64) {
        let node = &self.nodes[&number];
        let tasks = TaskGroup::new(self.clock.clone(), 1000);
        let config = LogConfig {
            segment: ByteSize::kib(256),
            spares: 1,
            reserve: ByteSize::bytes(0),
            ..LogConfig::default()
        };
        let identity = LogIdentity { cluster: 1, node: number };
        let disk = Arc::new(node.log_disk.clone());
        let (log, _) = Log::open(disk, &self.random, identity, &config, CommitMode::Inline).unwrap();
        let wire = Arc::new(Wire { hub: Arc::clone(&self.hub), clock: self.clock.clone() });
        let consensus = replicated::RaftGroupDeps {
            log,
            disk: Arc::new(node.state_disk.clone()),
            compute: ComputePool::inline(),
            random: self.random.split(),
            network: Some(Arc::clone(&wire) as Arc<dyn Network>),
            node: number,
            timing: replicated::RaftTiming::default(),
        };
        let deps = IngesterDeps {
            catalog: Arc::<Facts>::clone(&self.catalog),
            store: self.store.clone(),
            consensus,
            overrides: LimitOverrides::new(TenantLimits::default()),
            clock: self.clock.clone(),
            random: self.random.split(),
            compute: ComputePool::inline(),
            tasks: tasks.clone(),
            cluster: 1,
            alone: false,
            kin: Some(wire),
        };
        let never = FlushConfig {
            max_head_age: Duration::from_secs(1 << 30),
            max_head_bytes: ByteSize::mib(1024),
            ..FlushConfig::default()
        };
        // Every cut puts its ids into a file.
        let config = IngesterConfig {
            flush: never,
            dedup: DedupConfig { max_memory_ids: 1, ..DedupConfig::default() },
            single_node_shards: 1,
            ..IngesterConfig::default()
        };
        let ingester = Arc::new(Ingester::open(&config, deps).await.unwrap());
        ingester.apply_view(&self.view()).await;
        self.hub.0.lock().insert(number, Arc::clone(&ingester));
        self.nodes.get_mut(&number).unwrap().process = Some((ingester, tasks));
    }

    /// A node loses its power.
    async fn kill(&mut self, number: u64) {
        let seed = self.random.next_u64();
        let node = self.nodes.get_mut(&number).unwrap();
        let (log, state) = (node.log_disk.crash(seed), node.state_disk.crash(seed));
        (node.log_disk, node.state_disk) = (log, state);
        let (ingester, tasks) = node.process.take().unwrap();
        self.hub.0.lock().remove(&number);
        tasks.shutdown(Duration::ZERO).await;
        ingester.shutdown().await;
    }

    fn is_up(&self, node: u64) -> bool {
        self.nodes[&node].process.is_some()
    }

    fn view(&self) -> RoutingView {
        self.catalog.held.state().routing_view()
    }

    fn phase(&self, shard: ShardId) -> Option<ShardPhase> {
        self.view().shards.into_iter().find(|entry| entry.id == shard).map(|entry| entry.phase)
    }

    fn serving(&self) -> Option<ShardEntry> {
        self.catalog.held.state().serving_shard(0).cloned()
    }

    /// Lets time pass, and every node hear what the catalogue says.
    async fn pass(&self) {
        let view = self.view();
        for (ingester, _) in self.nodes.values().filter_map(|node| node.process.as_ref()) {
            ingester.apply_view(&view).await;
        }
        self.clock.sleep(LOOK).await;
    }

    async fn until(&self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let wait = async {
            while !done(self) {
                self.pass().await;
            }
        };
        if self.clock.timeout(PATIENCE, wait).await.is_err() {
            let failed: Vec<_> =
                self.nodes.values().filter_map(|node| node.process.as_ref()?.0.failed()).collect();
            panic!("{what}: {:?}; failed: {failed:?}", self.view().shards);
        }
    }

    async fn is(&self, shard: ShardId, what: &str, wanted: impl Fn(&ShardPhase) -> bool) {
        self.until(&format!("shard {shard} {what}"), |this| {
            this.phase(shard).is_some_and(|phase| wanted(&phase))
        })
        .await;
    }

    /// Sends an upload to who serves the slot, once; how many of its profiles are new, if it is stored.
    async fn try_push(&self, one: &ProfileUpload, table: u64) -> Result<u32, Status> {
        let serving = self.serving().ok_or_else(|| Status::new(ErrorCode::Unavailable, "nobody serves"))?;
        let node = self.hub.of(&serving)?;
        let stored = node.append(serving.id, table, &tenant("acme"), vec![one.clone()]).await;
        let stored = stored.map_err(|moved| Status::new(ErrorCode::NotLeader, moved.to_string()))?;
        stored.into_iter().next().unwrap().map(|stored| stored.new)
    }

    /// As [`try_push`](Self::try_push), until it is stored; and how often it was sent.
    async fn push(&self, one: &ProfileUpload) -> (u32, u32) {
        let pushed = async {
            for tries in 1.. {
                match self.try_push(one, 1).await {
                    Ok(new) => return (new, tries),
                    Err(status) => assert!(status.code.is_retryable(), "{status}"),
                }
                self.pass().await;
            }
            unreachable!("it is sent for ever")
        };
        match self.clock.timeout(PATIENCE, pushed).await {
            Ok(pushed) => pushed,
            Err(_) => panic!("nobody takes it: {:?}", self.view().shards),
        }
    }

    async fn cut(&self) {
        for (ingester, _) in self.nodes.values().filter_map(|node| node.process.as_ref()) {
            // Whoever is deposed meanwhile cuts nothing, and the next one does.
            let _ = ingester.flush_all(&self.clock, Duration::from_secs(2)).await;
        }
    }

    /// The sum of everything, from blocks and from the heads of those that lead, as a query plans it.
    async fn total(&self) -> i64 {
        let total = async {
            loop {
                if let Some(total) = self.try_total().await {
                    return total;
                }
                self.pass().await;
            }
        };
        self.clock.timeout(PATIENCE, total).await.expect("a plan is not overtaken")
    }

    async fn try_total(&self) -> Option<i64> {
        let name = tenant("acme");
        let listing = self.catalog.list_blocks(&name, i64::MIN, i64::MAX).await.unwrap();
        let mut rows = Vec::new();
        for shard in &listing.shards {
            if matches!(shard.phase, ShardPhase::Lost { .. } | ShardPhase::Opening { .. }) {
                continue;
            }
            let node = self.hub.of(shard).ok()?;
            node.confirm_leadership(shard.id).await.ok()?;
            node.head_snapshots(shard.id, shard.watermark, &name)
                .ok()?
                .iter()
                .for_each(|view| read(view, &mut rows));
        }
        for block in &listing.blocks {
            let block = Arc::new(fetch(&self.store, block).await);
            read(&TenantBlockSource::new(block, "acme", ComputePool::inline()).unwrap(), &mut rows);
        }
        Some(rows.iter().map(|row| row.4).sum())
    }

    async fn succeed(&self, shard: ShardId, members: impl IntoIterator<Item = u64>) {
        self.catalog.apply_command(CatalogCommand::RequestSeal { shard }).await.unwrap();
        self.catalog
            .propose(CatalogCommand::CreateSuccessor { shard, placement: placement(members) })
            .await
            .unwrap();
    }
}

fn uploads(count: i64) -> Vec<ProfileUpload> {
    (0..count).map(|number| simple(now() + number, 10 + number)).collect()
}

fn sum(count: i64) -> i64 {
    (0..count).map(|number| 11 + number).sum()
}

#[test]
fn a_successor_knows_every_repeat_and_the_shard_before_ends() {
    simulate(async {
        let cluster = Cluster::start(1).await;
        let (uploads, mut sent) = (uploads(40), 0);
        for (number, one) in uploads.iter().enumerate() {
            assert_eq!(cluster.push(one).await.0, 1, "upload {number}");
            sent += 1;
            match number {
                9 => cluster.cut().await,
                // It goes on taking profiles while it is copied.
                14 => cluster.succeed(FIRST, 4..=6).await,
                25 => cluster.is(shard_id(0, 2), "opens", |phase| *phase == ShardPhase::Open).await,
                30 => cluster.succeed(shard_id(0, 2), 1..=3).await,
                _ => {}
            }
            for one in uploads[..sent].iter().rev().step_by(5) {
                assert_eq!(cluster.push(one).await.0, 0, "a repeat after upload {number}");
            }
        }
        for epoch in 1..=2 {
            cluster
                .is(shard_id(0, epoch), "is over", |phase| matches!(phase, ShardPhase::Retired { .. }))
                .await;
        }
        assert_eq!(cluster.serving().unwrap().epoch, 3);
        for one in &uploads {
            assert_eq!(cluster.push(one).await.0, 0);
        }
        assert_eq!(cluster.total().await, sum(40));
        cluster.cut().await;
        assert_eq!(cluster.total().await, sum(40));
    });
}

#[test]
fn a_successor_goes_on_from_what_was_counted() {
    simulate(async {
        let (cluster, time) = (Cluster::start(31).await, now());
        for value in 1..=40 {
            cluster.push(&snapshot(time + value, &[("main;a", value), ("main;b", 100)])).await;
            match value {
                9 => cluster.cut().await,
                14 => cluster.succeed(FIRST, 4..=6).await,
                25 => cluster.is(shard_id(0, 2), "opens", |phase| *phase == ShardPhase::Open).await,
                30 => cluster.succeed(shard_id(0, 2), 1..=3).await,
                _ => {}
            }
        }
        cluster.is(shard_id(0, 2), "is over", |phase| matches!(phase, ShardPhase::Retired { .. })).await;
        // Objects, ten times as many bytes, and two objects in use in each profile.
        assert_eq!(cluster.total().await, (40 + 100) * 11 + 40 * 2);
    });
}

/// INV-13: what others have taken meanwhile is not counted twice, and what nobody has is not lost.
#[test]
fn a_shard_that_was_lost_settles_before_it_shows_anything() {
    simulate(async {
        let mut cluster = Cluster::start(2).await;
        let uploads = uploads(30);
        for one in &uploads[..20] {
            assert_eq!(cluster.push(one).await.0, 1);
        }
        cluster.cut().await;
        for one in &uploads[20..] {
            assert_eq!(cluster.push(one).await.0, 1);
        }
        for node in 1..=3 {
            cluster.kill(node).await;
        }
        cluster
            .catalog
            .apply_command(CatalogCommand::MarkLost { shard: FIRST, placement: placement(4..=6) })
            .await
            .unwrap();
        // Those in blocks are known; the others are not, and are taken again.
        for (one, new) in uploads[15..25].iter().zip([0, 0, 0, 0, 0, 1, 1, 1, 1, 1]) {
            assert_eq!(cluster.push(one).await.0, new);
        }
        // Some of them lie in blocks by then.
        cluster.cut().await;
        assert_eq!(cluster.push(&uploads[25]).await.0, 1);
        for node in 1..=3 {
            cluster.boot(node).await;
        }
        cluster.is(FIRST, "is over", |phase| matches!(phase, ShardPhase::Retired { .. })).await;
        for one in &uploads {
            assert_eq!(cluster.push(one).await.0, 0);
        }
        assert_eq!(cluster.total().await, sum(30));
    });
}

/// INV-05: nothing is taken that was placed by a table which does not hold any more, and a table that was given up
/// binds nobody.
#[test]
fn shards_log_the_fences_of_tables_and_forget_those_that_were_given_up() {
    simulate(async {
        let cluster = Cluster::start(3).await;
        let (first, second) = (simple(now(), 10), simple(now() + 1, 10));
        assert_eq!(cluster.push(&first).await.0, 1);
        let table = |version, ahead: i64| {
            let (slots, subset) = (vec![0], u16::MAX);
            let from = now() + ahead * 3_600_000_000_000;
            let (tenants, services) = (BTreeMap::new(), BTreeMap::new());
            SlotTable::try_from(SlotTableSpec { version, from, slots, subset, tenants, services }).unwrap()
        };
        cluster.catalog.apply_command(CatalogCommand::ProposeTable { table: table(2, 26) }).await.unwrap();
        let fenced = |this: &Cluster| this.view().pending.is_some_and(|pending| pending.unfenced.is_empty());
        cluster.until("the fence is logged", fenced).await;
        let described = cluster.hub.node(1).unwrap().shard_reports().await.unwrap();
        assert_eq!(described[0].fenced, 2);
        cluster.catalog.apply_command(CatalogCommand::WithdrawTable { version: 2 }).await.unwrap();
        let leader = cluster.hub.of(&cluster.serving().unwrap()).unwrap();
        let forgotten = async {
            while leader.shard_reports().await.unwrap()[0].fenced != 1 {
                cluster.pass().await;
            }
        };
        cluster.clock.timeout(PATIENCE, forgotten).await.expect("the fence is none");
        cluster.catalog.apply_command(CatalogCommand::ProposeTable { table: table(3, 26) }).await.unwrap();
        cluster.until("the fence is logged", fenced).await;
        cluster.catalog.apply_command(CatalogCommand::PublishTable { version: 3 }).await.unwrap();
        // It holds for profiles of days to come; those of today go where they went.
        assert_eq!(cluster.push(&second).await.0, 1);
        // A successor has it, too.
        cluster.succeed(FIRST, 4..=6).await;
        cluster.is(shard_id(0, 2), "opens", |phase| *phase == ShardPhase::Open).await;
        let described = cluster.hub.of(&cluster.serving().unwrap()).unwrap().shard_reports().await.unwrap();
        assert_eq!(described.iter().find(|shard| shard.shard == shard_id(0, 2)).unwrap().fenced, 3);
        assert_eq!((cluster.push(&first).await.0, cluster.push(&second).await.0), (0, 0));
    });
}

impl Cluster {
    async fn lose_a_node(&mut self, random: &Random) {
        let node = 1 + random.next_below(NODES);
        if (1..=NODES).all(|node| self.is_up(node)) {
            self.kill(node).await;
        }
    }

    async fn bring_back(&mut self, nodes: impl IntoIterator<Item = u64>) {
        for node in nodes {
            if !self.is_up(node) {
                self.boot(node).await;
            }
        }
    }

    async fn succeed_who_serves(&self) -> bool {
        let Some(serving) = self.serving().filter(|serving| serving.epoch < 6) else { return false };
        let _ = self.catalog.propose(CatalogCommand::RequestSeal { shard: serving.id }).await.unwrap();
        let succeed =
            CatalogCommand::CreateSuccessor { shard: serving.id, placement: placement(others(&serving)) };
        matches!(self.catalog.propose(succeed).await.unwrap(), CommandResult::Shard(_))
    }

    /// All members die, and another shard serves the slot.
    async fn lose_who_serves(&mut self) -> bool {
        let newest = self.view().shards.last().cloned().unwrap();
        if newest.epoch >= 6 || newest.phase != ShardPhase::Open {
            return false;
        }
        for &node in &newest.members {
            if self.is_up(node) {
                self.kill(node).await;
            }
        }
        self.bring_back(others(&newest)).await;
        let lose = CatalogCommand::MarkLost { shard: newest.id, placement: placement(others(&newest)) };
        self.catalog.propose(lose).await.unwrap() == CommandResult::Changed(1)
    }
}

/// The nodes that are no members of a shard.
fn others(shard: &ShardEntry) -> std::ops::RangeInclusive<u64> {
    if shard.members.contains(&1) { 4..=6 } else { 1..=3 }
}

/// Shards are succeeded and lost, nodes die and come back, in any order: everything is counted once.
async fn storm(seed: u64) -> [u32; 3] {
    let mut cluster = Cluster::start(seed).await;
    let random = Random::from_seed(seed ^ 0x5eed);
    let (mut sent, mut expected, mut seen) = (Vec::<ProfileUpload>::new(), 0, [0; 3]);
    for step in 0..80 {
        match random.next_below(16) {
            0..=5 => {
                let one = simple(now() + step, 10 + step);
                cluster.push(&one).await;
                sent.push(one);
                expected += 11 + step;
            }
            6..=8 if !sent.is_empty() => {
                // Of a shard that is lost it may be taken again, and then that one drops it.
                cluster.push(&sent[random.next_below(sent.len() as u64) as usize]).await;
            }
            9 => cluster.cut().await,
            10 => cluster.lose_a_node(&random).await,
            11 => cluster.bring_back(1..=NODES).await,
            12 => seen[0] += u32::from(cluster.succeed_who_serves().await),
            13 => seen[1] += u32::from(cluster.lose_who_serves().await),
            _ => {
                for _ in 0..random.next_below(40) {
                    cluster.pass().await;
                }
            }
        }
    }
    cluster.bring_back(1..=NODES).await;
    let settled = |this: &Cluster| {
        let shards = this.view().shards;
        let over = shards.iter().filter(|shard| matches!(shard.phase, ShardPhase::Retired { .. })).count();
        over + 1 == shards.len() && shards.last().is_some_and(|shard| shard.phase == ShardPhase::Open)
    };
    let waiting = async {
        while !settled(&cluster) {
            cluster.cut().await;
            cluster.pass().await;
        }
    };
    if cluster.clock.timeout(PATIENCE, waiting).await.is_err() {
        panic!("seed {seed}: {:?}", cluster.view().shards);
    }
    seen[2] = cluster.view().shards.len() as u32;
    assert_eq!(cluster.total().await, expected, "seed {seed}");
    for one in &sent {
        assert_eq!(cluster.push(one).await.0, 0, "seed {seed}");
    }
    cluster.cut().await;
    assert_eq!(cluster.total().await, expected, "seed {seed}");
    seen
}

#[test]
fn anything_may_happen_to_successive_shards() {
    let mut seen = [0; 3];
    for seed in 1..=20 {
        let of_seed = simulate(storm(seed));
        seen.iter_mut().zip(of_seed).for_each(|(all, one)| *all += one);
    }
    let [succeeded, lost, shards] = seen;
    assert!(succeeded > 20 && lost > 5 && shards > 40, "{seen:?}");
}
