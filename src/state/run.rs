//! A run: the events of one key in one bucket of one side, in columns, in the bucket's arena.
//!
//! ```text
//! offset  size       field
//!      0     4       the high half of the key's value
//!      4     4       handle of the next older run of the key, 0: none
//!      8     4       length << 8 | MOVED | log2 of the capacity; MOVED: the run has grown and
//!                    stands where `next older` says
//!     12     4       tag of the only row, when the capacity is 1; else unused
//!     16     8 c     timestamps
//!  16+8c     8 c     words: rows of up to 8 bytes in place, or the address of a longer one
//! 16+16c     4 c     tags, when the capacity is over 1
//! ```
//!
//! A row's tag holds its place in the order of insertion (29 bits, wrapping) and three flags. A
//! run of one row takes 32 bytes, two of them a cache line.

use std::ptr;
use std::slice;

use crate::event::prefetch;

/// Bytes of a run's header.
const HEADER: usize = 16;

/// Set beside the length once the run has grown: follow the handle.
const MOVED: u32 = 1 << 7;
const LEN_SHIFT: u32 = 8;

/// The largest capacity of a run is 2 to the power of this; a longer one continues in another run.
pub(crate) const CAPACITY_LOG2_MAX: u32 = 16;

/// Set in a row's tag once a match was accepted.
pub(crate) const MATCHED: u32 = 1 << 31;
/// Set in a row's tag when the row was late and kept all the same.
pub(crate) const LATE: u32 = 1 << 30;
/// Set in a row's tag when its word holds exactly eight bytes of row.
pub(crate) const WHOLE_WORD: u32 = 1 << 29;
/// The bits of a tag that number the rows of a side.
pub(crate) const SEQUENCE_MASK: u32 = WHOLE_WORD - 1;

/// Set in the top byte of a word that holds a row of up to seven bytes; the low bits are its
/// length. Addresses of user space never have the top byte set.
const SHORT: u64 = 0x80;

/// The half of a key's value that the tag of an index entry does not hold.
#[inline]
pub(crate) fn key_rest(key: u64) -> u32 {
    (key >> 32) as u32
}

/// Bytes of a run with room for `1 << capacity_log2` rows, a multiple of 16.
#[inline]
pub(crate) fn run_bytes(capacity_log2: u32) -> usize {
    if capacity_log2 == 0 { 32 } else { (HEADER + (20 << capacity_log2) + 15) & !15 }
}

/// How a row is kept: in its word, or as the address of its bytes elsewhere in the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    bits: u64,
    flag: u32,
}

impl Word {
    /// A row of eight bytes, in place.
    #[inline]
    pub(crate) fn whole(bytes: [u8; 8]) -> Word {
        Word { bits: u64::from_ne_bytes(bytes), flag: WHOLE_WORD }
    }

    /// A row of up to eight bytes, in place; `None` for a longer one.
    #[inline]
    pub(crate) fn in_place(row: &[u8]) -> Option<Word> {
        if let Ok(bytes) = <[u8; 8]>::try_from(row) {
            return Some(Word::whole(bytes));
        }
        if row.len() > 8 {
            return None;
        }
        let mut bytes = [0; 8];
        bytes[..row.len()].copy_from_slice(row);
        bytes[7] = SHORT as u8 | row.len() as u8;
        Some(Word { bits: u64::from_le_bytes(bytes), flag: 0 })
    }

    /// A row whose length (four bytes) and bytes stand at `stored`.
    #[inline]
    pub(crate) fn elsewhere(stored: *const u8) -> Word {
        debug_assert_eq!(stored as u64 >> 56, 0, "an address with its top byte set");
        Word { bits: stored as u64, flag: 0 }
    }
}

/// A run in an arena: an address, to be used while the run's bucket is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Run(*mut u8);

impl Run {
    /// The run at `address`.
    ///
    /// # Safety
    /// All methods may be called only while `address` is the start of a run that
    /// [`create`](Self::create) made, in memory that nothing else borrows.
    #[inline]
    pub(crate) unsafe fn at(address: *mut u8) -> Run {
        Run(address)
    }

    /// Makes an empty run at `address`.
    ///
    /// # Safety
    /// `address` is aligned to 16 and valid for `run_bytes(capacity_log2)` bytes for as long as the
    /// run is used; nothing else borrows them.
    #[inline]
    pub(crate) unsafe fn create(
        address: *mut u8,
        rest: u32,
        capacity_log2: u32,
        older: u32,
    ) -> Run {
        let run = Run(address);
        run.set_word32(0, rest);
        run.set_word32(4, older);
        run.set_word32(8, capacity_log2);
        run
    }

    /// Makes a run of one row and no room for more.
    ///
    /// # Safety
    /// As for [`create`](Self::create) with a capacity of one.
    #[inline]
    pub(crate) unsafe fn create_single(
        address: *mut u8,
        rest: u32,
        older: u32,
        ts: i64,
        word: Word,
        tag: u32,
    ) {
        let header = [rest, older, 1 << LEN_SHIFT, tag | word.flag];
        // SAFETY: 32 bytes from `address` on are the run's, aligned to 16.
        unsafe {
            address.cast::<[u32; 4]>().write(header);
            address.add(HEADER).cast::<i64>().write(ts);
            address.add(HEADER + 8).cast::<u64>().write(word.bits);
        }
    }

    #[inline]
    fn word32(self, offset: usize) -> u32 {
        // SAFETY: the header is within the run (contract of `at` and `create`) and aligned.
        unsafe { self.0.add(offset).cast::<u32>().read() }
    }

    #[inline]
    fn set_word32(self, offset: usize, value: u32) {
        // SAFETY: as in `word32`; nothing else borrows the run.
        unsafe { self.0.add(offset).cast::<u32>().write(value) }
    }

    #[inline]
    pub(crate) fn rest(self) -> u32 {
        self.word32(0)
    }

    #[inline]
    pub(crate) fn capacity_log2(self) -> u32 {
        self.word32(8) & (MOVED - 1)
    }

    #[inline]
    pub(crate) fn older(self) -> u32 {
        self.word32(4)
    }

    #[inline]
    pub(crate) fn set_older(self, handle: u32) {
        self.set_word32(4, handle);
    }

    #[inline]
    pub(crate) fn is_moved(self) -> bool {
        self.word32(8) & MOVED != 0
    }

    /// Marks the run as grown into the one that `handle` names.
    #[inline]
    pub(crate) fn set_moved(self, handle: u32) {
        self.set_word32(8, self.word32(8) | MOVED);
        self.set_older(handle);
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        (self.word32(8) >> LEN_SHIFT) as usize
    }

    #[inline]
    pub(crate) fn is_full(self) -> bool {
        self.len() >= 1 << self.capacity_log2()
    }

    #[inline]
    fn ts_pointer(self) -> *mut i64 {
        // SAFETY: the columns start behind the header, within the run.
        unsafe { self.0.add(HEADER).cast() }
    }

    #[inline]
    fn word_pointer(self, index: usize) -> *mut u64 {
        // SAFETY: `index` is under the capacity, so the word is within the run.
        unsafe { self.0.add(HEADER + (8 << self.capacity_log2()) + 8 * index).cast() }
    }

    #[inline]
    fn tag_pointer(self, index: usize) -> *mut u32 {
        let capacity_log2 = self.capacity_log2();
        let start = if capacity_log2 == 0 { 12 } else { HEADER + (16 << capacity_log2) };
        // SAFETY: `index` is under the capacity, so the tag is within the run.
        unsafe { self.0.add(start + 4 * index).cast() }
    }

    /// The timestamps of all rows, in the order of insertion.
    #[inline]
    pub(crate) fn timestamps<'a>(self) -> &'a [i64] {
        // SAFETY: `len` timestamps were written behind the header; nobody writes to them while a
        // caller looks at them (rows are only ever appended, through `push`).
        unsafe { slice::from_raw_parts(self.ts_pointer(), self.len()) }
    }

    /// A row of the run; `index < len`.
    #[inline]
    pub(crate) fn stored(self, index: usize) -> Stored {
        debug_assert!(index < self.len());
        self.columns().stored(index)
    }

    /// Where the columns start.
    #[inline]
    pub(crate) fn columns(self) -> Columns {
        Columns { ts: self.ts_pointer(), word: self.word_pointer(0), tag: self.tag_pointer(0) }
    }

    /// Appends a row. The run must not be full.
    #[inline]
    pub(crate) fn push(self, ts: i64, word: Word, tag: u32) {
        debug_assert!(!self.is_full());
        let len = self.len();
        let (word_at, tag_at) = (self.word_pointer(len), self.tag_pointer(len));
        self.set_word32(8, self.word32(8) + (1 << LEN_SHIFT));
        // SAFETY: `len` is under the capacity, so all three places are within the run.
        unsafe {
            *self.ts_pointer().add(len) = ts;
            *word_at = word.bits;
            *tag_at = tag | word.flag;
        }
    }

    /// Appends all rows of `other`; there must be room.
    pub(crate) fn push_all(self, other: Run) {
        let (start, len) = (self.len(), other.len());
        debug_assert!(start + len <= 1 << self.capacity_log2());
        // SAFETY: the rows of `other` are initialised, there is room for them here, and two runs
        // never overlap.
        unsafe {
            ptr::copy_nonoverlapping(other.ts_pointer(), self.ts_pointer().add(start), len);
            ptr::copy_nonoverlapping(other.word_pointer(0), self.word_pointer(start), len);
            ptr::copy_nonoverlapping(other.tag_pointer(0), self.tag_pointer(start), len);
        }
        self.set_word32(8, self.word32(8) + ((len as u32) << LEN_SHIFT));
    }
}

/// The columns of a run, while its bucket is live and it has not moved.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    ts: *mut i64,
    word: *mut u64,
    tag: *mut u32,
}

impl Columns {
    /// A row; `index` is under the run's length.
    #[inline]
    pub(crate) fn stored(self, index: usize) -> Stored {
        // SAFETY: `index` is under the capacity, so all three places are within the run.
        unsafe {
            Stored { ts: self.ts.add(index), word: self.word.add(index), tag: self.tag.add(index) }
        }
    }

    /// Asks for a row's word and tag.
    #[inline]
    pub(crate) fn prefetch(self, index: usize) {
        prefetch(self.word.wrapping_add(index));
        prefetch(self.tag.wrapping_add(index));
    }

    /// A row that is eight bytes in place, as its tag says; `index` is under the run's length.
    #[inline]
    pub(crate) fn whole_row<'a>(self, index: usize) -> (i64, &'a [u8]) {
        // SAFETY: `index` is under the run's length, so both places are within the run and were
        // written; the word is eight bytes of row.
        unsafe { (*self.ts.add(index), slice::from_raw_parts(self.word.add(index).cast(), 8)) }
    }
}

/// A stored row: where its columns are. To be used while its bucket is live and its run not moved.
#[derive(Clone, Copy)]
pub(crate) struct Stored {
    ts: *mut i64,
    word: *mut u64,
    tag: *mut u32,
}

impl Stored {
    #[inline]
    pub(crate) fn ts(self) -> i64 {
        // SAFETY: made by `Run::stored` for a row that was written.
        unsafe { *self.ts }
    }

    #[inline]
    pub(crate) fn tag(self) -> u32 {
        // SAFETY: as in `ts`.
        unsafe { *self.tag }
    }

    #[inline]
    pub(crate) fn set_tag(self, tag: u32) {
        // SAFETY: as in `ts`; nothing else borrows the run.
        unsafe { *self.tag = tag }
    }

    /// The bytes of the row, whose tag is `tag`.
    #[inline]
    pub(crate) fn row<'a>(self, tag: u32) -> &'a [u8] {
        let word = self.word;
        if tag & WHOLE_WORD != 0 {
            // SAFETY: the word is eight initialised bytes within the run.
            return unsafe { slice::from_raw_parts(word.cast(), 8) };
        }
        // SAFETY: as in `ts`.
        let bits = unsafe { *word };
        if bits >> 56 & SHORT != 0 {
            // SAFETY: the word holds the row in its low bytes, at most seven (little endian words
            // are written by `Word::in_place` through `from_le_bytes`).
            return unsafe { slice::from_raw_parts(word.cast(), (bits >> 56 & 7) as usize) };
        }
        let stored = bits as *const u8;
        // SAFETY: the word is the address of a length and as many bytes, in the same bucket.
        unsafe {
            let len = stored.cast::<u32>().read_unaligned();
            slice::from_raw_parts(stored.add(4), len as usize)
        }
    }
}
