//! What a core asks for events when it has time.

use crate::error::SourceError;
use crate::exchange::{Producer, WatermarkSlot};
use crate::time::Clock;

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

    /// The source by which a [`Pacer`](crate::exchange::Pacer) judges before each poll whether the
    /// feed has to wait; `None`: it asks [`Producer::admits`] itself, or never waits.
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
