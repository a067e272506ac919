//! Blocks that several cores work on, put back in order: who may publish what, and when.

use std::collections::VecDeque;

use super::parse::BadRow;
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

/// What came of a block.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The largest time of its events; `i64::MIN` if it has none.
    pub max_ts: Option<i64>,
    pub counts: SourceCounts,
    pub bad: Vec<BadRow>,
}

/// The blocks that were taken and are not yet behind the front, oldest first.
#[derive(Debug)]
pub(super) struct Order {
    open: VecDeque<Entry>,
    /// The index of the oldest open block: everything before it was sent.
    front: u64,
    /// How many blocks from the front on have announced their largest time.
    announced: usize,
    /// The largest time of all blocks that announced theirs without a gap.
    announced_max: i64,
    /// The largest time of all blocks before the front.
    seen: BoundedDisorder,
    ended: bool,
    counts: SourceCounts,
}

#[derive(Debug, Default)]
struct Entry {
    max_ts: Option<i64>,
    /// The largest time of all blocks before this one, once they have announced theirs.
    before: Option<i64>,
    outcome: Option<Outcome>,
}

impl Order {
    pub(super) fn new(disorder: i64) -> Order {
        Order {
            open: VecDeque::new(),
            front: 0,
            announced: 0,
            announced_max: i64::MIN,
            seen: BoundedDisorder::new(disorder),
            ended: false,
            counts: SourceCounts::default(),
        }
    }

    /// How many blocks are being worked on.
    pub(super) fn open_count(&self) -> usize {
        self.open.len()
    }

    /// The next block was taken. Blocks are taken in the order of their indices.
    pub(super) fn taken(&mut self, index: u64) {
        debug_assert_eq!(index, self.front + self.open.len() as u64);
        let before = (self.announced == self.open.len()).then_some(self.announced_max);
        self.open.push_back(Entry { before, ..Entry::default() });
    }

    /// There are no more blocks.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Whether there are no more blocks, and all were sent.
    pub(super) fn is_finished(&self) -> bool {
        self.ended && self.open.is_empty()
    }

    /// Says what the largest time of a block is, as soon as it is known.
    pub(super) fn announce(&mut self, index: u64, max_ts: i64) {
        let place = self.place(index);
        self.open[place].max_ts = Some(max_ts);
        while let Some(max_ts) = self.open.get(self.announced).and_then(|entry| entry.max_ts) {
            self.announced_max = self.announced_max.max(max_ts);
            self.announced += 1;
            if let Some(next) = self.open.get_mut(self.announced) {
                next.before = Some(self.announced_max);
            }
        }
    }

    /// The largest time of all blocks before this one; `None` while one of them has not announced
    /// its own.
    pub(super) fn max_before(&self, index: u64) -> Option<i64> {
        self.open[self.place(index)].before
    }

    /// All events of a block have been sent. Returns the outcomes of the blocks that are behind the
    /// front now, in order.
    pub(super) fn done(&mut self, index: u64, outcome: Outcome) -> Vec<Outcome> {
        self.announce(index, outcome.max_ts.unwrap_or(i64::MIN));
        let place = self.place(index);
        self.open[place].outcome = Some(outcome);
        let mut passed = Vec::new();
        while let Some(outcome) = self.open.front_mut().and_then(|entry| entry.outcome.take()) {
            self.open.pop_front();
            self.front += 1;
            // It was announced before it was done, and so were all before it.
            self.announced -= 1;
            if let Some(max_ts) = outcome.max_ts {
                self.seen.observe(max_ts);
            }
            self.counts.add(&outcome.counts);
            passed.push(outcome);
        }
        passed
    }

    /// The source's watermark: everything before the front was sent.
    pub(super) fn watermark(&self) -> i64 {
        self.seen.watermark()
    }

    pub(super) fn counts(&self) -> SourceCounts {
        self.counts
    }

    fn place(&self, index: u64) -> usize {
        (index - self.front) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn outcome(max_ts: i64) -> Outcome {
        let counts = SourceCounts { rows: 1, ..SourceCounts::default() };
        Outcome { max_ts: Some(max_ts), counts, bad: Vec::new() }
    }

    proptest! {
        #[test]
        fn any_order_of_work_gives_the_order_of_the_input(
            times in prop::collection::vec(-50i64..50, 1..8),
            choices in prop::collection::vec(any::<prop::sample::Index>(), 64),
        ) {
            let mut order = Order::new(3);
            let (mut taken, mut announced, mut working) = (0, vec![], vec![]);
            let (mut passed, mut done) = (0, vec![false; times.len()]);
            for choice in choices {
                match choice.index(3) {
                    0 if taken < times.len() => {
                        order.taken(taken as u64);
                        announced.push(taken);
                        taken += 1;
                    }
                    1 if !announced.is_empty() => {
                        let block = announced.swap_remove(choice.index(announced.len()));
                        order.announce(block as u64, times[block]);
                        working.push(block);
                    }
                    2 if !working.is_empty() => {
                        let block = working.swap_remove(choice.index(working.len()));
                        passed += order.done(block as u64, outcome(times[block])).len();
                        done[block] = true;
                    }
                    _ => {}
                }
                let front = done.iter().take_while(|&&done| done).count();
                prop_assert_eq!(passed, front);
                let max = times[..front].iter().max().copied();
                prop_assert_eq!(order.watermark(), max.map_or(i64::MIN, |max| max - 3));
                prop_assert_eq!(order.counts().rows, front as u64);
                for block in front..taken {
                    let before: Option<Vec<i64>> = (0..block)
                        .map(|b| (!announced.contains(&b)).then_some(times[b]))
                        .collect();
                    let max = before.map(|b| b.into_iter().max().unwrap_or(i64::MIN));
                    prop_assert_eq!(order.max_before(block as u64), max);
                }
            }
        }
    }

    #[test]
    fn it_is_finished_when_the_last_block_was_sent() {
        let mut order = Order::new(0);
        order.taken(0);
        order.end();
        assert!(!order.is_finished());
        assert_eq!(order.done(0, Outcome::default()).len(), 1);
        assert!(order.is_finished());
        assert_eq!(order.watermark(), i64::MIN);
    }
}
