//! The producer against what it must deliver: everything once, in order, and no watermark early.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::event::{KeyKind, Side};
use crate::exchange::{Doorbell, LinkReceiver, Watermarks, mesh};
use crate::time::{LatePolicy, SourceState};

/// A producer, the receivers of its links by shard, and the table of its sources.
struct Rig {
    producer: Producer,
    receivers: Vec<LinkReceiver>,
    table: Watermarks,
    hasher: KeyHasher,
}

const OWN: Lateness =
    Lateness { policy: LatePolicy::Output, clock: LatenessClock::Own, allowed: 2 };

fn rig(shards: usize, credits: usize, lateness: Lateness, batch_events: usize) -> Rig {
    let bells: Vec<_> = (0..shards).map(|_| Doorbell::silent()).collect();
    let mut mesh = mesh(credits, &bells[..1], &bells);
    let hasher = KeyHasher::new(KeyKind::Int, 5);
    let options = ProducerOptions { hasher: hasher.clone(), lateness, batch_events };
    Rig {
        producer: Producer::new(mesh.senders.remove(0), options),
        receivers: mesh.receivers.iter_mut().map(|links| links.remove(0)).collect(),
        table: Watermarks::with_capacity(4),
        hasher,
    }
}

impl Rig {
    fn port(&mut self, side: Side, promise: Promise) -> PortId {
        self.producer.add_port(self.table.add_source(side).unwrap(), promise)
    }

    fn push(&mut self, port: PortId, key: Option<u64>, ts: i64) -> Result<Flow, PushError> {
        let key = key.map_or(Key::Null, Key::Int);
        self.producer.push(port, key, Timestamp::new(ts).unwrap(), &ts.to_le_bytes())
    }

    /// Takes all batches that a shard's lane holds now.
    fn take(&mut self, shard: usize) -> Vec<EventBatch> {
        let receiver = &mut self.receivers[shard];
        (0..receiver.len())
            .map(|_| {
                let batch = receiver.try_recv().unwrap();
                let copy = (*batch).clone();
                receiver.give_back(batch);
                copy
            })
            .collect()
    }

    fn take_all(&mut self) -> Vec<EventBatch> {
        (0..self.receivers.len()).flat_map(|shard| self.take(shard)).collect()
    }
}

#[test]
fn events_go_to_the_shard_of_their_key_and_null_keys_to_that_of_their_source() {
    let mut rig = rig(3, 64, Lateness::default(), 16);
    let ports = [Side::Left, Side::Left, Side::Right].map(|side| rig.port(side, Promise::Explicit));
    for key in 0..200 {
        assert_eq!(rig.push(ports[key as usize % 3], Some(key), 7), Ok(Flow::Open));
    }
    assert_eq!(rig.push(ports[1], None, 7), Ok(Flow::Open));
    assert_eq!(rig.producer.flush(), Ok(Flow::Open));
    assert_eq!(rig.producer.unsent_events(), 0);
    let mut seen = Vec::new();
    for shard in 0..3 {
        for batch in rig.take(shard) {
            assert!(batch.len() <= 16);
            for index in 0..batch.len() {
                let event = batch.event(index, &rig.hasher);
                assert_eq!(event.row, 7i64.to_le_bytes());
                let Key::Int(key) = event.key else {
                    assert_eq!((batch.kind, batch.source, shard), (BatchKind::NullKey, 1, 1));
                    continue;
                };
                assert_eq!(shard_of(rig.hasher.int(key), 3), shard);
                assert_eq!(batch.side(), [Side::Left, Side::Left, Side::Right][key as usize % 3]);
                assert_eq!(batch.source, [0, 1, 0][key as usize % 3]);
                seen.push(key);
            }
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..200).collect::<Vec<_>>());
}

#[test]
fn keys_of_the_wrong_kind_are_refused_and_change_nothing() {
    let mut rig = rig(1, 4, Lateness::default(), 16);
    let port = rig.port(Side::Left, Promise::Disorder(0));
    let ts = Timestamp::new(9).unwrap();
    let refused = rig.producer.push(port, Key::Bytes(b"k"), ts, b"");
    assert_eq!(refused, Err(PushError::KeyKind { expected: KeyKind::Int }));
    assert_eq!(rig.producer.flush(), Ok(Flow::Open));
    assert!(rig.take_all().is_empty());
    assert_eq!(rig.table.side(Side::Left), i64::MIN);
}

#[test]
fn lateness_is_judged_by_the_source_s_own_watermark() {
    let mut rig = rig(2, 64, OWN, 256);
    let disorder = rig.port(Side::Left, Promise::Disorder(5));
    let explicit = rig.port(Side::Right, Promise::Explicit);
    // Own watermark 95 after the first, allowed lateness 2: 93 is on time, 92 is late by 1.
    for ts in [100, 93, 92, 50] {
        assert_eq!(rig.push(disorder, Some(1), ts), Ok(Flow::Open));
        assert_eq!(rig.push(explicit, Some(1), ts), Ok(Flow::Open), "nothing was promised");
    }
    rig.producer.promise(explicit, 60);
    for ts in [58, 57] {
        assert_eq!(rig.push(explicit, Some(1), ts), Ok(Flow::Open));
        assert_eq!(rig.push(explicit, None, ts), Ok(Flow::Open), "no key is never late");
    }
    assert_eq!(rig.producer.flush(), Ok(Flow::Open));
    let mut found: Vec<_> = rig
        .take_all()
        .iter()
        .map(|batch| {
            (batch.side(), batch.kind as u8, batch.timestamps().to_vec(), batch.lags().to_vec())
        })
        .collect();
    found.sort();
    let (keyed, null_key, late) = (0, 1, 2);
    assert_eq!(
        found,
        [
            (Side::Left, keyed, vec![100, 93], vec![]),
            (Side::Left, late, vec![92, 50], vec![1, 43]),
            (Side::Right, keyed, vec![100, 93, 92, 50, 58], vec![]),
            (Side::Right, null_key, vec![58, 57], vec![0, 1]),
            (Side::Right, late, vec![57], vec![1]),
        ]
    );
    assert_eq!(rig.producer.counters().late, 3);
}

#[test]
fn a_batch_is_judged_and_spread_like_single_events() {
    let merged = Lateness { clock: LatenessClock::Merged, ..OWN };
    let on_time = Lateness { allowed: 100, ..OWN };
    let cases = [(3, OWN, true), (3, on_time, false), (3, merged, false), (1, merged, false)];
    for (shards, lateness, is_late) in cases {
        let mut rigs = [(); 2].map(|()| rig(shards, 512, lateness, 8));
        let ports = rigs.each_mut().map(|rig| rig.port(Side::Left, Promise::Disorder(3)));
        let [one, other] = &mut rigs;
        for first in [0, 13, 300] {
            let mut batch = EventBatch::with_capacity(Side::Left, 64, 512);
            for index in first..2 * first + 1 {
                let ts = (index * 7 % 20 + index / 3) as i64;
                assert_eq!(one.push(ports[0], Some(index), ts), Ok(Flow::Open));
                let time = Timestamp::new(ts).unwrap();
                batch.push(&other.hasher, Key::Int(index), time, &ts.to_le_bytes()).unwrap();
            }
            assert_eq!(other.producer.push_batch(ports[1], &batch), Ok(Flow::Open));
        }
        assert_eq!(one.producer.counters(), other.producer.counters());
        assert_eq!(one.producer.counters().late > 0, is_late);
        let [one, other] = rigs.map(|mut rig| {
            assert_eq!(rig.producer.flush(), Ok(Flow::Open));
            let batches = rig.take_all();
            let texts = batches.iter().map(|batch| format!("{batch:?}")).collect::<Vec<_>>();
            (texts, rig.table.side(Side::Left))
        });
        assert_eq!(one, other, "{shards} shards");
    }
}

#[test]
fn a_full_lane_parks_refuses_and_holds_the_watermark() {
    let mut rig = rig(1, 1, Lateness::default(), 2);
    let port = rig.port(Side::Left, Promise::Disorder(0));
    assert_eq!(rig.push(port, Some(1), 1), Ok(Flow::Open));
    assert_eq!(rig.push(port, Some(1), 2), Ok(Flow::Open));
    assert_eq!(rig.push(port, Some(1), 3), Ok(Flow::Open));
    assert_eq!(rig.push(port, Some(1), 4), Ok(Flow::Blocked), "the second batch is parked");
    assert_eq!(rig.push(port, Some(1), 5), Err(PushError::Backpressure));
    assert_eq!(rig.producer.flush(), Ok(Flow::Blocked));
    assert_eq!(rig.producer.unsent_events(), 2);
    assert_eq!(rig.table.side(Side::Left), i64::MIN, "event 3 has not been sent");
    assert_eq!(rig.take_all()[0].timestamps(), [1, 2]);
    assert_eq!(rig.push(port, Some(1), 5), Ok(Flow::Open), "pushing retries by itself");
    assert_eq!(rig.producer.flush(), Ok(Flow::Blocked));
    assert_eq!(rig.take_all()[0].timestamps(), [3, 4]);
    assert_eq!(rig.producer.flush(), Ok(Flow::Open));
    assert_eq!(rig.take_all()[0].timestamps(), [5]);
    assert_eq!(rig.table.side(Side::Left), 5);
    assert_eq!((rig.producer.counters().batches, rig.producer.counters().parked), (3, 2));
}

#[test]
fn silence_and_the_end_are_published_by_a_flush() {
    let mut rig = rig(1, 4, Lateness::default(), 2);
    let disorder = rig.port(Side::Left, Promise::Disorder(1));
    let explicit = rig.port(Side::Right, Promise::Explicit);
    let state = |rig: &Rig, side| rig.table.states(side).next().unwrap();
    assert_eq!(rig.push(disorder, Some(1), 10), Ok(Flow::Open));
    rig.producer.promise(explicit, 20);
    rig.producer.promise(explicit, 15);
    rig.producer.idle(disorder);
    rig.producer.idle(explicit);
    assert_eq!(state(&rig, Side::Left), SourceState::Active(i64::MIN));
    assert_eq!(rig.producer.flush(), Ok(Flow::Open));
    assert_eq!(Side::BOTH.map(|side| state(&rig, side)), [SourceState::Idle; 2]);
    assert_eq!(Side::BOTH.map(|side| rig.table.promised_max(side)), [9, 20]);
    assert_eq!(rig.table.regressed(Side::Right), 1);

    assert_eq!(rig.push(disorder, Some(1), 8), Ok(Flow::Open));
    assert_eq!(rig.push(explicit, Some(1), 30), Ok(Flow::Open));
    assert_eq!(rig.producer.flush(), Ok(Flow::Open));
    assert_eq!(state(&rig, Side::Left), SourceState::Active(9), "an event wakes it");
    assert_eq!(state(&rig, Side::Right), SourceState::Idle, "a promise would");
    rig.producer.promise(explicit, 20);
    assert_eq!(rig.producer.flush(), Ok(Flow::Open));
    assert_eq!(state(&rig, Side::Right), SourceState::Active(20));

    rig.producer.finish(disorder);
    rig.producer.idle(disorder);
    assert_eq!(rig.push(disorder, Some(1), 99), Err(PushError::Ended));
    rig.take_all();
    assert_eq!(rig.producer.flush(), Ok(Flow::Open));
    assert_eq!(state(&rig, Side::Left), SourceState::Finished);
}

#[test]
fn producers_of_one_source_go_on_from_each_other() {
    let mut rig = rig(1, 8, OWN, 16);
    let slot = rig.table.add_source(Side::Left).unwrap();
    let first = rig.producer.add_port(slot.clone(), Promise::Disorder(5));
    let second = rig.producer.add_port(slot, Promise::Disorder(5));
    assert_eq!(rig.push(first, Some(1), 100), Ok(Flow::Open));
    let max_ts = rig.producer.max_ts(first);
    rig.producer.observe(second, max_ts);
    assert_eq!(rig.push(second, Some(1), 92), Ok(Flow::Open));
    assert_eq!(rig.push(second, Some(1), 93), Ok(Flow::Open));
    assert_eq!(rig.producer.flush(), Ok(Flow::Open));
    let late = rig.take_all().iter().filter(|batch| batch.kind == BatchKind::Late).count();
    assert_eq!((late, rig.table.side(Side::Left)), (1, 95));
}

#[test]
fn a_shard_that_is_gone_stops_the_producer() {
    let mut rig = rig(2, 4, Lateness::default(), 1);
    let port = rig.port(Side::Left, Promise::Explicit);
    rig.receivers.remove(1);
    let key = (0..).find(|&key| shard_of(rig.hasher.int(key), 2) == 1).unwrap();
    assert_eq!(rig.push(port, Some(key), 1), Err(PushError::Stopped));
    assert_eq!(rig.push(port, Some(key), 1), Err(PushError::Stopped));
    assert_eq!(rig.producer.flush(), Err(PushError::Stopped));
}

#[test]
fn arrival_and_linger_are_those_of_the_oldest_event() {
    let mut rig = rig(1, 4, Lateness::default(), 8);
    let port = rig.port(Side::Left, Promise::Explicit);
    assert!(!rig.producer.needs_flush());
    for now in [50, 60] {
        rig.producer.set_now(now);
        assert_eq!(rig.push(port, Some(1), 1), Ok(Flow::Open));
    }
    assert_eq!(rig.producer.oldest_pending_ns(), Some(50));
    assert_eq!(rig.producer.flush(), Ok(Flow::Open));
    assert_eq!((rig.producer.oldest_pending_ns(), rig.producer.needs_flush()), (None, false));
    assert_eq!(rig.take_all()[0].arrived_ns, 50);
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Push { port: usize, key: u64, ts: i64 },
    Flush,
    Drain { shard: usize },
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0usize..3, 0u64..12, 0i64..100)
            .prop_map(|(port, key, ts)| Op::Push { port, key, ts }),
        1 => Just(Op::Flush),
        2 => (0usize..3).prop_map(|shard| Op::Drain { shard }),
    ]
}

/// What one port sent to one shard, late events apart: ids in order.
type Streams = BTreeMap<(usize, usize, bool), Vec<u64>>;

fn drain(rig: &mut Rig, shard: usize, seen: &mut Streams) {
    for batch in rig.take(shard) {
        let port = [[0, 1], [2, 3]][batch.side().index()][batch.source as usize];
        let stream = seen.entry((port, shard, batch.kind == BatchKind::Late)).or_default();
        let ids = (0..batch.len()).map(|index| batch.stored_row(index).try_into().unwrap());
        stream.extend(ids.map(u64::from_le_bytes));
    }
}

proptest! {
    /// However lanes fill up: what was accepted arrives once, at its shard, in the order of its
    /// port and kind, and nothing else does.
    #[test]
    fn nothing_is_lost_doubled_or_reordered(
        ops in prop::collection::vec(any_op(), 0..300),
        credits in 1usize..3,
        batch_events in 1usize..5,
    ) {
        let mut rig = rig(3, credits, OWN, batch_events);
        let sides = [Side::Left, Side::Left, Side::Right];
        let ports = sides.map(|side| rig.port(side, Promise::Disorder(10)));
        let (mut sent, mut seen) = (Streams::new(), Streams::new());
        let mut watermarks = [i64::MIN; 3];
        for (id, op) in ops.into_iter().enumerate() {
            match op {
                Op::Push { port, key, ts } => {
                    let time = Timestamp::new(ts).unwrap();
                    let row = (id as u64).to_le_bytes();
                    match rig.producer.push(ports[port], Key::Int(key), time, &row) {
                        Ok(_) => {
                            let late = ts < watermarks[port].saturating_sub(2);
                            let shard = shard_of(rig.hasher.int(key), 3);
                            sent.entry((port, shard, late)).or_default().push(id as u64);
                            watermarks[port] = watermarks[port].max(ts - 10);
                        }
                        Err(error) => prop_assert_eq!(error, PushError::Backpressure),
                    }
                }
                Op::Flush => {
                    if rig.producer.flush() == Ok(Flow::Open) {
                        prop_assert_eq!(rig.producer.unsent_events(), 0);
                        prop_assert_eq!(rig.table.side(Side::Right), watermarks[2]);
                    }
                }
                Op::Drain { shard } => drain(&mut rig, shard, &mut seen),
            }
        }
        while rig.producer.flush() != Ok(Flow::Open) {
            (0..3).for_each(|shard| drain(&mut rig, shard, &mut seen));
        }
        (0..3).for_each(|shard| drain(&mut rig, shard, &mut seen));
        prop_assert_eq!(seen, sent);
    }
}
