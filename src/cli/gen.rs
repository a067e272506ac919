//! `intervale gen`: a workload as files.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::cli::bench::{count, workload};
use crate::cli::choices::Format;
use crate::cli::console::check_stdout_or;
use crate::cli::join::check_distinct;
use crate::cli::number::whole;
use crate::cli::shape::{ShapeArgs, burst, check_late, event_rate};
use crate::cli::text::show_count;
use crate::cli::{Console, Failure, StopSignal, os};
use crate::event::Side;
use crate::join::SinkError;
use crate::sink::{OpenMode, Output};
use crate::workload::random::{mix, rand};
use crate::workload::{Arrivals, Burst, KeyRule, Workload, WorkloadEvent};

const EXAMPLES: &str = "\
Examples:
  intervale gen --workload w1a --events 2e5 --left orders.csv --right payments.csv
  intervale gen --workload w2 --events 1000 --left - --output-format jsonl
  intervale gen --keys 5000 --skew 1.2 --rate 200 --delay 30s --disorder 2s --late-share 1% \\
      --burst 1m,10 --payload 40 --events 2e5 --left l.tsv --right r.tsv

Columns: key, ts (milliseconds since 1970), id, and payload if asked for. Rows are in arrival order,
up to --disorder late (5s, if not given): join them with --out-of-orderness 5s. The same seed and
options give the same bytes. Late rows of --late-share are late by their own side's watermark, so
exactly so many are in a join with --deterministic; without it, where the watermark is that of both
sides and moves every few hundred rows, fewer may be.";

/// Options of `intervale gen`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// What to make: w1a, w1b, w2, w3a, w3b, w4, or free: 1,000 keys, 1,000 events a second. The
    /// options from --keys to --burst change one thing each
    #[arg(long, value_parser = workload, default_value = "free")]
    workload: Workload,
    /// Events of both sides together, as 2000000, 2_000_000 or 2e6
    #[arg(
        long, value_name = "N", default_value = "2_000_000",
        value_parser = whole::<u64>(0, u64::MAX), allow_negative_numbers = true
    )]
    events: u64,
    /// What events are made from
    #[arg(
        long, value_name = "N", default_value_t = crate::workload::SEED_MEASURED,
        value_parser = count, allow_negative_numbers = true
    )]
    seed: u64,
    #[command(flatten)]
    shape: ShapeArgs,
    /// Events a second and side, in event time
    #[arg(long, value_name = "N", value_parser = event_rate, allow_negative_numbers = true)]
    rate: Option<u64>,
    /// Events come in bursts, one a period, so many times as fast, with silence between: 10s,5
    #[arg(long, value_name = "PERIOD,TIMES", value_parser = burst)]
    burst: Option<Burst>,
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

/// Rows are handed to the system in blocks of at least this many bytes, whole rows each.
const BLOCK_BYTES: usize = 256 << 10;

/// From so many keys on, making their table takes so long that it is said.
const LARGE_TABLE_KEYS: u64 = 1_000_000;

/// So many rows of one side, then as many of the other: who reads both as they come, through
/// pipes, is not kept waiting.
const ROWS_PER_TURN: usize = 4_096;

/// Makes the files.
///
/// # Errors
/// [`Failure`] for wrong use, for files that cannot be written (none is left behind half done), and
/// after Ctrl-C or SIGTERM.
pub fn run(args: &Args) -> Result<(), Failure> {
    if !args.events.is_multiple_of(2) {
        return Err(Failure::usage(format!(
            "--events {}: both sides get the same number; give an even one",
            args.events
        )));
    }
    if let (Some(left), Some(right)) = (&args.left, &args.right) {
        check_distinct(&[("--left", left), ("--right", right)], &[])?;
    }
    let events_per_side = args.events / 2;
    let shape = args.shape.shape(args.rate, args.burst);
    let workload = shape.of(args.workload, events_per_side)?;
    check_late(&workload, args.seed, events_per_side)?;
    os::catch_interrupts();
    if let KeyRule::Zipf(shape) = workload.keys
        && shape.keys >= LARGE_TABLE_KEYS
        && io::stderr().is_terminal()
    {
        let keys = show_count(shape.keys);
        Console::stderr().note(&format!("making the table that {keys} skewed keys come from"));
    }
    let mut tables = Vec::new();
    for (side, path) in [(Side::Left, &args.left), (Side::Right, &args.right)] {
        if let Some(path) = path {
            let rows = Arrivals::new(workload, side, args.seed, events_per_side);
            let payload = Payload::new(&workload, side, args.seed);
            tables.push(Table::open(path, args.format_of(side, path)?, rows, payload)?);
        }
    }
    let mut progress = Progress::new(events_per_side * tables.len() as u64);
    let mut row_count = 0;
    let mut more = true;
    while more {
        more = false;
        for table in &mut tables {
            let written = table.write_rows(ROWS_PER_TURN)?;
            row_count += written as u64;
            more |= written == ROWS_PER_TURN;
        }
        if let Some(signal) = os::interrupted() {
            progress.clear();
            return Err(stop(signal, tables));
        }
        progress.show(row_count);
    }
    progress.clear();
    for mut table in tables {
        table.flush()?;
        table.output.commit().map_err(failure)?;
    }
    Ok(())
}

/// Keeps what is there, which is complete rows.
fn stop(signal: StopSignal, tables: Vec<Table>) -> Failure {
    let mut kept = Vec::new();
    for mut table in tables {
        if let Err(failure) = table.flush() {
            return failure;
        }
        match table.output.keep_partial() {
            Ok(path) => kept.extend(path.map(|path| path.display().to_string())),
            Err(error) => return failure(error),
        }
    }
    let by = signal.name();
    let message = match kept.is_empty() {
        true => format!("stopped by {by}; the rows that were written are complete"),
        false => format!("stopped by {by}; the rows so far are in {}", kept.join(" and ")),
    };
    Failure::Interrupted(signal, message)
}

fn failure(error: SinkError) -> Failure {
    if error.closed { Failure::Closed } else { Failure::Failed(error.message) }
}

impl Args {
    fn format_of(&self, side: Side, path: &Path) -> Result<Format, Failure> {
        match self.output_format.or_else(|| Format::by_ending(path)) {
            Some(format) => Ok(format),
            None if path == Path::new("-") || is_no_file(path) => Ok(Format::Csv),
            None => Err(Failure::usage(format!(
                "--{} {}: the name does not say the format; \
                 end it in .csv, .tsv or .jsonl, or add --output-format",
                side.name(),
                path.display()
            ))),
        }
    }
}

/// Whether a path is a device or a pipe, whose name says nothing: `/dev/null`, to see how long it
/// takes to make rows.
fn is_no_file(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}

/// One side's file.
struct Table {
    output: Output,
    format: Format,
    rows: Arrivals,
    payload: Payload,
    block: Vec<u8>,
    rows_in_block: u64,
}

impl Table {
    fn open(
        path: &Path,
        format: Format,
        rows: Arrivals,
        payload: Payload,
    ) -> Result<Table, Failure> {
        if path == Path::new("-") {
            check_stdout_or(", or name one with --left or --right")?;
        }
        let (output, _) = Output::open(path, OpenMode::Replace).map_err(failure)?;
        let mut block = Vec::with_capacity(BLOCK_BYTES + 256);
        let columns = if payload.bytes > 0 { &COLUMNS[..] } else { &COLUMNS[..3] };
        match format {
            Format::Csv => block.extend_from_slice(columns.join(",").as_bytes()),
            Format::Tsv => block.extend_from_slice(columns.join("\t").as_bytes()),
            Format::Jsonl => {}
        }
        if format != Format::Jsonl {
            block.push(b'\n');
        }
        Ok(Table { output, format, rows, payload, block, rows_in_block: 0 })
    }

    /// Writes up to `row_count` rows; fewer only when there are no more.
    fn write_rows(&mut self, row_count: usize) -> Result<usize, Failure> {
        let mut written = 0;
        while written < row_count
            && let Some(event) = self.rows.next()
        {
            push_row(&mut self.block, self.format, &event, &self.payload);
            self.rows_in_block += 1;
            written += 1;
            if self.block.len() >= BLOCK_BYTES {
                self.flush()?;
            }
        }
        Ok(written)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let written = self.output.write(&self.block, self.rows_in_block);
        self.rows_in_block = 0;
        self.block.clear();
        written.map_err(failure)
    }
}

const COLUMNS: [&str; 4] = ["key", "ts", "id", "payload"];

fn push_row(block: &mut Vec<u8>, format: Format, event: &WorkloadEvent, payload: &Payload) {
    let [before, between, and, after] = match format {
        Format::Csv => ["", ",", ",", ","],
        Format::Tsv => ["", "\t", "\t", "\t"],
        Format::Jsonl => ["{\"key\":", ",\"ts\":", ",\"id\":", ",\"payload\":\""],
    };
    block.extend_from_slice(before.as_bytes());
    push_number(block, event.key);
    block.extend_from_slice(between.as_bytes());
    // Workloads start in 2023.
    push_number(block, event.ts.unsigned_abs());
    block.extend_from_slice(and.as_bytes());
    push_number(block, event.id);
    if payload.bytes > 0 {
        block.extend_from_slice(after.as_bytes());
        payload.push(block, event.id);
    }
    let end: &[u8] = match format {
        Format::Jsonl if payload.bytes > 0 => b"\"}\n",
        Format::Jsonl => b"}\n",
        Format::Csv | Format::Tsv => b"\n",
    };
    block.extend_from_slice(end);
}

/// Text that does not compress to nothing and needs no quotes in any format.
struct Payload {
    bytes: usize,
    seed: u64,
}

const PAYLOAD_LETTERS: &[u8; 64] =
    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";

/// Letters that one random number makes, 6 bits each.
const LETTERS_PER_DRAW: usize = 10;

impl Payload {
    fn new(workload: &Workload, side: Side, seed: u64) -> Payload {
        // Apart from what keys and times are drawn from.
        let seed = mix(!Workload::side_seed(seed, side));
        Payload { bytes: workload.payload_bytes as usize, seed }
    }

    fn push(&self, block: &mut Vec<u8>, id: u64) {
        let own_seed = mix(self.seed.wrapping_add(id));
        for draw in 0..self.bytes.div_ceil(LETTERS_PER_DRAW) {
            let count = (self.bytes - draw * LETTERS_PER_DRAW).min(LETTERS_PER_DRAW);
            let random = rand(own_seed, draw as u64);
            let letter = |at: usize| PAYLOAD_LETTERS[(random >> (6 * at)) as usize & 63];
            block.extend((0..count).map(letter));
        }
    }
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
}
