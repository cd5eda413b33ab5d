//! Where frames of a tree come from: file, line, binary and package of each name.

use std::cmp::Reverse;
use std::hash::{BuildHasher, Hash};

use hashbrown::HashMap;

use crate::analysis::package_name::package_name;
use crate::call_tree::tree::{FrameGrouping, FrameNames};
use crate::data_model::model::Dictionary;
use crate::data_model::symbols::{Function, NO_ENTRY, StringTable, SymbolTable};
use crate::encoding::hash::{PrehashedMap, SeededMap};

/// Origins by frame name. A name that comes from several files, binaries or packages has the heaviest of each. A stack
/// counts for each frame of the name in it, so recursion weighs more.
pub struct FrameOrigins {
    names: StringTable,
    /// Texts of files, binaries and packages.
    texts: StringTable,
    files: Vec<u32>,
    binaries: Vec<u32>,
    packages: Vec<u32>,
    lines: Vec<i64>,
}

/// Origin of a frame. Unknown parts are empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameOrigin<'o> {
    /// Path of the source file. Empty in a tree of packages or binaries.
    pub file: &'o str,
    /// Line at which the function begins, or the heaviest line if that is unknown. In a tree of lines, the line. 0 in
    /// a tree of files, packages or binaries.
    pub line: i64,
    /// Name of the binary.
    pub binary: &'o str,
    /// Package of the function.
    pub package: &'o str,
}

/// Texts of a function, as ids of the texts of all origins.
#[derive(Clone, Copy)]
struct FunctionTexts {
    file: u32,
    package: u32,
    start_line: i64,
}

/// Weights of the texts of names, by name and text.
#[derive(Default)]
struct OriginWeights {
    files: PrehashedMap<(u32, u32), u64>,
    binaries: PrehashedMap<(u32, u32), u64>,
    packages: PrehashedMap<(u32, u32), u64>,
    /// Weights of lines, by name, file and line. Clients choose the numbers of lines.
    lines: SeededMap<(u32, u32, i64), u64>,
}

impl FrameOrigins {
    /// Returns the origins of the frames of a tree with these totals by stack id.
    pub fn from_totals(dictionary: &Dictionary, totals: &[i64], grouping: FrameGrouping) -> Self {
        let symbols = &dictionary.symbols;
        let mut names = StringTable::default();
        let mut texts = StringTable::default();
        let functions = function_texts(symbols, grouping, &mut texts);
        let mappings = 0..symbols.mappings().len() as u32;
        let binaries: Vec<u32> =
            mappings.map(|mapping| texts.intern(&symbols.known_binary(mapping))).collect();
        let mut frames = FrameNames::new(symbols, grouping);
        let mut weights = OriginWeights::default();
        for (location, weight) in location_weights(dictionary, totals).into_iter().enumerate() {
            if weight == 0 {
                continue;
            }
            let entry = &symbols.locations()[location];
            let binary = binaries.get(entry.mapping as usize).copied().unwrap_or(0);
            let lines = symbols.lines(location as u32);
            let named = frames.frames_of(&mut names, location as u32);
            // A location without symbols has one frame and no line.
            for (at, frame) in named.iter().enumerate() {
                add_weight(&mut weights.binaries, (frame.name, binary), weight);
                let Some(line) = lines.len().checked_sub(at + 1).map(|line| lines[line]) else { continue };
                let function = functions[line.function as usize];
                add_weight(&mut weights.packages, (frame.name, function.package), weight);
                if grouping.has_files() {
                    add_weight(&mut weights.files, (frame.name, function.file), weight);
                }
                if !grouping.has_lines() {
                    continue;
                }
                let line = if function.start_line == 0 { line.line } else { function.start_line };
                add_weight(&mut weights.lines, (frame.name, function.file, line), weight);
            }
        }
        let files = heaviest_texts(weights.files, &names, &texts);
        FrameOrigins {
            binaries: heaviest_texts(weights.binaries, &names, &texts),
            packages: heaviest_texts(weights.packages, &names, &texts),
            lines: heaviest_lines(weights.lines, &files),
            files,
            names,
            texts,
        }
    }

    /// Returns the origin of a frame. Unknown names have the default.
    pub fn get(&self, name: &str) -> FrameOrigin<'_> {
        let Some(id) = self.names.find(name).map(|id| id as usize) else { return FrameOrigin::default() };
        let text = |column: &[u32]| self.texts.get(column[id]);
        FrameOrigin {
            file: text(&self.files),
            line: self.lines[id],
            binary: text(&self.binaries),
            package: text(&self.packages),
        }
    }
}

/// Returns the texts of all functions. In a tree of lines no frame stands for the beginning of its function.
fn function_texts(
    symbols: &SymbolTable,
    grouping: FrameGrouping,
    texts: &mut StringTable,
) -> Vec<FunctionTexts> {
    let function_texts = |function: &Function| {
        let file = symbols.strings.get(function.filename);
        FunctionTexts {
            file: texts.intern(file),
            package: texts.intern(package_name(symbols.strings.get(function.name), file)),
            start_line: if grouping == FrameGrouping::Line { 0 } else { function.start_line },
        }
    };
    symbols.functions().iter().map(function_texts).collect()
}

fn add_weight<K: Hash + Eq, S: BuildHasher>(weights: &mut HashMap<K, u64, S>, key: K, weight: u64) {
    let sum = weights.entry(key).or_default();
    *sum = sum.saturating_add(weight);
}

/// Returns the heaviest text of each name. Of equally heavy ones the first in their order wins, so that the result does not
/// depend on the order of a dictionary.
fn heaviest_texts(
    weights: PrehashedMap<(u32, u32), u64>,
    names: &StringTable,
    texts: &StringTable,
) -> Vec<u32> {
    let mut heaviest = vec![(0u64, 0u32); names.len()];
    for ((name, text), weight) in weights {
        let best = &mut heaviest[name as usize];
        if (Reverse(weight), texts.get(text)) < (Reverse(best.0), texts.get(best.1)) {
            *best = (weight, text);
        }
    }
    heaviest.into_iter().map(|(_, text)| text).collect()
}

/// Returns the heaviest line of each name in its file, the first of equally heavy ones.
fn heaviest_lines(weights: SeededMap<(u32, u32, i64), u64>, files: &[u32]) -> Vec<i64> {
    let mut heaviest = vec![(0u64, 0i64); files.len()];
    let in_file = weights.into_iter().filter(|((name, file, _), _)| files[*name as usize] == *file);
    for ((name, _, line), weight) in in_file {
        let best = &mut heaviest[name as usize];
        if (Reverse(weight), line) < (Reverse(best.0), best.1) {
            *best = (weight, line);
        }
    }
    heaviest.into_iter().map(|(_, line)| line).collect()
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
    use crate::data_model::symbols::{Line, Mapping};

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
        let files = FrameOrigins::from_totals(&dictionary, &totals, FrameGrouping::File);
        let file = FrameOrigin { file: "/src/b/run.go", line: 0, binary: "b", package: "b" };
        assert_eq!(files.get("/src/b/run.go"), file);
        let packages = FrameOrigins::from_totals(&dictionary, &totals, FrameGrouping::Package);
        assert_eq!(packages.get("b"), FrameOrigin { file: "", ..file });
        let binaries = FrameOrigins::from_totals(&dictionary, &totals, FrameGrouping::Binary);
        assert_eq!(binaries.get("b"), FrameOrigin { file: "", ..file });
    }
}
