//! Where the results of a chain go.

use std::sync::PoisonError;

use crate::engine::chain::hand_over::{LateBox, LateRow, stream_of};
use crate::engine::chain::row::{JoinedRow, Stream};
use crate::event::{Event, Side};
use crate::join::{Emit, Sink, SinkError};

/// Takes what a chain finds, on the core that found it; one a core. It may buffer, and it may fail.
///
/// A closure over joined rows is one, too.
pub trait ChainSink: Send {
    /// A row that has come through all stages. Borrowed for the call.
    fn row(&mut self, row: JoinedRow<'_>);

    /// A late event of a stream under `LatePolicy::Output`, `lag` ticks behind what was still on
    /// time.
    fn late(&mut self, stream: Stream, event: Event<'_>, lag: i64) {
        let _ = (stream, event, lag);
    }

    /// As [`Sink::flush`].
    ///
    /// # Errors
    /// As there.
    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    /// No row of this core will follow whose [`JoinedRow::ts`] is smaller (ticks).
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    fn output_watermark(&mut self, watermark: i64) -> Result<(), SinkError> {
        let _ = watermark;
        Ok(())
    }

    /// The core has ended; nothing follows.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    fn finish(&mut self) -> Result<(), SinkError> {
        self.flush()
    }
}

impl<F: FnMut(JoinedRow<'_>) + Send> ChainSink for F {
    fn row(&mut self, row: JoinedRow<'_>) {
        self(row);
    }
}

/// A user's sink as that of the last stage's shard.
pub(in crate::engine) struct Last<S> {
    pub(super) sink: S,
    /// Streams of a left row of the stage.
    streams: usize,
    /// From the earlier stages of the core.
    late: LateBox,
}

impl<S: ChainSink> Last<S> {
    pub(super) fn new(sink: S, streams: usize, late: LateBox) -> Last<S> {
        Last { sink, streams, late }
    }

    fn take_late(&mut self) {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        for LateRow { stream, key, ts, row, lag } in late.drain(..) {
            self.sink.late(stream, Event { key: key.key(), ts, row: &row }, lag);
        }
    }
}

impl<S: ChainSink> Emit for Last<S> {
    fn pair(&mut self, left: Event<'_>, right: Event<'_>) {
        self.sink.row(JoinedRow::new(self.streams, left, Some(right)));
    }

    fn pair_at(&mut self, left: Event<'_>, right: Event<'_>, ts: i64) {
        self.sink.row(JoinedRow::new(self.streams, left, Some(right)).at(ts));
    }

    fn single(&mut self, side: Side, event: Event<'_>) {
        self.single_at(side, event, event.ts);
    }

    fn single_at(&mut self, side: Side, event: Event<'_>, ts: i64) {
        self.sink.row(JoinedRow::single(self.streams, side, event).at(ts));
    }

    fn late(&mut self, side: Side, event: Event<'_>, lag: i64) {
        self.sink.late(stream_of(side, self.streams), event, lag);
    }
}

impl<S: ChainSink> Sink for Last<S> {
    fn flush(&mut self) -> Result<(), SinkError> {
        self.take_late();
        self.sink.flush()
    }

    fn output_watermark(&mut self, watermark: i64) -> Result<(), SinkError> {
        self.take_late();
        self.sink.output_watermark(watermark)
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.take_late();
        self.sink.finish()
    }
}
