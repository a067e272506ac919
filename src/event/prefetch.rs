//! Asks for memory that will be used soon, so that it is there by then.

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Of a column no more is asked for: what follows comes by itself, as it is read in order.
const COLUMN_BYTES_MAX: usize = 4 << 10;

/// Asks for the cache line at `address`, which need not be valid.
#[inline]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect on memory and faults on no address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// As [`prefetch`], to write to the line: no other core has it then.
#[inline]
pub(crate) fn prefetch_for_write<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above. Processors that do not know the instruction take it for none.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Asks for what a column holds.
#[inline]
pub(super) fn prefetch_column<T>(column: &[T]) {
    let bytes = size_of_val(column).min(COLUMN_BYTES_MAX);
    let start = column.as_ptr().cast::<u8>();
    (0..bytes).step_by(LINE_BYTES).for_each(|at| prefetch(start.wrapping_add(at)));
}

/// Asks for what a column has room for, to write to it.
#[inline]
pub(super) fn prefetch_room<T>(column: &Vec<T>) {
    let bytes = (column.capacity() * size_of::<T>()).min(COLUMN_BYTES_MAX);
    let start = column.as_ptr().cast::<u8>();
    (0..bytes).step_by(LINE_BYTES).for_each(|at| prefetch_for_write(start.wrapping_add(at)));
}
