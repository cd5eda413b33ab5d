//! Call graphs in DOT, for Graphviz.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use crate::table::Table;
use crate::tree::Tree;
use crate::units::human;

/// The call graph of the `max_nodes` functions that weigh most, with the calls between them. A call through
/// functions that are left out is left out too; recursion counts once for every call.
pub fn write(tree: &Tree, unit: &str, max_nodes: usize) -> String {
    let table = Table::of_tree(tree);
    let mut rows: Vec<_> = table.rows.iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.cum.unsigned_abs()));
    rows.truncate(max_nodes);
    let shown: HashSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    let mut calls: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for node in tree.nodes().iter().filter(|node| !node.other) {
        let Some(caller) = tree.nodes().get(node.parent as usize) else { continue };
        let call = (tree.name(caller), tree.name(node));
        if caller.parent != crate::symbols::NONE && shown.contains(call.0) && shown.contains(call.1) {
            let total = calls.entry(call).or_default();
            *total = total.wrapping_add(node.total);
        }
    }
    let mut text = String::from("digraph profile {\n  node [shape=box];\n");
    // Writing to a string cannot fail.
    for row in &rows {
        let (flat, cum) = (human(row.flat, unit), human(row.cum, unit));
        let name = escape(&row.name);
        let _ = writeln!(text, "  \"{name}\" [label=\"{name}\\n{flat} of {cum}\"];");
    }
    for ((caller, callee), total) in calls {
        let (caller, callee, total) = (escape(caller), escape(callee), human(total, unit));
        let _ = writeln!(text, "  \"{caller}\" -> \"{callee}\" [label=\"{total}\"];");
    }
    text.push_str("}\n");
    text
}

/// For within double quotes; a line break would end the statement in some readers.
fn escape(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn the_heaviest_functions_and_the_calls_between_them() {
        let text = write(&tree(&[("main;a\"\\", 2048), ("main;b", 1)]), "bytes", 2);
        let expected = "digraph profile {\n  node [shape=box];\n  \"main\" [label=\"main\\n0 of 2kB\"];\n  \
                        \"a\\\"\\\\\" [label=\"a\\\"\\\\\\n2kB of 2kB\"];\n  \"main\" -> \"a\\\"\\\\\" [label=\"2kB\"];\n}\n";
        assert_eq!(text, expected);
    }
}
