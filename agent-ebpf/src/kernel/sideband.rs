//! Perf events that report mappings, names, forks and exits of all processes: one ring per online CPU.

use std::collections::BTreeMap;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use super::error::KernelError;
use super::loader::explain_event_refusal;
use super::memory_map::MemoryMap;
use super::syscalls::{PerfEventAttributes, enable_event, open_cpu_event};
use super::wakeups::Wakeups;

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_DUMMY: u64 = 9;
const PERF_FORMAT_TOTAL_TIME_ENABLED: u64 = 1 << 0;
const PERF_SAMPLE_TID: u64 = 1 << 1;
const PERF_SAMPLE_TIME: u64 = 1 << 2;

const FLAG_DISABLED: u64 = 1 << 0;
const FLAG_MMAP: u64 = 1 << 8;
const FLAG_COMM: u64 = 1 << 9;
const FLAG_TASK: u64 = 1 << 13;
const FLAG_WATERMARK: u64 = 1 << 14;
const FLAG_SAMPLE_ID_ALL: u64 = 1 << 18;
const FLAG_MMAP2: u64 = 1 << 23;
const FLAG_COMM_EXEC: u64 = 1 << 24;
const FLAG_USE_CLOCK_ID: u64 = 1 << 25;
const FLAG_BUILD_ID: u64 = 1 << 34;

/// Offsets in the first page of a ring.
const DATA_HEAD_OFFSET: usize = 1024;
const DATA_TAIL_OFFSET: usize = 1032;
/// Kind, misc and size of a record.
const HEADER_BYTES: usize = 8;
const HEADER_SIZE_OFFSET: usize = 6;
/// Smallest ring that is tried where locked memory is limited.
const MIN_RING_BYTES: usize = 4096;

/// Rings of process events. Every record ends with process, thread and `CLOCK_BOOTTIME` time, as starts of processes are given.
pub(super) struct SidebandRings {
    ring_bytes: usize,
    rings: BTreeMap<u32, PerfRing>,
    record: Vec<u8>,
}

impl SidebandRings {
    /// Creates a set without rings. The size is a power of two of at least one page.
    pub(super) fn new(ring_bytes: u32) -> Self {
        Self { ring_bytes: ring_bytes as usize, rings: BTreeMap::new(), record: Vec::new() }
    }

    /// Opens rings for online CPUs that have none, and closes those of CPUs that are offline or were meanwhile. Unread
    /// records of closed rings are lost. Returns whether a ring was opened.
    pub(super) fn update(&mut self, online: &[u32], wakeups: &Wakeups) -> Result<bool, KernelError> {
        self.rings.retain(|cpu, ring| online.contains(cpu) && ring.is_alive());
        let mut has_new_ring = false;
        for &cpu in online {
            if self.rings.contains_key(&cpu) {
                continue;
            }
            if let Some(ring) = self.open(cpu)? {
                wakeups.add_readable(ring.event.as_fd())?;
                enable_event(ring.event.as_fd())?;
                self.rings.insert(cpu, ring);
                has_new_ring = true;
            }
        }
        Ok(has_new_ring)
    }

    /// Passes each waiting record to `receive`, header included. Returns their number.
    pub(super) fn drain(&mut self, mut receive: impl FnMut(&[u8])) -> usize {
        let record = &mut self.record;
        self.rings.values_mut().map(|ring| ring.drain(record, &mut receive)).sum()
    }

    /// Returns the memory of all rings.
    pub(super) fn bytes(&self) -> u64 {
        let page = rustix::param::page_size() as u64;
        self.rings.values().map(|ring| ring.data_bytes as u64 + page).sum()
    }

    /// Opens the ring of a CPU. None if the CPU went offline meanwhile.
    fn open(&self, cpu: u32) -> Result<Option<PerfRing>, KernelError> {
        let mut data_bytes = self.ring_bytes;
        loop {
            let event = match open_cpu_event(&attributes(data_bytes), cpu) {
                Ok(event) => event,
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
                Err(error) => {
                    return Err(explain_event_refusal(format!("open process events of CPU {cpu}"), error));
                }
            };
            let length = rustix::param::page_size() + data_bytes;
            match MemoryMap::new(event.as_fd(), length, 0) {
                Ok(memory) => return Ok(Some(PerfRing { memory, event, data_bytes, enabled_nanos: 0 })),
                // Locked memory is limited: a smaller ring may fit.
                Err(error) if error.raw_os_error() == Some(libc::EPERM) && data_bytes > MIN_RING_BYTES => {
                    data_bytes /= 2;
                }
                Err(error) => {
                    let operation = format!("map {length} bytes of process events of CPU {cpu}");
                    return Err(explain_event_refusal(operation, error));
                }
            }
        }
    }
}

fn attributes(data_bytes: usize) -> PerfEventAttributes {
    PerfEventAttributes {
        kind: PERF_TYPE_SOFTWARE,
        config: PERF_COUNT_SW_DUMMY,
        sample_type: PERF_SAMPLE_TID | PERF_SAMPLE_TIME,
        read_format: PERF_FORMAT_TOTAL_TIME_ENABLED,
        flags: FLAG_DISABLED
            | FLAG_MMAP
            | FLAG_MMAP2
            | FLAG_BUILD_ID
            | FLAG_COMM
            | FLAG_COMM_EXEC
            | FLAG_TASK
            | FLAG_WATERMARK
            | FLAG_SAMPLE_ID_ALL
            | FLAG_USE_CLOCK_ID,
        wakeup_watermark: u32::try_from(data_bytes / 2).unwrap_or(u32::MAX),
        clock_id: libc::CLOCK_BOOTTIME,
        ..PerfEventAttributes::default()
    }
}

/// Ring of one event: a page of positions, then records.
struct PerfRing {
    memory: MemoryMap,
    event: OwnedFd,
    data_bytes: usize,
    /// Time for which the event was enabled when it was last checked.
    enabled_nanos: u64,
}

impl PerfRing {
    /// Returns whether the event was enabled for longer than at the last call. That of a CPU that went offline stops and
    /// does not start again.
    fn is_alive(&mut self) -> bool {
        // The count of the event, which is always 0, and the time.
        let mut bytes = [0; 16];
        let is_read = rustix::io::read(&self.event, &mut bytes).is_ok_and(|length| length == bytes.len());
        let mut time = [0; 8];
        time.copy_from_slice(&bytes[8..]);
        let enabled_nanos = u64::from_ne_bytes(time);
        let has_advanced = is_read && enabled_nanos > self.enabled_nanos;
        self.enabled_nanos = enabled_nanos;
        has_advanced
    }

    fn drain(&mut self, record: &mut Vec<u8>, receive: &mut impl FnMut(&[u8])) -> usize {
        let head = self.memory.word(DATA_HEAD_OFFSET).load(Ordering::Acquire);
        let mut tail = self.memory.word(DATA_TAIL_OFFSET).load(Ordering::Relaxed);
        let mut drained = 0;
        while tail != head {
            let waiting = usize::try_from(head.wrapping_sub(tail)).unwrap_or(usize::MAX);
            let mut header = [0; HEADER_BYTES];
            self.copy_wrapped(tail, &mut header);
            let size =
                usize::from(u16::from_ne_bytes([header[HEADER_SIZE_OFFSET], header[HEADER_SIZE_OFFSET + 1]]));
            if size < HEADER_BYTES || size > waiting {
                // Positions and records do not fit together: nothing behind it can be read.
                tail = head;
                break;
            }
            record.clear();
            record.resize(size, 0);
            self.copy_wrapped(tail, record);
            tail = tail.wrapping_add(size as u64);
            // The kernel may write over the record from here on.
            self.memory.word(DATA_TAIL_OFFSET).store(tail, Ordering::Release);
            receive(record);
            drained += 1;
        }
        self.memory.word(DATA_TAIL_OFFSET).store(tail, Ordering::Release);
        drained
    }

    /// Copies bytes at a position, which may continue at the start of the ring.
    fn copy_wrapped(&self, position: u64, bytes: &mut [u8]) {
        let data_offset = rustix::param::page_size();
        let start = (position as usize) & (self.data_bytes - 1);
        let first = bytes.len().min(self.data_bytes - start);
        let (before_end, from_start) = bytes.split_at_mut(first);
        self.memory.copy_out(data_offset + start, before_end);
        self.memory.copy_out(data_offset, from_start);
    }
}

const _: () = assert!(mem::size_of::<u16>() + HEADER_SIZE_OFFSET == HEADER_BYTES);
