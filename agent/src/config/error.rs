//! Errors of a configuration, with their positions in the file.

use std::fmt;
use std::path::PathBuf;

use athanor_chassis::{ErrorCode, ErrorCodeExt};

/// Maximum characters of a value that a message shows.
const MAX_SHOWN_CHARACTERS: usize = 100;

/// Position in a text. Lines and columns count from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Line number.
    pub line: u64,
    /// Column number, in characters.
    pub column: u64,
}

/// Error at a position of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigError {
    /// Position of the setting.
    pub position: Position,
    /// Reason and way out.
    pub message: String,
}

/// All errors of a configuration, in order of their positions. Displays one `file:line:column: message` per
/// line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors {
    /// Path of the configuration file.
    pub file: PathBuf,
    /// At least one error.
    pub errors: Vec<ConfigError>,
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, ConfigError { position, message }) in self.errors.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            let Position { line, column } = position;
            write!(f, "{end}{}:{line}:{column}: {message}", self.file.display())?;
        }
        Ok(())
    }
}

impl ErrorCodeExt for ConfigErrors {
    fn code(&self) -> ErrorCode {
        ErrorCode::Invalid
    }
}

/// Returns the beginning of a text.
pub(super) fn shorten(text: &str) -> String {
    text.chars().take(MAX_SHOWN_CHARACTERS).collect()
}
