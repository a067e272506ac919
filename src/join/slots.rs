//! Rows that wait for what becomes of them, each in a numbered slot.
//!
//! State holds the number of a row's slot in place of the row, so that an event which finds the row
//! finds the slot. A number says which row of its slot it means: those of rows that are out lead
//! nowhere. Where a condition is asked of rows that are out as well, they stand in state behind
//! their numbers. The bytes of rows that wait go into files where there is no room for them; the
//! slots stay.

use std::path::Path;

use crate::error::JoinError;
use crate::event::{Event, EventBatch, Key, KeyHasher, KeyKind, Side, split_keyed_row};
use crate::join::interval::event_of;
use crate::join::kept::{Kept, Store};
use crate::spill::SpillError;
use crate::state::Class;
use crate::time::{Timestamp, WATERMARK_START};

/// Added to what no watermark makes due: such rows come out at the end of input, after all others.
pub(super) const NEVER: i128 = 1 << 100;

/// Slots grow by one in so many: a half more at once would not fit a bound that files keep to.
const GROWTH: usize = 4;

/// The slots of rows that wait, and what `T` holds beside each.
pub(super) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    arrivals: u64,
    store: Store,
    /// What slots begin with: the numbers of those that were given up lead nowhere.
    generation: u32,
    /// State holds the rows behind their numbers.
    with_rows: bool,
    /// The batch at work with slot numbers in place of its rows, while nobody has it.
    marked: EventBatch,
}

/// A row that waits.
#[derive(Default)]
pub(super) struct Slot<T> {
    generation: u32,
    is_taken: bool,
    pub(super) key: u64,
    pub(super) ts: i64,
    /// Its place among the rows that ever waited.
    pub(super) arrival: u64,
    pub(super) is_late: bool,
    /// As the batch stored it, its key included where keys are bytes.
    stored: Kept,
    pub(super) more: T,
}

/// What a slot holds beside its row.
pub(super) trait Beside: Default {
    /// Another row, if there is one.
    fn row(&mut self) -> Option<&mut Kept>;
}

impl Beside for () {
    fn row(&mut self) -> Option<&mut Kept> {
        None
    }
}

/// The number of a row: a slot at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark {
    slot: u32,
    generation: u32,
}

impl<T: Beside> Slots<T> {
    pub(super) fn new(with_rows: bool) -> Slots<T> {
        Slots {
            slots: Vec::new(),
            free: Vec::new(),
            arrivals: 0,
            store: Store::default(),
            generation: 0,
            with_rows,
            marked: EventBatch::default(),
        }
    }

    /// Bytes as allocated.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<T>>()
            + self.free.capacity() * size_of::<u32>()
            + self.store.bytes()
    }

    /// Those of [`bytes`](Self::bytes) that are rows in memory.
    pub(super) fn row_bytes(&self) -> usize {
        self.store.row_bytes()
    }

    /// Puts all rows into files in `folder`, those with early times first, as they come out.
    pub(super) fn spill(&mut self, folder: &Path) -> Result<(), SpillError> {
        let is_wanted = |slot: &mut Slot<T>| {
            slot.is_taken
                && (slot.stored.is_in_memory()
                    || slot.more.row().is_some_and(|row| row.is_in_memory()))
        };
        let order = self.in_order(is_wanted);
        let mut writer = self.store.open(folder)?;
        for number in order {
            let slot = &mut self.slots[number as usize];
            self.store.put(&mut slot.stored, &mut writer)?;
            if let Some(row) = slot.more.row() {
                self.store.put(row, &mut writer)?;
            }
        }
        self.store.close(writer)?;
        while let Some(files) = self.store.to_merge() {
            let order = self.in_order(|slot| slot.is_taken);
            let mut writer = self.store.open(folder)?;
            for number in order {
                let slot = &mut self.slots[number as usize];
                self.store.put_anew(&mut slot.stored, &files, &mut writer)?;
                if let Some(row) = slot.more.row() {
                    self.store.put_anew(row, &files, &mut writer)?;
                }
            }
            self.store.close(writer)?;
        }
        self.shrink();
        Ok(())
    }

    /// Has memory keep no more of rows in files than it must.
    pub(super) fn forget(&mut self) {
        self.store.forget();
    }

    /// The numbers of some slots, in the order of their rows' times.
    fn in_order(&mut self, is_wanted: impl Fn(&mut Slot<T>) -> bool) -> Vec<u32> {
        let slots = self.slots.iter_mut().zip(0..);
        let mut order: Vec<u32> =
            slots.filter_map(|(slot, number)| is_wanted(slot).then_some(number)).collect();
        let slots = &self.slots;
        order.sort_unstable_by_key(|&number| {
            let slot = &slots[number as usize];
            (slot.ts, slot.arrival)
        });
        order
    }

    /// Gives the memory of free slots back, as far as none in use comes behind them.
    fn shrink(&mut self) {
        for slot in self.slots.iter_mut().filter(|slot| !slot.is_taken) {
            self.store.free(&mut slot.stored);
            slot.more.row().into_iter().for_each(|row| self.store.free(row));
        }
        while let Some(slot) = self.slots.pop_if(|slot| !slot.is_taken) {
            self.generation = self.generation.max(slot.generation);
        }
        let count = self.slots.len();
        self.free.retain(|&number| (number as usize) < count);
        self.free.shrink_to_fit();
        self.slots.shrink_to(count + count / GROWTH);
    }

    /// Gives each event that is not left out a slot; `marks` gets their numbers. Returns the batch
    /// that state is to keep, to be given [`back`](Self::give_back).
    ///
    /// # Errors
    /// [`JoinError::Refused`] when the batch's keys are close to 4 GiB.
    pub(super) fn mark(
        &mut self,
        batch: &EventBatch,
        classes: &[Class],
        keys: KeyKind,
        marks: &mut Vec<Option<Mark>>,
    ) -> Result<EventBatch, JoinError> {
        let mut marked = std::mem::take(&mut self.marked);
        marked.reset(batch.side(), batch.source, batch.kind);
        marks.clear();
        for (index, (&key, &ts)) in batch.keys().iter().zip(batch.timestamps()).enumerate() {
            let stored = batch.stored_row(index);
            let mark = match classes.get(index) {
                Some(Class::Skip) => None,
                class => Some(self.take(key, ts, class == Some(&Class::Late), stored)?),
            };
            marks.push(mark);
            let key_bytes = match keys {
                KeyKind::Int => Key::Int(0),
                KeyKind::Bytes => Key::Bytes(split_keyed_row(stored).0),
            };
            let row = mark.map_or([0; 8], Mark::bytes);
            let ts = Timestamp::new(ts).unwrap_or(Timestamp::MIN);
            marked.push_with_value(key, key_bytes, ts, &row).map_err(JoinError::Refused)?;
            if self.with_rows {
                let row = row_behind(keys, stored);
                marked.extend_last(row).map_err(JoinError::Refused)?;
            }
        }
        Ok(marked)
    }

    /// Takes the batch of [`mark`](Self::mark) back, for its memory.
    pub(super) fn give_back(&mut self, marked: EventBatch) {
        self.marked = marked;
    }

    fn take(&mut self, key: u64, ts: i64, is_late: bool, stored: &[u8]) -> Result<Mark, JoinError> {
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                let Ok(number) = u32::try_from(self.slots.len()) else {
                    let bytes = self.bytes() as u64;
                    return Err(JoinError::Exhausted { bytes });
                };
                if self.slots.len() == self.slots.capacity() {
                    self.slots.reserve_exact(self.slots.len() / GROWTH + 64);
                }
                let generation = self.generation;
                self.slots.push(Slot { generation, ..Slot::default() });
                number
            }
        };
        self.arrivals += 1;
        let slot = &mut self.slots[number as usize];
        slot.is_taken = true;
        (slot.key, slot.ts, slot.arrival, slot.is_late) = (key, ts, self.arrivals, is_late);
        self.store.replace(&mut slot.stored, stored);
        Ok(Mark { slot: number, generation: slot.generation })
    }

    /// The slot of a row, unless the row is out.
    pub(super) fn get(&self, mark: Mark) -> Option<&Slot<T>> {
        self.slots.get(mark.slot as usize).filter(|slot| slot.holds(mark))
    }

    /// The same, and what has to do with the bytes of rows.
    pub(super) fn get_mut(&mut self, mark: Mark) -> Option<(&mut Slot<T>, &mut Store)> {
        let slot = self.slots.get_mut(mark.slot as usize).filter(|slot| slot.holds(mark))?;
        Some((slot, &mut self.store))
    }

    /// Whether state holds the rows behind their numbers.
    pub(super) fn has_rows(&self) -> bool {
        self.with_rows
    }

    /// Two rows as a sink sees them, unless one of them is out.
    pub(super) fn read_two<'a>(
        &'a mut self,
        (one, two): (Mark, Mark),
        hasher: &KeyHasher,
        (one_room, two_room): (&'a mut Vec<u8>, &'a mut Vec<u8>),
    ) -> Result<Option<(Event<'a>, Event<'a>)>, SpillError> {
        let Slots { slots, store, .. } = self;
        let get = |mark: Mark| slots.get(mark.slot as usize).filter(|slot| slot.holds(mark));
        let (Some(one), Some(two)) = (get(one), get(two)) else { return Ok(None) };
        let one = one.event(hasher, store, one_room)?;
        Ok(Some((one, two.event(hasher, store, two_room)?)))
    }

    /// The row is out; its slot is for another.
    pub(super) fn release(&mut self, mark: Mark) {
        let Some(slot) = self.slots.get_mut(mark.slot as usize).filter(|slot| slot.holds(mark))
        else {
            return;
        };
        slot.is_taken = false;
        slot.generation = slot.generation.wrapping_add(1);
        self.store.let_go(&mut slot.stored);
        self.free.push(mark.slot);
    }
}

impl<T> Slot<T> {
    fn holds(&self, mark: Mark) -> bool {
        self.is_taken && self.generation == mark.generation
    }

    /// The row as a sink sees it; `room` is for one out of a file.
    pub(super) fn event<'a>(
        &'a self,
        hasher: &KeyHasher,
        store: &mut Store,
        room: &'a mut Vec<u8>,
    ) -> Result<Event<'a>, SpillError> {
        Ok(event_of(hasher, self.key, self.ts, store.read(&self.stored, room)?))
    }
}

impl Mark {
    fn bytes(self) -> [u8; 8] {
        (u64::from(self.slot) | u64::from(self.generation) << 32).to_le_bytes()
    }

    /// The mark of a partner, if its key is the same one, and its row where state holds rows.
    pub(super) fn of<'a>(own: Key<'_>, stored: &'a [u8]) -> Option<(Mark, &'a [u8])> {
        let (mark, row) = row_of(own, stored)?.split_first_chunk()?;
        let value = u64::from_le_bytes(*mark);
        Some((Mark { slot: value as u32, generation: (value >> 32) as u32 }, row))
    }
}

/// What a batch stores behind the key.
fn row_behind(keys: KeyKind, stored: &[u8]) -> &[u8] {
    match keys {
        KeyKind::Int => stored,
        KeyKind::Bytes => split_keyed_row(stored).1,
    }
}

/// What is stored behind the key, if that is the same one.
pub(super) fn row_of<'a>(own: Key<'_>, stored: &'a [u8]) -> Option<&'a [u8]> {
    let Key::Bytes(own) = own else { return Some(stored) };
    let (key, row) = split_keyed_row(stored);
    (key == own).then_some(row)
}

/// Whether a watermark has passed what it has to; the start of time passes nothing.
pub(super) fn is_past(clock: i64, due: i128) -> bool {
    clock > WATERMARK_START && i128::from(clock) > due
}

/// The last watermark at which a row may still get a partner on time.
pub(super) fn end_of(spec: &crate::join::JoinSpec, side: Side, ts: i64) -> i128 {
    let interval = spec.interval().seen_from(side);
    let end = i128::from(ts) + i128::from(interval.hi()) + i128::from(spec.lateness().allowed);
    if interval.has_no_last() || ts == i64::MAX { end + NEVER } else { end }
}
