//! Rows that come out when they are freed: in order of time, at the first watermark that passes.
//!
//! A calendar queue (Brown, 1988): rows are appended to slots of time much narrower than a bucket.
//! When its turn comes, a slot is sifted: rows that were matched meanwhile, often nearly all, drop
//! out, and only the rest is sorted.

use std::collections::VecDeque;

use super::arena::Handle;
use crate::event::prefetch_for_write;

/// Slots per bucket width, as a power of two: few enough rows that sifting one slot is short.
const SLOTS_LOG2: u32 = 6;
const RING_LEN: usize = 256;
const SPARES_MAX: usize = 64;
/// How many rows ahead the memory of rows is asked for: about what a core has under way at once.
const AHEAD: usize = 16;
/// How many rows ahead room for rows that come is asked for.
const ROWS_ASKED_FOR: usize = 16;

/// A row that waits for its end. Its time stands in its run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) key: u64,
    /// Its place in the order of arrival, over both sides.
    pub(crate) arrival: u64,
    pub(crate) run: Handle,
    pub(crate) row: u32,
}

/// A row whose end is near.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) ts: i64,
    pub(crate) waiting: Waiting,
}

impl Due {
    /// Its place among those of its side.
    pub(crate) fn order(&self) -> (i64, u64) {
        (self.ts, self.waiting.arrival)
    }
}

struct Slot {
    number: i64,
    rows: Vec<Waiting>,
}

/// The rows of one side that wait for their end.
pub(crate) struct Expiry {
    shift: u32,
    slots: VecDeque<Slot>,
    /// Where slots are, to be verified: places in `slots`, counted from the first there ever was.
    places: Box<[u32; RING_LEN]>,
    /// Slots that went from the front, modulo 2^32.
    gone: u32,
    spares: Vec<Vec<Waiting>>,
    capacity: usize,
    /// What sifting has left, in order; those before `next` are out.
    due: Vec<Due>,
    next: usize,
    /// All rows in slots up to this one are in `due`.
    sifted: i64,
}

impl Expiry {
    /// A queue beside buckets of width `1 << bucket_shift`.
    pub(crate) fn new(bucket_shift: u32) -> Expiry {
        Expiry {
            shift: bucket_shift.saturating_sub(SLOTS_LOG2),
            slots: VecDeque::new(),
            places: Box::new([0; RING_LEN]),
            gone: 0,
            spares: Vec::new(),
            capacity: 0,
            due: Vec::new(),
            next: 0,
            sifted: i64::MIN,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.capacity * size_of::<Waiting>() + self.due.capacity() * size_of::<Due>()
    }

    /// A time that no waiting row is older than, to the slot; `i64::MAX` when none waits.
    pub(crate) fn oldest(&self) -> i64 {
        match self.due.get(self.next) {
            Some(due) => due.ts,
            None => self.slots.front().map_or(i64::MAX, |slot| slot.number << self.shift),
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, ts: i64, waiting: Waiting) {
        let number = ts >> self.shift;
        if number <= self.sifted {
            self.push_due(Due { ts, waiting });
            return;
        }
        let place = self.places[number as usize % RING_LEN].wrapping_sub(self.gone) as usize;
        let place = match self.slots.get(place) {
            Some(slot) if slot.number == number => place,
            _ => self.find_or_create(number),
        };
        let rows = &mut self.slots[place].rows;
        let before = rows.capacity();
        rows.push(waiting);
        // A slot's memory was last touched when another one was sifted, long ago.
        prefetch_for_write(rows.as_ptr().wrapping_add(rows.len() + ROWS_ASKED_FOR));
        self.capacity += rows.capacity() - before;
    }

    #[cold]
    fn push_due(&mut self, due: Due) {
        let rest = &self.due[self.next..];
        let at = rest.partition_point(|row| row.order() <= due.order());
        self.due.insert(self.next + at, due);
    }

    #[cold]
    fn find_or_create(&mut self, number: i64) -> usize {
        let place = match self.slots.binary_search_by_key(&number, |slot| slot.number) {
            Ok(place) => place,
            Err(place) => {
                let rows = self.spares.pop().unwrap_or_default();
                self.slots.insert(place, Slot { number, rows });
                place
            }
        };
        self.places[number as usize % RING_LEN] = self.gone.wrapping_add(place as u32);
        place
    }

    /// The next row with a time under `floor`, in order of time and arrival; `None` as floor means
    /// all rows. Of a row that may come out soon, `ask` asks for the memory, and `open` tells the
    /// time unless it was matched.
    #[inline]
    pub(crate) fn peek(
        &mut self,
        floor: Option<i64>,
        ask: impl Fn(&Waiting),
        open: impl Fn(&Waiting) -> Option<i64>,
    ) -> Option<Due> {
        loop {
            match self.due.get(self.next) {
                Some(due) if floor.is_some_and(|floor| due.ts >= floor) => return None,
                Some(due) => return Some(*due),
                None => {}
            }
            let slot = self.slots.front()?;
            if floor.is_some_and(|floor| slot.number << self.shift >= floor) {
                return None;
            }
            self.sift(&ask, &open);
        }
    }

    /// Takes the row that [`peek`](Self::peek) returned out; returns one that will follow soon.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Waiting> {
        self.next += 1;
        self.due.get(self.next + AHEAD / 2).map(|due| due.waiting)
    }

    /// Takes those out that `is_gone` says, of the rows with times up to `last`.
    pub(crate) fn remove(&mut self, last: i64, is_gone: impl Fn(&Waiting) -> bool) {
        // Those before `next` are out.
        self.due.drain(..std::mem::take(&mut self.next));
        self.due.retain(|due| !is_gone(&due.waiting));
        let Expiry { slots, shift, .. } = self;
        for slot in slots.iter_mut().take_while(|slot| slot.number << *shift <= last) {
            slot.rows.retain(|row| !is_gone(row));
        }
        self.drop_empty();
    }

    /// The same; returns those that `open` tells the time of, in order.
    pub(crate) fn extract(
        &mut self,
        last: i64,
        is_gone: impl Fn(&Waiting) -> bool,
        open: impl Fn(&Waiting) -> Option<i64>,
    ) -> Vec<Due> {
        self.due.drain(..std::mem::take(&mut self.next));
        let due = self.due.extract_if(.., |due| is_gone(&due.waiting));
        let mut taken: Vec<Due> = due.filter(|due| open(&due.waiting).is_some()).collect();
        let Expiry { slots, shift, .. } = self;
        for slot in slots.iter_mut().take_while(|slot| slot.number << *shift <= last) {
            let gone = slot.rows.extract_if(.., |row| is_gone(row));
            taken.extend(gone.filter_map(|waiting| Some(Due { ts: open(&waiting)?, waiting })));
        }
        self.drop_empty();
        taken.sort_unstable_by_key(Due::order);
        taken
    }

    /// Drops the first slots as long as they are empty: a bucket is kept for them otherwise.
    pub(crate) fn drop_empty(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.rows.is_empty()) {
            let slot = self.slots.pop_front();
            self.gone = self.gone.wrapping_add(1);
            self.capacity -= slot.map_or(0, |slot| slot.rows.capacity());
        }
    }

    /// Takes out of what is due, or of the first slot from number `from` on that has any, the rows
    /// which arrived before `arrival`, in order; returns the number to go on from as well. At first
    /// `from` is `i64::MIN`. `ts_of` tells a row's time.
    pub(crate) fn take_arrived_before(
        &mut self,
        arrival: u64,
        from: i64,
        ts_of: impl Fn(&Waiting) -> i64,
    ) -> Option<(i64, Vec<Due>)> {
        if from == i64::MIN {
            // Those before `next` are out.
            self.due.drain(..std::mem::take(&mut self.next));
            let taken = self.due.extract_if(.., |due| due.waiting.arrival < arrival);
            let taken: Vec<Due> = taken.collect();
            if !taken.is_empty() {
                return Some((i64::MIN + 1, taken));
            }
        }
        let first = self.slots.partition_point(|slot| slot.number < from);
        for slot in self.slots.iter_mut().skip(first) {
            let taken = slot.rows.extract_if(.., |row| row.arrival < arrival);
            let mut taken: Vec<Due> =
                taken.map(|waiting| Due { ts: ts_of(&waiting), waiting }).collect();
            if !taken.is_empty() {
                taken.sort_unstable_by_key(Due::order);
                return Some((slot.number.saturating_add(1), taken));
            }
        }
        None
    }

    /// Frees memory that waits to be used again.
    pub(crate) fn trim(&mut self) {
        let spare: usize = self.spares.drain(..).map(|rows| rows.capacity()).sum();
        self.capacity -= spare;
        for slot in &mut self.slots {
            let before = slot.rows.capacity();
            if slot.rows.len() * 4 < before {
                slot.rows.shrink_to_fit();
                self.capacity -= before - slot.rows.capacity();
            }
        }
        self.due.shrink_to(self.due.len() * 2);
    }

    /// Makes the rows of the first slot that are still open due.
    fn sift(&mut self, ask: &impl Fn(&Waiting), open: &impl Fn(&Waiting) -> Option<i64>) {
        let Some(mut slot) = self.slots.pop_front() else { return };
        self.gone = self.gone.wrapping_add(1);
        self.sifted = slot.number;
        self.due.clear();
        self.next = 0;
        slot.rows.iter().take(AHEAD).for_each(ask);
        for (at, waiting) in slot.rows.iter().enumerate() {
            if let Some(ahead) = slot.rows.get(at + AHEAD) {
                ask(ahead);
            }
            if let Some(ts) = open(waiting) {
                self.due.push(Due { ts, waiting: *waiting });
            }
        }
        self.due.sort_unstable_by_key(Due::order);
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
    use std::cell::RefCell;

    proptest! {
        #[test]
        fn open_rows_come_out_by_time_and_arrival(
            steps in prop::collection::vec(
                (-500i64..500, prop::option::of(-500i64..600), prop::option::of(0usize..200)),
                1..200,
            ),
            shift in 0u32..14,
        ) {
            let mut queue = Expiry::new(shift);
            // Time and whether it is open, by number.
            let rows = RefCell::new(Vec::<(i64, bool)>::new());
            let mut model: Vec<(i64, u32)> = Vec::new();
            for (row, (ts, floor, matched)) in steps.into_iter().enumerate() {
                let row = row as u32;
                rows.borrow_mut().push((ts, true));
                queue.push(ts, Waiting { key: 0, arrival: u64::from(row), run: 0, row });
                model.push((ts, row));
                if let Some(row) = rows.borrow_mut().get_mut(matched.unwrap_or(usize::MAX)) {
                    row.1 = false;
                }
                let Some(floor) = floor else { continue };
                model.sort();
                let open = |waiting: &Waiting| {
                    let (ts, is_open) = rows.borrow()[waiting.row as usize];
                    is_open.then_some(ts)
                };
                while let Some(popped) = queue.peek(Some(floor), |_| {}, open) {
                    queue.take();
                    // Rows matched once they were due are the caller's to leave out.
                    if open(&popped.waiting).is_none() {
                        continue;
                    }
                    model.retain(|&(_, row)| rows.borrow()[row as usize].1);
                    prop_assert_eq!((popped.ts, popped.waiting.row), model.remove(0));
                }
                model.retain(|&(_, row)| rows.borrow()[row as usize].1);
                prop_assert!(model.first().is_none_or(|&(ts, _)| ts >= floor));
                prop_assert!(model.first().is_none_or(|&(ts, _)| queue.oldest() <= ts));
            }
        }
    }
}
