//! What a join does with memory: a warm one allocates nothing, a dropped one leaves nothing behind.
//!
//! What the test's own thread does is counted: what runs it allocates on threads of its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use intervale::event::{BatchKind, Event, EventBatch, KeyKind, Side};
use intervale::join::{Join, JoinSpec};
use intervale::limits::{BATCH_EVENTS_MAX, Limits};
use intervale::time::Bound;

/// The system's allocator, counting what it is asked for and what is out.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Not from 0 on: what is freed may have come before it was counted.
static BYTES: AtomicUsize = AtomicUsize::new(1 << 40);

thread_local! {
    /// Whether this thread is counted.
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_COUNTED.get() {
            // Relaxed: counts that are read on the thread that allocates.
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
            BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if IS_COUNTED.get() {
            // Relaxed: as in `alloc`.
            BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        }
        // SAFETY: the pointer came from `alloc` above, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Batches of each side until nothing new is needed, and those that are counted.
const WARM_BATCHES: u64 = 3_000;
const COUNTED_BATCHES: u64 = 1_000;

/// Keys of the events: each its own, a hundred that come again and again, or both in turn.
#[derive(Clone, Copy, Debug)]
enum Keys {
    Unique,
    Hot,
    Mixed,
}

impl Keys {
    fn of(self, event: u64) -> u64 {
        match self {
            Keys::Unique => event,
            Keys::Hot => event % 100,
            Keys::Mixed if event.is_multiple_of(2) => event,
            Keys::Mixed => event % 20,
        }
    }
}

struct Run {
    join: Join,
    batch: EventBatch,
    keys: Keys,
    row: Vec<u8>,
    pairs: u64,
}

impl Run {
    fn new(keys: Keys, row_bytes: usize) -> Run {
        let limits = Limits::default();
        let spec = JoinSpec::between(Bound::Closed(-500), Bound::Closed(3_000)).keys(KeyKind::Int);
        let join = Join::new(spec.build(&limits).unwrap(), limits).unwrap();
        let batch = EventBatch::with_capacity(Side::Left, BATCH_EVENTS_MAX, 64 * BATCH_EVENTS_MAX);
        Run { join, batch, keys, row: vec![7; row_bytes], pairs: 0 }
    }

    /// Pushes batch `number` of both sides; times are up to 40 out of order.
    fn step(&mut self, number: u64) {
        let Run { join, batch, keys, row, pairs } = self;
        for side in Side::BOTH {
            batch.reset(side, 0, BatchKind::Keyed);
            for event in number * 256..(number + 1) * 256 {
                let ts = event as i64 / 4 + (event * 7_919 % 40) as i64;
                let ts = intervale::time::Timestamp::new(ts).unwrap();
                let key = intervale::event::Key::Int(keys.of(event));
                batch.push(join.hasher(), key, ts, row).unwrap();
            }
            let mut out = |_: Event<'_>, _: Event<'_>| *pairs += 1;
            join.push_batch(batch, &mut out).unwrap();
            join.advance(side, number as i64 * 64, &mut out);
        }
    }
}

#[test]
fn a_warm_join_allocates_nothing_and_a_dropped_one_leaves_nothing() {
    IS_COUNTED.set(true);
    // What is made once in a process.
    Run::new(Keys::Unique, 8).step(0);
    for (keys, row_bytes) in [(Keys::Unique, 8), (Keys::Hot, 8), (Keys::Mixed, 8), (Keys::Hot, 40)]
    {
        // Relaxed: only this thread allocates.
        let bytes_before = BYTES.load(Ordering::Relaxed);
        let mut run = Run::new(keys, row_bytes);
        (0..WARM_BATCHES).for_each(|number| run.step(number));
        let allocations = ALLOCATIONS.load(Ordering::Relaxed);
        (WARM_BATCHES..WARM_BATCHES + COUNTED_BATCHES).for_each(|number| run.step(number));
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - allocations;
        assert!(run.pairs > 0 && run.join.state_bytes() > 0);
        assert!(BYTES.load(Ordering::Relaxed) > bytes_before, "the join holds rows");
        drop(run);
        assert_eq!(BYTES.load(Ordering::Relaxed), bytes_before, "{keys:?}, rows of {row_bytes}");
        assert_eq!(allocations, 0, "{keys:?}, rows of {row_bytes}");
    }
}
