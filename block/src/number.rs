//! Numbers for what one tenant's part of a block will hold.
//!
//! Whole stacks come first, by falling popularity: so the ids in a profile's rows are small and close to each
//! other. The frames between follow. Locations, functions and mappings are numbered by first use.

use athanor_profile::Dictionary;
use athanor_profile::hash::HashedMap;
use athanor_profile::stacks::Node;
use athanor_profile::symbols::NONE;

pub(crate) struct Numbering {
    /// From a stack of the dictionary to its node; [`NONE`] for one that is left out.
    pub(crate) rank: Vec<u32>,
    /// How many nodes are whole stacks.
    pub(crate) stacks: usize,
    /// The tree, in numbers of this part.
    pub(crate) nodes: Vec<Node>,
    /// Locations of the dictionary, by number.
    pub(crate) locations: Vec<u32>,
    /// Functions of the dictionary, by number.
    pub(crate) functions: Vec<u32>,
    /// Mappings of the dictionary, by number.
    pub(crate) mappings: Vec<u32>,
    pub(crate) function_numbers: HashedMap<u32, u32>,
    pub(crate) mapping_numbers: HashedMap<u32, u32>,
    /// Functions of each location, by number.
    location_functions: Vec<Vec<u32>>,
}

fn number(numbers: &mut HashedMap<u32, u32>, order: &mut Vec<u32>, id: u32) -> u32 {
    *numbers.entry(id).or_insert_with(|| {
        order.push(id);
        order.len() as u32 - 1
    })
}

impl Numbering {
    pub(crate) fn new(dictionary: &Dictionary, popularity: &[u64]) -> Self {
        let stacks = &dictionary.stacks;
        let mut by_popularity: Vec<u32> =
            (0..stacks.len() as u32).filter(|&id| popularity[id as usize] > 0).collect();
        // Equal counts are ordered by content, so that the same rows make the same block.
        by_popularity
            .sort_unstable_by_key(|&id| (std::cmp::Reverse(popularity[id as usize]), stacks.hash(id)));
        let mut rank = vec![NONE; stacks.len()];
        let mut of_node: HashedMap<u32, u32> = HashedMap::default();
        for (number, &stack) in (0u32..).zip(&by_popularity) {
            rank[stack as usize] = number;
            of_node.insert(stacks.leaf(stack), number);
        }
        let mut tree = Numbering {
            rank,
            stacks: by_popularity.len(),
            nodes: vec![Node { parent: NONE, location: NONE }; by_popularity.len()],
            locations: Vec::new(),
            functions: Vec::new(),
            mappings: Vec::new(),
            function_numbers: HashedMap::default(),
            mapping_numbers: HashedMap::default(),
            location_functions: Vec::new(),
        };
        let mut location_numbers: HashedMap<u32, u32> = HashedMap::default();
        for (number, &stack) in by_popularity.iter().enumerate() {
            tree.place(dictionary, stacks.leaf(stack), number, &mut of_node, &mut location_numbers);
        }
        tree
    }

    /// Fills in a stack's node and those of its callers that have no number yet.
    fn place(
        &mut self,
        dictionary: &Dictionary,
        leaf: u32,
        number_of_leaf: usize,
        of_node: &mut HashedMap<u32, u32>,
        location_numbers: &mut HashedMap<u32, u32>,
    ) {
        let (mut node, mut at) = (leaf, number_of_leaf);
        while let Some(entry) = dictionary.stacks.nodes().get(node as usize) {
            let location = match location_numbers.get(&entry.location) {
                Some(&location) => location,
                None => self.new_location(dictionary, entry.location, location_numbers),
            };
            let (parent, is_new) = match of_node.get(&entry.parent).copied() {
                _ if entry.parent == NONE => (NONE, false),
                Some(parent) => (parent, false),
                None => {
                    let parent = self.nodes.len() as u32;
                    self.nodes.push(Node { parent: NONE, location: NONE });
                    of_node.insert(entry.parent, parent);
                    (parent, true)
                }
            };
            self.nodes[at] = Node { parent, location };
            if !is_new {
                break;
            }
            (node, at) = (entry.parent, parent as usize);
        }
    }

    fn new_location(
        &mut self,
        dictionary: &Dictionary,
        location: u32,
        numbers: &mut HashedMap<u32, u32>,
    ) -> u32 {
        let symbols = &dictionary.symbols;
        let mapping = symbols.locations()[location as usize].mapping;
        if mapping != NONE {
            number(&mut self.mapping_numbers, &mut self.mappings, mapping);
        }
        let lines = symbols.lines(location).iter();
        let functions =
            lines.map(|line| number(&mut self.function_numbers, &mut self.functions, line.function));
        self.location_functions.push(functions.collect());
        number(numbers, &mut self.locations, location)
    }

    /// The functions of a node, by number.
    pub(crate) fn functions_of(&self, node: usize) -> impl Iterator<Item = u32> + '_ {
        let functions = self.location_functions.get(self.nodes[node].location as usize);
        functions.into_iter().flatten().copied()
    }
}
