//! The integers that workloads are made of. All arithmetic is modulo 2^64, so that a program in
//! any language makes the same events.

use std::sync::{Arc, Mutex, PoisonError};

/// The increment of SplitMix64: 2^64 divided by the golden ratio.
pub const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// SplitMix64's finaliser, a bijection of `u64`.
#[inline]
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The `k`-th output of SplitMix64 seeded with `seed`, without making the ones before it.
#[inline]
pub const fn rand(seed: u64, k: u64) -> u64 {
    mix(seed.wrapping_add(k.wrapping_add(1).wrapping_mul(GOLDEN)))
}

/// A number under `n`: the high half of the 128-bit product, so without division.
#[inline]
pub const fn below(random: u64, n: u64) -> u64 {
    ((random as u128 * n as u128) >> 64) as u64
}

/// What one pair adds to a run's checksum (a wrapping sum over all pairs).
#[inline]
pub const fn pair_checksum(left_id: u64, right_id: u64) -> u64 {
    mix(mix(left_id.wrapping_add(GOLDEN)).wrapping_add(right_id))
}

/// Zipf's law: key `k` of `1..=keys` is drawn with a weight of `1 / k^exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZipfShape {
    /// How many keys there are; at most [`ZipfShape::KEYS_MAX`].
    pub keys: u64,
    /// The exponent, in hundredths: 0 draws evenly, 100 is the classic law.
    pub exponent_hundredths: u32,
}

impl ZipfShape {
    /// Exponent 1 over a million keys.
    pub const CLASSIC: ZipfShape = ZipfShape { keys: 1_000_000, exponent_hundredths: 100 };

    /// A table takes 8 bytes a key, and the sum of all weights fits 64 bits.
    pub const KEYS_MAX: u64 = 10_000_000;

    /// Beyond this all draws are the first key anyway.
    pub const EXPONENT_HUNDREDTHS_MAX: u32 = 1_000;
}

/// The table of a [`ZipfShape`].
///
/// Key `k` has the weight `floor(2^40 / k^exponent)`; a draw is a binary search in the sums of
/// weights. Integers only, so that the same keys come out everywhere.
pub struct Zipf {
    shape: ZipfShape,
    /// `sums[k]` is the weight of keys `1..=k`.
    sums: Vec<u64>,
    /// `guide[u >> guide_shift]` is a key at or before the one that `u` falls to.
    guide: Vec<u32>,
    guide_shift: u32,
}

/// The guide has at most 2^14 entries, two more at the end.
const GUIDE_BITS: u32 = 14;

impl Zipf {
    /// The table of that shape: the last one asked for is kept, and another takes about 100 ns a
    /// key to make (10 for exponent 1).
    pub fn shared(shape: ZipfShape) -> Arc<Zipf> {
        static LAST: Mutex<Option<Arc<Zipf>>> = Mutex::new(None);
        // A thread that panicked while it held the lock left a whole table, or none.
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some(zipf) if zipf.shape == shape => Arc::clone(zipf),
            _ => Arc::clone(last.insert(Arc::new(Zipf::new(shape)))),
        }
    }

    fn new(shape: ZipfShape) -> Zipf {
        let keys = shape.keys.clamp(1, ZipfShape::KEYS_MAX);
        let weights = Weights::new(shape.exponent_hundredths);
        let mut sums = Vec::with_capacity(keys as usize + 1);
        let mut sum = 0u64;
        sums.push(0);
        for key in 1..=keys {
            sum += weights.of(key);
            sums.push(sum);
        }
        let guide_shift = (u64::BITS - sum.leading_zeros()).saturating_sub(GUIDE_BITS);
        let guide_len = (sum >> guide_shift) + 2;
        // The last key whose smaller neighbours all end at or before the entry's first value.
        let guide = (0..guide_len)
            .map(|entry| sums.partition_point(|&s| s <= entry << guide_shift) as u32)
            .collect();
        Zipf { shape, sums, guide, guide_shift }
    }

    /// The key that a random number draws: the least `k` with `sums[k] > u`.
    #[inline]
    pub fn key(&self, random: u64) -> u64 {
        let u = below(random, self.sums[self.sums.len() - 1]);
        let entry = (u >> self.guide_shift) as usize;
        // `u` lies between the entry's first value and the next one's, and so does its key.
        let first = self.guide[entry] as usize;
        let last = (self.guide[entry + 1] as usize).min(self.sums.len() - 1);
        (first + self.sums[first..=last].partition_point(|&s| s <= u)) as u64
    }
}

/// Computes `floor(2^40 / k^exponent)`: logarithm and power in fixed point.
struct Weights {
    exponent_hundredths: u32,
    /// `roots[i]` is 2 to the power of `2^-(i+1)`, with 62 bits behind the point.
    roots: [u64; LOG_BITS as usize],
}

/// The weight of key 1, as a power of 2.
const WEIGHT_BITS: u64 = 40;

/// Bits behind the point of logarithms.
const LOG_BITS: u32 = 32;

impl Weights {
    fn new(exponent_hundredths: u32) -> Weights {
        let mut roots = [0; LOG_BITS as usize];
        let mut root = 2u128 << 62;
        for slot in &mut roots {
            root = (root << 62).isqrt();
            *slot = root as u64;
        }
        Weights { exponent_hundredths, roots }
    }

    fn of(&self, key: u64) -> u64 {
        match self.exponent_hundredths {
            0 => 1 << WEIGHT_BITS,
            100 => (1 << WEIGHT_BITS) / key,
            hundredths => {
                let down = u128::from(log2(key)) * u128::from(hundredths) / 100;
                let top = u128::from(WEIGHT_BITS) << LOG_BITS;
                top.checked_sub(down).map_or(0, |log| self.power(log as u64))
            }
        }
    }

    /// `floor(2^log)`; `log` is at most [`WEIGHT_BITS`].
    fn power(&self, log: u64) -> u64 {
        let mut product = 1u128 << 62;
        for (i, &root) in self.roots.iter().enumerate() {
            if log >> (LOG_BITS - 1 - i as u32) & 1 == 1 {
                product = (product * u128::from(root)) >> 62;
            }
        }
        ((product << (log >> LOG_BITS)) >> 62) as u64
    }
}

/// The logarithm of a number from 1 on, with [`LOG_BITS`] bits behind the point.
fn log2(number: u64) -> u64 {
    let whole = number.ilog2();
    // 1 to 2, with 63 bits behind the point. Each squaring brings one bit of the logarithm.
    let mut rest = number << (63 - whole);
    let mut log = u64::from(whole);
    for _ in 0..LOG_BITS {
        let square = u128::from(rest) * u128::from(rest);
        let bit = (square >> 127) as u64;
        log = log << 1 | bit;
        rest = (square >> (63 + bit)) as u64;
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_draws_what_its_definition_says() {
        let shape = |keys, exponent_hundredths| ZipfShape { keys, exponent_hundredths };
        let wide = shape(ZipfShape::KEYS_MAX, 0);
        for shape in [ZipfShape::CLASSIC, shape(1, 100), shape(5_000, 130), shape(777, 25), wide] {
            let zipf = Zipf::shared(shape);
            let total = *zipf.sums.last().unwrap();
            for k in 0..20_000 {
                let random = rand(mix(3), k);
                let u = below(random, total);
                let key = zipf.key(random);
                let sums = (zipf.sums[key as usize - 1], zipf.sums[key as usize]);
                assert!(sums.0 <= u && u < sums.1, "{shape:?}, draw {k}");
            }
            assert_eq!(zipf.key(0), 1);
            assert_eq!(zipf.key(u64::MAX), shape.keys);
        }
    }

    #[test]
    fn weights_are_the_powers_that_they_should_be() {
        for hundredths in [1, 50, 99, 101, 150, 1_000] {
            let weights = Weights::new(hundredths);
            for key in [1, 2, 3, 10, 12_345, 1_000_000, 9_999_999] {
                let exact = (key as f64).powf(-f64::from(hundredths) / 100.0) * 2f64.powi(40);
                let found = weights.of(key) as f64;
                let off = (found - exact).abs();
                assert!(off <= 1.0 + exact * 1e-8, "{key}^-{hundredths}: {found}, not {exact}");
            }
        }
    }

    #[test]
    fn below_stays_below() {
        assert_eq!(below(u64::MAX, 1000), 999);
        assert_eq!(below(0, 1000), 0);
        assert_eq!(below(1 << 63, 1000), 500);
    }
}
