//! Builder of trees, node by node in any order.

use std::sync::Arc;

use super::frame_names::{FrameGrouping, FrameNames};
use super::shape::finish_tree;
use super::{Tree, TreeNode, TreeShape, root};
use crate::data_model::model::Dictionary;
use crate::data_model::symbols::{NO_ENTRY, StringTable};
use crate::encoding::hash::PrehashedMap;

/// Node before its final position is known.
#[derive(Clone, Copy)]
pub(crate) struct DraftNode {
    pub(crate) parent: u32,
    pub(crate) name: u32,
    pub(crate) other: bool,
    pub(crate) self_value: i64,
}

/// Nodes in the order of discovery, callers before callees.
pub(crate) struct TreeDraft {
    names: StringTable,
    nodes: Vec<DraftNode>,
    /// Nodes by caller, name, and whether they are a remainder.
    children: PrehashedMap<u64, u32>,
    /// Set if a self value wrapped.
    has_wrapped: bool,
}

impl Default for TreeDraft {
    fn default() -> Self {
        let root = DraftNode { parent: NO_ENTRY, name: 0, other: false, self_value: 0 };
        TreeDraft {
            names: StringTable::default(),
            nodes: vec![root],
            children: PrehashedMap::default(),
            has_wrapped: false,
        }
    }
}

impl TreeDraft {
    pub(crate) fn name(&mut self, name: &str) -> u32 {
        self.names.intern(name)
    }
    pub(crate) fn child(&mut self, parent: u32, name: u32, other: bool) -> u32 {
        child_node(&mut self.children, &mut self.nodes, parent, name, other)
    }
    pub(crate) fn add(&mut self, node: u32, value: i64) {
        let self_value = &mut self.nodes[node as usize].self_value;
        let (sum, wraps) = self_value.overflowing_add(value);
        *self_value = sum;
        self.has_wrapped |= wraps;
    }
    pub(crate) fn finish(self) -> Tree {
        let mut live: Vec<bool> = self.nodes.iter().map(|node| node.self_value != 0).collect();
        for (at, node) in self.nodes.iter().enumerate().skip(1).rev() {
            live[node.parent as usize] |= live[at];
        }
        live[0] = true;
        let (names, nodes, _) = self.in_order(&live);
        finish_tree(names.into(), nodes, self.has_wrapped)
    }
    /// Returns the shape of trees with these nodes. `of_stacks` has the node of each stack.
    fn shape(self, of_stacks: &[u32]) -> TreeShape {
        let (names, nodes, drafts) = self.in_order(&vec![true; self.nodes.len()]);
        let mut places = vec![0u32; drafts.len()];
        (0..).zip(&drafts).for_each(|(place, &draft)| places[draft as usize] = place);
        TreeShape::new(names, &nodes, of_stacks.iter().map(|&draft| places[draft as usize]).collect())
    }
    /// Returns the live names and nodes in their final order, and the draft of each node.
    fn in_order(&self, live: &[bool]) -> (Vec<Arc<str>>, Vec<TreeNode>, Vec<u32>) {
        let (names, ranks) = self.sorted_names(live);
        let (first, order) = self.callees(live, &ranks);
        let mut nodes = vec![TreeNode { self_value: self.nodes[0].self_value, ..root() }];
        let mut drafts = vec![0u32];
        let mut at = 0;
        while at < nodes.len() {
            let draft = drafts[at] as usize;
            for &callee in &order[first[draft] as usize..first[draft + 1] as usize] {
                let DraftNode { name, other, self_value, .. } = self.nodes[callee as usize];
                nodes.push(TreeNode {
                    name: ranks[name as usize],
                    parent: at as u32,
                    self_value,
                    other,
                    ..root()
                });
                drafts.push(callee);
            }
            at += 1;
        }
        (names, nodes, drafts)
    }
    /// Returns the live callees of each node by name: the offset of each node's callees, and all of them.
    fn callees(&self, live: &[bool], ranks: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let callees = || (1u32..).zip(&self.nodes[1..]).filter(|(at, _)| live[*at as usize]);
        let mut first = vec![0u32; self.nodes.len() + 1];
        callees().for_each(|(_, node)| first[node.parent as usize + 1] += 1);
        for at in 1..first.len() {
            first[at] += first[at - 1];
        }
        let mut order = vec![0u32; first[self.nodes.len()] as usize];
        let mut next = first.clone();
        for (at, node) in callees() {
            let place = &mut next[node.parent as usize];
            order[*place as usize] = at;
            *place += 1;
        }
        for of_one in first.windows(2) {
            order[of_one[0] as usize..of_one[1] as usize].sort_unstable_by_key(|&at| {
                let node = &self.nodes[at as usize];
                (ranks[node.name as usize], node.other)
            });
        }
        (first, order)
    }
    /// Returns the names in use, sorted, and the rank of each id. The empty name is always first.
    fn sorted_names(&self, live: &[bool]) -> (Vec<Arc<str>>, Vec<u32>) {
        let mut used = vec![false; self.names.len()];
        let live = self.nodes.iter().zip(live).filter(|(_, live)| **live);
        live.for_each(|(node, _)| used[node.name as usize] = true);
        let used = (0u32..).zip(used).filter(|(_, used)| *used);
        let mut names: Vec<(&str, u32)> = used.map(|(id, _)| (self.names.get(id), id)).collect();
        names.sort_unstable();
        let mut ranks = vec![0; self.names.len()];
        (0..).zip(&names).for_each(|(rank, (_, id))| ranks[*id as usize] = rank);
        (names.into_iter().map(|(name, _)| name.into()).collect(), ranks)
    }
}

/// Returns the callee of a node with a name, added if new.
fn child_node(
    children: &mut PrehashedMap<u64, u32>,
    nodes: &mut Vec<DraftNode>,
    parent: u32,
    name: u32,
    other: bool,
) -> u32 {
    // No tree has 2^31 nodes.
    let key = u64::from(parent) << 33 | u64::from(other) << 32 | u64::from(name);
    *children.entry(key).or_insert_with(|| {
        nodes.push(DraftNode { parent, name, other, self_value: 0 });
        nodes.len() as u32 - 1
    })
}

/// Builder of a tree from frames, for callers without a [`Dictionary`].
#[derive(Default)]
pub struct TreeBuilder(TreeDraft);

impl TreeBuilder {
    /// Id of the nameless root.
    pub const ROOT_NODE: u32 = 0;

    /// Creates a builder with memory for `nodes` nodes.
    pub fn with_capacity(nodes: usize) -> Self {
        let mut drafts = TreeDraft::default();
        drafts.nodes.reserve(nodes);
        drafts.children.reserve(nodes);
        TreeBuilder(drafts)
    }

    /// Returns the id of a name.
    pub fn name(&mut self, name: &str) -> u32 {
        self.0.name(name)
    }
    /// Returns the callee with that name, added if new.
    pub fn child(&mut self, caller: u32, name: u32) -> u32 {
        self.0.child(caller, name, false)
    }
    /// Adds to a node's self value.
    pub fn add(&mut self, node: u32, value: i64) {
        self.0.add(node, value);
    }
    /// Returns the tree of all nodes that have a value or a callee with one.
    pub fn finish(self) -> Tree {
        self.0.finish()
    }
    /// Returns the shape of trees with stacks that end at these nodes. Values are ignored.
    pub fn shape(self, of_stacks: &[u32]) -> TreeShape {
        self.0.shape(of_stacks)
    }
}

/// Adds the nodes of a dictionary's wanted stacks, and returns the node of each stack.
pub(super) fn stack_nodes(
    dictionary: &Dictionary,
    grouping: FrameGrouping,
    drafts: &mut TreeDraft,
    is_wanted: impl Fn(usize) -> bool,
) -> Vec<u32> {
    let path = dictionary.stacks.nodes();
    let leaves: Vec<u32> =
        (0..dictionary.stacks.len() as u32).map(|stack| dictionary.stacks.leaf(stack)).collect();
    let mut live = vec![false; path.len()];
    let wanted = leaves.iter().enumerate().filter(|(stack, leaf)| **leaf != NO_ENTRY && is_wanted(*stack));
    wanted.for_each(|(_, &leaf)| live[leaf as usize] = true);
    for (at, node) in path.iter().enumerate().rev() {
        if node.parent != NO_ENTRY {
            live[node.parent as usize] |= live[at];
        }
    }
    let live_nodes = live.iter().filter(|live| **live).count();
    drafts.nodes.reserve(live_nodes);
    drafts.children.reserve(live_nodes);
    let mut names = FrameNames::new(&dictionary.symbols, grouping);
    let mut places = vec![0u32; path.len()];
    // Name of each node's innermost frame, if it is one frame with callees of the same name.
    let mut joins = vec![NO_ENTRY; path.len()];
    for (at, node) in path.iter().enumerate().filter(|(at, _)| live[*at]) {
        let mut place = if node.parent == NO_ENTRY { 0 } else { places[node.parent as usize] };
        let mut joined = joins.get(node.parent as usize).copied().unwrap_or(NO_ENTRY);
        for frame in names.frames_of(&mut drafts.names, node.location) {
            if !frame.joins_caller || joined != frame.name {
                place = child_node(&mut drafts.children, &mut drafts.nodes, place, frame.name, false);
            }
            joined = if frame.joins_caller { frame.name } else { NO_ENTRY };
        }
        places[at] = place;
        joins[at] = joined;
    }
    leaves.into_iter().map(|leaf| places.get(leaf as usize).copied().unwrap_or(0)).collect()
}

impl TreeShape {
    /// Returns the shape for all stacks of a dictionary.
    pub fn from_dictionary(dictionary: &Dictionary) -> Self {
        let mut drafts = TreeDraft::default();
        let places = stack_nodes(dictionary, FrameGrouping::Function, &mut drafts, |_| true);
        drafts.shape(&places)
    }
}
