//! Subtrees: a node and all of its callees as a separate tree. No other nodes are visited.

use std::cmp::Reverse;
use std::sync::Arc;

use super::shape::finish_tree;
use super::{Tree, TreeNode, root};

impl Tree {
    /// Returns the node at the end of a path of functions, root first.
    pub fn find(&self, path: &[String]) -> Option<u32> {
        path.iter().try_fold(0, |node, wanted| {
            self.children(node).find(|&child| {
                let child = &self.nodes[child as usize];
                !child.other && *self.names[child.name as usize] == **wanted
            })
        })
    }

    /// Returns only the callees of a call path, root first, below that path as before.
    pub fn subtree_below(self, call_site: &[String]) -> Tree {
        if call_site.is_empty() {
            return self;
        }
        let Some(node) = self.find(call_site) else { return Tree::default() };
        let mut nodes = vec![root()];
        for caller in super::path_to_node(&self, node) {
            let parent = nodes.len() as u32 - 1;
            nodes.push(TreeNode { parent, self_value: 0, ..self.nodes[caller as usize] });
        }
        let last = nodes.len() - 1;
        nodes[last].self_value = self.nodes[node as usize].self_value;
        self.with_callees(nodes, self.children(node))
    }

    /// Returns a tree with a node as its nameless root, without its `skip` heaviest callees. Of equally heavy
    /// ones, the left one is skipped first, because a truncation keeps it.
    pub fn subtree(&self, node: u32, skip: usize) -> Tree {
        let mut callees: Vec<u32> = self.children(node).collect();
        if skip > 0 {
            let weights = self.weights();
            callees.sort_by_key(|&callee| Reverse(weights[callee as usize]));
            callees.drain(..skip.min(callees.len()));
            callees.sort_unstable();
        }
        self.with_callees(
            vec![TreeNode { self_value: self.nodes[node as usize].self_value, ..root() }],
            callees.into_iter(),
        )
    }

    /// Returns the tree of these nodes, with the given nodes of this tree as callees of the last one, and all
    /// of their callees.
    fn with_callees(&self, mut nodes: Vec<TreeNode>, callees: impl Iterator<Item = u32>) -> Tree {
        let first = nodes.len();
        let caller = first as u32 - 1;
        // Original index of each node, from the first of the callees on.
        let mut origins = Vec::new();
        for callee in callees {
            nodes.push(TreeNode { parent: caller, ..self.nodes[callee as usize] });
            origins.push(callee);
        }
        let mut at = 0;
        while at < origins.len() {
            let parent = (first + at) as u32;
            let callees = self.children(origins[at]);
            let below = &self.nodes[callees.start as usize..callees.end as usize];
            nodes.extend(below.iter().map(|node| TreeNode { parent, ..*node }));
            origins.extend(callees);
            at += 1;
        }
        finish_tree(Arc::clone(&self.names), nodes, self.has_wrapped())
    }
}

#[cfg(test)]
mod tests {
    use crate::call_tree::tree::{Tree, TreeBuilder};

    fn tree(stacks: &[(&str, i64)]) -> Tree {
        let mut builder = TreeBuilder::default();
        for (stack, value) in stacks {
            let frames = stack.split(';').filter(|frame| !frame.is_empty());
            let leaf = frames.fold(TreeBuilder::ROOT_NODE, |caller, frame| {
                let name = builder.name(frame);
                builder.child(caller, name)
            });
            builder.add(leaf, *value);
        }
        builder.finish()
    }

    #[test]
    fn a_branch_is_what_lies_below_a_node() {
        let whole = tree(&[("a;b;x", 5), ("a;c;x;y", 3), ("a;d", 3), ("a", 1), ("b;x", 9)]);
        let path = |text: &str| -> Vec<String> { text.split(';').map(str::to_owned).collect() };
        let a = whole.find(&path("a")).unwrap();
        assert_eq!(whole.subtree(a, 0), tree(&[("b;x", 5), ("c;x;y", 3), ("d", 3), ("", 1)]));
        assert_eq!(whole.subtree(a, 1), tree(&[("c;x;y", 3), ("d", 3), ("", 1)]));
        assert_eq!(whole.subtree(a, 2), tree(&[("d", 3), ("", 1)]));
        assert_eq!(whole.subtree(a, 9), tree(&[("", 1)]));
        let leaf = whole.find(&path("a;c;x;y")).unwrap();
        assert_eq!(whole.subtree(leaf, 0), tree(&[("", 3)]));
        assert_eq!(whole.subtree(0, 0), whole);
        assert_eq!((whole.find(&[]), whole.find(&path("a;x"))), (Some(0), None));
    }
}
