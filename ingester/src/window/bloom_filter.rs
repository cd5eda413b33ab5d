//! Bloom filter of the ids in a file: fifteen bits an id.

use athanor_profile::encoding::hash::ContentHash;

const BITS_PER_ID: u64 = 15;
/// Bits that an id sets. About one of a thousand absent ids finds all of its bits set.
const PROBES_PER_ID: u64 = 10;

/// Bloom filter. IDs are hashes already, so their halves serve as its hash functions.
#[derive(Debug, Default)]
pub struct BloomFilter {
    words: Vec<u64>,
}

impl BloomFilter {
    /// Creates a filter for at most `most` ids.
    pub fn new(most: u64) -> Self {
        Self { words: vec![0; (most.max(1) * BITS_PER_ID).div_ceil(64) as usize] }
    }
    /// Decodes a filter from its [`bytes`](Self::bytes).
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        Self { words: bytes.chunks(8).map(word).collect() }
    }
    /// Returns the bytes that a file contains.
    pub fn bytes(&self) -> impl Iterator<Item = u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes())
    }
    /// Returns the memory of the filter, bytes.
    pub fn size(&self) -> usize {
        self.words.len() * 8
    }
    /// Adds an id to the filter.
    pub fn put(&mut self, id: ContentHash) {
        for bit in self.bits(id) {
            self.words[(bit / 64) as usize] |= 1 << (bit % 64);
        }
    }
    /// Returns whether the filter may contain an id; false is certain.
    pub fn may_contain(&self, id: ContentHash) -> bool {
        self.bits(id).all(|bit| self.words[(bit / 64) as usize] & 1 << (bit % 64) != 0)
    }
    fn bits(&self, id: ContentHash) -> impl Iterator<Item = u64> + use<> {
        let at = id as u64;
        let step = (id >> 64) as u64 | 1;
        let bits = self.words.len() as u64 * 64;
        (0..PROBES_PER_ID).map(move |probe| {
            let place = at.wrapping_add(step.wrapping_mul(probe));
            ((u128::from(place) * u128::from(bits)) >> 64) as u64
        })
    }
}

#[cfg(test)]
mod tests {
    use athanor_profile::encoding::hash;

    use super::*;

    #[test]
    fn what_was_put_in_may_be_there_and_little_else() {
        let id = |number: u32| hash::hash_bytes(&number.to_le_bytes());
        let mut filter = BloomFilter::new(20_000);
        (0..20_000).for_each(|number| filter.put(id(number)));
        let filter = BloomFilter::from_bytes(&filter.bytes().collect::<Vec<u8>>());
        assert!((0..20_000).all(|number| filter.may_contain(id(number))));
        let wrong = (20_000..220_000).filter(|&number| filter.may_contain(id(number))).count();
        assert!(wrong < 400, "{wrong} of 200000");
        assert!(filter.size() < 20_000 * 2);
        assert!(!BloomFilter::from_bytes(&BloomFilter::new(0).bytes().collect::<Vec<u8>>()).may_contain(1));
    }
}
