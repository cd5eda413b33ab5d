//! Access to the kernel: BPF programs and maps, perf events, rings and capabilities.
//!
//! ```text
//!   CpuClock (event per CPU) ─► on_cpu_clock ─► counts_0 | counts_1 ─► drain_counts
//!                                   │  └──────► ring `stacks` ───────► drain_stacks
//!                                   └─────────► ring `requests` ─────► next_request
//!   SidebandRings (event per CPU) ──────────────────────────────────► drain_sideband
//! ```
//!
//! [`KernelSampler`] owns all of it. Nothing is pinned: the kernel frees everything when it is dropped or when the
//! process ends.

#![expect(
    unsafe_code,
    reason = "system calls and shared memory of BPF maps and perf events have no safe interface"
)]

mod capabilities;
mod config;
mod cpu_clock;
mod error;
mod loader;
mod map_entries;
mod memory_map;
mod row_chunks;
mod sampler;
mod shared_state;
mod sideband;
mod syscalls;
mod typed_maps;
mod wakeups;

pub use capabilities::{Capabilities, drop_capabilities_except, effective_capabilities};
pub use config::KernelConfig;
pub use error::KernelError;
pub use rustix::thread::CapabilitySet;
pub use sampler::{KernelSampler, LoadedProgram};
pub use shared_state::SideSampling;
