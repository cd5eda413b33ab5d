//! Queries of single blocks: returns cached results, or reads the block and caches the result.

use std::sync::Arc;

use athanor_catalog::BlockId;
use athanor_chassis::{CancelFlag, CpuActivity, ErrorCode, SingleFlight, Status, TenantId};
use athanor_query::{CanonicalQuery, PartialOrigin, PartialResult, ProfileQuery, run_matched};
use parking_lot::Mutex;

use crate::block_reader::{BlockRead, BlockReader, OpenBlock};
use crate::part_location::PartLocation;
use crate::partial_cache::{EncodedPartial, PartialCache, PartialKey};

/// Size above which a result is not cached: a larger one would evict many others.
const MAX_CACHED_PARTIAL_BYTES: usize = 64 << 20;

/// Runner of block queries with its result cache.
pub struct BlockQueryRunner {
    /// Reader of the blocks.
    pub blocks: Arc<BlockReader>,
    /// Cache of results in memory.
    pub answers: PartialCache,
    /// Single flight of results that are being computed.
    pub flights: SingleFlight<PartialKey, Result<Arc<ComputedPartial>, Status>>,
}

/// Partial result that was just computed.
pub struct ComputedPartial {
    /// Result before packing, for the first waiter that takes it.
    fresh: Mutex<Option<PartialResult>>,
    /// Packed result for the other waiters and for the caches. None if neither needs it or if it is too
    /// large.
    pub packed: Option<EncodedPartial>,
    /// Memory of the part of the block after the read, in bytes.
    pub bytes: u64,
}

/// Cached result by the cache that held it.
enum CachedPartial {
    InMemory(EncodedPartial),
    OnDisk(EncodedPartial),
}

impl BlockQueryRunner {
    /// Computes a result and caches it.
    pub async fn compute_and_cache(
        self: Arc<Self>,
        key: PartialKey,
        location: PartLocation,
        whole: bool,
        ask: Arc<ProfileQuery>,
    ) -> Result<Arc<ComputedPartial>, Status> {
        let reading = Arc::clone(&self);
        let of = key.clone();
        let is_wanted = move || reading.is_caching() || reading.flights.waiter_count(&of) > 1;
        let made = Arc::clone(&self).compute(location, whole, ask, is_wanted).await?;
        if let Some(packed) = &made.packed {
            if let Some(shelf) = &self.blocks.shelf {
                shelf.enqueue(key.disk_key(), packed.bytes().clone());
            }
            self.answers.insert(key, packed.clone());
        }
        Ok(Arc::new(made))
    }

    /// Returns whether a cache exists. Without one, a result is packed only for further waiters.
    fn is_caching(&self) -> bool {
        self.answers.is_enabled() || self.blocks.shelf.as_ref().is_some_and(|shelf| shelf.is_enabled())
    }

    /// Returns a cached result. Returns None if it is not cached or is damaged.
    pub async fn find_cached(
        &self,
        key: &PartialKey,
        canonical: &Arc<CanonicalQuery>,
    ) -> Option<Result<(PartialResult, PartialOrigin), Status>> {
        let kept = self.read_cached(key).await?;
        let (CachedPartial::InMemory(packed) | CachedPartial::OnDisk(packed)) = &kept;
        match self.decode(&key.tenant, canonical, packed.clone()).await {
            // An invalid-request error means that the result is intact but exceeds a query limit.
            Err(status) if status.code != ErrorCode::Invalid => {
                self.remove_damaged(key).await;
                None
            }
            answered => {
                let found = match kept {
                    CachedPartial::InMemory(_) => {
                        self.answers.record_hit();
                        PartialOrigin::Memory
                    }
                    CachedPartial::OnDisk(_) => {
                        self.answers.record_disk_hit();
                        PartialOrigin::Disk
                    }
                };
                Some(answered.map(|partial| (partial, found)))
            }
        }
    }

    /// Looks a result up in memory, then on disk.
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

    /// Removes a damaged result from memory and disk.
    async fn remove_damaged(&self, key: &PartialKey) {
        self.answers.remove_damaged(key);
        let Some(shelf) = self.blocks.shelf.as_ref().map(Arc::clone) else { return };
        let on_shelf = key.disk_key();
        let job = move || shelf.invalidate(&[on_shelf]);
        let _ = self.blocks.compute.run_as(CpuActivity::Query, job).await;
    }

    /// Reads a block and runs the query. The computation is cancelled when its last waiter leaves.
    /// `is_packed` decides after the computation whether the result is packed as well.
    pub async fn compute(
        self: Arc<Self>,
        location: PartLocation,
        whole: bool,
        ask: Arc<ProfileQuery>,
        is_packed: impl FnOnce() -> bool + Send + 'static,
    ) -> Result<ComputedPartial, Status> {
        let (stop, _waiting) = CancelFlag::new_pair();
        let compute = self.blocks.compute.for_tenant(&location.tenant);
        let block = location.block;
        let wanted = BlockRead { blocks: Arc::clone(&self.blocks), location, ask: Arc::clone(&ask), whole };
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
            let changed = || Status::new(ErrorCode::DataLoss, "cached partial result has a wrong checksum");
            let bytes = packed.verified_bytes().ok_or_else(changed)?;
            let partial =
                PartialResult::unpack(bytes, &canonical.ask).map_err(|error| Status::from_error(&error))?;
            canonical.remap_result(partial).map_err(|error| Status::from_error(&error))
        };
        let done = self.blocks.compute.for_tenant(tenant).run_as(CpuActivity::Query, job).await;
        done.map_err(|error| Status::from_error(&error))?
    }

    /// Converts a result of the canonical query to the request. Moving many points takes time, so it runs on
    /// a compute thread.
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
        moved.map_err(|error| Status::from_error(&error))?.map_err(|error| Status::from_error(&error))
    }
}

/// Adds the block id to the message of a damage error.
pub fn with_block_id(block: BlockId, status: Status) -> Status {
    match status.code {
        ErrorCode::DataLoss => Status { message: format!("block {block}: {}", status.message), ..status },
        _ => status,
    }
}

/// Returns the error for a result that was already taken, which is a bug.
pub fn partial_taken_error() -> Status {
    Status::new(ErrorCode::Internal, "partial result was already taken")
}

impl ComputedPartial {
    /// Takes the unpacked result. Only the first call returns it.
    pub fn take_fresh(&self) -> Option<PartialResult> {
        self.fresh.lock().take()
    }
}
