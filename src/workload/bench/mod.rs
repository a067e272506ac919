//! Measures joins over one workload: warm-up, repeats interleaved with the roofline kernel, the
//! best of each, and a check of every outcome.

mod error;
mod row;

use std::sync::Arc;

use crate::exchange::HotKeys;
use crate::join::{JoinKind, JoinSpec};
use crate::runtime::RuntimeKind;
use crate::state::Simd;
use crate::workload::{
    Bounds, EngineSetup, Events, Form, LayoutHints, Measured, NaiveJoin, OfflineJoin, Outcome,
    SEED_WARM_UP, SingleJoin, StepClock, Workload, Yardstick, chain_rows, drive, half_of_pairs,
    offline, offline_chain, run_chain, run_engine, run_naive, truth,
};

pub use error::BenchError;
use row::Runs;
pub use row::{BenchRow, RooflineRow, Spread};

/// What runs the join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Our engine: partition, lanes, shards; see [`run_engine`].
    Engine(EngineSetup),
    /// [`SingleJoin`]: our join, one thread, no engine.
    Join {
        /// The instruction set.
        simd: Simd,
    },
    /// The peer that everyone writes first: [`NaiveJoin`] in one thread, [`run_naive`] on more.
    /// Inner joins of all pairs only.
    Naive {
        /// Threads that join; another one reads, if they are several.
        cores: usize,
    },
}

impl Subject {
    /// The name in reports.
    pub const fn name(&self) -> &'static str {
        match self {
            Subject::Engine(_) => "engine",
            Subject::Join { .. } => "join",
            Subject::Naive { .. } => "naive",
        }
    }

    /// The instruction set in use, of those that have a choice.
    pub const fn simd(&self) -> Option<Simd> {
        match self {
            Subject::Engine(setup) => Some(setup.simd),
            Subject::Join { simd } => Some(*simd),
            Subject::Naive { .. } => None,
        }
    }

    /// Whether hot keys are split, of those that can.
    pub const fn hot_keys(&self) -> Option<HotKeys> {
        match self {
            Subject::Engine(setup) => Some(setup.hot_keys),
            _ => None,
        }
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct BenchPlan {
    /// The events and the interval.
    pub workload: Workload,
    /// What counts of what matches.
    pub form: Form,
    /// Whether pairs have a condition: [`half_of_pairs`].
    pub with_condition: bool,
    /// Events of each side.
    pub events_per_side: u32,
    /// What the events are made from.
    pub seed: u64,
    /// What to run, one configuration each.
    pub subjects: Vec<Subject>,
    /// Which rows come out.
    pub kind: JoinKind,
    /// Events a batch.
    pub batch: usize,
    /// Stages behind the first one, of [`run_chain`]: 0 is the plain join. Of engines and inner
    /// joins of all pairs only.
    pub chain: usize,
    /// How our joins lay out their state.
    pub layout: LayoutHints,
    /// What bounds their state. Where it gives rows up, runs need not find the same pairs.
    pub bounds: Bounds,
    /// Runs of each configuration; the best counts.
    pub repeat: u32,
    /// Whether the roofline kernel runs beside each.
    pub roofline: bool,
    /// Whether outcomes that the table does not hold are computed offline, to compare with.
    pub check: bool,
    /// What times single steps.
    pub step_clock: StepClock,
}

/// What a measurement tells, asks and uses while it runs.
pub struct Watch<'a> {
    /// Hears what is being done.
    pub note: &'a mut dyn FnMut(&str),
    /// Hears what will take longer, or more, than one might think.
    pub warn: &'a mut dyn FnMut(&str),
    /// Whether to stop before the next run; a chain stops between batches, too.
    pub stop: fn() -> bool,
    /// Looked at before and after each run: how fast the machine is meanwhile.
    pub yardstick: Option<&'a mut Yardstick>,
}

/// A chain that gives out so many times what it takes is worth a warning.
const GROWTH_WARN: f64 = 100.0;

/// A warm-up has at most this many events a side: enough to warm code, allocator and clocks.
const WARM_UP_EVENTS_MAX: u32 = 1_000_000;

impl BenchPlan {
    /// Measures; one row a subject, in their order. Where it is stopped, those that have no
    /// complete run are left out, and the others have fewer repeats.
    ///
    /// # Errors
    /// [`BenchError`]; among others when an outcome is not what it should be.
    pub fn run(&self, watch: &mut Watch<'_>) -> Result<Vec<BenchRow>, BenchError> {
        let mut runs: Vec<Runs> = self.subjects.iter().cloned().map(Runs::new).collect();
        self.measure(&mut runs, watch)?;
        Ok(runs.into_iter().filter(|run| !run.is_empty()).map(Runs::best).collect())
    }

    fn measure(&self, runs: &mut [Runs], watch: &mut Watch<'_>) -> Result<(), BenchError> {
        let Watch { note, warn, stop, yardstick } = watch;
        let stop = *stop;
        note("warm-up");
        let workload = self.form.workload(self.workload);
        let mut spec = self.form.spec_within(&workload, self.kind, self.layout, &self.bounds)?;
        if self.with_condition {
            spec = spec.with_condition(half_of_pairs());
        }
        let warm_up_events = self.events_per_side.min(WARM_UP_EVENTS_MAX);
        let events = Arc::new(Events::new(workload, SEED_WARM_UP, warm_up_events));
        if let Some(growth) = self.growth(&events, &spec) {
            warn(&growth);
        }
        for run in runs.iter() {
            if stop() {
                return Ok(());
            }
            let Some(run) = self.run_unless(stop, &run.subject, &spec, &events)? else {
                return Ok(());
            };
            run.notes.iter().for_each(|line| note(line));
        }
        note("making events");
        let events = Arc::new(Events::new(workload, self.seed, self.events_per_side));
        let Ok(mut expected) = self.expected(&spec, &events, note, stop) else { return Ok(()) };
        for number in 1..=self.repeat.max(1) {
            for run in runs.iter_mut() {
                if stop() {
                    return Ok(());
                }
                note(&format!("{}, run {number}", run.subject.name()));
                run.look(yardstick.as_deref_mut());
                let Some(once) = self.run_unless(stop, &run.subject, &spec, &events)? else {
                    return Ok(());
                };
                run.look(yardstick.as_deref_mut());
                let checked = self.check(&run.subject, number, &once.measured, &mut expected)?;
                run.take(once, checked);
                if self.roofline {
                    run.roofline(&events, self.batch);
                }
            }
        }
        Ok(())
    }

    /// What to warn of: a chain that gives out many times as much as it takes. By the events of the
    /// warm-up, and as many times as there are more.
    fn growth(&self, events: &Events, spec: &JoinSpec) -> Option<String> {
        if self.chain == 0 {
            return None;
        }
        let share = f64::from(self.events_per_side) / (events.len().max(2) as f64 / 2.0);
        let rows = chain_rows(events, spec, self.chain) * share;
        let taken = f64::from(self.events_per_side) * (self.chain as f64 + 2.0);
        let times = rows / taken;
        let times = if times < 1e5 { format!("{times:.0}") } else { format!("{times:.1e}") };
        (rows > GROWTH_WARN * taken).then(|| {
            format!(
                "--chain {}: a left event with m matches comes out m^{} times, so about {rows:.1e} \
                 rows come of {taken:.1e} events, {times} times as many; that takes long, and \
                 memory for all that is between stages: give fewer stages, more --keys, or a \
                 narrower --interval (Ctrl-C stops it)",
                self.chain,
                self.chain + 1
            )
        })
    }

    /// A run; `None` if it was stopped before its end.
    fn run_unless(
        &self,
        stop: fn() -> bool,
        subject: &Subject,
        spec: &JoinSpec,
        events: &Arc<Events>,
    ) -> Result<Option<Once>, BenchError> {
        match self.run_once(subject, spec, events, stop) {
            // Whatever else there is to say: it is none of a run that nobody wants any more.
            Err(_) if stop() => Ok(None),
            run => run.map(Some),
        }
    }

    fn run_once(
        &self,
        subject: &Subject,
        spec: &JoinSpec,
        events: &Arc<Events>,
        stop: fn() -> bool,
    ) -> Result<Once, BenchError> {
        let is_plain =
            self.kind == JoinKind::Inner && self.form == Form::default() && !self.with_condition;
        let (measured, cores) = match *subject {
            Subject::Engine(ref setup) => {
                let run = match self.chain {
                    0 => {
                        let in_order = self.form.needs_order();
                        run_engine(events, spec, in_order, setup, self.batch, &self.bounds)?
                    }
                    more => {
                        let settings = (setup, self.batch);
                        run_chain(events, spec, more, settings, &self.bounds, stop)?
                    }
                };
                return Ok(Once {
                    measured: run.measured,
                    cores: run.core_count,
                    runtime: Some(run.runtime),
                    keys_split: run.keys_split,
                    copies: run.copies,
                    notes: run.notes,
                });
            }
            Subject::Join { simd } => {
                let mut join = SingleJoin::within(spec.clone(), simd, self.bounds.limits)?;
                (drive(&mut join, events, self.batch, self.step_clock)?, 1)
            }
            Subject::Naive { .. } if !is_plain => return Err(BenchError::NaiveKind),
            Subject::Naive { cores: 0 | 1 } => {
                let mut join = NaiveJoin::new(&events.workload);
                (drive(&mut join, events, self.batch, self.step_clock)?, 1)
            }
            Subject::Naive { cores } => {
                (run_naive(events, cores, self.batch, self.step_clock), cores)
            }
        };
        let (keys_split, copies) = (0, 0);
        Ok(Once { measured, cores, runtime: None, keys_split, copies, notes: Vec::new() })
    }

    /// Compares a run with what is known.
    fn check(
        &self,
        subject: &Subject,
        run: u32,
        measured: &Measured,
        expected: &mut Option<Expected>,
    ) -> Result<Checked, BenchError> {
        if self.bounds.give_up() {
            return check_fewer(subject, run, measured.outcome, *expected);
        }
        let against = check(subject, run, measured, expected)?;
        Ok(Checked { against, pairs_missing: None })
    }

    /// What every run must find, and who says so; `None` when only the runs can be compared.
    fn expected(
        &self,
        spec: &JoinSpec,
        events: &Events,
        note: &mut dyn FnMut(&str),
        stop: fn() -> bool,
    ) -> Result<Option<Expected>, Stopped> {
        let is_chain = self.chain > 0;
        let has_all_pairs = self.form == Form::default() && !self.with_condition && !is_chain;
        if has_all_pairs && self.kind.emits_pairs() {
            let known = truth(&self.workload, self.seed, self.events_per_side);
            if let Some(outcome) = known {
                let found = OfflineJoin { outcome, singles: None };
                return Ok(Some(Expected { found, authority: "the table of known outcomes" }));
            }
        }
        if !self.check {
            return Ok(None);
        }
        note("joining offline");
        let found = match self.chain {
            0 => offline(events, spec),
            more => {
                let outcome = offline_chain(events, spec, more, stop).ok_or(Stopped)?;
                OfflineJoin { outcome, singles: Some(0) }
            }
        };
        Ok(Some(Expected { found, authority: OFFLINE_JOIN }))
    }
}

/// There is nothing to be had, as `stop` said so.
#[derive(Debug)]
struct Stopped;

/// One run.
struct Once {
    measured: Measured,
    cores: usize,
    runtime: Option<RuntimeKind>,
    keys_split: u64,
    copies: u64,
    notes: Vec<String>,
}

#[derive(Clone, Copy)]
struct Expected {
    found: OfflineJoin,
    authority: &'static str,
}

/// Where the events were joined once more to see what must come out.
pub const OFFLINE_JOIN: &str = "an offline join";
/// Where nothing else says what must come out.
pub const FIRST_RUN: &str = "the first run";
/// Where each run may find others, and nothing says how many at the most.
pub const NOTHING: &str = "nothing";

/// What a run was compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Checked {
    against: &'static str,
    /// How many pairs fewer it has than that, where it may.
    pairs_missing: Option<u64>,
}

/// Compares a run with what is known, and says what that was; what is not known is what the first
/// run finds.
fn check(
    subject: &Subject,
    run: u32,
    measured: &Measured,
    expected: &mut Option<Expected>,
) -> Result<&'static str, BenchError> {
    let (found, singles) = (measured.outcome, measured.singles);
    let expected = expected.get_or_insert(Expected {
        found: OfflineJoin { outcome: found, singles: Some(singles) },
        authority: FIRST_RUN,
    });
    let (subject, authority) = (subject.name(), expected.authority);
    if found != expected.found.outcome {
        let expected = expected.found.outcome;
        return Err(BenchError::Mismatch { subject, run, found, expected, authority });
    }
    match *expected.found.singles.get_or_insert(singles) {
        known if known == singles => Ok(authority),
        known => Err(BenchError::Singles { subject, found: singles, expected: known, authority }),
    }
}

/// Compares a run whose join gives rows up: with what is known, it may find no more.
fn check_fewer(
    subject: &Subject,
    run: u32,
    found: Outcome,
    expected: Option<Expected>,
) -> Result<Checked, BenchError> {
    let Some(Expected { found: OfflineJoin { outcome: expected, .. }, authority }) = expected
    else {
        return Ok(Checked { against: NOTHING, pairs_missing: None });
    };
    match expected.pairs.checked_sub(found.pairs) {
        Some(missing) => Ok(Checked { against: authority, pairs_missing: Some(missing) }),
        None => {
            let subject = subject.name();
            Err(BenchError::Mismatch { subject, run, found, expected, authority })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::MatchChoice;

    const NAIVE: Subject = Subject::Naive { cores: 1 };

    fn found(pairs: u64, checksum: u64) -> Measured {
        Measured { outcome: Outcome { pairs, checksum }, ..Measured::default() }
    }

    #[test]
    fn a_run_that_finds_other_pairs_is_a_fault_that_says_whose() {
        let mut expected = None;
        check(&NAIVE, 1, &found(5, 9), &mut expected).unwrap();
        check(&NAIVE, 2, &found(5, 9), &mut expected).unwrap();
        for wrong in [found(6, 9), found(5, 8)] {
            let error = check(&NAIVE, 3, &wrong, &mut expected).unwrap_err();
            let text = error.to_string();
            assert!(text.starts_with("naive, run 3: found "), "{text}");
            assert!(text.contains("the first run has 5 pairs with checksum 0000000000000009"));
        }
    }

    #[test]
    fn a_join_that_gives_rows_up_may_find_fewer_pairs_and_no_more() {
        let known = OfflineJoin { outcome: found(5, 9).outcome, singles: None };
        let known = Some(Expected { found: known, authority: OFFLINE_JOIN });
        let of = |pairs, known| check_fewer(&NAIVE, 1, found(pairs, 1).outcome, known);
        let checked = |against, pairs_missing| Ok(Checked { against, pairs_missing });
        assert_eq!(of(3, known), checked(OFFLINE_JOIN, Some(2)));
        assert_eq!(of(5, known), checked(OFFLINE_JOIN, Some(0)));
        assert!(of(6, known).unwrap_err().to_string().contains("an offline join has 5 pairs"));
        assert_eq!(of(6, None), checked(NOTHING, None));
    }

    #[test]
    fn the_table_of_known_outcomes_is_the_first_authority() {
        let plan = BenchPlan {
            workload: Workload::by_name("w2").unwrap(),
            form: Form::default(),
            with_condition: false,
            events_per_side: 1_000_000,
            seed: 42,
            subjects: vec![],
            kind: JoinKind::Inner,
            batch: 256,
            chain: 0,
            layout: LayoutHints::default(),
            bounds: Bounds::default(),
            repeat: 1,
            roofline: false,
            check: false,
            step_clock: StepClock::Wall,
        };
        let none = Events::new(plan.workload, 42, 0);
        let spec = plan.form.spec(&plan.workload, plan.kind).unwrap();
        let expected = |plan: &BenchPlan| plan.expected(&spec, &none, &mut |_| {}, || false);
        let mut known = expected(&plan).unwrap();
        assert_eq!(known.map(|known| known.found.outcome.pairs), Some(3_998_145));
        assert!(check(&NAIVE, 1, &found(3_998_145, 1), &mut known).is_err());
        let anti = BenchPlan { kind: JoinKind::Anti, ..plan };
        assert!(expected(&anti).unwrap().is_none(), "an anti join has no pairs");
        let first = BenchPlan { form: Form::Interval(MatchChoice::First), ..anti };
        assert!(expected(&first).unwrap().is_none(), "not all pairs count");
    }
}
