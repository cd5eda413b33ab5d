//! Processes whose mappings are in the maps of the kernel.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::frame::FileId;
use crate::layout::MappingValue;
use crate::processes::{Mapping, MappingKind, ProcessRequest, cover_with_prefixes};

/// Maximum number of mappings of one process in the maps of the kernel.
const MAX_MAPPINGS_PER_PROCESS: usize = 8192;
/// Shortest time between two loads of one process.
const MIN_RELOAD_INTERVAL: Duration = Duration::from_millis(100);
/// Time between two loads as a multiple of the time that a load takes: reading takes 2 % of a CPU at most.
const RELOAD_COST_FACTOR: u32 = 50;
/// Shortest time between two loads of a process of which not all mappings have a place.
const MIN_PARTIAL_RELOAD_INTERVAL: Duration = Duration::from_secs(1);
/// Time before a refused process is loaded another time: the first, and the longest. It doubles each time.
const MIN_REFUSAL_PAUSE: Duration = Duration::from_secs(1);
const MAX_REFUSAL_PAUSE: Duration = Duration::from_secs(300);
/// Refused processes that are remembered.
const MAX_REFUSALS: usize = 1024;

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
    /// Processes for which the maps had no place.
    refused: HashMap<u32, ProcessRefusal>,
}

#[derive(Clone, Copy, Debug)]
struct ProcessRefusal {
    request: ProcessRequest,
    pause: Duration,
    /// Monotonic time before which it is not loaded.
    retry_after: Duration,
}

/// Mappings of a process that have a place in the maps of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SelectedMappings {
    /// By address.
    pub(super) mappings: Vec<Mapping>,
    /// Some were left out.
    pub(super) is_partial: bool,
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

    /// Returns the request by which a sample named the process, if it is loaded. Records of events do not contain the exec
    /// id, so theirs is derived, and a wrong one would hide the process from samples.
    pub(super) fn confirmed_request(&self, derived: ProcessRequest) -> ProcessRequest {
        let loaded = self.by_pid.get(&derived.pid).map(|loaded| loaded.request);
        loaded.filter(|request| request.start_nanos == derived.start_nanos).unwrap_or(derived)
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

    /// Returns the ids of all processes.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_pid.keys().copied()
    }

    /// Returns the window of the last sample or load of a process.
    pub(super) fn used_in(&self, pid: u32) -> Option<u64> {
        self.by_pid.get(&pid).map(|loaded| loaded.used_in)
    }

    /// Returns whether the mappings of a process may be read now: it is new, or its last load or refusal is long enough
    /// ago.
    pub(super) fn may_load(&self, request: &ProcessRequest, now: Duration) -> bool {
        let refusal = self.refused.get(&request.pid).filter(|refusal| refusal.request == *request);
        self.get(request).is_none_or(|loaded| loaded.reload_after <= now)
            && refusal.is_none_or(|refusal| refusal.retry_after <= now)
    }

    /// Sets the pause after a load from the time that it took.
    pub(super) fn pause_after_load(&mut self, request: &ProcessRequest, load: &LoadTime) {
        self.refused.remove(&request.pid);
        if let Some(loaded) = self.by_pid.get_mut(&request.pid)
            && loaded.request == *request
        {
            let min_pause = if load.is_partial { MIN_PARTIAL_RELOAD_INTERVAL } else { MIN_RELOAD_INTERVAL };
            let pause = (load.cpu_time * RELOAD_COST_FACTOR).max(min_pause);
            loaded.reload_after = load.ended + pause;
        }
    }

    /// Notes that the maps had no place for a process.
    pub(super) fn refuse(&mut self, request: &ProcessRequest, now: Duration) {
        let before = self.refused.get(&request.pid).filter(|refusal| refusal.request == *request);
        let pause = before.map_or(MIN_REFUSAL_PAUSE, |refusal| (refusal.pause * 2).min(MAX_REFUSAL_PAUSE));
        if self.refused.len() >= MAX_REFUSALS {
            let first = self.refused.values().min_by_key(|refusal| refusal.retry_after);
            let pid = first.map(|refusal| refusal.request.pid);
            pid.and_then(|pid| self.refused.remove(&pid));
        }
        let refusal = ProcessRefusal { request: *request, pause, retry_after: now + pause };
        self.refused.insert(request.pid, refusal);
    }

    /// Returns the number of processes that are refused now.
    pub(super) fn refused_count(&self) -> usize {
        self.refused.len()
    }

    /// Forgets refusals of processes that did not request to be loaded for as long as their pause was.
    pub(super) fn forget_old_refusals(&mut self, now: Duration) {
        self.refused.retain(|_, refusal| refusal.retry_after + refusal.pause > now);
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

/// Time of a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadTime {
    /// Monotonic time of its end.
    pub(super) ended: Duration,
    /// CPU time that it took.
    pub(super) cpu_time: Duration,
    /// Mappings were left out.
    pub(super) is_partial: bool,
}

impl LoadedProcess {
    pub(super) fn new(request: ProcessRequest, values: Vec<MappingValue>, window: u64) -> Self {
        Self { request, values, used_in: window, reload_after: Duration::ZERO }
    }
}

/// Returns the mappings of a process that are loaded: files by address, then anonymous memory by size, up to the bounds
/// of mappings and prefixes. Adjacent anonymous mappings become one.
pub(super) fn select_mappings(mappings: &[Mapping], max_prefixes: usize) -> SelectedMappings {
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
    let prefix_count = |mapping: &Mapping| cover_with_prefixes(mapping.start, mapping.end).count();
    let total: usize = merged.iter().map(prefix_count).sum();
    if merged.len() <= MAX_MAPPINGS_PER_PROCESS && total <= max_prefixes {
        return SelectedMappings { mappings: merged, is_partial: false };
    }
    // Stable: the order by address stays where it is not decided.
    merged.sort_by_key(|mapping| match mapping.kind {
        MappingKind::Anonymous => (true, u64::MAX - (mapping.end - mapping.start)),
        MappingKind::File | MappingKind::Vdso => (false, 0),
    });
    merged.truncate(MAX_MAPPINGS_PER_PROCESS);
    let mut free = max_prefixes;
    merged.retain(|mapping| {
        let rest = free.checked_sub(prefix_count(mapping));
        free = rest.unwrap_or(free);
        rest.is_some()
    });
    merged.sort_by_key(|mapping| mapping.start);
    SelectedMappings { mappings: merged, is_partial: true }
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
        let selected = select_mappings(&mappings, 100);
        assert!(!selected.is_partial);
        assert_eq!(selected.mappings, [anonymous(0x1000, 0x3000), file, anonymous(0x4000, 0x5000)]);
    }

    #[test]
    fn files_come_before_anonymous_memory_at_the_bound() {
        let gap = |index: u64| anonymous(index * 0x4000, index * 0x4000 + 0x1000);
        let mut mappings: Vec<Mapping> = (1..=MAX_MAPPINGS_PER_PROCESS as u64 + 10).map(gap).collect();
        mappings.push(Mapping::new(1 << 40..(1 << 40) + 0x1000, 0, b"/bin/true"));
        let selected = select_mappings(&mappings, 1 << 20);
        assert!(selected.is_partial);
        assert_eq!(selected.mappings.len(), MAX_MAPPINGS_PER_PROCESS);
        assert_eq!(selected.mappings.last(), mappings.last());
    }

    #[test]
    fn expensive_process_is_loaded_less_often() {
        let mut processes = LoadedProcesses::default();
        let second = Duration::from_secs(1);
        processes.insert(LoadedProcess::new(request(1, 0), Vec::new(), 0));
        let load = LoadTime { ended: second * 2, cpu_time: second, is_partial: false };
        processes.pause_after_load(&request(1, 0), &load);
        assert!(!processes.may_load(&request(1, 0), second * 51));
        assert!(processes.may_load(&request(1, 0), second * 52));
        assert!(processes.may_load(&request(1, 1), second * 2), "another program");
    }

    #[test]
    fn changed_process_keeps_the_exec_id_of_its_samples() {
        let mut processes = LoadedProcesses::default();
        processes.insert(LoadedProcess::new(request(1, 3), Vec::new(), 0));
        assert_eq!(processes.confirmed_request(request(1, 4)), request(1, 3));
        assert_eq!(processes.confirmed_request(request(2, 4)), request(2, 4), "it is not loaded");
        let later = ProcessRequest { start_nanos: 6, ..request(1, 0) };
        assert_eq!(processes.confirmed_request(later), later, "another process with this id");
    }

    #[test]
    fn process_has_a_bound_of_prefixes() {
        const MAX_PREFIXES: usize = 4096;
        // Each needs about 30 prefixes: its ends are not aligned.
        let unaligned = |index: u64| anonymous((index << 28) + 0x1000, (index << 28) + 0x800_1000);
        let mut mappings: Vec<Mapping> = (1..=1000).map(unaligned).collect();
        mappings.push(anonymous(1 << 45, (1 << 45) + (1 << 30)));
        let file = Mapping::new((1 << 46) + 0x1000..(1 << 46) + 0x5000, 0, b"/bin/true");
        mappings.push(file.clone());
        let selected = select_mappings(&mappings, MAX_PREFIXES);
        assert!(selected.is_partial);
        let prefixes =
            selected.mappings.iter().map(|mapping| cover_with_prefixes(mapping.start, mapping.end));
        let prefixes: usize = prefixes.map(Iterator::count).sum();
        assert!(prefixes <= MAX_PREFIXES && prefixes > MAX_PREFIXES - 60, "{prefixes}");
        assert!(selected.mappings.contains(&file));
        assert!(selected.mappings.contains(&anonymous(1 << 45, (1 << 45) + (1 << 30))), "large ones first");
        assert!(selected.mappings.is_sorted_by_key(|mapping| mapping.start));
    }

    #[test]
    fn refused_process_is_retried_after_pauses_that_double() {
        let mut processes = LoadedProcesses::default();
        let process = request(1, 0);
        let mut now = Duration::ZERO;
        for pause in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300].map(Duration::from_secs) {
            processes.refuse(&process, now);
            assert!(!processes.may_load(&process, now + pause - Duration::from_nanos(1)));
            assert!(processes.may_load(&request(1, 1), now), "another program");
            now += pause;
            assert!(processes.may_load(&process, now));
        }
        processes.forget_old_refusals(now + Duration::from_secs(300));
        assert_eq!(processes.refused_count(), 0);
        processes.refuse(&process, now);
        assert!(processes.may_load(&process, now + MIN_REFUSAL_PAUSE), "it begins with the shortest pause");
    }

    #[test]
    fn refusals_are_bounded() {
        let mut processes = LoadedProcesses::default();
        for pid in 0..2 * MAX_REFUSALS as u32 {
            processes.refuse(&request(pid, 0), Duration::from_secs(pid.into()));
        }
        assert_eq!(processes.refused_count(), MAX_REFUSALS);
    }

    #[test]
    fn process_with_mappings_left_out_is_loaded_less_often() {
        let mut processes = LoadedProcesses::default();
        processes.insert(LoadedProcess::new(request(1, 0), Vec::new(), 0));
        let now = Duration::from_secs(9);
        processes.pause_after_load(
            &request(1, 0),
            &LoadTime { ended: now, cpu_time: Duration::ZERO, is_partial: true },
        );
        assert!(!processes.may_load(&request(1, 0), now + MIN_RELOAD_INTERVAL));
        assert!(processes.may_load(&request(1, 0), now + MIN_PARTIAL_RELOAD_INTERVAL));
    }

    #[test]
    fn mapping_is_found_by_address() {
        let value = |start, file| MappingValue { start, end: start + 0x1000, bias: 0, file, reserved: 0 };
        let values = vec![value(0x1000, 7), value(0x2000, 0), value(0x4000, 8)];
        let loaded = LoadedProcess::new(request(1, 0), values, 0);
        assert_eq!(loaded.mapping_at(0x1fff).map(|value| value.file), Some(7));
        assert_eq!(loaded.mapping_at(0x2000), None);
        assert_eq!(loaded.mapping_at(0x3fff), None);
        assert_eq!(loaded.mapping_at(0x4000).map(|value| value.file), Some(8));
    }
}
