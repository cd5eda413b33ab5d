//! Handoff of a lost shard whose flushed blocks were merged.

use athanor_block::{META_FILE, PARQUET_FILES};
use athanor_catalog::{BlockEntry, BlockId, JobParts, TenantSpan};
use athanor_chassis::Timestamp;

use super::*;
use crate::world::object;

impl Cluster {
    /// Replaces a flushed block by a merged one with the same rows, as a compactor does.
    async fn merge_block(&self, input: &BlockEntry) -> BlockId {
        let token = self.catalog.claim_parts(1, JobParts::from_entries([input])).await.unwrap();
        let named = self.clock.wall().max(input.id.named_at().plus(Duration::from_millis(1)));
        let id = BlockId::new(named, &self.random);
        for file in PARQUET_FILES.into_iter().chain([META_FILE]) {
            let bytes = self.store.get(&object(input.id.number(), file)).await.unwrap();
            self.store.create(&object(id.number(), file), bytes).await.unwrap();
        }
        let merged_span =
            |span: &TenantSpan| TenantSpan { newest_arrival: input.newest_arrival(span), ..span.clone() };
        let tenants = input.tenants.iter().map(merged_span).collect();
        let output = BlockEntry { id, level: 1, job: Some(token), tenants, ..input.clone() };
        self.catalog.finish_job(token, vec![output], Vec::new(), Vec::new()).await.unwrap();
        id
    }

    async fn slot_blocks(&self) -> Vec<BlockId> {
        let blocks = self.catalog.blocks_of_slot(0, Timestamp::UNIX_EPOCH).await.unwrap();
        blocks.into_iter().map(|block| block.id).collect()
    }

    /// Removes the objects of a merged block and records that.
    async fn remove_objects(&self, block: BlockId) {
        for file in PARQUET_FILES.into_iter().chain([META_FILE]) {
            self.store.delete(&object(block.number(), file)).await.unwrap();
        }
        let removed = CatalogCommand::RecordRemovedObjects { blocks: vec![block] };
        self.catalog.apply_command(removed).await.unwrap();
    }
}

/// INV-13: the ids of a flushed block outlive its merge, and those of merged blocks are not read.
#[test]
fn successor_of_lost_shard_knows_ids_of_merged_blocks() {
    simulate(async {
        let mut cluster = Cluster::start(6).await;
        let uploads = uploads(20);
        for (number, one) in (1..).zip(&uploads) {
            assert_eq!(cluster.push(one).await.0, 1);
            if number % 5 == 0 {
                cluster.cut().await;
            }
        }
        let flushed = cluster.catalog.blocks().await.unwrap();
        let ids: Vec<BlockId> = flushed.iter().map(|block| block.id).collect();
        assert_eq!(ids.len(), 4);
        for input in &flushed[..3] {
            cluster.merge_block(input).await;
        }
        assert_eq!(cluster.catalog.blocks().await.unwrap().len(), 4);
        assert_eq!(cluster.slot_blocks().await, ids);
        // The objects of the first one are past the id window.
        cluster.remove_objects(ids[0]).await;
        assert_eq!(cluster.slot_blocks().await, ids[1..]);
        for node in 1..=3 {
            cluster.kill(node).await;
        }
        let lost = CatalogCommand::MarkLost { shard: FIRST, placement: placement(4..=6) };
        cluster.catalog.apply_command(lost).await.unwrap();
        for one in &uploads[5..] {
            assert_eq!(cluster.push(one).await.0, 0, "a block has it");
        }
        assert_eq!(cluster.total().await, sum(20));
    });
}
