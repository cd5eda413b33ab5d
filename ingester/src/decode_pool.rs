//! Walks: about as many at once as there are threads, and no more memory in what was walked than there is room for.
//!
//! What a profile takes is known when it was walked, and a few kilobytes may be many megabytes by then. So a walk needs
//! a turn, and keeps it until there is room for what came of it. Whoever waits for either has handed on before what was
//! walked already: so room always comes free.

use std::sync::{Arc, Mutex};

use athanor_chassis::{ByteSize, ComputePool, CpuActivity, Status, TenantId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::decoded_upload::DecodedUpload;
use crate::state_machine::lock;

/// Walks whose memory is kept for the next uploads, and how much each may keep.
const MAX_SPARE_UPLOADS: usize = 16;
const MAX_SPARE_UPLOAD_BYTES: usize = 2 << 20;

/// The walks of all shards of a node.
pub struct DecodePool {
    compute: ComputePool,
    turns: Semaphore,
    room: Arc<Semaphore>,
    kibibytes: u32,
    spare: Mutex<Vec<DecodedUpload>>,
}

/// Whoever holds it may walk.
pub struct DecodePermit<'w> {
    _permit: SemaphorePermit<'w>,
}

impl DecodePool {
    /// With room for so many bytes.
    pub fn new(compute: ComputePool, room: ByteSize) -> Self {
        let kibibytes =
            (room.get() / 1024).clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize) as u64) as u32;
        // One more than there are threads, so that none waits for the next walk.
        let turns = Semaphore::new(compute.parallelism() + 1);
        let room = Arc::new(Semaphore::new(kibibytes as usize));
        Self { compute, turns, room, kibibytes, spare: Mutex::default() }
    }

    /// A turn, if one is free now.
    pub fn try_acquire(&self) -> Option<DecodePermit<'_>> {
        self.turns.try_acquire().ok().map(|_permit| DecodePermit { _permit })
    }

    /// The next turn.
    pub async fn acquire_permit(&self) -> DecodePermit<'_> {
        let _permit = self.turns.acquire().await.expect("the semaphore is never closed");
        DecodePermit { _permit }
    }

    /// Walks an upload of a tenant.
    pub async fn decode_upload(
        &self,
        _: &DecodePermit<'_>,
        tenant: &TenantId,
        read: impl FnOnce(&mut DecodedUpload) -> Result<(), Status> + Send + 'static,
    ) -> Result<DecodedUpload, Status> {
        let mut intake = lock(&self.spare).pop().unwrap_or_default();
        let compute = self.compute.for_tenant(tenant);
        let walked = compute.run_as(CpuActivity::Walk, move || {
            let read = read(&mut intake);
            (intake, read)
        });
        let (intake, read) = walked.await.map_err(|error| Status::from_error(&error))?;
        match read {
            Ok(()) => Ok(intake),
            Err(status) => {
                self.recycle(intake);
                Err(status)
            }
        }
    }

    /// Room for what was walked, if there is some now.
    pub fn try_reserve_memory(&self, intake: &DecodedUpload) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).try_acquire_many_owned(self.needed(intake)).ok()
    }

    /// Room for what was walked, as soon as there is some.
    pub async fn reserve_memory(&self, intake: &DecodedUpload) -> OwnedSemaphorePermit {
        let room = Arc::clone(&self.room).acquire_many_owned(self.needed(intake));
        room.await.expect("the semaphore is never closed")
    }

    /// What takes more than all the room has it alone.
    fn needed(&self, intake: &DecodedUpload) -> u32 {
        u32::try_from(intake.memory().div_ceil(1024)).unwrap_or(u32::MAX).min(self.kibibytes)
    }

    /// Gives the memory of a walk back, for the next one.
    pub fn recycle(&self, mut intake: DecodedUpload) {
        intake.forget(MAX_SPARE_UPLOAD_BYTES);
        let mut spare = lock(&self.spare);
        if spare.len() < MAX_SPARE_UPLOADS {
            spare.push(intake);
        }
    }
}
