//! A bucket that counts what is read of it, holds reads up, and flips bits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use athanor_block::{
    BlockFolder, BlockMeta, META_FILE, MemoryFolder, MemoryProfiles, PARQUET_FILES, write_from_memory,
};
use athanor_catalog::BlockId;
use athanor_chassis::{Clock, Random};
use athanor_profile::store_interface::source::MemorySource;
use athanor_storage::path::{BlockOwner, FileName, ObjectKey};
use athanor_storage::test_bucket::{BucketCalls, TestBucket};
use athanor_storage::{StorageConfig, Store, StoreDeps};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    GetOptions, GetResult, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// The bucket. Cheap to clone.
#[derive(Clone)]
pub struct Bucket(Arc<Inner>);

struct Inner {
    objects: InMemory,
    /// Reads take a permit while they are under way.
    gate: Semaphore,
    requests: AtomicU64,
    bytes: AtomicU64,
    /// What was read, by object.
    reads: Mutex<Vec<(String, std::ops::Range<u64>)>>,
}

impl Bucket {
    pub fn new() -> Self {
        let (objects, gate) = (InMemory::new(), Semaphore::new(1_000));
        let (requests, bytes, reads) = <(AtomicU64, AtomicU64, Mutex<Vec<_>>)>::default();
        Bucket(Arc::new(Inner { objects, gate, requests, bytes, reads }))
    }

    pub fn store(&self) -> Store {
        let deps = StoreDeps { clock: Clock::system(), random: Random::from_seed(1) };
        Store::with_object_store(Arc::new(TestBucket(self.clone())), &StorageConfig::default(), deps)
    }

    /// Puts a block of some tenants there.
    pub async fn put(&self, id: BlockId, tenants: &[(&str, MemorySource)]) -> BlockMeta {
        self.put_below(BlockOwner::Shared, id, tenants).await
    }

    /// Puts a block into the folder of an owner.
    pub async fn put_below(
        &self,
        owner: BlockOwner,
        id: BlockId,
        tenants: &[(&str, MemorySource)],
    ) -> BlockMeta {
        let folder = MemoryFolder::default();
        let parts = tenants.iter().map(|(tenant, held)| (*tenant, held as &dyn MemoryProfiles));
        let meta = write_from_memory(&folder, &id.number().to_string(), None, parts).unwrap();
        for file in PARQUET_FILES.into_iter().chain([META_FILE]) {
            let bytes = folder.read(file, 0, folder.length(file).unwrap() as usize).unwrap();
            let file = FileName::new(file).unwrap();
            let key = ObjectKey::Block { owner: owner.clone(), block: id.number(), file };
            self.store().create(&key, bytes).await.unwrap();
        }
        meta
    }

    /// Puts the same bytes there as another block.
    pub async fn link(&self, from: BlockId, to: BlockId) {
        for file in PARQUET_FILES.into_iter().chain([META_FILE]) {
            let (from, to) = (Path::from(key(from, file).to_string()), Path::from(key(to, file).to_string()));
            self.0.objects.copy(&from, &to).await.unwrap();
        }
    }

    /// Changes the bytes of an object.
    pub async fn tamper(&self, id: BlockId, file: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let path = Path::from(key(id, file).to_string());
        let mut bytes = self.0.objects.get(&path).await.unwrap().bytes().await.unwrap().to_vec();
        change(&mut bytes);
        self.0.objects.put(&path, bytes.into()).await.unwrap();
    }

    /// Reads wait from now on, until they may go on.
    pub async fn hold(&self) {
        self.0.gate.acquire_many(1_000).await.unwrap().forget();
    }

    pub fn go_on(&self) {
        self.0.gate.add_permits(1_000);
    }

    /// Requests and bytes since this was asked last.
    pub fn read(&self) -> (u64, u64) {
        self.0.reads.lock().clear();
        (self.0.requests.swap(0, Ordering::Relaxed), self.0.bytes.swap(0, Ordering::Relaxed))
    }

    /// What was read since then, for messages.
    pub fn reads(&self) -> Vec<(String, std::ops::Range<u64>)> {
        self.0.reads.lock().clone()
    }
}

fn key(id: BlockId, file: &str) -> ObjectKey {
    ObjectKey::Block { owner: BlockOwner::Shared, block: id.number(), file: FileName::new(file).unwrap() }
}

#[async_trait]
impl BucketCalls for Bucket {
    async fn put(&self, location: &Path, payload: PutPayload, _: PutOptions) -> Result<PutResult> {
        self.0.objects.put_opts(location, payload, PutOptions::from(PutMode::Overwrite)).await
    }

    async fn get(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        let _turn = self.0.gate.acquire().await.unwrap();
        // It takes a while: others ask meanwhile.
        tokio::task::yield_now().await;
        let got = self.0.objects.get_opts(location, options).await?;
        self.0.bytes.fetch_add(got.range.end - got.range.start, Ordering::Relaxed);
        let name = location.filename().unwrap_or_default().to_owned();
        self.0.reads.lock().push((name, got.range.clone()));
        Ok(got)
    }
}
