//! System calls without a safe interface: commands of `bpf` that aya lacks, and perf events.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::error::KernelError;

const BPF_MAP_DELETE_ELEM: libc::c_long = 3;
const BPF_MAP_LOOKUP_BATCH: libc::c_long = 24;
const BPF_MAP_LOOKUP_AND_DELETE_BATCH: libc::c_long = 25;

const PERF_EVENT_IOC_ENABLE: libc::Ioctl = 0x2400;
const PERF_EVENT_IOC_SET_BPF: libc::Ioctl = 0x4004_2408;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// Attributes of commands on one element.
#[repr(C)]
struct ElementAttributes {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Attributes of commands on a batch of elements.
#[repr(C)]
struct BatchAttributes {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    element_flags: u64,
    flags: u64,
}

/// Deletes the entry of an array of maps.
pub(super) fn delete_array_entry(map: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let attributes = ElementAttributes {
        map_fd: map.as_raw_fd() as u32,
        padding: 0,
        key: (&raw const index) as u64,
        value: 0,
        flags: 0,
    };
    // SAFETY: the kernel reads the attributes and four bytes of the key, which live until the call returns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_MAP_DELETE_ELEM,
            &raw const attributes,
            size_of::<ElementAttributes>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Position of a walk over a hash map, opaque to user space.
#[derive(Clone, Copy, Default)]
pub(super) struct BatchPosition {
    position: Option<[u64; 8]>,
}

/// Result of one batch.
pub(super) struct BatchResult {
    /// Number of entries.
    pub(super) count: usize,
    /// The walk is at its end.
    pub(super) is_last: bool,
}

/// Command on a batch of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchCommand {
    /// Copies entries.
    Copy,
    /// Copies entries and deletes them.
    Take,
}

/// Copies the next entries of a hash map into `keys` and `values`.
///
/// # Errors
///
/// `ENOSPC` if a bucket has more entries than there is capacity: the caller retries with more.
pub(super) fn read_batch<K: aya::Pod, V: aya::Pod>(
    map: BorrowedFd<'_>,
    command: BatchCommand,
    position: &mut BatchPosition,
    keys: &mut [K],
    values: &mut [V],
) -> io::Result<BatchResult> {
    let mut next = [0u64; 8];
    let capacity = keys.len().min(values.len());
    let mut attributes = BatchAttributes {
        in_batch: position.position.as_ref().map_or(0, |current| current.as_ptr() as u64),
        out_batch: next.as_mut_ptr() as u64,
        keys: keys.as_mut_ptr() as u64,
        values: values.as_mut_ptr() as u64,
        count: u32::try_from(capacity).unwrap_or(u32::MAX),
        map_fd: map.as_raw_fd() as u32,
        element_flags: 0,
        flags: 0,
    };
    let command = match command {
        BatchCommand::Copy => BPF_MAP_LOOKUP_BATCH,
        BatchCommand::Take => BPF_MAP_LOOKUP_AND_DELETE_BATCH,
    };
    // SAFETY: the kernel writes at most `count` keys and values of the sizes of the map, which the callers of this
    // function created with the layouts `K` and `V`. A position of a hash map has at most the size of a key.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut attributes, size_of::<BatchAttributes>()) };
    position.position = Some(next);
    let count = capacity.min(attributes.count as usize);
    if result >= 0 {
        return Ok(BatchResult { count, is_last: false });
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENOENT) {
        return Ok(BatchResult { count, is_last: true });
    }
    Err(error)
}

/// Attributes of a perf event, as of version 5 of the ABI.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct PerfEventAttributes {
    pub(super) kind: u32,
    pub(super) size: u32,
    pub(super) config: u64,
    pub(super) sample_period: u64,
    pub(super) sample_type: u64,
    pub(super) read_format: u64,
    pub(super) flags: u64,
    pub(super) wakeup_watermark: u32,
    pub(super) breakpoint_type: u32,
    pub(super) config1: u64,
    pub(super) config2: u64,
    pub(super) branch_sample_type: u64,
    pub(super) sample_regs_user: u64,
    pub(super) sample_stack_user: u32,
    pub(super) clock_id: i32,
    pub(super) sample_regs_interrupt: u64,
    pub(super) aux_watermark: u32,
    pub(super) sample_max_stack: u16,
    pub(super) reserved: u16,
}

const _: () = assert!(size_of::<PerfEventAttributes>() == 112);

/// Opens a perf event for all processes of one CPU.
pub(super) fn open_cpu_event(attributes: &PerfEventAttributes, cpu: u32) -> io::Result<OwnedFd> {
    let mut attributes = *attributes;
    attributes.size = size_of::<PerfEventAttributes>() as u32;
    let every_process: libc::pid_t = -1;
    let no_group: libc::c_int = -1;
    let cpu = libc::c_int::try_from(cpu).map_err(io::Error::other)?;
    // SAFETY: the kernel reads `size` bytes of the attributes.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            every_process,
            cpu,
            no_group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = libc::c_int::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel returned a new descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Runs a BPF program at each overflow of an event.
pub(super) fn set_event_program(event: BorrowedFd<'_>, program: BorrowedFd<'_>) -> Result<(), KernelError> {
    // SAFETY: the argument of this request is a descriptor.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), PERF_EVENT_IOC_SET_BPF, program.as_raw_fd()) };
    if result < 0 {
        return Err(KernelError::last_os_error("attach the BPF program to the CPU clock"));
    }
    Ok(())
}

/// Starts an event.
pub(super) fn enable_event(event: BorrowedFd<'_>) -> Result<(), KernelError> {
    // SAFETY: the request has no argument.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), PERF_EVENT_IOC_ENABLE, 0) };
    if result < 0 {
        return Err(KernelError::last_os_error("start a perf event"));
    }
    Ok(())
}
