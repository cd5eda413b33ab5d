//! What went wrong, reduced to a code and a sentence that names the file.

use std::error::Error;
use std::io;
use std::path::Path;

use athanor_chassis::code::{Coded, EXIT_USAGE};
use athanor_chassis::{Code, Status};

/// The message of an output that nobody reads any more; `main` ends quietly on it.
const BROKEN_PIPE: &str = "the output was closed";

/// What marks errors of the command line and of settings, whose exit code is 64 and not that of bad data.
const USAGE: &str = "usage";

/// Settings that cannot be used.
pub fn settings<E: Coded + Error>(error: &E) -> Status {
    match Status::of(error) {
        status if status.code == Code::Invalid => status.because(USAGE),
        status => status,
    }
}

/// With what a process ends.
pub fn exit(status: &Status) -> u8 {
    if status.reason == Some(USAGE) { EXIT_USAGE } else { status.code.exit() }
}

/// What a failed write to standard output means.
pub fn output(error: io::Error) -> Status {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Status::new(Code::Cancelled, BROKEN_PIPE),
        _ => Status::new(Code::Unavailable, format!("standard output: {error}")),
    }
}

/// Whether the reader of our output left.
pub fn is_broken_pipe(status: &Status) -> bool {
    status.code == Code::Cancelled && status.message == BROKEN_PIPE
}

/// A file that cannot be read or written.
pub fn io(path: &Path, error: io::Error) -> Status {
    let code = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => {
            Code::NotFound
        }
        io::ErrorKind::PermissionDenied => Code::PermissionDenied,
        io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty => Code::Conflict,
        _ => Code::Unavailable,
    };
    Status::new(code, format!("{}: {error}", path.display()))
}

/// An error about a file. A damaged one is bad input to a command, no loss of a server's: its code is 65.
pub fn of<E: Coded + Error>(path: &Path, error: &E) -> Status {
    let status = Status::of(error);
    let code = if status.code == Code::DataLoss { Code::Invalid } else { status.code };
    Status::new(code, format!("{}: {}", path.display(), status.message))
}

/// A file that does not hold what it should.
pub fn invalid(path: &Path, error: impl std::fmt::Display) -> Status {
    Status::new(Code::Invalid, format!("{}: {error}", path.display()))
}
