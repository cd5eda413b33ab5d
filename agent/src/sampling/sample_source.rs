//! Source of windows: the sampler of the library, or a stand-in of tests.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use athanor_agent_ebpf::sampler::{Sampler, SamplerConfig, SamplerError, SamplerStats};
use athanor_agent_ebpf::window::SampleWindow;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

use crate::config::{SamplerSettings, SymbolizeMode};

/// Folder of processes.
const PROC_FOLDER: &str = "/proc";

/// Source of windows of counted stacks. Its methods block for milliseconds.
pub trait SampleSource: Send + 'static {
    /// Returns a descriptor that is readable while events wait.
    ///
    /// # Errors
    ///
    /// Fails if the process has too many open files.
    fn wake_fd(&self) -> io::Result<OwnedFd>;

    /// Returns whether events wait.
    fn has_events(&self) -> bool;

    /// Handles events. The caller does so at most 10 times per second.
    fn handle_events(&mut self);

    /// Ends the window and begins the next one.
    ///
    /// # Errors
    ///
    /// Fails if the window cannot be read. Its samples are lost.
    fn close_window(&mut self) -> Result<SampleWindow, SamplerError>;

    /// Adds CPU time that the caller used for a window, to the own share of the next one.
    fn add_cost(&mut self, time: Duration);

    /// Returns the counters.
    fn stats(&self) -> Arc<SamplerStats>;
}

/// Runs work on this thread. Returns its result with the CPU time that it used.
pub(super) fn measure_cpu_time<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = thread_time();
    let result = work();
    (result, thread_time().saturating_sub(start))
}

/// Returns the CPU time of this thread.
pub(super) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Function that starts a source. It blocks for up to seconds.
pub type StartSource = dyn Fn() -> Result<Box<dyn SampleSource>, SamplerError> + Send + Sync;

impl SampleSource for Sampler {
    fn wake_fd(&self) -> io::Result<OwnedFd> {
        self.poll_fd().try_clone_to_owned()
    }

    fn has_events(&self) -> bool {
        let descriptor = self.poll_fd();
        let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
        let ready = poll(&mut descriptors, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        ready.is_ok_and(|ready| ready > 0)
    }

    fn handle_events(&mut self) {
        Sampler::handle_events(self);
    }

    fn close_window(&mut self) -> Result<SampleWindow, SamplerError> {
        Sampler::close_window(self)
    }

    fn add_cost(&mut self, time: Duration) {
        Sampler::add_cost(self, time);
    }

    fn stats(&self) -> Arc<SamplerStats> {
        Sampler::stats(self)
    }
}

/// Returns the configuration of the library for the settings of the agent.
pub fn sampler_config(settings: &SamplerSettings) -> SamplerConfig {
    SamplerConfig {
        frequency_hz: settings.frequency_hz,
        process: None,
        thread_names: settings.thread_names,
        symbolize: settings.symbolize == SymbolizeMode::Local,
        max_memory: settings.max_memory,
        max_cpu_percent: settings.max_cpu_percent,
        environment_variables: settings.environment_variables.clone(),
        proc_folder: PathBuf::from(PROC_FOLDER),
        // The collector looks at the file, and unloads the sampler.
        kill_switch_file: None,
    }
}
