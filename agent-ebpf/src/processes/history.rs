//! State machine of all processes: fed by records, by requests, and by what `/proc` contains.

use std::collections::{BTreeMap, HashSet};

use self::memory::HistoryMemory;
use super::image::ProcessSnapshot;
use super::maps::{DeviceNumber, Mapping, USER_ADDRESS_END};
use super::stat::ClockTick;
use super::state::ProcessState;
use crate::perf_events::{CommRecord, MappedInode, MmapRecord, SidebandEvent, SidebandRecord, TaskRecord};

mod memory;

/// Mappings that records may add to one process. `/proc` may have more.
const MAX_RECORDED_MAPPINGS: usize = 8192;

/// Process id, and number of the process among those with this id.
type StateKey = (u32, u64);

/// All known processes, by id and start.
#[derive(Debug)]
pub struct ProcessHistory {
    tick: ClockTick,
    max_processes: usize,
    states: BTreeMap<StateKey, ProcessState>,
    next_number: u64,
    window: u64,
    /// Counts uses, for the order of eviction.
    use_count: u64,
    /// Grows with each loss of records.
    loss_count: u64,
    memory: HistoryMemory,
    mappings_dropped: u64,
    changed: HashSet<u32>,
    removed: Vec<RemovedProcess>,
}

/// Process that is no longer known, with entries in the maps of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RemovedProcess {
    /// Process id. The id has no other loaded process.
    pub pid: u32,
    /// The process did not end: there were too many.
    pub is_evicted: bool,
}

/// Identity of a process in a request or a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessRequest {
    /// Process id.
    pub pid: u32,
    /// Start since boot.
    pub start_nanos: u64,
    /// Number that changes with each exec.
    pub exec_id: u32,
}

// === impl ProcessHistory ===

impl ProcessHistory {
    /// Creates an empty history of up to `max_processes` processes and about `max_bytes`.
    pub fn new(max_processes: usize, max_bytes: usize, tick: ClockTick) -> Self {
        Self {
            tick,
            max_processes: max_processes.max(1),
            states: BTreeMap::new(),
            next_number: 0,
            window: 0,
            use_count: 0,
            loss_count: 0,
            memory: HistoryMemory::new(max_bytes),
            mappings_dropped: 0,
            changed: HashSet::new(),
            removed: Vec::new(),
        }
    }

    /// Returns the number of processes.
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// Returns whether there is no process.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// Returns the number of the window.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Returns the number of losses of records.
    pub fn loss_count(&self) -> u64 {
        self.loss_count
    }

    /// Returns whether a process with this id is known.
    pub fn has_process(&self, pid: u32) -> bool {
        self.latest_key(pid).is_some()
    }

    /// Applies a record. Its time must be in nanoseconds since boot (`CLOCK_BOOTTIME`).
    pub fn apply_record(&mut self, record: &SidebandRecord<'_>) {
        match &record.event {
            SidebandEvent::Fork(task) => self.apply_fork(task),
            SidebandEvent::Comm(comm) => self.apply_comm(comm, record.time_nanos),
            SidebandEvent::Mmap(mmap) => self.apply_mmap(mmap, record.time_nanos),
            SidebandEvent::Exit(task) => self.apply_exit(task),
            SidebandEvent::Lost(_) => self.apply_loss(),
            SidebandEvent::Cgroup(_) | SidebandEvent::Other(_) => {}
        }
        self.limit_memory();
    }

    /// Brings the memory below its bound, if it may exceed it: drops mappings, then processes, in the order of
    /// eviction.
    pub fn limit_memory(&mut self) {
        if !self.memory.is_full() {
            return;
        }
        let order = self.eviction_order();
        let states = order.iter().filter_map(|key| Some((*key, self.states.get(key)?)));
        let reduction = self.memory.measure(states);
        for key in reduction.without_mappings {
            let dropped = self.states.get_mut(&key).map_or(0, ProcessState::drop_mappings);
            self.mappings_dropped += dropped as u64;
        }
        for key in reduction.removed {
            self.remove(key, true);
        }
    }

    /// Returns the bytes of all processes, at most too many.
    pub fn memory(&self) -> usize {
        self.memory.bytes()
    }

    /// Returns the number of mappings that were dropped because of the bound of memory.
    pub fn mappings_dropped(&self) -> u64 {
        self.mappings_dropped
    }

    /// Notes that records were lost: all that is known of running processes may be old. The caller sees it by
    /// [`Self::loss_count`], and loads processes as its budget allows.
    pub fn apply_loss(&mut self) {
        self.loss_count = self.loss_count.wrapping_add(1);
    }

    /// Applies a snapshot of the process of a request. Does nothing if the snapshot is of another process.
    pub fn apply_snapshot(&mut self, request: &ProcessRequest, snapshot: ProcessSnapshot) {
        if !self.tick.contains(snapshot.start_ticks, request.start_nanos) {
            return;
        }
        let is_load = snapshot.mappings.is_some();
        self.memory.add(snapshot.bytes());
        let loss_count = self.loss_count;
        let state = self.find_or_add(request);
        state.start.ticks = Some(snapshot.start_ticks);
        state.synced_after_loss = loss_count;
        state.apply_snapshot(request.exec_id, snapshot);
        if is_load {
            self.changed.remove(&request.pid);
        }
    }

    /// Adds a process that records refer to as the parent of another one.
    pub fn add_parent(&mut self, pid: u32, snapshot: ProcessSnapshot) {
        if !self.has_process(pid) {
            let mut state = ProcessState::default();
            state.start.ticks = Some(snapshot.start_ticks);
            self.memory.add(snapshot.bytes());
            state.apply_unsampled_snapshot(snapshot);
            self.insert(pid, state);
        }
    }

    /// Returns the state of a sampled process, if it is known, and marks it as used.
    pub fn find(&mut self, request: &ProcessRequest) -> Option<&mut ProcessState> {
        let key = self.find_key(request)?;
        self.use_count += 1;
        let state = self.states.get_mut(&key)?;
        state.start.nanos = Some(request.start_nanos);
        state.last_use = self.use_count;
        state.is_sampled = true;
        Some(state)
    }

    /// Returns the state of a sampled process, and marks it as used. Adds an empty one if it is not known.
    pub fn find_or_add(&mut self, request: &ProcessRequest) -> &mut ProcessState {
        let key = match self.find_key(request) {
            Some(key) => key,
            None => self.insert(request.pid, ProcessState::default()),
        };
        self.use_count += 1;
        let state = self.states.entry(key).or_default();
        state.start.nanos = Some(request.start_nanos);
        state.last_use = self.use_count;
        state.is_sampled = true;
        state
    }

    /// Returns the mapping of a process that contains an address, as far as it is known.
    pub fn resolve(&self, request: &ProcessRequest, address: u64) -> Option<&Mapping> {
        let state = self.states.get(&self.find_key(request)?)?;
        state.image(request.exec_id).and_then(|image| image.mapping_at(address))
    }

    /// Returns and forgets the loaded processes whose mappings changed.
    pub fn take_changed(&mut self) -> Vec<ProcessRequest> {
        let changed = std::mem::take(&mut self.changed);
        let mut requests: Vec<_> = changed.into_iter().filter_map(|pid| self.loaded_request(pid)).collect();
        requests.sort_unstable_by_key(|request| request.pid);
        requests
    }

    /// Returns the running program of a loaded process. None if it ended.
    pub fn loaded_request(&self, pid: u32) -> Option<ProcessRequest> {
        let (_, state) = self.states_with_pid(pid).rev().find(|(_, state)| state.is_loaded)?;
        if state.exited_in.is_some() {
            return None;
        }
        let exec_id = state.latest_exec_id().unwrap_or_default();
        Some(ProcessRequest { pid, start_nanos: state.start.nanos?, exec_id })
    }

    /// Ends a window: removes the processes that ended before it. Returns those with entries in the maps of the
    /// kernel, which also includes processes that were evicted.
    pub fn end_window(&mut self) -> Vec<RemovedProcess> {
        let ended =
            self.states.iter().filter(|(_, state)| state.exited_in.is_some_and(|exit| exit < self.window));
        let ended: Vec<_> = ended.map(|(key, _)| *key).collect();
        for key in ended {
            self.remove(key, false);
        }
        self.window += 1;
        let removed = std::mem::take(&mut self.removed);
        let is_loaded = |pid| self.states_with_pid(pid).any(|(_, state)| state.is_loaded);
        let mut removed: Vec<_> = removed.into_iter().filter(|process| !is_loaded(process.pid)).collect();
        removed.sort_unstable();
        removed.dedup_by_key(|process| process.pid);
        removed
    }

    /// Marks a process as ended, for one that `/proc` no longer has.
    pub fn mark_ended(&mut self, request: &ProcessRequest) {
        let key = self.find_key(request);
        if let Some(state) = key.and_then(|key| self.states.get_mut(&key)) {
            state.exited_in.get_or_insert(self.window);
        }
    }

    fn apply_fork(&mut self, task: &TaskRecord) {
        // A thread of the same process has no state of its own.
        if task.pid == task.parent_pid || !is_visible(task.pid) {
            return;
        }
        let forked = ProcessState::forked(self.parent_of(task), task);
        if let Some(key) = self.latest_key(task.pid) {
            // A request of the process may be handled before the record of its fork.
            if let Some(state) = self.states.get_mut(&key)
                && state.exited_in.is_none()
                && state.start.is_of_fork(task.time_nanos)
            {
                state.set_ancestry(&forked);
                return;
            }
            let window = self.window;
            self.states.entry(key).and_modify(|state| state.exited_in = state.exited_in.or(Some(window)));
        }
        self.insert(task.pid, forked);
    }

    fn parent_of(&self, task: &TaskRecord) -> Option<&ProcessState> {
        self.states.get(&self.latest_key(task.parent_pid)?)
    }

    fn apply_comm(&mut self, record: &CommRecord<'_>, time_nanos: u64) {
        if !is_visible(record.pid) {
            return;
        }
        let comm = String::from_utf8_lossy(record.comm).into();
        let state = self.latest_or_add(record.pid, time_nanos);
        if record.is_exec {
            state.exec(comm);
        } else if record.tid == record.pid {
            state.rename(comm);
        }
        if record.is_exec && state.is_loaded {
            self.changed.insert(record.pid);
        }
    }

    fn apply_mmap(&mut self, record: &MmapRecord<'_>, time_nanos: u64) {
        let end = record.start.checked_add(record.bytes);
        let Some(end) = end.filter(|end| *end <= USER_ADDRESS_END && record.bytes > 0) else { return };
        if !is_visible(record.pid) {
            return;
        }
        let mut mapping = Mapping::new(record.start..end, record.offset, record.path);
        match record.inode {
            MappedInode::BuildId(id) => mapping.build_id = Some(id),
            MappedInode::Inode { major, minor, inode } => {
                mapping = mapping.with_inode(DeviceNumber { major, minor }, inode);
            }
        }
        let state = self.latest_or_add(record.pid, time_nanos);
        let bytes = state.map(mapping, record.is_executable, MAX_RECORDED_MAPPINGS);
        if state.is_loaded {
            self.changed.insert(record.pid);
        }
        self.memory.add(bytes);
    }

    fn apply_exit(&mut self, task: &TaskRecord) {
        // Threads end without their process. The main thread ends last in all but rare programs.
        if task.tid == task.pid
            && let Some(key) = self.latest_key(task.pid)
            && let Some(state) = self.states.get_mut(&key)
        {
            state.exited_in.get_or_insert(self.window);
        }
    }

    fn states_with_pid(&self, pid: u32) -> impl DoubleEndedIterator<Item = (StateKey, &ProcessState)> {
        self.states.range((pid, 0)..=(pid, u64::MAX)).map(|(key, state)| (*key, state))
    }

    fn latest_key(&self, pid: u32) -> Option<StateKey> {
        self.states_with_pid(pid).next_back().map(|(key, _)| key)
    }

    /// Returns the process with an id that did not end, for a record that shows that it runs.
    fn latest_or_add(&mut self, pid: u32, time_nanos: u64) -> &mut ProcessState {
        let key = match self.latest_key(pid) {
            Some(key) => key,
            None => self.insert(pid, ProcessState::known_at(time_nanos)),
        };
        let state = self.states.entry(key).or_default();
        state.exited_in = None;
        state
    }

    fn find_key(&self, request: &ProcessRequest) -> Option<StateKey> {
        let mut states = self.states_with_pid(request.pid);
        let found = states.find(|(_, state)| state.start.is_at(request.start_nanos, self.tick));
        found.map(|(key, _)| key)
    }

    fn insert(&mut self, pid: u32, state: ProcessState) -> StateKey {
        if self.states.len() >= self.max_processes {
            self.evict();
        }
        let key = (pid, self.next_number);
        self.next_number += 1;
        self.memory.add(state.own_bytes());
        self.states.insert(key, state);
        key
    }

    fn remove(&mut self, key: StateKey, is_evicted: bool) {
        let Some(state) = self.states.remove(&key) else { return };
        if state.is_loaded {
            self.removed.push(RemovedProcess { pid: key.0, is_evicted });
        }
    }

    /// Removes an eighth of the processes.
    fn evict(&mut self) {
        let count = (self.max_processes / 8).max(1);
        for key in self.eviction_order().into_iter().take(count) {
            self.remove(key, true);
        }
    }

    /// Returns all processes: first those that were never sampled, the ended ones before the others, then the least
    /// recently used ones.
    fn eviction_order(&self) -> Vec<StateKey> {
        let rank = |state: &ProcessState| (state.is_sampled, state.exited_in.is_none(), state.last_use);
        let mut order: Vec<_> = self.states.iter().map(|(key, state)| (rank(state), key.1, key.0)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, number, pid)| (pid, number)).collect()
    }
}

/// Returns whether a process id names a process of the own PID namespace that did not end.
fn is_visible(pid: u32) -> bool {
    pid != 0 && pid != u32::MAX
}

#[cfg(test)]
#[path = "tests/history_tests.rs"]
mod tests;
