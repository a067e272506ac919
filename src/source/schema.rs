//! Which columns an input has, and which of them are the key and the time.

use std::fmt;
use std::path::Path;

use super::fields;

/// How rows are written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowFormat {
    /// Fields with a delimiter between them; see the [module](super) for the rules.
    Delimited {
        /// The byte between two fields: `,` or a tab. No quote and no line end.
        delimiter: u8,
    },
    /// One JSON object a line.
    JsonLines,
}

impl RowFormat {
    /// Comma-separated values.
    pub const CSV: RowFormat = RowFormat::Delimited { delimiter: b',' };
    /// Tab-separated values.
    pub const TSV: RowFormat = RowFormat::Delimited { delimiter: b'\t' };

    /// `csv`, `tsv` or `jsonl`.
    pub fn from_name(name: &str) -> Option<RowFormat> {
        match name.to_ascii_lowercase().as_str() {
            "csv" => Some(RowFormat::CSV),
            "tsv" | "tab" => Some(RowFormat::TSV),
            "jsonl" | "ndjson" => Some(RowFormat::JsonLines),
            _ => None,
        }
    }

    /// The format that a file's ending names, if it names one.
    pub fn from_path(path: &Path) -> Option<RowFormat> {
        RowFormat::from_name(path.extension()?.to_str()?)
    }

    /// Whether rows have a header line, or names given instead.
    pub fn is_delimited(self) -> bool {
        matches!(self, RowFormat::Delimited { .. })
    }
}

/// The columns of an input, its key columns and its time column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowSchema {
    format: RowFormat,
    columns: Vec<String>,
    keys: Vec<usize>,
    time: usize,
}

/// Why columns do not fit what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaError {
    /// A column that was asked for is not there.
    Missing {
        /// The name asked for.
        name: String,
        /// The names there are.
        columns: Vec<String>,
    },
    /// A column that was asked for is there twice.
    Ambiguous {
        /// The name asked for.
        name: String,
    },
    /// The header, or the first JSON row, cannot be read.
    Header {
        /// What is wrong with it.
        why: String,
    },
    /// There is no key column.
    NoKey,
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SchemaError::Missing { name, columns } => {
                write!(f, "there is no column \"{name}\"; the columns are {}", columns.join(", "))?;
                closest(name, columns)
                    .map_or(Ok(()), |column| write!(f, " (did you mean \"{column}\"?)"))
            }
            SchemaError::Ambiguous { name } => write!(
                f,
                "two columns are called \"{name}\", so it is not clear which is meant; rename one"
            ),
            SchemaError::Header { why } => write!(f, "its column names cannot be read: {why}"),
            SchemaError::NoKey => write!(f, "no key column was named"),
        }
    }
}

impl std::error::Error for SchemaError {}

/// The column that somebody who typed `name` may have meant: the nearest, if a third of the
/// letters at most are wrong.
pub fn closest<'a>(name: &str, columns: &'a [String]) -> Option<&'a str> {
    let distance = |column: &&String| edits(&name.to_lowercase(), &column.trim().to_lowercase());
    let nearest = columns.iter().min_by_key(distance)?;
    (distance(&nearest) <= name.chars().count() / 3).then_some(nearest)
}

/// How many letters must be put in, taken out or replaced to make one word the other.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    // Costs from the letters of `a` so far to each beginning of `b`.
    let mut costs: Vec<usize> = (0..=b.len()).collect();
    for (row, from) in a.chars().enumerate() {
        let mut before = row;
        costs[0] = row + 1;
        for (column, &to) in b.iter().enumerate() {
            let replaced = before + usize::from(from != to);
            before = costs[column + 1];
            costs[column + 1] = replaced.min(before + 1).min(costs[column] + 1);
        }
    }
    costs[b.len()]
}

impl RowSchema {
    /// The schema of rows with these columns.
    ///
    /// In JSON Lines a row may lack any column, so a name that is not among `columns` is added.
    ///
    /// # Errors
    /// [`SchemaError`] names the column that is missing or ambiguous.
    pub fn new(
        format: RowFormat,
        columns: Vec<String>,
        keys: &[impl AsRef<str>],
        time: &str,
    ) -> Result<RowSchema, SchemaError> {
        if keys.is_empty() {
            return Err(SchemaError::NoKey);
        }
        let mut schema = RowSchema { format, columns, keys: Vec::new(), time: 0 };
        for key in keys {
            let key = schema.find(key.as_ref())?;
            schema.keys.push(key);
        }
        schema.time = schema.find(time)?;
        Ok(schema)
    }

    fn find(&mut self, name: &str) -> Result<usize, SchemaError> {
        let mut found =
            self.columns.iter().enumerate().filter(|(_, column)| *column == name).map(|(at, _)| at);
        match (found.next(), found.next()) {
            (Some(at), None) => Ok(at),
            (Some(_), Some(_)) => Err(SchemaError::Ambiguous { name: name.to_owned() }),
            (None, _) if self.format == RowFormat::JsonLines => {
                self.columns.push(name.to_owned());
                Ok(self.columns.len() - 1)
            }
            (None, _) => {
                Err(SchemaError::Missing { name: name.to_owned(), columns: self.columns.clone() })
            }
        }
    }

    /// The column names in a header line, or the names of a first JSON row.
    ///
    /// # Errors
    /// [`SchemaError::Header`] when it is malformed, not UTF-8, or names nothing.
    pub fn column_names(format: RowFormat, first: &[u8]) -> Result<Vec<String>, SchemaError> {
        let fail = |why: &str| SchemaError::Header { why: why.to_owned() };
        let delimiter = match format {
            RowFormat::Delimited { delimiter } => delimiter,
            RowFormat::JsonLines => {
                return fields::json_names(first).map_err(|why| SchemaError::Header { why });
            }
        };
        if memchr::memchr(b'\r', first).is_some() && memchr::memchr(b'"', first).is_none() {
            return Err(fail("lines end with \\r alone; end them with \\n or \\r\\n"));
        }
        let mut names = Vec::new();
        for field in fields::delimited(first, delimiter) {
            let field = field.map_err(|why| fail(&why.to_string()))?;
            let name = std::str::from_utf8(&field).map_err(|_| {
                fail("they are not UTF-8; is it compressed, or in another format or encoding?")
            })?;
            names.push(name.to_owned());
        }
        Ok(names)
    }

    /// How rows are written down.
    pub fn format(&self) -> RowFormat {
        self.format
    }

    /// All column names, in order.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The places of the key columns, in the order in which the key was named.
    pub fn keys(&self) -> &[usize] {
        &self.keys
    }

    /// The place of the time column.
    pub fn time(&self) -> usize {
        self.time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(header: &str) -> Vec<String> {
        RowSchema::column_names(RowFormat::CSV, header.as_bytes()).unwrap()
    }

    #[test]
    fn columns_are_found_by_name() {
        let names = columns("id,\"a, b\",ts");
        assert_eq!(names, ["id", "a, b", "ts"]);
        let schema = RowSchema::new(RowFormat::CSV, names, &["a, b", "id"], "ts").unwrap();
        assert_eq!((schema.keys(), schema.time()), (&[1, 0][..], 2));
    }

    #[test]
    fn a_missing_column_lists_those_there_are() {
        let error = RowSchema::new(RowFormat::CSV, columns("Id,ts"), &["id"], "ts").unwrap_err();
        let message = error.to_string();
        assert!(message.contains("are Id, ts"), "{message}");
        assert!(message.contains("did you mean \"Id\"?"), "{message}");
    }

    #[test]
    fn the_nearest_name_is_offered() {
        let names = ["order_id", "amount", "ts"].map(str::to_owned);
        for (typed, meant) in [
            ("orderid", Some("order_id")),
            ("order", None),
            ("AMOUNTS", Some("amount")),
            ("amuont", Some("amount")),
            ("t", None),
            ("TS", Some("ts")),
            ("", None),
        ] {
            assert_eq!(closest(typed, &names), meant, "{typed}");
        }
        assert_eq!((edits("", "abc"), edits("abc", ""), edits("kitten", "sitting")), (3, 3, 3));
    }

    #[test]
    fn only_a_name_that_is_used_must_be_unique() {
        assert!(RowSchema::new(RowFormat::CSV, columns("x,x,k,t"), &["k"], "t").is_ok());
        let error = RowSchema::new(RowFormat::CSV, columns("x,x,k,t"), &["x"], "t").unwrap_err();
        assert_eq!(error, SchemaError::Ambiguous { name: "x".to_owned() });
    }

    #[test]
    fn json_rows_may_lack_columns() {
        let names = RowSchema::column_names(RowFormat::JsonLines, br#"{"a":1,"b":{"c":2}}"#);
        let schema = RowSchema::new(RowFormat::JsonLines, names.unwrap(), &["k"], "a").unwrap();
        assert_eq!(schema.columns(), ["a", "b", "k"]);
        assert_eq!((schema.keys(), schema.time()), (&[2][..], 0));
    }

    #[test]
    fn headers_that_cannot_be_read() {
        for header in [&b"a,\xff"[..], b"\"a", b"\"a\"b,c", b"a,b\r1,2\r"] {
            let names = RowSchema::column_names(RowFormat::CSV, header);
            assert!(matches!(names, Err(SchemaError::Header { .. })), "{header:?}");
        }
        assert!(RowSchema::column_names(RowFormat::JsonLines, b"[1]").is_err());
    }

    #[test]
    fn endings_name_formats() {
        for (path, format) in [
            ("a/b.csv", Some(RowFormat::CSV)),
            ("b.TSV", Some(RowFormat::TSV)),
            ("b.jsonl", Some(RowFormat::JsonLines)),
            ("b.ndjson", Some(RowFormat::JsonLines)),
            ("b.json", None),
            ("b", None),
        ] {
            assert_eq!(RowFormat::from_path(Path::new(path)), format, "{path}");
        }
    }
}
