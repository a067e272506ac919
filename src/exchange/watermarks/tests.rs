//! The table against [`SideClock`], and what it adds to it.

use std::thread;

use proptest::prelude::*;

use super::*;
use crate::exchange::lane::{Refused, lane};
use crate::time::SideClock;

fn table(left: usize, right: usize) -> (Watermarks, [Vec<WatermarkSlot>; 2]) {
    let table = Watermarks::with_capacity(8);
    let slots = [(Side::Left, left), (Side::Right, right)].map(|(side, count)| {
        (0..count).map(|_| table.add_source(side).unwrap()).collect::<Vec<_>>()
    });
    (table, slots)
}

proptest! {
    /// One side of the table says what [`SideClock`] says, whatever its sources do.
    #[test]
    fn a_side_is_a_side_clock(
        sources in 1usize..5,
        ops in prop::collection::vec((0usize..5, 0u8..8, -6i64..6), 0..60),
    ) {
        let (table, slots) = table(sources, 1);
        let mut reader = table.reader();
        let mut clock = SideClock::new(sources);
        let mut ended = vec![false; sources];
        for (source, op, ticks) in ops {
            let source = source % sources;
            let slot = &slots[0][source];
            match op {
                _ if ended[source] => continue,
                0 => { slot.idle(); clock.idle(source); }
                1 => { slot.finish(); clock.finish(source); ended[source] = true; }
                2 => {
                    let near_end = i64::MAX - 6 + ticks;
                    slot.advance(near_end);
                    clock.advance(source, near_end);
                }
                // Near the start, where the sentinel lives: `MIN + 1` promises what `MIN` does.
                3 => {
                    let start = i64::MIN + 6 + ticks;
                    let same = if start == i64::MIN + 1 { i64::MIN } else { start };
                    slot.advance(start);
                    clock.advance(source, same);
                }
                _ => { slot.advance(ticks); clock.advance(source, ticks); }
            }
            let loaded = reader.load();
            prop_assert_eq!(loaded.sides, [clock.watermark(), i64::MIN]);
            prop_assert!(!loaded.all_finished);
            prop_assert_eq!(table.regressed(Side::Left), clock.regressed());
            prop_assert_eq!(slot.is_finished(), ended[source]);
        }
    }
}

#[test]
fn a_side_without_sources_holds_until_the_table_is_sealed() {
    let (table, slots) = table(1, 0);
    let mut reader = table.reader();
    slots[0][0].advance(10);
    assert_eq!(reader.load().sides, [10, i64::MIN]);
    table.seal();
    assert_eq!(reader.load(), Loaded { sides: [10, i64::MAX], all_finished: false });
    slots[0][0].finish();
    assert_eq!(reader.load(), Loaded { sides: [i64::MAX; 2], all_finished: true });
}

#[test]
fn a_promise_of_the_last_tick_is_no_end() {
    let (table, slots) = table(1, 1);
    table.seal();
    let mut reader = table.reader();
    slots[0][0].advance(i64::MAX);
    slots[1][0].finish();
    assert_eq!(reader.load(), Loaded { sides: [i64::MAX; 2], all_finished: false });
    slots[0][0].clone().finish();
    slots[0][0].finish();
    assert!(reader.load().all_finished);
}

#[test]
fn nothing_ends_before_the_table_is_sealed() {
    let (table, slots) = table(1, 1);
    slots.iter().flatten().for_each(WatermarkSlot::finish);
    let mut reader = table.reader();
    assert!(!reader.load().all_finished);
    table.seal();
    assert!(reader.load().all_finished);
}

#[test]
fn a_source_that_is_added_cannot_pull_a_reader_back() {
    let (table, slots) = table(1, 1);
    let mut reader = table.reader();
    slots[0][0].advance(100);
    slots[1][0].advance(100);
    assert_eq!(reader.load().sides, [100, 100]);
    let late = table.add_source(Side::Left).unwrap();
    assert_eq!(reader.load().sides, [100, 100]);
    slots[0][0].advance(200);
    assert_eq!(reader.load().sides, [100, 100], "the new source has promised nothing");
    late.advance(150);
    assert_eq!(reader.load().sides, [150, 100]);
    assert_eq!(table.side(Side::Left), 150);
}

#[test]
fn a_full_table_says_so() {
    let table = Watermarks::with_capacity(1);
    assert!(table.add_source(Side::Right).is_ok());
    let refused = table.add_source(Side::Right).unwrap_err();
    assert_eq!(refused, TooManySources { side: Side::Right, source_count_max: 1 });
    assert!(table.add_source(Side::Left).is_ok());
}

#[test]
fn promises_outlive_idleness_and_the_end() {
    let (table, slots) = table(2, 0);
    slots[0][0].advance(7);
    slots[0][0].idle();
    assert_eq!((slots[0][0].current(), slots[0][0].promised()), (SourceState::Idle, 7));
    slots[0][0].advance(3);
    assert_eq!(slots[0][0].current(), SourceState::Active(7), "it woke with an old promise");
    slots[0][0].finish();
    slots[0][0].idle();
    slots[0][0].advance(9);
    assert_eq!(slots[0][0].current(), SourceState::Finished);
    slots[0][1].advance(5);
    assert_eq!(table.promised_max(Side::Left), 9);
}

/// The protocol under real threads: two sources push boxed times and promise; a shard that drains
/// after loading never finds a time that is older than what it had applied.
#[test]
fn threads_never_see_a_watermark_overtake_data() {
    let (table, slots) = table(2, 0);
    table.seal();
    let mut reader = table.reader();
    let (mut receivers, producers): (Vec<_>, Vec<_>) = slots[0]
        .iter()
        .map(|slot| {
            let (mut sender, receiver) = lane(8);
            let slot = slot.clone();
            let producer = thread::spawn(move || {
                for ts in 0..20_000i64 {
                    let mut batch = Box::new(ts);
                    while let Err(Refused::Full(back)) = sender.try_push(batch) {
                        batch = back;
                        thread::yield_now();
                    }
                    if ts % 3 == 0 {
                        slot.advance(ts + 1);
                    }
                }
                slot.finish();
            });
            (receiver, producer)
        })
        .unzip();
    let (mut applied, mut count) = (i64::MIN, 0);
    loop {
        let loaded = reader.load();
        for receiver in &mut receivers {
            for _ in 0..receiver.len() {
                let ts = *receiver.try_pop().unwrap();
                assert!(ts >= applied, "{ts} came after {applied} had been applied");
                count += 1;
            }
        }
        applied = loaded.sides[0];
        if loaded.all_finished {
            break;
        }
        thread::yield_now();
    }
    assert_eq!(count, 40_000, "the end overtook data");
    producers.into_iter().for_each(|producer| producer.join().unwrap());
}
