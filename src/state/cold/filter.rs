//! Filters that tell most keys which are not in a segment.

/// Bits of a filter for each row, if there is room for them, and if there is less: fewer than the
/// least tell next to nothing.
const BITS_PER_ROW: usize = 8;
const BITS_PER_ROW_MIN: usize = 3;

/// A filter without room lets every key pass.
#[derive(Default)]
pub(super) struct KeyFilter(Vec<u64>);

impl KeyFilter {
    /// A filter for so many rows, in so many bytes at the most.
    pub(super) fn new(rows: usize, bytes_max: usize) -> KeyFilter {
        let bits = (rows * BITS_PER_ROW).min(bytes_max.saturating_mul(8));
        let bits = if bits < rows * BITS_PER_ROW_MIN { 0 } else { bits };
        KeyFilter(vec![0; bits / 64])
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.len() * 8
    }

    pub(super) fn insert(&mut self, key: u64) {
        if !self.0.is_empty() {
            for bit in self.bits_of(key) {
                self.0[bit as usize / 64] |= 1 << (bit % 64);
            }
        }
    }

    #[inline]
    pub(super) fn may_have(&self, key: u64) -> bool {
        let is_set = |bit: u64| self.0[bit as usize / 64] >> (bit % 64) & 1 != 0;
        self.0.is_empty() || self.bits_of(key).into_iter().all(is_set)
    }

    /// The two bits of a key.
    #[inline]
    fn bits_of(&self, key: u64) -> [u64; 2] {
        let bits = self.0.len() as u64 * 64;
        let spread = spread(key).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        [spread >> 32, spread & 0xFFFF_FFFF].map(|half| (half * bits) >> 32)
    }
}

/// Key values are hashes, or mixed as well as such; these bits are others than those that the index
/// and shards go by.
#[inline]
pub(super) fn spread(key: u64) -> u64 {
    (key ^ key >> 29).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_there_and_most_of_the_rest_is_not() {
        let mut filter = KeyFilter::new(1_000, 1_000);
        (0..1_000u64).for_each(|key| filter.insert(key.wrapping_mul(0x1234_5678_9ABC_DEF1)));
        let has = |key: u64| filter.may_have(key.wrapping_mul(0x1234_5678_9ABC_DEF1));
        assert!((0..1_000).all(has));
        let wrong = (1_000..11_000).filter(|&key| has(key)).count();
        assert!(wrong < 1_000, "{wrong} of 10,000");
        let none = KeyFilter::new(1_000, 300);
        assert_eq!((none.bytes(), none.may_have(5)), (0, true));
    }
}
