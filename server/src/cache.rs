//! Parts of blocks that were read: blocks never change, so what was read stays true.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use athanor_block::PartSource;
use athanor_catalog::BlockId;
use athanor_chassis::{ByteSize, TenantId};

/// Parts by block and tenant, within a bound of memory. The one that was asked for longest ago goes first.
#[derive(Debug)]
pub struct Parts {
    limit: ByteSize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    parts: BTreeMap<(BlockId, TenantId), (u64, PartSource)>,
    clock: u64,
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
    pub fn get(&self, block: BlockId, tenant: &TenantId) -> Option<PartSource> {
        let mut kept = self.lock();
        kept.clock += 1;
        let now = kept.clock;
        let (used, part) = kept.parts.get_mut(&(block, tenant.clone()))?;
        *used = now;
        Some(part.clone())
    }

    /// Keeps a part. Those that grew since they were kept count as they are now.
    pub fn put(&self, block: BlockId, tenant: TenantId, part: PartSource) {
        let mut kept = self.lock();
        kept.clock += 1;
        let now = kept.clock;
        kept.parts.insert((block, tenant), (now, part));
        let mut bytes: u64 = kept.parts.values().map(|(_, part)| part.bytes() as u64).sum();
        while bytes > self.limit.get() && kept.parts.len() > 1 {
            let oldest = kept.parts.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
            let Some((_, part)) = oldest.and_then(|key| kept.parts.remove(&key)) else { break };
            bytes -= (part.bytes() as u64).min(bytes);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
