//! Profiles that lie in two places although no rule lets them, as after ids were lost to damage: they count once in each
//! answer, wherever they lie, and before and after they are merged [INV-20].

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::BlockEntry;
use athanor_chassis::Clock;
use athanor_integration::cluster::{TestCluster, run_on};

use crate::query_consistency::asker::{Answers, Asker};
use crate::query_consistency::naive::{Naive, picked};
use crate::query_consistency::plain::{Part, all_answers, ids, naive_answers, parts, told};
use crate::query_consistency::profiles::{IN_A_WAVE, plant, send};
use crate::query_consistency::story::{is_equal, serving};

const NODES: usize = 3;

/// What so many profiles say, each once. What would be read for an answer is another matter.
struct Expected {
    count: usize,
    answers: BTreeMap<Part, Answers>,
}

fn is_answer(question: &str) -> bool {
    !question.starts_with("AnalyzeQuery")
}

impl Expected {
    /// By the ids that a node tells.
    async fn of(cluster: &TestCluster, count: usize) -> Self {
        let told = Arc::new(ids(cluster, 0, count).await);
        let of_part = |part: Part| (part, naive_answers(&Naive::of(0..count, part.0, part.1, &told)));
        Self { count, answers: parts(count).into_iter().map(of_part).collect() }
    }

    /// Asks one of the nodes everything.
    async fn compare(&self, cluster: &TestCluster, place: usize, when: &str) {
        let count = self.count;
        let told = Arc::new(ids(cluster, place, count).await);
        for (&(tenants, [start, end]), expected) in &self.answers {
            let (ids, picked) = (Arc::clone(&told), picked(count));
            let asker = Asker { start, end, picked, ids, ..Asker::of_all(cluster, place, tenants, count) };
            let found = run_on(cluster.querier(place).0, async move { all_answers(&asker).await }).await;
            let only = |answers: &Answers| -> Answers {
                let all = answers.iter().filter(|(question, _)| is_answer(question));
                all.map(|(question, answer)| (*question, answer.clone())).collect()
            };
            is_equal(&only(&found), &only(expected), &format!("{tenants} from {start} to {end}, {when}"));
        }
    }
}

/// Has each of some profiles lie in all shards.
async fn everywhere(cluster: &TestCluster, numbers: Range<usize>) {
    let shards: Vec<u32> = {
        let view = cluster.node("a").roles().views.current();
        view.shards.iter().filter(|shard| shard.serves()).map(|shard| shard.id).collect()
    };
    for number in numbers {
        assert!(send(cluster, number, number).await.0 > 0);
        let mut planted = 0;
        for &shard in &shards {
            planted += usize::from(plant(cluster, shard, number).await > 0);
        }
        assert_eq!(planted, NODES - 1, "profile {number} lies in all shards by now");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lies_in_two_places_counts_once_wherever_they_are() {
    let cluster = told().start().await;
    cluster.wait_for_view("slots are open", |view| serving(view) == NODES).await;
    everywhere(&cluster, 0..IN_A_WAVE).await;
    let expected = Expected::of(&cluster, IN_A_WAVE).await;
    expected.compare(&cluster, 0, "in three heads").await;

    // The shards of one node only.
    let (runtime, ingester) = (cluster.catalog("a").0, cluster.ingesters().remove(0));
    let cut = async move { ingester.flush_all(&Clock::system(), Duration::from_secs(60)).await };
    run_on(runtime, cut).await.unwrap();
    expected.compare(&cluster, 1, "in heads and blocks").await;

    cluster.flush_all(NODES).await;
    expected.compare(&cluster, 2, "in blocks").await;
    // As they are known by now.
    expected.compare(&cluster, 2, "in blocks, again").await;
    let again: u64 = (0..NODES).map(|place| cluster.querier(place).1.stats().twice).sum();
    assert!(again > 0, "nothing was found to lie in two places");

    everywhere(&cluster, IN_A_WAVE..2 * IN_A_WAVE).await;
    let expected = Expected::of(&cluster, 2 * IN_A_WAVE).await;
    expected.compare(&cluster, 0, "in blocks, and more in heads").await;
    cluster.flush_all(NODES).await;

    merge(&cluster, &expected).await;
    expected.compare(&cluster, 1, "merged").await;
}

/// Merges blocks until those of all shards are one; meanwhile somebody asks.
async fn merge(cluster: &TestCluster, expected: &Expected) {
    let (runtime, compactor) = cluster.compactor("a", 7);
    let merging = async {
        for round in 0.. {
            let (catalog, compactor) = (Arc::clone(&compactor.catalog), compactor.clone());
            let left = run_on(runtime, async move {
                compactor.compact_once().await.unwrap();
                let blocks = catalog.blocks().await.unwrap();
                let is_apart = |block: &&BlockEntry| block.log_ranges().all(|rows| rows.shard == block.shard);
                blocks.iter().filter(is_apart).count()
            });
            if left.await == 0 {
                return;
            }
            if round == 2 {
                expected.compare(cluster, 2, "while they are merged").await;
            }
        }
    };
    cluster.run_with_deadline("all is merged", merging).await;
}
