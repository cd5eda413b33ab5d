//! Nodes that take calls, and call each other.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use athanor_chassis::{Clock, ErrorCode, Net, Random, Status, TaskGroup};
use athanor_cluster::handshake::{NodeIdentity, PeerHandshake};
use athanor_cluster::internal_server::InternalRouter;
use athanor_cluster::members::{ClusterMember, ClusterMembers, MemberState};
use athanor_cluster::peers::{PeerDeps, PeerPool};
use athanor_cluster::raft_transport::{RaftHandler, RaftTransport, RaftTransportServer};
use athanor_cluster::secret::ClusterSecrets;
use athanor_cluster::{NodeId, status_codec};
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::ingester_service_server::{IngesterService, IngesterServiceServer};
use bytes::Bytes;
use futures::Stream;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tonic::{Request, Response};

pub const CLUSTER: u128 = 0xc1;
pub const SECRET: &str = "a secret of some length";

/// A group that no node has.
pub const NO_GROUP: u32 = 404;
/// One whose members never answer.
pub const MUTE: u32 = 7;

/// What the node of that id answers.
pub fn answer(node: NodeId, request: &[u8]) -> Bytes {
    let reversed = request.iter().rev().copied();
    node.to_be_bytes().into_iter().chain(reversed).collect()
}

/// Answers after a while, by [`answer`].
struct Echo {
    node: NodeId,
    clock: Clock,
    random: Random,
}

#[async_trait]
impl RaftHandler for Echo {
    async fn handle_call(&self, _: NodeId, group: u32, request: Bytes) -> Result<Bytes, Status> {
        match group {
            NO_GROUP => return Err(Status::new(ErrorCode::NotFound, "there is no such group here")),
            MUTE => std::future::pending().await,
            _ => {}
        }
        if self.random.next_below(4) == 0 {
            self.clock.sleep(std::time::Duration::from_millis(self.random.next_below(20))).await;
        }
        Ok(answer(self.node, &request))
    }
}

/// A node whose disk says one thing of one shard, and nothing else is asked of.
struct Described {
    handshake: Arc<PeerHandshake>,
}

type Told<T> = Result<Response<T>, tonic::Status>;
type Pieces<T> = Pin<Box<dyn Stream<Item = Result<T, tonic::Status>> + Send>>;

#[async_trait]
impl IngesterService for Described {
    type QueryHeadsStream = Pieces<wire::ResultFrame>;

    async fn append(&self, _: Request<wire::AppendRequest>) -> Told<wire::AppendResponse> {
        Ok(Response::new(Default::default()))
    }

    async fn query_heads(&self, _: Request<wire::QueryHeadsRequest>) -> Told<Self::QueryHeadsStream> {
        let piece = |number: u8| wire::ResultFrame {
            frame: Some(wire::result_frame::Frame::Partial(vec![number; 1 << 20].into())),
        };
        let pieces = (0..5).map(move |number| Ok(piece(number)));
        Ok(Response::new(Box::pin(futures::stream::iter(pieces))))
    }

    async fn read_dedup_window(
        &self,
        _: Request<wire::ReadDedupWindowRequest>,
    ) -> Told<wire::ReadDedupWindowResponse> {
        Ok(Response::new(Default::default()))
    }

    async fn reconcile_ids(&self, _: Request<wire::ReconcileIdsRequest>) -> Told<wire::ReconcileIdsResponse> {
        Ok(Response::new(Default::default()))
    }

    async fn report_shards(
        &self,
        request: Request<wire::ReportShardsRequest>,
    ) -> Told<wire::ReportShardsResponse> {
        let checked = self.handshake.check_caller(request.get_ref().header.as_ref());
        checked.map_err(|error| status_codec::to_grpc(&Status::from_error(&error)))?;
        let shards =
            vec![wire::ShardReport { shard: 7, seal_index: Some(3), ..wire::ShardReport::default() }];
        Ok(Response::new(wire::ReportShardsResponse { shards, ..Default::default() }))
    }

    async fn manage_leadership(
        &self,
        _: Request<wire::ManageLeadershipRequest>,
    ) -> Told<wire::ManageLeadershipResponse> {
        Ok(Response::new(Default::default()))
    }
}

/// What nodes live in.
#[derive(Clone)]
pub struct Town {
    pub net: Arc<dyn Net>,
    pub clock: Clock,
    pub tasks: TaskGroup,
    pub random: Random,
}

impl Town {
    pub fn new(net: Arc<dyn Net>) -> Self {
        let clock = Clock::system();
        Self { net, tasks: TaskGroup::new(clock.clone(), 10_000), clock, random: Random::from_seed(1) }
    }

    /// A node that takes calls; gives where.
    pub async fn serve(&self, me: NodeIdentity, secrets: &ClusterSecrets) -> SocketAddr {
        let mut listener = self.net.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_address();
        let echo = Echo { node: me.node, clock: self.clock.clone(), random: self.random.split() };
        let handshake = Arc::new(PeerHandshake::new(me));
        let answering = RaftTransportServer::new(
            Arc::new(echo),
            Arc::clone(&handshake),
            self.clock.clone(),
            self.tasks.shutdown_token(),
        );
        let shards = IngesterServiceServer::new(Described { handshake });
        let routes =
            InternalRouter::default().with_raft(answering).with_service(shards).into_router(secrets.clone());
        let tasks = self.tasks.clone();
        let accepting = async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = TowerToHyperService::new(routes.clone());
                let serving = http2::Builder::new(TokioExecutor::new())
                    .initial_stream_window_size(4 << 20)
                    .serve_connection(TokioIo::new(stream), service);
                let token = tasks.shutdown_token();
                let served = async move {
                    tokio::select! {
                        () = token.cancelled() => {}
                        _ = serving => {}
                    }
                };
                tasks.spawn("connection", served).unwrap();
            }
        };
        self.tasks.spawn("listener", accepting).unwrap();
        address
    }

    /// Who calls others at these addresses.
    pub fn caller(
        &self,
        me: NodeIdentity,
        secrets: &ClusterSecrets,
        others: &[(NodeId, SocketAddr)],
    ) -> RaftTransport {
        RaftTransport::new(self.peers(secrets, others), Arc::new(PeerHandshake::new(me)))
    }

    pub fn peers(&self, secrets: &ClusterSecrets, others: &[(NodeId, SocketAddr)]) -> PeerPool {
        let members =
            ClusterMembers::from_static(others.iter().map(|(node, address)| member(*node, *address)));
        let deps = PeerDeps {
            net: Arc::clone(&self.net),
            secrets: secrets.clone(),
            clock: self.clock.clone(),
            random: self.random.split(),
            tasks: self.tasks.clone(),
        };
        PeerPool::new(deps, members)
    }
}

pub fn me(node: NodeId) -> NodeIdentity {
    NodeIdentity { cluster: CLUSTER, node, boot: 1 }
}

pub fn secrets() -> ClusterSecrets {
    ClusterSecrets::parse(SECRET).unwrap()
}

fn member(node: NodeId, internal: SocketAddr) -> ClusterMember {
    ClusterMember {
        node,
        name: format!("n{node}"),
        zone: String::new(),
        roles: BTreeSet::new(),
        internal,
        boot: 1,
        state: MemberState::Ready,
        missing_since: None,
    }
}
