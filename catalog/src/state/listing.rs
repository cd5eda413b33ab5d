//! What is read of the facts.

use std::collections::BTreeMap;

use athanor_chassis::TenantId;
use athanor_cluster::NodeId;
use athanor_cluster::placement::SlotTables;
use serde::{Deserialize, Serialize};

use super::{
    CatalogSettings, CatalogState, CatalogVoter, DataLossRecord, PendingTable, ProfileTimeRange, ShardEntry,
    ShardId, ShardNode, ShardPhase,
};
use crate::block::BlockEntry;

/// Blocks and watermarks at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockListing {
    /// Grows with every change.
    pub revision: u64,
    /// Blocks with rows of the tenant in the range. Whose rows they hold as well is not told.
    pub blocks: Vec<BlockEntry>,
    /// Acknowledged entries that blocks lack, perhaps of this tenant and time, perhaps of others.
    pub lost: u64,
    /// All shards that did not retire. Those that are lost answer nothing.
    pub shards: Vec<ShardEntry>,
    /// Shards with rows that cannot be told, or not yet: lost ones, and such as were abandoned of late.
    pub partial: Vec<ShardId>,
    /// What damage left.
    pub scars: Vec<DataLossRecord>,
    /// Times of profiles of the tenant that were removed by age, if the range overlaps them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<ProfileTimeRange>,
}

/// What every node must know, at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutingView {
    /// Grows with every change.
    pub revision: u64,
    /// Where profiles go; none before there are slots.
    pub tables: Option<SlotTables>,
    /// The table whose fence is to be logged.
    pub pending: Option<PendingTable>,
    /// All shards, by number: also those that retired of late, so that who was away learns of it.
    pub shards: Vec<ShardEntry>,
    /// The nodes that are their members.
    pub nodes: BTreeMap<NodeId, ShardNode>,
    /// Who votes in the catalogue.
    pub voters: BTreeMap<NodeId, CatalogVoter>,
    /// What the catalogue goes by.
    pub settings: CatalogSettings,
}

impl RoutingView {
    /// The shard of a slot that takes records.
    pub fn serving_shard(&self, slot: u32) -> Option<&ShardEntry> {
        self.shards.iter().find(|shard| shard.slot == slot && shard.serves())
    }
}

impl CatalogState {
    /// What a tenant has in a range of time, both ends included.
    pub fn list_blocks(&self, tenant: &TenantId, from: i64, to: i64) -> BlockListing {
        let of_tenant = |block: &BlockEntry| {
            let span = block.tenant_span_between(tenant, from, to)?;
            let BlockEntry { id, shard, epoch, from, to, bytes, samples, lost, level, .. } = *block;
            let further = block.further.clone();
            let tenants = vec![span.clone()];
            Some(BlockEntry { id, shard, epoch, from, to, bytes, samples, lost, level, further, tenants })
        };
        let hurt = self.blocks.values().filter(|block| block.lost > 0);
        let is_partial = |phase: &ShardPhase| {
            matches!(phase, ShardPhase::Lost { .. } | ShardPhase::Retired { abandoned: true, .. })
        };
        let partial = self.shards.values().filter(|shard| is_partial(&shard.phase));
        BlockListing {
            revision: self.revision,
            blocks: self.blocks.values().filter_map(of_tenant).collect(),
            lost: hurt.map(|block| block.lost).sum(),
            shards: self.shards.values().filter(|shard| !shard.is_retired()).cloned().collect(),
            partial: partial.map(|shard| shard.id).collect(),
            scars: self.scars.clone(),
            removed: self.retention.removed_times(tenant, from, to),
        }
    }

    /// What every node must know.
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
