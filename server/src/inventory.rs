//! What lies in the bucket, block by block.

use std::collections::{BTreeMap, VecDeque};

use athanor_block::{FILES, MAX_META, META, Meta, Origin};
use athanor_catalog::BlockId;
use athanor_chassis::{Code, Coded, Status};
use athanor_storage::path::{FileName, Key, Owner, Prefix};
use athanor_storage::{Entry, Store};

/// Keys that are listed at once.
const PAGE: usize = 1000;

/// The blocks of a bucket, oldest first.
pub struct Inventory<'s> {
    store: &'s Store,
    page: VecDeque<Entry>,
    last: Option<String>,
    ended: bool,
}

/// The objects of one block.
pub struct Found {
    /// Its name.
    pub block: BlockId,
    files: BTreeMap<&'static str, u64>,
}

impl<'s> Inventory<'s> {
    /// From the oldest block on.
    pub fn new(store: &'s Store) -> Self {
        Self { store, page: VecDeque::new(), last: None, ended: false }
    }

    /// The next block.
    pub async fn next(&mut self) -> Result<Option<Found>, Status> {
        let mut found: Option<Found> = None;
        loop {
            if self.page.is_empty() && !self.ended {
                self.turn().await?;
            }
            let Some(entry) = self.page.front() else { return Ok(found) };
            if let Ok(Key::Block { owner: Owner::Shared, block, .. }) = Key::parse(&entry.key) {
                let block = BlockId::from_number(block);
                let found = found.get_or_insert(Found { block, files: BTreeMap::new() });
                if found.block != block {
                    return Ok(Some(std::mem::replace(found, Found { block, files: BTreeMap::new() })));
                }
                let file =
                    FILES.into_iter().chain([META]).find(|file| entry.key.ends_with(&format!("/{file}")));
                found.files.extend(file.map(|file| (file, entry.size)));
            }
            self.page.pop_front();
        }
    }

    async fn turn(&mut self) -> Result<(), Status> {
        let below = Prefix::BlocksOf(Owner::Shared);
        let page = self.store.list(&below, self.last.as_deref(), PAGE).await;
        let page = page.map_err(|error| Status::of(&error))?;
        self.ended = page.len() < PAGE;
        self.last = page.last().map(|entry| entry.key.clone()).or(self.last.take());
        self.page = page.into();
        Ok(())
    }
}

impl Found {
    /// Whether it was said to be whole, and not yet to be none: `meta.json` is written last and removed first.
    pub fn has_meta(&self) -> bool {
        self.files.contains_key(META)
    }

    /// Reads where the block was cut, if it is whole; none for one that is not, or that was made otherwise.
    pub async fn meta(&self, store: &Store) -> Result<Option<(Meta, Origin)>, Status> {
        if self.files.get(META).is_none_or(|&size| size > MAX_META) {
            return Ok(None);
        }
        let file = FileName::new(META).map_err(|error| Status::new(Code::Internal, error.to_string()))?;
        let key = Key::Block { owner: Owner::Shared, block: self.block.number(), file };
        let bytes = match store.get(&key).await {
            Ok(bytes) => bytes,
            // It was removed meanwhile.
            Err(error) if error.code() == Code::NotFound => return Ok(None),
            Err(error) => return Err(Status::of(&error)),
        };
        let meta = match Meta::decode(&bytes) {
            Ok(meta) => meta,
            Err(error) => {
                tracing::warn!(block = %self.block, %error, "a block in the bucket cannot be read");
                return Ok(None);
            }
        };
        let whole = meta.files.iter().all(|(name, file)| self.files.get(name.as_str()) == Some(&file.bytes));
        let origin = meta.origin.clone().filter(|_| whole && meta.id == self.block.to_string());
        Ok(origin.map(|origin| (meta, origin)))
    }
}
