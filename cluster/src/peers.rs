//! Connections to other nodes: one for each peer and purpose, opened when it is used, and opened again when it broke.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use athanor_chassis::{Clock, Code, Coded, Net, Random, Tasks};
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
use crate::members::Members;
use crate::secret::Secrets;

/// How long opening a stream may take, and then agreeing on HTTP/2.
const OPEN: Duration = Duration::from_secs(1);
/// How often a peer is asked whether it is still there, and how long it has to answer: a peer that is cut off is mute.
const PING_EVERY: Duration = Duration::from_secs(2);
const PONG_WITHIN: Duration = Duration::from_secs(1);
/// A peer that was not reached is left alone for a while between these.
const REST: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));
/// Bytes under way on one call, and on a connection.
const CALL_WINDOW: u32 = 4 << 20;
const WINDOW: u32 = 16 << 20;
/// Bytes of one message of a service; one of the bulkiest calls and what it is wrapped in.
pub const MESSAGE: usize = (16 << 20) + (64 << 10);
/// Bytes of uploads that go to a shard together, and of what is around them.
pub const APPEND: usize = (48 << 20) + (1 << 20);
/// Connections that are remembered; of more, those of nodes that nobody knows any more are forgotten.
const MOST: usize = 2048;

/// What a connection is for. Each purpose has its own, so that none waits for another's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
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
    pub secrets: Secrets,
    /// Time.
    pub clock: Clock,
    /// For how long to leave them alone.
    pub random: Random,
    /// Each connection is one.
    pub tasks: Tasks,
}

/// The other nodes. Cheap to clone.
#[derive(Clone)]
pub struct Peers {
    shared: Arc<Shared>,
}

struct Shared {
    deps: PeerDeps,
    members: Members,
    links: Mutex<BTreeMap<(NodeId, Purpose), Link>>,
}

/// A connection to a node, open or not: what clients of services call. Cheap to clone.
#[derive(Clone)]
pub struct Link {
    wire: Arc<Wire>,
}

struct Wire {
    to: NodeId,
    deps: PeerDeps,
    members: Members,
    /// Held while it is opened: whoever else wants it waits for that.
    state: tokio::sync::Mutex<State>,
}

#[derive(Default)]
struct State {
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

impl Coded for PeerError {
    fn code(&self) -> Code {
        Code::Unavailable
    }
}

// === impl Peers ===

impl Peers {
    /// Nodes are found where members say that they are.
    pub fn new(deps: PeerDeps, members: Members) -> Self {
        Self { shared: Arc::new(Shared { deps, members, links: Mutex::default() }) }
    }

    /// Who is here.
    pub fn members(&self) -> &Members {
        &self.shared.members
    }

    pub(crate) fn deps(&self) -> &PeerDeps {
        &self.shared.deps
    }

    /// The connection to a node. Nothing is opened before it is used.
    pub fn link(&self, to: NodeId, purpose: Purpose) -> Link {
        let Shared { deps, members, links } = &*self.shared;
        let mut links = links.lock().unwrap_or_else(PoisonError::into_inner);
        if links.len() >= MOST && !links.contains_key(&(to, purpose)) {
            let known = members.now();
            links.retain(|(node, _), _| known.contains_key(node));
        }
        let wire = || Wire { to, deps: deps.clone(), members: members.clone(), state: Default::default() };
        links.entry((to, purpose)).or_insert_with(|| Link { wire: Arc::new(wire()) }).clone()
    }

    /// What an ingester does for others.
    pub fn shards(&self, to: NodeId) -> ShardsClient<Link> {
        ShardsClient::with_origin(self.link(to, Purpose::Calls), origin())
            .max_decoding_message_size(MESSAGE)
            .max_encoding_message_size(APPEND)
    }

    /// What a distributor does for others.
    pub fn doors(&self, to: NodeId) -> DoorsClient<Link> {
        DoorsClient::with_origin(self.link(to, Purpose::Calls), origin()).max_decoding_message_size(MESSAGE)
    }

    /// What a store-gateway does for others.
    pub fn gateways(&self, to: NodeId) -> GatewaysClient<Link> {
        GatewaysClient::with_origin(self.link(to, Purpose::Calls), origin())
            .max_decoding_message_size(MESSAGE)
            .max_encoding_message_size(MESSAGE)
    }

    /// What a querier does for others.
    pub fn queriers(&self, to: NodeId) -> QueriersClient<Link> {
        QueriersClient::with_origin(self.link(to, Purpose::Calls), origin())
            .max_decoding_message_size(MESSAGE)
            .max_encoding_message_size(MESSAGE)
    }

    /// What the catalogue does for others.
    pub fn catalogue(&self, to: NodeId) -> CatalogueClient<Link> {
        CatalogueClient::with_origin(self.link(to, Purpose::Calls), origin())
            .max_decoding_message_size(MESSAGE)
            .max_encoding_message_size(MESSAGE)
    }

    pub(crate) fn raft(&self, to: NodeId) -> RaftClient<Link> {
        RaftClient::with_origin(self.link(to, Purpose::Raft), origin())
    }
}

/// HTTP/2 wants one; the connection is what decides where a call goes.
fn origin() -> Uri {
    Uri::from_static("http://athanor")
}

// === impl Link ===

impl Wire {
    async fn sender(&self) -> Result<SendRequest<Body>, PeerError> {
        let to = self.to;
        let address = self.members.now().get(&to).map(|member| member.internal);
        let address = address.ok_or(PeerError::Unknown { to })?;
        let mut state = self.state.lock().await;
        if let Some((at, sender)) = &state.open
            && *at == address
            && !sender.is_closed()
        {
            return Ok(sender.clone());
        }
        state.open = None;
        let (clock, random) = (&self.deps.clock, &self.deps.random);
        if let Some((until, why)) = &state.rest
            && clock.monotonic() < *until
        {
            return Err(why.clone());
        }
        match self.open(address).await {
            Ok(sender) => {
                *state = State { open: Some((address, sender.clone())), rest: None };
                Ok(sender)
            }
            Err(cause) => {
                let why = PeerError::Unreachable { to, address, cause };
                let longer = u64::try_from((REST.1 - REST.0).as_nanos()).unwrap_or(u64::MAX);
                let rest = REST.0 + Duration::from_nanos(random.below(longer));
                state.rest = Some((clock.monotonic() + rest, why.clone()));
                Err(why)
            }
        }
    }

    async fn open(&self, address: SocketAddr) -> Result<SendRequest<Body>, String> {
        let PeerDeps { net, clock, tasks, .. } = &self.deps;
        let stream = net.connect(address, OPEN).await.map_err(|error| error.to_string())?;
        let mut http = Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .initial_stream_window_size(CALL_WINDOW)
            .initial_connection_window_size(WINDOW)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PONG_WITHIN)
            .keep_alive_while_idle(true);
        let agreed = clock.within(OPEN, http.handshake(TokioIo::new(stream))).await;
        let (sender, connection) =
            agreed.map_err(|late| late.to_string())?.map_err(|error| error.to_string())?;
        let (to, token) = (self.to, tasks.token());
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

impl Service<http::Request<Body>> for Link {
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
            request.headers_mut().insert(AUTHORIZATION, wire.deps.secrets.shown());
            let broken = |error: hyper::Error| PeerError::Broken { to: wire.to, cause: error.to_string() };
            sender.send_request(request).await.map_err(|error| failed(broken(error)))
        })
    }
}
