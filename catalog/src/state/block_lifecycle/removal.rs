//! Facts that decide which objects may be removed from the bucket.

use std::collections::BTreeSet;

use athanor_chassis::Timestamp;
use serde::{Deserialize, Serialize};

use crate::block::BlockId;
use crate::state::CatalogState;

/// Facts that decide which objects of tombstoned blocks may be removed, at one time of the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemovalReport {
    /// Time of the catalog.
    pub time: Timestamp,
    /// Catalog time of the newest snapshot in the bucket, which contains all older tombstones. The objects of
    /// other blocks stay: a catalog that is recovered from the snapshot lists them again [INV-16].
    pub snapshot_time: Timestamp,
    /// Expired blocks that can be restored.
    pub restorable: BTreeSet<BlockId>,
}

impl CatalogState {
    /// Returns the facts for removals at a time of the catalog. `snapshot_time` is the time of the newest
    /// snapshot in the bucket.
    pub fn removal_report(&self, time: Timestamp, snapshot_time: Timestamp) -> RemovalReport {
        let restorable = self.tombstones.keys().filter(|block| self.retention.is_expired(block));
        RemovalReport { time: time.max(self.now), snapshot_time, restorable: restorable.copied().collect() }
    }

    /// Returns those of the named blocks that are neither listed nor tombstoned, in their order.
    pub fn unknown_blocks(&self, mut blocks: Vec<BlockId>) -> Vec<BlockId> {
        blocks.retain(|block| !self.blocks.contains_key(block) && !self.tombstones.contains_key(block));
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::CatalogCommand;

    #[test]
    fn unknown_blocks_are_neither_listed_nor_tombstoned() {
        let mut state = CatalogState::default();
        let blocks = vec![BlockId::from_number(7)];
        state.apply(Timestamp::UNIX_EPOCH, CatalogCommand::TombstoneBlocks { blocks, tenant: None });
        let named = [8, 7, 6].map(BlockId::from_number).to_vec();
        assert_eq!(state.unknown_blocks(named), [8, 6].map(BlockId::from_number));
    }
}
