//! How an engine ends: sources in any order, none at all, shutdown, a dropped handle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use intervale::engine::{Ending, EngineError};
use intervale::error::PushError;
use intervale::event::{Event, Side};
use intervale::join::{Emit, JoinKind, Sink, SinkError};
use intervale::runtime::{IdleStrategy, RuntimeChoice};

use crate::support::*;

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
