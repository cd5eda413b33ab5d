//! Cost of the sampler: CPU time in the kernel and in user space.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Meter of the own CPU time.
#[derive(Debug)]
pub(super) struct CostMeter {
    user_time: Duration,
    /// Sums at the end of the last window.
    counted_user_time: Duration,
    counted_program_nanos: u64,
    last_percent: f64,
}

/// CPU time of the thread at the start of some work.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkStart(Duration);

impl CostMeter {
    pub(super) fn new() -> Self {
        Self {
            user_time: Duration::ZERO,
            counted_user_time: Duration::ZERO,
            counted_program_nanos: 0,
            last_percent: 0.0,
        }
    }

    /// Begins work on this thread.
    pub(super) fn begin(&self) -> WorkStart {
        WorkStart(thread_time())
    }

    /// Ends work that began on this thread.
    pub(super) fn end(&mut self, start: WorkStart) {
        self.user_time += thread_time().saturating_sub(start.0);
    }

    /// Adds time of work that the caller measured.
    pub(super) fn add(&mut self, time: Duration) {
        self.user_time = self.user_time.saturating_add(time);
    }

    /// Returns the share of all CPUs in the window, in percent.
    pub(super) fn end_window(&mut self, program_nanos: u64, duration: Duration, cpus: usize) -> f64 {
        let program = Duration::from_nanos(program_nanos.saturating_sub(self.counted_program_nanos));
        let user = self.user_time.saturating_sub(self.counted_user_time);
        self.counted_program_nanos = program_nanos;
        self.counted_user_time = self.user_time;
        let available = duration.as_secs_f64() * cpus.max(1) as f64;
        self.last_percent = match available > 0.0 {
            true => (program + user).as_secs_f64() * 100.0 / available,
            false => 0.0,
        };
        self.last_percent
    }

    pub(super) fn user_nanos(&self) -> u64 {
        self.user_time.as_nanos() as u64
    }

    pub(super) fn last_percent(&self) -> f64 {
        self.last_percent
    }
}

/// Returns the CPU time of this thread.
pub(super) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_counts_both_sides_over_all_cpus() {
        let mut meter = CostMeter::new();
        meter.user_time = Duration::from_millis(30);
        assert_eq!(meter.end_window(10_000_000, Duration::from_secs(2), 2), 1.0);
        meter.add(Duration::from_millis(20));
        assert_eq!(meter.end_window(10_000_000, Duration::from_secs(2), 2), 0.5);
        assert_eq!(meter.end_window(10_000_000, Duration::ZERO, 2), 0.0);
    }
}
