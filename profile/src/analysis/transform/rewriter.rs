//! Rewriter of the stacks of one dictionary.

use std::collections::HashMap;

use super::definition::TransformAction;
use super::matcher::{FrameMatcher, StackFrame, StackTransforms};
use crate::data_model::model::Dictionary;
use crate::data_model::stack_copier::StackCopier;
use crate::data_model::symbols::{Line, NO_ENTRY, StringTable, SymbolTable};

/// Rewriter of stacks. Each text of the dictionary is compared with each pattern at most once, then the cost of a stack
/// is linear in its frames.
pub struct StackRewriter<'a> {
    from: &'a Dictionary,
    steps: Vec<RewriteStep<'a>>,
    copier: StackCopier<'a>,
    names: FrameNames,
    /// Frames of the current stack, root first.
    frames: Vec<StackFrame>,
    /// Number of frames of the current stack before all transforms.
    original_frames: usize,
}

/// Transform with its pattern in the dictionary.
struct RewriteStep<'a> {
    action: TransformAction,
    matcher: FrameMatcher<'a>,
}

impl<'a> StackRewriter<'a> {
    /// Creates a rewriter of the stacks of a dictionary.
    pub fn new(transforms: &'a StackTransforms, from: &'a Dictionary) -> Self {
        let steps = transforms.transforms().iter().enumerate();
        let steps = steps.map(|(index, transform)| RewriteStep {
            action: transform.action,
            matcher: FrameMatcher::new(transforms, index, from),
        });
        StackRewriter {
            from,
            steps: steps.collect(),
            copier: StackCopier::new(from),
            names: FrameNames::default(),
            frames: Vec::new(),
            original_frames: 0,
        }
    }

    /// Returns true if there are no transforms, so that all stacks stay as they are.
    pub fn is_identity(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns true if a stack has frames after all transforms. Without transforms, every stack is kept.
    pub fn keeps_stack(&mut self, stack: u32) -> bool {
        if self.is_identity() {
            return true;
        }
        self.read_frames(stack);
        for step in &mut self.steps {
            if self.frames.is_empty() {
                return false;
            }
            step.apply(self.from, &mut self.names, &mut self.frames);
        }
        !self.frames.is_empty()
    }

    /// Interns the rewritten form of a stack in `into`, which is the same dictionary in all calls. Returns `None` if the
    /// stack is dropped.
    pub fn rewrite(&mut self, stack: u32, into: &mut Dictionary) -> Option<u32> {
        if !self.keeps_stack(stack) {
            return None;
        }
        // Transforms only remove frames.
        if self.is_identity() || self.frames.len() == self.original_frames {
            return Some(self.copier.copy_stack(stack, into));
        }
        let mut path = Vec::with_capacity(self.frames.len());
        for frames in self.frames.chunk_by(|left, right| left.place == right.place) {
            path.push(adopt_frames(&mut into.symbols, &self.from.symbols, frames));
        }
        path.reverse();
        Some(into.stacks.intern(&into.symbols, &path))
    }

    fn read_frames(&mut self, stack: u32) {
        self.frames.clear();
        // The leaf comes first here, and of its lines the innermost.
        for (place, location) in (0..).zip(self.from.stacks.locations(stack)) {
            let lines = self.from.symbols.lines(location).len() as u32;
            match lines {
                0 => self.frames.push(StackFrame { place, location, line: NO_ENTRY }),
                _ => self.frames.extend((0..lines).map(|line| StackFrame { place, location, line })),
            }
        }
        self.frames.reverse();
        self.original_frames = self.frames.len();
    }
}

impl RewriteStep<'_> {
    /// Applies the transform to the frames of a stack, root first. An empty list means that the stack is dropped.
    fn apply(&mut self, from: &Dictionary, names: &mut FrameNames, frames: &mut Vec<StackFrame>) {
        let RewriteStep { action, matcher } = self;
        let is_exact_name = matcher.is_exact_name();
        let mut matches = |frame: &StackFrame| matcher.matches_frame(from, *frame);
        match action {
            TransformAction::Focus => {
                if !frames.iter().any(matches) {
                    frames.clear();
                }
            }
            TransformAction::Ignore => {
                if frames.iter().any(matches) {
                    frames.clear();
                }
            }
            TransformAction::Hide => frames.retain(|frame| !matches(frame)),
            TransformAction::Show => frames.retain(|frame| matcher.shows_frame(from, *frame)),
            TransformAction::ShowFrom if is_exact_name => match frames.iter().position(matches) {
                Some(first) => drop(frames.drain(..first)),
                None => frames.clear(),
            },
            TransformAction::ShowFrom => show_from(frames, matches),
            TransformAction::CollapseBelow => {
                if let Some(first) = frames.iter().position(matches) {
                    frames.truncate(first + 1);
                }
            }
            TransformAction::CollapseRecursion if is_exact_name => collapse_name(frames, matches),
            TransformAction::CollapseRecursion => collapse_recursion(frames, from, names, matches),
        }
    }
}

/// Removes the callers of the frame nearest the root that a regular expression matches. As in pprof, every location
/// that matches also loses the lines outside of its outermost matching line.
fn show_from(frames: &mut Vec<StackFrame>, mut matches: impl FnMut(&StackFrame) -> bool) {
    let Some(first) = frames.iter().position(&mut matches) else { return frames.clear() };
    frames.drain(..first);
    let mut remaining = Vec::with_capacity(frames.len());
    for of_location in frames.chunk_by(|left, right| left.place == right.place) {
        let outermost = of_location.iter().position(&mut matches).unwrap_or_default();
        remaining.extend_from_slice(&of_location[outermost..]);
    }
    *frames = remaining;
}

/// Removes all frames from the first to before the last match.
fn collapse_name(frames: &mut Vec<StackFrame>, mut matches: impl FnMut(&StackFrame) -> bool) {
    let Some(first) = frames.iter().position(&mut matches) else { return };
    let last = frames.iter().rposition(&mut matches).unwrap_or(first);
    frames.drain(first..last);
}

/// Scans from the root. From each matching frame on, removes all before the last frame of the same name.
fn collapse_recursion(
    frames: &mut Vec<StackFrame>,
    from: &Dictionary,
    names: &mut FrameNames,
    mut matches: impl FnMut(&StackFrame) -> bool,
) {
    for (index, frame) in frames.iter().enumerate() {
        *names.last_index(&from.symbols, *frame) = index;
    }
    let mut length = 0;
    let mut next = 0;
    while next < frames.len() {
        if matches(&frames[next]) {
            next = *names.last_index(&from.symbols, frames[next]);
        }
        frames[length] = frames[next];
        length += 1;
        next += 1;
    }
    frames.truncate(length);
}

/// Interns a location of another dictionary with only some of its lines, root first.
fn adopt_frames(symbols: &mut SymbolTable, from: &SymbolTable, frames: &[StackFrame]) -> u32 {
    let location = frames[0].location;
    let all = from.lines(location);
    if all.is_empty() || all.len() == frames.len() {
        return symbols.adopt_location(from, location);
    }
    let mut adopted = |frame: &StackFrame| {
        let line = all[frame.line as usize];
        Line { function: symbols.adopt_function(from, line.function), ..line }
    };
    let lines: Vec<Line> = frames.iter().rev().map(&mut adopted).collect();
    let entry = from.locations()[location as usize];
    let mapping = match entry.mapping {
        NO_ENTRY => NO_ENTRY,
        mapping => symbols.adopt_mapping(from, mapping),
    };
    symbols.intern_location(mapping, entry.address, entry.folded, &lines)
}

/// Last index of each name in the current stack. A frame without symbols has the name of its address.
#[derive(Default)]
struct FrameNames {
    functions: Vec<usize>,
    addresses: Vec<usize>,
    address_names: StringTable,
    address_of_location: HashMap<u32, u32>,
}

impl FrameNames {
    /// Returns the last index of the frame's name. Indexes of names outside of the current stack are of earlier ones.
    fn last_index(&mut self, symbols: &SymbolTable, frame: StackFrame) -> &mut usize {
        let (entries, name) = match symbols.lines(frame.location).get(frame.line as usize) {
            Some(line) => (&mut self.functions, symbols.functions()[line.function as usize].name),
            None => {
                let names = &mut self.address_names;
                let intern = || names.intern(&symbols.address_name(frame.location));
                let name = *self.address_of_location.entry(frame.location).or_insert_with(intern);
                (&mut self.addresses, name)
            }
        };
        let name = name as usize;
        if entries.len() <= name {
            entries.resize(name + 1, 0);
        }
        &mut entries[name]
    }
}
