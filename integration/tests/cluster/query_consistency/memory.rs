//! The same profiles in the memory of one server.

use std::collections::BTreeMap;
use std::time::Duration;

use athanor_integration::cluster::{TestCluster, TestClusterBuilder, run_on};

use crate::query_consistency::asker::{Answers, Asker};
use crate::query_consistency::profiles::{IN_A_WAVE, TENANTS, send, sums};
use crate::query_consistency::story::{BOTH, Story, is_equal, serving, three};

/// How often profiles come.
const WAVES: usize = 5;

/// Heads are cut as they grow older.
fn moving() -> TestClusterBuilder {
    three().config(|config| {
        config.cluster.initial_slots = Some(3);
        config.ingester.flush.max_head_age = Duration::from_millis(400);
    })
}

/// All that it has stays in its memory.
fn still() -> TestClusterBuilder {
    TestCluster::builder().node("still", "za", "all").config(|config| {
        config.cluster.initial_slots = Some(1);
        config.cluster.replication_factor = 1;
        config.metastore.voters = 1;
        config.ingester.flush.max_head_age = Duration::from_secs(24 * 3600);
    })
}

async fn asked(cluster: &TestCluster, place: usize, tenants: &'static str, count: usize) -> Answers {
    let asker = Asker::of_all(cluster, place, tenants, count);
    run_on(cluster.querier(place).0, async move { asker.ask().await }).await
}

/// Asks one of the queriers everything, and compares.
async fn compare(
    cluster: &TestCluster,
    place: usize,
    count: usize,
    expected: &BTreeMap<&'static str, Answers>,
) {
    for (tenants, expected) in expected {
        let found = asked(cluster, place, tenants, count).await;
        is_equal(&found, expected, &format!("{tenants}, {count} profiles"));
    }
    for tenant in TENANTS {
        let asker = Asker::of_all(cluster, place, tenant, count);
        let found = run_on(cluster.querier(place).0, async move { asker.sums().await }).await;
        assert_eq!(found, sums(count, tenant), "{tenant}, {count} profiles");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_cut_and_replaced_meanwhile_answers_are_those_of_one_memory() {
    let (moving, still) = (moving().start().await, still().start().await);
    moving.wait_for_view("slots are open", |view| serving(view) == 3).await;
    still.wait_for_view("its slot is open", |view| serving(view) == 1).await;
    let mut story = Story::default();
    for wave in 0..WAVES {
        let (first, count) = (wave * IN_A_WAVE, (wave + 1) * IN_A_WAVE);
        let mut taken = Vec::new();
        for number in first..count {
            taken.push((number, send(&still, 0, number).await.0));
        }
        let mut expected = BTreeMap::new();
        for tenants in [TENANTS[0], TENANTS[1], BOTH] {
            expected.insert(tenants, asked(&still, 0, tenants, count).await);
        }
        // Asked for at once: some of it is in no block yet.
        for (number, new) in taken {
            assert_eq!(send(&moving, number, number).await.0, new, "profile {number}");
        }
        story.goes_on(&moving, wave, async |place| compare(&moving, place, count, &expected).await).await;
    }
    story.check(WAVES);
}
