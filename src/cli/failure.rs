//! How a command fails, and the exit status that says so.

use std::fmt;
use std::io;

use crate::cli::StopSignal;

/// The work is done.
pub(super) const DONE: u8 = 0;
/// It failed while running.
const FAILED: u8 = 1;
/// Wrong use.
pub(super) const USAGE: u8 = 2;

/// Why a command did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// It was asked wrongly. Exit status 2.
    Usage(String),
    /// It failed while running. Exit status 1.
    Failed(String),
    /// The user stopped it. Exit status 130 (Ctrl-C) or 143 (SIGTERM).
    Interrupted(StopSignal, String),
    /// The reader of standard output has gone, as in `| head -1`: an end, not a fault. Exit
    /// status 0, and nothing is said.
    Closed,
}

impl Failure {
    /// Wrong use; the message says which option and what to give instead.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::Usage(message.into())
    }

    /// A failure while running; the message says what, where and what to do.
    pub fn failed(message: impl Into<String>) -> Failure {
        Failure::Failed(message.into())
    }

    /// A failed write to standard output.
    pub fn from_stdout(error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::Failed(format!("standard output: cannot write: {error}")),
        }
    }

    /// What to tell the user, if anything.
    pub fn message(&self) -> Option<&str> {
        match self {
            Failure::Usage(message)
            | Failure::Failed(message)
            | Failure::Interrupted(_, message) => Some(message),
            Failure::Closed => None,
        }
    }

    /// The exit status of the process.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Usage(_) => USAGE,
            Failure::Failed(_) => FAILED,
            Failure::Interrupted(signal, _) => signal.exit_code(),
            Failure::Closed => DONE,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message().unwrap_or("the reader of the output has gone"))
    }
}

impl std::error::Error for Failure {}
