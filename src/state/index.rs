//! The index: key -> the newest runs of both sides, one cache line a look.
//!
//! A line of 64 bytes holds five keys. Of each it keeps a tag (the low half of the key's value)
//! and the handles of the newest run of either side, so the line that is fetched to probe the other
//! side is the line that an insert into our own writes. The run holds the other half of the value:
//! equality is exact.
//!
//! ```text
//! line:  tag x 5 | left head x 5 | right head x 5 | overflow
//! ```
//!
//! The home line of a tag is `tag * lines / 2^32` (Lemire's fast range), so tags and lines are in
//! the same order. An entry is dead when both its handles are: nobody removes it, the next insert
//! that needs its place takes it. Entries that find their home line full of live entries stand in
//! one of the next 15 lines; `overflow` of the home line says how far a look must go, and a look
//! that went further than needed corrects it.
//!
//! The table grows to twice its size, a few lines with every batch: because old and new lines are
//! in the same order, growing is one pass from the first line to the last, reading one stream and
//! writing another, and lines behind the pass are free to become new ones. No step pays for a
//! rehash, and the memory in use is the new table's. (Growing by half moves every key twice as
//! often: w1b 176 instead of 128 ns an event. Linear hashing, which splits line by line, was tried
//! first: its lines not yet split are twice as full as the others and overflow.) The load is
//! sampled where it costs nothing: an insert has just seen how many live entries its line holds.

use std::ptr::NonNull;

use crate::event::prefetch;

use super::arena::{Handle, touch};
use super::table::{
    Arenas, Entry, LINE_KEYS, Line, OVERFLOW_MAX, SEGMENT_BYTES, SEGMENT_LINES, Table, Taken,
    free_segment, try_allocate_segment,
};

/// Lines of a new table: 32 KiB, so that many shards without rows fit a small bound on state.
pub(super) const LINES_MIN: usize = 512;
/// New keys between two judgements of the load, at most.
const SAMPLE_LEN: usize = 16_384;
/// The bits of all places of a line.
const ALL_PLACES: u32 = (1 << LINE_KEYS) - 1;
/// Live entries a line, in 1/1024, from which on the table grows.
const LOAD_MAX: u64 = 2_458;
/// Lines that are moved for each event of a batch while the table grows: it has grown before a
/// tenth of its keys are new.
const MOVES_PER_EVENT: usize = 5;

const _: () = assert!(LINES_MIN + OVERFLOW_MAX <= SEGMENT_LINES);

#[inline]
pub(super) fn tag_of(key: u64) -> u32 {
    key as u32
}

/// After how many inserts the load of a table is judged.
fn samples_judged(line_count: usize) -> u32 {
    SAMPLE_LEN.min(line_count / 8) as u32
}

/// The index of one shard.
pub(super) struct Index {
    /// The table, or the one that the index grows into.
    table: Table,
    /// While the index grows: the table that it grows out of. Otherwise it has no lines.
    old: Table,
    /// Homes of the old table under this one have moved; 1 when the index does not grow.
    moved: usize,
    spares: Vec<NonNull<Line>>,
    /// So many spares were taken at the start and wait for a larger table.
    reserved: usize,
    /// Inserts since the load was judged last, and how many live entries their home lines had.
    sampled: u32,
    sampled_live: u32,
    /// The load is judged after so many inserts.
    samples_judged: u32,
    is_growth_due: bool,
    /// Counts the calls that moved entries.
    layout: u32,
}

// SAFETY: the index owns its lines; nothing in it is tied to a thread.
unsafe impl Send for Index {}

impl Index {
    pub(super) fn new() -> Index {
        let mut spares = Vec::with_capacity(4);
        let mut table = Table { segments: Vec::with_capacity(64), line_count: LINES_MIN };
        table.extend_to(LINES_MIN, &mut spares);
        Index {
            table,
            old: Table { segments: Vec::new(), line_count: 0 },
            moved: 1,
            spares,
            reserved: 0,
            sampled: 0,
            sampled_live: 0,
            samples_judged: samples_judged(LINES_MIN),
            is_growth_due: false,
            layout: 0,
        }
    }

    /// Takes segments for `bytes` of lines and touches them; stops where the system gives no more.
    pub(super) fn reserve(&mut self, bytes: usize) {
        for _ in 0..bytes.div_ceil(SEGMENT_BYTES) {
            let Some(segment) = try_allocate_segment() else { return };
            // All zeros, which they stay.
            touch(segment.cast(), SEGMENT_BYTES);
            self.spares.push(segment);
            self.reserved += 1;
        }
    }

    /// Bytes of the segments that were taken at the start and were not used yet.
    pub(super) fn reserved_bytes(&self) -> usize {
        self.reserved * SEGMENT_BYTES
    }

    /// Bytes of the lines in use, and of segments that wait for use, but for the reserve.
    pub(super) fn bytes(&self) -> usize {
        let in_use = |table: &Table| {
            (table.segments.len() * SEGMENT_BYTES).min((table.line_count + OVERFLOW_MAX) * 64)
        };
        in_use(&self.table)
            + in_use(&self.old)
            + self.spares.len().saturating_sub(self.reserved) * SEGMENT_BYTES
    }

    /// Changes whenever entries are moved: homes and entries found before are invalid then.
    #[inline]
    pub(super) fn layout(&self) -> u32 {
        self.layout
    }

    /// The home lines of `keys`, which are asked for.
    #[inline]
    pub(super) fn prefetch_all(&self, keys: &[u64], homes: &mut [NonNull<Line>]) {
        let is_growing = self.old.line_count > 0;
        for (&key, home) in keys.iter().zip(homes) {
            let tag = tag_of(key);
            *home =
                if is_growing { self.home(key) } else { self.table.line(self.table.home_of(tag)) };
            prefetch(home.as_ptr());
        }
    }

    /// The line where `key` is to be looked for first.
    pub(super) fn home(&self, key: u64) -> NonNull<Line> {
        let (table, number) = self.locate(tag_of(key));
        table.line(number)
    }

    /// The table that the entries of `tag` stand in, and the number of their home line there.
    #[inline]
    fn locate(&self, tag: u32) -> (&Table, usize) {
        let old_home = self.old.home_of(tag);
        if old_home >= self.moved {
            (&self.old, old_home)
        } else {
            (&self.table, self.table.home_of(tag))
        }
    }

    /// Looks for a live entry with the tag of `key`, after `skip` candidates that were not the key.
    #[inline]
    pub(super) fn find(
        &self,
        key: u64,
        home: NonNull<Line>,
        skip: u32,
        arenas: &Arenas,
    ) -> Option<Entry> {
        let tag = tag_of(key);
        // SAFETY: the line is part of a table; no exclusive reference to it exists.
        let line = unsafe { home.as_ref() };
        let mut places = line.places_with(tag);
        let mut skip = skip;
        while places != 0 {
            let place = places.trailing_zeros();
            if line.is_live(place as usize, arenas) {
                if skip == 0 {
                    return Some(Entry { line: home, place });
                }
                skip -= 1;
            }
            places &= places - 1;
        }
        if line.overflow == 0 {
            return None;
        }
        let (table, number) = self.locate(tag);
        table.find_beyond(tag, number, skip, arenas)
    }

    /// Makes an entry for `key`, which had none when the batch came, with dead heads. `None` when
    /// the home line has no room, or when an event of the batch may have made the entry meanwhile:
    /// look again then.
    #[inline]
    pub(super) fn insert(
        &mut self,
        key: u64,
        home: NonNull<Line>,
        arenas: &Arenas,
    ) -> Option<Entry> {
        // SAFETY: the line is part of a table; no exclusive reference to it exists.
        let line = unsafe { home.as_ref() };
        let live = line.live_places(arenas);
        self.sampled += 1;
        self.sampled_live += live.count_ones();
        if self.sampled >= self.samples_judged {
            self.judge_load();
        }
        let same = line.places_with(tag_of(key)) & live;
        if live == ALL_PLACES || same != 0 || line.overflow != 0 {
            return None;
        }
        let entry = Entry { line: home, place: live.trailing_ones() };
        entry.reset(tag_of(key), [0; 2]);
        Some(entry)
    }

    /// Makes an entry for `key`, which has none, wherever there is room. `None` when no line within
    /// reach has any; then the table must grow first.
    #[cold]
    pub(super) fn insert_beyond(&mut self, key: u64, arenas: &Arenas) -> Option<Entry> {
        let entry = self.claim_beyond(tag_of(key), arenas)?;
        entry.reset(tag_of(key), [0; 2]);
        Some(entry)
    }

    #[cold]
    #[inline(never)]
    fn claim_beyond(&self, tag: u32, arenas: &Arenas) -> Option<Entry> {
        let (table, number) = self.locate(tag);
        table.claim(number, arenas)
    }

    #[cold]
    fn judge_load(&mut self) {
        let load = u64::from(self.sampled_live) * 1024 / u64::from(self.sampled);
        (self.sampled, self.sampled_live) = (0, 0);
        self.samples_judged = samples_judged(self.table.line_count);
        // Growth begins between batches: homes that were looked up must stay valid until then.
        self.is_growth_due = load >= LOAD_MAX && self.old.line_count == 0;
    }

    fn begin_growth(&mut self) {
        self.is_growth_due = false;
        let line_count = self.table.line_count * 2;
        let segments = Vec::with_capacity(line_count / SEGMENT_LINES + 2);
        self.old = std::mem::replace(&mut self.table, Table { segments, line_count });
        self.moved = 0;
    }

    /// Moves some lines, if the index grows, for a batch of `event_count`. Homes and entries are
    /// invalid afterwards.
    #[inline]
    pub(super) fn grow(&mut self, event_count: usize, arenas: &Arenas) {
        if self.is_growth_due {
            self.begin_growth();
        }
        if self.old.line_count > 0 {
            self.move_lines(event_count * MOVES_PER_EVENT, arenas);
        }
    }

    /// Grows at once, after [`insert`](Self::insert) found no room: to the end of the growth
    /// that is under way, or by a whole one.
    #[cold]
    pub(super) fn grow_now(&mut self, arenas: &Arenas) {
        if self.old.line_count == 0 {
            self.begin_growth();
        }
        self.move_lines(usize::MAX, arenas);
    }

    #[cold]
    #[inline(never)]
    fn move_lines(&mut self, count: usize, arenas: &Arenas) {
        self.layout = self.layout.wrapping_add(1);
        let stop = self.old.line_count.min(self.moved.saturating_add(count));
        // Homes of all moved lines are looked up in the new table, whether anything in them lived.
        self.table.extend_to(self.table.home_of(self.old.last_tag(stop)), &mut self.spares);
        while self.moved < stop {
            let line = self.old.line(self.moved);
            // SAFETY: a line of a table, used by one thread, no exclusive reference to it exists.
            let is_alone = unsafe { line.as_ref() }.overflow == 0;
            let is_moved = is_alone && self.move_line(line, arenas) || self.move_home(arenas);
            if !is_moved {
                // Never seen: twice as many lines, and no room. The growth stops here and state
                // will count as full rather than lose a key.
                return;
            }
            self.moved += 1;
            if self.moved.is_multiple_of(SEGMENT_LINES) && self.moved < self.old.line_count {
                self.recycle(self.moved / SEGMENT_LINES - 1);
            }
        }
        if self.moved == self.old.line_count {
            self.end_growth();
        }
    }

    /// Moves the entries of a line of the old table that overflows into no other: the short way.
    /// Returns whether all are moved; if not, the line holds the rest.
    #[inline]
    fn move_line(&mut self, pointer: NonNull<Line>, arenas: &Arenas) -> bool {
        // SAFETY: a line of the old table, of which no other reference exists.
        let line = unsafe { &mut *pointer.as_ptr() };
        let mut live = line.live_places(arenas);
        while live != 0 {
            let place = live.trailing_zeros() as usize;
            let (tag, heads) = (line.tags[place], line.heads_at(place));
            let to = self.table.line(self.table.home_of(tag));
            // SAFETY: a line of the new table, of which no exclusive reference exists.
            let Some(empty) = (unsafe { to.as_ref() }).first_empty() else { return false };
            Entry { line: to, place: empty }.reset(tag, heads);
            (line.heads[0][place], line.heads[1][place]) = (0, 0);
            live &= live - 1;
        }
        // SAFETY: see above; all zeros is an empty line.
        unsafe { pointer.write_bytes(0, 1) };
        true
    }

    /// Moves all entries whose home is the next line, wherever they stand. Returns whether there
    /// was room.
    #[cold]
    #[inline(never)]
    fn move_home(&mut self, arenas: &Arenas) -> bool {
        let mut taken = [Taken::default(); LINE_KEYS * (OVERFLOW_MAX + 1)];
        let taken_len = self.old.take_out(self.moved, &mut taken, arenas);
        for (index, entry) in taken[..taken_len].iter().enumerate() {
            if !self.put_in(entry, arenas) {
                self.put_back(&taken[index..taken_len], arenas);
                return false;
            }
        }
        true
    }

    fn put_in(&self, taken: &Taken, arenas: &Arenas) -> bool {
        match self.table.claim(self.table.home_of(taken.tag), arenas) {
            Some(entry) => {
                entry.reset(taken.tag, taken.heads);
                true
            }
            None => false,
        }
    }

    /// Puts entries back into the old line that they came from, which has room for them.
    #[cold]
    fn put_back(&self, taken: &[Taken], arenas: &Arenas) {
        for taken in taken {
            if let Some(entry) = self.old.claim(self.moved, arenas) {
                entry.reset(taken.tag, taken.heads);
            }
        }
    }

    /// The lines of an old segment are all as new: they may serve the new table.
    fn recycle(&mut self, segment: usize) {
        let fresh = std::mem::replace(&mut self.old.segments[segment], NonNull::dangling());
        self.spares.push(fresh);
    }

    fn end_growth(&mut self) {
        let recycled = self.old.line_count.saturating_sub(1) / SEGMENT_LINES;
        // What is left are the last segments, whose overflow lines may hold dead entries.
        for segment in self.old.segments.drain(..).skip(recycled) {
            free_segment(segment);
        }
        self.old.line_count = 0;
        self.moved = 1;
        // The samples so far were taken from both tables.
        (self.sampled, self.sampled_live) = (0, 0);
    }

    /// Moves the live entries into a table of half the size or less, if that has room for twice as
    /// many. Homes and entries are invalid afterwards, and no head is dead.
    pub(super) fn shrink(&mut self, arenas: &Arenas) {
        let is_live =
            |heads: &[Handle; 2]| arenas[0].is_live(heads[0]) | arenas[1].is_live(heads[1]);
        let mut live = 0;
        self.each_entry(|_, heads| live += usize::from(is_live(&heads)));
        let line_count = live.next_power_of_two().max(LINES_MIN);
        if line_count * 2 > self.table.line_count + self.old.line_count {
            return;
        }
        let mut smaller = Index::new();
        (smaller.spares, smaller.reserved) = (std::mem::take(&mut self.spares), self.reserved);
        smaller.table.line_count = line_count;
        smaller.table.extend_to(line_count, &mut smaller.spares);
        let mut has_room = true;
        self.each_entry(|tag, heads| {
            if is_live(&heads) {
                let [left, right] = heads;
                let left = if arenas[0].is_live(left) { left } else { 0 };
                let right = if arenas[1].is_live(right) { right } else { 0 };
                has_room &= smaller.put_in(&Taken { tag, heads: [left, right] }, arenas);
            }
        });
        // Never seen that there was none: then everything stays as it is.
        if has_room {
            smaller.layout = self.layout.wrapping_add(1);
            smaller.samples_judged = samples_judged(line_count);
            *self = smaller;
        } else {
            self.spares = std::mem::take(&mut smaller.spares);
        }
    }

    /// Calls `each` with the tag and the heads of every entry, dead ones included.
    pub(super) fn each_entry(&self, mut each: impl FnMut(u32, [Handle; 2])) {
        for (table, first) in [(&self.table, 0), (&self.old, self.moved)] {
            let lines = table.line_count + if table.line_count > 0 { OVERFLOW_MAX } else { 0 };
            for number in first..lines.min(table.segments.len() * SEGMENT_LINES) {
                // SAFETY: a line of a table, used by one thread, no exclusive reference held.
                let line = unsafe { table.line(number).as_ref() };
                for place in 0..LINE_KEYS {
                    each(line.tags[place], line.heads_at(place));
                }
            }
        }
    }

    /// Zeroes the heads that `is_dead` (side, head) in up to `count` lines from `start` on, of both
    /// tables; returns where to go on, or `None` after the last line.
    pub(super) fn clean(
        &mut self,
        start: usize,
        count: usize,
        is_dead: impl Fn(usize, Handle) -> bool,
    ) -> Option<usize> {
        let new_end = self.table.line_count + OVERFLOW_MAX;
        let end = new_end + self.old.line_count + OVERFLOW_MAX;
        let stop = end.min(start + count);
        for number in start..stop {
            let (table, number) = if number < new_end {
                (&self.table, number)
            } else {
                (&self.old, number - new_end)
            };
            let recycled = std::ptr::eq(table, &self.old) && number < self.moved;
            if recycled || number >= table.segments.len() * SEGMENT_LINES {
                continue;
            }
            // SAFETY: a line of a table, used by one thread, no reference held.
            let line = unsafe { &mut *table.line(number).as_ptr() };
            for (side, heads) in line.heads.iter_mut().enumerate() {
                heads.iter_mut().filter(|head| is_dead(side, **head)).for_each(|head| *head = 0);
            }
        }
        (stop < end).then_some(stop)
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        self.spares.drain(..).for_each(free_segment);
        let recycled = if self.old.line_count == 0 { 0 } else { self.moved / SEGMENT_LINES };
        self.old.segments.drain(..recycled);
    }
}
