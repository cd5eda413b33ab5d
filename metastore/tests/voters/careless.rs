//! A bucket that accepts conditions and ignores them, and dawdles.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::{Clock, Random};
use athanor_storage::test_bucket::{BucketCalls, TestBucket};
use athanor_storage::{StorageConfig, Store, StoreDeps};
use futures::StreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    GetOptions, GetResult, ObjectMeta, ObjectStore, PutMode, PutOptions, PutPayload, PutResult, Result,
};

/// The bucket, and how long each way of a call to it takes at the most.
#[derive(Clone)]
struct Careless {
    objects: Arc<InMemory>,
    clock: Clock,
    random: Random,
    most: Duration,
}

/// Such a bucket, as a node uses it.
pub fn careless(clock: &Clock, random: &Random, most: Duration) -> Store {
    let objects = Arc::new(InMemory::new());
    let bucket = Careless { objects, clock: clock.clone(), random: random.split(), most };
    let deps = StoreDeps { clock: clock.clone(), random: random.split() };
    Store::with_object_store(Arc::new(TestBucket(bucket)), &StorageConfig::default(), deps)
}

impl Careless {
    async fn way(&self) {
        let most = u64::try_from(self.most.as_nanos()).unwrap();
        self.clock.sleep(Duration::from_nanos(self.random.next_below(most))).await;
    }
}

#[async_trait]
impl BucketCalls for Careless {
    async fn put(&self, location: &Path, payload: PutPayload, _: PutOptions) -> Result<PutResult> {
        self.way().await;
        let put = self.objects.put_opts(location, payload, PutOptions::from(PutMode::Overwrite)).await;
        self.way().await;
        put
    }

    async fn get(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.way().await;
        let got = self.objects.get_opts(location, options).await;
        self.way().await;
        got
    }

    async fn list(&self, prefix: Option<&Path>) -> Vec<Result<ObjectMeta>> {
        self.objects.list(prefix).collect().await
    }
}
