//! A batch against rows in files: what of them its events find, merged with what is in memory.
//!
//! The slow way of a batch, taken only by those that find such rows. Each page that a batch wants
//! is read once. What is found is handed over with the hits in memory, an event's in the order in
//! which its partners were stored.

use std::cmp::Reverse;

use super::cold::{Cold, ColdRow};
use super::pass::{Pass, Scratch};
use super::probe::{Class, Partner, Tally, Visit, count_matched};
use super::ttl::back_of;
use super::{State, StateFull};
use crate::spill::SpillError;

/// What the events of a batch have found in files.
#[derive(Default)]
pub(super) struct ColdHits {
    /// By event, and of each in the order in which they were stored.
    hits: Vec<ColdHit>,
    rows: Vec<u8>,
    looks: Vec<Look>,
    page: Vec<u8>,
    /// The next hit to hand over.
    next: usize,
}

/// A page that an event wants to see.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Look {
    segment: u32,
    page: u32,
    event: u8,
}

/// A partner in a file.
#[derive(Clone, Copy)]
struct ColdHit {
    event: u8,
    /// How far behind the next row's number its own is.
    back: u32,
    segment: u32,
    number: u32,
    ts: i64,
    tag: u32,
    /// Its bytes in `rows`.
    start: usize,
    len: usize,
}

impl ColdHit {
    fn order(&self) -> (u8, Reverse<u32>) {
        (self.event, Reverse(self.back))
    }
}

impl ColdHits {
    /// Looks for the partners of a batch.
    fn find(&mut self, cold: &Cold, pass: &Pass<'_>) -> Result<(), SpillError> {
        let ColdHits { hits, rows, looks, page, next } = self;
        hits.clear();
        rows.clear();
        looks.clear();
        *next = 0;
        for event in 0..pass.keys.len() {
            let (event, key) = (event as u8, pass.keys[event]);
            let (lo, hi) = pass.range(event);
            if lo > hi || pass.classes.get(usize::from(event)) == Some(&Class::Skip) {
                continue;
            }
            for (number, segment) in (0..).zip(&cold.segments) {
                if segment.first <= hi
                    && lo <= segment.last
                    && let Some(page) = segment.page_of(key)
                {
                    looks.push(Look { segment: number, page, event });
                }
            }
        }
        looks.sort_unstable();
        for same in looks.chunk_by(|one, two| (one.segment, one.page) == (two.segment, two.page)) {
            let segment = &cold.segments[same[0].segment as usize];
            segment.read(same[0].page, page)?;
            for ColdRow { number, key, ts, tag, row } in ColdRow::all(page) {
                for &Look { segment, event, .. } in same {
                    let (lo, hi) = pass.range(event);
                    if pass.key(event) != key || ts < lo || hi < ts || pass.is_dead(tag) {
                        continue;
                    }
                    let (back, start, len) = (back_of(tag, pass.next), rows.len(), row.len());
                    hits.push(ColdHit { event, back, segment, number, ts, tag, start, len });
                    rows.extend_from_slice(row);
                }
            }
        }
        hits.sort_unstable_by_key(ColdHit::order);
        Ok(())
    }

    /// The next hit, if it comes before a partner in memory, or if there is none.
    fn take_before(&mut self, other: Option<(u8, Reverse<u32>)>) -> Option<ColdHit> {
        let hit = *self.hits.get(self.next)?;
        if other.is_some_and(|other| other < hit.order()) {
            return None;
        }
        self.next += 1;
        Some(hit)
    }
}

impl State {
    /// Whether events of a batch have partners in files, which are found then.
    #[cold]
    #[inline(never)]
    pub(super) fn find_cold(&mut self, pass: &mut Pass<'_>) -> Result<bool, StateFull> {
        let other = pass.side.other().index();
        pass.next = self.sequences[other];
        pass.oldest_back = self.oldest_back(pass.side.other());
        match self.cold_hits.find(&self.cold[other], pass) {
            Ok(()) => Ok(!self.cold_hits.hits.is_empty()),
            Err(error) => {
                self.failure = Some(error);
                Err(StateFull)
            }
        }
    }

    /// Probes memory, hands over what is found there and in files, and keeps the events.
    #[cold]
    #[inline(never)]
    pub(super) fn join_with_cold<V: Visit>(
        &mut self,
        scratch: &mut Scratch,
        pass: &mut Pass<'_>,
        visit: &mut V,
    ) -> Result<(), StateFull> {
        scratch.matched.fill(false);
        let mut next = 0;
        while next < scratch.known.len() {
            next = self.collect(scratch, next, pass).0;
            self.hand_over_both(scratch, pass, visit);
            scratch.hits.clear();
        }
        let mut tally = Tally::default();
        while let Some(hit) = self.cold_hits.take_before(None) {
            self.hand_over_cold(hit, &mut tally, scratch, pass, visit);
        }
        tally.add_to(&mut pass.stats);
        count_matched(&scratch.matched, pass);
        // In one order for all events of a key: they may be of either sort.
        for at in 0..scratch.unknown.len() {
            let place = scratch.unknown.get(at);
            let matched = scratch.matched[usize::from(place)];
            self.store(place, None, matched, pass, visit)?;
        }
        self.store_known(scratch, pass, visit)
    }

    /// Hands over the hits in memory, and those in files that come before the last of them.
    fn hand_over_both<V: Visit>(
        &mut self,
        scratch: &mut Scratch,
        pass: &mut Pass<'_>,
        visit: &mut V,
    ) {
        let mut tally = Tally::default();
        for hit in 0..scratch.hits.len() {
            let Some((row, piece)) = scratch.hits.iter(hit..hit + 1).next() else { continue };
            let stored = piece.columns.stored(row as usize);
            if pass.is_dead(stored.tag()) {
                continue;
            }
            let order = (piece.event, Reverse(back_of(stored.tag(), pass.next)));
            while let Some(hit) = self.cold_hits.take_before(Some(order)) {
                self.hand_over_cold(hit, &mut tally, scratch, pass, visit);
            }
            let own = visit.own(pass.index(piece.event));
            scratch.matched[usize::from(piece.event)] |= tally.hand_over(stored, own, visit);
        }
        tally.add_to(&mut pass.stats);
    }

    fn hand_over_cold<V: Visit>(
        &mut self,
        hit: ColdHit,
        tally: &mut Tally,
        scratch: &mut Scratch,
        pass: &Pass<'_>,
        visit: &mut V,
    ) {
        let segment = &mut self.cold[pass.side.other().index()].segments[hit.segment as usize];
        let row = &self.cold_hits.rows[hit.start..hit.start + hit.len];
        let matched = segment.is_matched(hit.number);
        let own = visit.own(pass.index(hit.event));
        let is_match = visit.partner(own, Partner { ts: hit.ts, row, matched });
        if is_match {
            segment.set_matched(hit.number);
            scratch.matched[usize::from(hit.event)] = true;
        }
        tally.count(hit.tag, matched, is_match);
    }
}
