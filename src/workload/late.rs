//! Which events of a side come late: exactly the share that was asked for, at any size.

use crate::event::Side;
use crate::workload::Workload;
use crate::workload::random::{below, rand};

/// Of the four random numbers of event `i`, the one that draws whether it is late.
const DRAW_LATE: u64 = 2;

/// How many events of a side are to be late, and how many can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateEvents {
    /// The share that was asked for, as the nearest whole number of events.
    pub wanted: u64,
    /// Events that others can come before which move the watermark past them: all but those of
    /// about the last [`disorder_ms`](Workload::disorder_ms).
    pub possible: u64,
}

impl LateEvents {
    /// Of the first `event_count` events of `side`. Costs a few ns for each event in the right
    /// side's delay.
    pub fn of(workload: &Workload, side: Side, seed: u64, event_count: u64) -> LateEvents {
        let ppm = u128::from(workload.late_ppm);
        // A share of `event_count`, so it fits.
        let wanted = ((u128::from(event_count) * ppm + 500_000) / 1_000_000) as u64;
        let possible = if wanted == 0 { 0 } else { possible(workload, side, seed, event_count) };
        LateEvents { wanted, possible }
    }
}

fn possible(workload: &Workload, side: Side, seed: u64, event_count: u64) -> u64 {
    let side_seed = Workload::side_seed(seed, side);
    let bound = offset_bound_ms(workload, event_count);
    // Turns ascend, and delays come on top of them.
    let first_from = |turn_ms: u64| {
        let (mut from, mut to) = (0, event_count);
        while from < to {
            let middle = from + (to - from) / 2;
            if workload.turn_ms(middle) < turn_ms { from = middle + 1 } else { to = middle }
        }
        from
    };
    let sure = first_from(bound.saturating_sub(workload.delay_span_ms(side) - 1));
    let unsure = sure..first_from(bound);
    let rest = unsure.filter(|&i| workload.offset_ms(side, side_seed, i) < bound);
    sure + rest.count() as u64
}

/// Events whose time is less than so many milliseconds after the start can be late: the last event
/// of a side, which is on time, moves the watermark past them.
fn offset_bound_ms(workload: &Workload, event_count: u64) -> u64 {
    let last = event_count.saturating_sub(1);
    workload.turn_ms(last).saturating_sub(workload.disorder_ms.saturating_add(1))
}

/// Draws which events are late while they are made, in the order of their numbers: each of those
/// that can be with the same probability.
pub(super) struct LateDraw {
    side_seed: u64,
    bound_ms: u64,
    /// Of the events that are still to be made.
    left: LateEvents,
}

impl LateDraw {
    /// For the first `event_count` events of `side`; `None` if none is to be late.
    pub(super) fn new(
        workload: &Workload,
        side: Side,
        seed: u64,
        event_count: u64,
    ) -> Option<LateDraw> {
        let left = LateEvents::of(workload, side, seed, event_count);
        let bound_ms = offset_bound_ms(workload, event_count);
        let side_seed = Workload::side_seed(seed, side);
        (left.wanted > 0).then_some(LateDraw { side_seed, bound_ms, left })
    }

    /// Whether event `i`, whose time is `offset_ms` after the start, is late. To be asked of each
    /// event once, in the order of their numbers.
    pub(super) fn is_late(&mut self, i: u64, offset_ms: u64) -> bool {
        if offset_ms >= self.bound_ms || self.left.possible == 0 {
            return false;
        }
        // So many are still wanted of so many that are still to come.
        let drawn = rand(self.side_seed, i.wrapping_mul(4).wrapping_add(DRAW_LATE));
        let is_late = below(drawn, self.left.possible) < self.left.wanted;
        self.left.possible -= 1;
        self.left.wanted -= u64::from(is_late);
        is_late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_late_is_counted_as_it_is_drawn() {
        for (event_count, disorder_ms, right_delay_ms) in
            [(0, 5, 1), (1, 0, 1), (100, 5, 1), (5_000, 700, 3_001), (5_000, 700, 60_001)]
        {
            for side in Side::BOTH {
                let workload =
                    Workload { late_ppm: 10_000, disorder_ms, right_delay_ms, ..Workload::FREE };
                let found = LateEvents::of(&workload, side, 3, event_count);
                let seed = Workload::side_seed(3, side);
                let last_ms = event_count.saturating_sub(1);
                let can = |&i: &u64| workload.offset_ms(side, seed, i) + disorder_ms + 1 < last_ms;
                let all = (0..event_count).filter(can).count() as u64;
                assert_eq!(found, LateEvents { wanted: event_count / 100, possible: all });
            }
        }
    }

    #[test]
    fn every_event_that_can_be_late_is_as_likely() {
        let workload = Workload { late_ppm: 300_000, disorder_ms: 10, ..Workload::FREE };
        let mut late_by_tenth = [0u32; 10];
        for seed in 0..400 {
            let mut draw = LateDraw::new(&workload, Side::Left, seed, 111).unwrap();
            let late = (0..111).filter(|&i| draw.is_late(i, i)).collect::<Vec<_>>();
            assert_eq!(late.len(), 33, "30 % of 111, whatever the seed");
            late.iter().for_each(|&i| late_by_tenth[i as usize / 10] += 1);
        }
        // 99 events can be, so a tenth of 10 has 400 * 33 * 10 / 99; the last one lacks an event.
        let expected = late_by_tenth.map(|count| (1_210..1_455).contains(&count));
        assert_eq!(expected[..9], [true; 9], "{late_by_tenth:?}");
        assert!((1_080..1_310).contains(&late_by_tenth[9]), "{late_by_tenth:?}");
    }
}
