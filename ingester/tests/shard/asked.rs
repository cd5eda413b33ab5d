//! What is asked of heads is answered as by the blocks that they become, and by both together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use athanor_block::TenantBlockSource;
use athanor_catalog::Catalog;
use athanor_chassis::ComputePool;
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::store_interface::upload::ProfileUpload;
use athanor_profile::{ProfileSource, SourceError, SpanFilter};
use athanor_query::{
    FrameFilter, FramePatterns, GoPgoOptions, HeatmapQuery, LabelValuesQuery, PartialResult, ProfileQuery,
    ProfileSelection, QueryKind, SourceCost, StackFilter, TimeGrid, TimeSeriesQuery, run_all,
};

use crate::samples::{labelled, now, profile, upload};
use crate::world::{World, fetch, simulate, tenant};

/// Eight profiles with rows of several spans and traces, some split off by a label.
fn uploads(begin: i64) -> Vec<ProfileUpload> {
    let one = |number: i64| {
        let mut profile = profile(begin + number * 1_000, &[("main;idle", 1 + number)]);
        for span in 1..4i64 {
            let (span_id, trace_id) = (format!("{span:016x}"), format!("{:032x}", span % 2 + 7));
            let request = [("span_id", span_id.as_str()), ("trace_id", trace_id.as_str())];
            labelled(&mut profile, "main;work;hash", &request, 10 * span + number);
            labelled(&mut profile, "main;work;read", &[request[0], ("endpoint", "/x")], 100 * span);
        }
        upload(&profile)
    };
    (0..8).map(one).collect()
}

fn selections() -> Vec<ProfileSelection> {
    let requests = [SpanFilter::spans([2, 3]), SpanFilter::traces([8]), SpanFilter::spans([77])];
    let of_requests =
        requests.map(|requests| ProfileSelection { requests: Some(requests), ..ProfileSelection::default() });
    std::iter::once(ProfileSelection::default()).chain(of_requests).collect()
}

fn questions(begin: i64) -> Vec<QueryKind> {
    let steps = TimeGrid { start: begin, step: 3_000, count: 3 };
    let included = FramePatterns { names: vec!["work".to_owned()], regexes: vec!["^h".to_owned()] };
    let frames = FrameFilter::new(included, FramePatterns::default()).unwrap();
    let stacks = StackFilter { call_site: vec!["main".to_owned()], frames, ..StackFilter::default() };
    let group_by = vec!["endpoint".to_owned()];
    let points =
        TimeSeriesQuery { steps, group_by: group_by.clone(), exemplars: true, ..TimeSeriesQuery::default() };
    let heat = HeatmapQuery { steps, group_by, spans: true, exemplars: true };
    vec![
        QueryKind::LabelValues(LabelValuesQuery {
            name: "endpoint".to_owned(),
            ..LabelValuesQuery::default()
        }),
        QueryKind::LabelNameCounts { prefix: String::new() },
        QueryKind::Tree(StackFilter::default()),
        QueryKind::Tree(stacks.clone()),
        QueryKind::OriginTree(StackFilter::default()),
        QueryKind::OriginTree(stacks.clone()),
        QueryKind::Profile(stacks.clone(), Some(GoPgoOptions { keep_locations: 1, aggregate_callees: true })),
        QueryKind::Points(TimeSeriesQuery { stacks, ..points.clone() }),
        QueryKind::Points(points),
        QueryKind::Heat(HeatmapQuery { spans: false, ..heat.clone() }),
        QueryKind::Heat(heat),
        QueryKind::Sizes,
    ]
}

async fn sources(world: &World) -> Vec<Box<dyn ProfileSource>> {
    let tenant = tenant("acme");
    let listing = world.remains.catalog.list_blocks(&tenant, i64::MIN, i64::MAX).await.unwrap();
    let mut sources: Vec<Box<dyn ProfileSource>> = Vec::new();
    for shard in &listing.shards {
        let views = world.ingester.head_snapshots(shard.id, shard.watermark, &tenant).unwrap();
        sources.extend(views.into_iter().map(|view| Box::new(view) as Box<dyn ProfileSource>));
    }
    for block in &listing.blocks {
        let block = Arc::new(fetch(&world.remains.store, block).await);
        sources.push(Box::new(TenantBlockSource::new(block, "acme", ComputePool::inline()).unwrap()));
    }
    sources
}

/// All answers, as far as they must be equal.
async fn answers(world: &World, begin: i64) -> Vec<Vec<u8>> {
    let sources = sources(world).await;
    let packed = |partial: &PartialResult| partial.pack().unwrap().flatten().collect::<Vec<u8>>();
    let mut all = Vec::new();
    for selection in selections() {
        for what in questions(begin) {
            let ask = ProfileQuery { selection: selection.clone(), what, ..ProfileQuery::default() };
            all.push(match run_all(&ask, sources.iter().map(AsRef::as_ref)).unwrap() {
                PartialResult::Profile(merged) => {
                    packed(&PartialResult::Tree(Tree::from_totals(&merged.dictionary, &merged.totals)))
                }
                PartialResult::Sizes(sizes) => {
                    let [one, other]: [&SourceCost; 2] = [&sizes.heads, &sizes.blocks];
                    let series: Vec<u128> = one.series.union(&other.series).copied().collect();
                    let counted = (one.profiles + other.profiles, one.samples + other.samples);
                    format!("{series:?} {counted:?}").into_bytes()
                }
                partial => packed(&partial),
            });
        }
    }
    all
}

#[test]
fn heads_and_the_blocks_that_they_become_answer_alike() {
    simulate(async {
        let begin = now();
        let world = World::new().await;
        assert!(world.push("acme", uploads(begin)).await.iter().all(Result::is_ok));
        let of_heads = answers(&world, begin).await;
        let span = ProfileSelection { requests: Some(SpanFilter::spans([3])), ..ProfileSelection::default() };
        let ask = ProfileQuery {
            selection: span,
            what: QueryKind::Tree(StackFilter::default()),
            ..ProfileQuery::default()
        };
        let sources = sources(&world).await;
        let PartialResult::Tree(tree) = run_all(&ask, sources.iter().map(AsRef::as_ref)).unwrap() else {
            panic!("no tree")
        };
        assert_eq!(tree.total(), (0..8).map(|number| 30 + number + 300).sum::<i64>());
        world.cut().await;
        assert_eq!((world.blocks().await, answers(&world, begin).await == of_heads), (1, true));

        let mixed = World::new().await;
        let mut uploads = uploads(begin);
        let later = uploads.split_off(3);
        for part in [uploads, later] {
            assert_eq!(mixed.blocks().await, usize::from(part.len() == 5));
            assert!(mixed.push("acme", part).await.iter().all(Result::is_ok));
            if mixed.blocks().await == 0 {
                mixed.cut().await;
            }
        }
        assert!(answers(&mixed, begin).await == of_heads, "a block and a head");
    });
}

/// Between any two profiles, however it is read.
#[test]
fn reading_a_head_ends_when_whoever_asked_has_left() {
    simulate(async {
        let world = World::new().await;
        assert!(world.push("acme", uploads(now())).await.iter().all(Result::is_ok));
        let sources = sources(&world).await;
        let picked =
            |source: &dyn ProfileSource| (0..source.profiles().unwrap().len() as u32).collect::<Vec<_>>();
        let head = sources.iter().find(|source| picked(source.as_ref()).len() > 1).unwrap();
        let (all, has_left) = (picked(head.as_ref()), Arc::new(AtomicBool::new(false)));
        let head = head.with_cancellation(&has_left).unwrap();
        assert!(head.totals(&all).is_ok());
        for requests in [false, true] {
            has_left.store(false, Ordering::Relaxed);
            let mut read = 0;
            let mut leave = || {
                has_left.store(true, Ordering::Relaxed);
                read += 1;
            };
            let ended = match requests {
                false => head.visit_rows(&all, &mut |_, _, _| leave()),
                true => head.visit_span_rows(&all, &mut |_, _, _, _| leave()),
            };
            assert_eq!((ended, read), (Err(SourceError::Left), 1));
        }
        assert_eq!(head.totals(&all), Err(SourceError::Left));
        assert_eq!(head.profile_totals(), Err(SourceError::Left));
        has_left.store(false, Ordering::Relaxed);
        assert_eq!(head.profile_totals().unwrap().map(|totals| totals.len()), Some(all.len()));
    });
}
