//! Call trees: stacks merged by function name.
//!
//! Nodes are stored level by level, siblings sorted by name, and the name table is sorted. Equal trees are
//! therefore equal arrays, and two trees merge in one pass. No code here recurses, because stacks may be
//! deep.

mod builder;
mod codec;
mod frame_names;
mod graph_columns;
mod inverted;
mod shape;
mod subtree;
#[cfg(test)]
pub(crate) mod tests;
mod truncate;

use std::sync::Arc;

use crate::data_model::model::{Dictionary, Profile};
use crate::data_model::symbols::NO_ENTRY;

pub use builder::TreeBuilder;
pub(crate) use builder::TreeDraft;
pub(crate) use codec::read_sorted_texts;
pub(crate) use frame_names::FrameNames;
pub use frame_names::{FrameGrouping, line_name_bytes};
pub use graph_columns::{GraphColumns, SparseColumn};
pub use shape::TreeShape;
pub(crate) use shape::join_texts;
pub use truncate::{NodeSelection, min_shown_weight};

/// Name of the remainder of a truncation, where only names are shown. See [`TreeNode::other`].
pub const OTHER_NAME: &str = "other";

/// Maximum magnitude of exact sums. No sum over some of the values passes 63 bits then.
pub const MAX_MAGNITUDE: u64 = i64::MAX as u64;

/// Function in the context of its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeNode {
    /// Index of its name in [`Tree::names`].
    pub name: u32,
    /// Index of the caller, [`NO_ENTRY`] at the root.
    pub parent: u32,
    /// Index of the first callee. Callees are contiguous.
    pub first_child: u32,
    /// Number of callees of the node.
    pub child_count: u32,
    /// Value of the node and all of its callees.
    pub total: i64,
    /// Value of the node itself.
    pub self_value: i64,
    /// Set for the remainder of a truncation; never for a function, whatever its name.
    pub other: bool,
}

/// Stacks merged by function name, below a nameless root.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Shared with the trees that this one is made from.
    names: Arc<[Arc<str>]>,
    nodes: Vec<TreeNode>,
    magnitude: u64,
    /// Set only if no self value is negative and each total is the exact sum of its parts.
    has_positive_totals: bool,
    /// Set if a node is the remainder of a truncation.
    has_remainders: bool,
}

/// Compares names and nodes. The other fields follow from how the tree was made.
impl PartialEq for Tree {
    fn eq(&self, other: &Self) -> bool {
        self.names == other.names && self.nodes == other.nodes
    }
}

impl Eq for Tree {}

impl Default for Tree {
    fn default() -> Self {
        Tree {
            names: Arc::new(["".into()]),
            nodes: vec![root()],
            magnitude: 0,
            has_positive_totals: true,
            has_remainders: false,
        }
    }
}

fn root() -> TreeNode {
    TreeNode {
        name: 0,
        parent: NO_ENTRY,
        first_child: 1,
        child_count: 0,
        total: 0,
        self_value: 0,
        other: false,
    }
}

impl Tree {
    /// Returns the tree of one value of a profile.
    pub fn from_profile(profile: &Profile, value: usize) -> Tree {
        let mut tree = Tree::from_totals(&profile.dictionary, &profile.totals_by_stack(value));
        if profile.magnitude(value) > MAX_MAGNITUDE {
            tree.magnitude = u64::MAX;
        }
        tree
    }

    /// Returns the tree of totals by stack id. Stacks without a total are skipped. Frames without symbols
    /// have the name of their binary, and consecutive ones of one binary are one node.
    pub fn from_totals(dictionary: &Dictionary, totals: &[i64]) -> Tree {
        Tree::with_frames(dictionary, totals, FrameGrouping::Function)
    }

    /// Returns a tree like [`from_totals`](Self::from_totals), with a node for each address without symbols.
    pub fn with_addresses(dictionary: &Dictionary, totals: &[i64]) -> Tree {
        Tree::with_frames(dictionary, totals, FrameGrouping::Address)
    }

    /// Returns the tree of totals by stack id with these frames.
    pub fn with_frames(dictionary: &Dictionary, totals: &[i64], grouping: FrameGrouping) -> Tree {
        let mut drafts = TreeDraft::default();
        let has_total = |stack: usize| totals.get(stack).is_some_and(|&total| total != 0);
        let places = builder::stack_nodes(dictionary, grouping, &mut drafts, has_total);
        places.iter().zip(totals).for_each(|(&place, &total)| drafts.add(place, total));
        drafts.finish()
    }

    /// Returns the sum of the absolute values of all self values. `u64::MAX` if it does not fit, or if a self value
    /// wrapped while it was added up.
    pub fn magnitude(&self) -> u64 {
        self.magnitude
    }
    /// Returns whether a sum over nodes may pass 63 bits. If not, no total, offset or weight of any of the nodes wraps.
    pub fn has_overflow(&self) -> bool {
        self.magnitude > MAX_MAGNITUDE
    }
    /// Returns whether the self values of a node wrapped while they were added up.
    fn has_wrapped(&self) -> bool {
        self.magnitude == u64::MAX
    }
    /// Returns the total of the root.
    pub fn total(&self) -> i64 {
        self.nodes[0].total
    }
    /// Returns all names, sorted. The root's empty name is first.
    pub fn names(&self) -> &[Arc<str>] {
        &self.names
    }
    /// Returns all nodes, level by level. The root is first.
    pub fn nodes(&self) -> &[TreeNode] {
        &self.nodes
    }
    /// Returns the name of a node.
    pub fn name(&self, node: &TreeNode) -> &str {
        if node.other { OTHER_NAME } else { &self.names[node.name as usize] }
    }
    /// Returns the index range of a node's callees.
    pub fn children(&self, node: u32) -> std::ops::Range<u32> {
        let node = &self.nodes[node as usize];
        node.first_child..node.first_child + node.child_count
    }

    /// Adds another tree. The merge is associative and commutative, and exact unless the result
    /// [has an overflow](Self::has_overflow).
    pub fn merge(&mut self, other: &Tree) {
        if other.nodes.len() > 1 || other.total() != 0 {
            *self = shape::merge_trees(self, other);
        }
    }

    /// Returns a tree of the same nodes with other values. Each total is that of the old one, not the sum of its parts.
    pub(crate) fn map_values(&self, value: impl Fn(i64) -> i64) -> Tree {
        let of_node = |node: &TreeNode| TreeNode {
            total: value(node.total),
            self_value: value(node.self_value),
            ..*node
        };
        let nodes: Vec<TreeNode> = self.nodes.iter().map(of_node).collect();
        let magnitude =
            nodes.iter().fold(0, |sum: u64, node| sum.saturating_add(node.self_value.unsigned_abs()));
        Tree {
            names: Arc::clone(&self.names),
            nodes,
            magnitude,
            has_positive_totals: false,
            has_remainders: self.has_remainders,
        }
    }

    /// Returns the approximate memory in bytes.
    pub fn bytes(&self) -> usize {
        let texts: usize = self.names.iter().map(|name| name.len() + size_of::<[usize; 4]>()).sum();
        texts + size_of_val(&self.nodes[..])
    }
}

/// Returns the nodes from below the root down to `node`.
pub(crate) fn path_to_node(tree: &Tree, mut node: u32) -> Vec<u32> {
    let mut path = Vec::new();
    while node != 0 && node != NO_ENTRY {
        path.push(node);
        node = tree.nodes()[node as usize].parent;
    }
    path.reverse();
    path
}
