//! Blocks and tombstones of a rebuilt catalog.
//!
//! ```text
//!  snapshot ─► unlisted flushed blocks ─► outputs of finished jobs ─► parts that they took ─► missing blocks
//! ```

use std::collections::{BTreeMap, BTreeSet};

use athanor_chassis::{TenantId, Timestamp};

use crate::block::{BlockEntry, BlockId, ShardLogRange};
use crate::state::rebuild::block_chains::{
    FlushedCandidate, LogBounds, ShardCandidates, best_chain, best_disjoint_blocks,
};
use crate::state::rebuild::finished_jobs::{FinishedJobs, JobInventory};
use crate::state::rebuild::recovery_input::{
    BucketBlock, CatalogRecoveryError, JobSource, RecoveryFindings, ShardReport, ShardReports,
};
use crate::state::{CatalogState, DataLoss, MAX_DATA_LOSS_RECORDS, ShardId, ShardPhase};

/// Sources of the blocks of a rebuilt catalog.
pub(in crate::state) struct BlockSources<'b> {
    /// Complete blocks in the bucket.
    pub(in crate::state) bucket: Vec<BucketBlock>,
    /// Reports of the nodes.
    pub(in crate::state) reports: &'b ShardReports,
    /// Blocks with older rows only were removed by retention.
    pub(in crate::state) retained_since: Timestamp,
}

impl CatalogState {
    /// Registers unlisted blocks of the bucket, and removes the parts that jobs took since the snapshot.
    /// Entries that neither a block nor a log holds become gaps.
    pub(in crate::state) fn recover_blocks(
        &mut self,
        sources: BlockSources<'_>,
        findings: &mut RecoveryFindings,
    ) -> Result<(), CatalogRecoveryError> {
        let BlockSources { bucket, reports, retained_since } = sources;
        let present: BTreeSet<BlockId> = bucket.iter().map(|found| found.block.id).collect();
        let found: Vec<BucketBlock> = bucket.into_iter().filter(|found| self.can_register(found)).collect();
        let listed: BTreeMap<BlockId, &BlockEntry> = self.blocks().map(|block| (block.id, block)).collect();
        let inventory = JobInventory { found: &found, listed: &listed, present: &present, retained_since };
        let finished = inventory.find_finished_jobs();
        let before: BTreeSet<BlockId> = listed.into_keys().collect();
        // Tokens of later claims are larger than all earlier ones, since the revision grows.
        self.compaction.claims.clear();
        self.compaction.failures.clear();
        let mut gaps = self.recover_flushed_blocks(&found, &finished, reports);
        for output in finished.outputs() {
            self.blocks.insert(output.id, output.clone());
        }
        self.take_merged_parts(&finished, &present);
        for (token, job) in finished.by_token {
            self.compaction.finished.insert(token, self.now);
            if !job.missing.is_empty() {
                gaps.extend(job.outputs.iter().flat_map(BlockEntry::log_ranges));
                findings.missing.extend(job.missing);
            }
        }
        gaps.extend(self.remove_missing_blocks(&present, retained_since, findings));
        self.retention.purge_absent(&present);
        self.record_gaps(gaps, findings)?;
        findings
            .reinstated
            .extend(self.blocks().map(|block| block.id).filter(|block| !before.contains(block)));
        findings.skipped.extend(present.into_iter().filter(|block| !self.blocks.contains_key(block)));
        Ok(())
    }

    /// Returns whether a block may have been registered after the snapshot.
    fn can_register(&self, found: &BucketBlock) -> bool {
        let BucketBlock { block, job } = found;
        let is_unknown = !self.blocks.contains_key(&block.id) && !self.tombstones.contains_key(&block.id);
        is_unknown && job.as_ref().map_or(block.level == 0, |job| self.can_finish(job))
    }

    /// Returns whether a job may have finished after the snapshot. The revision is larger than the tokens of
    /// all claims that the snapshot knows.
    fn can_finish(&self, job: &JobSource) -> bool {
        let is_known =
            |output: &BlockId| self.blocks.contains_key(output) || self.tombstones.contains_key(output);
        let is_deleted =
            |input: &BlockId| self.tombstones.contains_key(input) && !self.retention.is_expired(input);
        (job.token > self.revision || self.compaction.claims.contains_key(&job.token))
            && !job.outputs.iter().any(is_known)
            && !job.inputs.blocks.iter().any(is_deleted)
    }

    /// Registers the flushed blocks of all shards. Returns the gaps.
    fn recover_flushed_blocks(
        &mut self,
        found: &[BucketBlock],
        finished: &FinishedJobs,
        reports: &ShardReports,
    ) -> Vec<ShardLogRange> {
        let mut candidates: BTreeMap<ShardId, ShardCandidates<'_>> = BTreeMap::new();
        for block in found.iter().map(|found| &found.block).filter(|block| block.level == 0) {
            candidates.entry(block.shard).or_default().flushed.push(FlushedCandidate {
                block,
                read_by: finished.read.get(&block.id).copied(),
                has_taken_parts: finished.taken.contains_key(&block.id),
            });
        }
        for rows in finished.outputs().flat_map(BlockEntry::log_ranges) {
            candidates.entry(rows.shard).or_default().merged.push(rows);
        }
        // A succeeded shard may have dropped records. Blocks that it wrote before that and never registered
        // still contain them.
        let succeeded = self.succeeded_shards();
        let shards: Vec<ShardId> = self.shards.keys().copied().collect();
        let mut gaps = Vec::new();
        for shard in shards {
            let report = reports.get(&shard);
            let of_shard = candidates.remove(&shard).unwrap_or_default();
            let flushed_only = succeeded.contains(&shard) && report.is_some();
            gaps.extend(self.recover_block_chain(shard, of_shard, report, flushed_only));
        }
        gaps
    }

    /// Registers unlisted blocks of a shard, and returns the entries that neither the log nor a block holds.
    /// Up to the purge point of its log it selects the blocks that cover the most entries, and after it one
    /// chain.
    fn recover_block_chain(
        &mut self,
        id: ShardId,
        mut candidates: ShardCandidates<'_>,
        report: Option<&ShardReport>,
        flushed_only: bool,
    ) -> Vec<ShardLogRange> {
        let Some(shard) = self.shards.get(&id) else { return Vec::new() };
        let begin = shard.watermark;
        let epoch = shard.epoch;
        let known_end = match shard.phase {
            ShardPhase::Sealed { last_index } => Some(last_index),
            _ => None,
        };
        let end = report.and_then(|report| report.sealed).or(known_end).unwrap_or(u64::MAX);
        let mut chosen = candidates.take_registered(LogBounds { epoch, begin, end });
        // Everything before the end of a merged block was registered.
        let merged = candidates.merged.iter().map(|rows| rows.to);
        let registered = merged.chain(chosen.iter().map(|block| block.to)).max().unwrap_or(begin);
        let flushed = report.map_or(begin, |report| report.flushed.min(end)).max(registered);
        chosen.extend(best_disjoint_blocks(&candidates.flushed_between(begin, flushed)));
        let mut watermark = flushed;
        if !flushed_only {
            let chain = best_chain(&candidates.flushed_between(flushed, end), flushed);
            watermark = chain.last().map_or(flushed, |block| block.to);
            chosen.extend(chain);
        }
        let mut held = candidates.merged;
        held.extend(chosen.iter().flat_map(|block| block.log_ranges()));
        let mut gaps = Vec::new();
        let mut position = begin;
        for rows in ShardLogRange::join_adjacent(held) {
            if rows.from > position {
                gaps.push(ShardLogRange { shard: id, epoch, from: position, to: rows.from });
            }
            position = rows.to;
        }
        if position < watermark {
            gaps.push(ShardLogRange { shard: id, epoch, from: position, to: watermark });
        }
        for block in chosen {
            self.blocks.insert(block.id, block.clone());
        }
        if let Some(shard) = self.shards.get_mut(&id) {
            shard.watermark = watermark;
        }
        gaps
    }

    /// Removes the parts that finished jobs took. The outputs inherit lost entries. Ids ascend
    /// from inputs to outputs, so the entries pass through a chain of jobs.
    fn take_merged_parts(&mut self, finished: &FinishedJobs, present: &BTreeSet<BlockId>) {
        for (id, tokens) in &finished.taken {
            let mut tenants: BTreeSet<&TenantId> = tokens.keys().collect();
            self.retention.forget_expired_parts(id, &tenants);
            let Some(block) = self.blocks.get(id) else { continue };
            let listed: BTreeSet<&TenantId> = block.tenants.iter().map(|span| &span.tenant).collect();
            tenants.retain(|tenant| listed.contains(tenant));
            if tenants.is_empty() {
                continue;
            }
            let tokens: BTreeSet<u64> = tokens
                .iter()
                .filter(|(tenant, _)| tenants.contains(tenant))
                .map(|(_, token)| *token)
                .collect();
            let lost = self.unlist_parts(id, &tenants).map_or(0, |block| block.lost);
            if let Some(tombstone) = self.tombstones.get_mut(id).filter(|_| !present.contains(id)) {
                tombstone.is_removed = true;
            }
            let heir = tokens.last().and_then(|token| self.heir_of_lost_entries(finished, *token));
            if let Some(mut block) = heir.filter(|_| lost > 0).and_then(|heir| self.blocks.remove(&heir)) {
                block.lost = block.lost.saturating_add(lost);
                self.blocks.insert(block.id, block);
            }
        }
    }

    /// Returns the listed block that takes over the lost entries of a job's inputs. If the job's first output
    /// is missing, a later job took it over.
    fn heir_of_lost_entries(&self, finished: &FinishedJobs, token: u64) -> Option<BlockId> {
        let first = *finished.by_token.get(&token)?.output_ids.first()?;
        if self.blocks.contains_key(&first) {
            return Some(first);
        }
        let later = *finished.taken.get(&first)?.values().max()?;
        if later > token { self.heir_of_lost_entries(finished, later) } else { None }
    }

    /// Removes blocks that are gone from the bucket, and returns their log ranges. Retention removed those
    /// whose rows are older than `retained_since`; they are no loss.
    fn remove_missing_blocks(
        &mut self,
        present: &BTreeSet<BlockId>,
        retained_since: Timestamp,
        findings: &mut RecoveryFindings,
    ) -> Vec<ShardLogRange> {
        let gone: Vec<BlockEntry> =
            self.blocks().filter(|block| !present.contains(&block.id)).cloned().collect();
        let mut gaps = Vec::new();
        for block in gone {
            let is_loss = block.newest_time() >= retained_since;
            self.blocks.remove(&block.id);
            self.insert_tombstone(&block);
            if let Some(tombstone) = self.tombstones.get_mut(&block.id) {
                tombstone.is_removed = true;
            }
            if is_loss {
                findings.missing.push(block.id);
                gaps.extend(block.log_ranges());
            } else {
                self.retention.record_purged(&block);
            }
        }
        gaps
    }

    fn record_gaps(
        &mut self,
        gaps: Vec<ShardLogRange>,
        findings: &mut RecoveryFindings,
    ) -> Result<(), CatalogRecoveryError> {
        let gaps = ShardLogRange::join_adjacent(gaps);
        if self.check_data_loss_capacity(gaps.len()).is_err() {
            return Err(CatalogRecoveryError::TooMany {
                resource: "gaps",
                seen: self.data_losses.len() + gaps.len(),
                limit: MAX_DATA_LOSS_RECORDS,
            });
        }
        for ShardLogRange { shard, from, to, .. } in gaps {
            self.push_data_loss(DataLoss::MissingBlocks { shard, from, to });
            findings.gaps.push((shard, from, to));
        }
        Ok(())
    }
}
