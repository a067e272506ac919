//! Measures joins over one workload: warm-up, repeats interleaved with the roofline kernel, the
//! best of each, and a check of every outcome.

use std::fmt;
use std::sync::Arc;

use crate::engine::EngineError;
use crate::error::{JoinError, SpecError};
use crate::join::JoinKind;
use crate::runtime::RuntimeKind;
use crate::state::Simd;
use crate::workload::{
    EngineSetup, Events, Measured, NaiveJoin, Outcome, Roofline, SEED_WARM_UP, SingleJoin,
    StepClock, Workload, drive, run_engine, sort_merge, truth,
};

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
    /// [`NaiveJoin`]: the peer that everyone writes first. Inner joins only.
    Naive,
}

impl Subject {
    /// The name in reports.
    pub const fn name(&self) -> &'static str {
        match self {
            Subject::Engine(_) => "engine",
            Subject::Join { .. } => "join",
            Subject::Naive => "naive",
        }
    }

    /// The instruction set in use, of those that have a choice.
    pub const fn simd(&self) -> Option<Simd> {
        match self {
            Subject::Engine(setup) => Some(setup.simd),
            Subject::Join { simd } => Some(*simd),
            Subject::Naive => None,
        }
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct BenchPlan {
    /// The events and the interval.
    pub workload: Workload,
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
    /// Runs of each configuration; the best counts.
    pub repeat: u32,
    /// Whether the roofline kernel runs beside each.
    pub roofline: bool,
    /// Whether outcomes that the table does not hold are computed offline, to compare with.
    pub check: bool,
    /// What times single steps.
    pub step_clock: StepClock,
}

/// One configuration's figures: of each the best over the repeats.
#[derive(Clone, Debug)]
pub struct BenchRow {
    /// The configuration.
    pub subject: Subject,
    /// Cores in use.
    pub cores: usize,
    /// What drove them, in an engine.
    pub runtime: Option<RuntimeKind>,
    /// Events of both sides.
    pub events: u64,
    /// Pairs and checksum, the same in every repeat.
    pub outcome: Outcome,
    /// Rows that came out alone: padded, semi, anti.
    pub singles: u64,
    /// Wall nanoseconds an event.
    pub ns_per_event: f64,
    /// CPU nanoseconds an event, all threads.
    pub cpu_ns_per_event: f64,
    /// CPU nanoseconds an event for freeing what is left at the end of input; not in the above.
    pub finish_cpu_ns_per_event: f64,
    /// The largest state.
    pub state_rows_peak: u64,
    /// Its bytes, as allocated.
    pub state_bytes_peak: u64,
    /// The index's part of them.
    pub index_bytes_peak: u64,
    /// Step times: half of the steps took no longer.
    pub step_ns_p50: u64,
    /// 99 in 100.
    pub step_ns_p99: u64,
    /// 999 in 1,000.
    pub step_ns_p999: u64,
    /// The slowest.
    pub step_ns_max: u64,
    /// The kernel, if it ran.
    pub roofline: Option<RooflineRow>,
}

/// The roofline kernel's figures.
#[derive(Clone, Copy, Debug)]
pub struct RooflineRow {
    /// CPU nanoseconds an event, the best over the repeats.
    pub ns_per_event: f64,
    /// The size of its table.
    pub table_bytes: u64,
}

impl BenchRow {
    /// Bytes of state a buffered row, both at their peaks.
    pub fn bytes_per_buffered_row(&self) -> f64 {
        self.state_bytes_peak as f64 / self.state_rows_peak.max(1) as f64
    }

    /// CPU nanoseconds an event over the kernel's.
    pub fn ratio_to_roofline(&self) -> Option<f64> {
        self.roofline.map(|roofline| self.cpu_ns_per_event / roofline.ns_per_event)
    }
}

/// Why a measurement gave no figures.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BenchError {
    /// The join cannot be built.
    Spec(SpecError),
    /// The join stopped.
    Join(JoinError),
    /// The engine did not start, or stopped.
    Engine(EngineError),
    /// The naive peer knows inner joins only.
    NaiveKind,
    /// A run found other pairs than it should: figures of a wrong join mean nothing.
    Mismatch {
        /// Which configuration.
        subject: &'static str,
        /// Which of its runs, from 1.
        run: u32,
        /// What it found.
        found: Outcome,
        /// What it should have found.
        expected: Outcome,
        /// Who says so.
        authority: &'static str,
    },
    /// Two runs of a configuration differ in the rows that came out alone.
    Singles {
        /// Which configuration.
        subject: &'static str,
        /// What the first run gave and what a later one did.
        counts: (u64, u64),
    },
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BenchError::Spec(error) => error.fmt(f),
            BenchError::Join(error) => error.fmt(f),
            BenchError::Engine(error) => error.fmt(f),
            BenchError::NaiveKind => {
                write!(f, "the naive peer knows inner joins only; leave it out or choose inner")
            }
            BenchError::Mismatch { subject, run, found, expected, authority } => write!(
                f,
                "{subject}, run {run}: found {found}, but {authority} has {expected}; \
                 the join is wrong, so there are no figures"
            ),
            BenchError::Singles { subject, counts: (first, later) } => write!(
                f,
                "{subject}: {first} rows came out alone in the first run and {later} in a later \
                 one; the join is wrong, so there are no figures"
            ),
        }
    }
}

impl std::error::Error for BenchError {}

impl From<SpecError> for BenchError {
    fn from(error: SpecError) -> BenchError {
        BenchError::Spec(error)
    }
}

impl From<JoinError> for BenchError {
    fn from(error: JoinError) -> BenchError {
        BenchError::Join(error)
    }
}

impl From<EngineError> for BenchError {
    fn from(error: EngineError) -> BenchError {
        BenchError::Engine(error)
    }
}

/// A warm-up has at most this many events a side: enough to warm code, allocator and clocks.
const WARM_UP_EVENTS_MAX: u32 = 1_000_000;

impl BenchPlan {
    /// Measures; one row a subject, in their order. `note` hears what is being done.
    ///
    /// # Errors
    /// [`BenchError`]; among others when an outcome is not what it should be.
    pub fn run(&self, note: &mut dyn FnMut(&str)) -> Result<Vec<BenchRow>, BenchError> {
        note("warm-up");
        let warm_up_events = self.events_per_side.min(WARM_UP_EVENTS_MAX);
        let events = Arc::new(Events::new(self.workload, SEED_WARM_UP, warm_up_events));
        let mut runs: Vec<Runs> = self.subjects.iter().cloned().map(Runs::new).collect();
        for run in &runs {
            let run = self.run_once(&run.subject, &events)?;
            run.notes.iter().for_each(|line| note(line));
        }
        note("making events");
        let events = Arc::new(Events::new(self.workload, self.seed, self.events_per_side));
        let mut expected = self.expected(&events, note);
        for number in 1..=self.repeat.max(1) {
            for run in &mut runs {
                note(&format!("{}, run {number}", run.subject.name()));
                let once = self.run_once(&run.subject, &events)?;
                check(&run.subject, number, &once.measured, &mut expected)?;
                run.take(once)?;
                if self.roofline {
                    run.roofline(&events, self.batch);
                }
            }
        }
        Ok(runs.into_iter().map(Runs::best).collect())
    }

    fn run_once(&self, subject: &Subject, events: &Arc<Events>) -> Result<Once, BenchError> {
        let measured = match subject {
            Subject::Engine(setup) => {
                let run = run_engine(events, self.kind, setup, self.batch)?;
                return Ok(Once {
                    measured: run.measured,
                    cores: run.core_count,
                    runtime: Some(run.runtime),
                    notes: run.notes,
                });
            }
            Subject::Join { simd } => {
                let mut join = SingleJoin::new(&self.workload, self.kind, *simd)?;
                drive(&mut join, events, self.batch, self.step_clock)?
            }
            Subject::Naive if self.kind == JoinKind::Inner => {
                let mut join = NaiveJoin::new(&self.workload);
                drive(&mut join, events, self.batch, self.step_clock)?
            }
            Subject::Naive => return Err(BenchError::NaiveKind),
        };
        Ok(Once { measured, cores: 1, runtime: None, notes: Vec::new() })
    }

    /// What every run must find, and who says so; `None` when only the runs can be compared.
    fn expected(&self, events: &Events, note: &mut dyn FnMut(&str)) -> Option<Expected> {
        if !self.kind.emits_pairs() {
            return None;
        }
        let known = truth(&self.workload, self.seed, self.events_per_side);
        if let Some(outcome) = known {
            return Some(Expected { outcome, authority: "the table of known outcomes" });
        }
        if self.check {
            note("joining offline");
            let outcome = sort_merge(events);
            return Some(Expected { outcome, authority: "an offline sort-merge" });
        }
        None
    }
}

/// One run.
struct Once {
    measured: Measured,
    cores: usize,
    runtime: Option<RuntimeKind>,
    notes: Vec<String>,
}

#[derive(Clone, Copy)]
struct Expected {
    outcome: Outcome,
    authority: &'static str,
}

fn check(
    subject: &Subject,
    run: u32,
    measured: &Measured,
    expected: &mut Option<Expected>,
) -> Result<(), BenchError> {
    let found = measured.outcome;
    let &mut Expected { outcome, authority } =
        expected.get_or_insert(Expected { outcome: found, authority: "the first run" });
    if found == outcome {
        return Ok(());
    }
    let subject = subject.name();
    Err(BenchError::Mismatch { subject, run, found, expected: outcome, authority })
}

/// The runs of one configuration so far.
struct Runs {
    subject: Subject,
    measured: Vec<Measured>,
    cores: usize,
    runtime: Option<RuntimeKind>,
    kernel: Option<Roofline>,
    kernel_ns: f64,
}

impl Runs {
    fn new(subject: Subject) -> Runs {
        Runs {
            subject,
            measured: Vec::new(),
            cores: 1,
            runtime: None,
            kernel: None,
            kernel_ns: f64::INFINITY,
        }
    }

    fn take(&mut self, run: Once) -> Result<(), BenchError> {
        if let Some(first) = self.measured.first()
            && first.singles != run.measured.singles
        {
            let counts = (first.singles, run.measured.singles);
            return Err(BenchError::Singles { subject: self.subject.name(), counts });
        }
        (self.cores, self.runtime) = (run.cores, run.runtime);
        self.measured.push(run.measured);
        Ok(())
    }

    /// Runs the kernel once, with a table as large as one core's index was in the first run.
    fn roofline(&mut self, events: &Events, batch: usize) {
        let index_bytes = self.measured.first().map_or(0, |run| run.peak.index_bytes);
        let table_bytes = index_bytes / self.cores.max(1) as u64;
        let kernel = self.kernel.get_or_insert_with(|| Roofline::new(table_bytes));
        self.kernel_ns = self.kernel_ns.min(kernel.run(events, batch));
    }

    fn best(self) -> BenchRow {
        let runs = &self.measured;
        let least = |of: fn(&Measured) -> f64| runs.iter().map(of).fold(f64::INFINITY, f64::min);
        let step = |share: f64| {
            let steps = runs.iter().map(|run| run.steps.quantile_ns(share));
            steps.min().unwrap_or_default()
        };
        let peak = runs.iter().fold(Default::default(), |peak, run| run.peak.max(peak));
        let first = runs.first().cloned().unwrap_or_default();
        let table_bytes = self.kernel.as_ref().map(Roofline::table_bytes);
        let roofline = table_bytes
            .map(|table_bytes| RooflineRow { ns_per_event: self.kernel_ns, table_bytes });
        BenchRow {
            subject: self.subject,
            cores: self.cores,
            runtime: self.runtime,
            events: first.events,
            outcome: first.outcome,
            singles: first.singles,
            ns_per_event: least(Measured::wall_ns_per_event),
            cpu_ns_per_event: least(Measured::cpu_ns_per_event),
            finish_cpu_ns_per_event: least(|run| {
                run.finish_cpu_ns as f64 / run.events.max(1) as f64
            }),
            state_rows_peak: peak.rows,
            state_bytes_peak: peak.bytes,
            index_bytes_peak: peak.index_bytes,
            step_ns_p50: step(0.5),
            step_ns_p99: step(0.99),
            step_ns_p999: step(0.999),
            step_ns_max: step(1.0),
            roofline,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pairs: u64, checksum: u64) -> Measured {
        Measured { outcome: Outcome { pairs, checksum }, ..Measured::default() }
    }

    #[test]
    fn a_run_that_finds_other_pairs_is_a_fault_that_says_whose() {
        let mut expected = None;
        check(&Subject::Naive, 1, &found(5, 9), &mut expected).unwrap();
        check(&Subject::Naive, 2, &found(5, 9), &mut expected).unwrap();
        for wrong in [found(6, 9), found(5, 8)] {
            let error = check(&Subject::Naive, 3, &wrong, &mut expected).unwrap_err();
            let text = error.to_string();
            assert!(text.starts_with("naive, run 3: found "), "{text}");
            assert!(text.contains("the first run has 5 pairs with checksum 0000000000000009"));
        }
    }

    #[test]
    fn the_table_of_known_outcomes_is_the_first_authority() {
        let plan = BenchPlan {
            workload: Workload::by_name("w2").unwrap(),
            events_per_side: 1_000_000,
            seed: 42,
            subjects: vec![],
            kind: JoinKind::Inner,
            batch: 256,
            repeat: 1,
            roofline: false,
            check: false,
            step_clock: StepClock::Wall,
        };
        let none = Events::new(plan.workload, 42, 0);
        let mut expected = plan.expected(&none, &mut |_| {});
        assert_eq!(expected.map(|known| known.outcome.pairs), Some(3_998_145));
        assert!(check(&Subject::Naive, 1, &found(3_998_145, 1), &mut expected).is_err());
        let anti = BenchPlan { kind: JoinKind::Anti, ..plan };
        assert!(anti.expected(&none, &mut |_| {}).is_none(), "an anti join has no pairs");
    }
}
