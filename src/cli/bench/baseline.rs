//! A saved run to compare with.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::Failure;
use crate::cli::bench::report::{Row, hundredths};

/// The rows of a saved run.
pub(super) struct Baseline {
    path: PathBuf,
    rows: Vec<Row>,
}

/// Rows that agree in these are of the same configuration.
const IDENTITY: [&str; 17] = [
    "workload",
    "rate",
    "keys",
    "skew",
    "interval",
    "disorder_ms",
    "payload",
    "type",
    "match",
    "events",
    "seed",
    "api",
    "cores",
    "runtime",
    "batch",
    "bucket_width",
    "chunk",
];

/// Of fewer repeats nobody knows how far they would lie apart.
const REPEATS_MIN: u64 = 3;

impl Baseline {
    /// Reads what `bench --output-format json` printed. Lines without a workload (a head that says
    /// where and when) are passed over.
    ///
    /// # Errors
    /// [`Failure`] says what is wrong with the file, and where.
    pub(super) fn read(path: &Path) -> Result<Baseline, Failure> {
        let about = |what: &dyn std::fmt::Display| format!("--baseline {}: {what}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| Failure::failed(about(&error)))?;
        let mut rows = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            match serde_json::from_str(line) {
                Ok(Value::Object(fields)) if fields.contains_key("cpu_ns_per_event") => {
                    rows.push(Row::saved(fields));
                }
                Ok(Value::Object(_)) => {}
                _ if line.trim().is_empty() => {}
                _ => {
                    return Err(Failure::failed(about(&format_args!(
                        "line {number} is no JSON object; save a run with --output-format json"
                    ))));
                }
            }
        }
        if rows.is_empty() {
            return Err(Failure::failed(about(
                &"it has no row of a bench; save a run with --output-format json",
            )));
        }
        Ok(Baseline { path: path.to_owned(), rows })
    }

    /// Adds the verdict to a row: `faster`, `slower` or `same`; `unknown` where either has too few
    /// repeats, and `new` where the file has no such row.
    ///
    /// # Errors
    /// [`Failure::Failed`] when the saved run found other pairs.
    pub(super) fn judge(&self, row: &mut Row) -> Result<(), Failure> {
        // The instruction set may have been chosen by the machine: preferred, not required.
        let alike = |saved: &&Row| IDENTITY.iter().all(|name| row.get(name) == saved.get(name));
        let alike: Vec<&Row> = self.rows.iter().filter(alike).collect();
        let same_simd = alike.iter().find(|saved| saved.get("simd") == row.get("simd"));
        let Some(saved) = same_simd.or_else(|| alike.first()) else {
            for name in FIELDS {
                row.set(name, Value::Null);
            }
            row.set("verdict", json!("new"));
            return Ok(());
        };
        for name in ["pairs", "checksum", "singles"] {
            let (now, before) = (row.get(name), saved.get(name));
            if now != before && !before.is_null() {
                return Err(Failure::failed(format!(
                    "--baseline {}: {name} of {} by {}: {before} there, {now} now; one of the two \
                     joins is wrong, so there is nothing to compare",
                    self.path.display(),
                    row.text("workload"),
                    row.text("api")
                )));
            }
        }
        let (now, before) = (Times::of(row), Times::of(saved));
        let median = before.map(|times| times.median);
        let (change, noise, verdict) = match (now, before) {
            (Some(now), Some(before)) => {
                (Some(now.change(&before)), Some(now.noise(&before)), now.verdict(&before))
            }
            _ => (None, None, "unknown"),
        };
        let figure = |value: Option<f64>| value.map_or(Value::Null, hundredths);
        for (name, value) in FIELDS.into_iter().zip([median, change, noise]) {
            row.set(name, figure(value));
        }
        row.set("verdict", json!(verdict));
        Ok(())
    }
}

const FIELDS: [&str; 3] = ["baseline_cpu_ns_per_event_median", "change_percent", "noise_percent"];

/// CPU times of the repeats of a row.
#[derive(Clone, Copy, Debug)]
struct Times {
    best: f64,
    median: f64,
    worst: f64,
}

impl Times {
    /// Of a row that has enough of them.
    fn of(row: &Row) -> Option<Times> {
        let repeats = row.get("repeat").as_u64().filter(|&repeats| repeats >= REPEATS_MIN);
        repeats.and(Some(Times {
            best: row.number("cpu_ns_per_event")?,
            median: row.number("cpu_ns_per_event_median")?,
            worst: row.number("cpu_ns_per_event_max")?,
        }))
    }

    /// From the other's median to this one's, in percent.
    fn change(&self, before: &Times) -> f64 {
        (self.median / before.median - 1.0) * 100.0
    }

    /// The larger of both spreads, in percent of its median.
    fn noise(&self, before: &Times) -> f64 {
        let spread = |times: &Times| (times.worst - times.best) / times.median * 100.0;
        spread(self).max(spread(before))
    }

    /// The same where repeats of one lie among those of the other.
    fn verdict(&self, before: &Times) -> &'static str {
        if self.worst < before.best {
            "faster"
        } else if self.best > before.worst {
            "slower"
        } else {
            "same"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(best: f64, median: f64, worst: f64) -> Times {
        Times { best, median, worst }
    }

    #[test]
    fn rows_differ_when_all_their_repeats_do() {
        let before = times(100.0, 104.0, 110.0);
        for (now, verdict) in [
            (times(80.0, 90.0, 99.0), "faster"),
            (times(80.0, 90.0, 101.0), "same"),
            (times(109.0, 120.0, 130.0), "same"),
            (times(102.0, 103.0, 104.0), "same"),
            (times(111.0, 120.0, 130.0), "slower"),
        ] {
            assert_eq!(now.verdict(&before), verdict, "{now:?}");
        }
        let now = times(50.0, 52.0, 54.6);
        assert_eq!(now.change(&before), -50.0);
        assert!((now.noise(&before) - 1_000.0 / 104.0).abs() < 1e-9, "the larger of both");
    }

    fn row(extra: &str) -> Row {
        let line = format!(
            "{{\"workload\": \"w2\", \"rate\": 2000, \"events\": 4, \"seed\": 42, \
             \"api\": \"join\", \"cores\": 1, \"runtime\": null, \"batch\": 256, \
             \"pairs\": 7, \"checksum\": \"0f\"{extra}}}"
        );
        Row::saved(serde_json::from_str(&line).unwrap())
    }

    const TIMED: &str = ", \"repeat\": 3, \"cpu_ns_per_event\": 10.0, \
        \"cpu_ns_per_event_median\": 11.0, \"cpu_ns_per_event_max\": 12.0";

    #[test]
    fn a_row_is_compared_with_its_like_only() {
        let baseline = |saved| Baseline { path: "saved".into(), rows: vec![saved] };
        let mut now = row(TIMED);
        baseline(row(TIMED)).judge(&mut now).unwrap();
        assert_eq!(now.text("verdict"), "same");
        // A run of a version that did not write medians.
        baseline(row(", \"repeat\": 3, \"cpu_ns_per_event\": 10.0")).judge(&mut now).unwrap();
        assert_eq!(now.text("verdict"), "unknown");
        for other in [", \"type\": \"left\"", ", \"payload\": 8", ", \"match\": \"first\""] {
            baseline(row(&format!("{TIMED}{other}"))).judge(&mut now).unwrap();
            assert_eq!(now.text("verdict"), "new", "{other}");
        }
        let failure = baseline(row(", \"singles\": 3")).judge(&mut row(", \"singles\": 2"));
        let failure = failure.unwrap_err();
        assert!(failure.message().unwrap().contains("singles of w2 by join"), "{failure:?}");
    }
}
