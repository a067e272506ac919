//! What stands between two stages: takes what the one gives out, gives it its next key and time,
//! and sends it to the shards of the other.
//!
//! It never waits: the core that it is on may be the one that must make room. What does not fit the
//! lanes is kept here, and the stage is not stepped until all of it is sent; so there is at most
//! what one batch of the stage makes. It counts as state.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::chain::row::{JoinedRow, KeptKey, Stream};
use crate::engine::error::Fault;
use crate::error::PushError;
use crate::event::{BatchKind, Event, EventBatch, Key, KeyHasher, Side};
use crate::exchange::{Flow, KeptTooMuch, Pacer, PortId, Producer};
use crate::join::{Emit, Sink, SinkError};
use crate::limits::{BATCH_EVENTS_MAX, BATCH_ROW_BYTES_TARGET};
use crate::shard::ShardError;
use crate::time::{Timestamp, WATERMARK_END, WATERMARK_START};

/// Gives a joined row its key for the next stage. The bytes are scratch space for a key that is put
/// together, empty at each call.
pub(in crate::engine) type KeyOf =
    dyn for<'a> Fn(JoinedRow<'a>, &'a mut Vec<u8>) -> Key<'a> + Send + Sync;

/// How rows get from one stage to the next; the same on all cores.
#[derive(Clone)]
pub(in crate::engine) struct HandOverPlan {
    pub(super) key: Arc<KeyOf>,
    /// The stream whose time the next interval is relative to.
    pub(super) anchor: Stream,
    /// How far that time may lie behind the stage's output watermark.
    pub(in crate::engine) back: i64,
}

/// Late rows of the earlier stages of one core, on their way to its sink.
pub(in crate::engine) type LateBox = Arc<Mutex<Vec<LateRow>>>;

/// A late row.
#[derive(Debug)]
pub(in crate::engine) struct LateRow {
    pub(super) stream: Stream,
    pub(super) key: KeptKey,
    pub(super) ts: i64,
    pub(super) row: Vec<u8>,
    pub(super) lag: i64,
}

/// The sink of one core's shard of a stage that is not the last.
pub(in crate::engine) struct HandOver {
    plan: HandOverPlan,
    /// Streams of a left row of the stage.
    streams: usize,
    producer: Producer,
    port: PortId,
    pacer: Pacer,
    /// The shard's number among those of all stages.
    number: usize,
    packed: Vec<u8>,
    key_bytes: Vec<u8>,
    kept: Kept,
    /// What is promised behind all of it.
    watermark: i64,
    is_ending: bool,
    wants_flush: bool,
    /// Rows that were handed over without a key because they came out behind their time.
    behind: u64,
    late: LateBox,
    fault: Option<Fault>,
    /// A shard of the next stage has gone: everything is about to stop.
    is_refused: bool,
}

/// What did not fit the lanes, in order.
#[derive(Default)]
struct Kept {
    batches: VecDeque<EventBatch>,
    bytes: i64,
    /// Bytes that the pacer knows of.
    bytes_told: i64,
}

/// What an event that is kept takes beside its row.
const EVENT_BYTES: usize = 24;

/// Bytes that may be kept before the pacer hears of them.
const BYTES_UNTOLD: i64 = 64 << 10;

impl Kept {
    fn push(
        &mut self,
        hasher: &KeyHasher,
        key: Key<'_>,
        ts: Timestamp,
        row: &[u8],
    ) -> Result<(), PushError> {
        let kind = if key == Key::Null { BatchKind::NullKey } else { BatchKind::Keyed };
        let has_room = |batch: &&mut EventBatch| {
            let is_full =
                batch.len() >= BATCH_EVENTS_MAX || batch.row_bytes() >= BATCH_ROW_BYTES_TARGET;
            batch.kind == kind && !is_full
        };
        if self.batches.back_mut().filter(has_room).is_none() {
            let mut batch = EventBatch::default();
            batch.reset(Side::Left, 0, kind);
            self.batches.push_back(batch);
        }
        // One is there: if not before, it has just been pushed.
        let Some(batch) = self.batches.back_mut() else { return Ok(()) };
        let before = batch.row_bytes();
        batch.push(hasher, key, ts, row)?;
        self.bytes += (batch.row_bytes() - before + EVENT_BYTES) as i64;
        Ok(())
    }

    fn pop(&mut self) {
        if let Some(batch) = self.batches.pop_front() {
            self.bytes -= (batch.row_bytes() + EVENT_BYTES * batch.len()) as i64;
        }
        if self.batches.is_empty() {
            self.bytes = 0;
        }
    }
}

impl HandOver {
    /// `number` is the shard's among those of all stages, `streams` how many a left row is of.
    pub(in crate::engine) fn new(
        plan: HandOverPlan,
        streams: usize,
        (producer, port): (Producer, PortId),
        (pacer, number): (Pacer, usize),
        late: LateBox,
    ) -> HandOver {
        HandOver {
            plan,
            streams,
            producer,
            port,
            pacer,
            number,
            packed: Vec::new(),
            key_bytes: Vec::new(),
            kept: Kept::default(),
            watermark: WATERMARK_START,
            is_ending: false,
            wants_flush: false,
            behind: 0,
            late,
            fault: None,
            is_refused: false,
        }
    }

    /// Says what time it is: the arrival of what is given out from now on.
    pub(in crate::engine) fn set_now(&mut self, now_ns: u64) {
        self.producer.set_now(now_ns);
    }

    /// Sends what is kept and what is due, as far as the lanes take it.
    pub(in crate::engine) fn pump(&mut self) -> Result<Flow, Fault> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        let flow = self.try_pump();
        self.note_kept();
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        match flow {
            // Why that shard has gone is said there, and this one is stopped soon.
            Err(PushError::Stopped) => {
                self.is_refused = true;
                Ok(Flow::Open)
            }
            Err(error) => Err(self.fail(&error)),
            Ok(flow) => Ok(flow),
        }
    }

    /// Whether nothing is left to be sent.
    pub(in crate::engine) fn is_drained(&self) -> bool {
        self.is_refused
            || (self.kept.batches.is_empty()
                && !self.wants_flush
                && self.producer.unsent_events() == 0)
    }

    /// Rows that were handed over.
    pub(in crate::engine) fn rows(&self) -> u64 {
        self.producer.counters().events
    }

    /// Of these, those that took part without a key because they came out behind their time.
    pub(in crate::engine) fn rows_behind(&self) -> u64 {
        self.behind
    }

    fn try_pump(&mut self) -> Result<Flow, PushError> {
        if self.is_refused {
            return Ok(Flow::Open);
        }
        while let Some(batch) = self.kept.batches.front() {
            match self.producer.push_batch(self.port, batch) {
                Ok(_) => self.kept.pop(),
                Err(PushError::Backpressure) => return Ok(Flow::Blocked),
                Err(error) => return Err(error),
            }
        }
        // Batches that were refused by a lane are tried again by a flush.
        if self.wants_flush || self.producer.flow() == Flow::Blocked {
            // Only now: everything that the promise speaks for was pushed.
            if self.watermark > self.producer.watermark(self.port) {
                self.producer.promise(self.port, self.watermark);
            }
            if self.is_ending {
                self.producer.finish(self.port);
            }
            self.wants_flush = self.producer.flush()? == Flow::Blocked;
        }
        Ok(self.producer.flow())
    }

    fn give(&mut self, row: JoinedRow<'_>) {
        if self.fault.is_some() || self.is_refused {
            return;
        }
        match self.try_give(row) {
            Ok(()) => {}
            Err(PushError::Stopped) => self.is_refused = true,
            Err(error) => drop(self.fail(&error)),
        }
        if self.kept.bytes - self.kept.bytes_told >= BYTES_UNTOLD {
            self.note_kept();
        }
    }

    fn try_give(&mut self, row: JoinedRow<'_>) -> Result<(), PushError> {
        let HandOver { plan, packed, key_bytes, producer, port, kept, behind, .. } = self;
        packed.clear();
        row.pack(packed).ok_or(PushError::BatchFull)?;
        key_bytes.clear();
        // Without the time that the next interval is relative to it matches nothing.
        let (key, ts) = match row.part(plan.anchor) {
            Some(part) if !row.is_behind() => ((plan.key)(row, key_bytes), part.ts),
            anchor => {
                *behind += u64::from(anchor.is_some());
                (Key::Null, row.ts())
            }
        };
        let ts = Timestamp::new(ts).ok_or(PushError::NoTimestamp)?;
        if kept.batches.is_empty() {
            match producer.push(*port, key, ts, packed) {
                Ok(_) => return Ok(()),
                Err(PushError::Backpressure) => {}
                Err(error) => return Err(error),
            }
        }
        kept.push(producer.hasher(), key, ts, packed)
    }

    /// Has what is kept counted as state, and sees to its bound.
    fn note_kept(&mut self) {
        let change = self.kept.bytes - self.kept.bytes_told;
        if change == 0 {
            return;
        }
        self.kept.bytes_told = self.kept.bytes;
        let error = match self.pacer.change_kept(self.number, change) {
            None => return,
            Some(KeptTooMuch::State(full)) => ShardError::Join(full),
            Some(KeptTooMuch::Rows(message)) => {
                ShardError::Sink(SinkError { message, closed: false })
            }
        };
        self.fault.get_or_insert(Fault::Shard(error));
    }

    fn fail(&mut self, error: &PushError) -> Fault {
        let message = format!("a joined row cannot be handed to the next stage: {error}");
        let sink_error = SinkError { message, closed: false };
        self.fault.get_or_insert(Fault::Shard(ShardError::Sink(sink_error))).clone()
    }
}

impl Emit for HandOver {
    fn pair(&mut self, left: Event<'_>, right: Event<'_>) {
        self.give(JoinedRow::new(self.streams, left, Some(right)));
    }

    fn pair_at(&mut self, left: Event<'_>, right: Event<'_>, ts: i64) {
        self.give(JoinedRow::new(self.streams, left, Some(right)).at(ts));
    }

    fn single(&mut self, side: Side, event: Event<'_>) {
        self.single_at(side, event, event.ts);
    }

    fn single_at(&mut self, side: Side, event: Event<'_>, ts: i64) {
        let row = JoinedRow::single(self.streams, side, event);
        // Without a key it may be as old as it likes.
        let reached = if event.key == Key::Null { ts.max(self.watermark) } else { ts };
        self.give(if reached > event.ts { row.behind(reached) } else { row.at(reached) });
    }

    fn late(&mut self, side: Side, event: Event<'_>, lag: i64) {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        late.push(LateRow::new(stream_of(side, self.streams), event, lag));
    }
}

impl LateRow {
    pub(super) fn new(stream: Stream, event: Event<'_>, lag: i64) -> LateRow {
        let (key, row) = (KeptKey::new(event.key), event.row.to_vec());
        LateRow { stream, key, ts: event.ts, row, lag }
    }
}

/// The stream of a side of a stage whose left rows are of so many. Left rows of later stages are
/// never late; they would be counted for the newest stream in them.
pub(super) fn stream_of(side: Side, streams: usize) -> Stream {
    match side {
        Side::Left => Stream::of_index(streams - 1),
        Side::Right => Stream::of_index(streams),
    }
}

impl Sink for HandOver {
    fn flush(&mut self) -> Result<(), SinkError> {
        self.wants_flush = true;
        // A fault stays, and whoever drives the shard asks for it.
        let _ = self.pump();
        Ok(())
    }

    fn output_watermark(&mut self, watermark: i64) -> Result<(), SinkError> {
        // The end is told by the end itself, behind everything that is kept.
        if watermark < WATERMARK_END {
            self.watermark = self.watermark.max(watermark.saturating_sub(self.plan.back));
        }
        self.flush()
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.is_ending = true;
        self.flush()
    }
}

impl fmt::Debug for HandOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandOver").field("streams", &self.streams).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::error::JoinError;
    use crate::event::KeyKind;
    use crate::exchange::{
        Doorbell, LinkReceiver, Pace, ProducerOptions, Promise, Watermarks, link,
    };
    use crate::time::{Lateness, LatenessClock};

    /// A hand-over to one shard, of a lane that takes one event, under a bound on state.
    fn hand_over(state_bytes_max: Option<u64>) -> (HandOver, LinkReceiver, Watermarks) {
        hand_over_under(Pace { state_bytes_max, ..Pace::default() })
    }

    fn hand_over_under(pace: Pace) -> (HandOver, LinkReceiver, Watermarks) {
        let table = Watermarks::with_capacity(1);
        let pacer = Pacer::new(&table, &[Doorbell::silent()], pace);
        let (sender, receiver) = link(1, Doorbell::silent(), Doorbell::silent());
        let hasher = KeyHasher::new(KeyKind::Int, 0);
        // The producer judges, by what is promised behind all that is kept.
        let lateness = Lateness { clock: LatenessClock::Own, ..Lateness::default() };
        let options = ProducerOptions { hasher, lateness, batch_events: 1 };
        let mut producer = Producer::new(vec![sender], options);
        let port = producer.add_port(table.add_source(Side::Left).unwrap(), Promise::Explicit);
        let plan = HandOverPlan {
            key: Arc::new(|row, _| Key::Int(row.ts().unsigned_abs())),
            anchor: Stream::LEFT,
            back: 3,
        };
        let late = LateBox::default();
        (HandOver::new(plan, 1, (producer, port), (pacer, 0), late), receiver, table)
    }

    fn give(hand_over: &mut HandOver, ts: i64) {
        let event = |row| Event { key: Key::Int(0), ts, row };
        hand_over.pair(event(b"left"), event(b"right"));
    }

    #[test]
    fn a_promise_waits_for_all_that_was_given_before_it() {
        let (mut hand_over, mut receiver, table) = hand_over(None);
        (10..20).for_each(|ts| give(&mut hand_over, ts));
        hand_over.output_watermark(20).unwrap();
        hand_over.finish().unwrap();
        let (mut times, mut steps) = (Vec::new(), 0);
        while !hand_over.is_drained() {
            assert_eq!(table.promised_max(Side::Left), i64::MIN, "{times:?}");
            while let Some(batch) = receiver.try_recv() {
                assert_eq!(batch.kind, BatchKind::Keyed, "late");
                times.extend_from_slice(batch.timestamps());
                receiver.give_back(batch);
            }
            let _ = hand_over.pump().unwrap();
            steps += 1;
            assert!(steps < 100, "it is never drained");
        }
        while let Some(batch) = receiver.try_recv() {
            times.extend_from_slice(batch.timestamps());
        }
        assert_eq!(times, (10..20).collect::<Vec<i64>>(), "in order, each once");
        assert_eq!((table.promised_max(Side::Left), hand_over.rows()), (17, 10));
        assert!(table.states(Side::Left).all(|state| state == crate::time::SourceState::Finished));
    }

    #[test]
    fn what_is_kept_counts_as_state_and_has_its_bound() {
        let (mut hand_over, _receiver, _) = hand_over(Some(100_000));
        assert!(hand_over.pump().is_ok());
        (0..2_000).for_each(|ts| give(&mut hand_over, ts));
        let full = hand_over.pump().unwrap_err();
        let Fault::Shard(ShardError::Join(JoinError::StateFull { bytes, .. })) = full else {
            panic!("{full:?}")
        };
        assert!(bytes > 100_000);
    }

    /// Where shards make room it is not state's bound that it has to fit into beside the rest, but
    /// it has to fit.
    #[test]
    fn what_is_kept_may_be_as_much_again_where_shards_make_room() {
        let pace = Pace { state_bytes_max: Some(100_000), makes_room: true, ..Pace::default() };
        let (mut hand_over, _receiver, _) = hand_over_under(pace);
        hand_over.pacer.change_bytes(0, 90_000);
        (0..1_000).for_each(|ts| give(&mut hand_over, ts));
        assert!(hand_over.pump().is_ok(), "{} bytes", hand_over.pacer.state_bytes());
        assert!(hand_over.pacer.state_bytes() > 100_000 && hand_over.pacer.excess().is_none());
        (0..1_000).for_each(|ts| give(&mut hand_over, ts));
        let Fault::Shard(ShardError::Sink(error)) = hand_over.pump().unwrap_err() else {
            panic!("it is too much")
        };
        assert!(error.message.contains("has not taken yet"), "{}", error.message);
    }

    #[test]
    fn a_row_that_comes_behind_its_time_meets_nobody() {
        let (mut hand_over, mut receiver, _) = hand_over(None);
        hand_over.output_watermark(103).unwrap();
        let event = Event { key: Key::Null, ts: 40, row: b"left" };
        hand_over.single(Side::Left, event);
        hand_over.flush().unwrap();
        let batch = receiver.try_recv().unwrap();
        assert_eq!((batch.kind, batch.timestamps()), (BatchKind::NullKey, &[100][..]));
    }
}
