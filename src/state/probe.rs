//! A batch against the state: find, probe, append, in phases over the whole batch.

use std::ops::{AddAssign, Range};
use std::ptr::NonNull;

use super::arena::{Arena, Handle};
use super::directory::is_directory;
use super::hits::Many;
use super::index::tag_of;
use super::pass::{Pass, Scratch};
use super::run::{Columns, LATE, MATCHED, Run, Stored, WHOLE_WORD, key_rest};
use super::table::{Entry, LINE_KEYS, Line};
use super::{State, StateFull};
use crate::event::{EventBatch, Side, prefetch};
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
    /// What is needed of an event of the batch to judge its partners.
    type Own: Copy;

    /// Every partner matches, and whether it did before is not looked at: then many partners of one
    /// event may be handed over in a shorter way, by [`all`](Self::all).
    const ALL_MATCH: bool = false;

    /// Event `index` of the batch, which has partners.
    fn own(&self, index: usize) -> Self::Own;

    /// A partner of an event of the batch. The partners of an event come one after the other, in
    /// the order in which they were stored. Returns whether the two match, once whatever else must
    /// hold was checked.
    fn partner(&mut self, own: Self::Own, partner: Partner<'_>) -> bool;

    /// Several partners of an event of the batch, if [`ALL_MATCH`](Self::ALL_MATCH); otherwise as
    /// [`partner`](Self::partner). [`Partner::matched`] is not told.
    fn all<'a>(&mut self, own: Self::Own, partners: impl Iterator<Item = Partner<'a>>) {
        for partner in partners {
            self.partner(own, partner);
        }
    }

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

impl AddAssign for BatchStats {
    fn add_assign(&mut self, more: BatchStats) {
        self.pairs += more.pairs;
        self.stored += more.stored;
        self.matched += more.matched;
        self.late_matched += more.late_matched;
        self.partners_matched += more.partners_matched;
        self.late_partners_matched += more.late_partners_matched;
    }
}

/// Runs of so few bytes in all stay in the second-level cache, where asking for them costs more
/// than waiting.
const CACHED_BYTES: usize = 512 << 10;
/// From so many bytes of one side on, the words and tags of hits are asked for before they are
/// handed over (w4, 118 MB of state: 8 to 15 % of an event; w2, 8 MB: 3 % too much).
const UNCACHED_BYTES: usize = 32 << 20;
/// Lines of a long run that are asked for; the processor sees from them where the rest is.
const RUN_LINES: usize = 4;

impl State {
    /// Matches the events in `range` of a batch, at most
    /// [`BATCH_EVENTS_MAX`], with the other side and keeps them.
    ///
    /// `classes` is empty (all events are on time) or says for each event of the batch what to do.
    ///
    /// # Errors
    /// [`StateFull`]; what was done up to there is not said: the state must not be used any more.
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
        let mut pass = Pass::new(batch, range, classes, probe, self.index.layout());
        let Some(mut scratch) = self.scratch.take() else { return Err(StateFull) };
        self.index.prefetch_all(pass.keys, &mut *scratch.homes);
        self.find(&mut scratch, &pass);
        if self.arenas.iter().map(Arena::bytes).sum::<usize>() > CACHED_BYTES {
            self.prefetch_runs(&scratch, &pass);
        }
        let has_cold = !self.cold[pass.side.other().index()].segments.is_empty();
        let found_cold = if has_cold { self.find_cold(&mut pass) } else { Ok(false) };
        let done = found_cold.and_then(|found_cold| {
            if found_cold {
                return self.join_with_cold(&mut scratch, &mut pass, visit);
            }
            self.store_unknown(&scratch, &mut pass, visit)?;
            if self.has_dead() {
                self.probe::<V, true>(&mut scratch, &mut pass, visit);
            } else {
                self.probe::<V, false>(&mut scratch, &mut pass, visit);
            }
            self.store_known(&scratch, &mut pass, visit)
        });
        self.rings[pass.side.index()].add_rows(pass.stats.stored);
        self.scratch = Some(scratch);
        self.arrivals += pass.keys.len() as u64;
        done.map(|()| pass.stats)
    }

    /// Finds the keys: which have an entry, which have none and therefore no partner. Which it is
    /// can be as good as random, so it is no branch.
    #[inline(never)]
    fn find(&self, scratch: &mut Scratch, pass: &Pass<'_>) {
        let [left, right] = &self.arenas;
        scratch.unknown.clear();
        scratch.known.clear();
        for (index, &key) in pass.keys.iter().enumerate().take(BATCH_EVENTS_MAX) {
            if pass.classes.get(index) == Some(&Class::Skip) {
                continue;
            }
            let home = scratch.homes[index];
            // SAFETY: the line is part of a table; no exclusive reference to it exists.
            let line = unsafe { home.as_ref() };
            let same = line.places_with(tag_of(key));
            // Some place of the line, when there is none.
            let place = (same | 1 << (LINE_KEYS - 1)).trailing_zeros();
            let heads = line.heads_at(place as usize);
            let is_live = left.is_live(heads[0]) | right.is_live(heads[1]);
            let mut is_known = (same != 0) & is_live;
            scratch.places[index] = place as u8;
            let is_ambiguous = same & same.wrapping_sub(1) != 0;
            if is_ambiguous | (!is_known & (line.overflow != 0)) {
                is_known = self.find_again(key, index as u8, scratch);
            }
            scratch.known.push_if(is_known, index as u8);
            scratch.unknown.push_if(!is_known, index as u8);
        }
    }

    #[cold]
    #[inline(never)]
    fn find_again(&self, key: u64, place: u8, scratch: &mut Scratch) -> bool {
        let home = scratch.homes[usize::from(place)];
        let entry = self.index.find(key, home, 0, &self.arenas);
        if let Some(entry) = entry {
            scratch.set_entry(place, entry);
        }
        entry.is_some()
    }

    /// Asks for the newest runs of the known keys: those to be probed and those to be appended to.
    #[inline(never)]
    fn prefetch_runs(&self, scratch: &Scratch, pass: &Pass<'_>) {
        let (own, other) = (pass.side, pass.side.other());
        for at in 0..scratch.known.len() {
            let place = scratch.known.get(at);
            let entry = scratch.entry(place);
            // Where there is nothing to come, the line is asked for again: that costs nothing.
            let nowhere = entry.line.as_ptr().cast::<u8>();
            for side in [other, own] {
                let (arena, head) = (&self.arenas[side.index()], entry.head(side));
                if is_directory(head) {
                    let ts = if side == own { pass.ts(place) } else { pass.range(place).0 };
                    self.prefetch_bucket(side, head, ts);
                } else {
                    prefetch(if arena.is_live(head) { arena.address(head) } else { nowhere });
                }
            }
        }
    }

    /// Asks for the run of the bucket of `ts` in a directory.
    #[inline]
    fn prefetch_bucket(&self, side: Side, head: Handle, ts: i64) {
        let (arena, ring) = (&self.arenas[side.index()], &self.rings[side.index()]);
        let directory = self.directories[side.index()].get(head);
        if let Some(run) = directory.find(ring.number_of(ts), arena) {
            let address = arena.address(run);
            for line in 0..RUN_LINES {
                prefetch(address.wrapping_add(64 * line));
            }
        }
    }

    /// Keeps the events whose key had no entry when the batch came.
    #[inline(never)]
    fn store_unknown<V: Visit>(
        &mut self,
        scratch: &Scratch,
        pass: &mut Pass<'_>,
        visit: &mut V,
    ) -> Result<(), StateFull> {
        for at in 0..scratch.unknown.len() {
            let place = scratch.unknown.get(at);
            let home = scratch.homes[usize::from(place)];
            let home = self.home(home, pass.key(place), pass.layout);
            self.store_new(place, home, pass, visit)?;
        }
        Ok(())
    }

    /// Probes the other side's runs and hands the partners over; with `AGED` some may be dead.
    #[inline(never)]
    fn probe<V: Visit, const AGED: bool>(
        &mut self,
        scratch: &mut Scratch,
        pass: &mut Pass<'_>,
        visit: &mut V,
    ) {
        let other = pass.side.other();
        pass.next = self.sequences[other.index()];
        pass.oldest_back = self.oldest_back(other);
        scratch.matched.fill(false);
        let is_large = self.arenas[other.index()].bytes() > UNCACHED_BYTES;
        let mut next = 0;
        while next < scratch.known.len() {
            let (done, many) = self.collect(scratch, next, pass);
            next = done;
            let len = scratch.hits.len();
            let few = 0..many.map_or(len, |many| many.mark.hit);
            if is_large {
                scratch.hits.prefetch(few.clone());
            }
            hand_over::<V, AGED>(scratch, few, pass, visit);
            if let Some(many) = many {
                let event = scratch.known.get(next - 1);
                hand_over_many::<V, AGED>(scratch, many, event, pass, visit);
            }
            scratch.hits.clear();
        }
        count_matched(&scratch.matched, pass);
    }

    /// The home line of a key, also after the index had to grow in the middle of a batch.
    #[inline]
    fn home(&self, home: NonNull<Line>, key: u64, layout: u32) -> NonNull<Line> {
        if layout == self.index.layout() { home } else { self.index.home(key) }
    }

    /// Whether an entry with the tag of `key`, one of whose heads is live, is the key's.
    pub(super) fn is_key(&self, entry: Entry, key: u64) -> bool {
        let is_live = |side: &Side| self.arenas[side.index()].is_live(entry.head(*side));
        let side = Side::BOTH.into_iter().find(is_live);
        side.is_some_and(|side| self.rest_of(side.index(), entry.head(side)) == key_rest(key))
    }

    /// The half of the key's value that does not stand in the index, by a live head.
    #[inline]
    pub(super) fn rest_of(&self, side: usize, head: Handle) -> u32 {
        if is_directory(head) {
            return self.directories[side].get(head).rest();
        }
        // SAFETY: a live head that is no directory leads to a run.
        unsafe { Run::at(self.arenas[side].address(head)) }.rest()
    }

    /// Looks again, through all candidates.
    #[cold]
    pub(super) fn search(&self, key: u64) -> Option<Entry> {
        let home = self.index.home(key);
        for skip in 0.. {
            let entry = self.index.find(key, home, skip, &self.arenas)?;
            if self.is_key(entry, key) {
                return Some(entry);
            }
        }
        None
    }
}

/// Hands some hits over and notes what matched.
#[inline]
fn hand_over<V: Visit, const AGED: bool>(
    scratch: &mut Scratch,
    range: Range<usize>,
    pass: &mut Pass<'_>,
    visit: &mut V,
) {
    let mut tally = Tally::default();
    for (row, piece) in scratch.hits.iter(range) {
        if AGED && pass.is_dead(piece.columns.stored(row as usize).tag()) {
            continue;
        }
        let own = visit.own(pass.index(piece.event));
        let is_match = tally.hand_over(piece.columns.stored(row as usize), own, visit);
        scratch.matched[usize::from(piece.event)] |= is_match;
    }
    tally.add_to(&mut pass.stats);
}

/// Hands the hits of one event over.
#[inline]
fn hand_over_many<V: Visit, const AGED: bool>(
    scratch: &mut Scratch,
    Many { mark, by_run }: Many,
    event: u8,
    pass: &mut Pass<'_>,
    visit: &mut V,
) {
    let (mut tally, mut any) = (Tally::default(), false);
    let own = visit.own(pass.index(event));
    if by_run {
        for (columns, rows) in scratch.hits.by_run(mark) {
            if V::ALL_MATCH && !AGED && tally.match_all(columns, rows) {
                any |= !rows.is_empty();
                let whole = rows.iter().map(|&row| columns.whole_row(row as usize));
                visit.all(own, whole.map(|(ts, row)| Partner { ts, row, matched: false }));
                continue;
            }
            for &row in rows {
                let stored = columns.stored(row as usize);
                if !(AGED && pass.is_dead(stored.tag())) {
                    any |= tally.hand_over(stored, own, visit);
                }
            }
        }
    } else {
        for (row, piece) in scratch.hits.iter(mark.hit..scratch.hits.len()) {
            let stored = piece.columns.stored(row as usize);
            if !(AGED && pass.is_dead(stored.tag())) {
                any |= tally.hand_over(stored, own, visit);
            }
        }
    }
    scratch.matched[usize::from(event)] |= any;
    tally.add_to(&mut pass.stats);
}

/// Counts the events that have a match.
#[inline]
pub(super) fn count_matched(matched: &[bool; BATCH_EVENTS_MAX], pass: &mut Pass<'_>) {
    let all: u64 = matched.iter().map(|&matched| u64::from(matched)).sum();
    let classes = pass.classes.iter().zip(matched);
    let late = classes.filter(|&(&class, &matched)| matched && class == Class::Late).count() as u64;
    pass.stats.matched += all - late;
    pass.stats.late_matched += late;
}

/// What became of partners.
#[derive(Default)]
pub(super) struct Tally {
    pairs: u64,
    first: u64,
    late_first: u64,
}

impl Tally {
    /// Notes that these rows of a run match, if all of them are eight bytes in place.
    #[inline(always)]
    fn match_all(&mut self, columns: Columns, rows: &[u32]) -> bool {
        /// Mostly the older rows were matched before, and there is nothing to note.
        const ROWS_AT_ONCE: usize = 16;
        let tag_of = |&row: &u32| columns.stored(row as usize).tag();
        let common = |rows: &[u32]| rows.iter().map(tag_of).fold(u32::MAX, |all, tag| all & tag);
        if common(rows) & WHOLE_WORD == 0 {
            return false;
        }
        self.pairs += rows.len() as u64;
        for rows in rows.chunks(ROWS_AT_ONCE) {
            if common(rows) & MATCHED != 0 {
                continue;
            }
            for &row in rows {
                let stored = columns.stored(row as usize);
                let tag = stored.tag();
                stored.set_tag(tag | MATCHED);
                self.first += u64::from(tag & MATCHED == 0);
                self.late_first += u64::from(tag & (MATCHED | LATE) == LATE);
            }
        }
        true
    }

    #[inline(always)]
    pub(super) fn hand_over<V: Visit>(
        &mut self,
        stored: Stored,
        own: V::Own,
        visit: &mut V,
    ) -> bool {
        let tag = stored.tag();
        let was_matched = tag & MATCHED != 0;
        let partner = Partner { ts: stored.ts(), row: stored.row(tag), matched: was_matched };
        let is_match = visit.partner(own, partner);
        stored.set_tag(tag | if is_match { MATCHED } else { 0 });
        self.count(tag, was_matched, is_match);
        is_match
    }

    /// Counts a partner by its tag, and by whether it was and is matched.
    #[inline(always)]
    pub(super) fn count(&mut self, tag: u32, was_matched: bool, is_match: bool) {
        let is_first = is_match & !was_matched;
        self.pairs += u64::from(is_match);
        self.first += u64::from(is_first);
        self.late_first += u64::from(is_first & (tag & LATE != 0));
    }

    pub(super) fn add_to(&self, stats: &mut BatchStats) {
        stats.pairs += self.pairs;
        stats.partners_matched += self.first - self.late_first;
        stats.late_partners_matched += self.late_first;
    }
}
