//! A batch against the state: find, probe, append, in phases over the whole batch.

use super::arena::Handle;
use super::expiry::Waiting;
use super::index::Home;
use super::ring::Exhausted;
use super::run::{
    CAPACITY_LOG2_MAX, LATE, MATCHED, Run, SEQUENCE_MASK, Word, key_rest, prefetch, run_bytes,
};
use super::table::{Entry, Found};
use super::{State, StateFull};
use crate::event::{EventBatch, Side};
use crate::limits::BATCH_EVENTS_MAX;
use crate::time::Interval;

/// How often the index is made half as large again for one row before state counts as full.
const GROWTH_TRIES: u32 = 4;

/// What to do with an event of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Match and keep.
    OnTime,
    /// Match and keep, counted apart.
    Late,
    /// Leave out.
    Skip,
}

/// How a batch is to be matched with the other side.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// The interval as this side sees its partners: of `partner.ts - own.ts`.
    pub interval: Interval,
    /// Partners with smaller times are freed, though their memory may still be there.
    pub partner_floor: i64,
    /// Events with smaller times are matched but not kept: their interval is over.
    pub own_floor: i64,
}

/// A buffered event of the other side.
#[derive(Clone, Copy, Debug)]
pub struct Partner<'a> {
    /// Its time.
    pub ts: i64,
    /// Its stored bytes.
    pub row: &'a [u8],
    /// Whether it was matched before.
    pub matched: bool,
}

/// Takes what a batch finds.
pub trait Visit {
    /// A partner of event `index` of the batch. Partners of one event come in the order in which
    /// they were stored. Returns whether the two match, once whatever else must hold was checked.
    fn partner(&mut self, index: usize, partner: Partner<'_>) -> bool;

    /// Event `index` is not kept, because its interval is over, and nothing matched it.
    fn over(&mut self, index: usize);
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchStats {
    /// Matches.
    pub pairs: u64,
    /// Events that were stored.
    pub stored: u64,
    /// On-time events of the batch with a match.
    pub matched: u64,
    /// Late events of the batch with a match.
    pub late_matched: u64,
    /// Buffered on-time partners that had no match before.
    pub partners_matched: u64,
    /// Buffered late partners that had no match before.
    pub late_partners_matched: u64,
}

/// A match within a run.
#[derive(Clone, Copy)]
struct Hit {
    /// Older rows have smaller ages.
    age: u32,
    row: u32,
    run: Run,
}

/// An event on its way through the phases.
#[derive(Clone, Copy)]
struct Item {
    key: u64,
    home: Home,
    index: u32,
    late: bool,
}

/// Memory that the phases use again and again.
pub(crate) struct Scratch {
    items: Vec<Item>,
    deferred: Vec<(Item, Entry)>,
    hits: Vec<Hit>,
    selected: Vec<u32>,
}

// SAFETY: the pointers in it are used only within one call of `join_batch`.
unsafe impl Send for Scratch {}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch {
            items: Vec::with_capacity(BATCH_EVENTS_MAX),
            deferred: Vec::with_capacity(BATCH_EVENTS_MAX),
            hits: Vec::with_capacity(1024),
            selected: Vec::with_capacity(1024),
        }
    }
}

/// One batch on its way: what the phases share.
struct Pass<'a> {
    side: Side,
    batch: &'a EventBatch,
    probe: Probe,
    stats: BatchStats,
    /// The layout of the index that homes and entries were found in.
    layout: u32,
}

impl State {
    /// Matches the events `from..to` of a batch with the other side and keeps them.
    ///
    /// `classes` is empty (all events are on time) or says for each event of the batch what to do.
    ///
    /// # Errors
    /// [`StateFull`]; events before the one that did not fit are done, the rest is not.
    pub fn join_batch<V: Visit>(
        &mut self,
        batch: &EventBatch,
        range: std::ops::Range<usize>,
        classes: &[Class],
        probe: Probe,
        visit: &mut V,
    ) -> Result<BatchStats, StateFull> {
        debug_assert!(range.len() <= BATCH_EVENTS_MAX);
        let mut scratch = std::mem::replace(&mut self.scratch, Scratch::unused());
        self.index.grow(range.len(), &self.arenas);
        self.widen_and_clean();
        let mut pass = Pass {
            side: batch.side(),
            batch,
            probe,
            stats: BatchStats::default(),
            layout: self.index.layout(),
        };
        self.look_up(&mut scratch.items, batch, range, classes);
        let done = self
            .find_and_insert_new(&mut scratch, &mut pass, visit)
            .and_then(|()| self.probe_and_append(&mut scratch, &mut pass, visit));
        self.scratch = scratch;
        self.arrivals += batch.len() as u64;
        done.map(|()| pass.stats)
    }

    fn widen_and_clean(&mut self) {
        for side in 0..2 {
            self.rings[side].widen_if_crowded(&mut self.arenas[side]);
        }
        self.clean_step();
    }

    /// Phase 1: ask for the index lines.
    #[inline(never)]
    fn look_up(
        &mut self,
        items: &mut Vec<Item>,
        batch: &EventBatch,
        range: std::ops::Range<usize>,
        classes: &[Class],
    ) {
        items.clear();
        let keys = batch.keys();
        for index in range {
            let class = classes.get(index).copied().unwrap_or(Class::OnTime);
            if class == Class::Skip {
                continue;
            }
            let key = keys[index];
            let home = self.index.prefetch(key);
            items.push(Item { key, home, index: index as u32, late: class == Class::Late });
        }
    }

    /// Phase 2: find the keys. Whatever has no entry has no partner and is stored at once.
    #[inline(never)]
    fn find_and_insert_new<V: Visit>(
        &mut self,
        scratch: &mut Scratch,
        pass: &mut Pass<'_>,
        visit: &mut V,
    ) -> Result<(), StateFull> {
        let (own, other) = (pass.side, pass.side.other());
        scratch.deferred.clear();
        for &item in &scratch.items {
            let item = Item { home: self.home(&item, pass.layout), ..item };
            match self.index.find(item.key, item.home, 0, &self.arenas) {
                Found::Candidate(entry) => {
                    // Dead handles lead nowhere; a prefetch of nowhere costs nothing.
                    prefetch(self.arenas[other.index()].address(entry.head(other)));
                    prefetch(self.arenas[own.index()].address(entry.head(own)));
                    scratch.deferred.push((item, entry));
                }
                Found::Absent => self.store(item, None, false, pass, visit)?,
            }
        }
        Ok(())
    }

    /// Phase 3: probe the other side's runs and append to our own.
    #[inline(never)]
    fn probe_and_append<V: Visit>(
        &mut self,
        scratch: &mut Scratch,
        pass: &mut Pass<'_>,
        visit: &mut V,
    ) -> Result<(), StateFull> {
        let other = pass.side.other();
        let Scratch { deferred, hits, selected, .. } = scratch;
        for &(item, hint) in deferred.iter() {
            let item = Item { home: self.home(&item, pass.layout), ..item };
            let is_key = pass.layout == self.index.layout() && self.is_key(hint, item.key);
            let entry = if is_key { Some(hint) } else { self.search(&item) };
            let mut matched = false;
            if let Some(entry) = entry {
                let head = entry.head(other);
                if self.arenas[other.index()].is_live(head) {
                    let ts = pass.batch.timestamps()[item.index as usize];
                    let (lo, hi) = pass.probe.interval.range(ts);
                    let lo = lo.max(pass.probe.partner_floor);
                    let sorted = self.collect(other, head, lo, hi, hits, selected);
                    if !sorted {
                        hits.sort_by_key(|hit| hit.age);
                    }
                    matched = hand_over(hits, item.index as usize, pass, visit);
                }
            }
            self.store(item, entry, matched, pass, visit)?;
        }
        Ok(())
    }

    /// The home line of an item, also after the index had to grow in the middle of a batch.
    #[inline]
    fn home(&self, item: &Item, layout: u32) -> Home {
        if layout == self.index.layout() { item.home } else { self.index.prefetch(item.key) }
    }

    /// Whether an entry with the tag of `key`, which is live, is the key's.
    #[inline]
    fn is_key(&self, entry: Entry, key: u64) -> bool {
        let left = entry.head(Side::Left);
        let address = if self.arenas[0].is_live(left) {
            self.arenas[0].address(left)
        } else {
            self.arenas[1].address(entry.head(Side::Right))
        };
        // SAFETY: a candidate has a live head, and heads are handles of runs.
        unsafe { Run::at(address) }.rest() == key_rest(key)
    }

    /// Looks again, through all candidates.
    #[cold]
    fn search(&self, item: &Item) -> Option<Entry> {
        let home = self.index.prefetch(item.key);
        for skip in 0.. {
            match self.index.find(item.key, home, skip, &self.arenas) {
                Found::Candidate(entry) if self.is_key(entry, item.key) => return Some(entry),
                Found::Candidate(_) => {}
                Found::Absent => break,
            }
        }
        None
    }

    /// Collects the rows of the chain from `head` on with times in `[lo, hi]`. Returns whether they
    /// stand in the order of insertion.
    #[inline]
    fn collect(
        &self,
        side: Side,
        head: Handle,
        lo: i64,
        hi: i64,
        hits: &mut Vec<Hit>,
        selected: &mut Vec<u32>,
    ) -> bool {
        hits.clear();
        let arena = &self.arenas[side.index()];
        let ring = &self.rings[side.index()];
        let (first, last) = (ring.number_of(lo), ring.number_of(hi));
        let now = self.sequences[side.index()];
        let (mut handle, mut sorted) = (head, true);
        while arena.is_live(handle) {
            let bucket = arena.bucket_of(handle);
            if bucket < first {
                break;
            }
            // SAFETY: a live handle of a chain leads to a run.
            let run = unsafe { Run::at(arena.address(handle)) };
            handle = run.older();
            if bucket > last {
                continue;
            }
            let before = hits.len();
            collect_from_run(run, lo, hi, now, &self.filter, hits, selected);
            // Chains go from newer buckets to older ones: with two runs, order is not certain.
            sorted &=
                before == 0 || before == hits.len() || hits[before - 1].age < hits[before].age;
        }
        sorted
    }

    /// Keeps an event, or says that it is over.
    #[inline]
    fn store<V: Visit>(
        &mut self,
        item: Item,
        entry: Option<Entry>,
        matched: bool,
        pass: &mut Pass<'_>,
        visit: &mut V,
    ) -> Result<(), StateFull> {
        let index = item.index as usize;
        let ts = pass.batch.timestamps()[index];
        if matched {
            pass.stats.matched += u64::from(!item.late);
            pass.stats.late_matched += u64::from(item.late);
        }
        if ts < pass.probe.own_floor {
            if !matched {
                visit.over(index);
            }
            return Ok(());
        }
        let flags = if matched { MATCHED } else { 0 } | if item.late { LATE } else { 0 };
        let row = pass.batch.stored_row(index);
        let side = pass.side;
        let (run, place) = match self.append(side, item, entry, ts, row, flags) {
            Ok(stored) => stored,
            Err(Exhausted) => self.append_after_cleaning(side, item, ts, row, flags)?,
        };
        pass.stats.stored += 1;
        if !matched && let Some(expiry) = &mut self.expiries[side.index()] {
            let arrival = self.arrivals + u64::from(item.index);
            expiry.push(Waiting { ts, key: item.key, arrival, run, row: place });
        }
        Ok(())
    }

    #[cold]
    fn append_after_cleaning(
        &mut self,
        side: Side,
        item: Item,
        ts: i64,
        row: &[u8],
        flags: u32,
    ) -> Result<(Handle, u32), StateFull> {
        self.widen_and_clean();
        self.clean_now();
        let mut item = item;
        let mut stored = Err(Exhausted);
        for _ in 0..GROWTH_TRIES {
            // An entry made just now for this key has no live head yet; look again.
            let entry = self.search(&item);
            item.home = self.index.prefetch(item.key);
            stored = self.append(side, item, entry, ts, row, flags);
            if stored.is_ok() || self.arenas[side.index()].free_number_count() == 0 {
                break;
            }
            // No line near the key's has room, which a table that keeps up does not let happen.
            self.index.grow_now(&self.arenas);
        }
        stored.map_err(|Exhausted| StateFull)
    }

    /// Appends a row to the run of its key and bucket. Returns the run and the place in it.
    #[inline]
    fn append(
        &mut self,
        side: Side,
        item: Item,
        entry: Option<Entry>,
        ts: i64,
        row: &[u8],
        flags: u32,
    ) -> Result<(Handle, u32), Exhausted> {
        let own = side.index();
        let number = self.rings[own].number_of(ts);
        let place = self.rings[own].place(number, &mut self.arenas[own])?;
        let entry = match entry {
            Some(entry) => entry,
            None => self.insert_entry(&item)?,
        };
        let spot = find_spot(&self.arenas[own], entry, side, number);
        let tag = self.sequences[own] & SEQUENCE_MASK | flags;
        let (handle, run) = match spot.room {
            Room::Here(handle, run) => (handle, run),
            Room::Grow(old) => self.grow_run(own, place, old)?,
            Room::New(capacity_log2) => {
                let (handle, address) =
                    self.rings[own].allocate_run(place, capacity_log2, &mut self.arenas[own])?;
                // SAFETY: the ring handed out `run_bytes` bytes, aligned to 16, for this run alone.
                let run =
                    unsafe { Run::create(address, key_rest(item.key), capacity_log2, spot.older) };
                (handle, run)
            }
        };
        match spot.link {
            _ if matches!(spot.room, Room::Here(..)) => {}
            Link::Entry => entry.set_head(side, handle),
            Link::Run(newer) => newer.set_older(handle),
        }
        let word: Word = self.rings[own].keep_row(place, row);
        let row = run.len() as u32;
        run.push(ts, word, tag);
        self.sequences[own] = self.sequences[own].wrapping_add(1);
        Ok((handle, row))
    }

    #[inline]
    fn insert_entry(&mut self, item: &Item) -> Result<Entry, Exhausted> {
        match self.index.insert(item.key, item.home, &self.arenas) {
            Some(entry) => Ok(entry),
            None => Err(Exhausted),
        }
    }

    /// Moves a full run into one of twice its capacity, which takes its place in the chain.
    #[cold]
    fn grow_run(&mut self, own: usize, place: usize, old: Run) -> Result<(Handle, Run), Exhausted> {
        let capacity_log2 = old.capacity_log2() + 1;
        debug_assert!(capacity_log2 <= CAPACITY_LOG2_MAX && run_bytes(capacity_log2) > 0);
        let (handle, address) =
            self.rings[own].allocate_run(place, capacity_log2, &mut self.arenas[own])?;
        // SAFETY: the ring handed out `run_bytes` bytes, aligned to 16, for this run alone.
        let run = unsafe { Run::create(address, old.rest(), capacity_log2, old.older()) };
        run.push_all(old);
        old.set_moved(handle);
        Ok((handle, run))
    }
}

impl Scratch {
    /// What stands in for the scratch while it is lent out.
    fn unused() -> Scratch {
        Scratch { items: Vec::new(), deferred: Vec::new(), hits: Vec::new(), selected: Vec::new() }
    }
}

/// Where a row of a bucket goes in its key's chain.
struct Spot {
    room: Room,
    link: Link,
    older: Handle,
}

enum Room {
    Here(Handle, Run),
    Grow(Run),
    New(u32),
}

/// What names the run at a spot.
enum Link {
    Entry,
    Run(Run),
}

/// Walks the chain, which goes from newer buckets to older ones, to the run of bucket `number`.
#[inline]
fn find_spot(arena: &super::arena::Arena, entry: Entry, side: Side, number: i64) -> Spot {
    let (mut link, mut handle) = (Link::Entry, entry.head(side));
    // A new run is as long as its neighbour in the chain: keys keep their pace.
    let mut pace = 0;
    while arena.is_live(handle) {
        let bucket = arena.bucket_of(handle);
        // SAFETY: a live handle of a chain leads to a run.
        let run = unsafe { Run::at(arena.address(handle)) };
        if bucket < number {
            pace = run.len();
            break;
        }
        if bucket == number {
            if !run.is_full() {
                return Spot { room: Room::Here(handle, run), link, older: 0 };
            }
            if run.capacity_log2() < CAPACITY_LOG2_MAX {
                return Spot { room: Room::Grow(run), link, older: 0 };
            }
            pace = run.len();
            break;
        }
        pace = run.len();
        link = Link::Run(run);
        handle = run.older();
    }
    let older = if arena.is_live(handle) { handle } else { 0 };
    let capacity_log2 = pace.max(1).next_power_of_two().ilog2().min(CAPACITY_LOG2_MAX);
    Spot { room: Room::New(capacity_log2), link, older }
}

/// Appends to `hits` the rows of a run with times in `[lo, hi]`.
#[inline]
fn collect_from_run(
    run: Run,
    lo: i64,
    hi: i64,
    now: u32,
    filter: &super::Filter,
    hits: &mut Vec<Hit>,
    selected: &mut Vec<u32>,
) {
    const SHORT: usize = 4;
    // Rows that were stored earlier are further behind `now`, modulo the range of the sequence.
    let age_of = |row: usize| run.tag(row).wrapping_sub(now) & SEQUENCE_MASK;
    let timestamps = run.timestamps();
    if timestamps.len() <= SHORT {
        for (row, &ts) in timestamps.iter().enumerate() {
            if lo <= ts && ts <= hi {
                hits.push(Hit { age: age_of(row), row: row as u32, run });
            }
        }
        return;
    }
    selected.clear();
    filter.select(timestamps, lo, hi, selected);
    hits.extend(selected.iter().map(|&row| Hit { age: age_of(row as usize), row, run }));
}

/// Hands the partners of one event over; returns whether any matched.
#[inline]
fn hand_over<V: Visit>(hits: &[Hit], index: usize, pass: &mut Pass<'_>, visit: &mut V) -> bool {
    let mut any = false;
    for hit in hits {
        let row = hit.row as usize;
        let tag = hit.run.tag(row);
        let partner = Partner {
            ts: hit.run.ts(row),
            row: hit.run.row(row, tag),
            matched: tag & MATCHED != 0,
        };
        if !visit.partner(index, partner) {
            continue;
        }
        any = true;
        pass.stats.pairs += 1;
        if tag & MATCHED == 0 {
            hit.run.set_tag(row, tag | MATCHED);
            pass.stats.partners_matched += u64::from(tag & LATE == 0);
            pass.stats.late_partners_matched += u64::from(tag & LATE != 0);
        }
    }
    any
}
