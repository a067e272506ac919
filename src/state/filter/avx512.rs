//! The filter on AVX-512: eight timestamps at once, the last few masked.

use std::arch::x86_64::{
    _mm256_add_epi32, _mm256_maskz_compress_epi32, _mm256_set1_epi32, _mm256_setr_epi32,
    _mm256_storeu_si256, _mm512_mask_cmple_epi64_mask, _mm512_maskz_loadu_epi64, _mm512_set1_epi64,
};

/// See [`super::Select`].
///
/// # Safety
/// As for [`super::Select`]; the processor has AVX-512F, AVX-512VL and POPCNT.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,popcnt")]
pub(super) unsafe fn select(ts: *const i64, len: usize, lo: i64, hi: i64, out: *mut u32) -> usize {
    let (first, last) = (_mm512_set1_epi64(lo), _mm512_set1_epi64(hi));
    let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    let (mut hits, mut index) = (0, 0);
    while index < len {
        let left = len - index;
        let valid = if left >= 8 { 0xFF } else { (1u8 << left) - 1 };
        // SAFETY: only the lanes of `valid` are read, and those lie within `len`.
        let eight = unsafe { _mm512_maskz_loadu_epi64(valid, ts.add(index)) };
        let inside = _mm512_mask_cmple_epi64_mask(valid, first, eight);
        let inside = _mm512_mask_cmple_epi64_mask(inside, eight, last);
        let indices = _mm256_add_epi32(lanes, _mm256_set1_epi32(index as i32));
        let indices = _mm256_maskz_compress_epi32(inside, indices);
        // SAFETY: `hits <= index`, so eight more lie within `len + SELECT_SLACK`.
        unsafe { _mm256_storeu_si256(out.add(hits).cast(), indices) };
        hits += inside.count_ones() as usize;
        index += 8;
    }
    hits
}

/// The same for up to 16 timestamps, without a branch: how many there are is as good as random.
///
/// # Safety
/// As for [`select`], and `len` is at most 16.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,popcnt")]
pub(super) unsafe fn select_few(
    ts: *const i64,
    len: usize,
    lo: i64,
    hi: i64,
    out: *mut u32,
) -> usize {
    let (first, last) = (_mm512_set1_epi64(lo), _mm512_set1_epi64(hi));
    let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    let valid = (1u32 << len) - 1;
    let (low, high) = (valid as u8, (valid >> 8) as u8);
    // SAFETY: only the lanes of the masks are read, and those lie within `len`.
    let (eight, more) = unsafe {
        (_mm512_maskz_loadu_epi64(low, ts), _mm512_maskz_loadu_epi64(high, ts.wrapping_add(8)))
    };
    let low = _mm512_mask_cmple_epi64_mask(low, first, eight);
    let low = _mm512_mask_cmple_epi64_mask(low, eight, last);
    let high = _mm512_mask_cmple_epi64_mask(high, first, more);
    let high = _mm512_mask_cmple_epi64_mask(high, more, last);
    let hits = low.count_ones() as usize;
    // SAFETY: there are at most `len` hits, so eight more lie within `len + SELECT_SLACK`.
    unsafe {
        _mm256_storeu_si256(out.cast(), _mm256_maskz_compress_epi32(low, lanes));
        let lanes = _mm256_add_epi32(lanes, _mm256_set1_epi32(8));
        _mm256_storeu_si256(out.add(hits).cast(), _mm256_maskz_compress_epi32(high, lanes));
    }
    hits + high.count_ones() as usize
}
