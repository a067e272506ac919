//! Room for a batch in state that keeps to a bound of its own.

use crate::error::JoinError;
use crate::event::EventBatch;
use crate::limits::Limits;

/// At least one in so many bytes of state has to be of rows, or rows are not put into files.
pub(super) const SPILL_LEAST: u64 = 8;

/// An operator that makes room when its state comes near the bound.
pub(super) trait MakesRoom {
    fn limits(&self) -> Limits;
    fn state_bytes(&self) -> u64;
    fn rows_in_memory(&self) -> u64;
    fn trim(&mut self, keep_bytes: u64);
    fn make_room(&mut self, bytes_max: u64, rows_max: u64) -> Result<(), JoinError>;

    /// Makes room for a batch if it is over a bound.
    fn make_room_for(&mut self, batch: &EventBatch) -> Result<(), JoinError> {
        let (bytes, rows) = (batch.row_bytes() as u64, batch.len() as u64);
        let room = |bound: Option<u64>, more: u64| bound.unwrap_or(u64::MAX).saturating_sub(more);
        let bytes_max = room(self.limits().state_bytes_max, bytes);
        let rows_max = room(self.limits().state_rows_max, rows);
        let is_over =
            |join: &Self| join.state_bytes() > bytes_max || join.rows_in_memory() > rows_max;
        if !is_over(self) {
            return Ok(());
        }
        self.trim(0);
        if !is_over(self) {
            return Ok(());
        }
        // Some more, so that it is not for every batch.
        self.make_room(bytes_max - bytes_max / 8, rows_max - rows_max / 8)?;
        let keep = |now: u64, most: u64| if now > most { 0 } else { u64::MAX };
        match (keep(self.state_bytes(), bytes_max), keep(self.rows_in_memory(), rows_max)) {
            (u64::MAX, u64::MAX) => Ok(()),
            // What is not over its bound stays.
            (bytes, rows) => self.make_room(bytes, rows),
        }
    }
}
