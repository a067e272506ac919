//! Runs a planned join to its end, and says how it ended.

use std::time::Duration;

use crate::cli::join::args::Stats;
use crate::cli::join::args::When;
use crate::cli::join::expressions::Expressions;
use crate::cli::join::feeds::{self, Feeds, SourceTimes};
use crate::cli::join::left_out;
use crate::cli::join::open::open;
use crate::cli::join::outputs::{self, Outputs};
use crate::cli::join::plan::Plan;
use crate::cli::join::report::{Latency, Report, SideRows};
use crate::cli::join::rules::Control;
use crate::cli::join::size::{show_size_down, show_size_up};
use crate::cli::progress::{Progress, Snapshot};
use crate::cli::{Console, Failure, StopSignal, os};
use crate::engine::{Ending, Engine, EngineError, Finished};
use crate::error::{JoinError, SpecError};
use crate::event::{KeyKind, Side};
use crate::join::{AnyJoin, JoinSpec};
use crate::limits::Limits;
use crate::sink::RowSink;
use crate::state::Simd;
use crate::time::text::{TimeSpan, TimeUnit};
use crate::time::{Lateness, LatenessClock};

/// How often a waiting main thread looks for Ctrl-C and redraws the progress line.
const LOOK: Duration = Duration::from_millis(50);

/// Joins the files of the plan and reports.
///
/// # Errors
/// As [`super::run`].
pub(super) fn run(plan: &Plan) -> Result<(), Failure> {
    let mut inputs = open(plan)?;
    let expressions = Expressions::new(plan, &mut inputs)?;
    let unit = inputs.unit;
    let limits = Limits { state_bytes_max: Some(plan.machine.state_bytes_max) };
    let mut spec = join_spec(plan, unit, &limits)?;
    if let Some(condition) = expressions.condition(plan.machine.deterministic) {
        spec = spec.with_condition(condition);
    }
    let (control, spec) = Control::start(plan, unit, &expressions, spec)?;
    let times = SourceTimes::new(plan, unit)?;
    let drift = max_drift(plan, &spec, unit);
    let mut builder = Engine::builder(spec.clone())
        .cores(plan.machine.cores.clone())
        .runtime(plan.machine.runtime)
        .idle(plan.machine.idle)
        .linger(plan.machine.linger)
        .batch_events(plan.machine.batch_events)
        .lane_batches(plan.machine.lane_batches)
        .limits(limits)
        .fail_when_full(plan.machine.fail_when_full);
    if let Some(drift) = drift {
        builder = builder.max_drift(drift);
    }
    let cores =
        builder.shard_count().map_err(|error| Failure::usage(format!("--cores: {error}")))?;
    let outputs = Outputs::open(plan, &inputs, &expressions, cores, spec.output_hold_back())?;
    // From here on there is something to put in order.
    os::catch_interrupts();
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
        .map_err(|error| Failure::failed(error.to_string()))?;
    for note in engine.notes() {
        Console::stderr().note(note);
    }
    engine.seal();
    let fault = || control.as_ref().and_then(Control::fault);
    let signal = match watch(&engine, plan, &feeds, unit, &fault) {
        Ok(signal) => signal,
        Err(fault) => {
            // Nothing that it has found counts.
            let _ = engine.shutdown();
            return Err(fault);
        }
    };
    let finished = if signal.is_some() { engine.shutdown() } else { engine.finish() };
    let finished = finished.map_err(|error| explain(error, plan, unit))?;
    if let Some(fault) = fault() {
        return Err(fault);
    }
    expressions.warn(Console::stderr());
    conclude(plan, unit, finished, signal, &outputs, &feeds)
}

fn join_spec(plan: &Plan, unit: TimeUnit, limits: &Limits) -> Result<JoinSpec, Failure> {
    let allowed = ticks("--allowed-lateness", plan.allowed_lateness, unit)?;
    let clock = if plan.machine.deterministic { LatenessClock::Own } else { LatenessClock::Merged };
    let spec = plan.matching.spec(unit)?.kind(plan.kind).keys(KeyKind::Bytes);
    let spec = plan.machine.layout.add_to(spec, unit.ticks_per_second() / 1_000);
    let spec = spec.lateness(Lateness { policy: plan.late, clock, allowed }).build(limits);
    spec.map_err(|error| match error {
        SpecError::ChunkBytes { bytes_max, .. } => Failure::usage(format!(
            "--chunk: every time bucket takes one, so within --max-state it can be {} at the most",
            show_size_down(bytes_max)
        )),
        error => plan.matching.explain(&error, unit),
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
fn max_drift(plan: &Plan, spec: &JoinSpec, unit: TimeUnit) -> Option<i64> {
    if spec.interval().is_unbounded() {
        return None;
    }
    let disorder =
        Side::BOTH.into_iter().filter_map(|side| plan.side(side).disorder.ticks(unit).ok()).max();
    let kept = spec.output_hold_back().saturating_add(disorder.unwrap_or(0));
    Some(kept / 8)
}

/// Waits for the end, drawing progress. Returns the signal that ended it, if one did.
///
/// # Errors
/// The fault of something beside the engine.
fn watch(
    engine: &Engine<RowSink, AnyJoin>,
    plan: &Plan,
    feeds: &Feeds,
    unit: TimeUnit,
    fault: &dyn Fn() -> Option<Failure>,
) -> Result<Option<StopSignal>, Failure> {
    let mut progress = Progress::new(plan.progress == When::Always, plan.progress == When::Never);
    let mut signal = None;
    while !engine.wait(LOOK) {
        signal = os::interrupted();
        if signal.is_some() {
            break;
        }
        if let Some(fault) = fault() {
            return Err(fault);
        }
        if let Some(progress) = progress.as_mut().filter(|progress| progress.is_due())
            && let Ok(metrics) = engine.metrics()
        {
            let counters = &metrics.counters;
            progress.draw(&Snapshot {
                rows: Side::BOTH.map(|side| counters.side(side).rows),
                pairs: counters.pairs,
                buffered: Side::BOTH.iter().map(|&side| counters.side(side).buffered()).sum(),
                watermarks: Side::BOTH.map(|side| {
                    // As the shards go by it: it never goes back, whoever is idle.
                    let applied = metrics.shards.iter().map(|shard| shard.watermarks[side.index()]);
                    applied.min().unwrap_or(i64::MIN)
                }),
                unit,
                bytes: feeds.bytes(),
            });
        }
    }
    if let Some(progress) = &mut progress {
        progress.clear();
    }
    Ok(signal)
}

/// Puts outputs in their places and reports.
fn conclude(
    plan: &Plan,
    unit: TimeUnit,
    mut finished: Finished<RowSink>,
    signal: Option<StopSignal>,
    outputs: &Outputs,
    feeds: &Feeds,
) -> Result<(), Failure> {
    let console = Console::stderr();
    let signal = match finished.report.ending {
        // Whoever read the results has seen enough.
        Ending::SinkClosed => return Err(Failure::Closed),
        Ending::Complete => None,
        Ending::Stopped => Some(signal.unwrap_or(StopSignal::Interrupt)),
    };
    let mut failure = Ok(());
    if let Some(signal) = signal {
        for sink in &mut finished.sinks {
            sink.write_late().map_err(outputs::failure)?;
        }
        let kept = outputs.keep_partial()?;
        let mut message = format!(
            "stopped by {}; the {} rows written are complete",
            signal.name(),
            outputs.rows()
        );
        let held = held(&finished, outputs);
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
    let report = report(plan, unit, &finished, outputs, feeds, signal.is_some());
    warn_of_missing_keys(plan, &report, console);
    write_report(plan, &report, outputs, console)?;
    failure
}

/// Rows that were found and not written: under --deterministic, when a run is stopped.
fn held(finished: &Finished<RowSink>, outputs: &Outputs) -> u64 {
    finished.sinks.iter().map(RowSink::held).sum::<u64>() + outputs.sinks.held()
}

/// A side none of whose rows has a key matches nothing at all: seldom what anybody wants.
fn warn_of_missing_keys(plan: &Plan, report: &Report, console: Console) {
    for side in Side::BOTH {
        let SideRows { rows, bad, null_key, .. } = report.sides[side.index()];
        if null_key > 0 && null_key == rows - bad {
            console.warning(&format!(
                "no {} row has a key, so nothing could match: {} is missing or empty in all of \
                 them; look at --on",
                side.name(),
                plan.side(side).key_columns.join(", ")
            ));
        }
    }
}

fn report(
    plan: &Plan,
    unit: TimeUnit,
    finished: &Finished<RowSink>,
    outputs: &Outputs,
    feeds: &Feeds,
    interrupted: bool,
) -> Report {
    let run = &finished.report;
    let usage = os::usage();
    let latency = (!run.latency_ns.is_empty()).then(|| Latency {
        p50: run.latency_ns.value_at_quantile(0.5),
        p90: run.latency_ns.value_at_quantile(0.9),
        p99: run.latency_ns.value_at_quantile(0.99),
        p999: run.latency_ns.value_at_quantile(0.999),
        max: run.latency_ns.max(),
    });
    Report {
        sides: Side::BOTH.map(|side| {
            let jumped = run.jumped[side.index()];
            SideRows::new(run.counters.side(side), feeds.bad_rows(side), jumped)
        }),
        pairs: run.counters.pairs,
        rows_out: outputs.rows(),
        rows_not_written: held(finished, outputs),
        state_rows_peak: run.state_rows_peak,
        state_bytes_peak: run.state_bytes_peak,
        rss_bytes_peak: usage.rss_bytes_peak,
        watermark: run.watermark,
        unit,
        elapsed_s: run.elapsed.as_secs_f64(),
        cpu_s: usage.cpu_s,
        cores: run.cores.len(),
        runtime: run.runtime.name().to_owned(),
        simd: plan.machine.simd.unwrap_or_else(Simd::detect).name().to_owned(),
        latency,
        interrupted,
    }
}

fn write_report(
    plan: &Plan,
    report: &Report,
    outputs: &Outputs,
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
    let Some(output) = &outputs.stats else { return crate::cli::out(&text) };
    output.write(text.as_bytes(), 0).and_then(|()| output.commit()).map_err(|error| {
        let result =
            if report.interrupted { "the rows that were written are" } else { "the result is" };
        Failure::failed(format!("--stats-output {error}; {result} complete"))
    })
}

/// Says what went wrong in the words of the command line.
fn explain(error: EngineError, plan: &Plan, unit: TimeUnit) -> Failure {
    match error {
        EngineError::Sink { error, .. } => outputs::failure(error),
        EngineError::Join { error: JoinError::Late { side, ts, lag }, .. } => {
            Failure::failed(format!(
                "a {} row at {} is late by {}; raise --out-of-orderness or --allowed-lateness, or \
                 choose --late drop or --late-output",
                side.name(),
                unit.format(ts),
                TimeSpan::from_ticks(lag, unit)
            ))
        }
        EngineError::Join { error: JoinError::StateFull { bytes, bytes_max }, .. } => {
            let waiting = match plan.machine.fail_when_full {
                true => "inputs that run ahead could wait with --on-full block",
                false => "the inputs that run ahead have waited, and waiting longer frees none",
            };
            Failure::failed(format!(
                "buffered rows need at least {} and --max-state allows {}; {waiting}; \
                 raise it (the need is a lower bound: try {}), narrow --between, or lower \
                 --out-of-orderness",
                show_size_up(bytes),
                show_size_down(bytes_max),
                show_size_up(bytes.saturating_mul(2))
            ))
        }
        error => Failure::failed(error.to_string()),
    }
}
