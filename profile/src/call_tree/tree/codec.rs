//! Binary encoding of trees for peers: names once, then a column each of callee counts, names and self values.
//! Callers and totals follow from these.

use std::sync::Arc;

use super::shape::finish_tree;
use super::{Tree, TreeNode, root};
use crate::encoding::codec::{CodecError, CodecReader, ColumnScale, put_texts, put_varint};

impl Tree {
    /// Appends the encoded tree.
    pub fn pack(&self, out: &mut Vec<u8>) {
        put_texts(out, self.names.iter().map(|name| &**name));
        put_varint(out, self.nodes.len() as u64);
        for node in &self.nodes {
            put_varint(out, u64::from(node.child_count) << 1 | u64::from(node.other));
        }
        for at in 0..self.nodes.len() as u32 {
            // Siblings are sorted by name, so differences are not negative.
            let mut before = 0;
            for callee in &self.nodes[self.children(at).start as usize..self.children(at).end as usize] {
                put_varint(out, u64::from(callee.name - before));
                before = callee.name;
            }
        }
        let scale = ColumnScale::put(out, self.nodes.iter().map(|node| node.self_value));
        self.nodes.iter().for_each(|node| scale.put_number(out, node.self_value));
    }

    /// Decodes the output of [`pack`](Self::pack), if the tree takes at most `most` [`bytes`](Self::bytes).
    /// No memory is allocated beyond that.
    pub fn unpack(unpacker: &mut CodecReader<'_>, most: usize) -> Result<Tree, CodecError> {
        let names = read_sorted_texts(unpacker, most)?;
        let count = unpacker.read_count()?;
        let mut tree = Tree { names: names.into(), nodes: Vec::new(), ..Tree::default() };
        if count.saturating_mul(size_of::<TreeNode>()).saturating_add(tree.bytes()) > most {
            return Err(unpacker.error_here("a tree larger than the declared memory"));
        }
        // The root also has a name, which is empty and therefore the first.
        if count == 0 || tree.names.is_empty() {
            return Err(unpacker.error_here("a tree without a root"));
        }
        tree.nodes = vec![root(); count];
        tree.read_callees(unpacker)?;
        tree.read_names(unpacker)?;
        let scale = ColumnScale::read(unpacker)?;
        for node in &mut tree.nodes {
            node.self_value = scale.read_number(unpacker)?;
        }
        let names = tree.names.len();
        let tree = finish_tree(tree.names, tree.nodes, false);
        if (tree.names.len(), tree.nodes.len()) != (names, count) {
            return Err(unpacker.error_here("redundant names or nodes"));
        }
        Ok(tree)
    }

    fn read_callees(&mut self, unpacker: &mut CodecReader<'_>) -> Result<(), CodecError> {
        let mut next = 1;
        for at in 0..self.nodes.len() {
            let said = unpacker.read_number()?;
            let callees = (said >> 1) as usize;
            let is_known = at < next && callees <= self.nodes.len() - next;
            if !is_known || (at == 0 && said & 1 == 1) {
                return Err(unpacker.error_here("a tree with disconnected nodes"));
            }
            self.nodes[at].other = said & 1 == 1;
            self.nodes[next..next + callees].iter_mut().for_each(|callee| callee.parent = at as u32);
            next += callees;
        }
        Ok(())
    }

    fn read_names(&mut self, unpacker: &mut CodecReader<'_>) -> Result<(), CodecError> {
        let mut before = root();
        for node in &mut self.nodes[1..] {
            let is_sibling = node.parent == before.parent;
            let name = unpacker.read_u32()?.checked_add(if is_sibling { before.name } else { 0 });
            let name = name.filter(|&name| (name as usize) < self.names.len());
            node.name = name.ok_or_else(|| unpacker.error_here("an unknown name id"))?;
            if is_sibling && (node.name, node.other) <= (before.name, before.other) {
                return Err(unpacker.error_here("siblings out of order"));
            }
            before = *node;
        }
        Ok(())
    }
}

/// Reads sorted texts, of which the first is empty, if they alone take at most `max_bytes`.
pub(crate) fn read_sorted_texts(
    reader: &mut CodecReader<'_>,
    max_bytes: usize,
) -> Result<Vec<Arc<str>>, CodecError> {
    let encoded = reader.read_texts()?;
    if encoded.len().saturating_mul(size_of::<[usize; 4]>()) > max_bytes {
        return Err(reader.error_here("texts larger than the declared memory"));
    }
    let mut texts: Vec<Arc<str>> = Vec::with_capacity(encoded.len());
    for text in encoded {
        let text = text?;
        let is_in_order = texts.last().map_or(text.is_empty(), |before| **before < *text);
        if !is_in_order {
            return Err(reader.error_here("texts out of order"));
        }
        texts.push(text.into());
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::TreeBuilder;
    use super::*;

    fn trees() -> impl Strategy<Value = Tree> {
        let value = prop_oneof![any::<i64>(), -9..9i64, Just(i64::MIN), Just(10_000_000)];
        let stack = (prop::collection::vec("[a-cä]{0,2}", 0..5), value);
        (prop::collection::vec(stack, 0..12), 0..20usize).prop_map(|(stacks, most)| {
            let mut builder = TreeBuilder::default();
            for (path, value) in stacks {
                let node = path.iter().fold(TreeBuilder::ROOT_NODE, |caller, name| {
                    let name = builder.name(name);
                    builder.child(caller, name)
                });
                builder.add(node, value);
            }
            let mut tree = builder.finish();
            tree.truncate(most);
            tree
        })
    }

    fn unpack(bytes: &[u8]) -> Result<Tree, CodecError> {
        Tree::unpack(&mut CodecReader::new(bytes), 1 << 20)
    }

    proptest! {
        #[test]
        fn a_tree_comes_back(tree in trees()) {
            let mut out = Vec::new();
            tree.pack(&mut out);
            let mut unpacker = CodecReader::new(&out);
            prop_assert_eq!(Tree::unpack(&mut unpacker, tree.bytes()).unwrap(), tree.clone());
            prop_assert!(unpacker.is_done());
            prop_assert!(Tree::unpack(&mut CodecReader::new(&out), tree.bytes() - 1).is_err());
            for cut in 0..out.len() {
                prop_assert!(unpack(&out[..cut]).is_err());
            }
        }

        #[test]
        fn a_spoilt_one_is_refused_or_a_tree(tree in trees(), place in any::<prop::sample::Index>(), byte: u8) {
            let mut out = Vec::new();
            tree.pack(&mut out);
            let place = place.index(out.len());
            out[place] = byte;
            if let Ok(read) = unpack(&out) {
                let mut again = read.clone();
                again.merge(&tree);
                let mut packed = Vec::new();
                read.pack(&mut packed);
                prop_assert_eq!(unpack(&packed).unwrap(), read);
            }
        }

        #[test]
        fn one_without_names_is_refused(nodes in 0..3u8) {
            let mut out = Vec::new();
            put_texts(&mut out, [""; 0].into_iter());
            out.extend([nodes, 0, 0, 0, 0, 0, 0, 0]);
            prop_assert!(unpack(&out).is_err());
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(0..9u8, 0..40)) {
            let _ = unpack(&bytes);
        }
    }
}
