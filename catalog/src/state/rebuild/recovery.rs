//! Rebuild of the catalog after the loss of all voters. Its sources are a snapshot, the blocks in the bucket,
//! and reports of nodes about their disks [INV-16].
//!
//! A snapshot misses the newest changes. Missing blocks describe themselves: each names its shard and its log
//! range. Missing shards are known only to the nodes that have their logs. The rebuild registers no block
//! with rows that may count a second time. Data that it cannot find becomes a data loss record.

use std::collections::{BTreeMap, BTreeSet};

use athanor_chassis::Timestamp;
use athanor_cluster::placement::{SlotTable, SlotTables};

use crate::block::{BlockEntry, BlockId, ShardLogRange};
use crate::state::rebuild::block_chains::{best_chain, best_disjoint_blocks};
use crate::state::rebuild::merged_blocks::{find_merged_blocks, is_covered};
use crate::state::rebuild::recovery_input::{
    BucketBlock, CatalogRecoveryError, RecoveryFindings, RecoveryInput, ShardReport,
};
use crate::state::topology::tables::iter_tables;
use crate::state::{
    CatalogSettings, CatalogState, DataLoss, HandoffSource, MAX_COPIES, MAX_DATA_LOSS_RECORDS, MAX_SHARDS,
    ShardEntry, ShardId, ShardPhase, decode_shard_id,
};

/// Step of the revision: more than the number of changes since any snapshot. So no client takes the rebuilt
/// catalog for an older one.
const RECOVERY_REVISION_STEP: u64 = 1_000_000;

/// Merged reports of the nodes, by shard.
type ShardReports = BTreeMap<ShardId, ShardReport>;

impl CatalogState {
    /// Rebuilds the catalog from the remaining data.
    pub fn recover(remains: RecoveryInput) -> Result<(Self, RecoveryFindings), CatalogRecoveryError> {
        let RecoveryInput { snapshot, blocks, described, at, kept_from } = remains;
        let mut state = snapshot.unwrap_or_else(|| Self::from_reports(&described));
        state.now = state.now.max(at);
        // Blocks in the bucket name their own tenants.
        state.staged.clear();
        let mut findings = RecoveryFindings::default();
        let (told, tables) = merge_reports(described)?;
        state.add_reported_shards(&told, &blocks, &mut findings)?;
        state.recover_slot_tables(&told, tables, &mut findings)?;
        let (cuts, lies) = state.recover_merged_blocks(blocks, &mut findings)?;
        state.remove_missing_blocks(&lies, kept_from, &mut findings)?;
        // A succeeded shard may have dropped records. Blocks that it wrote before that and never registered
        // still contain them.
        let followed = state.succeeded_shards();
        let mut of_shards: BTreeMap<ShardId, Vec<BlockEntry>> = BTreeMap::new();
        for block in cuts {
            of_shards.entry(block.shard).or_default().push(block);
        }
        let shards: Vec<ShardId> = state.shards.keys().copied().collect();
        for shard in shards {
            let lying = of_shards.remove(&shard).unwrap_or_default();
            let to_cut_only = followed.contains(&shard) && told.contains_key(&shard);
            state.recover_block_chain(shard, lying, told.get(&shard), to_cut_only, &mut findings)?;
        }
        state.check_seals_known(&told)?;
        state.recover_phases(&told, &findings.shards);
        state.recover_fences(&told);
        state.voters.clear();
        state.revision = state.revision.saturating_add(RECOVERY_REVISION_STEP);
        state.check().map_err(CatalogRecoveryError::Contradiction)?;
        Ok((state, findings))
    }

    /// Creates a state without a snapshot. The replication factor is the largest number of members in the
    /// reports.
    fn from_reports(described: &[ShardReport]) -> Self {
        let most = described.iter().map(|told| told.members.len()).max().unwrap_or(1);
        let copies = u16::try_from(most).unwrap_or(MAX_COPIES).clamp(1, MAX_COPIES);
        Self { settings: CatalogSettings { copies, ..CatalogSettings::default() }, ..Self::default() }
    }

    /// Adds shards that only reports or blocks name.
    fn add_reported_shards(
        &mut self,
        told: &ShardReports,
        blocks: &[BucketBlock],
        findings: &mut RecoveryFindings,
    ) -> Result<(), CatalogRecoveryError> {
        let named = blocks.iter().flat_map(|lying| lying.block.log_ranges()).map(|rows| rows.shard);
        let named = named.collect::<BTreeSet<_>>();
        // A predecessor without a report is known from the shard that copies its ids. It has not retired
        // until the copy ends.
        let copied = told.values().filter(|told| told.taken == Some(false));
        let copied = copied.filter_map(|told| match told.inherited? {
            HandoffSource::Window { of, .. } | HandoffSource::Blocks { of, .. } => Some(of),
            HandoffSource::Nothing => None,
        });
        let all: BTreeSet<ShardId> = named.into_iter().chain(told.keys().copied()).chain(copied).collect();
        // Epochs ascend, and only retired shards are removed. So an unknown shard older than a known one has
        // retired.
        let mut newest: BTreeMap<u32, u32> = BTreeMap::new();
        for shard in self.shards.values() {
            let epoch = newest.entry(shard.slot).or_default();
            *epoch = shard.epoch.max(*epoch);
        }
        for id in all {
            let (slot, epoch) = decode_shard_id(id).ok_or(CatalogRecoveryError::NoShard(id))?;
            let is_over = newest.get(&slot).is_some_and(|newest| epoch < *newest);
            if is_over && !self.shards.contains_key(&id) {
                continue;
            }
            let members = told.get(&id).map(|told| told.members.clone()).unwrap_or_default();
            for node in &members {
                self.nodes.entry(*node).or_default();
            }
            if let Some(known) = self.shards.get_mut(&id) {
                // Members never change. A shard that was opened before members were recorded gets them from
                // the report.
                if known.members.is_empty() {
                    known.members = members;
                }
                continue;
            }
            findings.shards.push(id);
            self.insert_shard(slot, epoch, members, ShardPhase::Open);
        }
        let unretired = self.shards.values().filter(|shard| !shard.is_retired());
        findings.without_log.extend(unretired.map(|shard| shard.id).filter(|id| !told.contains_key(id)));
        match self.shards.len() <= MAX_SHARDS {
            true => Ok(()),
            false => Err(CatalogRecoveryError::TooMany {
                what: "shards",
                seen: self.shards.len(),
                limit: MAX_SHARDS,
            }),
        }
    }

    /// Returns the shards that have a successor in their slot.
    fn succeeded_shards(&self) -> BTreeSet<ShardId> {
        let newest = |shard: &ShardEntry| self.newest_shard(shard.slot).map(|newest| newest.id);
        self.shards.values().filter(|shard| newest(shard) != Some(shard.id)).map(|shard| shard.id).collect()
    }

    /// Registers merged blocks instead of their inputs, because otherwise both would count. The inputs may
    /// still be in the bucket, and so may the inputs of merged inputs. Returns the remaining flushed blocks,
    /// and the ids of all blocks in the bucket without a tombstone.
    fn recover_merged_blocks(
        &mut self,
        lying: Vec<BucketBlock>,
        findings: &mut RecoveryFindings,
    ) -> Result<(Vec<BlockEntry>, BTreeSet<BlockId>), CatalogRecoveryError> {
        let (condemned, left): (Vec<_>, Vec<_>) =
            lying.into_iter().partition(|lying| self.condemned.contains_key(&lying.block.id));
        findings.passed_over.extend(condemned.into_iter().map(|lying| lying.block.id));
        let lies: BTreeSet<BlockId> = left.iter().map(|lying| lying.block.id).collect();
        let taken = find_merged_blocks(&left, &self.blocks, |block| lies.contains(&block));
        let is_replaced = |block: &BlockEntry| {
            !taken.iter().any(|taken| taken.id == block.id)
                && taken.iter().any(|taken| taken.conflicts_with(block))
        };
        let replaced: Vec<BlockEntry> =
            self.blocks.values().filter(|block| is_replaced(block)).cloned().collect();
        for block in replaced {
            self.blocks.remove(&block.id);
            self.condemned.entry(block.id).or_insert(self.now);
            // Each tenant's rows are in some merged block, but some of those are gone as well.
            if !is_covered(&block, &taken) {
                findings.missing.push(block.id);
                self.record_block_gaps(&block, findings)?;
            }
        }
        let mut cuts = Vec::new();
        for BucketBlock { block, inputs } in &left {
            if taken.iter().any(|taken| taken.id == block.id) {
                findings.recalled.push(block.id);
            } else if is_replaced(block) {
                findings.passed_over.push(block.id);
                if is_covered(block, &taken) {
                    self.condemned.entry(block.id).or_insert(self.now);
                }
            } else if inputs.is_empty() {
                cuts.push(block.clone());
            } else if !self.blocks.contains_key(&block.id) {
                findings.passed_over.push(block.id);
            }
        }
        let taken: Vec<BlockEntry> = taken.into_iter().cloned().collect();
        self.blocks.extend(taken.into_iter().map(|block| (block.id, block)));
        Ok((cuts, lies))
    }

    /// Removes blocks that are gone from the bucket. Those older than `kept_from` were removed by retention
    /// and are no loss.
    fn remove_missing_blocks(
        &mut self,
        lies: &BTreeSet<BlockId>,
        kept_from: Timestamp,
        findings: &mut RecoveryFindings,
    ) -> Result<(), CatalogRecoveryError> {
        let gone: Vec<BlockEntry> =
            self.blocks.values().filter(|block| !lies.contains(&block.id)).cloned().collect();
        for block in gone {
            self.blocks.remove(&block.id);
            self.condemned.entry(block.id).or_insert(self.now);
            if block.id.named_at() >= kept_from {
                findings.missing.push(block.id);
                self.record_block_gaps(&block, findings)?;
            } else {
                self.retention.record_purged(&block);
            }
        }
        self.retention.purge_absent(lies);
        Ok(())
    }

    fn record_block_gaps(
        &mut self,
        block: &BlockEntry,
        findings: &mut RecoveryFindings,
    ) -> Result<(), CatalogRecoveryError> {
        block.log_ranges().try_for_each(|rows| self.record_gap(rows.shard, rows.from, rows.to, findings))
    }

    fn record_gap(
        &mut self,
        shard: ShardId,
        from: u64,
        to: u64,
        findings: &mut RecoveryFindings,
    ) -> Result<(), CatalogRecoveryError> {
        let seen = self.scars.len() + 1;
        if self.check_data_loss_capacity(1).is_err() {
            return Err(CatalogRecoveryError::TooMany { what: "gaps", seen, limit: MAX_DATA_LOSS_RECORDS });
        }
        self.push_data_loss(DataLoss::Gap { shard, from, to });
        findings.gaps.push((shard, from, to));
        Ok(())
    }

    /// Registers unlisted blocks of a shard. Up to the purge point of its log it selects the blocks that
    /// cover the most entries, and after it one chain. Entries that neither the log nor a block holds become
    /// a gap.
    fn recover_block_chain(
        &mut self,
        id: ShardId,
        lying: Vec<BlockEntry>,
        told: Option<&ShardReport>,
        to_cut_only: bool,
        findings: &mut RecoveryFindings,
    ) -> Result<(), CatalogRecoveryError> {
        let Some(shard) = self.shards.get(&id) else { return Ok(()) };
        let begin = shard.watermark;
        let epoch = shard.epoch;
        let known = match shard.phase {
            ShardPhase::Sealed { at } => Some(at),
            _ => None,
        };
        let end = told.and_then(|told| told.sealed).or(known).unwrap_or(u64::MAX);
        // Ranges of merged blocks: everything before their ends was registered.
        let made = self.blocks.values().flat_map(BlockEntry::log_ranges);
        let made: Vec<ShardLogRange> = made.filter(|rows| rows.shard == id && rows.to > begin).collect();
        let registered = made.iter().map(|rows| rows.to).max().unwrap_or(begin);
        let cut = told.map_or(begin, |told| told.cut.min(end)).max(registered);
        let mut later = lying;
        later.retain(|block| !self.blocks.contains_key(&block.id));
        later.sort_unstable_by_key(|block| (block.to, block.from, block.id));
        let fits = |block: &&BlockEntry, from: u64, to: u64| {
            block.epoch == epoch && from <= block.from && block.from < block.to && block.to <= to
        };
        let below: Vec<&BlockEntry> = later.iter().filter(|block| fits(block, begin, cut)).collect();
        let mut taken = best_disjoint_blocks(&below);
        let mut watermark = cut;
        if !to_cut_only {
            let above: Vec<&BlockEntry> = later.iter().filter(|block| fits(block, cut, end)).collect();
            let chain = best_chain(&above, cut);
            watermark = chain.last().map_or(cut, |block| block.to);
            taken.extend(chain);
        }
        let taken: Vec<BlockEntry> = taken.into_iter().cloned().collect();
        let mut held = made;
        held.extend(taken.iter().flat_map(BlockEntry::log_ranges));
        let mut position = begin;
        for rows in ShardLogRange::join_adjacent(held) {
            if rows.from > position {
                self.record_gap(id, position, rows.from, findings)?;
            }
            position = rows.to;
        }
        if position < watermark {
            self.record_gap(id, position, watermark, findings)?;
        }
        let is_taken = |block: &BlockEntry| taken.iter().any(|taken| taken.id == block.id);
        findings.passed_over.extend(later.iter().filter(|block| !is_taken(block)).map(|block| block.id));
        for block in taken {
            findings.recalled.push(block.id);
            self.blocks.insert(block.id, block);
        }
        if let Some(shard) = self.shards.get_mut(&id) {
            shard.watermark = watermark;
        }
        Ok(())
    }

    /// Returns an error if a shard was copied completely and no report names its seal. If it were taken for
    /// lost, it would settle with its copy. The copy would report all of its ids as held, and it would drop
    /// records that no other shard has.
    fn check_seals_known(&self, told: &ShardReports) -> Result<(), CatalogRecoveryError> {
        for (by, inherited) in told.iter().filter_map(|(id, told)| Some((*id, told.inherited?))) {
            let HandoffSource::Window { of: shard, upto: None } = inherited else { continue };
            let is_open = self.shards.get(&shard).is_some_and(|shard| {
                !shard.is_retired()
                    && !matches!(shard.phase, ShardPhase::Sealed { .. } | ShardPhase::Lost { .. })
            });
            if is_open && told.get(&shard).is_some_and(|told| told.sealed.is_none()) {
                return Err(CatalogRecoveryError::Unsealed { shard, by });
            }
        }
        Ok(())
    }

    /// Returns the ids that a shard still has to copy, if the snapshot does not contain the shard. It may
    /// have been created without having opened. If it opened now, it would accept duplicates of records that
    /// its predecessor holds.
    fn pending_handoff(&self, id: ShardId, told: &ShardReports, new: &[ShardId]) -> Option<HandoffSource> {
        let shard = self.shards.get(&id).filter(|_| new.contains(&id))?;
        let told = told.get(&id).filter(|told| told.taken == Some(false))?;
        let of_slot =
            self.shards.values().filter(|other| other.slot == shard.slot && other.epoch < shard.epoch);
        let before = of_slot.max_by_key(|other| other.epoch).filter(|before| !before.is_retired())?;
        Some(told.inherited.unwrap_or(HandoffSource::Window { of: before.id, upto: None }))
    }

    /// Sets the phase of each shard: the newest of a slot serves it, and all older ones have ended. `new`
    /// contains the shards that are missing in the snapshot.
    fn recover_phases(&mut self, told: &ShardReports, new: &[ShardId]) {
        let followed = self.succeeded_shards();
        let known = self.shards.values().filter_map(|shard| match shard.phase {
            ShardPhase::Opening { inherits } => Some((shard.id, inherits)),
            _ => None,
        });
        let mut inherited: BTreeMap<ShardId, HandoffSource> = known.collect();
        inherited.extend(told.iter().filter_map(|(id, told)| Some((*id, told.inherited?))));
        // Successors do not know the ids that a lost shard had copied.
        let lost = inherited.values().filter_map(|inherits| match inherits {
            HandoffSource::Blocks { of, .. } => decode_shard_id(*of),
            _ => None,
        });
        let lost: BTreeSet<(u32, u32)> = lost.collect();
        let ends = inherited.values().filter_map(|inherits| match inherits {
            HandoffSource::Window { of, upto } => Some((*of, (*upto)?)),
            _ => None,
        });
        let ends: BTreeMap<ShardId, u64> = ends.collect();
        let opening = self.shards.keys().filter_map(|id| Some((*id, self.pending_handoff(*id, told, new)?)));
        let opening: BTreeMap<ShardId, HandoffSource> = opening.collect();
        let now = self.now;
        for shard in self.shards.values_mut().filter(|shard| !shard.is_retired()) {
            let of_it = told.get(&shard.id);
            let sealed = of_it.and_then(|told| told.sealed);
            let has_taken = of_it.is_some_and(|told| told.taken == Some(true));
            let is_lost = lost.range((shard.slot, shard.epoch)..=(shard.slot, u32::MAX)).next().is_some();
            let ended = match shard.phase {
                ShardPhase::Sealed { at } => Some(at),
                _ => ends.get(&shard.id).copied().or(sealed),
            };
            let phase = match (&shard.phase, followed.contains(&shard.id), ended) {
                (ShardPhase::Opening { .. }, false, _) if shard.watermark > 0 || has_taken => {
                    ShardPhase::Open
                }
                (ShardPhase::Open, false, _) if opening.contains_key(&shard.id) => {
                    ShardPhase::Opening { inherits: opening[&shard.id] }
                }
                // The log has ended, and no successor is known. The shard gets the request to seal once more,
                // and a successor.
                (ShardPhase::Open, false, Some(_)) => ShardPhase::Closing,
                (phase, false, _) => phase.clone(),
                (ShardPhase::Closing, true, None) if !is_lost => ShardPhase::Closing,
                (ShardPhase::Lost { .. }, true, _) => ShardPhase::Lost { kept: shard.watermark },
                (_, true, Some(at)) if !is_lost || shard.watermark >= at => {
                    ShardPhase::Sealed { at: at.max(shard.watermark) }
                }
                (_, true, _) => ShardPhase::Lost { kept: shard.watermark },
            };
            if phase != shard.phase {
                shard.enter_phase(phase, now);
            }
        }
        self.align_handoffs();
    }

    /// Makes an opening successor copy from its predecessor as that one is now.
    fn align_handoffs(&mut self) {
        let opening = self.shards.values().filter_map(|shard| match shard.phase {
            ShardPhase::Opening { inherits } => Some((shard.id, inherits)),
            _ => None,
        });
        for (id, inherits) in opening.collect::<Vec<_>>() {
            let (HandoffSource::Window { of, .. } | HandoffSource::Blocks { of, .. }) = inherits else {
                continue;
            };
            let agreed = match self.shards.get(&of).map(|before| (&before.phase, before.watermark)) {
                Some((ShardPhase::Sealed { at }, _)) => HandoffSource::Window { of, upto: Some(*at) },
                Some((ShardPhase::Closing, _)) => HandoffSource::Window { of, upto: None },
                Some((_, watermark)) => HandoffSource::Blocks { of, upto: watermark },
                None => inherits,
            };
            if let Some(shard) = self.shards.get_mut(&id) {
                shard.phase = ShardPhase::Opening { inherits: agreed };
            }
        }
        // If no shard copies the ids of a succeeded, closing shard any more, that shard is lost.
        let copied: BTreeSet<ShardId> = self.shards.values().filter_map(handoff_source_shard).collect();
        let now = self.now;
        let followed = self.succeeded_shards();
        for shard in self.shards.values_mut().filter(|shard| followed.contains(&shard.id)) {
            if shard.phase == ShardPhase::Closing && !copied.contains(&shard.id) {
                shard.enter_phase(ShardPhase::Lost { kept: shard.watermark }, now);
            }
        }
    }

    /// Restores the tables that nodes have seen. A proposed table is withdrawn, unless all shards have logged
    /// its fence. In that case it may have been published, so it is published now.
    fn recover_slot_tables(
        &mut self,
        told: &ShardReports,
        seen: BTreeMap<u64, SlotTable>,
        findings: &mut RecoveryFindings,
    ) -> Result<(), CatalogRecoveryError> {
        let mut tables: BTreeMap<u64, SlotTable> =
            self.tables.iter().flat_map(iter_tables).map(|table| (table.version(), table.clone())).collect();
        let newest = tables.keys().next_back().copied().unwrap_or_default();
        tables.extend(seen.into_iter().filter(|(version, _)| *version > newest));
        if let Some(pending) = self.pending.take() {
            let version = pending.table.version();
            let has_fence = |shard: &ShardEntry| {
                let told = told.get(&shard.id).map_or(0, |told| told.fenced);
                !shard.needs_fences() || shard.fenced.max(told) >= version
            };
            let newest = tables.keys().next_back().copied().unwrap_or_default();
            if version > newest && self.shards.values().all(has_fence) {
                tables.insert(version, pending.table);
            }
        }
        let versions = tables.keys().copied().chain(told.values().map(|told| told.fenced));
        self.proposed = self.proposed.max(versions.max().unwrap_or_default());
        if tables.is_empty() {
            self.first_table_of_all_slots();
            return Ok(());
        }
        // Profiles are placed in slots of which no report exists. Such a slot gets a shard without known
        // members.
        let slots: BTreeSet<u32> = tables.values().flat_map(|table| table.slots().iter().copied()).collect();
        for slot in slots {
            if self.newest_shard(slot).is_none() {
                let id = self.insert_shard(slot, 1, BTreeSet::new(), ShardPhase::Open).id;
                findings.shards.push(id);
                findings.without_log.push(id);
            }
        }
        let tables: Vec<SlotTable> = tables.into_values().collect();
        let tables = SlotTables::try_from(tables);
        self.tables = Some(tables.map_err(|error| CatalogRecoveryError::Contradiction(error.to_string()))?);
        Ok(())
    }

    /// Sets the fences: all serving shards have logged the fences of published tables.
    fn recover_fences(&mut self, told: &ShardReports) {
        let newest = self.newest_table_version();
        for shard in self.shards.values_mut() {
            let logged = told.get(&shard.id).map_or(0, |told| told.fenced);
            let published = if shard.serves() { newest } else { 0 };
            shard.fenced = shard.fenced.max(logged).max(published);
        }
        if newest <= 1 {
            self.first_table_of_all_slots();
        }
    }
}

fn handoff_source_shard(shard: &ShardEntry) -> Option<ShardId> {
    match shard.phase {
        ShardPhase::Opening { inherits: HandoffSource::Window { of, .. } } => Some(of),
        _ => None,
    }
}

/// Merges the reports of several nodes per shard, and collects all tables.
fn merge_reports(
    described: Vec<ShardReport>,
) -> Result<(ShardReports, BTreeMap<u64, SlotTable>), CatalogRecoveryError> {
    let mut told = ShardReports::new();
    let mut tables = BTreeMap::new();
    for mut one in described {
        for table in std::mem::take(&mut one.tables) {
            let version = table.version();
            if tables.insert(version, table.clone()).is_some_and(|other| other != table) {
                return Err(CatalogRecoveryError::Contradiction(format!("two tables are called {version}")));
            }
        }
        let Some(all) = told.get_mut(&one.shard) else {
            told.insert(one.shard, one);
            continue;
        };
        if all.members != one.members
            || all.sealed.is_some_and(|at| one.sealed.is_some_and(|other| other != at))
        {
            let shard = one.shard;
            return Err(CatalogRecoveryError::Contradiction(format!(
                "nodes say two things of shard {shard}"
            )));
        }
        all.cut = all.cut.max(one.cut);
        all.sealed = all.sealed.or(one.sealed);
        all.fenced = all.fenced.max(one.fenced);
        all.inherited = all.inherited.or(one.inherited);
        // The node that applied more of the log has seen them.
        all.taken = all.taken.max(one.taken);
    }
    Ok((told, tables))
}
