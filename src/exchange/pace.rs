//! Who may push now: keeps sources together in event time and state within its bound.
//!
//! Rows are freed by the watermark of the slowest source. Whatever another source pushes ahead of
//! it only piles up in state, so sources that are ahead wait: beyond a drift in event time *and* a
//! number of rows, so that neither a wide interval nor single rows make cores wait for each other.
//! When state is over half of its bound, the slowest source alone goes on; over three quarters a
//! small chunk at a time, and only after the shards have freed all that the chunk before allowed.
//! So state that does not fit then is state that the join needs.
//!
//! A stream does not wait for one that is silent: both may be written by one process, which cannot
//! go on with the silent one before the other is read. Nor does it wait for files then, as they may
//! wait for the silent one. It goes on until state is over half of its bound.
//!
//! The slowest source never waits for another source, and shards never wait for sources, so
//! something always moves. Everything here is advice that is as old as its loads; nothing but speed
//! and the size of state depends on it. So all orderings here are Relaxed.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use crossbeam::utils::CachePadded;

use crate::event::{EventBatch, Side};
use crate::exchange::hot::Surroundings;
use crate::exchange::sync::{Arc, AtomicBool, AtomicI64, AtomicU64, Ordering};
use crate::exchange::{Doorbell, Slowest, WatermarkSlot, Watermarks};
use crate::limits::{
    CHUNK_EVENTS_MAX, IN_FLIGHT_BYTES_BASE, IN_FLIGHT_BYTES_PER_SHARD, IN_FLIGHT_STATE_SHARE,
    ROWS_AHEAD_MAX,
};
use crate::time::{SourceState, WATERMARK_START};

/// What sources are held to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Ticks that a source may run ahead of the slowest one, of either side; `None`: any number.
    pub max_drift: Option<i64>,
    /// Bytes of state of all shards together.
    pub state_bytes_max: Option<u64>,
    /// Rows in the state of all shards together.
    pub state_rows_max: Option<u64>,
    /// Whether sources wait when state nears its bound.
    pub waits_when_full: bool,
    /// Whether the shards make room when state nears its bound, so that sources need not wait.
    pub makes_room: bool,
}

/// What producers, shards and feeds know of each other's progress. Clones share it.
#[derive(Clone)]
pub struct Pacer(Arc<Shared>);

struct Shared {
    pace: Pace,
    /// Of each stage.
    tables: Box<[Watermarks]>,
    /// Weight in flight that is always allowed.
    in_flight_free: i64,
    /// The most that is ever allowed.
    in_flight_max: i64,
    /// Weight of the batches that were sent and are not yet joined.
    in_flight: CachePadded<AtomicI64>,
    state: CachePadded<StateSize>,
    /// The part of each stage, where there are several.
    stages: Box<[CachePadded<StateSize>]>,
    /// A source was refused since the bells were last rung.
    refused: AtomicBool,
    /// Of the cores that may be waiting for a word from here.
    bells: Box<[Doorbell]>,
    /// Of callers that may be waiting, too.
    callers: Mutex<Vec<Doorbell>>,
    /// By stage and shard: the smaller of the watermarks whose rows it has freed.
    freed: Box<[CachePadded<AtomicI64>]>,
    /// Likewise: events that it has joined and pairs that it has found.
    work: Box<[CachePadded<[AtomicU64; 2]>]>,
    /// What shards do together when state is over its bound.
    call: Call,
}

/// Over all shards.
#[derive(Default)]
struct StateSize {
    bytes: AtomicI64,
    bytes_peak: AtomicI64,
    rows: AtomicI64,
    rows_peak: AtomicI64,
}

/// How many of a source's rows were pushed ahead of a time: kept by whoever pushes.
#[derive(Clone, Debug, Default)]
pub struct RowsAhead {
    /// The source's watermark before some rows were pushed, and how many they were; in order.
    pushed: VecDeque<(i64, u64)>,
    rows: u64,
}

/// State that is over this part of its bound, in eighths, makes all but the slowest source wait: an
/// index that grows needs half as much again as all of state for a while.
const SLOWEST_ONLY_EIGHTHS: i64 = 4;

/// State that is over this part makes the slowest source wait, too, until all is freed that can be.
const PRESSED_EIGHTHS: i64 = 6;

/// Events of a chunk in that case.
const CHUNK_EVENTS_PRESSED: usize = 128;

/// Events of a chunk when there is hardly any room left.
const CHUNK_EVENTS_MIN: usize = 32;

/// Below this bound an event of a chunk, chunks are smaller.
const STATE_BYTES_PER_CHUNK_EVENT: u64 = 32 << 10;

/// The same of a bound on rows.
const STATE_ROWS_PER_CHUNK_EVENT: u64 = 16;

/// What a byte in flight becomes in state, index and room to grow included: 2 to 3 where data is
/// dense, more where a bucket has few rows.
const STATE_PER_FLIGHT: i64 = 6;

/// What an event weighs beside its row: its columns in a batch.
const EVENT_BYTES: usize = 24;

impl Pacer {
    /// A pacer of the sources in `table` and of as many shards as `bells`, which are rung when
    /// whoever was refused should ask again.
    pub fn new(table: &Watermarks, bells: &[Doorbell], pace: Pace) -> Pacer {
        Pacer::of_stages(std::slice::from_ref(table), bells, pace)
    }

    /// A pacer of several joins, each of which hands its results to the next: each has a table of
    /// its own and a shard for each of `bells`. They share one bound, and their sources wait for
    /// each other. A shard's number is that of its stage times the shards of one, plus its own.
    pub fn of_stages(tables: &[Watermarks], bells: &[Doorbell], pace: Pace) -> Pacer {
        let shard_count = bells.len() * tables.len();
        let by_shards = IN_FLIGHT_BYTES_BASE + IN_FLIGHT_BYTES_PER_SHARD * shard_count;
        let by_shards = i64::try_from(by_shards).unwrap_or(i64::MAX);
        let is_held = pace.waits_when_full || pace.makes_room;
        let by_state = if is_held { in_flight_by_state(pace) } else { i64::MAX };
        let start = || CachePadded::new(AtomicI64::new(WATERMARK_START));
        Pacer(Arc::new(Shared {
            pace,
            tables: tables.into(),
            in_flight_free: by_shards.min(by_state),
            in_flight_max: by_state,
            in_flight: CachePadded::new(AtomicI64::new(0)),
            state: CachePadded::default(),
            stages: (1..=tables.len())
                .filter(|_| tables.len() > 1)
                .map(|_| Default::default())
                .collect(),
            refused: AtomicBool::new(false),
            bells: bells.into(),
            callers: Mutex::default(),
            freed: (0..shard_count).map(|_| start()).collect(),
            work: (0..shard_count).map(|_| Default::default()).collect(),
            call: Call::new(shard_count),
        }))
    }

    /// Whether a source may push its next rows. `ahead` are the rows that it has pushed, if that is
    /// known. Costs a shared read a source of the engine, and one a shard when something is wrong.
    pub fn admits(&self, slot: &WatermarkSlot, ahead: Option<&mut RowsAhead>) -> bool {
        let admitted = self.judge(slot, ahead);
        if !admitted {
            self.note_refusal();
        }
        admitted
    }

    fn note_refusal(&self) {
        // Relaxed: whoever sleeps after this asks again by itself now and then, too.
        self.0.refused.store(true, Ordering::Relaxed);
    }

    fn judge(&self, slot: &WatermarkSlot, ahead: Option<&mut RowsAhead>) -> bool {
        let Shared { pace, in_flight, in_flight_free, in_flight_max, .. } = &*self.0;
        // Relaxed, as all of this type: advice, which nothing else is read on the strength of.
        let in_flight = in_flight.load(Ordering::Relaxed);
        let SourceState::Active(own) = slot.current() else { return true };
        let Slowest { of_all, of_heard } = self.slowest();
        let slowest = of_all.unwrap_or(own);
        if self.is_over(SLOWEST_ONLY_EIGHTHS, in_flight) {
            let is_pressed = self.is_over(PRESSED_EIGHTHS, in_flight);
            return own <= slowest
                && in_flight <= *in_flight_free
                && (!is_pressed || (in_flight <= 0 && self.is_settled()));
        }
        let Some(max_drift) = pace.max_drift else {
            return in_flight <= *in_flight_max;
        };
        // A writer of several streams may have to go on with one before it can with another.
        let waits_for = if slot.is_live() { of_heard.unwrap_or(own) } else { slowest };
        if own.saturating_sub(waits_for) > max_drift
            && ahead.is_none_or(|ahead| ahead.beyond(slowest) > ROWS_AHEAD_MAX)
        {
            return false;
        }
        in_flight <= *in_flight_free
            || (in_flight <= *in_flight_max && own.saturating_sub(self.freed_to()) <= max_drift)
    }

    /// Bytes of state of all shards together that may not be exceeded.
    pub fn state_bytes_max(&self) -> Option<u64> {
        self.0.pace.state_bytes_max
    }

    /// Whether the shards make room themselves when state nears its bound.
    pub fn makes_room(&self) -> bool {
        self.0.pace.makes_room
    }

    /// Rows in the state of all shards together that may not be exceeded.
    pub fn state_rows_max(&self) -> Option<u64> {
        self.0.pace.state_rows_max
    }

    /// How many events a source should push at a time: fewer the less room there is in state, as
    /// nothing is freed before all of them are joined.
    pub fn chunk_events_max(&self) -> usize {
        let Pace { state_bytes_max, state_rows_max, waits_when_full, makes_room, .. } = self.0.pace;
        if !waits_when_full && !makes_room {
            return CHUNK_EVENTS_MAX;
        }
        let events_max = if !self.is_over(PRESSED_EIGHTHS, 0) {
            CHUNK_EVENTS_MAX
        } else if !self.is_over(PRESSED_EIGHTHS + 1, 0) {
            CHUNK_EVENTS_PRESSED
        } else {
            CHUNK_EVENTS_MIN
        };
        let by_bytes = state_bytes_max.map_or(u64::MAX, |most| most / STATE_BYTES_PER_CHUNK_EVENT);
        let by_rows = state_rows_max.map_or(u64::MAX, |most| most / STATE_ROWS_PER_CHUNK_EVENT);
        let by_bound = usize::try_from(by_bytes.min(by_rows)).unwrap_or(usize::MAX);
        events_max.min(by_bound).max(CHUNK_EVENTS_MIN)
    }

    /// Shards that share state's bound.
    pub fn shard_count(&self) -> usize {
        self.0.freed.len()
    }

    /// Most bytes of state that shards had at the same time.
    pub fn state_bytes_peak(&self) -> u64 {
        self.0.state.bytes_peak.load(Ordering::Relaxed).max(0) as u64
    }

    /// Most rows that were in the state of all shards at the same time.
    pub fn state_rows_peak(&self) -> u64 {
        self.0.state.rows_peak.load(Ordering::Relaxed).max(0) as u64
    }

    /// The most rows and bytes that the state of one stage had at the same time.
    pub fn stage_peaks(&self, stage: usize) -> (u64, u64) {
        let state = self.0.stages.get(stage).unwrap_or(&self.0.state);
        // Relaxed: figures for reports.
        let peak = |peak: &AtomicI64| peak.load(Ordering::Relaxed).max(0) as u64;
        (peak(&state.rows_peak), peak(&state.bytes_peak))
    }

    /// Bytes of the state of all shards.
    pub fn state_bytes(&self) -> u64 {
        self.0.state.bytes.load(Ordering::Relaxed).max(0) as u64
    }

    /// A batch was sent; by its [`weight`](Self::weight).
    pub(crate) fn sent(&self, weight: i64) {
        self.0.in_flight.fetch_add(weight, Ordering::Relaxed);
    }

    /// Batches of so much weight were joined.
    pub(crate) fn joined(&self, weight: i64) {
        let before = self.0.in_flight.fetch_sub(weight, Ordering::Relaxed);
        let now = before - weight;
        let free = self.0.in_flight_free;
        if (before > free && now <= free) || (before > 0 && now <= 0) {
            self.ring();
        }
    }

    /// What a batch weighs while it is in flight.
    #[inline]
    pub(crate) fn weight(batch: &EventBatch) -> i64 {
        (batch.row_bytes() + EVENT_BYTES * batch.len()) as i64
    }

    /// A shard's state changed by so many bytes; returns those of all shards.
    pub(crate) fn change_bytes(&self, shard: usize, change: i64) -> u64 {
        if let Some(StateSize { bytes, bytes_peak, .. }) = self.stage_of(shard) {
            changed(bytes, bytes_peak, change);
        }
        let StateSize { bytes, bytes_peak, .. } = &*self.0.state;
        changed(bytes, bytes_peak, change).max(0) as u64
    }

    /// A shard's state changed by so many rows; returns those of all shards.
    pub(crate) fn change_rows(&self, shard: usize, change: i64) -> u64 {
        if let Some(StateSize { rows, rows_peak, .. }) = self.stage_of(shard) {
            changed(rows, rows_peak, change);
        }
        let StateSize { rows, rows_peak, .. } = &*self.0.state;
        changed(rows, rows_peak, change).max(0) as u64
    }

    /// Rows in the state of all shards.
    pub(crate) fn state_rows(&self) -> u64 {
        self.0.state.rows.load(Ordering::Relaxed).max(0) as u64
    }

    /// What is counted of a shard's stage by itself.
    fn stage_of(&self, shard: usize) -> Option<&StateSize> {
        self.0.stages.get(shard / self.0.bells.len().max(1)).map(|stage| &**stage)
    }

    /// A shard has freed everything that these watermarks allow.
    pub(crate) fn freed(&self, shard: usize, watermarks: [i64; 2]) {
        let freed = watermarks[0].min(watermarks[1]);
        self.0.freed[shard].store(freed, Ordering::Relaxed);
        self.ring();
    }

    /// A shard has joined so many events so far and found so many pairs.
    pub(crate) fn note_work(&self, shard: usize, events: u64, pairs: u64) {
        // Relaxed: figures by which hot keys are found, of which nothing else follows.
        self.0.work[shard][0].store(events, Ordering::Relaxed);
        self.0.work[shard][1].store(pairs, Ordering::Relaxed);
    }

    /// What hot keys are found by, beside samples.
    pub(super) fn surroundings(&self) -> Surroundings {
        // Relaxed: see `note_work`.
        let sum = |of: usize| self.0.work.iter().map(|work| work[of].load(Ordering::Relaxed)).sum();
        let bytes = (self.state_bytes(), self.state_bytes_max());
        let rows = (self.state_rows(), self.state_rows_max());
        Surroundings { events: sum(0), pairs: sum(1), state: [bytes, rows] }
    }

    /// Calls those who were refused.
    fn ring(&self) {
        // Relaxed: see `admits`. Loaded first, because it is seldom set.
        if self.0.refused.load(Ordering::Relaxed) && self.0.refused.swap(false, Ordering::Relaxed) {
            self.0.bells.iter().for_each(Doorbell::ring);
            let callers = self.0.callers.lock().unwrap_or_else(PoisonError::into_inner);
            callers.iter().for_each(Doorbell::ring);
        }
    }

    /// Whether state, with what is on its way to it, is over so many eighths of its bound.
    /// Only where sources are to wait for it.
    fn is_over(&self, eighths: i64, in_flight: i64) -> bool {
        let nears = || self.nears(eighths, in_flight) || self.nears_in_rows(eighths, in_flight);
        self.0.pace.waits_when_full && !self.0.pace.makes_room && nears()
    }

    fn nears(&self, eighths: i64, in_flight: i64) -> bool {
        let Shared { pace, state, .. } = &*self.0;
        let Some(bytes_max) = pace.state_bytes_max else { return false };
        // Relaxed: advice, as all of this type.
        let bytes = state.bytes.load(Ordering::Relaxed);
        let expected = bytes.saturating_add(in_flight.saturating_mul(STATE_PER_FLIGHT));
        expected >= signed(bytes_max) / 8 * eighths
    }

    fn nears_in_rows(&self, eighths: i64, in_flight: i64) -> bool {
        let Shared { pace, state, .. } = &*self.0;
        let Some(rows_max) = pace.state_rows_max else { return false };
        // Relaxed: advice, as all of this type.
        let rows = state.rows.load(Ordering::Relaxed);
        // At the most so many rows are under way.
        let expected = rows.saturating_add(in_flight / EVENT_BYTES as i64);
        // In wide arithmetic: a small bound has no eighths.
        i128::from(expected) * 8 >= i128::from(rows_max) * i128::from(eighths)
    }

    /// The smallest watermark of any source; see [`Watermarks::slowest`].
    fn slowest(&self) -> Slowest {
        Watermarks::slowest(&self.0.tables)
    }

    /// Whether every shard has freed all that the watermarks of this moment allow.
    fn is_settled(&self) -> bool {
        let shards = self.0.freed.chunks(self.0.bells.len().max(1));
        self.0.tables.iter().zip(shards).all(|(table, shards)| {
            let merged = Side::BOTH.map(|side| table.side(side));
            freed_to(shards) >= merged[0].min(merged[1])
        })
    }

    /// The watermark whose rows every shard has freed.
    pub(super) fn freed_to(&self) -> i64 {
        freed_to(&self.0.freed)
    }
}

/// The most weight that bounds on state let be in flight.
fn in_flight_by_state(pace: Pace) -> i64 {
    let share = |most: u64| signed(most) / IN_FLIGHT_STATE_SHARE;
    let by_bytes = pace.state_bytes_max.map_or(i64::MAX, share);
    let by_rows = pace.state_rows_max.map_or(i64::MAX, share);
    by_bytes.min(by_rows.saturating_mul(EVENT_BYTES as i64))
}

fn freed_to(shards: &[CachePadded<AtomicI64>]) -> i64 {
    // Relaxed: advice, as all of this module.
    let freed = shards.iter().map(|freed| freed.load(Ordering::Relaxed));
    freed.min().unwrap_or(i64::MAX)
}

impl RowsAhead {
    /// So many rows are pushed while the source's watermark is `watermark`.
    pub fn push(&mut self, watermark: i64, rows: u64) {
        match self.pushed.back_mut() {
            Some(last) if last.0 == watermark => last.1 += rows,
            _ => self.pushed.push_back((watermark, rows)),
        }
        self.rows += rows;
    }

    /// How many rows were pushed when the source's watermark was beyond `time`. Never asked for an
    /// earlier time afterwards.
    pub fn beyond(&mut self, time: i64) -> u64 {
        while let Some(&(watermark, rows)) = self.pushed.front()
            && watermark <= time
        {
            self.pushed.pop_front();
            self.rows -= rows;
        }
        self.rows
    }
}

fn changed(value: &AtomicI64, peak: &AtomicI64, change: i64) -> i64 {
    // Relaxed: sums and their peaks, of which nothing else is read on the strength.
    let now = value.fetch_add(change, Ordering::Relaxed) + change;
    if change > 0 && now > peak.load(Ordering::Relaxed) {
        peak.fetch_max(now, Ordering::Relaxed);
    }
    now
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl fmt::Debug for Pacer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pacer").field("pace", &self.0.pace).finish_non_exhaustive()
    }
}

mod call;
mod room;
#[cfg(all(test, not(loom)))]
mod tests;

use call::Call;
pub(crate) use call::{Ask, KeptTooMuch};
pub use room::{Room, WhenFull};
