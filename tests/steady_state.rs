//! A warm engine allocates nothing: batches, lanes, watermarks, the shard's round and its measuring.
//!
//! The only test of this binary, because it counts the allocations of the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use intervale::error::JoinError;
use intervale::event::{Event, EventBatch, Key, KeyHasher, KeyKind, Side};
use intervale::exchange::{
    Doorbell, Flow, PortId, Producer, ProducerOptions, Promise, Watermarks, mesh,
};
use intervale::join::{Counters, Emit, Sink};
use intervale::shard::{Operator, Progress, Shard};
use intervale::time::{LatePolicy, Lateness, LatenessClock, MonotonicClock, Timestamp};

/// The system's allocator, counting what it is asked for.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Relaxed: a count that is read on the thread that allocates.
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` above, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// An operator without state, so that only the exchange and the shard are counted.
struct Stateless(Counters);

impl Operator for Stateless {
    fn on_batch<E: Emit>(&mut self, batch: &EventBatch, out: &mut E) -> Result<(), JoinError> {
        for &ts in batch.timestamps() {
            let event = Event { key: Key::Int(0), ts, row: b"" };
            out.pair(event, event);
            self.0.pairs += 1;
        }
        Ok(())
    }

    fn advance(&mut self, _: i64, _: i64) {}

    fn finish(&mut self) {}

    fn work<E: Emit>(&mut self, _: usize, _: &mut E) -> bool {
        false
    }

    fn output_watermark(&self) -> i64 {
        i64::MIN
    }

    fn counters(&self) -> &Counters {
        &self.0
    }

    fn state_bytes(&self) -> u64 {
        0
    }
}

struct Count(u64);

impl Emit for Count {
    fn pair(&mut self, _: Event<'_>, _: Event<'_>) {
        self.0 += 1;
    }
}

impl Sink for Count {}

/// Two shards, one producer, and all that they need to run.
struct Engine {
    producer: Producer,
    ports: [PortId; 2],
    shards: Vec<Shard<Count, Stateless>>,
}

impl Engine {
    fn new() -> Engine {
        let table = Watermarks::new();
        let bells = [Doorbell::silent(), Doorbell::silent()];
        let mut mesh = mesh(4, &bells[..1], &bells);
        let lateness = Lateness { policy: LatePolicy::Drop, clock: LatenessClock::Own, allowed: 0 };
        let hasher = KeyHasher::new(KeyKind::Bytes, 1);
        let options = ProducerOptions { hasher, lateness, batch_events: 64 };
        let mut producer = Producer::new(mesh.senders.remove(0), options);
        let ports = Side::BOTH.map(|side| {
            let slot = table.add_source(side).expect("the table is empty");
            producer.add_port(slot, Promise::Disorder(10))
        });
        let shards = mesh.receivers.into_iter().map(|links| {
            let join = Stateless(Counters::default());
            Shard::new(join, Count(0), links, &table, Doorbell::silent()).0
        });
        Engine { producer, ports, shards: shards.collect() }
    }

    /// Pushes `count` events of every kind, as fast as the lanes take them.
    fn run(&mut self, start: u64, count: u64) {
        for number in start..start + count {
            let bytes = number.to_le_bytes();
            let key = if number.is_multiple_of(50) { Key::Null } else { Key::Bytes(&bytes) };
            // Every seventh event is late.
            let ts = number as i64 - if number.is_multiple_of(7) { 100 } else { 0 };
            let time = Timestamp::new(ts).expect("small numbers are times");
            let port = self.ports[(number % 2) as usize];
            self.producer.set_now(number);
            let flow = self.producer.push(port, key, time, &[7; 40]);
            let is_blocked = flow == Ok(Flow::Blocked);
            assert!(flow.is_ok());
            if is_blocked || number.is_multiple_of(1000) {
                while self.producer.flush() != Ok(Flow::Open) {
                    self.step();
                }
                self.step();
            }
        }
    }

    fn step(&mut self) {
        for shard in &mut self.shards {
            assert_ne!(shard.step(256, &MonotonicClock), Ok(Progress::Finished));
        }
    }
}

#[test]
fn a_warm_engine_allocates_nothing() {
    let mut engine = Engine::new();
    engine.run(0, 100_000);
    // Relaxed: everything happens on this thread.
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    engine.run(100_000, 200_000);
    // Relaxed: as above.
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    assert_eq!(allocations, 0, "200,000 events");
    let pairs: u64 = engine.shards.iter().map(|shard| shard.sink().0).sum();
    let unsent = engine.producer.unsent_events() as u64;
    assert!(pairs + unsent <= 300_000 && pairs > 290_000, "{pairs} pairs, {unsent} unsent");
    assert!(engine.producer.counters().late > 10_000 && engine.producer.counters().parked > 100);
}
