//! Model of a cluster whose catalog is lost: its true state, and everything that outlives it.

use std::collections::BTreeSet;

use athanor_chassis::{Random, Tier};

use super::super::*;
use crate::{JobParts, ShardLogRange, TenantSpan};

pub(super) const SHARDS: [ShardId; 3] = [1, 2, 3];
const TENANTS: [&str; 3] = ["a", "b", "c"];
/// Widths of the windows of each level.
const WINDOW_WIDTHS: [i64; 5] = [0, 4, 8, 32, 128];
const MINUTE: Duration = Duration::from_secs(60);

/// One profile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    pub(super) shard: ShardId,
    pub(super) index: u64,
    tenant: TenantId,
    time: i64,
}

/// A job whose worker has uploaded its outputs.
#[derive(Clone)]
pub(super) struct UploadedJob {
    pub(super) token: u64,
    pub(super) outputs: Vec<BlockEntry>,
    is_whole: bool,
}

#[derive(Default)]
pub(super) struct ShardLog {
    /// The last entry.
    pub(super) end: u64,
    /// Entries up to this index may be purged.
    pub(super) flushed: u64,
}

/// Numbers of listed parts that hold one row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TierRowCounts {
    /// Parts of the tier.
    pub(super) held: usize,
    /// Covered raw parts.
    pub(super) covered: usize,
    /// Uncovered raw parts.
    pub(super) uncovered: usize,
}

/// Numbers of events, to check that the histories contain them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EventCounts {
    pub(super) finished: usize,
    pub(super) unfinished: usize,
    pub(super) deleted: usize,
}

pub(super) struct Model {
    pub(super) random: Random,
    pub(super) facts: CatalogState,
    pub(super) snapshots: Vec<CatalogState>,
    pub(super) bucket: BTreeMap<BlockId, BucketBlock>,
    pub(super) rows: BTreeMap<BlockId, BTreeSet<Row>>,
    pub(super) logs: BTreeMap<ShardId, ShardLog>,
    pub(super) uploaded: Vec<UploadedJob>,
    /// Rows that were listed in blocks that retention removed, by block.
    pub(super) removed: BTreeMap<BlockId, BTreeSet<Row>>,
    /// Tiers of these blocks.
    pub(super) removed_tiers: BTreeMap<BlockId, Tier>,
    pub(super) counts: EventCounts,
    now: Timestamp,
    next: u128,
}

/// Returns the rows of a log entry: one or two, of tenants and times that look random.
fn entry_rows(shard: ShardId, index: u64) -> Vec<Row> {
    let mixed = (index + u64::from(shard) * 1000).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let row = |place: u32| {
        let bits = mixed.rotate_right(place * 16 + 20);
        let tenant = TENANTS[(bits % 3) as usize].parse().unwrap();
        Row { shard, index, tenant, time: index as i64 + (bits >> 8) as i64 % 7 - 3 }
    };
    (0..1 + (mixed >> 60) as u32 % 2).map(row).collect::<BTreeSet<_>>().into_iter().collect()
}

fn window_end(time: i64, width: i64) -> i64 {
    (time - 1).div_euclid(width) * width + width
}

fn spans(tier: Tier, rows: &BTreeSet<Row>, newest_arrival: Timestamp) -> Vec<TenantSpan> {
    let tenants: BTreeSet<&TenantId> = rows.iter().map(|row| &row.tenant).collect();
    let span = |tenant: &TenantId| {
        let times: Vec<i64> = rows.iter().filter(|row| row.tenant == *tenant).map(|row| row.time).collect();
        TenantSpan {
            tenant: tenant.clone(),
            min_time: tier.bucket_end(*times.iter().min().unwrap()),
            max_time: tier.bucket_end(*times.iter().max().unwrap()),
            profiles: times.len() as u64,
            samples: times.len() as u64,
            sum: Some(times.iter().fold(0, |sum, time| sum.wrapping_add(*time as u64))),
            newest_arrival,
        }
    };
    tenants.into_iter().map(span).collect()
}

impl Model {
    pub(super) fn new(seed: u64) -> Self {
        let mut facts = CatalogState::default();
        let members = vec![[7].into(), [8].into(), [9].into()];
        let zones = [7, 8, 9].map(|node| (node, String::new())).into();
        facts.apply(NOW, CatalogCommand::OpenSlots { count: 3, members, zones });
        Self {
            random: Random::from_seed(seed),
            facts,
            snapshots: Vec::new(),
            bucket: BTreeMap::new(),
            rows: BTreeMap::new(),
            logs: SHARDS.map(|shard| (shard, ShardLog::default())).into(),
            uploaded: Vec::new(),
            removed: BTreeMap::new(),
            removed_tiers: BTreeMap::new(),
            counts: EventCounts::default(),
            now: NOW,
            next: 1,
        }
    }

    pub(super) fn below(&self, n: u64) -> u64 {
        self.random.next_below(n.max(1))
    }

    fn next_id(&mut self) -> BlockId {
        self.next += 1;
        BlockId::from_number(self.next)
    }

    fn apply(&mut self, command: CatalogCommand) -> CommandResult {
        self.facts.apply(self.now, command)
    }

    /// Writes a flushed block, which may stay unregistered.
    fn flush(&mut self, shard: ShardId, from: u64, to: u64) -> BlockEntry {
        let id = self.next_id();
        let rows: BTreeSet<Row> = (from + 1..=to).flat_map(|index| entry_rows(shard, index)).collect();
        let tenants = spans(Tier::Raw, &rows, NOW);
        let samples = tenants.iter().map(|span| span.samples).sum();
        let lost = u64::from(self.below(6) == 0);
        let block = BlockEntry { id, shard, tenants, samples, lost, ..super::super::block(0, from, to) };
        self.rows.insert(id, rows);
        self.bucket.insert(id, BucketBlock { block: block.clone(), job: None });
        block
    }

    pub(super) fn step(&mut self) {
        let shard = SHARDS[self.below(3) as usize];
        let watermark = self.facts.shards[&shard].watermark;
        let end = self.logs[&shard].end;
        match self.below(20) {
            0..=2 => self.logs.get_mut(&shard).unwrap().end += self.below(9),
            3..=6 if end > watermark => {
                let block = self.flush(shard, watermark, watermark + 1 + self.below(end - watermark));
                if self.below(4) > 0 {
                    let registered = self.apply(CatalogCommand::RegisterBlock { block });
                    assert!(matches!(registered, CommandResult::Registered(_)), "{registered:?}");
                }
            }
            // A deposed leader writes the same entries.
            7 if end > 0 => {
                let from = self.below(end);
                self.flush(shard, from, from + 1 + self.below(end - from));
            }
            8..=9 => self.logs.get_mut(&shard).unwrap().flushed = watermark,
            10 => self.snapshots.push(self.facts.clone()),
            11 if self.below(3) == 0 => self.remove_oldest(),
            12..=16 => self.start_job(),
            17 => self.finish_uploaded(),
            18..=19 => self.delete_objects(),
            _ => {}
        }
    }

    /// Retention removes the oldest block.
    fn remove_oldest(&mut self) {
        let Some(oldest) = self.facts.blocks().next().cloned() else { return };
        self.removed.insert(oldest.id, self.listed_rows(&oldest));
        self.removed_tiers.insert(oldest.id, oldest.tier);
        self.apply(CatalogCommand::TombstoneBlocks { blocks: vec![oldest.id], tenant: None });
    }

    /// Returns the rows of the parts that an entry lists.
    pub(super) fn listed_rows(&self, block: &BlockEntry) -> BTreeSet<Row> {
        let rows = self.rows[&block.id].iter();
        rows.filter(|row| block.tenant_span(&row.tenant).is_some()).cloned().collect()
    }

    /// Deletes objects of blocks whose tombstones are in the newest snapshot.
    fn delete_objects(&mut self) {
        let Some(newest) = self.snapshots.last() else { return };
        let tombstoned: Vec<BlockId> = newest.tombstones().map(|(block, _)| block).collect();
        for block in tombstoned {
            if self.below(2) == 0 && self.bucket.remove(&block).is_some() {
                self.counts.deleted += 1;
                if self.below(2) == 0 {
                    self.apply(CatalogCommand::RecordRemovedObjects { blocks: vec![block] });
                }
            }
        }
    }

    /// Chooses parts of listed blocks of one tier: all parts of some tenants.
    fn choose_parts(&self) -> Vec<BlockEntry> {
        let tier = Tier::ALL[self.below(6).saturating_sub(2) as usize];
        let all: Vec<&BlockEntry> = self.facts.blocks().filter(|block| block.tier == tier).collect();
        let mut chosen: BTreeMap<BlockId, BlockEntry> = BTreeMap::new();
        for _ in 0..1 + self.below(5) {
            if let Some(block) = all.get(self.below(all.len() as u64) as usize) {
                chosen.insert(block.id, (*block).clone());
            }
        }
        let left_out = self.below(6) as usize;
        for block in chosen.values_mut() {
            block
                .tenants
                .retain(|span| TENANTS.get(left_out).is_none_or(|name| span.tenant.as_str() != *name));
        }
        chosen.into_values().filter(|block| !block.tenants.is_empty()).collect()
    }

    /// Claims parts and uploads outputs. The worker may crash during the uploads or after them, or finish
    /// later.
    fn start_job(&mut self) {
        self.now = self.now.plus(MINUTE * self.below(3) as u32);
        let inputs = self.choose_parts();
        let parts = JobParts::from_entries(&inputs);
        if self.below(4) == 0 {
            self.apply(CatalogCommand::RetryParts { parts: Vec::new() });
        }
        let claim = CatalogCommand::ClaimParts { worker: 7 + self.below(3), parts: parts.clone() };
        let CommandResult::Claimed(token) = self.apply(claim) else { return };
        let outputs = self.write_outputs(token, &inputs);
        let written =
            if self.below(4) == 0 { self.below(outputs.len() as u64) as usize } else { outputs.len() };
        let ids: Vec<BlockId> = outputs.iter().map(|output| output.id).collect();
        for output in &outputs[..written] {
            let job = Some(JobSource { token, outputs: ids.clone(), inputs: parts.clone() });
            self.bucket.insert(output.id, BucketBlock { block: output.clone(), job });
        }
        self.uploaded.push(UploadedJob { token, is_whole: written == outputs.len(), outputs });
        if self.below(3) > 0 {
            self.finish_uploaded();
        }
    }

    /// Merges the parts: one output per window, and per tenant from level 2 on. Raw merges from level 2 on write
    /// the uncovered rows of each output to all tiers.
    fn write_outputs(&mut self, token: u64, inputs: &[BlockEntry]) -> Vec<BlockEntry> {
        let tier = inputs[0].tier;
        let (lowest, highest) = if tier.is_raw() { (1, 3) } else { (3, 4) };
        let lowest = inputs.iter().map(|input| input.level).max().unwrap().max(lowest);
        let level = lowest + self.below(u64::from(highest + 1 - lowest)) as u8;
        let mut groups: BTreeMap<(i64, Option<TenantId>), BTreeSet<Row>> = BTreeMap::new();
        for row in inputs.iter().flat_map(|input| self.listed_rows(input)) {
            let window = window_end(row.time, WINDOW_WIDTHS[usize::from(level)]);
            let owner = (level > 1).then(|| row.tenant.clone());
            groups.entry((window, owner)).or_default().insert(row);
        }
        let uncovered = inputs.iter().filter(|input| !input.is_covered);
        let uncovered: BTreeSet<Row> = uncovered.flat_map(|input| self.listed_rows(input)).collect();
        let mut outputs = Vec::new();
        for rows in groups.into_values() {
            let missing: BTreeSet<Row> = rows.intersection(&uncovered).cloned().collect();
            outputs.push(self.write_output(token, inputs, tier, level, rows));
            let lower = Tier::DOWNSAMPLED.into_iter().filter(|_| tier.is_raw() && level > 1);
            for tier in lower.filter(|_| !missing.is_empty()) {
                outputs.push(self.write_output(token, inputs, tier, level, missing.clone()));
            }
        }
        outputs
    }

    fn write_output(
        &mut self,
        token: u64,
        inputs: &[BlockEntry],
        tier: Tier,
        level: u8,
        rows: BTreeSet<Row>,
    ) -> BlockEntry {
        let id = self.next_id();
        let mut tenants = spans(tier, &rows, NOW);
        let holds =
            |input: &&BlockEntry| tenants.iter().any(|span| input.tenant_span(&span.tenant).is_some());
        let ranges = inputs.iter().filter(holds).flat_map(BlockEntry::log_ranges);
        let ranges = ShardLogRange::join_adjacent(ranges);
        for span in &mut tenants {
            let arrivals = inputs
                .iter()
                .filter_map(|input| Some(input.newest_arrival(input.tenant_span(&span.tenant)?)));
            span.newest_arrival = arrivals.max().unwrap();
        }
        let ShardLogRange { shard, epoch, from, to } = ranges[0];
        self.rows.insert(id, rows);
        BlockEntry {
            id,
            epoch,
            level,
            tier,
            is_covered: tier.is_raw() && level > 1,
            job: Some(token),
            samples: tenants.iter().map(|span| span.samples).sum(),
            additional_ranges: ranges[1..].to_vec(),
            tenants,
            shard,
            ..super::super::block(0, from, to)
        }
    }

    /// Finishes some job whose outputs are uploaded. Its claim may have ended.
    fn finish_uploaded(&mut self) {
        if self.uploaded.is_empty() {
            return;
        }
        let job = self.uploaded[self.below(self.uploaded.len() as u64) as usize].clone();
        let finish = CatalogCommand::FinishJob {
            token: job.token,
            outputs: job.outputs,
            dropped: Vec::new(),
            compared: Vec::new(),
        };
        match job.is_whole {
            true if matches!(self.apply(finish), CommandResult::Changed(1..)) => self.counts.finished += 1,
            _ => self.counts.unfinished += 1,
        }
    }

    pub(super) fn recovery_input(&self, snapshot: Option<CatalogState>) -> RecoveryInput {
        let report = |(shard, log): (&ShardId, &ShardLog)| ShardReport {
            shard: *shard,
            members: [u64::from(*shard) + 6].into(),
            flushed: log.flushed,
            fenced: 1,
            ..ShardReport::default()
        };
        RecoveryInput {
            snapshot,
            blocks: self.bucket.values().cloned().collect(),
            reports: self.logs.iter().map(report).collect(),
            at: self.now,
            retained_since: NOW,
        }
    }

    /// Returns how many listed parts of a tier hold each row, with the number of its listed raw parts that are
    /// covered and not covered.
    pub(super) fn count_tier_rows(&self, state: &CatalogState, tier: Tier) -> BTreeMap<Row, TierRowCounts> {
        let mut counts: BTreeMap<Row, TierRowCounts> = BTreeMap::new();
        for block in state.blocks() {
            for row in self.listed_rows(block) {
                let count = counts.entry(row).or_default();
                count.held += usize::from(block.tier == tier);
                count.covered += usize::from(block.is_covered);
                count.uncovered += usize::from(block.is_uncovered());
            }
        }
        counts
    }

    /// Returns how many listed raw parts hold each acknowledged row, or 1 if the log holds it.
    pub(super) fn count_rows(&self, state: &CatalogState) -> BTreeMap<Row, usize> {
        let mut counts = BTreeMap::new();
        for (shard, log) in &self.logs {
            let watermark = state.shards[shard].watermark;
            for index in 1..=log.end.max(watermark) {
                let in_log = usize::from(index > watermark);
                counts.extend(entry_rows(*shard, index).into_iter().map(|row| (row, in_log)));
            }
        }
        let raw = state.blocks().filter(|block| block.tier.is_raw());
        for row in raw.flat_map(|block| self.listed_rows(block)) {
            *counts.entry(row).or_default() += 1;
        }
        counts
    }
}
