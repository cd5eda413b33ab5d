//! Copier of stacks from one dictionary into another.

use crate::data_model::model::Dictionary;
use crate::data_model::symbols::NO_ENTRY;

/// Copies stacks of a dictionary into another one. Each frame and each location is looked up once, whatever the number
/// of stacks that share it.
pub struct StackCopier<'a> {
    from: &'a Dictionary,
    /// Node in the target by node of the source. [`NO_ENTRY`] if it was not copied yet.
    nodes: Vec<u32>,
    /// Location in the target by location of the source. [`NO_ENTRY`] if it was not copied yet.
    locations: Vec<u32>,
    /// Nodes of the current stack that were not copied yet, leaf first.
    path: Vec<u32>,
}

impl<'a> StackCopier<'a> {
    /// Creates a copier of the stacks of a dictionary.
    pub fn new(from: &'a Dictionary) -> Self {
        StackCopier { from, nodes: Vec::new(), locations: Vec::new(), path: Vec::new() }
    }

    /// Copies a stack and returns its id in the target, which is the same dictionary in all calls.
    pub fn copy_stack(&mut self, stack: u32, into: &mut Dictionary) -> u32 {
        let from = self.from;
        let hash = from.stacks.hash(stack);
        if let Some(id) = into.stacks.find(hash) {
            return id;
        }
        // Not in `new`: often all stacks are in the target already.
        if self.nodes.is_empty() {
            self.nodes = vec![NO_ENTRY; from.stacks.nodes().len()];
            self.locations = vec![NO_ENTRY; from.symbols.locations().len()];
        }
        let mut node = from.stacks.leaf(stack);
        while node != NO_ENTRY && self.nodes[node as usize] == NO_ENTRY {
            self.path.push(node);
            node = from.stacks.nodes()[node as usize].parent;
        }
        let mut copy = if node == NO_ENTRY { NO_ENTRY } else { self.nodes[node as usize] };
        while let Some(node) = self.path.pop() {
            let location = self.copy_location(from.stacks.nodes()[node as usize].location, into);
            copy = into.stacks.intern_child(copy, location);
            self.nodes[node as usize] = copy;
        }
        into.stacks.intern_leaf(hash, copy)
    }

    fn copy_location(&mut self, location: u32, into: &mut Dictionary) -> u32 {
        let copy = &mut self.locations[location as usize];
        if *copy == NO_ENTRY {
            *copy = into.symbols.adopt_location(&self.from.symbols, location);
        }
        *copy
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn copies_equal_their_stacks_in_any_target(
            stacks in prop::collection::vec(prop::collection::vec("[a-d]", 0..8), 1..20),
            known in prop::collection::vec(prop::collection::vec("[a-d]", 0..8), 0..6),
            order in prop::collection::vec(any::<prop::sample::Index>(), 1..40),
        ) {
            let mut from = Dictionary::default();
            let intern = |dictionary: &mut Dictionary, stack: &Vec<String>| {
                dictionary.intern_named_stack(stack.iter().map(String::as_str))
            };
            let ids: Vec<u32> = stacks.iter().map(|stack| intern(&mut from, stack)).collect();
            let mut into = Dictionary::default();
            let mut expected = Dictionary::default();
            for stack in &known {
                intern(&mut into, stack);
                intern(&mut expected, stack);
            }
            let mut copier = StackCopier::new(&from);
            for index in order {
                let place = index.index(ids.len());
                let copy = copier.copy_stack(ids[place], &mut into);
                prop_assert_eq!(into.frame_names(copy), stacks[place].clone());
                // The ids are those of a dictionary that got the stacks in this order.
                prop_assert_eq!(copy, intern(&mut expected, &stacks[place]));
            }
            prop_assert_eq!(into.stacks.nodes(), expected.stacks.nodes());
            prop_assert_eq!(into.symbols.locations().len(), expected.symbols.locations().len());
        }
    }
}
