//! Failures of parts: after three a job is halved, down to one part, which is quarantined.

use athanor_chassis::Timestamp;

use crate::block::PartId;
use crate::compaction::{JobParts, MAX_JOB_PARTS, PartFailures};
use crate::state::compaction::CompactionState;
use crate::state::{CatalogState, CommandOutcome};

/// Number of failures after which a job is halved, or its only part quarantined.
pub const MAX_PART_FAILURES: u32 = 3;
/// Limit of parts with recorded failures.
pub const MAX_FAILED_PARTS: usize = 20_000;
/// Limit of a failure's message, in bytes.
const MAX_REASON_BYTES: usize = 300;

/// Failure of one job.
#[derive(Clone, Copy, Debug)]
pub(in crate::state) struct JobFailure<'f> {
    /// Parts of the job.
    pub(in crate::state) parts: &'f JobParts,
    /// Part that caused the failure, if known.
    pub(in crate::state) culprit: Option<&'f PartId>,
    /// Message of the failure.
    pub(in crate::state) reason: &'f str,
    /// Time of the failure.
    pub(in crate::state) at: Timestamp,
}

impl JobFailure<'_> {
    /// Returns the number of parts in the job that has to be retried: only the culprit if it is known.
    fn suspected_parts(&self) -> usize {
        self.culprit.map_or(self.parts.len(), |_| 1)
    }
}

impl CompactionState {
    /// Counts a failure for the culprit, or for each part of the job if the culprit is unknown. Returns the
    /// parts that were quarantined, or whose next job has to be smaller.
    pub(in crate::state) fn count_failure(&mut self, failure: &JobFailure<'_>) -> Vec<PartId> {
        let parts: Vec<PartId> = match failure.culprit {
            Some(part) => vec![part.clone()],
            None => failure.parts.iter().collect(),
        };
        let mut recorded = self.failed_part_count();
        let mut limited = Vec::new();
        for part in parts {
            let is_recorded = self.part_failures(&part).is_some();
            if !is_recorded && recorded >= MAX_FAILED_PARTS {
                continue;
            }
            recorded += usize::from(!is_recorded);
            let of_block = self.failures.entry(part.block).or_default();
            let failures = of_block.entry(part.tenant.clone()).or_insert_with(|| first_failure(failure.at));
            if failures.add(failure) {
                limited.push(part);
            }
        }
        limited
    }

    /// Returns the number of parts with failures.
    pub(in crate::state) fn failed_part_count(&self) -> usize {
        self.failures.values().map(|tenants| tenants.len()).sum()
    }

    /// Returns the failures of a part.
    pub(in crate::state) fn part_failures(&self, part: &PartId) -> Option<&PartFailures> {
        self.failures.get(&part.block)?.get(&part.tenant)
    }

    /// Returns whether a part is excluded from all jobs.
    pub(in crate::state) fn is_quarantined(&self, part: &PartId) -> bool {
        self.part_failures(part).is_some_and(|failures| failures.is_quarantined)
    }

    /// Forgets the failures of a part. Returns whether it had any.
    pub(in crate::state) fn forget_failures(&mut self, part: &PartId) -> bool {
        let Some(of_block) = self.failures.get_mut(&part.block) else { return false };
        let is_forgotten = of_block.remove(&part.tenant).is_some();
        if of_block.is_empty() {
            self.failures.remove(&part.block);
        }
        is_forgotten
    }
}

impl PartFailures {
    /// Adds a failure. Returns whether the part was quarantined or its jobs halved.
    fn add(&mut self, failure: &JobFailure<'_>) -> bool {
        self.count = self.count.saturating_add(1);
        failure.reason[..failure.reason.floor_char_boundary(MAX_REASON_BYTES)].clone_into(&mut self.reason);
        self.at = failure.at;
        if self.count < MAX_PART_FAILURES {
            return false;
        }
        match failure.suspected_parts() {
            0 | 1 => self.is_quarantined = true,
            parts => {
                self.max_parts = self.max_parts.min(parts as u32 / 2);
                self.count = 0;
            }
        }
        true
    }
}

/// Creates the record of a part that has not failed before.
fn first_failure(at: Timestamp) -> PartFailures {
    PartFailures {
        count: 0,
        max_parts: MAX_JOB_PARTS as u32,
        is_quarantined: false,
        reason: String::new(),
        at,
    }
}

impl CatalogState {
    /// Forgets the failures of the named parts, or of all parts if none is named. Parts without failures are
    /// skipped.
    pub(in crate::state) fn retry_parts(&mut self, parts: &[PartId]) -> CommandOutcome {
        let before = self.compaction.failed_part_count();
        if parts.is_empty() {
            self.compaction.failures.clear();
        }
        for part in parts {
            self.compaction.forget_failures(part);
        }
        CommandOutcome::from_count(before - self.compaction.failed_part_count())
    }
}
