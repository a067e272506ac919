//! The partners that a batch's probes have found, flat: one row after the other over all events.
//!
//! Rows are collected without a branch that depends on the data, and handed over in one loop that
//! runs through all of them: a processor mispredicts neither how many partners an event has nor in
//! how many runs they stand, which costs more than the work itself where partners are few.

use std::ops::Range;

use super::filter::{FEW, Lanes, SELECT_SLACK};
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
    /// With a hit each, and with room for as many as `rows` has.
    pieces: Vec<Piece>,
    /// Hits under way into another order: age << 32 | place.
    keyed: Vec<u64>,
    older: Vec<u64>,
    /// The runs of a chain, while it is walked.
    pub(super) runs: Vec<Run>,
}

/// The hits of one event begin here.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    pub(super) hit: usize,
    piece: usize,
}

/// An event has many hits: where they begin, and whether they can be taken run by run.
#[derive(Clone, Copy)]
pub(super) struct Many {
    pub(super) mark: Mark,
    pub(super) by_run: bool,
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
            runs: Vec::with_capacity(64),
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

    /// In how many runs there were hits since `mark`.
    #[inline]
    pub(super) fn pieces_since(&self, mark: Mark) -> usize {
        self.pieces.len() - mark.piece
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

    /// Asks for what stands beside the times of the hits in `range`.
    #[inline]
    pub(super) fn prefetch(&self, range: Range<usize>) {
        for (row, piece) in self.iter(range) {
            piece.columns.prefetch(row as usize);
        }
    }

    /// The hits since `mark`, run by run, unless they were merged.
    #[inline]
    pub(super) fn by_run(&self, mark: Mark) -> impl Iterator<Item = (Columns, &[u32])> {
        let pieces = mark.piece..self.pieces.len();
        pieces.map(|piece| (self.pieces[piece].columns, &self.rows[self.hits_of(piece)]))
    }

    /// Selects the only row of a run if its time is in `[lo, hi]`.
    #[inline]
    pub(super) fn select_single(&mut self, run: Run, event: u8, (lo, hi): (i64, i64)) {
        let ts = run.stored(0).ts();
        let is_hit = (lo <= ts) & (ts <= hi);
        self.make_room(1);
        let from = self.len;
        (self.rows[from], self.owners[from]) = (0, self.pieces.len() as u32);
        self.add(run, event, usize::from(is_hit));
    }

    /// Takes over hits that were written behind the others, of one run. There must be room.
    #[inline(always)]
    fn add(&mut self, run: Run, event: u8, count: usize) {
        let piece = Piece { columns: run.columns(), event, from: self.len as u32 };
        let piece_count = self.pieces.len();
        debug_assert!(piece_count <= self.len && self.len < self.pieces.capacity());
        // SAFETY: there are no more pieces than hits, and `make_room` saw to it that there is room
        // for more pieces than there are hits. What is behind the length is never read, so that a
        // piece without a hit can be left there, without a branch.
        unsafe {
            self.pieces.as_mut_ptr().add(piece_count).write(piece);
            self.pieces.set_len(piece_count + usize::from(count > 0));
        }
        self.len += count;
    }

    /// As [`select`](Self::select), for a run of up to [`FEW`] rows.
    ///
    /// # Safety
    /// The processor has what `L` needs.
    #[inline(always)]
    pub(super) unsafe fn select_few<L: Lanes>(
        &mut self,
        run: Run,
        event: u8,
        (lo, hi): (i64, i64),
    ) -> usize {
        let timestamps = run.timestamps();
        debug_assert!(timestamps.len() <= FEW);
        let from = self.len;
        self.make_room(FEW);
        let owner = self.pieces.len() as u32;
        let (ts, len) = (timestamps.as_ptr(), timestamps.len());
        // SAFETY: both columns have room for FEW hits and the slack, which was just seen to; the
        // caller vouches for the processor.
        let count = unsafe {
            // More than needed, without a branch.
            self.owners.as_mut_ptr().add(from).cast::<[u32; FEW]>().write([owner; FEW]);
            L::select_few(ts, len, lo, hi, self.rows.as_mut_ptr().add(from))
        };
        self.add(run, event, count);
        count
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
        if timestamps.len() <= FEW {
            // SAFETY: this function's contract.
            return unsafe { self.select_few::<L>(run, event, (lo, hi)) };
        }
        let from = self.len;
        self.make_room(timestamps.len());
        let owner = self.pieces.len() as u32;
        let (ts, len) = (timestamps.as_ptr(), timestamps.len());
        // SAFETY: both columns have room for as many hits and the slack, which was just seen to;
        // the caller vouches for the processor.
        let count = unsafe {
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
            count
        };
        self.add(run, event, count);
        count
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
        self.pieces.reserve(len - self.pieces.len());
    }

    /// Puts the hits since `mark`, collected from the oldest bucket to the newest, into the order
    /// in which their rows were stored. `now` is the next row's place in that order. Returns
    /// whether they are in that order as they were collected, run by run.
    #[inline]
    pub(super) fn order(&mut self, mark: Mark, now: u32) -> bool {
        let mut last = None;
        for place in mark.piece..self.pieces.len() {
            let hits = self.hits_of(place);
            if last.is_some_and(|last| self.age(last, now) > self.age(hits.start, now)) {
                self.merge(mark, now);
                return false;
            }
            last = Some(hits.end - 1);
        }
        true
    }

    /// The hits of a piece, as long as they were not merged with others.
    #[inline]
    fn hits_of(&self, piece: usize) -> Range<usize> {
        let to = self.pieces.get(piece + 1).map_or(self.len, |next| next.from as usize);
        self.pieces[piece].from as usize..to
    }

    /// Where in the order of insertion the row of a hit stands.
    #[inline]
    fn age(&self, hit: usize, now: u32) -> u32 {
        let columns = self.pieces[self.owners[hit] as usize].columns;
        age_of(columns, self.rows[hit], now)
    }

    #[inline(never)]
    fn merge(&mut self, mark: Mark, now: u32) {
        for piece in mark.piece + 1..self.pieces.len() {
            let (middle, to) = (self.hits_of(piece).start, self.hits_of(piece).end);
            let (last, first) = (self.age(middle - 1, now), self.age(middle, now));
            if last < first {
                continue;
            }
            let start = partition(mark.hit, middle, |at| self.age(at, now) < first);
            let end = partition(middle, to, |at| self.age(at, now) < last);
            let Hits { rows, owners, pieces, keyed, older, .. } = self;
            keyed.clear();
            keyed.extend((start..end).map(|at| {
                let age = age_of(pieces[owners[at] as usize].columns, rows[at], now);
                u64::from(age) << 32 | at as u64
            }));
            merge(keyed, middle - start, older);
            older.clear();
            older.extend(keyed.iter().map(|&key| {
                let at = key as u32 as usize;
                u64::from(owners[at]) << 32 | u64::from(rows[at])
            }));
            let merged = rows[start..end].iter_mut().zip(&mut owners[start..end]);
            for ((row, owner), &from) in merged.zip(older.iter()) {
                (*row, *owner) = (from as u32, (from >> 32) as u32);
            }
        }
    }
}

/// Rows stored earlier are further behind `now`, modulo the sequence's range.
#[inline]
fn age_of(columns: Columns, row: u32, now: u32) -> u32 {
    columns.stored(row as usize).tag().wrapping_sub(now) & SEQUENCE_MASK
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
