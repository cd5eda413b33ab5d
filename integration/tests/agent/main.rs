//! The agent as a process between real targets, clients and a server: each profile is delivered exactly once.

#![allow(clippy::unwrap_used)]
#![expect(clippy::disallowed_methods, reason = "clients, targets and networks run on threads of the test")]

mod client_program;
mod clock_shift;
mod full_spool;
mod ledger;
mod network;
mod outage;
mod pprof;
mod process;
mod proxy;
mod pushed_profile;
mod real_targets;
mod sampled_host;
mod sdk_pushes;
mod server;
mod target;
