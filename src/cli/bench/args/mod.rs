//! What the user typed after `intervale bench`, and the configurations that it resolves to.

mod bounds;
mod subjects;

use clap::ValueEnum;

use crate::cli::Failure;
use crate::cli::bench::baseline::{Baseline, REPEATS_MIN};
use crate::cli::choices::{HotKeysChoice, Idle, Kind, Match, Runtime, SimdChoice};
use crate::cli::join::{AsofChoice, WindowText};
use crate::cli::layout::{AUTO, BucketWidth, ChunkSize, bucket_width, chunk, reserve};
use crate::cli::number::whole;
use crate::cli::plot::PlotFile;
use crate::cli::shape::{Keys, PAYLOAD_MAX, Shape, Skew, event_rate, keys, skew};
use crate::error::SpecError;
use crate::join::{JoinKind, MatchChoice};
use crate::time::text::{TimeSpan, TimeUnit};
use crate::workload::bench::BenchPlan;
use crate::workload::{Bounds, CHAIN_MAX, Direction, Form, LayoutHints, StepClock, Workload};

use bounds::{BoundArgs, BoundShape};
pub(in crate::cli::bench) use bounds::{NONE, OrNone};

use crate::cli::bench::values::{
    Api, Clock, ConditionChoice, CoresText, Format, IntervalsText, Peer, closed_ms, cores, count,
    intervals, workload,
};

const EXAMPLES: &str = "\
Examples:
  intervale bench --workload w1a --api join --roofline
  intervale bench --workload w1a,w2 --events 2e5 --peer naive --output-format csv
  intervale bench --workload w2 --events 2e5 --cores 1,2 --payload 0,56,248 --plot bench.html
  intervale bench --workload w2 --events 2e5 --api join --match all,nearest --window tumble:2s

A run to compare with later ones:
  intervale bench --workload w2 --events 2e5 --repeat 5 --output-format json > saved.jsonl
  intervale bench --workload w2 --events 2e5 --repeat 5 --baseline saved.jsonl

Options that take several values, with commas between, are swept: each combination is a row.
Every row's pairs and checksum are compared with what is known of them; a join that finds other
pairs ends with exit status 1, without figures. Figures are the best of the repeats; median and
spread (the worst less the best, of the median) say how far to trust them.

Each configuration first runs once on other events (seed 7, up to a million a side) to warm up;
that run does not count.

A comparison is of CPU times. A row is slower (or faster) if all its repeats are, and the medians
differ by more than the noise, which is the larger spread of both. Beside each repeat the machine
itself is measured, by work that never changes, and saved as yardstick_*: where it became as much
slower as the join did (\"machine %\" in the table), there is no verdict but that it is busier.
A verdict says as well if instructions, machine or version are others than those of the saved run; a
row that is not there says in what the nearest one differs. --fail-if-slower is for scripts: exit
status 1 if a row is slower, or if none could be compared.

Ctrl-C ends a bench after the run under way (a chain within it, between batches): what was measured
until then is printed, drawn and saved, with fewer repeats in the last row. A second one ends it at
once, without.";

/// Options of `intervale bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// What to join: w1a, w1b, w2, w3a, w3b, w4 (several: w1a,w2), or free: 1,000 keys, 1,000
    /// events a second
    #[arg(long, required = true, value_delimiter = ',', value_parser = workload)]
    workload: Vec<Workload>,
    /// Events of both sides together, as 2000000, 2_000_000 or 2e6
    #[arg(
        long, value_name = "N", default_value = "2_000_000",
        value_parser = whole::<u64>(2, 2 * u64::from(u32::MAX)), allow_negative_numbers = true
    )]
    events: u64,
    /// What runs the join
    #[arg(long, value_enum, default_value_t)]
    api: Api,
    /// Cores of the engine, and of a peer: `all`, a number, several (1,2,4), or a list of CPUs with
    /// a range in it (0-3 or 0-0,2); repeat for several [default: all]
    #[arg(long, value_name = "N,...|LIST|all", value_parser = cores, allow_hyphen_values = true)]
    cores: Vec<CoresText>,
    /// What drives the engine's cores
    #[arg(long, value_name = "RUNTIME,...", value_delimiter = ',', default_value = "auto")]
    runtime: Vec<Runtime>,
    /// How the engine's cores wait
    #[arg(long, value_name = "STRATEGY", default_value = "auto")]
    idle: Idle,
    /// Keys that are too much for one core: auto splits those that sampling finds over all cores of
    /// the engine; force splits every key now and then
    #[arg(long, value_name = "WHEN,...", value_delimiter = ',', default_value = "auto")]
    hot_keys: Vec<HotKeysChoice>,
    /// Another join to measure in the same run
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME")]
    peer: Vec<Peer>,
    /// Runs the roofline kernel between the repeats: what memory alone would charge
    #[arg(long)]
    roofline: bool,
    /// Runs of each configuration; the best counts
    #[arg(
        long, value_name = "N", default_value_t = 3,
        value_parser = whole::<u32>(1, u64::from(u32::MAX)), allow_negative_numbers = true
    )]
    repeat: u32,
    /// What events are made from
    #[arg(
        long, value_name = "N", default_value_t = crate::workload::SEED_MEASURED,
        value_parser = count, allow_negative_numbers = true
    )]
    seed: u64,
    /// Events a batch
    #[arg(
        long, value_name = "N,...", value_delimiter = ',', default_value = "256",
        value_parser = whole::<u16>(1, 4096), allow_negative_numbers = true
    )]
    batch: Vec<u16>,
    /// How wide our joins' time buckets are; auto: by the interval and what is seen of the events
    #[arg(
        long, value_name = "DURATION,...", value_delimiter = ',', default_value = AUTO,
        value_parser = bucket_width, allow_hyphen_values = true
    )]
    bucket_width: Vec<BucketWidth>,
    /// The smallest piece of memory that a bucket takes, 1KiB to 32MiB; auto: 1KiB, and larger
    /// where buckets were so
    #[arg(
        long, value_name = "SIZE,...", value_delimiter = ',', default_value = AUTO,
        value_parser = chunk
    )]
    chunk: Vec<ChunkSize>,
    /// Memory that each core's join takes and touches before the first event, so that no step waits
    /// for the system to find a page
    #[arg(
        long, value_name = "SIZE", default_value = "0", value_parser = reserve,
        allow_hyphen_values = true
    )]
    reserve: u64,
    #[command(flatten)]
    bounds: BoundArgs,
    /// The instructions that compare times; auto: the widest of this machine
    #[arg(long, value_name = "LEVEL,...", value_delimiter = ',', default_value = "auto")]
    simd: Vec<SimdChoice>,
    /// Which rows come out
    #[arg(long = "type", value_name = "TYPE,...", value_delimiter = ',', default_value = "inner")]
    kind: Vec<Kind>,
    /// Which matches of a left row count [default: all]
    #[arg(long = "match", value_name = "WHICH,...", value_delimiter = ',')]
    choice: Vec<Match>,
    /// As-of joins: one right row for each left one
    #[arg(long, value_name = "DIRECTION,...", value_delimiter = ',')]
    asof: Vec<AsofChoice>,
    /// How far away the right row of --asof may be [default: the workload's interval]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    tolerance: Option<TimeSpan>,
    /// Window joins: tumble:5s, hop:10s,1s, session:30s; repeat for several
    #[arg(long, value_name = "WINDOW")]
    window: Vec<String>,
    /// What must hold of a pair beside key and time: nothing, or a cheap condition that half of all
    /// pairs meet, to see what asking costs
    #[arg(
        long,
        value_enum,
        value_name = "WHICH,...",
        value_delimiter = ',',
        default_value = "none"
    )]
    condition: Vec<ConditionChoice>,
    /// Stages behind the first one, up to 8: each joins what came out so far with the right side
    /// once more, a stream of its own, relative to the left event. Each multiplies: a left event
    /// with m matches comes out m^(N+1) times. Compare with --check
    #[arg(
        long, value_name = "N,...", value_delimiter = ',', default_value = "0",
        value_parser = whole::<u8>(0, CHAIN_MAX as u64), allow_negative_numbers = true
    )]
    chain: Vec<u8>,
    /// The interval, instead of the workload's own; several, with commas between or repeated
    #[arg(
        long, value_name = "LO..HI,...", visible_alias = "between", value_parser = intervals,
        allow_hyphen_values = true
    )]
    interval: Vec<IntervalsText>,
    /// How many keys, instead of the workload's own; unique: each event of a side has its own
    #[arg(
        long, value_name = "N|unique,...", value_delimiter = ',', value_parser = keys,
        allow_negative_numbers = true
    )]
    keys: Vec<Keys>,
    /// Key k is drawn in proportion to 1 / k^S: 0 evenly, 1 as words in a language (up to 10)
    #[arg(
        long, value_name = "S,...", value_delimiter = ',', value_parser = skew,
        allow_negative_numbers = true
    )]
    skew: Vec<Skew>,
    /// Events a second and side, in event time, instead of the workload's own
    #[arg(
        long, value_name = "N,...", value_delimiter = ',', value_parser = event_rate,
        allow_negative_numbers = true
    )]
    rate: Vec<u64>,
    /// Events arrive up to this long after their time, and watermarks trail by it
    #[arg(long, value_name = "DURATION,...", value_delimiter = ',', allow_hyphen_values = true)]
    disorder: Vec<TimeSpan>,
    /// Bytes of a row beside the id
    #[arg(
        long, value_name = "BYTES,...", value_delimiter = ',',
        value_parser = whole::<u32>(0, PAYLOAD_MAX), allow_negative_numbers = true
    )]
    payload: Vec<u32>,
    /// Compares pairs and checksum with an offline join where no known outcome is at hand
    #[arg(long)]
    check: bool,
    /// What times single steps: the wall, or the thread's CPU time (other programs' turns left out)
    #[arg(long, value_enum, default_value_t, value_name = "CLOCK")]
    step_clock: Clock,
    /// Compares with the rows of a saved run (--output-format json), of 3 repeats at least
    #[arg(long, value_name = "FILE")]
    baseline: Option<std::path::PathBuf>,
    /// Exit status 1 if a row is slower than the saved one, or if no row could be compared
    #[arg(long, requires = "baseline")]
    pub(in crate::cli::bench) fail_if_slower: bool,
    /// CPU time an event over what is swept, as a chart (.svg) or a page with the figures (.html)
    #[arg(long, value_name = "FILE.svg|.html", value_parser = PlotFile::parse)]
    pub(in crate::cli::bench) plot: Option<PlotFile>,
    /// How figures are printed: a table, one JSON object a configuration, or CSV
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(in crate::cli::bench) output_format: Format,
}

/// What to measure, and what it is called.
#[derive(Clone, Debug)]
pub(in crate::cli::bench) struct Config {
    pub(in crate::cli::bench) plan: BenchPlan,
    /// As the options have it.
    pub(in crate::cli::bench) bucket_width: BucketWidth,
    pub(in crate::cli::bench) bounds: BoundShape,
    /// As the option has it: `all`, `nearest`, `asof-backward`, `tumble:5s`.
    pub(in crate::cli::bench) form: String,
}

/// How a join runs, whatever its events.
#[derive(Clone, Copy)]
struct RunShape {
    kind: JoinKind,
    batch: usize,
    with_condition: bool,
    bucket_width: BucketWidth,
    chunk: ChunkSize,
    bounds: BoundShape,
    chain: u8,
}

/// The values of an option, or none.
fn swept<T: Copy>(values: &[T]) -> Vec<Option<T>> {
    if values.is_empty() { vec![None] } else { values.iter().copied().map(Some).collect() }
}

impl Args {
    /// The saved run to compare with, if one is given.
    ///
    /// # Errors
    /// [`Failure`] says what is wrong with the file, or with what is asked of it.
    pub(in crate::cli::bench) fn baseline(&self) -> Result<Option<Baseline>, Failure> {
        if self.fail_if_slower && u64::from(self.repeat) < REPEATS_MIN {
            return Err(Failure::usage(format!(
                "--fail-if-slower: of {} repeats nobody knows how far they lie apart; give \
                 --repeat {REPEATS_MIN} or more",
                self.repeat
            )));
        }
        self.baseline.as_deref().map(Baseline::read).transpose()
    }

    /// One for each combination of what is swept; those that differ in cores, runtime and
    /// instructions only are subjects of one plan, measured in turn.
    ///
    /// # Errors
    /// [`Failure::Usage`] names what does not go together.
    pub(in crate::cli::bench) fn configs(&self) -> Result<Vec<Config>, Failure> {
        let events_per_side = self.events_per_side()?;
        let subjects = self.subjects()?;
        let mut configs = Vec::new();
        for workload in self.workloads(events_per_side)? {
            for (form, name) in self.forms(&workload)? {
                for run in self.run_shapes()? {
                    let plan = BenchPlan {
                        workload,
                        form,
                        with_condition: run.with_condition,
                        events_per_side,
                        seed: self.seed,
                        subjects: subjects.clone(),
                        kind: run.kind,
                        batch: run.batch,
                        chain: usize::from(run.chain),
                        layout: LayoutHints {
                            bucket_width: run.bucket_width.wall(),
                            chunk_bytes: run.chunk.0,
                            reserve_bytes: self.reserve,
                        },
                        bounds: self.bounds.bounds(run.bounds),
                        repeat: self.repeat,
                        roofline: self.roofline,
                        check: self.check,
                        step_clock: match self.step_clock {
                            Clock::Wall => StepClock::Wall,
                            Clock::Cpu => StepClock::Cpu,
                        },
                    };
                    self.check_plan(&plan)?;
                    let suffix = if run.with_condition { "-if" } else { "" };
                    let (bucket_width, bounds) = (run.bucket_width, run.bounds);
                    let form = format!("{name}{suffix}");
                    configs.push(Config { plan, bucket_width, bounds, form });
                }
            }
        }
        Ok(configs)
    }

    /// What is swept of how the joins run.
    fn run_shapes(&self) -> Result<Vec<RunShape>, Failure> {
        let plain = RunShape {
            kind: JoinKind::Inner,
            batch: 1,
            with_condition: false,
            bucket_width: self.bucket_width[0],
            chunk: self.chunk[0],
            bounds: self.bounds.shapes(self.api)?[0],
            chain: 0,
        };
        let mut shapes = vec![plain];
        // Each option in turn multiplies them.
        let mut vary = |set: &dyn Fn(RunShape) -> Vec<RunShape>| {
            shapes = shapes.iter().copied().flat_map(set).collect();
        };
        vary(&|s| self.kind.iter().map(|&kind| RunShape { kind: kind.into(), ..s }).collect());
        vary(&|s| {
            let batches = self.batch.iter().copied().map(usize::from);
            batches.map(|batch| RunShape { batch, ..s }).collect()
        });
        vary(&|s| {
            let widths = self.bucket_width.iter();
            widths.map(|&bucket_width| RunShape { bucket_width, ..s }).collect()
        });
        vary(&|s| self.chunk.iter().map(|&chunk| RunShape { chunk, ..s }).collect());
        let bounds = self.bounds.shapes(self.api)?;
        vary(&|s| bounds.iter().map(|&bounds| RunShape { bounds, ..s }).collect());
        vary(&|s| {
            let halves = self.condition.iter().map(|&which| which == ConditionChoice::Half);
            halves.map(|with_condition| RunShape { with_condition, ..s }).collect()
        });
        vary(&|s| self.chain.iter().map(|&chain| RunShape { chain, ..s }).collect());
        Ok(shapes)
    }

    fn events_per_side(&self) -> Result<u32, Failure> {
        let per_side = u32::try_from(self.events / 2).ok().filter(|&n| n > 0);
        per_side.filter(|_| self.events.is_multiple_of(2)).ok_or_else(|| {
            Failure::usage(format!(
                "--events {}: both sides get the same number, from 1 to {} each; give an even one",
                self.events,
                u32::MAX
            ))
        })
    }

    /// The workloads with everything that is swept of them.
    fn workloads(&self, events_per_side: u32) -> Result<Vec<Workload>, Failure> {
        let mut shapes = vec![Shape::default()];
        // Each option in turn multiplies them.
        let mut vary = |set: &dyn Fn(&Shape) -> Vec<Shape>| {
            shapes = shapes.iter().flat_map(set).collect();
        };
        vary(&|s| swept(&self.keys).into_iter().map(|keys| Shape { keys, ..*s }).collect());
        vary(&|s| swept(&self.skew).into_iter().map(|skew| Shape { skew, ..*s }).collect());
        vary(&|s| swept(&self.rate).into_iter().map(|rate| Shape { rate, ..*s }).collect());
        vary(&|s| {
            swept(&self.disorder).into_iter().map(|disorder| Shape { disorder, ..*s }).collect()
        });
        vary(&|s| {
            swept(&self.payload).into_iter().map(|payload| Shape { payload, ..*s }).collect()
        });
        let intervals = self.interval.iter().flat_map(|IntervalsText(intervals)| intervals);
        let intervals = intervals.map(closed_ms).collect::<Result<Vec<_>, Failure>>()?;
        let mut workloads = Vec::new();
        for workload in &self.workload {
            for shape in &shapes {
                let shaped = shape.of(*workload, u64::from(events_per_side))?;
                for interval in swept(&intervals) {
                    let between = interval.unwrap_or(shaped.between);
                    workloads.push(Workload { between, ..shaped });
                }
            }
        }
        Ok(workloads)
    }

    /// All forms that are asked for, or the plain one.
    fn forms(&self, workload: &Workload) -> Result<Vec<(Form, String)>, Failure> {
        let mut forms = Vec::new();
        for &choice in &self.choice {
            forms.push((Form::Interval(choice.into()), value_name(choice)));
        }
        let (lo, hi) = workload.between;
        let tolerance_ms = match self.tolerance {
            Some(span) => span
                .ticks_non_negative(TimeUnit::Ms)
                .map_err(|error| Failure::usage(format!("--tolerance: {error}")))?,
            None => lo.saturating_abs().max(hi.saturating_abs()),
        };
        if self.tolerance.is_some() && self.asof.is_empty() {
            return Err(Failure::usage("--tolerance goes with --asof; add it, or leave this out"));
        }
        for &asof in &self.asof {
            let direction = match asof {
                AsofChoice::Backward => Direction::Backward,
                AsofChoice::Forward => Direction::Forward,
                AsofChoice::Nearest => Direction::Nearest,
            };
            let form = Form::Asof { direction, tolerance_ms };
            forms.push((form, format!("asof-{}", value_name(asof))));
        }
        for text in &self.window {
            let window = WindowText::parse("--window", text)?.window("--window", TimeUnit::Ms)?;
            forms.push((Form::Window(window), text.clone()));
        }
        if forms.is_empty() {
            forms.push((Form::default(), value_name(Match::All)));
        }
        Ok(forms)
    }

    /// Refuses what could not be measured, before anything is.
    fn check_plan(&self, plan: &BenchPlan) -> Result<(), Failure> {
        let (kind, name) = (plan.kind, plan.workload.name);
        let is_plain =
            kind == JoinKind::Inner && plan.form == Form::default() && !plan.with_condition;
        if !self.peer.is_empty() && (!is_plain || plan.bounds != Bounds::default()) {
            return Err(Failure::usage(
                "--peer: the naive peer knows inner joins of all pairs in an interval only, \
                 without bounds; leave it out, or --type, --match, --asof, --window, --condition, \
                 --ttl, --max-rows and --max-state",
            ));
        }
        if plan.chain > 0 && !(is_plain && self.peer.is_empty() && self.api == Api::Engine) {
            return Err(Failure::usage(
                "--chain: the engine has chains, here of inner joins of all pairs in an interval; \
                 leave it out, or --api, --peer, --type, --match, --asof, --window, --condition",
            ));
        }
        let options = match plan.form {
            Form::Interval(MatchChoice::All) => "--interval",
            Form::Interval(_) => "--match and --type",
            Form::Asof { .. } => "--asof and --type",
            Form::Window(_) => "--window",
        };
        let workload = plan.form.workload(plan.workload);
        let spec = plan.form.spec_within(&workload, kind, plan.layout, &plan.bounds);
        spec.map(drop).map_err(|error| {
            let options = match error {
                SpecError::Ttl(_) => "--ttl",
                SpecError::Overflow(_) => "--on-full",
                SpecError::ChunkBytes { .. } => "--chunk",
                _ => options,
            };
            Failure::usage(format!("{options}, {name}: {error}"))
        })
    }
}

/// The name that an option's value has.
fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
