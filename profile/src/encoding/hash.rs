//! Content hashes: 128 bits that identify a string, a function, a location or a stack by its content.
//!
//! The hash is xxh3, which is not cryptographic. A forged collision can only confuse profiles of the
//! attacker's own tenant, because tenants share no dictionary and no dedup window.
//!
//! Tenants do share processor time. Each lookup in a map costs as many steps as keys collide in one slot.
//! Colliding content hashes must be found by search, but colliding numbers from clients can be computed. Maps
//! of such numbers are therefore [`SeededMap`]s.

use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

use xxhash_rust::xxh3::{xxh3_128, xxh3_128_with_seed};

/// Content hash of 128 bits.
pub type ContentHash = u128;

/// Hashes plain bytes.
pub fn hash_bytes(content: &[u8]) -> ContentHash {
    xxh3_128(content)
}

/// Hashes bytes within a domain, so that equal bytes of different meaning get different hashes.
pub fn hash_tagged(domain: u64, content: &[u8]) -> ContentHash {
    xxh3_128_with_seed(content, domain)
}

/// Hashes a list of hashes; the order matters.
pub fn hash_list(hashes: &[ContentHash]) -> ContentHash {
    xxh3_128(bytemuck::cast_slice(hashes))
}

/// Map with keys that are already hashes or ids assigned by this process. A strong hash would be waste.
pub type PrehashedMap<K, V> = hashbrown::HashMap<K, V, BuildHasherDefault<FoldHasher>>;

/// Set with keys like those of [`PrehashedMap`].
pub type PrehashedSet<K> = hashbrown::HashSet<K, BuildHasherDefault<FoldHasher>>;

/// Map with keys that a client may choose. Its hash is randomly seeded, so that a client cannot choose
/// colliding keys.
pub type SeededMap<K, V> = hashbrown::HashMap<K, V, SeededHashBuilder>;

/// Returns the allocated memory of a list in bytes.
pub fn vec_memory<T>(list: &Vec<T>) -> usize {
    list.capacity() * size_of::<T>()
}

/// Returns the estimated memory of an allocation with this many bytes. With very many small allocations, the
/// overhead dominates.
pub fn allocation_bytes(bytes: usize) -> usize {
    if bytes == 0 {
        0
    } else {
        (bytes + ALLOCATION_HEADER_BYTES)
            .next_multiple_of(2 * ALLOCATION_HEADER_BYTES)
            .max(4 * ALLOCATION_HEADER_BYTES)
    }
}

/// Bytes of the allocator's header for each allocation.
const ALLOCATION_HEADER_BYTES: usize = size_of::<usize>();

/// Multiplier of hashes of keys that no client can choose.
pub(crate) const HASH_FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// Hasher of both kinds of maps: folds each word of the key with one multiplication.
#[derive(Clone, Copy)]
pub struct FoldHasher {
    state: u64,
    factor: u64,
}

/// Seed and multiplier of one map's hashes.
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
