//! Steps of one job, from the claim to the swap in the catalog.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use athanor_block::{BlockFolder, META_FILE, RowTotals, merge_round_count};
use athanor_catalog::{BlockEntry, BlockId, CompactionJob, DropReason, DroppedRows, TENANT_FOLDER_LEVEL};
use athanor_chassis::memory_budget::{MemoryBudget, MemoryReservation};
use athanor_chassis::{ByteSize, CpuActivity, Tier};
use athanor_storage::path::BlockOwner;
use bytes::Bytes;

use crate::error::JobError;
use crate::input::compared_blocks::ComparedBlocks;
use crate::input::fetcher::{fetch_inputs, locate_parts, missing_bytes, open_inputs};
use crate::job::context::JobContext;
use crate::job::entry::{OutputOrigins, newest_arrivals, output_entry, parse_tenant, writes_tiers};
use crate::job::merger::{JobMerger, MergedOutput, OutputSource, blocks_per_output, rename_outputs};
use crate::job::objects::{OutputUploader, block_owner};
use crate::job::output_plan::PlannedOutput;

/// Least level whose outputs may have their rows by hour.
const HOURLY_LEVEL: u8 = 3;
/// Hours of the window of such an output.
const HOURS_PER_DAY: usize = 24;

/// Outputs of a job that are in the bucket, for the catalog.
#[derive(Debug, Default)]
pub(crate) struct JobResult {
    pub(crate) outputs: Vec<BlockEntry>,
    pub(crate) dropped: Vec<DroppedRows>,
    /// Covered blocks with which IDs were compared.
    pub(crate) compared: Vec<BlockId>,
    /// Bytes that were fetched from the bucket.
    pub(crate) read_bytes: u64,
    /// Bytes of the outputs.
    pub(crate) written_bytes: u64,
}

/// Outputs of a job so far.
struct JobOutputs<'o> {
    context: &'o JobContext<'o>,
    /// Holds `meta.json` of each output until all of them are in the bucket.
    metas: Arc<dyn BlockFolder>,
    result: JobResult,
    /// Dropped rows by tenant, and by whether the tiers hold the rows of their input.
    duplicates: BTreeMap<(String, bool), RowTotals>,
}

/// Merges the parts of a job and uploads the outputs. Waits for scratch space.
pub(crate) async fn run_job(
    context: &JobContext<'_>,
    scratch_budget: &Arc<MemoryBudget>,
) -> Result<JobResult, JobError> {
    let mut entries = context.job.inputs.clone();
    // Of several copies the first one stays. The tiers hold a covered one.
    entries.sort_by_key(|entry| !entry.is_covered);
    let inputs = open_inputs(context, &entries).await?;
    let mut merger = JobMerger { context, inputs, newest_arrivals: newest_arrivals(context.job) };
    let outcome = merge_inputs(&mut merger, scratch_budget).await;
    // The removal of many files would block this thread.
    let JobMerger { inputs, .. } = merger;
    context.compute.run_as(CpuActivity::Compaction, move || drop(inputs)).await?;
    outcome
}

/// Fetches the inputs, merges each output and uploads it.
async fn merge_inputs(
    merger: &mut JobMerger<'_>,
    scratch_budget: &Arc<MemoryBudget>,
) -> Result<JobResult, JobError> {
    let estimated = merger.estimate_memory(Vec::new(), None).await?;
    if estimated > merger.context.max_memory {
        merger.check_split(estimated).await?;
    }
    let context = merger.context;
    locate_parts(context, &mut merger.inputs).await?;
    let inputs = &merger.inputs;
    let copies = scratch_copies(context.job);
    let _space = reserve_scratch(scratch_budget, missing_bytes(inputs).saturating_mul(copies)).await?;
    let read_bytes = fetch_inputs(context, inputs).await?;
    let planned = match estimated <= context.max_memory {
        true => merger.plan_outputs().await?,
        false => merger.plan_small_outputs(estimated).await?,
    };
    merger.check_orders(&planned, estimated).await?;
    let blocks = planned.len() * blocks_per_output(context.job);
    let ids: Vec<BlockId> = (0..blocks).map(|_| context.new_block_id()).collect();
    let origins = OutputOrigins {
        job: context.job,
        token: context.claim.token(),
        cluster: context.cluster,
        outputs: ids.iter().map(BlockId::to_string).collect(),
    };
    let mut outputs = JobOutputs {
        context,
        metas: context.scratch.create_folder()?,
        result: JobResult { read_bytes, ..JobResult::default() },
        duplicates: BTreeMap::new(),
    };
    let mut compared = match writes_tiers(context.job) {
        true => ComparedBlocks::list(context, &planned).await?,
        false => ComparedBlocks::default(),
    };
    for (ids, output) in ids.chunks(blocks_per_output(context.job)).zip(&planned) {
        write_tiers(merger, output, ids, &origins, &mut compared, &mut outputs).await?;
    }
    outputs.result.compared = compared.ids();
    outputs.finish(ids.len()).await
}

/// Merges and uploads the block of one output in each tier that the job writes: the job's own tier, and for raw
/// rows that are not covered yet the downsampled ones, each from the finer one.
async fn write_tiers(
    merger: &JobMerger<'_>,
    planned: &PlannedOutput,
    ids: &[BlockId],
    origins: &OutputOrigins<'_>,
    compared: &mut ComparedBlocks,
    outputs: &mut JobOutputs<'_>,
) -> Result<(), JobError> {
    let context = merger.context;
    let Some((&first, downsampled)) = ids.split_first() else { return Ok(()) };
    let has_covered_inputs = merger.inputs.iter().any(|input| input.entry.is_covered);
    let compared = compared.open_for(context, planned).await?;
    if !compared.is_empty() {
        let series = planned.rows.series.clone();
        merger.check_memory(merger.estimate_memory(compared.clone(), series).await?)?;
    }
    let origin = origins.origin(&planned.tenants, context.job.tier)?;
    let source = OutputSource::Inputs { compared: compared.clone() };
    let merged = merger.merge_output(first, planned, origin, source).await?;
    let mut source = match has_covered_inputs {
        true => OutputSource::Inputs { compared },
        false => OutputSource::Output(Arc::clone(&merged.folder)),
    };
    if !outputs.upload(first, merged).await? {
        return Ok(());
    }
    for (&id, tier) in downsampled.iter().zip(Tier::DOWNSAMPLED) {
        let origin = origins.origin(&planned.tenants, tier)?;
        let mut merged = merger.merge_output(id, planned, origin, source).await?;
        // The merge of the raw rows counted them.
        merged.result.duplicates.clear();
        source = OutputSource::Output(Arc::clone(&merged.folder));
        if !outputs.upload(id, merged).await? {
            return Ok(());
        }
    }
    Ok(())
}

/// Returns how often the bytes of a job's inputs fit into the scratch space that it needs: for the inputs, the rounds
/// of the merge and one output. An output stays until the coarser tier was merged from it.
fn scratch_copies(job: &CompactionJob) -> u64 {
    // An input in another order than the output is read once for each hour.
    let inputs = if job.level < HOURLY_LEVEL { job.inputs.len() } else { job.inputs.len() * HOURS_PER_DAY };
    let rounds = u64::from(merge_round_count(inputs) > 1);
    2 + rounds + u64::from(writes_tiers(job))
}

/// Reserves space for the files of a job.
async fn reserve_scratch(budget: &Arc<MemoryBudget>, needed: u64) -> Result<MemoryReservation, JobError> {
    let limit = budget.limit();
    if needed > limit.get() {
        let needed = ByteSize::bytes(needed).to_approximate_string();
        return Err(JobError::from_reason(format!(
            "job needs about {needed} of scratch space, compactor.max_scratch_bytes is {limit}"
        )));
    }
    Ok(budget.reserve(needed).await)
}

impl JobOutputs<'_> {
    /// Uploads the files of an output, but not its `meta.json`. An output without rows is left out: all of them
    /// were duplicates of rows in other outputs. Returns whether the output has rows.
    async fn upload(&mut self, id: BlockId, merged: MergedOutput) -> Result<bool, JobError> {
        let MergedOutput { folder, result } = merged;
        for (tenant, dropped) in result.duplicates {
            for (is_covered, rows) in [(true, dropped.covered), (false, dropped.uncovered)] {
                self.duplicates.entry((tenant.clone(), is_covered)).or_default().add(rows);
            }
        }
        let Some(origin) = result.meta.origin.as_ref().filter(|_| !result.meta.tenants.is_empty()) else {
            return Ok(false);
        };
        let entry = output_entry(id, &result.meta, origin)?;
        let uploader = OutputUploader { context: self.context, owner: output_owner(&entry), block: id };
        self.result.written_bytes += uploader.upload_files(&folder).await?;
        let metas = Arc::clone(&self.metas);
        let keep = move || {
            let length = folder.length(META_FILE)?;
            let bytes = folder.read(META_FILE, 0, length as usize)?;
            let mut kept = metas.create(&id.to_string())?;
            kept.write_all(&bytes)?;
            kept.flush()
        };
        self.context.run_on_pool(keep).await??;
        self.result.outputs.push(entry);
        Ok(true)
    }

    /// Uploads `meta.json` of all outputs, after all other objects of the job.
    async fn finish(mut self, planned: usize) -> Result<JobResult, JobError> {
        let ids: Vec<String> = self.result.outputs.iter().map(|entry| entry.id.to_string()).collect();
        let ids = Arc::new(ids);
        for entry in &self.result.outputs {
            let metas = Arc::clone(&self.metas);
            let name = entry.id.to_string();
            let names_all = ids.len() == planned;
            let ids = Arc::clone(&ids);
            let read = move || -> Result<Bytes, JobError> {
                let length = metas.length(&name)?;
                let bytes = metas.read(&name, 0, length as usize)?;
                if names_all { Ok(bytes) } else { Ok(rename_outputs(&bytes, &ids)?.into()) }
            };
            let bytes = self.context.run_on_pool(read).await??;
            let owner = output_owner(entry);
            let uploader = OutputUploader { context: self.context, owner, block: entry.id };
            self.result.written_bytes += uploader.upload_meta(bytes).await?;
        }
        for ((tenant, is_covered), RowTotals { profiles, samples, sum }) in self.duplicates {
            if profiles > 0 {
                let tenant = parse_tenant(&tenant)?;
                let reason = DropReason::Duplicate;
                let rows = DroppedRows { tenant, reason, is_covered, profiles, samples, sum };
                self.result.dropped.push(rows);
            }
        }
        Ok(self.result)
    }
}

/// Returns the owner of an output's folder.
fn output_owner(entry: &BlockEntry) -> BlockOwner {
    debug_assert!(entry.level < TENANT_FOLDER_LEVEL || entry.tenants.len() == 1);
    block_owner(entry.folder_tenant())
}
