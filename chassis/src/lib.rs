//! How an Athanor process lives.
//!
//! Everything that a program takes from the machine it runs on comes in through this crate: time, chance, threads,
//! tasks, files, the environment. The crates above are handed these as values and name none of them themselves, so
//! that a whole cluster can be run in one thread from a seed, and so that there is one place to look for how a
//! process starts, is limited, reports what goes wrong, and ends.
//!
//! ```text
//!   YAML ─┐
//!   env  ─┼─► config ─► limits ─► (roles, above)        what may be done, by whom
//!   --set ┘     │         └ tenant, units
//!               ▼
//!           telemetry                                   what is said about it
//!
//!   clock   random   disk   net    ◄── real, or simulated from a seed
//!     │                │
//!   tasks   gate    compute        ◄── bounded; panics reported; ended together, with a deadline
//!
//!   code                           ◄── what any failure means at an edge: HTTP, gRPC, retry, log, exit
//! ```
//!
//! * [`code`]: the one table of error codes, and [`Status`].
//! * [`clock`], [`random`]: [`Clock`] and [`Random`], each real or driven by a test.
//! * [`disk`]: one folder of files, [`LocalDisk`](disk::LocalDisk) or [`MemoryDisk`](disk::MemoryDisk), the latter
//!   with crashes and faults.
//! * [`net`]: streams to others, [`LocalNet`](net::LocalNet) or those of a simulation.
//! * [`tasks`], [`gate`]: background work and requests, both of which a shutdown waits for.
//! * [`compute`]: threads for what would hold up an I/O thread.
//! * [`cpu_time`], [`process`], [`histogram`]: what a process uses, what for, and how numbers are spread.
//! * [`activity_tracker`]: what was under way when the process before this one died.
//! * [`memory_budget`], [`query_queue`]: memory that answers share, and whose question is next; [`tenant_shares`]: how much of it one tenant
//!   may have.
//! * [`config`], [`units`], [`limits`], [`tenant`]: settings, and what each tenant may do.
//! * [`telemetry`]: log lines.
//!
//! What is not promised: the order in which tasks run or end, and that [`Random`] cannot be foreseen.

pub mod activity_tracker;
pub mod cancel;
pub mod clock;
pub mod code;
pub mod compute;
pub mod config;
pub mod cpu_time;
pub mod disk;
pub mod gate;
pub mod histogram;
pub mod limits;
pub mod memory_budget;
pub mod net;
pub mod process;
pub mod query_queue;
pub mod random;
pub mod tasks;
pub mod telemetry;
pub mod tenant;
pub mod tenant_shares;
pub mod units;

pub use cancel::CancelFlag;
pub use clock::{Clock, Timestamp};
pub use code::{ErrorCode, ErrorCodeExt, Status};
pub use compute::ComputePool;
pub use cpu_time::CpuActivity;
pub use disk::Disk;
pub use gate::Gate;
pub use histogram::Histogram;
pub use limits::{DefaultRulesPosition, LimitOverrides, TenantLimits};
pub use net::Net;
pub use random::Random;
pub use tasks::TaskGroup;
pub use telemetry::Telemetry;
pub use tenant::TenantId;
pub use units::ByteSize;
