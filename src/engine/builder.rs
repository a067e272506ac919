//! Collects what an engine is made of, and starts it.

use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::engine::source::Registry;
use crate::engine::worker::{EngineWorker, FeedIntake};
use crate::engine::{Engine, EngineError, Shared};
use crate::error::SpecError;
use crate::event::{Event, KeyHasher, Side};
use crate::exchange::{
    Feed, Pace, Pacer, Producer, ProducerOptions, WatermarkSlot, Watermarks, WhenFull, mesh,
};
use crate::join::{Emit, IntervalJoin, JoinSpec, Sink};
use crate::limits::{BATCH_EVENTS_MAX, LANE_BATCHES_DEFAULT, LANE_BATCHES_MAX, Limits};
use crate::runtime::{Control, CoreChoice, IdleStrategy, RuntimeChoice, Topology, start};
use crate::shard::{Operator, Shard};
use crate::state::Simd;

/// How long events wait for their batch to fill before they are sent as they are.
const LINGER_DEFAULT: Duration = Duration::from_millis(1);

/// Stands for the sinks that a builder has not got yet; takes everything and keeps nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoSinks;

impl Emit for NoSinks {
    fn pair(&mut self, _left: Event<'_>, _right: Event<'_>) {}
}

impl Sink for NoSinks {}

/// Collects what an engine is made of; see [`Engine::builder`].
pub struct EngineBuilder<F> {
    spec: JoinSpec,
    cores: CoreChoice,
    runtime: RuntimeChoice,
    idle: IdleStrategy,
    limits: Limits,
    fail_when_full: bool,
    when_full: WhenFull,
    lane_batches: usize,
    batch_events: usize,
    linger: Duration,
    max_drift: Option<i64>,
    max_jump: Option<i64>,
    hasher: KeyHasher,
    simd: Option<Simd>,
    watermarks: Watermarks,
    feeds: Vec<Box<dyn Feed>>,
    sinks: F,
}

impl EngineBuilder<NoSinks> {
    pub(super) fn new(spec: JoinSpec) -> EngineBuilder<NoSinks> {
        EngineBuilder {
            hasher: KeyHasher::random(spec.keys()),
            spec,
            cores: CoreChoice::default(),
            runtime: RuntimeChoice::default(),
            idle: IdleStrategy::default(),
            limits: Limits::default(),
            fail_when_full: false,
            when_full: WhenFull::default(),
            lane_batches: LANE_BATCHES_DEFAULT,
            batch_events: BATCH_EVENTS_MAX,
            linger: LINGER_DEFAULT,
            max_drift: None,
            max_jump: None,
            simd: None,
            watermarks: Watermarks::new(),
            feeds: Vec::new(),
            sinks: NoSinks,
        }
    }

    /// Makes the sinks, one for each shard, given its number.
    pub fn sinks<S, F>(self, make: F) -> EngineBuilder<F>
    where
        S: Sink + 'static,
        F: FnMut(usize) -> S,
    {
        EngineBuilder {
            spec: self.spec,
            cores: self.cores,
            runtime: self.runtime,
            idle: self.idle,
            limits: self.limits,
            fail_when_full: self.fail_when_full,
            when_full: self.when_full,
            lane_batches: self.lane_batches,
            batch_events: self.batch_events,
            linger: self.linger,
            max_drift: self.max_drift,
            max_jump: self.max_jump,
            hasher: self.hasher,
            simd: self.simd,
            watermarks: self.watermarks,
            feeds: self.feeds,
            sinks: make,
        }
    }
}

impl<F> EngineBuilder<F> {
    /// Where it runs: a shard for each core. [`CoreChoice::All`] by default.
    pub fn cores(mut self, cores: CoreChoice) -> Self {
        self.cores = cores;
        self
    }

    /// What drives the shards. [`RuntimeChoice::Auto`] by default.
    pub fn runtime(mut self, runtime: RuntimeChoice) -> Self {
        self.runtime = runtime;
        self
    }

    /// How cores wait for work. [`IdleStrategy::Auto`] by default.
    pub fn idle(mut self, idle: IdleStrategy) -> Self {
        self.idle = idle;
        self
    }

    /// What it may use, over all shards together.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// What feeds do when state nears its bound: wait, all but the slowest source, whose progress
    /// alone can free anything and which goes on a chunk at a time (the default), or go on until
    /// the bound is reached and the engine fails. It fails in the first case, too, when the join
    /// needs more.
    pub fn fail_when_full(mut self, fail: bool) -> Self {
        self.fail_when_full = fail;
        self
    }

    /// What pushes do when state nears its bound: from about five eighths of it on, so that memory
    /// stays within it while the index grows. [`WhenFull::Refuse`] by default.
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Batches in flight from one source or core to one shard: 1 to [`LANE_BATCHES_MAX`], values
    /// outside are moved there; [`LANE_BATCHES_DEFAULT`] by default. Fewer means less memory and
    /// earlier backpressure.
    pub fn lane_batches(mut self, lane_batches: usize) -> Self {
        self.lane_batches = lane_batches.clamp(1, LANE_BATCHES_MAX);
        self
    }

    /// Events of a full batch: 1 to [`BATCH_EVENTS_MAX`] (the default); values outside are moved
    /// there.
    pub fn batch_events(mut self, batch_events: usize) -> Self {
        self.batch_events = batch_events.clamp(1, BATCH_EVENTS_MAX);
        self
    }

    /// How long events wait for their batch to fill before they are sent as they are. A
    /// millisecond by default; zero sends every push at once.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Pauses feeds that run more than `ticks` ahead of the slowest source, so that a dense file
    /// beside a sparse one does not pile up in state; push sources with [`WhenFull::Wait`], too.
    /// Off by default.
    pub fn max_drift(mut self, ticks: i64) -> Self {
        self.max_drift = Some(ticks.max(0));
        self
    }

    /// Limits how far one event moves the watermark of a push source that follows its events
    /// ([`Promise::Disorder`](crate::exchange::Promise::Disorder)), so that one wrong time does not
    /// make all that follow late. Such events are joined as they are, and counted in the report.
    /// Feeds have limits of their own. Off by default.
    pub fn max_jump(mut self, ticks: i64) -> Self {
        self.max_jump = Some(ticks.max(0));
        self
    }

    /// Seeds the hashing of keys, for runs that are to be repeated exactly; random by default,
    /// so that nobody can aim collisions.
    pub fn hash_seed(mut self, seed: u64) -> Self {
        self.hasher = KeyHasher::new(self.spec.keys(), seed);
        self
    }

    /// Forces an instruction set; where the host has not got it, the best it has. Detected by
    /// default. It never changes results.
    pub fn simd(mut self, simd: Simd) -> Self {
        self.simd = Some(simd);
        self
    }

    /// Adds a source for a feed: its place in the table of watermarks. Give it to the feed (or to
    /// several that speak for it in turn), which adds it to the producer of its core.
    ///
    /// # Errors
    /// [`EngineError::Sources`] when the side is full.
    pub fn source_slot(&self, side: Side) -> Result<WatermarkSlot, EngineError> {
        Ok(self.watermarks.add_source(side)?)
    }

    /// Adds a feed, which is polled on one of the cores; feeds are dealt out to them in turn.
    pub fn feed(self, feed: impl Feed + 'static) -> Self {
        self.feed_boxed(Box::new(feed))
    }

    /// Adds a boxed feed; see [`feed`](Self::feed).
    pub fn feed_boxed(mut self, feed: Box<dyn Feed>) -> Self {
        self.feeds.push(feed);
        self
    }

    /// How many shards there will be on this host: for feeds that share one input.
    ///
    /// # Errors
    /// [`EngineError::Runtime`] when the cores that were chosen are not to be had.
    pub fn shard_count(&self) -> Result<usize, EngineError> {
        Ok(self.cores.place(&Topology::read())?.cpus.len())
    }
}

impl<S, F> EngineBuilder<F>
where
    S: Sink + 'static,
    F: FnMut(usize) -> S,
{
    /// Starts the engine.
    ///
    /// # Errors
    /// [`EngineError::Runtime`] when its workers cannot be started where and as they should,
    /// [`EngineError::Spec`] when the operator cannot do what the spec asks for.
    pub fn start(self) -> Result<Engine<S>, EngineError> {
        let (spec, simd) = (self.spec.clone(), self.simd.unwrap_or_else(Simd::detect));
        self.start_with(|_, hasher, limits| {
            IntervalJoin::with_simd(spec.clone(), hasher.clone(), limits, simd)
        })
    }

    /// Starts an engine of other operators, made for each shard from its number, the engine's
    /// hasher and the limits of all shards together, which the engine sees to.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with<J: Operator + Send + 'static>(
        mut self,
        mut operators: impl FnMut(usize, &KeyHasher, Limits) -> Result<J, SpecError>,
    ) -> Result<Engine<S, J>, EngineError> {
        let topology = Topology::read();
        let placement = self.cores.place(&topology)?;
        let shard_count = placement.cpus.len();
        let control = Arc::new(Control::new(shard_count));
        let bells: Vec<_> = (0..shard_count).map(|shard| control.doorbell(shard)).collect();
        let shared = Arc::new(Shared {
            control: Arc::clone(&control),
            registry: Registry::default(),
            linger_ns: u64::try_from(self.linger.as_nanos()).unwrap_or(u64::MAX),
            when_full: self.when_full,
            fault: OnceLock::new(),
            ended: Mutex::new(0),
            ended_changed: Condvar::new(),
        });
        let dealt = deal(std::mem::take(&mut self.feeds), shard_count);
        // Cores without feeds push nothing, so they need no lanes.
        let mesh = mesh(self.lane_batches, &bells[..dealt.len()], &bells);
        let mut intakes = mesh.senders.into_iter().zip(dealt);
        let pace = Pace {
            max_drift: self.max_drift,
            state_bytes_max: self.limits.state_bytes_max,
            waits_when_full: !self.fail_when_full,
        };
        let pacer = Pacer::new(&self.watermarks, &bells, pace);
        let (mut workers, mut handles) = (Vec::new(), Vec::new());
        for (index, links) in mesh.receivers.into_iter().enumerate() {
            let intake = intakes.next().map(|(links, feeds)| {
                let producer = Producer::new(links, self.producer_options());
                FeedIntake::new(producer.paced_by(pacer.clone()), feeds, pacer.clone())
            });
            let join = operators(index, &self.hasher, self.limits)?;
            let sink = (self.sinks)(index);
            let bell = bells[index].clone();
            let (shard, handle) = Shard::new(join, sink, links, &self.watermarks, bell);
            let shard = shard.paced_by(pacer.clone(), index);
            let (place, shared) = ((index, shard_count), Arc::clone(&shared));
            workers.push(EngineWorker::new(place, shard, intake, shared));
            handles.push(handle);
        }
        let started = Instant::now();
        let running = start(workers, &placement, self.runtime, self.idle, &topology, &control)?;
        Ok(Engine {
            running: Some(running),
            shared,
            shards: handles,
            producer_options: self.producer_options(),
            pacer,
            lane_batches: self.lane_batches,
            max_jump: self.max_jump,
            watermarks: self.watermarks,
            cores: placement.cpus,
            started,
            sealing: Mutex::new(()),
        })
    }

    fn producer_options(&self) -> ProducerOptions {
        ProducerOptions {
            hasher: self.hasher.clone(),
            lateness: self.spec.lateness(),
            batch_events: self.batch_events,
        }
    }
}

/// Deals feeds out to cores in turn; as many lists as cores that get one.
fn deal(feeds: Vec<Box<dyn Feed>>, core_count: usize) -> Vec<Vec<Box<dyn Feed>>> {
    let mut dealt: Vec<Vec<Box<dyn Feed>>> = Vec::new();
    dealt.resize_with(feeds.len().min(core_count), Vec::new);
    for (number, feed) in feeds.into_iter().enumerate() {
        dealt[number % core_count].push(feed);
    }
    dealt
}
