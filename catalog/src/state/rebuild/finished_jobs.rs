//! Selection of the jobs that count as finished, when no record of their results exists.
//!
//! A worker uploads all outputs before it finishes its job. The catalog removes the inputs' objects long after
//! that. So the outputs of a job in the bucket do not prove that the job finished. The selection works from
//! the newest token to the oldest:
//!
//! * A job is obsolete if a later job claimed one of its parts, or if it read an output of an obsolete job.
//! * A job counts as finished if an input is not complete in the bucket any more. If some inputs and not all
//!   outputs are left, it counts as unfinished: a worker crashed between its uploads.
//! * A job counts as finished if a finished job read one of its outputs.
//! * A flushed block keeps no row of a tenant and range that a finished job's output holds. The job that took
//!   such a part counts as finished, too.
//!
//! All outputs of a finished job are listed, and none of any other job. The outputs of all tiers count as one:
//! a job is finished for all of them or for none. Outputs of the inputs' tier replace earlier outputs, and all
//! replace uncovered ones: the downsampled blocks of a raw job add rows to their tiers. A job that read uncovered
//! parts only proves that no earlier job wrote their rows to a tier, so its outputs replace blocks of all tiers.

use std::collections::{BTreeMap, BTreeSet};

use athanor_chassis::{TenantId, Tier, Timestamp};

use crate::block::{BlockEntry, BlockId, PartId, ShardLogRange, TenantSpan};
use crate::compaction::window::DAY_LEVEL;
use crate::state::rebuild::log_range_index::LogRangeIndex;
use crate::state::rebuild::recovery_input::{BucketBlock, JobSource};

/// Blocks from which the finished jobs are selected.
#[derive(Clone, Copy, Debug)]
pub struct JobInventory<'b> {
    /// Complete blocks in the bucket that the known state of the catalog neither lists nor tombstones.
    pub found: &'b [BucketBlock],
    /// Blocks that the known state lists.
    pub listed: &'b BTreeMap<BlockId, &'b BlockEntry>,
    /// Ids of all complete blocks in the bucket.
    pub present: &'b BTreeSet<BlockId>,
    /// Blocks with older ids were removed by retention.
    pub retained_since: Timestamp,
}

/// Job that counts as finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedJob {
    /// Ids of all outputs.
    pub output_ids: Vec<BlockId>,
    /// Outputs that are in the bucket.
    pub outputs: Vec<BlockEntry>,
    /// Outputs that are missing in the bucket, although neither a later job nor retention explains it.
    pub missing: Vec<BlockId>,
}

/// Jobs that count as finished, and the parts that they took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinishedJobs {
    /// Jobs by token.
    pub by_token: BTreeMap<u64, FinishedJob>,
    /// Tokens of the jobs that took the parts, by block and tenant.
    pub taken: BTreeMap<BlockId, BTreeMap<TenantId, u64>>,
    /// Blocks that some job read, each with the newest token. All of them were registered.
    pub read: BTreeMap<BlockId, u64>,
    /// Number of parts and blocks that the selection examined.
    pub examined: usize,
}

/// Job with outputs in the bucket.
struct JobCandidate<'b> {
    source: &'b JobSource,
    outputs: Vec<&'b BlockEntry>,
    /// True if a later job claimed one of the parts.
    is_obsolete: bool,
    /// True if all inputs are known, or are outputs of such jobs.
    is_traced: bool,
}

/// State of the selection.
struct JobSelection<'b> {
    inventory: JobInventory<'b>,
    jobs: BTreeMap<u64, JobCandidate<'b>>,
    /// Tokens of the newest jobs that claimed a part.
    owners: BTreeMap<PartId, u64>,
    /// Tokens of the jobs that write a block.
    producers: BTreeMap<BlockId, u64>,
    flushed: LogRangeIndex<'b>,
    /// Merged blocks by tenant. Empty if all jobs are traced.
    merged: BTreeMap<&'b TenantId, LogRangeIndex<'b>>,
    /// Tenants of the flushed blocks that were searched for unclaimed parts.
    tenants: BTreeMap<BlockId, BTreeSet<&'b TenantId>>,
    finished: BTreeSet<u64>,
    taken: BTreeMap<BlockId, BTreeMap<TenantId, u64>>,
    /// Number of examined parts and blocks.
    examined: usize,
}

impl<'b> JobInventory<'b> {
    /// Selects the jobs that count as finished. Costs O(n log n) in the number of parts and log ranges.
    pub fn find_finished_jobs(self) -> FinishedJobs {
        let jobs = self.group_jobs();
        let mut read = BTreeMap::new();
        for (token, job) in &jobs {
            read.extend(job.source.inputs.blocks.iter().map(|block| (*block, *token)));
        }
        let mut selection = JobSelection::new(self, jobs);
        selection.run();
        let JobSelection { jobs, finished, taken, examined, .. } = selection;
        let finished_jobs = jobs.into_iter().filter(|(token, _)| finished.contains(token));
        let by_token = finished_jobs.map(|(token, job)| {
            let output_ids = job.source.outputs.clone();
            let outputs = job.outputs.into_iter().cloned().collect();
            let missing = output_ids.iter().copied().filter(|output| !self.is_explained(*output, &taken));
            (token, FinishedJob { missing: missing.collect(), output_ids, outputs })
        });
        FinishedJobs { by_token: by_token.collect(), taken, read, examined }
    }

    /// Returns whether a block is in the bucket, or a later job or retention explains its removal.
    fn is_explained(&self, block: BlockId, taken: &BTreeMap<BlockId, BTreeMap<TenantId, u64>>) -> bool {
        self.present.contains(&block) || taken.contains_key(&block) || block.named_at() < self.retained_since
    }

    /// Groups the merged blocks by job. A worker may write the outputs of one claim more than once, under
    /// other ids. The job then has the outputs that were read, or else complete ones.
    fn group_jobs(&self) -> BTreeMap<u64, JobCandidate<'b>> {
        let mut attempts: BTreeMap<u64, BTreeMap<&'b [BlockId], Vec<&'b BucketBlock>>> = BTreeMap::new();
        for block in self.found {
            let Some(source) = &block.job else { continue };
            attempts.entry(source.token).or_default().entry(&source.outputs).or_default().push(block);
        }
        let sources =
            attempts.values().flat_map(BTreeMap::values).filter_map(|blocks| blocks.first()?.job.as_ref());
        let read: BTreeSet<BlockId> =
            sources.flat_map(|source| source.inputs.blocks.iter().copied()).collect();
        let mut jobs = BTreeMap::new();
        for (token, attempts) in attempts {
            let preference = |attempt: &(&'b [BlockId], Vec<&'b BucketBlock>)| {
                let (outputs, blocks) = attempt;
                let is_read = outputs.iter().any(|output| read.contains(output));
                (is_read, outputs.len() == blocks.len(), outputs.iter().max().copied())
            };
            let Some((_, blocks)) = attempts.into_iter().max_by_key(preference) else { continue };
            let Some(source) = blocks.first().and_then(|block| block.job.as_ref()) else { continue };
            let outputs = blocks.into_iter().map(|block| &block.block).collect();
            jobs.insert(token, JobCandidate { source, outputs, is_obsolete: false, is_traced: false });
        }
        jobs
    }
}

impl<'b> JobSelection<'b> {
    fn new(inventory: JobInventory<'b>, jobs: BTreeMap<u64, JobCandidate<'b>>) -> Self {
        let found = inventory.found.iter().map(|found| &found.block);
        let flushed = inventory.listed.values().copied().chain(found).filter(|block| block.level == 0);
        let mut selection = Self {
            inventory,
            jobs,
            owners: BTreeMap::new(),
            producers: BTreeMap::new(),
            flushed: flushed.collect(),
            merged: BTreeMap::new(),
            tenants: BTreeMap::new(),
            finished: BTreeSet::new(),
            taken: BTreeMap::new(),
            examined: 0,
        };
        selection.find_owners();
        selection.trace_jobs();
        if selection.jobs.values().any(|job| !job.is_traced) {
            selection.index_merged_blocks();
        }
        selection
    }

    /// Finds the newest claim of each part. The jobs of older claims never finished.
    fn find_owners(&mut self) {
        let mut obsolete = BTreeSet::new();
        for (token, job) in &self.jobs {
            self.producers.extend(job.source.outputs.iter().map(|output| (*output, *token)));
            for part in job.source.inputs.iter() {
                obsolete.extend(self.owners.insert(part, *token));
                self.examined += 1;
            }
        }
        for token in obsolete {
            if let Some(job) = self.jobs.get_mut(&token) {
                job.is_obsolete = true;
            }
        }
    }

    /// Marks the jobs whose inputs are known, and those that read outputs of obsolete jobs. A job has a
    /// larger token than those whose outputs it read.
    fn trace_jobs(&mut self) {
        let found = self.inventory.found.iter().filter(|found| found.block.level == 0);
        let flushed: BTreeSet<BlockId> = found.map(|found| found.block.id).collect();
        let tokens: Vec<u64> = self.jobs.keys().copied().collect();
        for token in tokens {
            let inputs = &self.jobs[&token].source.inputs.blocks;
            let producer = |block: &BlockId| self.jobs.get(self.producers.get(block)?);
            let is_known = |block: &BlockId| {
                self.inventory.listed.contains_key(block)
                    || flushed.contains(block)
                    || producer(block).is_some_and(|job| job.is_traced)
            };
            let is_traced = inputs.iter().all(is_known);
            let reads_obsolete = inputs.iter().filter_map(producer).any(|job| job.is_obsolete);
            if let Some(job) = self.jobs.get_mut(&token) {
                job.is_traced = is_traced;
                job.is_obsolete |= reads_obsolete;
            }
        }
    }

    fn index_merged_blocks(&mut self) {
        let found = self.inventory.found.iter().map(|found| &found.block);
        for block in self.inventory.listed.values().copied().chain(found).filter(|block| block.level > 0) {
            for span in &block.tenants {
                self.merged.entry(&span.tenant).or_default().insert(block);
            }
        }
    }

    fn run(&mut self) {
        let newest_first: Vec<u64> = self.jobs.keys().rev().copied().collect();
        for token in newest_first {
            if self.lost_inputs(token) {
                self.finish(token);
            }
        }
    }

    /// Returns whether inputs of a job are gone, and its outputs hold all of their rows that are left.
    fn lost_inputs(&self, token: u64) -> bool {
        let JobInventory { present, .. } = self.inventory;
        let source = self.jobs[&token].source;
        let inputs = source.inputs.blocks.iter().filter(|input| present.contains(input)).count();
        let is_explained = |output: &BlockId| self.inventory.is_explained(*output, &self.taken);
        inputs == 0 || inputs < source.inputs.blocks.len() && source.outputs.iter().all(is_explained)
    }

    /// Marks a job as finished, and all jobs that must have finished before it.
    fn finish(&mut self, token: u64) {
        let mut queue = vec![token];
        while let Some(token) = queue.pop() {
            let Some(job) = self.jobs.get(&token).filter(|job| !job.is_obsolete) else { continue };
            if !self.finished.insert(token) {
                continue;
            }
            for part in job.source.inputs.iter() {
                self.taken.entry(part.block).or_default().insert(part.tenant, token);
            }
            let producers = job.source.inputs.blocks.iter().filter_map(|input| self.producers.get(input));
            queue.extend(producers);
            self.take_flushed_parts(token, &mut queue);
            if !self.jobs[&token].is_traced {
                self.take_merged_parts(token, &mut queue);
            }
        }
    }

    /// Takes the parts of flushed blocks that an output of a finished job excludes.
    fn take_flushed_parts(&mut self, token: u64, queue: &mut Vec<u64>) {
        let mut tenants_by_ranges: BTreeMap<Vec<ShardLogRange>, BTreeSet<&'b TenantId>> = BTreeMap::new();
        for output in &self.jobs[&token].outputs {
            let tenants = tenants_by_ranges.entry(output.log_ranges().collect()).or_default();
            tenants.extend(output.tenants.iter().map(|span| &span.tenant));
        }
        for (ranges, tenants) in tenants_by_ranges {
            let blocks: Vec<&'b BlockEntry> =
                ranges.iter().flat_map(|rows| self.flushed.overlapping(rows)).collect();
            for block in blocks {
                self.examined += tenants.len();
                let taken = self.taken.get(&block.id);
                let is_free =
                    |tenant: &&&'b TenantId| taken.is_none_or(|taken| !taken.contains_key(**tenant));
                let free: Vec<&'b TenantId> = tenants.iter().filter(is_free).copied().collect();
                for tenant in free {
                    let names = || block.tenants.iter().map(|span| &span.tenant).collect();
                    if self.tenants.entry(block.id).or_insert_with(names).contains(tenant) {
                        self.take_part(PartId { block: block.id, tenant: tenant.clone() }, token, queue);
                    }
                }
            }
        }
    }

    /// Returns the tier of a job's inputs: that of a known input, or else the one that its outputs suggest. A
    /// raw job with downsampled outputs has at least one of each tier, and level 4 has no raw blocks.
    fn input_tier(&self, token: u64) -> Option<Tier> {
        let job = &self.jobs[&token];
        let listed = |input: &BlockId| self.inventory.listed.get(input).map(|block| block.tier);
        let produced = |input: &BlockId| {
            let producer = self.jobs.get(self.producers.get(input)?)?;
            Some(producer.outputs.iter().find(|output| output.id == *input)?.tier)
        };
        let inputs = &job.source.inputs.blocks;
        if let Some(tier) = inputs.iter().find_map(|input| listed(input).or_else(|| produced(input))) {
            return Some(tier);
        }
        let tiers: BTreeSet<Tier> = job.outputs.iter().map(|output| output.tier).collect();
        let first = *tiers.first()?;
        let is_tier_merge = tiers.len() == 1
            && (job.source.outputs.len() < Tier::ALL.len()
                || job.outputs.iter().any(|output| output.level > DAY_LEVEL));
        Some(if is_tier_merge { first } else { Tier::Raw })
    }

    /// Takes the parts of merged blocks that outputs of an untraced job probably replaced. The outputs have
    /// rows of the tenant and time, a later token, and all log ranges of such a block. An unlisted block of
    /// several tenants states ranges of the others, too. For it, one common range is enough.
    fn take_merged_parts(&mut self, token: u64, queue: &mut Vec<u64>) {
        let listed = self.inventory.listed;
        let is_unlisted_shared =
            |block: &BlockEntry| block.tenants.len() > 1 && !listed.contains_key(&block.id);
        let Some(tier) = self.input_tier(token) else { return };
        for output in self.jobs[&token].outputs.clone() {
            let replaces_tier = output.tier == tier;
            for span in &output.tenants {
                let Some(index) = self.merged.get(&span.tenant) else { continue };
                let replaces_all = self.jobs[&token].reads_uncovered_parts_only(&span.tenant);
                let replaced = |block: &&'b BlockEntry| {
                    block.job < Some(token)
                        && (replaces_all || block.is_uncovered() || (replaces_tier && block.tier == tier))
                        && shares_times(output, block, span)
                        && (is_unlisted_shared(block) || output.covers_log_ranges_of(block))
                };
                let ranges: Vec<ShardLogRange> = output.log_ranges().collect();
                let blocks = ranges.iter().flat_map(|rows| index.overlapping(rows));
                let examined = &mut self.examined;
                let blocks = blocks.inspect(|_| *examined += 1);
                let blocks: BTreeSet<BlockId> = blocks.filter(replaced).map(|block| block.id).collect();
                for block in blocks {
                    let is_taken =
                        self.taken.get(&block).is_some_and(|taken| taken.contains_key(&span.tenant));
                    if !is_taken {
                        self.take_part(PartId { block, tenant: span.tenant.clone() }, token, queue);
                    }
                }
            }
        }
    }

    /// Takes a part for a finished job that does not name it. The job that claimed the part finished before.
    fn take_part(&mut self, part: PartId, token: u64, queue: &mut Vec<u64>) {
        queue.extend(self.owners.get(&part));
        self.taken.entry(part.block).or_default().insert(part.tenant, token);
    }
}

impl JobCandidate<'_> {
    /// Returns whether all of a tenant's rows were uncovered: the job wrote all of them to the tiers, or it wrote
    /// uncovered blocks. So no block of an earlier finished job holds them, in no tier.
    fn reads_uncovered_parts_only(&self, tenant: &TenantId) -> bool {
        let profiles = |tier: Tier| -> u64 {
            let outputs = self.outputs.iter().filter(|output| output.tier == tier);
            outputs.filter_map(|output| output.tenant_span(tenant)).map(|span| span.profiles).sum()
        };
        let raw = profiles(Tier::Raw);
        self.outputs.iter().any(|output| output.is_uncovered())
            || (raw > 0 && raw == profiles(Tier::FiveMinutes))
    }
}

/// Returns whether rows of a tenant in an output and in another block can be of one time. A downsampled row
/// stands for the times of its bucket, which end at its own.
fn shares_times(output: &BlockEntry, block: &BlockEntry, span: &TenantSpan) -> bool {
    let first_time = |tier: Tier, span: &TenantSpan| span.min_time.saturating_sub(tier.bucket_nanos() - 1);
    let other = block.tenant_span(&span.tenant);
    other.is_some_and(|other| {
        other.max_time >= first_time(output.tier, span) && first_time(block.tier, other) <= span.max_time
    })
}

impl FinishedJobs {
    /// Returns the outputs of all finished jobs that are in the bucket.
    pub fn outputs(&self) -> impl Iterator<Item = &BlockEntry> {
        self.by_token.values().flat_map(|job| &job.outputs)
    }

    /// Returns the outputs without the parts that later jobs took, the newest job first. Outputs without any
    /// part are left out.
    pub fn remaining_outputs(&self) -> Vec<Vec<BlockEntry>> {
        let remaining = |mut output: BlockEntry| {
            if let Some(taken) = self.taken.get(&output.id) {
                output.tenants.retain(|span| !taken.contains_key(&span.tenant));
            }
            (!output.tenants.is_empty()).then_some(output)
        };
        let of_job = |job: &FinishedJob| job.outputs.iter().cloned().filter_map(remaining).collect();
        let jobs = self.by_token.values().rev().map(of_job);
        jobs.filter(|outputs: &Vec<BlockEntry>| !outputs.is_empty()).collect()
    }
}
