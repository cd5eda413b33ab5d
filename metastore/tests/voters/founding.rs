//! One node founds the catalogue, whatever others think meanwhile.

use std::time::Duration;

use athanor_catalog::Catalog;
use athanor_chassis::{ErrorCode, ErrorCodeExt};
use athanor_cluster::members::ClusterMembers;
use athanor_consensus::replicated::GroupBootstrap;
use athanor_metastore::{BootstrapDeps, BootstrapError, decide_bootstrap};
use athanor_storage::path::ObjectKey;

use crate::asking::change;
use crate::careless::careless;
use crate::harness::{CLUSTER, PATIENCE, Town, simulate};

#[test]
fn the_smallest_founds_and_the_others_join() {
    simulate(async {
        let mut town = Town::new(41);
        let logs: Vec<_> = (1..=3).map(|node| town.log(node)).collect();
        let deciding: Vec<BootstrapDeps> = (1..=3).map(|node| town.deciding(node, 3)).collect();
        let decided = futures::future::join_all(
            logs.iter().zip(&deciding).map(|(log, deciding)| decide_bootstrap(log, deciding)),
        );
        let decided = town.clock.timeout(PATIENCE, decided).await.unwrap();
        let decided: Vec<GroupBootstrap> = decided.into_iter().map(Result::unwrap).collect();
        assert_eq!(
            decided,
            [GroupBootstrap::single_voter(1), GroupBootstrap::Joining, GroupBootstrap::Joining]
        );
        // Asked again it says the same; a node with the same place and another number joins.
        assert_eq!(decide_bootstrap(&logs[0], &deciding[0]).await.unwrap(), GroupBootstrap::single_voter(1));
        assert_eq!(decide_bootstrap(&logs[0], &town.deciding(0, 3)).await.unwrap(), GroupBootstrap::Joining);
    });
}

/// Each thinks that it is alone, and the bucket takes the notes of both: whichever note stays, both go by that one.
#[test]
fn of_two_who_race_for_a_careless_bucket_one_founds() {
    let mut both_wrote = 0;
    for seed in 0..60 {
        simulate(async {
            let mut town = Town::new(seed);
            let logs = [town.log(1), town.log(2)];
            let store = careless(&town.clock, &town.random, Duration::from_millis(450));
            let alone = |node: u64| {
                let itself = town.deciding(node, 1).members.current().get(&node).cloned();
                let members = ClusterMembers::from_static(itself);
                BootstrapDeps { store: store.clone(), members, ..town.deciding(node, 1) }
            };
            let deciding = [alone(1), alone(2)];
            let late = Duration::from_millis(town.random.next_below(2500));
            let second = async {
                town.clock.sleep(late).await;
                decide_bootstrap(&logs[1], &deciding[1]).await
            };
            let both = futures::future::join(decide_bootstrap(&logs[0], &deciding[0]), second);
            let (first, second) = town.clock.timeout(PATIENCE, both).await.unwrap();
            let decided = [first.unwrap(), second.unwrap()];
            let expected = [
                [GroupBootstrap::single_voter(1), GroupBootstrap::Joining],
                [GroupBootstrap::Joining, GroupBootstrap::single_voter(2)],
            ];
            assert!(expected.contains(&decided), "seed {seed}: {decided:?}");
            both_wrote += usize::from(decided == expected[1]);
        });
    }
    assert!(both_wrote > 3, "a later note took the place of an earlier one {both_wrote} times only");
}

#[test]
fn nobody_founds_while_too_few_are_seen_or_there_was_a_catalogue() {
    simulate(async {
        let mut town = Town::new(42);
        let log = town.log(1);
        let mut waiting = town.deciding(1, 5);
        let few = town.deciding(1, 3).members.current();
        let few = few.values().filter(|member| member.node <= 4).cloned();
        waiting.members = ClusterMembers::from_static(few);
        let long = Duration::from_secs(600);
        assert!(
            town.clock.timeout(long, decide_bootstrap(&log, &waiting)).await.is_err(),
            "four of five are there"
        );
        let founded = town
            .clock
            .timeout(PATIENCE, decide_bootstrap(&log, &BootstrapDeps { wanted: 3, ..waiting }))
            .await;
        assert_eq!(founded.unwrap().unwrap(), GroupBootstrap::single_voter(1));
        town.store.delete(&ObjectKey::CatalogBootstrap).await.unwrap();
        town.store.create(&ObjectKey::Snapshot { index: 7 }, b"of before".as_slice().into()).await.unwrap();
        let waiting = town.deciding(1, 3);
        assert!(
            town.clock.timeout(long, decide_bootstrap(&log, &waiting)).await.is_err(),
            "it would hide what there was"
        );
    });
}

#[test]
fn a_foreign_bucket_and_odd_numbers_are_refused() {
    simulate(async {
        let mut town = Town::new(43);
        let log = town.log(1);
        let even = decide_bootstrap(&log, &town.deciding(1, 2)).await.unwrap_err();
        assert_eq!(even.code(), ErrorCode::Invalid);
        let other = BootstrapDeps { cluster: CLUSTER + 1, ..town.deciding(1, 1) };
        decide_bootstrap(&log, &other).await.unwrap();
        let foreign = decide_bootstrap(&log, &town.deciding(1, 1)).await.unwrap_err();
        assert!(
            matches!(foreign, BootstrapError::Foreign { .. }) && foreign.code() == ErrorCode::Conflict,
            "{foreign}"
        );
        town.store.delete(&ObjectKey::CatalogBootstrap).await.unwrap();
        town.store.create(&ObjectKey::CatalogBootstrap, b"{}".as_slice().into()).await.unwrap();
        let odd = decide_bootstrap(&log, &town.deciding(1, 1)).await.unwrap_err();
        assert!(
            odd.code() == ErrorCode::DataLoss && odd.to_string().contains("catalog/bootstrap.json"),
            "{odd}"
        );
    });
}

#[test]
fn what_a_log_says_needs_no_bucket() {
    simulate(async {
        let mut town = Town::new(44);
        for node in 1..=3 {
            town.begin(node, 3).await;
        }
        let grown = async {
            while town.client(1).voters().await.unwrap().len() < 3 {
                town.clock.sleep(Duration::from_millis(100)).await;
            }
        };
        town.clock.timeout(PATIENCE, grown).await.expect("three vote");
        town.client(3).propose(change(1)).await.unwrap();
        // The bucket comes to nothing, and all lose their power.
        town.store.delete(&ObjectKey::CatalogBootstrap).await.unwrap();
        town.store.create(&ObjectKey::CatalogBootstrap, b"nothing".as_slice().into()).await.unwrap();
        for node in 1..=3 {
            town.kill(node).await;
        }
        for node in 1..=3 {
            town.begin(node, 3).await;
        }
        town.leader().await;
        let seats = town.client(2).voters().await.unwrap();
        assert_eq!(seats.iter().map(|seat| seat.node).collect::<Vec<_>>(), [1, 2, 3]);
    });
}
