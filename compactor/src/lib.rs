//! Compactor: merges the parts of blocks that the catalog plans, and removes objects that nothing refers to.
//!
//! ```text
//!  catalog ──jobs──► Compactor ──claim──► fetch ──► merge ──► upload ──► finish
//!                                          │          │         │          │
//!  bucket  ──byte ranges of the parts──────┘          │         │          └──► catalog: parts ⇄ outputs
//!  scratch ◄──────────────────────────────────────────┘         └──► bucket: files, then every meta.json
//! ```
//!
//! * A job is claimed before it runs. Its leases are renewed by one command for all jobs of the node
//!   ([`claim`]). If the catalog ends the claim, the next read or write of the job fails. What it uploaded is
//!   an orphan.
//! * Only the byte ranges of the parts are fetched, into scratch space. Each page is compared with its checksum,
//!   so damage is charged to one part ([`input`]).
//! * Outputs are chosen from the headers of all profiles: one per window, or per piece of a large one, at most 64
//!   ([`job`]). Equal ids are kept once in the whole job [INV-20].
//! * The swap is refused unless inputs equal outputs and dropped duplicates. A lost response is retried.
//! * A bucket or catalog that is unavailable fails no job: the job waits.
//! * [`RetentionWorker`] expires rows past their retention.
//! * [`MaintenanceWorker`] tombstones folders that never registered, and removes the objects of tombstoned blocks.
//!
//! A process in which jobs run inline, with [`MemoryScratch`], does the same in a simulation.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod claim;
mod compactor;
mod config;
mod error;
mod input;
mod job;
mod maintenance;
pub mod metrics;
mod outcome;
mod scratch;
mod stats;

pub use compactor::{Compactor, CompactorDeps};
pub use config::{CompactorConfig, CompactorConfigError};
pub use maintenance::orphans::{OrphanFinder, OrphanRound};
pub use maintenance::removal::{DELETION_GRACE_PERIOD, ObjectRemover, RemovalFacts, RemovalRound};
pub use maintenance::retention::{RetentionBacklog, RetentionConfig, RetentionStats, RetentionWorker};
pub use maintenance::{MaintenanceStats, MaintenanceWorker};
pub use outcome::JobOutcome;
pub use scratch::{LocalScratch, MemoryScratch, ScratchSpace};
pub use stats::{CompactorStats, JobEnd, JobKind};
