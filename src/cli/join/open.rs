//! Opens the input files: headers, columns, and the time unit of the run.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cli::join::paths::STANDARD;
use crate::cli::join::plan::{Plan, SidePlan};
use crate::cli::join::streams::ThenPlan;
use crate::cli::{Console, Failure};
use crate::sink::SideRows;
use crate::source::fields::{delimited, json_names_of_rows, json_text, json_values};
use crate::source::schema::closest;
use crate::source::{
    BlockReader, ReadAhead, ReadError, ReadOptions, RowFormat, RowSchema, SchemaError, Setup,
};
use crate::time::text::{TimeFormat, TimeUnit};

/// Rows of a file that are looked at to find the unit of the run and the fields of JSON.
pub(super) const SAMPLE_ROWS: usize = 1000;

/// Bounds of what is read ahead of a stream while others are waited for.
const READ_AHEAD_BYTES_MIN: usize = 1 << 20;
const READ_AHEAD_BYTES_MAX: usize = 256 << 20;

/// So long a stream is waited for in silence before its first rows have come.
const WAIT_SAID_AFTER: Duration = Duration::from_secs(3);

/// The inputs, their headers read.
pub(super) struct Inputs {
    /// By [`Side::index`].
    pub(super) sides: [InputSide; 2],
    /// Of further streams.
    pub(super) then: Vec<InputSide>,
    /// The tick of this run: as given, else the finest that an option or a time calls for.
    pub(super) unit: TimeUnit,
    /// To be ended when the run begins.
    pub(super) setup: Arc<Setup>,
}

/// One side's files.
pub(super) struct InputSide {
    pub(super) schema: Arc<RowSchema>,
    pub(super) files: Vec<InputFile>,
}

/// One file, read up to its first row.
pub(super) struct InputFile {
    /// As the user gave it, or `standard input`.
    pub(super) name: String,
    pub(super) reader: BlockReader<Box<dyn Read + Send>>,
    /// Its size, if it is a regular file.
    pub(super) bytes: Option<u64>,
}

impl Inputs {
    /// Of all streams: left, right, the further ones.
    pub(super) fn streams(&self) -> impl Iterator<Item = &InputSide> {
        self.sides.iter().chain(&self.then)
    }

    /// The same, to be read from.
    pub(super) fn streams_mut(&mut self) -> impl Iterator<Item = &mut InputSide> {
        self.sides.iter_mut().chain(&mut self.then)
    }
}

impl InputSide {
    /// What a sink must know of the side's rows.
    pub(super) fn rows(&self) -> SideRows {
        SideRows { format: self.schema.format(), columns: self.schema.columns().to_vec() }
    }
}

/// Opens all files and reads as much as it takes to know their columns and times. On a pipe this
/// waits for the first row, with `--idle-timeout` so long at the most.
///
/// # Errors
/// [`Failure::Failed`] names the file and what is wrong with it; [`Failure::Usage`] the option that
/// names a column which is not there.
pub(super) fn open(plan: &Plan) -> Result<Inputs, Failure> {
    let mut unit = plan.matching.unit_needed().max(plan.allowed_lateness.unit_needed());
    unit = plan.max_jump.map_or(unit, |span| unit.max(span.unit_needed()));
    let setup = Arc::new(Setup::default());
    unit = plan.then.iter().map(ThenPlan::unit_needed).fold(unit, TimeUnit::max);
    let start = |path: &PathBuf| Opening::start(path, read_ahead_bytes(plan), &setup);
    // All are being opened before the first is waited for.
    let opening: Vec<Vec<Opening>> = plan
        .streams()
        .map(|stream| stream.files.iter().map(start).collect())
        .collect::<Result<_, Failure>>()?;
    let mut streams = Vec::new();
    for (stream, opening) in plan.streams().zip(opening) {
        streams.push(open_side(stream, opening)?);
    }
    if let Some(timeout) = plan.idle_timeout {
        setup.wait_until(Instant::now() + timeout);
    }
    for (stream, InputSide { schema, files }) in plan.streams().zip(&mut streams) {
        let format = &stream.time_format;
        unit = unit.max(stream.disorder.unit_needed()).max(format.unit_needed());
        for file in files {
            unit = unit.max(unit_of_rows(first_rows(file)?, schema, format));
        }
    }
    let then = streams.split_off(2);
    let sides = <[InputSide; 2]>::try_from(streams);
    // A plan has two sides.
    let sides = sides.map_err(|_| Failure::failed("there are not two sides"))?;
    Ok(Inputs { sides, then, unit: plan.unit.unwrap_or(unit), setup })
}

/// The rows that come next in a file; none where they were waited for long enough.
pub(super) fn first_rows(file: &mut InputFile) -> Result<&[u8], Failure> {
    match file.reader.peek() {
        Ok(rows) => Ok(rows),
        Err(ReadError::Io { error, .. }) if error.kind() == io::ErrorKind::TimedOut => Ok(&[]),
        Err(error) => Err(unreadable(&file.name, &error)),
    }
}

/// What each stream may be read ahead while others are waited for: all of them a quarter of what
/// state may take later, unless that is very little or a lot.
fn read_ahead_bytes(plan: &Plan) -> usize {
    let stream_count: usize = plan.streams().map(|stream| stream.files.len()).sum();
    let share = plan.machine.bounds.bytes_max() / 4 / stream_count.max(1) as u64;
    let share = usize::try_from(share).unwrap_or(READ_AHEAD_BYTES_MAX);
    share.clamp(READ_AHEAD_BYTES_MIN, READ_AHEAD_BYTES_MAX)
}

fn open_side(plan: &SidePlan, opening: Vec<Opening>) -> Result<InputSide, Failure> {
    let format = plan.format.rows();
    let mut files = Vec::new();
    let mut columns = plan.columns.clone();
    // Rows of JSON that were looked at for their fields.
    let mut rows_seen = 0;
    for file in opening {
        let mut file = file.finish(format)?;
        match format {
            _ if plan.columns.is_some() => {}
            RowFormat::JsonLines => {
                // All fields that come near the start of a file, the first file's first.
                rows_seen += read_fields(&mut file, columns.get_or_insert_default())?;
            }
            RowFormat::Delimited { .. } => {
                let found = read_header(&mut file, format)?;
                let known = columns.get_or_insert_with(|| found.clone());
                if *known != found {
                    return Err(Failure::usage(format!(
                        "{}: its columns are {}, and those of {} are {}; the files of a side must \
                         have the same",
                        file.name,
                        found.join(", "),
                        plan.files[0].display(),
                        known.join(", ")
                    )));
                }
            }
        }
        files.push(file);
    }
    let columns = columns.unwrap_or_default();
    if rows_seen > 0 {
        check_fields(plan, &files, &columns, rows_seen)?;
    }
    let schema = RowSchema::new(format, columns, &plan.key_columns, &plan.time_column)
        .map_err(|error| no_such_column(plan, &files, &error))?;
    Ok(InputSide { schema: Arc::new(schema), files })
}

/// Refuses a key or time that no row near the start of any file has: a name mistyped. A stream may
/// have begun with few rows, so there it is a warning.
fn check_fields(
    plan: &SidePlan,
    files: &[InputFile],
    fields: &[String],
    rows_seen: usize,
) -> Result<(), Failure> {
    let names = plan.key_columns.iter().chain([&plan.time_column]);
    let Some(name) = names.into_iter().find(|name| !fields.contains(name)) else { return Ok(()) };
    let (option, side) = (option_of(plan, name), plan.prefix);
    let meant =
        closest(name, fields).map_or(String::new(), |f| format!(" (did you mean \"{f}\"?)"));
    let rows = if rows_seen == 1 { "row" } else { &format!("{rows_seen} rows") };
    let message = format!(
        "{option}: {}: no field \"{name}\" in its first {rows}; the fields there are {}{meant}",
        files.first().map_or("", |file| file.name.as_str()),
        fields.join(", ")
    );
    if files.iter().any(|file| file.bytes.is_none()) {
        Console::stderr().warning(&message);
        return Ok(());
    }
    Err(Failure::usage(format!("{message}; if only later rows have it, list --{side}-columns")))
}

/// A file that is being opened.
struct Opening {
    name: String,
    input: OpeningInput,
}

enum OpeningInput {
    File(File, u64),
    Stream(ReadAhead),
}

impl Opening {
    /// Opens a regular file, and a stream on a thread, as that may wait for its writer.
    fn start(path: &Path, bytes_max: usize, setup: &Arc<Setup>) -> Result<Opening, Failure> {
        let standard = path == Path::new(STANDARD);
        let name = if standard { "standard input".to_owned() } else { path.display().to_string() };
        let failed = |error: io::Error| Failure::failed(cannot_open(&name, &error));
        let is_file = |metadata: fs::Metadata| metadata.is_file() || metadata.is_dir();
        let input = if standard || !fs::metadata(path).map_or(true, is_file) {
            let path = path.to_owned();
            let open = move || {
                let stream: Box<dyn Read + Send> =
                    if standard { Box::new(io::stdin()) } else { Box::new(File::open(path)?) };
                Ok(stream)
            };
            let stream = ReadAhead::start(open, bytes_max, Arc::clone(setup)).map_err(failed)?;
            let note = format!("waiting for the first rows of {name}");
            let say = move || Console::stderr().note(&note);
            OpeningInput::Stream(stream.on_wait(WAIT_SAID_AFTER, say))
        } else {
            let file = File::open(path).map_err(failed)?;
            let metadata = file.metadata().map_err(failed)?;
            if metadata.is_dir() {
                return Err(failed(io::ErrorKind::IsADirectory.into()));
            }
            OpeningInput::File(file, metadata.len())
        };
        Ok(Opening { name, input })
    }

    /// Waits until it is open.
    fn finish(self, format: RowFormat) -> Result<InputFile, Failure> {
        let Opening { name, input } = self;
        let (input, bytes): (Box<dyn Read + Send>, Option<u64>) = match input {
            OpeningInput::File(file, bytes) => (Box::new(file), Some(bytes)),
            OpeningInput::Stream(mut stream) => {
                let opened = stream.wait_opened();
                opened.map_err(|error| Failure::failed(cannot_open(&name, &error)))?;
                (Box::new(stream), None)
            }
        };
        // A pipe hands on rows as they come; a file is read in large blocks.
        let options = ReadOptions { eager: bytes.is_none(), ..ReadOptions::default() };
        Ok(InputFile { name, reader: BlockReader::new(input, format, options), bytes })
    }
}

fn cannot_open(name: &str, error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::NotFound => "; check its name and directory",
        io::ErrorKind::PermissionDenied => "; let this user read it, or run as one who may",
        io::ErrorKind::IsADirectory => "; name the files in it, each with an option of its own",
        _ => "",
    };
    format!("{name}: cannot open it: {error}{advice}")
}

fn read_header(file: &mut InputFile, format: RowFormat) -> Result<Vec<String>, Failure> {
    let name = &file.name;
    let first = file.reader.read_header().map_err(|error| unreadable(name, &error))?;
    let first = first.ok_or_else(|| {
        Failure::failed(format!(
            "{name}: it is empty, and its first line should be a header with the column names; \
             a file without one is read with --no-header"
        ))
    })?;
    RowSchema::column_names(format, &first)
        .map_err(|error| Failure::failed(format!("{name}: {error}")))
}

/// Adds the fields of a file's first block of JSON rows to those known; returns how many rows that
/// were. On a pipe these are the rows that have come together.
fn read_fields(file: &mut InputFile, known: &mut Vec<String>) -> Result<usize, Failure> {
    let rows = file.reader.peek().map_err(|error| unreadable(&file.name, &error))?;
    let (names, row_count) = json_names_of_rows(rows, SAMPLE_ROWS);
    let set: HashSet<&String> = known.iter().collect();
    let new: Vec<String> = names.into_iter().filter(|name| !set.contains(name)).collect();
    known.extend(new);
    Ok(row_count)
}

fn unreadable(name: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::failed(format!("{name}: {error}"))
}

/// A column that an option names is not there: says which option.
fn no_such_column(plan: &SidePlan, files: &[InputFile], error: &SchemaError) -> Failure {
    let option = match error {
        SchemaError::Missing { name, .. } | SchemaError::Ambiguous { name } => {
            option_of(plan, name)
        }
        _ => plan.on_option().to_owned(),
    };
    let file = files.first().map_or("", |file| file.name.as_str());
    Failure::usage(format!("{option}: {file}: {error}{}", header_hint(plan, error)))
}

/// What a header that lacks a column may be instead.
fn header_hint(plan: &SidePlan, error: &SchemaError) -> String {
    let SchemaError::Missing { columns, .. } = error else { return String::new() };
    let side = plan.prefix;
    if plan.columns.is_some() {
        String::new()
    } else if columns.iter().any(|name| name.trim().parse::<f64>().is_ok()) {
        format!("; a file without a header line is read with --no-header and --{side}-columns")
    } else if let [name] = &columns[..]
        && let Some(delimiter) = name.chars().find(|char| matches!(char, '\t' | ',' | ';' | '|'))
    {
        match delimiter {
            '\t' => format!("; tabs are read with --{side}-format tsv"),
            ',' => format!("; commas are read with --{side}-format csv"),
            other => format!("; fields with \"{other}\" between are not read: use commas"),
        }
    } else {
        String::new()
    }
}

/// The option that names a column.
fn option_of(plan: &SidePlan, name: &String) -> String {
    if *name == plan.time_column && !plan.key_columns.contains(name) {
        format!("--{}-time", plan.prefix)
    } else {
        plan.on_option().to_owned()
    }
}

/// The finest unit that the times of some rows call for.
fn unit_of_rows(rows: &[u8], schema: &RowSchema, format: &TimeFormat) -> TimeUnit {
    let lines = rows.split(|&byte| byte == b'\n').take(SAMPLE_ROWS);
    let unit = |line: &[u8]| match schema.format() {
        // A record with a line end in quotes is two odd lines here; the rest are sample enough.
        RowFormat::Delimited { delimiter } => delimited(line, delimiter)
            .nth(schema.time())
            .and_then(Result::ok)
            .map(|text| format.unit_of_sample(text.trim_ascii())),
        RowFormat::JsonLines => {
            let name = &schema.columns()[schema.time()];
            let mut values = Vec::new();
            json_values(line, &[name], &mut values).ok()?;
            let text = json_text(values.first().copied().flatten()?)?;
            Some(format.unit_of_sample(&text))
        }
    };
    lines.filter(|line| !line.is_empty()).filter_map(unit).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(format: RowFormat, rows: &str) -> TimeUnit {
        let columns = vec!["k".to_owned(), "t".to_owned()];
        let schema = RowSchema::new(format, columns, &["k"], "t").unwrap();
        unit_of_rows(rows.as_bytes(), &schema, &TimeFormat::Auto)
    }

    #[test]
    fn what_cannot_be_opened_comes_with_advice() {
        for (kind, advice) in [
            (io::ErrorKind::NotFound, "check its name"),
            (io::ErrorKind::PermissionDenied, "let this user read it"),
            (io::ErrorKind::IsADirectory, "name the files in it"),
        ] {
            let message = cannot_open("a.csv", &kind.into());
            assert!(message.starts_with("a.csv: ") && message.contains(advice), "{message}");
        }
    }

    #[test]
    fn the_finest_time_decides() {
        assert_eq!(unit(RowFormat::CSV, ""), TimeUnit::Ms);
        assert_eq!(unit(RowFormat::CSV, "a,1704103200000\r\nb,1704103200001\r\n"), TimeUnit::Ms);
        assert_eq!(unit(RowFormat::CSV, "a,2024-01-01 10:00:00\n"), TimeUnit::Us);
        let mixed = "a,2024-01-01 10:00:00\nb,\"2024-01-01 10:00:00.123456789\"\n";
        assert_eq!(unit(RowFormat::CSV, mixed), TimeUnit::Ns);
        let rows = "{\"t\":1704103200000}\n{\"k\":1}\n{\"t\":\"2024-01-01T10:00:00.5Z\"}\n";
        assert_eq!(unit(RowFormat::JsonLines, rows), TimeUnit::Us);
    }
}
