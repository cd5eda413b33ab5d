//! Call graphs in DOT, for Graphviz, numbered as readers of pprof's graphs expect: `N1 [label="main\n…"]`, `N1 -> N2`.
//!
//! A graph has the functions that weigh most and the calls between them; where there are more functions, it says so. A
//! call through functions that are left out is dotted. As with functions, a stack in which a call recurs counts once.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use crate::printable::shortened;
use crate::table::{Weights, weigh};
use crate::tree::Tree;
use crate::units::human;

/// What a function or a call shows.
struct Shown {
    text: String,
    /// The value with all that was called, shorter.
    short: String,
    color: Option<&'static str>,
}

/// A call from one function to another, by what it weighs in each tree.
struct Call<const N: usize> {
    values: [i64; N],
    is_direct: bool,
}

/// A function, and what it weighs in each tree.
type Function<'t, const N: usize> = (&'t str, [Weights; N]);

/// The call graph of at most `max_nodes` functions. Nothing if there is none.
pub fn write(tree: &Tree, unit: &str, max_nodes: usize) -> String {
    let total = tree.total();
    let share = |value: i64| format!("{} ({})", human(value, unit), percent(value, total));
    let function = |[Weights { flat, cum }]: [Weights; 1]| Shown {
        text: match (flat, cum) {
            (flat, cum) if flat == cum => share(flat),
            (0, cum) => format!("0 of {}", share(cum)),
            (flat, cum) => format!("{}\\nof {}", share(flat), share(cum)),
        },
        short: human(cum, unit),
        color: None,
    };
    let call = |[value]: [i64; 1]| Shown { text: human(value, unit), short: String::new(), color: None };
    graph([tree], max_nodes, function, call)
}

/// The call graph of at most `max_nodes` functions, those that weigh most on both sides together, with what they weigh
/// before and after. What grew is red, what shrank is green. Nothing if there is no function.
pub fn write_diff(left: &Tree, right: &Tree, unit: &str, max_nodes: usize) -> String {
    let function = |sides: [Weights; 2]| {
        let (flat, cum) = (sides.map(|side| side.flat), sides.map(|side| side.cum));
        let short = change(cum, unit);
        Shown { text: format!("{}\\nof {short}", change(flat, unit)), short, color: Some(color(cum)) }
    };
    let call = |values: [i64; 2]| Shown {
        text: change(values, unit),
        short: String::new(),
        color: Some(color(values)),
    };
    graph([left, right], max_nodes, function, call)
}

fn graph<const N: usize>(
    trees: [&Tree; N],
    max_nodes: usize,
    show: impl Fn([Weights; N]) -> Shown,
    show_call: impl Fn([i64; N]) -> Shown,
) -> String {
    let mut functions = heaviest(trees);
    let all = functions.len();
    functions.truncate(max_nodes);
    if functions.is_empty() {
        return String::new();
    }
    let mut text = String::from("digraph \"unnamed\" {\nnode [style=filled fillcolor=\"#f8f8f8\"]\n");
    let color = |color: Option<&str>| color.map_or(String::new(), |color| format!(" color=\"{color}\""));
    // Writing to a string cannot fail.
    if functions.len() < all {
        let _ = writeln!(text, "graph [label=\"{} of {all} functions\" labelloc=t]", functions.len());
    }
    for ((name, weights), number) in functions.iter().zip(1..) {
        let (name, shown) = (escape(&shortened(name)), show(*weights));
        let Shown { text: value, short, .. } = &shown;
        let color = color(shown.color);
        let _ = writeln!(
            text,
            "N{number} [label=\"{name}\\n{value}\" id=\"node{number}\" shape=box{color} tooltip=\"{name} ({short})\"]"
        );
    }
    for ((caller, callee), Call { values, is_direct }) in calls(trees, &functions) {
        let shown = show_call(values);
        let (value, color) = (shown.text, color(shown.color));
        let style = if is_direct { "" } else { " style=\"dotted\"" };
        let _ = writeln!(text, "N{caller} -> N{callee} [label=\" {value}\"{color}{style}]");
    }
    text.push_str("}\n");
    text
}

/// All functions, those first that weigh most in all trees together.
fn heaviest<const N: usize>(trees: [&Tree; N]) -> Vec<Function<'_, N>> {
    let mut functions: BTreeMap<&str, [Weights; N]> = BTreeMap::new();
    for (at, tree) in trees.into_iter().enumerate() {
        let weights = weigh(tree).into_iter();
        weights.for_each(|(name, of)| functions.entry(name).or_insert([Weights::default(); N])[at] = of);
    }
    let mut functions: Vec<Function<'_, N>> = functions.into_iter().collect();
    let sum = |weights: &[Weights; N], of: fn(&Weights) -> i64| {
        weights.iter().fold(0u64, |sum, weights| sum.saturating_add(of(weights).unsigned_abs()))
    };
    functions
        .sort_by_key(|(_, of)| Reverse((sum(of, |weights| weights.cum), sum(of, |weights| weights.flat))));
    functions
}

/// The calls between functions, which are numbered from 1 on.
fn calls<const N: usize>(
    trees: [&Tree; N],
    functions: &[Function<'_, N>],
) -> BTreeMap<(usize, usize), Call<N>> {
    let numbers: HashMap<&str, usize> = functions.iter().map(|(name, _)| *name).zip(1..).collect();
    let mut calls = BTreeMap::new();
    for (at, tree) in trees.into_iter().enumerate() {
        let of_names: Vec<Option<usize>> =
            tree.names().iter().map(|name| numbers.get(&**name).copied()).collect();
        add_calls(tree, &of_names, |pair, value, is_direct| {
            let call: &mut Call<N> = calls.entry(pair).or_insert(Call { values: [0; N], is_direct: false });
            call.values[at] = call.values[at].wrapping_add(value);
            call.is_direct |= is_direct;
        });
    }
    calls
}

/// Gives the calls of a tree, of whom, what each weighs and whether nothing that is left out lies between; a call below
/// one of the same functions weighs nothing.
fn add_calls(tree: &Tree, of_names: &[Option<usize>], mut add: impl FnMut((usize, usize), i64, bool)) {
    let nodes = tree.nodes();
    let number = |at: u32| {
        let node = &nodes[at as usize];
        of_names.get(node.name as usize).copied().flatten().filter(|_| at > 0 && !node.other)
    };
    // The nearest function at or above each node that is shown.
    let mut nearest: Vec<Option<usize>> = vec![None; nodes.len()];
    let mut open: HashMap<(usize, usize), usize> = HashMap::new();
    let mut walk: Vec<(u32, bool)> = tree.children(0).map(|child| (child, true)).collect();
    while let Some((at, enter)) = walk.pop() {
        let node = &nodes[at as usize];
        let (above, here) = (nearest[node.parent as usize], number(at));
        if let Some(pair) = above.zip(here) {
            let open = open.entry(pair).or_default();
            if !enter {
                *open -= 1;
                continue;
            }
            let value = if *open == 0 { node.total } else { 0 };
            add(pair, value, number(node.parent) == above);
            *open += 1;
            walk.push((at, false));
        }
        nearest[at as usize] = here.or(above);
        walk.extend(tree.children(at).map(|child| (child, true)));
    }
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
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::tree::tests::tree;

    #[test]
    fn functions_are_numbered_and_calls_through_hidden_ones_are_dotted() {
        let whole = tree(&[("main;hidden;a\"\\", 3), ("main;b", 1)]);
        let text = write(&whole, "count", 4);
        assert!(text.contains("N1 [label=\"main\\n0 of 4 (100%)\" id=\"node1\""), "{text}");
        assert!(text.contains("[label=\"a\\\"\\\\\\n3 (75.00%)\""), "{text}");
        assert!(!text.contains("dotted") && !text.contains("functions"), "{text}");
        let text = write(&whole, "count", 2);
        assert!(text.contains("graph [label=\"2 of 4 functions\" labelloc=t]"), "{text}");
        assert!(text.contains("N1 -> N2 [label=\" 3\" style=\"dotted\"]"), "{text}");
        assert!(write(&Tree::default(), "count", 9).is_empty());
        let text = write(&tree(&[(&"f".repeat(60_000), 9), ("main", 1)]), "count", 4);
        assert!(text.contains("fff…\\n9 ") && text.len() < 4_000, "{}", text.len());
    }

    #[test]
    fn a_difference_shows_both_sides() {
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
        assert_eq!(write_diff(&left, &right, "count", 1).matches("N1").count(), 1);
        assert!(write_diff(&Tree::default(), &Tree::default(), "count", 9).is_empty());
    }

    #[test]
    fn a_stack_in_which_a_call_recurs_counts_once() {
        let recursive = tree(&[("main;a;b;a;b", 3), ("main;a;a;a", 4)]);
        let text = write(&recursive, "count", 9);
        // Numbered: a, main, b.
        let calls = ["N2 -> N1 [label=\" 7\"]", "N1 -> N3 [label=\" 3\"]", "N3 -> N1 [label=\" 3\"]"];
        for line in calls.into_iter().chain(["N1 -> N1 [label=\" 4\"]"]) {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        assert!(write_diff(&recursive, &recursive, "count", 9).contains("N1 -> N3 [label=\" 3\" color"));
    }

    proptest! {
        #[test]
        fn calls_are_those_of_all_stacks(
            stacks in prop::collection::vec((prop::collection::vec(0..5u8, 1..8), 1..100i64), 0..12),
            shown in 1..6usize,
        ) {
            let path = |frames: &[u8]| frames.iter().map(|frame| format!("f{frame}")).collect::<Vec<_>>().join(";");
            let paths: Vec<(String, i64)> = stacks.iter().map(|(frames, value)| (path(frames), *value)).collect();
            let paths: Vec<(&str, i64)> = paths.iter().map(|(path, value)| (path.as_str(), *value)).collect();
            let tree = tree(&paths);
            let mut functions = heaviest([&tree]);
            functions.truncate(shown);
            let number = |frame: &u8| functions.iter().position(|(name, _)| *name == format!("f{frame}"));
            let (mut expected, mut direct) = (BTreeMap::new(), BTreeSet::new());
            for (frames, value) in &stacks {
                let numbers: Vec<Option<usize>> = frames.iter().map(number).collect();
                let seen: Vec<usize> = numbers.iter().flatten().map(|at| at + 1).collect();
                let pairs: BTreeSet<(usize, usize)> = seen.windows(2).map(|two| (two[0], two[1])).collect();
                pairs.into_iter().for_each(|pair| *expected.entry(pair).or_insert(0) += value);
                let pairs = numbers.windows(2).filter_map(|two| Some((two[0]? + 1, two[1]? + 1)));
                direct.extend(pairs);
            }
            let found = calls([&tree], &functions);
            let values: BTreeMap<(usize, usize), i64> = found.iter().map(|(pair, call)| (*pair, call.values[0])).collect();
            prop_assert_eq!(values, expected);
            let found: BTreeSet<(usize, usize)> = found.into_iter().filter(|(_, call)| call.is_direct).map(|(pair, _)| pair).collect();
            prop_assert_eq!(found, direct);
        }
    }
}
