//! `intervale bench`: a workload from memory, without IO, beside the roofline kernel.

mod args;
mod baseline;
mod chart;
mod report;
mod values;

use std::io::IsTerminal;

pub use args::Args;
pub(super) use report::{hot_keys_name, shape};
pub(super) use values::{closed_ms, count, workload};

use serde_json::Value;

use crate::cli::console::check_stdout;
use crate::cli::machine::Machine;
use crate::cli::{Console, Failure, StopSignal, os, out, out_line};
use crate::workload::Yardstick;
use crate::workload::bench::{BenchError, BenchRow, Watch};
use args::Config;
use report::Row;
use values::Format;

/// Measures and prints.
///
/// # Errors
/// [`Failure`] for wrong use, for a join that finds other pairs than it should, and after Ctrl-C or
/// SIGTERM, when what was measured until then has been printed.
pub fn run(args: &Args) -> Result<(), Failure> {
    let configs = args.configs()?;
    let baseline = args.baseline()?;
    if let Some(plot) = &args.plot {
        // What cannot be written is better known now than after an hour.
        drop(plot.open()?);
    }
    check_stdout()?;
    let warnings = args.unused().into_iter().chain(args.oversubscribed());
    warnings.for_each(|warning| Console::stderr().warning(&warning));
    os::catch_interrupts();
    let mut rows: Vec<Row> = Vec::new();
    let mut yardstick = Yardstick::new();
    let machine = Machine::read();
    let mut done = 0;
    let mut failed = None;
    'configs: for config in &configs {
        let (measured, is_whole) = match measure(config, configs.len(), &mut yardstick) {
            Ok(measured) => measured,
            Err(error) => {
                failed = Some(error);
                break;
            }
        };
        for row in measured {
            let mut row = Row::new(config, &row, &machine);
            if let Some(baseline) = &baseline
                && let Err(error) = baseline.judge(&mut row)
            {
                failed = Some(error);
                break 'configs;
            }
            print(args.output_format, &row, rows.is_empty())?;
            rows.push(row);
        }
        if !is_whole {
            break;
        }
        done += 1;
    }
    let notes = report::notes(&rows);
    // What was measured is shown, whatever came after it.
    if args.output_format == Format::Text && (failed.is_none() || !rows.is_empty()) {
        out(&report::table(&rows))?;
        notes.iter().for_each(|note| Console::stderr().note(note));
    }
    let stopped = os::interrupted().filter(|_| done < configs.len());
    let stopped = stopped.map(|signal| stopped_by(signal, done, configs.len(), &rows));
    let stopped = failed.or(stopped);
    if let Some(plot) = args.plot.as_ref().filter(|_| !rows.is_empty()) {
        let (chart, page) =
            chart::plots(&rows, stopped.as_ref().and_then(Failure::message), &notes);
        plot.open()?.write_page(&chart, &page)?;
    }
    match (stopped, &baseline) {
        (Some(stopped), _) => Err(stopped),
        (None, Some(baseline)) if args.fail_if_slower => baseline.gate(&rows),
        (None, _) => Ok(()),
    }
}

/// Prints a row as it comes; a table is printed when all rows are there.
fn print(format: Format, row: &Row, is_first: bool) -> Result<(), Failure> {
    match format {
        Format::Json => out_line(&row.json()),
        Format::Csv if is_first => out_line(&format!("{}\n{}", row.csv_header(), row.csv())),
        Format::Csv => out_line(&row.csv()),
        Format::Text => Ok(()),
    }
}

/// What is told when not everything was measured.
fn stopped_by(signal: StopSignal, done: usize, all: usize, rows: &[Row]) -> Failure {
    let by = signal.name();
    if rows.is_empty() {
        return Failure::Interrupted(signal, format!("stopped by {by}; nothing was measured"));
    }
    let cut = match rows.iter().any(|row| row.get("stopped") == &Value::Bool(true)) {
        true => ", and one more with fewer repeats",
        false => "",
    };
    let told = format!("stopped by {by}: {done} of {all} configurations were measured whole{cut}");
    Failure::Interrupted(signal, told)
}

/// The rows of a configuration, and whether it was measured to its end.
fn measure(
    config: &Config,
    config_count: usize,
    yardstick: &mut Yardstick,
) -> Result<(Vec<BenchRow>, bool), Failure> {
    let console = Console::stderr();
    let on_terminal = std::io::stderr().is_terminal();
    let name = config.plan.workload.name;
    let mut note = |what: &str| {
        if on_terminal && config_count > 1 {
            console.note(&format!(
                "{name}, {}, batches of {}: {what}",
                config.form, config.plan.batch
            ));
        } else if on_terminal {
            console.note(&format!("{name}: {what}"));
        }
    };
    let mut warn = |what: &str| console.warning(&format!("{name}: {what}"));
    let stop = || os::interrupted().is_some();
    let mut watch = Watch { note: &mut note, warn: &mut warn, stop, yardstick: Some(yardstick) };
    let rows = config.plan.run(&mut watch).map_err(|error| failure(config, &error))?;
    let planned = config.plan.repeat.max(1);
    let is_whole =
        rows.len() == config.plan.subjects.len() && rows.iter().all(|row| row.repeat == planned);
    Ok((rows, is_whole))
}

fn failure(config: &Config, error: &BenchError) -> Failure {
    let message = format!("{}: {error}", config.plan.workload.name);
    match error {
        BenchError::NaiveKind | BenchError::Spec(_) => Failure::usage(message),
        _ => Failure::failed(message),
    }
}
