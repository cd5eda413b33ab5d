//! Jobs of the compactor: parts of blocks that one worker merges.
//!
//! ```text
//!  listed blocks ──planner──► CompactionJob ──ClaimParts──► token ──merge──► FinishJob{token, outputs}
//! ```
//!
//! The catalog stores claims and failures. Jobs are derived from the listed blocks by the leader, outside of
//! `apply`, because voters of two versions could derive different ones.

pub(crate) mod planner;
pub(crate) mod window;

use std::collections::{BTreeMap, BTreeSet};

use athanor_chassis::{TenantId, Tier, Timestamp};
use athanor_cluster::NodeId;
use serde::{Deserialize, Serialize};

use crate::block::{BlockEntry, BlockId, PartId};

/// Limit of parts in one job.
pub const MAX_JOB_PARTS: usize = 16_000;
/// Limit of blocks that one job writes, those of all tiers included.
pub const MAX_JOB_OUTPUTS: usize = 64;
/// Limit of covered blocks with which one job compares its rows.
pub const MAX_COMPARED_BLOCKS: usize = 16_000;

/// Set of parts. Tenants refer to blocks by index, so the set stays small with many tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobParts {
    /// Blocks that hold the parts, ascending.
    pub blocks: Vec<BlockId>,
    /// Indexes into `blocks`, by tenant, ascending.
    pub tenants: BTreeMap<TenantId, Vec<u32>>,
}

/// Merge that a worker can claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompactionJob {
    /// Tier of the inputs. A raw job from level 2 on writes blocks of all tiers.
    #[serde(default, skip_serializing_if = "Tier::is_raw")]
    pub tier: Tier,
    /// Level of the outputs.
    pub level: u8,
    /// Input blocks, in the order of their arrival. Each lists the parts that the job takes, and no others.
    pub inputs: Vec<BlockEntry>,
    /// Estimated bytes of the parts.
    pub bytes: u64,
    /// Number of outputs per window, above 1 for a window larger than one block may be.
    pub splits: u32,
}

/// Request of a worker for jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobRequest {
    /// Node of the worker.
    pub worker: NodeId,
    /// Largest job that the worker accepts, in bytes.
    pub max_bytes: u64,
    /// Limit of returned jobs.
    pub limit: u32,
}

/// Parts that one worker merges. The catalog revision of the claim is its token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartClaim {
    /// Node of the worker.
    pub worker: NodeId,
    /// End of the lease, by the catalog's time. A later finish succeeds if no part was claimed again.
    pub expires_at: Timestamp,
    /// Time of the claim.
    pub since: Timestamp,
    /// Claimed parts.
    pub parts: JobParts,
}

/// Failures of jobs with one part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartFailures {
    /// Failures since the job was last halved.
    pub count: u32,
    /// Largest job that may include the part.
    pub max_parts: u32,
    /// True if the part is excluded from all jobs.
    pub is_quarantined: bool,
    /// Message of the newest failure.
    pub reason: String,
    /// Time of the newest failure.
    pub at: Timestamp,
}

/// State of compaction, for operators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompactionStatus {
    /// Time of the catalog.
    pub time: Timestamp,
    /// True if an operator paused compaction.
    pub is_paused: bool,
    /// Number of listed raw blocks by level.
    pub blocks_by_level: BTreeMap<u8, u64>,
    /// Number of listed blocks by tier.
    #[serde(default)]
    pub blocks_by_tier: BTreeMap<Tier, u64>,
    /// Number of jobs that wait.
    pub waiting_jobs: u64,
    /// Bytes of the jobs that wait.
    pub waiting_bytes: u64,
    /// End of the oldest closed window with rows that are not in a final block.
    pub oldest_open_window: Option<Timestamp>,
    /// Running and expired claims by token.
    pub claims: BTreeMap<u64, PartClaim>,
    /// Parts with failures.
    pub failures: Vec<(PartId, PartFailures)>,
}

impl JobParts {
    /// Creates the set of all parts that the entries list.
    pub fn from_entries<'b>(entries: impl IntoIterator<Item = &'b BlockEntry>) -> Self {
        let parts = entries.into_iter().flat_map(|entry| {
            entry.tenants.iter().map(|span| PartId { block: entry.id, tenant: span.tenant.clone() })
        });
        parts.collect()
    }

    /// Returns the number of parts.
    pub fn len(&self) -> usize {
        self.tenants.values().map(Vec::len).sum()
    }

    /// Returns whether the set has no part.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all parts, by tenant and block. An index without a block is left out.
    pub fn iter(&self) -> impl Iterator<Item = PartId> {
        self.tenants.iter().flat_map(|(tenant, indexes)| {
            let blocks = indexes.iter().filter_map(|&index| self.blocks.get(index as usize));
            blocks.map(|&block| PartId { block, tenant: tenant.clone() })
        })
    }

    /// Returns whether the set has a part. Requires a canonical set.
    pub fn contains(&self, part: &PartId) -> bool {
        let Some(indexes) = self.tenants.get(&part.tenant) else { return false };
        let index = self.blocks.binary_search(&part.block);
        index.is_ok_and(|index| indexes.binary_search(&(index as u32)).is_ok())
    }

    /// Returns the tenants of each block. An index without a block is left out.
    pub fn tenants_by_block(&self) -> BTreeMap<BlockId, BTreeSet<&TenantId>> {
        let mut by_block: BTreeMap<BlockId, BTreeSet<&TenantId>> = BTreeMap::new();
        for (tenant, indexes) in &self.tenants {
            for block in indexes.iter().filter_map(|&index| self.blocks.get(index as usize)) {
                by_block.entry(*block).or_default().insert(tenant);
            }
        }
        by_block
    }

    /// Returns the first part that both sets have. Requires canonical sets.
    pub fn first_shared_part(&self, other: &Self) -> Option<PartId> {
        let has_shared_block = self.blocks.iter().any(|block| other.blocks.binary_search(block).is_ok());
        self.iter().filter(|_| has_shared_block).find(|part| other.contains(part))
    }

    /// Returns whether blocks and indexes are in order, without duplicates, and refer to each other.
    pub fn is_canonical(&self) -> bool {
        self.iter().collect::<Self>() == *self
    }
}

impl FromIterator<PartId> for JobParts {
    fn from_iter<I: IntoIterator<Item = PartId>>(parts: I) -> Self {
        let parts: BTreeSet<PartId> = parts.into_iter().collect();
        let blocks: BTreeSet<BlockId> = parts.iter().map(|part| part.block).collect();
        let blocks: Vec<BlockId> = blocks.into_iter().collect();
        let mut tenants: BTreeMap<TenantId, Vec<u32>> = BTreeMap::new();
        for PartId { block, tenant } in parts {
            let index = blocks.partition_point(|other| *other < block);
            tenants.entry(tenant).or_default().push(index as u32);
        }
        Self { blocks, tenants }
    }
}

impl PartClaim {
    /// Returns whether the lease runs at a time of the catalog.
    pub fn is_running(&self, now: Timestamp) -> bool {
        now < self.expires_at
    }
}

impl CompactionJob {
    /// Returns the parts of the job.
    pub fn parts(&self) -> JobParts {
        JobParts::from_entries(&self.inputs)
    }
}
