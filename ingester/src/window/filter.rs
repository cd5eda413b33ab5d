//! Which ids a file surely does not hold: fifteen bits for each that it may.

use athanor_profile::hash::Hash;

const BITS: u64 = 15;
/// Bits that an id sets. One of about a thousand ids that are not there finds all of its own set.
const PROBES: u64 = 10;

/// A Bloom filter. Ids are hashes already, so their halves are all that it needs.
#[derive(Debug, Default)]
pub struct Filter {
    words: Vec<u64>,
}

impl Filter {
    /// For so many ids at most.
    pub fn new(most: u64) -> Self {
        Self { words: vec![0; (most.max(1) * BITS).div_ceil(64) as usize] }
    }
    /// From what [`bytes`](Self::bytes) gave.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        Self { words: bytes.chunks(8).map(word).collect() }
    }
    /// As it lies in a file.
    pub fn bytes(&self) -> impl Iterator<Item = u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes())
    }
    /// How many bytes it takes.
    pub fn size(&self) -> usize {
        self.words.len() * 8
    }
    /// Takes an id in.
    pub fn put(&mut self, id: Hash) {
        for bit in self.bits(id) {
            self.words[(bit / 64) as usize] |= 1 << (bit % 64);
        }
    }
    /// Whether an id may be there.
    pub fn may_hold(&self, id: Hash) -> bool {
        self.bits(id).all(|bit| self.words[(bit / 64) as usize] & 1 << (bit % 64) != 0)
    }
    fn bits(&self, id: Hash) -> impl Iterator<Item = u64> + use<> {
        let (at, step, bits) = (id as u64, (id >> 64) as u64 | 1, self.words.len() as u64 * 64);
        (0..PROBES).map(move |probe| {
            let place = at.wrapping_add(step.wrapping_mul(probe));
            ((u128::from(place) * u128::from(bits)) >> 64) as u64
        })
    }
}

#[cfg(test)]
mod tests {
    use athanor_profile::hash;

    use super::*;

    #[test]
    fn what_was_put_in_may_be_there_and_little_else() {
        let id = |number: u32| hash::bytes(&number.to_le_bytes());
        let mut filter = Filter::new(20_000);
        (0..20_000).for_each(|number| filter.put(id(number)));
        let filter = Filter::from_bytes(&filter.bytes().collect::<Vec<u8>>());
        assert!((0..20_000).all(|number| filter.may_hold(id(number))));
        let wrong = (20_000..220_000).filter(|&number| filter.may_hold(id(number))).count();
        assert!(wrong < 400, "{wrong} of 200000");
        assert!(filter.size() < 20_000 * 2);
        assert!(!Filter::from_bytes(&Filter::new(0).bytes().collect::<Vec<u8>>()).may_hold(1));
    }
}
