//! The outputs of a join: opened before any work, settled when it is over.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cli::Failure;
use crate::cli::console::check_stdout;
use crate::cli::join::open::Inputs;
use crate::cli::join::paths::STANDARD;
use crate::cli::join::plan::Plan;
use crate::event::Side;
use crate::join::{JoinKind, SinkError};
use crate::sink::{BadRows, Encoder, OpenMode, Output, RowSinks, SortOptions};

/// Slices into which the time that sorted rows wait is cut: a row waits a little longer than it
/// must, and slices are long enough to be worth their handling.
const SLICES: i64 = 64;

/// Everything rows are written to.
pub(super) struct Outputs {
    main: Arc<Output>,
    /// Late and bad rows.
    others: Vec<Arc<Output>>,
    pub(super) sinks: Arc<RowSinks>,
    pub(super) bad_rows: Option<BadRows>,
    /// The file of the closing report.
    pub(super) stats: Option<Output>,
}

/// More of a file's first line is not looked at: no header is longer.
const HEADER_BYTES_MAX: u64 = 1 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl Outputs {
    /// Opens all of them and writes their headers. `hold_back` is how long sorted rows wait for
    /// each other, in ticks.
    ///
    /// # Errors
    /// [`Failure::Failed`] names the output that cannot be written.
    pub(super) fn open(
        plan: &Plan,
        inputs: &Inputs,
        cores: usize,
        hold_back: i64,
    ) -> Result<Outputs, Failure> {
        let [left, right] = Side::BOTH.map(|side| inputs.sides[side.index()].rows());
        let left_only = matches!(plan.kind, JoinKind::Semi | JoinKind::Anti);
        let encoder = Encoder::pairs(plan.output.format.rows(), &left, &right, left_only);
        // All are opened before the first is written to.
        let mut headers = Vec::new();
        let mut open = |path: &Path, header: &[u8]| {
            let (output, wants_header) = open_one(path, header, plan)?;
            if wants_header && !header.is_empty() {
                headers.push((Arc::clone(&output), header.to_vec()));
            }
            Ok::<_, Failure>(output)
        };
        let main = open(&plan.output.path, encoder.header())?;
        let mut others = Vec::new();
        let mut late = None;
        if let Some((path, format)) = &plan.output.late {
            let encoder = Encoder::late(format.rows(), &left, &right, inputs.unit.name());
            let output = open(path, encoder.header())?;
            others.push(Arc::clone(&output));
            late = Some((encoder, output));
        }
        let mut bad_rows = None;
        if let Some((path, format)) = &plan.output.bad {
            let output = open(path, &BadRows::header(format.rows()))?;
            others.push(Arc::clone(&output));
            bad_rows = Some(BadRows::new(output, format.rows()));
        }
        let stats = match &plan.stats_output {
            Some(path) if path.as_os_str() != STANDARD => Some(open_stats(path)?),
            _ => None,
        };
        for (output, header) in headers {
            output.write(&header, 0).map_err(failure)?;
        }
        let slice = (hold_back / SLICES).max(1);
        let sorted = plan.machine.deterministic.then_some(SortOptions { cores, slice });
        let sinks = RowSinks::new(encoder, Arc::clone(&main), sorted, late);
        Ok(Outputs { main, others, sinks, bad_rows, stats })
    }

    /// Rows written to the main output.
    pub(super) fn rows(&self) -> u64 {
        self.main.rows()
    }

    /// All is written: files take their names.
    ///
    /// # Errors
    /// [`Failure::Failed`] names the output that cannot be finished.
    pub(super) fn commit(&self) -> Result<(), Failure> {
        self.all().try_for_each(|output| output.commit()).map_err(failure)
    }

    /// What is written is good but not all; says where files that were to be replaced went.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(super) fn keep_partial(&self) -> Result<Vec<PathBuf>, Failure> {
        let kept = self.all().map(|output| output.keep_partial());
        Ok(kept.collect::<Result<Vec<_>, _>>().map_err(failure)?.into_iter().flatten().collect())
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Output>> {
        std::iter::once(&self.main).chain(&self.others)
    }
}

/// A failed output, or a reader that has gone.
pub(super) fn failure(error: SinkError) -> Failure {
    if error.closed { Failure::Closed } else { Failure::Failed(error.message) }
}

/// The report replaces an older one, whatever becomes of the rows.
fn open_stats(path: &Path) -> Result<Output, Failure> {
    let opened = Output::open(path, OpenMode::Replace);
    let failed = |error| Failure::failed(format!("--stats-output {error}"));
    opened.map(|(output, _)| output).map_err(failed)
}

/// The output, and whether it wants a header.
fn open_one(path: &Path, header: &[u8], plan: &Plan) -> Result<(Arc<Output>, bool), Failure> {
    if path.as_os_str() == STANDARD {
        check_stdout()?;
    }
    let mode = if plan.output.append { OpenMode::Append } else { OpenMode::Replace };
    if plan.output.append {
        check_first_line(path, header)?;
    }
    let (output, wants_header) = Output::open(path, mode).map_err(failure)?;
    Ok((Arc::new(output), wants_header))
}

/// Rows are added below a header that is the one they have, or below lines of JSON if they are that
/// (`header` is empty then), or not at all.
fn check_first_line(path: &Path, header: &[u8]) -> Result<(), Failure> {
    // Whatever else is wrong with the file is said when it is opened.
    let is_file = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    let Some(file) = is_file.then(|| File::open(path).ok()).flatten() else { return Ok(()) };
    let mut first = Vec::new();
    let read = BufReader::new(file.take(HEADER_BYTES_MAX)).read_until(b'\n', &mut first);
    let first = first.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&first);
    let (first, header) = (first.trim_ascii(), header.trim_ascii_end());
    let fits = if header.is_empty() { first.starts_with(b"{") } else { first == header };
    if read.is_err() || first.is_empty() || fits {
        return Ok(());
    }
    let rows = match header {
        [] => "these rows are JSON Lines".to_owned(),
        _ => format!("these rows have the columns `{}`", shorten(header)),
    };
    Err(Failure::usage(format!(
        "--append: {} begins with `{}`, but {rows}; append to a file of the same columns, or leave \
         --append out to replace it",
        path.display(),
        shorten(first),
    )))
}

fn shorten(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let short: String = text.chars().take(80).collect();
    if short.len() < text.len() { short + "..." } else { short }
}
