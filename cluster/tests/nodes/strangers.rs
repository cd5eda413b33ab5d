//! Who is not of the cluster, or not who was meant, is refused in words.

use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::ErrorCode;
use athanor_chassis::net::memory::MemoryNet;
use athanor_cluster::handshake::NodeIdentity;
use athanor_cluster::raft_transport::{RaftTransport, TransportError};
use athanor_cluster::secret::ClusterSecrets;
use bytes::Bytes;

use crate::harness::{SECRET, Town, me, secrets};

const LIMIT: Duration = Duration::from_secs(2);

fn town() -> Town {
    Town::new(Arc::new(MemoryNet::default()))
}

async fn refused(talk: &RaftTransport) -> String {
    match talk.call(2, 1, Bytes::new(), LIMIT).await {
        Err(TransportError::Broken { cause, .. }) => cause,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_foreign_cluster_is_refused_at_a_reused_address() {
    let town = town();
    let foreign = NodeIdentity { cluster: 0xf0, ..me(2) };
    let address = town.serve(foreign, &secrets()).await;
    let why = refused(&town.caller(me(1), &secrets(), &[(2, address)])).await;
    assert!(why.contains("of cluster 000000000000000000000000000000f0, not of"), "{why}");
    assert!(why.contains("check cluster.id and cluster.seed_nodes"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn another_node_at_a_reused_address_is_refused() {
    let town = town();
    let address = town.serve(me(3), &secrets()).await;
    let why = refused(&town.caller(me(1), &secrets(), &[(2, address)])).await;
    assert!(why.contains("this is node 3, not 2"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn the_leftover_of_an_earlier_start_is_refused() {
    let town = town();
    let address = town.serve(me(2), &secrets()).await;
    let young = town.caller(NodeIdentity { boot: 2, ..me(1) }, &secrets(), &[(2, address)]);
    assert!(young.call(2, 1, Bytes::new(), LIMIT).await.is_ok());
    let why = refused(&town.caller(me(1), &secrets(), &[(2, address)])).await;
    assert!(why.contains("stop the old process"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn without_the_secret_nothing_is_answered_and_it_can_be_changed() {
    let town = town();
    let (theirs, ours) = (secrets(), secrets());
    let address = town.serve(me(2), &theirs).await;
    let wrong = ClusterSecrets::parse("another secret, as long").unwrap();
    let why = refused(&town.caller(me(1), &wrong, &[(2, address)])).await;
    assert!(why.contains("compare cluster.secret_file on both nodes"), "{why}");
    let talk = town.caller(me(1), &ours, &[(2, address)]);
    let both = format!("{SECRET}\nthe new secret, as long\n");
    let turned = format!("the new secret, as long\n{SECRET}\n");
    for (secrets, text) in [
        (&theirs, both.as_str()),
        (&ours, &both),
        (&theirs, &turned),
        (&ours, &turned),
        (&theirs, "the new secret, as long"),
        (&ours, "the new secret, as long"),
    ] {
        secrets.replace(text).unwrap();
        // A new connection shows what is in force now.
        let fresh = town.caller(me(1), &ours, &[(2, address)]);
        assert!(fresh.call(2, 1, Bytes::new(), LIMIT).await.is_ok());
        assert!(talk.call(2, 1, Bytes::new(), LIMIT).await.is_ok());
    }
    let late = town.caller(me(1), &secrets(), &[(2, address)]);
    assert!(refused(&late).await.contains("the token does not match the cluster secret"));
}

#[tokio::test(start_paused = true)]
async fn who_says_no_hello_is_given_up() {
    use athanor_chassis::Net;
    let net = MemoryNet::default();
    let town = Town::new(Arc::new(net.clone()));
    // It takes streams and says nothing.
    let mute = net.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let talk = town.caller(me(1), &secrets(), &[(2, mute.local_address())]);
    let error = talk.call(2, 1, Bytes::new(), Duration::from_secs(20)).await.unwrap_err();
    assert_eq!(athanor_chassis::ErrorCodeExt::code(&error), ErrorCode::Unavailable);
}
