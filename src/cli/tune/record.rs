//! The raw record of a search: every run, and what was made of them, as lines of JSON, each written
//! as it comes: a search that does not come to its end leaves what it measured.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::Failure;
use crate::cli::machine::{self, Machine};
use crate::cli::tune::search::{Change, Found, Settings, Tried, Turn};

/// Lines of JSON: where and what was run, the runs in their order, and what each value came to.
pub(super) struct Record(Option<(File, PathBuf)>);

impl Record {
    /// Begins with what is run, in a few words; nothing is kept without a path. A file of that name
    /// is replaced.
    ///
    /// # Errors
    /// [`Failure::Failed`] says why it cannot be written, here and below.
    pub(super) fn new(path: Option<&Path>, what: &str) -> Result<Record, Failure> {
        let Some(path) = path else { return Ok(Record(None)) };
        let file = File::create(path).map_err(|error| failed(path, &error))?;
        let mut record = Record(Some((file, path.to_owned())));
        let (facts, machine) = (machine::facts(), Machine::read());
        record.line(&json!({
            "command": facts.first(),
            "for": what,
            "machine": machine.cpu,
            "machine_cpus": machine.cpus,
            "kernel": machine.kernel,
            "version": env!("CARGO_PKG_VERSION"),
            "commit": machine::COMMIT,
        }))?;
        Ok(record)
    }

    fn line(&mut self, line: &Value) -> Result<(), Failure> {
        let Some((file, path)) = &mut self.0 else { return Ok(()) };
        file.write_all(format!("{line}\n").as_bytes()).map_err(|error| failed(path, &error))
    }

    /// A run and what it took.
    pub(super) fn run(&mut self, settings: &Settings, turn: Turn, ns: f64) -> Result<(), Failure> {
        let settings: serde_json::Map<String, Value> =
            settings.iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        let mut line = json!({ "settings": settings, "ns": ns });
        if turn == Turn::Itself {
            line["again"] = json!(true);
        }
        self.line(&line)
    }

    /// What a setting's values came to.
    pub(super) fn tried(&mut self, tried: &Tried) -> Result<(), Failure> {
        for change in std::iter::once(&tried.itself).chain(&tried.changes) {
            let line = change_json(tried.name, &tried.stood, tried.rounds, change);
            self.line(&line)?;
        }
        Ok(())
    }

    /// What all of it came to, once the search is over.
    pub(super) fn end(&mut self, found: &Found) -> Result<(), Failure> {
        let Some((start_ns, end_ns, change)) = &found.together else { return Ok(()) };
        let mut line = change_json("all that was better", "the start", 0, change);
        (line["start_ns"], line["end_ns"]) = (json!(start_ns), json!(end_ns));
        self.line(&line)
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("--record {}: {error}", path.display()))
}

fn change_json(setting: &str, against: &str, rounds: usize, change: &Change) -> Value {
    let percent = |share: f64| json!((share * 1e3).round() / 10.0);
    let mut line = json!({
        "setting": setting,
        "value": change.value,
        "against": against,
        "change_percent": percent(change.ratio),
        "noise_percent": percent(change.noise),
        "verdict": change.verdict(),
    });
    if rounds > 0 {
        line["rounds"] = json!(rounds);
    }
    line
}
