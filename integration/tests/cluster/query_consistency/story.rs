//! What happens to profiles while somebody asks: they are cut, merged and sent again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use athanor_catalog::RoutingView;
use athanor_integration::cluster::{TestCluster, TestClusterBuilder, run_on};
use athanor_integration::compactor::CompactionOutcome;

use crate::query_consistency::asker::Answers;
use crate::query_consistency::profiles::{IN_A_WAVE, send};

/// Replacements that questions of a wave see, at least.
const REPLACED: usize = 4;
/// The tenants as one.
pub const BOTH: &str = "acme|globex";

/// A cluster of three slots.
pub fn three() -> TestClusterBuilder {
    TestCluster::builder().node("a", "za", "all").node("b", "zb", "all").node("c", "zc", "all")
}

/// In which kinds of places profiles lie: heads, blocks that were cut, blocks that were made of others.
async fn places(cluster: &TestCluster) -> [bool; 3] {
    let in_heads = cluster.ingesters().iter().any(|ingester| ingester.has_unflushed());
    let (runtime, catalog) = cluster.catalog("a");
    let blocks = run_on(runtime, async move { catalog.blocks().await }).await.unwrap();
    let has = |merged: bool| blocks.iter().any(|block| (block.level > 0) == merged);
    [in_heads, has(false), has(true)]
}

/// How many shards take profiles.
pub fn serving(view: &RoutingView) -> usize {
    view.shards.iter().filter(|shard| shard.serves()).count()
}

/// Answers are equal, question by question.
pub fn is_equal(found: &Answers, expected: &Answers, whose: &str) {
    assert!(found.keys().eq(expected.keys()), "{:?} {:?}", found.keys(), expected.keys());
    for (question, expected) in expected {
        assert_eq!(&found[question], expected, "{question} of {whose}");
    }
}

/// Merges blocks until it is told to stop; how often each thing happened is counted.
async fn merge(
    cluster: &TestCluster,
    seed: u64,
    replaced: &AtomicUsize,
    ends: &AtomicBool,
) -> BTreeMap<CompactionOutcome, usize> {
    let mut seen = BTreeMap::new();
    let (runtime, compactor) = cluster.compactor(["a", "b", "c"][seed as usize % 3], seed);
    let compactor = Arc::new(compactor);
    while !ends.load(Ordering::SeqCst) {
        let compactor = Arc::clone(&compactor);
        match run_on(runtime, async move { compactor.compact_once().await }).await {
            Ok(round) => {
                *seen.entry(round).or_default() += 1;
                replaced.fetch_add(usize::from(round == CompactionOutcome::Replaced), Ordering::SeqCst);
            }
            // Where the machine is busy, voters may be slow to hear of each other.
            Err(status) => assert!(status.code.is_retryable(), "{status}"),
        }
        cluster.sleep_briefly().await;
    }
    seen
}

/// Sends what was sent before; nothing of it counts.
async fn repeat(cluster: &TestCluster, count: usize, ends: &AtomicBool) {
    for number in (0..count).cycle() {
        if ends.load(Ordering::SeqCst) {
            return;
        }
        let (new, repeats) = send(cluster, number, number).await;
        assert!(new == 0 && repeats > 0, "profile {number}: {new} new, {repeats} repeats");
        cluster.sleep_briefly().await;
    }
}

/// What has happened, and where profiles lay when somebody asked.
#[derive(Debug, Default)]
pub struct Story {
    rounds: BTreeMap<CompactionOutcome, usize>,
    seen: BTreeSet<[bool; 3]>,
}

impl Story {
    /// Compares, at one node after the other, while all is cut and merged and sent again; at the end once more what was
    /// merged last.
    pub async fn goes_on(&mut self, moving: &TestCluster, wave: usize, compare: impl AsyncFn(usize)) {
        let (replaced, ends, was_asked) =
            (AtomicUsize::new(0), AtomicBool::new(false), AtomicBool::new(false));
        let seen = &mut self.seen;
        let asking = async {
            for place in 0.. {
                let enough = replaced.load(Ordering::SeqCst) >= REPLACED && moving.is_flushed(3);
                seen.insert(places(moving).await);
                compare(place).await;
                was_asked.store(true, Ordering::SeqCst);
                if enough {
                    break;
                }
            }
            ends.store(true, Ordering::SeqCst);
        };
        let (one, other) = (2 * wave as u64 + 1, 2 * wave as u64 + 2);
        // Whatever is not cut by then.
        let cutting = async {
            moving.wait_until("it was asked once", || was_asked.load(Ordering::SeqCst)).await;
            moving.flush_all(3).await;
        };
        let work = async {
            tokio::join!(
                asking,
                cutting,
                merge(moving, one, &replaced, &ends),
                merge(moving, other, &replaced, &ends),
                repeat(moving, (wave + 1) * IN_A_WAVE, &ends)
            )
        };
        let ((), (), one, other, ()) = moving.run_with_deadline("questions are answered", work).await;
        for (round, times) in one.into_iter().chain(other) {
            *self.rounds.entry(round).or_default() += times;
        }
    }

    /// It was worth telling.
    pub fn check(&self, waves: usize) {
        println!("{self:?}");
        let Story { rounds, seen } = self;
        assert!(
            rounds[&CompactionOutcome::Replaced] >= waves * REPLACED
                && rounds.contains_key(&CompactionOutcome::Left),
            "{self:?}"
        );
        let has = |places: [[bool; 3]; 2]| places.iter().any(|places| seen.contains(places));
        assert!(has([[true, false, false], [true, true, false]]), "{self:?}");
        assert!(has([[true, false, true], [true, true, true]]), "{self:?}");
        assert!(has([[false, true, true], [false, false, true]]), "{self:?}");
    }
}
