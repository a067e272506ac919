//! `intervale gen`: a workload as files.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::cli::bench::{count, workload};
use crate::cli::{Console, Failure};
use crate::event::Side;
use crate::workload::{Arrivals, Workload, WorkloadEvent};

const EXAMPLES: &str = "\
Examples:
  intervale gen --workload w1a --events 2e6 --left orders.csv --right payments.csv
  intervale gen --workload w2 --events 1000 --left - --output-format jsonl

Columns: key, ts (milliseconds since 1970), id. Rows are in arrival order, up to 5 s out of order:
join them with --out-of-orderness 5s. The same seed gives the same bytes.";

/// Options of `intervale gen`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// What to make: w1a, w1b, w2, w3a, w3b, w4
    #[arg(long, value_parser = workload)]
    workload: Workload,
    /// Events of both sides together, as 2000000, 2_000_000 or 2e6
    #[arg(long, value_name = "N", default_value = "2_000_000", value_parser = count)]
    events: u64,
    /// What events are made from
    #[arg(long, value_name = "N", default_value_t = crate::workload::SEED_MEASURED)]
    seed: u64,
    /// Events a second and side, in event time, instead of the workload's own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rate: Option<u64>,
    /// Where left rows go; - is standard output
    #[arg(long, value_name = "PATH", required_unless_present = "right")]
    left: Option<PathBuf>,
    /// Where right rows go; - is standard output
    #[arg(long, value_name = "PATH")]
    right: Option<PathBuf>,
    /// The format of both files, whatever their names end in
    #[arg(long, value_enum)]
    output_format: Option<Format>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Csv,
    Tsv,
    Jsonl,
}

/// Rows are handed to the system in blocks of at least this many bytes, whole rows each.
const BLOCK_BYTES: usize = 256 << 10;

/// So many rows of one side, then as many of the other: who reads both as they come, through
/// pipes, is not kept waiting.
const ROWS_PER_TURN: usize = 4_096;

/// Makes the files.
///
/// # Errors
/// [`Failure`] for wrong use and for files that cannot be written; a file that was not completed
/// is not left behind.
pub fn run(args: &Args) -> Result<(), Failure> {
    let workload = args.rate.map_or(args.workload, |rate| args.workload.with_rate(rate));
    if !args.events.is_multiple_of(2) {
        return Err(Failure::usage(format!(
            "--events {}: both sides get the same number; give an even one",
            args.events
        )));
    }
    if args.left == args.right {
        return Err(Failure::usage("--left and --right name the same file; give two"));
    }
    let events_per_side = args.events / 2;
    let mut outputs = Vec::new();
    for (side, path) in [(Side::Left, &args.left), (Side::Right, &args.right)] {
        if let Some(path) = path {
            let rows = Arrivals::new(workload, side, args.seed, events_per_side);
            outputs.push(Output::open(path, args.format_of(side, path)?, rows)?);
        }
    }
    let mut progress = Progress::new(events_per_side * outputs.len() as u64);
    let mut row_count = 0;
    let mut more = true;
    while more {
        more = false;
        for output in &mut outputs {
            let written = output.write_rows(ROWS_PER_TURN)?;
            row_count += written as u64;
            more |= written == ROWS_PER_TURN;
        }
        progress.show(row_count);
    }
    progress.clear();
    outputs.into_iter().try_for_each(Output::complete)
}

impl Args {
    fn format_of(&self, side: Side, path: &Path) -> Result<Format, Failure> {
        let ending = path.extension().unwrap_or_default().to_ascii_lowercase();
        match (self.output_format, ending.to_str()) {
            (Some(format), _) => Ok(format),
            (None, Some("csv")) => Ok(Format::Csv),
            (None, Some("tsv" | "tab")) => Ok(Format::Tsv),
            (None, Some("jsonl" | "ndjson")) => Ok(Format::Jsonl),
            (None, _) if path == Path::new("-") => Ok(Format::Csv),
            (None, _) => Err(Failure::usage(format!(
                "--{} {}: the name does not say the format; \
                 end it in .csv, .tsv or .jsonl, or add --output-format",
                side.name(),
                path.display()
            ))),
        }
    }
}

/// One side's file.
struct Output {
    /// As it stands in messages.
    name: String,
    writer: Box<dyn Write>,
    /// The unfinished file and the name it gets when it is complete.
    rename: Option<Unfinished>,
    format: Format,
    rows: Arrivals,
    block: Vec<u8>,
}

impl Output {
    fn open(path: &Path, format: Format, rows: Arrivals) -> Result<Output, Failure> {
        let name = path.display().to_string();
        let mut rename = None;
        // A pipe or a device is written to as it is; it cannot be renamed over.
        let special = fs::metadata(path).is_ok_and(|meta| !meta.is_file());
        let writer: Box<dyn Write> = if path == Path::new("-") {
            Box::new(io::stdout())
        } else if special {
            let file = File::options().write(true).open(path);
            Box::new(file.map_err(|error| cannot("open", &name, &error))?)
        } else {
            let unfinished = Unfinished::beside(path);
            let file = File::create(&unfinished.path);
            let file = file.map_err(|error| cannot("create", &name, &error))?;
            rename = Some(unfinished);
            Box::new(file)
        };
        let mut block = Vec::with_capacity(BLOCK_BYTES + 256);
        match format {
            Format::Csv => block.extend_from_slice(b"key,ts,id\n"),
            Format::Tsv => block.extend_from_slice(b"key\tts\tid\n"),
            Format::Jsonl => {}
        }
        Ok(Output { name, writer, rename, format, rows, block })
    }

    /// Writes up to `row_count` rows; fewer only when there are no more.
    fn write_rows(&mut self, row_count: usize) -> Result<usize, Failure> {
        let mut written = 0;
        while written < row_count
            && let Some(event) = self.rows.next()
        {
            push_row(&mut self.block, self.format, &event);
            written += 1;
            if self.block.len() >= BLOCK_BYTES {
                self.flush()?;
            }
        }
        Ok(written)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let written = self.writer.write_all(&self.block).and_then(|()| self.writer.flush());
        self.block.clear();
        written.map_err(|error| match error.kind() {
            // The reader has seen enough.
            io::ErrorKind::BrokenPipe if self.rename.is_none() => Failure::Closed,
            _ => cannot("write", &self.name, &error),
        })
    }

    fn complete(mut self) -> Result<(), Failure> {
        self.flush()?;
        match self.rename.take() {
            Some(unfinished) => {
                unfinished.complete().map_err(|error| cannot("name", &self.name, &error))
            }
            None => Ok(()),
        }
    }
}

fn cannot(what: &str, name: &str, error: &io::Error) -> Failure {
    Failure::failed(format!("{name}: cannot {what} the file: {error}"))
}

/// A file under a temporary name; dropping it removes it.
struct Unfinished {
    path: PathBuf,
    target: PathBuf,
}

impl Unfinished {
    fn beside(target: &Path) -> Unfinished {
        let mut name = OsString::from(".");
        name.push(target.file_name().unwrap_or_default());
        name.push(format!(".{}.partial", std::process::id()));
        Unfinished { path: target.with_file_name(name), target: target.to_owned() }
    }

    fn complete(self) -> io::Result<()> {
        // Once renamed there is nothing left for the drop to remove.
        fs::rename(&self.path, &self.target)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // It may have been renamed, or never created.
        let _ = fs::remove_file(&self.path);
    }
}

fn push_row(block: &mut Vec<u8>, format: Format, event: &WorkloadEvent) {
    let [before, between, and, after] = match format {
        Format::Csv => ["", ",", ",", "\n"],
        Format::Tsv => ["", "\t", "\t", "\n"],
        Format::Jsonl => ["{\"key\":", ",\"ts\":", ",\"id\":", "}\n"],
    };
    block.extend_from_slice(before.as_bytes());
    push_number(block, event.key);
    block.extend_from_slice(between.as_bytes());
    // Workloads start in 2023.
    push_number(block, event.ts.unsigned_abs());
    block.extend_from_slice(and.as_bytes());
    push_number(block, event.id);
    block.extend_from_slice(after.as_bytes());
}

/// Appends a number in decimal digits; several times as fast as formatting it.
fn push_number(block: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    block.extend_from_slice(&digits[start..]);
}

/// A line on a terminal that says how far it has come; nothing anywhere else.
struct Progress {
    row_count: u64,
    next: Option<Instant>,
}

const PROGRESS_EVERY: Duration = Duration::from_millis(200);

impl Progress {
    fn new(row_count: u64) -> Progress {
        let next = io::stderr().is_terminal().then(|| Instant::now() + PROGRESS_EVERY);
        Progress { row_count, next }
    }

    fn show(&mut self, rows: u64) {
        let now = Instant::now();
        if self.next.is_some_and(|next| next <= now) {
            self.next = Some(now + PROGRESS_EVERY);
            let filled = (rows * 30 / self.row_count.max(1)) as usize;
            let bar = "#".repeat(filled);
            let line = format!("\r[{bar:<30}] {rows} of {} rows", self.row_count);
            Console::stderr().text(&line);
        }
    }

    fn clear(&self) {
        if self.next.is_some() {
            Console::stderr().text("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_digits() {
        for number in [0, 9, 10, 1_700_000_000_000, u64::MAX] {
            let mut block = Vec::new();
            push_number(&mut block, number);
            assert_eq!(block, number.to_string().into_bytes());
        }
    }

    #[test]
    fn an_unfinished_file_does_not_stay() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("left.csv");
        let unfinished = Unfinished::beside(&target);
        fs::write(&unfinished.path, "half").unwrap();
        drop(unfinished);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        let unfinished = Unfinished::beside(&target);
        fs::write(&unfinished.path, "whole").unwrap();
        unfinished.complete().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"whole");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }
}
