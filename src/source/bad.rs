//! What happens to records that are no events.

use super::parse::BadRow;
use crate::error::SourceError;
use crate::event::Side;

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
