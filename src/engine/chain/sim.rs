//! The simulator of chains: the workers of all cores and the sources of all streams on one thread,
//! in an order drawn from a seed.
//!
//! It steps the very workers that threads would run, with all their stages, lanes and hand-overs,
//! and decides itself who takes the next turn. Some stall for a while, lanes are as small as one
//! batch, sources fall silent, and some are added while all is running. No turn looks at a clock,
//! so the same seed gives the same run.

mod draw;
mod tests;

use std::time::Duration;

use crate::engine::chain::{ChainBuilder, ChainSink, JoinedRow, Last, Part, Stream, side_of};
use crate::engine::error::Fault;
use crate::engine::source::Served;
use crate::engine::worker::EngineWorker;
use crate::engine::{Engine, EngineError, NoSinks, Report, Source, Then};
use crate::error::{JoinError, PushError, SourceError};
use crate::event::{Event, Key, Side};
use crate::exchange::{
    Feed, FeedProgress, Flow, PortId, Producer, Promise, WatermarkSlot, WhenFull,
};
use crate::join::{AnyJoin, JoinSpec, SinkError};
use crate::limits::Limits;
use crate::runtime::sim::Rng;
use crate::runtime::{End, Ended, Placement, RuntimeKind, StepOutcome, Worker};
use crate::time::{Clock, Timestamp};

/// Streams of a scenario at the most, and keys of a row: one for each stage.
const STAGES_MAX: usize = 4;

/// A row of any stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    ts: i64,
    /// What it is called in each stage; [`NULL`] is no key.
    keys: [u8; STAGES_MAX],
}

const NULL: u8 = u8::MAX;

impl Row {
    fn key(&self, stage: usize) -> Option<u64> {
        Some(self.keys[stage]).filter(|key| *key != NULL).map(u64::from)
    }

    fn bytes(&self) -> [u8; STAGES_MAX + 8] {
        let mut bytes = [0; STAGES_MAX + 8];
        bytes[..STAGES_MAX].copy_from_slice(&self.keys);
        bytes[STAGES_MAX..].copy_from_slice(&self.ts.to_le_bytes());
        bytes
    }

    fn of(bytes: &[u8]) -> Row {
        let (keys, ts) = bytes.split_first_chunk().expect("keys");
        Row { ts: i64::from_le_bytes(ts.try_into().expect("a time")), keys: *keys }
    }
}

/// One thing that a source says.
#[derive(Clone, Copy, Debug)]
enum Op {
    Row(Row),
    /// It falls silent until its next row.
    Idle,
}

/// One source of a stream.
#[derive(Clone, Debug)]
struct SimSource {
    stream: usize,
    /// Its watermark trails the largest time seen by this many ticks.
    disorder: i64,
    script: Vec<Op>,
    /// It is added when source `.0` has come to place `.1` of its script.
    added_at: Option<(usize, usize)>,
    /// A core asks it for rows; else it is a handle that pushes.
    is_feed: bool,
}

/// A stage: what it is, the stream whose time it is relative to, and the one whose keys are its.
#[derive(Clone, Debug)]
struct SimStage {
    spec: JoinSpec,
    anchor: usize,
    key_of: usize,
}

#[derive(Clone, Debug)]
struct Scenario {
    stages: Vec<SimStage>,
    sources: Vec<SimSource>,
}

/// How it is run.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    seed: u64,
    shard_count: usize,
    lane_batches: usize,
    batch_events: usize,
    max_drift: Option<i64>,
    limits: Limits,
    sink_fails_at: Option<usize>,
}

/// A row for each stream, or none.
type Joined = Vec<Option<Row>>;

/// The sink of one core.
#[derive(Debug, Default)]
struct Collect {
    rows: Vec<Joined>,
    late: Vec<(usize, Row, i64)>,
    watermark: Option<i64>,
    is_finished: bool,
    fails_at: Option<usize>,
}

impl ChainSink for Collect {
    fn row(&mut self, row: JoinedRow<'_>) {
        assert!(self.watermark.is_none_or(|watermark| row.ts() >= watermark), "late downstream");
        let part = |part: Part<'_>| {
            let row = Row::of(part.row);
            assert_eq!(part.ts, row.ts);
            row
        };
        self.rows.push(row.parts().map(|it| it.map(part)).collect());
    }

    fn late(&mut self, stream: Stream, event: Event<'_>, lag: i64) {
        self.late.push((stream.index(), Row::of(event.row), lag));
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        match self.fails_at {
            Some(count) if self.rows.len() >= count => {
                Err(SinkError { message: "the simulated sink failed".to_owned(), closed: false })
            }
            _ => Ok(()),
        }
    }

    fn output_watermark(&mut self, watermark: i64) -> Result<(), SinkError> {
        self.watermark = Some(watermark);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.is_finished = true;
        self.flush()
    }
}

/// What came out.
#[derive(Debug)]
struct Outcome {
    rows: Vec<Joined>,
    late: Vec<(usize, Row, i64)>,
    reports: Vec<Report>,
    state_rows_peak: u64,
    state_bytes_peak: u64,
    turns: u64,
    /// Pushes that found no room.
    refused: u64,
}

/// More turns than any scenario of a sane size needs.
const TURNS_MAX: u64 = 2_000_000;

/// Runs a scenario to its end.
fn run(scenario: &Scenario, schedule: &Schedule) -> Result<Outcome, EngineError> {
    let mut sim = Sim::new(scenario, schedule)?;
    while sim.cores.iter().any(|core| core.end.is_none()) {
        sim.turn()?;
        assert!(sim.turns < TURNS_MAX, "nobody gets anywhere any more: {scenario:?} {schedule:?}");
    }
    sim.conclude()
}

struct Sim<'a> {
    scenario: &'a Scenario,
    rng: Rng,
    engine: Engine<Last<Collect>, AnyJoin>,
    cores: Vec<Core>,
    handles: Vec<Handle>,
    turns: u64,
    refused: u64,
    /// Pushes that state had no room for since one was taken.
    full: u64,
}

/// So many in a row, and it is full for good.
const FULL_MAX: u64 = 1000;

struct Core {
    worker: EngineWorker<Last<Collect>, AnyJoin>,
    end: Option<End<Fault>>,
    stalled_until: u64,
}

/// A source that pushes.
struct Handle {
    source: usize,
    place: usize,
    /// `None` before it is added and after it has ended.
    own: Option<Source>,
    stalled_until: u64,
}

impl<'a> Sim<'a> {
    fn new(scenario: &'a Scenario, schedule: &Schedule) -> Result<Sim<'a>, EngineError> {
        let mut rng = Rng::new(schedule.seed);
        let builder = builder(scenario, schedule, &mut rng);
        let fails_at = schedule.sink_fails_at;
        let builder = builder.sinks(move |_| Collect { fails_at, ..Collect::default() });
        let (assembly, operators, mut lasts) = builder.parts()?;
        let cpus = vec![None; schedule.shard_count];
        let placement = Placement { cpus, oversubscribed: false, notes: Vec::new() };
        let (engine, workers) = assembly.put_together(
            &placement,
            |stage, _, hasher, limits| operators.make(stage, hasher, limits),
            |core, late| lasts.make(core, late),
        )?;
        let core = |worker| Core { worker, end: None, stalled_until: 0 };
        let cores = workers.into_iter().map(core).collect();
        let pushing = (0..scenario.sources.len()).filter(|&at| !scenario.sources[at].is_feed);
        let handle = |source| Handle { source, place: 0, own: None, stalled_until: 0 };
        let handles = pushing.map(handle).collect();
        let mut sim = Sim { scenario, rng, engine, cores, handles, turns: 0, refused: 0, full: 0 };
        sim.add_sources(None)?;
        Ok(sim)
    }

    /// Adds the handles that appear now, and seals when all are there.
    fn add_sources(&mut self, now: Option<(usize, usize)>) -> Result<(), EngineError> {
        let Sim { scenario, engine, handles, .. } = self;
        for handle in handles.iter_mut() {
            let SimSource { stream, disorder, added_at, .. } = scenario.sources[handle.source];
            if added_at != now || handle.own.is_some() || handle.place > 0 {
                continue;
            }
            let stream = Stream::of_index(stream);
            let promise = Promise::Disorder(disorder);
            let source = engine.source_of_stage(stream.stage(), side_of(stream), promise)?;
            handle.own = Some(source);
        }
        let count = |side| engine.stages.iter().map(|it| it.watermarks.source_count(side)).sum();
        let sources: [usize; 2] = Side::BOTH.map(count);
        let handed = (engine.stages.len() - 1) * engine.cores.len();
        if sources.iter().sum::<usize>() == scenario.sources.len() + handed {
            engine.seal();
        }
        Ok(())
    }

    /// One actor, drawn by lot, takes a turn.
    fn turn(&mut self) -> Result<(), EngineError> {
        self.turns += 1;
        let actor = self.rng.below((self.cores.len() + self.handles.len() + 1) as u64) as usize;
        let stall = if self.rng.one_in(50) { self.turns + self.rng.below(300) } else { 0 };
        if let Some(core) = self.cores.get_mut(actor) {
            core.stalled_until = core.stalled_until.max(stall);
            if core.stalled_until <= self.turns && core.end.is_none() {
                core.end = match core.worker.step() {
                    StepOutcome::Busy | StepOutcome::Idle => None,
                    StepOutcome::Done => Some(End::Done),
                    StepOutcome::Failed(fault) => {
                        self.engine.shared.control.stop();
                        Some(End::Failed(fault))
                    }
                };
                self.stop_if_told();
            }
            return Ok(());
        }
        let index = actor - self.cores.len();
        if let Some(handle) = self.handles.get_mut(index) {
            handle.stalled_until = handle.stalled_until.max(stall);
            if handle.stalled_until <= self.turns {
                return self.handle_turn(index);
            }
            return Ok(());
        }
        self.send_what_lingers();
        Ok(())
    }

    /// As the cores would do after a while.
    fn send_what_lingers(&mut self) {
        for cell in self.engine.shared.registry.all() {
            if self.rng.one_in(2) {
                let _: Served = cell.serve(u64::MAX - 1, 0);
            }
        }
    }

    fn stop_if_told(&mut self) {
        if self.engine.shared.control.is_stopped() {
            for core in self.cores.iter_mut().filter(|core| core.end.is_none()) {
                core.end = Some(match core.worker.stop() {
                    Ok(()) => End::Stopped,
                    Err(fault) => End::Failed(fault),
                });
            }
        }
    }

    /// A source says the next things of its script, or ends.
    fn handle_turn(&mut self, index: usize) -> Result<(), EngineError> {
        for _ in 0..=self.rng.below(8) {
            let Handle { source, place, .. } = self.handles[index];
            if self.handles[index].own.is_none() {
                return Ok(());
            }
            self.add_sources(Some((source, place)))?;
            let handle = &mut self.handles[index];
            let Some(own) = &mut handle.own else { return Ok(()) };
            let SimSource { script, stream, .. } = &self.scenario.sources[source];
            let said = match script.get(place) {
                None => {
                    handle.place = usize::MAX;
                    handle.own.take().map_or(Ok(()), Source::finish)
                }
                Some(Op::Idle) => own.idle(),
                Some(Op::Row(row)) => {
                    let key = row.key(Stream::of_index(*stream).stage());
                    own.try_push(key.map_or(Key::Null, Key::Int), row.ts, &row.bytes())
                }
            };
            match said {
                Ok(()) => {
                    handle.place = handle.place.saturating_add(1);
                    self.full = 0;
                    if self.rng.one_in(3) {
                        self.send_what_lingers();
                    }
                }
                // Later; or there is nobody left, who says why.
                Err(PushError::Backpressure | PushError::Stopped) => {
                    self.refused += 1;
                    return Ok(());
                }
                // Others may promise more, or nobody can.
                Err(PushError::StateFull { bytes, bytes_max }) => {
                    self.full += 1;
                    let error = JoinError::StateFull { bytes, bytes_max };
                    let is_over = self.full > FULL_MAX;
                    return if is_over {
                        Err(EngineError::Join { shard: 0, error })
                    } else {
                        Ok(())
                    };
                }
                Err(error) => panic!("{error}"),
            }
        }
        Ok(())
    }

    fn conclude(self) -> Result<Outcome, EngineError> {
        let Sim { engine, cores, handles, turns, refused, .. } = self;
        drop(handles);
        let ended = cores
            .into_iter()
            .filter_map(|Core { worker, end, .. }| Some(Ended { worker: Some(worker), end: end? }));
        let stages = engine.conclude_with(ended.collect(), RuntimeKind::Threads, &[])?;
        let (state_rows_peak, state_bytes_peak) = stages.state_peaks;
        let mut outcome = Outcome {
            rows: Vec::new(),
            late: Vec::new(),
            reports: stages.reports,
            state_rows_peak,
            state_bytes_peak,
            turns,
            refused,
        };
        for Last { sink, .. } in stages.sinks {
            assert!(sink.is_finished);
            outcome.rows.extend(sink.rows);
            outcome.late.extend(sink.late);
        }
        outcome.rows.sort_unstable();
        outcome.late.sort_unstable();
        Ok(outcome)
    }
}

/// The chain, with the feeds in it.
fn builder(scenario: &Scenario, schedule: &Schedule, rng: &mut Rng) -> ChainBuilder<NoSinks> {
    let mut builder = Engine::builder(scenario.stages[0].spec.clone())
        .lane_batches(schedule.lane_batches)
        .batch_events(schedule.batch_events)
        .limits(schedule.limits)
        .when_full(WhenFull::Wait)
        .linger(Duration::MAX);
    builder.settings.hash_seed = schedule.seed;
    builder.settings.max_drift = schedule.max_drift;
    let mut then = scenario.stages[1..].iter().zip(1..).map(|(stage, number)| {
        let of = Stream::of_index(stage.key_of);
        Then::new(stage.spec.clone(), Stream::of_index(stage.anchor), move |row, _| {
            let key = row.part(of).and_then(|part| Row::of(part.row).key(number));
            key.map_or(Key::Null, Key::Int)
        })
    });
    let first = builder.then(then.next().expect("a chain has two stages"));
    let mut builder = then.fold(first, ChainBuilder::then);
    for source in scenario.sources.iter().filter(|source| source.is_feed) {
        let stream = Stream::of_index(source.stream);
        // A stream is missing only where there is no such chain, which the start says.
        let Ok(slot) = builder.source_slot(stream) else { continue };
        let rng = Rng::new(rng.next_u64());
        builder = builder
            .feed(stream, Script { source: source.clone(), slot, port: None, place: 0, rng });
    }
    builder
}

/// A source that is asked.
struct Script {
    source: SimSource,
    slot: WatermarkSlot,
    port: Option<PortId>,
    place: usize,
    rng: Rng,
}

impl Feed for Script {
    fn poll(
        &mut self,
        producer: &mut Producer,
        _: &dyn Clock,
    ) -> Result<FeedProgress, SourceError> {
        let SimSource { script, stream, disorder, .. } = &self.source;
        let slot = &self.slot;
        let promise = Promise::Disorder(*disorder);
        let port = *self.port.get_or_insert_with(|| producer.add_port(slot.clone(), promise));
        let failed = |error: PushError| SourceError { message: error.to_string() };
        for _ in 0..=self.rng.below(8) {
            let flow = match script.get(self.place) {
                None => {
                    producer.finish(port);
                    let flow = producer.flush().map_err(failed)?;
                    return Ok(match flow {
                        Flow::Open => FeedProgress::Finished,
                        Flow::Blocked => FeedProgress::Blocked,
                    });
                }
                Some(Op::Idle) => {
                    producer.idle(port);
                    Flow::Open
                }
                Some(Op::Row(row)) => {
                    let key = row.key(Stream::of_index(*stream).stage());
                    let key = key.map_or(Key::Null, Key::Int);
                    let ts = Timestamp::new(row.ts).expect("an event's time");
                    producer.push(port, key, ts, &row.bytes()).map_err(failed)?
                }
            };
            self.place += 1;
            if flow == Flow::Blocked {
                return Ok(FeedProgress::Blocked);
            }
            // Its watermark gets about, too.
            if self.rng.one_in(3) && producer.flush().map_err(failed)? == Flow::Blocked {
                return Ok(FeedProgress::Blocked);
            }
            if self.rng.one_in(20) {
                return Ok(FeedProgress::Waiting);
            }
        }
        Ok(FeedProgress::Busy)
    }

    fn slot(&self) -> Option<&WatermarkSlot> {
        Some(&self.slot)
    }
}
