//! Rows that wait for what becomes of them, each in a numbered slot.
//!
//! State holds the number of a row's slot in place of the row, so that an event which finds the row
//! finds the slot. A number says which row of its slot it means: those of rows that are out lead
//! nowhere. Where a condition is asked of rows that are out as well, they stand in state behind
//! their numbers.

use crate::error::JoinError;
use crate::event::{Event, EventBatch, Key, KeyHasher, KeyKind, Side, split_keyed_row};
use crate::join::interval::event_of;
use crate::state::Class;
use crate::time::{Timestamp, WATERMARK_START};

/// Added to what no watermark makes due: such rows come out at the end of input, after all others.
pub(super) const NEVER: i128 = 1 << 100;

/// Row bytes that a free slot keeps for its next row.
const KEPT_BYTES_MAX: usize = 256;

/// The slots of rows that wait, and what `T` holds beside each.
pub(super) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    arrivals: u64,
    /// Bytes of rows in slots, as allocated.
    row_bytes: usize,
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
    stored: Vec<u8>,
    pub(super) more: T,
}

/// The number of a row: a slot at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark {
    slot: u32,
    generation: u32,
}

impl<T: Default> Slots<T> {
    pub(super) fn new(with_rows: bool) -> Slots<T> {
        Slots {
            slots: Vec::new(),
            free: Vec::new(),
            arrivals: 0,
            row_bytes: 0,
            with_rows,
            marked: EventBatch::default(),
        }
    }

    /// Bytes as allocated.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<T>>()
            + self.free.capacity() * size_of::<u32>()
            + self.row_bytes
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
                self.slots.push(Slot::default());
                number
            }
        };
        self.arrivals += 1;
        let slot = &mut self.slots[number as usize];
        slot.is_taken = true;
        (slot.key, slot.ts, slot.arrival, slot.is_late) = (key, ts, self.arrivals, is_late);
        replace(&mut slot.stored, stored, &mut self.row_bytes);
        Ok(Mark { slot: number, generation: slot.generation })
    }

    /// The slot of a row, unless the row is out.
    pub(super) fn get(&self, mark: Mark) -> Option<&Slot<T>> {
        self.slots.get(mark.slot as usize).filter(|slot| slot.holds(mark))
    }

    /// The same, and the count of row bytes, to be kept right by [`replace`].
    pub(super) fn get_mut(&mut self, mark: Mark) -> Option<(&mut Slot<T>, &mut usize)> {
        let slot = self.slots.get_mut(mark.slot as usize).filter(|slot| slot.holds(mark))?;
        Some((slot, &mut self.row_bytes))
    }

    /// The row is out; its slot is for another.
    pub(super) fn release(&mut self, mark: Mark) {
        let Some(slot) = self.slots.get_mut(mark.slot as usize).filter(|slot| slot.holds(mark))
        else {
            return;
        };
        slot.is_taken = false;
        slot.generation = slot.generation.wrapping_add(1);
        trim(&mut slot.stored, &mut self.row_bytes);
        self.free.push(mark.slot);
    }
}

impl<T> Slot<T> {
    fn holds(&self, mark: Mark) -> bool {
        self.is_taken && self.generation == mark.generation
    }

    /// The row as a sink sees it.
    pub(super) fn event(&self, hasher: &KeyHasher) -> Event<'_> {
        event_of(hasher, self.key, self.ts, &self.stored)
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

/// Puts another row in the place of one; `bytes` counts what is allocated.
pub(super) fn replace(row: &mut Vec<u8>, with: &[u8], bytes: &mut usize) {
    let before = row.capacity();
    row.clear();
    row.extend_from_slice(with);
    *bytes = *bytes + row.capacity() - before;
}

/// Frees the memory of a row that is out, if it is much.
pub(super) fn trim(row: &mut Vec<u8>, bytes: &mut usize) {
    if row.capacity() > KEPT_BYTES_MAX {
        *bytes -= row.capacity();
        *row = Vec::new();
    }
}

/// The last watermark at which a row may still get a partner on time.
pub(super) fn end_of(spec: &crate::join::JoinSpec, side: Side, ts: i64) -> i128 {
    let interval = spec.interval().seen_from(side);
    let end = i128::from(ts) + i128::from(interval.hi()) + i128::from(spec.lateness().allowed);
    if interval.has_no_last() || ts == i64::MAX { end + NEVER } else { end }
}
