//! Adapter of test buckets: a bucket with the calls of this crate becomes an object store.

use std::fmt;

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartId, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
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

    /// Begins an upload in parts.
    async fn create_multipart(&self, _location: &Path) -> Result<MultipartId> {
        Err(unsupported_call())
    }

    /// Writes a part of an upload.
    async fn put_part(
        &self,
        _location: &Path,
        _id: &MultipartId,
        _index: usize,
        _payload: PutPayload,
    ) -> Result<PartId> {
        Err(unsupported_call())
    }

    /// Creates the object of an upload from its parts.
    async fn complete_multipart(
        &self,
        _location: &Path,
        _id: &MultipartId,
        _parts: Vec<PartId>,
    ) -> Result<PutResult> {
        Err(unsupported_call())
    }

    /// Drops an upload and its parts.
    async fn abort_multipart(&self, _location: &Path, _id: &MultipartId) -> Result<()> {
        Err(unsupported_call())
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

#[async_trait]
impl<C: BucketCalls> MultipartStore for TestBucket<C> {
    async fn create_multipart(&self, path: &Path) -> Result<MultipartId> {
        self.0.create_multipart(path).await
    }

    async fn put_part(
        &self,
        path: &Path,
        id: &MultipartId,
        part_idx: usize,
        data: PutPayload,
    ) -> Result<PartId> {
        self.0.put_part(path, id, part_idx, data).await
    }

    async fn complete_multipart(
        &self,
        path: &Path,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<PutResult> {
        self.0.complete_multipart(path, id, parts).await
    }

    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> Result<()> {
        self.0.abort_multipart(path, id).await
    }
}
