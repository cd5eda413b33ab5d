//! Runtime environment of an Athanor process.
//!
//! Every resource of the machine enters a program through this crate: time, randomness, threads, tasks,
//! files, the environment. The crates above receive these as values and never access the machine directly. So
//! a whole cluster can run in one thread from a seed. This crate also defines how a process starts, is
//! limited, reports failures, and ends.
//!
//! ```text
//!   YAML ─┐
//!   env  ─┼─► config ─► limits ─► (roles, above)        settings and limits
//!   --set ┘     │         └ tenant, units
//!               ▼
//!           telemetry                                   log lines
//!
//!   time    random   disk   net    ◄── real, or simulated from a seed
//!     │                │
//!   tasks   gate    compute        ◄── bounded; panics reported; ended together, with a deadline
//!
//!   code                           ◄── meaning of a failure at an edge: HTTP, gRPC, retry, log, exit
//! ```
//!
//! * [`code`]: the table of error codes, and [`Status`].
//! * [`time`], [`random`]: [`Clock`] and [`Random`], each real or driven by a test, and times as clients write
//!   them.
//! * [`disk`]: a folder of files, [`LocalDisk`](disk::LocalDisk) or [`MemoryDisk`](disk::MemoryDisk), the
//!   latter with crashes and faults.
//! * [`net`]: streams to other nodes, [`LocalNet`](net::LocalNet) or those of a simulation.
//! * [`tasks`], [`gate`]: background tasks and requests. A shutdown waits for both.
//! * [`compute`]: threads for work that would block an I/O thread.
//! * [`cpu_time`], [`process`], [`histogram`]: resource usage of a process, CPU time by activity,
//!   distributions.
//! * [`metric_family`]: metrics that each crate declares beside its counters.
//! * [`activity_tracker`]: work that was under way when the previous process died.
//! * [`Backoff`]: delays between retries. [`SingleFlight`]: one computation for concurrent equal requests.
//! * [`memory_budget`]: bytes that are reserved until they are released. [`result_budget`], [`query_queue`]:
//!   memory that results share, and the order of queries.
//!   [`tenant_shares`]: share of the budget that one tenant may hold.
//! * [`config`], [`units`], [`limits`], [`tenant`]: settings, and the limits of each tenant.
//! * [`telemetry`]: log lines.
//!
//! Not guaranteed: the order in which tasks run or end, and that [`Random`] is unpredictable.

pub mod code;
pub mod compute;
pub mod config;
pub mod disk;
pub mod limits;
pub mod memory_budget;
pub mod net;
pub mod observability;
pub mod random;
pub mod requests;
pub mod tasks;
pub mod tenant;
pub mod time;
pub mod units;

pub use code::{ErrorCode, ErrorCodeExt, Status};
pub use compute::ComputePool;
pub use disk::Disk;
pub use limits::{DefaultRulesPosition, LimitOverrides, TenantLimits};
pub use net::Net;
pub use observability::cpu_time::CpuActivity;
pub use observability::histogram::Histogram;
pub use observability::telemetry::Telemetry;
pub use random::Random;
pub use requests::backoff::Backoff;
pub use requests::cancel::CancelFlag;
pub use requests::gate::Gate;
pub use requests::single_flight::SingleFlight;
pub use tasks::TaskGroup;
pub use tenant::TenantId;
pub use time::clock::{Clock, Timestamp};
pub use time::tier::{Tier, window_end};
pub use units::ByteSize;
