//! What a load must find: its own events, joined once more offline.

use crate::event::Side;
use crate::workload::load::{LoadPlan, Supply, scenario_events};
use crate::workload::{Outcome, sort_merge};

/// The pairs of all events of a plan, by [`sort_merge`]. A run that has pushed them all, none of
/// them late, has found the same, or its join is wrong.
///
/// Cost: about 200 ns an event and 2 ns a pair, and 44 bytes of memory an event, of which a supply
/// in memory has 20.
pub fn joined_offline(plan: &LoadPlan, supply: Supply<'_>) -> Outcome {
    let made;
    let events = match supply {
        Supply::Memory(events) => events,
        Supply::Made { seed } => {
            // A run numbers events of both sides by turns, so no side has more of them.
            let count = u32::try_from(plan.events_per_side()).unwrap_or(u32::MAX);
            made = scenario_events(plan.workload, plan.scenario, seed, count);
            &made
        }
    };
    let (count, left) = (plan.event_count(), plan.events_per_side());
    let counts = Side::BOTH.map(|side| match side {
        Side::Left => left as usize,
        Side::Right => (count - left) as usize,
    });
    sort_merge(&events.first(counts))
}
