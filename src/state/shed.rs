//! Giving rows up before their end, a bucket at a time, when there is no room for them.

use super::State;
use super::run::{MATCHED, Run};
use super::ttl::back_of;
use crate::event::Side;

/// Rows that were given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed {
    /// Their side.
    pub side: Side,
    /// How many they are.
    pub rows: u64,
    /// Of these, those without a match.
    pub unmatched: u64,
}

impl State {
    /// Gives the oldest bucket up, of the side whose oldest ends first. Its rows come out of
    /// [`expire`](State::expire) no more. `ends` are what a side's rows have to add to their time
    /// to get their end. `None` when there is no row.
    pub fn shed_oldest(&mut self, ends: [i128; 2]) -> Option<Shed> {
        let oldest = |side: Side| {
            let ring = &self.rings[side.index()];
            let last = ring.last_time_of(ring.oldest()?);
            Some((i128::from(last) + ends[side.index()], side.index(), last, side))
        };
        let (_, own, last, side) =
            Side::BOTH.into_iter().filter_map(oldest).min_by_key(|oldest| (oldest.0, oldest.1))?;
        let (oldest_back, next) = (self.oldest_back(side), self.sequences[own]);
        let State { rings, arenas, expiries, .. } = self;
        let (ring, arena) = (&mut rings[own], &mut arenas[own]);
        let mut unmatched = 0;
        ring.each_run_of_oldest(|run| unmatched += unmatched_in(run, oldest_back, next));
        if let Some(expiry) = &mut expiries[own] {
            let oldest = ring.oldest();
            expiry.remove(last, |waiting| Some(arena.bucket_of(waiting.run)) == oldest);
            expiry.trim();
        }
        let rows = ring.retire_oldest(1, arena);
        Some(Shed { side, rows, unmatched })
    }

    /// Gives memory back that is of no use once many rows are gone: to be called after
    /// [`shed_oldest`](Self::shed_oldest) has shed enough.
    pub fn end_shedding(&mut self) {
        self.shrink_index();
    }
}

/// Rows without a match, of those that are alive.
fn unmatched_in(run: Run, oldest_back: u32, next: u32) -> u64 {
    let tags = (0..run.len()).map(|row| run.stored(row).tag());
    tags.filter(|&tag| tag & MATCHED == 0 && back_of(tag, next) <= oldest_back).count() as u64
}
