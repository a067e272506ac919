//! `intervale verify`: a result, pair by pair, beside an offline join of the whole files.

mod compare;
mod result;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::choices::{Format, Kind, Match};
use crate::cli::join::{
    Ask, AsofChoice, BadRows, ConditionArgs, InputArgs, MatchArgs, Tables, ThenArgs, TimeArgs, read,
};
use crate::cli::text::show_count;
use crate::cli::{Console, Failure, out, out_line};
use crate::event::stream_name;
use compare::{Comparison, compare};
use result::ResultFile;

const EXAMPLES: &str = "\
Example (in a clone of the repository):
  intervale join --left tests/data/orders.csv --right tests/data/payments.csv --on order_id \\
      --left-time ts --right-time ts --between -5m..5m --out-of-orderness 5s --output pairs.csv \\
      --stats json --stats-output report.json && \\
  intervale verify --left tests/data/orders.csv --right tests/data/payments.csv --on order_id \\
      --left-time ts --right-time ts --between -5m..5m --out-of-orderness 5s \\
      --result pairs.csv --report report.json --min-match-rate 0.995

The offline join reads the whole files: no watermark, nothing late. The result is of intervale, or
of any other program that names the columns as intervale join does; columns that it lacks are not
compared.
Pairs of --between, also under --rules (from a file), are found by sorting; every other join is held
to nested loops, which take a look at each left row with each right one: for files of some 10,000
rows. Everything is held in memory.
The last two lines are for scripts. Without --report, the late rate is that of rows behind their own
file's watermark, and state_mb and p99_ms are empty.";

/// Options of `intervale verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The pairs to verify
    #[arg(long, value_name = "PATH")]
    result: PathBuf,
    /// Format of the result [default: by file ending]
    #[arg(long, value_name = "FORMAT")]
    result_format: Option<Format>,
    /// The report of the run, as join --stats json --stats-output writes it
    #[arg(long, value_name = "PATH")]
    report: Option<PathBuf>,
    /// Exit status 1 when less than this share of the pairs was found (0 to 1)
    #[arg(long, value_name = "RATE", value_parser = share)]
    min_match_rate: Option<f64>,
    /// Exit status 1 when any pair is missing or too many
    #[arg(long)]
    strict: bool,
    /// Prints one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Rows that do not parse end the run, or are counted and skipped
    #[arg(long, value_name = "POLICY", default_value = "fail")]
    bad_rows: BadRows,
    #[command(flatten)]
    form: FormArgs,
    #[command(flatten)]
    condition: ConditionArgs,
    #[command(flatten)]
    then: ThenArgs,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    time: TimeArgs,
}

/// What was joined, as `intervale join` was told; only `--strict` means something else here.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Join")]
struct FormArgs {
    /// The key: a column that both sides have, or LEFT=RIGHT; repeat for a key of several columns
    #[arg(long, required = true, value_name = "COL|LCOL=RCOL")]
    on: Vec<String>,
    /// Pairs with left.time + LO <= right.time <= left.time + HI
    #[arg(
        long,
        value_name = "LO..HI",
        allow_hyphen_values = true,
        required_unless_present_any = ["asof", "window"]
    )]
    between: Option<String>,
    /// As in join, in place of --between
    #[arg(long, value_name = "DIRECTION", conflicts_with_all = ["between", "choice", "window"])]
    asof: Option<AsofChoice>,
    /// How far --asof looks
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    tolerance: Option<String>,
    /// What --strict is in join: a right row at the very time of the left one does not count
    #[arg(long)]
    asof_strict: bool,
    /// As in join, in place of --between
    #[arg(long, value_name = "WINDOW", conflicts_with_all = ["between", "choice"])]
    window: Option<String>,
    /// Which rows came out
    #[arg(
        long = "type",
        value_name = "TYPE",
        default_value = "inner",
        hide_possible_values = true
    )]
    kind: Kind,
    /// Which matches of a left row counted; of rows at the same time the one that stands first
    #[arg(long = "match", value_name = "CHOICE", default_value = "all")]
    choice: Match,
}

impl FormArgs {
    fn matching(&self) -> MatchArgs {
        let FormArgs { on, between, asof, tolerance, asof_strict, window, kind, choice } =
            self.clone();
        MatchArgs { on, between, asof, tolerance, strict: asof_strict, window, kind, choice }
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share: Option<f64> = text.parse().ok();
    share.filter(|share| (0.0..=1.0).contains(share)).ok_or("give a number from 0 to 1".to_owned())
}

/// Compares and prints.
///
/// # Errors
/// [`Failure`] for wrong use, files that cannot be read, and a result that falls short.
pub fn run(args: &Args) -> Result<(), Failure> {
    if matches!(args.form.choice, Match::OneToOne) {
        return Err(Failure::usage(
            "--match one-to-one: which pairs come first is a matter of arrival, which files do not \
             tell; verify that its pairs are some of those of --match all",
        ));
    }
    let report = args.report.as_deref().map(read_report).transpose()?;
    let mut file = ResultFile::open(&args.result, args.result_format)?;
    let tables = read(&Ask {
        input: &args.input,
        time: &args.time,
        on: &args.form.on,
        matching: Some(args.form.matching()),
        then: args.then.clone(),
        condition: args.condition.clone(),
        bad_rows: args.bad_rows,
    })?;
    let used = file.used(&tables)?;
    if !used.lacking.is_empty() && !file.columns.is_empty() {
        Console::stderr().note(&format!(
            "the result lacks {}; rows are told apart by the other columns",
            used.lacking.join(", ")
        ));
    }
    let comparison = compare(&tables, &used, &mut file)?;
    tables.expressions.warn(Console::stderr());
    let figures = Figures::new(&tables, &comparison, report.as_ref());
    if args.json {
        out_line(&figures.json(&tables, &comparison).to_string())?;
    } else {
        out(&text(&tables, &comparison, &figures))?;
    }
    judge(args, &comparison, &figures)
}

fn read_report(path: &Path) -> Result<Value, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::failed(format!(
            "--report {}: {error}; it is written by join --stats json --stats-output",
            path.display()
        ))
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    let report: Value = serde_json::from_str(&text).map_err(|error| failed(&error))?;
    if report["pairs"].is_u64() { Ok(report) } else { Err(failed(&"it is no report of a join")) }
}

/// What scripts read.
struct Figures {
    match_rate: f64,
    late_rate: Option<f64>,
    state_mb: Option<f64>,
    p99_ms: Option<f64>,
}

impl Figures {
    fn new(tables: &Tables, comparison: &Comparison, report: Option<&Value>) -> Figures {
        let match_rate = match comparison.offline {
            // Nothing was to be found, and nothing is missing.
            0 => 1.0,
            offline => comparison.found as f64 / offline as f64,
        };
        let late_rate = match report {
            Some(report) => report["late_rate"].as_f64(),
            None => {
                let rows: usize = tables.streams.iter().map(|table| table.rows.len()).sum();
                let late: u64 = (0..tables.streams.len()).map(|stream| tables.late(stream)).sum();
                (rows > 0).then(|| late as f64 / rows as f64)
            }
        };
        let number = |value: &Value, unit: f64| value.as_f64().map(|number| number / unit);
        Figures {
            match_rate,
            late_rate,
            state_mb: report.and_then(|report| number(&report["state_bytes_peak"], 1e6)),
            p99_ms: report.and_then(|report| number(&report["latency_ns"]["p99"], 1e6)),
        }
    }

    /// The line for scripts, under its header.
    fn lines(&self) -> String {
        let number = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.6}"));
        format!(
            "match_rate,late_sideoutput_rate,state_mb,p99_ms\n{:.6},{},{},{}\n",
            self.match_rate,
            number(self.late_rate),
            number(self.state_mb),
            number(self.p99_ms)
        )
    }

    fn json(&self, tables: &Tables, comparison: &Comparison) -> Value {
        let mut object = json!({
            "match_rate": self.match_rate,
            "late_sideoutput_rate": self.late_rate,
            "state_mb": self.state_mb,
            "p99_ms": self.p99_ms,
            "pairs_offline": comparison.offline,
            "pairs_result": comparison.result,
            "found": comparison.found,
            "missing": comparison.missing,
            "missing_late": comparison.missing_late,
            "extra": comparison.extra,
            "missing_first": comparison.missing_shown,
            "extra_first": comparison.extra_shown,
        });
        for (stream, table) in tables.streams.iter().enumerate() {
            let name = stream_name(stream);
            object[format!("{name}_rows")] = json!(table.rows.len());
            object[format!("{name}_late")] = json!(tables.late(stream));
            object[format!("{name}_bad")] = json!(table.bad);
        }
        object
    }
}

fn text(tables: &Tables, comparison: &Comparison, figures: &Figures) -> String {
    let mut text = String::new();
    for (stream, table) in tables.streams.iter().enumerate() {
        let without_key = table.rows.iter().filter(|row| !row.has_key).count();
        text.push_str(&format!(
            "{:<8} {} rows, {without_key} without a key, {} behind their watermark, {} bad\n",
            stream_name(stream),
            show_count(table.rows.len() as u64),
            tables.late(stream),
            table.bad
        ));
    }
    let count = show_count;
    let what = if tables.is_plain() { "pairs" } else { "rows" };
    text.push_str(&format!("offline  {} {what}\n", count(comparison.offline)));
    text.push_str(&format!(
        "result   {} {what}, {} of them right\n",
        count(comparison.result),
        count(comparison.found)
    ));
    text.push_str(&format!("missing  {}", count(comparison.missing)));
    if comparison.missing > 0 {
        let late = comparison.missing_late;
        let other = comparison.missing - late;
        text.push_str(&format!(": {} late, {} for other reasons", count(late), count(other)));
    }
    text.push('\n');
    comparison.missing_shown.iter().for_each(|pair| text.push_str(&format!("  {pair}\n")));
    text.push_str(&format!("extra    {}\n", count(comparison.extra)));
    comparison.extra_shown.iter().for_each(|pair| text.push_str(&format!("  {pair}\n")));
    text.push_str(&figures.lines());
    text
}

fn judge(args: &Args, comparison: &Comparison, figures: &Figures) -> Result<(), Failure> {
    if let Some(least) = args.min_match_rate.filter(|&least| figures.match_rate < least) {
        return Err(Failure::failed(format!(
            "{} of {} pairs were found, a share of {:.6}, and {least} is the least",
            comparison.found, comparison.offline, figures.match_rate
        )));
    }
    if args.strict && comparison.missing + comparison.extra > 0 {
        return Err(Failure::failed(format!(
            "{} pairs are missing and {} are too many",
            comparison.missing, comparison.extra
        )));
    }
    Ok(())
}
