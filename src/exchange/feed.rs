//! What a core asks for events when it has time.

use crate::error::SourceError;
use crate::exchange::{Producer, WatermarkSlot};
use crate::time::{Clock, SourceState};

/// A source as a core drives it: a file that is read, a generator, a queue that is drained.
pub trait Feed: Send {
    /// Does a bounded piece of work: pushes some events to `producer` (on a port that it added at
    /// its first poll) and flushes when it thinks fit. Must not block and must stop pushing at
    /// [`Flow::Blocked`](crate::exchange::Flow::Blocked). At its end it calls
    /// [`Producer::finish`], flushes until everything is sent, and says `Finished`.
    ///
    /// # Errors
    /// [`SourceError`] stops the engine and stands in its report.
    fn poll(
        &mut self,
        producer: &mut Producer,
        clock: &dyn Clock,
    ) -> Result<FeedProgress, SourceError>;

    /// The source by which [`Alignment`] judges whether the feed is to be paused; `None`: never.
    fn slot(&self) -> Option<&WatermarkSlot> {
        None
    }
}

/// What a poll of a feed came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedProgress {
    /// It did something and has more.
    Busy,
    /// A lane is full: poll again when shards have caught up.
    Blocked,
    /// It has nothing now: the other end is silent, or it is not this core's turn.
    Waiting,
    /// It has ended, and everything was sent. It is not polled again.
    Finished,
}

/// Keeps sources together in event time, so that replaying a dense file beside a sparse one does
/// not pile up the dense one's events in state.
///
/// A source that runs more than `max_drift` ticks ahead of the slowest one, of either side, is
/// paused. Sources that have finished or are idle hold nobody back, and the slowest one is never
/// paused, so something always moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alignment {
    /// Ticks that a source may run ahead; `None` aligns nothing.
    pub max_drift: Option<i64>,
}

impl Alignment {
    /// Whether the feed of this source has to wait. Costs one shared read a source of the engine.
    pub fn pauses(&self, slot: &WatermarkSlot) -> bool {
        let (Some(max_drift), SourceState::Active(own)) = (self.max_drift, slot.current()) else {
            return false;
        };
        let table = slot.table();
        let active = crate::event::Side::BOTH.into_iter().flat_map(|side| table.states(side));
        let slowest = active
            .filter_map(|state| match state {
                SourceState::Active(watermark) => Some(watermark),
                SourceState::Idle | SourceState::Finished => None,
            })
            .min();
        slowest.is_some_and(|slowest| own.saturating_sub(slowest) > max_drift)
    }
}
