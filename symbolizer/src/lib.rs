//! Debug information service of distributors: receives debug information of binaries that agents upload.
//! No component reads it yet.
//!
//! ```text
//!  parca.debuginfo.v1alpha1 ─┐
//!                            ├─► rpc ─► DebuginfoService ─► upload_state (accept?) ─► store (markers, parts)
//!  debuginfo.v1alpha1 ───────┘
//! ```
//!
//! * [`DebuginfoService`]: an upload is requested, begun, sent and finished, each by a separate call, at any
//!   node.
//! * Between calls a node keeps only counters and the permits of running uploads. The state of an upload is
//!   in marker objects beside its bytes. No object name is written twice, so two nodes always agree on the
//!   state.
//! * Bytes pass through in parts. An upload holds one part in memory.
//!
//! There is no guarantee that one of two concurrent uploads of a file is rejected. Both are accepted, and the
//! later one stays.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod debuginfo;
pub mod metrics;

pub use debuginfo::stats::{DebuginfoStats, RefusalsByReason};
pub use debuginfo::upload_state::{DebuginfoKind, UploadDecision};
pub use debuginfo::{DebuginfoDeps, DebuginfoService, UPLOAD_PART_BYTES, UploadReceiver, delete_debuginfo};
