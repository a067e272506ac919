//! The table of watermarks: one atomic a source, read by every shard.
//!
//! The protocol that keeps a watermark from overtaking data:
//!
//! 1. a source pushes its batches, the partial one included, *then* stores its watermark (Release);
//! 2. a shard loads all watermarks (Acquire), *then* takes note of what its lanes hold and drains
//!    exactly that, *then* applies what it loaded.
//!
//! A watermark that the shard saw was stored after the pushes it speaks for, so the lanes it looks
//! at afterwards hold them. Several producers may speak for one source in turn, if each hands its
//! turn on through a Release/Acquire pair: the last in order then speaks for all before it.

#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;

use crossbeam::utils::CachePadded;

use crate::event::Side;
use crate::exchange::sync::{Arc, AtomicBool, AtomicI64, AtomicU64, AtomicUsize};
use crate::exchange::sync::{Edge, Ordering, at};
use crate::limits::SOURCE_COUNT_MAX;
use crate::time::{SourceState, WATERMARK_END, WATERMARK_START, merge_sources};

/// Stands for "idle" in a slot. A watermark of this value promises what `i64::MIN` promises,
/// because no event is smaller, and is stored as that.
const IDLE: i64 = i64::MIN + 1;

/// The table of both sides. Clones are handles to the same table.
#[derive(Clone)]
pub struct Watermarks(Arc<Table>);

/// One source's place in the table. Clones speak for the same source.
#[derive(Clone)]
pub struct WatermarkSlot {
    table: Watermarks,
    side: Side,
    source: u32,
}

/// One reader's view: a side's watermark never goes back in it.
#[derive(Clone, Debug)]
pub struct WatermarkReader {
    table: Watermarks,
    merged: [i64; 2],
}

/// What a reader loaded. It may be applied only after everything has been processed that the
/// lanes held after the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The watermark of each side, by [`Side::index`].
    pub sides: [i64; 2],
    /// The table is sealed and all its sources have finished: no data will follow.
    pub all_finished: bool,
}

/// A side has as many sources as its table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManySources {
    /// The side.
    pub side: Side,
    /// How many it holds.
    pub source_count_max: usize,
}

struct Table {
    sides: [Box<[CachePadded<Slot>]>; 2],
    /// Changes seldom, so it stands apart from the slots.
    registry: CachePadded<Registry>,
}

struct Registry {
    registered: [AtomicUsize; 2],
    finished: [AtomicUsize; 2],
    sealed: AtomicBool,
}

/// One source. Only `value` is read by shards; the rest shares its line because the same producer
/// writes it at the same time.
struct Slot {
    /// The watermark, or `IDLE`; `WATERMARK_END` once finished.
    value: AtomicI64,
    /// The largest promise so far; outlives idleness and the end.
    promised: AtomicI64,
    regressed: AtomicU64,
    jumped: AtomicU64,
    finished: AtomicBool,
    /// See [`WatermarkSlot::set_live`] and [`WatermarkSlot::set_silent`].
    live: AtomicBool,
    silent: AtomicBool,
    /// See [`WatermarkSlot::set_derived`].
    derived: AtomicBool,
}

/// Watermarks that sources are paced by; `None` where there is no such source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slowest {
    /// The smallest of the sources that are neither idle nor finished.
    pub of_all: Option<i64>,
    /// The same of live sources that are not silent, if any source is; else as `of_all`.
    pub of_heard: Option<i64>,
}

impl Default for Watermarks {
    fn default() -> Watermarks {
        Watermarks::new()
    }
}

impl Watermarks {
    /// An empty table for [`SOURCE_COUNT_MAX`] sources a side (128 bytes each).
    pub fn new() -> Watermarks {
        Watermarks::with_capacity(SOURCE_COUNT_MAX)
    }

    /// An empty table for `source_count_max` sources a side.
    pub fn with_capacity(source_count_max: usize) -> Watermarks {
        let slots = || (0..source_count_max).map(|_| CachePadded::new(Slot::new())).collect();
        Watermarks(Arc::new(Table {
            sides: [slots(), slots()],
            registry: CachePadded::new(Registry {
                registered: [AtomicUsize::new(0), AtomicUsize::new(0)],
                finished: [AtomicUsize::new(0), AtomicUsize::new(0)],
                sealed: AtomicBool::new(false),
            }),
        }))
    }

    /// Adds a source, at any time before [`seal`](Self::seal). It holds its side's watermark where
    /// it is until it promises, is idle or has finished; it cannot pull it back. Register all
    /// sources that must be waited for before the first of them promises.
    ///
    /// # Errors
    /// [`TooManySources`] when the table is full.
    ///
    /// # Panics
    /// When the table is sealed.
    pub fn add_source(&self, side: Side) -> Result<WatermarkSlot, TooManySources> {
        assert!(!self.is_sealed(), "a source was added to a sealed table of watermarks");
        let source_count_max = self.0.sides[side.index()].len();
        let registered = &self.0.registry.registered[side.index()];
        // A first guess; a wrong one is put right by the exchange.
        let mut count = 0;
        while count < source_count_max {
            // AcqRel: the Release pairs with the Acquire in `source_count`, so that whoever sees
            // the source sees all that came before. The slot itself was made with the table.
            let order = Ordering::AcqRel;
            match registered.compare_exchange(count, count + 1, order, Ordering::Relaxed) {
                // Cannot truncate: tables hold far fewer than 2^32 sources.
                Ok(_) => {
                    return Ok(WatermarkSlot { table: self.clone(), side, source: count as u32 });
                }
                Err(now) => count = now,
            }
        }
        Err(TooManySources { side, source_count_max })
    }

    /// Says that no source will be added any more: from now on [`Loaded::all_finished`] can become
    /// true, and a side without any source counts as finished.
    pub fn seal(&self) {
        // Release pairs with the Acquire in `is_sealed`: all registrations come before it.
        self.0.registry.sealed.store(true, Ordering::Release);
    }

    /// Whether no source will be added any more.
    pub fn is_sealed(&self) -> bool {
        // Acquire pairs with the Release in `seal`.
        self.0.registry.sealed.load(Ordering::Acquire)
    }

    /// How many sources a side has, finished ones included.
    pub fn source_count(&self, side: Side) -> usize {
        // Acquire pairs with the registration in `add_source`.
        self.0.registry.registered[side.index()].load(Ordering::Acquire)
    }

    /// What each source of a side last said.
    pub fn states(&self, side: Side) -> impl Iterator<Item = SourceState> + '_ {
        let slots = &self.0.sides[side.index()][..self.source_count(side)];
        slots.iter().map(|slot| slot.state())
    }

    /// What the sources of some tables are paced by at this moment. Costs a shared read a source.
    pub fn slowest(tables: &[Watermarks]) -> Slowest {
        let min = |a: Option<i64>, b: i64| Some(a.map_or(b, |a| a.min(b)));
        let (mut of_all, mut of_live, mut any_silent) = (None, None, false);
        let sides = tables.iter().flat_map(|table| Side::BOTH.map(|side| (table, side)));
        for (table, side) in sides {
            for slot in &table.0.sides[side.index()][..table.source_count(side)] {
                let SourceState::Active(watermark) = slot.state() else { continue };
                // Relaxed: advice, which nothing is read on the strength of.
                if slot.derived.load(Ordering::Relaxed) {
                    continue;
                }
                of_all = min(of_all, watermark);
                // Relaxed: likewise.
                if slot.silent.load(Ordering::Relaxed) {
                    any_silent = true;
                } else if slot.live.load(Ordering::Relaxed) {
                    of_live = min(of_live, watermark);
                }
            }
        }
        Slowest { of_all, of_heard: if any_silent { of_live } else { of_all } }
    }

    /// A side's watermark at this moment, [`WATERMARK_START`] while all its sources are idle. For
    /// reports and alignment; what a shard applies comes from a [`WatermarkReader`].
    pub fn side(&self, side: Side) -> i64 {
        merge_sources(self.states(side)).unwrap_or(WATERMARK_START)
    }

    /// The largest promise that any source of a side has made; the end of a source is none.
    pub fn promised_max(&self, side: Side) -> i64 {
        let slots = &self.0.sides[side.index()][..self.source_count(side)];
        // Relaxed: a figure for reports.
        let promises = slots.iter().map(|slot| slot.promised.load(Ordering::Relaxed));
        promises.max().unwrap_or(WATERMARK_START)
    }

    /// How many promises of a side's sources were smaller than an earlier one, and ignored.
    pub fn regressed(&self, side: Side) -> u64 {
        let slots = &self.0.sides[side.index()][..self.source_count(side)];
        // Relaxed: a count for reports.
        slots.iter().map(|slot| slot.regressed.load(Ordering::Relaxed)).sum()
    }

    /// How many events of a side were further ahead than a limit on jumps lets the watermark go.
    pub fn jumped(&self, side: Side) -> u64 {
        let slots = &self.0.sides[side.index()][..self.source_count(side)];
        // Relaxed: a count for reports.
        slots.iter().map(|slot| slot.jumped.load(Ordering::Relaxed)).sum()
    }

    /// A reader for one shard.
    pub fn reader(&self) -> WatermarkReader {
        WatermarkReader { table: self.clone(), merged: [WATERMARK_START; 2] }
    }

    /// Whether the table is sealed and every source of it has finished.
    fn is_finished(&self) -> bool {
        // Sealed first: the counts of sources are final then.
        self.is_sealed()
            && Side::BOTH.iter().all(|&side| {
                // Acquire pairs with the Release in `WatermarkSlot::finish`: the pushes and the
                // final watermark of every source that is counted are visible.
                let finished = &self.0.registry.finished[side.index()];
                finished.load(at(Edge::WatermarkLoad, Ordering::Acquire)) == self.source_count(side)
            })
    }
}

impl WatermarkReader {
    /// Loads all watermarks and merges them. Costs one shared read a source.
    pub fn load(&mut self) -> Loaded {
        let all_finished = self.table.is_finished();
        if all_finished {
            self.merged = [WATERMARK_END; 2];
            return Loaded { sides: self.merged, all_finished };
        }
        let sealed = self.table.is_sealed();
        let counts = || Side::BOTH.map(|side| self.table.source_count(side));
        let mut before = counts();
        let merged = loop {
            let merged = Side::BOTH.map(|side| {
                if sealed && before[side.index()] == 0 {
                    return Some(WATERMARK_END);
                }
                let slots = &self.table.0.sides[side.index()][..before[side.index()]];
                merge_sources(slots.iter().map(|slot| slot.state()))
            });
            // A promise that was made after another source was added must not be merged without
            // that source: having seen the promise (Acquire), we see the registration now.
            let after = counts();
            if after == before {
                break merged;
            }
            before = after;
        };
        for (own, merged) in self.merged.iter_mut().zip(merged) {
            *own = merged.map_or(*own, |merged| merged.max(*own));
        }
        Loaded { sides: self.merged, all_finished }
    }

    /// The table.
    pub fn table(&self) -> &Watermarks {
        &self.table
    }
}

impl WatermarkSlot {
    /// The source's side.
    pub fn side(&self) -> Side {
        self.side
    }

    /// The index of the source within its side.
    pub fn source(&self) -> u32 {
        self.source
    }

    /// The table that the slot is part of.
    pub fn table(&self) -> &Watermarks {
        &self.table
    }

    /// Promises that no event with a smaller time will follow. **All events before it must have
    /// been pushed to their lanes.** The source is active again if it was idle. A smaller promise
    /// than an earlier one is counted and changes nothing; so is one after the end.
    pub fn advance(&self, watermark: i64) {
        let slot = self.slot();
        let watermark = if watermark == IDLE { WATERMARK_START } else { watermark };
        // Relaxed: `value` carries the ordering; this remembers the promise beyond idleness.
        let earlier = slot.promised.fetch_max(watermark, Ordering::Relaxed);
        if watermark < earlier {
            slot.regressed.fetch_add(1, Ordering::Relaxed);
        }
        slot.raise(watermark.max(earlier));
    }

    /// The source is silent and holds nobody back until it promises again. Does nothing after the
    /// end. All its events must have been pushed to their lanes.
    pub fn idle(&self) {
        if !self.is_finished() {
            // Release, as in `raise`. A plain store: producers that share the source take turns.
            self.slot().value.store(IDLE, at(Edge::WatermarkStore, Ordering::Release));
        }
    }

    /// The source is a stream: whoever writes it waits when it is not read, and may be the one who
    /// writes other sources.
    pub fn set_live(&self) {
        // Relaxed: advice for the pace of sources.
        self.slot().live.store(true, Ordering::Relaxed);
    }

    /// Whether [`set_live`](Self::set_live) was called.
    pub fn is_live(&self) -> bool {
        // Relaxed: as in `set_live`.
        self.slot().live.load(Ordering::Relaxed)
    }

    /// The source is what another join gives out: how far it is follows from that join's sources,
    /// so nobody is paced by it.
    pub fn set_derived(&self) {
        // Relaxed: advice for the pace of sources.
        self.slot().derived.store(true, Ordering::Relaxed);
    }

    /// The source has nothing to push at this moment, or has something again. It holds its
    /// watermark all the same; only live sources do not wait for it any more.
    pub fn set_silent(&self, silent: bool) {
        // Relaxed: as in `set_live`.
        self.slot().silent.store(silent, Ordering::Relaxed);
    }

    /// The source has ended. All its events must have been pushed to their lanes. Any number of
    /// calls, by any number of handles, end it once.
    pub fn finish(&self) {
        self.slot().raise(WATERMARK_END);
        // Relaxed: only decides which caller counts; the count below carries the ordering.
        if !self.slot().finished.swap(true, Ordering::Relaxed) {
            let finished = &self.table.0.registry.finished[self.side.index()];
            // Release pairs with the Acquire in `Watermarks::is_finished`.
            finished.fetch_add(1, at(Edge::WatermarkStore, Ordering::AcqRel));
        }
    }

    /// Counts promises that were smaller than an earlier one and never got here.
    pub fn count_regressed(&self, count: u64) {
        if count > 0 {
            // Relaxed: a count for reports.
            self.slot().regressed.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Counts events that were further ahead than a limit on jumps.
    pub fn count_jumped(&self, count: u64) {
        if count > 0 {
            // Relaxed: a count for reports.
            self.slot().jumped.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Whether the source is idle.
    pub fn is_idle(&self) -> bool {
        self.current() == SourceState::Idle
    }

    /// What the source last said.
    pub fn current(&self) -> SourceState {
        self.slot().state()
    }

    /// The largest promise so far; it stays when the source is idle or has ended.
    pub fn promised(&self) -> i64 {
        // Relaxed: nothing is read on the strength of it.
        self.slot().promised.load(Ordering::Relaxed)
    }

    /// Whether the source has ended.
    pub fn is_finished(&self) -> bool {
        // Relaxed: nothing is read on the strength of it.
        self.slot().finished.load(Ordering::Relaxed)
    }

    fn slot(&self) -> &Slot {
        &self.table.0.sides[self.side.index()][self.source as usize]
    }
}

impl Slot {
    fn new() -> Slot {
        Slot {
            value: AtomicI64::new(WATERMARK_START),
            promised: AtomicI64::new(WATERMARK_START),
            regressed: AtomicU64::new(0),
            jumped: AtomicU64::new(0),
            finished: AtomicBool::new(false),
            live: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            derived: AtomicBool::new(false),
        }
    }

    #[inline]
    fn state(&self) -> SourceState {
        // Acquire pairs with the Release in `raise`: the pushes that came before the promise are
        // visible to whoever looks at the lanes after this.
        match self.value.load(at(Edge::WatermarkLoad, Ordering::Acquire)) {
            IDLE => SourceState::Idle,
            // Merging treats a promise of `i64::MAX` as it treats the end.
            WATERMARK_END => SourceState::Finished,
            watermark => SourceState::Active(watermark),
        }
    }

    /// Stores a watermark that is at least as large as every earlier one.
    fn raise(&self, watermark: i64) {
        // Release pairs with the Acquire in `state`: all pushes come before the promise. A
        // read-modify-write continues the release sequence of another producer's store, so
        // its pushes stay covered, too.
        let store = at(Edge::WatermarkStore, Ordering::Release);
        if watermark == WATERMARK_START {
            // The one watermark below the sentinel: it ends idleness and changes nothing else.
            let _ = self.value.compare_exchange(IDLE, WATERMARK_START, store, Ordering::Relaxed);
        } else {
            // The sentinel lies below every other watermark, so this ends idleness as well.
            self.value.fetch_max(watermark, store);
        }
    }
}

impl fmt::Display for TooManySources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the {} side has {} sources already, the most there may be; merge some before the join",
            self.side.name(),
            self.source_count_max
        )
    }
}

impl std::error::Error for TooManySources {}

impl fmt::Debug for Watermarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for side in Side::BOTH {
            map.entry(&side.name(), &self.states(side).collect::<Vec<_>>());
        }
        map.finish()
    }
}

impl fmt::Debug for WatermarkSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WatermarkSlot({} {}: {:?})", self.side.name(), self.source, self.current())
    }
}
