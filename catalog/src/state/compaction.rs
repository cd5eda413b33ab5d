//! Claims, failures and finished jobs of the compactor [INV-20].
//!
//! * `claims`: leases on parts, and their tokens.
//! * `failures`: failures of parts, from the first one to quarantine.
//! * `job_check`: comparison of outputs with inputs.
//! * `output_mismatch`: properties in which they may differ.
//! * `tenant_rows`: conservation of rows.
//! * `finish`: swap of the claimed parts for the outputs.

pub(in crate::state) mod claims;
pub(in crate::state) mod failures;
pub(in crate::state) mod finish;
pub(in crate::state) mod job_check;
pub(in crate::state) mod output_mismatch;
mod tenant_rows;

use std::collections::{BTreeMap, BTreeSet};

use athanor_chassis::{TenantId, Timestamp};
use athanor_cluster::NodeId;
use serde::{Deserialize, Serialize};

use crate::block::{BlockId, PartId};
use crate::compaction::planner::{PlanInput, PlannerSettings};
use crate::compaction::{PartClaim, PartFailures};
use crate::state::persistent_map::{PersistentMap, SharedValue};
use crate::state::{CatalogState, CommandOutcome};

/// Stored state of compaction. The jobs themselves are derived from the listed blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::state) struct CompactionState {
    /// True if an operator paused compaction.
    pub(in crate::state) is_paused: bool,
    /// Claims by token. A part is in at most one of them, so a token is valid while its claim is here.
    pub(in crate::state) claims: BTreeMap<u64, SharedValue<PartClaim>>,
    /// Tokens of finished jobs, each with the time of the finish.
    pub(in crate::state) finished: PersistentMap<u64, Timestamp>,
    /// Failures of listed parts, by block and tenant.
    pub(in crate::state) failures: SharedValue<BTreeMap<BlockId, BTreeMap<TenantId, PartFailures>>>,
}

impl CompactionState {
    /// Ends all claims on parts of a block that leaves the listing, without a failure. Forgets the failures
    /// of its parts.
    pub(in crate::state) fn forget_block(&mut self, block: &BlockId) {
        self.claims.retain(|_, claim| claim.parts.blocks.binary_search(block).is_err());
        self.failures.remove(block);
    }

    /// Ends all claims on parts that leave the listing, without a failure. Forgets the failures of the parts.
    pub(in crate::state) fn forget_parts(&mut self, block: &BlockId, tenants: &BTreeSet<&TenantId>) {
        let parts = tenants.iter().map(|tenant| PartId { block: *block, tenant: (*tenant).clone() });
        let parts: Vec<PartId> = parts.collect();
        self.claims.retain(|_, claim| {
            let has_block = claim.parts.blocks.binary_search(block).is_ok();
            !has_block || !parts.iter().any(|part| claim.parts.contains(part))
        });
        for part in &parts {
            self.forget_failures(part);
        }
    }

    /// Returns the failures of all parts.
    fn failures_by_part(&self) -> BTreeMap<PartId, PartFailures> {
        let of_block = |(block, tenants): (&BlockId, &BTreeMap<TenantId, PartFailures>)| {
            let block = *block;
            let parts = tenants
                .iter()
                .map(move |(tenant, failures)| (PartId { block, tenant: tenant.clone() }, failures.clone()));
            parts.collect::<Vec<_>>()
        };
        self.failures.iter().flat_map(of_block).collect()
    }
}

impl CatalogState {
    /// Pauses or resumes compaction. Running jobs may finish.
    pub(in crate::state) fn pause_compaction(&mut self, paused: bool) -> CommandOutcome {
        let is_changed = self.compaction.is_paused != paused;
        self.compaction.is_paused = paused;
        CommandOutcome::from_count(usize::from(is_changed))
    }

    /// Returns the input of the planner at a time of the catalog.
    pub fn plan_input(&self, now: Timestamp, workers: u32) -> PlanInput {
        PlanInput {
            now: now.max(self.now),
            blocks: self.blocks.shared_values().cloned().collect(),
            claims: self
                .compaction
                .claims
                .iter()
                .map(|(token, claim)| (*token, PartClaim::clone(claim)))
                .collect(),
            failures: self.compaction.failures_by_part(),
            workers,
            is_paused: self.compaction.is_paused,
            settings: PlannerSettings::default(),
        }
    }

    /// Returns the workers with a claim.
    pub fn claiming_workers(&self) -> BTreeSet<NodeId> {
        self.compaction.claims.values().map(|claim| claim.worker).collect()
    }
}
