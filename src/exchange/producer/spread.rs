//! A whole batch at once: the way of events that need no word of their own.

use std::ops::Range;

use crate::error::PushError;
use crate::event::EventBatch;
use crate::exchange::producer::{KEYED, PortId, Producer};
use crate::limits::BATCH_EVENTS_MAX;
use crate::time::{Lateness, LatenessClock};

impl Producer {
    /// Whether every event of a batch is on time, each at the watermark it meets.
    pub(super) fn is_on_time(&self, port: PortId, batch: &EventBatch) -> bool {
        let Lateness { clock, .. } = self.options.lateness;
        clock == LatenessClock::Merged
            || self.ports[port.0 as usize].is_on_time(batch.timestamps(), self.options.lateness)
    }

    /// Spreads a batch in which nothing is late over the shards, a piece at a time.
    pub(super) fn spread(
        &mut self,
        port: PortId,
        batch: &EventBatch,
        arrived_ns: u64,
    ) -> Result<(), PushError> {
        let Some(&max_ts) = batch.timestamps().iter().max() else { return Ok(()) };
        self.counters.events += batch.len() as u64;
        let port_of = &mut self.ports[port.0 as usize];
        if port_of.seen.is_limited() {
            batch.timestamps().iter().for_each(|&ts| port_of.observe(ts));
        } else {
            port_of.observe(max_ts);
        }
        self.unpublished = true;
        for first in (0..batch.len()).step_by(BATCH_EVENTS_MAX) {
            let piece = first..batch.len().min(first + BATCH_EVENTS_MAX);
            if self.links.len() == 1 {
                self.append(port, 0, arrived_ns, piece.len(), |open, part| {
                    open.extend_from(batch, first + part.start..first + part.end);
                })?;
                continue;
            }
            // Taken out, so that it can be read while the rest is written to.
            let mut sorter = std::mem::take(&mut self.sorter);
            let words = batch.words(piece.clone());
            sorter.sort(self.links.len(), &batch.keys()[piece]);
            let sent = (0..self.links.len()).try_for_each(|shard| {
                let places = sorter.places(shard);
                self.append(port, shard, arrived_ns, places.len(), |open, part| {
                    open.extend_picked(batch, (first, words), &places[part]);
                })
            });
            self.sorter = sorter;
            sent?;
        }
        Ok(())
    }

    /// Appends `count` on-time events to what is open for a shard, as many at a time as there is
    /// room for.
    #[inline]
    fn append(
        &mut self,
        port: PortId,
        shard: usize,
        arrived_ns: u64,
        count: usize,
        extend: impl Fn(&mut EventBatch, Range<usize>),
    ) -> Result<(), PushError> {
        let mut start = 0;
        while start < count {
            let batch_events = self.options.batch_events;
            let open = self.open_batch(port, KEYED, shard, arrived_ns);
            let end = count.min(start + batch_events - open.len());
            extend(open, start..end);
            self.send_if_full(port, KEYED, shard)?;
            start = end;
        }
        Ok(())
    }
}
