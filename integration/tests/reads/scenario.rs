//! Profiles come, are cut and merged, and everybody asks all the while.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use athanor_catalog::{BlockEntry, View};
use athanor_integration::cluster::{Cluster, on};
use athanor_integration::compactor::Round;

use crate::profiles::{Sums, TENANTS, millis, send, sums};
use crate::questions::{Answers, Asker};

/// How often profiles come, and how many at a time.
const WAVES: usize = 5;
const IN_A_WAVE: usize = 12;
/// Replacements that questions of a wave see, at least.
const REPLACED: usize = 4;
const BOTH: &str = "acme|globex";

fn moving() -> athanor_integration::cluster::Builder {
    let nodes = Cluster::builder().node("a", "za", "all").node("b", "zb", "all").node("c", "zc", "all");
    nodes.config(|config| {
        config.cluster.slots = Some(3);
        config.ingester.cut.max_age = Duration::from_millis(400);
    })
}

/// All that it has stays in its memory.
fn still() -> athanor_integration::cluster::Builder {
    Cluster::builder().node("still", "za", "all").config(|config| {
        (config.cluster.slots, config.cluster.copies, config.cluster.voters) = (Some(1), 1, 1);
        config.ingester.cut.max_age = Duration::from_secs(24 * 3600);
    })
}

/// In which kinds of places profiles lie: heads, blocks that were cut, blocks that were made of others.
async fn places(cluster: &Cluster) -> [bool; 3] {
    let in_heads = cluster.ingesters().iter().any(|ingester| ingester.has_unregistered());
    let (runtime, catalog) = cluster.catalog("a");
    let blocks = on(runtime, async move { catalog.blocks().await }).await.unwrap();
    let has = |merged: bool| blocks.iter().any(|block| (block.level > 0) == merged);
    [in_heads, has(false), has(true)]
}

fn serving(view: &View) -> usize {
    view.shards.iter().filter(|shard| shard.serves()).count()
}

fn asker(cluster: &Cluster, place: usize, tenants: &'static str, count: usize) -> Asker {
    let (_, querier) = cluster.querier(place);
    Asker { querier, tenants, start: millis(0), end: millis(count) }
}

async fn asked(cluster: &Cluster, place: usize, tenants: &'static str, count: usize) -> Answers {
    let asker = asker(cluster, place, tenants, count);
    on(cluster.querier(place).0, async move { asker.ask().await }).await
}

/// Asks one of the queriers everything, and compares.
async fn compare(cluster: &Cluster, place: usize, count: usize, expected: &BTreeMap<&'static str, Answers>) {
    for (tenants, expected) in expected {
        let found = asked(cluster, place, tenants, count).await;
        assert_eq!(found.len(), expected.len());
        for (question, expected) in expected {
            assert_eq!(&found[question], expected, "{question} of {tenants}, {count} profiles");
        }
    }
    for tenant in TENANTS {
        let asker = asker(cluster, place, tenant, count);
        let found = on(cluster.querier(place).0, async move { asker.sums().await }).await;
        assert_eq!(found, sums(count, tenant), "{tenant}, {count} profiles");
    }
}

/// Merges blocks until it is told to stop; how often each thing happened is counted.
async fn merge(
    cluster: &Cluster,
    seed: u64,
    replaced: &AtomicUsize,
    ends: &AtomicBool,
) -> BTreeMap<Round, usize> {
    let mut seen = BTreeMap::new();
    let (runtime, compactor) = cluster.compactor(["a", "b", "c"][seed as usize % 3], seed);
    let compactor = Arc::new(compactor);
    while !ends.load(Ordering::SeqCst) {
        let compactor = Arc::clone(&compactor);
        let round = on(runtime, async move { compactor.round().await }).await.unwrap();
        *seen.entry(round).or_default() += 1;
        replaced.fetch_add(usize::from(round == Round::Replaced), Ordering::SeqCst);
        cluster.moment().await;
    }
    seen
}

/// Sends what was sent before; nothing of it counts.
async fn repeat(cluster: &Cluster, count: usize, ends: &AtomicBool) {
    for number in (0..count).cycle() {
        if ends.load(Ordering::SeqCst) {
            return;
        }
        let (new, repeats) = send(cluster, number, number).await;
        assert!(new == 0 && repeats > 0, "profile {number}: {new} new, {repeats} repeats");
        cluster.moment().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_cut_and_replaced_meanwhile_answers_are_those_of_one_memory() {
    let (moving, still) = (moving().start().await, still().start().await);
    moving.until("slots are open", |view| serving(view) == 3).await;
    still.until("its slot is open", |view| serving(view) == 1).await;
    let (mut rounds, mut seen): (BTreeMap<Round, usize>, BTreeSet<[bool; 3]>) = Default::default();
    let mut count = 0;
    for wave in 0..WAVES as u64 {
        let mut taken = Vec::new();
        for number in count..count + IN_A_WAVE {
            taken.push((number, send(&still, 0, number).await.0));
        }
        count += IN_A_WAVE;
        let mut expected = BTreeMap::new();
        for tenants in [TENANTS[0], TENANTS[1], BOTH] {
            expected.insert(tenants, asked(&still, 0, tenants, count).await);
        }
        // Asked for at once: some of it is in no block yet.
        for (number, new) in taken {
            assert_eq!(send(&moving, number, number).await.0, new, "profile {number}");
        }
        let (replaced, ends) = (AtomicUsize::new(0), AtomicBool::new(false));
        let asking = async {
            for place in 0.. {
                let enough = replaced.load(Ordering::SeqCst) >= REPLACED && moving.is_cut(3);
                seen.insert(places(&moving).await);
                compare(&moving, place, count, &expected).await;
                // What was merged last is asked for once more.
                if enough {
                    break;
                }
            }
            ends.store(true, Ordering::SeqCst);
        };
        let (one, other) = (2 * wave + 1, 2 * wave + 2);
        let work = async {
            tokio::join!(
                asking,
                merge(&moving, one, &replaced, &ends),
                merge(&moving, other, &replaced, &ends),
                repeat(&moving, count, &ends)
            )
        };
        let ((), one, other, ()) = moving.patiently("questions are answered", work).await;
        for (round, times) in one.into_iter().chain(other) {
            *rounds.entry(round).or_default() += times;
        }
    }
    println!("{rounds:?} {seen:?}");
    assert!(rounds[&Round::Replaced] >= WAVES * REPLACED && rounds.contains_key(&Round::Left), "{rounds:?}");
    assert!(seen.contains(&[true, false, false]) || seen.contains(&[true, true, false]), "{seen:?}");
    assert!(seen.contains(&[true, false, true]) || seen.contains(&[true, true, true]), "{seen:?}");
    assert!(seen.contains(&[false, true, true]) || seen.contains(&[false, false, true]), "{seen:?}");
}

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
        let asker = asker(&cluster, 0, tenant, IN_A_WAVE);
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
