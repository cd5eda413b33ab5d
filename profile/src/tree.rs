//! Trees: stacks merged by function name.
//!
//! A tree is laid out level by level, siblings lexicographically by name, and its name table is sorted, so
//! equal trees are equal arrays and two trees merge in one walk. Nothing here recurses: stacks may be deep.

mod branch;
mod cut;
mod draft;
mod packed;
mod sorted;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use crate::model::{Dictionary, Profile};
use crate::symbols::NONE;

pub use cut::least_shown;
pub use draft::Builder;
pub(crate) use draft::Drafts;
use draft::Unnamed;
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

    /// The tree of totals by stack id. Stacks without a total are not looked at. Frames without symbols are named by their
    /// binary, and consecutive ones of one binary are one node.
    pub fn from_totals(dictionary: &Dictionary, totals: &[i64]) -> Tree {
        Tree::with_unnamed(dictionary, totals, Unnamed::Binaries)
    }

    /// As [`from_totals`](Self::from_totals), with a node for each address that has no symbols.
    pub fn with_addresses(dictionary: &Dictionary, totals: &[i64]) -> Tree {
        Tree::with_unnamed(dictionary, totals, Unnamed::Addresses)
    }

    fn with_unnamed(dictionary: &Dictionary, totals: &[i64], unnamed: Unnamed) -> Tree {
        let mut drafts = Drafts::default();
        let has_total = |stack: usize| totals.get(stack).is_some_and(|&total| total != 0);
        let places = draft::of_stacks(dictionary, unnamed, &mut drafts, has_total);
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

    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        let texts: usize = self.names.iter().map(|name| name.len() + size_of::<[usize; 4]>()).sum();
        texts + size_of_val(&self.nodes[..])
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
