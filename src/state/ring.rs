//! The time buckets of one side: found by number, filled, retired from the oldest on.
//!
//! Bucket `n` holds the rows with `ts >> shift == n`, and perhaps some that are a little older (see
//! `bucket_for`). Buckets are kept in order in a short vector;
//! a small direct-mapped ring in front of it finds the bucket of an event in one look. When a side
//! is spread over far more buckets than planned (its disorder is larger than its interval), all
//! buckets are made wider by merging neighbours, which touches no row: a run only has to know that
//! the buckets of its key come in descending order, and halving the numbers keeps them so.

mod lives;

use bumpalo::Bump;

use super::arena::{Arena, CHUNK_NUMBERS, Chunk, Handle, UNIT_BYTES};
use super::run::{Run, Word, run_bytes};
use crate::event::prefetch_for_write;
use lives::Lives;

/// Places of the direct-mapped ring.
const RING_LEN: usize = 1024;
/// From so many live chunks on, buckets are merged if there are more than so many: a bucket takes
/// a chunk more whenever its rows double, so the scarcer numbers are, the fewer buckets may be.
const CROWDED: [(usize, usize); 3] = [
    (CHUNK_NUMBERS / 2, BUCKETS_KEPT),
    (CHUNK_NUMBERS / 8 * 5, BUCKETS_KEPT / 4),
    (CHUNK_NUMBERS / 4 * 3, BUCKETS_KEPT / 16),
];
const BUCKETS_KEPT: usize = 256;
/// How many buckets later than its time says a row may be kept.
const DISPLACED_BUCKETS_MAX: i64 = 2;
/// Buckets are made wider when they have fewer rows than this each: a bucket takes a chunk and,
/// with long rows, a store of them, well over a kibibyte.
const THIN_ROWS: u64 = 8;
/// From so many rows on that is judged; up to the width that `thin_up_to` names, from fewer on:
/// right after the start, few rows are spread over as many buckets as there will ever be, and wider
/// buckets stay wide.
const THIN_FROM_ROWS: u64 = 256;
const THIN_FROM_ROWS_NARROW: u64 = 16;
/// A new bucket's first chunk is sized by the fullest of so many before it, and is no smaller.
const FIRST_CHUNK_BYTES_MIN: usize = 1 << 10;
const BUCKETS_BEFORE: usize = 64;
/// How far ahead room for runs is asked for.
const BYTES_ASKED_FOR: usize = 512;
/// Emptied stores of long rows that are kept for the next bucket.
const BUMPS_POOLED_MAX: usize = 4;

/// State needs another chunk and every chunk number is taken.
#[derive(Debug)]
pub(crate) struct Exhausted;

/// One time slice of one side, and everything that dies with it.
pub(crate) struct Bucket {
    number: i64,
    /// Where the next run goes in the last chunk, as an address and as a handle, and its end.
    cursor: *mut u8,
    end: *mut u8,
    handle: Handle,
    /// Chunks of runs; the last one is being filled.
    chunks: Vec<Chunk>,
    /// Bytes of rows that do not fit a word: what is being filled, and that of absorbed neighbours.
    bump: Option<Bump>,
    absorbed_bumps: Vec<Bump>,
    /// Bytes of runs in all chunks but the last.
    full_bytes: usize,
    lives: Lives,
}

/// The buckets of one side.
pub(crate) struct Ring {
    shift: u32,
    /// Under this shift, a few rows are enough to see that buckets are thin.
    thin_shift: u32,
    /// Whether a row goes into its key's newest run even if its own bucket is an older one.
    keeps_arrival_order: bool,
    /// How many ticks a row's time may lie before its bucket.
    displaced: i64,
    /// In ascending order of number.
    buckets: Vec<Bucket>,
    /// `number mod RING_LEN` -> place in `buckets`, to be verified.
    places: Box<[u16; RING_LEN]>,
    bump_pool: Vec<Bump>,
    chunk_vec_pool: Vec<Vec<Chunk>>,
    bump_bytes: usize,
    /// Bytes of runs in the fullest of the buckets that were retired last.
    bucket_bytes_expected: usize,
    row_count: u64,
}

impl Ring {
    pub(crate) fn new(shift: u32) -> Ring {
        Ring {
            shift,
            thin_shift: shift,
            keeps_arrival_order: false,
            displaced: 0,
            buckets: Vec::with_capacity(64),
            places: Box::new([0; RING_LEN]),
            bump_pool: Vec::new(),
            chunk_vec_pool: Vec::new(),
            bump_bytes: 0,
            bucket_bytes_expected: 0,
            row_count: 0,
        }
    }

    /// Thin buckets are made wider at once up to `1 << shift` ticks.
    pub(crate) fn thin_up_to(mut self, shift: u32) -> Ring {
        self.thin_shift = shift;
        self
    }

    /// The number of the bucket that `ts` falls into.
    #[inline]
    pub(crate) fn number_of(&self, ts: i64) -> i64 {
        ts >> self.shift
    }

    /// The bucket for a row of a key whose newest run is in bucket `newest`.
    ///
    /// Mostly the bucket of its time. Where probes want most of what they see, it is the newest
    /// one, if that is near: then a key's rows stand in the order in which they came, and nothing
    /// has to be merged. They are freed with that bucket, a little later than with their own.
    #[inline]
    pub(crate) fn bucket_for(&mut self, ts: i64, newest: i64) -> i64 {
        let number = self.number_of(ts);
        if self.keeps_arrival_order && newest > number && newest - number <= DISPLACED_BUCKETS_MAX {
            let before = (newest << self.shift).saturating_sub(ts);
            self.displaced = self.displaced.max(before);
            return newest;
        }
        number
    }

    /// Whether rows go into the newest run from here on.
    pub(crate) fn keep_arrival_order(&mut self, does: bool) {
        self.keeps_arrival_order = does;
    }

    /// The buckets in which rows with times in `[lo, hi]` may stand.
    #[inline]
    pub(crate) fn buckets_of(&self, (lo, hi): (i64, i64)) -> (i64, i64) {
        (self.number_of(lo), self.number_of(hi.saturating_add(self.displaced)))
    }

    /// Where the chunk with `number` starts and how many bytes of it are in use, if it is live.
    pub(crate) fn live_chunk(&self, number: usize, arena: &Arena) -> Option<(*mut u8, usize)> {
        let bucket = arena.bucket_of_chunk(number)?;
        let place = self.buckets.binary_search_by_key(&bucket, |bucket| bucket.number).ok()?;
        let bucket = &self.buckets[place];
        let chunk = bucket.chunks.iter().position(|chunk| usize::from(chunk.number) == number)?;
        Some((bucket.chunks[chunk].start(), bucket.used_of(chunk)))
    }

    pub(crate) fn bucket_count(&self) -> usize {
        self.buckets.len()
    }

    pub(crate) fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Bytes of long rows, as allocated.
    pub(crate) fn bytes(&self) -> usize {
        self.bump_bytes
    }

    /// The place of bucket `number`, which is made if need be; valid until the next call.
    #[inline]
    pub(crate) fn place(&mut self, number: i64, arena: &mut Arena) -> Result<usize, Exhausted> {
        let place = usize::from(self.places[number as usize % RING_LEN]);
        match self.buckets.get(place) {
            Some(bucket) if bucket.number == number => Ok(place),
            _ => self.find_or_create(number, arena),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_or_create(&mut self, number: i64, arena: &mut Arena) -> Result<usize, Exhausted> {
        let place = match self.buckets.binary_search_by_key(&number, |bucket| bucket.number) {
            Ok(place) => place,
            Err(place) => {
                // Out of order, the newest ones all fill at once: a full one is further back.
                let older = &self.buckets[place.saturating_sub(BUCKETS_BEFORE)..place];
                let fullest = older.iter().map(Bucket::run_bytes).max().unwrap_or(0);
                let bytes = self.bucket_bytes_expected.max(fullest);
                // Most of it in one chunk, which is rounded up; the rest goes to further ones. No
                // more than twice what all have on average: one crowded bucket is no rule.
                let average = self.row_count as usize * run_bytes(0) / self.buckets.len().max(1);
                let first = (bytes / 4 * 3).min(2 * average).max(FIRST_CHUNK_BYTES_MIN);
                let chunk = arena.take(first, number).ok_or(Exhausted)?;
                let chunks = self.chunk_vec_pool.pop().unwrap_or_default();
                self.buckets.insert(place, Bucket::new(number, chunks, chunk));
                place
            }
        };
        // Places fit 16 bits: every bucket has a chunk of its own, and there are fewer numbers.
        self.places[number as usize % RING_LEN] = place as u16;
        Ok(place)
    }

    /// Room for a run in the bucket at `place`.
    #[inline]
    pub(crate) fn allocate_run(
        &mut self,
        place: usize,
        capacity_log2: u32,
        arena: &mut Arena,
    ) -> Result<(Handle, *mut u8), Exhausted> {
        let bytes = run_bytes(capacity_log2);
        let bucket = &mut self.buckets[place];
        if bucket.cursor.wrapping_add(bytes) > bucket.end {
            bucket.open_chunk(bytes, arena)?;
        }
        let room = (bucket.handle, bucket.cursor);
        bucket.cursor = bucket.cursor.wrapping_add(bytes);
        bucket.handle += (bytes / UNIT_BYTES) as u32;
        // The chunk's memory was last touched by rows that are gone.
        prefetch_for_write(bucket.cursor.wrapping_add(BYTES_ASKED_FOR));
        Ok(room)
    }

    /// Counts rows that were stored; [`Arena::count_row`] has counted each into its chunk.
    #[inline]
    pub(crate) fn add_rows(&mut self, count: u64) {
        self.row_count += count;
    }

    /// Keeps a row that does not fit a word as bytes in the bucket at `place`.
    #[inline(never)]
    pub(crate) fn keep_long_row(&mut self, place: usize, row: &[u8]) -> Word {
        let bucket = &mut self.buckets[place];
        if bucket.bump.is_none() {
            let bump = self.bump_pool.pop().unwrap_or_default();
            self.bump_bytes += bump.allocated_bytes();
            bucket.bump = Some(bump);
        }
        let bump = bucket.bump.get_or_insert_default();
        let before = bump.allocated_bytes();
        let stored = bump.alloc_slice_fill_copy(row.len() + 4, 0u8);
        // Rows are at most 64 MiB and keys 64 KiB: the length fits.
        stored[..4].copy_from_slice(&(row.len() as u32).to_ne_bytes());
        stored[4..].copy_from_slice(row);
        let address = stored.as_ptr();
        self.bump_bytes += bump.allocated_bytes() - before;
        Word::elsewhere(address)
    }

    /// Retires every bucket whose rows all have times under `floor`; returns how many rows went.
    pub(crate) fn retire(&mut self, floor: i64, arena: &mut Arena) -> u64 {
        let first_kept = self.number_of(floor);
        let count = self.buckets.partition_point(|bucket| bucket.number < first_kept);
        if count == 0 { 0 } else { self.retire_first(count, arena) }
    }

    /// The number of the oldest bucket.
    pub(crate) fn oldest(&self) -> Option<i64> {
        self.buckets.first().map(|bucket| bucket.number)
    }

    /// The last time of bucket `number`.
    pub(crate) fn last_time_of(&self, number: i64) -> i64 {
        number << self.shift | i64::MAX >> (63 - self.shift)
    }

    /// Calls `each` with every run of the oldest bucket that has not moved.
    pub(crate) fn each_run_of_oldest(&self, mut each: impl FnMut(Run)) {
        if let Some(bucket) = self.buckets.first() {
            bucket.each_run(&mut each);
        }
    }

    /// Retires the oldest buckets, so many of them; returns how many rows went.
    pub(crate) fn retire_oldest(&mut self, count: usize, arena: &mut Arena) -> u64 {
        self.retire_first(self.buckets.len().min(count), arena)
    }

    /// The last time of the bucket behind so many older ones, and the bytes and rows that it takes.
    pub(crate) fn size_of(&self, older: usize, arena: &Arena) -> Option<(i64, (usize, u64))> {
        let bucket = self.buckets.get(older)?;
        let chunks: usize = bucket.chunks.iter().map(Chunk::bytes).sum();
        let bumps = bucket.bump.iter().chain(&bucket.absorbed_bumps);
        let bytes = chunks + bumps.map(Bump::allocated_bytes).sum::<usize>();
        Some((self.last_time_of(bucket.number), (bytes, bucket.rows(arena))))
    }

    /// The number of the bucket behind so many older ones, if there is one, and their rows.
    pub(crate) fn first_after(&self, count: usize, arena: &Arena) -> (Option<i64>, u64) {
        let older = self.buckets.iter().take(count);
        let rows = older.map(|bucket| bucket.rows(arena)).sum();
        (self.buckets.get(count).map(|bucket| bucket.number), rows)
    }

    /// Retires everything.
    pub(crate) fn retire_all(&mut self, arena: &mut Arena) -> u64 {
        self.retire_first(self.buckets.len(), arena)
    }

    fn retire_first(&mut self, count: usize, arena: &mut Arena) -> u64 {
        let (mut rows, mut counted) = (0, 0);
        self.bucket_bytes_expected = 0;
        for mut bucket in self.buckets.drain(..count) {
            counted += bucket.lives.counted;
            self.bucket_bytes_expected = self.bucket_bytes_expected.max(bucket.run_bytes());
            for chunk in bucket.chunks.drain(..) {
                rows += arena.give_back(&chunk);
            }
            if self.chunk_vec_pool.len() < BUCKETS_KEPT {
                self.chunk_vec_pool.push(bucket.chunks);
            }
            for mut bump in bucket.bump.into_iter().chain(bucket.absorbed_bumps) {
                self.bump_bytes -= bump.allocated_bytes();
                if self.bump_pool.len() < BUMPS_POOLED_MAX {
                    bump.reset();
                    self.bump_pool.push(bump);
                }
            }
        }
        self.row_count -= rows;
        rows - counted
    }

    /// Makes buckets wider when there are so many that chunk numbers run short, or that the least
    /// a bucket takes is most of what all take. The chunks that there are stay, but few further
    /// ones are needed from then on. Returns whether it did.
    #[inline]
    pub(crate) fn widen_if_crowded(&mut self, arena: &mut Arena) -> bool {
        let shift = self.shift;
        while (self.is_short_of_numbers(arena) || self.is_thin()) && self.shift < 63 {
            self.widen(arena);
        }
        self.shift != shift
    }

    #[inline]
    fn is_short_of_numbers(&self, arena: &Arena) -> bool {
        let live = arena.live_number_count();
        CROWDED.iter().any(|&(chunks, buckets)| live > chunks && self.buckets.len() > buckets)
    }

    #[inline]
    fn is_thin(&self) -> bool {
        let is_narrow = self.shift < self.thin_shift;
        let from = if is_narrow { THIN_FROM_ROWS_NARROW } else { THIN_FROM_ROWS };
        self.row_count >= from && self.row_count < THIN_ROWS * self.buckets.len() as u64
    }

    /// Makes all buckets twice as wide.
    #[cold]
    pub(crate) fn widen(&mut self, arena: &mut Arena) {
        self.shift += 1;
        let mut wider: Vec<Bucket> = Vec::with_capacity(self.buckets.len());
        for mut bucket in self.buckets.drain(..) {
            bucket.number >>= 1;
            for chunk in &bucket.chunks {
                arena.set_bucket(chunk, bucket.number);
            }
            match wider.last_mut() {
                Some(last) if last.number == bucket.number => last.absorb(bucket),
                _ => wider.push(bucket),
            }
        }
        self.buckets = wider;
    }
}

impl Bucket {
    fn new(number: i64, chunks: Vec<Chunk>, first: Chunk) -> Bucket {
        let mut bucket = Bucket {
            number,
            cursor: std::ptr::null_mut(),
            end: std::ptr::null_mut(),
            handle: 0,
            chunks,
            bump: None,
            absorbed_bumps: Vec::new(),
            full_bytes: 0,
            lives: Lives::default(),
        };
        bucket.fill(first);
        bucket
    }

    /// Puts further runs into `chunk`.
    fn fill(&mut self, chunk: Chunk) {
        self.cursor = chunk.start();
        self.end = chunk.start().wrapping_add(chunk.bytes());
        self.handle = chunk.first_handle();
        self.chunks.push(chunk);
    }

    /// Bytes of runs in chunk `chunk`.
    fn used_of(&self, chunk: usize) -> usize {
        if chunk + 1 == self.chunks.len() {
            self.cursor as usize - self.chunks[chunk].start() as usize
        } else {
            self.chunks[chunk].used
        }
    }

    /// Bytes of runs.
    fn run_bytes(&self) -> usize {
        self.full_bytes + self.used_of(self.chunks.len() - 1)
    }

    #[cold]
    #[inline(never)]
    fn open_chunk(&mut self, bytes: usize, arena: &mut Arena) -> Result<(), Exhausted> {
        // Doubling keeps the number of chunks of a bucket small however large it grows.
        let chunk = arena.take(self.run_bytes().max(bytes), self.number).ok_or(Exhausted)?;
        self.close_chunk();
        self.fill(chunk);
        Ok(())
    }

    fn close_chunk(&mut self) {
        let last = self.chunks.len() - 1;
        self.chunks[last].used = self.used_of(last);
        self.full_bytes += self.chunks[last].used;
    }

    /// Takes over everything of a neighbour, whose last chunk is filled from here on.
    fn absorb(&mut self, other: Bucket) {
        self.close_chunk();
        self.full_bytes += other.full_bytes;
        (self.cursor, self.end, self.handle) = (other.cursor, other.end, other.handle);
        self.chunks.extend(other.chunks);
        self.absorbed_bumps.extend(other.bump);
        self.absorbed_bumps.extend(other.absorbed_bumps);
        self.lives.absorb(other.lives);
    }
}

// SAFETY: the pointers lead into the bucket's own chunks.
unsafe impl Send for Bucket {}
