//! What the options resolve to, before any file is opened.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::Failure;
use crate::cli::choices::Format;
use crate::cli::join::Settings;
use crate::cli::join::args::{Args, BadRows, LateChoice, Stats, Unit, When};
use crate::cli::join::bounds::Bounds;
use crate::cli::join::expressions::ExpressionPlan;
use crate::cli::join::matching::{self, Matching};
use crate::cli::join::paths::{self, STANDARD};
use crate::cli::join::streams::{self, ThenPlan};
use crate::event::Side;
use crate::exchange::HotKeys;
use crate::join::JoinKind;
use crate::runtime::{CoreChoice, IdleStrategy, RuntimeChoice};
use crate::state::Simd;
use crate::time::LatePolicy;
use crate::time::text::{TimeFormat, TimeSpan, TimeUnit, Zone};
use crate::workload::LayoutHints;

/// A join, ready to open its files.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// By [`Side::index`].
    pub(super) sides: [SidePlan; 2],
    /// Further streams, in their order.
    pub(super) then: Vec<ThenPlan>,
    pub(super) matching: Matching,
    pub(super) expressions: ExpressionPlan,
    pub(super) rules: Option<PathBuf>,
    pub(super) kind: JoinKind,
    pub(super) zone: Zone,
    /// The tick of the run, if it was given.
    pub(super) unit: Option<TimeUnit>,
    pub(super) allowed_lateness: TimeSpan,
    pub(super) idle_timeout: Option<Duration>,
    pub(super) max_jump: Option<TimeSpan>,
    pub(super) late: LatePolicy,
    pub(super) skip_bad_rows: bool,
    pub(super) output: OutputPlan,
    pub(super) machine: MachinePlan,
    pub(super) stats: Stats,
    pub(super) stats_output: Option<PathBuf>,
    pub(super) progress: When,
}

/// One side's files and columns, or a further stream's.
#[derive(Clone, Debug)]
pub(super) struct SidePlan {
    /// What its options begin with: `left`, `right`, `then`.
    pub(super) prefix: &'static str,
    /// `left`, `right`, `then1` and so on.
    pub(super) name: String,
    pub(super) files: Vec<PathBuf>,
    /// All files of a side have the same.
    pub(super) format: Format,
    /// Names given for files without a header line.
    pub(super) columns: Option<Vec<String>>,
    pub(super) key_columns: Vec<String>,
    pub(super) time_column: String,
    pub(super) time_format: TimeFormat,
    pub(super) disorder: TimeSpan,
}

/// Where rows go.
#[derive(Clone, Debug)]
pub(super) struct OutputPlan {
    pub(super) path: PathBuf,
    pub(super) format: Format,
    pub(super) late: Option<(PathBuf, Format)>,
    pub(super) bad: Option<(PathBuf, Format)>,
    pub(super) append: bool,
}

/// How it runs.
#[derive(Clone, Debug)]
pub(super) struct MachinePlan {
    pub(super) cores: CoreChoice,
    pub(super) runtime: RuntimeChoice,
    pub(super) idle: IdleStrategy,
    pub(super) simd: Option<Simd>,
    pub(super) linger: Duration,
    pub(super) batch_events: usize,
    pub(super) lane_batches: usize,
    pub(super) hot_keys: HotKeys,
    pub(super) layout: LayoutHints,
    pub(super) deterministic: bool,
    pub(super) bounds: Bounds,
}

impl Plan {
    /// What each stage takes of `--reserve`: equal shares, as nobody knows which will hold most.
    /// Those of `--window` take none.
    pub(super) fn reserve_share(&self) -> u64 {
        let stages = 1 + self.then.len();
        let windows = self.then.iter().filter(|then| then.is_window()).count();
        let takers = stages - windows - usize::from(self.matching.is_window());
        self.machine.layout.reserve_bytes / takers.max(1) as u64
    }

    /// Makes sense of the options.
    ///
    /// # Errors
    /// [`Failure::Usage`] names the option, what is wrong and what to give instead.
    pub(super) fn resolve(args: &Args, settings: &[Settings]) -> Result<Plan, Failure> {
        let keys = key_columns("--on", &args.matching.on)?;
        let allowed_lateness = not_negative("--allowed-lateness", &args.time.allowed_lateness)?;
        let plan = Plan {
            sides: [side_plan(args, Side::Left, keys.0)?, side_plan(args, Side::Right, keys.1)?],
            then: streams::resolve(args)?,
            matching: matching::Typed::of_sides(&args.matching).resolve()?,
            expressions: ExpressionPlan::resolve(&args.condition, &args.output, &args.then)?,
            rules: args.condition.rules.clone(),
            kind: args.matching.kind.into(),
            zone: option("--timezone", Zone::parse(&args.time.timezone))?,
            unit: args.time.time_unit.map(|unit| match unit {
                Unit::Ms => TimeUnit::Ms,
                Unit::Us => TimeUnit::Us,
                Unit::Ns => TimeUnit::Ns,
            }),
            allowed_lateness,
            idle_timeout: idle_timeout(args)?,
            max_jump: max_jump(args)?,
            late: late_policy(args)?,
            skip_bad_rows: skip_bad_rows(args)?,
            output: output_plan(args)?,
            machine: machine_plan(args)?,
            stats: args.output.stats,
            stats_output: args.output.stats_output.clone(),
            progress: args.output.progress,
        };
        if plan.stats == Stats::None && plan.stats_output.is_some() {
            return Err(Failure::usage(
                "--stats none writes no report, so nothing would be in --stats-output; leave one \
                 of them out",
            ));
        }
        check_paths(args, &plan, settings)?;
        Ok(plan)
    }

    /// The plan of one side.
    pub(super) fn side(&self, side: Side) -> &SidePlan {
        &self.sides[side.index()]
    }

    /// The plans of all streams: left, right, the further ones.
    pub(super) fn streams(&self) -> impl Iterator<Item = &SidePlan> {
        self.sides.iter().chain(self.then.iter().map(|then| &then.side))
    }
}

impl SidePlan {
    /// The option that names its key.
    pub(super) fn on_option(&self) -> &'static str {
        if self.prefix == "then" { "--then-on" } else { "--on" }
    }
}

pub(super) fn option<T, E: std::fmt::Display>(
    name: &str,
    result: Result<T, E>,
) -> Result<T, Failure> {
    result.map_err(|error| Failure::usage(format!("{name}: {error}")))
}

pub(super) fn not_negative(name: &str, text: &str) -> Result<TimeSpan, Failure> {
    let span: TimeSpan = option(name, text.parse())?;
    if span < TimeSpan::ZERO {
        return Err(Failure::usage(format!("{name}: {span} is negative; give 0 or more")));
    }
    Ok(span)
}

/// Splits each `--on` (or another option like it): a name that both sides have, or `LEFT=RIGHT`.
pub(super) fn key_columns(
    name: &str,
    on: &[String],
) -> Result<(Vec<String>, Vec<String>), Failure> {
    let mut columns = (Vec::new(), Vec::new());
    for text in on {
        let (left, right) = text.split_once('=').unwrap_or((text, text));
        if left.is_empty() || right.is_empty() {
            return Err(Failure::usage(format!(
                "{name}: \"{text}\" names no column; give a name, or LEFT=RIGHT"
            )));
        }
        columns.0.push(left.to_owned());
        columns.1.push(right.to_owned());
    }
    Ok(columns)
}

fn side_plan(args: &Args, side: Side, key_columns: Vec<String>) -> Result<SidePlan, Failure> {
    let (input, time) = (&args.input, &args.time);
    let typed = match side {
        Side::Left => Typed {
            prefix: "left",
            name: side.name().to_owned(),
            files: &input.left,
            format: input.left_format,
            columns: &input.left_columns,
            time_column: &time.left_time,
            time_format: &time.left_time_format,
            disorder: &time.left_out_of_orderness,
        },
        Side::Right => Typed {
            prefix: "right",
            name: side.name().to_owned(),
            files: &input.right,
            format: input.right_format,
            columns: &input.right_columns,
            time_column: &time.right_time,
            time_format: &time.right_time_format,
            disorder: &time.right_out_of_orderness,
        },
    };
    typed.plan(args, key_columns)
}

/// What was typed of one stream.
pub(super) struct Typed<'a> {
    pub(super) prefix: &'static str,
    pub(super) name: String,
    pub(super) files: &'a [PathBuf],
    pub(super) format: Option<Format>,
    pub(super) columns: &'a [String],
    pub(super) time_column: &'a str,
    pub(super) time_format: &'a Option<String>,
    pub(super) disorder: &'a Option<String>,
}

impl Typed<'_> {
    /// What that resolves to, where it says nothing by the options of all streams.
    pub(super) fn plan(self, args: &Args, key_columns: Vec<String>) -> Result<SidePlan, Failure> {
        let (prefix, name, columns) = (self.prefix, self.name, self.columns);
        let format = paths::side_format(prefix, self.files, self.format)?;
        let has_header = format != Format::Jsonl;
        if has_header && !args.input.no_header && !columns.is_empty() {
            return Err(Failure::usage(format!(
                "--{prefix}-columns names the columns of files without a header line; \
                 give --no-header as well, or leave it out"
            )));
        }
        if has_header && args.input.no_header && columns.is_empty() {
            return Err(Failure::usage(format!(
                "--no-header: the {name} files have no names for their columns; \
                 give them with --{prefix}-columns a,b,c"
            )));
        }
        let (format_option, format_text) = match self.time_format {
            Some(text) => (format!("--{prefix}-time-format"), text),
            None => ("--time-format".to_owned(), &args.time.time_format),
        };
        let (disorder_option, disorder_text) = match self.disorder {
            Some(text) => (format!("--{prefix}-out-of-orderness"), text),
            None => ("--out-of-orderness".to_owned(), &args.time.out_of_orderness),
        };
        Ok(SidePlan {
            prefix,
            name,
            files: self.files.to_vec(),
            format,
            columns: (!columns.is_empty()).then(|| columns.to_vec()),
            key_columns,
            time_column: self.time_column.to_owned(),
            time_format: option(&format_option, TimeFormat::parse(format_text))?,
            disorder: not_negative(&disorder_option, disorder_text)?,
        })
    }
}

fn idle_timeout(args: &Args) -> Result<Option<Duration>, Failure> {
    let Some(text) = &args.time.idle_timeout else { return Ok(None) };
    let span: TimeSpan = option("--idle-timeout", text.parse())?;
    let timeout = option("--idle-timeout", span.to_wall())?;
    if timeout.is_zero() {
        return Err(Failure::usage("--idle-timeout: give more than 0, or leave it out for never"));
    }
    if args.machine.deterministic {
        return Err(Failure::usage(
            "--idle-timeout goes by the clock on the wall, and --deterministic by the rows alone; \
             leave one of them out",
        ));
    }
    Ok(Some(timeout))
}

fn max_jump(args: &Args) -> Result<Option<TimeSpan>, Failure> {
    let Some(text) = &args.time.max_jump else { return Ok(None) };
    match not_negative("--max-jump", text)? {
        TimeSpan::ZERO => Err(Failure::usage(
            "--max-jump: give more than 0, or the watermark stands; leave it out for no limit",
        )),
        span => Ok(Some(span)),
    }
}

fn late_policy(args: &Args) -> Result<LatePolicy, Failure> {
    match (args.trouble.late, &args.trouble.late_output) {
        (Some(LateChoice::Fail), Some(_)) => Err(Failure::usage(
            "--late fail ends the run at the first late row, so nothing would be in \
             --late-output; leave one of them out",
        )),
        (Some(LateChoice::Fail), None) => Ok(LatePolicy::Fail),
        (_, Some(_)) => Ok(LatePolicy::Output),
        (Some(LateChoice::Drop) | None, None) => Ok(LatePolicy::Drop),
    }
}

fn skip_bad_rows(args: &Args) -> Result<bool, Failure> {
    match (args.trouble.bad_rows, &args.trouble.bad_rows_output) {
        (Some(BadRows::Fail), Some(_)) => Err(Failure::usage(
            "--bad-rows fail ends the run at the first bad row, so nothing would be in \
             --bad-rows-output; leave one of them out",
        )),
        (Some(BadRows::Skip), _) | (None, Some(_)) => Ok(true),
        (Some(BadRows::Fail) | None, None) => Ok(false),
    }
}

fn output_plan(args: &Args) -> Result<OutputPlan, Failure> {
    let output = &args.output;
    let format =
        |option: &str, path: &Path| paths::output_format(option, path, output.output_format);
    let beside = |option: &str, path: &Option<PathBuf>| match path {
        Some(path) => Ok(Some((path.clone(), format(option, path)?))),
        None => Ok::<_, Failure>(None),
    };
    Ok(OutputPlan {
        path: output.output.clone(),
        format: format("--output", &output.output)?,
        late: beside("--late-output", &args.trouble.late_output)?,
        bad: beside("--bad-rows-output", &args.trouble.bad_rows_output)?,
        append: output.append,
    })
}

fn machine_plan(args: &Args) -> Result<MachinePlan, Failure> {
    let machine = &args.machine;
    Ok(MachinePlan {
        cores: option("--cores", machine.cores.parse())?,
        runtime: machine.runtime.into(),
        idle: machine.idle.into(),
        simd: machine.simd.resolve()?,
        linger: option("--linger", machine.linger.to_wall())?,
        batch_events: usize::from(machine.batch),
        lane_batches: usize::from(machine.lane_batches),
        hot_keys: machine.hot_keys.into(),
        layout: machine.layout.hints(),
        deterministic: machine.deterministic,
        bounds: Bounds::resolve(machine)?,
    })
}

/// Refuses outputs that would meet each other or an input, and standard input twice.
fn check_paths(args: &Args, plan: &Plan, settings: &[Settings]) -> Result<(), Failure> {
    let mut inputs = Vec::new();
    for stream in plan.streams() {
        for path in &stream.files {
            inputs.push((format!("--{}", stream.prefix), path.as_path()));
        }
    }
    // Not data, but not to be written over either.
    inputs.extend(plan.rules.iter().map(|path| ("--rules".to_owned(), path.as_path())));
    if inputs.iter().filter(|(_, path)| *path == Path::new(STANDARD)).count() > 1 {
        return Err(Failure::usage(
            "standard input (-) can be one file of one side, or the rules, only; give the others \
             as files",
        ));
    }
    inputs.extend(settings.iter().map(|(name, path)| (name.clone(), path.as_path())));
    let outputs = [
        ("--output", Some(args.output.output.as_path())),
        ("--late-output", args.trouble.late_output.as_deref()),
        ("--bad-rows-output", args.trouble.bad_rows_output.as_deref()),
        ("--stats-output", args.output.stats_output.as_deref()),
    ];
    let outputs: Vec<(&str, &Path)> =
        outputs.into_iter().filter_map(|(option, path)| Some((option, path?))).collect();
    paths::check_distinct(&outputs, &inputs)
}
