//! Receiver of one upload: writes it to the bucket in parts, so that only one part is in memory.

use athanor_chassis::tasks::TaskHandle;
use athanor_chassis::{ByteSize, ErrorCode, Status, TaskGroup};
use athanor_storage::{UploadKind, UploadSpace};
use bytes::{Bytes, BytesMut};
use xxhash_rust::xxh3::Xxh3;

use super::store::{DebuginfoKey, DebuginfoStore, ReceivedUpload, UploadMarker};
use super::{DebuginfoCounters, DebuginfoQuota, DebuginfoService, UploadPermit};
use std::sync::Arc;

/// Size of a part in bytes. An upload holds one part in memory, and the last received chunk.
pub const UPLOAD_PART_BYTES: usize = 4 << 20;
/// Magic bytes of an ELF file.
const ELF_MAGIC: [u8; 4] = *b"\x7fELF";

/// Receiver of the bytes of one attempt. If it is dropped before it is [complete](Self::complete), it removes
/// its parts.
pub struct UploadReceiver {
    kept: UploadedParts,
    waits: BytesMut,
    size: u64,
    bounds: UploadSizeLimits,
    digest: Xxh3,
    begins: BytesMut,
    counts: Arc<DebuginfoCounters>,
    _turn: UploadPermit,
}

/// Limits of the size of one upload.
pub(super) struct UploadSizeLimits {
    /// Maximum size from the tenant's limits.
    pub(super) limit: ByteSize,
    /// Size that the client announced, if it did.
    pub(super) announced: Option<u64>,
    /// Tenant quota when the attempt began.
    pub(super) room: DebuginfoQuota,
}

/// Stored parts of an attempt. Removed on drop, unless the attempt is done.
struct UploadedParts {
    shelf: DebuginfoStore,
    tasks: TaskGroup,
    space: UploadSpace,
    place: DebuginfoKey,
    number: u128,
    attempt: String,
    parts: u32,
    /// Write of a part in flight. A disconnect does not cancel it, because a part written after the removal
    /// would stay.
    under_way: Option<TaskHandle<Result<(), Status>>>,
    is_done: bool,
}

impl UploadReceiver {
    pub(super) fn begin(
        debuginfo: &DebuginfoService,
        place: DebuginfoKey,
        number: u128,
        bounds: UploadSizeLimits,
        turn: UploadPermit,
    ) -> Self {
        let kept = UploadedParts {
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
            begins: BytesMut::with_capacity(ELF_MAGIC.len()),
            counts: Arc::clone(&debuginfo.counts),
            _turn: turn,
        }
    }

    /// Appends received bytes and stores each full part.
    pub async fn push(&mut self, mut bytes: Bytes) -> Result<(), Status> {
        self.size += bytes.len() as u64;
        let limit = self.bounds.limit;
        if self.size > limit.get() {
            let message = format!(
                "the file has more than {limit}, the limit (limits.debuginfo_max_file_bytes); strip unneeded sections, \
                 or raise the limit"
            );
            return Err(Status::new(ErrorCode::TooLarge, message).with_reason("debuginfo_too_large"));
        }
        self.bounds.room.check_size(self.size)?;
        self.digest.update(&bytes);
        let wanting = (ELF_MAGIC.len() - self.begins.len()).min(bytes.len());
        self.begins.extend_from_slice(&bytes[..wanting]);
        while self.waits.len() + bytes.len() >= UPLOAD_PART_BYTES {
            let rest = bytes.split_off(UPLOAD_PART_BYTES - self.waits.len());
            self.waits.extend_from_slice(&bytes);
            bytes = rest;
            self.store_part().await?;
        }
        self.waits.extend_from_slice(&bytes);
        Ok(())
    }

    /// Rejects a file with a size that differs from the announced size.
    fn check_size(&self) -> Result<(), Status> {
        let Some(announced) = self.bounds.announced.filter(|announced| *announced != self.size) else {
            return Ok(());
        };
        let message = format!(
            "the file has {} bytes, {announced} were announced; send the file with the announced size",
            self.size
        );
        Err(Status::new(ErrorCode::Invalid, message).with_reason("size_mismatch"))
    }

    async fn store_part(&mut self) -> Result<(), Status> {
        let part = std::mem::take(&mut self.waits).freeze();
        let reservation = self.kept.space.reserve(UploadKind::Debuginfo, part.len() as u64).await?;
        let key = self.kept.place.part_key(self.kept.number, &self.kept.attempt, self.kept.parts);
        // From here on the part may exist, even if the write reports an error.
        self.kept.parts += 1;
        let shelf = self.kept.shelf.clone();
        let keeping = async move {
            let kept = shelf.put_part(&key, part).await;
            drop(reservation);
            kept
        };
        let not_kept = |why: String| {
            Status::new(ErrorCode::Unavailable, format!("failed to store a part of the file: {why}"))
        };
        let task = self.kept.tasks.spawn("debuginfo part upload", keeping);
        let task = self.kept.under_way.insert(task.map_err(|error| not_kept(error.to_string()))?);
        let kept = task.await.map_err(|error| not_kept(error.to_string()));
        self.kept.under_way = None;
        kept?
    }

    /// Completes the attempt. Returns the size of the file in bytes.
    pub async fn complete(mut self) -> Result<u64, Status> {
        if self.size == 0 {
            let message = "the file is empty; send its bytes";
            return Err(Status::new(ErrorCode::Invalid, message).with_reason("debuginfo_empty"));
        }
        self.check_size()?;
        if !self.waits.is_empty() {
            self.store_part().await?;
        }
        let UploadedParts { place, number, attempt, parts, .. } = &self.kept;
        let sent = ReceivedUpload {
            attempt: attempt.clone(),
            parts: *parts,
            size: self.size,
            digest: format!("{:032x}", self.digest.digest128()),
            is_valid: !place.kind.is_elf() || self.begins[..] == ELF_MAGIC,
        };
        let key = place.marker_key(*number, UploadMarker::Received);
        // Even if the write fails, the marker may refer to these parts from here on.
        self.kept.is_done = true;
        if self.kept.shelf.write_marker(&key, &sent).await? {
            self.counts.record_received(self.size);
            return Ok(self.size);
        }
        // The marker exists already: a previous attempt lost its response, or a concurrent attempt wrote it.
        self.kept.is_done = false;
        let before: Option<ReceivedUpload> = self.kept.shelf.read_marker(&key).await?;
        match before {
            Some(before) if (before.size, &before.digest) == (sent.size, &sent.digest) => Ok(self.size),
            _ => {
                let message = "another file was already received for this upload; start another upload";
                Err(Status::new(ErrorCode::Conflict, message).with_reason("already_received"))
            }
        }
    }
}

impl Drop for UploadedParts {
    fn drop(&mut self) {
        if self.is_done || self.parts == 0 {
            return;
        }
        let shelf = self.shelf.clone();
        let place = self.place.clone();
        let number = self.number;
        let attempt = std::mem::take(&mut self.attempt);
        let parts = self.parts;
        let under_way = self.under_way.take();
        let removal = async move {
            if let Some(part) = under_way {
                // The outcome is irrelevant here, only the end of the write matters.
                let _ = part.await;
            }
            for part in 0..parts {
                let key = place.part_key(number, &attempt, part);
                if let Err(error) = shelf.store.delete(&key).await {
                    tracing::warn!(%error, "failed to remove a part of a failed upload");
                }
            }
        };
        if let Err(error) = self.tasks.spawn("debuginfo part removal", removal) {
            tracing::warn!(%error, "failed to start the removal of the parts of a failed upload");
        }
    }
}
