//! Drives a workload through a chain of joins: the workload's own, and the same again and again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::{
    ChainBuilder, ChainSink, Engine, EngineError, JoinedRow, NoSinks, Stream, Then,
};
use crate::event::{Key, Side};
use crate::join::JoinSpec;
use crate::workload::engine_run::{EngineRun, EngineSetup, Replay, Share, drift};
use crate::workload::random::mix;
use crate::workload::single::row_id;
use crate::workload::{Bounds, CpuClock, Events, Measured, Moved, Outcome, StateSize, StepTimes};

/// How often a chain that runs asks whether it is still wanted.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Stages that a chain may have behind the first one here.
pub const CHAIN_MAX: usize = 8;

/// Runs all events through a chain whose first stage is the join that `spec` says and which has
/// `more` stages behind it (up to [`CHAIN_MAX`]). Each joins what came out so far with the right
/// side once more, as a stream of its own, by the left event's key and relative to its time: a left
/// event with m matches comes out m to the power of all stages times. Its pairs are counted in
/// [`Outcome`] by the left id and [`fold`] over the right ones.
///
/// Rows carry their key behind the id, which later stages join by.
///
/// `stop` is asked from time to time. Once it says so the chain is given up: its cores end between
/// batches, and nobody waits for that, as one event with very many matches may take them long.
///
/// # Errors
/// [`EngineError`] when the chain cannot start or stops on a fault; [`EngineError::Stopped`] when
/// `stop` says so.
pub fn run_chain(
    events: &Arc<Events>,
    spec: &JoinSpec,
    more: usize,
    (setup, batch): (&EngineSetup, usize),
    bounds: &Bounds,
    stop: fn() -> bool,
) -> Result<EngineRun, EngineError> {
    let batch = batch.max(1);
    let more = more.clamp(1, CHAIN_MAX);
    let (chain, core_count) = plan(events, spec, more, (setup, batch), bounds)?;
    let (start, start_cpu_ns) = (Instant::now(), CpuClock::Process.now_ns());
    let chain = chain.sinks(|_| JoinedOutcome::default()).start()?;
    chain.seal();
    while !chain.wait(BETWEEN_LOOKS) {
        if stop() {
            std::thread::spawn(move || drop(chain));
            return Err(EngineError::Stopped);
        }
    }
    let finished = chain.finish()?;
    let (wall, cpu_ns) = (start.elapsed(), CpuClock::Process.now_ns() - start_cpu_ns);
    // Every chain has stages, and all of them ran alike.
    let first = finished.reports.first().ok_or(EngineError::Stopped)?;
    let (runtime, notes) = (first.runtime, first.notes.clone());
    let mut outcome = Outcome::default();
    finished.sinks.iter().for_each(|sink| outcome += sink.0);
    let mut steps = StepTimes::new();
    for report in &finished.reports {
        steps.add(&StepTimes::from_histogram(&report.step_ns));
    }
    let [left, right] = Side::BOTH.map(|side| events.side(side).len() as u64);
    Ok(EngineRun {
        measured: Measured {
            outcome,
            singles: 0,
            events: left + right * (more as u64 + 1),
            wall,
            cpu_ns,
            finish_cpu_ns: 0,
            steps,
            peak: StateSize {
                rows: finished.state_rows_peak,
                bytes: finished.state_bytes_peak,
                index_bytes: 0,
            },
            moved: finished
                .reports
                .iter()
                .fold(Moved::default(), |all, report| all.plus(Moved::of(&report.counters))),
        },
        core_count,
        runtime,
        // The keys of a chain stay on their cores.
        keys_split: 0,
        copies: 0,
        notes,
    })
}

/// The chain with its feeds, and on how many cores.
fn plan(
    events: &Arc<Events>,
    spec: &JoinSpec,
    more: usize,
    (setup, batch): (&EngineSetup, usize),
    bounds: &Bounds,
) -> Result<(ChainBuilder<NoSinks>, usize), EngineError> {
    let engine = Engine::builder(spec.clone())
        .cores(setup.cores.clone())
        .runtime(setup.runtime)
        .idle(setup.idle)
        .simd(setup.simd)
        .hot_keys(setup.hot_keys)
        .limits(bounds.limits)
        .fail_when_full(bounds.fail_when_full)
        .batch_events(batch);
    let core_count = engine.shard_count()?;
    let engine = engine.max_drift(drift(&events.workload, batch, core_count));
    let then = || {
        let key = |row: JoinedRow<'_>| {
            let bytes = row.part(Stream::LEFT)?.row.get(8..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        Then::new(spec.clone(), Stream::LEFT, move |row, _| key(row).map_or(Key::Null, Key::Int))
    };
    let mut chain = engine.then(then());
    for _ in 1..more {
        chain = chain.then(then());
    }
    for number in 0..more + 2 {
        let side = if number == 0 { Side::Left } else { Side::Right };
        let stream = Stream::of_index(number);
        for part in 0..core_count {
            let slot = chain.source_slot(stream)?;
            let share = Share::new(events, side, false, (part, core_count));
            let replay = Replay::new(Arc::clone(events), side, slot, batch, share);
            chain = chain.feed(stream, replay.with_key_in_row());
        }
    }
    Ok((chain, core_count))
}

/// Ids put together to one, in their order.
pub fn fold(ids: impl Iterator<Item = u64>) -> u64 {
    ids.fold(0, |all, id| mix(all.wrapping_add(id)))
}

/// What came out of the last stage.
#[derive(Clone, Copy, Debug, Default)]
struct JoinedOutcome(Outcome);

impl ChainSink for JoinedOutcome {
    fn row(&mut self, row: JoinedRow<'_>) {
        let mut ids = row.parts().map(|part| part.map_or(0, |part| row_id(part.row)));
        let left = ids.next().unwrap_or_default();
        self.0.add(left, fold(ids));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::HotKeys;
    use crate::join::JoinKind;
    use crate::join::oracle::{ChainStage, chain};
    use crate::runtime::{CoreChoice, IdleStrategy, RuntimeChoice};
    use crate::state::Simd;
    use crate::workload::{Workload, chain_rows, offline_chain};

    fn never() -> bool {
        false
    }

    /// Nested loops over the same streams.
    fn expected(events: &Events, spec: &JoinSpec, more: usize) -> Outcome {
        let [left, right] = Side::BOTH.map(|side| events.side(side));
        let stage = |_| ChainStage {
            spec: spec.clone(),
            anchor: 0,
            left_key: Box::new(|row: &[Option<usize>]| {
                row[0].map(|place| left.keys[place].to_le_bytes().to_vec())
            }),
            right_key: Box::new(|place: usize| Some(right.keys[place].to_le_bytes().to_vec())),
            condition: None,
        };
        let stages: Vec<ChainStage<'_>> = (0..=more).map(stage).collect();
        let times: Vec<Vec<i64>> =
            std::iter::once(left.ts.clone()).chain((0..=more).map(|_| right.ts.clone())).collect();
        let mut outcome = Outcome::default();
        for row in chain(&times, &stages) {
            let right_ids = row[1..]
                .iter()
                .map(|place| u64::from(right.ids[place.expect("an inner join has all parts")]));
            let left_id = left.ids[row[0].expect("an inner join has all parts")];
            outcome.add(u64::from(left_id), fold(right_ids));
        }
        outcome
    }

    #[test]
    fn chains_and_their_offline_join_are_what_nested_loops_find() {
        // One key, so that rows have several matches: a second of time has 2,000 a side.
        let workload = Workload { between: (-2, 1), ..Workload::by_name("w2").unwrap() };
        let workload = Workload { keys: crate::workload::KeyRule::Uniform(3), ..workload };
        let events = Arc::new(Events::new(workload, 42, 120));
        let spec = workload.built_spec(JoinKind::Inner).unwrap();
        let setup = |cores| EngineSetup {
            cores: CoreChoice::count(cores).unwrap(),
            runtime: RuntimeChoice::Threads,
            idle: IdleStrategy::Park,
            simd: Simd::detect(),
            hot_keys: HotKeys::Auto,
        };
        let unbounded = Bounds::default();
        for more in [1, 2] {
            let expected = expected(&events, &spec, more);
            assert!(expected.pairs > 500, "{expected}");
            assert_eq!(offline_chain(&events, &spec, more, never), Some(expected));
            assert_eq!(offline_chain(&events, &spec, more, || true), None);
            assert_eq!(chain_rows(&events, &spec, more), expected.pairs as f64);
            for cores in [1, 3] {
                let run = run_chain(&events, &spec, more, (&setup(cores), 16), &unbounded, never);
                let run = run.unwrap();
                assert_eq!(run.measured.outcome, expected, "{more} more, {cores} cores");
                assert_eq!((run.core_count, run.measured.events), (cores, 240 + 120 * more as u64));
            }
        }
    }

    #[test]
    fn a_chain_that_nobody_wants_any_more_is_given_up() {
        // One key: thousands to the power of 5 rows, which nobody would live to see.
        let workload = Workload { between: (-1_000_000, 1_000_000), ..Workload::FREE };
        let workload = Workload { keys: crate::workload::KeyRule::Uniform(1), ..workload };
        let events = Arc::new(Events::new(workload, 42, 3_000));
        let spec = workload.built_spec(JoinKind::Inner).unwrap();
        let setup = EngineSetup {
            cores: CoreChoice::count(1).unwrap(),
            runtime: RuntimeChoice::Threads,
            idle: IdleStrategy::Park,
            simd: Simd::detect(),
            hot_keys: HotKeys::Off,
        };
        let stopped = run_chain(&events, &spec, 3, (&setup, 256), &Bounds::default(), || true);
        assert!(matches!(stopped, Err(EngineError::Stopped)), "{stopped:?}");
        assert!(chain_rows(&events, &spec, 3) > 1e17);
    }
}
