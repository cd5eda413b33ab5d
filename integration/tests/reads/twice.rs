//! Profiles that lie in two places although no rule lets them.

use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::BlockEntry;
use athanor_integration::cluster::{Cluster, on};

use crate::asker::Asker;
use crate::profiles::{IN_A_WAVE, Sums, TENANTS, send, sums};
use crate::story::serving;

/// What no rule keeps from being in two shards, as after ids were lost to damage, counts twice until it is merged; then
/// it counts once (E20).
#[tokio::test(flavor = "multi_thread")]
async fn what_lies_in_two_shards_counts_once_when_it_is_merged() {
    let two = Cluster::builder().node("two", "za", "all").config(|config| {
        (config.cluster.slots, config.cluster.copies, config.cluster.voters) = (Some(2), 1, 1);
        config.ingester.cut.max_age = Duration::from_millis(400);
    });
    let cluster = two.start().await;
    cluster.until("slots are open", |view| serving(view) == 2).await;
    for number in 0..IN_A_WAVE {
        assert!(send(&cluster, 0, number).await.0 > 0);
    }
    cluster.wait("all is cut", || cluster.is_cut(2)).await;
    let (runtime, compactor) = cluster.compactor("two", 7);
    let planter = compactor.clone();
    let planted = on(runtime, async move { planter.plant().await }).await.unwrap();
    assert!(planted > 0);
    let of = async |tenant| {
        let asker = Asker::of_all(&cluster, 0, tenant, IN_A_WAVE);
        on(cluster.querier(0).0, async move { asker.sums().await }).await
    };
    let naive = TENANTS.map(|tenant| sums(IN_A_WAVE, tenant));
    let total = |sums: &[Sums; 2]| sums.iter().flat_map(Sums::values).sum::<i64>();
    let found = [of(TENANTS[0]).await, of(TENANTS[1]).await];
    assert!(total(&found) > total(&naive), "it lies there twice");
    let merging = async {
        loop {
            let (catalog, compactor) = (Arc::clone(&compactor.catalog), compactor.clone());
            let left = on(runtime, async move {
                compactor.round().await.unwrap();
                let blocks = catalog.blocks().await.unwrap();
                let is_apart = |block: &&BlockEntry| block.rows().all(|rows| rows.shard == block.shard);
                blocks.iter().filter(is_apart).count()
            });
            if left.await == 0 {
                return;
            }
        }
    };
    cluster.patiently("all is merged", merging).await;
    assert_eq!([of(TENANTS[0]).await, of(TENANTS[1]).await], naive);
}
