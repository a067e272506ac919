//! Records of delimited text: where they and their fields begin and end.

use std::borrow::Cow;

use memchr::memchr;

use super::scan::{Scanner, closing_quote};

/// A field in a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    /// The text, quotes excluded.
    pub start: u32,
    pub end: u32,
    /// Whether the text holds doubled quotes.
    pub doubled: bool,
}

/// A record in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub start: usize,
    /// Where its text ends: before the line end.
    pub end: usize,
    pub field_count: usize,
    pub fault: Option<QuoteFault>,
}

/// What is wrong with the quotes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuoteFault {
    /// A quote is opened and not closed before the input ends.
    Unclosed,
    /// Text stands between a closing quote and the next delimiter.
    TextAfter,
}

impl std::fmt::Display for QuoteFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            QuoteFault::Unclosed => "a quote is opened and never closed",
            QuoteFault::TextAfter => {
                "text follows a closing quote; quotes inside a quoted field must be doubled"
            }
        })
    }
}

/// Stands in a table of slots for a column that nobody wants.
pub(super) const NO_SLOT: u16 = u16::MAX;

/// The records of some bytes that start where a record does. `QUOTES` may be false only if there
/// is no quote among them.
pub(super) struct Records<'a, const QUOTES: bool> {
    data: &'a [u8],
    delimiter: u8,
    scanner: Scanner<'a, QUOTES>,
    at: usize,
}

impl<'a, const QUOTES: bool> Records<'a, QUOTES> {
    pub(super) fn new(data: &'a [u8], delimiter: u8, from: usize) -> Self {
        Records { data, delimiter, scanner: Scanner::new(data, delimiter, from), at: from }
    }

    /// Where the next record starts.
    #[inline]
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The next record that is not empty. The field of column `c` goes to `spans[slots[c]]`; spans
    /// of columns that the record lacks stay as they were.
    #[inline]
    pub(super) fn next(&mut self, slots: &[u16], spans: &mut [Span]) -> Option<Record> {
        while self.at < self.data.len() {
            let record = self.record(slots, spans);
            if record.end > record.start {
                return Some(record);
            }
        }
        None
    }

    #[inline]
    fn record(&mut self, slots: &[u16], spans: &mut [Span]) -> Record {
        let (data, start) = (self.data, self.at);
        let mut record = Record { start, end: data.len(), field_count: 0, fault: None };
        loop {
            let field_start = self.at;
            let (mut span, mut quoted, mut end);
            (span, quoted) = (Span { start: field_start as u32, end: 0, doubled: false }, false);
            // Blocks are far under 4 GiB, so the casts cannot truncate.
            let is_last = loop {
                end = self.scanner.next().unwrap_or(data.len());
                match data.get(end) {
                    Some(b'"') if QUOTES => {
                        if end == field_start {
                            quoted = true;
                            self.open_quote(end + 1, &mut span, &mut record);
                        }
                    }
                    Some(&byte) if byte == self.delimiter => break false,
                    _ => break true,
                }
            };
            self.at = end + 1;
            if is_last && end > start && data[end - 1] == b'\r' {
                end -= 1;
            }
            if quoted {
                // The closing quote stands at `span.end`.
                if end != span.end as usize + 1 && record.fault.is_none() {
                    record.fault = Some(QuoteFault::TextAfter);
                }
            } else {
                span.end = end as u32;
            }
            if let Some(&slot) = slots.get(record.field_count)
                && slot != NO_SLOT
            {
                spans[usize::from(slot)] = span;
            }
            record.field_count += 1;
            if is_last {
                record.end = end;
                return record;
            }
        }
    }

    /// A quoted field's text starts at `from`: finds its end and goes on behind it.
    fn open_quote(&mut self, from: usize, span: &mut Span, record: &mut Record) {
        let (close, doubled) = match closing_quote(self.data, from) {
            Some(found) => found,
            None => {
                record.fault = Some(QuoteFault::Unclosed);
                (self.data.len(), false)
            }
        };
        *span = Span { start: from as u32, end: close as u32, doubled };
        self.scanner.seek((close + 1).min(self.data.len()));
    }
}

/// The text of a field.
#[inline]
pub(super) fn text<'a>(data: &'a [u8], span: Span) -> Cow<'a, [u8]> {
    let text = &data[span.start as usize..span.end as usize];
    if span.doubled { Cow::Owned(undouble(text)) } else { Cow::Borrowed(text) }
}

/// Text of a quoted field with its doubled quotes made single.
#[cold]
fn undouble(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(quote) = memchr(b'"', rest) {
        plain.extend_from_slice(&rest[..=quote]);
        rest = rest.get(quote + 2..).unwrap_or_default();
    }
    plain.extend_from_slice(rest);
    plain
}
