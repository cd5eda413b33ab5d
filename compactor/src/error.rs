//! Reasons for which a job ends without a result.

use athanor_block::BlockError;
use athanor_catalog::{BlockId, PartId};
use athanor_chassis::compute::ComputeError;
use athanor_chassis::{ErrorCode, ErrorCodeExt, Status};
use athanor_storage::StoreError;

/// Reason for which a job ends without a result.
#[derive(Debug)]
pub(crate) enum JobError {
    /// The catalog ended the claim: a part was removed, or another worker claimed it. No failure is counted.
    ClaimEnded,
    /// The job failed.
    Failed(JobFailure),
}

/// Failure of a job, as the catalog counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobFailure {
    /// Message of the failure.
    pub(crate) reason: String,
    /// Part that caused the failure, if known.
    pub(crate) culprit: Option<PartId>,
}

impl JobError {
    /// Creates a failure without a culprit.
    pub(crate) fn from_reason(reason: impl Into<String>) -> Self {
        Self::Failed(JobFailure { reason: reason.into(), culprit: None })
    }

    /// Creates the failure of an input part.
    pub(crate) fn from_part(culprit: PartId, reason: &str) -> Self {
        let reason = format!("block {}: {reason}", culprit.block);
        Self::Failed(JobFailure { reason, culprit: Some(culprit) })
    }

    /// Creates the failure of a step that wrote or read an output block.
    pub(crate) fn from_output(output: BlockId, error: &StoreError) -> Self {
        Self::from_reason(format!("output {output}: {}", Status::from_error(error).message))
    }
}

impl From<BlockError> for JobError {
    fn from(error: BlockError) -> Self {
        Self::from_reason(Status::from_error(&error).message)
    }
}

impl From<ComputeError> for JobError {
    fn from(error: ComputeError) -> Self {
        Self::from_reason(Status::from_error(&error).message)
    }
}

impl From<std::io::Error> for JobError {
    fn from(error: std::io::Error) -> Self {
        Self::from_reason(format!("scratch folder: {error}"))
    }
}

/// Returns whether a call to the bucket may succeed later without a change of its objects.
pub(crate) fn is_temporary(error: &StoreError) -> bool {
    matches!(error.code(), ErrorCode::Unavailable | ErrorCode::Deadline | ErrorCode::Exhausted)
}
