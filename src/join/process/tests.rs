//! The operator by itself: lateness, bounds, and that nothing is kept of a key that is done.

use super::{Keyed, Process, ProcessJoin, Timer};
use crate::error::JoinError;
use crate::event::{BatchKind, Event, EventBatch, Key, KeyHasher, KeyKind, Side};
use crate::join::{Emit, JoinSpec};
use crate::limits::Limits;
use crate::time::{Bound, LatePolicy, Lateness, LatenessClock, Timestamp};

/// Keeps every row for ten ticks.
struct Keep;

impl Process for Keep {
    type State = Vec<u8>;

    fn on_left(&mut self, event: Event<'_>, key: &mut Keyed<'_, Vec<u8>>, out: &mut dyn Emit) {
        if let Some(lag) = key.lag() {
            out.output(usize::try_from(lag).unwrap_or(0), event);
        }
        key.state().get_or_insert_default().extend_from_slice(event.row);
        key.set_timer(event.ts + 10);
    }

    fn on_right(&mut self, event: Event<'_>, key: &mut Keyed<'_, Vec<u8>>, _: &mut dyn Emit) {
        key.delete_timer(event.ts + 10);
    }

    fn on_timer(&mut self, timer: Timer<'_>, key: &mut Keyed<'_, Vec<u8>>, out: &mut dyn Emit) {
        let row = key.state().take().unwrap_or_default();
        out.output(0, Event { key: timer.key, ts: timer.ts, row: &row });
    }

    fn on_null_key(&mut self, _: Side, event: Event<'_>, out: &mut dyn Emit) {
        out.output(99, event);
    }

    fn heap_bytes(&self, state: &Vec<u8>) -> usize {
        state.capacity()
    }

    fn hold_back(&self) -> i64 {
        3
    }
}

#[derive(Default)]
struct Rows {
    out: Vec<(usize, i64, Vec<u8>)>,
    late: Vec<i64>,
}

impl Emit for Rows {
    fn pair(&mut self, _: Event<'_>, _: Event<'_>) {}

    fn output(&mut self, output: usize, event: Event<'_>) {
        self.out.push((output, event.ts, event.row.to_vec()));
    }

    fn late(&mut self, _: Side, _: Event<'_>, lag: i64) {
        self.late.push(lag);
    }
}

fn join(policy: LatePolicy, limits: Limits) -> (ProcessJoin<Keep>, KeyHasher) {
    let lateness = Lateness { policy, clock: LatenessClock::Merged, allowed: 2 };
    let between = JoinSpec::between(Bound::Closed(0), Bound::Closed(0)).keys(KeyKind::Bytes);
    let spec = between.lateness(lateness).build(&Limits::default()).expect("a plain spec");
    let hasher = KeyHasher::new(KeyKind::Bytes, 3);
    (ProcessJoin::new(Keep, spec, hasher.clone(), limits), hasher)
}

fn batch(hasher: &KeyHasher, side: Side, events: &[(&str, i64, &[u8])]) -> EventBatch {
    let mut batch = EventBatch::default();
    batch.reset(side, 0, BatchKind::Keyed);
    for &(key, ts, row) in events {
        let ts = Timestamp::new(ts).expect("a time");
        batch.push(hasher, Key::Bytes(key.as_bytes()), ts, row).expect("small rows");
    }
    batch
}

#[test]
fn nothing_is_kept_of_keys_that_are_done() {
    let (mut join, hasher) = join(LatePolicy::Drop, Limits::default());
    let mut rows = Rows::default();
    for round in 0..200 {
        let keys: Vec<String> = (0..100).map(|key| format!("key {round} {key}")).collect();
        let events: Vec<_> =
            keys.iter().map(|key| (key.as_str(), round, b"some row".as_slice())).collect();
        join.on_batch(&batch(&hasher, Side::Left, &events), &mut rows).expect("room");
        join.advance(round - 5, round - 5);
        while join.work(7, &mut rows) {}
    }
    let peak = join.state_bytes();
    assert_eq!(rows.out.len(), 100 * 185, "one timer a key, those at 10 to 194");
    assert_eq!(join.output_watermark(), 194 - 3);
    join.finish();
    while join.work(7, &mut rows) {}
    assert_eq!(rows.out.len(), 100 * 200);
    assert!(rows.out.is_sorted_by_key(|(_, ts, _)| *ts));
    assert!(rows.out.iter().all(|(_, _, row)| row == b"some row"));
    assert_eq!(join.state_bytes(), 0);
    assert!(peak < 15 * 100 * 300 * 2, "{peak} bytes for 1,500 keys");
}

#[test]
fn deleted_timers_do_not_pile_up() {
    let (mut join, hasher) = join(LatePolicy::Drop, Limits::default());
    let mut rows = Rows::default();
    for _ in 0..10_000 {
        join.on_batch(&batch(&hasher, Side::Left, &[("a", 5, b"")]), &mut rows).expect("room");
        join.on_batch(&batch(&hasher, Side::Right, &[("a", 5, b"")]), &mut rows).expect("room");
    }
    assert!(join.state_bytes() < 200_000, "{} bytes", join.state_bytes());
    join.finish();
    while join.work(100, &mut rows) {}
    assert_eq!(rows.out, []);
}

#[test]
fn late_events_go_the_way_of_the_policy() {
    let late = [("a", 97, b"late".as_slice()), ("a", 98, b"on time")];
    for policy in [LatePolicy::Drop, LatePolicy::Output, LatePolicy::Join, LatePolicy::Fail] {
        let (mut join, hasher) = join(policy, Limits::default());
        let mut rows = Rows::default();
        join.advance(100, 100);
        let taken = join.on_batch(&batch(&hasher, Side::Left, &late), &mut rows);
        if policy == LatePolicy::Fail {
            let row = b"late".as_slice().into();
            assert_eq!(taken, Err(JoinError::Late { side: Side::Left, ts: 97, lag: 1, row }));
            continue;
        }
        taken.expect("room");
        let counts = join.counters().side(Side::Left);
        assert_eq!((counts.rows, counts.on_time, counts.late), (2, 1, 1));
        join.finish();
        while join.work(100, &mut rows) {}
        let row = if policy == LatePolicy::Join { b"lateon time".as_slice() } else { b"on time" };
        let fired = rows.out.iter().find(|(output, ..)| *output == 0);
        assert_eq!(fired.map(|(_, _, row)| row.as_slice()), Some(row), "{policy:?}");
        assert_eq!(rows.out.iter().any(|(output, ..)| *output == 1), policy == LatePolicy::Join);
        assert_eq!(rows.late, if policy == LatePolicy::Output { vec![1] } else { vec![] });
    }
}

#[test]
fn events_without_a_key_are_handed_over_and_counted() {
    let (mut join, hasher) = join(LatePolicy::Drop, Limits::default());
    let mut nulls = EventBatch::default();
    nulls.reset(Side::Right, 0, BatchKind::NullKey);
    nulls.push(&hasher, Key::Null, Timestamp::new(4).expect("a time"), b"row").expect("a row");
    let mut rows = Rows::default();
    join.on_batch(&nulls, &mut rows).expect("room");
    assert_eq!(rows.out, [(99, 4, b"row".to_vec())]);
    assert_eq!(join.counters().side(Side::Right).null_key, 1);
    assert_eq!(join.counters().check(), Ok(()));
}

#[test]
fn a_bound_on_state_counts_what_states_hold() {
    let limits = Limits { state_bytes_max: Some(100_000), ..Limits::UNBOUNDED };
    let (mut join, hasher) = join(LatePolicy::Drop, limits);
    let (mut rows, row) = (Rows::default(), [7; 1_000]);
    let mut refused = None;
    for key in 0..1_000 {
        let name = format!("{key}");
        let batch = batch(&hasher, Side::Left, &[(&name, 5, &row)]);
        if let Err(error) = join.on_batch(&batch, &mut rows) {
            refused = Some((key, error));
            break;
        }
    }
    let Some((keys, JoinError::StateFull { bytes_max: 100_000, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert!((60..100).contains(&keys), "{keys} rows of 1,000 bytes in 100,000");
    assert_eq!(join.counters().side(Side::Left).rows, keys, "nothing was taken of the refused");
}
