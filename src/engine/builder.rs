//! Collects what an engine is made of.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use crate::engine::EngineError;
use crate::event::{Event, KeyHasher, Side};
use crate::exchange::{Feed, HotKeys, WatermarkSlot, Watermarks, WhenFull};
use crate::join::{Emit, JoinSpec, Sink};
use crate::limits::{BATCH_EVENTS_MAX, LANE_BATCHES_DEFAULT, LANE_BATCHES_MAX, Limits};
use crate::runtime::{CoreChoice, IdleStrategy, RuntimeChoice, Topology};
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

/// Collects what an engine is made of; see [`Engine::builder`](crate::engine::Engine::builder).
pub struct EngineBuilder<F> {
    pub(super) settings: Settings,
    pub(super) stage: StagePlan,
    pub(super) sinks: F,
}

/// Where and how an engine runs.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) cores: CoreChoice,
    pub(super) runtime: RuntimeChoice,
    pub(super) idle: IdleStrategy,
    pub(super) limits: Limits,
    pub(super) fail_when_full: bool,
    pub(super) when_full: WhenFull,
    pub(super) lane_batches: usize,
    pub(super) batch_events: usize,
    pub(super) linger: Duration,
    pub(super) max_drift: Option<i64>,
    pub(super) max_jump: Option<i64>,
    pub(super) hash_seed: u64,
    pub(super) simd: Option<Simd>,
    pub(super) hot_keys: HotKeys,
}

/// One join of an engine and what feeds it; a chain has several.
pub(super) struct StagePlan {
    pub(super) spec: JoinSpec,
    pub(super) watermarks: Watermarks,
    pub(super) feeds: Vec<Box<dyn Feed>>,
}

impl StagePlan {
    pub(super) fn new(spec: JoinSpec) -> StagePlan {
        StagePlan { spec, watermarks: Watermarks::new(), feeds: Vec::new() }
    }
}

impl EngineBuilder<NoSinks> {
    pub(super) fn new(spec: JoinSpec) -> EngineBuilder<NoSinks> {
        let settings = Settings {
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
            hash_seed: RandomState::new().build_hasher().finish(),
            simd: None,
            hot_keys: HotKeys::default(),
        };
        EngineBuilder { settings, stage: StagePlan::new(spec), sinks: NoSinks }
    }

    /// Makes the sinks, one for each shard, given its number.
    pub fn sinks<S, F>(self, make: F) -> EngineBuilder<F>
    where
        S: Sink + 'static,
        F: FnMut(usize) -> S,
    {
        EngineBuilder { settings: self.settings, stage: self.stage, sinks: make }
    }
}

impl<F> EngineBuilder<F> {
    /// Where it runs: a shard for each core. [`CoreChoice::All`] by default.
    pub fn cores(mut self, cores: CoreChoice) -> Self {
        self.settings.cores = cores;
        self
    }

    /// What drives the shards. [`RuntimeChoice::Auto`] by default.
    pub fn runtime(mut self, runtime: RuntimeChoice) -> Self {
        self.settings.runtime = runtime;
        self
    }

    /// How cores wait for work. [`IdleStrategy::Auto`] by default.
    pub fn idle(mut self, idle: IdleStrategy) -> Self {
        self.settings.idle = idle;
        self
    }

    /// What it may use, over all shards together.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// What feeds do when state nears its bound: wait, all but the slowest source, whose progress
    /// alone can free anything and which goes on a chunk at a time (the default), or go on until
    /// the bound is reached and the engine fails. It fails in the first case, too, when the join
    /// needs more.
    pub fn fail_when_full(mut self, fail: bool) -> Self {
        self.settings.fail_when_full = fail;
        self
    }

    /// What pushes do when state nears its bound: from about five eighths of it on, so that memory
    /// stays within it while the index grows. [`WhenFull::Refuse`] by default.
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.settings.when_full = when_full;
        self
    }

    /// Batches in flight from one source or core to one shard: 1 to [`LANE_BATCHES_MAX`], values
    /// outside are moved there; [`LANE_BATCHES_DEFAULT`] by default. Fewer means less memory and
    /// earlier backpressure.
    pub fn lane_batches(mut self, lane_batches: usize) -> Self {
        self.settings.lane_batches = lane_batches.clamp(1, LANE_BATCHES_MAX);
        self
    }

    /// Events of a full batch: 1 to [`BATCH_EVENTS_MAX`] (the default); values outside are moved
    /// there.
    pub fn batch_events(mut self, batch_events: usize) -> Self {
        self.settings.batch_events = batch_events.clamp(1, BATCH_EVENTS_MAX);
        self
    }

    /// How long events wait for their batch to fill before they are sent as they are. A
    /// millisecond by default; zero sends every push at once.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.settings.linger = linger;
        self
    }

    /// Pauses feeds that run more than `ticks` ahead of the slowest source, so that a dense file
    /// beside a sparse one does not pile up in state; push sources with [`WhenFull::Wait`], too.
    /// Off by default.
    pub fn max_drift(mut self, ticks: i64) -> Self {
        self.settings.max_drift = Some(ticks.max(0));
        self
    }

    /// Limits how far one event moves the watermark of a push source that follows its events
    /// ([`Promise::Disorder`](crate::exchange::Promise::Disorder)), so that one wrong time does not
    /// make all that follow late. Such events are joined as they are, and counted in the report.
    /// Feeds have limits of their own. Off by default.
    pub fn max_jump(mut self, ticks: i64) -> Self {
        self.settings.max_jump = Some(ticks.max(0));
        self
    }

    /// Seeds the hashing of keys, for runs that are to be repeated exactly; random by default,
    /// so that nobody can aim collisions.
    pub fn hash_seed(mut self, seed: u64) -> Self {
        self.settings.hash_seed = seed;
        self
    }

    /// Forces an instruction set; where the host has not got it, the best it has. Detected by
    /// default. It never changes results.
    pub fn simd(mut self, simd: Simd) -> Self {
        self.settings.simd = Some(simd);
        self
    }

    /// Whether keys that are too much for one core are split over all of them:
    /// [`HotKeys::Auto`] by default. A split key's pairs come out of all shards' sinks, and how
    /// many rows of the side that is copied had a match is not known then
    /// ([`SideCounters::matched_rows`](crate::join::SideCounters::matched_rows)); all else is the
    /// same. Not split are keys of joins for which
    /// [`JoinSpec::spread_sides`](crate::join::JoinSpec::spread_sides) gives a reason, of chains,
    /// and of operators that do not say they can ([`Operator::splits_keys`]); with
    /// [`HotKeys::Forced`] such an engine does not start.
    ///
    /// [`Operator::splits_keys`]: crate::shard::Operator::splits_keys
    pub fn hot_keys(mut self, hot_keys: HotKeys) -> Self {
        self.settings.hot_keys = hot_keys;
        self
    }

    /// Adds a source for a feed: its place in the table of watermarks. Give it to the feed (or to
    /// several that speak for it in turn), which adds it to the producer of its core.
    ///
    /// # Errors
    /// [`EngineError::Sources`] when the side is full.
    pub fn source_slot(&self, side: Side) -> Result<WatermarkSlot, EngineError> {
        Ok(self.stage.watermarks.add_source(side)?)
    }

    /// The hasher of its keys, for feeds that fill batches.
    pub fn hasher(&self) -> KeyHasher {
        KeyHasher::new(self.stage.spec.keys(), self.settings.hash_seed)
    }

    /// Adds a feed, which is polled on one of the cores; feeds are dealt out to them in turn.
    pub fn feed(self, feed: impl Feed + 'static) -> Self {
        self.feed_boxed(Box::new(feed))
    }

    /// Adds a boxed feed; see [`feed`](Self::feed).
    pub fn feed_boxed(mut self, feed: Box<dyn Feed>) -> Self {
        self.stage.feeds.push(feed);
        self
    }

    /// How many shards there will be on this host: for feeds that share one input.
    ///
    /// # Errors
    /// [`EngineError::Runtime`] when the cores that were chosen are not to be had.
    pub fn shard_count(&self) -> Result<usize, EngineError> {
        Ok(self.settings.cores.place(&Topology::read())?.cpus.len())
    }
}
