//! What bounds buffered state: `--max-state`, `--max-rows`, and what happens at the bound.

use crate::cli::Failure;
use crate::cli::bench::count;
use crate::cli::join::args::{MachineArgs, OnFull};
use crate::cli::join::plan::option;
use crate::cli::join::size::{memory_bytes, parse_size, show_size_down, show_size_up};
use crate::cli::text::show_count;
use crate::error::JoinError;
use crate::limits::{Limits, Overflow};

/// The bounds of a run.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    pub(super) limits: Limits,
    pub(super) on_full: OnFull,
}

impl Bounds {
    /// Makes sense of the options.
    ///
    /// # Errors
    /// [`Failure::Usage`] names the option and what to give instead.
    pub(super) fn resolve(args: &MachineArgs) -> Result<Bounds, Failure> {
        let state_bytes_max = match &args.max_state {
            Some(text) => option("--max-state", parse_size(text))?,
            None => memory_bytes() / 2,
        };
        let state_rows_max = match &args.max_rows {
            Some(text) => Some(option("--max-rows", count(text))?),
            None => None,
        };
        if state_rows_max == Some(0) {
            return Err(Failure::usage("--max-rows: 0 leaves no room at all; give 1000 or more"));
        }
        let overflow = match args.on_full {
            OnFull::Block | OnFull::Fail => Overflow::Refuse,
            OnFull::Shed => Overflow::Shed,
        };
        let limits = Limits { state_bytes_max: Some(state_bytes_max), state_rows_max, overflow };
        Ok(Bounds { limits, on_full: args.on_full })
    }

    /// The bound on bytes, given or not.
    pub(super) fn bytes_max(&self) -> u64 {
        self.limits.state_bytes_max.unwrap_or(u64::MAX)
    }

    /// Says that state is full, if that is what went wrong.
    pub(super) fn explain(&self, error: &JoinError) -> Option<Failure> {
        let waiting = match self.on_full {
            OnFull::Fail => "inputs that run ahead could wait with --on-full block",
            OnFull::Shed => "nothing that could be given up is left",
            OnFull::Block => "the inputs that run ahead have waited, and waiting longer frees none",
        };
        let (need, allowed, more) = match *error {
            JoinError::StateFull { bytes, bytes_max } => (
                show_size_up(bytes),
                format!("--max-state allows {}", show_size_down(bytes_max)),
                show_size_up(bytes.saturating_mul(2)),
            ),
            JoinError::RowsFull { rows, rows_max } => (
                show_count(rows),
                format!("--max-rows allows {}", show_count(rows_max)),
                show_count(rows.saturating_mul(2)),
            ),
            _ => return None,
        };
        Some(Failure::failed(format!(
            "buffered rows need at least {need} and {allowed}; {waiting}; raise it (the need is a \
             lower bound: try {more}), narrow --between, or lower --out-of-orderness"
        )))
    }
}
