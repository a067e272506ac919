//! The shard's protocol, step by step, with an operator that notes what is asked of it.

use super::*;
use crate::event::{Event, Key, KeyHasher, KeyKind, Side};
use crate::exchange::{Flow, PortId, Producer, ProducerOptions, Promise, WatermarkSlot, link};
use crate::join::SinkError;
use crate::limits::Limits;
use crate::time::{Lateness, ManualClock, Timestamp};

/// What the operator was asked, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    Batch(Vec<i64>),
    Advance(i64, i64),
    Finish,
    Work,
}

/// Emits one pair an event; needs `work_steps` calls of `work` after each watermark.
#[derive(Default)]
struct Noting {
    asked: Vec<Asked>,
    counters: Counters,
    work_steps: usize,
    work_left: usize,
    watermark: i64,
    fails: bool,
}

impl Operator for Noting {
    fn on_batch<E: Emit>(&mut self, batch: &EventBatch, out: &mut E) -> Result<(), JoinError> {
        self.asked.push(Asked::Batch(batch.timestamps().to_vec()));
        if self.fails {
            return Err(JoinError::Unbalanced("planted".to_owned()));
        }
        for &ts in batch.timestamps() {
            let event = Event { key: Key::Int(0), ts, row: b"" };
            out.pair(event, event);
            self.counters.pairs += 1;
        }
        Ok(())
    }

    fn advance(&mut self, left: i64, right: i64) {
        self.asked.push(Asked::Advance(left, right));
        self.watermark = left.min(right);
        self.work_left = self.work_steps;
    }

    fn finish(&mut self) {
        self.asked.push(Asked::Finish);
        self.watermark = i64::MAX;
        self.work_left = self.work_steps;
    }

    fn work<E: Emit>(&mut self, _: usize, _: &mut E) -> bool {
        self.asked.push(Asked::Work);
        self.work_left = self.work_left.saturating_sub(1);
        self.work_left > 0
    }

    fn output_watermark(&self) -> i64 {
        self.watermark
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn state_bytes(&self) -> u64 {
        64
    }
}

/// Notes what it is told; fails at the given flush.
#[derive(Debug, Default)]
struct NotingSink {
    pairs: usize,
    flushes: usize,
    fails_at_flush: usize,
    watermarks: Vec<i64>,
    finished: usize,
}

impl Emit for NotingSink {
    fn pair(&mut self, _: Event<'_>, _: Event<'_>) {
        self.pairs += 1;
    }
}

impl Sink for NotingSink {
    fn flush(&mut self) -> Result<(), SinkError> {
        self.flushes += 1;
        if self.flushes == self.fails_at_flush {
            return Err(SinkError { message: "planted".to_owned(), closed: true });
        }
        Ok(())
    }

    fn output_watermark(&mut self, watermark: i64) -> Result<(), SinkError> {
        self.watermarks.push(watermark);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.finished += 1;
        self.flush()
    }
}

/// One shard, one producer with a port a side, batches of one event.
struct Rig {
    shard: Shard<NotingSink, Noting>,
    handle: ShardHandle,
    producer: Producer,
    table: Watermarks,
    ports: [PortId; 2],
    clock: ManualClock,
}

fn rig(join: Noting, sink: NotingSink) -> Rig {
    let table = Watermarks::with_capacity(2);
    let (sender, receiver) = link(8, Doorbell::silent(), Doorbell::silent());
    let (shard, handle) = Shard::new(join, sink, vec![receiver], &table, Doorbell::silent());
    let (mut producer, ports) = producer(sender, Side::BOTH.map(|side| slot(&table, side)));
    producer.set_now(100);
    Rig { shard, handle, producer, table, ports, clock: ManualClock::default() }
}

fn slot(table: &Watermarks, side: Side) -> WatermarkSlot {
    table.add_source(side).unwrap()
}

fn producer<const N: usize>(
    sender: crate::exchange::LinkSender,
    slots: [WatermarkSlot; N],
) -> (Producer, [PortId; N]) {
    let hasher = KeyHasher::new(KeyKind::Int, 0);
    let options = ProducerOptions { hasher, lateness: Lateness::default(), batch_events: 1 };
    let mut producer = Producer::new(vec![sender], options);
    let ports = slots.map(|slot| producer.add_port(slot, Promise::Explicit));
    (producer, ports)
}

impl Rig {
    fn push(&mut self, side: Side, ts: i64) {
        let port = self.ports[side.index()];
        let time = Timestamp::new(ts).unwrap();
        assert_eq!(self.producer.push(port, Key::Int(1), time, b""), Ok(Flow::Open));
    }

    fn promise(&mut self, left: i64, right: i64) {
        self.producer.promise(self.ports[0], left);
        self.producer.promise(self.ports[1], right);
        assert_eq!(self.producer.flush(), Ok(Flow::Open));
    }

    fn finish(&mut self) {
        for port in self.ports {
            self.producer.finish(port);
        }
        assert_eq!(self.producer.flush(), Ok(Flow::Open));
        self.table.seal();
    }

    fn step(&mut self, budget: usize) -> Result<Progress, ShardError> {
        self.shard.step(budget, &self.clock)
    }

    fn asked(&mut self) -> Vec<Asked> {
        std::mem::take(&mut self.shard.join.asked)
    }
}

#[test]
fn a_round_drains_what_lanes_held_and_then_applies_what_it_loaded() {
    let mut rig = rig(Noting::default(), NotingSink::default());
    assert_eq!(rig.step(9), Ok(Progress::Idle));
    (1..=3).for_each(|ts| rig.push(Side::Left, ts));
    rig.promise(4, 4);
    assert_eq!(rig.step(2), Ok(Progress::Busy));
    assert_eq!(rig.asked(), [Asked::Batch(vec![1]), Asked::Batch(vec![2])], "the budget is 2");
    // What comes now belongs to the next round, its watermark as well.
    rig.push(Side::Right, 5);
    rig.promise(6, 6);
    assert_eq!(rig.step(9), Ok(Progress::Busy));
    assert_eq!(rig.asked(), [Asked::Batch(vec![3]), Asked::Advance(4, 4), Asked::Work]);
    assert_eq!(rig.step(9), Ok(Progress::Busy));
    assert_eq!(rig.asked(), [Asked::Batch(vec![5]), Asked::Advance(6, 6), Asked::Work]);
    assert_eq!(rig.step(9), Ok(Progress::Idle));
    assert_eq!(rig.asked(), []);
    assert_eq!(rig.shard.sink.watermarks, [4, 6]);
}

#[test]
fn work_that_is_left_goes_on_between_batches_and_holds_the_output_watermark() {
    let mut rig = rig(Noting { work_steps: 3, ..Noting::default() }, NotingSink::default());
    rig.promise(4, 4);
    assert_eq!(rig.step(9), Ok(Progress::Busy));
    rig.push(Side::Left, 5);
    assert_eq!(rig.producer.flush(), Ok(Flow::Open));
    assert_eq!(rig.step(9), Ok(Progress::Busy));
    assert!(rig.shard.sink.watermarks.is_empty());
    let expected = [Asked::Advance(4, 4), Asked::Work, Asked::Batch(vec![5]), Asked::Work];
    assert_eq!(rig.asked(), expected);
    assert_eq!(rig.step(9), Ok(Progress::Busy));
    assert_eq!((rig.asked(), rig.shard.sink.watermarks.clone()), (vec![Asked::Work], vec![4]));
    assert_eq!(rig.step(9), Ok(Progress::Idle));
}

#[test]
fn a_barrier_waits_for_what_came_before_it_and_for_its_work() {
    let mut rig = rig(Noting { work_steps: 2, ..Noting::default() }, NotingSink::default());
    (1..=2).for_each(|ts| rig.push(Side::Left, ts));
    assert_eq!(rig.step(1), Ok(Progress::Busy), "a round is under way");
    rig.push(Side::Left, 3);
    rig.promise(3, 3);
    let barrier = rig.handle.barrier().unwrap();
    let mut steps = 0;
    while barrier.try_recv().is_err() {
        assert_eq!(rig.step(1), Ok(Progress::Busy));
        steps += 1;
        assert!(steps < 20, "the barrier is never answered");
    }
    let asked = rig.asked();
    assert!(asked.contains(&Asked::Batch(vec![3])) && asked.contains(&Asked::Advance(3, 3)));
    assert_eq!(rig.shard.sink.watermarks, [3]);
    assert!(rig.shard.sink.flushes > 0 && !rig.shard.sink_is_dirty);
    assert_eq!(rig.step(1), Ok(Progress::Idle));
}

#[test]
fn a_link_that_is_added_is_drained_before_what_its_producer_promised() {
    let mut rig = rig(Noting::default(), NotingSink::default());
    let (sender, receiver) = link(1, Doorbell::silent(), Doorbell::silent());
    let (mut second, [port]) = producer(sender, [slot(&rig.table, Side::Left)]);
    rig.promise(9, 9);
    assert_eq!(rig.step(9), Ok(Progress::Busy));
    assert_eq!(rig.asked(), [Asked::Advance(i64::MIN, 9), Asked::Work], "a source is missing");
    assert!(rig.handle.add_link(receiver).is_ok());
    let time = Timestamp::new(7).unwrap();
    assert_eq!(second.push(port, Key::Int(1), time, b""), Ok(Flow::Open));
    second.promise(port, 8);
    assert_eq!(second.flush(), Ok(Flow::Open));
    assert_eq!(rig.step(9), Ok(Progress::Busy));
    assert_eq!(rig.asked(), [Asked::Batch(vec![7]), Asked::Advance(8, 9), Asked::Work]);
    drop(second);
    assert_eq!(rig.shard.links.len(), 2);
    for _ in 0..=ROUNDS_PER_PURGE {
        assert_eq!(rig.step(9), Ok(Progress::Idle));
    }
    assert_eq!(rig.shard.links.len(), 1, "a link without producer is forgotten");
}

#[test]
fn the_end_comes_when_all_sources_have_ended_and_all_is_worked_off() {
    let mut rig = rig(Noting { work_steps: 2, ..Noting::default() }, NotingSink::default());
    rig.push(Side::Right, 1);
    rig.finish();
    let report = rig.handle.report().unwrap();
    let barrier = rig.handle.barrier().unwrap();
    assert_eq!(rig.step(9), Ok(Progress::Busy));
    assert_eq!(rig.step(9), Ok(Progress::Finished));
    assert_eq!(rig.step(9), Ok(Progress::Finished));
    let expected = [Asked::Batch(vec![1]), Asked::Finish, Asked::Work, Asked::Work];
    assert_eq!(rig.asked(), expected);
    assert_eq!((rig.shard.sink.finished, rig.shard.sink.watermarks.clone()), (1, vec![i64::MAX]));
    assert!(report.try_recv().is_ok() && barrier.try_recv().is_ok());
    assert!(rig.handle.barrier().is_none() && rig.handle.report().is_none());
    let (_, receiver) = link(1, Doorbell::silent(), Doorbell::silent());
    assert!(rig.handle.add_link(receiver).is_err());
}

#[test]
fn what_comes_after_the_end_is_an_error_and_no_silent_loss() {
    let mut rig = rig(Noting { work_steps: 2, ..Noting::default() }, NotingSink::default());
    let slots = Side::BOTH.map(|side| slot(&rig.table, side));
    rig.finish();
    // Two sources speak although nobody feeds them: they end behind the producer's back.
    slots.iter().for_each(WatermarkSlot::finish);
    assert_eq!(rig.step(9), Ok(Progress::Busy));
    let (sender, receiver) = link(1, Doorbell::silent(), Doorbell::silent());
    rig.shard.links.push(Link { receiver, pending: 0 });
    let (mut rogue, [port]) = producer(sender, [slots[0].clone()]);
    let time = Timestamp::new(7).unwrap();
    assert_eq!(rogue.push(port, Key::Int(1), time, b""), Ok(Flow::Open));
    let Err(ShardError::Join(JoinError::Unbalanced(what))) = rig.step(9) else { panic!("lost") };
    assert!(what.contains("1 batches came after"), "{what}");
}

#[test]
fn an_error_stays_and_cuts_everybody_off() {
    let join_fails = rig(Noting { fails: true, ..Noting::default() }, NotingSink::default());
    let sink = NotingSink { fails_at_flush: 1, ..NotingSink::default() };
    for mut rig in [join_fails, rig(Noting::default(), sink)] {
        rig.push(Side::Left, 1);
        let barrier = rig.handle.barrier().unwrap();
        let error = loop {
            match rig.step(9) {
                Ok(Progress::Busy) => {}
                Ok(progress) => panic!("{progress:?} without an error"),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("planted"), "{error}");
        assert_eq!(rig.step(9), Err(error));
        assert!(barrier.recv().is_err(), "nobody waits for ever");
        assert!(rig.handle.barrier().is_none());
        let time = Timestamp::new(2).unwrap();
        let refused = rig.producer.push(rig.ports[0], Key::Int(1), time, b"");
        assert_eq!(refused, Err(crate::error::PushError::Stopped));
    }
}

#[test]
fn latency_is_weighted_by_pairs_and_steps_are_measured() {
    let mut rig = rig(Noting::default(), NotingSink::default());
    rig.push(Side::Left, 1);
    rig.push(Side::Left, 2);
    rig.promise(3, 3);
    rig.clock.advance_ns(350);
    assert_eq!(rig.step(9), Ok(Progress::Busy));
    let report = rig.shard.report();
    assert_eq!((report.latency_ns.len(), report.latency_ns.max()), (2, 250));
    assert_eq!((report.step_ns.len(), report.events, report.lane_depth_peak), (1, 2, 2));
    assert_eq!((report.state_bytes, report.state_bytes_peak), (64, 64));
    assert_eq!((report.watermarks, report.watermarks_finite), ([3, 3], [Some(3), Some(3)]));
    rig.finish();
    assert_eq!(rig.step(9), Ok(Progress::Finished));
    let report = rig.shard.report();
    assert_eq!((report.watermarks, report.watermarks_finite), ([i64::MAX; 2], [Some(3); 2]));
}

#[test]
fn the_sink_is_flushed_seldom_under_load_and_at_once_when_idle() {
    let mut rig = rig(Noting::default(), NotingSink::default());
    for ts in 1..=5 {
        rig.push(Side::Left, ts);
        assert_eq!(rig.step(9), Ok(Progress::Busy));
    }
    assert_eq!(rig.shard.sink.flushes, 0);
    assert_eq!(rig.step(9), Ok(Progress::Idle));
    assert_eq!(rig.step(9), Ok(Progress::Idle));
    assert_eq!(rig.shard.sink.flushes, 1, "once is enough");
    rig.clock.advance_ns(SINK_FLUSH_NS);
    rig.push(Side::Left, 6);
    assert_eq!(rig.step(9), Ok(Progress::Busy));
    assert_eq!(rig.shard.sink.flushes, 2);
}

/// Two producers and two shards on threads of their own, one pair a key; a barrier in the middle.
#[test]
fn shards_and_producers_on_threads_find_every_pair() {
    const KEYS: u64 = 4000;
    let table = Watermarks::with_capacity(1);
    let silent = [Doorbell::silent(), Doorbell::silent()];
    let mesh = crate::exchange::mesh(2, &silent, &silent);
    let (shards, handles): (Vec<_>, Vec<_>) = mesh
        .receivers
        .into_iter()
        .map(|links| {
            let join = real_join(0, 0);
            Shard::new(join, NotingSink::default(), links, &table, Doorbell::silent())
        })
        .unzip();
    let slots = Side::BOTH.map(|side| slot(&table, side));
    table.seal();
    let producers: Vec<_> = mesh
        .senders
        .into_iter()
        .zip(slots)
        .map(|(links, slot)| {
            std::thread::spawn(move || {
                let hasher = KeyHasher::new(KeyKind::Int, 0);
                let lateness = Lateness::default();
                let options = ProducerOptions { hasher, lateness, batch_events: 16 };
                let mut producer = Producer::new(links, options);
                let port = producer.add_port(slot, Promise::Disorder(0));
                for key in 0..KEYS {
                    let time = Timestamp::new(key as i64).unwrap();
                    while producer.flow() == Flow::Blocked {
                        let _ = producer.flush().unwrap();
                        std::thread::yield_now();
                    }
                    let _ = producer.push(port, Key::Int(key), time, b"row").unwrap();
                    if key % 100 == 0 {
                        let _ = producer.flush().unwrap();
                    }
                }
                producer.finish(port);
                while producer.flush().unwrap() == Flow::Blocked {
                    std::thread::yield_now();
                }
            })
        })
        .collect();
    let shards: Vec<_> = shards
        .into_iter()
        .map(|mut shard| {
            std::thread::spawn(move || {
                let clock = crate::time::MonotonicClock;
                while shard.step(64, &clock).unwrap() != Progress::Finished {
                    std::thread::yield_now();
                }
                shard.into_parts().2.counters
            })
        })
        .collect();
    for handle in handles {
        // It may have ended already; then there is nothing to wait for.
        handle.barrier().map_or(Ok(()), |barrier| barrier.recv()).unwrap();
    }
    producers.into_iter().for_each(|producer| producer.join().unwrap());
    let mut counters = Counters::default();
    shards.into_iter().for_each(|shard| counters.add(&shard.join().unwrap()));
    counters.check().unwrap();
    assert_eq!((counters.pairs, counters.side(Side::Left).on_time), (KEYS, KEYS));
}

fn real_join(lo: i64, hi: i64) -> IntervalJoin {
    let bound = crate::time::Bound::Closed;
    let spec = crate::join::JoinSpec::between(bound(lo), bound(hi));
    let spec = spec.build(&Limits::UNBOUNDED).unwrap();
    IntervalJoin::new(spec, KeyHasher::new(KeyKind::Int, 0), Limits::UNBOUNDED).unwrap()
}

#[test]
fn a_shard_runs_the_real_join() {
    let table = Watermarks::with_capacity(1);
    let (sender, receiver) = link(8, Doorbell::silent(), Doorbell::silent());
    let join = real_join(0, 5);
    let sink = NotingSink::default();
    let (mut shard, _handle) = Shard::new(join, sink, vec![receiver], &table, Doorbell::silent());
    let (mut producer, ports) = producer(sender, Side::BOTH.map(|side| slot(&table, side)));
    table.seal();
    for (port, ts) in [(ports[0], 10), (ports[1], 15), (ports[1], 16)] {
        let time = Timestamp::new(ts).unwrap();
        assert_eq!(producer.push(port, Key::Int(1), time, b"row"), Ok(Flow::Open));
    }
    for port in ports {
        producer.finish(port);
    }
    assert_eq!(producer.flush(), Ok(Flow::Open));
    let clock = ManualClock::default();
    while shard.step(1, &clock).unwrap() != Progress::Finished {}
    let (join, sink, report) = shard.into_parts();
    assert_eq!(
        (sink.pairs, report.counters.pairs, report.counters.side(Side::Left).rows),
        (1, 1, 1)
    );
    assert_eq!(join.state_rows(), 0);
}
