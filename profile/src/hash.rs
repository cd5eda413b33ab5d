//! Content hashes: 128 bits that name a string, a function, a location or a stack by what it is.
//!
//! They are xxh3, not cryptographic: whoever forges a collision can only confuse profiles of their own
//! tenant, because no dictionary and no id window is shared between tenants.
//!
//! Time is shared, though. Keys that meet in one place of a map cost as much as there are of them, each time. Content
//! hashes that meet so have to be searched for one by one; numbers that a client writes down itself can be computed.
//! So maps of such numbers are [`SeededMap`]s.

use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

use xxhash_rust::xxh3::{xxh3_128, xxh3_128_with_seed};

/// A 128-bit content hash.
pub type ContentHash = u128;

/// Hashes plain bytes.
pub fn hash_bytes(content: &[u8]) -> ContentHash {
    xxh3_128(content)
}

/// Hashes bytes within a domain, so that equal bytes of different meaning get different hashes.
pub fn hash_tagged(domain: u64, content: &[u8]) -> ContentHash {
    xxh3_128_with_seed(content, domain)
}

/// Hashes a list of hashes, in its order.
pub fn hash_list(hashes: &[ContentHash]) -> ContentHash {
    xxh3_128(bytemuck::cast_slice(hashes))
}

/// A map whose keys are already hashes, or numbers that were given here: hashing them again would be waste.
pub type PrehashedMap<K, V> = hashbrown::HashMap<K, V, BuildHasherDefault<FoldHasher>>;

/// A set of such.
pub type PrehashedSet<K> = hashbrown::HashSet<K, BuildHasherDefault<FoldHasher>>;

/// A map whose keys are numbers that a client chose. Its hash is drawn, so that nobody can choose keys that meet.
pub type SeededMap<K, V> = hashbrown::HashMap<K, V, SeededHashBuilder>;

/// Bytes that a list has taken.
pub fn vec_memory<T>(list: &Vec<T>) -> usize {
    list.capacity() * size_of::<T>()
}

/// What an allocation of so many bytes takes: whoever has very many small ones has mostly that.
pub fn allocation_bytes(bytes: usize) -> usize {
    if bytes == 0 {
        0
    } else {
        (bytes + ALLOCATION_HEADER_BYTES)
            .next_multiple_of(2 * ALLOCATION_HEADER_BYTES)
            .max(4 * ALLOCATION_HEADER_BYTES)
    }
}

/// What an allocator notes beside each allocation.
const ALLOCATION_HEADER_BYTES: usize = size_of::<usize>();

/// What numbers are multiplied with where nobody chose them.
pub(crate) const HASH_FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// The hasher of both maps: folds the key's words with one multiplication each.
#[derive(Clone, Copy)]
pub struct FoldHasher {
    state: u64,
    factor: u64,
}

/// Where the hashes of one map begin, and what they multiply with.
#[derive(Clone, Copy)]
pub struct SeededHashBuilder(FoldHasher);

impl Default for FoldHasher {
    fn default() -> Self {
        FoldHasher { state: 0, factor: HASH_FACTOR }
    }
}

impl Default for SeededHashBuilder {
    fn default() -> Self {
        let random = RandomState::new();
        // An even factor would lose bits.
        SeededHashBuilder(FoldHasher { state: random.hash_one(0u8), factor: random.hash_one(1u8) | 1 })
    }
}

impl BuildHasher for SeededHashBuilder {
    type Hasher = FoldHasher;

    fn build_hasher(&self) -> FoldHasher {
        self.0
    }
}

impl Hasher for FoldHasher {
    fn finish(&self) -> u64 {
        self.state
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }
    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.state ^ word) * u128::from(self.factor);
        self.state = (product as u64) ^ ((product >> 64) as u64);
    }
    fn write_u128(&mut self, word: u128) {
        self.state = (word as u64) ^ ((word >> 64) as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of which the unseeded hash is 0 after two words: the second is the hash of the first.
    #[test]
    fn keys_that_meet_in_one_map_do_not_in_a_seeded_one() {
        let hashed = |seed: &dyn Fn() -> FoldHasher, words: [u64; 2]| {
            let mut hasher = seed();
            words.iter().for_each(|&word| hasher.write_u64(word));
            hasher.finish()
        };
        let meeting = (1..=1000).map(|first| {
            let mut hasher = FoldHasher::default();
            hasher.write_u64(first);
            [first, hasher.finish()]
        });
        let meeting: Vec<[u64; 2]> = meeting.collect();
        assert!(meeting.iter().all(|&words| hashed(&FoldHasher::default, words) == 0));
        let seed = SeededHashBuilder::default();
        let seeded: std::collections::BTreeSet<u64> =
            meeting.iter().map(|&words| hashed(&|| seed.build_hasher(), words)).collect();
        assert!(seeded.len() > 990, "{} different", seeded.len());
    }
}
