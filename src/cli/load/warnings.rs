//! What makes the figures of a load mean something else than they seem to.

use crate::cli::load::host;
use crate::cli::load::report::Row;
use crate::cli::text::{show_ns, show_rate, show_span};
use crate::runtime::Topology;
use crate::workload::load::{HostEffect, LoadPlan, LoadRun, Pace, Scenario};

/// Of the latencies' p99: what producers may add to it by themselves before it is said.
const PRODUCER_LATE_SHARE: f64 = 0.2;
/// Pairs that the 99th percentile needs at least to mean anything.
const PAIRS_MIN: u64 = 1_000;
/// Pauses of a slow sink, and times between them, that are worth a look.
const PAUSES_MIN: u32 = 3;

/// What a warning is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    ProducersFellBehind,
    ProducersLate,
    GivenUp,
    FewPairs,
    FewPauses,
    Waiting,
    WaitingBehind,
    Stolen,
}

impl About {
    const fn name(self) -> &'static str {
        match self {
            About::ProducersFellBehind => "producers that used up a core",
            About::ProducersLate => "events that were late by the producers' own doing",
            About::GivenUp => "events that were given up",
            About::FewPairs => "too few pairs for percentiles",
            About::FewPauses => "too few pauses of the sink",
            About::Waiting => "waiting for CPUs that explains the figures",
            About::WaitingBehind => "waiting for CPUs that explains falling behind",
            About::Stolen => "CPU time that the machine's own host took",
        }
    }
}

/// What makes the figures of one load mean something else than they seem to.
#[derive(Clone, Debug)]
pub(super) struct Warning {
    pub(super) about: About,
    at: String,
    told: String,
}

impl Warning {
    pub(super) fn text(&self) -> String {
        format!("at {}: {}", self.at, self.told)
    }
}

/// Loads that are named where more have the same warning.
const NAMED_MAX: usize = 5;

/// Those of all loads: of each sort the first one, and at which other loads it is so, too.
pub(super) fn of_all(rows: &[Row]) -> Vec<String> {
    let all = || rows.iter().flat_map(|row| &row.warnings);
    let mut firsts: Vec<&Warning> = Vec::new();
    for warning in all() {
        if !firsts.iter().any(|first| first.about == warning.about) {
            firsts.push(warning);
        }
    }
    let text = |first: &&Warning| match others(rows, first.about) {
        Some(others) => format!("{}; and so it is at {others}", first.text()),
        None => first.text(),
    };
    firsts.iter().map(text).collect()
}

/// Of the sorts that more than one load has, at which others it is so. The first was said.
pub(super) fn of_others(rows: &[Row]) -> Vec<String> {
    let mut sorts: Vec<About> = Vec::new();
    for warning in rows.iter().flat_map(|row| &row.warnings) {
        if !sorts.contains(&warning.about) {
            sorts.push(warning.about);
        }
    }
    let text = |about: About| Some(format!("{} at {}, too", about.name(), others(rows, about)?));
    sorts.into_iter().filter_map(text).collect()
}

/// Where else there is a warning of a sort than at the first load that has it.
fn others(rows: &[Row], about: About) -> Option<String> {
    let warnings = rows.iter().flat_map(|row| &row.warnings);
    let mut places: Vec<&str> = Vec::new();
    for warning in warnings.filter(|warning| warning.about == about) {
        if !places.contains(&warning.at.as_str()) {
            places.push(&warning.at);
        }
    }
    let others = places.get(1..).filter(|others| !others.is_empty())?;
    let named = if others.len() > NAMED_MAX { NAMED_MAX - 1 } else { others.len() };
    let text = others[..named].join("; ");
    let more = others.len() - named;
    Some(if more > 0 { format!("{text}; and {more} more loads") } else { text })
}

/// What makes the figures mean something else than they seem to.
pub(super) fn warnings(plan: &LoadPlan, run: &LoadRun) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut at = format!("{} events/s", show_rate(plan.rate).trim());
    if plan.scenario != Scenario::None {
        at.push_str(&format!(", scenario {}", plan.scenario.name()));
    }
    let mut warn = |about: About, told: String| {
        warnings.push(Warning { about, at: at.clone(), told });
    };
    // What one core can still do is not to take fewer.
    let fewer_cores = match run.core_count {
        1 => "a lower rate, or a machine with more CPUs",
        _ => "fewer --cores",
    };
    let late_ns = run.producer_late_ns.value_at_quantile(0.99);
    let p99_ns = run.latency_ns.value_at_quantile(0.99);
    if run.producers_were_the_limit() {
        warn(
            About::ProducersFellBehind,
            format!(
                "a producer used {:.0} % of a core, so the producers may be what fell behind, \
             not the engine; give more --producers, or {fewer_cores}",
                run.producer_cpu * 100.0
            ),
        );
    } else if late_ns as f64 > PRODUCER_LATE_SHARE * p99_ns as f64 && !run.latency_ns.is_empty() {
        let advice = match (plan.pace, run.core_count) {
            (_, 1) => "leave them a CPU of their own: a quieter machine, or one with more CPUs",
            (Pace::Spin, _) => "leave them a core of their own: fewer --cores, a quieter machine",
            (Pace::Sleep, _) => "give them a core of their own (fewer --cores) and --pace spin",
        };
        warn(
            About::ProducersLate,
            format!(
                "by the producers' own doing events were pushed {} late at p99, which is part of \
             the latency; {advice}",
                show_ns(late_ns)
            ),
        );
    }
    if run.pushed < run.events && !run.stopped {
        warn(
            About::GivenUp,
            format!(
                "{:.1} % of the events were given up, as the engine was behind by the whole \
                 duration; percentiles are of the others, and would be higher in a longer run",
                (run.events - run.pushed) as f64 * 100.0 / run.events as f64
            ),
        );
    }
    if let Some((effect, told)) = host::warning(run, shares_cpus(plan, run), plan.producers) {
        let about = match effect {
            HostEffect::Tail(_) => About::Waiting,
            HostEffect::Capacity(_) => About::WaitingBehind,
            HostEffect::Stolen(_) => About::Stolen,
        };
        warn(about, told);
    }
    too_short(plan, run, &mut warn);
    warnings
}

/// Whether there are fewer CPUs than threads of the load itself.
fn shares_cpus(plan: &LoadPlan, run: &LoadRun) -> bool {
    Topology::read().cpus_usable() < run.core_count + plan.producers
}

/// What a load is too short for.
fn too_short(plan: &LoadPlan, run: &LoadRun, warn: &mut impl FnMut(About, String)) {
    if run.latency_ns.len() < PAIRS_MIN && !run.stopped {
        let advice = match plan.scenario {
            Scenario::Burst { every, .. } if every > plan.duration / 2 => {
                "give a shorter period of bursts: all events of one come at its beginning"
            }
            _ => {
                "give a longer --duration, or a workload whose partners come sooner (w2, or free \
                 with fewer --keys)"
            }
        };
        warn(
            About::FewPairs,
            format!(
                "{} pairs were measured, too few for percentiles; {advice}",
                run.latency_ns.len()
            ),
        );
    }
    if let Scenario::SlowSink { pause, every } = plan.scenario
        && run.due.saturating_sub(plan.warm_up) < PAUSES_MIN * (pause + every)
        && !run.stopped
    {
        warn(
            About::FewPauses,
            format!(
                "sinks stand still for {} each {}, which this load is too short to show more \
                 than once or twice; give --duration {} or more, or a shorter --sink-pause-every",
                show_span(pause),
                show_span(every),
                show_span(plan.warm_up + PAUSES_MIN * (pause + every))
            ),
        );
    }
}
