//! Names of a part: stacks, locations, functions, mappings, and the index over them.

use athanor_profile::Dictionary;
use athanor_profile::data_model::stacks::{StackNode, StackTable};
use athanor_profile::data_model::symbols::{Function, Line, Mapping, NO_ENTRY};
use parquet::data_type::{BoolType, ByteArrayType, Int32Type, Int64Type};

use crate::format::error::BlockError;
use crate::format::meta::{FUNCTIONS_FILE, INDEX_FILE, IdRange, LOCATIONS_FILE, MAPPINGS_FILE, STACKS_FILE};
use crate::reader::read::{TenantBlock, local_id, local_id_or_none, utf8_value};

/// Dictionary with all names of a part, and the mapping of its stacks.
pub struct BlockNames {
    /// Dictionary of the names.
    pub dictionary: Dictionary,
    /// Dictionary stack of each stack of the part.
    pub stacks: Vec<u32>,
}

impl TenantBlock<'_> {
    /// Returns the services that call a function, by its name.
    pub fn services_calling(&self, function_name: &str) -> Result<Vec<String>, BlockError> {
        let functions = self.block.open_table(FUNCTIONS_FILE)?;
        let names = functions.read_column_groups::<ByteArrayType>(self.row_groups(FUNCTIONS_FILE), 1)?;
        let mut found = Vec::new();
        for (function, service) in self.read_index()? {
            if names.get(function as usize).is_some_and(|name| name.data() == function_name.as_bytes()) {
                found.push(service);
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Returns function indexes and the services that call them.
    pub(crate) fn read_index(&self) -> Result<Vec<(u32, String)>, BlockError> {
        let index = self.block.open_table(INDEX_FILE)?;
        let functions = index.read_column_groups::<Int32Type>(self.row_groups(INDEX_FILE), 0)?;
        let services = index.read_column_groups::<ByteArrayType>(self.row_groups(INDEX_FILE), 1)?;
        let pair = |(function, service)| {
            Ok((
                local_id(INDEX_FILE, function, self.meta.functions)?,
                utf8_value(INDEX_FILE, service)?.to_owned(),
            ))
        };
        functions.into_iter().zip(&services).map(pair).collect()
    }

    /// Returns parent and location of every node, as indexes in the part. Every parent chain ends at a root.
    pub fn read_nodes(&self) -> Result<(Vec<u32>, Vec<u32>), BlockError> {
        let table = self.block.open_table(STACKS_FILE)?;
        self.check_ids(STACKS_FILE, &table, self.meta.nodes)?;
        let column = |column: usize, run: IdRange| -> Result<Vec<u32>, BlockError> {
            let ids = table.read_numbers::<i32>(self.row_groups(STACKS_FILE), column)?;
            ids.into_iter().map(|id| local_id_or_none(STACKS_FILE, id, run)).collect()
        };
        let parents = column(1, self.meta.nodes)?;
        let locations = column(2, self.meta.locations)?;
        check_acyclic(&parents)?;
        Ok((parents, locations))
    }

    /// Reads all names of the part.
    pub fn read_names(&self) -> Result<BlockNames, BlockError> {
        let mut dictionary = Dictionary::default();
        let mut of_leaf = Vec::new();
        let stacks = self.intern_names(&mut dictionary, &mut of_leaf, |_| true)?;
        Ok(BlockNames { dictionary, stacks })
    }

    /// Interns the stacks at the used indexes, with their names, in a dictionary, which may hold those of other
    /// parts. Returns the dictionary stack of each stack, [`NO_ENTRY`] for unused ones. `of_leaf` is indexed by
    /// dictionary node and passed from part to part. A node that is known to end a stack costs no hash, so the
    /// names of a stack are hashed once for all blocks.
    pub(crate) fn intern_names(
        &self,
        dictionary: &mut Dictionary,
        of_leaf: &mut Vec<u32>,
        is_used: impl Fn(usize) -> bool,
    ) -> Result<Vec<u32>, BlockError> {
        let (parents, of_nodes) = self.read_nodes()?;
        self.check_cancelled()?;
        let stacks = 0..self.meta.stacks as usize;
        let used_nodes = mark_used_nodes(&parents, stacks.clone().filter(|&stack| is_used(stack)));
        let mut used_locations = vec![false; self.meta.locations.1 as usize];
        for (&location, _) in of_nodes.iter().zip(&used_nodes).filter(|(_, is_used)| **is_used) {
            if let Some(is_used) = used_locations.get_mut(location as usize) {
                *is_used = true;
            }
        }
        let locations = self.intern_locations(dictionary, &used_locations)?;
        if dictionary.stacks.is_empty() {
            dictionary.stacks.reserve(parents.len(), self.meta.stacks as usize);
        }
        let nodes = intern_nodes(&parents, &of_nodes, &locations, &used_nodes, dictionary);
        of_leaf.resize(dictionary.stacks.nodes().len(), NO_ENTRY);
        let mut stacks_of_part = Vec::with_capacity(self.meta.stacks as usize);
        let mut hashes = Vec::new();
        for stack in stacks {
            let leaf = nodes[stack];
            if !used_nodes[stack] || !is_used(stack) {
                stacks_of_part.push(NO_ENTRY);
                continue;
            }
            let known = of_leaf.get(leaf as usize).copied().unwrap_or(NO_ENTRY);
            if known != NO_ENTRY {
                stacks_of_part.push(known);
                continue;
            }
            hashes.clear();
            let Dictionary { stacks: all, symbols, .. } = &mut *dictionary;
            hashes.extend(all.path(leaf).map(|location| symbols.location_hash(location)));
            let stack = all.intern_leaf(StackTable::stack_hash(&hashes), leaf);
            if let Some(known) = of_leaf.get_mut(leaf as usize) {
                *known = stack;
            }
            stacks_of_part.push(stack);
        }
        Ok(stacks_of_part)
    }

    /// Interns the used locations with their functions and mappings. Unused ones are [`NO_ENTRY`].
    fn intern_locations(
        &self,
        dictionary: &mut Dictionary,
        is_used: &[bool],
    ) -> Result<Vec<u32>, BlockError> {
        let table = self.block.open_table(LOCATIONS_FILE)?;
        let groups = self.row_groups(LOCATIONS_FILE);
        let ids = table.read_numbers::<i32>(groups, 0)?;
        let of_mappings = table.read_numbers::<i32>(groups, 2)?;
        let addresses = table.read_column_groups::<Int64Type>(groups, 3)?;
        let folded = table.read_column_groups::<BoolType>(groups, 4)?;
        let of_functions = table.read_numbers::<i32>(groups, 5)?;
        let lines = table.read_numbers::<i64>(groups, 6)?;
        let columns = table.read_numbers::<i64>(groups, 7)?;
        let mut used_functions = vec![false; self.meta.functions.1 as usize];
        let mut used_mappings = vec![false; self.meta.mappings.1 as usize];
        for (row, &id) in ids.iter().enumerate() {
            let location = local_id(LOCATIONS_FILE, id, self.meta.locations)?;
            let function = local_id_or_none(LOCATIONS_FILE, of_functions[row], self.meta.functions)?;
            let mapping = local_id_or_none(LOCATIONS_FILE, of_mappings[row], self.meta.mappings)?;
            if is_used[location as usize] {
                used_functions.get_mut(function as usize).into_iter().for_each(|is_used| *is_used = true);
                used_mappings.get_mut(mapping as usize).into_iter().for_each(|is_used| *is_used = true);
            }
        }
        let functions = self.intern_functions(dictionary, &used_functions)?;
        let mappings = self.intern_mappings(dictionary, &used_mappings)?;
        let mut all = Vec::with_capacity(self.meta.locations.1 as usize);
        let mut row = 0;
        let mut of_location = Vec::new();
        for (id, &is_used) in self.meta.locations.range().zip(is_used) {
            of_location.clear();
            let first = row;
            while ids.get(row).is_some_and(|&of| of as usize == id) {
                let function = local_id_or_none(LOCATIONS_FILE, of_functions[row], self.meta.functions)?;
                if is_used && function != NO_ENTRY {
                    let function = functions[function as usize];
                    of_location.push(Line { function, line: lines[row], column: columns[row] });
                }
                row += 1;
            }
            if row == first {
                return Err(BlockError::corrupt(LOCATIONS_FILE, format!("location {id} has no row")));
            }
            if !is_used {
                all.push(NO_ENTRY);
                continue;
            }
            let mapping = local_id_or_none(LOCATIONS_FILE, of_mappings[first], self.meta.mappings)?;
            let mapping = if mapping == NO_ENTRY { NO_ENTRY } else { mappings[mapping as usize] };
            let symbols = &mut dictionary.symbols;
            all.push(symbols.intern_location(mapping, addresses[first] as u64, folded[first], &of_location));
        }
        Ok(all)
    }

    fn intern_functions(
        &self,
        dictionary: &mut Dictionary,
        is_used: &[bool],
    ) -> Result<Vec<u32>, BlockError> {
        let table = self.block.open_table(FUNCTIONS_FILE)?;
        self.check_ids(FUNCTIONS_FILE, &table, self.meta.functions)?;
        let mut all = Vec::with_capacity(self.meta.functions.1 as usize);
        // Reading by row group limits how many texts exist twice.
        for group in self.row_groups(FUNCTIONS_FILE).range() {
            self.check_cancelled()?;
            let names = table.read_column::<ByteArrayType>(group, 1)?;
            let systems = table.read_column::<ByteArrayType>(group, 2)?;
            let files = table.read_column::<ByteArrayType>(group, 3)?;
            let lines = table.read_column::<Int64Type>(group, 4)?;
            for row in 0..names.len() {
                if !is_used[all.len()] {
                    all.push(NO_ENTRY);
                    continue;
                }
                let strings = &mut dictionary.symbols.strings;
                let name = strings.intern(utf8_value(FUNCTIONS_FILE, &names[row])?);
                let system_name = strings.intern(utf8_value(FUNCTIONS_FILE, &systems[row])?);
                let filename = strings.intern(utf8_value(FUNCTIONS_FILE, &files[row])?);
                let start_line = lines[row];
                all.push(dictionary.symbols.intern_function(Function {
                    name,
                    system_name,
                    filename,
                    start_line,
                }));
            }
        }
        Ok(all)
    }

    fn intern_mappings(&self, dictionary: &mut Dictionary, is_used: &[bool]) -> Result<Vec<u32>, BlockError> {
        let table = self.block.open_table(MAPPINGS_FILE)?;
        self.check_ids(MAPPINGS_FILE, &table, self.meta.mappings)?;
        let mut all = Vec::with_capacity(self.meta.mappings.1 as usize);
        for group in self.row_groups(MAPPINGS_FILE).range() {
            let starts = table.read_column::<Int64Type>(group, 1)?;
            let sizes = table.read_column::<Int64Type>(group, 2)?;
            let offsets = table.read_column::<Int64Type>(group, 3)?;
            let files = table.read_column::<ByteArrayType>(group, 4)?;
            let builds = table.read_column::<ByteArrayType>(group, 5)?;
            let flags = table.read_column::<Int32Type>(group, 6)?;
            for row in 0..starts.len() {
                if !is_used[all.len()] {
                    all.push(NO_ENTRY);
                    continue;
                }
                let filename = dictionary.symbols.strings.intern(utf8_value(MAPPINGS_FILE, &files[row])?);
                let build_id = dictionary.symbols.strings.intern(utf8_value(MAPPINGS_FILE, &builds[row])?);
                let start = starts[row] as u64;
                let size = sizes[row] as u64;
                let offset = offsets[row] as u64;
                let flags = flags[row] as u8;
                let mapping = Mapping { start, size, offset, filename, build_id, flags };
                all.push(dictionary.symbols.intern_mapping(mapping));
            }
        }
        Ok(all)
    }
}

/// Mark of an unvisited node. No dictionary has that many nodes: IDs have 31 bits.
pub(crate) const UNVISITED_NODE: u32 = NO_ENTRY - 1;

/// Returns for each node of a part whether it is a used stack or one of its callers.
pub(crate) fn mark_used_nodes(parents: &[u32], used_stacks: impl Iterator<Item = usize>) -> Vec<bool> {
    let mut is_used = vec![false; parents.len()];
    for stack in used_stacks {
        let mut node = stack as u32;
        while let Some(seen) = is_used.get_mut(node as usize).filter(|seen| !**seen) {
            *seen = true;
            node = parents[node as usize];
        }
    }
    is_used
}

/// Maps used nodes of a part to dictionary nodes, callers first. A node without a location maps to its caller.
fn intern_nodes(
    parents: &[u32],
    of_nodes: &[u32],
    locations: &[u32],
    is_used: &[bool],
    dictionary: &mut Dictionary,
) -> Vec<u32> {
    let mut nodes = vec![UNVISITED_NODE; parents.len()];
    let mut path = Vec::new();
    for start in (0..parents.len()).filter(|&start| is_used[start]) {
        let mut at = start as u32;
        while nodes.get(at as usize) == Some(&UNVISITED_NODE) {
            path.push(at);
            at = parents[at as usize];
        }
        let mut parent = nodes.get(at as usize).copied().unwrap_or(NO_ENTRY);
        while let Some(node) = path.pop() {
            if let Some(&location) = locations.get(of_nodes[node as usize] as usize) {
                // The first callee of a node was mostly added right after it. Comparing costs less than a hash.
                let guess = parent.wrapping_add(1);
                let is_known =
                    dictionary.stacks.nodes().get(guess as usize) == Some(&StackNode { parent, location });
                parent = if is_known { guess } else { dictionary.stacks.intern_child(parent, location) };
            }
            nodes[node as usize] = parent;
        }
    }
    nodes
}

/// Checks that every parent chain ends. Visited nodes are marked with the walk that reached them.
fn check_acyclic(parents: &[u32]) -> Result<(), BlockError> {
    let mut walk_of = vec![NO_ENTRY; parents.len()];
    for start in 0..parents.len() as u32 {
        let mut node = start;
        while node != NO_ENTRY && walk_of[node as usize] == NO_ENTRY {
            walk_of[node as usize] = start;
            node = parents[node as usize];
        }
        if node != NO_ENTRY && walk_of[node as usize] == start {
            return Err(BlockError::corrupt(STACKS_FILE, format!("the parents of node {node} form a cycle")));
        }
    }
    Ok(())
}
