//! Rows of both sides made into rows of the output.

use std::collections::HashMap;
use std::ops::Range;

use memchr::memchr3;

use crate::event::stream_name;
use crate::expr::{Row, Rows, Selection};
use crate::sink::Columns;
use crate::sink::LeftOut;
use crate::sink::chosen::Chosen;
use crate::sink::json::{Members, push_string, string_text};
use crate::source::{RowFormat, fields};

/// One side's rows: how they stand in its files, and which columns they have there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideRows {
    /// How they are written down.
    pub format: RowFormat,
    /// The names of the columns, in order. Rows of JSON Lines may have others, and lack some.
    pub columns: Vec<String>,
}

/// Makes rows of the output out of rows of the input. Immutable: all cores share one.
///
/// Where input and output have the same format, rows are copied as they stand. From CSV or TSV to
/// JSON, every value is a string. From JSON to CSV or TSV, a string is its text, null and missing
/// are empty, anything else is its JSON text; members that are no columns are left out, and
/// counted.
#[derive(Clone, Debug)]
pub struct Encoder {
    to: RowFormat,
    header: Vec<u8>,
    /// By stream, left and right first; one only in semi and anti joins.
    sides: Vec<SideEncoder>,
    /// `"side":` and `"lag_ms":` of late rows in JSON.
    late_labels: [Vec<u8>; 2],
    chosen: Option<Chosen>,
}

/// What one core needs to encode rows; kept between them.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    cells: Vec<Option<Range<usize>>>,
    /// Members of JSON rows that had no column to go to.
    pub(super) left_out: LeftOut,
}

#[derive(Clone, Debug)]
struct SideEncoder {
    from: RowFormat,
    /// The place of each column.
    places: HashMap<Vec<u8>, usize>,
    /// In JSON, `"name":` of each column as the output calls it.
    labels: Vec<Vec<u8>>,
    /// 0 for left, 1 for right.
    stream: usize,
    name: String,
    /// What stands where the side has no row.
    padding: Vec<u8>,
}

impl Encoder {
    /// For pairs and padded rows, or for left rows alone (semi and anti joins).
    pub fn pairs(to: RowFormat, left: &SideRows, right: &SideRows, left_only: bool) -> Encoder {
        let both = [left, right];
        Encoder::joined(to, if left_only { &both[..1] } else { &both })
    }

    /// For pairs, padded and single rows of columns that were chosen.
    pub fn chosen(to: RowFormat, selection: Selection) -> Encoder {
        let chosen = Chosen::new(selection, to);
        let header = chosen.header();
        let (sides, late_labels) = (Vec::new(), Default::default());
        Encoder { to, header, sides, late_labels, chosen: Some(chosen) }
    }

    /// For rows of any number of streams.
    pub fn joined(to: RowFormat, streams: &[&SideRows]) -> Encoder {
        Encoder::new(to, streams, &columns_of(streams), &[])
    }

    /// For late rows of any stream: its name, how late it was (in ticks of `unit`), the row.
    pub fn late(to: RowFormat, streams: &[&SideRows], unit: &str) -> Encoder {
        let lag = format!("lag_{unit}");
        let before = ["side", lag.as_str()];
        Encoder::new(to, streams, &columns_of(streams).behind(&before), &before)
    }

    fn new(to: RowFormat, rows: &[&SideRows], columns: &Columns, before: &[&str]) -> Encoder {
        let names = (0..rows.len()).map(|stream| columns.stream(stream));
        let mut header = Vec::new();
        if let RowFormat::Delimited { delimiter } = to {
            let all = before.iter().copied().chain(names.clone().flatten().map(String::as_str));
            for (place, name) in all.enumerate() {
                if place > 0 {
                    header.push(delimiter);
                }
                push_cell(&mut header, name.as_bytes(), delimiter);
            }
            header.push(b'\n');
        }
        let sides = rows.iter().zip(names).enumerate();
        let label =
            |place: usize| before.get(place).map(|name| json_label(name)).unwrap_or_default();
        Encoder {
            to,
            header,
            sides: sides
                .map(|(stream, (rows, names))| SideEncoder::new(to, rows, names, stream))
                .collect(),
            late_labels: [label(0), label(1)],
            chosen: None,
        }
    }

    /// The header line; empty where the format has none.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// Appends a pair, or a row of one side, padded where the output has both.
    pub(super) fn push(&self, out: &mut Vec<u8>, rows: &Rows<'_>, scratch: &mut Scratch) {
        if let Some(chosen) = &self.chosen {
            return chosen.push(out, rows);
        }
        let sides = rows.sides.map(Row::bytes_of);
        if rows.more.is_empty() {
            return self.push_row(out, &sides, scratch);
        }
        let more = rows.more.iter().copied().map(Row::bytes_of);
        let streams: Vec<_> = sides.into_iter().chain(more).collect();
        self.push_row(out, &streams, scratch);
    }

    /// Appends a late row of a stream.
    pub(super) fn push_late(
        &self,
        out: &mut Vec<u8>,
        stream: usize,
        lag: i64,
        row: &[u8],
        scratch: &mut Scratch,
    ) {
        let Some(side) = self.sides.get(stream) else { return };
        match self.to {
            RowFormat::Delimited { delimiter } => {
                out.extend_from_slice(side.name.as_bytes());
                out.push(delimiter);
                out.extend_from_slice(lag.to_string().as_bytes());
                out.push(delimiter);
                let mut rows = vec![None; self.sides.len()];
                rows[stream] = Some(row);
                self.push_delimited(out, &rows, delimiter, scratch);
            }
            RowFormat::JsonLines => {
                out.push(b'{');
                out.extend_from_slice(&self.late_labels[0]);
                push_string(out, side.name.as_bytes());
                out.push(b',');
                out.extend_from_slice(&self.late_labels[1]);
                out.extend_from_slice(lag.to_string().as_bytes());
                // The other streams' columns would only be in the way.
                side.push_members(out, row, None);
                out.extend_from_slice(b"}\n");
            }
        }
    }

    /// Appends a row of all streams, padded where one has none.
    fn push_row(&self, out: &mut Vec<u8>, rows: &[Option<&[u8]>], scratch: &mut Scratch) {
        match self.to {
            RowFormat::Delimited { delimiter } => {
                self.push_delimited(out, rows, delimiter, scratch)
            }
            RowFormat::JsonLines => self.push_json(out, rows),
        }
    }

    fn push_delimited(
        &self,
        out: &mut Vec<u8>,
        rows: &[Option<&[u8]>],
        delimiter: u8,
        scratch: &mut Scratch,
    ) {
        let start = out.len();
        for (place, side) in self.sides.iter().enumerate() {
            if place > 0 {
                out.push(delimiter);
            }
            match rows[place] {
                Some(row) if side.from == self.to => out.extend_from_slice(row),
                Some(row) => side.push_cells(out, row, delimiter, scratch),
                None => out.extend_from_slice(&side.padding),
            }
        }
        if out.len() == start {
            // One empty cell would be an empty line, which is no row.
            out.extend_from_slice(b"\"\"");
        }
        out.push(b'\n');
    }

    fn push_json(&self, out: &mut Vec<u8>, rows: &[Option<&[u8]>]) {
        out.push(b'{');
        for (place, side) in self.sides.iter().enumerate() {
            match rows[place] {
                Some(row) => {
                    let others = Others { sides: &self.sides, rows, place };
                    side.push_members(out, row, Some(others));
                }
                None => {
                    push_comma(out);
                    out.extend_from_slice(&side.padding);
                }
            }
        }
        out.extend_from_slice(b"}\n");
    }
}

/// The other streams of a row: their encoders, their rows, and the place of the stream itself.
#[derive(Clone, Copy)]
struct Others<'a> {
    sides: &'a [SideEncoder],
    rows: &'a [Option<&'a [u8]>],
    place: usize,
}

impl Others<'_> {
    /// Whether another stream has a column of that name, or has written a member of it.
    fn have(&self, text: &[u8]) -> bool {
        let label = json_label(&String::from_utf8_lossy(text));
        self.sides.iter().zip(self.rows).enumerate().any(|(place, (side, row))| {
            let mut members = Members::new(row.unwrap_or_default());
            place != self.place
                && (side.labels.contains(&label)
                    || (place < self.place && side.from == RowFormat::JsonLines)
                        && members.any(|(other, _)| *string_text(other) == *text))
        })
    }
}

impl SideEncoder {
    fn new(to: RowFormat, rows: &SideRows, names: &[String], stream: usize) -> SideEncoder {
        let labels: Vec<Vec<u8>> = names.iter().map(|name| json_label(name)).collect();
        let padding = match to {
            RowFormat::Delimited { delimiter } => vec![delimiter; names.len().saturating_sub(1)],
            RowFormat::JsonLines => labels
                .iter()
                .map(|label| [label, &b"null"[..]].concat())
                .collect::<Vec<_>>()
                .join(&b','),
        };
        let places =
            rows.columns.iter().enumerate().map(|(at, name)| (name.clone().into_bytes(), at));
        let name = stream_name(stream);
        SideEncoder { from: rows.format, places: places.collect(), labels, stream, name, padding }
    }

    /// Appends the cells of a row of another format.
    fn push_cells(&self, out: &mut Vec<u8>, row: &[u8], delimiter: u8, scratch: &mut Scratch) {
        match self.from {
            RowFormat::Delimited { delimiter: from } => {
                for (place, cell) in fields::delimited(row, from).enumerate() {
                    if place > 0 {
                        out.push(delimiter);
                    }
                    // Rows with faulty quotes never get here: they are bad rows.
                    push_cell(out, &cell.unwrap_or_default(), delimiter);
                }
            }
            RowFormat::JsonLines => {
                scratch.cells.clear();
                scratch.cells.resize(self.labels.len(), None);
                for (name, value) in Members::new(row) {
                    match self.places.get(&*string_text(name)) {
                        Some(&place) => {
                            // `value` is a part of `row`.
                            let start = value.as_ptr().addr() - row.as_ptr().addr();
                            scratch.cells[place] = Some(start..start + value.len());
                        }
                        None => scratch.left_out.add(self.stream, &string_text(name), 1),
                    }
                }
                for (place, cell) in scratch.cells.iter().enumerate() {
                    if place > 0 {
                        out.push(delimiter);
                    }
                    let raw = cell.clone().map_or(&b""[..], |range| &row[range]);
                    if raw != b"null" {
                        push_cell(out, &string_text(raw), delimiter);
                    }
                }
            }
        }
    }

    /// Appends the members of a row; a comma goes before them unless they are the first.
    fn push_members(&self, out: &mut Vec<u8>, row: &[u8], others: Option<Others<'_>>) {
        match self.from {
            RowFormat::Delimited { delimiter } => {
                let cells = fields::delimited(row, delimiter);
                for (label, cell) in self.labels.iter().zip(cells) {
                    push_comma(out);
                    out.extend_from_slice(label);
                    push_string(out, &cell.unwrap_or_default());
                }
            }
            RowFormat::JsonLines => {
                for (name, value) in Members::new(row) {
                    push_comma(out);
                    match self.places.get(&*string_text(name)) {
                        Some(&place) => out.extend_from_slice(&self.labels[place]),
                        None => self.push_other_name(out, name, others),
                    }
                    out.extend_from_slice(value);
                }
            }
        }
    }

    /// Appends the name of a member that is no column, with a suffix if another stream has it.
    #[cold]
    fn push_other_name(&self, out: &mut Vec<u8>, name: &[u8], others: Option<Others<'_>>) {
        let text = string_text(name);
        if others.is_some_and(|others| others.have(&text)) {
            push_string(out, &[&*text, b"_", self.name.as_bytes()].concat());
        } else {
            out.extend_from_slice(name);
        }
        out.push(b':');
    }
}

fn columns_of(streams: &[&SideRows]) -> Columns {
    Columns::of(&streams.iter().map(|rows| &rows.columns[..]).collect::<Vec<_>>())
}

/// A comma, unless an object has just been opened.
fn push_comma(out: &mut Vec<u8>) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
}

pub(super) fn json_label(name: &str) -> Vec<u8> {
    let mut label = Vec::new();
    push_string(&mut label, name.as_bytes());
    label.push(b':');
    label
}

/// Appends a cell, in quotes if it needs them.
pub(super) fn push_cell(out: &mut Vec<u8>, text: &[u8], delimiter: u8) {
    let plain = memchr3(delimiter, b'"', b'\n', text).is_none() && !text.contains(&b'\r');
    if plain {
        out.extend_from_slice(text);
        return;
    }
    out.push(b'"');
    for &byte in text {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Side;

    fn side(format: RowFormat, columns: &str) -> SideRows {
        SideRows { format, columns: columns.split(',').map(str::to_owned).collect() }
    }

    fn csv(columns: &str) -> SideRows {
        side(RowFormat::CSV, columns)
    }

    fn json(columns: &str) -> SideRows {
        side(RowFormat::JsonLines, columns)
    }

    fn pair(encoder: &Encoder, left: &str, right: &str) -> String {
        pushed(encoder, [Some(left), Some(right)], &mut Scratch::default())
    }

    fn pushed(encoder: &Encoder, rows: [Option<&str>; 2], scratch: &mut Scratch) -> String {
        let mut out = Vec::new();
        let sides = rows.map(|row| row.map(|row| Row { bytes: row.as_bytes(), ts: 0 }));
        encoder.push(&mut out, &Rows::of_sides(sides), scratch);
        String::from_utf8(out).unwrap()
    }

    fn single(encoder: &Encoder, of: Side, row: &str) -> String {
        let rows = match of {
            Side::Left => [Some(row), None],
            Side::Right => [None, Some(row)],
        };
        pushed(encoder, rows, &mut Scratch::default())
    }

    #[test]
    fn csv_rows_are_copied_and_padded() {
        let encoder = Encoder::pairs(RowFormat::CSV, &csv("a,b"), &csv("a,c,d"), false);
        assert_eq!(encoder.header(), b"a,b,a_right,c,d\n");
        assert_eq!(pair(&encoder, "1,\"x,\"\"\"", "1,2,3"), "1,\"x,\"\"\",1,2,3\n");
        assert_eq!(single(&encoder, Side::Left, "1,2"), "1,2,,,\n");
        assert_eq!(single(&encoder, Side::Right, "1,2,3"), ",,1,2,3\n");
        let alone = Encoder::pairs(RowFormat::CSV, &csv("a,b"), &csv("a,c,d"), true);
        assert_eq!(alone.header(), b"a,b\n");
        assert_eq!(single(&alone, Side::Left, "1,2"), "1,2\n");
    }

    #[test]
    fn other_formats_are_written_anew() {
        let encoder = Encoder::pairs(RowFormat::TSV, &csv("a,b"), &json("a,c"), false);
        assert_eq!(encoder.header(), b"a\tb\ta_right\tc\n");
        assert_eq!(
            pair(&encoder, "\"x\ty\",\"p,q\"", r#"{"c":"l\n","x":9,"a":null}"#),
            "\"x\ty\"\tp,q\t\t\"l\n\"\n"
        );
        let encoder = Encoder::pairs(RowFormat::JsonLines, &csv("a,b"), &json("a,c"), false);
        assert_eq!(encoder.header(), b"");
        assert_eq!(
            pair(&encoder, "1,\"say \"\"hi\"\"\"", r#"{"a":1.50,"c":{"d":[]}}"#),
            "{\"a\":\"1\",\"b\":\"say \\\"hi\\\"\",\"a_right\":1.50,\"c\":{\"d\":[]}}\n"
        );
        assert_eq!(
            single(&encoder, Side::Left, "1,2"),
            "{\"a\":\"1\",\"b\":\"2\",\"a_right\":null,\"c\":null}\n"
        );
        assert_eq!(single(&encoder, Side::Right, "{\"c\":2}"), "{\"a\":null,\"b\":null,\"c\":2}\n");
        let one = Encoder::pairs(RowFormat::CSV, &json("a"), &json("a"), true);
        assert_eq!(single(&one, Side::Left, "{\"a\":null}"), "\"\"\n");
    }

    #[test]
    fn members_that_are_no_columns_never_double_a_name() {
        let encoder = Encoder::pairs(RowFormat::JsonLines, &json("a"), &json("b"), false);
        assert_eq!(
            pair(&encoder, r#"{"a":1,"b":2,"n":3}"#, r#"{"b":4,"a":5,"n":6,"m":7}"#),
            "{\"a\":1,\"b_left\":2,\"n\":3,\"b\":4,\"a_right\":5,\"n_right\":6,\"m\":7}\n"
        );
        let encoder = Encoder::pairs(RowFormat::CSV, &json("a"), &json("b"), false);
        let mut scratch = Scratch::default();
        pushed(&encoder, [Some("{\"x\":1}"), Some("{\"y\":1,\"b\":2}")], &mut scratch);
        let fields: Vec<_> = scratch.left_out.fields().collect();
        assert_eq!(fields, [(0, "x".into(), 1), (1, "y".into(), 1)]);
    }

    #[test]
    fn rows_of_many_streams_have_all_columns() {
        let streams = [&csv("a,b"), &json("a"), &csv("a,c")];
        let rows = [Some(&b"1,2"[..]), Some(b"{\"a\":3,\"c\":4}"), None];
        let push = |to| {
            let encoder = Encoder::joined(to, &streams);
            let mut out = encoder.header().to_vec();
            encoder.push_row(&mut out, &rows, &mut Scratch::default());
            String::from_utf8(out).unwrap()
        };
        assert_eq!(push(RowFormat::CSV), "a,b,a_right,a_then1,c\n1,2,3,,\n");
        assert_eq!(
            push(RowFormat::JsonLines),
            "{\"a\":\"1\",\"b\":\"2\",\"a_right\":3,\"c_right\":4,\"a_then1\":null,\"c\":null}\n"
        );
    }

    #[test]
    fn late_rows_say_their_side_and_lag() {
        let late = |encoder: &Encoder, of: Side, row: &str| {
            let mut out = Vec::new();
            encoder.push_late(&mut out, of.index(), 40, row.as_bytes(), &mut Scratch::default());
            String::from_utf8(out).unwrap()
        };
        let encoder = Encoder::late(RowFormat::CSV, &[&csv("side,b"), &csv("c")], "us");
        assert_eq!(encoder.header(), b"side,lag_us,side_left,b,c\n");
        assert_eq!(late(&encoder, Side::Left, "1,2"), "left,40,1,2,\n");
        assert_eq!(late(&encoder, Side::Right, "3"), "right,40,,,3\n");
        let encoder = Encoder::late(RowFormat::JsonLines, &[&csv("side,b"), &json("c")], "ms");
        assert_eq!(
            late(&encoder, Side::Left, "1,2"),
            "{\"side\":\"left\",\"lag_ms\":40,\"side_left\":\"1\",\"b\":\"2\"}\n"
        );
        assert_eq!(
            late(&encoder, Side::Right, "{\"c\":3}"),
            "{\"side\":\"right\",\"lag_ms\":40,\"c\":3}\n"
        );
    }
}
