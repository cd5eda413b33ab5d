//! Inverted trees: functions by their own values, with their callers below.

use super::{Tree, TreeDraft};

impl Tree {
    /// Returns the number of frames that [`inverted`](Self::inverted) visits, which bounds its nodes.
    pub fn count_inverted_frames(&self) -> usize {
        let mut depths: Vec<usize> = Vec::with_capacity(self.nodes.len());
        let mut frames = 0usize;
        for node in &self.nodes {
            let depth = depths.get(node.parent as usize).map_or(0, |depth| depth + 1);
            if node.self_value != 0 {
                frames = frames.saturating_add(depth);
            }
            depths.push(depth);
        }
        frames
    }

    /// Returns the tree from leaves to roots. Below its root are the functions with a value of their own, below each of
    /// them its callers. The value of a stack counts at its root, so that the total of each node is the value that
    /// reaches its callee from there.
    pub fn inverted(&self) -> Tree {
        let mut drafts = TreeDraft::default();
        let names: Vec<u32> = self.names.iter().map(|name| drafts.name(name)).collect();
        for (at, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.self_value != 0) {
            let mut caller = at as u32;
            let mut place = 0;
            while caller != 0 {
                let frame = &self.nodes[caller as usize];
                place = drafts.child(place, names[frame.name as usize], frame.other);
                caller = frame.parent;
            }
            drafts.add(place, node.self_value);
        }
        drafts.finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::call_tree::tree::tests::tree;

    #[test]
    fn inverted_tree_begins_with_leaves() {
        let whole = tree(&[("a;b;c", 4), ("a;c", 2), ("c", 1), ("a;b", 3), ("", 5)]);
        assert_eq!(whole.inverted(), tree(&[("c;b;a", 4), ("c;a", 2), ("c", 1), ("b;a", 3), ("", 5)]));
        assert_eq!(whole.count_inverted_frames(), 3 + 2 + 1 + 2 + 1);
        assert_eq!(whole.inverted().inverted(), whole);
    }
}
