//! Open-loop load on an engine in this process: event `k` is due at `start + k / rate` whether or
//! not the engine keeps up, and latency runs from there. Nothing is left out because the engine was
//! slow (no coordinated omission).
//!
//! Events go in through the engine's public push sources, from threads of their own.

mod check;
mod growth;
mod producer;
mod sample;
mod scenario;
mod search;
mod shape;
mod sink;
mod waiting;

use std::fmt;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::engine::{Engine, EngineError, Finished, Source};
use crate::error::PushError;
use crate::event::Side;
use crate::exchange::Promise;
use crate::join::{Counters, JoinKind};
use crate::limits::Limits;
use crate::runtime::RuntimeKind;
use crate::time::{Clock, MonotonicClock};
use crate::workload::{EngineSetup, Events, LayoutHints, Outcome, Workload};

use producer::{Produced, Producer, Schedule};
use sample::{Sampler, Window};
use sink::LatencySink;

pub use check::joined_offline;
pub use growth::{Trend, Verdict, trend};
pub use sample::Sample;
pub use scenario::Scenario;
pub use search::{Tried, find_max};
pub use shape::scenario_events;
pub use waiting::{HostEffect, HostWaits, Waiting};

/// How producers wait for the next event that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// They look at the clock all the time: exact, and each takes a core.
    Spin,
    /// They sleep: up to some 100 us late, which counts as latency.
    Sleep,
}

impl Pace {
    /// `spin` or `sleep`.
    pub const fn name(self) -> &'static str {
        match self {
            Pace::Spin => "spin",
            Pace::Sleep => "sleep",
        }
    }
}

/// What to load an engine with.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadPlan {
    /// What the events are.
    pub workload: Workload,
    /// Events a second, both sides together; at least 1.
    pub rate: f64,
    /// For how long events are due.
    pub duration: Duration,
    /// Pairs whose second event is due before this are joined and not measured.
    pub warm_up: Duration,
    /// Threads that push.
    pub producers: usize,
    /// How they wait.
    pub pace: Pace,
    /// Where and how the engine runs.
    pub setup: EngineSetup,
    /// How long events wait in the engine for their batch to fill.
    pub linger: Duration,
    /// Events of a full batch.
    pub batch: usize,
    /// Batches under way from a producer to a core.
    pub lane_batches: usize,
    /// How the join lays out its state.
    pub layout: LayoutHints,
    /// What goes other than smoothly.
    pub scenario: Scenario,
    /// How often to take a [`Sample`], if at all. It costs each core a step's time.
    pub sample_every: Option<Duration>,
}

/// Where the events of a load come from.
#[derive(Clone, Copy, Debug)]
pub enum Supply<'a> {
    /// Made before, by [`scenario_events`]: producers read memory and do nothing else.
    Memory(&'a Events),
    /// Made by the producers as they go, about 50 ns an event for each producer: for loads that do
    /// not fit memory, and where the program's own memory is looked at.
    Made {
        /// What they are made from.
        seed: u64,
    },
}

impl LoadPlan {
    /// Events that become due, both sides together.
    pub fn event_count(&self) -> u64 {
        (self.rate * self.duration.as_secs_f64()) as u64
    }

    /// Events that each side must have at least for [`run`].
    pub fn events_per_side(&self) -> u64 {
        self.event_count().div_ceil(2)
    }
}

/// What a load came to.
#[derive(Clone, Debug)]
pub struct LoadRun {
    /// Events that were due; of a load that was stopped, by then.
    pub events: u64,
    /// Events that were pushed: fewer when the engine was so far behind that the rest was given up.
    pub pushed: u64,
    /// Whether `stop` said so before the plan's duration was over.
    pub stopped: bool,
    /// For how long events were due: the plan's duration, or until the load was stopped.
    pub due: Duration,
    /// From the first event's due time until the engine had joined the last one pushed, and not
    /// less than `due`.
    pub elapsed: Duration,
    /// How much longer than `due` that was; of a load that was stopped, how far behind the
    /// producers were then, if that is more.
    pub end_lag: Duration,
    /// From a pair's due time (the later of its events') to its hand-over to the sink, in ns.
    pub latency_ns: Histogram<u64>,
    /// How late producers were by themselves, in ns, an entry an event that was due after the
    /// warm-up: from when an event was due
    /// to when its push began, less the time in which the engine held up the producer meanwhile.
    pub producer_late_ns: Histogram<u64>,
    /// The largest share of a core that a producer used.
    pub producer_cpu: f64,
    /// All pairs, warm-up included.
    pub outcome: Outcome,
    /// Shards.
    pub core_count: usize,
    /// What drove them.
    pub runtime: RuntimeKind,
    /// Most rows in state.
    pub state_rows_peak: u64,
    /// Most bytes of state.
    pub state_bytes_peak: u64,
    /// Rows that came too late: none in any scenario, but for a workload that has such events.
    pub late_rows: u64,
    /// How often a key that was too much for one core was split.
    pub keys_split: u64,
    /// Of all rows, those of the core that got most.
    pub busiest_core_share: f64,
    /// Looks at the run, if the plan asks for them.
    pub samples: Vec<Sample>,
    /// What its threads waited for CPUs, over the measured part.
    pub host: HostWaits,
    /// What the user should know about where and how it ran.
    pub notes: Vec<String>,
}

/// The engine may be this much later with the last event than it was due, of the duration.
const END_LAG_SHARE: f64 = 0.01;
/// A pause of the machine at the very end is no overload.
const END_LAG_MIN: Duration = Duration::from_millis(20);
/// A producer that uses this much of a core is its own limit.
const PRODUCER_CPU_MAX: f64 = 0.9;

impl LoadRun {
    /// Events a second that were joined.
    pub fn achieved_rate(&self) -> f64 {
        self.pushed as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Whether the pairs are those of all events, so that [`joined_offline`] must find the same.
    pub fn has_all_pairs(&self) -> bool {
        !self.stopped && self.pushed == self.events && self.late_rows == 0
    }

    /// Whether everything that was due was joined in (almost) the time in which it was due.
    pub fn kept_up(&self) -> bool {
        let is_whole = self.stopped || self.pushed == self.events;
        is_whole && self.end_lag <= self.due.mul_f64(END_LAG_SHARE).max(END_LAG_MIN)
    }

    /// Whether the producers rather than the engine may be what did not keep up: one of them used
    /// a core of its own up.
    pub fn producers_were_the_limit(&self) -> bool {
        !self.kept_up() && self.producer_cpu >= PRODUCER_CPU_MAX
    }
}

/// Why a load could not be run to its end.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// The engine did not start, or stopped on a fault.
    Engine(EngineError),
    /// It refused an event.
    Push(PushError),
    /// There are fewer events than become due.
    TooFewEvents {
        /// Events of a side that there are.
        events: usize,
        /// Events of a side that the plan asks for.
        needed: u64,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Engine(error) => error.fmt(f),
            LoadError::Push(error) => error.fmt(f),
            LoadError::TooFewEvents { events, needed } => {
                write!(f, "{needed} events of each side become due, and there are {events}")
            }
        }
    }
}

impl std::error::Error for LoadError {}

impl From<EngineError> for LoadError {
    fn from(error: EngineError) -> LoadError {
        LoadError::Engine(error)
    }
}

/// From the start of the producers to the first event, so that all of them are ready.
const LEAD: Duration = Duration::from_millis(20);

/// Runs a load. `stop` is asked all the time by every producer, so it has to be cheap, and once it
/// has said yes it has to stay with it.
///
/// Producers give up when they are behind by as much as the load was to last. Once `stop` says so
/// they stop, what they have pushed is joined, and that is what the result is of.
///
/// # Errors
/// [`LoadError`].
pub fn run(
    plan: &LoadPlan,
    supply: Supply<'_>,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<LoadRun, LoadError> {
    if let Supply::Memory(events) = supply {
        let lens = Side::BOTH.map(|side| events.side(side).len());
        let (events, needed) = (lens[0].min(lens[1]), plan.events_per_side());
        if (events as u64) < needed {
            return Err(LoadError::TooFewEvents { events, needed });
        }
    }
    let mut windows = Vec::new();
    let engine = start(plan, &mut windows)?;
    let sources = sources(&engine, plan)?;
    let start_ns = MonotonicClock.now_ns() + LEAD.as_nanos() as u64;
    let schedule = Arc::new(Schedule::new(plan, start_ns));
    let stolen = waiting::stolen_ticks();
    let mut sampler = plan.sample_every.map(|every| {
        let expected = 2.0 * plan.duration.as_secs_f64() / every.as_secs_f64().max(1e-9);
        Sampler::new(windows, every, start_ns, expected as usize)
    });
    let produced = produce(sources, &schedule, supply, plan, stop, |done| {
        if let Some(sampler) = &mut sampler {
            sampler.run(&engine, done);
        }
    });
    // A producer is refused only by an engine that has stopped, which says why when it is joined.
    let (produced, sources): (Vec<Produced>, Vec<_>) = match produced {
        Ok(produced) => produced.into_iter().unzip(),
        Err(LoadError::Push(PushError::Stopped)) => {
            return Err(LoadError::Engine(engine.finish().err().unwrap_or(EngineError::Stopped)));
        }
        Err(error) => return Err(error),
    };
    let flushed = engine.flush();
    let end_ns = MonotonicClock.now_ns();
    drop(sources);
    let finished = engine.finish()?;
    flushed?;
    let samples = sampler.map_or_else(Vec::new, |sampler| sampler.samples);
    let mut run = summary(plan, &schedule, end_ns, produced, finished);
    run.samples = samples;
    run.host.stolen = waiting::stolen_share(stolen, waiting::stolen_ticks());
    Ok(run)
}

/// Starts the engine; adds the window of each shard, if samples are to be taken.
fn start(plan: &LoadPlan, windows: &mut Vec<Window>) -> Result<Engine<LatencySink>, EngineError> {
    let workload = &plan.workload;
    let spec = plan.layout.add_to(workload.spec(JoinKind::Inner), workload.ticks_per_ms);
    let spec = spec.build(&Limits::UNBOUNDED).map_err(EngineError::Spec)?;
    Engine::builder(spec)
        .cores(plan.setup.cores.clone())
        .runtime(plan.setup.runtime)
        .idle(plan.setup.idle)
        .simd(plan.setup.simd)
        .hot_keys(plan.setup.hot_keys)
        .linger(plan.linger)
        .batch_events(plan.batch)
        .lane_batches(plan.lane_batches)
        .sinks(|_| {
            let sampled = plan.sample_every.map(|every| {
                let window = Window::new(sink::LATENCY_NS_MAX);
                windows.push(window.clone());
                (window, every)
            });
            LatencySink::new(plan.scenario, sampled)
        })
        .start()
}

type Pair = [Source; 2];

/// A source of each side for each producer. All of them exist before the first promises anything.
fn sources(engine: &Engine<LatencySink>, plan: &LoadPlan) -> Result<Vec<Pair>, EngineError> {
    let disorder = plan.workload.disorder_ticks();
    let promise = Promise::Disorder(disorder.saturating_add_unsigned(plan.scenario.disorder_ms()));
    let source = |side| engine.source_with(side, promise);
    (0..plan.producers.max(1)).map(|_| Ok([source(Side::Left)?, source(Side::Right)?])).collect()
}

/// Runs the producers to their ends. They give their sources back, so that none ends before all
/// have pushed everything. `meanwhile` runs until the receiver that it is given is cut off.
fn produce(
    sources: Vec<Pair>,
    schedule: &Arc<Schedule>,
    supply: Supply<'_>,
    plan: &LoadPlan,
    stop: &(dyn Fn() -> bool + Sync),
    meanwhile: impl FnOnce(&mpsc::Receiver<()>),
) -> Result<Vec<(Produced, Pair)>, LoadError> {
    let count = sources.len();
    let (working, done) = mpsc::channel();
    std::thread::scope(|scope| {
        let threads: Vec<_> = sources
            .into_iter()
            .enumerate()
            .map(|(index, sources)| {
                let schedule = Arc::clone(schedule);
                let working = working.clone();
                scope.spawn(move || {
                    // Dropped at the end, whatever the end.
                    let _working: mpsc::Sender<()> = working;
                    Producer::new(schedule, sources, (index, count), plan, supply).run(stop)
                })
            })
            .collect();
        drop(working);
        meanwhile(&done);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn summary(
    plan: &LoadPlan,
    schedule: &Schedule,
    end_ns: u64,
    produced: Vec<Produced>,
    finished: Finished<LatencySink>,
) -> LoadRun {
    let mut latency_ns = sink::histogram();
    let mut outcome = Outcome::default();
    let mut host = HostWaits::default();
    for sink in finished.sinks {
        outcome += sink.outcome;
        // All have the same bounds, so nothing is out of range.
        let _ = latency_ns.add(&sink.latency_ns);
        host.workers.push((sink.watch.finish(), sink.latency_ns.len()));
    }
    let mut producer_late_ns = sink::histogram();
    for produced in &produced {
        let _ = producer_late_ns.add(&produced.late_ns);
        host.producers.push(produced.waiting.clone());
    }
    let report = finished.report;
    let rows_of = |counters: &Counters| -> u64 {
        Side::BOTH.iter().map(|&side| counters.side(side).rows).sum()
    };
    let most = report.shards.iter().map(|shard| rows_of(&shard.counters)).max().unwrap_or(0);
    let planned_ns = plan.duration.as_nanos() as u64;
    let stops = || produced.iter().filter_map(|produced| produced.stopped);
    // Who stops after the last event was due has nothing left to do.
    let stopped_ns = stops().map(|stop| stop.at_ns.saturating_sub(schedule.start_ns())).max();
    let stopped_ns = stopped_ns.filter(|&ns| ns < planned_ns);
    let due_ns = stopped_ns.unwrap_or(planned_ns);
    let behind_ns = stops().map(|stop| stop.behind_ns).max().unwrap_or(0);
    let elapsed_ns = end_ns.saturating_sub(schedule.start_ns()).max(due_ns);
    let pushed = produced.iter().map(|produced| produced.pushed).sum();
    let left: u64 = stops().map(|stop| stop.left).sum();
    LoadRun {
        events: if stopped_ns.is_some() { pushed + left } else { plan.event_count() },
        pushed,
        stopped: stopped_ns.is_some(),
        due: Duration::from_nanos(due_ns),
        elapsed: Duration::from_nanos(elapsed_ns),
        end_lag: Duration::from_nanos(elapsed_ns.saturating_sub(due_ns).max(behind_ns)),
        latency_ns,
        producer_late_ns,
        producer_cpu: produced.iter().map(|produced| produced.cpu).fold(0.0, f64::max),
        outcome,
        core_count: report.cores.len(),
        runtime: report.runtime,
        state_rows_peak: report.state_rows_peak,
        state_bytes_peak: report.state_bytes_peak,
        late_rows: Side::BOTH.iter().map(|&side| report.counters.side(side).late).sum(),
        keys_split: report.hot_keys.split,
        busiest_core_share: most as f64 / rows_of(&report.counters).max(1) as f64,
        samples: Vec::new(),
        host,
        notes: report.notes,
    }
}

#[cfg(test)]
mod tests;
