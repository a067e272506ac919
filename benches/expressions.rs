//! A condition on a pair of rows, read out of the rows as they stand: time a pair, one core.

// This one needs the clock alone.
#[allow(dead_code, unused_imports)]
mod common;

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};

use common::{CpuTime, by_cpu_time};
use intervale::expr::{ColumnType, Filter, Row, Scope, SideColumns};
use intervale::source::RowFormat;
use intervale::time::text::{TimeUnit, Zone};

const CSV: [&str; 3] = [
    "o1,100.5,SUCCESS,1704103200000",
    "o1,99.5,REFUSED,1704103200000",
    "o1,100.25,PENDING,1704103200000",
];
const JSON: [&str; 3] = [
    r#"{"id":"o1","amount":100.5,"status":"SUCCESS","ts":1704103200000}"#,
    r#"{"id":"o1","amount":99.5,"status":"REFUSED","ts":1704103200000}"#,
    r#"{"id":"o1","amount":100.25,"status":"PENDING","ts":1704103200000}"#,
];

fn filter(format: RowFormat, text: &str) -> Filter {
    let names = |suffix: &str| {
        ["id", "amount", "status", "ts"].map(|name| format!("{name}{suffix}")).to_vec()
    };
    let csv = [ColumnType::Text, ColumnType::Number, ColumnType::Text, ColumnType::EventTime];
    let side = |suffix| SideColumns {
        format,
        names: names(""),
        output_names: names(suffix),
        types: if format.is_delimited() { csv.to_vec() } else { vec![ColumnType::Auto; 4] },
        given: vec![false; 4],
    };
    let scope = Scope::new([side(""), side("_right")], TimeUnit::Ms, &Zone::UTC);
    Filter::parse(text, &Arc::new(scope)).expect("a sound text")
}

fn expressions(criterion: &mut Criterion<CpuTime>) {
    let mut group = criterion.benchmark_group("condition");
    group.throughput(Throughput::Elements(CSV.len() as u64));
    for (name, text) in [
        ("equal", "amount = amount_right"),
        ("share", "amount_right >= amount * 0.99 AND status_right <> 'REFUSED'"),
        ("like", "status_right LIKE 'S%' OR lower(status) IN ('success', 'pending')"),
    ] {
        for (format_name, format, rows) in
            [("csv", RowFormat::CSV, CSV), ("jsonl", RowFormat::JsonLines, JSON)]
        {
            let filter = filter(format, text);
            group.bench_function(format!("{format_name}/{name}"), |bencher| {
                bencher.iter(|| {
                    let row = |at: usize| Row { bytes: black_box(rows[at % 3]).as_bytes(), ts: 0 };
                    (0..3).filter(|&at| filter.holds(row(at), row(at + 1))).count()
                });
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = by_cpu_time().sample_size(20);
    targets = expressions
}
criterion_main!(benches);
