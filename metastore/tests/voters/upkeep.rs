//! What voters do by themselves, and what they must not.

use std::time::Duration;

use athanor_catalog::{Catalog, CatalogCommand, RoutingView};
use athanor_chassis::{ErrorCodeExt, TenantId};
use athanor_metastore::SnapshotStore;
use athanor_storage::path::ObjectKey;

use crate::asking::change;
use crate::harness::{CLUSTER, PATIENCE, Town, address, simulate};

const LOOK: Duration = Duration::from_millis(200);

/// Waits for something to come about.
async fn until(town: &Town, what: &str, mut seen: impl AsyncFnMut() -> bool) {
    let looking = async {
        while !seen().await {
            town.clock.sleep(LOOK).await;
        }
    };
    town.clock.timeout(PATIENCE * 10, looking).await.expect(what);
}

#[test]
fn others_are_taken_in_until_enough_vote_and_where_they_are_is_written_down() {
    simulate(async {
        let mut town = Town::new(51);
        // Node 2 is seen, and does not answer.
        for node in [1, 3, 4] {
            town.begin(node, 3).await;
        }
        let voters = async |town: &Town| {
            let seats = town.client(1).voters().await.unwrap();
            seats.into_iter().map(|seat| (seat.node, seat.address)).collect::<Vec<_>>()
        };
        let expected: Vec<_> = [1, 3, 4].map(|node| (node, address(node).to_string())).into();
        until(&town, "three vote", async || voters(&town).await == expected).await;
        // Nobody is taken out for being away, nor in for that.
        town.kill(4).await;
        town.begin(5, 3).await;
        town.clock.sleep(Duration::from_secs(600)).await;
        assert_eq!(voters(&town).await, expected);
        // Wrong notes are put right.
        let wrong = CatalogCommand::AddVoter { node: 7, address: "nowhere".to_owned() };
        town.client(5).propose(wrong).await.unwrap();
        town.client(5).propose(CatalogCommand::RemoveVoter { node: 3 }).await.unwrap();
        let noted = async || town.views(5).current().voters.keys().copied().collect::<Vec<_>>() == [1, 3, 4];
        until(&town, "it is noted who votes", noted).await;
        assert!(town.store.get(&ObjectKey::CatalogBootstrap).await.is_ok());
    });
}

#[test]
fn all_voters_cut_their_logs_and_the_bucket_has_snapshots() {
    simulate(async {
        let mut town = Town::new(52);
        for node in 1..=3 {
            town.begin(node, 3).await;
        }
        until(&town, "three vote", async || town.client(1).voters().await.unwrap().len() == 3).await;
        for number in 0..1100 {
            town.client(2).propose(change(number)).await.unwrap();
        }
        let has_cut = |node| town.files(node).iter().any(|name| name.ends_with(".snapshot"));
        until(&town, "all have cut", async || (1..=3).all(has_cut)).await;
        let shelf = SnapshotStore::new(town.store.clone(), CLUSTER);
        let shelved = async || shelf.newest_readable().await.unwrap().0.map(|found| found.state.revision());
        until(&town, "a snapshot lies in the bucket", async || shelved().await.is_some()).await;
        town.client(2).propose(change(2000)).await.unwrap();
        let mut views = town.views(2);
        let is_newest =
            |view: &RoutingView| view.voters.values().any(|voter| voter.address.ends_with(":2000"));
        let revision = views.wait_until(is_newest).await.revision;
        until(&town, "and what came later", async || shelved().await >= Some(revision)).await;
        let before = shelf.newest_readable().await.unwrap().1;
        town.clock.sleep(Duration::from_secs(1800)).await;
        assert_eq!(shelf.newest_readable().await.unwrap().1, before, "nothing came");
    });
}

#[test]
fn a_voter_that_cannot_read_an_entry_stops() {
    simulate(async {
        let town = Town::start(3, 53).await;
        town.client(8).propose(change(1)).await.unwrap();
        let leader = town.leader().await;
        let entry = br#"{"format":99,"at":0,"command":"of tomorrow"}"#;
        let answer = town.group(leader).propose(entry.as_slice().into()).await;
        assert!(answer.is_err(), "{answer:?}");
        let stopped = |node: u64| town.metastore(node).failure();
        until(&town, "all stop", async || (1..=3).all(|node| stopped(node).is_some())).await;
        for node in 1..=3 {
            let why = stopped(node).unwrap();
            assert!(why.contains("run the version of the other voters"), "{why}");
            assert_eq!(town.group(node).applied_index(), town.group(leader).applied_index());
        }
        let refused = town.client(8).propose(change(2)).await.unwrap_err();
        assert!(refused.to_string().contains("run the version of the other voters"), "{refused}");
    });
}

/// Five vote where five are wanted; any three of them go on, and fewer neither change nor tell anything.
#[test]
fn three_of_five_are_enough_and_two_are_not() {
    simulate(async {
        let mut town = Town::new(54);
        for node in 1..=6 {
            town.begin(node, 5).await;
        }
        let client = town.client(6);
        let voters = async || -> Vec<u64> {
            let seats = client.voters().await;
            seats.map_or_else(|_| Vec::new(), |seats| seats.into_iter().map(|seat| seat.node).collect())
        };
        until(&town, "five vote", async || voters().await.len() == 5).await;
        let five = voters().await;
        let tenant = TenantId::anonymous();
        let note = |number: u32| {
            let (tenant, name) = (tenant.clone(), number.to_string());
            CatalogCommand::PutTenantDocument { tenant, name, expected: None, text: Some("noted".to_owned()) }
        };
        for number in 1..3 {
            town.kill(town.leader().await).await;
            client.apply_command(note(number)).await.unwrap();
            town.clock.sleep(Duration::from_secs(600)).await;
            assert_eq!(voters().await, five, "nobody is taken in for who is away");
        }
        let leader = town.leader().await;
        town.kill(leader).await;
        let refused = client.apply_command(note(3)).await.unwrap_err();
        assert!(refused.code().is_retryable(), "{refused}");
        client.tenant_documents(&tenant).await.unwrap_err();
        town.begin(leader, 5).await;
        client.apply_command(note(4)).await.unwrap();
        let noted = client.tenant_documents(&tenant).await.unwrap();
        assert!(["1", "2", "4"].iter().all(|name| noted.contains_key(*name)), "{noted:?}");
    });
}
