//! Names of a part: stacks, locations, functions, mappings, and the index over them.

use athanor_profile::Dictionary;
use athanor_profile::stacks::Stacks;
use athanor_profile::symbols::{Function, Line, Mapping, NONE};
use parquet::data_type::{BoolType, ByteArrayType, Int32Type, Int64Type};

use crate::error::BlockError;
use crate::meta::{FUNCTIONS, INDEX, LOCATIONS, MAPPINGS, Run, STACKS};
use crate::read::{Part, text, within, within_or_none};

/// All names of a part in a dictionary, and where each of its stacks went.
pub struct Names {
    /// The names.
    pub dictionary: Dictionary,
    /// From a stack of the part to the dictionary's.
    pub stacks: Vec<u32>,
}

impl Part<'_> {
    /// Function names and the services that call them.
    pub fn services_calling(&self, function_name: &str) -> Result<Vec<String>, BlockError> {
        let functions = self.block.table(FUNCTIONS)?;
        let names = functions.run::<ByteArrayType>(self.groups(FUNCTIONS), 1)?;
        let mut found = Vec::new();
        for (function, service) in self.index()? {
            if names.get(function as usize).is_some_and(|name| name.data() == function_name.as_bytes()) {
                found.push(service);
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Places of functions, and the services that call them.
    pub(crate) fn index(&self) -> Result<Vec<(u32, String)>, BlockError> {
        let index = self.block.table(INDEX)?;
        let functions = index.run::<Int32Type>(self.groups(INDEX), 0)?;
        let services = index.run::<ByteArrayType>(self.groups(INDEX), 1)?;
        let pair = |(function, service)| {
            Ok((within(INDEX, function, self.meta.functions)?, text(INDEX, service)?.to_owned()))
        };
        functions.into_iter().zip(&services).map(pair).collect()
    }

    /// Parent and location of every node, as places in the part. A parent chain always ends at a root.
    pub fn nodes(&self) -> Result<(Vec<u32>, Vec<u32>), BlockError> {
        let table = self.block.table(STACKS)?;
        self.ids(STACKS, &table, self.meta.nodes)?;
        let column = |column: usize, run: Run| -> Result<Vec<u32>, BlockError> {
            let ids = table.run::<Int32Type>(self.groups(STACKS), column)?;
            ids.into_iter().map(|id| within_or_none(STACKS, id, run)).collect()
        };
        let (parents, locations) = (column(1, self.meta.nodes)?, column(2, self.meta.locations)?);
        acyclic(&parents)?;
        Ok((parents, locations))
    }

    /// All names.
    pub fn names(&self) -> Result<Names, BlockError> {
        let mut dictionary = Dictionary::default();
        let mut of_leaf = Vec::new();
        let stacks = self.adopt(&mut dictionary, &mut of_leaf)?;
        Ok(Names { dictionary, stacks })
    }

    /// Puts all names and stacks into a dictionary, which may hold those of other parts, and says where each stack
    /// went. `of_leaf` is by node of the dictionary and is handed on from part to part: a node that is known to end
    /// a stack costs no hash, so the names of a stack are looked at once, however many blocks have it.
    pub(crate) fn adopt(
        &self,
        dictionary: &mut Dictionary,
        of_leaf: &mut Vec<u32>,
    ) -> Result<Vec<u32>, BlockError> {
        let (parents, of_nodes) = self.nodes()?;
        self.go_on()?;
        let locations = self.locations(dictionary)?;
        if dictionary.stacks.is_empty() {
            dictionary.stacks.reserve(parents.len(), self.meta.stacks as usize);
        }
        let nodes = adopt_nodes(&parents, &of_nodes, &locations, dictionary);
        of_leaf.resize(dictionary.stacks.nodes().len(), NONE);
        let mut stacks = Vec::with_capacity(self.meta.stacks as usize);
        let mut hashes = Vec::new();
        for &leaf in &nodes[..self.meta.stacks as usize] {
            let known = of_leaf.get(leaf as usize).copied().unwrap_or(NONE);
            if known != NONE {
                stacks.push(known);
                continue;
            }
            hashes.clear();
            let Dictionary { stacks: all, symbols, .. } = &mut *dictionary;
            hashes.extend(all.path(leaf).map(|location| symbols.location_hash(location)));
            let stack = all.intern_leaf(Stacks::hash_of(&hashes), leaf);
            if let Some(known) = of_leaf.get_mut(leaf as usize) {
                *known = stack;
            }
            stacks.push(stack);
        }
        Ok(stacks)
    }

    /// Puts the locations with their functions and mappings into a dictionary.
    fn locations(&self, dictionary: &mut Dictionary) -> Result<Vec<u32>, BlockError> {
        let functions = self.functions(dictionary)?;
        let mappings = self.mappings(dictionary)?;
        let table = self.block.table(LOCATIONS)?;
        let groups = self.groups(LOCATIONS);
        let ids = table.run::<Int32Type>(groups, 0)?;
        let of_mappings = table.run::<Int32Type>(groups, 2)?;
        let addresses = table.run::<Int64Type>(groups, 3)?;
        let folded = table.run::<BoolType>(groups, 4)?;
        let of_functions = table.run::<Int32Type>(groups, 5)?;
        let lines = table.run::<Int64Type>(groups, 6)?;
        let columns = table.run::<Int64Type>(groups, 7)?;
        let mut all = Vec::with_capacity(self.meta.locations.1 as usize);
        let mut row = 0;
        let mut of_location = Vec::new();
        for id in self.meta.locations.range() {
            of_location.clear();
            let first = row;
            while ids.get(row).is_some_and(|&of| of as usize == id) {
                let function = within_or_none(LOCATIONS, of_functions[row], self.meta.functions)?;
                if function != NONE {
                    let function = functions[function as usize];
                    of_location.push(Line { function, line: lines[row], column: columns[row] });
                }
                row += 1;
            }
            if row == first {
                return Err(BlockError::corrupt(LOCATIONS, format!("it has no row of location {id}")));
            }
            let mapping = within_or_none(LOCATIONS, of_mappings[first], self.meta.mappings)?;
            let mapping = if mapping == NONE { NONE } else { mappings[mapping as usize] };
            let symbols = &mut dictionary.symbols;
            all.push(symbols.location(mapping, addresses[first] as u64, folded[first], &of_location));
        }
        Ok(all)
    }

    fn functions(&self, dictionary: &mut Dictionary) -> Result<Vec<u32>, BlockError> {
        let table = self.block.table(FUNCTIONS)?;
        self.ids(FUNCTIONS, &table, self.meta.functions)?;
        let mut all = Vec::with_capacity(self.meta.functions.1 as usize);
        // Group by group: so their texts are held twice for a moment only.
        for group in self.groups(FUNCTIONS).range() {
            self.go_on()?;
            let names = table.column::<ByteArrayType>(group, 1)?;
            let systems = table.column::<ByteArrayType>(group, 2)?;
            let files = table.column::<ByteArrayType>(group, 3)?;
            let lines = table.column::<Int64Type>(group, 4)?;
            for row in 0..names.len() {
                let strings = &mut dictionary.symbols.strings;
                let name = strings.intern(text(FUNCTIONS, &names[row])?);
                let system_name = strings.intern(text(FUNCTIONS, &systems[row])?);
                let filename = strings.intern(text(FUNCTIONS, &files[row])?);
                let start_line = lines[row];
                all.push(dictionary.symbols.function(Function { name, system_name, filename, start_line }));
            }
        }
        Ok(all)
    }

    fn mappings(&self, dictionary: &mut Dictionary) -> Result<Vec<u32>, BlockError> {
        let table = self.block.table(MAPPINGS)?;
        self.ids(MAPPINGS, &table, self.meta.mappings)?;
        let mut all = Vec::with_capacity(self.meta.mappings.1 as usize);
        for group in self.groups(MAPPINGS).range() {
            let starts = table.column::<Int64Type>(group, 1)?;
            let sizes = table.column::<Int64Type>(group, 2)?;
            let offsets = table.column::<Int64Type>(group, 3)?;
            let files = table.column::<ByteArrayType>(group, 4)?;
            let builds = table.column::<ByteArrayType>(group, 5)?;
            let flags = table.column::<Int32Type>(group, 6)?;
            for row in 0..starts.len() {
                let filename = dictionary.symbols.strings.intern(text(MAPPINGS, &files[row])?);
                let build_id = dictionary.symbols.strings.intern(text(MAPPINGS, &builds[row])?);
                let (start, size, offset) = (starts[row] as u64, sizes[row] as u64, offsets[row] as u64);
                let flags = flags[row] as u8;
                let mapping = Mapping { start, size, offset, filename, build_id, flags };
                all.push(dictionary.symbols.mapping(mapping));
            }
        }
        Ok(all)
    }
}

/// A place that was not visited yet. No dictionary has that many nodes: ids have 31 bits.
pub(crate) const UNSEEN: u32 = NONE - 1;

/// From a part's nodes to the dictionary's, callers first. A node without a location stands for its caller.
fn adopt_nodes(
    parents: &[u32],
    of_nodes: &[u32],
    locations: &[u32],
    dictionary: &mut Dictionary,
) -> Vec<u32> {
    let mut nodes = vec![UNSEEN; parents.len()];
    let mut path = Vec::new();
    for start in 0..parents.len() {
        let mut at = start as u32;
        while nodes.get(at as usize) == Some(&UNSEEN) {
            path.push(at);
            at = parents[at as usize];
        }
        let mut parent = nodes.get(at as usize).copied().unwrap_or(NONE);
        while let Some(node) = path.pop() {
            if let Some(&location) = locations.get(of_nodes[node as usize] as usize) {
                parent = dictionary.stacks.child(parent, location);
            }
            nodes[node as usize] = parent;
        }
    }
    nodes
}

/// Every chain of parents must end: visited nodes are marked with the walk that reached them.
fn acyclic(parents: &[u32]) -> Result<(), BlockError> {
    let mut walk_of = vec![NONE; parents.len()];
    for start in 0..parents.len() as u32 {
        let mut node = start;
        while node != NONE && walk_of[node as usize] == NONE {
            walk_of[node as usize] = start;
            node = parents[node as usize];
        }
        if node != NONE && walk_of[node as usize] == start {
            return Err(BlockError::corrupt(STACKS, format!("the parents of node {node} go in a circle")));
        }
    }
    Ok(())
}
