//! Writer of a large object, in parts and in bounded memory.

use bytes::Bytes;
use futures::future::BoxFuture;
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{Error, MultipartId, MultipartUpload, ObjectStoreExt, PutPayload};

use crate::config::MultipartBucket;
use crate::error::StoreError;
use crate::path::ObjectKey;
use crate::retry::CREATE_OPERATION;
use crate::store::{Store, object_path};

/// Size of all parts of an object but the last. A smaller object is written with one call. Vendors accept at
/// least 10 000 parts, so an object may have 80 GiB.
pub const UPLOAD_PART_BYTES: usize = 8 << 20;

const PART_OPERATION: &str = "upload part of";
const COMPLETE_OPERATION: &str = "complete upload of";

/// Writer of a new object. The object exists once [`finish`](Self::finish) has succeeded, and never in part.
///
/// A failed call aborts the upload. If the writer is dropped before the end, the next writer of the store
/// aborts it. Parts of a process that ended stay until the vendor's lifecycle rule removes them.
pub struct ObjectWriter {
    store: Store,
    key: ObjectKey,
    path: Path,
    /// Bytes that are in no part yet.
    buffer: Vec<Bytes>,
    buffered_bytes: usize,
    /// Bytes of all parts so far.
    uploaded_bytes: u64,
    upload: Option<StartedUpload>,
}

/// Upload of which at least one part is under way.
enum StartedUpload {
    /// Parts in a vendor's bucket.
    Parts { bucket: MultipartBucket, id: MultipartId, parts: Vec<PartId> },
    /// Temporary file of a local folder.
    Staged(Box<dyn MultipartUpload>),
}

impl Store {
    /// Returns a writer of a new object that holds at most one part of it in memory.
    pub fn create_writer(&self, key: &ObjectKey) -> ObjectWriter {
        ObjectWriter::new(self.clone(), key.clone())
    }
}

impl ObjectWriter {
    fn new(store: Store, key: ObjectKey) -> Self {
        let path = object_path(&key);
        Self { store, key, path, buffer: Vec::new(), buffered_bytes: 0, uploaded_bytes: 0, upload: None }
    }

    /// Appends bytes to the object. Uploads whole parts, and returns after that.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), StoreError> {
        self.buffered_bytes += bytes.len();
        self.buffer.push(bytes);
        // The last part must not be empty, so a full part waits for the next byte.
        while self.buffered_bytes > UPLOAD_PART_BYTES {
            let part = self.take_part();
            if let Err(error) = self.upload_part(part).await {
                self.abort().await;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Uploads the rest and creates the object. Returns its length. Returns [`StoreError::Exists`] if the name
    /// is taken.
    pub async fn finish(mut self) -> Result<u64, StoreError> {
        let length = self.uploaded_bytes + self.buffered_bytes as u64;
        if self.upload.is_none() {
            let bytes = match &self.buffer[..] {
                [bytes] => bytes.clone(),
                parts => parts.concat().into(),
            };
            self.store.create(&self.key, bytes).await?;
            return Ok(length);
        }
        let part = std::mem::take(&mut self.buffer);
        let outcome = match self.upload_part(part).await {
            Ok(()) => self.complete(length).await,
            failed => failed,
        };
        match outcome {
            Ok(()) => self.upload = None,
            Err(_) => self.abort().await,
        }
        outcome.map(|()| length)
    }

    /// Takes exactly one part from the buffer.
    fn take_part(&mut self) -> Vec<Bytes> {
        let mut missing = UPLOAD_PART_BYTES;
        let mut taken = 0;
        while self.buffer[taken].len() <= missing {
            missing -= self.buffer[taken].len();
            taken += 1;
            if missing == 0 {
                break;
            }
        }
        let mut part: Vec<Bytes> = self.buffer.drain(..taken).collect();
        if missing > 0 {
            part.push(self.buffer[0].split_to(missing));
        }
        self.buffered_bytes -= UPLOAD_PART_BYTES;
        part
    }

    async fn upload_part(&mut self, part: Vec<Bytes>) -> Result<(), StoreError> {
        if self.upload.is_none() {
            self.upload = Some(start_upload(&self.store, &self.key).await?);
        }
        let payload: PutPayload = part.into_iter().collect();
        self.uploaded_bytes += payload.content_length() as u64;
        let attempts = self.store.attempts();
        let path = &self.path;
        match self.upload.as_mut() {
            Some(StartedUpload::Parts { bucket, id, parts }) => {
                let bucket = &*bucket;
                let full_path = &bucket.full_path(path);
                let index = parts.len();
                let id = &*id;
                let payload = &payload;
                let attempt = |_| bucket.calls.put_part(full_path, id, index, payload.clone());
                parts.push(attempts.run(PART_OPERATION, path.as_ref(), attempt).await?);
                Ok(())
            }
            Some(StartedUpload::Staged(staged)) => {
                attempts.run_once(PART_OPERATION, path.as_ref(), staged.put_part(payload)).await
            }
            None => Ok(()),
        }
    }

    /// Creates the object from its parts.
    async fn complete(&mut self, length: u64) -> Result<(), StoreError> {
        let attempts = self.store.attempts();
        let path = &self.path;
        let objects = self.store.objects();
        match self.upload.as_mut() {
            Some(StartedUpload::Parts { bucket, id, parts }) => {
                let bucket = &*bucket;
                let full_path = &bucket.full_path(path);
                let id = &*id;
                let parts = &*parts;
                let attempt = |_| {
                    Box::pin(async move {
                        let Err(error) = bucket.calls.complete_multipart(full_path, id, parts.clone()).await
                        else {
                            return Ok(());
                        };
                        // An earlier attempt may have succeeded although its response was lost. Then the
                        // upload is unknown, and its object exists.
                        let found = objects.head(path).await;
                        if found.is_ok_and(|found| found.size == length) { Ok(()) } else { Err(error) }
                    }) as BoxFuture<'_, Result<(), Error>>
                };
                attempts.run(COMPLETE_OPERATION, path.as_ref(), attempt).await
            }
            Some(StartedUpload::Staged(staged)) => {
                let completed = attempts.run_once(COMPLETE_OPERATION, path.as_ref(), staged.complete());
                completed.await.map(|_| ())
            }
            None => Ok(()),
        }
    }

    /// Aborts the upload after a failure.
    async fn abort(&mut self) {
        self.abandon();
        abort_abandoned(&self.store).await;
    }

    /// Leaves the upload to the next writer. A temporary file is removed with its upload.
    fn abandon(&mut self) {
        if let Some(StartedUpload::Parts { id, .. }) = self.upload.take() {
            self.store.abandoned_uploads().lock().push((self.path.clone(), id));
        }
    }
}

/// Begins an upload, after the uploads of dropped writers are aborted. No vendor promises that completing an
/// upload fails if the name is taken, so the name is checked here.
async fn start_upload(store: &Store, key: &ObjectKey) -> Result<StartedUpload, StoreError> {
    abort_abandoned(store).await;
    match store.head(key).await {
        Ok(_) => return Err(StoreError::Exists { key: key.to_string() }),
        Err(StoreError::NotFound { .. }) => {}
        Err(error) => return Err(error),
    }
    let attempts = store.attempts();
    let path = &object_path(key);
    let Some(bucket) = store.multipart() else {
        let staged = store.objects().put_multipart(path);
        return attempts.run_once(CREATE_OPERATION, path.as_ref(), staged).await.map(StartedUpload::Staged);
    };
    let full_path = &bucket.full_path(path);
    let attempt = |_| bucket.calls.create_multipart(full_path);
    let id = attempts.run(CREATE_OPERATION, path.as_ref(), attempt).await?;
    Ok(StartedUpload::Parts { bucket: bucket.clone(), id, parts: Vec::new() })
}

/// Aborts the uploads of all dropped writers. Each is tried once: parts of an upload that cannot be aborted are
/// left to the vendor's lifecycle rule.
async fn abort_abandoned(store: &Store) {
    let Some(bucket) = store.multipart() else { return };
    let abandoned = std::mem::take(&mut *store.abandoned_uploads().lock());
    for (path, id) in abandoned {
        let full_path = bucket.full_path(&path);
        let aborted = bucket.calls.abort_multipart(&full_path, &id);
        if let Err(error) = store.attempts().run_once("abort upload of", path.as_ref(), aborted).await {
            tracing::debug!(key = %path, %error, "failed to abort an upload, its parts stay in the bucket");
        }
    }
}

impl Drop for ObjectWriter {
    fn drop(&mut self) {
        self.abandon();
    }
}
