//! Where answers of blocks came from: told to who wants to know why a query was slow.

/// Where the answer of a block came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartialOrigin {
    /// It was kept in memory.
    InMemory,
    /// It was kept on disk.
    OnDisk,
    /// An equal question was being answered.
    Joined,
    /// The block was read.
    ByReading,
}

/// How many answers of blocks came from where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartialOriginCounts {
    /// They were kept in memory.
    pub memory: u32,
    /// They were kept on disk.
    pub disk: u32,
    /// Equal questions were being answered.
    pub joined: u32,
    /// Blocks were read.
    pub read: u32,
}

impl PartialOriginCounts {
    /// With one more.
    pub fn count_origin(&mut self, found: PartialOrigin) {
        match found {
            PartialOrigin::InMemory => self.memory += 1,
            PartialOrigin::OnDisk => self.disk += 1,
            PartialOrigin::Joined => self.joined += 1,
            PartialOrigin::ByReading => self.read += 1,
        }
    }

    /// With those of others.
    pub fn add(&mut self, other: PartialOriginCounts) {
        let PartialOriginCounts { memory, disk, joined, read } = other;
        self.memory += memory;
        self.disk += disk;
        self.joined += joined;
        self.read += read;
    }
}
