//! Rows of columns that users have chosen.

use crate::expr::{Picked, Rows, Selection, Value};
use crate::sink::encode::{json_label, push_cell};
use crate::sink::json::push_string;
use crate::source::{RowFormat, fields};

/// The columns of an output as they were chosen, in its format.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    selection: Selection,
    to: RowFormat,
    /// In JSON, `"name":` of each column.
    labels: Vec<Vec<u8>>,
}

impl Chosen {
    pub(super) fn new(selection: Selection, to: RowFormat) -> Chosen {
        let labels = selection.names().iter().map(|name| json_label(name)).collect();
        Chosen { selection, to, labels }
    }

    /// The header line; empty where the format has none.
    pub(super) fn header(&self) -> Vec<u8> {
        let mut header = Vec::new();
        if let RowFormat::Delimited { delimiter } = self.to {
            for (place, name) in self.selection.names().iter().enumerate() {
                if place > 0 {
                    header.push(delimiter);
                }
                push_cell(&mut header, name.as_bytes(), delimiter);
            }
            header.push(b'\n');
        }
        header
    }

    /// Appends a row.
    pub(super) fn push(&self, out: &mut Vec<u8>, rows: &Rows<'_>) {
        match self.to {
            RowFormat::Delimited { delimiter } => self.push_delimited(out, rows, delimiter),
            RowFormat::JsonLines => self.push_json(out, rows),
        }
    }

    fn push_delimited(&self, out: &mut Vec<u8>, rows: &Rows<'_>, delimiter: u8) {
        let (start, mut is_first) = (out.len(), true);
        self.selection.pick(rows, |picked| {
            if !std::mem::take(&mut is_first) {
                out.push(delimiter);
            }
            let text = match picked {
                Picked::Missing => None,
                Picked::Text(text) => Some(text),
                Picked::Json(json) => fields::json_text(json),
                Picked::Value(value) => self.selection.text(value),
            };
            push_cell(out, &text.unwrap_or_default(), delimiter);
        });
        if out.len() == start {
            // One empty cell would be an empty line, which is no row.
            out.extend_from_slice(b"\"\"");
        }
        out.push(b'\n');
    }

    fn push_json(&self, out: &mut Vec<u8>, rows: &Rows<'_>) {
        out.push(b'{');
        let mut labels = self.labels.iter().enumerate();
        self.selection.pick(rows, |picked| {
            let Some((place, label)) = labels.next() else { return };
            if place > 0 {
                out.push(b',');
            }
            out.extend_from_slice(label);
            match picked {
                Picked::Missing => out.extend_from_slice(b"null"),
                // CSV knows no types.
                Picked::Text(text) => push_string(out, &text),
                Picked::Json(json) => out.extend_from_slice(json.as_bytes()),
                Picked::Value(value) => {
                    let is_bare = matches!(value, Value::Bool(_) | Value::Int(_) | Value::Float(_));
                    match self.selection.text(value) {
                        None => out.extend_from_slice(b"null"),
                        Some(text) if is_bare => out.extend_from_slice(&text),
                        Some(text) => push_string(out, &text),
                    }
                }
            }
        });
        out.extend_from_slice(b"}\n");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::expr::{ColumnType, Row, Scope, SideColumns};
    use crate::time::text::{TimeUnit, Zone};

    fn pushed(to: RowFormat, text: &str, rows: &Rows<'_>) -> String {
        let side = |format, list: &str, output: &str| SideColumns {
            format,
            names: list.split(' ').map(str::to_owned).collect(),
            output_names: output.split(' ').map(str::to_owned).collect(),
            types: vec![ColumnType::Auto; 2],
            given: vec![false; 2],
        };
        let sides =
            [side(RowFormat::CSV, "a b", "a b"), side(RowFormat::JsonLines, "a c", "a_right c")];
        let scope = Arc::new(Scope::new(sides, TimeUnit::Ms, &Zone::UTC));
        let chosen = Chosen::new(Selection::parse(text, &scope, false).unwrap(), to);
        let mut out = chosen.header();
        chosen.push(&mut out, rows);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_come_in_the_format_of_the_output() {
        let left = Some(Row { bytes: b"1,\"x,\"\"y\"", ts: 0 });
        let right = Some(Row { bytes: br#"{"c":{"d":[1]},"a":"t\n"}"#, ts: 0 });
        let both = Rows::of_sides([left, right]);
        let text = "c, b, a_right, a * 2 AS two, a = 1 AS is, nullif(a, 1) AS no, b || '!' AS l";
        assert_eq!(
            pushed(RowFormat::CSV, text, &both),
            "c,b,a_right,two,is,no,l\n\
             \"{\"\"d\"\":[1]}\",\"x,\"\"y\",\"t\n\",2,true,,\"x,\"\"y!\"\n"
        );
        assert_eq!(
            pushed(RowFormat::JsonLines, text, &both),
            "{\"c\":{\"d\":[1]},\"b\":\"x,\\\"y\",\"a_right\":\"t\\n\",\"two\":2,\"is\":true,\
             \"no\":null,\"l\":\"x,\\\"y!\"}\n"
        );
    }

    #[test]
    fn a_column_may_be_chosen_twice() {
        let right = Some(Row { bytes: br#"{"a":"t","c":[1]}"#, ts: 0 });
        let both = Rows::of_sides([Some(Row { bytes: b"1,x", ts: 0 }), right]);
        let text = "*, b AS b2, right.c AS c2, c AS c3";
        assert_eq!(
            pushed(RowFormat::JsonLines, text, &both),
            "{\"a\":\"1\",\"b\":\"x\",\"a_right\":\"t\",\"c\":[1],\"b2\":\"x\",\"c2\":[1],\
             \"c3\":[1]}\n"
        );
    }

    #[test]
    fn rows_without_another_side_are_padded() {
        let alone = Rows::of_sides([Some(Row { bytes: b"1,x", ts: 0 }), None]);
        assert_eq!(pushed(RowFormat::CSV, "b, c", &alone), "b,c\nx,\n");
        assert_eq!(pushed(RowFormat::TSV, "c", &alone), "c\n\"\"\n");
        assert_eq!(pushed(RowFormat::JsonLines, "b, c", &alone), "{\"b\":\"x\",\"c\":null}\n");
    }
}
