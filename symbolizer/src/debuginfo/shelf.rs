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

use athanor_chassis::{Code, Status, TenantId};
use athanor_storage::path::{BuildId, FileName, Key, Prefix};
use athanor_storage::{Entry, Store, StoreError};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::state::{Kind, Phase, Seen};

/// Keys of one listing.
const PAGE: usize = 1_000;
const BEGUN: &str = "begun";
const SENT: &str = "sent";
const FINISHED: &str = "finished";
const INVALID: &str = "invalid";

/// One file of one binary of one tenant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Whose.
    pub tenant: TenantId,
    /// Of which binary.
    pub build: BuildId,
    /// What of it.
    pub kind: Kind,
}

/// What a client announced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Begun {
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
pub struct Sent {
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
pub struct Finished {
    /// What was announced.
    pub begun: Begun,
    /// What came.
    pub sent: Sent,
    /// When it was finished, in milliseconds since 1970.
    pub finished_millis: i64,
}

/// Notes that tell how far an upload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// [`Begun`].
    Begun,
    /// [`Sent`].
    Sent,
    /// [`Finished`], of a file that can be used.
    Finished,
    /// [`Finished`], of something else.
    Invalid,
}

/// The uploads of one place: by number, and the names of their objects.
#[derive(Debug, Default)]
pub struct Uploads(BTreeMap<u128, Vec<FileName>>);

/// The bucket.
#[derive(Clone, Debug)]
pub struct Shelf {
    pub store: Store,
}

// === impl Place ===

impl Place {
    fn key(&self, upload: u128, file: FileName) -> Key {
        let (tenant, build) = (self.tenant.clone(), self.build.clone());
        Key::Debuginfo { tenant, build, kind: self.kind.name(), upload, file }
    }

    /// Whether an object is of this upload.
    fn has(&self, number: u128, key: &str) -> bool {
        let Ok(Key::Debuginfo { build, kind, upload, .. }) = Key::parse(key) else { return false };
        upload == number && build == self.build && kind == self.kind.name()
    }

    /// The key of a note.
    pub fn note(&self, upload: u128, note: Note) -> Key {
        let name = match note {
            Note::Begun => BEGUN,
            Note::Sent => SENT,
            Note::Finished => FINISHED,
            Note::Invalid => INVALID,
        };
        self.key(upload, FileName::new(name).expect("letters"))
    }

    /// The key of a part of an attempt.
    pub fn part(&self, upload: u128, attempt: &str, part: u32) -> Key {
        self.key(upload, FileName::new(format!("{attempt}.{part:05}")).expect("digits and a dot"))
    }
}

// === impl Uploads ===

impl Uploads {
    /// How far each of them is.
    pub fn seen(&self) -> Vec<Seen> {
        let seen = |(&number, files): (&u128, &Vec<FileName>)| Seen { number, phase: phase(files) };
        self.0.iter().map(seen).collect()
    }

    fn add(&mut self, upload: u128, file: FileName) {
        self.0.entry(upload).or_default().push(file);
    }

    /// Takes out the parts of an upload that are of another attempt than this one.
    fn parts_beside(&mut self, upload: u128, attempt: &str) -> Vec<FileName> {
        let Some(files) = self.0.get_mut(&upload) else { return Vec::new() };
        let is_beside = |file: &mut FileName| match file.as_str().split_once('.') {
            Some((other, _)) => other != attempt,
            None => false,
        };
        files.extract_if(.., is_beside).collect()
    }
}

fn phase(files: &[FileName]) -> Phase {
    let has = |name: &str| files.iter().any(|file| file.as_str() == name);
    match () {
        () if has(FINISHED) => Phase::Finished,
        () if has(INVALID) => Phase::Invalid,
        () if has(SENT) => Phase::Sent,
        () if has(BEGUN) => Phase::Begun,
        () => Phase::Gone,
    }
}

/// Objects go in this order: what is half removed is an upload that was never finished, and known as such until the end.
fn rank(file: &FileName) -> u8 {
    match file.as_str() {
        FINISHED | INVALID => 0,
        SENT => 2,
        BEGUN => 3,
        _ => 1,
    }
}

// === impl Shelf ===

impl Shelf {
    /// The uploads of a place.
    pub async fn uploads(&self, place: &Place) -> Result<Uploads, Status> {
        let mut uploads = Uploads::default();
        let below = Prefix::DebuginfoOf(place.tenant.clone(), place.build.clone());
        self.walk(&below, |key| match key {
            Key::Debuginfo { kind, upload, file, .. } if Kind::of(&kind) == Some(place.kind) => {
                uploads.add(upload, file);
                Ok(())
            }
            _ => Ok(()),
        })
        .await?;
        Ok(uploads)
    }

    /// The uploads of all places of a tenant, if these are no more than `most`.
    pub async fn places(&self, tenant: &TenantId, most: usize) -> Result<BTreeMap<Place, Uploads>, Status> {
        let mut places: BTreeMap<Place, Uploads> = BTreeMap::new();
        self.walk(&Prefix::Debuginfo(tenant.clone()), |key| {
            let Key::Debuginfo { tenant, build, kind, upload, file } = key else { return Ok(()) };
            // Parts say nothing that notes do not.
            let (Some(kind), true) = (Kind::of(&kind), rank(&file) != 1) else { return Ok(()) };
            places.entry(Place { tenant, build, kind }).or_default().add(upload, file);
            if places.len() <= most {
                return Ok(());
            }
            let message = format!(
                "there is debug information of more than {most} files, which cannot be listed at once"
            );
            Err(Status::new(Code::TooLarge, message))
        })
        .await?;
        Ok(places)
    }

    /// How many bytes all that a tenant has here takes, but for one upload.
    pub async fn bytes(&self, tenant: &TenantId, beside: Option<(&Place, u128)>) -> Result<u64, Status> {
        let mut bytes = 0;
        self.entries(&Prefix::Debuginfo(tenant.clone()), |entry| {
            let is_it = beside.is_some_and(|(place, number)| place.has(number, &entry.key));
            bytes += if is_it { 0 } else { entry.size };
            Ok(())
        })
        .await?;
        Ok(bytes)
    }

    /// Visits the keys below a place; what is not ours is passed over.
    async fn walk(
        &self,
        below: &Prefix,
        mut each: impl FnMut(Key) -> Result<(), Status>,
    ) -> Result<(), Status> {
        self.entries(below, |entry| Key::parse(&entry.key).map_or(Ok(()), &mut each)).await
    }

    async fn entries(
        &self,
        below: &Prefix,
        mut each: impl FnMut(Entry) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let mut after: Option<String> = None;
        loop {
            let page =
                self.store.list(below, after.as_deref(), PAGE).await.map_err(|error| Status::of(&error))?;
            let is_last = page.len() < PAGE;
            after = page.last().map(|entry| entry.key.clone());
            page.into_iter().try_for_each(&mut each)?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Writes a note, unless it is there: then not, and the answer is `false`.
    pub async fn write<N: Serialize>(&self, key: &Key, note: &N) -> Result<bool, Status> {
        let text = serde_json::to_vec(note).expect("texts and numbers serialise to JSON");
        match self.store.create(key, text.into()).await {
            Ok(()) => Ok(true),
            Err(StoreError::Exists { .. }) => Ok(false),
            Err(error) => Err(Status::of(&error)),
        }
    }

    /// Reads a note, if it is there.
    pub async fn read<N: DeserializeOwned>(&self, key: &Key) -> Result<Option<N>, Status> {
        let text = match self.store.get(key).await {
            Ok(text) => text,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(Status::of(&error)),
        };
        let damaged = |error| Status::new(Code::DataLoss, format!("{key} cannot be read: {error}"));
        serde_json::from_slice(&text).map(Some).map_err(damaged)
    }

    /// Keeps a part.
    pub async fn keep(&self, key: &Key, bytes: Bytes) -> Result<(), Status> {
        self.store.create(key, bytes).await.map_err(|error| Status::of(&error))
    }

    /// Removes parts of an upload that came with attempts that were cut off, so that only those of this one stay.
    pub async fn keep_only(
        &self,
        place: &Place,
        uploads: &mut Uploads,
        upload: u128,
        attempt: &str,
    ) -> Result<(), Status> {
        for file in uploads.parts_beside(upload, attempt) {
            let key = place.key(upload, file);
            self.store.delete(&key).await.map_err(|error| Status::of(&error))?;
        }
        Ok(())
    }

    /// Removes uploads of a place.
    pub async fn remove(
        &self,
        place: &Place,
        uploads: Uploads,
        which: impl Fn(&Seen) -> bool,
    ) -> Result<(), Status> {
        for (number, mut files) in uploads.0 {
            if which(&Seen { number, phase: phase(&files) }) {
                files.sort_by_key(rank);
                for file in files {
                    let key = place.key(number, file);
                    self.store.delete(&key).await.map_err(|error| Status::of(&error))?;
                }
            }
        }
        Ok(())
    }
}
