//! Swap of a job's parts for the blocks that were merged from them [INV-20].

use std::collections::BTreeSet;
use std::time::Duration;

use crate::block::{BlockEntry, BlockId, DroppedRows, PartId, ShardLogRange, TenantSpan};
use crate::compaction::{JobParts, MAX_COMPARED_BLOCKS, MAX_JOB_OUTPUTS};
use crate::state::block_lifecycle::blocks::is_name_within_skew;
use crate::state::compaction::job_check::JobCheck;
use crate::state::{CatalogState, CommandError, CommandOutcome, CommandResult, OutputMismatch};

/// Time for which the token of a finished job is kept. A retry within it succeeds.
pub const FINISHED_TOKEN_RETENTION: Duration = Duration::from_secs(24 * 3600);

impl CatalogState {
    /// Swaps the parts of a claim for the outputs. A retry of a finished job changes nothing. If a covered block
    /// was registered after the worker read the listing, the claim ends without a failure.
    pub(in crate::state) fn finish_job(
        &mut self,
        token: u64,
        outputs: Vec<BlockEntry>,
        dropped: &[DroppedRows],
        compared: &[BlockId],
    ) -> Result<CommandOutcome, CommandError> {
        if self.compaction.finished.contains_key(&token) {
            return Ok(CommandOutcome::from_count(0));
        }
        let claim = self.compaction.claims.get(&token).ok_or(CommandError::ClaimEnded { token })?;
        let parts = claim.parts.clone();
        if outputs.len() > MAX_JOB_OUTPUTS {
            return Err(CommandError::TooManyOutputs { seen: outputs.len() });
        }
        if compared.len() > MAX_COMPARED_BLOCKS {
            return Err(CommandError::TooManyCompared { seen: compared.len() });
        }
        self.check_output_ids(&outputs)?;
        let inputs = self.find_parts(&parts)?;
        JobCheck::new(token, &inputs)?.check(&outputs, dropped)?;
        self.check_output_conflicts(&parts, &outputs)?;
        if let Some(block) = self.find_uncompared_block(&parts, &outputs, compared) {
            self.compaction.claims.remove(&token);
            // A rebuild must not find them and take the job for finished.
            outputs.iter().for_each(|output| self.insert_tombstone(output));
            return Ok(CommandOutcome::Changed(CommandResult::NotCompared(block)));
        }
        let count = parts.len() + outputs.len();
        self.swap_parts(&parts, outputs);
        self.drop_old_finished_tokens();
        self.compaction.finished.insert(token, self.now);
        Ok(CommandOutcome::from_count(count))
    }

    fn check_output_ids(&self, outputs: &[BlockEntry]) -> Result<(), CommandError> {
        let mut seen = BTreeSet::new();
        for output in outputs {
            let id = output.id;
            if self.tombstones.contains_key(&id) {
                return Err(CommandError::Tombstoned(id));
            }
            if self.blocks.contains_key(&id) || !seen.insert(id) {
                let mismatch = OutputMismatch::IdInUse;
                return Err(CommandError::OutputMismatch { block: id, mismatch });
            }
            if !is_name_within_skew(id, self.now) {
                return Err(CommandError::BlockNameSkew { block: id, now: self.now });
            }
        }
        Ok(())
    }

    /// Checks that no flushed block keeps rows of an output's tenants and ranges. A merged block cannot hold
    /// them: its rows are in its own parts, which the job takes or does not read.
    fn check_output_conflicts(&self, parts: &JobParts, outputs: &[BlockEntry]) -> Result<(), CommandError> {
        let ranges = ShardLogRange::join_adjacent(outputs.iter().flat_map(BlockEntry::log_ranges));
        for block in self.blocks.flushed_in_ranges(ranges.into_iter()) {
            let part = |span: &TenantSpan| PartId { block: block.id, tenant: span.tenant.clone() };
            let of_job = block.tenants.iter().filter(|span| parts.tenants.contains_key(&span.tenant));
            let tenants: Vec<TenantSpan> =
                of_job.filter(|span| !parts.contains(&part(span))).cloned().collect();
            if tenants.is_empty() {
                continue;
            }
            let kept = BlockEntry { tenants, ..block.clone() };
            if let Some(output) = outputs.iter().find(|output| output.conflicts_with(&kept)) {
                let mismatch = OutputMismatch::OverlapsBlock(block.id);
                return Err(CommandError::OutputMismatch { block: output.id, mismatch });
            }
        }
        Ok(())
    }

    /// Returns a covered block that stays listed, may hold rows of a covered output, and was not compared with
    /// the job's rows. A row in both would be in the tiers twice [INV-23].
    fn find_uncompared_block(
        &self,
        parts: &JobParts,
        outputs: &[BlockEntry],
        compared: &[BlockId],
    ) -> Option<BlockId> {
        let compared: BTreeSet<&BlockId> = compared.iter().collect();
        let is_open = |block: &BlockEntry| {
            let is_input = parts.blocks.binary_search(&block.id).is_ok();
            block.is_covered && !is_input && !compared.contains(&block.id)
        };
        let spans = outputs.iter().filter(|output| output.is_covered).flat_map(|output| &output.tenants);
        let near = spans.flat_map(|span| {
            self.blocks.blocks_between(&span.tenant, span.min_time, span.max_time).into_iter()
        });
        near.into_iter().find(|block| is_open(block)).map(|block| block.id)
    }

    /// Removes the parts, tombstones the blocks that have no part left, and lists the outputs. The first output
    /// takes over the lost entries of the tombstoned blocks. If all rows were duplicates, the newest listed block
    /// does.
    fn swap_parts(&mut self, parts: &JobParts, mut outputs: Vec<BlockEntry>) {
        let mut lost = 0_u64;
        for (id, tenants) in parts.tenants_by_block() {
            let removed = self.unlist_parts(&id, &tenants);
            lost = lost.saturating_add(removed.map_or(0, |block| block.lost));
        }
        match outputs.first_mut() {
            Some(first) => first.lost = lost,
            None => self.pass_on_lost_entries(lost),
        }
        self.blocks.extend(outputs.into_iter().map(|output| (output.id, output)));
    }

    /// Adds lost entries to the newest listed block, so that listings still report them.
    fn pass_on_lost_entries(&mut self, lost: u64) {
        let newest = self.blocks.keys().copied().last().filter(|_| lost > 0);
        if let Some(mut block) = newest.and_then(|newest| self.blocks.remove(&newest)) {
            block.lost = block.lost.saturating_add(lost);
            self.blocks.insert(block.id, block);
        }
    }

    /// Drops the tokens of jobs that finished long ago. Returns their number.
    pub(in crate::state) fn drop_old_finished_tokens(&mut self) -> usize {
        let before = self.compaction.finished.len();
        let now = self.now;
        self.compaction.finished.retain(|_, finished| now.since(*finished) < FINISHED_TOKEN_RETENTION);
        before - self.compaction.finished.len()
    }
}
