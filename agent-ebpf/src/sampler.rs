//! The sampler: one value that its owner polls and that returns windows.
//!
//! ```text
//!  poll_fd readable ─► handle_events:  frames, process events, requests ─► mappings and rows into maps
//!  end of a window  ─► close_window:   switch sides ─► counts + frames + facts + names ─► SampleWindow
//! ```
//!
//! * [`object_files`]: files by number. [`loaded_processes`]: processes in the maps. [`row_pages`]: rows in the
//!   maps. [`requests`]: what the BPF program asks for.
//! * [`window_builder`], [`naming`]: the result. [`rate_governor`], [`cost`], [`memory_shares`]: bounds of the own
//!   cost.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{ByteSize, Clock, Random, Timestamp};

use crate::frame::FileId;
use crate::kernel::{KernelConfig, KernelError, KernelSampler, SideSampling};
use crate::layout::{StackCount, StackEnd, StackKey};
use crate::processes::{ProcessRequest, ProcessTable, ProcessTableConfig};
use crate::symbols::{KernelSymbolFile, Symbolizer};
use crate::window::SampleWindow;

use self::cost::CostMeter;
use self::loaded_processes::LoadedProcesses;
use self::memory_shares::MemoryShares;
use self::object_files::ObjectFiles;
use self::rate_governor::{RateGovernor, SamplingRate};
use self::resync::ProcessResync;
use self::row_pages::RowPages;
use self::window_builder::{PendingFrames, WindowStacks};

mod cost;
mod loaded_processes;
mod memory_shares;
mod naming;
mod object_files;
mod rate_governor;
mod requests;
mod resync;
mod row_pages;
mod window_builder;

/// Maximum number of pages of rows.
const MAX_PAGES: u32 = 16_384;
/// Maximum number of processes.
const MAX_PROCESSES: usize = 16_384;

/// Settings of a sampler.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerConfig {
    /// Samples per second and CPU, 1 to 997.
    pub frequency_hz: u32,
    /// Process to sample. None samples the host.
    pub process: Option<u32>,
    /// Count stacks by thread name.
    pub thread_names: bool,
    /// Look up names of functions.
    pub symbolize: bool,
    /// Bound of maps, rows, tables and names.
    pub max_memory: ByteSize,
    /// Bound of its own share of all CPUs, in percent.
    pub max_cpu_percent: f64,
    /// Names of environment variables that become facts.
    pub environment_variables: Vec<String>,
    /// Folder of proc, `/proc`.
    pub proc_folder: PathBuf,
    /// Sampling pauses while this file exists.
    pub kill_switch_file: Option<PathBuf>,
}

/// Counters of a sampler. All counters only grow.
#[derive(Clone, Debug, Default)]
pub struct SamplerStats {
    /// Samples taken by the BPF program.
    pub samples_taken: u64,
    /// Samples in windows.
    pub samples_delivered: u64,
    /// Lost samples by reason, in the order of `LostReason::ALL`.
    pub samples_lost: [u64; 3],
    /// Delivered samples by the end of their stack, in the order of `StackEnd::ALL`.
    pub samples_by_end: [u64; StackEnd::ALL.len()],
    /// Samples left out by probability.
    pub samples_thinned: u64,
    /// Pages of rows in the maps.
    pub pages: u64,
    /// Rows in the maps.
    pub rows: u64,
    /// Evicted pages.
    pub pages_evicted: u64,
    /// Evicted processes.
    pub processes_evicted: u64,
    /// Loads that the maps of the kernel had no place for.
    pub processes_refused: u64,
    /// Loads of processes because records of their changes were lost.
    pub processes_resynced: u64,
    /// Evicted tables of names.
    pub names_evicted: u64,
    /// Names that a window did not contain because of its bound.
    pub names_dropped: u64,
    /// Mappings of processes that were forgotten because of their bound.
    pub mappings_dropped: u64,
    /// Files whose call frame information was not used because it is damaged or exceeds its bound.
    pub indexes_refused: u64,
    /// Bytes of BPF maps and rings.
    pub map_bytes: u64,
    /// Bytes of tables in user space.
    pub table_bytes: u64,
    /// Processes whose mappings are loaded.
    pub processes: u64,
    /// Lost records of perf events.
    pub events_lost: u64,
    /// CPU time of the BPF programs.
    pub program_nanos: u64,
    /// CPU time of user space.
    pub user_nanos: u64,
    /// Own share of all CPUs in the last window, in percent.
    pub cpu_percent: f64,
    /// Sampling rate in force, per second and CPU.
    pub rate_hz: f64,
}

/// Failure of the sampler.
#[derive(Debug, thiserror::Error)]
pub enum SamplerError {
    /// The kernel refused. The message tells the cause and the way out.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The folder of proc cannot be read.
    #[error("cannot read {}: {source}; mount proc there", path.display())]
    Proc {
        /// Folder.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
}

/// Running sampler. Drop ends it: nothing stays in the kernel.
pub struct Sampler {
    config: SamplerConfig,
    clock: Clock,
    kernel: KernelSampler,
    processes: ProcessTable,
    loaded: LoadedProcesses,
    /// Loaded processes whose mappings changed.
    changed: BTreeMap<u32, ProcessRequest>,
    resync: ProcessResync,
    max_prefixes: usize,
    files: ObjectFiles,
    pages: RowPages,
    symbolizer: Symbolizer,
    kernel_symbols: Option<KernelSymbolFile>,
    pending: PendingFrames,
    governor: RateGovernor,
    cost: CostMeter,
    window_start: WindowStart,
    is_stopped: bool,
    /// Error after the end of the last window.
    failure: Option<SamplerError>,
    processes_evicted: u64,
    processes_refused: u64,
    processes_resynced: u64,
    max_window_name_bytes: usize,
    /// Bytes of the names of the last window.
    window_name_bytes: usize,
    names_dropped: u64,
    /// Last closed file that was opened for names.
    last_reopened_file: FileId,
    /// Samples whose frames were dropped, by the end that the BPF program counted.
    samples_without_frames: [u64; StackEnd::ALL.len()],
    events_lost: u64,
    has_reported_kallsyms: bool,
    stats: Arc<SamplerStats>,
}

/// Start of a window.
#[derive(Clone, Copy, Debug)]
struct WindowStart {
    wall: Timestamp,
    monotonic: Duration,
}

impl WindowStart {
    fn now(clock: &Clock) -> Self {
        Self { wall: clock.wall(), monotonic: clock.monotonic() }
    }
}

impl Sampler {
    /// Loads and attaches the programs. Blocks for up to seconds.
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses, with what is missing.
    pub fn start(config: SamplerConfig, clock: Clock, random: Random) -> Result<Self, SamplerError> {
        let proc_error = |source| SamplerError::Proc { path: config.proc_folder.clone(), source };
        let shares = MemoryShares::new(config.max_memory);
        let table = ProcessTableConfig {
            proc_folder: config.proc_folder.clone(),
            max_processes: MAX_PROCESSES,
            max_bytes: shares.process_bytes,
            environment_variables: config.environment_variables.clone(),
        };
        let processes = ProcessTable::new(table, clock.clone()).map_err(proc_error)?;
        let mut kernel = KernelSampler::load(&kernel_config(&config, &shares), random)?;
        kernel.attach()?;
        let mut sampler = Self {
            kernel,
            processes,
            loaded: LoadedProcesses::default(),
            changed: BTreeMap::new(),
            resync: ProcessResync::default(),
            max_prefixes: shares.max_prefixes as usize,
            files: ObjectFiles::new(shares.file_bytes),
            pages: RowPages::new(shares.row_bytes, MAX_PAGES as usize),
            symbolizer: Symbolizer::new(shares.name_bytes),
            kernel_symbols: KernelSymbolFile::open(&config.proc_folder).ok(),
            pending: PendingFrames::new(shares.window_frame_bytes),
            governor: RateGovernor::new(config.frequency_hz, config.max_cpu_percent),
            cost: CostMeter::new(),
            window_start: WindowStart::now(&clock),
            is_stopped: false,
            failure: None,
            processes_evicted: 0,
            processes_refused: 0,
            processes_resynced: 0,
            max_window_name_bytes: shares.window_name_bytes,
            window_name_bytes: 0,
            names_dropped: 0,
            last_reopened_file: FileId(0),
            samples_without_frames: [0; StackEnd::ALL.len()],
            events_lost: 0,
            has_reported_kallsyms: false,
            stats: Arc::default(),
            config,
            clock,
        };
        sampler.refresh_stats();
        Ok(sampler)
    }

    /// Takes kallsyms that was opened with more privileges than the process has now.
    pub fn set_kernel_symbols(&mut self, file: KernelSymbolFile) {
        self.kernel_symbols = Some(file);
    }

    /// Returns the descriptor that is readable while requests wait or a ring is half full.
    pub fn poll_fd(&self) -> BorrowedFd<'_> {
        self.kernel.poll_fd()
    }

    /// Handles requests and drains rings. An agent calls it at most 10 times per second. A short recording may call
    /// it more often, so that fewer of its stacks are incomplete.
    pub fn handle_events(&mut self) {
        let started = self.cost.begin();
        self.drain_rings();
        self.handle_requests();
        self.cost.end(started);
    }

    fn drain_rings(&mut self) {
        self.kernel.wait_for_wakeup(Duration::ZERO);
        let pending = &mut self.pending;
        self.kernel.drain_stacks(|record, frames| pending.insert(record, frames));
        self.drain_process_events();
    }

    /// Ends the window and begins the next one.
    ///
    /// # Errors
    ///
    /// Fails if a map cannot be read.
    pub fn close_window(&mut self) -> Result<SampleWindow, SamplerError> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        let started = self.cost.begin();
        self.drain_rings();
        let period_nanos = self.kernel.period_nanos();
        let before = self.governor.rate();
        let next = self.next_rate();
        let window = self.kernel.switch_window(SideSampling::with_probability(next.probability))?;
        let window_start = std::mem::replace(&mut self.window_start, WindowStart::now(&self.clock));
        let duration = self.window_start.monotonic.saturating_sub(window_start.monotonic);
        let mut counts: Vec<(StackKey, StackCount)> = Vec::new();
        self.kernel.drain_counts(window, |key, count| counts.push((*key, *count)))?;
        self.drain_rings();
        let stacks = WindowStacks::collect(window, counts, &mut self.pending);
        let without_frames = self.samples_without_frames.iter_mut().zip(stacks.samples_without_frames);
        without_frames.for_each(|(sum, count)| *sum += count);
        let result = self.build_window(stacks, window_start, duration, period_nanos);
        // Mappings that changed in the window, without a request for one of them.
        self.handle_requests();
        // The window is complete: what fails from here on is an error of the next one.
        let ended = self.end_process_window();
        self.failure = ended.and_then(|()| self.apply_rate(before, next)).err();
        self.cost.end(started);
        self.refresh_stats();
        Ok(result)
    }

    /// Decides the rate of the next window by the cost of this one so far.
    fn next_rate(&mut self) -> SamplingRate {
        let duration = self.clock.monotonic().saturating_sub(self.window_start.monotonic);
        let program_nanos = self.kernel.cpu_states().iter().map(|cpu| cpu.run_nanos).sum();
        let percent = self.cost.end_window(program_nanos, duration, self.kernel.sampled_cpus().len());
        if self.is_stopped { self.governor.rate() } else { self.governor.next_rate(percent, duration) }
    }

    /// Applies the kill switch, the frequency of the next window, and changes of the online CPUs.
    fn apply_rate(&mut self, before: SamplingRate, next: SamplingRate) -> Result<(), SamplerError> {
        let is_killed = self.config.kill_switch_file.as_ref().is_some_and(|file| file.exists());
        if is_killed != self.is_stopped {
            self.is_stopped = is_killed;
            let path = self.config.kill_switch_file.as_ref().map(|file| file.display().to_string());
            tracing::info!(is_stopped = is_killed, path, "sampler follows its kill switch");
            self.kernel.set_stopped(is_killed);
            if is_killed {
                self.kernel.detach();
            }
        }
        if self.is_stopped {
            return Ok(());
        }
        if next != before {
            tracing::info!(
                rate_hz = next.hz(),
                previous_hz = before.hz(),
                cpu_percent = self.cost.last_percent(),
                max_cpu_percent = self.config.max_cpu_percent,
                "changed the sampling rate"
            );
        }
        if next.frequency_hz == before.frequency_hz {
            self.note_cpu_changes(|kernel| kernel.update_cpus())?;
        } else {
            self.note_cpu_changes(|kernel| kernel.set_frequency(next.frequency_hz))?;
        }
        Ok(())
    }

    /// Changes the events of CPUs. A new or replaced ring of process events means that records were lost.
    fn note_cpu_changes(
        &mut self,
        change: impl FnOnce(&mut KernelSampler) -> Result<bool, KernelError>,
    ) -> Result<(), SamplerError> {
        if change(&mut self.kernel)? {
            tracing::info!("a CPU came online, mappings of processes are read another time");
            self.events_lost += 1;
            self.processes.note_loss();
        }
        Ok(())
    }

    /// Adds CPU time that its owner used for a window, such as for labels. It counts in the next window.
    pub fn add_cost(&mut self, time: Duration) {
        self.cost.add(time);
    }

    /// Blocks for this long and handles events.
    pub fn run_for(&mut self, time: Duration) {
        const MIN_PAUSE: Duration = Duration::from_millis(100);
        let end = self.clock.monotonic() + time;
        loop {
            let now = self.clock.monotonic();
            if now >= end {
                return;
            }
            if self.kernel.wait_for_wakeup(end - now) {
                self.handle_events();
                // Requests that arrive meanwhile are handled together.
                let pause = MIN_PAUSE.min(end.saturating_sub(self.clock.monotonic()));
                std::thread::sleep(pause);
            }
        }
    }

    /// Returns the counters.
    pub fn stats(&self) -> Arc<SamplerStats> {
        Arc::clone(&self.stats)
    }

    fn refresh_stats(&mut self) {
        let mut stats = SamplerStats::default();
        for cpu in self.kernel.cpu_states() {
            stats.samples_taken += cpu.taken;
            stats.samples_delivered += cpu.delivered;
            stats.samples_thinned += cpu.thinned;
            stats.program_nanos += cpu.run_nanos;
            let lost = stats.samples_lost.iter_mut().zip(cpu.lost);
            lost.for_each(|(sum, count)| *sum += count);
            let ends = stats.samples_by_end.iter_mut().zip(cpu.ends);
            ends.for_each(|(sum, count)| *sum += count);
        }
        stats.samples_by_end = move_dropped(stats.samples_by_end, &self.samples_without_frames);
        let cache = self.pages.cache();
        stats.pages = cache.page_count() as u64;
        stats.rows = cache.arena().used_rows();
        stats.pages_evicted = cache.evicted_pages();
        stats.processes_evicted = self.processes_evicted;
        stats.processes_refused = self.processes_refused;
        stats.processes_resynced = self.processes_resynced;
        stats.names_evicted = self.symbolizer.evictions();
        stats.names_dropped = self.names_dropped;
        stats.indexes_refused = self.files.refused_indexes();
        stats.mappings_dropped = self.processes.mappings_dropped();
        stats.map_bytes = self.kernel.map_bytes();
        let names = self.symbolizer.memory() + self.window_name_bytes;
        let tables = names + self.pending.memory() + self.processes.memory();
        stats.table_bytes = self.files.memory() + self.loaded.memory() + tables as u64;
        stats.processes = self.loaded.len() as u64;
        stats.events_lost = self.events_lost;
        stats.user_nanos = self.cost.user_nanos();
        stats.cpu_percent = self.cost.last_percent();
        stats.rate_hz = if self.is_stopped { 0.0 } else { self.governor.rate().hz() };
        self.stats = Arc::new(stats);
    }
}

/// Returns the sizes of the kernel side.
fn kernel_config(config: &SamplerConfig, shares: &MemoryShares) -> KernelConfig {
    KernelConfig {
        frequency_hz: config.frequency_hz,
        process: config.process,
        thread_names: config.thread_names,
        max_stacks: shares.max_stacks,
        max_pages: MAX_PAGES,
        max_processes: MAX_PROCESSES as u32,
        max_mappings: shares.max_prefixes,
        ..KernelConfig::default()
    }
}

/// Moves samples whose frames were dropped to their own reason.
fn move_dropped(
    mut by_end: [u64; StackEnd::ALL.len()],
    without_frames: &[u64; StackEnd::ALL.len()],
) -> [u64; StackEnd::ALL.len()] {
    let mut moved = 0;
    for (count, dropped) in by_end.iter_mut().zip(without_frames) {
        let part = (*count).min(*dropped);
        *count -= part;
        moved += part;
    }
    by_end[StackEnd::FramesDropped as usize] += moved;
    by_end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_without_frames_have_their_own_reason() {
        let mut by_end = [0; StackEnd::ALL.len()];
        by_end[StackEnd::Complete as usize] = 10;
        by_end[StackEnd::Truncated as usize] = 4;
        let mut without_frames = [0; StackEnd::ALL.len()];
        without_frames[StackEnd::Complete as usize] = 3;
        let moved = move_dropped(by_end, &without_frames);
        assert_eq!(moved[StackEnd::Complete as usize], 7);
        assert_eq!(moved[StackEnd::FramesDropped as usize], 3);
        assert_eq!(moved.iter().sum::<u64>(), 14);
    }
}
