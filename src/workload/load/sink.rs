//! The sink of a load: looks at the clock for every pair.

use hdrhistogram::Histogram;

use crate::event::{Event, Side};
use crate::join::{Emit, Sink};
use crate::time::{Clock, MonotonicClock};
use crate::workload::Outcome;

/// Bytes of a row: the event's number, and when it was due.
pub(super) const ROW_BYTES: usize = 16;

/// Longer latencies are recorded as this: an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// A row. `due_ns` is 0 during the warm-up.
pub(super) fn row(id: u32, due_ns: u64) -> [u8; ROW_BYTES] {
    let mut row = [0; ROW_BYTES];
    row[..8].copy_from_slice(&u64::from(id).to_le_bytes());
    row[8..].copy_from_slice(&due_ns.to_le_bytes());
    row
}

/// A histogram of nanoseconds: 3 significant figures up to an hour.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
        .expect("bounds and figures are within what it allows")
}

/// Measures the pairs of one shard.
#[derive(Debug)]
pub(super) struct LatencySink {
    pub(super) outcome: Outcome,
    pub(super) latency_ns: Histogram<u64>,
}

impl LatencySink {
    pub(super) fn new() -> LatencySink {
        LatencySink { outcome: Outcome::default(), latency_ns: histogram() }
    }
}

/// The number and the due time in a row; a row of another length would spoil the checksum, not
/// panic.
#[inline]
fn split(row: &[u8]) -> (u64, u64) {
    let number = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes));
    (number(row.first_chunk()), number(row.last_chunk()))
}

impl Emit for LatencySink {
    #[inline]
    fn pair(&mut self, left: Event<'_>, right: Event<'_>) {
        let (left, right) = (split(left.row), split(right.row));
        self.outcome.add(left.0, right.0);
        // The pair is due when both events are.
        let due_ns = left.1.max(right.1);
        if due_ns > 0 {
            self.latency_ns.saturating_record(MonotonicClock.now_ns().saturating_sub(due_ns));
        }
    }

    fn single(&mut self, _side: Side, _event: Event<'_>) {}
}

impl Sink for LatencySink {}
