//! Synthetic program: functions in binaries, the calls between them, and the resulting stacks.

use std::collections::BTreeSet;

use super::random::{SeededRandom, pow};
use crate::data_model::model::Dictionary;
use crate::data_model::symbols::{Function, Line, Mapping};

const NAME_PARTS: &str = "server client handler encode decode batch flush read write merge cache index scan plan \
    route dispatch invoke process transform validate parse render compress hash lookup insert evict schedule \
    poll worker stream segment column predicate session token limiter balancer ingest query storage object \
    bucket memory allocator buffer arena iterator visitor builder factory context request response header \
    body frame packet socket epoll timer clock lock mutex channel queue ring shard replica leader follower \
    snapshot log entry commit apply state machine node cluster member gossip";

/// Function of the program.
#[derive(Clone, Debug)]
pub(super) struct ProgramFunction {
    pub name: String,
    pub file: String,
    pub binary: u32,
}

/// Frame of a stack: a function and the line of the call in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProgramFrame {
    pub function: u32,
    pub line: u32,
}

/// Synthetic program with its functions, binaries and stacks.
#[derive(Clone, Debug)]
pub(super) struct SyntheticProgram {
    pub functions: Vec<ProgramFunction>,
    /// File and build id of each binary.
    binaries: Vec<(String, String)>,
    /// Frames of each stack, leaf first. The stacks are in random order.
    pub stacks: Vec<Vec<ProgramFrame>>,
    /// Cumulative weights by popularity rank.
    popularity: Vec<f64>,
}

/// Generator of unique function names.
pub(super) struct FunctionNameGenerator {
    parts: Vec<&'static str>,
    seen: BTreeSet<String>,
}

fn title(part: &str) -> String {
    let (first, rest) = part.split_at(1);
    first.to_ascii_uppercase() + rest
}

impl FunctionNameGenerator {
    pub(super) fn new() -> Self {
        FunctionNameGenerator { parts: NAME_PARTS.split_whitespace().collect(), seen: BTreeSet::new() }
    }

    /// Returns functions in random binaries below `binaries`, the first ones more often.
    pub(super) fn functions(
        &mut self,
        random: &mut SeededRandom,
        count: usize,
        binaries: usize,
    ) -> Vec<ProgramFunction> {
        (0..count)
            .map(|at| {
                let name = self.name(random, at);
                let parts = &self.parts;
                let file =
                    format!("/src/{}/{}/{}.go", random.pick(parts), random.pick(parts), random.pick(parts));
                ProgramFunction { name, file, binary: random.squared(binaries) as u32 }
            })
            .collect()
    }

    /// Returns a unique name in the style of Go, Java and C++ in turn, 10 to 120 bytes long.
    fn name(&mut self, random: &mut SeededRandom, at: usize) -> String {
        let wanted = (10 + random.exponential(35.0) as usize).min(120);
        for attempt in 0.. {
            let mut part = || random.pick(&self.parts);
            let mut name = match at % 3 {
                0 => {
                    let host = part();
                    let repository = part();
                    let package = part();
                    let kind = title(part());
                    let method = title(part());
                    format!("github.com/{host}/{repository}/pkg/{package}.(*{kind}).{method}")
                }
                1 => {
                    let company = part();
                    let package = part();
                    let kind = title(part());
                    format!("com/{company}/{package}/{kind}{}.{}", title(part()), part())
                }
                _ => {
                    let space = part();
                    let outer = part();
                    let inner = part();
                    format!("std::{space}::{outer}<{inner}::{}>::{}", title(part()), part())
                }
            };
            while name.len() < wanted {
                name += &title(part());
            }
            name.truncate((wanted + 20).min(120));
            if attempt > 3 {
                name += &at.to_string();
            }
            if self.seen.insert(name.clone()) {
                return name;
            }
        }
        unreachable!("the number at its end tells the name from all others")
    }
}

impl SyntheticProgram {
    /// Creates a program with `stacks` distinct stacks over these functions.
    pub(super) fn grow(random: &mut SeededRandom, functions: Vec<ProgramFunction>, stacks: usize) -> Self {
        let callees: Vec<Vec<ProgramFrame>> = functions
            .iter()
            .map(|_| {
                let count = 1 + random.next_below(5);
                let callee = |random: &mut SeededRandom| ProgramFrame {
                    function: random.squared(functions.len()) as u32,
                    line: 17 + 31 * random.next_below(2) as u32,
                };
                (0..count).map(|_| callee(random)).collect()
            })
            .collect();
        let roots = functions.len().min(30);
        let mut seen = BTreeSet::new();
        let mut grown: Vec<Vec<ProgramFrame>> = Vec::with_capacity(stacks);
        while grown.len() < stacks {
            let Some(stack) = branch(random, &grown, &callees, roots) else { continue };
            if seen.insert(stack.clone()) {
                grown.push(stack);
            }
        }
        random.shuffle(&mut grown);
        for stack in &mut grown {
            stack.reverse();
        }
        let mut sum = 0.0;
        let weight = |rank: usize| 1.0 / pow((rank + 1) as f64, 0.9);
        let popularity = (0..stacks)
            .map(|rank| {
                sum += weight(rank);
                sum
            })
            .collect();
        let binaries = functions.iter().map(|code| code.binary + 1).max().unwrap_or_default();
        let binaries = (0..binaries).map(|binary| (binary_file(binary), binary_build_id(binary))).collect();
        SyntheticProgram { functions, binaries, stacks: grown, popularity }
    }

    /// Returns `count` distinct stacks in ascending order, drawn by a Zipf law. `stack_of` maps a rank to a
    /// stack.
    pub(super) fn draw(
        &self,
        random: &mut SeededRandom,
        count: usize,
        stack_of: impl Fn(usize) -> u32,
    ) -> Vec<u32> {
        let total = self.popularity.last().copied().unwrap_or_default();
        let mut drawn = vec![false; self.stacks.len()];
        let mut left = count.min(self.stacks.len());
        while left > 0 {
            let at = random.next_unit() * total;
            let rank = self.popularity.partition_point(|&sum| sum <= at).min(self.stacks.len() - 1);
            let place = &mut drawn[stack_of(rank) as usize];
            left -= usize::from(!*place);
            *place = true;
        }
        (0..).zip(drawn).filter_map(|(stack, drawn)| drawn.then_some(stack)).collect()
    }

    /// Returns the address of a frame.
    pub(super) fn address(&self, frame: ProgramFrame) -> u64 {
        let binary = u64::from(self.functions[frame.function as usize].binary);
        (binary << 24) + (u64::from(frame.function) << 10) + u64::from(frame.line)
    }

    /// Interns the mapping of a binary and returns its id.
    pub(super) fn mapping(&self, binary: u32, dictionary: &mut Dictionary) -> u32 {
        let strings = &mut dictionary.symbols.strings;
        let (filename, build_id) = &self.binaries[binary as usize];
        let filename = strings.intern(filename);
        let build_id = strings.intern(build_id);
        let start = u64::from(binary) << 24;
        let flags = 0b111;
        dictionary.symbols.intern_mapping(Mapping {
            start,
            size: 1 << 24,
            offset: 0,
            filename,
            build_id,
            flags,
        })
    }

    /// Interns a stack in a dictionary and returns its id.
    pub(super) fn intern(&self, stack: u32, dictionary: &mut Dictionary) -> u32 {
        let path: Vec<u32> = self.stacks[stack as usize]
            .iter()
            .map(|&frame| {
                let code = &self.functions[frame.function as usize];
                let name = dictionary.symbols.strings.intern(&code.name);
                let filename = dictionary.symbols.strings.intern(&code.file);
                let function = Function { name, system_name: name, filename, start_line: 0 };
                let line = Line {
                    function: dictionary.symbols.intern_function(function),
                    line: i64::from(frame.line),
                    column: 0,
                };
                let mapping = self.mapping(code.binary, dictionary);
                let address = self.address(frame) - (u64::from(code.binary) << 24);
                dictionary.symbols.intern_location(mapping, address, false, &[line])
            })
            .collect();
        dictionary.stacks.intern(&dictionary.symbols, &path)
    }
}

pub(super) fn binary_file(binary: u32) -> String {
    format!("/usr/lib/lib{binary:02}.so")
}

pub(super) fn binary_build_id(binary: u32) -> String {
    format!("{:040x}", u64::from(binary) * 7919 + 1)
}

/// Returns a new stack, root first. It shares the upper part of an earlier stack, as in call trees, and
/// continues randomly.
fn branch(
    random: &mut SeededRandom,
    grown: &[Vec<ProgramFrame>],
    callees: &[Vec<ProgramFrame>],
    roots: usize,
) -> Option<Vec<ProgramFrame>> {
    let mut depth = 1 + (random.normal() * 9.0 + 21.0).abs().min(63.0) as usize;
    let mut stack = match grown.len() {
        0 => vec![ProgramFrame { function: random.next_below(roots) as u32, line: 17 }],
        _ if random.next_bool(5) => {
            vec![ProgramFrame { function: random.next_below(roots) as u32, line: 17 }]
        }
        earlier => {
            let from = &grown[random.next_below(earlier)];
            let keep = 1 + (random.next_unit().sqrt() * (from.len() - 1) as f64) as usize;
            if depth <= keep {
                depth = keep + 1 + random.next_below(3);
            }
            if depth > 64 {
                return None;
            }
            from[..keep].to_vec()
        }
    };
    while stack.len() < depth {
        let list = &callees[stack.last()?.function as usize];
        let unit = random.next_unit();
        stack.push(list[(unit * unit.sqrt() * list.len() as f64) as usize]);
    }
    Some(stack)
}
