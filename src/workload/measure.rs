//! Clocks and what a measured run brings back.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::workload::{CpuClock, Moved, Outcome};

/// The clock of single steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepClock {
    /// Wall time: what a caller waits, other programs' turns on the core included.
    #[default]
    Wall,
    /// The thread's CPU time: what the step itself took, page faults included. Costs about 1 ns
    /// an event in steps of 256.
    Cpu,
}

impl StepClock {
    #[inline]
    pub(crate) fn start(self) -> StepStart {
        match self {
            StepClock::Wall => StepStart::Wall(Instant::now()),
            StepClock::Cpu => StepStart::Cpu(CpuClock::Thread.now_ns()),
        }
    }
}

/// When a step began.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StepStart {
    Wall(Instant),
    Cpu(u64),
}

impl StepStart {
    #[inline]
    pub(crate) fn elapsed_ns(self) -> u64 {
        match self {
            StepStart::Wall(start) => start.elapsed().as_nanos() as u64,
            StepStart::Cpu(start_ns) => CpuClock::Thread.now_ns() - start_ns,
        }
    }
}

/// How long the steps of a run took.
#[derive(Clone, Debug)]
pub struct StepTimes(Histogram<u64>);

/// Longer steps are counted as this long.
const STEP_NS_MAX: u64 = 60_000_000_000;

impl StepTimes {
    /// No step yet. Three digits are kept, up to a minute.
    pub fn new() -> StepTimes {
        let bounds = Histogram::new_with_bounds(1, STEP_NS_MAX, 3);
        StepTimes(bounds.expect("the bounds are constants that hdrhistogram accepts"))
    }

    /// The steps of a histogram of nanoseconds.
    pub fn from_histogram(histogram: &Histogram<u64>) -> StepTimes {
        let mut steps = StepTimes::new();
        for value in histogram.iter_recorded() {
            steps.0.saturating_record_n(value.value_iterated_to(), value.count_at_value());
        }
        steps
    }

    /// Counts a step.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Counts another's steps in.
    pub fn add(&mut self, other: &StepTimes) {
        // Both have the same bounds, so nothing is out of range.
        let _ = self.0.add(&other.0);
    }

    /// How many steps there were.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time that this share of the steps (0 to 1) did not exceed, in ns.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        self.0.value_at_quantile(share)
    }

    /// The slowest step, in ns.
    pub fn max_ns(&self) -> u64 {
        self.0.max()
    }
}

impl Default for StepTimes {
    fn default() -> StepTimes {
        StepTimes::new()
    }
}

/// What a join holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateSize {
    /// Buffered rows of both sides.
    pub rows: u64,
    /// Bytes of state: index, arenas and pools as allocated.
    pub bytes: u64,
    /// The part of them that a look-up by key touches at random.
    pub index_bytes: u64,
}

impl StateSize {
    /// The larger of each.
    #[must_use]
    pub fn max(self, other: StateSize) -> StateSize {
        StateSize {
            rows: self.rows.max(other.rows),
            bytes: self.bytes.max(other.bytes),
            index_bytes: self.index_bytes.max(other.index_bytes),
        }
    }
}

/// What one run of a workload took and gave.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Pairs and their checksum.
    pub outcome: Outcome,
    /// Rows that came out alone: padded, semi, anti.
    pub singles: u64,
    /// Events of both sides.
    pub events: u64,
    /// From the first event to the last one's pairs.
    pub wall: Duration,
    /// CPU time of the same.
    pub cpu_ns: u64,
    /// CPU time of the end of input: what is left is freed. Not part of `cpu_ns`.
    pub finish_cpu_ns: u64,
    /// Step by step.
    pub steps: StepTimes,
    /// The largest state that was seen.
    pub peak: StateSize,
    /// Rows that bounds on state have cost their place in memory.
    pub moved: Moved,
}

impl Measured {
    /// CPU nanoseconds an event.
    pub fn cpu_ns_per_event(&self) -> f64 {
        self.cpu_ns as f64 / self.events.max(1) as f64
    }

    /// Wall nanoseconds an event.
    pub fn wall_ns_per_event(&self) -> f64 {
        self.wall.as_nanos() as f64 / self.events.max(1) as f64
    }
}

/// Of a normal distribution: its standard deviation over its median absolute deviation.
pub const MAD_TO_SIGMA: f64 = 1.4826;

/// The middle value, the mean of the middle two of an even number; 0 without values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        count if count.is_multiple_of(2) => (values[middle - 1] + values[middle]) / 2.0,
        _ => values[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_over_the_histogram_are_kept_at_its_end() {
        let mut steps = StepTimes::new();
        steps.record(1_000);
        steps.record(u64::MAX);
        assert_eq!(steps.count(), 2);
        assert!(steps.max_ns() >= STEP_NS_MAX);
        assert!((1_000..1_001).contains(&steps.quantile_ns(0.5)));
    }
}
