//! What the user typed after `intervale load`, and what it resolves to.

use std::time::Duration;

use clap::ValueEnum;

use crate::cli::Failure;
use crate::cli::bench::{closed_ms, count, workload};
use crate::cli::choices::{HotKeysChoice, Idle, Runtime, SimdChoice};
use crate::cli::layout::LayoutArgs;
use crate::cli::load::scenario::ScenarioArgs;
use crate::cli::load::soak::SoakArgs;
use crate::cli::number::whole;
use crate::cli::plot::PlotFile;
use crate::cli::shape::{ShapeArgs, event_rate};
use crate::cli::text::show_span;
use crate::limits::{LANE_BATCHES_DEFAULT, LANE_BATCHES_MAX};
use crate::runtime::{CoreChoice, Topology};
use crate::state::Simd;
use crate::time::text::{IntervalText, TimeSpan};
use crate::workload::load::{LoadPlan, Pace, Scenario};
use crate::workload::{EngineSetup, Workload};

const EXAMPLES: &str = "\
Examples:
  intervale load --workload w2 --rate 100_000 --duration 2s
  intervale load --workload w1a --rates 1e5,2e5,4e5 --duration 1s --cores 1 --plot load.html
  intervale load --workload w2 --rate 50_000 --duration 1s --scenario all
  intervale load --workload free --keys 5000 --skew 1.2 --disorder 2s --payload 100 \\
      --rate 50_000 --duration 1s --burst 200ms,5

Open loop: event k is due at start + k / rate, whether or not the engine keeps up, and latency runs
from when a pair's later event was due to when the sink has the pair. Rates count both sides.
A rate is kept up with when the last event is joined at most 1 % of the duration (or 20 ms) after
the end. Latency includes --linger, how late producers are by themselves (shown beside it), and what
else the machine does.

Pairs and checksum of a load of up to 2 million events (of any with --check) that was pushed whole
are compared with an offline join of the same events; a join that finds other pairs ends with exit
status 1. Percentiles are of the pairs measured: those that were due after the warm-up.

--find-max begins at 100,000 events a second, or at --rate. Where that is too much it takes a
quarter each time until a rate is good, down to the one that has 100 events to measure in --duration
(11 a second in 10s); if that is not good either, it ends with exit status 1 and says what p99 was
there. A p99 of fewer than 100 pairs is none, so such a rate is not good.

A soak is `--soak --duration 1h`: events are made while it runs, and memory, state and latency are
looked at from time to time. It says what grows over the second half; exit status 1 if memory or
state does, and as well if the run is too short to say.

Ctrl-C ends a load early: the figures are of what ran until then, and say so. A second one ends it
at once, without.";

/// Options of `intervale load`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group(clap::ArgGroup::new("load").required(true).multiple(true)
    .args(["rate", "rates", "find_max"])))]
pub struct Args {
    /// What to join: w1a, w1b, w2, w3a, w3b, w4, or free: 1,000 keys, 1,000 events a second
    #[arg(long, value_parser = workload)]
    workload: Workload,
    /// Events a second, both sides together; with --find-max, where to begin
    #[arg(
        long, value_name = "N", value_parser = rate, conflicts_with = "rates",
        allow_negative_numbers = true
    )]
    rate: Option<f64>,
    /// Several rates, one after the other: the curve of latency over load
    #[arg(
        long, value_name = "N,...", value_delimiter = ',', value_parser = rate,
        allow_negative_numbers = true
    )]
    rates: Vec<f64>,
    /// Looks for the highest rate that is kept up with and whose p99 is within --slo, to 5 %; a
    /// rate has two tries, and up to five where the host explains that it was missed. Exit status
    /// 1 if there is none
    #[arg(long, conflicts_with = "rates")]
    find_max: bool,
    /// The bound on p99 for --find-max
    #[arg(long, value_name = "DURATION", default_value = "1ms", requires = "find_max")]
    slo: TimeSpan,
    /// For how long events are due, at each rate
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    duration: TimeSpan,
    /// Of that, how long pairs are not measured [default: a tenth, 1 s at most]
    #[arg(long, value_name = "DURATION")]
    warm_up: Option<TimeSpan>,
    /// Threads that push events; each is two sources, one a side
    #[arg(
        long, value_name = "N", default_value_t = 1,
        value_parser = whole::<u16>(1, 256), allow_negative_numbers = true
    )]
    producers: u16,
    /// How producers wait; auto: spin where cores are left for them
    #[arg(long, value_name = "PACE", default_value = "auto")]
    pace: PaceChoice,
    /// Cores of the engine: how many, or which (0,2-5), or all
    #[arg(long, value_name = "N|LIST|all", default_value = "all")]
    cores: String,
    /// What drives the engine's cores
    #[arg(long, value_name = "RUNTIME", default_value = "auto")]
    runtime: Runtime,
    /// How the engine's cores wait
    #[arg(long, value_name = "STRATEGY", default_value = "auto")]
    idle: Idle,
    /// Keys that are too much for one core: auto splits those that sampling finds over all cores;
    /// force splits every key now and then
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    hot_keys: HotKeysChoice,
    /// The instructions that compare times; auto: the widest of this machine
    #[arg(long, value_name = "LEVEL", default_value = "auto")]
    simd: SimdChoice,
    /// How long events wait in the engine for their batch to fill; 0 sends each push at once
    #[arg(long, value_name = "DURATION", default_value = "100us")]
    linger: TimeSpan,
    /// Events of a full batch
    #[arg(
        long, value_name = "N", default_value_t = 256,
        value_parser = whole::<u16>(1, 4096), allow_negative_numbers = true
    )]
    batch: u16,
    /// Batches under way from one producer to one core
    #[arg(
        long, value_name = "N", default_value_t = LANE_BATCHES_DEFAULT as u16,
        value_parser = whole::<u16>(1, LANE_BATCHES_MAX as u64), allow_negative_numbers = true
    )]
    lane_batches: u16,
    #[command(flatten)]
    layout: LayoutArgs,
    /// What events are made from
    #[arg(
        long, value_name = "N", default_value_t = crate::workload::SEED_MEASURED,
        value_parser = count, allow_negative_numbers = true
    )]
    seed: u64,
    /// Compares pairs and checksum with an offline join of the same events also where these are
    /// more than 2 million; without it, those are compared with nothing
    #[arg(long)]
    check: bool,
    /// Latency over load, as a chart (.svg) or as a page with all figures and plots over time that
    /// can be sent to others (.html)
    #[arg(long, value_name = "FILE.svg|.html", value_parser = PlotFile::parse)]
    pub(super) plot: Option<PlotFile>,
    /// How figures are printed: a table, or one JSON object a rate
    #[arg(long, value_enum, default_value_t)]
    output_format: OutputForm,
    #[command(flatten)]
    events: EventArgs,
    #[command(flatten)]
    scenarios: ScenarioArgs,
    #[command(flatten)]
    pub(super) soak: SoakArgs,
}

/// What events are, otherwise than in the workload.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Events, instead of the workload's own")]
struct EventArgs {
    #[command(flatten)]
    shape: ShapeArgs,
    /// Events a second and side, in event time: how many events the interval holds. (When they are
    /// due is what --rate says.)
    #[arg(long, value_name = "N", value_parser = event_rate, allow_negative_numbers = true)]
    event_rate: Option<u64>,
    /// The interval
    #[arg(long, value_name = "LO..HI", visible_alias = "between", allow_hyphen_values = true)]
    interval: Option<IntervalText>,
}

impl EventArgs {
    fn workload(&self, workload: Workload) -> Result<Workload, Failure> {
        // However many there are, those on their way at one time have to fit memory.
        let shaped = self.shape.shape(self.event_rate, None).of(workload, u64::MAX);
        let mut shaped = shaped.map_err(|failure| match failure {
            // What `gen` and `bench` call so.
            Failure::Usage(told) => Failure::Usage(told.replace("--rate", "--event-rate")),
            other => other,
        })?;
        if let Some(interval) = &self.interval {
            shaped.between = closed_ms(interval)?;
            if shaped.between.0 > shaped.between.1 {
                return Err(Failure::usage(format!("--interval: {interval} is empty")));
            }
        }
        Ok(shaped)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PaceChoice {
    Auto,
    Spin,
    Sleep,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum OutputForm {
    #[default]
    Text,
    Json,
}

/// Which rates to run.
pub(super) enum Rates {
    Given(Vec<f64>),
    FindMax { first: f64, slo_ns: u64 },
}

/// Where the search for the highest rate begins.
const RATE_FIRST: f64 = 100_000.0;
const WARM_UP_MAX: Duration = Duration::from_secs(1);
/// Loads of so many events are joined once more offline, which takes about half a second.
const CHECK_EVENTS_MAX: u64 = 2_000_000;

impl Args {
    pub(super) fn rates(&self) -> Result<Rates, Failure> {
        if self.find_max {
            let slo = wall("--slo", self.slo)?;
            if slo.is_zero() {
                return Err(Failure::usage(
                    "--slo: nothing takes no time at all; give more than 0",
                ));
            }
            let first = self.rate.unwrap_or(RATE_FIRST);
            return Ok(Rates::FindMax { first, slo_ns: slo.as_nanos() as u64 });
        }
        Ok(Rates::Given(self.rate.map_or_else(|| self.rates.clone(), |rate| vec![rate])))
    }

    /// The plan of every rate; its own is not a rate yet.
    ///
    /// # Errors
    /// [`Failure::Usage`] names the option that makes no sense.
    pub(super) fn plan(&self) -> Result<LoadPlan, Failure> {
        let duration = wall("--duration", self.duration)?;
        if duration.is_zero() {
            return Err(Failure::usage("--duration: give more than 0"));
        }
        let warm_up = match self.warm_up {
            Some(span) => wall("--warm-up", span)?,
            None => (duration / 10).min(WARM_UP_MAX),
        };
        if warm_up >= duration {
            return Err(Failure::usage(format!(
                "--warm-up: it is as long as --duration ({}), so nothing would be measured",
                show_span(duration)
            )));
        }
        let usage = |error: &dyn std::fmt::Display| Failure::usage(format!("--cores: {error}"));
        let cores: CoreChoice = self.cores.parse().map_err(|error| usage(&error))?;
        let topology = Topology::read();
        let placement = cores.place(&topology).map_err(|error| usage(&error))?;
        let producers = usize::from(self.producers);
        let left_over = topology.cpus_usable() >= placement.cpus.len() + producers;
        Ok(LoadPlan {
            workload: self.events.workload(self.workload)?,
            rate: 0.0,
            duration,
            warm_up,
            producers,
            pace: match self.pace {
                PaceChoice::Spin => Pace::Spin,
                PaceChoice::Sleep => Pace::Sleep,
                PaceChoice::Auto if left_over => Pace::Spin,
                PaceChoice::Auto => Pace::Sleep,
            },
            setup: EngineSetup {
                cores,
                runtime: self.runtime.into(),
                idle: self.idle.into(),
                simd: self.simd.resolve()?.unwrap_or_else(Simd::detect),
                hot_keys: self.hot_keys.into(),
            },
            linger: wall("--linger", self.linger)?,
            batch: usize::from(self.batch),
            lane_batches: usize::from(self.lane_batches),
            layout: self.layout.hints(),
            scenario: Scenario::None,
            sample_every: self.sample_every(duration)?,
        })
    }

    /// How often to look at a run: for a soak, and for the plots over time of a page.
    fn sample_every(&self, duration: Duration) -> Result<Option<Duration>, Failure> {
        if self.soak.is_on() {
            return self.soak.sample_every(duration).map(Some);
        }
        let is_page = self.plot.as_ref().is_some_and(PlotFile::is_page);
        Ok(is_page.then(|| (duration / 100).max(Duration::from_millis(20))))
    }

    /// What to run at each rate.
    ///
    /// # Errors
    /// [`Failure::Usage`] names the option that makes no sense.
    pub(super) fn scenarios(&self, plan: &LoadPlan) -> Result<Vec<Scenario>, Failure> {
        let scenarios = self.scenarios.resolve(plan.duration)?;
        if self.find_max && scenarios.len() > 1 {
            return Err(Failure::usage("--find-max searches in one --scenario; give one"));
        }
        if self.soak.is_on() && (self.find_max || self.rates.len() > 1) {
            return Err(Failure::usage("--soak is for one rate; give it with --rate"));
        }
        Ok(scenarios)
    }

    /// Whether a load is compared with an offline join.
    pub(super) fn checks(&self, plan: &LoadPlan) -> bool {
        self.check || plan.event_count() <= CHECK_EVENTS_MAX
    }

    /// Whether that was asked for.
    pub(super) fn check(&self) -> bool {
        self.check
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) fn is_json(&self) -> bool {
        self.output_format == OutputForm::Json
    }

    pub(super) fn idle_name(&self) -> String {
        format!("{:?}", self.idle).to_lowercase()
    }
}

pub(super) fn wall(option: &str, span: TimeSpan) -> Result<Duration, Failure> {
    span.to_wall().map_err(|error| Failure::usage(format!("{option}: {error}")))
}

/// Events a second, as `2000000`, `2_000_000`, `2e6` or `1.5e6`.
fn rate(text: &str) -> Result<f64, String> {
    let rate: Option<f64> = text.replace('_', "").parse().ok();
    rate.filter(|rate| (1.0..=1e9).contains(rate))
        .ok_or_else(|| "give events a second from 1 to 1e9, such as 2_000_000 or 2e6".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them() {
        assert_eq!(rate("2_000_000"), Ok(2e6));
        assert_eq!(rate("1.5e6"), Ok(1.5e6));
        for wrong in ["", "0", "-1", "1e10", "nan", "inf", "fast"] {
            assert!(rate(wrong).is_err(), "{wrong:?}");
        }
    }
}
