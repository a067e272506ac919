//! Rows in files: what does not fit memory, the oldest buckets of a side together in a segment.
//!
//! A segment's rows stand in pages by a hash of their key, so that a probe reads one page. In
//! memory are the pages' places in the file, a filter that tells most keys which are not there
//! (where there is room for one), and a bit a row: whether it was matched.

use std::path::Path;

use super::State;
use super::arena::{Arena, Handle};
use super::directory::{Directories, is_directory};
use super::index::Index;
use super::run::{MATCHED, Run};
use crate::event::Side;
use crate::spill::{PageFile, PageWriter, SpillError};

/// What a page should hold.
const PAGE_BYTES: usize = 4 << 10;
/// Bits of a filter for each row, if there is room for them, and if there is less: fewer than the
/// least tell next to nothing.
const FILTER_BITS_PER_ROW: usize = 8;
const FILTER_BITS_PER_ROW_MIN: usize = 3;
/// Bytes of a row in a page beside its own: key, time, tag, length.
const ROW_HEADER: usize = 24;

/// Rows of one side that stand in files, and what is known of them in memory.
#[derive(Default)]
pub(super) struct Cold {
    pub(super) segments: Vec<Segment>,
    rows: u64,
    memory_bytes: usize,
    filter_bytes: usize,
}

/// The rows of some buckets of one side, in a file.
pub(super) struct Segment {
    file: PageFile,
    /// The first and last time of its rows.
    pub(super) first: i64,
    pub(super) last: i64,
    rows: u64,
    /// The number of the first row of each page.
    page_rows: Vec<u32>,
    /// Bits; none when there was no room.
    filter: Vec<u64>,
    matched: Vec<u64>,
}

/// A row of a page.
pub(super) struct ColdRow<'a> {
    /// Its number in the segment.
    pub(super) number: u32,
    pub(super) key: u64,
    pub(super) ts: i64,
    pub(super) tag: u32,
    pub(super) row: &'a [u8],
}

/// The runs that are to go into a segment.
struct Leaving {
    page: u32,
    key: u64,
    run: Run,
}

impl Cold {
    pub(super) fn row_count(&self) -> u64 {
        self.rows
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.memory_bytes + self.segments.capacity() * size_of::<Segment>()
    }

    /// Drops the segments all of whose rows have times under `floor`; returns how many rows went.
    pub(super) fn retire(&mut self, floor: i64) -> u64 {
        let before = self.rows;
        let Cold { segments, rows, memory_bytes, filter_bytes } = self;
        segments.retain(|segment| {
            let stays = segment.last >= floor;
            if !stays {
                *rows -= segment.rows;
                *memory_bytes -= segment.memory_bytes();
                *filter_bytes -= segment.filter.len() * 8;
            }
            stays
        });
        before - self.rows
    }

    /// Drops all segments; returns how many rows went.
    pub(super) fn retire_all(&mut self) -> u64 {
        std::mem::take(self).rows
    }

    fn add(&mut self, segment: Segment) {
        self.rows += segment.rows;
        self.memory_bytes += segment.memory_bytes();
        self.filter_bytes += segment.filter.len() * 8;
        self.segments.push(segment);
    }
}

impl Segment {
    /// Writes the rows of `leaving` to a file in `folder`.
    fn write(
        folder: &Path,
        leaving: &mut [Leaving],
        (page_count, filter_bytes_max): (usize, usize),
    ) -> Result<Segment, SpillError> {
        leaving.sort_unstable_by_key(|leaving| leaving.page);
        let rows: usize = leaving.iter().map(|leaving| leaving.run.len()).sum();
        let mut file = PageWriter::create(folder)?;
        let mut page_rows = Vec::with_capacity(page_count);
        let mut matched = vec![0; rows.div_ceil(64)];
        let mut filter = filter_for(rows, filter_bytes_max);
        let (mut first, mut last, mut number) = (i64::MAX, i64::MIN, 0u32);
        let (mut page, mut next) = (Vec::with_capacity(2 * PAGE_BYTES), 0);
        for page_number in 0..page_count as u32 {
            page.clear();
            page_rows.push(number);
            while let Some(Leaving { key, run, .. }) =
                leaving.get(next).filter(|leaving| leaving.page == page_number)
            {
                next += 1;
                set_in_filter(&mut filter, *key);
                for row in 0..run.len() {
                    let stored = run.stored(row);
                    let (ts, tag) = (stored.ts(), stored.tag());
                    (first, last) = (first.min(ts), last.max(ts));
                    let bit = u64::from(tag & MATCHED != 0);
                    matched[number as usize / 64] |= bit << (number % 64);
                    push_row(&mut page, *key, ts, tag, stored.row(tag));
                    number += 1;
                }
            }
            file.page(&page)?;
        }
        let file = file.finish()?;
        Ok(Segment { file, first, last, rows: rows as u64, page_rows, filter, matched })
    }

    fn memory_bytes(&self) -> usize {
        let words = self.filter.len() + self.matched.len();
        self.file.memory_bytes() + words * 8 + self.page_rows.capacity() * 4
    }

    /// The page where rows of `key` would stand; `None` when there are none.
    #[inline]
    pub(super) fn page_of(&self, key: u64) -> Option<u32> {
        is_in_filter(&self.filter, key).then(|| page_of(key, self.file.page_count()))
    }

    pub(super) fn read(&self, page: u32, bytes: &mut Vec<u8>) -> Result<(), SpillError> {
        self.file.read(page as usize, bytes)
    }

    /// The rows of a page that was read.
    pub(super) fn rows<'a>(
        &self,
        page: u32,
        mut bytes: &'a [u8],
    ) -> impl Iterator<Item = ColdRow<'a>> {
        let mut number = self.page_rows[page as usize];
        std::iter::from_fn(move || {
            let (header, rest) = bytes.split_first_chunk::<ROW_HEADER>()?;
            let word =
                |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| header[at + byte]));
            let [tag, len] = [word(16) as u32, (word(16) >> 32) as u32];
            // The page is as it was written, so the row is there.
            let (row, rest) = rest.split_at_checked(len as usize)?;
            bytes = rest;
            number += 1;
            Some(ColdRow { number: number - 1, key: word(0), ts: word(8) as i64, tag, row })
        })
    }

    pub(super) fn is_matched(&self, row: u32) -> bool {
        self.matched[row as usize / 64] >> (row % 64) & 1 != 0
    }

    pub(super) fn set_matched(&mut self, row: u32) {
        self.matched[row as usize / 64] |= 1 << (row % 64);
    }
}

fn push_row(page: &mut Vec<u8>, key: u64, ts: i64, tag: u32, row: &[u8]) {
    page.extend_from_slice(&key.to_ne_bytes());
    page.extend_from_slice(&ts.to_ne_bytes());
    // Rows are at most 64 MiB and keys 64 KiB: the length fits.
    let word = u64::from(tag) | (row.len() as u64) << 32;
    page.extend_from_slice(&word.to_ne_bytes());
    page.extend_from_slice(row);
}

/// Key values are hashes, or mixed as well as such; these bits are others than those that the index
/// and shards go by.
#[inline]
fn spread(key: u64) -> u64 {
    (key ^ key >> 29).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[inline]
fn page_of(key: u64, page_count: usize) -> u32 {
    ((u128::from(spread(key)) * page_count as u128) >> 64) as u32
}

fn filter_for(rows: usize, bytes_max: usize) -> Vec<u64> {
    let bits = (rows * FILTER_BITS_PER_ROW).min(bytes_max * 8);
    let bits = if bits < rows * FILTER_BITS_PER_ROW_MIN { 0 } else { bits };
    vec![0; bits / 64]
}

/// The two bits of a key.
#[inline]
fn bits_of(filter: &[u64], key: u64) -> [u64; 2] {
    let bits = filter.len() as u64 * 64;
    let spread = spread(key).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    [spread >> 32, spread & 0xFFFF_FFFF].map(|half| (half * bits) >> 32)
}

fn set_in_filter(filter: &mut [u64], key: u64) {
    if !filter.is_empty() {
        for bit in bits_of(filter, key) {
            filter[bit as usize / 64] |= 1 << (bit % 64);
        }
    }
}

#[inline]
fn is_in_filter(filter: &[u64], key: u64) -> bool {
    filter.is_empty()
        || bits_of(filter, key).iter().all(|bit| filter[*bit as usize / 64] >> (bit % 64) & 1 != 0)
}

impl State {
    /// Rows in files, of both sides.
    pub fn cold_row_count(&self) -> u64 {
        self.cold.iter().map(Cold::row_count).sum()
    }

    /// Puts the oldest buckets into files in `folder`, those first whose end is the next, until
    /// about `bytes` and `rows` of memory are freed. Filters may take `filter_bytes_max`, over both
    /// sides. Returns how many rows went, by side. After an error the state must not be used.
    pub fn spill(
        &mut self,
        folder: &Path,
        (bytes, rows): (usize, u64),
        ends: [i128; 2],
        filter_bytes_max: usize,
    ) -> Result<[u64; 2], SpillError> {
        let counts = self.buckets_to_leave((bytes, rows), ends);
        let mut gone = [0; 2];
        for side in Side::BOTH.into_iter().filter(|side| counts[side.index()] > 0) {
            let own = side.index();
            let (first_kept, expected) =
                self.rings[own].first_after(counts[own], &self.arenas[own]);
            let mut leaving = self.leaving(side, first_kept);
            let found: u64 = leaving.iter().map(|leaving| leaving.run.len() as u64).sum();
            assert_eq!(found, expected, "the index names every run");
            let page_bytes: usize = leaving.iter().map(|leaving| bytes_in_page(leaving.run)).sum();
            let page_count = page_bytes.div_ceil(PAGE_BYTES).max(1);
            for leaving in &mut leaving {
                leaving.page = page_of(leaving.key, page_count);
            }
            let used: usize = self.cold.iter().map(|cold| cold.filter_bytes).sum();
            let layout = (page_count, filter_bytes_max.saturating_sub(used));
            let segment = Segment::write(folder, &mut leaving, layout)?;
            gone[own] = self.rings[own].retire_oldest(counts[own], &mut self.arenas[own]);
            self.cold[own].add(segment);
        }
        self.shrink_index();
        Ok(gone)
    }

    /// How many of the oldest buckets of each side are to go.
    fn buckets_to_leave(&self, (bytes, rows): (usize, u64), ends: [i128; 2]) -> [usize; 2] {
        let mut counts = [0; 2];
        let (mut found_bytes, mut found_rows) = (0, 0);
        while found_bytes < bytes || found_rows < rows {
            let next = Side::BOTH.into_iter().filter_map(|side| {
                let own = side.index();
                let (last, size) = self.rings[own].size_of(counts[own], &self.arenas[own])?;
                Some((i128::from(last) + ends[own], own, size))
            });
            let Some((_, own, size)) = next.min_by_key(|next| (next.0, next.1)) else { break };
            counts[own] += 1;
            found_bytes += size.0;
            found_rows += size.1;
        }
        counts
    }

    /// The runs of a side in buckets before `first_kept`.
    fn leaving(&self, side: Side, first_kept: Option<i64>) -> Vec<Leaving> {
        let own = side.index();
        let (arena, directories) = (&self.arenas[own], &self.directories[own]);
        let mut leaving = Vec::new();
        collect(&self.index, own, |tag, head| {
            each_run(head, arena, directories, |bucket, run| {
                if first_kept.is_none_or(|first| bucket < first) {
                    let key = u64::from(run.rest()) << 32 | u64::from(tag);
                    leaving.push(Leaving { page: 0, key, run });
                }
            });
        });
        leaving
    }
}

fn collect(index: &Index, side: usize, mut each: impl FnMut(u32, Handle)) {
    index.each_entry(|tag, heads| each(tag, heads[side]));
}

/// Calls `each` with the runs of a chain or directory and their buckets.
fn each_run(
    head: Handle,
    arena: &Arena,
    directories: &Directories,
    mut each: impl FnMut(i64, Run),
) {
    let mut chain = |mut handle: Handle| {
        while arena.is_live(handle) {
            // SAFETY: a live handle of a chain leads to a run.
            let run = unsafe { Run::at(arena.address(handle)) };
            each(arena.bucket_of(handle), run);
            handle = run.older();
        }
    };
    if is_directory(head) {
        directories.get(head).runs(arena).for_each(chain);
    } else {
        chain(head);
    }
}

fn bytes_in_page(run: Run) -> usize {
    (0..run.len())
        .map(|row| {
            let stored = run.stored(row);
            ROW_HEADER + stored.row(stored.tag()).len()
        })
        .sum()
}
