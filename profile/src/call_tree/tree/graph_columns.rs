//! Tree as columns in preorder, for clients that draw it.

use std::cmp::Reverse;
use std::sync::Arc;

use super::{NodeSelection, Tree, TreeNode};
use crate::data_model::symbols::NO_ENTRY;

/// Column of values that most nodes do not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SparseColumn {
    /// Values other than 0, in the order of nodes.
    pub values: Vec<i64>,
    /// Number of nodes between the node of each value and that of the value before.
    pub gaps: Vec<u32>,
    /// Node after that of the last value.
    next_node: u32,
}

impl SparseColumn {
    /// Adds the value of a node, which comes after all nodes before it.
    fn push(&mut self, node: u32, value: i64) {
        if value != 0 {
            self.values.push(value);
            self.gaps.push(node - self.next_node);
            self.next_node = node + 1;
        }
    }

    /// Returns the greatest common divisor of all values, 0 if there are none.
    fn divisor(&self) -> u64 {
        // The smaller number second: most values are multiples of the divisor so far, which one division shows.
        self.values.iter().fold(0, |divisor, value| common_divisor(value.unsigned_abs(), divisor))
    }

    fn divide(&mut self, divisor: i64) {
        self.values.iter_mut().for_each(|value| *value /= divisor);
    }
}

/// Columns of a tree, one entry a node in preorder. The root is first, siblings are in the order of decreasing total, then
/// of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphColumns {
    /// Number of callees of each node.
    pub callees: Vec<u32>,
    /// Index of each node's name in `names`.
    pub node_names: Vec<u32>,
    /// Self values, as multiples of the divisor.
    pub self_values: SparseColumn,
    /// Weights of the callees that a truncation left out, as multiples of the divisor.
    pub truncated: SparseColumn,
    /// Greatest common divisor of all values, at least 1.
    pub divisor: i64,
    /// Names in use, sorted. The empty name of the root is first.
    pub names: Vec<Arc<str>>,
}

/// Shown node whose row is not written yet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PendingNode {
    total: i64,
    /// Index of the node. Siblings are in the order of names.
    index: Reverse<u32>,
}

impl GraphColumns {
    /// Returns the columns of a tree. Remainders of a truncation become the truncated weight of their caller.
    pub fn from_tree(tree: &Tree) -> GraphColumns {
        GraphColumns::from_selection(tree, None)
    }

    /// Returns the columns of a tree that is truncated to a selection of its nodes. `None` selects all. The truncated tree
    /// itself is not made.
    pub fn from_selection(tree: &Tree, selection: Option<NodeSelection>) -> GraphColumns {
        let shown = NodeSelection::shown_nodes(selection, tree);
        let count = shown.iter().filter(|shown| **shown).count();
        let mut columns = GraphColumns::default();
        columns.callees.reserve_exact(count);
        columns.node_names.reserve_exact(count);
        let mut pending = vec![PendingNode { total: 0, index: Reverse(0) }];
        while let Some(PendingNode { index: Reverse(mut index), .. }) = pending.pop() {
            let mut node = &tree.nodes[index as usize];
            // Most nodes of deep stacks have one callee, which follows at once.
            while node.child_count == 1 && shown[node.first_child as usize] {
                columns.push(node, 1, 0);
                index = node.first_child;
                node = &tree.nodes[index as usize];
            }
            let first_sibling = pending.len();
            let mut truncated = 0i64;
            for callee in tree.children(index) {
                let total = tree.nodes[callee as usize].total;
                match shown[callee as usize] {
                    true => pending.push(PendingNode { total, index: Reverse(callee) }),
                    false => truncated = truncated.wrapping_add(total),
                }
            }
            let callees = pending.len() - first_sibling;
            if callees > 1 {
                // Reversed, because the last one is popped first.
                pending[first_sibling..].sort_unstable();
            }
            columns.push(node, callees as u32, truncated);
        }
        columns.take_names(&tree.names);
        columns.divide();
        columns
    }

    /// Adds the row of a node. Rows come in preorder.
    fn push(&mut self, node: &TreeNode, callees: u32, truncated: i64) {
        let row = self.callees.len() as u32;
        self.callees.push(callees);
        self.node_names.push(node.name);
        self.self_values.push(row, node.self_value);
        self.truncated.push(row, truncated);
    }

    /// Sets the names that nodes have, and numbers them from 0 on.
    fn take_names(&mut self, names: &[Arc<str>]) {
        let mut ranks = vec![NO_ENTRY; names.len()];
        self.node_names.iter().for_each(|name| ranks[*name as usize] = 0);
        for (name, rank) in names.iter().zip(&mut ranks).filter(|(_, rank)| **rank != NO_ENTRY) {
            *rank = self.names.len() as u32;
            self.names.push(Arc::clone(name));
        }
        if self.names.len() < names.len() {
            self.node_names.iter_mut().for_each(|name| *name = ranks[*name as usize]);
        }
    }

    /// Divides all values by their greatest common divisor.
    fn divide(&mut self) {
        let divisor = common_divisor(self.self_values.divisor(), self.truncated.divisor());
        // The magnitude of the least value does not fit. No other divisor than 1 is then of use.
        self.divisor = i64::try_from(divisor).unwrap_or(1).max(1);
        if self.divisor > 1 {
            self.self_values.divide(self.divisor);
            self.truncated.divide(self.divisor);
        }
    }
}

/// Returns the greatest common divisor by Euclid's algorithm. Zero divides nothing, so the other number is returned.
fn common_divisor(mut left: u64, mut right: u64) -> u64 {
    while right != 0 {
        let rest = left % right;
        left = right;
        right = rest;
    }
    left
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::call_tree::tree::tests::{any_tree, tree};

    /// Self value and truncated weight by path, in the plain way.
    type WeightsByPath = BTreeMap<String, (i64, i64)>;

    /// Returns the value of each node.
    fn all_values(column: &SparseColumn, nodes: usize) -> Vec<i64> {
        let mut values = vec![0; nodes];
        let mut next = 0;
        for (value, gap) in column.values.iter().zip(&column.gaps) {
            next += *gap as usize;
            values[next] = *value;
            next += 1;
        }
        values
    }

    fn weights_of_columns(columns: &GraphColumns) -> WeightsByPath {
        let nodes = columns.callees.len();
        let self_values = all_values(&columns.self_values, nodes);
        let truncated = all_values(&columns.truncated, nodes);
        let mut found = WeightsByPath::new();
        let mut open: Vec<(String, u32)> = Vec::new();
        for at in 0..columns.callees.len() {
            while open.last().is_some_and(|(_, left)| *left == 0) {
                open.pop();
            }
            let name = &columns.names[columns.node_names[at] as usize];
            let path = match open.last_mut() {
                None => String::new(),
                Some((caller, left)) => {
                    *left -= 1;
                    format!("{caller}/{name}")
                }
            };
            let weights = [self_values[at], truncated[at]];
            let [self_value, truncated] = weights.map(|weight| weight * columns.divisor);
            assert!(found.insert(path.clone(), (self_value, truncated)).is_none(), "{path} is there twice");
            open.push((path, columns.callees[at]));
        }
        assert!(open.iter().all(|(_, left)| *left == 0));
        found
    }

    fn weights_of_tree(tree: &Tree) -> WeightsByPath {
        let mut paths: Vec<String> = Vec::new();
        let mut found = WeightsByPath::new();
        for node in tree.nodes() {
            let caller = paths.get(node.parent as usize).cloned().unwrap_or_default();
            let path =
                if paths.is_empty() { caller.clone() } else { format!("{caller}/{}", tree.name(node)) };
            match node.other {
                true => found.entry(caller).or_default().1 += node.self_value,
                false => found.entry(path.clone()).or_default().0 += node.self_value,
            }
            paths.push(path);
        }
        found
    }

    #[test]
    fn columns_are_in_preorder_with_the_heaviest_callee_first() {
        let mut whole = tree(&[("a;b", 40), ("a;c", 60), ("d", 10), ("d;b", 20), ("e", 6)]);
        whole.truncate(5);
        let columns = GraphColumns::from_tree(&whole);
        let names: Vec<&str> =
            columns.node_names.iter().map(|name| &*columns.names[*name as usize]).collect();
        assert_eq!(names, ["", "a", "c", "b", "d", "b"]);
        assert_eq!(columns.callees, [2, 2, 0, 0, 1, 0]);
        assert_eq!((columns.divisor, &columns.self_values.values[..]), (2, &[30, 20, 5, 10][..]));
        assert_eq!(columns.self_values.gaps, [2, 0, 0, 0]);
        assert_eq!((&columns.truncated.values[..], &columns.truncated.gaps[..]), (&[3][..], &[0][..]));
    }

    #[test]
    fn divisor_of_extreme_values_fits() {
        let columns = GraphColumns::from_tree(&tree(&[("a", i64::MIN)]));
        assert_eq!((columns.divisor, &columns.self_values.values[..]), (1, &[i64::MIN][..]));
        assert_eq!(columns.self_values.gaps, [1]);
        assert_eq!(GraphColumns::from_tree(&Tree::default()).divisor, 1);
    }

    proptest! {
        #[test]
        fn columns_contain_the_whole_tree(whole in any_tree(), nodes in 0usize..40) {
            let mut whole = whole;
            whole.truncate(nodes);
            let columns = GraphColumns::from_tree(&whole);
            prop_assert_eq!(weights_of_columns(&columns), weights_of_tree(&whole));
        }

        #[test]
        fn columns_of_selection_are_those_of_the_truncated_tree(
            whole in any_tree(), before in 0usize..20, nodes in 0usize..20, ppm in 0u32..1_000_001,
        ) {
            let mut whole = whole;
            whole.truncate(before);
            let mut truncated = whole.clone();
            truncated.truncate(nodes);
            let columns = GraphColumns::from_selection(&whole, whole.select_heaviest(nodes));
            prop_assert_eq!(columns, GraphColumns::from_tree(&truncated));
            let mut truncated = whole.clone();
            truncated.truncate_to_weight(ppm, nodes);
            let columns = GraphColumns::from_selection(&whole, Some(whole.select_weight(ppm, nodes)));
            prop_assert_eq!(columns, GraphColumns::from_tree(&truncated));
        }
    }
}
