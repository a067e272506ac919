//! Rows of all cores in one order, written as soon as no core can add an earlier one.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::join::SinkError;
use crate::sink::Output;

/// Bytes that are gathered before they are written.
const BLOCK_BYTES: usize = 256 << 10;

/// The position of a side that has no row in a result: behind all others.
pub(super) const NO_POSITION: u64 = u64::MAX;

/// A finished row with what it is ordered by: time, key, left position, right position.
#[derive(Debug)]
pub(super) struct Entry {
    time: i64,
    left: u64,
    right: u64,
    key_len: u32,
    /// The key, then the row as it is to be written.
    bytes: Box<[u8]>,
}

impl Entry {
    pub(super) fn new(time: i64, key: &[u8], left: u64, right: u64, row: &[u8]) -> Entry {
        let mut bytes = Vec::with_capacity(key.len() + row.len());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(row);
        // Keys are limited to 64 KiB.
        Entry { time, left, right, key_len: key.len() as u32, bytes: bytes.into_boxed_slice() }
    }

    fn row(&self) -> &[u8] {
        &self.bytes[self.key_len as usize..]
    }

    fn order(&self) -> (i64, &[u8], u64, u64) {
        (self.time, &self.bytes[..self.key_len as usize], self.left, self.right)
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

/// Takes the rows of all cores and writes them in order.
///
/// It holds what lies between the slowest core's output watermark and the newest row; the cost is
/// a heap operation a row, under one lock.
#[derive(Debug)]
pub(super) struct Sorter {
    output: Arc<Output>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    watermarks: Vec<i64>,
    heap: BinaryHeap<Reverse<Entry>>,
    block: Vec<u8>,
    block_rows: u64,
}

impl Sorter {
    pub(super) fn new(output: Arc<Output>, core_count: usize) -> Sorter {
        let inner = Inner {
            watermarks: vec![i64::MIN; core_count],
            heap: BinaryHeap::new(),
            block: Vec::new(),
            block_rows: 0,
        };
        Sorter { output, inner: Mutex::new(inner) }
    }

    /// Takes the rows of `core` (and empties the list) and its promise that none with a smaller
    /// time follows; writes what no core can undercut any more.
    pub(super) fn advance(
        &self,
        core: usize,
        entries: &mut Vec<Entry>,
        watermark: i64,
    ) -> Result<(), SinkError> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.heap.extend(entries.drain(..).map(Reverse));
        inner.watermarks[core] = inner.watermarks[core].max(watermark);
        let until = inner.watermarks.iter().copied().min().unwrap_or(i64::MAX);
        inner.write_until(until, &self.output)
    }

    /// `core` has ended. The last one's end writes all that is left.
    pub(super) fn finish(&self, core: usize, entries: &mut Vec<Entry>) -> Result<(), SinkError> {
        self.advance(core, entries, i64::MAX)
    }
}

impl Inner {
    /// Writes the rows before `until`; all of them at `i64::MAX`.
    fn write_until(&mut self, until: i64, output: &Output) -> Result<(), SinkError> {
        while let Some(Reverse(first)) = self.heap.peek() {
            if first.time >= until && until != i64::MAX {
                break;
            }
            self.block.extend_from_slice(first.row());
            self.block_rows += 1;
            self.heap.pop();
            if self.block.len() >= BLOCK_BYTES {
                self.write_block(output)?;
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

    fn entry(time: i64, key: &str, left: u64, right: u64) -> Entry {
        Entry::new(
            time,
            key.as_bytes(),
            left,
            right,
            format!("{time}{key}{left}{right}\n").as_bytes(),
        )
    }

    #[test]
    fn rows_come_out_in_order_and_as_soon_as_they_can() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows");
        let (output, _) = Output::open(&path, OpenMode::Append).unwrap();
        let sorter = Sorter::new(Arc::new(output), 2);
        let written = || std::fs::read_to_string(&path).unwrap();
        sorter.advance(0, &mut vec![entry(2, "b", 0, 0), entry(1, "c", 0, 0)], 2).unwrap();
        assert_eq!(written(), "", "the other core may still have earlier rows");
        sorter.advance(1, &mut vec![entry(1, "b", 1, 0), entry(1, "b", 0, 9)], 3).unwrap();
        assert_eq!(written(), "1b09\n1b10\n1c00\n", "2 is not before core 0's watermark");
        sorter.finish(1, &mut vec![entry(i64::MAX, "", 0, 0)]).unwrap();
        sorter.finish(0, &mut vec![entry(2, "a", 0, 0)]).unwrap();
        assert!(written().ends_with("1c00\n2a00\n2b00\n922337203685477580700\n"), "{}", written());
    }
}
