//! Rows in files: results are those of a join whose state has all the room it wants.

mod common;

use std::path::Path;

use common::{Arrival, KINDS, OperatorSubject, OracleSubject, Step, Subject, apply};
use intervale::engine::Engine;
use intervale::error::{JoinError, SpecError};
use intervale::event::{Event, Key, KeyKind, Side};
use intervale::join::oracle::Output;
use intervale::join::{Asof, Counters, Emit, Join, JoinKind, JoinSpec, MatchChoice, Sink, Window};
use intervale::limits::{Limits, Overflow};
use intervale::runtime::{CoreChoice, RuntimeChoice};
use intervale::state::Simd;
use intervale::time::{Bound, LatePolicy, Lateness, LatenessClock};
use proptest::prelude::*;

fn limits(rows: Option<u64>, bytes: Option<u64>) -> Limits {
    Limits { state_rows_max: rows, state_bytes_max: bytes, overflow: Overflow::Spill }
}

/// The counts that do not depend on where rows are.
fn comparable(mut counters: Counters) -> Counters {
    counters.check().unwrap();
    for side in &mut counters.sides {
        (side.freed, side.spilled) = (0, 0);
    }
    counters
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let draft = (0u8..100, any::<bool>(), 0u8..5, 0i64..60);
    prop::collection::vec(draft, 1..200).prop_map(|drafts| {
        let step = |(index, &(what, right, key, ts)): (usize, &(u8, bool, u8, i64))| {
            let side = if right { Side::Right } else { Side::Left };
            let progress = index as i64 / 3;
            match what {
                0..90 => {
                    let (key, ts) = (Some(vec![b'k', key]), progress + ts);
                    Step::Event(Arrival { side, source: 0, key, ts, id: index as u64 })
                }
                _ => Step::Watermark { side, source: 0, ts: progress + ts / 2 },
            }
        };
        let mut steps: Vec<Step> = drafts.iter().enumerate().map(step).collect();
        steps.push(Step::End);
        steps
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Step by step what the oracle gives, in its order, when only a few rows stay in memory.
    #[test]
    fn random_cases(
        steps in steps(),
        kind in prop::sample::select(&KINDS[..]),
        keys in prop::sample::select(&[KeyKind::Int, KeyKind::Bytes][..]),
        policy in prop::sample::select(&[LatePolicy::Drop, LatePolicy::Join][..]),
        clock in prop::sample::select(&[LatenessClock::Merged, LatenessClock::Own][..]),
        allowed in 0i64..5,
        (lo, width) in (-30i64..20, 0i64..60),
        bucket_width in 1i64..64,
        rows_max in 1u64..24,
        shards in prop::sample::select(&[1usize, 1, 2, 8][..]),
    ) {
        let limits = limits(Some(rows_max), None);
        let spec = JoinSpec::between(Bound::Closed(lo), Bound::Closed(lo + width))
            .kind(kind)
            .keys(keys)
            .lateness(Lateness { policy, clock, allowed })
            .bucket_width(bucket_width)
            .build(&limits)
            .unwrap();
        let mut oracle = OracleSubject::new(&spec, [1, 1]);
        let simd = Simd::detect();
        let mut operator = OperatorSubject::under(limits, &spec, [1, 1], shards, simd);
        for step in &steps {
            let mut expected = apply(&mut oracle, step).unwrap();
            let mut got = apply(&mut operator, step).unwrap();
            if shards > 1 {
                expected.sort();
                got.sort();
            }
            prop_assert_eq!(expected, got);
        }
        let (expected, got) = (*oracle.0.counters(), operator.counters());
        prop_assert_eq!(got.buffered(), 0);
        prop_assert_eq!(comparable(expected), comparable(got));
    }

    /// The same with events that go in many at a time.
    #[test]
    fn batches_against_files(
        steps in steps(),
        kind in prop::sample::select(&KINDS[..]),
        bucket_width in 1i64..64,
        rows_max in 20u64..60,
    ) {
        let limits = limits(Some(rows_max), None);
        let spec = JoinSpec::between(Bound::Closed(-20), Bound::Closed(30))
            .kind(kind)
            .keys(KeyKind::Bytes)
            .bucket_width(bucket_width)
            .build(&limits)
            .unwrap();
        let mut oracle = OracleSubject::new(&spec, [1, 1]);
        let simd = Simd::detect();
        let mut operator = OperatorSubject::under(limits, &spec, [1, 1], 1, simd);
        let mut waiting: Vec<Arrival> = Vec::new();
        let (mut expected, mut got): (Vec<Output>, Vec<Output>) = (Vec::new(), Vec::new());
        for step in &steps {
            let goes_along = match (step, waiting.first()) {
                (Step::Event(event), Some(first)) => event.side == first.side,
                (Step::Event(_), None) => true,
                _ => false,
            };
            if !goes_along || waiting.len() == 16 {
                expected.extend(oracle.events(&waiting).unwrap());
                got.extend(operator.events(&waiting).unwrap());
                waiting.clear();
            }
            match step {
                Step::Event(event) => waiting.push(event.clone()),
                step => {
                    expected.extend(apply(&mut oracle, step).unwrap());
                    got.extend(apply(&mut operator, step).unwrap());
                }
            }
        }
        expected.sort();
        got.sort();
        prop_assert_eq!(expected, got);
        prop_assert_eq!(comparable(*oracle.0.counters()), comparable(operator.counters()));
    }
}

/// A bound of so few rows that files are put together again and again, and again.
#[test]
fn many_small_files_become_few() {
    for (kind, seed) in KINDS.into_iter().zip(3..).chain([(JoinKind::Full, 9)]) {
        let folder = tempfile::tempdir().unwrap();
        let limits = limits(Some(8), None);
        let spec = JoinSpec::between(Bound::Closed(-900), Bound::Closed(1_200))
            .kind(kind)
            .keys(KeyKind::Int)
            .bucket_width(4)
            .spill_to(folder.path())
            .build(&limits)
            .unwrap();
        let mut oracle = OracleSubject::new(&spec, [1, 1]);
        let mut operator = OperatorSubject::under(limits, &spec, [1, 1], 1, Simd::detect());
        let mut files = 0;
        for (key, ts, id) in rows(seed, 6_000) {
            let side = if id % 5 < 2 { Side::Left } else { Side::Right };
            let arrival = Arrival {
                side,
                source: 0,
                key: Some((key % 1_000).to_string().into_bytes()),
                ts: ts / 20 + id as i64,
                id,
            };
            let mut steps = vec![Step::Event(arrival)];
            if id % 40 == 0 {
                steps.push(Step::Watermark { side, source: 0, ts: id as i64 });
            }
            for step in &steps {
                let expected = apply(&mut oracle, step).unwrap();
                let got = apply(&mut operator, step).unwrap();
                assert_eq!(expected, got, "{kind:?}, {step:?}");
            }
            if id % 100 == 0 {
                files = files.max(open_files(folder.path()).len());
            }
        }
        assert_eq!(apply(&mut oracle, &Step::End), apply(&mut operator, &Step::End), "{kind:?}");
        assert_eq!(comparable(*oracle.0.counters()), comparable(operator.counters()));
        if cfg!(target_os = "linux") {
            assert!((25..=48).contains(&files), "{kind:?}: {files} files");
        }
        assert_eq!(open_files(folder.path()).len(), 0, "{kind:?}");
    }
}

/// The files of a folder that this process has open, which have no names any more.
fn open_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let paths = descriptors.filter_map(|entry| Some(entry.ok()?.path()));
    let is_of_folder = |path: &std::path::PathBuf| {
        std::fs::read_link(path).is_ok_and(|target| target.starts_with(folder))
    };
    paths.filter(is_of_folder).collect()
}

/// A row that waits is read back when it comes out, and what is read is what was written.
#[test]
#[cfg(target_os = "linux")]
fn a_file_that_was_changed_is_told_when_rows_come_out() {
    let folder = tempfile::tempdir().unwrap();
    let limits = limits(Some(10), None);
    let bounds = JoinSpec::between(Bound::Closed(0), Bound::Closed(1_000)).kind(JoinKind::Left);
    let spec = bounds.spill_to(folder.path()).build(&limits).unwrap();
    let mut join = Join::new(spec, limits).unwrap();
    let mut out = Collect::default();
    for ts in 0..40i64 {
        join.push(Side::Left, Key::Int(ts as u64), ts, &ts.to_le_bytes(), &mut out).unwrap();
    }
    for path in open_files(folder.path()) {
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[0xA5], 30).unwrap();
    }
    assert_eq!((join.failure(), out.0.len()), (None, 0));
    join.finish(&mut out);
    let Some(JoinError::Spill(error)) = join.failure() else { panic!("{:?}", join.failure()) };
    assert!(error.to_string().contains("not those that were written"), "{error}");
    assert!(out.0.len() < 40, "what was not read did not come out");
    let error = join.push(Side::Left, Key::Int(1), 2_000, b"12345678", &mut out).unwrap_err();
    assert!(matches!(error, JoinError::Spill(_)), "{error:?}");
}

/// (key, time, number)
type Row = (u64, i64, u64);

#[derive(Default)]
struct Collect(Vec<(u64, u64)>);

/// Stands for the partner of a row by itself.
const NOBODY: u64 = u64::MAX;

fn number(event: &Event<'_>) -> u64 {
    u64::from_le_bytes(event.row[..8].try_into().unwrap())
}

impl Emit for Collect {
    fn pair(&mut self, left: Event<'_>, right: Event<'_>) {
        self.0.push((number(&left), number(&right)));
    }

    fn single(&mut self, side: Side, event: Event<'_>) {
        self.0.push(match side {
            Side::Left => (number(&event), NOBODY),
            Side::Right => (NOBODY, number(&event)),
        });
    }
}

impl Sink for Collect {}

fn rows(seed: u64, count: u64) -> Vec<Row> {
    let mut state = seed;
    let mut next = |bound: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    // Each key comes again after a while, and some come often.
    let key = |number: u64, any: u64| if any == 0 { number % 7 } else { 100 + number % 9_000 };
    (0..count)
        .map(|number| (key(number, next(50)), (number + next(2_000)) as i64, number))
        .collect()
}

/// The engine under a bound that holds a small part of its rows, long ones among them.
#[test]
fn an_engine_within_a_bound_finds_all_pairs() {
    for kind in [JoinKind::Inner, JoinKind::Full, JoinKind::Anti] {
        engines_within_a_bound(kind);
    }
}

fn engines_within_a_bound(kind: JoinKind) {
    let (lefts, mut rights) = (rows(1, 60_000), rows(2, 60_000));
    // A third of the keys are of one side alone.
    rights.iter_mut().filter(|row| row.0 % 3 == 1).for_each(|row| row.0 += 1_000_000);
    let run = |shards: usize, runtime, limits: Limits| {
        let bounds = JoinSpec::between(Bound::Closed(-20_000), Bound::Closed(20_000)).kind(kind);
        let engine = Engine::builder(bounds.build(&limits).unwrap())
            .cores(CoreChoice::count(shards).unwrap())
            .runtime(runtime)
            .limits(limits)
            .sinks(|_| Collect::default())
            .start()
            .unwrap();
        let [mut left, mut right] = Side::BOTH.map(|side| engine.source(side).unwrap());
        for (number, pair) in lefts.iter().zip(&rights).enumerate() {
            for (source, row) in [(&mut left, pair.0), (&mut right, pair.1)] {
                let mut bytes = [7; 40];
                bytes[..8].copy_from_slice(&row.2.to_le_bytes());
                let len = if row.2 % 3 == 0 { 40 } else { 8 };
                source.push(Key::Int(row.0), row.1, &bytes[..len]).unwrap();
                if number % 64 == 0 {
                    source.watermark(number as i64).unwrap();
                }
            }
        }
        drop((left, right));
        let finished = engine.finish().unwrap();
        let mut pairs: Vec<_> = finished.sinks.into_iter().flat_map(|sink| sink.0).collect();
        pairs.sort_unstable();
        (pairs, finished.report)
    };
    let (expected, free) = run(1, RuntimeChoice::Threads, Limits::UNBOUNDED);
    assert!(expected.len() > 10_000, "{}", expected.len());
    for (shards, runtime, bytes_max) in [
        (1, RuntimeChoice::Threads, 1 << 20),
        (2, RuntimeChoice::Auto, 1 << 20),
        (8, RuntimeChoice::Threads, 2 << 20),
    ] {
        assert!(free.state_bytes_peak > bytes_max * 2, "{}", free.state_bytes_peak);
        let (pairs, report) = run(shards, runtime, limits(None, Some(bytes_max)));
        assert!(pairs == expected, "{shards} shards: {} pairs", pairs.len());
        assert_eq!(comparable(report.counters), comparable(free.counters), "{shards} shards");
        let spilled = report.counters.sides.map(|side| side.spilled);
        assert!(spilled.iter().all(|&rows| rows > 5_000), "{spilled:?}");
        assert!(report.state_bytes_peak <= bytes_max, "{}", report.state_bytes_peak);
    }
}

#[test]
fn a_folder_that_is_none_ends_the_join() {
    let limits = limits(Some(10), None);
    let bounds = JoinSpec::between(Bound::Closed(0), Bound::Closed(1_000));
    let spec = bounds.spill_to("/no/such/folder").build(&limits).unwrap();
    assert_eq!(spec.spill_to(), Some(Path::new("/no/such/folder")));
    let mut join = Join::new(spec, limits).unwrap();
    let mut out = Collect::default();
    let mut push = |ts: i64| join.push(Side::Left, Key::Int(1), ts, b"12345678", &mut out);
    let error = (0..20).find_map(|ts| push(ts).err());
    let Some(JoinError::Spill(error)) = error else { panic!("{error:?}") };
    assert!(error.to_string().contains("/no/such/folder"), "{error}");
}

/// Whatever waits can wait in a file; what is given up must not be missed by what is chosen.
#[test]
fn every_form_goes_with_files_and_few_with_giving_up() {
    let spill = limits(Some(100), None);
    let shed = Limits { overflow: Overflow::Shed, ..spill };
    let all = || JoinSpec::between(Bound::Closed(0), Bound::Closed(10));
    for spec in [
        all().choice(MatchChoice::Nearest),
        all().choice(MatchChoice::OneToOne),
        JoinSpec::asof(Asof::backward().within(5)),
        JoinSpec::window(Window::tumbling(10)),
    ] {
        spec.clone().build(&spill).unwrap();
        assert!(matches!(spec.build(&shed), Err(SpecError::Overflow(_))));
    }
    for limits in [spill, shed] {
        all().ttl(std::time::Duration::from_secs(1)).build(&limits).unwrap();
    }
}
