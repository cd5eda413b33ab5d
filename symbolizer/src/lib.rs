//! The role that knows what addresses are called. So far it takes what names are found in: debug information of binaries, as
//! agents upload it; nothing reads it yet.
//!
//! ```text
//!  parca.debuginfo.v1alpha1 ─┐
//!                            ├─► wire ─► Debuginfo ─► state (is it wanted?) ─► shelf (notes and parts in the bucket)
//!  debuginfo.v1alpha1 ───────┘
//! ```
//!
//! * [`DebuginfoService`]: an upload is asked for, begun, sent and finished, each by a call of its own, at any node.
//! * Nothing is remembered between calls but counters and who sends now: what became of an upload is said by notes that lie
//!   beside its bytes. No name is written twice, so two nodes never disagree about what is there.
//! * Bytes pass through in parts; what an upload holds in memory is one of them.
//!
//! What is not promised: that one of two uploads that are begun at once is refused. Both are taken, the later one stays.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod debuginfo;

pub use debuginfo::stats::{DebuginfoStats, RefusalsByReason};
pub use debuginfo::upload_state::{DebuginfoKind, UploadDecision};
pub use debuginfo::{DebuginfoDeps, DebuginfoService, UPLOAD_PART_BYTES, UploadReceiver, delete_debuginfo};
