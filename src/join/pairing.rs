//! One to one: every row is in one pair at the most.
//!
//! Matches are candidates, put in order by the pair's time, then by the arrival of the later row,
//! then of the earlier one. Once no event that is on time can come before a candidate, it becomes a
//! pair if both of its rows are still free. Rows wait in slots; one without a pair comes out when
//! its interval and all of its candidates are over.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::error::JoinError;
use crate::event::{EventBatch, Key, KeyHasher, KeyKind, Side};
use crate::join::slots::{Mark, Slots, end_of, is_past};
use crate::join::{Counters, Emit, JoinKind, JoinSpec};
use crate::state::{Class, Partner, Visit};

/// The rows of both sides that are in no pair, and the pairs that they may be in.
pub(super) struct Pairing {
    spec: JoinSpec,
    slots: Slots<()>,
    due: BinaryHeap<Reverse<Due>>,
    /// Of the batch at work.
    side: Side,
    marks: Vec<Option<Mark>>,
}

/// Something to decide at the first watermark over `at`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: i128,
    what: What,
}

/// In the order in which they are decided where they fall due at the same watermark.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Candidate {
        /// Arrival of the row that came second.
        second: u64,
        /// And of the other.
        first: u64,
        left: Mark,
        right: Mark,
    },
    Row {
        arrival: u64,
        is_right: bool,
        mark: Mark,
    },
}

impl Pairing {
    pub(super) fn new(spec: JoinSpec) -> Pairing {
        Pairing {
            spec,
            slots: Slots::new(false),
            due: BinaryHeap::new(),
            side: Side::Left,
            marks: Vec::new(),
        }
    }

    /// Bytes as allocated.
    pub(super) fn bytes(&self) -> usize {
        self.slots.bytes() + self.due.capacity() * size_of::<Reverse<Due>>()
    }

    /// As [`Slots::mark`].
    pub(super) fn mark(
        &mut self,
        batch: &EventBatch,
        classes: &[Class],
        keys: KeyKind,
    ) -> Result<EventBatch, JoinError> {
        self.side = batch.side();
        self.slots.mark(batch, classes, keys, &mut self.marks)
    }

    /// Takes the batch of [`mark`](Self::mark) back, after its partners were seen.
    pub(super) fn settle_batch(&mut self, marked: EventBatch) {
        self.slots.give_back(marked);
        for &mark in self.marks.iter().flatten() {
            let Some(slot) = self.slots.get(mark) else { continue };
            let (ts, arrival) = (slot.ts, slot.arrival);
            // A pair may be later than the row's interval, but not than this.
            let at = end_of(&self.spec, self.side, ts).max(self.settled_from(ts));
            let what = What::Row { arrival, is_right: self.side == Side::Right, mark };
            self.due.push(Reverse(Due { at, what }));
        }
    }

    /// Whether something is to be decided.
    pub(super) fn is_due(&self, clock: i64) -> bool {
        self.due.peek().is_some_and(|Reverse(next)| is_past(clock, next.at))
    }

    /// Decides up to `budget` things that are due at the clock, or all if there is none. Returns
    /// whether more may be left.
    pub(super) fn work<E: Emit>(
        &mut self,
        clock: Option<i64>,
        budget: usize,
        hasher: &KeyHasher,
        counters: &mut Counters,
        out: &mut E,
    ) -> bool {
        for _ in 0..budget {
            if clock.is_some_and(|clock| !self.is_due(clock)) {
                return false;
            }
            match self.due.pop() {
                None => return false,
                Some(Reverse(Due { what: What::Candidate { left, right, .. }, .. })) => {
                    self.pair(left, right, hasher, counters, out);
                }
                Some(Reverse(Due { what: What::Row { is_right, mark, .. }, .. })) => {
                    let side = if is_right { Side::Right } else { Side::Left };
                    self.single(side, mark, hasher, counters, out);
                }
            }
        }
        true
    }

    /// Whether the condition holds of two rows that are in no pair.
    fn holds(&self, left: Mark, right: Mark, hasher: &KeyHasher) -> bool {
        let event = |mark| self.slots.get(mark).map(|slot| slot.event(hasher));
        let (left, right) = (event(left), event(right));
        left.zip(right).is_some_and(|(left, right)| self.spec.holds(&left, &right))
    }

    /// The watermark that a pair of this time waits for, less one.
    fn settled_from(&self, pair_ts: i64) -> i128 {
        i128::from(pair_ts) + i128::from(self.spec.lateness().allowed) - 1
    }

    /// Makes a pair, if both rows are free.
    fn pair<E: Emit>(
        &mut self,
        left: Mark,
        right: Mark,
        hasher: &KeyHasher,
        counters: &mut Counters,
        out: &mut E,
    ) {
        let (Some(left_slot), Some(right_slot)) = (self.slots.get(left), self.slots.get(right))
        else {
            return;
        };
        counters.pairs += 1;
        for (counts, slot) in counters.sides.iter_mut().zip([left_slot, right_slot]) {
            match slot.is_late {
                true => counts.late_matched += 1,
                false => counts.matched += 1,
            }
        }
        let left_event = left_slot.event(hasher);
        if self.spec.kind().emits_pairs() {
            out.pair(left_event, right_slot.event(hasher));
        } else if self.spec.kind() == JoinKind::Semi {
            counters.sides[Side::Left.index()].singles += 1;
            out.single(Side::Left, left_event);
        }
        self.slots.release(left);
        self.slots.release(right);
    }

    /// A row that is in no pair comes out, where its side does.
    fn single<E: Emit>(
        &mut self,
        side: Side,
        mark: Mark,
        hasher: &KeyHasher,
        counters: &mut Counters,
        out: &mut E,
    ) {
        let Some(slot) = self.slots.get(mark) else { return };
        if self.spec.kind().emits_unmatched(side) {
            counters.sides[side.index()].singles += 1;
            out.single(side, slot.event(hasher));
        }
        self.slots.release(mark);
    }
}

/// Collects candidates.
pub(super) struct PairingVisit<'a> {
    pub(super) pairing: &'a mut Pairing,
    pub(super) batch: &'a EventBatch,
    pub(super) hasher: &'a KeyHasher,
}

impl<'a> Visit for PairingVisit<'a> {
    type Own = (Option<Mark>, Key<'a>);

    fn own(&self, index: usize) -> Self::Own {
        (self.pairing.marks[index], self.batch.event(index, self.hasher).key)
    }

    /// State is not told of matches: whether they come to anything is seen later.
    fn partner(&mut self, (own, key): Self::Own, partner: Partner<'_>) -> bool {
        let pairing = &mut *self.pairing;
        let (Some(own), Some((other, _))) = (own, Mark::of(key, partner.row)) else {
            return false;
        };
        let (Some(slot), Some(first)) = (pairing.slots.get(own), pairing.slots.get(other)) else {
            return false;
        };
        let (second, first) = (slot.arrival, first.arrival);
        let at = pairing.settled_from(slot.ts.max(partner.ts));
        let (left, right) = match pairing.side {
            Side::Left => (own, other),
            Side::Right => (other, own),
        };
        if pairing.spec.condition().is_some() && !pairing.holds(left, right, self.hasher) {
            return false;
        }
        let what = What::Candidate { second, first, left, right };
        pairing.due.push(Reverse(Due { at, what }));
        false
    }

    fn over(&mut self, _index: usize) {}
}
