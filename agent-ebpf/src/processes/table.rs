//! Processes of the host: the state machine together with `/proc`.

use std::path::PathBuf;
use std::sync::Arc;

use athanor_chassis::Clock;

use super::error::{OpenError, ProcessError};
use super::folder::{ProcFolder, ProcessFolder};
use super::history::{ProcessHistory, ProcessRequest, RemovedProcess};
use super::image::ProcessSnapshot;
use super::mapped_file::{MappedFileOpener, MappedSource};
use super::maps::Mapping;
use super::stat::ClockTick;
use super::vdso::VdsoImage;
use crate::cgroups::{CgroupIndex, CgroupMembership};
use crate::perf_events::{RecordError, RecordQueue, SidebandEvent, SidebandRecord};

/// Parents that are read from `/proc` per window because a record names them first.
const MAX_PARENTS_PER_WINDOW: usize = 256;

/// Settings of a table.
#[derive(Clone, Debug)]
pub struct ProcessTableConfig {
    /// Folder of proc, `/proc`.
    pub proc_folder: PathBuf,
    /// Maximum number of processes.
    pub max_processes: usize,
    /// Bytes that the known processes may take.
    pub max_bytes: usize,
    /// Names of environment variables that become facts.
    pub environment_variables: Vec<String>,
}

/// Processes of the host.
#[derive(Debug)]
pub struct ProcessTable {
    pub(super) proc_folder: ProcFolder,
    environment_variables: Vec<String>,
    pub(super) clock: Clock,
    pub(super) tick: ClockTick,
    pub(super) history: ProcessHistory,
    pub(super) cgroups: CgroupIndex,
    opener: MappedFileOpener,
    parents_read: usize,
    /// Reads of known processes in this window, because records were lost.
    pub(super) reads_after_loss: usize,
    queue: RecordQueue,
    /// Start of the drain of rings, since boot.
    drain_started: Option<u64>,
}

/// Process with its mappings, for the maps of the kernel.
#[derive(Debug)]
pub struct LoadedProcess {
    /// Folder in `/proc`, for [`ProcessTable::open_mapping`].
    pub folder: ProcessFolder,
    /// Thread of the kernel, without mappings.
    pub is_kernel_thread: bool,
    /// Executable mappings by address, without overlap.
    pub mappings: Arc<Vec<Mapping>>,
}

// === impl ProcessTable ===

impl ProcessTable {
    /// Creates an empty table.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder of proc cannot be opened.
    pub fn new(config: ProcessTableConfig, clock: Clock) -> std::io::Result<Self> {
        let proc_folder = ProcFolder::open(&config.proc_folder)?;
        let own_mounts = proc_folder.own_mounts()?;
        let tick = ClockTick::from_machine();
        let opener = MappedFileOpener::new(&own_mounts, VdsoImage::read(&proc_folder));
        Ok(Self {
            proc_folder,
            environment_variables: config.environment_variables,
            clock,
            tick,
            history: ProcessHistory::new(config.max_processes, config.max_bytes, tick),
            cgroups: CgroupIndex::new(&own_mounts),
            opener,
            parents_read: 0,
            reads_after_loss: 0,
            queue: RecordQueue::default(),
            drain_started: None,
        })
    }

    /// Reads a process and its mappings. Records that the rings hold must be applied before, so that the order of
    /// execs is known.
    ///
    /// # Errors
    ///
    /// Returns an error if the process ended, its id belongs to another process, or `/proc` cannot be read.
    pub fn load(&mut self, request: &ProcessRequest) -> Result<LoadedProcess, ProcessError> {
        let loaded = self.try_load(request);
        if let Err(ProcessError::Ended { .. } | ProcessError::Replaced { .. }) = &loaded {
            self.history.mark_ended(request);
        }
        loaded
    }

    fn try_load(&mut self, request: &ProcessRequest) -> Result<LoadedProcess, ProcessError> {
        let folder = self.open_process(request)?;
        let snapshot = self.read_snapshot(&folder, true)?;
        let is_kernel_thread = snapshot.is_kernel_thread;
        self.history.apply_snapshot(request, snapshot);
        let window = self.history.window();
        let state = self.history.find_or_add(request);
        state.read_in = Some(window);
        let mappings = state.running_image().map(|image| Arc::clone(&image.mappings)).unwrap_or_default();
        self.history.limit_memory();
        Ok(LoadedProcess { folder, is_kernel_thread, mappings })
    }

    /// Opens the file of a mapping, or returns the vdso.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be reached, is another one now, or could block the agent.
    pub fn open_mapping(
        &mut self,
        process: &ProcessFolder,
        mapping: &Mapping,
    ) -> Result<MappedSource, OpenError> {
        self.opener.open(&self.proc_folder, process, mapping)
    }

    /// Receives a record as a ring has it. It is applied by [`Self::take_changed`], in the order of time with the
    /// records of other rings. Returns the number of records whose loss it reports. Times must be in nanoseconds since
    /// boot (`CLOCK_BOOTTIME`).
    ///
    /// # Errors
    ///
    /// Returns an error if the record does not have the form of its type.
    pub fn receive_record(&mut self, bytes: &[u8]) -> Result<u64, RecordError> {
        self.drain_started.get_or_insert_with(nanos_since_boot);
        self.queue.push(bytes)
    }

    fn apply_received(&mut self) {
        let until = self.drain_started.take().unwrap_or_else(nanos_since_boot);
        let mut queue = std::mem::take(&mut self.queue);
        let dropped = queue.take_until(until, |record| self.apply_record(record));
        self.queue = queue;
        if dropped > 0 {
            self.history.apply_loss();
        }
    }

    /// Applies a record that is the next one in the order of time. Its time must be in nanoseconds since boot (`CLOCK_BOOTTIME`).
    pub fn apply_record(&mut self, record: &SidebandRecord<'_>) {
        if let SidebandEvent::Cgroup(cgroup) = &record.event {
            self.cgroups.insert(cgroup.id, cgroup.path);
        }
        if let SidebandEvent::Fork(task) = &record.event
            && !self.history.has_process(task.parent_pid)
            && self.parents_read < MAX_PARENTS_PER_WINDOW
        {
            self.parents_read += 1;
            let folder = self.proc_folder.open_process(task.parent_pid);
            if let Ok(snapshot) = folder.and_then(|folder| self.read_snapshot(&folder, false)) {
                self.history.add_parent(task.parent_pid, snapshot);
            }
        }
        self.history.apply_record(record);
    }

    /// Returns the mapping of a process that contains an address, as far as it is known.
    pub fn resolve(&self, request: &ProcessRequest, address: u64) -> Option<&Mapping> {
        self.history.resolve(request, address)
    }

    /// Applies the received records. Returns the loaded processes whose mappings changed since the last call: they are
    /// to be loaded again.
    pub fn take_changed(&mut self) -> Vec<ProcessRequest> {
        self.apply_received();
        self.history.take_changed()
    }

    /// Returns the number of losses of records: after each, mappings of loaded processes may be old.
    pub fn loss_count(&self) -> u64 {
        self.history.loss_count()
    }

    /// Notes that records were lost otherwise than by a full ring.
    pub fn note_loss(&mut self) {
        self.history.apply_loss();
    }

    /// Returns the running program of a loaded process. None if it ended.
    pub fn loaded_request(&self, pid: u32) -> Option<ProcessRequest> {
        self.history.loaded_request(pid)
    }

    /// Returns the number of known processes.
    pub fn process_count(&self) -> usize {
        self.history.len()
    }

    /// Returns the bytes of the known processes.
    pub fn memory(&self) -> usize {
        self.history.memory()
    }

    /// Returns the number of mappings that were dropped because of the bound of memory.
    pub fn mappings_dropped(&self) -> u64 {
        self.history.mappings_dropped()
    }

    /// Ends a window. Returns processes whose entries in the maps of the kernel are to be removed.
    pub fn end_window(&mut self) -> Vec<RemovedProcess> {
        self.parents_read = 0;
        self.reads_after_loss = 0;
        self.opener.forget_mounts(&self.proc_folder);
        self.history.end_window()
    }

    /// Opens the folder of the process of a request.
    ///
    /// # Errors
    ///
    /// Returns an error if the process ended or its id belongs to another process.
    pub fn open_process(&self, request: &ProcessRequest) -> Result<ProcessFolder, ProcessError> {
        let folder = self.proc_folder.open_process(request.pid)?;
        let stat = folder.stat()?;
        if !self.tick.contains(stat.start_ticks, request.start_nanos) {
            return Err(ProcessError::Replaced { pid: request.pid, wanted_nanos: request.start_nanos });
        }
        Ok(folder)
    }

    pub(super) fn read_snapshot(
        &self,
        folder: &ProcessFolder,
        with_mappings: bool,
    ) -> Result<ProcessSnapshot, ProcessError> {
        let stat = folder.stat()?;
        let text = |bytes: &[u8]| -> Arc<str> { String::from_utf8_lossy(bytes).into() };
        let mut snapshot = ProcessSnapshot {
            start_ticks: stat.start_ticks,
            parent_pid: stat.parent_pid,
            is_kernel_thread: stat.is_kernel_thread,
            comm: text(&stat.comm),
            user_id: folder.status()?.user_id,
            mappings: with_mappings.then(Vec::new),
            ..ProcessSnapshot::default()
        };
        // Without privileges for them, these stay unknown.
        let membership = folder.cgroup().map(|bytes| CgroupMembership::parse(&bytes)).unwrap_or_default();
        snapshot.cgroup = membership.path.map(Arc::from);
        snapshot.unified_cgroup = membership.unified.map(Arc::from);
        if stat.is_kernel_thread {
            return Ok(snapshot);
        }
        if with_mappings {
            snapshot.mappings = Some(folder.mappings(&self.clock)?.mappings);
        }
        snapshot.executable = text(&folder.executable().unwrap_or_default());
        snapshot.command_line = folder.command_line().unwrap_or_default().into();
        let environment = folder.environment(&self.environment_variables).unwrap_or_default();
        snapshot.environment =
            environment.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Ok(snapshot)
    }
}

fn nanos_since_boot() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
#[path = "tests/table_tests.rs"]
mod tests;
