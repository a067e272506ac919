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
const IDENTITY: [&str; 24] = [
    "workload",
    "rate",
    "keys",
    "skew",
    "interval",
    "disorder_ms",
    "payload",
    "type",
    "match",
    "chain",
    "events",
    "seed",
    "api",
    "cores",
    "runtime",
    "hot_keys",
    "batch",
    "bucket_width",
    "chunk",
    "reserve",
    "ttl",
    "max_rows",
    "max_state",
    "on_full",
];

/// Of fewer repeats nobody knows how far they would lie apart.
pub(super) const REPEATS_MIN: u64 = 3;

impl Baseline {
    /// Reads what `bench --output-format json` printed. Lines without a workload (a head that says
    /// where and when) are passed over.
    ///
    /// # Errors
    /// [`Failure`] says what is wrong with the file, and where.
    pub(super) fn read(path: &Path) -> Result<Baseline, Failure> {
        let about = |what: &dyn std::fmt::Display| format!("--baseline {}: {what}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::failed(about(&format_args!(
                "{error}; save a run first, with the same options but --baseline, as intervale \
                 bench ... --output-format json > {}",
                path.display()
            )))
        })?;
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

    /// Adds the verdict to a row: `faster`, `slower` or `same`; `busier` or `quieter` where the
    /// machine changed by as much; `unknown` where either has too few repeats or no yardstick, and
    /// `new` where the file has no such row.
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
            row.set("baseline_differs", Value::Null);
            row.set("baseline_nearest", json!(self.nearest(row)));
            row.set("verdict", json!("new"));
            return Ok(());
        };
        // Where rows are given up each run may find others.
        let same = if gives_up(row) { &[][..] } else { &["pairs", "checksum", "singles"] };
        for name in same {
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
        let machine = Machine::between(row, saved);
        let (change, noise, verdict) = match (now, before) {
            (Some(now), Some(before)) => {
                let verdict = machine.map_or("unknown", |machine| now.verdict(&before, machine));
                (Some(now.change(&before)), Some(now.noise(&before)), verdict)
            }
            _ => (None, None, "unknown"),
        };
        let median = before.map(|times| times.median);
        let figure = |value: Option<f64>| value.map_or(Value::Null, hundredths);
        let machine = machine.map(|machine| machine.change(verdict));
        for (name, value) in FIELDS.into_iter().zip([median, change, noise, machine]) {
            row.set(name, figure(value));
        }
        let others = others(row, saved);
        row.set("baseline_differs", json!((!others.is_empty()).then(|| others.join(", "))));
        row.set("baseline_nearest", Value::Null);
        row.set("verdict", json!(verdict));
        Ok(())
    }

    /// In what the saved row that is most like this one differs from it.
    fn nearest(&self, row: &Row) -> String {
        let differing = |saved: &Row| -> Vec<String> {
            let names = IDENTITY.iter().filter(|name| row.get(name) != saved.get(name));
            let text = |row: &Row, name| match row.text(name) {
                text if text.is_empty() => "none".to_owned(),
                text => text,
            };
            names
                .map(|name| format!("{name} {}, saved {}", text(row, name), text(saved, name)))
                .collect()
        };
        let nearest = self.rows.iter().map(differing).min_by_key(Vec::len).unwrap_or_default();
        match nearest.len() {
            0..=NEAREST_MAX => nearest.join("; "),
            more => {
                format!("{}; {} more", nearest[..NEAREST_MAX].join("; "), more - NEAREST_MAX)
            }
        }
    }

    /// What scripts ask for: a failure if a row is slower, or if none could be compared.
    ///
    /// # Errors
    /// [`Failure::Failed`] names the rows.
    pub(super) fn gate(&self, rows: &[Row]) -> Result<(), Failure> {
        let of = |verdict: &str| -> Vec<&Row> {
            rows.iter().filter(|row| row.text("verdict") == verdict).collect()
        };
        let (slower, path) = (of("slower"), self.path.display());
        if !slower.is_empty() {
            let name = |row: &&Row| format!("{} by {}", row.text("workload"), row.text("api"));
            return Err(Failure::failed(format!(
                "--fail-if-slower: {} of {} rows slower than in {path} ({})",
                slower.len(),
                rows.len(),
                slower.iter().map(name).collect::<Vec<_>>().join(", ")
            )));
        }
        let (new, unknown) = (of("new").len(), of("unknown").len());
        if new + unknown == rows.len() {
            return Err(Failure::failed(format!(
                "--fail-if-slower: no row could be compared with {path} ({new} new, {unknown} \
                 unknown), so nobody knows; save a run of this configuration, of {REPEATS_MIN} \
                 repeats, with this version"
            )));
        }
        Ok(())
    }
}

/// Whether a row is of a join whose bounds give rows up.
pub(super) fn gives_up(row: &Row) -> bool {
    row.get("gives_up") == &Value::Bool(true)
}

/// Fields that say how the nearest row differs, of those that do.
const NEAREST_MAX: usize = 3;

/// What is not part of a configuration and makes another figure all the same, where both rows say
/// it and do not say the same.
fn others(row: &Row, saved: &Row) -> Vec<&'static str> {
    let differ = |name: &str| {
        let (now, before) = (row.get(name), saved.get(name));
        now != before && !now.is_null() && !before.is_null()
    };
    let groups: [(&str, &[&str]); 3] = [
        ("simd", &["simd"]),
        ("machine", &["machine", "machine_cpus", "kernel"]),
        ("version", &["version", "commit"]),
    ];
    let differing = groups.into_iter().filter(|(_, names)| names.iter().any(|name| differ(name)));
    differing.map(|(group, _)| group).collect()
}

const FIELDS: [&str; 4] = [
    "baseline_cpu_ns_per_event_median",
    "change_percent",
    "noise_percent",
    "machine_change_percent",
];

/// How much slower the machine was than in the saved run: what its yardsticks then took, times
/// this, they take now. They do not agree, so there is a least and a most.
#[derive(Clone, Copy, Debug)]
struct Machine {
    least: f64,
    most: f64,
}

impl Machine {
    /// `None` where either has no yardstick.
    fn between(row: &Row, saved: &Row) -> Option<Machine> {
        let ratio = |name| {
            let (now, before) = (row.number(name)?, saved.number(name)?);
            (now > 0.0 && before > 0.0).then(|| now / before)
        };
        let mut ratios = vec![ratio("yardstick_near_ns")?, ratio("yardstick_far_ns")?];
        // A lone thread's CPU time does not count what it waits; workers that look for work do.
        if row.text("api") != "join" {
            ratios.push(ratio("yardstick_wait")?);
        }
        Some(Machine {
            least: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            most: ratios.iter().copied().fold(0.0, f64::max),
        })
    }

    /// Of the yardstick that the verdict is because of, else of the one that changed most, in
    /// percent.
    fn change(self, verdict: &str) -> f64 {
        let ratio = match verdict {
            "busier" => self.most,
            "quieter" => self.least,
            _ if self.most >= 1.0 / self.least => self.most,
            _ => self.least,
        };
        (ratio - 1.0) * 100.0
    }
}

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

    /// What a machine that is slower by so much would have made of them.
    fn times(&self, by: f64) -> Times {
        Times { best: self.best * by, median: self.median * by, worst: self.worst * by }
    }

    /// Whether all repeats are above all of the other's, and the change from these is above the
    /// noise.
    fn is_slower(&self, before: &Times) -> bool {
        self.best > before.worst && self.change(before) > self.noise(before)
    }

    fn is_faster(&self, before: &Times) -> bool {
        before.is_slower(self)
    }

    /// A difference must be there as measured, and still be there when the machine's is taken out.
    fn verdict(&self, before: &Times, machine: Machine) -> &'static str {
        let on_slower = before.times(machine.most.max(1.0));
        let on_faster = before.times(machine.least.min(1.0));
        let moved = |by: f64| (by - 1.0).abs() * 100.0 > self.noise(before);
        match () {
            () if self.is_slower(before) && !self.is_slower(&on_slower) => "busier",
            () if self.is_slower(before) => "slower",
            () if self.is_faster(before) && !self.is_faster(&on_faster) => "quieter",
            () if self.is_faster(before) => "faster",
            // As fast as on a machine that was faster, or slower.
            () if moved(machine.most) && self.is_faster(&on_slower) => "busier",
            () if moved(machine.least) && self.is_slower(&on_faster) => "quieter",
            () => "same",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(best: f64, median: f64, worst: f64) -> Times {
        Times { best, median, worst }
    }

    const UNCHANGED: Machine = Machine { least: 1.0, most: 1.0 };

    #[test]
    fn rows_differ_when_all_their_repeats_do_by_more_than_the_noise() {
        let before = times(100.0, 104.0, 110.0);
        for (now, verdict) in [
            (times(80.0, 85.0, 88.0), "faster"),
            (times(80.0, 90.0, 101.0), "same"),
            // Apart by chance: the change is 13 %, and repeats of one run differ by 21 %.
            (times(80.0, 90.0, 99.0), "same"),
            (times(109.0, 120.0, 130.0), "same"),
            (times(102.0, 103.0, 104.0), "same"),
            (times(111.0, 113.0, 125.0), "same"),
            (times(118.0, 120.0, 130.0), "slower"),
        ] {
            assert_eq!(now.verdict(&before, UNCHANGED), verdict, "{now:?}");
        }
        let now = times(50.0, 52.0, 54.6);
        assert_eq!(now.change(&before), -50.0);
        assert!((now.noise(&before) - 1_000.0 / 104.0).abs() < 1e-9, "the larger of both");
    }

    #[test]
    fn what_the_machine_did_is_no_verdict_on_the_join() {
        let before = times(100.0, 101.0, 102.0);
        let (slow, fast, like) =
            (times(128.0, 130.0, 131.0), times(77.0, 78.0, 79.0), times(100.0, 101.0, 102.0));
        for (now, least, most, verdict) in [
            (slow, 1.0, 1.02, "slower"),
            (slow, 0.9, 1.1, "slower"),
            // One of the yardsticks took as much longer.
            (slow, 1.0, 1.3, "busier"),
            (slow, 1.0, 2.0, "busier"),
            (fast, 0.99, 1.0, "faster"),
            (fast, 0.75, 1.0, "quieter"),
            (fast, 1.0, 1.5, "faster"),
            (like, 0.985, 1.015, "same"),
            (like, 1.0, 1.3, "busier"),
            (like, 0.8, 1.0, "quieter"),
        ] {
            assert_eq!(now.verdict(&before, Machine { least, most }), verdict, "{least} {most}");
        }
        let machine = Machine { least: 0.5, most: 1.4 };
        let change = |verdict| machine.change(verdict).round();
        assert_eq!(["same", "busier", "quieter"].map(change), [-50.0, 40.0, -50.0]);
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
    const LOOKS: &str = ", \"yardstick_near_ns\": 4, \"yardstick_far_ns\": 9.5, \
        \"yardstick_wait\": 1.0";

    #[test]
    fn what_makes_another_figure_is_named_and_the_nearest_row_as_well() {
        let of = |fields: &str| {
            row(&format!("{TIMED}{LOOKS}, \"simd\": \"avx2\", \"machine\": \"a\", {fields}"))
        };
        let judged = |saved: Vec<Row>| {
            let mut now = of("\"kernel\": \"6.1\", \"version\": \"1\"");
            Baseline { path: "saved".into(), rows: saved }.judge(&mut now).unwrap();
            now
        };
        for (saved, differs) in [
            ("\"kernel\": \"6.1\", \"version\": \"1\"", ""),
            ("\"kernel\": \"6.2\", \"version\": \"1\"", "machine"),
            ("\"kernel\": \"6.2\", \"version\": \"2\"", "machine, version"),
            // Of a version that did not say so.
            ("\"kernel\": null", ""),
        ] {
            let now = judged(vec![of(saved)]);
            assert_eq!(
                (now.text("verdict"), now.text("baseline_differs")),
                ("same".into(), differs.into())
            );
        }
        let mut scalar = of("\"kernel\": \"6.1\"");
        scalar.set("simd", json!("scalar"));
        assert_eq!(judged(vec![scalar.clone()]).text("baseline_differs"), "simd");
        // The nearest is the one with fewest differences, not the first.
        let mut far = scalar;
        ["batch", "seed", "events", "api"].into_iter().for_each(|name| far.set(name, json!(1)));
        let mut near = far.clone();
        ["seed", "events", "api"].into_iter().for_each(|name| {
            near.set(name, of("\"kernel\": null").get(name).clone());
        });
        let now = judged(vec![far.clone(), near]);
        assert_eq!(now.text("baseline_nearest"), "batch 256, saved 1");
        let now = judged(vec![far]);
        let nearest = now.text("baseline_nearest");
        assert_eq!(nearest, "events 4, saved 1; seed 42, saved 1; api join, saved 1; 1 more");
        assert_eq!(now.text("baseline_differs"), "");
    }

    #[test]
    fn scripts_are_told_by_a_failure() {
        let baseline = Baseline { path: "saved".into(), rows: vec![row("")] };
        let of = |verdicts: &[&str]| {
            let row = |verdict: &&str| {
                let mut row = row("");
                row.set("verdict", json!(verdict));
                row
            };
            baseline.gate(&verdicts.iter().map(row).collect::<Vec<_>>())
        };
        for good in [&["same"][..], &["faster", "busier"], &["busier"], &["new", "same"]] {
            assert_eq!(of(good), Ok(()), "{good:?}");
        }
        for (bad, told) in [
            (&["same", "slower"][..], "1 of 2 rows slower than in saved (w2 by join)"),
            (&["new", "unknown"], "no row could be compared with saved (1 new, 1 unknown)"),
        ] {
            let failure = of(bad).unwrap_err();
            assert_eq!(failure.exit_code(), 1);
            assert!(failure.message().unwrap().contains(told), "{failure:?}");
        }
    }

    #[test]
    fn a_row_is_compared_with_its_like_only() {
        let baseline = |saved| Baseline { path: "saved".into(), rows: vec![saved] };
        let timed = format!("{TIMED}{LOOKS}");
        let mut now = row(&timed);
        baseline(row(&timed)).judge(&mut now).unwrap();
        assert_eq!(now.text("verdict"), "same");
        assert_eq!(now.number("machine_change_percent"), Some(0.0));
        // A run of a version that did not look at the machine.
        baseline(row(TIMED)).judge(&mut now).unwrap();
        assert_eq!(now.text("verdict"), "unknown");
        assert_eq!(now.number("change_percent"), Some(0.0));
        // A run of a version that did not write medians.
        baseline(row(", \"repeat\": 3, \"cpu_ns_per_event\": 10.0")).judge(&mut now).unwrap();
        assert_eq!(now.text("verdict"), "unknown");
        for other in [
            ", \"type\": \"left\"",
            ", \"payload\": 8",
            ", \"ttl\": \"5s\"",
            ", \"on_full\": \"spill\"",
            ", \"match\": \"first\"",
        ] {
            baseline(row(&format!("{TIMED}{other}"))).judge(&mut now).unwrap();
            assert_eq!(now.text("verdict"), "new", "{other}");
        }
        assert_eq!(now.text("baseline_nearest"), "match all, saved first");
        let failure = baseline(row(", \"singles\": 3")).judge(&mut row(", \"singles\": 2"));
        let failure = failure.unwrap_err();
        // Rows that were given up are not the same ones in two runs.
        let lossy = |singles: u64| row(&format!(", \"gives_up\": true, \"singles\": {singles}"));
        assert_eq!(baseline(lossy(3)).judge(&mut lossy(2)), Ok(()));
        assert!(failure.message().unwrap().contains("singles of w2 by join"), "{failure:?}");
    }
}
