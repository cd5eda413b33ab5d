//! Finds what single blocks answer: what was kept, or else by reading them, and keeps what it found.

use std::sync::{Arc, Mutex, PoisonError};

use athanor_catalog::BlockId;
use athanor_chassis::{CancelFlag, CpuActivity, ErrorCode, Status, TenantId};
use athanor_query::{CanonicalQuery, PartialOrigin, PartialResult, ProfileQuery, run_matched};

use crate::block_reader::{BlockRead, BlockReader, OpenBlock};
use crate::partial_cache::{EncodedPartial, PartialCache, PartialKey};
use crate::single_flight::SingleFlight;

/// A larger answer of a block is not kept: it would take the place of many others.
const MAX_CACHED_PARTIAL_BYTES: usize = 64 << 20;

/// What reads blocks, and what was found.
pub struct BlockQueryRunner {
    /// What it reads.
    pub blocks: Arc<BlockReader>,
    /// What was found, in memory.
    pub answers: PartialCache,
    /// What is being found.
    pub flights: SingleFlight<PartialKey, Result<Arc<ComputedPartial>, Status>>,
}

/// An answer that was just found.
pub struct ComputedPartial {
    /// As it is: for the first of those who wait for it.
    fresh: Mutex<Option<PartialResult>>,
    /// For the others, and for later. None where there is neither, or it is longer than packed answers are.
    pub packed: Option<EncodedPartial>,
    /// What the part of the block took in memory by then.
    pub bytes: u64,
}

/// Where an answer was kept.
enum CachedPartial {
    InMemory(EncodedPartial),
    OnDisk(EncodedPartial),
}

impl BlockQueryRunner {
    /// Finds an answer and keeps it.
    pub async fn compute_and_cache(
        self: Arc<Self>,
        key: PartialKey,
        at: (BlockId, bool),
        ask: Arc<ProfileQuery>,
    ) -> Result<Arc<ComputedPartial>, Status> {
        let reading = Arc::clone(&self);
        let of = key.clone();
        let is_wanted = move || reading.is_caching() || reading.flights.waiter_count(&of) > 1;
        let made = Arc::clone(&self).compute(key.tenant.clone(), at, ask, is_wanted).await?;
        if let Some(packed) = &made.packed {
            if let Some(shelf) = &self.blocks.shelf {
                shelf.enqueue(key.disk_key(), packed.bytes().clone());
            }
            self.answers.insert(key, packed.clone());
        }
        Ok(Arc::new(made))
    }

    /// Whether there is any use in packing an answer for which nobody else waits.
    fn is_caching(&self) -> bool {
        self.answers.is_enabled() || self.blocks.shelf.as_ref().is_some_and(|shelf| shelf.is_enabled())
    }

    /// What was answered before. None where that was not kept, or is damaged.
    pub async fn find_cached(
        &self,
        key: &PartialKey,
        canonical: &Arc<CanonicalQuery>,
    ) -> Option<Result<(PartialResult, PartialOrigin), Status>> {
        let kept = self.read_cached(key).await?;
        let (CachedPartial::InMemory(packed) | CachedPartial::OnDisk(packed)) = &kept;
        match self.decode(&key.tenant, canonical, packed.clone()).await {
            // It is whole, and more than may be asked for.
            Err(status) if status.code != ErrorCode::Invalid => {
                self.remove_damaged(key).await;
                None
            }
            answered => {
                let found = match kept {
                    CachedPartial::InMemory(_) => {
                        self.answers.record_hit();
                        PartialOrigin::InMemory
                    }
                    CachedPartial::OnDisk(_) => {
                        self.answers.record_disk_hit();
                        PartialOrigin::OnDisk
                    }
                };
                Some(answered.map(|partial| (partial, found)))
            }
        }
    }

    /// An answer that was kept, in memory or on disk.
    async fn read_cached(&self, key: &PartialKey) -> Option<CachedPartial> {
        if let Some(packed) = self.answers.get(key) {
            return Some(CachedPartial::InMemory(packed));
        }
        let shelf = self.blocks.shelf.as_ref()?;
        let on_shelf = key.disk_key();
        let place = shelf.find(&on_shelf)?;
        let shelf = Arc::clone(shelf);
        let job = move || shelf.read(&on_shelf, place).map(EncodedPartial::new);
        let compute = self.blocks.compute.for_tenant(&key.tenant);
        let packed = compute.run_as(CpuActivity::Query, job).await.ok().flatten()?;
        self.answers.insert(key.clone(), packed.clone());
        Some(CachedPartial::OnDisk(packed))
    }

    /// Forgets an answer that is none.
    async fn remove_damaged(&self, key: &PartialKey) {
        self.answers.remove_damaged(key);
        let Some(shelf) = self.blocks.shelf.as_ref().map(Arc::clone) else { return };
        let on_shelf = key.disk_key();
        let job = move || shelf.invalidate(&[on_shelf]);
        let _ = self.blocks.compute.run_as(CpuActivity::Query, job).await;
    }

    /// Reads a block. What is computed ends when whoever waits for it leaves. Whether it is to be packed as well is asked
    /// when it is there.
    pub async fn compute(
        self: Arc<Self>,
        tenant: TenantId,
        (block, whole): (BlockId, bool),
        ask: Arc<ProfileQuery>,
        is_packed: impl FnOnce() -> bool + Send + 'static,
    ) -> Result<ComputedPartial, Status> {
        let (stop, _waiting) = CancelFlag::new_pair();
        let compute = self.blocks.compute.for_tenant(&tenant);
        let wanted =
            BlockRead { blocks: Arc::clone(&self.blocks), block, tenant, ask: Arc::clone(&ask), whole };
        let OpenBlock { part, picked, held } =
            wanted.open().await.map_err(|status| with_block_id(block, status))?;
        let source = part.source().with_cancel(stop);
        let bytes = part.memory_bytes() as u64;
        let job = move || {
            let partial = run_matched(&ask, &source, &picked).map_err(|error| Status::from_error(&error))?;
            drop((source, picked, held));
            let may_last = partial.bytes() <= MAX_CACHED_PARTIAL_BYTES && is_packed();
            let packed = may_last.then(|| partial.pack().ok()).flatten();
            let packed = packed.map(|pieces| EncodedPartial::new(pieces.into_bytes()));
            Ok::<_, Status>(ComputedPartial { fresh: Mutex::new(Some(partial)), packed, bytes })
        };
        let done = compute.run_as(CpuActivity::Query, job).await;
        match done.map_err(|error| Status::from_error(&error))? {
            Err(status) if status.code == ErrorCode::DataLoss => {
                self.blocks.invalidate(&part).await;
                Err(with_block_id(block, status))
            }
            made => made,
        }
    }

    pub async fn decode(
        &self,
        tenant: &TenantId,
        canonical: &Arc<CanonicalQuery>,
        packed: EncodedPartial,
    ) -> Result<PartialResult, Status> {
        let canonical = Arc::clone(canonical);
        let job = move || {
            let changed = || Status::new(ErrorCode::DataLoss, "a kept answer is not what was kept");
            let bytes = packed.verified_bytes().ok_or_else(changed)?;
            let partial =
                PartialResult::unpack(bytes, &canonical.ask).map_err(|error| Status::from_error(&error))?;
            Ok(canonical.remap_result(partial))
        };
        let done = self.blocks.compute.for_tenant(tenant).run_as(CpuActivity::Query, job).await;
        done.map_err(|error| Status::from_error(&error))?
    }

    /// An answer as the one that was asked for. There may be many points to be moved.
    pub async fn remap_to_request(
        &self,
        tenant: &TenantId,
        canonical: &Arc<CanonicalQuery>,
        partial: PartialResult,
    ) -> Result<PartialResult, Status> {
        if !canonical.is_shifted() {
            return Ok(partial);
        }
        let canonical = Arc::clone(canonical);
        let compute = self.blocks.compute.for_tenant(tenant);
        let moved = compute.run_as(CpuActivity::Query, move || canonical.remap_result(partial)).await;
        moved.map_err(|error| Status::from_error(&error))
    }
}

/// An error that says which block is damaged.
pub fn with_block_id(block: BlockId, status: Status) -> Status {
    match status.code {
        ErrorCode::DataLoss => Status { message: format!("block {block}: {}", status.message), ..status },
        _ => status,
    }
}

/// A mistake in this program.
pub fn partial_taken_error() -> Status {
    Status::new(ErrorCode::Internal, "an answer was taken by somebody else")
}

impl ComputedPartial {
    /// As it is, for the first who asks for that.
    pub fn take_fresh(&self) -> Option<PartialResult> {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
