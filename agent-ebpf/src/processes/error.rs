//! Failures of reading a process.

use std::time::Duration;

use super::maps::{DeviceNumber, Mapping};

/// Reason why a process could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The process ended.
    #[error("process {pid} ended before {file} was read")]
    Ended {
        /// Process.
        pid: u32,
        /// File in its folder of `/proc`.
        file: &'static str,
    },
    /// The process id belongs to another process now.
    #[error("process {pid} started at {wanted_nanos} ns after boot is gone, its id has another process now")]
    Replaced {
        /// Process.
        pid: u32,
        /// Start that was requested.
        wanted_nanos: u64,
    },
    /// The kernel refused.
    #[error("failed to read {file} of process {pid}: {source}{}", hint(source))]
    Read {
        /// Process.
        pid: u32,
        /// File in its folder of `/proc`.
        file: &'static str,
        /// Error of the kernel.
        source: std::io::Error,
    },
    /// A file does not have its form.
    #[error(
        "{file} of process {pid} does not have the form of the kernel; is the folder of proc set to a procfs?"
    )]
    Malformed {
        /// Process.
        pid: u32,
        /// File in its folder of `/proc`.
        file: &'static str,
    },
    /// Reading took too long.
    #[error("{file} of process {pid} was not read within {} ms", .timeout.as_millis())]
    TimedOut {
        /// Process.
        pid: u32,
        /// File in its folder of `/proc`.
        file: &'static str,
        /// Limit.
        timeout: Duration,
    },
}

fn hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => "; the agent needs CAP_SYS_PTRACE",
        _ => "",
    }
}

/// Reason why the file of a mapping was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The mapping has no file.
    #[error("mapping at {start:#x} is anonymous memory and has no file")]
    Anonymous {
        /// Start of the mapping.
        start: u64,
    },
    /// The vdso is not that of processes of 64 bits.
    #[error("mapping at {start:#x} is the vdso of a process of 32 bits or one of its own, which is not read")]
    OtherVdso {
        /// Start of the mapping.
        start: u64,
    },
    /// Neither a link of `/proc` nor the path leads to the file.
    #[error(
        "{path} cannot be opened: {source}; deleted files other than the executable need CAP_CHECKPOINT_RESTORE, \
         files of other users CAP_DAC_READ_SEARCH"
    )]
    Unreachable {
        /// Path, escaped.
        path: String,
        /// Error of the last attempt.
        source: std::io::Error,
    },
    /// The file system may wait for another machine or process.
    #[error("{path} is not opened: its file system is remote (network or FUSE), which can block the agent")]
    Remote {
        /// Path, escaped.
        path: String,
    },
    /// The mount is not visible, so its kind is unknown.
    #[error("{path} is not opened: its mount is visible neither to the process nor to the agent")]
    UnknownFileSystem {
        /// Path, escaped.
        path: String,
    },
    /// A FIFO, device, socket or folder.
    #[error("{path} is not opened: it is no regular file (mode {mode:#o})")]
    NotRegular {
        /// Path, escaped.
        path: String,
        /// Type and permissions.
        mode: u32,
    },
    /// The path leads to another file than the mapped one.
    #[error(
        "{path} was replaced: the mapping has inode {} of device {}:{}, the path leads to inode {found_inode} of \
         {}:{}", .mapped_inode, .mapped_device.major, .mapped_device.minor, .found_device.major, .found_device.minor
    )]
    Replaced {
        /// Path, escaped.
        path: String,
        /// Device of the mapping.
        mapped_device: DeviceNumber,
        /// Inode of the mapping.
        mapped_inode: u64,
        /// Device of the file at the path.
        found_device: DeviceNumber,
        /// Inode of the file at the path.
        found_inode: u64,
    },
}

/// Returns the path of a mapping with everything escaped that is not printable.
pub(super) fn escaped_path(mapping: &Mapping) -> String {
    mapping.path.escape_ascii().to_string()
}
