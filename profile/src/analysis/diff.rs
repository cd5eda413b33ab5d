//! Difference of two trees, node by node.

use std::collections::BTreeMap;

use crate::analysis::top_table::{FunctionWeights, function_weights};
use crate::call_tree::flamegraph::{WireNames, bar_starts, node_levels};
use crate::call_tree::tree::{Tree, TreeDraft, min_shown_weight};
use crate::data_model::symbols::NO_ENTRY;

/// Function in the context of its callers, on both sides. A side without the function counts as 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffNode {
    /// Name of the function; `other` for a remainder.
    pub name: Box<str>,
    /// Index of the caller; [`NO_ENTRY`] for the root.
    pub parent: u32,
    /// Total on the left and on the right side.
    pub total: [i64; 2],
    /// Self value on the left and on the right side.
    pub self_values: [i64; 2],
    /// Set if the node stands for truncated nodes of either side.
    pub other: bool,
}

/// Two trees merged by names, with the values of both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffTree {
    nodes: Vec<DiffNode>,
}

/// Two trees as levels of bars.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiffFlamegraph {
    /// Names of the bars; the first is `total`, the name of the root.
    pub names: Vec<String>,
    /// Bars of each level in groups of seven numbers. Left side: distance from the end of the previous bar,
    /// total, self value. Right side: the same three. Last: index of the name.
    pub levels: Vec<Vec<i64>>,
    /// Sum of both totals.
    pub total: i64,
    /// Largest self value of either side.
    pub max_self: i64,
    /// Total of each side.
    pub ticks: [i64; 2],
}

/// Change of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionDiff {
    /// Name of the function.
    pub name: String,
    /// Weights on the left side.
    pub left: FunctionWeights,
    /// Weights on the right side.
    pub right: FunctionWeights,
    /// Self value on the right minus that on the left.
    pub delta: i64,
    /// Cumulative value on the right minus that on the left.
    pub cum_delta: i64,
}

impl DiffTree {
    /// Merges two trees: `left` is before, `right` is after.
    pub fn from_trees(left: &Tree, right: &Tree) -> DiffTree {
        let mut pairs = vec![[0u32, 0u32]];
        let mut nodes: Vec<DiffNode> = Vec::new();
        let mut parents = vec![NO_ENTRY];
        let mut at = 0;
        while at < pairs.len() {
            let sides = [(left, pairs[at][0]), (right, pairs[at][1])];
            let node = |(tree, node): (&Tree, u32)| tree.nodes().get(node as usize).copied();
            let [before, after] = sides.map(node);
            let tree = if before.is_some() { left } else { right };
            let name = before.or(after).map_or("", |node| tree.name(&node)).into();
            nodes.push(DiffNode {
                name,
                parent: parents[at],
                total: [before, after].map(|node| node.map_or(0, |node| node.total)),
                self_values: [before, after].map(|node| node.map_or(0, |node| node.self_value)),
                other: before.or(after).is_some_and(|node| node.other),
            });
            let mut callees: BTreeMap<(&str, bool), [u32; 2]> = BTreeMap::new();
            for (side, (tree, node)) in
                sides.into_iter().enumerate().filter(|(_, (_, node))| *node != NO_ENTRY)
            {
                for child in tree.children(node) {
                    let callee = &tree.nodes()[child as usize];
                    callees.entry((tree.name(callee), callee.other)).or_insert([NO_ENTRY; 2])[side] = child;
                }
            }
            parents.resize(parents.len() + callees.len(), at as u32);
            pairs.extend(callees.into_values());
            at += 1;
        }
        DiffTree { nodes }
    }

    /// Returns all nodes level by level, siblings by name; the root is first.
    pub fn nodes(&self) -> &[DiffNode] {
        &self.nodes
    }

    /// Truncates both sides alike. Keeps the `max_nodes` heaviest nodes by the values of both sides together,
    /// and those as heavy as the last of them. No function therefore looks new or removed because it was
    /// truncated on one side only.
    pub fn truncate(&mut self, max_nodes: usize, most: usize) {
        let weights = self.weights();
        let of_named: Vec<u64> = self.function_weights(&weights).collect();
        let least = min_shown_weight(&of_named, max_nodes, most);
        self.retain_heavier(&weights, least);
    }

    /// Truncates like [`truncate`](Self::truncate), but the root counts as a bar too.
    pub fn truncate_to_bars(&mut self, bars: usize, most: usize) {
        let weights = self.weights();
        let of_bars: Vec<u64> = self.function_weights(&weights).chain([weights[0]]).collect();
        let least = min_shown_weight(&of_bars, bars, most);
        self.retain_heavier(&weights, least);
    }

    /// Returns the weight of each node, by the values of both sides together.
    fn weights(&self) -> Vec<u64> {
        let weight = |node: &DiffNode| {
            node.self_values[0].unsigned_abs().saturating_add(node.self_values[1].unsigned_abs())
        };
        let mut weights: Vec<u64> = self.nodes.iter().map(weight).collect();
        for (at, node) in self.nodes.iter().enumerate().skip(1).rev() {
            weights[node.parent as usize] = weights[node.parent as usize].saturating_add(weights[at]);
        }
        weights
    }

    /// Returns the weights of the nodes that are functions.
    fn function_weights<'a>(&'a self, weights: &'a [u64]) -> impl Iterator<Item = u64> + 'a {
        let named = self.nodes.iter().zip(weights).skip(1).filter(|(node, _)| !node.other);
        named.map(|(_, &weight)| weight)
    }

    fn retain_heavier(&mut self, weights: &[u64], least: u64) {
        let mut sides = [TreeDraft::default(), TreeDraft::default()];
        // New index of each node on either side, and whether it became part of a remainder.
        let mut places: Vec<([u32; 2], bool)> = vec![([0, 0], false)];
        for (at, node) in self.nodes.iter().enumerate() {
            if at > 0 {
                let (parents, above_is_other) = places[node.parent as usize];
                let is_other = node.other || weights[at] < least || above_is_other;
                let mut place = parents;
                for (side, drafts) in sides.iter_mut().enumerate().filter(|_| !above_is_other) {
                    let name = if is_other { 0 } else { drafts.name(&node.name) };
                    place[side] = drafts.child(parents[side], name, is_other);
                }
                places.push((place, is_other));
            }
            for (side, drafts) in sides.iter_mut().enumerate() {
                drafts.add(places[at].0[side], node.self_values[side]);
            }
        }
        let [left, right] = sides.map(TreeDraft::finish);
        *self = DiffTree::from_trees(&left, &right);
    }

    /// Returns the bars in the clients' format. The width of a bar is the sum of both totals.
    pub fn to_flamegraph(&self) -> DiffFlamegraph {
        let mut names = WireNames::default();
        let ticks = self.nodes.first().map_or([0; 2], |root| root.total);
        let total = ticks[0].wrapping_add(ticks[1]);
        let mut graph = DiffFlamegraph { total, ticks, ..DiffFlamegraph::default() };
        let level_of = node_levels(self.nodes.iter().map(|node| node.parent));
        let starts = [0, 1].map(|side| {
            bar_starts(self.nodes.iter().map(|node| (node.parent, node.total[side], node.self_values[side])))
        });
        let mut end = [0i64; 2];
        for (at, node) in self.nodes.iter().enumerate() {
            if level_of[at] == graph.levels.len() {
                graph.levels.push(Vec::new());
                end = [0; 2];
            }
            let level = &mut graph.levels[level_of[at]];
            for side in [0, 1] {
                let start = starts[side][at];
                level.extend([start.wrapping_sub(end[side]), node.total[side], node.self_values[side]]);
                end[side] = start.wrapping_add(node.total[side]);
                graph.max_self = graph.max_self.max(node.self_values[side]);
            }
            level.push(if at == 0 { 0 } else { names.intern(&node.name) });
        }
        graph.names = names.names;
        graph
    }
}

/// Returns the changed functions, the largest change of self value first. Remainders of truncations are no
/// functions and are omitted, so the trees should be complete.
pub fn diff_functions(left: &Tree, right: &Tree) -> Vec<FunctionDiff> {
    diff_weights(function_weights(left), function_weights(right))
}

/// Returns the changes between the weights of functions, as [`diff_functions`] does.
pub fn diff_weights(
    left: Vec<(&str, FunctionWeights)>,
    right: Vec<(&str, FunctionWeights)>,
) -> Vec<FunctionDiff> {
    let mut sides: BTreeMap<&str, [FunctionWeights; 2]> = BTreeMap::new();
    for (side, functions) in [left, right].into_iter().enumerate() {
        for (name, weights) in functions {
            sides.entry(name).or_default()[side] = weights;
        }
    }
    let mut changes: Vec<FunctionDiff> = sides
        .into_iter()
        .filter(|(_, [left, right])| left != right)
        .map(|(name, [left, right])| FunctionDiff {
            name: name.to_owned(),
            left,
            right,
            delta: right.flat.wrapping_sub(left.flat),
            cum_delta: right.cum.wrapping_sub(left.cum),
        })
        .collect();
    changes.sort_by(|a, b| {
        let size = |change: &FunctionDiff| (change.delta.unsigned_abs(), change.cum_delta.unsigned_abs());
        size(b).cmp(&size(a)).then_with(|| a.name.cmp(&b.name))
    });
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call_tree::tree::{OTHER_NAME, tests::tree};

    #[test]
    fn both_sides_are_cut_alike() {
        let mut diff = DiffTree::from_trees(&tree(&[("a;x", 9), ("b", 1)]), &tree(&[("a;y", 1), ("b", 8)]));
        let mut bars = diff.clone();
        diff.truncate(3, 9);
        bars.truncate_to_bars(4, 9);
        assert_eq!(bars.nodes(), diff.nodes());
        let shown: Vec<(&str, [i64; 2], bool)> =
            diff.nodes().iter().map(|node| (&*node.name, node.total, node.other)).collect();
        assert_eq!(
            shown,
            [
                ("", [10, 9], false),
                ("a", [9, 1], false),
                ("b", [1, 8], false),
                (OTHER_NAME, [0, 1], true),
                ("x", [9, 0], false),
            ]
        );
    }

    #[test]
    fn changes_are_ranked_by_own_value() {
        let left = tree(&[("main;idle", 24), ("main;work", 257), ("main", 5)]);
        let right = tree(&[("main;work", 253), ("main;idle", 26), ("main", 5)]);
        let changes = diff_functions(&left, &right);
        let found: Vec<(&str, i64, i64)> =
            changes.iter().map(|change| (change.name.as_str(), change.delta, change.cum_delta)).collect();
        assert_eq!(found, [("work", -4, -4), ("idle", 2, 2), ("main", 0, -2)]);
        assert_eq!(changes[0].left, FunctionWeights { flat: 257, cum: 257 });
    }

    #[test]
    fn sides_meet_by_name_path() {
        let mut cut = tree(&[("a;other", 3), ("a;x", 1)]);
        cut.truncate(2);
        let diff = DiffTree::from_trees(&cut, &tree(&[("a;other", 4), ("b", 1)]));
        let found: Vec<(&str, [i64; 2], bool)> =
            diff.nodes().iter().map(|node| (&*node.name, node.total, node.other)).collect();
        let other = |total, remainder| (OTHER_NAME, total, remainder);
        assert_eq!(
            found,
            [
                ("", [4, 5], false),
                ("a", [4, 4], false),
                ("b", [0, 1], false),
                other([3, 4], false),
                other([1, 0], true)
            ]
        );
        let graph = diff.to_flamegraph();
        assert_eq!((graph.total, graph.max_self, graph.ticks), (9, 4, [4, 5]));
        assert_eq!(graph.levels[1], [0, 4, 0, 0, 4, 0, 1, 0, 0, 0, 0, 1, 1, 2]);
    }
}
