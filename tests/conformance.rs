//! The conformance corpus on everything that joins. `tests/conformance/README.md` has the format.
//!
//! `INTERVALE_CONFORMANCE_DIR` names another folder of bundles to run instead.

mod common;

use common::{
    EngineSubject, OperatorSubject, OracleSubject, Scenario, SplitSubject, Subject, apply, bundles,
    bundles_laid_out, check,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use intervale::error::JoinError;
use intervale::event::{KeyKind, Side};
use intervale::exchange::HotKeys;
use intervale::join::oracle::Output;
use intervale::limits::{Limits, Overflow};
use intervale::runtime::RuntimeChoice;
use intervale::state::Simd;
use intervale::time::LatePolicy;

/// Runs every scenario that `wanted` names, some at a time, and reports all that fail.
fn run(
    subject_name: &str,
    scenarios: &[Scenario],
    ordered: bool,
    wanted: impl Fn(&Scenario) -> bool,
    subject: impl Fn(&Scenario) -> Box<dyn Subject> + Sync,
) {
    // Engines wait for their cores most of the time.
    const AT_A_TIME: usize = 4;
    let scenarios: Vec<_> = scenarios.iter().filter(|scenario| wanted(scenario)).collect();
    assert!(!scenarios.is_empty(), "{subject_name}: the corpus has no scenario");
    let check_all = |part: &[&Scenario]| -> Vec<String> {
        let check = |scenario: &&Scenario| check(scenario, &mut *subject(scenario), ordered).err();
        part.iter().filter_map(check).collect()
    };
    let failures: Vec<String> = std::thread::scope(|scope| {
        let parts = scenarios.chunks(scenarios.len().div_ceil(AT_A_TIME));
        let running: Vec<_> = parts.map(|part| scope.spawn(|| check_all(part))).collect();
        let joined = running.into_iter().map(|part| part.join().expect("a subject panicked"));
        joined.flatten().collect()
    });
    println!("{subject_name}: {} scenarios ran, {} failed", scenarios.len(), failures.len());
    let first: Vec<_> = failures.iter().take(5).cloned().collect();
    assert!(failures.is_empty(), "{} failed, first:\n{}", failures.len(), first.join("\n"));
}

fn all(_: &Scenario) -> bool {
    true
}

fn dropping(scenarios: &[Scenario]) -> Vec<Scenario> {
    let drops = |scenario: &&Scenario| scenario.spec.lateness().policy == LatePolicy::Output;
    scenarios.iter().filter(drops).map(Scenario::dropping).collect()
}

#[test]
fn the_oracle_conforms() {
    let scenarios = bundles(KeyKind::Bytes);
    let oracle = |scenario: &Scenario| -> Box<dyn Subject> {
        Box::new(OracleSubject::new(&scenario.spec, scenario.sources))
    };
    run("oracle", &scenarios, true, all, oracle);
    run("oracle, late rows dropped", &dropping(&scenarios), true, all, oracle);
}

#[test]
fn the_oracle_counts_what_it_drops() {
    for scenario in bundles(KeyKind::Bytes) {
        if scenario.spec.lateness().policy != LatePolicy::Output {
            continue;
        }
        let dropping = scenario.dropping();
        let mut subject = OracleSubject::new(&dropping.spec, dropping.sources);
        for step in &dropping.steps {
            apply(&mut subject, step).expect("nothing fails under drop");
        }
        let counters = subject.0.counters();
        counters.check().expect("the counts add up");
        let late = Side::BOTH.map(|side| counters.side(side).late);
        assert_eq!(late, scenario.late_counts(), "{}", scenario.name);
    }
}

#[test]
fn the_operator_conforms_on_one_shard() {
    for keys in [KeyKind::Bytes, KeyKind::Int] {
        let scenarios = bundles(keys);
        let operator = |scenario: &Scenario| -> Box<dyn Subject> {
            Box::new(OperatorSubject::new(&scenario.spec, scenario.sources, 1))
        };
        run(&format!("operator, {keys:?} keys"), &scenarios, true, all, operator);
        run("operator, late rows dropped", &dropping(&scenarios), true, all, operator);
    }
}

#[test]
fn the_operator_conforms_on_several_shards() {
    let scenarios = bundles(KeyKind::Bytes);
    for shard_count in [2, 8] {
        run(&format!("operator on {shard_count} shards"), &scenarios, false, all, |scenario| {
            Box::new(OperatorSubject::new(&scenario.spec, scenario.sources, shard_count))
        });
    }
}

#[test]
fn the_operator_conforms_with_every_instruction_set() {
    let scenarios = bundles(KeyKind::Int);
    for simd in Simd::ALL.into_iter().filter(|simd| simd.is_available()) {
        run(&format!("operator, {simd}"), &scenarios, true, all, |scenario| {
            let Scenario { spec, sources, .. } = scenario;
            Box::new(OperatorSubject::with_simd(spec, *sources, 1, simd))
        });
    }
}

#[test]
fn the_operator_conforms_however_state_is_laid_out() {
    for (width, chunk) in [(1, 64 << 10), (4, 1 << 10), (64, 4 << 10), (i64::MAX, 1 << 20)] {
        let scenarios = bundles_laid_out(KeyKind::Int, Some(width), Some(chunk));
        assert!(scenarios.iter().all(|scenario| scenario.spec.bucket_width() == Some(width)));
        let name = format!("operator, buckets of {width} ticks, chunks of {chunk} bytes");
        run(&name, &scenarios, true, all, |scenario| {
            Box::new(OperatorSubject::new(&scenario.spec, scenario.sources, 1))
        });
    }
}

#[test]
fn the_engine_conforms_on_threads() {
    engine(RuntimeChoice::Threads, &[1, 2, 8]);
}

#[test]
fn the_engine_conforms_on_the_best_runtime() {
    engine(RuntimeChoice::Auto, &[1, 2]);
}

/// Step by step, as one shard does; over several there is no order between their rows.
fn engine(runtime: RuntimeChoice, shard_counts: &[usize]) {
    let scenarios = bundles(KeyKind::Bytes);
    for &shard_count in shard_counts {
        let name = format!("engine, {runtime:?}, {shard_count} shards");
        run(&name, &scenarios, shard_count == 1, Scenario::ends_for_good, |scenario| {
            let Scenario { spec, sources, .. } = scenario;
            Box::new(EngineSubject::new(spec, *sources, shard_count, runtime))
        });
    }
}

/// Nothing is different where rows are in files, all but one or a few.
#[test]
fn the_operator_conforms_out_of_files() {
    let scenarios = bundles_laid_out(KeyKind::Bytes, Some(2), None);
    let (mut spilled, mut count) = (0, 0);
    for rows_max in [1, 4] {
        let overflow = Overflow::Spill;
        let limits = Limits { state_rows_max: Some(rows_max), overflow, ..common::limits() };
        for scenario in &scenarios {
            let (spec, sources) = (&scenario.spec, scenario.sources);
            let mut subject = OperatorSubject::under(limits, spec, sources, 1, Simd::detect());
            check(scenario, &mut subject, true).unwrap_or_else(|error| panic!("{error}"));
            spilled += subject.counters().sides.iter().map(|side| side.spilled).sum::<u64>();
            count += 1;
        }
    }
    println!("{count} runs, {spilled} rows in files");
    assert!(count > 1_000 && spilled > 3 * count, "{count} runs, {spilled} rows in files");
}

/// Whether keys of the join can be split, and nothing comes after the end.
fn splits(scenario: &Scenario) -> bool {
    scenario.ends_for_good() && scenario.spec.spread_sides().is_ok()
}

/// Keys are split and put together again all the time, each time at other moments.
#[test]
fn split_keys_conform() {
    for keys in [KeyKind::Bytes, KeyKind::Int] {
        let scenarios = bundles(keys);
        assert!(scenarios.iter().filter(|scenario| splits(scenario)).count() > 500);
        for (seed, shard_count) in (0..6).zip([2, 3, 8].into_iter().cycle()) {
            let name = format!("split keys, {keys:?}, {shard_count} shards, seed {seed}");
            run(&name, &scenarios, false, splits, |scenario| {
                let Scenario { spec, sources, .. } = scenario;
                Box::new(SplitSubject::new(spec, *sources, shard_count, seed))
            });
        }
    }
}

#[test]
fn the_engine_conforms_with_keys_split() {
    let scenarios = bundles(KeyKind::Bytes);
    for shard_count in [2, 3] {
        let copies = Arc::<AtomicU64>::default();
        let name = format!("engine, keys split, {shard_count} shards");
        run(&name, &scenarios, false, splits, |scenario| {
            let Scenario { spec, sources, name, .. } = scenario;
            let forced = (HotKeys::Forced, name.len() as u64);
            let (runtime, copies) = (RuntimeChoice::Threads, Arc::clone(&copies));
            let subject =
                EngineSubject::splitting(spec, *sources, shard_count, runtime, forced, copies);
            Box::new(subject)
        });
        assert!(copies.load(Ordering::Relaxed) > 1_000, "{copies:?} rows were copied");
    }
}

#[test]
fn the_corpus_is_whole() {
    if std::env::var_os("INTERVALE_CONFORMANCE_DIR").is_none() {
        assert_eq!(bundles(KeyKind::Bytes).len(), 543 + 300 + 216 + 60 + 180);
    }
}

type Spoil = fn(&mut Vec<Output>);

/// The oracle with a fault: the harness must see it.
struct Faulty {
    oracle: OracleSubject,
    spoil: Spoil,
}

impl Faulty {
    fn spoilt(&self, mut outputs: Vec<Output>) -> Vec<Output> {
        (self.spoil)(&mut outputs);
        outputs
    }
}

impl Subject for Faulty {
    fn event(&mut self, event: &common::Arrival) -> Result<Vec<Output>, JoinError> {
        let outputs = self.oracle.event(event)?;
        Ok(self.spoilt(outputs))
    }
    fn watermark(&mut self, side: Side, source: usize, ts: i64) -> Vec<Output> {
        let outputs = self.oracle.watermark(side, source, ts);
        self.spoilt(outputs)
    }
    fn idle(&mut self, side: Side, source: usize) -> Vec<Output> {
        let outputs = self.oracle.idle(side, source);
        self.spoilt(outputs)
    }
    fn finish(&mut self, side: Side, source: usize) -> Vec<Output> {
        let outputs = self.oracle.finish(side, source);
        self.spoilt(outputs)
    }
    fn end(&mut self) -> Vec<Output> {
        let outputs = self.oracle.end();
        self.spoilt(outputs)
    }
    fn tick(&mut self, ns: u64) -> Vec<Output> {
        let outputs = self.oracle.tick(ns);
        self.spoilt(outputs)
    }
}

#[test]
fn a_lost_a_doubled_and_a_misplaced_row_are_seen() {
    let scenarios = bundles(KeyKind::Bytes);
    let faults: [(&str, Spoil); 4] = [
        ("lost", |outputs| outputs.truncate(outputs.len().saturating_sub(1))),
        ("doubled", |outputs| outputs.extend(outputs.last().copied())),
        ("reversed", |outputs| outputs.reverse()),
        ("wrong time", |outputs| {
            for output in outputs {
                if let Output::Pair { ts, .. } = output {
                    *ts = ts.saturating_sub(1);
                }
            }
        }),
    ];
    for (name, spoil) in faults {
        let seen = scenarios.iter().filter(|scenario| {
            let oracle = OracleSubject::new(&scenario.spec, scenario.sources);
            check(scenario, &mut Faulty { oracle, spoil }, true).is_err()
        });
        assert!(seen.count() > 50, "{name}: too few scenarios notice");
    }
}

#[test]
fn an_output_one_step_too_late_is_seen() {
    let mut scenario = bundles(KeyKind::Bytes)
        .into_iter()
        .find(|scenario| scenario.expected.iter().flatten().count() > 1)
        .expect("a scenario with outputs");
    let from = scenario.expected.iter().position(|outputs| !outputs.is_empty()).expect("one");
    let outputs = std::mem::take(&mut scenario.expected[from]);
    scenario.expected[from + 1].splice(0..0, outputs);
    let mut oracle = OracleSubject::new(&scenario.spec, scenario.sources);
    assert!(check(&scenario, &mut oracle, true).is_err());
}
