//! Storage of uploads: objects of the bucket, each written only once.
//!
//! ```text
//!  debuginfo/<tenant>/<build id>/<kind>/<upload>.started               announcement
//!                                       <upload>.<attempt>.<part>      bytes; equal sizes except the last
//!                                       <upload>.received              id of the complete attempt
//!                                       <upload>.complete or .invalid  full record of the upload
//! ```
//! The object names alone determine the phase of an upload. A client may send an upload in several attempts.
//! Parts of an incomplete attempt are removed.

use std::collections::BTreeMap;

use athanor_chassis::{ErrorCode, Status, TenantId};
use athanor_storage::path::{BuildId, FileName, KeyPrefix, ObjectKey};
use athanor_storage::{ObjectInfo, Store, StoreError};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::upload_state::{DebuginfoKind, UploadPhase, UploadStatus};

/// Number of keys per page of a listing.
const MAX_KEYS_PER_PAGE: usize = 1_000;
const STARTED_SUFFIX: &str = "started";
const RECEIVED_SUFFIX: &str = "received";
const COMPLETE_SUFFIX: &str = "complete";
const INVALID_SUFFIX: &str = "invalid";

/// Key of one debug information file: tenant, binary and kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DebuginfoKey {
    /// Tenant that owns the file.
    pub tenant: TenantId,
    /// Build id of the binary.
    pub build: BuildId,
    /// Kind of the file.
    pub kind: DebuginfoKind,
}

/// Description of the file that a client announced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UploadAnnouncement {
    /// Hash of the file, in a format that the client chooses.
    pub hash: String,
    /// Size of the file in bytes; 0 if the client did not announce it.
    pub size: u64,
    /// Name of the binary.
    pub name: String,
    /// Build id of the binary in Go's format.
    pub go_build_id: String,
    /// File id of the binary in OpenTelemetry's format.
    pub otel_file_id: String,
    /// True if the file lacks the text section.
    pub no_text: bool,
}

/// Record of the bytes that were received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedUpload {
    /// Id of the attempt.
    pub attempt: String,
    /// Number of parts.
    pub parts: u32,
    /// Size in bytes.
    pub size: u64,
    /// 128-bit xxh3 digest of the bytes.
    pub digest: String,
    /// True if the bytes are a file of their kind.
    pub is_valid: bool,
}

/// Full record of a complete upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletedUpload {
    /// Description of the file from the announcement.
    pub announcement: UploadAnnouncement,
    /// Record of the received bytes.
    pub received: ReceivedUpload,
    /// Time of the completion, in milliseconds since 1970.
    pub completed_at_millis: i64,
}

/// Marker objects that record the phase of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadMarker {
    /// [`UploadAnnouncement`].
    Started,
    /// [`ReceivedUpload`].
    Received,
    /// [`CompletedUpload`], of a file that can be used.
    Complete,
    /// [`CompletedUpload`], of something else.
    Invalid,
}

/// Uploads of one key, by number, with the names of their objects.
#[derive(Debug, Default)]
pub struct UploadsByNumber(BTreeMap<u128, Vec<FileName>>);

/// Object store with the uploads of all tenants.
#[derive(Clone, Debug)]
pub struct DebuginfoStore {
    pub store: Store,
}

// === impl DebuginfoKey ===

impl DebuginfoKey {
    fn object_key(&self, upload: u128, file: FileName) -> ObjectKey {
        let tenant = self.tenant.clone();
        let build = self.build.clone();
        ObjectKey::Debuginfo { tenant, build, kind: self.kind.name(), upload, file }
    }

    /// Returns whether an object belongs to this upload.
    fn is_object_of(&self, number: u128, key: &str) -> bool {
        let Ok(ObjectKey::Debuginfo { build, kind, upload, .. }) = ObjectKey::parse(key) else {
            return false;
        };
        upload == number && build == self.build && kind == self.kind.name()
    }

    /// Returns the object key of a marker.
    pub fn marker_key(&self, upload: u128, note: UploadMarker) -> ObjectKey {
        let name = match note {
            UploadMarker::Started => STARTED_SUFFIX,
            UploadMarker::Received => RECEIVED_SUFFIX,
            UploadMarker::Complete => COMPLETE_SUFFIX,
            UploadMarker::Invalid => INVALID_SUFFIX,
        };
        self.object_key(upload, FileName::new(name).expect("letters"))
    }

    /// Returns the object key of a part of an attempt.
    pub fn part_key(&self, upload: u128, attempt: &str, part: u32) -> ObjectKey {
        self.object_key(upload, FileName::new(format!("{attempt}.{part:05}")).expect("digits and a dot"))
    }
}

// === impl UploadsByNumber ===

impl UploadsByNumber {
    /// Returns the status of each upload.
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

    /// Removes the parts of all other attempts of an upload from the list and returns them.
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
        () if has(COMPLETE_SUFFIX) => UploadPhase::Complete,
        () if has(INVALID_SUFFIX) => UploadPhase::Invalid,
        () if has(RECEIVED_SUFFIX) => UploadPhase::Received,
        () if has(STARTED_SUFFIX) => UploadPhase::Started,
        () => UploadPhase::Gone,
    }
}

/// Returns the order in which objects are removed. A partially removed upload looks like one that never
/// finished, until its last object is removed.
fn removal_rank(file: &FileName) -> u8 {
    match file.as_str() {
        COMPLETE_SUFFIX | INVALID_SUFFIX => 0,
        RECEIVED_SUFFIX => 2,
        STARTED_SUFFIX => 3,
        _ => 1,
    }
}

// === impl DebuginfoStore ===

impl DebuginfoStore {
    /// Lists the uploads of a key.
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

    /// Lists the uploads of a tenant by key. Fails if there are more than `most` keys.
    pub async fn list_tenant_uploads(
        &self,
        tenant: &TenantId,
        most: usize,
    ) -> Result<BTreeMap<DebuginfoKey, UploadsByNumber>, Status> {
        let mut places: BTreeMap<DebuginfoKey, UploadsByNumber> = BTreeMap::new();
        self.visit_keys(&KeyPrefix::Debuginfo(tenant.clone()), |key| {
            let ObjectKey::Debuginfo { tenant, build, kind, upload, file } = key else { return Ok(()) };
            // Parts add no information beyond the markers.
            let (Some(kind), true) = (DebuginfoKind::from_name(&kind), removal_rank(&file) != 1) else {
                return Ok(());
            };
            places.entry(DebuginfoKey { tenant, build, kind }).or_default().add_file(upload, file);
            if places.len() <= most {
                return Ok(());
            }
            let message =
                format!("tenant has debug information of more than {most} files, the limit of a listing");
            Err(Status::new(ErrorCode::TooLarge, message))
        })
        .await?;
        Ok(places)
    }

    /// Returns the bytes of all objects of a tenant, optionally without those of one upload.
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

    /// Visits the keys below a prefix. Skips keys that do not parse.
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

    /// Writes a marker. Returns `false` without a write if it exists.
    pub async fn write_marker<N: Serialize>(&self, key: &ObjectKey, note: &N) -> Result<bool, Status> {
        let text = serde_json::to_vec(note).expect("texts and numbers serialize to JSON");
        match self.store.create(key, text.into()).await {
            Ok(()) => Ok(true),
            Err(StoreError::Exists { .. }) => Ok(false),
            Err(error) => Err(Status::from_error(&error)),
        }
    }

    /// Reads a marker. Returns None if it does not exist.
    pub async fn read_marker<N: DeserializeOwned>(&self, key: &ObjectKey) -> Result<Option<N>, Status> {
        let text = match self.store.get(key).await {
            Ok(text) => text,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(Status::from_error(&error)),
        };
        let damaged = |error| Status::new(ErrorCode::DataLoss, format!("{key} cannot be read: {error}"));
        serde_json::from_slice(&text).map(Some).map_err(damaged)
    }

    /// Stores a part. Fails if it exists.
    pub async fn put_part(&self, key: &ObjectKey, bytes: Bytes) -> Result<(), Status> {
        self.store.create(key, bytes).await.map_err(|error| Status::from_error(&error))
    }

    /// Removes the parts that incomplete attempts of an upload left. Only the parts of `attempt` stay.
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

    /// Removes the uploads of a key that the predicate selects.
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
