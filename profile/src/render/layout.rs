//! Positions and labels of the bars of a drawn flame graph.

use std::borrow::Cow;

use crate::call_tree::flamegraph::{ROOT_NAME, node_levels};
use crate::call_tree::tree::Tree;
use crate::render::printable::replace_control;
use crate::render::units::format_value;

/// Position of one node's bar, in fractions of the whole width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FlameBar {
    pub(crate) start: f64,
    pub(crate) end: f64,
    pub(crate) level: usize,
}

/// Returns the bars of all nodes. The caller's self part comes first, then its callees. Widths are sums of
/// magnitudes, so that callees lie within their caller even with negative values.
pub(crate) fn layout_bars(tree: &Tree) -> Vec<FlameBar> {
    let nodes = tree.nodes();
    let self_value = |at: usize| u128::from(nodes[at].self_value.unsigned_abs());
    let mut weights: Vec<u128> = (0..nodes.len()).map(self_value).collect();
    for (at, node) in nodes.iter().enumerate().skip(1).rev() {
        weights[node.parent as usize] += weights[at];
    }
    let whole = weights[0].max(1) as f64;
    let level_of = node_levels(nodes.iter().map(|node| node.parent));
    let mut bars = Vec::with_capacity(nodes.len());
    let mut next: Vec<u128> = Vec::with_capacity(nodes.len());
    for (at, node) in nodes.iter().enumerate() {
        let start = next.get(node.parent as usize).copied().unwrap_or(0);
        if let Some(next) = next.get_mut(node.parent as usize) {
            *next += weights[at];
        }
        next.push(start + self_value(at));
        let end = if at == 0 { 1.0 } else { (start + weights[at]) as f64 / whole };
        bars.push(FlameBar { start: start as f64 / whole, end, level: level_of[at] });
    }
    bars
}

/// Returns the label of a bar.
pub(crate) fn bar_name(tree: &Tree, at: usize) -> Cow<'_, str> {
    if at == 0 { ROOT_NAME.into() } else { replace_control(tree.name(&tree.nodes()[at])) }
}

/// Returns a value with its share of the total, such as `12MB, 3.41 %`.
pub(crate) fn bar_value(tree: &Tree, at: usize, unit: &str) -> String {
    let value = tree.nodes()[at].total;
    let total = tree.total();
    let share = if total == 0 { 0.0 } else { 100.0 * value as f64 / total as f64 };
    format!("{}, {share:.2} %", replace_control(&format_value(value, unit)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call_tree::tree::tests::{any_tree, tree};
    use proptest::prelude::*;

    #[test]
    fn own_parts_come_first() {
        let bars = layout_bars(&tree(&[("a;b", 4), ("a", 2), ("c", -2)]));
        let shown: Vec<(f64, f64, usize)> = bars.iter().map(|bar| (bar.start, bar.end, bar.level)).collect();
        assert_eq!(shown, [(0.0, 1.0, 0), (0.0, 0.75, 1), (0.75, 1.0, 1), (0.25, 0.75, 2)]);
    }

    proptest! {
        #[test]
        fn bars_lie_below_their_caller_and_beside_each_other(tree in any_tree()) {
            let bars = layout_bars(&tree);
            for (at, bar) in (0..).zip(&bars) {
                prop_assert!(bar.start <= bar.end && bar.end <= 1.0);
                let mut end = bar.start;
                for child in tree.children(at) {
                    let child = bars[child as usize];
                    prop_assert!(child.start >= end && child.end <= bar.end && child.level == bar.level + 1);
                    end = child.end;
                }
            }
        }
    }
}
