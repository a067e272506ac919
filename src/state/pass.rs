//! One batch on its way through the phases: its columns, and what a phase leaves for the next.

use std::ops::Range;
use std::ptr::NonNull;

use super::hits::Hits;
use super::probe::{BatchStats, Class, Probe};
use super::run::Word;
use super::table::{Entry, Line};
use super::ttl::back_of;
use crate::event::{EventBatch, Side};
use crate::limits::BATCH_EVENTS_MAX;

/// No place of a line.
pub(super) const NO_PLACE: u8 = u8::MAX;

/// Memory that the phases use again and again, by place in the batch's range: places are bytes, so
/// that no look at it needs a check of bounds.
pub(super) struct Scratch {
    /// The home lines of the events; for the known, the lines of their entries.
    pub(super) homes: Box<[NonNull<Line>; BATCH_EVENTS_MAX]>,
    /// The places of the known in their lines; [`NO_PLACE`] once a closer look showed that the
    /// entry is another key's.
    pub(super) places: Box<[u8; BATCH_EVENTS_MAX]>,
    /// Events whose key has no entry.
    pub(super) unknown: Places,
    /// Events whose key has an entry.
    pub(super) known: Places,
    /// Whether an event has a match.
    pub(super) matched: Box<[bool; BATCH_EVENTS_MAX]>,
    pub(super) hits: Hits,
}

const _: () = assert!(BATCH_EVENTS_MAX == 1 << u8::BITS);

// SAFETY: the pointers in it are used only within one call of `join_batch`.
unsafe impl Send for Scratch {}

impl Scratch {
    pub(super) fn new() -> Scratch {
        Scratch {
            homes: Box::new([NonNull::dangling(); BATCH_EVENTS_MAX]),
            places: Box::new([0; BATCH_EVENTS_MAX]),
            unknown: Places::new(),
            known: Places::new(),
            matched: Box::new([false; BATCH_EVENTS_MAX]),
            hits: Hits::new(),
        }
    }

    /// The entry of a known event.
    #[inline]
    pub(super) fn entry(&self, place: u8) -> Entry {
        let place_in_line = u32::from(self.places[usize::from(place)]);
        Entry { line: self.homes[usize::from(place)], place: place_in_line }
    }

    #[inline]
    pub(super) fn set_entry(&mut self, place: u8, entry: Entry) {
        self.homes[usize::from(place)] = entry.line;
        self.places[usize::from(place)] = entry.place as u8;
    }
}

/// Some of the events of a range, in their order.
pub(super) struct Places {
    places: Box<[u8; BATCH_EVENTS_MAX]>,
    len: usize,
}

impl Places {
    fn new() -> Places {
        Places { places: Box::new([0; BATCH_EVENTS_MAX]), len: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends `place` if `is_wanted`, without a branch. Each place of a range may come once.
    #[inline]
    pub(super) fn push_if(&mut self, is_wanted: bool, place: u8) {
        self.places[self.len & (BATCH_EVENTS_MAX - 1)] = place;
        self.len += usize::from(is_wanted);
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> u8 {
        self.places[at & (BATCH_EVENTS_MAX - 1)]
    }
}

/// One batch on its way: what the phases share.
pub(super) struct Pass<'a> {
    pub(super) side: Side,
    pub(super) batch: &'a EventBatch,
    /// The columns of the range, and where it starts in the batch.
    pub(super) keys: &'a [u64],
    ts: &'a [i64],
    start: usize,
    /// No time of the range comes near the ends of time, by the ends of the interval.
    is_near: bool,
    /// The rows of the range, if each is eight bytes.
    words: Option<&'a [[u8; 8]]>,
    /// Of the range, or empty.
    pub(super) classes: &'a [Class],
    pub(super) probe: Probe,
    pub(super) stats: BatchStats,
    /// The layout of the index that homes and entries were found in.
    pub(super) layout: u32,
    /// Of the other side: the next row's number, and how far behind it the oldest live row's is.
    pub(super) next: u32,
    pub(super) oldest_back: u32,
}

impl<'a> Pass<'a> {
    /// The events in `range` of a batch. `classes` is empty or as long as the batch.
    pub(super) fn new(
        batch: &'a EventBatch,
        range: Range<usize>,
        classes: &'a [Class],
        probe: Probe,
        layout: u32,
    ) -> Pass<'a> {
        let ts = &batch.timestamps()[range.clone()];
        Pass {
            side: batch.side(),
            batch,
            keys: &batch.keys()[range.clone()],
            ts,
            start: range.start,
            is_near: are_near(ts) && are_near(&[probe.interval.lo(), probe.interval.hi()]),
            words: batch.words(range.clone()),
            classes: classes.get(range).unwrap_or(&[]),
            probe,
            stats: BatchStats::default(),
            layout,
            next: 0,
            oldest_back: u32::MAX,
        }
    }

    #[inline]
    pub(super) fn is_late(&self, place: u8) -> bool {
        self.classes.get(usize::from(place)) == Some(&Class::Late)
    }

    /// Whether a row of the other side, by its tag, has outlived its time.
    #[inline]
    pub(super) fn is_dead(&self, tag: u32) -> bool {
        back_of(tag, self.next) > self.oldest_back
    }

    #[inline]
    pub(super) fn key(&self, place: u8) -> u64 {
        self.keys[usize::from(place)]
    }

    #[inline]
    pub(super) fn ts(&self, place: u8) -> i64 {
        self.ts[usize::from(place)]
    }

    #[inline]
    pub(super) fn stored_row(&self, place: u8) -> &'a [u8] {
        self.batch.stored_row(self.index(place))
    }

    /// How the row of an event is kept if it fits a word.
    #[inline(always)]
    pub(super) fn word(&self, place: u8) -> Option<Word> {
        match self.words {
            Some(words) => Some(Word::whole(words[usize::from(place)])),
            None => Word::in_place(self.stored_row(place)),
        }
    }

    /// The index in the batch.
    #[inline]
    pub(super) fn index(&self, place: u8) -> usize {
        self.start + usize::from(place)
    }

    /// The times of partners of an event.
    #[inline]
    pub(super) fn range(&self, place: u8) -> (i64, i64) {
        let (ts, interval, floor) = (self.ts(place), self.probe.interval, self.probe.partner_floor);
        if self.is_near {
            return ((ts.wrapping_add(interval.lo())).max(floor), ts.wrapping_add(interval.hi()));
        }
        let (lo, hi) = interval.range(ts);
        (lo.max(floor), hi)
    }
}

/// Whether any two of all such numbers can be added without a look at the ends of `i64`.
fn are_near(numbers: &[i64]) -> bool {
    const FAR: u64 = 1 << 61;
    let all = numbers.iter().fold(0, |all, &number| all | (number as u64).wrapping_add(FAR));
    all < 2 * FAR
}
