//! Files of tables, whose format is that of their ending.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use athanor_arrow_format::{
    AppendedRows, ArrowStreamError, TABLE_FILE_ENDINGS, TableFileFormat, TableFileWriter,
};
use athanor_chassis::{ErrorCode, Status};
use serde_json::json;

use crate::failure;
use crate::output::{ConsoleOutput, PendingFile};

/// Returns the format of a file name.
pub fn format(out: &Path) -> Result<TableFileFormat, Status> {
    let known = out.file_name().and_then(|name| TableFileFormat::from_file_name(name.to_str()?));
    known.ok_or_else(|| {
        let why = format!("unknown format of this file name; end it with {TABLE_FILE_ENDINGS}");
        failure::invalid_file(out, why)
    })
}

/// File that is written stream by stream, and gets its name at the end.
pub struct TableOutput {
    path: PathBuf,
    writer: TableFileWriter<BufWriter<PendingFile>>,
    rows: u64,
}

impl TableOutput {
    /// Creates a file of a format.
    pub fn create(path: &Path, format: TableFileFormat) -> Result<Self, Status> {
        let file = BufWriter::new(PendingFile::create(path)?);
        Ok(TableOutput { path: path.to_owned(), writer: TableFileWriter::new(format, file), rows: 0 })
    }

    /// Appends the rows of an Arrow stream.
    pub fn append(&mut self, stream: &[u8]) -> Result<AppendedRows, Status> {
        let appended = self.writer.append_stream(stream).map_err(|error| table_error(&self.path, &error))?;
        self.rows += appended.count;
        Ok(appended)
    }

    /// Returns the number of rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Completes the file. In JSON mode, prints a summary.
    pub fn finish(self, output: &ConsoleOutput) -> Result<(), Status> {
        let TableOutput { path, writer, rows } = self;
        let mut file = writer.finish().map_err(|error| table_error(&path, &error))?;
        file.flush().map_err(|error| failure::io_error(&path, error))?;
        let file = file.into_inner().map_err(|error| failure::io_error(&path, error.into_error()))?;
        file.finish()?;
        match output.json && path.as_os_str() != "-" {
            true => output.json(&json!({ "out": path.display().to_string(), "rows": rows })),
            false => Ok(()),
        }
    }
}

/// Converts an error of a table's file.
pub fn table_error(path: &Path, error: &ArrowStreamError) -> Status {
    let code = match error {
        ArrowStreamError::Write(_) => ErrorCode::Unavailable,
        ArrowStreamError::TooManyStacks { .. } => ErrorCode::TooLarge,
        _ => ErrorCode::Invalid,
    };
    Status::new(code, format!("{}: {error}", path.display()))
}
