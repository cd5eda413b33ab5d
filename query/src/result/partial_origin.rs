//! Origins of block results, for query diagnostics.

/// Origin of the result of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartialOrigin {
    /// Memory cache of the node.
    InMemory,
    /// Disk cache of the node.
    OnDisk,
    /// Computation of an equal query in flight.
    Joined,
    /// Files of the block.
    ByReading,
}

/// Number of block results by origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartialOriginCounts {
    /// Results from the memory cache.
    pub memory: u32,
    /// Results from the disk cache.
    pub disk: u32,
    /// Results of equal queries in flight.
    pub joined: u32,
    /// Results computed from block files.
    pub read: u32,
}

impl PartialOriginCounts {
    /// Counts one result.
    pub fn count_origin(&mut self, found: PartialOrigin) {
        match found {
            PartialOrigin::InMemory => self.memory += 1,
            PartialOrigin::OnDisk => self.disk += 1,
            PartialOrigin::Joined => self.joined += 1,
            PartialOrigin::ByReading => self.read += 1,
        }
    }

    /// Adds the counts of others.
    pub fn add(&mut self, other: PartialOriginCounts) {
        let PartialOriginCounts { memory, disk, joined, read } = other;
        self.memory += memory;
        self.disk += disk;
        self.joined += joined;
        self.read += read;
    }
}
