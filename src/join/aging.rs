//! Rows that wait for their match and have a time to live: those that have outlived it, in order.

use std::collections::VecDeque;

use crate::join::slots::Mark;

/// Rows that wait, in the order in which they came, and moments by which they had.
#[derive(Default)]
pub(super) struct Aging {
    rows: VecDeque<Aged>,
    /// When an epoch was closed, and the last arrival before that.
    epochs: VecDeque<(u64, u64)>,
    /// Those that are over and still to come out, the next one last.
    over: Vec<Aged>,
}

#[derive(Clone, Copy)]
struct Aged {
    ts: i64,
    arrival: u64,
    mark: Mark,
}

impl Aging {
    /// A row waits from now on.
    pub(super) fn push(&mut self, ts: i64, arrival: u64, mark: Mark) {
        self.rows.push_back(Aged { ts, arrival, mark });
    }

    /// All rows up to now were stored before `now_ns`.
    pub(super) fn close_epoch(&mut self, now_ns: u64) {
        let Some(last) = self.rows.back() else { return };
        if self.epochs.back().is_none_or(|&(_, arrival)| arrival < last.arrival) {
            self.epochs.push_back((now_ns, last.arrival));
        }
    }

    /// Rows that were stored up to `to_ns`, as far as epochs were closed by then, are over. `waits`
    /// says which of them still wait.
    pub(super) fn age_out(&mut self, to_ns: u64, waits: impl Fn(Mark) -> bool) {
        let mut last = None;
        while let Some(&(_, arrival)) = self.epochs.front().filter(|(closed, _)| *closed <= to_ns) {
            last = Some(arrival);
            self.epochs.pop_front();
        }
        let Some(last) = last else { return };
        let count = self.rows.partition_point(|row| row.arrival <= last);
        let died = self.rows.drain(..count).filter(|row| waits(row.mark));
        // What an earlier call has left comes out before.
        let mut over: Vec<Aged> = died.collect();
        over.sort_unstable_by_key(|row| std::cmp::Reverse((row.ts, row.arrival)));
        over.append(&mut self.over);
        self.over = over;
    }

    /// The next row that is over.
    pub(super) fn take(&mut self) -> Option<Mark> {
        self.over.pop().map(|row| row.mark)
    }

    /// Bytes as allocated.
    pub(super) fn bytes(&self) -> usize {
        (self.rows.capacity() + self.over.capacity()) * size_of::<Aged>()
            + self.epochs.capacity() * size_of::<(u64, u64)>()
    }
}
