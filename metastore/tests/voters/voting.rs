//! Who votes is changed by people, from any node.

use athanor_catalog::Catalog;
use athanor_consensus::replicated::GroupBootstrap;
use athanor_metastore::VoterInfo;

use crate::asking::change;
use crate::harness::{Town, address, simulate};

fn nodes(seats: &[VoterInfo]) -> Vec<u64> {
    seats.iter().map(|seat| seat.node).collect()
}

#[test]
fn voters_come_and_go_also_the_one_that_leads() {
    simulate(async {
        let mut town = Town::start(1, 31).await;
        let client = town.client(8);
        for number in 1..20 {
            client.propose(change(number)).await.unwrap();
        }
        for node in [2, 3] {
            town.boot(node, Some(GroupBootstrap::Joining)).await;
            let seat = VoterInfo { node, address: address(node).to_string() };
            for _ in 0..2 {
                let seats = client.add_voter(seat.clone()).await.unwrap();
                assert_eq!(seats.last(), Some(&seat));
                assert_eq!(nodes(&seats), (1..=node).collect::<Vec<_>>());
            }
        }
        assert_eq!(nodes(&town.client(2).voters().await.unwrap()), [1, 2, 3]);
        let leader = town.leader().await;
        let left: Vec<u64> = (1..=3).filter(|node| *node != leader).collect();
        for _ in 0..2 {
            assert_eq!(nodes(&client.remove_voter(leader).await.unwrap()), left);
        }
        assert_ne!(town.leader().await, leader);
        town.kill(leader).await;
        client.propose(change(20)).await.unwrap();
        let next = town.leader().await;
        let last = left.into_iter().find(|node| *node != next).unwrap();
        assert_eq!(nodes(&client.remove_voter(last).await.unwrap()), [next]);
        let error = client.remove_voter(next).await.unwrap_err();
        assert!(
            error.to_string().contains("the last voter of the group; add another voter first"),
            "{error}"
        );
    });
}
