//! Files and other byte streams, into batches of events.
//!
//! The way of a byte: a [`BlockReader`] cuts the stream into blocks that end where a record ends; a
//! [`BlockParser`] turns a block into events, on any core, because a block needs nothing but
//! itself; a [`FileSource`] has several cores do that at the same time and still
//! publishes the watermarks of the file's order.
//!
//! # Rows
//!
//! An event's row is its record as it stands in the file, without the line end, so that writing it
//! in the same format copies bytes. With
//! [`ParseOptions::with_position`](parse::ParseOptions::with_position) its [`Position`] stands
//! before it in eight bytes, little endian: [`split_position`] takes them apart. [`fields`] decodes
//! a row into its fields.
//!
//! # CSV and TSV
//!
//! Records end with `\n` or `\r\n`; a `\r` alone is text. A field that starts with `"` is quoted up
//! to the next `"` that is not doubled and may hold delimiters and line ends; text between the
//! closing quote and the next delimiter makes a bad row. A `"` elsewhere is text. Empty lines are
//! skipped. TSV is CSV with tabs: quotes mean the same. A byte order mark is skipped. Bytes need
//! not be UTF-8, but for column names.
//!
//! # JSON Lines
//!
//! One object a line; lines of white space are skipped. Fields are found by name at the top level;
//! of a name that comes twice the last counts. A key that holds half of a surrogate pair makes a
//! bad row.

mod ahead;
mod bad;
pub mod blocks;
mod csv;
pub mod fields;
pub mod file;
mod flat;
mod input;
mod jsonl;
pub mod key;
mod late;
mod order;
pub mod parse;
mod scan;
pub mod schema;

pub use ahead::{ReadAhead, Setup};
pub use bad::{FailOnBadRow, OnBadRow, SkipBadRows, SourceInfo};
pub use blocks::{Block, BlockReader, ReadError, ReadOptions};
pub use file::{FileFeed, FileOptions, FileSource};
pub use input::AnyReader;
pub use order::SourceCounts;
pub use parse::{BadReason, BadRow, BlockParser, Chunk, Cursor, ParseOptions};
pub use parse::{Position, split_position};
pub use schema::{RowFormat, RowSchema, SchemaError};
