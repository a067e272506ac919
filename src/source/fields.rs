//! The fields of one row, decoded: for output in another format and for conditions.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use super::csv::{NO_SLOT, QuoteFault, Record, Records, Span, text};
use super::jsonl;

/// The fields of one delimited row (as an event carries it: without its line end), decoded.
///
/// ```
/// use intervale::source::fields::delimited;
/// let fields: Vec<_> = delimited(b"a,\"b \"\"c\"\"\",", b',').map(Result::unwrap).collect();
/// assert_eq!(fields, [&b"a"[..], b"b \"c\"", b""]);
/// ```
pub fn delimited(row: &[u8], delimiter: u8) -> Delimited<'_> {
    Delimited { row, delimiter, at: Some(0) }
}

/// The iterator of [`delimited`].
#[derive(Clone, Debug)]
pub struct Delimited<'a> {
    row: &'a [u8],
    delimiter: u8,
    at: Option<usize>,
}

/// A field's quotes are malformed; rows of events have none such.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldError(QuoteFault);

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for FieldError {}

impl<'a> Iterator for Delimited<'a> {
    type Item = Result<Cow<'a, [u8]>, FieldError>;

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.at.take()?;
        let rest = &self.row[start..];
        let (span, end) = if rest.first() == Some(&b'"') {
            let Some((close, doubled)) = super::scan::closing_quote(rest, 1) else {
                return Some(Err(FieldError(QuoteFault::Unclosed)));
            };
            (Span { start: 1, end: close as u32, doubled }, close + 1)
        } else {
            let end = memchr::memchr(self.delimiter, rest).unwrap_or(rest.len());
            (Span { start: 0, end: end as u32, doubled: false }, end)
        };
        match rest.get(end) {
            None => {}
            Some(&byte) if byte == self.delimiter => self.at = Some(start + end + 1),
            Some(_) => return Some(Err(FieldError(QuoteFault::TextAfter))),
        }
        Some(Ok(text(rest, span)))
    }
}

/// One field of a delimited row, decoded; `None` where the row has not so many, or its quotes are
/// malformed. Faster than going through all of them.
#[inline]
pub fn delimited_field(row: &[u8], delimiter: u8, place: usize) -> Option<Cow<'_, [u8]>> {
    let (mut rest, mut to_skip) = (row, place);
    loop {
        if rest.first() == Some(&b'"') {
            return delimited(rest, delimiter).nth(to_skip)?.ok();
        }
        let end = memchr::memchr(delimiter, rest);
        if to_skip == 0 {
            return Some(Cow::Borrowed(end.map_or(rest, |end| &rest[..end])));
        }
        rest = &rest[end? + 1..];
        to_skip -= 1;
    }
}

/// How many fields a delimited row has.
pub fn delimited_count(row: &[u8], delimiter: u8) -> usize {
    match Records::<true>::new(row, delimiter, 0).next(&[NO_SLOT], &mut []) {
        Some(Record { field_count, .. }) => field_count,
        None => 1,
    }
}

/// Puts the JSON text of each column's value (`12`, `"a"`, `null`, `{...}`) into `values`, at the
/// column's place; `None` where the row lacks the column. Columns in the order of the rows' names
/// are found fastest.
///
/// # Errors
/// What is wrong with the JSON; rows of events are sound.
pub fn json_values<'a>(
    row: &'a [u8],
    columns: &[impl AsRef<str>],
    values: &mut Vec<Option<&'a str>>,
) -> Result<(), String> {
    jsonl::values(row, columns, values).map_err(|error| error.to_string())
}

/// The text of a JSON value: of a string what it says, of anything else its JSON; `None` for
/// `null`.
pub fn json_text(value: &str) -> Option<Cow<'_, [u8]>> {
    jsonl::text(value)
}

/// The names of a JSON row, in order, each once.
///
/// # Errors
/// What is wrong with the JSON.
pub fn json_names(row: &[u8]) -> Result<Vec<String>, String> {
    let mut names = jsonl::names(row).map_err(|error| error.to_string())?;
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    Ok(names)
}

/// The names of some lines of JSON, in the order in which they first come, and how many rows were
/// looked at: up to `rows_max`, empty lines and lines that are no object left out.
pub fn json_names_of_rows(lines: &[u8], rows_max: usize) -> (Vec<String>, usize) {
    let (mut names, mut seen) = (Vec::new(), HashSet::new());
    let rows = lines.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let mut row_count = 0;
    for row in rows.filter_map(|line| jsonl::names(line).ok()).take(rows_max) {
        row_count += 1;
        for name in row {
            if !seen.contains(&name) {
                seen.insert(name.clone());
                names.push(name);
            }
        }
    }
    (names, row_count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fields(row: &[u8]) -> Result<Vec<Cow<'_, [u8]>>, FieldError> {
        delimited(row, b',').collect()
    }

    proptest! {
        #[test]
        fn what_is_quoted_comes_back(texts in prop::collection::vec("[a,\"\n\r ]{0,4}", 1..5)) {
            let quote = |text: &String| format!("\"{}\"", text.replace('"', "\"\""));
            let row = texts.iter().map(quote).collect::<Vec<_>>().join(",");
            let found = fields(row.as_bytes()).unwrap();
            prop_assert_eq!(found.len(), delimited_count(row.as_bytes(), b','));
            let texts: Vec<_> = texts.iter().map(|text| text.as_bytes()).collect();
            prop_assert_eq!(found, texts);
        }

        #[test]
        fn one_field_is_that_of_all(row in "[a,\" ]{0,12}", place in 0..6usize) {
            let all = delimited(row.as_bytes(), b',').nth(place).and_then(Result::ok);
            let before_fault = delimited(row.as_bytes(), b',').take(place).all(|f| f.is_ok());
            if before_fault {
                prop_assert_eq!(delimited_field(row.as_bytes(), b',', place), all);
            }
        }

        #[test]
        fn fields_agree_with_records(row in "[a,\" ]{1,12}") {
            let mut spans = [Span::default(); 16];
            let slots: Vec<u16> = (0..16).collect();
            let mut records = Records::<true>::new(row.as_bytes(), b',', 0);
            let record = records.next(&slots, &mut spans).unwrap();
            match fields(row.as_bytes()) {
                Ok(found) => {
                    prop_assert_eq!(record.fault, None);
                    prop_assert_eq!(record.field_count, found.len());
                    for (span, field) in spans.iter().zip(found) {
                        prop_assert_eq!(text(row.as_bytes(), *span), field);
                    }
                }
                Err(_) => prop_assert!(record.fault.is_some()),
            }
        }
    }

    #[test]
    fn names_of_rows_come_in_order_and_bad_lines_have_none() {
        let lines = b"oops\n{\"b\":1}\n\n[1]\r\n{\"a\":1,\"b\":2,\"a\":3}\n{\"c\":1}";
        let names = |rows_max| json_names_of_rows(lines, rows_max);
        assert_eq!(names(9), (vec!["b".to_owned(), "a".to_owned(), "c".to_owned()], 3));
        assert_eq!(names(1), (vec!["b".to_owned()], 1));
        assert_eq!(json_names_of_rows(b"oops\n", 9), (Vec::new(), 0));
    }

    #[test]
    fn a_quote_inside_a_plain_field_is_text() {
        assert_eq!(fields(b"5\" pipe,x").unwrap(), [&b"5\" pipe"[..], b"x"]);
        assert_eq!(fields(b"").unwrap(), [&b""[..]]);
        assert_eq!(fields(b"\"a\"b"), Err(FieldError(QuoteFault::TextAfter)));
        assert_eq!(fields(b"a,\"b"), Err(FieldError(QuoteFault::Unclosed)));
    }
}
