//! `--soak`: whether memory, state or latency grow over a long run.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::Failure;
use crate::cli::join::show_size;
use crate::cli::load::args::wall;
use crate::cli::text::{columns_right, show_ns};
use crate::time::text::TimeSpan;
use crate::workload::load::{LoadPlan, LoadRun, Sample, Scenario, Trend, Verdict, trend};

/// Options of a soak.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Soak")]
pub(in crate::cli) struct SoakArgs {
    /// Looks at memory, state and latency over time, and says whether they grow over the second
    /// half of the run; exit status 1 if memory or state does, or if the run is too short to say
    #[arg(long)]
    soak: bool,
    /// How often to look [default: 240 times in all, and every 100ms at most]
    #[arg(long, value_name = "DURATION", requires = "soak")]
    sample_every: Option<TimeSpan>,
    /// By how much memory and state may grow over the second half, in percent; latency's p99 by
    /// five times as much
    #[arg(
        long, value_name = "PERCENT", default_value = "5", requires = "soak",
        value_parser = percent
    )]
    growth_max: f64,
}

const LATENCY: &str = "latency_p99";
const TOO_SHORT: &str = "too_short";
const SAMPLES: u32 = 240;
const SAMPLE_EVERY_MIN: Duration = Duration::from_millis(100);
/// Latency depends on what else the machine does, so it gets more room, and is no failure.
const LATENCY_ROOM: f64 = 5.0;
/// State has its size after so many times as long as a row is kept. Rows are freed by the bucket,
/// and buckets may have become several times as wide as that (5.5 were seen, on w2): state in use
/// is a saw, and the memory of the first bucket that goes waits in a pool until the next one is
/// made, so that memory grows for one tooth more.
const ROUNDS: f64 = 8.0;

impl SoakArgs {
    pub(super) fn is_on(&self) -> bool {
        self.soak
    }

    pub(super) fn sample_every(&self, duration: Duration) -> Result<Duration, Failure> {
        let Some(span) = self.sample_every else {
            return Ok((duration / SAMPLES).max(SAMPLE_EVERY_MIN));
        };
        let every = wall("--sample-every", span)?;
        if every < Duration::from_millis(1) {
            return Err(Failure::usage("--sample-every: give 1ms or more"));
        }
        Ok(every)
    }

    /// Judges the samples of a run.
    pub(super) fn judge(&self, plan: &LoadPlan, run: &LoadRun) -> Soak {
        Soak::new(plan, run, self.growth_max / 100.0)
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let percent: Option<f64> = text.strip_suffix('%').unwrap_or(text).parse().ok();
    let good = percent.filter(|percent| (0.0..=1e6).contains(percent));
    good.ok_or("give percent, such as 5".to_owned())
}

/// Bytes of state that hold rows: what only waits to be used again is no growth of state, and is
/// bounded by it.
pub(super) fn in_use(sample: &Sample) -> u64 {
    sample.state_bytes.saturating_sub(sample.state_bytes_pooled)
}

/// What a soak came to.
pub(super) struct Soak {
    /// Where the second half begins.
    from: Duration,
    samples: usize,
    /// How long it was to be.
    planned: Duration,
    growth_max: f64,
    /// How long it takes until state has its size.
    fill: Duration,
    series: Vec<Series>,
}

struct Series {
    name: &'static str,
    title: &'static str,
    growth_max: f64,
    trend: Trend,
    show: fn(u64) -> String,
    /// Whether growth is a failure.
    fails: bool,
}

impl Soak {
    fn new(plan: &LoadPlan, run: &LoadRun, growth_max: f64) -> Soak {
        let from = run.due / 2;
        // What comes after the last event was due is the end of the load, not the load.
        let in_half = |sample: &&Sample| sample.at >= from && sample.at <= run.due;
        let half: Vec<&Sample> = run.samples.iter().filter(in_half).collect();
        let series = |name, title, growth_max, show, of: &dyn Fn(&Sample) -> Option<u64>| {
            let points: Vec<(f64, f64)> = half
                .iter()
                .filter_map(|sample| Some((sample.at.as_secs_f64(), of(sample)? as f64)))
                .collect();
            let fails = name != LATENCY;
            Series { name, title, growth_max, trend: trend(&points, growth_max), show, fails }
        };
        let latency_max = growth_max * LATENCY_ROOM;
        let p99 = |sample: &Sample| sample.latency_ns.map(|latency| latency[1]);
        let size: fn(u64) -> String = show_size;
        Soak {
            from,
            samples: half.len(),
            planned: plan.duration,
            growth_max,
            fill: fill(plan),
            series: vec![
                series("rss", "memory (RSS)", growth_max, size, &|sample| sample.rss_bytes),
                series("state", "state in use", growth_max, size, &|sample| Some(in_use(sample))),
                series(LATENCY, "latency p99", latency_max, show_ns, &p99),
            ],
        }
    }

    /// Whether the second half begins before state has its size.
    fn is_too_short(&self) -> bool {
        self.from < self.fill
    }

    /// Why it is no success, if it is none: something grows that should not, or nobody knows.
    pub(super) fn failure(&self) -> Option<String> {
        if [TOO_SHORT, Verdict::TooFew.name()].contains(&self.verdict()) {
            return Some(format!("the soak has no verdict: {}", self.conclusion().0));
        }
        let failing = self.growing().filter(|series| series.fails);
        let failing: Vec<&str> = failing.map(|series| series.title).collect();
        (!failing.is_empty())
            .then(|| format!("{} grew over the second half of the soak", failing.join(", ")))
    }

    /// The verdict of a row: none where the run is too short for any.
    fn verdict_of(&self, series: &Series) -> &'static str {
        if self.is_too_short() { TOO_SHORT } else { series.trend.verdict.name() }
    }

    fn growing(&self) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(|series| series.trend.verdict == Verdict::Grows)
    }

    /// What it comes to, in a word for scripts.
    fn verdict(&self) -> &'static str {
        let any = |verdict| self.series.iter().any(|series| series.trend.verdict == verdict);
        match () {
            () if self.is_too_short() => TOO_SHORT,
            () if any(Verdict::Grows) => Verdict::Grows.name(),
            () if any(Verdict::TooFew) => Verdict::TooFew.name(),
            () if any(Verdict::Unclear) => Verdict::Unclear.name(),
            () => Verdict::Steady.name(),
        }
    }

    /// What it comes to, for people, and whether that is good.
    pub(super) fn conclusion(&self) -> (String, bool) {
        match self.verdict() {
            TOO_SHORT => {
                let needed = Duration::from_secs((2.0 * self.fill.as_secs_f64()).ceil() as u64);
                let advice = match self.planned >= needed {
                    true => format!("let it run for {needed:.0?} at least"),
                    false => format!("give --duration {needed:.0?} or more"),
                };
                let fill = self.fill;
                let told = "at this rate until it has its size";
                (format!("too short to say: state takes up to {fill:.1?} {told}; {advice}"), false)
            }
            "grows" => {
                let titles: Vec<&str> = self.growing().map(|series| series.title).collect();
                (format!("growth: {}", titles.join(", ")), false)
            }
            "too_few" => ("too few samples to say; give a longer --duration".to_owned(), false),
            "unclear" => {
                let is_unclear = |series: &&Series| series.trend.verdict == Verdict::Unclear;
                let titles: Vec<&str> =
                    self.series.iter().filter(is_unclear).map(|series| series.title).collect();
                let titles = titles.join(", ");
                let told = "may grow, within the noise; the rest is steady. Run longer";
                (format!("unclear: {titles} {told}"), false)
            }
            _ => ("steady: nothing grows".to_owned(), true),
        }
    }

    /// The figures, in rows under a head.
    pub(super) fn figures(&self) -> Vec<Vec<String>> {
        let head = ["", "median", "growth", "limit", "noise", "verdict"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for series in &self.series {
            let Series { title, growth_max, trend, show, .. } = series;
            let [median, growth, noise] = match trend.verdict {
                Verdict::TooFew => ["-", "-", "-"].map(str::to_owned),
                _ => [
                    show(trend.median as u64),
                    format!("{:+.1} %", trend.growth * 100.0),
                    format!("{:.1} %", trend.noise * 100.0),
                ],
            };
            let limit = format!("{:.1} %", growth_max * 100.0);
            let verdict = self.verdict_of(series).replace('_', " ");
            rows.push(vec![(*title).to_owned(), median, growth, limit, noise, verdict]);
        }
        rows
    }

    pub(super) fn text(&self) -> String {
        let mut rows = self.figures();
        // Names begin at the left, all figures end at the right.
        let width = rows.iter().map(|row| row[0].len()).max().unwrap_or(0);
        rows.iter_mut().for_each(|row| row[0] = format!("{:<width$}", row[0]));
        format!(
            "\nsoak, the second half (from {:.1?} on, {} samples):\n{}\n{}\n",
            self.from,
            self.samples,
            columns_right(&rows).join("\n"),
            self.conclusion().0
        )
    }

    pub(super) fn json(&self) -> Value {
        let mut object = json!({
            "from_s": self.from.as_secs_f64(),
            "samples": self.samples,
            "growth_max": self.growth_max,
            "fill_s": self.fill.as_secs_f64(),
            "verdict": self.verdict(),
        });
        for series in &self.series {
            let Series { name, growth_max, trend, .. } = series;
            object[*name] = json!({
                "median": trend.median,
                "slope_per_s": trend.slope_per_s,
                "growth": trend.growth,
                "growth_max": growth_max,
                "noise": trend.noise,
                "verdict": self.verdict_of(series),
            });
        }
        object
    }
}

/// How long it takes at most, at the rate of the plan, until state has its size.
fn fill(plan: &LoadPlan) -> Duration {
    let workload = &plan.workload;
    let (lo, hi) = workload.between;
    let more_ms = match plan.scenario {
        Scenario::Disorder { by_ms, .. } => by_ms,
        _ => 0,
    };
    let kept_ms = hi.max(lo.saturating_neg()).max(0) as f64
        + (workload.disorder_ms + workload.right_delay_ms + more_ms) as f64;
    let per_side = (plan.rate / 2.0).max(f64::MIN_POSITIVE);
    Duration::try_from_secs_f64(ROUNDS * kept_ms / 1e3 * workload.rate as f64 / per_side)
        .unwrap_or(Duration::MAX)
}

/// The samples, as JSON.
pub(super) fn samples_json(samples: &[Sample]) -> Value {
    let object = |sample: &Sample| {
        let latency = |index: usize| sample.latency_ns.map(|latency| latency[index]);
        json!({
            "at_s": sample.at.as_secs_f64(),
            "rss_bytes": sample.rss_bytes,
            "state_bytes": sample.state_bytes,
            "state_bytes_pooled": sample.state_bytes_pooled,
            "state_rows": sample.state_rows,
            "pairs": sample.pairs,
            "p50_ns": latency(0),
            "p99_ns": latency(1),
            "max_ns": latency(2),
        })
    };
    samples.iter().map(object).collect()
}
