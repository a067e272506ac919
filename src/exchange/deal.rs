//! Deals the events of a batch out to few shards: eight at a time, a column after the other.
//!
//! The simple algorithm walks over the events and appends each to the columns of its shard. Here a
//! comparison finds those of a shard among eight keys, and an instruction of AVX-512 moves theirs
//! together, without a branch and without a counter that each event waits for. Other processors
//! sort places ([`Sorter`](super::partition::Sorter)), as does whoever has other rows or more
//! shards.

use crate::limits::BATCH_EVENTS_MAX;

/// With more shards there are few of each among eight events, and sorting is faster.
const SHARDS_MAX: usize = 16;

/// Events that one instruction takes.
const LANES: usize = 8;

const BLOCKS_MAX: usize = BATCH_EVENTS_MAX.div_ceil(LANES);

/// Events as they were dealt out, those of each shard together and in order.
#[derive(Debug)]
pub(super) struct Dealt {
    /// Where each shard's events end.
    ends: [usize; SHARDS_MAX],
    keys: [u64; BATCH_EVENTS_MAX + LANES],
    ts: [i64; BATCH_EVENTS_MAX + LANES],
    words: [[u8; 8]; BATCH_EVENTS_MAX + LANES],
}

/// Columns of events with rows of eight bytes, all of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns<'a> {
    pub(super) keys: &'a [u64],
    pub(super) ts: &'a [i64],
    pub(super) words: &'a [[u8; 8]],
}

impl Default for Dealt {
    fn default() -> Dealt {
        Dealt {
            ends: [0; SHARDS_MAX],
            keys: [0; BATCH_EVENTS_MAX + LANES],
            ts: [0; BATCH_EVENTS_MAX + LANES],
            words: [[0; 8]; BATCH_EVENTS_MAX + LANES],
        }
    }
}

impl Dealt {
    /// Deals events out by [`shard_of`](super::shard_of). Returns whether it could; if not, nothing
    /// else was done.
    ///
    /// # Panics
    /// When the columns differ in length.
    #[inline]
    pub(super) fn deal(&mut self, shard_count: usize, from: Columns<'_>) -> bool {
        let count = from.keys.len();
        assert!(from.ts.len() == count && from.words.len() == count);
        if count > BATCH_EVENTS_MAX || shard_count > SHARDS_MAX || !can_deal() {
            return false;
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor has AVX-512 F and POPCNT, and the columns have as many events each,
        // no more than a batch's and for no more shards than there is room for.
        unsafe {
            self.deal_avx512(shard_count, from)
        };
        true
    }

    /// The events of one shard, after [`deal`](Self::deal).
    #[inline]
    pub(super) fn shard(&self, shard: usize) -> Columns<'_> {
        let start = if shard == 0 { 0 } else { self.ends[shard - 1] };
        let own = start..self.ends[shard];
        Columns {
            keys: &self.keys[own.clone()],
            ts: &self.ts[own.clone()],
            words: &self.words[own],
        }
    }

    /// # Safety
    /// The processor has AVX-512 F and POPCNT, all columns have the same length of up to
    /// `BATCH_EVENTS_MAX`, and there are up to `SHARDS_MAX` shards.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,popcnt")]
    unsafe fn deal_avx512(&mut self, shard_count: usize, from: Columns<'_>) {
        use std::arch::x86_64::*;
        let count = from.keys.len();
        let (keys, ts, words) = (from.keys.as_ptr(), from.ts.as_ptr(), from.words.as_ptr());
        let mut shards = [_mm512_setzero_si512(); BLOCKS_MAX];
        let shard_count_of_all = _mm512_set1_epi64(shard_count as i64);
        for (block, shards) in shards[..count.div_ceil(LANES)].iter_mut().enumerate() {
            let first = block * LANES;
            let there = there(count - first);
            // SAFETY: a lane is read only if its event is there.
            let keys = unsafe { _mm512_maskz_loadu_epi64(there, keys.add(first).cast()) };
            let high = _mm512_srli_epi64::<32>(keys);
            *shards = _mm512_srli_epi64::<32>(_mm512_mul_epu32(high, shard_count_of_all));
        }
        let mut next = 0;
        for (shard, end) in self.ends[..shard_count].iter_mut().enumerate() {
            let shard = _mm512_set1_epi64(shard as i64);
            for (block, shards) in shards[..count.div_ceil(LANES)].iter().enumerate() {
                let first = block * LANES;
                let own = _mm512_mask_cmpeq_epi64_mask(there(count - first), *shards, shard);
                // SAFETY: lanes of `own` are there, so they are in the columns that are read. All
                // shards together have no more than `count` events, so the eight that are written
                // from `next` on are within the room of `count + LANES`; what is no event of the
                // shard among them is written over or never read.
                unsafe {
                    let moved = _mm512_maskz_loadu_epi64(own, keys.add(first).cast());
                    let moved = _mm512_maskz_compress_epi64(own, moved);
                    _mm512_storeu_epi64(self.keys.as_mut_ptr().add(next).cast(), moved);
                    let moved = _mm512_maskz_loadu_epi64(own, ts.add(first).cast());
                    let moved = _mm512_maskz_compress_epi64(own, moved);
                    _mm512_storeu_epi64(self.ts.as_mut_ptr().add(next).cast(), moved);
                    let moved = _mm512_maskz_loadu_epi64(own, words.add(first).cast());
                    let moved = _mm512_maskz_compress_epi64(own, moved);
                    _mm512_storeu_epi64(self.words.as_mut_ptr().add(next).cast(), moved);
                }
                next += own.count_ones() as usize;
            }
            *end = next;
        }
    }
}

/// Whether the processor has what dealing takes.
#[inline]
fn can_deal() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("popcnt");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// A bit for each of the first eight of `count` events.
#[inline(always)]
fn there(count: usize) -> u8 {
    if count >= LANES { u8::MAX } else { (1 << count) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{KeyHasher, KeyKind};
    use crate::exchange::shard_of;

    #[test]
    fn each_shard_gets_its_events_in_order() {
        let hasher = KeyHasher::new(KeyKind::Int, 3);
        let mut dealt = Dealt::default();
        for shard_count in [1, 2, 3, 5, SHARDS_MAX] {
            for count in (0..=17).chain([100, BATCH_EVENTS_MAX - 1, BATCH_EVENTS_MAX]) {
                let keys: Vec<u64> = (0..count as u64).map(|key| hasher.int(key)).collect();
                let ts: Vec<i64> = (0..count as i64).map(|ts| ts - 7).collect();
                let words: Vec<[u8; 8]> = (0..count).map(|word| (!word).to_le_bytes()).collect();
                let from = Columns { keys: &keys, ts: &ts, words: &words };
                assert_eq!(dealt.deal(shard_count, from), can_deal());
                if !can_deal() {
                    continue;
                }
                for shard in 0..shard_count {
                    let is_own = |&place: &usize| shard_of(keys[place], shard_count) == shard;
                    let own: Vec<usize> = (0..count).filter(is_own).collect();
                    let expected = Columns {
                        keys: &own.iter().map(|&place| keys[place]).collect::<Vec<_>>(),
                        ts: &own.iter().map(|&place| ts[place]).collect::<Vec<_>>(),
                        words: &own.iter().map(|&place| words[place]).collect::<Vec<_>>(),
                    };
                    assert_eq!(dealt.shard(shard), expected, "{shard} of {shard_count}, {count}");
                }
            }
        }
    }

    #[test]
    fn what_has_no_room_is_refused() {
        let mut dealt = Dealt::default();
        let (keys, ts, words) =
            ([0; BATCH_EVENTS_MAX + 1], [0; BATCH_EVENTS_MAX + 1], [[0; 8]; BATCH_EVENTS_MAX + 1]);
        assert!(!dealt.deal(2, Columns { keys: &keys, ts: &ts, words: &words }));
        let few = Columns { keys: &keys[..1], ts: &ts[..1], words: &words[..1] };
        assert!(!dealt.deal(SHARDS_MAX + 1, few));
    }
}
