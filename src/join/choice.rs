//! One match for each left row: the first, the last or the nearest, once no event can change it.
//!
//! A left row waits in a slot, with the best partner so far and the last watermark at which the
//! choice is open (*due*). Rows come out in the order in which they fall due, equal ones in the
//! order of arrival.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;

use crate::error::JoinError;
use crate::event::{Event, EventBatch, KeyHasher, KeyKind, Side};
use crate::join::aging::Aging;
use crate::join::kept::Kept;
use crate::join::slots::{Beside, Mark, Slot, Slots, end_of, is_past, row_of};
use crate::join::{Emit, JoinSpec, MatchChoice};
use crate::spill::SpillError;
use crate::state::{Class, Partner, Visit};

/// The left rows whose match is not yet chosen.
pub(super) struct Choices {
    spec: JoinSpec,
    slots: Slots<Best>,
    due: BinaryHeap<Reverse<Due>>,
    /// Where rows live only so long.
    aging: Option<Aging>,
    /// Of the batch at work.
    marks: Vec<Option<Mark>>,
    /// Room for a row and its partner out of files.
    room: [Vec<u8>; 2],
    /// Why a row could not be read back. It is missing.
    failure: Option<SpillError>,
}

/// The best partner of a left row so far.
#[derive(Default)]
struct Best {
    is_there: bool,
    ts: i64,
    row: Kept,
    /// The row comes out at the first watermark over this.
    due: i128,
}

impl Beside for Best {
    fn row(&mut self) -> Option<&mut Kept> {
        Some(&mut self.row)
    }
}

/// When a row is to be looked at. An entry whose row has another time by now is stale.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: i128,
    arrival: u64,
    mark: Mark,
}

/// What came out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Emitted {
    pub(super) pairs: u64,
    pub(super) singles: u64,
}

impl Choices {
    pub(super) fn new(spec: JoinSpec) -> Choices {
        // A right row is matched by a left one that is out already, if the condition holds of the
        // two.
        let slots = Slots::new(spec.condition().is_some());
        let aging = spec.ttl().map(|_| Aging::default());
        let due = BinaryHeap::new();
        let room = Default::default();
        Choices { spec, slots, due, aging, marks: Vec::new(), room, failure: None }
    }

    /// Bytes as allocated.
    pub(super) fn bytes(&self) -> usize {
        let aging = self.aging.as_ref().map_or(0, Aging::bytes);
        self.slots.bytes() + self.due.capacity() * size_of::<Reverse<Due>>() + aging
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
        self.slots.mark(batch, classes, keys, &mut self.marks)
    }

    /// Takes the batch of [`mark`](Self::mark) back, after its partners were seen: emits what is
    /// final already, pads what can have no partner any more, and lets the rest wait.
    pub(super) fn settle_batch<E: Emit>(
        &mut self,
        marked: EventBatch,
        (clock, floor): (i64, i64),
        hasher: &KeyHasher,
        out: &mut E,
    ) -> Emitted {
        self.slots.give_back(marked);
        let mut emitted = Emitted::default();
        let marks = std::mem::take(&mut self.marks);
        for &mark in marks.iter().flatten() {
            let Some((slot, _)) = self.slots.get_mut(mark) else { continue };
            slot.more.due = due_of(&self.spec, slot);
            let (at, arrival, ts) = (slot.more.due, slot.arrival, slot.ts);
            if ts < floor || is_final(clock, at) {
                self.emit(mark, hasher, out, &mut emitted);
            } else {
                self.due.push(Reverse(Due { at, arrival, mark }));
                if let Some(aging) = &mut self.aging {
                    aging.push(ts, arrival, mark);
                }
            }
        }
        self.marks = marks;
        emitted
    }

    /// Emits up to `budget` rows that are due at the clock, or all that wait if there is none.
    /// Returns whether more may be left.
    pub(super) fn work<E: Emit>(
        &mut self,
        clock: Option<i64>,
        budget: usize,
        hasher: &KeyHasher,
        out: &mut E,
    ) -> (bool, Emitted) {
        let mut emitted = Emitted::default();
        for _ in 0..budget {
            if self.failure.is_some() {
                return (false, emitted);
            }
            if let Some(mark) = self.aging.as_mut().and_then(Aging::take) {
                self.emit(mark, hasher, out, &mut emitted);
                continue;
            }
            let Some(&Reverse(next)) = self.due.peek() else { return (false, emitted) };
            if clock.is_some_and(|clock| !is_past(clock, next.at)) {
                return (false, emitted);
            }
            self.due.pop();
            if self.slots.get(next.mark).is_some_and(|slot| slot.more.due == next.at) {
                self.emit(next.mark, hasher, out, &mut emitted);
            }
        }
        (true, emitted)
    }

    /// All rows up to now were stored before `now_ns`.
    pub(super) fn close_epoch(&mut self, now_ns: u64) {
        self.aging.iter_mut().for_each(|aging| aging.close_epoch(now_ns));
    }

    /// Rows that were stored up to `to_ns` come out of [`work`](Self::work) next, each with the
    /// partner that it has, or by itself.
    pub(super) fn age_out(&mut self, to_ns: u64) {
        let Choices { slots, aging, .. } = self;
        aging.iter_mut().for_each(|aging| aging.age_out(to_ns, |mark| slots.get(mark).is_some()));
    }

    /// Notes a partner if it is better than what there is; an equal one that came earlier stays.
    /// Returns whether it is.
    fn offer(&mut self, mark: Mark, ts: i64, row: &[u8]) -> bool {
        let Some((slot, store)) = self.slots.get_mut(mark) else { return false };
        let best = &mut slot.more;
        if best.is_there && !is_better(self.spec.choice(), slot.ts, ts, best.ts) {
            return false;
        }
        (best.is_there, best.ts) = (true, ts);
        store.replace(&mut best.row, row);
        true
    }

    /// Whether two rows of one key, each within the other's interval, match.
    fn matches(&self, left: &Event<'_>, right: &Event<'_>) -> bool {
        !(self.spec.is_apart() && left.ts == right.ts) && self.spec.holds(left, right)
    }

    /// A row comes out, with its partner or by itself, and its slot is free.
    fn emit<E: Emit>(
        &mut self,
        mark: Mark,
        hasher: &KeyHasher,
        out: &mut E,
        emitted: &mut Emitted,
    ) {
        let Choices { spec, slots, room: [room, partner_room], .. } = self;
        let Some((slot, store)) = slots.get_mut(mark) else { return };
        let (is_pair, emits) = (slot.more.is_there, spec.kind().emits_unmatched(Side::Left));
        if is_pair || emits {
            let rows = slot.event(hasher, store, room).and_then(|left| {
                let partner = store.read(&slot.more.row, partner_room)?;
                Ok((left, partner))
            });
            match rows {
                Ok((left, row)) if is_pair => {
                    emitted.pairs += 1;
                    out.pair(left, Event { key: left.key, ts: slot.more.ts, row });
                }
                Ok((left, _)) => {
                    emitted.singles += 1;
                    out.single(Side::Left, left);
                }
                Err(error) => {
                    self.failure = Some(error);
                    return;
                }
            }
        }
        slot.more.is_there = false;
        store.let_go(&mut slot.more.row);
        slots.release(mark);
    }
}

/// The last watermark at which a partner can come that would change what comes out.
fn due_of(spec: &JoinSpec, slot: &Slot<Best>) -> i128 {
    if !slot.more.is_there {
        return end_of(spec, Side::Left, slot.ts);
    }
    let range = spec.interval().range(slot.ts);
    let open = open_until((spec.choice(), spec.is_apart()), range, slot.ts, slot.more.ts);
    open.map_or(i128::MIN, |last| i128::from(last) + i128::from(spec.lateness().allowed))
}

/// Whether no partner can come that would change what comes out.
fn is_final(clock: i64, due: i128) -> bool {
    due == i128::MIN || is_past(clock, due)
}

/// Whether a partner at `ts` would be chosen instead of one at `best`.
fn is_better(choice: MatchChoice, left: i64, ts: i64, best: i64) -> bool {
    match choice {
        MatchChoice::All | MatchChoice::OneToOne => false,
        MatchChoice::First => ts < best,
        MatchChoice::Last => ts > best,
        MatchChoice::Nearest => (ts.abs_diff(left), ts) < (best.abs_diff(left), best),
    }
}

/// The last time at which a partner would be chosen instead of one at `best`; `first` and `last`
/// are those of any partner. With `apart`, the left row's own time is none.
fn open_until(
    (choice, apart): (MatchChoice, bool),
    (first, last): (i64, i64),
    left: i64,
    best: i64,
) -> Option<i64> {
    match choice {
        MatchChoice::All | MatchChoice::OneToOne => None,
        MatchChoice::First => (best > first).then(|| best - 1),
        MatchChoice::Last => (best < last).then_some(last),
        MatchChoice::Nearest => {
            let distance = i128::from(best.abs_diff(left));
            let left = i128::from(left);
            // At the same distance the earlier is better.
            let is_after = i128::from(best) > left;
            let from = left - distance + i128::from(!is_after);
            let to = (left + distance - 1).min(i128::from(last));
            let to = if apart && to == left { to - 1 } else { to };
            // Not over `last`, and not under `first`, so it is an i64.
            (from.max(i128::from(first)) <= to).then_some(to as i64)
        }
    }
}

/// Offers the right partners of left events to their slots.
pub(super) struct LeftVisit<'a> {
    pub(super) choices: &'a mut Choices,
    pub(super) batch: &'a EventBatch,
    pub(super) hasher: &'a KeyHasher,
}

impl<'a> Visit for LeftVisit<'a> {
    type Own = (Option<Mark>, Event<'a>);

    fn own(&self, index: usize) -> Self::Own {
        (self.choices.marks[index], self.batch.event(index, self.hasher))
    }

    fn partner(&mut self, (mark, own): Self::Own, partner: Partner<'_>) -> bool {
        let (Some(mark), Some(row)) = (mark, row_of(own.key, partner.row)) else { return false };
        let right = Event { key: own.key, ts: partner.ts, row };
        let is_match = self.choices.matches(&own, &right);
        if is_match {
            self.choices.offer(mark, right.ts, row);
        }
        is_match
    }

    fn over(&mut self, _index: usize) {}
}

/// Offers right events to the slots of their left partners, and emits what that makes final.
pub(super) struct RightVisit<'a, E> {
    pub(super) choices: &'a mut Choices,
    pub(super) batch: &'a EventBatch,
    pub(super) hasher: &'a KeyHasher,
    /// The watermark that left rows wait for.
    pub(super) clock: i64,
    pub(super) out: &'a mut E,
    pub(super) emitted: Emitted,
}

impl<'a, E: Emit> Visit for RightVisit<'a, E> {
    type Own = Event<'a>;

    fn own(&self, index: usize) -> Event<'a> {
        self.batch.event(index, self.hasher)
    }

    fn partner(&mut self, own: Event<'a>, partner: Partner<'_>) -> bool {
        let Some((mark, row)) = Mark::of(own.key, partner.row) else { return false };
        let choices = &mut *self.choices;
        if !choices.matches(&Event { key: own.key, ts: partner.ts, row }, &own) {
            return false;
        }
        // A choice that is made stays, whether it is out or only due.
        let best = choices.slots.get(mark).map(|slot| &slot.more);
        let is_open = best.is_some_and(|best| !best.is_there || !is_past(self.clock, best.due));
        if !is_open || !choices.offer(mark, own.ts, own.row) {
            return true;
        }
        let Some((slot, _)) = choices.slots.get_mut(mark) else { return true };
        let due = due_of(&choices.spec, slot);
        if is_final(self.clock, due) {
            choices.emit(mark, self.hasher, self.out, &mut self.emitted);
        } else if slot.more.due != due {
            slot.more.due = due;
            choices.due.push(Reverse(Due { at: due, arrival: slot.arrival, mark }));
        }
        true
    }

    fn over(&mut self, _index: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What would be chosen instead, by trying every time.
    fn tried(choice: MatchChoice, (first, last): (i64, i64), left: i64, best: i64) -> Option<i64> {
        (first..=last).rev().find(|&ts| is_better(choice, left, ts, best))
    }

    #[test]
    fn a_choice_is_open_until_the_last_time_that_is_better() {
        for choice in [MatchChoice::First, MatchChoice::Last, MatchChoice::Nearest] {
            for (lo, hi) in [(-3, 3), (0, 4), (-4, 0), (2, 5), (-5, -2), (0, 0)] {
                let (first, last) = (10 + lo, 10 + hi);
                for best in first..=last {
                    let expected = tried(choice, (first, last), 10, best);
                    let got = open_until((choice, false), (first, last), 10, best);
                    assert_eq!(got, expected, "{choice:?} {lo}..{hi} best {best}");
                }
            }
        }
    }

    #[test]
    fn the_left_row_s_own_time_may_be_none() {
        let (choice, range) = (MatchChoice::Nearest, (7, 13));
        for best in (range.0..=range.1).filter(|&best| best != 10) {
            let better = |&ts: &i64| ts != 10 && is_better(choice, 10, ts, best);
            let expected = (range.0..=range.1).rev().find(better);
            assert_eq!(open_until((choice, true), range, 10, best), expected, "best {best}");
        }
        let end = i64::MAX;
        assert_eq!(open_until((choice, true), (end - 5, end), end, end - 2), Some(end - 1));
    }

    #[test]
    fn the_ends_of_time_are_times_like_others() {
        let all = (i64::MIN, i64::MAX);
        assert_eq!(open_until((MatchChoice::First, false), all, 0, i64::MIN), None);
        assert_eq!(open_until((MatchChoice::Last, false), all, 0, i64::MAX), None);
        assert_eq!(open_until((MatchChoice::Last, false), all, 0, 5), Some(i64::MAX));
        let far = open_until((MatchChoice::Nearest, false), all, i64::MAX, i64::MIN + 1);
        assert_eq!(far, Some(i64::MAX));
        assert!(is_better(MatchChoice::Nearest, i64::MIN + 1, 0, i64::MAX));
        assert!(!is_past(i64::MIN, i128::from(i64::MIN) - 5), "nothing is promised yet");
    }
}
