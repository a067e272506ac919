//! Chains of joins against the reference: streams of random rows, keys and intervals.

use std::sync::mpsc;

use proptest::prelude::*;

use intervale::engine::{
    Chain, ChainFinished, ChainSink, Ending, Engine, EngineError, JoinedRow, Source, Stream, Then,
};
use intervale::error::JoinError;
use intervale::event::{Event, Key, KeyKind, Side};
use intervale::exchange::{Promise, WhenFull};
use intervale::join::oracle::{ChainStage, chain};
use intervale::join::{JoinKind, JoinSpec, SinkError, Window};
use intervale::limits::Limits;
use intervale::runtime::{CoreChoice, RuntimeChoice};
use intervale::time::{Bound, LatePolicy, Lateness, LatenessClock};

use crate::support::RUNTIMES;

/// A row of any stream: its time, and a number for each stage that makes its key there.
#[derive(Clone, Copy, Debug)]
struct Row {
    ts: i64,
    keys: [u8; 4],
}

/// A stage as it is drawn: the anchor, the interval, whether it pads, and of which stream the key is.
#[derive(Clone, Copy, Debug)]
struct Stage {
    anchor: usize,
    lo: i64,
    hi: i64,
    pads: bool,
    key_of: usize,
}

/// Keys of this number are null.
const NULL: u8 = 3;
/// Rows lie at most so far behind the largest time before them.
const DISORDER: i64 = 8;

fn bytes(row: Row, place: usize) -> Vec<u8> {
    [&row.keys[..], &(place as u64).to_le_bytes()].concat()
}

fn key_at(row: &[u8], stage: usize) -> Option<u64> {
    row.get(stage).filter(|&&key| key != NULL).map(|&key| u64::from(key))
}

fn place_of(row: &[u8]) -> usize {
    u64::from_le_bytes(row[4..12].try_into().unwrap()) as usize
}

#[derive(Debug, Default)]
struct Collect {
    rows: Vec<Vec<Option<usize>>>,
    late: Vec<(usize, usize, i64)>,
    watermark: Option<i64>,
    finished: bool,
    fails_at: Option<usize>,
    panics_at: Option<usize>,
    closes_at: Option<usize>,
}

impl ChainSink for Collect {
    fn row(&mut self, row: JoinedRow<'_>) {
        assert!(self.watermark.is_none_or(|watermark| row.ts() >= watermark), "late downstream");
        self.rows.push(row.parts().map(|part| part.map(|part| place_of(part.row))).collect());
        assert_ne!(Some(self.rows.len()), self.panics_at, "planned");
    }

    fn late(&mut self, stream: Stream, event: Event<'_>, lag: i64) {
        self.late.push((stream.index(), place_of(event.row), lag));
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        let over = |at: Option<usize>| at.is_some_and(|at| self.rows.len() >= at);
        if over(self.fails_at) || over(self.closes_at) {
            let closed = self.fails_at.is_none();
            return Err(SinkError { message: "the disk is full".to_owned(), closed });
        }
        Ok(())
    }

    fn output_watermark(&mut self, watermark: i64) -> Result<(), SinkError> {
        self.watermark = Some(watermark);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.finished = true;
        self.flush()
    }
}

fn spec(stage: Stage, lateness: Lateness) -> JoinSpec {
    JoinSpec::between(Bound::Closed(stage.lo), Bound::Closed(stage.hi))
        .kind(if stage.pads { JoinKind::Left } else { JoinKind::Inner })
        .lateness(lateness)
        .build(&Limits::default())
        .unwrap()
}

struct Setting {
    shards: usize,
    runtime: RuntimeChoice,
    clock: LatenessClock,
    lane_batches: usize,
    batch_events: usize,
    limits: Limits,
    policy: LatePolicy,
    in_steps: bool,
}

impl Setting {
    fn new(shards: usize, runtime: RuntimeChoice) -> Setting {
        Setting {
            shards,
            runtime,
            clock: LatenessClock::Merged,
            lane_batches: 64,
            batch_events: 256,
            limits: Limits::default(),
            policy: LatePolicy::Fail,
            in_steps: false,
        }
    }

    fn start(
        &self,
        stages: &[Stage],
        sinks: impl FnMut(usize) -> Collect,
    ) -> Result<Chain<Collect>, EngineError> {
        let lateness = Lateness { policy: self.policy, clock: self.clock, allowed: 0 };
        let mut then = stages[1..].iter().zip(1..).map(|(&stage, number)| {
            let key_of = Stream::of_index(stage.key_of);
            Then::new(spec(stage, lateness), Stream::of_index(stage.anchor), move |row, _| {
                let part = row.part(key_of);
                part.and_then(|part| key_at(part.row, number)).map_or(Key::Null, Key::Int)
            })
        });
        let engine = Engine::builder(spec(stages[0], lateness))
            .cores(CoreChoice::count(self.shards).unwrap())
            .runtime(self.runtime)
            .lane_batches(self.lane_batches)
            .batch_events(self.batch_events)
            .limits(self.limits)
            .when_full(WhenFull::Wait);
        let first = engine.then(then.next().unwrap());
        then.fold(first, |builder, then| builder.then(then)).sinks(sinks).start()
    }

    fn run(&self, stages: &[Stage], streams: &[Vec<Row>]) -> ChainFinished<Collect> {
        let chain = self.start(stages, |_| Collect::default()).unwrap();
        if self.in_steps {
            push_in_steps(&chain, streams);
        } else {
            push_all(&chain, streams);
        }
        chain.finish().unwrap()
    }
}

fn push(source: &mut Source, stage: usize, place: usize, row: Row) {
    let key = key_at(&row.keys, stage).map_or(Key::Null, Key::Int);
    source.push(key, row.ts, &bytes(row, place)).unwrap();
}

/// Each stream from a thread of its own.
fn push_all(chain: &Chain<Collect>, streams: &[Vec<Row>]) {
    let sources: Vec<_> = (0..streams.len())
        .map(|stream| {
            let promise = Promise::Disorder(DISORDER);
            chain.source_with(Stream::of_index(stream), promise).unwrap()
        })
        .collect();
    std::thread::scope(|scope| {
        for ((stream, rows), mut source) in streams.iter().enumerate().zip(sources) {
            scope.spawn(move || {
                for (place, &row) in rows.iter().enumerate() {
                    push(&mut source, Stream::of_index(stream).stage(), place, row);
                }
                source.finish().unwrap();
            });
        }
    });
}

/// All streams from one thread, in the order of their times, with a barrier behind every row or two;
/// each promises all that it can: watermarks are as far as they can be.
fn push_in_steps(chain: &Chain<Collect>, streams: &[Vec<Row>]) {
    let mut sources: Vec<_> = (0..streams.len())
        .map(|stream| Some(chain.source(Stream::of_index(stream)).unwrap()))
        .collect();
    let mut places = vec![0; streams.len()];
    let mut pushed = 0;
    loop {
        for stream in 0..streams.len() {
            if places[stream] == streams[stream].len()
                && let Some(source) = sources[stream].take()
            {
                source.finish().unwrap();
            }
        }
        let next = |stream: &usize| streams[*stream].get(places[*stream]).map(|row| row.ts);
        let open = (0..streams.len()).filter(|stream| next(stream).is_some());
        let Some(stream) = open.min_by_key(next) else { break };
        let (place, source) = (places[stream], sources[stream].as_mut().unwrap());
        push(source, Stream::of_index(stream).stage(), place, streams[stream][place]);
        places[stream] += 1;
        if let Some(least) = streams[stream][places[stream]..].iter().map(|row| row.ts).min() {
            source.watermark(least).unwrap();
        }
        pushed += 1;
        if pushed % 2 == 0 {
            chain.flush().unwrap();
        }
    }
}

fn sorted(mut rows: Vec<Vec<Option<usize>>>) -> Vec<Vec<Option<usize>>> {
    rows.sort();
    rows
}

fn rows_of(finished: &ChainFinished<Collect>) -> Vec<Vec<Option<usize>>> {
    sorted(finished.sinks.iter().flat_map(|sink| sink.rows.clone()).collect())
}

fn expected(stages: &[Stage], streams: &[Vec<Row>]) -> Vec<Vec<Option<usize>>> {
    let times: Vec<Vec<i64>> =
        streams.iter().map(|rows| rows.iter().map(|row| row.ts).collect()).collect();
    let key = |stream: usize, place: usize, stage: usize| {
        key_at(&streams[stream][place].keys, stage).map(|key| key.to_le_bytes().to_vec())
    };
    let stages: Vec<_> = stages
        .iter()
        .enumerate()
        .map(|(number, &stage)| ChainStage {
            spec: spec(stage, Lateness::default()),
            anchor: stage.anchor,
            left_key: Box::new(move |row| key(stage.key_of, row[stage.key_of]?, number)),
            right_key: Box::new(move |place| key(number + 1, place, number)),
            condition: None,
        })
        .collect();
    sorted(chain(&times, &stages))
}

/// Times ascend with a disorder below the one that sources allow for.
fn stream(rows: usize) -> impl Strategy<Value = Vec<Row>> {
    let row = (0_i64..4, 0..DISORDER, prop::array::uniform4(0_u8..=NULL));
    prop::collection::vec(row, 0..rows).prop_map(|rows| {
        let mut time = -20;
        let ascend = rows.into_iter().map(|(step, behind, keys)| {
            time += step;
            Row { ts: time - behind, keys }
        });
        ascend.collect()
    })
}

fn stage(number: usize) -> impl Strategy<Value = Stage> {
    (0..=number, -12_i64..12, 0_i64..12, any::<bool>(), 0..=number).prop_map(
        |(anchor, lo, width, pads, key_of)| Stage { anchor, lo, hi: lo + width, pads, key_of },
    )
}

fn chains(count: usize, rows: usize) -> impl Strategy<Value = (Vec<Stage>, Vec<Vec<Row>>)> {
    let stages: Vec<_> = (0..count).map(stage).collect();
    let streams: Vec<_> = (0..=count).map(|_| stream(rows)).collect();
    (stages, streams)
}

fn check(stages: &[Stage], streams: &[Vec<Row>], setting: &Setting) -> Result<(), TestCaseError> {
    let finished = setting.run(stages, streams);
    prop_assert_eq!(rows_of(&finished), expected(stages, streams));
    prop_assert!(finished.sinks.iter().all(|sink| sink.finished && sink.late.is_empty()));
    for (stage, report) in finished.reports.iter().enumerate() {
        prop_assert_eq!(report.counters.side(Side::Right).rows, streams[stage + 1].len() as u64);
        prop_assert_eq!(report.counters.side(Side::Left).late, 0);
    }
    Ok(())
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn three_streams_are_what_nested_loops_find((stages, streams) in chains(2, 40)) {
        for shards in [1, 2, 4] {
            for runtime in RUNTIMES {
                check(&stages, &streams, &Setting::new(shards, runtime))?;
            }
        }
    }

    #[test]
    fn five_streams_are_what_nested_loops_find((stages, streams) in chains(4, 25)) {
        for shards in [1, 2, 4] {
            check(&stages, &streams, &Setting::new(shards, RuntimeChoice::Threads))?;
        }
        check(&stages, &streams, &Setting::new(2, RuntimeChoice::Auto))?;
    }

    #[test]
    fn no_row_is_late_in_a_later_stage_however_far_watermarks_are(
        (stages, streams) in chains(4, 15),
        own in any::<bool>(),
    ) {
        let clock = if own { LatenessClock::Own } else { LatenessClock::Merged };
        let threads = Setting::new(2, RuntimeChoice::Threads);
        check(&stages, &streams, &Setting { clock, in_steps: true, ..threads })?;
    }

    #[test]
    fn lateness_judged_at_the_source_and_lanes_of_one_event_change_nothing(
        (stages, streams) in chains(3, 30),
    ) {
        let setting = Setting {
            clock: LatenessClock::Own,
            lane_batches: 1,
            batch_events: 1,
            ..Setting::new(2, RuntimeChoice::Threads)
        };
        check(&stages, &streams, &setting)?;
    }
}

const CHAIN: [Stage; 3] = [
    Stage { anchor: 0, lo: 0, hi: 10, pads: false, key_of: 0 },
    Stage { anchor: 1, lo: -10, hi: 10, pads: false, key_of: 0 },
    Stage { anchor: 0, lo: 0, hi: 20, pads: false, key_of: 2 },
];

/// So many rows a stream that each has partners in all others.
fn dense(count: usize) -> Vec<Vec<Row>> {
    let row = |place: usize| Row { ts: place as i64, keys: [(place % 3) as u8; 4] };
    vec![(0..count).map(row).collect(); 4]
}

#[test]
fn more_than_the_lanes_hold_comes_through_whole() {
    let streams = dense(600);
    for runtime in RUNTIMES {
        let setting = Setting { lane_batches: 1, batch_events: 2, ..Setting::new(2, runtime) };
        let finished = setting.run(&CHAIN, &streams);
        assert_eq!(rows_of(&finished), expected(&CHAIN, &streams));
        assert_eq!(finished.ending(), Ending::Complete);
    }
}

#[test]
fn a_stream_that_stands_still_holds_the_others_and_not_for_ever() {
    let streams = dense(300);
    let limits = Limits { state_bytes_max: Some(4 << 20), ..Limits::UNBOUNDED };
    let setting = Setting { limits, ..Setting::new(2, RuntimeChoice::Threads) };
    let chain = setting.start(&CHAIN, |_| Collect::default()).unwrap();
    let (done, others) = mpsc::channel();
    let last = chain.source_with(Stream::then(2), Promise::Disorder(0)).unwrap();
    let sources: Vec<_> = (0..3)
        .map(|stream| chain.source_with(Stream::of_index(stream), Promise::Disorder(0)).unwrap())
        .collect();
    std::thread::scope(|scope| {
        for (stream, mut source) in sources.into_iter().enumerate() {
            let (done, rows) = (done.clone(), &streams[stream]);
            scope.spawn(move || {
                for (place, &row) in rows.iter().enumerate() {
                    push(&mut source, Stream::of_index(stream).stage(), place, row);
                }
                source.finish().unwrap();
                done.send(()).unwrap();
            });
        }
        // The last stream says nothing until all the others are through.
        (0..3).for_each(|_| others.recv().unwrap());
        let mut last = last;
        for (place, &row) in streams[3].iter().enumerate() {
            push(&mut last, 2, place, row);
        }
        last.finish().unwrap();
    });
    assert_eq!(rows_of(&chain.finish().unwrap()), expected(&CHAIN, &streams));
}

#[test]
fn state_that_is_full_in_a_later_stage_stops_all_with_the_cause() {
    let limits = Limits { state_bytes_max: Some(1 << 20), ..Limits::UNBOUNDED };
    let setting = Setting { limits, ..Setting::new(2, RuntimeChoice::Threads) };
    let wide = [CHAIN[0], Stage { lo: -1_000_000, hi: 1_000_000, ..CHAIN[1] }, CHAIN[2]];
    let chain = setting.start(&wide, |_| Collect::default()).unwrap();
    let mut left = chain.source(Stream::LEFT).unwrap();
    let mut right = chain.source(Stream::RIGHT).unwrap();
    let silent = [1, 2].map(|number| chain.source(Stream::then(number)).unwrap());
    // One row and very many partners: what the first stage makes of it is too much for the second.
    let row = Row { ts: 0, keys: [0; 4] };
    let mut refused = None;
    for place in 0..200_000 {
        for source in [&mut left, &mut right] {
            let pushed = source.try_push(Key::Int(0), 0, &bytes(row, place));
            refused = refused
                .or(pushed.err().filter(|error| *error == intervale::error::PushError::Stopped));
        }
        if refused.is_some() {
            break;
        }
    }
    assert!(refused.is_some(), "the chain took it all");
    drop((left, right, silent));
    let error = chain.finish().unwrap_err();
    let EngineError::Stage { error, .. } = &error else { panic!("{error}") };
    let full = matches!(**error, EngineError::Join { error: JoinError::StateFull { .. }, .. });
    assert!(full, "{error}");
}

#[test]
fn a_sink_that_fails_in_the_last_stage_stops_all_with_the_cause() {
    for runtime in RUNTIMES {
        let setting = Setting::new(2, runtime);
        let sink = |_| Collect { fails_at: Some(1), ..Collect::default() };
        let chain = setting.start(&CHAIN, sink).unwrap();
        let pushed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            push_all(&chain, &dense(2_000));
        }));
        drop(pushed);
        let error = chain.finish().unwrap_err();
        let EngineError::Sink { error, .. } = &error else { panic!("{error}") };
        assert_eq!(error.message, "the disk is full");
    }
}

#[test]
fn a_panic_in_the_last_stage_stops_all_with_the_cause() {
    let setting = Setting::new(2, RuntimeChoice::Threads);
    let sink = |_| Collect { panics_at: Some(5), ..Collect::default() };
    let chain = setting.start(&CHAIN, sink).unwrap();
    let pushed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        push_all(&chain, &dense(500));
    }));
    drop(pushed);
    let error = chain.finish().unwrap_err();
    assert!(matches!(error, EngineError::Panicked { .. }), "{error}");
    assert!(error.to_string().contains("planned"), "{error}");
}

#[test]
fn a_reader_that_goes_away_is_an_end_and_no_fault() {
    let setting = Setting::new(2, RuntimeChoice::Threads);
    let sink = |_| Collect { closes_at: Some(1), ..Collect::default() };
    let chain = setting.start(&CHAIN, sink).unwrap();
    let pushed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        push_all(&chain, &dense(500));
    }));
    drop(pushed);
    assert_eq!(chain.finish().unwrap().ending(), Ending::SinkClosed);
}

#[test]
fn a_late_row_of_any_stream_gets_to_the_sink_with_its_stream() {
    let setting = Setting {
        policy: LatePolicy::Output,
        clock: LatenessClock::Own,
        ..Setting::new(2, RuntimeChoice::Threads)
    };
    let chain = setting.start(&CHAIN, |_| Collect::default()).unwrap();
    for stream in (0..4).map(Stream::of_index) {
        let mut source = chain.source(stream).unwrap();
        source.watermark(100).unwrap();
        push(&mut source, stream.stage(), stream.index(), Row { ts: 90, keys: [1; 4] });
        source.finish().unwrap();
    }
    let finished = chain.finish().unwrap();
    let mut late: Vec<_> = finished.sinks.iter().flat_map(|sink| sink.late.clone()).collect();
    late.sort_unstable();
    assert_eq!(late, [0, 1, 2, 3].map(|stream| (stream, stream, 10)));
}

#[test]
fn a_barrier_waits_for_all_stages() {
    for runtime in RUNTIMES {
        let setting = Setting::new(2, runtime);
        let (found, rows) = mpsc::channel();
        struct Sending(mpsc::Sender<usize>);
        impl ChainSink for Sending {
            fn row(&mut self, row: JoinedRow<'_>) {
                self.0.send(row.streams()).unwrap();
            }
        }
        let then = |number: usize| {
            Then::new(spec(CHAIN[0], Lateness::default()), Stream::LEFT, move |row, _| {
                let part = row.part(Stream::LEFT);
                part.and_then(|part| key_at(part.row, number)).map_or(Key::Null, Key::Int)
            })
        };
        let chain = Engine::builder(spec(CHAIN[0], Lateness::default()))
            .cores(CoreChoice::count(setting.shards).unwrap())
            .runtime(runtime)
            .then(then(1))
            .then(then(2))
            .sinks(|_| Sending(found.clone()))
            .start()
            .unwrap();
        let mut sources: Vec<_> =
            (0..4).map(|stream| chain.source(Stream::of_index(stream)).unwrap()).collect();
        for round in 0..50 {
            for (stream, source) in sources.iter_mut().enumerate() {
                let row = Row { ts: round * 100, keys: [(round % 3) as u8; 4] };
                push(source, Stream::of_index(stream).stage(), 0, row);
            }
            chain.flush().unwrap();
            assert_eq!(rows.try_iter().collect::<Vec<_>>(), [4], "round {round}");
        }
        assert!(chain.metrics().iter().flatten().all(|metrics| metrics.counters.pairs == 50));
        drop(sources);
        assert_eq!(chain.finish().unwrap().reports.len(), 3);
    }
}

#[test]
fn a_chain_that_is_stopped_says_so() {
    let chain = Setting::new(2, RuntimeChoice::Threads);
    let chain = chain.start(&CHAIN, |_| Collect::default()).unwrap();
    let mut left = chain.source(Stream::LEFT).unwrap();
    push(&mut left, 0, 0, Row { ts: 1, keys: [1; 4] });
    let finished = chain.shutdown().unwrap();
    assert_eq!(finished.ending(), Ending::Stopped);
    assert!(finished.sinks.iter().all(|sink| !sink.finished));
    assert!(left.flush().is_err());
}

#[test]
fn what_is_no_chain_is_refused() {
    let build = |stage: Then| {
        let start = Engine::builder(spec(CHAIN[0], Lateness::default())).then(stage);
        start.sinks(|_| Collect::default()).start().map(drop).unwrap_err()
    };
    fn key<'a>(_: JoinedRow<'a>, _: &'a mut Vec<u8>) -> Key<'a> {
        Key::Null
    }
    let between = || JoinSpec::between(Bound::Closed(0), Bound::Closed(1));
    let of = |builder: intervale::join::JoinSpecBuilder| builder.build(&Limits::default()).unwrap();
    for (stage, word) in [
        (Then::new(of(between()), Stream::then(1), key), "comes after it"),
        (
            Then::new(
                of(between()
                    .lateness(Lateness { policy: LatePolicy::Join, ..Lateness::default() })),
                Stream::LEFT,
                key,
            ),
            "all stages",
        ),
    ] {
        let error = build(stage);
        assert!(matches!(error, EngineError::Chain(_)), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
    // Behind a session window one side says nothing about the times of the other.
    let session = || of(JoinSpec::window(Window::session(5)));
    let chain_of = |anchors: [Stream; 2]| {
        Engine::builder(session())
            .then(Then::new(of(between()), anchors[0], key))
            .then(Then::new(of(between()), anchors[1], key))
            .sinks(|_| Collect::default())
            .start()
            .map(drop)
    };
    for anchors in [[Stream::RIGHT, Stream::LEFT], [Stream::LEFT, Stream::RIGHT]] {
        let error = chain_of(anchors).unwrap_err();
        assert!(error.to_string().contains("session"), "{error}");
    }
    assert!(chain_of([Stream::RIGHT, Stream::RIGHT]).is_ok());
    assert!(chain_of([Stream::LEFT, Stream::LEFT]).is_ok());
    let keys = of(between().keys(KeyKind::Bytes));
    let chain = Engine::builder(spec(CHAIN[0], Lateness::default()))
        .then(Then::new(keys, Stream::LEFT, key))
        .sinks(|_| Collect::default())
        .start()
        .unwrap();
    assert!(chain.source(Stream::then(2)).is_err());
}
