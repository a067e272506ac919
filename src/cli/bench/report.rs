//! The figures of a bench: JSON, CSV and a table.

use serde_json::{Map, Value, json};

use crate::cli::bench::Config;
use crate::cli::bench::args::{NONE, OrNone};
use crate::cli::bench::baseline::gives_up;
use crate::cli::layout::AUTO;
use crate::cli::machine::{COMMIT, Machine};
use crate::cli::text::{show_count, show_decimal};
use crate::exchange::HotKeys;
use crate::runtime::RuntimeKind;
use crate::state::Simd;
use crate::workload::bench::{BenchPlan, BenchRow, FIRST_RUN, Spread};
use crate::workload::{KeyRule, Look, Workload};

/// One configuration's fields, in the order in which they are printed.
#[derive(Clone, Debug)]
pub(super) struct Row(Map<String, Value>);

impl Row {
    pub(super) fn new(config: &Config, row: &BenchRow, machine: &Machine) -> Row {
        let mut fields = Row(Map::new());
        fields.configuration(config, row);
        fields.figures(&config.plan, row);
        fields.extend([
            ("machine", json!(machine.cpu)),
            ("machine_cpus", json!(machine.cpus)),
            ("kernel", json!(machine.kernel)),
            ("version", json!(env!("CARGO_PKG_VERSION"))),
            ("commit", json!(COMMIT)),
        ]);
        fields
    }

    /// A row of a saved run. One of an older version gets the fields that it does not have: it can
    /// only be of a workload as it is named, and of the plain join.
    pub(super) fn saved(mut fields: Map<String, Value>) -> Row {
        let named = fields.get("workload").and_then(Value::as_str).and_then(Workload::by_name);
        let rate = fields.get("rate").and_then(Value::as_u64);
        let is_engine = fields.get("api").is_some_and(|api| api == "engine");
        let hot_keys = if is_engine { json!("auto") } else { Value::Null };
        let mut old = vec![("type", json!("inner")), ("match", json!("all")), ("chain", json!(0))];
        old.push(("hot_keys", hot_keys));
        old.extend([("bucket_width", json!(AUTO)), ("chunk", json!(AUTO)), ("reserve", json!(0))]);
        old.extend(["ttl", "max_rows", "max_state", "on_full"].map(|name| (name, json!(NONE))));
        if let Some(workload) = named {
            old.extend(shape(&rate.map_or(workload, |rate| workload.with_rate(rate))));
        }
        for (name, value) in old {
            fields.entry(name.to_owned()).or_insert(value);
        }
        Row(fields)
    }

    /// What was measured.
    fn configuration(&mut self, config: &Config, row: &BenchRow) {
        let plan = &config.plan;
        self.set("workload", json!(plan.workload.name));
        self.extend(shape(&plan.workload));
        self.extend([
            ("type", json!(format!("{:?}", plan.kind).to_lowercase())),
            ("match", json!(config.form)),
            ("chain", json!(plan.chain)),
            ("events", json!(row.events)),
            ("seed", json!(plan.seed)),
            ("api", json!(row.subject.name())),
            ("cores", json!(row.cores)),
            ("runtime", json!(row.runtime.map(RuntimeKind::name))),
            ("simd", json!(row.subject.simd().map(Simd::name))),
            ("hot_keys", json!(row.subject.hot_keys().map(hot_keys_name))),
            ("batch", json!(plan.batch)),
            ("bucket_width", json!(config.bucket_width.to_string())),
            ("chunk", plan.layout.chunk_bytes.map_or(json!(AUTO), |bytes| json!(bytes))),
            ("reserve", json!(plan.layout.reserve_bytes)),
            ("ttl", json!(config.bounds.ttl.to_string())),
            ("max_rows", bound(config.bounds.rows)),
            ("max_state", bound(config.bounds.bytes)),
            ("on_full", json!(config.bounds.on_full())),
            ("repeat", json!(row.repeat)),
            ("stopped", json!(row.repeat < plan.repeat)),
        ]);
    }

    /// What came of it.
    fn figures(&mut self, plan: &BenchPlan, row: &BenchRow) {
        let wall_s = row.ns_per_event.best * row.events as f64 / 1e9;
        let events_per_s = (row.events as f64 / wall_s).round();
        let has_spread = row.repeat > 1;
        let repeat_s = (wall_s * 1e6).round() / 1e6;
        self.extend(spread("ns_per_event", row.ns_per_event, has_spread));
        self.extend(spread("cpu_ns_per_event", row.cpu_ns_per_event, has_spread));
        self.extend([
            ("finish_cpu_ns_per_event", hundredths(row.finish_cpu_ns_per_event)),
            ("repeat_s", json!(repeat_s)),
            ("trust", json!(trust(row, wall_s))),
            ("events_per_s", json!(events_per_s)),
            ("events_per_s_per_core", json!((events_per_s / row.cores as f64).round())),
            ("pairs", json!(row.outcome.pairs)),
            ("checksum", json!(format!("{:016x}", row.outcome.checksum))),
            ("singles", json!(row.singles)),
            ("checked_against", json!(row.checked_against)),
            ("gives_up", json!(plan.bounds.give_up())),
            ("pairs_missing", json!(row.pairs_missing)),
            ("timed_out", json!(row.moved.timed_out)),
            ("shed", json!(row.moved.shed)),
            ("spilled", json!(row.moved.spilled)),
            ("keys_split", json!(row.keys_split)),
            ("copies", json!(row.copies)),
            ("state_rows_peak", json!(row.state_rows_peak)),
            ("state_bytes_peak", json!(row.state_bytes_peak)),
            ("index_bytes_peak", json!(row.index_bytes_peak)),
            ("bytes_per_buffered_row", hundredths(row.bytes_per_buffered_row())),
            ("step_ns_p50", json!(row.step_ns_p50)),
            ("step_ns_p99", json!(row.step_ns_p99)),
            ("step_ns_p999", json!(row.step_ns_p999)),
            ("step_ns_max", json!(row.step_ns_max)),
        ]);
        let yardstick = |of: fn(&Look) -> f64| row.yardstick.as_ref().map_or(0.0, of);
        self.extend([
            ("yardstick_near_ns", hundredths(yardstick(|look| look.near_ns))),
            ("yardstick_far_ns", hundredths(yardstick(|look| look.far_ns))),
            ("yardstick_wait", hundredths(yardstick(|look| look.wait))),
        ]);
        if plan.roofline {
            let roofline = row.roofline.as_ref();
            let ns = roofline.map_or(Value::Null, |roofline| hundredths(roofline.ns_per_event));
            self.set("roofline_ns", ns);
            self.set("roofline_table_bytes", json!(roofline.map(|roofline| roofline.table_bytes)));
            let ratio = row.ratio_to_roofline().map_or(Value::Null, hundredths);
            self.set("ratio_to_roofline", ratio);
        }
    }

    pub(super) fn set(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    fn extend(&mut self, fields: impl IntoIterator<Item = (&'static str, Value)>) {
        fields.into_iter().for_each(|(name, value)| self.set(name, value));
    }

    /// A field; null if there is none.
    pub(super) fn get(&self, name: &str) -> &Value {
        self.0.get(name).unwrap_or(&Value::Null)
    }

    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.get(name).as_f64()
    }

    /// A field as people read it; empty if there is none.
    pub(super) fn text(&self, name: &str) -> String {
        match self.get(name) {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }

    pub(super) fn json(&self) -> String {
        Value::Object(self.0.clone()).to_string()
    }

    pub(super) fn csv_header(&self) -> String {
        self.0.keys().map(String::as_str).collect::<Vec<_>>().join(",")
    }

    pub(super) fn csv(&self) -> String {
        // A window may have commas.
        let cell = |name: &String| match self.text(name) {
            text if text.contains([',', '"']) => format!("\"{}\"", text.replace('"', "\"\"")),
            text => text,
        };
        self.0.keys().map(cell).collect::<Vec<_>>().join(",")
    }
}

/// A repeat that takes less than this is measured with the first touches of its memory, one turn of
/// the scheduler and the clock's own steps in it.
const REPEAT_S_MIN: f64 = 0.1;
/// Repeats whose CPU time lies further apart than this share of the median tell of the machine.
const SPREAD_MAX: f64 = 0.15;

/// Whether a row's figures are worth comparing: `ok`, or why not.
fn trust(row: &BenchRow, wall_s: f64) -> &'static str {
    let is_unsteady = row.cpu_ns_per_event.share() > SPREAD_MAX;
    match (wall_s < REPEAT_S_MIN, is_unsteady) {
        (true, true) => "short, unsteady",
        (true, false) => "short",
        (false, true) => "unsteady",
        (false, false) => "ok",
    }
}

pub(in crate::cli) fn hot_keys_name(hot_keys: HotKeys) -> &'static str {
    match hot_keys {
        HotKeys::Auto => "auto",
        HotKeys::Off => "off",
        HotKeys::Forced => "force",
    }
}

/// What the events are, beside the workload's name.
pub(in crate::cli) fn shape(workload: &Workload) -> Vec<(&'static str, Value)> {
    let (keys, skew) = match workload.keys {
        KeyRule::Unique => (json!("unique"), 0),
        KeyRule::Uniform(count) => (json!(count), 0),
        KeyRule::Zipf(shape) => (json!(shape.keys), shape.exponent_hundredths),
    };
    let (lo, hi) = workload.between;
    vec![
        ("rate", json!(workload.rate)),
        ("keys", keys),
        ("skew", json!(f64::from(skew) / 100.0)),
        ("interval", json!(format!("{lo}ms..{hi}ms"))),
        ("disorder_ms", json!(workload.disorder_ms)),
        ("payload", json!(workload.payload_bytes)),
    ]
}

/// The best under the name itself, and how far the repeats lie apart, where there are several.
fn spread(name: &'static str, figure: Spread, has_spread: bool) -> [(&'static str, Value); 4] {
    let (median, worst, spread) = match name {
        "ns_per_event" => ("ns_per_event_median", "ns_per_event_max", "spread_percent"),
        _ => ("cpu_ns_per_event_median", "cpu_ns_per_event_max", "cpu_spread_percent"),
    };
    [
        (name, hundredths(figure.best)),
        (median, hundredths(figure.median)),
        (worst, hundredths(figure.worst)),
        (spread, if has_spread { hundredths(figure.share() * 100.0) } else { Value::Null }),
    ]
}

/// A number, or that there is none.
fn bound(bound: OrNone<u64>) -> Value {
    bound.0.map_or(json!(NONE), |bound| json!(bound))
}

pub(super) fn hundredths(value: f64) -> Value {
    json!((value * 100.0).round() / 100.0)
}

/// What can be swept, with headings: those that differ between rows are shown.
pub(super) const SWEPT: [(&str, &str); 20] = [
    ("type", "type"),
    ("match", "match"),
    ("chain", "chain"),
    ("rate", "rate"),
    ("keys", "keys"),
    ("skew", "skew"),
    ("interval", "interval"),
    ("disorder_ms", "disorder ms"),
    ("payload", "payload"),
    ("runtime", "runtime"),
    ("simd", "simd"),
    ("hot_keys", "hot keys"),
    ("batch", "batch"),
    ("bucket_width", "bucket width"),
    ("chunk", "chunk"),
    ("ttl", "ttl"),
    ("max_rows", "max rows"),
    ("max_state", "max state"),
    ("on_full", "on full"),
    ("repeat", "repeat"),
];

/// Rows that came out alone.
const SINGLES: &str = "singles";
/// Columns that are there where there are any such rows.
const SOME: [&str; 5] = [SINGLES, "pairs_missing", "timed_out", "shed", "spilled"];
const SPREAD: &str = "cpu_spread_percent";

/// A column of the table: heading, field, digits behind the point, and what a unit is of the field.
type Column = (&'static str, &'static str, usize, f64);

const FIGURES: [Column; 21] = [
    ("events", "events", 0, 1.0),
    ("pairs", "pairs", 0, 1.0),
    ("missing", "pairs_missing", 0, 1.0),
    (SINGLES, SINGLES, 0, 1.0),
    ("timed out", "timed_out", 0, 1.0),
    ("shed", "shed", 0, 1.0),
    ("spilled", "spilled", 0, 1.0),
    ("wall ns", "ns_per_event", 1, 1.0),
    ("cpu ns", "cpu_ns_per_event", 1, 1.0),
    ("cpu median", "cpu_ns_per_event_median", 1, 1.0),
    ("cpu spread %", SPREAD, 1, 1.0),
    ("roofline", "roofline_ns", 1, 1.0),
    ("ratio", "ratio_to_roofline", 1, 1.0),
    ("rows peak", "state_rows_peak", 0, 1.0),
    ("B/row", "bytes_per_buffered_row", 0, 1.0),
    ("step p50 us", "step_ns_p50", 1, 1e3),
    ("step p99.9 us", "step_ns_p999", 1, 1e3),
    ("step max us", "step_ns_max", 1, 1e3),
    ("before", "baseline_cpu_ns_per_event_median", 1, 1.0),
    ("change %", "change_percent", 1, 1.0),
    ("machine %", "machine_change_percent", 1, 1.0),
];

/// Whether a field is not the same in all rows. What a workload brings along by itself, and what a
/// row does not have, does not count.
pub(super) fn varies(rows: &[Row], name: &str) -> bool {
    let is_of_rows = ["workload", "api", "cores"].contains(&name);
    let differ = |a: &Row, b: &Row| {
        let (own, other) = (a.get(name), b.get(name));
        let are_alike = is_of_rows || a.get("workload") == b.get("workload");
        are_alike && own != other && !own.is_null() && !other.is_null()
    };
    rows.iter().any(|a| rows.iter().any(|b| differ(a, b)))
}

/// Nanoseconds are an event's, microseconds a step's; median and spread are those of the CPU time.
pub(super) fn table(rows: &[Row]) -> String {
    let (columns, texts) = columns(rows);
    lines(&columns, texts)
}

/// The same, a line a row, under a head.
pub(super) fn figures(rows: &[Row]) -> Vec<Vec<String>> {
    let (columns, _) = columns(rows);
    let line = |line: usize| columns.iter().map(|cells| cells[line].clone()).collect();
    (0..columns.first().map_or(0, Vec::len)).map(line).collect()
}

/// The columns of the table, each with its heading, and how many of them are text.
fn columns(rows: &[Row]) -> (Vec<Vec<String>>, usize) {
    let has = |name: &str| match name {
        _ if SOME.contains(&name) => rows.iter().any(|row| row.number(name) > Some(0.0)),
        // One repeat has none, which is worth a look.
        SPREAD => true,
        _ => rows.iter().any(|row| !row.get(name).is_null()),
    };
    let mut columns: Vec<Vec<String>> = Vec::new();
    let mut texts = 0;
    let mut add_text = |heading: &str, name: &str| {
        let cell = |row: &Row| match row.get(name).as_u64() {
            Some(count) => show_count(count),
            None => Some(row.text(name)).filter(|text| !text.is_empty()).unwrap_or("-".to_owned()),
        };
        let cells = rows.iter().map(cell);
        columns.push(std::iter::once(heading.to_owned()).chain(cells).collect());
        texts += 1;
    };
    add_text("workload", "workload");
    add_text("api", "api");
    add_text("cores", "cores");
    SWEPT.iter().filter(|(name, _)| varies(rows, name)).for_each(|(name, h)| add_text(h, name));
    for (heading, name, digits, unit) in FIGURES {
        if has(name) || name.starts_with("step") {
            let cell = |row: &Row| {
                let value = row.number(name).map(|value| show_decimal(value / unit, digits));
                value.unwrap_or_else(|| "-".to_owned())
            };
            columns
                .push(std::iter::once(heading.to_owned()).chain(rows.iter().map(cell)).collect());
        }
    }
    if !untrusted(rows).is_empty() {
        let cells = rows.iter().map(|row| row.text("trust"));
        columns.push(std::iter::once("trust".to_owned()).chain(cells).collect());
    }
    if rows.iter().any(|row| !row.get("verdict").is_null()) {
        let cells = rows.iter().map(verdict);
        columns.push(std::iter::once("verdict".to_owned()).chain(cells).collect());
    }
    (columns, texts)
}

/// What is to be said of all of them.
pub(super) fn notes(rows: &[Row]) -> Vec<String> {
    let known = [unchecked(rows), fewer(rows), without_spread(rows)];
    known.into_iter().flatten().map(str::to_owned).chain(untrusted(rows)).collect()
}

/// What is to be said where figures are not to be relied on.
fn untrusted(rows: &[Row]) -> Vec<String> {
    let of = |why: &str| rows.iter().filter(|row| row.text("trust").contains(why)).count();
    let mut notes = Vec::new();
    let all = rows.len();
    if let short @ 1.. = of("short") {
        notes.push(format!(
            "{short} of {all} rows are of repeats shorter than {:.0} ms (trust: short), too short \
             to be relied on; give more --events",
            REPEAT_S_MIN * 1e3
        ));
    }
    if let unsteady @ 1.. = of("unsteady") {
        notes.push(format!(
            "the repeats of {unsteady} of {all} rows lie more than {:.0} % apart (trust: \
             unsteady), so differences of that size say nothing; give more --events, or a quieter \
             machine",
            SPREAD_MAX * 100.0
        ));
    }
    notes
}

/// What is to be said where pairs were compared with nothing but themselves.
fn unchecked(rows: &[Row]) -> Option<&'static str> {
    rows.iter().any(|row| row.text("checked_against") == FIRST_RUN).then_some(
        "pairs and checksums were compared between the runs only, as no outcome is known of this \
         size; --check compares them with an offline join",
    )
}

/// What is to be said where rows were given up.
fn fewer(rows: &[Row]) -> Option<&'static str> {
    rows.iter().any(gives_up).then_some(
        "--ttl and --on-full shed give rows up, so their pairs may be fewer, and others in each \
         run: they are those of the first one",
    )
}

/// A verdict as people read it, with what makes it worth less.
fn verdict(row: &Row) -> String {
    let verdict = match row.text("verdict") {
        none if ["busier", "quieter"].contains(&none.as_str()) => {
            format!("machine {none}: no verdict")
        }
        verdict => verdict,
    };
    let mut told = Vec::new();
    let noise = row.text("noise_percent");
    if !noise.is_empty() {
        told.push(format!("{noise} % noise"));
    }
    let differs = row.text("baseline_differs");
    told.extend(differs.split(", ").filter(|name| !name.is_empty()).map(|n| format!("other {n}")));
    // Nothing to compare with.
    let nearest = row.text("baseline_nearest");
    if !nearest.is_empty() {
        told.push(nearest);
    }
    if told.is_empty() { verdict } else { format!("{verdict} ({})", told.join("; ")) }
}

/// What is to be said where there was one repeat.
fn without_spread(rows: &[Row]) -> Option<&'static str> {
    rows.iter().any(|row| row.get("repeat") == 1).then_some(
        "one repeat: no spread, so nobody knows how far the figures would lie apart; --repeat 3",
    )
}

/// Lays columns side by side: the first `texts` to the left, the others to the right.
fn lines(columns: &[Vec<String>], texts: usize) -> String {
    let widths: Vec<usize> =
        columns.iter().map(|cells| cells.iter().map(String::len).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for line in 0..columns.first().map_or(0, Vec::len) {
        let mut written = String::new();
        for (column, (cells, &width)) in columns.iter().zip(&widths).enumerate() {
            let cell = &cells[line];
            let gap = if column == 0 { "" } else { "  " };
            written.push_str(&match column < texts {
                true => format!("{gap}{cell:<width$}"),
                false => format!("{gap}{cell:>width$}"),
            });
        }
        text.push_str(written.trim_end());
        text.push('\n');
    }
    text
}
