//! The state of one shard, phase by phase: filter, index, insert, probe, retire.

mod common;

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

use common::{CpuTime, by_cpu_time, events, sized};
use intervale::event::{BatchKind, EventBatch, Key, KeyHasher, KeyKind, Side};
use intervale::limits::BATCH_EVENTS_MAX;
use intervale::state::{Filter, Layout, Partner, Probe, SELECT_SLACK, Simd, State, Visit};
use intervale::time::{Interval, Timestamp};

/// Counts partners and looks at their rows.
#[derive(Default)]
struct Count {
    partners: u64,
    bytes: u64,
}

impl Visit for Count {
    type Own = ();

    fn own(&self, _index: usize) {}

    fn partner(&mut self, (): (), partner: Partner<'_>) -> bool {
        self.partners += 1;
        self.bytes += u64::from(partner.row[0]);
        true
    }

    fn over(&mut self, _index: usize) {}
}

/// Everything within a minute matches; nothing is over.
const WIDTH: i64 = 60_000;

fn interval() -> Interval {
    Interval::closed(-WIDTH, WIDTH).expect("not empty")
}

/// Matches and keeps.
fn keep() -> Probe {
    Probe { interval: interval(), partner_floor: i64::MIN, own_floor: i64::MIN }
}

/// Matches and does not keep: state stays as it is.
fn look() -> Probe {
    Probe { own_floor: i64::MAX, ..keep() }
}

fn hasher() -> KeyHasher {
    KeyHasher::new(KeyKind::Int, 1)
}

/// Batches of 256 events with these keys, all at `ts`.
fn batches(side: Side, ts: i64, keys: impl Iterator<Item = u64>) -> Vec<EventBatch> {
    let (hasher, mut batches) = (hasher(), Vec::<EventBatch>::new());
    let ts = Timestamp::new(ts).expect("a time");
    for key in keys {
        if batches.last().is_none_or(|batch| batch.len() == BATCH_EVENTS_MAX) {
            let mut batch = EventBatch::default();
            batch.reset(side, 0, BatchKind::Keyed);
            batches.push(batch);
        }
        if let Some(batch) = batches.last_mut() {
            batch.push(&hasher, Key::Int(key), ts, &key.to_le_bytes()).expect("small rows");
        }
    }
    batches
}

fn feed(state: &mut State, batches: &[EventBatch], probe: Probe) -> Count {
    let mut count = Count::default();
    for batch in batches {
        let fed = state.join_batch(batch, 0..batch.len(), &[], probe, &mut count);
        fed.expect("state has room");
    }
    count
}

fn filled(batches: &[EventBatch]) -> State {
    let mut state = State::new(Layout::for_interval(interval(), 0));
    feed(&mut state, batches, keep());
    state
}

/// Timestamps of a run against a range: few hits, and all.
fn filter(criterion: &mut Criterion<CpuTime>) {
    let mut group = criterion.benchmark_group("filter");
    for len in [8, 64, 2_048] {
        let ts: Vec<i64> = (0..len).collect();
        group.throughput(Throughput::Elements(len as u64));
        for simd in Simd::ALL {
            let Some(filter) = Filter::new(simd) else { continue };
            for (hits, hi) in [("2 hits", 1), ("all hits", len)] {
                let id = BenchmarkId::new(format!("{simd}, {hits}"), len);
                let mut out = vec![0; ts.len() + SELECT_SLACK];
                group.bench_function(id, |bencher| {
                    bencher.iter(|| filter.select(black_box(&ts), 0, hi, black_box(&mut out)));
                });
            }
        }
    }
    group.finish();
}

/// Keys looked up in an index of so many, in an order unlike that of their insertion.
fn index(criterion: &mut Criterion<CpuTime>) {
    let mut group = criterion.benchmark_group("index");
    for full in [30_000, 300_000, 3_000_000] {
        let key_count = u64::from(sized(full, 1_000));
        let mut state = filled(&batches(Side::Left, 0, 0..key_count));
        // Far away in time: the keys are found and no partner matches.
        let present = (0..key_count).map(|i| i * 7_919 % key_count);
        let looks = [
            ("present", batches(Side::Right, 10 * WIDTH, present.take(100_000))),
            ("absent", batches(Side::Right, 10 * WIDTH, (key_count..2 * key_count).take(100_000))),
        ];
        for (name, batches) in looks {
            let events: usize = batches.iter().map(EventBatch::len).sum();
            group.throughput(Throughput::Elements(events as u64)).sample_size(10);
            group.bench_function(BenchmarkId::new(name, full), |bencher| {
                bencher.iter(|| assert_eq!(feed(&mut state, &batches, look()).partners, 0));
            });
        }
    }
    group.finish();
}

/// New keys into empty state, growth included.
fn insert(criterion: &mut Criterion<CpuTime>) {
    let mut group = criterion.benchmark_group("insert");
    for (name, full, keys) in [("unique", 300_000, u64::MAX), ("100 keys", 300_000, 100)] {
        let event_count = u64::from(sized(full, 1_000));
        let batches = batches(Side::Left, 0, (0..event_count).map(|i| i % keys));
        group.throughput(Throughput::Elements(event_count)).sample_size(10);
        group.bench_function(name, |bencher| {
            bencher.iter_batched_ref(
                || State::new(Layout::for_interval(interval(), 0)),
                |state| feed(state, &batches, keep()).partners,
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

/// Partners found: one of one, and all of a long run.
fn probe(criterion: &mut Criterion<CpuTime>) {
    let mut group = criterion.benchmark_group("probe");
    for (name, full, key_count) in [("1 partner", 100_000, 100_000), ("1,000 partners", 10_000, 10)]
    {
        let row_count = u64::from(sized(full, 1_000));
        let key_count = u64::from(sized(key_count, key_count / 10));
        let mut state = filled(&batches(Side::Left, 0, (0..row_count).map(|i| i % key_count)));
        let looks = batches(Side::Right, 0, 0..key_count);
        group.throughput(Throughput::Elements(row_count)).sample_size(10);
        group.bench_function(name, |bencher| {
            bencher.iter(|| assert_eq!(feed(&mut state, &looks, look()).partners, row_count));
        });
    }
    group.finish();
}

/// One call that frees a bucket of so many rows.
fn retire(criterion: &mut Criterion<CpuTime>) {
    let mut group = criterion.benchmark_group("retire");
    for full in [10_000, 300_000] {
        let row_count = u64::from(sized(full, 1_000));
        let batches = batches(Side::Left, 0, 0..row_count);
        group.sample_size(10);
        group.bench_function(BenchmarkId::new("one bucket of rows", full), |bencher| {
            bencher.iter_batched_ref(
                || filled(&batches),
                |state| assert_eq!(state.retire(Side::Left, i64::MAX), row_count),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

/// All of it together on w1a: what `intervale bench` measures, without the roofline.
fn whole(criterion: &mut Criterion<CpuTime>) {
    use intervale::join::JoinKind;
    use intervale::workload::{SingleJoin, StepClock, drive};
    let events = events("w1a", sized(500_000, 2_000));
    let mut group = criterion.benchmark_group("join");
    group.throughput(Throughput::Elements(events.len() as u64)).sample_size(10);
    let spec = events.workload.built_spec(JoinKind::Inner).expect("the workload's interval");
    group.bench_function("w1a", |bencher| {
        bencher.iter_batched_ref(
            || SingleJoin::new(spec.clone(), Simd::detect()).expect("a join"),
            |join| drive(join, &events, BATCH_EVENTS_MAX, StepClock::Wall).expect("no fault"),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = by_cpu_time();
    targets = filter, index, insert, probe, retire, whole
}
criterion_main!(benches);
