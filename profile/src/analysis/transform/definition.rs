//! Definition of transforms: actions, patterns, and errors.

use std::fmt;

use crate::labeling::pattern::position_text;

/// Maximum number of transforms of a list.
pub const MAX_TRANSFORMS: usize = 32;
/// Maximum bytes of all patterns of a list.
pub const MAX_TRANSFORM_BYTES: usize = 64 * 1024;

/// Action of a transform on a stack. Frames are functions, including inlined ones, and locations without symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransformAction {
    /// Keeps stacks with a matching frame.
    Focus,
    /// Drops stacks with a matching frame.
    Ignore,
    /// Removes matching frames.
    Hide,
    /// Keeps only matching frames.
    Show,
    /// Removes the callers of the matching frame nearest the root. Drops stacks without such a frame.
    ShowFrom,
    /// Removes all frames of a stack from the first occurrence of a matching function to before its last
    /// occurrence.
    CollapseRecursion,
    /// Removes all frames below the matching frame nearest the root.
    CollapseBelow,
}

/// Frames that a transform matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FramePattern {
    /// All frames.
    AnyFrame,
    /// Functions of this name, and frames without symbols of this address name or binary name.
    ExactName(String),
    /// Frames with a function name, a source file or a binary that a part of matches, as in pprof.
    Regex(String),
}

/// Transform of stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackTransform {
    /// Action on stacks.
    pub action: TransformAction,
    /// Frames that count.
    pub pattern: FramePattern,
}

/// Reasons why a list of transforms is invalid. Transforms are counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransformError {
    /// The list is too long.
    #[error(
        "query has {seen} transforms, the limit is {MAX_TRANSFORMS}; join patterns in one regular expression"
    )]
    TooMany {
        /// Number of transforms.
        seen: usize,
    },
    /// The patterns have too many bytes.
    #[error(
        "patterns of transforms have {seen} bytes, the limit is {MAX_TRANSFORM_BYTES}; write fewer or shorter ones"
    )]
    TooLong {
        /// Number of bytes of all patterns.
        seen: usize,
    },
    /// The action needs a pattern.
    #[error("transform {number} ({action}) has no pattern; set a name or a regular expression")]
    NoPattern {
        /// Number of the transform.
        number: usize,
        /// Action of the transform.
        action: TransformAction,
    },
    /// A regular expression does not compile.
    #[error("transform {number} ({action}): regular expression {pattern:?}{}: {why}", position_text(*.position))]
    Regex {
        /// Number of the transform.
        number: usize,
        /// Action of the transform.
        action: TransformAction,
        /// Text of the regular expression.
        pattern: String,
        /// Character at which the error was detected, counted from 1, if it is known.
        position: Option<usize>,
        /// Error of the compiler.
        why: String,
    },
    /// The value of a collapse option is invalid.
    #[error("collapse is {seen:?}; write recursion, recursion:PATTERN or below:PATTERN")]
    Collapse {
        /// Value of the option.
        seen: String,
    },
}

impl TransformAction {
    /// Returns the name of the action, as in the API.
    pub fn name(self) -> &'static str {
        match self {
            TransformAction::Focus => "focus",
            TransformAction::Ignore => "ignore",
            TransformAction::Hide => "hide",
            TransformAction::Show => "show",
            TransformAction::ShowFrom => "show_from",
            TransformAction::CollapseRecursion => "collapse_recursion",
            TransformAction::CollapseBelow => "collapse_below",
        }
    }
}

impl fmt::Display for TransformAction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FramePattern {
    /// Returns the bytes of the pattern.
    pub fn byte_count(&self) -> usize {
        match self {
            FramePattern::AnyFrame => 0,
            FramePattern::ExactName(text) | FramePattern::Regex(text) => text.len(),
        }
    }

    /// Parses the text of an option: `=NAME` is an exact name, any other text is a regular expression.
    pub fn parse_option(text: &str) -> FramePattern {
        match text.strip_prefix('=') {
            Some(name) => FramePattern::ExactName(name.to_owned()),
            None => FramePattern::Regex(text.to_owned()),
        }
    }
}

/// Names of the options of commands and URLs.
pub const TRANSFORM_OPTIONS: [&str; 6] = ["focus", "ignore", "hide", "show", "show_from", "collapse"];

impl StackTransform {
    /// Parses an option of a command or a URL. Returns `None` if no transform has that name.
    pub fn parse_option(name: &str, text: &str) -> Option<Result<StackTransform, TransformError>> {
        let action = match name {
            "focus" => TransformAction::Focus,
            "ignore" => TransformAction::Ignore,
            "hide" => TransformAction::Hide,
            "show" => TransformAction::Show,
            "show_from" => TransformAction::ShowFrom,
            "collapse" => return Some(Self::parse_collapse(text)),
            _ => return None,
        };
        Some(Ok(StackTransform { action, pattern: FramePattern::parse_option(text) }))
    }

    /// Returns the name and the text of the option that has this meaning.
    pub fn to_option(&self) -> (&'static str, String) {
        let pattern = match &self.pattern {
            FramePattern::AnyFrame => None,
            FramePattern::ExactName(name) => Some(format!("={name}")),
            FramePattern::Regex(regex) if regex.starts_with('=') => Some(format!("(?:){regex}")),
            FramePattern::Regex(regex) => Some(regex.clone()),
        };
        let rule = |name: &str| match &pattern {
            Some(pattern) => format!("{name}:{pattern}"),
            None => name.to_owned(),
        };
        match self.action {
            TransformAction::CollapseRecursion => ("collapse", rule("recursion")),
            TransformAction::CollapseBelow => ("collapse", rule("below")),
            action => (action.name(), pattern.unwrap_or_default()),
        }
    }

    fn parse_collapse(text: &str) -> Result<StackTransform, TransformError> {
        let (action, pattern) = match text.split_once(':') {
            None if text == "recursion" => (TransformAction::CollapseRecursion, FramePattern::AnyFrame),
            Some(("recursion", pattern)) => {
                (TransformAction::CollapseRecursion, FramePattern::parse_option(pattern))
            }
            Some(("below", pattern)) => (TransformAction::CollapseBelow, FramePattern::parse_option(pattern)),
            _ => return Err(TransformError::Collapse { seen: text.to_owned() }),
        };
        Ok(StackTransform { action, pattern })
    }
}
