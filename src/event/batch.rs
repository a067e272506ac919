//! A batch of events of one source, in columns.

use crate::error::PushError;
use crate::event::prefetch::{prefetch_column, prefetch_room};
use crate::event::{Key, KeyHasher, KeyKind, Side, split_keyed_row};
use crate::limits::{KEY_BYTES_MAX, ROW_BYTES_MAX};
use crate::time::Timestamp;

/// What a shard has to do with the events of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BatchKind {
    /// Events with a key; lateness is judged by the shard unless the spec's clock is `Own`.
    #[default]
    Keyed,
    /// Events without a key: never stored, matched with nothing, padded at once by an outer join.
    /// They are never late; by `lags`, results are put in order.
    NullKey,
    /// Events that their producer found late, as it does under `LatenessClock::Own`; `lags` says by
    /// how much.
    Late,
    /// Events with a key that their producer found on time: the shard does not judge them again.
    Judged,
    /// Copies of `Judged` events of a key that is split over all shards. They are matched and
    /// stored like those, and counted as copies only.
    Copy,
}

/// An event as it is handed to a sink: borrowed from state or from a batch, valid for the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The event's key.
    pub key: Key<'a>,
    /// The event's time, in ticks.
    pub ts: i64,
    /// The caller's bytes, as they were pushed.
    pub row: &'a [u8],
}

/// Up to a fixed number of events of ONE source, in columns.
///
/// Rows are opaque bytes, one after the other. In a join of [`KeyKind::Bytes`] each stored row
/// starts with its key (see [`split_keyed_row`]). Clearing keeps the memory, so a batch that goes
/// round between a source and a shard allocates nothing once it is warm.
#[derive(Clone, Debug, Default)]
pub struct EventBatch {
    /// What the shard has to do with the events.
    pub kind: BatchKind,
    /// The index of the source within its side.
    pub source: u32,
    /// When the oldest event arrived, by the engine's clock; 0 when nobody measures.
    pub arrived_ns: u64,
    side: Option<Side>,
    keys: Vec<u64>,
    ts: Vec<i64>,
    row_ends: Vec<u32>,
    rows: Vec<u8>,
    lags: Vec<i64>,
}

impl EventBatch {
    /// An empty batch of `side` with room for `event_count` events.
    pub fn with_capacity(side: Side, event_count: usize, row_bytes: usize) -> EventBatch {
        EventBatch {
            side: Some(side),
            keys: Vec::with_capacity(event_count),
            ts: Vec::with_capacity(event_count),
            row_ends: Vec::with_capacity(event_count),
            rows: Vec::with_capacity(row_bytes),
            ..EventBatch::default()
        }
    }

    /// Empties the batch for another use; its memory stays.
    pub fn reset(&mut self, side: Side, source: u32, kind: BatchKind) {
        self.side = Some(side);
        self.source = source;
        self.kind = kind;
        self.arrived_ns = 0;
        self.keys.clear();
        self.ts.clear();
        self.row_ends.clear();
        self.rows.clear();
        self.lags.clear();
    }

    /// Asks for what the columns hold, which another core may have written last.
    #[inline]
    pub fn prefetch(&self) {
        prefetch_column(&self.keys);
        prefetch_column(&self.ts);
        prefetch_column(&self.row_ends);
        prefetch_column(&self.rows);
    }

    /// Asks for what the columns have room for, to write to it: another core may have read it last.
    #[inline]
    pub fn prefetch_room(&self) {
        prefetch_room(&self.keys);
        prefetch_room(&self.ts);
        prefetch_room(&self.row_ends);
        prefetch_room(&self.rows);
    }

    /// Frees the memory of an empty batch's rows if it is over `row_bytes_max`. A batch that is not
    /// empty stays as it is.
    pub fn trim(&mut self, row_bytes_max: usize) {
        if self.is_empty() && self.rows.capacity() > row_bytes_max {
            self.rows = Vec::new();
        }
    }

    /// The side that all events of the batch belong to.
    #[inline]
    pub fn side(&self) -> Side {
        self.side.unwrap_or(Side::Left)
    }

    /// How many events the batch holds.
    #[inline]
    pub fn len(&self) -> usize {
        self.ts.len()
    }

    /// Whether the batch holds no event.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ts.is_empty()
    }

    /// The values of the keys, as the engine's [`KeyHasher`] made them (0 for null keys).
    #[inline]
    pub fn keys(&self) -> &[u64] {
        &self.keys
    }

    /// The times, in ticks; none is `i64::MIN`.
    #[inline]
    pub fn timestamps(&self) -> &[i64] {
        &self.ts
    }

    /// How far behind what was still on time each event was, in ticks, where its source has judged
    /// that ([`BatchKind::Late`], [`BatchKind::NullKey`]); what is missing is 0.
    #[inline]
    pub fn lags(&self) -> &[i64] {
        &self.lags
    }

    /// The stored bytes of one event, its key included in a [`KeyKind::Bytes`] join.
    #[inline]
    pub fn stored_row(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.row_ends[index - 1] as usize };
        &self.rows[start..self.row_ends[index] as usize]
    }

    /// Bytes of all rows together.
    #[inline]
    pub fn row_bytes(&self) -> usize {
        self.rows.len()
    }

    /// Bytes of rows that fit without another allocation.
    pub fn row_bytes_capacity(&self) -> usize {
        self.rows.capacity()
    }

    /// One event, as a sink sees it.
    #[inline(always)]
    pub fn event(&self, index: usize, hasher: &KeyHasher) -> Event<'_> {
        let stored = self.stored_row(index);
        let (key, row) = match (self.kind, hasher.kind()) {
            (BatchKind::NullKey, _) => (Key::Null, stored),
            (_, KeyKind::Int) => (Key::Int(hasher.unmix_int(self.keys[index])), stored),
            (_, KeyKind::Bytes) => {
                let (key, row) = split_keyed_row(stored);
                (Key::Bytes(key), row)
            }
        };
        Event { key, ts: self.ts[index], row }
    }

    /// Appends an event.
    ///
    /// # Errors
    /// [`PushError`] when the key is not of the hasher's kind, the key or row is over its limit, or
    /// the batch's rows would not fit 4 GiB. The batch is unchanged then.
    #[inline]
    pub fn push(
        &mut self,
        hasher: &KeyHasher,
        key: Key<'_>,
        ts: Timestamp,
        row: &[u8],
    ) -> Result<(), PushError> {
        self.push_with_value(hasher.value(key)?, key, ts, row)
    }

    /// Appends an event whose key's value is known: [`KeyHasher::value`] of this very key.
    ///
    /// # Errors
    /// [`PushError`] when the row is over its limit, or the batch's rows would not fit 4 GiB. The
    /// batch is unchanged then.
    #[inline]
    pub fn push_with_value(
        &mut self,
        value: u64,
        key: Key<'_>,
        ts: Timestamp,
        row: &[u8],
    ) -> Result<(), PushError> {
        if row.len() > ROW_BYTES_MAX {
            return Err(PushError::RowTooLong { bytes: row.len(), bytes_max: ROW_BYTES_MAX });
        }
        if self.rows.len() + row.len() + KEY_BYTES_MAX + 2 > u32::MAX as usize {
            return Err(PushError::BatchFull);
        }
        if let Key::Bytes(key) = key {
            // Cannot truncate: a longer key has no value.
            self.rows.extend_from_slice(&(key.len() as u16).to_le_bytes());
            self.rows.extend_from_slice(key);
        }
        self.rows.extend_from_slice(row);
        self.append(value, ts.ticks());
        Ok(())
    }

    /// Adds bytes to the row of the event that was pushed last; not over the limit of one row.
    ///
    /// # Errors
    /// [`PushError::BatchFull`] when the batch's rows would not fit 4 GiB. The batch is unchanged
    /// then.
    pub(crate) fn extend_last(&mut self, more: &[u8]) -> Result<(), PushError> {
        let Some(end) = self.row_ends.last_mut() else { return Ok(()) };
        *end = u32::try_from(self.rows.len() + more.len()).map_err(|_| PushError::BatchFull)?;
        self.rows.extend_from_slice(more);
        Ok(())
    }

    /// Appends events with integer keys and rows of one length, column by column: several times as
    /// fast as one [`push`](Self::push) after the other.
    ///
    /// # Errors
    /// [`PushError`] when the columns differ in length, a time is `i64::MIN`, the join's keys are
    /// not integers, or the batch would be too large. The batch is unchanged then.
    pub fn push_ints<const ROW_BYTES: usize>(
        &mut self,
        hasher: &KeyHasher,
        keys: &[u64],
        ts: &[i64],
        rows: impl ExactSizeIterator<Item = [u8; ROW_BYTES]>,
    ) -> Result<(), PushError> {
        if hasher.kind() != KeyKind::Int {
            return Err(PushError::KeyKind { expected: hasher.kind() });
        }
        if keys.len() != ts.len() || keys.len() != rows.len() {
            return Err(PushError::ColumnLengths);
        }
        if ts.contains(&i64::MIN) {
            return Err(PushError::NoTimestamp);
        }
        let start = self.rows.len();
        if start + keys.len() * ROW_BYTES > u32::MAX as usize {
            return Err(PushError::BatchFull);
        }
        self.keys.extend(keys.iter().map(|&key| hasher.int(key)));
        self.ts.extend_from_slice(ts);
        // Cannot truncate: the last end was just compared with the largest.
        self.row_ends.extend((1..=keys.len()).map(|count| (start + count * ROW_BYTES) as u32));
        self.rows.extend(rows.flatten());
        Ok(())
    }

    /// Appends event `index` of `from`, as it is stored there.
    #[inline]
    pub fn push_from(&mut self, from: &EventBatch, index: usize) {
        self.rows.extend_from_slice(from.stored_row(index));
        self.append(from.keys[index], from.ts[index]);
    }

    /// Appends the events `range` of `from`, as they are stored there: a copy a column.
    ///
    /// # Panics
    /// When `from` has not so many events, or the rows of both would not fit 4 GiB.
    pub fn extend_from(&mut self, from: &EventBatch, range: std::ops::Range<usize>) {
        if range.is_empty() {
            return;
        }
        let rows_start = if range.start == 0 { 0 } else { from.row_ends[range.start - 1] };
        let rows_end = from.row_ends[range.end - 1];
        let own_start = self.rows.len();
        assert!(own_start + (rows_end - rows_start) as usize <= u32::MAX as usize);
        self.keys.extend_from_slice(&from.keys[range.clone()]);
        self.ts.extend_from_slice(&from.ts[range.clone()]);
        // Cannot truncate or wrap: the assertion bounds every end.
        let moved = |&end: &u32| end - rows_start + own_start as u32;
        self.row_ends.extend(from.row_ends[range].iter().map(moved));
        self.rows.extend_from_slice(&from.rows[rows_start as usize..rows_end as usize]);
    }

    /// The rows of the events `range` if each is eight bytes long.
    ///
    /// # Panics
    /// When the batch has not so many events.
    pub fn words(&self, range: std::ops::Range<usize>) -> Option<&[[u8; 8]]> {
        let ends = &self.row_ends[range.clone()];
        let start = if range.start == 0 { 0 } else { self.row_ends[range.start - 1] };
        let end = *ends.last()?;
        if (end - start) as usize != 8 * ends.len() {
            return None;
        }
        // All are looked at, as that needs no branch.
        let differ = ends
            .iter()
            .zip(1..)
            .fold(0, |differ, (end, count)| differ | (end ^ (count * 8u32).wrapping_add(start)));
        (differ == 0).then(|| self.rows[start as usize..end as usize].as_chunks().0)
    }

    /// Appends events whose rows are eight bytes each, column by column.
    ///
    /// # Panics
    /// When the columns differ in length, or the rows would not fit 4 GiB.
    #[inline]
    pub fn extend_words(&mut self, keys: &[u64], ts: &[i64], words: &[[u8; 8]]) {
        assert!(keys.len() == ts.len() && keys.len() == words.len());
        let start = self.rows.len();
        assert!(start + words.len() * 8 <= u32::MAX as usize);
        self.keys.extend_from_slice(keys);
        self.ts.extend_from_slice(ts);
        // Cannot truncate: the last end was just compared with the largest.
        self.row_ends.extend((1..=words.len()).map(|count| (start + count * 8) as u32));
        self.rows.extend_from_slice(words.as_flattened());
    }

    /// Appends the events `picks` of `from`, counted from `first` on, as they are stored there.
    /// `words` are [`words`](Self::words) from `first` on, if each row is one.
    ///
    /// # Panics
    /// When `from` has not so many events.
    #[inline]
    pub fn extend_picked(
        &mut self,
        from: &EventBatch,
        (first, words): (usize, Option<&[[u8; 8]]>),
        picks: &[u8],
    ) {
        let (keys, ts) = (&from.keys[first..], &from.ts[first..]);
        self.keys.extend(picks.iter().map(|&pick| keys[usize::from(pick)]));
        self.ts.extend(picks.iter().map(|&pick| ts[usize::from(pick)]));
        // Cannot truncate: a part of `from` and of this batch, both under 4 GiB; see `push`.
        let start = self.rows.len();
        if let Some(words) = words {
            self.row_ends.extend((1..=picks.len()).map(|count| (start + count * 8) as u32));
            self.rows.resize(start + picks.len() * 8, 0);
            let places = self.rows[start..].as_chunks_mut::<8>().0;
            for (place, &pick) in places.iter_mut().zip(picks) {
                *place = words[usize::from(pick)];
            }
            return;
        }
        for &pick in picks {
            self.rows.extend_from_slice(from.stored_row(first + usize::from(pick)));
            self.row_ends.push(self.rows.len() as u32);
        }
    }

    /// Appends event `index` of `from` to a batch of late events.
    pub fn push_late_from(&mut self, from: &EventBatch, index: usize, lag: i64) {
        self.push_from(from, index);
        self.push_lag(lag);
    }

    /// Says how late the event is that was just appended.
    pub fn push_lag(&mut self, lag: i64) {
        self.lags.push(lag);
    }

    /// Says how late the event was that was pushed last. Of events before it of which nothing was
    /// said, it is 0.
    #[inline]
    pub fn set_lag(&mut self, lag: i64) {
        self.lags.resize(self.len().saturating_sub(1), 0);
        self.lags.push(lag);
    }

    #[inline]
    fn append(&mut self, value: u64, ts: i64) {
        self.keys.push(value);
        self.ts.push(ts);
        // Cannot truncate: `push` keeps `rows` under 4 GiB, and `push_from` copies a part of it.
        self.row_ends.push(self.rows.len() as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_keys_come_back_as_they_were_pushed() {
        let hasher = KeyHasher::new(KeyKind::Bytes, 7);
        let mut batch = EventBatch::with_capacity(Side::Right, 4, 64);
        let ts = Timestamp::new(5).unwrap();
        batch.push(&hasher, Key::Bytes("订单".as_bytes()), ts, b"row").unwrap();
        batch.push(&hasher, Key::Bytes(b""), ts, b"").unwrap();
        let mut copy = EventBatch::with_capacity(Side::Right, 4, 64);
        copy.push_from(&batch, 1);
        copy.push_from(&batch, 0);
        let first = copy.event(1, &hasher);
        assert_eq!(first, Event { key: Key::Bytes("订单".as_bytes()), ts: 5, row: b"row" });
        assert_eq!(copy.event(0, &hasher), Event { key: Key::Bytes(b""), ts: 5, row: b"" });
    }

    #[test]
    fn a_range_is_appended_like_its_events_one_by_one() {
        let hasher = KeyHasher::new(KeyKind::Bytes, 7);
        let mut from = EventBatch::with_capacity(Side::Left, 4, 64);
        for (ts, row) in [b"".as_slice(), b"one", b"", b"threee", b"four!!!"].iter().enumerate() {
            let time = Timestamp::new(ts as i64).unwrap();
            from.push(&hasher, Key::Bytes(row), time, row).unwrap();
        }
        for start in 0..=5 {
            for end in start..=5 {
                let (mut range, mut singles) = (from.clone(), from.clone());
                range.extend_from(&from, start..end);
                (start..end).for_each(|index| singles.push_from(&from, index));
                assert_eq!(format!("{range:?}"), format!("{singles:?}"), "{start}..{end}");
                let picks: Vec<u8> = (0..(end - start) as u8).collect();
                let mut picked = from.clone();
                picked.extend_picked(&from, (start, from.words(start..end)), &picks);
                assert_eq!(format!("{picked:?}"), format!("{singles:?}"), "{start}..{end}");
            }
        }
    }

    #[test]
    fn words_are_picked_like_other_rows() {
        let hasher = KeyHasher::new(KeyKind::Int, 7);
        let mut from = EventBatch::with_capacity(Side::Left, 4, 64);
        for (key, row) in
            [b"eight by".as_slice(), b"tes each", b"and once", b"nine byte"].into_iter().enumerate()
        {
            let ts = Timestamp::new(key as i64).unwrap();
            from.push(&hasher, Key::Int(key as u64), ts, row).unwrap();
        }
        assert_eq!(from.words(0..0), None);
        assert_eq!(from.words(1..3), Some([*b"tes each", *b"and once"].as_slice()));
        assert_eq!(from.words(1..4), None);
        let mut picked = EventBatch::with_capacity(Side::Left, 4, 64);
        let mut singles = picked.clone();
        picked.extend_picked(&from, (1, from.words(1..3)), &[1, 0]);
        picked.extend_picked(&from, (1, None), &[2]);
        let words = from.words(1..3).unwrap();
        picked.extend_words(&from.keys()[1..3], &from.timestamps()[1..3], words);
        [2, 1, 3, 1, 2].into_iter().for_each(|index| singles.push_from(&from, index));
        assert_eq!(format!("{picked:?}"), format!("{singles:?}"));
    }

    #[test]
    fn wrong_kinds_and_sizes_are_refused_and_leave_the_batch_alone() {
        let hasher = KeyHasher::new(KeyKind::Bytes, 7);
        let mut batch = EventBatch::with_capacity(Side::Left, 4, 64);
        let ts = Timestamp::new(5).unwrap();
        let long = vec![b'k'; KEY_BYTES_MAX + 1];
        assert!(matches!(
            batch.push(&hasher, Key::Int(1), ts, b""),
            Err(PushError::KeyKind { expected: KeyKind::Bytes })
        ));
        assert!(matches!(
            batch.push(&hasher, Key::Bytes(&long), ts, b""),
            Err(PushError::KeyTooLong { .. })
        ));
        assert!(batch.is_empty());
        assert_eq!(batch.row_bytes(), 0);
    }
}
