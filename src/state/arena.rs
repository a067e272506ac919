//! Memory of one side's runs: chunks that are numbered, pooled and never freed under a handle.
//!
//! A [`Handle`] is a chunk's number and a place in it, 32 bits in all. When a bucket is retired its
//! chunks go back to a pool at once, and their numbers are marked dead: whoever still holds a
//! handle sees that by one look at a table of 2 KiB, without touching the memory. A number is used
//! again only after a *cleaning round* has passed over everything that may hold a handle
//! (`clean.rs`), so a handle can never reach memory that has changed hands.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::VecDeque;
use std::ptr::{self, NonNull};

use crate::limits::{STATE_CHUNK_BYTES_MAX, STATE_CHUNK_BYTES_MIN};

/// Handles count in units of so many bytes.
pub(crate) const UNIT_BYTES: usize = 16;
pub(super) const PLACE_BITS: u32 = 21;
pub(super) const PLACE_MASK: Handle = (1 << PLACE_BITS) - 1;
/// Chunk numbers there are; 0 is nobody's, so that handle 0 means "none".
pub(crate) const CHUNK_NUMBERS: usize = 1 << (32 - PLACE_BITS);

/// The number of no chunk: handles with it name directories (`directory.rs`) and count as live.
pub(super) const DIRECTORY_CHUNK: usize = CHUNK_NUMBERS - 1;

/// The smallest chunk.
pub(super) const CHUNK_BYTES_MIN: usize = STATE_CHUNK_BYTES_MIN as usize;
/// The largest: what a handle's place reaches.
pub(crate) const CHUNK_BYTES_MAX: usize = UNIT_BYTES << PLACE_BITS;
const CLASS_COUNT: usize = (CHUNK_BYTES_MAX / CHUNK_BYTES_MIN).ilog2() as usize + 1;
/// Chunks from this size on are aligned to it and ask for huge pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// No page is smaller.
const SMALL_PAGE_BYTES: usize = 4 << 10;
/// Bytes that the pool may keep beyond what is in use.
const POOL_SLACK_BYTES: usize = 8 << 20;

const _: () = assert!(CHUNK_BYTES_MAX as u64 == STATE_CHUNK_BYTES_MAX);
const _: () = assert!(super::run::CAPACITY_LOG2_MAX <= 16);
const _: () = assert!(CHUNK_BYTES_MAX > (20 << super::run::CAPACITY_LOG2_MAX) + 64);

/// Where a run stands: chunk number and place. 0 is "nowhere".
pub(crate) type Handle = u32;

/// The chunk number of a handle.
#[inline]
pub(crate) fn chunk_of(handle: Handle) -> usize {
    (handle >> PLACE_BITS) as usize
}

/// A piece of memory with a number while it is in use.
pub(crate) struct Chunk {
    pub(crate) number: u16,
    class: u8,
    memory: NonNull<u8>,
    /// Bytes of runs, once another chunk is being filled.
    pub(crate) used: usize,
}

// SAFETY: a chunk owns its memory: nothing else leads to it but the arena that numbers it and the
// runs inside it, which move to another thread together with it.
unsafe impl Send for Chunk {}

impl Chunk {
    pub(crate) fn bytes(&self) -> usize {
        CHUNK_BYTES_MIN << self.class
    }

    /// The handle of its start; places go up by one each [`UNIT_BYTES`].
    pub(crate) fn first_handle(&self) -> Handle {
        u32::from(self.number) << PLACE_BITS
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.memory.as_ptr()
    }
}

/// The chunks of one side.
pub(crate) struct Arena {
    /// No chunk is smaller.
    chunk_bytes_min: usize,
    live: Box<[bool; CHUNK_NUMBERS]>,
    bases: Box<[*mut u8; CHUNK_NUMBERS]>,
    /// The bucket that each live chunk belongs to.
    buckets: Box<[i64; CHUNK_NUMBERS]>,
    /// Rows counted into each live chunk.
    rows: Box<[u32; CHUNK_NUMBERS]>,
    free_numbers: VecDeque<u16>,
    /// Numbers retired since the current cleaning round began, and before it.
    retired: Vec<u16>,
    in_round: Vec<u16>,
    pool: [Vec<NonNull<u8>>; CLASS_COUNT],
    /// Blocks of [`CHUNK_BYTES_MAX`] that were taken at the start and are never given back. The
    /// pool holds what of them is free, halved as often as need be.
    reserve: Vec<NonNull<u8>>,
    bytes_used: usize,
    /// Without those of the reserve.
    bytes_pooled: usize,
}

// SAFETY: the arena owns its memory; nothing in it is tied to a thread.
unsafe impl Send for Arena {}

impl Arena {
    /// An arena of chunks of `chunk_bytes_min` at least, between [`CHUNK_BYTES_MIN`] and
    /// [`CHUNK_BYTES_MAX`].
    pub(crate) fn new(chunk_bytes_min: usize) -> Arena {
        let mut live = Box::new([false; CHUNK_NUMBERS]);
        live[DIRECTORY_CHUNK] = true;
        Arena {
            chunk_bytes_min: chunk_bytes_min.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX),
            live,
            bases: Box::new([ptr::null_mut(); CHUNK_NUMBERS]),
            // No time falls into this bucket: directories are in none.
            buckets: Box::new([i64::MIN; CHUNK_NUMBERS]),
            rows: Box::new([0; CHUNK_NUMBERS]),
            free_numbers: (1..DIRECTORY_CHUNK as u16).collect(),
            retired: Vec::with_capacity(CHUNK_NUMBERS),
            in_round: Vec::with_capacity(CHUNK_NUMBERS),
            pool: [const { Vec::new() }; CLASS_COUNT],
            reserve: Vec::new(),
            bytes_used: 0,
            bytes_pooled: 0,
        }
    }

    /// Takes memory for `bytes` of chunks, rounded up to the largest chunk, and touches it, so that
    /// no page of it has to be found later. Stops where the system gives no more.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        for _ in 0..bytes.div_ceil(CHUNK_BYTES_MAX) {
            let Some(memory) = try_allocate_chunk(CHUNK_BYTES_MAX) else { return };
            touch(memory, CHUNK_BYTES_MAX);
            self.reserve.push(memory);
            self.pool[CLASS_COUNT - 1].push(memory);
        }
    }

    /// Bytes of the reserve, used or not.
    pub(crate) fn reserved_bytes(&self) -> usize {
        self.reserve.len() * CHUNK_BYTES_MAX
    }

    /// Whether a handle leads to a run: it is not 0 and its bucket is not retired.
    #[inline]
    pub(crate) fn is_live(&self, handle: Handle) -> bool {
        self.live[chunk_of(handle)]
    }

    /// The bucket of a live handle.
    #[inline]
    pub(crate) fn bucket_of(&self, handle: Handle) -> i64 {
        self.buckets[chunk_of(handle)]
    }

    /// Counts a row into the chunk of a live handle.
    #[inline]
    pub(crate) fn count_row(&mut self, handle: Handle) {
        // A chunk has room for two million rows.
        self.rows[chunk_of(handle)] += 1;
    }

    /// Rows counted into a live chunk.
    pub(crate) fn rows_of(&self, chunk: &Chunk) -> u64 {
        u64::from(self.rows[usize::from(chunk.number)])
    }

    /// The bucket of a chunk, if it is live.
    pub(crate) fn bucket_of_chunk(&self, number: usize) -> Option<i64> {
        self.live[number].then(|| self.buckets[number])
    }

    /// The address of a live handle.
    #[inline]
    pub(crate) fn address(&self, handle: Handle) -> *mut u8 {
        let offset = ((handle & PLACE_MASK) as usize) * UNIT_BYTES;
        self.bases[chunk_of(handle)].wrapping_add(offset)
    }

    /// Bytes of chunks in use and in the pool.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes_used + self.bytes_pooled
    }

    /// Those of them in the pool, which wait to be used again.
    pub(crate) fn bytes_pooled(&self) -> usize {
        self.bytes_pooled
    }

    pub(crate) fn free_number_count(&self) -> usize {
        self.free_numbers.len()
    }

    pub(crate) fn live_number_count(&self) -> usize {
        CHUNK_NUMBERS - 2 - self.free_numbers.len() - self.retired.len() - self.in_round.len()
    }

    /// A chunk of at least `bytes` for `bucket`; `None` when no number is free.
    pub(crate) fn take(&mut self, bytes: usize, bucket: i64) -> Option<Chunk> {
        let bytes = bytes.clamp(self.chunk_bytes_min, CHUNK_BYTES_MAX).next_power_of_two();
        let class = (bytes / CHUNK_BYTES_MIN).ilog2() as usize;
        let number = self.free_numbers.pop_front()?;
        let memory = match self.pool[class].pop().or_else(|| self.halve(class)) {
            Some(memory) => {
                if !self.is_reserved(memory) {
                    self.bytes_pooled -= bytes;
                }
                memory
            }
            None => allocate_chunk(bytes),
        };
        self.bytes_used += bytes;
        self.live[usize::from(number)] = true;
        self.bases[usize::from(number)] = memory.as_ptr();
        self.buckets[usize::from(number)] = bucket;
        self.rows[usize::from(number)] = 0;
        Some(Chunk { number, class: class as u8, memory, used: 0 })
    }

    /// Takes a chunk back; returns how many rows were counted into it. Handles into it are dead
    /// from here on.
    pub(crate) fn give_back(&mut self, chunk: &Chunk) -> u64 {
        let number = usize::from(chunk.number);
        self.live[number] = false;
        self.bases[number] = ptr::null_mut();
        self.retired.push(chunk.number);
        let bytes = chunk.bytes();
        self.bytes_used -= bytes;
        let is_reserved = self.is_reserved(chunk.memory);
        if !is_reserved && self.bytes_pooled + bytes > self.bytes_used + POOL_SLACK_BYTES {
            free_chunk(chunk.memory, bytes);
        } else {
            self.bytes_pooled += if is_reserved { 0 } else { bytes };
            self.pool[usize::from(chunk.class)].push(chunk.memory);
        }
        u64::from(self.rows[number])
    }

    /// Frees pooled chunks, the largest first, until at most `keep_bytes` are pooled.
    pub(crate) fn trim(&mut self, keep_bytes: usize) {
        for class in (0..CLASS_COUNT).rev() {
            while self.bytes_pooled > keep_bytes
                && let Some(at) = self.pool[class].iter().rposition(|&it| !self.is_reserved(it))
            {
                let memory = self.pool[class].swap_remove(at);
                let bytes = CHUNK_BYTES_MIN << class;
                self.bytes_pooled -= bytes;
                free_chunk(memory, bytes);
            }
        }
    }

    #[inline]
    fn is_reserved(&self, memory: NonNull<u8>) -> bool {
        lies_in(&self.reserve, memory)
    }

    /// A chunk of `class`, of a larger one in the reserve; the other halves go to the pool.
    #[cold]
    fn halve(&mut self, class: usize) -> Option<NonNull<u8>> {
        let (larger, at) = (class + 1..CLASS_COUNT).find_map(|larger| {
            let at = self.pool[larger].iter().rposition(|&it| self.is_reserved(it))?;
            Some((larger, at))
        })?;
        let memory = self.pool[larger].swap_remove(at);
        for half in class..larger {
            // SAFETY: `memory` is the start of a chunk of twice this size at least.
            self.pool[half].push(unsafe { memory.add(CHUNK_BYTES_MIN << half) });
        }
        Some(memory)
    }

    /// Renumbers the bucket of a live chunk, when buckets are made wider.
    pub(crate) fn set_bucket(&mut self, chunk: &Chunk, bucket: i64) {
        self.buckets[usize::from(chunk.number)] = bucket;
    }

    /// A cleaning round begins: numbers retired before it are freed at its end.
    pub(crate) fn begin_round(&mut self) {
        debug_assert!(self.in_round.is_empty());
        std::mem::swap(&mut self.retired, &mut self.in_round);
    }

    /// The round has passed over every place that may hold a handle.
    pub(crate) fn end_round(&mut self) {
        self.free_numbers.extend(self.in_round.drain(..));
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for (class, pool) in self.pool.iter_mut().enumerate() {
            let reserve = &self.reserve;
            for memory in pool.drain(..).filter(|&it| !lies_in(reserve, it)) {
                free_chunk(memory, CHUNK_BYTES_MIN << class);
            }
        }
        // All chunks have been given back: buckets go before their arena.
        self.reserve.drain(..).for_each(|memory| free_chunk(memory, CHUNK_BYTES_MAX));
    }
}

fn chunk_layout(bytes: usize) -> Layout {
    let align = if bytes >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { CHUNK_BYTES_MIN };
    // Both are powers of two and small: the layout cannot be refused.
    Layout::from_size_align(bytes, align).unwrap_or(Layout::new::<[u8; CHUNK_BYTES_MIN]>())
}

/// Whether memory is part of one of the reserve's blocks.
fn lies_in(reserve: &[NonNull<u8>], memory: NonNull<u8>) -> bool {
    let address = memory.addr().get();
    let starts_before = |block: &&NonNull<u8>| block.addr().get() <= address;
    reserve.iter().filter(starts_before).any(|block| address - block.addr().get() < CHUNK_BYTES_MAX)
}

fn allocate_chunk(bytes: usize) -> NonNull<u8> {
    try_allocate_chunk(bytes).unwrap_or_else(|| std::alloc::handle_alloc_error(chunk_layout(bytes)))
}

fn try_allocate_chunk(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: the layout's size is not zero.
    let memory = NonNull::new(unsafe { alloc(chunk_layout(bytes)) })?;
    if bytes >= HUGE_PAGE_BYTES {
        advise_huge_pages(memory.as_ptr(), bytes);
    }
    Some(memory)
}

/// Writes to every page of fresh memory, so that the system has to find it now.
pub(super) fn touch(memory: NonNull<u8>, bytes: usize) {
    for offset in (0..bytes).step_by(SMALL_PAGE_BYTES) {
        // SAFETY: within the memory, which is ours and of which nothing is read yet. Volatile, as
        // memory that is not read need not be written otherwise.
        unsafe { memory.add(offset).write_volatile(0) };
    }
}

fn free_chunk(memory: NonNull<u8>, bytes: usize) {
    // SAFETY: the memory came from `allocate_chunk` with the same size, hence the same layout.
    unsafe { dealloc(memory.as_ptr(), chunk_layout(bytes)) }
}

/// Asks the kernel to back `bytes` at `address` with huge pages; without them every line of a large
/// table costs a walk of the page table as well.
pub(crate) fn advise_huge_pages(address: *mut u8, bytes: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: the range is ours; the advice changes no content, and a refusal changes nothing.
    unsafe {
        libc::madvise(address.cast(), bytes, libc::MADV_HUGEPAGE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (address, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(chunk: &Chunk, byte: u8) {
        // SAFETY: the chunk's memory is its own.
        unsafe { chunk.start().write_bytes(byte, chunk.bytes()) };
    }

    fn holds_only(chunk: &Chunk, byte: u8) -> bool {
        // SAFETY: `fill` wrote all of it.
        let bytes = unsafe { std::slice::from_raw_parts(chunk.start(), chunk.bytes()) };
        bytes.iter().all(|&it| it == byte)
    }

    #[test]
    fn chunks_come_from_the_reserve_until_it_is_used_up_and_go_back_to_it() {
        let mut arena = Arena::new(CHUNK_BYTES_MIN);
        arena.reserve(1);
        assert_eq!((arena.bytes(), arena.bytes_pooled()), (0, 0));
        let sizes = [CHUNK_BYTES_MIN, 2 << 20, 4 << 10, CHUNK_BYTES_MAX / 2, CHUNK_BYTES_MIN];
        let of_reserve: Vec<Chunk> =
            sizes.iter().map(|&bytes| arena.take(bytes, 0).unwrap()).collect();
        let beyond = arena.take(CHUNK_BYTES_MAX / 2, 0).unwrap();
        assert!(of_reserve.iter().all(|chunk| arena.is_reserved(chunk.memory)));
        assert!(!arena.is_reserved(beyond.memory));
        let used = sizes.iter().sum::<usize>() + CHUNK_BYTES_MAX / 2;
        assert_eq!((arena.bytes(), arena.bytes_pooled()), (used, 0));
        for (chunk, byte) in of_reserve.iter().chain([&beyond]).zip(1..) {
            assert_eq!(chunk.start() as usize % chunk.bytes().min(HUGE_PAGE_BYTES), 0);
            fill(chunk, byte);
        }
        for (chunk, byte) in of_reserve.iter().chain([&beyond]).zip(1..) {
            assert!(holds_only(chunk, byte), "chunks overlap");
        }
        of_reserve.iter().chain([&beyond]).for_each(|chunk| {
            arena.give_back(chunk);
        });
        arena.trim(0);
        assert_eq!(arena.bytes(), 0, "the reserve stays, and is no state");
        let again = arena.take(2 << 20, 1).unwrap();
        assert!(arena.is_reserved(again.memory));
        arena.give_back(&again);
    }
}
