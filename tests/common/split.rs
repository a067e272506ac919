//! Producers and shards on one thread, with keys split and put together again all the time.

use std::cell::RefCell;
use std::mem;
use std::sync::{Arc, Mutex};

use intervale::error::JoinError;
use intervale::event::{EventBatch, Key, KeyHasher, KeyKind, Side};
use intervale::exchange::{
    Doorbell, Flow, HotKeys, Pace, Pacer, PortId, Producer, ProducerOptions, Promise, SplitPlan,
    Splitter, Watermarks, mesh,
};
use intervale::join::oracle::Output;
use intervale::join::{AnyJoin, Counters, JoinSpec};
use intervale::shard::{Progress, Shard};
use intervale::time::{ManualClock, Timestamp};

use super::engine::Record;
use super::limits;
use super::operator::int_key;
use super::subject::{Arrival, Subject};

/// What an engine is made of, without threads: each source has a producer of its own. After every
/// step all that it makes to do is done.
pub struct SplitSubject {
    hasher: KeyHasher,
    /// By side and source.
    producers: [Vec<(Producer, PortId)>; 2],
    shards: RefCell<Vec<Shard<Record, AnyJoin>>>,
    splitter: Splitter,
    taken: Arc<Mutex<Vec<Output>>>,
}

impl SplitSubject {
    /// On several shards; `seed` draws when which keys are split.
    pub fn new(
        spec: &JoinSpec,
        sources: [usize; 2],
        shard_count: usize,
        seed: u64,
    ) -> SplitSubject {
        let hasher = KeyHasher::new(spec.keys(), seed);
        let table = Watermarks::with_capacity(4);
        let bells = vec![Doorbell::silent(); shard_count];
        let producer_bells = vec![Doorbell::silent(); sources[0] + sources[1]];
        let pacer = Pacer::new(&table, &bells, Pace::default());
        let splitter = Splitter::new(SplitPlan {
            hot_keys: HotKeys::Forced,
            spreads: spec.spread_sides().expect("keys of this join can be split"),
            interval: spec.interval(),
            allowed: spec.lateness().allowed,
            shard_count,
            seed,
        });
        let splitter = splitter.expect("several shards");
        let links = mesh(64, &producer_bells, &bells);
        let taken = Arc::<Mutex<Vec<Output>>>::default();
        let shards = links.receivers.into_iter().enumerate().map(|(number, links)| {
            let join = AnyJoin::new(spec.clone(), hasher.clone(), limits(), None);
            let join = join.expect("there is an operator for it");
            let sink = Record::new(Arc::clone(&taken));
            let (shard, _) = Shard::new(join, sink, links, &table, Doorbell::silent());
            shard.paced_by(pacer.clone(), number)
        });
        let shards = RefCell::new(shards.collect());
        let mut senders = links.senders.into_iter();
        let producers = Side::BOTH.map(|side| {
            let add = |_| {
                let lateness = spec.lateness();
                let options = ProducerOptions { hasher: hasher.clone(), lateness, batch_events: 4 };
                let producer = Producer::new(senders.next().expect("links for it"), options);
                let mut producer = producer.paced_by(pacer.clone()).split_by(splitter.clone());
                let slot = table.add_source(side).expect("a place for it");
                let port = producer.add_port(slot, Promise::Explicit);
                (producer, port)
            };
            (0..sources[side.index()]).map(add).collect()
        });
        table.seal();
        SplitSubject { hasher, producers, shards, splitter, taken }
    }

    /// The counts of all shards together.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for shard in self.shards.borrow().iter() {
            let counters = shard.report().counters;
            counters.check().expect("every shard's counts add up");
            sum.add(&counters);
        }
        sum
    }

    /// How often keys were split and put together again.
    pub fn split(&self) -> (u64, u64) {
        let report = self.splitter.report();
        (report.split, report.unsplit)
    }

    /// Does all that there is to do.
    fn outputs(&mut self) -> Result<Vec<Output>, JoinError> {
        let mut shards = self.shards.borrow_mut();
        let mut step = || -> bool {
            let step = |shard: &mut Shard<_, _>| {
                shard.step(3, &ManualClock::default()).expect("no shard fails") == Progress::Busy
            };
            shards.iter_mut().map(step).fold(false, |any, busy| any | busy)
        };
        for (producer, _) in self.producers.iter_mut().flatten() {
            while producer.flush().expect("no shard is gone") == Flow::Blocked {
                step();
            }
        }
        while step() {}
        Ok(mem::take(&mut *self.taken.lock().expect("no sink panicked")))
    }

    fn push(&mut self, events: &[Arrival]) {
        let mut batch = EventBatch::with_capacity(events[0].side, events.len(), 64);
        for event in events {
            let key = match (&event.key, self.hasher.kind()) {
                (None, _) => Key::Null,
                (Some(key), KeyKind::Bytes) => Key::Bytes(key),
                (Some(key), KeyKind::Int) => Key::Int(int_key(key)),
            };
            let ts = Timestamp::new(event.ts).unwrap_or(Timestamp::MIN);
            let row = event.id.to_le_bytes();
            let (producer, port) = &mut self.producers[event.side.index()][event.source];
            if events.len() > 1 && key != Key::Null {
                batch.push(&self.hasher, key, ts, &row).expect("a small row");
                continue;
            }
            if !batch.is_empty() {
                let _flow = producer.push_batch(*port, &batch).expect("it is taken");
                batch.reset(event.side, 0, batch.kind);
            }
            let _flow = producer.push(*port, key, ts, &row).expect("it is taken");
        }
        let (producer, port) = &mut self.producers[events[0].side.index()][events[0].source];
        if !batch.is_empty() {
            let _flow = producer.push_batch(*port, &batch).expect("it is taken");
        }
    }
}

impl Subject for SplitSubject {
    fn event(&mut self, event: &Arrival) -> Result<Vec<Output>, JoinError> {
        self.events(std::slice::from_ref(event))
    }

    fn events(&mut self, events: &[Arrival]) -> Result<Vec<Output>, JoinError> {
        self.push(events);
        self.outputs()
    }

    fn watermark(&mut self, side: Side, source: usize, ts: i64) -> Vec<Output> {
        let (producer, port) = &mut self.producers[side.index()][source];
        producer.promise(*port, ts);
        self.outputs().expect("nothing fails")
    }

    fn idle(&mut self, side: Side, source: usize) -> Vec<Output> {
        let (producer, port) = &mut self.producers[side.index()][source];
        producer.idle(*port);
        self.outputs().expect("nothing fails")
    }

    fn finish(&mut self, side: Side, source: usize) -> Vec<Output> {
        let (producer, port) = &mut self.producers[side.index()][source];
        producer.finish(*port);
        self.outputs().expect("nothing fails")
    }

    fn end(&mut self) -> Vec<Output> {
        for (producer, port) in self.producers.iter_mut().flatten() {
            producer.finish(*port);
        }
        self.outputs().expect("nothing fails")
    }
}
