//! Keeping an event: into the run of its key and bucket, which is made or grown if need be.

use std::ptr::NonNull;

use super::arena::Handle;
use super::chain::{Link, Spot, find_spot};
use super::directory::RUNS_WALKED_MAX;
use super::expiry::Waiting;
use super::probe::{Pass, Visit};
use super::ring::Exhausted;
use super::run::{LATE, MATCHED, Run, SEQUENCE_MASK, key_rest};
use super::table::{Entry, Line};
use super::{State, StateFull};
use crate::event::Side;

/// How often the index is made half as large again for one row before state counts as full.
const GROWTH_TRIES: u32 = 4;

impl State {
    /// Keeps an event whose key has no entry, or says that it is over.
    #[inline]
    pub(super) fn store_new<V: Visit>(
        &mut self,
        index: usize,
        home: NonNull<Line>,
        pass: &mut Pass<'_>,
        visit: &mut V,
    ) -> Result<(), StateFull> {
        if pass.ts(index) < pass.probe.own_floor {
            visit.over(index);
            return Ok(());
        }
        let stored = match self.index.insert(pass.key(index), home, &self.arenas) {
            Some(entry) => self.append_first(index, entry, 0, pass),
            None => Err(Exhausted),
        };
        let stored = match stored {
            Ok(stored) => stored,
            Err(Exhausted) => self.append_after_cleaning(index, 0, pass)?,
        };
        self.note_stored(index, stored, false, pass);
        Ok(())
    }

    /// Keeps an event whose key has, or may have, an entry, or says that it is over.
    #[inline]
    pub(super) fn store<V: Visit>(
        &mut self,
        index: usize,
        entry: Option<Entry>,
        matched: bool,
        pass: &mut Pass<'_>,
        visit: &mut V,
    ) -> Result<(), StateFull> {
        if matched {
            let is_late = pass.is_late(index);
            pass.stats.matched += u64::from(!is_late);
            pass.stats.late_matched += u64::from(is_late);
        }
        if pass.ts(index) < pass.probe.own_floor {
            if !matched {
                visit.over(index);
            }
            return Ok(());
        }
        let flags = if matched { MATCHED } else { 0 };
        let stored = match entry {
            Some(entry) if !self.arenas[pass.side.index()].is_live(entry.head(pass.side)) => {
                self.append_first(index, entry, flags, pass)
            }
            Some(entry) => self.append(index, entry, flags, pass),
            None => Err(Exhausted),
        };
        let stored = match stored {
            Ok(stored) => stored,
            Err(Exhausted) => self.append_after_cleaning(index, flags, pass)?,
        };
        self.note_stored(index, stored, matched, pass);
        Ok(())
    }

    #[inline(always)]
    fn note_stored(
        &mut self,
        index: usize,
        (run, row): (Handle, u32),
        matched: bool,
        pass: &mut Pass<'_>,
    ) {
        pass.stats.stored += 1;
        if matched {
            return;
        }
        if let Some(expiry) = &mut self.expiries[pass.side.index()] {
            let arrival = self.arrivals + index as u64;
            expiry.push(Waiting { ts: pass.ts(index), key: pass.key(index), arrival, run, row });
        }
    }

    /// Appends where the short way found no entry or no room: looks again, cleans, grows the index.
    #[cold]
    fn append_after_cleaning(
        &mut self,
        index: usize,
        flags: u32,
        pass: &Pass<'_>,
    ) -> Result<(Handle, u32), StateFull> {
        let key = pass.key(index);
        for attempt in 0..=GROWTH_TRIES {
            let entry = match self.search(key) {
                Some(entry) => Some(entry),
                None => self.index.insert(key, self.index.home(key), &self.arenas),
            };
            match entry.map(|entry| self.append(index, entry, flags, pass)) {
                Some(Ok(stored)) => return Ok(stored),
                // Chunk numbers have run out: end a round, make buckets wider.
                Some(Err(Exhausted)) if attempt == 0 => {
                    self.widen_and_clean();
                    self.clean_now();
                }
                Some(Err(Exhausted)) => break,
                // No line near the key's has room, which a table that keeps up does not let happen.
                None => self.index.grow_now(&self.arenas),
            }
        }
        Err(StateFull)
    }

    /// The tag of a row about to be stored.
    #[inline]
    fn tag(&self, index: usize, flags: u32, pass: &Pass<'_>) -> u32 {
        let late = if pass.is_late(index) { LATE } else { 0 };
        self.sequences[pass.side.index()] & SEQUENCE_MASK | flags | late
    }

    /// Makes the first run of a key on its side.
    #[inline(always)]
    fn append_first(
        &mut self,
        index: usize,
        entry: Entry,
        flags: u32,
        pass: &Pass<'_>,
    ) -> Result<(Handle, u32), Exhausted> {
        let own = pass.side.index();
        let ts = pass.ts(index);
        let (ring, arena) = (&mut self.rings[own], &mut self.arenas[own]);
        let place = ring.place(ring.number_of(ts), arena)?;
        let (handle, address) = ring.allocate_run(place, 0, arena)?;
        let word = ring.keep_row(place, pass.batch.stored_row(index));
        let (rest, tag) = (key_rest(pass.key(index)), self.tag(index, flags, pass));
        // SAFETY: the ring handed out `run_bytes` bytes, aligned to 16, for this run alone.
        unsafe { Run::create_single(address, rest, 0, ts, word, tag) };
        entry.set_head(pass.side, handle);
        self.sequences[own] = self.sequences[own].wrapping_add(1);
        Ok((handle, 0))
    }

    /// Appends a row to the run of its key and bucket. Returns the run and the place in it.
    fn append(
        &mut self,
        index: usize,
        entry: Entry,
        flags: u32,
        pass: &Pass<'_>,
    ) -> Result<(Handle, u32), Exhausted> {
        let (side, own) = (pass.side, pass.side.index());
        let (key, ts) = (pass.key(index), pass.ts(index));
        let number = self.rings[own].number_of(ts);
        let place = self.rings[own].place(number, &mut self.arenas[own])?;
        let (spot, walked) = find_spot(self, entry, side, number);
        let (handle, run) = match spot {
            Spot::Here(handle, run) => (handle, run),
            Spot::Grow(old, link) => {
                let (handle, run) = self.grow_run(own, place, old)?;
                self.set_link(link, entry, side, handle);
                (handle, run)
            }
            Spot::New { capacity_log2, link, older } => {
                let (handle, address) =
                    self.rings[own].allocate_run(place, capacity_log2, &mut self.arenas[own])?;
                // SAFETY: the ring handed out `run_bytes` bytes, aligned to 16, for this run alone.
                let run = unsafe { Run::create(address, key_rest(key), capacity_log2, older) };
                self.set_link(link, entry, side, handle);
                (handle, run)
            }
        };
        let word = self.rings[own].keep_row(place, pass.batch.stored_row(index));
        let row = run.len() as u32;
        run.push(ts, word, self.tag(index, flags, pass));
        self.sequences[own] = self.sequences[own].wrapping_add(1);
        if walked > RUNS_WALKED_MAX {
            self.make_directory(side, entry);
        }
        Ok((handle, row))
    }

    /// Moves a full run into one of twice its capacity.
    #[inline(never)]
    fn grow_run(&mut self, own: usize, place: usize, old: Run) -> Result<(Handle, Run), Exhausted> {
        let capacity_log2 = old.capacity_log2() + 1;
        let (handle, address) =
            self.rings[own].allocate_run(place, capacity_log2, &mut self.arenas[own])?;
        // SAFETY: the ring handed out `run_bytes` bytes, aligned to 16, for this run alone.
        let run = unsafe { Run::create(address, old.rest(), capacity_log2, old.older()) };
        run.push_all(old);
        old.set_moved(handle);
        Ok((handle, run))
    }

    #[inline]
    fn set_link(&mut self, link: Link, entry: Entry, side: Side, run: Handle) {
        match link {
            Link::Entry => entry.set_head(side, run),
            Link::Run(newer) => newer.set_older(run),
            Link::Directory => {
                let directory = self.directories[side.index()].get_mut(entry.head(side));
                directory.set(run, &self.arenas[side.index()]);
            }
        }
    }
}
