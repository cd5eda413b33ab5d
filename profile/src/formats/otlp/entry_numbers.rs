//! Numbering of the entries that one pprof refers to, in the order of first use. Clearing costs as much as
//! was used.

/// Numbers of a table's entries in one pprof, starting at 1.
pub(super) struct EntryNumbers {
    /// Number by index in the table; 0 for entries without a number.
    of: Vec<u32>,
    used: Vec<u32>,
}

impl EntryNumbers {
    pub(super) fn new(length: usize) -> Self {
        EntryNumbers { of: vec![0; length], used: Vec::new() }
    }
    /// Returns the number of an entry, if it has one.
    #[inline(always)]
    pub(super) fn get(&self, index: u64) -> Option<u64> {
        match self.of.get(index as usize) {
            Some(&known) if known != 0 => Some(u64::from(known)),
            _ => None,
        }
    }
    /// Sets the number of an entry, if the table has that index.
    pub(super) fn put(&mut self, index: u64, number: u64) {
        if let Some(place) = self.of.get_mut(index as usize) {
            *place = number as u32;
            self.used.push(index as u32);
        }
    }
    /// Gives an entry the next number.
    pub(super) fn add(&mut self, index: u64) -> u64 {
        let number = self.used.len() as u64 + 1;
        self.put(index, number);
        number
    }
    pub(super) fn clear(&mut self) {
        self.used.drain(..).for_each(|index| self.of[index as usize] = 0);
    }
}

/// Cache of encoded bytes that samples repeat, by their table entry.
pub(super) struct EncodedEntries {
    numbers: EntryNumbers,
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

impl EncodedEntries {
    pub(super) fn new(length: usize) -> Self {
        EncodedEntries { numbers: EntryNumbers::new(length), ends: vec![0], bytes: Vec::new() }
    }
    #[inline(always)]
    pub(super) fn get(&self, index: u64) -> Option<&[u8]> {
        let number = self.numbers.get(index)? as usize;
        Some(&self.bytes[self.ends[number - 1]..self.ends[number]])
    }
    pub(super) fn add(&mut self, index: u64, write: impl FnOnce(&mut Vec<u8>)) {
        self.numbers.add(index);
        write(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }
    pub(super) fn clear(&mut self) {
        self.numbers.clear();
        self.ends.truncate(1);
        self.bytes.clear();
    }
}
