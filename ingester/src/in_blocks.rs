//! The ids in a slot's blocks: what is known of a shard that is lost.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use athanor_block::{Block, Folder, META, Meta, PROFILES};
use athanor_catalog::{BlockEntry, ShardId};
use athanor_chassis::{Code, Coded, Status, Timestamp};
use athanor_profile::hash::Hash;
use athanor_storage::path::{FileName, Key, Owner};
use bytes::Bytes;

use crate::ingester::Deps;

/// The two files of a block that say which profiles it has. Of the others, only how long they are is known.
struct Ids {
    meta: Bytes,
    profiles: Bytes,
    lengths: Meta,
}

impl Folder for Ids {
    fn create(&self, name: &str) -> io::Result<Box<dyn io::Write + Send>> {
        Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, name.to_owned()))
    }
    fn read(&self, name: &str, offset: u64, length: usize) -> io::Result<Bytes> {
        let file = match name {
            META => &self.meta,
            PROFILES => &self.profiles,
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
            META => Ok(self.meta.len() as u64),
            PROFILES => Ok(self.profiles.len() as u64),
            other => self.lengths.file(other).map(|file| file.bytes).map_err(io::Error::other),
        }
    }
}

/// The registered blocks of a slot that were named since a time, but those of one shard.
pub(crate) async fn blocks(
    deps: &Deps,
    slot: u32,
    since: Timestamp,
    but: Option<ShardId>,
) -> Result<Vec<BlockEntry>, Status> {
    let blocks = deps.catalog.blocks_of_slot(slot, since).await;
    let mut blocks = blocks.map_err(|error| Status::of(&error))?;
    // Of those that were made of several, all that are not that shard's alone.
    blocks.retain(|block| block.rows().any(|rows| Some(rows.shard) != but));
    Ok(blocks)
}

/// The ids of a block's profiles.
pub(crate) async fn ids(deps: &Deps, block: &BlockEntry) -> Result<HashSet<Hash>, Status> {
    let get = |name: &'static str| async move {
        let file = FileName::new(name).map_err(|error| Status::of(&error))?;
        let key = Key::Block { owner: Owner::Shared, block: block.id.number(), file };
        deps.store.get(&key).await.map_err(|error| Status::of(&error))
    };
    let (meta, profiles) = (get(META).await?, get(PROFILES).await?);
    let id = block.id;
    let damaged = move |why: String| Status::new(Code::DataLoss, format!("block {id}: {why}"));
    let read = move || {
        let lengths = Meta::decode(&meta).map_err(|error| damaged(error.to_string()))?;
        let block = Block::open(Arc::new(Ids { meta, profiles, lengths }));
        let block = block.map_err(|error| Status::new(error.code(), format!("block {id}: {error}")))?;
        let mut ids = HashSet::new();
        for part in block.parts() {
            let profiles = part.profiles().map_err(|error| damaged(error.to_string()))?;
            ids.extend(profiles.into_iter().map(|profile| profile.id));
        }
        Ok(ids)
    };
    deps.compute.run(read).await.map_err(|error| Status::of(&error))?
}
