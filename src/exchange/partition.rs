//! Which shard owns a key, and how a batch is taken apart by shards.

use crate::limits::{BATCH_EVENTS_MAX, SHARD_COUNT_MAX};

/// The shard that owns the key of this value, out of `shard_count` (1 to 2^32).
///
/// The top bits decide: multiply and shift, so any count works and none is favoured. State places
/// keys by the low bits, so the keys of one shard still spread over its whole table.
#[inline]
pub const fn shard_of(value: u64, shard_count: usize) -> usize {
    (((value >> 32) * shard_count as u64) >> 32) as usize
}

/// Up to so many shards each takes a walk of its own over the events. Counting adds to one of few
/// counters again and again, each time once the last sum has got through memory.
const FEW_SHARDS: usize = 4;

/// Sorts the events of a batch by shard, a piece of up to [`BATCH_EVENTS_MAX`] at a time: places of
/// one byte, by counting or, for few shards, by picking. The work space is kept.
#[derive(Debug, Default)]
pub(super) struct Sorter {
    /// Where the places of each shard end in `places`; those of the next begin there.
    ends: Vec<u16>,
    shards: Vec<u16>,
    places: Vec<u8>,
}

// A place fits a byte, and one shard more than there may be fits two.
const _: () = assert!(BATCH_EVENTS_MAX <= 256 && SHARD_COUNT_MAX < u16::MAX as usize);

impl Sorter {
    /// Sorts the places `0..values.len()`, in order within each shard.
    ///
    /// # Panics
    /// When there are more than [`BATCH_EVENTS_MAX`] values, or more than 256 shards.
    pub(super) fn sort(&mut self, shard_count: usize, values: &[u64]) {
        self.sort_by(shard_count, values.len(), |place| shard_of(values[place], shard_count));
    }

    /// Sorts the places `0..count`, in order within each shard, by where each belongs; what belongs
    /// to shard `shard_count` is left out.
    ///
    /// # Panics
    /// As [`sort`](Self::sort), or when a shard is larger than that.
    #[inline]
    pub(super) fn sort_by(
        &mut self,
        shard_count: usize,
        count: usize,
        mut belongs: impl FnMut(usize) -> usize,
    ) {
        assert!(count <= BATCH_EVENTS_MAX && shard_count <= SHARD_COUNT_MAX);
        self.ends.clear();
        self.ends.resize(shard_count + 1, 0);
        self.shards.resize(BATCH_EVENTS_MAX, 0);
        self.places.resize(2 * BATCH_EVENTS_MAX, 0);
        for (place, shard) in self.shards[..count].iter_mut().enumerate() {
            // Cannot truncate: there are far fewer shards.
            *shard = belongs(place) as u16;
        }
        if shard_count <= FEW_SHARDS { self.pick(shard_count, count) } else { self.count(count) }
    }

    /// Each shard's events in turn, without a branch on which they are.
    fn pick(&mut self, shard_count: usize, count: usize) {
        let mut next = 0;
        for (shard, end) in (0..).zip(&mut self.ends[..shard_count]) {
            for (place, &own) in self.shards[..count].iter().enumerate() {
                // What is not kept is written over. There are at most BATCH_EVENTS_MAX that are.
                self.places[next] = place as u8;
                next += usize::from(own == shard);
            }
            *end = next as u16;
        }
    }

    /// All events at once, when it is known how many each shard has.
    fn count(&mut self, count: usize) {
        let shards = &self.shards[..count];
        shards.iter().for_each(|&shard| self.ends[usize::from(shard)] += 1);
        let mut start = 0;
        for end in &mut self.ends {
            // For now the start of the shard's places; every place moves it on, to their end.
            start += std::mem::replace(end, start);
        }
        for (place, &shard) in shards.iter().enumerate() {
            let end = &mut self.ends[usize::from(shard)];
            self.places[usize::from(*end)] = place as u8;
            *end += 1;
        }
    }

    /// The places of one shard, after [`sort`](Self::sort).
    pub(super) fn places(&self, shard: usize) -> &[u8] {
        let start = if shard == 0 { 0 } else { self.ends[shard - 1] };
        &self.places[usize::from(start)..usize::from(self.ends[shard])]
    }
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
    fn places_are_sorted_by_shard_and_keep_their_order() {
        let hasher = KeyHasher::new(KeyKind::Int, 3);
        for shard_count in [1, 2, 7, SHARD_COUNT_MAX] {
            let mut sorter = Sorter::default();
            for count in [0, 1, 100, BATCH_EVENTS_MAX] {
                let values: Vec<u64> = (0..count as u64).map(|key| hasher.int(key)).collect();
                sorter.sort(shard_count, &values);
                for shard in 0..shard_count {
                    let own = |&place: &usize| shard_of(values[place], shard_count) == shard;
                    let expected: Vec<u8> =
                        (0..count).filter(own).map(|place| place as u8).collect();
                    assert_eq!(sorter.places(shard), expected, "{shard} of {shard_count}");
                }
            }
        }
    }

    #[test]
    fn the_low_bits_do_not_route() {
        for value in [0u64, 1 << 40, u64::MAX << 32] {
            assert_eq!(shard_of(value, 8), shard_of(value | 0xFFFF_FFFF, 8));
        }
    }
}
