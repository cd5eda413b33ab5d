//! Parts of blocks that were read: blocks never change, so what was read stays true.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use athanor_catalog::BlockId;
use athanor_chassis::{ByteSize, TenantId};

use crate::blocks::Part;

/// Parts by block and tenant, within a bound of memory. The one that was asked for longest ago goes first.
#[derive(Debug)]
pub struct Parts {
    limit: ByteSize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    parts: BTreeMap<(BlockId, TenantId), (u64, Part)>,
    clock: u64,
    hits: u64,
    misses: u64,
    evicted: u64,
}

/// How useful it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Parts that were there.
    pub hits: u64,
    /// Parts that were not.
    pub misses: u64,
    /// Parts that made room for others.
    pub evicted: u64,
    /// Parts that are there.
    pub parts: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many bytes there may be.
    pub limit: u64,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").field("parts", &self.parts.len()).finish()
    }
}

impl Parts {
    /// At most so many bytes.
    pub fn new(limit: ByteSize) -> Self {
        Self { limit, kept: Mutex::default() }
    }

    /// A part that was read before.
    pub fn get(&self, block: BlockId, tenant: &TenantId) -> Option<Part> {
        let mut kept = self.lock();
        kept.clock += 1;
        let now = kept.clock;
        let found = kept.parts.get_mut(&(block, tenant.clone())).map(|(used, part)| {
            *used = now;
            part.clone()
        });
        *(if found.is_some() { &mut kept.hits } else { &mut kept.misses }) += 1;
        found
    }

    /// How useful it is so far.
    pub fn stats(&self) -> CacheStats {
        let kept = self.lock();
        let Kept { hits, misses, evicted, .. } = *kept;
        let bytes = kept.parts.values().map(|(_, part)| part.bytes() as u64).sum();
        CacheStats { hits, misses, evicted, parts: kept.parts.len() as u64, bytes, limit: self.limit.get() }
    }

    /// Keeps a part.
    pub fn put(&self, block: BlockId, tenant: TenantId, part: Part) {
        let mut kept = self.lock();
        kept.clock += 1;
        let now = kept.clock;
        kept.parts.insert((block, tenant), (now, part));
        self.trim(&mut kept);
    }

    /// Lets go of a part.
    pub fn forget(&self, block: BlockId, tenant: &TenantId) {
        self.lock().parts.remove(&(block, tenant.clone()));
    }

    /// Counts parts as they are now: they grow while they are read.
    pub fn settle(&self) {
        self.trim(&mut self.lock());
    }

    fn trim(&self, kept: &mut Kept) {
        let mut bytes: u64 = kept.parts.values().map(|(_, part)| part.bytes() as u64).sum();
        while bytes > self.limit.get() && !kept.parts.is_empty() {
            let oldest = kept.parts.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
            let Some((_, part)) = oldest.and_then(|key| kept.parts.remove(&key)) else { break };
            bytes -= (part.bytes() as u64).min(bytes);
            kept.evicted += 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
