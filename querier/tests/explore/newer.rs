//! Formats of newer clients, held against a model that knows nothing but lists of frames.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use athanor_chassis::ErrorCode;
use athanor_proto::querier::v1::*;
use athanor_querier::QuerierConfig;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::laws::{Row, joined, rows, weigh};
use crate::{TYPE, Upload, ask, both, name, querier_with, upload};

/// A function with its own and its total value.
type Weighed = (String, (i64, i64));

/// A request as newer clients write it.
fn request(from: i64, to: i64, more: Value) -> SelectMergeStacktracesRequest {
    let mut request =
        json!({ "profileTypeID": TYPE, "labelSelector": "{}", "start": from * 1_000, "end": to * 1_000 });
    let fields = more.as_object().expect("an object").clone();
    request.as_object_mut().expect("an object").extend(fields);
    serde_json::from_value(request).expect("a request")
}

/// Values that cancel nothing out, so that it is known which functions there are.
fn positive(mut uploads: Vec<Upload>) -> Vec<Upload> {
    uploads.iter_mut().flat_map(|one| &mut one.rows).for_each(|(_, value)| *value = value.abs() + 1);
    uploads
}

fn functions(rows: &[Row]) -> BTreeMap<String, (i64, i64)> {
    weigh(rows, |_, frame| name(frame.0))
}

/// The heaviest, the first of equals by name.
fn heaviest<T>(mut all: Vec<(String, T)>, limit: usize, rank: impl Fn(&T) -> (i64, i64)) -> Vec<(String, T)> {
    all.sort_by_key(|(name, of)| (Reverse(rank(of)), name.clone()));
    all.truncate(if limit == 0 { usize::MAX } else { limit });
    all
}

fn rows_of(table: &FunctionTable) -> Vec<Weighed> {
    table.functions.iter().map(|row| (row.name.clone(), (row.self_, row.total))).collect()
}

/// By path from the function on: total and self value.
fn by_path(names: &[String], half: Option<&SandwichTree>) -> BTreeMap<String, (i64, i64)> {
    let (mut found, mut open) = (BTreeMap::new(), Vec::<(String, u32)>::new());
    for node in half.map_or(&[][..], |half| &half.nodes) {
        while open.last().is_some_and(|(_, left)| *left == 0) {
            open.pop();
        }
        let above = open.last_mut().map_or(String::new(), |(path, left)| {
            *left -= 1;
            path.clone()
        });
        let path = format!("{above}/{}", names[node.name_index as usize]);
        assert_eq!(found.insert(path.clone(), (node.total, node.self_value)), None, "{path} is there twice");
        open.push((path, node.child_count));
    }
    found
}

fn sandwich(uploads: &[Upload], function: &str, max_nodes: i64) -> Sandwich {
    let querier = querier_with(QuerierConfig::default(), uploads, &[]);
    let more =
        json!({ "format": "PROFILE_FORMAT_SANDWICH", "sandwichFunction": function, "maxNodes": max_nodes });
    ask(querier.select_merge_stacktraces(&both(), request(1, 30, more)))
        .expect("a response")
        .sandwich
        .expect("a sandwich")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn table_of_functions_is_that_of_all_stacks(
        uploads in prop::collection::vec(upload(), 0..10).prop_map(positive), from in 1..20i64, to in 20..30i64,
        limit in 0..5usize, by_options in any::<bool>(),
    ) {
        let querier = querier_with(QuerierConfig::default(), &uploads, &[]);
        let limits = match by_options {
            true => json!({ "formatOptions": { "functions": { "limit": limit.to_string() } } }),
            false => json!({ "maxNodes": limit }),
        };
        let mut more = json!({ "format": "PROFILE_FORMAT_FUNCTIONS" });
        more.as_object_mut().unwrap().extend(limits.as_object().unwrap().clone());
        let answer = ask(querier.select_merge_stacktraces(&both(), request(from, to, more))).unwrap();
        prop_assert!(answer.flamegraph.is_none());
        let (table, rows) = (answer.functions.unwrap(), rows(&uploads, from, to));
        let expected = functions(&rows);
        prop_assert_eq!(table.total_functions, expected.len() as i64);
        prop_assert_eq!(table.total, rows.iter().map(|(_, _, value)| value).sum::<i64>());
        prop_assert_eq!(rows_of(&table), heaviest(expected.into_iter().collect(), limit, |of| *of));
    }

    #[test]
    fn difference_of_functions_joins_both_sides_before_the_limit(
        uploads in prop::collection::vec(upload(), 0..10).prop_map(positive), middle in 2..29i64,
        limit in 0..5usize, place in 0..3usize,
    ) {
        let querier = querier_with(QuerierConfig::default(), &uploads, &[]);
        let format = json!({ "format": "PROFILE_FORMAT_FUNCTIONS", "maxNodes": limit });
        let options =
            json!({ "format": "PROFILE_FORMAT_FUNCTIONS", "formatOptions": { "functions": { "limit": limit } } });
        // Of the request as a whole, or of its left side.
        let more = [json!({}), format, options][place].clone();
        let mut asked = DiffRequest {
            left: Some(request(1, middle, more)),
            right: Some(request(middle, 30, json!({}))),
            ..DiffRequest::default()
        };
        if place == 0 {
            (asked.format, asked.max_nodes) = (ProfileFormat::Functions as i32, Some(limit as i64));
        }
        let answer = ask(querier.diff(&both(), asked)).unwrap();
        prop_assert!(answer.flamegraph.is_none());
        let (found, sides) = (answer.functions.unwrap(), [(1, middle), (middle, 30)]);
        let sides = sides.map(|(from, to)| rows(&uploads, from, to));
        let mut joined: BTreeMap<String, [(i64, i64); 2]> = BTreeMap::new();
        for (side, rows) in sides.iter().enumerate() {
            functions(rows).into_iter().for_each(|(name, of)| joined.entry(name).or_default()[side] = of);
        }
        let totals = sides.map(|rows| rows.iter().map(|(_, _, value)| value).sum::<i64>());
        let count = joined.len() as i64;
        let larger = |of: &[(i64, i64); 2]| (of[0].0.max(of[1].0), of[0].1.max(of[1].1));
        let expected = heaviest(joined.into_iter().collect(), limit, larger);
        let side = |side: usize| expected.iter().map(|(name, of)| (name.clone(), of[side])).collect::<Vec<_>>();
        let (left, right) = (found.left.unwrap(), found.right.unwrap());
        prop_assert_eq!([rows_of(&left), rows_of(&right)], [side(0), side(1)]);
        prop_assert_eq!([left.total, right.total, found.left_total, found.right_total], [totals[0], totals[1], totals[0], totals[1]]);
        prop_assert_eq!([left.total_functions, right.total_functions, found.total_functions], [count; 3]);
        let of_row = |row: FunctionDiffRow| {
            (row.name, [(row.left_self, row.left_total), (row.right_self, row.right_total)])
        };
        prop_assert_eq!(found.functions.into_iter().map(of_row).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn sandwich_has_every_occurrence_on_both_sides(
        uploads in prop::collection::vec(upload(), 0..10).prop_map(positive), function in 0..4u8,
    ) {
        let found = sandwich(&uploads, &name(function), 0);
        let rows = rows(&uploads, 1, 30);
        let (mut callers, mut callees) = (BTreeMap::<String, (i64, i64)>::new(), BTreeMap::<String, (i64, i64)>::new());
        for (_, frames, value) in &rows {
            for at in (0..frames.len()).filter(|at| frames[*at].0 == function) {
                for end in at + 1..=frames.len() {
                    let node = callees.entry(joined(frames[at..end].iter())).or_default();
                    *node = (node.0 + value, node.1 + if end == frames.len() { *value } else { 0 });
                }
                for begin in 0..=at {
                    callers.entry(joined(frames[begin..=at].iter().rev())).or_default().0 += value;
                }
            }
        }
        prop_assert_eq!(by_path(&found.names, found.callers.as_ref()), callers);
        prop_assert_eq!(by_path(&found.names, found.callees.as_ref()), callees);
        let (self_value, total) = functions(&rows).get(&name(function)).copied().unwrap_or_default();
        prop_assert_eq!((found.self_, found.total), (self_value, total));
        let mut names = found.names.clone();
        names.sort();
        names.dedup();
        prop_assert_eq!(names.len(), found.names.len());
    }
}

fn one_upload(rows: &[(&[u8], i64)]) -> Vec<Upload> {
    let frames = |path: &[u8]| path.iter().map(|function| (*function, 1)).collect();
    let rows = rows.iter().map(|(path, value)| (frames(path), *value)).collect();
    vec![Upload { pod: 0, second: 5, rows, source: 0, tenant: false }]
}

#[test]
fn each_half_of_a_sandwich_is_cut_for_itself() {
    // f0 calls f1, which calls f2 (fat) and f3, f4, f5 (thin).
    let uploads = one_upload(&[(&[0, 1, 2], 100), (&[0, 1, 3], 1), (&[0, 1, 4], 2), (&[0, 1, 5], 3)]);
    let found = sandwich(&uploads, "f1", 2);
    assert_eq!((found.total, found.self_), (106, 0));
    let of = |half: &Option<SandwichTree>| by_path(&found.names, half.as_ref());
    assert_eq!(of(&found.callers), BTreeMap::from([("/f1".into(), (106, 0)), ("/f1/f0".into(), (106, 0))]));
    let callees = [("/f1", (106, 0)), ("/f1/f2", (100, 100)), ("/f1/other", (6, 6))];
    assert_eq!(of(&found.callees), callees.map(|(path, node)| (path.to_owned(), node)).into());
    let truncated = |half: &Option<SandwichTree>| {
        half.as_ref().unwrap().nodes.iter().filter(|node| node.truncated).count()
    };
    assert_eq!([truncated(&found.callers), truncated(&found.callees)], [0, 1]);
    assert_eq!(sandwich(&uploads, "nobody", 2), Sandwich::default());
}

#[test]
fn sandwich_of_equally_heavy_nodes_is_limited_in_each_half() {
    let uploads = one_upload(&[(&[0, 1, 2, 3, 4, 5], 10)]);
    let shown = |half: &Option<SandwichTree>| {
        half.as_ref().unwrap().nodes.iter().filter(|node| !node.truncated).count()
    };
    let found = sandwich(&uploads, "f5", 2);
    assert_eq!([shown(&found.callers), shown(&found.callees)], [2, 1]);
    let found = sandwich(&uploads, "f0", 2);
    assert_eq!([shown(&found.callers), shown(&found.callees)], [1, 2]);
}

#[test]
fn formats_that_are_not_known_are_refused_in_words() {
    let querier = querier_with(QuerierConfig::default(), &one_upload(&[(&[0], 1)]), &[]);
    let refused = |more: Value| {
        let asked = request(1, 30, more);
        let of_diff =
            DiffRequest { left: Some(asked.clone()), right: Some(asked.clone()), ..DiffRequest::default() };
        let one = ask(querier.select_merge_stacktraces(&both(), asked)).unwrap_err();
        let two = ask(querier.diff(&both(), of_diff)).unwrap_err();
        assert_eq!((one.code, &one.message), (two.code, &two.message));
        one
    };
    let unknown = refused(json!({ "format": "PROFILE_FORMAT_FUNCTION_TREE" }));
    assert_eq!(unknown.code, ErrorCode::Unimplemented);
    assert!(unknown.message.contains("PROFILE_FORMAT_FLAMEGRAPH"), "{unknown}");
    let nameless = refused(json!({ "format": "PROFILE_FORMAT_SANDWICH", "sandwichFunction": "" }));
    assert!(
        nameless.code == ErrorCode::Invalid && nameless.message.contains("sandwichFunction"),
        "{nameless}"
    );
    let negative =
        json!({ "format": "PROFILE_FORMAT_FUNCTIONS", "formatOptions": { "functions": { "limit": -1 } } });
    assert_eq!(refused(negative).code, ErrorCode::Invalid);
    // The number of a later format gives what every client can show.
    let graph =
        ask(querier.select_merge_stacktraces(&both(), request(1, 30, json!({ "format": 99 })))).unwrap();
    assert!(graph.flamegraph.is_some());
    let both_sides = request(1, 30, json!({ "format": "PROFILE_FORMAT_SANDWICH", "sandwichFunction": "f0" }));
    let diff =
        DiffRequest { left: Some(both_sides.clone()), right: Some(both_sides), ..DiffRequest::default() };
    assert_eq!(ask(querier.diff(&both(), diff)).unwrap_err().code, ErrorCode::Unimplemented);
}

#[test]
fn formats_that_spans_or_differences_do_not_have_are_refused() {
    let querier = querier_with(QuerierConfig::default(), &one_upload(&[(&[0], 1)]), &[]);
    let side = || Some(request(1, 30, json!({})));
    for format in [ProfileFormat::Tree, ProfileFormat::Dot, ProfileFormat::Pprof, ProfileFormat::Sandwich] {
        let diff =
            DiffRequest { left: side(), right: side(), format: format as i32, ..DiffRequest::default() };
        let refused = ask(querier.diff(&both(), diff)).unwrap_err();
        assert!(
            refused.code == ErrorCode::Unimplemented && refused.message.contains("_FUNCTIONS"),
            "{refused}"
        );
    }
    for format in [ProfileFormat::Functions, ProfileFormat::Sandwich] {
        let spans = SelectMergeSpanProfileRequest {
            format: format as i32,
            ..SelectMergeSpanProfileRequest::default()
        };
        let refused = ask(querier.select_merge_span_profile(&both(), spans)).unwrap_err();
        assert!(refused.code == ErrorCode::Unimplemented && refused.message.contains("_TREE"), "{refused}");
    }
}
