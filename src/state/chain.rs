//! The chain of a key's runs, newest bucket first: what a probe finds in it, where a row goes.

use super::State;
use super::arena::{Arena, Handle};
use super::probe::{Partner, Pass, Visit};
use super::run::{CAPACITY_LOG2_MAX, LATE, MATCHED, Run, SEQUENCE_MASK};
use super::table::Entry;
use crate::event::Side;

/// Runs of up to this length are filtered in place, without a call.
const SHORT: usize = 4;

/// A match within a run.
#[derive(Clone, Copy)]
struct Hit {
    /// Older rows have smaller ages.
    age: u32,
    row: u32,
    run: Run,
}

/// The matches of one event, in the order in which the rows were stored.
#[derive(Default)]
pub(super) struct Hits {
    hits: Vec<Hit>,
    selected: Vec<u32>,
}

/// Collects the rows of the chain from `head`, which is live, with times in `range`.
#[inline]
pub(super) fn collect(
    state: &State,
    side: Side,
    head: Handle,
    (lo, hi): (i64, i64),
    found: &mut Hits,
) {
    found.hits.clear();
    let arena = &state.arenas[side.index()];
    // SAFETY: a live handle of a chain leads to a run.
    let run = unsafe { Run::at(arena.address(head)) };
    if run.len() == 1 && !arena.is_live(run.older()) {
        // One row is what most keys have, and then there is no order to keep.
        let ts = run.ts(0);
        if lo <= ts && ts <= hi {
            found.hits.push(Hit { age: 0, row: 0, run });
        }
        return;
    }
    collect_chain(state, side, head, (lo, hi), found);
}

fn collect_chain(state: &State, side: Side, head: Handle, (lo, hi): (i64, i64), found: &mut Hits) {
    let arena = &state.arenas[side.index()];
    let ring = &state.rings[side.index()];
    let (first, last) = (ring.number_of(lo), ring.number_of(hi));
    let now = state.sequences[side.index()];
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
        let before = found.hits.len();
        collect_run(state, run, (lo, hi), now, found);
        // Chains go from newer buckets to older ones: with two runs, order is not certain.
        let hits = &found.hits;
        sorted &= before == 0 || before == hits.len() || hits[before - 1].age < hits[before].age;
    }
    if !sorted {
        found.hits.sort_by_key(|hit| hit.age);
    }
}

/// Appends the rows of a run with times in `[lo, hi]`.
#[inline]
fn collect_run(state: &State, run: Run, (lo, hi): (i64, i64), now: u32, found: &mut Hits) {
    let Hits { hits, selected } = found;
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
    state.filter.select(timestamps, lo, hi, selected);
    hits.extend(selected.iter().map(|&row| Hit { age: age_of(row as usize), row, run }));
}

/// Hands the partners of one event over; returns whether any matched.
#[inline]
pub(super) fn hand_over<V: Visit>(
    found: &Hits,
    index: usize,
    pass: &mut Pass<'_>,
    visit: &mut V,
) -> bool {
    let mut any = false;
    for hit in &found.hits {
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
