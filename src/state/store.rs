//! Keeping an event: into the run of its key and bucket, which is made or grown if need be.

use std::ptr::NonNull;

use super::arena::Handle;
use super::chain::{Link, Spot, find_spot};
use super::directory::{RUNS_WALKED_MAX, is_directory};
use super::expiry::Waiting;
use super::pass::{Pass, Scratch};
use super::probe::Visit;
use super::ring::Exhausted;
use super::run::{LATE, MATCHED, Run, SEQUENCE_MASK, Word, key_rest};
use super::table::{Entry, LINE_KEYS, Line};
use super::{State, StateFull};
use crate::event::Side;

/// Newer runs that the short way of keeping an event walks over.
const WALKED_AT_ONCE: u32 = 4;
/// How often the index is made twice as large for one row before state counts as full.
const GROWTH_TRIES: u32 = 4;

impl State {
    /// Keeps the events whose key had an entry when the batch came.
    #[inline(never)]
    pub(super) fn store_known<V: Visit>(
        &mut self,
        scratch: &Scratch,
        pass: &mut Pass<'_>,
        visit: &mut V,
    ) -> Result<(), StateFull> {
        let own = pass.side.index();
        // Nothing has to be noted of a row but the row itself.
        let is_plain = pass.classes.is_empty() && self.expiries[own].is_none();
        for at in 0..scratch.known.len() {
            let place = scratch.known.get(at);
            let entry = scratch.entry(place);
            let is_entry = entry.place < LINE_KEYS as u32 && pass.layout == self.index.layout();
            let matched = scratch.matched[usize::from(place)];
            let at_once = is_plain && is_entry && pass.ts(place) >= pass.probe.own_floor;
            if at_once && self.append_at_once(entry, place, matched, pass) {
                pass.stats.stored += 1;
            } else {
                self.store(place, is_entry.then_some(entry), matched, pass, visit)?;
            }
        }
        Ok(())
    }

    /// Keeps an event that makes its key's first run, or whose run is there and has room for it;
    /// returns whether it did.
    #[inline(always)]
    fn append_at_once(&mut self, entry: Entry, place: u8, matched: bool, pass: &Pass<'_>) -> bool {
        let own = pass.side.index();
        let (ring, arena) = (&mut self.rings[own], &self.arenas[own]);
        let (ts, mut handle) = (pass.ts(place), entry.head(pass.side));
        let flag = if matched { MATCHED } else { 0 };
        if !arena.is_live(handle) {
            return self.append_first(place, entry, flag, pass).is_ok();
        }
        // Directories are in bucket `i64::MIN`.
        let number = ring.bucket_for(ts, arena.bucket_of(handle));
        if is_directory(handle) {
            let directory = self.directories[own].get(handle);
            let Some(run) = directory.find(number, arena) else { return false };
            handle = run;
        }
        let mut walked = 0;
        while arena.is_live(handle) && arena.bucket_of(handle) > number && walked < WALKED_AT_ONCE {
            // SAFETY: a live handle of a chain leads to a run.
            handle = unsafe { Run::at(arena.address(handle)) }.older();
            walked += 1;
        }
        if !arena.is_live(handle) || arena.bucket_of(handle) != number {
            return false;
        }
        // SAFETY: as above.
        let run = unsafe { Run::at(arena.address(handle)) };
        let word = pass.word(place);
        let Some(word) = word.filter(|_| !run.is_full()) else { return false };
        run.push(ts, word, self.sequences[own] & SEQUENCE_MASK | flag);
        self.sequences[own] = self.sequences[own].wrapping_add(1);
        self.arenas[own].count_row(handle);
        true
    }

    /// Keeps an event whose key has no entry, or says that it is over.
    #[inline]
    pub(super) fn store_new<V: Visit>(
        &mut self,
        place: u8,
        home: NonNull<Line>,
        pass: &mut Pass<'_>,
        visit: &mut V,
    ) -> Result<(), StateFull> {
        if pass.ts(place) < pass.probe.own_floor {
            visit.over(pass.index(place));
            return Ok(());
        }
        let stored = match self.index.insert(pass.key(place), home, &self.arenas) {
            Some(entry) => self.append_first(place, entry, 0, pass),
            None => Err(Exhausted),
        };
        let stored = match stored {
            Ok(stored) => stored,
            Err(Exhausted) => self.append_after_cleaning(place, 0, pass)?,
        };
        self.note_stored(place, stored, false, pass);
        Ok(())
    }

    /// Keeps an event whose key has, or may have, an entry, or says that it is over.
    #[inline]
    pub(super) fn store<V: Visit>(
        &mut self,
        place: u8,
        entry: Option<Entry>,
        matched: bool,
        pass: &mut Pass<'_>,
        visit: &mut V,
    ) -> Result<(), StateFull> {
        if pass.ts(place) < pass.probe.own_floor {
            if !matched {
                visit.over(pass.index(place));
            }
            return Ok(());
        }
        let flags = if matched { MATCHED } else { 0 };
        let stored = match entry {
            Some(entry) => self.append(place, entry, flags, pass),
            None => Err(Exhausted),
        };
        let stored = match stored {
            Ok(stored) => stored,
            Err(Exhausted) => self.append_after_cleaning(place, flags, pass)?,
        };
        self.note_stored(place, stored, matched, pass);
        Ok(())
    }

    #[inline(always)]
    fn note_stored(
        &mut self,
        place: u8,
        (run, row): (Handle, u32),
        matched: bool,
        pass: &mut Pass<'_>,
    ) {
        pass.stats.stored += 1;
        if matched {
            return;
        }
        if let Some(expiry) = &mut self.expiries[pass.side.index()] {
            let arrival = self.arrivals + u64::from(place);
            expiry.push(pass.ts(place), Waiting { key: pass.key(place), arrival, run, row });
        }
    }

    /// Appends where the short way found no entry or no room: looks again, cleans, grows the index.
    #[cold]
    fn append_after_cleaning(
        &mut self,
        place: u8,
        flags: u32,
        pass: &Pass<'_>,
    ) -> Result<(Handle, u32), StateFull> {
        let key = pass.key(place);
        for attempt in 0..=GROWTH_TRIES {
            let entry = match self.search(key) {
                Some(entry) => Some(entry),
                None => self.index.insert_beyond(key, &self.arenas),
            };
            match entry.map(|entry| self.append(place, entry, flags, pass)) {
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
    fn tag(&self, place: u8, flags: u32, pass: &Pass<'_>) -> u32 {
        let late = if pass.is_late(place) { LATE } else { 0 };
        self.sequences[pass.side.index()] & SEQUENCE_MASK | flags | late
    }

    /// Makes the first run of a key on its side.
    #[inline(always)]
    fn append_first(
        &mut self,
        place: u8,
        entry: Entry,
        flags: u32,
        pass: &Pass<'_>,
    ) -> Result<(Handle, u32), Exhausted> {
        let own = pass.side.index();
        let ts = pass.ts(place);
        let (rest, tag) = (key_rest(pass.key(place)), self.tag(place, flags, pass));
        let (ring, arena) = (&mut self.rings[own], &mut self.arenas[own]);
        let bucket = ring.place(ring.number_of(ts), arena)?;
        let (handle, address) = ring.allocate_run(bucket, 0, arena)?;
        let word = match pass.word(place) {
            Some(word) => word,
            None => ring.keep_long_row(bucket, pass.stored_row(place)),
        };
        // SAFETY: the ring handed out `run_bytes` bytes, aligned to 16, for this run alone.
        unsafe { Run::create_single(address, rest, 0, ts, word, tag) };
        entry.set_head(pass.side, handle);
        arena.count_row(handle);
        self.sequences[own] = self.sequences[own].wrapping_add(1);
        Ok((handle, 0))
    }

    /// Appends a row to the run of its key and bucket. Returns the run and the place in it.
    #[inline]
    fn append(
        &mut self,
        place: u8,
        entry: Entry,
        flags: u32,
        pass: &Pass<'_>,
    ) -> Result<(Handle, u32), Exhausted> {
        let own = pass.side.index();
        let head = entry.head(pass.side);
        let arena = &self.arenas[own];
        if !arena.is_live(head) {
            return self.append_first(place, entry, flags, pass);
        }
        let newest = arena.bucket_of(head);
        if newest == self.rings[own].bucket_for(pass.ts(place), newest) {
            // SAFETY: a live handle of a chain leads to a run; directories are in no bucket.
            let run = unsafe { Run::at(arena.address(head)) };
            if !run.is_full()
                && let Some(word) = pass.word(place)
            {
                return Ok(self.push(place, (head, run), word, flags, pass));
            }
        }
        self.append_to_chain(place, entry, flags, pass)
    }

    /// Puts a row into a run that has room.
    #[inline]
    fn push(
        &mut self,
        place: u8,
        (handle, run): (Handle, Run),
        word: Word,
        flags: u32,
        pass: &Pass<'_>,
    ) -> (Handle, u32) {
        let own = pass.side.index();
        let row = run.len() as u32;
        run.push(pass.ts(place), word, self.tag(place, flags, pass));
        self.sequences[own] = self.sequences[own].wrapping_add(1);
        self.arenas[own].count_row(handle);
        (handle, row)
    }

    #[inline(never)]
    fn append_to_chain(
        &mut self,
        place: u8,
        entry: Entry,
        flags: u32,
        pass: &Pass<'_>,
    ) -> Result<(Handle, u32), Exhausted> {
        let (side, own) = (pass.side, pass.side.index());
        let newest = self.arenas[own].bucket_of(entry.head(side));
        let number = self.rings[own].bucket_for(pass.ts(place), newest);
        let (spot, walked) = find_spot(self, entry, side, number);
        if let Spot::Here(handle, run) = spot
            && let Some(word) = pass.word(place)
        {
            return Ok(self.push(place, (handle, run), word, flags, pass));
        }
        let bucket = self.rings[own].place(number, &mut self.arenas[own])?;
        let (handle, run) = match spot {
            Spot::Here(handle, run) => (handle, run),
            Spot::Grow(old, link) => {
                let (handle, run) = self.grow_run(own, bucket, old)?;
                self.set_link(link, entry, side, handle);
                (handle, run)
            }
            Spot::New { capacity_log2, link, older } => {
                let (handle, address) =
                    self.rings[own].allocate_run(bucket, capacity_log2, &mut self.arenas[own])?;
                let rest = key_rest(pass.key(place));
                // SAFETY: the ring handed out `run_bytes` bytes, aligned to 16, for this run alone.
                let run = unsafe { Run::create(address, rest, capacity_log2, older) };
                self.set_link(link, entry, side, handle);
                (handle, run)
            }
        };
        let word = match pass.word(place) {
            Some(word) => word,
            None => self.rings[own].keep_long_row(bucket, pass.stored_row(place)),
        };
        let stored = self.push(place, (handle, run), word, flags, pass);
        if walked > RUNS_WALKED_MAX {
            self.make_directory(side, entry);
        }
        Ok(stored)
    }

    /// Moves a full run into one of twice its capacity.
    #[inline(never)]
    fn grow_run(
        &mut self,
        own: usize,
        bucket: usize,
        old: Run,
    ) -> Result<(Handle, Run), Exhausted> {
        let capacity_log2 = old.capacity_log2() + 1;
        let (handle, address) =
            self.rings[own].allocate_run(bucket, capacity_log2, &mut self.arenas[own])?;
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
