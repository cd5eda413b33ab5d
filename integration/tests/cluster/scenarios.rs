//! What must hold, whatever fails.

use std::time::Duration;

use athanor_catalog::RoutingView;
use athanor_chassis::Clock;
use athanor_integration::cluster::{TestCluster, TestClusterBuilder};
use athanor_server::ServerConfig;

use crate::oracle::{Answer, Oracle};

/// So long it may take until others lead what a node with a full disk led.
const LEAD_MOVES: Duration = Duration::from_secs(10);

fn three_of_all(config: &mut ServerConfig) {
    config.cluster.initial_slots = Some(3);
    config.ingester.flush.max_head_age = Duration::from_secs(3600);
}

pub fn three() -> TestClusterBuilder {
    TestCluster::builder()
        .node("a", "za", "all")
        .node("b", "zb", "all")
        .node("c", "zc", "all")
        .config(three_of_all)
}

/// A cluster that has opened so many slots, and nothing sent so far.
pub async fn opened(nodes: TestClusterBuilder, slots: usize) -> (TestCluster, Oracle) {
    let cluster = nodes.start().await;
    cluster.wait_for_view("slots are open", |view| open(view) == slots).await;
    (cluster, Oracle::default())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_whoever_dies() {
    let (mut cluster, mut oracle) = opened(three(), 3).await;
    oracle.store(&cluster, 30).await;
    for place in 0..3 {
        oracle.check(&cluster, place).await;
    }
    for name in ["a", "b", "c"] {
        cluster.kill(name);
        // Who asks now waits for the next leaders, and has all.
        oracle.check(&cluster, 1).await;
        oracle.store(&cluster, 10).await;
        oracle.check(&cluster, 0).await;
        oracle.repeat(&cluster, 1).await;
        oracle.check(&cluster, 1).await;
        cluster.start_nodes(&[name]).await;
        oracle.check(&cluster, 2).await;
    }
    assert_eq!(oracle.len(), 60);
}

/// Whoever is asked while a lead is on its way to another, or to the node that asks, waits for it and then has all.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_finds_the_lead_wherever_it_goes() {
    let (cluster, mut oracle) = opened(three(), 3).await;
    oracle.store(&cluster, 21).await;
    let mut moved = 0;
    for round in 0..6 {
        let shard = 1 + round % 3;
        cluster.wait_until("somebody leads", || cluster.leader(shard).is_some()).await;
        let leads = cluster.leader(shard).unwrap();
        let to = cluster.names().into_iter().find(|name| *name != leads).unwrap();
        let (handed, ..) = tokio::join!(
            cluster.transfer_leadership(&leads, shard, &to),
            oracle.check(&cluster, 0),
            oracle.check(&cluster, 1),
            oracle.check(&cluster, 2)
        );
        // Another may be chosen meanwhile, which is as good here.
        moved += u32::from(handed.is_ok());
    }
    assert!(moved > 0, "no lead went where it was sent");
}

/// Who is cut off from the others goes on neither storing nor answering by itself.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_cut_off_does_no_harm() {
    let (cluster, mut oracle) = opened(three(), 3).await;
    oracle.store(&cluster, 12).await;
    for (name, others, place) in [("a", ["b", "c"], 0), ("b", ["a", "c"], 1)] {
        others.iter().for_each(|other| cluster.partition(name, other));
        // Who asks at the lonely one is refused, or told what the answer lacks; it may be stored, or not.
        let number = oracle.make();
        let refused = oracle.send(&cluster, place, &[number]).await;
        assert!(refused.is_err(), "{refused:?}");
        let answer = oracle.ask(&cluster, place).await;
        assert!(answer.as_ref().map_or(true, |answer| !answer.warnings.is_empty()), "{answer:?}");
        // The others go on.
        let number = oracle.make();
        oracle.send(&cluster, place + 1, &[number]).await.unwrap();
        oracle.check(&cluster, place + 1).await;
        cluster.heal_network();
        oracle.repeat(&cluster, 0).await;
        for place in 0..3 {
            oracle.check(&cluster, place).await;
        }
    }
}

/// Roles in processes of their own: 1 metastore, 2 ingesters, a distributor and a querier in each of 3 zones.
#[tokio::test(flavor = "multi_thread")]
async fn roles_apart_do_what_one_does() {
    let mut nodes = TestCluster::builder().config(|config| config.cluster.initial_slots = Some(4));
    for (zone, names) in [
        ("za", ["ma", "ia1", "ia2", "da", "qa"]),
        ("zb", ["mb", "ib1", "ib2", "db", "qb"]),
        ("zc", ["mc", "ic1", "ic2", "dc", "qc"]),
    ] {
        let roles = ["metastore", "ingester", "ingester", "distributor", "querier"];
        nodes = names.into_iter().zip(roles).fold(nodes, |nodes, (name, role)| nodes.node(name, zone, role));
    }
    let (mut cluster, mut oracle) = opened(nodes, 4).await;
    oracle.store(&cluster, 40).await;
    for place in 0..3 {
        oracle.check(&cluster, place).await;
    }
    // Who leads a shard dies, and who leads the catalogue.
    cluster.wait_until("somebody leads", || cluster.leader(1).is_some()).await;
    let leader = cluster.leader(1).unwrap();
    cluster.kill(&leader);
    cluster.kill("ma");
    oracle.store(&cluster, 20).await;
    oracle.repeat(&cluster, 1).await;
    oracle.check(&cluster, 1).await;
    cluster.start_nodes(&[&leader, "ma"]).await;
    // A polite end gives leads away first: nothing fails meanwhile.
    cluster.wait_until("somebody leads", || cluster.leader(1).is_some()).await;
    let leader = cluster.leader(1).unwrap();
    cluster.stop(&leader).await.unwrap();
    oracle.store(&cluster, 20).await;
    oracle.check(&cluster, 2).await;
}

/// A node that ends offers what it leads to others, once, and does not wait for those who do not answer: all of its end
/// has one limit.
#[tokio::test(flavor = "multi_thread")]
async fn who_ends_alone_ends_in_time() {
    let (mut cluster, mut oracle) = opened(three(), 3).await;
    oracle.store(&cluster, 12).await;
    cluster.wait_until("leads are spread", || spread(&cluster)).await;
    for other in ["b", "c"] {
        cluster.partition("a", other);
    }
    let clock = Clock::system();
    let timeout = ServerConfig::default().shutdown_timeout;
    let begun = clock.monotonic();
    cluster.stop("a").await.unwrap();
    let took = clock.monotonic() - begun;
    assert!(took <= timeout, "{took:?} is more than {timeout:?}");
    cluster.heal_network();
    oracle.check(&cluster, 1).await;
    cluster.start_nodes(&["a"]).await;
    oracle.repeat(&cluster, 0).await;
    oracle.check(&cluster, 0).await;
}

/// Blocks are read by those they belong to; where one of these dies, by the other one, and at last by whoever is asked.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_reads_blocks_may_die() {
    let all_else = "metastore,ingester,distributor,querier";
    let nodes = TestCluster::builder()
        .node("a", "za", all_else)
        .node("b", "zb", all_else)
        .node("c", "zc", all_else)
        .node("g", "za", "store-gateway")
        .node("h", "zb", "store-gateway")
        .config(|config| {
            config.cluster.initial_slots = Some(3);
            config.ingester.flush.max_head_age = Duration::from_millis(500);
        });
    let (mut cluster, mut oracle) = opened(nodes, 3).await;
    for _ in 0..4 {
        oracle.store(&cluster, 9).await;
        cluster.wait_until("all is cut", || cluster.is_flushed(3)).await;
    }
    let asked = |cluster: &TestCluster| -> Vec<u64> {
        ["a", "b", "c", "g", "h"]
            .map(|name| {
                if cluster.names().contains(&name.to_owned()) { cluster.queried_block_count(name) } else { 0 }
            })
            .to_vec()
    };
    let known = async {
        loop {
            let before = asked(&cluster);
            for place in 0..3 {
                oracle.check(&cluster, place).await;
            }
            let new: Vec<u64> =
                asked(&cluster).iter().zip(before).map(|(now, before)| now - before).collect();
            match new[..] {
                [0, 0, 0, g, h] => {
                    return assert!(g > 0 && h > 0, "{new:?}: each has some of twelve or more");
                }
                _ => cluster.sleep_briefly().await,
            }
        }
    };
    cluster.run_with_deadline("gateways are asked, and nobody else reads", known).await;
    // It stands still: who asks waits some seconds, and has all.
    cluster.pause("h");
    oracle.check(&cluster, 0).await;
    cluster.resume("h");
    for name in ["g", "h"] {
        cluster.kill(name);
        for place in 0..3 {
            oracle.check(&cluster, place).await;
        }
    }
    cluster.start_nodes(&["g"]).await;
    oracle.store(&cluster, 3).await;
    oracle.check(&cluster, 1).await;
}

/// Whose members are gone for long is succeeded: repeats of what the dead have taken are known to who comes after.
#[tokio::test(flavor = "multi_thread")]
async fn others_take_the_place_of_who_is_gone_for_long() {
    let five = three().node("d", "za", "ingester").node("e", "zb", "ingester").config(|config| {
        config.cluster.initial_slots = Some(2);
        config.cluster.node_failure_timeout = Duration::from_secs(10);
    });
    let (mut cluster, mut oracle) = opened(five, 2).await;
    oracle.store(&cluster, 20).await;
    // One that keeps shards and does not vote in the catalogue alone: the others decide.
    cluster.kill("c");
    let gone =
        |view: &RoutingView| view.shards.iter().filter(|shard| shard.epoch > 1 && shard.serves()).count();
    cluster.wait_for_view("shards of the dead are succeeded", |view| gone(view) > 0 && open(view) == 2).await;
    oracle.repeat(&cluster, 0).await;
    oracle.store(&cluster, 20).await;
    oracle.check(&cluster, 0).await;
    cluster.start_nodes(&["c"]).await;
    oracle.repeat(&cluster, 1).await;
    oracle.check(&cluster, 2).await;
}

/// Without the bucket pushes go on, and what is in no block is found; when it is back all of it is cut, once.
#[tokio::test(flavor = "multi_thread")]
async fn pushes_go_on_without_the_bucket() {
    let nodes = three().config(|config| {
        config.cluster.initial_slots = Some(3);
        config.ingester.flush.max_head_age = Duration::from_secs(1);
    });
    let (cluster, mut oracle) = opened(nodes, 3).await;
    oracle.store(&cluster, 12).await;
    cluster.wait_until("all is cut", || cluster.is_flushed(3)).await;
    cluster.bucket().fail_one_of(1);
    oracle.store(&cluster, 12).await;
    cluster.wait_until("cuts are tried", || cluster.bucket().failed_calls() > 3).await;
    oracle.store(&cluster, 12).await;
    assert!(!cluster.is_flushed(3));
    // Blocks cannot be read, and nobody is told that there is nothing.
    let blind = oracle.ask(&cluster, 0).await;
    assert!(blind.as_ref().map_or(true, |answer| !answer.warnings.is_empty()), "{blind:?}");
    let Answer { values, .. } = oracle.recent(&cluster, 1, 12).await.unwrap();
    assert_eq!(values.len(), 24, "what was sent since is found");
    // It comes back little by little: some calls fail, some are done and said to have failed.
    cluster.bucket().fail_one_of(4);
    oracle.store(&cluster, 12).await;
    cluster.wait_until("all is cut", || cluster.is_flushed(3)).await;
    cluster.bucket().heal();
    oracle.repeat(&cluster, 0).await;
    for (name, place) in [("a", 0), ("b", 1), ("c", 2)] {
        oracle.check(&cluster, place).await;
        oracle.check_blocks(&cluster, name).await;
    }
}

/// A node whose disk is full gives its leads to others, and gets some back when it has room.
#[tokio::test(flavor = "multi_thread")]
async fn others_lead_what_a_full_disk_cannot_take() {
    let ((cluster, mut oracle), clock) = (opened(three(), 3).await, Clock::system());
    oracle.store(&cluster, 12).await;
    cluster.wait_until("leads are spread", || spread(&cluster)).await;
    let full = clock.monotonic();
    cluster.fill_disk("a");
    let moving = async {
        let others_lead = || {
            cluster.led_shard_count("a") == 0
                && cluster.led_shard_count("b") + cluster.led_shard_count("c") == 3
        };
        cluster.wait_until("others lead all", others_lead).await;
        clock.monotonic() - full
    };
    let pushing = async {
        for place in 0..12 {
            oracle.store_at_last(&cluster, place).await;
        }
    };
    let (moved, ()) = tokio::join!(moving, pushing);
    assert!(moved <= LEAD_MOVES, "the leads moved after {moved:?}");
    oracle.store(&cluster, 12).await;
    for place in 0..3 {
        oracle.check(&cluster, place).await;
    }
    cluster.free_disk("a");
    cluster.wait_until("leads are spread again", || spread(&cluster)).await;
    oracle.store(&cluster, 12).await;
    oracle.repeat(&cluster, 0).await;
    oracle.check(&cluster, 1).await;
}

/// Clocks that are minutes and days off, slow lines and a node that stands still for a while: nothing is lost, and what is
/// sent again counts once.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_clocks_slow_lines_and_standstill_do_no_harm() {
    const MINUTE: i64 = 60_000_000_000;
    let nodes = three().skew("b", 10 * MINUTE).config(|config| {
        config.cluster.initial_slots = Some(3);
        config.ingester.flush.max_head_age = Duration::from_secs(2);
    });
    let (mut cluster, mut oracle) = opened(nodes, 3).await;
    oracle.store(&cluster, 9).await;
    cluster.delay_traffic("a", "b", Duration::from_millis(20));
    oracle.store(&cluster, 9).await;
    oracle.repeat(&cluster, 1).await;
    cluster.pause("c");
    oracle.check(&cluster, 0).await;
    // What is sent to who stands still may be stored, or not.
    let number = oracle.make();
    let refused = oracle.send(&cluster, 2, &[number]).await;
    assert!(refused.is_err(), "{refused:?}");
    oracle.store_at(&cluster, &[0, 1], 8).await;
    cluster.resume("c");
    oracle.repeat(&cluster, 0).await;
    oracle.check(&cluster, 2).await;
    // Its clock goes back by days; the names of its blocks are of the catalogue's time.
    cluster.skew("c", -2 * 24 * 60 * MINUTE);
    cluster.restart("c").await;
    cluster.heal_network();
    cluster.wait_until("leads are spread", || spread(&cluster)).await;
    oracle.store(&cluster, 21).await;
    cluster.wait_until("all is cut", || cluster.is_flushed(3)).await;
    oracle.repeat(&cluster, 2).await;
    for (name, place) in [("a", 0), ("b", 1), ("c", 2)] {
        oracle.check(&cluster, place).await;
        oracle.check_blocks(&cluster, name).await;
    }
}

/// True if each of three nodes leads one of three shards.
fn spread(cluster: &TestCluster) -> bool {
    ["a", "b", "c"].iter().all(|name| cluster.led_shard_count(name) == 1)
}

fn open(view: &RoutingView) -> usize {
    view.shards.iter().filter(|shard| shard.serves()).count()
}
