//! Registered blocks, and the number of blocks per tenant.

use std::collections::BTreeMap;
use std::ops::Deref;

use athanor_chassis::TenantId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::block::{BlockEntry, BlockId};

/// Blocks by id, with a count per tenant. Equal tenant names share one allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::state) struct BlockSet {
    by_id: BTreeMap<BlockId, BlockEntry>,
    blocks_of_tenant: BTreeMap<TenantId, u64>,
}

impl BlockSet {
    /// Inserts a block and returns the earlier block of the same id.
    pub(in crate::state) fn insert(&mut self, id: BlockId, mut block: BlockEntry) -> Option<BlockEntry> {
        let replaced = self.remove(&id);
        for span in &mut block.tenants {
            let known = self.blocks_of_tenant.get_key_value(&span.tenant);
            if let Some(name) = known.map(|(name, _)| name.clone()) {
                span.tenant = name;
            }
            *self.blocks_of_tenant.entry(span.tenant.clone()).or_default() += 1;
        }
        self.by_id.insert(id, block);
        replaced
    }

    /// Removes a block and updates the tenant counts.
    pub(in crate::state) fn remove(&mut self, id: &BlockId) -> Option<BlockEntry> {
        let removed = self.by_id.remove(id)?;
        for span in &removed.tenants {
            let Some(count) = self.blocks_of_tenant.get_mut(&span.tenant) else { continue };
            *count -= 1;
            if *count == 0 {
                self.blocks_of_tenant.remove(&span.tenant);
            }
        }
        Some(removed)
    }

    /// Returns the tenants with rows in some block, ascending.
    pub(in crate::state) fn tenants(&self) -> impl Iterator<Item = &TenantId> {
        self.blocks_of_tenant.keys()
    }

    /// Returns an error if the tenant counts do not match the blocks.
    pub(in crate::state) fn check_tenant_counts(&self) -> Result<(), String> {
        match self.by_id.clone().into_iter().collect::<Self>().blocks_of_tenant == self.blocks_of_tenant {
            true => Ok(()),
            false => Err("tenant counts differ from the tenants of the blocks".to_owned()),
        }
    }
}

/// Read access only: changes go through [`BlockSet::insert`] and [`BlockSet::remove`].
impl Deref for BlockSet {
    type Target = BTreeMap<BlockId, BlockEntry>;

    fn deref(&self) -> &Self::Target {
        &self.by_id
    }
}

impl Extend<(BlockId, BlockEntry)> for BlockSet {
    fn extend<I: IntoIterator<Item = (BlockId, BlockEntry)>>(&mut self, blocks: I) {
        for (id, block) in blocks {
            self.insert(id, block);
        }
    }
}

impl FromIterator<(BlockId, BlockEntry)> for BlockSet {
    fn from_iter<I: IntoIterator<Item = (BlockId, BlockEntry)>>(blocks: I) -> Self {
        let mut set = Self::default();
        set.extend(blocks);
        set
    }
}

impl Serialize for BlockSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.by_id.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for BlockSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let by_id = BTreeMap::deserialize(deserializer)?;
        Ok(by_id.into_iter().collect())
    }
}
