//! Listed blocks with their rows, and merges of them as workers do them. Blocks of a tier hold the ids of the raw
//! rows that they add up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{TenantId, Tier, Timestamp, window_end};

use crate::block::{BlockEntry, BlockId, PartId, ShardLogRange, TenantSpan};
use crate::compaction::planner::{PlanInput, PlannerSettings, compaction_status, plan_jobs};
use crate::compaction::window::window_nanos;
use crate::compaction::{
    CompactionJob, CompactionStatus, JobRequest, MAX_JOB_OUTPUTS, PartClaim, PartFailures,
};

/// Row of a simulated block.
#[derive(Clone, Debug)]
pub struct SimulatedRow {
    pub id: u64,
    pub time: i64,
    pub bytes: u64,
    pub arrival: Timestamp,
    /// Number of merges that wrote the row.
    pub passes: u32,
}

/// Row to flush.
#[derive(Clone, Debug)]
pub struct NewRow {
    pub tenant: TenantId,
    pub time: i64,
    pub bytes: u64,
}

/// Rows of several tenants.
pub type TenantRows = BTreeMap<TenantId, Vec<SimulatedRow>>;

/// SimulatedOutput of a job before it has an id.
struct SimulatedOutput {
    rows: TenantRows,
    is_one_window: bool,
}

/// Blocks, their rows, and the records of the catalog that plans depend on.
pub struct BlockSimulator {
    pub input: PlanInput,
    pub rows: BTreeMap<BlockId, TenantRows>,
    /// Bytes that raw jobs wrote to raw blocks, by level.
    pub written_bytes: BTreeMap<u8, u64>,
    /// Number of finished raw jobs, by level.
    pub finished_jobs: BTreeMap<u8, u64>,
    /// Number of finished jobs of the tiers, by tier and level.
    pub finished_tier_jobs: BTreeMap<(Tier, u8), u64>,
    log_ends: BTreeMap<u32, u64>,
    next_number: u64,
}

pub fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

pub fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

impl BlockSimulator {
    pub fn new(now: Timestamp) -> Self {
        let input = PlanInput {
            now,
            blocks: Vec::new(),
            claims: BTreeMap::new(),
            failures: BTreeMap::new(),
            workers: 4,
            is_paused: false,
            settings: PlannerSettings::default(),
        };
        Self {
            input,
            rows: BTreeMap::new(),
            written_bytes: BTreeMap::new(),
            finished_jobs: BTreeMap::new(),
            finished_tier_jobs: BTreeMap::new(),
            log_ends: BTreeMap::new(),
            next_number: 0,
        }
    }

    pub fn advance(&mut self, duration: Duration) {
        self.input.now = self.input.now.plus(duration);
    }

    /// Flushes rows as the next block of a shard.
    pub fn flush(&mut self, shard: u32, rows: &[NewRow]) -> BlockId {
        let mut by_tenant = TenantRows::new();
        for NewRow { tenant, time, bytes } in rows.iter().cloned() {
            let id = self.next_number();
            let row = SimulatedRow { id, time, bytes, arrival: self.input.now, passes: 0 };
            by_tenant.entry(tenant).or_default().push(row);
        }
        let end = self.log_ends.entry(shard).or_default();
        let range = ShardLogRange { shard, epoch: 1, from: *end, to: *end + 1 };
        *end += 1;
        let id = self.next_block_id();
        self.list(self.entry(id, Tier::Raw, 0, &[range], &by_tenant), by_tenant);
        id
    }

    pub fn plan(&self, limit: u32) -> Vec<CompactionJob> {
        plan_jobs(&self.input, &JobRequest { worker: 1, max_bytes: u64::MAX, limit })
    }

    pub fn status(&self) -> CompactionStatus {
        compaction_status(&self.input)
    }

    /// Claims the parts of a job. Returns its token.
    pub fn claim(&mut self, job: &CompactionJob) -> u64 {
        let parts = job.parts();
        assert!(parts.is_canonical() && parts.len() <= self.input.settings.max_job_parts);
        let now = self.input.now;
        let claimed = self.input.claims.values().filter(|claim| now < claim.expires_at);
        let claimed: BTreeSet<PartId> = claimed.flat_map(|claim| claim.parts.iter()).collect();
        for part in parts.iter() {
            assert!(self.rows[&part.block].contains_key(&part.tenant), "{part:?} is not listed");
            assert!(!claimed.contains(&part), "{part:?} is claimed");
            let failures = self.input.failures.get(&part);
            assert!(failures.is_none_or(|failures| !failures.is_quarantined));
            assert!(failures.is_none_or(|failures| parts.len() <= failures.max_parts as usize));
        }
        let token = self.next_number();
        let claim = PartClaim { worker: 1, expires_at: now.plus(minutes(1)), since: now, parts };
        self.input.claims.insert(token, claim);
        token
    }

    /// Ends a claim without a result. Halves the jobs of its parts.
    pub fn fail(&mut self, token: u64) {
        let claim = self.input.claims.remove(&token).unwrap();
        let max_parts = (claim.parts.len() as u32 / 2).max(1);
        for part in claim.parts.iter() {
            let at = self.input.now;
            let reason = String::from("failed");
            let failures = PartFailures { count: 0, max_parts, is_quarantined: false, reason, at };
            self.input.failures.insert(part, failures);
        }
    }

    /// Merges a job as a worker does. A final merge of raw parts writes the rows of the uncovered ones to all
    /// tiers.
    pub fn finish(&mut self, token: u64, job: &CompactionJob) {
        self.input.claims.remove(&token);
        assert!(job.inputs.iter().all(|input| input.level <= job.level && input.tier == job.tier));
        let arrivals = job.inputs.iter().map(|input| {
            let newest = input.tenants.iter().map(|span| input.newest_arrival(span)).max();
            (newest, input.id)
        });
        assert!(arrivals.is_sorted());
        let uncovered = self.uncovered_ids(job);
        let taken = self.take_rows(job);
        assert!(job.level == 1 || taken.len() == 1);
        match job.tier.is_raw() {
            true => *self.finished_jobs.entry(job.level).or_default() += 1,
            false => *self.finished_tier_jobs.entry((job.tier, job.level)).or_default() += 1,
        }
        let is_final = job.tier.is_raw() && job.level > 1;
        let outputs = split_into_outputs(taken, job);
        let tiers = if is_final { Tier::ALL.len() } else { 1 };
        assert!(outputs.len() * tiers <= MAX_JOB_OUTPUTS);
        for output in outputs {
            for tier in Tier::DOWNSAMPLED.into_iter().filter(|_| is_final) {
                if let Some(missing) = output.of_tier(&uncovered) {
                    self.write_output(token, job, tier, missing);
                }
            }
            self.write_output(token, job, job.tier, output);
        }
    }

    /// Lists an output of a job.
    fn write_output(&mut self, token: u64, job: &CompactionJob, tier: Tier, output: SimulatedOutput) {
        let ranges = self.output_ranges(job, &output.rows);
        let id = self.next_block_id();
        let mut entry = self.entry(id, tier, job.level, &ranges, &output.rows);
        entry.job = Some(token);
        entry.is_covered = tier.is_raw() && job.level > 1;
        let arrivals = newest_arrivals(&job.inputs);
        for span in &mut entry.tenants {
            span.newest_arrival = arrivals[&span.tenant];
            if output.is_one_window {
                check_expiry(span, &output.rows[&span.tenant], tier, job.level);
            }
        }
        let conflict = self.input.blocks.iter().find(|block| block.conflicts_with(&entry));
        assert!(conflict.is_none(), "{entry:?} conflicts with {conflict:?}");
        if tier.is_raw() {
            *self.written_bytes.entry(job.level).or_default() += entry.bytes;
        }
        self.list(entry, output.rows);
    }

    /// Returns the ids of a job's rows that the tiers lack.
    fn uncovered_ids(&self, job: &CompactionJob) -> BTreeSet<u64> {
        let uncovered = job.inputs.iter().filter(|input| !input.is_covered);
        let rows = uncovered.flat_map(|input| {
            let rows = &self.rows[&input.id];
            input.tenants.iter().flat_map(|span| &rows[&span.tenant])
        });
        rows.map(|row| row.id).collect()
    }

    pub fn run(&mut self, job: &CompactionJob) {
        let token = self.claim(job);
        self.finish(token, job);
    }

    /// Merges until no job is left. Returns the number of raw jobs.
    pub fn run_until_idle(&mut self) -> usize {
        let mut count = 0;
        let mut raw_count = 0;
        while let Some(job) = self.plan(1).pop() {
            self.run(&job);
            count += 1;
            raw_count += usize::from(job.tier.is_raw());
            assert!(count < 20_000, "jobs do not end: {job:?}");
        }
        raw_count
    }

    pub fn raw_blocks(&self) -> impl Iterator<Item = &BlockEntry> {
        self.blocks_of_tier(Tier::Raw)
    }

    pub fn blocks_of_tier(&self, tier: Tier) -> impl Iterator<Item = &BlockEntry> {
        self.input.blocks.iter().map(|block| &**block).filter(move |block| block.tier == tier)
    }

    /// Returns all raw rows at a level.
    pub fn rows_at(&self, level: u8) -> Vec<SimulatedRow> {
        let blocks = self.raw_blocks().filter(|block| block.level == level);
        blocks.flat_map(|block| self.rows[&block.id].values().flatten().cloned()).collect()
    }

    /// Returns all rows of a tier.
    pub fn rows_of_tier(&self, tier: Tier) -> Vec<SimulatedRow> {
        let blocks = self.blocks_of_tier(tier);
        blocks.flat_map(|block| self.rows[&block.id].values().flatten().cloned()).collect()
    }

    /// Returns the ids of all rows of a tier, ascending.
    pub fn row_ids(&self, tier: Tier) -> Vec<u64> {
        let mut ids: Vec<u64> = self.rows_of_tier(tier).iter().map(|row| row.id).collect();
        ids.sort_unstable();
        ids
    }

    /// Checks that each tier adds up the covered raw rows, each of them once.
    pub fn check_tiers(&self) {
        let covered = self.raw_blocks().filter(|block| block.is_covered);
        let rows = covered.flat_map(|block| self.rows[&block.id].values().flatten());
        let mut covered: Vec<u64> = rows.map(|row| row.id).collect();
        covered.sort_unstable();
        for tier in Tier::DOWNSAMPLED {
            assert_eq!(self.row_ids(tier), covered, "tier {tier}");
        }
    }

    fn take_rows(&mut self, job: &CompactionJob) -> TenantRows {
        let mut taken = TenantRows::new();
        for part in job.parts().iter() {
            let rows = self.rows.get_mut(&part.block).unwrap();
            taken.entry(part.tenant.clone()).or_default().extend(rows.remove(&part.tenant).unwrap());
        }
        let inputs: BTreeSet<BlockId> = job.inputs.iter().map(|input| input.id).collect();
        let listed = std::mem::take(&mut self.input.blocks);
        for block in listed {
            if !inputs.contains(&block.id) {
                self.input.blocks.push(block);
                continue;
            }
            let rows = &self.rows[&block.id];
            let mut left = BlockEntry::clone(&block);
            left.tenants.retain(|span| rows.contains_key(&span.tenant));
            left.bytes = rows.values().flatten().map(|row| row.bytes).sum();
            if left.tenants.is_empty() {
                self.rows.remove(&block.id);
            } else {
                self.input.blocks.push(Arc::new(left));
            }
        }
        taken
    }

    fn output_ranges(&self, job: &CompactionJob, rows: &TenantRows) -> Vec<ShardLogRange> {
        let has_tenant =
            |input: &&BlockEntry| input.tenants.iter().any(|span| rows.contains_key(&span.tenant));
        ShardLogRange::join_adjacent(job.inputs.iter().filter(has_tenant).flat_map(BlockEntry::log_ranges))
    }

    fn entry(
        &self,
        id: BlockId,
        tier: Tier,
        level: u8,
        ranges: &[ShardLogRange],
        rows: &TenantRows,
    ) -> BlockEntry {
        let ShardLogRange { shard, epoch, from, to } = ranges[0];
        let spans = rows.iter().map(|(tenant, rows)| span_of(tenant, tier, rows));
        let tenants: Vec<TenantSpan> = spans.collect();
        BlockEntry {
            id,
            shard,
            epoch,
            from,
            to,
            bytes: tenants.iter().map(|span| span.profiles).sum(),
            samples: tenants.iter().map(|span| span.samples).sum(),
            lost: 0,
            level,
            additional_ranges: ranges[1..].to_vec(),
            tier,
            is_covered: false,
            job: None,
            tenants,
        }
    }

    fn list(&mut self, entry: BlockEntry, rows: TenantRows) {
        self.rows.insert(entry.id, rows);
        self.input.blocks.push(Arc::new(entry));
    }

    fn next_block_id(&mut self) -> BlockId {
        let earliest = BlockId::earliest_at(self.input.now).number();
        BlockId::from_number(earliest + u128::from(self.next_number()))
    }

    fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}

/// Returns an entry's rows of one tenant. Each byte counts as one profile, so that shares are exact.
fn span_of(tenant: &TenantId, tier: Tier, rows: &[SimulatedRow]) -> TenantSpan {
    let bytes = rows.iter().map(|row| row.bytes).sum();
    TenantSpan {
        tenant: tenant.clone(),
        min_time: rows.iter().map(|row| tier.bucket_end(row.time)).min().unwrap(),
        max_time: rows.iter().map(|row| tier.bucket_end(row.time)).max().unwrap(),
        profiles: bytes,
        samples: bytes,
        sum: Some(0),
        newest_arrival: Timestamp::UNIX_EPOCH,
    }
}

fn newest_arrivals(inputs: &[BlockEntry]) -> BTreeMap<TenantId, Timestamp> {
    let mut newest: BTreeMap<TenantId, Timestamp> = BTreeMap::new();
    for input in inputs {
        for span in &input.tenants {
            let arrival = newest.entry(span.tenant.clone()).or_default();
            *arrival = input.newest_arrival(span).max(*arrival);
        }
    }
    newest
}

/// Splits rows by window, and into the job's number of outputs per window. Widens the windows until there are
/// few enough outputs.
fn split_into_outputs(rows: TenantRows, job: &CompactionJob) -> Vec<SimulatedOutput> {
    const DAY_NANOS: i64 = 86_400_000_000_000;
    let level_width = window_nanos(job.level);
    let wider = [1, 30, 900, 27_000].map(|days| days * DAY_NANOS).into_iter().chain([i64::MAX]);
    let wider = wider.filter(|width| *width > level_width);
    let is_final = job.tier.is_raw() && job.level > 1;
    let max_outputs = if is_final { MAX_JOB_OUTPUTS / Tier::ALL.len() } else { MAX_JOB_OUTPUTS };
    for width in std::iter::once(level_width).chain(wider) {
        let mut outputs: BTreeMap<(i64, u64), TenantRows> = BTreeMap::new();
        for (tenant, rows) in &rows {
            for row in rows {
                let time = job.tier.bucket_end(row.time);
                let key = (window_end(time, width), row.id % u64::from(job.splits));
                let written = SimulatedRow { passes: row.passes + 1, ..row.clone() };
                outputs.entry(key).or_default().entry(tenant.clone()).or_default().push(written);
            }
        }
        if outputs.len() <= max_outputs {
            let is_one_window = width == level_width;
            return outputs.into_values().map(|rows| SimulatedOutput { rows, is_one_window }).collect();
        }
    }
    panic!("{job:?} has no window that is wide enough")
}

impl SimulatedOutput {
    /// Returns the rows that a tier lacks, written to it for the first time.
    fn of_tier(&self, uncovered: &BTreeSet<u64>) -> Option<Self> {
        let mut rows = self.rows.clone();
        for rows in rows.values_mut() {
            rows.retain(|row| uncovered.contains(&row.id));
            rows.iter_mut().for_each(|row| row.passes = 1);
        }
        rows.retain(|_, rows| !rows.is_empty());
        (!rows.is_empty()).then_some(Self { rows, is_one_window: self.is_one_window })
    }
}

/// Checks that no row outlives its retention by more than its block's window, or its bucket, and an hour.
fn check_expiry(span: &TenantSpan, rows: &[SimulatedRow], tier: Tier, level: u8) {
    let expiry = i128::from(span.max_time.max(span.newest_arrival.nanos()));
    let limit = i128::from(window_nanos(level).max(tier.bucket_nanos()) + window_nanos(2));
    for row in rows {
        let age = i128::from(row.time.max(row.arrival.nanos()));
        assert!(expiry - age <= limit, "level {level}: {row:?} in {span:?}");
    }
}
