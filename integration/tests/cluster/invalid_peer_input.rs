//! What a node may say to another that is wrong: it is refused in words, and nothing of it is stored.

use std::time::Duration;

use athanor_catalog::{CatalogCommand, ShardEntry, ShardId, ShardPhase};
use athanor_chassis::{Random, TenantId};
use athanor_cluster::peers::PeerChannel;
use athanor_cluster::placement::SlotTable;
use athanor_cluster::secret::ClusterSecrets;
use athanor_cluster::{NodeId, status_codec};
use athanor_integration::cluster::{TestCluster, run_on};
use athanor_integration::server::send_request;
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::append_response::Outcome as Appended;
use athanor_proto::athanor::internal::v1::ingester_service_client::IngesterServiceClient;
use athanor_proto::athanor::internal::v1::result_frame::Frame;
use athanor_proto::athanor::internal::v1::shard_result::Outcome;
use bytes::Bytes;
use prost::Message;

use crate::oracle::{Oracle, labels, time};
use crate::scenarios::{opened, three};
use crate::slot_tables::{CHANGE, change};

/// The first shard of the slot, which is over...
const OVER: ShardId = 1;
/// ...the one that serves it...
const SERVES: ShardId = OVER | 1 << 16;
/// ...of this epoch...
const EPOCH: u32 = 2;
/// ...and a shard that nobody knows.
const UNKNOWN: ShardId = 999;
const LIMIT: Duration = Duration::from_secs(10);
const SECRET: &str = "a secret of some length\n";

/// One node that calls another, by its own name and on its own connections.
#[derive(Clone, Copy)]
struct Line<'c> {
    cluster: &'c TestCluster,
    from: &'c str,
    to: NodeId,
}

impl Line<'_> {
    fn shards(&self) -> IngesterServiceClient<PeerChannel> {
        self.cluster.node(self.from).roles().cluster_handle().unwrap().rpc_client().peers.ingester(self.to)
    }

    fn header(&self) -> Option<wire::CallHeader> {
        let remote = self.cluster.node(self.from).roles().cluster_handle().unwrap().rpc_client();
        Some(remote.handshake.call_header(self.to, LIMIT))
    }

    async fn append(&self, oracle: &Oracle, number: usize, spoil: fn(&mut wire::AppendRequest)) -> String {
        let label = |(name, value)| wire::Label { name, value };
        let labels: Vec<wire::Label> = labels(number).into_iter().map(label).collect();
        let upload = wire::Upload {
            labels_as_sent: labels.clone(),
            stored_labels: labels,
            received_nanos: time(number),
            nonce: Bytes::from_static(&[7; 16]),
            pprof: oracle.pprof(number),
            ..wire::Upload::default()
        };
        let tenant = TenantId::anonymous().as_str().to_owned();
        let batch = wire::AppendBatch {
            shard: SERVES,
            epoch: EPOCH,
            slot_table_version: 2,
            tenant,
            uploads: vec![upload],
        };
        let mut request = wire::AppendRequest { header: self.header(), batch: Some(batch) };
        spoil(&mut request);
        let mut client = self.shards();
        match run_on(self.cluster.catalog(self.from).0, async move { client.append(request).await }).await {
            Err(status) => refused(&status_codec::from_grpc(&status)),
            Ok(answered) => match answered.into_inner().outcome {
                Some(Appended::Error(why)) => words(&why),
                Some(Appended::Result(stored)) => {
                    let each = stored.uploads.iter().map(|upload| upload.error.as_ref());
                    each.map(|error| error.map_or_else(|| "stored".to_owned(), words)).collect()
                }
                None => "nothing".to_owned(),
            },
        }
    }

    async fn query(&self, spoil: fn(&mut wire::QueryHeadsRequest)) -> String {
        let (tenant, at) = (TenantId::anonymous().as_str().to_owned(), shard_at(SERVES, EPOCH));
        let mut request =
            wire::QueryHeadsRequest { header: self.header(), tenant, query: Bytes::new(), shards: vec![at] };
        spoil(&mut request);
        let mut client = self.shards();
        let asking = async move {
            let mut pieces = client.query_heads(request).await?.into_inner();
            let mut said = String::new();
            while let Some(piece) = pieces.message().await? {
                let Some(Frame::Trailer(trailer)) = piece.frame else { continue };
                let result = wire::ShardResult::decode(trailer).unwrap();
                said += &match result.outcome {
                    Some(Outcome::Error(why)) => words(&why),
                    Some(Outcome::Stale(_)) => "stale".to_owned(),
                    None => "answered".to_owned(),
                };
            }
            Ok(said)
        };
        let asked = run_on(self.cluster.catalog(self.from).0, asking).await;
        asked.unwrap_or_else(|status| refused(&status_codec::from_grpc(&status)))
    }

    async fn window(&self, spoil: fn(&mut wire::ReadDedupWindowRequest)) -> String {
        let mut request = wire::ReadDedupWindowRequest {
            header: self.header(),
            shard: SERVES,
            ..wire::ReadDedupWindowRequest::default()
        };
        spoil(&mut request);
        let mut client = self.shards();
        match run_on(
            self.cluster.catalog(self.from).0,
            async move { client.read_dedup_window(request).await },
        )
        .await
        {
            Err(status) => refused(&status_codec::from_grpc(&status)),
            Ok(page) => page.into_inner().error.map_or_else(|| "a page".to_owned(), |why| words(&why)),
        }
    }

    async fn settle(&self, spoil: fn(&mut wire::ReconcileIdsRequest)) -> String {
        let header = self.header();
        let ids = Bytes::from_static(&[9; 32]);
        let mut request = wire::ReconcileIdsRequest { header, shard: SERVES, from_shard: OVER, ids };
        spoil(&mut request);
        let mut client = self.shards();
        match run_on(self.cluster.catalog(self.from).0, async move { client.reconcile_ids(request).await })
            .await
        {
            Err(status) => refused(&status_codec::from_grpc(&status)),
            Ok(held) => held.into_inner().error.map_or_else(|| "settled".to_owned(), |why| words(&why)),
        }
    }

    async fn transfer(&self, transfer: wire::LeadershipTransfer) -> String {
        let request = wire::ManageLeadershipRequest { header: self.header(), transfer: Some(transfer) };
        let mut client = self.shards();
        let answered =
            run_on(self.cluster.catalog(self.from).0, async move { client.manage_leadership(request).await });
        answered.await.unwrap().into_inner().error.map_or_else(|| "done".to_owned(), |why| words(&why))
    }

    /// A message to a member of a group.
    async fn group(&self, group: u32, message: Bytes) -> String {
        let (network, to) =
            (self.cluster.node(self.from).roles().cluster_handle().unwrap().network(), self.to);
        let called =
            run_on(self.cluster.catalog(self.from).0, async move { network.call(to, group, message).await });
        called.await.map_or_else(|error| error.reason, |answer| String::from_utf8_lossy(&answer).into_owned())
    }
}

fn words(why: &wire::RpcStatus) -> String {
    refused(&status_codec::decode_status(why))
}

fn refused(status: &athanor_chassis::Status) -> String {
    format!("{}: {}", status.code.name(), status.message)
}

fn shard_at(shard: ShardId, epoch: u32) -> wire::ShardRequest {
    wire::ShardRequest { shard, epoch, ..wire::ShardRequest::default() }
}

/// Profiles of the time of a table that only the second shard of the slot knows.
async fn of_two_shards_and_tables() -> (TestCluster, Oracle) {
    let nodes = three().config(|config| {
        config.cluster.initial_slots = Some(1);
        config.ingester.flush.max_head_age = Duration::from_secs(3600);
    });
    let (cluster, mut oracle) = opened(nodes, 1).await;
    oracle.store(&cluster, CHANGE / 2).await;
    let (runtime, catalog) = cluster.catalog("a");
    run_on(runtime, async move { catalog.apply_command(CatalogCommand::RequestSeal { shard: OVER }).await })
        .await
        .unwrap();
    let serves = |shard: &ShardEntry| shard.id == SERVES && shard.phase == ShardPhase::Open;
    let is_over = |shard: &ShardEntry| shard.id != OVER || shard.is_retired();
    let followed = |view: &athanor_catalog::RoutingView| {
        view.shards.iter().any(serves) && view.shards.iter().all(is_over)
    };
    cluster
        .wait_for_view("another shard serves the slot, and all of the first lies in blocks", followed)
        .await;
    change(&cluster, SlotTable::with_all_slots(2, time(CHANGE), vec![0]).unwrap(), &["a", "b", "c"]).await;
    while oracle.len() < CHANGE {
        oracle.store(&cluster, 1).await;
    }
    (cluster, oracle)
}

fn batch(request: &mut wire::AppendRequest) -> &mut wire::AppendBatch {
    request.batch.as_mut().expect("it was put there")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_refused_in_words_and_nothing_of_it_is_stored() {
    let (cluster, mut oracle) = of_two_shards_and_tables().await;
    cluster.wait_until("somebody leads", || cluster.leader(SERVES).is_some()).await;
    let leads = cluster.leader(SERVES).unwrap();
    let names = cluster.names();
    let [from, other] = [0, 1].map(|place| names.iter().filter(|name| **name != leads).nth(place).unwrap());
    let to = |name: &str| Line { cluster: &cluster, from, to: cluster.node_id(name) };
    let (leader, follower) = (to(&leads), to(other));
    let number = oracle.make();
    appends(&oracle, number, &leader).await;
    queries(&leader).await;
    pages(&leader).await;
    groups(&leader).await;
    frames(&cluster, &leads);
    // Who does not lead says who does.
    let there = format!("not_leader: this node does not lead shard {SERVES}; retry on node {}", leader.to);
    assert_eq!(follower.append(&oracle, number, |_| {}).await, there);
    assert_eq!(follower.query(|_| {}).await, there);
    assert_eq!(follower.window(|request| request.incremental = true).await, there);
    assert_eq!(follower.settle(|_| {}).await, there);

    for place in 0..3 {
        oracle.check(&cluster, place).await;
    }
    let stored = oracle.send(&cluster, 0, &[number]).await.unwrap();
    assert_eq!((stored.new, stored.repeats), (1, 0), "nothing of it was stored before");
    oracle.repeat(&cluster, 1).await;
    oracle.check(&cluster, 2).await;
}

async fn appends(oracle: &Oracle, number: usize, leader: &Line<'_>) {
    type Spoil = fn(&mut wire::AppendRequest);
    let cases: [(Spoil, &str); 12] = [
        (|request| request.header = None, "invalid: missing caller identity"),
        (
            |request| request.header.as_mut().unwrap().cluster_id = vec![7; 16].into(),
            "conflict: this is node",
        ),
        (|request| request.header.as_mut().unwrap().target_node_id = 7, ", not 7: an address was reused"),
        (|request| request.batch = None, "invalid: append request has no batch"),
        (
            |request| (batch(request).shard, batch(request).epoch) = (UNKNOWN, 1),
            "not_leader: this node does not lead shard 999; election in progress, retry",
        ),
        (
            |request| (batch(request).shard, batch(request).epoch) = (OVER, 1),
            "not_leader: shard 1 is retired",
        ),
        (
            |request| batch(request).epoch = 1,
            "invalid: shard 65537 has epoch 2 of slot 0, request names epoch 1",
        ),
        (|request| batch(request).shard = 1 << 16, "invalid: invalid shard id 65536"),
        (
            |request| batch(request).slot_table_version = 1,
            "conflict: the profile was routed by a slot table older than 2",
        ),
        (|request| batch(request).tenant = "a/b".to_owned(), "invalid: tenant \"a/b\": tenant name has '/'"),
        (
            |request| batch(request).uploads[0].nonce = Bytes::from_static(b"abc"),
            "invalid: nonce of an upload has 3 bytes, must be 16",
        ),
        (|request| batch(request).uploads[0].pprof = Bytes::from_static(&[0xff; 9]), "invalid: "),
    ];
    for (spoil, why) in cases {
        let said = leader.append(oracle, number, spoil).await;
        assert!(said.contains(why), "{said}");
    }
}

async fn queries(leader: &Line<'_>) {
    type Spoil = fn(&mut wire::QueryHeadsRequest);
    let cases: [(Spoil, &str); 7] = [
        (|_| {}, "answered"),
        (|request| request.header = None, "invalid: missing caller identity"),
        (
            |request| request.shards.push(shard_at(UNKNOWN, 1)),
            "not_leader: this node does not lead shard 999; election in progress, retry",
        ),
        (|request| request.shards[0] = shard_at(OVER, 1), "stale"),
        (
            |request| request.shards[0].epoch = 1,
            "invalid: shard 65537 has epoch 2 of slot 0, request names epoch 1",
        ),
        (
            |request| request.shards = vec![shard_at(SERVES, EPOCH); 257],
            "invalid: query names 257 shards, the limit is 256",
        ),
        (|request| request.query = Bytes::from_static(&[0xff; 9]), "query has wire format version 255"),
    ];
    for (spoil, why) in cases {
        let said = leader.query(spoil).await;
        assert!(said.contains(why), "{said}");
    }
}

async fn pages(leader: &Line<'_>) {
    type Ask = fn(&mut wire::ReadDedupWindowRequest);
    let asked: [(Ask, &str); 5] = [
        (
            |request| request.shard = UNKNOWN,
            "not_leader: this node is not a member of shard 999, or has not opened it",
        ),
        (
            |request| request.shard = OVER,
            "not_leader: this node is not a member of shard 1, or has not opened it",
        ),
        (
            |request| request.min_applied_index = u64::MAX,
            "has not applied entry 18446744073709551615 yet; retry",
        ),
        (
            |request| request.after_id = Some(Bytes::from_static(b"short")),
            "invalid: list of ids has 5 bytes, must be 16 for each of at most 100000 ids",
        ),
        (|request| request.header = None, "invalid: missing caller identity"),
    ];
    for (spoil, why) in asked {
        let said = leader.window(spoil).await;
        assert!(said.contains(why), "{said}");
    }
    type Settle = fn(&mut wire::ReconcileIdsRequest);
    let settled: [(Settle, &str); 5] = [
        (
            |request| (request.shard, request.from_shard) = (UNKNOWN, UNKNOWN | 1 << 16),
            "not_leader: this node is not a member of shard 999, or has not opened it",
        ),
        (|request| request.from_shard = UNKNOWN, "invalid: shards 999 and 65537 belong to different slots"),
        (|request| request.from_shard = 0, "invalid: shards 0 and 65537 belong to different slots"),
        (|request| request.ids = Bytes::from_static(&[9; 17]), "invalid: list of ids has 17 bytes"),
        (|request| request.ids = vec![9; 16 * 100_001].into(), "invalid: list of ids has 1600016 bytes"),
    ];
    for (spoil, why) in settled {
        let said = leader.settle(spoil).await;
        assert!(said.contains(why), "{said}");
    }
    let said = leader.transfer(wire::LeadershipTransfer { shard: UNKNOWN, target_node_id: 7 }).await;
    assert_eq!(said, "not_found: this node is not a member of shard 999, or has not opened it");
}

/// Bytes that no member sends; the shortest message that does something is longer.
async fn groups(leader: &Line<'_>) {
    const SHORT: u64 = 17;
    let random = Random::from_seed(13);
    for _ in 0..100 {
        let first = 5 + random.next_below(250) as u8;
        let rest = (1..random.next_below(SHORT)).map(|_| random.next_below(256) as u8);
        let message: Bytes = std::iter::once(first).chain(rest).collect::<Vec<u8>>().into();
        for group in [0, SERVES] {
            let said = leader.group(group, message.clone()).await;
            assert!(said.contains("request is not a raft message"), "{message:?}: {said}");
        }
    }
    let said = leader.group(UNKNOWN, Bytes::new()).await;
    assert!(said.contains("this node is not a member of group 999"), "{said}");
}

/// What is no message at all, from somebody who knows the secret.
fn frames(cluster: &TestCluster, to: &str) {
    let address = cluster.node(to).roles().cluster_handle().unwrap().address();
    let secret = ClusterSecrets::parse(SECRET).unwrap().authorization_header();
    let headers = [
        ("authorization", secret.to_str().unwrap()),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let random = Random::from_seed(14);
    for method in [
        "IngesterService/Append",
        "IngesterService/QueryHeads",
        "IngesterService/ReadDedupWindow",
        "IngesterService/ReconcileIds",
        "IngesterService/ManageLeadership",
        "RaftService/Stream",
    ] {
        let bytes: Vec<u8> = (0..40).map(|_| random.next_below(256) as u8 | 0x80).collect();
        let length = (bytes.len() as u32).to_be_bytes();
        let body = [&[0][..], &length, &bytes].concat();
        let answer = send_request(address, &format!("POST /athanor.internal.v1.{method}"), &headers, &body);
        assert!(!["", "0"].contains(&answer.header("grpc-status")), "{method}: {:?}", answer.headers);
    }
}
