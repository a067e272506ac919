//! What makes the figures of a load mean something else than they seem to.

use crate::cli::text::{show_ns, show_rate, show_span};
use crate::workload::load::{LoadPlan, LoadRun, Pace, Scenario};

/// Of the latencies' p99: what producers may add to it by themselves before it is said.
const PRODUCER_LATE_SHARE: f64 = 0.2;
/// Pairs that the 99th percentile needs at least to mean anything.
const PAIRS_MIN: u64 = 1_000;
/// Pauses of a slow sink, and times between them, that are worth a look.
const PAUSES_MIN: u32 = 3;

/// What makes the figures mean something else than they seem to.
pub(super) fn warnings(plan: &LoadPlan, run: &LoadRun) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut at = format!("at {} events/s", show_rate(plan.rate).trim());
    if plan.scenario != Scenario::None {
        at.push_str(&format!(", scenario {}", plan.scenario.name()));
    }
    // What one core can still do is not to take fewer.
    let fewer_cores = match run.core_count {
        1 => "a lower rate, or a machine with more CPUs",
        _ => "fewer --cores",
    };
    let late_ns = run.producer_late_ns.value_at_quantile(0.99);
    let p99_ns = run.latency_ns.value_at_quantile(0.99);
    if run.producers_were_the_limit() {
        warnings.push(format!(
            "{at}: a producer used {:.0} % of a core, so the producers may be what fell behind, \
             not the engine; give more --producers, or {fewer_cores}",
            run.producer_cpu * 100.0
        ));
    } else if late_ns as f64 > PRODUCER_LATE_SHARE * p99_ns as f64 && !run.latency_ns.is_empty() {
        let advice = match (plan.pace, run.core_count) {
            (_, 1) => "leave them a CPU of their own: a quieter machine, or one with more CPUs",
            (Pace::Spin, _) => "leave them a core of their own: fewer --cores, a quieter machine",
            (Pace::Sleep, _) => "give them a core of their own (fewer --cores) and --pace spin",
        };
        warnings.push(format!(
            "{at}: by the producers' own doing events were pushed {} late at p99, which is part of \
             the latency; {advice}",
            show_ns(late_ns)
        ));
    }
    if run.pushed < run.events && !run.stopped {
        warnings.push(format!(
            "{at}: {:.1} % of the events were given up, as the engine was behind by the whole \
             duration; percentiles are of the others, and would be higher in a longer run",
            (run.events - run.pushed) as f64 * 100.0 / run.events as f64
        ));
    }
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
        warnings.push(format!(
            "{at}: {} pairs were measured, too few for percentiles; {advice}",
            run.latency_ns.len()
        ));
    }
    if let Scenario::SlowSink { pause, every } = plan.scenario
        && run.due.saturating_sub(plan.warm_up) < PAUSES_MIN * (pause + every)
        && !run.stopped
    {
        warnings.push(format!(
            "{at}: sinks stand still for {} each {}, which this load is too short to show more \
             than once or twice; give --duration {} or more, or a shorter --sink-pause-every",
            show_span(pause),
            show_span(every),
            show_span(plan.warm_up + PAUSES_MIN * (pause + every))
        ));
    }
    warnings
}
