//! The engine: a join spec, sources and sinks made into shards that run on cores.
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use std::sync::Arc;
//!
//! use intervale::engine::Engine;
//! use intervale::event::{Event, Key, Side};
//! use intervale::join::{Emit, JoinSpec, Sink};
//! use intervale::limits::Limits;
//! use intervale::runtime::CoreChoice;
//! use intervale::time::Bound;
//!
//! struct Count(Arc<AtomicU64>);
//! impl Emit for Count {
//!     fn pair(&mut self, _left: Event<'_>, _right: Event<'_>) {
//!         self.0.fetch_add(1, Ordering::Relaxed);
//!     }
//! }
//! impl Sink for Count {}
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let spec = JoinSpec::between(Bound::Closed(0), Bound::Closed(100)).build(&Limits::default())?;
//! let count = Arc::new(AtomicU64::new(0));
//! let engine = Engine::builder(spec)
//!     .cores(CoreChoice::count(2).unwrap_or_default())
//!     .sinks(|_shard| Count(Arc::clone(&count)))
//!     .start()?;
//! let mut orders = engine.source(Side::Left)?;
//! let mut payments = engine.source(Side::Right)?;
//! orders.push(Key::Int(7), 1_000, b"order")?;
//! payments.push(Key::Int(7), 1_050, b"payment")?;
//! orders.finish()?;
//! payments.finish()?;
//! let finished = engine.finish()?;
//! assert_eq!(finished.report.counters.pairs, 1);
//! assert_eq!(count.load(Ordering::Relaxed), 1);
//! # Ok(())
//! # }
//! ```

mod assemble;
mod builder;
mod chain;
mod conclude;
mod error;
mod report;
mod source;
mod worker;

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::error::JoinError;
use crate::event::Side;
use crate::exchange::{
    Doorbell, Pacer, Producer, ProducerOptions, Promise, SplitReport, Splitter, Watermarks,
    WhenFull, link,
};
use crate::join::{IntervalJoin, JoinSpec, Sink};
use crate::runtime::{Control, End, Ended, Running, RuntimeKind};
use crate::shard::{Operator, ShardHandle, ShardReport};
use crate::time::{LatePolicy, WATERMARK_END, WATERMARK_START};

use error::Fault;
use report::Run;
use source::{Gate, Registry, SourceCell};
use worker::EngineWorker;

pub use builder::{EngineBuilder, NoSinks};
pub use chain::{Chain, ChainBuilder, ChainFinished, ChainSink, JoinedRow, Part, Stream, Then};
pub use error::EngineError;
pub use report::{Ending, Metrics, Report};
pub use source::Source;

/// A running join. Dropping it stops it.
pub struct Engine<S: Sink + 'static, J: Operator + Send + 'static = IntervalJoin> {
    running: Option<Running<EngineWorker<S, J>>>,
    shared: Arc<Shared>,
    /// One, or those of a chain.
    stages: Vec<StageHandle>,
    pacer: Pacer,
    lane_batches: usize,
    max_jump: Option<i64>,
    cores: Vec<Option<usize>>,
    started: Instant,
    /// Held while a source is added and while the table is sealed, so that the two never meet.
    sealing: Mutex<()>,
}

/// What an engine that ended by itself, or was shut down, leaves.
#[derive(Debug)]
pub struct Finished<S> {
    /// What was done.
    pub report: Report,
    /// The sinks, by shard.
    pub sinks: Vec<S>,
}

/// What all stages leave.
struct Stages<S> {
    /// Of each stage.
    reports: Vec<Report>,
    sinks: Vec<S>,
    /// The most rows and bytes that were in state at the same time.
    state_peaks: (u64, u64),
}

/// What handles must know of one join.
struct StageHandle {
    shards: Vec<ShardHandle>,
    watermarks: Watermarks,
    producer_options: ProducerOptions,
    emits_pairs: bool,
    splitter: Option<Splitter>,
    spec: JoinSpec,
    /// How far what it hands to the next stage may lie behind its own output watermark.
    back: i64,
}

/// What workers, sources and the engine's handle share.
#[derive(Debug)]
struct Shared {
    control: Arc<Control>,
    registry: Registry,
    linger_ns: u64,
    when_full: WhenFull,
    /// What went wrong outside the workers.
    fault: OnceLock<EngineError>,
    ended: Mutex<usize>,
    ended_changed: Condvar,
}

impl Shared {
    /// Stops everything because of something that no worker did.
    fn fail(&self, error: EngineError) {
        // The first fault stands. What happens to handles of an engine that has stopped, for
        // example a thread that panics because it was refused, is a consequence.
        if !self.control.is_stopped() {
            let _ = self.fault.set(error);
        }
        self.control.stop();
    }

    fn worker_ended(&self) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.ended_changed.notify_all();
        // Handles that wait for room would wait for it in vain if this was no regular end.
        self.registry.all().iter().for_each(|cell| cell.ring());
    }
}

impl Engine<NoSinks> {
    /// Starts to build an engine for `spec`.
    pub fn builder(spec: JoinSpec) -> EngineBuilder<NoSinks> {
        EngineBuilder::new(spec)
    }
}

impl<S: Sink + 'static, J: Operator + Send + 'static> Engine<S, J> {
    /// Adds a source whose watermark moves only by [`Source::watermark`]. Add all sources before
    /// the first of them promises anything: one that comes later cannot pull its side back.
    ///
    /// # Errors
    /// [`EngineError::Sources`] when the side is full, [`EngineError::Sealed`] after
    /// [`seal`](Self::seal), [`EngineError::Stopped`].
    pub fn source(&self, side: Side) -> Result<Source, EngineError> {
        self.source_with(side, Promise::Explicit)
    }

    /// Adds a source whose watermark comes about as `promise` says.
    ///
    /// # Errors
    /// As [`source`](Self::source).
    pub fn source_with(&self, side: Side, promise: Promise) -> Result<Source, EngineError> {
        self.source_of_stage(self.stages.len() - 1, side, promise)
    }

    /// Adds a source to one of the stages.
    fn source_of_stage(
        &self,
        stage: usize,
        side: Side,
        promise: Promise,
    ) -> Result<Source, EngineError> {
        let StageHandle { shards, watermarks, producer_options, splitter, .. } =
            &self.stages[stage];
        let slot = {
            let _held = self.sealing.lock().unwrap_or_else(PoisonError::into_inner);
            if watermarks.is_sealed() {
                return Err(EngineError::Sealed);
            }
            watermarks.add_source(side)?
        };
        let gate = Arc::new(Gate::default());
        let room = Doorbell::new({
            let gate = Arc::clone(&gate);
            move || gate.ring()
        });
        let mut links = Vec::with_capacity(shards.len());
        for (index, shard) in shards.iter().enumerate() {
            let bell = self.shared.control.doorbell(index);
            let (sender, receiver) = link(self.lane_batches, bell, room.clone());
            shard.add_link(receiver).map_err(|_| EngineError::Stopped)?;
            links.push(sender);
        }
        let producer = Producer::new(links, producer_options.clone());
        let mut producer = producer.paced_by(self.pacer.clone());
        if let Some(splitter) = splitter {
            producer = producer.split_by(splitter.clone());
        }
        let port = producer.add_port(slot, promise);
        if let Some(ticks) = self.max_jump {
            producer.limit_jumps(port, ticks);
        }
        self.pacer.call(room.clone());
        let cell = self.shared.registry.add(|number| {
            let servant = self.shared.control.doorbell(number % shards.len());
            SourceCell::new((stage, side), producer, port, gate, room, servant)
        });
        Ok(Source::new(cell, Arc::clone(&self.shared), producer_options.hasher.clone()))
    }

    /// How many stages there are: more than one in a chain.
    fn stage_count(&self) -> usize {
        self.stages.len()
    }

    /// A barrier: returns when everything that sources pushed and promised before the call has been
    /// joined, every row that is due has come out, and the sinks are flushed. Feeds are not waited
    /// for; what they have read comes out within the linger time.
    ///
    /// # Errors
    /// [`EngineError::Stopped`] when the engine stops meanwhile.
    pub fn flush(&self) -> Result<(), EngineError> {
        for cell in self.shared.registry.all() {
            cell.flush(&self.shared).map_err(|_| EngineError::Stopped)?;
        }
        // A shard that hands its rows on is not stepped again before all of them are sent, so its
        // second answer says that what came before the first is in the lanes of the next stage.
        let last = self.stages.len() - 1;
        for (number, stage) in self.stages.iter().enumerate() {
            (0..if number < last { 2 } else { 1 }).try_for_each(|_| stage.pass_barrier())?;
        }
        if self.shared.control.is_stopped() { Err(EngineError::Stopped) } else { Ok(()) }
    }

    /// What was done so far. Takes about a step's time, as the cores copy their figures out.
    ///
    /// # Errors
    /// [`EngineError::Stopped`] when the engine has stopped or ended.
    pub fn metrics(&self) -> Result<Metrics, EngineError> {
        self.metrics_of_stage(self.stages.len() - 1).ok_or(EngineError::Stopped)
    }

    /// What a stage did so far; `None` when it has ended.
    fn metrics_of_stage(&self, stage: usize) -> Option<Metrics> {
        let handle = &self.stages[stage];
        let StageHandle { shards, watermarks, .. } = handle;
        let asked: Vec<_> = shards.iter().map(ShardHandle::report).collect();
        let reports: Option<Vec<ShardReport>> =
            asked.into_iter().map(|reply| reply?.recv().ok()).collect();
        Some(Metrics::new(reports?, watermarks, handle.split()))
    }

    /// Each side's watermark now, by [`Side::index`], without asking the cores.
    pub fn watermarks(&self) -> [i64; 2] {
        let watermarks = &self.stages[self.stages.len() - 1].watermarks;
        Side::BOTH.map(|side| watermarks.side(side))
    }

    /// The driver of the shards.
    pub fn runtime(&self) -> RuntimeKind {
        self.running.as_ref().map_or(RuntimeKind::Threads, Running::kind)
    }

    /// What the user should know about where and how it runs, a line each.
    pub fn notes(&self) -> &[String] {
        self.running.as_ref().map_or(&[], Running::notes)
    }

    /// The CPU of each shard; `None` where the system chooses.
    pub fn cores(&self) -> &[Option<usize>] {
        &self.cores
    }

    /// Says that no source will be added any more, so that the engine ends when those it has have
    /// ended. [`finish`](Self::finish) implies it.
    pub fn seal(&self) {
        {
            let _held = self.sealing.lock().unwrap_or_else(PoisonError::into_inner);
            self.stages.iter().for_each(|stage| stage.watermarks.seal());
        }
        (0..self.cores.len()).for_each(|shard| self.shared.control.doorbell(shard).ring());
    }

    /// Waits until all shards have ended, for whatever reason, at most `timeout`. Returns whether
    /// they have. [`seal`](Self::seal) first, or only a fault ends them.
    pub fn wait(&self, timeout: Duration) -> bool {
        let ended = self.shared.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let all = self.cores.len();
        let waited =
            self.shared.ended_changed.wait_timeout_while(ended, timeout, |ended| *ended < all);
        // A thread that died without its worker's last word has ended, too.
        *waited.unwrap_or_else(PoisonError::into_inner).0 == all
            || self.running.as_ref().is_none_or(Running::is_finished)
    }

    /// Waits until all sources have ended and everything they pushed is joined and handed on; then
    /// checks that all counts add up. **Finish or drop every [`Source`] first**, or on another
    /// thread: this waits for all of them.
    ///
    /// # Errors
    /// The first fault of any shard, sink or source; [`EngineError::Join`] with
    /// [`JoinError::Unbalanced`] when counts do not add up. A
    /// sink whose reader has gone is no fault: see [`Ending::SinkClosed`].
    pub fn finish(self) -> Result<Finished<S>, EngineError> {
        self.finish_stages().map(Finished::of_last)
    }

    /// Stops in the middle: what was joined so far is flushed to the sinks, the rest is given up.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn shutdown(self) -> Result<Finished<S>, EngineError> {
        self.shutdown_stages().map(Finished::of_last)
    }

    fn finish_stages(mut self) -> Result<Stages<S>, EngineError> {
        self.seal();
        self.conclude()
    }

    fn shutdown_stages(mut self) -> Result<Stages<S>, EngineError> {
        self.shared.control.stop();
        self.conclude()
    }

    /// A report for each stage, and the sinks.
    fn conclude(&mut self) -> Result<Stages<S>, EngineError> {
        let Some(running) = self.running.take() else { return Err(EngineError::Stopped) };
        let (runtime, notes) = (running.kind(), running.notes().to_vec());
        self.conclude_with(running.join(), runtime, &notes)
    }

    fn conclude_with(
        &self,
        ended: Vec<Ended<EngineWorker<S, J>>>,
        runtime: RuntimeKind,
        notes: &[String],
    ) -> Result<Stages<S>, EngineError> {
        let elapsed = self.started.elapsed();
        if let Some(fault) = self.shared.fault.get() {
            return Err(fault.clone());
        }
        let ending = self.ending(ended.iter().map(|ended| &ended.end).collect())?;
        let closed: Vec<_> =
            ended.into_iter().filter_map(|ended| ended.worker?.into_closed()).collect();
        let (mut stages, sinks) = conclude::by_stage(closed, self.stages.len());
        for cell in self.shared.registry.all() {
            stages[cell.stage()].events_pushed += cell.lock().producer.counters().events;
        }
        let mut reports: Vec<Report> = Vec::new();
        for (number, (stage, handle)) in stages.into_iter().zip(&self.stages).enumerate() {
            let (state_rows_peak, state_bytes_peak) = self.pacer.stage_peaks(number);
            let run = Run {
                ending: ending.clone(),
                events_pushed: stage.events_pushed,
                left_behind: stage.behind,
                state_rows_peak,
                state_bytes_peak,
                regressed: Side::BOTH.map(|side| handle.watermarks.regressed(side)),
                jumped: Side::BOTH.map(|side| handle.watermarks.jumped(side)),
                watermarks: self.last_watermarks(number, reports.last()),
                hot_keys: handle.split(),
                elapsed,
                runtime,
                cores: self.cores.clone(),
                notes: notes.to_vec(),
            };
            let report = Report::new(run, stage.shards);
            // The sum over shards; no single one is to blame.
            let checked = report
                .check()
                .and_then(|()| report.check_handed(stage.handed_over, handle.emits_pairs))
                .and_then(|()| if number > 0 { handle.check_derived(&report) } else { Ok(()) });
            checked.map_err(|error| EngineError::Join { shard: 0, error })?;
            reports.push(report);
        }
        let state_peaks = (self.pacer.state_rows_peak(), self.pacer.state_bytes_peak());
        Ok(Stages { reports, sinks, state_peaks })
    }

    /// The last watermarks of a stage, by side. What another stage hands over is promised as far as
    /// that stage's own watermark lets it: which of its promises were made before the end of all is
    /// a matter of who was stepped when.
    fn last_watermarks(&self, stage: usize, before: Option<&Report>) -> [Option<i64>; 2] {
        let mut last = Side::BOTH.map(|side| self.stages[stage].last_watermark(side));
        if let Some(before) = before {
            last[0] = before.watermark.and_then(|it| self.stages[stage - 1].handed_watermark(it));
        }
        last
    }

    /// How it ended, if no fault ended it.
    fn ending(&self, ends: Vec<&End<Fault>>) -> Result<Ending, EngineError> {
        let mut ending = Ending::Complete;
        let first = self.shared.control.first_fault();
        let order = first.into_iter().chain(0..ends.len());
        for (shard, end) in order.filter_map(|shard| Some((shard, *ends.get(shard)?))) {
            match fault_of(shard, end) {
                Some(EngineError::Sink { error, .. }) if error.closed => {
                    ending = Ending::SinkClosed;
                }
                Some(_) if ending == Ending::SinkClosed => {}
                Some(error) => return Err(error),
                None if *end == End::Stopped && ending == Ending::Complete => {
                    ending = Ending::Stopped;
                }
                None => {}
            }
        }
        Ok(ending)
    }
}

impl<S> Finished<S> {
    /// Of an engine of one stage.
    fn of_last(mut ended: Stages<S>) -> Finished<S> {
        let report = ended.reports.pop().expect("an engine has a stage, and each stage a report");
        Finished { report, sinks: ended.sinks }
    }
}

impl StageHandle {
    /// Returns when all that was in the lanes is joined and handed on.
    fn pass_barrier(&self) -> Result<(), EngineError> {
        // All are asked before the first is waited for.
        let barriers: Vec<_> = self.shards.iter().map(ShardHandle::barrier).collect();
        for barrier in barriers.into_iter().flatten() {
            // A shard that has finished answers; one that failed or was stopped hangs up.
            barrier.recv().map_err(|_| EngineError::Stopped)?;
        }
        Ok(())
    }

    /// What was split of its hot keys.
    fn split(&self) -> SplitReport {
        self.splitter.as_ref().map(Splitter::report).unwrap_or_default()
    }

    /// Checks that nothing which the stage before gave out was late here, and so lost.
    fn check_derived(&self, report: &Report) -> Result<(), JoinError> {
        match self.producer_options.lateness.policy {
            LatePolicy::Join => Ok(()),
            _ => report.check_derived(),
        }
    }

    /// A side's last finite watermark. Ended sources hold nobody back, so it is the largest promise
    /// that any of them made.
    fn last_watermark(&self, side: Side) -> Option<i64> {
        let last = self.watermarks.promised_max(side);
        finite(last)
    }

    /// What it promises to the next stage when its own watermark has come so far.
    fn handed_watermark(&self, watermark: i64) -> Option<i64> {
        finite(self.spec.output_watermark(watermark).saturating_sub(self.back))
    }
}

fn finite(watermark: i64) -> Option<i64> {
    (watermark != WATERMARK_START && watermark != WATERMARK_END).then_some(watermark)
}

fn fault_of(shard: usize, end: &End<Fault>) -> Option<EngineError> {
    match end {
        End::Done | End::Stopped => None,
        End::Failed(fault) => Some(fault.clone().on_shard(shard)),
        End::Panicked(message) => Some(EngineError::Panicked { shard, message: message.clone() }),
    }
}

impl<S: Sink + 'static, J: Operator + Send + 'static> Drop for Engine<S, J> {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            self.shared.control.stop();
            drop(running.join());
        }
    }
}

impl<S: Sink + 'static, J: Operator + Send + 'static> fmt::Debug for Engine<S, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("cores", &self.cores).finish_non_exhaustive()
    }
}
