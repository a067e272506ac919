//! The closing report: what went in, what came out, what it took.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::cli::join::size::show_size;
use crate::cli::text::{columns_right, show_count, show_ns, show_rate};
use crate::event::{Side, stream_name};
use crate::join::SideCounters;
use crate::time::text::TimeUnit;

/// Rows of one side by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SideRows {
    /// On time, late, bad and without key together.
    pub(super) rows: u64,
    pub(super) on_time: u64,
    /// `None` where rows were copied, as it is not known then.
    pub(super) matched: Option<u64>,
    pub(super) late: u64,
    pub(super) bad: u64,
    pub(super) null_key: u64,
    /// Of all of them, those further ahead than `--max-jump`.
    pub(super) jumped: u64,
    /// Of those on time, the ones that outlived `--ttl`.
    pub(super) timed_out: u64,
    /// Of those on time, the ones that were given up for want of room.
    pub(super) shed: u64,
    /// Of these, the ones that had no match by then.
    pub(super) shed_unmatched: u64,
    /// Of those on time and copies, the ones that were put into files.
    pub(super) spilled: u64,
}

impl SideRows {
    /// From what the shards counted and the rows that never reached one.
    pub(super) fn new(counts: &SideCounters, bad: u64, jumped: u64) -> SideRows {
        SideRows {
            rows: counts.rows + bad,
            on_time: counts.on_time,
            matched: counts.matched_rows().map(|(matched, _)| matched),
            late: counts.late,
            bad,
            null_key: counts.null_key,
            jumped,
            timed_out: counts.timed_out,
            shed: counts.shed,
            shed_unmatched: counts.shed_unmatched,
            spilled: counts.spilled,
        }
    }

    fn unmatched(&self) -> Option<u64> {
        self.matched.map(|matched| self.on_time.saturating_sub(matched))
    }

    fn put(&self, side: Side, mut put: impl FnMut(&str, Value) -> Option<Value>) {
        let fields = [
            ("matched", self.matched),
            ("unmatched", self.unmatched()),
            ("late", Some(self.late)),
            ("bad", Some(self.bad)),
            ("null_key", Some(self.null_key)),
            ("jumped", Some(self.jumped)),
            ("timed_out", Some(self.timed_out)),
            ("shed", Some(self.shed)),
            ("shed_unmatched", Some(self.shed_unmatched)),
            ("spilled", Some(self.spilled)),
        ];
        for (name, count) in fields {
            put(&format!("{}_{name}", side.name()), json!(count));
        }
    }
}

/// What one of several stages did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StageRows {
    /// By [`Side::index`]. Left rows of a further stage are what came out of the one before.
    pub(super) sides: [SideRows; 2],
    pub(super) pairs: u64,
    /// Rows that came out by themselves.
    pub(super) padded: u64,
    /// Left rows of a further stage that came too late for their key.
    pub(super) behind: u64,
    pub(super) state_rows_peak: u64,
    pub(super) state_bytes_peak: u64,
    pub(super) state_bytes_reserved: u64,
    pub(super) watermark: Option<i64>,
}

impl StageRows {
    fn json(&self, stage: usize) -> Value {
        let mut object = Map::new();
        let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
        put("stage", json!(stage));
        put("stream", json!(stream_name(stage + 1)));
        for side in Side::BOTH {
            put(&format!("{}_rows", side.name()), json!(self.sides[side.index()].rows));
        }
        put("pairs", json!(self.pairs));
        put("rows_out", json!(self.pairs + self.padded));
        for side in Side::BOTH {
            self.sides[side.index()].put(side, &mut put);
        }
        put("left_behind", json!(self.behind));
        put("state_rows_peak", json!(self.state_rows_peak));
        put("state_bytes_peak", json!(self.state_bytes_peak));
        put("state_bytes_reserved", json!(self.state_bytes_reserved));
        put("watermark", json!(self.watermark));
        Value::Object(object)
    }
}

/// How long it took from a pair's second row to its hand-over to the sink, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Latency {
    pub(super) p50: u64,
    pub(super) p90: u64,
    pub(super) p99: u64,
    pub(super) p999: u64,
    pub(super) max: u64,
}

/// Everything the report says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Report {
    /// By [`Side::index`].
    pub(super) sides: [SideRows; 2],
    pub(super) pairs: u64,
    /// How often a key that was too much for one core was split, and rows that were copied for it.
    pub(super) hot_keys_split: u64,
    pub(super) rows_copied: u64,
    /// Rows written to the output, its header not counted.
    pub(super) rows_out: u64,
    /// Rows that were found, and given up when the run was stopped.
    pub(super) rows_not_written: u64,
    pub(super) state_rows_peak: u64,
    pub(super) state_bytes_peak: u64,
    /// Memory that was taken before the first row.
    pub(super) state_bytes_reserved: u64,
    pub(super) rss_bytes_peak: u64,
    /// The last finite one, in ticks.
    pub(super) watermark: Option<i64>,
    pub(super) unit: TimeUnit,
    pub(super) elapsed_s: f64,
    pub(super) cpu_s: f64,
    pub(super) cores: usize,
    pub(super) runtime: String,
    pub(super) simd: String,
    pub(super) latency: Option<Latency>,
    /// Ctrl-C or SIGTERM ended the run.
    pub(super) interrupted: bool,
    /// Of a join of more than two streams.
    pub(super) stages: Vec<StageRows>,
}

impl Report {
    /// The rows of each stream: left, right, the further ones.
    pub(super) fn streams(&self) -> impl Iterator<Item = &SideRows> {
        let further = self.stages.iter().skip(1).map(|stage| &stage.sides[Side::Right.index()]);
        self.sides.iter().chain(further)
    }

    /// The rows of each stage and side that were in state.
    fn buffered(&self) -> impl Iterator<Item = &SideRows> {
        let first = if self.stages.is_empty() { &self.sides[..] } else { &[] };
        first.iter().chain(self.stages.iter().flat_map(|stage| &stage.sides))
    }

    /// Rows that were given up for want of room.
    pub(super) fn rows_shed(&self) -> u64 {
        self.buffered().map(|side| side.shed).sum()
    }

    /// Of these, the ones that had no match by then.
    pub(super) fn rows_shed_unmatched(&self) -> u64 {
        self.buffered().map(|side| side.shed_unmatched).sum()
    }

    fn rows_in(&self) -> u64 {
        self.streams().map(|stream| stream.rows).sum()
    }

    fn rows_per_s(&self) -> f64 {
        if self.elapsed_s > 0.0 { self.rows_in() as f64 / self.elapsed_s } else { 0.0 }
    }

    /// Matched left rows of those that were on time; none without such rows.
    fn match_rate(&self) -> Option<f64> {
        let left = &self.sides[Side::Left.index()];
        share(left.matched?, left.on_time)
    }

    /// Late rows of all rows; none without rows.
    fn late_rate(&self) -> Option<f64> {
        share(self.streams().map(|stream| stream.late).sum(), self.rows_in())
    }

    /// The report as one JSON object on one line.
    pub(super) fn json(&self) -> String {
        let mut object = Map::new();
        let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
        for side in Side::BOTH {
            put(&format!("{}_rows", side.name()), json!(self.sides[side.index()].rows));
        }
        put("pairs", json!(self.pairs));
        put("rows_out", json!(self.rows_out));
        put("rows_not_written", json!(self.rows_not_written));
        for side in Side::BOTH {
            self.sides[side.index()].put(side, &mut put);
        }
        put("hot_keys_split", json!(self.hot_keys_split));
        put("rows_copied", json!(self.rows_copied));
        put("match_rate", json!(self.match_rate()));
        put("late_rate", json!(self.late_rate()));
        put("state_rows_peak", json!(self.state_rows_peak));
        put("state_bytes_peak", json!(self.state_bytes_peak));
        put("state_bytes_reserved", json!(self.state_bytes_reserved));
        put("rss_bytes_peak", json!(self.rss_bytes_peak));
        put("watermark", json!(self.watermark));
        put("time_unit", json!(self.unit.name()));
        put("elapsed_s", json!(micro(self.elapsed_s)));
        put("rows_per_s", json!(self.rows_per_s().round()));
        put("cpu_s", json!(micro(self.cpu_s)));
        put("cores", json!(self.cores));
        put("runtime", json!(self.runtime));
        put("simd", json!(self.simd));
        put("latency_ns", self.latency.map_or(Value::Null, latency_json));
        put("interrupted", json!(self.interrupted));
        if !self.stages.is_empty() {
            let stages = (0..).zip(&self.stages).map(|(stage, rows)| rows.json(stage));
            put("stages", stages.collect());
        }
        let mut line = Value::Object(object).to_string();
        line.push('\n');
        line
    }

    /// What became of rows for want of room or time.
    fn room_lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        let timed_out = self.buffered().map(|side| side.timed_out).sum();
        if timed_out > 0 {
            lines.push(("timed out", format!("{} rows after --ttl", show_count(timed_out))));
        }
        let spilled = self.buffered().map(|side| side.spilled).sum();
        if spilled > 0 {
            let or_copies = if self.rows_copied > 0 { ", copies among them" } else { "" };
            let rows = show_count(spilled);
            lines.push(("spilled", format!("{rows} rows to files{or_copies}")));
        }
        if self.rows_shed() > 0 {
            let (shed, unmatched) = (self.rows_shed(), self.rows_shed_unmatched());
            let without = format!("{} of them without a match", show_count(unmatched));
            lines.push(("shed", format!("{} rows, {without}", show_count(shed))));
        }
        lines
    }

    /// The report for people.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |label: &str, value: String| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{label:<15} {value}");
        };
        let names = self.streams().enumerate().map(|(stream, _)| stream_name(stream));
        let mut table = vec![names.collect::<Vec<_>>()];
        for pick in [
            |side: &SideRows| Some(side.rows),
            |side: &SideRows| side.matched,
            |side: &SideRows| side.unmatched(),
            |side: &SideRows| Some(side.late),
            |side: &SideRows| Some(side.bad),
            |side: &SideRows| Some(side.null_key),
        ] {
            let cell = |side| pick(side).map_or("-".to_owned(), show_count);
            table.push(self.streams().map(cell).collect());
        }
        let labels = ["", "rows in", "matched", "unmatched", "late", "bad", "without key"];
        for (label, cells) in labels.into_iter().zip(columns_right(&table)) {
            line(label, cells);
        }
        for (stage, rows) in self.stages.iter().enumerate() {
            let joined = show_count(rows.pairs + rows.padded);
            line(&format!("with {}", stream_name(stage + 1)), format!("{joined} rows joined"));
        }
        line("pairs", show_count(self.pairs));
        line("rows out", show_count(self.rows_out));
        line("match rate", show_share(self.match_rate(), "of the left rows on time"));
        line("late rate", show_share(self.late_rate(), "of all rows"));
        line("watermark", self.watermark.map_or("-".to_owned(), |ticks| self.unit.format(ticks)));
        let bytes = show_size(self.state_bytes_peak);
        line("state peak", format!("{} rows, {bytes}", show_count(self.state_rows_peak)));
        if self.state_bytes_reserved > 0 {
            line("state reserved", show_size(self.state_bytes_reserved));
        }
        line("memory peak", show_size(self.rss_bytes_peak));
        line("latency", self.latency.map_or("-".to_owned(), show_latency));
        let rate = show_rate(self.rows_per_s());
        line("time", format!("{:.3} s, CPU {:.3} s, {rate} rows/s", self.elapsed_s, self.cpu_s));
        let cores = match self.cores {
            1 => "1 core".to_owned(),
            count => format!("{count} cores"),
        };
        line("ran on", format!("{cores}, {}, simd {}", self.runtime, self.simd));
        let jumped = self.streams().map(|stream| stream.jumped).sum();
        if jumped > 0 {
            line("jumped", format!("{} rows further ahead than --max-jump", show_count(jumped)));
        }
        for (label, value) in self.room_lines() {
            line(label, value);
        }
        if self.hot_keys_split > 0 {
            let (split, copied) = (show_count(self.hot_keys_split), show_count(self.rows_copied));
            line("hot keys", format!("split {split} times; {copied} rows copied, matched or not"));
        }
        if self.rows_not_written > 0 {
            line("not written", show_count(self.rows_not_written));
        }
        if self.interrupted {
            line("", "stopped early: rows still buffered count as unmatched".to_owned());
        }
        // Cells that are empty at the end of a line leave no blanks behind.
        text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn show_share(share: Option<f64>, of_what: &str) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.4} % {of_what}", share * 100.0))
}

fn show_latency(latency: Latency) -> String {
    let Latency { p50, p90, p99, p999, max } = latency;
    [("p50", p50), ("p90", p90), ("p99", p99), ("p99.9", p999), ("max", max)]
        .map(|(name, ns)| format!("{name} {}", show_ns(ns)))
        .join(", ")
}

fn latency_json(latency: Latency) -> Value {
    let Latency { p50, p90, p99, p999, max } = latency;
    json!({ "p50": p50, "p90": p90, "p99": p99, "p999": p999, "max": max })
}

/// Seconds to the microsecond.
fn micro(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests;
