//! The simulator: shards and producers on one thread, in an order drawn from a seed.
//!
//! It runs the same [`Producer`] and [`Shard`] code as the threaded drivers, but decides itself who
//! takes the next turn and how much it may do. Turns come in any order, some actors stall for a
//! while, lanes are as small as one batch, sources fall silent, and some are added while all is
//! running. The same seed gives the same run, so a failure can be stepped through.

use std::fmt;

use crate::error::{PushError, SpecError};
use crate::event::{Event, EventBatch, Key, KeyHasher, Side};
use crate::exchange::{
    Doorbell, Flow, HotKeys, Pace, Pacer, PortId, Producer, ProducerOptions, Promise, SplitPlan,
    SplitReport, Splitter, Watermarks, link,
};
use crate::join::oracle::Output;
use crate::join::{AnyJoin, Counters, Emit, JoinSpec, Sink, SinkError};
use crate::limits::{Limits, Overflow};
use crate::shard::{Progress, Shard, ShardError, ShardHandle};
use crate::time::{ManualClock, Timestamp};

/// What is joined: sources and what each of them says, in its order.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The join, over integer keys.
    pub spec: JoinSpec,
    /// The sources of both sides.
    pub sources: Vec<SimSource>,
}

/// One source.
#[derive(Clone, Debug)]
pub struct SimSource {
    /// Its side.
    pub side: Side,
    /// Its watermark trails the largest time seen by this many ticks.
    pub disorder: i64,
    /// What it says; it ends afterwards.
    pub script: Vec<SimOp>,
    /// It is added, by a producer of its own, when source `.0` has come to place `.1` of its
    /// script; `None`: it is there from the start.
    pub added_at: Option<(usize, usize)>,
}

/// One thing that a source says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimOp {
    /// An event.
    Event {
        /// Its key, if it has one.
        key: Option<u64>,
        /// Its time, in ticks.
        ts: i64,
        /// Its name in the outcome.
        id: u64,
    },
    /// The source falls silent until its next event.
    Idle,
}

/// How it is run.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Decides everything that is left open.
    pub seed: u64,
    /// Shards, at least 1.
    pub shard_count: usize,
    /// Producers, at least 1, which share the sources out among them.
    pub producer_count: usize,
    /// Batches in flight between a producer and a shard.
    pub credits: usize,
    /// Events of a full batch.
    pub batch_events: usize,
    /// A sink fails at this result of its shard.
    pub sink_fails_at: Option<u64>,
    /// What sources are held to: those that are refused say nothing in their turn.
    pub pace: Pace,
    /// What becomes of rows near the pace's bounds, where shards make room.
    pub overflow: Overflow,
    /// Whether keys are split, where the join allows it.
    pub hot_keys: HotKeys,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// All results of all shards, sorted.
    pub outputs: Vec<Output>,
    /// The sum over the shards.
    pub counters: Counters,
    /// Turns that it took.
    pub turns: u64,
    /// Batches that found their lane full.
    pub parked: u64,
    /// Turns of sources that had to wait for others.
    pub waited: u64,
    /// Most bytes of state at the same time.
    pub state_bytes_peak: u64,
    /// Most rows in state at the same time.
    pub state_rows_peak: u64,
    /// What was split.
    pub hot_keys: SplitReport,
}

/// Why a simulation did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SimError {
    /// A shard failed.
    Shard(ShardError),
    /// A producer was refused.
    Push(PushError),
    /// The operator could not be built.
    Spec(SpecError),
    /// Nobody gets anywhere any more.
    Stuck {
        /// Turns until it was given up.
        turns: u64,
    },
}

/// A small generator (SplitMix64), so that a seed means the same everywhere and for ever.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator whose every number follows from `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number under `count` (at least 1).
    pub fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(count)) >> 64) as u64
    }

    /// Whether the one case in `count` has come up.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// Runs a scenario to its end.
///
/// # Errors
/// [`SimError`]; the same scenario and schedule give the same one again.
pub fn run(scenario: &Scenario, schedule: &Schedule) -> Result<Outcome, SimError> {
    let mut sim = Sim::new(scenario, schedule)?;
    while sim.shards.iter().any(|actor| !actor.is_done) {
        sim.turn()?;
        if sim.turns > TURNS_MAX {
            return Err(SimError::Stuck { turns: sim.turns });
        }
    }
    let mut outcome = Outcome {
        outputs: Vec::new(),
        counters: Counters::default(),
        turns: sim.turns,
        parked: sim.parked,
        waited: sim.waited,
        state_bytes_peak: sim.pacer.state_bytes_peak(),
        state_rows_peak: sim.pacer.state_rows_peak(),
        hot_keys: sim.splitter.as_ref().map(Splitter::report).unwrap_or_default(),
    };
    for actor in sim.shards {
        let (_, sink, report) = actor.shard.into_parts();
        outcome.outputs.extend(sink.outputs);
        outcome.counters.add(&report.counters);
    }
    outcome.outputs.sort_unstable();
    Ok(outcome)
}

/// More turns than any scenario of a sane size needs.
const TURNS_MAX: u64 = 5_000_000;

struct Sim<'a> {
    scenario: &'a Scenario,
    schedule: &'a Schedule,
    rng: Rng,
    clock: ManualClock,
    hasher: KeyHasher,
    table: Watermarks,
    pacer: Pacer,
    splitter: Option<Splitter>,
    cores: Vec<Core>,
    shards: Vec<ShardActor>,
    turns: u64,
    parked: u64,
    waited: u64,
}

/// A producer and the sources that it speaks for.
struct Core {
    /// `None` when all its sources have ended.
    producer: Option<Producer>,
    feeds: Vec<SimFeed>,
    stalled_until: u64,
}

struct SimFeed {
    source: usize,
    port: PortId,
    place: usize,
}

struct ShardActor {
    shard: Shard<Collector, AnyJoin>,
    handle: ShardHandle,
    stalled_until: u64,
    is_done: bool,
}

impl<'a> Sim<'a> {
    fn new(scenario: &'a Scenario, schedule: &'a Schedule) -> Result<Sim<'a>, SimError> {
        let hasher = KeyHasher::new(scenario.spec.keys(), schedule.seed);
        let table = Watermarks::with_capacity(scenario.sources.len());
        let bells = vec![Doorbell::silent(); schedule.shard_count];
        let pacer = Pacer::new(&table, &bells, schedule.pace);
        let mut shards = Vec::new();
        for number in 0..schedule.shard_count {
            let (spec, hasher) = (scenario.spec.clone(), hasher.clone());
            let limits = Limits { overflow: schedule.overflow, ..Limits::UNBOUNDED };
            let join = AnyJoin::new(spec, hasher, limits, None).map_err(SimError::Spec)?;
            let sink = Collector { outputs: Vec::new(), fails_at: schedule.sink_fails_at };
            let (shard, handle) = Shard::new(join, sink, Vec::new(), &table, Doorbell::silent());
            let shard = shard.paced_by(pacer.clone(), number);
            shards.push(ShardActor { shard, handle, stalled_until: 0, is_done: false });
        }
        let mut sim = Sim {
            scenario,
            schedule,
            rng: Rng::new(schedule.seed),
            clock: ManualClock::default(),
            hasher,
            table,
            pacer,
            splitter: splitter(&scenario.spec, schedule),
            cores: Vec::new(),
            shards,
            turns: 0,
            parked: 0,
            waited: 0,
        };
        for _ in 0..schedule.producer_count {
            sim.add_core();
        }
        for (index, source) in scenario.sources.iter().enumerate() {
            if source.added_at.is_none() {
                let core = sim.rng.below(schedule.producer_count as u64) as usize;
                sim.add_source(core, index);
            }
        }
        sim.seal_when_complete();
        Ok(sim)
    }

    /// A producer whose links reach the shards through their handles, as at any time.
    fn add_core(&mut self) -> usize {
        let links = self.shards.iter().map(|actor| {
            let silent = Doorbell::silent;
            let (sender, receiver) = link(self.schedule.credits, silent(), silent());
            // A shard that has ended needs no link: there is nothing left to send.
            let _ = actor.handle.add_link(receiver);
            sender
        });
        let options = ProducerOptions {
            hasher: self.hasher.clone(),
            lateness: self.scenario.spec.lateness(),
            batch_events: self.schedule.batch_events,
        };
        let mut producer = Producer::new(links.collect(), options).paced_by(self.pacer.clone());
        if let Some(splitter) = &self.splitter {
            producer = producer.split_by(splitter.clone());
        }
        let producer = Some(producer);
        self.cores.push(Core { producer, feeds: Vec::new(), stalled_until: 0 });
        self.cores.len() - 1
    }

    fn add_source(&mut self, core: usize, source: usize) {
        let SimSource { side, disorder, .. } = self.scenario.sources[source];
        let slot = self.table.add_source(side).expect("the table has room for all sources");
        let core = &mut self.cores[core];
        if let Some(producer) = &mut core.producer {
            let port = producer.add_port(slot, Promise::Disorder(disorder));
            core.feeds.push(SimFeed { source, port, place: 0 });
        }
    }

    fn seal_when_complete(&self) {
        let added: usize = Side::BOTH.iter().map(|&side| self.table.source_count(side)).sum();
        if added == self.scenario.sources.len() && !self.table.is_sealed() {
            self.table.seal();
        }
    }

    /// One actor, drawn by lot, takes a turn.
    fn turn(&mut self) -> Result<(), SimError> {
        self.turns += 1;
        self.clock.advance_ns(self.rng.below(1000));
        let actor = self.rng.below((self.cores.len() + self.shards.len()) as u64) as usize;
        let stall = if self.rng.one_in(50) { self.turns + self.rng.below(300) } else { 0 };
        if let Some(core) = self.cores.get_mut(actor) {
            core.stalled_until = core.stalled_until.max(stall);
            return match core.stalled_until > self.turns || core.producer.is_none() {
                true => Ok(()),
                false => self.core_turn(actor).map_err(SimError::Push),
            };
        }
        let shard = &mut self.shards[actor - self.cores.len()];
        shard.stalled_until = shard.stalled_until.max(stall);
        if shard.stalled_until <= self.turns && !shard.is_done {
            let budget = 1 + self.rng.below(20) as usize;
            let progress = shard.shard.step(budget, &self.clock).map_err(SimError::Shard)?;
            shard.is_done = progress == Progress::Finished;
        }
        Ok(())
    }

    fn core_turn(&mut self, index: usize) -> Result<(), PushError> {
        let flush_first = self.rng.one_in(3);
        let Some(producer) = &mut self.cores[index].producer else { return Ok(()) };
        if (flush_first || producer.flow() == Flow::Blocked) && producer.flush()? == Flow::Blocked {
            return Ok(());
        }
        if self.cores[index].feeds.is_empty() {
            return self.end_core(index);
        }
        let feed = self.rng.below(self.cores[index].feeds.len() as u64) as usize;
        for _ in 0..=self.rng.below(8) {
            let Core { producer: Some(producer), feeds, .. } = &mut self.cores[index] else {
                break;
            };
            if !producer.admits(feeds[feed].port, None) {
                self.waited += 1;
                // What others wait for may be in its hands.
                let _flow = producer.flush()?;
                break;
            }
            self.add_sources_due(index, feed);
            if !self.say_next(index, feed)? {
                break;
            }
        }
        Ok(())
    }

    /// Adds the sources that appear when this feed comes to where it is.
    fn add_sources_due(&mut self, core: usize, feed: usize) {
        let SimFeed { source, place, .. } = self.cores[core].feeds[feed];
        for index in 0..self.scenario.sources.len() {
            if self.scenario.sources[index].added_at == Some((source, place)) {
                let core = self.add_core();
                self.add_source(core, index);
            }
        }
        self.seal_when_complete();
    }

    /// A source says the next thing of its script, or ends. Returns whether it can go on.
    fn say_next(&mut self, core: usize, feed: usize) -> Result<bool, PushError> {
        let Core { producer: Some(producer), feeds, .. } = &mut self.cores[core] else {
            return Ok(false);
        };
        let SimFeed { source, port, place } = &mut feeds[feed];
        let Some(op) = self.scenario.sources[*source].script.get(*place) else {
            producer.finish(*port);
            feeds.swap_remove(feed);
            return Ok(false);
        };
        if *op == SimOp::Idle {
            *place += 1;
            producer.idle(*port);
            return Ok(true);
        }
        // One event, or a batch of some that follow each other.
        let count = if self.rng.one_in(4) { 1 + self.rng.below(20) as usize } else { 1 };
        let mut batch = EventBatch::with_capacity(Side::Left, count, 8 * count);
        let scenario = self.scenario;
        for op in scenario.sources[*source].script[*place..].iter().take(count) {
            let adds = scenario.sources.iter().any(|it| it.added_at == Some((*source, *place)));
            let SimOp::Event { key, ts, id } = *op else { break };
            if (adds || key.is_none()) && !batch.is_empty() {
                break;
            }
            *place += 1;
            let ts = Timestamp::new(ts).ok_or(PushError::NoTimestamp)?;
            let Some(key) = key else {
                return Ok(producer.push(*port, Key::Null, ts, &id.to_le_bytes())? == Flow::Open);
            };
            if count == 1 {
                let flow = producer.push(*port, Key::Int(key), ts, &id.to_le_bytes())?;
                return Ok(flow == Flow::Open);
            }
            batch.push(&self.hasher, Key::Int(key), ts, &id.to_le_bytes())?;
        }
        Ok(producer.push_batch(*port, &batch)? == Flow::Open)
    }

    /// All sources of a core have ended: when everything is sent, its producer goes.
    fn end_core(&mut self, index: usize) -> Result<(), PushError> {
        let core = &mut self.cores[index];
        if let Some(producer) = &mut core.producer
            && producer.flush()? == Flow::Open
        {
            self.parked += producer.counters().parked;
            core.producer = None;
        }
        Ok(())
    }
}

fn splitter(spec: &JoinSpec, schedule: &Schedule) -> Option<Splitter> {
    Splitter::new(SplitPlan {
        hot_keys: schedule.hot_keys,
        spreads: spec.spread_sides().ok()?,
        interval: spec.interval(),
        allowed: spec.lateness().allowed,
        shard_count: schedule.shard_count,
        seed: schedule.seed,
    })
}

/// Collects results under the ids that rows carry.
struct Collector {
    outputs: Vec<Output>,
    fails_at: Option<u64>,
}

fn id_of(event: Event<'_>) -> u64 {
    event.row.try_into().map_or(u64::MAX, u64::from_le_bytes)
}

impl Emit for Collector {
    fn pair(&mut self, left: Event<'_>, right: Event<'_>) {
        self.pair_at(left, right, left.ts.max(right.ts));
    }

    fn pair_at(&mut self, left: Event<'_>, right: Event<'_>, ts: i64) {
        self.outputs.push(Output::Pair { left: id_of(left), right: id_of(right), ts });
    }

    fn single(&mut self, side: Side, event: Event<'_>) {
        self.outputs.push(Output::Single { side, id: id_of(event) });
    }

    fn late(&mut self, side: Side, event: Event<'_>, lag: i64) {
        self.outputs.push(Output::Late { side, id: id_of(event), lag });
    }
}

impl Sink for Collector {
    fn flush(&mut self) -> Result<(), SinkError> {
        match self.fails_at {
            Some(count) if self.outputs.len() as u64 >= count => {
                Err(SinkError { message: "the simulated sink failed".to_owned(), closed: false })
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for SimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SimError::Shard(error) => error.fmt(f),
            SimError::Push(error) => error.fmt(f),
            SimError::Spec(error) => error.fmt(f),
            SimError::Stuck { turns } => write!(f, "nobody got anywhere in {turns} turns"),
        }
    }
}

impl std::error::Error for SimError {}
