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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::event::Side;
    use crate::exchange::Watermarks;

    fn slots() -> (Watermarks, [WatermarkSlot; 3]) {
        let table = Watermarks::with_capacity(2);
        let sides = [Side::Left, Side::Left, Side::Right];
        let slots = sides.map(|side| table.add_source(side).unwrap());
        (table, slots)
    }

    const BY_10: Alignment = Alignment { max_drift: Some(10) };

    fn paused(slots: &[WatermarkSlot]) -> Vec<bool> {
        slots.iter().map(|slot| BY_10.pauses(slot)).collect()
    }

    #[test]
    fn who_runs_ahead_of_the_slowest_waits() {
        let (_table, slots) = slots();
        slots[0].advance(100);
        assert_eq!(paused(&slots), [true, false, false], "the others have not begun");
        slots[1].advance(95);
        slots[2].advance(90);
        assert_eq!(paused(&slots), [false, false, false], "10 ticks are allowed");
        slots[1].advance(101);
        assert_eq!(paused(&slots), [false, true, false]);
        slots[2].advance(200);
        assert_eq!(paused(&slots), [false, false, true]);
        assert!(!Alignment::default().pauses(&slots[2]), "nothing is aligned");
    }

    #[test]
    fn nobody_waits_for_the_silent_and_the_finished() {
        let (_table, slots) = slots();
        slots[0].advance(1000);
        slots[1].idle();
        slots[2].finish();
        assert_eq!(paused(&slots), [false, false, false]);
        slots[1].advance(0);
        assert_eq!(paused(&slots), [true, false, false]);
        slots[1].finish();
        assert_eq!(paused(&slots), [false, false, false]);
    }

    #[test]
    fn ends_of_time_do_not_wrap() {
        let (_table, slots) = slots();
        slots[0].advance(i64::MAX - 1);
        slots[1].advance(i64::MIN + 2);
        assert_eq!(paused(&slots), [true, false, false]);
        slots[1].finish();
        slots[2].advance(i64::MAX - 2);
        assert_eq!(paused(&slots), [false, false, false]);
    }

    /// Whatever the watermarks are, somebody may go on.
    #[test]
    fn never_all_wait() {
        let steps = [i64::MIN + 2, -20, -10, 0, 5, 11, 100, i64::MAX];
        for left in steps {
            for right in steps {
                let table = Watermarks::with_capacity(1);
                let slots = Side::BOTH.map(|side| table.add_source(side).unwrap());
                slots[0].advance(left);
                slots[1].advance(right);
                assert!(paused(&slots).contains(&false), "{left} and {right}");
            }
        }
    }
}
