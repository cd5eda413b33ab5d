//! Connections to other nodes: one per peer and purpose, opened on first use and reopened after a failure.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use athanor_chassis::{Backoff, Clock, ErrorCode, ErrorCodeExt, Net, Random, TaskGroup};
use athanor_proto::athanor::internal::v1::distributor_service_client::DistributorServiceClient;
use athanor_proto::athanor::internal::v1::ingester_service_client::IngesterServiceClient;
use athanor_proto::athanor::internal::v1::metastore_service_client::MetastoreServiceClient;
use athanor_proto::athanor::internal::v1::querier_service_client::QuerierServiceClient;
use athanor_proto::athanor::internal::v1::raft_service_client::RaftServiceClient;
use athanor_proto::athanor::internal::v1::store_gateway_service_client::StoreGatewayServiceClient;
use http::Uri;
use http::header::AUTHORIZATION;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tonic::body::Body;
use tower_service::Service;

use crate::NodeId;
use crate::members::ClusterMembers;
use crate::secret::ClusterSecrets;

/// Timeout for connecting a stream, and separately for the HTTP/2 handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval of keep-alive pings and the timeout of their responses. They detect a partitioned peer, which
/// sends nothing.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(1);
/// Backoff after a failed connect, from 50 ms to 500 ms.
const RECONNECT_BACKOFF: Backoff = Backoff::constant(Duration::from_millis(500)).with_jitter(0.9);
/// HTTP/2 flow-control windows in bytes: of one stream, and of a connection.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Upper bound in bytes of one gRPC message, except appends: the largest payload plus its envelope.
pub const MAX_RPC_MESSAGE_BYTES: usize = (16 << 20) + (64 << 10);
/// Upper bound in bytes of an append request to a shard: its uploads plus their envelope.
pub const MAX_APPEND_MESSAGE_BYTES: usize = (48 << 20) + (1 << 20);
/// Number of channels from which on those of unknown nodes are removed.
const MAX_CHANNELS: usize = 2048;

/// Purpose of a connection. Each purpose has its own connection, so that neither waits for the other's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChannelPurpose {
    /// Messages of raft groups.
    Raft,
    /// All other gRPC calls.
    Calls,
}

/// Dependencies of connections, provided by the process.
#[derive(Clone)]
pub struct PeerDeps {
    /// Network that opens connections.
    pub net: Arc<dyn Net>,
    /// Secrets with which this node authenticates.
    pub secrets: ClusterSecrets,
    /// Clock for timeouts and backoff.
    pub clock: Clock,
    /// Source of randomness for the backoff.
    pub random: Random,
    /// Task group that runs one task per connection.
    pub tasks: TaskGroup,
}

/// Pool of connections to other nodes. Cheap to clone.
#[derive(Clone)]
pub struct PeerPool {
    shared: Arc<PeerPoolShared>,
}

struct PeerPoolShared {
    deps: PeerDeps,
    members: ClusterMembers,
    links: Mutex<BTreeMap<(NodeId, ChannelPurpose), PeerChannel>>,
}

/// Channel to a node, open or not, on which gRPC clients send requests. Cheap to clone.
#[derive(Clone)]
pub struct PeerChannel {
    wire: Arc<PeerConnection>,
}

struct PeerConnection {
    to: NodeId,
    deps: PeerDeps,
    members: ClusterMembers,
    /// Held while the connection is opened. Concurrent callers wait for that connection.
    state: tokio::sync::Mutex<PeerConnectionState>,
}

#[derive(Default)]
struct PeerConnectionState {
    open: Option<(SocketAddr, SendRequest<Body>)>,
    /// End of the backoff after a failed connect, and the error to return until then.
    rest: Option<(Duration, PeerError)>,
}

/// Failure to reach a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each says what it is by its message")]
pub enum PeerError {
    #[error("node {to} is unknown: not seen in gossip yet, or missing for too long")]
    Unknown { to: NodeId },
    #[error("node {to} was not reached at {address}: {cause}")]
    Unreachable { to: NodeId, address: SocketAddr, cause: String },
    #[error("the call to node {to} failed: {cause}")]
    Broken { to: NodeId, cause: String },
}

impl ErrorCodeExt for PeerError {
    fn code(&self) -> ErrorCode {
        ErrorCode::Unavailable
    }
}

// === impl PeerPool ===

impl PeerPool {
    /// Creates a pool that takes the addresses of nodes from `members`.
    pub fn new(deps: PeerDeps, members: ClusterMembers) -> Self {
        Self { shared: Arc::new(PeerPoolShared { deps, members, links: Mutex::default() }) }
    }

    /// Members that the pool takes addresses from.
    pub fn members(&self) -> &ClusterMembers {
        &self.shared.members
    }

    pub(crate) fn deps(&self) -> &PeerDeps {
        &self.shared.deps
    }

    /// Returns the channel to a node. The connection is opened by the first request.
    pub fn channel(&self, to: NodeId, purpose: ChannelPurpose) -> PeerChannel {
        let PeerPoolShared { deps, members, links } = &*self.shared;
        let mut links = links.lock();
        if links.len() >= MAX_CHANNELS && !links.contains_key(&(to, purpose)) {
            let known = members.current();
            links.retain(|(node, _), _| known.contains_key(node));
        }
        let wire =
            || PeerConnection { to, deps: deps.clone(), members: members.clone(), state: Default::default() };
        links.entry((to, purpose)).or_insert_with(|| PeerChannel { wire: Arc::new(wire()) }).clone()
    }

    /// Client of the ingester role on a node.
    pub fn ingester(&self, to: NodeId) -> IngesterServiceClient<PeerChannel> {
        IngesterServiceClient::with_origin(self.channel(to, ChannelPurpose::Calls), origin())
            .max_decoding_message_size(MAX_RPC_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_APPEND_MESSAGE_BYTES)
    }

    /// Client of the distributor role on a node.
    pub fn distributor(&self, to: NodeId) -> DistributorServiceClient<PeerChannel> {
        DistributorServiceClient::with_origin(self.channel(to, ChannelPurpose::Calls), origin())
            .max_decoding_message_size(MAX_RPC_MESSAGE_BYTES)
    }

    /// Client of the store-gateway role on a node.
    pub fn store_gateway(&self, to: NodeId) -> StoreGatewayServiceClient<PeerChannel> {
        StoreGatewayServiceClient::with_origin(self.channel(to, ChannelPurpose::Calls), origin())
            .max_decoding_message_size(MAX_RPC_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_RPC_MESSAGE_BYTES)
    }

    /// Client of the querier role on a node.
    pub fn querier(&self, to: NodeId) -> QuerierServiceClient<PeerChannel> {
        QuerierServiceClient::with_origin(self.channel(to, ChannelPurpose::Calls), origin())
            .max_decoding_message_size(MAX_RPC_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_RPC_MESSAGE_BYTES)
    }

    /// Client of the metastore role on a node.
    pub fn metastore(&self, to: NodeId) -> MetastoreServiceClient<PeerChannel> {
        MetastoreServiceClient::with_origin(self.channel(to, ChannelPurpose::Calls), origin())
            .max_decoding_message_size(MAX_RPC_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_RPC_MESSAGE_BYTES)
    }

    pub(crate) fn raft(&self, to: NodeId) -> RaftServiceClient<PeerChannel> {
        RaftServiceClient::with_origin(self.channel(to, ChannelPurpose::Raft), origin())
    }
}

/// Placeholder that HTTP/2 requires as authority. The connection alone determines the destination.
fn origin() -> Uri {
    Uri::from_static("http://athanor")
}

// === impl PeerChannel ===

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
                let rest = RECONNECT_BACKOFF.delay(0, random);
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
                tracing::debug!(to, %error, "peer connection ended");
            }
        };
        tasks.spawn("peer connection", driven).map_err(|error| error.to_string())?;
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
