//! Errors of commands: a code, and a message that names the file.

use std::error::Error;
use std::io;
use std::path::Path;

use athanor_chassis::code::{EXIT_USAGE, ErrorCodeExt};
use athanor_chassis::{ErrorCode, Status};

/// Message of the error for a closed output; `main` exits quietly on it.
const BROKEN_PIPE_MESSAGE: &str = "the output was closed";

/// Marks errors of the command line and of settings. Their exit code is 64, not that of bad data.
const USAGE_MARKER: &str = "usage";

/// Converts an error of the settings; an invalid one is marked as a usage error.
pub fn settings_error<E: ErrorCodeExt + Error>(error: &E) -> Status {
    match Status::from_error(error) {
        status if status.code == ErrorCode::Invalid => status.with_reason(USAGE_MARKER),
        status => status,
    }
}

/// Returns the exit code of the process for an error.
pub fn exit_code(status: &Status) -> u8 {
    if status.reason == Some(USAGE_MARKER) { EXIT_USAGE } else { status.code.exit_code() }
}

/// Converts a failed write to standard output.
pub fn output_error(error: io::Error) -> Status {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Status::new(ErrorCode::Cancelled, BROKEN_PIPE_MESSAGE),
        _ => Status::new(ErrorCode::Unavailable, format!("standard output: {error}")),
    }
}

/// Returns whether the reader of the output closed it.
pub fn is_broken_pipe(status: &Status) -> bool {
    status.code == ErrorCode::Cancelled && status.message == BROKEN_PIPE_MESSAGE
}

/// Converts an I/O error of a file.
pub fn io_error(path: &Path, error: io::Error) -> Status {
    let code = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => {
            ErrorCode::NotFound
        }
        io::ErrorKind::PermissionDenied => ErrorCode::PermissionDenied,
        io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty => ErrorCode::Conflict,
        _ => ErrorCode::Unavailable,
    };
    Status::new(code, format!("{}: {error}", path.display()))
}

/// Converts an error about a file's contents. Damage is invalid input to a command, not data loss of a
/// server: its exit code is 65.
pub fn file_error<E: ErrorCodeExt + Error>(path: &Path, error: &E) -> Status {
    let status = Status::from_error(error);
    let code = if status.code == ErrorCode::DataLoss { ErrorCode::Invalid } else { status.code };
    Status::new(code, format!("{}: {}", path.display(), status.message))
}

/// Returns the error for a file with unexpected contents.
pub fn invalid_file(path: &Path, error: impl std::fmt::Display) -> Status {
    Status::new(ErrorCode::Invalid, format!("{}: {error}", path.display()))
}
