//! A batch against the state: find, probe, append, in phases over the whole batch.

use std::ops::Range;
use std::ptr::NonNull;

use super::chain::Hits;
use super::directory::is_directory;
use super::run::{Run, key_rest, prefetch};
use super::table::{Entry, Found, Line};
use super::{State, StateFull};
use crate::event::{EventBatch, Side};
use crate::limits::BATCH_EVENTS_MAX;
use crate::time::Interval;

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
    /// The partners of event `index` of the batch follow, at least one.
    fn begin(&mut self, index: usize);

    /// A partner of the current event. Partners of one event come in the order in which they were
    /// stored. Returns whether the two match, once whatever else must hold was checked.
    fn partner(&mut self, partner: Partner<'_>) -> bool;

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

/// Memory that the phases use again and again.
pub(super) struct Scratch {
    /// The home lines of the batch's events.
    homes: Box<[NonNull<Line>; BATCH_EVENTS_MAX]>,
    /// Events whose key has an entry, and the entry.
    deferred: Vec<(u32, Entry)>,
    hits: Hits,
}

// SAFETY: the pointers in it are used only within one call of `join_batch`.
unsafe impl Send for Scratch {}

impl Scratch {
    pub(super) fn new() -> Scratch {
        Scratch {
            homes: Box::new([NonNull::dangling(); BATCH_EVENTS_MAX]),
            deferred: Vec::with_capacity(BATCH_EVENTS_MAX),
            hits: Hits::default(),
        }
    }
}

/// One batch on its way: what the phases share.
pub(super) struct Pass<'a> {
    pub(super) side: Side,
    pub(super) batch: &'a EventBatch,
    classes: &'a [Class],
    pub(super) probe: Probe,
    pub(super) stats: BatchStats,
    /// The layout of the index that homes and entries were found in.
    layout: u32,
}

impl Pass<'_> {
    #[inline]
    pub(super) fn is_late(&self, index: usize) -> bool {
        self.classes.get(index) == Some(&Class::Late)
    }

    #[inline]
    pub(super) fn key(&self, index: usize) -> u64 {
        self.batch.keys()[index]
    }

    #[inline]
    pub(super) fn ts(&self, index: usize) -> i64 {
        self.batch.timestamps()[index]
    }
}

impl State {
    /// Matches the events in `range` of a batch, at most
    /// [`BATCH_EVENTS_MAX`], with the other side and keeps them.
    ///
    /// `classes` is empty (all events are on time) or says for each event of the batch what to do.
    ///
    /// # Errors
    /// [`StateFull`]; events before the one that did not fit are done, the rest is not.
    ///
    /// # Panics
    /// When `range` is longer than that, or not within the batch.
    pub fn join_batch<V: Visit>(
        &mut self,
        batch: &EventBatch,
        range: Range<usize>,
        classes: &[Class],
        probe: Probe,
        visit: &mut V,
    ) -> Result<BatchStats, StateFull> {
        assert!(range.len() <= BATCH_EVENTS_MAX && range.end <= batch.len());
        self.index.grow(range.len(), &self.arenas);
        self.widen_and_clean();
        let mut pass = Pass {
            side: batch.side(),
            batch,
            classes,
            probe,
            stats: BatchStats::default(),
            layout: self.index.layout(),
        };
        let Some(mut scratch) = self.scratch.take() else { return Err(StateFull) };
        let homes = &mut scratch.homes[..range.len()];
        self.index.prefetch_all(&batch.keys()[range.clone()], homes);
        let done = self
            .find_and_store_new(&mut scratch, range, &mut pass, visit)
            .and_then(|()| self.probe_and_store(&mut scratch, &mut pass, visit));
        self.scratch = Some(scratch);
        self.arrivals += batch.len() as u64;
        done.map(|()| pass.stats)
    }

    /// Finds the keys. Whatever has no entry has no partner and is stored at once.
    #[inline(never)]
    fn find_and_store_new<V: Visit>(
        &mut self,
        scratch: &mut Scratch,
        range: Range<usize>,
        pass: &mut Pass<'_>,
        visit: &mut V,
    ) -> Result<(), StateFull> {
        let (own, other) = (pass.side, pass.side.other());
        scratch.deferred.clear();
        for (index, &home) in range.zip(scratch.homes.iter()) {
            if pass.classes.get(index) == Some(&Class::Skip) {
                continue;
            }
            let key = pass.key(index);
            let home = self.home(home, key, pass.layout);
            match self.index.find(key, home, 0, &self.arenas) {
                Found::Candidate(entry) => {
                    // Dead handles lead nowhere; a prefetch of nowhere costs nothing.
                    prefetch(self.arenas[other.index()].address(entry.head(other)));
                    prefetch(self.arenas[own.index()].address(entry.head(own)));
                    scratch.deferred.push((index as u32, entry));
                }
                Found::Absent => self.store_new(index, home, pass, visit)?,
            }
        }
        Ok(())
    }

    /// Probes the other side's runs and appends to our own.
    #[inline(never)]
    fn probe_and_store<V: Visit>(
        &mut self,
        scratch: &mut Scratch,
        pass: &mut Pass<'_>,
        visit: &mut V,
    ) -> Result<(), StateFull> {
        let other = pass.side.other();
        for &(index, hint) in &scratch.deferred {
            let index = index as usize;
            let key = pass.key(index);
            let is_key = pass.layout == self.index.layout() && self.is_key(hint, key);
            let entry = if is_key { Some(hint) } else { self.search(key) };
            let mut matched = false;
            if let Some(entry) = entry {
                let head = entry.head(other);
                if self.arenas[other.index()].is_live(head) {
                    let (lo, hi) = pass.probe.interval.range(pass.ts(index));
                    let lo = lo.max(pass.probe.partner_floor);
                    let hits = &mut scratch.hits;
                    matched = self.probe_chain(entry, (lo, hi), hits, index, pass, visit);
                }
            }
            self.store(index, entry, matched, pass, visit)?;
        }
        Ok(())
    }

    /// The home line of a key, also after the index had to grow in the middle of a batch.
    #[inline]
    fn home(&self, home: NonNull<Line>, key: u64, layout: u32) -> NonNull<Line> {
        if layout == self.index.layout() { home } else { self.index.home(key) }
    }

    /// Whether an entry with the tag of `key` is the key's.
    #[inline]
    fn is_key(&self, entry: Entry, key: u64) -> bool {
        let run = self.head_run(Side::Left, entry).or_else(|| self.head_run(Side::Right, entry));
        run.is_some_and(|run| run.rest() == key_rest(key))
    }

    /// The newest run of an entry's side, if it is live.
    #[inline]
    fn head_run(&self, side: Side, entry: Entry) -> Option<Run> {
        let arena = &self.arenas[side.index()];
        let mut head = entry.head(side);
        if is_directory(head) {
            head = self.directories[side.index()].get(head).newest(arena)?;
        }
        // SAFETY: a live head leads to a run.
        arena.is_live(head).then(|| unsafe { Run::at(arena.address(head)) })
    }

    /// Looks again, through all candidates.
    #[cold]
    pub(super) fn search(&self, key: u64) -> Option<Entry> {
        let home = self.index.home(key);
        for skip in 0.. {
            match self.index.find(key, home, skip, &self.arenas) {
                Found::Candidate(entry) if self.is_key(entry, key) => return Some(entry),
                Found::Candidate(_) => {}
                Found::Absent => break,
            }
        }
        None
    }
}
