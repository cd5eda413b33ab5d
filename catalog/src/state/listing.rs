//! Reads of the catalog state: block listings and the routing view.

use std::collections::BTreeMap;

use athanor_chassis::{TenantId, Tier};
use athanor_cluster::NodeId;
use athanor_cluster::placement::SlotTables;
use serde::{Deserialize, Serialize};

use crate::block::BlockEntry;
use crate::state::{
    CatalogSettings, CatalogState, CatalogVoter, DataLossRecord, PendingTable, ProfileTimeRange, ShardEntry,
    ShardId, ShardNode, ShardPhase,
};

/// Blocks and watermarks of one tenant and time range, at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockListing {
    /// Revision of the catalog, which grows with every change.
    pub revision: u64,
    /// Blocks with rows of the tenant in the range. Their entries name no other tenant.
    pub blocks: Vec<BlockEntry>,
    /// Acknowledged entries that the blocks lack. They may belong to another tenant or time.
    pub lost: u64,
    /// All shards that are not retired. Lost ones return no results.
    pub shards: Vec<ShardEntry>,
    /// Shards with rows that are unreadable: lost ones, and recently abandoned ones.
    pub partial: Vec<ShardId>,
    /// Data losses on record.
    pub data_losses: Vec<DataLossRecord>,
    /// Times of the tenant's profiles that retention removed and that no tier holds, if the range overlaps them.
    pub removed: Option<ProfileTimeRange>,
    /// Latest time of the tenant's profiles that retention removed, for each tier with such ones. Not limited to
    /// the listed range.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub expired_until: BTreeMap<Tier, i64>,
}

/// State that every node needs to route requests, at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutingView {
    /// Revision of the catalog, which grows with every change.
    pub revision: u64,
    /// Tables that place profiles, absent before the first slots open.
    pub tables: Option<SlotTables>,
    /// Proposed table, which the shards must fence before it is published.
    pub pending: Option<PendingTable>,
    /// All shards, ordered by id. Includes recently retired ones, so that members that were offline see the
    /// retirement.
    pub shards: Vec<ShardEntry>,
    /// Nodes that are members of these shards.
    pub nodes: BTreeMap<NodeId, ShardNode>,
    /// Voters of the catalog and their addresses.
    pub voters: BTreeMap<NodeId, CatalogVoter>,
    /// Settings of the catalog.
    pub settings: CatalogSettings,
}

impl RoutingView {
    /// Returns the shard of a slot that accepts records.
    pub fn serving_shard(&self, slot: u32) -> Option<&ShardEntry> {
        self.shards.iter().find(|shard| shard.slot == slot && shard.serves())
    }
}

impl CatalogState {
    /// Lists a tenant's blocks in a time range, both ends included.
    pub fn list_blocks(&self, tenant: &TenantId, from: i64, to: i64) -> BlockListing {
        let of_tenant = |block: &BlockEntry| {
            let span = block.tenant_span_between(tenant, from, to)?;
            let BlockEntry {
                id,
                shard,
                epoch,
                from,
                to,
                bytes,
                samples,
                lost,
                level,
                job,
                tier,
                is_covered,
                ..
            } = *block;
            let additional_ranges = block.additional_ranges.clone();
            let tenants = vec![span.clone()];
            Some(BlockEntry {
                id,
                shard,
                epoch,
                from,
                to,
                bytes,
                samples,
                lost,
                level,
                additional_ranges,
                tier,
                is_covered,
                job,
                tenants,
            })
        };
        let is_partial = |phase: &ShardPhase| {
            matches!(phase, ShardPhase::Lost { .. } | ShardPhase::Retired { abandoned: true, .. })
        };
        let partial = self.shards.values().filter(|shard| is_partial(&shard.phase));
        BlockListing {
            revision: self.revision,
            blocks: self.blocks.blocks_between(tenant, from, to).into_iter().filter_map(of_tenant).collect(),
            lost: self.blocks.total_lost(),
            shards: self.shards.values().filter(|shard| !shard.is_retired()).cloned().collect(),
            partial: partial.map(|shard| shard.id).collect(),
            data_losses: self.data_losses.clone(),
            removed: self.retention.removed_times(tenant, from, to),
            expired_until: self.retention.expired_until(tenant),
        }
    }

    /// Returns the state that every node needs to route requests.
    pub fn routing_view(&self) -> RoutingView {
        RoutingView {
            revision: self.revision,
            tables: self.tables.clone(),
            pending: self.pending.clone(),
            shards: self.shards.values().cloned().collect(),
            nodes: self.nodes.clone(),
            voters: self.voters.clone(),
            settings: self.settings.clone(),
        }
    }
}
