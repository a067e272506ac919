//! One to one: every row is in one pair at the most.
//!
//! Matches are candidates, put in order by the pair's time, then by the arrival of the later row,
//! then of the earlier one. Once no event that is on time can come before a candidate, it becomes a
//! pair if both of its rows are still free. Rows wait in slots; one without a pair comes out when
//! its interval and all of its candidates are over.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;

use crate::error::JoinError;
use crate::event::{Event, EventBatch, KeyHasher, KeyKind, Side};
use crate::join::slots::{Mark, Slots, end_of, is_past};
use crate::join::{Counters, Emit, JoinKind, JoinSpec};
use crate::spill::SpillError;
use crate::state::{Class, Partner, Visit};

/// The rows of both sides that are in no pair, and the pairs that they may be in.
pub(super) struct Pairing {
    spec: JoinSpec,
    slots: Slots<()>,
    due: BinaryHeap<Reverse<Due>>,
    /// Of the batch at work.
    side: Side,
    marks: Vec<Option<Mark>>,
    /// Room for two rows out of files.
    room: [Vec<u8>; 2],
    /// Why a row could not be read back. It is missing.
    failure: Option<SpillError>,
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
    /// `spills`: rows may go into files. A condition is asked of those in state then.
    pub(super) fn new(spec: JoinSpec, spills: bool) -> Pairing {
        let with_rows = spills && spec.condition().is_some();
        Pairing {
            spec,
            slots: Slots::new(with_rows),
            due: BinaryHeap::new(),
            side: Side::Left,
            marks: Vec::new(),
            room: Default::default(),
            failure: None,
        }
    }

    /// Bytes as allocated.
    pub(super) fn bytes(&self) -> usize {
        self.slots.bytes() + self.due.capacity() * size_of::<Reverse<Due>>()
    }

    /// Those of [`bytes`](Self::bytes) that are rows in memory.
    pub(super) fn row_bytes(&self) -> usize {
        self.slots.row_bytes()
    }

    /// Puts all rows into files in `folder`.
    pub(super) fn spill(&mut self, folder: &Path) -> Result<(), SpillError> {
        self.due.shrink_to(self.due.len() + self.due.len() / 4);
        self.room = Default::default();
        self.slots.spill(folder)
    }

    /// Has memory keep no more of rows in files than it must.
    pub(super) fn forget(&mut self) {
        self.slots.forget();
    }

    /// Why rows could not be read back from files, if they could not.
    pub(super) fn failure(&self) -> Option<&SpillError> {
        self.failure.as_ref()
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
            if self.failure.is_some() {
                return false;
            }
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

    /// Whether the condition holds of an event of the batch and a row that is in no pair, given as
    /// state has it.
    fn holds(
        &mut self,
        own: Event<'_>,
        (other, ts, row): (Mark, i64, &[u8]),
        hasher: &KeyHasher,
    ) -> bool {
        let Pairing { spec, slots, side, room: [room, _], failure, .. } = self;
        let partner = match slots.has_rows() {
            true => Event { key: own.key, ts, row },
            false => {
                match slots.get_mut(other).map(|(slot, store)| slot.event(hasher, store, room)) {
                    Some(Ok(event)) => event,
                    Some(Err(error)) => {
                        *failure = Some(error);
                        return false;
                    }
                    None => return false,
                }
            }
        };
        match side {
            Side::Left => spec.holds(&own, &partner),
            Side::Right => spec.holds(&partner, &own),
        }
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
        let are_late = [left_slot.is_late, right_slot.is_late];
        let kind = self.spec.kind();
        let Pairing { slots, room: [left_room, right_room], failure, .. } = self;
        let rows = slots.read_two((left, right), hasher, (left_room, right_room));
        let (left_event, right_event) = match rows {
            Ok(Some(rows)) => rows,
            Ok(None) => return,
            Err(error) => {
                *failure = Some(error);
                return;
            }
        };
        counters.pairs += 1;
        for (counts, is_late) in counters.sides.iter_mut().zip(are_late) {
            match is_late {
                true => counts.late_matched += 1,
                false => counts.matched += 1,
            }
        }
        if kind.emits_pairs() {
            out.pair(left_event, right_event);
        } else if kind == JoinKind::Semi {
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
        let Pairing { spec, slots, room: [room, _], failure, .. } = self;
        let Some((slot, store)) = slots.get_mut(mark) else { return };
        if spec.kind().emits_unmatched(side) {
            match slot.event(hasher, store, room) {
                Ok(event) => {
                    counters.sides[side.index()].singles += 1;
                    out.single(side, event);
                }
                Err(error) => {
                    *failure = Some(error);
                    return;
                }
            }
        }
        slots.release(mark);
    }
}

/// Collects candidates.
pub(super) struct PairingVisit<'a> {
    pub(super) pairing: &'a mut Pairing,
    pub(super) batch: &'a EventBatch,
    pub(super) hasher: &'a KeyHasher,
}

impl<'a> Visit for PairingVisit<'a> {
    type Own = (Option<Mark>, Event<'a>);

    fn own(&self, index: usize) -> Self::Own {
        (self.pairing.marks[index], self.batch.event(index, self.hasher))
    }

    /// State is not told of matches: whether they come to anything is seen later.
    fn partner(&mut self, (own, event): Self::Own, partner: Partner<'_>) -> bool {
        let pairing = &mut *self.pairing;
        let (Some(own), Some((other, row))) = (own, Mark::of(event.key, partner.row)) else {
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
        if pairing.spec.condition().is_some()
            && !pairing.holds(event, (other, partner.ts, row), self.hasher)
        {
            return false;
        }
        let what = What::Candidate { second, first, left, right };
        pairing.due.push(Reverse(Due { at, what }));
        false
    }

    fn over(&mut self, _index: usize) {}
}
