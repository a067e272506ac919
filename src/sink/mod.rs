//! Results on their way out: rows are encoded on the core that found them, gathered in blocks, and
//! written to one [`Output`] that all cores share.

mod columns;
mod output;
mod sorter;

pub use columns::Columns;
pub use output::{OpenMode, Output};
