//! What follows from the measurements: settings for shares of the pairs, a histogram, a chart.

use serde_json::{Value, json};

use crate::cli::Failure;
use crate::cli::calibrate::measure::{Measured, quantile, shortest};
use crate::cli::join::show_size;
use crate::cli::machine;
use crate::cli::plot::{AxisText, Chart, Form, Point, Scale, Series};
use crate::cli::text::{columns_right, show_count};
use crate::event::Side;
use crate::time::Interval;
use crate::time::text::{TimeSpan, TimeUnit};

/// Settings that hold a share of the pairs.
#[derive(Clone, Copy, Debug)]
struct Suggestion {
    share: f64,
    interval: Interval,
    /// By side.
    disorder: [i64; 2],
    match_rate: f64,
    state_rows: f64,
    state_bytes: f64,
}

/// All of them, the smallest share first.
pub(super) struct Suggestions {
    unit: TimeUnit,
    all: Vec<Suggestion>,
}

const SHARES: [f64; 7] = [0.5, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999];
/// The one that is said in a sentence, and marked in the chart.
const SHARE_SHOWN: f64 = 0.99;
/// Bytes that a buffered row takes beside its key and text, about.
const ROW_OVERHEAD_BYTES: f64 = 100.0;
/// Bars of the histogram in the terminal, and of the chart.
const BARS_TEXT: usize = 20;
const BARS_CHART: usize = 80;
/// Letters of the longest bar.
const BAR_LETTERS: f64 = 40.0;
/// The histogram leaves out this share at either end: a stray would flatten everything else.
const CUT: f64 = 0.005;

impl Suggestions {
    pub(super) fn new(measured: &Measured, unit: TimeUnit) -> Result<Suggestions, Failure> {
        let all = SHARES.map(|share| {
            let (lo, hi) = shortest(&measured.nearest, share).unwrap_or((0, 0));
            let (lo, hi) = (-round_up(lo.saturating_neg()), round_up(hi));
            let interval = Interval::closed(lo, hi);
            let interval = interval.map_err(|error| Failure::failed(error.to_string()))?;
            let disorder =
                measured.behind.each_ref().map(|behind| round_up(quantile(behind, share)));
            let state = measured.state_rows(interval, disorder);
            let bytes =
                |side: usize| state[side] * (measured.bytes_per_row[side] + ROW_OVERHEAD_BYTES);
            Ok::<Suggestion, Failure>(Suggestion {
                share,
                interval,
                disorder,
                match_rate: measured.match_rate(interval, disorder),
                state_rows: state[0] + state[1],
                state_bytes: bytes(0) + bytes(1),
            })
        });
        Ok(Suggestions { unit, all: all.into_iter().collect::<Result<_, _>>()? })
    }

    fn span(&self, ticks: i64) -> String {
        TimeSpan::from_ticks(ticks, self.unit).to_string()
    }

    fn between(&self, interval: Interval) -> String {
        format!("{}..{}", self.span(interval.lo()), self.span(interval.hi()))
    }

    pub(super) fn json(&self, measured: &Measured) -> Value {
        let deltas = deltas(measured);
        let of = |ascending: &[i64]| -> Value {
            let named = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)];
            let mut object = serde_json::Map::new();
            object.insert("min".to_owned(), json!(quantile(ascending, 0.0)));
            for (name, share) in named {
                object.insert(name.to_owned(), json!(quantile(ascending, share)));
            }
            object.insert("max".to_owned(), json!(quantile(ascending, 1.0)));
            Value::Object(object)
        };
        let suggestion = |suggestion: &Suggestion| {
            json!({
                "share": suggestion.share,
                "between": self.between(suggestion.interval),
                "left_out_of_orderness": self.span(suggestion.disorder[0]),
                "right_out_of_orderness": self.span(suggestion.disorder[1]),
                "match_rate": suggestion.match_rate,
                "state_rows": suggestion.state_rows.round(),
                "state_bytes": suggestion.state_bytes.round(),
            })
        };
        let per_s = self.unit.ticks_per_second() as f64;
        json!({
            "time_unit": self.unit.name(),
            "left_rows": measured.behind[0].len(),
            "right_rows": measured.behind[1].len(),
            "left_with_partner": measured.nearest.len(),
            "left_rows_per_s": measured.rows_per_tick[0] * per_s,
            "right_rows_per_s": measured.rows_per_tick[1] * per_s,
            "delta": of(&deltas),
            "left_behind": of(&measured.behind[0]),
            "right_behind": of(&measured.behind[1]),
            "suggestions": self.all.iter().map(suggestion).collect::<Vec<_>>(),
        })
    }

    pub(super) fn text(&self, measured: &Measured) -> String {
        let mut text = String::new();
        for side in Side::BOTH {
            let behind = &measured.behind[side.index()];
            let out_of_order = behind.len() - behind.partition_point(|&ticks| ticks <= 0);
            let per_s = measured.rows_per_tick[side.index()] * self.unit.ticks_per_second() as f64;
            text.push_str(&format!(
                "{:<6} {} rows, {per_s:.1} a second of their time; {} out of order, by {} at \
                 most\n",
                side.name(),
                show_count(behind.len() as u64),
                show_count(out_of_order as u64),
                self.span(quantile(behind, 1.0))
            ));
        }
        text.push_str(&format!(
            "{} of {} left rows with a key have a partner; right.time - left.time to the \
             nearest:\n\n",
            show_count(measured.nearest.len() as u64),
            show_count(measured.rows_with_key[0])
        ));
        text.push_str(&self.histogram(measured));
        text.push('\n');
        text.push_str(&self.table());
        if let Some(shown) = self.shown() {
            text.push_str(&format!(
                "\nFor {} % of the pairs:\n  --between {} --left-out-of-orderness {} \
                 --right-out-of-orderness {}\n",
                SHARE_SHOWN * 100.0,
                self.between(shown.interval),
                self.span(shown.disorder[0]),
                self.span(shown.disorder[1])
            ));
        }
        text
    }

    fn shown(&self) -> Option<&Suggestion> {
        self.all.iter().find(|suggestion| suggestion.share == SHARE_SHOWN)
    }

    fn table(&self) -> String {
        let head = ["pairs", "--between", "--left-oo", "--right-oo", "matched", "rows", "state"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        for suggestion in &self.all {
            lines.push(vec![
                format!("P{}", (suggestion.share * 1e4).round() / 1e2),
                self.between(suggestion.interval),
                self.span(suggestion.disorder[0]),
                self.span(suggestion.disorder[1]),
                format!("{:.2} %", suggestion.match_rate * 100.0),
                show_count(suggestion.state_rows.round() as u64),
                show_size(suggestion.state_bytes.round() as u64),
            ]);
        }
        format!(
            "{}\n(--left-oo, --right-oo: --left-out-of-orderness, --right-out-of-orderness)\n",
            columns_right(&lines).join("\n")
        )
    }

    fn histogram(&self, measured: &Measured) -> String {
        let bars = bars(&deltas(measured), BARS_TEXT);
        let most = bars.iter().map(|bar| bar.count).max().unwrap_or(1).max(1);
        let labels: Vec<String> = bars.iter().map(|bar| self.span(bar.from)).collect();
        let width = labels.iter().map(String::len).max().unwrap_or(0);
        let mut text = String::new();
        for (bar, label) in bars.iter().zip(labels) {
            let letters = (bar.count as f64 / most as f64 * BAR_LETTERS).ceil() as usize;
            let line = format!("{label:>width$}  {:<40}  {}", "#".repeat(letters), bar.count);
            text.push_str(&format!("{line}\n"));
        }
        text
    }

    pub(super) fn chart(&self, measured: &Measured) -> Chart {
        // Charts show seconds, whatever the unit of the files.
        let seconds = |ticks: i64| ticks as f64 / self.unit.ticks_per_second() as f64;
        let bars = bars(&deltas(measured), BARS_CHART);
        let point = |bar: &Bar| Point {
            x: (seconds(bar.from) + seconds(bar.to)) / 2.0,
            y: bar.count as f64,
            is_hollow: false,
            range: None,
        };
        let mut marks = Vec::new();
        if let Some(shown) = self.shown() {
            for end in [shown.interval.lo(), shown.interval.hi()] {
                marks.push((seconds(end), format!("P99: {}", self.span(end))));
            }
        }
        Chart {
            title: "From left rows to their nearest right rows".to_owned(),
            x: AxisText {
                label: "right.time - left.time, seconds".to_owned(),
                scale: Scale::Linear,
                ticks: Vec::new(),
                show: |value| ((value * 1e6).round() / 1e6).to_string(),
            },
            y: AxisText {
                label: "left rows".to_owned(),
                scale: Scale::FromZero,
                ticks: Vec::new(),
                show: |value| show_count(value.max(0.0).round() as u64),
            },
            series: vec![Series {
                name: "left rows".to_owned(),
                points: bars.iter().map(point).collect(),
                form: Form::Bars,
            }],
            bounds: Vec::new(),
            marks,
            caption: machine::facts(),
        }
    }
}

fn deltas(measured: &Measured) -> Vec<i64> {
    measured.nearest.iter().map(|pair| pair.delta).collect()
}

/// Values from `from` on, before `to` (the last bar: up to it).
struct Bar {
    from: i64,
    to: i64,
    count: usize,
}

/// Ascending values, the ends cut off, in bars of equal width.
fn bars(ascending: &[i64], bar_count: usize) -> Vec<Bar> {
    let (low, high) = (quantile(ascending, CUT), quantile(ascending, 1.0 - CUT));
    let range = i128::from(high) - i128::from(low);
    let bar_count = usize::try_from(range + 1).unwrap_or(bar_count).min(bar_count);
    // Between `low` and `high`, so within `i64`.
    let edge = |index: usize| {
        let part = (range + 1) * index as i128 / bar_count as i128;
        (i128::from(low) + part).min(i128::from(i64::MAX)) as i64
    };
    let below = |value: i64| ascending.partition_point(|&other| other < value);
    (0..bar_count)
        .map(|index| {
            let (from, to) = (edge(index), edge(index + 1));
            Bar { from, to, count: below(to) - below(from) }
        })
        .collect()
}

/// The next number from `value` up that has two significant digits: 1,234 to 1,300, -1,234 to
/// -1,200.
fn round_up(value: i64) -> i64 {
    let mut step = 1i64;
    while value.unsigned_abs() / step.unsigned_abs() >= 100 {
        step *= 10;
    }
    let rest = value.rem_euclid(step);
    if rest == 0 { value } else { value.saturating_add(step - rest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_away_from_what_they_hold() {
        for (value, rounded) in
            [(0, 0), (99, 99), (100, 100), (1_234, 1_300), (-1_234, -1_200), (-5, -5)]
        {
            assert_eq!(round_up(value), rounded, "{value}");
        }
        assert!(round_up(i64::MAX) == i64::MAX && round_up(i64::MIN) < 0);
    }

    #[test]
    fn bars_hold_every_value_between_the_cuts() {
        let values: Vec<i64> = (0..1_000).collect();
        let split = bars(&values, 10);
        assert_eq!(split.len(), 10);
        assert_eq!(split.iter().map(|bar| bar.count).sum::<usize>(), 991);
        let one = bars(&[5, 5, 5], 20);
        assert_eq!((one.len(), one[0].from, one[0].count), (1, 5, 3));
        let wide = bars(&[i64::MIN + 1, 0, i64::MAX], 4);
        assert_eq!(wide.len(), 4);
    }
}
