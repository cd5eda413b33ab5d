//! Connections to other nodes: one for each peer and purpose, opened when it is used, and opened again when it broke.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use athanor_chassis::{Clock, ErrorCode, ErrorCodeExt, Net, Random, TaskGroup};
use athanor_proto::athanor::internal::v1::catalogue_client::CatalogueClient;
use athanor_proto::athanor::internal::v1::doors_client::DoorsClient;
use athanor_proto::athanor::internal::v1::gateways_client::GatewaysClient;
use athanor_proto::athanor::internal::v1::queriers_client::QueriersClient;
use athanor_proto::athanor::internal::v1::raft_client::RaftClient;
use athanor_proto::athanor::internal::v1::shards_client::ShardsClient;
use http::Uri;
use http::header::AUTHORIZATION;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tonic::body::Body;
use tower_service::Service;

use crate::NodeId;
use crate::members::ClusterMembers;
use crate::secret::ClusterSecrets;

/// How long opening a stream may take, and then agreeing on HTTP/2.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a peer is asked whether it is still there, and how long it has to answer: a peer that is cut off is mute.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(1);
/// A peer that was not reached is left alone for a while between these.
const RECONNECT_BACKOFF_RANGE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));
/// Bytes under way on one call, and on a connection.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Bytes of one message of a service; one of the bulkiest calls and what it is wrapped in.
pub const MAX_RPC_MESSAGE_BYTES: usize = (16 << 20) + (64 << 10);
/// Bytes of uploads that go to a shard together, and of what is around them.
pub const MAX_APPEND_MESSAGE_BYTES: usize = (48 << 20) + (1 << 20);
/// Connections that are remembered; of more, those of nodes that nobody knows any more are forgotten.
const MAX_CHANNELS: usize = 2048;

/// What a connection is for. Each purpose has its own, so that none waits for another's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChannelPurpose {
    /// Messages of groups.
    Raft,
    /// Everything else.
    Calls,
}

/// What connections take from their process.
#[derive(Clone)]
pub struct PeerDeps {
    /// The way to others.
    pub net: Arc<dyn Net>,
    /// What is shown to them.
    pub secrets: ClusterSecrets,
    /// Time.
    pub clock: Clock,
    /// For how long to leave them alone.
    pub random: Random,
    /// Each connection is one.
    pub tasks: TaskGroup,
}

/// The other nodes. Cheap to clone.
#[derive(Clone)]
pub struct PeerPool {
    shared: Arc<PeerPoolShared>,
}

struct PeerPoolShared {
    deps: PeerDeps,
    members: ClusterMembers,
    links: Mutex<BTreeMap<(NodeId, ChannelPurpose), PeerChannel>>,
}

/// A connection to a node, open or not: what clients of services call. Cheap to clone.
#[derive(Clone)]
pub struct PeerChannel {
    wire: Arc<PeerConnection>,
}

struct PeerConnection {
    to: NodeId,
    deps: PeerDeps,
    members: ClusterMembers,
    /// Held while it is opened: whoever else wants it waits for that.
    state: tokio::sync::Mutex<PeerConnectionState>,
}

#[derive(Default)]
struct PeerConnectionState {
    open: Option<(SocketAddr, SendRequest<Body>)>,
    /// Until when a peer that was not reached is left alone, and why it was not.
    rest: Option<(Duration, PeerError)>,
}

/// Why a node was not reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each says what it is by its message")]
pub enum PeerError {
    #[error("node {to} is not known here: it has not been seen in gossip, or is missing for too long")]
    Unknown { to: NodeId },
    #[error("node {to} was not reached at {address}: {cause}")]
    Unreachable { to: NodeId, address: SocketAddr, cause: String },
    #[error("the call to node {to} broke off: {cause}")]
    Broken { to: NodeId, cause: String },
}

impl ErrorCodeExt for PeerError {
    fn code(&self) -> ErrorCode {
        ErrorCode::Unavailable
    }
}

// === impl Peers ===

impl PeerPool {
    /// Nodes are found where members say that they are.
    pub fn new(deps: PeerDeps, members: ClusterMembers) -> Self {
        Self { shared: Arc::new(PeerPoolShared { deps, members, links: Mutex::default() }) }
    }

    /// Who is here.
    pub fn members(&self) -> &ClusterMembers {
        &self.shared.members
    }

    pub(crate) fn deps(&self) -> &PeerDeps {
        &self.shared.deps
    }

    /// The connection to a node. Nothing is opened before it is used.
    pub fn channel(&self, to: NodeId, purpose: ChannelPurpose) -> PeerChannel {
        let PeerPoolShared { deps, members, links } = &*self.shared;
        let mut links = links.lock().unwrap_or_else(PoisonError::into_inner);
        if links.len() >= MAX_CHANNELS && !links.contains_key(&(to, purpose)) {
            let known = members.current();
            links.retain(|(node, _), _| known.contains_key(node));
        }
        let wire =
            || PeerConnection { to, deps: deps.clone(), members: members.clone(), state: Default::default() };
        links.entry((to, purpose)).or_insert_with(|| PeerChannel { wire: Arc::new(wire()) }).clone()
    }

    /// What an ingester does for others.
    pub fn ingester(&self, to: NodeId) -> ShardsClient<PeerChannel> {
        ShardsClient::with_origin(self.channel(to, ChannelPurpose::Calls), origin())
            .max_decoding_message_size(MAX_RPC_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_APPEND_MESSAGE_BYTES)
    }

    /// What a distributor does for others.
    pub fn distributor(&self, to: NodeId) -> DoorsClient<PeerChannel> {
        DoorsClient::with_origin(self.channel(to, ChannelPurpose::Calls), origin())
            .max_decoding_message_size(MAX_RPC_MESSAGE_BYTES)
    }

    /// What a store-gateway does for others.
    pub fn store_gateway(&self, to: NodeId) -> GatewaysClient<PeerChannel> {
        GatewaysClient::with_origin(self.channel(to, ChannelPurpose::Calls), origin())
            .max_decoding_message_size(MAX_RPC_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_RPC_MESSAGE_BYTES)
    }

    /// What a querier does for others.
    pub fn querier(&self, to: NodeId) -> QueriersClient<PeerChannel> {
        QueriersClient::with_origin(self.channel(to, ChannelPurpose::Calls), origin())
            .max_decoding_message_size(MAX_RPC_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_RPC_MESSAGE_BYTES)
    }

    /// What the catalogue does for others.
    pub fn metastore(&self, to: NodeId) -> CatalogueClient<PeerChannel> {
        CatalogueClient::with_origin(self.channel(to, ChannelPurpose::Calls), origin())
            .max_decoding_message_size(MAX_RPC_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_RPC_MESSAGE_BYTES)
    }

    pub(crate) fn raft(&self, to: NodeId) -> RaftClient<PeerChannel> {
        RaftClient::with_origin(self.channel(to, ChannelPurpose::Raft), origin())
    }
}

/// HTTP/2 wants one; the connection is what decides where a call goes.
fn origin() -> Uri {
    Uri::from_static("http://athanor")
}

// === impl Link ===

impl PeerConnection {
    async fn sender(&self) -> Result<SendRequest<Body>, PeerError> {
        let to = self.to;
        let address = self.members.current().get(&to).map(|member| member.internal);
        let address = address.ok_or(PeerError::Unknown { to })?;
        let mut state = self.state.lock().await;
        if let Some((at, sender)) = &state.open
            && *at == address
            && !sender.is_closed()
        {
            return Ok(sender.clone());
        }
        state.open = None;
        let clock = &self.deps.clock;
        let random = &self.deps.random;
        if let Some((until, why)) = &state.rest
            && clock.monotonic() < *until
        {
            return Err(why.clone());
        }
        match self.open(address).await {
            Ok(sender) => {
                *state = PeerConnectionState { open: Some((address, sender.clone())), rest: None };
                Ok(sender)
            }
            Err(cause) => {
                let why = PeerError::Unreachable { to, address, cause };
                let longer =
                    u64::try_from((RECONNECT_BACKOFF_RANGE.1 - RECONNECT_BACKOFF_RANGE.0).as_nanos())
                        .unwrap_or(u64::MAX);
                let rest = RECONNECT_BACKOFF_RANGE.0 + Duration::from_nanos(random.next_below(longer));
                state.rest = Some((clock.monotonic() + rest, why.clone()));
                Err(why)
            }
        }
    }

    async fn open(&self, address: SocketAddr) -> Result<SendRequest<Body>, String> {
        let PeerDeps { net, clock, tasks, .. } = &self.deps;
        let stream = net.connect(address, CONNECT_TIMEOUT).await.map_err(|error| error.to_string())?;
        let mut http = Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        let agreed = clock.timeout(CONNECT_TIMEOUT, http.handshake(TokioIo::new(stream))).await;
        let (sender, connection) =
            agreed.map_err(|late| late.to_string())?.map_err(|error| error.to_string())?;
        let to = self.to;
        let token = tasks.shutdown_token();
        let driven = async move {
            let ended = tokio::select! {
                biased;
                () = token.cancelled() => Ok(()),
                ended = connection => ended,
            };
            if let Err(error) = ended {
                tracing::debug!(to, %error, "connection to a node ended");
            }
        };
        tasks.spawn("connection to a node", driven).map_err(|error| error.to_string())?;
        Ok(sender)
    }
}

impl Service<http::Request<Body>> for PeerChannel {
    type Response = http::Response<Incoming>;
    type Error = tonic::Status;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, tonic::Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), tonic::Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let wire = Arc::clone(&self.wire);
        Box::pin(async move {
            let failed = |error: PeerError| tonic::Status::unavailable(error.to_string());
            let mut sender = wire.sender().await.map_err(failed)?;
            request.headers_mut().insert(AUTHORIZATION, wire.deps.secrets.authorization_header());
            let broken = |error: hyper::Error| PeerError::Broken { to: wire.to, cause: error.to_string() };
            sender.send_request(request).await.map_err(|error| failed(broken(error)))
        })
    }
}
