//! Memory of the known processes.

use std::collections::HashMap;
use std::sync::Arc;

use super::StateKey;
use crate::processes::image::mapping_bytes;
use crate::processes::maps::Mapping;
use crate::processes::state::ProcessState;

/// Shares of the bound, as divisors. If less than the first is free, processes are reduced until the second is. So
/// measuring is rare.
const MIN_FREE_DIVISOR: usize = 8;
const REDUCED_FREE_DIVISOR: usize = 4;

/// Bytes of all processes: as they were measured last, and what was added since.
#[derive(Debug)]
pub(super) struct HistoryMemory {
    measured_bytes: usize,
    added_bytes: usize,
    max_bytes: usize,
}

/// Mappings of all processes. Processes share them after a fork, so each is counted once.
#[derive(Debug, Default)]
struct SharedMappings {
    by_address: HashMap<*const Vec<Mapping>, SharedEntry>,
    bytes: usize,
}

#[derive(Debug)]
struct SharedEntry {
    users: usize,
    bytes: usize,
}

/// Processes to reduce.
#[derive(Debug, Default)]
pub(super) struct Reduction {
    /// Processes that lose their mappings.
    pub(super) without_mappings: Vec<StateKey>,
    /// Processes to remove.
    pub(super) removed: Vec<StateKey>,
}

// === impl HistoryMemory ===

impl HistoryMemory {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { measured_bytes: 0, added_bytes: 0, max_bytes }
    }

    /// Notes new bytes.
    pub(super) fn add(&mut self, bytes: usize) {
        self.added_bytes = self.added_bytes.saturating_add(bytes);
    }

    /// Returns the bytes, at most too many.
    pub(super) fn bytes(&self) -> usize {
        self.measured_bytes.saturating_add(self.added_bytes)
    }

    /// Returns whether the bound may be exceeded.
    pub(super) fn is_full(&self) -> bool {
        self.bytes() > self.max_bytes
    }

    /// Measures the processes, which are in the order in which they are reduced. Returns what brings them below their
    /// bound: first mappings go, then processes.
    pub(super) fn measure<'a>(
        &mut self,
        states: impl Iterator<Item = (StateKey, &'a ProcessState)> + Clone,
    ) -> Reduction {
        let mut mappings = SharedMappings::default();
        let mut own_bytes = 0;
        for (_, state) in states.clone() {
            own_bytes += state.own_bytes();
            mappings.add(state);
        }
        let mut reduction = Reduction::default();
        let is_full = own_bytes + mappings.bytes > self.max_bytes - self.max_bytes / MIN_FREE_DIVISOR;
        let divisor = if is_full { REDUCED_FREE_DIVISOR } else { MIN_FREE_DIVISOR };
        let target = self.max_bytes - self.max_bytes / divisor;
        for (key, state) in states.clone() {
            if own_bytes + mappings.bytes <= target {
                break;
            }
            mappings.remove(state);
            reduction.without_mappings.push(key);
        }
        for (key, state) in states {
            if own_bytes + mappings.bytes <= target {
                break;
            }
            own_bytes = own_bytes.saturating_sub(state.own_bytes());
            reduction.removed.push(key);
        }
        self.measured_bytes = own_bytes + mappings.bytes;
        self.added_bytes = 0;
        reduction
    }
}

// === impl SharedMappings ===

impl SharedMappings {
    fn add(&mut self, state: &ProcessState) {
        for image in state.images() {
            let entry = self.by_address.entry(Arc::as_ptr(&image.mappings)).or_insert_with(|| {
                let bytes = mapping_bytes(&image.mappings);
                self.bytes += bytes;
                SharedEntry { users: 0, bytes }
            });
            entry.users += 1;
        }
    }

    fn remove(&mut self, state: &ProcessState) {
        for image in state.images() {
            let Some(entry) = self.by_address.get_mut(&Arc::as_ptr(&image.mappings)) else { continue };
            entry.users = entry.users.saturating_sub(1);
            if entry.users == 0 {
                self.bytes = self.bytes.saturating_sub(std::mem::take(&mut entry.bytes));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf_events::TaskRecord;

    #[test]
    fn measuring_leaves_free_bytes() {
        let task = TaskRecord { pid: 2, parent_pid: 1, tid: 2, parent_tid: 1, time_nanos: 5 };
        let states: Vec<ProcessState> = (0..100).map(|_| ProcessState::forked(None, &task)).collect();
        let bytes: usize = states.iter().map(ProcessState::own_bytes).sum();
        // Within the bound, but so close to it that the next process would exceed it.
        let mut memory = HistoryMemory::new(bytes + 1);
        let keyed = states.iter().map(|state| ((2, 0), state));
        let reduction = memory.measure(keyed);
        assert!((25..=27).contains(&reduction.removed.len()), "{}", reduction.removed.len());
        assert!(memory.bytes() <= bytes - bytes / 8);
    }
}
