//! Blocks of which a query reads some time ranges.

use athanor_query::{PartialOrigin, SourceId};

use super::*;

fn range(from: i64, to: i64) -> TimeRange {
    TimeRange { from: at(from), to: at(to) }
}

async fn query_ranges(
    gateway: &StoreGateway,
    ask: &ProfileQuery,
    ranges: &[TimeRange],
) -> (PartialResult, PartialOrigin) {
    let target = BlockTarget { ranges: ranges.to_vec(), ..BlockTarget::without_duplicates(block(1), true) };
    gateway.query_block(&BlockQuery::new(tenant(), ask.clone()), &target).await.unwrap()
}

#[tokio::test]
async fn ranges_of_target_replace_time_range_of_query() {
    let bucket = Bucket::new();
    let times = [10, 20, 30, 40, 50];
    bucket.put(block(1), &[("shop", profiles(0..3, &times, 5))]).await;
    let gateway = gateway(&bucket, &config());
    let counts = QueryKind::LabelValues(athanor_query::LabelValuesQuery {
        name: "pod".to_owned(),
        ..athanor_query::LabelValuesQuery::default()
    });
    let name_counts = QueryKind::LabelNameCounts { prefix: String::new() };
    for what in [QueryKind::Tree(StackFilter::default()), counts, name_counts] {
        let all = ask("{}", 0, 60, what.clone());
        let (seen, _) = query_ranges(&gateway, &all, &[range(5, 20), range(25, 41)]).await;
        let source = profiles(0..3, &[10, 30, 40], 5);
        assert_eq!(said(&seen), said(&expected(&all, &source)));
        let (seen, _) = query_ranges(&gateway, &all, &[range(15, 35)]).await;
        assert_eq!(said(&seen), said(&expected(&ask("{}", 15, 35, what), &profiles(0..3, &times, 5))));
    }
}

#[tokio::test]
async fn cost_of_several_ranges_counts_shared_bytes_once() {
    let bucket = Bucket::new();
    bucket.put(block(1), &[("shop", profiles(0..3, &[10, 20, 30], 5))]).await;
    let gateway = gateway(&bucket, &config());
    let sizes = ask("{}", 0, 60, QueryKind::Sizes);
    let cost = async |ranges: &[TimeRange]| match query_ranges(&gateway, &sizes, ranges).await.0 {
        PartialResult::Sizes(cost) => cost.blocks,
        other => panic!("{other:?}"),
    };
    let one = cost(&[range(5, 15)]).await;
    let both = cost(&[range(5, 15), range(25, 35)]).await;
    assert_eq!((both.sources, both.profiles, both.samples), (1, 2 * one.profiles, 2 * one.samples));
    assert_eq!((both.index_bytes, both.name_bytes), (one.index_bytes, one.name_bytes));
}

#[tokio::test]
async fn cached_result_of_range_serves_other_queries() {
    let bucket = Bucket::new();
    bucket.put(block(1), &[("shop", profiles(0..3, &[10, 20, 30], 5))]).await;
    let gateway = gateway(&bucket, &config());
    let (_, first) = query_ranges(&gateway, &tree("{}", 0, 60), &[range(15, 60)]).await;
    // The end of the range lies behind the block in both cases.
    let (_, second) = query_ranges(&gateway, &tree("{}", 15, 90), &[range(15, 90)]).await;
    assert_eq!((first, second), (PartialOrigin::Computed, PartialOrigin::Memory));
    let (_, whole) = query_ranges(&gateway, &tree("{}", 0, 60), &[range(0, 60)]).await;
    assert_eq!(whole, PartialOrigin::Computed);
}

#[tokio::test]
async fn ids_are_reported_once_for_all_ranges() {
    let bucket = Bucket::new();
    bucket.put(block(1), &[("shop", profiles(0..3, &[10, 20, 30, 40], 5))]).await;
    let gateway = gateway(&bucket, &config());
    let reported = async |tells: TimeRange| {
        let target = BlockTarget {
            ranges: vec![range(5, 20), range(25, 60)],
            tells: Some(tells),
            ..BlockTarget::without_duplicates(block(1), false)
        };
        let question = BlockQuery::new(tenant(), tree("{}", 0, 60));
        let (partial, ids) = gateway.query_block(&question, &target).await.unwrap().0.split_ids();
        assert_eq!(said(&partial), said(&expected(&tree("{}", 0, 60), &profiles(0..3, &[10, 30, 40], 5))));
        ids.by_source().get(&SourceId::Block(1)).map_or(0, Vec::len)
    };
    assert_eq!(reported(TimeRange::default()).await, 9);
    assert_eq!(reported(range(0, 35)).await, 6);
    assert_eq!(reported(range(35, 60)).await, 3, "the first range is before the reported one");
}
