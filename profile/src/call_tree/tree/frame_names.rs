//! Frames of locations: what a tree shows of each, and under which name.

use crate::analysis::package_name::package_name;
use crate::data_model::symbols::{Line, NO_ENTRY, StringTable, SymbolTable};

/// Maximum bytes of what a frame of a line has beside its function and file.
const MAX_LINE_SUFFIX_BYTES: usize = 24;

/// Meaning of a frame in a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FrameGrouping {
    /// Function. Frames without symbols have the name of their binary, and consecutive ones of one binary are
    /// one frame.
    #[default]
    Function,
    /// Function, with a frame for each address without symbols.
    Address,
    /// Function with its file and line.
    Line,
    /// Source file. Consecutive frames of one file are one frame.
    File,
    /// Package. Consecutive frames of one package are one frame.
    Package,
    /// Binary. Consecutive frames of one binary are one frame.
    Binary,
}

impl FrameGrouping {
    /// Returns whether consecutive frames with one name are always one frame.
    fn joins_named_frames(self) -> bool {
        !self.has_lines()
    }

    /// Returns whether a frame is a function or a line of one, so that it has a line.
    pub(crate) fn has_lines(self) -> bool {
        matches!(self, FrameGrouping::Function | FrameGrouping::Address | FrameGrouping::Line)
    }

    /// Returns whether a frame is a file or a part of one, so that it has a file.
    pub(crate) fn has_files(self) -> bool {
        self.has_lines() || self == FrameGrouping::File
    }
}

/// Frame of a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamedFrame {
    /// Id in the string table of the caller.
    pub(crate) name: u32,
    /// True if the frame and a caller with the same flag and name are one frame.
    pub(crate) joins_caller: bool,
}

/// Frames by location. The names of a location are made once, when it is first met.
pub(crate) struct FrameNames<'d> {
    symbols: &'d SymbolTable,
    grouping: FrameGrouping,
    /// Range of each location's frames. The start is [`NO_ENTRY`] while they are unknown.
    ranges: Vec<(u32, u32)>,
    frames: Vec<NamedFrame>,
    /// Name id by string id, for names that are strings of the dictionary.
    of_string: Vec<u32>,
}

impl<'d> FrameNames<'d> {
    pub(crate) fn new(symbols: &'d SymbolTable, grouping: FrameGrouping) -> Self {
        FrameNames {
            symbols,
            grouping,
            ranges: vec![(NO_ENTRY, 0); symbols.locations().len()],
            frames: Vec::new(),
            of_string: vec![NO_ENTRY; symbols.strings.len()],
        }
    }

    /// Returns the frames of a location, outermost first. A location without symbols has one frame.
    pub(crate) fn frames_of(&mut self, names: &mut StringTable, location: u32) -> &[NamedFrame] {
        if self.ranges[location as usize].0 == NO_ENTRY {
            let start = self.frames.len() as u32;
            self.add_frames(names, location);
            self.ranges[location as usize] = (start, self.frames.len() as u32);
        }
        let (start, end) = self.ranges[location as usize];
        &self.frames[start as usize..end as usize]
    }

    fn add_frames(&mut self, names: &mut StringTable, location: u32) {
        let symbols = self.symbols;
        let lines = symbols.lines(location);
        if lines.is_empty() {
            let name = match self.grouping {
                FrameGrouping::Address => symbols.address_name(location),
                _ => symbols.binary_name(location),
            };
            let joins_caller = self.grouping != FrameGrouping::Address;
            self.frames.push(NamedFrame { name: names.intern(&name), joins_caller });
            return;
        }
        for line in lines.iter().rev() {
            let name = self.line_name(names, location, line);
            self.frames.push(NamedFrame { name, joins_caller: self.grouping.joins_named_frames() });
        }
    }

    fn line_name(&mut self, names: &mut StringTable, location: u32, line: &Line) -> u32 {
        let symbols = self.symbols;
        let function = symbols.functions()[line.function as usize];
        match self.grouping {
            FrameGrouping::Function | FrameGrouping::Address => self.string_name(names, function.name),
            FrameGrouping::Line => {
                let name = symbols.strings.get(function.name);
                let file = symbols.strings.get(function.filename);
                names.intern(&line_frame_name(name, file, line.line))
            }
            FrameGrouping::File if function.filename != 0 => self.string_name(names, function.filename),
            FrameGrouping::Package => {
                let name = symbols.strings.get(function.name);
                let package = package_name(name, symbols.strings.get(function.filename));
                match package.is_empty() {
                    true => names.intern(&symbols.binary_name(location)),
                    false => names.intern(package),
                }
            }
            FrameGrouping::File | FrameGrouping::Binary => names.intern(&symbols.binary_name(location)),
        }
    }

    /// Returns the name id of a string of the dictionary.
    fn string_name(&mut self, names: &mut StringTable, string: u32) -> u32 {
        let name = &mut self.of_string[string as usize];
        if *name == NO_ENTRY {
            *name = names.intern(self.symbols.strings.get(string));
        }
        *name
    }
}

/// Returns the bytes of all names of a tree of lines, which repeat those of functions and files.
pub fn line_name_bytes(symbols: &SymbolTable) -> usize {
    let text_bytes = |line: &Line| {
        let function = symbols.functions()[line.function as usize];
        let texts = [function.name, function.filename].map(|text| symbols.strings.get(text).len());
        texts.iter().sum::<usize>() + MAX_LINE_SUFFIX_BYTES
    };
    let locations = 0..symbols.locations().len() as u32;
    locations.flat_map(|location| symbols.lines(location)).map(text_bytes).sum()
}

/// Returns the name of a frame in a tree of lines: `main.run /src/main.go:17`.
fn line_frame_name(function: &str, file: &str, line: i64) -> String {
    match (file.is_empty(), line) {
        (true, 0) => function.to_owned(),
        (true, line) => format!("{function} :{line}"),
        (false, 0) => format!("{function} {file}"),
        (false, line) => format!("{function} {file}:{line}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::call_tree::tree::Tree;
    use crate::data_model::model::Dictionary;
    use crate::data_model::symbols::{Function, Mapping};

    const BINARIES: [&str; 3] = ["/bin/shop", "/lib/libc.so.6", ""];
    const FILES: [&str; 3] = ["/src/cart/cart.go", "/src/db/db.go", ""];
    const FUNCTIONS: [&str; 4] = ["shop/cart.Add", "shop/db.Query", "std::sort", "malloc"];

    /// Location: its binary, and its functions with file and line, outermost first.
    type PlainLocation = (usize, Vec<(usize, usize, i64)>);

    fn intern(dictionary: &mut Dictionary, (binary, lines): &PlainLocation) -> u32 {
        let symbols = &mut dictionary.symbols;
        let filename = symbols.strings.intern(BINARIES[*binary]);
        let mapping = match BINARIES[*binary] {
            "" => NO_ENTRY,
            _ => symbols.intern_mapping(Mapping {
                start: 0,
                size: 9,
                offset: 0,
                filename,
                build_id: 0,
                flags: 0,
            }),
        };
        let mut interned = Vec::new();
        for (function, file, line) in lines.iter().rev() {
            let name = symbols.strings.intern(FUNCTIONS[*function]);
            let filename = symbols.strings.intern(FILES[*file]);
            let function =
                symbols.intern_function(Function { name, system_name: name, filename, start_line: 0 });
            interned.push(Line { function, line: *line, column: 0 });
        }
        symbols.intern_location(mapping, 7, false, &interned)
    }

    /// Frames of a location in the plain way, with whether they join equal callers.
    fn plain_frames((binary, lines): &PlainLocation, grouping: FrameGrouping) -> Vec<(String, bool)> {
        let binary = match BINARIES[*binary].rsplit('/').next() {
            None | Some("") => "[unknown]",
            Some(name) => name,
        };
        if lines.is_empty() {
            let is_address = grouping == FrameGrouping::Address;
            let address = if binary == "[unknown]" { "0x7".to_owned() } else { format!("{binary}+0x7") };
            return vec![(if is_address { address } else { binary.to_owned() }, !is_address)];
        }
        let frame = |(function, file, line): &(usize, usize, i64)| {
            let name = FUNCTIONS[*function];
            let file = FILES[*file];
            let package = match *function {
                0 => "shop/cart",
                1 => "shop/db",
                2 => "std",
                _ if file.is_empty() => binary,
                _ => file.split('/').nth(2).unwrap_or_default(),
            };
            match grouping {
                FrameGrouping::Function | FrameGrouping::Address => (name.to_owned(), false),
                FrameGrouping::Line if file.is_empty() => (format!("{name} :{line}"), false),
                FrameGrouping::Line => (format!("{name} {file}:{line}"), false),
                FrameGrouping::File => (if file.is_empty() { binary } else { file }.to_owned(), true),
                FrameGrouping::Package => (package.to_owned(), true),
                FrameGrouping::Binary => (binary.to_owned(), true),
            }
        };
        lines.iter().map(frame).collect()
    }

    fn self_values(tree: &Tree) -> BTreeMap<String, i64> {
        let mut paths: Vec<String> = Vec::new();
        let mut found = BTreeMap::new();
        for (at, node) in tree.nodes().iter().enumerate() {
            let caller = paths.get(node.parent as usize).cloned().unwrap_or_default();
            paths.push(if at == 0 { caller } else { format!("{caller};{}", tree.name(node)) });
            if node.self_value != 0 {
                found.insert(paths[at].clone(), node.self_value);
            }
        }
        found
    }

    fn any_location() -> impl Strategy<Value = PlainLocation> {
        (0..3usize, prop::collection::vec((0..4usize, 0..3usize, 1..3i64), 0..3))
    }

    proptest! {
        #[test]
        fn tree_of_frames_equals_lists_of_names(
            stacks in prop::collection::vec((prop::collection::vec(any_location(), 0..6), 1..50i64), 0..12),
        ) {
            let mut dictionary = Dictionary::default();
            let mut totals = Vec::new();
            for (path, value) in &stacks {
                let locations: Vec<u32> =
                    path.iter().rev().map(|location| intern(&mut dictionary, location)).collect();
                let stack = dictionary.stacks.intern(&dictionary.symbols, &locations) as usize;
                totals.resize(totals.len().max(stack + 1), 0);
                totals[stack] += value;
            }
            for grouping in [
                FrameGrouping::Function,
                FrameGrouping::Address,
                FrameGrouping::Line,
                FrameGrouping::File,
                FrameGrouping::Package,
                FrameGrouping::Binary,
            ] {
                let mut expected: BTreeMap<String, i64> = BTreeMap::new();
                for (path, value) in &stacks {
                    let mut frames: Vec<(String, bool)> = Vec::new();
                    for frame in path.iter().flat_map(|location| plain_frames(location, grouping)) {
                        if !(frame.1 && frames.last() == Some(&frame)) {
                            frames.push(frame);
                        }
                    }
                    let key: String = frames.iter().map(|(name, _)| format!(";{name}")).collect();
                    *expected.entry(key).or_default() += value;
                }
                let tree = Tree::with_frames(&dictionary, &totals, grouping);
                prop_assert_eq!(self_values(&tree), expected, "{:?}", grouping);
            }
        }
    }
}
