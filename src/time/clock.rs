//! Wall-clock time, passed in from outside so that everything below the runtime can be replayed.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::Instant;

/// A monotonic clock in nanoseconds. Users plug in their own (a TSC, a simulated one).
pub trait Clock {
    /// Nanoseconds since some fixed origin of this process.
    fn now_ns(&self) -> u64;
}

/// The operating system's monotonic clock; all instances of a process share one origin.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        // 2^64 ns are 584 years of uptime.
        ORIGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

/// A clock that stands still until it is told to move; for tests and simulation.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Cell<u64>);

impl ManualClock {
    /// Moves the clock forward.
    pub fn advance_ns(&self, by_ns: u64) {
        self.0.set(self.0.get() + by_ns);
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> u64 {
        self.0.get()
    }
}
