//! Columns of graphs: encoded ones come back, damaged ones are rejected.

use std::collections::BTreeSet;

use athanor_profile::Dictionary;
use athanor_profile::analysis::frame_origins::FrameOrigins;
use athanor_profile::call_tree::tree::{FrameGrouping, GraphColumns, Tree, TreeBuilder};
use athanor_proto::athanor::v1::{GraphResponse, TextTable};
use athanor_querier::{DecodedGraph, GraphFormatError, encode_graph};
use proptest::prelude::*;
use prost::Message;

fn any_tree() -> impl Strategy<Value = Tree> {
    let value = prop_oneof![-9..9i64, Just(10_000_000), 0..i64::MAX / 32];
    let stack = (prop::collection::vec("[ab]{0,2}(ä|/日)?c{0,2}", 0..5), value);
    (prop::collection::vec(stack, 0..12), 0..20usize).prop_map(|(stacks, most)| {
        let mut builder = TreeBuilder::default();
        for (path, value) in stacks {
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

fn encode(tree: &Tree) -> GraphResponse {
    let origins = FrameOrigins::from_totals(&Dictionary::default(), &[], FrameGrouping::Function);
    encode_graph(GraphColumns::from_tree(tree), &origins)
}

/// Returns a tree without truncated nodes from its decoded columns.
fn tree_of_columns(graph: &DecodedGraph) -> Tree {
    let mut builder = TreeBuilder::default();
    let mut places = vec![TreeBuilder::ROOT_NODE];
    builder.add(TreeBuilder::ROOT_NODE, graph.self_values[0]);
    for at in 1..graph.parents.len() {
        let name = builder.name(graph.name(at));
        let place = builder.child(places[graph.parents[at] as usize], name);
        builder.add(place, graph.self_values[at]);
        places.push(place);
    }
    builder.finish()
}

proptest! {
    #[test]
    fn encoded_columns_come_back(tree in any_tree()) {
        let response = encode(&tree);
        let graph = DecodedGraph::from_response(&response).unwrap();
        prop_assert_eq!(graph.totals[0], tree.total());
        prop_assert_eq!(graph.truncated.iter().sum::<i64>(), tree.truncated_total());
        if tree.nodes().iter().all(|node| !node.other) {
            prop_assert_eq!(tree_of_columns(&graph), tree);
        }
    }

    #[test]
    fn front_coded_texts_come_back(texts in prop::collection::btree_set("(a{0,300}|[abäß日]{0,6}){1,3}", 0..20)) {
        let mut builder = TreeBuilder::default();
        for text in &texts {
            let name = builder.name(text);
            let node = builder.child(TreeBuilder::ROOT_NODE, name);
            builder.add(node, 1);
        }
        let response = encode(&builder.finish());
        prop_assert!(response.names.as_ref().unwrap().shared.iter().all(|&shared| shared <= 255));
        let graph = DecodedGraph::from_response(&response).unwrap();
        let expected: BTreeSet<String> = texts.into_iter().chain([String::new()]).collect();
        prop_assert_eq!(graph.names, expected.into_iter().collect::<Vec<String>>());
    }

    #[test]
    fn damaged_bytes_are_rejected_or_a_graph(
        tree in any_tree(), place in any::<prop::sample::Index>(), byte: u8, length in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encode(&tree).encode_to_vec();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        bytes.truncate(bytes.len() - length.index(bytes.len() / 8 + 1));
        if let Ok(response) = GraphResponse::decode(&bytes[..])
            && let Ok(graph) = DecodedGraph::from_response(&response)
        {
            prop_assert_eq!(graph.totals.len(), response.callees.len());
        }
    }
}

fn table(text: &str, shared: &[u32], rest: &[u32]) -> TextTable {
    TextTable { text: text.to_owned(), shared: shared.to_vec(), rest: rest.to_vec() }
}

fn valid() -> GraphResponse {
    let mut builder = TreeBuilder::default();
    for (path, value) in [(["main", "main.ä"], 40), (["main", "malloc"], 60)] {
        let node = path.iter().fold(TreeBuilder::ROOT_NODE, |caller, name| {
            let name = builder.name(name);
            builder.child(caller, name)
        });
        builder.add(node, value);
    }
    encode(&builder.finish())
}

#[test]
fn malformed_columns_are_rejected() {
    type Damage = fn(&mut GraphResponse);
    assert_eq!(valid().names.unwrap(), table("main.älloc", &[0, 0, 4, 2], &[0, 4, 3, 4]));
    let cases: [(&str, Damage); 18] = [
        ("too few names of nodes", |graph| graph.name.truncate(1)),
        ("name beyond the table", |graph| graph.name[0] = 4),
        ("second root", |graph| graph.callees[0] = 0),
        ("missing callee", |graph| graph.callees[3] = 1),
        ("callees beyond the nodes", |graph| graph.callees[3] = u32::MAX),
        ("divisor 0", |graph| graph.divisor = 0),
        ("negative divisor", |graph| graph.divisor = -1),
        ("gap beyond the nodes", |graph| graph.self_gap[1] = u32::MAX),
        ("fewer gaps than values", |graph| graph.self_gap.truncate(1)),
        ("value 0", |graph| graph.self_[0] = 0),
        ("value beyond 64 bits", |graph| graph.self_[0] = i64::MAX),
        ("total beyond 64 bits", |graph| {
            graph.divisor = 1;
            graph.self_ = vec![i64::MAX, i64::MAX];
        }),
        ("truncated without a gap", |graph| graph.truncated.push(1)),
        ("missing line", |graph| graph.name_line.truncate(3)),
        ("file beyond the table", |graph| graph.name_file[1] = 1),
        ("table without the empty text", |graph| graph.files = Some(table("x", &[0], &[1]))),
        ("package longer than the name", |graph| graph.name_package[1] = 10),
        ("package beyond the table", |graph| graph.name_package[1] = 3),
    ];
    for (case, damage) in cases {
        let mut graph = valid();
        DecodedGraph::from_response(&graph).unwrap();
        damage(&mut graph);
        assert!(DecodedGraph::from_response(&graph).is_err(), "{case}");
    }
}

#[test]
fn malformed_texts_are_rejected() {
    let cases = [
        ("first text shares bytes", table("main.älloc", &[1, 0, 4, 2], &[0, 4, 3, 4])),
        ("shares more than the text before has", table("main.älloc", &[0, 0, 5, 2], &[0, 4, 3, 4])),
        ("rest beyond the text", table("main.älloc", &[0, 0, 4, 2], &[0, 4, 3, 5])),
        ("rest of 32 bits", table("main.älloc", &[0, 0, 4, 2], &[0, 4, u32::MAX, 4])),
        ("bytes after the last text", table("main.älloc", &[0, 0, 4, 2], &[0, 4, 3, 3])),
        ("half of a character", table("main.älloc", &[0, 0, 4, 2], &[0, 4, 2, 5])),
        ("shares half of a character", table("main.älloc", &[0, 0, 4, 6], &[0, 4, 3, 4])),
        ("fewer rests", table("main.älloc", &[0, 0, 4, 2], &[0, 4, 3])),
        ("texts out of order", table("main.älloc", &[0, 0, 4, 0], &[0, 4, 3, 4])),
    ];
    for (case, names) in cases {
        let graph = GraphResponse { names: Some(names), ..valid() };
        assert!(DecodedGraph::from_response(&graph).is_err(), "{case}");
    }
    let long = "x".repeat(300);
    let names = table(&[&long, "y"].concat(), &[0, 0, 256, 0], &[0, 300, 0, 1]);
    let error = DecodedGraph::from_response(&GraphResponse { names: Some(names), ..valid() }).unwrap_err();
    let fault = "no beginning of the text before";
    assert_eq!(error, GraphFormatError::Entry { column: "names", entry: 2, fault });
}
