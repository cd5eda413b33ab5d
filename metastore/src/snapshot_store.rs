//! Snapshots of the catalog in the bucket. The catalog is recovered from them if all voters have lost their
//! disks [INV-16].
//!
//! A small snapshot is one object. A large one consists of parts and a manifest object, which is written
//! last. A reader that finds the manifest finds a complete snapshot, or detects the damage by its checksum.

use std::collections::BTreeSet;

use athanor_catalog::CatalogState;
use athanor_chassis::{ByteSize, ErrorCode, ErrorCodeExt, Status};
use athanor_storage::path::{KeyPrefix, ObjectKey};
use athanor_storage::{Store, StoreError};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::compression::{CompressionError, compress, decompress};

/// Number of snapshots that the bucket retains.
const RETAINED_SNAPSHOTS: usize = 8;
/// Keys per page of a bucket listing.
const LIST_PAGE_KEYS: usize = 1000;
/// Size of a snapshot part in bytes.
const SNAPSHOT_PART_BYTES: usize = 8 << 20;
/// Upper bound of a compressed snapshot in bytes.
const MAX_SNAPSHOT_BYTES: u64 = 1 << 30;
/// Upper bound of a decompressed snapshot in bytes.
const MAX_DECOMPRESSED_SNAPSHOT_BYTES: u64 = 2 << 30;
/// Snapshot format. Other formats are rejected.
const SNAPSHOT_FORMAT: u32 = 1;
const SNAPSHOT_MAGIC: [u8; 8] = *b"athcat\x01\n";
/// Upper bound of a snapshot's manifest in bytes.
const MAX_MANIFEST_BYTES: usize = 1 << 10;

/// Catalog state at one index of the catalog's log.
pub(crate) struct StateCopy {
    pub(crate) index: u64,
    pub(crate) state: CatalogState,
}

/// Compressed snapshot, ready for the upload.
pub(crate) struct EncodedSnapshot {
    index: u64,
    bytes: Bytes,
}

/// Snapshot that was read from the bucket.
#[derive(Clone, Debug)]
pub struct StoredSnapshot {
    /// Index of the last log entry that the snapshot contains.
    pub index: u64,
    /// Catalog state at that index.
    pub state: CatalogState,
}

/// Store of the catalog snapshots of one cluster, in its bucket.
#[derive(Clone, Debug)]
pub struct SnapshotStore {
    store: Store,
    cluster: u128,
}

/// Description of a snapshot, at the beginning of its object.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SnapshotManifest {
    format: u32,
    /// Cluster id as 32 hexadecimal digits.
    cluster: String,
    index: u64,
    /// Length of the compressed state in bytes.
    bytes: u64,
    /// XXH3 checksum of the compressed state as 16 hexadecimal digits.
    sum: String,
    /// Number of part objects. With 0, the compressed state follows the manifest in the same object.
    parts: u16,
}

/// Reason why a snapshot in the bucket cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotError {
    #[error("snapshot is damaged: {0}")]
    Damaged(&'static str),
    #[error("snapshot has format {0}, this version reads format {SNAPSHOT_FORMAT}")]
    Format(u32),
    #[error("snapshot belongs to cluster {0}")]
    Foreign(String),
    #[error(transparent)]
    Packed(#[from] CompressionError),
    #[error("snapshot state cannot be decoded: {0}")]
    State(#[from] serde_json::Error),
    #[error("snapshot state is contradictory: {0}")]
    Contradictory(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl StateCopy {
    pub(crate) fn encode(self) -> Result<EncodedSnapshot, String> {
        let bytes = compress(&self.state.encode()).map_err(|error| error.to_string())?;
        match bytes.len() as u64 <= MAX_SNAPSHOT_BYTES {
            true => Ok(EncodedSnapshot { index: self.index, bytes }),
            false => {
                let seen = ByteSize::bytes(bytes.len() as u64);
                Err(format!(
                    "the catalog has {seen} compressed, the limit is {}",
                    ByteSize::bytes(MAX_SNAPSHOT_BYTES)
                ))
            }
        }
    }
}

impl SnapshotStore {
    /// Creates the snapshot store of a cluster on its bucket.
    pub fn new(store: Store, cluster: u128) -> Self {
        Self { store, cluster }
    }

    /// Uploads a snapshot, then deletes all but the newest [`RETAINED_SNAPSHOTS`].
    pub(crate) async fn upload(
        &self,
        EncodedSnapshot { index, bytes }: EncodedSnapshot,
    ) -> Result<(), StoreError> {
        self.upload_in_parts(index, &bytes, SNAPSHOT_PART_BYTES).await?;
        self.prune().await
    }

    async fn upload_in_parts(&self, index: u64, bytes: &Bytes, part: usize) -> Result<(), StoreError> {
        let parts = if bytes.len() <= part { 0 } else { bytes.len().div_ceil(part) };
        for number in 0..parts {
            let piece = bytes.slice(number * part..bytes.len().min((number + 1) * part));
            let key = ObjectKey::SnapshotPart { index, part: number as u16 };
            match self.store.create(&key, piece).await {
                // Part of an unfinished attempt. The checksum decides whether its bytes are the same.
                Ok(()) | Err(StoreError::Exists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let head = SnapshotManifest {
            format: SNAPSHOT_FORMAT,
            cluster: format!("{:032x}", self.cluster),
            index,
            bytes: bytes.len() as u64,
            sum: format!("{:016x}", xxh3_64(bytes)),
            parts: parts as u16,
        };
        let head = serde_json::to_vec(&head).expect("all keys are texts");
        let length = (head.len() as u32).to_le_bytes();
        let data = if parts == 0 { &bytes[..] } else { &[] };
        let object = [&SNAPSHOT_MAGIC[..], &length, &head, data].concat();
        match self.store.create(&ObjectKey::Snapshot { index }, object.into()).await {
            // Another leader has uploaded this index. Its snapshot contains the same entries.
            Ok(()) | Err(StoreError::Exists { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the indexes of all snapshots and of all parts in the bucket.
    async fn list_snapshots(&self) -> Result<(BTreeSet<u64>, BTreeSet<(u64, u16)>), StoreError> {
        let mut heads = BTreeSet::new();
        let mut parts = BTreeSet::new();
        let mut last = None;
        loop {
            let page = self.store.list(&KeyPrefix::Snapshots, last.as_deref(), LIST_PAGE_KEYS).await?;
            for entry in &page {
                match ObjectKey::parse(&entry.key) {
                    Ok(ObjectKey::Snapshot { index }) => drop(heads.insert(index)),
                    Ok(ObjectKey::SnapshotPart { index, part }) => drop(parts.insert((index, part))),
                    _ => {}
                }
            }
            last = page.last().map(|entry| entry.key.clone());
            if page.len() < LIST_PAGE_KEYS {
                return Ok((heads, parts));
            }
        }
    }

    async fn prune(&self) -> Result<(), StoreError> {
        let (heads, parts) = self.list_snapshots().await?;
        let Some(oldest) = heads.iter().rev().nth(RETAINED_SNAPSHOTS - 1) else { return Ok(()) };
        for index in heads.range(..oldest) {
            self.store.delete(&ObjectKey::Snapshot { index: *index }).await?;
        }
        for (index, part) in parts.range(..(*oldest, 0)) {
            self.store.delete(&ObjectKey::SnapshotPart { index: *index, part: *part }).await?;
        }
        Ok(())
    }

    /// Returns the newest snapshot that is complete. Also returns the highest index of any snapshot or part,
    /// and for each newer snapshot the reason why it is unusable.
    pub async fn newest_readable(&self) -> Result<(Option<StoredSnapshot>, u64, Vec<String>), Status> {
        let (heads, parts) = self.list_snapshots().await.map_err(|error| Status::from_error(&error))?;
        let highest = heads.last().copied().max(parts.last().map(|(index, _)| *index)).unwrap_or_default();
        let mut skipped = Vec::new();
        for index in heads.into_iter().rev() {
            match self.read_snapshot(index).await {
                Ok(state) => return Ok((Some(StoredSnapshot { index, state }), highest, skipped)),
                // The bucket is unavailable, so an older snapshot cannot be read either.
                Err(SnapshotError::Store(error)) if error.code() != ErrorCode::NotFound => {
                    return Err(Status::from_error(&error));
                }
                Err(why) => skipped.push(format!("{}: {why}", ObjectKey::Snapshot { index })),
            }
        }
        Ok((None, highest, skipped))
    }

    async fn read_snapshot(&self, index: u64) -> Result<CatalogState, SnapshotError> {
        let object = self.store.get(&ObjectKey::Snapshot { index }).await?;
        let (head, data) = parse_manifest(&object)?;
        if head.format != SNAPSHOT_FORMAT {
            return Err(SnapshotError::Format(head.format));
        }
        if head.cluster != format!("{:032x}", self.cluster) {
            return Err(SnapshotError::Foreign(head.cluster));
        }
        if head.index != index || head.bytes > MAX_SNAPSHOT_BYTES {
            return Err(SnapshotError::Damaged(
                "index differs from the object key, or size exceeds the limit",
            ));
        }
        let mut packed = Vec::from(data);
        for part in 0..head.parts {
            packed.extend_from_slice(&self.store.get(&ObjectKey::SnapshotPart { index, part }).await?);
            if packed.len() as u64 > head.bytes {
                break;
            }
        }
        if packed.len() as u64 != head.bytes || format!("{:016x}", xxh3_64(&packed)) != head.sum {
            return Err(SnapshotError::Damaged("size or checksum does not match"));
        }
        let state = CatalogState::decode(&decompress(&packed, MAX_DECOMPRESSED_SNAPSHOT_BYTES)?)?;
        state.check().map_err(SnapshotError::Contradictory)?;
        Ok(state)
    }
}

fn parse_manifest(object: &Bytes) -> Result<(SnapshotManifest, Bytes), SnapshotError> {
    let bad = SnapshotError::Damaged("invalid snapshot header");
    let Some(length) = object.get(8..12).filter(|_| object[..8] == SNAPSHOT_MAGIC) else { return Err(bad) };
    let length = length.iter().rev().fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
    match object.get(12..12 + length.min(MAX_MANIFEST_BYTES + 1)) {
        Some(head) if length <= MAX_MANIFEST_BYTES => {
            Ok((serde_json::from_slice(head)?, object.slice(12 + length..)))
        }
        _ => Err(bad),
    }
}

#[cfg(test)]
mod tests {
    use athanor_catalog::CatalogCommand;
    use athanor_chassis::{Clock, Random, Timestamp};
    use athanor_storage::{StorageConfig, StoreDeps};

    use super::*;

    fn shelf() -> SnapshotStore {
        let deps = StoreDeps { clock: Clock::system(), random: Random::from_seed(1) };
        let store = Store::open(&StorageConfig { memory: true, ..StorageConfig::default() }, deps).unwrap();
        SnapshotStore::new(store, 7)
    }

    fn catalog_state(number: u64) -> CatalogState {
        let mut state = CatalogState::default();
        for node in 0..number % 7 + 1 {
            let address = format!("127.0.0.{node}:{number}");
            state.apply(Timestamp::UNIX_EPOCH, CatalogCommand::AddVoter { node, address });
        }
        state
    }

    async fn put(shelf: &SnapshotStore, index: u64, part: usize) {
        let packed = StateCopy { index, state: catalog_state(index) }.encode().unwrap();
        shelf.upload_in_parts(index, &packed.bytes, part).await.unwrap();
        shelf.prune().await.unwrap();
    }

    #[tokio::test]
    async fn the_newest_snapshots_are_kept_whole_and_in_parts() {
        let shelf = shelf();
        assert!(matches!(shelf.newest_readable().await, Ok((None, 0, _))));
        for index in 1..=20 {
            put(&shelf, index, if index % 2 == 0 { SNAPSHOT_PART_BYTES } else { 10 }).await;
            let (found, highest, skipped) = shelf.newest_readable().await.unwrap();
            let found = found.unwrap();
            assert_eq!((found.index, found.state, highest), (index, catalog_state(index), index));
            assert_eq!(skipped, Vec::<String>::new());
        }
        let (heads, parts) = shelf.list_snapshots().await.unwrap();
        assert_eq!(heads, (13..=20).collect());
        assert!(parts.iter().all(|(index, _)| *index >= 13) && !parts.is_empty());
        // Whoever leads next may put the same there.
        put(&shelf, 20, SNAPSHOT_PART_BYTES).await;
    }

    #[tokio::test]
    async fn what_is_not_whole_is_skipped_in_words() {
        let shelf = shelf();
        put(&shelf, 5, SNAPSHOT_PART_BYTES).await;
        put(&shelf, 7, 10).await;
        shelf.store.delete(&ObjectKey::SnapshotPart { index: 7, part: 1 }).await.unwrap();
        put(&shelf, 8, 10).await;
        shelf.store.delete(&ObjectKey::SnapshotPart { index: 8, part: 0 }).await.unwrap();
        shelf.store.create(&ObjectKey::SnapshotPart { index: 8, part: 0 }, vec![0; 10].into()).await.unwrap();
        shelf.store.create(&ObjectKey::Snapshot { index: 9 }, b"nothing".as_slice().into()).await.unwrap();
        let other = SnapshotStore { cluster: 8, ..shelf.clone() };
        put(&other, 10, SNAPSHOT_PART_BYTES).await;
        shelf.store.create(&ObjectKey::SnapshotPart { index: 12, part: 0 }, vec![0].into()).await.unwrap();
        let (found, highest, skipped) = shelf.newest_readable().await.unwrap();
        assert_eq!((found.unwrap().index, highest), (5, 12));
        let why = ["to cluster 00", "invalid snapshot header", "size or checksum", "no such object"];
        assert_eq!(skipped.len(), why.len(), "{skipped:?}");
        for (told, why) in skipped.iter().zip(why) {
            assert!(told.contains(why), "{told}");
        }
    }
}
