//! What a call to another node costs, and beside it the same bytes on a bare TCP stream.

#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::net::{LocalNet, NetStream};
use athanor_chassis::{Clock, Net, Random, Status, TaskGroup};
use athanor_cluster::NodeId;
use athanor_cluster::handshake::{NodeIdentity, PeerHandshake};
use athanor_cluster::internal_server::InternalRouter;
use athanor_cluster::members::{ClusterMember, ClusterMembers, MemberState};
use athanor_cluster::peers::{PeerDeps, PeerPool};
use athanor_cluster::raft_transport::{RaftHandler, RaftTransport, RaftTransportServer};
use athanor_cluster::secret::ClusterSecrets;
use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;

const LIMIT: Duration = Duration::from_secs(10);
const SIZES: [(&str, usize); 3] = [("100 B", 100), ("64 KiB", 64 << 10), ("8 MiB", 8 << 20)];
/// What raft answers to most of its messages.
const ANSWER: &[u8] = &[7; 40];

struct Short;

#[async_trait]
impl RaftHandler for Short {
    async fn handle_call(&self, _: NodeId, _: u32, _: Bytes) -> Result<Bytes, Status> {
        Ok(Bytes::from_static(ANSWER))
    }
}

fn me(node: NodeId) -> NodeIdentity {
    NodeIdentity { cluster: 1, node, boot: 1 }
}

async fn serve(net: &LocalNet, secrets: &ClusterSecrets, tasks: &TaskGroup, clock: &Clock) -> SocketAddr {
    let mut listener = net.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_address();
    let handshake = Arc::new(PeerHandshake::new(me(2)));
    let answering =
        RaftTransportServer::new(Arc::new(Short), handshake, clock.clone(), tasks.shutdown_token());
    let routes = InternalRouter::default().with_raft(answering).into_router(secrets.clone());
    let inner = tasks.clone();
    let accepting = async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(routes.clone());
            let mut http = http2::Builder::new(TokioExecutor::new());
            let serving = http.adaptive_window(true).serve_connection(TokioIo::new(stream), service);
            inner.spawn("connection", serving).unwrap();
        }
    };
    tasks.spawn("listener", accepting).unwrap();
    address
}

async fn talk() -> RaftTransport {
    let clock = Clock::system();
    let (net, tasks) = (LocalNet::new(clock.clone()), TaskGroup::new(clock.clone(), 100));
    let secrets = ClusterSecrets::parse("a secret of some length").unwrap();
    let internal = serve(&net, &secrets, &tasks, &clock).await;
    let other = ClusterMember {
        node: 2,
        name: String::new(),
        zone: String::new(),
        roles: BTreeSet::new(),
        internal,
        boot: 1,
        state: MemberState::Ready,
        missing_since: None,
    };
    let deps = PeerDeps { net: Arc::new(net), secrets, clock, random: Random::from_seed(1), tasks };
    RaftTransport::new(
        PeerPool::new(deps, ClusterMembers::from_static([other])),
        Arc::new(PeerHandshake::new(me(1))),
    )
}

/// A stream whose other side reads messages of that size, and answers each.
async fn bare(size: usize) -> NetStream {
    let clock = Clock::system();
    let (net, tasks) = (LocalNet::new(clock.clone()), TaskGroup::new(clock, 100));
    let mut listener = net.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_address();
    let answering = async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut message = vec![0; size];
        while stream.read_exact(&mut message).await.is_ok() {
            stream.write_all(ANSWER).await.unwrap();
        }
    };
    tasks.spawn("floor", answering).unwrap();
    net.connect(address, LIMIT).await.unwrap()
}

fn calls(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let talk = runtime.block_on(talk());
    for (name, size) in SIZES {
        let message = Bytes::from(vec![1; size]);
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(size as u64)).sample_size(20);
        group.bench_function("a call", |bench| {
            bench.iter(|| runtime.block_on(talk.call(2, 1, message.clone(), LIMIT)).unwrap());
        });
        let mut stream = runtime.block_on(bare(size));
        let mut answer = [0; ANSWER.len()];
        group.bench_function("bare TCP", |bench| {
            bench.iter(|| {
                runtime.block_on(async {
                    stream.write_all(&message).await.unwrap();
                    stream.read_exact(&mut answer).await.unwrap();
                });
            });
        });
        group.finish();
    }
}

criterion_group!(benches, calls);
criterion_main!(benches);
