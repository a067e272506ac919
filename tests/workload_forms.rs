//! What `intervale bench` measures beside the plain inner join: every form and kind, held to the
//! oracle at a small size, offline and through the engine on any number of cores.

mod common;

use std::sync::Arc;

use common::KINDS;
use intervale::error::SpecError;
use intervale::event::Side;
use intervale::exchange::HotKeys;
use intervale::join::oracle::{Oracle, Output};
use intervale::join::{JoinKind, JoinSpec, MatchChoice, Window};
use intervale::runtime::{CoreChoice, IdleStrategy, RuntimeChoice};
use intervale::state::Simd;
use intervale::workload::{
    Bounds, Direction, EngineSetup, Events, Form, KeyRule, Outcome, SingleJoin, StepClock,
    Watermarks, Workload, drive, half_of_pairs, offline, run_engine,
};

fn forms() -> Vec<Form> {
    let asof = |direction| Form::Asof { direction, tolerance_ms: 60 };
    vec![
        Form::Interval(MatchChoice::All),
        Form::Interval(MatchChoice::First),
        Form::Interval(MatchChoice::Last),
        Form::Interval(MatchChoice::Nearest),
        Form::Interval(MatchChoice::OneToOne),
        asof(Direction::Backward),
        asof(Direction::Forward),
        asof(Direction::Nearest),
        Form::Window(Window::tumbling(100)),
        Form::Window(Window::hopping(100, 30).starting_at(7)),
        Form::Window(Window::session(13)),
    ]
}

/// Few keys, times that many rows share, and rows without a match.
fn workload() -> Workload {
    Workload {
        keys: KeyRule::Uniform(4),
        rate: 100,
        right_delay_ms: 50,
        between: (-20, 70),
        disorder_ms: 40,
        ..Workload::FREE
    }
}

const BATCH: usize = 16;

/// What the reference gives: pairs, and rows that come out alone.
fn by_oracle(events: &Events, spec: &JoinSpec) -> (Outcome, u64) {
    let mut oracle = Oracle::new(spec, 1, 1);
    let mut watermarks = Watermarks::of(&events.workload);
    let mut outputs = Vec::new();
    for (side, range) in events.steps(BATCH) {
        let columns = events.side(side);
        watermarks.observe(side, &columns.ts[range.clone()]);
        for i in range {
            let (key, id) = (columns.keys[i].to_le_bytes(), u64::from(columns.ids[i]));
            outputs.extend(oracle.event(side, 0, Some(&key), columns.ts[i], id).unwrap());
        }
        outputs.extend(oracle.watermark(side, 0, watermarks.side(side)));
    }
    outputs.extend(oracle.end());
    let (mut outcome, mut singles) = (Outcome::default(), 0);
    for output in outputs {
        match output {
            Output::Pair { left, right, .. } => outcome.add(left, right),
            Output::Single { .. } => singles += 1,
            Output::Late { .. } => panic!("nothing is late"),
        }
    }
    for side in Side::BOTH {
        assert_eq!(oracle.counters().side(side).late, 0, "nothing is late");
    }
    (outcome, singles)
}

fn by_engine(events: &Arc<Events>, spec: &JoinSpec, form: Form, cores: usize) -> (Outcome, u64) {
    let setup = EngineSetup {
        cores: CoreChoice::count(cores).unwrap(),
        runtime: RuntimeChoice::Threads,
        idle: IdleStrategy::Auto,
        simd: Simd::detect(),
        hot_keys: HotKeys::Auto,
    };
    let bounds = Bounds::default();
    let run = run_engine(events, spec, form.needs_order(), &setup, BATCH, &bounds).unwrap();
    let measured = run.measured;
    (measured.outcome, measured.singles)
}

/// Compares everything; returns what was found.
fn compare(form: Form, kind: JoinKind, seed: u64) -> Result<(Outcome, u64), SpecError> {
    let all = compare_with(form, kind, seed, false)?;
    let half = compare_with(form, kind, seed, true)?;
    assert!(kind == JoinKind::Inner || half != all, "{form:?} {kind:?}: a condition changes it");
    assert!(half.0.pairs <= all.0.pairs, "{form:?} {kind:?}");
    Ok(all)
}

fn compare_with(
    form: Form,
    kind: JoinKind,
    seed: u64,
    with_condition: bool,
) -> Result<(Outcome, u64), SpecError> {
    let workload = form.workload(workload());
    let mut spec = form.spec(&workload, kind)?;
    if with_condition {
        spec = spec.with_condition(half_of_pairs());
    }
    let events = Arc::new(Events::new(workload, seed, 400));
    let expected = by_oracle(&events, &spec);
    let about = format!("{form:?} {kind:?} {with_condition}");
    let offline = offline(&events, &spec);
    assert_eq!(offline.outcome, expected.0, "{about}, offline");
    if let Some(singles) = offline.singles {
        assert_eq!(singles, expected.1, "{about}, offline");
    }
    let mut join = SingleJoin::new(spec.clone(), Simd::detect())?;
    let measured = drive(&mut join, &events, BATCH, StepClock::Wall).unwrap();
    assert_eq!((measured.outcome, measured.singles), expected, "{about}, join");
    for cores in [1, 3] {
        let found = by_engine(&events, &spec, form, cores);
        assert_eq!(found, expected, "{about}, engine on {cores}");
    }
    Ok(expected)
}

#[test]
fn every_form_and_kind_gives_what_the_oracle_does() {
    let mut outcomes = Vec::new();
    for form in forms() {
        for kind in KINDS {
            let is_for_left_rows = match form {
                Form::Interval(choice) => {
                    !matches!(choice, MatchChoice::All | MatchChoice::OneToOne)
                }
                Form::Asof { .. } => true,
                Form::Window(_) => false,
            };
            let found = compare(form, kind, 11);
            if is_for_left_rows && kind.emits_unmatched(Side::Right) {
                assert!(found.is_err(), "{form:?} {kind:?}");
                continue;
            }
            let (outcome, singles) = found.unwrap();
            assert_eq!(outcome.pairs > 0, kind.emits_pairs(), "{form:?} {kind:?}");
            assert_eq!(singles > 0, kind != JoinKind::Inner, "{form:?} {kind:?}");
            if kind == JoinKind::Inner {
                outcomes.push(outcome.checksum);
            }
        }
    }
    let count = outcomes.len();
    outcomes.sort_unstable();
    outcomes.dedup();
    assert_eq!(outcomes.len(), count, "each form gives other pairs");
}

/// Sizes at which a wrong order between cores would show.
#[test]
fn choices_do_not_depend_on_how_many_cores_read() {
    let workload = Workload { rate: 4_000, ..workload() };
    for choice in [MatchChoice::OneToOne, MatchChoice::Nearest] {
        let form = Form::Interval(choice);
        let workload = form.workload(workload);
        let spec = form.spec(&workload, JoinKind::Inner).unwrap();
        let events = Arc::new(Events::new(workload, 3, 20_000));
        let expected = offline(&events, &spec);
        for cores in [1, 2, 4] {
            let found = by_engine(&events, &spec, form, cores);
            assert_eq!(found, (expected.outcome, 0), "{choice:?} on {cores}");
        }
    }
}
