//! Where frames of a tree come from: file, line, binary and package of each name.

use std::collections::HashMap;

use crate::analysis::package_name::package_name;
use crate::call_tree::tree::{FrameGrouping, FrameNames};
use crate::data_model::model::Dictionary;
use crate::data_model::symbols::{Location, NO_ENTRY, StringTable, SymbolTable};

/// Origins by frame name. A name that comes from several places has the heaviest.
pub struct FrameOrigins<'d> {
    symbols: &'d SymbolTable,
    names: StringTable,
    /// Heaviest place of each name.
    places: Vec<Option<FramePlace>>,
    /// Name of each mapping's binary.
    binaries: Vec<String>,
}

/// Origin of a frame. Unknown parts are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameOrigin<'o> {
    /// Path of the source file.
    pub file: &'o str,
    /// Line at which the function begins, or the heaviest line if that is unknown. In a tree of lines, the line.
    pub line: i64,
    /// Name of the binary.
    pub binary: &'o str,
    /// Package of the function.
    pub package: &'o str,
}

/// Place of a frame: ids of its function and mapping, [`NO_ENTRY`] if unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FramePlace {
    function: u32,
    mapping: u32,
    line: i64,
}

/// Weights of the places of names.
#[derive(Default)]
struct PlaceWeights {
    /// True if a frame stands for a line, wherever its function begins.
    has_line_frames: bool,
    by_function: HashMap<(u32, u32, u32), u64>,
    by_line: HashMap<(u32, u32, i64), u64>,
}

impl<'d> FrameOrigins<'d> {
    /// Returns the origins of the frames of a tree with these totals by stack id.
    pub fn from_totals(dictionary: &'d Dictionary, totals: &[i64], grouping: FrameGrouping) -> Self {
        let symbols = &dictionary.symbols;
        let mut names = StringTable::default();
        let mut frames = FrameNames::new(symbols, grouping);
        let has_line_frames = grouping == FrameGrouping::Line;
        let mut weights = PlaceWeights { has_line_frames, ..PlaceWeights::default() };
        let has_weight = |(_, weight): &(usize, u64)| *weight > 0;
        for (location, weight) in
            location_weights(dictionary, totals).into_iter().enumerate().filter(has_weight)
        {
            let named = frames.frames_of(&mut names, location as u32);
            weights.add_location(symbols, location as u32, named.iter().map(|frame| frame.name), weight);
        }
        let places = weights.heaviest_places(symbols, &names);
        let mappings = 0..symbols.mappings().len() as u32;
        let binaries = mappings.map(|mapping| symbols.known_binary(mapping)).collect();
        FrameOrigins { symbols, names, places, binaries }
    }

    /// Returns the origin of a frame. Unknown names have the default.
    pub fn get(&self, name: &str) -> FrameOrigin<'_> {
        let place = self.names.find(name).and_then(|id| self.places.get(id as usize).copied().flatten());
        let Some(FramePlace { function, mapping, line }) = place else { return FrameOrigin::default() };
        let binary = self.binaries.get(mapping as usize).map(String::as_str).unwrap_or_default();
        let strings = &self.symbols.strings;
        let Some(function) = self.symbols.functions().get(function as usize) else {
            return FrameOrigin { binary, ..FrameOrigin::default() };
        };
        let file = strings.get(function.filename);
        let package = package_name(strings.get(function.name), file);
        FrameOrigin { file, line, binary, package }
    }
}

impl PlaceWeights {
    /// Adds the weight of a location to its frames, outermost first.
    fn add_location(
        &mut self,
        symbols: &SymbolTable,
        location: u32,
        names: impl Iterator<Item = u32>,
        weight: u64,
    ) {
        let Location { mapping, .. } = symbols.locations()[location as usize];
        let lines = symbols.lines(location);
        for (at, name) in names.enumerate() {
            let line = lines.len().checked_sub(at + 1).map(|line| lines[line]);
            let function = line.map_or(NO_ENTRY, |line| line.function);
            let sum = self.by_function.entry((name, function, mapping)).or_default();
            *sum = sum.saturating_add(weight);
            let Some(line) = line else { continue };
            if self.has_line_frames || function_start(symbols, function) == 0 {
                let sum = self.by_line.entry((name, function, line.line)).or_default();
                *sum = sum.saturating_add(weight);
            }
        }
    }

    /// Returns the heaviest place of each name. Of equally heavy ones the smallest file and binary wins, so that the
    /// result does not depend on the order of a dictionary.
    fn heaviest_places(self, symbols: &SymbolTable, names: &StringTable) -> Vec<Option<FramePlace>> {
        let has_line_frames = self.has_line_frames;
        let start_line = |function: u32| match has_line_frames {
            true => 0,
            false => function_start(symbols, function),
        };
        let mut lines: HashMap<(u32, u32), (u64, i64)> = HashMap::new();
        for ((name, function, line), weight) in self.by_line {
            let best = lines.entry((name, function)).or_insert((0, i64::MAX));
            if weight > best.0 || weight == best.0 && line < best.1 {
                *best = (weight, line);
            }
        }
        let file = |function: u32| {
            let filename = symbols.functions().get(function as usize).map(|function| function.filename);
            filename.map(|filename| symbols.strings.get(filename)).unwrap_or_default()
        };
        let binary = |mapping: u32| {
            let filename = symbols.mappings().get(mapping as usize).map(|mapping| mapping.filename);
            filename.map(|filename| symbols.strings.get(filename)).unwrap_or_default()
        };
        let mut best: Vec<Option<(u64, FramePlace)>> = vec![None; names.len()];
        for ((name, function, mapping), weight) in self.by_function {
            let start = start_line(function);
            let heaviest = lines.get(&(name, function)).map_or(0, |(_, line)| *line);
            let line = if start == 0 { heaviest } else { start };
            let place = FramePlace { function, mapping, line };
            let rank = |weight: u64, place: &FramePlace| {
                (std::cmp::Reverse(weight), file(place.function), binary(place.mapping), place.line)
            };
            let known = &mut best[name as usize];
            if known.as_ref().is_none_or(|(heavy, known)| rank(weight, &place) < rank(*heavy, known)) {
                *known = Some((weight, place));
            }
        }
        best.into_iter().map(|best| best.map(|(_, place)| place)).collect()
    }
}

/// Returns the line at which a function begins, 0 if unknown.
fn function_start(symbols: &SymbolTable, function: u32) -> i64 {
    symbols.functions().get(function as usize).map_or(0, |function| function.start_line)
}

/// Returns the weight of all stacks through each location. A location counts for each of its frames in a stack.
fn location_weights(dictionary: &Dictionary, totals: &[i64]) -> Vec<u64> {
    let nodes = dictionary.stacks.nodes();
    let mut node_weights = vec![0u64; nodes.len()];
    for (stack, total) in (0..).zip(totals) {
        if let Some(weight) = node_weights.get_mut(dictionary.stacks.leaf(stack) as usize) {
            *weight = weight.saturating_add(total.unsigned_abs());
        }
    }
    let mut weights = vec![0u64; dictionary.symbols.locations().len()];
    for (at, node) in nodes.iter().enumerate().rev() {
        let weight = node_weights[at];
        let sum = &mut weights[node.location as usize];
        *sum = sum.saturating_add(weight);
        if node.parent != NO_ENTRY {
            let above = &mut node_weights[node.parent as usize];
            *above = above.saturating_add(weight);
        }
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_model::symbols::{Function, Line, Mapping};

    fn location(dictionary: &mut Dictionary, binary: &str, file: &str, name: &str, lines: (i64, i64)) -> u32 {
        let symbols = &mut dictionary.symbols;
        let filename = symbols.strings.intern(binary);
        let mapping = symbols.intern_mapping(Mapping {
            start: 0,
            size: 1 << 20,
            offset: 0,
            filename,
            build_id: 0,
            flags: 1,
        });
        let name = symbols.strings.intern(name);
        let filename = symbols.strings.intern(file);
        let function =
            symbols.intern_function(Function { name, system_name: name, filename, start_line: lines.0 });
        symbols.intern_location(
            mapping,
            lines.1 as u64,
            false,
            &[Line { function, line: lines.1, column: 0 }],
        )
    }

    #[test]
    fn origin_of_name_is_its_heaviest_place() {
        let mut dictionary = Dictionary::default();
        let root = location(&mut dictionary, "/bin/a", "/src/main.go", "main.main", (10, 12));
        let old = location(&mut dictionary, "/bin/a", "/src/a/run.go", "run", (0, 7));
        let heavy = location(&mut dictionary, "/lib/b", "/src/b/run.go", "run", (0, 8));
        let heavier = location(&mut dictionary, "/lib/b", "/src/b/run.go", "run", (0, 9));
        let paths = [[old, root], [heavy, root], [heavier, root]];
        for path in paths {
            dictionary.stacks.intern(&dictionary.symbols, &path);
        }
        let totals = [5, -2, 4];
        let origins = FrameOrigins::from_totals(&dictionary, &totals, FrameGrouping::Function);
        let main = FrameOrigin { file: "/src/main.go", line: 10, binary: "a", package: "main" };
        assert_eq!(origins.get("main.main"), main);
        let run = FrameOrigin { file: "/src/b/run.go", line: 9, binary: "b", package: "b" };
        assert_eq!(origins.get("run"), run);
        assert_eq!(origins.get("nothing"), FrameOrigin::default());
        let lines = FrameOrigins::from_totals(&dictionary, &totals, FrameGrouping::Line);
        assert_eq!(lines.get("run /src/b/run.go:8").line, 8);
        let binaries = FrameOrigins::from_totals(&dictionary, &totals, FrameGrouping::Binary);
        assert_eq!(binaries.get("a").binary, "a");
    }
}
