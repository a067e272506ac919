//! The chain of a key's runs, newest bucket first: what a probe finds in it, where a row goes.

use super::Filter;
use super::State;
use super::arena::Handle;
use super::directory::{RUNS_WALKED_MAX, is_directory};
use super::probe::{Partner, Pass, Visit};
use super::run::{CAPACITY_LOG2_MAX, LATE, MATCHED, Run, SEQUENCE_MASK};
use super::table::Entry;
use crate::event::Side;

/// Runs of up to this length are filtered in place, without a call.
const SHORT: usize = 4;

/// Some of the selected rows of one run: `from..to` of [`Hits::selected`].
#[derive(Clone, Copy)]
struct Piece {
    run: Run,
    from: usize,
    to: usize,
}

/// The matches of one event.
#[derive(Default)]
pub(super) struct Hits {
    /// Rows within their runs.
    selected: Vec<u32>,
    /// One a run, in the order of the chain.
    found: Vec<Piece>,
    /// What `found` comes to in the order in which the rows were stored.
    ordered: Vec<Piece>,
}

/// What probes of one side have cost since it was last looked at.
#[derive(Clone, Copy, Default)]
pub(super) struct Walks {
    pub(super) probes: u32,
    pub(super) runs: u32,
    pub(super) rows: u64,
    pub(super) hits: u64,
}

impl State {
    /// Hands the other side's rows of an entry, whose head there is live, with times in `[lo, hi]`
    /// to `visit`, in the order in which they were stored. Returns whether any matched.
    #[inline]
    pub(super) fn probe_chain<V: Visit>(
        &mut self,
        entry: Entry,
        (lo, hi): (i64, i64),
        hits: &mut Hits,
        index: usize,
        pass: &mut Pass<'_>,
        visit: &mut V,
    ) -> bool {
        let other = pass.side.other();
        let arena = &self.arenas[other.index()];
        let head = entry.head(other);
        if is_directory(head) {
            self.collect_by_bucket(other, head, (lo, hi), hits);
            return self.hand_over_found(hits, index, pass, visit);
        }
        // SAFETY: a live handle of a chain leads to a run.
        let run = unsafe { Run::at(arena.address(head)) };
        if run.len() == 1 && !arena.is_live(run.older()) {
            // One row is what most keys have, and then there is no order to keep.
            let ts = run.ts(0);
            if ts < lo || hi < ts {
                return false;
            }
            visit.begin(index);
            return hand_over(run, &[0], pass, visit);
        }
        let walked = self.collect(other, head, (lo, hi), hits);
        if walked > RUNS_WALKED_MAX {
            self.make_directory(other, entry);
        }
        self.hand_over_found(hits, index, pass, visit)
    }

    /// Puts the pieces found in order and hands them over.
    #[inline]
    fn hand_over_found<V: Visit>(
        &self,
        hits: &mut Hits,
        index: usize,
        pass: &mut Pass<'_>,
        visit: &mut V,
    ) -> bool {
        let pieces = match &hits.found[..] {
            [] => return false,
            [_] => &hits.found,
            _ => {
                hits.order(self.sequences[pass.side.other().index()]);
                &hits.ordered
            }
        };
        visit.begin(index);
        let mut any = false;
        for piece in pieces {
            let rows = &hits.selected[piece.from..piece.to];
            any |= hand_over(piece.run, rows, pass, visit);
        }
        any
    }

    /// Names the runs of an entry's side by a directory from here on.
    #[cold]
    pub(super) fn make_directory(&mut self, side: Side, entry: Entry) {
        let (directories, arena) =
            (&mut self.directories[side.index()], &self.arenas[side.index()]);
        if let Some(head) = directories.build(entry.head(side), arena) {
            entry.set_head(side, head);
        }
    }

    /// Collects the rows of a chain with times in `[lo, hi]`, run by run; returns how many runs it
    /// walked over.
    fn collect(&mut self, side: Side, head: Handle, (lo, hi): (i64, i64), hits: &mut Hits) -> u32 {
        hits.clear();
        let arena = &self.arenas[side.index()];
        let ring = &self.rings[side.index()];
        let (first, last) = (ring.number_of(lo), ring.number_of(hi));
        let walks = &mut self.walks[side.index()];
        let runs_before = walks.runs;
        walks.probes += 1;
        let mut handle = head;
        while arena.is_live(handle) {
            let bucket = arena.bucket_of(handle);
            if bucket < first {
                break;
            }
            // SAFETY: a live handle of a chain leads to a run.
            let run = unsafe { Run::at(arena.address(handle)) };
            handle = run.older();
            walks.runs += 1;
            walks.rows += run.len() as u64;
            if bucket <= last {
                hits.select(run, (lo, hi), &self.filter);
            }
        }
        walks.hits += hits.selected.len() as u64;
        walks.runs - runs_before
    }

    /// Collects the rows of a directory's runs with times in `[lo, hi]`, newest bucket first.
    fn collect_by_bucket(
        &mut self,
        side: Side,
        head: Handle,
        (lo, hi): (i64, i64),
        hits: &mut Hits,
    ) {
        hits.clear();
        let arena = &self.arenas[side.index()];
        let ring = &self.rings[side.index()];
        let directory = self.directories[side.index()].get(head);
        let Some(newest) = directory.newest(arena) else { return };
        let first = ring.number_of(lo);
        let last = ring.number_of(hi).min(arena.bucket_of(newest));
        let mut select = |bucket_run: Handle| {
            let mut handle = bucket_run;
            while arena.is_live(handle) {
                // SAFETY: a live handle of a chain leads to a run.
                let run = unsafe { Run::at(arena.address(handle)) };
                hits.select(run, (lo, hi), &self.filter);
                handle = run.older();
            }
        };
        if last.saturating_sub(first) <= directory.cell_count() as i64 {
            let runs = (first..=last).rev().filter_map(|bucket| directory.find(bucket, arena));
            runs.for_each(select);
        } else {
            let is_inside = |run: &Handle| (first..=last).contains(&arena.bucket_of(*run));
            directory.runs(arena).filter(is_inside).for_each(&mut select);
        }
    }

    /// Makes a side's buckets wider when its probes cross many short runs, or runs that they want
    /// most of: keys are sparser, or events less in order, than the interval alone lets expect.
    /// Returns whether it did.
    pub(super) fn widen_if_walks_are_long(&mut self, side: Side) -> bool {
        const PROBES_JUDGED: u32 = 4096;
        const BUCKETS_LEAST: usize = 3;
        let walks = self.walks[side.index()];
        if walks.probes < PROBES_JUDGED {
            return false;
        }
        self.walks[side.index()] = Walks::default();
        let is_long = walks.runs > 2 * walks.probes;
        let is_short_runs = walks.rows < 8 * u64::from(walks.runs);
        let is_wanted = walks.hits * 8 >= walks.rows;
        let ring = &mut self.rings[side.index()];
        let pays = is_long && (is_short_runs || is_wanted) && ring.bucket_count() > BUCKETS_LEAST;
        if pays {
            ring.widen(&mut self.arenas[side.index()]);
        }
        pays
    }
}

impl Hits {
    fn clear(&mut self) {
        self.selected.clear();
        self.found.clear();
    }

    /// Selects the rows of a run with times in `[lo, hi]`.
    #[inline]
    fn select(&mut self, run: Run, (lo, hi): (i64, i64), filter: &Filter) {
        let from = self.selected.len();
        let timestamps = run.timestamps();
        if timestamps.len() <= SHORT {
            for (row, &ts) in timestamps.iter().enumerate() {
                if lo <= ts && ts <= hi {
                    self.selected.push(row as u32);
                }
            }
        } else {
            filter.select(timestamps, lo, hi, &mut self.selected);
        }
        let to = self.selected.len();
        if from < to {
            self.found.push(Piece { run, from, to });
        }
    }

    /// Merges the pieces by the order in which rows were stored. `now` is the next row's place.
    fn order(&mut self, now: u32) {
        let Hits { selected, found, ordered } = self;
        // Rows that were stored earlier are further behind `now`, modulo the range of the sequence.
        let age = |piece: &Piece, at: usize| {
            piece.run.tag(selected[at] as usize).wrapping_sub(now) & SEQUENCE_MASK
        };
        ordered.clear();
        // Older buckets first: mostly, that is the order already.
        found.reverse();
        let in_order =
            found.windows(2).all(|two| age(&two[0], two[0].to - 1) < age(&two[1], two[1].from));
        if in_order {
            ordered.extend_from_slice(found);
            return;
        }
        while !found.is_empty() {
            // The piece whose next row is the oldest goes on until another's next row is older.
            let (mut first, mut first_age, mut until) = (0, u32::MAX, u32::MAX);
            for (place, piece) in found.iter().enumerate() {
                let next = age(piece, piece.from);
                if next < first_age {
                    (first, until, first_age) = (place, first_age, next);
                } else {
                    until = until.min(next);
                }
            }
            let piece = found[first];
            let mut to = piece.from + 1;
            while to < piece.to && age(&piece, to) < until {
                to += 1;
            }
            ordered.push(Piece { to, ..piece });
            if to == piece.to {
                found.remove(first);
            } else {
                found[first].from = to;
            }
        }
    }
}

/// Hands rows of one run over as partners of the current event; returns whether any matched.
#[inline]
fn hand_over<V: Visit>(run: Run, rows: &[u32], pass: &mut Pass<'_>, visit: &mut V) -> bool {
    let mut pairs = 0;
    for &row in rows {
        let row = row as usize;
        let tag = run.tag(row);
        let matched = tag & MATCHED != 0;
        let partner = Partner { ts: run.ts(row), row: run.row(row, tag), matched };
        if !visit.partner(partner) {
            continue;
        }
        pairs += 1;
        if !matched {
            run.set_tag(row, tag | MATCHED);
            pass.stats.partners_matched += u64::from(tag & LATE == 0);
            pass.stats.late_partners_matched += u64::from(tag & LATE != 0);
        }
    }
    pass.stats.pairs += pairs;
    pairs > 0
}

/// Where a row of a bucket goes in its key's chain.
pub(super) enum Spot {
    /// Into this run, which has room.
    Here(Handle, Run),
    /// Into this run once it has grown.
    Grow(Run, Link),
    /// Into a new run of this capacity, before the older one.
    New { capacity_log2: u32, link: Link, older: Handle },
}

/// What names a run.
#[derive(Clone, Copy)]
pub(super) enum Link {
    /// Its key's entry.
    Entry,
    /// The next newer run.
    Run(Run),
    /// The key's directory.
    Directory,
}

/// Finds the run of bucket `number` in a key's chain or directory. Returns how many runs it walked
/// over as well.
#[inline]
pub(super) fn find_spot(state: &State, entry: Entry, side: Side, number: i64) -> (Spot, u32) {
    let arena = &state.arenas[side.index()];
    let head = entry.head(side);
    if is_directory(head) {
        return (find_spot_by_bucket(state, head, side, number), 0);
    }
    let (mut link, mut handle, mut walked) = (Link::Entry, head, 0);
    // A new run is as long as its neighbour in the chain: keys keep their pace.
    let mut pace = 0;
    while arena.is_live(handle) {
        let bucket = arena.bucket_of(handle);
        // SAFETY: a live handle of a chain leads to a run.
        let run = unsafe { Run::at(arena.address(handle)) };
        if bucket == number
            && let Some(spot) = spot_in(handle, run, link)
        {
            return (spot, walked);
        }
        pace = run.len();
        if bucket <= number {
            break;
        }
        link = Link::Run(run);
        handle = run.older();
        walked += 1;
    }
    let older = if arena.is_live(handle) { handle } else { 0 };
    (Spot::New { capacity_log2: capacity_for(pace), link, older }, walked)
}

#[inline(never)]
fn find_spot_by_bucket(state: &State, head: Handle, side: Side, number: i64) -> Spot {
    let arena = &state.arenas[side.index()];
    let directory = state.directories[side.index()].get(head);
    // SAFETY (both blocks): live handles of a directory lead to runs.
    let older = match directory.find(number, arena) {
        Some(handle) => {
            // SAFETY: see above.
            let run = unsafe { Run::at(arena.address(handle)) };
            if let Some(spot) = spot_in(handle, run, Link::Directory) {
                return spot;
            }
            handle
        }
        None => 0,
    };
    // SAFETY: see above.
    let pace =
        directory.newest(arena).map_or(1, |newest| unsafe { Run::at(arena.address(newest)) }.len());
    Spot::New { capacity_log2: capacity_for(pace), link: Link::Directory, older }
}

/// The place of a row in a run of its bucket, unless the run is full and as long as runs get.
#[inline]
fn spot_in(handle: Handle, run: Run, link: Link) -> Option<Spot> {
    if !run.is_full() {
        Some(Spot::Here(handle, run))
    } else if run.capacity_log2() < CAPACITY_LOG2_MAX {
        Some(Spot::Grow(run, link))
    } else {
        None
    }
}

#[inline]
fn capacity_for(pace: usize) -> u32 {
    pace.max(1).next_power_of_two().ilog2().min(CAPACITY_LOG2_MAX)
}
