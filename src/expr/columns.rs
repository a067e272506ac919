//! The columns of all streams: what they are called, which type they have, how a cell is read.

use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::value::{self, Kind, Value};
use crate::event::stream_name;
use crate::source::RowFormat;
use crate::source::fields::{delimited, delimited_field, json_text, json_values};
use crate::time::text::{TimeFormat, TimeParser, TimeSpan, TimeUnit, Zone};

/// The type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// JSON: as the value says. CSV: a number or `true` or `false` if it looks like one, else text.
    Auto,
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Int,
    /// Any number, whole ones as well.
    Number,
    /// Any text.
    Text,
    /// A time, as `--time-format auto` reads it.
    Time,
    /// A duration, like `5m`.
    Duration,
    /// The time that the row is joined by.
    EventTime,
}

impl ColumnType {
    /// What users may call a type, for messages.
    pub const NAMES: &str = "bool, int, float, text, time, duration";

    /// The type of a name.
    pub fn from_name(name: &str) -> Option<ColumnType> {
        Some(match name.to_ascii_lowercase().as_str() {
            "bool" | "boolean" => ColumnType::Bool,
            "int" | "integer" | "bigint" => ColumnType::Int,
            "float" | "double" | "real" | "number" | "numeric" | "decimal" => ColumnType::Number,
            "text" | "string" | "varchar" => ColumnType::Text,
            "time" | "timestamp" => ColumnType::Time,
            "duration" => ColumnType::Duration,
            _ => return None,
        })
    }

    pub(super) fn kind(self) -> Kind {
        match self {
            ColumnType::Auto => Kind::Any,
            ColumnType::Bool => Kind::Bool,
            ColumnType::Int | ColumnType::Number => Kind::Number,
            ColumnType::Text => Kind::Text,
            ColumnType::Time | ColumnType::EventTime => Kind::Time,
            ColumnType::Duration => Kind::Duration,
        }
    }

    /// The types of the columns of CSV or TSV by some rows: numbers, true or false, times (not as
    /// numbers), else text; without a value [`Auto`](ColumnType::Auto). A number with a zero in
    /// front, like `007`, is text: that is how codes look.
    pub fn of_sample<'a>(
        rows: impl Iterator<Item = &'a [u8]>,
        delimiter: u8,
        column_count: usize,
    ) -> Vec<ColumnType> {
        let times = TimeParser::new(&TimeFormat::Auto, &Zone::UTC, TimeUnit::Ns);
        let mut types: Vec<Option<ColumnType>> = vec![None; column_count];
        for row in rows {
            for (seen, cell) in types.iter_mut().zip(delimited(row, delimiter)) {
                let cell = cell.unwrap_or_default();
                if cell.is_empty() || *seen == Some(ColumnType::Text) {
                    continue;
                }
                let found = type_of(&cell, &times);
                *seen = Some(if seen.is_none_or(|seen| seen == found) {
                    found
                } else {
                    ColumnType::Text
                });
            }
        }
        types.into_iter().map(|found| found.unwrap_or(ColumnType::Auto)).collect()
    }
}

fn type_of(cell: &[u8], times: &TimeParser) -> ColumnType {
    if value::boolean(cell).is_some() {
        ColumnType::Bool
    } else if value::number(cell).is_some() {
        if is_code(cell) { ColumnType::Text } else { ColumnType::Number }
    } else if times.parse(cell).is_ok() {
        ColumnType::Time
    } else {
        ColumnType::Text
    }
}

/// Digits with a zero in front.
fn is_code(cell: &[u8]) -> bool {
    let digits = cell.trim_ascii();
    digits.len() > 1 && digits[0] == b'0' && digits.iter().all(u8::is_ascii_digit)
}

/// One side's columns.
#[derive(Clone, Debug)]
pub struct SideColumns {
    /// How its rows are written down.
    pub format: RowFormat,
    /// The columns as the input names them.
    pub names: Vec<String>,
    /// The same as the output names them.
    pub output_names: Vec<String>,
    /// Their types; what is missing is [`ColumnType::Auto`].
    pub types: Vec<ColumnType>,
    /// Whether they were given, and not taken from the first rows.
    pub given: Vec<bool>,
}

/// What expressions are about: the columns of all streams, and the times of the run. Shared by the
/// expressions of all cores; counts the values that were not of their column's type.
#[derive(Debug)]
pub struct Scope {
    /// By stream: left, right, the further ones.
    streams: Vec<SideColumns>,
    pub(super) times: TimeParser,
    pub(super) unit: TimeUnit,
    pub(super) zone: Zone,
    faults: Vec<Vec<Fault>>,
    mismatches: AtomicU64,
}

/// Values of a column that were not of its type.
#[derive(Debug, Default)]
struct Fault {
    count: AtomicU64,
    first: OnceLock<String>,
}

/// A row of one side.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// As it stands in the input.
    pub bytes: &'a [u8],
    /// The time that it is joined by, in ticks of the run.
    pub ts: i64,
}

/// A pair, or a row whose other side is not there: that side's columns are null.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Left and right.
    pub sides: [Option<Row<'a>>; 2],
    /// Of further streams.
    pub more: &'a [Option<Row<'a>>],
}

impl<'a> Row<'a> {
    /// The bytes of a row that may not be there.
    pub(crate) fn bytes_of(row: Option<Row<'a>>) -> Option<&'a [u8]> {
        row.map(|row| row.bytes)
    }
}

impl<'a> Rows<'a> {
    /// Of the two sides.
    pub fn of_sides(sides: [Option<Row<'a>>; 2]) -> Rows<'a> {
        Rows { sides, more: &[] }
    }

    /// Of any number of streams, left and right first; missing ones are null.
    pub fn of_streams(streams: &'a [Option<Row<'a>>]) -> Rows<'a> {
        let side = |stream: usize| streams.get(stream).copied().flatten();
        Rows { sides: [side(0), side(1)], more: streams.get(2..).unwrap_or_default() }
    }

    #[inline]
    pub(super) fn stream(&self, stream: usize) -> Option<Row<'a>> {
        match self.sides.get(stream) {
            Some(side) => *side,
            None => self.more.get(stream - 2).copied().flatten(),
        }
    }
}

/// A column that an expression uses.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) stream: usize,
    pub(super) place: usize,
    pub(super) column_type: ColumnType,
    format: RowFormat,
    /// What the row calls it.
    pub(super) name: String,
}

/// Letters of a value that are shown.
const SHOWN: usize = 40;

impl Scope {
    /// Of the left and the right columns, and those of further streams, in a run of that unit;
    /// times without a zone are in `zone`.
    pub fn new(streams: impl Into<Vec<SideColumns>>, unit: TimeUnit, zone: &Zone) -> Scope {
        let streams = streams.into();
        let faults = streams.iter().map(|columns| {
            let mut faults = Vec::new();
            faults.resize_with(columns.names.len(), Fault::default);
            faults
        });
        Scope {
            faults: faults.collect(),
            streams,
            times: TimeParser::new(&TimeFormat::Auto, zone, unit),
            unit,
            zone: zone.clone(),
            mismatches: AtomicU64::new(0),
        }
    }

    /// The columns of each stream.
    pub fn streams(&self) -> &[SideColumns] {
        &self.streams
    }

    /// The stream of that name, if it is here.
    pub(super) fn stream_of(&self, name: &str) -> Option<usize> {
        (0..self.streams.len()).find(|stream| stream_name(*stream) == name)
    }

    /// What was wrong with values, a sentence each: columns whose values are not of their type, and
    /// operations on values of other types. All of these gave null.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (stream, faults) in self.faults.iter().enumerate() {
            for (place, fault) in faults.iter().enumerate() {
                // Relaxed here and below: only counts, read when those who count have ended.
                let count = fault.count.load(Ordering::Relaxed);
                if count == 0 {
                    continue;
                }
                let (columns, side) = (&self.streams[stream], stream_name(stream));
                let option = types_option(stream);
                let name = &columns.names[place];
                let kind = columns.type_of(place).kind().name();
                let first = fault.first.get().map_or("", String::as_str);
                let times = if count == 1 { "once" } else { &format!("{count} times") };
                warnings.push(format!(
                    "{side}.{name} was {times} not {kind}, first \"{first}\", and counted as null \
                     there; give {option} {name}:text to take its values as text"
                ));
            }
        }
        // Relaxed: as above.
        let mismatches = self.mismatches.load(Ordering::Relaxed);
        if mismatches > 0 {
            let times = if mismatches == 1 { "once" } else { &format!("{mismatches} times") };
            warnings.push(format!(
                "values of different types met {times}, like a text and a number, and gave null; \
                 cast them, as in amount::float"
            ));
        }
        warnings
    }

    /// Values of types that do not go together gave null.
    #[cold]
    pub(super) fn count_mismatch(&self) {
        // Relaxed: only a count.
        self.mismatches.fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    fn count_fault(&self, column: &Column, text: &[u8]) {
        let Some(fault) = self.faults[column.stream].get(column.place) else { return };
        // Relaxed: only a count.
        fault.count.fetch_add(1, Ordering::Relaxed);
        fault.first.get_or_init(|| String::from_utf8_lossy(text).chars().take(SHOWN).collect());
    }

    pub(super) fn column(&self, stream: usize, place: usize) -> Column {
        let columns = &self.streams[stream];
        Column {
            stream,
            place,
            column_type: columns.type_of(place),
            format: columns.format,
            name: columns.names[place].clone(),
        }
    }

    /// The value of a column in a row.
    pub(super) fn value<'a>(&self, column: &Column, rows: &Rows<'a>) -> Value<'a> {
        let Some(row) = rows.stream(column.stream) else { return Value::Null };
        if column.column_type == ColumnType::EventTime {
            return Value::Time(row.ts);
        }
        let Some(cell) = column.cell(row.bytes) else { return Value::Null };
        let text = match cell {
            Cell::Json(json) => match self.json(column, json) {
                Ok(value) => return value,
                Err(text) => text,
            },
            Cell::Text(text) if text.is_empty() => return Value::Null,
            Cell::Text(text) => text,
        };
        self.parsed(column.column_type, text).unwrap_or_else(|text| {
            self.count_fault(column, &text);
            Value::Null
        })
    }

    /// A JSON value that needs no other look, or its text.
    fn json<'a>(&self, column: &Column, json: &'a str) -> Result<Value<'a>, Cow<'a, [u8]>> {
        let Some(text) = json_text(json) else { return Ok(Value::Null) };
        if column.column_type != ColumnType::Auto {
            return Err(text);
        }
        Ok(match json.as_bytes().first() {
            Some(b'"') => Value::Text(text),
            Some(b't' | b'f') => Value::Bool(json == "true"),
            _ => value::number(&text).unwrap_or(Value::Text(text)),
        })
    }

    /// The value of a type that a text stands for, or the text back.
    pub(super) fn parsed<'a>(
        &self,
        column_type: ColumnType,
        text: Cow<'a, [u8]>,
    ) -> Result<Value<'a>, Cow<'a, [u8]>> {
        let value = match column_type {
            ColumnType::Text => return Ok(Value::Text(text)),
            ColumnType::Auto => {
                let known = value::number(&text).filter(|_| !is_code(&text));
                let known = known.or_else(|| value::boolean(&text).map(Value::Bool));
                return Ok(known.unwrap_or(Value::Text(text)));
            }
            ColumnType::Bool => value::boolean(&text).map(Value::Bool),
            ColumnType::Int => value::number(&text).filter(|value| matches!(value, Value::Int(_))),
            ColumnType::Number => value::number(&text),
            ColumnType::Time | ColumnType::EventTime => {
                self.times.parse(&text).ok().map(Value::Time)
            }
            ColumnType::Duration => self.duration(&text).map(Value::Duration),
        };
        value.ok_or(text)
    }

    /// Ticks of a duration's text.
    fn duration(&self, text: &[u8]) -> Option<i64> {
        let span: TimeSpan = std::str::from_utf8(text).ok()?.trim().parse().ok()?;
        span.ticks(self.unit).ok()
    }

    /// The text of a value; `None` for null.
    pub(super) fn text<'a>(&self, value: Value<'a>) -> Option<Cow<'a, [u8]>> {
        let text = match value {
            Value::Null => return None,
            Value::Text(text) => return Some(text),
            Value::Bool(value) => value.to_string(),
            Value::Int(value) => value.to_string(),
            Value::Float(value) => value::float_text(value),
            Value::Time(ticks) => self.unit.format(ticks),
            Value::Duration(ticks) => TimeSpan::from_ticks(ticks, self.unit).to_string(),
        };
        Some(Cow::Owned(text.into_bytes()))
    }
}

/// The option that says what types the columns of a stream have.
pub(super) fn types_option(stream: usize) -> &'static str {
    match stream {
        0 => "--left-types",
        1 => "--right-types",
        _ => "--then-types",
    }
}

impl SideColumns {
    pub(super) fn type_of(&self, place: usize) -> ColumnType {
        self.types.get(place).copied().unwrap_or(ColumnType::Auto)
    }
}

/// A cell as it stands in a row.
#[derive(Clone)]
pub(super) enum Cell<'a> {
    /// Of CSV and TSV, quotes undone.
    Text(Cow<'a, [u8]>),
    /// Of JSON: the text of the value.
    Json(&'a str),
}

impl Column {
    /// The cells of some columns of one side, in their order.
    pub(super) fn cells<'a>(columns: &[Column], row: &'a [u8]) -> Vec<Option<Cell<'a>>> {
        let mut found: Vec<Option<Cell<'a>>> = Vec::new();
        let Some(first) = columns.first() else { return found };
        match first.format {
            RowFormat::Delimited { delimiter } => {
                let last = columns.iter().map(|column| column.place).max().unwrap_or(0);
                let cells = delimited(row, delimiter).take(last + 1);
                let cells: Vec<_> = cells.map(Result::unwrap_or_default).collect();
                let cell = |column: &Column| cells.get(column.place).cloned().map(Cell::Text);
                found.extend(columns.iter().map(cell));
            }
            RowFormat::JsonLines => {
                let (mut names, mut values) = (Vec::new(), Vec::new());
                names.extend(columns.iter().map(|column| &column.name));
                // Rows of events are sound.
                let _ = json_values(row, &names, &mut values);
                found.extend(values.into_iter().map(|value| value.map(Cell::Json)));
            }
        }
        found
    }

    /// The cell of a row; `None` where the row lacks it.
    pub(super) fn cell<'a>(&self, row: &'a [u8]) -> Option<Cell<'a>> {
        match self.format {
            RowFormat::Delimited { delimiter } => {
                delimited_field(row, delimiter, self.place).map(Cell::Text)
            }
            RowFormat::JsonLines => {
                let mut values = Vec::with_capacity(1);
                json_values(row, &[&self.name], &mut values).ok()?;
                values.first().copied().flatten().map(Cell::Json)
            }
        }
    }
}
