//! What went wrong, reduced to a code and a sentence that names the file.

use std::error::Error;
use std::io;
use std::path::Path;

use athanor_chassis::code::{EXIT_USAGE, ErrorCodeExt};
use athanor_chassis::{ErrorCode, Status};

/// The message of an output that nobody reads any more; `main` ends quietly on it.
const BROKEN_PIPE_MESSAGE: &str = "the output was closed";

/// What marks errors of the command line and of settings, whose exit code is 64 and not that of bad data.
const USAGE_MARKER: &str = "usage";

/// Settings that cannot be used.
pub fn settings_error<E: ErrorCodeExt + Error>(error: &E) -> Status {
    match Status::from_error(error) {
        status if status.code == ErrorCode::Invalid => status.with_reason(USAGE_MARKER),
        status => status,
    }
}

/// With what a process ends.
pub fn exit_code(status: &Status) -> u8 {
    if status.reason == Some(USAGE_MARKER) { EXIT_USAGE } else { status.code.exit_code() }
}

/// What a failed write to standard output means.
pub fn output_error(error: io::Error) -> Status {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Status::new(ErrorCode::Cancelled, BROKEN_PIPE_MESSAGE),
        _ => Status::new(ErrorCode::Unavailable, format!("standard output: {error}")),
    }
}

/// Whether the reader of our output left.
pub fn is_broken_pipe(status: &Status) -> bool {
    status.code == ErrorCode::Cancelled && status.message == BROKEN_PIPE_MESSAGE
}

/// A file that cannot be read or written.
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

/// An error about a file. A damaged one is bad input to a command, no loss of a server's: its code is 65.
pub fn file_error<E: ErrorCodeExt + Error>(path: &Path, error: &E) -> Status {
    let status = Status::from_error(error);
    let code = if status.code == ErrorCode::DataLoss { ErrorCode::Invalid } else { status.code };
    Status::new(code, format!("{}: {}", path.display(), status.message))
}

/// A file that does not hold what it should.
pub fn invalid_file(path: &Path, error: impl std::fmt::Display) -> Status {
    Status::new(ErrorCode::Invalid, format!("{}: {error}", path.display()))
}
