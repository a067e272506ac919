//! Rows in files: what does not fit memory, the oldest buckets of a side together in a segment.
//!
//! A segment's rows stand in pages by a hash of their key, so that a probe reads one page. In
//! memory are the pages' places in the file, a filter that tells most keys which are not there
//! (where there is room for one), and a bit a row: whether it was matched. Rows that wait for their
//! end stand in the file a second time, in the order in which they come out. When there are too
//! many segments, neighbours are put together.

mod aged;
mod filter;
mod merge;
mod segment;
mod waits;

use std::path::Path;

use hashbrown::HashMap;

use super::arena::{Arena, Handle};
use super::directory::{Directories, is_directory};
use super::expiry::Due;
use super::index::Index;
use super::run::{MATCHED, Run};
use super::ttl::Epochs;
use super::{State, waiting_row, waiting_run};
use crate::event::Side;
use crate::spill::SpillError;
use aged::Aged;
use merge::{SEGMENTS_MAX, merge, to_merge};
pub(super) use segment::{ColdRow, Segment};
use segment::{NO_NUMBER, PAGE_BYTES, SegmentWriter, bytes_in_page, page_of};
use waits::Wait;

/// Rows of one side that stand in files, and what is known of them in memory.
#[derive(Default)]
pub(super) struct Cold {
    pub(super) segments: Vec<Segment>,
    rows: u64,
    memory_bytes: usize,
    filter_bytes: usize,
}

/// A row in a file whose end is near.
#[derive(Clone, Copy)]
pub(super) struct ColdDue {
    segment: usize,
    pub(super) ts: i64,
    pub(super) arrival: u64,
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
        let waits: usize = self.segments.iter().map(Segment::wait_bytes).sum();
        self.memory_bytes + waits + self.segments.capacity() * size_of::<Segment>()
    }

    /// The next row that waits, in order of time and arrival, with a time under `floor`; `None` as
    /// floor means all rows.
    pub(super) fn next_wait(&mut self, floor: Option<i64>) -> Result<Option<ColdDue>, SpillError> {
        let mut first: Option<ColdDue> = None;
        for (number, segment) in self.segments.iter_mut().enumerate() {
            if let Some(Wait { ts, arrival, .. }) = segment.next_wait(floor)?
                && first.is_none_or(|first| (ts, arrival) < (first.ts, first.arrival))
            {
                first = Some(ColdDue { segment: number, ts, arrival });
            }
        }
        Ok(first)
    }

    /// Hands the row that [`next_wait`](Self::next_wait) has found over: key value and stored row.
    pub(super) fn take_wait(&mut self, due: ColdDue, each: impl FnOnce(u64, &[u8])) {
        let segment = &mut self.segments[due.segment];
        if let Some(Wait { key, row, .. }) = segment.waits().and_then(waits::Waits::next) {
            each(key, row);
        }
        segment.take_wait();
    }

    /// Drops the segments all of whose rows have times under `floor` and none of which waits;
    /// returns how many rows went.
    pub(super) fn retire(&mut self, floor: i64) -> u64 {
        self.retire_if(|segment| segment.last < floor && segment.waits().is_none())
    }

    /// Drops some segments; returns how many rows went, without those counted as dead.
    fn retire_if(&mut self, is_over: impl Fn(&Segment) -> bool) -> u64 {
        let before = self.rows;
        let Cold { segments, rows, memory_bytes, filter_bytes } = self;
        segments.retain(|segment| {
            let stays = !is_over(segment);
            if !stays {
                *rows -= segment.live_rows();
                *memory_bytes -= segment.memory_bytes();
                *filter_bytes -= segment.filter_bytes();
            }
            stays
        });
        before - self.rows
    }

    /// Has memory keep no more of the rows in files than it must.
    fn forget(&mut self) {
        self.segments.iter_mut().for_each(Segment::forget);
        self.segments.shrink_to_fit();
        self.memory_bytes -= std::mem::take(&mut self.filter_bytes);
    }

    /// Drops all segments; returns how many rows went.
    pub(super) fn retire_all(&mut self) -> u64 {
        std::mem::take(self).rows
    }

    fn add(&mut self, at: usize, segment: Segment) {
        self.rows += segment.live_rows();
        self.memory_bytes += segment.memory_bytes();
        self.filter_bytes += segment.filter_bytes();
        self.segments.insert(at, segment);
    }

    /// Puts neighbours together while there are too many; all filters may take so many bytes. Dead
    /// rows are left out: returns how many of them had not been counted as dead.
    fn merge(
        &mut self,
        folder: &Path,
        filter_bytes_max: usize,
        epochs: &Epochs<'_>,
    ) -> Result<u64, SpillError> {
        let before = self.rows;
        while self.segments.len() > SEGMENTS_MAX {
            let range = to_merge(&self.segments);
            let at = range.start;
            let merged: Vec<Segment> = self.segments.drain(range).collect();
            for segment in &merged {
                self.rows -= segment.live_rows();
                self.memory_bytes -= segment.memory_bytes();
                self.filter_bytes -= segment.filter_bytes();
            }
            let filter_bytes = filter_bytes_max.saturating_sub(self.filter_bytes);
            self.add(at, merge(folder, merged, filter_bytes, epochs)?);
        }
        Ok(before - self.rows)
    }
}

/// What has become of rows of a side that were to go into files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spilled {
    /// Rows that went.
    pub rows: u64,
    /// Rows that went nowhere, as they were dead, and that had not been counted as such.
    pub over: u64,
}

impl State {
    /// Rows in files, of both sides.
    pub fn cold_row_count(&self) -> u64 {
        self.cold.iter().map(Cold::row_count).sum()
    }

    /// Puts the oldest buckets into files in `folder`, those first whose end is the next, until
    /// about `bytes` and `rows` of memory are freed. Filters may take `filter_bytes_max`, over both
    /// sides. Returns what became of rows, by side. After an error the state must not be used.
    pub fn spill(
        &mut self,
        folder: &Path,
        (bytes, rows): (usize, u64),
        ends: [i128; 2],
        filter_bytes_max: usize,
    ) -> Result<[Spilled; 2], SpillError> {
        let counts = self.buckets_to_leave((bytes, rows), ends);
        let mut spilled = [Spilled::default(); 2];
        for side in Side::BOTH.into_iter().filter(|side| counts[side.index()] > 0) {
            let own = side.index();
            let (first_kept, expected) =
                self.rings[own].first_after(counts[own], &self.arenas[own]);
            let mut leaving = self.leaving(side, first_kept);
            let found: u64 = leaving.iter().map(|leaving| leaving.run.len() as u64).sum();
            assert_eq!(found, expected, "the index names every run");
            let waits = self.waits_of(side, first_kept);
            let used: usize = self.cold.iter().map(|cold| cold.filter_bytes).sum();
            let filter_bytes = filter_bytes_max.saturating_sub(used);
            let arena = &self.arenas[own];
            let epochs = self.ages.epochs_of(side, self.sequences[own]);
            let (waits, sizes) = (waits.as_deref(), (filter_bytes, &epochs));
            let mut segment = write(folder, arena, &mut leaving, waits, sizes)?;
            let gone = self.rings[own].retire_oldest(counts[own], &mut self.arenas[own]);
            let rows = segment.rows;
            if self.ages.is_sweeping() {
                segment.begin_sweep();
            }
            let cold = &mut self.cold[own];
            cold.add(cold.segments.len(), segment);
            let others = used - (cold.filter_bytes.min(used));
            let filter_bytes = filter_bytes_max.saturating_sub(others);
            let dropped = cold.merge(folder, filter_bytes, &epochs)?;
            spilled[own] = Spilled { rows, over: gone - rows + dropped };
        }
        self.shrink_index();
        Ok(spilled)
    }

    /// Has memory keep no more of the rows in files than it must: probes read more pages then.
    pub fn forget_cold(&mut self) {
        self.cold.iter_mut().for_each(Cold::forget);
    }

    /// Takes the rows out that wait in buckets before `first_kept`, in order, if any of the side
    /// does; those that were matched are left out.
    fn waits_of(&mut self, side: Side, first_kept: Option<i64>) -> Option<Vec<Due>> {
        let own = side.index();
        let (arena, ring) = (&self.arenas[own], &self.rings[own]);
        let expiry = self.expiries[own].as_mut()?;
        let last = first_kept.map_or(i64::MAX, |first| ring.last_time_of(first - 1));
        let waits = expiry.extract(
            last,
            |waiting| first_kept.is_none_or(|first| arena.bucket_of(waiting.run) < first),
            |waiting| {
                let row = waiting_row(arena, waiting);
                (row.tag() & MATCHED == 0).then(|| row.ts())
            },
        );
        expiry.trim();
        Some(waits)
    }

    /// Whether any row is in a file.
    #[inline]
    pub(super) fn has_cold(&self) -> bool {
        self.cold.iter().any(|cold| !cold.segments.is_empty())
    }

    /// Hands the next row in files that waits over, if it comes before an end and arrival; returns
    /// whether there was one. The rest is as for [`expire`](State::expire).
    #[cold]
    pub(super) fn expire_cold(
        &mut self,
        floors: Option<[i64; 2]>,
        ends: [i128; 2],
        before: Option<(i128, u64)>,
        mut each: impl FnMut(Side, u64, i64, &[u8]),
    ) -> Result<bool, SpillError> {
        let mut first: Option<((i128, u64), Side, ColdDue)> = None;
        for side in Side::BOTH {
            let own = side.index();
            if let Some(due) = self.cold[own].next_wait(floors.map(|floors| floors[own]))? {
                let order = (i128::from(due.ts) + ends[own], due.arrival);
                if before.is_none_or(|before| order < before)
                    && first.is_none_or(|(first, ..)| order < first)
                {
                    first = Some((order, side, due));
                }
            }
        }
        let Some((_, side, due)) = first else { return Ok(false) };
        self.cold[side.index()].take_wait(due, |key, row| each(side, key, due.ts, row));
        Ok(true)
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

/// Writes the runs that leave into a segment, without dead rows; `waits` are those of their rows
/// that wait for their end, where the side's rows do.
fn write(
    folder: &Path,
    arena: &Arena,
    leaving: &mut [Leaving],
    waits: Option<&[Due]>,
    (filter_bytes_max, epochs): (usize, &Epochs<'_>),
) -> Result<Segment, SpillError> {
    let page_bytes: usize = leaving.iter().map(|leaving| bytes_of(leaving.run)).sum();
    let page_count = page_bytes.div_ceil(PAGE_BYTES).max(1);
    for leaving in &mut *leaving {
        leaving.page = page_of(leaving.key, page_count);
    }
    leaving.sort_unstable_by_key(|leaving| leaving.page);
    let rows: usize = leaving.iter().map(|leaving| leaving.run.len()).sum();
    let sizes = (rows, waits.map(<[Due]>::len));
    let mut writer = SegmentWriter::new(folder, sizes, filter_bytes_max)?;
    let numbers = match waits {
        Some(waits) => Some(write_waits(&mut writer, arena, leaving, waits)?),
        None => None,
    };
    let mut aged = Aged::default();
    let (mut next, mut place) = (0, 0);
    for page in 0..page_count as u32 {
        while let Some(Leaving { key, run, .. }) = leaving.get(next).filter(|l| l.page == page) {
            next += 1;
            for row in 0..run.len() {
                let stored = run.stored(row);
                let (ts, tag) = (stored.ts(), stored.tag());
                place += 1;
                if epochs.is_dead(tag) {
                    continue;
                }
                aged.note(epochs.of(tag));
                let number = NO_NUMBER;
                let row = ColdRow { number, key: *key, ts, tag, row: stored.row(tag) };
                writer.row(&row, numbers.as_ref().map(|numbers| numbers[place - 1]));
            }
        }
        writer.end_page()?;
    }
    writer.finish(aged)
}

/// Writes the rows that wait; returns the numbers of all rows in the order of `leaving`.
fn write_waits(
    writer: &mut SegmentWriter,
    arena: &Arena,
    leaving: &[Leaving],
    waits: &[Due],
) -> Result<Vec<u32>, SpillError> {
    let mut rows = 0;
    let firsts = leaving.iter().map(|leaving| {
        rows += leaving.run.len();
        (leaving.run, rows - leaving.run.len())
    });
    let firsts: HashMap<Run, usize> = firsts.collect();
    let mut numbers = vec![NO_NUMBER; rows];
    for Due { ts, waiting } in waits {
        let row = waiting_row(arena, waiting);
        let row = row.row(row.tag());
        let wait = Wait { ts: *ts, arrival: waiting.arrival, key: waiting.key, row };
        let number = writer.wait(wait, false)?;
        let first = firsts[&waiting_run(arena, waiting)];
        numbers[first + waiting.row as usize] = number;
    }
    writer.end_waits()?;
    Ok(numbers)
}

fn bytes_of(run: Run) -> usize {
    (0..run.len())
        .map(|row| {
            let stored = run.stored(row);
            bytes_in_page(stored.row(stored.tag()))
        })
        .sum()
}
