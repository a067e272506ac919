//! A shard's part in what all shards share: the bound on state, and how far they are.

use crate::error::JoinError;
use crate::event::{EventBatch, Side};
use crate::exchange::Pacer;
use crate::shard::Operator;

/// Of the bound on state, so much may be memory that waits to be used again, over all shards.
const POOLED_SHARE: u64 = 16;

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
    /// [`JoinError::StateFull`] when the state of all shards is over its bound.
    pub(super) fn joined<J: Operator>(
        &mut self,
        batch: &EventBatch,
        join: &mut J,
    ) -> Result<(), JoinError> {
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
        self.pacer.joined(Pacer::weight(batch));
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

    pub(super) fn note_rows<J: Operator>(&mut self, join: &J) {
        let rows = Side::BOTH.map(|side| join.counters().side(side).buffered());
        let rows = (rows[0] + rows[1]) as i64;
        let change = rows - std::mem::replace(&mut self.rows, rows);
        if change != 0 {
            self.pacer.change_rows(self.number, change);
        }
    }
}
