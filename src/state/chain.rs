//! The chain of a key's runs, newest bucket first: what a probe finds in it, where a row goes.

use super::State;
use super::arena::{Arena, Handle};
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
    /// Hands the rows of the chain from `head`, which is live, with times in `range` to `visit`, in
    /// the order in which they were stored. Returns whether any matched.
    #[inline]
    pub(super) fn probe_chain<V: Visit>(
        &mut self,
        head: Handle,
        (lo, hi): (i64, i64),
        hits: &mut Hits,
        index: usize,
        pass: &mut Pass<'_>,
        visit: &mut V,
    ) -> bool {
        let other = pass.side.other();
        let arena = &self.arenas[other.index()];
        // SAFETY: a live handle of a chain leads to a run.
        let run = unsafe { Run::at(arena.address(head)) };
        if run.len() == 1 && !arena.is_live(run.older()) {
            // One row is what most keys have, and then there is no order to keep.
            let ts = run.ts(0);
            return lo <= ts && ts <= hi && hand_over(run, &[0], index, pass, visit);
        }
        self.collect(other, head, (lo, hi), hits);
        let pieces = match &hits.found[..] {
            [] => return false,
            [_] => &hits.found,
            _ => {
                hits.order(self.sequences[other.index()]);
                &hits.ordered
            }
        };
        let mut any = false;
        for piece in pieces {
            let rows = &hits.selected[piece.from..piece.to];
            any |= hand_over(piece.run, rows, index, pass, visit);
        }
        any
    }

    /// Collects the rows of a chain with times in `[lo, hi]`, run by run.
    fn collect(&mut self, side: Side, head: Handle, (lo, hi): (i64, i64), hits: &mut Hits) {
        hits.selected.clear();
        hits.found.clear();
        let arena = &self.arenas[side.index()];
        let ring = &self.rings[side.index()];
        let (first, last) = (ring.number_of(lo), ring.number_of(hi));
        let walks = &mut self.walks[side.index()];
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
            if bucket > last {
                continue;
            }
            let from = hits.selected.len();
            let timestamps = run.timestamps();
            if timestamps.len() <= SHORT {
                let inside = |&(_, &ts): &(usize, &i64)| lo <= ts && ts <= hi;
                let rows = timestamps.iter().enumerate().filter(inside);
                hits.selected.extend(rows.map(|(row, _)| row as u32));
            } else {
                self.filter.select(timestamps, lo, hi, &mut hits.selected);
            }
            let to = hits.selected.len();
            if from < to {
                hits.found.push(Piece { run, from, to });
            }
        }
        walks.hits += hits.selected.len() as u64;
    }

    /// Makes a side's buckets wider when its probes cross many short runs, or runs that they want
    /// most of: keys are sparser, or events less in order, than the interval alone lets expect.
    pub(super) fn widen_if_walks_are_long(&mut self, side: Side) {
        const PROBES_JUDGED: u32 = 4096;
        const BUCKETS_LEAST: usize = 4;
        let walks = self.walks[side.index()];
        if walks.probes < PROBES_JUDGED {
            return;
        }
        self.walks[side.index()] = Walks::default();
        let is_long = walks.runs > 2 * walks.probes;
        let is_short_runs = walks.rows < 8 * u64::from(walks.runs);
        let is_wanted = walks.hits * 8 >= walks.rows;
        let ring = &mut self.rings[side.index()];
        if is_long && (is_short_runs || is_wanted) && ring.bucket_count() > BUCKETS_LEAST {
            ring.widen(&mut self.arenas[side.index()]);
        }
    }
}

impl Hits {
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

/// Hands rows of one run over as partners of event `index`; returns whether any matched.
#[inline]
fn hand_over<V: Visit>(
    run: Run,
    rows: &[u32],
    index: usize,
    pass: &mut Pass<'_>,
    visit: &mut V,
) -> bool {
    let mut pairs = 0;
    for &row in rows {
        let row = row as usize;
        let tag = run.tag(row);
        let matched = tag & MATCHED != 0;
        let partner = Partner { ts: run.ts(row), row: run.row(row, tag), matched };
        if !visit.partner(index, partner) {
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
}

/// Walks the chain, which goes from newer buckets to older ones, to the run of bucket `number`.
#[inline]
pub(super) fn find_spot(arena: &Arena, entry: Entry, side: Side, number: i64) -> Spot {
    let (mut link, mut handle) = (Link::Entry, entry.head(side));
    // A new run is as long as its neighbour in the chain: keys keep their pace.
    let mut pace = 0;
    while arena.is_live(handle) {
        let bucket = arena.bucket_of(handle);
        // SAFETY: a live handle of a chain leads to a run.
        let run = unsafe { Run::at(arena.address(handle)) };
        if bucket <= number {
            if bucket == number && !run.is_full() {
                return Spot::Here(handle, run);
            }
            if bucket == number && run.capacity_log2() < CAPACITY_LOG2_MAX {
                return Spot::Grow(run, link);
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
    Spot::New { capacity_log2, link, older }
}
