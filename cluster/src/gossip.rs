//! Gossip of cluster members: their identity, roles, addresses and liveness.
//!
//! Datagrams are not authenticated: any sender of datagrams can claim anything. So gossip grants no rights,
//! and everything that is parsed from it is bounded. Nodes of a foreign cluster are rejected by cluster ID,
//! even if they reuse an address. Every connection checks again which node its address leads to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::tasks::SpawnError;
use athanor_chassis::{Clock, ErrorCode, ErrorCodeExt, TaskGroup};
use chitchat::transport::Socket;
pub use chitchat::transport::{Transport, UdpTransport};
use chitchat::{
    Chitchat, ChitchatConfig, ChitchatHandle, ChitchatId, FailureDetectorConfig, NodeState, ProtocolVersion,
    spawn_chitchat,
};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::NodeId;
use crate::handshake::NodeIdentity;
use crate::members::{
    ClusterMember, ClusterMembers, MISSING_MEMBER_RETENTION, MemberState, MemberTable, RoleName,
};

/// Interval between gossip rounds with random peers.
const GOSSIP_INTERVAL: Duration = Duration::from_millis(500);
/// Delay after announcing `Left`, so that the announcement can spread before gossip stops.
const LEAVE_PROPAGATION_DELAY: Duration = Duration::from_millis(1200);
/// Interval at which expired members are removed.
const MEMBER_EXPIRY_INTERVAL: Duration = Duration::from_secs(1);
/// Upper bound in bytes of a node name or a zone.
const MAX_NAME_BYTES: usize = 64;

const KEY_NAME: &str = "name";
const KEY_ZONE: &str = "zone";
const KEY_ROLES: &str = "roles";
const KEY_INTERNAL: &str = "internal";
const KEY_STATE: &str = "state";

/// Identity and addresses with which this node joins gossip.
#[derive(Clone, Debug)]
pub struct GossipConfig {
    /// Cluster ID, node ID and boot number.
    pub me: NodeIdentity,
    /// Address of the gossip socket. Port 0 takes any free port.
    pub listen: SocketAddr,
    /// IP address that other nodes use, if it differs from the address of the socket.
    pub advertise: Option<IpAddr>,
    /// `host:port` addresses of some other nodes.
    pub seeds: Vec<String>,
    /// Description that this node publishes.
    pub this: NodeDescriptor,
}

/// Description of a node that its gossip state publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDescriptor {
    /// Human-readable name of the node.
    pub name: String,
    /// Failure zone of the node.
    pub zone: String,
    /// Roles that the node runs.
    pub roles: BTreeSet<RoleName>,
    /// Address of the port for calls of other nodes.
    pub internal: SocketAddr,
}

/// Handle that publishes the state of this node. Cheap to clone.
#[derive(Clone)]
pub struct GossipHandle {
    chitchat: Arc<tokio::sync::Mutex<Chitchat>>,
    /// Last published lifecycle state, and whether the disk is full.
    said: Arc<Mutex<(MemberState, bool)>>,
}

/// This node's gossip task. It ends with [`leave`](Gossip::leave), or when this value is dropped.
pub struct Gossip {
    handle: ChitchatHandle,
    voice: GossipHandle,
    address: SocketAddr,
    clock: Clock,
}

/// Failure to start gossip.
#[derive(Debug, thiserror::Error)]
pub enum GossipError {
    /// The socket could not be opened.
    #[error(
        "cannot listen for gossip on {at}: {cause}; set cluster.gossip_listen_address to another address"
    )]
    Listen {
        /// Address of the socket.
        at: SocketAddr,
        /// Cause of the failure.
        cause: String,
    },
    /// The task that follows members could not be spawned.
    #[error(transparent)]
    Task(#[from] SpawnError),
}

impl ErrorCodeExt for GossipError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Listen { .. } => ErrorCode::Unavailable,
            Self::Task(error) => error.code(),
        }
    }
}

/// Transport over a socket that is open already, so that its port is known before gossip starts.
struct BoundSocket(Mutex<Option<Box<dyn Socket>>>);

#[async_trait::async_trait]
impl Transport for BoundSocket {
    async fn open(&self, at: SocketAddr) -> anyhow::Result<Box<dyn Socket>> {
        let socket = self.0.lock().take();
        socket.ok_or_else(|| anyhow::anyhow!("gossip socket {at} is already open"))
    }
}

impl Gossip {
    /// Starts gossip. Members appear as their states arrive.
    pub async fn start(
        config: GossipConfig,
        transport: &dyn Transport,
        clock: Clock,
        tasks: &TaskGroup,
    ) -> Result<(Self, ClusterMembers), GossipError> {
        let GossipConfig { me, listen, advertise, seeds, this } = config;
        let failed = |error: anyhow::Error| GossipError::Listen { at: listen, cause: format!("{error:#}") };
        let socket = transport.open(listen).await.map_err(failed)?;
        let mut address = socket.local_addr().map_err(failed)?;
        if let Some(advertise) = advertise {
            address.set_ip(advertise);
        }
        let settings = ChitchatConfig {
            chitchat_id: ChitchatId::new(format!("{:016x}", me.node), me.boot, address),
            cluster_id: format!("{:032x}", me.cluster),
            gossip_interval: GOSSIP_INTERVAL,
            listen_addr: listen,
            seed_nodes: seeds,
            failure_detector_config: FailureDetectorConfig {
                // Peers gossip twice per second. A silent node is suspected after a few seconds, from its
                // first heartbeat on.
                initial_interval: Duration::from_secs(1),
                dead_node_grace_period: MISSING_MEMBER_RETENTION,
                ..FailureDetectorConfig::default()
            },
            marked_for_deletion_grace_period: MISSING_MEMBER_RETENTION,
            catchup_callback: None,
            extra_liveness_predicate: None,
            protocol_version: ProtocolVersion::V1,
        };
        let opened = BoundSocket(Mutex::new(Some(socket)));
        let handle = spawn_chitchat(settings, initial_key_values(&this), &opened).await.map_err(failed)?;
        let live = handle.chitchat().lock().await.live_nodes_watcher();
        let (tell, members) = watch::channel(Arc::default());
        let following = follow_members(live, tell, clock.clone(), tasks.shutdown_token());
        tasks.spawn("gossip members", following)?;
        let said = Arc::new(Mutex::new((MemberState::Starting, false)));
        let voice = GossipHandle { chitchat: handle.chitchat(), said };
        Ok((Self { handle, voice, address, clock }, ClusterMembers::new(members)))
    }

    /// Address at which other nodes reach this node's gossip.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Publishes the lifecycle state of this node.
    pub async fn announce_state(&self, state: MemberState) {
        self.voice.update_announcement(|said| said.0 = state).await;
    }

    /// Handle for other components that publish state.
    pub fn handle(&self) -> &GossipHandle {
        &self.voice
    }

    /// Publishes `Left` and stops gossip, so that peers need not wait for their failure detectors.
    pub async fn leave(self) {
        self.announce_state(MemberState::Left).await;
        self.clock.sleep(LEAVE_PROPAGATION_DELAY).await;
        if let Err(error) = self.handle.shutdown().await {
            tracing::debug!(%error, "gossip shutdown failed");
        }
    }
}

impl GossipHandle {
    /// Publishes whether this node's disk is full. A node that is starting, draining or left keeps that
    /// state.
    pub async fn announce_disk_full(&self, full: bool) {
        self.update_announcement(|said| said.1 = full).await;
    }

    async fn update_announcement(&self, change: impl FnOnce(&mut (MemberState, bool))) {
        // The lock on gossip is taken first and covers the change, so the newest state is published last.
        let mut all = self.chitchat.lock().await;
        let state = {
            let mut said = self.said.lock();
            change(&mut said);
            match *said {
                (MemberState::Ready, true) => MemberState::Full,
                (state, _) => state,
            }
        };
        all.self_node_state().set(KEY_STATE, state.name());
    }
}

fn initial_key_values(this: &NodeDescriptor) -> Vec<(String, String)> {
    let roles: Vec<_> = this.roles.iter().map(|role| role.name()).collect();
    let told = [
        (KEY_NAME, this.name.clone()),
        (KEY_ZONE, this.zone.clone()),
        (KEY_ROLES, roles.join(",")),
        (KEY_INTERNAL, this.internal.to_string()),
        (KEY_STATE, MemberState::Starting.name().to_owned()),
    ];
    told.map(|(key, value)| (key.to_owned(), value)).into()
}

/// Updates the member table from gossip until the process shuts down.
async fn follow_members(
    mut live: watch::Receiver<BTreeMap<ChitchatId, NodeState>>,
    tell: watch::Sender<Arc<BTreeMap<NodeId, ClusterMember>>>,
    clock: Clock,
    token: CancellationToken,
) {
    let mut book = MemberTable::default();
    loop {
        let alive: Vec<_> =
            live.borrow_and_update().iter().filter_map(|(id, said)| parse_member(id, said)).collect();
        book.update(alive, clock.monotonic());
        tell.send_if_modified(|members| {
            let changed = **members != *book.members();
            if changed {
                *members = Arc::new(book.members().clone());
            }
            changed
        });
        tokio::select! {
            biased;
            () = token.cancelled() => return,
            changed = live.changed() => if changed.is_err() { return },
            () = clock.sleep(MEMBER_EXPIRY_INTERVAL) => {}
        }
    }
}

/// Parses the gossip state of a node. Returns none if keys are missing or malformed.
fn parse_member(id: &ChitchatId, said: &NodeState) -> Option<ClusterMember> {
    let roles = said.get(KEY_ROLES)?;
    let name = |key| Some(truncate_name(said.get(key)?));
    Some(ClusterMember {
        node: NodeId::from_str_radix(&id.node_id, 16).ok()?,
        name: name(KEY_NAME)?,
        zone: name(KEY_ZONE)?,
        // Roles that only a newer version knows are left out.
        roles: RoleName::ALL_VARIANTS
            .into_iter()
            .filter(|role| roles.split(',').any(|r| r == role.name()))
            .collect(),
        internal: said.get(KEY_INTERNAL)?.parse().ok()?,
        boot: id.generation_id,
        state: MemberState::from_name(said.get(KEY_STATE)?)?,
        missing_since: None,
    })
}

fn truncate_name(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_NAME_BYTES)].to_owned()
}
