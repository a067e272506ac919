//! The figures of loads: JSON, a table, a chart.

use serde_json::{Value, json};

use crate::cli::bench::{hot_keys_name, shape};
use crate::cli::load::host;
use crate::cli::load::scenario::describe;
use crate::cli::load::soak::{Soak, samples_json};
use crate::cli::load::warnings::{self, Warning};
use crate::cli::load::{Args, Max, PAIRS_MIN};
use crate::cli::machine;
use crate::cli::plot::{AxisText, Chart, Form, Point, Scale, Series};
use crate::cli::text::{columns_right, show_count, show_ns, show_rate, show_span};
use crate::workload::Workload;
use crate::workload::bench::OFFLINE_JOIN;
use crate::workload::load::{LoadPlan, LoadRun, Scenario, Tried};

/// One rate.
pub(super) struct Row {
    pub(super) plan: LoadPlan,
    pub(super) run: LoadRun,
    pub(super) seed: u64,
    /// Which try of its rate and scenario it is, from 1.
    pub(super) number: u32,
    /// Whether it kept up within the bound of a search, if it is of one.
    pub(super) meets_bound: Option<bool>,
    /// Whether that was not met and the host is enough to explain it.
    pub(super) is_disturbed: bool,
    /// What pairs and checksum were compared with, if they were.
    pub(super) checked_against: Option<&'static str>,
    /// What a soak came to.
    pub(super) soak: Option<Soak>,
    /// What makes its figures mean something else than they seem to.
    pub(super) warnings: Vec<Warning>,
}

/// The percentiles that are shown, by the names that they have in JSON and in tables.
pub(super) const QUANTILES: [(&str, &str, f64); 5] = [
    ("p50", "p50", 0.5),
    ("p90", "p90", 0.9),
    ("p99", "p99", 0.99),
    ("p999", "p99.9", 0.999),
    ("p9999", "p99.99", 0.9999),
];

impl Row {
    /// Whether it kept up, with p99 within a bound: of pairs that are enough for one.
    pub(super) fn holds(&self, slo_ns: u64) -> bool {
        let p99_ns = self.run.latency_ns.value_at_quantile(0.99);
        self.run.kept_up() && self.run.latency_ns.len() >= PAIRS_MIN && p99_ns <= slo_ns
    }

    /// Judges it by the bound of a search.
    pub(super) fn judge(&mut self, slo_ns: u64) {
        let holds = self.holds(slo_ns);
        let has_pairs = self.run.latency_ns.len() >= PAIRS_MIN;
        self.meets_bound = Some(holds);
        self.is_disturbed = !holds && has_pairs && self.run.host_explains(slo_ns);
    }

    /// What it says in a search.
    pub(super) fn tried(&self) -> Tried {
        match self.meets_bound {
            Some(true) => Tried::Good,
            _ if self.is_disturbed => Tried::Disturbed,
            _ => Tried::Bad,
        }
    }

    pub(super) fn latency(&self, quantile: f64) -> Option<u64> {
        let latency = &self.run.latency_ns;
        (!latency.is_empty()).then(|| latency.value_at_quantile(quantile))
    }

    fn latency_max(&self) -> Option<u64> {
        (!self.run.latency_ns.is_empty()).then(|| self.run.latency_ns.max())
    }

    fn latency_json(&self) -> Value {
        let mut latency = serde_json::Map::new();
        for (name, _, quantile) in QUANTILES {
            latency.insert(name.to_owned(), json!(self.latency(quantile)));
        }
        latency.insert("max".to_owned(), json!(self.latency_max()));
        Value::Object(latency)
    }

    pub(super) fn json(&self, args: &Args) -> Value {
        let (plan, run) = (&self.plan, &self.run);
        let late = &run.producer_late_ns;
        let mut object = json!({
            "workload": plan.workload.name,
            "scenario": plan.scenario.name(),
            "offered_rate": plan.rate,
            "achieved_rate": run.achieved_rate().round(),
            "kept_up": run.kept_up(),
            "stopped": run.stopped,
            "due_s": run.due.as_secs_f64(),
            "duration_s": plan.duration.as_secs_f64(),
            "warm_up_s": plan.warm_up.as_secs_f64(),
            "elapsed_s": run.elapsed.as_secs_f64(),
            "end_lag_ns": run.end_lag.as_nanos() as u64,
            "events": run.events,
            "events_pushed": run.pushed,
            "pairs": run.outcome.pairs,
            "checksum": format!("{:016x}", run.outcome.checksum),
            "pairs_measured": run.latency_ns.len(),
            "latency_ns": self.latency_json(),
            "producers": plan.producers,
            "pace": plan.pace.name(),
            "producer_late_ns": {
                "p50": late.value_at_quantile(0.5),
                "p99": late.value_at_quantile(0.99),
                "max": late.max(),
            },
            "producer_cpu": (run.producer_cpu * 1e3).round() / 1e3,
            "producers_were_the_limit": run.producers_were_the_limit(),
            "cores": run.core_count,
            "runtime": run.runtime.name(),
            "idle": args.idle_name(),
            "simd": plan.setup.simd.name(),
            "linger_ns": plan.linger.as_nanos() as u64,
            "batch": plan.batch,
            "seed": self.seed,
            "state_rows_peak": run.state_rows_peak,
            "state_bytes_peak": run.state_bytes_peak,
            "late_rows": run.late_rows,
            "busiest_core_share": (run.busiest_core_share * 1e4).round() / 1e4,
            "lane_batches": plan.lane_batches,
            "bucket_width_ns": plan.layout.bucket_width.map(|width| width.as_nanos() as u64),
            "chunk_bytes": plan.layout.chunk_bytes,
            "reserve_bytes": plan.layout.reserve_bytes,
        });
        let more = [
            ("checked_against", json!(self.checked_against)),
            ("try", json!(self.number)),
            ("meets_bound", json!(self.meets_bound)),
            ("hot_keys", json!(hot_keys_name(plan.setup.hot_keys))),
            ("keys_split", json!(run.keys_split)),
            ("disturbed", json!(self.is_disturbed)),
            ("host", host::json(run)),
        ];
        let warnings: Vec<String> = self.warnings.iter().map(Warning::text).collect();
        object["warnings"] = json!(warnings);
        for (name, value) in more.into_iter().chain(shape_json(&plan.workload)) {
            object[name] = value;
        }
        if let Some(soak) = &self.soak {
            object["soak"] = soak.json();
            object["samples"] = samples_json(&run.samples);
        }
        object
    }

    /// What tells this row from the others, short enough for a legend.
    pub(super) fn short_name(&self, rows: &[Row]) -> String {
        let scenario = self.plan.scenario.name();
        let rate = show_rate(self.plan.rate);
        match rows.iter().all(|row| row.plan.rate == self.plan.rate) {
            true if has_scenarios(rows) => scenario.to_owned(),
            false if has_scenarios(rows) => format!("{scenario} {rate}"),
            _ => format!("{rate}/s"),
        }
    }

    /// What tells this row from the others, for people.
    pub(super) fn name(&self, rows: &[Row]) -> String {
        let rate = format!("{}/s", show_rate(self.plan.rate));
        match has_scenarios(rows) {
            true => format!("{} at {rate}", self.plan.scenario.name()),
            false => rate,
        }
    }
}

/// The last line of a search in JSON.
pub(super) fn max_json(max: Max) -> Value {
    let mut object = json!({ "max_rate": max.rate, "slo_ns": max.slo_ns });
    if let (None, Some((rate, p99_ns))) = (max.rate, max.lowest) {
        object["lowest_rate"] = json!(rate);
        object["lowest_p99_ns"] = json!(p99_ns);
        object["lowest_pairs"] = json!(max.lowest_pairs);
    }
    object["limit"] = json!(match () {
        () if max.spoiled.is_some() => "host",
        () if !max.host_known || max.stopped => "unknown",
        () => "engine",
    });
    if let Some(spoiled) = max.spoiled {
        object["spoiled"] = spoiled.json();
    }
    if max.stopped {
        object["stopped"] = json!(true);
    }
    object
}

/// What the events are, beside the workload's name.
fn shape_json(workload: &Workload) -> Vec<(&'static str, Value)> {
    let mut fields = shape(workload);
    // Here a rate is when events are due.
    fields.iter_mut().filter(|field| field.0 == "rate").for_each(|field| field.0 = "event_rate");
    fields.extend([
        ("delay_ms", json!(workload.right_delay_ms.saturating_sub(1))),
        ("late_share", json!(f64::from(workload.late_ppm) / 1e6)),
    ]);
    fields
}

/// The workload's name, and in what its events are not as it has them.
fn events_text(workload: &Workload) -> String {
    let own = Workload::by_name(workload.name).unwrap_or(*workload);
    let mut text = workload.name.to_owned();
    for ((name, value), (_, own)) in shape_json(workload).into_iter().zip(shape_json(&own)) {
        if value != own {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            text.push_str(&format!(", {} {value}", name.replace('_', " ")));
        }
    }
    text
}

/// Whether rows differ, or their one scenario is worth a word.
pub(super) fn has_scenarios(rows: &[Row]) -> bool {
    rows.iter().any(|row| row.plan.scenario != Scenario::None)
}

/// The figures, a row a rate and scenario, under a head.
pub(super) fn figures(rows: &[Row]) -> Vec<Vec<String>> {
    let names = has_scenarios(rows);
    let mut head = if names { vec!["scenario"] } else { Vec::new() };
    head.extend(["offered/s", "achieved/s", "kept up"]);
    head.extend(QUANTILES.map(|(_, title, _)| title));
    head.push("max");
    head.extend(host::TITLES);
    head.extend(["push late p99", "pairs measured"]);
    let has_late_rows = rows.iter().any(|row| row.run.late_rows > 0);
    if has_late_rows {
        head.push("late rows");
    }
    if names {
        head.extend(["rows peak", "rows of busiest core"]);
    }
    let mut lines: Vec<Vec<String>> = vec![head.into_iter().map(str::to_owned).collect()];
    let or_dash = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), show_ns);
    for row in rows {
        let (plan, run) = (&row.plan, &row.run);
        let mut line = if names { vec![plan.scenario.name().to_owned()] } else { Vec::new() };
        line.extend([
            show_rate(plan.rate),
            show_rate(run.achieved_rate()),
            if run.kept_up() { "yes" } else { "no" }.to_owned(),
        ]);
        line.extend(QUANTILES.map(|(_, _, quantile)| or_dash(row.latency(quantile))));
        line.push(or_dash(row.latency_max()));
        line.extend(host::cells(run));
        line.push(show_ns(run.producer_late_ns.value_at_quantile(0.99)));
        line.push(show_count(run.latency_ns.len()));
        if has_late_rows {
            line.push(show_count(run.late_rows));
        }
        if names {
            line.push(show_count(run.state_rows_peak));
            line.push(format!("{:.0} %", run.busiest_core_share * 100.0));
        }
        lines.push(line);
    }
    lines
}

/// The rates in a table, the lowest first, what they have in common, and what soaks came to.
pub(super) fn table(rows: &[Row]) -> String {
    let mut text = columns_right(&figures(rows)).join("\n");
    text.push('\n');
    if let Some(row) = rows.first() {
        text.push_str(&format!("\n{}\n{}\n", setting(row), host::footnote(rows)));
    }
    if has_scenarios(rows) {
        scenarios(rows).iter().for_each(|line| text.push_str(&format!("{line}\n")));
    }
    checked(rows).iter().for_each(|line| text.push_str(&format!("{line}\n")));
    retried(rows).iter().for_each(|line| text.push_str(&format!("{line}\n")));
    stopped(rows).iter().for_each(|line| text.push_str(&format!("{line}\n")));
    rows.iter().filter_map(|row| row.soak.as_ref()).for_each(|soak| text.push_str(&soak.text()));
    text
}

/// What pairs were compared with, or why with nothing.
pub(super) fn checked(rows: &[Row]) -> Option<String> {
    let unchecked: Vec<&Row> = rows.iter().filter(|row| row.checked_against.is_none()).collect();
    let (all, of) = (rows.len(), unchecked.len());
    if all == of && all == 0 {
        return None;
    }
    if of == 0 {
        return Some(format!("pairs and checksum of each load are those of {OFFLINE_JOIN}"));
    }
    let why = |row: &Row| match &row.run {
        run if run.stopped => "it was stopped",
        run if run.pushed < run.events => "not all of its events were pushed",
        run if run.late_rows > 0 => "events that are late are not joined",
        _ => "it is too large, without --check",
    };
    let mut reasons: Vec<String> = Vec::new();
    for row in unchecked {
        let reason = format!("{}: {}", row.name(rows), why(row));
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    let more = reasons.len().saturating_sub(REASONS_MAX);
    reasons.truncate(REASONS_MAX);
    let more = if more > 0 { format!("; {more} more") } else { String::new() };
    let reasons = reasons.join("; ");
    if of == all {
        return Some(format!("pairs and checksum were compared with nothing ({reasons}{more})"));
    }
    Some(format!(
        "pairs and checksum of {} of {all} loads were compared with {OFFLINE_JOIN}, of the others \
         with nothing ({reasons}{more})",
        all - of
    ))
}

const REASONS_MAX: usize = 3;

/// Which rates were bad once and good when tried again.
pub(super) fn retried(rows: &[Row]) -> Vec<String> {
    let again = rows.iter().filter(|row| row.number > 1 && row.meets_bound == Some(true));
    again
        .map(|row| {
            format!("{}: missed the bound once, and met it when tried again", row.name(rows))
        })
        .collect()
}

/// Which load was stopped, if one was.
pub(super) fn stopped(rows: &[Row]) -> Option<String> {
    let row = rows.iter().find(|row| row.run.stopped)?;
    Some(format!(
        "stopped after {:.1?} of {}: {} was cut short, and its figures are of that time",
        row.run.due,
        show_span(row.plan.duration),
        row.name(rows)
    ))
}

/// What the scenarios are, each once.
pub(super) fn scenarios(rows: &[Row]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for Row { plan, .. } in rows {
        let line = format!("{}: {}", plan.scenario.name(), describe(&plan.scenario));
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// What all rates have in common.
pub(super) fn setting(row: &Row) -> String {
    let (plan, run) = (&row.plan, &row.run);
    format!(
        "{}, seed {}: {} core{} ({}, {}), {} producer{} ({}), {} a rate, {} of it warm-up, \
         linger {}, batch {}",
        events_text(&plan.workload),
        row.seed,
        run.core_count,
        if run.core_count == 1 { "" } else { "s" },
        run.runtime.name(),
        plan.setup.simd.name(),
        plan.producers,
        if plan.producers == 1 { "" } else { "s" },
        plan.pace.name(),
        show_span(plan.duration),
        show_span(plan.warm_up),
        show_span(plan.linger),
        plan.batch
    )
}

/// Of the rows of one rate and scenario (a search tries some more than once) the best.
pub(super) fn best_tries(rows: &[Row]) -> Vec<&Row> {
    let mut best: Vec<&Row> = Vec::new();
    let worth = |row: &Row| (!row.run.kept_up(), row.latency(0.99).unwrap_or(u64::MAX));
    for row in rows {
        let is_alike = |other: &&mut &Row| {
            (other.plan.rate, other.plan.scenario) == (row.plan.rate, row.plan.scenario)
        };
        match best.iter_mut().find(is_alike) {
            Some(other) if worth(row) < worth(other) => *other = row,
            Some(_) => {}
            None => best.push(row),
        }
    }
    best
}

/// Latency over load. Rates that were not kept up with are rings. Of several scenarios, the p99.
pub(super) fn chart(rows: &[Row], max: Option<Max>) -> Chart {
    let warnings = warnings::of_all(rows);
    let rows = &best_tries(rows);
    let point = |row: &Row, ns: u64| Point {
        x: row.plan.rate,
        y: ns as f64,
        is_hollow: !row.run.kept_up(),
        range: None,
    };
    let series = |name: &str, scenario: &Scenario, of: &dyn Fn(&Row) -> Option<u64>| Series {
        name: name.to_owned(),
        points: rows
            .iter()
            .filter(|row| row.plan.scenario == *scenario)
            .filter_map(|row| Some(point(row, of(row)?)))
            .collect(),
        form: Form::Line,
    };
    let mut scenarios: Vec<Scenario> = rows.iter().map(|row| row.plan.scenario).collect();
    scenarios.dedup();
    let all: Vec<Series> = match &scenarios[..] {
        [] => Vec::new(),
        [scenario] => QUANTILES
            .iter()
            .map(|&(_, title, quantile)| series(title, scenario, &|row| row.latency(quantile)))
            .chain([series("max", scenario, &|row| row.latency_max())])
            .collect(),
        several => several
            .iter()
            .map(|scenario| series(scenario.name(), scenario, &|row| row.latency(0.99)))
            .collect(),
    };
    let workload = rows.first().map_or("", |row| row.plan.workload.name);
    let cores = rows.first().map_or(0, |row| row.run.core_count);
    let what = if scenarios.len() > 1 { "p99 latency" } else { "Latency" };
    let mut chart = Chart {
        title: format!("{what} over load: {workload}, cores: {cores}"),
        x: AxisText {
            label: "events a second, due (rings: not kept up with)".to_owned(),
            scale: Scale::Log,
            ticks: Vec::new(),
            show: show_rate,
        },
        y: latency_axis("latency from the due time"),
        series: all,
        bounds: Vec::new(),
        marks: Vec::new(),
        caption: warnings
            .into_iter()
            .chain(rows.first().map(|row| setting(row)))
            .chain(machine::facts())
            .collect(),
    };
    if let Some(Max { rate, slo_ns, .. }) = max {
        chart.bounds.push((slo_ns as f64, format!("bound on p99: {}", show_ns(slo_ns))));
        chart.marks.extend(rate.map(|rate| (rate, show_rate(rate))));
    }
    chart
}

pub(super) fn latency_axis(label: &str) -> AxisText {
    AxisText {
        label: label.to_owned(),
        scale: Scale::Log,
        ticks: Vec::new(),
        show: |ns| show_ns(ns.round() as u64),
    }
}
