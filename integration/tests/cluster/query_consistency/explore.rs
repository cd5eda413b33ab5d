//! What only this server answers: the table of functions, the lines of one, who calls it, what lies below a node, what
//! changed, single profiles.

use std::collections::{BTreeMap, BTreeSet};

use athanor_proto::athanor::v1::frame_match::Pattern;
use athanor_proto::athanor::v1::transform::Action;
use athanor_proto::athanor::v1::{
    ChangesRequest, FrameMatch, FunctionOrder, FunctionsRequest, GraphRequest, GraphResponse, LinesRequest,
    Page, ProfilesRequest, Query, SandwichRequest, SubtreeRequest, Transform, Tree, Weights,
};
use athanor_querier::DecodedGraph;

use crate::query_consistency::asker::{Answers, Asker, whole};
use crate::query_consistency::decoded::Stacks;
use crate::query_consistency::naive::{Naive, Record};
use crate::query_consistency::profiles::{PERIOD, TYPE};
use crate::query_consistency::sums::{lines, stacks};

/// No function is in a stack of it twice.
const FUNCTION: &str = "work";
/// Of the node that is opened.
const NODE: [&str; 2] = ["main", "serve"];
const ALL: Option<Page> = Some(Page { offset: 0, limit: 1_000 });
/// Of either side of what is compared.
const SIDES: [&str; 2] = [r#"{pod="pod1"}"#, r#"{pod!="pod1"}"#];

/// In itself, and in all.
type Weight = [i64; 2];

/// What each function weighs: a stack counts once, however often the function is in it.
fn functions(all: &Stacks<1>) -> BTreeMap<String, Weight> {
    let mut functions: BTreeMap<String, Weight> = BTreeMap::new();
    for (stack, [value]) in all {
        functions.entry(stack.last().unwrap().clone()).or_default()[0] += value;
        for name in stack.iter().collect::<BTreeSet<_>>() {
            functions.entry(name.clone()).or_default()[1] += value;
        }
    }
    functions
}

/// What each of these paths and each beginning of one weighs in all.
fn below<'p>(paths: impl Iterator<Item = (Vec<&'p String>, i64)>) -> BTreeMap<String, i64> {
    let mut weights = BTreeMap::new();
    for (path, value) in paths {
        for depth in 1..=path.len() {
            *weights.entry(format!("{:?}", &path[..depth])).or_default() += value;
        }
    }
    weights
}

fn table<'n>(records: impl Iterator<Item = &'n Record>) -> BTreeMap<String, Weight> {
    functions(&stacks(records, |_| true))
}

fn of_groups(naive: &Naive) -> BTreeMap<(String, String), Weight> {
    let mut of_groups = BTreeMap::new();
    for pod in naive.usual().map(|record| record.label("pod")).collect::<BTreeSet<_>>() {
        let of_pod = table(naive.usual().filter(|record| record.label("pod") == pod));
        of_groups.extend(of_pod.into_iter().map(|(name, weight)| ((pod.to_owned(), name), weight)));
    }
    of_groups
}

fn of_lines(naive: &Naive) -> (Weight, BTreeMap<i64, Weight>) {
    let (mut all, mut of_lines) = (Weight::default(), BTreeMap::<i64, Weight>::new());
    for (stack, value) in lines(naive.usual(), |_| true) {
        let Some((_, line)) = stack.iter().find(|(name, _)| name == FUNCTION) else { continue };
        let self_value = if stack.last().unwrap().0 == FUNCTION { value } else { 0 };
        for weight in [&mut all, of_lines.entry(*line).or_default()] {
            weight[0] += self_value;
            weight[1] += value;
        }
    }
    (all, of_lines)
}

fn around(all: &Stacks<1>) -> [BTreeMap<String, i64>; 2] {
    let at = |stack: &[String]| stack.iter().position(|name| name == FUNCTION);
    let callers = all.iter().filter_map(|(stack, [value])| Some((stack[..=at(stack)?].iter().rev(), *value)));
    let callees = all.iter().filter_map(|(stack, [value])| Some((stack[at(stack)?..].iter(), *value)));
    [
        below(callers.map(|(path, value)| (path.collect(), value))),
        below(callees.map(|(path, value)| (path.collect(), value))),
    ]
}

/// Stacks after [`transforms`].
fn transformed(all: &Stacks<1>) -> Stacks<1> {
    let mut transformed = Stacks::new();
    let is_ignored = |name: &String| name.starts_with("own") && name.ends_with(['1', '3', '5', '7', '9']);
    for (stack, [value]) in all.iter().filter(|(stack, _)| !stack.iter().any(is_ignored)) {
        let mut frames: Vec<String> = stack.iter().filter(|name| **name != NODE[1]).cloned().collect();
        if let Some(first) = frames.iter().position(|name| name == FUNCTION) {
            frames.truncate(first + 1);
        }
        if !frames.is_empty() {
            transformed.entry(frames).or_insert([0])[0] += value;
        }
    }
    transformed
}

/// Changes of stacks, by names and an expression.
fn transforms() -> Vec<Transform> {
    let name = |name: &str| FrameMatch { pattern: Some(Pattern::Name(name.to_owned())) };
    let odd = FrameMatch { pattern: Some(Pattern::Regex("^own.*[13579]$".to_owned())) };
    let actions = [Action::Ignore(odd), Action::Hide(name(NODE[1])), Action::CollapseBelow(name(FUNCTION))];
    actions.into_iter().map(|action| Transform { action: Some(action) }).collect()
}

/// Totals of a whole graph, and of the inverted graph of transformed stacks, by path.
fn graphs(all: &Stacks<1>) -> [BTreeMap<String, i64>; 2] {
    let transformed = transformed(all);
    let plain = all.iter().map(|(stack, [value])| (stack.iter().collect(), *value));
    let inverted = transformed.iter().map(|(stack, [value])| (stack.iter().rev().collect(), *value));
    [below(plain), below(inverted)].map(|mut totals| {
        totals.retain(|_, total| *total != 0);
        totals
    })
}

/// Totals of the nodes of a graph by path, from its columns.
fn graph_totals(graph: &GraphResponse) -> BTreeMap<String, i64> {
    let graph = DecodedGraph::from_response(graph).unwrap();
    let mut paths: Vec<Vec<&str>> = vec![Vec::new()];
    let mut weights: BTreeMap<String, i64> = BTreeMap::new();
    for (at, &caller) in graph.parents.iter().enumerate().skip(1) {
        let mut path = paths[caller as usize].clone();
        path.push(graph.name(at));
        weights.insert(format!("{path:?}"), graph.totals[at]);
        paths.push(path);
    }
    assert!(graph.truncated.iter().all(|&truncated| truncated == 0));
    weights.retain(|_, total| *total != 0);
    weights
}

/// What is to be answered.
pub fn expected(naive: &Naive) -> Answers {
    let all = stacks(naive.usual(), |_| true);
    let of_node: Vec<(Vec<&String>, i64)> = all
        .iter()
        .filter(|(stack, _)| stack.len() >= NODE.len() && stack[..NODE.len()] == NODE)
        .map(|(stack, [value])| (stack[NODE.len()..].iter().collect(), *value))
        .collect();
    let self_value: i64 = of_node.iter().filter(|(path, _)| path.is_empty()).map(|(_, value)| value).sum();
    let total: i64 = of_node.iter().map(|(_, value)| value).sum();
    let callees: BTreeSet<_> = of_node.iter().filter_map(|(path, _)| path.first()).collect();
    let (callees, of_function) = (callees.len() as u64, functions(&all).get(FUNCTION).copied());
    let mut changed: BTreeMap<String, [Weight; 2]> = BTreeMap::new();
    for (side, is_left) in [(0, true), (1, false)] {
        let of_side = table(naive.usual().filter(|record| (record.label("pod") == "pod1") == is_left));
        of_side.into_iter().for_each(|(name, weight)| changed.entry(name).or_default()[side] = weight);
    }
    // By itself, and as a share of all.
    let totals = [0, 1].map(|side| changed.values().map(|of| of[side][0]).sum::<i64>());
    changed.retain(|_, [[left, _], [right, _]]| left != right || *left * totals[1] != *right * totals[0]);
    let listed = naive.usual().map(|record| {
        let total: i64 = record.rows.iter().map(|row| row.value).sum();
        let id = naive.ids.get(&record.key()).cloned().unwrap_or_default();
        (id, [record.time, 1_000_000_000, PERIOD, total])
    });
    Answers::from([
        ("Functions", format!("{:?}", functions(&all))),
        ("Functions, transformed", format!("{:?}", functions(&transformed(&all)))),
        ("Functions, grouped", format!("{:?}", of_groups(naive))),
        ("Graph", format!("{:?}", graphs(&all))),
        ("Lines", format!("{:?}", of_lines(naive))),
        ("Sandwich", format!("{:?}", (of_function.unwrap_or_default(), around(&all)))),
        ("Subtree", format!("{:?}", ([self_value, total], callees, below(of_node.into_iter())))),
        ("Changes", format!("{changed:?}")),
        ("Profiles", format!("{:?}", listed.collect::<BTreeMap<String, [i64; 4]>>())),
    ])
}

/// What each path from the root weighs; without the name of the root where it has none.
fn paths(tree: Option<Tree>) -> BTreeMap<String, i64> {
    let Tree { names, nodes } = tree.unwrap();
    let path_of = |mut at: usize| {
        let mut path = Vec::new();
        loop {
            path.push(&names[nodes[at].name as usize]);
            let above = nodes[at].parent as usize;
            if above == at {
                path.reverse();
                return path;
            }
            at = above;
        }
    };
    let mut weights = BTreeMap::new();
    for (at, node) in nodes.iter().enumerate() {
        let path: Vec<&String> = path_of(at).into_iter().filter(|name| !name.is_empty()).collect();
        if !path.is_empty() && node.total != 0 {
            let before = weights.insert(format!("{path:?}"), node.total);
            assert_eq!((before, node.other), (None, false), "{path:?}");
        }
    }
    weights
}

fn weight(weights: Option<Weights>) -> Weight {
    let Weights { self_, total } = weights.unwrap_or_default();
    [self_, total]
}

async fn of_groups_asked(asker: &Asker, query: &Query) -> BTreeMap<(String, String), Weight> {
    let group_by = vec!["pod".to_owned()];
    let order = FunctionOrder::Name as i32;
    let request =
        FunctionsRequest { query: Some(query.clone()), group_by, order, page: ALL, ..Default::default() };
    let answer = whole!(asker, functions, request);
    let pod = |group: u32| answer.groups[group as usize].labels[0].value.clone();
    let rows = answer.rows.iter().flat_map(|row| row.groups.iter().map(move |of| (row, of)));
    rows.map(|(row, of)| ((pod(of.group), row.name.clone()), [of.self_, of.total])).collect()
}

/// What is answered.
pub async fn asked(asker: &Asker) -> Answers {
    let query = Query {
        profile_type: TYPE.to_owned(),
        selector: "{}".to_owned(),
        start: asker.start,
        end: asker.end,
        ..Query::default()
    };
    let (all, function) = (Some(query.clone()), FUNCTION.to_owned());
    let request = FunctionsRequest { query: all.clone(), page: ALL, ..FunctionsRequest::default() };
    let table = whole!(asker, functions, request);
    assert_eq!(table.count, table.rows.len() as u64);
    let table: BTreeMap<String, Weight> =
        table.rows.into_iter().map(|row| (row.name, [row.self_, row.total])).collect();
    let changed_stacks = Some(Query { transforms: transforms(), ..query.clone() });
    let graph = whole!(asker, graph, GraphRequest { query: all.clone(), ..GraphRequest::default() });
    let inverted = GraphRequest { query: changed_stacks.clone(), invert: true, ..GraphRequest::default() };
    let inverted = whole!(asker, graph, inverted);
    let graphs = [&graph, &inverted].map(graph_totals);
    let request = FunctionsRequest { query: changed_stacks, page: ALL, ..FunctionsRequest::default() };
    let transformed = whole!(asker, functions, request);
    let transformed: BTreeMap<String, Weight> =
        transformed.rows.into_iter().map(|row| (row.name, [row.self_, row.total])).collect();
    let request = LinesRequest { query: all.clone(), function: Some(function.clone()), page: ALL };
    let lines = whole!(asker, lines, request);
    let of_lines: BTreeMap<i64, Weight> =
        lines.rows.iter().map(|row| (row.line, [row.self_, row.total])).collect();
    let request =
        SandwichRequest { query: all.clone(), function: Some(function), ..SandwichRequest::default() };
    let sandwich = whole!(asker, sandwich, request);
    let around = [paths(sandwich.callers), paths(sandwich.callees)];
    let path = NODE.map(str::to_owned).to_vec();
    let subtree =
        whole!(asker, subtree, SubtreeRequest { query: all.clone(), path, ..SubtreeRequest::default() });
    let of_node = ([subtree.self_, subtree.total], subtree.callees, paths(subtree.tree));
    let [left, right] = SIDES.map(|selector| Some(Query { selector: selector.to_owned(), ..query.clone() }));
    let changes =
        whole!(asker, changes, ChangesRequest { left, right, page: ALL, ..ChangesRequest::default() });
    let changed: BTreeMap<String, [Weight; 2]> =
        changes.rows.into_iter().map(|row| (row.function, [weight(row.left), weight(row.right)])).collect();
    let request = ProfilesRequest { query: all, page: ALL, ..ProfilesRequest::default() };
    let listed = whole!(asker, profiles, request);
    let listed: BTreeMap<String, [i64; 4]> = listed
        .rows
        .into_iter()
        .map(|row| (row.id, [row.time_nanos, row.duration_nanos, row.period, row.total]))
        .collect();
    Answers::from([
        ("Functions", format!("{table:?}")),
        ("Functions, transformed", format!("{transformed:?}")),
        ("Functions, grouped", format!("{:?}", of_groups_asked(asker, &query).await)),
        ("Graph", format!("{graphs:?}")),
        ("Lines", format!("{:?}", ([lines.self_, lines.total], of_lines))),
        ("Sandwich", format!("{:?}", ([sandwich.self_, sandwich.total], around))),
        ("Subtree", format!("{of_node:?}")),
        ("Changes", format!("{changed:?}")),
        ("Profiles", format!("{listed:?}")),
    ])
}
