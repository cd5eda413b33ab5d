//! Filter of stacks, and their form for Go PGO.

use athanor_profile::Dictionary;
use athanor_profile::analysis::transform::{StackRewriter, StackTransforms};
use athanor_profile::data_model::symbols::{Line, SymbolTable};

use crate::request::frame_filter::FrameFilter;

/// Functions, root first, with which a stack must begin. An empty list matches every stack.
pub type CallSite = Vec<String>;

/// Filter of stacks. All its conditions must hold for the stacks as they are stored. Then transforms rewrite them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StackFilter {
    /// Required functions from the root on.
    pub call_site: CallSite,
    /// Frames that the stack must and must not contain.
    pub frames: FrameFilter,
    /// Changes of the stacks that pass. A stack that is left without frames does not count.
    pub transforms: StackTransforms,
}

/// Form of stacks for Go PGO, which uses the last calls only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GoPgoOptions {
    /// Number of locations that stay, from the leaf on. 0 keeps all.
    pub keep_locations: u32,
    /// True if the leaf loses its line, so that all samples of the function itself merge.
    pub aggregate_callees: bool,
}

impl StackFilter {
    /// Returns true if every stack passes as it is.
    pub fn is_empty(&self) -> bool {
        self.call_site.is_empty() && self.frames.is_empty() && self.transforms.is_empty()
    }

    /// Returns a flag per stack of a dictionary: true if it passes, and transforms leave frames of it.
    pub(crate) fn find_passing_stacks(&self, dictionary: &Dictionary, stacks: &[u32]) -> Vec<bool> {
        let mut passing = self.find_selected_stacks(dictionary, stacks);
        if !self.transforms.is_empty() {
            let mut rewriter = StackRewriter::new(&self.transforms, dictionary);
            let all = passing.iter_mut().zip(stacks).filter(|(passes, _)| **passes);
            all.for_each(|(passes, &stack)| *passes = rewriter.keeps_stack(stack));
        }
        passing
    }

    /// Returns a flag per stack of a dictionary: true if it passes before transforms.
    pub(crate) fn find_selected_stacks(&self, dictionary: &Dictionary, stacks: &[u32]) -> Vec<bool> {
        let mut passing = match self.frames.is_empty() {
            true => vec![true; stacks.len()],
            false => self.frames.find_passing_stacks(dictionary, stacks),
        };
        if !self.call_site.is_empty() {
            let all = passing.iter_mut().zip(stacks).filter(|(passes, _)| **passes);
            all.for_each(|(passes, &stack)| *passes = begins_with(dictionary, stack, &self.call_site));
        }
        passing
    }
}

/// Returns true if the functions of a stack, from the root on, begin with these. A frame without symbols
/// matches its address or its binary. In the second case consecutive frames of one binary count as one, as in
/// trees.
fn begins_with(dictionary: &Dictionary, stack: u32, call_site: &[String]) -> bool {
    let symbols = &dictionary.symbols;
    let path: Vec<u32> = dictionary.stacks.locations(stack).collect();
    let mut wanted = call_site.iter();
    let mut last_binary = None;
    for &location in path.iter().rev() {
        let lines = symbols.lines(location);
        let binary = lines.is_empty().then(|| symbols.binary_name(location));
        if binary.is_some() && binary == last_binary {
            continue;
        }
        last_binary = None;
        if let Some(binary) = binary {
            match wanted.next() {
                Some(name) if *name == binary => last_binary = Some(binary),
                Some(name) if *name == symbols.address_name(location) => {}
                Some(_) => return false,
                None => return true,
            }
            continue;
        }
        for line in lines.iter().rev() {
            match wanted.next() {
                Some(name) if name != symbols.function_name(line.function) => return false,
                Some(_) => {}
                None => return true,
            }
        }
    }
    wanted.next().is_none()
}

impl GoPgoOptions {
    /// Interns the reshaped form of a stack of another dictionary in `into`.
    pub(crate) fn reshape_stack(self, from: &Dictionary, stack: u32, into: &mut Dictionary) -> u32 {
        let keep = match self.keep_locations {
            0 => usize::MAX,
            count => count as usize,
        };
        let mut path: Vec<u32> = from.stacks.locations(stack).take(keep).collect();
        let leaf = path.first().copied();
        let symbols = &mut into.symbols;
        for location in &mut path {
            // A function that recurses from one line has the location of its leaf several times.
            let is_leaf = self.aggregate_callees && leaf == Some(*location);
            *location = match is_leaf {
                true => without_line(symbols, &from.symbols, *location),
                false => symbols.adopt_location(&from.symbols, *location),
            };
        }
        into.stacks.intern(&into.symbols, &path)
    }
}

/// Interns a location of another dictionary without the line of its innermost function and without its
/// address. A location without a function is unchanged.
fn without_line(symbols: &mut SymbolTable, from: &SymbolTable, location: u32) -> u32 {
    let mut lines: Vec<Line> = from.lines(location).to_vec();
    let Some(innermost) = lines.first_mut() else { return symbols.adopt_location(from, location) };
    (innermost.line, innermost.column) = (0, 0);
    lines.iter_mut().for_each(|line| line.function = symbols.adopt_function(from, line.function));
    let of = from.locations()[location as usize];
    let mapping = match from.mappings().get(of.mapping as usize) {
        Some(_) => symbols.adopt_mapping(from, of.mapping),
        None => of.mapping,
    };
    symbols.intern_location(mapping, 0, of.folded, &lines)
}

#[cfg(test)]
mod tests {
    use athanor_profile::data_model::symbols::{Function, Mapping};

    use super::*;

    /// A location whose calls are `function:line`, the outermost first.
    fn location(dictionary: &mut Dictionary, address: u64, calls: &[(&str, i64)]) -> u32 {
        let symbols = &mut dictionary.symbols;
        let filename = symbols.strings.intern("/bin/x");
        let (start, size) = (4096, 1 << 20);
        let mapping =
            symbols.intern_mapping(Mapping { start, size, offset: 0, filename, build_id: 0, flags: 1 });
        let mut lines = Vec::new();
        for &(name, line) in calls.iter().rev() {
            let name = symbols.strings.intern(name);
            let function =
                symbols.intern_function(Function { name, system_name: name, filename: 0, start_line: 0 });
            lines.push(Line { function, line, column: 1 });
        }
        symbols.intern_location(mapping, address, false, &lines)
    }

    fn shown(dictionary: &Dictionary, stack: u32) -> String {
        let symbols = &dictionary.symbols;
        let one = |location: u32| {
            let lines = symbols.lines(location).iter().rev();
            let lines = lines.map(|line| format!("{}:{}", symbols.function_name(line.function), line.line));
            let lines = lines.collect::<Vec<_>>().join("+");
            if lines.is_empty() { symbols.address_name(location) } else { lines }
        };
        let mut path: Vec<String> = dictionary.stacks.locations(stack).map(one).collect();
        path.reverse();
        path.join(";")
    }

    #[test]
    fn stacks_are_shaped_for_the_go_compiler() {
        let mut from = Dictionary::default();
        let main = location(&mut from, 1, &[("main", 10)]);
        let walk = location(&mut from, 2, &[("walk", 9)]);
        let inlined = location(&mut from, 3, &[("handle", 50), ("inc", 9)]);
        let unnamed = location(&mut from, 0x77, &[]);
        let leaf_first = [&[walk, walk, main][..], &[inlined, walk, main], &[unnamed, main], &[]];
        let stacks = leaf_first.map(|path| from.stacks.intern(&from.symbols, path));
        let shape = |keep_locations, aggregate_callees| {
            let mut into = Dictionary::default();
            let pgo = GoPgoOptions { keep_locations, aggregate_callees };
            stacks.map(|stack| {
                let shape = pgo.reshape_stack(&from, stack, &mut into);
                shown(&into, shape)
            })
        };
        let whole = ["main:10;walk:9;walk:9", "main:10;walk:9;handle:50+inc:9", "main:10;/bin/x+0x77", ""];
        let unnamed = whole[2].rsplit(';').next().unwrap();
        assert_eq!(shape(0, false)[..2], whole[..2]);
        assert_eq!(shape(2, false)[..2], ["walk:9;walk:9", "walk:9;handle:50+inc:9"]);
        assert_eq!(shape(9, true)[..2], ["main:10;walk:0;walk:0", "main:10;walk:9;handle:50+inc:0"]);
        assert_eq!(shape(1, true)[..2], ["walk:0", "handle:50+inc:0"]);
        assert_eq!(shape(1, true)[2], shown(&from, stacks[2]).rsplit(';').next().unwrap());
        assert!(unnamed.contains("0x77") && shape(1, true)[3].is_empty());
    }

    /// A call site is a path of a tree: frames of one binary that have no names are one there.
    #[test]
    fn call_site_names_binaries_as_trees_do() {
        let mut from = Dictionary::default();
        let [main, one, two] = [&[("main", 1)][..], &[], &[]]
            .map(|calls| calls.to_vec())
            .map(|calls| location(&mut from, calls.len() as u64, &calls));
        let other = location(&mut from, 0x99, &[]);
        assert_eq!(one, two);
        let stack = from.stacks.intern(&from.symbols, &[main, one, other, main]);
        let begins = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            begins_with(&from, stack, &names)
        };
        assert!(begins(&["main", "x", "main"]) && begins(&["main", "x"]));
        assert!(begins(&["main", "x+0x99", "x+0x0", "main"]));
        assert!(!begins(&["main", "x", "x"]) && !begins(&["main", "y"]));
    }

    #[test]
    fn what_differs_only_by_the_address_of_its_leaf_becomes_one() {
        let mut from = Dictionary::default();
        let leaves = [1, 2].map(|address| location(&mut from, address, &[("f", address as i64)]));
        let stacks = leaves.map(|leaf| from.stacks.intern(&from.symbols, &[leaf]));
        let mut into = Dictionary::default();
        let pgo = GoPgoOptions { keep_locations: 0, aggregate_callees: true };
        let [one, other] = stacks.map(|stack| pgo.reshape_stack(&from, stack, &mut into));
        assert_eq!(one, other);
    }
}
