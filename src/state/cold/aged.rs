//! Rows in files that have outlived their time to live.
//!
//! A segment knows of which epochs its rows are, the first and the last. When epochs die whose rows
//! it has, it is read once, to count them; rows that wait for their end are read once more, and
//! those that come out are noted as matched, so that they wait no more. From then on whoever reads
//! the others sees by their numbers that they are dead.

use super::segment::{ColdRow, Segment};
use super::waits::Waits;
use super::{Cold, ColdDue};
use crate::spill::SpillError;
use crate::state::ttl::Dead;

/// What is known of a segment's rows.
pub(super) struct Aged {
    /// The first and last epoch of rows that are alive.
    pub(super) epochs: (u64, u64),
    /// Rows that were counted as dead.
    pub(super) timed_out: u64,
    /// How far waiting rows were looked through for dead ones.
    pub(super) sweep: Option<Waits>,
}

impl Default for Aged {
    fn default() -> Aged {
        Aged { epochs: (u64::MAX, 0), timed_out: 0, sweep: None }
    }
}

impl Aged {
    /// A row of this epoch is there.
    pub(super) fn note(&mut self, epoch: u64) {
        self.epochs = (self.epochs.0.min(epoch), self.epochs.1.max(epoch));
    }
}

impl Segment {
    /// Rows of all epochs up to that of `dead` have died; returns how many they are, without those
    /// with times under `floor`.
    fn age_out(&mut self, dead: &Dead, floor: i64) -> Result<u64, SpillError> {
        let (first, last) = self.aged.epochs;
        if first > dead.epoch {
            return Ok(0);
        }
        let mut count = 0;
        self.each_page(|page| {
            let died = ColdRow::all(page).filter(|row| row.ts >= floor && dead.has_died(row.tag));
            count += died.count() as u64;
        })?;
        self.aged.epochs = (dead.epoch + 1, last);
        self.aged.timed_out += count;
        self.begin_sweep();
        Ok(count)
    }
}

impl Cold {
    /// The same of all segments.
    pub(in crate::state) fn age_out(&mut self, dead: &Dead, floor: i64) -> Result<u64, SpillError> {
        let mut sum = 0;
        for segment in &mut self.segments {
            sum += segment.age_out(dead, floor)?;
        }
        self.rows -= sum;
        Ok(sum)
    }

    /// Drops the segments that hold dead rows only; returns how many rows went that had not been
    /// counted as dead.
    pub(in crate::state) fn retire_dead(&mut self) -> u64 {
        self.retire_if(|segment| segment.aged.epochs.0 > segment.aged.epochs.1)
    }

    /// The next dead row that waits, in order of time and arrival.
    fn next_dead(&mut self, arrival: u64) -> Result<Option<ColdDue>, SpillError> {
        let mut first: Option<ColdDue> = None;
        for (number, segment) in self.segments.iter_mut().enumerate() {
            if let Some(wait) = segment.next_swept(arrival)?
                && first.is_none_or(|first| (wait.ts, wait.arrival) < (first.ts, first.arrival))
            {
                first = Some(ColdDue { segment: number, ts: wait.ts, arrival: wait.arrival });
            }
        }
        Ok(first)
    }

    /// Hands over dead rows that wait and come before a time and arrival, up to `budget` of them;
    /// returns how many they were.
    pub(in crate::state) fn expire_dead(
        &mut self,
        arrival: u64,
        before: Option<(i64, u64)>,
        budget: usize,
        mut each: impl FnMut(u64, i64, &[u8]),
    ) -> Result<usize, SpillError> {
        let mut count = 0;
        while count < budget
            && let Some(due) = self.next_dead(arrival)?
            && before.is_none_or(|before| (due.ts, due.arrival) < before)
        {
            let segment = &mut self.segments[due.segment];
            if let Some(wait) = segment.next_swept(arrival)? {
                each(wait.key, wait.ts, wait.row);
            }
            segment.take_swept();
            count += 1;
        }
        Ok(count)
    }
}
