//! CPU clock events, one per online CPU, each running the BPF program.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

use athanor_chassis::Random;

use super::error::KernelError;
use super::loader::explain_event_refusal;
use super::syscalls::{PerfEventAttributes, enable_event, open_cpu_event, set_event_program};

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
const FLAG_DISABLED: u64 = 1 << 0;
const FLAG_EXCLUDE_IDLE: u64 = 1 << 7;

/// Longest time over which the events of CPUs are spread.
const MAX_PHASE_NANOS: u64 = 60_000_000;

/// Events of all online CPUs.
pub(super) struct CpuClock {
    period_nanos: u64,
    events: BTreeMap<u32, ClockEvent>,
}

struct ClockEvent {
    event: File,
    /// Clock of the event when it was last checked.
    clock: u64,
}

impl CpuClock {
    /// Creates a clock without events.
    pub(super) fn new(period_nanos: u64) -> Self {
        Self { period_nanos, events: BTreeMap::new() }
    }

    /// Returns the period.
    pub(super) fn period_nanos(&self) -> u64 {
        self.period_nanos
    }

    /// Returns the CPUs with an event.
    pub(super) fn cpus(&self) -> Vec<u32> {
        self.events.keys().copied().collect()
    }

    /// Closes all events and sets another period for those to come.
    pub(super) fn reset(&mut self, period_nanos: u64) {
        self.events.clear();
        self.period_nanos = period_nanos;
    }

    /// Opens events for online CPUs that have none, and closes those of CPUs that are offline or were meanwhile.
    /// Returns the CPUs of the new events.
    pub(super) fn update(
        &mut self,
        online: &[u32],
        program: BorrowedFd<'_>,
        random: &Random,
    ) -> Result<Vec<u32>, KernelError> {
        self.events.retain(|cpu, event| online.contains(cpu) && event.is_alive());
        let mut opened = Vec::new();
        for &cpu in online {
            if self.events.contains_key(&cpu) {
                continue;
            }
            if let Some(event) = self.open(cpu)? {
                set_event_program(event.as_fd(), program)?;
                let phase = random.next_below(self.period_nanos.clamp(1, MAX_PHASE_NANOS));
                opened.push(PendingEvent { phase, cpu, event });
            }
        }
        let cpus = opened.iter().map(|pending: &PendingEvent| pending.cpu).collect();
        self.start(opened)?;
        Ok(cpus)
    }

    /// Opens the event of a CPU. None if the CPU went offline meanwhile.
    fn open(&self, cpu: u32) -> Result<Option<OwnedFd>, KernelError> {
        let attributes = PerfEventAttributes {
            kind: PERF_TYPE_SOFTWARE,
            config: PERF_COUNT_SW_CPU_CLOCK,
            sample_period: self.period_nanos,
            flags: FLAG_DISABLED | FLAG_EXCLUDE_IDLE,
            ..PerfEventAttributes::default()
        };
        match open_cpu_event(&attributes, cpu) {
            Ok(event) => Ok(Some(event)),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(explain_event_refusal(format!("open the CPU clock of CPU {cpu}"), error)),
        }
    }

    /// Starts events in the order of their phases.
    fn start(&mut self, mut opened: Vec<PendingEvent>) -> Result<(), KernelError> {
        opened.sort_by_key(|pending| pending.phase);
        let mut elapsed = 0;
        for pending in opened {
            thread::sleep(Duration::from_nanos(pending.phase - elapsed));
            elapsed = pending.phase;
            enable_event(pending.event.as_fd())?;
            self.events.insert(pending.cpu, ClockEvent { event: File::from(pending.event), clock: 0 });
        }
        Ok(())
    }
}

struct PendingEvent {
    phase: u64,
    cpu: u32,
    event: OwnedFd,
}

impl ClockEvent {
    /// Returns whether the clock has advanced since the last call. The event of a CPU that went offline stops and does
    /// not start again.
    fn is_alive(&mut self) -> bool {
        let mut bytes = [0; 8];
        let is_read = self.event.read_exact(&mut bytes).is_ok();
        let clock = u64::from_ne_bytes(bytes);
        let has_advanced = is_read && clock > self.clock;
        self.clock = clock;
        has_advanced
    }
}
