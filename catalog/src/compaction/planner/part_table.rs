//! Listed parts in a compact form.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use athanor_chassis::{TenantId, Tier, Timestamp};

use crate::block::{BlockEntry, BlockId, TenantSpan};
use crate::compaction::PartFailures;
use crate::compaction::planner::PlanInput;

/// Part with the facts that plans use.
pub(super) struct PlanPart {
    /// Index of the block.
    pub block: usize,
    /// Index of the tenant's rows in the block.
    pub span: usize,
    /// Number of the tenant. Numbers are in the order of names.
    pub tenant: usize,
    /// Tier of the block.
    pub tier: Tier,
    /// Level of the block.
    pub level: u8,
    /// True if the tiers hold the rows of a raw part.
    pub is_covered: bool,
    /// Time of the earliest profile, Unix nanoseconds.
    pub min_time: i64,
    /// Time of the latest profile, Unix nanoseconds.
    pub max_time: i64,
    /// Estimated bytes.
    pub bytes: u64,
    /// Newest arrival of the rows.
    pub arrival: Timestamp,
    /// Largest job that may include the part.
    pub max_parts: usize,
    /// True if jobs can take the part.
    pub state: PartState,
}

/// Availability of a part for jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartState {
    /// Jobs can take the part.
    Free,
    /// A worker with a running lease merges the part.
    Claimed,
    /// The part is excluded from all jobs until an operator retries it.
    Quarantined,
}

/// All listed parts, in the order of blocks and of tenants in a block.
pub(super) struct PartTable<'i> {
    /// Listed blocks.
    pub blocks: &'i [Arc<BlockEntry>],
    /// Parts of all blocks.
    pub parts: Vec<PlanPart>,
    /// Numbers of tenants by name.
    pub tenant_numbers: HashMap<&'i TenantId, usize>,
}

/// Claims and failures by part.
struct PartRecords<'i> {
    claimed: HashSet<(BlockId, &'i TenantId)>,
    failures: HashMap<(BlockId, &'i TenantId), &'i PartFailures>,
}

impl<'i> PartTable<'i> {
    /// Collects the parts of all listed blocks.
    pub(super) fn from_input(input: &'i PlanInput) -> Self {
        let records = PartRecords::from_input(input);
        let tenant_numbers = number_tenants(&input.blocks);
        let mut parts = Vec::with_capacity(input.blocks.iter().map(|block| block.tenants.len()).sum());
        for (index, block) in input.blocks.iter().enumerate() {
            let profiles: u128 = block.tenants.iter().map(|span| u128::from(span.profiles)).sum();
            for (span_index, span) in block.tenants.iter().enumerate() {
                let share = u128::from(block.bytes) * u128::from(span.profiles);
                parts.push(PlanPart {
                    block: index,
                    span: span_index,
                    tenant: tenant_numbers[&span.tenant],
                    tier: block.tier,
                    level: block.level,
                    is_covered: block.is_covered,
                    min_time: span.min_time,
                    max_time: span.max_time,
                    // The share is at most the block's bytes, which fit into a `u64`.
                    bytes: share.checked_div(profiles).map_or(0, |bytes| bytes as u64),
                    arrival: block.newest_arrival(span),
                    max_parts: records.max_parts(block.id, &span.tenant),
                    state: records.state(block.id, &span.tenant),
                });
            }
        }
        Self { blocks: &input.blocks, parts, tenant_numbers }
    }

    /// Returns the block of a part.
    pub(super) fn block(&self, part: &PlanPart) -> &'i BlockEntry {
        &self.blocks[part.block]
    }

    /// Returns the tenant's rows of a part.
    pub(super) fn span(&self, part: &PlanPart) -> &'i TenantSpan {
        &self.blocks[part.block].tenants[part.span]
    }
}

impl<'i> PartRecords<'i> {
    fn from_input(input: &'i PlanInput) -> Self {
        let mut claimed = HashSet::new();
        for claim in input.claims.values().filter(|claim| input.now < claim.expires_at) {
            for (tenant, indexes) in &claim.parts.tenants {
                let blocks = indexes.iter().filter_map(|&index| claim.parts.blocks.get(index as usize));
                claimed.extend(blocks.map(|&block| (block, tenant)));
            }
        }
        let failures =
            input.failures.iter().map(|(part, failures)| ((part.block, &part.tenant), failures)).collect();
        Self { claimed, failures }
    }

    fn max_parts(&self, block: BlockId, tenant: &'i TenantId) -> usize {
        let failures = self.failures.get(&(block, tenant));
        failures.map_or(usize::MAX, |failures| failures.max_parts.max(1) as usize)
    }

    fn state(&self, block: BlockId, tenant: &'i TenantId) -> PartState {
        if self.failures.get(&(block, tenant)).is_some_and(|failures| failures.is_quarantined) {
            PartState::Quarantined
        } else if self.claimed.contains(&(block, tenant)) {
            PartState::Claimed
        } else {
            PartState::Free
        }
    }
}

/// Returns numbers of all tenants, in the order of names.
fn number_tenants(blocks: &[Arc<BlockEntry>]) -> HashMap<&TenantId, usize> {
    let spans = blocks.iter().flat_map(|block| &block.tenants);
    let distinct: HashSet<&TenantId> = spans.map(|span| &span.tenant).collect();
    let mut tenants: Vec<&TenantId> = distinct.into_iter().collect();
    tenants.sort_unstable();
    tenants.into_iter().enumerate().map(|(number, tenant)| (tenant, number)).collect()
}
