//! What bounds the operator's state beside watermarks: room, and time to live.

use std::path::Path;

use super::IntervalJoin;
use crate::error::{JoinError, SpecError};
use crate::event::Side;
use crate::join::JoinSpec;
use crate::join::room::{MakesRoom, SPILL_LEAST};
use crate::join::spec::check::NOT_PLAIN;
use crate::limits::{Limits, Overflow};

/// Rows are put into files until one in so many bytes and rows that may stay is left in memory.
const SPILL_TO: u64 = 2;
/// One in so many bytes that may stay may be a filter's.
const FILTER_SHARE: u64 = 8;

/// Whether the limits go with a spec, which may have been built under others.
pub(super) fn check(spec: &JoinSpec, limits: &Limits) -> Result<(), SpecError> {
    match limits.overflow {
        Overflow::Refuse => Ok(()),
        Overflow::Shed if spec.chooses() => Err(SpecError::Overflow(NOT_PLAIN)),
        Overflow::Shed | Overflow::Spill => Ok(()),
    }
}

impl MakesRoom for IntervalJoin {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn state_bytes(&self) -> u64 {
        IntervalJoin::state_bytes(self)
    }

    fn rows_in_memory(&self) -> u64 {
        IntervalJoin::rows_in_memory(self)
    }

    fn trim(&mut self, keep_bytes: u64) {
        IntervalJoin::trim(self, keep_bytes);
    }

    fn make_room(&mut self, bytes_max: u64, rows_max: u64) -> Result<(), JoinError> {
        IntervalJoin::make_room(self, bytes_max, rows_max)
    }
}

impl IntervalJoin {
    /// Tells the time, in nanoseconds since some fixed moment: rows that have outlived the spec's
    /// [`ttl`](crate::join::JoinSpecBuilder::ttl) match nothing from here on, and those that are to
    /// come out unmatched do so in the following calls of [`work`](Self::work). Returns whether
    /// there are any. Without a time to live it does nothing.
    #[inline]
    pub fn tick(&mut self, now_ns: u64) -> bool {
        let Some(ttl) = &mut self.ttl else { return false };
        let due = ttl.due(now_ns);
        if let Some(now_ns) = due.close_ns {
            self.state.close_epoch(now_ns);
            self.choices.iter_mut().for_each(|choices| choices.close_epoch(now_ns));
        }
        let oldest_ns = self.state.oldest_closed_ns();
        match due.end_ns {
            Some(end_ns) if oldest_ns.is_some_and(|oldest| oldest <= end_ns) => {
                self.age_out(end_ns)
            }
            _ => false,
        }
    }

    /// When [`tick`](Self::tick) should be called next, if no event comes before; `None` without
    /// rows, or where they have no time to live.
    pub fn next_tick_ns(&self) -> Option<u64> {
        let ttl = self.ttl.as_ref().filter(|_| self.counters.buffered() > 0)?;
        Some(ttl.next_ns(self.state.oldest_closed_ns()))
    }

    #[cold]
    fn age_out(&mut self, end_ns: u64) -> bool {
        let floors = Side::BOTH.map(|side| self.floor(side));
        let Some(died) = self.state.age_out(end_ns, floors) else { return false };
        self.choices.iter_mut().for_each(|choices| choices.age_out(end_ns));
        for (counters, died) in self.counters.sides.iter_mut().zip(died) {
            counters.timed_out += died;
        }
        true
    }

    /// Does what the limits say becomes of rows when state comes near its bound, until about so
    /// many bytes hold rows and so many rows are in memory: gives the oldest up, or puts them into
    /// files. For 0 bytes all rows go, and of those in files memory keeps the least that it can;
    /// for more than 0 none goes into files where memory keeps more of those there than of others.
    ///
    /// # Errors
    /// [`JoinError::Spill`] when a file cannot be written; the operator must not be used any more.
    pub fn make_room(&mut self, bytes_max: u64, rows_max: u64) -> Result<(), JoinError> {
        match self.limits.overflow {
            Overflow::Refuse => Ok(()),
            Overflow::Shed => {
                self.shed(bytes_max, rows_max);
                Ok(())
            }
            Overflow::Spill => self.spill(bytes_max, rows_max),
        }
    }

    /// Puts the oldest rows into files, more than enough of them: the fewer files there are, the
    /// fewer places an event has to look at.
    fn spill(&mut self, bytes_max: u64, rows_max: u64) -> Result<(), JoinError> {
        let now = self.state_bytes() - self.pooled_bytes();
        let bytes = now.saturating_sub(bytes_max / SPILL_TO);
        let rows = self.rows_in_memory().saturating_sub(rows_max / SPILL_TO);
        let is_too_much = now > bytes_max || self.rows_in_memory() > rows_max;
        let waiting_bytes = self.choices.as_ref().map_or(0, |choices| choices.row_bytes() as u64);
        let row_bytes = self.state.row_bytes() as u64 + waiting_bytes;
        // It is what is known of rows in files that fills memory: to have more there is no help.
        let is_hollow = now > bytes_max && bytes_max > 0 && row_bytes * SPILL_LEAST < now;
        if !is_too_much || is_hollow {
            return Ok(());
        }
        let ends = self.ends();
        let folder = self.spec.spill_to().map_or_else(std::env::temp_dir, Path::to_owned);
        let filter_bytes_max = usize::try_from(bytes_max / FILTER_SHARE).unwrap_or(usize::MAX);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let gone = self.state.spill(&folder, (bytes, rows), ends, filter_bytes_max);
        let gone = gone.map_err(JoinError::Spill)?;
        for (counters, gone) in self.counters.sides.iter_mut().zip(gone) {
            counters.spilled += gone.rows;
            counters.freed += gone.over;
        }
        if let Some(choices) = &mut self.choices {
            // A file for next to nothing would only be one more.
            let is_all = bytes_max == 0 || now <= bytes_max;
            if waiting_bytes > 0 && (is_all || waiting_bytes * SPILL_LEAST >= now) {
                choices.spill(&folder).map_err(JoinError::Spill)?;
            }
            if bytes_max == 0 {
                choices.forget();
            }
        }
        if bytes_max == 0 {
            self.state.forget_cold();
        }
        self.trim(0);
        Ok(())
    }

    /// Gives rows up, a time bucket at a time and those first whose end is the next, until at most
    /// so many bytes of state hold rows and so many rows are there, or none is. They are counted in
    /// [`SideCounters::shed`](crate::join::SideCounters::shed), match nothing any more, and come
    /// out no more. Nothing happens where not all matches count.
    pub fn shed(&mut self, bytes_max: u64, rows_max: u64) {
        if self.choices.is_some() {
            return;
        }
        let ends = self.ends();
        while self.rows_in_memory() > rows_max
            || self.state_bytes() - self.pooled_bytes() > bytes_max
        {
            let Some(shed) = self.state.shed_oldest(ends) else { break };
            let counters = &mut self.counters.sides[shed.side.index()];
            counters.shed += shed.rows;
            counters.shed_unmatched += shed.unmatched;
        }
        self.state.end_shedding();
        self.trim(0);
    }

    /// Rows in memory, dead ones that are not yet freed left out.
    pub fn rows_in_memory(&self) -> u64 {
        self.counters.buffered() - self.state.cold_row_count()
    }
}
