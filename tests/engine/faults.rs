//! Faults of sinks, feeds, events and threads, and counts that do not add up.

use std::time::Duration;

use intervale::engine::{Ending, Engine, EngineError};
use intervale::error::{JoinError, PushError, SourceError};
use intervale::event::{Event, EventBatch, KeyKind, Side};
use intervale::join::{Counters, Emit, IntervalJoin, JoinKind, JoinSpec, MatchChoice, SinkError};
use intervale::limits::Limits;
use intervale::runtime::{CoreChoice, RuntimeChoice};
use intervale::shard::Operator;
use intervale::time::{Bound, LatePolicy, Lateness, LatenessClock};

use crate::support::*;

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

#[test]
fn a_panic_in_a_condition_stops_all_and_is_named() {
    let limits = Limits::default();
    for runtime in RUNTIMES {
        let spec = JoinSpec::between(Bound::Closed(0), Bound::Closed(1_000))
            .condition(|left, _| if left.ts > 500 { panic!("no such amount") } else { true })
            .build(&limits)
            .unwrap();
        let engine = Engine::builder(spec)
            .runtime(runtime)
            .cores(CoreChoice::count(2).unwrap())
            .sinks(collect)
            .start()
            .unwrap();
        assert_eq!(push_until_refused(&engine), PushError::Stopped);
        match engine.finish().unwrap_err() {
            EngineError::Panicked { message, .. } => assert_eq!(message, "no such amount"),
            other => panic!("{other}"),
        }
    }
}

/// What a panic leaves of the operator takes no more, and is freed like any other.
#[test]
fn an_operator_whose_condition_panicked_refuses_what_follows() {
    use intervale::event::{BatchKind, Key, KeyHasher};
    use intervale::time::Timestamp;

    for choice in [MatchChoice::All, MatchChoice::Nearest, MatchChoice::OneToOne] {
        let spec = JoinSpec::between(Bound::Closed(-5), Bound::Closed(5))
            .choice(choice)
            .condition(|_, right| if right.ts == 3 { panic!("planned") } else { true })
            .build(&Limits::default())
            .unwrap();
        let hasher = KeyHasher::new(KeyKind::Int, 1);
        let mut join = IntervalJoin::new(spec, hasher.clone(), Limits::default()).unwrap();
        let batch_of = |side: Side, times: [i64; 3]| {
            let mut batch = EventBatch::default();
            batch.reset(side, 0, BatchKind::Keyed);
            for ts in times {
                let ts = Timestamp::new(ts).unwrap();
                batch.push(&hasher, Key::Int(7), ts, b"row").unwrap();
            }
            batch
        };
        let mut out = |_: Event<'_>, _: Event<'_>| {};
        join.on_batch(&batch_of(Side::Left, [1, 2, 3]), &mut out).unwrap();
        let rights = batch_of(Side::Right, [2, 3, 4]);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = join.on_batch(&rights, &mut out);
        }));
        assert!(panicked.is_err());
        assert!(join.on_batch(&batch_of(Side::Right, [1, 1, 1]), &mut out).is_err(), "{choice:?}");
    }
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
    let policy = LatePolicy::Fail;
    for clock in [LatenessClock::Merged, LatenessClock::Own] {
        let lateness = Lateness { policy, clock, ..Lateness::default() };
        let spec = between.clone().lateness(lateness).build(&Limits::default()).unwrap();
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
            EngineError::Join { error: JoinError::Late { side, ts, lag, .. }, .. } => {
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
