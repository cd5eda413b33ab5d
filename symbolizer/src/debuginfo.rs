//! Uploads of debug information.
//!
//! ```text
//!  wanted? ─► begin: number ─► receive: parts, checked while they come ─► finish ─► older ones go
//! ```
//! Whatever fails leaves what was there before as it is. What deletes: [`delete_debuginfo`], and a later upload of the same
//! file. Nothing expires.

pub mod counts;
pub(crate) mod receiving;
mod shelf;
pub mod state;
mod wire;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use athanor_chassis::{ByteSize, Clock, Code, Limits, Overrides, Random, Status, Tasks, TenantId};
use athanor_storage::path::{BuildId, Prefix};
use athanor_storage::{Store, UploadKind, UploadSpace};
use futures::{StreamExt, TryStreamExt, stream};

use counts::{Counts, CountsNow};
use receiving::Bounds;
pub use receiving::{PART, Receiving};
use shelf::{Begun, Finished, Note, Place, Sent, Shelf, Uploads};
use state::{Asked, Now, PENDING, Phase, Reason, Seen};

/// Files of a tenant that are listed at once.
const LISTED: usize = 10_000;
/// Notes that are read side by side for a listing.
const SIDE_BY_SIDE: usize = 16;
/// When a client that finds all places taken may come back.
const BUSY: Duration = Duration::from_secs(5);

/// What it is made of.
#[derive(Clone)]
pub struct Deps {
    /// Where uploads are kept.
    pub store: Store,
    /// Space for uploads of all tenants.
    pub space: UploadSpace,
    /// The limits of each tenant.
    pub overrides: Overrides,
    /// Time.
    pub clock: Clock,
    /// Uploads are numbered by it.
    pub random: Random,
    /// What cleans up when a client leaves.
    pub tasks: Tasks,
}

/// Takes debug information. Cheap to clone.
#[derive(Clone)]
pub struct Debuginfo {
    deps: Deps,
    shelf: Shelf,
    sending: Arc<Mutex<HashMap<TenantId, u32>>>,
    counts: Arc<Counts>,
}

/// One of the files of a listing.
struct Listed {
    place: Place,
    seen: Seen,
    begun: Begun,
    /// What is known once it is finished.
    finished: Option<(Sent, i64)>,
}

/// What all debug information of a tenant takes, and may take; 0 is as much as there is.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    seen: u64,
    limit: ByteSize,
}

impl Room {
    /// Refuses a file for which there is no room left.
    pub(crate) fn check(self, size: u64) -> Result<(), Status> {
        let Room { seen, limit } = self;
        if limit.get() == 0 || seen.saturating_add(size) <= limit.get() {
            return Ok(());
        }
        let message = format!(
            "there is {} of debug information and a file of {size} bytes or more is to come, the limit is {limit} \
             (limits.max_debuginfo_bytes): remove some with DeleteDebuginfo, or raise the limit",
            ByteSize::bytes(seen)
        );
        Err(Status::new(Code::Exhausted, message).because("debuginfo_full"))
    }
}

/// The room of one that sends, until it is dropped.
struct Turn {
    tenant: TenantId,
    sending: Arc<Mutex<HashMap<TenantId, u32>>>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = sending.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                sending.remove(&self.tenant);
            }
        }
    }
}

impl Debuginfo {
    /// One that has taken nothing yet.
    pub fn new(deps: Deps) -> Self {
        let shelf = Shelf { store: deps.store.clone() };
        Self { deps, shelf, sending: Arc::default(), counts: Arc::default() }
    }

    /// What came, and what became of it.
    pub fn counts(&self) -> CountsNow {
        self.counts.now()
    }

    /// Counts a call that was refused before it came here.
    pub fn refused(&self, status: &Status) {
        self.counts.refused(status);
    }

    /// How long an upload of this tenant may take.
    pub fn longest(&self, tenant: &TenantId) -> Duration {
        self.deps.overrides.of(tenant).debuginfo_upload_max_duration
    }

    fn now(&self, limits: &Limits) -> Now {
        Now { millis: self.deps.clock.wall().millis(), longest: limits.debuginfo_upload_max_duration }
    }

    /// Whether an upload is wanted.
    async fn wanted(&self, place: &Place, asked: Asked<'_>) -> Result<Reason, Status> {
        let uploads = self.shelf.uploads(place).await?;
        let now = self.now(&self.deps.overrides.of(&place.tenant));
        self.judged(place, &uploads, asked, now).await
    }

    async fn judged(
        &self,
        place: &Place,
        uploads: &Uploads,
        asked: Asked<'_>,
        now: Now,
    ) -> Result<Reason, Status> {
        let current = state::current(&uploads.seen(), now);
        let invalid = match current {
            Some(Seen { number, phase: Phase::Invalid }) if !asked.hash.is_empty() => {
                let note: Option<Finished> = self.shelf.read(&place.note(number, Note::Invalid)).await?;
                note.map(|note| note.begun.hash).unwrap_or_default()
            }
            _ => String::new(),
        };
        Ok(state::judge(current, &invalid, asked, now))
    }

    /// Begins an upload, if it is wanted; what is known of it, and its number.
    async fn begin(
        &self,
        place: &Place,
        begun: &Begun,
        force: bool,
    ) -> Result<(Reason, Option<u128>), Status> {
        let uploads = self.shelf.uploads(place).await?;
        let limits = self.deps.overrides.of(&place.tenant);
        let now = self.now(&limits);
        let reason = self.judged(place, &uploads, Asked { hash: &begun.hash, force }, now).await?;
        if !reason.accepts() {
            return Ok((reason, None));
        }
        let seen = uploads.seen();
        if seen.iter().filter(|upload| upload.is_pending(now)).count() >= PENDING {
            let message = format!(
                "{PENDING} uploads of this file are in progress, which is the limit: finish one, or come again when they \
                 are stale"
            );
            return Err(Status::new(Code::Exhausted, message).because("too_many_uploads"));
        }
        // Of a file whose size nobody said, it is known that it is not empty.
        self.room(&place.tenant, None, limits.max_debuginfo_bytes).await?.check(begun.size.max(1))?;
        self.deps.space.check(UploadKind::Debuginfo, begun.size.max(1)).await?;
        let number = state::number(&seen, now.millis, self.deps.random.id128());
        if !self.shelf.write(&place.note(number, Note::Begun), begun).await? {
            return Err(Status::new(Code::Conflict, "another upload has this number; begin again"));
        }
        self.counts.begun();
        // What is there stays until a later one has ended, whatever else is under way.
        let ended =
            seen.iter().filter(|upload| upload.phase == Phase::Finished).map(|upload| upload.number).max();
        let current = state::current(&seen, now).filter(|upload| upload.phase >= Phase::Finished);
        let stays = [ended, current.map(|upload| upload.number)];
        self.tidy(place, uploads, |upload| upload.is_over(now) && !stays.contains(&Some(upload.number)))
            .await;
        Ok((reason, Some(number)))
    }

    /// What a tenant has room for, beside an upload.
    async fn room(
        &self,
        tenant: &TenantId,
        beside: Option<(&Place, u128)>,
        limit: ByteSize,
    ) -> Result<Room, Status> {
        let seen = if limit.get() == 0 { 0 } else { self.shelf.bytes(tenant, beside).await? };
        Ok(Room { seen, limit })
    }

    /// Takes the bytes of an upload; of the newest that is under way where no number is given.
    async fn receive(&self, place: &Place, number: Option<u128>) -> Result<Receiving, Status> {
        let limits = self.deps.overrides.of(&place.tenant);
        let now = self.now(&limits);
        let seen = self.shelf.uploads(place).await?.seen();
        let pending = seen.iter().filter(|upload| upload.is_pending(now));
        let found = match number {
            Some(number) => pending.into_iter().find(|upload| upload.number == number),
            None => pending.max_by_key(|upload| upload.number),
        };
        let Some(found) = found else { return Err(not_pending(&seen, number)) };
        let turn = self.turn(&place.tenant, limits.max_concurrent_debuginfo_uploads)?;
        let begun: Option<Begun> = self.shelf.read(&place.note(found.number, Note::Begun)).await?;
        let size = begun.ok_or_else(removed)?.size;
        // Many may have begun while there was room for each. What is here of this one was sent before.
        let beside = Some((place, found.number));
        let room = self.room(&place.tenant, beside, limits.max_debuginfo_bytes).await?;
        room.check(size.max(1))?;
        let announced = (size > 0).then_some(size);
        let bounds = Bounds { limit: limits.debuginfo_upload_max_size, announced, room };
        Ok(Receiving::begin(self, place.clone(), found.number, bounds, turn))
    }

    fn turn(&self, tenant: &TenantId, most: u32) -> Result<Turn, Status> {
        let mut sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let count = sending.get(tenant).copied().unwrap_or_default();
        if count >= most {
            let message = format!(
                "{count} uploads of debug information come in here, the limit is {most} \
                 (limits.max_concurrent_debuginfo_uploads): try again"
            );
            return Err(Status::new(Code::Exhausted, message).because("too_many_uploads").after(BUSY));
        }
        sending.insert(tenant.clone(), count + 1);
        Ok(Turn { tenant: tenant.clone(), sending: Arc::clone(&self.sending) })
    }

    /// Ends an upload whose bytes are there, and says whether they are a file of their kind.
    async fn finish(&self, place: &Place, number: Option<u128>) -> Result<bool, Status> {
        let now = self.now(&self.deps.overrides.of(&place.tenant));
        let mut uploads = self.shelf.uploads(place).await?;
        let seen = uploads.seen();
        // One that is late may be removed by whoever begins another one.
        let may_end = |upload: &&Seen| upload.phase >= Phase::Finished || upload.is_pending(now);
        let found = match number {
            Some(number) => seen.iter().filter(may_end).find(|upload| upload.number == number),
            None => seen.iter().filter(|upload| upload.is_pending(now)).max_by_key(|upload| upload.number),
        };
        let Some(Seen { number, phase }) = found.copied() else {
            if seen.iter().all(|upload| upload.phase == Phase::Gone) {
                return Err(Status::new(Code::NotFound, "no upload of this build ID was begun")
                    .because("not_pending"));
            }
            return Err(not_pending(&seen, number));
        };
        match phase {
            Phase::Finished => return Ok(true),
            Phase::Invalid => return Ok(false),
            Phase::Begun => {
                let message = "no file was sent for this upload, or not all of it: send it first";
                return Err(Status::new(Code::Precondition, message).because("not_sent"));
            }
            Phase::Sent | Phase::Gone => {}
        }
        let begun: Option<Begun> = self.shelf.read(&place.note(number, Note::Begun)).await?;
        let sent: Option<Sent> = self.shelf.read(&place.note(number, Note::Sent)).await?;
        let (Some(begun), Some(sent)) = (begun, sent) else {
            return Err(removed());
        };
        let is_valid = sent.is_valid;
        let note = if is_valid { Note::Finished } else { Note::Invalid };
        let attempt = sent.attempt.clone();
        let finished = Finished { begun, sent, finished_millis: now.millis };
        if self.shelf.write(&place.note(number, note), &finished).await? {
            self.counts.finished(is_valid);
        }
        if let Err(error) = self.shelf.keep_only(place, &mut uploads, number, &attempt).await {
            tracing::warn!(%error, build = place.build.as_str(), "parts of an attempt that was cut off are still there");
        }
        self.tidy(place, uploads, |upload| upload.number < number && upload.is_over(now)).await;
        Ok(is_valid)
    }

    /// Removes uploads that nobody needs; what cannot be removed now will be when the next one begins.
    async fn tidy(&self, place: &Place, uploads: Uploads, which: impl Fn(&Seen) -> bool) {
        if let Err(error) = self.shelf.remove(place, uploads, which).await {
            tracing::warn!(%error, build = place.build.as_str(), "an older upload is still there");
        }
    }

    /// All files of a tenant.
    async fn list(&self, tenant: &TenantId) -> Result<Vec<Listed>, Status> {
        let now = self.now(&self.deps.overrides.of(tenant));
        let places = self.shelf.places(tenant, LISTED).await?;
        let current = places.into_iter().filter_map(|(place, uploads)| {
            let seen = state::current(&uploads.seen(), now)?;
            Some((place, seen))
        });
        let read = stream::iter(current).map(|(place, seen)| self.listed(place, seen)).buffered(SIDE_BY_SIDE);
        // One that is gone meanwhile is not there.
        read.try_filter_map(|listed| async { Ok(listed) }).try_collect().await
    }

    async fn listed(&self, place: Place, seen: Seen) -> Result<Option<Listed>, Status> {
        let note = match seen.phase {
            Phase::Finished => Note::Finished,
            Phase::Invalid => Note::Invalid,
            _ => {
                let begun: Option<Begun> = self.shelf.read(&place.note(seen.number, Note::Begun)).await?;
                return Ok(begun.map(|begun| Listed { place, seen, begun, finished: None }));
            }
        };
        let read: Option<Finished> = self.shelf.read(&place.note(seen.number, note)).await?;
        Ok(read.map(|Finished { begun, sent, finished_millis }| Listed {
            place,
            seen,
            begun,
            finished: Some((sent, finished_millis)),
        }))
    }
}

/// Deletes all debug information of a binary from the bucket.
pub async fn delete_debuginfo(store: &Store, tenant: &TenantId, build: &BuildId) -> Result<(), Status> {
    let shelf = Shelf { store: store.clone() };
    for kind in state::Kind::ALL {
        let place = Place { tenant: tenant.clone(), build: build.clone(), kind };
        let uploads = shelf.uploads(&place).await?;
        shelf.remove(&place, uploads, |_| true).await?;
    }
    let below = Prefix::DebuginfoOf(tenant.clone(), build.clone());
    tracing::debug!(%below, "debug information was removed");
    Ok(())
}

fn removed() -> Status {
    Status::new(Code::NotFound, "the upload was removed meanwhile; begin it again")
}

/// Why an upload is none that can go on.
fn not_pending(seen: &[Seen], number: Option<u128>) -> Status {
    let known = |seen: &Seen| Some(seen.number) == number && seen.phase != Phase::Gone;
    match number {
        Some(_) if seen.iter().any(known) => {
            let message = "this upload is finished, or took longer than limits.debuginfo_upload_max_duration: begin another one";
            Status::new(Code::Precondition, message).because("not_pending")
        }
        Some(_) if !seen.is_empty() => {
            let message = "the upload id is none of this file's: take the one that InitiateUpload answered";
            Status::new(Code::Invalid, message).because("unknown_upload")
        }
        _ => {
            let message =
                "no pending upload for this build ID: ask first, with InitiateUpload or ShouldInitiateUpload";
            Status::new(Code::Precondition, message).because("not_pending")
        }
    }
}

#[cfg(test)]
mod tests;
