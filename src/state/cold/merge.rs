//! Many small segments become one: an event looks at each, and each is a file.

use std::path::Path;

use super::aged::Aged;
use super::segment::{ColdRow, NO_NUMBER, PAGE_BYTES, Segment, SegmentWriter, page_of};
use crate::limits::{SPILL_FILES_PER_CORE, SPILL_SHELF_FILES};
use crate::spill::SpillError;
use crate::state::ttl::Epochs;

/// The most segments of a side.
pub(super) const SEGMENTS_MAX: usize = 24;
/// So many neighbours become one, when there are more.
const MERGED: usize = 8;

const _: () = assert!(2 * SEGMENTS_MAX + SPILL_SHELF_FILES + 4 <= SPILL_FILES_PER_CORE);

/// The neighbours that have the fewest rows together.
pub(super) fn to_merge(segments: &[Segment]) -> std::ops::Range<usize> {
    let rows_of = |at: usize| -> u64 { segments[at..at + MERGED].iter().map(|s| s.rows).sum() };
    let first = (0..=segments.len() - MERGED).min_by_key(|&at| rows_of(at)).unwrap_or(0);
    first..first + MERGED
}

/// Writes the rows of segments into one, without dead ones; those that wait go along. Memory holds
/// a page or two of each.
pub(super) fn merge(
    folder: &Path,
    mut segments: Vec<Segment>,
    filter_bytes_max: usize,
    epochs: &Epochs<'_>,
) -> Result<Segment, SpillError> {
    let is_sweeping = segments.iter().any(|segment| segment.aged.sweep.is_some());
    let mut aged = Aged::default();
    let rows: u64 = segments.iter().map(|segment| segment.rows).sum();
    let bytes: u64 = segments.iter().map(Segment::row_bytes).sum();
    let has_waits = segments.iter().any(|segment| segment.waits().is_some());
    let numbers: usize = segments.iter().map(Segment::numbers).sum();
    let sizes = (rows as usize, has_waits.then_some(numbers));
    let mut writer = SegmentWriter::new(folder, sizes, filter_bytes_max)?;
    let numbers = merge_waits(&mut segments, &mut writer)?;
    let page_count = (bytes as usize).div_ceil(PAGE_BYTES).max(1);
    let mut inputs: Vec<Input> = segments.iter().map(Input::new).collect();
    for page in 0..page_count {
        for (input, numbers) in inputs.iter_mut().zip(&numbers) {
            input.move_rows((page, page_count), |row, segment| {
                if epochs.is_dead(row.tag) {
                    return;
                }
                aged.note(epochs.of(row.tag));
                if has_waits {
                    writer.row(row, Some(numbers.of(row.number)));
                } else {
                    writer.row(&row.noting_match(segment), None);
                }
            })?;
        }
        writer.end_page()?;
    }
    let mut merged = writer.finish(aged)?;
    if is_sweeping {
        merged.begin_sweep();
    }
    Ok(merged)
}

/// What has become of the numbers of a segment's rows: pieces of them, in order.
#[derive(Default)]
struct Numbers(Vec<Piece>);

/// So many numbers from `old` on have become those from `new` on.
struct Piece {
    old: u32,
    new: u32,
    count: u32,
}

impl Numbers {
    fn note(&mut self, old: u32, new: u32) {
        match self.0.last_mut() {
            Some(piece) if (piece.old + piece.count, piece.new + piece.count) == (old, new) => {
                piece.count += 1;
            }
            _ => self.0.push(Piece { old, new, count: 1 }),
        }
    }

    /// Rows that are out need none.
    fn of(&self, old: u32) -> u32 {
        let at = self.0.partition_point(|piece| piece.old <= old);
        let piece = at.checked_sub(1).map(|at| &self.0[at]);
        let piece = piece.filter(|piece| old - piece.old < piece.count);
        piece.map_or(NO_NUMBER, |piece| piece.new + (old - piece.old))
    }
}

/// Writes the waiting rows of all segments in one order. Those that were matched meanwhile stay
/// between the others: neighbours hardly overlap in time, so that numbers move in few pieces.
fn merge_waits(
    segments: &mut [Segment],
    writer: &mut SegmentWriter,
) -> Result<Vec<Numbers>, SpillError> {
    let mut numbers: Vec<Numbers> = segments.iter().map(|_| Numbers::default()).collect();
    loop {
        let mut first: Option<((i64, u64), usize)> = None;
        for (at, segment) in segments.iter_mut().enumerate() {
            if let Some((_, wait)) = segment.next_numbered()? {
                let order = (wait.ts, wait.arrival);
                if first.is_none_or(|(before, _)| order < before) {
                    first = Some((order, at));
                }
            }
        }
        let Some((_, at)) = first else { break };
        let segment = &mut segments[at];
        let is_matched = segment.waits().is_some_and(|waits| segment.is_matched(waits.number()));
        if let Some((old, wait)) = segment.next_numbered()? {
            let new = writer.wait(wait, is_matched)?;
            numbers[at].note(old, new);
        }
        segment.take_wait();
    }
    writer.end_waits()?;
    Ok(numbers)
}

/// A segment whose rows move into new pages, which follow each other as its own do.
struct Input<'a> {
    segment: &'a Segment,
    next_page: u32,
    /// Rows that were read and belong to later pages.
    rows: Vec<u8>,
    page: Vec<u8>,
}

impl<'a> Input<'a> {
    fn new(segment: &'a Segment) -> Input<'a> {
        Input { segment, next_page: 0, rows: Vec::new(), page: Vec::new() }
    }

    /// Hands the rows of a new page over.
    fn move_rows(
        &mut self,
        (page, page_count): (usize, usize),
        mut each: impl FnMut(&ColdRow<'_>, &Segment),
    ) -> Result<(), SpillError> {
        let own_count = self.segment.page_count() as u128;
        // Pages that begin before the new one ends.
        while u128::from(self.next_page) < own_count
            && u128::from(self.next_page) * (page_count as u128) < (page as u128 + 1) * own_count
        {
            self.segment.read(self.next_page, &mut self.page)?;
            self.next_page += 1;
            self.rows.extend_from_slice(&self.page);
        }
        self.page.clear();
        for row in ColdRow::all(&self.rows) {
            if page_of(row.key, page_count) as usize == page {
                each(&row, self.segment);
            } else {
                row.push_to(row.number, &mut self.page);
            }
        }
        std::mem::swap(&mut self.rows, &mut self.page);
        Ok(())
    }
}
