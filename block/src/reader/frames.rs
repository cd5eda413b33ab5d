//! Names that a flame graph tree needs: nodes of stacks, and functions of those with a total.
//!
//! No dictionary is built: only the names that the tree shows are hashed.

use athanor_profile::call_tree::tree::{self, Tree, TreeShape};
use athanor_profile::data_model::symbols::{NO_ENTRY, UNKNOWN_BINARY_NAME, binary_name};
use parquet::data_type::{ByteArrayType, Int32Type};

use crate::format::error::BlockError;
use crate::format::meta::{FUNCTIONS_FILE, LOCATIONS_FILE, MAPPINGS_FILE};
use crate::reader::names::UNVISITED_NODE;
use crate::reader::read::{TenantBlock, local_id_or_none, utf8_value};

/// Estimated tree nodes per stack for preallocation. Most stacks share their nodes.
const NODES_PER_STACK: usize = 8;

/// Frames of the stacks of one tenant's part.
pub(crate) struct BlockFrames {
    /// Parent node and location of each node.
    parents: Vec<u32>,
    locations: Vec<u32>,
    /// End of each location's functions in `functions`.
    ends: Vec<u32>,
    /// Functions, outermost first.
    functions: Vec<u32>,
    /// End of each function's name in `text`.
    name_ends: Vec<usize>,
    text: String,
    /// Binary names for locations without functions.
    binaries: LocationBinaries,
}

/// Mapping of each location, and binary name of each mapping. Empty if all locations have functions.
#[derive(Default)]
struct LocationBinaries {
    mappings: Vec<u32>,
    names: Vec<String>,
}

impl TenantBlock<'_> {
    pub(crate) fn read_frames(&self) -> Result<BlockFrames, BlockError> {
        let (parents, locations) = self.read_nodes()?;
        let table = self.block.open_table(LOCATIONS_FILE)?;
        let groups = self.row_groups(LOCATIONS_FILE);
        let ids = table.read_column_groups::<Int32Type>(groups, 0)?;
        let of_rows = table.read_column_groups::<Int32Type>(groups, 5)?;
        let count = self.meta.locations.1 as usize;
        let mut ends = Vec::with_capacity(count);
        let mut functions = Vec::with_capacity(of_rows.len());
        let mut firsts = Vec::with_capacity(count);
        let mut all_have = true;
        let mut row = 0;
        for id in self.meta.locations.range() {
            let first = row;
            let before = functions.len();
            while ids.get(row).is_some_and(|&of| of as usize == id) {
                functions.push(local_id_or_none(LOCATIONS_FILE, of_rows[row], self.meta.functions)?);
                row += 1;
            }
            if row == first {
                return Err(BlockError::corrupt(LOCATIONS_FILE, format!("location {id} has no row")));
            }
            functions[before..].reverse();
            if functions[before..].contains(&NO_ENTRY) {
                let kept: Vec<u32> =
                    functions.drain(before..).filter(|&function| function != NO_ENTRY).collect();
                functions.extend(kept);
            }
            all_have &= functions.len() > before;
            firsts.push(first);
            ends.push(functions.len() as u32);
        }
        let table = self.block.open_table(FUNCTIONS_FILE)?;
        let mut all = String::new();
        let mut name_ends = Vec::new();
        for group in self.row_groups(FUNCTIONS_FILE).range() {
            for name in &table.read_column::<ByteArrayType>(group, 1)? {
                all.push_str(utf8_value(FUNCTIONS_FILE, name)?);
                name_ends.push(all.len());
            }
        }
        if name_ends.len() != self.meta.functions.1 as usize {
            return Err(BlockError::corrupt(FUNCTIONS_FILE, "row count differs from meta.json"));
        }
        let binaries = if all_have { LocationBinaries::default() } else { self.read_binaries(&firsts)? };
        Ok(BlockFrames { parents, locations, ends, functions, name_ends, text: all, binaries })
    }

    /// Reads the mappings of locations and their binary names. `firsts` are the first rows of the locations.
    fn read_binaries(&self, firsts: &[usize]) -> Result<LocationBinaries, BlockError> {
        let mappings = self
            .block
            .open_table(LOCATIONS_FILE)?
            .read_column_groups::<Int32Type>(self.row_groups(LOCATIONS_FILE), 2)?;
        let mappings =
            firsts.iter().map(|&row| local_id_or_none(LOCATIONS_FILE, mappings[row], self.meta.mappings));
        let mappings = mappings.collect::<Result<Vec<u32>, BlockError>>()?;
        let table = self.block.open_table(MAPPINGS_FILE)?;
        let files = table.read_column_groups::<ByteArrayType>(self.row_groups(MAPPINGS_FILE), 4)?;
        let builds = table.read_column_groups::<ByteArrayType>(self.row_groups(MAPPINGS_FILE), 5)?;
        let name = |(file, build)| {
            Ok(binary_name(utf8_value(MAPPINGS_FILE, file)?, utf8_value(MAPPINGS_FILE, build)?))
        };
        let names = files.iter().zip(&builds).map(name).collect::<Result<Vec<String>, BlockError>>()?;
        if names.len() != self.meta.mappings.1 as usize {
            return Err(BlockError::corrupt(MAPPINGS_FILE, "row count differs from meta.json"));
        }
        Ok(LocationBinaries { mappings, names })
    }
}

impl BlockFrames {
    /// Builds the tree of totals by stack.
    pub(crate) fn tree(&self, totals: &[i64]) -> Tree {
        let stacks = totals.iter().filter(|total| **total != 0).count();
        let mut tree = tree::TreeBuilder::with_capacity(self.parents.len().min(stacks * NODES_PER_STACK));
        let totals = totals.iter().enumerate().filter(|(_, total)| **total != 0);
        self.add_stacks(&mut tree, totals, |tree, place, &total| tree.add(place, total));
        tree.finish()
    }

    /// Builds the shape that trees of any totals share, over the first `stacks` stacks.
    pub(crate) fn shape(&self, stacks: usize) -> TreeShape {
        let mut tree = tree::TreeBuilder::with_capacity(self.parents.len());
        let mut places = Vec::with_capacity(stacks);
        self.add_stacks(&mut tree, (0..stacks).map(|stack| (stack, ())), |_, place, ()| places.push(place));
        tree.shape(&places)
    }

    /// Adds stacks to the tree and passes the tree node of each leaf to `ends`.
    fn add_stacks<T>(
        &self,
        tree: &mut tree::TreeBuilder,
        stacks: impl Iterator<Item = (usize, T)>,
        mut ends: impl FnMut(&mut tree::TreeBuilder, u32, T),
    ) {
        let mut drawing =
            FrameTreeBuilder { frames: self, tree, of_functions: vec![NO_ENTRY; self.name_ends.len()] };
        let mut places = vec![UNVISITED_NODE; self.parents.len()];
        // Names of the nodes without symbols. Consecutive nodes of one binary are merged into one tree node.
        let mut binaries =
            vec![NO_ENTRY; if self.binaries.mappings.is_empty() { 0 } else { self.parents.len() }];
        let mut path = Vec::new();
        for (stack, with) in stacks {
            let mut at = stack as u32;
            while places.get(at as usize) == Some(&UNVISITED_NODE) {
                path.push(at);
                at = self.parents[at as usize];
            }
            let mut place = places.get(at as usize).copied().unwrap_or(tree::TreeBuilder::ROOT_NODE);
            let mut last_binary = binaries.get(at as usize).copied().unwrap_or(NO_ENTRY);
            while let Some(node) = path.pop() {
                let location = self.locations[node as usize];
                if let Some(name) = drawing.binary_name(location) {
                    place = if name == last_binary { place } else { drawing.tree.child(place, name) };
                    last_binary = name;
                } else if location != NO_ENTRY {
                    place = drawing.add_location(place, location);
                    last_binary = NO_ENTRY;
                }
                places[node as usize] = place;
                if let Some(binary) = binaries.get_mut(node as usize) {
                    *binary = last_binary;
                }
            }
            ends(drawing.tree, place, with);
        }
    }

    /// Number of stack nodes.
    pub(crate) fn len(&self) -> usize {
        self.parents.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        let words = self.parents.len() + self.locations.len() + self.ends.len() + self.functions.len();
        let names: usize = self.binaries.names.iter().map(|name| name.len() + size_of::<String>()).sum();
        let binaries = self.binaries.mappings.len() * 4 + names;
        words * 4 + self.name_ends.len() * 8 + self.text.len() + binaries
    }

    fn functions(&self, location: usize) -> &[u32] {
        let start = if location == 0 { 0 } else { self.ends[location - 1] };
        &self.functions[start as usize..self.ends[location] as usize]
    }
}

/// Tree under construction.
struct FrameTreeBuilder<'f> {
    frames: &'f BlockFrames,
    tree: &'f mut tree::TreeBuilder,
    of_functions: Vec<u32>,
}

impl FrameTreeBuilder<'_> {
    /// Returns the binary name of a location without functions, none if it has functions.
    fn binary_name(&mut self, location: u32) -> Option<u32> {
        if location == NO_ENTRY || !self.frames.functions(location as usize).is_empty() {
            return None;
        }
        let LocationBinaries { mappings, names } = &self.frames.binaries;
        let name = names.get(mappings[location as usize] as usize).map_or("", String::as_str);
        Some(self.tree.name(if name.is_empty() { UNKNOWN_BINARY_NAME } else { name }))
    }

    /// Returns the tree node of a location's innermost function, called from `place`.
    fn add_location(&mut self, mut place: u32, location: u32) -> u32 {
        let frames = self.frames;
        for &function in frames.functions(location as usize) {
            let name = &mut self.of_functions[function as usize];
            if *name == NO_ENTRY {
                let start = if function == 0 { 0 } else { frames.name_ends[function as usize - 1] };
                *name = self.tree.name(&frames.text[start..frames.name_ends[function as usize]]);
            }
            place = self.tree.child(place, *name);
        }
        place
    }
}
