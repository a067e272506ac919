//! The report that can be sent to others: what was run and where, the figures, plots of latency by
//! rate, by percentile and over time, and how to read them.

use std::time::Duration;

use crate::cli::join::show_size;
use crate::cli::load::host;
use crate::cli::load::report::{self, Row, latency_axis};
use crate::cli::load::soak::in_use;
use crate::cli::load::{Max, max_text, warnings};
use crate::cli::machine;
use crate::cli::plot::{AxisText, Chart, Form, Page, Part, Point, Scale, Series};
use crate::cli::text::{show_count, show_span};
use crate::workload::load::Sample;

/// How the percentiles of a row are spread over the plot: up to one in this many.
const TAIL_MAX: f64 = 1e5;
/// Points of such a line, for each factor of ten.
const TAIL_STEPS: i32 = 10;
/// Rows that are plotted one by one: a search has dozens.
const ROWS_PLOTTED_MAX: usize = 12;

/// A figure of a sample, if it has it.
type Of<'a> = &'a dyn Fn(&Sample) -> Option<f64>;

pub(super) fn page(rows: &[Row], max: Option<Max>) -> Page {
    let workload = rows.first().map_or("", |row| row.plan.workload.name);
    let mut parts = vec![Part::Paragraph(summary(rows))];
    for soak in rows.iter().filter_map(|row| row.soak.as_ref()) {
        let (conclusion, is_good) = soak.conclusion();
        parts.push(Part::Verdict(format!("Soak: {conclusion}"), is_good));
    }
    if let Some(max) = max {
        parts.push(Part::Verdict(
            max_text(max),
            max.rate.is_some() && !max.stopped && max.spoiled.is_none(),
        ));
    }
    if let Some(stopped) = report::stopped(rows) {
        parts.push(Part::Verdict(stopped, false));
    }
    parts.extend(report::checked(rows).map(Part::Paragraph));
    parts.extend(report::retried(rows).into_iter().map(Part::Paragraph));
    for warning in warnings::of_all(rows) {
        parts.push(Part::Verdict(format!("Warning: {warning}"), false));
    }
    parts.push(Part::Table(report::figures(rows)));
    if report::has_scenarios(rows) {
        parts.push(Part::List(report::scenarios(rows)));
    }
    let mut rates: Vec<f64> = rows.iter().map(|row| row.plan.rate).collect();
    rates.dedup();
    if rates.len() > 1 {
        // What was run stands below.
        let chart = Chart { caption: Vec::new(), ..report::chart(rows, max) };
        parts.push(Part::Chart(Box::new(chart)));
    }
    let all = report::best_tries(rows).len();
    if all > ROWS_PLOTTED_MAX || all < rows.len() {
        parts.push(Part::Paragraph(format!(
            "Drawn one by one are {} of the {} loads, from the lowest rate to the highest, of a \
             rate that was tried more than once the best try; the figures of all are in the table.",
            all.min(ROWS_PLOTTED_MAX),
            rows.len()
        )));
    }
    let best = report::best_tries(rows);
    let drawn = chosen(&best, max.and_then(|max| max.rate));
    parts.push(Part::Chart(Box::new(tails(rows, &drawn))));
    for row in drawn {
        over_time(row, rows, &mut parts);
    }
    parts.push(Part::Heading("What threads waited for CPUs".to_owned()));
    parts.push(Part::Paragraph(host::footnote(rows) + "."));
    parts.push(Part::Table(host::threads(rows)));
    parts.extend([Part::Heading("What was run".to_owned()), Part::List(run_facts(rows))]);
    parts.extend([Part::Heading("How to read it".to_owned()), Part::List(reading())]);
    Page { title: format!("Latency of {workload} under load"), parts }
}

/// At most so many rows, from the first to the last, and the one of the rate that was found.
fn chosen<'a>(rows: &[&'a Row], found: Option<f64>) -> Vec<&'a Row> {
    let count = rows.len().min(ROWS_PLOTTED_MAX);
    let place = |index: usize| index * (rows.len() - 1) / (count - 1).max(1);
    let mut places: Vec<usize> = (0..count).map(place).collect();
    let found = rows.iter().position(|row| Some(row.plan.rate) == found);
    if let Some(found) = found.filter(|found| !places.contains(found)) {
        // It takes the place of its neighbour, which is neither the first nor the last.
        let inner = 1..count.saturating_sub(1);
        let near = inner.min_by_key(|&index| places[index].abs_diff(found));
        if let Some(near) = near {
            places[near] = found;
        }
    }
    places.into_iter().map(|place| rows[place]).collect()
}

fn summary(rows: &[Row]) -> String {
    let setting = rows.first().map(report::setting).unwrap_or_default();
    let kept_up = rows.iter().filter(|row| row.run.kept_up()).count();
    format!("{setting}. Loads that were kept up with: {kept_up} of {}.", rows.len())
}

/// Latency by percentile: the whole distribution, a line a row.
fn tails(rows: &[Row], drawn: &[&Row]) -> Chart {
    let line = |row: &Row| {
        let latency = &row.run.latency_ns;
        // Beyond the last pair a percentile says nothing new.
        let most = TAIL_MAX.min(latency.len() as f64);
        let steps = (most.log10() * f64::from(TAIL_STEPS)).floor().max(0.0) as i32;
        let point = |step: i32| {
            let one_in = 10f64.powf(f64::from(step) / f64::from(TAIL_STEPS));
            let y = latency.value_at_quantile(1.0 - 1.0 / one_in) as f64;
            Point { x: one_in, y, is_hollow: false, range: None }
        };
        let points = if latency.is_empty() { Vec::new() } else { (1..=steps).map(point).collect() };
        Series { name: row.short_name(rows), points, form: Form::Trace }
    };
    Chart {
        title: "Latency by percentile".to_owned(),
        x: AxisText {
            label: "share of pairs that are faster".to_owned(),
            scale: Scale::Log,
            ticks: [2.0].into_iter().chain((1..=5).map(|power| 10f64.powi(power))).collect(),
            show: |one_in| match 100.0 - 100.0 / one_in {
                percent if one_in < 100.5 => format!("{percent:.0} %"),
                percent if one_in < 1000.5 => format!("{percent:.1} %"),
                percent => format!("{percent:.3} %"),
            },
        },
        y: latency_axis("latency from the due time"),
        series: drawn.iter().map(|row| line(row)).collect(),
        bounds: Vec::new(),
        marks: Vec::new(),
        caption: Vec::new(),
    }
}

/// Latency, memory and state of one row over time.
fn over_time(row: &Row, rows: &[Row], parts: &mut Vec<Part>) {
    let samples = &row.run.samples;
    if samples.len() < 2 {
        return;
    }
    parts.push(Part::Heading(format!("Over time: {}", row.name(rows))));
    if let Some(soak) = &row.soak {
        parts.push(Part::Table(soak.figures()));
    }
    let latency = |index: usize| {
        move |sample: &Sample| sample.latency_ns.map(|latency| latency[index] as f64)
    };
    let end = if row.run.stopped { "stopped" } else { "last event due" };
    let chart = |title: &str, y: AxisText, lines: Vec<Series>| {
        Part::Chart(Box::new(Chart {
            title: title.to_owned(),
            x: AxisText {
                label: "time since the first event was due".to_owned(),
                scale: Scale::FromZero,
                ticks: Vec::new(),
                show: |seconds| match (seconds * 1e3).round() {
                    0.0 => "0".to_owned(),
                    ms => show_span(Duration::from_millis(ms as u64)),
                },
            },
            y,
            series: lines,
            bounds: Vec::new(),
            marks: vec![(row.run.due.as_secs_f64(), end.to_owned())],
            caption: Vec::new(),
        }))
    };
    let lines = |named: &[(&str, Of<'_>)]| {
        named.iter().map(|(name, of)| series(name, samples, of)).collect::<Vec<_>>()
    };
    parts.push(chart(
        "Latency",
        latency_axis("latency from the due time"),
        lines(&[("p50", &latency(0)), ("p99", &latency(1)), ("max", &latency(2))]),
    ));
    let size = AxisText {
        label: "bytes".to_owned(),
        scale: Scale::Bytes,
        ticks: Vec::new(),
        show: |bytes| show_size(bytes.max(0.0) as u64),
    };
    parts.push(chart(
        "Memory",
        size,
        lines(&[
            ("memory (RSS)", &|sample| sample.rss_bytes.map(|bytes| bytes as f64)),
            ("state", &|sample| Some(sample.state_bytes as f64)),
            ("state in use", &|sample| Some(in_use(sample) as f64)),
        ]),
    ));
    let count = AxisText {
        label: "rows in state".to_owned(),
        scale: Scale::FromZero,
        ticks: Vec::new(),
        show: |rows| show_count(rows.max(0.0) as u64),
    };
    let rows_of = |sample: &Sample| Some(sample.state_rows as f64);
    parts.push(chart("State", count, lines(&[("rows", &rows_of)])));
}

fn series(name: &str, samples: &[Sample], of: Of<'_>) -> Series {
    let point = |sample: &Sample| {
        Some(Point { x: sample.at.as_secs_f64(), y: of(sample)?, is_hollow: false, range: None })
    };
    Series {
        name: name.to_owned(),
        points: samples.iter().filter_map(point).collect(),
        form: Form::Trace,
    }
}

/// What somebody else needs to run it again.
fn run_facts(rows: &[Row]) -> Vec<String> {
    let mut facts = machine::facts();
    let mut notes: Vec<&String> = rows.iter().flat_map(|row| &row.run.notes).collect();
    notes.sort();
    notes.dedup();
    facts.extend(notes.into_iter().cloned());
    let sums = rows.iter().map(|row| {
        let outcome = &row.run.outcome;
        format!("{}: {} pairs, checksum {:016x}", row.name(rows), outcome.pairs, outcome.checksum)
    });
    facts.extend(sums);
    facts
}

fn reading() -> Vec<String> {
    [
        "Open loop: event k is due at start + k / rate whether or not the engine keeps up, and \
         latency runs from when a pair's later event was due to when the sink had the pair. A \
         stall counts for every event that it held up (no coordinated omission).",
        "A load is kept up with when the last event was joined at most 1 % of the duration (or \
         20 ms) after the end. Beyond that, latency is the length of a queue and grows with the \
         duration.",
        "Pairs measured are those that were due after the warm-up; all are joined, and what they \
         were compared with stands above.",
        "Latency includes the linger time, in which events wait for their batch to fill, and how \
         late events were pushed by the producers' own doing (push late p99 in the table).",
        "State is what is allocated for buffered rows. It is in use, or waits in pools to be used \
         again: of that there is at most as much as is in use, and 8 MiB for each side and core. \
         Rows go by the bucket, so both are saws, and what is judged in a soak is what is in use, \
         beside the memory of the whole process.",
        "A thread that waited for a CPU was ready to run while something else ran there: the \
         kernel's own count, over the measured part, looked at by the thread after about each \
         millisecond of work. It explains p99 where 0.5 % of the pairs or more came due during \
         waits of a quarter of p99 or more (routine waking, 50 us each time, taken off): what \
         queues up behind them is about as much again. Of a load that was not kept up with it \
         explains that where a worker waited for 5 % of its time. A virtual machine's own host may \
         stop a CPU without that count; it is shown as steal where it says so.",
        "What else the machine does shows first at the right of the plot by percentile: compare \
         only what was measured on the same machine in the same hour.",
    ]
    .map(str::to_owned)
    .to_vec()
}
