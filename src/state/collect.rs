//! What the keys of a batch find on the other side, in the order in which it was stored.

use super::State;
use super::arena::{Arena, Handle};
use super::chain::{Walks, make_directory};
use super::directory::{Directory, RUNS_WALKED_MAX, is_directory};
#[cfg(target_arch = "aarch64")]
use super::filter::Neon;
#[cfg(target_arch = "x86_64")]
use super::filter::{Avx2, Avx512};
use super::filter::{FEW, Lanes, Scalar, Simd};
use super::hits::{HITS_MAX, Hits, Many};
use super::pass::{NO_PLACE, Pass, Scratch};
use super::run::{Run, key_rest};
use super::table::Entry;

/// From so many partners of one event on, they are handed over by themselves.
pub(super) const MANY: usize = 24;

impl State {
    /// Collects the partners of the events in `scratch.known` from `next` on, each event's in the
    /// order in which they were stored, until there are many. Returns where to go on; and where the
    /// hits of the last event begin, if they alone are many.
    #[inline]
    pub(super) fn collect(
        &mut self,
        scratch: &mut Scratch,
        next: usize,
        pass: &Pass<'_>,
    ) -> (usize, Option<Many>) {
        match self.filter.simd() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the filter is the proof that the processor has the features.
            Simd::Avx512 => unsafe { self.collect_avx512(scratch, next, pass) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Simd::Avx2 => unsafe { self.collect_avx2(scratch, next, pass) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Simd::Neon => unsafe { self.collect_known::<Neon>(scratch, next, pass) },
            // SAFETY: no feature is needed.
            _ => unsafe { self.collect_known::<Scalar>(scratch, next, pass) },
        }
    }

    /// # Safety
    /// The processor has the features.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512vl,popcnt,bmi1,bmi2")]
    unsafe fn collect_avx512(
        &mut self,
        scratch: &mut Scratch,
        next: usize,
        pass: &Pass<'_>,
    ) -> (usize, Option<Many>) {
        // SAFETY: this function's contract.
        unsafe { self.collect_known::<Avx512>(scratch, next, pass) }
    }

    /// # Safety
    /// The processor has the features.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,popcnt,bmi1,bmi2")]
    unsafe fn collect_avx2(
        &mut self,
        scratch: &mut Scratch,
        next: usize,
        pass: &Pass<'_>,
    ) -> (usize, Option<Many>) {
        // SAFETY: this function's contract.
        unsafe { self.collect_known::<Avx2>(scratch, next, pass) }
    }

    /// # Safety
    /// The processor has what `L` needs.
    #[inline(always)]
    unsafe fn collect_known<L: Lanes>(
        &mut self,
        scratch: &mut Scratch,
        mut next: usize,
        pass: &Pass<'_>,
    ) -> (usize, Option<Many>) {
        let side = pass.side.other();
        let mut walks = self.walks[side.index()];
        let mut many = None;
        while next < scratch.known.len() && scratch.hits.len() < HITS_MAX && many.is_none() {
            let place = scratch.known.get(next);
            next += 1;
            let entry = match self.look(place, scratch, pass) {
                Look::Nothing => continue,
                Look::Row(run) => {
                    // There is no order to keep, nor anything to be learnt about buckets.
                    scratch.hits.select_single(run, place, pass.range(place));
                    continue;
                }
                Look::Few(run) => {
                    // SAFETY: this function's contract.
                    let count =
                        unsafe { scratch.hits.select_few::<L>(run, place, pass.range(place)) };
                    walks.add(run.len(), count);
                    continue;
                }
                Look::Entry(entry) => entry,
            };
            // SAFETY: this function's contract.
            many = unsafe { self.collect_chain::<L>(entry, place, scratch, pass, &mut walks) };
        }
        self.walks[side.index()] = walks;
        (next, many)
    }

    /// Makes sure of a known event's entry, and looks at what stands there on the other side.
    #[inline(always)]
    fn look(&self, place: u8, scratch: &mut Scratch, pass: &Pass<'_>) -> Look {
        let (own, side) = (pass.side.index(), pass.side.other());
        let (arena, ring) = (&self.arenas[side.index()], &self.rings[side.index()]);
        let rest = key_rest(pass.key(place));
        let entry = scratch.entry(place);
        if pass.layout != self.index.layout() {
            return self.look_closer(place, scratch, pass);
        }
        let head = entry.head(side);
        if !arena.is_live(head) {
            // One of an entry's two heads was live.
            if self.rest_of(own, entry.head(pass.side)) == rest {
                return Look::Nothing;
            }
            return self.look_closer(place, scratch, pass);
        }
        if is_directory(head) {
            if self.rest_of(side.index(), head) == rest {
                return Look::Entry(entry);
            }
            return self.look_closer(place, scratch, pass);
        }
        // SAFETY: a live head that is no directory leads to a run.
        let run = unsafe { Run::at(arena.address(head)) };
        if run.rest() != rest {
            return self.look_closer(place, scratch, pass);
        }
        let (len, older) = (run.len(), run.older());
        if !arena.is_live(older) {
            if len == 1 {
                return Look::Row(run);
            }
        } else if arena.bucket_of(older) >= ring.buckets_of(pass.range(place)).0 {
            return Look::Entry(entry);
        }
        if len <= FEW { Look::Few(run) } else { Look::Entry(entry) }
    }

    /// Finds the entry that is the key's for certain.
    #[cold]
    #[inline(never)]
    fn look_closer(&self, place: u8, scratch: &mut Scratch, pass: &Pass<'_>) -> Look {
        let key = pass.key(place);
        let is_moved = pass.layout != self.index.layout();
        let found =
            Some(scratch.entry(place)).filter(|&entry| !is_moved && self.is_key(entry, key));
        let Some(entry) = found.or_else(|| self.search(key)) else {
            scratch.places[usize::from(place)] = NO_PLACE;
            return Look::Nothing;
        };
        scratch.set_entry(place, entry);
        let other = pass.side.other();
        let is_live = self.arenas[other.index()].is_live(entry.head(other));
        if is_live { Look::Entry(entry) } else { Look::Nothing }
    }

    /// Collects from all runs of an entry. Returns where the hits begin, if they are many.
    ///
    /// # Safety
    /// The processor has what `L` needs.
    #[inline(always)]
    unsafe fn collect_chain<L: Lanes>(
        &mut self,
        entry: Entry,
        place: u8,
        scratch: &mut Scratch,
        pass: &Pass<'_>,
        walks: &mut Walks,
    ) -> Option<Many> {
        let side = pass.side.other();
        let now = self.sequences[side.index()];
        let directories = &mut self.directories[side.index()];
        let (arena, ring) = (&self.arenas[side.index()], &self.rings[side.index()]);
        let head = entry.head(side);
        let (range, hits) = (pass.range(place), &mut scratch.hits);
        let buckets = ring.buckets_of(range);
        let mark = hits.mark();
        if is_directory(head) {
            let directory = directories.get(head);
            // SAFETY: this function's contract.
            unsafe { collect_by_bucket::<L>(directory, arena, buckets, range, place, hits) };
        } else {
            let runs = walks.runs;
            // SAFETY: this function's contract.
            unsafe { walk::<L>(head, arena, buckets, range, place, hits, walks) };
            walks.hits += hits.len_since(mark) as u64;
            if walks.runs - runs > RUNS_WALKED_MAX {
                make_directory(directories, arena, side, entry);
            }
        }
        let by_run = hits.pieces_since(mark) <= 1 || hits.order(mark, now);
        (hits.len_since(mark) >= MANY).then_some(Many { mark, by_run })
    }
}

/// What stands at an entry on the other side.
enum Look {
    /// No run.
    Nothing,
    /// One row.
    Row(Run),
    /// A run of up to [`FEW`] rows, the only one with rows that may be in range.
    Few(Run),
    /// Whatever it is.
    Entry(Entry),
}

/// Collects from a chain, the oldest run first.
///
/// # Safety
/// The processor has what `L` needs.
#[inline(always)]
unsafe fn walk<L: Lanes>(
    head: Handle,
    arena: &Arena,
    (first, last): (i64, i64),
    range: (i64, i64),
    event: u8,
    hits: &mut Hits,
    walks: &mut Walks,
) {
    hits.runs.clear();
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
            hits.runs.push(run);
        }
    }
    walks.probes += 1;
    while let Some(run) = hits.runs.pop() {
        // SAFETY: this function's contract.
        unsafe { hits.select::<L>(run, event, range) };
    }
}

/// Collects from the runs of a directory.
///
/// # Safety
/// The processor has what `L` needs.
#[inline(always)]
unsafe fn collect_by_bucket<L: Lanes>(
    directory: &Directory,
    arena: &Arena,
    (first, last): (i64, i64),
    range: (i64, i64),
    event: u8,
    hits: &mut Hits,
) {
    let Some(last) = directory.last_bucket(first, last, arena) else {
        for run in directory.runs(arena) {
            if (first..=last).contains(&arena.bucket_of(run)) {
                // SAFETY: this function's contract.
                unsafe { select_chain::<L>(run, arena, range, event, hits) };
            }
        }
        return;
    };
    for bucket in first..=last {
        if let Some(run) = directory.find(bucket, arena) {
            // SAFETY: this function's contract.
            unsafe { select_chain::<L>(run, arena, range, event, hits) };
        }
    }
}

/// Collects from the runs of one bucket of a directory.
///
/// # Safety
/// The processor has what `L` needs.
#[inline(always)]
unsafe fn select_chain<L: Lanes>(
    newest: Handle,
    arena: &Arena,
    range: (i64, i64),
    event: u8,
    hits: &mut Hits,
) {
    let mut handle = newest;
    while arena.is_live(handle) {
        // SAFETY: a live handle of a directory leads to a run.
        let run = unsafe { Run::at(arena.address(handle)) };
        // SAFETY: this function's contract.
        unsafe { hits.select::<L>(run, event, range) };
        handle = run.older();
    }
}
