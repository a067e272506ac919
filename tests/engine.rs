//! The engine as a user meets it: both runtimes, 1, 2 and 8 shards, faults, ends, barriers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use intervale::engine::{Ending, Engine, EngineBuilder, EngineError, Finished, NoSinks, Source};
use intervale::error::{JoinError, PushError, SourceError};
use intervale::event::{Event, EventBatch, Key, KeyKind, Side};
use intervale::exchange::{Feed, FeedProgress, Flow, PortId, Producer, Promise, WatermarkSlot};
use intervale::join::{Counters, Emit, IntervalJoin, JoinKind, JoinSpec, Sink, SinkError};
use intervale::limits::Limits;
use intervale::runtime::{CoreChoice, IdleStrategy, RuntimeChoice};
use intervale::shard::Operator;
use intervale::time::{Bound, Clock, Lateness, LatenessClock};

const RUNTIMES: [RuntimeChoice; 2] = [RuntimeChoice::Threads, RuntimeChoice::Auto];
const SHARDS: [usize; 3] = [1, 2, 8];
/// Large against the disorder of [`events`], so that nothing is late.
const DISORDER: i64 = 64;

/// (key, time, number): the number is the row.
type Row = (u64, i64, u64);

/// Keeps what comes out; what it does beside is its plan.
#[derive(Debug, Default)]
struct Collect {
    pairs: Vec<(Row, Row)>,
    singles: Vec<(Side, Row)>,
    late: u64,
    finished: bool,
    fault: Option<SinkError>,
    panic_at: Option<usize>,
}

fn row(event: Event<'_>) -> Row {
    let key = match event.key {
        Key::Int(key) => key,
        Key::Bytes(bytes) => u64::from_le_bytes(bytes.try_into().unwrap()),
        Key::Null => u64::MAX,
    };
    (key, event.ts, u64::from_le_bytes(event.row.try_into().unwrap()))
}

impl Emit for Collect {
    fn pair(&mut self, left: Event<'_>, right: Event<'_>) {
        self.pairs.push((row(left), row(right)));
        assert_ne!(Some(self.pairs.len()), self.panic_at, "planned");
    }

    fn single(&mut self, side: Side, event: Event<'_>) {
        self.singles.push((side, row(event)));
    }

    fn late(&mut self, _: Side, _: Event<'_>, _: i64) {
        self.late += 1;
    }
}

impl Sink for Collect {
    fn flush(&mut self) -> Result<(), SinkError> {
        match &self.fault {
            Some(fault) if !self.pairs.is_empty() => Err(fault.clone()),
            _ => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.finished = true;
        self.flush()
    }
}

fn spec(kind: JoinKind, keys: KeyKind) -> JoinSpec {
    let between = JoinSpec::between(Bound::Closed(-20), Bound::Closed(30));
    between.kind(kind).keys(keys).build(&Limits::default()).unwrap()
}

fn builder(kind: JoinKind, shards: usize, runtime: RuntimeChoice) -> EngineBuilder<NoSinks> {
    Engine::builder(spec(kind, KeyKind::Int))
        .cores(CoreChoice::count(shards).unwrap())
        .runtime(runtime)
}

fn collect(_: usize) -> Collect {
    Collect::default()
}

/// Events of one side: times ascend with a disorder of less than 16, keys repeat.
fn events(seed: u64, count: u64) -> Vec<Row> {
    let mut state = seed;
    let mut next = |bound: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    (0..count)
        .map(|number| (next(97), (number / 4 + next(16)) as i64, seed << 32 | number))
        .collect()
}

fn nested_loop(left: &[Row], right: &[Row]) -> Vec<(Row, Row)> {
    let mut pairs = Vec::new();
    for &l in left {
        let partners = right.iter().filter(|r| r.0 == l.0 && (-20..=30).contains(&(r.1 - l.1)));
        pairs.extend(partners.map(|&r| (l, r)));
    }
    pairs.sort_unstable();
    pairs
}

fn pairs_of(finished: &Finished<Collect>) -> Vec<(Row, Row)> {
    let mut pairs: Vec<_> = finished.sinks.iter().flat_map(|sink| sink.pairs.clone()).collect();
    pairs.sort_unstable();
    pairs
}

fn push(source: &mut Source, &(key, ts, number): &Row) -> Result<(), PushError> {
    source.push(Key::Int(key), ts, &number.to_le_bytes())
}

/// Pushes rows from a thread of its own; the source ends with it.
fn feed_from_thread(mut source: Source, rows: Vec<Row>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        for row in &rows {
            push(&mut source, row).unwrap();
        }
    })
}

/// A feed over rows in memory; `fault_at` makes it fail there.
struct Rows {
    slot: WatermarkSlot,
    port: Option<PortId>,
    rows: std::vec::IntoIter<Row>,
    fault_at: Option<u64>,
    rows_a_poll: usize,
}

impl Rows {
    fn new(builder: &EngineBuilder<NoSinks>, side: Side, rows: Vec<Row>) -> Rows {
        let slot = builder.source_slot(side).unwrap();
        Rows { slot, port: None, rows: rows.into_iter(), fault_at: None, rows_a_poll: 100 }
    }
}

impl Feed for Rows {
    fn poll(
        &mut self,
        producer: &mut Producer,
        _: &dyn Clock,
    ) -> Result<FeedProgress, SourceError> {
        let failed = |error: PushError| SourceError { message: error.to_string() };
        let slot = &self.slot;
        let port = *self
            .port
            .get_or_insert_with(|| producer.add_port(slot.clone(), Promise::Disorder(DISORDER)));
        for _ in 0..self.rows_a_poll {
            let Some(&(key, ts, number)) = self.rows.as_slice().first() else {
                producer.finish(port);
                return match producer.flush().map_err(failed)? {
                    Flow::Open => Ok(FeedProgress::Finished),
                    Flow::Blocked => Ok(FeedProgress::Blocked),
                };
            };
            if self.fault_at == Some(number & 0xFFFF_FFFF) {
                return Err(SourceError { message: "orders.csv, line 3: no time".to_owned() });
            }
            let ts = intervale::time::Timestamp::new(ts).unwrap();
            let flow = producer.push(port, Key::Int(key), ts, &number.to_le_bytes());
            self.rows.next();
            if flow.map_err(failed)? == Flow::Blocked {
                return Ok(FeedProgress::Blocked);
            }
        }
        Ok(FeedProgress::Busy)
    }

    fn slot(&self) -> Option<&WatermarkSlot> {
        Some(&self.slot)
    }
}

#[test]
fn pairs_equal_a_nested_loop_at_every_shard_count_on_both_runtimes() {
    let (left, right) = (events(1, 3000), events(2, 3000));
    let expected = nested_loop(&left, &right);
    assert!(expected.len() > 5000);
    for runtime in RUNTIMES {
        for shards in SHARDS {
            let engine = builder(JoinKind::Inner, shards, runtime).sinks(collect).start().unwrap();
            // Every source exists before the first one pushes: two a side, from threads.
            let mut threads = Vec::new();
            for (side, rows) in [(Side::Left, &left), (Side::Right, &right)] {
                for part in 0..2 {
                    let part = rows.iter().copied().skip(part).step_by(2).collect::<Vec<_>>();
                    let promise = Promise::Disorder(DISORDER);
                    threads.push((engine.source_with(side, promise).unwrap(), part));
                }
            }
            let threads: Vec<_> =
                threads.into_iter().map(|(source, part)| feed_from_thread(source, part)).collect();
            let finished = engine.finish().unwrap();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(pairs_of(&finished), expected, "{shards} shards, {runtime:?}");
            assert!(finished.sinks.len() == shards && finished.sinks.iter().all(|s| s.finished));
            let report = &finished.report;
            assert_eq!((report.ending.clone(), report.events_pushed), (Ending::Complete, 6000));
            assert_eq!(report.counters.pairs, expected.len() as u64);
            assert_eq!(report.latency_ns.len(), expected.len() as u64);
            assert_eq!(report.counters.side(Side::Left).late, 0);
            assert_eq!((report.shards.len(), report.cores.len()), (shards, shards));
            let last = |rows: &[Row]| rows.iter().map(|row| row.1).max().map(|ts| ts - DISORDER);
            assert_eq!(report.watermarks, [last(&left), last(&right)]);
            assert!(report.state_bytes_peak > 0);
        }
    }
}

#[test]
fn feeds_join_as_handles_do_with_lanes_of_one_batch_of_one_event() {
    let (left, right) = (events(3, 1500), events(4, 1500));
    let expected = nested_loop(&left, &right);
    for runtime in RUNTIMES {
        for shards in SHARDS {
            let mut builder =
                builder(JoinKind::Inner, shards, runtime).lane_batches(1).batch_events(1);
            // A feed for every core and more: everybody sends to everybody over full lanes.
            for (side, rows) in [(Side::Left, &left), (Side::Right, &right)] {
                for part in 0..5 {
                    let rows = rows.iter().copied().skip(part).step_by(5).collect();
                    let feed = Rows::new(&builder, side, rows);
                    builder = builder.feed(feed);
                }
            }
            let finished = builder.sinks(collect).start().unwrap().finish().unwrap();
            assert_eq!(pairs_of(&finished), expected, "{shards} shards, {runtime:?}");
            assert_eq!(finished.report.events_pushed, 3000);
        }
    }
}

#[test]
fn a_dense_feed_waits_for_a_sparse_one() {
    // A row each tick, and 5000 rows a poll, against a row each 100 ticks, one a poll.
    let dense: Vec<Row> = (0..200_000).map(|number| (number, number as i64, number)).collect();
    let sparse: Vec<Row> =
        (0..2000).map(|number| (number * 100, number as i64 * 100, number)).collect();
    let run = |drift: Option<i64>| {
        let mut builder = builder(JoinKind::Inner, 1, RuntimeChoice::Threads);
        if let Some(ticks) = drift {
            builder = builder.max_drift(ticks);
        }
        let mut left = Rows::new(&builder, Side::Left, dense.clone());
        let mut right = Rows::new(&builder, Side::Right, sparse.clone());
        (left.rows_a_poll, right.rows_a_poll) = (5000, 1);
        builder.feed(left).feed(right).sinks(collect).start().unwrap().finish().unwrap()
    };
    let (aligned, free) = (run(Some(500)), run(None));
    assert_eq!((aligned.report.counters.pairs, free.report.counters.pairs), (2000, 2000));
    let peaks = (aligned.report.state_rows_peak, free.report.state_rows_peak);
    assert!(peaks.0 < 20_000 && peaks.1 > 100_000, "{peaks:?}");
}

#[test]
fn keys_of_bytes_and_whole_batches() {
    let (left, right) = (events(5, 800), events(6, 800));
    let engine = Engine::builder(spec(JoinKind::Inner, KeyKind::Bytes))
        .cores(CoreChoice::count(2).unwrap())
        .sinks(collect)
        .start()
        .unwrap();
    let sources = Side::BOTH.map(|side| engine.source(side).unwrap());
    for (mut source, rows) in sources.into_iter().zip([&left, &right]) {
        for chunk in rows.chunks(100) {
            let mut batch = EventBatch::with_capacity(source.side(), 100, 2000);
            for &(key, ts, number) in chunk {
                let ts = intervale::time::Timestamp::new(ts).unwrap();
                let key = key.to_le_bytes();
                batch.push(source.hasher(), Key::Bytes(&key), ts, &number.to_le_bytes()).unwrap();
            }
            source.push_batch(&batch).unwrap();
        }
        assert_eq!(
            source.push(Key::Int(1), 1, b""),
            Err(PushError::KeyKind { expected: KeyKind::Bytes })
        );
        assert_eq!(source.push(Key::Bytes(b"k"), i64::MIN, b""), Err(PushError::NoTimestamp));
    }
    let finished = engine.finish().unwrap();
    assert_eq!(pairs_of(&finished), nested_loop(&left, &right));
}

#[test]
fn a_flush_is_a_barrier() {
    for runtime in RUNTIMES {
        for shards in SHARDS {
            let seen = Arc::new(Mutex::new((0, Vec::new())));
            let shared = |_| Shared(Arc::clone(&seen));
            let engine = builder(JoinKind::Left, shards, runtime)
                // Only the barrier gets events out.
                .linger(Duration::from_secs(3600))
                .sinks(shared)
                .start()
                .unwrap();
            let mut left = engine.source(Side::Left).unwrap();
            let mut right = engine.source(Side::Right).unwrap();
            for round in 0..20u64 {
                let ts = round as i64 * 1000;
                for key in 0..50 {
                    push(&mut left, &(key, ts, round)).unwrap();
                    if key % 2 == 0 {
                        push(&mut right, &(key, ts + 5, round)).unwrap();
                    }
                }
                engine.flush().unwrap();
                assert_eq!(seen.lock().unwrap().0, 25 * (round + 1), "pairs of round {round}");
                // The last tick of the round's rows is kept, the one after it is not.
                for (watermark, padded) in [(ts + 30, 0), (ts + 31, 25)] {
                    left.watermark(watermark).unwrap();
                    right.watermark(watermark).unwrap();
                    engine.flush().unwrap();
                    let singles = std::mem::take(&mut seen.lock().unwrap().1);
                    assert_eq!(singles.len(), padded, "{shards} shards, {runtime:?}");
                    assert!(singles.iter().all(|row| row.0 % 2 == 1 && row.1 == ts));
                }
            }
            let metrics = engine.metrics().unwrap();
            assert_eq!(metrics.counters.pairs, 500);
            assert_eq!(metrics.counters.side(Side::Left).rows, 1000);
            assert_eq!(metrics.watermarks, [19_031; 2]);
            drop((left, right));
            engine.finish().unwrap();
        }
    }
}

struct Shared(Arc<Mutex<(u64, Vec<Row>)>>);

impl Emit for Shared {
    fn pair(&mut self, _: Event<'_>, _: Event<'_>) {
        self.0.lock().unwrap().0 += 1;
    }

    fn single(&mut self, _: Side, event: Event<'_>) {
        self.0.lock().unwrap().1.push(row(event));
    }
}

impl Sink for Shared {}

#[test]
fn what_lingers_comes_out_by_itself() {
    for runtime in RUNTIMES {
        let (send, receive) = mpsc::channel();
        let send = Mutex::new(send);
        let engine = builder(JoinKind::Inner, 2, runtime)
            .sinks(|_| Notify(send.lock().unwrap().clone()))
            .start()
            .unwrap();
        let mut left = engine.source(Side::Left).unwrap();
        let mut right = engine.source(Side::Right).unwrap();
        for number in 0..50 {
            push(&mut left, &(number, 0, number)).unwrap();
            push(&mut right, &(number, 0, number)).unwrap();
            // Nobody calls anything: the cores see to it.
            let key = receive.recv_timeout(Duration::from_secs(20)).unwrap();
            assert_eq!(key, number);
        }
        drop((left, right));
        engine.finish().unwrap();
    }
}

struct Notify(mpsc::Sender<u64>);

impl Emit for Notify {
    fn pair(&mut self, left: Event<'_>, _: Event<'_>) {
        self.0.send(row(left).0).unwrap();
    }
}

impl Sink for Notify {}

#[test]
fn sources_end_in_any_order() {
    let orders = [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]];
    for runtime in RUNTIMES {
        for order in orders {
            let engine = builder(JoinKind::Full, 2, runtime).sinks(collect).start().unwrap();
            // Two sources a side, each with rows of its own; a source pushes when its turn comes,
            // after those before it have ended.
            let mut sources: Vec<_> = [Side::Left, Side::Right, Side::Left, Side::Right]
                .into_iter()
                .map(|side| Some(engine.source(side).unwrap()))
                .collect();
            for turn in order {
                let mut source = sources[turn].take().unwrap();
                for key in 0..40 {
                    push(&mut source, &(key % 30, 100 + key as i64, turn as u64)).unwrap();
                }
                source.watermark(100).unwrap();
                if turn % 2 == 0 { source.finish().unwrap() } else { drop(source) }
            }
            let finished = engine.finish().unwrap();
            let counters = finished.report.counters;
            for side in Side::BOTH {
                assert_eq!((counters.side(side).rows, counters.side(side).late), (80, 0));
                assert_eq!(counters.side(side).unmatched(), counters.side(side).singles);
            }
            // Keys 0 to 9 come twice a source, 30 ticks apart (within), the others once.
            assert_eq!(finished.report.counters.pairs, 4 * (10 * 3 + 20), "{order:?}");
        }
    }
}

#[test]
fn a_source_without_events_or_none_at_all_ends_well() {
    let engine = builder(JoinKind::Left, 2, RuntimeChoice::Auto).sinks(collect).start().unwrap();
    let mut left = engine.source(Side::Left).unwrap();
    push(&mut left, &(1, 1, 1)).unwrap();
    drop(left);
    let finished = engine.finish().unwrap();
    let singles: usize = finished.sinks.iter().map(|sink| sink.singles.len()).sum();
    assert_eq!(singles, 1);
    let engine = builder(JoinKind::Left, 1, RuntimeChoice::Auto).sinks(collect).start().unwrap();
    engine.seal();
    assert!(matches!(engine.source(Side::Left), Err(EngineError::Sealed)));
    assert!(engine.wait(Duration::from_secs(20)));
    assert_eq!(engine.finish().unwrap().report.events_pushed, 0);
}

#[test]
fn a_panic_in_a_sink_stops_all_and_is_named() {
    for runtime in RUNTIMES {
        for shards in SHARDS {
            let engine = builder(JoinKind::Inner, shards, runtime)
                .lane_batches(2)
                .sinks(|shard| Collect {
                    panic_at: (shard == shards - 1).then_some(100),
                    ..Collect::default()
                })
                .start()
                .unwrap();
            let refused = push_until_refused(&engine);
            assert_eq!(refused, PushError::Stopped);
            match engine.finish().unwrap_err() {
                EngineError::Panicked { shard, message } => {
                    assert!(shard == shards - 1 && message.contains("planned"), "{message}");
                }
                other => panic!("{other}"),
            }
        }
    }
}

/// Pushes matching rows to both sides until the engine has stopped.
fn push_until_refused<S: Sink, J: Operator + Send>(engine: &Engine<S, J>) -> PushError {
    let mut sources = Side::BOTH.map(|side| engine.source(side).unwrap());
    for number in 0.. {
        for source in &mut sources {
            if let Err(error) = push(source, &(number, number as i64 / 8, number)) {
                return error;
            }
        }
    }
    unreachable!()
}

#[test]
fn a_failing_sink_stops_all_and_a_closed_one_is_an_end() {
    for runtime in RUNTIMES {
        for closed in [false, true] {
            let fault = SinkError { message: "pairs.csv: disk full".to_owned(), closed };
            let engine = builder(JoinKind::Inner, 2, runtime)
                .sinks(|shard| Collect {
                    fault: (shard == 1).then(|| fault.clone()),
                    ..Collect::default()
                })
                .start()
                .unwrap();
            assert_eq!(push_until_refused(&engine), PushError::Stopped);
            assert!(engine.wait(Duration::from_secs(20)));
            assert_eq!(engine.flush(), Err(EngineError::Stopped));
            match engine.finish() {
                Err(EngineError::Sink { shard: 1, error }) if !closed => assert_eq!(error, fault),
                Ok(finished) if closed => {
                    assert_eq!(finished.report.ending, Ending::SinkClosed);
                    assert!(finished.sinks.iter().all(|sink| !sink.finished));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_failing_feed_stops_all_and_is_named() {
    for runtime in RUNTIMES {
        for shards in SHARDS {
            let builder = builder(JoinKind::Inner, shards, runtime);
            let mut left = Rows::new(&builder, Side::Left, events(1, 1000));
            left.fault_at = Some(500);
            let right = Rows::new(&builder, Side::Right, events(2, 1000));
            let engine = builder.feed(left).feed(right).sinks(collect).start().unwrap();
            let error = engine.finish().unwrap_err();
            let expected = SourceError { message: "orders.csv, line 3: no time".to_owned() };
            assert_eq!(error, EngineError::Source(expected));
        }
    }
}

#[test]
fn late_events_can_fail_the_run() {
    let between = JoinSpec::between(Bound::Closed(0), Bound::Closed(5));
    let policy = intervale::time::LatePolicy::Fail;
    for clock in [LatenessClock::Merged, LatenessClock::Own] {
        let lateness = Lateness { policy, clock, ..Lateness::default() };
        let spec = between.lateness(lateness).build(&Limits::default()).unwrap();
        let engine = Engine::builder(spec)
            .cores(CoreChoice::count(2).unwrap())
            .sinks(collect)
            .start()
            .unwrap();
        let mut sources = Side::BOTH.map(|side| engine.source(side).unwrap());
        for source in &mut sources {
            source.watermark(100).unwrap();
        }
        engine.flush().unwrap();
        push(&mut sources[0], &(1, 99, 1)).unwrap();
        drop(sources);
        match engine.finish().unwrap_err() {
            EngineError::Join { error: JoinError::Late { side, ts, lag }, .. } => {
                assert_eq!((side, ts, lag), (Side::Left, 99, 1));
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_thread_that_panics_with_a_source_stops_the_engine() {
    let engine = builder(JoinKind::Inner, 2, RuntimeChoice::Auto).sinks(collect).start().unwrap();
    let mut source = engine.source(Side::Left).unwrap();
    let thread = std::thread::spawn(move || {
        push(&mut source, &(1, 1, 1)).unwrap();
        panic!("planned");
    });
    assert!(thread.join().is_err());
    assert_eq!(engine.finish().unwrap_err(), EngineError::SourcePanicked);
}

#[test]
fn shutdown_in_the_middle_releases_everybody_and_leaves_whole_results() {
    for runtime in RUNTIMES {
        for shards in SHARDS {
            let pairs = Arc::new(AtomicU64::new(0));
            let engine = builder(JoinKind::Inner, shards, runtime)
                .lane_batches(1)
                .sinks(|_| Slow(Arc::clone(&pairs), false))
                .start()
                .unwrap();
            let mut sources = Side::BOTH.map(|side| engine.source(side).unwrap());
            let pusher = std::thread::spawn(move || {
                for number in 0u64.. {
                    for source in &mut sources {
                        if let Err(error) = push(source, &(number, number as i64 / 8, number)) {
                            return error;
                        }
                    }
                }
                unreachable!()
            });
            while pairs.load(Ordering::Relaxed) < 1000 {
                std::thread::yield_now();
            }
            let finished = engine.shutdown().unwrap();
            assert_eq!(pusher.join().unwrap(), PushError::Stopped);
            let report = finished.report;
            assert_eq!(report.ending, Ending::Stopped);
            assert!(report.events_pushed >= 2000);
            assert_eq!(report.counters.pairs, pairs.load(Ordering::Relaxed));
            assert!(finished.sinks.iter().all(|sink| sink.1), "the sinks were flushed last");
        }
    }
}

/// Counts pairs, and remembers whether a flush came last.
struct Slow(Arc<AtomicU64>, bool);

impl Emit for Slow {
    fn pair(&mut self, _: Event<'_>, _: Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        self.1 = false;
        (0..200).for_each(|_| std::hint::spin_loop());
    }
}

impl Sink for Slow {
    fn flush(&mut self) -> Result<(), SinkError> {
        self.1 = true;
        Ok(())
    }
}

#[test]
fn a_dropped_engine_is_gone_when_the_drop_returns() {
    struct Flag(Arc<AtomicBool>);
    impl Emit for Flag {
        fn pair(&mut self, _: Event<'_>, _: Event<'_>) {}
    }
    impl Sink for Flag {}
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    for runtime in RUNTIMES {
        let gone = Arc::new(AtomicBool::new(false));
        let engine = builder(JoinKind::Inner, 1, runtime)
            .idle(IdleStrategy::Park)
            .sinks(|_| Flag(Arc::clone(&gone)))
            .start()
            .unwrap();
        let mut source = engine.source(Side::Left).unwrap();
        push(&mut source, &(1, 1, 1)).unwrap();
        drop(engine);
        assert!(gone.load(Ordering::Relaxed));
        assert_eq!(source.flush(), Err(PushError::Stopped));
        assert_eq!(source.watermark(5), Err(PushError::Stopped));
    }
}

/// Loses a row of its counts.
struct Miscount(IntervalJoin, Counters);

impl Operator for Miscount {
    fn on_batch<E: Emit>(&mut self, batch: &EventBatch, out: &mut E) -> Result<(), JoinError> {
        self.0.on_batch(batch, out)?;
        self.1 = *self.0.counters();
        let left = &mut self.1.sides[0];
        left.rows = left.rows.saturating_sub(1);
        left.on_time = left.on_time.saturating_sub(1);
        left.matched = left.matched.min(left.on_time);
        Ok(())
    }

    fn advance(&mut self, left: i64, right: i64) {
        self.0.advance(left, right);
    }

    fn finish(&mut self) {
        self.0.finish();
    }

    fn work<E: Emit>(&mut self, budget: usize, out: &mut E) -> bool {
        let more = self.0.work(budget, out);
        self.1.sides.iter_mut().zip(self.0.counters().sides).for_each(|(own, sides)| {
            own.freed = sides.freed;
        });
        more
    }

    fn output_watermark(&self) -> i64 {
        self.0.output_watermark()
    }

    fn counters(&self) -> &Counters {
        &self.1
    }

    fn state_bytes(&self) -> u64 {
        self.0.state_bytes()
    }
}

#[test]
fn counts_that_do_not_add_up_fail_the_run() {
    let engine = builder(JoinKind::Inner, 1, RuntimeChoice::Threads)
        .sinks(collect)
        .start_with(|_, hasher, limits| {
            let spec = spec(JoinKind::Inner, KeyKind::Int);
            let join = IntervalJoin::new(spec, hasher.clone(), limits)?;
            Ok(Miscount(join, Counters::default()))
        })
        .unwrap();
    let mut left = engine.source(Side::Left).unwrap();
    push(&mut left, &(1, 1, 1)).unwrap();
    push(&mut left, &(2, 1, 2)).unwrap();
    drop(left);
    match engine.finish().unwrap_err() {
        EngineError::Join { error: JoinError::Unbalanced(what), .. } => {
            assert!(what.contains("2 events were pushed and 1 rows were counted"), "{what}");
        }
        other => panic!("{other}"),
    }
}
