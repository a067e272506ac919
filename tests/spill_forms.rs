//! Rows in files where they wait for their turn: choices among matches, as-of joins, windows.
//! Results are those of a join whose state has all the room it wants.

mod common;

use common::{Arrival, KINDS, OperatorSubject, OracleSubject, Step, Subject, apply};
use intervale::event::{KeyKind, Side};
use intervale::join::{Asof, Counters, JoinKind, JoinSpec, JoinSpecBuilder, MatchChoice, Window};
use intervale::limits::{Limits, Overflow};
use intervale::state::Simd;
use intervale::time::{Bound, LatePolicy, Lateness, LatenessClock};
use proptest::prelude::*;

const CHOICES: [MatchChoice; 4] =
    [MatchChoice::First, MatchChoice::Last, MatchChoice::Nearest, MatchChoice::OneToOne];
const CLOCKS: [LatenessClock; 2] = [LatenessClock::Merged, LatenessClock::Own];

fn rows_max(rows: u64) -> Limits {
    Limits { state_rows_max: Some(rows), overflow: Overflow::Spill, ..Limits::UNBOUNDED }
}

/// The counts that do not depend on where rows are.
fn comparable(mut counters: Counters) -> Counters {
    counters.check().unwrap();
    for side in &mut counters.sides {
        (side.freed, side.spilled) = (0, 0);
    }
    counters
}

/// Two sources a side, one of which may fall idle.
fn steps(count: usize) -> impl Strategy<Value = Vec<Step>> {
    let draft = (0u8..100, any::<bool>(), 0usize..2, 0u8..4, -10i64..50);
    prop::collection::vec(draft, 1..count).prop_map(|drafts| {
        let step =
            |(index, &(what, right, source, key, ts)): (usize, &(u8, bool, usize, u8, i64))| {
                let side = if right { Side::Right } else { Side::Left };
                let progress = index as i64 / 3 - 20;
                match what {
                    0..2 => Step::Event(Arrival { side, source, key: None, ts, id: index as u64 }),
                    2..84 => {
                        let (key, ts) = (Some(vec![b'k', key]), progress + ts);
                        Step::Event(Arrival { side, source, key, ts, id: index as u64 })
                    }
                    84..98 => Step::Watermark { side, source, ts: progress + ts / 2 },
                    _ => Step::Idle { side, source: 1 },
                }
            };
        let mut steps: Vec<Step> = drafts.iter().enumerate().map(step).collect();
        steps.push(Step::End);
        steps
    })
}

/// Step by step what the oracle gives, in its order on one shard; returns what went into files.
fn compare(
    spec: &JoinSpec,
    limits: Limits,
    steps: &[Step],
    (shards, simd): (usize, Simd),
) -> Result<u64, TestCaseError> {
    let mut oracle = OracleSubject::new(spec, [2, 2]);
    let mut operator = OperatorSubject::under(limits, spec, [2, 2], shards, simd);
    for step in steps {
        let mut expected = apply(&mut oracle, step).unwrap();
        let mut got = apply(&mut operator, step).unwrap();
        if shards > 1 {
            expected.sort();
            got.sort();
        }
        prop_assert_eq!(expected, got, "{:?}", step);
    }
    let (expected, got) = (*oracle.0.counters(), operator.counters());
    prop_assert_eq!(got.buffered(), 0);
    prop_assert_eq!(comparable(expected), comparable(got));
    let spilled = got.sides.map(|side| side.spilled);
    for (side, spilled) in got.sides.iter().zip(spilled) {
        prop_assert!(spilled <= side.stored, "a row goes there once: {:?}", side);
    }
    Ok(spilled[0] + spilled[1])
}

fn subject() -> impl Strategy<Value = (usize, Simd)> {
    let simds: Vec<Simd> = Simd::ALL.into_iter().filter(|simd| simd.is_available()).collect();
    (prop::sample::select(&[1usize, 1, 2, 8][..]), prop::sample::select(simds))
}

fn with_condition(spec: JoinSpecBuilder, is_wanted: bool) -> JoinSpecBuilder {
    if !is_wanted {
        return spec;
    }
    // Rows are their numbers.
    spec.condition(|left, right| (left.row[0] ^ right.row[0]) % 4 != 1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn choices(
        steps in steps(200),
        choice in prop::sample::select(&CHOICES[..]),
        kind in prop::sample::select(&KINDS[..]),
        keys in prop::sample::select(&[KeyKind::Int, KeyKind::Bytes][..]),
        policy in prop::sample::select(&[LatePolicy::Drop, LatePolicy::Join][..]),
        clock in prop::sample::select(&CLOCKS[..]),
        allowed in 0i64..5,
        (lo, width) in (-30i64..20, 0i64..60),
        bucket_width in 1i64..64,
        rows in 1u64..24,
        condition in any::<bool>(),
        subject in subject(),
    ) {
        let limits = rows_max(rows);
        let spec = JoinSpec::between(Bound::Closed(lo), Bound::Closed(lo + width))
            .kind(kind)
            .keys(keys)
            .choice(choice)
            .lateness(Lateness { policy, clock, allowed })
            .bucket_width(bucket_width);
        // A right row that comes out unmatched does not go with a choice for left ones.
        let Ok(spec) = with_condition(spec, condition).build(&limits) else { return Ok(()) };
        compare(&spec, limits, &steps, subject)?;
    }

    #[test]
    fn asof(
        steps in steps(200),
        direction in 0u8..3,
        strict in any::<bool>(),
        tolerance in prop_oneof![3 => (1i64..50).prop_map(Some), 1 => Just(None)],
        is_outer in any::<bool>(),
        clock in prop::sample::select(&CLOCKS[..]),
        rows in 1u64..24,
        subject in subject(),
    ) {
        let limits = rows_max(rows);
        let asof = match direction {
            0 => Asof::backward(),
            1 => Asof::forward(),
            _ => Asof::nearest(),
        };
        let asof = tolerance.map_or(asof, |ticks| asof.within(ticks));
        let asof = if strict { asof.strict() } else { asof };
        let spec = JoinSpec::asof(asof)
            .kind(if is_outer { JoinKind::Left } else { JoinKind::Inner })
            .keys(KeyKind::Bytes)
            .lateness(Lateness { clock, ..Lateness::default() })
            .build(&limits)
            .unwrap();
        compare(&spec, limits, &steps, subject)?;
    }

    #[test]
    fn windows(
        steps in steps(200),
        (form, size, slide, offset) in (0u8..3, 1i64..30, 1i64..30, -9i64..9),
        kind in prop::sample::select(&KINDS[..]),
        keys in prop::sample::select(&[KeyKind::Int, KeyKind::Bytes][..]),
        clock in prop::sample::select(&CLOCKS[..]),
        allowed in 0i64..12,
        rows in 1u64..24,
        condition in any::<bool>(),
        subject in subject(),
    ) {
        let limits = rows_max(rows);
        let window = match form {
            0 => Window::tumbling(size).starting_at(offset),
            1 => Window::hopping(size.max(slide), slide).starting_at(offset),
            _ => Window::session(size / 3 + 1),
        };
        let policy = LatePolicy::Output;
        let spec = JoinSpec::window(window)
            .kind(kind)
            .keys(keys)
            .lateness(Lateness { policy, clock, allowed });
        let spec = with_condition(spec, condition).build(&limits).unwrap();
        compare(&spec, limits, &steps, subject)?;
    }
}

/// Rows that live only so long, of which most are in files when they die.
mod lives {
    use std::time::Duration;

    use super::*;

    const TTL: Duration = Duration::from_nanos(80);

    fn ticked(count: usize) -> impl Strategy<Value = Vec<Step>> {
        let ticks = prop::collection::vec((any::<prop::sample::Index>(), 0u64..90), 1..40);
        (steps(count), ticks).prop_map(|(mut steps, ticks)| {
            let mut places: Vec<(usize, u64)> = Vec::new();
            places.extend(ticks.iter().map(|(at, ns)| (at.index(steps.len()), *ns)));
            places.sort_by_key(|place| std::cmp::Reverse(place.0));
            // From the last one back, so that places stay.
            let mut ns = 1_000 + places.iter().map(|place| place.1).sum::<u64>();
            for (at, since) in places {
                steps.insert(at, Step::Tick { ns });
                ns -= since;
            }
            steps
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]

        #[test]
        fn intervals(
            steps in ticked(200),
            kind in prop::sample::select(&KINDS[..]),
            keys in prop::sample::select(&[KeyKind::Int, KeyKind::Bytes][..]),
            policy in prop::sample::select(&[LatePolicy::Drop, LatePolicy::Join][..]),
            clock in prop::sample::select(&CLOCKS[..]),
            allowed in 0i64..5,
            (lo, width) in (-30i64..20, 0i64..60),
            bucket_width in 1i64..64,
            rows in 1u64..24,
            subject in subject(),
        ) {
            let limits = rows_max(rows);
            let spec = JoinSpec::between(Bound::Closed(lo), Bound::Closed(lo + width))
                .kind(kind)
                .keys(keys)
                .lateness(Lateness { policy, clock, allowed })
                .bucket_width(bucket_width)
                .ttl(TTL)
                .build(&limits)
                .unwrap();
            compare(&spec, limits, &steps, subject)?;
        }

        #[test]
        fn choices(
            steps in ticked(200),
            choice in prop::sample::select(&CHOICES[..3]),
            is_outer in any::<bool>(),
            clock in prop::sample::select(&CLOCKS[..]),
            (lo, width) in (-30i64..20, 0i64..60),
            rows in 1u64..24,
            condition in any::<bool>(),
            subject in subject(),
        ) {
            let limits = rows_max(rows);
            let spec = JoinSpec::between(Bound::Closed(lo), Bound::Closed(lo + width))
                .kind(if is_outer { JoinKind::Left } else { JoinKind::Inner })
                .keys(KeyKind::Bytes)
                .choice(choice)
                .lateness(Lateness { clock, ..Lateness::default() })
                .bucket_width(4)
                .ttl(TTL);
            let spec = with_condition(spec, condition).build(&limits).unwrap();
            compare(&spec, limits, &steps, subject)?;
        }
    }

    /// Many rows over many files, which are put together while some of their rows are dead.
    #[test]
    fn many_files() {
        for (kind, ttl_ns) in [(JoinKind::Full, 900), (JoinKind::Inner, 900), (JoinKind::Anti, 40)]
        {
            let limits = rows_max(8);
            let spec = JoinSpec::between(Bound::Closed(-900), Bound::Closed(1_200))
                .kind(kind)
                .keys(KeyKind::Bytes)
                .bucket_width(4)
                .ttl(Duration::from_nanos(ttl_ns))
                .build(&limits)
                .unwrap();
            let mut steps = Vec::new();
            let mut state = 11u64;
            for id in 0..3_000u64 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let drawn = state >> 33;
                let side = if drawn % 5 < 2 { Side::Left } else { Side::Right };
                let key = Some((drawn % 397).to_string().into_bytes());
                let ts = id as i64 + (drawn >> 9) as i64 % 60;
                steps.push(Step::Event(Arrival { side, source: 0, key, ts, id }));
                steps.push(Step::Tick { ns: id });
                if id % 40 == 0 {
                    let ts = id as i64 / 2;
                    steps.extend(Side::BOTH.map(|side| Step::Watermark { side, source: 0, ts }));
                    steps.extend(Side::BOTH.map(|side| Step::Idle { side, source: 1 }));
                }
            }
            steps.push(Step::End);
            let spilled = compare(&spec, limits, &steps, (1, Simd::detect())).unwrap();
            assert!(spilled > 2_000, "{spilled} rows were in files");
        }
    }
}

/// Every small input: each of four rows on a side and at a time of its own, a watermark before or
/// behind the last, with room for one row.
#[test]
fn all_small_cases() {
    let limits = rows_max(1);
    let lateness = Lateness { allowed: 1, ..Lateness::default() };
    let mut specs: Vec<JoinSpec> = Vec::new();
    for choice in CHOICES {
        let kind = if choice == MatchChoice::OneToOne { JoinKind::Full } else { JoinKind::Left };
        let spec = JoinSpec::between(Bound::Closed(-1), Bound::Closed(1)).choice(choice);
        specs.push(spec.kind(kind).keys(KeyKind::Bytes).bucket_width(1).build(&limits).unwrap());
    }
    for asof in [Asof::backward(), Asof::forward().strict(), Asof::nearest()] {
        let spec = JoinSpec::asof(asof.within(2)).kind(JoinKind::Left).keys(KeyKind::Bytes);
        specs.push(spec.build(&limits).unwrap());
    }
    for window in [Window::tumbling(2), Window::hopping(3, 1), Window::session(2)] {
        let spec = JoinSpec::window(window).kind(JoinKind::Full).keys(KeyKind::Bytes);
        specs.push(spec.lateness(lateness).build(&limits).unwrap());
    }
    let (rows, simd) = (4u32, Simd::detect());
    for spec in &specs {
        let mut spilled = 0;
        // Two times and two sides a row, and five watermarks in two places.
        for case in 0..4u32.pow(rows) * 10 {
            let (drawn, watermark) = (case / 10, case % 10);
            let mut steps: Vec<Step> = (0..rows)
                .map(|row| {
                    let word = drawn / 4u32.pow(row) % 4;
                    let side = if word % 2 == 0 { Side::Left } else { Side::Right };
                    let key = Some(b"k".to_vec());
                    let ts = i64::from(word / 2) - 1;
                    Step::Event(Arrival { side, source: 0, key, ts, id: u64::from(row) })
                })
                .collect();
            let at = if watermark % 2 == 0 { 3 } else { 4 };
            for side in Side::BOTH {
                for source in 0..2 {
                    let ts = i64::from(watermark / 2) - 1;
                    steps.insert(at, Step::Watermark { side, source, ts });
                }
            }
            steps.push(Step::End);
            spilled += compare(spec, limits, &steps, (1, simd)).unwrap();
        }
        assert!(spilled > 1_000, "{spilled} rows were in files: {:?}", spec.choice());
    }
}

/// A bound of so few rows that files are put together again and again.
#[test]
fn many_small_files_become_few() {
    let folder = tempfile::tempdir().unwrap();
    let limits = rows_max(8);
    let between = || JoinSpec::between(Bound::Closed(-300), Bound::Closed(900)).bucket_width(64);
    let mut specs: Vec<JoinSpecBuilder> = CHOICES.map(|choice| between().choice(choice)).into();
    specs.extend([Window::tumbling(900), Window::hopping(900, 300)].map(JoinSpec::window));
    specs.push(JoinSpec::window(Window::session(400)));
    for spec in specs {
        let spec = spec.kind(JoinKind::Left).keys(KeyKind::Bytes).spill_to(folder.path());
        let spec = spec.build(&limits).unwrap();
        let mut oracle = OracleSubject::new(&spec, [1, 1]);
        let mut operator = OperatorSubject::under(limits, &spec, [1, 1], 1, Simd::detect());
        let (mut files, mut state) = (0, 7u64);
        for id in 0..3_000u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let drawn = state >> 33;
            let side = if drawn % 5 < 2 { Side::Left } else { Side::Right };
            let key = Some((drawn % 97).to_string().into_bytes());
            let ts = id as i64 + (drawn >> 9) as i64 % 100;
            let mut steps = vec![Step::Event(Arrival { side, source: 0, key, ts, id })];
            if id % 40 == 0 {
                steps.extend(Side::BOTH.map(|side| Step::Watermark {
                    side,
                    source: 0,
                    ts: id as i64,
                }));
            }
            for step in &steps {
                let expected = apply(&mut oracle, step).unwrap();
                assert_eq!(expected, apply(&mut operator, step).unwrap(), "{spec:?}, {step:?}");
            }
            files = files.max(if id % 10 == 0 { open_files(folder.path()) } else { 0 });
        }
        assert_eq!(oracle.end(), operator.end(), "{spec:?}");
        assert_eq!(comparable(*oracle.0.counters()), comparable(operator.counters()));
        if cfg!(target_os = "linux") {
            assert!((20..=72).contains(&files), "{files} files: {spec:?}");
        }
        drop(operator);
        assert_eq!(open_files(folder.path()), 0, "{spec:?}");
    }
}

/// How many files of a folder this process has open, which have no names any more.
fn open_files(folder: &std::path::Path) -> usize {
    let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") else { return 0 };
    let paths = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    paths.filter(|target| target.starts_with(folder)).count()
}
