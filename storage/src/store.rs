//! Calls to the bucket.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{Clock, ErrorCode, Random, Status, observability::process};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{Error, MultipartId, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use parking_lot::Mutex;

use crate::config::{MultipartBucket, OpenBucket, StorageConfig};
use crate::error::{ProbeError, StoreError};
use crate::path::{KeyPrefix, ObjectKey};
use crate::retry::{CREATE_OPERATION, CallLimiter, RetryExecutor, error_chain_text};

/// Open bucket with bounded concurrency and retries. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    shared: Arc<StoreInner>,
}

/// Dependencies of a store.
#[derive(Clone, Debug)]
pub struct StoreDeps {
    /// Clock for timeouts and pauses.
    pub clock: Clock,
    /// Source of randomness for the jitter of retries.
    pub random: Random,
}

/// Key and size of an object, as the bucket lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Key as the bucket spells it. [`ObjectKey::parse`] accepts the keys of this crate only.
    pub key: String,
    /// Length of the object in bytes.
    pub size: u64,
}

struct StoreInner {
    bucket: OpenBucket,
    /// Folder of a bucket on this machine's disk.
    folder: Option<PathBuf>,
    attempts: RetryExecutor,
    /// Uploads in parts whose writer was dropped. The next upload in parts aborts them.
    abandoned_uploads: Mutex<Vec<(Path, MultipartId)>>,
}

impl Store {
    /// Opens the configured bucket without sending a request.
    pub fn open(config: &StorageConfig, deps: StoreDeps) -> Result<Self, StoreError> {
        Ok(Self::from_bucket(config.open_bucket()?, config, deps, config.local.clone()))
    }

    /// Creates a store on a given bucket, which must list its keys in order. The configuration provides
    /// limits and retries.
    pub fn with_object_store<B>(objects: Arc<B>, config: &StorageConfig, deps: StoreDeps) -> Self
    where
        B: ObjectStore + MultipartStore,
    {
        let bucket = OpenBucket {
            multipart: Some(MultipartBucket::new(Arc::<B>::clone(&objects), "")),
            objects,
            ordered: true,
            name: "bucket".into(),
            setting: "storage",
            is_remote: false,
        };
        Self::from_bucket(bucket, config, deps, None)
    }

    /// Checks that a vendor's bucket exists and grants access, with one request and a timeout. Always
    /// succeeds for a local folder, a bucket in memory and a given bucket.
    pub async fn probe(&self, limit: Duration) -> Result<(), ProbeError> {
        let OpenBucket { objects, name, setting, is_remote, .. } = &self.shared.bucket;
        if !is_remote {
            return Ok(());
        }
        let mut listed = objects.list(None);
        let first = self.clock().timeout(limit, listed.next()).await;
        let bucket = Arc::clone(name);
        let setting = *setting;
        let why = match first {
            Ok(None | Some(Ok(_))) => return Ok(()),
            Ok(Some(Err(error))) => error_chain_text(&error),
            Err(elapsed) => return Err(ProbeError::Unreachable { bucket, why: elapsed.to_string() }),
        };
        let has = |words: &[&str]| words.iter().any(|word| why.contains(word));
        // Listing an empty prefix returns an empty list. A "not found" error therefore means the bucket.
        Err(if has(&["404 Not Found", "NoSuchBucket", "ContainerNotFound"]) {
            ProbeError::Missing { bucket, setting }
        } else if has(&["403 Forbidden", "401 Unauthorized"]) {
            ProbeError::Denied { bucket, why: truncate_message(&why) }
        } else {
            ProbeError::Unreachable { bucket, why: truncate_message(&why) }
        })
    }

    /// Returns whether the bucket is a vendor's, which [`probe`](Self::probe) checks.
    pub fn is_remote(&self) -> bool {
        self.shared.bucket.is_remote
    }

    /// Returns the bucket's name for messages.
    pub fn name(&self) -> &str {
        &self.shared.bucket.name
    }

    fn from_bucket(
        bucket: OpenBucket,
        config: &StorageConfig,
        deps: StoreDeps,
        folder: Option<PathBuf>,
    ) -> Self {
        let attempts = RetryExecutor {
            clock: deps.clock,
            random: deps.random,
            retry: config.retry.clone(),
            room: CallLimiter::from_config(config),
            bucket: (Arc::clone(&bucket.name), bucket.setting),
        };
        let abandoned_uploads = Mutex::default();
        Self { shared: Arc::new(StoreInner { bucket, folder, attempts, abandoned_uploads }) }
    }

    /// Creates an object. Returns [`StoreError::Exists`] if the name is taken.
    ///
    /// An earlier attempt of the same call may have succeeded although its response was lost. If a retry
    /// finds the name taken by the same bytes, the call succeeds.
    pub async fn create(&self, key: &ObjectKey, bytes: Bytes) -> Result<(), StoreError> {
        let path = object_path(key);
        let objects = self.objects();
        let path_of = &path;
        let bytes = &bytes;
        let attempt = |attempt: u32| {
            Box::pin(async move {
                let options = PutOptions::from(PutMode::Create);
                match objects.put_opts(path_of, bytes.clone().into(), options).await {
                    Ok(_) => Ok(()),
                    Err(error @ Error::AlreadyExists { .. }) if attempt > 1 => {
                        let there = objects.get(path_of).await?;
                        let same = there.meta.size == bytes.len() as u64 && there.bytes().await? == *bytes;
                        if same { Ok(()) } else { Err(error) }
                    }
                    Err(error) => Err(error),
                }
            }) as BoxFuture<'_, _>
        };
        self.shared.attempts.run(CREATE_OPERATION, path.as_ref(), attempt).await
    }

    /// Reads a whole object into memory.
    pub async fn get(&self, key: &ObjectKey) -> Result<Bytes, StoreError> {
        let path = object_path(key);
        let objects = self.objects();
        let path = &path;
        let attempt = |_| Box::pin(async move { objects.get(path).await?.bytes().await }) as BoxFuture<'_, _>;
        self.shared.attempts.run("get", path.as_ref(), attempt).await
    }

    /// Returns the free bytes of the bucket's disk; `None` if the bucket is not a folder of this machine.
    pub fn free_bytes(&self) -> Result<Option<u64>, Status> {
        let Some(folder) = &self.shared.folder else { return Ok(None) };
        process::free_bytes(folder).map(Some).map_err(|error| {
            let message =
                format!("{}: cannot read the free space of the bucket's disk: {error}", folder.display());
            Status::new(ErrorCode::Unavailable, message)
        })
    }

    /// Returns the clock that measures the store's timeouts.
    pub fn clock(&self) -> &Clock {
        &self.shared.attempts.clock
    }

    /// Reads part of an object. If the object ends within the range, the result is shorter.
    pub async fn get_range(&self, key: &ObjectKey, range: Range<u64>) -> Result<Bytes, StoreError> {
        let path = object_path(key);
        let objects = self.objects();
        let path = &path;
        let range = &range;
        let attempt = |attempt: u32| {
            Box::pin(async move {
                match objects.get_range(path, range.clone()).await {
                    // Vendors report a range beyond the end in different words, and no error code separates
                    // it from temporary errors.
                    Err(error @ Error::Generic { .. }) if attempt == 1 => match objects.head(path).await {
                        Ok(there) if there.size <= range.start => Ok(Bytes::new()),
                        _ => Err(error),
                    },
                    got => got,
                }
            }) as BoxFuture<'_, _>
        };
        self.shared.attempts.run("get range of", path.as_ref(), attempt).await
    }

    /// Reads several ranges of an object and returns them in the given order. Adjacent ranges are fetched
    /// together.
    pub async fn get_ranges(&self, key: &ObjectKey, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, StoreError> {
        let path = object_path(key);
        let objects = self.objects();
        let path = &path;
        let attempt = |_| Box::pin(async move { objects.get_ranges(path, ranges).await }) as BoxFuture<'_, _>;
        self.shared.attempts.run("get ranges of", path.as_ref(), attempt).await
    }

    /// Returns the key and size of an object without its data.
    pub async fn head(&self, key: &ObjectKey) -> Result<ObjectInfo, StoreError> {
        let path = object_path(key);
        let objects = self.objects();
        let path = &path;
        let attempt = |_| Box::pin(async move { objects.head(path).await }) as BoxFuture<'_, _>;
        self.shared.attempts.run("head", path.as_ref(), attempt).await.map(ObjectInfo::from)
    }

    /// Returns one page of the objects below a prefix, in key order, after the key `after`. A page with fewer
    /// than `limit` entries is the last.
    pub async fn list(
        &self,
        below: &KeyPrefix,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectInfo>, StoreError> {
        let prefix = below.to_string();
        let path = Path::from(prefix.as_str());
        let after = Path::from(after.unwrap_or_default());
        let ordered = self.shared.bucket.ordered;
        let objects = self.objects();
        let path = &path;
        let after = &after;
        let attempt = |_| {
            Box::pin(async move {
                let found = objects.list_with_offset(Some(path), after).map_ok(ObjectInfo::from);
                if ordered {
                    return found.take(limit).try_collect::<Vec<_>>().await;
                }
                let mut all: Vec<ObjectInfo> = found.try_collect().await?;
                all.sort_unstable_by(|a, b| a.key.cmp(&b.key));
                all.truncate(limit);
                Ok(all)
            }) as BoxFuture<'_, _>
        };
        self.shared.attempts.run("list", &prefix, attempt).await
    }

    /// Deletes an object. A missing object counts as deleted.
    pub async fn delete(&self, key: &ObjectKey) -> Result<(), StoreError> {
        let path = object_path(key);
        let objects = self.objects();
        let path = &path;
        let attempt = |_| {
            Box::pin(async move {
                match objects.delete(path).await {
                    Err(Error::NotFound { .. }) => Ok(()),
                    other => other,
                }
            }) as BoxFuture<'_, _>
        };
        self.shared.attempts.run("delete", path.as_ref(), attempt).await
    }

    pub(crate) fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.shared.bucket.objects
    }

    pub(crate) fn multipart(&self) -> Option<&MultipartBucket> {
        self.shared.bucket.multipart.as_ref()
    }

    pub(crate) fn attempts(&self) -> &RetryExecutor {
        &self.shared.attempts
    }

    pub(crate) fn abandoned_uploads(&self) -> &Mutex<Vec<(Path, MultipartId)>> {
        &self.shared.abandoned_uploads
    }
}

/// Truncates a vendor's message, which may be a whole page.
fn truncate_message(text: &str) -> String {
    const MAX_VENDOR_MESSAGE_BYTES: usize = 400;
    text[..text.floor_char_boundary(MAX_VENDOR_MESSAGE_BYTES)].to_owned()
}

pub(crate) fn object_path(key: &ObjectKey) -> Path {
    Path::from(key.to_string())
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("bucket", &self.objects().to_string()).finish()
    }
}

impl From<ObjectMeta> for ObjectInfo {
    fn from(meta: ObjectMeta) -> Self {
        Self { key: meta.location.to_string(), size: meta.size }
    }
}
