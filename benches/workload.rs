//! What measuring itself costs: making events, filling batches, the roofline kernel.

mod common;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

use common::{CpuTime, by_cpu_time, events, sized};
use intervale::event::{EventBatch, KeyHasher, KeyKind, Side};
use intervale::workload::{Arrivals, Roofline, SEED_MEASURED, Workload};

fn arrivals(criterion: &mut Criterion<CpuTime>) {
    let mut group = criterion.benchmark_group("arrivals");
    let event_count = sized(1_000_000, 2_000);
    group.throughput(Throughput::Elements(u64::from(event_count))).sample_size(10);
    for workload in Workload::ALL {
        group.bench_function(workload.name, |bencher| {
            bencher.iter(|| {
                Arrivals::new(workload, Side::Right, SEED_MEASURED, u64::from(event_count))
                    .fold(0, |sum: u64, event| sum.wrapping_add(event.key))
            });
        });
    }
    group.finish();
}

/// Keys hashed, columns and payloads copied: the part of a step before the join sees it.
fn fill(criterion: &mut Criterion<CpuTime>) {
    let events = events("w1a", sized(1_000_000, 2_000));
    let hasher = KeyHasher::new(KeyKind::Int, 1);
    let mut batch = EventBatch::with_capacity(Side::Left, 256, 256 * 8);
    let mut group = criterion.benchmark_group("fill");
    group.throughput(Throughput::Elements(events.len() as u64)).sample_size(10);
    group.bench_function("batches of 256", |bencher| {
        bencher.iter(|| {
            for (side, range) in events.steps(256) {
                events.side(side).fill(&mut batch, &hasher, side, range);
                black_box(&mut batch);
            }
        });
    });
    group.finish();
}

fn roofline(criterion: &mut Criterion<CpuTime>) {
    let events = events("w1a", sized(1_000_000, 2_000));
    let mut group = criterion.benchmark_group("roofline");
    group.throughput(Throughput::Elements(events.len() as u64)).sample_size(10);
    for megabytes in [1, 8, 32, 128, 512] {
        let table_bytes = u64::from(sized(megabytes << 20, megabytes << 10));
        let mut kernel = Roofline::new(table_bytes);
        let id = BenchmarkId::from_parameter(format!("{megabytes} MB"));
        group.bench_function(id, |bencher| bencher.iter(|| kernel.run(&events, 256)));
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = by_cpu_time();
    targets = arrivals, fill, roofline
}
criterion_main!(benches);
