//! An upload as it comes: in parts to the bucket, so that little of it is in memory.

use athanor_chassis::tasks::Task;
use athanor_chassis::{ByteSize, Code, Status, Tasks};
use athanor_storage::{UploadKind, UploadSpace};
use bytes::{Bytes, BytesMut};
use xxhash_rust::xxh3::Xxh3;

use super::shelf::{Note, Place, Sent, Shelf};
use super::{Counts, Debuginfo, Room, Turn};
use std::sync::Arc;

/// The size of a part: what an upload holds in memory, beside the piece that came last.
pub const PART: usize = 4 << 20;
/// How an ELF file begins.
const ELF: [u8; 4] = *b"\x7fELF";

/// Takes the bytes of one attempt. Dropped before it is [done](Self::done), it removes what it has kept.
pub struct Receiving {
    kept: Kept,
    waits: BytesMut,
    size: u64,
    bounds: Bounds,
    digest: Xxh3,
    begins: BytesMut,
    counts: Arc<Counts>,
    _turn: Turn,
}

/// How many bytes may come.
pub(super) struct Bounds {
    /// The most.
    pub(super) limit: ByteSize,
    /// How many the client said that there are, if it did.
    pub(super) announced: Option<u64>,
    /// What there was room for when it began to come.
    pub(super) room: Room,
}

/// The parts of an attempt, which go with it unless it is done.
struct Kept {
    shelf: Shelf,
    tasks: Tasks,
    space: UploadSpace,
    place: Place,
    number: u128,
    attempt: String,
    parts: u32,
    /// A part on its way. Who leaves meanwhile does not end that: what is removed before it has come would come after.
    under_way: Option<Task<Result<(), Status>>>,
    is_done: bool,
}

impl Receiving {
    pub(super) fn begin(
        debuginfo: &Debuginfo,
        place: Place,
        number: u128,
        bounds: Bounds,
        turn: Turn,
    ) -> Self {
        let kept = Kept {
            shelf: debuginfo.shelf.clone(),
            tasks: debuginfo.deps.tasks.clone(),
            space: debuginfo.deps.space.clone(),
            place,
            number,
            attempt: format!("{:016x}", debuginfo.deps.random.next_u64()),
            parts: 0,
            under_way: None,
            is_done: false,
        };
        Self {
            kept,
            waits: BytesMut::new(),
            size: 0,
            bounds,
            digest: Xxh3::new(),
            begins: BytesMut::with_capacity(ELF.len()),
            counts: Arc::clone(&debuginfo.counts),
            _turn: turn,
        }
    }

    /// Takes more bytes.
    pub async fn push(&mut self, mut bytes: Bytes) -> Result<(), Status> {
        self.size += bytes.len() as u64;
        let limit = self.bounds.limit;
        if self.size > limit.get() {
            let message = format!(
                "the file has over {limit}, which is the limit (limits.debuginfo_upload_max_size): strip what is not needed, \
                 or raise the limit"
            );
            return Err(Status::new(Code::TooLarge, message).because("debuginfo_too_large"));
        }
        self.bounds.room.check(self.size)?;
        self.digest.update(&bytes);
        let wanting = (ELF.len() - self.begins.len()).min(bytes.len());
        self.begins.extend_from_slice(&bytes[..wanting]);
        while self.waits.len() + bytes.len() >= PART {
            let rest = bytes.split_off(PART - self.waits.len());
            self.waits.extend_from_slice(&bytes);
            bytes = rest;
            self.keep().await?;
        }
        self.waits.extend_from_slice(&bytes);
        Ok(())
    }

    /// Refuses a file of which less or more came than was said.
    fn check_size(&self) -> Result<(), Status> {
        let Some(announced) = self.bounds.announced.filter(|announced| *announced != self.size) else {
            return Ok(());
        };
        let message = format!("the file has {} bytes, {announced} were announced: send it again", self.size);
        Err(Status::new(Code::Invalid, message).because("debuginfo_other_size"))
    }

    async fn keep(&mut self) -> Result<(), Status> {
        let part = std::mem::take(&mut self.waits).freeze();
        let reservation = self.kept.space.reserve(UploadKind::Debuginfo, part.len() as u64).await?;
        let key = self.kept.place.part(self.kept.number, &self.kept.attempt, self.kept.parts);
        // From here on it may be there, whatever is heard of it.
        self.kept.parts += 1;
        let shelf = self.kept.shelf.clone();
        let keeping = async move {
            let kept = shelf.keep(&key, part).await;
            drop(reservation);
            kept
        };
        let not_kept =
            |why: String| Status::new(Code::Unavailable, format!("a part of the file was not kept: {why}"));
        let task = self.kept.tasks.spawn("part of an upload", keeping);
        let task = self.kept.under_way.insert(task.map_err(|error| not_kept(error.to_string()))?);
        let kept = task.await.map_err(|error| not_kept(error.to_string()));
        self.kept.under_way = None;
        kept?
    }

    /// All has come: how many bytes.
    pub async fn done(mut self) -> Result<u64, Status> {
        if self.size == 0 {
            let message = "the file is empty; send its bytes";
            return Err(Status::new(Code::Invalid, message).because("debuginfo_empty"));
        }
        self.check_size()?;
        if !self.waits.is_empty() {
            self.keep().await?;
        }
        let Kept { place, number, attempt, parts, .. } = &self.kept;
        let sent = Sent {
            attempt: attempt.clone(),
            parts: *parts,
            size: self.size,
            digest: format!("{:032x}", self.digest.digest128()),
            is_valid: !place.kind.is_elf() || self.begins[..] == ELF,
        };
        let key = place.note(*number, Note::Sent);
        // Written or not, the note may name these parts from here on.
        self.kept.is_done = true;
        if self.kept.shelf.write(&key, &sent).await? {
            self.counts.sent(self.size);
            return Ok(self.size);
        }
        // It came before: by an attempt whose answer was lost, or by one beside this.
        self.kept.is_done = false;
        let before: Option<Sent> = self.kept.shelf.read(&key).await?;
        match before {
            Some(before) if (before.size, &before.digest) == (sent.size, &sent.digest) => Ok(self.size),
            _ => {
                let message = "another file was sent for this upload before; begin another one";
                Err(Status::new(Code::Conflict, message).because("sent_before"))
            }
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.is_done || self.parts == 0 {
            return;
        }
        let (shelf, place, number) = (self.shelf.clone(), self.place.clone(), self.number);
        let (attempt, parts) = (std::mem::take(&mut self.attempt), self.parts);
        let under_way = self.under_way.take();
        let removal = async move {
            if let Some(part) = under_way {
                // Whatever became of it, it has ended.
                let _ = part.await;
            }
            for part in 0..parts {
                let key = place.part(number, &attempt, part);
                if let Err(error) = shelf.store.delete(&key).await {
                    tracing::warn!(%error, "a part of an upload that failed is still there");
                }
            }
        };
        if let Err(error) = self.tasks.spawn("remainder of an upload", removal) {
            tracing::warn!(%error, "parts of an upload that failed are still there");
        }
    }
}
