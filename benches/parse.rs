//! Bytes of a file into events, one core: MB/s of cutting into blocks and of parsing them.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use intervale::event::{KeyHasher, KeyKind, Side};
use intervale::source::{
    Block, BlockParser, BlockReader, Chunk, Cursor, ParseOptions, ReadOptions, RowFormat, RowSchema,
};
use intervale::time::text::{TimeFormat, TimeParser, TimeUnit, Zone};

const ROWS: u64 = 100_000;

fn parser(format: RowFormat, unit: TimeUnit) -> BlockParser {
    let columns = ["key", "ts", "id"].map(str::to_owned).to_vec();
    let schema = RowSchema::new(format, columns, &["key"], "ts").expect("the columns are there");
    let time = TimeParser::new(&TimeFormat::Auto, &Zone::UTC, unit);
    let options = ParseOptions { side: Side::Left, source: 0, with_position: false };
    BlockParser::new(Arc::new(schema), time, KeyHasher::new(KeyKind::Bytes, 1), options)
}

/// Reads and parses everything; returns the number of events.
fn run(data: &[u8], parser: &mut BlockParser, block: &mut Block, chunk: &mut Chunk) -> u64 {
    let format = parser.schema().format();
    let mut reader = BlockReader::new(data, format, ReadOptions::default());
    let mut events = 0;
    while reader.read_block(block).expect("memory can be read") {
        let mut cursor = Cursor::new(block);
        while !cursor.is_done(block) {
            parser.parse(block, &mut cursor, chunk);
            assert!(chunk.bad.is_empty());
            events += chunk.events.len() as u64;
            black_box(&chunk.events);
        }
    }
    events
}

fn inputs() -> [(&'static str, RowFormat, TimeUnit, String); 5] {
    let start_ms = 1_700_000_000_000u64;
    let rows = |row: fn(u64, u64) -> String| -> String {
        (0..ROWS).map(|id| row(id, start_ms + id)).collect()
    };
    [
        ("csv", RowFormat::CSV, TimeUnit::Ms, rows(|id, ts| format!("{id:09},{ts},{id}\n"))),
        (
            "csv_quoted",
            RowFormat::CSV,
            TimeUnit::Ms,
            rows(|id, ts| format!("\"{id:09}\",{ts},\"{id}\"\n")),
        ),
        (
            "csv_text_time",
            RowFormat::CSV,
            TimeUnit::Us,
            rows(|id, ts| format!("{id:09},{},{id}\n", TimeUnit::Ms.format(ts as i64))),
        ),
        (
            "csv_wide_third",
            RowFormat::CSV,
            TimeUnit::Ms,
            rows(|id, ts| format!("{id:09},{ts},\"a long text, with some words in it, {id}\"\n")),
        ),
        (
            "jsonl",
            RowFormat::JsonLines,
            TimeUnit::Ms,
            rows(|id, ts| format!("{{\"key\":\"{id:09}\",\"ts\":{ts},\"id\":{id}}}\n")),
        ),
    ]
}

fn parse(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parse");
    for (name, format, unit, data) in inputs() {
        let mut parser = parser(format, unit);
        let (mut block, mut chunk) = (Block::default(), Chunk::new(Side::Left));
        group.throughput(Throughput::Bytes(data.len() as u64));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let events = run(data.as_bytes(), &mut parser, &mut block, &mut chunk);
                assert_eq!(events, ROWS);
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = parse
}
criterion_main!(benches);
