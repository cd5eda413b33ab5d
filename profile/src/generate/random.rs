//! Random numbers from a seed. Floating point uses only additions, multiplications, divisions and roots,
//! whose results IEEE 754 defines to the bit. Logarithms of platform libraries differ between platforms.

/// Stream of random numbers: xoshiro256++, seeded through splitmix64.
#[derive(Clone, Debug)]
pub struct SeededRandom([u64; 4]);

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

impl SeededRandom {
    /// Returns the stream of a seed.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        SeededRandom(std::array::from_fn(|_| splitmix(&mut state)))
    }
    /// Returns the stream of a path of numbers: a seed, then a purpose, then an index.
    pub fn from_path(path: &[u64]) -> Self {
        let seed = path.iter().fold(0u64, |mixed, &part| {
            let mut state = mixed ^ part.wrapping_mul(0xD6E8_FEB8_6659_FD93);
            splitmix(&mut state)
        });
        SeededRandom::new(seed)
    }
    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }
    /// Returns a number below `bound`, which must not be 0.
    pub fn next_below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }
    /// Returns true with a probability of `in_thousand` / 1000.
    pub fn next_bool(&mut self, in_thousand: usize) -> bool {
        self.next_below(1000) < in_thousand
    }
    /// Returns a number from 0 to below 1.
    pub fn next_unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
    /// Returns an exponentially distributed number with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * ln(1.0 - self.next_unit())
    }
    /// Returns an approximately normal number with mean 0 and deviation 1: the sum of twelve uniform ones.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.next_unit()).sum::<f64>() - 6.0
    }
    /// Returns a number below `bound`, small ones more often: the square of a uniform number.
    pub fn squared(&mut self, bound: usize) -> usize {
        let unit = self.next_unit();
        (unit * unit * bound as f64) as usize
    }
    /// Returns a random element of a list, which must not be empty.
    pub fn pick<'a, T: ?Sized>(&mut self, list: &[&'a T]) -> &'a T {
        list[self.next_below(list.len())]
    }
    /// Shuffles a list in place.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.next_below(at + 1));
        }
    }
}

/// Returns the natural logarithm of a positive normal number.
pub(super) fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = ((bits >> 52) as i64 - 1023) as f64;
    let mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    // ln m = 2 artanh((m − 1) / (m + 1)), whose series converges fast for m in [1, 2).
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let square = ratio * ratio;
    let mut power = ratio;
    let mut sum = 0.0;
    for odd in 0..20 {
        sum += power / f64::from(2 * odd + 1);
        power *= square;
    }
    2.0 * sum + exponent * std::f64::consts::LN_2
}

/// Returns e to the power of a number between -700 and 700.
pub(super) fn exp(x: f64) -> f64 {
    let halvings = 12;
    let small = x / f64::from(1u32 << halvings);
    let mut term = 1.0;
    let mut sum = 1.0;
    for n in 1..12 {
        term *= small / f64::from(n);
        sum += term;
    }
    (0..halvings).fold(sum, |power, _| power * power)
}

/// Returns a positive number to a power.
pub(super) fn pow(base: f64, exponent: f64) -> f64 {
    exp(exponent * ln(base))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_of_a_seed_never_changes() {
        let mut random = SeededRandom::new(1);
        let first: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
        assert_eq!(first, [0xcfc5_d07f_6f03_c29b, 0xbf42_4132_963f_e08d, 0x19a3_7d57_57aa_f520]);
    }

    #[test]
    fn our_logarithms_and_powers_are_close_to_the_library() {
        for x in [1e-9, 0.3, 1.0, 1.999, 2.0, 7.5, 12_000.0] {
            assert!((ln(x) - x.ln()).abs() < 1e-12, "{x}");
            assert!((pow(x, 0.9) / x.powf(0.9) - 1.0).abs() < 1e-9, "{x}");
        }
    }

    #[test]
    fn draws_have_the_means_that_they_claim() {
        let mut random = SeededRandom::from_path(&[1, 2, 3]);
        let n = 100_000;
        let mean = |draw: &mut dyn FnMut() -> f64| (0..n).map(|_| draw()).sum::<f64>() / f64::from(n);
        assert!((mean(&mut || random.next_unit()) - 0.5).abs() < 0.01);
        assert!((mean(&mut || random.exponential(3.0)) - 3.0).abs() < 0.05);
        assert!(mean(&mut || random.normal()).abs() < 0.02);
        assert!((mean(&mut || random.next_below(10) as f64) - 4.5).abs() < 0.05);
    }
}
