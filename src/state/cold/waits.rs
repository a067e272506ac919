//! The rows of a segment that wait for their end, read in order, a page at a time.

use crate::spill::{PageFile, SpillError};

/// Bytes of a row beside its own: time, arrival, key, length.
const WAIT_HEADER: usize = 28;

/// A row that waits for its end.
#[derive(Clone, Copy)]
pub(in crate::state) struct Wait<'a> {
    pub(in crate::state) ts: i64,
    /// Its place in the order of arrival, over both sides.
    pub(in crate::state) arrival: u64,
    pub(in crate::state) key: u64,
    pub(in crate::state) row: &'a [u8],
}

impl Wait<'_> {
    pub(super) fn push_to(&self, page: &mut Vec<u8>) {
        page.extend_from_slice(&self.ts.to_ne_bytes());
        page.extend_from_slice(&self.arrival.to_ne_bytes());
        page.extend_from_slice(&self.key.to_ne_bytes());
        // Rows and keys are far below 4 GiB.
        page.extend_from_slice(&(self.row.len() as u32).to_ne_bytes());
        page.extend_from_slice(self.row);
    }
}

/// How far the waiting rows of a segment have come out.
#[derive(Clone)]
pub(super) struct Waits {
    /// No row that is not out has a smaller time.
    from: i64,
    /// The number of the next row.
    number: u32,
    page: Vec<u8>,
    at: usize,
    /// Bytes of the next page that are out already.
    skipped: usize,
    next_page: usize,
    page_count: usize,
}

impl Waits {
    pub(super) fn new(first: i64, page_count: usize) -> Waits {
        Waits {
            from: first,
            number: 0,
            page: Vec::new(),
            at: 0,
            skipped: 0,
            next_page: 0,
            page_count,
        }
    }

    pub(super) fn from(&self) -> i64 {
        self.from
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn bytes(&self) -> usize {
        self.page.capacity()
    }

    pub(super) fn is_at_end_of_page(&self) -> bool {
        self.at == self.page.len()
    }

    /// Reads the next page; returns whether there was one.
    pub(super) fn read_page(&mut self, file: &PageFile) -> Result<bool, SpillError> {
        if self.next_page == self.page_count {
            return Ok(false);
        }
        file.read(self.next_page, &mut self.page)?;
        self.at = std::mem::take(&mut self.skipped);
        self.next_page += 1;
        self.note_time();
        Ok(true)
    }

    /// Forgets the page that was read: it is read again when the next row is looked for.
    pub(super) fn forget_page(&mut self) {
        if !self.is_at_end_of_page() {
            (self.skipped, self.at) = (self.at, 0);
            self.next_page -= 1;
            self.page = Vec::new();
        }
    }

    /// The next row, if it is on the page that was read.
    pub(super) fn next(&self) -> Option<Wait<'_>> {
        let (header, rest) = self.page[self.at..].split_first_chunk::<WAIT_HEADER>()?;
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| header[at + byte]));
        let len = u32::from_ne_bytes(std::array::from_fn(|byte| header[24 + byte]));
        let row = rest.get(..len as usize)?;
        Some(Wait { ts: word(0) as i64, arrival: word(8), key: word(16), row })
    }

    pub(super) fn take(&mut self) {
        let len = self.next().map_or(0, |wait| WAIT_HEADER + wait.row.len());
        self.at += len;
        self.number += 1;
        if self.is_at_end_of_page() {
            // Most pages are taken at once, and then none for a while.
            (self.page, self.at) = (Vec::new(), 0);
        }
        self.note_time();
    }

    fn note_time(&mut self) {
        self.from = self.next().map_or(self.from, |wait| wait.ts);
    }
}
