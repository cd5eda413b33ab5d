//! Failures of the kernel side, each with the way out.

use std::io;

/// Failure of a call to the kernel.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The architecture is not supported.
    #[error("the eBPF sampler runs on x86_64 only, this machine is {architecture}; turn the sampler off")]
    UnsupportedArchitecture {
        /// Architecture of the agent.
        architecture: &'static str,
    },
    /// Capabilities are missing.
    #[error(
        "kernel refuses to {operation}: {error}; missing {missing}; run as root or grant CAP_BPF, CAP_PERFMON and \
         CAP_SYS_PTRACE"
    )]
    MissingCapability {
        /// Operation that was refused.
        operation: String,
        /// Names of the missing capabilities.
        missing: String,
        /// Cause.
        error: io::Error,
    },
    /// The distribution's kernel restricts perf events further than upstream.
    #[error(
        "kernel refuses to {operation}: kernel.perf_event_paranoid is {level}, with which it does not \
         accept CAP_PERFMON; run sysctl kernel.perf_event_paranoid=2"
    )]
    PerfEventsRestricted {
        /// Operation that was refused.
        operation: String,
        /// Level in force.
        level: i32,
    },
    /// The kernel has no type information.
    #[error(
        "kernel has no type information at /sys/kernel/btf/vmlinux; run a kernel that is built with \
         CONFIG_DEBUG_INFO_BTF, as those of all current distributions are"
    )]
    MissingBtf,
    /// Kernel lockdown forbids to read kernel memory.
    #[error(
        "kernel lockdown is in mode {mode}, which forbids the sampler to {operation}; boot with lockdown=integrity or \
         lockdown=none"
    )]
    Lockdown {
        /// Mode in force.
        mode: String,
        /// Operation that was refused.
        operation: String,
    },
    /// The kernel lacks a helper of BPF programs.
    #[error(
        "kernel {release} lacks {feature}, which the sampler needs; run Linux 6.1 or newer (bpf_loop came with 5.17, \
         hash maps without preallocation in perf event programs with 6.1)"
    )]
    OldKernel {
        /// Release of the running kernel.
        release: String,
        /// Name of what is missing.
        feature: &'static str,
    },
    /// The kernel refuses the program for another reason.
    #[error("kernel {release} refuses the BPF program: {error}; the verifier ends with: {log}")]
    ProgramRefused {
        /// Release of the running kernel.
        release: String,
        /// Cause.
        error: io::Error,
        /// Last lines of the verifier.
        log: String,
    },
    /// The BPF object cannot be loaded.
    #[error("failed to load the BPF object: {0}")]
    Object(String),
    /// A call failed.
    #[error("failed to {operation}: {error}")]
    Call {
        /// Operation that failed.
        operation: String,
        /// Cause.
        error: io::Error,
    },
    /// A map operation failed.
    #[error("failed to {operation}: {error}")]
    Map {
        /// Operation that failed.
        operation: &'static str,
        /// Cause.
        error: aya::maps::MapError,
    },
    /// Rows do not fit into their chunk.
    #[error(
        "rows {first_row}..{end_row} of chunk {chunk} are outside of {max_chunks} chunks of {max_rows} rows"
    )]
    RowsOutOfBounds {
        /// Chunk.
        chunk: u32,
        /// First row.
        first_row: u32,
        /// Row behind the last one.
        end_row: u64,
        /// Number of chunks.
        max_chunks: u32,
        /// Rows per chunk.
        max_rows: u32,
    },
    /// A program did not leave in time.
    #[error(
        "BPF program on CPU {cpu} did not end within {waited_millis} ms; the window stays open, retry later"
    )]
    ProgramInside {
        /// CPU of the program.
        cpu: usize,
        /// Time that was waited.
        waited_millis: u64,
    },
}

impl KernelError {
    /// Wraps the failure of a call.
    pub(super) fn call(operation: impl Into<String>, error: io::Error) -> Self {
        Self::Call { operation: operation.into(), error }
    }

    /// Wraps the last error of the thread.
    pub(super) fn last_os_error(operation: impl Into<String>) -> Self {
        Self::call(operation, io::Error::last_os_error())
    }

    /// Returns the error number of the system call, if there is one.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Self::MissingCapability { error, .. }
            | Self::ProgramRefused { error, .. }
            | Self::Call { error, .. } => error.raw_os_error(),
            Self::Map { error, .. } => map_error_number(error),
            _ => None,
        }
    }

    /// Returns whether a map has no capacity or the kernel no memory for an entry.
    pub fn is_map_full(&self) -> bool {
        matches!(self.raw_os_error(), Some(libc::E2BIG | libc::ENOSPC | libc::ENOMEM))
    }
}

/// Returns the error number of a map operation, if a system call failed.
pub(super) fn map_error_number(error: &aya::maps::MapError) -> Option<i32> {
    match error {
        aya::maps::MapError::SyscallError(call) => call.io_error.raw_os_error(),
        aya::maps::MapError::CreateError { io_error, .. } => io_error.raw_os_error(),
        aya::maps::MapError::IoError(error) => error.raw_os_error(),
        _ => None,
    }
}
