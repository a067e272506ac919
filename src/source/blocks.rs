//! Cuts a stream of bytes into blocks that begin and end where records do.

use std::fmt;
use std::io::{self, Read};

use memchr::{memchr, memchr_iter, memrchr};

use super::scan::RecordEnds;
use super::schema::RowFormat;
use crate::limits::{BLOCK_BYTES_DEFAULT, BLOCK_BYTES_MIN, BLOCK_BYTES_TOTAL, ROW_BYTES_MAX};

/// Whole records of a stream, in one piece.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// At least `len` bytes; the rest is room that was read into before.
    buffer: Vec<u8>,
    len: usize,
    /// 0 for the first block of the stream, and so on.
    pub index: u64,
    /// Where the block starts in the stream, in bytes (a byte order mark counts).
    pub offset: u64,
    /// The line on which the block starts, counted from 1; lines inside quotes count.
    pub first_line: u64,
}

impl Block {
    /// The records, line ends included. Only the last of the stream may lack its own.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

/// How a stream is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Bytes that a block should have; a longer record makes a longer block.
    pub block_bytes: usize,
    /// Hand records on as soon as they are complete instead of filling blocks: for pipes.
    pub eager: bool,
}

impl ReadOptions {
    /// Blocks as large as `reader_count` readers (files times cores) can have at the same time
    /// without more than [`BLOCK_BYTES_TOTAL`] for all of them, within sensible bounds.
    pub fn shared_by(reader_count: usize) -> ReadOptions {
        let block_bytes = BLOCK_BYTES_TOTAL / reader_count.max(1);
        let block_bytes = block_bytes.clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_DEFAULT);
        ReadOptions { block_bytes, ..ReadOptions::default() }
    }
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions { block_bytes: BLOCK_BYTES_DEFAULT, eager: false }
    }
}

/// Why a stream could not be read on.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The system's error.
    Io {
        /// What it says.
        error: io::Error,
        /// How many bytes were read before.
        offset: u64,
    },
    /// A record is over [`ROW_BYTES_MAX`].
    RecordTooLong {
        /// The line on which it starts.
        line: u64,
        /// Whether its end was looked for inside quotes.
        quoted: bool,
    },
    /// The stream starts with the byte order mark of UTF-16.
    Utf16,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io { error, offset } => {
                write!(f, "reading failed at byte {offset}: {error}; ")?;
                f.write_str(match error.kind() {
                    io::ErrorKind::IsADirectory => "give a file",
                    _ => "see whether its disk or connection is sound, and run again",
                })
            }
            ReadError::RecordTooLong { line, quoted } => {
                write!(f, "the record on line {line} is over {} MiB", ROW_BYTES_MAX >> 20)?;
                f.write_str(if *quoted { "; a quote is opened there and never closed" } else { "" })
            }
            ReadError::Utf16 => write!(f, "it is UTF-16; convert it to UTF-8"),
        }
    }
}

impl std::error::Error for ReadError {}

/// Reads a stream and hands it out as [`Block`]s, in order.
///
/// Cutting costs one pass of `memchr` where the text has no quotes (many GB/s), some 25 operations
/// for 64 bytes otherwise. Buffers go round: in the steady state nothing is allocated.
#[derive(Debug)]
pub struct BlockReader<R> {
    input: R,
    format: RowFormat,
    options: ReadOptions,
    started: bool,
    ended: bool,
    /// What was read and not yet handed out: `len` bytes, at a record's start.
    pending: Vec<u8>,
    len: usize,
    /// Where complete records end in `pending`.
    ends: RecordEnds,
    next_index: u64,
    offset: u64,
    line: u64,
}

const BOM: &[u8] = b"\xEF\xBB\xBF";

impl<R: Read> BlockReader<R> {
    /// A reader of `input`; nothing is read yet.
    pub fn new(input: R, format: RowFormat, options: ReadOptions) -> BlockReader<R> {
        BlockReader {
            input,
            format,
            options,
            started: false,
            ended: false,
            pending: Vec::new(),
            len: 0,
            ends: RecordEnds::default(),
            next_index: 0,
            offset: 0,
            line: 1,
        }
    }

    /// Takes the first record that is not empty, without its line end; `None` if there is none.
    /// Blocks start behind it.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read_header(&mut self) -> Result<Option<Vec<u8>>, ReadError> {
        while self.fill()? {
            let end = first_record_end(&self.pending[..self.ends.boundary], self.format);
            let record = trim_line_end(&self.pending[..end]).to_vec();
            self.drop_front(end);
            if !record.is_empty() {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Looks at the complete records that come next without taking them: as many as one block has,
    /// none at the end of the stream.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn peek(&mut self) -> Result<&[u8], ReadError> {
        self.fill()?;
        Ok(&self.pending[..self.ends.boundary])
    }

    /// Takes the next block into `block`, whose memory is used again; `false` at the end of the
    /// stream. No block is empty.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read_block(&mut self, block: &mut Block) -> Result<bool, ReadError> {
        if !self.fill()? {
            block.len = 0;
            return Ok(false);
        }
        let (taken, len) = (self.ends.boundary, self.len);
        std::mem::swap(&mut self.pending, &mut block.buffer);
        block.len = taken;
        block.index = self.next_index;
        block.offset = self.offset;
        block.first_line = self.line;
        let tail = &block.buffer[taken..len];
        if self.pending.len() < tail.len() {
            self.pending.resize(tail.len(), 0);
        }
        self.pending[..tail.len()].copy_from_slice(tail);
        self.next_index += 1;
        self.took(taken, memchr_iter(b'\n', block.bytes()).count());
        Ok(true)
    }

    /// The line on which the next block or header starts, counted from 1.
    pub fn next_line(&self) -> u64 {
        self.line
    }

    /// Removes records from the front of `pending`.
    fn drop_front(&mut self, taken: usize) {
        let lines = memchr_iter(b'\n', &self.pending[..taken]).count();
        self.pending.copy_within(taken..self.len, 0);
        self.took(taken, lines);
    }

    /// Accounts for records that were taken from the front of `pending`, which has moved up.
    fn took(&mut self, taken: usize, lines: usize) {
        self.len -= taken;
        self.ends.at -= taken;
        self.ends.boundary -= taken;
        self.offset += taken as u64;
        self.line += lines as u64;
    }

    /// Reads until a block is full, or (eager, or at the end) until there is a complete record.
    /// `false` when there is nothing more.
    fn fill(&mut self) -> Result<bool, ReadError> {
        if !self.started {
            self.start()?;
        }
        loop {
            let enough = self.ended || self.options.eager || self.len >= self.options.block_bytes;
            if enough && self.ends.boundary > 0 {
                return Ok(true);
            }
            if self.ended {
                // At the end everything read is a record, so nothing is left.
                return Ok(false);
            }
            if self.len - self.ends.boundary > ROW_BYTES_MAX {
                return Err(self.too_long());
            }
            self.read_some()?;
            self.scan();
        }
    }

    /// Reads the first bytes and skips a byte order mark.
    fn start(&mut self) -> Result<(), ReadError> {
        while self.len < BOM.len() && !self.ended {
            self.read_some()?;
        }
        self.started = true;
        match &self.pending[..self.len] {
            [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] => return Err(ReadError::Utf16),
            bytes if bytes.starts_with(BOM) => {
                self.pending.copy_within(BOM.len()..self.len, 0);
                self.len -= BOM.len();
                self.offset = BOM.len() as u64;
            }
            _ => {}
        }
        self.scan();
        Ok(())
    }

    /// One read. The room is filled in steps of the buffer's own size, so that a long record is
    /// copied a few times only.
    fn read_some(&mut self) -> Result<(), ReadError> {
        if self.len == self.pending.len() {
            // Some room beyond the block, so that the record across its end often fits.
            let block_bytes = self.options.block_bytes.max(1);
            let room = (self.len * 2).max(block_bytes + block_bytes / 16);
            self.pending.resize(room, 0);
        }
        loop {
            match self.input.read(&mut self.pending[self.len..]) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(());
                }
                Ok(count) => {
                    self.len += count;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let offset = self.offset + self.len as u64;
                    return Err(ReadError::Io { error, offset });
                }
            }
        }
    }

    /// Looks for record ends in what was read since the last time.
    fn scan(&mut self) {
        let bytes = &self.pending[..self.len];
        match self.format {
            RowFormat::Delimited { delimiter } => {
                self.ends.advance(bytes, delimiter, self.ended);
            }
            RowFormat::JsonLines => {
                if let Some(at) = memrchr(b'\n', &bytes[self.ends.at..]) {
                    self.ends.boundary = self.ends.at + at + 1;
                }
                self.ends.at = self.len;
            }
        }
        if self.ended {
            self.ends.boundary = self.len;
            self.ends.at = self.len;
        }
    }

    fn too_long(&self) -> ReadError {
        let lines = memchr_iter(b'\n', &self.pending[..self.ends.boundary]).count();
        ReadError::RecordTooLong { line: self.line + lines as u64, quoted: self.ends.in_quotes }
    }
}

/// Where the first of some complete records ends, its line end included.
fn first_record_end(records: &[u8], format: RowFormat) -> usize {
    let mut ends = RecordEnds::default();
    while let Some(found) = memchr(b'\n', &records[ends.at..]) {
        let end = ends.at + found + 1;
        match format {
            RowFormat::JsonLines => return end,
            RowFormat::Delimited { delimiter } => {
                ends.advance(&records[..end], delimiter, true);
                if ends.boundary == end {
                    return end;
                }
            }
        }
    }
    records.len()
}

/// A record without the `\n` or `\r\n` that ends it.
#[inline]
pub(super) fn trim_line_end(record: &[u8]) -> &[u8] {
    match record {
        [record @ .., b'\r', b'\n'] | [record @ .., b'\n'] => record,
        // The last record of a stream of `\r\n` lines may be cut between the two.
        [record @ .., b'\r'] => record,
        record => record,
    }
}

#[cfg(test)]
mod tests;
