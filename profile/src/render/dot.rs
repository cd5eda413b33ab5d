//! Call graphs in DOT for Graphviz, numbered like pprof's graphs: `N1 [label="main\n…"]`, `N1 -> N2`.
//!
//! A node is a line of a function, as far as lines are known. The graph contains the nodes with the highest
//! scores and the calls between them. If nodes are omitted, a label of the graph contains their number. A
//! call through omitted nodes is dotted.

mod graph;

use std::cmp::Ordering;
use std::fmt::Write;

pub use graph::StackTotals;
use graph::{CallEdge, CallGraph, CallNode, magnitude, printable_name};

use crate::analysis::source_lines::SourceLine;
use crate::render::printable::shorten_name;
use crate::render::units::format_value;

/// Label of a node or a call.
struct DotLabel {
    text: String,
    /// Cumulative value in a shorter form.
    short: String,
    color: Option<&'static str>,
}

/// Returns the call graph of at most `max_nodes` lines of functions; empty without functions.
pub fn write(stacks: StackTotals<'_>, unit: &str, max_nodes: usize) -> String {
    let total = sum(stacks);
    let share = |value: i64| format!("{} ({})", format_value(value, unit), percent(value, total));
    let node = |flat: [i64; 1], cum: [i64; 1]| DotLabel {
        text: match (flat[0], cum[0]) {
            (flat, cum) if flat == cum => share(flat),
            (0, cum) => format!("0 of {}", share(cum)),
            (flat, cum) => format!("{}\\nof {}", share(flat), share(cum)),
        },
        short: format_value(cum[0], unit),
        color: None,
    };
    let call =
        |[value]: [i64; 1]| DotLabel { text: format_value(value, unit), short: String::new(), color: None };
    text([stacks], max_nodes, node, call)
}

/// Returns the call graph of at most `max_nodes` lines of functions of both sides, with both values. Growth
/// is red, decrease is green. Empty without functions.
pub fn write_diff(left: StackTotals<'_>, right: StackTotals<'_>, unit: &str, max_nodes: usize) -> String {
    let node = |flat: [i64; 2], cum: [i64; 2]| {
        let short = change(cum, unit);
        DotLabel { text: format!("{}\\nof {short}", change(flat, unit)), short, color: Some(color(cum)) }
    };
    let call = |values: [i64; 2]| DotLabel {
        text: change(values, unit),
        short: String::new(),
        color: Some(color(values)),
    };
    text([left, right], max_nodes, node, call)
}

fn sum(stacks: StackTotals<'_>) -> i64 {
    stacks.totals.iter().fold(0, |sum, total| sum.wrapping_add(*total))
}

fn text<const N: usize>(
    sides: [StackTotals<'_>; N],
    max_nodes: usize,
    show: impl Fn([i64; N], [i64; N]) -> DotLabel,
    show_call: impl Fn([i64; N]) -> DotLabel,
) -> String {
    let graph = CallGraph::from_sides(&sides, max_nodes);
    if graph.nodes.is_empty() {
        return String::new();
    }
    let mut text = String::from("digraph \"unnamed\" {\nnode [style=filled fillcolor=\"#f8f8f8\"]\n");
    let color = |color: Option<&str>| color.map_or(String::new(), |color| format!(" color=\"{color}\""));
    // Writing to a string cannot fail.
    if graph.nodes.len() < graph.all_nodes {
        let _ =
            writeln!(text, "graph [label=\"{} of {} nodes\" labelloc=t]", graph.nodes.len(), graph.all_nodes);
    }
    let largest = graph.nodes.iter().map(|node| magnitude(&node.flat)).max().unwrap_or_default();
    for (CallNode { place, flat, cum }, number) in graph.nodes.iter().zip(1..) {
        let DotLabel { text: value, short, color: hue } = show(*flat, *cum);
        let label = label(place);
        let name = escape(&shorten_name(&printable_name(place)));
        let _ = writeln!(
            text,
            "N{number} [label=\"{label}\\n{value}\" id=\"node{number}\" fontsize={} shape=box{} tooltip=\"{name} ({short})\"]",
            font_size(magnitude(flat), largest),
            color(hue),
        );
    }
    let total = sides.map(sum).into_iter().map(i64::unsigned_abs).max().unwrap_or_default();
    for CallEdge { caller, callee, values, is_residual } in &graph.edges {
        let caller = caller + 1;
        let callee = callee + 1;
        let DotLabel { text: value, color: hue, .. } = show_call(*values);
        let style = if *is_residual { " style=\"dotted\"" } else { "" };
        let width = width(values, total);
        let _ = writeln!(text, "N{caller} -> N{callee} [label=\" {value}\"{width}{}{style}]", color(hue));
    }
    text.push_str("}\n");
    text
}

/// Returns the function and, on a second line, its file and line number.
fn label(place: &SourceLine<'_>) -> String {
    let name = escape(&shorten_name(&place.function));
    let file = place.file.rsplit(['/', '\\']).next().unwrap_or_default();
    let file = escape(&shorten_name(file));
    match (file.as_str(), place.line) {
        ("", 0) => name,
        (file, 0) => format!("{name}\\n{file}"),
        (file, line) => format!("{name}\\n{file}:{line}"),
    }
}

/// Returns a size from 8 to 24, larger for nodes with a larger flat value.
fn font_size(flat: i64, largest: i64) -> u32 {
    if largest == 0 {
        return 8;
    }
    8 + (16.0 * (flat as f64 / largest as f64).sqrt()).ceil() as u32
}

/// Returns the weight and pen width of a call, by its share of the total.
fn width<const N: usize>(values: &[i64; N], total: u64) -> String {
    let value = values.iter().map(|value| value.unsigned_abs()).max().unwrap_or_default();
    let parts = |most: u64| {
        let part = u128::from(value) * u128::from(most) / u128::from(total.max(1));
        1 + part.min(u128::from(most))
    };
    let attribute =
        |name: &str, value: u128| if value > 1 { format!(" {name}={value}") } else { String::new() };
    attribute("weight", parts(100)) + &attribute("penwidth", parts(5))
}

/// Formats a value before and after.
fn change(values: [i64; 2], unit: &str) -> String {
    let [before, after] = values.map(|value| format_value(value, unit));
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

/// Escapes a text for double quotes. Line breaks become spaces, because some readers end the statement there.
fn escape(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_model::model::Dictionary;
    use crate::data_model::symbols::{Function, Line, NO_ENTRY};

    /// Stacks with their totals.
    struct Stacks {
        dictionary: Dictionary,
        totals: Vec<i64>,
    }

    impl Stacks {
        /// Of frames such as `main@a.rs:7`, the root first.
        fn of(stacks: &[(&str, i64)]) -> Self {
            let (mut dictionary, mut totals) = (Dictionary::default(), Vec::new());
            for (path, total) in stacks {
                let symbols = &mut dictionary.symbols;
                let mut path: Vec<u32> = path
                    .split(';')
                    .map(|frame| {
                        let (name, place) = frame.split_once('@').unwrap_or((frame, ""));
                        let (file, line) = place.split_once(':').unwrap_or((place, "0"));
                        let [name, filename] = [name, file].map(|text| symbols.strings.intern(text));
                        let function = Function { name, system_name: name, filename, start_line: 0 };
                        let line = line.parse().unwrap();
                        let line = Line { function: symbols.intern_function(function), line, column: 0 };
                        symbols.intern_location(NO_ENTRY, 0, false, &[line])
                    })
                    .collect();
                path.reverse();
                let stack = dictionary.stacks.intern(&dictionary.symbols, &path) as usize;
                totals.resize(totals.len().max(stack + 1), 0);
                totals[stack] += total;
            }
            Stacks { dictionary, totals }
        }

        fn totals(&self) -> StackTotals<'_> {
            StackTotals { dictionary: &self.dictionary, totals: &self.totals, addresses: false }
        }
    }

    fn graph(stacks: &[(&str, i64)], max_nodes: usize) -> String {
        write(Stacks::of(stacks).totals(), "count", max_nodes)
    }

    #[track_caller]
    fn has(text: &str, lines: &[&str]) {
        lines.iter().for_each(|line| assert!(text.contains(line), "{line} is not in {text}"));
    }

    #[test]
    fn graph_of_few_nodes_shows_where_values_arise() {
        let stacks = [("main;serve;handle;hot", 90), ("main;serve;handle;warm", 9), ("main;serve;idle", 1)];
        let text = graph(&stacks, 1);
        has(&text, &["N1 [label=\"hot\\n90 (90.00%)\"", "graph [label=\"1 of 6 nodes\" labelloc=t]"]);
        let text = graph(&stacks, 2);
        has(
            &text,
            &["label=\"main\\n0 of 100 (100%)\"", "[label=\" 90\" weight=91 penwidth=5 style=\"dotted\"]"],
        );
    }

    #[test]
    fn lines_of_a_function_are_nodes_and_widths_follow_shares() {
        let text = graph(
            &[("main@/src/m.rs:3;a@/src/a.rs:7", 3), ("main@/src/m.rs:3;a@/src/a.rs:9", 1), ("b@b.rs", 0)],
            9,
        );
        has(
            &text,
            &[
                "label=\"main\\nm.rs:3\\n0 of 4 (100%)\" id=\"node1\" fontsize=8 shape=box tooltip=\"main /src/m.rs:3 (4)\"",
                "label=\"a\\na.rs:7\\n3 (75.00%)\" id=\"node2\" fontsize=24",
                "label=\"a\\na.rs:9\\n1 (25.00%)\"",
                "N1 -> N2 [label=\" 3\" weight=76 penwidth=4]",
                "N1 -> N3 [label=\" 1\" weight=26 penwidth=2]",
            ],
        );
        assert!(!text.contains(" nodes\"") && !text.contains("b.rs"), "{text}");
    }

    #[test]
    fn names_are_escaped_and_very_long_ones_shortened() {
        has(&graph(&[("a\"\\\n;b", 3)], 4), &["label=\"a\\\"\\\\ \\n0 of 3 (100%)\""]);
        let text = graph(&[(&"f".repeat(60_000), 9), ("main", 1)], 4);
        assert!(text.contains("fff…\\n9 ") && text.len() < 4_000, "{}", text.len());
        assert!(graph(&[], 9).is_empty() && graph(&[("a", 1)], 0).is_empty());
    }

    #[test]
    fn a_difference_shows_both_sides() {
        let (left, right) =
            (Stacks::of(&[("main;a", 3), ("main;b", 2)]), Stacks::of(&[("main;a", 1), ("main;c", 4)]));
        let text = write_diff(left.totals(), right.totals(), "count", 9);
        has(
            &text,
            &[
                "[label=\"main\\n0\\nof 5\" id=\"node1\" fontsize=8 shape=box color=\"#777777\" tooltip=\"main (5)\"]",
                "label=\"a\\n3 -> 1\\nof 3 -> 1\"",
                "[label=\" 0 -> 4\" weight=81 penwidth=5 color=\"#b2182b\"]",
                "[label=\" 2 -> 0\" weight=41 penwidth=3 color=\"#1b7837\"]",
            ],
        );
        assert_eq!(write_diff(left.totals(), right.totals(), "count", 1).matches("\nN1 ").count(), 1);
        let none = Stacks::of(&[]);
        assert!(write_diff(none.totals(), none.totals(), "count", 9).is_empty());
    }

    #[test]
    fn a_stack_in_which_a_call_recurs_counts_once() {
        let recursive = [("main;a;b;a;b", 3), ("main;a;a;a", 4)];
        let text = graph(&recursive, 9);
        let number = |name: &str| {
            let line = text.lines().find(|line| line.contains(&format!("[label=\"{name}\\n"))).unwrap();
            line.split(' ').next().unwrap().to_owned()
        };
        let [main, a, b] = ["main", "a", "b"].map(number);
        for (caller, callee, value) in [(&main, &a, 7), (&a, &b, 3), (&b, &a, 3), (&a, &a, 4)] {
            has(&text, &[&format!("{caller} -> {callee} [label=\" {value}\"")]);
        }
        // By way of a node that is hidden nothing calls itself.
        assert!(!graph(&[("a;b;a", 3)], 1).contains("->"));
    }

    #[test]
    fn memory_of_a_graph_counts_inlined_lines() {
        const LINES: usize = 1_000;
        let mut stacks = Stacks::of(&[("main", 1)]);
        let before = stacks.totals().graph_memory();
        let symbols = &mut stacks.dictionary.symbols;
        let name = symbols.strings.intern("inlined");
        let function = Function { name, system_name: name, filename: name, start_line: 0 };
        let function = symbols.intern_function(function);
        let lines: Vec<Line> = (1..=LINES as i64).map(|line| Line { function, line, column: 0 }).collect();
        symbols.intern_location(NO_ENTRY, 0, false, &lines);
        let least = LINES * (size_of::<CallNode<'_, 1>>() + size_of::<CallEdge<1>>());
        assert!(stacks.totals().graph_memory() >= before + least);
    }

    #[test]
    fn redundant_calls_through_hidden_nodes_are_left_out() {
        // From `a` to `d` both by way of `b` and of what is hidden.
        let stacks = [("a;b;d", 50), ("a;b;e", 40), ("a;h;d", 3), ("a;x", 30)];
        let shown = graph(&stacks, 5);
        assert!(shown.contains("5 of 6 nodes") && !shown.contains("label=\"h"), "{shown}");
        assert!(!shown.contains("dotted"), "{shown}");
    }
}
