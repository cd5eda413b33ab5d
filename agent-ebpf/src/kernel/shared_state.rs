//! The maps `control` and `cpu_states`, shared with the BPF program by memory.

use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{Ordering, fence};
use std::thread;
use std::time::Duration;

use super::error::KernelError;
use super::memory_map::MemoryMap;
use crate::layout::{Control, CpuState};

/// Fractional bits of `nanos_factor`.
const FACTOR_BITS: u32 = 16;
/// A random u32 is always below.
const ALL_SAMPLES: u64 = 1 << 32;
/// Steps of the wait for a program. A program needs microseconds, but the hypervisor may pause its CPU.
const WAIT_STEP: Duration = Duration::from_micros(100);
const MAX_WAIT_STEPS: u32 = 20_000;

/// Share of samples that a side takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SideSampling {
    threshold: u64,
    nanos_factor: u64,
}

impl SideSampling {
    /// Takes every sample.
    pub const ALL: Self = Self { threshold: ALL_SAMPLES, nanos_factor: 1 << FACTOR_BITS };

    /// Takes samples with a probability. It is clamped to 2⁻¹⁶ … 1, so that the sum of nanoseconds does not
    /// overflow.
    pub fn with_probability(probability: f64) -> Self {
        const LOWEST: f64 = 1.0 / 65_536.0;
        // NaN is not above the lowest.
        let clamped = if probability > LOWEST { probability.min(1.0) } else { LOWEST };
        let threshold = (clamped * ALL_SAMPLES as f64).round() as u64;
        // Of the rounded threshold, so that the estimate has no bias.
        let factor = (ALL_SAMPLES as f64 / threshold as f64) * f64::from(1u32 << FACTOR_BITS);
        Self { threshold, nanos_factor: factor.round() as u64 }
    }

    pub(super) fn threshold(self) -> u64 {
        self.threshold
    }

    pub(super) fn nanos_factor(self) -> u64 {
        self.nanos_factor
    }

    /// Returns the probability in force.
    pub fn probability(self) -> f64 {
        self.threshold as f64 / ALL_SAMPLES as f64
    }
}

/// Accessor of both maps.
pub(super) struct SharedState {
    control: MemoryMap,
    cpu_states: MemoryMap,
    cpus: usize,
}

impl SharedState {
    /// Maps the memory of both maps.
    pub(super) fn new(
        control: BorrowedFd<'_>,
        cpu_states: BorrowedFd<'_>,
        cpus: usize,
    ) -> Result<Self, KernelError> {
        let map = |fd, bytes: usize| {
            let length = bytes.next_multiple_of(rustix::param::page_size());
            MemoryMap::new(fd, length, 0).map_err(|error| KernelError::call("map memory of a BPF map", error))
        };
        Ok(Self {
            control: map(control, size_of::<Control>())?,
            cpu_states: map(cpu_states, cpus * size_of::<CpuState>())?,
            cpus,
        })
    }

    /// Writes all settings. Programs are not attached yet.
    pub(super) fn write_settings(&self, settings: &Control) {
        let control = &self.control;
        let store_word = |offset, value| control.word(offset).store(value, Ordering::Relaxed);
        let store_half = |offset, value| control.half_word(offset).store(value, Ordering::Relaxed);
        for side in 0..2 {
            store_word(offset_of!(Control, threshold) + side * 8, settings.threshold[side]);
            store_word(offset_of!(Control, nanos_factor) + side * 8, settings.nanos_factor[side]);
        }
        store_half(offset_of!(Control, pid_filter), settings.pid_filter);
        store_half(offset_of!(Control, thread_names), settings.thread_names);
        store_half(offset_of!(Control, pid_namespace_inode), settings.pid_namespace_inode);
        store_half(offset_of!(Control, with_kernel_frames), settings.with_kernel_frames);
        store_half(offset_of!(Control, is_stopped), settings.is_stopped);
        control.word(offset_of!(Control, window)).store(settings.window, Ordering::SeqCst);
    }

    /// Returns the number of the current window.
    pub(super) fn window(&self) -> u64 {
        self.control.word(offset_of!(Control, window)).load(Ordering::SeqCst)
    }

    /// Writes the number of the current window.
    fn set_window(&self, window: u64) {
        self.control.word(offset_of!(Control, window)).store(window, Ordering::SeqCst);
    }

    /// Stops or resumes the sampling.
    pub(super) fn set_stopped(&self, is_stopped: bool) {
        self.control
            .half_word(offset_of!(Control, is_stopped))
            .store(u32::from(is_stopped), Ordering::SeqCst);
    }

    /// Sets the process to sample, 0 for all.
    pub(super) fn set_process_filter(&self, pid: u32) {
        self.control.half_word(offset_of!(Control, pid_filter)).store(pid, Ordering::SeqCst);
    }

    /// Sets the sampling of the next window, begins that and waits until no program writes to the side of the old
    /// one. Returns the number of the old window.
    pub(super) fn switch_window(&self, sampling: SideSampling) -> Result<u64, KernelError> {
        let old = self.window();
        let next = old.wrapping_add(1);
        let side = (next & 1) as usize;
        let control = &self.control;
        control.word(offset_of!(Control, threshold) + side * 8).store(sampling.threshold, Ordering::Relaxed);
        control
            .word(offset_of!(Control, nanos_factor) + side * 8)
            .store(sampling.nanos_factor, Ordering::Relaxed);
        self.set_window(next);
        // Twice: a program of the new side may have reserved a record of a ring before the last one of the old side,
        // and hides that until it ends.
        if let Err(error) = self.wait_for_programs().and_then(|()| self.wait_for_programs()) {
            // The counts of the old side stay in use, so that the next attempt reads all of them.
            self.set_window(old);
            return Err(error);
        }
        Ok(old)
    }

    /// Waits until each program that runs now has ended.
    ///
    /// A program marks itself before it reads the window or a map, by a fully ordered operation. So each program
    /// either sees what was written before this call, or its mark is seen here.
    pub(super) fn wait_for_programs(&self) -> Result<(), KernelError> {
        fence(Ordering::SeqCst);
        for cpu in 0..self.cpus {
            let mark = self.cpu_states.word(cpu * size_of::<CpuState>() + offset_of!(CpuState, entries));
            let entered = mark.load(Ordering::SeqCst);
            if entered & 1 == 0 {
                continue;
            }
            let mut steps = 0;
            while mark.load(Ordering::SeqCst) == entered {
                if steps == MAX_WAIT_STEPS {
                    let waited_millis = (WAIT_STEP * MAX_WAIT_STEPS).as_millis() as u64;
                    return Err(KernelError::ProgramInside { cpu, waited_millis });
                }
                steps += 1;
                thread::sleep(WAIT_STEP);
            }
        }
        Ok(())
    }

    /// Returns the counters of each possible CPU.
    pub(super) fn cpu_states(&self) -> Vec<CpuState> {
        (0..self.cpus).map(|cpu| self.cpu_state(cpu)).collect()
    }

    fn cpu_state(&self, cpu: usize) -> CpuState {
        let start = cpu * size_of::<CpuState>();
        let read = |offset: usize| self.cpu_states.word(start + offset).load(Ordering::Relaxed);
        CpuState {
            entries: read(offset_of!(CpuState, entries)),
            taken: read(offset_of!(CpuState, taken)),
            delivered: read(offset_of!(CpuState, delivered)),
            thinned: read(offset_of!(CpuState, thinned)),
            idle: read(offset_of!(CpuState, idle)),
            lost: std::array::from_fn(|reason| read(offset_of!(CpuState, lost) + reason * 8)),
            ends: std::array::from_fn(|end| read(offset_of!(CpuState, ends) + end * 8)),
            run_nanos: read(offset_of!(CpuState, run_nanos)),
            reserved: [0; 6],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling_with_probability_weighs_by_its_inverse() {
        for probability in [1.0, 0.5, 0.3, 0.001, 1e-9, f64::NAN, -1.0, 7.0] {
            let sampling = SideSampling::with_probability(probability);
            let weight = sampling.nanos_factor as f64 / f64::from(1u32 << FACTOR_BITS);
            assert!((weight * sampling.probability() - 1.0).abs() < 1e-4, "{probability}: {sampling:?}");
        }
        assert_eq!(SideSampling::with_probability(1.0), SideSampling::ALL);
        assert_eq!(SideSampling::with_probability(0.5).threshold, 1 << 31);
    }
}
