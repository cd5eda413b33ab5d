//! Sampler of a whole host: counts stacks of every process and the kernel on a CPU clock, in the kernel.
//!
//! ```text
//!   BPF (bpf/)                         user space
//!   cpu clock ─► unwind ─► count ────► window: counts of one side, frames from a ring
//!                  │ request           │
//!                  ▼                   ▼
//!            rows and mappings ◄── processes, ELF files     names, facts ─► SampleWindow
//! ```
//!
//! * `bpf/`: the BPF side in C. `layout.h` is the contract with [`layout`].
//! * [`kernel`]: loads the programs, accesses maps, perf events and rings. The only module with `unsafe` code.
//! * [`elf`]: reads ELF files with bounded reads.
//! * [`unwind_rows`]: builds unwind rows from call frame information, a page of code at a time.
//! * [`go_pclntab`]: the same from the function table of Go programs, and names of their functions.
//! * [`processes`]: processes, their mappings, cgroups and facts.
//! * [`perf_events`]: records of mappings, names, forks and exits.
//! * [`cgroups`]: paths of cgroups, containers and units.
//! * [`symbols`]: names of kernel and user functions.
//! * [`window`]: the result. [`profiles`]: windows as pprof, folded stacks, SVG and tables.
//!
//! The library knows neither labels nor uploads: the agent makes them of windows.

pub mod cgroups;
pub mod elf;
pub mod frame;
pub mod go_pclntab;
pub mod kernel;
pub mod layout;
pub mod perf_events;
pub mod processes;
pub mod profiles;
pub mod sampler;
pub mod symbols;
pub mod unwind_rows;
pub mod window;
