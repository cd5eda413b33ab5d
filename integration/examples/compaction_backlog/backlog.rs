//! Backlog of flushed blocks: the reference data set, a minute per block.

use std::path::Path;

use athanor_block::{
    BlockFolder, BlockOrigin, META_FILE, MemoryFolder, MemoryProfiles, PARQUET_FILES, write_from_memory,
};
use athanor_catalog::{BlockEntry, BlockId, Catalog, ShardEntry};
use athanor_chassis::{Clock, Random, Tier};
use athanor_metastore::bucket_block_from_meta;
use athanor_profile::generate::ReferenceDataset;
use athanor_profile::store_interface::source::MemorySource;
use athanor_storage::path::{BlockOwner, FileName, ObjectKey};
use athanor_storage::{StorageConfig, Store, StoreDeps};

use crate::CLUSTER_ID;

/// Profiles per block: 20 pods with a profile each 15 seconds.
const PROFILES_PER_BLOCK: usize = 80;
/// Upper bound of the backlog in minutes: its oldest profile lies as long before now.
const MAX_MINUTES: i64 = 60 * 24 * 60;
/// Name of the only tenant.
const TENANT: &str = "backlog";

/// Totals of the blocks of a backlog.
#[derive(Clone, Copy, Debug, Default)]
pub struct BacklogTotals {
    pub blocks: u64,
    pub bytes: u64,
    pub profiles: u64,
    pub samples: u64,
    /// Sum of the sample values modulo 2^64.
    pub sum: u64,
}

impl BacklogTotals {
    /// Returns the totals of some blocks.
    pub fn from_entries<'e>(entries: impl Iterator<Item = &'e BlockEntry>) -> Self {
        let mut totals = Self::default();
        entries.for_each(|entry| totals.add(entry));
        totals
    }

    fn add(&mut self, entry: &BlockEntry) {
        self.blocks += 1;
        self.bytes += entry.bytes;
        for span in &entry.tenants {
            self.profiles += span.profiles;
            self.samples += span.samples;
            self.sum = self.sum.wrapping_add(span.sum.unwrap_or_default());
        }
    }
}

/// Writes flushed blocks of a given size to the bucket, and registers them.
pub async fn write_backlog(catalog: &dyn Catalog, bucket: &Path, bytes: u64) -> BacklogTotals {
    let clock = Clock::system();
    let random = Random::system();
    let deps = StoreDeps { clock: clock.clone(), random: random.split() };
    let config = StorageConfig { local: Some(bucket.to_owned()), ..StorageConfig::default() };
    let store = Store::open(&config, deps).unwrap();
    let shard = catalog.open_shard(0, 1).await.unwrap();
    let start = clock.wall().nanos() - MAX_MINUTES * 60_000_000_000;
    let dataset = ReferenceDataset::new(ReferenceDataset::PUBLISHED_SEED).with_start(start);
    let mut totals = BacklogTotals::default();
    while totals.bytes < bytes {
        let entry =
            write_block(&store, &dataset, totals.blocks, &shard, BlockId::new(clock.wall(), &random)).await;
        totals.add(&entry);
        catalog.register_block(entry).await.unwrap();
    }
    assert!(
        (totals.blocks as i64) < MAX_MINUTES,
        "the backlog is longer than {MAX_MINUTES} minutes; write less bytes"
    );
    totals
}

/// Writes one block to the bucket.
async fn write_block(
    store: &Store,
    dataset: &ReferenceDataset,
    number: u64,
    shard: &ShardEntry,
    id: BlockId,
) -> BlockEntry {
    let mut source = MemorySource::default();
    let first = number as usize * PROFILES_PER_BLOCK;
    for place in first..first + PROFILES_PER_BLOCK {
        source.add(&dataset.labels(place), &dataset.profile(place), (place as u128 + 1) << 64);
    }
    let origin = BlockOrigin {
        cluster: format!("{CLUSTER_ID:032x}"),
        shard: shard.id,
        epoch: shard.epoch,
        from: number,
        to: number + 1,
        lost: 0,
        level: 0,
        additional_ranges: Vec::new(),
        tier: Tier::Raw,
        is_covered: false,
        job: None,
    };
    let folder = MemoryFolder::default();
    let parts = [(TENANT, &source as &dyn MemoryProfiles)];
    let meta = write_from_memory(&folder, &id.to_string(), Some(origin.clone()), parts.into_iter()).unwrap();
    for file in PARQUET_FILES.into_iter().chain([META_FILE]) {
        let bytes = folder.read(file, 0, folder.length(file).unwrap() as usize).unwrap();
        let key = ObjectKey::Block {
            owner: BlockOwner::Shared,
            block: id.number(),
            file: FileName::new(file).unwrap(),
        };
        store.create(&key, bytes).await.unwrap();
    }
    bucket_block_from_meta(id, &meta, &origin).unwrap().block
}
