//! Encoded queries and results decode to equal values, and other bytes are rejected.

use std::collections::BTreeSet;

use athanor_profile::analysis::origin_table::OriginTable;
use athanor_profile::analysis::transform::{FramePattern, StackTransform, StackTransforms, TransformAction};
use athanor_profile::call_tree::tree::{FrameGrouping, Tree, TreeBuilder};
use athanor_profile::generate::arbitrary_profile;
use athanor_profile::store_interface::dictionary_delta::{self, DictionaryMark};
use athanor_profile::store_interface::series::BucketCounts;
use athanor_profile::{Labels, ProfileType, SpanFilter, StackCopier, ValueType};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;

use super::*;
use crate::request::profile_query::{ProfileListQuery, ProfileOrder, RequiredResolution};
use crate::result::profile_list::{ProfileList, ProfileListEntry};
use crate::{
    FrameFilter, FramePatterns, GoPgoOptions, GroupedTreesQuery, HeatmapQuery, HeatmapValue, HeatmapValueKey,
    LabelValueCounts, LabelValuesQuery, MergedProfile, OriginTree, PartialResult, PartialWithIds,
    ProfileCount, ProfileExemplar, ProfileIdsBySource, ProfilePosition, ProfileQuery, ProfileSelection,
    QueryCost, QueryKind, ResultLimits, SamplesQuery, SourceCost, SourceId, StackFilter, TimeGrid, TimeRange,
    TimeSeriesPoint, TimeSeriesQuery,
};

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[ab]{0,2}", "\\PC{0,5}"]
}

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![
        any::<i64>(),
        -9..9i64,
        (-9..9i64).prop_map(|n| n * 10_000_000),
        Just(i64::MIN),
        Just(i64::MAX)
    ]
}

fn profile_type() -> impl Strategy<Value = ProfileType> {
    [text(), text(), text(), text(), text()].prop_map(|[name, kind, unit, period_kind, period_unit]| {
        let value = ValueType::new(&kind, &unit);
        ProfileType { name, value, period: ValueType::new(&period_kind, &period_unit) }
    })
}

fn labels() -> impl Strategy<Value = Labels> {
    vec((text(), text()), 0..4).prop_map(Labels::new)
}

fn tree() -> impl Strategy<Value = Tree> {
    (vec((vec(text(), 0..4), number()), 0..12), 0..20usize).prop_map(|(stacks, most)| {
        let mut builder = TreeBuilder::default();
        for (path, value) in stacks {
            // All values add up.
            let value = value / 16;
            let node = path.iter().fold(TreeBuilder::ROOT_NODE, |caller, name| {
                let name = builder.name(name);
                builder.child(caller, name)
            });
            builder.add(node, value);
        }
        let mut tree = builder.finish();
        tree.truncate(most);
        tree
    })
}

/// Stacks with every corner of what may be known of a location.
fn merged() -> impl Strategy<Value = MergedProfile> {
    (vec(0..40u64, 0..3), any::<u64>()).prop_map(|(seeds, profiles)| {
        let mut merged = MergedProfile { profiles, ..MergedProfile::default() };
        for profile in seeds.into_iter().map(arbitrary_profile) {
            let totals = profile.totals_by_stack(0).into_iter().map(|total| total >> 20);
            let mut copier = StackCopier::new(&profile.dictionary);
            (0..)
                .zip(totals)
                .for_each(|(stack, total)| merged.add_foreign_stack(&mut copier, stack, total).unwrap());
        }
        merged
    })
}

fn profile() -> impl Strategy<Value = u128> {
    any::<u64>().prop_map(|half| u128::from(half) << 64)
}

fn cell() -> impl Strategy<Value = TimeSeriesPoint> {
    let exemplar = (number(), number(), any::<u128>(), labels());
    let exemplar = exemplar.prop_map(|(value, time, id, labels)| ProfileExemplar { value, time, id, labels });
    let counts = prop::option::of((any::<u64>(), any::<u64>())).prop_map(|counts| {
        counts.map_or_else(BucketCounts::default, |(records, profiles)| BucketCounts { records, profiles })
    });
    (number(), btree_set(profile(), 0..3), counts, prop::option::of(exemplar)).prop_map(
        |(sum, profiles, downsampled, exemplar)| TimeSeriesPoint { sum, profiles, downsampled, exemplar },
    )
}

fn spot() -> impl Strategy<Value = (HeatmapValueKey, HeatmapValue)> {
    let key = (place(), profile(), any::<u64>());
    let key = key.prop_map(|(column, profile, span)| HeatmapValueKey { column, profile, span });
    let spot = (number(), number(), any::<u128>(), prop::option::of(labels()));
    (key, spot.prop_map(|(value, time, trace, labels)| HeatmapValue { value, time, trace, labels }))
}

fn frames() -> impl Strategy<Value = FrameFilter> {
    let side = || {
        (vec(text(), 0..3), vec("[a-z.*]{0,3}", 0..3))
            .prop_map(|(names, regexes)| FramePatterns { names, regexes })
    };
    (side(), side())
        .prop_filter_map("an expression", |(included, excluded)| FrameFilter::new(included, excluded).ok())
}

fn transforms() -> impl Strategy<Value = StackTransforms> {
    let pattern = prop_oneof![
        Just(FramePattern::AnyFrame),
        text().prop_map(FramePattern::ExactName),
        "[a-z.*]{0,3}".prop_map(FramePattern::Regex),
    ];
    let action = prop::sample::select(vec![
        TransformAction::Focus,
        TransformAction::Ignore,
        TransformAction::Hide,
        TransformAction::Show,
        TransformAction::ShowFrom,
        TransformAction::CollapseRecursion,
        TransformAction::CollapseBelow,
    ]);
    let transform = (action, pattern).prop_map(|(action, pattern)| StackTransform { action, pattern });
    vec(transform, 0..3).prop_filter_map("valid transforms", |list| StackTransforms::new(list).ok())
}

fn stacks() -> impl Strategy<Value = StackFilter> {
    (vec(text(), 0..4), frames(), transforms()).prop_map(|(call_site, frames, transforms)| StackFilter {
        call_site,
        frames,
        transforms,
    })
}

fn size() -> impl Strategy<Value = SourceCost> {
    (btree_set(any::<u128>(), 0..4), any::<[u64; 6]>())
        .prop_map(|(series, numbers)| SourceCost::from_numbers(series, numbers))
}

fn requests() -> impl Strategy<Value = SpanFilter> {
    prop_oneof![
        vec(any::<u64>(), 0..4).prop_map(SpanFilter::spans),
        vec(any::<u128>(), 0..4).prop_map(SpanFilter::traces),
    ]
}

fn place() -> impl Strategy<Value = u64> {
    prop_oneof![0..9u64, any::<u64>()]
}

fn order() -> impl Strategy<Value = ProfileOrder> {
    prop::sample::select(vec![ProfileOrder::Newest, ProfileOrder::Heaviest])
}

/// List of profiles with its query.
fn profiles() -> impl Strategy<Value = (ProfileListQuery, ProfileList)> {
    let of = vec(labels(), 1..4);
    let row = (any::<prop::sample::Index>(), [number(), number(), number(), number()], any::<u128>());
    (order(), 0..9u64, of, vec(row, 0..12)).prop_map(|(order, keep, labels, rows)| {
        let asked = ProfileListQuery { order, keep, ..ProfileListQuery::default() };
        let mut list = ProfileList::empty(&asked);
        for (labels_of, [time, duration, period, total], id) in rows {
            let labels = labels_of.get(&labels).clone();
            list.count_profile(period);
            list.insert_entry(ProfileListEntry { labels, time, duration, period, total, id });
        }
        list.sort_and_truncate();
        (asked, list)
    })
}

fn what() -> impl Strategy<Value = QueryKind> {
    let list = || vec(text(), 0..4);
    let steps = || {
        (any::<[i64; 2]>(), any::<u64>()).prop_map(|([start, step], count)| TimeGrid { start, step, count })
    };
    let pgo = any::<(u32, bool)>()
        .prop_map(|(keep_locations, aggregate_callees)| GoPgoOptions { keep_locations, aggregate_callees });
    let values = (text(), text(), 0..9u64);
    prop_oneof![
        Just(QueryKind::ProfileTypes),
        Just(QueryKind::LabelNames),
        Just(QueryKind::Sizes),
        Just(QueryKind::Ids),
        vec(text(), 0..3).prop_map(QueryKind::Counts),
        text().prop_map(|prefix| QueryKind::LabelNameCounts { prefix }),
        values.prop_map(|(name, prefix, most)| QueryKind::LabelValues(LabelValuesQuery {
            name,
            prefix,
            most
        })),
        list().prop_map(QueryKind::Series),
        stacks().prop_map(QueryKind::Tree),
        stacks().prop_map(QueryKind::OriginTree),
        (stacks(), prop::option::of(pgo)).prop_map(|(stacks, pgo)| QueryKind::Profile(stacks, pgo)),
        (steps(), list(), stacks(), any::<[bool; 2]>()).prop_map(
            |(steps, group_by, stacks, [mean, exemplars])| {
                QueryKind::Points(TimeSeriesQuery { steps, group_by, stacks, mean, exemplars })
            }
        ),
        (steps(), list(), any::<[bool; 2]>()).prop_map(|(steps, group_by, [spans, exemplars])| {
            QueryKind::Heat(HeatmapQuery { steps, group_by, spans, exemplars })
        }),
        (list(), stacks())
            .prop_map(|(group_by, stacks)| QueryKind::Trees(GroupedTreesQuery { group_by, stacks })),
        (order(), any::<u64>(), stacks())
            .prop_map(|(order, keep, stacks)| QueryKind::Profiles(ProfileListQuery { order, keep, stacks })),
        (stacks(), any::<(i64, u128)>(), any::<u64>(), any::<bool>()).prop_map(
            |(stacks, (time, id), max_rows, spans)| {
                let first = ProfilePosition { time, id };
                QueryKind::Samples(SamplesQuery { stacks, first, max_rows, spans })
            }
        ),
    ]
}

fn query() -> impl Strategy<Value = ProfileQuery> {
    let matcher = ("[a-z]{1,3}", prop::sample::select(vec!["=", "!=", "=~", "!~"]), "[a-zäö.*|]{0,4}")
        .prop_map(|(name, operator, value)| format!("{name}{operator}{value:?}"));
    let selector = vec(matcher, 0..5).prop_filter_map("a regular expression", |matchers| {
        format!("{{{}}}", matchers.join(",")).parse().ok()
    });
    let some = || btree_set(any::<u128>(), 0..4);
    let picked = (some(), prop::option::of(requests()), some(), any::<Option<bool>>());
    let selection = (selector, prop::option::of(profile_type()), any::<[i64; 2]>(), picked);
    (selection, what(), any::<[usize; 4]>()).prop_map(
        |((selector, profile_type, [from, to], (profiles, requests, without, single)), what, bounds)| {
            let [entries, nodes, stacks, points] = bounds;
            let time = TimeRange { from, to };
            let without = without.into();
            let selection = ProfileSelection {
                selector,
                profile_type,
                time,
                profiles,
                requests,
                without,
                resolution: single.map(|single_profiles| RequiredResolution { single_profiles, steps: None }),
            };
            ProfileQuery { selection, what, bounds: ResultLimits { entries, nodes, stacks, points } }
        },
    )
}

/// Query kind with a result of it.
fn query_with_result() -> impl Strategy<Value = (QueryKind, PartialResult)> {
    let types = btree_set(profile_type(), 0..5)
        .prop_map(|set| (QueryKind::ProfileTypes, PartialResult::ProfileTypes(set)));
    let texts = btree_set(text(), 0..9).prop_map(|set| (QueryKind::LabelNames, PartialResult::Texts(set)));
    let series =
        btree_set(labels(), 0..9).prop_map(|set| (QueryKind::Series(Vec::new()), PartialResult::Series(set)));
    let trees = tree().prop_map(|tree| (QueryKind::Tree(StackFilter::default()), PartialResult::Tree(tree)));
    let profiles = merged().prop_map(|one| {
        (QueryKind::Profile(StackFilter::default(), None), PartialResult::Profile(Box::new(one)))
    });
    let origins = (tree(), merged(), any::<u64>()).prop_map(|(tree, from, profiles)| {
        let origins = OriginTable::from_totals(&from.dictionary, &from.totals, FrameGrouping::Function);
        let merged = OriginTree { tree, origins, profiles };
        (QueryKind::OriginTree(StackFilter::default()), PartialResult::OriginTree(Box::new(merged)))
    });
    let values = (btree_map(text(), any::<u64>(), 0..9), 0..12u64).prop_map(|(counts, most)| {
        let asked = LabelValuesQuery { most, ..LabelValuesQuery::default() };
        let partial = PartialResult::Values(LabelValueCounts::new(&asked, counts));
        (QueryKind::LabelValues(asked), partial)
    });
    let name_counts = btree_map(text(), any::<u64>(), 0..9).prop_map(|counts| {
        let partial = PartialResult::Values(LabelValueCounts::new(&LabelValuesQuery::default(), counts));
        (QueryKind::LabelNameCounts { prefix: String::new() }, partial)
    });
    let spots = vec(spot(), 0..5).prop_map(|spots| spots.into_iter().collect());
    let heat = btree_map(labels(), spots, 0..4)
        .prop_map(|series| (QueryKind::Heat(HeatmapQuery::default()), PartialResult::Heat(series)));
    let points = btree_map(labels(), btree_map(place(), cell(), 0..4), 0..4)
        .prop_map(|series| (QueryKind::Points(TimeSeriesQuery::default()), PartialResult::Points(series)));
    let sizes = (size(), size()).prop_map(|(heads, blocks)| {
        (QueryKind::Sizes, PartialResult::Sizes(Box::new(QueryCost { heads, blocks })))
    });
    let groups = btree_map(labels(), tree(), 0..4)
        .prop_map(|trees| (QueryKind::Trees(GroupedTreesQuery::default()), PartialResult::Trees(trees)));
    let listed = self::profiles()
        .prop_map(|(asked, list)| (QueryKind::Profiles(asked), PartialResult::Profiles(list)));
    let ids = vec(any::<u128>(), 0..9).prop_map(|ids| (QueryKind::Ids, PartialResult::Ids(ids)));
    let count = any::<[u64; 3]>().prop_map(|[raw, records, profiles]| ProfileCount {
        raw,
        downsampled: BucketCounts { records, profiles },
    });
    let counts = btree_map(labels(), count, 0..4)
        .prop_map(|counts| (QueryKind::Counts(Vec::new()), PartialResult::Counts(counts)));
    let results = prop_oneof![
        types,
        texts,
        values,
        name_counts,
        series,
        trees,
        profiles,
        origins,
        points,
        heat,
        sizes,
        groups,
        listed
    ];
    prop_oneof![2 => results.clone(), 1 => (results, ids_by_source()).prop_map(|((what, partial), ids)| {
        (what, PartialResult::WithIds(Box::new(PartialWithIds { partial, ids })))
    }), 1 => ids, 1 => counts]
}

fn ids_by_source() -> impl Strategy<Value = ProfileIdsBySource> {
    let place = prop_oneof![
        any::<(u32, u32)>().prop_map(|(shard, n)| SourceId::Head { shard, n }),
        any::<u128>().prop_map(SourceId::Block),
    ];
    btree_map(place, vec(any::<u128>(), 0..5), 0..4).prop_map(|all| all.into_iter().collect())
}

fn of(what: QueryKind) -> ProfileQuery {
    ProfileQuery { what, ..ProfileQuery::default() }
}

fn packed(partial: &PartialResult) -> Vec<u8> {
    partial.pack().unwrap().flatten().collect()
}

fn unpack(bytes: &[u8], query: &ProfileQuery) -> Result<PartialResult, WireError> {
    let mut received = PartialChunkBuffer::default();
    bytes.chunks(MAX_CHUNK_BYTES).try_for_each(|piece| received.push(piece))?;
    received.unpack(query)
}

fn dictionary(merged: &MergedProfile) -> Vec<u8> {
    let mut out = Vec::new();
    dictionary_delta::write(&merged.dictionary, DictionaryMark::default(), &mut out);
    out
}

fn is_same(one: &PartialResult, other: &PartialResult) -> bool {
    match (one, other) {
        (PartialResult::ProfileTypes(one), PartialResult::ProfileTypes(other)) => one == other,
        (PartialResult::Texts(one), PartialResult::Texts(other)) => one == other,
        (PartialResult::Values(one), PartialResult::Values(other)) => one.counts() == other.counts(),
        (PartialResult::Heat(one), PartialResult::Heat(other)) => one == other,
        (PartialResult::Sizes(one), PartialResult::Sizes(other)) => one == other,
        (PartialResult::Series(one), PartialResult::Series(other)) => one == other,
        (PartialResult::Tree(one), PartialResult::Tree(other)) => one == other,
        (PartialResult::OriginTree(one), PartialResult::OriginTree(other)) => one == other,
        (PartialResult::Points(one), PartialResult::Points(other)) => one == other,
        (PartialResult::Trees(one), PartialResult::Trees(other)) => one == other,
        (PartialResult::Profiles(one), PartialResult::Profiles(other)) => {
            (one.entries(), one.profiles, one.periods) == (other.entries(), other.profiles, other.periods)
        }
        (PartialResult::Ids(one), PartialResult::Ids(other)) => one == other,
        (PartialResult::Counts(one), PartialResult::Counts(other)) => one == other,
        (PartialResult::WithIds(one), PartialResult::WithIds(other)) => {
            one.ids == other.ids && is_same(&one.partial, &other.partial)
        }
        (PartialResult::Profile(one), PartialResult::Profile(other)) => {
            (&one.totals, one.profiles) == (&other.totals, other.profiles)
                && dictionary(one) == dictionary(other)
        }
        _ => false,
    }
}

proptest! {
    #[test]
    fn decoded_query_equals_encoded_query(query in query()) {
        let packed = query.pack().unwrap();
        let read = ProfileQuery::unpack(&packed).unwrap();
        prop_assert_eq!(read.selection.selector.to_string(), query.selection.selector.to_string());
        prop_assert_eq!(&read.selection.profile_type, &query.selection.profile_type);
        prop_assert_eq!(read.selection.time, query.selection.time);
        prop_assert_eq!(&read.selection.profiles, &query.selection.profiles);
        prop_assert_eq!(&read.selection.requests, &query.selection.requests);
        prop_assert_eq!(&read.selection.without, &query.selection.without);
        prop_assert_eq!(&read.selection.resolution, &query.selection.resolution);
        prop_assert_eq!(&read.what, &query.what);
        prop_assert_eq!(read.bounds, query.bounds);
        prop_assert_eq!(read.pack().unwrap(), packed.clone());
        for cut in 0..packed.len() {
            prop_assert!(ProfileQuery::unpack(&packed[..cut]).is_err());
        }
    }

    #[test]
    fn decoded_result_equals_encoded_result((what, partial) in query_with_result()) {
        let (query, bytes) = (of(what), packed(&partial));
        let read = unpack(&bytes, &query).unwrap();
        prop_assert!(is_same(&read, &partial), "{read:?} is not {partial:?}");
        prop_assert_eq!(packed(&read).len(), bytes.len());
        // The result does not depend on the chunk size.
        let mut received = PartialChunkBuffer::default();
        for byte in bytes.chunks(3) {
            received.push(byte).unwrap();
        }
        prop_assert_eq!(received.declared_size(), Some(partial.bytes()));
        prop_assert!(is_same(&received.unpack(&query).unwrap(), &partial));
        for cut in 0..bytes.len() {
            prop_assert!(unpack(&bytes[..cut], &query).is_err());
        }
    }

    #[test]
    fn corrupt_result_is_rejected_or_mergeable(
        (what, partial) in query_with_result(), place in any::<prop::sample::Index>(), byte: u8,
    ) {
        let (query, mut bytes) = (of(what), packed(&partial));
        let place = place.index(bytes.len());
        bytes[place] = byte;
        if let Ok(read) = unpack(&bytes, &query) {
            // Such a result merges and encodes like any other.
            match read.merge(partial, &query.bounds) {
                Ok(merged) => prop_assert!(unpack(&packed(&merged), &query).is_ok()),
                Err(error) => prop_assert!(matches!(error, ProfileQueryError::SumTooLarge { .. }), "{error}"),
            }
        }
    }

    #[test]
    fn result_of_another_query_kind_is_rejected((what, partial) in query_with_result(), other in what()) {
        let is_other = !is_same(&PartialResult::empty(&what), &PartialResult::empty(&other));
        prop_assert!(!is_other || unpack(&packed(&partial), &of(other)).is_err());
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(kind in 0..24u8, what in what(), bytes in vec(prop_oneof![0..5u8, any::<u8>()], 0..60)) {
        let result = [&[WIRE_FORMAT_VERSION, 0xff, 0xff, 0x0f, kind][..], &bytes].concat();
        let _ = unpack(&result, &of(what));
        let _ = ProfileQuery::unpack(&[&[WIRE_FORMAT_VERSION][..], &bytes].concat());
    }
}

#[test]
fn result_beyond_its_declared_size_is_rejected() {
    let long = "x".repeat(100_000);
    let names = (0..100).map(|name| format!("n{name}"));
    let series = names.map(|name| Labels::new([(name, long.clone())]));
    let partial = PartialResult::Series(series.collect::<BTreeSet<Labels>>());
    let (query, bytes) = (of(QueryKind::Series(Vec::new())), packed(&partial));
    assert!(bytes.len() < 110_000 && partial.bytes() > 10_000_000);
    assert!(unpack(&bytes, &query).is_ok());
    let mut received = PartialChunkBuffer::default();
    received.push(&bytes).unwrap();
    let declared_bytes = received.declared_size().unwrap();
    let mut understated = vec![WIRE_FORMAT_VERSION];
    athanor_profile::encoding::codec::put_varint(&mut understated, declared_bytes as u64 / 2);
    understated.extend_from_slice(&bytes[understated.len()..]);
    let refused = unpack(&understated, &query).unwrap_err().to_string();
    assert!(refused.contains("exceeds its declared size"), "{refused}");
}

#[test]
fn oversized_message_or_other_version_is_rejected() {
    let stacks =
        StackFilter { call_site: vec!["x".repeat(MAX_ENCODED_QUERY_BYTES)], ..StackFilter::default() };
    let refused = of(QueryKind::Tree(stacks)).pack().unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Invalid);
    assert!(refused.to_string().contains("the limit is 4194304"), "{refused}");
    let refused = PartialResult::Texts(["x".repeat(MAX_ENCODED_PARTIAL_BYTES)].into()).pack().unwrap_err();
    assert!(refused.to_string().contains("the limit is 268435456"), "{refused}");

    let mut received = PartialChunkBuffer::default();
    assert!(received.is_empty() && received.declared_size().is_none());
    let refused = received.push(&vec![WIRE_FORMAT_VERSION; MAX_CHUNK_BYTES + 1]).unwrap_err();
    assert!(refused.to_string().starts_with("encoded chunk of a result has 1048577 bytes"), "{refused}");
    for _ in 0..MAX_ENCODED_PARTIAL_BYTES / MAX_CHUNK_BYTES {
        received.push(&vec![WIRE_FORMAT_VERSION; MAX_CHUNK_BYTES]).unwrap();
    }
    assert!(received.push(&[0]).is_err());

    let refused = PartialChunkBuffer::default().push(&[9]).unwrap_err();
    assert_eq!(refused, WireError::Version { what: "result", seen: 9 });
    assert_eq!(refused.code(), ErrorCode::Unimplemented);
    assert_eq!(ProfileQuery::unpack(&[9]).unwrap_err().code(), ErrorCode::Unimplemented);
    assert_eq!(ProfileQuery::unpack(&[]).unwrap_err().code(), ErrorCode::Internal);
}

#[test]
fn result_over_query_limits_is_rejected() {
    let texts = PartialResult::Texts(["a", "b"].map(str::to_owned).into());
    let bounds = ResultLimits { entries: 1, ..ResultLimits::default() };
    let query = ProfileQuery { what: QueryKind::LabelNames, bounds, ..ProfileQuery::default() };
    let refused = unpack(&packed(&texts), &query).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Invalid);
    assert!(refused.to_string().starts_with("result has more than 1 label names"), "{refused}");
}

#[test]
fn chunks_have_equal_size_except_the_last() {
    let texts = (0..5).map(|text| format!("{text}{}", "x".repeat(500_000)));
    let pieces = PartialResult::Texts(texts.collect()).pack().unwrap();
    let whole = pieces.remaining_bytes();
    let sizes: Vec<usize> = pieces.map(|piece| piece.len()).collect();
    assert_eq!(sizes, [MAX_CHUNK_BYTES, MAX_CHUNK_BYTES, whole - 2 * MAX_CHUNK_BYTES]);
}

#[test]
fn encoded_result_has_no_spare_capacity() {
    for count in [0, 1, 100, 3_000, 33_333] {
        let texts = (0..count).map(|number| format!("label-{number}"));
        let bytes = PartialResult::Texts(texts.collect()).pack().unwrap().into_bytes();
        let length = bytes.len();
        assert_eq!(Vec::from(bytes).capacity(), length);
    }
}
