//! Finds what structures a delimited file: 64 bytes at a time, without `unsafe`.

use memchr::{memchr, memrchr};

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
    bits_where(group, |byte| (byte == delimiter) | (byte == b'\n') | (QUOTES & (byte == b'"')))
}

/// One bit for each byte of which `is` is true.
#[inline]
fn bits_where(group: &[u8; 64], is: impl Fn(u8) -> bool) -> u64 {
    let mut ones = [0u8; 64];
    for (one, &byte) in ones.iter_mut().zip(group) {
        *one = u8::from(is(byte));
    }
    let mut bits = 0;
    for (place, eight) in ones.as_chunks::<8>().0.iter().enumerate() {
        // The product moves the lowest bit of byte i to bit 56 + i; no two terms meet.
        let packed = u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        bits |= packed << (place * 8);
    }
    bits
}

/// How far a search for record ends has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordEnds {
    /// Everything before was looked at.
    pub at: usize,
    /// Whether `at` lies inside a quoted field.
    pub in_quotes: bool,
    /// Where the last complete record ends.
    pub boundary: usize,
}

impl RecordEnds {
    /// Goes on to the end of `bytes`, which start at a record's start. With `ended` nothing follows
    /// them; otherwise a quote at their end may be left for the next time, as another may follow.
    ///
    /// Where quotes stand as they should, only their number tells what is inside: 64 bytes are
    /// done with a few operations. Where they do not, they are looked at one by one.
    pub(super) fn advance(&mut self, bytes: &[u8], delimiter: u8, ended: bool) {
        if !self.in_quotes && memchr(b'"', &bytes[self.at..]).is_none() {
            self.line_end(bytes, bytes.len());
            self.at = bytes.len();
            return;
        }
        // Whether the byte before `at` is a quote that closed a field.
        let mut closed = false;
        while self.at + 64 < bytes.len() {
            let end = self.at + 64;
            if !self.group(bytes, delimiter, &mut closed) {
                self.reopen(bytes, closed);
                self.one_by_one(&bytes[..end], delimiter, false);
                closed = false;
            }
        }
        self.reopen(bytes, closed);
        self.one_by_one(bytes, delimiter, ended);
    }

    /// Does 64 bytes, or nothing if a quote in them stands where none should.
    #[inline]
    fn group(&mut self, bytes: &[u8], delimiter: u8, closed: &mut bool) -> bool {
        let Some(group) = bytes[self.at..].first_chunk::<64>() else { return false };
        let quotes = bits_where(group, |byte| byte == b'"');
        let ends = bits_where(group, |byte| byte == b'\n');
        let starts = bits_where(group, |byte| byte == delimiter) | ends;
        let before = self.at.checked_sub(1).map(|before| bytes[before]);
        let at_start = *closed || before.is_none_or(|byte| byte == delimiter || byte == b'\n');
        // Bit i: whether byte i, taken itself, leaves us inside.
        let mut inside = quotes;
        for shift in [1, 2, 4, 8, 16, 32] {
            inside ^= inside << shift;
        }
        if self.in_quotes {
            inside = !inside;
        }
        // A quote opens a field at its start, or is the second of two.
        let may_open = (starts | (quotes & !inside)) << 1 | u64::from(at_start);
        if quotes & inside & !may_open != 0 {
            return false;
        }
        let record_ends = ends & !inside;
        if record_ends != 0 {
            self.boundary = self.at + 64 - record_ends.leading_zeros() as usize;
        }
        self.in_quotes = inside >> 63 == 1;
        *closed = (quotes & !inside) >> 63 == 1;
        self.at += 64;
        true
    }

    /// A quote after a quote that seemed to close a field opens it again.
    fn reopen(&mut self, bytes: &[u8], closed: bool) {
        if closed && bytes.get(self.at) == Some(&b'"') {
            self.in_quotes = true;
            self.at += 1;
        }
    }

    /// The same, quote by quote. A quote opens a quoted field only where a field starts.
    fn one_by_one(&mut self, bytes: &[u8], delimiter: u8, ended: bool) {
        while self.at < bytes.len() {
            let Some(found) = memchr(b'"', &bytes[self.at..]) else {
                if !self.in_quotes {
                    self.line_end(bytes, bytes.len());
                }
                self.at = bytes.len();
                return;
            };
            let quote = self.at + found;
            if self.in_quotes {
                match bytes.get(quote + 1) {
                    Some(b'"') => self.at = quote + 2,
                    None if !ended => {
                        // It may be the first of two: look again when more is there.
                        self.at = quote;
                        return;
                    }
                    _ => {
                        self.in_quotes = false;
                        self.at = quote + 1;
                    }
                }
            } else {
                self.line_end(bytes, quote);
                let before = quote.checked_sub(1).map(|before| bytes[before]);
                self.in_quotes = before.is_none_or(|byte| byte == delimiter || byte == b'\n');
                self.at = quote + 1;
            }
        }
    }

    /// Text without quotes up to `to`: its last line end is a record's.
    fn line_end(&mut self, bytes: &[u8], to: usize) {
        if let Some(end) = memrchr(b'\n', &bytes[self.at..to]) {
            self.boundary = self.at + end + 1;
        }
    }
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
            let found: Vec<_> = std::iter::from_fn(|| scanner.next()).collect();
            prop_assert_eq!(found, wanted(true, from));
            let mut scanner = Scanner::<false>::new(&data, b',', from);
            if let Some(first) = scanner.next() {
                let to = (first + 1 + skip).min(data.len());
                scanner.seek(to);
                let found: Vec<_> = std::iter::from_fn(|| scanner.next()).collect();
                prop_assert_eq!(found, wanted(false, to));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn groups_find_the_record_ends_that_single_quotes_do(
            pieces in prop::collection::vec(prop::sample::select(vec![
                &b"a"[..], b",", b"\n", b"\"", b"\"\"", b"\"x,\ny\",", b"a long piece of text",
                b"\"a long piece,\nin quotes, \"\"with quotes\"\" inside\"\n",
            ]), 0..60),
            cuts in prop::collection::vec(1usize..200, 1..8),
        ) {
            let data = pieces.concat();
            let mut expected = RecordEnds::default();
            expected.one_by_one(&data, b',', true);
            let (mut found, mut end) = (RecordEnds::default(), 0);
            for cut in cuts {
                end = (end + cut).min(data.len());
                found.advance(&data[..end], b',', false);
                let mut slow = RecordEnds::default();
                slow.one_by_one(&data[..end], b',', false);
                prop_assert_eq!(found, slow);
            }
            found.advance(&data, b',', true);
            prop_assert_eq!(found, expected);
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
