use super::*;
use crate::error::JoinError;
use crate::event::{BatchKind, Key, KeyHasher, KeyKind};
use crate::time::Timestamp;

const BY_10: Pace = Pace {
    max_drift: Some(10),
    state_bytes_max: None,
    state_rows_max: None,
    waits_when_full: true,
    makes_room: false,
};

fn slots() -> (Watermarks, [WatermarkSlot; 3]) {
    let table = Watermarks::with_capacity(2);
    let sides = [Side::Left, Side::Left, Side::Right];
    let slots = sides.map(|side| table.add_source(side).unwrap());
    (table, slots)
}

fn pacer(table: &Watermarks, pace: Pace) -> Pacer {
    Pacer::new(table, &[Doorbell::silent(), Doorbell::silent()], pace)
}

fn waits(pacer: &Pacer, slots: &[WatermarkSlot]) -> Vec<bool> {
    slots.iter().map(|slot| !pacer.admits(slot, None)).collect()
}

#[test]
fn who_runs_ahead_of_the_slowest_waits() {
    let (table, slots) = slots();
    let by_10 = pacer(&table, BY_10);
    slots[0].advance(100);
    assert_eq!(waits(&by_10, &slots), [true, false, false], "the others have not begun");
    slots[1].advance(95);
    slots[2].advance(90);
    assert_eq!(waits(&by_10, &slots), [false, false, false], "10 ticks are allowed");
    slots[1].advance(101);
    assert_eq!(waits(&by_10, &slots), [false, true, false]);
    slots[2].advance(200);
    assert_eq!(waits(&by_10, &slots), [false, false, true]);
    let free = pacer(&table, Pace::default());
    assert!(free.admits(&slots[2], None), "nothing is asked of anybody");
}

#[test]
fn callers_have_room_until_state_nears_its_bound() {
    let (table, slots) = slots();
    let bounded = pacer(&table, Pace { state_bytes_max: Some(800), ..BY_10 });
    let rooms = |when_full| slots.each_ref().map(|slot| bounded.room(slot, when_full));
    let free = [Room::Free; 3];
    bounded.change_bytes(0, 499);
    slots[0].advance(3);
    slots[1].advance(2);
    slots[2].advance(1);
    assert_eq!([rooms(WhenFull::Refuse), rooms(WhenFull::Fail)], [free, free]);
    let soon = Room::Soon;
    assert_eq!(rooms(WhenFull::Wait), [soon, soon, Room::Free], "half is reached");
    bounded.change_bytes(0, 1);
    // The merged watermark is 1, and no shard has freed up to there.
    assert_eq!(rooms(WhenFull::Refuse), [soon; 3]);
    [0, 1].into_iter().for_each(|shard| bounded.freed(shard, [2, 1]));
    let none = Room::None { bytes: 500, bytes_max: 800 };
    assert_eq!([rooms(WhenFull::Refuse), rooms(WhenFull::Fail)], [[none; 3], free]);
    assert_eq!(rooms(WhenFull::Wait), [soon, soon, Room::Free]);
    bounded.change_bytes(0, 100);
    let none = Room::None { bytes: 600, bytes_max: 800 };
    assert_eq!(rooms(WhenFull::Wait), [soon, soon, none], "the slowest would wait for ever");
    slots[2].advance(2);
    assert_eq!(rooms(WhenFull::Wait), [soon; 3], "now something is to be freed");
}

#[test]
fn rows_fill_state_as_bytes_do() {
    let (table, slots) = slots();
    let pace = Pace { state_bytes_max: Some(8_000), state_rows_max: Some(80), ..BY_10 };
    let bounded = pacer(&table, pace);
    slots[0].advance(3);
    slots[1].advance(2);
    slots[2].advance(1);
    [0, 1].into_iter().for_each(|shard| bounded.freed(shard, [2, 1]));
    assert_eq!(bounded.change_rows(0, 39), 39);
    assert_eq!(waits(&bounded, &slots), [false; 3]);
    assert_eq!(bounded.change_rows(1, 1), 40);
    assert_eq!(waits(&bounded, &slots), [true, true, false], "half is reached");
    bounded.change_rows(1, 29);
    assert_eq!(bounded.room(&slots[0], WhenFull::Refuse), Room::Free);
    bounded.change_rows(1, 1);
    let none = Room::NoRows { rows: 70, rows_max: 80 };
    assert_eq!(bounded.room(&slots[0], WhenFull::Refuse), none, "seven eighths");
    // Each of two rows on their way weighs 24 bytes at least.
    bounded.change_rows(1, -2);
    bounded.sent(48);
    assert_eq!(bounded.room(&slots[0], WhenFull::Refuse), Room::Soon);
    // Whichever bound is nearer is told.
    bounded.joined(48);
    bounded.change_bytes(0, 7_000);
    let none = Room::None { bytes: 7_000, bytes_max: 8_000 };
    assert_eq!(bounded.room(&slots[0], WhenFull::Refuse), none);
}

#[test]
fn nobody_waits_for_the_silent_and_the_finished() {
    let (table, slots) = slots();
    let by_10 = pacer(&table, BY_10);
    slots[0].advance(1000);
    slots[1].idle();
    slots[2].finish();
    assert_eq!(waits(&by_10, &slots), [false, false, false]);
    slots[1].advance(0);
    assert_eq!(waits(&by_10, &slots), [true, false, false]);
    slots[1].finish();
    assert_eq!(waits(&by_10, &slots), [false, false, false]);
}

#[test]
fn ends_of_time_do_not_wrap() {
    let (table, slots) = slots();
    let by_10 = pacer(&table, BY_10);
    slots[0].advance(i64::MAX - 1);
    slots[1].advance(i64::MIN + 2);
    assert_eq!(waits(&by_10, &slots), [true, false, false]);
    slots[1].finish();
    slots[2].advance(i64::MAX - 2);
    assert_eq!(waits(&by_10, &slots), [false, false, false]);
}

/// Whatever the watermarks are and however full state is, somebody may go on.
#[test]
fn never_all_wait() {
    let steps = [i64::MIN + 2, -20, -10, 0, 5, 11, 100, i64::MAX];
    for full in [false, true] {
        for left in steps {
            for right in steps {
                let table = Watermarks::with_capacity(1);
                let slots = Side::BOTH.map(|side| table.add_source(side).unwrap());
                let pacer = pacer(&table, Pace { state_bytes_max: Some(1000), ..BY_10 });
                slots[0].advance(left);
                slots[1].advance(right);
                if full {
                    pacer.change_bytes(0, 1000);
                    (0..2).for_each(|shard| pacer.freed(shard, [left, right]));
                }
                assert!(waits(&pacer, &slots).contains(&false), "{left} and {right}");
            }
        }
    }
}

#[test]
fn some_rows_may_be_ahead_however_far_that_is() {
    let (table, slots) = slots();
    let by_10 = pacer(&table, BY_10);
    slots[0].advance(100);
    slots[1].advance(1_000);
    slots[2].advance(2_000);
    let mut ahead = RowsAhead::default();
    ahead.push(50, 1_000_000);
    ahead.push(500, ROWS_AHEAD_MAX);
    assert!(by_10.admits(&slots[2], Some(&mut ahead)));
    ahead.push(500, 1);
    assert!(!by_10.admits(&slots[2], Some(&mut ahead)));
    slots[0].advance(499);
    assert!(!by_10.admits(&slots[2], Some(&mut ahead)));
    slots[0].advance(500);
    assert!(by_10.admits(&slots[2], Some(&mut ahead)), "the others have come up to these rows");
    assert_eq!(ahead.beyond(500), 0);
}

/// From half of the bound on the slowest goes on alone, from three quarters each time when all is
/// freed.
#[test]
fn when_state_is_nearly_full_the_slowest_goes_on_alone() {
    let (table, slots) = slots();
    let bounded = pacer(&table, Pace { state_bytes_max: Some(8_000), ..BY_10 });
    slots.iter().zip([5, 7, 6]).for_each(|(slot, watermark)| slot.advance(watermark));
    bounded.change_bytes(0, 3_999);
    assert_eq!(waits(&bounded, &slots), [false, false, false]);
    assert_eq!(bounded.change_bytes(0, 1), 4_000);
    assert_eq!(waits(&bounded, &slots), [false, true, true]);
    bounded.sent(1);
    assert_eq!(waits(&bounded, &slots), [false, true, true]);
    bounded.change_bytes(0, 2_000);
    assert_eq!(waits(&bounded, &slots), [true, true, true], "its last chunk is on its way");
    bounded.joined(1);
    assert_eq!(waits(&bounded, &slots), [true, true, true], "no shard has freed anything yet");
    bounded.freed(0, [5, 6]);
    assert_eq!(waits(&bounded, &slots), [true, true, true], "one of two");
    bounded.freed(1, [5, 6]);
    assert_eq!(waits(&bounded, &slots), [false, true, true]);
    bounded.change_bytes(0, -2_001);
    assert_eq!(waits(&bounded, &slots), [false, false, false]);
    assert_eq!((bounded.state_bytes(), bounded.state_bytes_peak()), (3_999, 6_000));
}

#[test]
fn chunks_are_smaller_the_less_room_there_is() {
    let (table, _slots) = slots();
    let chunk = |bytes_max, waits_when_full, bytes| {
        let pace = Pace { state_bytes_max: Some(bytes_max), waits_when_full, ..Pace::default() };
        let pacer = pacer(&table, pace);
        pacer.change_bytes(0, bytes);
        pacer.chunk_events_max()
    };
    const GIB: u64 = 1 << 30;
    assert_eq!(chunk(GIB, true, 0), CHUNK_EVENTS_MAX);
    assert_eq!(chunk(GIB, true, (GIB / 8 * 6) as i64), CHUNK_EVENTS_PRESSED);
    assert_eq!(chunk(GIB, true, (GIB / 8 * 7) as i64), CHUNK_EVENTS_MIN);
    assert_eq!(chunk(GIB, false, GIB as i64), CHUNK_EVENTS_MAX, "nobody would wait");
    assert_eq!(chunk(2 << 20, true, 0), 64, "a small bound");
    assert_eq!(chunk(1, true, 1), CHUNK_EVENTS_MIN);
}

/// Who fails when state is full does not slow down before.
#[test]
fn who_may_fail_does_not_wait() {
    let (table, slots) = slots();
    let pace = Pace { state_bytes_max: Some(8_000), ..Pace::default() };
    let failing = pacer(&table, pace);
    failing.change_bytes(0, 8_000);
    slots[0].advance(5);
    assert_eq!(waits(&failing, &slots), [false, false, false]);
}

#[test]
fn sources_wait_for_shards_that_have_much_to_do() {
    let (table, slots) = slots();
    let by_10 = pacer(&table, BY_10);
    slots.iter().for_each(|slot| slot.advance(100));
    let most = (IN_FLIGHT_BYTES_BASE + 2 * IN_FLIGHT_BYTES_PER_SHARD) as i64;
    by_10.sent(most);
    assert_eq!(waits(&by_10, &slots), [false, false, false]);
    by_10.sent(1);
    assert_eq!(waits(&by_10, &slots), [true, true, true]);
    (0..2).for_each(|shard| by_10.freed(shard, [90, 100]));
    assert_eq!(waits(&by_10, &slots), [false, false, false], "all of it is within the drift");
    (0..2).for_each(|shard| by_10.freed(shard, [89, 100]));
    by_10.joined(1);
    assert_eq!(waits(&by_10, &slots), [false, false, false]);
}

/// Whoever was refused is called when it should ask again.
#[test]
fn it_rings_when_something_has_changed() {
    use std::sync::atomic::AtomicUsize;
    let (table, slots) = slots();
    let rung = Arc::new(AtomicUsize::new(0));
    let bell = Doorbell::new({
        let rung = Arc::clone(&rung);
        move || {
            rung.fetch_add(1, Ordering::Relaxed);
        }
    });
    let pacer = Pacer::new(
        &table,
        std::slice::from_ref(&bell),
        Pace { state_bytes_max: Some(8_000), ..BY_10 },
    );
    let rings = |act: &dyn Fn()| {
        bell.prepare();
        act();
        bell.awake();
        rung.swap(0, Ordering::Relaxed)
    };
    let most = 8_000 / IN_FLIGHT_STATE_SHARE;
    pacer.sent(most + 2);
    assert!(!pacer.admits(&slots[0], None));
    assert_eq!(rings(&|| pacer.joined(1)), 0);
    assert_eq!(rings(&|| pacer.joined(1)), 1, "there is room again");
    assert_eq!(rings(&|| pacer.freed(0, [1, 1])), 0, "nobody asked since");
    pacer.change_bytes(0, 6_000);
    assert!(!pacer.admits(&slots[0], None));
    assert_eq!(rings(&|| pacer.joined(most)), 1, "nothing is in flight any more");
    slots[2].advance(5);
    assert!(!pacer.admits(&slots[2], None));
    assert_eq!(rings(&|| pacer.freed(0, [2, 2])), 1, "something is freed");
}

#[test]
fn a_batch_weighs_the_same_before_and_behind() {
    let hasher = KeyHasher::new(KeyKind::Int, 1);
    let mut batch = EventBatch::with_capacity(Side::Left, 2, 2);
    batch.reset(Side::Left, 0, BatchKind::Keyed);
    assert_eq!(Pacer::weight(&batch), 0);
    for ts in [1, 2] {
        let ts = Timestamp::new(ts).unwrap();
        batch.push(&hasher, Key::Int(1), ts, b"123").unwrap();
    }
    assert_eq!(Pacer::weight(&batch), 2 * EVENT_BYTES as i64 + 6);
}

/// Streams of one writer: whoever has something goes on, up to half of what state may take.
#[test]
fn streams_do_not_wait_for_the_silent() {
    let (table, slots) = slots();
    let bounded = pacer(&table, Pace { state_bytes_max: Some(8_000), ..BY_10 });
    slots.iter().zip([100, 200, 0]).for_each(|(slot, watermark)| slot.advance(watermark));
    slots[1].set_live();
    slots[2].set_live();
    assert_eq!(waits(&bounded, &slots), [true, true, false]);
    slots[2].set_silent(true);
    assert_eq!(waits(&bounded, &slots), [true, false, false], "a file waits, as nobody writes it");
    bounded.change_bytes(0, 4_000);
    assert_eq!(waits(&bounded, &slots), [true, true, false]);
    bounded.change_bytes(0, -1);
    assert_eq!(waits(&bounded, &slots), [true, false, false]);
    let mut ahead = RowsAhead::default();
    ahead.push(150, ROWS_AHEAD_MAX + 1);
    assert!(bounded.admits(&slots[1], Some(&mut ahead)));
    slots[2].set_silent(false);
    assert!(!bounded.admits(&slots[1], Some(&mut ahead)), "it is behind these rows still");
}

/// Shards that hold some rows each make room when they are called to, in any order; the one that
/// answers last sees whether that was enough.
#[test]
fn a_call_is_over_when_all_have_answered_and_asks_for_all_before_it_fails() {
    let (table, _) = slots();
    let pace = Pace { state_rows_max: Some(10), makes_room: true, ..Pace::default() };
    let pacer = pacer(&table, pace);
    pacer.change_rows(0, 9);
    pacer.change_rows(1, 3);
    assert!(!pacer.is_calling() && pacer.called().is_none());
    pacer.call_shards();
    let Some((part, Ask::Part)) = pacer.called() else { panic!("{:?}", pacer.called()) };
    pacer.call_shards();
    assert_eq!(pacer.called(), Some((part, Ask::Part)), "one call at a time");
    pacer.answer(0, part);
    assert_eq!(pacer.conclude(part), Ok(false), "one has not answered");
    pacer.answer(1, part);
    assert_eq!(pacer.conclude(part), Ok(true));
    let Some((all, Ask::All)) = pacer.called() else { panic!("{:?}", pacer.called()) };
    pacer.change_rows(0, -2);
    pacer.answer(0, all);
    assert_eq!(pacer.conclude(all), Ok(false), "one has not answered");
    pacer.answer(1, all);
    assert_eq!(pacer.conclude(all), Ok(true));
    assert!(!pacer.is_calling(), "10 rows are allowed");
    // The next one fails, when one shard has ended and the other has nothing to give.
    pacer.change_rows(0, 1);
    pacer.call_shards();
    let next = pacer.called().unwrap().0;
    assert!(next > all);
    pacer.answer(0, next);
    assert_eq!(pacer.conclude(next), Ok(false));
    pacer.leave(1, (0, 0));
    assert_eq!(pacer.conclude(next), Ok(true));
    let last = pacer.called().unwrap().0;
    pacer.answer(0, last);
    let full = JoinError::RowsFull { rows: 11, rows_max: 10 };
    assert_eq!(pacer.conclude(last), Err(full.clone()));
    assert_eq!(pacer.conclude(last), Err(full), "whoever asks is told");
}
