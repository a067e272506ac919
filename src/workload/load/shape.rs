//! Events of a scenario: those of a workload with other keys, or in another order of arrival.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::event::Side;
use crate::workload::load::Scenario;
use crate::workload::random::{below, rand};
use crate::workload::{Arrivals, Events, SideEvents, Workload, WorkloadEvent};

/// The key of hot events: none that workloads draw.
const HOT_KEY: u64 = u64::MAX - 1;

/// Probabilities are compared in these.
const SHARE_ONE: f64 = 1e9;

/// Of the random numbers of an event, those that nothing else uses.
const DRAW_HOT: u64 = 2;
const DRAW_DELAYED: u64 = 3;

/// The events of one side in their order of arrival: an iterator of constant cost (a heap of those
/// that are delayed, in [`Scenario::Disorder`]).
pub(super) struct Shaped {
    arrivals: Arrivals,
    scenario: Scenario,
    side_seed: u64,
    /// The largest time seen: the side's clock.
    now: i64,
    /// Delayed events by when they arrive, then by their number.
    delayed: BinaryHeap<Reverse<(i64, u64, i64, u64)>>,
    /// The next one that is not delayed, when it waits for delayed ones to go first.
    next: Option<WorkloadEvent>,
}

impl Shaped {
    /// The first `count` events of `side`.
    pub(super) fn new(
        workload: Workload,
        side: Side,
        seed: u64,
        count: u64,
        scenario: Scenario,
    ) -> Shaped {
        Shaped {
            arrivals: Arrivals::new(workload, side, seed, count),
            scenario,
            side_seed: Workload::side_seed(seed, side),
            now: i64::MIN,
            delayed: BinaryHeap::new(),
            next: None,
        }
    }

    /// Whether an event is one of a share of all, by a draw of its own.
    fn is_of(&self, share: f64, id: u64, draw: u64) -> bool {
        let drawn = rand(self.side_seed, id.wrapping_mul(4).wrapping_add(draw));
        (below(drawn, SHARE_ONE as u64) as f64) < share * SHARE_ONE
    }

    /// The next event that is on time; others go to the heap.
    fn fetch(&mut self) -> Option<WorkloadEvent> {
        let Scenario::Disorder { by_ms, share } = self.scenario else {
            return self.arrivals.next();
        };
        while let Some(event) = self.arrivals.next() {
            self.now = self.now.max(event.ts);
            if !self.is_of(share, event.id, DRAW_DELAYED) {
                return Some(event);
            }
            // Mixed once more, as those of a share have small numbers.
            let drawn = rand(self.side_seed ^ event.id, DRAW_DELAYED);
            let arrival = self.now.saturating_add_unsigned(below(drawn, by_ms + 1));
            self.delayed.push(Reverse((arrival, event.id, event.ts, event.key)));
        }
        None
    }
}

impl Iterator for Shaped {
    type Item = WorkloadEvent;

    fn next(&mut self) -> Option<WorkloadEvent> {
        if let Scenario::Skew { share } = self.scenario {
            let event = self.arrivals.next()?;
            let is_hot = self.is_of(share, event.id, DRAW_HOT);
            return Some(WorkloadEvent { key: if is_hot { HOT_KEY } else { event.key }, ..event });
        }
        if self.next.is_none() {
            self.next = self.fetch();
        }
        let is_due = |&Reverse((arrival, ..)): &Reverse<(i64, u64, i64, u64)>| {
            self.next.is_none_or(|_| arrival < self.now)
        };
        if self.delayed.peek().is_some_and(is_due) {
            let Reverse((_, id, ts, key)) = self.delayed.pop()?;
            return Some(WorkloadEvent { key, ts, id });
        }
        self.next.take()
    }
}

/// Makes `events_per_side` events of each side of a scenario.
pub fn scenario_events(
    workload: Workload,
    scenario: Scenario,
    seed: u64,
    events_per_side: u32,
) -> Events {
    let side_events = |side| {
        let mut events = SideEvents::default();
        let count = u64::from(events_per_side);
        for event in Shaped::new(workload, side, seed, count, scenario) {
            events.keys.push(event.key);
            events.ts.push(event.ts);
            // Cannot truncate: ids are under `events_per_side`.
            events.ids.push(event.id as u32);
        }
        events
    };
    Events { workload, seed, sides: Side::BOTH.map(side_events) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{DISORDER_MS, sort_merge};

    fn events(scenario: Scenario) -> Events {
        scenario_events(Workload::by_name("w2").unwrap(), scenario, 42, 20_000)
    }

    #[test]
    fn without_a_scenario_events_are_the_workload_s() {
        let (made, plain) =
            (events(Scenario::None), Events::new(Workload::by_name("w2").unwrap(), 42, 20_000));
        for side in Side::BOTH {
            assert_eq!(made.side(side).digest(), plain.side(side).digest());
        }
    }

    #[test]
    fn skew_gives_a_share_of_both_sides_one_key() {
        let events = events(Scenario::Skew { share: 0.1 });
        for side in Side::BOTH {
            let hot = events.side(side).keys.iter().filter(|&&key| key == HOT_KEY).count();
            assert!((1_700..2_300).contains(&hot), "{hot} of 20,000");
        }
        assert!(sort_merge(&events).pairs > 2 * sort_merge(&self::events(Scenario::None)).pairs);
    }

    #[test]
    fn disorder_moves_events_within_its_bound_and_keeps_them_all() {
        let by_ms = 3_000;
        let events = events(Scenario::Disorder { by_ms, share: 0.3 });
        let plain = self::events(Scenario::None);
        assert_eq!(sort_merge(&events), sort_merge(&plain));
        for side in Side::BOTH {
            let (mut seen, mut worst) = (i64::MIN, 0);
            for &ts in &events.side(side).ts {
                seen = seen.max(ts);
                worst = worst.max(seen - ts);
            }
            let bound = DISORDER_MS + by_ms as i64;
            assert!(worst > DISORDER_MS && worst <= bound, "{worst} of {bound}");
            assert_ne!(events.side(side).digest(), plain.side(side).digest());
        }
    }
}
