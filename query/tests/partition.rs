//! Wherever profiles lie, the answer is that of a model which knows nothing but maps of texts.

use std::collections::{BTreeMap, BTreeSet};

use athanor_profile::analysis::frame_origins::FrameOrigins;
use athanor_profile::analysis::origin_table::OriginTable;
use athanor_profile::call_tree::tree::{FrameGrouping, Tree};
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Labels, ProfileSource};
use athanor_query::{
    GoPgoOptions, HeatmapQuery, LabelValuesQuery, MergedProfile, OriginTree, PartialResult, ProfileQuery,
    QueryKind, ResultLimits, StackFilter, TimeGrid, TimeSeriesQuery, run,
};
use proptest::prelude::*;

#[path = "model/meant.rs"]
mod meant;
#[path = "model/orders.rs"]
mod orders;
#[path = "model/steps.rs"]
mod steps;
#[path = "model/uploads.rs"]
mod uploads;

use orders::orders;
use steps::steps;
use uploads::{Row, SelectionCase, TYPES, Upload, id, path, question, selection_case, sources, upload};

fn answer(uploads: &[Upload], case: &SelectionCase, what: QueryKind, order: &[usize]) -> PartialResult {
    let (ask, sources) = (question(case, what), sources(uploads));
    let in_order = order.iter().map(|&at| &sources[at] as &dyn ProfileSource);
    athanor_query::run_all(&ask, in_order).expect("an answer")
}

fn is_selected(upload: &Upload, case: &SelectionCase) -> bool {
    upload.service == case.service && (case.from..case.to).contains(&upload.time)
}

/// Self values by path, without zeros.
fn by_path(tree: &Tree) -> BTreeMap<Vec<String>, i64> {
    let mut paths: Vec<Vec<String>> = Vec::new();
    let mut found = BTreeMap::new();
    for node in tree.nodes() {
        let mut path = paths.get(node.parent as usize).cloned().unwrap_or_default();
        if !paths.is_empty() {
            path.push(tree.name(node).to_owned());
        }
        if node.self_value != 0 {
            found.insert(path.clone(), node.self_value);
        }
        paths.push(path);
    }
    found
}

/// Rows of the selected uploads, by the place of the upload.
fn rows<'u>(
    uploads: &'u [Upload],
    case: &'u SelectionCase,
) -> impl Iterator<Item = (usize, &'u Upload, &'u Row)> {
    let numbered = uploads.iter().enumerate().filter(|(_, one)| one.service == case.service);
    let all = numbered.flat_map(|(place, one)| one.rows.iter().map(move |row| (place, one, row)));
    all.filter(|(place, _, row)| case.has_profile(*place, row.labelled))
}

/// Values by stack, of which only the last frames may stay.
fn model_tree(uploads: &[Upload], case: &SelectionCase, keep: usize) -> BTreeMap<Vec<String>, i64> {
    let mut found: BTreeMap<Vec<String>, i64> = BTreeMap::new();
    for (_, _, row) in rows(uploads, case).filter(|(_, one, _)| is_selected(one, case)) {
        if case.counts(row) {
            let kept = &row.frames[row.frames.len().saturating_sub(keep)..];
            *found.entry(path(kept)).or_default() += i64::from(row.values[1]);
        }
    }
    found.retain(|_, value| *value != 0);
    found
}

fn place_of(time: i64, steps: TimeGrid) -> Option<u64> {
    (0..steps.count).find(|&place| {
        let right = steps.start + place as i64 * steps.step;
        time > right - steps.step && time <= right
    })
}

fn pod_of(upload: &Upload) -> String {
    upload.labels().get("pod").unwrap_or_default().to_owned()
}

/// Sum, profiles, and the largest value of a profile with its time and id.
type ModelCell = (i64, BTreeSet<u128>, Option<(i64, i64, u128)>);

fn model_points(
    uploads: &[Upload],
    case: &SelectionCase,
    steps: TimeGrid,
) -> BTreeMap<(String, u64), ModelCell> {
    let mut found: BTreeMap<(String, u64), ModelCell> = BTreeMap::new();
    for (at, upload) in uploads.iter().enumerate().filter(|(_, one)| one.service == case.service) {
        let Some(place) = place_of(upload.time, steps) else { continue };
        let mut of_upload: Option<(i64, i64, u128)> = None;
        for labelled in [false, true] {
            let of_split = |row: &&Row| row.labelled == labelled;
            let is_there =
                upload.rows.iter().any(|row| row.labelled == labelled) || upload.rows.is_empty() && !labelled;
            if !is_there || !case.has_profile(at, labelled) {
                continue;
            }
            let counted = upload.rows.iter().filter(of_split).filter(|row| case.counts(row));
            let sum = counted.map(|row| i64::from(row.values[1])).sum::<i64>();
            let cell = found.entry((pod_of(upload), place)).or_default();
            cell.0 += sum;
            cell.1.insert(id(at, true));
            // Of several records the profile stands for all.
            let of_record = if labelled { 0 } else { id(at, false) };
            of_upload = Some(match of_upload {
                None => (sum, upload.time, of_record),
                Some((before, time, _)) => (before + sum, time, id(at, true)),
            });
        }
        if let Some(exemplar) = of_upload.filter(|(value, ..)| *value != 0) {
            let cell = found.entry((pod_of(upload), place)).or_default();
            cell.2 = cell.2.max(Some(exemplar));
        }
    }
    found
}

/// Values by pod, column, upload and span: 0 where they are of profiles.
type ModelHeat = BTreeMap<(String, u64, u128, u64), (i64, i64, u128)>;

fn model_heat(uploads: &[Upload], case: &SelectionCase, steps: TimeGrid, spans: bool) -> ModelHeat {
    let mut found = ModelHeat::new();
    for (place, upload, row) in rows(uploads, case).filter(|(_, _, row)| case.is_of_request(row)) {
        let Some(column) = place_of(upload.time, steps) else { continue };
        // Rows of no value are not kept.
        if row.values[1] == 0 || spans && row.span == 0 {
            continue;
        }
        let span = if spans { u64::from(row.span) } else { 0 };
        let spot = found.entry((pod_of(upload), column, id(place, true), span)).or_default();
        spot.0 += i64::from(row.values[1]);
        spot.1 = upload.time;
        spot.2 = if spans { spot.2.max(u128::from(row.trace)) } else { 0 };
    }
    found
}

/// Tree and origins of merged stacks.
fn origin_tree_of(merged: &MergedProfile) -> OriginTree {
    let MergedProfile { dictionary, totals, profiles } = merged;
    OriginTree {
        tree: Tree::from_totals(dictionary, totals),
        origins: OriginTable::from_totals(dictionary, totals, FrameGrouping::Function),
        profiles: *profiles,
    }
}

/// Tree, number of profiles, and the origin of each name.
fn shown(merged: OriginTree) -> String {
    let origins = FrameOrigins::from_table(merged.origins);
    let names = merged.tree.names().iter().map(|name| origins.get(name));
    format!("{} {:?} {:?}", merged.profiles, merged.tree, names.collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn trees_and_profiles(
        uploads in prop::collection::vec(upload(), 0..12), case in selection_case(), order in orders(), keep in 0..4u32,
    ) {
        let expected = model_tree(&uploads, &case, usize::MAX);
        let PartialResult::Tree(tree) = answer(&uploads, &case, QueryKind::Tree(case.stacks()), &order) else {
            panic!("no tree");
        };
        prop_assert_eq!(by_path(&tree), expected.clone());
        for (pgo, keep) in [(false, 0), (true, 0), (true, keep)] {
            let pgo = pgo.then_some(GoPgoOptions { keep_locations: keep, aggregate_callees: false });
            let PartialResult::Profile(merged) = answer(&uploads, &case, QueryKind::Profile(case.stacks(), pgo), &order)
            else {
                panic!("no profile");
            };
            let keep = if keep == 0 { usize::MAX } else { keep as usize };
            let expected = model_tree(&uploads, &case, keep);
            prop_assert_eq!(by_path(&Tree::from_totals(&merged.dictionary, &merged.totals)), expected);
        }
        let PartialResult::Profile(merged) = answer(&uploads, &case, QueryKind::Profile(case.stacks(), None), &order)
        else {
            panic!("no profile");
        };
        let PartialResult::OriginTree(found) = answer(&uploads, &case, QueryKind::OriginTree(case.stacks()), &order)
        else {
            panic!("no tree with origins");
        };
        prop_assert_eq!(shown(*found), shown(origin_tree_of(&merged)));
    }

    #[test]
    fn points_over_time(
        uploads in prop::collection::vec(upload(), 0..12), case in selection_case(), order in orders(), steps in steps(),
    ) {
        let group_by = vec!["pod".to_owned()];
        let points = TimeSeriesQuery { steps, group_by, stacks: case.stacks(), mean: true, exemplars: true };
        let PartialResult::Points(found) = answer(&uploads, &case, QueryKind::Points(points), &order) else {
            panic!("no points");
        };
        let mut cells = BTreeMap::new();
        for (labels, points) in found {
            for (place, cell) in points {
                let exemplar = cell.exemplar.map(|one| {
                    let is_split = one.labels.get("endpoint").is_some();
                    (one.value, one.time, if is_split { 0 } else { one.id })
                });
                let pod = labels.get("pod").unwrap_or_default().to_owned();
                cells.insert((pod, place), (cell.sum, cell.profiles, exemplar));
            }
        }
        let expected = model_points(&uploads, &case, steps);
        // Of equal values of one time any may stand for the others, so ids are not compared where there are several.
        let plain = |cells: &BTreeMap<(String, u64), ModelCell>| {
            let one = |(key, cell): (&(String, u64), &ModelCell)| {
                (key.clone(), (cell.0, cell.1.clone(), cell.2.map(|(value, time, _)| (value, time))))
            };
            cells.iter().map(one).collect::<BTreeMap<_, _>>()
        };
        prop_assert_eq!(plain(&cells), plain(&expected));
        for (key, cell) in &cells {
            let Some((value, time, found)) = cell.2 else { continue };
            let named = uploads.iter().enumerate().any(|(at, upload)| {
                let is_it = found == 0 || [true, false].into_iter().any(|whole| id(at, whole) == found);
                is_it && upload.time == time && pod_of(upload) == key.0
            });
            prop_assert!(named, "{value} at {time} is of no upload");
        }
    }

    #[test]
    fn an_exemplar_is_found_by_its_id(
        uploads in prop::collection::vec(upload(), 1..12), case in selection_case(), order in orders(),
    ) {
        let case = SelectionCase { profiles: None, requests: None, from: 0, to: 50, ..case };
        let steps = TimeGrid { start: 50, step: 60, count: 1 };
        let points = TimeSeriesQuery { steps, stacks: case.stacks(), exemplars: true, ..TimeSeriesQuery::default() };
        let PartialResult::Points(found) = answer(&uploads, &case, QueryKind::Points(points), &order) else {
            panic!("no points");
        };
        for exemplar in found.values().flat_map(BTreeMap::values).filter_map(|cell| cell.exemplar.as_ref()) {
            let mut ask = question(&case, QueryKind::Tree(case.stacks()));
            ask.selection.profiles.insert(exemplar.id);
            let sources = sources(&uploads);
            let all = sources.iter().map(|source| source as &dyn ProfileSource);
            let PartialResult::Tree(tree) = athanor_query::run_all(&ask, all).expect("an answer") else {
                panic!("no tree");
            };
            prop_assert_eq!(tree.total(), exemplar.value);
        }
    }

    #[test]
    fn values_of_profiles_and_spans(
        uploads in prop::collection::vec(upload(), 0..12), case in selection_case(), order in orders(), steps in steps(),
        spans: bool,
    ) {
        let heat = HeatmapQuery { steps, group_by: vec!["pod".to_owned()], spans, exemplars: true };
        let PartialResult::Heat(found) = answer(&uploads, &case, QueryKind::Heat(heat), &order) else { panic!("no values") };
        let mut values = ModelHeat::new();
        for (labels, spots) in found {
            let pod = labels.get("pod").unwrap_or_default();
            for (key, spot) in spots {
                let labels = spot.labels.expect("they were requested");
                prop_assert_eq!(labels.get("pod").unwrap_or_default(), pod);
                let key = (pod.to_owned(), key.column, key.profile, key.span);
                values.insert(key, (spot.value, spot.time, spot.trace));
            }
        }
        let mut expected = model_heat(&uploads, &case, steps, spans);
        // Whether nothing is there or adds up to nothing is not told apart.
        values.retain(|_, spot| spot.0 != 0);
        expected.retain(|_, spot| spot.0 != 0);
        prop_assert_eq!(values, expected);
    }

    #[test]
    fn lists(
        uploads in prop::collection::vec(upload(), 0..12), case in selection_case(), order in orders(), most in 0..3u64,
        prefix in "p?[12]?",
    ) {
        let selected: Vec<&Upload> = uploads.iter().filter(|one| is_selected(one, &case)).collect();
        let mut expected: BTreeMap<String, u64> = BTreeMap::new();
        for one in &selected {
            let pod = pod_of(one);
            if !pod.is_empty() && pod.starts_with(&prefix) {
                *expected.entry(pod).or_default() += record_count(one);
            }
        }
        let of_pods: u64 = selected.iter().filter(|one| !pod_of(one).is_empty()).map(|one| record_count(one)).sum();
        let names = QueryKind::LabelNameCounts { prefix: "pod".to_owned() };
        let PartialResult::Values(found) = answer(&uploads, &case, names, &order) else { panic!("no names") };
        prop_assert_eq!(found.counts().get("pod").copied().unwrap_or_default(), of_pods);
        prop_assert!(found.counts().keys().all(|name| name.starts_with("pod")));
        let expected: BTreeMap<String, u64> =
            expected.into_iter().take(if most == 0 { usize::MAX } else { most as usize }).collect();
        let values = LabelValuesQuery { name: "pod".to_owned(), prefix, most };
        let PartialResult::Values(found) = answer(&uploads, &case, QueryKind::LabelValues(values), &order) else {
            panic!("no values");
        };
        prop_assert_eq!(found.into_counts(), expected);
        let wanted = vec!["pod".to_owned(), "__type__".to_owned()];
        let PartialResult::Series(found) = answer(&uploads, &case, QueryKind::Series(wanted), &order) else {
            panic!("no series");
        };
        let mut expected = BTreeSet::new();
        for one in &selected {
            for (kind, _) in TYPES {
                expected.insert(Labels::new([("__type__".into(), kind.into()), ("pod".into(), pod_of(one))]));
            }
        }
        prop_assert_eq!(found, expected);
    }
}

/// Returns the number of records of an upload: one for each type and set of sample labels.
fn record_count(upload: &Upload) -> u64 {
    let splits: BTreeSet<bool> = upload.rows.iter().map(|row| row.labelled).collect();
    (splits.len().max(1) * TYPES.len()) as u64
}

fn one_of_three_stacks() -> MemorySource {
    let row = |frame| Row { frames: vec![frame], labelled: false, span: frame + 1, trace: 0, values: [1, 1] };
    let one = Upload { service: 0, pod: 1, time: 1, rows: (0..3).map(row).collect(), source: 0 };
    let mut source = MemorySource::default();
    source.add(&one.labels(), &one.profile(), 1);
    source
}

#[test]
fn an_answer_over_its_bound_is_refused() {
    let bounds = ResultLimits { nodes: 3, ..ResultLimits::default() };
    let ask =
        ProfileQuery { what: QueryKind::Tree(StackFilter::default()), bounds, ..ProfileQuery::default() };
    let refused = run(&ask, &one_of_three_stacks()).expect_err("four nodes");
    assert_eq!(
        refused.to_string(),
        "result has more than 3 nodes; select fewer series or a shorter time range"
    );
}

#[test]
fn spans_over_the_bound_are_not_gathered() {
    let steps = TimeGrid { start: 10, step: 20, count: 1 };
    let what = QueryKind::Heat(HeatmapQuery { steps, spans: true, ..HeatmapQuery::default() });
    let bounds = ResultLimits { points: 2, ..ResultLimits::default() };
    let refused = run(&ProfileQuery { what, bounds, ..ProfileQuery::default() }, &one_of_three_stacks())
        .expect_err("six spans");
    let expected = "result has more than 2 values of spans; select fewer series or a shorter time range";
    assert_eq!(refused.to_string(), expected);
}
