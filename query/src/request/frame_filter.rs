//! Filters of frames: functions that a stack must or must not contain.

use athanor_chassis::code::{ErrorCode, ErrorCodeExt};
use athanor_profile::Dictionary;
use athanor_profile::data_model::symbols::NO_ENTRY;
use athanor_profile::labeling::pattern::{self, PatternError, position_text};
use regex::Regex;

use crate::request::selector_parser::{MAX_REGEXES, MAX_SELECTOR_BYTES};

/// Maximum number of included names and regular expressions. Each uses one bit of a mark.
const MAX_INCLUDED_PATTERNS: usize = 63;
/// Maximum number of excluded names and regular expressions.
const MAX_EXCLUDED_PATTERNS: usize = 256;
/// Mark of an excluded frame.
const EXCLUDED_FRAME_MARK: u64 = 1 << 63;

/// Filter of stacks by their frames. Each included pattern must match a frame, and no excluded pattern may
/// match any.
#[derive(Clone, Debug, Default)]
pub struct FrameFilter {
    included: FramePatterns,
    excluded: FramePatterns,
    included_regexes: Vec<Regex>,
    excluded_regexes: Vec<Regex>,
}

/// Patterns of function names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FramePatterns {
    /// Exact function names.
    pub names: Vec<String>,
    /// Regular expressions, which may match a part of a name.
    pub regexes: Vec<String>,
}

/// Reasons why a filter is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameFilterError {
    /// The filter has too many patterns.
    #[error(
        "frame filter {what} {seen} names and expressions, the limit is {limit}; join them in one expression"
    )]
    TooMany {
        /// Verb of the side: includes or excludes.
        what: &'static str,
        /// Number of patterns in the filter.
        seen: usize,
        /// Maximum number of patterns.
        limit: usize,
    },
    /// The patterns have too many bytes.
    #[error(
        "names and expressions of the frame filter have {seen} bytes, the limit is {MAX_SELECTOR_BYTES}; write fewer or shorter ones"
    )]
    TooLong {
        /// Number of bytes in the filter.
        seen: usize,
    },
    /// The filter has too many regular expressions.
    #[error("frame filter has {seen} regular expressions, the limit is {MAX_REGEXES}; join them in one")]
    TooManyRegexes {
        /// Number of regular expressions in the filter.
        seen: usize,
    },
    /// A regular expression does not compile.
    #[error("regular expression {pattern:?}{} of the frame filter: {why}", position_text(*.position))]
    Regex {
        /// Text of the regular expression.
        pattern: String,
        /// Character at which the error was detected, counted from 1, if it is known.
        position: Option<usize>,
        /// Error of the compiler.
        why: String,
    },
}

impl ErrorCodeExt for FrameFilterError {
    fn code(&self) -> ErrorCode {
        ErrorCode::Invalid
    }
}

impl PartialEq for FrameFilter {
    fn eq(&self, other: &Self) -> bool {
        self.included == other.included && self.excluded == other.excluded
    }
}

impl FramePatterns {
    fn len(&self) -> usize {
        self.names.len() + self.regexes.len()
    }
    fn bytes(&self) -> usize {
        self.names.iter().chain(&self.regexes).map(String::len).sum()
    }
}

impl FrameFilter {
    /// Compiles a filter, after checking its size.
    pub fn new(included: FramePatterns, excluded: FramePatterns) -> Result<Self, FrameFilterError> {
        let sides =
            [("includes", &included, MAX_INCLUDED_PATTERNS), ("excludes", &excluded, MAX_EXCLUDED_PATTERNS)];
        if let Some((what, side, limit)) = sides.into_iter().find(|(_, side, limit)| side.len() > *limit) {
            return Err(FrameFilterError::TooMany { what, seen: side.len(), limit });
        }
        let seen = included.bytes().saturating_add(excluded.bytes());
        if seen > MAX_SELECTOR_BYTES {
            return Err(FrameFilterError::TooLong { seen });
        }
        let seen = included.regexes.len() + excluded.regexes.len();
        if seen > MAX_REGEXES {
            return Err(FrameFilterError::TooManyRegexes { seen });
        }
        let compile = |pattern: &String| {
            let refused = |PatternError { position, why }| FrameFilterError::Regex {
                pattern: pattern.clone(),
                position,
                why,
            };
            pattern::compile_partial_match(pattern).map_err(refused)
        };
        let compiled = |side: &FramePatterns| side.regexes.iter().map(compile).collect::<Result<Vec<_>, _>>();
        let included_regexes = compiled(&included)?;
        let excluded_regexes = compiled(&excluded)?;
        Ok(FrameFilter { included, excluded, included_regexes, excluded_regexes })
    }

    /// Returns true if every stack passes.
    pub fn is_empty(&self) -> bool {
        self.included.len() + self.excluded.len() == 0
    }
    /// Returns the patterns that must match.
    pub fn included(&self) -> &FramePatterns {
        &self.included
    }
    /// Returns the patterns that must not match.
    pub fn excluded(&self) -> &FramePatterns {
        &self.excluded
    }

    /// Returns the mark of a frame: one bit for each included pattern that matches, or the bit of excluded
    /// frames.
    fn mark(&self, name: &str) -> u64 {
        let is_it = |wanted: &String| wanted == name;
        let matches = |regex: &Regex| regex.is_match(name);
        let exclude = &self.excluded;
        if exclude.names.iter().any(is_it) || self.excluded_regexes.iter().any(matches) {
            return EXCLUDED_FRAME_MARK;
        }
        let names = self.included.names.iter().map(is_it);
        let all = names.chain(self.included_regexes.iter().map(matches));
        all.enumerate().fold(0, |mark, (place, found)| mark | u64::from(found) << place)
    }

    /// Returns a flag per stack: true if it passes. Each name and each stack node is examined once.
    pub(crate) fn find_passing_stacks(&self, dictionary: &Dictionary, stacks: &[u32]) -> Vec<bool> {
        let symbols = &dictionary.symbols;
        let functions = 0..symbols.functions().len() as u32;
        let of_functions: Vec<u64> =
            functions.map(|function| self.mark(symbols.function_name(function))).collect();
        let of_location = |location: u32| match symbols.lines(location) {
            [] => self.mark(&symbols.address_name(location)) | self.mark(&symbols.binary_name(location)),
            lines => lines.iter().fold(0, |mark, line| mark | of_functions[line.function as usize]),
        };
        let of_locations: Vec<u64> = (0..symbols.locations().len() as u32).map(of_location).collect();
        let mut of_nodes: Vec<u64> = Vec::with_capacity(dictionary.stacks.nodes().len());
        for node in dictionary.stacks.nodes() {
            let above = of_nodes.get(node.parent as usize).copied().unwrap_or_default();
            of_nodes.push(above | of_locations[node.location as usize]);
        }
        let wanted = (1u64 << self.included.len()) - 1;
        let passes = |&stack: &u32| match dictionary.stacks.leaf(stack) {
            NO_ENTRY => wanted == 0,
            leaf => of_nodes[leaf as usize] == wanted,
        };
        stacks.iter().map(passes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str], regexes: &[&str]) -> FramePatterns {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        FramePatterns { names: owned(names), regexes: owned(regexes) }
    }

    fn passed(included: FramePatterns, excluded: FramePatterns) -> Vec<&'static str> {
        let paths = ["main;serve;parse", "main;serve;db.Query", "main;gc", "parse", ""];
        let mut dictionary = Dictionary::default();
        let stack =
            |path: &&str| dictionary.intern_named_stack(path.split(';').filter(|name| !name.is_empty()));
        let stacks: Vec<u32> = paths.iter().map(stack).collect();
        let filter = FrameFilter::new(included, excluded).unwrap();
        let passing = filter.find_passing_stacks(&dictionary, &stacks);
        paths.into_iter().zip(passing).filter(|(_, passes)| *passes).map(|(path, _)| path).collect()
    }

    #[test]
    fn all_that_is_included_must_be_there_and_nothing_that_is_excluded() {
        let none = FramePatterns::default;
        assert_eq!(passed(none(), none()).len(), 5);
        assert_eq!(passed(names(&["parse"], &[]), none()), ["main;serve;parse", "parse"]);
        assert_eq!(passed(names(&["parse", "main"], &[]), none()), ["main;serve;parse"]);
        assert_eq!(passed(names(&["Query"], &[]), none()), [""; 0], "names are whole");
        assert_eq!(passed(names(&[], &["Q.e", "^main$"]), none()), ["main;serve;db.Query"]);
        assert_eq!(passed(none(), names(&["serve"], &["^p"])), ["main;gc", ""]);
        assert_eq!(passed(names(&["main"], &[]), names(&[], &["a.+e"])), ["main;serve;db.Query", "main;gc"]);
        assert_eq!(passed(names(&["main", "main"], &[]), names(&["main"], &[])), [""; 0]);
        let many: Vec<&str> = std::iter::repeat_n("main", MAX_INCLUDED_PATTERNS).collect();
        assert_eq!(passed(names(&many, &[]), none()).len(), 3);
    }

    #[test]
    fn what_is_too_much_or_no_expression_is_refused() {
        let refused = |included, excluded| FrameFilter::new(included, excluded).unwrap_err().to_string();
        let many: Vec<&str> = std::iter::repeat_n("a", MAX_EXCLUDED_PATTERNS + 1).collect();
        let none = FramePatterns::default;
        assert!(refused(names(&many[..64], &[]), none()).contains("includes 64 names"));
        assert!(refused(none(), names(&many, &[])).contains("excludes 257 names"));
        assert!(refused(none(), names(&[], &many[..33])).contains("33 regular expressions, the limit is 32"));
        let half = "a".repeat(MAX_SELECTOR_BYTES / 2);
        assert!(FrameFilter::new(names(&[&half], &[]), names(&[&half], &[])).is_ok());
        let long = refused(names(&[&half], &[]), names(&[&half], &["b"]));
        assert!(long.contains("have 65537 bytes, the limit is 65536"), "{long}");
        assert!(
            refused(names(&[], &["a("]), none())
                .starts_with("regular expression \"a(\" at character 2 of the frame filter: ")
        );
    }
}
