//! The index: key -> the newest runs of both sides, one cache line a look.
//!
//! A line of 64 bytes holds five keys. Of each it keeps a tag (28 bits of the key's value and how
//! far from its home line it stands) and the handles of the newest run of either side, so the line
//! that is fetched to probe the other side is the line that an insert into our own writes.
//!
//! ```text
//! line:  tag x 5 | left head x 5 | right head x 5 | overflow
//! ```
//!
//! The bits of a key's value: 0.. home line, 12..40 tag, 40..64 the run ("key rest"). The home
//! line implies the low twelve bits, so tag, displacement and rest together are the whole value
//! and equality is exact.
//!
//! An entry is dead when both its handles are: nobody removes it, the next insert that needs its
//! place takes it. Entries that find their home line full of live entries stand in one of the
//! next 15 lines; `overflow` of the home line says how far a look must go, and a look that went
//! further than needed corrects it.
//!
//! The table grows by linear hashing (Litwin, 1980): one line at a time is split in two, a few per
//! batch, so no step pays for a rehash. Its load is sampled where it costs nothing: an insert has
//! just seen how many live entries its home line holds.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use super::arena::{Arena, Handle, advise_huge_pages};
use super::run::prefetch;
use crate::event::Side;

/// Keys of a line.
pub(crate) const LINE_KEYS: usize = 5;
/// Lines beyond the home line that an entry may stand in.
const OVERFLOW_MAX: usize = 15;
/// The smallest table; also how many low bits of a key's value the home line always implies.
const LINES_LOG2_MIN: u32 = 12;
/// Lines of a segment (2 MiB, a huge page); the table is a list of segments.
const SEGMENT_LOG2: u32 = 15;
const SEGMENT_LINES: usize = 1 << SEGMENT_LOG2;
const SEGMENT_BYTES: usize = SEGMENT_LINES * size_of::<Line>();
/// New keys between two looks at the load.
const SAMPLE_LEN: u32 = 4096;
/// Live entries a line, in 1/1024, from which on lines are split.
const LOAD_MAX: u32 = 2_458;
/// Lines split at once at most, when the table lags behind a burst of new keys.
const SPLITS_MAX: usize = 256;

const _: () = assert!(size_of::<Line>() == 64);
const _: () = assert!(LINES_LOG2_MIN <= SEGMENT_LOG2);

/// One cache line of the table.
#[repr(C, align(64))]
pub(crate) struct Line {
    tags: [u32; LINE_KEYS],
    heads: [[Handle; LINE_KEYS]; 2],
    overflow: u32,
}

/// An entry between two lines.
#[derive(Clone, Copy, Default)]
struct Taken {
    tag_bits: u32,
    heads: [Handle; 2],
}

/// The handles of both sides say which entries are live.
pub(crate) type Arenas = [Arena; 2];

/// An entry: a line and a place in it. Valid until the table grows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    line: NonNull<Line>,
    place: u32,
}

impl Entry {
    #[inline]
    pub(crate) fn head(self, side: Side) -> Handle {
        // SAFETY: the line is part of the table, which outlives the entry and lends out no
        // references to its lines; `place` is under LINE_KEYS.
        unsafe { (*self.line.as_ptr()).heads[side.index()][self.place as usize] }
    }

    #[inline]
    pub(crate) fn set_head(self, side: Side, handle: Handle) {
        // SAFETY: as in `head`; the index is used by one thread.
        unsafe { (*self.line.as_ptr()).heads[side.index()][self.place as usize] = handle }
    }
}

/// What a look in the index found.
pub(crate) enum Found {
    /// An entry with the key's tag that is live; its runs tell whether it is the key.
    Candidate(Entry),
    /// No entry: the key has no live row on either side.
    Absent,
}

#[inline]
fn tag_of(key: u64) -> u32 {
    ((key >> LINES_LOG2_MIN) as u32) << 4
}

impl Line {
    /// The places whose tag is `tag`, as bits.
    #[inline]
    fn places_with(&self, tag: u32) -> u32 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: SSE2 is part of x86-64; sixteen bytes from `tags` on are within the line, which
        // is aligned to 64.
        let first_four = unsafe {
            use std::arch::x86_64::{
                _mm_castsi128_ps, _mm_cmpeq_epi32, _mm_load_si128, _mm_movemask_ps, _mm_set1_epi32,
            };
            let tags = _mm_load_si128(self.tags.as_ptr().cast());
            _mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(tags, _mm_set1_epi32(tag as i32))))
                as u32
        };
        #[cfg(not(target_arch = "x86_64"))]
        let first_four =
            (0..4).fold(0, |bits, place| bits | u32::from(self.tags[place] == tag) << place);
        first_four | u32::from(self.tags[4] == tag) << 4
    }

    /// The places whose entry is live, as bits.
    #[inline]
    fn live_places(&self, arenas: &Arenas) -> u32 {
        let mut live = 0;
        for place in 0..LINE_KEYS {
            live |= u32::from(self.is_live(place, arenas)) << place;
        }
        live
    }

    #[inline]
    fn is_live(&self, place: usize, arenas: &Arenas) -> bool {
        arenas[0].is_live(self.heads[0][place]) | arenas[1].is_live(self.heads[1][place])
    }
}

/// The index of one shard.
pub(crate) struct Index {
    segments: Vec<NonNull<Line>>,
    /// Lines in use: `1 << level` and as many more as were split so far.
    line_count: usize,
    level_mask: u64,
    sampled: u32,
    sampled_live: u32,
    splits_due: usize,
    /// Counts the calls that moved entries.
    layout: u32,
}

// SAFETY: the index owns its lines; nothing in it is tied to a thread.
unsafe impl Send for Index {}

impl Index {
    pub(crate) fn new() -> Index {
        let line_count = 1 << LINES_LOG2_MIN;
        let mut index = Index {
            segments: Vec::with_capacity(64),
            line_count,
            level_mask: line_count as u64 - 1,
            sampled: 0,
            sampled_live: 0,
            splits_due: 0,
            layout: 0,
        };
        index.ensure_lines(line_count);
        index
    }

    /// Bytes of the lines in use.
    pub(crate) fn bytes(&self) -> usize {
        (self.line_count + OVERFLOW_MAX) * size_of::<Line>()
    }

    pub(crate) fn line_count(&self) -> usize {
        self.line_count
    }

    /// Changes whenever entries are moved: homes and entries found before are invalid then.
    #[inline]
    pub(crate) fn layout(&self) -> u32 {
        self.layout
    }

    #[inline]
    fn home_of(&self, key: u64) -> usize {
        let wide = (key & (self.level_mask << 1 | 1)) as usize;
        if wide < self.line_count { wide } else { (key & self.level_mask) as usize }
    }

    #[inline]
    fn line(&self, index: usize) -> NonNull<Line> {
        let segment = self.segments[index >> SEGMENT_LOG2];
        // SAFETY: a segment has SEGMENT_LINES lines, and the offset is under that.
        unsafe { segment.add(index & (SEGMENT_LINES - 1)) }
    }

    /// Asks for the home line of `key` and returns its number, for [`find`](Self::find).
    #[inline]
    pub(crate) fn prefetch(&self, key: u64) -> u32 {
        let home = self.home_of(key);
        prefetch(self.line(home).as_ptr());
        // Fits: 2^32 lines would be 256 GiB.
        home as u32
    }

    /// Looks for a live entry with the tag of `key`, after `skip` candidates that were not the key.
    #[inline]
    pub(crate) fn find(&self, key: u64, home: u32, skip: u32, arenas: &Arenas) -> Found {
        let tag = tag_of(key);
        let home = home as usize;
        let pointer = self.line(home);
        // SAFETY: the line is part of the table; no exclusive reference to it exists.
        let line = unsafe { pointer.as_ref() };
        let mut places = line.places_with(tag);
        let mut skip = skip;
        while places != 0 {
            let place = places.trailing_zeros();
            if line.is_live(place as usize, arenas) {
                if skip == 0 {
                    return Found::Candidate(Entry { line: pointer, place });
                }
                skip -= 1;
            }
            places &= places - 1;
        }
        if line.overflow == 0 {
            return Found::Absent;
        }
        self.find_in_overflow(tag, home, skip, arenas)
    }

    #[cold]
    #[inline(never)]
    fn find_in_overflow(&self, tag: u32, home: usize, mut skip: u32, arenas: &Arenas) -> Found {
        let home_pointer = self.line(home);
        // SAFETY: the line is part of the table; one thread uses it and no reference is held.
        let reach = unsafe { (*home_pointer.as_ptr()).overflow };
        let mut reach_needed = 0;
        for displacement in 1..=reach {
            let pointer = self.line(home + displacement as usize);
            // SAFETY: as above; lines up to OVERFLOW_MAX beyond the last are allocated.
            let line = unsafe { pointer.as_ref() };
            for place in 0..LINE_KEYS {
                let ours = line.tags[place] & 0xF == displacement && line.is_live(place, arenas);
                if !ours {
                    continue;
                }
                reach_needed = displacement;
                if line.tags[place] == tag | displacement {
                    if skip == 0 {
                        return Found::Candidate(Entry { line: pointer, place: place as u32 });
                    }
                    skip -= 1;
                }
            }
        }
        // SAFETY: as above.
        unsafe { (*home_pointer.as_ptr()).overflow = reach_needed };
        Found::Absent
    }

    /// Makes an entry for `key`, which has none, with dead heads. `None` when no line within reach
    /// has room; then the table must grow first.
    #[inline]
    pub(crate) fn insert(&mut self, key: u64, home: u32, arenas: &Arenas) -> Option<Entry> {
        let pointer = self.line(home as usize);
        // SAFETY: the line is part of the table; one thread uses it and no reference is held.
        let line = unsafe { &mut *pointer.as_ptr() };
        let live = line.live_places(arenas);
        self.sample(live.count_ones());
        let place = (!live).trailing_zeros();
        if place < LINE_KEYS as u32 {
            line.tags[place as usize] = tag_of(key);
            line.heads[0][place as usize] = 0;
            line.heads[1][place as usize] = 0;
            return Some(Entry { line: pointer, place });
        }
        self.insert_in_overflow(tag_of(key), home as usize, arenas)
    }

    #[cold]
    #[inline(never)]
    fn insert_in_overflow(&mut self, tag: u32, home: usize, arenas: &Arenas) -> Option<Entry> {
        for displacement in 1..=OVERFLOW_MAX {
            let pointer = self.line(home + displacement);
            // SAFETY: as in `insert`; lines up to OVERFLOW_MAX beyond the last are allocated.
            let line = unsafe { &mut *pointer.as_ptr() };
            let place = (!line.live_places(arenas)).trailing_zeros() as usize;
            if place < LINE_KEYS {
                line.tags[place] = tag | displacement as u32;
                line.heads[0][place] = 0;
                line.heads[1][place] = 0;
                self.extend_reach(home, displacement as u32);
                return Some(Entry { line: pointer, place: place as u32 });
            }
        }
        None
    }

    #[inline]
    fn sample(&mut self, live: u32) {
        self.sampled += 1;
        self.sampled_live += live;
        if self.sampled >= SAMPLE_LEN.min(self.line_count as u32 / 8) {
            self.plan_growth();
        }
    }

    #[cold]
    fn plan_growth(&mut self) {
        // Live entries a line, in 1/1024. From the limit on, the table gets the lines that it lacks
        // and those that the keys until the next sample will want if all of them are new.
        let load = u64::from(self.sampled_live) * 1024 / u64::from(self.sampled);
        let ahead = u64::from(self.sampled) * 1024;
        (self.sampled, self.sampled_live) = (0, 0);
        if load >= u64::from(LOAD_MAX) {
            let wanted = (self.line_count as u64 * load + ahead) / u64::from(LOAD_MAX);
            self.splits_due = wanted.saturating_sub(self.line_count as u64) as usize;
        }
    }

    /// Splits as many lines as the last sample of the load asks for, a bounded number at once.
    /// Entries are invalid afterwards.
    #[inline]
    pub(crate) fn grow(&mut self, arenas: &Arenas) {
        if self.splits_due > 0 {
            self.split(self.splits_due.min(SPLITS_MAX), arenas);
        }
    }

    /// Splits `count` lines at once, after [`insert`](Self::insert) found no room.
    #[cold]
    pub(crate) fn split(&mut self, count: usize, arenas: &Arenas) {
        self.splits_due = self.splits_due.saturating_sub(count);
        self.layout = self.layout.wrapping_add(1);
        for _ in 0..count {
            if !self.split_next(arenas) {
                return;
            }
        }
    }

    /// Splits the next line in turn: its entries whose next bit is set go to a new line. Returns
    /// `false`, and changes nothing, when the lines around the new one have no room for them.
    fn split_next(&mut self, arenas: &Arenas) -> bool {
        let new = self.line_count;
        let from = new - (self.level_mask as usize + 1);
        self.ensure_lines(new + 1);
        let level_bit = self.level_mask.count_ones() - LINES_LOG2_MIN;
        let goes = |taken: &Taken| taken.tag_bits >> level_bit & 1 == 1;

        let mut taken = [Taken::default(); LINE_KEYS * (OVERFLOW_MAX + 1)];
        let taken_len = self.take_out(from, &mut taken, arenas);
        let taken = &taken[..taken_len];
        let leaving = taken.iter().filter(|taken| goes(taken)).count();
        let has_room = self.free_places(new, leaving, arenas) >= leaving;
        if has_room {
            self.line_count += 1;
            if self.line_count == (self.level_mask as usize + 1) * 2 {
                self.level_mask = self.level_mask << 1 | 1;
            }
        }
        for taken in taken {
            let home = if has_room && goes(taken) { new } else { from };
            self.put_back(taken, home, arenas);
        }
        has_room
    }

    /// Takes out every live entry whose home is `home`, wherever it stands.
    fn take_out(&mut self, home: usize, taken: &mut [Taken], arenas: &Arenas) -> usize {
        let mut taken_len = 0;
        // SAFETY: a line of the table, used by one thread, no reference held.
        let reach = unsafe { std::mem::take(&mut (*self.line(home).as_ptr()).overflow) };
        for displacement in 0..=reach {
            // SAFETY: as above; lines up to OVERFLOW_MAX beyond the last are allocated.
            let line = unsafe { &mut *self.line(home + displacement as usize).as_ptr() };
            for place in 0..LINE_KEYS {
                if line.tags[place] & 0xF == displacement && line.is_live(place, arenas) {
                    let heads = [line.heads[0][place], line.heads[1][place]];
                    taken[taken_len] = Taken { tag_bits: line.tags[place] >> 4, heads };
                    taken_len += 1;
                    line.heads[0][place] = 0;
                    line.heads[1][place] = 0;
                }
            }
        }
        taken_len
    }

    /// Free places within reach of `home`, counted until there are `enough`.
    fn free_places(&self, home: usize, enough: usize, arenas: &Arenas) -> usize {
        let mut free = 0;
        for displacement in 0..=OVERFLOW_MAX {
            // SAFETY: as in `take_out`.
            let line = unsafe { self.line(home + displacement).as_ref() };
            free += LINE_KEYS - line.live_places(arenas).count_ones() as usize;
            if free >= enough {
                break;
            }
        }
        free
    }

    /// Places an entry that a split took out. There is room: `split_next` has counted it in the
    /// new lines, and in the old ones are the places that the entries were taken from.
    fn put_back(&mut self, taken: &Taken, home: usize, arenas: &Arenas) {
        for displacement in 0..=OVERFLOW_MAX {
            // SAFETY: as in `take_out`.
            let line = unsafe { &mut *self.line(home + displacement).as_ptr() };
            let place = (!line.live_places(arenas)).trailing_zeros() as usize;
            if place < LINE_KEYS {
                line.tags[place] = taken.tag_bits << 4 | displacement as u32;
                line.heads[0][place] = taken.heads[0];
                line.heads[1][place] = taken.heads[1];
                self.extend_reach(home, displacement as u32);
                return;
            }
        }
        debug_assert!(false, "no room where room was counted");
    }

    fn extend_reach(&mut self, home: usize, displacement: u32) {
        // SAFETY: a line of the table, used by one thread, no reference held.
        let overflow = unsafe { &mut (*self.line(home).as_ptr()).overflow };
        *overflow = (*overflow).max(displacement);
    }

    /// Zeroes dead handles in up to `count` lines from `start` on; returns where to
    /// go on, or `None` after the last line.
    pub(crate) fn clean(&mut self, start: usize, count: usize, arenas: &Arenas) -> Option<usize> {
        let end = self.line_count + OVERFLOW_MAX;
        let stop = end.min(start + count);
        for index in start..stop {
            // SAFETY: a line of the table, used by one thread, no reference held.
            let line = unsafe { &mut *self.line(index).as_ptr() };
            for side in 0..2 {
                for head in &mut line.heads[side] {
                    if !arenas[side].is_live(*head) {
                        *head = 0;
                    }
                }
            }
        }
        (stop < end).then_some(stop)
    }

    fn ensure_lines(&mut self, line_count: usize) {
        while self.segments.len() * SEGMENT_LINES < line_count + OVERFLOW_MAX {
            let layout = segment_layout();
            // SAFETY: the layout's size is not zero.
            let memory = unsafe { alloc_zeroed(layout) };
            let Some(segment) = NonNull::new(memory.cast::<Line>()) else {
                handle_alloc_error(layout)
            };
            advise_huge_pages(memory, SEGMENT_BYTES);
            self.segments.push(segment);
        }
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        for segment in self.segments.drain(..) {
            // SAFETY: allocated in `ensure_lines` with the same layout.
            unsafe { dealloc(segment.as_ptr().cast(), segment_layout()) }
        }
    }
}

fn segment_layout() -> Layout {
    Layout::new::<[Line; SEGMENT_LINES]>()
        .align_to(SEGMENT_BYTES)
        .unwrap_or(Layout::new::<[Line; SEGMENT_LINES]>())
}
