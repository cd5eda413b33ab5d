//! Connection of this node to its cluster: members, the internal port, and raft messages.
//!
//! ```text
//!  ClusterBootstrap (port, secret) ─► join ─► ClusterHandle ─┬─ gossip, members
//!                                                            ├─ network: raft groups call their peers
//!                                                            └─ groups: peers call raft groups of this node
//! ```
//! A single-node server has none of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::tasks::TaskHandle;
use athanor_chassis::{Clock, ComputePool, ErrorCode, Net, Status, TaskGroup};
use athanor_cluster::NodeId;
use athanor_cluster::gossip::{Gossip, GossipConfig, GossipHandle, NodeDescriptor, Transport};
use athanor_cluster::handshake::{NodeIdentity, PeerHandshake};
use athanor_cluster::internal_server::InternalRouter;
use athanor_cluster::members::{ClusterMembers, MemberState};
use athanor_cluster::peers::{PeerDeps, PeerPool};
use athanor_cluster::raft_transport::{RaftHandler, RaftTransport, RaftTransportServer};
use athanor_cluster::rpc_client::RpcClient;
use athanor_cluster::secret::ClusterSecrets;
use athanor_consensus::replicated::{Network, RaftCallError};
use athanor_http_server::{ConnectionDeps, HttpListener, RequestLimiter};
use athanor_ingester::Ingester;
use axum::Router;
use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::RwLock;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::config::{ClusterJoinConfig, ServerConfig};
use crate::membership::join_error::ClusterJoinError;
use crate::membership::tls_files::TlsFileWatcher;
use crate::node::error::StartError;
use crate::node::node_deps::NodeDeps;

/// Maximum connections from other nodes.
const MAX_INTERNAL_CONNECTIONS: usize = 1024;
/// Maximum concurrent calls on one connection from a node, and over all connections.
const MAX_CALLS_PER_CONNECTION: u32 = 1024;
const MAX_CALLS: usize = MAX_INTERNAL_CONNECTIONS * MAX_CALLS_PER_CONNECTION as usize;
/// Interval between two reads of the secret file.
const SECRET_RELOAD_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum size of the secret file in bytes.
const MAX_SECRET_FILE_BYTES: u64 = 8 << 10;
/// Timeout of a raft message; raft has shorter timeouts of its own.
const RAFT_MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that calls from other nodes may take to finish when this node stops.
const INTERNAL_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Parts of a cluster connection that exist before the node's identity is loaded.
pub struct ClusterBootstrap {
    joining: ClusterJoinConfig,
    secrets: ClusterSecrets,
    /// Network for both directions, with TLS if certificates are configured.
    net: Arc<dyn Net>,
    certificates: Option<TlsFileWatcher>,
    listener: HttpListener,
}

/// Connection of a running node to its cluster.
pub struct ClusterHandle {
    company: MembershipView,
    rpc_client: RpcClient,
    gossip: Gossip,
    talk: RaftTransport,
    groups: Arc<RaftGroupRegistry>,
    address: SocketAddr,
    /// Guard that closes the internal port on drop.
    stop: DropGuard,
    served: TaskHandle<()>,
}

/// View of the cluster's members, for components that read it.
#[derive(Clone)]
pub struct MembershipView {
    /// Identity of this node.
    pub me: NodeIdentity,
    /// All members that gossip reports.
    pub members: ClusterMembers,
    /// Clock against which a member's missing time is measured.
    pub clock: Clock,
}

impl ClusterBootstrap {
    /// Prepares the connection that the settings describe; `None` for a single-node server.
    pub async fn from_config(
        config: &ServerConfig,
        net: &Arc<dyn Net>,
        clock: &Clock,
    ) -> Result<Option<Self>, StartError> {
        let joining = config.cluster.join_config()?;
        config.metastore.validate()?;
        match joining {
            Some(joining) => Ok(Some(Self::take(joining, Arc::clone(net), clock).await?)),
            None => Ok(None),
        }
    }

    /// Reads the secret and the certificates, and binds the internal port.
    pub async fn take(
        joining: ClusterJoinConfig,
        net: Arc<dyn Net>,
        clock: &Clock,
    ) -> Result<Self, ClusterJoinError> {
        let path = &joining.secret_file;
        let text =
            read(path).map_err(|source| ClusterJoinError::SecretFile { path: path.clone(), source })?;
        let secrets = ClusterSecrets::parse(&text)
            .map_err(|source| ClusterJoinError::Secret { path: path.clone(), source })?;
        let certificates = joining.tls.clone().map(TlsFileWatcher::read).transpose()?;
        let net = match &certificates {
            Some(certificates) => certificates.wrap_network(net, clock),
            None => net,
        };
        let at = joining.internal_listen_address;
        let socket = net.listen(at).await.map_err(|source| ClusterJoinError::Listen { at, source })?;
        Ok(Self { joining, secrets, net, certificates, listener: HttpListener::from_socket(socket) })
    }

    /// Joins the cluster as this node: starts gossip, the internal server and the reload tasks.
    pub async fn join(
        self,
        me: NodeIdentity,
        config: &ServerConfig,
        system: &NodeDeps,
        tasks: &TaskGroup,
        offered: impl FnOnce(InternalRouter) -> InternalRouter,
    ) -> Result<ClusterHandle, ClusterJoinError> {
        let Self { joining, secrets, net, certificates, listener } = self;
        let settings = &config.cluster;
        let clock = system.clock.clone();
        let mut address = listener.address();
        if let Some(advertise) = joining.advertise_address {
            address.set_ip(advertise);
        }
        let this = NodeDescriptor {
            name: settings.node_name.clone().unwrap_or_else(|| format!("{:016x}", me.node)),
            zone: settings.availability_zone.clone(),
            roles: config.target.roles().clone(),
            internal: address,
        };
        let gossip_config = GossipConfig {
            me,
            listen: joining.gossip_listen_address,
            advertise: joining.advertise_address,
            seeds: settings.seed_nodes.clone(),
            this,
        };
        let transport: &dyn Transport = &*system.gossip;
        let (gossip, members) = Gossip::start(gossip_config, transport, clock.clone(), tasks).await?;
        let handshake = Arc::new(PeerHandshake::new(me));
        let deps = PeerDeps {
            net,
            secrets: secrets.clone(),
            clock: clock.clone(),
            random: system.random.split(),
            tasks: tasks.clone(),
        };
        let peers = PeerPool::new(deps, members.clone());
        let talk = RaftTransport::new(peers.clone(), Arc::clone(&handshake));
        let rpc_client = RpcClient { peers, handshake: Arc::clone(&handshake) };
        let groups = Arc::<RaftGroupRegistry>::default();
        let stop = CancellationToken::new();
        let hear: Arc<dyn RaftHandler> = Arc::clone(&groups) as _;
        let answering = RaftTransportServer::new(hear, handshake, clock.clone(), stop.clone());
        let routes = offered(InternalRouter::default()).with_raft(answering).into_router(secrets.clone());
        let serving = serve(listener, routes, connection_deps(tasks, &clock), stop.clone());
        let served = tasks.spawn("internal listener", serving)?;
        let compute = system.compute.clone();
        let watching = watch(secrets, joining.secret_file, compute, clock.clone(), tasks.shutdown_token());
        tasks.spawn("cluster secret reload", watching)?;
        if let Some(certificates) = certificates {
            let compute = system.compute.clone();
            tasks.spawn("TLS reload", certificates.watch(compute, clock.clone(), tasks.shutdown_token()))?;
        }
        tracing::info!(internal = %address, gossip = %gossip.address(), "joining the cluster");
        let company = MembershipView { me, members, clock };
        Ok(ClusterHandle {
            company,
            rpc_client,
            gossip,
            talk,
            groups,
            address,
            stop: stop.drop_guard(),
            served,
        })
    }
}

/// Returns the dependencies of connections from other nodes, with the limits of the internal port.
fn connection_deps(tasks: &TaskGroup, clock: &Clock) -> ConnectionDeps {
    ConnectionDeps {
        tasks: tasks.clone(),
        clock: clock.clone(),
        enough: CancellationToken::new(),
        room: Arc::new(Semaphore::new(MAX_INTERNAL_CONNECTIONS)),
        requests: Arc::new(RequestLimiter::new(MAX_CALLS, MAX_CALLS_PER_CONNECTION)),
    }
}

/// Serves calls from other nodes. After the stop, open calls have [`INTERNAL_DRAIN_TIMEOUT`] to finish.
async fn serve(listener: HttpListener, routes: Router, lasting: ConnectionDeps, stop: CancellationToken) {
    let losing_patience = async {
        stop.cancelled().await;
        lasting.clock.sleep(INTERNAL_DRAIN_TIMEOUT).await;
        lasting.enough.cancel();
        std::future::pending().await
    };
    tokio::select! {
        biased;
        () = listener.serve(routes, &lasting, stop.clone()) => {}
        () = losing_patience => {}
    }
}

impl ClusterHandle {
    /// Returns the view of the members.
    pub fn membership(&self) -> &MembershipView {
        &self.company
    }

    /// Returns the RPC client for other nodes.
    pub fn rpc_client(&self) -> &RpcClient {
        &self.rpc_client
    }

    /// Returns the address of this node's gossip.
    pub fn gossip(&self) -> SocketAddr {
        self.gossip.address()
    }

    /// Returns the address of the internal port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the network of this node's raft groups to their peers.
    pub fn network(&self) -> Arc<dyn Network> {
        Arc::new(PeerRaftNetwork(self.talk.clone()))
    }

    /// Returns the raft groups of this node that other nodes may call.
    pub fn groups(&self) -> &Arc<RaftGroupRegistry> {
        &self.groups
    }

    /// Announces the lifecycle state of this node by gossip.
    pub async fn announce_state(&self, state: MemberState) {
        self.gossip.announce_state(state).await;
    }

    /// Returns the handle that announces properties of this node by gossip.
    pub fn voice(&self) -> GossipHandle {
        self.gossip.handle().clone()
    }

    /// Announces the leave by gossip and closes the internal port.
    pub async fn leave(self) {
        self.gossip.leave().await;
        drop(self.stop);
        if let Err(error) = self.served.await {
            tracing::warn!(%error, "internal listener ended with an error");
        }
    }
}

/// Handler of one raft group's messages.
type RaftHandlerFn = Box<dyn Fn(Bytes) -> BoxFuture<'static, Bytes> + Send + Sync>;

/// Raft groups that this node is a member of.
#[derive(Default)]
pub struct RaftGroupRegistry {
    known: RwLock<BTreeMap<u32, RaftHandlerFn>>,
    /// Ingester that handles all groups without an entry of their own.
    ingester: OnceLock<Arc<Ingester>>,
}

impl RaftGroupRegistry {
    /// Registers the handler of one group.
    pub fn add(&self, group: u32, answer: RaftHandlerFn) {
        self.known.write().insert(group, answer);
    }

    /// Registers the ingester for messages to shards.
    pub fn set_ingester(&self, ingester: Arc<Ingester>) {
        // A node sets its ingester once, at start.
        let _ = self.ingester.set(ingester);
    }
}

#[async_trait]
impl RaftHandler for RaftGroupRegistry {
    async fn handle_call(&self, _: NodeId, group: u32, request: Bytes) -> Result<Bytes, Status> {
        let answering = {
            let known = self.known.read();
            known.get(&group).map(|answer| answer(request.clone()))
        };
        let none = || Status::new(ErrorCode::NotFound, format!("this node is not a member of group {group}"));
        match (answering, self.ingester.get()) {
            (Some(answering), _) => Ok(answering.await),
            (None, Some(ingester)) => ingester.handle_raft_request(group, request).await.ok_or_else(none),
            (None, None) => Err(none()),
        }
    }
}

/// Network of raft groups over the internal RPC.
struct PeerRaftNetwork(RaftTransport);

#[async_trait]
impl Network for PeerRaftNetwork {
    async fn call(&self, to: u64, group: u32, request: Bytes) -> Result<Bytes, RaftCallError> {
        let called = self.0.call(to, group, request, RAFT_MESSAGE_TIMEOUT).await;
        called.map_err(|error| RaftCallError { to, reason: error.to_string() })
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_SECRET_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Reloads the secret file periodically. An unreadable or invalid file leaves the secret unchanged.
async fn watch(
    secrets: ClusterSecrets,
    path: PathBuf,
    compute: ComputePool,
    clock: Clock,
    token: CancellationToken,
) {
    loop {
        tokio::select! {
            biased;
            () = token.cancelled() => return,
            () = clock.sleep(SECRET_RELOAD_INTERVAL) => {}
        }
        let file = path.clone();
        let found = match compute.run(move || read(&file)).await {
            Ok(read) => read.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let taken = found.and_then(|text| secrets.replace(&text).map_err(|error| error.to_string()));
        if let Err(error) = taken {
            tracing::warn!(path = %path.display(), error, "cluster secret reload failed, keeping the previous one");
        }
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::Timestamp;

    use super::*;

    #[tokio::test]
    async fn the_secret_is_read_again_and_a_bad_file_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let texts = ["the first of all secrets", "the second of all secrets"];
        std::fs::write(&path, texts[0]).unwrap();
        let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
        let secrets = ClusterSecrets::parse(&read(&path).unwrap()).unwrap();
        let [first, second] = texts.map(|text| ClusterSecrets::parse(text).unwrap().authorization_header());
        let token = CancellationToken::new();
        let watching =
            watch(secrets.clone(), path.clone(), ComputePool::inline(), clock.clone(), token.clone());
        let driving = async {
            for (text, shown) in [("short", &first), (texts[1], &second), ("", &second)] {
                hand.wait_for_sleepers(1).await;
                std::fs::write(&path, text).unwrap();
                hand.advance(SECRET_RELOAD_INTERVAL);
                hand.wait_for_sleepers(1).await;
                assert_eq!(secrets.authorization_header(), *shown, "{text}");
            }
            token.cancel();
        };
        tokio::join!(watching, driving);
    }

    #[tokio::test]
    async fn groups_answer_for_themselves() {
        let groups = RaftGroupRegistry::default();
        groups.add(7, Box::new(|request| Box::pin(async move { request.slice(1..) })));
        assert_eq!(groups.handle_call(1, 7, Bytes::from_static(b"ab")).await, Ok(Bytes::from_static(b"b")));
        let none = groups.handle_call(1, 8, Bytes::new()).await.unwrap_err();
        assert_eq!(
            (none.code, none.message.as_str()),
            (ErrorCode::NotFound, "this node is not a member of group 8")
        );
    }
}
