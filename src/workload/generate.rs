//! Makes the events of one side, in arrival order, with bounded memory.

use std::sync::Arc;

use crate::event::Side;
use crate::workload::late::LateDraw;
use crate::workload::random::{Zipf, ZipfShape, below, rand};
use crate::workload::{DRAW_KEY, KeyRule, START_MS, Workload};

/// One event of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadEvent {
    /// The join key.
    pub key: u64,
    /// The event's time, in the workload's ticks since the epoch: milliseconds, as a rule.
    pub ts: i64,
    /// The event's number within its side, which is its payload.
    pub id: u64,
}

/// The events of one side in arrival order: an iterator of constant cost.
///
/// Event `i` arrives a bounded time after its turn, and turns only go forward. So a ring with one
/// slot for each millisecond of that bound sorts them exactly: an event drops into the slot of its
/// arrival, and a slot is emptied once the turn of the next event has passed it. Within a slot
/// events lie in the order of their numbers, which is the tie-break that workloads define.
///
/// It holds the events that have had their turn and not arrived yet: 65 seconds' worth at most of
/// the named workloads.
pub struct Arrivals {
    maker: Maker,
    event_count: u64,
    /// The next event to drop into the ring.
    next: u64,
    /// The millisecond whose slot is being emptied, from the start of the workload.
    now_ms: u64,
    /// The place of the next event in that slot.
    cursor: usize,
    /// Events in the ring that have not come out yet.
    pending: u64,
    slots: Vec<Vec<WorkloadEvent>>,
    /// One bit a slot: whether it holds events.
    occupied: Vec<u64>,
    /// The largest time that has come out, where there are late events.
    max_ts: i64,
}

impl Arrivals {
    /// The first `event_count` events of `side`.
    pub fn new(workload: Workload, side: Side, seed: u64, event_count: u64) -> Arrivals {
        let slot_count = workload.arrival_span_ms(side).next_power_of_two() as usize;
        Arrivals {
            maker: Maker::new(workload, side, seed, event_count),
            event_count,
            next: 0,
            now_ms: 0,
            cursor: 0,
            pending: 0,
            slots: vec![Vec::new(); slot_count],
            occupied: vec![0; slot_count.div_ceil(64)],
            max_ts: i64::MIN,
        }
    }

    /// The workload.
    pub fn workload(&self) -> &Workload {
        &self.maker.workload
    }

    fn turn_ms(&self, i: u64) -> u64 {
        self.maker.workload.turn_ms(i)
    }

    /// Drops every event into the ring whose turn has come.
    fn fill(&mut self) {
        let mask = self.slots.len() - 1;
        while self.next < self.event_count && self.turn_ms(self.next) <= self.now_ms {
            let (event, arrival_ms) = self.maker.event(self.next);
            self.drop_into(arrival_ms as usize & mask, event);
            self.next += 1;
            self.pending += 1;
        }
    }

    #[inline]
    fn drop_into(&mut self, slot: usize, event: WorkloadEvent) {
        self.slots[slot].push(event);
        self.occupied[slot / 64] |= 1 << (slot % 64);
    }

    /// Whether an event that arrives is one that is to be late and is not yet: then it goes to a
    /// later slot. Those on time do not wait, so the watermark passes it in the end.
    fn puts_off(&mut self, event: WorkloadEvent) -> bool {
        let workload = &self.maker.workload;
        if workload.late_ppm == 0 {
            return false;
        }
        let trail = workload.disorder_ticks();
        let arrival = START_MS.saturating_add_unsigned(self.now_ms);
        let happened = event.ts.div_euclid(workload.ticks_per_ms);
        let is_chosen = arrival - happened >= workload.late_by_min_ms() as i64;
        if is_chosen && event.ts >= self.max_ts.saturating_sub(trail) {
            // Less than the ring is long.
            let slot = (self.now_ms + workload.gap_ms()) as usize & (self.slots.len() - 1);
            self.drop_into(slot, event);
            return true;
        }
        self.max_ts = self.max_ts.max(event.ts);
        false
    }

    /// Moves on to the next millisecond at which an event arrives or has its turn. There is one.
    fn advance(&mut self) {
        let slot = self.now_ms as usize & (self.slots.len() - 1);
        self.slots[slot].clear();
        self.occupied[slot / 64] &= !(1 << (slot % 64));
        self.cursor = 0;
        let arrival_ms = if self.pending == 0 { u64::MAX } else { self.next_arrival_ms(slot) };
        let more = self.next < self.event_count;
        let turn_ms = if more { self.turn_ms(self.next) } else { u64::MAX };
        self.now_ms = arrival_ms.min(turn_ms);
    }

    /// When the first event in the ring arrives; `slot` is now's, and it is empty.
    fn next_arrival_ms(&self, slot: usize) -> u64 {
        // Words are looked at whole: the rest of now's, then all others in turn, and now's again.
        let word_count = self.occupied.len();
        let mut word = slot / 64;
        let mut bits = self.occupied[word] & (u64::MAX << (slot % 64));
        while bits == 0 {
            word = (word + 1) % word_count;
            bits = self.occupied[word];
        }
        let found = word * 64 + bits.trailing_zeros() as usize;
        self.now_ms + (found.wrapping_sub(slot) & (self.slots.len() - 1)) as u64
    }
}

impl Iterator for Arrivals {
    type Item = WorkloadEvent;

    #[inline]
    fn next(&mut self) -> Option<WorkloadEvent> {
        loop {
            if self.cursor == 0 {
                self.fill();
            }
            let slot = self.now_ms as usize & (self.slots.len() - 1);
            if let Some(&event) = self.slots[slot].get(self.cursor) {
                self.cursor += 1;
                if self.puts_off(event) {
                    continue;
                }
                self.pending -= 1;
                return Some(event);
            }
            if self.pending == 0 && self.next == self.event_count {
                return None;
            }
            self.advance();
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.event_count - self.next + self.pending) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Arrivals {}

/// Makes the events of one side, in the order of their numbers.
struct Maker {
    workload: Workload,
    side: Side,
    side_seed: u64,
    zipf: Option<Arc<Zipf>>,
    late: Option<LateDraw>,
}

/// Of the four random numbers of event `i`: which draws by how much it arrives after its time.
const DRAW_DISORDER: u64 = 1;

impl Maker {
    fn new(workload: Workload, side: Side, seed: u64, event_count: u64) -> Maker {
        let zipf = match workload.keys {
            KeyRule::Zipf(shape) => Some(Zipf::shared(shape)),
            _ => None,
        };
        let late = LateDraw::new(&workload, side, seed, event_count);
        Maker { workload, side, side_seed: Workload::side_seed(seed, side), zipf, late }
    }

    /// Event `i`, and when it arrives: milliseconds from [`START_MS`]. To be asked for in the order
    /// of numbers.
    #[inline]
    fn event(&mut self, i: u64) -> (WorkloadEvent, u64) {
        let workload = &self.workload;
        let draw = |which| rand(self.side_seed, i.wrapping_mul(4).wrapping_add(which));
        let key = match (workload.keys, &self.zipf) {
            (KeyRule::Unique, _) => i,
            (KeyRule::Zipf(_), Some(zipf)) => zipf.key(draw(DRAW_KEY)),
            (KeyRule::Uniform(count) | KeyRule::Zipf(ZipfShape { keys: count, .. }), _) => {
                below(draw(DRAW_KEY), count)
            }
        };
        let offset_ms = workload.offset_ms(self.side, self.side_seed, i);
        let is_late = self.late.as_mut().is_some_and(|late| late.is_late(i, offset_ms));
        let late_by = if is_late {
            let least = workload.late_by_min_ms();
            least + below(draw(DRAW_DISORDER), least)
        } else {
            below(draw(DRAW_DISORDER), workload.disorder_ms)
        };
        (WorkloadEvent { key, ts: self.ts(i, offset_ms), id: i }, offset_ms + late_by)
    }

    /// In ticks. Those below a millisecond tell apart events of either side that share one.
    #[inline]
    fn ts(&self, i: u64, offset_ms: u64) -> i64 {
        // Offsets stay far below 2^62: event counts are bounded by memory and by ids in columns.
        let ms = START_MS.saturating_add_unsigned(offset_ms);
        match self.workload.ticks_per_ms {
            1 => ms,
            ticks => {
                let own = (2 * i + self.side.index() as u64) % ticks as u64;
                ms.saturating_mul(ticks).saturating_add_unsigned(own)
            }
        }
    }
}
