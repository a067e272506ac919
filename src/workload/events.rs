//! Events made beforehand, in columns, so that a measured run reads memory and nothing else.

use std::ops::Range;

use crate::event::{EventBatch, Key, KeyHasher, Side, prefetch};
use crate::time::{Timestamp, WATERMARK_START};
use crate::workload::random::mix;
use crate::workload::{Arrivals, DISORDER_MS, Workload};

/// The events of one side in arrival order: 20 bytes an event.
#[derive(Clone, Debug, Default)]
pub struct SideEvents {
    /// The join keys.
    pub keys: Vec<u64>,
    /// The times, in the workload's ticks since the epoch.
    pub ts: Vec<i64>,
    /// The events' numbers within their side.
    pub ids: Vec<u32>,
    /// Bytes of payload of each event beside its number.
    pub payload_bytes: u32,
}

impl SideEvents {
    /// Makes the first `event_count` events of `side`; about 50 ns an event.
    pub fn new(workload: Workload, side: Side, seed: u64, event_count: u32) -> SideEvents {
        let capacity = event_count as usize;
        let mut events = SideEvents {
            keys: Vec::with_capacity(capacity),
            ts: Vec::with_capacity(capacity),
            ids: Vec::with_capacity(capacity),
            payload_bytes: workload.payload_bytes,
        };
        for event in Arrivals::new(workload, side, seed, u64::from(event_count)) {
            events.keys.push(event.key);
            events.ts.push(event.ts);
            // Cannot truncate: ids are under `event_count`.
            events.ids.push(event.id as u32);
        }
        events
    }

    /// How many events there are.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// A number that depends on every event and on their order, to compare generators by.
    pub fn digest(&self) -> u64 {
        let rows = self.keys.iter().zip(&self.ts).zip(&self.ids);
        rows.fold(0, |digest, ((&key, &ts), &id)| {
            mix(mix(mix(digest ^ key) ^ ts as u64) ^ u64::from(id))
        })
    }

    /// Fills `batch` with the events of `range`; a row is the id, 8 bytes little endian, and the
    /// payload, if there is any.
    #[inline]
    pub fn fill(
        &self,
        batch: &mut EventBatch,
        hasher: &KeyHasher,
        side: Side,
        range: Range<usize>,
    ) {
        batch.reset(side, 0, Default::default());
        if self.payload_bytes > 0 {
            return self.fill_wide(batch, hasher, range);
        }
        let (keys, ts) = (&self.keys[range.clone()], &self.ts[range.clone()]);
        let rows = self.ids[range].iter().map(|&id| u64::from(id).to_le_bytes());
        let pushed = batch.push_ints(hasher, keys, ts, rows);
        // Integer keys and 8-byte rows in batches of bounded length: nothing to refuse.
        debug_assert!(pushed.is_ok());
    }

    /// Asks for the events from `start` on, the first of them: where a core reads every other
    /// batch, its processor does not see which is next.
    #[inline]
    pub fn prefetch(&self, start: usize) {
        for event in (start..self.len().min(start + EVENTS_AHEAD)).step_by(EVENTS_A_LINE) {
            prefetch(&raw const self.keys[event]);
            prefetch(&raw const self.ts[event]);
            prefetch(&raw const self.ids[event]);
        }
    }

    /// Rows of any length, event by event.
    fn fill_wide(&self, batch: &mut EventBatch, hasher: &KeyHasher, range: Range<usize>) {
        let mut row = self.blank_row();
        for i in range {
            let ts = Timestamp::new(self.ts[i]).unwrap_or(Timestamp::MIN);
            let row = self.row(i, &mut row);
            let pushed = batch.push(hasher, Key::Int(self.keys[i]), ts, row);
            debug_assert!(pushed.is_ok(), "batches have room for 4 GiB");
        }
    }

    /// What [`row`](Self::row) writes ids into.
    pub fn blank_row(&self) -> Vec<u8> {
        vec![b'.'; ID_BYTES + self.payload_bytes as usize]
    }

    /// The row of event `i`: its id, and the payload of `blank`, which comes from
    /// [`blank_row`](Self::blank_row).
    #[inline]
    pub fn row<'a>(&self, i: usize, blank: &'a mut [u8]) -> &'a [u8] {
        if let Some(id) = blank.first_chunk_mut() {
            *id = u64::from(self.ids[i]).to_le_bytes();
        }
        blank
    }
}

/// Events that are asked for ahead: what follows them comes by itself.
const EVENTS_AHEAD: usize = 64;
/// Of these, so many have their key in one cache line.
const EVENTS_A_LINE: usize = 8;

/// Bytes of an id in a row.
const ID_BYTES: usize = size_of::<u64>();

/// The events of both sides.
#[derive(Clone, Debug)]
pub struct Events {
    /// What they are.
    pub workload: Workload,
    /// What they were made from.
    pub seed: u64,
    /// By [`Side::index`].
    pub sides: [SideEvents; 2],
}

impl Events {
    /// Makes `events_per_side` events of each side.
    pub fn new(workload: Workload, seed: u64, events_per_side: u32) -> Events {
        let sides = Side::BOTH.map(|side| SideEvents::new(workload, side, seed, events_per_side));
        Events { workload, seed, sides }
    }

    /// The events of one side.
    #[inline]
    pub fn side(&self, side: Side) -> &SideEvents {
        &self.sides[side.index()]
    }

    /// The first so many of each side; by [`Side::index`].
    pub(in crate::workload) fn first(&self, counts: [usize; 2]) -> Events {
        let first = |side: Side| {
            let (of, count) = (self.side(side), counts[side.index()].min(self.side(side).len()));
            SideEvents {
                keys: of.keys[..count].to_vec(),
                ts: of.ts[..count].to_vec(),
                ids: of.ids[..count].to_vec(),
                payload_bytes: of.payload_bytes,
            }
        };
        Events { workload: self.workload, seed: self.seed, sides: Side::BOTH.map(first) }
    }

    /// Events of both sides together.
    pub fn len(&self) -> usize {
        self.sides.iter().map(SideEvents::len).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The steps of a run: batches of `batch` events, the sides in turn, left first.
    pub fn steps(&self, batch: usize) -> Steps<'_> {
        let batch = batch.max(1);
        Steps { events: self, batch, start: 0, side: Side::Left }
    }
}

/// The batches of a run, in the order in which they are fed; see [`Events::steps`].
#[derive(Clone, Debug)]
pub struct Steps<'a> {
    events: &'a Events,
    batch: usize,
    start: usize,
    side: Side,
}

impl Iterator for Steps<'_> {
    type Item = (Side, Range<usize>);

    #[inline]
    fn next(&mut self) -> Option<(Side, Range<usize>)> {
        let (side, start) = (self.side, self.start);
        let len = self.events.side(side).len();
        if start >= len {
            return None;
        }
        if side == Side::Right {
            self.start += self.batch;
        }
        self.side = side.other();
        Some((side, start..(start + self.batch).min(len)))
    }
}

/// Both sides' watermarks: the largest time seen, less the disorder.
#[derive(Clone, Copy, Debug)]
pub struct Watermarks {
    max_ts: [i64; 2],
    disorder: i64,
}

impl Default for Watermarks {
    /// Those of the named workloads.
    fn default() -> Watermarks {
        Watermarks { max_ts: [WATERMARK_START; 2], disorder: DISORDER_MS }
    }
}

impl Watermarks {
    /// Those of a workload, before its first event.
    pub fn of(workload: &Workload) -> Watermarks {
        Watermarks { disorder: workload.disorder_ticks(), ..Watermarks::default() }
    }

    /// Takes note of a batch's times.
    #[inline]
    pub fn observe(&mut self, side: Side, times: &[i64]) {
        let seen = &mut self.max_ts[side.index()];
        *seen = times.iter().copied().fold(*seen, i64::max);
    }

    /// The watermark of one side; `i64::MIN` before its first event.
    #[inline]
    pub fn side(&self, side: Side) -> i64 {
        self.max_ts[side.index()].saturating_sub(self.disorder)
    }

    /// The smaller of both.
    #[inline]
    pub fn merged(&self) -> i64 {
        self.side(Side::Left).min(self.side(Side::Right))
    }
}
