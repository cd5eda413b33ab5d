//! The other nodes of a cluster: who is there, the port for them, and messages of groups.
//!
//! ```text
//!  Entry (port, secret) ─► begin ─► Others ─┬─ gossip, members
//!                                           ├─ network: groups of this node call theirs
//!                                           └─ groups: theirs call groups of this node
//! ```
//! A server that is alone has none of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::tasks::{SpawnError, TaskHandle};
use athanor_chassis::{Clock, ComputePool, ErrorCode, ErrorCodeExt, Net, Status, TaskGroup};
use athanor_cluster::NodeId;
use athanor_cluster::gossip::{Gossip, GossipConfig, GossipError, GossipHandle, NodeDescriptor, Transport};
use athanor_cluster::handshake::{NodeIdentity, PeerHandshake};
use athanor_cluster::internal_server::InternalRouter;
use athanor_cluster::members::{ClusterMembers, MemberState, RoleName};
use athanor_cluster::peers::{PeerDeps, PeerPool};
use athanor_cluster::raft_transport::{RaftHandler, RaftTransport, RaftTransportServer};
use athanor_cluster::secret::{ClusterSecrets, SecretError};
use athanor_consensus::replicated::{Network, RaftCallError};
use athanor_ingester::Ingester;
use axum::Router;
use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::config::{ClusterConfig, ClusterJoinConfig, ServerConfig};
use crate::http::{ConnectionDeps, HttpListener, RequestLimiter};
use crate::ingester_client::InternalRpcClient;
use crate::node::{NodeDeps, StartError};
use crate::tls_files::{TlsFileError, TlsFileWatcher};

/// Connections of other nodes.
const MAX_INTERNAL_CONNECTIONS: usize = 1024;
/// Calls that one node may have under way at another, and those of all nodes.
const MAX_CALLS_PER_CONNECTION: u32 = 1024;
const MAX_CALLS: usize = MAX_INTERNAL_CONNECTIONS * MAX_CALLS_PER_CONNECTION as usize;
/// How often the file with the secret is read again.
const SECRET_RELOAD_INTERVAL: Duration = Duration::from_secs(10);
/// Bytes of it, at most.
const MAX_SECRET_FILE_BYTES: u64 = 8 << 10;
/// How long a message of a group is under way at the most; raft has shorter limits of its own.
const RAFT_MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long what other nodes have asked may take to finish when this one stops.
const INTERNAL_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// What a node of a cluster needs before it knows who it is.
pub struct ClusterBootstrap {
    joining: ClusterJoinConfig,
    secrets: ClusterSecrets,
    /// The way to others, and theirs to this one.
    net: Arc<dyn Net>,
    certificates: Option<TlsFileWatcher>,
    listener: HttpListener,
}

/// The other nodes, and this one's part.
pub struct ClusterHandle {
    company: MembershipView,
    afar: InternalRpcClient,
    gossip: Gossip,
    talk: RaftTransport,
    groups: Arc<RaftGroupRegistry>,
    address: SocketAddr,
    /// Dropped, the port is let go.
    stop: DropGuard,
    served: TaskHandle<()>,
}

/// Who is there, for whoever looks.
#[derive(Clone)]
pub struct MembershipView {
    /// This node.
    pub me: NodeIdentity,
    /// All of them.
    pub members: ClusterMembers,
    /// Since when somebody is missing is by this one.
    pub clock: Clock,
}

/// Why a node does not join its cluster.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each says what it is by its message")]
pub enum ClusterJoinError {
    #[error("cluster.secret_file: {}: {source}", path.display())]
    Secret { path: PathBuf, source: SecretError },
    #[error("cluster.secret_file: {} cannot be read: {source}", path.display())]
    SecretFile { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Certificates(#[from] TlsFileError),
    #[error(
        "cannot listen for other nodes on {at}: {source}; cluster.listen_internal chooses another address"
    )]
    Listen { at: SocketAddr, source: io::Error },
    #[error(transparent)]
    Gossip(#[from] GossipError),
    #[error(transparent)]
    Task(#[from] SpawnError),
}

impl ErrorCodeExt for ClusterJoinError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Secret { .. } => ErrorCode::Invalid,
            Self::SecretFile { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => ErrorCode::NotFound,
                io::ErrorKind::PermissionDenied => ErrorCode::PermissionDenied,
                _ => ErrorCode::Unavailable,
            },
            Self::Certificates(error) => error.code(),
            Self::Listen { .. } => ErrorCode::Unavailable,
            Self::Gossip(error) => error.code(),
            Self::Task(error) => error.code(),
        }
    }
}

impl ClusterBootstrap {
    /// What these settings ask for; none for a node that is alone.
    pub async fn from_config(
        config: &ServerConfig,
        net: &Arc<dyn Net>,
        clock: &Clock,
    ) -> Result<Option<Self>, StartError> {
        match config.cluster.join_config()? {
            Some(joining) => Ok(Some(Self::take(joining, Arc::clone(net), clock).await?)),
            None => Ok(None),
        }
    }

    /// Reads the secret and the certificates, and takes the port.
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
        let at = joining.listen_internal;
        let socket = net.listen(at).await.map_err(|source| ClusterJoinError::Listen { at, source })?;
        Ok(Self { joining, secrets, net, certificates, listener: HttpListener::from_socket(socket) })
    }

    /// Takes part, as this node.
    pub async fn join(
        self,
        me: NodeIdentity,
        (settings, roles): (&ClusterConfig, &BTreeSet<RoleName>),
        system: &NodeDeps,
        tasks: &TaskGroup,
        offered: impl FnOnce(InternalRouter) -> InternalRouter,
    ) -> Result<ClusterHandle, ClusterJoinError> {
        let Self { joining, secrets, net, certificates, listener } = self;
        let clock = system.clock.clone();
        let mut address = listener.address();
        if let Some(advertise) = joining.advertise {
            address.set_ip(advertise);
        }
        let this = NodeDescriptor {
            name: settings.name.clone().unwrap_or_else(|| format!("{:016x}", me.node)),
            zone: settings.zone.clone(),
            roles: roles.clone(),
            internal: address,
        };
        let config = GossipConfig {
            me,
            listen: joining.listen_gossip,
            advertise: joining.advertise,
            seeds: settings.seeds.clone(),
            this,
        };
        let transport: &dyn Transport = &*system.gossip;
        let (gossip, members) = Gossip::start(config, transport, clock.clone(), tasks).await?;
        let introductions = Arc::new(PeerHandshake::new(me));
        let deps = PeerDeps {
            net,
            secrets: secrets.clone(),
            clock: clock.clone(),
            random: system.random.split(),
            tasks: tasks.clone(),
        };
        let peers = PeerPool::new(deps, members.clone());
        let talk = RaftTransport::new(peers.clone(), Arc::clone(&introductions));
        let afar = InternalRpcClient { peers, introductions: Arc::clone(&introductions) };
        let groups = Arc::<RaftGroupRegistry>::default();
        let stop = CancellationToken::new();
        let hear: Arc<dyn RaftHandler> = Arc::clone(&groups) as _;
        let answering = RaftTransportServer::new(hear, introductions, clock.clone(), stop.clone());
        let routes = offered(InternalRouter::default()).with_raft(answering).into_router(secrets.clone());
        let room = Arc::new(Semaphore::new(MAX_INTERNAL_CONNECTIONS));
        let enough = CancellationToken::new();
        let lasting = ConnectionDeps {
            tasks: tasks.clone(),
            clock: clock.clone(),
            enough,
            room,
            requests: Arc::new(RequestLimiter::new(MAX_CALLS, MAX_CALLS_PER_CONNECTION)),
        };
        let serving = serve(listener, routes, lasting, stop.clone());
        let served = tasks.spawn("listener for other nodes", serving)?;
        let compute = system.compute.clone();
        let watching = watch(secrets, joining.secret_file, compute, clock.clone(), tasks.shutdown_token());
        tasks.spawn("secret", watching)?;
        if let Some(certificates) = certificates {
            let compute = system.compute.clone();
            tasks
                .spawn("certificates", certificates.watch(compute, clock.clone(), tasks.shutdown_token()))?;
        }
        tracing::info!(internal = %address, gossip = %gossip.address(), "joining the cluster");
        let company = MembershipView { me, members, clock };
        Ok(ClusterHandle { company, afar, gossip, talk, groups, address, stop: stop.drop_guard(), served })
    }
}

/// Answers other nodes, and those that are under way when it stops for a while longer.
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
    /// Who is there.
    pub fn membership(&self) -> &MembershipView {
        &self.company
    }

    /// The ways to them.
    pub fn rpc_client(&self) -> &InternalRpcClient {
        &self.afar
    }

    /// Where other nodes find this one in gossip.
    pub fn gossip(&self) -> SocketAddr {
        self.gossip.address()
    }

    /// Where they connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The way of this node's groups to their other members.
    pub fn network(&self) -> Arc<dyn Network> {
        Arc::new(PeerRaftNetwork(self.talk.clone()))
    }

    /// Groups of this node, which other nodes may call.
    pub fn groups(&self) -> &Arc<RaftGroupRegistry> {
        &self.groups
    }

    /// Tells where in its life this node is.
    pub async fn announce_state(&self, state: MemberState) {
        self.gossip.announce_state(state).await;
    }

    /// For whoever tells others how this node is.
    pub fn voice(&self) -> GossipHandle {
        self.gossip.handle().clone()
    }

    /// Says goodbye, and takes no more calls.
    pub async fn leave(self) {
        self.gossip.leave().await;
        drop(self.stop);
        if let Err(error) = self.served.await {
            tracing::warn!(%error, "the listener for other nodes did not end well");
        }
    }
}

/// How a group answers.
type RaftHandlerFn = Box<dyn Fn(Bytes) -> BoxFuture<'static, Bytes> + Send + Sync>;

/// Groups that this node is a member of.
#[derive(Default)]
pub struct RaftGroupRegistry {
    known: RwLock<BTreeMap<u32, RaftHandlerFn>>,
    /// Has all others.
    ingester: OnceLock<Arc<Ingester>>,
}

impl RaftGroupRegistry {
    /// From now on calls to that group are answered so.
    pub fn add(&self, group: u32, answer: RaftHandlerFn) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(group, answer);
    }

    /// From now on calls to shards are answered by these.
    pub fn set_ingester(&self, ingester: Arc<Ingester>) {
        // A node has one ingester, and begins once.
        let _ = self.ingester.set(ingester);
    }
}

#[async_trait]
impl RaftHandler for RaftGroupRegistry {
    async fn handle_call(&self, _: NodeId, group: u32, request: Bytes) -> Result<Bytes, Status> {
        let answering = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            known.get(&group).map(|answer| answer(request.clone()))
        };
        let none = || Status::new(ErrorCode::NotFound, format!("this node is no member of group {group}"));
        match (answering, self.ingester.get()) {
            (Some(answering), _) => Ok(answering.await),
            (None, Some(ingester)) => ingester.handle_raft_request(group, request).await.ok_or_else(none),
            (None, None) => Err(none()),
        }
    }
}

/// Messages of groups, on their way.
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

/// Takes what the file with the secret says from time to time.
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
            tracing::warn!(path = %path.display(), error, "the secret of the cluster stays as it was");
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
            (ErrorCode::NotFound, "this node is no member of group 8")
        );
    }
}
