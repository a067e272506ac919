//! Time to live: the operator against the oracle under a clock that tests move, and the engine.

mod common;

use std::time::{Duration, Instant};

use common::run::{left_alone, pair, right_alone};
use common::{Arrival, KINDS, OperatorSubject, OracleSubject, Step, Subject, apply, limits};
use intervale::engine::Engine;
use intervale::error::SpecError;
use intervale::event::{Event, Key, KeyKind, Side};
use intervale::join::oracle::Output;
use intervale::join::{
    Asof, Condition, Emit, Join, JoinKind, JoinSpec, JoinSpecBuilder, MatchChoice, Sink, Window,
};
use intervale::limits::Limits;
use intervale::runtime::{CoreChoice, RuntimeChoice};
use intervale::time::{Bound, LatePolicy, Lateness, LatenessClock};
use proptest::prelude::*;

const TTL: Duration = Duration::from_nanos(80);

fn spec(kind: JoinKind, keys: KeyKind, lateness: Lateness, bucket_width: i64) -> JoinSpec {
    JoinSpec::between(Bound::Closed(-10), Bound::Closed(20))
        .kind(kind)
        .keys(keys)
        .lateness(lateness)
        .bucket_width(bucket_width)
        .ttl(TTL)
        .build(&limits())
        .unwrap()
}

fn plain(kind: JoinKind) -> JoinSpec {
    spec(kind, KeyKind::Bytes, Lateness::default(), 4)
}

fn event(side: Side, key: u8, ts: i64, id: u64) -> Step {
    Step::Event(Arrival { side, source: 0, key: Some(vec![b'k', key]), ts, id })
}

/// Both at every step; events that follow each other go in together where `together`.
fn compare(spec: &JoinSpec, steps: &[Step], shards: usize) -> Result<(), String> {
    let mut oracle = OracleSubject::new(spec, [1, 1]);
    let mut operator = OperatorSubject::new(spec, [1, 1], shards);
    for (at, step) in steps.iter().enumerate() {
        let mut expected = apply(&mut oracle, step).unwrap();
        let mut got = apply(&mut operator, step).unwrap();
        if shards > 1 {
            expected.sort();
            got.sort();
        }
        if expected != got {
            let steps = &steps[..=at];
            return Err(format!("expected {expected:?}\ngot {got:?}\n{spec:?}\n{steps:?}"));
        }
    }
    let (mut expected, mut got) = (*oracle.0.counters(), operator.counters());
    for counters in [&mut expected, &mut got] {
        counters.check().unwrap();
        assert_eq!(counters.buffered(), 0, "{counters:?}");
    }
    if expected == got { Ok(()) } else { Err(format!("{expected:?}\n{got:?}\n{steps:?}")) }
}

#[test]
fn a_row_is_gone_after_its_time_and_says_so() {
    for kind in [JoinKind::Inner, JoinKind::Full] {
        let spec = plain(kind);
        let oracle: Box<dyn Subject> = Box::new(OracleSubject::new(&spec, [1, 1]));
        let operator: Box<dyn Subject> = Box::new(OperatorSubject::new(&spec, [1, 1], 1));
        for mut subject in [oracle, operator] {
            let mut run = |step: Step| apply(&mut *subject, &step).unwrap();
            let none: [Output; 0] = [];
            let of_full = |rows: &[Output]| match kind {
                JoinKind::Full => rows.to_vec(),
                _ => Vec::new(),
            };
            assert_eq!(run(Step::Tick { ns: 1_000 }), none);
            assert_eq!(run(event(Side::Left, 1, 5, 1)), none);
            assert_eq!(run(event(Side::Left, 1, 3, 2)), none);
            assert_eq!(run(event(Side::Right, 2, 4, 3)), none);
            // All of them were stored by now.
            assert_eq!(run(Step::Tick { ns: 1_010 }), none);
            assert_eq!(run(event(Side::Left, 1, 4, 4)), none);
            let three = [pair(1, 5, 5), pair(2, 5, 3), pair(4, 5, 4)];
            assert_eq!(run(event(Side::Right, 1, 3, 5)), three);
            assert_eq!(run(Step::Tick { ns: 1_089 }), none, "not yet");
            let over = run(Step::Tick { ns: 1_090 });
            assert_eq!(over, of_full(&[right_alone(3)]), "1 and 2 are matched");
            let met = run(event(Side::Right, 1, 4, 6));
            assert_eq!(met, [pair(4, 6, 4)], "1 and 2 are gone");
            assert_eq!(run(event(Side::Left, 2, 4, 7)), none, "3 is gone");
            let over = run(Step::Tick { ns: 1_300 });
            assert_eq!(over, none, "7 was stored by this tick");
            assert_eq!(run(Step::Tick { ns: 1_380 }), of_full(&[left_alone(7)]));
            assert_eq!(run(event(Side::Left, 1, 4, 8)), none, "6 is gone, too");
            assert_eq!(run(Step::End), of_full(&[left_alone(8)]));
        }
    }
}

#[derive(Clone, Debug)]
struct Draft {
    what: u8,
    right: bool,
    key: u8,
    ts: i64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let draft = (0u8..100, any::<bool>(), 0u8..4, 0i64..60)
        .prop_map(|(what, right, key, ts)| Draft { what, right, key, ts });
    prop::collection::vec(draft, 1..160).prop_map(|drafts| {
        let mut ns = 1_000;
        let step = |(index, draft): (usize, &Draft)| {
            let side = if draft.right { Side::Right } else { Side::Left };
            let progress = index as i64 / 3;
            match draft.what {
                0..70 => event(side, draft.key, progress + draft.ts, index as u64),
                70..85 => {
                    ns += draft.ts as u64 * if draft.what == 84 { 9 } else { 1 };
                    Step::Tick { ns }
                }
                _ => Step::Watermark { side, source: 0, ts: progress + draft.ts / 2 },
            }
        };
        let mut steps: Vec<Step> = drafts.iter().enumerate().map(step).collect();
        steps.push(Step::End);
        steps
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_cases(
        steps in steps(),
        kind in prop::sample::select(&KINDS[..]),
        keys in prop::sample::select(&[KeyKind::Int, KeyKind::Bytes][..]),
        policy in prop::sample::select(&[LatePolicy::Drop, LatePolicy::Join][..]),
        clock in prop::sample::select(&[LatenessClock::Merged, LatenessClock::Own][..]),
        allowed in 0i64..5,
        bucket_width in 1i64..64,
        shards in prop::sample::select(&[1usize, 1, 2, 8][..]),
    ) {
        let spec = spec(kind, keys, Lateness { policy, clock, allowed }, bucket_width);
        compare(&spec, &steps, shards).map_err(TestCaseError::fail)?;
    }
}

/// Memory goes with the rows although no watermark ever comes.
#[test]
fn memory_stays_bounded_under_watermarks_that_stand() {
    let limits = Limits::UNBOUNDED;
    let spec = JoinSpec::between(Bound::Closed(-20_000), Bound::Closed(20_000))
        .kind(JoinKind::Full)
        .ttl(Duration::from_nanos(10_000))
        .build(&limits)
        .unwrap();
    let mut join = Join::new(spec, limits).unwrap();
    let mut alone = 0u64;
    let mut out = Count(&mut alone);
    let mut peak = 0;
    for number in 0..400_000u64 {
        let side = Side::BOTH[number as usize % 2];
        let ts = 1_700_000_000_000 + number as i64;
        join.push(side, Key::Int(number), ts, b"a row of twenty bytes", &mut out).unwrap();
        join.tick(number, &mut out);
        peak = peak.max(join.state_bytes());
    }
    join.finish(&mut out);
    let counters = *join.counters();
    counters.check().unwrap();
    let [left, right] = counters.sides;
    assert_eq!(alone, 400_000);
    assert!(left.timed_out + right.timed_out > 380_000, "{counters:?}");
    assert!(peak < 20_000 * 300, "{peak} bytes for some 11,250 rows at a time");
}

struct Count<'a>(&'a mut u64);

impl Emit for Count<'_> {
    fn pair(&mut self, _: Event<'_>, _: Event<'_>) {}

    fn single(&mut self, _: Side, _: Event<'_>) {
        *self.0 += 1;
    }
}

/// An engine that nothing comes to any more lets rows go by itself, on every core and runtime.
#[test]
fn an_idle_engine_gives_its_answer() {
    struct Send(std::sync::mpsc::Sender<(Side, i64)>);
    impl Emit for Send {
        fn pair(&mut self, _: Event<'_>, _: Event<'_>) {}

        fn single(&mut self, side: Side, event: Event<'_>) {
            self.0.send((side, event.ts)).unwrap();
        }
    }
    impl Sink for Send {}
    let ttl = Duration::from_millis(40);
    for (shards, runtime) in
        [(1, RuntimeChoice::Threads), (2, RuntimeChoice::Auto), (8, RuntimeChoice::Threads)]
    {
        let (sender, receiver) = std::sync::mpsc::channel();
        let bounds = JoinSpec::between(Bound::Closed(0), Bound::Closed(1_000));
        let spec = bounds.kind(JoinKind::Left).ttl(ttl).build(&Limits::UNBOUNDED).unwrap();
        let engine = Engine::builder(spec)
            .cores(CoreChoice::count(shards).unwrap())
            .runtime(runtime)
            .sinks(|_| Send(sender.clone()))
            .start()
            .unwrap();
        let mut left = engine.source(Side::Left).unwrap();
        let right = engine.source(Side::Right).unwrap();
        let before = Instant::now();
        for key in 0..100 {
            left.push(Key::Int(key), key as i64, b"order").unwrap();
        }
        left.flush().unwrap();
        // Nothing comes, and no watermark moves.
        for _ in 0..100 {
            receiver.recv_timeout(Duration::from_secs(60)).expect("the row comes out by itself");
        }
        assert!(before.elapsed() >= ttl, "{:?}", before.elapsed());
        drop((left, right));
        let report = engine.finish().unwrap().report;
        let counters = report.counters.side(Side::Left);
        assert_eq!((counters.timed_out, counters.singles, counters.freed), (100, 100, 0));
    }
}

/// Forms that choose one of the matches of a left row.
fn choosing() -> impl Strategy<Value = JoinSpecBuilder> {
    let interval = JoinSpec::between(Bound::Closed(-10), Bound::Closed(20));
    let chosen = |choice| interval.clone().choice(choice);
    prop::sample::select(vec![
        chosen(MatchChoice::First),
        chosen(MatchChoice::Last),
        chosen(MatchChoice::Nearest),
        JoinSpec::asof(Asof::backward().within(15)),
        JoinSpec::asof(Asof::forward().within(15)),
        JoinSpec::asof(Asof::nearest().within(15)),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// A left row that is over gives the pair that it would give if nothing followed.
    #[test]
    fn random_cases_of_choices(
        steps in steps(),
        form in choosing(),
        kind in prop::sample::select(vec![JoinKind::Inner, JoinKind::Left, JoinKind::Semi, JoinKind::Anti]),
        keys in prop::sample::select(&[KeyKind::Int, KeyKind::Bytes][..]),
        policy in prop::sample::select(&[LatePolicy::Drop, LatePolicy::Join][..]),
        clock in prop::sample::select(&[LatenessClock::Merged, LatenessClock::Own][..]),
        allowed in 0i64..5,
        has_condition in any::<bool>(),
        shards in prop::sample::select(&[1usize, 1, 2, 8][..]),
    ) {
        let form = form.kind(kind).keys(keys).lateness(Lateness { policy, clock, allowed });
        let mut spec = form.bucket_width(4).ttl(TTL).build(&limits()).unwrap();
        if has_condition {
            spec = spec.with_condition(Condition::new(|left, right| {
                left.row.first().zip(right.row.first()).is_some_and(|(l, r)| (l + r) % 3 > 0)
            }));
        }
        compare(&spec, &steps, shards).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn a_left_row_gives_the_best_that_it_has_met_when_it_is_over() {
    let interval = JoinSpec::between(Bound::Closed(-10), Bound::Closed(20));
    let spec = interval.choice(MatchChoice::Last).kind(JoinKind::Left).keys(KeyKind::Bytes);
    let spec = spec.ttl(TTL).build(&limits()).unwrap();
    let oracle: Box<dyn Subject> = Box::new(OracleSubject::new(&spec, [1, 1]));
    let operator: Box<dyn Subject> = Box::new(OperatorSubject::new(&spec, [1, 1], 1));
    for mut subject in [oracle, operator] {
        let mut run = |step: Step| apply(&mut *subject, &step).unwrap();
        run(Step::Tick { ns: 1_000 });
        for (side, key, ts, id) in [
            (Side::Left, 1, 8, 1),
            (Side::Left, 1, 7, 2),
            (Side::Left, 2, 5, 3),
            (Side::Right, 1, 9, 4),
            (Side::Right, 1, 12, 5),
        ] {
            assert!(run(event(side, key, ts, id)).is_empty(), "a later one may come");
        }
        run(Step::Tick { ns: 1_010 });
        assert!(run(event(Side::Left, 1, 6, 6)).is_empty());
        let over = run(Step::Tick { ns: 1_090 });
        assert_eq!(over, [left_alone(3), pair(2, 5, 12), pair(1, 5, 12)], "by time");
        assert!(run(event(Side::Left, 1, 9, 7)).is_empty(), "4 and 5 are gone");
        assert!(run(event(Side::Right, 1, 15, 8)).is_empty(), "1 and 2 are out");
        assert_eq!(run(Step::End), [pair(6, 8, 15), pair(7, 8, 15)]);
    }
}

#[test]
fn what_does_not_go_with_it_is_refused() {
    let all = || JoinSpec::between(Bound::Closed(0), Bound::Closed(10));
    let told = |spec: JoinSpecBuilder| match spec.build(&Limits::UNBOUNDED) {
        Err(SpecError::Ttl(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(told(all().ttl(Duration::ZERO)).contains("more than 0"));
    assert!(told(all().choice(MatchChoice::OneToOne).ttl(TTL)).contains("one to one"));
    assert!(told(JoinSpec::window(Window::tumbling(10)).ttl(TTL)).contains("window"));
}
