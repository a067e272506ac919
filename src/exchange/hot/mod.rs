//! Hot keys: a key that is too much for one core is split over all of them.
//!
//! Rows of one side of the key are **spread**: each goes to any one shard. Those of the other side
//! are **replicated**: the shard that owns the key (its home) gets the row, every other shard a
//! copy. So each pair has exactly one shard where its two rows meet, and the matched bit of a
//! spread row is where all its partners are. The rows of a split key are routed by their times
//! alone, and no state moves. With `partner.ts - row.ts` in `[lo, hi]`, seen from the spread side:
//!
//! 1. `Replicating`: the other side is replicated from now on, the spread
//!    side still goes home. Once **every** producer knows, let `T` be the largest time of any event
//!    of the other side that was routed before: older rows are at home only, and none is later.
//! 2. `Spread`: a row with `row.ts + lo > T` can only meet replicated rows, so it
//!    goes anywhere. Every other goes home, where all rows of the other side are.
//! 3. `Gathering`: the key has cooled; the spread side goes home again. Once
//!    every producer knows, let `T2` be the largest time of a row that was spread.
//! 4. `Draining`: a row of the other side meets a spread one only up to
//!    `T2 + hi`, so only such rows are still replicated. When all shards have freed everything that
//!    could meet a spread row, the key is forgotten.
//!
//! This holds for every single event, whatever the disorder, and waits for no watermark. That a
//! producer "knows" is the protocol of `seen.rs`.
//!
//! **Lateness.** A replicated row has one verdict, its producer's: under the merged clock by the
//! merged watermark at the time of the push, else by its own source's. Late rows go home with their
//! lag and are replicated nowhere. A row that its own source's promise covers is on time on every
//! shard; one that breaks the promise and is still on time may be overtaken by the watermark on its
//! way. It counts as on time all the same, and a shard that has gone past it counts it as
//! [`overtaken`](crate::join::SideCounters::overtaken).

mod detect;
pub(super) mod seen;
mod table;
#[cfg(all(test, not(loom)))]
mod tests;

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crossbeam::utils::CachePadded;

use crate::event::Side;
use crate::exchange::sync::{Arc, AtomicBool, Ordering};
use crate::time::Interval;

use detect::Window;
pub(super) use detect::{Sample, Surroundings};
use seen::{Member, Version};
use table::Table;
pub(super) use table::{Entry, Route, bloom_bit};

/// Whether keys that are too much for one core are split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HotKeys {
    /// Where sampling finds them, for joins that allow it.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Every key, now and then, in turns drawn from the seed of the hashing: for tests.
    Forced,
}

/// What a splitter must know of the join.
#[derive(Clone, Copy, Debug)]
pub struct SplitPlan {
    /// What to split.
    pub hot_keys: HotKeys,
    /// Which sides may be spread, by [`Side::index`].
    pub spreads: [bool; 2],
    /// The interval of `right.ts - left.ts`.
    pub interval: Interval,
    /// The allowed lateness in ticks.
    pub allowed: i64,
    /// Shards.
    pub shard_count: usize,
    /// Draws the turns of [`HotKeys::Forced`].
    pub seed: u64,
}

/// What was split so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitReport {
    /// How often a key was split.
    pub split: u64,
    /// How often one was put together again.
    pub unsplit: u64,
    /// The values of the keys that are split now, wholly or on their way.
    pub now: Vec<u64>,
}

/// What all producers of a join share about its hot keys. Clones share it.
#[derive(Clone, Debug)]
pub struct Splitter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    plan: SplitPlan,
    version: CachePadded<Version>,
    /// Whether some key is between two phases.
    is_moving: CachePadded<AtomicBool>,
    table: Mutex<Table>,
    window: Mutex<Window>,
}

impl Splitter {
    /// A splitter, or none where nothing may or could be split.
    pub fn new(plan: SplitPlan) -> Option<Splitter> {
        let is_of_use = plan.shard_count > 1 && plan.spreads.contains(&true);
        if !is_of_use || plan.hot_keys == HotKeys::Off || plan.interval.is_unbounded() {
            return None;
        }
        let forced = plan.hot_keys == HotKeys::Forced;
        let table = Table::new(&plan);
        Some(Splitter(Arc::new(Shared {
            version: CachePadded::new(Version::new(table.version())),
            is_moving: CachePadded::new(AtomicBool::new(forced)),
            table: Mutex::new(table),
            window: Mutex::new(Window::new()),
            plan,
        })))
    }

    /// What was split so far.
    pub fn report(&self) -> SplitReport {
        self.table().report()
    }

    /// Whether keys are split without need.
    pub(super) fn is_forced(&self) -> bool {
        self.0.plan.hot_keys == HotKeys::Forced
    }

    /// A producer more, which begins with the newest version.
    pub(super) fn join(&self) -> Arc<Member> {
        self.table().join()
    }

    /// A producer has gone. What it routed counts for ever.
    pub(super) fn part(&self, member: &Arc<Member>) {
        self.table().part(member);
    }

    /// What all producers look at.
    pub(super) fn version(&self) -> &Version {
        &self.0.version
    }

    /// Copies the newest table to `entries` and returns its version.
    pub(super) fn read(&self, entries: &mut Vec<Entry>) -> u64 {
        let table = self.table();
        entries.clear();
        entries.extend_from_slice(table.entries());
        table.version()
    }

    /// Moves keys on whose phase is over, as far as all producers know of it. Never waits. In
    /// [`HotKeys::Forced`] also begins and ends phases.
    pub(super) fn advance(&self, freed_to: i64) {
        // Relaxed: a hint; who does not see it yet moves nothing on.
        if !self.0.is_moving.load(Ordering::Relaxed) {
            return;
        }
        let Some(mut table) = try_lock(&self.0.table) else { return };
        if self.is_forced() {
            table.shuffle();
        }
        table.advance(freed_to);
        self.publish(&table);
    }

    /// Takes samples of one producer in; a full window is looked through for hot keys, by what is
    /// known of the `surroundings`. Leaves the samples where they are while another looks.
    pub(super) fn observe(&self, samples: &mut Vec<Sample>, surroundings: &Surroundings) {
        let Some(mut window) = try_lock(&self.0.window) else { return };
        if !window.take(samples) {
            return;
        }
        let found = window.decide(&self.0.plan, surroundings, &self.table().split_keys());
        if found.is_empty() {
            return;
        }
        let mut table = self.table();
        found.hot.iter().for_each(|&(key, side)| table.split(key, u64::MAX, side));
        found.cold.iter().for_each(|&key| table.unsplit(key));
        self.publish(&table);
    }

    /// Makes a changed table known.
    fn publish(&self, table: &Table) {
        // Relaxed: see `advance`.
        self.0.is_moving.store(table.is_moving() || self.is_forced(), Ordering::Relaxed);
        if self.0.version.load() != table.version() {
            self.0.version.publish(table.version());
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The spread side of a plan that leaves a choice: the one with more rows of the key, the left one
/// unless the right has more than twice as many, as counts of replicated rows are not known.
fn side_to_spread(spreads: [bool; 2], rows: [usize; 2]) -> Side {
    match spreads {
        [true, false] => Side::Left,
        [false, true] => Side::Right,
        _ if rows[1] > 2 * rows[0] => Side::Right,
        _ => Side::Left,
    }
}
