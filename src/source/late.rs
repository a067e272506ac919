//! Lateness judged at the source: by the watermark of all events before, in the file's order.

use super::parse::Chunk;
use crate::event::{BatchKind, EventBatch, Side};
use crate::time::{BoundedDisorder, Lateness};

/// Finds the late events of chunks that come in order.
#[derive(Debug)]
pub(super) struct Judge {
    side: Side,
    lateness: Lateness,
    seen: BoundedDisorder,
    late: EventBatch,
    /// Of each event with a key of the chunk at hand: how late it is, or `None`.
    verdicts: Vec<Option<i64>>,
    null_lags: Vec<i64>,
    spare: EventBatch,
}

impl Judge {
    pub(super) fn new(side: Side, lateness: Lateness) -> Judge {
        let empty = || EventBatch::with_capacity(side, 0, 0);
        Judge {
            side,
            lateness,
            seen: BoundedDisorder::new(0),
            late: empty(),
            verdicts: Vec::new(),
            null_lags: Vec::new(),
            spare: empty(),
        }
    }

    /// The next chunk comes after these times.
    pub(super) fn start(&mut self, seen: BoundedDisorder) {
        self.seen = seen;
    }

    /// The times up to the end of the chunk that was looked at last.
    pub(super) fn seen(&self) -> BoundedDisorder {
        self.seen
    }

    /// Takes a chunk's largest time into account, where the order of its times does not matter.
    pub(super) fn observe(&mut self, max_ts: i64) {
        self.seen.observe(max_ts);
    }

    /// Takes the times of a chunk into account, in the order of the file, and judges none.
    pub(super) fn pass(&mut self, chunk: &Chunk) {
        self.late.reset(self.side, chunk.events.source, BatchKind::Late);
        self.judge(chunk);
    }

    /// Late events of the chunk that was split last.
    pub(super) fn late(&self) -> &EventBatch {
        &self.late
    }

    /// Takes the late events out of a chunk; returns how many they are. Events without a key meet
    /// nobody, so they are never late, but their times count, and how far they are behind is kept.
    pub(super) fn split(&mut self, chunk: &mut Chunk) -> u64 {
        self.late.reset(self.side, chunk.events.source, BatchKind::Late);
        self.late.arrived_ns = chunk.events.arrived_ns;
        let late_count = self.judge(chunk);
        self.null_lags.iter().for_each(|&lag| chunk.nulls.push_lag(lag));
        if late_count > 0 {
            self.take_late(&mut chunk.events);
        }
        late_count
    }

    /// Judges all events of a chunk, in the order of the file.
    fn judge(&mut self, chunk: &Chunk) -> u64 {
        self.verdicts.clear();
        self.null_lags.clear();
        let mut late_count = 0;
        let mut nulls = chunk.nulls.timestamps().iter().zip(&chunk.null_places).peekable();
        for (&ts, at) in chunk.events.timestamps().iter().zip(0..) {
            while let Some((&null_ts, _)) = nulls.next_if(|&(_, &place)| place <= at) {
                let lag = self.lag_of(null_ts);
                self.null_lags.push(lag.unwrap_or(0));
            }
            let lag = self.lag_of(ts);
            late_count += u64::from(lag.is_some());
            self.verdicts.push(lag);
        }
        for (&ts, _) in nulls {
            let lag = self.lag_of(ts);
            self.null_lags.push(lag.unwrap_or(0));
        }
        late_count
    }

    /// How late the next event is, if it is.
    fn lag_of(&mut self, ts: i64) -> Option<i64> {
        let threshold = self.lateness.threshold(self.seen.watermark());
        self.seen.observe(ts);
        (ts < threshold).then(|| threshold.saturating_sub(ts))
    }

    /// Leaves the on-time events in `events` and moves the late ones to `late`.
    fn take_late(&mut self, events: &mut EventBatch) {
        self.spare.reset(events.side(), events.source, events.kind);
        self.spare.arrived_ns = events.arrived_ns;
        for (index, verdict) in self.verdicts.iter().enumerate() {
            match verdict {
                Some(lag) => self.late.push_late_from(events, index, *lag),
                None => self.spare.push_from(events, index),
            }
        }
        std::mem::swap(events, &mut self.spare);
    }
}
