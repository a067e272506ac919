//! `intervale calibrate`: from historical files to the settings of a join.

mod measure;
mod report;

use crate::cli::join::{Ask, BadRows, InputArgs, TimeArgs, read};
use crate::cli::plot::PlotFile;
use crate::cli::{Console, Failure, out, out_line};
use measure::Measured;
use report::Suggestions;

const EXAMPLES: &str = "\
Example (in a clone of the repository):
  intervale calibrate --left tests/data/orders.csv --right tests/data/payments.csv --on order_id \\
      --left-time ts --right-time ts --plot deltas.svg

A left row's partner is the right row of its key that is nearest in time. For each share of these
pairs: the shortest --between that holds them, the --out-of-orderness under which as large a share
of each side's rows is on time, the share of all left rows that then finds its partner, and what the
join holds at the rates of the files (rows, and bytes at about 100 a row beside its text).
Where keys come back all the time the nearest row may not be the partner that is meant.
Everything is held in memory.";

/// Options of `intervale calibrate`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The key: a column that both sides have, or LEFT=RIGHT; repeat for a key of several columns
    #[arg(long, required = true, value_name = "COL|LCOL=RCOL")]
    on: Vec<String>,
    /// Rows that do not parse end the run, or are counted and skipped
    #[arg(long, value_name = "POLICY", default_value = "fail")]
    bad_rows: BadRows,
    /// Prints one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// The distribution as a chart (.svg) or a page (.html)
    #[arg(long, value_name = "FILE.svg|.html", value_parser = PlotFile::parse)]
    plot: Option<PlotFile>,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    time: TimeArgs,
}

/// Measures and prints.
///
/// # Errors
/// [`Failure`] for wrong use, files that cannot be read, and sides that have no key in common.
pub fn run(args: &Args) -> Result<(), Failure> {
    let plot = args.plot.as_ref().map(PlotFile::open).transpose()?;
    let tables = read(&Ask {
        input: &args.input,
        time: &args.time,
        on: &args.on,
        matching: None,
        then: Default::default(),
        condition: Default::default(),
        bad_rows: args.bad_rows,
    })?;
    let measured = Measured::new(&tables);
    if measured.nearest.is_empty() {
        return Err(Failure::failed(format!(
            "no key of the {} left rows is one of the {} right rows' keys; look at --on",
            tables.streams[0].rows.len(),
            tables.streams[1].rows.len()
        )));
    }
    if tables.streams.iter().any(|side| side.bad > 0) {
        Console::stderr().warning(&format!(
            "{} left and {} right rows do not parse and are left out",
            tables.streams[0].bad, tables.streams[1].bad
        ));
    }
    let suggestions = Suggestions::new(&measured, tables.unit)?;
    if args.json {
        out_line(&suggestions.json(&measured).to_string())?;
    } else {
        out(&suggestions.text(&measured))?;
    }
    if let Some(plot) = plot {
        plot.write(&suggestions.chart(&measured), &suggestions.text(&measured))?;
    }
    Ok(())
}
