//! The whole exchange and the shards, in orders drawn from seeds, against the oracle.
//!
//! Scenarios are made so that the result does not depend on the order: lateness is judged at the
//! source ([`LatenessClock::Own`]), or nothing is late at all. A failure prints its seed and the
//! command that runs it alone; `INTERVALE_SIM_SEEDS=100000` runs so many.

mod common;

use common::KINDS;
use intervale::error::JoinError;
use intervale::event::{Key, Side};
use intervale::exchange::{HotKeys, Pace};
use intervale::join::oracle::{Oracle, Output};
use intervale::join::{JoinSpec, SinkError, Window};
use intervale::limits::{Limits, Overflow};
use intervale::runtime::sim::{Outcome, Rng, Scenario, Schedule, SimError, SimOp, SimSource, run};
use intervale::shard::ShardError;
use intervale::time::{Bound, BoundedDisorder, LatePolicy, Lateness, LatenessClock};

/// How far events may lie behind the largest time of their source.
const JITTER: u64 = 12;

fn scenario(rng: &mut Rng) -> Scenario {
    let lo = rng.below(40) as i64 - 20;
    let clock = if rng.one_in(3) { LatenessClock::Merged } else { LatenessClock::Own };
    let policy = if rng.one_in(2) { LatePolicy::Drop } else { LatePolicy::Output };
    let allowed = if rng.one_in(2) { 0 } else { rng.below(6) as i64 };
    let spec = JoinSpec::between(Bound::Closed(lo), Bound::Closed(lo + rng.below(30) as i64))
        .kind(KINDS[rng.below(6) as usize])
        .lateness(Lateness { policy, clock, allowed })
        .build(&Limits::UNBOUNDED)
        .expect("the interval is not empty");
    let mut sources = Vec::new();
    for side in Side::BOTH {
        let (first, initial) = (sources.len(), 1 + rng.below(3) as usize);
        let is_one_added = rng.one_in(2);
        let key_count = 1 + rng.below(8);
        for index in 0..initial {
            // Under the merged clock nothing may be late, so the bound is the true one.
            let disorder = match clock {
                LatenessClock::Merged => JITTER,
                LatenessClock::Own => rng.below(JITTER + 1),
            };
            let silence = match (initial, is_one_added, index) {
                // Alone it may fall silent anywhere: nobody moves its side on.
                (1, false, 0) => Silence::Anywhere,
                // Beside others it comes back later than all of them.
                (_, _, 1) => Silence::ThenLater,
                _ => Silence::Never,
            };
            let script = script(rng, -50, key_count, silence);
            let disorder = disorder as i64;
            sources.push(SimSource { side, disorder, script, added_at: None });
        }
        if is_one_added {
            // A source that is added begins where the source beside it had come to, at least.
            let beside: &SimSource = &sources[first];
            let place = rng.below(beside.script.len() as u64 + 1) as usize;
            let start = beside.script[..place].iter().map(time_of).max().unwrap_or(-50);
            let script = script(rng, start + JITTER as i64, key_count, Silence::Never);
            let added_at = Some((first, place));
            sources.push(SimSource { side, disorder: JITTER as i64, script, added_at });
        }
    }
    let mut id = 0;
    for op in sources.iter_mut().flat_map(|source| &mut source.script) {
        if let SimOp::Event { id: own, .. } = op {
            *own = id;
            id += 1;
        }
    }
    Scenario { spec, sources }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Silence {
    Never,
    Anywhere,
    ThenLater,
}

fn script(rng: &mut Rng, start: i64, key_count: u64, silence: Silence) -> Vec<SimOp> {
    let mut time = start;
    let mut script = Vec::new();
    let length = rng.below(60);
    let silent_at = if silence == Silence::ThenLater { rng.below(120) } else { u64::MAX };
    for index in 0..length {
        if index == silent_at {
            script.push(SimOp::Idle);
            time += 10_000;
        }
        if silence == Silence::Anywhere && rng.one_in(15) {
            script.push(SimOp::Idle);
        }
        time += rng.below(5) as i64;
        let key = (!rng.one_in(20)).then(|| rng.below(key_count));
        let ts = time - rng.below(JITTER) as i64;
        script.push(SimOp::Event { key, ts, id: 0 });
    }
    script
}

fn time_of(op: &SimOp) -> i64 {
    match *op {
        SimOp::Event { ts, .. } => ts,
        SimOp::Idle => i64::MIN,
    }
}

/// What the oracle makes of it, one step of every source in turn.
fn expected(scenario: &Scenario) -> (Vec<Output>, Oracle) {
    let count = |side| scenario.sources.iter().filter(|source| source.side == side).count();
    let mut oracle = Oracle::new(&scenario.spec, count(Side::Left), count(Side::Right));
    let mut indices = [0; 2];
    let mut feeds: Vec<_> = scenario
        .sources
        .iter()
        .map(|source| {
            let index = &mut indices[source.side.index()];
            *index += 1;
            (source.side, *index - 1, source.script.iter(), BoundedDisorder::new(source.disorder))
        })
        .collect();
    let mut outputs = Vec::new();
    while !feeds.is_empty() {
        feeds.retain_mut(|(side, index, script, seen)| {
            let Some(op) = script.next() else {
                outputs.extend(oracle.finish(*side, *index));
                return false;
            };
            match *op {
                SimOp::Event { key, ts, id } => {
                    let key = key.map(u64::to_le_bytes);
                    let key = key.as_ref().map(|bytes| bytes.as_slice());
                    outputs.extend(oracle.event(*side, *index, key, ts, id).expect("no failing"));
                    seen.observe(ts);
                    outputs.extend(oracle.watermark(*side, *index, seen.watermark()));
                }
                SimOp::Idle => outputs.extend(oracle.idle(*side, *index)),
            }
            true
        });
    }
    outputs.sort_unstable();
    (outputs, oracle)
}

/// What is in one sorted list more often than in the other.
fn difference(these: &[Output], those: &[Output]) -> Vec<Output> {
    let mut rest = those.iter().peekable();
    let is_missing = |this: &&Output| {
        while rest.next_if(|that| that < this).is_some() {}
        rest.next_if(|that| that == this).is_none()
    };
    these.iter().filter(is_missing).copied().collect()
}

fn schedule(rng: &mut Rng) -> Schedule {
    Schedule {
        seed: rng.next_u64(),
        shard_count: 1 + rng.below(5) as usize,
        producer_count: 1 + rng.below(4) as usize,
        credits: 1 + rng.below(3) as usize * rng.below(2) as usize,
        batch_events: 1 + rng.below(9) as usize,
        sink_fails_at: None,
        pace: Pace { max_drift: rng.one_in(2).then(|| rng.below(60) as i64), ..Pace::default() },
        overflow: Overflow::Refuse,
        hot_keys: HotKeys::Off,
    }
}

fn check(seed: u64) -> Outcome {
    let mut rng = Rng::new(seed);
    let (scenario, schedule) = (scenario(&mut rng), schedule(&mut rng));
    check_under(seed, &scenario, &schedule)
}

fn check_under(seed: u64, scenario: &Scenario, schedule: &Schedule) -> Outcome {
    let again = format!("seed {seed}: INTERVALE_SIM_SEED={seed} cargo test --test sim");
    let outcome = match run(scenario, schedule) {
        Ok(outcome) => outcome,
        Err(error) => panic!("{error}; {again}"),
    };
    let (outputs, oracle) = expected(scenario);
    if outcome.outputs != outputs {
        let missing = difference(&outputs, &outcome.outputs);
        let extra = difference(&outcome.outputs, &outputs);
        let spec = &scenario.spec;
        panic!("missing {missing:?}, extra {extra:?} under {spec:?}, {schedule:?}; {again}");
    }
    outcome.counters.check().unwrap_or_else(|error| panic!("{error}; {again}"));
    for side in Side::BOTH {
        let (own, reference) = (outcome.counters.side(side), oracle.counters().side(side));
        let sums = |counts: &intervale::join::SideCounters| {
            // Of copied rows it is not known.
            let is_known = scenario.spec.kind().emits_pairs() && own.matched_rows().is_some();
            let matched = if is_known { counts.matched } else { 0 };
            (counts.rows, counts.on_time, counts.late, counts.null_key, counts.singles, matched)
        };
        assert_eq!(sums(own), sums(reference), "{side:?}; {again}");
        assert_eq!(own.buffered(), 0, "everything is freed at the end; {again}");
    }
    outcome
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("INTERVALE_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("INTERVALE_SIM_SEEDS").unwrap_or(400),
    }
}

#[test]
fn any_order_gives_what_the_oracle_gives() {
    let (mut pairs, mut late, mut parked, mut count) = (0, 0, 0, 0);
    for seed in seeds() {
        let outcome = check(seed);
        count += 1;
        pairs += outcome.counters.pairs;
        late += Side::BOTH.map(|side| outcome.counters.side(side).late).iter().sum::<u64>();
        parked += outcome.parked;
    }
    println!("{count} seeds, {pairs} pairs, {late} late rows, {parked} batches parked");
    // Scenarios in which nothing happens would prove nothing.
    assert!(count < 100 || (pairs > 10 * count && late > count && parked > 10 * count));
}

/// Rows behind their own source's watermark get into the windows that it leaves open, however far
/// other sources have come; their pairs have the same time.
#[test]
fn windows_are_the_same_in_any_order() {
    let (mut pairs, mut late, mut count) = (0, 0, 0);
    for seed in seeds() {
        let mut rng = Rng::new(seed);
        let (mut scenario, schedule) = (scenario(&mut rng), schedule(&mut rng));
        let size = 1 + rng.below(20) as i64;
        let window = match rng.below(3) {
            0 => Window::tumbling(size).starting_at(rng.below(9) as i64 - 4),
            1 => Window::hopping(size, 1 + rng.below(size as u64) as i64),
            _ => Window::session(1 + rng.below(9) as i64),
        };
        let lateness = Lateness { clock: LatenessClock::Own, ..scenario.spec.lateness() };
        let builder = JoinSpec::window(window).kind(scenario.spec.kind()).lateness(lateness);
        scenario.spec = builder.build(&Limits::UNBOUNDED).expect("a valid spec");
        let outcome = check_under(seed, &scenario, &schedule);
        count += 1;
        pairs += outcome.counters.pairs;
        late += Side::BOTH.map(|side| outcome.counters.side(side).late).iter().sum::<u64>();
    }
    println!("{count} seeds, {pairs} pairs, {late} late rows");
    assert!(count < 100 || (pairs > 10 * count && late > count / 2));
}

/// Keys are split and put together again all the time, at moments drawn by lot.
#[test]
fn split_keys_give_what_the_oracle_gives() {
    let (mut pairs, mut copies, mut split, mut unsplit, mut count) = (0, 0, 0, 0, 0);
    for seed in seeds() {
        let mut rng = Rng::new(seed);
        let (scenario, free) = (scenario(&mut rng), schedule(&mut rng));
        let schedule = Schedule { hot_keys: HotKeys::Forced, ..free };
        if schedule.shard_count == 1 || scenario.spec.spread_sides().is_err() {
            continue;
        }
        let outcome = check_under(seed, &scenario, &schedule);
        count += 1;
        pairs += outcome.counters.pairs;
        copies += Side::BOTH.map(|side| outcome.counters.side(side).copies).iter().sum::<u64>();
        split += outcome.hot_keys.split;
        unsplit += outcome.hot_keys.unsplit;
        let overtaken = Side::BOTH.map(|side| outcome.counters.side(side).overtaken);
        assert_eq!(overtaken, [0; 2], "no source breaks its promise; seed {seed}");
    }
    println!("{count} seeds, {pairs} pairs, {copies} copies, split {split}, unsplit {unsplit}");
    assert!(count < 100 || (pairs > 10 * count && copies > 10 * count && unsplit > 2 * count));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let (one, other) = (check(11), check(11));
    assert_eq!((one.outputs, one.turns, one.parked), (other.outputs, other.turns, other.parked));
}

/// Under a bound near which sources wait for each other all the time, the result is the same, and
/// nobody waits for ever. That the bound is too small may turn out now and then: orders differ.
#[test]
fn sources_that_wait_for_room_lose_nothing() {
    let (mut waited, mut full, mut count) = (0, 0, 0);
    for seed in seeds() {
        let mut rng = Rng::new(seed);
        let (scenario, free) = (scenario(&mut rng), schedule(&mut rng));
        let Ok(outcome) = run(&scenario, &free) else { panic!("seed {seed}") };
        let pace = Pace {
            state_bytes_max: Some(outcome.state_bytes_peak / 7 * 8),
            waits_when_full: true,
            ..free.pace
        };
        let schedule = Schedule { pace, ..free };
        count += 1;
        match run(&scenario, &schedule) {
            Err(SimError::Shard(ShardError::Join(JoinError::StateFull { .. }))) => full += 1,
            _ => waited += check_under(seed, &scenario, &schedule).waited,
        }
    }
    println!("{count} seeds, {waited} turns waited, {full} times full");
    assert!(count < 100 || (waited > 10 * count && full < count / 20));
}

/// A schedule under a bound of some rows, or of little more than what shards take without a row.
fn tight(rng: &mut Rng, overflow: Overflow) -> Schedule {
    let free = schedule(rng);
    let by_rows = rng.one_in(2).then(|| 1 + rng.below(40));
    let by_bytes = (EMPTY_SHARD_BYTES + rng.below(16 << 10)) * free.shard_count as u64;
    let pace = Pace {
        state_rows_max: by_rows,
        state_bytes_max: by_rows.is_none().then_some(by_bytes),
        makes_room: true,
        ..free.pace
    };
    // Rows that are given up are counted once, so there are no copies of them.
    let is_split = overflow == Overflow::Spill && rng.one_in(2);
    let hot_keys = if is_split { HotKeys::Forced } else { HotKeys::Off };
    Schedule { pace, overflow, hot_keys, ..free }
}

/// What a shard takes without a row, and with some in files.
const EMPTY_SHARD_BYTES: u64 = 48 << 10;

/// Under bounds that are next to nothing for each shard, all of them make room together: no run
/// ends, rows in files give the same results, and a bound is passed by a batch a shard at most.
#[test]
fn rows_in_files_give_what_the_oracle_gives() {
    let (mut spilled, mut by_rows, mut by_bytes, mut copies) = (0, 0, 0, 0);
    for seed in seeds() {
        let mut rng = Rng::new(seed);
        let (scenario, schedule) = (scenario(&mut rng), tight(&mut rng, Overflow::Spill));
        let outcome = check_under(seed, &scenario, &schedule);
        for counts in outcome.counters.sides {
            let is_once = counts.spilled <= counts.on_time + counts.late_matched + counts.copies;
            assert!(is_once || scenario.spec.lateness().policy == LatePolicy::Join, "{counts:?}");
            spilled += counts.spilled;
            copies += counts.copies;
        }
        if let Some(rows_max) = schedule.pace.state_rows_max {
            by_rows += 1;
            let most = rows_max + (schedule.batch_events * schedule.shard_count) as u64;
            // A row that is copied comes to all shards.
            let most = if outcome.hot_keys.split > 0 { u64::MAX } else { most };
            assert!(outcome.state_rows_peak <= most, "{} rows; {seed}", outcome.state_rows_peak);
        } else {
            by_bytes += 1;
        }
    }
    println!(
        "{spilled} spilled under {by_rows} bounds of rows, {by_bytes} of bytes; {copies} copies"
    );
    assert!(by_rows < 100 || (spilled > 20 * by_rows && by_bytes > 100 && copies > by_rows));
}

/// The same where the oldest rows are given up: nothing comes out that should not, and each row is
/// freed or given up once.
#[test]
fn rows_that_are_given_up_are_all_that_is_missing() {
    let (mut shed, mut missing, mut count) = (0, 0, 0);
    for seed in seeds() {
        let mut rng = Rng::new(seed);
        let (scenario, schedule) = (scenario(&mut rng), tight(&mut rng, Overflow::Shed));
        let again = format!("seed {seed}: INTERVALE_SIM_SEED={seed} cargo test --test sim");
        let outcome = match run(&scenario, &schedule) {
            Ok(outcome) => outcome,
            Err(error) => panic!("{error}; {schedule:?}; {again}"),
        };
        let (outputs, _) = expected(&scenario);
        // Who would have met a row that was given up may come out as unmatched.
        let kind = scenario.spec.kind();
        let is_wrong = |output: &Output| match *output {
            Output::Single { side, .. } => !kind.emits_unmatched(side),
            _ => true,
        };
        let mut extra = difference(&outcome.outputs, &outputs);
        extra.retain(is_wrong);
        assert!(extra.is_empty(), "extra {extra:?}; {again}");
        outcome.counters.check().unwrap_or_else(|error| panic!("{error}; {again}"));
        let mut of_run = 0;
        for side in Side::BOTH {
            let own = outcome.counters.side(side);
            assert_eq!(own.stored, own.freed + own.shed, "{again}");
            assert!(own.shed_unmatched <= own.shed, "{again}");
            of_run += own.shed;
        }
        let lost = difference(&outputs, &outcome.outputs).len() as u64;
        assert!(of_run > 0 || lost == 0, "{lost} are missing and nothing was given up; {again}");
        count += 1;
        shed += of_run;
        missing += lost;
    }
    println!("{count} seeds, {shed} given up, {missing} results missing");
    assert!(count < 100 || (shed > 10 * count && missing > count));
}

#[test]
fn a_sink_that_fails_ends_the_run_with_its_error() {
    let mut failed = 0;
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let scenario = scenario(&mut rng);
        let schedule = Schedule { sink_fails_at: Some(3), ..schedule(&mut rng) };
        match run(&scenario, &schedule) {
            Ok(outcome) => assert!(outcome.outputs.len() < 3 * schedule.shard_count),
            Err(SimError::Shard(ShardError::Sink(SinkError { message, .. }))) => {
                assert_eq!(message, "the simulated sink failed");
                failed += 1;
            }
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(failed > 10, "{failed} of 20");
}

#[test]
fn rows_carry_their_keys_through() {
    // The collector of the simulator only keeps ids; keys are what the oracle matched them by.
    let event = |id| SimOp::Event { key: Some(u64::MAX), ts: 0, id };
    let source =
        |side, id| SimSource { side, disorder: 0, script: vec![event(id)], added_at: None };
    let spec = JoinSpec::between(Bound::Closed(0), Bound::Closed(0));
    let spec = spec.build(&Limits::UNBOUNDED).expect("a point is an interval");
    let scenario = Scenario { spec, sources: vec![source(Side::Left, 1), source(Side::Right, 2)] };
    let outcome = run(&scenario, &schedule(&mut Rng::new(1))).expect("nothing fails");
    assert_eq!(outcome.outputs, [Output::Pair { left: 1, right: 2, ts: 0 }]);
    assert_ne!(Key::Int(u64::MAX), Key::Null);
}
