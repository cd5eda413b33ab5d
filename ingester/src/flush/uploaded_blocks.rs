//! Search for a block that an earlier leader uploaded and did not register, so that it is not uploaded a
//! second time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use athanor_block::{BlockMeta, BlockOrigin, MAX_META_BYTES, META_FILE, PARQUET_FILES};
use athanor_catalog::{BlockEntry, BlockId, Catalog, MAX_BLOCK_NAME_SKEW, TenantSpan};
use athanor_chassis::{ErrorCode, ErrorCodeExt, Status, TenantId, Tier, Timestamp};
use athanor_storage::Store;
use athanor_storage::path::{BlockOwner, FileName, KeyPrefix, ObjectKey};

/// Keys of one page of a listing.
const KEYS_PER_PAGE: usize = 1000;
/// Pages that one search reads: the blocks of a day of a large cluster are many.
const MAX_PAGES: usize = 64;
/// Maximum unregistered blocks of which one search reads `meta.json`.
const MAX_CANDIDATES: usize = 512;
/// Maximum time by which the block's name may precede that of the shard's previous block: leaders have clocks
/// of their own.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(600);

/// Bucket, and the catalog that names the registered blocks in it.
pub(crate) struct UploadedBlocks<'a> {
    pub(crate) catalog: &'a dyn Catalog,
    pub(crate) store: &'a Store,
    /// The catalog's time.
    pub(crate) now: Timestamp,
}

/// The lengths of a block's objects, by file.
type FileLengths = BTreeMap<&'static str, u64>;

impl UploadedBlocks<'_> {
    /// Returns the complete, unregistered block of exactly this range of a log.
    pub(crate) async fn find(&self, wanted: &BlockOrigin, slot: u32) -> Result<Option<BlockEntry>, Status> {
        let oldest = self.now.minus(MAX_BLOCK_NAME_SKEW);
        let listed = self.catalog.blocks_of_slot(slot, oldest).await;
        let listed = listed.map_err(|error| Status::from_error(&error))?;
        let of_shard =
            listed.iter().filter(|block| block.log_ranges().any(|rows| rows.shard == wanted.shard));
        let previous = of_shard.map(|block| block.id.named_at()).max();
        let since = previous.map_or(oldest, |named| named.minus(MAX_CLOCK_SKEW).max(oldest));
        let registered: BTreeSet<BlockId> = listed.iter().map(|block| block.id).collect();
        // Newest first: the wanted block was uploaded lately.
        let candidates = self.list_complete(since).await?.into_iter().rev();
        let unregistered = candidates.filter(|(id, _)| !registered.contains(id)).take(MAX_CANDIDATES);
        for (id, lengths) in unregistered {
            let Some(meta) = self.read_meta(id, &lengths).await? else { continue };
            if meta.origin.as_ref() == Some(wanted) {
                return block_entry(id, &meta, wanted).map(Some);
            }
        }
        Ok(None)
    }

    /// Returns the blocks named since a time that have all of their objects.
    async fn list_complete(&self, since: Timestamp) -> Result<BTreeMap<BlockId, FileLengths>, Status> {
        let mut blocks: BTreeMap<BlockId, FileLengths> = BTreeMap::new();
        let below = KeyPrefix::BlocksOf(BlockOwner::Shared);
        let mut after =
            Some(KeyPrefix::Block(BlockOwner::Shared, BlockId::earliest_at(since).number()).to_string());
        for _ in 0..MAX_PAGES {
            let page = self.store.list(&below, after.as_deref(), KEYS_PER_PAGE).await;
            let page = page.map_err(|error| Status::from_error(&error))?;
            for entry in &page {
                let Ok(ObjectKey::Block { owner: BlockOwner::Shared, block, .. }) =
                    ObjectKey::parse(&entry.key)
                else {
                    continue;
                };
                let name = entry.key.rsplit('/').next().unwrap_or_default();
                if let Some(file) = PARQUET_FILES.into_iter().chain([META_FILE]).find(|file| *file == name) {
                    blocks.entry(BlockId::from_number(block)).or_default().insert(file, entry.size);
                }
            }
            after = page.last().map(|entry| entry.key.clone());
            if page.len() < KEYS_PER_PAGE {
                break;
            }
        }
        blocks.retain(|_, lengths| lengths.len() == PARQUET_FILES.len() + 1);
        Ok(blocks)
    }

    /// Returns the metadata of a block, unless it disagrees with the block's objects.
    async fn read_meta(&self, id: BlockId, lengths: &FileLengths) -> Result<Option<BlockMeta>, Status> {
        if lengths.get(META_FILE).is_none_or(|length| *length > MAX_META_BYTES) {
            return Ok(None);
        }
        let file = FileName::new(META_FILE).map_err(|error| Status::from_error(&error))?;
        let key = ObjectKey::Block { owner: BlockOwner::Shared, block: id.number(), file };
        let bytes = match self.store.get(&key).await {
            Ok(bytes) => bytes,
            // The block was removed meanwhile.
            Err(error) if error.code() == ErrorCode::NotFound => return Ok(None),
            Err(error) => return Err(Status::from_error(&error)),
        };
        let is_complete = |meta: &BlockMeta| {
            let has_length =
                |file: &str| meta.files.get(file).map(|file| file.bytes) == lengths.get(file).copied();
            meta.id == id.to_string() && PARQUET_FILES.into_iter().all(has_length)
        };
        Ok(BlockMeta::decode(&bytes).ok().filter(is_complete))
    }
}

/// Returns the catalog entry of a block that was built from a head.
pub(crate) fn block_entry(id: BlockId, meta: &BlockMeta, origin: &BlockOrigin) -> Result<BlockEntry, Status> {
    let BlockOrigin { shard, epoch, from, to, lost, .. } = *origin;
    Ok(BlockEntry {
        id,
        shard,
        epoch,
        from,
        to,
        bytes: meta.bytes(),
        samples: meta.samples(),
        lost,
        level: 0,
        additional_ranges: Vec::new(),
        tier: Tier::Raw,
        is_covered: false,
        job: None,
        tenants: tenant_spans(meta)?,
    })
}

/// Returns the catalog's spans of a block's tenants.
pub fn tenant_spans(meta: &BlockMeta) -> Result<Vec<TenantSpan>, Status> {
    let span = |part: &athanor_block::TenantMeta| {
        let tenant: TenantId = part
            .tenant
            .parse()
            .map_err(|error: athanor_chassis::tenant::TenantError| Status::from_error(&error))?;
        Ok(TenantSpan {
            tenant,
            min_time: part.min_time,
            max_time: part.max_time,
            profiles: part.profile_count(),
            samples: part.samples,
            sum: part.sum,
            newest_arrival: Timestamp::from_nanos(i64::try_from(part.newest_arrival).unwrap_or(i64::MAX)),
        })
    };
    meta.tenants.iter().map(span).collect()
}
