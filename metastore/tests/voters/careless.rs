//! A bucket that accepts conditions and ignores them, and dawdles.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::{Clock, Random};
use athanor_storage::{StorageConfig, Store, StoreDeps};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// The bucket, and how long each way of a call to it takes at the most.
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
    Store::with_object_store(Arc::new(bucket), &StorageConfig::default(), deps)
}

impl Careless {
    async fn way(&self) {
        let most = u64::try_from(self.most.as_nanos()).unwrap();
        self.clock.sleep(Duration::from_nanos(self.random.next_below(most))).await;
    }
}

impl fmt::Debug for Careless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Careless")
    }
}

impl fmt::Display for Careless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a careless bucket")
    }
}

fn unused() -> Error {
    Error::NotImplemented { operation: "this call".to_owned(), implementer: "the test".to_owned() }
}

#[async_trait]
impl ObjectStore for Careless {
    async fn put_opts(&self, location: &Path, payload: PutPayload, _: PutOptions) -> Result<PutResult> {
        self.way().await;
        let put = self.objects.put_opts(location, payload, PutOptions::from(PutMode::Overwrite)).await;
        self.way().await;
        put
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.way().await;
        let got = self.objects.get_opts(location, options).await;
        self.way().await;
        got
    }

    fn delete_stream(&self, _: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        futures::stream::once(async { Err(unused()) }).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (objects, prefix) = (Arc::clone(&self.objects), prefix.cloned());
        let listed = async move { objects.list(prefix.as_ref()).collect::<Vec<_>>().await };
        listed.map(futures::stream::iter).flatten_stream().boxed()
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(unused())
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        Err(unused())
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(unused())
    }
}
