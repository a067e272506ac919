//! Blocks into events.

use std::borrow::Cow;
use std::sync::Arc;

use memchr::{memchr, memchr_iter};

use super::blocks::{Block, trim_line_end};
use super::csv::{self, NO_SLOT, Record, Records, Span};
use super::key;
use super::schema::{RowFormat, RowSchema};
use crate::error::PushError;
use crate::event::{BatchKind, EventBatch, Key, KeyHasher, Side};
use crate::limits::{CHUNK_EVENTS_MAX, CHUNK_ROW_BYTES_TARGET};
use crate::time::Timestamp;
use crate::time::text::TimeParser;

pub use super::bad::{BadReason, BadRow};
pub use super::csv::QuoteFault;

/// What a parser has to know of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseOptions {
    /// The side of the events.
    pub side: Side,
    /// The index of the source within its side.
    pub source: u32,
    /// Puts each row's [`Position`] before it, for sinks that sort.
    pub with_position: bool,
}

/// Where a row stands among all rows of its side: source first, then the byte at which its record
/// starts in the stream. Unique, and in the order of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// Bits of a position that count bytes: 16 PiB a source.
const OFFSET_BITS: u32 = 54;

const _: () = assert!(crate::limits::SOURCE_COUNT_MAX <= 1 << (64 - OFFSET_BITS));

impl Position {
    /// The position of the record that starts at `offset` of a source.
    pub fn new(source: u32, offset: u64) -> Position {
        Position(u64::from(source) << OFFSET_BITS | offset)
    }

    /// The index of the source within its side.
    pub fn source(self) -> u32 {
        (self.0 >> OFFSET_BITS) as u32
    }

    /// Where the record starts in its stream, in bytes.
    pub fn offset(self) -> u64 {
        self.0 & ((1 << OFFSET_BITS) - 1)
    }
}

/// Takes a row with its position apart; `None` if it is too short to have one.
#[inline]
pub fn split_position(row: &[u8]) -> Option<(Position, &[u8])> {
    let (position, row) = row.split_first_chunk::<8>()?;
    Some((Position(u64::from_le_bytes(*position)), row))
}

/// Some events of one block, in order.
#[derive(Debug)]
pub struct Chunk {
    /// Events with a key.
    pub events: EventBatch,
    /// Events without a key.
    pub nulls: EventBatch,
    /// For each event without a key, how many events with one stand before it.
    pub null_places: Vec<u32>,
    /// The records that are no events.
    pub bad: Vec<BadRow>,
    /// The largest time of all events; `i64::MIN` if there is none.
    pub max_ts: i64,
    /// Records that are parsed into it at a time, [`CHUNK_EVENTS_MAX`] at first.
    pub events_max: usize,
}

impl Chunk {
    /// An empty chunk.
    pub fn new(side: Side) -> Chunk {
        Chunk {
            events: EventBatch::with_capacity(side, 0, 0),
            nulls: EventBatch::with_capacity(side, 0, 0),
            null_places: Vec::new(),
            bad: Vec::new(),
            max_ts: i64::MIN,
            events_max: CHUNK_EVENTS_MAX,
        }
    }

    /// Records that the chunk was made from: events with and without a key, and bad ones.
    pub fn row_count(&self) -> usize {
        self.events.len() + self.nulls.len() + self.bad.len()
    }

    fn reset(&mut self, options: &ParseOptions) {
        self.events.reset(options.side, options.source, BatchKind::Keyed);
        self.nulls.reset(options.side, options.source, BatchKind::NullKey);
        self.null_places.clear();
        self.bad.clear();
        self.max_ts = i64::MIN;
    }
}

/// How far a block was parsed.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    at: usize,
    has_quotes: bool,
    /// Line ends before `counted_to` are counted in `line`.
    counted_to: usize,
    line: u64,
}

impl Cursor {
    /// The start of a block.
    pub fn new(block: &Block) -> Cursor {
        let has_quotes = memchr(b'"', block.bytes()).is_some();
        Cursor { at: 0, has_quotes, counted_to: 0, line: block.first_line }
    }

    /// Whether all of the block was parsed.
    pub fn is_done(&self, block: &Block) -> bool {
        self.at >= block.bytes().len()
    }

    /// The line of a record; records are asked for in order.
    fn line_of(&mut self, bytes: &[u8], start: usize) -> u64 {
        self.line += memchr_iter(b'\n', &bytes[self.counted_to..start]).count() as u64;
        self.counted_to = start;
        self.line
    }
}

/// Turns blocks into events. A block needs nothing but itself, so any number of parsers (clones)
/// can work on the blocks of one stream at the same time.
#[derive(Clone, Debug)]
pub struct BlockParser {
    schema: Arc<RowSchema>,
    time: TimeParser,
    hasher: KeyHasher,
    options: ParseOptions,
    plan: Plan,
    /// The key of several columns that is being put together.
    key: Vec<u8>,
    /// A row behind its position.
    row: Vec<u8>,
    spans: Vec<Span>,
}

/// Which columns are wanted: each has a slot, whatever it is wanted for.
#[derive(Clone, Debug)]
struct Plan {
    /// By column: its slot or `NO_SLOT`.
    slots: Vec<u16>,
    /// By slot: the column.
    columns: Vec<usize>,
    /// By slot: the name.
    names: Vec<String>,
    time: usize,
    keys: Vec<usize>,
}

impl Plan {
    fn new(schema: &RowSchema) -> Plan {
        let mut plan = Plan {
            slots: vec![NO_SLOT; schema.columns().len()],
            columns: Vec::new(),
            names: Vec::new(),
            time: 0,
            keys: Vec::new(),
        };
        plan.keys = schema.keys().iter().map(|&column| plan.want(schema, column)).collect();
        plan.time = plan.want(schema, schema.time());
        plan
    }

    fn want(&mut self, schema: &RowSchema, column: usize) -> usize {
        match self.columns.iter().position(|&wanted| wanted == column) {
            Some(slot) => slot,
            None => {
                // A key of 65,535 columns is over the limit of a key in any case.
                self.slots[column] = self.columns.len().min(usize::from(NO_SLOT) - 1) as u16;
                self.columns.push(column);
                self.names.push(schema.columns()[column].clone());
                self.columns.len() - 1
            }
        }
    }
}

impl BlockParser {
    /// A parser of rows of `schema`, with the engine's hasher.
    pub fn new(
        schema: Arc<RowSchema>,
        time: TimeParser,
        hasher: KeyHasher,
        options: ParseOptions,
    ) -> BlockParser {
        let plan = Plan::new(&schema);
        let spans = vec![Span::default(); plan.columns.len()];
        BlockParser { schema, time, hasher, options, plan, key: Vec::new(), row: Vec::new(), spans }
    }

    /// The schema of the rows.
    pub fn schema(&self) -> &RowSchema {
        &self.schema
    }

    /// Replaces `out` with the next events of a block, some hundreds, and moves `cursor` behind
    /// them. Pure but for the parser's own scratch space. A CSV row of 32 bytes costs about 60 ns.
    pub fn parse(&mut self, block: &Block, cursor: &mut Cursor, out: &mut Chunk) {
        out.reset(&self.options);
        match self.schema.format() {
            RowFormat::Delimited { delimiter } if cursor.has_quotes => {
                self.parse_delimited::<true>(delimiter, block, cursor, out);
            }
            RowFormat::Delimited { delimiter } => {
                self.parse_delimited::<false>(delimiter, block, cursor, out);
            }
            RowFormat::JsonLines => self.parse_json(block, cursor, out),
        }
    }

    /// Parses the rest of a block as one chunk would be, whatever its size.
    pub fn parse_all(&mut self, block: &Block) -> Vec<Chunk> {
        let (mut cursor, mut chunks) = (Cursor::new(block), Vec::new());
        while !cursor.is_done(block) {
            let mut chunk = Chunk::new(self.options.side);
            self.parse(block, &mut cursor, &mut chunk);
            chunks.push(chunk);
        }
        chunks
    }

    fn parse_delimited<const QUOTES: bool>(
        &mut self,
        delimiter: u8,
        block: &Block,
        cursor: &mut Cursor,
        out: &mut Chunk,
    ) {
        let bytes = block.bytes();
        let mut records = Records::<QUOTES>::new(bytes, delimiter, cursor.at);
        let mut spans = std::mem::take(&mut self.spans);
        while !is_full(out) {
            let Some(record) = records.next(&self.plan.slots, &mut spans) else { break };
            let mut bad = Bad { block, cursor, record };
            if let Some(fault) = record.fault {
                bad.add(None, BadReason::Quotes(fault), out);
            } else if record.field_count != self.plan.slots.len() {
                let expected = self.plan.slots.len();
                let why = BadReason::FieldCount { expected, found: record.field_count };
                bad.add(None, why, out);
            } else {
                let field = |slot: usize| Some(csv::text(bytes, spans[slot]));
                self.take(bad, true, field, out);
            }
        }
        cursor.at = records.at();
        self.spans = spans;
    }

    fn parse_json(&mut self, block: &Block, cursor: &mut Cursor, out: &mut Chunk) {
        let bytes = block.bytes();
        let names = std::mem::take(&mut self.plan.names);
        let mut values = Vec::with_capacity(names.len());
        while cursor.at < bytes.len() && !is_full(out) {
            let start = cursor.at;
            let next = memchr(b'\n', &bytes[start..]).map_or(bytes.len(), |at| start + at + 1);
            cursor.at = next;
            let line = trim_line_end(&bytes[start..next]);
            if line.trim_ascii().is_empty() {
                continue;
            }
            let record = Record { start, end: start + line.len(), field_count: 0, fault: None };
            let mut bad = Bad { block, cursor, record };
            match super::jsonl::values(line, &names, &mut values) {
                Err(error) => {
                    let why = super::jsonl::explain(&error, line);
                    bad.add(None, BadReason::Json(why), out);
                }
                Ok(()) => {
                    let fault = |&slot: &usize| Some((slot, json_key_fault(values[slot]?)?));
                    if let Some((slot, why)) = self.plan.keys.iter().find_map(fault) {
                        bad.add(Some(self.plan.columns[slot]), why, out);
                        continue;
                    }
                    let field = |slot: usize| values[slot].and_then(super::jsonl::text);
                    self.take(bad, false, field, out);
                }
            }
        }
        self.plan.names = names;
    }

    /// Makes an event of a record whose fields are known.
    #[inline]
    fn take<'a>(
        &mut self,
        mut bad: Bad<'a, '_>,
        empty_is_null: bool,
        field: impl Fn(usize) -> Option<Cow<'a, [u8]>>,
        out: &mut Chunk,
    ) {
        let time_text = field(self.plan.time).unwrap_or_default();
        let ts = match self.time.parse(&time_text) {
            Ok(ts) => ts,
            Err(error) => {
                let text = String::from_utf8_lossy(&time_text).into_owned();
                let column = self.plan.columns[self.plan.time];
                return bad.add(Some(column), BadReason::Time { text, error }, out);
            }
        };
        let Some(timestamp) = Timestamp::new(ts) else {
            return bad.add(None, BadReason::Push(PushError::NoTimestamp), out);
        };
        let present = |slot: usize| field(slot).filter(|text| !(empty_is_null && text.is_empty()));
        let single;
        let key = if let [slot] = self.plan.keys[..] {
            single = present(slot);
            single.as_deref()
        } else {
            self.key.clear();
            let mut parts = self.plan.keys.iter().enumerate();
            let complete = parts.all(|(place, &slot)| match present(slot) {
                Some(text) => {
                    key::push_part(&mut self.key, &text, place == 0);
                    true
                }
                None => false,
            });
            complete.then_some(&self.key[..])
        };
        let mut row = bad.text();
        if self.options.with_position {
            let position =
                Position::new(self.options.source, bad.block.offset + bad.record.start as u64);
            self.row.clear();
            self.row.extend_from_slice(&position.0.to_le_bytes());
            self.row.extend_from_slice(row);
            row = &self.row;
        }
        let (key, batch) = match key {
            Some(key) => (Key::Bytes(key), &mut out.events),
            None => (Key::Null, &mut out.nulls),
        };
        match batch.push(&self.hasher, key, timestamp, row) {
            Ok(()) => out.max_ts = out.max_ts.max(ts),
            Err(error) => return bad.add(None, BadReason::Push(error), out),
        }
        if key == Key::Null {
            // Cannot truncate: a chunk has some hundred events.
            out.null_places.push(out.events.len() as u32);
        }
    }
}

/// Why a JSON value cannot be a key.
#[inline]
fn json_key_fault(json: &str) -> Option<BadReason> {
    if json.starts_with(['{', '[']) {
        Some(BadReason::KeyIsNested)
    } else if !super::jsonl::is_sound(json) {
        Some(BadReason::KeyIsHalf)
    } else {
        None
    }
}

/// Whether a chunk has as much as it should.
#[inline]
fn is_full(out: &Chunk) -> bool {
    out.row_count() >= out.events_max
        || out.events.row_bytes() + out.nulls.row_bytes() >= CHUNK_ROW_BYTES_TARGET
}

/// A record with what is needed to say where it stands.
struct Bad<'a, 'c> {
    block: &'a Block,
    cursor: &'c mut Cursor,
    record: Record,
}

impl<'a> Bad<'a, '_> {
    #[inline]
    fn text(&self) -> &'a [u8] {
        &self.block.bytes()[self.record.start..self.record.end]
    }

    #[cold]
    fn add(&mut self, column: Option<usize>, why: BadReason, out: &mut Chunk) {
        let line = self.cursor.line_of(self.block.bytes(), self.record.start);
        out.bad.push(BadRow { line, column, text: self.text().to_vec(), why });
    }
}

#[cfg(test)]
mod tests;
