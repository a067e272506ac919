//! `intervale bench`: a workload from memory, without IO, beside the roofline kernel.

mod args;
mod baseline;
mod chart;
mod report;

use std::io::IsTerminal;

pub use args::Args;
pub(super) use args::closed_ms;
pub(super) use report::shape;

use crate::cli::{Console, Failure, out, out_line};
use crate::runtime::CoreChoice;
use crate::workload::Workload;
use crate::workload::bench::BenchError;
use args::{Config, Format};
use baseline::Baseline;
use report::Row;

/// Measures and prints.
///
/// # Errors
/// [`Failure`] for wrong use, and for a join that finds other pairs than it should.
pub fn run(args: &Args) -> Result<(), Failure> {
    let configs = args.configs()?;
    let baseline = args.baseline.as_deref().map(Baseline::read).transpose()?;
    if let Some(plot) = &args.plot {
        // What cannot be written is better known now than after an hour.
        drop(plot.open()?);
    }
    let mut rows: Vec<Row> = Vec::new();
    for config in &configs {
        for mut row in measure(config, configs.len())? {
            if let Some(baseline) = &baseline {
                baseline.judge(&mut row)?;
            }
            match args.output_format {
                Format::Json => out_line(&row.json())?,
                Format::Csv => {
                    if rows.is_empty() {
                        out_line(&row.csv_header())?;
                    }
                    out_line(&row.csv())?;
                }
                Format::Text => {}
            }
            rows.push(row);
        }
    }
    let table = report::table(&rows);
    if args.output_format == Format::Text {
        out(&table)?;
    }
    if let Some(plot) = &args.plot {
        plot.open()?.write(&chart::chart(&rows), &table)?;
    }
    Ok(())
}

fn measure(config: &Config, config_count: usize) -> Result<Vec<Row>, Failure> {
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
    let rows = config.plan.run(&mut note).map_err(|error| failure(config, &error))?;
    Ok(rows.iter().map(|row| Row::new(config, row)).collect())
}

fn failure(config: &Config, error: &BenchError) -> Failure {
    let message = format!("{}: {error}", config.plan.workload.name);
    match error {
        BenchError::NaiveKind | BenchError::Spec(_) => Failure::usage(message),
        _ => Failure::failed(message),
    }
}

/// The workload of that name, for clap.
pub(super) fn workload(name: &str) -> Result<Workload, String> {
    Workload::by_name(name).ok_or_else(|| {
        let all = Workload::ALL.iter().chain([&Workload::FREE]);
        let known: Vec<String> = all.map(|w| format!("  {:<4} {}", w.name, w.about)).collect();
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
