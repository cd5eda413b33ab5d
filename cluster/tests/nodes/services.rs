//! Calls of services between nodes.

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::ErrorCode;
use athanor_chassis::net::memory::MemoryNet;
use athanor_cluster::handshake::PeerHandshake;
use athanor_cluster::status_codec;
use athanor_proto::athanor::internal::v1::result_frame::Frame;
use athanor_proto::athanor::internal::v1::{
    ProposeRequest, QueryHeadsRequest, ReportShardsRequest, UpdateVotersRequest,
};

use crate::harness::{Town, me, secrets};

const LIMIT: Duration = Duration::from_secs(2);

#[tokio::test(start_paused = true)]
async fn services_are_called_on_one_connection_that_is_opened_again() {
    let net = MemoryNet::default();
    let town = Town::new(Arc::new(net.clone()));
    let address = town.serve(me(2), &secrets()).await;
    let peers = town.peers(&secrets(), &[(2, address)]);
    let handshake = PeerHandshake::new(me(1));
    let request = |to| ReportShardsRequest { header: Some(handshake.call_header(to, LIMIT)) };
    for _ in 0..3 {
        let told = peers.ingester(2).report_shards(request(2)).await.unwrap().into_inner();
        assert_eq!((told.shards[0].shard, told.shards[0].seal_index), (7, Some(3)));
    }
    assert_eq!(net.stream_count(), 1);
    let refused = status_codec::from_grpc(&peers.ingester(2).report_shards(request(9)).await.unwrap_err());
    assert_eq!(refused.code, ErrorCode::Unavailable);
    assert!(refused.message.contains("this is node 2, not 9"), "{refused}");

    net.break_streams();
    town.clock.sleep(Duration::from_secs(1)).await;
    let mut pieces = peers.ingester(2).query_heads(QueryHeadsRequest::default()).await.unwrap().into_inner();
    let mut numbers = Vec::new();
    while let Some(piece) = pieces.message().await.unwrap() {
        let Some(Frame::Partial(bytes)) = piece.frame else { panic!("a piece") };
        assert_eq!(bytes.len(), 1 << 20);
        numbers.push(bytes[0]);
    }
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_offer_a_service_says_so_and_who_is_not_there_is_left_alone_for_a_while() {
    let town = Town::new(Arc::new(MemoryNet::default()));
    let address = town.serve(me(2), &secrets()).await;
    let peers = town.peers(&secrets(), &[(2, address), (3, "127.0.0.1:9999".parse().unwrap())]);
    let none = peers.metastore(2).propose(ProposeRequest::default()).await.unwrap_err();
    assert_eq!(
        (none.code(), none.message()),
        (tonic::Code::Unimplemented, "this node does not serve the requested service")
    );
    let before = town.clock.monotonic();
    for _ in 0..100 {
        let gone = peers.metastore(3).update_voters(UpdateVotersRequest::default()).await.unwrap_err();
        assert_eq!(gone.code(), tonic::Code::Unavailable);
        assert!(gone.message().contains("node 3 was not reached at 127.0.0.1:9999"), "{gone}");
    }
    assert_eq!(town.clock.monotonic(), before, "it is not tried a hundred times");
    let unknown = peers.ingester(4).report_shards(ReportShardsRequest::default()).await.unwrap_err();
    assert!(unknown.message().contains("node 4 is unknown"), "{unknown}");
}
