//! `--scenario` and what belongs to it.

use std::time::Duration;

use clap::ValueEnum;

use crate::cli::Failure;
use crate::cli::load::args::wall;
use crate::cli::shape::burst;
use crate::cli::text::show_span;
use crate::time::text::TimeSpan;
use crate::workload::Burst;
use crate::workload::load::Scenario;

/// What may go other than smoothly.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Scenarios")]
pub(super) struct ScenarioArgs {
    /// Runs each rate under each of these, one after the other: none, burst, skew, disorder,
    /// stalled-source, slow-sink; or all
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', hide_possible_values = true)]
    scenario: Vec<Name>,
    /// Events are due in bursts, one a period, so many times as fast, with silence between: 10s,5;
    /// short for --scenario burst, --burst-every and --burst-factor
    #[arg(
        long, value_name = "PERIOD,TIMES", value_parser = burst,
        conflicts_with_all = ["burst_every", "burst_factor"]
    )]
    burst: Option<Burst>,
    /// burst: all events of each period are due in its first part [default: 1s, a fifth of
    /// --duration at most]
    #[arg(long, value_name = "DURATION")]
    burst_every: Option<TimeSpan>,
    /// burst: the rate in a burst over that on average [default: 10]
    #[arg(long, value_name = "N", value_parser = factor)]
    burst_factor: Option<f64>,
    /// skew: of both sides' events, those that have one and the same key: 0.01 or 1%
    /// [default: 0.01]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    skew_share: Option<f64>,
    /// disorder: up to so much later, in event time, some events arrive; watermarks trail by as
    /// much more [default: 30s]
    #[arg(long, value_name = "DURATION")]
    disorder_by: Option<TimeSpan>,
    /// disorder: of all events, those that do: 0.1 or 10% [default: 0.1]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    disorder_share: Option<f64>,
    /// stalled-source: when the first left source falls silent [default: after half of --duration]
    #[arg(long, value_name = "DURATION")]
    stall_at: Option<TimeSpan>,
    /// stalled-source: how long; what it has kept is due at the end [default: a tenth of
    /// --duration]
    #[arg(long, value_name = "DURATION")]
    stall_for: Option<TimeSpan>,
    /// slow-sink: how long every core's sink stands still [default: 20ms]
    #[arg(long, value_name = "DURATION")]
    sink_pause: Option<TimeSpan>,
    /// slow-sink: from the end of one pause to the next [default: 1s]
    #[arg(long, value_name = "DURATION")]
    sink_pause_every: Option<TimeSpan>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    None,
    Burst,
    Skew,
    Disorder,
    StalledSource,
    SlowSink,
    All,
}

impl ScenarioArgs {
    /// The scenarios in the order given, each once.
    pub(super) fn resolve(&self, duration: Duration) -> Result<Vec<Scenario>, Failure> {
        let mut names: Vec<Name> = Vec::new();
        let unsaid = if self.burst.is_some() { Name::Burst } else { Name::None };
        let said = if self.scenario.is_empty() { &[unsaid][..] } else { &self.scenario };
        for &name in said {
            match name {
                Name::All => names.extend(Name::value_variants()),
                name => names.push(name),
            }
        }
        let mut seen = Vec::new();
        names.retain(|&name| {
            let is_new = name != Name::All && !seen.contains(&name);
            seen.push(name);
            is_new
        });
        self.check_used(&names)?;
        names.into_iter().map(|name| self.scenario(name, duration)).collect()
    }

    /// Refuses what belongs to a scenario that does not run.
    fn check_used(&self, names: &[Name]) -> Result<(), Failure> {
        let given = [
            ("--burst", self.burst.is_some(), Name::Burst),
            ("--burst-every", self.burst_every.is_some(), Name::Burst),
            ("--burst-factor", self.burst_factor.is_some(), Name::Burst),
            ("--skew-share", self.skew_share.is_some(), Name::Skew),
            ("--disorder-by", self.disorder_by.is_some(), Name::Disorder),
            ("--disorder-share", self.disorder_share.is_some(), Name::Disorder),
            ("--stall-at", self.stall_at.is_some(), Name::StalledSource),
            ("--stall-for", self.stall_for.is_some(), Name::StalledSource),
            ("--sink-pause", self.sink_pause.is_some(), Name::SlowSink),
            ("--sink-pause-every", self.sink_pause_every.is_some(), Name::SlowSink),
        ];
        match given.iter().find(|(_, given, name)| *given && !names.contains(name)) {
            None => Ok(()),
            Some((option, _, name)) => {
                let value = name.to_possible_value();
                let name = value.as_ref().map_or("", |value| value.get_name());
                Err(Failure::usage(format!(
                    "{option} belongs to --scenario {name}; give that, too"
                )))
            }
        }
    }

    fn scenario(&self, name: Name, duration: Duration) -> Result<Scenario, Failure> {
        let span = |option: &str, given: Option<TimeSpan>, default: Duration| {
            let span = given.map_or(Ok(default), |given| wall(option, given))?;
            match span.is_zero() {
                true => Err(Failure::usage(format!("{option}: give more than 0"))),
                false => Ok(span),
            }
        };
        Ok(match name {
            Name::None | Name::All => Scenario::None,
            Name::Burst => match self.burst {
                Some(Burst { period_ms, factor }) => Scenario::Burst {
                    every: Duration::from_millis(period_ms),
                    factor: factor as f64,
                },
                None => Scenario::Burst {
                    every: span(
                        "--burst-every",
                        self.burst_every,
                        Duration::from_secs(1).min(duration / 5),
                    )?,
                    factor: self.burst_factor.unwrap_or(10.0),
                },
            },
            Name::Skew => Scenario::Skew { share: self.skew_share.unwrap_or(0.01) },
            Name::Disorder => {
                let by = span("--disorder-by", self.disorder_by, Duration::from_secs(30))?;
                let by_ms = u64::try_from(by.as_millis()).unwrap_or(u64::MAX).min(1 << 40);
                Scenario::Disorder { by_ms, share: self.disorder_share.unwrap_or(0.1) }
            }
            Name::StalledSource => {
                let at = span("--stall-at", self.stall_at, duration / 2)?;
                let lasts = span("--stall-for", self.stall_for, duration / 10)?;
                if at.saturating_add(lasts) >= duration {
                    return Err(Failure::usage(format!(
                        "--stall-for: the stall would end after {}, at the end of --duration or \
                         later, and what it kept would not be seen; make it shorter",
                        show_span(at.saturating_add(lasts))
                    )));
                }
                Scenario::StalledSource { at, lasts }
            }
            Name::SlowSink => Scenario::SlowSink {
                pause: span("--sink-pause", self.sink_pause, Duration::from_millis(20))?,
                every: span("--sink-pause-every", self.sink_pause_every, Duration::from_secs(1))?,
            },
        })
    }
}

/// What a scenario is, for people.
pub(super) fn describe(scenario: &Scenario) -> String {
    match scenario {
        Scenario::None => "events due evenly".to_owned(),
        Scenario::Burst { every, factor } => {
            let every = show_span(*every);
            format!("all events of each {every} due {factor} times as fast, then none")
        }
        Scenario::Skew { share } => {
            format!("{} % of both sides' events have one key", share * 100.0)
        }
        Scenario::Disorder { by_ms, share } => format!(
            "{} % of events arrive up to {} of event time later",
            share * 100.0,
            show_span(Duration::from_millis(*by_ms))
        ),
        Scenario::StalledSource { at, lasts } => {
            let (at, lasts) = (show_span(*at), show_span(*lasts));
            format!("the first left source is silent from {at} on for {lasts}")
        }
        Scenario::SlowSink { pause, every } => {
            let (pause, every) = (show_span(*pause), show_span(*every));
            format!("every core's sink stands still for {pause} each {every}")
        }
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share: Option<f64> = match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse().ok().map(|percent: f64| percent / 100.0),
        None => text.parse().ok(),
    };
    let good = share.filter(|share| (0.0..=1.0).contains(share));
    good.ok_or("give a share from 0 to 1, such as 0.01 or 1%".to_owned())
}

fn factor(text: &str) -> Result<f64, String> {
    let factor: Option<f64> = text.parse().ok();
    let good = factor.filter(|factor| *factor > 1.0 && *factor <= 1e6);
    good.ok_or("give how many times as fast, over 1".to_owned())
}
