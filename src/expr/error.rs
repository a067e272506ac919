//! What is wrong with an expression, and where in it.

use std::fmt;

/// A part of the text, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its first byte.
    pub start: usize,
    /// Behind its last one.
    pub end: usize,
}

impl Span {
    /// From the start of one to the end of another.
    pub(super) fn to(self, other: Span) -> Span {
        Span { start: self.start, end: other.end }
    }
}

/// Why a text is no expression, with the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExprError {
    pub(super) text: String,
    pub(super) span: Span,
    pub(super) why: String,
}

impl ExprError {
    pub(super) fn new(span: Span, why: impl Into<String>) -> ExprError {
        ExprError { text: String::new(), span, why: why.into() }
    }

    /// The text that it is about.
    pub(super) fn of(mut self, text: &str) -> ExprError {
        self.text = text.to_owned();
        self
    }

    /// Whether a name in it is that of no column.
    pub(crate) fn is_of_missing_column(&self) -> bool {
        self.why.starts_with("there is no column")
    }

    /// The same with more to say.
    pub(crate) fn with(mut self, more: &str) -> ExprError {
        self.why.push_str(more);
        self
    }

    /// Where it is, in bytes of the text.
    pub fn span(&self) -> Span {
        self.span
    }
}

/// The reason, and below it the text with the place underlined.
impl fmt::Display for ExprError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.text.get(..self.span.start).map_or(0, |before| before.chars().count());
        let marked = self.text.get(self.span.start..self.span.end).unwrap_or_default();
        let width = marked.chars().count().max(1);
        // A text of several lines stays on one, so that the marks are below it.
        let text = self.text.replace(['\n', '\r', '\t'], " ");
        writeln!(f, "at character {}: {}", place + 1, self.why)?;
        write!(f, "  {text}\n  {}{}", " ".repeat(place), "^".repeat(width))
    }
}

impl std::error::Error for ExprError {}
