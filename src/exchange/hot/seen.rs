//! How it is known that every producer has seen a version: none still routes by an older one.
//!
//! A producer is quiet between batches. Before it routes again it says that it is at work, with the
//! version it knows, and only then looks at the newest ([`Member::enter`]). Whoever publishes a
//! version stores it and only then looks at the producers. Of the two, at least one sees the other:
//! a producer that was found quiet will see the new version before it routes anything.

use crossbeam::utils::CachePadded;

use crate::exchange::sync::{AtomicI64, AtomicU64, Edge, Ordering, at, fence};

/// The newest version.
#[derive(Debug)]
pub(in crate::exchange) struct Version(AtomicU64);

impl Version {
    pub(in crate::exchange) fn new(version: u64) -> Version {
        Version(AtomicU64::new(version))
    }

    /// Makes a version known; [`Member::has_seen`] is asked afterwards.
    pub(in crate::exchange) fn publish(&self, version: u64) {
        // Relaxed: the fence orders it before the looks at the members.
        self.0.store(version, Ordering::Relaxed);
        // SeqCst, with the fence in `Member::enter`: either the member sees this version, or it is
        // seen to be at work.
        fence_seq_cst();
    }

    /// The newest version, for a member that is at work.
    #[inline]
    pub(in crate::exchange) fn load(&self) -> u64 {
        // Relaxed: what the version stands for is read under a lock.
        self.0.load(Ordering::Relaxed)
    }
}

/// The largest times of events that were routed, by [`Side::index`](crate::event::Side::index).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exchange) struct Routed {
    /// Of all events.
    pub(in crate::exchange) all: [i64; 2],
    /// Of those that were spread.
    pub(in crate::exchange) spread: [i64; 2],
}

/// One producer, as the others see it.
#[derive(Debug)]
pub(in crate::exchange) struct Member {
    /// [`QUIET`], or the version it routes by, doubled, plus one.
    state: CachePadded<AtomicU64>,
    all: [AtomicI64; 2],
    spread: [AtomicI64; 2],
}

const QUIET: u64 = 0;

impl Routed {
    pub(in crate::exchange) const NONE: Routed =
        Routed { all: [i64::MIN; 2], spread: [i64::MIN; 2] };

    /// The largest of both.
    pub(in crate::exchange) fn max(self, other: Routed) -> Routed {
        let max = |a: [i64; 2], b: [i64; 2]| [a[0].max(b[0]), a[1].max(b[1])];
        Routed { all: max(self.all, other.all), spread: max(self.spread, other.spread) }
    }
}

impl Member {
    pub(in crate::exchange) fn new() -> Member {
        let none = || [AtomicI64::new(i64::MIN), AtomicI64::new(i64::MIN)];
        let state = CachePadded::new(AtomicU64::new(QUIET));
        Member { state, all: none(), spread: none() }
    }

    /// The producer is about to route, by the version `known`. Returns the newest: if it is
    /// another, that is to be read, and [`saw`](Self::saw) to be called, before anything is routed.
    pub(in crate::exchange) fn enter(&self, known: u64, newest: &Version) -> u64 {
        // Relaxed: the fence orders it before the look at the version.
        self.state.store(known << 1 | 1, Ordering::Relaxed);
        // SeqCst, with the fence in `Version::publish`.
        fence_seq_cst();
        newest.load()
    }

    /// From here on the producer routes by `version`, after it has routed what `routed` says.
    pub(in crate::exchange) fn saw(&self, version: u64, routed: Routed) {
        self.note(routed);
        // Release pairs with the Acquire in `has_seen`: what was routed before is known.
        self.state.store(version << 1 | 1, at(Edge::SplitSaw, Ordering::Release));
    }

    /// The producer routes nothing until it enters again.
    pub(in crate::exchange) fn leave(&self, routed: Routed) {
        self.note(routed);
        // Release pairs with the Acquire in `has_seen`: what was routed before is known.
        self.state.store(QUIET, at(Edge::SplitLeave, Ordering::Release));
    }

    /// Whether the producer routes nothing any more by a version before this one, which was
    /// published. [`routed`](Self::routed) then covers all that it ever routed so.
    pub(in crate::exchange) fn has_seen(&self, version: u64) -> bool {
        // Acquire pairs with the Releases in `saw` and `leave`.
        let state = self.state.load(at(Edge::SplitSeen, Ordering::Acquire));
        state == QUIET || state >> 1 >= version
    }

    /// What the producer has routed, at least up to the version that it was last found to have
    /// seen.
    pub(in crate::exchange) fn routed(&self) -> Routed {
        // Relaxed: ordered by `has_seen`.
        let load = |times: &[AtomicI64; 2]| {
            [times[0].load(Ordering::Relaxed), times[1].load(Ordering::Relaxed)]
        };
        Routed { all: load(&self.all), spread: load(&self.spread) }
    }

    fn note(&self, routed: Routed) {
        let times = self.all.iter().chain(&self.spread);
        for (time, routed) in times.zip(routed.all.into_iter().chain(routed.spread)) {
            // Relaxed: nobody else stores here, and the stores of `state` that follow order it.
            if time.load(Ordering::Relaxed) != routed {
                time.store(routed, Ordering::Relaxed);
            }
        }
    }
}

#[inline]
fn fence_seq_cst() {
    // A planted fault removes the fence altogether; there is no relaxed fence.
    if matches!(at(Edge::SplitFence, Ordering::SeqCst), Ordering::SeqCst) {
        fence(Ordering::SeqCst);
    }
}
