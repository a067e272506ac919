//! The figures of a bench as a chart, alone or on a page.

use serde_json::Value;

use crate::cli::bench::report::{Row, SWEPT, figures, varies};
use crate::cli::machine;
use crate::cli::plot::{AxisText, Chart, Form, Page, Part, Point, Scale, Series};
use crate::cli::text::{show_count, show_rate};

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

/// The chart with what it is of below it, and the page that has the figures and `notes` as well.
/// `stopped` says what was not measured, if the bench was ended early.
pub(super) fn plots(rows: &[Row], stopped: Option<&str>, notes: &[String]) -> (Chart, Page) {
    let facts = facts(rows);
    let mut parts: Vec<Part> =
        stopped.map(|told| Part::Verdict(told.to_owned(), false)).into_iter().collect();
    parts.extend(notes.iter().map(|note| Part::Verdict(format!("Note: {note}"), false)));
    // What more cores bring is seen in what they do together, in wall time.
    let figures_of: &[&Figure] = match across(rows) {
        Some(("cores", _)) => &[&EVENTS, &CPU],
        _ => &[&CPU],
    };
    let charts = figures_of.iter().map(|figure| {
        // The page's own title says what it is of.
        let title = figure.title.to_owned();
        Part::Chart(Box::new(Chart { title, ..chart(rows, figure) }))
    });
    parts.extend(charts);
    parts.push(Part::Table(figures(rows)));
    parts.extend([Part::Heading("How to read it".to_owned()), Part::List(reading())]);
    parts.extend([Part::Heading("What was run".to_owned()), Part::List(facts.clone())]);
    let mut alone = chart(rows, figures_of[0]);
    alone.title = format!("{}: {}", figures_of[0].title, title(rows));
    alone.caption = stopped.map(str::to_owned).into_iter().chain(notes.iter().cloned()).collect();
    alone.caption.extend(facts);
    (alone, Page { title: format!("Bench: {}", title(rows)), parts })
}

/// What is drawn.
struct Figure {
    title: &'static str,
    label: &'static str,
    /// Median, least and most over the repeats, if the row has them.
    of: fn(&Row) -> Option<[f64; 3]>,
    show: fn(f64) -> String,
}

const CPU: Figure = Figure {
    title: "CPU time an event",
    label: "CPU ns an event, of all threads: less is better",
    of: |row| {
        let names = ["cpu_ns_per_event_median", "cpu_ns_per_event", "cpu_ns_per_event_max"];
        let [median, least, most] = names.map(|name| row.number(name));
        Some([median?, least?, most?])
    },
    // Of a few ns, ticks are parts of one.
    show: |value| format!("{}", (value * 1e3).round() / 1e3),
};

const EVENTS: Figure = Figure {
    title: "Events a second",
    label: "events a second, of all cores, in wall time: more is better",
    of: |row| {
        let names = ["ns_per_event_median", "ns_per_event_max", "ns_per_event"];
        let rate = |name: &str| row.number(name).filter(|&ns| ns > 0.0).map(|ns| 1e9 / ns);
        let [median, least, most] = names.map(rate);
        Some([median?, least?, most?])
    },
    show: show_rate,
};

fn reading() -> Vec<String> {
    [
        "Drawn is the median of the repeats, with a whisker from the least to the most. Where the \
         whiskers of two rows overlap, the bench has shown no difference between them.",
        "The table's ns are the best repeat's, which the machine disturbed least; the median and \
         the spread (from best to worst, of the median) stand beside them.",
        "wall ns is the time that passed, an event; cpu ns the CPU time of all threads. On several \
         cores wall time falls and CPU time does not: events a second is what more cores bring.",
        "Pairs and checksum of all repeats are the same, or the bench fails.",
        "Compare rows of one page. Another day is another machine: bench --baseline looks at how \
         fast the machine was both times.",
    ]
    .map(str::to_owned)
    .to_vec()
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
    format!("{workload}; {api}; {events} events; median of {repeat}")
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

/// What stands along the axis, with its label.
fn across(rows: &[Row]) -> Option<(&'static str, &'static str)> {
    let is_across =
        |name: &str| varies(rows, name) && rows.iter().all(|row| row.number(name).is_some());
    ACROSS.into_iter().find(|(name, _)| is_across(name))
}

/// A figure over what was swept, a line for each of the rest; where nothing with numbers was, a bar
/// a row.
fn chart(rows: &[Row], figure: &Figure) -> Chart {
    let across = across(rows);
    let series = match across {
        Some((name, _)) => lines(rows, name, figure),
        None => bars(rows, figure),
    };
    let show: fn(f64) -> String = match across {
        // Ticks are sums of steps that are not exact, such as 0.2.
        Some(("skew", _)) => |value| format!("{}", (value * 1e6).round() / 1e6),
        _ => |value| if value.fract() == 0.0 { show_count(value as u64) } else { String::new() },
    };
    Chart {
        title: String::new(),
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
            label: figure.label.to_owned(),
            scale: Scale::FromZero,
            ticks: Vec::new(),
            show: figure.show,
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

fn point(row: &Row, x: f64, figure: &Figure) -> Option<Point> {
    let [y, least, most] = (figure.of)(row)?;
    Some(Point { x, y, is_hollow: false, range: Some((least, most)) })
}

fn lines(rows: &[Row], across: &str, figure: &Figure) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let name = label(rows, row, across);
        let at = row.number(across).and_then(|x| point(row, x, figure));
        let Some(point) = at else { continue };
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

fn bars(rows: &[Row], figure: &Figure) -> Vec<Series> {
    let bar = |(row, place): (&Row, u32)| {
        let points = point(row, f64::from(place), figure).into_iter().collect();
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
