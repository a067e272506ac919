//! The filter in plain Rust.

/// See [`super::Select`].
///
/// # Safety
/// As for [`super::Select`]; no processor feature is needed.
#[inline]
pub(super) unsafe fn select(ts: *const i64, len: usize, lo: i64, hi: i64, out: *mut u32) -> usize {
    let mut hits = 0;
    for index in 0..len {
        // SAFETY: `index < len`, for which `ts` is valid.
        let ts = unsafe { *ts.add(index) };
        // SAFETY: `hits <= index < len`, for which `out` is valid.
        unsafe { *out.add(hits) = index as u32 };
        hits += usize::from(lo <= ts && ts <= hi);
    }
    hits
}
