//! Numbering of the entries of one tenant's part of a block.
//!
//! Whole stacks come first, by falling popularity, so the IDs in a profile's rows are small and close to each
//! other. The frames between follow. Locations, functions and mappings are numbered by first use.

use athanor_profile::Dictionary;
use athanor_profile::data_model::stacks::StackNode;
use athanor_profile::data_model::symbols::NO_ENTRY;

use crate::format::index::StackNodes;

pub(crate) struct StackNumbering {
    /// Node of each dictionary stack, [`NO_ENTRY`] for a stack that is left out.
    pub(crate) rank: Vec<u32>,
    /// Number of nodes that are whole stacks.
    pub(crate) stacks: usize,
    /// Tree of nodes, in numbers of this part.
    pub(crate) nodes: Vec<StackNode>,
    /// Dictionary locations, by number.
    pub(crate) locations: Vec<u32>,
    /// Dictionary functions, by number.
    pub(crate) functions: Vec<u32>,
    /// Dictionary mappings, by number.
    pub(crate) mappings: Vec<u32>,
    /// Numbers of dictionary functions and mappings, [`NO_ENTRY`] for those that are left out.
    pub(crate) function_numbers: Vec<u32>,
    pub(crate) mapping_numbers: Vec<u32>,
    /// Functions of each location, by number: their ends, and all of them concatenated.
    function_ends: Vec<usize>,
    location_functions: Vec<u32>,
}

/// Numbers assigned during the layout of the tree, by dictionary node and location.
struct AssignedNumbers {
    of_node: Vec<u32>,
    of_location: Vec<u32>,
}

fn assign_number(numbers: &mut [u32], order: &mut Vec<u32>, id: u32) -> u32 {
    let number = &mut numbers[id as usize];
    if *number == NO_ENTRY {
        *number = order.len() as u32;
        order.push(id);
    }
    *number
}

impl StackNumbering {
    pub(crate) fn new(dictionary: &Dictionary, popularity: &[u64]) -> Self {
        let stacks = &dictionary.stacks;
        let mut by_popularity: Vec<u32> =
            (0..stacks.len() as u32).filter(|&id| popularity[id as usize] > 0).collect();
        // Equal counts are ordered by content, so that the same rows produce the same block.
        by_popularity
            .sort_unstable_by_key(|&id| (std::cmp::Reverse(popularity[id as usize]), stacks.hash(id)));
        let mut rank = vec![NO_ENTRY; stacks.len()];
        let symbols = &dictionary.symbols;
        let mut given = AssignedNumbers {
            of_node: vec![NO_ENTRY; stacks.nodes().len()],
            of_location: vec![NO_ENTRY; symbols.locations().len()],
        };
        for (number, &stack) in (0u32..).zip(&by_popularity) {
            rank[stack as usize] = number;
            if let Some(of_leaf) = given.of_node.get_mut(stacks.leaf(stack) as usize) {
                *of_leaf = number;
            }
        }
        let mut tree = StackNumbering {
            rank,
            stacks: by_popularity.len(),
            nodes: vec![StackNode { parent: NO_ENTRY, location: NO_ENTRY }; by_popularity.len()],
            locations: Vec::new(),
            functions: Vec::new(),
            mappings: Vec::new(),
            function_numbers: vec![NO_ENTRY; symbols.functions().len()],
            mapping_numbers: vec![NO_ENTRY; symbols.mappings().len()],
            function_ends: Vec::new(),
            location_functions: Vec::new(),
        };
        for (number, &stack) in by_popularity.iter().enumerate() {
            tree.number_stack(dictionary, stacks.leaf(stack), number, &mut given);
        }
        tree
    }

    /// Sets a stack's node and numbers its callers that have no number yet.
    fn number_stack(
        &mut self,
        dictionary: &Dictionary,
        leaf: u32,
        number_of_leaf: usize,
        given: &mut AssignedNumbers,
    ) {
        let mut node = leaf;
        let mut at = number_of_leaf;
        while let Some(entry) = dictionary.stacks.nodes().get(node as usize) {
            let location = match given.of_location[entry.location as usize] {
                NO_ENTRY => self.number_location(dictionary, entry.location, given),
                location => location,
            };
            let (parent, is_new) = match given.of_node.get_mut(entry.parent as usize) {
                None => (NO_ENTRY, false),
                Some(parent) if *parent != NO_ENTRY => (*parent, false),
                Some(parent) => {
                    *parent = self.nodes.len() as u32;
                    self.nodes.push(StackNode { parent: NO_ENTRY, location: NO_ENTRY });
                    (*parent, true)
                }
            };
            self.nodes[at] = StackNode { parent, location };
            if !is_new {
                break;
            }
            (node, at) = (entry.parent, parent as usize);
        }
    }

    fn number_location(
        &mut self,
        dictionary: &Dictionary,
        location: u32,
        given: &mut AssignedNumbers,
    ) -> u32 {
        let symbols = &dictionary.symbols;
        let mapping = symbols.locations()[location as usize].mapping;
        if mapping != NO_ENTRY {
            assign_number(&mut self.mapping_numbers, &mut self.mappings, mapping);
        }
        for line in symbols.lines(location) {
            let function = assign_number(&mut self.function_numbers, &mut self.functions, line.function);
            self.location_functions.push(function);
        }
        self.function_ends.push(self.location_functions.len());
        assign_number(&mut given.of_location, &mut self.locations, location)
    }
}

impl StackNodes for StackNumbering {
    fn count(&self) -> usize {
        self.nodes.len()
    }
    fn parent(&self, node: usize) -> u32 {
        self.nodes[node].parent
    }
    fn functions(&self, node: usize) -> &[u32] {
        let location = self.nodes[node].location as usize;
        let Some(&end) = self.function_ends.get(location) else { return &[] };
        let start = if location == 0 { 0 } else { self.function_ends[location - 1] };
        &self.location_functions[start..end]
    }
}
