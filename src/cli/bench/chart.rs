//! The figures of a bench as a chart, alone or on a page.

use serde_json::Value;

use crate::cli::bench::report::{Row, SWEPT, figures, varies};
use crate::cli::machine;
use crate::cli::plot::{AxisText, Chart, Form, Page, Part, Point, Scale, Series};
use crate::cli::text::show_count;

/// What can stand along the axis, if it was swept: the first that was. All but the skew are counts.
const ACROSS: [(&str, &str); 7] = [
    ("cores", "cores"),
    ("batch", "events a batch"),
    ("keys", "keys"),
    ("payload", "bytes of payload"),
    ("disorder_ms", "disorder, ms"),
    ("rate", "events a second and side, in event time"),
    ("skew", "skew"),
];

/// From here on an axis is logarithmic.
const LOG_FROM: f64 = 20.0;

/// The chart with what it is of below it, and the page that has the figures as well. `stopped` says
/// what was not measured, if the bench was ended early.
pub(super) fn plots(rows: &[Row], stopped: Option<&str>) -> (Chart, Page) {
    let facts = facts(rows);
    let mut parts: Vec<Part> =
        stopped.map(|told| Part::Verdict(told.to_owned(), false)).into_iter().collect();
    parts.extend([Part::Chart(Box::new(chart(rows))), Part::Table(figures(rows))]);
    parts.extend([Part::Heading("What was run".to_owned()), Part::List(facts.clone())]);
    let mut alone = chart(rows);
    alone.caption = stopped.map(str::to_owned).into_iter().chain(facts).collect();
    let page = Page { title: alone.title.clone(), parts };
    (alone, page)
}

/// What somebody else needs to run it again.
fn facts(rows: &[Row]) -> Vec<String> {
    let mut facts = machine::facts();
    let named = ["seed", "runtime", "simd", "repeat"].map(|name| (name, values(rows, name)));
    let named = named.into_iter().filter(|(_, value)| !value.is_empty());
    facts.push(named.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join("; "));
    facts.push(format!("pairs compared with: {}", values(rows, "checked_against")));
    facts
}

/// All values of a field, each once.
fn values(rows: &[Row], name: &str) -> String {
    let mut values: Vec<String> = Vec::new();
    for value in rows.iter().map(|row| row.text(name)).filter(|value| !value.is_empty()) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values.join(", ")
}

fn title(rows: &[Row]) -> String {
    let events = rows.first().and_then(|row| row.number("events")).unwrap_or_default();
    let [workload, api, repeat] = ["workload", "api", "repeat"].map(|name| values(rows, name));
    let events = show_count(events as u64);
    format!("CPU time an event: {workload}; {api}; {events} events; best of {repeat}")
}

/// Values that were swept are ticks, if they are few.
const TICKS_MAX: usize = 12;

/// Where ticks stand: at the values that were measured, if they are few.
fn ticks(series: &[Series], is_swept: bool) -> Vec<f64> {
    let mut values: Vec<f64> =
        series.iter().flat_map(|series| &series.points).map(|point| point.x).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    if is_swept && values.len() > TICKS_MAX { Vec::new() } else { values }
}

/// CPU time an event over what was swept, a line for each of the rest; where nothing with numbers
/// was, a bar a row.
fn chart(rows: &[Row]) -> Chart {
    let is_across =
        |name: &str| varies(rows, name) && rows.iter().all(|row| row.number(name).is_some());
    let across = ACROSS.into_iter().find(|(name, _)| is_across(name));
    let series = match across {
        Some((name, _)) => lines(rows, name),
        None => bars(rows),
    };
    let show: fn(f64) -> String = match across {
        // Ticks are sums of steps that are not exact, such as 0.2.
        Some(("skew", _)) => |value| format!("{}", (value * 1e6).round() / 1e6),
        _ => |value| if value.fract() == 0.0 { show_count(value as u64) } else { String::new() },
    };
    Chart {
        title: title(rows),
        x: AxisText {
            label: across.map_or("configuration, by its number", |(_, label)| label).to_owned(),
            scale: match across {
                Some((name, _)) => scale(&series, name),
                // Numbers of rows are no quantity.
                None => Scale::Linear,
            },
            ticks: ticks(&series, across.is_some()),
            show,
        },
        y: AxisText {
            label: "CPU ns an event".to_owned(),
            scale: Scale::FromZero,
            ticks: Vec::new(),
            // Of a few ns, ticks are parts of one.
            show: |value| format!("{}", (value * 1e3).round() / 1e3),
        },
        series,
        bounds: Vec::new(),
        marks: Vec::new(),
        caption: Vec::new(),
    }
}

fn scale(series: &[Series], across: &str) -> Scale {
    let values = series.iter().flat_map(|series| &series.points).map(|point| point.x);
    let (low, high) = values.fold((f64::INFINITY, 0.0), |(l, h), v| (v.min(l), v.max(h)));
    match across {
        _ if low > 0.0 && high / low >= LOG_FROM => Scale::Log,
        "skew" => Scale::Linear,
        _ => Scale::Whole,
    }
}

fn lines(rows: &[Row], across: &str) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let name = label(rows, row, across);
        let (Some(x), Some(y)) = (row.number(across), row.number("cpu_ns_per_event")) else {
            continue;
        };
        let point = Point { x, y, is_hollow: false };
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => series.push(Series { name, points: vec![point], form: Form::Line }),
        }
    }
    for line in &mut series {
        line.points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    series
}

fn bars(rows: &[Row]) -> Vec<Series> {
    let bar = |(row, place): (&Row, u32)| {
        let y = row.number("cpu_ns_per_event").unwrap_or_default();
        let points = vec![Point { x: f64::from(place), y, is_hollow: false }];
        Series { name: format!("{place}: {}", label(rows, row, "")), points, form: Form::Bars }
    };
    rows.iter().zip(1..).map(bar).collect()
}

/// What tells a row from the others, but for `across`.
fn label(rows: &[Row], row: &Row, across: &str) -> String {
    let names = [("workload", "workload"), ("api", "api"), ("cores", "cores")];
    let names = names.into_iter().chain(SWEPT);
    let differing = names.filter(|(name, _)| *name != across && varies(rows, name));
    // Numbers do not say what they are of.
    let part = |(name, heading)| match row.get(name) {
        Value::Null => None,
        Value::Number(number) => Some(format!("{heading} {number}")),
        _ => Some(row.text(name)),
    };
    let parts: Vec<String> = differing.filter_map(part).collect();
    if parts.is_empty() { row.text("workload") } else { parts.join(" ") }
}
