//! A dashboard that goes on: its end moves, and then its beginning. What blocks have answered they are not asked again.

use std::collections::BTreeSet;
use std::time::Duration;

use athanor_integration::cluster::{TestCluster, run_on};
use athanor_proto::querier::v1::{HeatmapQueryType, SelectHeatmapRequest, SelectSeriesRequest};
use athanor_proto::types::v1::LabelNamesRequest;

use crate::query_consistency::asker::{Asker, whole};
use crate::query_consistency::decoded::{Graph, graph};
use crate::query_consistency::naive::Naive;
use crate::query_consistency::points::{Values, group, place, sums};
use crate::query_consistency::profiles::{TENANTS, TYPE, millis, send};
use crate::query_consistency::story::serving;
use crate::query_consistency::sums::stacks;

/// Between two points, and how far the dashboard goes on, milliseconds.
const STEP: i64 = 15_000;
/// A graph, points and a heatmap.
const QUESTIONS: u64 = 3;

/// A cluster in which one node reads blocks for another.
struct Scene {
    cluster: TestCluster,
    sent: usize,
    blocks: BTreeSet<String>,
    misses: u64,
}

/// What drawing took: answers that were not kept, and which blocks were read, numbered by their age.
#[derive(Debug, PartialEq)]
struct Took {
    misses: u64,
    read: BTreeSet<usize>,
}

impl Scene {
    async fn new() -> Self {
        let nodes = TestCluster::builder()
            .node("a", "za", "metastore,ingester,distributor,querier")
            .node("g", "za", "store-gateway")
            .config(|config| {
                config.cluster.initial_slots = Some(1);
                config.cluster.replication_factor = 1;
                config.metastore.voters = 1;
                config.ingester.flush.max_head_age = Duration::from_secs(24 * 3600);
            });
        let cluster = nodes.start().await;
        cluster.wait_for_view("its slot is open", |view| serving(view) == 1).await;
        Scene { cluster, sent: 0, blocks: BTreeSet::new(), misses: 0 }
    }

    /// So many profiles come, in the order of their times.
    async fn send(&mut self, count: usize) {
        for number in self.sent..self.sent + count {
            assert!(send(&self.cluster, 0, number).await.0 > 0);
        }
        self.sent += count;
    }

    /// All that came lies in one block more.
    async fn cut(&mut self) {
        self.cluster.flush_all(1).await;
        let (runtime, catalog) = self.cluster.catalog("a");
        let blocks = run_on(runtime, async move { catalog.blocks().await }).await.unwrap();
        let before = self.blocks.len();
        self.blocks = blocks.into_iter().map(|block| block.id.to_string()).collect();
        assert_eq!(self.blocks.len(), before + 1);
    }

    fn asker(&self) -> Asker {
        Asker::of_all(&self.cluster, 0, TENANTS[0], self.sent)
    }

    /// Waits until the querier knows who reads blocks.
    async fn settle(&self) {
        let asking = async {
            while self.cluster.queried_block_count("g") == 0 {
                let asker = self.asker();
                let (start, end) = (asker.start, asker.end);
                let names = async move {
                    whole!(asker, label_names, LabelNamesRequest { start, end, ..Default::default() })
                };
                run_on(self.cluster.querier(0).0, names).await;
                self.cluster.sleep_briefly().await;
            }
        };
        self.cluster.run_with_deadline("the gateway is asked", asking).await;
    }

    fn misses(&self) -> u64 {
        let of = |name: &String| self.cluster.node(name).roles().gateway.stats().answers.cache.misses;
        self.cluster.names().iter().map(of).sum()
    }

    /// Draws it from one time to another, both in milliseconds since the first profile.
    async fn draw(&mut self, from: i64, to: i64) -> Took {
        let [start, end] = [from, to].map(|time| millis(0) + time);
        let asker = Asker { start, end, ..self.asker() };
        self.cluster.bucket().take_reads();
        self.misses = self.misses();
        let naive = Naive::of(0..self.sent, TENANTS[0], [start, end], &asker.ids);
        let drawn = run_on(self.cluster.querier(0).0, async move { draw(&asker).await }).await;
        assert_eq!(drawn, expected(&naive), "from {from} to {to}");
        let reads = self.cluster.bucket().take_reads();
        let is_read = |block: &String| reads.iter().any(|path| path.contains(block.as_str()));
        let read = self.blocks.iter().enumerate().filter(|(_, block)| is_read(block));
        Took { misses: self.misses() - self.misses, read: read.map(|(age, _)| age).collect() }
    }
}

/// A graph, points by service, and how many profiles a heatmap has in each column.
type Drawn = (Graph<1>, Values, Vec<(i64, i64)>);

async fn draw(asker: &Asker) -> Drawn {
    let of_graph = whole!(asker, select_merge_stacktraces, asker.merge()).flamegraph.unwrap();
    let levels: Vec<Vec<i64>> = of_graph.levels.into_iter().map(|level| level.values).collect();
    let series = SelectSeriesRequest {
        profile_type_id: TYPE.to_owned(),
        label_selector: "{}".to_owned(),
        start: asker.start,
        end: asker.end,
        group_by: vec!["service_name".to_owned()],
        step: STEP as f64 / 1_000.0,
        ..SelectSeriesRequest::default()
    };
    let series = whole!(asker, select_series, series).series.into_iter().map(|of| {
        let points = of.points.iter().map(|point| (point.timestamp, point.value)).collect();
        (group(of.labels), points)
    });
    let heat = SelectHeatmapRequest {
        profile_type_id: TYPE.to_owned(),
        label_selector: "{}".to_owned(),
        start: asker.start,
        end: asker.end,
        step: STEP as f64 / 1_000.0,
        query_type: HeatmapQueryType::Individual as i32,
        ..SelectHeatmapRequest::default()
    };
    let heat = whole!(asker, select_heatmap, heat).series;
    let slots = heat.into_iter().flat_map(|of| of.slots);
    let counts = slots.map(|slot| (slot.timestamp, slot.counts.into_iter().map(i64::from).sum()));
    (graph(&of_graph.names, &levels), series.collect(), counts.collect())
}

fn expected(naive: &Naive) -> Drawn {
    let any = |_: &_| true;
    let mut numbers: Vec<(i64, usize)> = Vec::new();
    for record in naive.all().filter(|record| record.is_of(TYPE)) {
        let column = place(naive, STEP, record.time).map(|place| naive.start + place * STEP);
        numbers.extend(column.map(|time| (time, record.number)));
    }
    // Records of one profile are one.
    numbers.dedup();
    let mut counts: Vec<(i64, i64)> = Vec::new();
    for (time, _) in numbers {
        match counts.last_mut().filter(|(last, _)| *last == time) {
            Some((_, count)) => *count += 1,
            None => counts.push((time, 1)),
        }
    }
    (Graph::of(stacks(naive.usual(), any)), sums(naive, STEP, &["service_name"], any), counts)
}

fn took(misses: u64, read: &[usize]) -> Took {
    Took { misses, read: read.iter().copied().collect() }
}

/// Of blocks that lie within the time, nothing is asked twice; a block that the end cuts is asked once for each end, and
/// once for all when it lies within. No block is fetched again for any of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_later_end_asks_heads_and_new_blocks_only() {
    let mut scene = Scene::new().await;
    // Profiles lie 7.3 seconds apart, so these blocks end at 80, 168 and 212 seconds.
    for count in [12, 12, 6] {
        scene.send(count).await;
        scene.cut().await;
    }
    scene.send(6).await;
    scene.settle().await;
    // The end cuts the third.
    let first = scene.draw(0, 13 * STEP).await;
    assert_eq!((first.misses, first.read), (3 * QUESTIONS, BTreeSet::from([0, 1, 2])));
    assert_eq!(scene.draw(0, 13 * STEP).await, took(0, &[]));
    assert_eq!(scene.draw(0, 14 * STEP).await, took(QUESTIONS, &[]), "the end cuts the third elsewhere");
    assert_eq!(scene.draw(0, 15 * STEP).await, took(QUESTIONS, &[]), "the third lies within");
    // A fourth is new, from 226 to 256 seconds.
    scene.cut().await;
    assert_eq!(scene.draw(0, 16 * STEP).await, took(QUESTIONS, &[3]), "the end cuts the fourth");
    assert_eq!(scene.draw(0, 17 * STEP).await, took(QUESTIONS, &[]), "the end cuts the fourth elsewhere");
    assert_eq!(scene.draw(0, 18 * STEP).await, took(QUESTIONS, &[]), "the fourth lies within");
    // What comes is in heads.
    scene.send(6).await;
    for end in 19..21 {
        assert_eq!(scene.draw(0, end * STEP).await, took(0, &[]), "only heads are asked");
    }
    scene.cut().await;
    assert_eq!(scene.draw(0, 21 * STEP).await, took(QUESTIONS, &[4]), "the fifth is new");
    assert_eq!(scene.draw(0, 22 * STEP).await, took(0, &[]));
}

/// Where the beginning moves by whole steps, only the block that it cuts is asked anew. Where it moves by less, sums of points
/// are others, and all blocks are asked for them; still nothing is fetched, since what they are made of is kept. Graphs and
/// heatmaps do not mind.
#[tokio::test(flavor = "multi_thread")]
async fn a_later_beginning_asks_the_block_that_it_cuts() {
    let mut scene = Scene::new().await;
    for _ in 0..3 {
        scene.send(12).await;
        scene.cut().await;
    }
    scene.settle().await;
    let end = 18 * STEP;
    let first = scene.draw(0, end).await;
    assert_eq!((first.misses, first.read), (3 * QUESTIONS, BTreeSet::from([0, 1, 2])));
    // The first point stands for the step before it, so that points are not cut yet.
    assert_eq!(scene.draw(STEP, end + STEP).await, took(1, &[]));
    for moved in 2..5 {
        assert_eq!(scene.draw(moved * STEP, end + moved * STEP).await, took(QUESTIONS, &[]));
    }
    // The first one is behind for the graph, and cut for the others.
    let moved = 85_000;
    assert_eq!(scene.draw(moved, end + moved).await, took(3 + 1, &[]));
    // Now the second is cut.
    let moved = 99_000;
    assert_eq!(scene.draw(moved, end + moved).await, took(1 + 2, &[]));
}
