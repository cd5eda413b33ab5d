//! Origins of block results, for query diagnostics.

/// Origin of the result of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartialOrigin {
    /// Memory cache of the node.
    Memory,
    /// Disk cache of the node.
    Disk,
    /// Shared computation of an identical concurrent query.
    Coalesced,
    /// Computation from the files of the block.
    Computed,
}

/// Number of block results by origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartialOriginCounts {
    /// Results from the memory cache.
    pub memory: u32,
    /// Results from the disk cache.
    pub disk: u32,
    /// Results shared with identical concurrent queries.
    pub coalesced: u32,
    /// Results computed from block files.
    pub computed: u32,
}

impl PartialOriginCounts {
    /// Counts one result.
    pub fn count_origin(&mut self, origin: PartialOrigin) {
        match origin {
            PartialOrigin::Memory => self.memory += 1,
            PartialOrigin::Disk => self.disk += 1,
            PartialOrigin::Coalesced => self.coalesced += 1,
            PartialOrigin::Computed => self.computed += 1,
        }
    }

    /// Adds the counts of others.
    pub fn add(&mut self, other: PartialOriginCounts) {
        let PartialOriginCounts { memory, disk, coalesced, computed } = other;
        self.memory += memory;
        self.disk += disk;
        self.coalesced += coalesced;
        self.computed += computed;
    }
}
