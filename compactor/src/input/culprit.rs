//! Finds the part that made a job fail, so that it alone is quarantined.

use std::collections::BTreeSet;

use athanor_block::{BlockError, MergeOutput, MergeSource, merge_into};
use athanor_catalog::PartId;
use athanor_chassis::{ErrorCode, ErrorCodeExt, Status};

use crate::error::JobError;
use crate::input::fetcher::JobInput;
use crate::scratch::JobScratch;

/// Returns whether an error of a merge may have its cause in the bytes of an input.
pub(crate) fn is_of_input(error: &BlockError) -> bool {
    matches!(error.code(), ErrorCode::DataLoss | ErrorCode::Unimplemented)
}

/// Merges each part alone after a merge failed, and returns the failure with the part that fails again. A page
/// with a valid checksum may hold rows that contradict each other.
pub(crate) fn find_culprit(inputs: &[JobInput], scratch: &JobScratch, error: BlockError) -> JobError {
    for input in inputs {
        let tenants = || input.tenants.iter().cloned();
        if merge_alone(input, tenants().collect(), scratch).is_none() {
            continue;
        }
        for span in &input.entry.tenants {
            let alone = BTreeSet::from([span.tenant.to_string()]);
            if let Some(error) = merge_alone(input, alone, scratch) {
                let part = PartId { block: input.entry.id, tenant: span.tenant.clone() };
                return JobError::from_part(part, &Status::from_error(&error).message);
            }
        }
    }
    error.into()
}

/// Merges some parts of one input and returns the error of bytes that cannot be merged.
fn merge_alone(input: &JobInput, tenants: BTreeSet<String>, scratch: &JobScratch) -> Option<BlockError> {
    let source = MergeSource { tenants: Some(tenants), ..MergeSource::from(input.block.clone()) };
    let folder = scratch.create_folder().ok()?;
    let meta = input.block.meta();
    let output = MergeOutput {
        id: meta.id.clone(),
        origin: meta.origin.clone(),
        tier: meta.tier(),
        order: meta.order,
        ..MergeOutput::default()
    };
    let mut create_folder = || scratch.create_folder();
    let merged = merge_into(folder.as_ref(), &output, vec![source], &mut create_folder, &mut |_| ());
    merged.err().filter(is_of_input)
}
