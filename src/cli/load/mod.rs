//! `intervale load`: latency at a given load, without coordinated omission.

mod args;
mod host;
mod page;
mod report;
mod scenario;
mod soak;
mod warnings;

pub use args::Args;

use std::io::IsTerminal;
use std::time::Duration;

use crate::cli::console::check_stdout;
use crate::cli::join::{memory_bytes, show_size};
use crate::cli::shape::check_late;
use crate::cli::text::{show_ns, show_rate, show_span};
use crate::cli::{Console, Failure, StopSignal, os, out, out_line};
use crate::workload::Events;
use crate::workload::bench::OFFLINE_JOIN;
use crate::workload::load::{
    self, LoadPlan, LoadRun, Scenario, Supply, Tried, joined_offline, scenario_events,
};
use args::Rates;
use host::Spoiled;
use report::Row;

/// A load that takes so long is announced on a terminal.
const LONG: Duration = Duration::from_secs(5);
/// A search tries no rate at which fewer events are due after the warm-up: there are too few pairs
/// for a percentile.
const EVENTS_MIN: f64 = 100.0;
/// A p99 of fewer pairs is none.
const PAIRS_MIN: u64 = 100;
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
    check_stdout()?;
    os::catch_interrupts();
    let mut runner = Runner { args, events: None, rows: Vec::new(), max: None };
    // What was measured until Ctrl-C is shown all the same.
    let stopped = match runner.run(&plan, scenarios) {
        Ok(()) => None,
        Err(failure @ Failure::Interrupted(..)) if !runner.rows.is_empty() => Some(failure),
        Err(failure) => return Err(failure),
    };
    let Runner { mut rows, max, .. } = runner;
    show(args, &mut rows, max)?;
    if let Some(plot) = plot {
        plot.write_page(&report::chart(&rows, max), &page::page(&rows, max))?;
    }
    if let Some(stopped) = stopped {
        return Err(stopped);
    }
    grown(&rows)?;
    none_found(&rows, max)
}

/// Prints the figures, but for those that were printed as they came.
fn show(args: &Args, rows: &mut [Row], max: Option<Max>) -> Result<(), Failure> {
    // Of each sort the first one was said as it came.
    warnings::of_others(rows).iter().for_each(|warning| Console::stderr().warning(warning));
    // Scenarios stay in their order.
    let order: Vec<Scenario> = rows.iter().map(|row| row.plan.scenario).collect();
    let place = |row: &Row| order.iter().position(|scenario| *scenario == row.plan.scenario);
    rows.sort_by(|a, b| place(a).cmp(&place(b)).then(a.plan.rate.total_cmp(&b.plan.rate)));
    if args.is_json() {
        return max.map_or(Ok(()), |max| out_line(&report::max_json(max).to_string()));
    }
    out(&report::table(rows))?;
    max.map_or(Ok(()), |max| out_line(&format!("\n{}", max_text(max))))
}

/// What a search came to.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Max {
    rate: Option<f64>,
    slo_ns: u64,
    /// The lowest rate that was tried and had pairs enough, and its p99, if it had pairs at all.
    lowest: Option<(f64, Option<u64>)>,
    /// And of how many pairs that is.
    lowest_pairs: u64,
    /// It was stopped: this is the highest good rate so far.
    stopped: bool,
    /// The next rate above, if the host and not the engine was what missed the bound there.
    spoiled: Option<Spoiled>,
    /// Whether threads can tell what they waited for CPUs.
    host_known: bool,
}

/// Fails if a soak found that something grows.
fn grown(rows: &[Row]) -> Result<(), Failure> {
    for row in rows {
        if let Some(failure) = row.soak.as_ref().and_then(|soak| soak.failure()) {
            return Err(Failure::failed(format!(
                "{failure} (scenario {}); the figures are above",
                row.plan.scenario.name()
            )));
        }
    }
    Ok(())
}

/// Fails if a search has found no rate.
fn none_found(rows: &[Row], max: Option<Max>) -> Result<(), Failure> {
    match max {
        Some(max @ Max { rate: None, .. }) if !rows.is_empty() => {
            Err(Failure::failed(format!("--find-max: {}", max_text(max))))
        }
        _ => Ok(()),
    }
}

fn max_text(max: Max) -> String {
    let slo = show_ns(max.slo_ns);
    if let Some(spoiled) = max.spoiled.filter(|_| !max.stopped) {
        let at_least = max.rate.map_or_else(
            || format!("no rate was seen with p99 within {slo}"),
            |rate| format!("p99 is within {slo} at {} events/s at least", show_rate(rate).trim()),
        );
        return format!(
            "{at_least}; the engine's own limit is not known: at {} events/s the host took the CPU \
             away ({}), which explains that it was missed. Measure on a quieter machine",
            show_rate(spoiled.rate).trim(),
            spoiled.text()
        );
    }
    match (max.rate, max.stopped) {
        (Some(rate), stopped) => format!(
            "highest rate with p99 within {slo}{}: {} events/s",
            if stopped { ", of those tried before the search was stopped" } else { "" },
            show_rate(rate).trim()
        ),
        (None, false) => {
            let lowest = max.lowest.map(|(rate, p99_ns)| {
                let p99 = p99_ns.map_or("no pair was measured".to_owned(), |ns| {
                    format!("p99 was {}", show_ns(ns))
                });
                let few = format!(" (of {} pairs, too few)", max.lowest_pairs);
                let is_few = (1..PAIRS_MIN).contains(&max.lowest_pairs);
                let p99 = p99 + if is_few { &few } else { "" };
                let rate = show_rate(rate);
                format!("the lowest with pairs enough was {} events/s, where {p99}", rate.trim())
            });
            format!(
                "no rate meets the bound of {slo} on p99: {}; a shorter --linger may help, a \
                 quieter machine, or a longer --duration, in which lower rates have {} pairs",
                lowest.unwrap_or_else(|| "none was tried".to_owned()),
                PAIRS_MIN
            )
        }
        (None, true) => {
            format!("the search was stopped before it had a rate with p99 within {slo}")
        }
    }
}

/// Runs one load after the other, on the same events.
struct Runner<'a> {
    args: &'a Args,
    events: Option<(Scenario, Events)>,
    rows: Vec<Row>,
    /// What a search came to.
    max: Option<Max>,
}

impl Runner<'_> {
    /// Runs everything. What it came to is in the runner, also when it ends early.
    fn run(&mut self, plan: &LoadPlan, scenarios: Vec<Scenario>) -> Result<(), Failure> {
        for scenario in scenarios {
            let plan = LoadPlan { scenario, ..plan.clone() };
            match &self.args.rates()? {
                Rates::Given(rates) => self.load_all(&plan, rates)?,
                Rates::FindMax { first, slo_ns } => self.find_max(&plan, *first, *slo_ns)?,
            }
        }
        Ok(())
    }

    fn find_max(&mut self, plan: &LoadPlan, first: f64, slo_ns: u64) -> Result<(), Failure> {
        let measured_s = (plan.duration - plan.warm_up).as_secs_f64();
        let found = load::find_max(first, EVENTS_MIN / measured_s, |rate| {
            let plan = LoadPlan { rate: rate.round(), ..plan.clone() };
            self.prepare(&plan)?;
            self.load(plan, Some(slo_ns))?;
            Ok::<Tried, Failure>(self.rows.last().map_or(Tried::Bad, Row::tried))
        });
        let good = self.rows.iter().filter(|row| !row.run.stopped && row.holds(slo_ns));
        let best = good.map(|row| row.plan.rate).max_by(f64::total_cmp);
        let (rate, stopped) = match &found {
            Ok(rate) => (rate.map(f64::round), false),
            Err(_) => (best, true),
        };
        // Of those with pairs enough, if there is one.
        let few = |row: &Row| row.run.latency_ns.len() < PAIRS_MIN;
        let order =
            |a: &&Row, b: &&Row| few(a).cmp(&few(b)).then(a.plan.rate.total_cmp(&b.plan.rate));
        let lowest = self.rows.iter().min_by(order);
        // Of several tries the best one.
        let p99 = |of: f64| {
            let rows = self.rows.iter().filter(move |row| row.plan.rate == of);
            rows.filter_map(|row| row.latency(0.99)).min()
        };
        let lowest_pairs = lowest.map_or(0, |row| row.run.latency_ns.len());
        let lowest = lowest.map(|row| (row.plan.rate, p99(row.plan.rate)));
        let spoiled = Spoiled::of(&self.rows, rate);
        let host_known = self.rows.iter().any(|row| row.run.host.worst_worker().is_some());
        self.max = Some(Max { rate, slo_ns, lowest, lowest_pairs, stopped, spoiled, host_known });
        found.map(drop)
    }

    /// Runs one rate after the other, on events made once, for the highest of them.
    fn load_all(&mut self, plan: &LoadPlan, rates: &[f64]) -> Result<(), Failure> {
        let most = rates.iter().copied().fold(0.0, f64::max);
        self.prepare(&LoadPlan { rate: most, ..plan.clone() })?;
        for &rate in rates {
            self.load(LoadPlan { rate, ..plan.clone() }, None)?;
        }
        Ok(())
    }

    /// Makes the events that a plan needs, unless there are as many, or a soak makes them as it
    /// goes.
    fn prepare(&mut self, plan: &LoadPlan) -> Result<(), Failure> {
        check_late(&plan.workload, self.args.seed(), plan.events_per_side())?;
        // What is to be joined offline in the end has to fit memory, too.
        if self.args.soak.is_on() && !self.args.check() {
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
                 or --soak without --check, which makes events as it goes",
                show_rate(plan.rate).trim(),
                plan.duration.as_secs_f64(),
                show_size(bytes),
                show_size(allowed)
            ))
        })?;
        if self.args.soak.is_on() {
            return Ok(());
        }
        // The old ones go first: there may not be room for both.
        self.events = None;
        let events = scenario_events(plan.workload, shape, self.args.seed(), count.max(1));
        self.events = Some((shape, events));
        Ok(())
    }

    /// Runs one load, within a bound on p99 if it is one of a search.
    ///
    /// # Errors
    /// [`Failure::Interrupted`] after Ctrl-C; if it had begun, its row is there.
    fn load(&mut self, plan: LoadPlan, slo_ns: Option<u64>) -> Result<(), Failure> {
        if let Some(signal) = os::interrupted() {
            return Err(self.stopped_between(signal));
        }
        let supply = match &self.events {
            Some((_, events)) => Supply::Memory(events),
            None => Supply::Made { seed: self.args.seed() },
        };
        if plan.duration >= LONG && std::io::stderr().is_terminal() {
            Console::stderr().note(&format!(
                "{} events/s, scenario {}: takes {}",
                show_rate(plan.rate),
                plan.scenario.name(),
                show_span(plan.duration)
            ));
        }
        let stop = || os::interrupted().is_some();
        let run = load::run(&plan, supply, &stop);
        let run = run.map_err(|error| Failure::failed(error.to_string()))?;
        if let Some(signal) = os::interrupted().filter(|_| run.stopped && run.pushed == 0) {
            return Err(self.stopped_between(signal));
        }
        if self.rows.is_empty() {
            run.notes.iter().for_each(|note| Console::stderr().note(note));
        }
        let checked_against = self.check(&plan, supply, &run)?;
        let soak = &self.args.soak;
        let soak = soak.is_on().then(|| soak.judge(&plan, &run));
        let warnings = warnings::warnings(&plan, &run);
        let is_new = |about| {
            let said = self.rows.iter().flat_map(|row| &row.warnings);
            said.into_iter().all(|warning| warning.about != about)
        };
        let new = warnings.iter().filter(|warning| is_new(warning.about));
        new.for_each(|warning| Console::stderr().warning(&warning.text()));
        let tries = self
            .rows
            .iter()
            .filter(|row| (row.plan.rate, row.plan.scenario) == (plan.rate, plan.scenario));
        let number = tries.count() as u32 + 1;
        let seed = self.args.seed();
        let mut row = Row {
            plan,
            run,
            seed,
            number,
            meets_bound: None,
            is_disturbed: false,
            checked_against,
            soak,
            warnings,
        };
        slo_ns.iter().for_each(|&slo_ns| row.judge(slo_ns));
        if self.args.is_json() {
            out_line(&row.json(self.args).to_string())?;
        }
        let stopped = row.run.stopped.then_some(row.run.due);
        self.rows.push(row);
        match (stopped, os::interrupted()) {
            (Some(due), Some(signal)) => Err(Failure::Interrupted(
                signal,
                format!(
                    "stopped by {} after {due:.1?}; the figures are of what ran until then",
                    signal.name()
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Joins the events of a load offline, if they are few or that was asked for, and compares.
    ///
    /// # Errors
    /// [`Failure::Failed`] when the load has found other pairs.
    fn check(
        &self,
        plan: &LoadPlan,
        supply: Supply<'_>,
        run: &LoadRun,
    ) -> Result<Option<&'static str>, Failure> {
        if !self.args.checks(plan) || !run.has_all_pairs() {
            return Ok(None);
        }
        let expected = joined_offline(plan, supply);
        if run.outcome == expected {
            return Ok(Some(OFFLINE_JOIN));
        }
        Err(Failure::failed(format!(
            "{} events/s, scenario {}: found {}, but {OFFLINE_JOIN} of the same events has \
             {expected}; the join is wrong, so there are no figures",
            show_rate(plan.rate).trim(),
            plan.scenario.name(),
            run.outcome
        )))
    }

    /// Stopped before a load had begun.
    fn stopped_between(&self, signal: StopSignal) -> Failure {
        let what = match self.rows.is_empty() {
            true => "nothing was measured",
            false => "the figures are of what ran before",
        };
        Failure::Interrupted(signal, format!("stopped by {}; {what}", signal.name()))
    }
}

/// The scenario that events are made for: most change only when they are due.
fn shape(scenario: Scenario) -> Scenario {
    if scenario.shapes_events() { scenario } else { Scenario::None }
}
