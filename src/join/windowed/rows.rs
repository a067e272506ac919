//! The rows of a window join, each kept once however many windows it is in, and their keys.

use std::cell::Cell;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use hashbrown::Equivalent;

use crate::event::{Event, KeyHasher, KeyKind, split_keyed_row};
use crate::join::interval::event_of;
use crate::limits::WINDOWS_PER_ROW_MAX;

/// Numbered rows.
#[derive(Default)]
pub(super) struct Rows {
    rows: Vec<Row>,
    free: Vec<u32>,
    arrivals: u64,
    stored_bytes: usize,
    /// Where a row in several windows may be in memory for some of them and in files for others:
    /// what is known of it as a whole.
    shares: Option<Shares>,
}

struct Row {
    key: u64,
    ts: i64,
    arrival: u64,
    /// Windows in memory that it is in.
    window_count: u32,
    is_matched: Cell<bool>,
    /// It was in a file before.
    is_from_file: bool,
    stored: Box<[u8]>,
}

/// Of rows by their arrival: in how many windows they are, and whether they have a match.
#[derive(Default)]
struct Shares {
    /// The arrival of the first one less one.
    before: u64,
    words: VecDeque<Cell<u16>>,
}

/// The bit of a row that has a match; the others are a count of windows.
const MATCHED: u16 = 1 << 15;
const _: () = assert!(WINDOWS_PER_ROW_MAX < MATCHED as i64);

impl Shares {
    fn word(&self, arrival: u64) -> Option<&Cell<u16>> {
        let at = arrival.checked_sub(self.before + 1)?;
        self.words.get(at as usize)
    }

    fn push(&mut self, window_count: u32) {
        self.words.push_back(Cell::new(window_count as u16));
    }

    /// The row is in one window less; returns whether it is in none any more.
    fn leave(&mut self, arrival: u64) -> bool {
        let Some(word) = self.word(arrival) else { return true };
        word.set(word.get().saturating_sub(1));
        if word.get() & !MATCHED > 0 {
            return false;
        }
        word.set(0);
        while self.words.front().is_some_and(|word| word.get() == 0) {
            self.words.pop_front();
            self.before += 1;
        }
        true
    }
}

/// A row on its way into a file or out of one, of one window.
pub(super) struct Parcel<'a> {
    pub(super) ts: i64,
    pub(super) arrival: u64,
    pub(super) is_matched: bool,
    pub(super) stored: &'a [u8],
}

impl Rows {
    /// Rows that may go into files for one of their windows and be read back for another.
    pub(super) fn shared() -> Rows {
        Rows { shares: Some(Shares::default()), ..Rows::default() }
    }

    /// Keeps a row for so many windows; `None` when there are as many rows as there are numbers.
    pub(super) fn take(
        &mut self,
        key: u64,
        ts: i64,
        stored: &[u8],
        window_count: u32,
    ) -> Option<u32> {
        self.arrivals += 1;
        let arrival = self.arrivals;
        let is_matched = Cell::new(false);
        if let Some(shares) = &mut self.shares {
            shares.push(window_count);
        }
        let is_from_file = false;
        let stored = stored.into();
        self.add(Row { key, ts, arrival, window_count, is_matched, is_from_file, stored })
    }

    /// Keeps a row that was in a file for one of its windows.
    pub(super) fn put_back(&mut self, key: u64, parcel: &Parcel<'_>) -> Option<u32> {
        let &Parcel { ts, arrival, is_matched, stored } = parcel;
        let is_matched = Cell::new(is_matched);
        let stored = stored.into();
        let (window_count, is_from_file) = (1, true);
        self.add(Row { key, ts, arrival, window_count, is_matched, is_from_file, stored })
    }

    fn add(&mut self, row: Row) -> Option<u32> {
        self.stored_bytes += row.stored.len();
        if let Some(number) = self.free.pop() {
            self.rows[number as usize] = row;
            return Some(number);
        }
        let number = u32::try_from(self.rows.len()).ok()?;
        self.rows.push(row);
        Some(number)
    }

    /// The row is in one window less; returns whether it is in none any more.
    pub(super) fn release(&mut self, number: u32) -> bool {
        let arrival = self.rows[number as usize].arrival;
        let is_gone = self.forget(number);
        match &mut self.shares {
            Some(shares) => shares.leave(arrival),
            None => is_gone,
        }
    }

    /// The row is in a file for one window; returns whether memory has it for none any more.
    pub(super) fn forget(&mut self, number: u32) -> bool {
        let row = &mut self.rows[number as usize];
        row.window_count = row.window_count.saturating_sub(1);
        if row.window_count > 0 {
            return false;
        }
        self.stored_bytes -= row.stored.len();
        row.stored = Box::default();
        self.free.push(number);
        true
    }

    /// What a row is in a file.
    pub(super) fn parcel(&self, number: u32) -> Parcel<'_> {
        let Row { ts, arrival, stored, .. } = &self.rows[number as usize];
        Parcel { ts: *ts, arrival: *arrival, is_matched: false, stored }
    }

    /// Whether a row was in a file before.
    pub(super) fn is_from_file(&self, number: u32) -> bool {
        self.rows[number as usize].is_from_file
    }

    /// Rows in memory; one that was read back for several windows counts for each.
    pub(super) fn len(&self) -> usize {
        self.rows.len() - self.free.len()
    }

    /// Gives memory back, if no row is in it.
    pub(super) fn shrink(&mut self) {
        if self.len() == 0 {
            (self.rows, self.free) = (Vec::new(), Vec::new());
        }
    }

    /// The row has a match; returns whether that is new.
    pub(super) fn set_matched(&self, number: u32) -> bool {
        let row = &self.rows[number as usize];
        match self.shares.as_ref().and_then(|shares| shares.word(row.arrival)) {
            Some(word) => word.replace(word.get() | MATCHED) & MATCHED == 0,
            None => !row.is_matched.replace(true),
        }
    }

    pub(super) fn arrival(&self, number: u32) -> u64 {
        self.rows[number as usize].arrival
    }

    pub(super) fn event<'a>(&'a self, number: u32, hasher: &KeyHasher) -> Event<'a> {
        let row = &self.rows[number as usize];
        event_of(hasher, row.key, row.ts, &row.stored)
    }

    pub(super) fn key(&self, number: u32, value: u64, kind: KeyKind) -> KeyRef<'_> {
        KeyRef::of(value, &self.rows[number as usize].stored, kind)
    }

    /// Bytes, about as allocated.
    pub(super) fn bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Row>()
            + self.free.capacity() * size_of::<u32>()
            + self.stored_bytes
            + self.shares.as_ref().map_or(0, |shares| shares.words.capacity() * 2)
    }
}

/// A key as rows have it: its value, and its bytes where the value does not say all.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyRef<'a> {
    pub(super) value: u64,
    bytes: &'a [u8],
}

/// A key that windows are found by.
#[derive(PartialEq, Eq)]
pub(super) struct OwnedKey {
    value: u64,
    bytes: Box<[u8]>,
}

impl<'a> KeyRef<'a> {
    pub(super) fn of(value: u64, stored: &'a [u8], kind: KeyKind) -> KeyRef<'a> {
        let bytes = match kind {
            KeyKind::Int => &[],
            KeyKind::Bytes => split_keyed_row(stored).0,
        };
        KeyRef { value, bytes }
    }

    pub(super) fn to_owned(self) -> OwnedKey {
        OwnedKey { value: self.value, bytes: self.bytes.into() }
    }
}

impl Hash for KeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.value);
    }
}

impl Hash for OwnedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.value);
    }
}

impl Equivalent<OwnedKey> for KeyRef<'_> {
    fn equivalent(&self, key: &OwnedKey) -> bool {
        self.value == key.value && *self.bytes == *key.bytes
    }
}
