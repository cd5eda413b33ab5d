//! Three nodes, which die and come back, and the ways between them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_block::TenantBlockSource;
use athanor_catalog::{Catalog, CatalogCommand, CatalogSettings, RoutingView, ShardPhase};
use athanor_chassis::disk::MemoryDisk;
use athanor_chassis::{ByteSize, Clock, ComputePool, LimitOverrides, Random, TaskGroup, TenantLimits};
use athanor_consensus::log::{CommitMode, Log, LogConfig, LogIdentity};
use athanor_consensus::replicated::{self, Network, RaftCallError};
use athanor_ingester::{DedupConfig, FlushConfig, Ingester, IngesterConfig, IngesterDeps};
use athanor_profile::store_interface::upload::ProfileUpload;
use athanor_storage::{StorageConfig as Bucket, Store, StoreDeps};
use bytes::Bytes;
use parking_lot::Mutex;

use crate::samples::read;
use crate::world::{Facts, fetch, tenant};

pub const SHARD: u32 = 1;
/// Of the next epoch.
pub const SUCCESSOR: u32 = SHARD | 1 << 16;
pub const NODES: u64 = 3;
/// In all of this time something must come to its end.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const LOOK: Duration = Duration::from_millis(50);

/// The way from each node to each other one.
#[derive(Default)]
pub struct Hub {
    pub nodes: Mutex<BTreeMap<u64, Arc<Ingester>>>,
    pub cut_off: Mutex<BTreeSet<u64>>,
    /// They hear, and are not heard.
    pub mute: Mutex<BTreeSet<u64>>,
}

struct Wire {
    hub: Arc<Hub>,
    from: u64,
    clock: Clock,
}

#[async_trait]
impl Network for Wire {
    async fn call(&self, to: u64, group: u32, request: Bytes) -> Result<Bytes, RaftCallError> {
        let fail = |reason: &str| RaftCallError { to, reason: reason.to_owned() };
        self.clock.sleep(Duration::from_millis(1)).await;
        let is_cut = [self.from, to].iter().any(|node| self.hub.cut_off.lock().contains(node));
        let node = self.hub.nodes.lock().get(&to).filter(|_| !is_cut).cloned();
        let answer = node.ok_or_else(|| fail("it is not reached"))?.handle_raft_request(group, request).await;
        // An answer may be lost, too.
        let is_cut = [&self.hub.cut_off, &self.hub.mute].iter().any(|of| of.lock().contains(&to));
        answer.filter(|_| !is_cut).ok_or_else(|| fail("it does not answer"))
    }
}

/// What outlives a node's process, and the process.
pub struct Node {
    pub log_disk: MemoryDisk,
    pub state_disk: MemoryDisk,
    pub process: Option<(Arc<Ingester>, TaskGroup)>,
}

pub struct Trio {
    pub hub: Arc<Hub>,
    pub catalog: Arc<Facts>,
    pub store: Store,
    pub clock: Clock,
    pub random: Random,
    /// Where shards compute.
    pub compute: ComputePool,
    pub nodes: BTreeMap<u64, Node>,
}

impl Trio {
    pub async fn start(seed: u64) -> Self {
        Self::start_on(seed, ComputePool::inline()).await
    }

    pub async fn start_on(seed: u64, compute: ComputePool) -> Self {
        let (clock, random) = (Clock::system(), Random::from_seed(seed));
        let deps = StoreDeps { clock: clock.clone(), random: random.split() };
        let store = Store::open(&Bucket { memory: true, ..Bucket::default() }, deps).unwrap();
        let catalog = Arc::new(Facts::new(clock.clone()));
        let settings = CatalogSettings { replication_factor: NODES as u16, ..CatalogSettings::default() };
        catalog
            .apply_command(CatalogCommand::UpdateSettings { expected: CatalogSettings::default(), settings })
            .await
            .unwrap();
        let zones = (1..=NODES).map(|node| (node, format!("zone-{node}"))).collect();
        let members = vec![(1..=NODES).collect()];
        catalog.apply_command(CatalogCommand::OpenSlots { count: 1, members, zones }).await.unwrap();
        let disks = || (MemoryDisk::new(), MemoryDisk::new());
        let node = |(log_disk, state_disk)| Node { log_disk, state_disk, process: None };
        let nodes = (1..=NODES).map(|number| (number, node(disks()))).collect();
        let mut trio = Self { hub: Arc::default(), catalog, store, clock, random, compute, nodes };
        for number in 1..=NODES {
            trio.boot(number).await;
        }
        trio
    }

    pub async fn boot(&mut self, number: u64) {
        self.wake(number).await;
        let ingester = self.nodes[&number].process.as_ref().unwrap().0.clone();
        ingester.apply_view(&self.view()).await;
    }

    /// Boots a node that the catalogue does not speak to.
    pub async fn wake(&mut self, number: u64) {
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
        let (log, recovery) = Log::open(disk, &self.random, identity, &config, CommitMode::Inline).unwrap();
        assert!(recovery.damage.is_empty());
        let wire = Wire { hub: Arc::clone(&self.hub), from: number, clock: self.clock.clone() };
        let consensus = replicated::RaftGroupDeps {
            log,
            disk: Arc::new(node.state_disk.clone()),
            compute: ComputePool::inline(),
            random: self.random.split(),
            network: Some(Arc::new(wire)),
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
            compute: self.compute.clone(),
            tasks: tasks.clone(),
            cluster: 1,
            alone: false,
            kin: None,
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
        self.hub.nodes.lock().insert(number, Arc::clone(&ingester));
        self.nodes.get_mut(&number).unwrap().process = Some((ingester, tasks));
    }

    pub fn view(&self) -> RoutingView {
        self.catalog.held.state().routing_view()
    }

    /// What the catalogue says of the shard.
    pub fn phase(&self) -> ShardPhase {
        self.view().shards.iter().find(|entry| entry.id == SHARD).expect("it is known").phase.clone()
    }

    /// A node loses its power.
    pub async fn kill(&mut self, number: u64) {
        let seed = self.random.next_u64();
        let node = self.nodes.get_mut(&number).unwrap();
        let (log, state) = (node.log_disk.crash(seed), node.state_disk.crash(seed));
        (node.log_disk, node.state_disk) = (log, state);
        let (ingester, tasks) = node.process.take().unwrap();
        self.hub.nodes.lock().remove(&number);
        tasks.shutdown(Duration::ZERO).await;
        ingester.shutdown().await;
    }

    pub fn up(&self) -> Vec<u64> {
        self.nodes.iter().filter(|(_, node)| node.process.is_some()).map(|(number, _)| *number).collect()
    }

    /// Who leads now, if somebody does.
    pub async fn leading(&self) -> Option<(u64, Arc<Ingester>)> {
        for (number, node) in &self.nodes {
            if let Some((ingester, _)) = &node.process
                && ingester.confirm_leadership(SHARD).await.is_ok()
            {
                return Some((*number, Arc::clone(ingester)));
            }
        }
        None
    }

    pub async fn leader(&self) -> (u64, Arc<Ingester>) {
        let led = async {
            loop {
                match self.leading().await {
                    Some(leader) => return leader,
                    None => self.clock.sleep(LOOK).await,
                }
            }
        };
        self.clock.timeout(PATIENCE, led).await.expect("somebody leads")
    }

    /// Sends an upload until it is stored; says how many of its profiles are new. What was sent before, and not
    /// answered, may be stored.
    pub async fn push(&self, one: &ProfileUpload) -> u32 {
        self.send(one).await.0
    }

    /// As [`push`](Self::push), with how often it was sent.
    pub async fn send(&self, one: &ProfileUpload) -> (u32, u32) {
        let pushed = async {
            for tries in 1.. {
                let leader = self.leader().await.1;
                let Ok(stored) = leader.append(SHARD, 1, &tenant("acme"), vec![one.clone()]).await else {
                    self.clock.sleep(LOOK).await;
                    continue;
                };
                match &stored[0] {
                    Ok(stored) => return (stored.new, tries),
                    Err(status) => assert!(status.code.is_retryable(), "{status}"),
                }
                self.clock.sleep(LOOK).await;
            }
            unreachable!("it is sent for ever")
        };
        self.clock.timeout(PATIENCE, pushed).await.expect("it is stored")
    }

    pub async fn cut(&self) {
        let cut = async {
            loop {
                let (_, leader) = self.leader().await;
                match leader.flush_all(&self.clock, Duration::from_secs(5)).await {
                    Ok(_) if leader.confirm_leadership(SHARD).await.is_ok() => return,
                    Ok(_) | Err(_) => self.clock.sleep(LOOK).await,
                }
            }
        };
        self.clock.timeout(PATIENCE, cut).await.expect("it is cut")
    }

    /// The sum of everything, from blocks and from the leader's heads, as a query plans it.
    pub async fn total(&self) -> i64 {
        let tenant = tenant("acme");
        for _ in 0..100 {
            let listing = self.catalog.list_blocks(&tenant, i64::MIN, i64::MAX).await.unwrap();
            let (_, leader) = self.leader().await;
            let Ok(views) = leader.head_snapshots(SHARD, listing.shards[0].watermark, &tenant) else {
                continue;
            };
            let mut rows = Vec::new();
            views.iter().for_each(|view| read(view, &mut rows));
            for block in &listing.blocks {
                let block = Arc::new(fetch(&self.store, block).await);
                read(&TenantBlockSource::new(block, "acme", ComputePool::inline()).unwrap(), &mut rows);
            }
            return rows.iter().map(|row| row.4).sum();
        }
        panic!("every plan was overtaken");
    }
}
