//! Binary format of trees: one record for each node, depth first, the last of siblings first.
//!
//! A record has the length of the name, the name, the self value and the number of callees. Numbers are
//! varints. The first record is the root without a name. The reader computes totals.

use athanor_profile::call_tree::tree::Tree;
use athanor_profile::encoding::varint::put_varint;

/// Returns the approximate encoded size of a tree.
pub(super) fn estimate_encoded_bytes(tree: &Tree) -> usize {
    // A record has three numbers of at most ten bytes.
    tree.nodes().iter().map(|node| tree.name(node).len() + 30).sum()
}

/// Encodes a tree. Returns no bytes for an empty tree.
pub(super) fn encode_tree(tree: &Tree) -> Vec<u8> {
    let mut bytes = Vec::new();
    if tree.nodes().len() == 1 && tree.total() == 0 {
        return bytes;
    }
    let mut waiting = vec![0u32];
    while let Some(at) = waiting.pop() {
        let node = &tree.nodes()[at as usize];
        let name = tree.name(node);
        put_varint(&mut bytes, name.len() as u64);
        bytes.extend_from_slice(name.as_bytes());
        put_varint(&mut bytes, node.self_value as u64);
        put_varint(&mut bytes, u64::from(node.child_count));
        // Nodes are popped from the end, so the last child is next.
        waiting.extend(tree.children(at));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use athanor_profile::Dictionary;

    use super::*;

    #[test]
    fn depth_first_and_the_last_sibling_first() {
        let mut dictionary = Dictionary::default();
        for path in ["a;b", "c"] {
            dictionary.intern_named_stack(path.split(';'));
        }
        let bytes = encode_tree(&Tree::from_totals(&dictionary, &[300, 1]));
        assert!(bytes.len() <= estimate_encoded_bytes(&Tree::from_totals(&dictionary, &[300, 1])));
        assert_eq!(bytes, b"\0\0\x02\x01c\x01\0\x01a\0\x01\x01b\xac\x02\0");
        assert!(encode_tree(&Tree::default()).is_empty());
    }
}
