//! The filter on AVX-512: sixteen timestamps at once, the last few masked.

use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_mask_cmple_epi64_mask, _mm512_maskz_compress_epi32,
    _mm512_maskz_loadu_epi64, _mm512_set1_epi32, _mm512_set1_epi64, _mm512_setr_epi32,
    _mm512_storeu_si512,
};

/// How many at once.
const LANES: usize = 16;

/// See [`super::Select`].
///
/// # Safety
/// As for [`super::Select`]; the processor has AVX-512F, AVX-512VL and POPCNT.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,popcnt")]
pub(super) unsafe fn select(ts: *const i64, len: usize, lo: i64, hi: i64, out: *mut u32) -> usize {
    let range = (_mm512_set1_epi64(lo), _mm512_set1_epi64(hi));
    let (mut hits, mut index) = (0, 0);
    while index < len {
        // SAFETY: this function's contract; `hits <= index`, so that there is room.
        hits += unsafe { select_at(ts, index, len - index, range, out.add(hits)) };
        index += LANES;
    }
    hits
}

/// The same for up to 32 timestamps, without a branch: how many there are is as good as random.
///
/// # Safety
/// As for [`select`], and `len` is at most 32.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,popcnt")]
pub(super) unsafe fn select_few(
    ts: *const i64,
    len: usize,
    lo: i64,
    hi: i64,
    out: *mut u32,
) -> usize {
    let range = (_mm512_set1_epi64(lo), _mm512_set1_epi64(hi));
    // SAFETY: this function's contract; there are at most as many hits as timestamps before.
    unsafe {
        let hits = select_at(ts, 0, len, range, out);
        hits + select_at(ts, LANES, len.saturating_sub(LANES), range, out.add(hits))
    }
}

/// Selects of the first sixteen of `left` timestamps from `index` on.
///
/// # Safety
/// `ts` is valid for `index + left` reads, `out` for sixteen writes; the processor as for
/// [`select`].
#[inline]
#[target_feature(enable = "avx512f,avx512vl,popcnt")]
unsafe fn select_at(
    ts: *const i64,
    index: usize,
    left: usize,
    (first, last): (__m512i, __m512i),
    out: *mut u32,
) -> usize {
    let valid = (1u32 << left.min(LANES)) - 1;
    let (low, high) = (valid as u8, (valid >> 8) as u8);
    let ts = ts.wrapping_add(index);
    // SAFETY: only the lanes of the masks are read, and those lie within what is left.
    let (eight, more) = unsafe {
        (_mm512_maskz_loadu_epi64(low, ts), _mm512_maskz_loadu_epi64(high, ts.wrapping_add(8)))
    };
    let low = _mm512_mask_cmple_epi64_mask(low, first, eight);
    let low = _mm512_mask_cmple_epi64_mask(low, eight, last);
    let high = _mm512_mask_cmple_epi64_mask(high, first, more);
    let high = _mm512_mask_cmple_epi64_mask(high, more, last);
    let inside = u16::from(low) | u16::from(high) << 8;
    let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let indices = _mm512_add_epi32(lanes, _mm512_set1_epi32(index as i32));
    // SAFETY: sixteen writes are valid.
    unsafe { _mm512_storeu_si512(out.cast(), _mm512_maskz_compress_epi32(inside, indices)) };
    inside.count_ones() as usize
}
