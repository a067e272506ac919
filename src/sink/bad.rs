//! Rows that do not parse, written down with the reason.

use std::sync::Arc;

use crate::join::SinkError;
use crate::sink::Output;
use crate::sink::encode::push_cell;
use crate::sink::json::push_string;
use crate::source::RowFormat;

const COLUMNS: [&str; 6] = ["side", "file", "line", "column", "reason", "row"];

/// The output of bad rows: `side`, `file`, `line`, `column` (where it is one), `reason` and the
/// row's text as it stands in the file.
#[derive(Clone, Debug)]
pub struct BadRows {
    output: Arc<Output>,
    format: RowFormat,
}

impl BadRows {
    /// Writes to `output`.
    pub fn new(output: Arc<Output>, format: RowFormat) -> BadRows {
        BadRows { output, format }
    }

    /// The header line; empty where the format has none.
    pub fn header(format: RowFormat) -> Vec<u8> {
        match format {
            RowFormat::Delimited { delimiter } => {
                let mut header = COLUMNS.map(str::as_bytes).join(&delimiter);
                header.push(b'\n');
                header
            }
            RowFormat::JsonLines => Vec::new(),
        }
    }

    /// Writes down one row of a side, or of a further stream of that name, at once: bad rows are
    /// few, and whoever looks for them should find them.
    ///
    /// # Errors
    /// As [`Output::write`].
    pub fn write(
        &self,
        side: &str,
        file: &str,
        line: u64,
        column: &str,
        reason: &str,
        row: &[u8],
    ) -> Result<(), SinkError> {
        let line = line.to_string();
        let cells = [side, file, &line, column, reason].map(str::as_bytes);
        let mut out = Vec::new();
        for (place, cell) in cells.into_iter().chain([row]).enumerate() {
            match self.format {
                RowFormat::Delimited { delimiter } => {
                    if place > 0 {
                        out.push(delimiter);
                    }
                    push_cell(&mut out, cell, delimiter);
                }
                RowFormat::JsonLines => {
                    out.extend_from_slice(if place == 0 { b"{\"" } else { b",\"" });
                    out.extend_from_slice(COLUMNS[place].as_bytes());
                    out.extend_from_slice(b"\":");
                    if COLUMNS[place] == "line" {
                        out.extend_from_slice(cell);
                    } else {
                        push_string(&mut out, cell);
                    }
                }
            }
        }
        out.extend_from_slice(match self.format {
            RowFormat::Delimited { .. } => b"\n",
            RowFormat::JsonLines => b"}\n",
        });
        self.output.write(&out, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::OpenMode;

    #[test]
    fn the_row_and_the_reason_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        for (format, expected) in [
            (RowFormat::CSV, "right,f.csv,3,ts,\"no, time\",\"a,\"\"b\"\"\"\n"),
            (
                RowFormat::JsonLines,
                "{\"side\":\"right\",\"file\":\"f.csv\",\"line\":3,\"column\":\"ts\",\
                 \"reason\":\"no, time\",\"row\":\"a,\\\"b\\\"\"}\n",
            ),
        ] {
            let path = dir.path().join("bad");
            let (output, _) = Output::open(&path, OpenMode::Replace).unwrap();
            let output = Arc::new(output);
            let bad = BadRows::new(Arc::clone(&output), format);
            bad.write("right", "f.csv", 3, "ts", "no, time", b"a,\"b\"").unwrap();
            output.commit().unwrap();
            assert_eq!(std::fs::read_to_string(path).unwrap(), expected);
        }
        assert_eq!(BadRows::header(RowFormat::TSV), b"side\tfile\tline\tcolumn\treason\trow\n");
    }
}
