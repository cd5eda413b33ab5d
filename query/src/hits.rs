//! Where answers of blocks came from: told to who wants to know why a query was slow.

/// Where the answer of a block came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
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
pub struct Hits {
    /// They were kept in memory.
    pub memory: u32,
    /// They were kept on disk.
    pub disk: u32,
    /// Equal questions were being answered.
    pub joined: u32,
    /// Blocks were read.
    pub read: u32,
}

impl Hits {
    /// With one more.
    pub fn count(&mut self, found: Found) {
        match found {
            Found::InMemory => self.memory += 1,
            Found::OnDisk => self.disk += 1,
            Found::Joined => self.joined += 1,
            Found::ByReading => self.read += 1,
        }
    }

    /// With those of others.
    pub fn add(&mut self, other: Hits) {
        let Hits { memory, disk, joined, read } = other;
        self.memory += memory;
        self.disk += disk;
        self.joined += joined;
        self.read += read;
    }
}
