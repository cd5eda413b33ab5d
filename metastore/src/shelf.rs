//! Snapshots of the catalogue in the bucket: what is left when all voters have lost their disks [INV-16].
//!
//! A snapshot is one object, or, where it is large, parts and then the object that tells of them: who finds that finds a
//! whole snapshot, or sees by its sum that it is none.

use std::collections::BTreeSet;

use athanor_catalog::State;
use athanor_chassis::{ByteSize, Code, Coded, Status};
use athanor_storage::path::{Key, Prefix};
use athanor_storage::{Store, StoreError};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::packed::{PackError, compress, decompress};

/// Snapshots that are kept.
const KEPT: usize = 8;
/// Keys that are listed at once.
const PAGE: usize = 1000;
/// Bytes of a part.
const PART: usize = 8 << 20;
/// Bytes of all of them.
const PACKED: u64 = 1 << 30;
/// And of what is in them.
const UNPACKED: u64 = 2 << 30;
/// How snapshots are written so far.
const FORMAT: u32 = 1;
const MAGIC: [u8; 8] = *b"athcat\x01\n";
/// Bytes of what tells of a snapshot.
const HEAD: usize = 1 << 10;

/// All facts at an index of the catalogue's log.
pub(crate) struct Copy {
    pub(crate) index: u64,
    pub(crate) state: State,
}

/// As it goes into the bucket.
pub(crate) struct Packed {
    index: u64,
    bytes: Bytes,
}

/// A snapshot as it was found.
#[derive(Clone, Debug)]
pub struct Shelved {
    /// The last entry of the catalogue's log that it holds.
    pub index: u64,
    /// The facts.
    pub state: State,
}

/// The snapshots of a cluster's catalogue in its bucket.
#[derive(Clone, Debug)]
pub struct Shelf {
    store: Store,
    cluster: u128,
}

/// What tells of a snapshot.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    format: u32,
    /// 32 hexadecimal digits.
    cluster: String,
    index: u64,
    /// Of the packed facts.
    bytes: u64,
    /// Of them as well: XXH3 in 16 hexadecimal digits.
    sum: String,
    /// Objects that they lie in; none: behind this.
    parts: u16,
}

/// Why a snapshot in the bucket cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Bad {
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    #[error("it is written in format {0}, this version reads formats up to {FORMAT}")]
    Format(u32),
    #[error("it is of cluster {0}")]
    Foreign(String),
    #[error(transparent)]
    Packed(#[from] PackError),
    #[error("its facts cannot be read: {0}")]
    Facts(#[from] serde_json::Error),
    #[error("its facts do not agree with each other: {0}")]
    Contradictory(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Copy {
    pub(crate) fn pack(self) -> Result<Packed, String> {
        let bytes = compress(&self.state.encode()).map_err(|error| error.to_string())?;
        match bytes.len() as u64 <= PACKED {
            true => Ok(Packed { index: self.index, bytes }),
            false => {
                let seen = ByteSize::bytes(bytes.len() as u64);
                Err(format!("the catalogue has {seen} packed, the limit is {}", ByteSize::bytes(PACKED)))
            }
        }
    }
}

impl Shelf {
    /// In a bucket.
    pub fn new(store: Store, cluster: u128) -> Self {
        Self { store, cluster }
    }

    /// Puts a snapshot there, and removes those that are too old then.
    pub(crate) async fn put(&self, Packed { index, bytes }: Packed) -> Result<(), StoreError> {
        self.put_in_parts(index, &bytes, PART).await?;
        self.tidy().await
    }

    async fn put_in_parts(&self, index: u64, bytes: &Bytes, part: usize) -> Result<(), StoreError> {
        let parts = if bytes.len() <= part { 0 } else { bytes.len().div_ceil(part) };
        for number in 0..parts {
            let piece = bytes.slice(number * part..bytes.len().min((number + 1) * part));
            let key = Key::SnapshotPart { index, part: number as u16 };
            match self.store.create(&key, piece).await {
                // Of an attempt that was not finished: the sum says whether it is the same.
                Ok(()) | Err(StoreError::Exists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let head = Head {
            format: FORMAT,
            cluster: format!("{:032x}", self.cluster),
            index,
            bytes: bytes.len() as u64,
            sum: format!("{:016x}", xxh3_64(bytes)),
            parts: parts as u16,
        };
        let head = serde_json::to_vec(&head).expect("all keys are texts");
        let length = (head.len() as u32).to_le_bytes();
        let data = if parts == 0 { &bytes[..] } else { &[] };
        let object = [&MAGIC[..], &length, &head, data].concat();
        match self.store.create(&Key::Snapshot { index }, object.into()).await {
            // Another leader put it there: it has the same entries.
            Ok(()) | Err(StoreError::Exists { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Indexes of snapshots and of parts that lie there.
    async fn list(&self) -> Result<(BTreeSet<u64>, BTreeSet<(u64, u16)>), StoreError> {
        let (mut heads, mut parts, mut last) = (BTreeSet::new(), BTreeSet::new(), None);
        loop {
            let page = self.store.list(&Prefix::Snapshots, last.as_deref(), PAGE).await?;
            for entry in &page {
                match Key::parse(&entry.key) {
                    Ok(Key::Snapshot { index }) => drop(heads.insert(index)),
                    Ok(Key::SnapshotPart { index, part }) => drop(parts.insert((index, part))),
                    _ => {}
                }
            }
            last = page.last().map(|entry| entry.key.clone());
            if page.len() < PAGE {
                return Ok((heads, parts));
            }
        }
    }

    async fn tidy(&self) -> Result<(), StoreError> {
        let (heads, parts) = self.list().await?;
        let Some(oldest) = heads.iter().rev().nth(KEPT - 1) else { return Ok(()) };
        for index in heads.range(..oldest) {
            self.store.delete(&Key::Snapshot { index: *index }).await?;
        }
        for (index, part) in parts.range(..(*oldest, 0)) {
            self.store.delete(&Key::SnapshotPart { index: *index, part: *part }).await?;
        }
        Ok(())
    }

    /// The newest snapshot that is whole, the highest index that any object of one names, and in words why newer ones
    /// are not used.
    pub async fn newest(&self) -> Result<(Option<Shelved>, u64, Vec<String>), Status> {
        let (heads, parts) = self.list().await.map_err(|error| Status::of(&error))?;
        let highest = heads.last().copied().max(parts.last().map(|(index, _)| *index)).unwrap_or_default();
        let mut passed_over = Vec::new();
        for index in heads.into_iter().rev() {
            match self.read(index).await {
                Ok(state) => return Ok((Some(Shelved { index, state }), highest, passed_over)),
                // The bucket does not answer: an older one is no better.
                Err(Bad::Store(error)) if error.code() != Code::NotFound => return Err(Status::of(&error)),
                Err(why) => passed_over.push(format!("{}: {why}", Key::Snapshot { index })),
            }
        }
        Ok((None, highest, passed_over))
    }

    async fn read(&self, index: u64) -> Result<State, Bad> {
        let object = self.store.get(&Key::Snapshot { index }).await?;
        let (head, data) = open(&object)?;
        if head.format > FORMAT {
            return Err(Bad::Format(head.format));
        }
        if head.cluster != format!("{:032x}", self.cluster) {
            return Err(Bad::Foreign(head.cluster));
        }
        if head.index != index || head.bytes > PACKED {
            return Err(Bad::Damaged("its index or its size is another"));
        }
        let mut packed = Vec::from(data);
        for part in 0..head.parts {
            packed.extend_from_slice(&self.store.get(&Key::SnapshotPart { index, part }).await?);
            if packed.len() as u64 > head.bytes {
                break;
            }
        }
        if packed.len() as u64 != head.bytes || format!("{:016x}", xxh3_64(&packed)) != head.sum {
            return Err(Bad::Damaged("its sum is another"));
        }
        let state = State::decode(&decompress(&packed, UNPACKED)?)?;
        state.check().map_err(Bad::Contradictory)?;
        Ok(state)
    }
}

fn open(object: &Bytes) -> Result<(Head, Bytes), Bad> {
    let bad = Bad::Damaged("it does not begin as one");
    let Some(length) = object.get(8..12).filter(|_| object[..8] == MAGIC) else { return Err(bad) };
    let length = length.iter().rev().fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
    match object.get(12..12 + length.min(HEAD + 1)) {
        Some(head) if length <= HEAD => Ok((serde_json::from_slice(head)?, object.slice(12 + length..))),
        _ => Err(bad),
    }
}

#[cfg(test)]
mod tests {
    use athanor_catalog::Command;
    use athanor_chassis::{Clock, Random, Timestamp};
    use athanor_storage::{Config, StoreDeps};

    use super::*;

    fn shelf() -> Shelf {
        let deps = StoreDeps { clock: Clock::system(), random: Random::seeded(1) };
        let store = Store::open(&Config { memory: true, ..Config::default() }, deps).unwrap();
        Shelf::new(store, 7)
    }

    fn facts(number: u64) -> State {
        let mut state = State::default();
        for node in 0..number % 7 + 1 {
            let address = format!("127.0.0.{node}:{number}");
            state.apply(Timestamp::EPOCH, Command::AddVoter { node, address });
        }
        state
    }

    async fn put(shelf: &Shelf, index: u64, part: usize) {
        let packed = Copy { index, state: facts(index) }.pack().unwrap();
        shelf.put_in_parts(index, &packed.bytes, part).await.unwrap();
        shelf.tidy().await.unwrap();
    }

    #[tokio::test]
    async fn the_newest_snapshots_are_kept_whole_and_in_parts() {
        let shelf = shelf();
        assert!(matches!(shelf.newest().await, Ok((None, 0, _))));
        for index in 1..=20 {
            put(&shelf, index, if index % 2 == 0 { PART } else { 10 }).await;
            let (found, highest, passed_over) = shelf.newest().await.unwrap();
            let found = found.unwrap();
            assert_eq!((found.index, found.state, highest), (index, facts(index), index));
            assert_eq!(passed_over, Vec::<String>::new());
        }
        let (heads, parts) = shelf.list().await.unwrap();
        assert_eq!(heads, (13..=20).collect());
        assert!(parts.iter().all(|(index, _)| *index >= 13) && !parts.is_empty());
        // Whoever leads next may put the same there.
        put(&shelf, 20, PART).await;
    }

    #[tokio::test]
    async fn what_is_not_whole_is_passed_over_in_words() {
        let shelf = shelf();
        put(&shelf, 5, PART).await;
        put(&shelf, 7, 10).await;
        shelf.store.delete(&Key::SnapshotPart { index: 7, part: 1 }).await.unwrap();
        put(&shelf, 8, 10).await;
        shelf.store.delete(&Key::SnapshotPart { index: 8, part: 0 }).await.unwrap();
        shelf.store.create(&Key::SnapshotPart { index: 8, part: 0 }, vec![0; 10].into()).await.unwrap();
        shelf.store.create(&Key::Snapshot { index: 9 }, b"nothing".as_slice().into()).await.unwrap();
        let other = Shelf { cluster: 8, ..shelf.clone() };
        put(&other, 10, PART).await;
        shelf.store.create(&Key::SnapshotPart { index: 12, part: 0 }, vec![0].into()).await.unwrap();
        let (found, highest, passed_over) = shelf.newest().await.unwrap();
        assert_eq!((found.unwrap().index, highest), (5, 12));
        let why = ["of cluster 00", "does not begin", "its sum", "no such object"];
        assert_eq!(passed_over.len(), why.len(), "{passed_over:?}");
        for (told, why) in passed_over.iter().zip(why) {
            assert!(told.contains(why), "{told}");
        }
    }
}
