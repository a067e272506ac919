//! A source as one producer knows it: its clock, what it has published, its open batches.

use crate::event::EventBatch;
use crate::exchange::{Promise, WatermarkSlot};
use crate::time::{BoundedDisorder, Lateness, WATERMARK_START};

/// One source as a producer knows it.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) slot: WatermarkSlot,
    pub(super) promise: Promise,
    pub(super) seen: BoundedDisorder,
    /// The largest time of all, whatever a limit on jumps makes of it.
    pub(super) max_ts: i64,
    /// The watermark so far: what `seen` says, or what was promised.
    pub(super) watermark: i64,
    pub(super) published: i64,
    pub(super) regressed: u64,
    /// Jumps that the table was told of.
    pub(super) jumps_published: u64,
    pub(super) state: PortState,
    /// What the table was told last.
    pub(super) state_published: PortState,
    /// One place for each kind and shard.
    pub(super) open: Vec<Open>,
}

/// Whether a port holds its side's watermark back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortState {
    Active,
    Idle,
    Finished,
}

#[derive(Debug, Default)]
pub(super) struct Open {
    pub(super) batch: Option<Box<EventBatch>>,
    /// Whether `Producer::open` names it.
    pub(super) listed: bool,
}

impl Port {
    pub(super) fn new(slot: WatermarkSlot, promise: Promise, open_count: usize) -> Port {
        let disorder = match promise {
            Promise::Disorder(disorder) => disorder,
            Promise::Explicit => 0,
        };
        Port {
            slot,
            promise,
            seen: BoundedDisorder::new(disorder),
            max_ts: i64::MIN,
            watermark: WATERMARK_START,
            published: WATERMARK_START,
            regressed: 0,
            jumps_published: 0,
            state: PortState::Active,
            state_published: PortState::Active,
            open: (0..open_count).map(|_| Open::default()).collect(),
        }
    }

    #[inline]
    pub(super) fn observe(&mut self, ts: i64) {
        self.max_ts = self.max_ts.max(ts);
        self.seen.observe(ts);
        if matches!(self.promise, Promise::Disorder(_)) {
            self.watermark = self.watermark.max(self.seen.watermark());
            self.wake();
        }
    }

    /// Whether each of these times, in their order, is on time at the watermark that it meets.
    pub(super) fn is_on_time(&self, timestamps: &[i64], lateness: Lateness) -> bool {
        let mut seen = self.seen;
        let mut watermark = self.watermark;
        timestamps.iter().all(|&ts| {
            let is_on_time = ts >= lateness.threshold(watermark);
            if matches!(self.promise, Promise::Disorder(_)) {
                seen.observe(ts);
                watermark = watermark.max(seen.watermark());
            }
            is_on_time
        })
    }

    #[inline]
    pub(super) fn wake(&mut self) {
        if !self.is_finished() {
            self.state = PortState::Active;
        }
    }

    #[inline]
    pub(super) fn is_finished(&self) -> bool {
        self.state == PortState::Finished
    }

    /// Stores what the port has to say. All its batches must be in their lanes.
    pub(super) fn publish(&mut self) {
        self.slot.count_regressed(std::mem::take(&mut self.regressed));
        let jumps = self.seen.jumps();
        self.slot.count_jumped(jumps - std::mem::replace(&mut self.jumps_published, jumps));
        let wakes = self.state == PortState::Active && self.state_published != PortState::Active;
        if self.watermark > self.published || wakes {
            self.published = self.watermark;
            self.slot.advance(self.watermark);
        }
        if self.state != self.state_published {
            self.state_published = self.state;
            match self.state {
                PortState::Active => {}
                PortState::Idle => self.slot.idle(),
                PortState::Finished => self.slot.finish(),
            }
        }
    }
}
