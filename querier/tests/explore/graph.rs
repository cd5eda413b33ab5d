//! Graphs as columns, compared with plain lists of stacks.

use std::collections::BTreeMap;

use athanor_proto::athanor::v1::*;
use athanor_querier::{DecodedGraph, QuerierConfig};
use proptest::prelude::*;

use crate::laws::{Row, rows};
use crate::{PERIOD, Upload, ask, both, name, querier_with, query, upload};

/// Node of decoded columns.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    self_value: i64,
    truncated: i64,
    total: i64,
}

/// Returns the nodes by path, after checking the form of the columns.
fn decode(graph: &GraphResponse) -> BTreeMap<String, Node> {
    let graph = DecodedGraph::from_response(graph).unwrap();
    let DecodedGraph { parents, totals, .. } = &graph;
    let count = parents.len();
    let mut paths: Vec<String> = vec![String::new()];
    for at in 1..count {
        paths.push(format!("{}/{}", paths[parents[at] as usize], graph.name(at)));
        let next = (at + 1..count).find(|next| parents[*next] == parents[at]);
        let next_path = |next: usize| format!("{}/{}", paths[parents[next] as usize], graph.name(next));
        let is_before = |next: usize| (-totals[at], &paths[at]) < (-totals[next], &next_path(next));
        assert!(next.is_none_or(is_before), "siblings are out of order: {paths:?} {totals:?}");
    }
    let node = |at: usize| Node {
        self_value: graph.self_values[at],
        truncated: graph.truncated[at],
        total: totals[at],
    };
    let nodes: BTreeMap<String, Node> = (0..count).map(|at| (paths[at].clone(), node(at))).collect();
    assert_eq!(nodes.len(), count, "paths are there twice");
    nodes
}

/// Form of a graph and its frames in the model.
#[derive(Clone, Copy, Debug)]
struct Form {
    inverted: bool,
    grouping: GraphGroupBy,
    by_pod: bool,
}

fn form() -> impl Strategy<Value = Form> {
    let groupings = [
        GraphGroupBy::Function,
        GraphGroupBy::Line,
        GraphGroupBy::File,
        GraphGroupBy::Package,
        GraphGroupBy::Binary,
    ];
    (any::<bool>(), prop::sample::select(groupings.to_vec()), any::<bool>()).prop_map(
        |(inverted, grouping, by_pod)| {
            let by_pod = by_pod && grouping == GraphGroupBy::Function;
            Form { inverted, grouping, by_pod }
        },
    )
}

impl Form {
    /// Returns the frames of a stack, root first.
    fn frames(self, row: &Row) -> Vec<String> {
        let frame = |frame: &(u8, i64)| match self.grouping {
            GraphGroupBy::Function => name(frame.0),
            GraphGroupBy::Line => format!("{} a.rs:{}", name(frame.0), frame.1),
            GraphGroupBy::File => "a.rs".to_owned(),
            GraphGroupBy::Package | GraphGroupBy::Binary => "[unknown]".to_owned(),
        };
        let mut frames: Vec<String> = row.1.iter().map(frame).collect();
        if !matches!(self.grouping, GraphGroupBy::Function | GraphGroupBy::Line) {
            frames.dedup();
        }
        if self.inverted {
            frames.reverse();
        }
        if self.by_pod {
            let pod = if row.0 == 0 { "(none)".to_owned() } else { format!("p{}", row.0) };
            frames.insert(0, pod);
        }
        frames
    }

    fn request(self, from: i64, to: i64) -> GraphRequest {
        let group_by_label = if self.by_pod { "pod".to_owned() } else { String::new() };
        GraphRequest {
            query: query(from, to),
            invert: self.inverted,
            group_by: self.grouping as i32,
            group_by_label,
            ..GraphRequest::default()
        }
    }
}

/// Returns self values and totals by path in the plain way. Nodes without both are left out.
fn model(stacks: &[(Vec<String>, i64)]) -> BTreeMap<String, (i64, i64)> {
    let mut found: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    for (frames, value) in stacks {
        for depth in 0..=frames.len() {
            let path: String = frames[..depth].iter().map(|frame| format!("/{frame}")).collect();
            let node = found.entry(path).or_default();
            node.0 += if depth == frames.len() { *value } else { 0 };
            node.1 += value;
        }
    }
    found.retain(|_, weights| *weights != (0, 0));
    found
}

proptest! {
    #![proptest_config(crate::property_config(128))]

    #[test]
    fn graph_equals_lists_of_stacks(
        uploads in prop::collection::vec(upload(), 0..10), from in 1..20i64, to in 20..30i64, form in form(),
    ) {
        let querier = querier_with(QuerierConfig::default(), &uploads, &[]);
        let graph = ask(querier.graph(&both(), form.request(from, to))).unwrap();
        let stacks: Vec<(Vec<String>, i64)> =
            rows(&uploads, from, to).iter().map(|row| (form.frames(row), row.2)).collect();
        let mut found = decode(&graph);
        prop_assert_eq!(graph.full_nodes, found.len() as u64);
        prop_assert_eq!(graph.root_callees, u64::from(graph.callees[0]));
        prop_assert_eq!(graph.total, stacks.iter().map(|(_, value)| value).sum::<i64>());
        prop_assert!(found.values().all(|node| node.truncated == 0));
        found.retain(|_, node| (node.self_value, node.total) != (0, 0));
        let found: BTreeMap<String, (i64, i64)> =
            found.into_iter().map(|(path, node)| (path, (node.self_value, node.total))).collect();
        prop_assert_eq!(found, model(&stacks));
        let is_read = uploads.iter().any(|upload| (from..=to).contains(&upload.second));
        prop_assert_eq!(graph.period, if is_read { PERIOD } else { 0 });
    }

    #[test]
    fn truncated_graph_states_what_it_hides(
        uploads in prop::collection::vec(upload(), 0..10), form in form(), nodes in 1..8i64, skip in 0..3u32,
        depth in 0..3usize, pick in any::<prop::sample::Index>(),
    ) {
        let querier = querier_with(QuerierConfig::default(), &uploads, &[]);
        let stacks: Vec<(Vec<String>, i64)> =
            rows(&uploads, 1, 30).iter().map(|row| (form.frames(row), row.2)).collect();
        let path: Vec<String> = match stacks.is_empty() {
            true => Vec::new(),
            false => pick.get(&stacks).0.iter().take(depth).cloned().collect(),
        };
        let below: Vec<(Vec<String>, i64)> = stacks
            .iter()
            .filter(|(frames, _)| frames.starts_with(&path))
            .map(|(frames, value)| (frames[path.len()..].to_vec(), *value))
            .collect();
        let request =
            GraphRequest { path: path.clone(), skip, max_nodes: nodes, ..form.request(1, 30) };
        let whole = ask(querier.graph(&both(), GraphRequest { max_nodes: 0, ..request.clone() })).unwrap();
        let graph = ask(querier.graph(&both(), request.clone())).unwrap();
        prop_assert_eq!(graph.total, stacks.iter().map(|(_, value)| value).sum::<i64>());
        prop_assert_eq!((graph.full_nodes, graph.root_callees), (whole.full_nodes, whole.root_callees));
        let model = model(&below);
        let whole = decode(&whole);
        let found = decode(&graph);
        prop_assert_eq!(found.len(), whole.len().min(nodes as usize + 1));
        // The heaviest callees stay, and further ones follow in the order of `skip`.
        let skip_shown = skip + graph.callees[0];
        let rest = ask(querier.graph(&both(), GraphRequest { max_nodes: 0, skip: skip_shown, ..request })).unwrap();
        let rest = decode(&rest);
        let hidden: i64 = callees(&rest).map(|path| rest[path].total).sum();
        prop_assert_eq!(found[""].truncated, hidden);
        let mut shown: Vec<&String> = callees(&found).chain(callees(&rest)).collect();
        shown.sort_unstable();
        prop_assert_eq!(shown, callees(&whole).collect::<Vec<_>>());
        for (path, node) in &found {
            let expected = &whole[path];
            prop_assert_eq!((node.self_value, node.total), (expected.self_value, expected.total));
            // Skipped callees are missing at the root only.
            if !path.is_empty() {
                prop_assert_eq!((node.self_value, node.total), model.get(path).copied().unwrap_or_default());
            }
        }
        if skip == 0 {
            let total = below.iter().map(|(_, value)| value).sum::<i64>();
            prop_assert_eq!(found[""].total, total);
        }
    }
}

/// Returns the paths of the callees of the root.
fn callees(nodes: &BTreeMap<String, Node>) -> impl Iterator<Item = &String> {
    nodes.keys().filter(|path| path.matches('/').count() == 1)
}

#[test]
fn graph_of_equally_heavy_nodes_is_bounded() {
    let rows = (0..5).map(|function| (vec![(function, 1)], 10)).collect();
    let uploads = [Upload { pod: 1, second: 5, rows, source: 0, tenant: false }];
    let querier = querier_with(QuerierConfig::default(), &uploads, &[]);
    let graph = |max_nodes, skip| {
        let request = GraphRequest { query: query(1, 30), max_nodes, skip, ..GraphRequest::default() };
        decode(&ask(querier.graph(&both(), request)).unwrap())
    };
    let first = graph(2, 0);
    assert_eq!(callees(&first).collect::<Vec<_>>(), ["/f0", "/f1"]);
    assert_eq!((first[""].truncated, first[""].total), (30, 50));
    assert_eq!(callees(&graph(2, 2)).collect::<Vec<_>>(), ["/f2", "/f3"]);
    assert_eq!(callees(&graph(2, 4)).collect::<Vec<_>>(), ["/f4"]);
}

fn busy() -> Vec<Upload> {
    let rows = vec![(vec![(0, 1), (1, 2)], 40), (vec![(0, 1), (2, 2), (2, 3)], 60), (vec![(3, 9)], 20)];
    vec![Upload { pod: 1, second: 5, rows, source: 0, tenant: false }]
}

#[test]
fn names_state_their_file_and_line() {
    let querier = querier_with(QuerierConfig::default(), &busy(), &[]);
    let request = GraphRequest { query: query(1, 30), ..GraphRequest::default() };
    let graph = ask(querier.graph(&both(), request)).unwrap();
    assert_eq!(
        (graph.divisor, graph.profiles, graph.period, graph.unit.as_str()),
        (20, 1, PERIOD, "nanoseconds")
    );
    let graph = DecodedGraph::from_response(&graph).unwrap();
    assert_eq!(graph.names, ["", "f0", "f1", "f2", "f3"]);
    assert_eq!(graph.node_names, [0, 1, 3, 3, 2, 4]);
    assert_eq!(graph.lines, [0, 1, 2, 2, 9]);
    assert_eq!([0, 1, 2, 3, 4].map(|name| graph.file(name)), ["", "a.rs", "a.rs", "a.rs", "a.rs"]);
    assert_eq!([0, 1].map(|name| [graph.binary(name), graph.package(name)]), [["", ""], ["", ""]]);
}

#[test]
fn graph_that_cannot_be_is_rejected() {
    let querier = querier_with(QuerierConfig::default(), &busy(), &[]);
    let message = |request: GraphRequest| ask(querier.graph(&both(), request)).unwrap_err().message;
    let valid = || GraphRequest { query: query(1, 30), ..GraphRequest::default() };
    let both_groupings = GraphRequest { group_by: 1, group_by_label: "pod".to_owned(), ..valid() };
    assert!(message(both_groupings).contains("use one of both"));
    assert!(message(GraphRequest { group_by: 77, ..valid() }).contains("group_by is 77"));
    assert!(message(GraphRequest { max_nodes: 1 << 40, ..valid() }).contains("max_flamegraph_nodes_max"));
    assert!(message(GraphRequest::default()).contains("no query"));
    let missing = GraphRequest { path: vec!["no such function".to_owned()], ..valid() };
    let graph = ask(querier.graph(&both(), missing)).unwrap();
    assert_eq!((graph.callees, graph.total, graph.full_nodes), (vec![0], 120, 0));
}
