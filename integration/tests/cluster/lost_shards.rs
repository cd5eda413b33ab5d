//! Shards that lose their majority: what comes again meanwhile, and what becomes of it when they are back, or given up.

use std::collections::BTreeSet;
use std::time::Duration;

use athanor_catalog::{RoutingView, ShardEntry, ShardId, ShardPhase};
use athanor_cluster::NodeId;
use athanor_integration::cluster::{TestCluster, TestClusterBuilder};
use athanor_integration::server::send_request;
use serde_json::json;

use crate::admin_commands::command;
use crate::oracle::{Oracle, TYPE};
use crate::scenarios::opened;

/// Of the first slot...
const LOST: ShardId = 1;
/// ...and of the other one.
const OTHER: ShardId = 2;
const SLOTS: usize = 2;
/// Profiles that lie in blocks when the majority is lost, and as many that do not.
const IN_BLOCKS: usize = 14;
const DOORS: [usize; 2] = [0, 1];
const MERGE: &str = "POST /querier.v1.QuerierService/SelectMergeStacktraces";

/// Six nodes that keep two shards, each in three zones, and two doors.
fn six() -> TestClusterBuilder {
    let doors = TestCluster::builder().node("m", "zm", "metastore,distributor,querier").node(
        "n",
        "zn",
        "distributor,querier",
    );
    let keepers = [("a", "za"), ("b", "zb"), ("c", "zc"), ("d", "za"), ("e", "zb"), ("f", "zc")];
    let nodes = keepers.into_iter().fold(doors, |nodes, (name, zone)| nodes.node(name, zone, "ingester"));
    nodes.config(|config| {
        config.metastore.voters = 1;
        config.cluster.initial_slots = Some(SLOTS as u32);
        config.cluster.node_failure_timeout = Duration::from_secs(10);
        config.ingester.flush.max_head_age = Duration::from_secs(3600);
    })
}

/// A shard lost two of its three members, the one that led it among them, and another serves its slot. Gives who is dead.
async fn without_a_majority() -> (TestCluster, Oracle, Vec<String>) {
    let (mut cluster, mut oracle) = opened(six(), SLOTS).await;
    oracle.store_at(&cluster, &DOORS, IN_BLOCKS).await;
    cluster.flush_all(SLOTS).await;
    oracle.store_at(&cluster, &DOORS, IN_BLOCKS).await;
    cluster.wait_until("somebody leads", || cluster.leader(LOST).is_some()).await;
    let members = members(&cluster);
    let mut dead: Vec<String> =
        cluster.names().into_iter().filter(|name| members.contains(&cluster.node_id(name))).collect();
    assert_eq!(dead.len(), 3);
    let leader = cluster.leader(LOST);
    dead.sort_by_key(|name| Some(name) != leader.as_ref());
    dead.truncate(2);
    dead.iter().for_each(|name| cluster.kill(name));
    // Who waits a few seconds is told meanwhile what there is.
    let question =
        json!({ "profileTypeID": TYPE, "labelSelector": "{}", "start": 1, "end": i64::MAX / 1_000_000 });
    let headers = [("content-type", "application/json"), ("connect-timeout-ms", "5000")];
    let answer = send_request(cluster.node("n").address(), MERGE, &headers, question.to_string().as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("athanor-partial-response"), "true", "{}", answer.text());
    let is_served =
        |shard: &ShardEntry| shard.slot == 0 && shard.epoch == 2 && shard.phase == ShardPhase::Open;
    cluster.wait_for_view("another serves the slot", |view| view.shards.iter().any(is_served)).await;
    (cluster, oracle, dead)
}

fn members(cluster: &TestCluster) -> BTreeSet<NodeId> {
    let view = cluster.node("m").roles().views.current();
    view.shards.iter().find(|shard| shard.id == LOST).expect("it is there").members.clone()
}

fn is_over(view: &RoutingView) -> bool {
    view.shards.iter().all(|shard| shard.id != LOST || shard.is_retired())
}

/// What the lost shard has in blocks its successor knows; what it has nowhere else is taken again, once, and when the
/// shard is back it lets go of it [INV-13].
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_again_while_a_shard_is_lost_counts_once_when_it_is_back() {
    let (mut cluster, mut oracle, dead) = without_a_majority().await;
    let (missing, _) = oracle.check_part(&cluster, 0).await;
    assert!(missing.contains("have no majority of members"), "{missing}");
    oracle.repeat_at(&cluster, &DOORS, 0..IN_BLOCKS).await;
    // Some come again while the shard is away, and others not before it is back.
    let again = IN_BLOCKS..IN_BLOCKS + IN_BLOCKS / 2;
    let new = oracle.send_again(&cluster, &DOORS, again.clone()).await;
    assert!(new > 0, "the lost shard has some of them, and nobody else");
    oracle.repeat_at(&cluster, &DOORS, again).await;
    oracle.store_at(&cluster, &DOORS, 7).await;
    for door in DOORS {
        oracle.check_part(&cluster, door).await;
    }

    let dead: Vec<&str> = dead.iter().map(String::as_str).collect();
    cluster.start_nodes(&dead).await;
    cluster.wait_for_view("the lost shard has settled and ended", is_over).await;
    for door in DOORS {
        oracle.check(&cluster, door).await;
        oracle.repeat(&cluster, door).await;
    }
    oracle.store_at(&cluster, &DOORS, 7).await;
    cluster.flush_all(SLOTS).await;
    oracle.repeat(&cluster, 0).await;
    oracle.check(&cluster, 1).await;
    oracle.check_blocks(&cluster, "m").await;
}

/// Only who says that loss is accepted gives up a shard, and only one that is lost. What it had nowhere else is taken when it
/// comes again, and does not come back with the dead; answers say what may be missing.
#[tokio::test(flavor = "multi_thread")]
async fn a_shard_is_given_up_by_command_and_does_not_come_back() {
    let (mut cluster, mut oracle, dead) = without_a_majority().await;
    let give_up = |cluster: &TestCluster, shard: ShardId, accepted: &[&str]| {
        let shard = shard.to_string();
        command(cluster, "m", &[&["shard", "abandon", &shard], accepted].concat())
    };
    let told = give_up(&cluster, LOST, &[]).unwrap_err();
    assert!(told.contains("--accept-data-loss"), "{told}");
    let told = give_up(&cluster, OTHER, &["--accept-data-loss"]).unwrap_err();
    assert!(told.contains("only a lost or sealed shard can be abandoned"), "{told}");
    assert!(!is_over(&cluster.node("m").roles().views.current()), "nothing of it was done");
    let listed = command(&cluster, "m", &["shard", "list"]).unwrap();
    assert!(listed.lines().any(|line| line.contains(" lost at watermark ")), "{listed}");

    let told = give_up(&cluster, LOST, &["--accept-data-loss"]).unwrap();
    assert_eq!(told, "abandoned shard 1; responses report the data loss until the retention ends\n");
    assert_eq!(give_up(&cluster, LOST, &["--accept-data-loss"]), Ok(told), "a second time nothing happens");
    cluster.wait_for_view("it is over", is_over).await;
    let (missing, _) = oracle.check_part(&cluster, 0).await;
    assert!(missing.contains("1 shards were abandoned with unflushed profiles"), "{missing}");

    oracle.repeat_at(&cluster, &DOORS, 0..IN_BLOCKS).await;
    assert!(oracle.send_again(&cluster, &DOORS, IN_BLOCKS..2 * IN_BLOCKS).await > 0, "it had some of them");
    let dead: Vec<&str> = dead.iter().map(String::as_str).collect();
    cluster.start_nodes(&dead).await;
    oracle.store_at(&cluster, &DOORS, 7).await;
    oracle.repeat(&cluster, 0).await;
    cluster.flush_all(SLOTS).await;
    for door in DOORS {
        assert_eq!(oracle.check_part(&cluster, door).await.1, oracle.len(), "all is there, once");
    }
    oracle.check_blocks(&cluster, "m").await;
}
