//! Processes whose mappings are in the maps of the kernel.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::frame::FileId;
use crate::layout::MappingValue;
use crate::processes::{Mapping, MappingKind, ProcessRequest};

/// Maximum number of mappings of one process in the maps of the kernel.
const MAX_MAPPINGS_PER_PROCESS: usize = 8192;
/// Shortest time between two loads of one process.
const MIN_RELOAD_INTERVAL: Duration = Duration::from_millis(100);
/// Time between two loads as a multiple of the time that a load takes: reading takes 2 % of a CPU at most.
const RELOAD_COST_FACTOR: u32 = 50;

/// Loaded process.
#[derive(Clone, Debug)]
pub(super) struct LoadedProcess {
    pub(super) request: ProcessRequest,
    pub(super) values: Vec<MappingValue>,
    /// Window of the last sample or load.
    pub(super) used_in: u64,
    /// Monotonic time before which the process is not loaded another time.
    reload_after: Duration,
}

/// Loaded processes by id.
#[derive(Debug, Default)]
pub(super) struct LoadedProcesses {
    by_pid: HashMap<u32, LoadedProcess>,
}

// === impl LoadedProcess ===

impl LoadedProcess {
    /// Returns the mapping of a file that contains an address.
    pub(super) fn mapping_at(&self, address: u64) -> Option<&MappingValue> {
        let index = self.values.partition_point(|value| value.end <= address);
        self.values.get(index).filter(|value| value.start <= address && value.file != 0)
    }
}

// === impl LoadedProcesses ===

impl LoadedProcesses {
    pub(super) fn get(&self, request: &ProcessRequest) -> Option<&LoadedProcess> {
        self.by_pid.get(&request.pid).filter(|loaded| loaded.request == *request)
    }

    /// Returns whether something is loaded under a process id, also of an earlier process or program.
    pub(super) fn has_process(&self, pid: u32) -> bool {
        self.by_pid.contains_key(&pid)
    }

    pub(super) fn remove(&mut self, pid: u32) -> Option<LoadedProcess> {
        self.by_pid.remove(&pid)
    }

    pub(super) fn len(&self) -> usize {
        self.by_pid.len()
    }

    /// Returns whether the mappings of a process may be read now: it is new, or its last load is long enough ago.
    pub(super) fn may_load(&self, request: &ProcessRequest, now: Duration) -> bool {
        self.get(request).is_none_or(|loaded| loaded.reload_after <= now)
    }

    pub(super) fn insert(&mut self, loaded: LoadedProcess) {
        self.by_pid.insert(loaded.request.pid, loaded);
    }

    pub(super) fn touch(&mut self, request: &ProcessRequest, window: u64) {
        if let Some(loaded) = self.by_pid.get_mut(&request.pid)
            && loaded.request == *request
        {
            loaded.used_in = window;
        }
    }

    /// Returns the least recently used process that was not used in a window.
    pub(super) fn least_used(&self, window: u64) -> Option<u32> {
        let unused = self.by_pid.values().filter(|loaded| loaded.used_in < window);
        unused.min_by_key(|loaded| (loaded.used_in, loaded.request.pid)).map(|loaded| loaded.request.pid)
    }

    /// Returns the files that processes map.
    pub(super) fn mapped_files(&self) -> HashSet<FileId> {
        let values = self.by_pid.values().flat_map(|loaded| &loaded.values);
        values.map(|value| FileId(value.file)).collect()
    }

    /// Returns the allocated bytes.
    pub(super) fn memory(&self) -> u64 {
        let values: usize = self.by_pid.values().map(|loaded| loaded.values.capacity()).sum();
        (values * size_of::<MappingValue>() + self.by_pid.capacity() * size_of::<LoadedProcess>()) as u64
    }
}

impl LoadedProcess {
    pub(super) fn new(
        request: ProcessRequest,
        values: Vec<MappingValue>,
        window: u64,
        started: Duration,
        ended: Duration,
    ) -> Self {
        let pause = (ended.saturating_sub(started) * RELOAD_COST_FACTOR).max(MIN_RELOAD_INTERVAL);
        Self { request, values, used_in: window, reload_after: ended + pause }
    }
}

/// Returns the mappings of a process that are loaded: all files, then anonymous memory up to the bound. Adjacent
/// anonymous mappings become one.
pub(super) fn select_mappings(mappings: &[Mapping]) -> Vec<Mapping> {
    let mut merged: Vec<Mapping> = Vec::with_capacity(mappings.len().min(MAX_MAPPINGS_PER_PROCESS));
    for mapping in mappings {
        match merged.last_mut() {
            Some(last)
                if last.kind == MappingKind::Anonymous
                    && mapping.kind == MappingKind::Anonymous
                    && last.end == mapping.start =>
            {
                last.end = mapping.end;
            }
            _ => merged.push(mapping.clone()),
        }
    }
    if merged.len() > MAX_MAPPINGS_PER_PROCESS {
        // Stable: files first, each group by address.
        merged.sort_by_key(|mapping| mapping.kind == MappingKind::Anonymous);
        merged.truncate(MAX_MAPPINGS_PER_PROCESS);
        merged.sort_by_key(|mapping| mapping.start);
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anonymous(start: u64, end: u64) -> Mapping {
        Mapping::new(start..end, 0, b"")
    }

    fn request(pid: u32, exec_id: u32) -> ProcessRequest {
        ProcessRequest { pid, start_nanos: 5, exec_id }
    }

    #[test]
    fn adjacent_anonymous_mappings_become_one() {
        let file = Mapping::new(0x3000..0x4000, 0, b"/bin/true");
        let mappings =
            [anonymous(0x1000, 0x2000), anonymous(0x2000, 0x3000), file.clone(), anonymous(0x4000, 0x5000)];
        let selected = select_mappings(&mappings);
        assert_eq!(selected, [anonymous(0x1000, 0x3000), file, anonymous(0x4000, 0x5000)]);
    }

    #[test]
    fn files_come_before_anonymous_memory_at_the_bound() {
        let gap = |index: u64| anonymous(index * 0x4000, index * 0x4000 + 0x1000);
        let mut mappings: Vec<Mapping> = (1..=MAX_MAPPINGS_PER_PROCESS as u64 + 10).map(gap).collect();
        mappings.push(Mapping::new(1 << 40..(1 << 40) + 0x1000, 0, b"/bin/true"));
        let selected = select_mappings(&mappings);
        assert_eq!(selected.len(), MAX_MAPPINGS_PER_PROCESS);
        assert_eq!(selected.last(), mappings.last());
    }

    #[test]
    fn expensive_process_is_loaded_less_often() {
        let mut processes = LoadedProcesses::default();
        let second = Duration::from_secs(1);
        processes.insert(LoadedProcess::new(request(1, 0), Vec::new(), 0, second, second * 2));
        assert!(!processes.may_load(&request(1, 0), second * 51));
        assert!(processes.may_load(&request(1, 0), second * 52));
        assert!(processes.may_load(&request(1, 1), second * 2), "another program");
    }

    #[test]
    fn mapping_is_found_by_address() {
        let value = |start, file| MappingValue { start, end: start + 0x1000, bias: 0, file, reserved: 0 };
        let values = vec![value(0x1000, 7), value(0x2000, 0), value(0x4000, 8)];
        let loaded = LoadedProcess::new(request(1, 0), values, 0, Duration::ZERO, Duration::ZERO);
        assert_eq!(loaded.mapping_at(0x1fff).map(|value| value.file), Some(7));
        assert_eq!(loaded.mapping_at(0x2000), None);
        assert_eq!(loaded.mapping_at(0x3fff), None);
        assert_eq!(loaded.mapping_at(0x4000).map(|value| value.file), Some(8));
    }
}
