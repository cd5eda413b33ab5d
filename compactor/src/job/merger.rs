//! Merges of one job: one for each output.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use athanor_block::{
    Block, BlockError, BlockFolder, BlockMeta, BlockOrigin, MergeEstimate, MergeOutput, MergeResult,
    MergeSource, RowOrder, RowSelection, SeriesPartition, merge_into, partition_series, summarize_rows,
};
use athanor_catalog::{BlockId, CompactionJob, MAX_JOB_OUTPUTS};
use athanor_chassis::{ByteSize, Tier};

use crate::error::JobError;
use crate::input::culprit::{find_culprit, is_of_input};
use crate::input::fetcher::JobInput;
use crate::job::context::JobContext;
use crate::job::entry::writes_tiers;
use crate::job::output_plan::{PlannedOutput, plan_windows, split_output, window_width};

/// Merges of one job.
pub(crate) struct JobMerger<'m> {
    pub(crate) context: &'m JobContext<'m>,
    pub(crate) inputs: Vec<JobInput>,
    /// Newest arrival of each tenant's rows, in Unix nanoseconds.
    pub(crate) newest_arrivals: BTreeMap<String, u64>,
}

/// Rows from which an output is merged.
pub(crate) enum OutputSource {
    /// Inputs of the job. Rows with an ID of the compared blocks are duplicates.
    Inputs {
        /// Covered blocks that are no inputs.
        compared: Vec<Block>,
    },
    /// Output of the job that was merged before, with the same rows or finer buckets.
    Output(Arc<dyn BlockFolder>),
}

/// Output block in scratch space.
pub(crate) struct MergedOutput {
    pub(crate) folder: Arc<dyn BlockFolder>,
    pub(crate) result: MergeResult,
}

impl JobMerger<'_> {
    /// Estimates the memory of a merge of the partition's series, or of all series, with the IDs of compared blocks. A
    /// merge holds all names of a tenant, so fewer parts or fewer series need less.
    pub(crate) async fn estimate_memory(
        &self,
        compared: Vec<Block>,
        series: Option<SeriesPartition>,
    ) -> Result<u64, JobError> {
        let order = self.order();
        let estimate = move |sources: Vec<MergeSource>| {
            let series = series.as_ref();
            MergeEstimate { compared: &compared, tenants: None, order, series }.memory(&sources)
        };
        self.run(estimate).await
    }

    /// Returns an error if an output needs more memory than a merge may take.
    pub(crate) fn check_memory(&self, estimated: u64) -> Result<(), JobError> {
        if estimated <= self.context.max_memory {
            return Ok(());
        }
        let estimated = ByteSize::bytes(estimated).to_approximate_string();
        let limit = ByteSize::bytes(self.context.max_memory);
        Err(JobError::from_reason(format!(
            "merge needs about {estimated} of memory, compactor.max_merge_memory_bytes is {limit}"
        )))
    }

    /// Checks that a job above the memory limit can be split by series: all of its parts belong to one tenant, and
    /// what no split makes smaller fits.
    pub(crate) async fn check_split(&self, estimated: u64) -> Result<(), JobError> {
        let tenants: BTreeSet<&String> = self.inputs.iter().flat_map(|input| &input.tenants).collect();
        if tenants.len() > 1 {
            return self.check_memory(estimated);
        }
        let order = self.order();
        let estimate = move |sources: Vec<MergeSource>| {
            MergeEstimate { order, ..MergeEstimate::default() }.unsplittable_memory(&sources)
        };
        self.check_memory(self.run(estimate).await?)
    }

    /// Checks the memory of outputs with another order than the job's level has, because their windows are wider.
    pub(crate) async fn check_orders(
        &self,
        planned: &[PlannedOutput],
        estimated: u64,
    ) -> Result<(), JobError> {
        let order_of_output =
            |output: &PlannedOutput| order_of(self.context.job.tier, width_of(&output.rows));
        let own = self.order();
        // The estimates of a job above the limit are those of its outputs.
        if estimated > self.context.max_memory {
            return Ok(());
        }
        let Some(other) = planned.iter().map(order_of_output).find(|order| *order != own) else {
            return Ok(());
        };
        let estimate = move |sources: Vec<MergeSource>| {
            MergeEstimate { order: other, ..MergeEstimate::default() }.memory(&sources)
        };
        self.check_memory(self.run(estimate).await?)
    }

    /// Returns the order of rows in windows of the job's level.
    fn order(&self) -> RowOrder {
        order_of(self.context.job.tier, window_width(self.context.job.level))
    }

    /// Chooses outputs of which each one fits into memory, for a job that needs more as a whole. Outputs have fewer and
    /// fewer series. The error states the memory of the largest output.
    pub(crate) async fn plan_small_outputs(&self, estimated: u64) -> Result<Vec<PlannedOutput>, JobError> {
        let mut pieces = self.pieces();
        let mut least = estimated;
        loop {
            let outputs = self.plan_pieces(pieces).await?;
            let mut largest = 0;
            for output in &outputs {
                let series = output.rows.series.clone().unwrap_or_default();
                largest = largest.max(self.estimate_memory(Vec::new(), Some(series)).await?);
            }
            least = least.min(largest);
            if largest <= self.context.max_memory {
                let job = self.context.claim.token();
                let outputs_count = outputs.len();
                tracing::info!(
                    job,
                    estimated,
                    outputs = outputs_count,
                    "split a compaction job by series to fit memory"
                );
                return Ok(outputs);
            }
            if pieces == self.max_pieces() {
                self.check_memory(least)?;
            }
            pieces = (pieces * 2).min(self.max_pieces());
        }
    }

    /// Chooses the outputs from the headers of all profiles.
    pub(crate) async fn plan_outputs(&self) -> Result<Vec<PlannedOutput>, JobError> {
        self.plan_pieces(self.pieces()).await
    }

    /// Returns the number of outputs that the job asks for in each window.
    fn pieces(&self) -> usize {
        let pieces = usize::try_from(self.context.job.splits).unwrap_or(usize::MAX);
        pieces.clamp(1, self.max_pieces())
    }

    fn max_pieces(&self) -> usize {
        MAX_JOB_OUTPUTS / blocks_per_output(self.context.job)
    }

    async fn plan_pieces(&self, pieces: usize) -> Result<Vec<PlannedOutput>, JobError> {
        let level = self.context.job.level;
        let summarize = move |sources: Vec<MergeSource>| summarize_rows(&sources, window_width(level));
        let summary = self.run(summarize).await?;
        let blocks = blocks_per_output(self.context.job);
        let mut outputs = Vec::new();
        for window in plan_windows(level, &summary, pieces * blocks) {
            outputs.extend(self.partition_window(window, pieces).await?);
        }
        Ok(outputs)
    }

    /// Splits the rows of a window by series. Windows that several tenants share are small.
    async fn partition_window(
        &self,
        window: PlannedOutput,
        pieces: usize,
    ) -> Result<Vec<PlannedOutput>, JobError> {
        let Some(tenant) = window.tenants.first().filter(|_| pieces > 1 && window.tenants.len() == 1) else {
            return Ok(vec![window]);
        };
        let tenant = tenant.clone();
        let rows = window.rows.clone();
        let partition = move |sources: Vec<MergeSource>| partition_series(&sources, &tenant, &rows, pieces);
        Ok(split_output(&window, &self.run(partition).await?))
    }

    /// Merges the rows of an output into scratch space.
    pub(crate) async fn merge_output(
        &self,
        id: BlockId,
        planned: &PlannedOutput,
        origin: BlockOrigin,
        source: OutputSource,
    ) -> Result<MergedOutput, JobError> {
        let PlannedOutput { tenants, rows } = planned.clone();
        let tier = origin.tier;
        let mut output = MergeOutput {
            id: id.to_string(),
            tier,
            origin: Some(origin),
            newest_arrival: self.newest_arrivals_of(&tenants),
            tenants: Some(tenants),
            order: order_of(tier, width_of(&rows)),
            rows,
            compared: Vec::new(),
        };
        let scratch = self.context.scratch.clone();
        let folder = scratch.create_folder()?;
        let written = Arc::clone(&folder);
        let merge = move |output: MergeOutput, sources: Vec<MergeSource>| {
            let mut create_folder = || scratch.create_folder();
            merge_into(written.as_ref(), &output, sources, &mut create_folder, &mut |_| ())
        };
        let result = match source {
            OutputSource::Inputs { compared } => {
                output.compared = compared;
                self.run(move |sources| merge(output, sources)).await?
            }
            OutputSource::Output(finer) => {
                // Buckets of a window end after it, and the output has the rows of the window only.
                output.rows = RowSelection::default();
                let merge = move || {
                    let block = Block::open(finer)?;
                    // The tiers hold the rows of a raw output once this job is finished.
                    merge(output, vec![MergeSource { block, tenants: None, is_covered: false }])
                };
                self.context.run_on_pool(merge).await??
            }
        };
        Ok(MergedOutput { folder, result })
    }

    fn newest_arrivals_of(&self, tenants: &BTreeSet<String>) -> BTreeMap<String, u64> {
        let of_tenants = self.newest_arrivals.iter().filter(|(tenant, _)| tenants.contains(*tenant));
        of_tenants.map(|(tenant, arrival)| (tenant.clone(), *arrival)).collect()
    }

    /// Runs a step over all inputs on the compute pool. If bytes of an input fail it, finds their part.
    async fn run<R: Send + 'static>(
        &self,
        step: impl FnOnce(Vec<MergeSource>) -> Result<R, BlockError> + Send + 'static,
    ) -> Result<R, JobError> {
        let inputs = self.inputs.clone();
        let scratch = self.context.scratch.clone();
        let claim = Arc::clone(&self.context.claim);
        let run = move || {
            let error = match step(inputs.iter().map(JobInput::source).collect()) {
                Ok(done) => return Ok(done),
                Err(_) if claim.has_ended() => return Err(JobError::ClaimEnded),
                Err(error) => error,
            };
            Err(if is_of_input(&error) { find_culprit(&inputs, &scratch, error) } else { error.into() })
        };
        self.context.run_on_pool(run).await?
    }
}

/// Returns the width of an output's window in nanoseconds.
fn width_of(rows: &RowSelection) -> i64 {
    rows.until.saturating_sub(rows.after)
}

/// Returns the order of the rows of an output over a window of some nanoseconds. In a block of a day, a query for some
/// hours reads the rows of these. Longer buckets are one row of a series and hour, and wider windows are those of few
/// profiles of unusual times.
fn order_of(tier: Tier, width: i64) -> RowOrder {
    let is_fine = matches!(tier, Tier::Raw | Tier::FiveMinutes);
    let is_long = (window_width(2) + 1..=window_width(3)).contains(&width);
    if is_fine && is_long { RowOrder::Hour } else { RowOrder::Series }
}

/// Returns the number of blocks that a job writes for one window or piece of it: one for each tier.
pub(crate) fn blocks_per_output(job: &CompactionJob) -> usize {
    if writes_tiers(job) { Tier::ALL.len() } else { 1 }
}

/// Returns `meta.json` of an output that names only some outputs of its job, because the others have no rows.
pub(crate) fn rename_outputs(bytes: &[u8], outputs: &[String]) -> Result<Vec<u8>, BlockError> {
    let mut meta = BlockMeta::decode(bytes)?;
    if let Some(job) = meta.origin.as_mut().and_then(|origin| origin.job.as_mut()) {
        job.outputs = outputs.to_vec();
    }
    Ok(meta.encode())
}
