//! Moving batches between cores: a lane alone, a link with its way back, two threads.

mod common;

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};

use common::{CpuTime, by_cpu_time, events, sized};
use intervale::event::{BatchKind, KeyHasher, KeyKind, Side};
use intervale::exchange::lane::{Refused, lane};
use intervale::exchange::{Doorbell, link, shard_of};
use intervale::limits::LANE_BATCHES_DEFAULT;

/// One thread pushes and pops: the cost without any cache line travelling.
fn same_thread(criterion: &mut Criterion<CpuTime>) {
    let mut group = criterion.benchmark_group("lane/same thread");
    group.throughput(Throughput::Elements(1));
    let (mut sender, mut receiver) = lane::<u64>(LANE_BATCHES_DEFAULT);
    group.bench_function("push and pop", |bencher| {
        bencher.iter(|| {
            let pushed = sender.try_push(black_box(1));
            assert!(pushed.is_ok());
            black_box(receiver.try_pop())
        });
    });
    group.finish();
}

/// A stream of values from one thread to another, both turning to yield when they must wait.
fn two_threads(criterion: &mut Criterion<CpuTime>) {
    let mut group = criterion.benchmark_group("lane/two threads");
    group.throughput(Throughput::Elements(1)).sample_size(10);
    group.bench_function("stream", |bencher| bencher.iter_custom(stream));
    group.finish();
}

fn stream(count: u64) -> Duration {
    let (mut sender, mut receiver) = lane::<u64>(LANE_BATCHES_DEFAULT);
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || {
            for mut value in 0..count {
                while let Err(Refused::Full(back)) = sender.try_push(value) {
                    value = back;
                    thread::yield_now();
                }
            }
        });
        let mut received = 0;
        while received < count {
            match receiver.try_pop() {
                Some(value) => {
                    assert_eq!(value, received);
                    received += 1;
                }
                None => thread::yield_now(),
            }
        }
    });
    start.elapsed()
}

/// What a batch of 256 events costs on its way through a link and back, filling it included.
fn link_round(criterion: &mut Criterion<CpuTime>) {
    let events = events("w1a", 2_000);
    let hasher = KeyHasher::new(KeyKind::Int, 1);
    let (mut sender, mut receiver) =
        link(LANE_BATCHES_DEFAULT, Doorbell::silent(), Doorbell::silent());
    let mut group = criterion.benchmark_group("link");
    group.throughput(Throughput::Elements(256));
    group.bench_function("fill, send, receive, give back", |bencher| {
        bencher.iter(|| {
            let mut batch = sender.fresh(Side::Left, 0, BatchKind::Keyed);
            events.side(Side::Left).fill(&mut batch, &hasher, Side::Left, 0..256);
            assert!(sender.try_send(batch).is_ok());
            if let Some(batch) = receiver.try_recv() {
                receiver.give_back(black_box(batch));
            }
        });
    });
    group.finish();
}

/// Key to shard.
fn partition(criterion: &mut Criterion<CpuTime>) {
    let hasher = KeyHasher::new(KeyKind::Int, 1);
    let mut group = criterion.benchmark_group("partition");
    let keys: Vec<u64> = (0..u64::from(sized(4_096, 16))).map(|key| hasher.int(key)).collect();
    group.throughput(Throughput::Elements(keys.len() as u64));
    group.bench_function("shard of a key, 6 shards", |bencher| {
        bencher.iter(|| keys.iter().map(|&key| shard_of(black_box(key), 6)).sum::<usize>());
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = by_cpu_time();
    targets = same_thread, two_threads, link_round, partition
}
criterion_main!(benches);
