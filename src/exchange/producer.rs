//! Everything one core needs to send events to all shards.

mod hot;
mod pacing;
mod port;
mod spread;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::VecDeque;

use crate::error::PushError;
use crate::event::{BatchKind, EventBatch, Key, KeyHasher};
use crate::exchange::deal::Dealt;
use crate::exchange::lane::Refused;
use crate::exchange::partition::{Sorter, shard_of};
use crate::exchange::{LinkSender, Pacer, WatermarkSlot};
use crate::limits::{BATCH_EVENTS_MAX, BATCH_ROW_BYTES_TARGET};
use crate::time::{Lateness, LatenessClock, Timestamp};

use hot::{Hot, Target};
use port::{Port, PortState};

/// What a producer must know of the join it feeds.
#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// The engine's hasher, the same for all producers and shards.
    pub hasher: KeyHasher,
    /// The join's lateness. Under [`LatenessClock::Own`] the producer judges.
    pub lateness: Lateness,
    /// Events of a full batch, 1 to [`BATCH_EVENTS_MAX`]; values outside are moved there.
    pub batch_events: usize,
}

/// How a port's watermark comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// It trails the largest time seen by this many ticks.
    Disorder(i64),
    /// Only [`Producer::promise`] moves it.
    Explicit,
}

/// A source as one producer knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortId(u32);

/// Whether a producer can take more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flow {
    /// Go on.
    Open,
    /// The call was carried out, but a lane is full: do something else, then
    /// [`flush`](Producer::flush) until it says `Open`. Pushing is refused until then.
    Blocked,
}

/// What a producer counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProducerCounters {
    /// Events pushed.
    pub events: u64,
    /// Of them, found late here (under [`LatenessClock::Own`]); the shards count them again in
    /// their [`Counters`](crate::join::Counters).
    pub late: u64,
    /// Batches sent.
    pub batches: u64,
    /// Batches that found their lane full at first.
    pub parked: u64,
    /// Copies that were sent of events of split keys, beside those events.
    pub copies: u64,
}

/// One core's way to all shards: partial batches, links, and the watermarks of its sources.
///
/// A producer never blocks. What it cannot send it parks, says [`Flow::Blocked`], and takes no more
/// until a [`flush`](Self::flush) has sent everything; so it holds a bounded number of batches.
/// Watermarks go out with a flush only, after all batches. Flush before dropping a producer.
#[derive(Debug)]
pub struct Producer {
    links: Vec<LinkSender>,
    options: ProducerOptions,
    pacer: Option<Pacer>,
    ports: Vec<Port>,
    /// Open batches that may hold events: (port, place in `Port::open`).
    open: Vec<(u32, u32)>,
    /// Batches whose lane was full, with their shard, in order.
    parked: VecDeque<(u32, Box<EventBatch>)>,
    /// Scratch: shards whose lane is full.
    full: Vec<bool>,
    /// Work space.
    sorter: Sorter,
    dealt: Option<Box<Dealt>>,
    /// Likewise: places of a batch that have a word of their own.
    taken: Vec<(u8, Target, bool)>,
    now_ns: u64,
    oldest_ns: Option<u64>,
    unpublished: bool,
    stopped: bool,
    counters: ProducerCounters,
    hot: Hot,
}

/// Kinds of batches a port can have open, by their place in it.
const KINDS: [BatchKind; 5] =
    [BatchKind::Keyed, BatchKind::NullKey, BatchKind::Late, BatchKind::Judged, BatchKind::Copy];
const KEYED: usize = 0;
const NULL_KEY: usize = 1;
const LATE: usize = 2;
const JUDGED: usize = 3;
const COPY: usize = 4;

impl Producer {
    /// A producer with its links, one for each shard in the shards' order.
    ///
    /// # Panics
    /// When there is no link.
    pub fn new(links: Vec<LinkSender>, mut options: ProducerOptions) -> Producer {
        assert!(!links.is_empty(), "a producer needs a link to every shard");
        options.batch_events = options.batch_events.clamp(1, BATCH_EVENTS_MAX);
        Producer {
            full: vec![false; links.len()],
            sorter: Sorter::default(),
            dealt: None,
            taken: Vec::new(),
            links,
            options,
            pacer: None,
            ports: Vec::new(),
            open: Vec::new(),
            parked: VecDeque::new(),
            now_ns: 0,
            oldest_ns: None,
            unpublished: false,
            stopped: false,
            counters: ProducerCounters::default(),
            hot: Hot::off(),
        }
    }

    /// Lets this producer speak for a source. Several producers may speak for one source in turn;
    /// they hand on its largest time with [`max_ts`](Self::max_ts) and [`observe`](Self::observe).
    pub fn add_port(&mut self, slot: WatermarkSlot, promise: Promise) -> PortId {
        let open_count = KINDS.len() * self.links.len();
        self.ports.push(Port::new(slot, promise, open_count));
        // One batch of each kind is open, another waits to be sent at worst.
        self.links.iter_mut().for_each(|link| link.reserve(2 * KINDS.len()));
        // Cannot truncate: there are no more ports than sources.
        PortId(self.ports.len() as u32 - 1)
    }

    /// Says what time it is, by the engine's clock: the arrival of what is pushed from now on.
    #[inline]
    pub fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Pushes one event.
    ///
    /// # Errors
    /// [`PushError`]; the event was not taken then.
    #[inline]
    pub fn push(
        &mut self,
        port: PortId,
        key: Key<'_>,
        ts: Timestamp,
        row: &[u8],
    ) -> Result<Flow, PushError> {
        self.admit(port)?;
        let value = self.options.hasher.value(key)?;
        if self.hot.is_due() {
            self.look(port, value)?;
        }
        let judged = self.judge(port, matches!(key, Key::Null), ts.ticks());
        let (to, is_copied) = self.route(port, judged, value, ts.ticks());
        let batch = self.open_batch(port, to.kind, to.shard, self.now_ns);
        batch.push_with_value(value, key, ts, row)?;
        if to.lag > 0 {
            batch.set_lag(to.lag);
        }
        self.count(port, ts.ticks(), to.kind == LATE);
        if is_copied {
            self.copy_last(port, to.shard, self.now_ns)?;
        }
        self.send_if_full(port, to.kind, to.shard)?;
        Ok(self.flow())
    }

    /// From here on an event moves a port's watermark by `ticks` at the most; see
    /// [`BoundedDisorder::limit_jumps`](crate::time::BoundedDisorder::limit_jumps).
    pub fn limit_jumps(&mut self, port: PortId, ticks: i64) {
        let port = &mut self.ports[port.0 as usize];
        port.seen = port.seen.limit_jumps(ticks);
    }

    /// Takes a time into account that another producer of the same source has pushed, so that
    /// watermark and lateness go on from there.
    pub fn observe(&mut self, port: PortId, ts: i64) {
        let port = &mut self.ports[port.0 as usize];
        port.observe(ts);
        self.unpublished = true;
    }

    /// The largest time of a port: what its producer pushed or [`observe`](Self::observe)d.
    pub fn max_ts(&self, port: PortId) -> i64 {
        self.ports[port.0 as usize].seen.max_ts()
    }

    /// A port's own watermark now, which the next complete flush publishes.
    pub fn watermark(&self, port: PortId) -> i64 {
        self.ports[port.0 as usize].watermark
    }

    /// The source promises no more events with a smaller time. Lateness is judged by it at once;
    /// the next complete flush publishes it. A smaller promise than before is counted and ignored.
    pub fn promise(&mut self, port: PortId, watermark: i64) {
        let port = &mut self.ports[port.0 as usize];
        if watermark < port.watermark {
            port.regressed += 1;
        }
        port.watermark = port.watermark.max(watermark);
        port.wake();
        self.unpublished = true;
    }

    /// The source is silent: from the next complete flush on it holds nobody back, until it
    /// promises again (with [`Promise::Disorder`]: until it pushes again).
    pub fn idle(&mut self, port: PortId) {
        let port = &mut self.ports[port.0 as usize];
        if port.state == PortState::Active {
            port.state = PortState::Idle;
            self.unpublished = true;
        }
    }

    /// The source has ended; the next complete flush says so. It takes no more events.
    pub fn finish(&mut self, port: PortId) {
        self.ports[port.0 as usize].state = PortState::Finished;
        self.unpublished = true;
    }

    /// Sends everything, partial batches included, and then publishes the watermarks. Never blocks:
    /// while a lane is full it says [`Flow::Blocked`] and publishes nothing.
    ///
    /// # Errors
    /// [`PushError::Stopped`] when a shard is gone.
    pub fn flush(&mut self) -> Result<Flow, PushError> {
        self.rest();
        self.retry()?;
        self.send_open()?;
        if !self.parked.is_empty() {
            return Ok(Flow::Blocked);
        }
        self.oldest_ns = None;
        if self.unpublished {
            self.unpublished = false;
            self.ports.iter_mut().for_each(Port::publish);
            self.links.iter().for_each(LinkSender::ring);
        }
        Ok(Flow::Open)
    }

    /// Whether a lane is full, as far as known.
    pub fn flow(&self) -> Flow {
        if self.parked.is_empty() { Flow::Open } else { Flow::Blocked }
    }

    /// Whether a flush has anything to do: events, watermarks or parked batches.
    pub fn needs_flush(&self) -> bool {
        self.unpublished || self.oldest_ns.is_some() || !self.parked.is_empty()
    }

    /// When the oldest event since the last complete flush arrived: flush when it lingers.
    pub fn oldest_pending_ns(&self) -> Option<u64> {
        self.oldest_ns
    }

    /// How many shards it sends to.
    pub fn shard_count(&self) -> usize {
        self.links.len()
    }

    /// The hasher of all keys.
    pub fn hasher(&self) -> &KeyHasher {
        &self.options.hasher
    }

    /// What was counted so far.
    pub fn counters(&self) -> &ProducerCounters {
        &self.counters
    }

    /// Events that were pushed and not yet sent; after a complete flush 0.
    pub fn unsent_events(&self) -> usize {
        let open = self.open.iter().filter_map(|&(port, place)| {
            self.ports[port as usize].open[place as usize].batch.as_ref()
        });
        let parked = self.parked.iter().map(|(_, batch)| batch);
        open.chain(parked).map(|batch| batch.len()).sum()
    }

    /// Refuses what cannot be taken now.
    #[inline]
    fn admit(&mut self, port: PortId) -> Result<(), PushError> {
        if self.stopped {
            return Err(PushError::Stopped);
        }
        if self.ports[port.0 as usize].is_finished() {
            return Err(PushError::Ended);
        }
        if !self.parked.is_empty() {
            self.retry()?;
            if !self.parked.is_empty() {
                return Err(PushError::Backpressure);
            }
        }
        Ok(())
    }

    /// The place of an event's kind, and how late it is.
    #[inline]
    fn judge(&self, port: PortId, null_key: bool, ts: i64) -> (usize, i64) {
        // Events without a key are never late: they meet nobody, however old they are.
        let kind = if null_key { NULL_KEY } else { KEYED };
        if self.options.lateness.clock == LatenessClock::Merged {
            return (kind, 0);
        }
        let threshold = self.options.lateness.threshold(self.ports[port.0 as usize].watermark);
        if ts >= threshold {
            return (kind, 0);
        }
        (if null_key { NULL_KEY } else { LATE }, threshold.saturating_sub(ts))
    }

    /// Where an event goes that was judged, and whether copies of it go to all other shards.
    #[inline]
    fn route(
        &mut self,
        port: PortId,
        (kind, lag): (usize, i64),
        value: u64,
        ts: i64,
    ) -> (Target, bool) {
        if kind == KEYED && self.hot.may_hold(value) {
            return self.target(port, value, ts);
        }
        (Target { kind, shard: self.shard_of(port, kind, value), lag }, false)
    }

    #[inline]
    fn shard_of(&self, port: PortId, kind: usize, value: u64) -> usize {
        if kind == NULL_KEY {
            // Any shard will do; the sources spread them.
            self.ports[port.0 as usize].slot.source() as usize % self.links.len()
        } else {
            shard_of(value, self.links.len())
        }
    }

    /// The open batch of a port, kind and shard; it has room for at least one event.
    #[inline]
    fn open_batch(
        &mut self,
        port: PortId,
        kind: usize,
        shard: usize,
        arrived_ns: u64,
    ) -> &mut EventBatch {
        let place = kind * self.links.len() + shard;
        let Port { slot, open, .. } = &mut self.ports[port.0 as usize];
        let open = &mut open[place];
        if !open.listed {
            open.listed = true;
            // Cannot truncate: four kinds of a few hundred shards.
            self.open.push((port.0, place as u32));
        }
        open.batch.get_or_insert_with(|| {
            let mut batch = self.links[shard].fresh(slot.side(), slot.source(), KINDS[kind]);
            batch.arrived_ns = arrived_ns;
            self.oldest_ns.get_or_insert(arrived_ns);
            batch
        })
    }

    #[inline]
    fn count(&mut self, port: PortId, ts: i64, late: bool) {
        self.counters.events += 1;
        self.counters.late += u64::from(late);
        self.ports[port.0 as usize].observe(ts);
        self.unpublished = true;
    }

    #[inline]
    fn send_if_full(&mut self, port: PortId, kind: usize, shard: usize) -> Result<(), PushError> {
        let place = kind * self.links.len() + shard;
        let open = &mut self.ports[port.0 as usize].open[place];
        let is_full = open.batch.as_ref().is_some_and(|batch| {
            batch.len() >= self.options.batch_events || batch.row_bytes() >= BATCH_ROW_BYTES_TARGET
        });
        match open.batch.take_if(|_| is_full) {
            Some(batch) => self.send(shard, batch),
            None => Ok(()),
        }
    }

    /// Sends all open batches.
    fn send_open(&mut self) -> Result<(), PushError> {
        while let Some((port, place)) = self.open.pop() {
            let open = &mut self.ports[port as usize].open[place as usize];
            open.listed = false;
            let Some(batch) = open.batch.take() else { continue };
            let shard = place as usize % self.links.len();
            if batch.is_empty() {
                self.links[shard].keep(batch);
            } else {
                self.send(shard, batch)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, shard: usize, batch: Box<EventBatch>) -> Result<(), PushError> {
        // Behind parked batches of the same shard, so that a lane keeps the order of its events.
        let waits = self.parked.iter().any(|&(parked, _)| parked as usize == shard);
        let refused = match waits {
            true => Err(Refused::Full(batch)),
            false => try_send(&mut self.links[shard], self.pacer.as_ref(), batch),
        };
        match refused {
            Ok(()) => self.counters.batches += 1,
            Err(Refused::Full(batch)) => {
                self.counters.parked += 1;
                self.parked.push_back((shard as u32, batch));
            }
            Err(Refused::Abandoned(_)) => return self.stop(),
        }
        Ok(())
    }

    /// Sends parked batches whose lane has room again.
    fn retry(&mut self) -> Result<(), PushError> {
        if self.stopped {
            return Err(PushError::Stopped);
        }
        self.full.fill(false);
        for _ in 0..self.parked.len() {
            let Some((shard, batch)) = self.parked.pop_front() else { break };
            let full = &mut self.full[shard as usize];
            let refused = match *full {
                true => Err(Refused::Full(batch)),
                false => try_send(&mut self.links[shard as usize], self.pacer.as_ref(), batch),
            };
            match refused {
                Ok(()) => self.counters.batches += 1,
                Err(Refused::Full(batch)) => {
                    *full = true;
                    self.parked.push_back((shard, batch));
                }
                Err(Refused::Abandoned(_)) => return self.stop(),
            }
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<(), PushError> {
        self.stopped = true;
        Err(PushError::Stopped)
    }
}

/// Sends a batch and has it counted, before the shard can have joined it.
#[inline]
fn try_send(
    link: &mut LinkSender,
    pacer: Option<&Pacer>,
    batch: Box<EventBatch>,
) -> Result<(), Refused<Box<EventBatch>>> {
    let Some(pacer) = pacer else { return link.try_send(batch) };
    let weight = Pacer::weight(&batch);
    pacer.sent(weight);
    link.try_send(batch).inspect_err(|_| pacer.joined(weight))
}
