//! Drives a join over a workload in one thread and measures it.

use std::ops::Range;
use std::time::Instant;

use crate::error::JoinError;
use crate::event::Side;
use crate::workload::{
    CpuClock, Events, Measured, Moved, Outcome, StateSize, StepClock, StepTimes, Watermarks,
};

/// A join that can be driven step by step: ours, or a peer to compare it with.
pub trait Stepped {
    /// Takes the events of `range` of one side, finds their pairs, and frees what `watermarks`
    /// (which count these events in) have passed.
    ///
    /// # Errors
    /// [`JoinError`] as the join has it.
    fn step(
        &mut self,
        events: &Events,
        side: Side,
        range: Range<usize>,
        watermarks: &Watermarks,
    ) -> Result<(), JoinError>;

    /// The end of both sides: frees everything.
    ///
    /// # Errors
    /// [`JoinError`] as the join has it.
    fn finish(&mut self) -> Result<(), JoinError>;

    /// The pairs so far.
    fn outcome(&self) -> Outcome;

    /// Rows that came out alone so far.
    fn singles(&self) -> u64 {
        0
    }

    /// Rows that bounds on state have cost their place in memory so far.
    fn moved(&self) -> Moved {
        Moved::default()
    }

    /// What is held now. Cheap: it is called every few steps, inside the measured time.
    fn state(&self) -> StateSize;
}

/// State is looked at once in so many steps.
const STEPS_PER_LOOK: u64 = 16;

/// Runs a join over all events, the sides in turn, `batch` events a step.
///
/// # Errors
/// What the join refuses.
pub fn drive<J: Stepped>(
    join: &mut J,
    events: &Events,
    batch: usize,
    clock: StepClock,
) -> Result<Measured, JoinError> {
    let mut watermarks = Watermarks::of(&events.workload);
    let mut steps = StepTimes::new();
    let mut peak = StateSize::default();
    let (start, start_cpu_ns) = (Instant::now(), CpuClock::Thread.now_ns());
    for (side, range) in events.steps(batch) {
        let step_start = clock.start();
        watermarks.observe(side, &events.side(side).ts[range.clone()]);
        join.step(events, side, range, &watermarks)?;
        steps.record(step_start.elapsed_ns());
        if steps.count().is_multiple_of(STEPS_PER_LOOK) {
            peak = peak.max(join.state());
        }
    }
    let (wall, end_cpu_ns) = (start.elapsed(), CpuClock::Thread.now_ns());
    peak = peak.max(join.state());
    join.finish()?;
    Ok(Measured {
        outcome: join.outcome(),
        singles: join.singles(),
        events: events.len() as u64,
        wall,
        cpu_ns: end_cpu_ns - start_cpu_ns,
        finish_cpu_ns: CpuClock::Thread.now_ns() - end_cpu_ns,
        steps,
        peak,
        moved: join.moved(),
    })
}
