//! One run with given settings, in a process of its own: a bench, a load, or a join of files.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::cli::layout::AUTO;
use crate::cli::profile::unswept;
use crate::cli::tune::layouts;
use crate::cli::tune::search::{Knob, Settings};
use crate::cli::{Failure, StopSignal, failure, os};
use crate::runtime::Topology;
use crate::state::Simd;

/// What is run.
#[derive(Clone, Debug)]
pub(super) enum Subject {
    Bench { workload: &'static str, events: u64 },
    Load { workload: &'static str, rate: u64, duration: Duration },
    Join { options: Vec<String> },
}

/// Options of a join that the search gives itself.
const OWN_OPTIONS: [&str; 6] =
    ["--output", "--stats", "--stats-output", "--progress", "--append", "--profile"];

impl Subject {
    /// A join of files.
    ///
    /// # Errors
    /// [`Failure::Usage`] for options that the search gives itself.
    pub(super) fn join(options: &[String]) -> Result<Subject, Failure> {
        let name = |option: &String| option.split('=').next().unwrap_or_default().to_owned();
        let own = options.iter().map(name).find(|name| OWN_OPTIONS.contains(&name.as_str()));
        if let Some(own) = own {
            return Err(Failure::usage(format!(
                "{own} after --: the search gives it itself, and throws the result away; leave it \
                 out"
            )));
        }
        Ok(Subject::Join { options: options.to_vec() })
    }

    /// In a few words.
    pub(super) fn what(&self) -> String {
        match self {
            Subject::Bench { workload, events } => {
                format!("time an event of workload {workload}, {events} events")
            }
            Subject::Load { workload, rate, duration } => {
                format!("p99 latency of workload {workload} at {rate} events/s for {duration:?}")
            }
            Subject::Join { options } => {
                format!("time a row of intervale join {}", options.join(" "))
            }
        }
    }

    /// What can be tried, in a good order: what matters most comes first. `chosen` are names of
    /// those wanted, in their order; none are all.
    ///
    /// # Errors
    /// [`Failure::Usage`] for a name that there is not, or of which there is nothing to try here.
    pub(super) fn space(&self, base: &Settings, chosen: &[String]) -> Result<Vec<Knob>, Failure> {
        let all = self.knobs(base);
        if chosen.is_empty() {
            return Ok(all.into_iter().filter(|knob| !knob.values.is_empty()).collect());
        }
        let find = |name: &String| {
            all.iter().find(|knob| knob.name == name).cloned().ok_or_else(|| {
                let known: Vec<&str> = all.iter().map(|knob| knob.name).collect();
                Failure::usage(format!(
                    "--settings: `{name}` is nothing that these runs have; there are {}",
                    known.join(", ")
                ))
            })
        };
        let mut knobs: Vec<Knob> = Vec::new();
        for name in chosen {
            let knob = find(name)?;
            if knob.values.is_empty() {
                return Err(Failure::usage(format!(
                    "--settings: of `{name}` there is nothing to try here but what stands; leave \
                     it out"
                )));
            }
            if !knobs.contains(&knob) {
                knobs.push(knob);
            }
        }
        Ok(knobs)
    }

    fn knobs(&self, base: &Settings) -> Vec<Knob> {
        let topology = Topology::read();
        let cpus = topology.cpus_usable();
        let counts = std::iter::successors(Some(1), |count| Some(count * 2));
        let cores: Vec<String> =
            counts.take_while(|&count| count < cpus).map(|count| count.to_string()).collect();
        let uring = cfg!(all(feature = "glommio", target_os = "linux"))
            && topology.io_uring_refusal().is_none();
        let runtimes: &[&str] = if uring { &["threads", "glommio"] } else { &[] };
        let levels = [Simd::Scalar, Simd::Avx2, Simd::Avx512, Simd::Neon];
        let narrower = levels.iter().filter(|simd| simd.is_available() && **simd != Simd::detect());
        let simd: Vec<String> = narrower.map(|simd| simd.name().to_owned()).collect();
        let texts = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect();
        let mut knobs = vec![
            Knob { name: "cores", values: cores },
            Knob { name: "idle", values: texts(&["spin", "yield", "park"]) },
            Knob { name: "runtime", values: texts(runtimes) },
            Knob { name: "batch", values: texts(&["32", "64", "128", "256"]) },
        ];
        if !matches!(self, Subject::Bench { .. }) {
            let values = texts(&["0", "50us", "200us", "1ms", "5ms"]);
            knobs.push(Knob { name: "linger", values });
            let values = texts(&["8", "16", "64", "256"]);
            knobs.push(Knob { name: "lane-batches", values });
        }
        let auto = || AUTO.to_owned();
        let widths = layouts::bucket_widths(self).into_iter().chain([auto()]).collect();
        knobs.push(Knob { name: "bucket-width", values: widths });
        let chunks = layouts::chunks(self).into_iter().chain([auto()]).collect();
        knobs.push(Knob { name: "chunk", values: chunks });
        knobs.push(Knob { name: "simd", values: simd });
        for knob in &mut knobs {
            // What stands is tried anyhow.
            let standing = base.get(knob.name).or_else(|| self.default_of(knob.name));
            knob.values.retain(|value| Some(value.as_str()) != standing);
        }
        knobs
    }

    /// The default of an option that is among the values to try.
    fn default_of(&self, name: &str) -> Option<&'static str> {
        match (name, self) {
            ("batch", _) => Some("256"),
            ("lane-batches", _) => Some("64"),
            ("linger", Subject::Join { .. }) => Some("1ms"),
            ("bucket-width" | "chunk", _) => Some(AUTO),
            _ => None,
        }
    }

    /// Whether its runs have a setting; a profile may hold those of other commands.
    fn takes(&self, name: &str) -> bool {
        !matches!((self, name), (Subject::Bench { .. }, "linger" | "lane-batches"))
    }

    fn args(&self) -> Vec<String> {
        let text = match self {
            Subject::Bench { workload, events } => format!(
                "bench --workload {workload} --events {events} --repeat 1 --output-format json"
            ),
            Subject::Load { workload, rate, duration } => format!(
                "load --workload {workload} --rate {rate} --duration {}us --output-format json",
                duration.as_micros()
            ),
            Subject::Join { .. } => "join --output /dev/null --output-format csv --stats json \
                 --stats-output - --progress never"
                .to_owned(),
        };
        let mut args: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        if let Subject::Join { options } = self {
            // The user's own format, if there is one, is what takes its time.
            if options.iter().any(|option| option.starts_with("--output-format")) {
                args.retain(|arg| arg != "--output-format" && arg != "csv");
            }
            args.extend(options.iter().cloned());
        }
        args
    }

    /// Runs it; returns nanoseconds (of an event, a row, or of latency), and the seconds that they
    /// were measured over, where the events are as many as the user gave.
    ///
    /// # Errors
    /// [`Failure::Failed`] or [`Failure::Usage`] with what the run said; [`Failure::Interrupted`].
    pub(super) fn run(&self, settings: &Settings) -> Result<(f64, Option<f64>), Failure> {
        let interrupted = |signal: StopSignal| {
            let by = signal.name();
            Failure::Interrupted(signal, format!("stopped by {by}; no profile was written"))
        };
        if let Some(signal) = os::interrupted() {
            return Err(interrupted(signal));
        }
        let mut args = self.args();
        for (name, value) in settings.iter().filter(|(name, _)| self.takes(name)) {
            let value = match (self, name) {
                (Subject::Bench { .. }, "cores") => unswept(value),
                _ => value.to_owned(),
            };
            args.extend([format!("--{name}"), value]);
        }
        let program = std::env::current_exe().map_err(|error| {
            Failure::failed(format!("this program does not find itself: {error}"))
        })?;
        let ran = Command::new(program)
            .args(&args)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Failure::failed(format!("cannot start a run: {error}")))?;
        if let Some(signal) = os::interrupted() {
            return Err(interrupted(signal));
        }
        if !ran.status.success() {
            let told = format!(
                "a run failed: intervale {}\n{}",
                args.join(" "),
                String::from_utf8_lossy(&ran.stderr).trim_end()
            );
            // Options that a run refuses are the user's: the search gives good ones.
            let is_usage = ran.status.code() == Some(i32::from(failure::USAGE));
            return Err(if is_usage { Failure::Usage(told) } else { Failure::Failed(told) });
        }
        let out = String::from_utf8_lossy(&ran.stdout);
        let report: Option<Value> = serde_json::from_str(out.trim()).ok();
        let figure = report.as_ref().and_then(|report| self.figure(report));
        let figure = figure.map(|figure| (figure, report.as_ref().and_then(|r| self.seconds(r))));
        figure.ok_or_else(|| {
            Failure::failed(format!(
                "a run has no figure to compare (too few rows, or pairs?): intervale {}",
                args.join(" ")
            ))
        })
    }

    fn seconds(&self, report: &Value) -> Option<f64> {
        match self {
            Subject::Bench { .. } => {
                Some(report["ns_per_event"].as_f64()? * report["events"].as_f64()? / 1e9)
            }
            Subject::Join { .. } => report["elapsed_s"].as_f64(),
            Subject::Load { .. } => None,
        }
    }

    /// What to do about runs that are too short.
    pub(super) fn longer(&self) -> &'static str {
        match self {
            Subject::Join { .. } => "give files with more rows",
            _ => "give more --events",
        }
    }

    fn figure(&self, report: &Value) -> Option<f64> {
        let figure = match self {
            Subject::Bench { .. } => report["ns_per_event"].as_f64(),
            Subject::Load { .. } => match report["kept_up"].as_bool() {
                Some(true) => report["latency_ns"]["p99"].as_f64(),
                // A queue's length has no meaning beside a latency: as bad as can be.
                _ => Some(report["duration_s"].as_f64()? * 1e9),
            },
            Subject::Join { .. } => report["rows_per_s"].as_f64().map(|rate| 1e9 / rate),
        };
        figure.filter(|figure| figure.is_finite() && *figure > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::profile::setting_names;

    #[test]
    fn whatever_is_tried_is_a_setting_of_profiles() {
        let join = Subject::join(&[]).unwrap();
        for knob in join.knobs(&Settings::default()) {
            assert!(setting_names().any(|name| name == knob.name), "{}", knob.name);
            // What stands is not tried twice.
            let default = join.default_of(knob.name);
            assert!(!knob.values.iter().any(|value| Some(value.as_str()) == default), "{knob:?}");
        }
        let one = join.space(&Settings::default(), &["idle".to_owned()]).unwrap();
        assert_eq!((one.len(), one[0].values.len()), (1, 3));
        let bench = Subject::Bench { workload: "w2", events: 2 };
        assert!(bench.space(&Settings::default(), &["linger".to_owned()]).is_err());
    }

    #[test]
    fn the_figure_is_the_one_that_counts() {
        let figure =
            |subject: Subject, text: &str| subject.figure(&serde_json::from_str(text).unwrap());
        let load = || {
            let duration = Duration::from_secs(2);
            Subject::Load { workload: "w2", rate: 1, duration }
        };
        let bench = Subject::Bench { workload: "w2", events: 2 };
        assert_eq!(figure(bench, r#"{"ns_per_event": 81.5}"#), Some(81.5));
        let kept = r#"{"kept_up": true, "latency_ns": {"p99": 7}, "duration_s": 2}"#;
        assert_eq!(figure(load(), kept), Some(7.0));
        assert_eq!(figure(load(), &kept.replace("true", "false")), Some(2e9));
        assert_eq!(figure(load(), r#"{"kept_up": true, "latency_ns": {"p99": null}}"#), None);
        let join = Subject::join(&[]).unwrap();
        assert_eq!(figure(join, r#"{"rows_per_s": 2e6}"#), Some(500.0));
    }

    #[test]
    fn what_the_search_gives_itself_is_refused() {
        for option in ["--output", "--stats=json", "--profile"] {
            let error = Subject::join(&[option.to_owned()]).unwrap_err();
            assert_eq!(error.exit_code(), 2);
        }
    }
}
