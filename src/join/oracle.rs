//! The reference: nested loops that anyone can read.
//!
//! [`Oracle`] says what an interval join means, step by step. Every operator, on every number of
//! shards and every runtime, is held to it, and it is held to a corpus of scenarios that were run
//! on other engines. It is slow on purpose: plain `Vec`s, scanned whole for every event.
//!
//! # The rules
//!
//! **An event arrives.** In this order:
//!
//! 1. Without a key it matches nothing, is never stored and *never late*, however old it is; if
//!    rows of its side come out unmatched ([`JoinKind::emits_unmatched`]), it comes out at once.
//! 2. It is late if `ts < W - allowed`. `W` is the smaller of both sides' watermarks under
//!    [`LatenessClock::Merged`], and the watermark of the event's own source under
//!    [`LatenessClock::Own`] (which idleness does not move, and the end of the source sets to
//!    `i64::MAX`). `Drop` and `Output` end here: the row is not matched and not padded. Under
//!    `Join` a late row is treated as any other from here on.
//! 3. It is matched with the other side's stored rows in the order in which they were stored. A
//!    semi join emits each left row at its first match, in that order.
//! 4. It is stored if its end has not been passed. Otherwise it will never be: if it is unmatched
//!    and its side comes out unmatched, it comes out at once, in this very step.
//!
//! **The end of a row** is the last time at which a partner could still arrive on time:
//! `ts + hi + allowed` for a left row, `ts - lo + allowed` for a right one, computed exactly. The
//! row is freed when the clock passes it (`W > end`), and comes out then if it is unmatched; rows
//! that are freed by one step come out in the order of (end, arrival), both sides together. The
//! clock is the merged watermark, or under `LatenessClock::Own` the *other* side's. Nothing is
//! freed before the first promise (`W = i64::MIN`), and no watermark frees a row whose end is not
//! below `i64::MAX`, or which lies at `i64::MAX` itself.
//!
//! **The end of input**, when every source of both sides has finished, frees all that is left, in
//! the order of (end, arrival) like any watermark. It happens once; afterwards the rules above
//! hold at `W = i64::MAX`: an event at `i64::MAX` itself is on time and is stored.
//!
//! **An interval that holds nothing** (possible only where a spec allows it) pairs nothing; its
//! rows have the ends stated above.
//!
//! **A choice among matches** ([`MatchChoice`]) concerns the joins that emit pairs. A left row's
//! pair comes out in the step in which its choice becomes final, be that an event's or a
//! watermark's: when every right time that would be chosen instead, within the row's interval, is
//! late already. It is final at the latest when the row is freed. What one watermark makes come out
//! comes in the order of (the last watermark at which it was open, arrival): the end of a row that
//! has no partner; for one that has, the last time that would be chosen instead, plus `allowed`.
//! For semi and anti joins there is nothing to choose.
//!
//! **An as-of join** ([`Asof`](crate::join::Asof)) is the choice that its spec says, over the
//! interval that its tolerance gives: backward is the last of `-tolerance..0`, forward the first of
//! `0..tolerance`, nearest the nearest of both; a strict one leaves the left row's own time out.
//!
//! **A window join** ([`Window`](crate::join::Window)) puts a row into each of its windows that is
//! still open: whose end is after `W - allowed`, `W` as in 2 (and after what the merged watermark
//! says in its place). A row is late when none of them is by the `W` of 2, in a session join the
//! one that it would have alone. To a session a row before `W - allowed` belongs as if it stood
//! there: sessions that ended by then are over for it, whatever other sources have promised.
//! At the first merged watermark `W`
//! with `W >= end` the window's pairs come out, by arrival of the left row, then of the right one;
//! a row that still gets into the window afterwards gives its pairs at once. A session under
//! `LatenessClock::Own` gives its pairs at `W >= end + allowed`, as its end, which is their time,
//! would depend on how far other sources have come. At
//! `W >= end + allowed` its rows without a pair come out by arrival, where their side does, and the
//! window is no more.
//! What one watermark makes come out: by those watermarks, pairs first; then by the arrival of the
//! windows' first rows. Sessions that a row connects become one, which ends `gap` after its last
//! row.
//!
//! **Time to live**: [`Oracle::tick`] tells the time on the wall. Rows get the time of the first
//! tick that comes an eighth of `ttl` after the last such one, or after the first tick; a row is
//! gone at the first tick `ttl` after its time, or later. Those that are unmatched come out in that
//! step where their side does: left ones first, a side's in the order of (time, arrival). A left
//! row whose match is yet to be chosen gives the pair that it would give if nothing followed; a
//! right row that was noted as the best so far stays so, and no later left row sees it.
//!
//! **One to one** ([`MatchChoice::OneToOne`]), a row of either side is in one pair at the most.
//! Matches are candidates; they are taken in the order of (pair time, arrival of the later row,
//! arrival of the earlier one), and each becomes a pair if both of its rows are still free. That is
//! decided when no on-time event can come before it: at the first merged watermark `W` (whatever
//! the clock) with `W - allowed >= pair time`. A row is matched when it is in a pair. One without
//! comes out unmatched, if its side does, at the first merged watermark that passes its end and
//! decides a pair of the row's own time. All of this in one order: by those watermarks, pairs
//! before rows where they are the same.

mod chain;
mod choice;
mod pairing;
mod ttl;
mod window;

use std::{collections::BTreeSet, mem};

use crate::error::JoinError;
use crate::event::{Event, Key, Side};
use crate::join::{Counters, JoinKind, JoinSpec, MatchChoice};
use crate::time::{LatePolicy, LatenessClock, SideClock, WATERMARK_START};
pub use chain::{ChainStage, LeftKey, PairHolds, RightKey, chain};
use choice::rank;
use pairing::Pairing;

/// What comes out of a step of the [`Oracle`]. Rows are named by the ids they arrived with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Output {
    /// A match.
    Pair {
        /// The left row.
        left: u64,
        /// The right row.
        right: u64,
        /// The larger of their times, in ticks.
        ts: i64,
    },
    /// A row by itself: padded (outer), matched (semi) or unmatched (anti), by the join's kind.
    Single {
        /// Its side.
        side: Side,
        /// The row.
        id: u64,
    },
    /// A late row under [`LatePolicy::Output`].
    Late {
        /// Its side.
        side: Side,
        /// The row.
        id: u64,
        /// How far it lay behind what was still on time, in ticks.
        lag: i64,
    },
}

/// Whether a left and a right row, by their ids, pass a condition beyond key and time.
type Residual = Box<dyn Fn(u64, u64) -> bool>;

/// The interval join as SEMANTICS has it, one step at a time. Each event costs a scan of all rows.
/// The condition of a spec sees rows that are their ids, in eight bytes, little endian.
///
/// ```
/// use intervale::event::Side;
/// use intervale::join::oracle::{Oracle, Output};
/// use intervale::join::{JoinKind, JoinSpec};
/// use intervale::limits::Limits;
/// use intervale::time::Bound;
///
/// let spec = JoinSpec::between(Bound::Closed(-5), Bound::Closed(5))
///     .kind(JoinKind::Left)
///     .build(&Limits::default())?;
/// let mut oracle = Oracle::new(&spec, 1, 1);
/// assert_eq!(oracle.event(Side::Left, 0, Some(b"k"), 10, 1).unwrap(), []);
/// let pair = Output::Pair { left: 1, right: 2, ts: 15 };
/// assert_eq!(oracle.event(Side::Right, 0, Some(b"k"), 15, 2).unwrap(), [pair]);
/// assert_eq!(oracle.event(Side::Left, 0, Some(b"other"), 10, 3).unwrap(), []);
/// assert_eq!(oracle.end(), [Output::Single { side: Side::Left, id: 3 }]);
/// # Ok::<(), intervale::error::SpecError>(())
/// ```
pub struct Oracle {
    spec: JoinSpec,
    residual: Option<Residual>,
    clocks: [SideClock; 2],
    /// Stored rows of both sides, in the order in which they arrived.
    rows: [Vec<Row>; 2],
    arrivals: u64,
    /// Rows that were stored since then get one time.
    since_ns: Option<u64>,
    counters: Counters,
    /// Where rows are paired one to one.
    pairing: Pairing,
    /// The windows of a window join, and the arrivals of rows that have met in one.
    windows: Vec<window::Live>,
    window_matched: BTreeSet<u64>,
    out: Vec<Output>,
}

/// A row that has a key.
struct Row {
    id: u64,
    key: Vec<u8>,
    ts: i64,
    /// Its place among all events of both sides.
    arrival: u64,
    late: bool,
    matched: bool,
    /// The best partner so far, as (time, id), where one is chosen; and whether that pair is out.
    choice: Option<(i64, u64)>,
    chosen: bool,
    /// Where rows live only so long: when it was stored, once that is told.
    stored_ns: Option<u64>,
}

impl Oracle {
    /// A join with no rows and no promises, of so many sources a side.
    pub fn new(spec: &JoinSpec, left_sources: usize, right_sources: usize) -> Oracle {
        Oracle {
            spec: spec.clone(),
            residual: None,
            clocks: [SideClock::new(left_sources), SideClock::new(right_sources)],
            rows: [Vec::new(), Vec::new()],
            arrivals: 0,
            since_ns: None,
            counters: Counters::default(),
            pairing: Pairing::default(),
            windows: Vec::new(),
            window_matched: BTreeSet::new(),
            out: Vec::new(),
        }
    }

    /// Adds a condition: a pair exists only if `holds` says so of its left and right id.
    pub fn with_residual(mut self, holds: impl Fn(u64, u64) -> bool + 'static) -> Oracle {
        self.residual = Some(Box::new(holds));
        self
    }

    /// An event arrives; returns what comes out in this step.
    ///
    /// # Errors
    /// [`JoinError::Late`] for a late event under [`LatePolicy::Fail`]. It is counted, and nothing
    /// else has changed.
    ///
    /// # Panics
    /// When there is no such source.
    pub fn event(
        &mut self,
        side: Side,
        source: usize,
        key: Option<&[u8]>,
        ts: i64,
        id: u64,
    ) -> Result<Vec<Output>, JoinError> {
        self.arrivals += 1;
        self.counters.sides[side.index()].rows += 1;
        let Some(key) = key else {
            self.counters.sides[side.index()].null_key += 1;
            self.emit_unmatched(side, id);
            return Ok(mem::take(&mut self.out));
        };

        if let Some(window) = self.spec.windows() {
            self.window_event(window, (side, source), key, ts, id)?;
            return Ok(mem::take(&mut self.out));
        }
        let on_time_from = self.spec.lateness().threshold(self.judging_watermark(side, source));
        let late = ts < on_time_from;
        if late {
            self.counters.sides[side.index()].late += 1;
            let lag = on_time_from.saturating_sub(ts);
            match self.spec.lateness().policy {
                LatePolicy::Drop => return Ok(Vec::new()),
                LatePolicy::Output => return Ok(vec![Output::Late { side, id, lag }]),
                LatePolicy::Fail => return Err(window::late(side, ts, lag, id)),
                LatePolicy::Join => {}
            }
        } else {
            self.counters.sides[side.index()].on_time += 1;
        }

        let mut row = Row {
            id,
            key: key.to_vec(),
            ts,
            arrival: self.arrivals,
            late,
            matched: false,
            choice: None,
            chosen: false,
            stored_ns: None,
        };
        if self.is_one_to_one() {
            self.let_wait(side, &row);
        }
        self.probe(side, &mut row);
        self.store_or_emit(side, row);
        self.decide(false);
        Ok(mem::take(&mut self.out))
    }

    /// A source promises that no smaller time follows, and is active again.
    ///
    /// # Panics
    /// When there is no such source.
    pub fn watermark(&mut self, side: Side, source: usize, ts: i64) -> Vec<Output> {
        self.clocks[side.index()].advance(source, ts);
        self.free(false)
    }

    /// A source is idle until it promises again.
    ///
    /// # Panics
    /// When there is no such source.
    pub fn idle(&mut self, side: Side, source: usize) -> Vec<Output> {
        self.clocks[side.index()].idle(source);
        self.free(false)
    }

    /// A source has ended. The last one of both sides ends the input, as [`end`](Self::end) does.
    ///
    /// # Panics
    /// When there is no such source.
    pub fn finish(&mut self, side: Side, source: usize) -> Vec<Output> {
        self.clocks[side.index()].finish(source);
        let input_ended = self.clocks.iter().all(SideClock::is_finished);
        self.free(input_ended)
    }

    /// All sources end: everything left is freed.
    pub fn end(&mut self) -> Vec<Output> {
        for clock in &mut self.clocks {
            for source in 0..clock.source_count() {
                clock.finish(source);
            }
        }
        self.free(true)
    }

    /// The counts so far. Unlike an operator, the oracle frees rows in the very step.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The watermark that decides whether an event is late.
    fn judging_watermark(&self, side: Side, source: usize) -> i64 {
        match self.spec.lateness().clock {
            LatenessClock::Merged => self.merged_watermark(),
            LatenessClock::Own => self.clocks[side.index()].source_watermark(source),
        }
    }

    /// The watermark that frees rows of `side`.
    fn freeing_watermark(&self, side: Side) -> i64 {
        match self.spec.lateness().clock {
            LatenessClock::Merged => self.merged_watermark(),
            LatenessClock::Own => self.clocks[side.other().index()].watermark(),
        }
    }

    fn merged_watermark(&self) -> i64 {
        self.clocks[0].watermark().min(self.clocks[1].watermark())
    }

    /// The last watermark at which a row of `side` is kept, beyond the range of `i64` as well. Rows
    /// of a side without an end get one that only puts them in order.
    fn end_of(&self, side: Side, ts: i64) -> i128 {
        let reach = self.spec.interval().seen_from(side).hi();
        i128::from(ts) + i128::from(reach) + i128::from(self.spec.lateness().allowed)
    }

    /// Whether the clock has passed the end of a row.
    fn is_over(&self, side: Side, ts: i64) -> bool {
        let watermark = self.freeing_watermark(side);
        let endless = self.spec.interval().seen_from(side).has_no_last() || ts == i64::MAX;
        let promised = watermark > WATERMARK_START;
        promised && !endless && i128::from(watermark) > self.end_of(side, ts)
    }

    /// Matches an arriving row with the stored rows of the other side.
    fn probe(&mut self, side: Side, row: &mut Row) {
        let mut partners = mem::take(&mut self.rows[side.other().index()]);
        for partner in &mut partners {
            match side {
                Side::Left => self.match_rows(row, partner),
                Side::Right => self.match_rows(partner, row),
            }
            // A right row may have settled the choice of the left one.
            if side == Side::Right {
                self.emit_choice(partner, false);
            }
        }
        if side == Side::Left {
            self.emit_choice(row, false);
        }
        self.rows[side.other().index()] = partners;
    }

    /// Matches two rows if key, time and condition agree.
    fn match_rows(&mut self, left: &mut Row, right: &mut Row) {
        let holds = left.key == right.key
            && self.spec.matches(left.ts, right.ts)
            && self.holds(&left.key, (left.id, left.ts), (right.id, right.ts));
        if !holds {
            return;
        }
        if self.is_one_to_one() {
            self.offer(left, right);
            return;
        }
        let first_match_of_left = !left.matched;
        self.mark_matched(Side::Left, left);
        self.mark_matched(Side::Right, right);
        match (self.spec.kind(), self.spec.choice()) {
            (JoinKind::Semi, _) => {
                self.counters.pairs += 1;
                if first_match_of_left {
                    self.emit_single(Side::Left, left.id);
                }
            }
            (JoinKind::Anti, _) => self.counters.pairs += 1,
            (_, MatchChoice::All) => self.emit_pair(left, right.ts, right.id),
            (_, choice) => {
                // On a tie the one that arrived first stays.
                if left.choice.is_none_or(|(best_ts, _)| {
                    rank(choice, left.ts, right.ts) < rank(choice, left.ts, best_ts)
                }) {
                    left.choice = Some((right.ts, right.id));
                }
            }
        }
    }

    /// Whether two rows of one key, given by id and time, pass what is asked beyond key and time.
    fn holds(&self, key: &[u8], left: (u64, i64), right: (u64, i64)) -> bool {
        let (left_row, right_row) = (left.0.to_le_bytes(), right.0.to_le_bytes());
        let key = Key::Bytes(key);
        let left_event = Event { key, ts: left.1, row: &left_row };
        let right_event = Event { key, ts: right.1, row: &right_row };
        self.residual.as_ref().is_none_or(|holds| holds(left.0, right.0))
            && self.spec.holds(&left_event, &right_event)
    }

    fn mark_matched(&mut self, side: Side, row: &mut Row) {
        if !mem::replace(&mut row.matched, true) {
            let counts = &mut self.counters.sides[side.index()];
            if row.late {
                counts.late_matched += 1;
            } else {
                counts.matched += 1;
            }
        }
    }

    /// Keeps an arriving row if a partner may still come; otherwise it has met its fate.
    fn store_or_emit(&mut self, side: Side, mut row: Row) {
        if !self.is_over(side, row.ts) {
            self.counters.sides[side.index()].stored += 1;
            self.rows[side.index()].push(row);
        } else {
            self.emit_fate(side, &mut row);
        }
    }

    /// Settles choices, frees every row whose end is passed (all rows at the end of input), and
    /// returns what comes out.
    fn free(&mut self, input_ended: bool) -> Vec<Output> {
        let mut outputs = Vec::new();
        for side in Side::BOTH {
            let mut kept = Vec::new();
            for mut row in mem::take(&mut self.rows[side.index()]) {
                let order = (self.due(side, &row), row.arrival);
                if input_ended || self.is_over(side, row.ts) {
                    self.counters.sides[side.index()].freed += 1;
                    self.emit_fate(side, &mut row);
                } else {
                    self.emit_choice(&mut row, false);
                    kept.push(row);
                }
                outputs.extend(mem::take(&mut self.out).into_iter().map(|output| (order, output)));
            }
            self.rows[side.index()] = kept;
        }
        outputs.sort_by_key(|(order, _)| *order);
        self.out.extend(outputs.into_iter().map(|(_, output)| output));
        self.decide(input_ended);
        self.settle_windows(input_ended);
        mem::take(&mut self.out)
    }

    /// What comes out of a row that no partner can reach any more.
    fn emit_fate(&mut self, side: Side, row: &mut Row) {
        self.emit_choice(row, true);
        if !row.matched && !self.is_one_to_one() {
            self.emit_unmatched(side, row.id);
        }
    }

    fn is_one_to_one(&self) -> bool {
        self.spec.choice() == MatchChoice::OneToOne
    }

    fn emit_pair(&mut self, left: &Row, right_ts: i64, right: u64) {
        self.counters.pairs += 1;
        self.out.push(Output::Pair { left: left.id, right, ts: left.ts.max(right_ts) });
    }

    fn emit_unmatched(&mut self, side: Side, id: u64) {
        if self.spec.kind().emits_unmatched(side) {
            self.emit_single(side, id);
        }
    }

    fn emit_single(&mut self, side: Side, id: u64) {
        self.counters.sides[side.index()].singles += 1;
        self.out.push(Output::Single { side, id });
    }
}
