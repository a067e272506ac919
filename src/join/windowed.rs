//! The window join operator.
//!
//! Every key has a list of its open windows, every window the numbers of its rows by side. A window
//! comes up twice: when the watermark reaches its end its pairs come out (*it fires*), and
//! `allowed lateness` later its rows without one, and it is gone (*it closes*). Between the two, an
//! event that still is on time gives its pairs at once. Each window's turn stands in a heap; an
//! entry whose window has another end by now, because a session has grown, is stale.

mod cold;
mod firing;
mod place;
mod rows;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use hashbrown::HashMap;

use crate::error::{JoinError, SpecError};
use crate::event::{BatchKind, EventBatch, KeyHasher, Side};
use crate::join::counters::check_rows;
use crate::join::emit::single_without_key;
use crate::join::late::{on_time_from, take_late};
use crate::join::room::MakesRoom;
use crate::join::slots::is_past;
use crate::join::spec::check::NOT_PLAIN;
use crate::join::window::{Span, Window};
use crate::join::{Counters, Emit, JoinSpec};
use crate::limits::{Limits, Overflow};
use crate::spill::{Place, Shelf};
use crate::time::{LatenessClock, WATERMARK_END, WATERMARK_START};
use firing::{Firing, pair_time};
use place::Arrived;
use rows::{KeyRef, OwnedKey, Rows};

/// A window join of one shard: windows of both sides, clocks, counts. It is driven as
/// [`IntervalJoin`](crate::join::IntervalJoin) is.
///
/// A window fires whole, so a step is as long as the largest window has pairs.
pub struct WindowJoin {
    spec: JoinSpec,
    window: Window,
    hasher: KeyHasher,
    limits: Limits,
    rows: Rows,
    keys: HashMap<OwnedKey, Vec<(i128, u64)>>,
    windows: HashMap<u64, Live>,
    turns: BinaryHeap<Reverse<Turn>>,
    /// In a session join, how many windows have their first event when.
    starts: BTreeMap<i64, usize>,
    next_window: u64,
    next_group: u64,
    /// Bytes of row numbers in windows.
    member_bytes: usize,
    counters: Counters,
    /// By [`Side::index`].
    watermarks: [i64; 2],
    flushing: bool,
    finished: bool,
    /// Rows of windows that are not in memory.
    shelf: Shelf,
    failure: Option<JoinError>,
}

/// An open window of one key.
struct Live {
    span: Span,
    /// The time of its first event, which may be before the span: see [`Window::open_spans`].
    since: i64,
    /// Of its first row.
    arrival: u64,
    key: u64,
    /// By [`Side::index`], in the order of arrival; and where those are that are in files.
    members: [Vec<Member>; 2],
    parts: Vec<Place>,
    is_fired: bool,
}

/// A row in a window.
#[derive(Clone, Copy)]
struct Member {
    row: u32,
    is_paired: bool,
    /// Rows of one group have met; 0 has met nobody.
    group: u64,
}

/// When a window comes up next: at the first watermark over `at`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    at: i128,
    closes: bool,
    arrival: u64,
    start: i128,
    window: u64,
}

impl WindowJoin {
    /// An operator without rows. `hasher` is the one that makes the batches' key values.
    ///
    /// # Errors
    /// [`SpecError::Window`] when the spec is not that of a window join, [`SpecError::Overflow`]
    /// when rows are to be given up.
    pub fn new(spec: JoinSpec, hasher: KeyHasher, limits: Limits) -> Result<WindowJoin, SpecError> {
        let Some(window) = spec.windows() else {
            return Err(SpecError::Window("the spec has no window; an interval join does it"));
        };
        if limits.overflow == Overflow::Shed {
            return Err(SpecError::Overflow(NOT_PLAIN));
        }
        let rows = match window {
            Window::Hopping { size, slide, .. }
                if slide < size && limits.overflow == Overflow::Spill =>
            {
                Rows::shared()
            }
            _ => Rows::default(),
        };
        Ok(WindowJoin {
            spec,
            window,
            hasher,
            limits,
            rows,
            keys: HashMap::new(),
            windows: HashMap::new(),
            turns: BinaryHeap::new(),
            starts: BTreeMap::new(),
            next_window: 0,
            next_group: 0,
            member_bytes: 0,
            counters: Counters::default(),
            watermarks: [WATERMARK_START; 2],
            flushing: false,
            finished: false,
            shelf: Shelf::default(),
            failure: None,
        })
    }

    /// Takes events into their windows; what windows that have fired make of them comes out.
    ///
    /// # Errors
    /// As for [`IntervalJoin::on_batch`](crate::join::IntervalJoin::on_batch).
    pub fn on_batch<E: Emit>(&mut self, batch: &EventBatch, out: &mut E) -> Result<(), JoinError> {
        let side = batch.side();
        if batch.kind != BatchKind::NullKey {
            self.check_state(batch)?;
        }
        self.counters.sides[side.index()].rows += batch.len() as u64;
        if batch.kind == BatchKind::NullKey {
            self.counters.sides[side.index()].null_key += batch.len() as u64;
            if self.spec.kind().emits_unmatched(side) {
                self.counters.sides[side.index()].singles += batch.len() as u64;
                (0..batch.len())
                    .for_each(|index| single_without_key(batch, index, &self.hasher, out));
            }
            return Ok(());
        }
        for index in 0..batch.len() {
            if let Some(over) = self.judge(batch, index, out)? {
                self.counters.sides[side.index()].on_time += 1;
                self.take(batch, index, over, out)?;
            }
        }
        Ok(())
    }

    /// Applies both sides' watermarks (smaller ones than before are ignored).
    pub fn advance(&mut self, left: i64, right: i64) {
        self.watermarks[0] = self.watermarks[0].max(left);
        self.watermarks[1] = self.watermarks[1].max(right);
    }

    /// All input has ended: every window fires and closes in the following calls of
    /// [`work`](Self::work).
    pub fn finish(&mut self) {
        self.watermarks = [WATERMARK_END; 2];
        self.flushing = true;
        self.finished = true;
    }

    /// Fires and closes up to `budget` windows whose turn it is. Returns whether more is left.
    pub fn work<E: Emit>(&mut self, budget: usize, out: &mut E) -> bool {
        let watermark = self.watermark();
        for _ in 0..budget {
            if self.failure.is_some() {
                return false;
            }
            let Some(&Reverse(turn)) = self.turns.peek() else {
                self.flushing = false;
                return false;
            };
            if !self.flushing && !is_past(watermark, turn.at) {
                return false;
            }
            self.turns.pop();
            self.take_turn(turn, out);
        }
        true
    }

    /// No result with a smaller time will follow, once [`work`](Self::work) has returned `false`.
    pub fn output_watermark(&self) -> i64 {
        let watermark = self.watermark();
        if self.finished || watermark == WATERMARK_START {
            return watermark;
        }
        // A row comes out by itself as late as its window closes.
        let lone = i128::from(watermark)
            - i128::from(self.spec.lateness().allowed)
            - i128::from(self.window.span());
        let first = self.starts.first_key_value().map_or(lone, |(&since, _)| i128::from(since));
        lone.min(first).clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    /// What was joined, and how.
    pub fn spec(&self) -> &JoinSpec {
        &self.spec
    }

    /// The counts so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Bytes of rows and windows, about.
    pub fn state_bytes(&self) -> u64 {
        let keys = self.keys.capacity() * (size_of::<(OwnedKey, Vec<(i128, u64)>)>() + 32);
        let windows = self.windows.capacity() * size_of::<(u64, Live)>();
        let turns = self.turns.capacity() * size_of::<Reverse<Turn>>();
        let files = self.shelf.memory_bytes();
        (self.rows.bytes() + keys + windows + turns + self.member_bytes + files) as u64
    }

    /// Gives memory back that lists have grown to and no longer need, if it is over `keep_bytes`
    /// and most of them.
    pub fn trim(&mut self, keep_bytes: u64) {
        let (capacity, len) = (self.turns.capacity(), self.turns.len());
        let spare = (capacity - len) as u64 * size_of::<Reverse<Turn>>() as u64;
        if spare > keep_bytes && capacity > 4 * len {
            self.turns.shrink_to(2 * len);
            self.windows.shrink_to(2 * self.windows.len());
            self.keys.shrink_to(2 * self.keys.len());
        }
    }

    fn check_state(&mut self, batch: &EventBatch) -> Result<(), JoinError> {
        if let Some(error) = self.failure() {
            return Err(error);
        }
        if self.limits.overflow != Overflow::Refuse {
            self.make_room_for(batch)?;
        }
        check_rows(&self.limits, self.rows_in_memory(), batch)?;
        let Some(bytes_max) = self.limits.state_bytes_max else { return Ok(()) };
        let more = batch.row_bytes() as u64;
        if self.state_bytes() + more > bytes_max {
            self.trim(0);
        }
        let bytes = self.state_bytes() + more;
        if bytes > bytes_max { Err(JoinError::StateFull { bytes, bytes_max }) } else { Ok(()) }
    }

    fn watermark(&self) -> i64 {
        self.watermarks[0].min(self.watermarks[1])
    }

    /// Judges an event, and does what the policy says if all of its windows are over; else returns
    /// the time that their ends have to be after.
    fn judge<E: Emit>(
        &mut self,
        batch: &EventBatch,
        index: usize,
        out: &mut E,
    ) -> Result<Option<i64>, JoinError> {
        let (side, ts) = (batch.side(), batch.timestamps()[index]);
        let lateness = self.spec.lateness();
        let on_time_from = on_time_from(lateness, self.watermark(), batch, index);
        if self.window.last_end(ts) > i128::from(on_time_from) {
            return Ok(Some(on_time_from));
        }
        self.counters.sides[side.index()].late += 1;
        let event = (side, batch.event(index, &self.hasher));
        // All of its windows are over, so that it cannot be joined under any policy.
        take_late(lateness.policy, event, on_time_from.saturating_sub(ts), out)?;
        Ok(None)
    }

    /// Puts an event into its windows that are not over at `over`, nor by the merged watermark.
    fn take<E: Emit>(
        &mut self,
        batch: &EventBatch,
        index: usize,
        over: i64,
        out: &mut E,
    ) -> Result<(), JoinError> {
        let (side, ts) = (batch.side(), batch.timestamps()[index]);
        let watermark = self.watermark();
        let over = over.max(self.spec.lateness().threshold(watermark));
        let window_count = self.window.open_spans(ts, over).count();
        if window_count == 0 {
            // On time by its own source's clock, while all others have gone on.
            self.emit_unmatched(side, batch, index, out);
            return Ok(());
        }
        let stored = batch.stored_row(index);
        let key = KeyRef::of(batch.keys()[index], stored, self.hasher.kind());
        let Some(row) = self.rows.take(key.value, ts, stored, window_count as u32) else {
            let bytes = self.state_bytes();
            return Err(JoinError::Exhausted { bytes });
        };
        self.counters.sides[side.index()].stored += 1;
        let arrived = Arrived { side, ts, key, row };
        let fires_after = self.fires_after();
        for span in self.window.open_spans(ts, over) {
            let window = match self.window {
                Window::Session { .. } => self.join_session(span, arrived),
                Window::Hopping { .. } => self.join_window(span, arrived),
            };
            let is_due = |live: &Live| is_past(watermark, live.span.end + fires_after - 1);
            if self.windows.get(&window).is_some_and(is_due) {
                self.load(window)?;
                self.fire_for(window, side, out);
            }
        }
        Ok(())
    }

    fn take_turn<E: Emit>(&mut self, turn: Turn, out: &mut E) {
        let Some(live) = self.windows.get(&turn.window) else { return };
        let after = if turn.closes { self.closes_after() } else { self.fires_after() };
        let is_stale = (live.span.end + after - 1, live.span.start, live.arrival)
            != (turn.at, turn.start, turn.arrival);
        let is_fired = live.is_fired;
        if is_stale {
            return;
        }
        if let Err(error) = self.load(turn.window) {
            self.failure = Some(error);
            return;
        }
        if !is_fired {
            self.fire(turn.window, out);
        }
        if turn.closes {
            self.close(turn.window, out);
        }
    }

    /// Ticks between a window's end and the watermark at which its pairs come out.
    fn fires_after(&self) -> i128 {
        match (self.window, self.spec.lateness().clock) {
            // Until then it may grow, and its pairs would have the one time or the other by how
            // far other sources are.
            (Window::Session { .. }, LatenessClock::Own) => self.closes_after(),
            _ => 0,
        }
    }

    /// The same for its rows without a pair.
    fn closes_after(&self) -> i128 {
        i128::from(self.spec.lateness().allowed)
    }

    /// Emits the pairs of the row that came last into a window that is due.
    fn fire_for<E: Emit>(&mut self, window: u64, side: Side, out: &mut E) {
        let Some(live) = self.windows.get_mut(&window) else { return };
        if !live.is_fired {
            self.fire(window, out);
            return;
        }
        // All others have met.
        let (left, right) = live.members.split_at_mut(1);
        let (left, right) = (&mut left[0], &mut right[0]);
        let group = left.iter().chain(&*right).map(|member| member.group).max().unwrap_or(0);
        let last = |members: &[Member]| members.len().saturating_sub(1);
        let (left_from, right_from) = match side {
            Side::Left => (last(left), 0),
            Side::Right => (0, last(right)),
        };
        let ts = pair_time(live.span);
        let firing = Firing { spec: &self.spec, rows: &self.rows, hasher: &self.hasher, ts };
        firing.meet(&mut left[left_from..], &mut right[right_from..], &mut self.counters, out);
        for member in left[left_from..].iter_mut().chain(&mut right[right_from..]) {
            member.group = group;
        }
    }

    /// Emits all pairs of a window that are not out.
    fn fire<E: Emit>(&mut self, window: u64, out: &mut E) {
        let Some(live) = self.windows.get_mut(&window) else { return };
        live.is_fired = true;
        self.next_group += 1;
        let (left, right) = live.members.split_at_mut(1);
        let ts = pair_time(live.span);
        let firing = Firing { spec: &self.spec, rows: &self.rows, hasher: &self.hasher, ts };
        firing.meet(&mut left[0], &mut right[0], &mut self.counters, out);
        for member in live.members.iter_mut().flatten() {
            member.group = self.next_group;
        }
    }

    /// Emits the rows of a window that are in none of its pairs, and lets it go.
    fn close<E: Emit>(&mut self, window: u64, out: &mut E) {
        let Some(live) = self.remove(window, None) else { return };
        let [left, right] = &live.members;
        let of = |side: Side, members: &[Member]| -> Vec<(u64, Side, Member)> {
            members.iter().map(|member| (self.rows.arrival(member.row), side, *member)).collect()
        };
        let mut members = of(Side::Left, left);
        members.extend(of(Side::Right, right));
        members.sort_unstable_by_key(|(arrival, ..)| *arrival);
        for (_, side, member) in members {
            let counts = &mut self.counters.sides[side.index()];
            if !member.is_paired && self.spec.kind().emits_unmatched(side) {
                counts.singles += 1;
                out.single(side, self.rows.event(member.row, &self.hasher));
            }
            if self.rows.release(member.row) {
                counts.freed += 1;
            }
        }
    }

    /// A row that meets nobody comes out at once, where its side does.
    fn emit_unmatched<E: Emit>(
        &mut self,
        side: Side,
        batch: &EventBatch,
        index: usize,
        out: &mut E,
    ) {
        if self.spec.kind().emits_unmatched(side) {
            self.counters.sides[side.index()].singles += 1;
            out.single(side, batch.event(index, &self.hasher));
        }
    }
}
