//! The figures of loads: JSON, a table, a chart.

use serde_json::{Value, json};

use crate::cli::load::Args;
use crate::cli::plot::{AxisText, Chart, Form, Point, Scale, Series};
use crate::cli::text::{columns_right, show_ns, show_rate};
use crate::workload::load::{LoadPlan, LoadRun};

/// One rate.
pub(super) struct Row {
    pub(super) plan: LoadPlan,
    pub(super) run: LoadRun,
    pub(super) seed: u64,
}

/// The percentiles that are shown, by the names that they have in JSON and in tables.
const QUANTILES: [(&str, &str, f64); 5] = [
    ("p50", "p50", 0.5),
    ("p90", "p90", 0.9),
    ("p99", "p99", 0.99),
    ("p999", "p99.9", 0.999),
    ("p9999", "p99.99", 0.9999),
];

impl Row {
    /// Whether it kept up, with p99 within a bound.
    pub(super) fn holds(&self, slo_ns: u64) -> bool {
        let p99_ns = self.run.latency_ns.value_at_quantile(0.99);
        self.run.kept_up() && !self.run.latency_ns.is_empty() && p99_ns <= slo_ns
    }

    fn latency(&self, quantile: f64) -> Option<u64> {
        let latency = &self.run.latency_ns;
        (!latency.is_empty()).then(|| latency.value_at_quantile(quantile))
    }

    fn latency_max(&self) -> Option<u64> {
        (!self.run.latency_ns.is_empty()).then(|| self.run.latency_ns.max())
    }

    pub(super) fn json(&self, args: &Args) -> Value {
        let (plan, run) = (&self.plan, &self.run);
        let mut latency = serde_json::Map::new();
        for (name, _, quantile) in QUANTILES {
            latency.insert(name.to_owned(), json!(self.latency(quantile)));
        }
        latency.insert("max".to_owned(), json!(self.latency_max()));
        let late = &run.producer_late_ns;
        json!({
            "workload": plan.workload.name,
            "offered_rate": plan.rate,
            "achieved_rate": run.achieved_rate().round(),
            "kept_up": run.kept_up(),
            "duration_s": plan.duration.as_secs_f64(),
            "warm_up_s": plan.warm_up.as_secs_f64(),
            "elapsed_s": run.elapsed.as_secs_f64(),
            "end_lag_ns": run.end_lag.as_nanos() as u64,
            "events": run.events,
            "events_pushed": run.pushed,
            "pairs": run.outcome.pairs,
            "checksum": format!("{:016x}", run.outcome.checksum),
            "pairs_measured": run.latency_ns.len(),
            "latency_ns": latency,
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
        })
    }
}

/// The last line of a search in JSON.
pub(super) fn max_json(rate: Option<f64>, slo_ns: u64) -> Value {
    json!({ "max_rate": rate, "slo_ns": slo_ns })
}

/// The rates in a table, the lowest first.
pub(super) fn table(rows: &[Row]) -> String {
    let mut head = vec!["offered/s", "achieved/s", "kept up"];
    head.extend(QUANTILES.map(|(_, title, _)| title));
    head.extend(["max", "late p99", "pairs"]);
    let mut lines: Vec<Vec<String>> = vec![head.into_iter().map(str::to_owned).collect()];
    let or_dash = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), show_ns);
    for row in rows {
        let mut line = vec![
            show_rate(row.plan.rate),
            show_rate(row.run.achieved_rate()),
            if row.run.kept_up() { "yes" } else { "no" }.to_owned(),
        ];
        line.extend(QUANTILES.map(|(_, _, quantile)| or_dash(row.latency(quantile))));
        line.push(or_dash(row.latency_max()));
        line.push(show_ns(row.run.producer_late_ns.value_at_quantile(0.99)));
        line.push(row.run.latency_ns.len().to_string());
        lines.push(line);
    }
    let mut text = columns_right(&lines).join("\n");
    text.push('\n');
    if let Some(row) = rows.first() {
        text.push_str(&setting(row));
    }
    text
}

/// What all rates have in common.
fn setting(row: &Row) -> String {
    let (plan, run) = (&row.plan, &row.run);
    format!(
        "\n{}, seed {}: {} core{} ({}, {}), {} producer{} ({}), {:?} a rate, {:?} of it warm-up, \
         linger {:?}, batch {}\n",
        plan.workload.name,
        row.seed,
        run.core_count,
        if run.core_count == 1 { "" } else { "s" },
        run.runtime.name(),
        plan.setup.simd.name(),
        plan.producers,
        if plan.producers == 1 { "" } else { "s" },
        plan.pace.name(),
        plan.duration,
        plan.warm_up,
        plan.linger,
        plan.batch
    )
}

/// Latency over load. Rates that were not kept up with are rings.
pub(super) fn chart(rows: &[Row], max: Option<(Option<f64>, u64)>) -> Chart {
    let point = |row: &Row, ns: u64| Point {
        x: row.plan.rate,
        y: ns as f64,
        is_hollow: !row.run.kept_up(),
    };
    let series = |name: &str, of: &dyn Fn(&Row) -> Option<u64>| Series {
        name: name.to_owned(),
        points: rows.iter().filter_map(|row| Some(point(row, of(row)?))).collect(),
        form: Form::Line,
    };
    let mut all: Vec<Series> = QUANTILES
        .iter()
        .map(|&(_, title, quantile)| series(title, &|row| row.latency(quantile)))
        .collect();
    all.push(series("max", &|row| row.latency_max()));
    let workload = rows.first().map_or("", |row| row.plan.workload.name);
    let cores = rows.first().map_or(0, |row| row.run.core_count);
    let mut chart = Chart {
        title: format!("Latency over load: {workload}, cores: {cores}"),
        x: AxisText {
            label: "events a second, due (rings: not kept up with)".to_owned(),
            scale: Scale::Log,
            show: |rate| show_rate(rate),
        },
        y: AxisText {
            label: "latency from the due time".to_owned(),
            scale: Scale::Log,
            show: |ns| show_ns(ns.round() as u64),
        },
        series: all,
        bounds: Vec::new(),
        marks: Vec::new(),
    };
    if let Some((rate, slo_ns)) = max {
        chart.bounds.push((slo_ns as f64, format!("bound on p99: {}", show_ns(slo_ns))));
        chart.marks.extend(rate.map(|rate| (rate, show_rate(rate))));
    }
    chart
}
