//! Chains in orders drawn from seeds, against the reference. A failure prints its seed and the
//! command that runs it alone; `INTERVALE_SIM_SEEDS=100000` runs so many.

use super::draw::{expected, scenario, schedule};
use super::{Outcome, Scenario, Schedule, run};
use crate::engine::EngineError;
use crate::error::JoinError;
use crate::event::Side;
use crate::join::{JoinKind, JoinSpec};
use crate::limits::{Limits, Overflow};
use crate::runtime::sim::Rng;
use crate::time::Bound;

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("INTERVALE_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("INTERVALE_SIM_SEEDS").unwrap_or(300),
    }
}

/// `None`: there is no such chain.
fn check(seed: u64, scenario: &Scenario, schedule: &Schedule) -> Option<Outcome> {
    let again = format!("INTERVALE_SIM_SEED={seed} cargo test --release --lib chain::sim");
    let outcome = match run(scenario, schedule) {
        Ok(outcome) => outcome,
        Err(EngineError::Chain(_)) => return None,
        Err(error) => panic!("{error}; {schedule:?}; {again}"),
    };
    let (rows, late) = expected(scenario);
    if outcome.rows != rows {
        let missing: Vec<_> = rows.iter().filter(|row| !outcome.rows.contains(row)).collect();
        let extra: Vec<_> = outcome.rows.iter().filter(|row| !rows.contains(row)).collect();
        let stages = &scenario.stages;
        panic!("missing {missing:?}, extra {extra:?} in {stages:?}, {schedule:?}; {again}");
    }
    assert_eq!(outcome.late, late, "{again}");
    for (number, report) in outcome.reports.iter().enumerate() {
        for side in Side::BOTH {
            let counts = report.counters.side(side);
            assert_eq!(counts.buffered(), 0, "everything is freed at the end; {again}");
            let is_handed = number > 0 && side == Side::Left;
            assert!(!is_handed || counts.late == 0, "late in a later stage; {again}");
        }
    }
    Some(outcome)
}

#[test]
fn any_order_gives_what_the_oracle_gives() {
    let (mut count, mut none, mut rows, mut late, mut refused, mut behind) = (0, 0, 0, 0, 0, 0);
    for seed in seeds() {
        let mut rng = Rng::new(seed);
        let (scenario, schedule) = (scenario(&mut rng), schedule(&mut rng));
        let Some(outcome) = check(seed, &scenario, &schedule) else {
            none += 1;
            continue;
        };
        count += 1;
        rows += outcome.rows.len();
        late += outcome.late.len();
        refused += outcome.refused;
        behind += outcome.reports.iter().map(|report| report.left_behind).sum::<u64>();
    }
    println!(
        "{count} seeds ({none} no chains), {rows} rows, {late} late, {refused} refused, {behind} \
         behind"
    );
    // Scenarios in which nothing happens would prove nothing.
    assert!(count < 100 || (rows > 5 * count && 2 * late > count && refused > count as u64));
    assert!(count < 100 || (none < count / 4 && behind > 0));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let once = |seed: u64| {
        let mut rng = Rng::new(seed);
        let (scenario, schedule) = (scenario(&mut rng), schedule(&mut rng));
        run(&scenario, &schedule).map(|it| (it.turns, it.refused, it.rows))
    };
    (0..5).for_each(|seed| assert_eq!(once(seed), once(seed)));
}

/// Under a bound near which sources wait for each other all the time, the result is the same, and
/// nobody waits for ever. That the bound is too small may turn out now and then: orders differ.
#[test]
fn sources_that_wait_for_room_lose_nothing() {
    let (mut count, mut full, mut refused) = (0, 0, 0);
    for seed in seeds() {
        let mut rng = Rng::new(seed);
        let (scenario, free) = (scenario(&mut rng), schedule(&mut rng));
        let Ok(outcome) = run(&scenario, &free) else { continue };
        let state_bytes_max = Some(outcome.state_bytes_peak * 2);
        let limits = Limits { state_bytes_max, ..Limits::UNBOUNDED };
        let schedule = Schedule { limits, ..free };
        count += 1;
        match run(&scenario, &schedule) {
            Err(error) if is_full(&error) => full += 1,
            _ => refused += check(seed, &scenario, &schedule).map_or(0, |it| it.refused),
        }
    }
    println!("{count} seeds, {refused} refused, {full} times full");
    assert!(count < 100 || (refused > count && full < count / 5));
}

/// Under bounds of next to nothing, of which each shard of each stage has less than a batch, rows
/// in files give the same result, and rows that are given up are missing and counted.
#[test]
fn shards_that_make_room_together_never_end_the_run() {
    let (mut count, mut spilled, mut shed) = (0, 0, 0);
    for seed in seeds() {
        let mut rng = Rng::new(seed);
        let (mut scenario, free) = (scenario(&mut rng), schedule(&mut rng));
        // Rows go into files where all matches count. A stage that finds many waits for the next.
        for stage in &mut scenario.stages {
            let wide = JoinSpec::between(Bound::Closed(-20), Bound::Closed(25));
            let wide = wide.kind(JoinKind::Full).lateness(stage.spec.lateness());
            stage.spec = wide.build(&Limits::UNBOUNDED).expect("the interval is not empty");
        }
        let free = Schedule { lane_batches: 1, batch_events: 1 + free.batch_events / 4, ..free };
        let rows_max = 1 + rng.below(20);
        let of = |overflow| Schedule {
            limits: Limits { state_rows_max: Some(rows_max), overflow, ..Limits::UNBOUNDED },
            ..free
        };
        let Some(outcome) = check(seed, &scenario, &of(Overflow::Spill)) else { continue };
        count += 1;
        let shards = free.shard_count * scenario.stages.len();
        let most = rows_max + (free.batch_events * shards) as u64;
        assert!(outcome.state_rows_peak <= most, "{} of {most}", outcome.state_rows_peak);
        let sides = |it: &Outcome| -> Vec<_> {
            it.reports.iter().flat_map(|report| report.counters.sides).collect()
        };
        spilled += sides(&outcome).iter().map(|side| side.spilled).sum::<u64>();
        let outcome = run(&scenario, &of(Overflow::Shed)).unwrap();
        for side in sides(&outcome) {
            assert_eq!(side.stored, side.freed + side.shed, "seed {seed}");
            shed += side.shed;
        }
    }
    println!("{count} seeds, {spilled} spilled, {shed} shed");
    assert!(count < 30 || (spilled > 10 * count && shed > 10 * count));
}

fn is_full(error: &EngineError) -> bool {
    match error {
        EngineError::Stage { error, .. } => is_full(error),
        EngineError::Join { error, .. } => matches!(error, JoinError::StateFull { .. }),
        _ => false,
    }
}

#[test]
fn a_sink_that_fails_ends_the_run_with_its_error() {
    let mut failed = 0;
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let (scenario, free) = (scenario(&mut rng), schedule(&mut rng));
        match run(&scenario, &Schedule { sink_fails_at: Some(3), ..free }) {
            Ok(outcome) => assert!(outcome.rows.len() < 3 * free.shard_count),
            Err(EngineError::Sink { error, .. }) => {
                assert_eq!(error.message, "the simulated sink failed");
                failed += 1;
            }
            Err(EngineError::Chain(_)) => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(failed > 10, "{failed} of 20");
}
