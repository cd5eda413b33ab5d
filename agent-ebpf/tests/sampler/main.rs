//! The sampler on this host: real programs with known call chains, and hosts that make it hard.
//!
//! A test that needs a privilege or a tool that is missing prints a line that begins with `skip: `.

#![allow(clippy::unwrap_used)]
#![expect(
    clippy::disallowed_methods,
    reason = "programs under test run beside the test, and their time is real"
)]

mod containers;
mod cpu_shares;
mod generated_stacks;
mod host_unwinder;
mod kernel_objects;
mod kernels;
mod known_chains;
mod lifecycle;
mod programs;
mod requirements;
mod sampled_stacks;
mod snapshots;
mod soak;
mod stress;
