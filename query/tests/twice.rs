//! Profiles that lie in several places count once, whatever is asked.

use std::collections::BTreeSet;

use athanor_profile::ProfileSource;
use athanor_profile::analysis::frame_origins::FrameOrigins;
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::store_interface::source::MemorySource;
use athanor_query::{
    DedupSource, DuplicateExclusions, GoPgoOptions, GroupedTreesQuery, HeatmapQuery, LabelValuesQuery,
    PartialResult, ProfileListQuery, ProfileOrder, ProfileQuery, QueryKind, SourceId, StackFilter,
    TimeSeriesQuery, run_all,
};
use proptest::prelude::*;

#[path = "model/steps.rs"]
mod steps;
#[path = "model/uploads.rs"]
mod uploads;

use steps::steps;
use uploads::{SelectionCase, Upload, question, selection_case, sources, upload};

/// Four places: the first two are heads of one shard.
const PLACES: [SourceId; 4] = [
    SourceId::Head { shard: 3, n: 0 },
    SourceId::Head { shard: 3, n: 1 },
    SourceId::Block(1),
    SourceId::Block(2),
];

/// The places where each upload lies, besides the one that it names.
fn doubled(uploads: &[Upload], further: &[BTreeSet<usize>]) -> Vec<MemorySource> {
    let mut all = sources(uploads);
    for (place, (upload, further)) in uploads.iter().zip(further).enumerate() {
        for &source in further.iter().filter(|source| **source != usize::from(upload.source)) {
            all[source].add(&upload.labels(), &upload.profile(), place as u128);
        }
    }
    all
}

fn whats(case: &SelectionCase, points: TimeSeriesQuery, heat: HeatmapQuery) -> Vec<QueryKind> {
    let pgo = GoPgoOptions { keep_locations: 2, aggregate_callees: false };
    let values = LabelValuesQuery { name: "pod".to_owned(), ..LabelValuesQuery::default() };
    let listed = ProfileListQuery { order: ProfileOrder::Newest, keep: 3, stacks: case.stacks() };
    let grouped = GroupedTreesQuery { group_by: vec!["pod".to_owned()], stacks: case.stacks() };
    vec![
        QueryKind::Tree(case.stacks()),
        QueryKind::Profile(case.stacks(), None),
        QueryKind::OriginTree(case.stacks()),
        QueryKind::Profile(StackFilter::default(), Some(pgo)),
        QueryKind::Points(TimeSeriesQuery { stacks: case.stacks(), mean: true, ..points.clone() }),
        QueryKind::Points(TimeSeriesQuery { exemplars: true, ..points }),
        QueryKind::Heat(HeatmapQuery { spans: true, ..heat.clone() }),
        QueryKind::Heat(heat),
        QueryKind::LabelValues(values),
        QueryKind::LabelNameCounts { prefix: String::new() },
        QueryKind::Trees(grouped),
        QueryKind::Profiles(ProfileListQuery { order: ProfileOrder::Heaviest, ..listed.clone() }),
        QueryKind::Profiles(listed),
    ]
}

/// What of an answer does not depend on the order in which it was merged.
fn shown(partial: PartialResult) -> String {
    match partial {
        PartialResult::Profile(merged) => {
            let tree = Tree::from_totals(&merged.dictionary, &merged.totals);
            format!("{} {:?}", merged.profiles, PartialResult::Tree(tree))
        }
        PartialResult::OriginTree(merged) => {
            let origins = FrameOrigins::from_table(merged.origins);
            let names = merged.tree.names().iter().map(|name| origins.get(name));
            format!("{} {:?} {:?}", merged.profiles, merged.tree, names.collect::<Vec<_>>())
        }
        PartialResult::Values(counts) => format!("{:?}", counts.counts()),
        PartialResult::Profiles(list) => format!("{} {:?} {:?}", list.profiles, list.periods, list.entries()),
        other => format!("{other:?}"),
    }
}

fn told(ask: &ProfileQuery, sources: &[MemorySource], doubles: &DuplicateExclusions) -> PartialResult {
    let nothing = BTreeSet::new();
    let lying = sources.iter().zip(PLACES).map(|(source, place)| DedupSource {
        source: source as &dyn ProfileSource,
        tells: Some(place),
        without: doubles.excluded_from(place).map_or(&nothing, |without| without.as_ref()),
    });
    run_all(ask, lying).expect("an answer")
}

proptest! {
    #[test]
    fn each_counts_once(
        uploads in prop::collection::vec(upload(), 0..8),
        further in prop::collection::vec(prop::collection::btree_set(0..4usize, 0..3), 8),
        case in selection_case(),
        steps in steps(),
    ) {
        let (once, doubled) = (sources(&uploads), doubled(&uploads, &further));
        let group_by = vec!["pod".to_owned()];
        let points = TimeSeriesQuery { steps, group_by: group_by.clone(), ..TimeSeriesQuery::default() };
        let heat = HeatmapQuery { steps, group_by, ..HeatmapQuery::default() };
        for what in whats(&case, points, heat) {
            let ask = question(&case, what);
            let expected = run_all(&ask, once.iter().map(|one| one as &dyn ProfileSource)).expect("an answer");
            let (first, ids) = told(&ask, &doubled, &DuplicateExclusions::default()).split_ids();
            let seen = match ids.check_counted_once(&DuplicateExclusions::default()) {
                Ok(()) => first,
                Err(doubles) => {
                    let (second, ids) = told(&ask, &doubled, &doubles).split_ids();
                    prop_assert_eq!(ids.check_counted_once(&doubles), Ok(()));
                    second
                }
            };
            prop_assert_eq!(shown(seen), shown(expected));
        }
    }
}
