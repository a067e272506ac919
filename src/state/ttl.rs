//! Rows that end a while after they were stored, whatever the watermarks are.
//!
//! Rows of a side are numbered in the order in which they are stored, so all rows that were stored
//! before a moment are those with smaller numbers. [`State::close_epoch`] notes such a moment, and
//! [`State::age_out`] makes it the moment before which all rows are dead: from then on no probe
//! finds them. Those that wait for their end come out of [`State::expire_dead`], and a bucket is
//! retired once it and all older ones hold nothing but dead rows.

use std::collections::VecDeque;

use super::expiry::{Due, Waiting};
use super::run::{MATCHED, SEQUENCE_MASK};
use super::{State, waiting_row};
use crate::event::Side;

/// Rows that were stored up to a moment.
#[derive(Clone, Copy)]
struct Epoch {
    number: u64,
    closed_ns: u64,
    /// The numbers of the next rows, by side.
    sequences: [u32; 2],
    /// The arrival of the next event.
    arrivals: u64,
}

/// When rows were stored.
#[derive(Default)]
pub(super) struct Ages {
    /// Epochs whose rows live, the oldest first.
    epochs: VecDeque<Epoch>,
    epoch_count: u64,
    /// Rows of this one and of those before it are dead.
    dead: Option<Epoch>,
    /// Where to go on looking for dead rows that wait: a side and a slot of time.
    sweep: Option<(Side, i64)>,
}

/// Rows of a side that have died now.
pub(super) struct Dead {
    /// Their last epoch.
    pub(super) epoch: u64,
    /// The number of the side's next row, and how far behind it those are that were alive before
    /// and that still are.
    next: u32,
    backs: [u32; 2],
}

impl Dead {
    /// Whether a row, by its tag, has died now.
    pub(super) fn has_died(&self, tag: u32) -> bool {
        let back = back_of(tag, self.next);
        back <= self.backs[0] && back > self.backs[1]
    }
}

/// Tells the epochs of a side's rows, and which rows are dead.
pub(super) struct Epochs<'a> {
    ages: &'a Ages,
    side: Side,
    next: u32,
    oldest_back: u32,
}

impl Epochs<'_> {
    /// Whether a row, by its tag, has outlived its time.
    pub(super) fn is_dead(&self, tag: u32) -> bool {
        back_of(tag, self.next) > self.oldest_back
    }

    /// The epoch of a row that is alive: one that is not closed has the next number.
    pub(super) fn of(&self, tag: u32) -> u64 {
        let back = back_of(tag, self.next);
        let is_later =
            |epoch: &Epoch| back <= back_of(epoch.sequences[self.side.index()], self.next);
        let at = self.ages.epochs.partition_point(is_later);
        self.ages.epochs.get(at).map_or(self.ages.epoch_count + 1, |epoch| epoch.number)
    }
}

impl Ages {
    /// What tells the epochs of a side's rows, given the number of the next one.
    pub(super) fn epochs_of(&self, side: Side, next: u32) -> Epochs<'_> {
        Epochs { ages: self, side, next, oldest_back: self.oldest_back(side, next) }
    }

    /// Whether dead rows that wait are yet to be looked for.
    pub(super) fn is_sweeping(&self) -> bool {
        self.sweep.is_some()
    }

    /// The most that the number of a live row is behind the next row's.
    #[inline]
    pub(super) fn oldest_back(&self, side: Side, next: u32) -> u32 {
        self.dead.map_or(u32::MAX, |dead| {
            next.wrapping_sub(dead.sequences[side.index()]) & SEQUENCE_MASK
        })
    }

    /// When the oldest rows that are not in the epoch under way were stored.
    pub(super) fn oldest_closed_ns(&self) -> Option<u64> {
        self.epochs.front().map(|epoch| epoch.closed_ns)
    }
}

/// How far behind the next row's number a row's is.
#[inline]
pub(super) fn back_of(tag: u32, next: u32) -> u32 {
    next.wrapping_sub(tag) & SEQUENCE_MASK
}

impl State {
    /// When the oldest rows were stored at the latest, those since the last
    /// [`close_epoch`](Self::close_epoch) left out.
    pub fn oldest_closed_ns(&self) -> Option<u64> {
        self.ages.oldest_closed_ns()
    }

    /// Notes that all rows up to now were stored before `now_ns`.
    pub fn close_epoch(&mut self, now_ns: u64) {
        let (sequences, arrivals) = (self.sequences, self.arrivals);
        let last = self.ages.epochs.back().copied().or(self.ages.dead);
        if last.map_or([0; 2], |last| last.sequences) == sequences {
            return;
        }
        self.ages.epoch_count += 1;
        let number = self.ages.epoch_count;
        self.ages.epochs.push_back(Epoch { number, closed_ns: now_ns, sequences, arrivals });
        for (ring, arena) in self.rings.iter_mut().zip(&self.arenas) {
            ring.note_epoch(number, arena);
        }
    }

    /// Lets all rows die that were stored up to `to_ns`, as far as epochs were closed by then.
    /// Returns how many they were, by side, those left out that lie under `floors` and so have
    /// ended by their time. `None` when there are no such rows.
    pub fn age_out(&mut self, to_ns: u64, floors: [i64; 2]) -> Option<[u64; 2]> {
        let mut dead = None;
        while let Some(epoch) = self.ages.epochs.front().filter(|epoch| epoch.closed_ns <= to_ns) {
            dead = Some(*epoch);
            self.ages.epochs.pop_front();
        }
        let dead = dead?;
        let before = Side::BOTH.map(|side| self.oldest_back(side));
        self.ages.dead = Some(dead);
        self.ages.sweep = Some((Side::Left, i64::MIN));
        let mut died = [0; 2];
        for side in Side::BOTH {
            let (own, floor) = (side.index(), floors[side.index()]);
            let (next, backs) = (self.sequences[own], [before[own], self.oldest_back(side)]);
            let dead = Dead { epoch: dead.number, next, backs };
            died[own] = self.rings[own].age_out(dead.epoch, floor, |tag| dead.has_died(tag));
            match self.cold[own].age_out(&dead, floor) {
                Ok(cold) => died[own] += cold,
                Err(error) => self.failure = Some(error),
            }
        }
        Some(died)
    }

    /// See [`Ages::oldest_back`].
    #[inline]
    pub(super) fn oldest_back(&self, side: Side) -> u32 {
        self.ages.oldest_back(side, self.sequences[side.index()])
    }

    /// Whether rows have died that are still there, or may be.
    #[inline]
    pub fn has_dead(&self) -> bool {
        self.ages.dead.is_some()
    }

    /// Hands over dead rows that waited for their end, left ones first, a side's by time and
    /// arrival: about `budget` of them. Returns whether more may be left. Those that were matched
    /// meanwhile are left out.
    pub fn expire_dead(
        &mut self,
        budget: usize,
        mut each: impl FnMut(Side, u64, i64, &[u8]),
    ) -> bool {
        let Some(dead) = self.ages.dead else { return false };
        let mut left = budget;
        while self.failure.is_none()
            && let Some((side, from)) = self.ages.sweep
        {
            let own = side.index();
            let arena = &self.arenas[own];
            let ts_of = |waiting: &Waiting| waiting_row(arena, waiting).ts();
            let found = self.expiries[own]
                .as_mut()
                .and_then(|expiry| expiry.take_arrived_before(dead.arrivals, from, ts_of));
            let Some((next, dues)) = found else {
                let cold = &mut self.cold[own];
                let hand_over = |key, ts, row: &[u8]| each(side, key, ts, row);
                match cold.expire_dead(dead.arrivals, None, left, hand_over) {
                    Ok(count) if count < left => {}
                    Ok(_) => return true,
                    Err(error) => {
                        self.failure = Some(error);
                        return false;
                    }
                }
                self.ages.sweep = (side == Side::Left).then_some((Side::Right, i64::MIN));
                continue;
            };
            self.ages.sweep = Some((side, next));
            for due @ Due { ts, waiting } in &dues {
                let hand_over = |key, ts, row: &[u8]| each(side, key, ts, row);
                let before = Some(due.order());
                let cold = &mut self.cold[own];
                if let Err(error) = cold.expire_dead(dead.arrivals, before, usize::MAX, hand_over) {
                    self.failure = Some(error);
                    return false;
                }
                let row = waiting_row(arena, waiting);
                let tag = row.tag();
                if tag & MATCHED == 0 {
                    each(side, waiting.key, *ts, row.row(tag));
                }
            }
            left = left.saturating_sub(dues.len());
            if left == 0 {
                return true;
            }
        }
        false
    }

    /// Retires the oldest buckets that hold only dead rows; returns how many rows went that had not
    /// been counted as dead. To be called once [`expire_dead`](Self::expire_dead) has nothing left.
    pub fn retire_dead(&mut self, side: Side) -> u64 {
        if self.ages.dead.is_none() || self.ages.sweep.is_some() {
            return 0;
        }
        let own = side.index();
        if let Some(expiry) = &mut self.expiries[own] {
            expiry.drop_empty();
        }
        let cold = self.cold[own].retire_dead();
        cold + self.rings[own].retire_dead(&mut self.arenas[own])
    }
}
