//! Flame graphs in the clients' format: levels of bars, four numbers per bar.

use crate::call_tree::tree::{OTHER_NAME, Tree, TreeNode};
use crate::data_model::symbols::NO_ENTRY;

/// Flame graph as levels of bars.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flamegraph {
    /// Names of the bars; the first is `total`, the name of the root.
    pub names: Vec<String>,
    /// Bars of each level in groups of four: distance from the end of the previous bar, total, self value,
    /// index of the name.
    pub levels: Vec<Vec<i64>>,
    /// Total of the root.
    pub total: i64,
    /// Largest self value.
    pub max_self: i64,
}

/// Name of the root in the clients' format.
pub(crate) const ROOT_NAME: &str = "total";

/// Table of names in the clients' format, in the order of first use.
pub(crate) struct WireNames {
    pub(crate) names: Vec<String>,
    indexes: std::collections::HashMap<String, i64>,
}

impl Default for WireNames {
    fn default() -> Self {
        WireNames { names: vec![ROOT_NAME.into()], indexes: [(ROOT_NAME.into(), 0)].into() }
    }
}

impl WireNames {
    pub(crate) fn intern(&mut self, name: &str) -> i64 {
        if let Some(&index) = self.indexes.get(name) {
            return index;
        }
        let index = self.names.len() as i64;
        self.names.push(name.into());
        self.indexes.insert(name.into(), index);
        index
    }
}

/// Returns the level of every node. Callers must precede their callees.
pub(crate) fn node_levels(parents: impl ExactSizeIterator<Item = u32>) -> Vec<usize> {
    let mut levels: Vec<usize> = Vec::with_capacity(parents.len());
    for parent in parents {
        levels.push(levels.get(parent as usize).map_or(0, |level| level + 1));
    }
    levels
}

/// Returns the start of each bar. A caller's self value comes first, then its callees in sequence.
pub(crate) fn bar_starts(nodes: impl ExactSizeIterator<Item = (u32, i64, i64)>) -> Vec<i64> {
    let mut starts = Vec::with_capacity(nodes.len());
    let mut next: Vec<i64> = Vec::with_capacity(nodes.len());
    for (parent, total, self_value) in nodes {
        let start = match next.get_mut(parent as usize) {
            None => 0,
            Some(next) => {
                let start = *next;
                *next = next.wrapping_add(total);
                start
            }
        };
        starts.push(start);
        next.push(start.wrapping_add(self_value));
    }
    starts
}

impl Flamegraph {
    /// Returns the flame graph of a tree.
    pub fn from_tree(tree: &Tree) -> Flamegraph {
        let nodes = tree.nodes();
        let mut names = TreeNames::from_tree(tree);
        let mut graph = Flamegraph { total: tree.total(), ..Flamegraph::default() };
        // Start of the next callee of each node, behind its self value and the previous callees.
        let mut next: Vec<i64> = Vec::with_capacity(nodes.len());
        let mut level = 0..1;
        while !level.is_empty() {
            let mut bars = Vec::with_capacity(4 * level.len());
            let mut end = 0i64;
            for node in &nodes[level.clone()] {
                let start = next.get_mut(node.parent as usize).map_or(0, |next| {
                    let start = *next;
                    *next = start.wrapping_add(node.total);
                    start
                });
                next.push(start.wrapping_add(node.self_value));
                bars.extend([start.wrapping_sub(end), node.total, node.self_value, names.index(node)]);
                end = start.wrapping_add(node.total);
                graph.max_self = graph.max_self.max(node.self_value);
            }
            graph.levels.push(bars);
            // The callees of a level follow it as one contiguous range.
            let last = &nodes[level.end - 1];
            level = level.end..(last.first_child + last.child_count) as usize;
        }
        graph.names = names.found;
        graph
    }
}

/// Table of a tree's names in the order of first use, like [`WireNames`]. Each text is compared only once,
/// because a tree's names are sorted.
struct TreeNames<'t> {
    tree: &'t Tree,
    found: Vec<String>,
    /// Index of each name of the tree, if used.
    indexes: Vec<i64>,
    /// Index of remainders, if no function has their name.
    of_other: i64,
    /// Function with the name of remainders.
    other: Option<u32>,
}

/// Marker of names that are not used yet.
const UNUSED_INDEX: i64 = -1;

impl<'t> TreeNames<'t> {
    fn from_tree(tree: &'t Tree) -> Self {
        let place = |name: &str| tree.names().binary_search_by(|known| (**known).cmp(name)).ok();
        let mut indexes = vec![UNUSED_INDEX; tree.names().len()];
        if let Some(total) = place(ROOT_NAME) {
            indexes[total] = 0;
        }
        let other = place(OTHER_NAME).map(|place| place as u32);
        TreeNames { tree, found: vec![ROOT_NAME.into()], indexes, of_other: UNUSED_INDEX, other }
    }

    fn index(&mut self, node: &TreeNode) -> i64 {
        if node.parent == NO_ENTRY {
            return 0;
        }
        let name = if node.other { self.other } else { Some(node.name) };
        let index = match name {
            Some(name) => &mut self.indexes[name as usize],
            None => &mut self.of_other,
        };
        if *index == UNUSED_INDEX {
            *index = self.found.len() as i64;
            self.found.push(self.tree.name(node).into());
        }
        *index
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::call_tree::tree::tests::{any_tree, tree};

    #[test]
    fn bars_are_given_by_their_distance_from_the_left_neighbour() {
        let graph = Flamegraph::from_tree(&tree(&[("a;b", 2), ("a", 1), ("a;c;d", 4), ("e;b", 8)]));
        assert_eq!(graph.names, ["total", "a", "e", "b", "c", "d"]);
        assert_eq!(
            graph.levels,
            [
                vec![0, 15, 0, 0],
                vec![0, 7, 1, 1, 0, 8, 0, 2],
                vec![1, 2, 2, 3, 0, 4, 0, 4, 0, 8, 8, 3],
                vec![3, 4, 4, 5],
            ]
        );
        assert_eq!((graph.total, graph.max_self), (15, 8));
    }

    /// What a server that clients know today answers for the same stacks; only the order of its names, which
    /// has no meaning, is another. A bar's self value lies left of its callees.
    #[test]
    fn bars_lie_where_clients_know_them() {
        let graph = Flamegraph::from_tree(&tree(&[
            ("main;gc", 150),
            ("main;gc;syscall.Read", 100),
            ("main;serve;handle;db.query;syscall.Read", 1000),
            ("main;serve;handle;fastpath;inc", 200),
            ("main;serve;handle;parse", 450),
            ("main;serve;handle;render", 300),
            ("main;serve;handle;walk;walk;walk", 150),
        ]));
        let bars = |level: usize| -> Vec<&[i64]> {
            graph.levels[level].chunks_exact(4).map(|bar| &bar[..3]).collect()
        };
        let recorded: [&[[i64; 3]]; 7] = [
            &[[0, 2350, 0]],
            &[[0, 2350, 0]],
            &[[0, 250, 150], [0, 2100, 0]],
            &[[150, 100, 100], [0, 2100, 0]],
            &[[250, 1000, 0], [0, 200, 0], [0, 450, 450], [0, 300, 300], [0, 150, 0]],
            &[[250, 1000, 1000], [0, 200, 200], [750, 150, 0]],
            &[[2200, 150, 150]],
        ];
        assert_eq!(graph.levels.len(), recorded.len());
        recorded.iter().enumerate().for_each(|(level, wanted)| assert_eq!(bars(level), *wanted, "{level}"));
        assert_eq!(graph.max_self, 1000);
    }

    /// The plain way: a level, a start and a name for each node by itself.
    fn plainly(tree: &Tree) -> Flamegraph {
        let mut names = WireNames::default();
        let mut graph = Flamegraph { total: tree.total(), ..Flamegraph::default() };
        let nodes = tree.nodes();
        let level_of = node_levels(nodes.iter().map(|node| node.parent));
        let starts = bar_starts(nodes.iter().map(|node| (node.parent, node.total, node.self_value)));
        let mut end = 0i64;
        for (at, node) in nodes.iter().enumerate() {
            if level_of[at] == graph.levels.len() {
                graph.levels.push(Vec::new());
                end = 0;
            }
            let name = if at == 0 { 0 } else { names.intern(tree.name(node)) };
            let delta = starts[at].wrapping_sub(end);
            graph.levels[level_of[at]].extend([delta, node.total, node.self_value, name]);
            end = starts[at].wrapping_add(node.total);
            graph.max_self = graph.max_self.max(node.self_value);
        }
        graph.names = names.names;
        graph
    }

    proptest! {
        #[test]
        fn all_bars_are_those_of_the_plain_way(whole in any_tree(), most in 0usize..12) {
            prop_assert_eq!(Flamegraph::from_tree(&whole), plainly(&whole));
            let mut cut = whole;
            cut.truncate(most);
            prop_assert_eq!(Flamegraph::from_tree(&cut), plainly(&cut));
        }
    }

    #[test]
    fn a_function_named_total_shares_the_name_only() {
        let graph = Flamegraph::from_tree(&tree(&[("total", 3)]));
        assert_eq!(
            (graph.names, graph.levels),
            (vec!["total".into()], vec![vec![0, 3, 0, 0], vec![0, 3, 3, 0]])
        );
    }
}
