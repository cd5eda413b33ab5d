//! Trees derived from other trees. Sorted input stays sorted, so nothing is hashed or sorted.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{MAX_MAGNITUDE, Tree, TreeNode, root};
use crate::data_model::symbols::NO_ENTRY;

/// Tree of all stacks of a source without values. A tree of some stacks then takes only a few additions.
#[derive(Clone, Debug)]
pub struct TreeShape {
    names: Arc<[Arc<str>]>,
    nodes: Vec<ShapeNode>,
    /// Node of each stack.
    places: Vec<u32>,
}

/// Node of a shape, with the fields of [`TreeNode`] that do not depend on values.
#[derive(Clone, Copy, Debug)]
struct ShapeNode {
    name: u32,
    parent: u32,
    first_child: u32,
    child_count: u32,
}

impl TreeShape {
    /// Creates the shape of these functions in their final order.
    pub(super) fn new(names: Vec<Arc<str>>, nodes: &[TreeNode], places: Vec<u32>) -> Self {
        let shape_node = |node: &TreeNode| ShapeNode {
            name: node.name,
            parent: node.parent,
            first_child: 0,
            child_count: 0,
        };
        let mut nodes: Vec<ShapeNode> = nodes.iter().map(shape_node).collect();
        for at in 1..nodes.len() {
            let parent = nodes[at].parent as usize;
            nodes[parent].child_count += 1;
        }
        let mut first_child = 1;
        for node in &mut nodes {
            node.first_child = first_child;
            first_child += node.child_count;
        }
        TreeShape { names: names.into(), nodes, places }
    }
    /// Returns the number of stacks in the shape.
    pub fn stacks(&self) -> usize {
        self.places.len()
    }
    /// Returns the approximate memory in bytes.
    pub fn bytes(&self) -> usize {
        let text: usize = self.names.iter().map(|name| name.len() + size_of::<[usize; 4]>()).sum();
        text + size_of_val(&self.nodes[..]) + size_of_val(&self.places[..])
    }
    /// Returns the tree of totals by stack. There are at most [`TreeShape::stacks`] totals.
    pub fn tree_from_totals(&self, totals: &[i64]) -> Tree {
        let mut self_values = vec![0i64; self.nodes.len()];
        let mut has_wrapped = false;
        for (&place, &total) in self.places.iter().zip(totals) {
            let self_value = &mut self_values[place as usize];
            let (sum, wraps) = self_value.overflowing_add(total);
            *self_value = sum;
            has_wrapped |= wraps;
        }
        let magnitude = match has_wrapped {
            true => u64::MAX,
            false => self_values.iter().fold(0, |sum: u64, value| sum.saturating_add(value.unsigned_abs())),
        };
        let has_negative = self_values.iter().any(|value| *value < 0);
        let mut live: Vec<bool> = self_values.iter().map(|value| *value != 0).collect();
        let mut totals = self_values.clone();
        for at in (1..self.nodes.len()).rev() {
            let parent = self.nodes[at].parent as usize;
            totals[parent] = totals[parent].wrapping_add(totals[at]);
            live[parent] |= live[at];
        }
        live[0] = true;
        let weights = NodeWeights { self_values, totals };
        let mut nodes: Vec<TreeNode>;
        let mut names = Arc::clone(&self.names);
        if live.iter().filter(|live| **live).count() < live.len() {
            let mut used = vec![false; names.len()];
            nodes = self.live_nodes(&weights, &live, &mut used);
            names = names_in_use(names, &used, &mut nodes);
        } else {
            nodes = self.nodes.iter().enumerate().map(|(at, node)| weights.node(at, *node)).collect();
        }
        let has_positive_totals = !has_negative && magnitude <= MAX_MAGNITUDE;
        Tree { names, nodes, magnitude, has_positive_totals, has_remainders: false }
    }
    /// Returns only the live nodes, and marks their names.
    fn live_nodes(&self, weights: &NodeWeights, live: &[bool], used_names: &mut [bool]) -> Vec<TreeNode> {
        // Number of live nodes before each node: its new index, if it is live.
        let mut ranks = Vec::with_capacity(live.len() + 1);
        ranks.push(0u32);
        ranks.extend(live.iter().scan(0, |rank, live| {
            *rank += u32::from(*live);
            Some(*rank)
        }));
        let mut nodes = Vec::with_capacity(ranks[live.len()] as usize);
        for (at, node) in self.nodes.iter().enumerate().filter(|(at, _)| live[*at]) {
            let ShapeNode { name, parent, first_child, child_count } = *node;
            let after_children = ranks[(first_child + child_count) as usize];
            let first_child = ranks[first_child as usize];
            let parent = if parent == NO_ENTRY { NO_ENTRY } else { ranks[parent as usize] };
            used_names[name as usize] = true;
            let node = ShapeNode { name, parent, first_child, child_count: after_children - first_child };
            nodes.push(weights.node(at, node));
        }
        nodes
    }
}

/// Values of the nodes of a shape.
struct NodeWeights {
    self_values: Vec<i64>,
    totals: Vec<i64>,
}

impl NodeWeights {
    fn node(&self, at: usize, node: ShapeNode) -> TreeNode {
        let ShapeNode { name, parent, first_child, child_count } = node;
        let total = self.totals[at];
        let self_value = self.self_values[at];
        TreeNode { name, parent, first_child, child_count, total, self_value, other: false }
    }
}

/// Returns the sum of two trees.
pub(super) fn merge_trees(left: &Tree, right: &Tree) -> Tree {
    let (names, of_left, of_right) = join_texts(&left.names, &right.names);
    let (self_value, wraps) = left.nodes[0].self_value.overflowing_add(right.nodes[0].self_value);
    let mut has_wrapped = wraps || left.has_wrapped() || right.has_wrapped();
    let mut nodes = Vec::with_capacity(left.nodes.len().max(right.nodes.len()));
    nodes.push(TreeNode { self_value, ..root() });
    // For each node, its nodes in the left and the right tree.
    let mut origins = vec![(0, 0)];
    let mut at = 0;
    while at < nodes.len() {
        let mut on_left = CalleeCursor::of_node(left, origins[at].0, &of_left);
        let mut on_right = CalleeCursor::of_node(right, origins[at].1, &of_right);
        loop {
            let first = on_left.key();
            let second = on_right.key();
            let key = match (first, second) {
                (None, None) => break,
                (Some(key), None) | (None, Some(key)) => key,
                (Some(first), Some(second)) => first.min(second),
            };
            let take = |callees: &mut CalleeCursor<'_>, is_next: bool| {
                if is_next { callees.take() } else { (NO_ENTRY, 0) }
            };
            let (from_left, mine) = take(&mut on_left, first == Some(key));
            let (from_right, other) = take(&mut on_right, second == Some(key));
            let (name, is_other) = key;
            let (self_value, wraps) = mine.overflowing_add(other);
            has_wrapped |= wraps;
            nodes.push(TreeNode { name, parent: at as u32, self_value, other: is_other, ..root() });
            origins.push((from_left, from_right));
        }
        at += 1;
    }
    finish_tree(names.into(), nodes, has_wrapped)
}

/// Remaining callees of a node.
struct CalleeCursor<'t> {
    tree: &'t Tree,
    names: &'t [u32],
    rest: std::ops::Range<u32>,
}

impl<'t> CalleeCursor<'t> {
    fn of_node(tree: &'t Tree, node: u32, names: &'t [u32]) -> Self {
        let rest = if node == NO_ENTRY { 0..0 } else { tree.children(node) };
        CalleeCursor { tree, names, rest }
    }
    /// Returns the sort key of siblings.
    fn key(&self) -> Option<(u32, bool)> {
        let node = self.tree.nodes.get(self.rest.clone().next()? as usize)?;
        Some((self.names[node.name as usize], node.other))
    }
    fn take(&mut self) -> (u32, i64) {
        self.rest.next().map_or((NO_ENTRY, 0), |at| (at, self.tree.nodes[at as usize].self_value))
    }
}

/// Merges two sorted lists of texts. Returns all texts, and the new index of each text of both lists.
pub(crate) fn join_texts(left: &[Arc<str>], right: &[Arc<str>]) -> (Vec<Arc<str>>, Vec<u32>, Vec<u32>) {
    let mut names = Vec::with_capacity(left.len().max(right.len()));
    let mut of_left = Vec::with_capacity(left.len());
    let mut of_right = Vec::with_capacity(right.len());
    while of_left.len() < left.len() || of_right.len() < right.len() {
        let place = names.len() as u32;
        let order = match (left.get(of_left.len()), right.get(of_right.len())) {
            (Some(mine), Some(other)) => mine.cmp(other),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        if order.is_le() {
            names.push(Arc::clone(&left[of_left.len()]));
            of_left.push(place);
        }
        if order.is_ge() {
            if order.is_gt() {
                names.push(Arc::clone(&right[of_right.len()]));
            }
            of_right.push(place);
        }
    }
    (names, of_left, of_right)
}

/// Completes a tree from nodes in their final order, of which only names, callers and self values are set.
/// Nodes without a value and without a callee that has one are removed, and so are unused names. `has_wrapped` is set
/// if a self value wrapped.
pub(super) fn finish_tree(names: Arc<[Arc<str>]>, mut nodes: Vec<TreeNode>, has_wrapped: bool) -> Tree {
    let mut live: Vec<bool> = Vec::with_capacity(nodes.len());
    let mut magnitude = if has_wrapped { u64::MAX } else { 0 };
    let mut has_negative = false;
    let mut has_remainders = false;
    for node in &mut nodes {
        has_negative |= node.self_value < 0;
        has_remainders |= node.other;
        magnitude = magnitude.saturating_add(node.self_value.unsigned_abs());
        live.push(node.self_value != 0);
        (node.total, node.child_count) = (node.self_value, 0);
    }
    for at in (1..nodes.len()).rev() {
        // A removed node has no value to add.
        if live[at] {
            let TreeNode { parent, total, .. } = nodes[at];
            let caller = &mut nodes[parent as usize];
            caller.total = caller.total.wrapping_add(total);
            caller.child_count += 1;
            live[parent as usize] = true;
        }
    }
    live[0] = true;
    if live.contains(&false) {
        keep_live(&mut nodes, &live);
    }
    let mut first_child = 1;
    let mut used = vec![false; names.len()];
    for node in &mut nodes {
        node.first_child = first_child;
        first_child += node.child_count;
        used[node.name as usize] = true;
    }
    let has_positive_totals = !has_negative && magnitude <= MAX_MAGNITUDE;
    let names = names_in_use(names, &used, &mut nodes);
    Tree { names, nodes, magnitude, has_positive_totals, has_remainders }
}

fn keep_live(nodes: &mut Vec<TreeNode>, live: &[bool]) {
    let mut places = vec![0u32; nodes.len()];
    let kept = places.iter_mut().zip(live).filter(|(_, live)| **live);
    (0..).zip(kept).for_each(|(at, (place, _))| *place = at);
    let mut at = 0;
    nodes.retain_mut(|node| {
        if node.parent != NO_ENTRY {
            node.parent = places[node.parent as usize];
        }
        at += 1;
        live[at - 1]
    });
}

fn names_in_use(names: Arc<[Arc<str>]>, used: &[bool], nodes: &mut [TreeNode]) -> Arc<[Arc<str>]> {
    if !used.contains(&false) {
        return names;
    }
    let mut ranks = vec![0u32; names.len()];
    let mut kept = Vec::new();
    for ((name, rank), _) in names.iter().zip(&mut ranks).zip(used).filter(|(_, used)| **used) {
        *rank = kept.len() as u32;
        kept.push(Arc::clone(name));
    }
    nodes.iter_mut().for_each(|node| node.name = ranks[node.name as usize]);
    kept.into()
}
