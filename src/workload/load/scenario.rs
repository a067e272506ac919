//! What can go other than smoothly: when events are due, what they are, who falls silent.

use std::time::Duration;

/// A load's shape. Each is still an open loop: what is due when does not depend on the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Scenario {
    /// Events are due evenly.
    #[default]
    None,
    /// All events of each period are due in its first part, evenly; then nothing is.
    Burst {
        /// The period.
        every: Duration,
        /// How much higher the rate in a burst is than on average: over 1.
        factor: f64,
    },
    /// Some events of both sides have one and the same key.
    Skew {
        /// Of all events, 0 to 1.
        share: f64,
    },
    /// Some events arrive later, in event time, than those around them. Watermarks trail by as
    /// much more, so nothing is late and the pairs are the same.
    Disorder {
        /// Up to so much later, in milliseconds.
        by_ms: u64,
        /// Of all events, 0 to 1.
        share: f64,
    },
    /// The first left source falls silent, which holds its side's watermark back; then all that
    /// it has kept is due at once.
    StalledSource {
        /// From the start of the load.
        at: Duration,
        /// For so long.
        lasts: Duration,
    },
    /// Every shard's sink stands still for a while, again and again, and its core with it, as a
    /// write to a slow disk or a full pipe does.
    SlowSink {
        /// For so long.
        pause: Duration,
        /// From the end of one pause to the next.
        every: Duration,
    },
}

impl Scenario {
    /// The name on the command line.
    pub const fn name(&self) -> &'static str {
        match self {
            Scenario::None => "none",
            Scenario::Burst { .. } => "burst",
            Scenario::Skew { .. } => "skew",
            Scenario::Disorder { .. } => "disorder",
            Scenario::StalledSource { .. } => "stalled-source",
            Scenario::SlowSink { .. } => "slow-sink",
        }
    }

    /// Whether it changes the events themselves, or the order of their arrival.
    pub const fn shapes_events(&self) -> bool {
        matches!(self, Scenario::Skew { .. } | Scenario::Disorder { .. })
    }

    /// How much further than those of the workload watermarks must trail, in milliseconds.
    pub(super) const fn disorder_ms(&self) -> u64 {
        match self {
            Scenario::Disorder { by_ms, .. } => *by_ms,
            _ => 0,
        }
    }

    /// When an event is due that would be due after so many nanoseconds in an even load.
    /// `can_stall` is whether it comes from the source that falls silent.
    pub(super) fn due_ns(&self, even_ns: u64, can_stall: bool) -> u64 {
        match *self {
            Scenario::Burst { every, factor } => {
                let every_ns = (every.as_nanos() as u64).max(1);
                let phase_ns = even_ns % every_ns;
                even_ns - phase_ns + (phase_ns as f64 / factor.max(1.0)) as u64
            }
            Scenario::StalledSource { at, lasts } if can_stall => {
                let (from_ns, lasts_ns) = (at.as_nanos() as u64, lasts.as_nanos() as u64);
                let to_ns = from_ns.saturating_add(lasts_ns);
                if (from_ns..to_ns).contains(&even_ns) { to_ns } else { even_ns }
            }
            _ => even_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_burst_has_the_same_events_in_less_time() {
        let burst = Scenario::Burst { every: Duration::from_secs(1), factor: 4.0 };
        let due = |even_ns| burst.due_ns(even_ns, false);
        assert_eq!([0, S / 2, S - 4].map(due), [0, S / 8, S / 4 - 1]);
        assert_eq!(due(3 * S + S / 2), 3 * S + S / 8);
        let all: Vec<u64> = (0..1_000).map(|k| due(k * 7_000_000)).collect();
        assert!(all.is_sorted(), "time does not go back");
    }

    #[test]
    fn a_stall_ends_with_everything_that_was_kept() {
        let (at, lasts) = (Duration::from_secs(2), Duration::from_secs(1));
        let stall = Scenario::StalledSource { at, lasts };
        let due = |even_ns| stall.due_ns(even_ns, true);
        assert_eq!(
            [0, 2 * S - 1, 2 * S, 3 * S - 1, 3 * S].map(due),
            [0, 2 * S - 1, 3 * S, 3 * S, 3 * S]
        );
        assert_eq!(stall.due_ns(2 * S, false), 2 * S, "others go on");
    }
}
