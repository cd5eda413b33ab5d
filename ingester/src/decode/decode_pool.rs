//! Pool that decodes uploads: about as many at once as there are threads, within a memory budget for decoded
//! ones.
//!
//! The memory of a profile is known only after decoding: a few kilobytes may become many megabytes. So
//! decoding needs a permit, and keeps it until the budget admits the result. A caller that waits for either
//! has sent its decoded uploads before, so that memory always becomes free.

use std::sync::Arc;

use athanor_chassis::memory_budget::{BudgetLimit, MemoryBudget, MemoryReservation};
use athanor_chassis::{ByteSize, ComputePool, CpuActivity, Status, TenantId};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::decode::decoded_upload::DecodedUpload;

/// Maximum decoders that are kept with their memory for the next uploads, and bytes of each.
const MAX_SPARE_UPLOADS: usize = 16;
const MAX_SPARE_UPLOAD_BYTES: usize = 2 << 20;

/// Decoders for all shards of a node.
pub struct DecodePool {
    compute: ComputePool,
    turns: Semaphore,
    budget: Arc<MemoryBudget>,
    spare: Mutex<Vec<DecodedUpload>>,
}

/// Permit to decode one upload.
pub struct DecodePermit<'w> {
    _permit: SemaphorePermit<'w>,
}

impl DecodePool {
    /// Creates a pool with a memory budget of `limit` bytes.
    pub fn new(compute: ComputePool, limit: ByteSize) -> Self {
        // One permit more than threads, so that no thread waits for the next upload.
        let turns = Semaphore::new(compute.parallelism() + 1);
        let budget = MemoryBudget::new(BudgetLimit { limit, setting: "ingester.max_decoded_bytes" });
        Self { compute, turns, budget, spare: Mutex::default() }
    }

    /// Returns a permit, if one is free now.
    pub fn try_acquire(&self) -> Option<DecodePermit<'_>> {
        self.turns.try_acquire().ok().map(|_permit| DecodePermit { _permit })
    }

    /// Waits for the next permit.
    pub async fn acquire_permit(&self) -> DecodePermit<'_> {
        let _permit = self.turns.acquire().await.expect("the semaphore is never closed");
        DecodePermit { _permit }
    }

    /// Decodes an upload of a tenant.
    pub async fn decode_upload(
        &self,
        _: &DecodePermit<'_>,
        tenant: &TenantId,
        read: impl FnOnce(&mut DecodedUpload) -> Result<(), Status> + Send + 'static,
    ) -> Result<DecodedUpload, Status> {
        let mut intake = self.spare.lock().pop().unwrap_or_default();
        let compute = self.compute.for_tenant(tenant);
        let walked = compute.run_as(CpuActivity::Decode, move || {
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

    /// Reserves memory for a decoded upload, if it is free now.
    pub fn try_reserve_memory(&self, intake: &DecodedUpload) -> Option<MemoryReservation> {
        self.budget.try_reserve(intake.memory() as u64).ok()
    }

    /// Reserves memory for a decoded upload, as soon as it is free.
    pub async fn reserve_memory(&self, intake: &DecodedUpload) -> MemoryReservation {
        self.budget.reserve(intake.memory() as u64).await
    }

    /// Returns the memory of a decoder, for the next upload.
    pub fn recycle(&self, mut intake: DecodedUpload) {
        intake.forget(MAX_SPARE_UPLOAD_BYTES);
        let mut spare = self.spare.lock();
        if spare.len() < MAX_SPARE_UPLOADS {
            spare.push(intake);
        }
    }
}
