//! IDs in a slot's flushed blocks: all that is known of a lost shard.
//!
//! Merged blocks are not read, because they hold IDs of other slots as well. The objects of a flushed block
//! stay in the bucket for the ID window, although its rows were merged [INV-13].

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use athanor_block::{Block, BlockFolder, BlockMeta, META_FILE, PROFILES_FILE};
use athanor_catalog::{BlockEntry, ShardId};
use athanor_chassis::{ErrorCode, ErrorCodeExt, Status, Timestamp};
use athanor_profile::encoding::hash::ContentHash;
use athanor_storage::path::{BlockOwner, FileName, ObjectKey};
use bytes::Bytes;

use crate::ingester::deps::IngesterDeps;

/// The two files of a block that list its profiles. Of the others, only the lengths are known.
struct BlockIdFiles {
    meta: Bytes,
    profiles: Bytes,
    lengths: BlockMeta,
}

impl BlockFolder for BlockIdFiles {
    fn create(&self, name: &str) -> io::Result<Box<dyn io::Write + Send>> {
        Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, name.to_owned()))
    }
    fn read(&self, name: &str, offset: u64, length: usize) -> io::Result<Bytes> {
        let file = match name {
            META_FILE => &self.meta,
            PROFILES_FILE => &self.profiles,
            _ => return Err(io::Error::new(io::ErrorKind::NotFound, name.to_owned())),
        };
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = begin.saturating_add(length);
        if end > file.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(file.slice(begin..end))
    }
    fn length(&self, name: &str) -> io::Result<u64> {
        match name {
            META_FILE => Ok(self.meta.len() as u64),
            PROFILES_FILE => Ok(self.profiles.len() as u64),
            other => self.lengths.file(other).map(|file| file.bytes).map_err(io::Error::other),
        }
    }
}

/// Returns the flushed blocks of a slot that were named since a time, except those of one shard. Includes
/// blocks that were merged and still have their objects.
pub(crate) async fn list_slot_blocks(
    deps: &IngesterDeps,
    slot: u32,
    since: Timestamp,
    excluded: Option<ShardId>,
) -> Result<Vec<BlockEntry>, Status> {
    let blocks = deps.catalog.blocks_of_slot(slot, since).await;
    let mut blocks = blocks.map_err(|error| Status::from_error(&error))?;
    blocks.retain(|block| Some(block.shard) != excluded);
    Ok(blocks)
}

/// Reads the ids of a flushed block's profiles, those of merged parts included.
pub(crate) async fn read_block_ids(
    deps: &IngesterDeps,
    block: &BlockEntry,
) -> Result<HashSet<ContentHash>, Status> {
    let get = |name: &'static str| async move {
        let file = FileName::new(name).map_err(|error| Status::from_error(&error))?;
        let key = ObjectKey::Block { owner: BlockOwner::Shared, block: block.id.number(), file };
        deps.store.get(&key).await.map_err(|error| Status::from_error(&error))
    };
    let meta = get(META_FILE).await?;
    let profiles = get(PROFILES_FILE).await?;
    let id = block.id;
    let damaged = move |why: String| Status::new(ErrorCode::DataLoss, format!("block {id}: {why}"));
    let read = move || {
        let lengths = BlockMeta::decode(&meta).map_err(|error| damaged(error.to_string()))?;
        let block = Block::open(Arc::new(BlockIdFiles { meta, profiles, lengths }));
        let block = block.map_err(|error| Status::new(error.code(), format!("block {id}: {error}")))?;
        let mut ids = HashSet::new();
        for part in block.tenant_blocks() {
            let profiles = part.read_all_profiles().map_err(|error| damaged(error.to_string()))?;
            ids.extend(profiles.into_iter().map(|profile| profile.id));
        }
        Ok(ids)
    };
    deps.compute.run(read).await.map_err(|error| Status::from_error(&error))?
}
