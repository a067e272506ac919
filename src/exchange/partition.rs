//! Which shard owns a key.

/// The shard that owns the key of this value, out of `shard_count` (1 to 2^32).
///
/// The top bits decide: multiply and shift, so any count works and none is favoured. State places
/// keys by the low bits, so the keys of one shard still spread over its whole table.
#[inline]
pub const fn shard_of(value: u64, shard_count: usize) -> usize {
    (((value >> 32) * shard_count as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{KeyHasher, KeyKind};
    use crate::limits::SHARD_COUNT_MAX;

    #[test]
    fn every_shard_is_in_range_and_none_is_favoured() {
        for shard_count in [1, 2, 3, 7, 8, 100, SHARD_COUNT_MAX] {
            assert_eq!(shard_of(0, shard_count), 0);
            assert_eq!(shard_of(u64::MAX, shard_count), shard_count - 1);
            let hasher = KeyHasher::new(KeyKind::Int, 3);
            let mut counts = vec![0u32; shard_count];
            let keys = 1000 * shard_count as u64;
            (0..keys).for_each(|key| counts[shard_of(hasher.int(key), shard_count)] += 1);
            // Six standard deviations of a binomial with mean 1000.
            assert!(counts.iter().all(|&count| (810..1190).contains(&count)), "{counts:?}");
        }
    }

    #[test]
    fn the_low_bits_do_not_route() {
        for value in [0u64, 1 << 40, u64::MAX << 32] {
            assert_eq!(shard_of(value, 8), shard_of(value | 0xFFFF_FFFF, 8));
        }
    }
}
