//! Every interleaving and every value that weak memory allows, by loom: `tests/loom.sh`.
//!
//! Each protocol is tested twice: as it is, where nothing may go wrong, and with each of its
//! orderings weakened in turn (or its steps swapped), where loom must find what goes wrong. A test
//! that could not fail would prove nothing.

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::doorbell::Doorbell;
use super::hot::seen::{Member, Routed, Version};
use super::lane::{Receiver, Refused, Sender, lane};
use super::sync::{Arc, Edge, planted};
use super::watermarks::{WatermarkReader, WatermarkSlot, Watermarks};
use crate::event::Side;

/// Asserts that loom complains in these words about a model with a planted fault.
fn assert_found(words: &str, edge: Option<Edge>, model: impl Fn() + Sync + Send + 'static) {
    let complaint = planted::complaint(edge, model);
    assert!(complaint.contains(words), "a fault ({edge:?}) went unnoticed: {complaint:?}");
}

/// Pushes `1..=count`, retrying while the lane is full.
fn push_all(mut sender: Sender<Box<u64>>, count: u64) {
    for value in 1..=count {
        let mut value = Box::new(value);
        while let Err(Refused::Full(back)) = sender.try_push(value) {
            value = back;
            thread::yield_now();
        }
    }
}

fn lane_model(capacity: usize, count: u64) {
    let (sender, mut receiver) = lane(capacity);
    let pusher = thread::spawn(move || push_all(sender, count));
    let mut popped = 0;
    while !receiver.is_closed() {
        match receiver.try_pop() {
            Some(value) => {
                popped += 1;
                assert_eq!(*value, popped);
            }
            None => thread::yield_now(),
        }
    }
    assert_eq!(popped, count, "the end of the stream hides nothing");
    pusher.join().unwrap();
}

#[test]
fn a_lane_loses_and_reorders_nothing() {
    loom::model(|| lane_model(1, 2));
    loom::model(|| lane_model(2, 3));
}

#[test]
fn every_ordering_of_a_lane_is_needed() {
    for edge in [Edge::LanePublish, Edge::LaneObserve, Edge::LaneFree, Edge::LaneReuse] {
        assert_found("Causality violation", Some(edge), || lane_model(1, 2));
    }
}

#[test]
fn an_abandoned_lane_drops_what_is_left_once() {
    loom::model(|| {
        let (mut sender, mut receiver) = lane(2);
        let count = Arc::new(());
        let value = count.clone();
        let pusher = thread::spawn(move || {
            let first = sender.try_push(value.clone());
            let second = sender.try_push(value);
            (first.is_ok(), second.is_ok())
        });
        drop(receiver.try_pop());
        drop(receiver);
        let (first, second) = pusher.join().unwrap();
        assert!(first || !second, "an abandoned lane stays abandoned");
        assert!(Arc::strong_count(&count) == 1, "every value was dropped");
    });
}

/// In which order the two ends of the protocol do their two steps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    StoreBeforePush,
    DrainBeforeLoad,
}

/// Loads, drains, and says what watermark may be applied after which values.
fn load_and_drain(
    fault: Fault,
    reader: &mut WatermarkReader,
    receivers: &mut [Receiver<i64>],
) -> (i64, Vec<i64>) {
    let mut held = receivers.iter_mut().map(Receiver::len).collect::<Vec<_>>();
    let loaded = reader.load();
    if fault != Fault::DrainBeforeLoad {
        held = receivers.iter_mut().map(Receiver::len).collect();
    }
    let mut popped = Vec::new();
    for (receiver, held) in receivers.iter_mut().zip(held) {
        popped.extend((0..held).map(|_| receiver.try_pop().unwrap()));
    }
    let applied = if loaded.all_finished { i64::MAX } else { loaded.sides[0] };
    (applied, popped)
}

/// A producer pushes times and promises; the shard must have processed all that it was promised.
fn protocol_model(fault: Fault) {
    let (table, slot) = one_source();
    let (mut sender, receiver) = lane(4);
    let producer = thread::spawn(move || {
        for ts in [10, 20] {
            if fault == Fault::StoreBeforePush {
                slot.advance(ts + 1);
            }
            sender.try_push(ts).unwrap();
            slot.advance(ts + 1);
        }
    });
    let mut reader = table.reader();
    let mut receivers = [receiver];
    let mut seen = Vec::new();
    for _ in 0..2 {
        let (applied, popped) = load_and_drain(fault, &mut reader, &mut receivers);
        seen.extend(popped);
        for ts in [10, 20] {
            assert!(ts >= applied || seen.contains(&ts), "{applied} overtook {ts}");
        }
    }
    producer.join().unwrap();
}

fn one_source() -> (Watermarks, WatermarkSlot) {
    let table = Watermarks::with_capacity(1);
    let slot = table.add_source(Side::Left).unwrap();
    table.seal();
    (table, slot)
}

#[test]
fn a_watermark_never_overtakes_data() {
    loom::model(|| protocol_model(Fault::None));
}

#[test]
fn every_part_of_the_protocol_is_needed() {
    for edge in [Edge::WatermarkStore, Edge::WatermarkLoad] {
        assert_found("overtook", Some(edge), || protocol_model(Fault::None));
    }
    for fault in [Fault::StoreBeforePush, Fault::DrainBeforeLoad] {
        assert_found("overtook", None, move || protocol_model(fault));
    }
}

fn finish_model() {
    let (table, slot) = one_source();
    let (mut sender, receiver) = lane(1);
    let producer = thread::spawn(move || {
        sender.try_push(10).unwrap();
        slot.finish();
    });
    let mut reader = table.reader();
    let mut receivers = [receiver];
    let (applied, popped) = load_and_drain(Fault::None, &mut reader, &mut receivers);
    assert!(applied != i64::MAX || popped == [10], "the end overtook data");
    producer.join().unwrap();
}

#[test]
fn the_end_of_a_source_never_overtakes_its_data() {
    loom::model(finish_model);
    for edge in [Edge::WatermarkStore, Edge::WatermarkLoad] {
        assert_found("overtook", Some(edge), finish_model);
    }
}

/// Two producers speak for one source: the first pushes and hands its turn on, the second pushes
/// and promises for both.
fn turn_model(hand_on: Ordering) {
    let (table, slot) = one_source();
    let (mut first, first_receiver) = lane(1);
    let (mut second, second_receiver) = lane(1);
    let turn = Arc::new(AtomicUsize::new(0));
    let second_turn = turn.clone();
    let one = thread::spawn(move || {
        first.try_push(10).unwrap();
        turn.store(1, hand_on);
    });
    let two = thread::spawn(move || {
        // Acquire pairs with the store of the turn, which is Release unless the fault is planted.
        if second_turn.load(Ordering::Acquire) == 1 {
            second.try_push(20).unwrap();
            slot.advance(21);
        }
    });
    let mut reader = table.reader();
    let mut receivers = [first_receiver, second_receiver];
    let (applied, popped) = load_and_drain(Fault::None, &mut reader, &mut receivers);
    assert!(applied < 21 || popped == [10, 20], "{applied} overtook {popped:?}");
    one.join().unwrap();
    two.join().unwrap();
}

#[test]
fn the_last_of_several_producers_speaks_for_all_before_it() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    // Release pairs with the Acquire in the model; Relaxed is the planted fault.
    model.check(|| turn_model(Ordering::Release));
    assert_found("overtook", None, || turn_model(Ordering::Relaxed));
}

#[test]
fn a_promise_is_not_merged_without_a_source_added_before_it() {
    loom::model(|| {
        let table = Watermarks::with_capacity(2);
        let first = table.add_source(Side::Left).unwrap();
        let mut reader = table.reader();
        let adder = thread::spawn(move || {
            let second = table.add_source(Side::Left).unwrap();
            first.advance(100);
            second
        });
        let loaded = reader.load();
        assert_eq!(loaded.sides[0], i64::MIN, "the second source has promised nothing");
        drop(adder.join().unwrap());
    });
}

fn doorbell_model() {
    let (mut sender, mut receiver) = lane(1);
    let sleeper = thread::current();
    let bell = Doorbell::new(move || sleeper.unpark());
    let ringer_bell = bell.clone();
    let ringer = thread::spawn(move || {
        sender.try_push(1).unwrap();
        ringer_bell.ring();
        // The end that goes would be one more thing to see; keep it out of the model.
        sender
    });
    loop {
        bell.prepare();
        if receiver.try_pop().is_some() {
            bell.awake();
            break;
        }
        thread::park();
        bell.awake();
    }
    drop(ringer.join().unwrap());
}

#[test]
fn no_ring_is_lost() {
    loom::model(doorbell_model);
    assert_found("deadlock", Some(Edge::DoorbellFence), doorbell_model);
}

/// A producer routes two right events, each by the version it knows: before version 2 to their home
/// only, from then on to all shards. Whoever publishes version 2 waits until it is seen by all and
/// takes the largest time that went home only: left rows that meet nothing older may be spread.
/// Between its two events the producer is quiet if it `rests`.
fn split_model(waits: bool, rests: bool) {
    let newest = Arc::new(Version::new(1));
    let member = Arc::new(Member::new());
    let producer = thread::spawn({
        let (newest, member) = (newest.clone(), member.clone());
        move || {
            let (mut version, mut routed, mut home_only) = (1, Routed::NONE, i64::MIN);
            for ts in [10, 20] {
                let is_at_work = ts == 20 && !rests;
                let loaded =
                    if is_at_work { newest.load() } else { member.enter(version, &newest) };
                if loaded != version {
                    version = loaded;
                    member.saw(version, routed);
                }
                routed.all[1] = ts;
                if version < 2 {
                    home_only = ts;
                }
                if rests || ts == 20 {
                    member.leave(routed);
                }
            }
            home_only
        }
    });
    newest.publish(2);
    let is_seen = member.has_seen(2) || !waits;
    let last = is_seen.then(|| member.routed().all[1]);
    let home_only = producer.join().unwrap();
    if let Some(last) = last {
        assert!(home_only <= last, "a row at {home_only} was not copied, and {last} was the last");
    }
}

#[test]
fn no_row_is_missed_when_a_key_is_split() {
    for rests in [true, false] {
        loom::model(move || split_model(true, rests));
    }
}

#[test]
fn every_part_of_splitting_is_needed() {
    for edge in [Edge::SplitFence, Edge::SplitLeave, Edge::SplitSeen] {
        assert_found("was not copied", Some(edge), || split_model(true, true));
    }
    assert_found("was not copied", Some(Edge::SplitSaw), || split_model(true, false));
    assert_found("was not copied", None, || split_model(false, true));
}
