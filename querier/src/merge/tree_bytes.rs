//! Trees as bytes: one record for each node, depth first, the last of siblings first.
//!
//! A record is the name's length, the name, the own value and how many callees follow; numbers are varints. The
//! first record is the nameless root. Totals are for the reader to add up.

use athanor_profile::tree::Tree;

/// About how many bytes a tree has.
pub(super) fn estimate_encoded_bytes(tree: &Tree) -> usize {
    // Three numbers of ten bytes at most.
    tree.nodes().iter().map(|node| tree.name(node).len() + 30).sum()
}

/// The bytes of a tree; none if there is nothing in it.
pub(super) fn encode_tree(tree: &Tree) -> Vec<u8> {
    let mut bytes = Vec::new();
    if tree.nodes().len() == 1 && tree.total() == 0 {
        return bytes;
    }
    let mut waiting = vec![0u32];
    while let Some(at) = waiting.pop() {
        let node = &tree.nodes()[at as usize];
        let name = tree.name(node);
        varint(&mut bytes, name.len() as u64);
        bytes.extend_from_slice(name.as_bytes());
        varint(&mut bytes, node.own as u64);
        varint(&mut bytes, u64::from(node.child_count));
        // Popped from the end, so the last one comes next.
        waiting.extend(tree.children(at));
    }
    bytes
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 127 {
        out.push(value as u8 & 127 | 128);
        value >>= 7;
    }
    out.push(value as u8);
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
