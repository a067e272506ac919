//! A stage of a chain that is not the last, on one core.

use crate::engine::chain::HandOver;
use crate::engine::error::Fault;
use crate::engine::worker::FeedIntake;
use crate::exchange::Flow;
use crate::shard::{Operator, Progress, Shard, ShardReport};
use crate::time::{Clock, MonotonicClock};

/// Batches of a step: each may make many rows, which the next stage is to have in between.
const STEP_BATCHES: usize = 4;

/// The shard of a stage, what hands its rows on, and the feeds of its streams.
pub(in crate::engine) struct EarlierStage<J: Operator> {
    state: State<J>,
    intake: Option<FeedIntake>,
}

enum State<J: Operator> {
    Running(Box<Shard<HandOver, J>>),
    /// The shard has ended; what it gave out last may still be on its way.
    Ended(Box<(HandOver, ShardReport)>),
    /// While one becomes the other.
    Changing,
}

/// What is left of such a stage.
pub(in crate::engine) struct ClosedStage {
    pub(in crate::engine) report: ShardReport,
    /// Events that its feeds pushed.
    pub(in crate::engine) events_pushed: u64,
    /// Rows that it handed to the next stage.
    pub(in crate::engine) handed_over: u64,
    /// Of these, those that came out behind their time.
    pub(in crate::engine) behind: u64,
}

impl<J: Operator> EarlierStage<J> {
    pub(in crate::engine) fn new(
        shard: Shard<HandOver, J>,
        intake: Option<FeedIntake>,
    ) -> EarlierStage<J> {
        EarlierStage { state: State::Running(Box::new(shard)), intake }
    }

    /// Steps the shard, unless what it gave out before still waits for room in the next stage; then
    /// its feeds. Returns whether anything moved.
    pub(super) fn step(&mut self, clock: &MonotonicClock, linger_ns: u64) -> Result<bool, Fault> {
        let mut moved = self.step_shard(clock)?;
        if let Some(intake) = &mut self.intake {
            moved |= intake.poll_unless_refused(clock, linger_ns)?;
        }
        Ok(moved)
    }

    /// As [`Shard::steps_in_ns`].
    pub(super) fn steps_in_ns(&self, clock: &MonotonicClock) -> Option<u64> {
        match &self.state {
            State::Running(shard) => shard.steps_in_ns(clock),
            State::Ended(_) | State::Changing => None,
        }
    }

    fn step_shard(&mut self, clock: &MonotonicClock) -> Result<bool, Fault> {
        let shard = match &mut self.state {
            State::Running(shard) => shard,
            State::Ended(ended) => {
                // Its last rows went out if it was not drained before.
                let was_drained = ended.0.is_drained();
                return Ok(ended.0.pump()? == Flow::Open && !was_drained);
            }
            State::Changing => return Ok(false),
        };
        let mut moved = false;
        shard.sink_mut().set_now(clock.now_ns());
        for _ in 0..STEP_BATCHES {
            if shard.sink_mut().pump()? == Flow::Blocked {
                // Those that would take what it has given out may wait for this.
                moved |= !shard.answer_call().map_err(Fault::Shard)?;
                break;
            }
            match shard.step(1, clock).map_err(Fault::Shard)? {
                Progress::Busy => moved = true,
                Progress::Idle => break,
                Progress::Finished => {
                    self.end();
                    return Ok(true);
                }
            }
        }
        // What went wrong on the way to the next stage.
        let _ = shard.sink_mut().pump()?;
        Ok(moved)
    }

    fn end(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Changing) {
            State::Running(shard) => {
                let (_, hand_over, report) = shard.into_parts();
                State::Ended(Box::new((hand_over, report)))
            }
            other => other,
        };
    }

    /// Whether it has ended and everything was sent.
    pub(super) fn is_over(&self) -> bool {
        matches!(&self.state, State::Ended(ended) if ended.0.is_drained())
    }

    /// Events of its feeds that were not sent.
    pub(super) fn unsent(&self) -> usize {
        self.intake.as_ref().map_or(0, |intake| intake.sent().0)
    }

    pub(super) fn has_feeds(&self) -> bool {
        self.intake.as_ref().is_some_and(FeedIntake::has_feeds)
    }

    /// Closes its lanes. `None` never happens: a stage is not left while it changes.
    pub(super) fn into_closed(mut self) -> Option<ClosedStage> {
        self.end();
        let State::Ended(ended) = self.state else { return None };
        let (hand_over, report) = *ended;
        let events_pushed = self.intake.map_or(0, |intake| intake.sent().1);
        let (handed_over, behind) = (hand_over.rows(), hand_over.rows_behind());
        Some(ClosedStage { report, events_pushed, handed_over, behind })
    }
}
