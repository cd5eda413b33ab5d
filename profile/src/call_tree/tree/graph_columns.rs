//! Tree as columns in preorder, for clients that draw it.

use std::cmp::Reverse;
use std::sync::Arc;

use super::Tree;

/// Columns of a tree, one entry a node in preorder. The root is first, siblings are in the order of decreasing total, then
/// of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphColumns {
    /// Number of callees of each node.
    pub callees: Vec<u32>,
    /// Index of each node's name in `names`.
    pub node_names: Vec<u32>,
    /// Self value of each node, as a multiple of the divisor.
    pub self_values: Vec<i64>,
    /// Weight of the callees that a truncation left out, as a multiple of the divisor.
    pub truncated: Vec<i64>,
    /// Greatest common divisor of all values, at least 1.
    pub divisor: i64,
    /// Names in the order of their first node. The empty name of the root is first.
    pub names: Vec<Arc<str>>,
}

impl GraphColumns {
    /// Returns the columns of a tree. Remainders of a truncation become the truncated weight of their caller.
    pub fn from_tree(tree: &Tree) -> GraphColumns {
        let truncated = truncated_weights(tree);
        let mut columns = GraphColumns::default();
        let mut name_ids = vec![u32::MAX; tree.names.len()];
        let mut pending = vec![0u32];
        let mut siblings = Vec::new();
        let mut divisor = 0u64;
        while let Some(at) = pending.pop() {
            let node = &tree.nodes[at as usize];
            siblings.clear();
            siblings.extend(tree.children(at).filter(|&child| !tree.nodes[child as usize].other));
            // Reversed, because the last one is popped first.
            siblings.sort_unstable_by_key(|&child| {
                let child = &tree.nodes[child as usize];
                (child.total, Reverse(child.name))
            });
            pending.extend_from_slice(&siblings);
            let name = &mut name_ids[node.name as usize];
            if *name == u32::MAX {
                *name = columns.names.len() as u32;
                columns.names.push(Arc::clone(&tree.names[node.name as usize]));
            }
            columns.callees.push(siblings.len() as u32);
            columns.node_names.push(*name);
            columns.self_values.push(node.self_value);
            columns.truncated.push(truncated[at as usize]);
            divisor = common_divisor(divisor, node.self_value.unsigned_abs());
            divisor = common_divisor(divisor, truncated[at as usize].unsigned_abs());
        }
        columns.divide(divisor);
        columns
    }

    /// Divides all values by their greatest common divisor.
    fn divide(&mut self, divisor: u64) {
        // The magnitude of the least value does not fit. No other divisor than 1 is then of use.
        self.divisor = i64::try_from(divisor).unwrap_or(1).max(1);
        if self.divisor > 1 {
            let values = self.self_values.iter_mut().chain(&mut self.truncated);
            values.for_each(|value| *value /= self.divisor);
        }
    }
}

/// Returns the weight of the remainders below each node.
fn truncated_weights(tree: &Tree) -> Vec<i64> {
    let mut weights = vec![0i64; tree.nodes.len()];
    for node in tree.nodes.iter().filter(|node| node.other) {
        if let Some(weight) = weights.get_mut(node.parent as usize) {
            *weight = weight.wrapping_add(node.total);
        }
    }
    weights
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

    fn weights_of_columns(columns: &GraphColumns) -> WeightsByPath {
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
            let weights = [columns.self_values[at], columns.truncated[at]];
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
        assert_eq!((columns.divisor, &columns.self_values[..]), (2, &[0, 0, 30, 20, 5, 10][..]));
        assert_eq!(columns.truncated, [3, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn divisor_of_extreme_values_fits() {
        let columns = GraphColumns::from_tree(&tree(&[("a", i64::MIN)]));
        assert_eq!((columns.divisor, columns.self_values[1]), (1, i64::MIN));
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
    }
}
