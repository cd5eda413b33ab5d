//! Loads of processes after records of process events were lost: their mappings may be old.

use std::collections::HashSet;
use std::time::Duration;

use super::loaded_processes::LoadedProcesses;

/// Part of a CPU that the loads take, as a divisor: 2 %.
const CPU_DIVISOR: u32 = 50;
/// Longest time that the loads take in one pass.
const MAX_PASS_TIME: Duration = Duration::from_millis(100);
/// Shortest time that is worth a pass.
const MIN_PASS_TIME: Duration = Duration::from_millis(1);

/// Loaded processes whose mappings may be old, with a budget of CPU time. A loss during a pass extends it.
#[derive(Debug, Default)]
pub(super) struct ProcessResync {
    suspects: HashSet<u32>,
    seen_losses: u64,
    budget: Duration,
    refilled_at: Duration,
}

// === impl ProcessResync ===

impl ProcessResync {
    /// Suspects all loaded processes if the number of losses grew.
    pub(super) fn note_losses(&mut self, losses: u64, loaded: &LoadedProcesses) {
        if losses != self.seen_losses {
            self.seen_losses = losses;
            self.suspects.extend(loaded.pids());
        }
    }

    /// Begins a pass. Returns the processes to load, those with the latest samples first. Empty if there is no budget.
    pub(super) fn begin_pass(&mut self, now: Duration, loaded: &LoadedProcesses) -> Vec<u32> {
        let refill = now.saturating_sub(self.refilled_at) / CPU_DIVISOR;
        self.budget = (self.budget + refill).min(MAX_PASS_TIME);
        self.refilled_at = now;
        if self.suspects.is_empty() || self.budget < MIN_PASS_TIME {
            return Vec::new();
        }
        self.suspects.retain(|pid| loaded.has_process(*pid));
        let mut order: Vec<u32> = self.suspects.iter().copied().collect();
        order.sort_unstable_by_key(|pid| (std::cmp::Reverse(loaded.used_in(*pid)), *pid));
        order
    }

    /// Returns whether the pass may go on.
    pub(super) fn has_budget(&self) -> bool {
        !self.budget.is_zero()
    }

    /// Notes a load and what it took.
    pub(super) fn spend(&mut self, time: Duration) {
        self.budget = self.budget.saturating_sub(time);
    }

    /// Forgets a process that was loaded, or is to be loaded for another reason.
    pub(super) fn forget(&mut self, pid: u32) {
        self.suspects.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::ProcessRequest;
    use crate::sampler::loaded_processes::LoadedProcess;

    const SECOND: Duration = Duration::from_secs(1);
    const LOAD_TIME: Duration = Duration::from_micros(300);

    fn loaded(count: u32) -> LoadedProcesses {
        let mut loaded = LoadedProcesses::default();
        for pid in 1..=count {
            let request = ProcessRequest { pid, start_nanos: 5, exec_id: 0 };
            loaded.insert(LoadedProcess::new(request, Vec::new(), u64::from(pid % 10)));
        }
        loaded
    }

    /// Loads what a pass allows. Returns the loaded processes.
    fn pass(resync: &mut ProcessResync, now: Duration, loaded: &LoadedProcesses) -> Vec<u32> {
        let mut done = Vec::new();
        for pid in resync.begin_pass(now, loaded) {
            if !resync.has_budget() {
                break;
            }
            resync.forget(pid);
            resync.spend(LOAD_TIME);
            done.push(pid);
        }
        done
    }

    #[test]
    fn pass_is_bounded_by_time_and_begins_with_sampled_processes() {
        let loaded = loaded(10_000);
        let mut resync = ProcessResync::default();
        resync.note_losses(1, &loaded);
        let done = pass(&mut resync, SECOND * 100, &loaded);
        assert_eq!(done.len(), 334, "100 ms");
        assert!(done.iter().all(|pid| loaded.used_in(*pid) == Some(9)));
        assert_eq!(pass(&mut resync, SECOND * 100, &loaded).len(), 0, "no time went by");
        let next = pass(&mut resync, SECOND * 101, &loaded);
        assert_eq!(next.len(), 67, "20 ms");
        assert!(next.iter().all(|pid| !done.contains(pid)));
    }

    #[test]
    fn losses_are_coalesced() {
        let loaded = loaded(10);
        let mut resync = ProcessResync::default();
        for losses in 1..1000 {
            resync.note_losses(losses, &loaded);
        }
        assert_eq!(pass(&mut resync, SECOND * 100, &loaded).len(), 10);
        resync.note_losses(999, &loaded);
        assert_eq!(pass(&mut resync, SECOND * 200, &loaded).len(), 0, "nothing was lost since");
        resync.note_losses(1000, &loaded);
        assert_eq!(pass(&mut resync, SECOND * 300, &loaded).len(), 10);
    }

    #[test]
    fn processes_that_are_not_loaded_any_more_are_forgotten() {
        let mut loaded = loaded(10);
        let mut resync = ProcessResync::default();
        resync.note_losses(1, &loaded);
        loaded.remove(7);
        assert_eq!(pass(&mut resync, SECOND * 100, &loaded).len(), 9);
        assert!(resync.suspects.is_empty());
    }
}
