//! Finds the bytes that structure a delimited file: 64 at a time, without `unsafe`.

use memchr::memchr;

/// Walks over the structural bytes of a block: delimiters, line ends and, if there are any, quotes.
///
/// It compares 64 bytes at once and keeps one bit a byte; the comparisons are plain loops that
/// compile to vector instructions.
pub(super) struct Scanner<'a, const QUOTES: bool> {
    data: &'a [u8],
    delimiter: u8,
    /// Where the current group of 64 bytes starts.
    base: usize,
    /// One bit for each structural byte of the group that was not returned yet.
    mask: u64,
}

impl<'a, const QUOTES: bool> Scanner<'a, QUOTES> {
    /// A scanner that starts at `from`.
    pub(super) fn new(data: &'a [u8], delimiter: u8, from: usize) -> Self {
        let base = from & !63;
        let mut scanner = Scanner { data, delimiter, base, mask: 0 };
        scanner.mask = scanner.group(base) & (u64::MAX << (from & 63));
        scanner
    }

    /// The place of the next structural byte.
    #[inline]
    pub(super) fn next(&mut self) -> Option<usize> {
        while self.mask == 0 {
            self.base += 64;
            if self.base >= self.data.len() {
                return None;
            }
            self.mask = self.group(self.base);
        }
        let at = self.base + self.mask.trailing_zeros() as usize;
        self.mask &= self.mask - 1;
        Some(at)
    }

    /// Goes on at `to`, which lies behind everything returned so far.
    #[inline]
    pub(super) fn seek(&mut self, to: usize) {
        let base = to & !63;
        if base != self.base {
            self.base = base;
            self.mask = self.group(base);
        }
        self.mask &= u64::MAX << (to & 63);
    }

    #[inline]
    fn group(&self, base: usize) -> u64 {
        let rest = self.data.get(base..).unwrap_or_default();
        match rest.first_chunk::<64>() {
            Some(group) => structural_bits::<QUOTES>(group, self.delimiter),
            None => {
                // Zeros are no structural bytes.
                let mut group = [0; 64];
                group[..rest.len()].copy_from_slice(rest);
                structural_bits::<QUOTES>(&group, self.delimiter)
            }
        }
    }
}

/// One bit for each byte that is a delimiter, a line end, or (with `QUOTES`) a quote.
#[inline]
fn structural_bits<const QUOTES: bool>(group: &[u8; 64], delimiter: u8) -> u64 {
    let mut ones = [0u8; 64];
    for (one, &byte) in ones.iter_mut().zip(group) {
        let found = (byte == delimiter) | (byte == b'\n') | (QUOTES & (byte == b'"'));
        *one = u8::from(found);
    }
    let mut bits = 0;
    for (place, eight) in ones.as_chunks::<8>().0.iter().enumerate() {
        // The product moves the lowest bit of byte i to bit 56 + i; no two terms meet.
        let packed = u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        bits |= packed << (place * 8);
    }
    bits
}

/// The place of the quote that closes a quoted field whose text starts at `from`, and whether the
/// text holds doubled quotes; `None` if nothing closes it.
#[inline]
pub(super) fn closing_quote(data: &[u8], mut from: usize) -> Option<(usize, bool)> {
    let mut doubled = false;
    loop {
        let quote = from + memchr(b'"', data.get(from..)?)?;
        if data.get(quote + 1) != Some(&b'"') {
            return Some((quote, doubled));
        }
        doubled = true;
        from = quote + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn finds_what_a_loop_finds(
            data in prop::collection::vec(prop::sample::select(b",\n\"a\0\xff".to_vec()), 0..300),
            from in 0usize..300,
            skip in 0usize..100,
        ) {
            let from = from.min(data.len());
            let wanted = |quotes: bool, from: usize| -> Vec<usize> {
                (from..data.len())
                    .filter(|&at| matches!(data[at], b',' | b'\n') || quotes && data[at] == b'"')
                    .collect()
            };
            let mut scanner = Scanner::<true>::new(&data, b',', from);
            prop_assert_eq!(std::iter::from_fn(|| scanner.next()).collect::<Vec<_>>(), wanted(true, from));
            let mut scanner = Scanner::<false>::new(&data, b',', from);
            if let Some(first) = scanner.next() {
                let to = (first + 1 + skip).min(data.len());
                scanner.seek(to);
                prop_assert_eq!(std::iter::from_fn(|| scanner.next()).collect::<Vec<_>>(), wanted(false, to));
            }
        }
    }

    #[test]
    fn doubled_quotes_do_not_close() {
        assert_eq!(closing_quote(b"\"ab\",", 1), Some((3, false)));
        assert_eq!(closing_quote(b"\"a\"\"b\"", 1), Some((5, true)));
        assert_eq!(closing_quote(b"\"\"", 1), Some((1, false)));
        assert_eq!(closing_quote(b"\"a\"\"", 1), None);
        assert_eq!(closing_quote(b"\"", 1), None);
    }
}
