//! The reference's way to pair one to one.

use super::{Oracle, Output, Row};
use crate::event::Side;
use crate::join::JoinKind;
use crate::time::WATERMARK_START;

/// What is to be decided, by the ids of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Decision {
    /// Make a pair of two rows, if both are free.
    Pair {
        /// Arrivals of the row that came second and of the other.
        arrivals: (u64, u64),
        left: (u64, i64),
        right: (u64, i64),
    },
    /// Let a row go, if it is free.
    Single { arrival: u64, is_right: bool, id: u64 },
}

/// Decisions that wait, and rows that are in no pair.
#[derive(Default)]
pub(super) struct Pairing {
    /// With the last watermark at which each waits.
    waiting: Vec<(i128, Decision)>,
    /// Side, id, and whether it was late.
    free: Vec<(Side, u64, bool)>,
}

impl Pairing {
    pub(super) fn wait(&mut self, until: i128, decision: Decision) {
        self.waiting.push((until, decision));
    }

    pub(super) fn set_free(&mut self, side: Side, id: u64, late: bool) {
        self.free.push((side, id, late));
    }

    pub(super) fn is_free(&self, side: Side, id: u64) -> bool {
        self.free.iter().any(|&(free_side, free_id, _)| (free_side, free_id) == (side, id))
    }

    /// The row is free no more; returns whether it was, and late.
    pub(super) fn take(&mut self, side: Side, id: u64) -> Option<bool> {
        let same =
            |&(free_side, free_id, _): &(Side, u64, bool)| (free_side, free_id) == (side, id);
        let at = self.free.iter().position(same)?;
        Some(self.free.remove(at).2)
    }

    /// Takes the decisions that wait for no larger watermark, first things first.
    pub(super) fn due(&mut self, is_due: impl Fn(i128) -> bool) -> Vec<Decision> {
        let (mut due, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(until, _)| is_due(*until));
        self.waiting = rest;
        due.sort_unstable();
        due.into_iter().map(|(_, decision)| decision).collect()
    }
}

impl Oracle {
    /// The last watermark before pairs of this time are decided.
    fn undecided_until(&self, pair_ts: i64) -> i128 {
        i128::from(pair_ts) + i128::from(self.spec.lateness().allowed) - 1
    }

    /// A row is there to be paired, until it is or goes by itself.
    pub(super) fn let_wait(&mut self, side: Side, row: &Row) {
        self.pairing.set_free(side, row.id, row.late);
        let until = self.due(side, row).max(self.undecided_until(row.ts));
        let is_right = side == Side::Right;
        let decision = Decision::Single { arrival: row.arrival, is_right, id: row.id };
        self.pairing.wait(until, decision);
    }

    /// Two rows may become a pair.
    pub(super) fn offer(&mut self, left: &Row, right: &Row) {
        if self.pairing.is_free(Side::Left, left.id) && self.pairing.is_free(Side::Right, right.id)
        {
            let decision = Decision::Pair {
                arrivals: (left.arrival.max(right.arrival), left.arrival.min(right.arrival)),
                left: (left.id, left.ts),
                right: (right.id, right.ts),
            };
            self.pairing.wait(self.undecided_until(left.ts.max(right.ts)), decision);
        }
    }

    /// Decides what is due.
    pub(super) fn decide(&mut self, input_ended: bool) {
        let watermark = self.merged_watermark();
        let is_due = |until| watermark > WATERMARK_START && i128::from(watermark) > until;
        for decision in self.pairing.due(|until| input_ended || is_due(until)) {
            match decision {
                Decision::Pair { left, right, .. } => self.pair_off(left, right),
                Decision::Single { is_right, id, .. } => {
                    let side = if is_right { Side::Right } else { Side::Left };
                    if self.pairing.take(side, id).is_some() {
                        self.emit_unmatched(side, id);
                    }
                }
            }
        }
    }

    fn pair_off(&mut self, (left, left_ts): (u64, i64), (right, right_ts): (u64, i64)) {
        let pairing = &mut self.pairing;
        if !pairing.is_free(Side::Left, left) || !pairing.is_free(Side::Right, right) {
            return;
        }
        for (side, id) in [(Side::Left, left), (Side::Right, right)] {
            let counts = &mut self.counters.sides[side.index()];
            match pairing.take(side, id) {
                Some(true) => counts.late_matched += 1,
                _ => counts.matched += 1,
            }
        }
        self.counters.pairs += 1;
        match self.spec.kind() {
            JoinKind::Semi => self.emit_single(Side::Left, left),
            JoinKind::Anti => {}
            _ => self.out.push(Output::Pair { left, right, ts: left_ts.max(right_ts) }),
        }
    }
}
