//! The chain of a key's runs, newest bucket first: where a row goes, when buckets are too narrow.

use super::State;
use super::arena::{Arena, Handle};
use super::directory::{Directories, is_directory};
use super::run::{CAPACITY_LOG2_MAX, Run};
use super::table::Entry;
use crate::event::Side;

/// What probes of one side have cost since it was last looked at.
#[derive(Clone, Copy, Default)]
pub(super) struct Walks {
    pub(super) batches: u32,
    pub(super) probes: u32,
    pub(super) runs: u32,
    pub(super) rows: u64,
    pub(super) hits: u64,
}

impl Walks {
    /// Counts a probe that looked at one run.
    #[inline]
    pub(super) fn add(&mut self, rows: usize, hits: usize) {
        self.probes += 1;
        self.runs += 1;
        self.rows += rows as u64;
        self.hits += hits as u64;
    }
}

impl State {
    /// Names the runs of an entry's side by a directory from here on.
    #[cold]
    pub(super) fn make_directory(&mut self, side: Side, entry: Entry) {
        let (directories, arena) =
            (&mut self.directories[side.index()], &self.arenas[side.index()]);
        make_directory(directories, arena, side, entry);
    }

    /// Makes a side's buckets wider when its probes cross many short runs, or runs that they want
    /// most of (keys are sparser, or events less in order, than the interval alone lets expect), or
    /// when hardly any rows are in a bucket. Called once a batch; returns whether it did.
    pub(super) fn widen_if_it_pays(&mut self, side: Side) -> bool {
        const PROBES_JUDGED: u32 = 1024;
        const BATCHES_JUDGED: u32 = 64;
        const BUCKETS_LEAST: usize = 2;
        const BUCKETS_FEW: usize = 4;
        const ROWS_FEW: u64 = 128;
        let walks = &mut self.walks[side.index()];
        walks.batches += 1;
        if walks.probes < PROBES_JUDGED && walks.batches < BATCHES_JUDGED {
            return false;
        }
        let ring = &mut self.rings[side.index()];
        let bucket_count = ring.bucket_count();
        let mut pays = false;
        if walks.batches >= BATCHES_JUDGED {
            // By now there are as many rows in state as there will be.
            walks.batches = 0;
            pays = bucket_count > BUCKETS_FEW && ring.row_count() < ROWS_FEW * bucket_count as u64;
        }
        if walks.probes >= PROBES_JUDGED {
            let Walks { probes, runs, rows, hits, .. } = *walks;
            *walks = Walks { batches: walks.batches, ..Walks::default() };
            let is_long = 4 * runs > 5 * probes;
            // Before the first match is due, all runs are short.
            let is_short_runs = rows < 8 * u64::from(runs) && hits * 32 >= rows;
            let is_wanted = hits * 8 >= rows;
            pays |= is_long && (is_short_runs || is_wanted) && bucket_count > BUCKETS_LEAST;
            ring.keep_arrival_order(is_wanted);
        }
        let pays = pays && !self.is_width_given;
        if pays {
            ring.widen(&mut self.arenas[side.index()]);
        }
        pays
    }
}

#[cold]
pub(super) fn make_directory(
    directories: &mut Directories,
    arena: &Arena,
    side: Side,
    entry: Entry,
) {
    if let Some(head) = directories.build(entry.head(side), arena) {
        entry.set_head(side, head);
    }
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
