//! Columns of graphs both ways. Any bytes as a response: rejected, or one tree. Any tree: encoded columns come back.
//!
//! An odd first byte selects the bytes of a response, an even one a tree: each byte after it adds a callee or returns to
//! the caller.
#![no_main]

use athanor_profile::Dictionary;
use athanor_profile::analysis::frame_origins::FrameOrigins;
use athanor_profile::call_tree::tree::{FrameGrouping, GraphColumns, Tree, TreeBuilder};
use athanor_proto::athanor::v1::GraphResponse;
use athanor_querier::{DecodedGraph, encode_graph};
use libfuzzer_sys::fuzz_target;
use prost::Message;

const NAMES: [&str; 8] = ["", "main", "main.run", "main.ü", "größe", "std::sort<a>", "std::sort<b>", "日本"];
/// Number of repetitions of a long name, which shares more bytes than a text may state.
const LONG_NAME_REPEATS: usize = 40;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    match first % 2 {
        1 => decode(rest),
        _ => encode(&tree_from_bytes(rest), usize::from(first / 2)),
    }
});

/// Decodes bytes of a response. Columns that are accepted describe one tree.
fn decode(bytes: &[u8]) {
    let Ok(response) = GraphResponse::decode(bytes) else { return };
    let Ok(graph) = DecodedGraph::from_response(&response) else { return };
    assert_eq!(graph.totals.len(), response.callees.len());
    for name in 0..graph.names.len() {
        assert!(graph.names[name].starts_with(graph.package(name)) || response.name_package[name] % 2 == 1);
        let _ = (graph.file(name), graph.binary(name));
    }
    if graph.parents.is_empty() {
        return;
    }
    encode(&tree_of_columns(&graph), usize::MAX);
}

/// Encodes a tree and compares the decoded columns with it.
fn encode(tree: &Tree, max_nodes: usize) {
    let mut tree = tree.clone();
    tree.truncate(max_nodes);
    let origins = FrameOrigins::from_totals(&Dictionary::default(), &[], FrameGrouping::Function);
    let bytes = encode_graph(GraphColumns::from_tree(&tree), &origins).encode_to_vec();
    let response = GraphResponse::decode(&bytes[..]).expect("what was encoded is decoded");
    if tree.has_overflow() {
        // Sums of such a tree wrap, so its columns are rejected or have other totals.
        let _ = DecodedGraph::from_response(&response);
        return;
    }
    let graph = DecodedGraph::from_response(&response).expect("columns of a tree are valid");
    assert_eq!(graph.totals[0], tree.total());
    assert_eq!(graph.truncated.iter().sum::<i64>(), tree.truncated_total());
    if tree.nodes().iter().all(|node| !node.other) {
        assert_eq!(tree_of_columns(&graph), tree);
    }
}

/// Returns the tree of the self values of columns.
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

/// Returns the tree that bytes describe: a name to descend to, a value to add, or the way back to the root.
fn tree_from_bytes(bytes: &[u8]) -> Tree {
    let mut builder = TreeBuilder::default();
    let mut node = TreeBuilder::ROOT_NODE;
    for &byte in bytes {
        let argument = byte >> 2;
        match byte & 3 {
            0 | 1 => {
                let name = NAMES[usize::from(argument) % NAMES.len()].repeat(match byte & 1 {
                    0 => 1,
                    _ => LONG_NAME_REPEATS + usize::from(argument) / NAMES.len(),
                });
                let name = builder.name(&name);
                node = builder.child(node, name);
            }
            2 => builder.add(node, (i64::from(argument) - 8) << (argument % 61)),
            _ => node = TreeBuilder::ROOT_NODE,
        }
    }
    builder.finish()
}
