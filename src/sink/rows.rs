//! The sink of one core: encodes what the join finds, and hands it on in blocks.

use std::sync::{Arc, Mutex, PoisonError};

use crate::event::{Event, Key, Side};
use crate::expr::{Row, Rows};
use crate::join::{Emit, Sink, SinkError};
use crate::sink::encode::{Encoder, Scratch};
use crate::sink::sorter::{NO_POSITION, Place, Slices, Sorter};
use crate::sink::{LeftOut, Output};
use crate::source::split_position;

/// Bytes a core gathers before it writes: large enough for the system call not to matter.
const BLOCK_BYTES: usize = 128 << 10;

/// What the sinks of all cores share: where rows go and how they are made. Makes the sinks.
#[derive(Debug)]
pub struct RowSinks {
    encoder: Encoder,
    output: Arc<Output>,
    sorter: Option<(Sorter, SortOptions)>,
    late: Option<(Encoder, Arc<Output>)>,
    /// Late rows may be of any time, so these are written at the end.
    late_sorter: Option<Sorter>,
    left_out: Mutex<LeftOut>,
}

/// How rows of several cores are put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortOptions {
    /// How many cores there are: as many sinks must finish.
    pub cores: usize,
    /// Ticks of the slices of time that are sorted one by one. A row waits at most so much longer
    /// than it must; too short ones cost more than sorting.
    pub slice: i64,
}

impl RowSinks {
    /// Rows go to `output`, in order if `sorted` says so (they must start with their positions
    /// then); late rows to theirs, in order as well: these are held in memory until the end.
    pub fn new(
        encoder: Encoder,
        output: Arc<Output>,
        sorted: Option<SortOptions>,
        late: Option<(Encoder, Arc<Output>)>,
    ) -> Arc<RowSinks> {
        let sorter =
            sorted.map(|options| (Sorter::new(Arc::clone(&output), options.cores), options));
        let late_sorter = sorted
            .zip(late.as_ref())
            .map(|(options, (_, output))| Sorter::new(Arc::clone(output), options.cores));
        Arc::new(RowSinks {
            encoder,
            output,
            sorter,
            late,
            late_sorter,
            left_out: Mutex::default(),
        })
    }

    /// The sink of one core.
    pub fn sink(self: &Arc<RowSinks>, core: usize) -> RowSink {
        RowSink {
            shared: Arc::clone(self),
            core,
            block: Block::default(),
            late: Block::default(),
            late_slices: Slices::new(i64::MAX),
            slices: Slices::new(self.sorter.as_ref().map_or(1, |(_, options)| options.slice)),
            scratch: Scratch::default(),
            positions: Vec::new(),
            failed: None,
        }
    }

    /// Rows of a sorted output that no sink has any more and that wait for those of slower cores.
    /// With what the sinks [hold](RowSink::held) these are the rows that a run which is stopped has
    /// found and not written, as earlier ones might have followed.
    pub fn held(&self) -> u64 {
        self.sorter.as_ref().map_or(0, |(sorter, _)| sorter.held())
    }

    /// Fields of JSON rows that no column of a CSV or TSV output could take. Complete when all
    /// sinks have finished.
    pub fn left_out(&self) -> LeftOut {
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The sink of one core.
#[derive(Debug)]
pub struct RowSink {
    shared: Arc<RowSinks>,
    core: usize,
    block: Block,
    late: Block,
    /// Rows of a sorted output since the last watermark.
    slices: Slices,
    /// Late rows of a sorted output.
    late_slices: Slices,
    scratch: Scratch,
    /// Of the streams of a joined row.
    positions: Vec<u8>,
    /// After this nothing is gathered any more.
    failed: Option<SinkError>,
}

/// Complete rows that are not yet written.
#[derive(Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    rows: u64,
}

impl Block {
    fn write_to(&mut self, output: &Output) -> Result<(), SinkError> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let written = output.write(&self.bytes, self.rows);
        self.bytes.clear();
        self.rows = 0;
        written
    }
}

impl RowSink {
    /// Rows of a sorted output that wait for a later watermark.
    pub fn held(&self) -> u64 {
        self.slices.rows()
    }

    /// Writes the late rows of a sorted output; when all sinks have, all of them are. Of a run that
    /// is stopped, or whose reader has gone, they are those that were found so far.
    ///
    /// # Errors
    /// [`SinkError`] when they cannot be written.
    pub fn write_late(&mut self) -> Result<(), SinkError> {
        if self.failed.as_ref().is_some_and(|error| !error.closed) {
            return self.outcome();
        }
        let shared = Arc::clone(&self.shared);
        let mut written = Ok(());
        if let Some(sorter) = &shared.late_sorter {
            written = sorter.advance(self.core, &mut self.late_slices, i64::MAX);
        }
        if let (Some((_, output)), Ok(())) = (&shared.late, &written) {
            written = self.late.write_to(output);
        }
        self.keep(written.clone());
        written
    }

    /// `ts` is the row's time where that is not the larger of the two.
    fn row(&mut self, left: Option<Event<'_>>, right: Option<Event<'_>>, ts: Option<i64>) {
        if self.failed.is_some() {
            return;
        }
        let (left_position, left_row) = self.split(left);
        let (right_position, right_row) = self.split(right);
        let out = &mut self.block.bytes;
        let row = |event: Option<Event<'_>>, bytes| {
            event.zip(bytes).map(|(event, bytes)| Row { bytes, ts: event.ts })
        };
        let rows = Rows::of_sides([row(left, left_row), row(right, right_row)]);
        self.shared.encoder.push(out, &rows, &mut self.scratch);
        if self.shared.sorter.is_some() {
            let of = |event: Option<Event<'_>>| event.map_or(i64::MIN, |event| event.ts);
            let time = ts.unwrap_or_else(|| of(left).max(of(right)));
            let place = Place { time, left: left_position, right: right_position };
            let mut number = [0; 8];
            let key = left.or(right).map_or(Key::Null, |event| event.key);
            self.slices.push(place, key_bytes(key, &mut number), out);
            out.clear();
            return;
        }
        self.wrote_row();
    }

    /// The position and the row as it stands in the input.
    fn split<'a>(&self, event: Option<Event<'a>>) -> (u64, Option<&'a [u8]>) {
        match event {
            None => (NO_POSITION, None),
            Some(event) if self.shared.sorter.is_none() => (NO_POSITION, Some(event.row)),
            Some(event) => match split_position(event.row) {
                Some((position, row)) => (position.0, Some(row)),
                None => (NO_POSITION, Some(event.row)),
            },
        }
    }

    /// A row of several streams with its output time; in order by that, then by the positions of
    /// the streams, one that has no row behind those that have.
    pub fn joined<'a>(&mut self, ts: i64, rows: impl Iterator<Item = Option<Row<'a>>>) {
        if self.failed.is_some() {
            return;
        }
        let mut positions = std::mem::take(&mut self.positions);
        positions.clear();
        let is_sorted = self.shared.sorter.is_some();
        let rows: Vec<Option<Row<'_>>> = rows
            .map(|row| {
                let split = row.filter(|_| is_sorted).and_then(|row| split_position(row.bytes));
                let position = split.map_or(NO_POSITION, |(position, _)| position.0);
                positions.extend_from_slice(&position.to_be_bytes());
                row.map(|Row { bytes, ts }| Row { bytes: split.map_or(bytes, |(_, row)| row), ts })
            })
            .collect();
        let out = &mut self.block.bytes;
        self.shared.encoder.push(out, &Rows::of_streams(&rows), &mut self.scratch);
        if self.shared.sorter.is_some() {
            self.slices.push(Place { time: ts, left: 0, right: 0 }, &positions, out);
            out.clear();
        } else {
            self.wrote_row();
        }
        self.positions = positions;
    }

    /// A late row of a stream.
    pub fn late_of(&mut self, stream: usize, event: Event<'_>, lag: i64) {
        let (position, Some(row)) = self.split(Some(event)) else { return };
        let shared = Arc::clone(&self.shared);
        let Some((encoder, output)) = shared.late.as_ref().filter(|_| self.failed.is_none()) else {
            return;
        };
        encoder.push_late(&mut self.late.bytes, stream, lag, row, &mut self.scratch);
        if shared.late_sorter.is_some() {
            // Left rows first, then those of the newest stream, and so on to the right ones.
            let (left, right) = match stream {
                0 => (position, NO_POSITION),
                stream => (NO_POSITION - (stream as u64 - 1), position),
            };
            let mut number = [0; 8];
            let key = key_bytes(event.key, &mut number);
            self.late_slices.push(Place { time: event.ts, left, right }, key, &self.late.bytes);
            self.late.bytes.clear();
            return;
        }
        self.late.rows += 1;
        if self.late.bytes.len() >= BLOCK_BYTES {
            let written = self.late.write_to(output);
            self.keep(written);
        }
    }

    /// A row is in the block that is written to the output.
    fn wrote_row(&mut self) {
        self.block.rows += 1;
        if self.block.bytes.len() >= BLOCK_BYTES {
            let written = self.block.write_to(&self.shared.output);
            self.keep(written);
        }
    }

    fn keep(&mut self, result: Result<(), SinkError>) {
        if let Err(error) = result {
            // Late rows go elsewhere.
            let error_is_end = error.closed;
            self.failed.get_or_insert(error);
            self.block.bytes = Vec::new();
            self.slices = Slices::new(1);
            if !error_is_end {
                self.late_slices = Slices::new(1);
            }
        }
    }

    fn outcome(&self) -> Result<(), SinkError> {
        self.failed.clone().map_or(Ok(()), Err)
    }
}

/// What keys are put in order by.
fn key_bytes<'a>(key: Key<'a>, number: &'a mut [u8; 8]) -> &'a [u8] {
    match key {
        Key::Bytes(key) => key,
        Key::Int(key) => {
            *number = key.to_be_bytes();
            number
        }
        Key::Null => &[],
    }
}

impl Emit for RowSink {
    fn pair(&mut self, left: Event<'_>, right: Event<'_>) {
        self.row(Some(left), Some(right), None);
    }

    fn pair_at(&mut self, left: Event<'_>, right: Event<'_>, ts: i64) {
        self.row(Some(left), Some(right), Some(ts));
    }

    fn single(&mut self, side: Side, event: Event<'_>) {
        self.single_at(side, event, event.ts);
    }

    fn single_at(&mut self, side: Side, event: Event<'_>, ts: i64) {
        match side {
            Side::Left => self.row(Some(event), None, Some(ts)),
            Side::Right => self.row(None, Some(event), Some(ts)),
        }
    }

    fn late(&mut self, side: Side, event: Event<'_>, lag: i64) {
        self.late_of(side.index(), event, lag);
    }
}

impl Sink for RowSink {
    fn flush(&mut self) -> Result<(), SinkError> {
        if self.failed.is_none() {
            let written = self.block.write_to(&self.shared.output);
            self.keep(written);
        }
        if let (Some((_, output)), None) = (&self.shared.late, &self.failed) {
            let written = self.late.write_to(output);
            self.keep(written);
        }
        self.outcome()
    }

    fn output_watermark(&mut self, watermark: i64) -> Result<(), SinkError> {
        if let (Some((sorter, _)), None) = (&self.shared.sorter, &self.failed) {
            let written = sorter.advance(self.core, &mut self.slices, watermark);
            self.keep(written);
        }
        self.outcome()
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        // Nothing follows: as after the last watermark there is.
        let _ = self.output_watermark(i64::MAX);
        let _ = self.write_late();
        let left_out = std::mem::take(&mut self.scratch.left_out);
        self.shared.left_out.lock().unwrap_or_else(PoisonError::into_inner).merge(left_out);
        self.flush()
    }
}
