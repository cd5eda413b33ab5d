//! Model of compaction with real rows: each row is in exactly one listed raw part, or was removed on purpose.
//! Each tier has the rows of covered parts exactly once.

mod merges;

use std::collections::BTreeSet;

use athanor_chassis::{Random, Tier};

use super::jobs::claimed_inputs;
use super::*;
use crate::PartId;

const MINUTE: Duration = Duration::from_secs(60);
const RETENTION: Duration = Duration::from_secs(3600);
const SHARDS: [ShardId; 2] = [1, 2];
/// Number of samples of a raw row.
const SAMPLES_PER_ROW: u64 = 3;

/// One profile of a log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    shard: ShardId,
    index: u64,
    tenant: usize,
    /// Time of the profile, in minutes.
    time: i64,
    /// Time of its arrival, in minutes.
    arrival: i64,
}

impl Row {
    fn value(self) -> u64 {
        (u64::from(self.shard) << 60 | self.index << 20) + self.tenant as u64 * 7 + self.time as u64
    }
}

fn tenant_id(number: usize) -> TenantId {
    ["a", "b", "c"][number].parse().unwrap()
}

/// Job of a worker, as the worker knows it.
#[derive(Clone)]
struct Job {
    token: u64,
    worker: NodeId,
    /// Claimed blocks with the claimed parts only, as they were at the claim.
    inputs: Vec<BlockEntry>,
    /// Finish that was sent and may have succeeded.
    sent: Option<CatalogCommand>,
}

struct Model {
    random: Random,
    state: CatalogState,
    now: Timestamp,
    next: u128,
    /// True if most jobs fail.
    is_failing: bool,
    /// Rows in the files of each block. Files are never changed.
    files: BTreeMap<PartId, BTreeSet<Row>>,
    /// Raw rows, and rows that each tier adds up, that have to be listed.
    listed: BTreeMap<Tier, BTreeSet<Row>>,
    /// Rows that a tier has lost by removals and jobs.
    lost: BTreeMap<Tier, BTreeSet<Row>>,
    jobs: Vec<Job>,
    seen: BTreeMap<&'static str, usize>,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut state = CatalogState::default();
        let members = vec![[7].into(); 2];
        let zones = [(7, String::new())].into();
        let now = Timestamp::from_seconds(1_000_000);
        state.apply(now, CatalogCommand::OpenSlots { count: 2, members, zones });
        Self {
            random: Random::from_seed(seed),
            state,
            now,
            next: 0,
            is_failing: seed.is_multiple_of(4),
            files: BTreeMap::new(),
            listed: Tier::ALL.map(|tier| (tier, BTreeSet::new())).into(),
            lost: Tier::ALL.map(|tier| (tier, BTreeSet::new())).into(),
            jobs: Vec::new(),
            seen: BTreeMap::new(),
        }
    }

    fn below(&self, limit: u64) -> u64 {
        self.random.next_below(limit.max(1))
    }

    fn count(&mut self, event: &'static str) {
        *self.seen.entry(event).or_default() += 1;
    }

    fn next_id(&mut self) -> BlockId {
        self.next += 1;
        BlockId::from_number(BlockId::earliest_at(self.state.time().max(self.now)).number() + self.next)
    }

    fn minutes(time: Timestamp) -> i64 {
        time.millis() / 60_000
    }

    /// Writes a block's rows to its files and returns the spans. Rows of a tier add up the samples of a raw row.
    fn write(
        &mut self,
        id: BlockId,
        tier: Tier,
        rows: &BTreeSet<Row>,
        newest: impl Fn(&TenantId) -> Timestamp,
    ) -> Vec<TenantSpan> {
        let mut by_tenant: BTreeMap<TenantId, BTreeSet<Row>> = BTreeMap::new();
        for row in rows {
            by_tenant.entry(tenant_id(row.tenant)).or_default().insert(*row);
        }
        let mut spans = Vec::new();
        for (tenant, rows) in by_tenant {
            let times = rows.iter().map(|row| tier.bucket_end(row.time));
            let samples = if tier.is_raw() { SAMPLES_PER_ROW } else { 1 };
            spans.push(TenantSpan {
                min_time: times.clone().min().unwrap(),
                max_time: times.max().unwrap(),
                profiles: rows.len() as u64,
                samples: rows.len() as u64 * samples,
                sum: Some(rows.iter().map(|row| row.value()).fold(0, u64::wrapping_add)),
                newest_arrival: newest(&tenant),
                tenant: tenant.clone(),
            });
            self.files.insert(PartId { block: id, tenant }, rows);
        }
        spans
    }

    /// Returns the rows that have to be listed in a tier.
    fn rows_of(&mut self, tier: Tier) -> &mut BTreeSet<Row> {
        self.listed.get_mut(&tier).unwrap()
    }

    /// Removes rows from a tier.
    fn lose(&mut self, tier: Tier, rows: &BTreeSet<Row>) {
        self.rows_of(tier).retain(|row| !rows.contains(row));
        self.lost.get_mut(&tier).unwrap().extend(rows);
    }

    fn register(&mut self) {
        let shard = SHARDS[self.below(2) as usize];
        let from = self.state.shards[&shard].watermark;
        let to = from + 1 + self.below(3);
        let arrival = Self::minutes(self.now);
        let mut rows = BTreeSet::new();
        for index in from + 1..=to {
            for tenant in 0..3 {
                for _ in 0..self.below(3) {
                    let time = arrival - self.below(25) as i64;
                    rows.insert(Row { shard, index, tenant, time, arrival });
                }
            }
        }
        let id = self.next_id();
        let tenants = self.write(id, Tier::Raw, &rows, |_| Timestamp::UNIX_EPOCH);
        let samples = tenants.iter().map(|span| span.samples).sum();
        let block = BlockEntry { id, shard, samples, tenants, lost: self.below(2), ..block(0, from, to) };
        let result = self.state.apply(self.now, CatalogCommand::RegisterBlock { block });
        assert_eq!(result, CommandResult::Registered(to));
        self.rows_of(Tier::Raw).extend(rows);
    }

    /// Claims all tenants or one tenant of up to four blocks, most of the time of one tier.
    fn claim(&mut self) {
        let tiers = if self.is_failing { 3 } else { 6 };
        let tier = Tier::ALL[self.below(tiers).saturating_sub(2) as usize];
        let is_mixed = self.below(20) == 0;
        let all = self.state.blocks().filter(|block| is_mixed || block.tier == tier);
        let all: Vec<&BlockEntry> = all.collect();
        let start = self.below(all.len() as u64) as usize;
        let chosen: Vec<&BlockEntry> = all.into_iter().skip(start).take(1 + self.below(4) as usize).collect();
        let tenant = (self.below(3) > 0).then(|| tenant_id(self.below(3) as usize));
        let all = JobParts::from_entries(chosen);
        let parts: JobParts =
            all.iter().filter(|part| tenant.as_ref().is_none_or(|tenant| part.tenant == *tenant)).collect();
        let worker = self.below(3);
        let running = self.state.compaction.claims.values().filter(|claim| claim.is_running(self.now));
        let is_taken = running.clone().any(|claim| claim.parts.first_shared_part(&parts).is_some());
        let is_retry = running.clone().any(|claim| claim.worker == worker && claim.parts == parts);
        let of_job = |block: &&BlockEntry| parts.blocks.contains(&block.id);
        let tiers: BTreeSet<Tier> = self.state.blocks().filter(of_job).map(|block| block.tier).collect();
        let is_mixed = tiers.len() > 1;
        let is_quarantined = parts.iter().any(|part| self.state.compaction.is_quarantined(&part));
        let command = CatalogCommand::ClaimParts { worker, parts: parts.clone() };
        let expected = match self.state.apply(self.now, command) {
            CommandResult::Claimed(token) => {
                let inputs = claimed_inputs(&self.state, &parts);
                self.jobs.push(Job { token, worker, inputs, sent: None });
                self.count(if is_retry { "claim retried" } else { "claimed" });
                !is_mixed && !is_quarantined && (!is_taken || is_retry)
            }
            CommandResult::FailureLimit(_) => {
                self.count("failure limit");
                !is_taken
            }
            CommandResult::Refused(CommandError::PartClaimed { .. }) => is_taken,
            CommandResult::Refused(CommandError::PartQuarantined(_)) => {
                self.count("quarantined");
                is_quarantined
            }
            CommandResult::Refused(CommandError::InvalidJobParts { seen }) => seen == 0,
            CommandResult::Refused(CommandError::MixedTiers { .. }) => {
                self.count("mixed tiers");
                is_mixed
            }
            other => panic!("{other:?}"),
        };
        assert!(expected);
    }

    /// Returns the position of some job: a newer one most of the time.
    fn choose_job(&self) -> usize {
        let last = self.jobs.len().saturating_sub(1);
        match self.below(3) {
            0 => self.below(self.jobs.len() as u64) as usize,
            _ => last.saturating_sub(self.below(4) as usize),
        }
    }

    /// Finishes some job, which may have ended long ago.
    fn finish(&mut self) {
        let position = self.choose_job();
        let Some(mut job) = self.jobs.get(position).cloned() else { return };
        let is_open = self.state.compaction.claims.contains_key(&job.token);
        let is_done = self.state.compaction.finished.contains_key(&job.token);
        let command = match job.sent.take().filter(|_| self.below(4) > 0) {
            Some(sent) => sent,
            None => self.merge(&job),
        };
        let before = self.state.clone();
        if self.below(4) == 0 {
            let corrupted = self.corrupt(&job, command.clone());
            let result = self.state.apply(self.now, corrupted);
            assert!(is_done || matches!(result, CommandResult::Refused(_)), "{result:?}");
            assert_eq!(self.state.revision, before.revision);
        }
        let result = self.state.apply(self.now, command.clone());
        match result {
            CommandResult::Changed(0) => {
                assert!(is_done);
                self.count("finish retried");
            }
            CommandResult::Changed(_) => {
                assert!(is_open && !is_done);
                assert_eq!(find_uncompared(&before, &job, &command), None);
                self.swap_rows(&job, &command);
                self.count(describe(&job, &command));
                self.count("finished");
                let lease = before.compaction.claims[&job.token].is_running(self.now);
                self.count(if lease { "finished in time" } else { "finished late" });
            }
            CommandResult::NotCompared(block) => {
                assert!(is_open && !is_done);
                assert_eq!(find_uncompared(&before, &job, &command), Some(block));
                self.count("not compared");
            }
            CommandResult::Refused(CommandError::ClaimEnded { .. }) => {
                assert!(!is_open && !is_done);
                self.count("stale token");
            }
            CommandResult::Refused(error) => {
                assert!(is_open && is_tolerated(&error), "{error}");
                self.count("refused");
            }
            other => panic!("{other:?}"),
        }
        self.jobs[position].sent = Some(command);
    }

    /// Moves the rows of a finished job from its inputs to its outputs. Dropped rows are lost.
    fn swap_rows(&mut self, job: &Job, command: &CatalogCommand) {
        let CatalogCommand::FinishJob { outputs, .. } = command else { return };
        let tier = job.inputs[0].tier;
        let mut dropped = BTreeSet::new();
        for part in JobParts::from_entries(&job.inputs).iter() {
            dropped.extend(self.files[&part].clone());
        }
        self.rows_of(tier).retain(|row| !dropped.contains(row));
        for output in outputs {
            for part in JobParts::from_entries([output]).iter() {
                let rows = self.files[&part].clone();
                if output.tier == tier {
                    dropped.retain(|row| !rows.contains(row));
                }
                self.rows_of(output.tier).extend(rows);
            }
        }
        self.lose(tier, &dropped);
    }

    /// Removes, restores or purges blocks.
    fn remove(&mut self) {
        let before = self.parts();
        let some: Vec<BlockId> = self.state.blocks().map(|block| block.id).collect();
        let chosen = some.get(self.below(some.len() as u64 + 1) as usize).copied();
        // Parts of shared blocks expire one by one.
        let mut retention = RetentionPolicy::uniform(RETENTION);
        retention.tenants.insert(tenant_id(1), TierRetention::uniform(RETENTION / 2));
        let ages = self.state.block_ages(self.now, &retention);
        let expired = ages.expired.into_iter().map(|expired| expired.block);
        let command = match self.below(7) {
            0 => CatalogCommand::TombstoneBlocks { blocks: chosen.into_iter().collect(), tenant: None },
            1 => purge(self.now, expired.take(1).collect()),
            2..=4 => CatalogCommand::RestoreBlocks { blocks: Vec::new() },
            _ => CatalogCommand::ExpireBlocks { retention, max_percent: None },
        };
        self.state.apply(self.now, command);
        let after = self.parts();
        let listed: BTreeSet<BlockId> = after.iter().map(|(part, _)| part.block).collect();
        for (part, tier) in before.difference(&after) {
            self.lose(*tier, &self.files[part].clone());
            *self.seen.entry("removed").or_default() += 1;
            *self.seen.entry("removed from a shared block").or_default() +=
                usize::from(listed.contains(&part.block));
        }
        for (part, tier) in after.difference(&before) {
            let rows = self.files[part].clone();
            self.rows_of(*tier).extend(rows);
            *self.seen.entry("restored").or_default() += 1;
        }
    }

    fn control(&mut self) {
        let position = self.choose_job();
        let Some(job) = self.jobs.get(position) else { return };
        let culprit = JobParts::from_entries(&job.inputs).iter().next().filter(|_| self.below(2) == 0);
        let token = job.token;
        let command = match self.below(8) {
            0 if culprit.is_some() => CatalogCommand::RetryParts { parts: culprit.into_iter().collect() },
            1..=2 => CatalogCommand::RenewLeases { worker: job.worker, tokens: vec![token] },
            3 => CatalogCommand::RecordRemovedObjects {
                blocks: self.state.tombstones().map(|(block, _)| block).collect(),
            },
            4 => CatalogCommand::ExpireTombstones,
            _ => CatalogCommand::FailJob { token, reason: "out of memory".to_owned(), culprit },
        };
        self.state.apply(self.now, command);
    }

    /// Returns the listed parts with their tiers.
    fn parts(&self) -> BTreeSet<(PartId, Tier)> {
        let of_block = |block: &BlockEntry| {
            let parts: Vec<PartId> = JobParts::from_entries([block]).iter().collect();
            let tier = block.tier;
            parts.into_iter().map(move |part| (part, tier))
        };
        self.state.blocks().flat_map(of_block).collect()
    }

    /// Checks that each row is listed once per tier, that the tiers hold the rows of covered parts and of no
    /// other ones, and that no part looks younger or older than its rows.
    fn check(&self) {
        self.state.check().unwrap();
        let mut listed: BTreeMap<Tier, BTreeSet<Row>> = Tier::ALL.map(|tier| (tier, BTreeSet::new())).into();
        for block in self.state.blocks() {
            for span in &block.tenants {
                let part = PartId { block: block.id, tenant: span.tenant.clone() };
                for row in &self.files[&part] {
                    let is_first = listed.get_mut(&block.tier).unwrap().insert(*row);
                    assert!(is_first, "{row:?} is listed more than once in tier {}", block.tier);
                    self.check_coverage(block, *row);
                    assert!(block.log_ranges().any(|rows| rows.shard == row.shard
                        && rows.from < row.index
                        && row.index <= rows.to));
                    assert!(Self::minutes(block.newest_arrival(span)) >= row.arrival);
                    let time = block.tier.bucket_end(row.time);
                    assert!((span.min_time..=span.max_time).contains(&time));
                }
            }
        }
        assert_eq!(listed, self.listed);
    }

    /// Checks that the tiers hold a raw row if its block is covered, and do not hold it otherwise.
    fn check_coverage(&self, block: &BlockEntry, row: Row) {
        for tier in Tier::DOWNSAMPLED.into_iter().filter(|_| block.tier.is_raw()) {
            let is_held = self.listed[&tier].contains(&row);
            let was_held = is_held || self.lost[&tier].contains(&row);
            let is_valid = if block.is_covered { was_held } else { !was_held };
            assert!(is_valid, "{row:?} of block {} in tier {tier}: {is_held}", block.id);
        }
    }

    fn step(&mut self) {
        match self.below(17) {
            0..=3 => self.register(),
            4..=7 => self.claim(),
            8..=11 if self.is_failing && self.below(4) > 0 => self.control(),
            8..=11 => self.finish(),
            12..=13 => self.control(),
            14 => self.remove(),
            15 => self.now = self.now.plus(MINUTE * self.below(40) as u32),
            _ => self.now = self.now.plus(Duration::from_secs(45)),
        }
        self.check();
    }
}

/// Returns the first covered block that may hold rows of a job's covered outputs, is no input, and was not
/// compared with them.
fn find_uncompared(state: &CatalogState, job: &Job, command: &CatalogCommand) -> Option<BlockId> {
    let CatalogCommand::FinishJob { outputs, compared, .. } = command else { return None };
    let inputs: Vec<BlockId> = job.inputs.iter().map(|input| input.id).collect();
    let covered = || outputs.iter().filter(|output| output.is_covered).flat_map(|output| &output.tenants);
    covered().find_map(|span| {
        let is_open = |block: &&BlockEntry| {
            let known = block.tenant_span_between(&span.tenant, span.min_time, span.max_time);
            let is_named = inputs.contains(&block.id) || compared.contains(&block.id);
            block.is_covered && known.is_some() && !is_named
        };
        state.blocks().find(is_open).map(|block| block.id)
    })
}

/// Returns the kind of a finished job.
fn describe(job: &Job, command: &CatalogCommand) -> &'static str {
    let CatalogCommand::FinishJob { outputs, .. } = command else { return "no finish" };
    let is_final = outputs.iter().any(|output| output.is_covered);
    let has_covered = job.inputs.iter().any(|input| input.is_covered);
    let has_uncovered = job.inputs.iter().any(BlockEntry::is_uncovered);
    match (job.inputs[0].tier.is_raw(), is_final) {
        (false, _) => "tier merged",
        (true, false) => "raw merged",
        (true, true) if has_covered && has_uncovered => "late rows covered",
        (true, true) => "covered",
    }
}

fn newest_arrivals(inputs: &[BlockEntry]) -> BTreeMap<TenantId, Timestamp> {
    let mut newest: BTreeMap<TenantId, Timestamp> = BTreeMap::new();
    for input in inputs {
        for span in &input.tenants {
            let arrival = newest.entry(span.tenant.clone()).or_insert(Timestamp::UNIX_EPOCH);
            *arrival = input.newest_arrival(span).max(*arrival);
        }
    }
    newest
}

/// Returns whether a correct merge may be refused: its ids are too old by now, or an output holds several
/// tenants although a block keeps rows of one of them.
fn is_tolerated(error: &CommandError) -> bool {
    let is_mismatch =
        matches!(error, CommandError::OutputMismatch { mismatch: OutputMismatch::OverlapsBlock(_), .. });
    is_mismatch || matches!(error, CommandError::BlockNameSkew { .. })
}

#[test]
fn each_row_is_in_one_listed_part_whatever_workers_do() {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 0..400 {
        let mut model = Model::new(seed);
        for _ in 0..120 {
            model.step();
        }
        for (event, count) in model.seen {
            *seen.entry(event).or_default() += count;
        }
    }
    let events = [
        "claimed",
        "claim retried",
        "failure limit",
        "quarantined",
        "finished",
        "finished in time",
        "finished late",
        "finish retried",
        "stale token",
        "refused",
        "removed",
        "removed from a shared block",
        "restored",
        "mixed tiers",
        "raw merged",
        "covered",
        "late rows covered",
        "tier merged",
        "not compared",
    ];
    for event in events {
        assert!(seen.get(event).is_some_and(|count| *count > 5), "{event}: {seen:?}");
    }
}
