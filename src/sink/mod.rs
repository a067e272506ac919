//! Results on their way out: rows are encoded on the core that found them, gathered in blocks, and
//! written to one [`Output`] that all cores share.

mod bad;
mod chosen;
mod columns;
mod encode;
mod json;
mod left_out;
mod links;
mod output;
mod rows;
mod sorter;
mod temporary;

pub use bad::BadRows;
pub use columns::Columns;
pub use encode::{Encoder, SideRows};
pub use left_out::LeftOut;
pub use links::link_end;
pub use output::{OpenMode, Output, is_standard_output};
pub use rows::{RowSink, RowSinks, SortOptions};
pub use temporary::partial_path;
