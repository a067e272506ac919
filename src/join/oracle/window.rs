//! The reference's window joins: every window a list of rows, every pair that is out on a list.

use std::collections::BTreeSet;

use super::{Oracle, Output};
use crate::error::JoinError;
use crate::event::Side;
use crate::join::JoinKind;
use crate::join::window::{Span, Window};
use crate::time::{LatePolicy, LatenessClock, WATERMARK_START};

/// A window of one key that is not over.
pub(super) struct Live {
    key: Vec<u8>,
    span: Span,
    rows: Vec<Member>,
    /// The pairs that are out, by arrival of the left and the right row.
    paired: BTreeSet<(u64, u64)>,
    /// Whether all pairs there are are out.
    is_fired: bool,
}

/// A row in a window.
#[derive(Clone)]
struct Member {
    side: Side,
    id: u64,
    ts: i64,
    arrival: u64,
}

/// A late event under [`LatePolicy::Fail`]; its row is its id.
pub(super) fn late(side: Side, ts: i64, lag: i64, id: u64) -> JoinError {
    JoinError::Late { side, ts, lag, row: id.to_le_bytes().into() }
}

impl Live {
    /// First its pairs come out, later its rows without one: when, and what of.
    fn next(&self, (fires, closes): (i128, i128)) -> (i128, bool, u64, i128) {
        let end = self.span.end;
        let at = if self.is_fired { end + closes } else { end + fires };
        let first = self.rows.iter().map(|row| row.arrival).min();
        (at, self.is_fired, first.unwrap_or(0), self.span.start)
    }
}

impl Oracle {
    /// An event with a key, in a window join.
    pub(super) fn window_event(
        &mut self,
        window: Window,
        (side, source): (Side, usize),
        key: &[u8],
        ts: i64,
        id: u64,
    ) -> Result<(), JoinError> {
        let on_time_from = self.spec.lateness().threshold(self.judging_watermark(side, source));
        if window.last_end(ts) <= i128::from(on_time_from) {
            self.counters.sides[side.index()].late += 1;
            let lag = on_time_from.saturating_sub(ts);
            match self.spec.lateness().policy {
                LatePolicy::Output => self.out.push(Output::Late { side, id, lag }),
                LatePolicy::Fail => return Err(late(side, ts, lag, id)),
                LatePolicy::Drop | LatePolicy::Join => {}
            }
            return Ok(());
        }
        self.counters.sides[side.index()].on_time += 1;
        let member = Member { side, id, ts, arrival: self.arrivals };
        let over = on_time_from.max(self.spec.lateness().threshold(self.merged_watermark()));
        let open: Vec<Span> = window.open_spans(ts, over).collect();
        if open.is_empty() {
            self.emit_unmatched(side, id);
            return Ok(());
        }
        self.counters.sides[side.index()].stored += 1;
        for span in open {
            self.join_window(window, span, key, member.clone());
        }
        self.settle_windows(false);
        Ok(())
    }

    /// Puts a row into its window, which may hold the rows of others from now on.
    fn join_window(&mut self, window: Window, span: Span, key: &[u8], member: Member) {
        let is_session = matches!(window, Window::Session { .. });
        let belongs = |live: &Live| {
            let meets = live.span.start < span.end && span.start < live.span.end;
            live.key == key && if is_session { meets } else { live.span == span }
        };
        let mut joined = Live {
            key: key.to_vec(),
            span,
            rows: Vec::new(),
            paired: BTreeSet::new(),
            is_fired: false,
        };
        let mut rest = Vec::new();
        for live in std::mem::take(&mut self.windows) {
            if belongs(&live) {
                joined.span.start = joined.span.start.min(live.span.start);
                joined.span.end = joined.span.end.max(live.span.end);
                joined.rows.extend(live.rows);
                joined.paired.extend(live.paired);
            } else {
                rest.push(live);
            }
        }
        joined.rows.push(member);
        joined.rows.sort_by_key(|row| row.arrival);
        rest.push(joined);
        self.windows = rest;
    }

    /// Emits what is due, first things first.
    pub(super) fn settle_windows(&mut self, input_ended: bool) {
        let closes = i128::from(self.spec.lateness().allowed);
        let is_session = matches!(self.spec.windows(), Some(Window::Session { .. }));
        let is_own = self.spec.lateness().clock == LatenessClock::Own;
        let fires = if is_session && is_own { closes } else { 0 };
        loop {
            let next = self.windows.iter().map(|live| live.next((fires, closes))).enumerate();
            let Some((index, (at, is_fired, ..))) = next.min_by_key(|(_, next)| *next) else {
                return;
            };
            if !input_ended && !self.is_reached(at) {
                return;
            }
            let mut live = self.windows.swap_remove(index);
            if is_fired {
                self.close(live);
            } else {
                self.fire(&mut live);
                self.windows.push(live);
            }
        }
    }

    fn is_reached(&self, at: i128) -> bool {
        let watermark = self.merged_watermark();
        watermark > WATERMARK_START && i128::from(watermark) >= at
    }

    /// All pairs of a window that are not out.
    fn fire(&mut self, live: &mut Live) {
        live.is_fired = true;
        let ts = i64::try_from(live.span.end - 1).unwrap_or(i64::MAX);
        let of = |side: Side| live.rows.iter().filter(move |row| row.side == side);
        for left in of(Side::Left) {
            for right in of(Side::Right) {
                let pair = (left.arrival, right.arrival);
                let holds = self.holds(&live.key, (left.id, left.ts), (right.id, right.ts));
                if live.paired.contains(&pair) || !holds {
                    continue;
                }
                let is_first = !live.paired.iter().any(|(of_left, _)| *of_left == left.arrival);
                live.paired.insert(pair);
                self.counters.pairs += 1;
                for row in [left, right] {
                    if self.window_matched.insert(row.arrival) {
                        self.counters.sides[row.side.index()].matched += 1;
                    }
                }
                match self.spec.kind() {
                    JoinKind::Anti => {}
                    JoinKind::Semi if is_first => self.emit_single(Side::Left, left.id),
                    JoinKind::Semi => {}
                    _ => self.out.push(Output::Pair { left: left.id, right: right.id, ts }),
                }
            }
        }
    }

    /// The rows of a window that are in none of its pairs come out; the window is no more.
    fn close(&mut self, live: Live) {
        for row in &live.rows {
            let is_paired = live.paired.iter().any(|&(left, right)| match row.side {
                Side::Left => left == row.arrival,
                Side::Right => right == row.arrival,
            });
            if !is_paired {
                self.emit_unmatched(row.side, row.id);
            }
            let same = |other: &Member| other.arrival == row.arrival;
            let is_elsewhere = self.windows.iter().any(|other| other.rows.iter().any(same));
            if !is_elsewhere {
                self.counters.sides[row.side.index()].freed += 1;
            }
        }
    }
}
