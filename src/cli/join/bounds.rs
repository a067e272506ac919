//! What bounds buffered state: `--max-state`, `--max-rows`, and what happens at the bound.

use std::path::PathBuf;
use std::time::Duration;

use crate::cli::Failure;
use crate::cli::bench::count;
use crate::cli::join::args::{MachineArgs, OnFull};
use crate::cli::join::plan::option;
use crate::cli::join::size::{memory_bytes, parse_size, show_size_down, show_size_up};
use crate::cli::os;
use crate::cli::text::show_count;
use crate::error::{JoinError, SpecError};
use crate::join::{JoinSpec, JoinSpecBuilder};
use crate::limits::{Limits, Overflow, SPILL_FILES_PER_CORE};
use crate::state::State;
use crate::time::text::TimeSpan;
use crate::workload::bounded;

/// The bounds of a run.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    pub(super) limits: Limits,
    pub(super) on_full: OnFull,
    pub(super) ttl: Option<Duration>,
    pub(super) spill_dir: Option<PathBuf>,
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
            OnFull::Spill => Overflow::Spill,
        };
        let limits = Limits { state_bytes_max: Some(state_bytes_max), state_rows_max, overflow };
        let (ttl, spill_dir) = (ttl(args)?, spill_dir(args)?);
        if overflow == Overflow::Spill {
            // Many cores have more files than the usual limit. If it stays, who passes it is told.
            let _: Option<u64> = os::raise_file_limit();
        }
        Ok(Bounds { limits, on_full: args.on_full, ttl, spill_dir })
    }

    /// What a spec has to know of them.
    pub(super) fn add_to(&self, spec: JoinSpecBuilder) -> JoinSpecBuilder {
        bounded(spec, self.ttl, self.spill_dir.as_deref())
    }

    /// Says which of them does not go with the join, if that is what is wrong.
    pub(super) fn explain_spec(&self, error: &SpecError) -> Option<Failure> {
        match error {
            SpecError::ChunkBytes { bytes_max, .. } => Some(Failure::usage(format!(
                "--chunk: every time bucket takes one, so within --max-state it can be {} at the \
                 most",
                show_size_down(*bytes_max)
            ))),
            SpecError::Ttl(why) => Some(Failure::usage(format!(
                "--ttl goes with --between and --asof, not with --match one-to-one or --window: \
                 {why}"
            ))),
            SpecError::Overflow(_) => Some(Failure::usage(
                "--on-full shed goes with --between and all matches: with --match and --asof \
                 another match would take the place of one that was given up, and rows of \
                 --window have their turn at its end, so that results would be wrong and not \
                 merely fewer; choose block, spill or fail, or --ttl where inputs are silent",
            )),
            _ => None,
        }
    }

    /// The bound on bytes, given or not.
    pub(super) fn bytes_max(&self) -> u64 {
        self.limits.state_bytes_max.unwrap_or(u64::MAX)
    }

    /// Whether what `--reserve` takes, for all stages on all cores, is within the bound: more could
    /// never be used.
    ///
    /// # Errors
    /// [`Failure::Usage`] says how much it is.
    pub(super) fn check_reserve(&self, specs: &[JoinSpec], cores: usize) -> Result<(), Failure> {
        let takers = specs.iter().filter(|spec| spec.windows().is_none());
        let a_core: u64 = takers.map(|spec| State::reserved_bytes_for(spec.reserve_bytes())).sum();
        let all = a_core.saturating_mul(cores as u64);
        if all <= self.bytes_max() {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "--reserve takes {} on {cores} cores, as it is rounded up for each side and stage, and \
             --max-state allows {}; leave it out, or raise --max-state",
            show_size_up(all),
            show_size_down(self.bytes_max())
        )))
    }

    /// Says that state is full, or could not go into files, if that is what went wrong.
    /// So many cores run so many stages.
    pub(super) fn explain(
        &self,
        error: &JoinError,
        (cores, stages): (usize, usize),
    ) -> Option<Failure> {
        // What it is that takes the room, and what beside more of it helps.
        let (waiting, help) = match self.on_full {
            OnFull::Fail => ("inputs that run ahead could wait with --on-full block", NARROW),
            OnFull::Block => {
                ("the inputs that run ahead have waited, and waiting longer frees none", NARROW)
            }
            OnFull::Spill => (
                "all rows are in files by now: it is what each of the --cores takes by itself and \
                 what memory keeps of rows in files, of --window and of rows that wait for their \
                 match",
                "use fewer --cores, or narrow --between or --window",
            ),
            OnFull::Shed => (
                "all rows were given up by now: it is what each of the --cores takes by itself",
                "or use fewer --cores",
            ),
        };
        if let JoinError::Spill(error) = error {
            let needed = files_needed(cores, stages);
            let more = match error.is_for_want_of_descriptors() {
                true => format!("; {cores} cores and {stages} stages want ulimit -n {needed}"),
                false => " (--spill-dir)".to_owned(),
            };
            return Some(Failure::failed(format!("{error}{more}")));
        }
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
             lower bound: try {more}), {help}"
        )))
    }
}

/// About how many files a run under `--on-full spill` may have open.
fn files_needed(cores: usize, stages: usize) -> usize {
    cores * (stages * SPILL_FILES_PER_CORE + FILES_OF_CORE) + FILES_OF_RUN
}

/// What a core itself opens, rings of its runtime among them, and what a run does: inputs, outputs.
const FILES_OF_CORE: usize = 16;
const FILES_OF_RUN: usize = 128;

const NARROW: &str = "narrow --between, or lower --out-of-orderness";

/// Where files go, which has to be a folder before the run begins.
fn spill_dir(args: &MachineArgs) -> Result<Option<PathBuf>, Failure> {
    match (&args.spill_dir, args.on_full) {
        (Some(folder), OnFull::Spill) if !folder.is_dir() => Err(Failure::usage(format!(
            "--spill-dir: {} is no folder; name one that is there",
            folder.display()
        ))),
        (Some(_), OnFull::Block | OnFull::Shed | OnFull::Fail) => {
            Err(Failure::usage("--spill-dir goes with --on-full spill; leave it out, or say so"))
        }
        (folder, _) => Ok(folder.clone()),
    }
}

fn ttl(args: &MachineArgs) -> Result<Option<Duration>, Failure> {
    let Some(text) = &args.ttl else { return Ok(None) };
    let span: TimeSpan = option("--ttl", text.parse())?;
    let ttl = option("--ttl", span.to_wall())?;
    if ttl.is_zero() {
        return Err(Failure::usage("--ttl: give more than 0, or leave it out for no such bound"));
    }
    if args.deterministic {
        return Err(Failure::usage(
            "--ttl goes by the clock on the wall, and --deterministic by the rows alone; leave one \
             of them out",
        ));
    }
    Ok(Some(ttl))
}
