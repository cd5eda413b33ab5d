//! Trees: stacks merged by function name.
//!
//! A tree is laid out level by level, siblings lexicographically by name, and its name table is sorted, so
//! equal trees are equal arrays and two trees merge in one walk. Nothing here recurses: stacks may be deep.

mod branch;
mod draft;
mod packed;
mod sorted;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use crate::model::{Dictionary, Profile};
use crate::symbols::NONE;

pub use draft::Builder;
pub(crate) use draft::Drafts;
pub use sorted::Shape;

/// What the remainder of a truncation is called where names are all there is. See [`Node::other`].
pub const OTHER: &str = "other";

/// A function in the context of its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Index in [`Tree::names`].
    pub name: u32,
    /// The caller, [`NONE`] at the root.
    pub parent: u32,
    /// The first callee; callees lie side by side.
    pub first_child: u32,
    /// How many callees.
    pub child_count: u32,
    /// Own value and that of all callees.
    pub total: i64,
    /// Own value.
    pub own: i64,
    /// Stands for what a truncation cut off; never true of a function, whatever its name.
    pub other: bool,
}

/// Stacks merged by function name, below one nameless root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    names: Vec<Arc<str>>,
    nodes: Vec<Node>,
}

impl Default for Tree {
    fn default() -> Self {
        Tree { names: vec!["".into()], nodes: vec![root()] }
    }
}

fn root() -> Node {
    Node { name: 0, parent: NONE, first_child: 1, child_count: 0, total: 0, own: 0, other: false }
}

impl Tree {
    /// The tree of one value of a profile.
    pub fn of(profile: &Profile, value: usize) -> Tree {
        Tree::from_totals(&profile.dictionary, &profile.by_stack(value))
    }

    /// The tree of totals by stack id. Stacks without a total are not looked at.
    pub fn from_totals(dictionary: &Dictionary, totals: &[i64]) -> Tree {
        let mut drafts = Drafts::default();
        let has_total = |stack: usize| totals.get(stack).is_some_and(|&total| total != 0);
        let places = draft::of_stacks(dictionary, &mut drafts, has_total);
        places.iter().zip(totals).for_each(|(&place, &total)| drafts.add(place, total));
        drafts.finish()
    }

    /// The total of everything.
    pub fn total(&self) -> i64 {
        self.nodes[0].total
    }
    /// All names, sorted; the empty one, of the root, is first.
    pub fn names(&self) -> &[Arc<str>] {
        &self.names
    }
    /// All nodes, level by level; the root is first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }
    /// The name of a node.
    pub fn name(&self, node: &Node) -> &str {
        if node.other { OTHER } else { &self.names[node.name as usize] }
    }
    /// Where the callees of a node lie.
    pub fn children(&self, node: u32) -> std::ops::Range<u32> {
        let node = &self.nodes[node as usize];
        node.first_child..node.first_child + node.child_count
    }

    /// Adds another tree. Exact, associative and commutative.
    pub fn merge(&mut self, other: &Tree) {
        if other.nodes.len() > 1 || other.total() != 0 {
            *self = sorted::sum(self, other);
        }
    }

    /// Only what these functions, root first, called, below them as before.
    pub fn below(self, call_site: &[String]) -> Tree {
        let mut drafts = Drafts::default();
        let mut node = 0;
        let mut place = 0;
        for wanted in call_site {
            let is_it = |&child: &u32| {
                let child = &self.nodes[child as usize];
                !child.other && *self.names[child.name as usize] == **wanted
            };
            let Some(child) = self.children(node).find(is_it) else { return Tree::default() };
            let name = drafts.name(wanted);
            (node, place) = (child, drafts.child(place, name, false));
        }
        if node == 0 {
            return self;
        }
        let names: Vec<u32> = self.names.iter().map(|name| drafts.name(name)).collect();
        let mut places = vec![NONE; self.nodes.len()];
        places[node as usize] = place;
        for (at, below) in self.nodes.iter().enumerate().skip(node as usize) {
            if at > node as usize && places[below.parent as usize] != NONE {
                let parent = places[below.parent as usize];
                places[at] = drafts.child(parent, names[below.name as usize], below.other);
            }
            if places[at] != NONE {
                drafts.add(places[at], below.own);
            }
        }
        drafts.finish()
    }

    /// Cuts down to the `max_nodes` heaviest nodes, the root not counted. To be done once, at the very end:
    /// a truncated tree still merges, but what it lost is lost.
    ///
    /// What is cut becomes one child of its nearest kept caller, flagged [`Node::other`]; these remainders
    /// come on top of `max_nodes`, at most one per kept node. No total changes. Of equally heavy nodes the
    /// upper, then the left one stays, so that the number holds also where totals are equal.
    pub fn truncate(&mut self, max_nodes: usize) {
        let others = self.nodes.iter().filter(|node| node.other).count();
        if self.nodes.len() - 1 - others > max_nodes {
            *self = sorted::cut(self, &self.heaviest(max_nodes));
        }
    }

    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        let texts: usize = self.names.iter().map(|name| name.len() + size_of::<[usize; 4]>()).sum();
        texts + size_of_val(&self.nodes[..])
    }

    /// As [`truncate`](Self::truncate), but nodes as heavy as the last one that stays do stay, so that the
    /// result does not depend on names.
    /// Unless those are so many that more than `most` would stay: then none of them does.
    pub fn truncate_with_ties(&mut self, max_nodes: usize, most: usize) {
        let weights = self.weights();
        let named = self.nodes.iter().zip(&weights).skip(1).filter(|(node, _)| !node.other);
        let mut of_named: Vec<u64> = named.map(|(_, &weight)| weight).collect();
        let least = least_shown(&mut of_named, max_nodes, most);
        let mut keep: Vec<bool> =
            self.nodes.iter().zip(weights).map(|(node, weight)| weight >= least && !node.other).collect();
        keep[0] = true;
        *self = sorted::cut(self, &keep);
    }

    /// The weight sums magnitudes, so that callers outweigh callees also where values are negative; else it is
    /// the total.
    fn weights(&self) -> Vec<u64> {
        let mut weights: Vec<u64> = self.nodes.iter().map(|node| node.own.unsigned_abs()).collect();
        for (at, node) in self.nodes.iter().enumerate().skip(1).rev() {
            let parent = node.parent as usize;
            weights[parent] = weights[parent].saturating_add(weights[at]);
        }
        weights
    }

    /// Which nodes are heaviest.
    fn heaviest(&self, max_nodes: usize) -> Vec<bool> {
        let weights = self.weights();
        let mut order: Vec<usize> = (1..self.nodes.len()).filter(|&at| !self.nodes[at].other).collect();
        if max_nodes < order.len() {
            order.select_nth_unstable_by_key(max_nodes, |&at| (std::cmp::Reverse(weights[at]), at));
        }
        let mut keep = vec![false; self.nodes.len()];
        keep[0] = true;
        order.iter().take(max_nodes).for_each(|&at| keep[at] = true);
        keep
    }
}

/// The least weight that is shown if `count` of these are: what is as heavy as the last of them is shown, too, unless
/// there would then be more than `most`.
pub fn least_shown(weights: &mut [u64], count: usize, most: usize) -> u64 {
    let least = nth_heaviest(weights, count);
    let shown = weights.iter().filter(|&&weight| weight >= least).count();
    if shown > most.max(count) { least.saturating_add(1) } else { least }
}

/// The `count`-th of the heaviest weights.
fn nth_heaviest(weights: &mut [u64], count: usize) -> u64 {
    match count {
        0 => u64::MAX,
        _ if count > weights.len() => 0,
        _ => *weights.select_nth_unstable_by_key(count - 1, |&weight| std::cmp::Reverse(weight)).1,
    }
}

/// The nodes from below the root down to `node`.
pub(crate) fn path(tree: &Tree, mut node: u32) -> Vec<u32> {
    let mut path = Vec::new();
    while node != 0 && node != NONE {
        path.push(node);
        node = tree.nodes()[node as usize].parent;
    }
    path.reverse();
    path
}
