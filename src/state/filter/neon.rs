//! The filter on NEON: two timestamps at once.

use std::arch::aarch64::{vandq_u64, vcgeq_s64, vcleq_s64, vdupq_n_s64, vgetq_lane_u64, vld1q_s64};

/// See [`super::Select`].
///
/// # Safety
/// As for [`super::Select`]; NEON is part of AArch64.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn select(ts: *const i64, len: usize, lo: i64, hi: i64, out: *mut u32) -> usize {
    let (first, last) = (vdupq_n_s64(lo), vdupq_n_s64(hi));
    let (mut hits, mut index) = (0, 0);
    while index + 2 <= len {
        // SAFETY: two timestamps from `index` on are within `len`.
        let two = unsafe { vld1q_s64(ts.add(index)) };
        let inside = vandq_u64(vcgeq_s64(two, first), vcleq_s64(two, last));
        // SAFETY: `hits <= index < len`, for which `out` is valid.
        unsafe { *out.add(hits) = index as u32 };
        hits += (vgetq_lane_u64::<0>(inside) & 1) as usize;
        // SAFETY: `hits <= index + 1 < len`, for which `out` is valid.
        unsafe { *out.add(hits) = index as u32 + 1 };
        hits += (vgetq_lane_u64::<1>(inside) & 1) as usize;
        index += 2;
    }
    if index < len {
        // SAFETY: `index < len`, for which `ts` is valid.
        let ts = unsafe { *ts.add(index) };
        // SAFETY: `hits <= index < len`, for which `out` is valid.
        unsafe { *out.add(hits) = index as u32 };
        hits += usize::from(lo <= ts && ts <= hi);
    }
    hits
}
