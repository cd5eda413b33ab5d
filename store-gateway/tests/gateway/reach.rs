//! What a question reads of a block: the pages that it needs, and no others.

use std::collections::BTreeSet;

use athanor_profile::ProfileSource;
use athanor_profile::SpanFilter;
use athanor_query::{
    FrameFilter, FramePatterns, GoPgoOptions, GroupedTreesQuery, HeatmapQuery, LabelValuesQuery,
    ProfileListQuery, ProfileOrder, TimeGrid, TimeSeriesQuery,
};

use super::*;

/// One question of each kind.
fn questions() -> Vec<QueryKind> {
    let steps = TimeGrid { start: at(0), step: at(7), count: 20 };
    let group_by = vec!["pod".to_owned()];
    let names = FramePatterns { names: vec!["work-7".to_owned()], regexes: Vec::new() };
    let frames = FrameFilter::new(names, FramePatterns::default()).unwrap();
    let work = StackFilter { frames, ..StackFilter::default() };
    vec![
        QueryKind::ProfileTypes,
        QueryKind::LabelNames,
        QueryKind::LabelNameCounts { prefix: "p".to_owned() },
        QueryKind::LabelValues(LabelValuesQuery { name: "pod".to_owned(), ..LabelValuesQuery::default() }),
        QueryKind::Series(Vec::new()),
        QueryKind::Tree(StackFilter::default()),
        QueryKind::Tree(work.clone()),
        QueryKind::Profile(work.clone(), Some(GoPgoOptions::default())),
        QueryKind::Points(TimeSeriesQuery {
            steps,
            group_by: group_by.clone(),
            ..TimeSeriesQuery::default()
        }),
        QueryKind::Points(TimeSeriesQuery {
            steps,
            mean: true,
            exemplars: true,
            ..TimeSeriesQuery::default()
        }),
        QueryKind::Points(TimeSeriesQuery { steps, stacks: work.clone(), ..TimeSeriesQuery::default() }),
        QueryKind::Heat(HeatmapQuery {
            steps,
            group_by: group_by.clone(),
            exemplars: true,
            ..HeatmapQuery::default()
        }),
        QueryKind::Heat(HeatmapQuery { steps, spans: true, ..HeatmapQuery::default() }),
        QueryKind::OriginTree(StackFilter::default()),
        QueryKind::OriginTree(work.clone()),
        QueryKind::Trees(GroupedTreesQuery { group_by: group_by.clone(), ..GroupedTreesQuery::default() }),
        QueryKind::Trees(GroupedTreesQuery { group_by, stacks: work.clone() }),
        QueryKind::Profiles(ProfileListQuery {
            order: ProfileOrder::Heaviest,
            keep: 3,
            ..ProfileListQuery::default()
        }),
        QueryKind::Profiles(ProfileListQuery { order: ProfileOrder::Newest, keep: 3, stacks: work }),
    ]
}

/// Whatever is asked, what was fetched is enough, and the answer is the one of what the block was made of.
#[tokio::test]
async fn every_question_has_its_answer_though_little_is_read() {
    let bucket = Bucket::new();
    let times = [10, 20, 30, 40];
    let source = profiles(0..30, &times, 800);
    let tenants = [("other", profiles(0..9, &times, 500)), ("shop", profiles(0..30, &times, 800))];
    let meta = bucket.put(block(1), &tenants).await;
    assert!(meta.file("samples.parquet").unwrap().bytes > 5 * 65_536);
    for (selector, from, to) in [("{}", 0, 60), (r#"{pod="pod-17"}"#, 0, 60), (r#"{pod=~"pod-2."}"#, 15, 35)]
    {
        for what in questions() {
            let ask = ask(selector, from, to, what);
            // A gateway that knows nothing; then one that knows the parts.
            let gateway =
                gateway(&bucket, &StoreGatewayConfig { partial_cache_bytes: ByteSize::bytes(0), ..config() });
            for whole in [from == 0, false] {
                let seen = of_block(&gateway, &ask, 1, whole).await;
                assert_eq!(said(&seen), said(&expected(&ask, &source)), "{selector} {:?}", ask.what);
            }
        }
    }
}

#[tokio::test]
async fn one_profile_and_one_span_are_found() {
    let bucket = Bucket::new();
    let source = profiles(0..30, &[10, 20, 30, 40], 800);
    bucket.put(block(1), &[("shop", profiles(0..30, &[10, 20, 30, 40], 800))]).await;
    let id = source.profiles().unwrap()[17].id;
    let mut one = tree("{}", 0, 60);
    one.selection.profiles = BTreeSet::from([id]);
    let mut span = tree("{}", 0, 60);
    span.selection.requests = Some(SpanFilter::Spans(vec![7]));
    for ask in [one, span] {
        let gateway = gateway(&bucket, &config());
        assert_eq!(said(&of_block(&gateway, &ask, 1, true).await), said(&expected(&ask, &source)));
    }
}

/// What a question would read, and what it then reads, each by a gateway that knows nothing.
async fn told_and_read(bucket: &Bucket, asked: &ProfileQuery, whole: bool) -> (u64, u64) {
    let sizes = ProfileQuery { what: QueryKind::Sizes, ..asked.clone() };
    let PartialResult::Sizes(sizes) = of_block(&gateway(bucket, &config()), &sizes, 1, whole).await else {
        panic!("no sizes")
    };
    bucket.read();
    of_block(&gateway(bucket, &config()), asked, 1, whole).await;
    (sizes.blocks.bytes(), bucket.read().1)
}

/// However much of a block is meant, and whoever else has a part of it.
#[tokio::test]
async fn what_is_told_before_is_what_is_then_read() {
    let times: Vec<i64> = (1..=20).map(|time| 10 * time).collect();
    let shop = || profiles(0..150, &times, 1_500);
    let all = [("{}", 0, 1_000), (r#"{pod="pod-117"}"#, 0, 1_000), (r#"{pod=~"pod-1.*"}"#, 0, 1_000)];
    let part = [("{}", 0, 105), (r#"{pod="pod-117"}"#, 0, 105), (r#"{pod=~"pod-.7"}"#, 195, 205)];
    let none = [(r#"{pod="gone"}"#, 0, 1_000)];
    let alone = vec![("shop", shop())];
    let shared =
        vec![("other", profiles(0..70, &times, 900)), ("shop", shop()), ("zoo", profiles(0..9, &times, 99))];
    for (kind, tenants) in [("alone", alone), ("shared", shared)] {
        let bucket = Bucket::new();
        let bytes = bucket.put(block(1), &tenants).await.bytes();
        for (selector, from, to) in all.into_iter().chain(part).chain(none) {
            let (told, read) = told_and_read(&bucket, &tree(selector, from, to), to == 1_000).await;
            println!("{kind} {selector} {from}..{to}: told {told}, read {read} of {bytes}");
            assert!(
                told * 5 >= read * 4 && told * 5 <= read * 6,
                "{kind} {selector}: told {told}, read {read}"
            );
        }
    }
}

/// A month of days, each of a hundred and fifty pods.
#[tokio::test]
async fn one_pod_of_a_month_reads_a_hundredth_of_its_bytes() {
    let bucket = Bucket::new();
    let times: Vec<i64> = (1..=40).map(|time| 10 * time).collect();
    let day = profiles(0..150, &times, 1_500);
    let ask = tree(r#"{pod="pod-117"}"#, 0, 1_000);
    let expected = said(&expected(&ask, &day));
    let bytes = bucket.put(block(1), &[("shop", day)]).await.bytes();
    for number in 2..=30 {
        bucket.link(block(1), block(number)).await;
    }
    let gateway = gateway(&bucket, &config());
    bucket.read();
    for number in 1..=30 {
        assert_eq!(said(&of_block(&gateway, &ask, number, true).await), expected);
    }
    let reads = bucket.reads();
    let (requests, read) = bucket.read();
    println!(
        "{requests} requests for {read} of {} bytes; of one day: {:?}",
        30 * bytes,
        &reads[..reads.len() / 30]
    );
    assert!(read * 100 <= 30 * bytes, "{read} of {} bytes were read", 30 * bytes);
    assert!(requests <= 30 * 10, "{requests} requests");
}

#[tokio::test]
async fn a_block_opens_with_three_requests_and_its_parts_stay() {
    let bucket = Bucket::new();
    let tenants = [("other", profiles(0..9, &[10, 20], 500)), ("shop", profiles(0..30, &[10, 20, 30], 800))];
    bucket.put(block(1), &tenants).await;
    let gateway = gateway(&bucket, &config());
    of_block(&gateway, &ask("{}", 0, 60, QueryKind::LabelNames), 1, true).await;
    let mut files: Vec<String> = bucket.reads().into_iter().map(|(file, _)| file).collect();
    // The others come side by side.
    files[1..].sort();
    assert_eq!(files, ["meta.json", "profiles.parquet", "series.parquet"]);
    bucket.read();
    // The graph needs rows and names beside; what was read stays.
    of_block(&gateway, &tree("{}", 0, 60), 1, true).await;
    let mut files: Vec<String> = bucket.reads().into_iter().map(|(file, _)| file).collect();
    files.sort();
    // There are no mappings.
    let wanted = ["functions", "locations", "rollup", "stacks"];
    assert_eq!(files, wanted.map(|file| format!("{file}.parquet")));
    bucket.read();
    of_block(&gateway, &ask("{}", 0, 60, QueryKind::Series(Vec::new())), 1, true).await;
    of_block(&gateway, &tree(r#"{pod="pod-7"}"#, 0, 60), 1, true).await;
    assert_eq!(bucket.read(), (0, 0));
}
