//! Repair of the catalog from the bucket, after damage lost registered blocks.
//!
//! A shard's log records up to which index its rows lie in blocks. If the catalog lists no block for a part
//! of that range, the range is a gap. The blocks of a gap name their log range in `meta.json`; the repair
//! registers them again. Queries report a gap that remains. The repair removes nothing and changes no known
//! block, so an unavailable or wrong bucket does no harm.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::{
    BlockEntry, BlockId, BucketBlock, Catalog, CatalogCommand, CatalogError, CommandResult, DataLoss,
    JobInventory, RetentionPolicy, ShardId, ShardLogRange,
};
use athanor_chassis::{Backoff, Clock, Random, Status, TenantId, Timestamp};
use athanor_storage::Store;
use futures::{StreamExt, TryStreamExt};
use tokio_util::sync::CancellationToken;

use crate::maintenance::block_lister::{BlockLister, ListedBlock};

/// Backoff while the bucket or the catalog is unavailable: 500 ms, 4 s, 32 s, then 120 s.
const REPAIR_RETRY_BACKOFF: Backoff =
    Backoff { min: Duration::from_millis(500), max: Duration::from_secs(120), factor: 8, jitter: 0.0 };
/// Interval between two checks for new gaps. A shard reports its gaps when it opens.
const REPAIR_INTERVAL: Duration = Duration::from_secs(10);
/// Concurrent reads of `meta.json` files.
const MAX_CONCURRENT_READS: usize = 16;

/// Task that registers lost blocks again.
pub struct CatalogRepair {
    /// Catalog that records the gaps.
    pub catalog: Arc<dyn Catalog>,
    /// Bucket that holds the blocks.
    pub store: Store,
    /// Clock of the waits.
    pub clock: Clock,
    /// Random source of the backoff.
    pub random: Random,
    /// Cluster id that a block must carry.
    pub cluster: u128,
    /// Retention period of blocks; zero keeps them for ever.
    pub retention: Duration,
}

/// Gap of a shard's log: no registered block holds its entries. `from` is exclusive, `to` inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LogGap {
    shard: ShardId,
    from: u64,
    to: u64,
}

/// Blocks in the bucket that the catalog does not know.
struct UnlistedBlocks {
    /// Blocks of this cluster that lie within gaps.
    in_gaps: Vec<BucketBlock>,
    /// Ids of all complete blocks in the bucket, known ones included.
    present: BTreeSet<BlockId>,
}

impl CatalogRepair {
    /// Runs until the process ends. Searches the bucket while this node leads the catalog and new gaps exist.
    pub async fn run(self, leads: impl Fn() -> bool + Send, ending: CancellationToken) {
        let mut failures = 0;
        let mut looked = Vec::new();
        loop {
            let mut wait = REPAIR_INTERVAL;
            if !leads() {
                looked.clear();
                wait = REPAIR_RETRY_BACKOFF.min;
            } else if let Err(status) = self.look(&mut looked).await {
                tracing::warn!(error = %status, "failed to search for blocks missing from the catalog, will retry");
                wait = REPAIR_RETRY_BACKOFF.delay(failures, &self.random);
                failures += 1;
            } else {
                failures = 0;
            }
            tokio::select! {
                biased;
                () = ending.cancelled() => return,
                () = self.clock.sleep(wait) => {}
            }
        }
    }

    /// Searches for the blocks of all gaps if one of them is new. Returns whether it searched.
    async fn look(&self, looked: &mut Vec<LogGap>) -> Result<bool, Status> {
        let gaps = self.gaps().await?;
        if gaps.iter().all(|gap| looked.contains(gap)) {
            return Ok(false);
        }
        self.round(&gaps).await?;
        *looked = self.gaps().await?;
        Ok(true)
    }

    async fn round(&self, gaps: &[LogGap]) -> Result<(), Status> {
        let unlisted = self.find_unlisted(gaps).await?;
        let listed = self.catalog.blocks().await.map_err(|error| Status::from_error(&error))?;
        let listed: BTreeMap<BlockId, &BlockEntry> = listed.iter().map(|block| (block.id, block)).collect();
        let inventory = JobInventory {
            found: &unlisted.in_gaps,
            listed: &listed,
            present: &unlisted.present,
            retained_since: Timestamp::UNIX_EPOCH,
        };
        // Merged blocks come first: they hold the rows of their inputs, and the inputs' objects are garbage
        // collected.
        for outputs in inventory.find_finished_jobs().remaining_outputs() {
            self.reinstate_job(outputs).await?;
        }
        let flushed = unlisted.in_gaps.into_iter().map(|found| found.block);
        let flushed: Vec<BlockEntry> = flushed.filter(|block| block.level == 0).collect();
        for gap in self.gaps().await? {
            for block in tiling(gap, &flushed) {
                self.reinstate(block).await?;
            }
        }
        self.excuse().await?;
        for LogGap { shard, from, to } in self.gaps().await? {
            tracing::error!(shard, from, to, "blocks of these log entries are lost, results are partial");
        }
        Ok(())
    }

    async fn gaps(&self) -> Result<Vec<LogGap>, Status> {
        let listing = self.catalog.list_blocks(&TenantId::anonymous(), 0, 0).await;
        let data_losses = listing.map_err(|error| Status::from_error(&error))?.data_losses.into_iter();
        let gap = |loss| match loss {
            DataLoss::MissingBlocks { shard, from, to } => Some(LogGap { shard, from, to }),
            DataLoss::ForgottenIds { .. }
            | DataLoss::UnknownLogRange { .. }
            | DataLoss::AbandonedShard { .. } => None,
        };
        Ok(data_losses.filter_map(|record| gap(record.loss)).collect())
    }

    async fn propose(&self, command: CatalogCommand) -> Result<CommandResult, Status> {
        self.catalog.propose(command).await.map_err(|error| Status::from_error(&error))
    }

    async fn known(&self) -> Result<BTreeSet<BlockId>, CatalogError> {
        let blocks = self.catalog.blocks().await?.into_iter().map(|block| block.id);
        let tombstoned = self.catalog.tombstones().await?.into_iter().map(|(block, _)| block);
        Ok(blocks.chain(tombstoned).collect())
    }

    /// Returns the unregistered blocks of this cluster that lie within gaps. A job of which one input is
    /// tombstoned did not finish.
    async fn find_unlisted(&self, gaps: &[LogGap]) -> Result<UnlistedBlocks, Status> {
        let known = self.known().await.map_err(|error| Status::from_error(&error))?;
        let mut lister = BlockLister::new(&self.store);
        let mut present = BTreeSet::new();
        let mut unknown = Vec::new();
        while let Some(found) = lister.next().await? {
            if !found.has_meta() {
                continue;
            }
            present.insert(found.block);
            if !known.contains(&found.block) {
                unknown.push(found);
            }
        }
        let read = futures::stream::iter(unknown)
            .map(|found| self.entry(found))
            .buffer_unordered(MAX_CONCURRENT_READS);
        let entries: Vec<Option<BucketBlock>> = read.try_collect().await?;
        let is_in_gaps =
            |found: &BucketBlock| found.block.log_ranges().all(|rows| gaps.iter().any(|gap| gap.has(&rows)));
        let is_open = |found: &BucketBlock| {
            let mut blocks = found.job.iter().flat_map(|job| job.inputs.blocks.iter().chain(&job.outputs));
            !blocks.any(|block| known.contains(block))
        };
        let in_gaps = entries.into_iter().flatten().filter(|found| is_in_gaps(found) && is_open(found));
        Ok(UnlistedBlocks { in_gaps: in_gaps.collect(), present })
    }

    async fn entry(&self, found: ListedBlock) -> Result<Option<BucketBlock>, Status> {
        let Some((meta, origin)) = found.meta(&self.store).await? else { return Ok(None) };
        if origin.cluster != format!("{:032x}", self.cluster) {
            return Ok(None);
        }
        match athanor_metastore::bucket_block_from_meta(found.block, &meta, &origin) {
            Ok(lying) if athanor_metastore::block_owner(&lying.block) == found.owner => Ok(Some(lying)),
            Ok(_) => {
                tracing::warn!(block = %found.block, folder = %found.owner, "skipped a block in a folder that is not its own");
                Ok(None)
            }
            Err(error) => {
                tracing::warn!(error, "skipped an invalid block in the bucket");
                Ok(None)
            }
        }
    }

    /// Registers the outputs of one job in all tiers, or none of them.
    async fn reinstate_job(&self, outputs: Vec<BlockEntry>) -> Result<(), Status> {
        let blocks: Vec<BlockId> = outputs.iter().map(|output| output.id).collect();
        match self.catalog.reinstate_job(outputs).await {
            Ok(()) => {
                tracing::info!(?blocks, "reinstated the blocks of a job missing from the catalog");
                Ok(())
            }
            Err(CatalogError::Refused(refused)) => {
                tracing::warn!(?blocks, %refused, "failed to reinstate the blocks of a job");
                Ok(())
            }
            Err(error) => Err(Status::from_error(&error)),
        }
    }

    async fn reinstate(&self, block: BlockEntry) -> Result<(), Status> {
        let BlockEntry { id, shard, from, to, .. } = block;
        match self.catalog.reinstate_block(block).await {
            Ok(_) => {
                tracing::info!(shard, block = %id, from, to, "reinstated a block missing from the catalog");
                Ok(())
            }
            Err(CatalogError::Refused(refused)) => {
                tracing::warn!(block = %id, %refused, "failed to reinstate block");
                Ok(())
            }
            Err(error) => Err(Status::from_error(&error)),
        }
    }

    /// Closes gaps that retention explains. Such a gap begins the log and ends at the oldest block of its
    /// shard. That block must have reached nine tenths of the retention period.
    async fn excuse(&self) -> Result<(), Status> {
        if self.retention.is_zero() {
            return Ok(());
        }
        let blocks = self.catalog.blocks().await.map_err(|error| Status::from_error(&error))?;
        let ages = self
            .catalog
            .block_ages(&RetentionPolicy::uniform(self.retention))
            .await
            .map_err(|error| Status::from_error(&error))?;
        for LogGap { shard, from, to } in self.gaps().await?.into_iter().filter(|gap| gap.from == 0) {
            let oldest = blocks.iter().flat_map(|block| {
                block.log_ranges().filter(|rows| rows.shard == shard).map(|rows| (rows.from, block.id))
            });
            let age = |block: BlockId| ages.time.since(block.named_at());
            let is_before = |(from, block)| from == to && age(block) >= self.retention / 10 * 9;
            if oldest.min().is_some_and(is_before) {
                self.propose(CatalogCommand::CloseGap { shard, from, to }).await?;
            }
        }
        Ok(())
    }
}

impl LogGap {
    fn has(&self, rows: &ShardLogRange) -> bool {
        rows.shard == self.shard && self.from <= rows.from && rows.from < rows.to && rows.to <= self.to
    }
}

/// Returns blocks without overlap that fill the most of a gap. Blocks may overlap because some were written
/// and never registered. Two blocks hold equal rows for one log entry.
fn tiling(gap: LogGap, found: &[BlockEntry]) -> Vec<BlockEntry> {
    let mut blocks: Vec<&BlockEntry> =
        found.iter().filter(|block| block.log_ranges().all(|rows| gap.has(&rows))).collect();
    blocks.sort_unstable_by_key(|block| (block.to, block.from, block.id));
    // Per prefix of the blocks: entries filled by the best choice, and whether it includes the last block.
    let mut best: Vec<(u64, bool)> = vec![(0, false)];
    let before = |place: usize| blocks.partition_point(|other| other.to <= blocks[place].from);
    for (place, block) in blocks.iter().enumerate() {
        let with = best[before(place)].0 + (block.to - block.from);
        let without = best[place].0;
        best.push(if with > without { (with, true) } else { (without, false) });
    }
    let mut taken = Vec::new();
    let mut count = blocks.len();
    while count > 0 {
        count = match best[count].1 {
            true => {
                taken.push(blocks[count - 1].clone());
                before(count - 1)
            }
            false => count - 1,
        };
    }
    taken.reverse();
    taken
}

#[cfg(test)]
mod tests {
    use athanor_catalog::InMemoryCatalog;
    use athanor_chassis::Tier;
    use athanor_storage::{StorageConfig as Bucket, StoreDeps};

    use super::*;

    fn block(number: u128, from: u64, to: u64) -> BlockEntry {
        let (id, tenants) = (BlockId::from_number(number), Vec::new());
        let additional_ranges = Vec::new();
        BlockEntry {
            id,
            shard: 1,
            epoch: 1,
            from,
            to,
            bytes: 1,
            samples: 1,
            lost: 0,
            level: 0,
            additional_ranges,
            tier: Tier::Raw,
            is_covered: false,
            job: None,
            tenants,
        }
    }

    #[tokio::test]
    async fn a_gap_that_is_told_later_is_looked_for_once() {
        let (clock, _hand) = Clock::manual(Timestamp::from_seconds(1_700_000_000));
        let deps = StoreDeps { clock: clock.clone(), random: Random::from_seed(2) };
        let store = Store::open(&Bucket { memory: true, ..Bucket::default() }, deps).unwrap();
        let catalog = Arc::new(InMemoryCatalog::new(clock.clone()));
        let shard = catalog.open_shard(0, 1).await.unwrap();
        let known = Arc::clone(&catalog) as Arc<dyn Catalog>;
        let random = Random::from_seed(3);
        let retention = Duration::ZERO;
        let repair = CatalogRepair { catalog: known, store, clock, random, cluster: 1, retention };
        let (mut looked, gap) = (Vec::new(), LogGap { shard: shard.id, from: 0, to: 9 });
        assert!(!repair.look(&mut looked).await.unwrap());
        catalog.advance_watermark(shard.id, 9).await.unwrap();
        assert!(repair.look(&mut looked).await.unwrap());
        assert_eq!(looked, [gap]);
        assert!(!repair.look(&mut looked).await.unwrap(), "what is lost is not looked for again");
    }

    #[test]
    fn the_blocks_that_fill_the_most_are_taken() {
        let chosen = |gap: (u64, u64), blocks: &[(u64, u64)]| -> Vec<(u64, u64)> {
            let found: Vec<BlockEntry> =
                (0..).zip(blocks).map(|(number, &(from, to))| block(number, from, to)).collect();
            let gap = LogGap { shard: 1, from: gap.0, to: gap.1 };
            tiling(gap, &found).iter().map(|block| (block.from, block.to)).collect()
        };
        // One that was written before a crash, and the one that was written after it.
        assert_eq!(chosen((10, 40), &[(10, 20), (10, 25), (25, 40)]), [(10, 25), (25, 40)]);
        assert_eq!(chosen((10, 40), &[(10, 20), (30, 40)]), [(10, 20), (30, 40)], "one is gone");
        assert_eq!(chosen((10, 40), &[(0, 20), (35, 50)]), [], "no entry is in two blocks");
        assert_eq!(chosen((10, 40), &[(10, 10), (20, 10)]), []);
    }
}
