//! How fast the machine is just now, by work that never changes.
//!
//! A figure of another day was measured on another machine, though it may be the same computer:
//! other programs used its caches, its memory and its cores. The yardstick is the roofline kernel
//! over fixed events with two tables of fixed sizes, run beside what is measured; how much it moved
//! from one day to the other says how much of a difference may be the machine's.

use std::time::Instant;

use crate::workload::{Events, KeyRule, Roofline, SEED_MEASURED, Workload, median};

/// A table that a core's own cache holds.
const NEAR_BYTES: u64 = 256 << 10;
/// A table that lies in the last cache, which others use as well, or in memory.
const FAR_BYTES: u64 = 64 << 20;
/// Events of a side in a look: a look takes some 10 ms.
const EVENTS_PER_SIDE: u32 = 1 << 18;
/// Events a batch, as joins have by default.
const BATCH: usize = 256;

/// The kernels and their events: some 80 MiB.
pub struct Yardstick {
    events: Events,
    near: Roofline,
    far: Roofline,
}

/// What the machine took at one time, or the medians of several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// CPU nanoseconds an event where a core's own cache suffices.
    pub near_ns: f64,
    /// CPU nanoseconds an event where it does not.
    pub far_ns: f64,
    /// Wall time over CPU time: 1 where nobody else wanted the core. Of several looks, of all of
    /// them together.
    pub wait: f64,
}

impl Yardstick {
    /// Makes the events and touches the tables; takes some 50 ms.
    pub fn new() -> Yardstick {
        let workload = Workload { keys: KeyRule::Unique, ..Workload::FREE };
        let events = Events::new(workload, SEED_MEASURED, EVENTS_PER_SIDE);
        let mut yardstick =
            Yardstick { events, near: Roofline::new(NEAR_BYTES), far: Roofline::new(FAR_BYTES) };
        // The first look is of cold code and caches.
        yardstick.look();
        yardstick
    }

    /// Looks once.
    pub fn look(&mut self) -> Look {
        let start = Instant::now();
        let near_ns = self.near.run(&self.events, BATCH);
        let far_ns = self.far.run(&self.events, BATCH);
        let wall_ns = start.elapsed().as_nanos() as f64;
        let cpu_ns = (near_ns + far_ns) * self.events.len() as f64;
        Look { near_ns, far_ns, wait: (wall_ns / cpu_ns.max(1.0)).max(1.0) }
    }
}

impl Default for Yardstick {
    fn default() -> Yardstick {
        Yardstick::new()
    }
}

impl Look {
    /// The medians of several looks, and what all of them waited; `None` of none.
    pub fn of(looks: &[Look]) -> Option<Look> {
        let cpu = |look: &Look| look.near_ns + look.far_ns;
        let all_cpu: f64 = looks.iter().map(cpu).sum();
        let all_wall: f64 = looks.iter().map(|look| cpu(look) * look.wait).sum();
        (!looks.is_empty()).then(|| Look {
            near_ns: median(looks.iter().map(|look| look.near_ns).collect()),
            far_ns: median(looks.iter().map(|look| look.far_ns).collect()),
            wait: all_wall / all_cpu,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_measure_both_tables() {
        let mut yardstick = Yardstick::new();
        let looks = [yardstick.look(), yardstick.look(), yardstick.look()];
        let Look { near_ns, far_ns, wait } = Look::of(&looks).unwrap();
        assert!(near_ns > 0.0 && far_ns > 0.0, "{looks:?}");
        assert!(wait >= 1.0, "{looks:?}");
    }

    #[test]
    fn looks_are_put_together() {
        let look = |near_ns, far_ns, wait| Look { near_ns, far_ns, wait };
        let all = Look::of(&[look(4.0, 6.0, 1.0), look(5.0, 5.0, 4.0), look(9.0, 1.0, 1.0)]);
        assert_eq!(all, Some(look(5.0, 5.0, 2.0)));
        assert_eq!(Look::of(&[]), None);
    }
}
