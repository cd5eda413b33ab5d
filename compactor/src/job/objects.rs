//! Objects of blocks: their keys, and the upload of an output.

use std::sync::Arc;

use athanor_block::{BlockFolder, META_FILE, PARQUET_FILES};
use athanor_catalog::BlockId;
use athanor_chassis::TenantId;
use athanor_storage::path::{BlockOwner, FileName, ObjectKey};
use athanor_storage::{Store, StoreError};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};

use crate::error::JobError;
use crate::job::context::JobContext;

/// Bytes that are read from scratch space at once.
const READ_BYTES: u64 = 1 << 20;
/// Files of one output that are uploaded concurrently. Each holds one part of an upload in memory.
const MAX_CONCURRENT_UPLOADS: usize = 3;

/// Returns the owner of a block's folder.
pub(crate) fn block_owner(folder_tenant: Option<&TenantId>) -> BlockOwner {
    folder_tenant.map_or(BlockOwner::Shared, |tenant| BlockOwner::Tenant(tenant.clone()))
}

/// Returns the key of a block's file.
pub(crate) fn block_key(owner: BlockOwner, block: BlockId, file: FileName) -> ObjectKey {
    ObjectKey::Block { owner, block: block.number(), file }
}

/// Returns the names of a block's objects. `meta.json`, without which the block does not exist, is first.
pub(crate) fn object_names() -> impl Iterator<Item = &'static str> {
    [META_FILE].into_iter().chain(PARQUET_FILES)
}

/// Uploader of one output block.
pub(crate) struct OutputUploader<'u> {
    pub(crate) context: &'u JobContext<'u>,
    pub(crate) owner: BlockOwner,
    pub(crate) block: BlockId,
}

impl OutputUploader<'_> {
    /// Uploads all files but `meta.json`. Returns the number of bytes.
    pub(crate) async fn upload_files(&self, folder: &Arc<dyn BlockFolder>) -> Result<u64, JobError> {
        let uploading: Vec<BoxFuture<'_, Result<u64, JobError>>> =
            PARQUET_FILES.into_iter().map(|file| self.upload_file(folder, file).boxed()).collect();
        let uploading = futures::stream::iter(uploading).buffer_unordered(MAX_CONCURRENT_UPLOADS);
        uploading.try_fold(0, |sum, bytes| async move { Ok(sum + bytes) }).await
    }

    /// Uploads `meta.json`, after which the block exists.
    pub(crate) async fn upload_meta(&self, bytes: Bytes) -> Result<u64, JobError> {
        let key = self.key(META_FILE)?;
        let key = &key;
        let length = bytes.len() as u64;
        let bytes = &bytes;
        let create = || async move {
            let created = self.context.store.create(key, bytes.clone()).await;
            accept_existing(self.context.store, key, length, created).await
        };
        self.finish(self.context.until_available(create).await?)?;
        Ok(length)
    }

    async fn upload_file(&self, folder: &Arc<dyn BlockFolder>, file: &'static str) -> Result<u64, JobError> {
        let key = self.key(file)?;
        let key = &key;
        let length = folder.length(file)?;
        let upload = || async move {
            let mut writer = self.context.store.create_writer(key);
            let mut offset = 0;
            while offset < length {
                let count = READ_BYTES.min(length - offset);
                let folder = Arc::clone(folder);
                let read = move || folder.read(file, offset, count as usize);
                let bytes = match self.context.run_on_pool(read).await {
                    Ok(read) => read.map_err(JobError::from),
                    Err(error) => Err(error),
                };
                match bytes {
                    Ok(bytes) => writer.write(bytes).await?,
                    Err(error) => return Ok(Err(error)),
                }
                offset += count;
            }
            let written = writer.finish().await.map(|_| ());
            accept_existing(self.context.store, key, length, written).await.map(Ok)
        };
        self.finish(self.context.until_available(upload).await?)??;
        Ok(length)
    }

    fn key(&self, file: &str) -> Result<ObjectKey, JobError> {
        let file = FileName::new(file).map_err(|error| JobError::from_reason(error.to_string()))?;
        Ok(block_key(self.owner.clone(), self.block, file))
    }

    fn finish<R>(&self, outcome: Result<R, StoreError>) -> Result<R, JobError> {
        outcome.map_err(|error| JobError::from_output(self.block, &error))
    }
}

/// Accepts an object that exists with the expected length. The job alone knows the block's id, so an earlier
/// attempt wrote it although its response was lost.
async fn accept_existing(
    store: &Store,
    key: &ObjectKey,
    length: u64,
    created: Result<(), StoreError>,
) -> Result<(), StoreError> {
    match created {
        Err(StoreError::Exists { key: taken }) => match store.head(key).await?.size == length {
            true => Ok(()),
            false => Err(StoreError::Exists { key: taken }),
        },
        other => other,
    }
}
