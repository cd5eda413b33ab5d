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
#[derive(Default)]
pub(crate) struct ComparedBlocks {
    opened: BTreeMap<BlockId, JobInput>,
}

impl ComparedBlocks {
    /// Returns the IDs of the blocks, for the catalog.
    pub(crate) fn ids(&self) -> Vec<BlockId> {
        self.opened.keys().copied().collect()
    }

    /// Finds and opens the covered blocks that may have rows of an output's tenant and window.
    pub(crate) async fn open_for(
        &mut self,
        context: &JobContext<'_>,
        output: &PlannedOutput,
    ) -> Result<Vec<Block>, JobError> {
        let inputs: BTreeSet<BlockId> = context.job.inputs.iter().map(|input| input.id).collect();
        let mut blocks = Vec::new();
        for tenant in &output.tenants {
            let tenant = parse_tenant(tenant)?;
            let listed = context.list_blocks(&tenant, output.rows.after, output.rows.until).await?;
            let is_compared = |block: &&BlockEntry| block.is_covered && !inputs.contains(&block.id);
            for entry in listed.iter().filter(is_compared) {
                let opened = match self.opened.entry(entry.id) {
                    Entry::Occupied(opened) => opened.into_mut(),
                    Entry::Vacant(vacant) => vacant.insert(fetch_ids(context, entry).await?),
                };
                blocks.push(opened.block.clone());
            }
        }
        Ok(blocks)
    }
}
