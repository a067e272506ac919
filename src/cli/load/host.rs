//! What the threads of a load waited for CPUs, and what that says about its figures.

use serde_json::{Value, json};

use crate::cli::load::PAIRS_MIN;
use crate::cli::load::report::Row;
use crate::cli::text::{show_count, show_ns};
use crate::workload::load::{HostEffect, LoadRun, Waiting};

/// What a try of a search that the host spoiled says of itself, and what the longest waiting was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spoiled {
    /// The lowest rate that was missed with the host in the way.
    pub(super) rate: f64,
    /// Of the try with the least waiting: what its worst worker waited, over how long.
    waited: Option<(u64, u64)>,
}

impl Spoiled {
    /// The lowest missed rate above `good`, if its misses are the host's doing: a rate is missed by
    /// the engine when two tries without such waiting are bad.
    pub(super) fn of(rows: &[Row], good: Option<f64>) -> Option<Spoiled> {
        // Of too few pairs nothing is known.
        let enough = |row: &Row| row.run.latency_ns.len() >= PAIRS_MIN;
        let missed = |row: &&Row| row.meets_bound == Some(false) && enough(row);
        let above = |row: &&Row| good.is_none_or(|good| row.plan.rate > good);
        let met = |rate: f64| {
            let mut of = rows.iter().filter(move |row| row.plan.rate == rate);
            of.any(|row| row.meets_bound == Some(true))
        };
        let missed = || rows.iter().filter(missed).filter(above);
        let rates = missed().map(|row| row.plan.rate).filter(|&rate| !met(rate));
        let rate = rates.min_by(f64::total_cmp)?;
        let tries = || missed().filter(move |row| row.plan.rate == rate);
        if !tries().any(|row| row.is_disturbed)
            || tries().filter(|row| !row.is_disturbed).count() > 1
        {
            return None;
        }
        let worst = tries().filter_map(|row| row.run.host.worst_worker());
        let least = worst.min_by(|a, b| a.share().total_cmp(&b.share()));
        let ns = |of: &Waiting| (of.waited.as_nanos() as u64, of.over.as_nanos() as u64);
        Some(Spoiled { rate, waited: least.map(ns) })
    }

    /// How much of the CPU was gone.
    pub(super) fn text(&self) -> String {
        let Some((waited_ns, over_ns)) = self.waited else {
            return "the machine's own host took CPU time away".to_owned();
        };
        format!(
            "a worker stood without a CPU for {} of {} even in the try with the least of it",
            show_ns(waited_ns),
            show_ns(over_ns)
        )
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "rate": self.rate,
            "waited_ns": self.waited.map(|(waited_ns, _)| waited_ns),
            "over_ns": self.waited.map(|(_, over_ns)| over_ns),
        })
    }
}

/// Of the worker that waited most: the share of its time, and the longest.
pub(super) fn cells(run: &LoadRun) -> [String; 2] {
    match run.host.worst_worker() {
        Some(worst) => [show_share(worst.share()), show_ns(worst.longest.as_nanos() as u64)],
        None => ["unknown", "unknown"].map(str::to_owned),
    }
}

pub(super) const TITLES: [&str; 2] = ["waited for CPU", "longest"];

/// What stands under the table.
pub(super) fn footnote(rows: &[Row]) -> String {
    let known = rows.iter().any(|row| row.run.host.worst_worker().is_some());
    let stolen = rows.iter().filter_map(|row| row.run.host.stolen).reduce(f64::max);
    let mut text = match known {
        true => {
            "waited for CPU: of its time, what the worker that waited most was ready to run and \
                 something else had its CPU, and the most of that within about 1 ms of work"
                .to_owned()
        }
        false => "waited for CPU: unknown, this system does not tell (Linux does, in \
                  /proc/thread-self/schedstat): latency may be the engine's or other programs'"
            .to_owned(),
    };
    if let Some(stolen) = stolen.filter(|&stolen| stolen > 0.0) {
        let share = show_share(stolen);
        text.push_str(&format!("; taken by the machine's own host (steal): up to {share}"));
    }
    text
}

/// A share as percent, with figures enough to see a small one.
fn show_share(share: f64) -> String {
    match share * 100.0 {
        percent if percent >= 10.0 => format!("{percent:.0} %"),
        percent if percent >= 0.095 => format!("{percent:.1} %"),
        percent => format!("{percent:.2} %"),
    }
}

/// The warning, if waiting explains the figures, and what kind of waiting it is about.
pub(super) fn warning(
    run: &LoadRun,
    shares_cpus: bool,
    producers: usize,
) -> Option<(HostEffect, String)> {
    let effect = run.host_effect()??;
    let worst = run.host.known().max_by(|a, b| a.share().total_cmp(&b.share()));
    let waited = worst.map_or_else(String::new, |worst| {
        let preempted = worst.preempted.map_or_else(String::new, |count| {
            format!(", and was taken off it {} times", show_count(count))
        });
        format!(
            "the thread that waited most stood without a CPU for {} of {} ({} at most at \
             once{preempted})",
            show_ns(worst.waited.as_nanos() as u64),
            show_ns(worst.over.as_nanos() as u64),
            show_ns(worst.longest.as_nanos() as u64)
        )
    });
    // What one core, or one producer, can still do is not to take fewer.
    let fewer = match (run.core_count, producers) {
        (2.., _) => "fewer --cores, or a quieter machine",
        (_, 2..) => "fewer --producers, or a quieter machine",
        _ => "a machine with more CPUs",
    };
    let whose = match shares_cpus {
        true => format!(
            "Other programs ran there, or the load's own producers, which have no CPU of their \
             own: {fewer}"
        ),
        false => "Other programs ran there: measure again on a quieter machine".to_owned(),
    };
    let told = match effect {
        HostEffect::Tail(share) => format!(
            "p99 is explained by waiting for CPUs, not by the engine: {} of the pairs came due \
             during waits of a quarter of p99 or more; {waited}. {whose}",
            show_share(share)
        ),
        HostEffect::Capacity(share) => format!(
            "it fell behind while a worker could not run for {} of the time; {waited}. {whose}",
            show_share(share)
        ),
        HostEffect::Stolen(share) => format!(
            "the machine is a virtual one whose host took {} of its CPU time away (steal), which \
             may be p99: measure again when the host is quieter",
            show_share(share)
        ),
    };
    Some((effect, told))
}

/// All threads, under a head.
pub(super) fn threads(rows: &[Row]) -> Vec<Vec<String>> {
    let head = ["load", "thread", "waited for CPU", "share", "longest", "preempted", "over"];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for row in rows {
        let host = &row.run.host;
        let workers = host.workers.iter().map(|(waiting, _)| ("worker", waiting));
        let producers = host.producers.iter().map(|waiting| ("producer", waiting));
        let mut number = 0;
        for (kind, waiting) in workers.chain(producers) {
            number = if kind == "producer" && number == host.workers.len() { 0 } else { number };
            let mut line = vec![row.name(rows), format!("{kind} {number}")];
            match waiting {
                Some(of) => line.extend([
                    show_ns(of.waited.as_nanos() as u64),
                    show_share(of.share()),
                    show_ns(of.longest.as_nanos() as u64),
                    of.preempted.map_or_else(|| "unknown".to_owned(), show_count),
                    show_ns(of.over.as_nanos() as u64),
                ]),
                None => line.extend((0..5).map(|_| "unknown".to_owned())),
            }
            lines.push(line);
            number += 1;
        }
    }
    lines
}

pub(super) fn json(run: &LoadRun) -> Value {
    let of = |waiting: &Option<Waiting>| {
        waiting.as_ref().map(|of| {
            json!({
                "waited_ns": of.waited.as_nanos() as u64,
                "waited_share": of.share(),
                "longest_ns": of.longest.as_nanos() as u64,
                "preempted": of.preempted,
                "over_ns": of.over.as_nanos() as u64,
            })
        })
    };
    let p99_ns = run.latency_ns.value_at_quantile(0.99);
    json!({
        "workers": run.host.workers.iter().map(|(waiting, _)| of(waiting)).collect::<Vec<_>>(),
        "producers": run.host.producers.iter().map(of).collect::<Vec<_>>(),
        "stolen_share": run.host.stolen,
        "held_up_share": run.host.held_up_share(p99_ns / 4),
        "explains": run.host_effect().map(|effect| match effect {
            None => "nothing",
            Some(HostEffect::Tail(_)) => "p99",
            Some(HostEffect::Capacity(_)) => "falling behind",
            Some(HostEffect::Stolen(_)) => "p99 (steal)",
        }),
    })
}
