//! Rows that come out when they are freed: in order of time, at the first watermark that passes.
//!
//! A calendar queue (Brown, 1988): rows are appended to slots of time much narrower than a bucket,
//! and a slot is sorted once, when its turn comes.

use std::collections::VecDeque;

use super::arena::Handle;

/// Slots per bucket width, as a power of two: few enough rows that sorting one slot is short.
const SLOTS_LOG2: u32 = 6;
const RING_LEN: usize = 256;
const SPARES_MAX: usize = 64;

/// A row that waits for its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) ts: i64,
    pub(crate) key: u64,
    /// Its place in the order of arrival, over both sides.
    pub(crate) arrival: u64,
    pub(crate) run: Handle,
    pub(crate) row: u32,
}

impl Waiting {
    fn order(&self) -> (i64, u64) {
        (self.ts, self.arrival)
    }
}

struct Slot {
    number: i64,
    rows: Vec<Waiting>,
    /// Rows before this one are out; the rest is sorted from the first look on.
    next: usize,
    sorted: bool,
}

/// The rows of one side that wait for their end.
pub(crate) struct Expiry {
    shift: u32,
    slots: VecDeque<Slot>,
    places: Box<[u32; RING_LEN]>,
    spares: Vec<Vec<Waiting>>,
    capacity: usize,
}

impl Expiry {
    /// A queue beside buckets of width `1 << bucket_shift`.
    pub(crate) fn new(bucket_shift: u32) -> Expiry {
        Expiry {
            shift: bucket_shift.saturating_sub(SLOTS_LOG2),
            slots: VecDeque::new(),
            places: Box::new([0; RING_LEN]),
            spares: Vec::new(),
            capacity: 0,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.capacity * size_of::<Waiting>()
    }

    /// A time that no waiting row is older than, to the slot; `i64::MAX` when none waits.
    pub(crate) fn oldest(&self) -> i64 {
        self.slots.front().map_or(i64::MAX, |slot| slot.number << self.shift)
    }

    #[inline]
    pub(crate) fn push(&mut self, waiting: Waiting) {
        let number = waiting.ts >> self.shift;
        let place = self.places[number as usize % RING_LEN] as usize;
        let place = match self.slots.get(place) {
            Some(slot) if slot.number == number => place,
            _ => self.find_or_create(number),
        };
        let slot = &mut self.slots[place];
        let before = slot.rows.capacity();
        if slot.sorted {
            let rest = &slot.rows[slot.next..];
            let at = rest.partition_point(|row| row.order() <= waiting.order());
            slot.rows.insert(slot.next + at, waiting);
        } else {
            slot.rows.push(waiting);
        }
        self.capacity += slot.rows.capacity() - before;
    }

    #[cold]
    fn find_or_create(&mut self, number: i64) -> usize {
        let place = match self.slots.binary_search_by_key(&number, |slot| slot.number) {
            Ok(place) => place,
            Err(place) => {
                let rows = self.spares.pop().unwrap_or_default();
                self.slots.insert(place, Slot { number, rows, next: 0, sorted: false });
                place
            }
        };
        self.places[number as usize % RING_LEN] = place as u32;
        place
    }

    /// The next row with a time under `floor`, in order of time and arrival; `None` as floor means
    /// all rows.
    #[inline]
    pub(crate) fn peek(&mut self, floor: Option<i64>) -> Option<Waiting> {
        loop {
            let slot = self.slots.front_mut()?;
            if !slot.sorted {
                if floor.is_some_and(|floor| slot.number << self.shift >= floor) {
                    return None;
                }
                slot.rows.sort_unstable_by_key(Waiting::order);
                slot.sorted = true;
            }
            match slot.rows.get(slot.next) {
                Some(row) if floor.is_some_and(|floor| row.ts >= floor) => return None,
                Some(row) => return Some(*row),
                None => self.drop_first(),
            }
        }
    }

    /// Takes the row that [`peek`](Self::peek) returned out; returns one that will follow soon, for
    /// a prefetch.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Waiting> {
        const AHEAD: usize = 8;
        let slot = self.slots.front_mut()?;
        slot.next += 1;
        slot.rows.get(slot.next + AHEAD).copied()
    }

    fn drop_first(&mut self) {
        let Some(mut slot) = self.slots.pop_front() else { return };
        if self.spares.len() < SPARES_MAX {
            slot.rows.clear();
            self.spares.push(slot.rows);
        } else {
            self.capacity -= slot.rows.capacity();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_come_out_by_time_and_arrival(
            steps in prop::collection::vec((-500i64..500, prop::option::of(-500i64..600)), 1..200),
            shift in 0u32..14,
        ) {
            let mut queue = Expiry::new(shift);
            let mut model: Vec<(i64, u32)> = Vec::new();
            for (arrival, (ts, floor)) in steps.into_iter().enumerate() {
                let row = arrival as u32;
                queue.push(Waiting { ts, key: 0, arrival: arrival as u64, run: 0, row });
                model.push((ts, row));
                let Some(floor) = floor else { continue };
                model.sort();
                while let Some(popped) = queue.peek(Some(floor)) {
                    queue.take();
                    prop_assert_eq!((popped.ts, popped.row), model.remove(0));
                }
                prop_assert!(model.first().is_none_or(|&(ts, _)| ts >= floor));
                prop_assert!(model.first().is_none_or(|&(ts, _)| queue.oldest() <= ts));
            }
        }
    }
}
