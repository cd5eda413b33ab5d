//! Randomness as an injected dependency: seeded by the system in a process, by a number in a test.
//!
//! Not for secrets: the generator (xoshiro256++, seeded through splitmix64) is fast and uniform, but
//! predictable.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// Source of randomness. Cheap to clone. Clones draw from one sequence; [`Random::split`] starts another.
#[derive(Clone)]
pub struct Random {
    state: Arc<Mutex<[u64; 4]>>,
}

impl Random {
    /// Creates a source that is seeded by the operating system.
    ///
    /// # Panics
    /// If the operating system provides no entropy, without which no process can draw unique IDs.
    #[expect(clippy::disallowed_methods, reason = "the one place that asks for entropy")]
    pub fn system() -> Self {
        let seed = getrandom::u64().expect("the operating system gives entropy");
        Self::from_seed(seed)
    }

    /// Creates a source that draws the same sequence for the same seed, on every machine.
    pub fn from_seed(seed: u64) -> Self {
        let mut position = seed;
        let state = std::array::from_fn(|_| next_splitmix64(&mut position));
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Returns an independent source. Its sequence does not depend on later draws of the parent.
    #[must_use]
    pub fn split(&self) -> Self {
        Self::from_seed(self.next_u64())
    }

    /// Returns a uniformly distributed number.
    pub fn next_u64(&self) -> u64 {
        let mut s = self.state.lock();
        let drawn = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        drawn
    }

    /// Returns a uniformly distributed number below `n`.
    ///
    /// # Panics
    /// If `n` is zero: no number is below it.
    pub fn next_below(&self, n: u64) -> u64 {
        assert!(n > 0, "no number is below zero");
        // The high half of a 128-bit product is uniform after rejection of the few low halves that would be
        // drawn too often.
        let unfair = n.wrapping_neg() % n;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(n);
            if product as u64 >= unfair {
                return (product >> 64) as u64;
            }
        }
    }

    /// Returns a duration between half of `span` and `span`, so that clients that failed together do not
    /// retry together.
    pub fn jitter(&self, span: Duration) -> Duration {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let half = nanos / 2;
        Duration::from_nanos(nanos - half + self.next_below(half + 1))
    }

    /// Returns a unique 128-bit ID.
    pub fn next_id(&self) -> u128 {
        u128::from(self.next_u64()) << 64 | u128::from(self.next_u64())
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random")
    }
}

fn next_splitmix64(position: &mut u64) -> u64 {
    *position = position.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *position;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix_agrees_with_its_published_numbers() {
        let mut position = 1_234_567;
        let drawn: [u64; 3] = std::array::from_fn(|_| next_splitmix64(&mut position));
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn xoshiro_agrees_with_its_published_numbers() {
        let random = Random { state: Arc::new(Mutex::new([1, 2, 3, 4])) };
        let drawn: [u64; 3] = std::array::from_fn(|_| random.next_u64());
        assert_eq!(drawn, [41_943_041, 58_720_359, 3_588_806_011_781_223]);
    }

    #[test]
    fn one_seed_one_sequence_and_children_stand_alone() {
        let (a, b) = (Random::from_seed(7), Random::from_seed(7));
        let (child_a, child_b) = (a.split(), b.split());
        a.next_u64();
        assert_eq!(child_a.next_id(), child_b.next_id());
        assert_ne!(Random::from_seed(1).next_u64(), Random::from_seed(2).next_u64());
        assert_ne!(Random::system().next_id(), Random::system().next_id());
    }

    #[test]
    fn below_is_fair_and_stays_below() {
        let random = Random::from_seed(3);
        let mut drawn = [0_u32; 6];
        for _ in 0..60_000 {
            drawn[random.next_below(6) as usize] += 1;
        }
        assert!(drawn.iter().all(|count| (9_500..10_500).contains(count)), "{drawn:?}");
        assert_eq!(random.next_below(1), 0);
    }

    #[test]
    fn jitter_lies_between_the_half_and_the_whole() {
        let random = Random::from_seed(4);
        let span = Duration::from_millis(100);
        for _ in 0..1_000 {
            assert!((span / 2..=span).contains(&random.jitter(span)));
        }
        assert_eq!(random.jitter(Duration::ZERO), Duration::ZERO);
    }
}
