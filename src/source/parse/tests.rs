use super::*;
use crate::event::KeyKind;
use crate::source::blocks::{BlockReader, ReadOptions};
use crate::source::fields;
use crate::time::text::{TimeFormat, TimeTextError, TimeUnit, Zone};
use proptest::prelude::*;

fn hasher() -> KeyHasher {
    KeyHasher::new(KeyKind::Bytes, 7)
}

fn parser(format: RowFormat, columns: &[&str], keys: &[&str], with_position: bool) -> BlockParser {
    let columns = columns.iter().map(|name| (*name).to_owned()).collect();
    let schema = RowSchema::new(format, columns, keys, "ts").unwrap();
    let time = TimeParser::new(&TimeFormat::Ms, &Zone::UTC, TimeUnit::Ms);
    let options = ParseOptions { side: Side::Left, source: 3, with_position };
    BlockParser::new(Arc::new(schema), time, hasher(), options)
}

/// What came of a record, in the order of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Event { key: Option<Vec<u8>>, ts: i64, row: Vec<u8> },
    Bad { line: u64, row: Vec<u8> },
}

/// The outcomes of a chunk; its good and its bad rows, because a chunk keeps no order between them.
fn outcomes(chunk: &Chunk) -> (Vec<Outcome>, Vec<Outcome>) {
    let (mut good, mut nulls) = (Vec::new(), 0);
    let null = |at: usize| {
        let event = chunk.nulls.event(at, &hasher());
        Outcome::Event { key: None, ts: event.ts, row: event.row.to_vec() }
    };
    for at in 0..=chunk.events.len() {
        while chunk.null_places.get(nulls) == Some(&(at as u32)) {
            good.push(null(nulls));
            nulls += 1;
        }
        if at < chunk.events.len() {
            let hasher = hasher();
            let event = chunk.events.event(at, &hasher);
            let Key::Bytes(key) = event.key else { panic!("{:?}", event.key) };
            let key = Some(key.to_vec());
            good.push(Outcome::Event { key, ts: event.ts, row: event.row.to_vec() });
        }
    }
    assert_eq!(nulls, chunk.nulls.len());
    let bad = chunk.bad.iter();
    (good, bad.map(|bad| Outcome::Bad { line: bad.line, row: bad.text.clone() }).collect())
}

fn parse(
    mut parser: BlockParser,
    data: &[u8],
    block_bytes: usize,
    has_header: bool,
) -> (Vec<Outcome>, Vec<Outcome>) {
    let options = ReadOptions { block_bytes, eager: false };
    let mut reader = BlockReader::new(data, parser.schema().format(), options);
    if has_header {
        reader.read_header().unwrap();
    }
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let mut block = Block::default();
    while reader.read_block(&mut block).unwrap() {
        for chunk in parser.parse_all(&block) {
            let times = [&chunk.events, &chunk.nulls].into_iter().flat_map(|b| b.timestamps());
            assert_eq!(chunk.max_ts, times.copied().max().unwrap_or(i64::MIN));
            let (some_good, some_bad) = outcomes(&chunk);
            good.extend(some_good);
            bad.extend(some_bad);
        }
    }
    (good, bad)
}

/// The rules of the format, one byte after the other, over the whole input at once.
mod reference {

    pub struct Row {
        pub fields: Vec<Vec<u8>>,
        pub raw: Vec<u8>,
        pub line: u64,
        pub sound: bool,
    }

    pub fn rows(data: &[u8], delimiter: u8) -> Vec<Row> {
        let (mut rows, mut at, mut line) = (Vec::new(), 0, 1);
        while at < data.len() {
            let (start, first_line) = (at, line);
            let mut row = Row { fields: Vec::new(), raw: Vec::new(), line, sound: true };
            loop {
                let (field, sound, end) = field(data, at, delimiter);
                row.fields.push(field);
                row.sound &= sound;
                at = end + 1;
                if data.get(end) != Some(&delimiter) {
                    row.raw = data[start..end.min(data.len())].to_vec();
                    break;
                }
            }
            line += data[start..at.min(data.len())].iter().filter(|&&b| b == b'\n').count() as u64;
            if row.raw.last() == Some(&b'\r') {
                row.raw.pop();
                let last = row.fields.last_mut().unwrap();
                if last.last() == Some(&b'\r') {
                    last.pop();
                }
            }
            row.line = first_line;
            if !row.raw.is_empty() {
                rows.push(row);
            }
        }
        rows
    }

    /// A field from `at` on, whether its quotes are sound, and where it ends.
    fn field(data: &[u8], mut at: usize, delimiter: u8) -> (Vec<u8>, bool, usize) {
        let mut text = Vec::new();
        let quoted = data.get(at) == Some(&b'"');
        let mut sound = true;
        if quoted {
            at += 1;
            loop {
                match (data.get(at), data.get(at + 1)) {
                    (Some(b'"'), Some(b'"')) => {
                        text.push(b'"');
                        at += 2;
                    }
                    (Some(b'"'), _) => {
                        at += 1;
                        break;
                    }
                    (Some(&byte), _) => {
                        text.push(byte);
                        at += 1;
                    }
                    (None, _) => return (text, false, at),
                }
            }
        }
        while let Some(&byte) = data.get(at) {
            if byte == delimiter || byte == b'\n' {
                break;
            }
            // The `\r` of a line end is no text.
            let line_end = byte == b'\r' && matches!(data.get(at + 1), None | Some(b'\n'));
            sound &= !quoted || line_end;
            if !(quoted && line_end) {
                text.push(byte);
            }
            at += 1;
        }
        (text, sound, at)
    }
}

fn expected(data: &[u8], delimiter: u8) -> (Vec<Outcome>, Vec<Outcome>) {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for row in reference::rows(data, delimiter) {
        let time = row.fields.get(1).and_then(|text| std::str::from_utf8(text).ok());
        let ts = time.and_then(|text| text.trim().parse::<i64>().ok());
        match ts {
            Some(ts) if row.sound && row.fields.len() == 3 => {
                let key = Some(row.fields[0].clone()).filter(|key| !key.is_empty());
                good.push(Outcome::Event { key, ts, row: row.raw });
            }
            _ => bad.push(Outcome::Bad { line: row.line, row: row.raw }),
        }
    }
    (good, bad)
}

fn csv_text() -> impl Strategy<Value = Vec<u8>> {
    let field = prop_oneof![
        4 => prop::sample::select(vec!["a", "bc", "", "5", "订单", "a\0b"]).prop_map(str::to_owned),
        3 => "[a,\n\r]{0,3}(\"\")?[b,]{0,2}".prop_map(|text| format!("\"{text}\"")),
        1 => "[a\"]{0,3}",
    ];
    let time = prop_oneof![
        8 => (-20i64..2000).prop_map(|ts| ts.to_string()),
        1 => (0i64..100).prop_map(|ts| format!("\"{ts}\"")),
        1 => Just("x".to_owned()),
    ];
    let end = prop::sample::select(vec!["\n", "\n", "\r\n", "\n\n", "\r\n\r\n"]);
    let row = prop_oneof![
        12 => (field.clone(), time, field.clone(), end.clone())
            .prop_map(|(key, time, rest, end)| format!("{key},{time},{rest}{end}")),
        1 => (prop::collection::vec(field, 1..5), end)
            .prop_map(|(fields, end)| format!("{}{end}", fields.join(","))),
    ];
    (prop::collection::vec(row, 0..12), any::<bool>()).prop_map(|(rows, cut)| {
        let mut text = rows.concat().into_bytes();
        if cut && text.last() == Some(&b'\n') {
            text.pop();
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn csv_is_what_the_reference_reads(data in csv_text(), block_bytes in 1usize..80) {
        let parser = parser(RowFormat::CSV, &["k", "ts", "x"], &["k"], false);
        prop_assert_eq!(parse(parser, &data, block_bytes, false), expected(&data, b','));
    }

    #[test]
    fn tsv_is_csv_with_tabs(data in csv_text(), block_bytes in 1usize..80) {
        let data: Vec<u8> =
            data.iter().map(|&b| match b { b',' => b'\t', b'\t' => b',', b => b }).collect();
        let parser = parser(RowFormat::TSV, &["k", "ts", "x"], &["k"], false);
        prop_assert_eq!(parse(parser, &data, block_bytes, false), expected(&data, b'\t'));
    }

    #[test]
    fn bytes_never_panic_and_nothing_is_lost(
        data in prop::collection::vec(
            prop::sample::select(b"a,\n\r\"{}:1\0\xff[]".to_vec()), 0..120),
        block_bytes in 1usize..40,
    ) {
        for format in [RowFormat::CSV, RowFormat::JsonLines] {
            if data.starts_with(b"\xff\xfe") {
                continue;
            }
            let (good, bad) =
                parse(parser(format, &["ts", "a"], &["a"], false), &data, block_bytes, false);
            if format == RowFormat::CSV {
                prop_assert_eq!(good.len() + bad.len(), reference::rows(&data, b',').len());
            } else {
                let lines = data.split(|&b| b == b'\n');
                let full = lines.filter(|line| !line.trim_ascii().is_empty()).count();
                prop_assert_eq!(good.len() + bad.len(), full);
            }
        }
    }

    #[test]
    fn positions_are_where_the_rows_stand(data in csv_text(), block_bytes in 1usize..80) {
        let parser = parser(RowFormat::CSV, &["k", "ts", "x"], &["k"], true);
        let (good, _) = parse(parser, &data, block_bytes, false);
        let mut last = None;
        for outcome in good {
            let Outcome::Event { row, .. } = outcome else { unreachable!() };
            let (position, row) = split_position(&row).unwrap();
            prop_assert_eq!(position.source(), 3);
            let at = position.offset() as usize;
            prop_assert_eq!(&data[at..at + row.len()], row);
            prop_assert!(last < Some(position));
            last = Some(position);
        }
    }

    #[test]
    fn json_lines_say_what_csv_says(
        rows in prop::collection::vec(("[a-c\"\\\\\n订]{1,3}", 0i64..100, any::<bool>()), 0..20),
        block_bytes in 1usize..80,
    ) {
        let (mut json, mut expected) = (String::new(), Vec::new());
        for (key, ts, as_text) in &rows {
            let ts_json = if *as_text { format!("\"{ts}\"") } else { ts.to_string() };
            let line = format!("{{\"ts\":{ts_json},\"k\":{}}}", serde_json::json!(key));
            json.push_str(&line);
            json.push('\n');
            let key = Some(key.clone().into_bytes());
            expected.push(Outcome::Event { key, ts: *ts, row: line.into_bytes() });
        }
        let parser = parser(RowFormat::JsonLines, &[], &["k"], false);
        let (good, bad) = parse(parser, json.as_bytes(), block_bytes, false);
        prop_assert_eq!(good, expected);
        prop_assert_eq!(bad, []);
    }
}

fn bad_rows(parser: BlockParser, data: &str) -> Vec<BadRow> {
    let mut reader =
        BlockReader::new(data.as_bytes(), parser.schema().format(), ReadOptions::default());
    let mut block = Block::default();
    assert!(reader.read_block(&mut block).unwrap());
    parser.clone().parse_all(&block).into_iter().flat_map(|chunk| chunk.bad).collect()
}

#[test]
fn bad_rows_say_where_and_why() {
    let data = "a,1,x\nb,,x\n\"c\nc\",x1,\n\nd,5\ne,5,6,7\n\"f\"g,1,\nh,1,\"i";
    let parser = parser(RowFormat::CSV, &["k", "ts", "x"], &["k"], false);
    let columns = parser.schema().columns().to_vec();
    let message = |bad: &BadRow| bad.message("in.csv", &columns).replace("; ", ";\n    ");
    let messages: Vec<_> = bad_rows(parser, data).iter().map(message).collect();
    expect_test::expect![[r#"
        in.csv, line 2, column "ts": it has no time;
            the row is: b,,x
        in.csv, line 3, column "ts": "x1": it is no time;
            expected a number of milliseconds since 1970;
            the row is: "c\nc",x1,
        in.csv, line 6: it has 2 fields, and there are 3 columns;
            the row is: d,5
        in.csv, line 7: it has 4 fields, and there are 3 columns;
            the row is: e,5,6,7
        in.csv, line 8: text follows a closing quote;
            quotes inside a quoted field must be doubled;
            the row is: "f"g,1,
        in.csv, line 9: a quote is opened and never closed;
            the row is: h,1,"i"#]]
    .assert_eq(&messages.join("\n"));
}

#[test]
fn json_keys_and_nulls() {
    let data = concat!(
        "{\"ts\":1,\"k\":\"a\"}\n{\"ts\":2,\"k\":7.0}\n{\"ts\":3,\"k\":null}\n{\"ts\":4}\n  \n",
        "{\"ts\":5,\"k\":true}\r\n{\"ts\":6,\"k\":\"\"}\n"
    );
    let parser = parser(RowFormat::JsonLines, &[], &["k"], false);
    let (good, bad) = parse(parser, data.as_bytes(), 16, false);
    let keys: Vec<_> = good
        .into_iter()
        .map(|outcome| match outcome {
            Outcome::Event { key, ts, .. } => (ts, key.map(|k| String::from_utf8(k).unwrap())),
            Outcome::Bad { .. } => unreachable!(),
        })
        .collect();
    let text = |text: &str| Some(text.to_owned());
    let expected =
        [(1, text("a")), (2, text("7.0")), (3, None), (4, None), (5, text("true")), (6, text(""))];
    assert_eq!((keys, bad), (expected.to_vec(), vec![]));
}

#[test]
fn json_rows_that_are_bad() {
    let data = "{\"ts\":1,\"k\":[1]}\n{\"ts\":{},\"k\":1}\n{\"k\":1}\nnonsense\n{\"ts\":1,\"k\":2";
    let parser = parser(RowFormat::JsonLines, &[], &["k"], false);
    let bad = bad_rows(parser, data);
    assert_eq!(bad.iter().map(|bad| bad.line).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(bad[0].why, BadReason::KeyIsNested);
    assert!(matches!(bad[1].why, BadReason::Time { .. }));
    assert!(matches!(bad[2].why, BadReason::Time { error: TimeTextError::Empty, .. }));
    assert!(matches!(bad[3].why, BadReason::Json(_)) && matches!(bad[4].why, BadReason::Json(_)));
}

#[test]
fn composite_keys_do_not_run_together_and_one_null_part_makes_a_null_key() {
    let data = b"a,1,bc\nab,1,c\n,1,c\nd,1,\n";
    let parser = parser(RowFormat::CSV, &["k", "ts", "x"], &["k", "x"], false);
    let (good, _) = parse(parser, data, 1, false);
    let keys: Vec<_> = good
        .iter()
        .map(|outcome| match outcome {
            Outcome::Event { key, .. } => key.as_deref().map(key::parts),
            Outcome::Bad { .. } => unreachable!(),
        })
        .collect();
    let parts = |a: &'static str, b: &'static str| {
        Some(vec![Cow::Borrowed(a.as_bytes()), Cow::Borrowed(b.as_bytes())])
    };
    assert_eq!(keys, [parts("a", "bc"), parts("ab", "c"), None, None]);
}

#[test]
fn one_column_may_be_key_and_time() {
    let data = b"1\n\"2\"\n\n3";
    let (good, bad) = parse(parser(RowFormat::CSV, &["ts"], &["ts", "ts"], false), data, 1, false);
    assert_eq!((good.len(), bad.len()), (3, 0));
}

#[test]
fn header_only_and_key_over_the_limit() {
    let columns = &["k", "ts"];
    let of = |data: &[u8]| parse(parser(RowFormat::CSV, columns, &["k"], false), data, 16, true);
    assert_eq!(of(b"\xEF\xBB\xBFk,ts\r\n"), (vec![], vec![]));
    assert_eq!(of(b""), (vec![], vec![]));
    let long = [&b"k,ts\n"[..], &vec![b'x'; crate::limits::KEY_BYTES_MAX + 1], b",5\n"].concat();
    let (good, bad) = of(&long);
    assert_eq!((good.len(), bad.len()), (0, 1));
}

#[test]
fn chunks_are_bounded_and_cover_the_block() {
    let data = "key,1700000000000,x\n".repeat(5000);
    let mut parser = parser(RowFormat::CSV, &["k", "ts", "x"], &["k"], false);
    let mut reader = BlockReader::new(data.as_bytes(), RowFormat::CSV, ReadOptions::default());
    let mut block = Block::default();
    assert!(reader.read_block(&mut block).unwrap());
    let chunks = parser.parse_all(&block);
    assert!(chunks.iter().all(|chunk| chunk.row_count() <= CHUNK_EVENTS_MAX));
    assert_eq!(chunks.iter().map(Chunk::row_count).sum::<usize>(), 5000);
    let raw = fields::delimited_count(chunks[0].events.event(0, &hasher()).row, b',');
    assert_eq!(raw, 3);
}
