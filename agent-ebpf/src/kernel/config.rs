//! Sizes and settings of the BPF side.

/// Lowest and highest rate of the CPU clock, per second.
const FREQUENCIES_HZ: std::ops::RangeInclusive<u32> = 1..=997;

/// Settings of a [`KernelSampler`](super::KernelSampler). Hash maps and the trie use memory for what is in them, so
/// their limits cost little.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelConfig {
    /// Samples per second and CPU, 1 to 997.
    pub frequency_hz: u32,
    /// Process to sample, in the PID namespace of the agent. None samples the host.
    pub process: Option<u32>,
    /// Count stacks by thread name instead of process name.
    pub thread_names: bool,
    /// Collect kernel frames.
    pub kernel_frames: bool,
    /// Limit of distinct stacks per window.
    pub max_stacks: u32,
    /// Limit of pages of rows, also requested ones.
    pub max_pages: u32,
    /// Limit of processes, also requested ones.
    pub max_processes: u32,
    /// Limit of prefixes of mappings.
    pub max_mappings: u32,
    /// Size of the ring of frames. Rounded up to a power of two.
    pub stacks_ring_bytes: u32,
    /// Size of the ring of requests. Rounded up to a power of two.
    pub requests_ring_bytes: u32,
    /// Size of the ring of process events per CPU. Rounded up to a power of two.
    pub sideband_ring_bytes: u32,
}

impl Default for KernelConfig {
    fn default() -> Self {
        Self {
            frequency_hz: 19,
            process: None,
            thread_names: false,
            kernel_frames: true,
            max_stacks: 16_384,
            max_pages: 16_384,
            max_processes: 16_384,
            max_mappings: 1 << 20,
            stacks_ring_bytes: 1 << 20,
            requests_ring_bytes: 64 << 10,
            sideband_ring_bytes: 64 << 10,
        }
    }
}

impl KernelConfig {
    /// Returns the period of the CPU clock.
    pub fn period_nanos(&self) -> u64 {
        period_of(self.frequency_hz)
    }
}

/// Returns the period of a rate, which is clamped to the allowed ones.
pub(super) fn period_of(frequency_hz: u32) -> u64 {
    let clamped = frequency_hz.clamp(*FREQUENCIES_HZ.start(), *FREQUENCIES_HZ.end());
    1_000_000_000 / u64::from(clamped)
}

/// Returns a size that the kernel accepts for a ring: a power of two of at least one page.
pub(super) fn ring_bytes(requested: u32) -> u32 {
    const SMALLEST: u32 = 4096;
    const LARGEST: u32 = 1 << 30;
    requested.clamp(SMALLEST, LARGEST).next_power_of_two()
}
