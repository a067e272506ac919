//! The rows of a window join, each kept once however many windows it is in, and their keys.

use std::cell::Cell;
use std::hash::{Hash, Hasher};

use hashbrown::Equivalent;

use crate::event::{Event, KeyHasher, KeyKind, split_keyed_row};
use crate::join::interval::event_of;

/// Numbered rows.
#[derive(Default)]
pub(super) struct Rows {
    rows: Vec<Row>,
    free: Vec<u32>,
    arrivals: u64,
    stored_bytes: usize,
}

struct Row {
    key: u64,
    ts: i64,
    arrival: u64,
    /// Windows that it is in.
    window_count: u32,
    is_matched: Cell<bool>,
    stored: Box<[u8]>,
}

impl Rows {
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
        let row = Row { key, ts, arrival, window_count, is_matched, stored: stored.into() };
        self.stored_bytes += stored.len();
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

    /// The row has a match; returns whether that is new.
    pub(super) fn set_matched(&self, number: u32) -> bool {
        !self.rows[number as usize].is_matched.replace(true)
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
