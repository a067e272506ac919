//! Runs a planned join of more than two streams.

use crate::cli::join::expressions::Expressions;
use crate::cli::join::feeds::{self, SourceTimes};
use crate::cli::join::open::open;
use crate::cli::join::outputs::Outputs;
use crate::cli::join::plan::Plan;
use crate::cli::join::rules::{self, Control};
use crate::cli::join::run::{
    Done, LOOK, builder, conclude, explain, join_spec, max_drift, snapshot, watch,
};
use crate::cli::join::streams::{Link, links};
use crate::cli::join::waiting::Waiting;
use crate::cli::{Console, Failure};
use crate::engine::{
    ChainBuilder, ChainSink, EngineBuilder, EngineError, JoinedRow, NoSinks, Part, Stream, Then,
};
use crate::event::Event;
use crate::expr::Row;
use crate::join::{JoinSpec, Sink, SinkError};
use crate::sink::RowSink;

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
    let links = links(plan, &inputs)?;
    say_anchors(plan, &links);
    let mut first = join_spec(plan, unit, &limits)?;
    // A condition on the pair of the first two, as all options without --then are.
    if let Some(condition) = expressions.condition(plan.machine.deterministic) {
        first = first.with_condition(condition);
    }
    let (control, first) = Control::start(plan, unit, &expressions, (first, rules))?;
    let lateness = first.lateness();
    let mut specs = vec![first.clone()];
    for (number, then) in plan.then.iter().enumerate() {
        let spec = then.spec_within(unit, lateness, &plan.machine, plan.reserve_share())?;
        let condition = expressions.then_condition(number, plan.machine.deterministic);
        specs.push(match condition {
            Some(condition) => spec.with_condition(condition),
            None => spec,
        });
    }
    let times = SourceTimes::new(plan, unit)?;
    let builder = builder(plan, first, limits, max_drift(plan, &specs, unit));
    let cores =
        builder.shard_count().map_err(|error| Failure::usage(format!("--cores: {error}")))?;
    plan.machine.bounds.check_reserve(&specs, cores)?;
    let builder = chain(builder, plan, links, &specs[1..])?;
    let hold_back = specs.iter().map(JoinSpec::output_hold_back).max().unwrap_or(0);
    let outputs = Outputs::open(plan, &inputs, &expressions, cores, hold_back)?;
    // From here on there is something to put in order.
    drop(waiting);
    let (builder, feeds) =
        feeds::add(builder, plan, &times, inputs, lateness, cores, outputs.bad_rows.clone())?;
    let sinks = outputs.sinks.clone();
    let chain = builder
        .sinks(move |core| Rows(sinks.sink(core)))
        .start()
        .map_err(|error| Failure::failed(error.to_string()))?;
    for note in chain.notes() {
        Console::stderr().note(note);
    }
    chain.seal();
    let look = || Some(snapshot(&chain.metrics(), &feeds, unit));
    let signal = watch(plan, || control.is_faulty() || chain.wait(LOOK), look);
    let stops = signal.is_some() || control.is_faulty();
    let finished = if stops { chain.shutdown() } else { chain.finish() };
    if let Some(fault) = control.fault() {
        // Nothing that was found counts.
        return Err(fault);
    }
    let finished = finished.map_err(|error| explain(error, plan, unit))?;
    expressions.warn(Console::stderr());
    let state_peaks = (finished.state_rows_peak, finished.state_bytes_peak);
    let sinks = finished.sinks.into_iter().map(|Rows(sink)| sink).collect();
    let done = Done { reports: finished.reports, sinks, state_peaks };
    conclude(plan, unit, done, signal, &outputs, &feeds)
}

/// An interval is never relative to a stream that nobody hears of.
fn say_anchors(plan: &Plan, links: &[Link]) {
    for (then, link) in plan.then.iter().zip(links).filter(|(_, link)| !link.is_named) {
        let anchor = plan.streams().nth(link.anchor).map_or("", |stream| &stream.name);
        Console::stderr().note(&format!(
            "{}: its time is compared with that of {anchor}, whose column --then-on names; \
             --then-anchor would name another",
            then.side.name
        ));
    }
}

/// The further stages.
fn chain(
    builder: EngineBuilder<NoSinks>,
    plan: &Plan,
    links: Vec<Link>,
    specs: &[JoinSpec],
) -> Result<ChainBuilder<NoSinks>, Failure> {
    let with_position = plan.machine.deterministic;
    let mut then = links.into_iter().zip(specs).map(|(link, spec)| {
        let anchor = Stream::of_index(link.anchor);
        Then::new(spec.clone(), anchor, move |row, bytes| link.key(row, with_position, bytes))
    });
    // A plan without further streams is run elsewhere.
    let first = then.next().ok_or_else(|| Failure::failed("there is no further stream"))?;
    let chain = then.fold(builder.then(first), ChainBuilder::then);
    chain.check().map_err(|error| match error {
        EngineError::Chain(why) => Failure::usage(format!("--then-anchor: {why}")),
        error => Failure::failed(error.to_string()),
    })?;
    Ok(chain)
}

/// The sink of one core.
struct Rows(RowSink);

impl ChainSink for Rows {
    fn row(&mut self, row: JoinedRow<'_>) {
        let rows = row.parts().map(|part| part.map(|Part { ts, row }| Row { bytes: row, ts }));
        self.0.joined(row.ts(), rows);
    }

    fn late(&mut self, stream: Stream, event: Event<'_>, lag: i64) {
        self.0.late_of(stream.index(), event, lag);
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Sink::flush(&mut self.0)
    }

    fn output_watermark(&mut self, watermark: i64) -> Result<(), SinkError> {
        Sink::output_watermark(&mut self.0, watermark)
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        Sink::finish(&mut self.0)
    }
}
