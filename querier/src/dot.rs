//! Call graphs in DOT, numbered as readers of pprof's graphs expect: `N1 [label="main\n…"]`, `N1 -> N2`.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use athanor_profile::printable::shortened;
use athanor_profile::table::{Table, Weights, weigh};
use athanor_profile::tree::Tree;
use athanor_profile::units::human;

/// The most functions of a graph: more cannot be laid out.
const MAX_FUNCTIONS: usize = 2_000;

/// The `max_nodes` functions that weigh most and the calls between them; a call through functions that are left
/// out is dotted. Nothing if there is no function.
pub(crate) fn write(tree: &Tree, unit: &str, max_nodes: usize) -> String {
    let table = Table::of_tree(tree);
    let mut rows: Vec<_> = table.rows.iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.cum.unsigned_abs()));
    rows.truncate(max_nodes.min(MAX_FUNCTIONS));
    if rows.is_empty() {
        return String::new();
    }
    let numbers: HashMap<&str, usize> = rows.iter().map(|row| row.name.as_str()).zip(1..).collect();
    let total = tree.total();
    let mut text = String::from("digraph \"unnamed\" {\nnode [style=filled fillcolor=\"#f8f8f8\"]\n");
    // Writing to a string cannot fail.
    for (row, number) in rows.iter().zip(1..) {
        let share = |value: i64| format!("{} ({})", human(value, unit), percent(value, total));
        let value = match (row.flat, row.cum) {
            (flat, cum) if flat == cum => share(flat),
            (0, cum) => format!("0 of {}", share(cum)),
            (flat, cum) => format!("{}\\nof {}", share(flat), share(cum)),
        };
        let (name, cum) = (escape(&shortened(&row.name)), human(row.cum, unit));
        let _ = writeln!(
            text,
            "N{number} [label=\"{name}\\n{value}\" id=\"node{number}\" shape=box tooltip=\"{name} ({cum})\"]"
        );
    }
    for ((caller, callee), call) in calls(tree, &numbers) {
        let (value, style) = (human(call.value, unit), if call.is_direct { "" } else { " style=\"dotted\"" });
        let _ = writeln!(text, "N{caller} -> N{callee} [label=\" {value}\"{style}]");
    }
    text.push_str("}\n");
    text
}

/// The `max_nodes` functions that weigh most on both sides together, and the calls between them, with what they weigh
/// before and after. What grew is red, what shrank is green. Nothing if there is no function.
pub(crate) fn write_diff(left: &Tree, right: &Tree, unit: &str, max_nodes: usize) -> String {
    let mut sides: BTreeMap<&str, [Weights; 2]> = BTreeMap::new();
    for (side, tree) in [left, right].into_iter().enumerate() {
        weigh(tree).into_iter().for_each(|(name, weights)| sides.entry(name).or_default()[side] = weights);
    }
    let weight =
        |sides: &[Weights; 2]| sides[0].cum.unsigned_abs().saturating_add(sides[1].cum.unsigned_abs());
    let mut rows: Vec<(&str, [Weights; 2])> = sides.into_iter().collect();
    rows.sort_by_key(|(_, sides)| std::cmp::Reverse(weight(sides)));
    rows.truncate(max_nodes.min(MAX_FUNCTIONS));
    if rows.is_empty() {
        return String::new();
    }
    let numbers: HashMap<&str, usize> = rows.iter().map(|row| row.0).zip(1..).collect();
    let mut text = String::from("digraph \"unnamed\" {\nnode [style=filled fillcolor=\"#f8f8f8\"]\n");
    // Writing to a string cannot fail.
    for ((name, sides), number) in rows.iter().zip(1..) {
        let [flat, cum] =
            [sides.map(|side| side.flat), sides.map(|side| side.cum)].map(|values| change(values, unit));
        let (name, color) = (escape(&shortened(name)), color(sides.map(|side| side.cum)));
        let _ = writeln!(
            text,
            "N{number} [label=\"{name}\\n{flat}\\nof {cum}\" id=\"node{number}\" shape=box color=\"{color}\" tooltip=\"{name} ({cum})\"]"
        );
    }
    let mut both: BTreeMap<(usize, usize), ([i64; 2], bool)> = BTreeMap::new();
    for (side, tree) in [left, right].into_iter().enumerate() {
        for (pair, call) in calls(tree, &numbers) {
            let (values, is_direct) = both.entry(pair).or_default();
            values[side] = call.value;
            *is_direct |= call.is_direct;
        }
    }
    for ((caller, callee), (values, is_direct)) in both {
        let (value, color) = (change(values, unit), color(values));
        let style = if is_direct { "" } else { " style=\"dotted\"" };
        let _ = writeln!(text, "N{caller} -> N{callee} [label=\" {value}\" color=\"{color}\"{style}]");
    }
    text.push_str("}\n");
    text
}

/// A value before and after.
fn change(values: [i64; 2], unit: &str) -> String {
    let [before, after] = values.map(|value| human(value, unit));
    if before == after { after } else { format!("{before} -> {after}") }
}

fn color(values: [i64; 2]) -> &'static str {
    match values[1].cmp(&values[0]) {
        Ordering::Greater => "#b2182b",
        Ordering::Less => "#1b7837",
        Ordering::Equal => "#777777",
    }
}

struct Call {
    value: i64,
    is_direct: bool,
}

/// The calls between functions that are shown.
fn calls(tree: &Tree, numbers: &HashMap<&str, usize>) -> BTreeMap<(usize, usize), Call> {
    let mut calls: BTreeMap<(usize, usize), Call> = BTreeMap::new();
    // The nearest function at or above each node that is shown.
    let mut nearest: Vec<Option<usize>> = Vec::with_capacity(tree.nodes().len());
    for (at, node) in tree.nodes().iter().enumerate() {
        let above = nearest.get(node.parent as usize).copied().flatten();
        let number = numbers.get(tree.name(node)).copied().filter(|_| at > 0 && !node.other);
        if let (Some(caller), Some(callee)) = (above, number) {
            let parent = &tree.nodes()[node.parent as usize];
            let is_direct = numbers.get(tree.name(parent)) == Some(&caller);
            let call = calls.entry((caller, callee)).or_insert(Call { value: 0, is_direct: false });
            call.value = call.value.wrapping_add(node.total);
            call.is_direct |= is_direct;
        }
        nearest.push(number.or(above));
    }
    calls
}

fn percent(value: i64, total: i64) -> String {
    if value == total || total == 0 {
        return "100%".to_owned();
    }
    format!("{:.2}%", 100.0 * value as f64 / total as f64)
}

/// For within double quotes; a line break would end the statement in some readers.
fn escape(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use athanor_profile::Dictionary;

    use super::*;

    #[test]
    fn functions_are_numbered_and_calls_through_hidden_ones_are_dotted() {
        let mut dictionary = Dictionary::default();
        for path in ["main;hidden;a\"", "main;b"] {
            dictionary.named_stack(path.split(';'));
        }
        let tree = Tree::from_totals(&dictionary, &[3, 1]);
        let text = write(&tree, "count", 4);
        assert!(text.contains("N1 [label=\"main\\n0 of 4 (100%)\" id=\"node1\""), "{text}");
        assert!(text.contains("[label=\"a\\\"\\n3 (75.00%)\""), "{text}");
        assert!(!text.contains("dotted"), "{text}");
        let hidden = HashMap::from([("main", 1), ("a\"", 2)]);
        let calls = calls(&tree, &hidden);
        assert!(!calls[&(1, 2)].is_direct && calls[&(1, 2)].value == 3 && calls.len() == 1);
        assert!(write(&Tree::default(), "count", 9).is_empty());
        dictionary.named_stack(["f".repeat(60_000).as_str()].into_iter());
        let text = write(&Tree::from_totals(&dictionary, &[3, 1, 9]), "count", 4);
        assert!(text.contains("fff…\\n9 ") && text.len() < 4_000, "{}", text.len());
    }

    #[test]
    fn a_difference_shows_both_sides() {
        let tree = |stacks: &[(&str, i64)]| {
            let mut dictionary = Dictionary::default();
            for (path, _) in stacks {
                dictionary.named_stack(path.split(';'));
            }
            Tree::from_totals(&dictionary, &stacks.iter().map(|(_, value)| *value).collect::<Vec<_>>())
        };
        let (left, right) = (tree(&[("main;a", 3), ("main;b", 2)]), tree(&[("main;a", 1), ("main;c", 4)]));
        let text = write_diff(&left, &right, "count", 9);
        for line in [
            "N1 [label=\"main\\n0\\nof 5\" id=\"node1\" shape=box color=\"#777777\" tooltip=\"main (5)\"]",
            "label=\"a\\n3 -> 1\\nof 3 -> 1\"",
            "[label=\" 0 -> 4\" color=\"#b2182b\"]",
            "[label=\" 2 -> 0\" color=\"#1b7837\"]",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        assert_eq!(write_diff(&left, &right, "count", 1).matches("label").count(), 1);
        assert!(write_diff(&Tree::default(), &Tree::default(), "count", 9).is_empty());
    }
}
