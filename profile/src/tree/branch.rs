//! A node and what is below it, as a tree of its own.

use std::cmp::Reverse;

use super::{Drafts, Tree};
use crate::symbols::NONE;

impl Tree {
    /// The node that these functions, root first, lead to.
    pub fn find(&self, path: &[String]) -> Option<u32> {
        path.iter().try_fold(0, |node, wanted| {
            self.children(node).find(|&child| {
                let child = &self.nodes[child as usize];
                !child.other && *self.names[child.name as usize] == **wanted
            })
        })
    }

    /// A node as the nameless root of a tree, without so many of its heaviest callees: of equally heavy ones the left
    /// one goes first, as it is the one that a truncation keeps.
    pub fn branch(&self, node: u32, skip: usize) -> Tree {
        let weights = self.weights();
        let mut callees: Vec<u32> = self.children(node).collect();
        callees.sort_by_key(|&callee| Reverse(weights[callee as usize]));
        let mut drafts = Drafts::default();
        drafts.add(0, self.nodes[node as usize].own);
        let mut places = vec![NONE; self.nodes.len()];
        for &callee in callees.iter().skip(skip) {
            places[callee as usize] = 0;
        }
        for (at, below) in self.nodes.iter().enumerate().skip(node as usize + 1) {
            // A callee of the node was marked with the root; all others follow the node above them.
            let parent = if places[at] == NONE { places[below.parent as usize] } else { places[at] };
            if parent != NONE {
                let name = drafts.name(&self.names[below.name as usize]);
                places[at] = drafts.child(parent, name, below.other);
                drafts.add(places[at], below.own);
            }
        }
        drafts.finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::tree::{Builder, Tree};

    fn tree(stacks: &[(&str, i64)]) -> Tree {
        let mut builder = Builder::default();
        for (stack, value) in stacks {
            let frames = stack.split(';').filter(|frame| !frame.is_empty());
            let leaf = frames.fold(Builder::ROOT, |caller, frame| {
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
        assert_eq!(whole.branch(a, 0), tree(&[("b;x", 5), ("c;x;y", 3), ("d", 3), ("", 1)]));
        assert_eq!(whole.branch(a, 1), tree(&[("c;x;y", 3), ("d", 3), ("", 1)]));
        assert_eq!(whole.branch(a, 2), tree(&[("d", 3), ("", 1)]));
        assert_eq!(whole.branch(a, 9), tree(&[("", 1)]));
        let leaf = whole.find(&path("a;c;x;y")).unwrap();
        assert_eq!(whole.branch(leaf, 0), tree(&[("", 3)]));
        assert_eq!(whole.branch(0, 0), whole);
        assert_eq!((whole.find(&[]), whole.find(&path("a;x"))), (Some(0), None));
    }
}
