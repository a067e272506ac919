//! Blocks that several cores work on, sent in order: how far that is, and what it promises.

use crate::time::BoundedDisorder;

/// What a source counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Records: events with and without a key, and bad ones.
    pub rows: u64,
    /// Records that are no events.
    pub bad: u64,
    /// Events without a key.
    pub null_key: u64,
    /// Events that were found late here: under `LatenessClock::Own` only.
    pub late: u64,
    /// Bytes that these records stand in.
    pub bytes: u64,
}

impl SourceCounts {
    pub(super) fn add(&mut self, other: &SourceCounts) {
        self.rows += other.rows;
        self.bad += other.bad;
        self.null_key += other.null_key;
        self.late += other.late;
        self.bytes += other.bytes;
    }
}

/// The blocks of a source: how far they were taken and sent, and what that promises.
#[derive(Debug)]
pub(super) struct Order {
    /// Blocks that were taken.
    taken: u64,
    /// Blocks that were completely sent: those before the front.
    done: u64,
    /// The largest time that was sent.
    seen: BoundedDisorder,
    ended: bool,
    counts: SourceCounts,
}

impl Order {
    pub(super) fn new(seen: BoundedDisorder) -> Order {
        Order { taken: 0, done: 0, seen, ended: false, counts: SourceCounts::default() }
    }

    /// How many blocks are being worked on.
    pub(super) fn open_count(&self) -> usize {
        (self.taken - self.done) as usize
    }

    /// The next block was taken. Blocks are taken in the order of their indices.
    pub(super) fn taken(&mut self, index: u64) {
        debug_assert_eq!(index, self.taken);
        self.taken = index + 1;
    }

    /// There are no more blocks.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Whether there are no more blocks, and all were sent.
    pub(super) fn is_finished(&self) -> bool {
        self.ended && self.open_count() == 0
    }

    /// Some records were sent, the next ones in the order of the stream; what was seen with them.
    pub(super) fn sent(&mut self, seen: BoundedDisorder, counts: &SourceCounts) {
        self.seen = seen;
        self.counts.add(counts);
    }

    /// All of the front block, which has so many bytes, was sent.
    pub(super) fn done(&mut self, bytes: u64) {
        self.done += 1;
        self.counts.bytes += bytes;
    }

    /// The times that were sent.
    pub(super) fn seen(&self) -> BoundedDisorder {
        self.seen
    }

    /// The source's watermark after what was sent.
    pub(super) fn watermark(&self) -> i64 {
        self.seen.watermark()
    }

    pub(super) fn counts(&self) -> SourceCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_finished_when_the_last_block_was_sent() {
        let mut order = Order::new(BoundedDisorder::new(3));
        let seen = |order: &Order, ts| {
            let mut seen = order.seen();
            seen.observe(ts);
            seen
        };
        let rows = |rows| SourceCounts { rows, ..SourceCounts::default() };
        order.taken(0);
        order.taken(1);
        order.sent(seen(&order, 10), &rows(2));
        assert_eq!((order.watermark(), order.open_count()), (7, 2));
        order.done(100);
        order.end();
        assert!(!order.is_finished());
        order.sent(seen(&order, 4), &rows(1));
        order.sent(order.seen(), &rows(0));
        order.done(50);
        assert!(order.is_finished());
        assert_eq!((order.watermark(), order.seen().max_ts()), (7, 10));
        assert_eq!(order.counts(), SourceCounts { rows: 3, bytes: 150, ..order.counts() });
    }

    #[test]
    fn without_a_time_nothing_is_promised() {
        let mut order = Order::new(BoundedDisorder::new(0));
        order.taken(0);
        order.sent(order.seen(), &SourceCounts::default());
        assert_eq!(order.watermark(), i64::MIN);
    }
}
