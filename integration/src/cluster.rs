//! Whole clusters in one process, and the faults that tests inject into them. Each node is a real server with
//! its own ports, runtime and disks; all share one bucket.
//!
//! ```text
//!  Cluster::builder().node("a", "zone", "all")…config(|config| …).start()
//!
//!  Cluster ─► Server (runtime, disks in memory) ─ FaultNet ─ Server …      one Bucket
//!  faults:  kill  start  restart  stop │ fill │ skew │ partition  delay  pause │ fail_one_of  hold
//! ```
//! Tests never sleep for a fixed time: they wait until a state is reached.

#![expect(clippy::missing_panics_doc, clippy::unwrap_used, reason = "what does not work fails the test")]

mod bucket;
mod net;

use std::collections::BTreeMap;
use std::future::Future;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::{Catalog, RoutingView};
use athanor_chassis::disk::MemoryDisk;
use athanor_chassis::net::LocalNet;
use athanor_chassis::{ByteSize, Clock, ComputePool, Disk, LimitOverrides, Random, Status, TenantLimits};
use athanor_cluster::NodeId;
use athanor_cluster::gossip::UdpTransport;
use athanor_consensus::log::CommitMode;
use athanor_distributor::Distributor;
use athanor_ingester::Ingester;
use athanor_querier::Querier;
use athanor_server::{ClusterConfig, NodeDeps, NodeRoles, ServerConfig, ServerNode, StartError};
use athanor_storage::test_bucket::TestBucket;
use athanor_storage::{StorageConfig as StoreConfig, Store, StoreDeps};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::compactor::TestCompactor;

pub use bucket::FaultBucket;
use net::{FaultNet, LOOPBACK_ADDRESS, SimulatedNetwork};

/// Interval at which the compactors of nodes look for jobs: never during a test.
const IDLE_POLL_INTERVAL: Duration = Duration::from_secs(86_400);
/// Longest wait of a test for a state that must be reached.
pub const STATE_DEADLINE: Duration = Duration::from_secs(300);
/// Interval between two checks of a state.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const CLUSTER_ID: &str = "5f0c6e1d9a7b4c3e8f2a1b0c9d8e7f60";

/// Bytes that each node's log keeps free, for disks with a bounded capacity.
const WAL_RESERVE_BYTES: ByteSize = ByteSize::mib(8);

/// Running cluster of test nodes that share one bucket and one simulated network.
pub struct TestCluster {
    web: Arc<SimulatedNetwork>,
    servers: BTreeMap<String, ClusterServer>,
    bucket: FaultBucket,
    folder: TempDir,
    change: fn(&mut ServerConfig),
    tries: u32,
    /// Seeds for nodes that start: the latest gossip address of each node.
    seeds: Mutex<BTreeMap<String, String>>,
    clock: Clock,
}

/// Builder of a [`TestCluster`]: its nodes and their settings.
pub struct TestClusterBuilder {
    nodes: Vec<[String; 3]>,
    skews: BTreeMap<String, i64>,
    change: fn(&mut ServerConfig),
    /// Attempts per bucket call.
    tries: u32,
}

/// Node of the cluster, running or stopped. Its disks outlive the process.
struct ClusterServer {
    target: String,
    zone: String,
    log: MemoryDisk,
    state: MemoryDisk,
    running: Option<RunningNode>,
    crashes: u64,
    /// Offset of its wall clock in nanoseconds; positive is ahead.
    skew: i64,
}

struct RunningNode {
    node: Arc<ServerNode>,
    runtime: NodeRuntime,
}

/// Runtime that may be dropped in any context. Tasks that still run on it are aborted.
pub struct NodeRuntime(Option<Runtime>);

impl NodeRuntime {
    fn new() -> Self {
        let built = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Self(Some(built.unwrap()))
    }

    fn spawn<R: Send + 'static>(&self, work: impl Future<Output = R> + Send + 'static) -> JoinHandle<R> {
        self.0.as_ref().expect("it ends with this value").spawn(work)
    }
}

impl Drop for NodeRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Handle of a node that is starting.
type NodeStart = JoinHandle<Result<ServerNode, StartError>>;

impl TestClusterBuilder {
    /// Adds a node with a name, a zone and its roles, written as in settings.
    #[must_use]
    pub fn node(mut self, name: &str, zone: &str, target: &str) -> Self {
        self.nodes.push([name, zone, target].map(str::to_owned));
        self
    }

    /// Sets the offset of a node's wall clock in nanoseconds; negative is behind.
    #[must_use]
    pub fn skew(mut self, name: &str, nanos: i64) -> Self {
        self.skews.insert(name.to_owned(), nanos);
        self
    }

    /// Sets the function that changes each node's default settings.
    #[must_use]
    pub fn config(mut self, change: fn(&mut ServerConfig)) -> Self {
        self.change = change;
        self
    }

    /// Sets the attempts per bucket call, in place of the default.
    #[must_use]
    pub fn max_bucket_attempts(mut self, tries: u32) -> Self {
        self.tries = tries;
        self
    }

    /// Starts all nodes concurrently and waits until all of them serve.
    pub async fn start(self) -> TestCluster {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("secret"), "a secret of some length\n").unwrap();
        let names: Vec<String> = self.nodes.iter().map(|[name, ..]| name.clone()).collect();
        let server = |[name, zone, target]: [String; 3]| {
            let log = MemoryDisk::new();
            let state = MemoryDisk::new();
            let skew = self.skews.get(&name).copied().unwrap_or_default();
            (name, ClusterServer { target, zone, log, state, running: None, crashes: 0, skew })
        };
        let mut cluster = TestCluster {
            web: Arc::default(),
            servers: self.nodes.into_iter().map(server).collect(),
            bucket: FaultBucket::default(),
            folder,
            change: self.change,
            tries: self.tries,
            seeds: Mutex::default(),
            clock: Clock::system(),
        };
        cluster.start_nodes(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
        cluster
    }
}

impl TestCluster {
    /// Returns a builder without nodes.
    pub fn builder() -> TestClusterBuilder {
        let tries = StoreConfig::default().retry.max_attempts;
        TestClusterBuilder { nodes: Vec::new(), skews: BTreeMap::new(), change: |_| {}, tries }
    }

    /// Starts stopped nodes concurrently and waits until they serve.
    pub async fn start_nodes(&mut self, names: &[&str]) {
        let mut starting = Vec::new();
        for name in names {
            starting.push(((*name).to_owned(), self.launch(name)));
        }
        for (name, (runtime, starting)) in starting {
            let node = starting.await.unwrap().unwrap_or_else(|error| panic!("{name}: {error}"));
            let server = self.servers.get_mut(&name).unwrap();
            server.running = Some(RunningNode { node: Arc::new(node), runtime });
        }
        for name in names {
            self.wait_until(&format!("{name} serves"), || self.node(name).roles().ready().is_ok()).await;
        }
    }

    fn launch(&self, name: &str) -> (NodeRuntime, NodeStart) {
        let server = &self.servers[name];
        let data = self.data_folder(name);
        std::fs::create_dir_all(&data).unwrap();
        let mut config = ServerConfig {
            http_listen_address: "127.0.0.1:0".to_owned(),
            data_dir: data,
            ..ServerConfig::default()
        };
        config.target = server.target.parse().unwrap();
        config.wal.min_free_bytes = WAL_RESERVE_BYTES;
        config.wal.segment_bytes = ByteSize::mib(1);
        config.wal.preallocated_segments = 0;
        // Blocks change only when a test merges them.
        config.compactor.poll_interval = IDLE_POLL_INTERVAL;
        config.limits = TenantLimits {
            reject_older_than: Duration::ZERO,
            reject_newer_than: Duration::ZERO,
            ..TenantLimits::default()
        };
        // The address is reserved now, so that nodes launched later get it as a seed.
        let gossip = std::net::UdpSocket::bind(LOOPBACK_ADDRESS).unwrap().local_addr().unwrap().to_string();
        let mut seeds = self.seeds.lock();
        config.cluster = ClusterConfig {
            id: Some(CLUSTER_ID.to_owned()),
            node_name: Some(name.to_owned()),
            availability_zone: server.zone.clone(),
            secret_file: Some(self.folder.path().join("secret")),
            internal_listen_address: Some(LOOPBACK_ADDRESS.to_string()),
            gossip_listen_address: Some(gossip.clone()),
            seed_nodes: seeds.values().cloned().collect(),
            ..ClusterConfig::default()
        };
        seeds.insert(name.to_owned(), gossip);
        drop(seeds);
        (self.change)(&mut config);
        let system = self.system(name);
        let overrides = LimitOverrides::new(config.limits.clone());
        let runtime = NodeRuntime::new();
        let starting =
            runtime.spawn(async move { ServerNode::start(&config, system, overrides, Arc::from("")).await });
        (runtime, starting)
    }

    fn system(&self, name: &str) -> NodeDeps {
        let server = &self.servers[name];
        let clock = Clock::system().with_skew(server.skew);
        let random = Random::system();
        let deps = StoreDeps { clock: clock.clone(), random: random.split() };
        let mut storage = StoreConfig::default();
        storage.retry.max_attempts = self.tries;
        NodeDeps {
            compute: ComputePool::with_threads(NonZeroUsize::MIN, 4096).unwrap(),
            log: Arc::new(server.log.clone()),
            state: Arc::new(server.state.clone()),
            cache: Some(Arc::new(MemoryDisk::new())),
            scratch: Arc::new(athanor_compactor::MemoryScratch),
            activity: None,
            pump: CommitMode::Thread,
            store: Store::with_object_store(Arc::new(TestBucket(self.bucket.clone())), &storage, deps),
            net: Arc::new(FaultNet {
                web: Arc::clone(&self.web),
                name: name.to_owned(),
                local: LocalNet::new(clock.clone()),
                clock: clock.clone(),
            }),
            gossip: Arc::new(UdpTransport),
            clock,
            random,
        }
    }

    /// Stops a node without shutdown, as a crash of its process does.
    pub fn kill(&mut self, name: &str) {
        let server = self.servers.get_mut(name).unwrap();
        let RunningNode { node, runtime } = server.running.take().unwrap();
        server.crashes += 1;
        // Later writes of the dropped process do not reach these disks.
        server.log = server.log.crash(server.crashes);
        server.state = server.state.crash(server.crashes);
        drop((runtime, node));
    }

    /// Stops a node with an orderly shutdown.
    pub async fn stop(&mut self, name: &str) -> Result<(), Status> {
        let RunningNode { node, runtime } = self.servers.get_mut(name).unwrap().running.take().unwrap();
        let node = Arc::into_inner(node).expect("nobody else holds it");
        let stopped = runtime.spawn(async move { node.stop().await }).await.unwrap();
        drop(runtime);
        let server = self.servers.get_mut(name).unwrap();
        (server.log, server.state) = (server.log.restart(), server.state.restart());
        stopped
    }

    /// Kills a node and starts it from its disks.
    pub async fn restart(&mut self, name: &str) {
        self.kill(name);
        self.start_nodes(&[name]).await;
    }

    /// Sets the offset of a node's wall clock in nanoseconds, from its next start. Negative is behind.
    pub fn skew(&mut self, name: &str, nanos: i64) {
        self.servers.get_mut(name).unwrap().skew = nanos;
    }

    /// Fills the disk of a node's log until half of the log's reserve is left.
    pub fn fill_disk(&self, name: &str) {
        const LARGE_DISK_BYTES: u64 = 1 << 50;
        let disk = &self.servers[name].log;
        disk.set_capacity(Some(LARGE_DISK_BYTES));
        let used = LARGE_DISK_BYTES - disk.free_bytes().unwrap();
        disk.set_capacity(Some(used + WAL_RESERVE_BYTES.get() / 2));
    }

    /// Removes the capacity limit that [`TestCluster::fill_disk`] set.
    pub fn free_disk(&self, name: &str) {
        self.servers[name].log.set_capacity(None);
    }

    /// Partitions two nodes: bytes between them wait until [`TestCluster::heal_network`].
    pub fn partition(&self, a: &str, b: &str) {
        self.web.partition(a, b);
    }

    /// Delays each chunk of bytes between two nodes, in both directions.
    pub fn delay_traffic(&self, a: &str, b: &str, delay: Duration) {
        self.web.slow(a, b, delay);
    }

    /// Holds all traffic from and to a node, as if its process were stopped.
    pub fn pause(&self, name: &str) {
        self.web.pause(name);
    }

    /// Resumes the traffic of a paused node.
    pub fn resume(&self, name: &str) {
        self.web.resume(name);
    }

    /// Removes all partitions, pauses and delays between all nodes.
    pub fn heal_network(&self) {
        self.web.heal();
    }

    /// Returns the bucket that all nodes share.
    pub fn bucket(&self) -> &FaultBucket {
        &self.bucket
    }

    /// Returns the data folder of a node.
    pub fn data_folder(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the id of a node within the cluster.
    pub fn node_id(&self, name: &str) -> NodeId {
        self.node(name).roles().cluster_handle().unwrap().membership().me.node
    }

    /// Returns a running node. Panics if the node is stopped.
    pub fn node(&self, name: &str) -> &ServerNode {
        &self.servers[name].running.as_ref().unwrap().node
    }

    /// Returns the names of the running nodes.
    pub fn names(&self) -> Vec<String> {
        let running = self.servers.iter().filter(|(_, server)| server.running.is_some());
        running.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the distributor at index `place` among the running nodes that have one, modulo their number.
    pub fn distributor(&self, place: usize) -> (&NodeRuntime, Distributor) {
        self.find_role(place, |roles| roles.distributor.clone())
    }

    /// Returns the querier at index `place` among the running nodes that have one, modulo their number.
    pub fn querier(&self, place: usize) -> (&NodeRuntime, Querier) {
        self.find_role(place, |roles| roles.querier.clone())
    }

    /// Returns a role and the runtime of its node: index `place` among the running nodes that have it, modulo
    /// their number.
    fn find_role<R: Clone>(&self, place: usize, of: impl Fn(&NodeRoles) -> Option<R>) -> (&NodeRuntime, R) {
        let running = self.servers.values().filter_map(|server| server.running.as_ref());
        let all: Vec<_> =
            running.filter_map(|running| Some((&running.runtime, of(running.node.roles())?))).collect();
        all[place % all.len()].clone()
    }

    /// Transfers the leadership of a shard from one node to another.
    pub async fn transfer_leadership(&self, from: &str, shard: u32, to: &str) -> Result<(), Status> {
        let running = self.servers[from].running.as_ref().unwrap();
        let ingester = running.node.roles().ingester.clone().unwrap();
        let to = self.node_id(to);
        run_on(&running.runtime, async move { ingester.transfer_shard(shard, to, STATE_DEADLINE).await })
            .await
    }

    /// Returns the catalog client of a node.
    pub fn catalog(&self, name: &str) -> (&NodeRuntime, Arc<dyn Catalog>) {
        let running = self.servers[name].running.as_ref().unwrap();
        (&running.runtime, Arc::clone(&running.node.roles().catalog))
    }

    /// Returns a compactor that uses a node's catalog client. `seed` determines its choices.
    pub fn compactor(&self, name: &str, seed: u64) -> (&NodeRuntime, TestCompactor) {
        let (runtime, catalog) = self.catalog(name);
        let NodeDeps { store, clock, .. } = self.system(name);
        let random = Random::from_seed(seed);
        let cluster = CLUSTER_ID.to_owned();
        let written = Arc::default();
        let gives_up_claims = true;
        (runtime, TestCompactor { catalog, store, clock, random, cluster, written, gives_up_claims })
    }

    /// Sleeps for one poll interval between two attempts.
    pub async fn sleep_briefly(&self) {
        self.clock.sleep(POLL_INTERVAL).await;
    }

    /// Returns the number of shards that a node leads.
    pub fn led_shard_count(&self, name: &str) -> usize {
        self.node(name).roles().ingester.as_ref().map_or(0, |ingester| ingester.led_shards().len())
    }

    /// Returns the number of block parts that a node's store-gateway was asked to query.
    pub fn queried_block_count(&self, name: &str) -> u64 {
        let stats = self.node(name).roles().gateway.stats().parts;
        stats.hits + stats.misses
    }

    /// Waits until the routing view of every running node fulfils a condition.
    pub async fn wait_for_view(&self, what: &str, wanted: impl Fn(&RoutingView) -> bool) {
        for name in self.names() {
            self.wait_until(&format!("{name}: {what}"), || wanted(&self.node(&name).roles().views.current()))
                .await;
        }
    }

    /// Polls until a condition holds. Panics with its description after [`STATE_DEADLINE`].
    pub async fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        let looking = async {
            while !is_so() {
                self.clock.sleep(POLL_INTERVAL).await;
            }
        };
        self.run_with_deadline(what, looking).await;
    }

    /// Awaits a future. Panics with its description after [`STATE_DEADLINE`].
    pub async fn run_with_deadline<R>(&self, what: &str, work: impl Future<Output = R>) -> R {
        let waited = self.clock.timeout(STATE_DEADLINE, work).await;
        waited.unwrap_or_else(|_| panic!("{what}: not within {STATE_DEADLINE:?}"))
    }

    /// Returns the running node that leads a shard.
    pub fn leader(&self, shard: u32) -> Option<String> {
        let leads = |name: &String| {
            let roles = self.node(name).roles();
            roles.ingester.as_ref().is_some_and(|ingester| ingester.led_shards().contains(&shard))
        };
        self.names().into_iter().find(leads)
    }
}

impl TestCluster {
    /// Returns the ingesters of the running nodes.
    pub fn ingesters(&self) -> Vec<Arc<Ingester>> {
        self.names().iter().filter_map(|name| self.node(name).roles().ingester.clone()).collect()
    }

    /// Flushes all shards until all stored profiles lie in registered blocks.
    pub async fn flush_all(&self, shards: usize) {
        let making = async {
            while !self.is_flushed(shards) {
                for ingester in self.ingesters() {
                    ingester.flush_all(&self.clock, STATE_DEADLINE).await.unwrap();
                }
                self.sleep_briefly().await;
            }
        };
        self.run_with_deadline("all is cut", making).await;
    }

    /// Returns whether all stored profiles lie in registered blocks and exactly this many shards have a
    /// leader.
    pub fn is_flushed(&self, shards: usize) -> bool {
        let ingesters = self.ingesters();
        let led: usize = ingesters.iter().map(|ingester| ingester.led_shards().len()).sum();
        led == shards && !ingesters.iter().any(|ingester| ingester.has_unflushed())
    }
}

/// Spawns a future on a node's runtime and returns a handle of its result.
pub fn run_on<R, W>(runtime: &NodeRuntime, work: W) -> impl Future<Output = R> + use<R, W>
where
    R: Send + 'static,
    W: Future<Output = R> + Send + 'static,
{
    let task = runtime.spawn(work);
    async move { task.await.unwrap() }
}
