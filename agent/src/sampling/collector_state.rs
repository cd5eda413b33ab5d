//! State and counters of the collector, for metrics and pages.

use std::sync::Arc;

use athanor_agent_ebpf::sampler::SamplerStats;
use parking_lot::Mutex;

use super::labels::LabelDrop;

/// Phase of the sampler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SamplerPhase {
    /// The settings turn it off.
    #[default]
    Disabled,
    /// The process lacks privileges. The text names them and the way to get them.
    Unprivileged(String),
    /// The programs are being loaded.
    Starting,
    /// The sampler runs.
    Running,
    /// The kill-switch file exists, or cannot be looked up.
    Stopped,
    /// The kernel refused. It is tried again.
    Failed(String),
}

impl SamplerPhase {
    /// Returns the name on pages and in metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Unprivileged(_) => "unprivileged",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Failed(_) => "failed",
        }
    }

    /// Returns whether it samples, or tries to.
    pub fn may_sample(&self) -> bool {
        !matches!(self, Self::Disabled | Self::Unprivileged(_))
    }

    /// Returns the reason why it does not sample.
    pub fn problem(&self) -> Option<&str> {
        match self {
            Self::Unprivileged(problem) | Self::Failed(problem) => Some(problem),
            Self::Stopped => Some(
                "the kill-switch file exists or cannot be looked up (sampler.kill_switch_file); remove it, or \
                     let the agent search its folders",
            ),
            Self::Disabled | Self::Starting | Self::Running => None,
        }
    }
}

/// Counters of the collector.
#[derive(Clone, Debug, Default)]
pub struct CollectorStats {
    /// Phase.
    pub phase: SamplerPhase,
    /// Counters of the sampler. They go on after a restart of the sampler.
    pub sampler: SamplerStats,
    /// Windows that were read.
    pub windows: u64,
    /// Windows that could not be read.
    pub lost_windows: u64,
    /// Profiles that the spool stored.
    pub profiles: u64,
    /// Samples in these profiles.
    pub samples_stored: u64,
    /// Profiles that the spool rejected.
    pub rejected_profiles: u64,
    /// Samples in rejected profiles.
    pub samples_rejected: u64,
    /// Samples in no profile, in the order of [`LabelDrop::ALL`].
    pub samples_dropped: [u64; LabelDrop::ALL.len()],
    /// Processes whose labels are decided.
    pub labeled_processes: u64,
}

/// Counters that several tasks change.
#[derive(Default)]
pub(super) struct CollectorState {
    stats: Mutex<StateInner>,
}

#[derive(Default)]
struct StateInner {
    stats: CollectorStats,
    /// Sum of the counters of samplers that ended.
    ended: SamplerStats,
    current: Option<Arc<SamplerStats>>,
}

impl CollectorState {
    /// Returns a copy of the counters.
    pub(super) fn snapshot(&self) -> CollectorStats {
        let inner = self.stats.lock();
        let mut stats = inner.stats.clone();
        stats.sampler = inner.ended.clone();
        if let Some(current) = &inner.current {
            add_stats(&mut stats.sampler, current);
        }
        stats
    }

    /// Sets the phase. Returns whether it differs from the one before.
    pub(super) fn set_phase(&self, phase: SamplerPhase) -> bool {
        let mut inner = self.stats.lock();
        let is_changed = inner.stats.phase != phase;
        inner.stats.phase = phase;
        is_changed
    }

    /// Changes the counters of the collector.
    pub(super) fn update(&self, change: impl FnOnce(&mut CollectorStats)) {
        change(&mut self.stats.lock().stats);
    }

    /// Sets the counters of the running sampler.
    pub(super) fn set_sampler_stats(&self, stats: Arc<SamplerStats>) {
        self.stats.lock().current = Some(stats);
    }

    /// Keeps the counters of a sampler that ended. Its gauges are gone.
    pub(super) fn end_sampler(&self) {
        let mut inner = self.stats.lock();
        let Some(current) = inner.current.take() else { return };
        add_stats(&mut inner.ended, &current);
        let ended = &mut inner.ended;
        for gauge in [
            &mut ended.pages,
            &mut ended.rows,
            &mut ended.map_bytes,
            &mut ended.table_bytes,
            &mut ended.processes,
        ] {
            *gauge = 0;
        }
        ended.cpu_percent = 0.0;
        ended.rate_hz = 0.0;
    }
}

/// Adds the counters of a sampler. Its gauges replace the others.
fn add_stats(sum: &mut SamplerStats, added: &SamplerStats) {
    let add = |sum: &mut u64, added: u64| *sum = sum.saturating_add(added);
    add(&mut sum.samples_taken, added.samples_taken);
    add(&mut sum.samples_delivered, added.samples_delivered);
    sum.samples_lost.iter_mut().zip(added.samples_lost).for_each(|(sum, added)| add(sum, added));
    sum.samples_by_end.iter_mut().zip(added.samples_by_end).for_each(|(sum, added)| add(sum, added));
    add(&mut sum.samples_thinned, added.samples_thinned);
    add(&mut sum.pages_evicted, added.pages_evicted);
    add(&mut sum.processes_evicted, added.processes_evicted);
    add(&mut sum.names_evicted, added.names_evicted);
    add(&mut sum.processes_refused, added.processes_refused);
    add(&mut sum.processes_resynced, added.processes_resynced);
    add(&mut sum.names_dropped, added.names_dropped);
    add(&mut sum.mappings_dropped, added.mappings_dropped);
    add(&mut sum.indexes_refused, added.indexes_refused);
    add(&mut sum.events_lost, added.events_lost);
    add(&mut sum.program_nanos, added.program_nanos);
    add(&mut sum.user_nanos, added.user_nanos);
    sum.pages = added.pages;
    sum.rows = added.rows;
    sum.map_bytes = added.map_bytes;
    sum.table_bytes = added.table_bytes;
    sum.processes = added.processes;
    sum.cpu_percent = added.cpu_percent;
    sum.rate_hz = added.rate_hz;
}
