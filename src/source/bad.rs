//! Records that are no events, and what happens to them.

use std::fmt;

use super::csv::QuoteFault;
use crate::error::{PushError, SourceError};
use crate::event::Side;
use crate::time::text::TimeTextError;

/// What messages and reports say about a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceInfo {
    /// The file's path, or `standard input`.
    pub name: String,
    /// Its side.
    pub side: Side,
    /// Its column names.
    pub columns: Vec<String>,
}

/// A record that is no event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRow {
    /// The line on which it starts, counted from 1.
    pub line: u64,
    /// The column that is wrong, if it is one.
    pub column: Option<usize>,
    /// The record as it stands in the input, without its line end.
    pub text: Vec<u8>,
    /// What is wrong.
    pub why: BadReason,
}

/// What is wrong with a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadReason {
    /// It has more or fewer fields than there are columns.
    FieldCount {
        /// How many columns there are.
        expected: usize,
        /// How many fields it has.
        found: usize,
    },
    /// Its quotes are malformed.
    Quotes(QuoteFault),
    /// Its time cannot be read.
    Time {
        /// The text of the time.
        text: String,
        /// What is wrong with it.
        error: TimeTextError,
    },
    /// It is no JSON object.
    Json(String),
    /// A key must be a JSON string, number or boolean.
    KeyIsNested,
    /// A key holds half of a surrogate pair, which is no text.
    KeyIsHalf,
    /// Its key or the whole of it is over a limit.
    Push(PushError),
}

impl fmt::Display for BadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadReason::FieldCount { expected, found } => write!(
                f,
                "it has {found} field{}, and there are {expected} columns",
                if *found == 1 { "" } else { "s" }
            ),
            BadReason::Quotes(fault) => fault.fmt(f),
            BadReason::Time { error: TimeTextError::Empty, .. } => write!(f, "it has no time"),
            BadReason::Time { text, error } => write!(f, "\"{}\": {error}", Shown(text)),
            BadReason::Json(why) => write!(f, "it is no JSON object: {why}"),
            BadReason::KeyIsNested => write!(f, "a key must be a string, a number or a boolean"),
            BadReason::KeyIsHalf => write!(
                f,
                "a key holds half of a surrogate pair (\\ud800 to \\udfff alone), which is no text"
            ),
            BadReason::Push(error) => error.fmt(f),
        }
    }
}

impl BadRow {
    /// The message of a run that stops at this row: file, line, column, what is wrong, the text.
    pub fn message(&self, source: &str, columns: &[String]) -> String {
        let mut message = format!("{source}, line {}", self.line);
        if let Some(name) = self.column.and_then(|column| columns.get(column)) {
            message.push_str(&format!(", column \"{name}\""));
        }
        let text = String::from_utf8_lossy(&self.text);
        format!("{message}: {}; the row is: {}", self.why, Shown(&text))
    }
}

/// Text of an input in a message: as it stands there, but control characters as escapes, and cut
/// where it is long.
struct Shown<'a>(&'a str);

/// Characters of a text that a message shows.
const SHOWN_CHARS_MAX: usize = 200;

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut chars = self.0.chars();
        for char in chars.by_ref().take(SHOWN_CHARS_MAX) {
            if char.is_control() {
                write!(f, "{}", char.escape_debug())?;
            } else {
                write!(f, "{char}")?;
            }
        }
        f.write_str(if chars.next().is_some() { "..." } else { "" })
    }
}

/// Decides what becomes of bad rows. One source's are handed over in the order of its input, by
/// whichever core is at it; several sources may share one.
pub trait OnBadRow: Send + Sync {
    /// Takes a bad row.
    ///
    /// # Errors
    /// [`SourceError`] stops the run.
    fn bad_row(&self, source: &SourceInfo, row: &BadRow) -> Result<(), SourceError>;
}

/// The first bad row stops the run: file, line, column, text.
#[derive(Clone, Copy, Debug, Default)]
pub struct FailOnBadRow;

/// Bad rows are counted and forgotten.
#[derive(Clone, Copy, Debug, Default)]
pub struct SkipBadRows;

impl OnBadRow for FailOnBadRow {
    fn bad_row(&self, source: &SourceInfo, row: &BadRow) -> Result<(), SourceError> {
        let message = row.message(&source.name, &source.columns);
        Err(SourceError { message: format!("{message}; skip such rows with --bad-rows skip") })
    }
}

impl OnBadRow for SkipBadRows {
    fn bad_row(&self, _: &SourceInfo, _: &BadRow) -> Result<(), SourceError> {
        Ok(())
    }
}
