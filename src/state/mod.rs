//! Buffered events of both sides: insert, probe, retire. Knows nothing of join kinds or threads.
//!
//! Per event this is one look at the index line of its key, which holds the newest runs of both
//! sides; one look at the other side's runs; one append to its own. [`State::join_batch`] does
//! each of these for a whole batch before the next, asking for memory a phase ahead:
//!
//! 1. ask for the index lines;
//! 2. find the keys, and ask for the runs of those that are there;
//! 3. keep the events whose key is new on both sides;
//! 4. probe the other side's runs for the rest, collecting their partners; hand these over;
//! 5. append the rest to their own side's runs.
//!
//! A batch is of one side, so what its events find does not depend on one another: the phases give
//! the same as one event after the other would.
//!
//! Where the time goes: ns of CPU an event by phase, from samples of `perf record -e cpu-clock`
//! over `bench --api join` at commit 779e4f5, AVX-512, on a shared machine. What the kernel does
//! for first touches of memory is left out: it cannot be told from that of making the events.
//!
//! | phase | w1a | w1b | w2 | w3a | w3b | w4 |
//! | --- | --- | --- | --- | --- | --- | --- |
//! | judge, hash to index lines, ask for them | 8 | 17 | 2 | 3 | 4 | 3 |
//! | find | 5 | 8 | 4 | 6 | 7 | 4 |
//! | ask for runs | 2 | 6 | 4 | 0 | 5 | 10 |
//! | collect, and put in order | 7 | 8 | 39 | 16 | 157 | 28 |
//! | hand over (mostly the bench's checksum) | 4 | 5 | 15 | 6 | 239 | 8 |
//! | keep | 21 | 22 | 18 | 22 | 31 | 24 |
//! | clean, grow the index | 3 | 12 | 0 | 0 | 2 | 2 |
//! | read the events (the bench) | 4 | 7 | 4 | 4 | 6 | 5 |
//!
//! | room | holds |
//! | --- | --- |
//! | `probe`, `store` | the phases of a batch; keeping an event |
//! | `pass` | a batch on its way: what a phase leaves for the next |
//! | `collect` | what the keys of a batch find on the other side |
//! | `chain`, `directory` | the runs of a key, newest bucket first; by bucket, if they are many |
//! | `cold`, `cold_probe` | rows in files; what a batch finds there |
//! | `hits` | the partners that a batch has found, in the order in which they were stored |
//! | `filter` | which timestamps lie in a range (SIMD) |
//! | `run` | the events of one key in one bucket: columns in raw memory |
//! | `arena` | numbered chunks of memory, and when a number may be used again |
//! | `ring` | the time buckets of a side |
//! | `index`, `table` | key -> newest runs; the cache lines that hold this |
//! | `expiry` | rows that come out when they are freed |
//! | `ttl` | rows that end a while after they were stored |
//! | `shed` | giving the oldest bucket up |
//! | `clean` | the rounds after which chunk numbers are used again |

mod arena;
mod chain;
mod clean;
mod cold;
mod cold_probe;
mod collect;
mod directory;
mod expiry;
mod filter;
mod hits;
mod index;
mod pass;
mod probe;
mod ring;
mod run;
mod shed;
mod store;
mod table;
mod ttl;

#[cfg(test)]
mod tests;

pub use cold::Spilled;
pub use filter::{Filter, SELECT_SLACK, Simd};
pub use probe::{BatchStats, Class, Partner, Probe, Visit};
pub use shed::Shed;

use crate::event::{Side, prefetch};
use crate::spill::SpillError;
use crate::time::Interval;
use arena::{Arena, CHUNK_BYTES_MIN};
use chain::Walks;
use clean::Cleaner;
use cold::Cold;
use cold_probe::ColdHits;
use directory::Directories;
use expiry::{Expiry, Waiting};
use index::Index;
use pass::Scratch;
use ring::Ring;
use run::{MATCHED, Run, Stored};
use table::Arenas;
use ttl::Ages;

/// State cannot take the row: its bound is reached, or its handles are exhausted (some 2,000 chunks
/// of up to 32 MiB a side).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateFull;

/// How a [`State`] is laid out.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Buckets are `1 << bucket_shift` ticks wide at first.
    pub bucket_shift: u32,
    /// Up to `1 << thin_shift` ticks, they are made wider as soon as few rows are in each.
    pub thin_shift: u32,
    /// The width was chosen by the user: buckets are made wider only where there would be too many,
    /// or hardly a row in each, not because that seems to pay.
    pub is_width_given: bool,
    /// Rows that wait for their end are sorted by slots of a 64th of `1 << expiry_shift` ticks.
    pub expiry_shift: u32,
    /// The smallest piece of memory that a bucket takes; rounded up to a power of two.
    pub chunk_bytes_min: usize,
    /// Memory that is taken and touched before the first row.
    pub reserve_bytes: usize,
    /// The filter for long runs.
    pub filter: Filter,
    /// By [`Side::index`]: whether rows of the side come out when they are freed unmatched.
    pub expires: [bool; 2],
}

impl Layout {
    /// Buckets of about a sixteenth of the interval's width, so that rows are freed soon after
    /// their end, but at most some hundreds of them in what is retained. Where rows are few,
    /// buckets of half the interval: each takes memory of its own, and a probe crosses few of
    /// them.
    pub fn for_interval(interval: Interval, allowed_lateness: i64) -> Layout {
        let width = i128::from(interval.hi()) - i128::from(interval.lo());
        let reach = i128::from(interval.hi())
            .max(-i128::from(interval.lo()))
            .max(0)
            .saturating_add(i128::from(allowed_lateness));
        let shift_for = |part: i128| {
            let ticks = (width / part).max(reach / 256).max(1);
            shift_near(ticks)
        };
        Layout {
            bucket_shift: shift_for(16),
            thin_shift: shift_for(2),
            is_width_given: false,
            expiry_shift: shift_for(16),
            chunk_bytes_min: CHUNK_BYTES_MIN,
            reserve_bytes: 0,
            filter: Filter::detect(),
            expires: [false; 2],
        }
    }

    /// The same with what the user chose of it: the width of buckets, in ticks from 1 (the nearest
    /// power of two counts), and the bytes of the smallest chunk.
    #[must_use]
    pub fn with(mut self, bucket_width: Option<i64>, chunk_bytes: Option<u64>) -> Layout {
        if let Some(ticks) = bucket_width {
            self.bucket_shift = shift_near(i128::from(ticks.max(1)));
            self.thin_shift = self.bucket_shift;
            self.is_width_given = true;
        }
        if let Some(bytes) = chunk_bytes {
            self.chunk_bytes_min = usize::try_from(bytes).unwrap_or(usize::MAX);
        }
        self
    }
}

/// The nearest power of two, at most half of all time.
fn shift_near(ticks: i128) -> u32 {
    (ticks + ticks / 2).ilog2().min(62)
}

/// Buffered events of both sides of a join, in one shard.
pub struct State {
    index: Index,
    arenas: Arenas,
    rings: [Ring; 2],
    directories: [Directories; 2],
    expiries: [Option<Expiry>; 2],
    filter: Filter,
    /// Whether buckets have the width that the user chose.
    is_width_given: bool,
    /// Rows ever stored, by side: the order of insertion.
    sequences: [u32; 2],
    /// Events that ever arrived: the order of arrival over both sides.
    arrivals: u64,
    cleaner: Cleaner,
    /// By side: what probes of its chains have cost.
    walks: [Walks; 2],
    ages: Ages,
    /// Rows in files, by side, what a batch has found there, and why that failed.
    cold: [Cold; 2],
    cold_hits: ColdHits,
    failure: Option<SpillError>,
    /// Bytes that were taken before the first row.
    reserved: usize,
    /// `None` only while it is lent to `join_batch`.
    scratch: Option<Scratch>,
}

/// The index, and the rows of either side.
const RESERVE_SHARES: usize = 3;

impl State {
    /// Empty state.
    pub fn new(layout: Layout) -> State {
        let expiry = |expires: bool| expires.then(|| Expiry::new(layout.expiry_shift));
        let mut index = Index::new();
        let mut arenas = [layout, layout].map(|layout| Arena::new(layout.chunk_bytes_min));
        // Where each key has one row, a table that grows beside the one it grows out of takes as
        // much as the rows of a side; where a key has more, what is left of it is not missed.
        let share = layout.reserve_bytes.div_ceil(RESERVE_SHARES);
        if share > 0 {
            index.reserve(share);
            arenas.iter_mut().for_each(|arena| arena.reserve(share));
        }
        let reserved =
            index.reserved_bytes() + arenas.iter().map(Arena::reserved_bytes).sum::<usize>();
        State {
            index,
            arenas,
            rings: [layout, layout]
                .map(|layout| Ring::new(layout.bucket_shift).thin_up_to(layout.thin_shift)),
            directories: Default::default(),
            expiries: layout.expires.map(expiry),
            filter: layout.filter,
            is_width_given: layout.is_width_given,
            sequences: [0; 2],
            arrivals: 0,
            cleaner: Cleaner::new(),
            walks: [Walks::default(); 2],
            ages: Ages::default(),
            cold: Default::default(),
            cold_hits: ColdHits::default(),
            failure: None,
            reserved,
            scratch: Some(Scratch::new()),
        }
    }

    /// Rows in memory, of both sides. A row counts until its bucket is retired.
    pub fn row_count(&self) -> u64 {
        self.rings[0].row_count() + self.rings[1].row_count()
    }

    /// Bytes of the index.
    pub fn index_bytes(&self) -> usize {
        self.index.bytes()
    }

    /// Bytes of state as allocated: index, chunks in use and pooled, long rows, waiting rows.
    pub fn bytes(&self) -> usize {
        let expiries: usize = self.expiries.iter().flatten().map(Expiry::bytes).sum();
        let arenas: usize = self.arenas.iter().map(Arena::bytes).sum();
        let rings: usize = self.rings.iter().map(Ring::bytes).sum();
        let directories: usize = self.directories.iter().map(Directories::bytes).sum();
        let cold: usize = self.cold.iter().map(Cold::memory_bytes).sum();
        self.index.bytes() + arenas + rings + directories + expiries + cold
    }

    /// Those of [`bytes`](Self::bytes) that hold rows and go with them.
    pub fn row_bytes(&self) -> usize {
        let pooled = self.pooled_bytes();
        let arenas: usize = self.arenas.iter().map(Arena::bytes).sum();
        arenas - pooled + self.rings.iter().map(Ring::bytes).sum::<usize>()
    }

    /// Bytes that were taken before the first row ([`Layout::reserve_bytes`], rounded up). They are
    /// in [`bytes`](Self::bytes) as far as, and for as long as, rows and the index use them.
    pub fn reserved_bytes(&self) -> usize {
        self.reserved
    }

    /// What [`reserved_bytes`](Self::reserved_bytes) are for such a layout, if the system gives
    /// them.
    pub fn reserved_bytes_for(reserve_bytes: u64) -> u64 {
        let share = reserve_bytes.div_ceil(RESERVE_SHARES as u64);
        let round_up = |piece: usize| share.div_ceil(piece as u64).saturating_mul(piece as u64);
        round_up(table::SEGMENT_BYTES).saturating_add(round_up(arena::CHUNK_BYTES_MAX) * 2)
    }

    /// Why rows in files could not be read, if that is why a batch was refused or no row came out.
    pub fn failure(&self) -> Option<&SpillError> {
        self.failure.as_ref()
    }

    /// Those of [`bytes`](Self::bytes) that hold no row and wait to be used again.
    pub fn pooled_bytes(&self) -> usize {
        self.arenas.iter().map(Arena::bytes_pooled).sum()
    }

    /// Frees chunks that wait to be used again, all but `keep_bytes` of them.
    pub fn trim(&mut self, keep_bytes: usize) {
        self.arenas.iter_mut().for_each(|arena| arena.trim(keep_bytes / 2));
    }

    fn widen_and_clean(&mut self) {
        for side in Side::BOTH {
            let own = side.index();
            let is_wider = self.widen_if_it_pays(side)
                | self.rings[own].widen_if_crowded(&mut self.arenas[own]);
            if is_wider {
                self.directories[own].rebuild(&self.arenas[own]);
            }
        }
        self.clean_step();
    }

    /// Hands over up to `budget` rows that wait for their end, those that were matched meanwhile
    /// left out, in order of end and arrival: side, key value, time, stored row. Returns whether
    /// more may be left: none is either when rows cannot be read back from a file, which
    /// [`failure`](Self::failure) tells.
    ///
    /// `floors` (by side) are the times from which on rows are kept; `None`: none is. `ends` are
    /// what a side's rows have to add to their time to get their end.
    pub fn expire(
        &mut self,
        floors: Option<[i64; 2]>,
        ends: [i128; 2],
        budget: usize,
        mut each: impl FnMut(Side, u64, i64, &[u8]),
    ) -> bool {
        for _ in 0..budget {
            let next = Side::BOTH.into_iter().filter_map(|side| {
                let arena = &self.arenas[side.index()];
                let expiry = self.expiries[side.index()].as_mut()?;
                let due = expiry.peek(
                    floors.map(|floors| floors[side.index()]),
                    |waiting| prefetch(arena.address(waiting.run)),
                    |waiting| {
                        let row = waiting_row(arena, waiting);
                        (row.tag() & MATCHED == 0).then(|| row.ts())
                    },
                )?;
                let end = i128::from(due.ts) + ends[side.index()];
                Some((end, due.waiting.arrival, side, due))
            });
            let next = next.min_by_key(|next| (next.0, next.1));
            if self.has_cold() {
                let before = next.map(|(end, arrival, ..)| (end, arrival));
                match self.expire_cold(floors, ends, before, &mut each) {
                    Ok(true) => continue,
                    Ok(false) => {}
                    Err(error) => {
                        self.failure = Some(error);
                        return false;
                    }
                }
            }
            let Some((_, _, side, due)) = next else { return false };
            let ahead = self.expiries[side.index()].as_mut().and_then(Expiry::take);
            if let Some(ahead) = ahead {
                prefetch(self.arenas[side.index()].address(ahead.run));
            }
            let row = waiting_row(&self.arenas[side.index()], &due.waiting);
            let tag = row.tag();
            if tag & MATCHED == 0 {
                each(side, due.waiting.key, due.ts, row.row(tag));
            }
        }
        true
    }

    /// Retires every bucket of `side` that lies wholly under `floor`; returns how many rows went.
    /// Rows that still wait for [`expire`](Self::expire) keep their bucket.
    pub fn retire(&mut self, side: Side, floor: i64) -> u64 {
        let oldest = self.expiries[side.index()].as_ref().map_or(i64::MAX, Expiry::oldest);
        let cold = self.cold[side.index()].retire(floor);
        cold + self.rings[side.index()].retire(floor.min(oldest), &mut self.arenas[side.index()])
    }

    /// Retires everything of `side`; no row may wait any more.
    pub fn retire_all(&mut self, side: Side) -> u64 {
        let cold = self.cold[side.index()].retire_all();
        cold + self.rings[side.index()].retire_all(&mut self.arenas[side.index()])
    }
}

/// Where a waiting row stands.
#[inline]
fn waiting_row(arena: &Arena, waiting: &Waiting) -> Stored {
    waiting_run(arena, waiting).stored(waiting.row as usize)
}

/// The run that a waiting row stands in.
#[inline]
fn waiting_run(arena: &Arena, waiting: &Waiting) -> Run {
    // SAFETY: the handle was returned by `append`, which made the run, and it is live: a bucket is
    // retired only once none of its rows waits.
    let mut run = unsafe { Run::at(arena.address(waiting.run)) };
    while run.is_moved() {
        // SAFETY: a moved run names its successor, in the same bucket.
        run = unsafe { Run::at(arena.address(run.older())) };
    }
    run
}

impl Drop for State {
    fn drop(&mut self) {
        // Chunks belong to buckets; their arena frees those that it has got back.
        for side in Side::BOTH {
            self.retire_all(side);
        }
    }
}
