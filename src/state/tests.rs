//! State against a model anyone can read: a map of vectors, in the order of insertion.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::event::{BatchKind, EventBatch, Key, KeyHasher, KeyKind};
use crate::time::Timestamp;

/// Rows of one side, in the order in which they were stored.
type Rows = Vec<(u64, i64, Vec<u8>, bool)>;

#[derive(Default)]
struct Model {
    rows: [Rows; 2],
}

impl Model {
    fn partners(&self, side: Side, key: u64, lo: i64, hi: i64) -> Vec<(i64, Vec<u8>, bool)> {
        let rows = self.rows[side.index()].iter();
        rows.filter(|row| row.0 == key && lo <= row.1 && row.1 <= hi)
            .map(|row| (row.1, row.2.clone(), row.3))
            .collect()
    }

    fn mark(&mut self, side: Side, key: u64, lo: i64, hi: i64) {
        for row in &mut self.rows[side.index()] {
            row.3 |= row.0 == key && lo <= row.1 && row.1 <= hi;
        }
    }
}

/// Collects what state hands over.
#[derive(Default)]
struct Seen {
    partners: HashMap<usize, Vec<(i64, Vec<u8>, bool)>>,
    over: Vec<usize>,
}

impl Visit for Seen {
    type Own = usize;

    fn own(&self, index: usize) -> usize {
        index
    }

    fn partner(&mut self, index: usize, partner: Partner<'_>) -> bool {
        self.partners.entry(index).or_default().push((
            partner.ts,
            partner.row.to_vec(),
            partner.matched,
        ));
        true
    }

    fn over(&mut self, index: usize) {
        self.over.push(index);
    }
}

/// The lowest bit of a value that tells homes of a new index apart.
const HOME_BIT: u32 = 32 - super::index::LINES_MIN.ilog2();

/// Keys whose values share what each part of the index looks at: the home line, the tag, the rest.
struct Keys {
    hasher: KeyHasher,
    values: Vec<u64>,
}

impl Keys {
    fn new() -> Keys {
        let parts = [0u64, 1, 2, 3];
        let mut values = Vec::new();
        for rest in parts {
            for tag in parts {
                for home in parts {
                    values.push(rest << 32 | home << HOME_BIT | tag);
                }
            }
        }
        // Crowds one home line far over its five places.
        values.extend((4..60).map(|tag| 7 << HOME_BIT | tag));
        Keys { hasher: KeyHasher::new(KeyKind::Int, 3), values }
    }

    fn push(&self, batch: &mut EventBatch, key: usize, ts: i64, row: &[u8]) {
        let value = self.values[key % self.values.len()];
        let key = Key::Int(self.hasher.unmix_int(value));
        batch.push(&self.hasher, key, Timestamp::new(ts).unwrap(), row).unwrap();
    }
}

#[derive(Clone, Debug)]
enum Step {
    Batch {
        right: bool,
        events: Vec<(usize, i64, u8)>,
    },
    Floors {
        left: i64,
        right: i64,
    },
    /// So many bytes go into files.
    Spill {
        bytes: usize,
    },
}

fn steps(spread: i64, key_count: usize) -> impl Strategy<Value = Vec<Step>> {
    let event = (0..key_count, -spread..spread, 0u8..20);
    let step = prop_oneof![
        4 => (any::<bool>(), prop::collection::vec(event, 1..60))
            .prop_map(|(right, events)| Step::Batch { right, events }),
        1 => (-spread..spread, -spread..spread)
            .prop_map(|(left, right)| Step::Floors { left, right }),
    ];
    prop::collection::vec(step, 1..40)
}

/// Rows of every length around the eight bytes that fit a word.
fn row_of(number: usize, len: u8) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(usize::from(len)).collect()
}

fn run_steps(steps: Vec<Step>, interval: Interval, layout: Layout) -> Result<(), TestCaseError> {
    run_steps_on(State::new(layout), steps, interval)
}

fn run_steps_on(
    mut state: State,
    steps: Vec<Step>,
    interval: Interval,
) -> Result<(), TestCaseError> {
    let keys = Keys::new();
    let mut model = Model::default();
    let mut floors = [i64::MIN; 2];
    let mut number = 0;
    for step in steps {
        let (right, events) = match step {
            Step::Floors { left, right } => {
                floors = [floors[0].max(left), floors[1].max(right)];
                check_expiry(&mut state, &mut model, floors)?;
                for side in Side::BOTH {
                    state.retire(side, floors[side.index()]);
                    model.rows[side.index()].retain(|row| row.1 >= floors[side.index()]);
                }
                continue;
            }
            Step::Spill { bytes } => {
                let before = state.row_count() + state.cold_row_count();
                let gone = state.spill(&std::env::temp_dir(), (bytes, 0), [0; 2], bytes).unwrap();
                prop_assert_eq!(state.row_count() + state.cold_row_count(), before);
                state.shrink_index();
                prop_assert!(
                    state.cold_row_count() >= gone.iter().map(|gone| gone.rows).sum::<u64>()
                );
                continue;
            }
            Step::Batch { right, events } => (right, events),
        };
        let side = if right { Side::Right } else { Side::Left };
        let mut batch = EventBatch::with_capacity(side, events.len(), 0);
        batch.reset(side, 0, BatchKind::Keyed);
        for &(key, ts, len) in &events {
            keys.push(&mut batch, key, ts, &row_of(number, len));
            number += 1;
        }
        let interval = interval.seen_from(side);
        let probe = Probe {
            interval,
            partner_floor: floors[side.other().index()],
            own_floor: floors[side.index()],
        };
        let mut seen = Seen::default();
        let stats = state.join_batch(&batch, 0..batch.len(), &[], probe, &mut seen).unwrap();
        let mut stored = 0;
        for index in 0..batch.len() {
            let (key, ts) = (batch.keys()[index], batch.timestamps()[index]);
            let (lo, hi) = interval.range(ts);
            let expected = model.partners(side.other(), key, lo, hi);
            model.mark(side.other(), key, lo, hi);
            let found = seen.partners.remove(&index).unwrap_or_default();
            prop_assert_eq!(&found, &expected, "{:?} event {}", side, index);
            let kept = ts >= floors[side.index()];
            prop_assert_eq!(seen.over.contains(&index), !kept && expected.is_empty());
            if kept {
                stored += 1;
                let row = batch.stored_row(index).to_vec();
                model.rows[side.index()].push((key, ts, row, !expected.is_empty()));
            }
        }
        prop_assert_eq!(stats.stored, stored);
    }
    Ok(())
}

/// Rows that are freed unmatched come out in order of time, then of arrival.
fn check_expiry(
    state: &mut State,
    model: &mut Model,
    floors: [i64; 2],
) -> Result<(), TestCaseError> {
    let mut found = Vec::new();
    while state.expire(Some(floors), [0; 2], 7, |side, key, ts, row| {
        found.push((ts, side, key, row.to_vec()));
    }) {}
    for side in Side::BOTH {
        if state.expiries[side.index()].is_none() {
            continue;
        }
        let mut expected: Vec<_> = model.rows[side.index()]
            .iter()
            .filter(|row| row.1 < floors[side.index()] && !row.3)
            .map(|row| (row.1, side, row.0, row.2.clone()))
            .collect();
        expected.sort_by_key(|row| row.0);
        let of_side: Vec<_> = found.iter().filter(|row| row.1 == side).cloned().collect();
        prop_assert_eq!(of_side, expected);
    }
    prop_assert!(found.is_sorted_by_key(|row| row.0));
    Ok(())
}

fn layout(bucket_shift: u32, expires: [bool; 2]) -> Layout {
    let own = Layout::for_interval(Interval::closed(0, 1).unwrap(), 0);
    let (thin_shift, expiry_shift) = (bucket_shift + 2, bucket_shift);
    Layout { bucket_shift, thin_shift, expiry_shift, expires, ..own }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn state_finds_what_the_model_finds(
        steps in steps(300, 120),
        lo in -100i64..50, width in 0i64..150,
        shift in 0u32..10,
        expires: [bool; 2],
        simd in prop::sample::select(&Simd::ALL[..]),
    ) {
        let filter = Filter::new(simd).unwrap_or_else(Filter::detect);
        let interval = Interval::closed(lo, lo + width).unwrap();
        run_steps(steps, interval, Layout { filter, ..layout(shift, expires) })?;
    }

    #[test]
    fn rows_kept_in_order_of_arrival_are_found(
        steps in steps(300, 12),
        lo in -100i64..50, width in 0i64..150,
        shift in 3u32..10,
        expires: [bool; 2],
        ordered: [bool; 2],
    ) {
        let interval = Interval::closed(lo, lo + width).unwrap();
        let layout = layout(shift, expires);
        let mut state = State::new(layout);
        for (ring, ordered) in state.rings.iter_mut().zip(ordered) {
            ring.keep_arrival_order(ordered);
        }
        run_steps_on(state, steps, interval)?;
    }

    #[test]
    fn keys_of_many_buckets_are_found_by_directory(
        steps in steps(400, 3),
        lo in -300i64..300, width in 0i64..100,
        shift in 0u32..3,
        expires: [bool; 2],
    ) {
        let interval = Interval::closed(lo, lo + width).unwrap();
        let layout = layout(shift, expires);
        run_steps(steps, interval, layout)?;
    }

    #[test]
    fn rows_in_files_are_found_as_if_they_were_in_memory(
        steps in steps(300, 40),
        spills in prop::collection::vec((0usize..40, 1usize..12_000), 1..12),
        lo in -100i64..50, width in 0i64..150,
        shift in 0u32..10,
        ordered: [bool; 2],
        simd in prop::sample::select(&Simd::ALL[..]),
    ) {
        let filter = Filter::new(simd).unwrap_or_else(Filter::detect);
        let interval = Interval::closed(lo, lo + width).unwrap();
        let mut state = State::new(Layout { filter, ..layout(shift, [false; 2]) });
        for (ring, ordered) in state.rings.iter_mut().zip(ordered) {
            ring.keep_arrival_order(ordered);
        }
        let mut steps = steps;
        for (at, bytes) in spills {
            steps.insert(at.min(steps.len()), Step::Spill { bytes });
        }
        run_steps_on(state, steps, interval)?;
    }

    #[test]
    fn rows_of_a_key_with_a_directory_go_into_files(
        steps in steps(400, 3),
        spills in prop::collection::vec((0usize..40, 1usize..30_000), 1..6),
        lo in -300i64..300, width in 0i64..100,
        shift in 0u32..3,
    ) {
        let interval = Interval::closed(lo, lo + width).unwrap();
        let mut steps = steps;
        for (at, bytes) in spills {
            steps.insert(at.min(steps.len()), Step::Spill { bytes });
        }
        run_steps(steps, interval, layout(shift, [false; 2]))?;
    }

    #[test]
    fn buckets_are_widened_when_times_are_scattered(
        steps in prop::collection::vec((any::<bool>(), 0usize..40), 30..40),
    ) {
        // Far more buckets of width 1 than there are chunk numbers.
        let steps = steps.into_iter().enumerate().map(|(step, (right, key))| {
            let events = (0..120).map(|i| (key + i % 7, (step * 120 + i) as i64 * 1000, 8));
            Step::Batch { right, events: events.collect() }
        });
        let interval = Interval::closed(-100_000, 100_000).unwrap();
        let layout = layout(0, [true, false]);
        run_steps(steps.collect(), interval, layout)?;
    }

    #[test]
    fn chunk_numbers_come_round_and_no_dead_handle_comes_to_life(
        keys in prop::collection::vec(0usize..120, 40),
    ) {
        // Every batch fills a bucket of its own and frees all but the last few, for so long that
        // each chunk number is used several times; one row in the far future outlives them all.
        let mut steps =
            vec![Step::Batch { right: false, events: vec![(keys[0], 1 << 40, 8)] }];
        for step in 0..6_000i64 {
            let key = keys[step as usize % keys.len()];
            let right = step % 3 == 0;
            steps.push(Step::Batch { right, events: vec![(key, step * 16, 8)] });
            if step % 50 == 0 {
                let floor = step * 16 - 400;
                steps.push(Step::Floors { left: floor, right: floor });
            }
        }
        let interval = Interval::closed(-200, 200).unwrap();
        let layout = layout(4, [false; 2]);
        run_steps(steps, interval, layout)?;
    }

    #[test]
    fn the_index_grows_without_losing_a_key(seed: u64) {
        let hasher = KeyHasher::new(KeyKind::Int, seed);
        let mut state = State::new(layout(6, [false; 2]));
        let interval = Interval::closed(0, 10).unwrap();
        let probe = |side| Probe {
            interval: interval.seen_from(side), partner_floor: i64::MIN, own_floor: i64::MIN,
        };
        for side in Side::BOTH {
            let mut batch = EventBatch::with_capacity(side, 200, 0);
            for block in 0..400u64 {
                batch.reset(side, 0, BatchKind::Keyed);
                for key in block * 200..(block + 1) * 200 {
                    let ts = Timestamp::new(key as i64 % 100).unwrap();
                    batch.push(&hasher, Key::Int(key), ts, &key.to_le_bytes()).unwrap();
                }
                let mut seen = Seen::default();
                let stats = state
                    .join_batch(&batch, 0..200, &[], probe(side), &mut seen)
                    .unwrap();
                prop_assert_eq!(stats.pairs, if side == Side::Right { 200 } else { 0 });
            }
        }
        prop_assert_eq!(state.row_count(), 160_000);
    }
}

/// Everything dies while the index grows: what is moved then are dead lines, and keys that come
/// afterwards are looked up among them all the same.
#[test]
fn the_index_grows_over_dead_keys() {
    let hasher = KeyHasher::new(KeyKind::Int, 1);
    let layout = layout(6, [false; 2]);
    let probe = Probe {
        interval: Interval::closed(0, 10).unwrap(),
        partner_floor: i64::MIN,
        own_floor: i64::MIN,
    };
    let mut batch = EventBatch::with_capacity(Side::Left, 256, 0);
    for block_count in 1..60 {
        let mut state = State::new(layout);
        let mut join = |state: &mut State, blocks: std::ops::Range<u64>, ts: i64| {
            for block in blocks {
                batch.reset(Side::Left, 0, BatchKind::Keyed);
                for key in block * 64..(block + 1) * 64 {
                    let ts = Timestamp::new(ts).unwrap();
                    batch.push(&hasher, Key::Int(key), ts, b"").unwrap();
                }
                state.join_batch(&batch, 0..64, &[], probe, &mut Seen::default()).unwrap();
            }
        };
        join(&mut state, 0..block_count, 0);
        assert_eq!(state.retire(Side::Left, 1_000), block_count * 64);
        join(&mut state, 1_000..1_200, 2_000);
        assert_eq!(state.row_count(), 200 * 64);
    }
}
