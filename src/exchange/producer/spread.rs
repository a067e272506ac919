//! A whole batch at once: the way of events that need no word of their own.

use std::ops::Range;

use crate::error::PushError;
use crate::event::{BatchKind, EventBatch};
use crate::exchange::deal::Columns;
use crate::exchange::partition::{Sorter, shard_of};
use crate::exchange::producer::{Flow, KEYED, LATE, NULL_KEY, PortId, Producer, Target};
use crate::limits::{BATCH_EVENTS_MAX, BATCH_ROW_BYTES_TARGET};
use crate::time::{Lateness, LatenessClock};

impl Producer {
    /// Pushes a batch of one source: its events are judged (under [`LatenessClock::Own`]) and
    /// spread over the shards. The batch's own `source` and side are not looked at; its
    /// `arrived_ns` counts as the events' arrival unless it is 0.
    ///
    /// # Errors
    /// [`PushError`]; nothing was taken unless the error is [`PushError::Stopped`].
    pub fn push_batch(&mut self, port: PortId, batch: &EventBatch) -> Result<Flow, PushError> {
        self.admit(port)?;
        let arrived_ns = if batch.arrived_ns == 0 { self.now_ns } else { batch.arrived_ns };
        // Batches of huge rows go event by event, so that what is open stays near its target.
        let is_plain = batch.kind == BatchKind::Keyed && batch.row_bytes() < BATCH_ROW_BYTES_TARGET;
        if is_plain && self.is_on_time(port, batch) {
            self.spread(port, batch, arrived_ns)?;
            return Ok(self.flow());
        }
        let null_key = batch.kind == BatchKind::NullKey;
        let judged_kind = if null_key { NULL_KEY } else { LATE };
        for (index, (&value, &ts)) in batch.keys().iter().zip(batch.timestamps()).enumerate() {
            if self.hot.is_due() {
                self.look(port, value)?;
            }
            let judged = match batch.lags().get(index) {
                Some(&lag) => (judged_kind, lag),
                None => self.judge(port, null_key, ts),
            };
            let (to, is_copied) = self.route(port, judged, value, ts);
            self.push_one(port, (to, is_copied), batch, index, arrived_ns)?;
            self.count(port, ts, to.kind == LATE);
        }
        Ok(self.flow())
    }

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
            self.look_for(port, &batch.keys()[piece.clone()])?;
            if self.links.len() == 1 {
                self.append(port, 0, arrived_ns, piece.len(), |open, part| {
                    open.extend_from(batch, first + part.start..first + part.end);
                })?;
                continue;
            }
            let (words, keys) = (batch.words(piece.clone()), &batch.keys()[piece.clone()]);
            if let Some(words) = words {
                let columns = Columns { keys, ts: &batch.timestamps()[piece], words };
                if self.deal(port, columns, arrived_ns)? {
                    continue;
                }
            }
            // Taken out, so that it can be read while the rest is written to.
            let mut sorter = std::mem::take(&mut self.sorter);
            if self.hot.is_any() {
                self.sort_hot(port, &mut sorter, batch, first, keys);
            } else {
                sorter.sort(self.links.len(), keys);
            }
            let sent = (0..self.links.len()).try_for_each(|shard| {
                let places = sorter.places(shard);
                self.append(port, shard, arrived_ns, places.len(), |open, part| {
                    open.extend_picked(batch, (first, words), &places[part]);
                })
            });
            self.sorter = sorter;
            sent.and_then(|()| self.push_taken(port, batch, first, arrived_ns))?;
        }
        Ok(())
    }

    /// Spreads a piece by dealing it out, if that can be done. Returns whether it was.
    fn deal(
        &mut self,
        port: PortId,
        columns: Columns<'_>,
        arrived_ns: u64,
    ) -> Result<bool, PushError> {
        if self.hot.is_any() {
            return Ok(false);
        }
        // Taken out, as the sorter is.
        let mut dealt = self.dealt.take().unwrap_or_default();
        let is_dealt = dealt.deal(self.links.len(), columns);
        let sent = (0..self.links.len()).filter(|_| is_dealt).try_for_each(|shard| {
            let own = dealt.shard(shard);
            self.append(port, shard, arrived_ns, own.keys.len(), |open, part| {
                let ts = &own.ts[part.clone()];
                open.extend_words(&own.keys[part.clone()], ts, &own.words[part]);
            })
        });
        self.dealt = Some(dealt);
        sent.map(|()| is_dealt)
    }

    /// As [`Sorter::sort`] where keys are split: events of theirs that have a word of their own are
    /// left out.
    fn sort_hot(
        &mut self,
        port: PortId,
        sorter: &mut Sorter,
        batch: &EventBatch,
        first: usize,
        keys: &[u64],
    ) {
        let shard_count = self.links.len();
        let times = &batch.timestamps()[first..];
        sorter.sort_by(shard_count, keys.len(), |place| {
            if !self.hot.may_hold(keys[place]) {
                return shard_of(keys[place], shard_count);
            }
            let (to, is_copied) = self.target(port, keys[place], times[place]);
            if to.kind == KEYED {
                return to.shard;
            }
            // Cannot truncate: places of a piece.
            self.taken.push((place as u8, to, is_copied));
            shard_count
        });
    }

    /// Pushes what [`sort_hot`](Self::sort_hot) left out.
    fn push_taken(
        &mut self,
        port: PortId,
        batch: &EventBatch,
        first: usize,
        arrived_ns: u64,
    ) -> Result<(), PushError> {
        let mut taken = std::mem::take(&mut self.taken);
        let mut sent = Ok(());
        for (place, to, is_copied) in taken.drain(..) {
            self.counters.late += u64::from(to.kind == LATE);
            let index = first + usize::from(place);
            sent = sent.and(self.push_one(port, (to, is_copied), batch, index, arrived_ns));
        }
        self.taken = taken;
        sent
    }

    /// Appends event `index` of a batch to what is open for its target, and its copies.
    fn push_one(
        &mut self,
        port: PortId,
        (to, is_copied): (Target, bool),
        batch: &EventBatch,
        index: usize,
        arrived_ns: u64,
    ) -> Result<(), PushError> {
        let open = self.open_batch(port, to.kind, to.shard, arrived_ns);
        open.push_from(batch, index);
        if to.lag > 0 {
            open.set_lag(to.lag);
        }
        if is_copied {
            self.copy_last(port, to.shard, arrived_ns)?;
        }
        self.send_if_full(port, to.kind, to.shard)
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
