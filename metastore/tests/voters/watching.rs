//! Views follow the catalogue, and leave voters that do not.

use std::time::Duration;

use athanor_catalog::Catalog;
use athanor_chassis::ErrorCode;
use athanor_cluster::handshake::PeerHandshake;
use athanor_cluster::status_codec;
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::metastore_service_server::MetastoreService;
use futures::StreamExt;

use crate::asking::change;
use crate::harness::{PATIENCE, Town, me, simulate};

#[test]
fn every_node_sees_what_changes() {
    simulate(async {
        let town = Town::start(3, 21).await;
        for number in 1..10 {
            town.client(8).propose(change(number)).await.unwrap();
            for node in [1, 2, 3, 8, 9] {
                let seen = town.views(node).wait_until(|view| view.revision == number).await;
                assert!(seen.voters.values().any(|voter| voter.address.ends_with(&format!(":{number}"))));
            }
        }
        let mut views = town.views(9);
        assert_eq!((views.changed().await.revision, views.current().revision), (9, 9));
        let client = town.client(1);
        let waiting = tokio::join!(views.changed(), client.propose(change(10)));
        assert_eq!(waiting.0.revision, 10);
    });
}

#[test]
fn a_voter_that_is_cut_off_is_left() {
    simulate(async {
        let town = Town::start(3, 22).await;
        let leader = town.leader().await;
        let stale = leader % 3 + 1;
        let others: Vec<u64> = (1..=3).filter(|node| *node != stale).collect();
        // Node 8 reaches only one voter, and so watches that.
        others.iter().for_each(|other| town.cut(8, *other));
        town.client(9).propose(change(1)).await.unwrap();
        let mut views = town.views(8);
        views.wait_until(|view| view.revision == 1).await;
        town.net.heal();
        others.iter().for_each(|other| town.cut(stale, *other));
        town.client(9).propose(change(2)).await.unwrap();
        let seen = views.wait_until(|view| view.revision == 2);
        town.clock.timeout(PATIENCE, seen).await.expect("it watches another voter");
        assert_eq!(town.views(stale).current().revision, 1, "nobody tells the one that is cut off");
        town.net.heal();
        let mut hears = town.views(stale);
        let seen = town.clock.timeout(PATIENCE, hears.wait_until(|view| view.revision == 2)).await;
        seen.expect("it hears again");
    });
}

/// What a voter tells somebody who has a revision.
async fn watch(
    town: &Town,
    voter: u64,
    revision: u64,
) -> <athanor_metastore::MetastoreServer as MetastoreService>::WatchRoutingStream {
    let header = Some(PeerHandshake::new(me(8)).call_header(voter, Duration::from_secs(1)));
    let request = wire::WatchRoutingRequest { header, known_revision: revision };
    town.service(voter).watch_routing(tonic::Request::new(request)).await.unwrap().into_inner()
}

#[test]
fn who_watches_hears_at_once_and_again_and_what_it_has_is_not_said() {
    simulate(async {
        let town = Town::start(3, 23).await;
        town.client(8).propose(change(1)).await.unwrap();
        town.views(2).wait_until(|view| view.revision == 1).await;
        let mut told = watch(&town, 2, 0).await;
        let first = told.next().await.unwrap().unwrap();
        assert!(first.revision == 1 && !first.view.is_empty());
        for _ in 0..5 {
            let again = town.clock.timeout(Duration::from_secs(6), told.next()).await;
            let again = again.expect("every five seconds").unwrap().unwrap();
            assert!(again.revision == 1 && again.view.is_empty());
        }
        let mut told = watch(&town, 2, 1).await;
        assert!(told.next().await.unwrap().unwrap().view.is_empty());
        town.cut(2, 1);
        town.cut(2, 3);
        let end = async {
            loop {
                match told.next().await.unwrap() {
                    Ok(_) => {}
                    Err(status) => return status,
                }
            }
        };
        let end = town.clock.timeout(PATIENCE, end).await.expect("it ends");
        assert!(status_codec::from_grpc(&end).code.is_retryable(), "{end}");
        assert!(told.next().await.is_none());
    });
}

#[test]
fn so_many_watch_a_voter_and_no_more() {
    simulate(async {
        let town = Town::start(1, 24).await;
        let mut all = Vec::new();
        // The node's own views need no stream.
        for _ in 0..1024 - 2 {
            all.push(watch(&town, 1, 0).await);
        }
        let header = || Some(PeerHandshake::new(me(8)).call_header(1, Duration::from_secs(1)));
        let request =
            || tonic::Request::new(wire::WatchRoutingRequest { header: header(), ..Default::default() });
        let mut last = 0;
        while let Ok(stream) = town.service(1).watch_routing(request()).await {
            all.push(stream.into_inner());
            last += 1;
            assert!(last <= 2, "there is no end");
        }
        let Err(refused) = town.service(1).watch_routing(request()).await else { panic!("there is no end") };
        let refused = status_codec::from_grpc(&refused);
        assert_eq!(refused.code, ErrorCode::Exhausted);
        assert!(refused.message.contains("1024 nodes watch"), "{refused}");
        drop(all.pop());
        assert!(town.service(1).watch_routing(request()).await.is_ok());
    });
}
