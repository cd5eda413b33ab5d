//! Blocks with which a job compares profile IDs: their rows are in the tiers already [INV-23].

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use athanor_block::Block;
use athanor_catalog::{BlockEntry, BlockId};

use crate::error::JobError;
use crate::input::fetcher::{JobInput, fetch_ids};
use crate::job::context::JobContext;
use crate::job::entry::parse_tenant;
use crate::job::output_plan::PlannedOutput;

/// Covered blocks that are no inputs of a job. A row of an uncovered input with an ID of one of them is a
/// duplicate: the tiers hold its first copy.
///
/// All outputs use one listing per tenant. With one for each output, the catalog could not know which outputs were
/// compared with a block that another job listed meanwhile.
#[derive(Default)]
pub(crate) struct ComparedBlocks {
    /// Covered blocks by tenant.
    listed: BTreeMap<String, Vec<BlockEntry>>,
    opened: BTreeMap<BlockId, Option<JobInput>>,
}

impl ComparedBlocks {
    /// Lists the covered blocks of all tenants and times of the outputs.
    pub(crate) async fn list(context: &JobContext<'_>, outputs: &[PlannedOutput]) -> Result<Self, JobError> {
        let inputs: BTreeSet<BlockId> = context.job.inputs.iter().map(|input| input.id).collect();
        let mut times: BTreeMap<String, (i64, i64)> = BTreeMap::new();
        for output in outputs {
            for tenant in &output.tenants {
                let (after, until) =
                    times.entry(tenant.clone()).or_insert((output.rows.after, output.rows.until));
                *after = output.rows.after.min(*after);
                *until = output.rows.until.max(*until);
            }
        }
        let mut compared = Self::default();
        for (tenant, (after, until)) in times {
            let mut blocks = context.list_blocks(&parse_tenant(&tenant)?, after, until).await?;
            blocks.retain(|block| block.is_covered && !inputs.contains(&block.id));
            compared.listed.insert(tenant, blocks);
        }
        Ok(compared)
    }

    /// Returns the IDs of the blocks with which the outputs were compared, for the catalog.
    pub(crate) fn ids(&self) -> Vec<BlockId> {
        self.opened.keys().copied().collect()
    }

    /// Opens the listed blocks that may have rows of an output's tenant and window. A block that cannot be read is
    /// left out: it must not keep the rows of other blocks out of the tiers.
    pub(crate) async fn open_for(
        &mut self,
        context: &JobContext<'_>,
        output: &PlannedOutput,
    ) -> Result<Vec<Block>, JobError> {
        let mut blocks = Vec::new();
        let of_tenants = output.tenants.iter().filter_map(|tenant| self.listed.get(tenant)).flatten();
        let overlaps = |block: &&BlockEntry| {
            let mut spans = block.tenants.iter();
            spans.any(|span| span.min_time <= output.rows.until && span.max_time >= output.rows.after)
        };
        let near: Vec<BlockEntry> = of_tenants.filter(overlaps).cloned().collect();
        for entry in near {
            let opened = match self.opened.entry(entry.id) {
                Entry::Occupied(opened) => opened.into_mut(),
                Entry::Vacant(vacant) => vacant.insert(fetch_readable_ids(context, &entry).await?),
            };
            blocks.extend(opened.as_ref().map(|input| input.block.clone()));
        }
        Ok(blocks)
    }
}

/// Fetches the IDs of a block. Returns none if they cannot be read.
async fn fetch_readable_ids(
    context: &JobContext<'_>,
    entry: &BlockEntry,
) -> Result<Option<JobInput>, JobError> {
    match fetch_ids(context, entry).await {
        Ok(input) => Ok(Some(input)),
        Err(JobError::ClaimEnded) => Err(JobError::ClaimEnded),
        Err(JobError::Failed(failure)) => {
            let job = context.claim.token();
            tracing::warn!(
                job,
                block = %entry.id,
                error = %failure.reason,
                "profile ids of a block cannot be read, copies of its profiles are not recognized"
            );
            Ok(None)
        }
    }
}
