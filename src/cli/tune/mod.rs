//! `intervale tune`: tries settings of the machine on the user's own workload or files, and writes
//! a profile of those that bring something.

mod layouts;
mod profile_text;
mod record;
mod search;
mod trial;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::cli::bench::workload;
use crate::cli::number::whole;
use crate::cli::profile::Profile;
use crate::cli::{Console, Failure, os, out};
use crate::sink::{OpenMode, Output};
use crate::time::text::TimeSpan;
use crate::workload::Workload;
use record::Record;
use search::{Search, Settings, Turn};
use trial::Subject;

const EXAMPLES: &str = "\
Examples (the second in a clone of the repository):
  intervale tune --workload w2 --events 200_000 --settings idle,batch --budget 5s
  intervale tune --settings idle,linger --budget 3s --output tuned.toml -- \\
      --left tests/data/orders.csv --right tests/data/payments.csv --on order_id \\
      --left-time ts --right-time ts --between -5m..5m
  intervale join --profile ./tuned.toml --left tests/data/orders.csv \\
      --right tests/data/payments.csv --on order_id --left-time ts --right-time ts --between 0..5m

One setting after the other is tried: the value that stands, the same once more, and all others in
turn, --repeat times, each in a process of its own. By how much what stands differs from itself is
noise. A value is better if it is by more than that, by more than its own rounds lie apart, and by
2 % at least; the best of those goes on to the next setting. In the end all of them together are
compared with what stood at the start, again in turn; if that is not sure to be better, what stood
at the start stays. The profile says what each change brought. Ctrl-C ends the search: the profile
then has what was better by itself until then.";

/// Runs under so many seconds are too short to compare settings by.
const SECONDS_MIN: f64 = 0.2;

/// Options of `intervale tune`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A workload to tune for: w1a, w1b, w2, w3a, w3b, w4; without it, files
    #[arg(long, value_parser = workload)]
    workload: Option<Workload>,
    /// What is to become less: time an event, or p99 of latency at --rate
    #[arg(long, value_enum, default_value_t)]
    goal: Goal,
    /// Events of a run for throughput, both sides together
    #[arg(
        long, value_name = "N", default_value = "2_000_000",
        value_parser = whole::<u64>(2, 2 * u64::from(u32::MAX)), allow_negative_numbers = true
    )]
    events: u64,
    /// Events a second for latency
    #[arg(
        long, value_name = "N", value_parser = whole::<u64>(1, 1_000_000_000),
        allow_negative_numbers = true
    )]
    rate: Option<u64>,
    /// How long a run for latency takes
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    duration: TimeSpan,
    /// What to try, in the order given: cores, idle, runtime, batch, linger, lane-batches,
    /// bucket-width, chunk, simd [default: all that the runs have]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    settings: Vec<String>,
    /// Rounds for each setting
    #[arg(
        long, value_name = "N", default_value_t = 5,
        value_parser = whole::<u32>(3, 100), allow_negative_numbers = true
    )]
    repeat: u32,
    /// Begins no run after so long
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    budget: TimeSpan,
    /// What stands at the start: latency, throughput, shared-vm, or a file [default: the defaults
    /// of the options]
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
    /// Where the profile goes; - is standard output
    #[arg(long, value_name = "PATH", default_value = "-")]
    output: PathBuf,
    /// Where every run and what each value came to goes, as lines of JSON, each as it comes; a file
    /// of that name is replaced
    #[arg(long, value_name = "FILE.jsonl")]
    record: Option<PathBuf>,
    /// Options of `intervale join`: the files to tune for
    #[arg(last = true, value_name = "JOIN OPTIONS")]
    join: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Goal {
    #[default]
    Throughput,
    Latency,
}

/// Searches and writes the profile.
///
/// # Errors
/// [`Failure`] for wrong use, a run that fails, Ctrl-C.
pub fn run(args: &Args) -> Result<(), Failure> {
    let console = Console::stderr();
    let subject = args.subject()?;
    let base: Settings = match &args.profile {
        None => Settings::default(),
        Some(name) => Settings::from_profile(&Profile::load(name)?),
    };
    let space = subject.space(&base, &args.settings)?;
    let budget = wall("--budget", args.budget)?;
    if budget.is_zero() {
        return Err(Failure::usage(
            "--budget: within 0 s no run can begin; give at least a few runs' time, as 1m",
        ));
    }
    let output = match args.output.to_str() {
        Some("-") => None,
        _ => Some(open("--output", &args.output)?),
    };
    let record = RefCell::new(Record::new(args.record.as_deref(), &subject.what())?);
    os::catch_interrupts();
    let start = Instant::now();
    let mut is_first = true;
    let mut trial = |settings: &Settings, turn: Turn| {
        let (figure, seconds) = subject.run(settings)?;
        if let Some(short) = seconds.filter(|&seconds| is_first && seconds < SECONDS_MIN) {
            console.warning(&format!(
                "a run takes {short:.3} s, in which most settings show no difference that is one; \
                 {}",
                subject.longer()
            ));
        }
        is_first = false;
        record.borrow_mut().run(settings, turn, figure)?;
        Ok(figure)
    };
    let mut search = Search {
        repeat: args.repeat as usize,
        trial: &mut trial,
        out_of_time: &|| start.elapsed() >= budget,
        say: &mut |line| console.text(&format!("{line}\n")),
        keep: &mut |tried| record.borrow_mut().tried(tried),
    };
    let found = search.run(&base, &space)?;
    record.borrow_mut().end(&found)?;
    let text = profile_text::text(&subject.what(), &found);
    match output {
        None => out(&text)?,
        Some(output) => {
            write("--output", output, &text)?;
            console.note(&format!(
                "the profile is in {}; use it with --profile {}",
                args.output.display(),
                with_folder(&args.output)
            ));
        }
    }
    let Some(signal) = found.stopped else { return Ok(()) };
    let by = signal.name();
    let message = format!("stopped by {by}; the profile has what was tried to its end");
    Err(Failure::Interrupted(signal, message))
}

impl Args {
    fn subject(&self) -> Result<Subject, Failure> {
        match (&self.workload, self.goal) {
            (Some(_), _) if !self.join.is_empty() => Err(Failure::usage(
                "--workload and the options of a join after -- exclude each other; leave one out",
            )),
            (None, _) if self.join.is_empty() => Err(Failure::usage(
                "give a --workload, or the files to tune for as options of a join after --",
            )),
            (None, Goal::Latency) => Err(Failure::usage(
                "--goal latency needs a --workload and a --rate: files are read as fast as they \
                 can be, so their rows have no time of their own to be late from",
            )),
            (None, Goal::Throughput) => Subject::join(&self.join),
            (Some(workload), Goal::Throughput) => {
                Ok(Subject::Bench { workload: workload.name, events: self.events })
            }
            (Some(workload), Goal::Latency) => {
                let rate = self.rate.ok_or_else(|| {
                    Failure::usage("--goal latency: give the --rate that latency is measured at")
                })?;
                let duration = wall("--duration", self.duration)?;
                Ok(Subject::Load { workload: workload.name, rate, duration })
            }
        }
    }
}

fn open(option: &str, path: &Path) -> Result<Output, Failure> {
    let opened = Output::open(path, OpenMode::Replace);
    let (output, _) = opened.map_err(|error| Failure::failed(format!("{option} {error}")))?;
    Ok(output)
}

fn write(option: &str, output: Output, text: &str) -> Result<(), Failure> {
    let written = output.write(text.as_bytes(), 0).and_then(|()| output.commit());
    written.map_err(|error| Failure::failed(format!("{option} {error}")))
}

fn wall(option: &str, span: TimeSpan) -> Result<Duration, Failure> {
    span.to_wall().map_err(|error| Failure::usage(format!("{option}: {error}")))
}

/// The path as `--profile` knows it for a file.
fn with_folder(path: &Path) -> String {
    let text = path.display().to_string();
    if text.contains(['/', '.']) { text } else { format!("./{text}") }
}
