//! The lines of the index: what one cache line holds, and tables of them.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use super::arena::{Arena, Handle, advise_huge_pages};
use crate::event::Side;

/// Keys of a line.
pub(super) const LINE_KEYS: usize = 5;
/// Lines beyond the home line that an entry may stand in.
pub(super) const OVERFLOW_MAX: usize = 15;
/// Lines of a segment (2 MiB, a huge page); the table is a list of segments.
const SEGMENT_LOG2: u32 = 15;
pub(super) const SEGMENT_LINES: usize = 1 << SEGMENT_LOG2;
pub(super) const SEGMENT_BYTES: usize = SEGMENT_LINES * size_of::<Line>();

const _: () = assert!(size_of::<Line>() == 64);

/// One cache line of the table.
#[repr(C, align(64))]
pub(super) struct Line {
    pub(super) tags: [u32; LINE_KEYS],
    pub(super) heads: [[Handle; LINE_KEYS]; 2],
    pub(super) overflow: u32,
}

/// An entry between two tables.
#[derive(Clone, Copy, Default)]
pub(super) struct Taken {
    pub(super) tag: u32,
    pub(super) heads: [Handle; 2],
}

/// The handles of both sides say which entries are live.
pub(super) type Arenas = [Arena; 2];

/// An entry: a line and a place in it. Valid until the table grows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) line: NonNull<Line>,
    pub(super) place: u32,
}

impl Entry {
    #[inline]
    pub(super) fn head(self, side: Side) -> Handle {
        // SAFETY: the line is part of the table, which outlives the entry and lends out no
        // references to its lines; `place` is under LINE_KEYS.
        unsafe { (*self.line.as_ptr()).heads[side.index()][self.place as usize] }
    }

    #[inline]
    pub(super) fn set_head(self, side: Side, handle: Handle) {
        // SAFETY: as in `head`; the index is used by one thread.
        unsafe { (*self.line.as_ptr()).heads[side.index()][self.place as usize] = handle }
    }

    #[inline]
    pub(super) fn reset(self, tag: u32, heads: [Handle; 2]) {
        // SAFETY: as in `set_head`; one reference at a time.
        let line = unsafe { &mut *self.line.as_ptr() };
        let place = self.place as usize;
        line.tags[place] = tag;
        (line.heads[0][place], line.heads[1][place]) = (heads[0], heads[1]);
    }
}

impl Line {
    /// The places whose tag is `tag`, as bits.
    #[inline]
    pub(super) fn places_with(&self, tag: u32) -> u32 {
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

    /// The heads of the entry at `place`, which is under [`LINE_KEYS`].
    #[inline]
    pub(super) fn heads_at(&self, place: usize) -> [Handle; 2] {
        debug_assert!(place < LINE_KEYS);
        let heads = self.heads.as_ptr().cast::<Handle>();
        // SAFETY: both columns hold LINE_KEYS handles, one column behind the other.
        unsafe { [*heads.add(place), *heads.add(LINE_KEYS + place)] }
    }

    /// The places whose entry is live, as bits.
    #[inline]
    pub(super) fn live_places(&self, arenas: &Arenas) -> u32 {
        let mut live = 0;
        for place in 0..LINE_KEYS {
            live |= u32::from(self.is_live(place, arenas)) << place;
        }
        live
    }

    /// The first place that has no heads at all.
    #[inline]
    pub(super) fn first_empty(&self) -> Option<u32> {
        let mut used = 0;
        for place in 0..LINE_KEYS {
            let [left, right] = self.heads_at(place);
            used |= u32::from(left | right != 0) << place;
        }
        let place = used.trailing_ones();
        (place < LINE_KEYS as u32).then_some(place)
    }

    /// The first place whose entry is dead.
    #[inline]
    pub(super) fn first_free(&self, arenas: &Arenas) -> Option<u32> {
        (0..LINE_KEYS as u32).find(|&place| !self.is_live(place as usize, arenas))
    }

    #[inline]
    pub(super) fn is_live(&self, place: usize, arenas: &Arenas) -> bool {
        arenas[0].is_live(self.heads[0][place]) | arenas[1].is_live(self.heads[1][place])
    }
}

/// Lines, in segments.
pub(super) struct Table {
    pub(super) segments: Vec<NonNull<Line>>,
    pub(super) line_count: usize,
}

impl Table {
    #[inline]
    pub(super) fn home_of(&self, tag: u32) -> usize {
        // Below the number of lines, which fits 32 bits by far (2^32 lines are 256 GiB).
        ((u64::from(tag) * self.line_count as u64) >> 32) as usize
    }

    /// The largest tag whose home is before line `stop`, which is not 0.
    pub(super) fn last_tag(&self, stop: usize) -> u32 {
        let end = ((stop as u64) << 32).div_ceil(self.line_count.max(1) as u64);
        end.saturating_sub(1).min(u64::from(u32::MAX)) as u32
    }

    #[inline]
    pub(super) fn line(&self, number: usize) -> NonNull<Line> {
        let segment = self.segments[number >> SEGMENT_LOG2];
        // SAFETY: a segment has SEGMENT_LINES lines, and the offset is under that.
        unsafe { segment.add(number & (SEGMENT_LINES - 1)) }
    }

    /// The lines that an entry of `home` may stand in, the first `reach` of them beyond it.
    pub(super) fn lines_from(
        &self,
        home: usize,
        reach: usize,
    ) -> impl Iterator<Item = NonNull<Line>> {
        (home..=home + reach).map(|number| self.line(number))
    }

    /// Makes lines up to `number`, and those that they overflow into, of `spares` or new memory.
    #[inline]
    pub(super) fn extend_to(&mut self, number: usize, spares: &mut Vec<NonNull<Line>>) {
        if self.segments.len() * SEGMENT_LINES <= number + OVERFLOW_MAX {
            self.extend(number, spares);
        }
    }

    #[cold]
    #[inline(never)]
    fn extend(&mut self, number: usize, spares: &mut Vec<NonNull<Line>>) {
        while self.segments.len() * SEGMENT_LINES <= number + OVERFLOW_MAX {
            let segment = spares.pop().or_else(try_allocate_segment);
            self.segments.push(segment.unwrap_or_else(|| handle_alloc_error(segment_layout())));
        }
    }

    /// Finds a place for an entry of `home` that holds no live entry.
    pub(super) fn claim(&self, home: usize, arenas: &Arenas) -> Option<Entry> {
        for (displacement, line) in self.lines_from(home, OVERFLOW_MAX).enumerate() {
            // SAFETY: a line of the table, used by one thread, no exclusive reference held.
            if let Some(place) = unsafe { line.as_ref() }.first_free(arenas) {
                if displacement > 0 {
                    // SAFETY: as above; one reference at a time.
                    let overflow = unsafe { &mut self.line(home).as_mut().overflow };
                    *overflow = (*overflow).max(displacement as u32);
                }
                return Some(Entry { line, place });
            }
        }
        None
    }

    /// Looks through the lines beyond `home`; corrects how many of them must be looked through.
    #[cold]
    #[inline(never)]
    pub(super) fn find_beyond(
        &self,
        tag: u32,
        home: usize,
        mut skip: u32,
        arenas: &Arenas,
    ) -> Option<Entry> {
        let home_line = self.line(home);
        // SAFETY: a line of the table, used by one thread, no exclusive reference held.
        let reach = unsafe { home_line.as_ref() }.overflow as usize;
        let mut reach_needed = 0;
        for (displacement, pointer) in self.lines_from(home, reach).enumerate().skip(1) {
            // SAFETY: as above.
            let line = unsafe { pointer.as_ref() };
            for place in 0..LINE_KEYS {
                if self.home_of(line.tags[place]) != home || !line.is_live(place, arenas) {
                    continue;
                }
                reach_needed = displacement as u32;
                if line.tags[place] == tag {
                    if skip == 0 {
                        return Some(Entry { line: pointer, place: place as u32 });
                    }
                    skip -= 1;
                }
            }
        }
        // SAFETY: as above, and no shared reference is held any more.
        unsafe { (*home_line.as_ptr()).overflow = reach_needed };
        None
    }

    /// Copies every live entry whose home is `home` out, wherever it stands, and makes the line
    /// `home` as new. All homes before it must have been taken out: what is left in its line is its
    /// own, and only lines beyond it hold entries of others.
    pub(super) fn take_out(&self, home: usize, taken: &mut [Taken], arenas: &Arenas) -> usize {
        let mut taken_len = 0;
        let home_line = self.line(home);
        // SAFETY: a line of the table, used by one thread, no reference held.
        let reach = unsafe { home_line.as_ref() }.overflow as usize;
        for (displacement, line) in self.lines_from(home, reach).enumerate() {
            // SAFETY: as above.
            let line = unsafe { &mut *line.as_ptr() };
            for place in 0..LINE_KEYS {
                let is_ours = displacement == 0 || self.home_of(line.tags[place]) == home;
                if is_ours && line.is_live(place, arenas) {
                    let heads = [line.heads[0][place], line.heads[1][place]];
                    taken[taken_len] = Taken { tag: line.tags[place], heads };
                    taken_len += 1;
                    (line.heads[0][place], line.heads[1][place]) = (0, 0);
                }
            }
        }
        // SAFETY: as above; all zeros is an empty line.
        unsafe { home_line.write_bytes(0, 1) };
        taken_len
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.segments.drain(..).for_each(free_segment);
    }
}

fn segment_layout() -> Layout {
    // The size is a power of two, which is an alignment.
    Layout::new::<[Line; SEGMENT_LINES]>()
        .align_to(SEGMENT_BYTES)
        .unwrap_or(Layout::new::<[Line; SEGMENT_LINES]>())
}

pub(super) fn try_allocate_segment() -> Option<NonNull<Line>> {
    // SAFETY: the layout's size is not zero; all zeros is an empty line.
    let memory = NonNull::new(unsafe { alloc_zeroed(segment_layout()) })?;
    advise_huge_pages(memory.as_ptr(), SEGMENT_BYTES);
    Some(memory.cast())
}

pub(super) fn free_segment(segment: NonNull<Line>) {
    // SAFETY: allocated in `allocate_segment` with the same layout.
    unsafe { dealloc(segment.as_ptr().cast(), segment_layout()) }
}
