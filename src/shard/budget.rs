//! A shard's part in what all shards share: the bound on state, and how far they are.

use crate::error::JoinError;
use crate::event::{EventBatch, Side};
use crate::exchange::Pacer;
use crate::shard::Operator;

/// Of the bound on state, so much may be memory that waits to be used again, over all shards.
const POOLED_SHARE: u64 = 16;

/// From so many eighths of the bound on bytes on shards make room, where they are to: an index that
/// grows needs half as much again for a while.
const ROOM_FROM_EIGHTHS: u64 = 5;
/// Until they are down to so many.
const ROOM_TO_EIGHTHS: u64 = 4;
/// The same of the bound on rows, which grow by what is under way only.
const ROWS_FROM_EIGHTHS: u64 = 7;
const ROWS_TO_EIGHTHS: u64 = 6;

/// What a shard has told the pacer.
pub(super) struct Budget {
    pacer: Pacer,
    number: usize,
    bytes: i64,
    rows: i64,
}

impl Budget {
    pub(super) fn new(pacer: Pacer, number: usize) -> Budget {
        Budget { pacer, number, bytes: 0, rows: 0 }
    }

    /// A batch was joined.
    ///
    /// # Errors
    /// [`JoinError::StateFull`] and [`JoinError::RowsFull`] when the state of all shards is over
    /// its bound.
    pub(super) fn joined<J: Operator>(
        &mut self,
        batch: &EventBatch,
        join: &mut J,
    ) -> Result<(), JoinError> {
        self.make_room(join)?;
        let bytes = self.note_bytes(join);
        if let Some(bytes_max) = self.pacer.state_bytes_max()
            && bytes > bytes_max
        {
            join.trim(0);
            let bytes = self.note_bytes(join);
            if bytes > bytes_max {
                return Err(JoinError::StateFull { bytes, bytes_max });
            }
        }
        if let Some(rows_max) = self.pacer.state_rows_max() {
            let rows = self.note_rows(join);
            if rows > rows_max {
                return Err(JoinError::RowsFull { rows, rows_max });
            }
        }
        self.pacer.joined(Pacer::weight(batch));
        Ok(())
    }

    /// Has the operator make room when the state of all shards is near its bound: this shard's part
    /// of what is too much.
    fn make_room<J: Operator>(&mut self, join: &mut J) -> Result<(), JoinError> {
        if !self.pacer.makes_room() {
            return Ok(());
        }
        let (bytes, rows) = (self.note_bytes(join), self.note_rows(join));
        let bytes_max = self.pacer.state_bytes_max().unwrap_or(u64::MAX);
        let rows_max = self.pacer.state_rows_max().unwrap_or(u64::MAX);
        let is_over = |bytes| {
            bytes > part(bytes_max, ROOM_FROM_EIGHTHS) || rows > part(rows_max, ROWS_FROM_EIGHTHS)
        };
        if !is_over(bytes) {
            return Ok(());
        }
        // What waits to be used again is no row.
        join.trim(0);
        let bytes = self.note_bytes(join);
        if is_over(bytes) {
            let own_bytes = share(self.bytes, part(bytes_max, ROOM_TO_EIGHTHS), bytes);
            let own_rows = share(self.rows, part(rows_max, ROWS_TO_EIGHTHS), rows);
            join.make_room(own_bytes, own_rows)?;
            self.note_bytes(join);
            self.note_rows(join);
        }
        Ok(())
    }

    /// Rows were freed, all that the watermarks `done` allow if they are given.
    pub(super) fn worked<J: Operator>(&mut self, done: Option<[i64; 2]>, join: &mut J) {
        if let Some(bytes_max) = self.pacer.state_bytes_max() {
            let is_tight = self.pacer.state_bytes() > bytes_max / 2;
            let shard_count = self.pacer.shard_count() as u64;
            join.trim(if is_tight { 0 } else { bytes_max / POOLED_SHARE / shard_count });
        }
        self.note_bytes(join);
        self.note_rows(join);
        if let Some(watermarks) = done {
            self.pacer.freed(self.number, watermarks);
        }
    }

    /// Returns the bytes of all shards.
    pub(super) fn note_bytes<J: Operator>(&mut self, join: &J) -> u64 {
        let bytes = i64::try_from(join.state_bytes()).unwrap_or(i64::MAX);
        let change = bytes - std::mem::replace(&mut self.bytes, bytes);
        if change == 0 {
            self.pacer.state_bytes()
        } else {
            self.pacer.change_bytes(self.number, change)
        }
    }

    /// Events were joined.
    pub(super) fn note_work<J: Operator>(&mut self, join: &J) {
        let counters = join.counters();
        let events = Side::BOTH.map(|side| counters.side(side).rows + counters.side(side).copies);
        self.pacer.note_work(self.number, events[0] + events[1], counters.pairs);
        self.note_rows(join);
    }

    /// Returns the rows of all shards.
    pub(super) fn note_rows<J: Operator>(&mut self, join: &J) -> u64 {
        let rows = join.rows_in_memory() as i64;
        let change = rows - std::mem::replace(&mut self.rows, rows);
        if change == 0 {
            self.pacer.state_rows()
        } else {
            self.pacer.change_rows(self.number, change)
        }
    }
}

fn part(bound: u64, eighths: u64) -> u64 {
    // In wide arithmetic: a bound may be as large as it likes, and a small one has no eighths.
    (u128::from(bound) * u128::from(eighths) / 8) as u64
}

/// What one shard may keep of its own when all of them have so much, and may have the bound.
fn share(own: i64, bound: u64, all: u64) -> u64 {
    let own = u128::from(own.max(0) as u64);
    if all <= bound { u64::MAX } else { (own * u128::from(bound) / u128::from(all)) as u64 }
}
