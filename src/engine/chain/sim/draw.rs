//! Scenarios and schedules, drawn from a seed, and what the reference makes of them.
//!
//! Scenarios are made so that the result does not depend on the order: lateness is judged at the
//! source, or nothing is late at all.

use super::{Joined, NULL, Op, Row, STAGES_MAX, Scenario, Schedule, SimSource, SimStage};
use crate::engine::chain::Stream;
use crate::join::oracle::{ChainStage, chain};
use crate::join::{Asof, JoinKind, JoinSpec, JoinSpecBuilder, MatchChoice, Window};
use crate::limits::Limits;
use crate::runtime::sim::Rng;
use crate::time::{Bound, BoundedDisorder, LatePolicy, Lateness, LatenessClock};

/// How far events may lie behind the largest time of their source, where they do at all.
const JITTER: u64 = 12;

/// Where streams begin.
const START: i64 = -50;

pub(super) fn schedule(rng: &mut Rng) -> Schedule {
    Schedule {
        seed: rng.next_u64(),
        shard_count: 1 + rng.below(4) as usize,
        lane_batches: 1 + rng.below(3) as usize * rng.below(2) as usize,
        batch_events: 1 + rng.below(9) as usize,
        max_drift: rng.one_in(2).then(|| rng.below(60) as i64),
        limits: Limits::UNBOUNDED,
        sink_fails_at: None,
    }
}

pub(super) fn scenario(rng: &mut Rng) -> Scenario {
    let clock = if rng.one_in(3) { LatenessClock::Merged } else { LatenessClock::Own };
    let policy = if rng.one_in(2) { LatePolicy::Drop } else { LatePolicy::Output };
    let allowed = if rng.one_in(2) { 0 } else { rng.below(6) as i64 };
    let lateness = Lateness { policy, clock, allowed };
    let stage_count = 2 + rng.below(STAGES_MAX as u64 - 1) as usize;
    let stages: Vec<_> = (0..stage_count).map(|number| stage(rng, number, lateness)).collect();
    let mut sources = Vec::new();
    // Without any disorder watermarks are as far as they can be.
    let jitter = if rng.one_in(2) { 0 } else { JITTER };
    for stream in 0..=stage_count {
        let spec = &stages[Stream::of_index(stream).stage()].spec;
        // Which windows are over is a matter of the merged clock.
        let is_punctual = clock == LatenessClock::Merged || spec.windows().is_some();
        let rows = 70 / stage_count as u64;
        stream_of(rng, &mut sources, (stream, rows, jitter), is_punctual);
    }
    Scenario { stages, sources }
}

fn stage(rng: &mut Rng, number: usize, lateness: Lateness) -> SimStage {
    const KINDS: [JoinKind; 8] = [
        JoinKind::Inner,
        JoinKind::Inner,
        JoinKind::Left,
        JoinKind::Left,
        JoinKind::Right,
        JoinKind::Full,
        JoinKind::Semi,
        JoinKind::Anti,
    ];
    let spec = form(rng).lateness(lateness);
    let build = |kind| spec.clone().kind(kind).build(&Limits::UNBOUNDED);
    let streams = number as u64 + 1;
    SimStage {
        // Not every kind goes with a choice.
        spec: build(KINDS[rng.below(8) as usize])
            .or_else(|_| build(JoinKind::Left))
            .expect("the interval is not empty"),
        anchor: rng.below(streams) as usize,
        key_of: rng.below(streams) as usize,
    }
}

fn form(rng: &mut Rng) -> JoinSpecBuilder {
    let lo = rng.below(24) as i64 - 12;
    let between = JoinSpec::between(Bound::Closed(lo), Bound::Closed(lo + rng.below(15) as i64));
    let asof = [Asof::backward(), Asof::forward(), Asof::nearest()][rng.below(3) as usize];
    let asof = asof.within(rng.below(15) as i64 + 1);
    match rng.below(12) {
        0 => JoinSpec::window(Window::tumbling(1 + rng.below(10) as i64).starting_at(lo)),
        1 => JoinSpec::window(Window::hopping(4 + rng.below(5) as i64, 1 + rng.below(4) as i64)),
        2 => JoinSpec::window(Window::session(1 + rng.below(3) as i64)),
        3 => JoinSpec::asof(asof),
        4 => JoinSpec::asof(asof.strict()),
        5 => between.choice(MatchChoice::First),
        6 => between.choice(MatchChoice::Last),
        7 => between.choice(MatchChoice::Nearest),
        _ => between,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Silence {
    Never,
    Anywhere,
    ThenLater,
}

/// The sources of a stream.
fn stream_of(
    rng: &mut Rng,
    sources: &mut Vec<SimSource>,
    (stream, rows, jitter): (usize, u64, u64),
    is_punctual: bool,
) {
    let (first, initial) = (sources.len(), 1 + usize::from(rng.one_in(3)));
    let is_one_added = rng.one_in(3);
    let key_count = 1 + rng.below(5);
    let rows = rows / initial as u64;
    for index in 0..initial {
        let disorder = if is_punctual { jitter } else { rng.below(jitter + 1) } as i64;
        let silence = match (initial, is_one_added, index) {
            // Alone it may fall silent anywhere: nobody moves its stream on.
            (1, false, 0) => Silence::Anywhere,
            // Beside others it comes back later than all of them.
            (_, _, 1) => Silence::ThenLater,
            _ => Silence::Never,
        };
        let script = script(rng, (stream, rows, START), (key_count, jitter), silence);
        // Another one is added when a handle has come so far.
        let is_feed = rng.one_in(2) && !(is_one_added && index == 0);
        sources.push(SimSource { stream, disorder, script, added_at: None, is_feed });
    }
    if is_one_added {
        // A source that is added begins where the source beside it had come to, at least.
        let beside = &sources[first];
        let place = rng.below(beside.script.len() as u64 + 1) as usize;
        let start = beside.script[..place].iter().map(time_of).max().unwrap_or(START);
        let start = start + jitter as i64;
        let script = script(rng, (stream, rows, start), (key_count, jitter), Silence::Never);
        let (disorder, added_at) = (jitter as i64, Some((first, place)));
        sources.push(SimSource { stream, disorder, script, added_at, is_feed: false });
    }
}

fn time_of(op: &Op) -> i64 {
    match op {
        Op::Row(row) => row.ts,
        Op::Idle => i64::MIN,
    }
}

fn script(
    rng: &mut Rng,
    (stream, rows, start): (usize, u64, i64),
    (key_count, jitter): (u64, u64),
    silence: Silence,
) -> Vec<Op> {
    let mut time = start;
    let mut script = Vec::new();
    let length = rng.below(rows.max(1) + 1);
    let silent_at = if silence == Silence::ThenLater { rng.below(2 * rows + 1) } else { u64::MAX };
    for index in 0..length {
        if index == silent_at {
            script.push(Op::Idle);
            time += 10_000;
        }
        if silence == Silence::Anywhere && rng.one_in(15) {
            script.push(Op::Idle);
        }
        time += rng.below(5) as i64;
        let own = if rng.one_in(12) { NULL } else { rng.below(key_count) as u8 };
        script.push(Op::Row(row(stream, time - rng.below(jitter.max(1)) as i64, own)));
    }
    script
}

/// A row. Those of one stream, time and key are the same, so that it never matters which of two
/// that came at the same time came first.
fn row(stream: usize, ts: i64, own: u8) -> Row {
    let mut rest = Rng::new((ts as u64) << 16 | (stream as u64) << 8 | u64::from(own));
    let mut keys =
        [0; STAGES_MAX].map(|_: u8| if rest.one_in(12) { NULL } else { rest.below(4) as u8 });
    keys[Stream::of_index(stream).stage()] = own;
    Row { ts, keys }
}

/// What the reference makes of a scenario: the rows that come out, and the late ones.
pub(super) fn expected(scenario: &Scenario) -> (Vec<Joined>, Vec<(usize, Row, i64)>) {
    let mut streams: Vec<Vec<(Row, bool)>> = vec![Vec::new(); scenario.stages.len() + 1];
    let mut late = Vec::new();
    for source in &scenario.sources {
        let stage = Stream::of_index(source.stream).stage();
        let lateness = scenario.stages[stage].spec.lateness();
        let mut seen = BoundedDisorder::new(source.disorder);
        for op in &source.script {
            let Op::Row(row) = *op else { continue };
            let from = lateness.threshold(seen.watermark());
            seen.observe(row.ts);
            let is_behind = row.ts < from;
            if is_behind && row.key(stage).is_some() {
                late.push((source.stream, row, from - row.ts));
            } else {
                // Without a key it is not late, but meets nobody in later stages either.
                streams[source.stream].push((row, is_behind));
            }
        }
    }
    let times: Vec<Vec<i64>> =
        streams.iter().map(|rows| rows.iter().map(|(row, _)| row.ts).collect()).collect();
    let bytes = |key: u64| key.to_le_bytes().to_vec();
    let parts = |row: &[Option<usize>]| -> Vec<Option<(Row, bool)>> {
        row.iter().enumerate().map(|(stream, at)| at.map(|at| streams[stream][at])).collect()
    };
    let (parts, streams_ref) = (&parts, &streams);
    let stages = scenario.stages.iter().enumerate().map(|(number, stage)| ChainStage {
        spec: stage.spec.clone(),
        anchor: stage.anchor,
        left_key: Box::new(move |row| {
            let parts = parts(row);
            let is_behind = parts.iter().flatten().any(|(_, is_behind)| *is_behind);
            let (row, _) = parts[stage.key_of].filter(|_| !is_behind)?;
            row.key(number).map(bytes)
        }),
        right_key: Box::new(move |at| streams_ref[number + 1][at].0.key(number).map(bytes)),
        condition: None,
    });
    let stages: Vec<ChainStage<'_>> = stages.collect();
    let rows = chain(&times, &stages);
    let joined = |row: &Vec<Option<usize>>| -> Joined {
        parts(row).into_iter().map(|part| part.map(|(row, _)| row)).collect()
    };
    let mut rows: Vec<Joined> = rows.iter().map(joined).collect();
    rows.sort_unstable();
    let is_shown = scenario.stages[0].spec.lateness().policy == LatePolicy::Output;
    late.retain(|_| is_shown);
    late.sort_unstable();
    (rows, late)
}
