//! The integers that workloads are made of. All arithmetic is modulo 2^64, so that a program in
//! any language makes the same events.

use std::sync::OnceLock;

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

/// Zipf's law with exponent 1 over the keys `1..=KEY_COUNT`.
///
/// Key `k` has the weight `floor(2^40 / k)`; a draw is a binary search in the sums of weights. The
/// table takes 8 MB and is made once a process, at the first use.
pub struct Zipf {
    /// `sums[k]` is the weight of keys `1..=k`.
    sums: Vec<u64>,
    /// `guide[u >> GUIDE_SHIFT]` is a key at or before the one that `u` falls to.
    guide: Vec<u32>,
}

impl Zipf {
    /// How many keys there are.
    pub const KEY_COUNT: u64 = 1_000_000;

    /// The sum of all weights is under 2^44, so the guide has at most 2^14 entries.
    const GUIDE_SHIFT: u32 = 30;

    /// The table.
    pub fn shared() -> &'static Zipf {
        static TABLE: OnceLock<Zipf> = OnceLock::new();
        TABLE.get_or_init(Zipf::new)
    }

    fn new() -> Zipf {
        let mut sums = Vec::with_capacity(Self::KEY_COUNT as usize + 1);
        let mut sum = 0;
        sums.push(0);
        for key in 1..=Self::KEY_COUNT {
            sum += (1u64 << 40) / key;
            sums.push(sum);
        }
        let guide_len = (sum >> Self::GUIDE_SHIFT) + 2;
        // The last key whose smaller neighbours all end at or before the entry's first value.
        let guide = (0..guide_len)
            .map(|entry| sums.partition_point(|&s| s <= entry << Self::GUIDE_SHIFT) as u32)
            .collect();
        Zipf { sums, guide }
    }

    /// The key that a random number draws: the least `k` with `sums[k] > u`.
    #[inline]
    pub fn key(&self, random: u64) -> u64 {
        let u = below(random, self.sums[Self::KEY_COUNT as usize]);
        let entry = (u >> Self::GUIDE_SHIFT) as usize;
        // `u` lies between the entry's first value and the next one's, and so does its key.
        let first = self.guide[entry] as usize;
        let last = (self.guide[entry + 1] as usize).min(self.sums.len() - 1);
        (first + self.sums[first..=last].partition_point(|&s| s <= u)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_draws_what_its_definition_says() {
        let zipf = Zipf::shared();
        for k in 0..20_000 {
            let random = rand(mix(3), k);
            let u = below(random, zipf.sums[Zipf::KEY_COUNT as usize]);
            let key = zipf.key(random);
            assert!(zipf.sums[key as usize] > u && zipf.sums[key as usize - 1] <= u, "draw {k}");
        }
        assert_eq!(zipf.key(0), 1);
        assert_eq!(zipf.key(u64::MAX), Zipf::KEY_COUNT);
    }

    #[test]
    fn below_stays_below() {
        assert_eq!(below(u64::MAX, 1000), 999);
        assert_eq!(below(0, 1000), 0);
        assert_eq!(below(1 << 63, 1000), 500);
    }
}
