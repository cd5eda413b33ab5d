//! Columns of graphs both ways. Any bytes as a response: rejected, or one tree. Any tree: encoded columns come back.
//!
//! An odd first byte selects the bytes of a response, an even one a tree: each byte after it adds a callee or returns to
//! the caller.
#![no_main]

use athanor_profile::Dictionary;
use athanor_profile::analysis::frame_origins::FrameOrigins;
use athanor_profile::call_tree::tree::{FrameGrouping, GraphColumns, Tree, TreeBuilder};
use athanor_profile::data_model::symbols::{Function, Line, Mapping};
use athanor_proto::athanor::v1::GraphResponse;
use athanor_querier::{DecodedGraph, encode_graph};
use libfuzzer_sys::fuzz_target;
use prost::Message;

const NAMES: [&str; 8] = ["", "main", "main.run", "main.ü", "größe", "std::sort<a>", "std::sort<b>", "日本"];
/// Files of functions. Some state a package that is not a part of the function's name.
const FILES: [&str; 5] =
    ["", "main.go", "src/größe.rs", "lib/node_modules/lodash/map.js", "web/node_modules/größe/a.js"];
const BINARIES: [&str; 3] = ["", "/bin/shop", "/lib/größe.so"];

/// Number of repetitions of a long name, which shares more bytes than a text may state.
const LONG_NAME_REPEATS: usize = 40;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    match first % 2 {
        1 => decode(rest),
        _ => encode(&tree_from_bytes(rest), usize::from(first / 2), rest),
    }
});

/// Decodes bytes of a response. Columns that are accepted describe one tree.
fn decode(bytes: &[u8]) {
    let Ok(response) = GraphResponse::decode(bytes) else { return };
    let Ok(graph) = DecodedGraph::from_response(&response) else { return };
    assert_eq!(graph.totals.len(), response.callees.len());
    for name in 0..graph.names.len() {
        let _ = [graph.file(name), graph.binary(name), graph.package(name)];
    }
    if graph.parents.is_empty() {
        return;
    }
    encode(&tree_of_columns(&graph), usize::MAX, bytes);
}

/// Encodes a tree with origins from bytes, and compares the decoded columns with both.
fn encode(tree: &Tree, max_nodes: usize, origin_bytes: &[u8]) {
    let mut tree = tree.clone();
    tree.truncate(max_nodes);
    let origins = origins_from_bytes(&tree, origin_bytes);
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
    for (name, text) in graph.names.iter().enumerate() {
        let origin = origins.get(text);
        assert_eq!(graph.file(name), origin.file);
        assert_eq!(graph.binary(name), origin.binary);
        assert_eq!(graph.package(name), origin.package);
        assert_eq!(graph.lines[name], u32::try_from(origin.line).unwrap_or(0));
    }
    if tree.nodes().iter().all(|node| !node.other) {
        assert_eq!(tree_of_columns(&graph), tree);
    }
}

/// Returns origins of the names of a tree. A byte selects the file, the binary and the line of each name.
fn origins_from_bytes(tree: &Tree, bytes: &[u8]) -> FrameOrigins {
    let mut dictionary = Dictionary::default();
    let mut totals: Vec<i64> = Vec::new();
    for (name, &byte) in tree.names().iter().zip(bytes.iter().cycle()) {
        let Dictionary { symbols, stacks, .. } = &mut dictionary;
        let name = symbols.strings.intern(name);
        let filename = symbols.strings.intern(FILES[usize::from(byte) % FILES.len()]);
        let start_line = i64::from(byte) - 8;
        let function = symbols.intern_function(Function { name, system_name: 0, filename, start_line });
        let filename = symbols.strings.intern(BINARIES[usize::from(byte >> 4) % BINARIES.len()]);
        let mapping = Mapping { start: 0, size: 0, offset: 0, filename, build_id: 0, flags: 0 };
        let mapping = symbols.intern_mapping(mapping);
        let location = symbols.intern_location(mapping, 0, false, &[Line { function, line: 1, column: 0 }]);
        let stack = stacks.intern(symbols, &[location]) as usize;
        totals.resize(totals.len().max(stack + 1), 0);
        totals[stack] = 1;
    }
    FrameOrigins::from_totals(&dictionary, &totals, FrameGrouping::Function)
}

/// Returns the tree of the self values of columns.
fn tree_of_columns(graph: &DecodedGraph) -> Tree {
    let mut builder = TreeBuilder::default();
    let mut places = vec![TreeBuilder::ROOT_NODE];
    builder.add(TreeBuilder::ROOT_NODE, graph.self_values[0]);
    for node in 1..graph.parents.len() {
        let name = builder.name(graph.name(node));
        let place = builder.child(places[graph.parents[node] as usize], name);
        builder.add(place, graph.self_values[node]);
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
