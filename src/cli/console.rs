//! Words to the user. A reader that has gone is never a panic.

use std::io::{self, IsTerminal, Write};

use crate::cli::{Failure, os};

/// Writes text to standard output.
///
/// # Errors
/// [`Failure::Closed`] when the reader has gone; [`Failure::Failed`] for anything else.
pub fn out(text: &str) -> Result<(), Failure> {
    check_stdout()?;
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|error| Failure::from_stdout(&error))
}

/// Writes one line to standard output; errors as [`out`].
///
/// # Errors
/// As [`out`].
pub fn out_line(line: &str) -> Result<(), Failure> {
    out(&format!("{line}\n"))
}

/// Refuses to go on without a standard output.
///
/// # Errors
/// [`Failure::Failed`] when the process began with it closed.
pub(super) fn check_stdout() -> Result<(), Failure> {
    check_stdout_or("")
}

/// As [`check_stdout`]; `instead` is what else the command offers, as in ", or ...".
///
/// # Errors
/// As [`check_stdout`].
pub(super) fn check_stdout_or(instead: &str) -> Result<(), Failure> {
    if !os::stdout_is_closed() {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "standard output is closed, so the result would be lost; redirect it to a file{instead}"
    )))
}

/// Whether standard output may have colours.
pub(super) fn colour_on_stdout() -> bool {
    colour_wanted() && io::stdout().is_terminal()
}

fn colour_wanted() -> bool {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    !plain && !dumb
}

/// Standard error: notes, warnings, errors. Coloured on a terminal unless `NO_COLOR` is set.
#[derive(Clone, Copy, Debug)]
pub struct Console {
    colour: bool,
}

impl Console {
    /// Standard error as it is.
    pub fn stderr() -> Console {
        Console { colour: colour_wanted() && io::stderr().is_terminal() }
    }

    /// Says what went wrong.
    pub fn error(&self, message: &str) {
        self.say("error", "1;31", message);
    }

    /// Says what the user might not expect.
    pub fn warning(&self, message: &str) {
        self.say("warning", "1;33", message);
    }

    /// Says what is good to know.
    pub fn note(&self, message: &str) {
        self.say("note", "1", message);
    }

    /// Writes lines as they are.
    pub fn text(&self, text: &str) {
        // There is nobody left to tell when standard error itself has gone.
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }

    /// Whether colours may be used.
    pub fn colour(&self) -> bool {
        self.colour
    }

    fn say(&self, label: &str, style: &str, message: &str) {
        let line = if self.colour {
            format!("\x1b[{style}m{label}\x1b[0m: {message}\n")
        } else {
            format!("{label}: {message}\n")
        };
        self.text(&line);
    }
}
