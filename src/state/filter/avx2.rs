//! The filter on AVX2: four timestamps at once.

use std::arch::x86_64::{
    _mm_add_epi32, _mm_loadu_si128, _mm_set1_epi32, _mm_storeu_si128, _mm256_castsi256_pd,
    _mm256_cmpgt_epi64, _mm256_loadu_si256, _mm256_movemask_pd, _mm256_or_si256,
    _mm256_set1_epi64x,
};

/// For each mask of four lanes, the lanes that are set, in order; the rest is never kept.
static LANES: [[u32; 4]; 16] = lanes();

const fn lanes() -> [[u32; 4]; 16] {
    let mut table = [[0; 4]; 16];
    let mut mask = 0;
    while mask < 16 {
        let (mut lane, mut next) = (0, 0);
        while lane < 4 {
            if mask >> lane & 1 == 1 {
                table[mask][next] = lane as u32;
                next += 1;
            }
            lane += 1;
        }
        mask += 1;
    }
    table
}

/// See [`super::Select`].
///
/// # Safety
/// As for [`super::Select`]; the processor has AVX2 and POPCNT.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
pub(super) unsafe fn select(ts: *const i64, len: usize, lo: i64, hi: i64, out: *mut u32) -> usize {
    let (first, last) = (_mm256_set1_epi64x(lo), _mm256_set1_epi64x(hi));
    let (mut hits, mut index) = (0, 0);
    while index + 4 <= len {
        // SAFETY: four timestamps from `index` on are within `len`; the load needs no alignment.
        let four = unsafe { _mm256_loadu_si256(ts.add(index).cast()) };
        let outside =
            _mm256_or_si256(_mm256_cmpgt_epi64(first, four), _mm256_cmpgt_epi64(four, last));
        let inside = !_mm256_movemask_pd(_mm256_castsi256_pd(outside)) as usize & 0xF;
        // SAFETY: a table row holds four lanes; the load needs no alignment.
        let lanes = unsafe { _mm_loadu_si128(LANES[inside].as_ptr().cast()) };
        let indices = _mm_add_epi32(lanes, _mm_set1_epi32(index as i32));
        // SAFETY: `hits <= index`, so four more lie within `len + SELECT_SLACK`.
        unsafe { _mm_storeu_si128(out.add(hits).cast(), indices) };
        hits += inside.count_ones() as usize;
        index += 4;
    }
    while index < len {
        // SAFETY: `index < len`, for which `ts` is valid.
        let ts = unsafe { *ts.add(index) };
        // SAFETY: `hits <= index < len`, for which `out` is valid.
        unsafe { *out.add(hits) = index as u32 };
        hits += usize::from(lo <= ts && ts <= hi);
        index += 1;
    }
    hits
}
