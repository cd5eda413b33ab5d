//! Nodes of a cluster in one thread: some vote in the catalogue, some only ask it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::disk::MemoryDisk;
use athanor_chassis::net::memory::MemoryNet;
use athanor_chassis::{ByteSize, Clock, ComputePool, Disk, ErrorCode, Net, Random, Status, TaskGroup};
use athanor_cluster::NodeId;
use athanor_cluster::handshake::{NodeIdentity, PeerHandshake};
use athanor_cluster::internal_server::InternalRouter;
use athanor_cluster::members::{ClusterMember, ClusterMembers, MemberState, RoleName};
use athanor_cluster::peers::{PeerDeps, PeerPool};
use athanor_cluster::raft_transport::{RaftHandler, RaftTransport, RaftTransportServer};
use athanor_cluster::rpc_client::RpcClient;
use athanor_cluster::secret::ClusterSecrets;
use athanor_consensus::RaftGroup;
use athanor_consensus::log::{CommitMode, Log, LogConfig, LogIdentity};
use athanor_consensus::replicated::{GroupBootstrap, Network, RaftCallError, RaftGroupDeps, RaftTiming};
use athanor_metastore::{
    BootstrapDeps, CATALOG_GROUP, CatalogStateMachine, MetastoreClient, MetastoreClientDeps, MetastoreServer,
    MetastoreServerDeps, MetastoreVoter, MetastoreVoterDeps, RoutingWatch, VoterMaintenance,
    decide_bootstrap,
};
use athanor_storage::{StorageConfig as Bucket, Store, StoreDeps};
use bytes::Bytes;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;

pub const CLUSTER: u128 = 0xc1;
/// In all of this time something must come to its end.
pub const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

pub struct Town {
    pub net: MemoryNet,
    pub clock: Clock,
    pub random: Random,
    pub store: Store,
    members: ClusterMembers,
    /// Clocks of nodes, each of which may jump.
    pub clocks: BTreeMap<NodeId, Clock>,
    pub nodes: BTreeMap<NodeId, Node>,
}

/// What outlives a node's process, and the process.
pub struct Node {
    log_disk: MemoryDisk,
    state_disk: MemoryDisk,
    process: Option<Process>,
}

struct Process {
    tasks: TaskGroup,
    metastore: Option<MetastoreVoter>,
    group: Option<RaftGroup<CatalogStateMachine>>,
    service: Option<MetastoreServer>,
    peers: PeerPool,
    client: MetastoreClient,
    views: RoutingWatch,
}

/// The group of this node, for others.
struct Group(Option<RaftGroup<CatalogStateMachine>>);

#[async_trait]
impl RaftHandler for Group {
    async fn handle_call(&self, _: NodeId, _: u32, request: Bytes) -> Result<Bytes, Status> {
        match &self.0 {
            Some(group) => Ok(group.handle_request(request).await),
            None => Err(Status::new(ErrorCode::NotFound, "this node has no group")),
        }
    }
}

struct Ways(RaftTransport);

#[async_trait]
impl Network for Ways {
    async fn call(&self, to: u64, group: u32, request: Bytes) -> Result<Bytes, RaftCallError> {
        let called = self.0.call(to, group, request, Duration::from_secs(10)).await;
        called.map_err(|error| RaftCallError { to, reason: error.to_string() })
    }
}

/// Where a node takes calls.
pub fn address(node: NodeId) -> SocketAddr {
    ([127, 0, 0, node as u8], 9095).into()
}

/// The node of that number, as gossip tells of it.
fn member(node: NodeId, roles: &[RoleName]) -> ClusterMember {
    ClusterMember {
        node,
        name: format!("n{node}"),
        zone: String::new(),
        roles: roles.iter().copied().collect(),
        internal: address(node),
        boot: 1,
        state: MemberState::Ready,
        missing_since: None,
    }
}

pub fn me(node: NodeId) -> NodeIdentity {
    NodeIdentity { cluster: CLUSTER, node, boot: 1 }
}

impl Town {
    /// Without nodes.
    pub fn new(seed: u64) -> Self {
        let (clock, random) = (Clock::system(), Random::from_seed(seed));
        let votes = (1..=7).map(|node| member(node, &[RoleName::Metastore]));
        let asks = [8, 9].map(|node| member(node, &[RoleName::Distributor]));
        Self {
            net: MemoryNet::default(),
            store: bucket(&clock, &random),
            clocks: (1..=9).map(|node| (node, clock.with_skew(0))).collect(),
            clock,
            random,
            members: ClusterMembers::from_static(votes.chain(asks)),
            nodes: BTreeMap::new(),
        }
    }

    /// Nodes 1 to `voters` vote, 8 and 9 ask; more may join.
    pub async fn start(voters: u64, seed: u64) -> Self {
        let mut town = Self::new(seed);
        let founders: BTreeSet<NodeId> = (1..=voters).collect();
        for node in 1..=voters {
            town.boot(node, Some(GroupBootstrap::Members(founders.clone()))).await;
        }
        for node in [8, 9] {
            town.boot(node, None).await;
        }
        town
    }

    /// Starts a node, or starts it again. With a founding it votes.
    pub async fn boot(&mut self, number: NodeId, founding: Option<GroupBootstrap>) {
        let log = self.log(number);
        self.open(number, founding.map(|founding| (founding, log)), None).await;
    }

    /// Starts a node that votes as its log or the bucket say, and does what voters do by themselves.
    pub async fn begin(&mut self, number: NodeId, wanted: u16) {
        let log = self.log(number);
        let deciding = self.deciding(number, wanted);
        let founding = decide_bootstrap(&log, &deciding).await.unwrap();
        self.open(number, Some((founding, log)), Some(deciding)).await;
    }

    fn clock_of(&self, node: NodeId) -> Clock {
        // One that never started has the clock of the town.
        self.clocks.get(&node).unwrap_or(&self.clock).clone()
    }

    pub fn deciding(&self, node: NodeId, wanted: u16) -> BootstrapDeps {
        let (store, members, clock) = (self.store.clone(), self.members.clone(), self.clock_of(node));
        BootstrapDeps { store, members, node, cluster: CLUSTER, wanted, clock }
    }

    pub fn log(&mut self, number: NodeId) -> Log {
        let disks = || Node { log_disk: MemoryDisk::new(), state_disk: MemoryDisk::new(), process: None };
        let disk = self.nodes.entry(number).or_insert_with(disks).log_disk.clone();
        let config = LogConfig {
            segment: ByteSize::mib(4),
            spares: 1,
            reserve: ByteSize::bytes(0),
            ..LogConfig::default()
        };
        let identity = LogIdentity { cluster: CLUSTER, node: number };
        Log::open(Arc::new(disk), &self.random, identity, &config, CommitMode::Inline).unwrap().0
    }

    /// What a node's group would run on, without a network.
    pub fn deps(&mut self, node: NodeId) -> RaftGroupDeps {
        let log = self.log(node);
        let disk = Arc::new(self.nodes[&node].state_disk.clone());
        let (compute, random, timing) = (ComputePool::inline(), self.random.split(), RaftTiming::default());
        RaftGroupDeps { log, disk, compute, random, network: None, node, timing }
    }

    async fn open(
        &mut self,
        number: NodeId,
        founding: Option<(GroupBootstrap, Log)>,
        deciding: Option<BootstrapDeps>,
    ) {
        let state_disk = self.nodes[&number].state_disk.clone();
        let tasks = TaskGroup::new(self.clock.clone(), 10_000);
        let handshake = Arc::new(PeerHandshake::new(me(number)));
        let net: Arc<dyn Net> = Arc::new(self.net.host(address(number).ip()));
        let peers = PeerPool::new(
            PeerDeps {
                net: Arc::clone(&net),
                secrets: secrets(),
                clock: self.clock.clone(),
                random: self.random.split(),
                tasks: tasks.clone(),
            },
            self.members.clone(),
        );
        let remote = RpcClient { peers: peers.clone(), handshake: Arc::clone(&handshake) };
        let group = match founding {
            None => None,
            Some((founding, log)) => {
                let talk = RaftTransport::new(peers.clone(), Arc::clone(&handshake));
                let deps = self.consensus(number, log, state_disk, talk);
                Some(
                    RaftGroup::open(&deps, CATALOG_GROUP, founding, CatalogStateMachine::default())
                        .await
                        .unwrap(),
                )
            }
        };
        let metastore = group.clone().map(|group| voter(group, self.clock_of(number)));
        let hear: Arc<dyn RaftHandler> = Arc::new(Group(group.clone()));
        let answering = RaftTransportServer::new(
            hear,
            Arc::clone(&handshake),
            self.clock.clone(),
            tasks.shutdown_token(),
        );
        let mut services = InternalRouter::default().with_raft(answering);
        let service = metastore.clone().map(|metastore| {
            MetastoreServer::new(MetastoreServerDeps {
                metastore,
                remote: remote.clone(),
                clock: self.clock_of(number),
                compute: ComputePool::inline(),
                stop: tasks.shutdown_token(),
            })
        });
        if let Some(service) = service.clone() {
            services = services.with_service(service.into_grpc_service());
        }
        serve(services, net, number, &tasks).await;
        let client = MetastoreClient::new(MetastoreClientDeps {
            local: metastore.clone(),
            remote: Some(remote.clone()),
            clock: self.clock.clone(),
            random: self.random.split(),
            compute: ComputePool::inline(),
        });
        let views = RoutingWatch::follow(&client, &tasks).unwrap();
        if let (Some(metastore), Some(deciding)) = (metastore.clone(), deciding) {
            VoterMaintenance { metastore, deciding, compute: ComputePool::inline(), remote }
                .spawn(&tasks)
                .unwrap();
        }
        let process = Process { tasks, metastore, group, service, peers, client, views };
        self.nodes.get_mut(&number).unwrap().process = Some(process);
    }

    fn consensus(&self, node: NodeId, log: Log, state: MemoryDisk, talk: RaftTransport) -> RaftGroupDeps {
        RaftGroupDeps {
            log,
            disk: Arc::new(state),
            compute: ComputePool::inline(),
            random: self.random.split(),
            network: Some(Arc::new(Ways(talk))),
            node,
            timing: RaftTiming::default(),
        }
    }

    /// Two nodes do not reach each other any more.
    pub fn cut(&self, one: NodeId, other: NodeId) {
        self.net.partition(address(one).ip(), address(other).ip());
    }

    /// A node loses its power.
    pub async fn kill(&mut self, number: NodeId) {
        self.net.stop_host(address(number).ip());
        let seed = self.random.next_u64();
        let node = self.nodes.get_mut(&number).unwrap();
        (node.log_disk, node.state_disk) = (node.log_disk.crash(seed), node.state_disk.crash(seed));
        let process = node.process.take().unwrap();
        process.tasks.shutdown(Duration::ZERO).await;
        if let Some(group) = process.group {
            group.shutdown().await;
        }
    }

    fn process(&self, node: NodeId) -> &Process {
        self.nodes[&node].process.as_ref().unwrap()
    }

    pub fn metastore(&self, node: NodeId) -> MetastoreVoter {
        self.process(node).metastore.clone().unwrap()
    }

    pub fn group(&self, node: NodeId) -> RaftGroup<CatalogStateMachine> {
        self.process(node).group.clone().unwrap()
    }

    /// Names of the files beside a node's log.
    pub fn files(&self, node: NodeId) -> Vec<String> {
        self.nodes[&node].state_disk.list().unwrap()
    }

    pub fn service(&self, node: NodeId) -> MetastoreServer {
        self.process(node).service.clone().unwrap()
    }

    pub fn client(&self, node: NodeId) -> MetastoreClient {
        self.process(node).client.clone()
    }

    pub fn views(&self, node: NodeId) -> RoutingWatch {
        self.process(node).views.clone()
    }

    pub fn peers(&self, node: NodeId) -> PeerPool {
        self.process(node).peers.clone()
    }

    /// Who leads and is heard by a majority.
    pub async fn leader(&self) -> NodeId {
        let looking = async {
            loop {
                for (number, node) in &self.nodes {
                    let metastore = node.process.as_ref().and_then(|process| process.metastore.as_ref());
                    if let Some(metastore) = metastore
                        && metastore.leader_watch().current().here
                        && metastore.voter_infos().await.is_ok()
                    {
                        return *number;
                    }
                }
                self.clock.sleep(LOOK).await;
            }
        };
        self.clock.timeout(PATIENCE, looking).await.expect("somebody leads")
    }
}

fn voter(group: RaftGroup<CatalogStateMachine>, clock: Clock) -> MetastoreVoter {
    let compute = ComputePool::inline();
    MetastoreVoter::new(MetastoreVoterDeps { group, clock, compute, uploads_snapshots: true })
}

pub fn bucket(clock: &Clock, random: &Random) -> Store {
    let deps = StoreDeps { clock: clock.clone(), random: random.split() };
    Store::open(&Bucket { memory: true, ..Bucket::default() }, deps).unwrap()
}

pub fn secrets() -> ClusterSecrets {
    ClusterSecrets::parse("a secret of some length").unwrap()
}

async fn serve(services: InternalRouter, net: Arc<dyn Net>, node: NodeId, tasks: &TaskGroup) {
    let routes = services.into_router(secrets());
    let mut listener = net.listen(address(node)).await.unwrap();
    let all = tasks.clone();
    let accepting = async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(routes.clone());
            let serving =
                http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
            let token = all.shutdown_token();
            let served = async move {
                tokio::select! {
                    biased;
                    () = token.cancelled() => {}
                    _ = serving => {}
                }
            };
            // None is taken by a node that ends.
            let _ = all.spawn("connection", served);
        }
    };
    tasks.spawn("listener", accepting).unwrap();
}

/// Runs a world whose time is only waited for; with it ends everything that was started in it.
pub fn simulate<R>(world: impl Future<Output = R>) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(world)
}
