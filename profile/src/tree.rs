//! Trees: stacks merged by function name.
//!
//! A tree is laid out level by level, siblings lexicographically by name, and its name table is sorted, so
//! equal trees are equal arrays and two trees merge in one walk. Nothing here recurses: stacks may be deep.

mod builder;
mod codec;
mod shape;
mod subtree;
#[cfg(test)]
pub(crate) mod tests;
mod truncate;

use std::sync::Arc;

use crate::model::{Dictionary, Profile};
use crate::symbols::NO_ENTRY;

pub use builder::TreeBuilder;
pub(crate) use builder::TreeDraft;
use builder::UnnamedFrameMode;
pub use shape::TreeShape;
pub use truncate::min_shown_weight;

/// What the remainder of a truncation is called where names are all there is. See [`TreeNode::other`].
pub const OTHER_NAME: &str = "other";

/// A function in the context of its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeNode {
    /// Index in [`Tree::names`].
    pub name: u32,
    /// The caller, [`NO_ENTRY`] at the root.
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
    nodes: Vec<TreeNode>,
}

impl Default for Tree {
    fn default() -> Self {
        Tree { names: vec!["".into()], nodes: vec![root()] }
    }
}

fn root() -> TreeNode {
    TreeNode { name: 0, parent: NO_ENTRY, first_child: 1, child_count: 0, total: 0, own: 0, other: false }
}

impl Tree {
    /// The tree of one value of a profile.
    pub fn from_profile(profile: &Profile, value: usize) -> Tree {
        Tree::from_totals(&profile.dictionary, &profile.totals_by_stack(value))
    }

    /// The tree of totals by stack id. Stacks without a total are not looked at. Frames without symbols are named by their
    /// binary, and consecutive ones of one binary are one node.
    pub fn from_totals(dictionary: &Dictionary, totals: &[i64]) -> Tree {
        Tree::with_unnamed(dictionary, totals, UnnamedFrameMode::Binaries)
    }

    /// As [`from_totals`](Self::from_totals), with a node for each address that has no symbols.
    pub fn with_addresses(dictionary: &Dictionary, totals: &[i64]) -> Tree {
        Tree::with_unnamed(dictionary, totals, UnnamedFrameMode::Addresses)
    }

    fn with_unnamed(dictionary: &Dictionary, totals: &[i64], unnamed: UnnamedFrameMode) -> Tree {
        let mut drafts = TreeDraft::default();
        let has_total = |stack: usize| totals.get(stack).is_some_and(|&total| total != 0);
        let places = builder::stack_nodes(dictionary, unnamed, &mut drafts, has_total);
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
    pub fn nodes(&self) -> &[TreeNode] {
        &self.nodes
    }
    /// The name of a node.
    pub fn name(&self, node: &TreeNode) -> &str {
        if node.other { OTHER_NAME } else { &self.names[node.name as usize] }
    }
    /// Where the callees of a node lie.
    pub fn children(&self, node: u32) -> std::ops::Range<u32> {
        let node = &self.nodes[node as usize];
        node.first_child..node.first_child + node.child_count
    }

    /// Adds another tree. Exact, associative and commutative.
    pub fn merge(&mut self, other: &Tree) {
        if other.nodes.len() > 1 || other.total() != 0 {
            *self = shape::merge_trees(self, other);
        }
    }

    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        let texts: usize = self.names.iter().map(|name| name.len() + size_of::<[usize; 4]>()).sum();
        texts + size_of_val(&self.nodes[..])
    }
}

/// The nodes from below the root down to `node`.
pub(crate) fn path_to_node(tree: &Tree, mut node: u32) -> Vec<u32> {
    let mut path = Vec::new();
    while node != 0 && node != NO_ENTRY {
        path.push(node);
        node = tree.nodes()[node as usize].parent;
    }
    path.reverse();
    path
}
