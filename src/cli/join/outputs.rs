//! The outputs of a join: opened before any work, settled when it is over.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cli::Failure;
use crate::cli::console::check_stdout_or;
use crate::cli::join::expressions::Expressions;
use crate::cli::join::open::{InputSide, Inputs};
use crate::cli::join::paths::STANDARD;
use crate::cli::join::plan::Plan;
use crate::join::{JoinKind, SinkError};
use crate::sink::{
    BadRows, Encoder, OpenMode, Output, RowSinks, SideRows, SortOptions, is_standard_output,
};

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

/// Blank lines before a header are skipped up to so many bytes.
const BLANK_BYTES_MAX: u64 = 1 << 10;

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
        expressions: &Expressions,
        cores: usize,
        hold_back: i64,
    ) -> Result<Outputs, Failure> {
        let rows: Vec<SideRows> = inputs.streams().map(InputSide::rows).collect();
        let rows: Vec<&SideRows> = rows.iter().collect();
        let left_only = matches!(plan.kind, JoinKind::Semi | JoinKind::Anti);
        let format = plan.output.format.rows();
        let encoder = match expressions.selection.clone() {
            Some(selection) => Encoder::chosen(format, selection),
            None => Encoder::joined(format, if left_only { &rows[..1] } else { &rows }),
        };
        let late = plan.output.late.as_ref();
        let late =
            late.map(|(path, to)| (path, Encoder::late(to.rows(), &rows, inputs.unit.name())));
        let bad =
            plan.output.bad.as_ref().map(|(path, format)| (path, BadRows::header(format.rows())));
        let mut wanted = vec![Wanted::new(&plan.output.path, encoder.header())];
        wanted.extend(late.as_ref().map(|(path, late)| Wanted::new(path, late.header())));
        wanted.extend(bad.as_ref().map(|(path, header)| Wanted::new(path, header)));
        // All are looked at before the first is opened, and opened before the first is written to.
        if plan.output.append {
            wanted.iter_mut().try_for_each(Wanted::check)?;
        }
        let mode = if plan.output.append { OpenMode::Append } else { OpenMode::Replace };
        let opened = wanted.iter_mut().map(|wanted| wanted.open(mode));
        let opened: Vec<Arc<Output>> = opened.collect::<Result<_, _>>()?;
        let stats = open_stats_of(plan)?;
        // Only whoever reads the result may end the run by going away.
        opened.iter().skip(1).for_each(|output| output.must_stay_open());
        for (output, wanted) in opened.iter().zip(&wanted) {
            if wanted.needs_header {
                output.write(wanted.header, 0).map_err(failure)?;
            }
        }
        let mut opened = opened.into_iter();
        // The first is always there.
        let Some(main) = opened.next() else { return Err(Failure::failed("no output")) };
        let others: Vec<_> = opened.collect();
        let mut rest = others.iter().map(Arc::clone);
        let late = late.and_then(|(_, encoder)| Some((encoder, rest.next()?)));
        let bad_format = plan.output.bad.as_ref().map(|(_, format)| format.rows());
        let bad_rows = bad_format.and_then(|format| Some(BadRows::new(rest.next()?, format)));
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

    /// As [`commit`](Self::commit), of all but the main output, whose reader has gone.
    pub(super) fn commit_others(&self) -> Result<(), Failure> {
        self.others.iter().try_for_each(|output| output.commit()).map_err(failure)
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

/// The file of the report, if it has one.
///
/// # Errors
/// [`Failure::Failed`] names it.
pub(super) fn open_stats_of(plan: &Plan) -> Result<Option<Output>, Failure> {
    let path = plan.stats_output.as_deref().filter(|path| path.as_os_str() != STANDARD);
    path.map(open_stats).transpose()
}

/// The report replaces an older one, whatever becomes of the rows.
fn open_stats(path: &Path) -> Result<Output, Failure> {
    let opened = Output::open(path, OpenMode::Replace);
    let failed = |error| Failure::failed(format!("--stats-output {error}"));
    opened.map(|(output, _)| output).map_err(failed)
}

/// An output that is to be opened.
struct Wanted<'a> {
    path: &'a Path,
    /// Its first line; empty for JSON Lines.
    header: &'a [u8],
    needs_header: bool,
    /// What is there is blank, if anything is there: a header is needed all the same.
    is_blank: bool,
}

impl<'a> Wanted<'a> {
    fn new(path: &'a Path, header: &'a [u8]) -> Wanted<'a> {
        Wanted { path, header, needs_header: false, is_blank: false }
    }

    fn open(&mut self, mode: OpenMode) -> Result<Arc<Output>, Failure> {
        if is_standard_output(self.path) {
            check_stdout_or(", or name one with --output")?;
        }
        let (output, is_new) = Output::open(self.path, mode).map_err(failure)?;
        self.needs_header = (is_new || self.is_blank) && !self.header.is_empty();
        Ok(Arc::new(output))
    }

    /// Rows are added below a header that is the one they have, or below lines of JSON if they are
    /// that, or not at all.
    fn check(&mut self) -> Result<(), Failure> {
        // Whatever else is wrong with the file is said when it is opened.
        let is_file = std::fs::metadata(self.path).is_ok_and(|metadata| metadata.is_file());
        let Some(file) = is_file.then(|| File::open(self.path).ok()).flatten() else {
            return Ok(());
        };
        let mut start = Vec::new();
        let wanted_bytes = self.header.len() as u64 + BLANK_BYTES_MAX;
        if file.take(wanted_bytes).read_to_end(&mut start).is_err() {
            return Ok(());
        }
        let start = start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&start);
        let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let blank = start.iter().take_while(|byte| is_line_end(byte)).count();
        let (start, header) = (&start[blank..], without_line_end(self.header));
        self.is_blank = start.is_empty();
        let fits = match start.strip_prefix(header) {
            _ if self.is_blank => true,
            _ if header.is_empty() => start.trim_ascii_start().starts_with(b"{"),
            Some(rest) => rest.first().is_none_or(is_line_end),
            None => false,
        };
        if fits {
            return Ok(());
        }
        let rows = match header {
            [] => "these rows are JSON Lines".to_owned(),
            _ => format!("these rows have the columns `{}`", shorten(header)),
        };
        let first = start.split(|byte| is_line_end(byte)).next().unwrap_or_default();
        Err(Failure::usage(format!(
            "--append: {} begins with `{}`, but {rows}; append to a file of the same columns, or \
             leave --append out to replace it",
            self.path.display(),
            shorten(first),
        )))
    }
}

fn without_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn shorten(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let short: String = text.chars().take(80).collect();
    if short.len() < text.len() { short + "..." } else { short }
}
