//! `intervale load`: latency at a given load, without coordinated omission.

mod args;
mod page;
mod report;
mod scenario;
mod soak;

pub use args::Args;

use std::io::IsTerminal;
use std::time::Duration;

use crate::cli::join::{memory_bytes, show_size};
use crate::cli::text::{show_ns, show_rate};
use crate::cli::{Console, Failure, os, out, out_line};
use crate::workload::Events;
use crate::workload::load::{
    self, LoadError, LoadPlan, LoadRun, Pace, Scenario, Supply, scenario_events,
};
use args::Rates;
use report::Row;

/// A load that takes so long is announced on a terminal.
const LONG: Duration = Duration::from_secs(5);
/// Bytes that an event takes before it is pushed.
const EVENT_BYTES: u64 = 20;

/// Loads an engine and reports.
///
/// # Errors
/// [`Failure`] for wrong use, an engine that cannot run, Ctrl-C, a closed pipe.
pub fn run(args: &Args) -> Result<(), Failure> {
    let plan = args.plan()?;
    let scenarios = args.scenarios(&plan)?;
    let plot = args.plot.as_ref().map(|file| file.open()).transpose()?;
    os::catch_interrupts();
    let mut runner = Runner { args, events: None, rows: Vec::new() };
    let mut max = None;
    for scenario in scenarios {
        let plan = LoadPlan { scenario, ..plan.clone() };
        match &args.rates()? {
            Rates::Given(rates) => runner.load_all(&plan, rates)?,
            Rates::FindMax { first, slo_ns } => {
                let found = load::find_max(*first, |rate| {
                    let plan = LoadPlan { rate: rate.round(), ..plan.clone() };
                    runner.prepare(&plan)?;
                    runner.load(plan)?;
                    Ok::<bool, Failure>(runner.rows.last().is_some_and(|row| row.holds(*slo_ns)))
                })?;
                max = Some((found.map(f64::round), *slo_ns));
            }
        }
    }
    // Scenarios stay in their order.
    let rows = &mut runner.rows;
    let order: Vec<Scenario> = rows.iter().map(|row| row.plan.scenario).collect();
    let place = |row: &Row| order.iter().position(|scenario| *scenario == row.plan.scenario);
    rows.sort_by(|a, b| place(a).cmp(&place(b)).then(a.plan.rate.total_cmp(&b.plan.rate)));
    if args.is_json() {
        if let Some((rate, slo_ns)) = max {
            out_line(&report::max_json(rate, slo_ns).to_string())?;
        }
    } else {
        out(&report::table(rows))?;
        if let Some((rate, slo_ns)) = max {
            out_line(&format!("\n{}", max_text(rate, slo_ns)))?;
        }
    }
    if let Some(plot) = plot {
        plot.write_page(&report::chart(rows, max), &page::page(rows, max))?;
    }
    grown(rows)
}

/// Fails if a soak found that something grows.
fn grown(rows: &[Row]) -> Result<(), Failure> {
    for row in rows {
        let growing = row.soak.as_ref().map(|soak| soak.failures()).unwrap_or_default();
        if !growing.is_empty() {
            return Err(Failure::failed(format!(
                "{} grew over the second half of the soak (scenario {}); the figures are above",
                growing.join(", "),
                row.plan.scenario.name()
            )));
        }
    }
    Ok(())
}

fn max_text(rate: Option<f64>, slo_ns: u64) -> String {
    let slo = show_ns(slo_ns);
    match rate {
        Some(rate) => {
            format!("highest rate with p99 within {slo}: {} events/s", show_rate(rate).trim())
        }
        None => format!("p99 is over {slo} at every rate; a shorter --linger may help"),
    }
}

/// Runs one load after the other, on the same events.
struct Runner<'a> {
    args: &'a Args,
    events: Option<(Scenario, Events)>,
    rows: Vec<Row>,
}

impl Runner<'_> {
    /// Runs one rate after the other, on events made once, for the highest of them.
    fn load_all(&mut self, plan: &LoadPlan, rates: &[f64]) -> Result<(), Failure> {
        let most = rates.iter().copied().fold(0.0, f64::max);
        self.prepare(&LoadPlan { rate: most, ..plan.clone() })?;
        for &rate in rates {
            self.load(LoadPlan { rate, ..plan.clone() })?;
        }
        Ok(())
    }

    /// Makes the events that a plan needs, unless there are as many, or a soak makes them as it
    /// goes.
    fn prepare(&mut self, plan: &LoadPlan) -> Result<(), Failure> {
        if self.args.soak.is_on() {
            return Ok(());
        }
        let shape = shape(plan.scenario);
        let needed = plan.events_per_side();
        let enough =
            |(of, events): &(Scenario, Events)| *of == shape && events.len() as u64 >= 2 * needed;
        if self.events.as_ref().is_some_and(enough) {
            return Ok(());
        }
        let bytes = needed.saturating_mul(2 * EVENT_BYTES);
        let allowed = memory_bytes() / 4;
        let count = u32::try_from(needed).ok().filter(|_| bytes <= allowed).ok_or_else(|| {
            Failure::usage(format!(
                "{} events/s for {:.0} s are {} in memory before the engine gets any, and {} (a \
                 quarter of what there is) are allowed; give a lower rate, a shorter --duration, \
                 or --soak, which makes events as it goes",
                show_rate(plan.rate).trim(),
                plan.duration.as_secs_f64(),
                show_size(bytes),
                show_size(allowed)
            ))
        })?;
        // The old ones go first: there may not be room for both.
        self.events = None;
        let events = scenario_events(plan.workload, shape, self.args.seed(), count.max(1));
        self.events = Some((shape, events));
        Ok(())
    }

    fn load(&mut self, plan: LoadPlan) -> Result<(), Failure> {
        let supply = match &self.events {
            Some((_, events)) => Supply::Memory(events),
            None => Supply::Made { seed: self.args.seed() },
        };
        if plan.duration >= LONG && std::io::stderr().is_terminal() {
            Console::stderr().note(&format!(
                "{} events/s, scenario {}: takes {:?}",
                show_rate(plan.rate),
                plan.scenario.name(),
                plan.duration
            ));
        }
        let stop = || os::interrupted().is_some();
        let run = load::run(&plan, supply, &stop).map_err(|error| failure(&error))?;
        if self.rows.is_empty() {
            run.notes.iter().for_each(|note| Console::stderr().note(note));
        }
        let soak = &self.args.soak;
        let soak = soak.is_on().then(|| soak.judge(&plan, &run.samples));
        let row = Row { plan, run, seed: self.args.seed(), soak };
        if self.args.is_json() {
            out_line(&row.json(self.args).to_string())?;
        }
        warn(&row.plan, &row.run);
        self.rows.push(row);
        Ok(())
    }
}

/// The scenario that events are made for: most change only when they are due.
fn shape(scenario: Scenario) -> Scenario {
    if scenario.shapes_events() { scenario } else { Scenario::None }
}

fn failure(error: &LoadError) -> Failure {
    match error {
        LoadError::Interrupted => {
            let signal = os::interrupted().unwrap_or(crate::cli::StopSignal::Interrupt);
            let by = signal.name();
            Failure::Interrupted(signal, format!("stopped by {by}; that rate was not measured"))
        }
        error => Failure::failed(error.to_string()),
    }
}

/// Of the latencies' p99: what producers may add to it by themselves before it is said.
const PRODUCER_LATE_SHARE: f64 = 0.2;
/// Pairs that the 99th percentile needs at least to mean anything.
const PAIRS_MIN: u64 = 1_000;

/// Says what would make the figures mean something else than they seem to.
fn warn(plan: &LoadPlan, run: &LoadRun) {
    let console = Console::stderr();
    let at = format!("at {} events/s", show_rate(plan.rate).trim());
    let late_ns = run.producer_late_ns.value_at_quantile(0.99);
    let p99_ns = run.latency_ns.value_at_quantile(0.99);
    if run.producers_were_the_limit() {
        console.warning(&format!(
            "{at}: a producer used {:.0} % of a core, so the producers may be what fell behind, \
             not the engine; give more --producers, or fewer --cores",
            run.producer_cpu * 100.0
        ));
    } else if late_ns as f64 > PRODUCER_LATE_SHARE * p99_ns as f64 && !run.latency_ns.is_empty() {
        let advice = match plan.pace {
            Pace::Spin => "leave them a core of their own: fewer --cores, a quieter machine",
            Pace::Sleep => "give them a core of their own (fewer --cores) and --pace spin",
        };
        console.warning(&format!(
            "{at}: the producers themselves began pushes {} late at p99, which is part of the \
             latency; {advice}",
            show_ns(late_ns)
        ));
    }
    if run.pushed < run.events {
        console.warning(&format!(
            "{at}: {:.1} % of the events were given up, as the engine was behind by the whole \
             duration; percentiles are of the others, and would be higher in a longer run",
            (run.events - run.pushed) as f64 * 100.0 / run.events as f64
        ));
    }
    if run.latency_ns.len() < PAIRS_MIN {
        console.warning(&format!(
            "{at}: {} pairs were measured, too few for percentiles; give a longer --duration, or a \
             workload whose partners come sooner (w2)",
            run.latency_ns.len()
        ));
    }
}
