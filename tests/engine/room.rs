//! Pushes into state that is nearly full.

use std::thread;

use intervale::engine::{Engine, EngineError};
use intervale::error::{JoinError, PushError};
use intervale::event::{Key, KeyKind, Side};
use intervale::exchange::{Promise, WhenFull};
use intervale::join::{Join, JoinKind};
use intervale::limits::{Limits, Overflow};
use intervale::runtime::RuntimeChoice;

use crate::support::{Collect, RUNTIMES, Row, builder, collect, nested_loop, pairs_of, push, spec};

const BYTES_MAX: u64 = 4 << 20;
const LIMITS: Limits = Limits { state_bytes_max: Some(BYTES_MAX), ..Limits::UNBOUNDED };

fn engine(shards: usize, runtime: RuntimeChoice, when_full: WhenFull) -> Engine<Collect> {
    let builder = builder(JoinKind::Inner, shards, runtime).limits(LIMITS).when_full(when_full);
    builder.sinks(collect).start().unwrap()
}

/// Left rows with a key each, 300 a tick: those of the 30 ticks that are kept fit, all do not.
fn lefts() -> Vec<Row> {
    (0..100_000).map(|number| (number, (number / 300) as i64, number)).collect()
}

#[test]
fn one_thread_that_feeds_both_sides_is_refused_and_goes_on_when_watermarks_do() {
    for (shards, runtime) in [(1, RUNTIMES[0]), (2, RUNTIMES[1]), (8, RUNTIMES[0])] {
        let engine = engine(shards, runtime, WhenFull::Refuse);
        let [mut left, mut right] = Side::BOTH.map(|side| engine.source(side).unwrap());
        let (lefts, mut rights) = (lefts(), Vec::new());
        for pushed in &lefts {
            let Err(error) = push(&mut left, pushed) else { continue };
            assert!(
                matches!(error, PushError::StateFull { bytes, bytes_max: BYTES_MAX }
                    if bytes > BYTES_MAX / 2),
                "{error}"
            );
            // Nothing lets anything go until time goes on.
            assert!(matches!(push(&mut left, pushed), Err(PushError::StateFull { .. })));
            left.watermark(pushed.1).unwrap();
            right.watermark(pushed.1).unwrap();
            engine.flush().unwrap();
            rights.push(*pushed);
            push(&mut right, pushed).unwrap();
            push(&mut left, pushed).unwrap();
        }
        drop((left, right));
        let finished = engine.finish().unwrap();
        assert!(rights.len() > 2, "{}", rights.len());
        assert_eq!(pairs_of(&finished), nested_loop(&lefts, &rights), "{shards} shards");
        let report = &finished.report;
        assert_eq!(report.counters.side(Side::Left).rows, lefts.len() as u64, "once each");
        assert!(report.state_bytes_peak <= BYTES_MAX, "{}", report.state_bytes_peak);
    }
}

#[test]
fn a_thread_that_is_ahead_waits_for_the_other_side() {
    for (shards, runtime) in [(1, RUNTIMES[1]), (2, RUNTIMES[0]), (8, RUNTIMES[0])] {
        let engine = engine(shards, runtime, WhenFull::Wait);
        let threads = Side::BOTH.map(|side| {
            let mut source = engine.source(side).unwrap();
            thread::spawn(move || {
                for pushed in lefts() {
                    push(&mut source, &pushed).unwrap();
                    source.watermark(pushed.1).unwrap();
                    if side == Side::Right && pushed.0 % 1000 == 0 {
                        // The left side is far ahead by then, or waits.
                        source.flush().unwrap();
                        thread::yield_now();
                    }
                }
            })
        });
        let finished = engine.finish().unwrap();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let report = &finished.report;
        assert_eq!(report.counters.pairs, 100_000, "{shards} shards");
        assert!(report.state_bytes_peak <= BYTES_MAX, "{}", report.state_bytes_peak);
    }
}

#[test]
fn whoever_is_behind_is_refused_when_waiting_frees_nothing() {
    let engine = engine(2, RUNTIMES[0], WhenFull::Wait);
    let mut left = engine.source(Side::Left).unwrap();
    let error = lefts().iter().find_map(|pushed| push(&mut left, pushed).err());
    assert!(matches!(error, Some(PushError::StateFull { .. })), "{error:?}");
    left.finish().unwrap();
    assert!(engine.finish().is_ok(), "the engine has gone on");
}

#[test]
fn an_engine_that_is_to_fail_fails() {
    let engine = engine(1, RUNTIMES[0], WhenFull::Fail);
    let mut left = engine.source(Side::Left).unwrap();
    let error = lefts().iter().find_map(|pushed| push(&mut left, pushed).err());
    assert!(matches!(error, Some(PushError::Stopped) | None), "{error:?}");
    drop(left);
    let error = engine.finish().unwrap_err();
    assert!(
        matches!(error, EngineError::Join { error: JoinError::StateFull { .. }, .. }),
        "{error}"
    );
}

/// A bound on rows alone: what is pushed waits or is refused as by bytes.
#[test]
fn rows_are_bounded_as_bytes_are() {
    const ROWS_MAX: u64 = 20_000;
    let limits = Limits { state_rows_max: Some(ROWS_MAX), ..Limits::UNBOUNDED };
    for (shards, runtime) in [(1, RUNTIMES[0]), (2, RUNTIMES[1]), (8, RUNTIMES[0])] {
        for when_full in [WhenFull::Refuse, WhenFull::Wait] {
            let builder = builder(JoinKind::Inner, shards, runtime).limits(limits);
            let engine = builder.when_full(when_full).sinks(collect).start().unwrap();
            let [mut left, mut right] = Side::BOTH.map(|side| engine.source(side).unwrap());
            let mut refused = 0;
            for pushed in &lefts() {
                let Err(error) = push(&mut left, pushed) else { continue };
                assert!(
                    matches!(error, PushError::RowsFull { rows, rows_max: ROWS_MAX }
                        if (ROWS_MAX / 2..=ROWS_MAX).contains(&rows)),
                    "{error}"
                );
                refused += 1;
                left.watermark(pushed.1).unwrap();
                right.watermark(pushed.1).unwrap();
                engine.flush().unwrap();
                push(&mut left, pushed).unwrap();
            }
            drop((left, right));
            let report = engine.finish().unwrap().report;
            assert!(refused > 2, "{refused}");
            assert_eq!(report.counters.side(Side::Left).rows, 100_000, "once each");
            assert!(report.state_rows_peak <= ROWS_MAX, "{}", report.state_rows_peak);
        }
    }
    // An engine that is to fail does.
    let builder = builder(JoinKind::Inner, 2, RUNTIMES[0]).limits(limits);
    let engine = builder.when_full(WhenFull::Fail).sinks(collect).start().unwrap();
    let mut left = engine.source(Side::Left).unwrap();
    let _ = lefts().iter().find_map(|pushed| push(&mut left, pushed).err());
    drop(left);
    let error = engine.finish().unwrap_err();
    let is_full = |error: &JoinError| matches!(error, JoinError::RowsFull { rows, rows_max: ROWS_MAX } if *rows > ROWS_MAX);
    assert!(matches!(&error, EngineError::Join { error, .. } if is_full(error)), "{error}");
    // So is a join without an engine, which loses nothing.
    let mut join = Join::new(spec(JoinKind::Inner, KeyKind::Int), limits).unwrap();
    let (mut out, mut refused) = (Collect::default(), 0);
    for (key, ts, number) in lefts() {
        let row = number.to_le_bytes();
        let Err(error) = join.push(Side::Left, Key::Int(key), ts, &row, &mut out) else { continue };
        assert!(is_full(&error), "{error}");
        refused += 1;
        Side::BOTH.into_iter().for_each(|side| join.advance(side, ts, &mut out));
        join.push(Side::Left, Key::Int(key), ts, &row, &mut out).unwrap();
    }
    assert!(refused > 2 && join.counters().side(Side::Left).rows == 100_000, "{refused}");
}

#[test]
fn one_event_moves_the_watermark_as_far_as_it_may() {
    let builder = builder(JoinKind::Inner, 2, RUNTIMES[0]).max_jump(100);
    let engine = builder.sinks(collect).start().unwrap();
    let sources = Side::BOTH.map(|side| engine.source_with(side, Promise::Disorder(5)).unwrap());
    let [mut left, mut right] = sources;
    for (ts, watermark) in [(1_000, 995), (1_000_000, 1_095), (1_001, 1_095), (1_150, 1_145)] {
        push(&mut left, &(1, ts, 0)).unwrap();
        left.flush().unwrap();
        assert_eq!(engine.watermarks()[0], watermark, "{ts}");
    }
    push(&mut right, &(1, 1_150, 1)).unwrap();
    drop((left, right));
    let report = engine.finish().unwrap().report;
    assert_eq!(report.jumped, [1, 0]);
    assert_eq!(report.counters.pairs, 1, "of 1150 alone");
}

#[test]
fn without_a_thread_a_push_is_refused_and_the_join_goes_on() {
    let mut join = Join::new(spec(JoinKind::Inner, KeyKind::Int), LIMITS).unwrap();
    let (mut out, mut refused) = (Collect::default(), 0);
    for (key, ts, number) in lefts() {
        for side in Side::BOTH {
            let row = number.to_le_bytes();
            let Err(error) = join.push(side, Key::Int(key), ts, &row, &mut out) else { continue };
            assert!(matches!(error, JoinError::StateFull { bytes_max: BYTES_MAX, .. }), "{error}");
            refused += 1;
            Side::BOTH.into_iter().for_each(|side| join.advance(side, ts, &mut out));
            join.push(side, Key::Int(key), ts, &row, &mut out).unwrap();
        }
    }
    let counters = join.counters();
    let rows = Side::BOTH.map(|side| counters.side(side).rows);
    assert_eq!((rows, counters.pairs), ([100_000; 2], 100_000));
    assert_eq!(out.pairs.len(), 100_000);
    assert!(refused > 2, "{refused}");
}

/// Under a bound that holds a part of what there is, the oldest rows are given up, everything is
/// counted, and what comes out is some of what would have come out.
#[test]
fn the_oldest_rows_are_given_up_and_counted() {
    // Every row is kept to the end of input; its partner comes a while, or much, later.
    let lefts: Vec<Row> = (0..60_000).map(|n| (n, n as i64, n)).collect();
    let rights: Vec<Row> = lefts.iter().map(|row| (row.0, row.1, row.2 + (1 << 40))).collect();
    for kind in [JoinKind::Inner, JoinKind::Full, JoinKind::Semi, JoinKind::Anti] {
        for (shards, bytes_max, rows_max) in
            [(1, 1 << 20, None), (2, 1 << 20, None), (8, 3 << 20, None), (2, 1 << 30, Some(9_000))]
        {
            let limits = Limits {
                state_bytes_max: Some(bytes_max),
                state_rows_max: rows_max,
                overflow: Overflow::Shed,
            };
            let builder = builder(kind, shards, RUNTIMES[shards % 2]).limits(limits);
            let engine = builder.sinks(collect).start().unwrap();
            let [mut left, mut right] = Side::BOTH.map(|side| engine.source(side).unwrap());
            for (number, row) in lefts.iter().enumerate() {
                push(&mut left, row).unwrap();
                if let Some(row) = number.checked_sub(500).and_then(|late| rights.get(late)) {
                    push(&mut right, row).unwrap();
                }
            }
            drop((left, right));
            let finished = engine.finish().unwrap();
            let report = &finished.report;
            let case = format!("{kind:?}, {shards} shards, {limits:?}: {:?}", report.counters);
            for (side, rows) in [(Side::Left, 60_000), (Side::Right, 59_500)] {
                let side = report.counters.side(side);
                assert_eq!((side.on_time, side.late), (rows, 0), "{case}");
                assert_eq!(side.stored, side.freed + side.shed, "{case}");
                assert!(side.shed_unmatched <= side.shed, "{case}");
            }
            let [left, right] = report.counters.sides;
            assert!(left.shed > 1_000, "{case}");
            // A row that nobody judged does not come out by itself.
            if kind == JoinKind::Full {
                assert_eq!(left.singles, left.unmatched() - left.shed_unmatched, "{case}");
                assert_eq!(right.singles, right.unmatched() - right.shed_unmatched, "{case}");
            }
            if kind == JoinKind::Anti {
                assert_eq!(left.singles, left.unmatched() - left.shed_unmatched, "{case}");
            }
            let pairs = pairs_of(&finished);
            assert!(pairs.iter().all(|(left, right)| left.0 == right.0), "{case}");
            assert!(pairs.windows(2).all(|two| two[0] < two[1]), "none twice: {case}");
            assert!(report.state_bytes_peak <= bytes_max, "{}: {case}", report.state_bytes_peak);
            let rows_peak = report.state_rows_peak;
            assert!(rows_max.is_none_or(|most| rows_peak <= most), "{rows_peak}: {case}");
        }
    }
}
