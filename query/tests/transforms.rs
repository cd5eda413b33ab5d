//! Results with transforms equal those of plain lists of stacks, for each query kind and wherever profiles lie.

use std::collections::{BTreeMap, BTreeSet};

use athanor_profile::analysis::frame_origins::FrameOrigins;
use athanor_profile::analysis::origin_table::OriginTable;
use athanor_profile::analysis::transform::{FramePattern, StackTransform, StackTransforms, TransformAction};
use athanor_profile::call_tree::tree::{FrameGrouping, Tree};
use athanor_profile::{Dictionary, Labels};
use athanor_query::{
    GoPgoOptions, GroupedTreesQuery, MergedProfile, OriginTree, PartialResult, ProfileListQuery,
    ProfileQuery, QueryKind, SamplesQuery, StackFilter, TimeGrid, TimeSeriesQuery, run,
};
use proptest::prelude::*;

#[path = "model/meant.rs"]
mod meant;
#[path = "model/orders.rs"]
mod orders;
#[path = "model/uploads.rs"]
mod uploads;

use orders::orders;
use uploads::{Row, SelectionCase, Upload, path, question, selection_case, sources, upload};

/// Transform of a list of frames: an action and the frames that it matches.
type PlainTransform = (TransformAction, BTreeSet<u8>);

fn transforms() -> impl Strategy<Value = Vec<PlainTransform>> {
    let action = prop::sample::select(vec![
        TransformAction::Focus,
        TransformAction::Ignore,
        TransformAction::Hide,
        TransformAction::Show,
        TransformAction::ShowFrom,
        TransformAction::CollapseRecursion,
        TransformAction::CollapseBelow,
    ]);
    prop::collection::vec((action, prop::collection::btree_set(0..3u8, 1..3)), 0..4)
}

/// Returns the transforms of a query: one frame by its name, several by an expression.
fn to_query(transforms: &[PlainTransform]) -> StackTransforms {
    let transform = |(action, frames): &PlainTransform| {
        let numbers: Vec<String> = frames.iter().map(u8::to_string).collect();
        let pattern = match &numbers[..] {
            [only] => FramePattern::ExactName(format!("f{only}")),
            _ => FramePattern::Regex(format!("^f[{}]$", numbers.concat())),
        };
        StackTransform { action: *action, pattern }
    };
    StackTransforms::new(transforms.iter().map(transform).collect()).expect("valid transforms")
}

fn transform_plainly(frames: Vec<u8>, (action, matching): &PlainTransform) -> Vec<u8> {
    let first = frames.iter().position(|frame| matching.contains(frame));
    match (action, first) {
        (TransformAction::Focus | TransformAction::ShowFrom | TransformAction::Show, None) => Vec::new(),
        (TransformAction::Ignore, Some(_)) => Vec::new(),
        (TransformAction::Focus | TransformAction::Ignore, _) | (_, None) => frames,
        (TransformAction::Hide, _) => frames.into_iter().filter(|frame| !matching.contains(frame)).collect(),
        (TransformAction::Show, _) => frames.into_iter().filter(|frame| matching.contains(frame)).collect(),
        (TransformAction::ShowFrom, Some(first)) => frames[first..].to_vec(),
        (TransformAction::CollapseBelow, Some(first)) => frames[..=first].to_vec(),
        (TransformAction::CollapseRecursion, Some(first)) => {
            let last = frames.iter().rposition(|frame| *frame == frames[first]).unwrap_or(first);
            let rest = transform_plainly(frames[last + 1..].to_vec(), &(*action, matching.clone()));
            [&frames[..first], &frames[last..=last], &rest].concat()
        }
    }
}

/// Returns the result that a query gets over the wire, merged from all sources in some order.
fn result_of(uploads: &[Upload], case: &SelectionCase, what: QueryKind, order: &[usize]) -> PartialResult {
    let sources = sources(uploads);
    let query = ProfileQuery::unpack(&question(case, what).pack().expect("small")).expect("packed");
    order.iter().fold(PartialResult::empty(&query.what), |sum, &source| {
        let partial = run(&query, &sources[source]).expect("a result");
        sum.merge(partial, &query.bounds).expect("small")
    })
}

/// Row that counts, with its upload and its frames after transforms.
type CountedRow<'a> = (usize, &'a Upload, &'a Row, Vec<String>);

fn counted_rows<'a>(
    uploads: &'a [Upload],
    case: &'a SelectionCase,
    transforms: &'a [PlainTransform],
) -> Vec<CountedRow<'a>> {
    let is_selected =
        |upload: &Upload| upload.service == case.service && (case.from..case.to).contains(&upload.time);
    let mut counted = Vec::new();
    for (place, upload) in uploads.iter().enumerate().filter(|(_, upload)| is_selected(upload)) {
        for row in &upload.rows {
            let frames = transforms.iter().fold(row.frames.clone(), transform_plainly);
            let is_dropped = frames.is_empty() && !transforms.is_empty();
            if case.has_profile(place, row.labelled) && case.counts(row) && !is_dropped {
                counted.push((place, upload, row, path(&frames)));
            }
        }
    }
    counted
}

fn sums<K: Ord>(rows: impl Iterator<Item = (K, i64)>) -> BTreeMap<K, i64> {
    let mut sums = BTreeMap::new();
    rows.for_each(|(key, value)| *sums.entry(key).or_default() += value);
    sums.retain(|_, value| *value != 0);
    sums
}

fn by_path(tree: &Tree) -> BTreeMap<Vec<String>, i64> {
    let mut paths: Vec<Vec<String>> = Vec::new();
    let mut found = Vec::new();
    for node in tree.nodes() {
        let mut path = paths.get(node.parent as usize).cloned().unwrap_or_default();
        path.extend((!paths.is_empty()).then(|| tree.name(node).to_owned()));
        found.push((path.clone(), node.self_value));
        paths.push(path);
    }
    sums(found.into_iter())
}

fn stack_path(dictionary: &Dictionary, stack: u32) -> Vec<String> {
    let symbols = &dictionary.symbols;
    let mut names = Vec::new();
    for location in dictionary.stacks.locations(stack) {
        names.extend(
            symbols.lines(location).iter().map(|line| symbols.function_name(line.function).to_owned()),
        );
    }
    names.reverse();
    names
}

/// Tree, number of profiles, and the origin of each name.
fn shown(merged: OriginTree) -> String {
    let origins = FrameOrigins::from_table(merged.origins);
    let names = merged.tree.names().iter().map(|name| origins.get(name));
    format!("{} {:?} {:?}", merged.profiles, merged.tree, names.collect::<Vec<_>>())
}

fn value(row: &Row) -> i64 {
    i64::from(row.values[1])
}

fn pod(labels: &Labels) -> String {
    labels.get("pod").unwrap_or_default().to_owned()
}

proptest! {
    #[test]
    fn trees_have_rewritten_stacks(
        uploads in prop::collection::vec(upload(), 0..12), case in selection_case(), order in orders(), list in transforms(),
    ) {
        let stacks = StackFilter { transforms: to_query(&list), ..case.stacks() };
        let rows = counted_rows(&uploads, &case, &list);
        let expected = sums(rows.iter().map(|(_, _, row, path)| (path.clone(), value(row))));
        let PartialResult::Tree(tree) = result_of(&uploads, &case, QueryKind::Tree(stacks.clone()), &order) else {
            panic!("no tree")
        };
        prop_assert_eq!(by_path(&tree), expected);
        let by_pod = GroupedTreesQuery { group_by: vec!["pod".to_owned()], stacks };
        let PartialResult::Trees(trees) = result_of(&uploads, &case, QueryKind::Trees(by_pod), &order) else {
            panic!("no trees")
        };
        let expected = sums(rows.iter().map(|(_, upload, row, path)| ((pod(&upload.labels()), path.clone()), value(row))));
        let found = trees.iter().flat_map(|(labels, tree)| {
            by_path(tree).into_iter().map(|(path, value)| ((pod(labels), path), value))
        });
        prop_assert_eq!(sums(found), expected);
    }

    #[test]
    fn merged_profiles_have_rewritten_stacks(
        uploads in prop::collection::vec(upload(), 0..12), case in selection_case(), order in orders(), list in transforms(),
        keep in prop::option::of(1..3u32),
    ) {
        let stacks = StackFilter { transforms: to_query(&list), ..case.stacks() };
        let pgo = keep.map(|keep_locations| GoPgoOptions { keep_locations, aggregate_callees: false });
        let last_frames = |path: &[String]| match keep {
            Some(keep) => path[path.len().saturating_sub(keep as usize)..].to_vec(),
            None => path.to_vec(),
        };
        let rows = counted_rows(&uploads, &case, &list);
        let expected = sums(rows.iter().map(|(_, _, row, path)| (last_frames(path), value(row))));
        let with_origins = QueryKind::OriginTree(stacks.clone());
        let PartialResult::OriginTree(found) = result_of(&uploads, &case, with_origins, &order) else {
            panic!("no tree with origins")
        };
        let PartialResult::Profile(merged) = result_of(&uploads, &case, QueryKind::Profile(stacks, pgo), &order) else {
            panic!("no profile")
        };
        if pgo.is_none() {
            let MergedProfile { dictionary, totals, profiles } = &*merged;
            let origins = OriginTable::from_totals(dictionary, totals, FrameGrouping::Function);
            let tree = Tree::from_totals(dictionary, totals);
            let expected = OriginTree { tree, origins, profiles: *profiles };
            prop_assert_eq!(shown(*found), shown(expected));
        }
        let totals = (0..).zip(&merged.totals).map(|(stack, total)| (stack_path(&merged.dictionary, stack), *total));
        prop_assert_eq!(sums(totals), expected);
    }

    #[test]
    fn values_of_profiles_count_surviving_stacks(
        uploads in prop::collection::vec(upload(), 0..12), case in selection_case(), order in orders(), list in transforms(),
    ) {
        let stacks = StackFilter { transforms: to_query(&list), ..case.stacks() };
        let rows = counted_rows(&uploads, &case, &list);
        let listed = ProfileListQuery { keep: 99, stacks: stacks.clone(), ..ProfileListQuery::default() };
        let PartialResult::Profiles(profiles) = result_of(&uploads, &case, QueryKind::Profiles(listed), &order) else {
            panic!("no list")
        };
        let total: i64 = rows.iter().map(|(_, _, row, _)| value(row)).sum();
        prop_assert_eq!(profiles.entries().iter().map(|entry| entry.total).sum::<i64>(), total);
        // Points of the whole time range, which the query of the model gets by its grid.
        let steps = TimeGrid { start: case.to - 1, step: (case.to - case.from).max(1), count: 1 };
        let points = TimeSeriesQuery { steps, stacks, ..TimeSeriesQuery::default() };
        let PartialResult::Points(series) = result_of(&uploads, &case, QueryKind::Points(points), &order) else {
            panic!("no points")
        };
        let sum: i64 = series.values().flat_map(|cells| cells.values()).map(|cell| cell.sum).sum();
        prop_assert!(case.from >= case.to || sum == total, "{} is not {}", sum, total);
    }

    #[test]
    fn samples_have_rewritten_stacks_once_per_profile(
        uploads in prop::collection::vec(upload(), 0..12), case in selection_case(), order in orders(), list in transforms(),
        spans in any::<bool>(),
    ) {
        let stacks = StackFilter { transforms: to_query(&list), ..case.stacks() };
        let query = SamplesQuery { stacks, max_rows: u64::MAX, spans, ..SamplesQuery::default() };
        let PartialResult::Samples(samples) = result_of(&uploads, &case, QueryKind::Samples(query), &order) else {
            panic!("no samples")
        };
        let mut found = Vec::new();
        for (profile, rows) in samples.profiles() {
            let mut stacks = BTreeSet::new();
            for sample in rows {
                prop_assert!(list.is_empty() || stacks.insert((sample.stack, sample.span)), "one stack in two rows");
                found.push(((profile.time, stack_path(&samples.dictionary, sample.stack)), sample.value));
            }
        }
        let rows = counted_rows(&uploads, &case, &list);
        let expected = rows.iter().map(|(_, upload, row, path)| ((upload.time, path.clone()), value(row)));
        prop_assert_eq!(sums(found.into_iter()), sums(expected));
    }
}
