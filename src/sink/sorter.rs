//! Rows of all cores in one order, written as soon as no core can add an earlier one.
//!
//! Time is cut into slices. Each core gathers its rows by slice ([`Slices`]); when its output
//! watermark passes a slice, it sorts it and hands it over; when all cores have passed it, the
//! sorted parts are merged and written ([`Sorter`]). So sorting is done on all cores, merging costs
//! a comparison or two a row, and a row waits for its slice at most that much longer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::join::SinkError;
use crate::sink::Output;

/// Bytes that are gathered before they are written.
const BLOCK_BYTES: usize = 256 << 10;

/// The position of a side that has no row in a result: behind all others.
pub(super) const NO_POSITION: u64 = u64::MAX;

/// What a row is ordered by, besides its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The output time: of a pair, the larger of its two.
    pub(super) time: i64,
    /// Where the left row stands in the input, or [`NO_POSITION`].
    pub(super) left: u64,
    /// Where the right row stands in the input, or [`NO_POSITION`].
    pub(super) right: u64,
}

/// Rows of one core in one slice of time.
#[derive(Debug, Default)]
pub(super) struct Slice {
    entries: Vec<Entry>,
    /// For each entry its key and then its row.
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    place: Place,
    key_start: usize,
    row_start: usize,
    row_end: usize,
}

/// What rows are ordered by: time, key, left position, right position.
type Order<'a> = (i64, &'a [u8], u64, u64);

impl Slice {
    fn push(&mut self, place: Place, key: &[u8], row: &[u8]) {
        let key_start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let row_start = self.bytes.len();
        self.bytes.extend_from_slice(row);
        self.entries.push(Entry { place, key_start, row_start, row_end: self.bytes.len() });
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.entries.sort_unstable_by(|a, b| order(bytes, a).cmp(&order(bytes, b)));
    }
}

#[inline]
fn order<'a>(bytes: &'a [u8], entry: &Entry) -> Order<'a> {
    let Place { time, left, right } = entry.place;
    (time, &bytes[entry.key_start..entry.row_start], left, right)
}

/// One core's rows that are not yet handed over.
#[derive(Debug)]
pub(super) struct Slices {
    /// Ticks of a slice.
    width: i64,
    slices: BTreeMap<i64, Slice>,
}

impl Slices {
    /// For slices of `width` ticks (at least 1); the same for all cores.
    pub(super) fn new(width: i64) -> Slices {
        Slices { width: width.max(1), slices: BTreeMap::new() }
    }

    pub(super) fn push(&mut self, place: Place, key: &[u8], row: &[u8]) {
        let slice = place.time.div_euclid(self.width);
        self.slices.entry(slice).or_default().push(place, key, row);
    }

    /// Rows that were pushed and not taken.
    pub(super) fn rows(&self) -> u64 {
        self.slices.values().map(|slice| slice.entries.len() as u64).sum()
    }

    /// Takes the slices that lie wholly before `watermark`, sorted, and the first one that does
    /// not. At `i64::MAX` nothing more comes: all are taken.
    fn take_before(&mut self, watermark: i64) -> (BTreeMap<i64, Slice>, i64) {
        let (rest, first_open) = if watermark == i64::MAX {
            (BTreeMap::new(), i64::MAX)
        } else {
            let first_open = watermark.div_euclid(self.width);
            (self.slices.split_off(&first_open), first_open)
        };
        let mut taken = std::mem::replace(&mut self.slices, rest);
        taken.values_mut().for_each(Slice::sort);
        (taken, first_open)
    }
}

/// Takes the sorted slices of all cores and writes them in order.
///
/// It holds what lies between the slowest core's output watermark and the fastest one's.
#[derive(Debug)]
pub(super) struct Sorter {
    output: Arc<Output>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// By core: the first slice that it may still add to.
    open: Vec<i64>,
    /// Of each slice the parts of the cores.
    parts: BTreeMap<i64, Vec<Slice>>,
    block: Vec<u8>,
    block_rows: u64,
}

impl Sorter {
    pub(super) fn new(output: Arc<Output>, core_count: usize) -> Sorter {
        let inner = Inner {
            open: vec![i64::MIN; core_count],
            parts: BTreeMap::new(),
            block: Vec::new(),
            block_rows: 0,
        };
        Sorter { output, inner: Mutex::new(inner) }
    }

    /// Rows that were handed over and wait for slower cores.
    pub(super) fn held(&self) -> u64 {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.parts.values().flatten().map(|part| part.entries.len() as u64).sum()
    }

    /// Takes those rows of `core` that lie before its output watermark, and writes what no core can
    /// undercut any more. `i64::MAX` is the end of the core.
    pub(super) fn advance(
        &self,
        core: usize,
        slices: &mut Slices,
        watermark: i64,
    ) -> Result<(), SinkError> {
        let (taken, first_open) = slices.take_before(watermark);
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.is_empty() && inner.open[core] >= first_open {
            return Ok(());
        }
        for (slice, part) in taken {
            inner.parts.entry(slice).or_default().push(part);
        }
        inner.open[core] = inner.open[core].max(first_open);
        let first_open = inner.open.iter().copied().min().unwrap_or(i64::MAX);
        inner.write_before(first_open, &self.output)
    }
}

impl Inner {
    fn write_before(&mut self, first_open: i64, output: &Output) -> Result<(), SinkError> {
        while let Some(first) = self.parts.first_entry() {
            if *first.key() >= first_open && first_open != i64::MAX {
                break;
            }
            let parts = first.remove();
            let rows =
                parts.iter().flat_map(|part| part.entries.iter().map(move |row| (part, row)));
            let mut rows: Vec<(&Slice, &Entry)> = rows.collect();
            // A stable sort finds the sorted parts and merges them.
            rows.sort_by(|(a_part, a), (b_part, b)| {
                order(&a_part.bytes, a).cmp(&order(&b_part.bytes, b))
            });
            for (part, row) in rows {
                self.block.extend_from_slice(&part.bytes[row.row_start..row.row_end]);
                self.block_rows += 1;
                if self.block.len() >= BLOCK_BYTES {
                    self.write_block(output)?;
                }
            }
        }
        self.write_block(output)
    }

    fn write_block(&mut self, output: &Output) -> Result<(), SinkError> {
        if self.block.is_empty() {
            return Ok(());
        }
        let written = output.write(&self.block, self.block_rows);
        self.block.clear();
        self.block_rows = 0;
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::OpenMode;
    use proptest::prelude::*;

    type Row = (i64, u8, u64, u64);

    fn push(slices: &mut Slices, (time, key, left, right): Row) {
        let text = format!("{time} {key} {left} {right}\n");
        slices.push(Place { time, left, right }, &[key], text.as_bytes());
    }

    fn sorter(dir: &tempfile::TempDir, cores: usize) -> (Sorter, std::path::PathBuf) {
        let path = dir.path().join("rows");
        let (output, _) = Output::open(&path, OpenMode::Append).unwrap();
        (Sorter::new(Arc::new(output), cores), path)
    }

    #[test]
    fn rows_come_out_in_order_and_as_soon_as_they_can() {
        let dir = tempfile::tempdir().unwrap();
        let (sorter, path) = sorter(&dir, 2);
        let mut cores = [Slices::new(1), Slices::new(1)];
        let written = || std::fs::read_to_string(&path).unwrap();
        for row in [(2, 2, 0, 0), (1, 3, 0, 0)] {
            push(&mut cores[0], row);
        }
        sorter.advance(0, &mut cores[0], 2).unwrap();
        assert_eq!(written(), "", "the other core may still have earlier rows");
        for row in [(1, 2, 1, 0), (1, 2, 0, 9)] {
            push(&mut cores[1], row);
        }
        sorter.advance(1, &mut cores[1], 3).unwrap();
        let first = "1 2 0 9\n1 2 1 0\n1 3 0 0\n";
        assert_eq!(written(), first, "2 is not before core 0's watermark");
        push(&mut cores[1], (i64::MAX, 0, 0, 0));
        sorter.advance(1, &mut cores[1], i64::MAX).unwrap();
        push(&mut cores[0], (2, 1, 0, 0));
        sorter.advance(0, &mut cores[0], i64::MAX).unwrap();
        let rest = "2 1 0 0\n2 2 0 0\n9223372036854775807 0 0 0\n";
        assert_eq!(written(), format!("{first}{rest}"));
    }

    proptest! {
        #[test]
        fn whatever_the_cores_and_slices_the_order_is_the_same(
            rows in prop::collection::vec((-50_i64..50, 0_u8..3, 0_u64..3, 0_u64..9), 0..80),
            width in 1_i64..30,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let (sorter, path) = sorter(&dir, 3);
            let mut cores: [Slices; 3] = std::array::from_fn(|_| Slices::new(width));
            let mut by_time = rows.clone();
            by_time.sort();
            for (number, &row) in by_time.iter().enumerate() {
                let core = number % 3;
                push(&mut cores[core], row);
                sorter.advance(core, &mut cores[core], row.0).unwrap();
            }
            for (core, slices) in cores.iter_mut().enumerate() {
                sorter.advance(core, slices, i64::MAX).unwrap();
            }
            let line = |(time, key, left, right): &Row| format!("{time} {key} {left} {right}\n");
            let expected: String = by_time.iter().map(line).collect();
            prop_assert_eq!(std::fs::read_to_string(path).unwrap(), expected);
        }
    }
}
