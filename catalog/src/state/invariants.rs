//! Invariants that hold after every command.

use std::collections::{BTreeMap, BTreeSet};

use athanor_chassis::TenantId;

use crate::block::{BlockEntry, BlockId, PartId, ShardLogRange, TENANT_FOLDER_LEVEL};
use crate::compaction::{MAX_JOB_PARTS, PartFailures};
use crate::state::topology::tables::iter_tables;
use crate::state::{
    CatalogState, HandoffSource, MAX_FAILED_PARTS, MAX_PART_FAILURES, MAX_REPLICATION_FACTOR, MAX_SERVICES,
    MAX_SHARDS, MAX_VOTERS, ShardEntry, ShardId, ShardPhase, decode_shard_id,
};

impl CatalogState {
    /// Returns the first violated invariant of the state.
    pub fn check(&self) -> Result<(), String> {
        for shard in self.shards.values() {
            self.check_shard(shard)?;
        }
        let slots: BTreeSet<u32> = self.shards.values().map(|shard| shard.slot).collect();
        for slot in slots {
            self.check_slot(slot)?;
        }
        self.check_tables()?;
        self.check_blocks()?;
        self.check_compaction()?;
        self.check_documents()?;
        self.retention.check(self)?;
        self.check_staged()?;
        self.check_counts()
    }

    fn check_shard(&self, shard: &ShardEntry) -> Result<(), String> {
        let ShardEntry { id, slot, epoch, watermark, members, phase, .. } = shard;
        if decode_shard_id(*id) != Some((*slot, *epoch)) {
            return Err(format!("shard {id} is not the id of slot {slot} and epoch {epoch}"));
        }
        if members.len() > usize::from(MAX_REPLICATION_FACTOR) {
            return Err(format!("shard {id} has {} members", members.len()));
        }
        if let Some(node) = members.iter().find(|node| !self.nodes.contains_key(*node)) {
            return Err(format!("node {node}, a member of shard {id}, is not known"));
        }
        let is_valid = match phase {
            ShardPhase::Opening { .. } => *watermark == 0,
            ShardPhase::Sealed { last_index } => watermark <= last_index,
            ShardPhase::Lost { watermark: lost_at } => watermark == lost_at,
            ShardPhase::Open | ShardPhase::Sealing | ShardPhase::Retired { .. } => true,
        };
        match is_valid {
            true => Ok(()),
            false => Err(format!("shard {id} is {phase} and has watermark {watermark}")),
        }
    }

    /// Checks that one shard of the slot serves, or is opening. All older ones have ended, or seal while the
    /// newest copies their ids.
    fn check_slot(&self, slot: u32) -> Result<(), String> {
        let mut newest_first = self.shards_of_slot(slot).rev();
        let Some(newest) = newest_first.next() else { return Ok(()) };
        if !newest.needs_fences() {
            return Err(format!("shard {} has no successor and is {}", newest.id, newest.phase));
        }
        for shard in newest_first {
            let has_ended = matches!(
                shard.phase,
                ShardPhase::Sealed { .. } | ShardPhase::Lost { .. } | ShardPhase::Retired { .. }
            );
            let is_copied = shard.phase == ShardPhase::Sealing && newest.copies_ids_from(shard.id);
            if !(has_ended || is_copied) {
                return Err(format!(
                    "shard {} is {} although shard {} is newer",
                    shard.id, shard.phase, newest.id
                ));
            }
        }
        match &newest.phase {
            ShardPhase::Opening { source } => self.check_handoff_source(newest, *source),
            _ => Ok(()),
        }
    }

    fn check_handoff_source(&self, shard: &ShardEntry, source: HandoffSource) -> Result<(), String> {
        let predecessor = match source {
            HandoffSource::None => return Ok(()),
            HandoffSource::DedupWindow { predecessor, .. }
            | HandoffSource::RegisteredBlocks { predecessor, .. } => predecessor,
        };
        let before = self
            .shards
            .get(&predecessor)
            .filter(|before| before.slot == shard.slot && before.epoch < shard.epoch);
        let phase = before.map(|before| &before.phase);
        let is_valid = match (source, phase) {
            (HandoffSource::DedupWindow { up_to: None, .. }, Some(ShardPhase::Sealing)) => true,
            (
                HandoffSource::DedupWindow { up_to: Some(up_to), .. },
                Some(ShardPhase::Sealed { last_index }),
            ) => up_to == *last_index,
            (HandoffSource::RegisteredBlocks { up_to, .. }, Some(ShardPhase::Lost { watermark })) => {
                up_to == *watermark
            }
            // A retired predecessor may be removed from the state as well.
            (
                HandoffSource::RegisteredBlocks { .. },
                Some(ShardPhase::Retired { abandoned: true, .. }) | None,
            ) => true,
            _ => false,
        };
        match is_valid {
            true => Ok(()),
            false => Err(format!("shard {} copies {source}, but its predecessor is {phase:?}", shard.id)),
        }
    }

    fn check_tables(&self) -> Result<(), String> {
        let Some(tables) = &self.tables else {
            return match self.pending.is_none() && self.shards.is_empty() {
                true => Ok(()),
                false => Err("there are slots but no table".to_owned()),
            };
        };
        let pending = self.pending.as_ref().map(|pending| &pending.table);
        for table in iter_tables(tables).chain(pending) {
            let is_served = |slot: u32| self.newest_shard(slot).is_some_and(ShardEntry::needs_fences);
            if let Some(slot) = table.slots().iter().find(|slot| !is_served(**slot)) {
                return Err(format!("table {} names slot {slot}, which has no shard", table.version()));
            }
            if table.version() > self.newest_proposed {
                return Err(format!("table {} was never proposed", table.version()));
            }
        }
        let newest = self.newest_table_version();
        if let Some(shard) = self.shards.values().find(|shard| shard.serves() && shard.fenced < newest) {
            return Err(format!("shard {} serves without the fence of table {newest}", shard.id));
        }
        let Some(pending) = &self.pending else { return Ok(()) };
        if pending.table.from() <= tables.table_at(i64::MAX).from() {
            return Err(format!("table {} does not follow the newest", pending.table.version()));
        }
        let cannot = |id: &ShardId| !self.shards.get(id).is_some_and(ShardEntry::needs_fences);
        if let Some(id) = pending.unfenced.iter().find(|id| cannot(id)) {
            return Err(format!("table {} needs a fence of shard {id}", pending.table.version()));
        }
        match self.shards.values().find(|shard| matches!(shard.phase, ShardPhase::Lost { .. })) {
            Some(lost) => Err(format!("a table is proposed while shard {} is lost", lost.id)),
            None => Ok(()),
        }
    }

    /// Checks each block's ranges and level, that no block ends after its shard's watermark, and that no row is
    /// in two blocks.
    fn check_blocks(&self) -> Result<(), String> {
        self.blocks.check_indexes()?;
        let mut all: Vec<(ShardLogRange, &BlockEntry)> = Vec::new();
        for block in self.blocks.values() {
            let id = block.id;
            if self.tombstones.contains_key(&id) {
                return Err(format!("block {id} is registered and has a tombstone"));
            }
            if block.level == 0 && !block.additional_ranges.is_empty() {
                return Err(format!("block {id} was flushed, and holds several ranges"));
            }
            if block.level == 0 && block.job.is_some() {
                return Err(format!("block {id} was flushed, and names a job"));
            }
            if !block.has_valid_tier() {
                return Err(format!(
                    "block {id} of level {} is of tier {} and covered, or below level {TENANT_FOLDER_LEVEL}",
                    block.level, block.tier
                ));
            }
            if block.level >= TENANT_FOLDER_LEVEL && block.tenants.len() != 1 {
                return Err(format!(
                    "block {id} of level {} has {} tenants",
                    block.level,
                    block.tenants.len()
                ));
            }
            if !ShardLogRange::join_adjacent(block.log_ranges()).into_iter().eq(block.log_ranges()) {
                return Err(format!("the ranges of block {id} are not in order, or not joined"));
            }
            all.extend(block.log_ranges().map(|rows| (rows, block)));
        }
        for (ShardLogRange { shard, from, to, .. }, BlockEntry { id, .. }) in &all {
            if from >= to || self.shards.get(shard).is_some_and(|shard| shard.watermark < *to) {
                return Err(format!(
                    "block {id} ends at {to}, past the watermark of shard {shard}, or before {from}"
                ));
            }
        }
        self.check_flushed_ranges()?;
        self.check_merged_rows()
    }

    /// Checks that no log entry is in two flushed blocks.
    fn check_flushed_ranges(&self) -> Result<(), String> {
        let flushed = self.blocks.values().filter(|block| block.level == 0);
        let mut ranges: Vec<(ShardLogRange, BlockId)> =
            flushed.flat_map(|block| block.log_ranges().map(|rows| (rows, block.id))).collect();
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            let [(rows, block), (next, other)] = pair else { continue };
            if rows.overlaps(next) {
                return Err(format!("blocks {block} and {other} of shard {} overlap", rows.shard));
            }
        }
        Ok(())
    }

    /// Checks that no tenant has rows of one log range in a flushed block and in a raw merged one.
    fn check_merged_rows(&self) -> Result<(), String> {
        let mut flushed: BTreeMap<&TenantId, Vec<ShardLogRange>> = BTreeMap::new();
        for block in self.blocks.values().filter(|block| block.level == 0) {
            for span in &block.tenants {
                flushed.entry(&span.tenant).or_default().extend(block.log_ranges());
            }
        }
        flushed.values_mut().for_each(|ranges| ranges.sort_unstable());
        for block in self.blocks.values().filter(|block| block.level > 0 && block.tier.is_raw()) {
            for span in &block.tenants {
                let Some(ranges) = flushed.get(&span.tenant) else { continue };
                if block.log_ranges().any(|rows| overlaps_any(ranges, &rows)) {
                    let tenant = &span.tenant;
                    return Err(format!(
                        "rows of tenant {tenant} in block {} are in a flushed block",
                        block.id
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks claims, failures and tokens of the compactor.
    fn check_compaction(&self) -> Result<(), String> {
        let compaction = &self.compaction;
        let mut claimed: BTreeSet<PartId> = BTreeSet::new();
        for (token, claim) in &compaction.claims {
            let is_sized = (1..=MAX_JOB_PARTS).contains(&claim.parts.len()) && claim.parts.is_canonical();
            if !is_sized || *token > self.revision || compaction.finished.contains_key(token) {
                return Err(format!(
                    "claim {token} has invalid parts, or its token is of a later or finished job"
                ));
            }
            self.find_parts(&claim.parts).map_err(|error| format!("claim {token}: {error}"))?;
            for part in claim.parts.iter() {
                if compaction.is_quarantined(&part) {
                    return Err(format!("the {part} is quarantined and claimed by job {token}"));
                }
                if let Some(part) = claimed.replace(part) {
                    return Err(format!("the {part} is claimed by job {token} and an earlier one"));
                }
            }
        }
        self.check_failures()
    }

    fn check_failures(&self) -> Result<(), String> {
        for (id, tenants) in self.compaction.failures.iter() {
            let listed = self.blocks.get(id).map_or(&[][..], |block| &block.tenants);
            let listed: BTreeSet<&TenantId> = listed.iter().map(|span| &span.tenant).collect();
            for (tenant, failures) in tenants {
                let PartFailures { count, max_parts, is_quarantined, .. } = *failures;
                let is_counted = is_quarantined || (1..=MAX_JOB_PARTS as u32).contains(&max_parts);
                if !listed.contains(tenant) || !is_counted || count > MAX_PART_FAILURES {
                    return Err(format!(
                        "block {id} has {count} failures of tenant {tenant}, not listed or too many"
                    ));
                }
            }
        }
        match self.compaction.failed_part_count() {
            count if count > MAX_FAILED_PARTS => Err(format!("there are failures of {count} parts")),
            _ => Ok(()),
        }
    }

    fn check_counts(&self) -> Result<(), String> {
        let services: usize = self.service_rates.values().map(BTreeMap::len).sum();
        let counts = [
            ("shards", self.shards.len(), MAX_SHARDS),
            ("services", services, MAX_SERVICES),
            ("voters", self.voters.len(), MAX_VOTERS),
        ];
        match counts.into_iter().find(|(_, count, limit)| count > limit) {
            Some((what, count, limit)) => Err(format!("there are {count} {what}, the limit is {limit}")),
            None => Ok(()),
        }
    }
}

/// Returns whether a range has an entry in one of the ranges, which are in order and disjoint.
fn overlaps_any(ranges: &[ShardLogRange], rows: &ShardLogRange) -> bool {
    let place = ranges.partition_point(|one| (one.shard, one.to) <= (rows.shard, rows.from));
    ranges.get(place).is_some_and(|one| one.overlaps(rows))
}
