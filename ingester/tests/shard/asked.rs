//! What is asked of heads is answered as by the blocks that they become, and by both together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use athanor_block::PartSource;
use athanor_catalog::Catalog;
use athanor_chassis::Compute;
use athanor_profile::tree::Tree;
use athanor_profile::upload::Upload;
use athanor_profile::{RequestFilter, Source, SourceError};
use athanor_query::{
    Ask, FrameFilter, FrameNames, GoPgo, Heat, Partial, Points, Selection, Size, StackFilter, Steps, Values,
    What, answer,
};

use crate::samples::{labelled, now, profile, upload};
use crate::world::{World, fetch, simulate, tenant};

/// Eight profiles with rows of several spans and traces, some split off by a label.
fn uploads(begin: i64) -> Vec<Upload> {
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

fn selections() -> Vec<Selection> {
    let requests = [RequestFilter::spans([2, 3]), RequestFilter::traces([8]), RequestFilter::spans([77])];
    let of_requests = requests.map(|requests| Selection { requests: Some(requests), ..Selection::default() });
    std::iter::once(Selection::default()).chain(of_requests).collect()
}

fn questions(begin: i64) -> Vec<What> {
    let steps = Steps { start: begin, step: 3_000, count: 3 };
    let included = FrameNames { names: vec!["work".to_owned()], regexes: vec!["^h".to_owned()] };
    let frames = FrameFilter::new(included, FrameNames::default()).unwrap();
    let stacks = StackFilter { call_site: vec!["main".to_owned()], frames };
    let group_by = vec!["endpoint".to_owned()];
    let points = Points { steps, group_by: group_by.clone(), exemplars: true, ..Points::default() };
    let heat = Heat { steps, group_by, spans: true, exemplars: true };
    vec![
        What::LabelValues(Values { name: "endpoint".to_owned(), ..Values::default() }),
        What::Tree(StackFilter::default()),
        What::Tree(stacks.clone()),
        What::Profile(stacks.clone(), Some(GoPgo { keep_locations: 1, aggregate_callees: true })),
        What::Points(Points { stacks, ..points.clone() }),
        What::Points(points),
        What::Heat(Heat { spans: false, ..heat.clone() }),
        What::Heat(heat),
        What::Sizes,
    ]
}

async fn sources(world: &World) -> Vec<Box<dyn Source>> {
    let tenant = tenant("acme");
    let listing = world.remains.catalog.listing(&tenant, i64::MIN, i64::MAX).await.unwrap();
    let mut sources: Vec<Box<dyn Source>> = Vec::new();
    for shard in &listing.shards {
        let views = world.ingester.views(shard.id, shard.watermark, &tenant).unwrap();
        sources.extend(views.into_iter().map(|view| Box::new(view) as Box<dyn Source>));
    }
    for block in &listing.blocks {
        let block = Arc::new(fetch(&world.remains.store, block).await);
        sources.push(Box::new(PartSource::new(block, "acme", Compute::inline()).unwrap()));
    }
    sources
}

/// All answers, as far as they must be equal.
async fn answers(world: &World, begin: i64) -> Vec<Vec<u8>> {
    let sources = sources(world).await;
    let packed = |partial: &Partial| partial.pack().unwrap().flatten().collect::<Vec<u8>>();
    let mut all = Vec::new();
    for selection in selections() {
        for what in questions(begin) {
            let ask = Ask { selection: selection.clone(), what, ..Ask::default() };
            all.push(match answer(&ask, sources.iter().map(AsRef::as_ref)).unwrap() {
                Partial::Profile(merged) => {
                    packed(&Partial::Tree(Tree::from_totals(&merged.dictionary, &merged.totals)))
                }
                Partial::Sizes(sizes) => {
                    let [one, other]: [&Size; 2] = [&sizes.heads, &sizes.blocks];
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
        let span = Selection { requests: Some(RequestFilter::spans([3])), ..Selection::default() };
        let ask = Ask { selection: span, what: What::Tree(StackFilter::default()), ..Ask::default() };
        let sources = sources(&world).await;
        let Partial::Tree(tree) = answer(&ask, sources.iter().map(AsRef::as_ref)).unwrap() else {
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
        let picked = |source: &dyn Source| (0..source.profiles().unwrap().len() as u32).collect::<Vec<_>>();
        let head = sources.iter().find(|source| picked(source.as_ref()).len() > 1).unwrap();
        let (all, has_left) = (picked(head.as_ref()), Arc::new(AtomicBool::new(false)));
        let head = head.until_left(&has_left).unwrap();
        assert!(head.totals(&all).is_ok());
        for requests in [false, true] {
            has_left.store(false, Ordering::Relaxed);
            let mut read = 0;
            let mut leave = || {
                has_left.store(true, Ordering::Relaxed);
                read += 1;
            };
            let ended = match requests {
                false => head.rows(&all, &mut |_, _, _| leave()),
                true => head.rows_of_requests(&all, &mut |_, _, _, _| leave()),
            };
            assert_eq!((ended, read), (Err(SourceError::Left), 1));
        }
        assert_eq!(head.totals(&all), Err(SourceError::Left));
    });
}
