//! What comes out: pairs as a nested loop finds them, barriers, lingering, alignment.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use intervale::engine::{Ending, Engine, EngineBuilder, EngineError, Finished, NoSinks};
use intervale::error::{JoinError, PushError};
use intervale::event::{Event, EventBatch, Key, KeyKind, Side};
use intervale::exchange::Promise;
use intervale::join::{Emit, JoinKind, Sink};
use intervale::limits::Limits;
use intervale::runtime::{CoreChoice, IdleStrategy, RuntimeChoice};

use crate::support::*;

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

/// A row each tick, 5000 a poll, against a row each 100 ticks, one a poll.
fn run_dense_and_sparse(
    set: impl FnOnce(EngineBuilder<NoSinks>) -> EngineBuilder<NoSinks>,
) -> Result<Finished<Collect>, EngineError> {
    let dense = (0..200_000).map(|number| (number, number as i64, number)).collect();
    let sparse = (0..2000).map(|number| (number * 100, number as i64 * 100, number)).collect();
    let builder = set(builder(JoinKind::Inner, 1, RuntimeChoice::Threads));
    let mut left = Rows::new(&builder, Side::Left, dense);
    let mut right = Rows::new(&builder, Side::Right, sparse);
    (left.rows_a_poll, right.rows_a_poll) = (5000, 1);
    builder.feed(left).feed(right).sinks(collect).start().unwrap().finish()
}

#[test]
fn a_dense_feed_waits_for_a_sparse_one() {
    let aligned = run_dense_and_sparse(|builder| builder.max_drift(500)).unwrap().report;
    let free = run_dense_and_sparse(|builder| builder).unwrap().report;
    assert_eq!((aligned.counters.pairs, free.counters.pairs), (2000, 2000));
    let peaks = (aligned.state_rows_peak, free.state_rows_peak);
    assert!(peaks.0 < 20_000 && peaks.1 > 100_000, "{peaks:?}");
}

#[test]
fn feeds_wait_when_state_nears_its_bound_unless_it_is_to_fail() {
    let free = run_dense_and_sparse(|builder| builder).unwrap().report;
    let limits =
        Limits { state_bytes_max: Some(free.state_bytes_peak / 4 * 3), ..Limits::UNBOUNDED };
    let blocked = run_dense_and_sparse(|builder| builder.limits(limits)).unwrap().report;
    assert_eq!(blocked.counters.pairs, 2000);
    assert!(blocked.state_bytes_peak <= free.state_bytes_peak / 4 * 3);
    let failed = run_dense_and_sparse(|builder| builder.limits(limits).fail_when_full(true));
    match failed.unwrap_err() {
        EngineError::Join { error: JoinError::StateFull { bytes_max, .. }, .. } => {
            assert_eq!(Some(bytes_max), limits.state_bytes_max);
        }
        other => panic!("{other}"),
    }
}

#[test]
fn how_cores_wait_changes_nothing() {
    let (left, right) = (events(7, 600), events(8, 600));
    let expected = nested_loop(&left, &right);
    for runtime in RUNTIMES {
        for idle in
            [IdleStrategy::Spin, IdleStrategy::Yield, IdleStrategy::Park, IdleStrategy::Auto]
        {
            let builder = builder(JoinKind::Inner, 2, runtime).idle(idle);
            let engine = builder.linger(Duration::ZERO).sinks(collect).start().unwrap();
            let sources = Side::BOTH.map(|side| engine.source(side).unwrap());
            let threads: Vec<_> = sources
                .into_iter()
                .zip([left.clone(), right.clone()])
                .map(|(source, rows)| feed_from_thread(source, rows))
                .collect();
            let finished = engine.finish().unwrap();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(pairs_of(&finished), expected, "{idle:?}, {runtime:?}");
        }
    }
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
