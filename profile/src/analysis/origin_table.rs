//! Weights of the places that frames of a tree come from, which merge without a dictionary.
//!
//! Texts and entries are sorted, so two tables merge in one pass. Weights are signed, so they do not depend on how
//! profiles are divided among sources. An entry whose values cancel out stays, because its name may be in the tree. Only
//! which of such entries there are depends on the division.

use std::ops::AddAssign;
use std::sync::Arc;

use crate::analysis::package_name::package_name;
use crate::call_tree::tree::{FrameGrouping, FrameNames, MAX_MAGNITUDE, join_texts};
use crate::data_model::model::Dictionary;
use crate::data_model::symbols::{NO_ENTRY, StringTable, SymbolTable};
use crate::encoding::hash::SeededMap;

mod codec;
#[cfg(test)]
mod tests;

/// Maximum magnitude of a weight: 63 bits, times the depth of recursion. The sum of all entries of a table fits.
const MAX_WEIGHT: i128 = 1 << 94;

/// Weights of all stacks through each place of each frame name. A stack counts for each of its frames there, so
/// recursion weighs more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginTable {
    /// The empty text is first.
    pub(super) texts: Arc<[Arc<str>]>,
    pub(super) entries: Vec<OriginEntry>,
}

/// Place of a frame name, with its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OriginEntry {
    pub(super) place: OriginPlace,
    pub(super) weight: i128,
}

/// Place of a frame name. Texts are indexes of the table. Unknown parts are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct OriginPlace {
    pub(super) name: u32,
    /// False for a frame without symbols, of which only the binary is known.
    pub(super) has_function: bool,
    pub(super) file: u32,
    pub(super) package: u32,
    pub(super) binary: u32,
    pub(super) line: i64,
}

/// Places of all frames of a dictionary without weights. The table of some stacks then takes only a few additions.
#[derive(Clone, Debug)]
pub struct OriginShape {
    texts: Arc<[Arc<str>]>,
    /// Places of all frames, sorted.
    places: Vec<OriginPlace>,
    /// End of each location's range in `frames`.
    ends: Vec<u32>,
    /// Indexes of the places of frames, location by location.
    frames: Vec<u32>,
}

impl Default for OriginTable {
    fn default() -> Self {
        OriginTable { texts: Arc::new(["".into()]), entries: Vec::new() }
    }
}

impl OriginTable {
    /// Returns the table of stacks with these totals by stack id.
    pub fn from_totals(dictionary: &Dictionary, totals: &[i64], grouping: FrameGrouping) -> Self {
        let weights = LocationWeights::from_totals(dictionary, totals);
        ShapeDraft::draw(dictionary, grouping, |location| weights.0[location].is_some()).table(&weights)
    }

    /// Adds the weights of another table.
    pub fn merge(&mut self, other: &OriginTable) {
        let (texts, left_texts, right_texts) = join_texts(&self.texts, &other.texts);
        let left = self.entries.iter().map(|entry| entry.with_texts(&left_texts));
        let mut right = other.entries.iter().map(|entry| entry.with_texts(&right_texts)).peekable();
        let mut entries = Vec::with_capacity(self.entries.len().max(other.entries.len()));
        for mut entry in left {
            while let Some(before) = right.next_if(|next| next.place < entry.place) {
                entries.push(before);
            }
            if let Some(same) = right.next_if(|next| next.place == entry.place) {
                entry.weight = (entry.weight + same.weight).clamp(-MAX_WEIGHT, MAX_WEIGHT);
            }
            entries.push(entry);
        }
        entries.extend(right);
        *self = OriginTable { texts: texts.into(), entries };
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the approximate memory in bytes.
    pub fn bytes(&self) -> usize {
        text_bytes(&self.texts) + size_of_val(&self.entries[..])
    }

    /// Removes texts that no entry has.
    fn remove_unused_texts(mut self) -> Self {
        let mut ranks = vec![NO_ENTRY; self.texts.len()];
        ranks[0] = 0;
        for entry in &self.entries {
            entry.place.texts().into_iter().for_each(|text| ranks[text as usize] = 0);
        }
        if !ranks.contains(&NO_ENTRY) {
            return self;
        }
        let mut used = Vec::with_capacity(self.texts.len());
        for (text, rank) in self.texts.iter().zip(&mut ranks).filter(|(_, rank)| **rank != NO_ENTRY) {
            *rank = used.len() as u32;
            used.push(Arc::clone(text));
        }
        self.texts = used.into();
        for entry in &mut self.entries {
            *entry = entry.with_texts(&ranks);
        }
        self
    }
}

impl OriginEntry {
    /// Returns the entry with texts of another table, by the index here.
    fn with_texts(&self, texts: &[u32]) -> OriginEntry {
        let OriginPlace { name, file, package, binary, .. } = self.place;
        let [name, file, package, binary] = [name, file, package, binary].map(|text| texts[text as usize]);
        OriginEntry { place: OriginPlace { name, file, package, binary, ..self.place }, ..*self }
    }
}

impl OriginPlace {
    fn texts(&self) -> [u32; 4] {
        [self.name, self.file, self.package, self.binary]
    }
}

impl OriginShape {
    /// Returns the places of all frames of a dictionary.
    pub fn from_dictionary(dictionary: &Dictionary, grouping: FrameGrouping) -> Self {
        ShapeDraft::draw(dictionary, grouping, |_| true)
    }

    /// Returns the number of locations in the shape.
    pub fn location_count(&self) -> usize {
        self.ends.len()
    }

    /// Returns the table of stacks with these weights of locations, all of which are in the shape.
    pub fn table(&self, location_weights: &LocationWeights) -> OriginTable {
        let mut weights: Vec<Option<i128>> = vec![None; self.places.len()];
        let mut start = 0;
        for (&end, &weight) in self.ends.iter().zip(&location_weights.0) {
            if let Some(weight) = weight {
                for &frame in &self.frames[start as usize..end as usize] {
                    *weights[frame as usize].get_or_insert(0) += weight;
                }
            }
            start = end;
        }
        let entries = self.places.iter().zip(weights);
        let entries = entries.filter_map(|(&place, weight)| Some(OriginEntry { place, weight: weight? }));
        OriginTable { texts: Arc::clone(&self.texts), entries: entries.collect() }.remove_unused_texts()
    }
}

/// Shape whose texts and places are in the order in which they are met.
struct ShapeDraft<'d> {
    symbols: &'d SymbolTable,
    grouping: FrameGrouping,
    texts: StringTable,
    /// Texts by function. None while they are unknown.
    functions: Vec<Option<FunctionTexts>>,
    /// Text of each mapping. [`NO_ENTRY`] while it is unknown.
    binaries: Vec<u32>,
    places: Vec<OriginPlace>,
    /// Index of each place. Clients choose the numbers of lines.
    ids: SeededMap<OriginPlace, u32>,
}

/// Texts of a function, as ids of the texts of the draft.
#[derive(Clone, Copy)]
struct FunctionTexts {
    file: u32,
    package: u32,
    start_line: i64,
}

impl<'d> ShapeDraft<'d> {
    fn draw(
        dictionary: &'d Dictionary,
        grouping: FrameGrouping,
        is_used: impl Fn(usize) -> bool,
    ) -> OriginShape {
        let symbols = &dictionary.symbols;
        let mut draft = ShapeDraft {
            symbols,
            grouping,
            texts: StringTable::default(),
            functions: vec![None; symbols.functions().len()],
            binaries: vec![NO_ENTRY; symbols.mappings().len()],
            places: Vec::new(),
            ids: SeededMap::default(),
        };
        let mut names = FrameNames::new(symbols, grouping);
        let mut ends = Vec::with_capacity(symbols.locations().len());
        let mut frames = Vec::new();
        for location in 0..symbols.locations().len() {
            if is_used(location) {
                draft.add_location(&mut names, location as u32, &mut frames);
            }
            ends.push(frames.len() as u32);
        }
        draft.finish(ends, frames)
    }

    fn add_location(&mut self, names: &mut FrameNames<'d>, location: u32, frames: &mut Vec<u32>) {
        let symbols = self.symbols;
        let binary = self.binary_text(symbols.locations()[location as usize].mapping);
        let lines = symbols.lines(location);
        // Outermost first, as the lines in reverse. A location without symbols has one frame and no line.
        for (depth, frame) in names.frames_of(&mut self.texts, location).iter().enumerate() {
            let mut place = OriginPlace { name: frame.name, binary, ..OriginPlace::default() };
            if let Some(line) = lines.len().checked_sub(depth + 1).map(|line| lines[line]) {
                let function = function_texts(
                    symbols,
                    &mut self.functions[line.function as usize],
                    line.function,
                    &mut self.texts,
                );
                place.has_function = true;
                place.package = function.package;
                if self.grouping.has_files() {
                    place.file = function.file;
                }
                if self.grouping.has_lines() {
                    // In a tree of lines no frame stands for the beginning of its function.
                    let is_by_line = self.grouping == FrameGrouping::Line || function.start_line == 0;
                    place.line = if is_by_line { line.line } else { function.start_line };
                }
            }
            let places = &mut self.places;
            frames.push(*self.ids.entry(place).or_insert_with(|| {
                places.push(place);
                places.len() as u32 - 1
            }));
        }
    }

    fn binary_text(&mut self, mapping: u32) -> u32 {
        let Some(text) = self.binaries.get_mut(mapping as usize) else { return 0 };
        if *text == NO_ENTRY {
            *text = self.texts.intern(&self.symbols.known_binary(mapping));
        }
        *text
    }

    /// Sorts texts and places.
    fn finish(self, ends: Vec<u32>, mut frames: Vec<u32>) -> OriginShape {
        let texts = &self.texts;
        let mut order: Vec<u32> = (0..texts.len() as u32).collect();
        order.sort_unstable_by_key(|&id| texts.get(id));
        let ranks = ranks_of(&order);
        let rank_texts =
            |place: &OriginPlace| OriginEntry { place: *place, weight: 0 }.with_texts(&ranks).place;
        let ranked: Vec<OriginPlace> = self.places.iter().map(rank_texts).collect();
        let mut place_order: Vec<u32> = (0..ranked.len() as u32).collect();
        place_order.sort_unstable_by_key(|&id| ranked[id as usize]);
        let place_ranks = ranks_of(&place_order);
        frames.iter_mut().for_each(|frame| *frame = place_ranks[*frame as usize]);
        OriginShape {
            texts: order.iter().map(|&id| texts.get(id).into()).collect(),
            places: place_order.iter().map(|&id| ranked[id as usize]).collect(),
            ends,
            frames,
        }
    }
}

fn function_texts(
    symbols: &SymbolTable,
    known: &mut Option<FunctionTexts>,
    function: u32,
    texts: &mut StringTable,
) -> FunctionTexts {
    *known.get_or_insert_with(|| {
        let function = &symbols.functions()[function as usize];
        let file = symbols.strings.get(function.filename);
        FunctionTexts {
            file: texts.intern(file),
            package: texts.intern(package_name(symbols.strings.get(function.name), file)),
            start_line: function.start_line,
        }
    })
}

/// Returns the place of each id in an order.
fn ranks_of(order: &[u32]) -> Vec<u32> {
    let mut ranks = vec![0; order.len()];
    (0..).zip(order).for_each(|(rank, &id)| ranks[id as usize] = rank);
    ranks
}

fn text_bytes(texts: &[Arc<str>]) -> usize {
    texts.iter().map(|text| text.len() + size_of::<[usize; 4]>()).sum()
}

/// Weight of all stacks through each location. None if there is no stack with a value through it. A location counts for
/// each of its frames in a stack.
#[derive(Clone, Debug)]
pub struct LocationWeights(Vec<Option<i128>>);

impl LocationWeights {
    /// Returns the weights of stacks with these totals by stack id.
    pub fn from_totals(dictionary: &Dictionary, totals: &[i64]) -> Self {
        let magnitude = totals.iter().fold(0, |sum: u64, total| sum.saturating_add(total.unsigned_abs()));
        match magnitude <= MAX_MAGNITUDE {
            true => LocationWeights::sum_stacks::<i64>(dictionary, totals),
            false => LocationWeights::sum_stacks::<i128>(dictionary, totals),
        }
    }

    /// Returns the weights of stacks. Each sum over some of the totals fits in `S`.
    fn sum_stacks<S: Copy + Default + AddAssign + From<i64> + Into<i128>>(
        dictionary: &Dictionary,
        totals: &[i64],
    ) -> Self {
        let nodes = dictionary.stacks.nodes();
        let mut sums = vec![S::default(); nodes.len()];
        let mut has_value = vec![false; nodes.len()];
        for (stack, &total) in (0..).zip(totals).filter(|(_, total)| **total != 0) {
            let leaf = dictionary.stacks.leaf(stack);
            if leaf != NO_ENTRY {
                sums[leaf as usize] += total.into();
                has_value[leaf as usize] = true;
            }
        }
        let mut weights: Vec<Option<i128>> = vec![None; dictionary.symbols.locations().len()];
        for (index, node) in nodes.iter().enumerate().rev() {
            if !has_value[index] {
                continue;
            }
            let sum = sums[index];
            *weights[node.location as usize].get_or_insert(0) += sum.into();
            if node.parent != NO_ENTRY {
                sums[node.parent as usize] += sum;
                has_value[node.parent as usize] = true;
            }
        }
        LocationWeights(weights)
    }
}
