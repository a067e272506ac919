//! Runs a planned join to its end, and says how it ended.

use std::time::Duration;

use crate::cli::join::args::{OnFull, Stats, When};
use crate::cli::join::expressions::Expressions;
use crate::cli::join::feeds::{self, Feeds, SourceTimes};
use crate::cli::join::hint;
use crate::cli::join::late;
use crate::cli::join::left_out;
use crate::cli::join::open::open;
use crate::cli::join::outputs::{self, Outputs};
use crate::cli::join::plan::Plan;
use crate::cli::join::report::{Latency, Report, SideRows, StageRows};
use crate::cli::join::rules::{self, Control};
use crate::cli::join::waiting::Waiting;
use crate::cli::progress::{Progress, Snapshot};
use crate::cli::text::show_count;
use crate::cli::{Console, Failure, StopSignal, os};
use crate::engine::{self, Ending, Engine, EngineBuilder, EngineError, Finished, Metrics, NoSinks};
use crate::error::{JoinError, SpecError};
use crate::event::{KeyKind, Side, stream_name};
use crate::join::{AnyJoin, JoinSpec};
use crate::limits::Limits;
use crate::runtime::Topology;
use crate::sink::{Output, RowSink};
use crate::source::split_position;
use crate::state::Simd;
use crate::time::text::{TimeSpan, TimeUnit};
use crate::time::{Lateness, LatenessClock};
use crate::workload::LayoutHints;

/// How often a waiting main thread looks for Ctrl-C and redraws the progress line.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// Joins the files of the plan and reports.
///
/// # Errors
/// As [`super::run`].
pub(super) fn run(plan: &Plan) -> Result<(), Failure> {
    let waiting = Waiting::start(plan)?;
    let rules = rules::Opening::start(plan)?;
    let mut inputs = open(plan)?;
    let expressions = Expressions::new(plan, &mut inputs)?;
    let unit = inputs.unit;
    let limits = plan.machine.bounds.limits;
    let mut spec = join_spec(plan, unit, &limits)?;
    if let Some(condition) = expressions.condition(plan.machine.deterministic) {
        spec = spec.with_condition(condition);
    }
    let (control, spec) = Control::start(plan, unit, &expressions, (spec, rules))?;
    let times = SourceTimes::new(plan, unit)?;
    let drift = max_drift(plan, std::slice::from_ref(&spec), unit);
    let builder = builder(plan, spec.clone(), limits, drift);
    let cores =
        builder.shard_count().map_err(|error| Failure::usage(format!("--cores: {error}")))?;
    plan.machine.bounds.check_reserve(std::slice::from_ref(&spec), cores)?;
    let outputs = Outputs::open(plan, &inputs, &expressions, cores, spec.output_hold_back())?;
    // From here on there is something to put in order.
    drop(waiting);
    let (builder, feeds) = feeds::add(
        builder,
        plan,
        &times,
        inputs,
        spec.lateness(),
        cores,
        outputs.bad_rows.clone(),
    )?;
    let sinks = outputs.sinks.clone();
    let engine = builder
        .sinks(move |shard| sinks.sink(shard))
        .start_with(|_, hasher, limits| {
            AnyJoin::new(spec.clone(), hasher.clone(), limits, plan.machine.simd)
        })
        .map_err(|error| match error {
            EngineError::Spec(SpecError::Splitting(_)) => {
                Failure::usage(format!("--hot-keys force: {error}"))
            }
            error => Failure::failed(error.to_string()),
        })?;
    for note in engine.notes() {
        Console::stderr().note(note);
    }
    engine.seal();
    let look = || Some(snapshot(&[Some(engine.metrics().ok()?)], &feeds, unit));
    let signal = watch(plan, || control.is_faulty() || engine.wait(LOOK), look);
    let stops = signal.is_some() || control.is_faulty();
    let finished = if stops { engine.shutdown() } else { engine.finish() };
    if let Some(fault) = control.fault() {
        // Nothing that was found counts.
        return Err(fault);
    }
    let Finished { report, sinks } = finished.map_err(|error| explain(error, plan, unit))?;
    expressions.warn(Console::stderr());
    let (rows, bytes) = (report.state_rows_peak, report.state_bytes_peak);
    let done = Done { reports: vec![report], sinks, state_peaks: (rows, bytes) };
    conclude(plan, unit, done, signal, &outputs, &feeds)
}

/// An engine as the plan says where and how it runs.
pub(super) fn builder(
    plan: &Plan,
    spec: JoinSpec,
    limits: Limits,
    drift: Option<i64>,
) -> EngineBuilder<NoSinks> {
    let builder = Engine::builder(spec)
        .cores(plan.machine.cores.clone())
        .runtime(plan.machine.runtime)
        .idle(plan.machine.idle)
        .linger(plan.machine.linger)
        .batch_events(plan.machine.batch_events)
        .lane_batches(plan.machine.lane_batches)
        .hot_keys(plan.machine.hot_keys)
        .limits(limits)
        .fail_when_full(plan.machine.bounds.on_full == OnFull::Fail);
    match drift {
        Some(drift) => builder.max_drift(drift),
        None => builder,
    }
}

/// What a run leaves.
pub(super) struct Done {
    /// Of each stage.
    pub(super) reports: Vec<engine::Report>,
    pub(super) sinks: Vec<RowSink>,
    /// The most rows and bytes of state.
    pub(super) state_peaks: (u64, u64),
}

pub(super) fn join_spec(plan: &Plan, unit: TimeUnit, limits: &Limits) -> Result<JoinSpec, Failure> {
    let allowed = ticks("--allowed-lateness", plan.allowed_lateness, unit)?;
    let clock = if plan.machine.deterministic { LatenessClock::Own } else { LatenessClock::Merged };
    let spec = plan.matching.spec(unit)?.kind(plan.kind).keys(KeyKind::Bytes);
    let layout = LayoutHints { reserve_bytes: plan.reserve_share(), ..plan.machine.layout };
    let spec = layout.add_to(spec, unit.ticks_per_second() / 1_000);
    let spec = plan.machine.bounds.add_to(spec);
    let spec = spec.lateness(Lateness { policy: plan.late, clock, allowed }).build(limits);
    spec.map_err(|error| {
        let bounds = plan.machine.bounds.explain_spec(&error);
        bounds.unwrap_or_else(|| plan.matching.explain(&error, unit))
    })
}

/// A duration in ticks of the run.
pub(super) fn ticks(option: &str, span: TimeSpan, unit: TimeUnit) -> Result<i64, Failure> {
    span.ticks_non_negative(unit).map_err(|error| Failure::usage(format!("{option}: {error}")))
}

/// How far a source may run ahead of the slowest one in event time: an eighth of what rows are kept
/// for anyway, so that reading a dense file beside a sparse one adds little to state. (Some rows it
/// may always run ahead.) The slowest source is never held back, and one that has ended or is idle
/// holds nobody back, so this cannot come to a standstill.
pub(super) fn max_drift(plan: &Plan, specs: &[JoinSpec], unit: TimeUnit) -> Option<i64> {
    if specs.iter().any(|spec| spec.interval().is_unbounded()) {
        return None;
    }
    let disorder = plan.streams().filter_map(|stream| stream.disorder.ticks(unit).ok()).max();
    let kept = specs.iter().map(JoinSpec::output_hold_back).max().unwrap_or(0);
    Some(kept.saturating_add(disorder.unwrap_or(0)) / 8)
}

/// Waits for the end, drawing progress. Returns the signal that ended it, if one did.
pub(super) fn watch(
    plan: &Plan,
    wait: impl Fn() -> bool,
    look: impl Fn() -> Option<Snapshot>,
) -> Option<StopSignal> {
    let mut progress = Progress::new(plan.progress == When::Always, plan.progress == When::Never);
    let mut signal = None;
    while !wait() {
        signal = os::interrupted();
        if signal.is_some() {
            break;
        }
        if let Some(progress) = progress.as_mut().filter(|progress| progress.is_due())
            && let Some(snapshot) = look()
        {
            progress.draw(&snapshot);
        }
    }
    if let Some(progress) = &mut progress {
        progress.clear();
    }
    signal
}

/// What the stages that still run have done: rows of the first one's left side and of all right
/// ones, pairs of the last.
pub(super) fn snapshot(stages: &[Option<Metrics>], feeds: &Feeds, unit: TimeUnit) -> Snapshot {
    let running = || stages.iter().flatten();
    let rows = |side: Side, metrics: &Metrics| metrics.counters.side(side).rows;
    let buffered = |metrics: &Metrics| -> u64 {
        Side::BOTH.iter().map(|&side| metrics.counters.side(side).buffered()).sum()
    };
    Snapshot {
        rows: [
            running().next().map_or(0, |first| rows(Side::Left, first)),
            running().map(|stage| rows(Side::Right, stage)).sum(),
        ],
        pairs: running().last().map_or(0, |last| last.counters.pairs),
        buffered: running().map(buffered).sum(),
        watermarks: Side::BOTH.map(|side| {
            // As the shards go by it: it never goes back, whoever is idle.
            let shards = running().next().map_or(&[][..], |first| &first.shards);
            let applied = shards.iter().map(|shard| shard.watermarks[side.index()]);
            applied.min().unwrap_or(i64::MIN)
        }),
        unit,
        bytes: feeds.bytes(),
    }
}

/// Puts outputs in their places and reports.
pub(super) fn conclude(
    plan: &Plan,
    unit: TimeUnit,
    mut done: Done,
    signal: Option<StopSignal>,
    outputs: &Outputs,
    feeds: &Feeds,
) -> Result<(), Failure> {
    let console = Console::stderr();
    let ending = done.reports.last().map_or(Ending::Complete, |last| last.ending.clone());
    let signal = match ending {
        Ending::SinkClosed | Ending::Complete => None,
        Ending::Stopped => Some(signal.unwrap_or(StopSignal::Interrupt)),
    };
    let mut failure = Ok(());
    if ending != Ending::Complete {
        for sink in &mut done.sinks {
            sink.write_late().map_err(outputs::failure)?;
        }
    }
    if ending == Ending::SinkClosed {
        // Whoever read the results has seen enough: an end like any other.
        outputs.commit_others()?;
        failure = Err(Failure::Closed);
    } else if let Some(signal) = signal {
        let kept = outputs.keep_partial()?;
        let mut message = format!(
            "stopped by {}; the {} rows written are complete",
            signal.name(),
            outputs.rows()
        );
        let held = held(&done, outputs);
        if held > 0 {
            message.push_str(&format!(
                "; {held} more that were found are not, as earlier rows might have followed"
            ));
        }
        for path in kept {
            message.push_str(&format!("; they are in {}", path.display()));
        }
        failure = Err(Failure::Interrupted(signal, message));
    } else {
        outputs.commit()?;
    }
    if let Some(message) = left_out::message(plan, &outputs.sinks.left_out()) {
        console.warning(&message);
    }
    let report = report(plan, unit, &done, outputs, feeds, signal.is_some());
    warn_of_missing_keys(plan, &report, console);
    warn_of_rows_shed(&report, console);
    if let Some(hint) = hint::nothing_matched(plan, &report).filter(|_| failure.is_ok()) {
        console.warning(&hint);
    }
    write_report(plan, &report, outputs.stats.as_ref(), console)?;
    failure
}

/// Rows that were found and not written: under --deterministic, when a run is stopped.
fn held(done: &Done, outputs: &Outputs) -> u64 {
    done.sinks.iter().map(RowSink::held).sum::<u64>() + outputs.sinks.held()
}

/// A stream none of whose rows has a key matches nothing at all: seldom what anybody wants.
fn warn_of_missing_keys(plan: &Plan, report: &Report, console: Console) {
    for (stream, rows) in plan.streams().zip(report.streams()) {
        let SideRows { rows, bad, null_key, .. } = rows;
        if *null_key > 0 && *null_key == rows - bad {
            console.warning(&format!(
                "no {} row has a key, so nothing could match: {} is missing or empty in all of \
                 them; look at {}",
                stream.name,
                stream.key_columns.join(", "),
                stream.on_option()
            ));
        }
    }
}

/// A result without the pairs of rows that were given up is not what was asked for.
fn warn_of_rows_shed(report: &Report, console: Console) {
    let shed = report.rows_shed();
    if shed > 0 {
        console.warning(&format!(
            "the result is incomplete: {} buffered rows were given up for want of room \
             (--on-full shed), {} of them without a match by then; raise --max-state or --max-rows",
            show_count(shed),
            show_count(report.rows_shed_unmatched())
        ));
    }
}

fn report(
    plan: &Plan,
    unit: TimeUnit,
    done: &Done,
    outputs: &Outputs,
    feeds: &Feeds,
    interrupted: bool,
) -> Report {
    let usage = os::usage();
    let (first, last) = (&done.reports[0], &done.reports[done.reports.len() - 1]);
    let latency = (!last.latency_ns.is_empty()).then(|| Latency {
        p50: last.latency_ns.value_at_quantile(0.5),
        p90: last.latency_ns.value_at_quantile(0.9),
        p99: last.latency_ns.value_at_quantile(0.99),
        p999: last.latency_ns.value_at_quantile(0.999),
        max: last.latency_ns.max(),
    });
    let stages: Vec<StageRows> =
        (0..).zip(&done.reports).map(|(stage, report)| stage_rows(stage, report, feeds)).collect();
    Report {
        sides: stages[0].sides,
        pairs: last.counters.pairs,
        hot_keys_split: last.hot_keys.split,
        rows_copied: Side::BOTH.iter().map(|&side| last.counters.side(side).copies).sum(),
        rows_out: outputs.rows(),
        rows_not_written: held(done, outputs),
        state_rows_peak: done.state_peaks.0,
        state_bytes_peak: done.state_peaks.1,
        state_bytes_reserved: done.reports.iter().map(|it| it.state_bytes_reserved).sum(),
        rss_bytes_peak: usage.rss_bytes_peak,
        watermark: last.watermark,
        unit,
        elapsed_s: first.elapsed.as_secs_f64(),
        cpu_s: usage.cpu_s,
        cores: first.cores.len(),
        runtime: first.runtime.name().to_owned(),
        simd: plan.machine.simd.unwrap_or_else(Simd::detect).name().to_owned(),
        latency,
        interrupted,
        // Of a single one all is said by the rest.
        stages: if stages.len() > 1 { stages } else { Vec::new() },
    }
}

/// What a stage did; its left rows have been parsed only in the first.
fn stage_rows(stage: usize, report: &engine::Report, feeds: &Feeds) -> StageRows {
    let counters = &report.counters;
    StageRows {
        sides: Side::BOTH.map(|side| {
            let bad = match side {
                Side::Left if stage > 0 => 0,
                side => feeds.bad_rows(stage + side.index()),
            };
            SideRows::new(counters.side(side), bad, report.jumped[side.index()])
        }),
        pairs: counters.pairs,
        padded: Side::BOTH.iter().map(|&side| counters.side(side).singles).sum(),
        behind: report.left_behind,
        state_rows_peak: report.state_rows_peak,
        state_bytes_peak: report.state_bytes_peak,
        state_bytes_reserved: report.state_bytes_reserved,
        watermark: report.watermark,
    }
}

/// The report of a run that was stopped before it began.
pub(super) fn write_nothing(plan: &Plan, report: &Report, console: Console) -> Result<(), Failure> {
    write_report(plan, report, outputs::open_stats_of(plan)?.as_ref(), console)
}

fn write_report(
    plan: &Plan,
    report: &Report,
    output: Option<&Output>,
    console: Console,
) -> Result<(), Failure> {
    let text = match plan.stats {
        Stats::None => return Ok(()),
        Stats::Text => report.text(),
        Stats::Json => report.json(),
    };
    if plan.stats_output.is_none() {
        console.text(&text);
        return Ok(());
    }
    let Some(output) = output else { return crate::cli::out(&text) };
    output.write(text.as_bytes(), 0).and_then(|()| output.commit()).map_err(|error| {
        let result =
            if report.interrupted { "the rows that were written are" } else { "the result is" };
        Failure::failed(format!("--stats-output {error}; {result} complete"))
    })
}

/// Says what went wrong in the words of the command line.
pub(super) fn explain(error: EngineError, plan: &Plan, unit: TimeUnit) -> Failure {
    let (stage, error) = match error {
        EngineError::Stage { stage, error } => (stage, *error),
        error => (0, error),
    };
    match error {
        EngineError::Sink { error, .. } => outputs::failure(error),
        EngineError::Join { error: JoinError::Late { side, ts, lag, row }, .. } => {
            let stream = stage + side.index();
            let row = match split_position(&row).filter(|_| plan.machine.deterministic) {
                Some((_, row)) => row,
                None => &row,
            };
            Failure::failed(format!(
                "{}a {} row at {} is late by {}: {}; raise --out-of-orderness or \
                 --allowed-lateness, or choose --late drop or --late-output",
                late::place_of(plan, stream, row),
                stream_name(stream),
                unit.format(ts),
                TimeSpan::from_ticks(lag, unit),
                late::shown(row)
            ))
        }
        EngineError::Join { error, .. } => {
            let cores = plan.machine.cores.place(&Topology::read());
            let cores = cores.map_or(1, |placement| placement.cpus.len());
            let full = plan.machine.bounds.explain(&error, (cores, 1 + plan.then.len()));
            full.unwrap_or_else(|| Failure::failed(error.to_string()))
        }
        error => Failure::failed(error.to_string()),
    }
}
