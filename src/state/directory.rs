//! Directories: where a key of very many runs finds the run of a bucket in one look.
//!
//! A chain is walked from the newest bucket on; a probe that wants rows of a minute ago would walk
//! hundreds of runs. Once a walk was that long, the key gets a directory on that side: a small hash
//! table from bucket to run (open addressing, identity hash: neighbouring buckets are neighbours).
//! The head in the key's index entry then names the directory. Runs of one bucket stay chained.

use super::arena::{Arena, DIRECTORY_CHUNK, Handle, PLACE_BITS, PLACE_MASK, chunk_of};
use super::run::Run;

/// A walk over more runs than this makes a directory.
pub(super) const RUNS_WALKED_MAX: u32 = 16;
const CELLS_MIN: usize = 64;

/// Whether a head names a directory.
#[inline]
pub(super) fn is_directory(head: Handle) -> bool {
    chunk_of(head) == DIRECTORY_CHUNK
}

fn place_of(head: Handle) -> usize {
    (head & PLACE_MASK) as usize
}

/// The runs of one key and side, by bucket.
#[derive(Default)]
pub(super) struct Directory {
    /// The newest run of some bucket each; dead handles are skipped, 0 ends a search.
    cells: Vec<Handle>,
    used: usize,
    /// The run of the newest bucket.
    newest: Handle,
    /// What the key's runs have as [`Run::rest`].
    rest: u32,
    /// A cleaning round has seen that no run of it is live any more.
    is_dead: bool,
}

impl Directory {
    /// The run of the newest bucket, if it is live; otherwise none of the runs is.
    #[inline]
    pub(super) fn newest(&self, arena: &Arena) -> Option<Handle> {
        arena.is_live(self.newest).then_some(self.newest)
    }

    /// The half of the key's value that its runs hold.
    #[inline]
    pub(super) fn rest(&self) -> u32 {
        self.rest
    }

    /// The largest of the buckets `first..=last` that may have a run, if it takes fewer looks to
    /// find their runs one by one than to go through all.
    #[inline]
    pub(super) fn last_bucket(&self, first: i64, last: i64, arena: &Arena) -> Option<i64> {
        let last = last.min(arena.bucket_of(self.newest(arena)?));
        (last.saturating_sub(first) <= self.cells.len() as i64).then_some(last)
    }

    /// All live runs, one a bucket, in no order.
    pub(super) fn runs<'a>(&'a self, arena: &'a Arena) -> impl Iterator<Item = Handle> + 'a {
        self.cells.iter().copied().filter(|&run| arena.is_live(run))
    }

    /// The newest run of `bucket`.
    #[inline]
    pub(super) fn find(&self, bucket: i64, arena: &Arena) -> Option<Handle> {
        let mask = self.cells.len() - 1;
        let mut cell = bucket as usize & mask;
        loop {
            let run = self.cells[cell];
            if run == 0 {
                return None;
            }
            if arena.is_live(run) && arena.bucket_of(run) == bucket {
                return Some(run);
            }
            cell = (cell + 1) & mask;
        }
    }

    /// Makes `run`, which is live, the newest of its bucket.
    pub(super) fn set(&mut self, run: Handle, arena: &Arena) {
        let bucket = arena.bucket_of(run);
        self.is_dead = false;
        if self.newest(arena).is_none_or(|newest| arena.bucket_of(newest) <= bucket) {
            self.newest = run;
        }
        if self.used * 4 >= self.cells.len() * 3 {
            self.rebuild(arena);
        }
        let mask = self.cells.len() - 1;
        let mut cell = bucket as usize & mask;
        let mut free = None;
        while self.cells[cell] != 0 {
            let other = self.cells[cell];
            if !arena.is_live(other) {
                free = free.or(Some(cell));
            } else if arena.bucket_of(other) == bucket {
                self.cells[cell] = run;
                return;
            }
            cell = (cell + 1) & mask;
        }
        self.used += usize::from(free.is_none());
        self.cells[free.unwrap_or(cell)] = run;
    }

    /// Drops dead handles, makes room, and finds every run's place anew; also after buckets were
    /// made wider, when runs of several cells may have come into one bucket.
    pub(super) fn rebuild(&mut self, arena: &Arena) {
        let runs: Vec<Handle> = self.runs(arena).collect();
        let cell_count = (runs.len() * 2).next_power_of_two().max(CELLS_MIN);
        self.cells.clear();
        self.cells.resize(cell_count, 0);
        self.used = 0;
        for run in runs {
            if let Some(other) = self.find(arena.bucket_of(run), arena) {
                append_chain(run, other, arena);
            }
            self.set(run, arena);
        }
    }
}

/// Appends the chain from `older` to the one from `newer`; they are of one bucket.
fn append_chain(newer: Handle, older: Handle, arena: &Arena) {
    let mut last = newer;
    loop {
        // SAFETY: live handles of a chain lead to runs.
        let run = unsafe { Run::at(arena.address(last)) };
        if !arena.is_live(run.older()) {
            run.set_older(older);
            return;
        }
        last = run.older();
    }
}

/// The directories of one side.
#[derive(Default)]
pub(super) struct Directories {
    slots: Vec<Directory>,
    free: Vec<u32>,
    /// How many were in use after the last cleaning round.
    kept: usize,
}

impl Directories {
    #[inline]
    pub(super) fn get(&self, head: Handle) -> &Directory {
        &self.slots[place_of(head)]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, head: Handle) -> &mut Directory {
        &mut self.slots[place_of(head)]
    }

    /// Bytes of the cells.
    pub(super) fn bytes(&self) -> usize {
        self.slots.iter().map(|directory| directory.cells.len() * size_of::<Handle>()).sum()
    }

    /// So many that a cleaning round should look which of them are dead.
    pub(super) fn are_many(&self) -> bool {
        self.slots.len() - self.free.len() > self.kept * 2 + 64
    }

    /// Makes a directory of the chain from `head`, which is live; returns the head that names it,
    /// or `None` when there are as many as a handle can name.
    pub(super) fn build(&mut self, head: Handle, arena: &Arena) -> Option<Handle> {
        let place = match self.free.pop() {
            Some(place) => place as usize,
            None => self.slots.len(),
        };
        if place > PLACE_MASK as usize {
            return None;
        }
        if place == self.slots.len() {
            self.slots.push(Directory::default());
        }
        let directory = &mut self.slots[place];
        directory.cells.clear();
        directory.cells.resize(CELLS_MIN, 0);
        (directory.used, directory.newest) = (0, 0);
        // SAFETY: a live handle of a chain leads to a run.
        directory.rest = unsafe { Run::at(arena.address(head)) }.rest();
        let mut handle = head;
        while arena.is_live(handle) {
            // SAFETY: a live handle of a chain leads to a run.
            let run = unsafe { Run::at(arena.address(handle)) };
            let older = run.older();
            run.set_older(0);
            if let Some(newer) = directory.find(arena.bucket_of(handle), arena) {
                append_chain(newer, handle, arena);
            } else {
                directory.set(handle, arena);
            }
            handle = older;
        }
        Some((DIRECTORY_CHUNK as Handle) << PLACE_BITS | place as Handle)
    }

    /// Finds every run's place anew, after buckets were made wider.
    pub(super) fn rebuild(&mut self, arena: &Arena) {
        self.slots.iter_mut().for_each(|directory| directory.rebuild(arena));
    }

    /// A cleaning round zeroes dead handles and marks the directories that hold nothing else.
    pub(super) fn clean(&mut self, arena: &Arena) {
        for directory in &mut self.slots {
            directory.rebuild(arena);
            directory.newest = directory.newest(arena).unwrap_or(0);
            directory.is_dead = directory.newest == 0;
        }
    }

    /// Whether the head of an entry may be dropped.
    pub(super) fn is_dead(&self, head: Handle) -> bool {
        self.get(head).is_dead
    }

    /// No entry names a directory any more that was marked dead and has not been used since.
    pub(super) fn end_round(&mut self) {
        self.free.clear();
        for (place, directory) in self.slots.iter_mut().enumerate() {
            if directory.is_dead {
                directory.cells = Vec::new();
                self.free.push(place as u32);
            }
        }
        self.kept = self.slots.len() - self.free.len();
    }
}
