//! The rows of a result, and of inputs, as their cells: whatever format they stand in.

use std::borrow::Cow;
use std::fs::File;
use std::path::Path;

use crate::cli::Failure;
use crate::cli::choices::Format;
use crate::cli::join::{Table, Tables};
use crate::event::stream_name;
use crate::sink::Columns;
use crate::source::fields::{delimited, json_names_of_rows, json_text, json_values};
use crate::source::{Block, BlockReader, ReadOptions, RowFormat, RowSchema};

/// The columns by which rows are told apart.
pub(super) struct Used {
    /// Of each stream's rows: places in its schema.
    pub(super) inputs: Vec<Vec<usize>>,
    /// Of the result's rows: places among its columns, by stream likewise.
    pub(super) result: Vec<Vec<usize>>,
    /// Output columns that the result lacks.
    pub(super) lacking: Vec<String>,
}

/// Takes the cells of rows of one format and list of columns.
pub(super) struct Cells<'a> {
    format: RowFormat,
    names: &'a [String],
}

impl<'a> Cells<'a> {
    pub(super) fn of_table(table: &'a Table) -> Cells<'a> {
        Cells { format: table.format(), names: table.schema.columns() }
    }

    /// The cells at some places as one text: equal for equal cells, in any format.
    pub(super) fn joined(&self, row: &[u8], places: &[usize]) -> Result<Vec<u8>, String> {
        let cells = self.all(row)?;
        let mut joined = Vec::with_capacity(row.len() + 4 * places.len());
        for &place in places {
            let cell = cells.get(place).map_or(&[][..], |cell| cell);
            // Lengths keep the cells apart. Rows are far below 4 GiB.
            joined.extend_from_slice(&(cell.len() as u32).to_le_bytes());
            joined.extend_from_slice(cell);
        }
        Ok(joined)
    }

    /// All cells, in the order of the columns. What JSON lacks or has as null is empty.
    fn all<'r>(&self, row: &'r [u8]) -> Result<Vec<Cow<'r, [u8]>>, String> {
        match self.format {
            RowFormat::Delimited { delimiter } => {
                let cells: Result<Vec<_>, _> = delimited(row, delimiter).collect();
                let cells = cells.map_err(|error| error.to_string())?;
                if cells.len() == self.names.len() {
                    return Ok(cells);
                }
                let (found, expected) = (cells.len(), self.names.len());
                Err(format!("it has {found} fields, and there are {expected} columns"))
            }
            RowFormat::JsonLines => {
                let mut values = Vec::new();
                json_values(row, self.names, &mut values)?;
                let text = |value: Option<&'r str>| value.and_then(json_text).unwrap_or_default();
                Ok(values.into_iter().map(text).collect())
            }
        }
    }
}

/// A result file, read up to its first row.
pub(super) struct ResultFile {
    name: String,
    reader: BlockReader<File>,
    format: RowFormat,
    pub(super) columns: Vec<String>,
}

/// Rows of JSON that are looked at for their columns.
const SAMPLE_ROWS: usize = 1_000;

impl ResultFile {
    /// Opens a result and reads its header, or looks at its first rows.
    pub(super) fn open(path: &Path, format: Option<Format>) -> Result<ResultFile, Failure> {
        let name = format!("--result {}", path.display());
        let format = format.or_else(|| Format::by_ending(path)).ok_or_else(|| {
            Failure::usage(format!(
                "{name}: the file's ending does not say its format; give --result-format csv, tsv \
                 or jsonl"
            ))
        })?;
        let failed = |error: &dyn std::fmt::Display| Failure::failed(format!("{name}: {error}"));
        let file = File::open(path).map_err(|error| {
            failed(&format!("cannot open it: {error}; check its name and directory"))
        })?;
        let format = format.rows();
        let mut reader = BlockReader::new(file, format, ReadOptions::default());
        let columns = if format == RowFormat::JsonLines {
            let rows = reader.peek().map_err(|error| failed(&error))?;
            json_names_of_rows(rows, SAMPLE_ROWS).0
        } else {
            let header = reader.read_header().map_err(|error| failed(&error))?;
            let header = header.ok_or_else(|| {
                failed(&"it is empty, and its first line should be a header; was the join run?")
            })?;
            RowSchema::column_names(format, &header).map_err(|error| failed(&error))?
        };
        Ok(ResultFile { name, reader, format, columns })
    }

    /// Finds the columns of all streams in the result, as `intervale join` names them.
    pub(super) fn used(&self, tables: &Tables) -> Result<Used, Failure> {
        let columns: Vec<&[String]> =
            tables.streams.iter().map(|table| table.schema.columns()).collect();
        let names = Columns::of(&columns);
        let mut used = Used { inputs: Vec::new(), result: Vec::new(), lacking: Vec::new() };
        // What semi and anti joins give out has left columns only.
        let is_left_only = !tables.specs[0].kind().emits_pairs();
        for stream in 0..columns.len() {
            let names = names.stream(stream);
            let (mut inputs, mut result) = (Vec::new(), Vec::new());
            for (place, name) in names.iter().enumerate() {
                match self.columns.iter().position(|column| column == name) {
                    _ if is_left_only && stream > 0 => {}
                    Some(found) => {
                        inputs.push(place);
                        result.push(found);
                    }
                    None => used.lacking.push(name.clone()),
                }
            }
            // A result of JSON without a row has no columns, and needs none.
            let is_empty = self.format == RowFormat::JsonLines && self.columns.is_empty();
            if inputs.is_empty() && !is_empty && !(is_left_only && stream > 0) {
                return Err(Failure::usage(format!(
                    "{}: none of its columns is one of the {} rows, which would be called {}; it \
                     has {}",
                    self.name,
                    stream_name(stream),
                    names.join(", "),
                    self.columns.join(", ")
                )));
            }
            used.inputs.push(inputs);
            used.result.push(result);
        }
        Ok(used)
    }

    /// Hands each row's cells of each stream, as [`Cells::joined`], and its line to `take`; none
    /// where all cells of a stream are empty: it has no part in the row.
    pub(super) fn rows(
        &mut self,
        used: &Used,
        mut take: impl FnMut(Vec<Option<Vec<u8>>>, u64),
    ) -> Result<(), Failure> {
        let cells = Cells { format: self.format, names: &self.columns };
        let mut block = Block::default();
        loop {
            let more = self.reader.read_block(&mut block);
            let more = more.map_err(|error| Failure::failed(format!("{}: {error}", self.name)))?;
            if !more {
                return Ok(());
            }
            let (mut rest, mut line) = (block.bytes(), block.first_line);
            while !rest.is_empty() {
                let len = record_len(rest, self.format);
                let record = &rest[..len];
                let record = record.strip_suffix(b"\n").unwrap_or(record);
                let record = record.strip_suffix(b"\r").unwrap_or(record);
                if !record.is_empty() {
                    let bad =
                        |error| Failure::failed(format!("{}, line {line}: {error}", self.name));
                    let part = |places: &Vec<usize>| {
                        let joined = cells.joined(record, places)?;
                        // Without a byte but those of the lengths.
                        Ok((joined.len() > 4 * places.len()).then_some(joined))
                    };
                    let parts: Result<Vec<_>, String> = used.result.iter().map(part).collect();
                    take(parts.map_err(bad)?, line);
                }
                line += memchr::memchr_iter(b'\n', &rest[..len]).count() as u64;
                rest = &rest[len..];
            }
        }
    }
}

/// The length of the first record, its line end included: line ends inside quotes do not end it.
fn record_len(bytes: &[u8], format: RowFormat) -> usize {
    for end in memchr::memchr_iter(b'\n', bytes) {
        let is_open = match format {
            RowFormat::JsonLines => false,
            RowFormat::Delimited { delimiter } => {
                let has_quotes = memchr::memchr(b'"', &bytes[..end]).is_some();
                has_quotes && delimited(&bytes[..end], delimiter).any(|field| field.is_err())
            }
        };
        if !is_open {
            return end + 1;
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_end_where_lines_do_unless_a_quote_is_open() {
        for (text, first) in [
            ("a,b\nc\n", "a,b\n"),
            ("a", "a"),
            ("a,\"b\n\"\"c\"\nd", "a,\"b\n\"\"c\"\n"),
            ("a\"b\nc", "a\"b\n"),
        ] {
            let len = record_len(text.as_bytes(), RowFormat::CSV);
            assert_eq!(&text[..len], first, "{text:?}");
        }
        assert_eq!(record_len(b"{\"a\":1}\n{}", RowFormat::JsonLines), 8);
    }

    #[test]
    fn cells_are_the_same_in_every_format() {
        let names = ["a", "b"].map(str::to_owned);
        let cells = |format, row: &str| {
            Cells { format, names: &names }.joined(row.as_bytes(), &[1, 0]).unwrap()
        };
        let csv = cells(RowFormat::CSV, "\"x,\",7");
        assert_eq!(cells(RowFormat::JsonLines, r#"{"b":7,"c":0,"a":"x,"}"#), csv);
        assert_eq!(cells(RowFormat::TSV, "x,\t7"), csv);
        assert_ne!(cells(RowFormat::CSV, "x,7"), csv);
        let short = Cells { format: RowFormat::CSV, names: &names }.joined(b"x", &[0]);
        assert!(short.unwrap_err().contains("1 fields"));
    }
}
