//! Where results go.

use std::fmt;

use crate::event::{Event, EventBatch, KeyHasher, Side};

/// Takes what a join finds, on the core that found it. Events are borrowed for the call.
///
/// A plain closure over pairs is an `Emit`, too:
///
/// ```
/// use intervale::event::{Event, Key};
/// use intervale::join::Emit;
/// let mut count = 0;
/// let mut emit = |_left: Event<'_>, _right: Event<'_>| count += 1;
/// let event = Event { key: Key::Int(1), ts: 0, row: b"" };
/// emit.pair(event, event);
/// assert_eq!(count, 1);
/// ```
pub trait Emit {
    /// A match. Its time is the larger of the two.
    fn pair(&mut self, left: Event<'_>, right: Event<'_>);

    /// The matches of an event of `side` that has just arrived with several that were there before,
    /// in their order. The same as [`pair`](Self::pair) for each of them, which is what it does
    /// unless a sink has something to gain from seeing the one event once.
    fn pairs<'a>(&mut self, side: Side, event: Event<'_>, partners: impl Iterator<Item = Event<'a>>)
    where
        Self: Sized,
    {
        for partner in partners {
            match side {
                Side::Left => self.pair(event, partner),
                Side::Right => self.pair(partner, event),
            }
        }
    }

    /// A match in a window, whose time is the window's last tick.
    fn pair_at(&mut self, left: Event<'_>, right: Event<'_>, ts: i64) {
        let _ = ts;
        self.pair(left, right);
    }

    /// A row that comes out by itself: padded (outer), matched (semi) or unmatched (anti),
    /// whichever the join's kind is. Its time is its own.
    ///
    /// Unmatched rows that a watermark frees come in the order of their ends, then of arrival, on
    /// each shard. One whose end had passed before it came has nothing to wait for, and comes out
    /// with its batch: that is as early as its end would have it, but behind rows that were out by
    /// then, before those that the shard has yet to hand over of what a watermark has freed, and
    /// in no order among those of other keys.
    fn single(&mut self, side: Side, event: Event<'_>) {
        let _ = (side, event);
    }

    /// An unmatched row without a key that was behind what was still on time: it comes out at once,
    /// at `ts`, the time that was reached. Its own time is smaller.
    fn single_at(&mut self, side: Side, event: Event<'_>, ts: i64) {
        let _ = ts;
        self.single(side, event);
    }

    /// A row that a [`Process`](crate::join::Process) puts out on one of its outputs, of which it
    /// has as many as it likes; 0 is the main one. Unless a sink knows outputs, it comes as a
    /// single row of the left side.
    fn output(&mut self, output: usize, event: Event<'_>) {
        let _ = output;
        self.single(Side::Left, event);
    }

    /// A late event under `LatePolicy::Output`, `lag` ticks behind what was still on time.
    fn late(&mut self, side: Side, event: Event<'_>, lag: i64) {
        let _ = (side, event, lag);
    }
}

impl<F: FnMut(Event<'_>, Event<'_>)> Emit for F {
    fn pair(&mut self, left: Event<'_>, right: Event<'_>) {
        self(left, right);
    }
}

/// Emits an event of a batch without keys, which an outer join pads at once.
pub(super) fn single_without_key<E: Emit>(
    batch: &EventBatch,
    index: usize,
    hasher: &KeyHasher,
    out: &mut E,
) {
    let event = batch.event(index, hasher);
    match batch.lags().get(index) {
        Some(&lag) if lag > 0 => out.single_at(batch.side(), event, event.ts.saturating_add(lag)),
        _ => out.single(batch.side(), event),
    }
}

/// An [`Emit`] that an engine owns, one a core: it may buffer, and it may fail.
pub trait Sink: Emit + Send {
    /// Hands on what is buffered. Called between steps, seldom under load and at once when idle;
    /// after a failed write it must keep returning the error.
    ///
    /// # Errors
    /// [`SinkError`] stops the engine and stands in its report.
    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    /// No result of this core with a smaller time will follow (ticks).
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

/// Why a sink failed; the message says where and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkError {
    /// What happened, in a sentence.
    pub message: String,
    /// The reader at the other end has gone (a closed pipe): an end, not a fault.
    pub closed: bool,
}

impl fmt::Display for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SinkError {}
