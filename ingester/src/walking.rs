//! Walks: about as many at once as there are threads, and no more memory in what was walked than there is room for.
//!
//! What a profile takes is known when it was walked, and a few kilobytes may be many megabytes by then. So a walk needs
//! a turn, and keeps it until there is room for what came of it. Whoever waits for either has handed on before what was
//! walked already: so room always comes free.

use std::sync::{Arc, Mutex};

use athanor_chassis::{Activity, ByteSize, Compute, Status, TenantId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::intake::Intake;
use crate::machine::lock;

/// Walks whose memory is kept for the next uploads, and how much each may keep.
const SPARE: usize = 16;
const SPARE_BYTES: usize = 2 << 20;

/// The walks of all shards of a node.
pub struct Walkers {
    compute: Compute,
    turns: Semaphore,
    room: Arc<Semaphore>,
    kibibytes: u32,
    spare: Mutex<Vec<Intake>>,
}

/// Whoever holds it may walk.
pub struct Turn<'w> {
    _permit: SemaphorePermit<'w>,
}

impl Walkers {
    /// With room for so many bytes.
    pub fn new(compute: Compute, room: ByteSize) -> Self {
        let kibibytes =
            (room.get() / 1024).clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize) as u64) as u32;
        // One more than there are threads, so that none waits for the next walk.
        let turns = Semaphore::new(compute.width() + 1);
        let room = Arc::new(Semaphore::new(kibibytes as usize));
        Self { compute, turns, room, kibibytes, spare: Mutex::default() }
    }

    /// A turn, if one is free now.
    pub fn turn_now(&self) -> Option<Turn<'_>> {
        self.turns.try_acquire().ok().map(|_permit| Turn { _permit })
    }

    /// The next turn.
    pub async fn turn(&self) -> Turn<'_> {
        let _permit = self.turns.acquire().await.expect("the semaphore is never closed");
        Turn { _permit }
    }

    /// Walks an upload of a tenant.
    pub async fn walk(
        &self,
        _: &Turn<'_>,
        tenant: &TenantId,
        read: impl FnOnce(&mut Intake) -> Result<(), Status> + Send + 'static,
    ) -> Result<Intake, Status> {
        let mut intake = lock(&self.spare).pop().unwrap_or_default();
        let compute = self.compute.for_tenant(tenant);
        let walked = compute.run_as(Activity::Walk, move || {
            let read = read(&mut intake);
            (intake, read)
        });
        let (intake, read) = walked.await.map_err(|error| Status::of(&error))?;
        match read {
            Ok(()) => Ok(intake),
            Err(status) => {
                self.give(intake);
                Err(status)
            }
        }
    }

    /// Room for what was walked, if there is some now.
    pub fn room_now(&self, intake: &Intake) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).try_acquire_many_owned(self.needed(intake)).ok()
    }

    /// Room for what was walked, as soon as there is some.
    pub async fn room(&self, intake: &Intake) -> OwnedSemaphorePermit {
        let room = Arc::clone(&self.room).acquire_many_owned(self.needed(intake));
        room.await.expect("the semaphore is never closed")
    }

    /// What takes more than all the room has it alone.
    fn needed(&self, intake: &Intake) -> u32 {
        u32::try_from(intake.memory().div_ceil(1024)).unwrap_or(u32::MAX).min(self.kibibytes)
    }

    /// Gives the memory of a walk back, for the next one.
    pub fn give(&self, mut intake: Intake) {
        intake.forget(SPARE_BYTES);
        let mut spare = lock(&self.spare);
        if spare.len() < SPARE {
            spare.push(intake);
        }
    }
}
