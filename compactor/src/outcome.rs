//! Outcome of a worker's attempt to run a job.

use athanor_catalog::PartId;

/// Outcome of one attempt to run a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    /// No job could be claimed.
    Idle,
    /// The outputs replaced the parts.
    Finished,
    /// The catalog ended the claim: a part was removed, or another worker claimed it.
    ClaimEnded,
    /// The job failed.
    Failed {
        /// Message of the failure.
        reason: String,
        /// Part that caused the failure, if known.
        culprit: Option<PartId>,
    },
}
