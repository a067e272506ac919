//! The profile that a search writes: each setting under what it brought.

use crate::cli::machine::{self, Machine};
use crate::cli::tune::search::{Found, Tried, describe, describe_itself, show};

/// The text, in the form that `--profile` reads.
pub(super) fn text(what: &str, found: &Found) -> String {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC");
    let mut lines = vec![
        format!("# Written by intervale tune {}, {now}.", machine::version()),
        // What the user typed may have line ends in it.
        format!("# For: {}.", what.replace(['\n', '\r'], " ")),
        format!("# On: {}.", Machine::read().text()),
    ];
    if let Some(signal) = found.stopped {
        lines.push(format!(
            "# Cut short by {}: what was better by itself is here, and was not compared with the \
             start.",
            signal.name()
        ));
    }
    match &found.together {
        None if found.stopped.is_some() => {}
        None => lines.push("# Nothing that was tried was better than what stood.".to_owned()),
        Some((start, end, change)) => {
            let (ratio, noise) = (change.ratio * 100.0, change.noise * 100.0);
            let (start, end) = (show(*start), show(*end));
            lines.push(format!(
                "# All that was better, together: {end} instead of {start}, {ratio:+.1} % (noise \
                 {noise:.1} %).",
            ));
            if !change.best {
                lines.push(
                    "# That is not sure to be better, so what stood at the start stays: measure \
                     again, with more rounds (--repeat)."
                        .to_owned(),
                );
            }
        }
    }
    for (name, value) in found.settings.iter() {
        lines.push(String::new());
        match found.tried.iter().find(|tried| tried.name == name) {
            Some(tried) => lines.extend(brought(tried)),
            None => lines.push("# Stood at the start; no other value was tried.".to_owned()),
        }
        lines.push(match value.bytes().all(|byte| byte.is_ascii_digit()) {
            true => format!("{name} = {value}"),
            false => format!("{name} = \"{value}\""),
        });
    }
    for tried in found.tried.iter().filter(|tried| found.settings.get(tried.name).is_none()) {
        lines.push(String::new());
        lines.push(format!("# {} stays at its default.", tried.name));
        lines.extend(brought(tried));
    }
    if !found.not_tried.is_empty() {
        let names = found.not_tried.join(", ");
        let why = match found.stopped {
            Some(_) => "as it was cut short",
            None => "as the time was up (--budget)",
        };
        lines.push(format!("\n# Not tried, {why}: {names}."));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn brought(tried: &Tried) -> Vec<String> {
    let rounds = format!("# {} rounds in turn:", tried.rounds);
    let changes = tried.changes.iter();
    let changes = changes.map(|change| format!("#   {}", describe(change, &tried.stood)));
    let itself = format!("#   {}", describe_itself(&tried.itself, &tried.stood));
    [rounds, itself].into_iter().chain(changes).collect()
}
