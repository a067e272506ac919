//! The raw record of a search: every run, and what was made of them, as lines of JSON.

use serde_json::{Value, json};

use crate::cli::machine::{self, Machine};
use crate::cli::tune::search::{Change, Found, Settings};

/// Lines of JSON: where and what was run, the runs in their order, and what each value came to.
pub(super) struct Record {
    lines: Vec<Value>,
}

impl Record {
    /// Begins with what is run, in a few words.
    pub(super) fn new(what: &str) -> Record {
        let (facts, machine) = (machine::facts(), Machine::read());
        let head = json!({
            "command": facts.first(),
            "for": what,
            "machine": machine.cpu,
            "machine_cpus": machine.cpus,
            "kernel": machine.kernel,
            "version": env!("CARGO_PKG_VERSION"),
            "commit": machine::COMMIT,
        });
        Record { lines: vec![head] }
    }

    /// A run and what it took.
    pub(super) fn run(&mut self, settings: &Settings, ns: f64) {
        let settings: serde_json::Map<String, Value> =
            settings.iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        self.lines.push(json!({ "settings": settings, "ns": ns }));
    }

    /// All of it, once the search is over.
    pub(super) fn text(mut self, found: &Found) -> String {
        for tried in &found.tried {
            let changes = tried.changes.iter();
            let line = |change| change_json(tried.name, &tried.stood, tried.rounds, change);
            self.lines.extend(changes.map(line));
        }
        if let Some((start_ns, end_ns, change)) = &found.together {
            let mut line = change_json("all that was better", "the start", 0, change);
            (line["start_ns"], line["end_ns"]) = (json!(start_ns), json!(end_ns));
            self.lines.push(line);
        }
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }
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
