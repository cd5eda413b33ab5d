//! Columns of graphs: encoded ones come back, damaged ones are rejected.

use std::collections::BTreeSet;

use athanor_profile::Dictionary;
use athanor_profile::analysis::frame_origins::FrameOrigins;
use athanor_profile::call_tree::tree::{FrameGrouping, GraphColumns, Tree, TreeBuilder};
use athanor_profile::data_model::symbols::{Function, Line, Mapping};
use athanor_proto::athanor::v1::{GraphResponse, TextTable};
use athanor_querier::{DecodedGraph, GraphFormatError, encode_graph};
use proptest::prelude::*;
use prost::Message;

/// Files of functions. Some state a package that is not a part of the function's name.
const FILES: [&str; 5] =
    ["", "main.go", "src/größe.rs", "lib/node_modules/lodash/map.js", "web/node_modules/größe/a.js"];
const BINARIES: [&str; 3] = ["", "/bin/shop", "/lib/größe.so"];

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

fn encode(tree: &Tree) -> GraphResponse {
    encode_graph(GraphColumns::from_tree(tree), &origins_from_bytes(tree, &[]))
}

/// Returns a tree without truncated nodes from its decoded columns.
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
    fn encoded_origins_come_back(tree in any_tree(), bytes in prop::collection::vec(any::<u8>(), 1..20)) {
        let origins = origins_from_bytes(&tree, &bytes);
        let graph = DecodedGraph::from_response(&encode_graph(GraphColumns::from_tree(&tree), &origins)).unwrap();
        for (name, text) in graph.names.iter().enumerate() {
            let origin = origins.get(text);
            prop_assert_eq!(graph.file(name), origin.file);
            prop_assert_eq!(graph.binary(name), origin.binary);
            prop_assert_eq!(graph.package(name), origin.package);
            prop_assert_eq!(graph.lines[name], u32::try_from(origin.line).unwrap_or(0));
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

#[test]
fn long_texts_of_all_tables_together_are_rejected() {
    const TABLE_BYTES: u32 = 200 << 20;
    let long = table("", &[0], &[TABLE_BYTES]);
    let graph = GraphResponse { names: Some(long.clone()), packages: Some(long), ..valid() };
    let error = DecodedGraph::from_response(&graph).unwrap_err();
    // The file and the binary of all names are empty.
    assert_eq!(error, GraphFormatError::TextBytes { bytes: 2 * u64::from(TABLE_BYTES) });
    let message = "names, files, binaries and packages have 419430400 bytes, the limit is 268435456";
    assert_eq!(error.to_string(), message);
}

#[test]
fn example_of_the_docs_is_what_the_encoder_returns() {
    let mut builder = TreeBuilder::default();
    for (path, value) in [(["main", "main.pay"], 700), (["main", "main.ship"], 200)] {
        let node = path.iter().fold(TreeBuilder::ROOT_NODE, |caller, name| {
            let name = builder.name(name);
            builder.child(caller, name)
        });
        builder.add(node, value);
    }
    let graph = encode(&builder.finish());
    let names = graph.names.unwrap();
    let quoted: Vec<String> = graph.self_.iter().map(i64::to_string).collect();
    let columns = format!(
        "{{\"callees\": {:?}, \"name\": {:?}, \"self\": {quoted:?}, \"selfGap\": {:?}, \"divisor\": \"{}\",\n \
         \"names\": {{\"text\": {:?}, \"shared\": {:?}, \"rest\": {:?}}}}}\n",
        graph.callees, graph.name, graph.self_gap, graph.divisor, names.text, names.shared, names.rest
    );
    assert!(include_str!("../../../docs/users/analysis.md").contains(&columns), "{columns}");
}
