//! Content hashes: 128 bits that name a string, a function, a location or a stack by what it is.
//!
//! They are xxh3, not cryptographic: whoever forges a collision can only confuse profiles of their own
//! tenant, because no dictionary and no id window is shared between tenants.

use std::hash::{BuildHasherDefault, Hasher};

use xxhash_rust::xxh3::{xxh3_128, xxh3_128_with_seed};

/// A 128-bit content hash.
pub type Hash = u128;

/// Hashes plain bytes.
pub fn bytes(content: &[u8]) -> Hash {
    xxh3_128(content)
}

/// Hashes bytes within a domain, so that equal bytes of different meaning get different hashes.
pub fn tagged(domain: u64, content: &[u8]) -> Hash {
    xxh3_128_with_seed(content, domain)
}

/// Hashes a list of hashes, in its order.
pub fn list(hashes: &[Hash]) -> Hash {
    xxh3_128(bytemuck::cast_slice(hashes))
}

/// A map whose keys are already hashes: hashing them again would be waste.
pub type HashedMap<K, V> = hashbrown::HashMap<K, V, BuildHasherDefault<Spread>>;

/// Bytes that a list has taken.
pub fn list_memory<T>(list: &Vec<T>) -> usize {
    list.capacity() * size_of::<T>()
}

/// The hasher of [`HashedMap`]: folds the key's words with one multiplication each.
#[derive(Default, Clone, Copy)]
pub struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
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
        let product = u128::from(self.0 ^ word) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
    fn write_u128(&mut self, word: u128) {
        self.0 = (word as u64) ^ ((word >> 64) as u64);
    }
}
