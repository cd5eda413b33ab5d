//! Where uploads lie: objects of the bucket, none of them ever written twice.
//!
//! ```text
//!  debuginfo/<tenant>/<build id>/<kind>/<upload>.begun                 what was announced
//!                                       <upload>.<attempt>.<part>      bytes, in parts of one size but for the last
//!                                       <upload>.sent                  which attempt came whole
//!                                       <upload>.finished or .invalid  all that is known of it
//! ```
//! The names alone tell how far an upload is. A client may try several times to send one; an attempt that did not come whole
//! is removed.

use std::collections::BTreeMap;

use athanor_chassis::{ErrorCode, Status, TenantId};
use athanor_storage::path::{BuildId, FileName, KeyPrefix, ObjectKey};
use athanor_storage::{ObjectInfo, Store, StoreError};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::upload_state::{DebuginfoKind, UploadPhase, UploadStatus};

/// Keys of one listing.
const MAX_KEYS_PER_PAGE: usize = 1_000;
const STARTED_SUFFIX: &str = "begun";
const RECEIVED_SUFFIX: &str = "sent";
const FINISHED_SUFFIX: &str = "finished";
const INVALID_SUFFIX: &str = "invalid";

/// One file of one binary of one tenant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DebuginfoKey {
    /// Whose.
    pub tenant: TenantId,
    /// Of which binary.
    pub build: BuildId,
    /// What of it.
    pub kind: DebuginfoKind,
}

/// What a client announced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UploadAnnouncement {
    /// Of the file, in a form of the client's.
    pub hash: String,
    /// How many bytes the file has; 0 if it was not said.
    pub size: u64,
    /// What the binary is called.
    pub name: String,
    /// Its id in Go's form.
    pub go_build_id: String,
    /// Its id in OpenTelemetry's form.
    pub otel_file_id: String,
    /// Whether its code was left out.
    pub no_text: bool,
}

/// What came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedUpload {
    /// Which attempt.
    pub attempt: String,
    /// How many parts it has.
    pub parts: u32,
    /// How many bytes.
    pub size: u64,
    /// Their xxh3, of 128 bits.
    pub digest: String,
    /// Whether they are a file of their kind.
    pub is_valid: bool,
}

/// All that is known of an upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletedUpload {
    /// What was announced.
    pub begun: UploadAnnouncement,
    /// What came.
    pub sent: ReceivedUpload,
    /// When it was finished, in milliseconds since 1970.
    pub finished_millis: i64,
}

/// Notes that tell how far an upload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadMarker {
    /// [`UploadAnnouncement`].
    Begun,
    /// [`ReceivedUpload`].
    Sent,
    /// [`CompletedUpload`], of a file that can be used.
    Finished,
    /// [`CompletedUpload`], of something else.
    Invalid,
}

/// The uploads of one place: by number, and the names of their objects.
#[derive(Debug, Default)]
pub struct UploadsByNumber(BTreeMap<u128, Vec<FileName>>);

/// The bucket.
#[derive(Clone, Debug)]
pub struct DebuginfoStore {
    pub store: Store,
}

// === impl Place ===

impl DebuginfoKey {
    fn object_key(&self, upload: u128, file: FileName) -> ObjectKey {
        let tenant = self.tenant.clone();
        let build = self.build.clone();
        ObjectKey::Debuginfo { tenant, build, kind: self.kind.name(), upload, file }
    }

    /// Whether an object is of this upload.
    fn is_object_of(&self, number: u128, key: &str) -> bool {
        let Ok(ObjectKey::Debuginfo { build, kind, upload, .. }) = ObjectKey::parse(key) else {
            return false;
        };
        upload == number && build == self.build && kind == self.kind.name()
    }

    /// The key of a note.
    pub fn marker_key(&self, upload: u128, note: UploadMarker) -> ObjectKey {
        let name = match note {
            UploadMarker::Begun => STARTED_SUFFIX,
            UploadMarker::Sent => RECEIVED_SUFFIX,
            UploadMarker::Finished => FINISHED_SUFFIX,
            UploadMarker::Invalid => INVALID_SUFFIX,
        };
        self.object_key(upload, FileName::new(name).expect("letters"))
    }

    /// The key of a part of an attempt.
    pub fn part_key(&self, upload: u128, attempt: &str, part: u32) -> ObjectKey {
        self.object_key(upload, FileName::new(format!("{attempt}.{part:05}")).expect("digits and a dot"))
    }
}

// === impl Uploads ===

impl UploadsByNumber {
    /// How far each of them is.
    pub fn upload_statuses(&self) -> Vec<UploadStatus> {
        let seen = |(&number, files): (&u128, &Vec<FileName>)| UploadStatus {
            number,
            phase: phase_from_files(files),
        };
        self.0.iter().map(seen).collect()
    }

    fn add_file(&mut self, upload: u128, file: FileName) {
        self.0.entry(upload).or_default().push(file);
    }

    /// Takes out the parts of an upload that are of another attempt than this one.
    fn take_other_attempts(&mut self, upload: u128, attempt: &str) -> Vec<FileName> {
        let Some(files) = self.0.get_mut(&upload) else { return Vec::new() };
        let is_beside = |file: &mut FileName| match file.as_str().split_once('.') {
            Some((other, _)) => other != attempt,
            None => false,
        };
        files.extract_if(.., is_beside).collect()
    }
}

fn phase_from_files(files: &[FileName]) -> UploadPhase {
    let has = |name: &str| files.iter().any(|file| file.as_str() == name);
    match () {
        () if has(FINISHED_SUFFIX) => UploadPhase::Finished,
        () if has(INVALID_SUFFIX) => UploadPhase::Invalid,
        () if has(RECEIVED_SUFFIX) => UploadPhase::Sent,
        () if has(STARTED_SUFFIX) => UploadPhase::Begun,
        () => UploadPhase::Gone,
    }
}

/// Objects go in this order: what is half removed is an upload that was never finished, and known as such until the end.
fn removal_rank(file: &FileName) -> u8 {
    match file.as_str() {
        FINISHED_SUFFIX | INVALID_SUFFIX => 0,
        RECEIVED_SUFFIX => 2,
        STARTED_SUFFIX => 3,
        _ => 1,
    }
}

// === impl Shelf ===

impl DebuginfoStore {
    /// The uploads of a place.
    pub async fn list_uploads(&self, place: &DebuginfoKey) -> Result<UploadsByNumber, Status> {
        let mut uploads = UploadsByNumber::default();
        let below = KeyPrefix::DebuginfoOf(place.tenant.clone(), place.build.clone());
        self.visit_keys(&below, |key| match key {
            ObjectKey::Debuginfo { kind, upload, file, .. }
                if DebuginfoKind::from_name(&kind) == Some(place.kind) =>
            {
                uploads.add_file(upload, file);
                Ok(())
            }
            _ => Ok(()),
        })
        .await?;
        Ok(uploads)
    }

    /// The uploads of all places of a tenant, if these are no more than `most`.
    pub async fn list_tenant_uploads(
        &self,
        tenant: &TenantId,
        most: usize,
    ) -> Result<BTreeMap<DebuginfoKey, UploadsByNumber>, Status> {
        let mut places: BTreeMap<DebuginfoKey, UploadsByNumber> = BTreeMap::new();
        self.visit_keys(&KeyPrefix::Debuginfo(tenant.clone()), |key| {
            let ObjectKey::Debuginfo { tenant, build, kind, upload, file } = key else { return Ok(()) };
            // Parts say nothing that notes do not.
            let (Some(kind), true) = (DebuginfoKind::from_name(&kind), removal_rank(&file) != 1) else {
                return Ok(());
            };
            places.entry(DebuginfoKey { tenant, build, kind }).or_default().add_file(upload, file);
            if places.len() <= most {
                return Ok(());
            }
            let message = format!(
                "there is debug information of more than {most} files, which cannot be listed at once"
            );
            Err(Status::new(ErrorCode::TooLarge, message))
        })
        .await?;
        Ok(places)
    }

    /// How many bytes all that a tenant has here takes, but for one upload.
    pub async fn total_bytes(
        &self,
        tenant: &TenantId,
        beside: Option<(&DebuginfoKey, u128)>,
    ) -> Result<u64, Status> {
        let mut bytes = 0;
        self.list_page(&KeyPrefix::Debuginfo(tenant.clone()), |entry| {
            let is_it = beside.is_some_and(|(place, number)| place.is_object_of(number, &entry.key));
            bytes += if is_it { 0 } else { entry.size };
            Ok(())
        })
        .await?;
        Ok(bytes)
    }

    /// Visits the keys below a place; what is not ours is passed over.
    async fn visit_keys(
        &self,
        below: &KeyPrefix,
        mut each: impl FnMut(ObjectKey) -> Result<(), Status>,
    ) -> Result<(), Status> {
        self.list_page(below, |entry| ObjectKey::parse(&entry.key).map_or(Ok(()), &mut each)).await
    }

    async fn list_page(
        &self,
        below: &KeyPrefix,
        mut each: impl FnMut(ObjectInfo) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let mut after: Option<String> = None;
        loop {
            let page = self
                .store
                .list(below, after.as_deref(), MAX_KEYS_PER_PAGE)
                .await
                .map_err(|error| Status::from_error(&error))?;
            let is_last = page.len() < MAX_KEYS_PER_PAGE;
            after = page.last().map(|entry| entry.key.clone());
            page.into_iter().try_for_each(&mut each)?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Writes a note, unless it is there: then not, and the answer is `false`.
    pub async fn write_marker<N: Serialize>(&self, key: &ObjectKey, note: &N) -> Result<bool, Status> {
        let text = serde_json::to_vec(note).expect("texts and numbers serialise to JSON");
        match self.store.create(key, text.into()).await {
            Ok(()) => Ok(true),
            Err(StoreError::Exists { .. }) => Ok(false),
            Err(error) => Err(Status::from_error(&error)),
        }
    }

    /// Reads a note, if it is there.
    pub async fn read_marker<N: DeserializeOwned>(&self, key: &ObjectKey) -> Result<Option<N>, Status> {
        let text = match self.store.get(key).await {
            Ok(text) => text,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(Status::from_error(&error)),
        };
        let damaged = |error| Status::new(ErrorCode::DataLoss, format!("{key} cannot be read: {error}"));
        serde_json::from_slice(&text).map(Some).map_err(damaged)
    }

    /// Keeps a part.
    pub async fn put_part(&self, key: &ObjectKey, bytes: Bytes) -> Result<(), Status> {
        self.store.create(key, bytes).await.map_err(|error| Status::from_error(&error))
    }

    /// Removes parts of an upload that came with attempts that were cut off, so that only those of this one stay.
    pub async fn remove_other_attempts(
        &self,
        place: &DebuginfoKey,
        uploads: &mut UploadsByNumber,
        upload: u128,
        attempt: &str,
    ) -> Result<(), Status> {
        for file in uploads.take_other_attempts(upload, attempt) {
            let key = place.object_key(upload, file);
            self.store.delete(&key).await.map_err(|error| Status::from_error(&error))?;
        }
        Ok(())
    }

    /// Removes uploads of a place.
    pub async fn remove_uploads(
        &self,
        place: &DebuginfoKey,
        uploads: UploadsByNumber,
        which: impl Fn(&UploadStatus) -> bool,
    ) -> Result<(), Status> {
        for (number, mut files) in uploads.0 {
            if which(&UploadStatus { number, phase: phase_from_files(&files) }) {
                files.sort_by_key(removal_rank);
                for file in files {
                    let key = place.object_key(number, file);
                    self.store.delete(&key).await.map_err(|error| Status::from_error(&error))?;
                }
            }
        }
        Ok(())
    }
}
