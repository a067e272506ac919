//! `intervale doctor`: what this host does to a join, and the commands that change it.

mod checks;
mod clock;
mod host;

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::cli::console::colour_on_stdout;
use crate::cli::{Failure, out, out_line};
use checks::{Advice, Finding, Status};
use host::Host;

const EXAMPLES: &str = "\
Examples:
  intervale doctor
  intervale doctor --json

Each finding is ok, warn (it costs something), bad (it costs much) or unknown (the system does not
say, as in many containers and virtual machines), with what it costs and a command that changes it.
In the end it names the --profile that fits such a host, if one does. Nothing is changed, and no
rights are needed.";

/// Options of `intervale doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Prints one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Exit status 1 if anything is bad
    #[arg(long)]
    strict: bool,
    /// Reads a copy of another host's /proc and /sys below this folder; what only a running host
    /// can answer is unknown
    #[arg(long, value_name = "PATH")]
    root: Option<PathBuf>,
}

/// Looks at the host and prints what it found.
///
/// # Errors
/// [`Failure::Usage`] when `--root` is no folder, [`Failure::Failed`] under `--strict`.
pub fn run(args: &Args) -> Result<(), Failure> {
    let host = match &args.root {
        None => Host::read(),
        Some(root) if root.is_dir() => Host::read_copy(root),
        Some(root) => {
            return Err(Failure::usage(format!(
                "--root {}: there is no such folder; name one that has proc and sys in it",
                root.display()
            )));
        }
    };
    let findings = checks::all(&host);
    let advice = checks::profile(&host, &findings);
    if args.json {
        out_line(&as_json(&findings, advice).to_string())?;
    } else {
        out(&as_text(&findings, advice, colour_on_stdout()))?;
    }
    let bad = findings.iter().filter(|finding| finding.status == Status::Bad);
    let bad: Vec<&str> = bad.map(|finding| finding.name).collect();
    if args.strict && !bad.is_empty() {
        return Err(Failure::failed(format!(
            "bad: {}; what to change stands beside each",
            bad.join(", ")
        )));
    }
    Ok(())
}

fn as_json(findings: &[Finding], advice: Option<Advice>) -> Value {
    let worst = findings.iter().map(|finding| finding.status).max().unwrap_or(Status::Ok);
    let object = |finding: &Finding| {
        json!({
            "name": finding.name,
            "status": finding.status.name(),
            "found": finding.found,
            "cost": finding.cost,
            "fix": finding.fix,
        })
    };
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "worst": worst.name(),
        "findings": findings.iter().map(object).collect::<Vec<_>>(),
        "profile": advice.map(|advice| advice.profile),
        "profile_why": advice.map(|advice| advice.why),
    })
}

fn as_text(findings: &[Finding], advice: Option<Advice>, colour: bool) -> String {
    let width = findings.iter().map(|finding| finding.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for finding in findings {
        let status = format!("{:<7}", finding.status.name());
        let status = match finding.status {
            _ if !colour => status,
            Status::Ok => format!("\x1b[32m{status}\x1b[0m"),
            Status::Unknown => status,
            Status::Warn => format!("\x1b[33m{status}\x1b[0m"),
            Status::Bad => format!("\x1b[1;31m{status}\x1b[0m"),
        };
        text.push_str(&format!("{status}  {:<width$}  {}\n", finding.name, finding.found));
        let indent = " ".repeat(7 + 2 + width + 2);
        for (label, more) in [("costs ", &finding.cost), ("change", &finding.fix)] {
            if let Some(more) = more {
                text.push_str(&format!("{indent}{label}  {more}\n"));
            }
        }
    }
    let count = |status| findings.iter().filter(|finding| finding.status == status).count();
    let [ok, warn, bad, unknown] =
        [Status::Ok, Status::Warn, Status::Bad, Status::Unknown].map(count);
    if let Some(Advice { profile, why }) = advice {
        text.push_str(&format!("\n--profile {profile} fits this host: {why}\n"));
    }
    text.push_str(&format!("\n{ok} ok, {warn} to look at, {bad} bad, {unknown} unknown\n"));
    text
}
