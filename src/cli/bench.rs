//! `intervale bench`: a workload from memory, without IO, beside the roofline kernel.

use std::io::IsTerminal;

use clap::ValueEnum;
use serde_json::{Map, Value, json};

use crate::cli::choices::{Idle, Kind, Runtime, SimdChoice};
use crate::cli::{Console, Failure, out, out_line};
use crate::runtime::{CoreChoice, RuntimeKind};
use crate::state::Simd;
use crate::workload::bench::{BenchError, BenchPlan, BenchRow, Subject};
use crate::workload::{EngineSetup, StepClock, Workload};

const EXAMPLES: &str = "\
Examples:
  intervale bench --workload w1a --api join --roofline
  intervale bench --workload w1a,w2 --events 20_000_000 --peer naive --output-format json";

/// Options of `intervale bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// What to join: w1a, w1b, w2, w3a, w3b, w4 (several: w1a,w2)
    #[arg(long, required = true, value_delimiter = ',', value_parser = workload)]
    workload: Vec<Workload>,
    /// Events of both sides together, as 2000000, 2_000_000 or 2e6
    #[arg(long, value_name = "N", default_value = "2_000_000", value_parser = count)]
    events: u64,
    /// What runs the join
    #[arg(long, value_enum, default_value_t)]
    api: Api,
    /// Cores of the engine: a number (several: 1,2,4), or `all`
    #[arg(
        long, value_name = "N,...", value_delimiter = ',', default_value = "all",
        value_parser = cores
    )]
    cores: Vec<CoreChoice>,
    /// What drives the engine's cores
    #[arg(long, value_name = "RUNTIME", default_value = "auto")]
    runtime: Runtime,
    /// How the engine's cores wait
    #[arg(long, value_name = "STRATEGY", default_value = "auto")]
    idle: Idle,
    /// Another join to measure in the same run
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME")]
    peer: Vec<Peer>,
    /// Runs the roofline kernel between the repeats: what memory alone would charge
    #[arg(long)]
    roofline: bool,
    /// Runs of each configuration; the best counts
    #[arg(
        long, value_name = "N", default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    repeat: u32,
    /// What events are made from
    #[arg(long, value_name = "N", default_value_t = crate::workload::SEED_MEASURED)]
    seed: u64,
    /// Events a batch
    #[arg(
        long, value_name = "N", default_value_t = 256,
        value_parser = clap::value_parser!(u16).range(1..=4096)
    )]
    batch: u16,
    /// The instructions that compare times; auto: the widest of this machine
    #[arg(long, default_value = "auto")]
    simd: SimdChoice,
    /// Which rows come out
    #[arg(long = "type", value_name = "TYPE", default_value = "inner")]
    kind: Kind,
    /// Events a second and side, in event time, instead of the workload's own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rate: Option<u64>,
    /// Compares pairs and checksum with an offline join where no known outcome is at hand
    #[arg(long)]
    check: bool,
    /// What times single steps: the wall, or the thread's CPU time (other programs' turns left out)
    #[arg(long, value_enum, default_value_t, value_name = "CLOCK")]
    step_clock: Clock,
    /// How figures are printed: a table, or one JSON object a configuration
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    output_format: Format,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Api {
    /// The engine: partition, lanes, shards on --cores
    #[default]
    Engine,
    /// The single-threaded join, no runtime
    Join,
    /// The peers alone
    None,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Peer {
    /// A hash map of queues a side, event by event
    Naive,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Clock {
    #[default]
    Wall,
    Cpu,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Format {
    #[default]
    Text,
    Json,
}

/// Measures and prints.
///
/// # Errors
/// [`Failure`] for wrong use, and for a join that finds other pairs than it should.
pub fn run(args: &Args) -> Result<(), Failure> {
    let console = Console::stderr();
    let on_terminal = std::io::stderr().is_terminal();
    let mut table = Vec::new();
    for workload in &args.workload {
        let plan = args.plan(workload)?;
        let mut note = |what: &str| {
            if on_terminal {
                console.note(&format!("{}: {what}", workload.name));
            }
        };
        let rows = plan.run(&mut note).map_err(|error| failure(workload, &error))?;
        for row in &rows {
            match args.output_format {
                Format::Json => out_line(&Value::Object(json_row(&plan, row)).to_string())?,
                Format::Text => table.push(text_row(&plan, row)),
            }
        }
    }
    if table.is_empty() { Ok(()) } else { out(&text_table(&table)) }
}

impl Args {
    fn plan(&self, workload: &Workload) -> Result<BenchPlan, Failure> {
        let workload = self.rate.map_or(*workload, |rate| workload.with_rate(rate));
        let per_side = u32::try_from(self.events / 2).ok().filter(|&n| n > 0);
        let Some(events_per_side) = per_side.filter(|_| self.events.is_multiple_of(2)) else {
            return Err(Failure::usage(format!(
                "--events {}: both sides get the same number, from 1 to {} each; give an even one",
                self.events,
                u32::MAX
            )));
        };
        let simd = self.simd.resolve()?.unwrap_or_else(Simd::detect);
        let (runtime, idle) = (self.runtime.into(), self.idle.into());
        let engine = |cores: &CoreChoice| {
            let cores = cores.clone();
            Subject::Engine(EngineSetup { cores, runtime, idle, simd })
        };
        let mut subjects = match self.api {
            Api::Engine => self.cores.iter().map(engine).collect(),
            Api::Join => vec![Subject::Join { simd }],
            Api::None => Vec::new(),
        };
        subjects.extend(self.peer.iter().map(|Peer::Naive| Subject::Naive));
        if subjects.is_empty() {
            return Err(Failure::usage("--api none measures nothing without --peer; name a peer"));
        }
        Ok(BenchPlan {
            workload,
            events_per_side,
            seed: self.seed,
            subjects,
            kind: self.kind.into(),
            batch: usize::from(self.batch),
            repeat: self.repeat,
            roofline: self.roofline,
            check: self.check,
            step_clock: match self.step_clock {
                Clock::Wall => StepClock::Wall,
                Clock::Cpu => StepClock::Cpu,
            },
        })
    }
}

fn failure(workload: &Workload, error: &BenchError) -> Failure {
    let message = format!("{}: {error}", workload.name);
    match error {
        BenchError::NaiveKind => Failure::usage(message),
        _ => Failure::failed(message),
    }
}

/// The workload of that name, for clap.
pub(super) fn workload(name: &str) -> Result<Workload, String> {
    Workload::by_name(name).ok_or_else(|| {
        let known: Vec<String> =
            Workload::ALL.iter().map(|w| format!("  {:<4} {}", w.name, w.about)).collect();
        format!("there is no such workload; there are\n{}", known.join("\n"))
    })
}

/// How many cores, for clap; a list of CPUs would need the commas that separate configurations.
fn cores(text: &str) -> Result<CoreChoice, String> {
    match text {
        "all" => Ok(CoreChoice::All),
        _ => text
            .parse()
            .ok()
            .and_then(CoreChoice::count)
            .ok_or_else(|| "give a number of cores from 1, or all".to_owned()),
    }
}

/// A count as people write large ones: `2000000`, `2_000_000`, `2e6`.
pub(super) fn count(text: &str) -> Result<u64, String> {
    let wrong = || "give a whole number, such as 2000000, 2_000_000 or 2e6".to_owned();
    let digits = text.replace('_', "");
    let (mantissa, exponent) = digits.split_once(['e', 'E']).unwrap_or((&digits, "0"));
    let mantissa: u64 = mantissa.parse().map_err(|_| wrong())?;
    let exponent: u32 = exponent.parse().map_err(|_| wrong())?;
    let scale = 10u64.checked_pow(exponent).ok_or_else(wrong)?;
    mantissa.checked_mul(scale).ok_or_else(wrong)
}

fn json_row(plan: &BenchPlan, row: &BenchRow) -> Map<String, Value> {
    let wall_s = row.ns_per_event * row.events as f64 / 1e9;
    let events_per_s = (row.events as f64 / wall_s).round();
    let fields = [
        ("workload", json!(plan.workload.name)),
        ("rate", json!(plan.workload.rate)),
        ("events", json!(row.events)),
        ("seed", json!(plan.seed)),
        ("api", json!(row.subject.name())),
        ("cores", json!(row.cores)),
        ("runtime", json!(row.runtime.map(RuntimeKind::name))),
        ("simd", json!(row.subject.simd().map(Simd::name))),
        ("batch", json!(plan.batch)),
        ("repeat", json!(plan.repeat)),
        ("ns_per_event", hundredths(row.ns_per_event)),
        ("cpu_ns_per_event", hundredths(row.cpu_ns_per_event)),
        ("finish_cpu_ns_per_event", hundredths(row.finish_cpu_ns_per_event)),
        ("events_per_s", json!(events_per_s)),
        ("events_per_s_per_core", json!((events_per_s / row.cores as f64).round())),
        ("pairs", json!(row.outcome.pairs)),
        ("checksum", json!(format!("{:016x}", row.outcome.checksum))),
        ("singles", json!(row.singles)),
        ("state_rows_peak", json!(row.state_rows_peak)),
        ("state_bytes_peak", json!(row.state_bytes_peak)),
        ("index_bytes_peak", json!(row.index_bytes_peak)),
        ("bytes_per_buffered_row", hundredths(row.bytes_per_buffered_row())),
        ("step_ns_p50", json!(row.step_ns_p50)),
        ("step_ns_p99", json!(row.step_ns_p99)),
        ("step_ns_p999", json!(row.step_ns_p999)),
        ("step_ns_max", json!(row.step_ns_max)),
    ];
    let mut object: Map<String, Value> =
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    if let Some(roofline) = row.roofline {
        object.insert("roofline_ns".to_owned(), hundredths(roofline.ns_per_event));
        object.insert("roofline_table_bytes".to_owned(), json!(roofline.table_bytes));
        let ratio = row.ratio_to_roofline().map_or(Value::Null, hundredths);
        object.insert("ratio_to_roofline".to_owned(), ratio);
    }
    object
}

fn hundredths(value: f64) -> Value {
    json!((value * 100.0).round() / 100.0)
}

/// The columns of the text form; all but the first two are numbers.
const HEADINGS: [&str; 14] = [
    "workload",
    "api",
    "cores",
    "events",
    "pairs",
    "wall ns",
    "cpu ns",
    "roofline",
    "ratio",
    "rows peak",
    "B/row",
    "p50 us",
    "p99.9 us",
    "max us",
];

fn text_row(plan: &BenchPlan, row: &BenchRow) -> [String; HEADINGS.len()] {
    let micros = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
    let or_dash = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
    [
        plan.workload.name.to_owned(),
        row.subject.name().to_owned(),
        row.cores.to_string(),
        row.events.to_string(),
        row.outcome.pairs.to_string(),
        format!("{:.1}", row.ns_per_event),
        format!("{:.1}", row.cpu_ns_per_event),
        or_dash(row.roofline.map(|roofline| roofline.ns_per_event)),
        or_dash(row.ratio_to_roofline()),
        row.state_rows_peak.to_string(),
        format!("{:.0}", row.bytes_per_buffered_row()),
        micros(row.step_ns_p50),
        micros(row.step_ns_p999),
        micros(row.step_ns_max),
    ]
}

/// Nanoseconds are an event's, microseconds a step's.
fn text_table(rows: &[[String; HEADINGS.len()]]) -> String {
    let headings = HEADINGS.map(str::to_owned);
    let lines = || std::iter::once(&headings).chain(rows);
    let widths: Vec<usize> = (0..HEADINGS.len())
        .map(|column| lines().map(|line| line[column].len()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for line in lines() {
        for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
            let padded = match column {
                0 | 1 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            };
            text.push_str(if column == 0 { "" } else { "  " });
            text.push_str(&padded);
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_people_write_them() {
        assert_eq!(count("2000000"), Ok(2_000_000));
        assert_eq!(count("2_000_000"), Ok(2_000_000));
        assert_eq!(count("20e6"), Ok(20_000_000));
        for wrong in ["", "-1", "2.5", "1e", "e6", "1e99", "99999999999e18"] {
            assert!(count(wrong).is_err(), "{wrong:?}");
        }
    }
}
