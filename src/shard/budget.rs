//! A shard's part in what all shards share: the bound on state, and how far they are.

use crate::error::JoinError;
use crate::event::{EventBatch, Side};
use crate::exchange::{Ask, Pacer};
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
    /// The last call to make room that it has answered.
    answered: u64,
}

impl Budget {
    pub(super) fn new(pacer: Pacer, number: usize) -> Budget {
        Budget { pacer, number, bytes: 0, rows: 0, answered: 0 }
    }

    /// A batch was joined. If shards make room and state is over its bound nevertheless, all of
    /// them are called to.
    ///
    /// # Errors
    /// [`JoinError::StateFull`] and [`JoinError::RowsFull`] when the state of all shards is over
    /// its bound and nobody makes room.
    pub(super) fn joined<J: Operator>(
        &mut self,
        batch: &EventBatch,
        join: &mut J,
    ) -> Result<(), JoinError> {
        self.make_room(join)?;
        self.note_rows(join);
        let bytes = self.note_bytes(join);
        if self.pacer.state_bytes_max().is_some_and(|bytes_max| bytes > bytes_max) {
            join.trim(0);
            self.note_bytes(join);
        }
        match self.pacer.excess() {
            None => {}
            Some(_) if self.pacer.makes_room() => self.pacer.call_shards(),
            Some(error) => return Err(error),
        }
        self.pacer.joined(Pacer::weight(batch));
        Ok(())
    }

    /// Whether all shards are called to make room: none takes a batch until that is over.
    #[inline]
    pub(super) fn is_called(&self) -> bool {
        self.pacer.is_calling()
    }

    /// Does what a call asks of this shard; returns whether it is over.
    ///
    /// # Errors
    /// [`JoinError::StateFull`] and [`JoinError::RowsFull`] when no shard can make more room and
    /// state is over its bound; what goes wrong with files.
    #[cold]
    pub(super) fn answer<J: Operator>(&mut self, join: &mut J) -> Result<bool, JoinError> {
        while let Some((number, ask)) = self.pacer.called() {
            if self.answered != number {
                self.answered = number;
                self.give(ask, join)?;
                self.pacer.answer(self.number, number);
            }
            if !self.pacer.conclude(number)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn give<J: Operator>(&mut self, ask: Ask, join: &mut J) -> Result<(), JoinError> {
        join.trim(0);
        let (bytes, rows) = (self.note_bytes(join), self.note_rows(join));
        match ask {
            Ask::Part => self.keep_share(bytes, rows, join)?,
            // Of what is over its bound.
            Ask::All => {
                let keep = |now, bound: Option<u64>| if now > bound? { Some(0) } else { None };
                let bytes_max = keep(bytes, self.pacer.state_bytes_max());
                let rows_max = keep(rows, self.pacer.state_rows_max());
                if bytes_max.is_some() || rows_max.is_some() {
                    join.make_room(bytes_max.unwrap_or(u64::MAX), rows_max.unwrap_or(u64::MAX))?;
                    join.trim(0);
                }
            }
        }
        self.note_bytes(join);
        self.note_rows(join);
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
            self.keep_share(bytes, rows, join)?;
            self.note_bytes(join);
            self.note_rows(join);
        }
        Ok(())
    }

    /// Has the operator keep this shard's part of what is left when all have made room, who have so
    /// many bytes and rows.
    fn keep_share<J: Operator>(
        &self,
        bytes: u64,
        rows: u64,
        join: &mut J,
    ) -> Result<(), JoinError> {
        let bytes_max = self.pacer.state_bytes_max().unwrap_or(u64::MAX);
        let rows_max = self.pacer.state_rows_max().unwrap_or(u64::MAX);
        let own_bytes = share(self.bytes, part(bytes_max, ROOM_TO_EIGHTHS), bytes);
        let own_rows = share(self.rows, part(rows_max, ROWS_TO_EIGHTHS), rows);
        join.make_room(own_bytes, own_rows)
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

impl Drop for Budget {
    fn drop(&mut self) {
        self.pacer.leave(self.number, (self.bytes, self.rows));
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
