//! Nodes tell each other who they are, and who is missing.
//!
//! Datagrams carry no secret: whoever can send some can claim anything here. So gossip grants nothing, and what is
//! read from it is bounded. A foreign cluster's node is refused by its cluster's id, also where it has taken over an
//! address; what an address leads to is checked again by whoever connects.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use athanor_chassis::tasks::SpawnError;
use athanor_chassis::{Clock, ErrorCode, ErrorCodeExt, TaskGroup};
use chitchat::transport::Socket;
pub use chitchat::transport::{Transport, UdpTransport};
use chitchat::{
    Chitchat, ChitchatConfig, ChitchatHandle, ChitchatId, FailureDetectorConfig, NodeState, ProtocolVersion,
    spawn_chitchat,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::NodeId;
use crate::handshake::NodeIdentity;
use crate::members::{
    ClusterMember, ClusterMembers, MISSING_MEMBER_RETENTION, MemberState, MemberTable, RoleName,
};

/// How often a node talks to some others.
const GOSSIP_INTERVAL: Duration = Duration::from_millis(500);
/// A goodbye has reached others after so long, where it reaches them at all.
const LEAVE_PROPAGATION_DELAY: Duration = Duration::from_millis(1200);
/// How often what is known is looked through for nodes to forget.
const MEMBER_EXPIRY_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of a name or a zone.
const MAX_NAME_BYTES: usize = 64;

const KEY_NAME: &str = "name";
const KEY_ZONE: &str = "zone";
const KEY_ROLES: &str = "roles";
const KEY_INTERNAL: &str = "internal";
const KEY_STATE: &str = "state";

/// Who this node is, and where it finds others.
#[derive(Clone, Debug)]
pub struct GossipConfig {
    /// Its ids.
    pub me: NodeIdentity,
    /// Where it takes datagrams; port 0 takes any free one.
    pub listen: SocketAddr,
    /// By which others reach it, if not by the address where it listens.
    pub advertise: Option<IpAddr>,
    /// `host:port` of some others.
    pub seeds: Vec<String>,
    /// What it tells of itself.
    pub this: NodeDescriptor,
}

/// What a node tells of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDescriptor {
    /// What people call it.
    pub name: String,
    /// Where it stands.
    pub zone: String,
    /// What it does.
    pub roles: BTreeSet<RoleName>,
    /// Where it takes calls of other nodes.
    pub internal: SocketAddr,
}

/// Tells others how this node is. Cheap to clone.
#[derive(Clone)]
pub struct GossipHandle {
    chitchat: Arc<tokio::sync::Mutex<Chitchat>>,
    /// What was said last: where in its life the node is, and whether its disk has no room.
    said: Arc<Mutex<(MemberState, bool)>>,
}

/// This node's part in the gossip. It ends with [`leave`](Gossip::leave), or with this value.
pub struct Gossip {
    handle: ChitchatHandle,
    voice: GossipHandle,
    address: SocketAddr,
    clock: Clock,
}

/// Why there is no gossip.
#[derive(Debug, thiserror::Error)]
pub enum GossipError {
    /// The address cannot be had.
    #[error("cannot take datagrams on {at}: {cause}; cluster.listen_gossip chooses another address")]
    Listen {
        /// Where.
        at: SocketAddr,
        /// Why not.
        cause: String,
    },
    /// It did not start.
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

/// A socket that is open already, so that its port is known.
struct BoundSocket(Mutex<Option<Box<dyn Socket>>>);

#[async_trait::async_trait]
impl Transport for BoundSocket {
    async fn open(&self, at: SocketAddr) -> anyhow::Result<Box<dyn Socket>> {
        let socket = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        socket.ok_or_else(|| anyhow::anyhow!("{at} is open already"))
    }
}

impl Gossip {
    /// Begins to talk to others. Members are known when they have answered.
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
                // What comes twice in a second is missed after some seconds, also at first.
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
        tasks.spawn("members", following)?;
        let said = Arc::new(Mutex::new((MemberState::Starting, false)));
        let voice = GossipHandle { chitchat: handle.chitchat(), said };
        Ok((Self { handle, voice, address, clock }, ClusterMembers::new(members)))
    }

    /// Where others find this node.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Tells others where in its life this node is.
    pub async fn announce_state(&self, state: MemberState) {
        self.voice.update_announcement(|said| said.0 = state).await;
    }

    /// For whoever tells more.
    pub fn handle(&self) -> &GossipHandle {
        &self.voice
    }

    /// Says goodbye, so that nobody has to miss this node first.
    pub async fn leave(self) {
        self.announce_state(MemberState::Left).await;
        self.clock.sleep(LEAVE_PROPAGATION_DELAY).await;
        if let Err(error) = self.handle.shutdown().await {
            tracing::debug!(%error, "gossip did not end well");
        }
    }
}

impl GossipHandle {
    /// Tells others whether this node's disk has no room. Who has not begun or is about to end says that instead.
    pub async fn announce_disk_full(&self, full: bool) {
        self.update_announcement(|said| said.1 = full).await;
    }

    async fn update_announcement(&self, change: impl FnOnce(&mut (MemberState, bool))) {
        // Whoever says something changes what is told before anybody else does: the last word is the newest.
        let mut all = self.chitchat.lock().await;
        let state = {
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Keeps the members until the process ends.
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

/// A node by its own words. One whose words have not all come yet, or make no sense, is none.
fn parse_member(id: &ChitchatId, said: &NodeState) -> Option<ClusterMember> {
    let roles = said.get(KEY_ROLES)?;
    let name = |key| Some(truncate_name(said.get(key)?));
    Some(ClusterMember {
        node: NodeId::from_str_radix(&id.node_id, 16).ok()?,
        name: name(KEY_NAME)?,
        zone: name(KEY_ZONE)?,
        // Roles of a younger version are left out.
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
