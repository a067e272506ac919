//! A workload through the whole engine: partition, lanes, shards, on as many cores as asked for.

use std::iter::StepBy;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::engine::{Engine, EngineError};
use crate::error::{JoinError, SourceError};
use crate::event::{EventBatch, Key, Side};
use crate::exchange::{
    Feed, FeedProgress, Flow, HotKeys, PortId, Producer, Promise, WatermarkSlot,
};
use crate::join::{AnyJoin, Counters, Emit, JoinSpec, Sink};
use crate::runtime::{CoreChoice, IdleStrategy, RuntimeChoice, RuntimeKind};
use crate::shard::Operator;
use crate::state::Simd;
use crate::time::{Clock, Timestamp};
use crate::workload::random::mix;
use crate::workload::single::index_bytes;
use crate::workload::{
    Bounds, CpuClock, Events, Measured, Moved, Outcome, OutcomeSink, StateSize, StepTimes, Workload,
};

/// Where and how an engine runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineSetup {
    /// One shard each.
    pub cores: CoreChoice,
    /// What drives them.
    pub runtime: RuntimeChoice,
    /// How they wait.
    pub idle: IdleStrategy,
    /// The instruction set of the joins.
    pub simd: Simd,
    /// Whether keys that are too much for one core are split.
    pub hot_keys: HotKeys,
}

/// What a run through the engine brings back.
#[derive(Clone, Debug)]
pub struct EngineRun {
    /// The figures. CPU time is the whole process's, and freeing what is left at the end of input
    /// is part of it. Steps are those of the shards, whatever number of events they took.
    pub measured: Measured,
    /// Shards.
    pub core_count: usize,
    /// What drove them.
    pub runtime: RuntimeKind,
    /// How often a key that was too much for one core was split.
    pub keys_split: u64,
    /// Rows that were copied for it.
    pub copies: u64,
    /// What the user should know about where and how it ran.
    pub notes: Vec<String>,
}

/// Batches of its own that a feed may run ahead of the slowest one. With more, rows are
/// buffered for longer, and come in another order than their times'.
const DRIFT_BATCHES: u64 = 8;

/// An id and a key.
const KEYED_ROW_BYTES: usize = 2 * size_of::<u64>();

/// Runs all events through an engine. Each core reads its own part of both sides: every so-manieth
/// batch, or, where `in_order`, the rows of its own keys, so that rows of one key and side come in
/// the same order however many cores there are. `spec` is to know of `bounds`.
///
/// # Errors
/// [`EngineError`] when the engine cannot start or stops on a fault.
pub fn run_engine(
    events: &Arc<Events>,
    spec: &JoinSpec,
    in_order: bool,
    setup: &EngineSetup,
    batch: usize,
    bounds: &Bounds,
) -> Result<EngineRun, EngineError> {
    let batch = batch.max(1);
    let mut builder = Engine::builder(spec.clone())
        .cores(setup.cores.clone())
        .runtime(setup.runtime)
        .idle(setup.idle)
        .batch_events(batch)
        .hot_keys(setup.hot_keys)
        .limits(bounds.limits)
        .fail_when_full(bounds.fail_when_full)
        .sinks(|_| OutcomeSink::default());
    let core_count = builder.shard_count()?;
    builder = builder.max_drift(drift(&events.workload, batch, core_count));
    // Feeds are dealt out in turn: each core gets one of each side.
    for side in Side::BOTH {
        for part in 0..core_count {
            let slot = builder.source_slot(side)?;
            let share = Share::new(events, side, in_order, (part, core_count));
            builder = builder.feed(Replay::new(Arc::clone(events), side, slot, batch, share));
        }
    }
    let index_bytes = Arc::new(AtomicU64::new(0));
    let (start, start_cpu_ns) = (Instant::now(), CpuClock::Process.now_ns());
    let engine = builder.start_with(|_, hasher, limits| {
        let join = AnyJoin::new(spec.clone(), hasher.clone(), limits, Some(setup.simd))?;
        Ok(Watched { join, index_bytes: Arc::clone(&index_bytes) })
    })?;
    let finished = engine.finish()?;
    let (wall, cpu_ns) = (start.elapsed(), CpuClock::Process.now_ns() - start_cpu_ns);
    let report = finished.report;
    let mut outcome = Outcome::default();
    for sink in &finished.sinks {
        outcome += sink.outcome;
    }
    Ok(EngineRun {
        measured: Measured {
            outcome,
            singles: finished.sinks.iter().map(|sink| sink.singles).sum(),
            events: report.events_pushed,
            wall,
            cpu_ns,
            finish_cpu_ns: 0,
            steps: StepTimes::from_histogram(&report.step_ns),
            peak: StateSize {
                rows: report.state_rows_peak,
                bytes: report.state_bytes_peak,
                // Relaxed: the threads that added have been joined.
                index_bytes: index_bytes.load(Ordering::Relaxed),
            },
            moved: Moved::of(&report.counters),
        },
        core_count,
        runtime: report.runtime,
        keys_split: report.hot_keys.split,
        copies: Side::BOTH.iter().map(|&side| report.counters.side(side).copies).sum(),
        notes: report.notes,
    })
}

impl Sink for OutcomeSink {}

/// Ticks that a feed may run ahead of the slowest one: each core's has its share of the batches.
pub(super) fn drift(workload: &Workload, batch: usize, core_count: usize) -> i64 {
    let events = (batch as u64).saturating_mul(core_count as u64);
    let drift = events.saturating_mul(1_000) / workload.rate + 1;
    let drift = drift.saturating_mul(DRIFT_BATCHES).min(i64::MAX as u64) as i64;
    drift.saturating_mul(workload.ticks_per_ms)
}

/// What one feed reads of its side.
pub(super) enum Share {
    /// Every `1 / of`-th batch: this one, and those that follow by as many.
    Batches { part: usize, of: usize },
    /// These rows.
    Rows(Vec<u32>),
}

impl Share {
    pub(super) fn new(
        events: &Events,
        side: Side,
        in_order: bool,
        (part, of): (usize, usize),
    ) -> Share {
        if !in_order || of == 1 {
            return Share::Batches { part, of };
        }
        // Apart from how keys are dealt out to shards, so that rows travel.
        let is_own = |key: u64| mix(key) % of as u64 == part as u64;
        let rows = events.side(side).keys.iter().zip(0..).filter(|&(&key, _)| is_own(key));
        Share::Rows(rows.map(|(_, place)| place).collect())
    }
}

/// A share of one side, replayed from memory as fast as it is taken: by whole batches, which is how
/// a source hands over what it has at once, but for rows that are picked.
pub(super) struct Replay {
    events: Arc<Events>,
    side: Side,
    slot: WatermarkSlot,
    port: Option<PortId>,
    batch: usize,
    /// What is pushed at once.
    columns: EventBatch,
    row: Vec<u8>,
    /// Whether a row has its key behind the id; such rows are picked one by one.
    key_in_row: bool,
    /// The rows to read, if they are not whole batches.
    rows: Option<Vec<u32>>,
    /// Where this feed's batches start, in the side or in `rows`.
    starts: StepBy<Range<usize>>,
    /// What is left of the current one.
    rest: Range<usize>,
    finished: bool,
}

impl Replay {
    pub(super) fn new(
        events: Arc<Events>,
        side: Side,
        slot: WatermarkSlot,
        batch: usize,
        share: Share,
    ) -> Replay {
        let (starts, rows) = match share {
            Share::Batches { part, of } => {
                ((part * batch..events.side(side).len()).step_by(of * batch), None)
            }
            Share::Rows(rows) => ((0..rows.len()).step_by(batch), Some(rows)),
        };
        let row = events.side(side).blank_row();
        let columns = EventBatch::with_capacity(side, batch, batch * row.len());
        let (port, rest, finished) = (None, 0..0, false);
        Replay {
            events,
            side,
            slot,
            port,
            batch,
            columns,
            row,
            key_in_row: false,
            rows,
            starts,
            rest,
            finished,
        }
    }

    /// Rows have their key behind the id: 8 bytes more, where they are shorter than that.
    pub(super) fn with_key_in_row(mut self) -> Replay {
        self.row.resize(self.row.len().max(KEYED_ROW_BYTES), b'.');
        let len = self.len();
        let rows = self.rows.take().unwrap_or_else(|| {
            // Cannot truncate: a side has at most `u32::MAX` events.
            let batches = self.starts.clone().map(|start| start..(start + self.batch).min(len));
            batches.flatten().map(|place| place as u32).collect()
        });
        let starts = (0..rows.len()).step_by(self.batch);
        Replay { key_in_row: true, rows: Some(rows), starts, ..self }
    }

    fn len(&self) -> usize {
        self.rows.as_ref().map_or(self.events.side(self.side).len(), Vec::len)
    }

    /// Pushes the rest of a batch. Returns whether lanes have room for more.
    fn push_rest(&mut self, producer: &mut Producer, port: PortId) -> Result<bool, SourceError> {
        let events = self.events.side(self.side);
        let Some(rows) = &self.rows else {
            let batch = std::mem::take(&mut self.rest);
            if let Some(next) = self.starts.clone().next() {
                events.prefetch(next);
            }
            events.fill(&mut self.columns, producer.hasher(), self.side, batch);
            let pushed = producer.push_batch(port, &self.columns);
            let flow = pushed.map_err(|error| SourceError { message: error.to_string() })?;
            return Ok(flow == Flow::Open);
        };
        for place in self.rest.by_ref() {
            let i = rows[place] as usize;
            let key = Key::Int(events.keys[i]);
            let ts = Timestamp::new(events.ts[i]).unwrap_or(Timestamp::MIN);
            if self.key_in_row
                && let Some(bytes) = self.row.get_mut(size_of::<u64>()..KEYED_ROW_BYTES)
            {
                bytes.copy_from_slice(&events.keys[i].to_le_bytes());
            }
            let row = events.row(i, &mut self.row);
            let pushed = producer.push(port, key, ts, row);
            let flow = pushed.map_err(|error| SourceError { message: error.to_string() })?;
            if flow == Flow::Blocked {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn end(&mut self, producer: &mut Producer, port: PortId) -> Result<FeedProgress, SourceError> {
        if !self.finished {
            self.finished = true;
            producer.finish(port);
        }
        let flushed = producer.flush();
        let flow = flushed.map_err(|error| SourceError { message: error.to_string() })?;
        Ok(match flow {
            Flow::Open => FeedProgress::Finished,
            Flow::Blocked => FeedProgress::Blocked,
        })
    }
}

impl Feed for Replay {
    fn poll(
        &mut self,
        producer: &mut Producer,
        _clock: &dyn Clock,
    ) -> Result<FeedProgress, SourceError> {
        let promise = Promise::Disorder(self.events.workload.disorder_ticks());
        let port = *self.port.get_or_insert_with(|| producer.add_port(self.slot.clone(), promise));
        if self.rest.is_empty() {
            let Some(start) = self.starts.next() else { return self.end(producer, port) };
            self.rest = start..(start + self.batch).min(self.len());
        }
        Ok(match self.push_rest(producer, port)? {
            true => FeedProgress::Busy,
            false => FeedProgress::Blocked,
        })
    }

    fn slot(&self) -> Option<&WatermarkSlot> {
        Some(&self.slot)
    }
}

/// Our join; leaves behind how large its index became.
struct Watched {
    join: AnyJoin,
    /// Of all shards together.
    index_bytes: Arc<AtomicU64>,
}

impl Operator for Watched {
    #[inline]
    fn on_batch<E: Emit>(&mut self, batch: &EventBatch, out: &mut E) -> Result<(), JoinError> {
        self.join.on_batch(batch, out)
    }

    fn advance(&mut self, left: i64, right: i64) {
        self.join.advance(left, right);
    }

    fn finish(&mut self) {
        // Relaxed: read once the threads have been joined. The index does not shrink before.
        self.index_bytes.fetch_add(index_bytes(&self.join), Ordering::Relaxed);
        self.join.finish();
    }

    fn work<E: Emit>(&mut self, budget: usize, out: &mut E) -> bool {
        self.join.work(budget, out)
    }

    fn output_watermark(&self) -> i64 {
        self.join.output_watermark()
    }

    fn counters(&self) -> &Counters {
        self.join.counters()
    }

    fn state_bytes(&self) -> u64 {
        self.join.state_bytes()
    }

    fn splits_keys(&self) -> bool {
        self.join.splits_keys()
    }

    fn failure(&self) -> Option<JoinError> {
        self.join.failure()
    }

    fn pooled_bytes(&self) -> u64 {
        self.join.pooled_bytes()
    }

    fn trim(&mut self, keep_bytes: u64) {
        self.join.trim(keep_bytes);
    }

    #[inline]
    fn tick(&mut self, now_ns: u64) -> bool {
        self.join.tick(now_ns)
    }

    fn next_tick_ns(&self) -> Option<u64> {
        self.join.next_tick_ns()
    }

    fn make_room(&mut self, bytes_max: u64, rows_max: u64) -> Result<(), JoinError> {
        self.join.make_room(bytes_max, rows_max)
    }

    fn rows_in_memory(&self) -> u64 {
        self.join.rows_in_memory()
    }
}
