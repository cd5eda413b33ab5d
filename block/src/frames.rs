//! What a tree needs of a part's names: its nodes, and the functions of those that have a total.
//!
//! No dictionary is built: nothing is hashed but the names that the tree shows.

use athanor_profile::symbols::{NONE, UNKNOWN_BINARY, binary_name};
use athanor_profile::tree::{self, Shape, Tree};
use parquet::data_type::{ByteArrayType, Int32Type};

use crate::error::BlockError;
use crate::meta::{FUNCTIONS, LOCATIONS, MAPPINGS};
use crate::names::UNSEEN;
use crate::read::{Part, text, within_or_none};

/// Room for so many nodes is made for each stack of a tree: most share theirs.
const NODES_OF_STACK: usize = 8;

/// The frames of a part's stacks.
pub(crate) struct Frames {
    /// Callers and locations of nodes.
    parents: Vec<u32>,
    locations: Vec<u32>,
    /// Where the functions of each location end in `functions`.
    ends: Vec<u32>,
    /// Functions, outermost first.
    functions: Vec<u32>,
    /// Where the name of each function ends in `text`.
    name_ends: Vec<usize>,
    text: String,
    /// Names of locations without functions.
    binaries: Binaries,
}

/// The mapping of each location, and the name of each mapping's binary; empty where all locations have functions.
#[derive(Default)]
struct Binaries {
    mappings: Vec<u32>,
    names: Vec<String>,
}

impl Part<'_> {
    pub(crate) fn frames(&self) -> Result<Frames, BlockError> {
        let (parents, locations) = self.nodes()?;
        let table = self.block.table(LOCATIONS)?;
        let groups = self.groups(LOCATIONS);
        let ids = table.run::<Int32Type>(groups, 0)?;
        let of_rows = table.run::<Int32Type>(groups, 5)?;
        let count = self.meta.locations.1 as usize;
        let (mut ends, mut functions) = (Vec::with_capacity(count), Vec::with_capacity(of_rows.len()));
        let (mut firsts, mut all_have) = (Vec::with_capacity(count), true);
        let mut row = 0;
        for id in self.meta.locations.range() {
            let (first, before) = (row, functions.len());
            while ids.get(row).is_some_and(|&of| of as usize == id) {
                functions.push(within_or_none(LOCATIONS, of_rows[row], self.meta.functions)?);
                row += 1;
            }
            if row == first {
                return Err(BlockError::corrupt(LOCATIONS, format!("it has no row of location {id}")));
            }
            functions[before..].reverse();
            if functions[before..].contains(&NONE) {
                let kept: Vec<u32> = functions.drain(before..).filter(|&function| function != NONE).collect();
                functions.extend(kept);
            }
            all_have &= functions.len() > before;
            firsts.push(first);
            ends.push(functions.len() as u32);
        }
        let table = self.block.table(FUNCTIONS)?;
        let (mut all, mut name_ends) = (String::new(), Vec::new());
        for group in self.groups(FUNCTIONS).range() {
            for name in &table.column::<ByteArrayType>(group, 1)? {
                all.push_str(text(FUNCTIONS, name)?);
                name_ends.push(all.len());
            }
        }
        if name_ends.len() != self.meta.functions.1 as usize {
            return Err(BlockError::corrupt(FUNCTIONS, "it has not as many rows as meta.json says"));
        }
        let binaries = if all_have { Binaries::default() } else { self.binaries(&firsts)? };
        Ok(Frames { parents, locations, ends, functions, name_ends, text: all, binaries })
    }

    /// `firsts` are the first rows of the locations.
    fn binaries(&self, firsts: &[usize]) -> Result<Binaries, BlockError> {
        let mappings = self.block.table(LOCATIONS)?.run::<Int32Type>(self.groups(LOCATIONS), 2)?;
        let mappings = firsts.iter().map(|&row| within_or_none(LOCATIONS, mappings[row], self.meta.mappings));
        let mappings = mappings.collect::<Result<Vec<u32>, BlockError>>()?;
        let table = self.block.table(MAPPINGS)?;
        let files = table.run::<ByteArrayType>(self.groups(MAPPINGS), 4)?;
        let builds = table.run::<ByteArrayType>(self.groups(MAPPINGS), 5)?;
        let name = |(file, build)| Ok(binary_name(text(MAPPINGS, file)?, text(MAPPINGS, build)?));
        let names = files.iter().zip(&builds).map(name).collect::<Result<Vec<String>, BlockError>>()?;
        if names.len() != self.meta.mappings.1 as usize {
            return Err(BlockError::corrupt(MAPPINGS, "it has not as many rows as meta.json says"));
        }
        Ok(Binaries { mappings, names })
    }
}

impl Frames {
    /// The tree of totals by stack.
    pub(crate) fn tree(&self, totals: &[i64]) -> Tree {
        let stacks = totals.iter().filter(|total| **total != 0).count();
        let mut tree = tree::Builder::with_room(self.parents.len().min(stacks * NODES_OF_STACK));
        let totals = totals.iter().enumerate().filter(|(_, total)| **total != 0);
        self.draw(&mut tree, totals, |tree, place, &total| tree.add(place, total));
        tree.finish()
    }

    /// What the trees of any totals look like, of so many stacks.
    pub(crate) fn shape(&self, stacks: usize) -> Shape {
        let mut tree = tree::Builder::with_room(self.parents.len());
        let mut places = Vec::with_capacity(stacks);
        self.draw(&mut tree, (0..stacks).map(|stack| (stack, ())), |_, place, ()| places.push(place));
        tree.shape(&places)
    }

    /// Draws stacks, and says where each one ends.
    fn draw<T>(
        &self,
        tree: &mut tree::Builder,
        stacks: impl Iterator<Item = (usize, T)>,
        mut ends: impl FnMut(&mut tree::Builder, u32, T),
    ) {
        let mut drawing = Drawing { frames: self, tree, of_functions: vec![NONE; self.name_ends.len()] };
        let mut places = vec![UNSEEN; self.parents.len()];
        // Names of the nodes without symbols. Consecutive ones of one binary are one node of the tree.
        let mut binaries = vec![NONE; if self.binaries.mappings.is_empty() { 0 } else { self.parents.len() }];
        let mut path = Vec::new();
        for (stack, with) in stacks {
            let mut at = stack as u32;
            while places.get(at as usize) == Some(&UNSEEN) {
                path.push(at);
                at = self.parents[at as usize];
            }
            let mut place = places.get(at as usize).copied().unwrap_or(tree::Builder::ROOT);
            let mut last_binary = binaries.get(at as usize).copied().unwrap_or(NONE);
            while let Some(node) = path.pop() {
                let location = self.locations[node as usize];
                if let Some(name) = drawing.unnamed(location) {
                    place = if name == last_binary { place } else { drawing.tree.child(place, name) };
                    last_binary = name;
                } else if location != NONE {
                    place = drawing.push_down(place, location);
                    last_binary = NONE;
                }
                places[node as usize] = place;
                if let Some(binary) = binaries.get_mut(node as usize) {
                    *binary = last_binary;
                }
            }
            ends(drawing.tree, place, with);
        }
    }

    /// How many nodes there are.
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

/// A tree being drawn.
struct Drawing<'f> {
    frames: &'f Frames,
    tree: &'f mut tree::Builder,
    of_functions: Vec<u32>,
}

impl Drawing<'_> {
    /// The name of a location without functions; none if it has some.
    fn unnamed(&mut self, location: u32) -> Option<u32> {
        if location == NONE || !self.frames.functions(location as usize).is_empty() {
            return None;
        }
        let Binaries { mappings, names } = &self.frames.binaries;
        let name = names.get(mappings[location as usize] as usize).map_or("", String::as_str);
        Some(self.tree.name(if name.is_empty() { UNKNOWN_BINARY } else { name }))
    }

    /// The place of a location's innermost function, called from `place`.
    fn push_down(&mut self, mut place: u32, location: u32) -> u32 {
        let frames = self.frames;
        for &function in frames.functions(location as usize) {
            let name = &mut self.of_functions[function as usize];
            if *name == NONE {
                let start = if function == 0 { 0 } else { frames.name_ends[function as usize - 1] };
                *name = self.tree.name(&frames.text[start..frames.name_ends[function as usize]]);
            }
            place = self.tree.child(place, *name);
        }
        place
    }
}
