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
    late_nulls: EventBatch,
    /// The place of each on-time event of the chunk at hand, when some are late.
    verdicts: [Verdicts; 2],
    spare: EventBatch,
}

/// Of each event of a batch: how late it is, or `None`.
type Verdicts = Vec<Option<i64>>;

impl Judge {
    pub(super) fn new(side: Side, lateness: Lateness) -> Judge {
        let empty = || EventBatch::with_capacity(side, 0, 0);
        Judge {
            side,
            lateness,
            seen: BoundedDisorder::new(0),
            late: empty(),
            late_nulls: empty(),
            verdicts: [Vec::new(), Vec::new()],
            spare: empty(),
        }
    }

    /// A block starts; the largest time of everything before it is `max_before`.
    pub(super) fn start(&mut self, max_before: i64, disorder: i64) {
        self.seen = BoundedDisorder::new(disorder);
        self.seen.observe(max_before);
    }

    /// Late events of the chunk that was split last.
    pub(super) fn late(&self) -> &EventBatch {
        &self.late
    }

    /// Late events without a key of the chunk that was split last.
    pub(super) fn late_nulls(&self) -> &EventBatch {
        &self.late_nulls
    }

    /// Takes the late events out of a chunk; returns how many they are.
    pub(super) fn split(&mut self, chunk: &mut Chunk) -> u64 {
        self.late.reset(self.side, chunk.events.source, BatchKind::Late);
        self.late_nulls.reset(self.side, chunk.events.source, BatchKind::NullKey);
        let late_count = self.judge(chunk);
        if late_count > 0 {
            let [events, nulls] = &self.verdicts;
            part(&mut chunk.events, &mut self.late, &mut self.spare, events);
            part(&mut chunk.nulls, &mut self.late_nulls, &mut self.spare, nulls);
        }
        late_count
    }

    /// Judges all events of a chunk, in the order of the file.
    fn judge(&mut self, chunk: &Chunk) -> u64 {
        let mut late_count = 0;
        let [events, nulls] = &mut self.verdicts;
        events.clear();
        nulls.clear();
        let (lateness, seen) = (self.lateness, &mut self.seen);
        let mut verdict = |ts: i64| {
            let threshold = lateness.threshold(seen.watermark());
            seen.observe(ts);
            let lag = (ts < threshold).then(|| threshold.saturating_sub(ts));
            late_count += u64::from(lag.is_some());
            lag
        };
        let mut keyed = chunk.events.timestamps().iter();
        for (&ts, &place) in chunk.nulls.timestamps().iter().zip(&chunk.null_places) {
            while events.len() < place as usize {
                let Some(&ts) = keyed.next() else { break };
                events.push(verdict(ts));
            }
            nulls.push(verdict(ts));
        }
        events.extend(keyed.map(|&ts| verdict(ts)));
        late_count
    }
}

/// Leaves the on-time events in `batch` and moves the late ones to `late`.
fn part(
    batch: &mut EventBatch,
    late: &mut EventBatch,
    spare: &mut EventBatch,
    verdicts: &Verdicts,
) {
    late.arrived_ns = batch.arrived_ns;
    spare.reset(batch.side(), batch.source, batch.kind);
    spare.arrived_ns = batch.arrived_ns;
    for (index, verdict) in verdicts.iter().enumerate() {
        match verdict {
            Some(lag) => late.push_late_from(batch, index, *lag),
            None => spare.push_from(batch, index),
        }
    }
    std::mem::swap(batch, spare);
}
