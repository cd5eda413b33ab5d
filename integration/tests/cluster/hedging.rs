//! Whoever reads blocks may stand still: another one is asked meanwhile. Where all are slow, nobody asks twice as much.

use std::time::Duration;

use athanor_chassis::Clock;
use athanor_integration::cluster::TestCluster;
use athanor_integration::server::send_request;

use crate::oracle::Oracle;

/// After that a gateway that does not begin is given up, whether another one was asked or not.
const TURN: Duration = Duration::from_secs(10);
/// Second calls that may be made at once, and how many of a hundred calls.
const BURST: u64 = 8;
const PERCENT: u64 = 10;

/// What a querier has done.
#[derive(Clone, Copy, Debug)]
struct Counts {
    calls: u64,
    second: u64,
    won: u64,
}

fn counts(cluster: &TestCluster) -> Counts {
    let page = send_request(cluster.node("a").address(), "GET /metrics", &[], b"");
    let value = |name: &str| {
        let of = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<f64>().ok();
        page.text().lines().find_map(of).unwrap_or_else(|| panic!("no {name}")) as u64
    };
    Counts {
        calls: value("athanor_querier_store_gateway_requests_total"),
        second: value("athanor_querier_hedged_requests_total"),
        won: value("athanor_querier_hedged_requests_won_total"),
    }
}

/// A querier that has blocks read by two others, each of which answers quickly, and knows it.
async fn known() -> (TestCluster, Oracle) {
    let nodes = TestCluster::builder()
        .node("a", "za", "metastore,ingester,distributor,querier")
        .node("g", "za", "store-gateway")
        .node("h", "zb", "store-gateway")
        .config(|config| {
            config.cluster.initial_slots = Some(1);
            config.cluster.replication_factor = 1;
            config.metastore.voters = 1;
            config.ingester.flush.max_head_age = Duration::from_millis(300);
        });
    let cluster = nodes.start().await;
    cluster.wait_for_view("its slot is open", |view| view.shards.iter().any(|shard| shard.serves())).await;
    let mut oracle = Oracle::default();
    let spread = async {
        // Until blocks belong to both.
        while cluster.queried_block_count("g") == 0 || cluster.queried_block_count("h") == 0 {
            oracle.store(&cluster, 1).await;
            cluster.wait_until("all is cut", || cluster.is_flushed(1)).await;
            oracle.check(&cluster, 0).await;
        }
    };
    cluster.run_with_deadline("both gateways are asked", spread).await;
    for _ in 0..20 {
        oracle.check(&cluster, 0).await;
    }
    (cluster, oracle)
}

#[tokio::test(flavor = "multi_thread")]
async fn who_stands_still_is_not_waited_for() {
    let (cluster, oracle) = known().await;
    let (before, clock) = (counts(&cluster), Clock::system());
    cluster.pause("h");
    let begun = clock.monotonic();
    oracle.check(&cluster, 0).await;
    let took = clock.monotonic() - begun;
    let after = counts(&cluster);
    println!("{took:?}: {before:?} {after:?}");
    assert!(took < TURN / 2, "{took:?}");
    assert!(after.second > before.second && after.won > before.won, "{before:?} {after:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_all_are_slow_few_are_asked_twice() {
    let (cluster, oracle) = known().await;
    let before = counts(&cluster);
    ["g", "h"].iter().for_each(|name| cluster.delay_traffic("a", name, Duration::from_millis(400)));
    for _ in 0..12 {
        oracle.check(&cluster, 0).await;
    }
    let after = counts(&cluster);
    println!("{before:?} {after:?}");
    assert!(after.second > before.second, "it is slow: {before:?} {after:?}");
    assert!(after.second <= after.calls * PERCENT / 100 + BURST, "{after:?}");
}
