//! Compactor for tests: merges random blocks and replaces them in the catalog.
//!
//! ```text
//!  blocks ─► random inputs ─► one merged block, or one per tenant ─► bucket ─► Command::Replace
//! ```
//! Its choices are random and several compactors run concurrently. Some write blocks and do not replace the
//! inputs, like a compactor whose process crashes in between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_block::{
    Block, BlockFolder, BlockOrigin, LogRange, META_FILE, MemoryFolder, MergeOutput, PARQUET_FILES,
};
use athanor_catalog::{BlockEntry, BlockId, Catalog, CatalogError, CommandError, ShardLogRange};
use athanor_chassis::{Clock, ErrorCode, Random, Status, TenantId, Timestamp};
use athanor_metastore::bucket_block_from_meta;
use athanor_storage::Store;
use athanor_storage::path::{BlockOwner, FileName, ObjectKey};

/// Number of merges after which one leaves its inputs in place, like a crash before the replacement.
const UNREPLACED_INTERVAL: u64 = 8;
/// Maximum number of blocks that one merge reads.
const MAX_MERGE_INPUTS: u64 = 5;

/// Compactor that merges random blocks of a cluster.
#[derive(Clone)]
pub struct TestCompactor {
    /// Catalog that lists and replaces the blocks.
    pub catalog: Arc<dyn Catalog>,
    /// Bucket that holds the blocks.
    pub store: Store,
    /// Clock that names new blocks.
    pub clock: Clock,
    /// Source of the random choices and of block ids.
    pub random: Random,
    /// Cluster id that new blocks carry.
    pub cluster: String,
    /// Number of merges that wrote their blocks.
    pub written: Arc<AtomicU64>,
}

/// Outcome of one compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CompactionOutcome {
    /// No block was listed, or the chosen blocks must not be merged.
    Idle,
    /// The new blocks replaced their inputs.
    Replaced,
    /// The new blocks were written, and the inputs stay registered.
    Left,
    /// Another compactor or retention had replaced or removed an input.
    Late,
}

/// Inputs of one merge, and the split of their rows into new blocks.
struct CompactionPlan {
    inputs: Vec<BlockEntry>,
    /// Tenants of each new block.
    parts: Vec<BTreeSet<String>>,
}

impl TestCompactor {
    /// Merges one random set of blocks.
    pub async fn compact_once(&self) -> Result<CompactionOutcome, Status> {
        let listed = self.catalog.blocks().await.map_err(|error| Status::from_error(&error))?;
        let Some(made) = self.plan_compaction(&listed) else { return Ok(CompactionOutcome::Idle) };
        let mut blocks = Vec::new();
        for input in &made.inputs {
            match self.fetch(input.id).await {
                // Another compactor replaced this input, and its objects are deleted.
                Err(status) if status.code == ErrorCode::NotFound => return Ok(CompactionOutcome::Late),
                fetched => blocks.push(fetched?),
            }
        }
        let mut outputs = Vec::new();
        for (place, tenants) in made.parts.iter().enumerate() {
            outputs.push(self.write(&made.inputs, tenants, place == 0, blocks.clone()).await?);
        }
        if self.written.fetch_add(1, Ordering::Relaxed) % UNREPLACED_INTERVAL == UNREPLACED_INTERVAL - 1 {
            return Ok(CompactionOutcome::Left);
        }
        let inputs: Vec<BlockId> = made.inputs.iter().map(|input| input.id).collect();
        let repeats = self.random.next_below(2);
        for _ in 0..=repeats {
            match self.catalog.replace_blocks(inputs.clone(), outputs.clone()).await {
                Ok(()) => {}
                Err(CatalogError::Refused(CommandError::NotListed(_) | CommandError::Tombstoned(_))) => {
                    return Ok(CompactionOutcome::Late);
                }
                Err(error) => return Err(Status::from_error(&error)),
            }
        }
        Ok(CompactionOutcome::Replaced)
    }

    fn plan_compaction(&self, listed: &[BlockEntry]) -> Option<CompactionPlan> {
        let count = 1 + self.random.next_below(MAX_MERGE_INPUTS);
        let mut chosen = BTreeMap::new();
        for _ in 0..count {
            let input = listed.get(self.random.next_below(listed.len().max(1) as u64) as usize)?;
            chosen.insert(input.id, input);
        }
        let rows = ShardLogRange::join_adjacent(chosen.values().flat_map(|input| input.log_ranges()));
        let spans = chosen.values().flat_map(|input| &input.tenants);
        let tenants: BTreeSet<&TenantId> = spans.map(|span| &span.tenant).collect();
        // Other blocks may hold rows of the same ranges for the same tenants. A valid merge must include
        // those blocks.
        let meets = |other: &BlockEntry| {
            other.log_ranges().any(|others| rows.iter().any(|rows| rows.overlaps(&others)))
                && tenants.iter().any(|tenant| other.tenant_span(tenant).is_some())
        };
        if listed.iter().any(|other| !chosen.contains_key(&other.id) && meets(other)) {
            return None;
        }
        let tenants: BTreeSet<String> = tenants.into_iter().map(ToString::to_string).collect();
        let parts = match self.random.next_below(2) {
            0 => vec![tenants],
            _ => tenants.into_iter().map(|tenant| [tenant].into()).collect(),
        };
        Some(CompactionPlan { inputs: chosen.into_values().cloned().collect(), parts })
    }

    async fn fetch(&self, id: BlockId) -> Result<Block, Status> {
        let folder = MemoryFolder::default();
        for file in PARQUET_FILES.into_iter().chain([META_FILE]) {
            let bytes = self.store.get(&key(id, file)?).await.map_err(|error| Status::from_error(&error))?;
            let written = folder.create(file).and_then(|mut out| std::io::Write::write_all(&mut out, &bytes));
            written.map_err(|error| Status::new(ErrorCode::Internal, error.to_string()))?;
        }
        Block::open(Arc::new(folder)).map_err(|error| Status::from_error(&error))
    }

    /// Writes the block that holds the rows of these tenants.
    async fn write(
        &self,
        inputs: &[BlockEntry],
        tenants: &BTreeSet<String>,
        is_first: bool,
        blocks: Vec<Block>,
    ) -> Result<BlockEntry, Status> {
        // The id must be later than all inputs, even if another clock named them.
        let newest = inputs.iter().map(|input| input.id.named_at()).max().unwrap_or(Timestamp::UNIX_EPOCH);
        let named = self.clock.wall().max(newest.plus(Duration::from_millis(1)));
        let id = BlockId::new(named, &self.random);
        let lost = if is_first { inputs.iter().map(|input| input.lost).sum() } else { 0 };
        let rows = ShardLogRange::join_adjacent(inputs.iter().flat_map(BlockEntry::log_ranges));
        let range =
            |&ShardLogRange { shard, epoch, from, to }: &ShardLogRange| LogRange { shard, epoch, from, to };
        let highest = inputs.iter().map(|input| input.level).max().unwrap_or_default();
        let origin = BlockOrigin {
            lost,
            level: highest.saturating_add(1),
            additional_ranges: rows[1..].iter().map(range).collect(),
            inputs: inputs.iter().map(|input| input.id.to_string()).collect(),
            ..self.origin_of(rows[0])
        };
        self.put(id, origin, Some(tenants.clone()), blocks).await
    }

    /// Returns the block origin of a log range, as a flush writes it.
    fn origin_of(&self, ShardLogRange { shard, epoch, from, to }: ShardLogRange) -> BlockOrigin {
        let cluster = self.cluster.clone();
        let additional_ranges = Vec::new();
        let inputs = Vec::new();
        BlockOrigin { cluster, shard, epoch, from, to, lost: 0, level: 0, additional_ranges, inputs }
    }

    /// Merges blocks into one and writes it to the bucket.
    async fn put(
        &self,
        id: BlockId,
        origin: BlockOrigin,
        tenants: Option<BTreeSet<String>>,
        blocks: Vec<Block>,
    ) -> Result<BlockEntry, Status> {
        let folder = MemoryFolder::default();
        let wrong = |why: String| Status::new(ErrorCode::Internal, why);
        let making = MergeOutput { id: id.to_string(), origin: Some(origin.clone()), tenants };
        let mut scratch = || Ok(Arc::new(MemoryFolder::default()) as Arc<dyn BlockFolder>);
        let meta = athanor_block::merge_into(&folder, &making, blocks, &mut scratch, &mut |_| ());
        let meta = meta.map_err(|error| Status::from_error(&error))?;
        for file in PARQUET_FILES.into_iter().chain([META_FILE]) {
            let read = folder.length(file).and_then(|length| folder.read(file, 0, length as usize));
            let bytes = read.map_err(|error| wrong(error.to_string()))?;
            self.store.create(&key(id, file)?, bytes).await.map_err(|error| Status::from_error(&error))?;
        }
        Ok(bucket_block_from_meta(id, &meta, &origin).map_err(wrong)?.block)
    }
}

fn key(block: BlockId, file: &str) -> Result<ObjectKey, Status> {
    let file = FileName::new(file).map_err(|error| Status::from_error(&error))?;
    Ok(ObjectKey::Block { owner: BlockOwner::Shared, block: block.number(), file })
}
