//! Search for a block that an earlier leader of a shard uploaded and did not register, so that it is not uploaded again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use athanor_block::{FILES, MAX_META, META, Meta, Origin};
use athanor_catalog::{BlockEntry, BlockId, Catalog, REGISTER_WITHIN};
use athanor_chassis::{Code, Coded, Status, Timestamp};
use athanor_storage::Store;
use athanor_storage::path::{FileName, Key, Owner, Prefix};

use crate::cut::spans;

/// Keys of one page of a listing.
const KEYS_PER_PAGE: usize = 1000;
/// Pages that one search reads: the blocks of a day of a large cluster are many.
const MAX_PAGES: usize = 64;
/// Unregistered blocks whose `meta.json` one search reads.
const MAX_CANDIDATES: usize = 512;
/// How much earlier than the shard's previous block the block may be named: leaders have clocks of their own.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(600);

/// The bucket, and the catalog that says which of its blocks are registered.
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
    pub(crate) async fn find(&self, wanted: &Origin, slot: u32) -> Result<Option<BlockEntry>, Status> {
        let oldest = self.now.minus(REGISTER_WITHIN);
        let listed = self.catalog.blocks_of_slot(slot, oldest).await;
        let listed = listed.map_err(|error| Status::of(&error))?;
        let of_shard = listed.iter().filter(|block| block.rows().any(|rows| rows.shard == wanted.shard));
        let previous = of_shard.map(|block| block.id.named_at()).max();
        let since = previous.map_or(oldest, |named| named.minus(MAX_CLOCK_SKEW).max(oldest));
        let registered: BTreeSet<BlockId> = listed.iter().map(|block| block.id).collect();
        // The newest first: what is searched for was uploaded lately.
        let candidates = self.list_complete(since).await?.into_iter().rev();
        let unregistered = candidates.filter(|(id, _)| !registered.contains(id)).take(MAX_CANDIDATES);
        for (id, lengths) in unregistered {
            let Some(meta) = self.read_meta(id, &lengths).await? else { continue };
            if meta.origin.as_ref() == Some(wanted) {
                return entry_of(id, &meta, wanted).map(Some);
            }
        }
        Ok(None)
    }

    /// Returns the blocks named since a time that have all of their objects.
    async fn list_complete(&self, since: Timestamp) -> Result<BTreeMap<BlockId, FileLengths>, Status> {
        let mut blocks: BTreeMap<BlockId, FileLengths> = BTreeMap::new();
        let below = Prefix::BlocksOf(Owner::Shared);
        let mut after = Some(Prefix::Block(Owner::Shared, BlockId::earliest(since).number()).to_string());
        for _ in 0..MAX_PAGES {
            let page = self.store.list(&below, after.as_deref(), KEYS_PER_PAGE).await;
            let page = page.map_err(|error| Status::of(&error))?;
            for entry in &page {
                let Ok(Key::Block { owner: Owner::Shared, block, .. }) = Key::parse(&entry.key) else {
                    continue;
                };
                let name = entry.key.rsplit('/').next().unwrap_or_default();
                if let Some(file) = FILES.into_iter().chain([META]).find(|file| *file == name) {
                    blocks.entry(BlockId::from_number(block)).or_default().insert(file, entry.size);
                }
            }
            after = page.last().map(|entry| entry.key.clone());
            if page.len() < KEYS_PER_PAGE {
                break;
            }
        }
        blocks.retain(|_, lengths| lengths.len() == FILES.len() + 1);
        Ok(blocks)
    }

    /// Returns what a block says of itself, unless that disagrees with its objects.
    async fn read_meta(&self, id: BlockId, lengths: &FileLengths) -> Result<Option<Meta>, Status> {
        if lengths.get(META).is_none_or(|length| *length > MAX_META) {
            return Ok(None);
        }
        let file = FileName::new(META).map_err(|error| Status::of(&error))?;
        let key = Key::Block { owner: Owner::Shared, block: id.number(), file };
        let bytes = match self.store.get(&key).await {
            Ok(bytes) => bytes,
            // It was removed meanwhile.
            Err(error) if error.code() == Code::NotFound => return Ok(None),
            Err(error) => return Err(Status::of(&error)),
        };
        let is_complete = |meta: &Meta| {
            let has_length =
                |file: &str| meta.files.get(file).map(|file| file.bytes) == lengths.get(file).copied();
            meta.id == id.to_string() && FILES.into_iter().all(has_length)
        };
        Ok(Meta::decode(&bytes).ok().filter(is_complete))
    }
}

/// Returns what the catalog knows of a block that was built from a head.
pub(crate) fn entry_of(id: BlockId, meta: &Meta, origin: &Origin) -> Result<BlockEntry, Status> {
    let Origin { shard, epoch, from, to, lost, .. } = *origin;
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
        further: Vec::new(),
        tenants: spans(meta)?,
    })
}
