//! Adapter of test buckets: a bucket with the calls of this crate becomes an object store.

use std::fmt;

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// Calls of a test bucket. A call that a test does not need fails by default.
#[async_trait]
pub trait BucketCalls: Clone + Send + Sync + 'static {
    /// Writes an object.
    async fn put(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult>;

    /// Reads an object.
    async fn get(&self, location: &Path, options: GetOptions) -> Result<GetResult>;

    /// Deletes an object.
    async fn delete(&self, _location: &Path) -> Result<()> {
        Err(unsupported_call())
    }

    /// Lists the objects below a prefix.
    async fn list(&self, _prefix: Option<&Path>) -> Vec<Result<ObjectMeta>> {
        vec![Err(unsupported_call())]
    }
}

/// Object store over the calls of a test bucket.
pub struct TestBucket<C>(pub C);

fn unsupported_call() -> Error {
    Error::NotImplemented { operation: "this call".to_owned(), implementer: "a bucket of tests".to_owned() }
}

impl<C> fmt::Debug for TestBucket<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestBucket")
    }
}

impl<C> fmt::Display for TestBucket<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a bucket of tests")
    }
}

#[async_trait]
impl<C: BucketCalls> ObjectStore for TestBucket<C> {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.0.put(location, payload, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let bucket = self.0.clone();
        let each = move |location: Result<Path>| {
            let bucket = bucket.clone();
            async move {
                let location = location?;
                bucket.delete(&location).await?;
                Ok(location)
            }
        };
        locations.then(each).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let bucket = self.0.clone();
        let prefix = prefix.cloned();
        let listed = async move { bucket.list(prefix.as_ref()).await };
        listed.map(futures::stream::iter).flatten_stream().boxed()
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(unsupported_call())
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        Err(unsupported_call())
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(unsupported_call())
    }
}
