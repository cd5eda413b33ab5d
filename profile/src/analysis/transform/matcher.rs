//! Compiled patterns, and the frames of a dictionary that they match.

use std::collections::HashMap;

use regex::Regex;

use super::definition::{
    FramePattern, MAX_TRANSFORM_BYTES, MAX_TRANSFORMS, StackTransform, TransformAction, TransformError,
};
use crate::data_model::model::Dictionary;
use crate::data_model::symbols::NO_ENTRY;
use crate::labeling::pattern::{self, PatternError};

/// Ordered list of transforms with valid patterns.
#[derive(Clone, Debug, Default)]
pub struct StackTransforms {
    transforms: Vec<StackTransform>,
    /// Expression of each transform that has one.
    regexes: Vec<Option<Regex>>,
}

impl PartialEq for StackTransforms {
    fn eq(&self, other: &Self) -> bool {
        self.transforms == other.transforms
    }
}

impl StackTransforms {
    /// Compiles a list, after checking its size.
    pub fn new(transforms: Vec<StackTransform>) -> Result<Self, TransformError> {
        if transforms.len() > MAX_TRANSFORMS {
            return Err(TransformError::TooMany { seen: transforms.len() });
        }
        let seen = transforms.iter().map(|transform| transform.pattern.byte_count()).sum();
        if seen > MAX_TRANSFORM_BYTES {
            return Err(TransformError::TooLong { seen });
        }
        let numbered = (1..).zip(&transforms);
        let regexes =
            numbered.map(|(number, transform)| compile(number, transform)).collect::<Result<_, _>>()?;
        Ok(StackTransforms { transforms, regexes })
    }

    /// Returns true if stacks stay as they are.
    pub fn is_empty(&self) -> bool {
        self.transforms.is_empty()
    }

    /// Returns the transforms in their order.
    pub fn transforms(&self) -> &[StackTransform] {
        &self.transforms
    }

    /// Returns the regular expression of a transform, if it has one.
    pub(super) fn regex(&self, index: usize) -> Option<&Regex> {
        self.regexes[index].as_ref()
    }
}

fn compile(number: usize, transform: &StackTransform) -> Result<Option<Regex>, TransformError> {
    let StackTransform { action, pattern } = transform;
    match pattern {
        FramePattern::AnyFrame if *action != TransformAction::CollapseRecursion => {
            Err(TransformError::NoPattern { number, action: *action })
        }
        FramePattern::AnyFrame | FramePattern::ExactName(_) => Ok(None),
        FramePattern::Regex(text) => {
            let refused = |PatternError { position, why }| TransformError::Regex {
                number,
                action: *action,
                pattern: text.clone(),
                position,
                why,
            };
            pattern::compile_partial_match(text).map(Some).map_err(refused)
        }
    }
}

/// Frame of a stack: a line of a location, or a location without lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StackFrame {
    /// Index of the location in the stack. Inlined lines of one location have the same.
    pub(super) place: u32,
    /// Location in the dictionary.
    pub(super) location: u32,
    /// Index in the lines of the location, or [`NO_ENTRY`] if it has none.
    pub(super) line: u32,
}

/// Result of a comparison, once it is known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KnownMatch {
    Unknown,
    No,
    Yes,
}

impl KnownMatch {
    /// Returns the known result, or computes it.
    fn or_compute(&mut self, compute: impl FnOnce() -> bool) -> bool {
        if *self == KnownMatch::Unknown {
            *self = if compute() { KnownMatch::Yes } else { KnownMatch::No };
        }
        *self == KnownMatch::Yes
    }
}

/// Pattern of one transform in one dictionary. Each text is compared once.
pub(super) enum FrameMatcher<'a> {
    /// Every frame matches.
    AnyFrame,
    /// Function names have one string id. Locations without lines are compared by text.
    ExactName { name: &'a str, string: Option<u32>, unnamed_locations: HashMap<u32, bool> },
    /// Texts of the dictionary, by string id.
    Regex { regex: &'a Regex, strings: Vec<KnownMatch> },
}

impl<'a> FrameMatcher<'a> {
    /// Creates the matcher of the transform at an index of a list.
    pub(super) fn new(transforms: &'a StackTransforms, index: usize, dictionary: &Dictionary) -> Self {
        let strings = &dictionary.symbols.strings;
        match (&transforms.transforms()[index].pattern, transforms.regex(index)) {
            (_, Some(regex)) => {
                FrameMatcher::Regex { regex, strings: vec![KnownMatch::Unknown; strings.len()] }
            }
            (FramePattern::ExactName(name), None) => FrameMatcher::ExactName {
                name,
                string: strings.find(name),
                unnamed_locations: HashMap::new(),
            },
            (FramePattern::AnyFrame | FramePattern::Regex(_), None) => FrameMatcher::AnyFrame,
        }
    }

    /// Returns true if all frames that match have the same name.
    pub(super) fn is_exact_name(&self) -> bool {
        matches!(self, FrameMatcher::ExactName { .. })
    }

    /// Returns true if the pattern matches a frame.
    pub(super) fn matches_frame(&mut self, dictionary: &Dictionary, frame: StackFrame) -> bool {
        let symbols = &dictionary.symbols;
        match self {
            FrameMatcher::AnyFrame => true,
            FrameMatcher::ExactName { name, string, unnamed_locations } => match frame.line {
                NO_ENTRY => *unnamed_locations.entry(frame.location).or_insert_with(|| {
                    symbols.address_name(frame.location) == *name
                        || symbols.binary_name(frame.location) == *name
                }),
                line => {
                    let function = symbols.lines(frame.location)[line as usize].function;
                    *string == Some(symbols.functions()[function as usize].name)
                }
            },
            FrameMatcher::Regex { regex, strings } => {
                let mut matches_text = |string: u32| {
                    strings[string as usize].or_compute(|| regex.is_match(symbols.strings.get(string)))
                };
                let mapping = symbols.locations()[frame.location as usize].mapping;
                let mapping = symbols.mappings().get(mapping as usize);
                if mapping.is_some_and(|mapping| matches_text(mapping.filename)) {
                    return true;
                }
                let Some(line) = symbols.lines(frame.location).get(frame.line as usize) else { return false };
                let function = symbols.functions()[line.function as usize];
                matches_text(function.name) || matches_text(function.filename)
            }
        }
    }

    /// Returns true if a transform that shows only matching frames keeps a frame. As in pprof, a regular expression
    /// keeps no frame without symbols, not even of a matching binary.
    pub(super) fn shows_frame(&mut self, dictionary: &Dictionary, frame: StackFrame) -> bool {
        let is_unnamed = frame.line == NO_ENTRY;
        let is_regex = matches!(self, FrameMatcher::Regex { .. });
        !(is_unnamed && is_regex) && self.matches_frame(dictionary, frame)
    }
}
