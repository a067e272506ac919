//! The figures of a bench as a chart.

use serde_json::Value;

use crate::cli::bench::report::{Row, SWEPT, varies};
use crate::cli::plot::{AxisText, Chart, Form, Point, Scale, Series};

/// What can stand along the axis, if it was swept: the first that was.
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

/// CPU time an event over what was swept, a line for each of the rest; where nothing with numbers
/// was, a bar a row.
pub(super) fn chart(rows: &[Row]) -> Chart {
    let is_across =
        |name: &str| varies(rows, name) && rows.iter().all(|row| row.number(name).is_some());
    let across = ACROSS.into_iter().find(|(name, _)| is_across(name));
    let series = match across {
        Some((name, _)) => lines(rows, name),
        None => bars(rows),
    };
    let show: fn(f64) -> String = match across {
        // Ticks are sums of steps that are not exact, such as 0.2.
        Some(_) => |value| format!("{}", (value * 1e6).round() / 1e6),
        None => |value| if value.fract() == 0.0 { value.to_string() } else { String::new() },
    };
    let events = rows.first().map(|row| row.text("events")).unwrap_or_default();
    Chart {
        title: format!("CPU time an event, {events} events, best of the repeats"),
        x: AxisText {
            label: across.map_or("configuration, by its number", |(_, label)| label).to_owned(),
            scale: match across {
                Some(_) => scale(&series, |point| point.x),
                // Numbers of rows are no quantity.
                None => Scale::Linear,
            },
            show,
        },
        y: AxisText {
            label: "ns an event".to_owned(),
            scale: match across {
                Some(_) => scale(&series, |point| point.y),
                None => Scale::FromZero,
            },
            show: |value| format!("{value:.0}"),
        },
        series,
        bounds: Vec::new(),
        marks: Vec::new(),
    }
}

fn scale(series: &[Series], value: fn(&Point) -> f64) -> Scale {
    let values = series.iter().flat_map(|series| &series.points).map(value);
    let (low, high) = values.fold((f64::INFINITY, 0.0), |(l, h), v| (v.min(l), v.max(h)));
    if low > 0.0 && high / low >= LOG_FROM { Scale::Log } else { Scale::Linear }
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
