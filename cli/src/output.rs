//! Standard output of commands: colors, width, text, JSON, and files written atomically.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use athanor_chassis::{Status, Timestamp};
use athanor_profile::ValueType;
pub use athanor_profile::render::printable::escape_control as harmless;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::args::{ColorMode, OutputArgs};
use crate::failure;

/// Width in characters if neither the environment nor the arguments set one.
const DEFAULT_WIDTH: usize = 100;

/// Format of command output.
pub struct ConsoleOutput {
    /// True if the output is colored.
    pub color: bool,
    /// True if a log on a terminal may be colored.
    pub log_colors: bool,
    /// True if the output is JSON.
    pub json: bool,
    /// Width of a line in characters.
    pub width: usize,
}

/// Formats a value type, such as `cpu/nanoseconds`.
pub fn type_name(value: &ValueType) -> String {
    format!("{}/{}", value.kind, value.unit)
}

impl ConsoleOutput {
    /// Derives the format from arguments, environment and terminal.
    pub fn new(shown: &OutputArgs) -> Self {
        let unasked = shown.no_color.as_deref().unwrap_or_default().is_empty();
        let (color, log_colors) = match shown.color {
            ColorMode::Always => (true, true),
            ColorMode::Never => (false, false),
            ColorMode::Auto => (io::stdout().is_terminal() && unasked, unasked),
        };
        let columns = || shown.columns.as_ref().and_then(|columns| columns.trim().parse().ok());
        let asked = shown.width.or_else(columns);
        let terminal = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
        let width = asked.or(terminal).unwrap_or(DEFAULT_WIDTH).clamp(20, 1000);
        ConsoleOutput { color, log_colors, json: shown.json, width }
    }

    /// Prints text to standard output.
    pub fn text(&self, text: &str) -> Result<(), Status> {
        self.bytes(text.as_bytes())
    }

    /// Prints raw bytes to standard output.
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), Status> {
        let mut out = io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush()).map_err(failure::output_error)
    }

    /// Prints a JSON document.
    pub fn json(&self, value: &Value) -> Result<(), Status> {
        self.text(&format!("{value:#}\n"))
    }

    /// Prints the JSON document or the text, as the arguments request.
    pub fn print_json_or_text(
        &self,
        value: impl FnOnce() -> Value,
        text: impl FnOnce() -> String,
    ) -> Result<(), Status> {
        if self.json { self.json(&value()) } else { self.text(&text()) }
    }

    /// Writes a result to a file and, in JSON mode, prints a summary. A result on standard output gets no
    /// summary.
    pub fn write_result(&self, path: &Path, bytes: &[u8], samples: usize) -> Result<(), Status> {
        self.file(path, bytes)?;
        if !self.json || path.as_os_str() == "-" {
            return Ok(());
        }
        self.json(&json!({ "out": path.display().to_string(), "bytes": bytes.len(), "samples": samples }))
    }

    /// Writes a file atomically, or to standard output if the path is `-`.
    pub fn file(&self, path: &Path, bytes: &[u8]) -> Result<(), Status> {
        if path.as_os_str() == "-" {
            return self.bytes(bytes);
        }
        let mut file = PendingFile::create(path)?;
        let written = file.write_all(bytes);
        written.map_err(|error| failure::io_error(path, error))?;
        file.finish()
    }

    /// Formats text in bold if the output is colored.
    pub fn format_bold(&self, text: &str) -> String {
        if self.color { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// File that gets its name when it is complete. A special file, such as /dev/stdout, is written directly, and `-` is
/// standard output.
pub struct PendingFile {
    path: PathBuf,
    file: PendingFileKind,
}

enum PendingFileKind {
    Temporary(NamedTempFile),
    Special(File),
    Stdout(io::Stdout),
}

impl PendingFile {
    /// Creates a temporary file beside the path.
    pub fn create(path: &Path) -> Result<Self, Status> {
        if path.as_os_str() == "-" {
            return Ok(PendingFile { path: path.to_owned(), file: PendingFileKind::Stdout(io::stdout()) });
        }
        let failed = |error| failure::io_error(path, error);
        let is_special = fs::metadata(path).is_ok_and(|seen| !seen.is_file());
        let file = match is_special {
            true => PendingFileKind::Special(OpenOptions::new().write(true).open(path).map_err(failed)?),
            false => PendingFileKind::Temporary(create_temporary(path).map_err(failed)?),
        };
        Ok(PendingFile { path: path.to_owned(), file })
    }

    /// Gives a complete file its name.
    pub fn finish(self) -> Result<(), Status> {
        match self.file {
            PendingFileKind::Special(_) => Ok(()),
            PendingFileKind::Stdout(mut out) => out.flush().map_err(failure::output_error),
            PendingFileKind::Temporary(file) => {
                let named = file.persist(&self.path);
                named.map(|_| ()).map_err(|error| failure::io_error(&self.path, error.error))
            }
        }
    }
}

impl Write for PendingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.file {
            PendingFileKind::Temporary(file) => file.write(bytes),
            PendingFileKind::Special(file) => file.write(bytes),
            PendingFileKind::Stdout(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.file {
            PendingFileKind::Temporary(file) => file.flush(),
            PendingFileKind::Special(file) => file.flush(),
            PendingFileKind::Stdout(out) => out.flush(),
        }
    }
}

fn create_temporary(path: &Path) -> io::Result<NamedTempFile> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // The file gets the usual permissions. The default of temporary files permits only the owner.
    let permissions = fs::Permissions::from_mode(0o666);
    tempfile::Builder::new().prefix(".athanor-").permissions(permissions).tempfile_in(folder)
}

/// Formats a ratio as a percentage.
pub fn format_percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

/// Formats Unix nanoseconds as RFC 3339 in UTC.
pub fn format_rfc3339(nanos: i64) -> String {
    Timestamp::from_nanos(nanos).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_people_read_them() {
        assert_eq!(format_rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(format_rfc3339(1_709_210_096_789_000_000), "2024-02-29T12:34:56.789Z");
        assert_eq!(format_rfc3339(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(format_rfc3339(1_704_067_200_000_000_000), "2024-01-01T00:00:00.000Z");
    }
}
