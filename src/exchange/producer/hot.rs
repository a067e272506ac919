//! A producer's part in splitting hot keys: it routes their events, and samples its own.

use super::{COPY, JUDGED, KEYED, LATE, PortId, Producer};
use crate::error::PushError;
use crate::event::Side;
use crate::exchange::hot::seen::{Member, Routed};
use crate::exchange::hot::{Entry, Route, Sample, bloom_bit};
use crate::exchange::partition::shard_of;
use crate::exchange::sync::Arc;
use crate::exchange::{Pacer, Splitter};
use crate::limits::{HOT_RUN_EVENTS, HOT_SAMPLE_EVENTS, HOT_SAMPLES_KEPT};
use crate::time::{LatenessClock, WATERMARK_START};

/// What a producer knows of the keys that are split.
#[derive(Debug)]
pub(super) struct Hot {
    /// The bits of all keys that are split: 0 while none is.
    bloom: u64,
    /// Events until the next look at the version.
    until_look: u32,
    splitting: Option<Box<Splitting>>,
}

#[derive(Debug)]
struct Splitting {
    splitter: Splitter,
    member: Arc<Member>,
    /// The version that is known, and what it says.
    version: u64,
    entries: Vec<Entry>,
    /// Whether the member is at work.
    is_at_work: bool,
    /// Events until the next sample, while it is not.
    until_sample: u32,
    looks: u32,
    samples: Vec<Sample>,
    spread: [i64; 2],
    /// Both sides' watermarks as far as known, which never go back.
    watermarks: [i64; 2],
    /// Events of split keys that went anywhere.
    turn: u32,
}

/// Where an event goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// The place of the batch's kind.
    pub(super) kind: usize,
    pub(super) shard: usize,
    pub(super) lag: i64,
}

/// Keys that are between two phases are looked at after so many looks at the version.
const LOOKS_PER_ADVANCE: u32 = 16;

/// Samples that a producer keeps while it finds no taker.
const SAMPLES_MAX: usize = 8 * HOT_SAMPLES_KEPT;

impl Hot {
    pub(super) fn off() -> Hot {
        Hot { bloom: 0, until_look: u32::MAX, splitting: None }
    }

    /// Whether the version is to be looked at before the next event.
    #[inline]
    pub(super) fn is_due(&mut self) -> bool {
        match self.until_look.checked_sub(1) {
            Some(rest) => {
                self.until_look = rest;
                false
            }
            None => true,
        }
    }

    /// As [`is_due`](Self::is_due) of several events.
    #[inline]
    fn is_due_in(&mut self, events: usize) -> bool {
        // Cannot truncate: pieces are far smaller.
        match self.until_look.checked_sub(events as u32) {
            Some(rest) => {
                self.until_look = rest;
                false
            }
            None => true,
        }
    }

    /// Whether an event may be of a key that is split.
    #[inline]
    pub(super) fn may_hold(&self, value: u64) -> bool {
        self.bloom & bloom_bit(value) != 0
    }

    /// Whether any key is split.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.bloom != 0
    }
}

impl Drop for Hot {
    fn drop(&mut self) {
        if let Some(splitting) = &self.splitting {
            splitting.splitter.part(&splitting.member);
        }
    }
}

impl Producer {
    /// Splits hot keys with all other producers of the join. Before the first event.
    pub fn split_by(mut self, splitter: Splitter) -> Producer {
        let member = splitter.join();
        self.hot.until_look = 0;
        self.hot.splitting = Some(Box::new(Splitting {
            splitter,
            member,
            version: 0,
            entries: Vec::new(),
            is_at_work: false,
            until_sample: 0,
            looks: 0,
            samples: Vec::new(),
            spread: [i64::MIN; 2],
            watermarks: [WATERMARK_START; 2],
            turn: 0,
        }));
        self
    }

    /// Looks at what is split by now, and samples `value`.
    #[cold]
    pub(super) fn look(&mut self, port: PortId, value: u64) -> Result<(), PushError> {
        let side = self.ports[port.0 as usize].slot.side();
        self.look_at_version()?;
        self.sample(1, |_| (value, side));
        Ok(())
    }

    /// As [`look`](Self::look), for events that go together.
    #[inline]
    pub(super) fn look_for(&mut self, port: PortId, values: &[u64]) -> Result<(), PushError> {
        if !self.hot.is_due_in(values.len()) {
            return Ok(());
        }
        let side = self.ports[port.0 as usize].slot.side();
        self.look_at_version()?;
        self.sample(values.len(), |place| (values[place], side));
        Ok(())
    }

    fn look_at_version(&mut self) -> Result<(), PushError> {
        let routed = self.routed();
        let Some(hot) = &mut self.hot.splitting else { return Ok(()) };
        let splitter = &hot.splitter;
        let newest = match hot.is_at_work {
            true => splitter.version().load(),
            false => hot.member.enter(hot.version, splitter.version()),
        };
        hot.is_at_work = true;
        let is_news = newest != hot.version;
        if is_news {
            hot.version = splitter.read(&mut hot.entries);
            hot.member.saw(hot.version, routed);
            self.hot.bloom = hot.entries.iter().fold(0, |bloom, entry| bloom | entry.bloom());
        }
        hot.looks += 1;
        if splitter.is_forced() || hot.looks.is_multiple_of(LOOKS_PER_ADVANCE) {
            splitter.advance(self.pacer.as_ref().map_or(i64::MIN, Pacer::freed_to));
        }
        self.note_watermarks();
        // What was routed otherwise goes first, so that rows of one key and source stay in order.
        if is_news { self.send_open() } else { Ok(()) }
    }

    /// Samples of `count` events those whose turn it is; `until_look` has not been moved on.
    fn sample(&mut self, count: usize, event: impl Fn(usize) -> Sample) {
        let Some(hot) = &mut self.hot.splitting else {
            self.hot.until_look = u32::MAX;
            return;
        };
        if hot.splitter.is_forced() {
            self.hot.until_look = 0;
            return;
        }
        let mut next = self.hot.until_look.max(std::mem::take(&mut hot.until_sample));
        // Cannot truncate: pieces of batches.
        let count = count as u32;
        while next < count {
            hot.samples.push(event(next as usize));
            next += HOT_SAMPLE_EVENTS;
        }
        self.hot.until_look = next - count;
        if hot.samples.len() >= HOT_SAMPLES_KEPT {
            let pacer = self.pacer.as_ref();
            let surroundings = pacer.map(Pacer::surroundings).unwrap_or_default();
            hot.splitter.observe(&mut hot.samples, &surroundings);
            hot.samples.truncate(SAMPLES_MAX);
        }
    }

    /// Nothing is routed until the next look.
    pub(super) fn rest(&mut self) {
        if self.hot.splitting.as_ref().is_none_or(|hot| !hot.is_at_work) {
            return;
        }
        let routed = self.routed();
        if let Some(hot) = &mut self.hot.splitting {
            hot.is_at_work = false;
            hot.member.leave(routed);
            hot.until_sample = std::mem::take(&mut self.hot.until_look);
        }
    }

    /// The largest times of what was routed.
    fn routed(&self) -> Routed {
        let mut routed = Routed::NONE;
        for port in &self.ports {
            let all = &mut routed.all[port.slot.side().index()];
            *all = (*all).max(port.max_ts);
        }
        if let Some(hot) = &self.hot.splitting {
            routed.spread = hot.spread;
        }
        routed
    }

    fn note_watermarks(&mut self) {
        let is_asked = self.hot.bloom != 0;
        if !is_asked || self.options.lateness.clock != LatenessClock::Merged {
            return;
        }
        let (Some(hot), Some(port)) = (&mut self.hot.splitting, self.ports.first()) else { return };
        // Every shard has applied this.
        let freed_to = self.pacer.as_ref().map_or(i64::MIN, Pacer::freed_to);
        for side in Side::BOTH {
            let known = &mut hot.watermarks[side.index()];
            *known = port.slot.table().side(side).max(*known).max(freed_to);
        }
    }

    /// Where an on-time event goes whose key may be split, and whether copies of it go to all other
    /// shards.
    pub(super) fn target(&mut self, port: PortId, value: u64, ts: i64) -> (Target, bool) {
        let shard_count = self.links.len();
        let home = |kind| Target { kind, shard: shard_of(value, shard_count), lag: 0 };
        let side = self.ports[port.0 as usize].slot.side();
        let Some(hot) = &mut self.hot.splitting else { return (home(KEYED), false) };
        let entry = hot.entries.iter().find(|entry| entry.holds(value));
        let route = entry.map_or(Route::Home, |entry| entry.route(side, ts));
        let is_copied = match route {
            Route::Home => return (home(KEYED), false),
            Route::Anywhere => {
                let spread = &mut hot.spread[side.index()];
                *spread = (*spread).max(ts);
                hot.turn = hot.turn.wrapping_add(1);
                let shard = (hot.turn / HOT_RUN_EVENTS) as usize % shard_count;
                return (Target { shard, ..home(KEYED) }, false);
            }
            Route::HomeJudged => false,
            Route::Everywhere => true,
        };
        let lateness = self.options.lateness;
        let threshold = lateness.threshold(hot.watermarks[0].min(hot.watermarks[1]));
        if lateness.clock == LatenessClock::Merged && ts < threshold {
            return (Target { lag: threshold.saturating_sub(ts), ..home(LATE) }, false);
        }
        (home(JUDGED), is_copied)
    }

    /// Sends copies of the event that was appended last to the open batch of its home.
    pub(super) fn copy_last(
        &mut self,
        port: PortId,
        home: usize,
        arrived_ns: u64,
    ) -> Result<(), PushError> {
        let place = JUDGED * self.links.len() + home;
        let Some(batch) = self.ports[port.0 as usize].open[place].batch.take() else {
            return Ok(());
        };
        let mut sent = Ok(());
        for shard in (0..self.links.len()).filter(|&shard| shard != home) {
            let last = batch.len() - 1;
            self.open_batch(port, COPY, shard, arrived_ns).push_from(&batch, last);
            sent = sent.and(self.send_if_full(port, COPY, shard));
        }
        self.ports[port.0 as usize].open[place].batch = Some(batch);
        self.counters.copies += self.links.len() as u64 - 1;
        sent
    }
}
