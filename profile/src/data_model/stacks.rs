//! Stacks: paths through a tree of locations, each known by a dense id and a content hash.
//!
//! Nodes point to their parents, so a stack is its leaf; a common root path is stored once. Only paths
//! that were seen as a whole stack have a stack id.

use crate::data_model::symbols::{NO_ENTRY, SymbolTable};
use crate::encoding::hash::{self, ContentHash, PrehashedMap, vec_memory};

/// Frame of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackNode {
    /// The caller's node, or [`NO_ENTRY`] at the root.
    pub parent: u32,
    /// Location of this frame.
    pub location: u32,
}

/// All stacks of a dictionary, with a tree of their frames.
#[derive(Clone, Debug, Default)]
pub struct StackTable {
    nodes: Vec<StackNode>,
    children: PrehashedMap<u64, u32>,
    leaves: Vec<u32>,
    hashes: Vec<ContentHash>,
    ids: PrehashedMap<ContentHash, u32>,
}

impl StackTable {
    /// Returns the allocated bytes.
    pub(crate) fn memory(&self) -> usize {
        let nodes = vec_memory(&self.nodes) + self.children.allocation_size();
        let leaves = vec_memory(&self.leaves) + vec_memory(&self.hashes) + self.ids.allocation_size();
        nodes + leaves
    }
    /// Returns the hash of a stack with these location hashes, leaf first.
    pub fn stack_hash(locations: &[ContentHash]) -> ContentHash {
        hash::hash_list(locations)
    }
    /// Returns the id of a stack by its hash.
    pub fn find(&self, hash: ContentHash) -> Option<u32> {
        self.ids.get(&hash).copied()
    }
    /// Returns the id of a stack, leaf first, added if new.
    pub fn intern(&mut self, symbols: &SymbolTable, leaf_first: &[u32]) -> u32 {
        let hashes: Vec<ContentHash> =
            leaf_first.iter().map(|&location| symbols.location_hash(location)).collect();
        self.intern_hashed(Self::stack_hash(&hashes), leaf_first.iter().rev().copied())
    }
    /// Interns like [`intern`](Self::intern), with a known hash and the path root first.
    pub fn intern_hashed(&mut self, hash: ContentHash, root_first: impl Iterator<Item = u32>) -> u32 {
        if let Some(id) = self.find(hash) {
            return id;
        }
        let leaf = root_first.fold(NO_ENTRY, |parent, location| self.intern_child(parent, location));
        self.intern_leaf(hash, leaf)
    }
    /// Interns like [`intern`](Self::intern), with a known hash and the nodes made by
    /// [`intern_child`](Self::intern_child).
    pub fn intern_leaf(&mut self, hash: ContentHash, leaf: u32) -> u32 {
        *self.ids.entry(hash).or_insert_with(|| {
            self.leaves.push(leaf);
            self.hashes.push(hash);
            self.leaves.len() as u32 - 1
        })
    }
    /// Returns the node of a location called from `parent`, added if new. A root's parent is [`NO_ENTRY`].
    pub fn intern_child(&mut self, parent: u32, location: u32) -> u32 {
        *self.children.entry(u64::from(parent) << 32 | u64::from(location)).or_insert_with(|| {
            self.nodes.push(StackNode { parent, location });
            self.nodes.len() as u32 - 1
        })
    }
    /// Adds a node of another dictionary.
    pub(crate) fn add_node(&mut self, node: StackNode) -> u32 {
        self.intern_child(node.parent, node.location)
    }
    /// Adds a stack that ends at a node, with these location hashes, leaf first.
    pub(crate) fn add_leaf(&mut self, leaf: u32, hashes: &[ContentHash]) -> u32 {
        self.intern_leaf(Self::stack_hash(hashes), leaf)
    }
    /// Reserves memory for this many more nodes and stacks.
    pub fn reserve(&mut self, nodes: usize, stacks: usize) {
        self.nodes.reserve(nodes);
        self.children.reserve(nodes);
        self.leaves.reserve(stacks);
        self.hashes.reserve(stacks);
        self.ids.reserve(stacks);
    }
    /// Returns the number of stacks.
    pub fn len(&self) -> usize {
        self.leaves.len()
    }
    /// Returns whether there are no stacks.
    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }
    /// Returns the leaf's node of a stack; [`NO_ENTRY`] for the empty stack.
    pub fn leaf(&self, stack: u32) -> u32 {
        self.leaves[stack as usize]
    }
    /// Returns the content hash of a stack.
    pub fn hash(&self, stack: u32) -> ContentHash {
        self.hashes[stack as usize]
    }
    /// Returns all nodes. A parent comes before its children.
    pub fn nodes(&self) -> &[StackNode] {
        &self.nodes
    }
    /// Returns the locations of a stack, leaf first.
    pub fn locations(&self, stack: u32) -> impl Iterator<Item = u32> + '_ {
        self.path(self.leaf(stack))
    }
    /// Returns the locations from a node to its root.
    pub fn path(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let mut at = node;
        std::iter::from_fn(move || {
            let node = self.nodes.get(at as usize)?;
            at = node.parent;
            Some(node.location)
        })
    }
}
