//! A segment: a file of rows of some buckets of one side, and what memory knows of it.
//!
//! | pages | hold | order |
//! | --- | --- | --- |
//! | first | rows that wait for their end, each behind its time, arrival and key | time, arrival |
//! | then | all rows, each behind its key, time, tag and number | hash of the key, by pages |
//!
//! Rows are numbered: where rows wait, by their place among those of the first pages (one that has
//! had its match before it went into the file needs none); elsewhere by their place in the others.
//! By their number memory knows whether they were matched.

use std::path::Path;

use super::aged::Aged;
use super::filter::{KeyFilter, spread};
use super::waits::{Wait, Waits};
use crate::spill::{PageFile, PageWriter, SpillError};
use crate::state::run::MATCHED;

/// What a page should hold.
pub(super) const PAGE_BYTES: usize = 4 << 10;
/// Bytes of a row in a page beside its own: key, time, tag, length, number.
const ROW_HEADER: usize = 28;
/// The number of a row that was matched before it went into the file where others wait.
pub(super) const NO_NUMBER: u32 = u32::MAX;

/// The rows of some buckets of one side, in a file.
pub(in crate::state) struct Segment {
    file: PageFile,
    /// The first and last time of its rows.
    pub(in crate::state) first: i64,
    pub(in crate::state) last: i64,
    pub(super) rows: u64,
    filter: KeyFilter,
    /// A bit a number.
    matched: Vec<u64>,
    /// Until all of them are out.
    waits: Option<Waits>,
    /// Pages of waiting rows, which come before the others.
    wait_pages: usize,
    /// What is known of rows that have outlived their time.
    pub(super) aged: Aged,
}

/// A row of a page.
pub(in crate::state) struct ColdRow<'a> {
    pub(in crate::state) number: u32,
    pub(in crate::state) key: u64,
    pub(in crate::state) ts: i64,
    pub(in crate::state) tag: u32,
    pub(in crate::state) row: &'a [u8],
}

/// A segment that is being written: first its waiting rows, then all by their pages.
pub(super) struct SegmentWriter {
    file: PageWriter,
    page: Vec<u8>,
    first: i64,
    last: i64,
    rows: u64,
    filter: KeyFilter,
    matched: Vec<u64>,
    /// The time of the first waiting row, and how many there are.
    first_wait: Option<i64>,
    wait_count: u32,
    wait_pages: usize,
}

impl SegmentWriter {
    /// For so many rows, of which so many wait if any does.
    pub(super) fn new(
        folder: &Path,
        (rows, waiting): (usize, Option<usize>),
        filter_bytes_max: usize,
    ) -> Result<SegmentWriter, SpillError> {
        Ok(SegmentWriter {
            file: PageWriter::create(folder)?,
            page: Vec::with_capacity(2 * PAGE_BYTES),
            first: i64::MAX,
            last: i64::MIN,
            rows: 0,
            filter: KeyFilter::new(rows, filter_bytes_max),
            matched: vec![0; waiting.unwrap_or(rows).div_ceil(64)],
            first_wait: None,
            wait_count: 0,
            wait_pages: 0,
        })
    }

    /// The next waiting row in the order of time and arrival; `is_matched`: it waits no more.
    pub(super) fn wait(&mut self, wait: Wait<'_>, is_matched: bool) -> Result<u32, SpillError> {
        let number = self.wait_count;
        self.wait_count += 1;
        self.first_wait.get_or_insert(wait.ts);
        wait.push_to(&mut self.page);
        set(&mut self.matched, number, is_matched);
        if self.page.len() >= PAGE_BYTES {
            self.end_wait_page()?;
        }
        Ok(number)
    }

    fn end_wait_page(&mut self) -> Result<(), SpillError> {
        self.wait_pages += 1;
        self.end_page()
    }

    /// No waiting row follows.
    pub(super) fn end_waits(&mut self) -> Result<(), SpillError> {
        if self.page.is_empty() { Ok(()) } else { self.end_wait_page() }
    }

    /// A row of the page at work. Without its number it gets the next one; the tag says whether it
    /// was matched then.
    pub(super) fn row(&mut self, row: &ColdRow<'_>, number: Option<u32>) {
        let next = self.rows as u32;
        if number.is_none() {
            set(&mut self.matched, next, row.tag & MATCHED != 0);
        }
        self.rows += 1;
        self.filter.insert(row.key);
        (self.first, self.last) = (self.first.min(row.ts), self.last.max(row.ts));
        row.push_to(number.unwrap_or(next), &mut self.page);
    }

    /// The rows of the next page follow.
    pub(super) fn end_page(&mut self) -> Result<(), SpillError> {
        self.file.page(&self.page)?;
        self.page.clear();
        Ok(())
    }

    pub(super) fn finish(self, aged: Aged) -> Result<Segment, SpillError> {
        let SegmentWriter { file, first, last, rows, filter, matched, wait_pages, .. } = self;
        let waits = self.first_wait.map(|ts| Waits::new(ts, wait_pages));
        let file = file.finish()?;
        Ok(Segment { file, first, last, rows, filter, matched, waits, wait_pages, aged })
    }
}

impl Segment {
    pub(super) fn filter_bytes(&self) -> usize {
        self.filter.bytes()
    }

    /// Gives the filter up, and the page of waiting rows that was read.
    pub(super) fn forget(&mut self) {
        self.filter = KeyFilter::default();
        self.waits.iter_mut().chain(&mut self.aged.sweep).for_each(Waits::forget_page);
    }

    /// Bytes of memory; what a page of waiting rows takes while they come out is not in it.
    pub(super) fn memory_bytes(&self) -> usize {
        self.file.memory_bytes() + self.filter.bytes() + self.matched.len() * 8
    }

    /// Bytes of a page of waiting rows that are coming out.
    pub(super) fn wait_bytes(&self) -> usize {
        self.waits.iter().chain(&self.aged.sweep).map(Waits::bytes).sum()
    }

    /// Rows that have not outlived their time, or ended before they did.
    pub(super) fn live_rows(&self) -> u64 {
        self.rows - self.aged.timed_out
    }

    /// The bytes of all rows in their pages, waiting ones not twice.
    pub(super) fn row_bytes(&self) -> u64 {
        self.file.bytes_of(self.wait_pages..self.file.page_count())
    }

    /// Pages of rows by their keys.
    pub(super) fn page_count(&self) -> usize {
        self.file.page_count() - self.wait_pages
    }

    /// The page where rows of `key` would stand; `None` when there are none.
    #[inline]
    pub(in crate::state) fn page_of(&self, key: u64) -> Option<u32> {
        self.filter.may_have(key).then(|| page_of(key, self.page_count()))
    }

    pub(in crate::state) fn read(&self, page: u32, bytes: &mut Vec<u8>) -> Result<(), SpillError> {
        self.file.read(self.wait_pages + page as usize, bytes)
    }

    pub(in crate::state) fn is_matched(&self, number: u32) -> bool {
        number == NO_NUMBER || self.matched[number as usize / 64] >> (number % 64) & 1 != 0
    }

    pub(in crate::state) fn set_matched(&mut self, number: u32) {
        if number != NO_NUMBER {
            set(&mut self.matched, number, true);
        }
    }

    /// Whether rows may still wait.
    pub(super) fn waits(&self) -> Option<&Waits> {
        self.waits.as_ref()
    }

    /// How many rows have numbers because they wait, or did.
    pub(super) fn numbers(&self) -> usize {
        self.matched.len() * 64
    }

    /// The next row that waits and was not matched, with a time under `floor`, if that is given. To
    /// be taken by [`take_wait`](Self::take_wait).
    pub(super) fn next_wait(&mut self, floor: Option<i64>) -> Result<Option<Wait<'_>>, SpillError> {
        loop {
            let Some(waits) = self.waits.as_ref() else { return Ok(None) };
            if floor.is_some_and(|floor| waits.from() >= floor) {
                return Ok(None);
            }
            if !self.is_wait_there()? {
                return Ok(None);
            }
            let is_matched = self.waits.as_ref().is_some_and(|w| self.is_matched(w.number()));
            if !is_matched {
                break;
            }
            self.take_wait();
        }
        let next = self.waits.as_ref().and_then(Waits::next);
        Ok(next.filter(|wait| floor.is_none_or(|floor| wait.ts < floor)))
    }

    /// The same, matched or not, with its number.
    pub(super) fn next_numbered(&mut self) -> Result<Option<(u32, Wait<'_>)>, SpillError> {
        if !self.is_wait_there()? {
            return Ok(None);
        }
        Ok(self.waits.as_ref().and_then(|waits| Some((waits.number(), waits.next()?))))
    }

    /// All rows by their keys, a page at a time.
    pub(super) fn each_page(&self, mut each: impl FnMut(&[u8])) -> Result<(), SpillError> {
        let mut bytes = Vec::new();
        for page in 0..self.page_count() as u32 {
            self.read(page, &mut bytes)?;
            each(&bytes);
        }
        Ok(())
    }

    /// The next row that still waits of those which arrived before `arrival`, from the beginning on
    /// once [`begin_sweep`](Self::begin_sweep) was called; to be taken by
    /// [`take_swept`](Self::take_swept).
    pub(super) fn next_swept(&mut self, arrival: u64) -> Result<Option<Wait<'_>>, SpillError> {
        loop {
            let Some(sweep) = &mut self.aged.sweep else { return Ok(None) };
            if sweep.is_at_end_of_page() && !sweep.read_page(&self.file)? {
                self.aged.sweep = None;
                return Ok(None);
            }
            let number = sweep.number();
            let is_old = sweep.next().is_some_and(|wait| wait.arrival < arrival);
            if is_old && !self.is_matched(number) {
                break;
            }
            self.aged.sweep.iter_mut().for_each(Waits::take);
        }
        Ok(self.aged.sweep.as_ref().and_then(Waits::next))
    }

    /// Rows that wait are to be looked through for those that have outlived their time.
    pub(super) fn begin_sweep(&mut self) {
        self.aged.sweep = self.waits.clone();
    }

    /// The row that was seen last is out: it waits no more.
    pub(super) fn take_swept(&mut self) {
        if let Some(sweep) = &mut self.aged.sweep {
            let number = sweep.number();
            sweep.take();
            self.set_matched(number);
        }
    }

    /// The row that was seen last waits no more.
    pub(super) fn take_wait(&mut self) {
        if let Some(waits) = &mut self.waits {
            waits.take();
        }
    }

    /// Reads the next page of waiting rows if that is needed to see the next one.
    fn is_wait_there(&mut self) -> Result<bool, SpillError> {
        let Some(waits) = &mut self.waits else { return Ok(false) };
        if waits.is_at_end_of_page() && !waits.read_page(&self.file)? {
            self.waits = None;
            return Ok(false);
        }
        Ok(true)
    }
}

impl<'a> ColdRow<'a> {
    /// The rows of a page that was read.
    pub(in crate::state) fn all(mut bytes: &'a [u8]) -> impl Iterator<Item = ColdRow<'a>> {
        std::iter::from_fn(move || {
            let (header, rest) = bytes.split_first_chunk::<ROW_HEADER>()?;
            let word =
                |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| header[at + byte]));
            let [tag, len] = [word(16) as u32, (word(16) >> 32) as u32];
            let number = u32::from_ne_bytes(std::array::from_fn(|byte| header[24 + byte]));
            // The page is as it was written, so the row is there.
            let (row, rest) = rest.split_at_checked(len as usize)?;
            bytes = rest;
            Some(ColdRow { number, key: word(0), ts: word(8) as i64, tag, row })
        })
    }

    /// The same with a tag that says whether it was matched in its segment.
    pub(super) fn noting_match(&self, segment: &Segment) -> ColdRow<'a> {
        let is_matched = segment.is_matched(self.number);
        let tag = if is_matched { self.tag | MATCHED } else { self.tag };
        ColdRow { tag, ..*self }
    }

    pub(super) fn push_to(&self, number: u32, page: &mut Vec<u8>) {
        page.extend_from_slice(&self.key.to_ne_bytes());
        page.extend_from_slice(&self.ts.to_ne_bytes());
        // Rows are at most 64 MiB and keys 64 KiB: the length fits.
        let word = u64::from(self.tag) | (self.row.len() as u64) << 32;
        page.extend_from_slice(&word.to_ne_bytes());
        page.extend_from_slice(&number.to_ne_bytes());
        page.extend_from_slice(self.row);
    }
}

/// The bytes of a row in its page.
pub(super) fn bytes_in_page(row: &[u8]) -> usize {
    ROW_HEADER + row.len()
}

/// Pages follow each other in the order of what keys are spread by.
#[inline]
pub(super) fn page_of(key: u64, page_count: usize) -> u32 {
    ((u128::from(spread(key)) * page_count as u128) >> 64) as u32
}

fn set(bits: &mut [u64], number: u32, value: bool) {
    bits[number as usize / 64] |= u64::from(value) << (number % 64);
}
