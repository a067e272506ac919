//! The partners that a batch's probes have found, flat: one row after the other over all events.
//!
//! Rows are collected without a branch that depends on the data, and handed over in one loop that
//! runs through all of them: a processor mispredicts neither how many partners an event has nor in
//! how many runs they stand, which costs more than the work itself where partners are few.

use std::ops::Range;

use super::filter::{Lanes, SELECT_SLACK};
use super::run::{Columns, Run, SEQUENCE_MASK};

/// From so many hits on, they are handed over before the next event is probed.
pub(super) const HITS_MAX: usize = 4096;

/// Rows of one run that are partners of one event.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) columns: Columns,
    /// The event's place in the batch.
    pub(super) event: u8,
    /// The first of its hits.
    from: u32,
}

/// See the module's text.
pub(super) struct Hits {
    /// Rows within their runs; scratch beyond `len`.
    rows: Vec<u32>,
    /// The piece of each.
    owners: Vec<u32>,
    len: usize,
    pieces: Vec<Piece>,
    /// Hits under way into another order: age << 32 | place; and the two columns in it.
    keyed: Vec<u64>,
    older: Vec<u64>,
    ordered_rows: Vec<u32>,
    ordered_owners: Vec<u32>,
}

/// The hits of one event begin here.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    pub(super) hit: usize,
    piece: usize,
}

/// An event has many hits: where they begin, and whether they are all of one run.
#[derive(Clone, Copy)]
pub(super) struct Many {
    pub(super) mark: Mark,
    pub(super) one_run: bool,
}

impl Hits {
    pub(super) fn new() -> Hits {
        Hits {
            rows: vec![0; HITS_MAX],
            owners: vec![0; HITS_MAX],
            len: 0,
            pieces: Vec::with_capacity(HITS_MAX),
            keyed: Vec::with_capacity(64),
            older: Vec::with_capacity(64),
            ordered_rows: Vec::with_capacity(64),
            ordered_owners: Vec::with_capacity(64),
        }
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.pieces.clear();
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn mark(&self) -> Mark {
        Mark { hit: self.len, piece: self.pieces.len() }
    }

    /// Hits since `mark`.
    #[inline]
    pub(super) fn len_since(&self, mark: Mark) -> usize {
        self.len - mark.hit
    }

    /// The hits in `range`: the row in its run, and whose it is.
    #[inline]
    pub(super) fn iter(&self, range: Range<usize>) -> impl Iterator<Item = (u32, Piece)> {
        let owners = &self.owners[range.clone()];
        let pieces = &self.pieces[..];
        self.rows[range].iter().zip(owners).map(|(&row, &owner)| (row, pieces[owner as usize]))
    }

    /// The rows of the hits since `mark`, which are all of one run, and its columns.
    #[inline]
    pub(super) fn of_one_run(&self, mark: Mark) -> Option<(Columns, &[u32])> {
        let owner = *self.owners[mark.hit..self.len].first()?;
        Some((self.pieces[owner as usize].columns, &self.rows[mark.hit..self.len]))
    }

    /// Selects the only row of a run if its time is in `[lo, hi]`.
    #[inline]
    pub(super) fn select_single(&mut self, run: Run, event: u8, (lo, hi): (i64, i64)) {
        let ts = run.stored(0).ts();
        let is_hit = lo <= ts && ts <= hi;
        self.make_room(1);
        let from = self.len;
        (self.rows[from], self.owners[from]) = (0, self.pieces.len() as u32);
        self.pieces.push(Piece { columns: run.columns(), event, from: from as u32 });
        self.len += usize::from(is_hit);
    }

    /// Selects the rows of a run with times in `[lo, hi]`; returns how many.
    ///
    /// # Safety
    /// The processor has what `L` needs.
    #[inline(always)]
    pub(super) unsafe fn select<L: Lanes>(
        &mut self,
        run: Run,
        event: u8,
        (lo, hi): (i64, i64),
    ) -> usize {
        let timestamps = run.timestamps();
        let from = self.len;
        self.make_room(timestamps.len());
        let owner = self.pieces.len() as u32;
        self.pieces.push(Piece { columns: run.columns(), event, from: from as u32 });
        let (ts, len) = (timestamps.as_ptr(), timestamps.len());
        // SAFETY: both columns have room for as many hits and the slack, which was just seen to;
        // the caller vouches for the processor.
        unsafe {
            let count = L::select(ts, len, lo, hi, self.rows.as_mut_ptr().add(from));
            let owners = self.owners.as_mut_ptr().add(from);
            let mut marked = 0;
            loop {
                // More than needed, in one store.
                owners.add(marked).cast::<[u32; SELECT_SLACK]>().write([owner; SELECT_SLACK]);
                marked += SELECT_SLACK;
                if marked >= count {
                    break;
                }
            }
            self.len = from + count;
            count
        }
    }

    #[inline]
    fn make_room(&mut self, count: usize) {
        if self.rows.len() < self.len + count + SELECT_SLACK {
            self.grow(count);
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, count: usize) {
        let len = (self.len + count + SELECT_SLACK).next_power_of_two();
        self.rows.resize(len, 0);
        self.owners.resize(len, 0);
    }

    /// Puts the hits since `mark`, collected from the newest bucket to the oldest, into the order
    /// in which their rows were stored. `now` is the next row's place in that order.
    #[inline(never)]
    pub(super) fn order(&mut self, mark: Mark, now: u32) {
        let Hits { rows, owners, len, pieces, keyed, older, ordered_rows, ordered_owners } = self;
        // Rows stored earlier are further behind `now`, modulo the sequence's range.
        let age = |owner: u32, row: u32| {
            let tag = pieces[owner as usize].columns.stored(row as usize).tag();
            tag.wrapping_sub(now) & SEQUENCE_MASK
        };
        ordered_rows.clear();
        ordered_owners.clear();
        let mut to = *len;
        // Older buckets first: that is the order already, but for where times were out of order.
        for owner in (mark.piece..pieces.len()).rev() {
            let (from, owner) = (pieces[owner].from as usize, owner as u32);
            if from == to {
                continue;
            }
            let middle = ordered_rows.len();
            ordered_rows.extend_from_slice(&rows[from..to]);
            ordered_owners.extend(std::iter::repeat_n(owner, to - from));
            to = from;
            if middle == 0 {
                continue;
            }
            let age_at = |at: usize| age(ordered_owners[at], ordered_rows[at]);
            let (last, first) = (age_at(middle - 1), age_at(middle));
            if last < first {
                continue;
            }
            let start = partition(0, middle, |at| age_at(at) < first);
            let end = partition(middle, ordered_rows.len(), |at| age_at(at) < last);
            keyed.clear();
            keyed.extend((start..end).map(|at| u64::from(age_at(at)) << 32 | at as u64));
            merge(keyed, middle - start, older);
            // What is merged is small: a copy of it is cheaper than a permutation in place.
            older.clear();
            older.extend(keyed.iter().map(|&key| {
                let at = key as u32 as usize;
                u64::from(ordered_owners[at]) << 32 | u64::from(ordered_rows[at])
            }));
            let merged = ordered_rows[start..end].iter_mut().zip(&mut ordered_owners[start..end]);
            for ((row, owner), &from) in merged.zip(older.iter()) {
                (*row, *owner) = (from as u32, (from >> 32) as u32);
            }
        }
        rows[mark.hit..*len].copy_from_slice(ordered_rows);
        owners[mark.hit..*len].copy_from_slice(ordered_owners);
    }
}

/// The first place in `from..to` that is not `before`; those that are come first.
#[inline]
fn partition(mut from: usize, mut to: usize, before: impl Fn(usize) -> bool) -> usize {
    while from < to {
        let middle = (from + to) / 2;
        if before(middle) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    from
}

/// Merges `keys[..middle]` and `keys[middle..]`, both ascending.
#[inline]
fn merge(keys: &mut [u64], middle: usize, older: &mut Vec<u64>) {
    older.clear();
    older.extend_from_slice(&keys[..middle]);
    let (mut from_older, mut from_newer, mut to) = (0, middle, 0);
    while from_older < older.len() && from_newer < keys.len() {
        let (old, new) = (older[from_older], keys[from_newer]);
        // Without a branch: which is first is as good as random.
        let is_old = old < new;
        keys[to] = if is_old { old } else { new };
        from_older += usize::from(is_old);
        from_newer += usize::from(!is_old);
        to += 1;
    }
    keys[to..to + older.len() - from_older].copy_from_slice(&older[from_older..]);
}
