//! The BPF side as one value.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use athanor_chassis::Random;
use aya::maps::{HashMap, IterableMap, LpmTrie, MapData, MapError, RingBuf};
use aya::util::{nr_cpus, online_cpus};

use super::config::{KernelConfig, period_of};
use super::cpu_clock::CpuClock;
use super::error::KernelError;
use super::loader::LoadedObject;
use super::map_entries::read_entries;
use super::row_chunks::RowChunks;
use super::shared_state::{SharedState, SideSampling};
use super::sideband::SidebandRings;
use super::syscalls::BatchCommand;
use super::typed_maps::{parse_request, parse_stack, trie_key};
use super::wakeups::Wakeups;
use crate::layout::{
    Control, CpuState, MappingKey, MappingValue, PageKey, PageValue, ProcessValue, RequestRecord, StackCount,
    StackKey, StackRecord, UnwindRow,
};

/// Program that the kernel has verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedProgram {
    /// Name.
    pub name: &'static str,
    /// Instructions that the verifier processed, if the kernel counts them.
    pub verified_instructions: Option<u32>,
}

/// BPF program, maps, events and rings. Dropping it frees all of them.
///
/// Fields are dropped in order: the events first, so that no program runs while the rest goes.
pub struct KernelSampler {
    clock: CpuClock,
    sideband: SidebandRings,
    program: OwnedFd,
    loaded: LoadedProgram,
    random: Random,
    max_stacks: usize,
    max_pages: usize,
    max_processes: usize,
    shared: SharedState,
    counts: [OwnedFd; 2],
    pages: HashMap<MapData, PageKey, PageValue>,
    processes: HashMap<MapData, u32, ProcessValue>,
    mappings: LpmTrie<MapData, [u8; 12], MappingValue>,
    mapping_memory: MappingMemory,
    rows: RowChunks,
    /// Rows of removed pages may still be in use by programs.
    has_removed_pages: bool,
    stacks: RingBuf<MapData>,
    requests: RingBuf<MapData>,
    frames: Vec<u64>,
    wakeups: Wakeups,
    descriptors: Vec<OwnedFd>,
}

impl KernelSampler {
    /// Creates the maps and loads the program. Nothing is sampled before [`Self::attach`].
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses, with what is missing.
    pub fn load(config: &KernelConfig, random: Random) -> Result<Self, KernelError> {
        if !cfg!(target_arch = "x86_64") {
            return Err(KernelError::UnsupportedArchitecture { architecture: std::env::consts::ARCH });
        }
        let cpus = nr_cpus().map_err(|(path, error)| KernelError::call(format!("read {path}"), error))?;
        let possible_cpus = u32::try_from(cpus)
            .map_err(|_| KernelError::Object(format!("{cpus} CPUs are more than the sampler supports")))?;
        let mut object = LoadedObject::load(config, possible_cpus)?;
        let control = object.take_descriptor("control")?;
        let cpu_states = object.take_descriptor("cpu_states")?;
        let shared = SharedState::new(control.as_fd(), cpu_states.as_fd(), cpus)?;
        shared.write_settings(&initial_settings(config)?);
        let outer_rows = object.duplicate_descriptor("row_chunks")?;
        let stacks: RingBuf<MapData> = object.take("stacks")?;
        let requests: RingBuf<MapData> = object.take("requests")?;
        let wakeups = Wakeups::new()?;
        wakeups.add_woken(stacks.as_fd())?;
        wakeups.add_readable(requests.as_fd())?;
        let loaded =
            LoadedProgram { name: "on_cpu_clock", verified_instructions: object.verified_instructions };
        Ok(Self {
            clock: CpuClock::new(config.period_nanos()),
            sideband: SidebandRings::new(super::config::ring_bytes(config.sideband_ring_bytes)),
            loaded,
            random,
            max_stacks: config.max_stacks.max(1) as usize,
            max_pages: config.max_pages.max(1) as usize,
            max_processes: config.max_processes.max(1) as usize,
            shared,
            counts: [object.take_descriptor("counts_0")?, object.take_descriptor("counts_1")?],
            pages: object.take("pages")?,
            processes: object.take("processes")?,
            mapping_memory: MappingMemory::new(object.duplicate_descriptor("mappings")?),
            mappings: object.take("mappings")?,
            rows: RowChunks::new(object.take("row_chunks")?, outer_rows),
            has_removed_pages: false,
            stacks,
            requests,
            frames: Vec::new(),
            wakeups,
            descriptors: std::mem::take(&mut object.descriptors),
            program: object.program,
        })
    }

    /// Starts process events and the clock of every online CPU. Blocks for less than 60 ms, over which the clocks are
    /// spread.
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses an event, with what is missing.
    pub fn attach(&mut self) -> Result<(), KernelError> {
        self.update_cpus().map(drop)
    }

    /// Opens events for CPUs that came online, and closes those of CPUs that went offline. The caller drains the
    /// process events before. Returns whether process events may have been missed: a ring is new, or replaced because
    /// its CPU was offline meanwhile.
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses an event.
    pub fn update_cpus(&mut self) -> Result<bool, KernelError> {
        let online =
            online_cpus().map_err(|(path, error)| KernelError::call(format!("read {path}"), error))?;
        let has_new_ring = self.sideband.update(&online, &self.wakeups)?;
        self.clock.update(&online, self.program.as_fd(), &self.random)?;
        Ok(has_new_ring)
    }

    /// Closes the clocks. Process events go on.
    pub fn detach(&mut self) {
        let period_nanos = self.clock.period_nanos();
        self.clock.reset(period_nanos);
    }

    /// Changes the rate: replaces the clock of every CPU. Returns the same as [`Self::update_cpus`].
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses an event.
    pub fn set_frequency(&mut self, frequency_hz: u32) -> Result<bool, KernelError> {
        self.clock.reset(period_of(frequency_hz));
        self.update_cpus()
    }

    /// Returns the period of the clock.
    pub fn period_nanos(&self) -> u64 {
        self.clock.period_nanos()
    }

    /// Stops or resumes the sampling. A stopped program returns at once.
    pub fn set_stopped(&mut self, is_stopped: bool) {
        self.shared.set_stopped(is_stopped);
    }

    /// Samples one process only, or all with None.
    pub fn set_process_filter(&mut self, process: Option<u32>) {
        self.shared.set_process_filter(process.unwrap_or(0));
    }

    /// Returns the CPUs whose clock runs.
    pub fn sampled_cpus(&self) -> Vec<u32> {
        self.clock.cpus()
    }

    /// Returns the loaded program.
    pub fn program(&self) -> &LoadedProgram {
        &self.loaded
    }

    /// Adds a prefix of a mapping.
    ///
    /// # Errors
    ///
    /// Fails if the trie is full ([`KernelError::is_map_full`]).
    pub fn insert_mapping(&mut self, key: &MappingKey, value: &MappingValue) -> Result<(), KernelError> {
        self.mappings
            .insert(&trie_key(key), value, 0)
            .map_err(|error| KernelError::Map { operation: "add a mapping", error })?;
        self.mapping_memory.entries += 1;
        Ok(())
    }

    /// Removes a prefix of a mapping. Removing one that does not exist succeeds.
    ///
    /// # Errors
    ///
    /// Fails if the kernel has no memory for the operation.
    pub fn remove_mapping(&mut self, key: &MappingKey) -> Result<(), KernelError> {
        let result = self.mappings.remove(&trie_key(key));
        if result.is_ok() {
            self.mapping_memory.entries = self.mapping_memory.entries.saturating_sub(1);
        }
        ignore_missing(result, "remove a mapping")
    }

    /// Adds or replaces a process.
    ///
    /// # Errors
    ///
    /// Fails if the map is full.
    pub fn set_process(&mut self, pid: u32, value: &ProcessValue) -> Result<(), KernelError> {
        self.processes
            .insert(pid, value, 0)
            .map_err(|error| KernelError::Map { operation: "add a process", error })
    }

    /// Returns a process.
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses the call.
    pub fn get_process(&self, pid: u32) -> Result<Option<ProcessValue>, KernelError> {
        found(self.processes.get(&pid, 0), "read a process")
    }

    /// Passes each process to `receive`, also requested ones. Returns their number.
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses the call.
    pub fn read_processes(&self, receive: impl FnMut(&u32, &ProcessValue)) -> Result<usize, KernelError> {
        let map = IterableMap::map(&self.processes).fd();
        read_entries(map.as_fd(), BatchCommand::Copy, self.max_processes, receive)
            .map_err(|error| KernelError::call("read the processes", error))
    }

    /// Removes a process. Removing one that does not exist succeeds.
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses the call.
    pub fn remove_process(&mut self, pid: u32) -> Result<(), KernelError> {
        ignore_missing(self.processes.remove(&pid), "remove a process")
    }

    /// Adds or replaces a page. Its rows were written before.
    ///
    /// # Errors
    ///
    /// Fails if the map is full.
    pub fn set_page(&mut self, key: PageKey, value: &PageValue) -> Result<(), KernelError> {
        self.has_removed_pages = true;
        self.pages.insert(key, value, 0).map_err(|error| KernelError::Map { operation: "add a page", error })
    }

    /// Returns a page, with the last window that used it.
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses the call.
    pub fn get_page(&self, key: PageKey) -> Result<Option<PageValue>, KernelError> {
        found(self.pages.get(&key, 0), "read a page")
    }

    /// Passes each page to `receive`, also requested ones, with the last window that used it. Returns their number.
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses the call.
    pub fn read_pages(&self, receive: impl FnMut(&PageKey, &PageValue)) -> Result<usize, KernelError> {
        let map = IterableMap::map(&self.pages).fd();
        read_entries(map.as_fd(), BatchCommand::Copy, self.max_pages, receive)
            .map_err(|error| KernelError::call("read the pages of rows", error))
    }

    /// Removes a page. Removing one that does not exist succeeds.
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses the call.
    pub fn remove_page(&mut self, key: PageKey) -> Result<(), KernelError> {
        self.has_removed_pages = true;
        ignore_missing(self.pages.remove(&key), "remove a page")
    }

    /// Writes rows into a chunk, and creates the chunk if it does not exist. If pages were removed before, it waits
    /// until no program reads their rows, which may be written over.
    ///
    /// # Errors
    ///
    /// Fails if the rows do not fit, or the kernel has no memory for the chunk.
    pub fn write_rows(&mut self, chunk: u32, first_row: u32, rows: &[UnwindRow]) -> Result<(), KernelError> {
        if self.has_removed_pages {
            self.shared.wait_for_programs()?;
            self.has_removed_pages = false;
        }
        self.rows.write(chunk, first_row, rows)
    }

    /// Frees a chunk whose pages were removed. Freeing one that does not exist succeeds.
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses the call.
    pub fn free_chunk(&mut self, chunk: u32) -> Result<(), KernelError> {
        self.rows.free(chunk)
    }

    /// Takes the next request.
    pub fn next_request(&mut self) -> Option<RequestRecord> {
        loop {
            let item = self.requests.next()?;
            // Records have one size: another one is not a request.
            if let Some(request) = parse_request(&item) {
                return Some(request);
            }
        }
    }

    /// Passes each waiting record of frames to `receive`. Returns their number. Frames of the open window are among
    /// them: they are not sent a second time in that window, so the caller keeps them by window and key.
    pub fn drain_stacks(&mut self, mut receive: impl FnMut(&StackRecord, &[u64])) -> usize {
        let mut drained = 0;
        while let Some(item) = self.stacks.next() {
            if let Some(record) = parse_stack(&item, &mut self.frames) {
                receive(&record, &self.frames);
                drained += 1;
            }
        }
        drained
    }

    /// Passes each waiting record of process events to `receive`, as the kernel wrote it. Returns their number.
    pub fn drain_sideband(&mut self, receive: impl FnMut(&[u8])) -> usize {
        self.sideband.drain(receive)
    }

    /// Returns the number of the current window.
    pub fn window(&self) -> u64 {
        self.shared.window()
    }

    /// Ends the window and begins the next one with the given sampling. Returns the number of the ended window: its
    /// counts and frames are complete, and the caller drains them before it ends the next one.
    ///
    /// # Errors
    ///
    /// Fails if a program does not end in time. The window is still open then.
    pub fn switch_window(&mut self, next: SideSampling) -> Result<u64, KernelError> {
        self.shared.switch_window(next)
    }

    /// Moves all counts of an ended window to `receive`. Returns their number.
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses the call.
    pub fn drain_counts(
        &mut self,
        window: u64,
        receive: impl FnMut(&StackKey, &StackCount),
    ) -> Result<usize, KernelError> {
        let [even, odd] = &self.counts;
        let side = if window & 1 == 0 { even } else { odd };
        read_entries(side.as_fd(), BatchCommand::Take, self.max_stacks, receive)
            .map_err(|error| KernelError::call("read the counts of stacks", error))
    }

    /// Returns the counters of each possible CPU.
    pub fn cpu_states(&self) -> Vec<CpuState> {
        self.shared.cpu_states()
    }

    /// Returns the time that programs ran, without the entry of the kernel.
    pub fn program_nanos(&self) -> u64 {
        self.cpu_states().iter().map(|state| state.run_nanos).sum()
    }

    /// Returns the descriptor that is readable while requests wait, or after a ring was half full.
    pub fn poll_fd(&self) -> BorrowedFd<'_> {
        self.wakeups.as_fd()
    }

    /// Waits until [`Self::poll_fd`] is readable, and forgets the wake-up: the caller drains requests, frames and
    /// process events afterwards. Returns whether there was a wake-up.
    pub fn wait_for_wakeup(&self, timeout: Duration) -> bool {
        self.wakeups.wait(timeout)
    }

    /// Returns the memory of all maps and rings, mostly as the kernel counts it.
    pub fn map_bytes(&self) -> u64 {
        let maps: u64 = self.descriptors.iter().map(|descriptor| locked_bytes(descriptor.as_fd())).sum();
        maps.saturating_sub(self.mapping_memory.excess_bytes()) + self.rows.bytes() + self.sideband.bytes()
    }
}

/// Memory of the trie of mappings. Kernels before 6.4 report the capacity of a trie as its memory, tens of megabytes
/// that it does not use.
struct MappingMemory {
    map: OwnedFd,
    reports_capacity: bool,
    entries: u64,
}

impl MappingMemory {
    /// More than an empty trie uses.
    const MAX_EMPTY_BYTES: u64 = 64 << 10;
    /// Node of an entry, and as many nodes between entries.
    const ENTRY_BYTES: u64 = 2 * 96;

    fn new(map: OwnedFd) -> Self {
        let reports_capacity = locked_bytes(map.as_fd()) > Self::MAX_EMPTY_BYTES;
        Self { map, reports_capacity, entries: 0 }
    }

    /// Returns how much more the kernel reports than the entries use.
    fn excess_bytes(&self) -> u64 {
        if !self.reports_capacity {
            return 0;
        }
        locked_bytes(self.map.as_fd()).saturating_sub(self.entries * Self::ENTRY_BYTES)
    }
}

const _: () = {
    const fn assert_send<T: Send>() {}
    assert_send::<KernelSampler>();
};

/// Settings before the first window.
fn initial_settings(config: &KernelConfig) -> Result<Control, KernelError> {
    const NAMESPACE: &str = "/proc/self/ns/pid";
    let namespace =
        fs::metadata(NAMESPACE).map_err(|error| KernelError::call(format!("read {NAMESPACE}"), error))?;
    let pid_namespace_inode = u32::try_from(namespace.ino())
        .map_err(|error| KernelError::call(format!("read {NAMESPACE}"), io::Error::other(error)))?;
    let sampling = SideSampling::ALL;
    Ok(Control {
        window: 0,
        threshold: [sampling.threshold(); 2],
        nanos_factor: [sampling.nanos_factor(); 2],
        is_stopped: 0,
        pid_filter: config.process.unwrap_or(0),
        thread_names: u32::from(config.thread_names),
        pid_namespace_inode,
        with_kernel_frames: u32::from(config.kernel_frames),
        reserved_word: 0,
        reserved: [0; 4],
    })
}

/// Returns the memory of a map. 0 if the kernel does not tell.
fn locked_bytes(map: BorrowedFd<'_>) -> u64 {
    let path = format!("/proc/self/fdinfo/{}", map.as_raw_fd());
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("memlock:"));
    line.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0)
}

fn found<T>(result: Result<T, MapError>, operation: &'static str) -> Result<Option<T>, KernelError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(MapError::KeyNotFound | MapError::ElementNotFound) => Ok(None),
        Err(error) => Err(KernelError::Map { operation, error }),
    }
}

fn ignore_missing(result: Result<(), MapError>, operation: &'static str) -> Result<(), KernelError> {
    match result {
        Ok(()) | Err(MapError::KeyNotFound | MapError::ElementNotFound) => Ok(()),
        Err(error) if super::error::map_error_number(&error) == Some(libc::ENOENT) => Ok(()),
        Err(error) => Err(KernelError::Map { operation, error }),
    }
}
