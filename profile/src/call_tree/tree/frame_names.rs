//! Frames of locations: what a tree shows of each, and under which name.

use crate::analysis::package_name::package_name;
use crate::data_model::symbols::{Line, NO_ENTRY, StringTable, SymbolTable};

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
        matches!(self, FrameGrouping::File | FrameGrouping::Package | FrameGrouping::Binary)
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

/// Returns the name of a frame in a tree of lines: `main.run /src/main.go:17`.
fn line_frame_name(function: &str, file: &str, line: i64) -> String {
    match (file.is_empty(), line) {
        (true, 0) => function.to_owned(),
        (true, line) => format!("{function} :{line}"),
        (false, 0) => format!("{function} {file}"),
        (false, line) => format!("{function} {file}:{line}"),
    }
}
