//! The join that a good engineer writes first: a hash map of queues a side, event by event. A peer
//! to compare with, and a check: it shares no code with the engine's state.

use std::collections::VecDeque;
use std::ops::Range;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::error::JoinError;
use crate::event::Side;
use crate::time::Interval;
use crate::workload::{Events, Outcome, StateSize, Stepped, Watermarks, Workload};

/// One side's rows: by key, each key's in the order of arrival.
#[derive(Default)]
struct NaiveSide {
    rows: HashMap<u64, VecDeque<(i64, u64)>>,
    /// Time and key of every row, in the order of arrival: what to free, and when.
    order: VecDeque<(i64, u64)>,
}

/// The naive inner join of a workload.
pub struct NaiveJoin {
    interval: Interval,
    /// By [`Side::index`].
    sides: [NaiveSide; 2],
    outcome: Outcome,
}

impl NaiveJoin {
    /// An empty join. An interval that ends before it begins matches nothing.
    pub fn new(workload: &Workload) -> NaiveJoin {
        let (lo, hi) = workload.between_ticks();
        let interval = Interval::closed(lo, hi);
        NaiveJoin {
            interval: interval.expect("a workload's interval is not empty"),
            sides: Default::default(),
            outcome: Outcome::default(),
        }
    }

    /// Joins an event with those that came before, and keeps it.
    pub(super) fn event(&mut self, side: Side, key: u64, ts: i64, id: u64) {
        let (first, last) = self.interval.seen_from(side).range(ts);
        if let Some(partners) = self.sides[side.other().index()].rows.get(&key) {
            for &(partner_ts, partner_id) in partners {
                if first <= partner_ts && partner_ts <= last {
                    match side {
                        Side::Left => self.outcome.add(id, partner_id),
                        Side::Right => self.outcome.add(partner_id, id),
                    }
                }
            }
        }
        let own = &mut self.sides[side.index()];
        own.rows.entry(key).or_default().push_back((ts, id));
        own.order.push_back((ts, key));
    }

    /// Frees rows in the order of arrival until one is still needed. A row that arrived before its
    /// time keeps those behind it a little longer, which costs memory and changes no result.
    pub(super) fn free(&mut self, watermark: i64) {
        for side in Side::BOTH {
            let reach = self.interval.seen_from(side).hi();
            let own = &mut self.sides[side.index()];
            while let Some(&(ts, key)) = own.order.front()
                && ts.saturating_add(reach) < watermark
            {
                own.order.pop_front();
                if let Entry::Occupied(mut rows) = own.rows.entry(key) {
                    rows.get_mut().pop_front();
                    if rows.get().is_empty() {
                        rows.remove();
                    }
                }
            }
        }
    }
}

impl Stepped for NaiveJoin {
    fn step(
        &mut self,
        events: &Events,
        side: Side,
        range: Range<usize>,
        watermarks: &Watermarks,
    ) -> Result<(), JoinError> {
        let columns = events.side(side);
        for i in range {
            self.event(side, columns.keys[i], columns.ts[i], u64::from(columns.ids[i]));
        }
        self.free(watermarks.merged());
        Ok(())
    }

    fn finish(&mut self) -> Result<(), JoinError> {
        self.sides = Default::default();
        Ok(())
    }

    fn outcome(&self) -> Outcome {
        self.outcome
    }

    fn state(&self) -> StateSize {
        let mut size = StateSize::default();
        for side in &self.sides {
            size.rows += side.order.len() as u64;
            size.index_bytes += side.rows.allocation_size() as u64;
            // The queues' own blocks are not counted: to know them, all would have to be visited.
            size.bytes += (side.order.capacity() * size_of::<(i64, u64)>()) as u64;
        }
        size.bytes += size.index_bytes;
        size
    }
}
