//! Truncation of a tree to its heaviest nodes, by their number or by the weight of the rest.
//!
//! Truncation is the last step of a query. A truncated tree still merges, but the removed nodes are lost.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::ops::Range;

use super::shape::finish_tree;
use super::{Tree, TreeNode, root};

/// Scale for shares of a weight, in parts per million.
const SHARE_SCALE: u128 = 1_000_000;
/// Number of different approximate weights.
const WEIGHT_CLASSES: usize = approximate_weight(u64::MAX) as usize + 1;

/// Nodes of a tree that a truncation keeps.
#[derive(Clone, Debug)]
pub struct NodeSelection {
    /// Flag of each node. All callers of a node with the flag have it too.
    is_kept: Vec<bool>,
}

impl Tree {
    /// Truncates to the `max_nodes` heaviest nodes, the root not counted.
    ///
    /// Removed nodes become one child of their nearest kept caller, flagged [`TreeNode::other`]. These
    /// remainders are added to `max_nodes`, at most one per kept node. No total changes. Of equally heavy
    /// nodes the upper, then the left one stays, so the number also holds if totals are equal.
    pub fn truncate(&mut self, max_nodes: usize) {
        if let Some(selection) = self.select_heaviest(max_nodes) {
            self.keep(selection);
        }
    }

    /// Returns the nodes that [`truncate`](Self::truncate) keeps. `None` keeps all.
    pub fn select_heaviest(&self, max_nodes: usize) -> Option<NodeSelection> {
        if self.nodes.len() - 1 <= max_nodes {
            return None;
        }
        let weights = self.weights();
        let of_named: Cow<'_, [u64]> = match self.has_remainders {
            true => self.named(&weights).map(|(_, weight)| weight).collect(),
            false => Cow::Borrowed(&weights[1..]),
        };
        if of_named.len() <= max_nodes {
            return None;
        }
        let least = nth_heaviest(&of_named, max_nodes);
        // Of the nodes as heavy as the last one, only the first ones stay.
        let mut ties = max_nodes - of_named.iter().filter(|&&weight| weight > least).count();
        let mut is_kept = vec![true; weights.len()];
        for (at, &weight) in weights.iter().enumerate().skip(1) {
            let is_kept_tie = weight == least && ties > 0 && !self.is_remainder(at);
            ties -= usize::from(is_kept_tie);
            is_kept[at] = weight > least || is_kept_tie;
        }
        Some(self.named_selection(is_kept))
    }

    /// Truncates like [`truncate`](Self::truncate), but also keeps nodes as heavy as the last one kept, so
    /// that the result does not depend on names. If more than `most` nodes would stay, it keeps none of the
    /// equally heavy ones.
    pub fn truncate_with_ties(&mut self, max_nodes: usize, most: usize) {
        let weights = self.weights();
        let least = self.least_of_count(&weights, max_nodes, most);
        self.keep(self.heavier(&weights, least));
    }

    /// Truncates like [`truncate_with_ties`](Self::truncate_with_ties), but counts the root, so that this
    /// many bars are drawn.
    pub fn truncate_to_bars(&mut self, bars: usize, most: usize) {
        let weights = self.weights();
        let of_bars: Vec<u64> = self.named(&weights).map(|(_, weight)| weight).chain([weights[0]]).collect();
        let least = min_shown_weight(&of_bars, bars, most);
        self.keep(self.heavier(&weights, least));
    }

    /// Truncates to as few of the heaviest nodes as possible, so that the removed weight is at most
    /// `max_other_ppm` of the whole. Nodes as heavy as the last one kept also stay. If more than `most`
    /// nodes would stay, it truncates like [`truncate_with_ties`](Self::truncate_with_ties).
    ///
    /// The weight sums magnitudes, so that negative and positive values do not cancel out.
    pub fn truncate_to_weight(&mut self, max_other_ppm: u32, most: usize) {
        self.keep(self.select_weight(max_other_ppm, most));
    }

    /// Returns the nodes that [`truncate_to_weight`](Self::truncate_to_weight) keeps.
    pub fn select_weight(&self, max_other_ppm: u32, most: usize) -> NodeSelection {
        let weights = self.weights();
        let least = self.least_of_weight(&weights, max_other_ppm);
        let count = self.named(&weights).filter(|(_, weight)| *weight >= least).count();
        let least = if count > most { self.least_of_count(&weights, most, most) } else { least };
        self.heavier(&weights, least)
    }

    /// Returns the sum of all remainders.
    pub fn truncated_total(&self) -> i64 {
        let others = self.nodes.iter().filter(|node| node.other);
        others.fold(0, |sum, node| sum.wrapping_add(node.total))
    }

    /// Returns the weight of each node, which sums magnitudes. Callers thus outweigh callees even if values
    /// are negative. Without negative values, the weight is the total.
    pub(super) fn weights(&self) -> Vec<u64> {
        if self.has_positive_totals {
            return self.nodes.iter().map(|node| node.total.unsigned_abs()).collect();
        }
        let mut weights: Vec<u64> = self.nodes.iter().map(|node| node.self_value.unsigned_abs()).collect();
        for at in (1..weights.len()).rev() {
            let parent = self.nodes[at].parent as usize;
            weights[parent] = weights[parent].saturating_add(weights[at]);
        }
        weights
    }

    /// Returns the function nodes with their weights.
    fn named<'t>(&'t self, weights: &'t [u64]) -> impl Iterator<Item = (&'t TreeNode, u64)> + Clone {
        self.nodes.iter().zip(weights.iter().copied()).skip(1).filter(|(node, _)| !node.other)
    }

    fn least_of_count(&self, weights: &[u64], count: usize, most: usize) -> u64 {
        let of_named: Vec<u64> = self.named(weights).map(|(_, weight)| weight).collect();
        min_shown_weight(&of_named, count, most)
    }

    /// Returns the minimum weight of shown nodes, so that at most `max_other_ppm` are hidden. A shown node
    /// shows exactly its self value.
    fn least_of_weight(&self, weights: &[u64], max_other_ppm: u32) -> u64 {
        let self_value = |node: &TreeNode| u128::from(node.self_value.unsigned_abs());
        let whole: u128 = self.nodes.iter().map(self_value).sum();
        let hidden = whole * u128::from(max_other_ppm).min(SHARE_SCALE) / SHARE_SCALE;
        let wanted = whole - hidden;
        let of_root = self_value(&self.nodes[0]);
        if wanted <= of_root {
            return u64::MAX;
        }
        let nodes = self.named(weights).map(|(node, weight)| (weight, node.self_value.unsigned_abs()));
        last_of(nodes, wanted - of_root)
    }

    /// Returns the nodes of at least this weight.
    fn heavier(&self, weights: &[u64], least: u64) -> NodeSelection {
        let mut is_kept: Vec<bool> = weights.iter().map(|&weight| weight >= least).collect();
        is_kept[0] = true;
        self.named_selection(is_kept)
    }

    /// Returns a selection by weight without remainders and what they call. Callers weigh at least as much as their
    /// callees and come first, so all other callers of selected nodes are selected too.
    fn named_selection(&self, mut is_kept: Vec<bool>) -> NodeSelection {
        if self.has_remainders {
            for (at, node) in self.nodes.iter().enumerate().skip(1) {
                is_kept[at] &= !node.other && is_kept[node.parent as usize];
            }
        }
        NodeSelection { is_kept }
    }

    fn is_remainder(&self, node: usize) -> bool {
        self.has_remainders && self.nodes[node].other
    }
}

/// Returns the minimum weight to show if `count` of these weights are shown. Weights equal to the last one
/// are also shown, unless more than `most` would then be.
pub fn min_shown_weight(weights: &[u64], count: usize, most: usize) -> u64 {
    let least = nth_heaviest(weights, count);
    let shown = weights.iter().filter(|&&weight| weight >= least).count();
    if shown > most.max(count) { least.saturating_add(1) } else { least }
}

/// Returns the `count`-th heaviest weight. Returns 0 if there are fewer.
fn nth_heaviest(weights: &[u64], count: usize) -> u64 {
    if count == 0 {
        return u64::MAX;
    }
    // Numbers by approximate weight. The exact search then only needs the weights in one of these classes.
    let mut counts = vec![0usize; WEIGHT_CLASSES];
    for &weight in weights {
        counts[usize::from(approximate_weight(weight))] += 1;
    }
    let mut missing = count;
    for (class, &members) in counts.iter().enumerate().rev() {
        if members >= missing {
            let mut alike = Vec::with_capacity(members);
            for &weight in weights {
                if usize::from(approximate_weight(weight)) == class {
                    alike.push(weight);
                }
            }
            return *alike.select_nth_unstable_by_key(missing - 1, |&weight| Reverse(weight)).1;
        }
        missing -= members;
    }
    0
}

/// Returns the weight of the last of the heaviest nodes needed to add up to `wanted`. Returns 0 if all of
/// them add up to less. Each item is a weight and the value that it adds.
fn last_of(nodes: impl Iterator<Item = (u64, u64)> + Clone, wanted: u128) -> u64 {
    // Sums by approximate weight. The exact search then only needs the nodes in one of these classes.
    let mut sums = vec![0u128; WEIGHT_CLASSES];
    nodes
        .clone()
        .for_each(|(weight, adds)| sums[usize::from(approximate_weight(weight))] += u128::from(adds));
    let mut missing = wanted;
    for (size, sum) in sums.into_iter().enumerate().rev() {
        if sum >= missing {
            let alike = nodes.clone().filter(|(weight, _)| usize::from(approximate_weight(*weight)) == size);
            let mut alike: Vec<(u64, u64)> = alike.collect();
            alike.sort_unstable_by_key(|(weight, _)| Reverse(*weight));
            for (weight, adds) in alike {
                missing = missing.saturating_sub(u128::from(adds));
                if missing == 0 {
                    return weight;
                }
            }
        }
        missing -= sum;
    }
    0
}

/// Returns a number that grows with the weight: its bit length and the six bits after the first.
const fn approximate_weight(weight: u64) -> u16 {
    let length = u64::BITS - weight.leading_zeros();
    // The first bit is shifted out by a shift of its own, because the width of the number is no valid shift.
    let bits = weight << (weight.leading_zeros() & (u64::BITS - 1)) << 1 >> 58;
    (length as u16) << 6 | bits as u16
}

impl NodeSelection {
    /// Returns a flag for each node of the tree: set if it is shown by its name once the others are left out. `None`
    /// selects all nodes.
    pub(super) fn shown_nodes(selection: Option<NodeSelection>, tree: &Tree) -> Vec<bool> {
        let Some(NodeSelection { is_kept: mut shown }) = selection else {
            return (0..tree.nodes.len()).map(|node| !tree.is_remainder(node)).collect();
        };
        // Without negative values, a node and all that it calls never cancel out.
        if tree.has_positive_totals {
            return shown;
        }
        // Like `finish_tree`, hides nodes that have no value and no callee with one after the truncation.
        let mut rests = vec![0i64; shown.len()];
        let mut has_callee = vec![false; shown.len()];
        for (at, node) in tree.nodes.iter().enumerate().skip(1).rev() {
            let parent = node.parent as usize;
            if shown[at] {
                shown[at] = node.self_value != 0 || rests[at] != 0 || has_callee[at];
                has_callee[parent] |= shown[at];
            } else {
                rests[parent] = rests[parent].wrapping_add(node.total);
            }
        }
        shown
    }
}

impl Tree {
    /// Keeps these nodes. The rest becomes one remainder for each caller, sorted between a callee without a name and those
    /// with one.
    ///
    /// The nodes are moved in place, because those of a large tree take many pages. Siblings with removed
    /// nodes leave space for their remainder.
    fn keep(&mut self, selection: NodeSelection) {
        let keep = selection.is_kept;
        let mut nodes = std::mem::take(&mut self.nodes);
        // New index of each node that stays.
        let mut places = vec![0u32; nodes.len()];
        let mut read = 1;
        let mut written = 1;
        while read < nodes.len() {
            let caller = nodes[read].parent as usize;
            let siblings = nodes[read..].iter().take_while(|node| node.parent as usize == caller).count();
            if keep[caller] {
                let callees = read..read + siblings;
                written = keep_callees(&mut nodes, &mut places, &keep, caller, callees, written);
            }
            read += siblings;
        }
        nodes.truncate(written);
        *self = finish_tree(std::mem::take(&mut self.names), nodes, self.has_wrapped());
    }
}

/// Moves the kept callees of a node and their remainder to the first free index. Returns the next free index.
fn keep_callees(
    nodes: &mut [TreeNode],
    places: &mut [u32],
    keep: &[bool],
    caller: usize,
    callees: Range<usize>,
    first: usize,
) -> usize {
    let parent = places[caller];
    let is_cut = keep[callees.clone()].contains(&false);
    let mut written = first;
    let mut unnamed = 0;
    let mut rest = 0i64;
    for at in callees {
        let node = nodes[at];
        if !keep[at] {
            rest = rest.wrapping_add(node.total);
            continue;
        }
        unnamed += usize::from(node.name == 0);
        // A remainder is sorted before all nodes with a name.
        places[at] = (written + usize::from(is_cut && node.name != 0)) as u32;
        nodes[written] = TreeNode { parent, ..node };
        written += 1;
    }
    if !is_cut {
        return written;
    }
    nodes.copy_within(first + unnamed..written, first + unnamed + 1);
    nodes[first + unnamed] = TreeNode { self_value: rest, other: true, parent, ..root() };
    written + 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{any_tree, tree};
    use super::*;

    /// What all nodes that are functions weigh, and what each has of its own, the heaviest first.
    fn by_weight(tree: &Tree) -> Vec<(u64, u64)> {
        let weights = tree.weights();
        let mut nodes: Vec<(u64, u64)> =
            tree.named(&weights).map(|(node, weight)| (weight, node.self_value.unsigned_abs())).collect();
        nodes.sort_unstable_by_key(|node| Reverse(node.0));
        nodes
    }

    fn functions(tree: &Tree) -> usize {
        tree.nodes.iter().skip(1).filter(|node| !node.other).count()
    }

    proptest! {
        #[test]
        fn weights_are_told_apart_in_their_order(one: u64, by in 0u32..64, other: u64) {
            let (one, other) = (one >> by, other >> by);
            prop_assert!(approximate_weight(one.min(other)) <= approximate_weight(one.max(other)));
        }
    }

    #[test]
    fn the_whole_is_a_bar_that_counts() {
        let whole = tree(&[("a;b", 60), ("a;c", 30), ("d", 9), ("e", 1)]);
        let drawn = |tree: &Tree, bars, most| {
            let mut cut = tree.clone();
            cut.truncate_to_bars(bars, most);
            (functions(&cut), cut.total())
        };
        assert_eq!(drawn(&whole, 1, 99), (0, 100));
        assert_eq!(drawn(&whole, 3, 99), (2, 100));
        assert_eq!(drawn(&whole, 6, 99), (5, 100));
        let one = tree(&[("main;run", 5), ("main;idle", 5), ("main;rest", 1)]);
        assert_eq!(drawn(&one, 1, 99), (1, 11));
        assert_eq!(
            drawn(&tree(&[("main;run", 5), ("main;idle", 5)]), 1, 99),
            (1, 10),
            "as heavy as the whole"
        );
        assert_eq!(drawn(&one, 3, 99), (3, 11), "two are as heavy as the last");
        assert_eq!(drawn(&one, 3, 3), (1, 11), "unless that is too many");
    }

    #[test]
    fn as_few_nodes_stay_as_the_weight_takes() {
        let whole = tree(&[("a;b", 60), ("a;c", 30), ("d", 9), ("e", 1)]);
        let shown = |ppm, most| {
            let mut cut = whole.clone();
            cut.truncate_to_weight(ppm, most);
            (functions(&cut), cut.truncated_total(), cut.total())
        };
        assert_eq!(shown(0, 99), (5, 0, 100));
        assert_eq!(shown(9_999, 99), (5, 0, 100));
        assert_eq!(shown(10_000, 99), (4, 1, 100));
        assert_eq!(shown(99_999, 99), (4, 1, 100));
        assert_eq!(shown(100_000, 99), (3, 10, 100));
        assert_eq!(shown(400_000, 99), (2, 40, 100));
        assert_eq!(shown(999_999, 99), (2, 40, 100), "who calls is shown with what is called");
        assert_eq!(shown(1_000_000, 99), (0, 100, 100));
        assert_eq!(shown(u32::MAX, 99), (0, 100, 100));
        assert_eq!(shown(0, 3), (3, 10, 100), "no more than are allowed");
    }

    proptest! {
        #[test]
        fn what_is_hidden_weighs_no_more_than_was_said(
            whole in any_tree(), ppm in 0u32..1_000_001, before in 0usize..20,
        ) {
            let mut whole = whole;
            whole.truncate(before);
            let mut cut = whole.clone();
            cut.truncate_to_weight(ppm, usize::MAX);
            prop_assert_eq!(cut.total(), whole.total());
            let all: u128 = whole.nodes.iter().map(|node| u128::from(node.self_value.unsigned_abs())).sum();
            let wanted = all - all * u128::from(ppm) / SHARE_SCALE;
            // The plain way: one after the other, the heaviest first, until it is enough.
            let mut shown = u128::from(whole.nodes[0].self_value.unsigned_abs());
            let (mut least, nodes) = (u64::MAX, by_weight(&whole));
            for node in &nodes {
                if shown >= wanted {
                    break;
                }
                (shown, least) = (shown + u128::from(node.1), node.0);
            }
            let expected = if shown >= wanted { least } else { 0 };
            let count = nodes.iter().filter(|node| node.0 >= expected).count();
            // Nodes that cancel each other out to nothing stay only where something else keeps them.
            prop_assert!(functions(&cut) <= count);
            let others = whole.nodes.iter().any(|node| node.other);
            if whole.nodes.iter().all(|node| node.self_value >= 0) && !others {
                prop_assert_eq!(functions(&cut), count);
                prop_assert!(cut.truncated_total() as u128 <= all - wanted);
            }
        }
    }
}
