//! Rebuild of the catalog after the loss of all voters. Its sources are a snapshot, the blocks in the bucket,
//! and reports of nodes about their disks [INV-16].
//!
//! A snapshot misses the newest changes. Missing blocks describe themselves: each names its shard and its log
//! range. Missing shards are known only to the nodes that have their logs. The rebuild registers no block
//! with rows that may count a second time. Data that it cannot find becomes a data loss record.

use std::collections::{BTreeMap, BTreeSet};

use athanor_cluster::placement::{SlotTable, SlotTables};

use crate::state::rebuild::recovered_blocks::BlockSources;
use crate::state::rebuild::recovery_input::{
    BucketBlock, CatalogRecoveryError, RecoveryFindings, RecoveryInput, ShardReport, ShardReports,
};
use crate::state::topology::tables::iter_tables;
use crate::state::{
    CatalogSettings, CatalogState, HandoffSource, MAX_REPLICATION_FACTOR, MAX_SHARDS, ShardEntry, ShardId,
    ShardPhase, decode_shard_id,
};

/// Step of the revision: more than the number of changes since any snapshot. So no client takes the rebuilt
/// catalog for an older one.
const RECOVERY_REVISION_STEP: u64 = 1_000_000;

impl CatalogState {
    /// Rebuilds the catalog from the remaining data.
    pub fn recover(input: RecoveryInput) -> Result<(Self, RecoveryFindings), CatalogRecoveryError> {
        let RecoveryInput { snapshot, blocks, reports, at, retained_since } = input;
        let has_snapshot = snapshot.is_some();
        let mut state = snapshot.unwrap_or_else(|| Self::from_reports(&reports));
        state.now = state.now.max(at);
        // Blocks in the bucket name their own tenants.
        state.staged.clear();
        let mut findings = RecoveryFindings::default();
        let (reports, tables) = merge_reports(reports)?;
        state.add_reported_shards(&reports, &blocks, &mut findings)?;
        state.recover_slot_tables(&reports, tables, &mut findings)?;
        let newest_token = blocks.iter().filter_map(|found| Some(found.job.as_ref()?.token)).max();
        let sources = BlockSources { bucket: blocks, reports: &reports, retained_since };
        state.recover_blocks(sources, &mut findings)?;
        if !has_snapshot {
            state.derive_expired_times();
        }
        state.check_seals_known(&reports)?;
        state.recover_phases(&reports, &findings.new_shards);
        state.recover_fences(&reports);
        state.voters.clear();
        // Tokens are revisions, and no token is used for two jobs.
        let newest_revision = state.revision.max(newest_token.unwrap_or_default());
        state.revision = newest_revision.saturating_add(RECOVERY_REVISION_STEP);
        state.check().map_err(CatalogRecoveryError::Contradiction)?;
        Ok((state, findings))
    }

    /// Creates a state without a snapshot. The replication factor is the largest number of members in the
    /// reports.
    fn from_reports(reports: &[ShardReport]) -> Self {
        let members = reports.iter().map(|report| report.members.len()).max().unwrap_or(1);
        let replication_factor =
            u16::try_from(members).unwrap_or(MAX_REPLICATION_FACTOR).clamp(1, MAX_REPLICATION_FACTOR);
        Self {
            settings: CatalogSettings { replication_factor, ..CatalogSettings::default() },
            ..Self::default()
        }
    }

    /// Adds shards that only reports or blocks name.
    fn add_reported_shards(
        &mut self,
        reports: &ShardReports,
        blocks: &[BucketBlock],
        findings: &mut RecoveryFindings,
    ) -> Result<(), CatalogRecoveryError> {
        let named = blocks.iter().flat_map(|found| found.block.log_ranges()).map(|rows| rows.shard);
        let named = named.collect::<BTreeSet<_>>();
        // A predecessor without a report is known from the shard that copies its ids. It has not retired
        // until the copy ends.
        let copied = reports.values().filter(|report| report.accepted_profiles == Some(false));
        let copied = copied.filter_map(|report| match report.inherited? {
            HandoffSource::DedupWindow { predecessor, .. }
            | HandoffSource::RegisteredBlocks { predecessor, .. } => Some(predecessor),
            HandoffSource::None => None,
        });
        let all: BTreeSet<ShardId> = named.into_iter().chain(reports.keys().copied()).chain(copied).collect();
        // Epochs ascend, and only retired shards are removed. So an unknown shard older than a known one has
        // retired.
        let mut newest: BTreeMap<u32, u32> = BTreeMap::new();
        for shard in self.shards.values() {
            let epoch = newest.entry(shard.slot).or_default();
            *epoch = shard.epoch.max(*epoch);
        }
        for id in all {
            let (slot, epoch) = decode_shard_id(id).ok_or(CatalogRecoveryError::NoShard(id))?;
            let has_retired = newest.get(&slot).is_some_and(|newest| epoch < *newest);
            if has_retired && !self.shards.contains_key(&id) {
                continue;
            }
            let members = reports.get(&id).map(|report| report.members.clone()).unwrap_or_default();
            for node in &members {
                self.nodes.entry(*node).or_default();
            }
            if let Some(known) = self.shards.get_mut(&id) {
                // Members never change. A shard that an earlier rebuild found without a report gets its members
                // from the report.
                if known.members.is_empty() {
                    known.members = members;
                }
                continue;
            }
            findings.new_shards.push(id);
            self.insert_shard(slot, epoch, members, ShardPhase::Open);
        }
        let unretired = self.shards.values().filter(|shard| !shard.is_retired());
        findings
            .shards_without_log
            .extend(unretired.map(|shard| shard.id).filter(|id| !reports.contains_key(id)));
        match self.shards.len() <= MAX_SHARDS {
            true => Ok(()),
            false => Err(CatalogRecoveryError::TooMany {
                resource: "shards",
                seen: self.shards.len(),
                limit: MAX_SHARDS,
            }),
        }
    }

    /// Returns the shards that have a successor in their slot.
    pub(in crate::state) fn succeeded_shards(&self) -> BTreeSet<ShardId> {
        let newest = |shard: &ShardEntry| self.newest_shard(shard.slot).map(|newest| newest.id);
        self.shards.values().filter(|shard| newest(shard) != Some(shard.id)).map(|shard| shard.id).collect()
    }

    /// Returns an error if a shard was copied completely and no report names its seal. If it were marked
    /// lost, it would reconcile its ids with its copy. The copy would report all of its ids as held, and the
    /// shard would drop records that no other shard has.
    fn check_seals_known(&self, reports: &ShardReports) -> Result<(), CatalogRecoveryError> {
        for (successor, inherited) in reports.iter().filter_map(|(id, report)| Some((*id, report.inherited?)))
        {
            let HandoffSource::DedupWindow { predecessor: shard, up_to: None } = inherited else { continue };
            let is_open = self.shards.get(&shard).is_some_and(|shard| {
                !shard.is_retired()
                    && !matches!(shard.phase, ShardPhase::Sealed { .. } | ShardPhase::Lost { .. })
            });
            if is_open && reports.get(&shard).is_some_and(|report| report.sealed.is_none()) {
                return Err(CatalogRecoveryError::Unsealed { shard, successor });
            }
        }
        Ok(())
    }

    /// Returns the ids that a shard still has to copy, if the snapshot does not contain the shard. It may
    /// have been created without having opened. If it opened now, it would accept duplicates of records that
    /// its predecessor holds.
    fn pending_handoff(&self, id: ShardId, reports: &ShardReports, new: &[ShardId]) -> Option<HandoffSource> {
        let shard = self.shards.get(&id).filter(|_| new.contains(&id))?;
        let report = reports.get(&id).filter(|report| report.accepted_profiles == Some(false))?;
        let of_slot =
            self.shards.values().filter(|other| other.slot == shard.slot && other.epoch < shard.epoch);
        let before = of_slot.max_by_key(|other| other.epoch).filter(|before| !before.is_retired())?;
        Some(report.inherited.unwrap_or(HandoffSource::DedupWindow { predecessor: before.id, up_to: None }))
    }

    /// Sets the phase of each shard: the newest of a slot serves it, and all older ones have ended. `new`
    /// contains the shards that are missing in the snapshot.
    fn recover_phases(&mut self, reports: &ShardReports, new: &[ShardId]) {
        let followed = self.succeeded_shards();
        let known = self.shards.values().filter_map(|shard| match shard.phase {
            ShardPhase::Opening { source } => Some((shard.id, source)),
            _ => None,
        });
        let mut inherited: BTreeMap<ShardId, HandoffSource> = known.collect();
        inherited.extend(reports.iter().filter_map(|(id, report)| Some((*id, report.inherited?))));
        // Successors do not know the ids that a lost shard had copied.
        let lost = inherited.values().filter_map(|source| match source {
            HandoffSource::RegisteredBlocks { predecessor, .. } => decode_shard_id(*predecessor),
            _ => None,
        });
        let lost: BTreeSet<(u32, u32)> = lost.collect();
        let ends = inherited.values().filter_map(|source| match source {
            HandoffSource::DedupWindow { predecessor, up_to } => Some((*predecessor, (*up_to)?)),
            _ => None,
        });
        let ends: BTreeMap<ShardId, u64> = ends.collect();
        let opening =
            self.shards.keys().filter_map(|id| Some((*id, self.pending_handoff(*id, reports, new)?)));
        let opening: BTreeMap<ShardId, HandoffSource> = opening.collect();
        let now = self.now;
        for shard in self.shards.values_mut().filter(|shard| !shard.is_retired()) {
            let report = reports.get(&shard.id);
            let sealed = report.and_then(|report| report.sealed);
            let has_profiles = report.is_some_and(|report| report.accepted_profiles == Some(true));
            let is_lost = lost.range((shard.slot, shard.epoch)..=(shard.slot, u32::MAX)).next().is_some();
            let ended = match shard.phase {
                ShardPhase::Sealed { last_index } => Some(last_index),
                _ => ends.get(&shard.id).copied().or(sealed),
            };
            let phase = match (&shard.phase, followed.contains(&shard.id), ended) {
                (ShardPhase::Opening { .. }, false, _) if shard.watermark > 0 || has_profiles => {
                    ShardPhase::Open
                }
                (ShardPhase::Open, false, _) if opening.contains_key(&shard.id) => {
                    ShardPhase::Opening { source: opening[&shard.id] }
                }
                // The log has ended, and no successor is known. The shard gets the request to seal once more,
                // and a successor.
                (ShardPhase::Open, false, Some(_)) => ShardPhase::Sealing,
                (phase, false, _) => phase.clone(),
                (ShardPhase::Sealing, true, None) if !is_lost => ShardPhase::Sealing,
                (ShardPhase::Lost { .. }, true, _) => ShardPhase::Lost { watermark: shard.watermark },
                (_, true, Some(end)) if !is_lost || shard.watermark >= end => {
                    ShardPhase::Sealed { last_index: end.max(shard.watermark) }
                }
                (_, true, _) => ShardPhase::Lost { watermark: shard.watermark },
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
            ShardPhase::Opening { source } => Some((shard.id, source)),
            _ => None,
        });
        for (id, source) in opening.collect::<Vec<_>>() {
            let (HandoffSource::DedupWindow { predecessor, .. }
            | HandoffSource::RegisteredBlocks { predecessor, .. }) = source
            else {
                continue;
            };
            let agreed = match self.shards.get(&predecessor).map(|before| (&before.phase, before.watermark)) {
                Some((ShardPhase::Sealed { last_index }, _)) => {
                    HandoffSource::DedupWindow { predecessor, up_to: Some(*last_index) }
                }
                Some((ShardPhase::Sealing, _)) => HandoffSource::DedupWindow { predecessor, up_to: None },
                Some((_, watermark)) => HandoffSource::RegisteredBlocks { predecessor, up_to: watermark },
                None => source,
            };
            if let Some(shard) = self.shards.get_mut(&id) {
                shard.phase = ShardPhase::Opening { source: agreed };
            }
        }
        // If no shard copies the ids of a succeeded, closing shard any more, that shard is lost.
        let copied: BTreeSet<ShardId> = self.shards.values().filter_map(handoff_source_shard).collect();
        let now = self.now;
        let followed = self.succeeded_shards();
        for shard in self.shards.values_mut().filter(|shard| followed.contains(&shard.id)) {
            if shard.phase == ShardPhase::Sealing && !copied.contains(&shard.id) {
                shard.enter_phase(ShardPhase::Lost { watermark: shard.watermark }, now);
            }
        }
    }

    /// Restores the tables that nodes have seen. A proposed table is withdrawn, unless all shards have logged
    /// its fence. In that case it may have been published, so it is published now.
    fn recover_slot_tables(
        &mut self,
        reports: &ShardReports,
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
                let fenced = reports.get(&shard.id).map_or(0, |report| report.fenced);
                !shard.needs_fences() || shard.fenced.max(fenced) >= version
            };
            let newest = tables.keys().next_back().copied().unwrap_or_default();
            if version > newest && self.shards.values().all(has_fence) {
                tables.insert(version, pending.table);
            }
        }
        let versions = tables.keys().copied().chain(reports.values().map(|report| report.fenced));
        self.newest_proposed = self.newest_proposed.max(versions.max().unwrap_or_default());
        if tables.is_empty() {
            self.extend_first_table();
            return Ok(());
        }
        // Profiles are placed in slots of which no report exists. Such a slot gets a shard without known
        // members.
        let slots: BTreeSet<u32> = tables.values().flat_map(|table| table.slots().iter().copied()).collect();
        for slot in slots {
            if self.newest_shard(slot).is_none() {
                let id = self.insert_shard(slot, 1, BTreeSet::new(), ShardPhase::Open).id;
                findings.new_shards.push(id);
                findings.shards_without_log.push(id);
            }
        }
        let tables: Vec<SlotTable> = tables.into_values().collect();
        let tables = SlotTables::try_from(tables);
        self.tables = Some(tables.map_err(|error| CatalogRecoveryError::Contradiction(error.to_string()))?);
        Ok(())
    }

    /// Sets the fences: all serving shards have logged the fences of published tables.
    fn recover_fences(&mut self, reports: &ShardReports) {
        let newest = self.newest_table_version();
        for shard in self.shards.values_mut() {
            let logged = reports.get(&shard.id).map_or(0, |report| report.fenced);
            let published = if shard.serves() { newest } else { 0 };
            shard.fenced = shard.fenced.max(logged).max(published);
        }
        if newest <= 1 {
            self.extend_first_table();
        }
    }
}

fn handoff_source_shard(shard: &ShardEntry) -> Option<ShardId> {
    match shard.phase {
        ShardPhase::Opening { source: HandoffSource::DedupWindow { predecessor, .. } } => Some(predecessor),
        _ => None,
    }
}

/// Merges the reports of several nodes per shard, and collects all tables.
fn merge_reports(
    reports: Vec<ShardReport>,
) -> Result<(ShardReports, BTreeMap<u64, SlotTable>), CatalogRecoveryError> {
    let mut merged_reports = ShardReports::new();
    let mut tables = BTreeMap::new();
    for mut report in reports {
        for table in std::mem::take(&mut report.tables) {
            let version = table.version();
            if tables.insert(version, table.clone()).is_some_and(|other| other != table) {
                return Err(CatalogRecoveryError::Contradiction(format!(
                    "two tables have version {version}"
                )));
            }
        }
        let Some(merged) = merged_reports.get_mut(&report.shard) else {
            merged_reports.insert(report.shard, report);
            continue;
        };
        if merged.members != report.members
            || merged.sealed.is_some_and(|end| report.sealed.is_some_and(|other| other != end))
        {
            let shard = report.shard;
            return Err(CatalogRecoveryError::Contradiction(format!(
                "reports of shard {shard} name different members or seals"
            )));
        }
        merged.flushed = merged.flushed.max(report.flushed);
        merged.sealed = merged.sealed.or(report.sealed);
        merged.fenced = merged.fenced.max(report.fenced);
        merged.inherited = merged.inherited.or(report.inherited);
        // The node that applied more of the log has seen them.
        merged.accepted_profiles = merged.accepted_profiles.max(report.accepted_profiles);
    }
    Ok((merged_reports, tables))
}
